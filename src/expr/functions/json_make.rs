//! Functions that make JSON texts: `JSON_STRING`, `JSON_OBJECT`, `JSON_ARRAY`, `JSON_QUOTE`, `JSON_UNQUOTE`.
//!
//! Rules, as Flink's (`JsonGenerateUtils`, `SqlJsonUtils.serializeJson`):
//!
//! - No white space, the keys of every object sorted as Java sorts strings.
//! - A DECIMAL as Java's `BigDecimal` prints it, times as `2026-04-02T00:58:00.15` with the digits they need (TIMESTAMP_LTZ
//!   in UTC with `Z`), BYTES in base64. DATE, TIME and INTERVAL have no JSON text in Flink: they are refused.
//! - `JSON_OBJECT` and `JSON_ARRAY` inside another of them are put in as they are, not as strings. They are never NULL.
//! - `JSON_OBJECT` has NULL values as `null`, `JSON_ARRAY` leaves them out, unless `… ON NULL` says otherwise.
//! - The key of a MAP must not be NULL: else the row fails.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, new_null_array};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::tz::TimeZone;

use super::json::{big_decimal, first_value, print, quoted};
use super::{Function, Refusal, Resolved, call, exactly, fallible_call, literal_text, string, with_form};
use crate::expr::build::{Expr, ExprKind, TypeError};
use crate::expr::types::{DataType, Field};
use crate::expr::vector::{Operand, make_strings};
use crate::expr::{cast, text};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "JSON_ARRAY", parameters: "[value, …]", resolve: |args| array(args, false) },
    Function {
        name: "JSON_OBJECT", parameters: "[STRING literal VALUE value, …]", resolve: |args| object(args, true)
    },
    Function { name: "JSON_QUOTE", parameters: "STRING", resolve: json_quote },
    Function { name: "JSON_STRING", parameters: "value", resolve: json_string },
    Function { name: "JSON_UNQUOTE", parameters: "STRING", resolve: json_unquote },
];

/// How a value becomes JSON.
enum Node {
    /// A JSON text already.
    Raw,
    Value(DataType),
}

impl Node {
    fn of(value: &Expr) -> Result<Node, Refusal> {
        match &value.kind {
            ExprKind::Call(call) if matches!(call.name, "JSON_ARRAY" | "JSON_OBJECT" | "JSON") => Ok(Node::Raw),
            _ => {
                check(&value.data_type)?;
                Ok(Node::Value(value.data_type.clone()))
            }
        }
    }

    fn write(&self, value: &Operand, row: usize, out: &mut String) -> Result<(), String> {
        match self {
            Node::Raw => out.push_str(value.strings().get(row).unwrap_or("null")),
            Node::Value(data_type) => write(value.array().as_ref(), value.index(row), data_type, out)?,
        }
        Ok(())
    }
}

/// Refuses types that have no JSON text.
fn check(data_type: &DataType) -> Result<(), Refusal> {
    let help = match data_type {
        DataType::Date | DataType::Time | DataType::IntervalDayTime | DataType::IntervalYearMonth => {
            Some("write CAST(x AS STRING)")
        }
        DataType::Map(key, value) if **key == DataType::String => return check(value),
        DataType::Map(..) => Some("CAST the keys to STRING"),
        DataType::Array(item) => return check(item),
        DataType::Row(fields) => return fields.iter().try_for_each(|field| check(&field.data_type)),
        _ => return Ok(()),
    };
    Err(Refusal::Because(TypeError {
        message: format!("{data_type} cannot become JSON, in Flink neither"),
        help: help.map(str::to_owned),
    }))
}

fn is_null(array: &dyn Array, index: usize) -> bool {
    index >= array.len() || array.is_null(index) || *array.data_type() == arrow_schema::DataType::Null
}

fn write(array: &dyn Array, index: usize, data_type: &DataType, out: &mut String) -> Result<(), String> {
    if is_null(array, index) {
        out.push_str("null");
        return Ok(());
    }
    match data_type {
        DataType::Boolean => {
            let value = array.as_boolean_opt().is_some_and(|array| array.value(index));
            out.push_str(if value { "true" } else { "false" });
        }
        DataType::String => quoted(array.as_string_opt::<i32>().map_or("", |array| array.value(index)), out),
        DataType::Bytes => {
            let bytes = array.as_binary_opt::<i32>().map_or(&[][..], |array| array.value(index));
            quoted(&STANDARD.encode(bytes), out);
        }
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
            let us = array.as_primitive_opt::<TimestampMicrosecondType>().map_or(0, |array| array.value(index));
            let mut shown = String::new();
            text::format_timestamp(us, 6, &mut shown);
            let zone = if matches!(data_type, DataType::TimestampLtz(_)) { "Z" } else { "" };
            let digits = shown.trim_end_matches('0').trim_end_matches('.');
            quoted(&(digits.replacen(' ', "T", 1) + zone), out);
        }
        DataType::Decimal(..) => {
            let mut plain = String::new();
            cast::append_text(array, index, data_type, &TimeZone::UTC, &mut plain);
            big_decimal(&plain, out);
        }
        DataType::Array(item) => {
            let items = array.as_list_opt::<i32>().map(|list| list.value(index));
            out.push('[');
            for i in 0..items.as_ref().map_or(0, |items| items.len()) {
                comma(i, out);
                if let Some(items) = &items {
                    write(items.as_ref(), i, item, out)?;
                }
            }
            out.push(']');
        }
        DataType::Row(fields) => {
            let columns = array.as_struct_opt().map_or(&[][..], |row| row.columns());
            write_row(fields, columns, index, out)?;
        }
        DataType::Map(_, value) => {
            let entries = array.as_list_opt::<i32>().map(|list| list.value(index));
            let entries = entries.as_ref().and_then(|entries| entries.as_struct_opt());
            let Some([keys, values]) = entries.map(|entries| entries.columns()) else { return Ok(()) };
            write_map(keys, values.as_ref(), value, out)?;
        }
        // Not shown in JSON, or numbers.
        _ => {
            let mut shown = String::new();
            cast::append_text(array, index, data_type, &TimeZone::UTC, &mut shown);
            match shown.as_str() {
                "NaN" | "Infinity" | "-Infinity" => quoted(&shown, out),
                number => out.push_str(number),
            }
        }
    }
    Ok(())
}

fn comma(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

/// In the order in which Java sorts strings.
fn java_order(key: &str) -> Vec<u16> {
    key.encode_utf16().collect()
}

fn write_row(fields: &[Field], columns: &[ArrayRef], index: usize, out: &mut String) -> Result<(), String> {
    let mut members: Vec<(&Field, &ArrayRef)> = fields.iter().zip(columns).collect();
    members.sort_by_cached_key(|(field, _)| java_order(&field.name));
    out.push('{');
    for (at, (field, column)) in members.into_iter().enumerate() {
        comma(at, out);
        quoted(&field.name, out);
        out.push(':');
        write(column.as_ref(), index, &field.data_type, out)?;
    }
    out.push('}');
    Ok(())
}

fn write_map(keys: &ArrayRef, values: &dyn Array, of: &DataType, out: &mut String) -> Result<(), String> {
    let mut members: BTreeMap<Vec<u16>, (&str, usize)> = BTreeMap::new();
    for entry in 0..keys.len() {
        match keys.as_string_opt::<i32>().filter(|keys| keys.is_valid(entry)).map(|keys| keys.value(entry)) {
            Some(key) => members.insert(java_order(key), (key, entry)),
            None => return Err("the key of a MAP that becomes JSON is NULL".to_owned()),
        };
    }
    out.push('{');
    for (at, (key, entry)) in members.into_values().enumerate() {
        comma(at, out);
        quoted(key, out);
        out.push(':');
        write(values, entry, of, out)?;
    }
    out.push('}');
    Ok(())
}

/// `JSON(text)`: the text as JSON of the form that all of these functions make. Blanks are `null`; what is no JSON
/// fails its row.
pub(super) fn raw(args: Vec<Expr>) -> Resolved {
    let [text] = exactly(args)?;
    Ok(fallible_call("JSON", vec![string(text)?], DataType::String, |args, scope| {
        let texts = args.first().map(Operand::strings);
        make_strings(scope, |row, out| {
            let Some(text) = texts.and_then(|texts| texts.get(row)) else { return Ok(false) };
            match first_value(text) {
                Some(value) => print(value, out),
                None if text.trim().is_empty() => out.push_str("null"),
                None => return Err("JSON( ) was given a text that is no JSON".to_owned()),
            }
            Ok(true)
        })
    }))
}

/// NULL gives NULL.
fn json_string(args: Vec<Expr>) -> Resolved {
    let [value] = exactly(args)?;
    check(&value.data_type)?;
    let data_type = value.data_type.clone();
    Ok(fallible_call("JSON_STRING", vec![value], DataType::String, move |args, scope| {
        let Some(value) = args.first() else { return new_null_array(&DataType::String.arrow(), scope.rows) };
        make_strings(scope, |row, out| {
            let index = value.index(row);
            if is_null(value.array().as_ref(), index) {
                return Ok(false);
            }
            write(value.array().as_ref(), index, &data_type, out).map(|()| true)
        })
    }))
}

/// `JSON_ARRAY(values)`.
pub fn array(values: Vec<Expr>, with_nulls: bool) -> Resolved {
    let nodes = values.iter().map(Node::of).collect::<Result<Vec<Node>, Refusal>>()?;
    let form = format!("JSON_ARRAY({}{})", vec!["{}"; values.len()].join(", "), on_null(with_nulls));
    let made = fallible_call("JSON_ARRAY", values, DataType::String, move |args, scope| {
        make_strings(scope, |row, out| {
            out.push('[');
            let mut count = 0;
            for (node, value) in nodes.iter().zip(args) {
                if with_nulls || !is_null(value.array().as_ref(), value.index(row)) {
                    comma(count, out);
                    count += 1;
                    node.write(value, row, out)?;
                }
            }
            out.push(']');
            Ok(true)
        })
    });
    Ok(with_form(made, form))
}

/// `JSON_OBJECT(key VALUE value, …)`, keys and values by turns; the last value of a key counts.
pub fn object(args: Vec<Expr>, with_nulls: bool) -> Resolved {
    let mut members: BTreeMap<Vec<u16>, (String, usize, Node)> = BTreeMap::new();
    let mut values: Vec<Expr> = Vec::new();
    let mut forms = Vec::new();
    let mut args = args.into_iter();
    while let Some(key) = args.next() {
        let value = args.next().ok_or(Refusal::Arguments)?;
        let key = literal_text(&key).ok_or(Refusal::Arguments)?;
        members.insert(java_order(key), (key.to_owned(), values.len(), Node::of(&value)?));
        forms.push(format!("'{}' VALUE {{}}", key.replace('\'', "''")));
        values.push(value);
    }
    if forms.iter().any(|form| form.matches("{}").count() > 1) {
        let message = "a key with {} in it is not supported".to_owned();
        return Err(Refusal::Because(TypeError { message, help: Some("take another key".to_owned()) }));
    }
    let form = format!("JSON_OBJECT({}{})", forms.join(", "), on_null(with_nulls));
    let made = fallible_call("JSON_OBJECT", values, DataType::String, move |args, scope| {
        make_strings(scope, |row, out| {
            out.push('{');
            let mut count = 0;
            for (key, at, node) in members.values() {
                let Some(value) = args.get(*at) else { continue };
                if with_nulls || !is_null(value.array().as_ref(), value.index(row)) {
                    comma(count, out);
                    count += 1;
                    quoted(key, out);
                    out.push(':');
                    node.write(value, row, out)?;
                }
            }
            out.push('}');
            Ok(true)
        })
    });
    Ok(with_form(made, form))
}

/// A key that must not be NULL.
pub fn key(key: Expr) -> Resolved {
    let made = fallible_call("JSON_KEY", vec![string(key)?], DataType::String, |args, scope| {
        let Some(key) = args.first().map(Operand::strings) else {
            return new_null_array(&DataType::String.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            out.push_str(key.get(row).ok_or("the key of JSON_OBJECTAGG is NULL")?);
            Ok(true)
        })
    });
    Ok(with_form(made, "{}".to_owned()))
}

fn on_null(with_nulls: bool) -> &'static str {
    if with_nulls { " NULL ON NULL" } else { " ABSENT ON NULL" }
}

/// Everything beyond ASCII is escaped, and `/`.
fn json_quote(args: Vec<Expr>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(call("JSON_QUOTE", vec![string(s)?], DataType::String, |args, scope| {
        let Some(s) = args.first().map(Operand::strings) else {
            return new_null_array(&DataType::String.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let Some(s) = s.get(row) else { return Ok(false) };
            out.push('"');
            for c in s.chars() {
                match c {
                    '"' | '\\' | '/' => out.extend(['\\', c]),
                    '\u{8}' => out.push_str("\\b"),
                    '\u{c}' => out.push_str("\\f"),
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    c if c.is_ascii() => out.push(c),
                    c => {
                        for unit in c.encode_utf16(&mut [0; 2]) {
                            out.push_str(&format!("\\u{unit:04x}"));
                        }
                    }
                }
            }
            out.push('"');
            Ok(true)
        })
    }))
}

/// Takes off the first and last character of any JSON value and resolves escapes between; what is no JSON stays.
fn json_unquote(args: Vec<Expr>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(fallible_call("JSON_UNQUOTE", vec![string(s)?], DataType::String, |args, scope| {
        let Some(s) = args.first().map(Operand::strings) else {
            return new_null_array(&DataType::String.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let Some(s) = s.get(row) else { return Ok(false) };
            let inner = s.strip_prefix('"').and_then(|s| s.strip_suffix('"')).filter(|_| first_value(s).is_some());
            match inner.and_then(unquoted) {
                Some(text) => out.push_str(&text),
                None => out.push_str(s),
            }
            Ok(true)
        })
    }))
}

/// What stands between the quotes, without its escapes; `None` where there is an unknown one.
fn unquoted(inner: &str) -> Option<String> {
    let mut out: Vec<u16> = Vec::with_capacity(inner.len());
    let mut rest = inner.encode_utf16();
    while let Some(unit) = rest.next() {
        if unit != u16::from(b'\\') {
            out.push(unit);
            continue;
        }
        let escape = rest.next().and_then(|unit| char::from_u32(unit.into())).unwrap_or('"');
        out.push(match escape {
            '"' | '\\' | '/' => escape as u16,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'u' => {
                let digits: String = rest.by_ref().take(4).filter_map(|unit| char::from_u32(unit.into())).collect();
                u16::from_str_radix(&digits, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(String::from_utf16_lossy(&out))
}
