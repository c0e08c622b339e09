//! Scalar functions, each as its documentation in Flink says, by name and form of the call.

use std::cmp::Ordering;

use forebay::expr::DataType;
use jiff::tz::TimeZone;
use serde_json::Value as Json;

use crate::scalar::{Computed, divide_half_up, fits, narrow, ordering, shortest, wall};
use crate::value::Value;

const DAY_US: i64 = 86_400_000_000;

/// A call of a function that gives a `to`.
pub fn call(name: &str, form: &str, args: Vec<Value>, types: &[&DataType], to: &DataType, zone: &TimeZone) -> Computed {
    // These look at NULLs themselves.
    match name {
        "CONCAT_WS" => return Ok(concat_ws(&args)),
        "JSON_VALUE" | "JSON_EXISTS" | "JSON_QUERY" => return Ok(json(name, form, &args, to)),
        _ if args.iter().any(Value::is_null) => return Ok(Value::Null),
        _ => {}
    }
    let text = |index: usize| args[index].text();
    let int = |index: usize| args[index].int();
    let real = |index: usize| args[index].double();
    let is_time = types.first().is_some_and(|t| t.is_timestamp());
    Ok(match name {
        "UPPER" => Value::Text(text(0).to_uppercase()),
        "LOWER" => Value::Text(text(0).to_lowercase()),
        "REVERSE" => Value::Text(text(0).chars().rev().collect()),
        "CHAR_LENGTH" => Value::Int(text(0).chars().count() as i64),
        "CONCAT" => Value::Text(args.iter().map(Value::text).collect()),
        "REPLACE" => Value::Text(text(0).replace(text(1), text(2))),
        "STARTSWITH" => Value::Bool(text(0).starts_with(text(1))),
        "ENDSWITH" => Value::Bool(text(0).ends_with(text(1))),
        "LEFT" => Value::Text(text(0).chars().take(int(1).max(0) as usize).collect()),
        "RIGHT" => {
            let length = text(0).chars().count();
            Value::Text(text(0).chars().skip(length.saturating_sub(int(1).max(0) as usize)).collect())
        }
        "SUBSTRING" => substring(text(0), int(1), args.get(2).map_or(i64::from(i32::MAX), Value::int)),
        "TRIM" => trim(form, text(0), text(1)),
        "LOCATE" => Value::Int(text(1).find(text(0)).map_or(0, |at| text(1)[..at].chars().count() as i64 + 1)),
        "LPAD" | "RPAD" => pad(name == "LPAD", text(0), int(1), text(2)),
        "REGEXP_EXTRACT" => {
            let regex = regex::Regex::new(text(1)).expect("a pattern");
            let group = args.get(2).map_or(0, Value::int) as usize;
            let found = regex.captures(text(0)).and_then(|captures| Some(captures.get(group)?.as_str().to_owned()));
            found.map_or(Value::Null, Value::Text)
        }
        "LIKE" => Value::Bool(like(&text(0).chars().collect::<Vec<_>>(), &text(1).chars().collect::<Vec<_>>())),
        "ABS" => match &args[0] {
            Value::Int(value) => Value::Int(narrow(value.wrapping_abs(), to)),
            Value::Double(value) => Value::Double(value.abs()),
            Value::Decimal(value) => Value::Decimal(value.abs()),
            other => panic!("ABS of {other:?}"),
        },
        "SIGN" => match &args[0] {
            Value::Int(value) => Value::Int(value.signum()),
            Value::Double(value) if *value == 0.0 => Value::Double(*value),
            Value::Double(value) => Value::Double(value.signum()),
            Value::Decimal(value) => Value::Decimal(value.signum() * 10_i128.pow(scale_of(to).into())),
            other => panic!("SIGN of {other:?}"),
        },
        "FLOOR" | "CEIL" if is_time => floor_time(name, form, int(0), types[0], zone),
        "FLOOR" | "CEIL" => match &args[0] {
            Value::Int(value) => Value::Int(*value),
            Value::Double(value) => Value::Double(if name == "FLOOR" { value.floor() } else { value.ceil() }),
            Value::Decimal(value) => {
                let one = 10_i128.pow(scale_of(types[0]).into());
                let floor = value.div_euclid(one);
                let above = i128::from(name == "CEIL" && value.rem_euclid(one) != 0);
                Value::Decimal(floor + above)
            }
            other => panic!("{name} of {other:?}"),
        },
        "ROUND" | "TRUNCATE" => round_places(&args, types, to, name == "ROUND")?,
        "POWER" => Value::Double(real(0).powf(real(1))),
        "SQRT" => Value::Double(real(0).sqrt()),
        "EXP" => Value::Double(real(0).exp()),
        "LN" => Value::Double(real(0).ln()),
        "GREATEST" | "LEAST" => {
            let beaten = if name == "GREATEST" { Ordering::Less } else { Ordering::Greater };
            let mut best = 0;
            for next in 1..args.len() {
                if ordering(&args[best], &args[next], (types[best], types[next])) == Some(beaten) {
                    best = next;
                }
            }
            args[best].clone()
        }
        "CARDINALITY" => match &args[0] {
            Value::List(items) => Value::Int(items.len() as i64),
            other => panic!("CARDINALITY of {other:?}"),
        },
        "EXTRACT" => extract(unit(form), local(int(0), types[0], zone)),
        "TIMESTAMPDIFF" => {
            let ms = (int(1).div_euclid(1000)).wrapping_sub(int(0).div_euclid(1000));
            Value::Int(narrow(ms / (unit_us(unit(form)).expect("a fixed unit") / 1000), to))
        }
        "DATE_FORMAT" => {
            let us = local(int(0), types[0], zone);
            let shown = crate::value::timestamp_text(us, 3, ' ');
            let fields = [
                ("yyyy", 0..4),
                ("MM", 5..7),
                ("dd", 8..10),
                ("HH", 11..13),
                ("mm", 14..16),
                ("ss", 17..19),
                ("SSS", 20..23),
            ];
            Value::Text(fields.iter().fold(text(1).to_owned(), |out, (name, at)| out.replace(name, &shown[at.clone()])))
        }
        other => panic!("the interpreter does not know function {other} {form}"),
    })
}

fn scale_of(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Decimal(_, scale) => *scale,
        _ => 0,
    }
}

fn concat_ws(args: &[Value]) -> Value {
    if args[0].is_null() {
        return Value::Null;
    }
    let parts: Vec<&str> = args[1..].iter().filter(|arg| !arg.is_null()).map(Value::text).collect();
    Value::Text(parts.join(args[0].text()))
}

fn substring(s: &str, from: i64, count: i64) -> Value {
    if count < 0 {
        return Value::Null;
    }
    let length = s.chars().count() as i64;
    let start = match from {
        1.. => from - 1,
        0 => 0,
        _ if -from > length => return Value::Text(String::new()),
        _ => length + from,
    };
    Value::Text(s.chars().skip(start as usize).take(count as usize).collect())
}

fn trim(form: &str, chars: &str, s: &str) -> Value {
    let cut = |c: char| chars.contains(c);
    let s = if form.contains("TRAILING") { s } else { s.trim_start_matches(cut) };
    Value::Text(if form.contains("LEADING") { s } else { s.trim_end_matches(cut) }.to_owned())
}

fn pad(left: bool, s: &str, width: i64, fill: &str) -> Value {
    if width < 0 || fill.is_empty() {
        return Value::Null;
    }
    let width = width as usize;
    let kept: String = s.chars().take(width).collect();
    let filling: String = fill.chars().cycle().take(width - kept.chars().count()).collect();
    Value::Text(if left { filling + &kept } else { kept + &filling })
}

fn like(s: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => s.is_empty(),
        ['%', rest @ ..] => (0..=s.len()).any(|skip| like(&s[skip..], rest)),
        ['_', rest @ ..] => !s.is_empty() && like(&s[1..], rest),
        [c, rest @ ..] => s.first() == Some(c) && like(&s[1..], rest),
    }
}

/// ROUND and TRUNCATE to places: of doubles, the shortest text that reads back the same is rounded.
fn round_places(args: &[Value], types: &[&DataType], to: &DataType, half: bool) -> Computed {
    let places = args.get(1).map_or(0, Value::int);
    let cut = |value: i128, scale: u8| {
        let drop = i64::from(scale) - places;
        if drop <= 0 {
            return value;
        }
        if drop > 37 {
            return 0;
        }
        let one = 10_i128.pow(drop as u32);
        one * if half { divide_half_up(value, one) } else { value / one }
    };
    Ok(match &args[0] {
        Value::Int(value) => Value::Int(narrow(cut((*value).into(), 0) as i64, to)),
        Value::Double(value) => {
            if !value.is_finite() {
                return Err("not finite".to_owned());
            }
            let (digits, scale) = shortest(*value);
            Value::Double(crate::value::decimal_text(cut(digits, scale), scale).parse().expect("a number"))
        }
        Value::Decimal(value) => {
            let (DataType::Decimal(precision, scale), from) = (to, scale_of(types[0])) else { panic!("gives {to}") };
            fits(crate::scalar::round(cut(*value, from), from, *scale), *precision)
        }
        other => panic!("ROUND of {other:?}"),
    })
}

/// The time unit in a call's form.
fn unit(form: &str) -> &str {
    let (_, rest) = form.split_once('(').expect("a form");
    let unit = match rest.split_once(" TO ") {
        Some((_, unit)) => unit,
        None => rest,
    };
    unit.split([' ', ',', ')']).next().expect("a unit")
}

fn unit_us(unit: &str) -> Option<i64> {
    Some(match unit {
        "SECOND" => 1_000_000,
        "MINUTE" => 60_000_000,
        "HOUR" => 3_600_000_000,
        "DAY" => DAY_US,
        _ => return None,
    })
}

fn local(us: i64, data_type: &DataType, zone: &TimeZone) -> i64 {
    if matches!(data_type, DataType::TimestampLtz(_)) { wall(us, zone) } else { us }
}

fn floor_time(name: &str, form: &str, us: i64, data_type: &DataType, zone: &TimeZone) -> Value {
    let size = unit_us(unit(form)).expect("a fixed unit");
    let wall = local(us, data_type, zone);
    let floor = wall - wall.rem_euclid(size);
    let rounded = if name == "CEIL" && floor < wall { floor + size } else { floor };
    Value::Int(rounded - (wall - us))
}

fn extract(unit: &str, us: i64) -> Value {
    let of_day = us.rem_euclid(DAY_US);
    let date = crate::value::timestamp_text(us, 0, 'T');
    Value::Int(match unit {
        "SECOND" => of_day / 1_000_000 % 60,
        "MINUTE" => of_day / 60_000_000 % 60,
        "HOUR" => of_day / 3_600_000_000,
        "DAY" => date[8..10].parse().expect("a day"),
        "MONTH" => date[5..7].parse().expect("a month"),
        "YEAR" => date[0..4].parse().expect("a year"),
        other => panic!("the interpreter does not know EXTRACT({other})"),
    })
}

/// The JSON functions with paths of names and no clauses but RETURNING.
fn json(name: &str, form: &str, args: &[Value], to: &DataType) -> Value {
    let defaults = ["{} False ON ERROR)", "{} WRAPPER Without Null ON EMPTY Null ON ERROR)"];
    let plain = !form.contains(" ON ") || defaults.iter().any(|default| form.ends_with(default));
    assert!(plain, "the interpreter does not know {form}");
    if args[0].is_null() {
        return if name == "JSON_EXISTS" { Value::Bool(false) } else { Value::Null };
    }
    let path = args[1].text();
    let document: Option<Json> = serde_json::from_str(args[0].text()).ok();
    let found = document.as_ref().and_then(|document| {
        path.trim_start_matches("lax ").split('.').skip(1).try_fold(document, |value, name| value.get(name))
    });
    match (name, found) {
        ("JSON_EXISTS", found) => Value::Bool(found.is_some_and(|found| !found.is_null())),
        ("JSON_QUERY", Some(found @ (Json::Array(_) | Json::Object(_)))) => Value::Text(found.to_string()),
        ("JSON_VALUE", Some(Json::String(text))) => Value::Text(text.clone()),
        ("JSON_VALUE", Some(Json::Number(number))) if *to == DataType::Double => {
            Value::Double(number.as_f64().expect("a number"))
        }
        ("JSON_VALUE", Some(scalar @ (Json::Number(_) | Json::Bool(_)))) => Value::Text(scalar.to_string()),
        _ => Value::Null,
    }
}
