//! Values of the interpreter, one by one, and how they compare and look as JSON.

use std::cmp::Ordering;

use forebay::expr::DataType;
use serde_json::{Value as Json, json};

/// A SQL value; its type stands beside it. Dates are days, times ms, timestamps µs, intervals ms or months.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// FLOAT and DOUBLE.
    Double(f64),
    /// Unscaled.
    Decimal(i128),
    Text(String),
    List(Vec<Value>),
    Row(Vec<Value>),
}

/// The columns of a row.
pub type Row = Vec<Value>;

impl Value {
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    pub fn int(&self) -> i64 {
        match self {
            Value::Int(value) => *value,
            other => panic!("not an integer: {other:?}"),
        }
    }

    pub fn double(&self) -> f64 {
        match self {
            Value::Double(value) => *value,
            other => panic!("not a double: {other:?}"),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Value::Text(value) => value,
            other => panic!("not a string: {other:?}"),
        }
    }

    pub fn is_true(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    /// Event time in milliseconds of a timestamp.
    pub fn millis(&self) -> Option<i64> {
        if self.is_null() { None } else { Some(self.int().div_euclid(1000)) }
    }

    /// The order of keys: NULLs first, −0.0 before 0.0, NaN last.
    pub fn key_order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Less,
            (_, Value::Null) => Ordering::Greater,
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Double(a), Value::Double(b)) => a.total_cmp(b),
            (Value::Decimal(a), Value::Decimal(b)) => a.cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::List(a), Value::List(b)) | (Value::Row(a), Value::Row(b)) => keys_order(a, b),
            (a, b) => panic!("{a:?} and {b:?} have no order"),
        }
    }

    /// The order of comparison operators; `None` with NULL or NaN.
    pub fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Null, _) | (_, Value::Null) => None,
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            (a, b) => Some(a.key_order(b)),
        }
    }
}

/// The order of keys of several columns.
pub fn keys_order(a: &[Value], b: &[Value]) -> Ordering {
    let first = a.iter().zip(b).map(|(a, b)| a.key_order(b)).find(|order| order.is_ne());
    first.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// A key with its order, for sorted maps.
#[derive(Clone, Debug)]
pub struct Key(pub Vec<Value>);

impl Key {
    pub fn has_null(&self) -> bool {
        self.0.iter().any(Value::is_null)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        keys_order(&self.0, &other.0)
    }
}

/// `2026-04-02T00:58:00.150` of µs since 1970.
pub fn timestamp_text(micros: i64, precision: u8, between: char) -> String {
    let at = jiff::Timestamp::from_microsecond(micros).expect("within the calendar");
    let civil = jiff::tz::TimeZone::UTC.to_datetime(at);
    let mut text = format!("{}{between}{}", civil.date(), civil.strftime("%H:%M:%S"));
    if precision > 0 {
        let fraction = format!("{:06}", micros.rem_euclid(1_000_000));
        text += &format!(".{}", &fraction[..usize::from(precision)]);
    }
    text
}

/// A decimal number with its scale.
pub fn decimal_text(unscaled: i128, scale: u8) -> String {
    let (sign, scale) = (if unscaled < 0 { "-" } else { "" }, usize::from(scale));
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// A value as the JSON output has it.
pub fn to_json(value: &Value, data_type: &DataType) -> Json {
    match (value, data_type) {
        (Value::Null, _) => Json::Null,
        (Value::Bool(value), _) => json!(value),
        (Value::Int(days), DataType::Date) => {
            json!(timestamp_text(days * 86_400_000_000, 0, 'T')[..10].to_owned())
        }
        (Value::Int(micros), DataType::Timestamp(precision)) => json!(timestamp_text(*micros, *precision, 'T')),
        (Value::Int(micros), DataType::TimestampLtz(precision)) => {
            json!(timestamp_text(*micros, *precision, 'T') + "Z")
        }
        (Value::Int(value), _) => json!(value),
        (Value::Double(value), DataType::Float) => json!(*value as f32),
        (Value::Double(value), _) => json!(value),
        (Value::Decimal(value), DataType::Decimal(_, scale)) => {
            serde_json::from_str(&decimal_text(*value, *scale)).expect("a number")
        }
        (Value::Text(text), _) => json!(text),
        (Value::List(items), DataType::Array(item)) => items.iter().map(|value| to_json(value, item)).collect(),
        (Value::Row(values), DataType::Row(fields)) => values
            .iter()
            .zip(fields)
            .map(|(value, field)| (field.name.clone(), to_json(value, &field.data_type)))
            .collect::<serde_json::Map<String, Json>>()
            .into(),
        (value, data_type) => panic!("{value:?} as {data_type}"),
    }
}

/// A value of the input.
pub fn from_json(json: &Json, data_type: &DataType) -> Value {
    match (json, data_type) {
        (Json::Null, _) => Value::Null,
        (Json::Bool(value), DataType::Boolean) => Value::Bool(*value),
        (Json::String(text), DataType::TimestampLtz(_)) => {
            Value::Int(text.parse::<jiff::Timestamp>().expect("an instant").as_microsecond())
        }
        (Json::String(text), _) => Value::Text(text.clone()),
        (Json::Number(number), DataType::Float | DataType::Double) => Value::Double(number.as_f64().expect("a number")),
        (Json::Number(number), DataType::Decimal(_, scale)) => {
            Value::Decimal(parse_decimal(&number.to_string(), *scale))
        }
        (Json::Number(number), _) => Value::Int(number.as_i64().expect("an integer")),
        (Json::Array(items), DataType::Array(item)) => {
            Value::List(items.iter().map(|value| from_json(value, item)).collect())
        }
        (Json::Object(object), DataType::Row(fields)) => {
            let field = |name: &str| object.get(name).unwrap_or(&Json::Null);
            Value::Row(fields.iter().map(|f| from_json(field(&f.name), &f.data_type)).collect())
        }
        (json, data_type) => panic!("{json} as {data_type}"),
    }
}

/// A plain decimal text, which has no more digits than the scale.
fn parse_decimal(text: &str, scale: u8) -> i128 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction:0<width$}", width = usize::from(scale));
    digits.parse().expect("a decimal")
}

/// Whether two outputs are the same: numbers to nine digits.
pub fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(x), Json::Number(y)) => {
            x == y || {
                let (x, y) = (x.as_f64().unwrap_or(f64::NAN), y.as_f64().unwrap_or(f64::NAN));
                (x - y).abs() <= 1e-9 * x.abs().max(y.abs()).max(1.0)
            }
        }
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}
