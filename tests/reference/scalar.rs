//! Expressions, row by row. Every node of the typed tree is computed here; of the engine's only the tree itself is used.

use std::cmp::Ordering;

use forebay::expr::DataType;
use forebay::expr::build::{BinaryOp, Expr, ExprKind, Test, Value as Literal};
use jiff::tz::TimeZone;

use crate::functions;
use crate::value::{Value, decimal_text, timestamp_text};

/// The value of an expression, or why the row fails.
pub type Computed = Result<Value, String>;

/// The value of `expr` for a row.
pub fn eval(expr: &Expr, row: &[Value], zone: &TimeZone) -> Computed {
    let of = |expr: &Expr| eval(expr, row, zone);
    Ok(match &expr.kind {
        ExprKind::Column(index) => row[*index].clone(),
        ExprKind::Literal(value) => literal(value),
        ExprKind::Cast { input, try_cast } => {
            let value = of(input)?;
            match cast(value, &input.data_type, &expr.data_type, zone) {
                Err(_) if *try_cast => Value::Null,
                cast => cast?,
            }
        }
        ExprKind::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), left, right } => {
            let deciding = *op == BinaryOp::Or;
            match of(left)? {
                Value::Bool(left) if left == deciding => Value::Bool(deciding),
                left => match (left, of(right)?) {
                    (_, Value::Bool(right)) if right == deciding => Value::Bool(deciding),
                    (Value::Null, _) | (_, Value::Null) => Value::Null,
                    _ => Value::Bool(!deciding),
                },
            }
        }
        ExprKind::Binary { op, left, right } => {
            let (l, r) = (of(left)?, of(right)?);
            binary(*op, l, r, (&left.data_type, &right.data_type), &expr.data_type)?
        }
        ExprKind::Negate(input) => match of(input)? {
            Value::Int(value) => Value::Int(narrow(value.wrapping_neg(), &expr.data_type)),
            Value::Double(value) => Value::Double(-value),
            Value::Decimal(value) => Value::Decimal(-value),
            other => other,
        },
        ExprKind::Not(input) => match of(input)? {
            Value::Bool(value) => Value::Bool(!value),
            other => other,
        },
        ExprKind::Test { test, input, negated } => {
            let value = of(input)?;
            let holds = match test {
                Test::Null | Test::Unknown => value.is_null(),
                Test::True => value.is_true(),
                Test::False => matches!(value, Value::Bool(false)),
            };
            Value::Bool(holds != *negated)
        }
        ExprKind::Case { whens, otherwise } => {
            for (condition, value) in whens {
                if of(condition)?.is_true() {
                    return of(value);
                }
            }
            of(otherwise)?
        }
        ExprKind::Coalesce(exprs) => {
            for expr in exprs {
                let value = of(expr)?;
                if !value.is_null() {
                    return Ok(value);
                }
            }
            Value::Null
        }
        ExprKind::InList { input, list, negated } => {
            let value = of(input)?;
            let items = list.iter().map(of).collect::<Result<Vec<Value>, _>>()?;
            let type_of = |index: usize| &list[index].data_type;
            let orders =
                items.iter().enumerate().map(|(i, item)| ordering(&value, item, (&input.data_type, type_of(i))));
            let orders: Vec<Option<Ordering>> = orders.collect();
            if orders.contains(&Some(Ordering::Equal)) {
                Value::Bool(!negated)
            } else if orders.contains(&None) {
                Value::Null
            } else {
                Value::Bool(*negated)
            }
        }
        ExprKind::Field { input, field } => match of(input)? {
            Value::Row(values) => values[*field].clone(),
            _ => Value::Null,
        },
        ExprKind::Index { array, index } => match (of(array)?, of(index)?) {
            (Value::List(items), Value::Int(index)) if index >= 1 && index as usize <= items.len() => {
                items[index as usize - 1].clone()
            }
            _ => Value::Null,
        },
        ExprKind::Array(items) => Value::List(items.iter().map(of).collect::<Result<_, _>>()?),
        ExprKind::Row(items) => Value::Row(items.iter().map(of).collect::<Result<_, _>>()?),
        ExprKind::Call(call) => {
            let args = call.args.iter().map(of).collect::<Result<Vec<Value>, _>>()?;
            let types: Vec<&DataType> = call.args.iter().map(|arg| &arg.data_type).collect();
            functions::call(call.name, call.form.as_deref().unwrap_or(""), args, &types, &expr.data_type, zone)?
        }
        #[expect(unreachable_patterns, reason = "kinds that are added and that the interpreter does not know yet")]
        other => panic!("the interpreter does not know {other:?}"),
    })
}

fn literal(value: &Literal) -> Value {
    match value {
        Literal::Null => Value::Null,
        Literal::Boolean(value) => Value::Bool(*value),
        Literal::Integer(value) => Value::Int(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::Decimal(value) => Value::Decimal(*value),
        Literal::String(value) => Value::Text(value.clone()),
        other => panic!("the interpreter does not know literal {other:?}"),
    }
}

/// An integer in its type: the low bits stay.
pub fn narrow(value: i64, data_type: &DataType) -> i64 {
    match data_type {
        DataType::TinyInt => i64::from(value as i8),
        DataType::SmallInt => i64::from(value as i16),
        DataType::Int => i64::from(value as i32),
        _ => value,
    }
}

fn scale_of(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Decimal(_, scale) => *scale,
        _ => 0,
    }
}

fn power(exponent: u8) -> i128 {
    10_i128.checked_pow(u32::from(exponent)).expect("within 38 digits")
}

/// The order of two values of comparable types; `None` where one is NULL.
pub fn ordering(a: &Value, b: &Value, types: (&DataType, &DataType)) -> Option<Ordering> {
    match (a, b) {
        (Value::Decimal(a), Value::Decimal(b)) => {
            Some((a * power(scale_of(types.1))).cmp(&(b * power(scale_of(types.0)))))
        }
        (a, b) => a.compare(b),
    }
}

fn binary(op: BinaryOp, l: Value, r: Value, types: (&DataType, &DataType), to: &DataType) -> Computed {
    use BinaryOp as Op;
    if matches!(op, Op::IsDistinctFrom | Op::IsNotDistinctFrom) {
        let same = match (&l, &r) {
            (Value::Null, Value::Null) => true,
            (l, r) => ordering(l, r, types) == Some(Ordering::Equal),
        };
        return Ok(Value::Bool(same == (op == Op::IsNotDistinctFrom)));
    }
    if l.is_null() || r.is_null() {
        return Ok(Value::Null);
    }
    let order = |holds: fn(Ordering) -> bool| {
        // With NaN only <> holds.
        Ok(Value::Bool(ordering(&l, &r, types).map_or(op == Op::NotEqual, holds)))
    };
    match op {
        Op::Equal => return order(Ordering::is_eq),
        Op::NotEqual => return order(Ordering::is_ne),
        Op::Less => return order(Ordering::is_lt),
        Op::LessOrEqual => return order(Ordering::is_le),
        Op::Greater => return order(Ordering::is_gt),
        Op::GreaterOrEqual => return order(Ordering::is_ge),
        Op::Concat => return Ok(Value::Text(format!("{}{}", l.text(), r.text()))),
        _ => {}
    }
    match (l, r) {
        (Value::Int(time), Value::Int(ms)) if types.0.is_timestamp() && *types.1 == DataType::IntervalDayTime => {
            Ok(Value::Int(if op == Op::Add { time + ms * 1000 } else { time - ms * 1000 }))
        }
        (Value::Int(a), Value::Int(b)) => {
            assert!(types.0 == types.1 && types.0.is_integer(), "the interpreter does not know {op:?} of {types:?}");
            Ok(Value::Int(narrow(
                match op {
                    Op::Add => a.wrapping_add(b),
                    Op::Subtract => a.wrapping_sub(b),
                    Op::Multiply => a.wrapping_mul(b),
                    _ if b == 0 => return Err("division by zero".to_owned()),
                    Op::Divide => a.wrapping_div(b),
                    _ => a.wrapping_rem(b),
                },
                to,
            )))
        }
        (Value::Double(a), Value::Double(b)) => {
            let value = match op {
                Op::Add => a + b,
                Op::Subtract => a - b,
                Op::Multiply => a * b,
                Op::Divide => a / b,
                _ => a % b,
            };
            Ok(Value::Double(if *to == DataType::Float { f64::from(value as f32) } else { value }))
        }
        (Value::Decimal(a), Value::Decimal(b)) => {
            let (DataType::Decimal(precision, scale), s1, s2) = (to, scale_of(types.0), scale_of(types.1)) else {
                panic!("decimals give {to}");
            };
            let common = s1.max(s2);
            let (x, y) = (a * power(common - s1), b * power(common - s2));
            let value = match op {
                Op::Add => round(x + y, common, *scale),
                Op::Subtract => round(x - y, common, *scale),
                Op::Multiply => round(a * b, s1 + s2, *scale),
                _ if b == 0 => return Err("division by zero".to_owned()),
                Op::Divide => divide_half_up(x * power(*scale), y),
                _ => round(x % y, common, *scale),
            };
            Ok(fits(value, *precision))
        }
        (l, r) => panic!("the interpreter does not know {l:?} {op:?} {r:?}"),
    }
}

/// `a / b`, ties away from zero.
pub fn divide_half_up(a: i128, b: i128) -> i128 {
    let (quotient, rest) = (a / b, a % b);
    let away = if (a < 0) == (b < 0) { 1 } else { -1 };
    if rest.unsigned_abs() * 2 >= b.unsigned_abs() { quotient + away } else { quotient }
}

/// The same number with another scale, ties away from zero.
pub fn round(value: i128, from: u8, to: u8) -> i128 {
    if to >= from { value * power(to - from) } else { divide_half_up(value, power(from - to)) }
}

/// A DECIMAL of at most so many digits, else NULL.
pub fn fits(value: i128, precision: u8) -> Value {
    if value.unsigned_abs() < power(precision).unsigned_abs() { Value::Decimal(value) } else { Value::Null }
}

/// A finite double as digits of the shortest text that reads back the same: unscaled, and its scale.
pub fn shortest(value: f64) -> (i128, u8) {
    let text = format!("{value}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    (format!("{whole}{fraction}").parse().expect("digits"), fraction.len() as u8)
}

/// As `Double.toString` of Java.
pub fn double_text(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&size) {
        let text = format!("{value}");
        return if text.contains('.') { text } else { text + ".0" };
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').expect("an exponent");
    if digits.contains('.') { format!("{digits}E{exponent}") } else { format!("{digits}.0E{exponent}") }
}

/// What a zone's wall clock shows at an instant, as µs.
pub fn wall(micros: i64, zone: &TimeZone) -> i64 {
    let at = jiff::Timestamp::from_microsecond(micros).expect("within the calendar");
    micros + i64::from(zone.to_offset(at).seconds()) * 1_000_000
}

fn truncated(micros: i64, precision: u8) -> i64 {
    micros - micros.rem_euclid(10_i64.pow(6 - u32::from(precision)))
}

fn cast(value: Value, from: &DataType, to: &DataType, zone: &TimeZone) -> Computed {
    use DataType as T;
    if value.is_null() || from == to {
        return Ok(value);
    }
    let number = |value: &Value| match (value, from) {
        (Value::Int(value), _) => *value as f64,
        (Value::Double(value), _) => *value,
        (Value::Decimal(value), T::Decimal(_, scale)) => decimal_text(*value, *scale).parse().expect("a number"),
        (value, _) => panic!("the interpreter does not know {value:?} as {to}"),
    };
    Ok(match (value, from, to) {
        (Value::Bool(value), _, T::String) => Value::Text(if value { "TRUE" } else { "FALSE" }.to_owned()),
        (Value::Int(us), T::Timestamp(p), T::String) => Value::Text(timestamp_text(us, *p, ' ')),
        (Value::Int(us), T::TimestampLtz(p), T::String) => Value::Text(timestamp_text(wall(us, zone), *p, ' ')),
        (Value::Int(us), T::TimestampLtz(_), T::Timestamp(p)) => Value::Int(truncated(wall(us, zone), *p)),
        (Value::Int(us), T::Timestamp(_), T::Timestamp(p))
        | (Value::Int(us), T::TimestampLtz(_), T::TimestampLtz(p)) => Value::Int(truncated(us, *p)),
        (Value::Int(value), from, T::String) if from.is_integer() => Value::Text(value.to_string()),
        (Value::Double(value), T::Double, T::String) => Value::Text(double_text(value)),
        (Value::Decimal(value), T::Decimal(_, scale), T::String) => Value::Text(decimal_text(value, *scale)),
        (Value::Int(value), from, to) if from.is_integer() && to.is_integer() => Value::Int(narrow(value, to)),
        (Value::Int(value), from, T::Decimal(precision, scale)) if from.is_integer() => {
            fits(round(value.into(), 0, *scale), *precision)
        }
        (Value::Decimal(value), T::Decimal(_, s), T::Decimal(precision, scale)) => {
            fits(round(value, *s, *scale), *precision)
        }
        (Value::Double(value), _, T::Decimal(precision, scale)) => {
            let (digits, s) = shortest(value);
            fits(round(digits, s, *scale), *precision)
        }
        (Value::Double(value), _, T::BigInt) => Value::Int(value as i64),
        (Value::Double(value), _, to) if to.is_integer() => Value::Int(narrow(i64::from(value as i32), to)),
        (Value::Decimal(value), T::Decimal(_, scale), to) if to.is_integer() => {
            Value::Int(narrow((value / power(*scale)) as i64, to))
        }
        (Value::Int(value), from, T::Boolean) if from.is_integer() => Value::Bool(value != 0),
        (Value::Bool(value), _, to) if to.is_integer() => Value::Int(value.into()),
        (Value::Text(text), _, to) => return from_text(&text, to),
        (value, from, T::Double) if from.is_numeric() => Value::Double(number(&value)),
        (value, from, T::Float) if from.is_numeric() => Value::Double(f64::from(number(&value) as f32)),
        (Value::Int(days), T::Date, T::Timestamp(_)) => Value::Int(days * 86_400_000_000),
        (Value::Int(us), T::Timestamp(_), T::Date) => Value::Int(us.div_euclid(86_400_000_000)),
        (Value::Int(us), T::TimestampLtz(_), T::Date) => Value::Int(wall(us, zone).div_euclid(86_400_000_000)),
        (value, from, to) => panic!("the interpreter does not know CAST({value:?} {from} AS {to})"),
    })
}

/// Plain numbers only, which is all that the tests write.
fn from_text(text: &str, to: &DataType) -> Computed {
    let fail = || format!("{text} is no {to}");
    match to {
        DataType::Double => text.trim().parse().map(Value::Double).map_err(|_| fail()),
        DataType::Decimal(precision, scale) => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            let digits: i128 = format!("{whole}{fraction}").parse().map_err(|_| fail())?;
            match fits(round(digits, fraction.len() as u8, *scale), *precision) {
                Value::Null => Err(fail()),
                value => Ok(value),
            }
        }
        to if to.is_integer() => {
            // Digits behind a point are cut off.
            let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
            if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
                return Err(fail());
            }
            let value: i64 = whole.parse().map_err(|_| fail())?;
            if narrow(value, to) == value { Ok(Value::Int(value)) } else { Err(fail()) }
        }
        _ => panic!("the interpreter does not know CAST('{text}' AS {to})"),
    }
}
