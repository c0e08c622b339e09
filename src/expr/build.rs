//! Typed expressions and the only functions that make them: the typing rules.
//!
//! Every function returns a well-typed tree (implicit casts spelled out) or a [`TypeError`] whose message names the
//! types and says what to write instead; the SQL front end adds the place.

use thiserror::Error;

pub use super::functions::json::{ExistsOnError, Otherwise, QueryOtherwise, Shape as JsonShape, Wrapper};
use super::functions::{self, Call, Refusal, json};
pub use super::literal::{
    date_literal, interval_literal, number_literal, string_literal, time_literal, timestamp_literal,
};
use super::types::{DataType, Field};
use super::{calendar, cast as casting, decimal, text};
use crate::settings::nearest;

/// A typed expression over the columns of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub data_type: DataType,
}

/// What an expression does. Trees are made by the functions of this module only; `eval` relies on their types.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// The input column with this index.
    Column(usize),
    Literal(Value),
    /// The input as a value of the expression's type.
    Cast {
        input: Box<Expr>,
        try_cast: bool,
    },
    /// Arithmetic, comparison, AND, OR. Both sides have one type, but for DECIMAL, where scales may differ.
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    Test {
        test: Test,
        input: Box<Expr>,
        negated: bool,
    },
    /// The value behind the first condition that is TRUE. All values have the expression's type.
    Case {
        whens: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    /// The first value that is not NULL. All have the expression's type.
    Coalesce(Vec<Expr>),
    /// Whether the input equals one of the list; all have comparable types.
    InList {
        input: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    /// Field number `field` of a ROW.
    Field {
        input: Box<Expr>,
        field: usize,
    },
    /// Element `index` (INT, from 1) of an ARRAY; NULL beyond its end.
    Index {
        array: Box<Expr>,
        index: Box<Expr>,
    },
    /// `ARRAY[…]`; all items have the item type.
    Array(Vec<Expr>),
    /// `ROW(…)`.
    Row(Vec<Expr>),
    /// A function of the registry.
    Call(Call),
}

/// A literal's value; its type stands in the [`Expr`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    /// TINYINT to BIGINT; DATE (days), TIME (ms), TIMESTAMP and TIMESTAMP_LTZ (µs), intervals (ms or months).
    Integer(i64),
    /// FLOAT and DOUBLE.
    Double(f64),
    /// Unscaled value of a DECIMAL.
    Decimal(i128),
    String(String),
    Bytes(Vec<u8>),
}

/// Why no typed expression can be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TypeError {
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Concat,
    IsDistinctFrom,
    IsNotDistinctFrom,
}

/// `IS …` tests that look at one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Null,
    True,
    False,
    Unknown,
}

/// Which end TRIM cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimSide {
    Both,
    Leading,
    Trailing,
}

/// Units of EXTRACT, FLOOR … TO, TIMESTAMPADD, TIMESTAMPDIFF and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Nanosecond,
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
}

type Built = Result<Expr, TypeError>;

fn refuse<T>(message: impl Into<String>, help: Option<&str>) -> Result<T, TypeError> {
    Err(TypeError { message: message.into(), help: help.map(str::to_owned) })
}

/// The column of the input with this index and type.
pub fn column(index: usize, data_type: DataType) -> Expr {
    Expr { kind: ExprKind::Column(index), data_type }
}

/// A literal of a type.
pub fn literal(value: Value, data_type: DataType) -> Expr {
    Expr { kind: ExprKind::Literal(value), data_type }
}

/// A bare NULL.
pub fn null() -> Expr {
    literal(Value::Null, DataType::Null)
}

// ---- Common types -----------------------------------------------------------------------------------------------

/// The type that holds all values of both, as Flink's `LogicalTypeMerging` finds it.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    if a == b {
        return Some(a.clone());
    }
    Some(match (a, b) {
        (T::Null, other) | (other, T::Null) => other.clone(),
        (T::Timestamp(p), T::Timestamp(q)) => T::Timestamp(*p.max(q)),
        (T::TimestampLtz(p), T::TimestampLtz(q) | T::Timestamp(q)) | (T::Timestamp(p), T::TimestampLtz(q)) => {
            T::TimestampLtz(*p.max(q))
        }
        (T::Date, T::Timestamp(p)) | (T::Timestamp(p), T::Date) => T::Timestamp(*p),
        (T::Date, T::TimestampLtz(p)) | (T::TimestampLtz(p), T::Date) => T::TimestampLtz(*p),
        (T::Array(a), T::Array(b)) => T::Array(Box::new(common_type(a, b)?)),
        (T::Map(k, v), T::Map(l, w)) => T::Map(Box::new(common_type(k, l)?), Box::new(common_type(v, w)?)),
        (T::Row(a), T::Row(b)) if a.len() == b.len() => {
            let fields = a
                .iter()
                .zip(b)
                .map(|(a, b)| Some(Field { data_type: common_type(&a.data_type, &b.data_type)?, ..a.clone() }));
            T::Row(fields.collect::<Option<_>>()?)
        }
        (a, b) if a.is_numeric() && b.is_numeric() => common_number(a, b),
        _ => return None,
    })
}

fn common_number(a: &DataType, b: &DataType) -> DataType {
    use DataType as T;
    match (a, b) {
        (T::Double, _) | (_, T::Double) | (T::Float, T::Decimal(..)) | (T::Decimal(..), T::Float) => T::Double,
        (T::Float, _) | (_, T::Float) => T::Float,
        (T::Decimal(..), _) | (_, T::Decimal(..)) => match (decimal::shape_of(a), decimal::shape_of(b)) {
            (Some(a), Some(b)) => {
                let (precision, scale) = decimal::common_shape(a, b);
                T::Decimal(precision, scale)
            }
            _ => T::Double,
        },
        (T::BigInt, _) | (_, T::BigInt) => T::BigInt,
        (T::Int, _) | (_, T::Int) => T::Int,
        (T::SmallInt, _) | (_, T::SmallInt) => T::SmallInt,
        _ => T::TinyInt,
    }
}

/// A cast that is known to exist; literals of numbers become literals of the other type.
pub(super) fn implicit_cast(e: Expr, target: &DataType) -> Expr {
    if e.data_type == *target {
        return e;
    }
    let folded = match (&e.kind, target) {
        (ExprKind::Literal(Value::Null), _) => Some(Value::Null),
        (ExprKind::Literal(Value::Integer(i)), DataType::SmallInt | DataType::Int | DataType::BigInt)
            if e.data_type.is_integer() =>
        {
            fits(*i, target).then_some(Value::Integer(*i))
        }
        (ExprKind::Literal(Value::Integer(i)), DataType::Double) if e.data_type.is_integer() => {
            Some(Value::Double(*i as f64))
        }
        (ExprKind::Literal(Value::Integer(i)), DataType::Decimal(precision, scale)) if e.data_type.is_integer() => {
            decimal::rescale((*i).into(), 0, (*precision, *scale)).map(Value::Decimal)
        }
        (ExprKind::Literal(Value::Decimal(d)), DataType::Double) => {
            decimal::shape_of(&e.data_type).map(|shape| Value::Double(decimal::to_f64(*d, shape)))
        }
        _ => None,
    };
    match folded {
        Some(value) => literal(value, target.clone()),
        None => Expr { kind: ExprKind::Cast { input: Box::new(e), try_cast: false }, data_type: target.clone() },
    }
}

fn fits(value: i64, target: &DataType) -> bool {
    match target {
        DataType::TinyInt => i8::try_from(value).is_ok(),
        DataType::SmallInt => i16::try_from(value).is_ok(),
        DataType::Int => i32::try_from(value).is_ok(),
        _ => true,
    }
}

/// Casts all expressions to their common type: UNION ALL, CASE, COALESCE.
///
/// # Errors
/// There is no common type.
pub fn coerce_common(exprs: Vec<Expr>) -> Result<(Vec<Expr>, DataType), TypeError> {
    let mut common = DataType::Null;
    for e in &exprs {
        match common_type(&common, &e.data_type) {
            Some(wider) => common = wider,
            None => {
                return refuse(
                    format!("{common} and {} have no common type", e.data_type),
                    Some("CAST one of them to the type of the other"),
                );
            }
        }
    }
    Ok((exprs.into_iter().map(|e| implicit_cast(e, &common)).collect(), common))
}

// ---- Operators --------------------------------------------------------------------------------------------------

fn boolean_operand(e: Expr, operator: &str) -> Built {
    match e.data_type {
        DataType::Boolean => Ok(e),
        DataType::Null => Ok(implicit_cast(e, &DataType::Boolean)),
        other => refuse(format!("{operator} needs a BOOLEAN, not {other}"), Some("compare it with something: x <> 0")),
    }
}

impl BinaryOp {
    /// The operator in SQL text.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Subtract => "-",
            BinaryOp::Multiply => "*",
            BinaryOp::Divide => "/",
            BinaryOp::Modulo => "%",
            BinaryOp::Equal => "=",
            BinaryOp::NotEqual => "<>",
            BinaryOp::Less => "<",
            BinaryOp::LessOrEqual => "<=",
            BinaryOp::Greater => ">",
            BinaryOp::GreaterOrEqual => ">=",
            BinaryOp::And => "AND",
            BinaryOp::Or => "OR",
            BinaryOp::Concat => "||",
            BinaryOp::IsDistinctFrom => "IS DISTINCT FROM",
            BinaryOp::IsNotDistinctFrom => "IS NOT DISTINCT FROM",
        }
    }
}

fn make_binary(op: BinaryOp, left: Expr, right: Expr, data_type: DataType) -> Expr {
    Expr { kind: ExprKind::Binary { op, left: Box::new(left), right: Box::new(right) }, data_type }
}

/// Operators between two values: arithmetic, comparison, AND, OR, `||`, IS [NOT] DISTINCT FROM.
///
/// # Errors
/// The operator does not take these types.
pub fn binary(op: BinaryOp, left: Expr, right: Expr) -> Built {
    match op {
        BinaryOp::And | BinaryOp::Or => {
            let (left, right) = (boolean_operand(left, op.symbol())?, boolean_operand(right, op.symbol())?);
            Ok(make_binary(op, left, right, DataType::Boolean))
        }
        BinaryOp::Concat => {
            for side in [&left, &right] {
                if !matches!(side.data_type, DataType::String | DataType::Null) {
                    return refuse(format!("|| needs STRING, not {}", side.data_type), Some("write CAST(x AS STRING)"));
                }
            }
            let (left, right) = (implicit_cast(left, &DataType::String), implicit_cast(right, &DataType::String));
            Ok(make_binary(op, left, right, DataType::String))
        }
        BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide | BinaryOp::Modulo => {
            arithmetic(op, left, right)
        }
        _ => {
            let (left, right) = comparable(op, left, right)?;
            Ok(make_binary(op, left, right, DataType::Boolean))
        }
    }
}

/// Casts two values so that they can be compared.
fn comparable(op: BinaryOp, left: Expr, right: Expr) -> Result<(Expr, Expr), TypeError> {
    use DataType as T;
    if let Some(map) = [&left.data_type, &right.data_type].into_iter().find(|side| side.has_map()) {
        return refuse(format!("{map} cannot be compared"), Some("compare what it holds: m['key'] = 1"));
    }
    let is_time = |t: &T| matches!(t, T::Date | T::Time | T::Timestamp(_) | T::TimestampLtz(_));
    if left.data_type == T::String && is_time(&right.data_type) {
        let left = time_of_string(left, &right.data_type)?;
        return Ok((left, right));
    }
    if right.data_type == T::String && is_time(&left.data_type) {
        let right = time_of_string(right, &left.data_type)?;
        return Ok((left, right));
    }
    let common = match (&left.data_type, &right.data_type) {
        (T::Null, T::Null) => Some(T::Boolean),
        // Physically the same, whatever the precision; DECIMALs of different scales compare without a cast, too.
        (T::Timestamp(_), T::Timestamp(_))
        | (T::TimestampLtz(_), T::TimestampLtz(_))
        | (T::Decimal(..), T::Decimal(..)) => return Ok((left, right)),
        (T::Decimal(..), t) if t.is_integer() => None,
        (t, T::Decimal(..)) if t.is_integer() => None,
        (a, b) => match common_type(a, b) {
            Some(common) => Some(common),
            None => {
                let help = match (a, b) {
                    (T::String, other) | (other, T::String) => format!("write CAST(x AS {other})"),
                    (T::TimestampLtz(_), T::BigInt) | (T::BigInt, T::TimestampLtz(_)) => {
                        "write TO_TIMESTAMP_LTZ(x, 3) for milliseconds since 1970, TO_TIMESTAMP_LTZ(x, 0) for seconds"
                            .to_owned()
                    }
                    _ => "CAST one of them to the type of the other".to_owned(),
                };
                return refuse(format!("cannot compare {a} with {b}"), Some(&help));
            }
        },
    };
    let Some(common) = common else {
        return Ok((integer_as_decimal(left), integer_as_decimal(right)));
    };
    let ordered = matches!(op, BinaryOp::Less | BinaryOp::LessOrEqual | BinaryOp::Greater | BinaryOp::GreaterOrEqual);
    if ordered && matches!(common, T::Array(_) | T::Row(_)) {
        return refuse(format!("{common} has no order"), Some("only = and <> compare arrays and rows"));
    }
    Ok((implicit_cast(left, &common), implicit_cast(right, &common)))
}

fn integer_as_decimal(e: Expr) -> Expr {
    match decimal::shape_of(&e.data_type) {
        Some((precision, scale)) => implicit_cast(e, &DataType::Decimal(precision, scale)),
        None => e,
    }
}

/// A string that is compared with a time is read as one; what cannot be read is NULL, a literal is refused.
fn time_of_string(e: Expr, target: &DataType) -> Built {
    if let ExprKind::Literal(Value::String(written)) = &e.kind {
        let parsed = match target {
            DataType::Date => text::parse_date(written),
            DataType::Time => text::parse_time(written),
            _ => text::parse_timestamp(written),
        };
        match (parsed, target) {
            (None, _) => {
                return refuse(
                    format!("'{written}' cannot be compared with {target}: it is no value of that type"),
                    Some("write for example '2026-04-02 01:02:03'"),
                );
            }
            (Some(value), DataType::Date | DataType::Time | DataType::Timestamp(_)) => {
                return Ok(literal(Value::Integer(value), target.clone()));
            }
            _ => {}
        }
    }
    Ok(Expr { kind: ExprKind::Cast { input: Box::new(e), try_cast: true }, data_type: target.clone() })
}

fn is_interval(data_type: &DataType) -> bool {
    matches!(data_type, DataType::IntervalDayTime | DataType::IntervalYearMonth)
}

fn arithmetic(op: BinaryOp, left: Expr, right: Expr) -> Built {
    use DataType as T;
    let no_rule = |left: &T, right: &T, help: Option<&str>| {
        let help = help.or(Some("CAST one of them, or leave the operator out: it takes numbers, times and intervals"));
        refuse(format!("cannot compute {left} {} {right}", op.symbol()), help)
    };
    match (&left.data_type, &right.data_type) {
        (T::Null, T::Null) => Ok(make_binary(op, implicit_cast(left, &T::Int), implicit_cast(right, &T::Int), T::Int)),
        (T::Null, other) if other.is_numeric() => {
            let left_type = other.clone();
            arithmetic(op, implicit_cast(left, &left_type), right)
        }
        (other, T::Null) if other.is_numeric() => {
            let right_type = other.clone();
            arithmetic(op, left, implicit_cast(right, &right_type))
        }
        (a, b) if a.is_numeric() && b.is_numeric() => Ok(numbers(op, left, right)),
        (a, b) if is_interval(a) && a == b && matches!(op, BinaryOp::Add | BinaryOp::Subtract) => {
            let data_type = a.clone();
            Ok(make_binary(op, left, right, data_type))
        }
        (a, b) if is_interval(a) && b.is_integer() && op == BinaryOp::Multiply => {
            let data_type = a.clone();
            Ok(make_binary(op, left, implicit_cast(right, &T::BigInt), data_type))
        }
        (a, b) if a.is_integer() && is_interval(b) && op == BinaryOp::Multiply => arithmetic(op, right, left),
        (a, b) if is_interval(a) && !is_interval(b) && op == BinaryOp::Add => arithmetic(op, right, left),
        (T::Date | T::Time | T::Timestamp(_) | T::TimestampLtz(_), b)
            if is_interval(b) && matches!(op, BinaryOp::Add | BinaryOp::Subtract) =>
        {
            let data_type = left.data_type.clone();
            Ok(make_binary(op, left, right, data_type))
        }
        (
            a @ (T::Date | T::Time | T::Timestamp(_) | T::TimestampLtz(_)),
            b @ (T::Date | T::Time | T::Timestamp(_) | T::TimestampLtz(_)),
        ) => no_rule(a, b, Some("write TIMESTAMPDIFF(SECOND, b, a) for a - b")),
        (T::Date | T::Timestamp(_) | T::TimestampLtz(_), b) if b.is_numeric() => {
            no_rule(&left.data_type, b, Some("add an interval: x + INTERVAL '1' SECOND"))
        }
        (a @ T::String, b) | (a, b @ T::String) => no_rule(a, b, Some("write CAST(x AS DOUBLE); strings join with ||")),
        (a, b) => no_rule(a, b, None),
    }
}

fn numbers(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    let common = common_number(&left.data_type, &right.data_type);
    if !matches!(common, DataType::Decimal(..)) {
        // The remainder has the type of the divisor (Flink's MOD); an integer remainder always fits it.
        if op == BinaryOp::Modulo && common.is_integer() {
            let data_type = right.data_type.clone();
            let made = make_binary(op, implicit_cast(left, &common), implicit_cast(right, &common), common);
            return implicit_cast(made, &data_type);
        }
        return make_binary(op, implicit_cast(left, &common), implicit_cast(right, &common), common);
    }
    let divisor = right.data_type.clone();
    let (left, right) = (integer_as_decimal(left), integer_as_decimal(right));
    let shapes = decimal::shape_of(&left.data_type).zip(decimal::shape_of(&right.data_type));
    let (precision, scale) = match (op, shapes) {
        (BinaryOp::Multiply, Some((l, r))) => decimal::product_shape(l, r),
        (BinaryOp::Divide, Some((l, r))) => decimal::quotient_shape(l, r),
        (BinaryOp::Modulo, Some((l, r))) => decimal::remainder_shape(l, r),
        (_, Some((l, r))) => decimal::sum_shape(l, r),
        (_, None) => (decimal::PRECISION_MAX, 0),
    };
    let made = make_binary(op, left, right, DataType::Decimal(precision, scale));
    // Flink's MOD of DECIMALs without digits behind the point has the type of the divisor, too.
    if op == BinaryOp::Modulo && shapes.is_some_and(|((_, left), (_, right))| left == 0 && right == 0) {
        return implicit_cast(made, &divisor);
    }
    made
}

/// `-e`.
///
/// # Errors
/// It is neither a number nor an interval.
pub fn negate(e: Expr) -> Built {
    if !e.data_type.is_numeric() && !is_interval(&e.data_type) {
        if e.data_type == DataType::Null {
            return Ok(implicit_cast(e, &DataType::Int));
        }
        return refuse(format!("- needs a number, not {}", e.data_type), Some("write CAST(x AS DOUBLE)"));
    }
    let folded = match &e.kind {
        ExprKind::Literal(Value::Integer(i)) => i.checked_neg().filter(|i| fits(*i, &e.data_type)).map(Value::Integer),
        ExprKind::Literal(Value::Double(d)) => Some(Value::Double(-d)),
        ExprKind::Literal(Value::Decimal(d)) => d.checked_neg().map(Value::Decimal),
        _ => None,
    };
    let data_type = e.data_type.clone();
    Ok(match folded {
        Some(value) => literal(value, data_type),
        None => Expr { kind: ExprKind::Negate(Box::new(e)), data_type },
    })
}

/// `NOT e`.
///
/// # Errors
/// It is no BOOLEAN.
pub fn not(e: Expr) -> Built {
    let e = boolean_operand(e, "NOT")?;
    Ok(Expr { kind: ExprKind::Not(Box::new(e)), data_type: DataType::Boolean })
}

/// `e IS [NOT] NULL | TRUE | FALSE | UNKNOWN`.
///
/// # Errors
/// A truth test of something that is no BOOLEAN.
pub fn is_test(test: Test, e: Expr, negated: bool) -> Built {
    let e = match test {
        Test::Null => e,
        Test::True => boolean_operand(e, "IS TRUE")?,
        Test::False => boolean_operand(e, "IS FALSE")?,
        Test::Unknown => boolean_operand(e, "IS UNKNOWN")?,
    };
    Ok(Expr { kind: ExprKind::Test { test, input: Box::new(e), negated }, data_type: DataType::Boolean })
}

/// `CAST(e AS target)` or `TRY_CAST`.
///
/// # Errors
/// There is no such cast.
pub fn cast(e: Expr, target: &DataType, try_cast: bool) -> Built {
    use DataType as T;
    if !casting::exists(&e.data_type, target) {
        let help = match (&e.data_type, target) {
            (from, T::Timestamp(_) | T::TimestampLtz(_)) if from.is_numeric() => {
                Some("write TO_TIMESTAMP_LTZ(x, 3) for milliseconds, TO_TIMESTAMP_LTZ(x, 0) for seconds since 1970")
            }
            (T::Timestamp(_) | T::TimestampLtz(_), to) if to.is_numeric() => {
                Some("write EXTRACT(EPOCH FROM x), or TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', x)")
            }
            (T::Float | T::Double, T::Boolean) => Some("write x <> 0"),
            _ => Some("take another type: Flink has no such cast"),
        };
        return refuse(format!("cannot cast {} to {target}", e.data_type), help);
    }
    if e.data_type == *target {
        return Ok(e);
    }
    if matches!(e.kind, ExprKind::Literal(Value::Null)) {
        return Ok(literal(Value::Null, target.clone()));
    }
    Ok(Expr { kind: ExprKind::Cast { input: Box::new(e), try_cast }, data_type: target.clone() })
}

/// `CASE [operand] WHEN … THEN … [ELSE …] END`.
///
/// # Errors
/// A condition is no BOOLEAN, or the values have no common type.
pub fn case(operand: Option<Expr>, whens: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Built {
    let (conditions, mut values): (Vec<Expr>, Vec<Expr>) = whens.into_iter().unzip();
    let conditions = conditions.into_iter().map(|condition| match &operand {
        Some(operand) => binary(BinaryOp::Equal, operand.clone(), condition),
        None => boolean_operand(condition, "WHEN"),
    });
    let conditions: Vec<Expr> = conditions.collect::<Result<_, _>>()?;
    values.push(otherwise.unwrap_or_else(null));
    let (mut values, data_type) = coerce_common(values)?;
    let otherwise = Box::new(values.pop().unwrap_or_else(null));
    let whens = conditions.into_iter().zip(values).collect();
    Ok(Expr { kind: ExprKind::Case { whens, otherwise }, data_type })
}

/// The first of the values that is not NULL.
pub(super) fn coalesce(values: Vec<Expr>) -> Built {
    let (values, data_type) = coerce_common(values)?;
    Ok(Expr { kind: ExprKind::Coalesce(values), data_type })
}

/// `e [NOT] IN (…)`.
///
/// # Errors
/// An item cannot be compared with `e`.
pub fn in_list(e: Expr, list: Vec<Expr>, negated: bool) -> Built {
    let mut pairs = Vec::with_capacity(list.len());
    for item in &list {
        pairs.push(comparable(BinaryOp::Equal, e.clone(), item.clone())?);
    }
    let plain = pairs.iter().all(|(left, right)| left.data_type == right.data_type && *left == e);
    if plain && !pairs.is_empty() {
        let list = pairs.into_iter().map(|(_, item)| item).collect();
        return Ok(Expr { kind: ExprKind::InList { input: Box::new(e), list, negated }, data_type: DataType::Boolean });
    }
    // The items ask for different casts of the value: one common type, or else one comparison each.
    let mut all = vec![e.clone()];
    all.extend(list);
    if let Ok((mut all, common)) = coerce_common(all)
        && common != DataType::Null
        && all.len() > 1
    {
        let input = Box::new(all.remove(0));
        return Ok(Expr { kind: ExprKind::InList { input, list: all, negated }, data_type: DataType::Boolean });
    }
    let mut tests = pairs.into_iter().map(|(left, right)| make_binary(BinaryOp::Equal, left, right, DataType::Boolean));
    let Some(first) = tests.next() else { return refuse("IN needs at least one value", Some("write x IN (1, 2)")) };
    let any = tests.fold(first, |any, test| make_binary(BinaryOp::Or, any, test, DataType::Boolean));
    if negated { not(any) } else { Ok(any) }
}

/// `e [NOT] BETWEEN low AND high`.
///
/// # Errors
/// The bounds cannot be compared with `e`.
pub fn between(e: Expr, low: Expr, high: Expr, negated: bool) -> Built {
    let from = binary(BinaryOp::GreaterOrEqual, e.clone(), low)?;
    let to = binary(BinaryOp::LessOrEqual, e, high)?;
    let inside = binary(BinaryOp::And, from, to)?;
    if negated { not(inside) } else { Ok(inside) }
}

/// `e [NOT] BETWEEN SYMMETRIC a AND b`: the bounds stand in any order.
///
/// # Errors
/// The types cannot be compared.
pub fn between_symmetric(e: Expr, a: Expr, b: Expr, negated: bool) -> Built {
    let (up, down) = (between(e.clone(), a.clone(), b.clone(), false)?, between(e, b, a, false)?);
    let inside = binary(BinaryOp::Or, up, down)?;
    if negated { not(inside) } else { Ok(inside) }
}

/// `(a, b) OVERLAPS (c, d)`: whether the periods have a point in common. The ends belong to them and stand in any
/// order; the second of a period may be its length.
///
/// # Errors
/// No points in time, or of different types.
pub fn overlaps(left: Vec<Expr>, right: Vec<Expr>) -> Built {
    let all: Vec<String> = left.iter().chain(&right).map(|e| e.data_type.to_string()).collect();
    let refused = || {
        refuse(
            format!("OVERLAPS does not compare ({})", all.join(", ")),
            Some("write (a, b) OVERLAPS (c, d), all of one type of time; b and d may be intervals"),
        )
    };
    let class = |data_type: &DataType| match data_type {
        DataType::Date => Some(0),
        DataType::Time => Some(1),
        DataType::Timestamp(_) => Some(2),
        DataType::TimestampLtz(_) => Some(3),
        _ => None,
    };
    let (Ok([a, b]), Ok([c, d])) = (<[Expr; 2]>::try_from(left), <[Expr; 2]>::try_from(right)) else {
        return refused();
    };
    let end = |start: &Expr, end: Expr| match is_interval(&end.data_type) {
        true => binary(BinaryOp::Add, start.clone(), end),
        false => Ok(end),
    };
    let kind = class(&a.data_type);
    if kind.is_none() {
        return refused();
    }
    let (b, d) = (end(&a, b)?, end(&c, d)?);
    if [&b, &c, &d].into_iter().any(|e| class(&e.data_type) != kind) {
        return refused();
    }
    let ordered = |from: Expr, to: Expr| -> Result<(Expr, Expr), TypeError> {
        let up = binary(BinaryOp::LessOrEqual, from.clone(), to.clone())?;
        let first = case(None, vec![(up.clone(), from.clone())], Some(to.clone()))?;
        Ok((first, case(None, vec![(up, to)], Some(from))?))
    };
    let ((a, b), (c, d)) = (ordered(a, b)?, ordered(c, d)?);
    let reaches = (binary(BinaryOp::GreaterOrEqual, b, c)?, binary(BinaryOp::GreaterOrEqual, d, a)?);
    binary(BinaryOp::And, reaches.0, reaches.1)
}

/// A length of characters or bytes: `VARCHAR(n)` cuts what is longer, `CHAR(n)` pads what is shorter, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Characters {
    pub length: i32,
    pub is_padded: bool,
}

/// `CAST(e AS VARCHAR(n))`, `CAST(e AS CHAR(n))`. The result is a STRING: nothing here depends on a type's length.
///
/// # Errors
/// `e` cannot be cast to STRING.
pub fn cast_to_characters(e: Expr, to: Characters, try_cast: bool) -> Built {
    let text = cast(e, &DataType::String, try_cast)?;
    let length = || literal(Value::Integer(to.length.into()), DataType::Int);
    match to.is_padded {
        true => function("RPAD", vec![text, length(), literal(Value::String(" ".into()), DataType::String)]),
        false => substring(text, literal(Value::Integer(1), DataType::Int), Some(length())),
    }
}

/// `CAST(e AS VARBINARY(n))`, `CAST(e AS BINARY(n))`: the bytes, cut to the length, and filled up with zeros.
///
/// # Errors
/// `e` cannot be cast to BYTES.
pub fn cast_to_octets(e: Expr, to: Characters, try_cast: bool) -> Built {
    Ok(functions::encoding::resized(cast(e, &DataType::Bytes, try_cast)?, to))
}

/// `e [NOT] LIKE pattern [ESCAPE c]`.
///
/// # Errors
/// Not STRINGs, or the pattern ends in its escape character or escapes what needs none.
pub fn like(e: Expr, pattern: Expr, escape: Option<char>, negated: bool) -> Built {
    let (e, pattern) = (string_operand(e, "LIKE")?, string_operand(pattern, "LIKE")?);
    let like = functions::pattern::like(e, pattern, escape)?;
    if negated { not(like) } else { Ok(like) }
}

/// `e [NOT] SIMILAR TO pattern [ESCAPE c]`.
///
/// # Errors
/// Not STRINGs, or the pattern is none, or has something that is not supported.
pub fn similar(e: Expr, pattern: Expr, escape: Option<char>, negated: bool) -> Built {
    let (e, pattern) = (string_operand(e, "SIMILAR TO")?, string_operand(pattern, "SIMILAR TO")?);
    let similar = functions::similar::similar(e, pattern, escape)?;
    if negated { not(similar) } else { Ok(similar) }
}

fn string_operand(e: Expr, operator: &str) -> Built {
    match e.data_type {
        DataType::String => Ok(e),
        DataType::Null => Ok(implicit_cast(e, &DataType::String)),
        other => refuse(format!("{operator} needs a STRING, not {other}"), Some("write CAST(x AS STRING)")),
    }
}

/// Checks that there is a scalar function of this name (any case).
///
/// # Errors
/// There is none, or it is not taken.
pub fn known_function(name: &str) -> Result<(), TypeError> {
    functions::known(name).map(|_| ())
}

/// A call of a scalar function by name (any case).
///
/// # Errors
/// There is no such function, or it does not take these arguments.
pub fn function(name: &str, args: Vec<Expr>) -> Built {
    functions::resolve(name, args)
}

/// Names the signature in place of a bare [`Refusal::Arguments`].
fn explained(resolved: functions::Resolved, message: impl FnOnce() -> String) -> Built {
    resolved.map_err(|refusal| match refusal {
        Refusal::Because(error) => error,
        Refusal::Arguments => {
            TypeError { message: message(), help: Some("CAST the arguments to other types".to_owned()) }
        }
    })
}

/// `JSON_VALUE` with its clauses.
///
/// # Errors
/// The path is no path, or the type is not one that is returned.
pub fn json_value(doc: Expr, path: Expr, returning: &DataType, on_empty: Otherwise, on_error: Otherwise) -> Built {
    let types = format!("({}, {})", doc.data_type, path.data_type);
    explained(json::value(doc, path, returning, on_empty, on_error), || {
        format!("JSON_VALUE takes (STRING, STRING literal), not {types}, and defaults of type {returning}")
    })
}

/// `JSON_QUERY` with its clauses: STRING, or ARRAY<STRING>.
///
/// # Errors
/// The path is no path, or the clauses do not fit the type.
pub fn json_query(
    doc: Expr,
    path: Expr,
    wrapper: Wrapper,
    on_empty: QueryOtherwise,
    on_error: QueryOtherwise,
    is_array: bool,
) -> Built {
    let types = format!("({}, {})", doc.data_type, path.data_type);
    let query = match is_array {
        true => json::query_array(doc, path, wrapper, on_empty, on_error),
        false => json::query(doc, path, wrapper, on_empty, on_error),
    };
    explained(query, || format!("JSON_QUERY takes (STRING, STRING literal), not {types}"))
}

/// `JSON_OBJECT` or `JSON_ARRAY` with its clause.
///
/// # Errors
/// A value has no JSON text.
pub fn json_made(name: &str, args: Vec<Expr>, with_nulls: bool) -> Built {
    explained(functions::json_made(name, args, with_nulls), || format!("{name} takes string literals as keys"))
}

/// `JSON(text)` as a value of `JSON_OBJECT` or `JSON_ARRAY`: put in as JSON, not as a string.
///
/// # Errors
/// It is no STRING.
pub fn json_raw(args: Vec<Expr>) -> Built {
    explained(functions::json_raw(args), || "JSON takes one STRING".to_owned())
}

/// The key of `JSON_OBJECTAGG`: a row in which it is NULL fails.
///
/// # Errors
/// It is no STRING.
pub fn json_key(key: Expr) -> Built {
    let data_type = key.data_type.clone();
    explained(functions::json_key(key), || format!("the key of JSON_OBJECTAGG must be a STRING, not {data_type}"))
}

/// `JSON_EXISTS` with its clause.
///
/// # Errors
/// The path is no path.
pub fn json_exists(doc: Expr, path: Expr, on_error: ExistsOnError) -> Built {
    let types = format!("({}, {})", doc.data_type, path.data_type);
    explained(json::exists(doc, path, on_error), || format!("JSON_EXISTS takes (STRING, STRING literal), not {types}"))
}

/// `e IS [NOT] JSON shape`.
///
/// # Errors
/// `e` is no STRING.
pub fn is_json(e: Expr, shape: JsonShape, negated: bool) -> Built {
    let data_type = e.data_type.clone();
    let test = explained(json::is_json(e, shape), || format!("IS JSON takes a STRING, not {data_type}"))?;
    if negated { not(test) } else { Ok(test) }
}

/// `EXTRACT(unit FROM e)`.
///
/// # Errors
/// The type of `e` has no such field.
pub fn extract(unit: TimeUnit, e: Expr) -> Built {
    let data_type = e.data_type.clone();
    explained(functions::time::extract(unit, e), || format!("cannot extract {} from {data_type}", unit.name()))
}

/// `FLOOR(e TO unit)`.
///
/// # Errors
/// The type of `e` has no such unit.
pub fn floor_to(e: Expr, unit: TimeUnit) -> Built {
    let data_type = e.data_type.clone();
    explained(functions::time::round_to(e, unit, false), || format!("cannot round {data_type} to {}", unit.name()))
}

/// `CEIL(e TO unit)`.
///
/// # Errors
/// The type of `e` has no such unit.
pub fn ceil_to(e: Expr, unit: TimeUnit) -> Built {
    let data_type = e.data_type.clone();
    explained(functions::time::round_to(e, unit, true), || format!("cannot round {data_type} to {}", unit.name()))
}

/// `TIMESTAMPDIFF(unit, a, b)`: b minus a.
///
/// # Errors
/// No points in time, or a TIMESTAMP_LTZ with another type.
pub fn timestamp_diff(unit: TimeUnit, a: Expr, b: Expr) -> Built {
    let types = format!("{} and {}", a.data_type, b.data_type);
    explained(functions::time::difference(unit, a, b), || {
        format!("TIMESTAMPDIFF({}, …) does not take {types}", unit.name())
    })
    .map_err(|error| TypeError {
        help: error.help.or_else(|| Some("both must be TIMESTAMP or DATE, or both TIMESTAMP_LTZ: CAST one".to_owned())),
        ..error
    })
}

/// `TIMESTAMPADD(unit, n, e)`.
///
/// # Errors
/// `n` is no integer, or `e` no point in time that has the unit.
pub fn timestamp_add(unit: TimeUnit, n: Expr, e: Expr) -> Built {
    let interval = match (calendar::unit_ms(unit), calendar::unit_months(unit)) {
        (Some(ms), _) => literal(Value::Integer(ms), DataType::IntervalDayTime),
        (_, Some(months)) => literal(Value::Integer(months), DataType::IntervalYearMonth),
        _ => {
            return refuse(
                format!("TIMESTAMPADD does not take the unit {}", unit.name()),
                Some("write DAY, HOUR, MINUTE, SECOND, MONTH or YEAR"),
            );
        }
    };
    let interval = binary(BinaryOp::Multiply, interval, n)?;
    let below_day = calendar::unit_ms(unit).is_some_and(|ms| ms < calendar::MS_PER_DAY);
    let e = if e.data_type == DataType::Date && below_day { cast(e, &DataType::Timestamp(6), false)? } else { e };
    if e.data_type == DataType::Time && interval.data_type == DataType::IntervalYearMonth {
        // No month changes a time of day.
        return case(None, vec![(is_test(Test::Null, interval, true)?, e)], None);
    }
    binary(BinaryOp::Add, e, interval)
}

/// `TRIM([side] [chars] FROM e)`.
///
/// # Errors
/// Not STRINGs.
pub fn trim(side: TrimSide, chars: Option<Expr>, e: Expr) -> Built {
    let chars = chars.map(|chars| string_operand(chars, "TRIM")).transpose()?;
    Ok(functions::string::trim(side, chars, string_operand(e, "TRIM")?))
}

/// `POSITION(needle IN hay [FROM from])`.
///
/// # Errors
/// Not STRINGs, or `from` is no INT.
pub fn position(needle: Expr, hay: Expr, from: Option<Expr>) -> Built {
    let mut args = vec![needle, hay];
    args.extend(from);
    function("LOCATE", args)
}

/// `SUBSTRING(e FROM from [FOR count])`.
///
/// # Errors
/// No STRING, or positions that are no INT.
pub fn substring(e: Expr, from: Expr, count: Option<Expr>) -> Built {
    let mut args = vec![e, from];
    args.extend(count);
    function("SUBSTRING", args)
}

/// `OVERLAY(e PLACING replacement FROM from [FOR count])`.
///
/// # Errors
/// Not STRINGs, or positions that are no INT.
pub fn overlay(e: Expr, replacement: Expr, from: Expr, count: Option<Expr>) -> Built {
    let mut args = vec![e, replacement, from];
    args.extend(count);
    function("OVERLAY", args)
}

/// Field `name` of a ROW.
///
/// # Errors
/// It is no ROW, or has no such field.
pub fn field(e: Expr, name: &str) -> Built {
    let DataType::Row(fields) = &e.data_type else {
        let help = match &e.data_type {
            DataType::String => "a field of a JSON text is JSON_VALUE(x, '$.a.b'); else leave the field out",
            DataType::Map(..) => "the value of a key is m['key']",
            _ => "leave the field out",
        };
        return refuse(format!("{} has no fields: only a ROW has", e.data_type), Some(help));
    };
    let Some(index) = fields.iter().position(|field| field.name == name) else {
        let near = nearest(name, fields.iter().map(|field| field.name.as_str()));
        let all = || fields.iter().map(|field| format!("`{}`", field.name)).collect::<Vec<_>>().join(", ");
        let help = near.map_or_else(|| format!("there are {}", all()), |near| format!("did you mean `{near}`?"));
        return Err(TypeError { message: format!("{} has no field `{name}`", e.data_type), help: Some(help) });
    };
    let data_type = fields.get(index).map_or(DataType::Null, |field| field.data_type.clone());
    Ok(Expr { kind: ExprKind::Field { input: Box::new(e), field: index }, data_type })
}

/// Element `i` (from 1) of an ARRAY, or the value of a MAP's key.
///
/// # Errors
/// It is neither, or `i` no INT, or a literal below 1, or not of the key's type.
pub fn index(e: Expr, i: Expr) -> Built {
    if let DataType::Map(key, value) = &e.data_type {
        let (key, value) = (key.as_ref().clone(), value.as_ref().clone());
        return functions::map::item(e, i, key, value);
    }
    let DataType::Array(item) = &e.data_type else {
        let message = format!("{} has no elements: only an ARRAY or a MAP has", e.data_type);
        return refuse(message, Some("leave the brackets out"));
    };
    if matches!(i.kind, ExprKind::Literal(Value::Integer(i)) if i < 1) {
        return refuse("the elements of an array count from 1", Some("write x[1] for the first"));
    }
    let data_type = item.as_ref().clone();
    let Ok(i) = functions::int(i) else {
        return refuse("the index of an array must be an INT", Some("write x[CAST(i AS INT)]"));
    };
    Ok(Expr { kind: ExprKind::Index { array: Box::new(e), index: Box::new(i) }, data_type })
}

/// `ARRAY[…]`.
///
/// # Errors
/// The items have no common type.
pub fn array(items: Vec<Expr>) -> Built {
    let (items, item) = coerce_common(items)?;
    if item == DataType::Null {
        return refuse(
            "the type of the array's items is not known",
            Some("CAST one of them: ARRAY[CAST(NULL AS INT)]"),
        );
    }
    Ok(Expr { kind: ExprKind::Array(items), data_type: DataType::Array(Box::new(item)) })
}

/// `ROW(…)` or `(a, b)`.
///
/// # Errors
/// A field has no type.
pub fn row(items: Vec<Expr>) -> Built {
    if items.iter().any(|item| item.data_type == DataType::Null) {
        return refuse("the type of a NULL in a ROW is not known", Some("write CAST(NULL AS INT)"));
    }
    let fields = items.iter().enumerate().map(|(i, item)| Field::new(format!("EXPR${i}"), item.data_type.clone()));
    let data_type = DataType::Row(fields.collect());
    Ok(Expr { kind: ExprKind::Row(items), data_type })
}

// ---- Units and trees --------------------------------------------------------------------------------------------

/// Names of the units; the first of a unit is the one that is shown.
const UNITS: [(&str, TimeUnit); 24] = [
    ("NANOSECOND", TimeUnit::Nanosecond),
    ("MICROSECOND", TimeUnit::Microsecond),
    ("MILLISECOND", TimeUnit::Millisecond),
    ("SECOND", TimeUnit::Second),
    ("MINUTE", TimeUnit::Minute),
    ("HOUR", TimeUnit::Hour),
    ("DAY", TimeUnit::Day),
    ("WEEK", TimeUnit::Week),
    ("MONTH", TimeUnit::Month),
    ("QUARTER", TimeUnit::Quarter),
    ("YEAR", TimeUnit::Year),
    ("DECADE", TimeUnit::Decade),
    ("CENTURY", TimeUnit::Century),
    ("MILLENNIUM", TimeUnit::Millennium),
    ("DOW", TimeUnit::DayOfWeek),
    ("ISODOW", TimeUnit::IsoDayOfWeek),
    ("DOY", TimeUnit::DayOfYear),
    ("ISOYEAR", TimeUnit::IsoYear),
    ("EPOCH", TimeUnit::Epoch),
    ("DAYOFWEEK", TimeUnit::DayOfWeek),
    ("DAYOFYEAR", TimeUnit::DayOfYear),
    ("DAYOFMONTH", TimeUnit::Day),
    ("CENTURIE", TimeUnit::Century),
    ("MILLENNIA", TimeUnit::Millennium),
];

impl TimeUnit {
    /// The unit of this name (any case): `SECOND`, `SECONDS`, `DOW`, `SQL_TSI_DAY`, …
    pub fn parse(name: &str) -> Option<TimeUnit> {
        let upper = name.to_ascii_uppercase();
        let name = upper.strip_prefix("SQL_TSI_").unwrap_or(&upper);
        let find = |name: &str| UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
        find(name).or_else(|| find(name.strip_suffix('S')?))
    }

    /// The unit's name in SQL text.
    pub fn name(self) -> &'static str {
        UNITS.iter().find(|(_, unit)| *unit == self).map_or("", |(name, _)| name)
    }
}

impl Expr {
    /// The expressions directly below.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Column(_) | ExprKind::Literal(_) => Vec::new(),
            ExprKind::Cast { input, .. }
            | ExprKind::Negate(input)
            | ExprKind::Not(input)
            | ExprKind::Test { input, .. }
            | ExprKind::Field { input, .. } => vec![input],
            ExprKind::Binary { left, right, .. } => vec![left, right],
            ExprKind::Case { whens, otherwise } => whens
                .iter()
                .flat_map(|(condition, value)| [condition, value])
                .chain(std::iter::once(otherwise.as_ref()))
                .collect(),
            ExprKind::InList { input, list, .. } => std::iter::once(input.as_ref()).chain(list).collect(),
            ExprKind::Index { array, index } => vec![array, index],
            ExprKind::Coalesce(list) | ExprKind::Array(list) | ExprKind::Row(list) => list.iter().collect(),
            ExprKind::Call(call) => call.args.iter().collect(),
        }
    }

    /// The input columns that the expression reads, ascending, each once.
    pub fn columns(&self) -> Vec<usize> {
        fn collect(e: &Expr, columns: &mut Vec<usize>) {
            if let ExprKind::Column(index) = e.kind {
                columns.push(index);
            }
            for child in e.children() {
                collect(child, columns);
            }
        }
        let mut columns = Vec::new();
        collect(self, &mut columns);
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The expression with each column replaced by what `column` makes of its index and type: to merge projections.
    #[must_use]
    pub fn substitute(self, column: &impl Fn(usize, DataType) -> Expr) -> Expr {
        let boxed = |e: Box<Expr>| Box::new(e.substitute(column));
        let all = |list: Vec<Expr>| list.into_iter().map(|e| e.substitute(column)).collect::<Vec<Expr>>();
        let kind = match self.kind {
            ExprKind::Column(index) => return column(index, self.data_type),
            ExprKind::Literal(value) => ExprKind::Literal(value),
            ExprKind::Cast { input, try_cast } => ExprKind::Cast { input: boxed(input), try_cast },
            ExprKind::Negate(input) => ExprKind::Negate(boxed(input)),
            ExprKind::Not(input) => ExprKind::Not(boxed(input)),
            ExprKind::Test { test, input, negated } => ExprKind::Test { test, input: boxed(input), negated },
            ExprKind::Field { input, field } => ExprKind::Field { input: boxed(input), field },
            ExprKind::Binary { op, left, right } => ExprKind::Binary { op, left: boxed(left), right: boxed(right) },
            ExprKind::Case { whens, otherwise } => ExprKind::Case {
                whens: whens.into_iter().map(|(c, v)| (c.substitute(column), v.substitute(column))).collect(),
                otherwise: boxed(otherwise),
            },
            ExprKind::InList { input, list, negated } => {
                ExprKind::InList { input: boxed(input), list: all(list), negated }
            }
            ExprKind::Index { array, index } => ExprKind::Index { array: boxed(array), index: boxed(index) },
            ExprKind::Coalesce(list) => ExprKind::Coalesce(all(list)),
            ExprKind::Array(list) => ExprKind::Array(all(list)),
            ExprKind::Row(list) => ExprKind::Row(all(list)),
            ExprKind::Call(call) => {
                let mut call = call;
                let args = all(std::mem::take(&mut call.args));
                ExprKind::Call(call.with_args(args))
            }
        };
        Expr { kind, data_type: self.data_type }
    }

    /// The expression over an input whose columns were renumbered by `new_index`.
    #[must_use]
    pub fn map_columns(self, new_index: &impl Fn(usize) -> usize) -> Expr {
        self.substitute(&|index, data_type| column(new_index(index), data_type))
    }

    /// The expression over an input in which column `i` stands at `new_index[i]`.
    #[must_use]
    pub fn remap(self, new_index: &[usize]) -> Expr {
        self.map_columns(&|index| new_index.get(index).copied().unwrap_or(index))
    }

    /// Whether evaluation can fail on a row.
    pub fn can_fail(&self) -> bool {
        let itself = match &self.kind {
            ExprKind::Cast { input, try_cast } => !try_cast && casting::can_fail(&input.data_type, &self.data_type),
            ExprKind::Binary { op: BinaryOp::Divide | BinaryOp::Modulo, right, .. } => {
                let nonzero = match &right.kind {
                    ExprKind::Literal(Value::Integer(i)) => *i != 0,
                    ExprKind::Literal(Value::Decimal(d)) => *d != 0,
                    _ => false,
                };
                !nonzero && !matches!(self.data_type, DataType::Float | DataType::Double)
            }
            ExprKind::Binary { op: BinaryOp::Add | BinaryOp::Subtract, .. } => {
                matches!(self.data_type, DataType::Date | DataType::Timestamp(_) | DataType::TimestampLtz(_))
            }
            // A string can become too long.
            ExprKind::Binary { op: BinaryOp::Concat, .. } => true,
            ExprKind::Call(call) => call.fallible,
            _ => false,
        };
        itself || self.children().into_iter().any(Expr::can_fail)
    }
}
