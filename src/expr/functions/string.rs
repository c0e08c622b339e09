//! Functions of strings. Positions and lengths count characters (Unicode code points), positions from 1. Where Flink
//! goes through a Java string (LPAD, RPAD, OVERLAY) it counts a character beyond the basic plane as two.

use arrow_array::ArrayRef;
use arrow_array::new_null_array;
use arrow_array::types::{Int32Type, Int64Type};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{
    Function, Refusal, Resolved, bigint, call, exactly, fallible_call, int, literal_text, octets, string,
    text_or_bytes, typed, with_form,
};
use crate::expr::build::{self, Expr, ExprKind, TrimSide, TypeError, Value};
use crate::expr::types::DataType;
use crate::expr::vector::{
    Numbers, Operand, Scope, Strings, VALUE_BYTES_MAX, make_booleans, make_bytes, make_numbers, make_strings, too_long,
};

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "UPPER",
        parameters: "STRING",
        resolve: |args| map("UPPER", args, |s, out| out.push_str(&s.to_uppercase())),
    },
    Function {
        name: "UCASE",
        parameters: "STRING",
        resolve: |args| map("UPPER", args, |s, out| out.push_str(&s.to_uppercase())),
    },
    Function {
        name: "LOWER",
        parameters: "STRING",
        resolve: |args| map("LOWER", args, |s, out| out.push_str(&s.to_lowercase())),
    },
    Function {
        name: "LCASE",
        parameters: "STRING",
        resolve: |args| map("LOWER", args, |s, out| out.push_str(&s.to_lowercase())),
    },
    Function { name: "INITCAP", parameters: "STRING", resolve: |args| map("INITCAP", args, init_cap) },
    Function {
        name: "REVERSE",
        parameters: "STRING",
        resolve: |args| map("REVERSE", args, |s, out| out.extend(s.chars().rev())),
    },
    Function { name: "TO_BASE64", parameters: "STRING or BYTES", resolve: to_base64 },
    Function { name: "FROM_BASE64", parameters: "STRING or BYTES", resolve: from_base64 },
    Function { name: "CHAR_LENGTH", parameters: "STRING", resolve: char_length },
    Function { name: "CHARACTER_LENGTH", parameters: "STRING", resolve: char_length },
    Function { name: "LENGTH", parameters: "STRING", resolve: char_length },
    Function { name: "ASCII", parameters: "STRING", resolve: ascii },
    Function { name: "CHR", parameters: "BIGINT", resolve: chr },
    Function { name: "CONCAT", parameters: "STRING [, STRING …]", resolve: concat },
    Function { name: "CONCAT_WS", parameters: "STRING [, STRING …]", resolve: concat_ws },
    Function { name: "SUBSTRING", parameters: "STRING, INT [, INT]", resolve: substring },
    Function { name: "SUBSTR", parameters: "STRING, INT [, INT]", resolve: substring },
    Function { name: "OVERLAY", parameters: "STRING, STRING, INT [, INT]", resolve: overlay },
    Function { name: "LEFT", parameters: "STRING, INT", resolve: |args| end("LEFT", args) },
    Function { name: "RIGHT", parameters: "STRING, INT", resolve: |args| end("RIGHT", args) },
    Function { name: "TRIM", parameters: "STRING", resolve: |args| trim_one(TrimSide::Both, args) },
    Function { name: "BTRIM", parameters: "STRING [, STRING]", resolve: |args| trim_some(TrimSide::Both, args) },
    Function { name: "LTRIM", parameters: "STRING [, STRING]", resolve: |args| trim_some(TrimSide::Leading, args) },
    Function { name: "RTRIM", parameters: "STRING [, STRING]", resolve: |args| trim_some(TrimSide::Trailing, args) },
    Function { name: "LPAD", parameters: "STRING, INT, STRING", resolve: |args| pad("LPAD", args) },
    Function { name: "RPAD", parameters: "STRING, INT, STRING", resolve: |args| pad("RPAD", args) },
    Function { name: "REPEAT", parameters: "STRING, INT", resolve: repeat },
    Function { name: "REPLACE", parameters: "STRING, STRING, STRING", resolve: replace },
    Function { name: "LOCATE", parameters: "STRING, STRING [, INT]", resolve: locate },
    Function { name: "POSITION", parameters: "STRING, STRING [, INT]", resolve: locate },
    Function { name: "INSTR", parameters: "STRING, STRING [, INT [, INT]]", resolve: instr },
    Function {
        name: "STARTSWITH",
        parameters: "STRING, STRING",
        resolve: |args| test("STARTSWITH", args, |s, t| s.starts_with(t)),
    },
    Function {
        name: "ENDSWITH",
        parameters: "STRING, STRING",
        resolve: |args| test("ENDSWITH", args, |s, t| s.ends_with(t)),
    },
    Function { name: "SPLIT_INDEX", parameters: "STRING, STRING or INT, INT", resolve: split_index },
    Function { name: "ENCODE", parameters: "STRING, STRING literal", resolve: encode },
    Function { name: "DECODE", parameters: "BYTES, STRING literal", resolve: decode },
    Function {
        name: "IS_ALPHA",
        parameters: "STRING",
        resolve: |args| check("IS_ALPHA", args, |s| !s.is_empty() && s.chars().all(char::is_alphabetic)),
    },
    Function {
        name: "IS_DIGIT",
        parameters: "STRING",
        resolve: |args| check("IS_DIGIT", args, |s| !s.is_empty() && s.chars().all(char::is_numeric)),
    },
    Function {
        name: "IS_DECIMAL",
        parameters: "STRING",
        resolve: |args| check("IS_DECIMAL", args, |s| crate::expr::text::parse_f64(s).is_some()),
    },
];

const MISSING_STRING: DataType = DataType::String;

/// The argument with this index as strings; all NULL where there is none.
fn strings(args: &[Operand], index: usize) -> Option<Strings<'_>> {
    args.get(index).map(Operand::strings)
}

fn ints(args: &[Operand], index: usize) -> Option<Numbers<'_, Int32Type>> {
    args.get(index).map(Operand::numbers::<Int32Type>)
}

/// A function of one string.
fn map(name: &'static str, args: Vec<Expr>, f: fn(&str, &mut String)) -> Resolved {
    let [s] = exactly(args)?;
    // Case mapping can lengthen a string, so even this can fail.
    Ok(fallible_call(name, vec![string(s)?], DataType::String, move |args, scope| {
        let Some(s) = strings(args, 0) else { return new_null_array(&MISSING_STRING.arrow(), scope.rows) };
        make_strings(scope, |row, out| {
            let Some(s) = s.get(row) else { return Ok(false) };
            f(s, out);
            Ok(true)
        })
    }))
}

fn test(name: &'static str, args: Vec<Expr>, f: fn(&str, &str) -> bool) -> Resolved {
    let [s, t] = exactly(args)?;
    Ok(call(name, vec![string(s)?, string(t)?], DataType::Boolean, move |args, scope| {
        let (Some(s), Some(t)) = (strings(args, 0), strings(args, 1)) else {
            return new_null_array(&DataType::Boolean.arrow(), scope.rows);
        };
        make_booleans(scope, |row| Ok(s.get(row).zip(t.get(row)).map(|(s, t)| f(s, t))))
    }))
}

/// A test that is FALSE for NULL.
fn check(name: &'static str, args: Vec<Expr>, f: fn(&str) -> bool) -> Resolved {
    let [s] = exactly(args)?;
    Ok(call(name, vec![string(s)?], DataType::Boolean, move |args, scope| {
        let s = strings(args, 0);
        make_booleans(scope, |row| Ok(Some(s.and_then(|s| s.get(row)).is_some_and(f))))
    }))
}

fn number(
    name: &'static str,
    args: Vec<Expr>,
    f: impl Fn(&[Operand], usize) -> Option<i32> + Send + Sync + 'static,
) -> Expr {
    call(name, args, DataType::Int, move |args, scope| {
        make_numbers::<Int32Type>(scope, &DataType::Int.arrow(), |row| Ok(f(args, row)))
    })
}

fn length(s: &str) -> i32 {
    i32::try_from(s.chars().count()).unwrap_or(i32::MAX)
}

fn char_length(args: Vec<Expr>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(number("CHAR_LENGTH", vec![string(s)?], |args, row| strings(args, 0)?.get(row).map(length)))
}

/// The first byte, signed, as in Flink.
fn ascii(args: Vec<Expr>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(number("ASCII", vec![string(s)?], |args, row| {
        strings(args, 0)?.get(row).map(|s| s.bytes().next().map_or(0, |byte| i32::from(byte as i8)))
    }))
}

/// Only the low byte counts, as in Flink; negative numbers give the empty string.
fn chr(args: Vec<Expr>) -> Resolved {
    let [code] = exactly(args)?;
    Ok(call("CHR", vec![bigint(code)?], DataType::String, |args, scope| {
        let code = args.first().map(Operand::numbers::<Int64Type>);
        make_strings(scope, |row, out| {
            let Some(code) = code.and_then(|code| code.get(row)) else { return Ok(false) };
            if code >= 0 {
                out.push(char::from((code & 0xff) as u8));
            }
            Ok(true)
        })
    }))
}

/// Words of ASCII letters and digits, as in Calcite.
fn init_cap(s: &str, out: &mut String) {
    let mut start = true;
    for c in s.chars() {
        out.push(if start { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() });
        start = !c.is_ascii_alphanumeric();
    }
}

fn to_base64(args: Vec<Expr>) -> Resolved {
    map_octets("TO_BASE64", args, |bytes, out| {
        STANDARD.encode_string(bytes, out);
        Ok(())
    })
}

/// What is not Base64 fails its row; bytes that are not UTF-8 become U+FFFD.
fn from_base64(args: Vec<Expr>) -> Resolved {
    map_octets("FROM_BASE64", args, |bytes, out| {
        let bytes = STANDARD.decode(bytes).map_err(|error| format!("FROM_BASE64: {error}"))?;
        out.push_str(&String::from_utf8_lossy(&bytes));
        Ok(())
    })
}

/// A STRING made of the bytes of a STRING or BYTES.
fn map_octets(name: &'static str, args: Vec<Expr>, convert: fn(&[u8], &mut String) -> Result<(), String>) -> Resolved {
    let [s] = exactly(args)?;
    let s = text_or_bytes(s)?;
    let data_type = s.data_type.clone();
    Ok(fallible_call(name, vec![s], DataType::String, move |args, scope| {
        let s = args.first().map(|s| octets(s, &data_type));
        make_strings(scope, |row, out| {
            let Some(s) = s.as_ref().and_then(|s| s(row)) else { return Ok(false) };
            convert(s, out)?;
            Ok(true)
        })
    }))
}

fn all_strings(args: Vec<Expr>) -> Result<Vec<Expr>, Refusal> {
    if args.is_empty() { Err(Refusal::Arguments) } else { args.into_iter().map(string).collect() }
}

fn concat(args: Vec<Expr>) -> Resolved {
    Ok(fallible_call("CONCAT", all_strings(args)?, DataType::String, |args, scope| {
        let parts: Vec<Strings<'_>> = args.iter().map(Operand::strings).collect();
        make_strings(scope, |row, out| {
            for part in &parts {
                let Some(part) = part.get(row) else { return Ok(false) };
                out.push_str(part);
            }
            Ok(true)
        })
    }))
}

/// NULLs are left out; a NULL separator gives NULL.
fn concat_ws(args: Vec<Expr>) -> Resolved {
    Ok(fallible_call("CONCAT_WS", all_strings(args)?, DataType::String, |args, scope| {
        let parts: Vec<Strings<'_>> = args.iter().map(Operand::strings).collect();
        make_strings(scope, |row, out| {
            let Some((separator, parts)) = parts.split_first() else { return Ok(false) };
            let Some(separator) = separator.get(row) else { return Ok(false) };
            for (i, part) in parts.iter().filter_map(|part| part.get(row)).enumerate() {
                if i > 0 {
                    out.push_str(separator);
                }
                out.push_str(part);
            }
            Ok(true)
        })
    }))
}

/// The part of a string from character `start` (from 0) on, at most `count` characters.
fn slice(s: &str, start: usize, count: usize) -> &str {
    if s.is_ascii() {
        let start = start.min(s.len());
        return s.get(start..start.saturating_add(count).min(s.len())).unwrap_or_default();
    }
    let mut rest = s.chars();
    for _ in 0..start {
        if rest.next().is_none() {
            break;
        }
    }
    let from = rest.as_str();
    for _ in 0..count {
        if rest.next().is_none() {
            break;
        }
    }
    from.get(..from.len() - rest.as_str().len()).unwrap_or_default()
}

/// A negative start counts from the end, 0 is like 1; a negative length gives NULL.
fn substring(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let (Some(s), Some(from)) = (args.next(), args.next()) else { return Err(Refusal::Arguments) };
    let count = args.next().unwrap_or_else(|| build::literal(Value::Integer(i32::MAX.into()), DataType::Int));
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let unlimited = matches!(&count.kind, ExprKind::Literal(Value::Integer(i)) if *i == i64::from(i32::MAX));
    let made = call("SUBSTRING", vec![string(s)?, int(from)?, int(count)?], DataType::String, |args, scope| {
        let (Some(s), Some(from), Some(count)) = (strings(args, 0), ints(args, 1), ints(args, 2)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let (Some(s), Some(from), Some(count)) = (s.get(row), from.get(row), count.get(row)) else {
                return Ok(false);
            };
            let Ok(count) = usize::try_from(count) else { return Ok(false) };
            let start = match from {
                1.. => usize::try_from(from - 1).ok(),
                0 => Some(0),
                _ => s.chars().count().checked_sub(from.unsigned_abs() as usize),
            };
            out.push_str(start.map_or("", |start| slice(s, start, count)));
            Ok(true)
        })
    });
    Ok(if unlimited { with_form(made, "SUBSTRING({}, {})".to_owned()) } else { made })
}

fn overlay(args: Vec<Expr>) -> Resolved {
    let count = args.len();
    let mut args = args.into_iter();
    let (Some(s), Some(replacement), Some(from)) = (args.next(), args.next(), args.next()) else {
        return Err(Refusal::Arguments);
    };
    let mut list = vec![string(s)?, string(replacement)?, int(from)?];
    if let Some(length) = args.next() {
        list.push(int(length)?);
    }
    if count > 4 {
        return Err(Refusal::Arguments);
    }
    Ok(fallible_call("OVERLAY", list, DataType::String, |args, scope| {
        let (Some(s), Some(replacement), Some(from)) = (strings(args, 0), strings(args, 1), ints(args, 2)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        let count = ints(args, 3);
        make_strings(scope, |row, out| {
            let (Some(s), Some(replacement), Some(from)) = (s.get(row), replacement.get(row), from.get(row)) else {
                return Ok(false);
            };
            let count = match count {
                Some(count) => match count.get(row) {
                    Some(count) => i64::from(count),
                    None => return Ok(false),
                },
                None => i64::from(length(replacement)),
            };
            let (total, from) = (i64::from(length(s)), i64::from(from));
            if from <= 0 || from > total {
                out.push_str(s);
                return Ok(true);
            }
            let start = usize::try_from(from - 1).unwrap_or(0);
            out.push_str(slice(s, 0, start));
            out.push_str(replacement);
            if count > 0 && from + count <= total {
                out.push_str(slice(s, start + usize::try_from(count).unwrap_or(0), usize::MAX));
            }
            Ok(true)
        })
    }))
}

/// LEFT and RIGHT: a length below 1 gives the empty string.
fn end(name: &'static str, args: Vec<Expr>) -> Resolved {
    let [s, count] = exactly(args)?;
    Ok(call(name, vec![string(s)?, int(count)?], DataType::String, move |args, scope| {
        let (Some(s), Some(count)) = (strings(args, 0), ints(args, 1)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let (Some(s), Some(count)) = (s.get(row), count.get(row)) else { return Ok(false) };
            let count = usize::try_from(count).unwrap_or(0);
            out.push_str(if name == "LEFT" {
                slice(s, 0, count)
            } else {
                slice(s, s.chars().count().saturating_sub(count), usize::MAX)
            });
            Ok(true)
        })
    }))
}

fn trim_one(side: TrimSide, args: Vec<Expr>) -> Resolved {
    let [s] = exactly(args)?;
    Ok(trim(side, None, string(s)?))
}

fn trim_some(side: TrimSide, args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let s = string(args.next().ok_or(Refusal::Arguments)?)?;
    let chars = args.next().map(string).transpose()?;
    if args.next().is_some() { Err(Refusal::Arguments) } else { Ok(trim(side, chars, s)) }
}

/// Cuts off all leading or trailing characters that occur in `chars` (blanks by default).
pub fn trim(side: TrimSide, chars: Option<Expr>, s: Expr) -> Expr {
    let word = match side {
        TrimSide::Both => "BOTH",
        TrimSide::Leading => "LEADING",
        TrimSide::Trailing => "TRAILING",
    };
    let chars = chars.unwrap_or_else(|| build::string_literal(" "));
    let made = call("TRIM", vec![chars, s], DataType::String, move |args, scope| {
        let (Some(chars), Some(s)) = (strings(args, 0), strings(args, 1)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let (Some(chars), Some(s)) = (chars.get(row), s.get(row)) else { return Ok(false) };
            let cut = |c: char| chars.contains(c);
            out.push_str(match side {
                TrimSide::Both => s.trim_matches(cut),
                TrimSide::Leading => s.trim_start_matches(cut),
                TrimSide::Trailing => s.trim_end_matches(cut),
            });
            Ok(true)
        })
    });
    with_form(made, format!("TRIM({word} {{}} FROM {{}})"))
}

/// LPAD and RPAD to a length in characters, cutting longer strings; a negative length or an empty pad gives NULL.
fn pad(name: &'static str, args: Vec<Expr>) -> Resolved {
    let [s, width, fill] = exactly(args)?;
    let args = vec![string(s)?, int(width)?, string(fill)?];
    Ok(fallible_call(name, args, DataType::String, move |args, scope| {
        let (Some(s), Some(width), Some(fill)) = (strings(args, 0), ints(args, 1), strings(args, 2)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let (Some(s), Some(width), Some(fill)) = (s.get(row), width.get(row), fill.get(row)) else {
                return Ok(false);
            };
            let Ok(width) = usize::try_from(width) else { return Ok(false) };
            if fill.is_empty() {
                return Ok(false);
            }
            let missing = width.saturating_sub(s.chars().count());
            if missing.saturating_add(s.len()) > VALUE_BYTES_MAX {
                return Err(too_long());
            }
            let filling = fill.chars().cycle().take(missing);
            if name == "LPAD" {
                out.extend(filling);
                out.push_str(slice(s, 0, width));
            } else {
                out.push_str(slice(s, 0, width));
                out.extend(filling);
            }
            Ok(true)
        })
    }))
}

fn repeat(args: Vec<Expr>) -> Resolved {
    let [s, count] = exactly(args)?;
    Ok(fallible_call("REPEAT", vec![string(s)?, int(count)?], DataType::String, |args, scope| {
        let (Some(s), Some(count)) = (strings(args, 0), ints(args, 1)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let (Some(s), Some(count)) = (s.get(row), count.get(row)) else { return Ok(false) };
            let count = usize::try_from(count).unwrap_or(0);
            if s.len().saturating_mul(count) > VALUE_BYTES_MAX {
                return Err(too_long());
            }
            if !s.is_empty() {
                out.extend(std::iter::repeat_n(s, count));
            }
            Ok(true)
        })
    }))
}

fn replace(args: Vec<Expr>) -> Resolved {
    let [s, old, new] = exactly(args)?;
    let args = vec![string(s)?, string(old)?, string(new)?];
    Ok(fallible_call("REPLACE", args, DataType::String, |args, scope| {
        let (Some(s), Some(old), Some(new)) = (strings(args, 0), strings(args, 1), strings(args, 2)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        make_strings(scope, |row, out| {
            let (Some(s), Some(old), Some(new)) = (s.get(row), old.get(row), new.get(row)) else { return Ok(false) };
            // Each match is as long as `old`; an empty one matches around every character.
            let matches = if old.is_empty() { s.len() + 1 } else { s.len() / old.len() };
            if new.len() > 1
                && matches.saturating_mul(new.len()) > VALUE_BYTES_MAX
                && s.matches(old).count().saturating_mul(new.len()) > VALUE_BYTES_MAX
            {
                return Err(too_long());
            }
            out.push_str(&s.replace(old, new));
            Ok(true)
        })
    }))
}

/// Position, in characters from 1, of the first occurrence at or behind character `from` (from 1); 0 if there is none.
fn index_of(hay: &str, needle: &str, from: i64) -> i64 {
    if needle.is_empty() {
        return 1;
    }
    let skipped = usize::try_from(from.saturating_sub(1)).unwrap_or(0);
    let start = hay.char_indices().nth(skipped).map(|(at, _)| at);
    let Some(rest) = start.and_then(|start| hay.get(start..)) else { return 0 };
    let Some(at) = rest.find(needle) else { return 0 };
    let before = rest.get(..at).unwrap_or_default().chars().count() + skipped;
    i64::try_from(before).map_or(0, |before| before + 1)
}

fn locate(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let (Some(needle), Some(hay)) = (args.next(), args.next()) else { return Err(Refusal::Arguments) };
    let mut list = vec![string(needle)?, string(hay)?];
    if let Some(from) = args.next() {
        list.push(int(from)?);
    }
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let form = if list.len() == 2 { "POSITION({} IN {})" } else { "LOCATE({}, {}, {})" };
    let made = number("LOCATE", list, |args, row| {
        let (needle, hay) = (strings(args, 0)?.get(row)?, strings(args, 1)?.get(row)?);
        let from = match ints(args, 2) {
            Some(from) => from.get(row)?,
            None => 1,
        };
        i32::try_from(index_of(hay, needle, from.into())).ok()
    });
    Ok(with_form(made, form.to_owned()))
}

/// `INSTR(hay, needle [, start [, nth]])`; a negative start searches backwards.
fn instr(args: Vec<Expr>) -> Resolved {
    let count = args.len();
    let mut args = args.into_iter();
    let (Some(hay), Some(needle)) = (args.next(), args.next()) else { return Err(Refusal::Arguments) };
    let mut list = vec![string(hay)?, string(needle)?];
    for more in args {
        list.push(int(more)?);
    }
    if count > 4 {
        return Err(Refusal::Arguments);
    }
    Ok(fallible_call("INSTR", list, DataType::Int, |args, scope| {
        let (hay, needle, start, nth) = (strings(args, 0), strings(args, 1), ints(args, 2), ints(args, 3));
        make_numbers::<Int32Type>(scope, &DataType::Int.arrow(), |row| {
            let (Some(hay), Some(needle)) = (hay.and_then(|h| h.get(row)), needle.and_then(|n| n.get(row))) else {
                return Ok(None);
            };
            let optional = |number: Option<Numbers<'_, Int32Type>>| number.map_or(Some(1), |n| n.get(row));
            let (Some(start), Some(nth)) = (optional(start), optional(nth)) else { return Ok(None) };
            if nth <= 0 {
                return Err("INSTR: the number of the occurrence must be positive".to_owned());
            }
            Ok(i32::try_from(nth_index(hay, needle, start.into(), nth)).ok())
        })
    }))
}

fn nth_index(hay: &str, needle: &str, start: i64, nth: i32) -> i64 {
    if start == 0 {
        return 0;
    }
    if start < 0 {
        let (hay, needle): (String, String) = (hay.chars().rev().collect(), needle.chars().rev().collect());
        let found = nth_index(&hay, &needle, -start, nth);
        return if found == 0 { 0 } else { i64::from(length(&hay)) + 2 - found - i64::from(length(&needle)) };
    }
    let (mut from, mut found) = (start, 0);
    // More occurrences than characters cannot be.
    for _ in 0..i64::from(nth).min(i64::from(length(hay)) + 1) {
        found = index_of(hay, needle, from);
        if found == 0 {
            return 0;
        }
        from = found + 1;
    }
    found
}

/// The part with this number (from 0) between separators; NULL beyond the last. The separator is a string, or the
/// code of a character up to 255.
fn split_index(args: Vec<Expr>) -> Resolved {
    let [s, separator, number] = exactly(args)?;
    let by_code = separator.data_type.is_integer();
    let separator = if by_code { int(separator)? } else { string(separator)? };
    Ok(call("SPLIT_INDEX", vec![string(s)?, separator, int(number)?], DataType::String, move |args, scope| {
        let (Some(s), Some(number), Some(separator)) = (strings(args, 0), ints(args, 2), args.get(1)) else {
            return new_null_array(&MISSING_STRING.arrow(), scope.rows);
        };
        let (texts, codes) = (separator.strings(), separator.numbers::<Int32Type>());
        make_strings(scope, |row, out| {
            let (Some(s), Some(number)) = (s.get(row), number.get(row)) else { return Ok(false) };
            let mut buffer = [0; 4];
            let separator = if by_code {
                match codes.get(row).map(u8::try_from) {
                    Some(Ok(code @ 1..)) => &*char::from(code).encode_utf8(&mut buffer),
                    _ => return Ok(false),
                }
            } else {
                match texts.get(row) {
                    Some("") => " ",
                    Some(separator) => separator,
                    None => return Ok(false),
                }
            };
            let part = usize::try_from(number).ok().filter(|_| !s.is_empty()).and_then(|n| s.split(separator).nth(n));
            out.push_str(part.unwrap_or_default());
            Ok(part.is_some())
        })
    }))
}

/// Character sets of ENCODE and DECODE.
#[derive(Clone, Copy)]
enum Charset {
    Utf8,
    Ascii,
    Latin1,
    Utf16 { big_endian: bool, mark: bool },
}

fn charset(expr: &Expr) -> Result<Charset, Refusal> {
    let name = literal_text(expr).ok_or(Refusal::Arguments)?;
    match name.to_ascii_uppercase().as_str() {
        "UTF-8" => Ok(Charset::Utf8),
        "US-ASCII" => Ok(Charset::Ascii),
        "ISO-8859-1" => Ok(Charset::Latin1),
        "UTF-16BE" => Ok(Charset::Utf16 { big_endian: true, mark: false }),
        "UTF-16LE" => Ok(Charset::Utf16 { big_endian: false, mark: false }),
        "UTF-16" => Ok(Charset::Utf16 { big_endian: true, mark: true }),
        _ => Err(Refusal::Because(TypeError {
            message: format!("unknown character set '{name}'"),
            help: Some("one of UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE".to_owned()),
        })),
    }
}

fn encode(args: Vec<Expr>) -> Resolved {
    let [s, set] = exactly(args)?;
    if matches!(set.kind, ExprKind::Literal(Value::Null)) {
        return Ok(build::implicit_cast(build::null(), &DataType::Bytes));
    }
    let charset = charset(&set)?;
    Ok(fallible_call("ENCODE", vec![string(s)?, set], DataType::Bytes, move |args, scope| {
        let s = strings(args, 0);
        make_bytes(scope, |row, out| {
            let Some(s) = s.and_then(|s| s.get(row)) else { return Ok(false) };
            match charset {
                Charset::Utf8 => out.extend_from_slice(s.as_bytes()),
                Charset::Ascii => out.extend(s.chars().map(|c| if c.is_ascii() { c as u8 } else { b'?' })),
                Charset::Latin1 => out.extend(s.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))),
                Charset::Utf16 { big_endian, mark } => {
                    let mark = mark.then_some(0xfeff_u16);
                    for unit in mark.into_iter().chain(s.encode_utf16()) {
                        out.extend(if big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() });
                    }
                }
            }
            Ok(true)
        })
    }))
}

fn decode(args: Vec<Expr>) -> Resolved {
    let [bytes, set] = exactly(args)?;
    if matches!(set.kind, ExprKind::Literal(Value::Null)) {
        return Ok(build::implicit_cast(build::null(), &DataType::String));
    }
    let charset = charset(&set)?;
    let kernel = move |args: &[Operand], scope: &mut Scope<'_>| -> ArrayRef {
        let bytes = args.first().map(Operand::bytes);
        make_strings(scope, |row, out| {
            let Some(bytes) = bytes.and_then(|bytes| bytes.get(row)) else { return Ok(false) };
            match charset {
                Charset::Utf8 => out.push_str(&String::from_utf8_lossy(bytes)),
                Charset::Ascii => {
                    out.extend(bytes.iter().map(|b| if b.is_ascii() { char::from(*b) } else { '\u{fffd}' }));
                }
                Charset::Latin1 => out.extend(bytes.iter().map(|b| char::from(*b))),
                Charset::Utf16 { big_endian, mark } => {
                    let (big_endian, body) = match bytes {
                        [0xfe, 0xff, body @ ..] if mark => (true, body),
                        [0xff, 0xfe, body @ ..] if mark => (false, body),
                        body => (big_endian, body),
                    };
                    let units = body.chunks(2).map(|pair| match pair {
                        [a, b] if big_endian => u16::from_be_bytes([*a, *b]),
                        [a, b] => u16::from_le_bytes([*a, *b]),
                        _ => 0xfffd,
                    });
                    out.extend(char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')));
                }
            }
            Ok(true)
        })
    };
    Ok(fallible_call("DECODE", vec![typed(bytes, DataType::Bytes)?, set], DataType::String, kernel))
}
