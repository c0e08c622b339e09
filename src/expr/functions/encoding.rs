//! Other writings of the same content: URLs, hexadecimal digits, IPv4 addresses, UTF-8, exchanged characters.

use std::fmt::Write as _;

use arrow_array::types::Int64Type;

use super::{Function, Refusal, Resolved, bigint, call, exactly, fallible_call, string, typed, with_form};
use crate::expr::build::{self, Characters, Expr, Value};
use crate::expr::types::DataType;
use crate::expr::vector::{
    Operand, Scope, VALUE_BYTES_MAX, make_booleans, make_bytes, make_numbers, make_strings, too_long,
};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "URL_ENCODE", parameters: "STRING", resolve: |args| text("URL_ENCODE", args, url_encode) },
    Function { name: "URL_DECODE", parameters: "STRING", resolve: |args| text("URL_DECODE", args, url_decode) },
    Function { name: "UNHEX", parameters: "STRING", resolve: unhex },
    Function { name: "INET_ATON", parameters: "STRING", resolve: inet_aton },
    Function { name: "INET_NTOA", parameters: "BIGINT", resolve: inet_ntoa },
    Function { name: "IS_VALID_UTF8", parameters: "BYTES", resolve: is_valid_utf8 },
    Function { name: "MAKE_VALID_UTF8", parameters: "BYTES", resolve: make_valid_utf8 },
    Function { name: "TRANSLATE", parameters: "STRING, STRING, STRING", resolve: translate },
    Function { name: "ELT", parameters: "INT, STRING or BYTES [, STRING or BYTES …]", resolve: elt },
];

/// BYTES cut to a length, and with zeros behind where that says so.
pub(in crate::expr) fn resized(bytes: Expr, to: Characters) -> Expr {
    let length = usize::try_from(to.length).unwrap_or(0);
    let name = if to.is_padded { "BINARY" } else { "VARBINARY" };
    let form = format!("CAST({{}} AS {name}({length}))");
    let resize = move |args: &[Operand], scope: &mut Scope<'_>| {
        let bytes = args.first().map(Operand::bytes);
        make_bytes(scope, |row, out| {
            let Some(bytes) = bytes.and_then(|bytes| bytes.get(row)) else { return Ok(false) };
            if to.is_padded && length > VALUE_BYTES_MAX {
                return Err(too_long());
            }
            out.extend(bytes.iter().take(length));
            let missing = if to.is_padded { length.saturating_sub(bytes.len()) } else { 0 };
            out.extend(std::iter::repeat_n(0, missing));
            Ok(true)
        })
    };
    with_form(fallible_call("CAST", vec![bytes], DataType::Bytes, resize), form)
}

/// A function of one string; `None` is NULL.
fn text(name: &'static str, args: Vec<Expr>, f: fn(&str, &mut String) -> Option<()>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(fallible_call(name, vec![string(s)?], DataType::String, move |args, scope| {
        let s = args.first().map(Operand::strings);
        make_strings(scope, |row, out| Ok(s.and_then(|s| s.get(row)).and_then(|s| f(s, out)).is_some()))
    }))
}

/// As `java.net.URLEncoder`.
fn url_encode(s: &str, out: &mut String) -> Option<()> {
    for byte in s.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            // Writing to a String cannot fail.
            _ => write!(out, "%{byte:02X}").unwrap_or_default(),
        }
    }
    Some(())
}

/// As `java.net.URLDecoder`; NULL where a `%` is not followed by two digits.
fn url_decode(s: &str, out: &mut String) -> Option<()> {
    let mut bytes = Vec::with_capacity(s.len());
    let mut rest = s.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let [high, low, tail @ ..] = tail else { return None };
                bytes.push(digit(*high)? << 4 | digit(*low)?);
                rest = tail;
            }
            other => bytes.push(*other),
        }
    }
    out.push_str(&String::from_utf8_lossy(&bytes));
    Some(())
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// NULL where there is another character. An odd first digit gives a byte 0, as in Flink.
fn unhex(args: Vec<Expr>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(call("UNHEX", vec![string(s)?], DataType::Bytes, |args, scope| {
        let s = args.first().map(Operand::strings);
        make_bytes(scope, |row, out| {
            let Some(s) = s.and_then(|s| s.get(row)) else { return Ok(false) };
            let (odd, pairs) = s.as_bytes().split_at(s.len() % 2);
            if odd.iter().chain(pairs).any(|byte| digit(*byte).is_none()) {
                return Ok(false);
            }
            out.extend(odd.iter().map(|_| 0));
            for pair in pairs.chunks_exact(2) {
                let digit = |index: usize| pair.get(index).and_then(|byte| digit(*byte)).unwrap_or(0);
                out.push(digit(0) << 4 | digit(1));
            }
            Ok(true)
        })
    }))
}

/// Short forms are taken as in MySQL: the last part stands at the end. NULL for what is no address.
fn inet_aton(args: Vec<Expr>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(call("INET_ATON", vec![string(s)?], DataType::BigInt, |args, scope| {
        let s = args.first().map(Operand::strings);
        make_numbers::<Int64Type>(scope, &DataType::BigInt.arrow(), |row| {
            Ok(s.and_then(|s| s.get(row)).and_then(address))
        })
    }))
}

fn address(text: &str) -> Option<i64> {
    let part = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.trim_start_matches('0')).and_then(|significant| match significant {
            "" => Some(0),
            significant => significant.parse::<u8>().ok().map(i64::from),
        })
    };
    let parts: Vec<i64> = text.split('.').map(part).collect::<Option<_>>()?;
    match parts.as_slice() {
        [a] => Some(*a),
        [a, b] => Some(a << 24 | b),
        [a, b, c] => Some(a << 24 | b << 16 | c),
        [a, b, c, d] => Some(a << 24 | b << 16 | c << 8 | d),
        _ => None,
    }
}

/// A negative INT counts as unsigned, as in Flink; what is no address is NULL.
fn inet_ntoa(args: Vec<Expr>) -> Resolved {
    let [number] = exactly(args)?;
    let is_int = number.data_type != DataType::BigInt;
    Ok(call("INET_NTOA", vec![bigint(number)?], DataType::String, move |args, scope| {
        let number = args.first().map(Operand::numbers::<Int64Type>);
        make_strings(scope, |row, out| {
            let Some(number) = number.and_then(|number| number.get(row)) else { return Ok(false) };
            let number = if is_int { number & 0xFFFF_FFFF } else { number };
            let Ok(number) = u32::try_from(number) else { return Ok(false) };
            let _ = write!(out, "{}", std::net::Ipv4Addr::from(number));
            Ok(true)
        })
    }))
}

fn is_valid_utf8(args: Vec<Expr>) -> Resolved {
    let [bytes] = exactly(args)?;
    Ok(call("IS_VALID_UTF8", vec![typed(bytes, DataType::Bytes)?], DataType::Boolean, |args, scope| {
        let bytes = args.first().map(Operand::bytes);
        make_booleans(scope, |row| Ok(bytes.and_then(|b| b.get(row)).map(|b| std::str::from_utf8(b).is_ok())))
    }))
}

fn make_valid_utf8(args: Vec<Expr>) -> Resolved {
    let [bytes] = exactly(args)?;
    Ok(fallible_call("MAKE_VALID_UTF8", vec![typed(bytes, DataType::Bytes)?], DataType::String, |args, scope| {
        let bytes = args.first().map(Operand::bytes);
        make_strings(scope, |row, out| {
            let Some(bytes) = bytes.and_then(|bytes| bytes.get(row)) else { return Ok(false) };
            out.push_str(&String::from_utf8_lossy(bytes));
            Ok(true)
        })
    }))
}

/// Each character of the second string becomes the one at its place in the third, or goes where there is none. The
/// first of two entries counts; a NULL second string changes nothing, a NULL third one is empty.
fn translate(args: Vec<Expr>) -> Resolved {
    let [s, from, to] = exactly(args)?;
    Ok(fallible_call("TRANSLATE", vec![string(s)?, string(from)?, string(to)?], DataType::String, |args, scope| {
        let [s, from, to] = args else { return arrow_array::new_null_array(&DataType::String.arrow(), scope.rows) };
        let (s, from, to) = (s.strings(), from.strings(), to.strings());
        make_strings(scope, |row, out| {
            let Some(s) = s.get(row) else { return Ok(false) };
            let (from, to) = (from.get(row).unwrap_or_default(), to.get(row).unwrap_or_default());
            for c in s.chars() {
                match from.chars().position(|known| known == c) {
                    Some(place) => out.extend(to.chars().nth(place)),
                    None => out.push(c),
                }
            }
            Ok(true)
        })
    }))
}

/// The string or bytes with this number, from 1; NULL where there is none.
fn elt(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let index = bigint(args.next().ok_or(Refusal::Arguments)?)?;
    let args: Vec<Expr> = args.collect();
    let is_bytes = args.iter().any(|value| value.data_type == DataType::Bytes);
    let data_type = if is_bytes { DataType::Bytes } else { DataType::String };
    let branches: Vec<(Expr, Expr)> = (1..)
        .zip(args)
        .map(|(number, value)| {
            Ok((build::literal(Value::Integer(number), DataType::BigInt), typed(value, data_type.clone())?))
        })
        .collect::<Result<_, Refusal>>()?;
    if branches.is_empty() {
        return Err(Refusal::Arguments);
    }
    Ok(build::case(Some(index), branches, None)?)
}
