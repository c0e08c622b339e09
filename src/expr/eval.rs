//! Evaluation of typed expressions over batches of rows.
//!
//! Kernels work on whole columns; a value that is the same for all rows is computed once and never repeated in
//! memory. An expression that can fail is evaluated only on the rows that need it (see the module documentation of
//! [`super`]); one that cannot is evaluated on all rows where that is cheaper.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, NullArray, StringArray, StructArray, new_null_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType as ArrowType, Field as ArrowField};
use arrow_select::filter::filter;
use arrow_select::interleave::interleave;
use jiff::tz::TimeZone;

use super::build::{BinaryOp, Expr, ExprKind, Test, Value};
use super::types::{DataType, arrow_fields};
use super::vector::{Operand, Scope, booleans_array, make_booleans, make_numbers, numbers_array, union_nulls};
use super::{calendar, cast, decimal};

/// Columns of equal length.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    pub columns: &'a [ArrayRef],
    /// Number of rows (columns may be none).
    pub rows: usize,
}

/// What evaluation may depend on besides the row: fixed for a pipeline, so that results are a function of the log.
#[derive(Clone, Debug)]
pub struct EvalContext {
    pub time_zone: TimeZone,
}

/// Rows on which an expression failed, with the reason of the first failure of each.
#[derive(Clone, Debug, Default)]
pub struct RowErrors {
    /// (row in the batch, reason), in no order; a row may stand more than once.
    pub list: Vec<(u32, String)>,
}

impl RowErrors {
    /// Notes that a row failed.
    pub fn push(&mut self, row: usize, reason: String) {
        self.list.push((u32::try_from(row).unwrap_or(u32::MAX), reason));
    }
}

/// The value of `expr` for every row of `batch`: an array of `expr.data_type.arrow()`, `batch.rows` long. A row that
/// fails is NULL there and noted in `errors`. Never panics.
pub fn eval(expr: &Expr, batch: &Batch<'_>, context: &EvalContext, errors: &mut RowErrors) -> ArrayRef {
    operand(expr, batch, context, errors).into_rows(batch.rows)
}

/// For every row whether `expr` (a BOOLEAN) is TRUE; NULL and a failed row count as not.
pub fn eval_predicate(expr: &Expr, batch: &Batch<'_>, context: &EvalContext, errors: &mut RowErrors) -> BooleanBuffer {
    match operand(expr, batch, context, errors) {
        Operand::Scalar(array) => {
            let is_true = Operand::Scalar(array).booleans().get(0) == Some(true);
            if is_true { BooleanBuffer::new_set(batch.rows) } else { BooleanBuffer::new_unset(batch.rows) }
        }
        Operand::Rows(array) => match array.as_boolean_opt() {
            Some(array) => known_true(array),
            None => BooleanBuffer::new_unset(batch.rows),
        },
    }
}

/// Rows that are TRUE.
fn known_true(array: &BooleanArray) -> BooleanBuffer {
    match array.nulls() {
        Some(nulls) => array.values() & nulls.inner(),
        None => array.values().clone(),
    }
}

/// Rows that are FALSE.
fn known_false(array: &BooleanArray) -> BooleanBuffer {
    match array.nulls() {
        Some(nulls) => &!array.values() & nulls.inner(),
        None => !array.values(),
    }
}

/// Evaluates an expression without repeating what is the same for all rows.
fn operand(expr: &Expr, batch: &Batch<'_>, context: &EvalContext, errors: &mut RowErrors) -> Operand {
    let data_type = &expr.data_type;
    match &expr.kind {
        ExprKind::Column(index) => column(*index, data_type, batch, errors),
        ExprKind::Literal(value) => Operand::Scalar(literal_array(value, data_type)),
        ExprKind::Cast { input, try_cast } => {
            let from = input.data_type.clone();
            apply(&[input], batch, context, errors, |args, scope| cast::run(args, &from, data_type, *try_cast, scope))
        }
        ExprKind::Negate(input) => {
            apply(&[input], batch, context, errors, |args, scope| negate(args, data_type, scope))
        }
        ExprKind::Not(input) => {
            apply(&[input], batch, context, errors, |args, _| match args.array().as_boolean_opt() {
                Some(array) => booleans_array(!array.values(), array.nulls().cloned()),
                None => new_null_array(&ArrowType::Boolean, args.array().len()),
            })
        }
        ExprKind::Test { test, input, negated } => {
            apply(&[input], batch, context, errors, |args, _| is_test(*test, args.array(), *negated))
        }
        ExprKind::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), left, right } => {
            logic(*op, left, right, batch, context, errors)
        }
        ExprKind::Binary { op, left, right } => {
            let types = (left.data_type.clone(), right.data_type.clone());
            apply_two(left, right, batch, context, errors, |l, r, scope| binary(*op, l, r, &types, data_type, scope))
        }
        ExprKind::Case { whens, otherwise } => case(whens, otherwise, data_type, batch, context, errors),
        ExprKind::Coalesce(exprs) => coalesce(exprs, data_type, batch, context, errors),
        ExprKind::InList { input, list, negated } => in_list(input, list, *negated, batch, context, errors),
        ExprKind::Field { input, field } => apply(&[input], batch, context, errors, |args, scope| {
            field_of(args.array(), *field).unwrap_or_else(|| new_null_array(&data_type.arrow(), scope.rows))
        }),
        ExprKind::Index { array, index } => apply_two(array, index, batch, context, errors, |array, index, scope| {
            element(array, index, data_type, scope)
        }),
        ExprKind::Array(items) => {
            let args: Vec<&Expr> = items.iter().collect();
            apply_all(&args, batch, context, errors, |args, scope| make_array(args, data_type, scope.rows))
        }
        ExprKind::Row(items) => {
            let args: Vec<&Expr> = items.iter().collect();
            apply_all(&args, batch, context, errors, |args, scope| make_row(args, data_type, scope.rows))
        }
        ExprKind::Call(call) => {
            let args: Vec<&Expr> = call.args.iter().collect();
            apply_all(&args, batch, context, errors, |args, scope| call.run(args, scope))
        }
    }
}

fn column(index: usize, data_type: &DataType, batch: &Batch<'_>, errors: &mut RowErrors) -> Operand {
    let expected = data_type.arrow();
    match batch.columns.get(index) {
        Some(array) if array.len() == batch.rows && *array.data_type() == expected => Operand::Rows(Arc::clone(array)),
        found => {
            let found = found.map_or_else(|| "nothing".to_owned(), |array| array.data_type().to_string());
            for row in 0..batch.rows {
                errors.push(row, format!("bug: column {index} holds {found} where {data_type} is declared"));
            }
            Operand::Rows(new_null_array(&expected, batch.rows))
        }
    }
}

/// An array of length 1 of a literal.
pub fn literal_array(value: &Value, data_type: &DataType) -> ArrayRef {
    let arrow_type = data_type.arrow();
    macro_rules! number {
        ($type:ty, $value:expr) => {
            numbers_array::<$type>(vec![$value], None, &arrow_type)
        };
    }
    match (value, data_type) {
        (Value::Boolean(b), DataType::Boolean) => Arc::new(BooleanArray::from(vec![*b])),
        (Value::Integer(i), DataType::TinyInt) => number!(Int8Type, *i as i8),
        (Value::Integer(i), DataType::SmallInt) => number!(Int16Type, *i as i16),
        (Value::Integer(i), DataType::Int) => number!(Int32Type, *i as i32),
        (Value::Integer(i), DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth) => {
            number!(Int64Type, *i)
        }
        (Value::Integer(i), DataType::Date) => number!(Date32Type, *i as i32),
        (Value::Integer(i), DataType::Time) => number!(Time32MillisecondType, *i as i32),
        (Value::Integer(i), DataType::Timestamp(_) | DataType::TimestampLtz(_)) => {
            number!(TimestampMicrosecondType, *i)
        }
        (Value::Double(d), DataType::Float) => number!(Float32Type, *d as f32),
        (Value::Double(d), DataType::Double) => number!(Float64Type, *d),
        (Value::Decimal(d), DataType::Decimal(..)) => number!(Decimal128Type, *d),
        (Value::String(s), DataType::String) => Arc::new(StringArray::from(vec![s.as_str()])),
        (Value::Bytes(b), DataType::Bytes) => Arc::new(BinaryArray::from(vec![b.as_slice()])),
        _ => new_null_array(&arrow_type, 1),
    }
}

/// Runs a kernel over evaluated arguments; once for all rows if none of them depends on the row.
fn run_kernel(
    args: &[Operand],
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
    kernel: impl FnOnce(&[Operand], &mut Scope<'_>) -> ArrayRef,
) -> Operand {
    if args.iter().all(Operand::is_scalar) {
        let mut own = RowErrors::default();
        let value = kernel(args, &mut Scope { rows: 1, context, errors: &mut own });
        for (_, reason) in own.list {
            for row in 0..batch.rows {
                errors.push(row, reason.clone());
            }
        }
        Operand::Scalar(value)
    } else {
        Operand::Rows(kernel(args, &mut Scope { rows: batch.rows, context, errors }))
    }
}

fn apply_all(
    exprs: &[&Expr],
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
    kernel: impl FnOnce(&[Operand], &mut Scope<'_>) -> ArrayRef,
) -> Operand {
    let args: Vec<Operand> = exprs.iter().map(|expr| operand(expr, batch, context, errors)).collect();
    run_kernel(&args, batch, context, errors, kernel)
}

fn apply(
    exprs: &[&Expr; 1],
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
    kernel: impl FnOnce(&Operand, &mut Scope<'_>) -> ArrayRef,
) -> Operand {
    let [expr] = exprs;
    let arg = operand(expr, batch, context, errors);
    run_kernel(std::slice::from_ref(&arg), batch, context, errors, |_, scope| kernel(&arg, scope))
}

fn apply_two(
    left: &Expr,
    right: &Expr,
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
    kernel: impl FnOnce(&Operand, &Operand, &mut Scope<'_>) -> ArrayRef,
) -> Operand {
    let args = [operand(left, batch, context, errors), operand(right, batch, context, errors)];
    let [l, r] = &args;
    run_kernel(&args, batch, context, errors, |_, scope| kernel(l, r, scope))
}

// ---- NOT, IS, AND, OR -------------------------------------------------------------------------------------------

fn is_test(test: Test, array: &ArrayRef, negated: bool) -> ArrayRef {
    let rows = array.len();
    let truth = match test {
        Test::Null | Test::Unknown => match array.logical_nulls() {
            Some(nulls) => !nulls.inner(),
            None => BooleanBuffer::new_unset(rows),
        },
        Test::True => array.as_boolean_opt().map_or_else(|| BooleanBuffer::new_unset(rows), known_true),
        Test::False => array.as_boolean_opt().map_or_else(|| BooleanBuffer::new_unset(rows), known_false),
    };
    booleans_array(if negated { !&truth } else { truth }, None)
}

/// AND and OR in three-valued logic; the right side is looked at only where the left one leaves it open.
fn logic(
    op: BinaryOp,
    left: &Expr,
    right: &Expr,
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
) -> Operand {
    let left = operand(left, batch, context, errors);
    let deciding = op == BinaryOp::Or;
    if let Operand::Scalar(_) = &left
        && left.booleans().get(0) == Some(deciding)
    {
        return left;
    }
    let left_rows = left.clone().into_rows(batch.rows);
    let Some(l) = left_rows.as_boolean_opt() else {
        return Operand::Rows(new_null_array(&ArrowType::Boolean, batch.rows));
    };
    let right = if right.can_fail() && !left.is_scalar() {
        let open = if deciding { !&known_true(l) } else { !&known_false(l) };
        let mut merge = Merge::new(batch.rows, &DataType::Boolean);
        merge.add(&open, right, batch, context, errors);
        merge.finish()
    } else {
        operand(right, batch, context, errors)
    };
    if left.is_scalar() && right.is_scalar() {
        let (a, b) = (left.booleans().get(0), right.booleans().get(0));
        let value = match (a, b) {
            (Some(x), Some(_)) if x == deciding => Some(deciding),
            (_, Some(y)) if y == deciding => Some(deciding),
            (Some(_), Some(_)) => Some(!deciding),
            _ => None,
        };
        return Operand::Scalar(Arc::new(BooleanArray::from(vec![value])));
    }
    let right_rows = right.into_rows(batch.rows);
    let Some(r) = right_rows.as_boolean_opt() else {
        return Operand::Rows(new_null_array(&ArrowType::Boolean, batch.rows));
    };
    if l.nulls().is_none() && r.nulls().is_none() {
        let values = if deciding { l.values() | r.values() } else { l.values() & r.values() };
        return Operand::Rows(booleans_array(values, None));
    }
    let (yes, no) = if deciding {
        (&known_true(l) | &known_true(r), &known_false(l) & &known_false(r))
    } else {
        (&known_true(l) & &known_true(r), &known_false(l) | &known_false(r))
    };
    let known = &yes | &no;
    Operand::Rows(booleans_array(yes, Some(NullBuffer::new(known))))
}

// ---- CASE, COALESCE, IN -----------------------------------------------------------------------------------------

/// Puts an array together from values that were computed for some of its rows each; the others are NULL.
struct Merge<'a> {
    data_type: &'a DataType,
    parts: Vec<ArrayRef>,
    /// For each row its part and the index in it.
    sources: Vec<(usize, usize)>,
    /// All rows came with the first part.
    whole: bool,
}

impl<'a> Merge<'a> {
    fn new(rows: usize, data_type: &'a DataType) -> Merge<'a> {
        Merge {
            data_type,
            parts: vec![new_null_array(&data_type.arrow(), 1)],
            sources: vec![(0, 0); rows],
            whole: false,
        }
    }

    /// Takes the value of `expr` for the rows of `mask`.
    fn add(
        &mut self,
        mask: &BooleanBuffer,
        expr: &Expr,
        batch: &Batch<'_>,
        context: &EvalContext,
        errors: &mut RowErrors,
    ) {
        let wanted = mask.count_set_bits();
        if wanted == 0 {
            return;
        }
        let part = self.parts.len();
        if wanted == batch.rows || !expr.can_fail() {
            let values = operand(expr, batch, context, errors);
            for row in mask.set_indices() {
                if let Some(source) = self.sources.get_mut(row) {
                    *source = (part, values.index(row));
                }
            }
            self.whole = wanted == batch.rows && self.parts.len() == 1 && !values.is_scalar();
            self.parts.push(Arc::clone(values.array()));
            return;
        }
        let columns = select(expr, batch, mask);
        let some = Batch { columns: &columns, rows: wanted };
        let mut own = RowErrors::default();
        let values = operand(expr, &some, context, &mut own);
        let rows: Vec<usize> = mask.set_indices().collect();
        for (i, row) in rows.iter().enumerate() {
            if let Some(source) = self.sources.get_mut(*row) {
                *source = (part, values.index(i));
            }
        }
        for (i, reason) in own.list {
            if let Some(row) = rows.get(i as usize) {
                errors.push(*row, reason);
            }
        }
        self.parts.push(Arc::clone(values.array()));
    }

    fn finish(self) -> Operand {
        let rows = self.sources.len();
        if self.whole
            && let Some(array) = self.parts.get(1)
        {
            return Operand::Rows(Arc::clone(array));
        }
        let parts: Vec<&dyn Array> = self.parts.iter().map(|part| part.as_ref()).collect();
        Operand::Rows(match interleave(&parts, &self.sources) {
            Ok(array) => array,
            Err(_) => new_null_array(&self.data_type.arrow(), rows),
        })
    }
}

/// The columns that `expr` reads, cut down to the rows of `mask`; the others stay as they are and are not looked at.
fn select(expr: &Expr, batch: &Batch<'_>, mask: &BooleanBuffer) -> Vec<ArrayRef> {
    let mask = BooleanArray::new(mask.clone(), None);
    let mut columns = batch.columns.to_vec();
    for index in expr.columns() {
        if let Some(column) = columns.get_mut(index)
            && let Ok(selected) = filter(column, &mask)
        {
            *column = selected;
        }
    }
    columns
}

fn case(
    whens: &[(Expr, Expr)],
    otherwise: &Expr,
    data_type: &DataType,
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
) -> Operand {
    let mut open = BooleanBuffer::new_set(batch.rows);
    let mut merge = Merge::new(batch.rows, data_type);
    for (condition, value) in whens {
        if open.count_set_bits() == 0 {
            break;
        }
        let holds = if condition.can_fail() {
            let mut conditions = Merge::new(batch.rows, &DataType::Boolean);
            conditions.add(&open, condition, batch, context, errors);
            conditions.finish().into_rows(batch.rows).as_boolean_opt().map(known_true)
        } else {
            Some(eval_predicate(condition, batch, context, errors))
        };
        let Some(holds) = holds else { continue };
        let taken = &open & &holds;
        merge.add(&taken, value, batch, context, errors);
        open = &open & &!&holds;
    }
    merge.add(&open, otherwise, batch, context, errors);
    merge.finish()
}

fn coalesce(
    exprs: &[Expr],
    data_type: &DataType,
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
) -> Operand {
    let mut open = BooleanBuffer::new_set(batch.rows);
    let mut merge = Merge::new(batch.rows, data_type);
    for expr in exprs {
        if open.count_set_bits() == 0 {
            break;
        }
        merge.add(&open, expr, batch, context, errors);
        // Rows that this part gave and that are NULL in it stay open.
        let part = merge.parts.len() - 1;
        if let Some(nulls) = merge.parts.last().and_then(|values| values.logical_nulls()) {
            let sources = &merge.sources;
            open = BooleanBuffer::collect_bool(batch.rows, |row| {
                open.value(row)
                    && sources.get(row).is_some_and(|(p, i)| *p == part && *i < nulls.len() && nulls.is_null(*i))
            });
        } else {
            break;
        }
        merge.whole &= open.count_set_bits() == 0;
    }
    merge.finish()
}

fn in_list(
    input: &Expr,
    list: &[Expr],
    negated: bool,
    batch: &Batch<'_>,
    context: &EvalContext,
    errors: &mut RowErrors,
) -> Operand {
    let types = (input.data_type.clone(), input.data_type.clone());
    let mut args = vec![operand(input, batch, context, errors)];
    args.extend(list.iter().map(|item| operand(item, batch, context, errors)));
    run_kernel(&args, batch, context, errors, |args, scope| {
        let Some((input, items)) = args.split_first() else {
            return new_null_array(&ArrowType::Boolean, scope.rows);
        };
        let has_null = items.iter().any(Operand::is_null_scalar);
        let decide = |found: bool| {
            if found {
                Some(!negated)
            } else if has_null {
                None
            } else {
                Some(negated)
            }
        };
        if items.iter().all(Operand::is_scalar) {
            if input.array().as_string_opt::<i32>().is_some() {
                let set: HashSet<&str> = items.iter().filter_map(|item| item.strings().get(0)).collect();
                let values = input.strings();
                return make_booleans(scope, |row| Ok(values.get(row).and_then(|value| decide(set.contains(value)))));
            }
            if input.array().as_primitive_opt::<Int32Type>().is_some() {
                return in_numbers::<Int32Type>(input, items, decide, scope);
            }
            if input.array().as_primitive_opt::<Int64Type>().is_some() {
                return in_numbers::<Int64Type>(input, items, decide, scope);
            }
        }
        let equal: Vec<ArrayRef> =
            items.iter().map(|item| binary(BinaryOp::Equal, input, item, &types, &DataType::Boolean, scope)).collect();
        let columns: Vec<Option<&BooleanArray>> = equal.iter().map(|array| array.as_boolean_opt()).collect();
        make_booleans(scope, |row| {
            let mut unknown = false;
            for column in columns.iter().flatten() {
                if row >= column.len() || column.is_null(row) {
                    unknown = true;
                } else if column.value(row) {
                    return Ok(Some(!negated));
                }
            }
            Ok(if unknown { None } else { Some(negated) })
        })
    })
}

fn in_numbers<T: ArrowPrimitiveType>(
    input: &Operand,
    items: &[Operand],
    decide: impl Fn(bool) -> Option<bool>,
    scope: &mut Scope<'_>,
) -> ArrayRef
where
    T::Native: std::hash::Hash + Eq,
{
    let set: HashSet<T::Native> = items.iter().filter_map(|item| item.numbers::<T>().get(0)).collect();
    let values = input.numbers::<T>();
    make_booleans(scope, |row| Ok(values.get(row).and_then(|value| decide(set.contains(&value)))))
}

// ---- ARRAY and ROW ----------------------------------------------------------------------------------------------

fn field_of(array: &ArrayRef, field: usize) -> Option<ArrayRef> {
    let row = array.as_struct_opt()?;
    let values = row.columns().get(field)?;
    let Some(nulls) = row.nulls() else { return Some(Arc::clone(values)) };
    // A NULL row has NULL fields, whatever lies below it.
    let absent = BooleanArray::new(!nulls.inner(), None);
    arrow_select::nullif::nullif(values, &absent).ok()
}

fn element(array: &Operand, index: &Operand, data_type: &DataType, scope: &mut Scope<'_>) -> ArrayRef {
    let missing = |rows| new_null_array(&data_type.arrow(), rows);
    let Some(list) = array.array().as_list_opt::<i32>() else { return missing(scope.rows) };
    let indices = index.numbers::<Int32Type>();
    let one = missing(1);
    let sources: Vec<(usize, usize)> = (0..scope.rows)
        .map(|row| {
            let at = array.index(row);
            let found = indices.get(row).filter(|_| at < list.len() && list.is_valid(at)).and_then(|i| {
                let offset = usize::try_from(i).ok()?.checked_sub(1)?;
                let (start, end) = (list.value_offsets().get(at)?, list.value_offsets().get(at + 1)?);
                let position = usize::try_from(*start).ok()? + offset;
                (position < usize::try_from(*end).ok()?).then_some(position)
            });
            found.map_or((0, 0), |position| (1, position))
        })
        .collect();
    interleave(&[one.as_ref(), list.values().as_ref()], &sources).unwrap_or_else(|_| missing(scope.rows))
}

fn make_array(args: &[Operand], data_type: &DataType, rows: usize) -> ArrayRef {
    let missing = || new_null_array(&data_type.arrow(), rows);
    let DataType::Array(item) = data_type else { return missing() };
    let parts: Vec<&dyn Array> = args.iter().map(|arg| arg.array().as_ref()).collect();
    let sources: Vec<(usize, usize)> =
        (0..rows).flat_map(|row| args.iter().enumerate().map(move |(part, arg)| (part, arg.index(row)))).collect();
    let values = if parts.is_empty() {
        new_null_array(&item.arrow(), 0)
    } else {
        match interleave(&parts, &sources) {
            Ok(values) => values,
            Err(_) => return missing(),
        }
    };
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(args.len(), rows));
    let field = ArrowField::new("item", item.arrow(), true);
    match ListArray::try_new(Arc::new(field), offsets, values, None) {
        Ok(array) => Arc::new(array),
        Err(_) => missing(),
    }
}

fn make_row(args: &[Operand], data_type: &DataType, rows: usize) -> ArrayRef {
    let DataType::Row(fields) = data_type else { return Arc::new(NullArray::new(rows)) };
    let columns: Vec<ArrayRef> = args.iter().map(|arg| arg.clone().into_rows(rows)).collect();
    match StructArray::try_new_with_length(arrow_fields(fields), columns, None, rows) {
        Ok(array) => Arc::new(array),
        Err(_) => new_null_array(&data_type.arrow(), rows),
    }
}

// ---- Arithmetic and comparison ----------------------------------------------------------------------------------

/// Runs `$body` with `$T` as the Arrow type behind a SQL type that is physically a number.
macro_rules! with_number {
    ($data_type:expr, $T:ident => $body:expr, else $other:expr) => {
        match $data_type {
            DataType::TinyInt => {
                type $T = Int8Type;
                $body
            }
            DataType::SmallInt => {
                type $T = Int16Type;
                $body
            }
            DataType::Int => {
                type $T = Int32Type;
                $body
            }
            DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => {
                type $T = Int64Type;
                $body
            }
            DataType::Float => {
                type $T = Float32Type;
                $body
            }
            DataType::Double => {
                type $T = Float64Type;
                $body
            }
            DataType::Date => {
                type $T = Date32Type;
                $body
            }
            DataType::Time => {
                type $T = Time32MillisecondType;
                $body
            }
            DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
                type $T = TimestampMicrosecondType;
                $body
            }
            _ => $other,
        }
    };
}

/// `f` over all rows of two columns of numbers that cannot fail; NULL where a side is.
fn map_two<T: ArrowPrimitiveType, U: ArrowPrimitiveType>(
    left: &Operand,
    right: &Operand,
    data_type: &DataType,
    rows: usize,
    f: impl Fn(T::Native, T::Native) -> U::Native,
) -> ArrayRef {
    let arrow_type = data_type.arrow();
    if left.is_null_scalar() || right.is_null_scalar() {
        return new_null_array(&arrow_type, rows);
    }
    let (l, r) = (left.numbers::<T>(), right.numbers::<T>());
    let nulls = union_nulls(&l, &r);
    let values: Vec<U::Native> = match (l.scalar, r.scalar, l.values, r.values) {
        (false, true, values, [b, ..]) => values.iter().map(|a| f(*a, *b)).collect(),
        (true, false, [a, ..], values) => values.iter().map(|b| f(*a, *b)).collect(),
        (_, _, a, b) => a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect(),
    };
    if values.len() == rows {
        numbers_array::<U>(values, nulls, &arrow_type)
    } else {
        new_null_array(&arrow_type, rows)
    }
}

/// `f` over all rows of two columns of numbers; NULL where a side is.
fn compare_two<T: ArrowPrimitiveType>(
    left: &Operand,
    right: &Operand,
    rows: usize,
    f: impl Fn(T::Native, T::Native) -> bool,
) -> ArrayRef {
    if left.is_null_scalar() || right.is_null_scalar() {
        return new_null_array(&ArrowType::Boolean, rows);
    }
    let (l, r) = (left.numbers::<T>(), right.numbers::<T>());
    let nulls = union_nulls(&l, &r);
    let values = match (l.scalar, r.scalar, l.values, r.values) {
        (false, true, values, [b, ..]) if values.len() == rows => {
            BooleanBuffer::collect_bool(rows, |i| f(values[i], *b))
        }
        (true, false, [a, ..], values) if values.len() == rows => {
            BooleanBuffer::collect_bool(rows, |i| f(*a, values[i]))
        }
        (false, false, a, b) if a.len() == rows && b.len() == rows => {
            BooleanBuffer::collect_bool(rows, |i| f(a[i], b[i]))
        }
        (true, true, [a, ..], [b, ..]) => BooleanBuffer::collect_bool(rows, |_| f(*a, *b)),
        _ => return new_null_array(&ArrowType::Boolean, rows),
    };
    booleans_array(values, nulls)
}

fn binary(
    op: BinaryOp,
    left: &Operand,
    right: &Operand,
    types: &(DataType, DataType),
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> ArrayRef {
    match op {
        BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Modulo => {
            arithmetic(op, left, right, types, data_type, scope)
        }
        BinaryOp::IsDistinctFrom | BinaryOp::IsNotDistinctFrom => {
            let equal = compare(BinaryOp::Equal, left, right, types, scope);
            let same = equal.as_boolean_opt().map_or_else(|| BooleanBuffer::new_unset(scope.rows), known_true);
            let null_rows = |side: &Operand| match side.array().logical_nulls() {
                None => BooleanBuffer::new_unset(scope.rows),
                Some(_) if side.is_null_scalar() => BooleanBuffer::new_set(scope.rows),
                Some(_) if side.is_scalar() => BooleanBuffer::new_unset(scope.rows),
                Some(nulls) => !nulls.inner(),
            };
            let same = &same | &(&null_rows(left) & &null_rows(right));
            booleans_array(if op == BinaryOp::IsDistinctFrom { !&same } else { same }, None)
        }
        BinaryOp::Concat => {
            let (l, r) = (left.strings(), right.strings());
            super::vector::make_strings(scope, |row, out| {
                let (Some(l), Some(r)) = (l.get(row), r.get(row)) else { return Ok(false) };
                out.push_str(l);
                out.push_str(r);
                Ok(true)
            })
        }
        // AND and OR never come here: their right side is lazy.
        BinaryOp::And | BinaryOp::Or => new_null_array(&ArrowType::Boolean, scope.rows),
        _ => compare(op, left, right, types, scope),
    }
}

fn holds(op: BinaryOp, ordering: std::cmp::Ordering) -> bool {
    match op {
        BinaryOp::Equal => ordering.is_eq(),
        BinaryOp::NotEqual => ordering.is_ne(),
        BinaryOp::Less => ordering.is_lt(),
        BinaryOp::LessOrEqual => ordering.is_le(),
        BinaryOp::Greater => ordering.is_gt(),
        _ => ordering.is_ge(),
    }
}

/// The six comparisons. Floats compare as in Java: NaN is unequal to all, −0.0 equals 0.0.
pub(super) fn compare(
    op: BinaryOp,
    left: &Operand,
    right: &Operand,
    types: &(DataType, DataType),
    scope: &mut Scope<'_>,
) -> ArrayRef {
    let rows = scope.rows;
    match types {
        (DataType::Decimal(_, s1), DataType::Decimal(_, s2)) => {
            let (s1, s2) = (*s1, *s2);
            compare_two::<Decimal128Type>(left, right, rows, |a, b| holds(op, decimal::compare(a, s1, b, s2)))
        }
        (DataType::String, _) => {
            let (l, r) = (left.strings(), right.strings());
            make_booleans(scope, |row| Ok(l.get(row).zip(r.get(row)).map(|(l, r)| holds(op, l.cmp(r)))))
        }
        (DataType::Bytes, _) => {
            let (l, r) = (left.bytes(), right.bytes());
            make_booleans(scope, |row| Ok(l.get(row).zip(r.get(row)).map(|(l, r)| holds(op, l.cmp(r)))))
        }
        (DataType::Boolean, _) => {
            let (l, r) = (left.booleans(), right.booleans());
            make_booleans(scope, |row| Ok(l.get(row).zip(r.get(row)).map(|(l, r)| holds(op, l.cmp(&r)))))
        }
        (DataType::Array(_) | DataType::Row(_), _) => compare_nested(op, left, right, &types.0, scope),
        (data_type, _) => with_number!(data_type, T => match op {
            BinaryOp::Equal => compare_two::<T>(left, right, rows, |a, b| a == b),
            BinaryOp::NotEqual => compare_two::<T>(left, right, rows, |a, b| a != b),
            BinaryOp::Less => compare_two::<T>(left, right, rows, |a, b| a < b),
            BinaryOp::LessOrEqual => compare_two::<T>(left, right, rows, |a, b| a <= b),
            BinaryOp::Greater => compare_two::<T>(left, right, rows, |a, b| a > b),
            _ => compare_two::<T>(left, right, rows, |a, b| a >= b),
        }, else new_null_array(&ArrowType::Boolean, rows)),
    }
}

/// `=` and `<>` of arrays and rows: by their key encoding, in which NULL equals NULL inside.
fn compare_nested(
    op: BinaryOp,
    left: &Operand,
    right: &Operand,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> ArrayRef {
    let missing = new_null_array(&ArrowType::Boolean, scope.rows);
    let types = std::slice::from_ref(data_type);
    let (Ok(mut l), Ok(mut r)) = (super::row::RowKeys::new(types), super::row::RowKeys::new(types)) else {
        return missing;
    };
    let (left_array, right_array) = (left.array(), right.array());
    let encoded = l
        .encode(std::slice::from_ref(left_array), left_array.len())
        .and_then(|()| r.encode(std::slice::from_ref(right_array), right_array.len()));
    if encoded.is_err() {
        return missing;
    }
    make_booleans(scope, |row| {
        let (i, j) = (left.index(row), right.index(row));
        if left_array.is_null(i) || right_array.is_null(j) {
            return Ok(None);
        }
        Ok(Some((l.row(i) == r.row(j)) == (op == BinaryOp::Equal)))
    })
}

fn arithmetic(
    op: BinaryOp,
    left: &Operand,
    right: &Operand,
    types: &(DataType, DataType),
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> ArrayRef {
    macro_rules! integers {
        ($T:ty, $native:ty) => {
            match op {
                BinaryOp::Add => map_two::<$T, $T>(left, right, data_type, scope.rows, <$native>::wrapping_add),
                BinaryOp::Subtract => map_two::<$T, $T>(left, right, data_type, scope.rows, <$native>::wrapping_sub),
                BinaryOp::Multiply => map_two::<$T, $T>(left, right, data_type, scope.rows, <$native>::wrapping_mul),
                _ => divide_integers::<$T>(left, right, data_type, scope, |a, b| {
                    if b == 0 {
                        None
                    } else if op == BinaryOp::Divide {
                        Some(a.wrapping_div(b))
                    } else {
                        Some(a.wrapping_rem(b))
                    }
                }),
            }
        };
    }
    macro_rules! floats {
        ($T:ty) => {
            match op {
                BinaryOp::Add => map_two::<$T, $T>(left, right, data_type, scope.rows, |a, b| a + b),
                BinaryOp::Subtract => map_two::<$T, $T>(left, right, data_type, scope.rows, |a, b| a - b),
                BinaryOp::Multiply => map_two::<$T, $T>(left, right, data_type, scope.rows, |a, b| a * b),
                BinaryOp::Divide => map_two::<$T, $T>(left, right, data_type, scope.rows, |a, b| a / b),
                _ => map_two::<$T, $T>(left, right, data_type, scope.rows, |a, b| a % b),
            }
        };
    }
    match types {
        (DataType::TinyInt, DataType::TinyInt) => integers!(Int8Type, i8),
        (DataType::SmallInt, DataType::SmallInt) => integers!(Int16Type, i16),
        (DataType::Int, DataType::Int) => integers!(Int32Type, i32),
        (
            DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth,
            DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth,
        ) => integers!(Int64Type, i64),
        (DataType::Float, _) => floats!(Float32Type),
        (DataType::Double, _) => floats!(Float64Type),
        (DataType::Decimal(_, s1), DataType::Decimal(_, s2)) => decimals(op, left, right, *s1, *s2, data_type, scope),
        (_, DataType::IntervalDayTime | DataType::IntervalYearMonth) => {
            add_interval(op == BinaryOp::Subtract, left, right, types, data_type, scope)
        }
        _ => new_null_array(&data_type.arrow(), scope.rows),
    }
}

fn divide_integers<T: ArrowPrimitiveType>(
    left: &Operand,
    right: &Operand,
    data_type: &DataType,
    scope: &mut Scope<'_>,
    f: impl Fn(T::Native, T::Native) -> Option<T::Native>,
) -> ArrayRef {
    let (l, r) = (left.numbers::<T>(), right.numbers::<T>());
    make_numbers::<T>(scope, &data_type.arrow(), |row| match l.get(row).zip(r.get(row)) {
        Some((a, b)) => f(a, b).map(Some).ok_or_else(|| "division by zero".to_owned()),
        None => Ok(None),
    })
}

fn decimals(
    op: BinaryOp,
    left: &Operand,
    right: &Operand,
    s1: u8,
    s2: u8,
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> ArrayRef {
    let DataType::Decimal(precision, scale) = data_type else { return new_null_array(&data_type.arrow(), scope.rows) };
    let to = (*precision, *scale);
    let (l, r) = (left.numbers::<Decimal128Type>(), right.numbers::<Decimal128Type>());
    make_numbers::<Decimal128Type>(scope, &data_type.arrow(), |row| {
        let Some((a, b)) = l.get(row).zip(r.get(row)) else { return Ok(None) };
        Ok(match op {
            BinaryOp::Add => decimal::add(a, s1, b, s2, to, false),
            BinaryOp::Subtract => decimal::add(a, s1, b, s2, to, true),
            BinaryOp::Multiply => decimal::multiply(a, s1, b, s2, to),
            _ if b == 0 => return Err("division by zero".to_owned()),
            BinaryOp::Divide => decimal::divide(a, s1, b, s2, to),
            _ => decimal::remainder(a, s1, b, s2, to),
        })
    })
}

/// A point in time plus or minus an interval.
fn add_interval(
    subtract: bool,
    left: &Operand,
    right: &Operand,
    types: &(DataType, DataType),
    data_type: &DataType,
    scope: &mut Scope<'_>,
) -> ArrayRef {
    const OUT_OF_RANGE: &str = "the time is out of range";
    let out_of_range = || OUT_OF_RANGE.to_owned();
    let arrow_type = data_type.arrow();
    let step = right.numbers::<Int64Type>();
    let signed = |interval: i64| if subtract { interval.checked_neg() } else { Some(interval) };
    match types {
        (DataType::Timestamp(_) | DataType::TimestampLtz(_), DataType::IntervalDayTime) => {
            let times = left.numbers::<TimestampMicrosecondType>();
            make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                let Some((time, interval)) = times.get(row).zip(step.get(row)) else { return Ok(None) };
                let us = signed(interval).and_then(|ms| ms.checked_mul(1000));
                us.and_then(|us| time.checked_add(us)).map(Some).ok_or_else(out_of_range)
            })
        }
        (DataType::Timestamp(_) | DataType::TimestampLtz(_), _) => {
            let times = left.numbers::<TimestampMicrosecondType>();
            make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                let Some((time, interval)) = times.get(row).zip(step.get(row)) else { return Ok(None) };
                let day = time.div_euclid(calendar::US_PER_DAY);
                let moved = signed(interval)
                    .filter(|months| months.unsigned_abs() < 1 << 32)
                    .map(|months| calendar::add_months(day, months));
                moved
                    .and_then(|day| day.checked_mul(calendar::US_PER_DAY))
                    .and_then(|us| us.checked_add(time.rem_euclid(calendar::US_PER_DAY)))
                    .map(Some)
                    .ok_or_else(out_of_range)
            })
        }
        (DataType::Date, DataType::IntervalDayTime) => {
            let days = left.numbers::<Date32Type>();
            if matches!(data_type, DataType::Timestamp(_)) {
                return make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                    let Some((day, interval)) = days.get(row).zip(step.get(row)) else { return Ok(None) };
                    signed(interval)
                        .and_then(|ms| (i64::from(day) * calendar::MS_PER_DAY).checked_add(ms))
                        .and_then(|ms| ms.checked_mul(1000))
                        .map(Some)
                        .ok_or_else(out_of_range)
                });
            }
            make_numbers::<Date32Type>(scope, &arrow_type, |row| {
                let Some((day, interval)) = days.get(row).zip(step.get(row)) else { return Ok(None) };
                let moved = signed(interval / calendar::MS_PER_DAY).and_then(|days| days.checked_add(day.into()));
                moved.and_then(|day| i32::try_from(day).ok()).map(Some).ok_or_else(out_of_range)
            })
        }
        (DataType::Date, _) => {
            let days = left.numbers::<Date32Type>();
            make_numbers::<Date32Type>(scope, &arrow_type, |row| {
                let Some((day, interval)) = days.get(row).zip(step.get(row)) else { return Ok(None) };
                let moved = signed(interval)
                    .filter(|months| months.unsigned_abs() < 1 << 32)
                    .map(|months| calendar::add_months(day.into(), months));
                moved.and_then(|day| i32::try_from(day).ok()).map(Some).ok_or_else(out_of_range)
            })
        }
        (DataType::Time, DataType::IntervalDayTime) => {
            let times = left.numbers::<Time32MillisecondType>();
            make_numbers::<Time32MillisecondType>(scope, &arrow_type, |row| {
                let Some((time, interval)) = times.get(row).zip(step.get(row)) else { return Ok(None) };
                let step = interval % calendar::MS_PER_DAY;
                let moved = i64::from(time) + calendar::MS_PER_DAY + if subtract { -step } else { step };
                Ok(i32::try_from(moved % calendar::MS_PER_DAY).ok())
            })
        }
        _ => left.clone().into_rows(scope.rows),
    }
}

fn negate(arg: &Operand, data_type: &DataType, scope: &mut Scope<'_>) -> ArrayRef {
    macro_rules! integers {
        ($T:ty) => {{
            let numbers = arg.numbers::<$T>();
            let values: Vec<_> = numbers.values.iter().map(|value| value.wrapping_neg()).collect();
            numbers_array::<$T>(values, numbers.nulls.cloned(), &data_type.arrow())
        }};
    }
    macro_rules! floats {
        ($T:ty) => {{
            let numbers = arg.numbers::<$T>();
            let values: Vec<_> = numbers.values.iter().map(|value| -value).collect();
            numbers_array::<$T>(values, numbers.nulls.cloned(), &data_type.arrow())
        }};
    }
    match data_type {
        DataType::TinyInt => integers!(Int8Type),
        DataType::SmallInt => integers!(Int16Type),
        DataType::Int => integers!(Int32Type),
        DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => integers!(Int64Type),
        DataType::Float => floats!(Float32Type),
        DataType::Double => floats!(Float64Type),
        DataType::Decimal(..) => integers!(Decimal128Type),
        _ => new_null_array(&data_type.arrow(), scope.rows),
    }
}
