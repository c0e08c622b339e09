//! Conditional functions, and those over arrays.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_select::interleave::interleave;

use super::{Function, Refusal, Resolved, call, exactly, fallible_call};
use crate::expr::build::{self, BinaryOp, Expr, ExprKind, Value};
use crate::expr::eval;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, Scope, make_booleans, make_numbers};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "COALESCE", parameters: "value [, value …]", resolve: coalesce },
    Function { name: "IFNULL", parameters: "value, value", resolve: if_null },
    Function { name: "NULLIF", parameters: "value, value", resolve: null_if },
    Function { name: "IF", parameters: "BOOLEAN, value, value", resolve: if_else },
    Function { name: "GREATEST", parameters: "value [, value …]", resolve: |args| extreme("GREATEST", args) },
    Function { name: "LEAST", parameters: "value [, value …]", resolve: |args| extreme("LEAST", args) },
    Function { name: "CARDINALITY", parameters: "ARRAY or MAP", resolve: cardinality },
    Function { name: "ELEMENT", parameters: "ARRAY", resolve: single_element },
    Function { name: "ARRAY_CONTAINS", parameters: "ARRAY, value", resolve: array_contains },
    Function { name: "TYPEOF", parameters: "value [, BOOLEAN literal]", resolve: type_of },
];

/// The type's name. Forebay knows of no NOT NULL and of no lengths: `TYPEOF('a')` is STRING, where Flink says
/// CHAR(1) NOT NULL.
fn type_of(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let value = args.next().ok_or(Refusal::Arguments)?;
    match (args.next().map(|flag| flag.kind), args.next()) {
        (None | Some(ExprKind::Literal(Value::Boolean(_))), None) => {
            Ok(build::string_literal(value.data_type.to_string()))
        }
        _ => Err(Refusal::Arguments),
    }
}

fn coalesce(args: Vec<Expr>) -> Resolved {
    if args.is_empty() { Err(Refusal::Arguments) } else { Ok(build::coalesce(args)?) }
}

fn if_null(args: Vec<Expr>) -> Resolved {
    let args: [Expr; 2] = exactly(args)?;
    coalesce(args.into())
}

fn null_if(args: Vec<Expr>) -> Resolved {
    let [value, other] = exactly(args)?;
    let equal = build::binary(BinaryOp::Equal, value.clone(), other)?;
    Ok(build::case(None, vec![(equal, build::null())], Some(value))?)
}

fn if_else(args: Vec<Expr>) -> Resolved {
    let [condition, yes, no] = exactly(args)?;
    Ok(build::case(None, vec![(condition, yes)], Some(no))?)
}

/// NULL if any of the values is.
fn extreme(name: &'static str, args: Vec<Expr>) -> Resolved {
    let (args, data_type) = build::coerce_common(args)?;
    let composite = matches!(data_type, DataType::Array(_) | DataType::Row(_) | DataType::Map(..));
    if args.is_empty() || data_type == DataType::Null || composite {
        return Err(Refusal::Arguments);
    }
    let op = if name == "GREATEST" { BinaryOp::Less } else { BinaryOp::Greater };
    let types = (data_type.clone(), data_type.clone());
    let arrow_type = data_type.arrow();
    Ok(call(name, args, data_type, move |args, scope| {
        let mut args = args.iter();
        let Some(first) = args.next() else { return new_null_array(&arrow_type, scope.rows) };
        let mut best = first.clone();
        for next in args {
            let beaten = eval::compare(op, &best, next, &types, scope);
            let Some(beaten) = beaten.as_boolean_opt() else { continue };
            let null = new_null_array(&arrow_type, 1);
            let sources: Vec<(usize, usize)> = (0..scope.rows)
                .map(|row| {
                    if beaten.is_null(row) {
                        (0, 0)
                    } else if beaten.value(row) {
                        (2, next.index(row))
                    } else {
                        (1, best.index(row))
                    }
                })
                .collect();
            let parts: [&dyn Array; 3] = [null.as_ref(), best.array().as_ref(), next.array().as_ref()];
            best = match interleave(&parts, &sources) {
                Ok(array) => Operand::Rows(array),
                Err(_) => return new_null_array(&arrow_type, scope.rows),
            };
        }
        best.into_rows(scope.rows)
    }))
}

fn cardinality(args: Vec<Expr>) -> Resolved {
    let [array] = exactly(args)?;
    if !matches!(array.data_type, DataType::Array(_) | DataType::Map(..)) {
        return Err(Refusal::Arguments);
    }
    Ok(call("CARDINALITY", vec![array], DataType::Int, |args, scope| {
        let lists = Lists::new(args);
        make_numbers::<Int32Type>(scope, &DataType::Int.arrow(), |row| {
            Ok(lists.range(row).and_then(|(start, end)| i32::try_from(end - start).ok()))
        })
    }))
}

/// Items of an array argument.
pub struct Lists<'a> {
    arg: Option<&'a Operand>,
}

impl<'a> Lists<'a> {
    fn new(args: &'a [Operand]) -> Lists<'a> {
        Lists { arg: args.first() }
    }

    /// Of this argument.
    pub fn of(arg: &'a Operand) -> Lists<'a> {
        Lists { arg: Some(arg) }
    }

    /// Where the items of a row lie in [`Lists::values`]; `None` for NULL.
    pub fn range(&self, row: usize) -> Option<(usize, usize)> {
        let arg = self.arg?;
        let list = arg.array().as_list_opt::<i32>()?;
        let index = arg.index(row);
        if index >= list.len() || list.is_null(index) {
            return None;
        }
        let (start, end) = (list.value_offsets().get(index)?, list.value_offsets().get(index + 1)?);
        Some((usize::try_from(*start).ok()?, usize::try_from(*end).ok()?))
    }

    /// The items of all rows.
    pub fn values(&self) -> Option<&'a ArrayRef> {
        self.arg?.array().as_list_opt::<i32>().map(|list| list.values())
    }
}

fn single_element(args: Vec<Expr>) -> Resolved {
    let [array] = exactly(args)?;
    let DataType::Array(item) = array.data_type.clone() else { return Err(Refusal::Arguments) };
    let arrow_type = item.arrow();
    Ok(fallible_call("ELEMENT", vec![array], *item, move |args, scope| {
        let lists = Lists::new(args);
        let missing = |rows| new_null_array(&arrow_type, rows);
        let mut sources = Vec::with_capacity(scope.rows);
        for row in 0..scope.rows {
            sources.push(match lists.range(row) {
                Some((start, end)) if end == start + 1 => (1, start),
                Some((start, end)) if end > start => {
                    scope.fail(row, format!("ELEMENT of an array with {} elements", end - start));
                    (0, 0)
                }
                _ => (0, 0),
            });
        }
        let Some(values) = lists.values() else { return missing(scope.rows) };
        let null = missing(1);
        let parts: [&dyn Array; 2] = [null.as_ref(), values.as_ref()];
        interleave(&parts, &sources).unwrap_or_else(|_| missing(scope.rows))
    }))
}

/// An array and a value, where the rows' values differ with an array of its own for each row: what an item is compared
/// with depends on the row.
pub fn per_row(args: &[Operand], rows: usize) -> Vec<Operand> {
    let mut args = args.to_vec();
    if let [array, value] = args.as_mut_slice()
        && !value.is_scalar()
    {
        *array = Operand::Rows(array.clone().into_rows(rows));
    }
    args
}

/// For each item of the first argument, an array, whether it equals the second argument of its row; see [`per_row`].
pub fn equal_items(args: &[Operand], types: &(DataType, DataType), scope: &mut Scope<'_>) -> Option<ArrayRef> {
    let [array, needle] = args else { return None };
    let lists = Lists::of(array);
    let values = lists.values()?;
    if scope.rows == 0 || needle.array().is_empty() {
        return None;
    }
    // One comparison of each item with the needle of its row.
    let mut owners = vec![0_u32; values.len()];
    for row in 0..scope.rows {
        let (start, end) = lists.range(row).unwrap_or((0, 0));
        for owner in owners.get_mut(start..end).unwrap_or_default() {
            *owner = u32::try_from(needle.index(row)).unwrap_or(0);
        }
    }
    let needles = arrow_select::take::take(needle.array(), &arrow_array::UInt32Array::from(owners), None).ok()?;
    let (items, needles) = (Operand::Rows(values.clone()), Operand::Rows(needles));
    let mut inner = Scope { rows: values.len(), context: scope.context, errors: scope.errors };
    Some(eval::compare(BinaryOp::Equal, &items, &needles, types, &mut inner))
}

/// A NULL needle is found if the array has a NULL.
fn array_contains(args: Vec<Expr>) -> Resolved {
    let [array, needle] = exactly(args)?;
    let DataType::Array(item) = array.data_type.clone() else { return Err(Refusal::Arguments) };
    let (needles, common) = build::coerce_common(vec![needle, build::literal(Value::Null, *item)])?;
    let needle = needles.into_iter().next().ok_or(Refusal::Arguments)?;
    if common.has_map() {
        return Err(Refusal::Arguments);
    }
    let array = build::cast(array, &DataType::Array(Box::new(common.clone())), false)?;
    let types = (common.clone(), common);
    Ok(call("ARRAY_CONTAINS", vec![array, needle], DataType::Boolean, move |args, scope| {
        let args = per_row(args, scope.rows);
        let lists = Lists::new(&args);
        let (Some(equal), Some(values), Some(needle)) =
            (equal_items(&args, &types, scope), lists.values(), args.get(1))
        else {
            return new_null_array(&DataType::Boolean.arrow(), scope.rows);
        };
        let equal = Operand::Rows(equal);
        let equal = equal.booleans();
        make_booleans(scope, |row| {
            let no_needle = needle.array().is_null(needle.index(row));
            Ok(lists.range(row).map(|(start, end)| {
                (start..end).any(|i| match equal.get(i) {
                    Some(same) => same,
                    None => values.is_null(i) && no_needle,
                })
            }))
        })
    }))
}
