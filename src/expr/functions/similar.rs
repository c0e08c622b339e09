//! `SIMILAR TO`: SQL's regular expressions, translated as Flink's `SqlLikeUtils.sqlToRegexSimilar` does. The whole text
//! must match. As there, a `.` is any character, `^` the beginning, and classes are `[:ALPHA:]`, `[:digit:]` and so on.

use arrow_array::new_null_array;
use regex::Regex;

use super::java_regex::{ANY, build};
use super::{call, fallible_call, literal_text, with_form};
use crate::expr::build::{Expr, TypeError};
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, Scope, make_booleans};

const SPECIAL: &str = "[]()|^-+*_%?{}";
const CLASSES: [(&str, &str); 7] = [
    ("alpha", "a-zA-Z"),
    ("upper", "A-Z"),
    ("lower", "a-z"),
    ("digit", "0-9"),
    ("space", " "),
    ("whitespace", " \\t\\n\\x0B\\f\\r"),
    ("alnum", "a-zA-Z0-9"),
];

/// `s SIMILAR TO pattern [ESCAPE escape]` of two STRINGs.
pub fn similar(s: Expr, pattern: Expr, escape: Option<char>) -> Result<Expr, TypeError> {
    let fixed = match literal_text(&pattern) {
        Some(text) => Some(compile(text, escape).map_err(|message| TypeError {
            message,
            help: Some("write for example x SIMILAR TO 'a(b|c)+'".to_owned()),
        })?),
        None => None,
    };
    let fallible = fixed.is_none();
    let kernel = move |args: &[Operand], scope: &mut Scope<'_>| {
        let [s, pattern] = args else { return new_null_array(&DataType::Boolean.arrow(), scope.rows) };
        let (s, texts) = (s.strings(), pattern.strings());
        let mut last: Option<(String, Regex)> = None;
        make_booleans(scope, |row| {
            let (Some(s), Some(text)) = (s.get(row), texts.get(row)) else { return Ok(None) };
            if let Some(regex) = &fixed {
                return Ok(Some(regex.is_match(s)));
            }
            if last.as_ref().is_none_or(|(known, _)| known != text) {
                last = Some((text.to_owned(), compile(text, escape)?));
            }
            Ok(last.as_ref().map(|(_, regex)| regex.is_match(s)))
        })
    };
    let make = if fallible { fallible_call } else { call };
    let made = make("SIMILAR", vec![s, pattern], DataType::Boolean, kernel);
    let escape = escape.map_or_else(String::new, |c| format!(" ESCAPE '{c}'"));
    Ok(with_form(made, format!("{{}} SIMILAR TO {{}}{escape}")))
}

fn compile(pattern: &str, escape: Option<char>) -> Result<Regex, String> {
    let wrong = |what: &str| format!("in the SIMILAR TO pattern '{pattern}' {what}");
    let mut out = "\\A(?:".to_owned();
    let mut rest = pattern.chars();
    let mut quantified = false;
    while let Some(c) = rest.next() {
        let was_quantified = std::mem::take(&mut quantified);
        match c {
            c if Some(c) == escape => out.push_str(&escaped(rest.next(), c).map_err(|what| wrong(&what))?),
            '_' => out.push_str(ANY),
            '%' => out.push_str("(?s:.*)"),
            '.' => out.push_str(ANY),
            '[' => {
                rest = class(rest, escape, &mut out).map_err(|what| wrong(&what))?;
            }
            ']' => return Err(wrong("a ] closes nothing")),
            '\\' | '$' => out.extend(['\\', c]),
            '(' if rest.as_str().starts_with('?') => return Err(wrong("(? is not supported")),
            '+' if was_quantified => return Err(wrong("a quantifier follows another, which is not supported")),
            '*' | '+' | '?' | '}' => {
                quantified = true;
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push_str(")\\z");
    build(&out).map_err(|reason| wrong(&format!("something is not supported: {reason}")))
}

/// The character behind an escape.
fn escaped(next: Option<char>, escape: char) -> Result<String, String> {
    match next {
        Some(c) if SPECIAL.contains(c) || c == escape => Ok(regex::escape(c.encode_utf8(&mut [0; 4]))),
        _ => Err(format!("the escape {escape} must stand before a special character or itself")),
    }
}

/// Translates `…]` and returns what follows.
fn class<'a>(
    mut rest: std::str::Chars<'a>,
    escape: Option<char>,
    out: &mut String,
) -> Result<std::str::Chars<'a>, String> {
    out.push('[');
    while let Some(c) = rest.next() {
        if Some(c) == escape {
            out.push_str(&escaped(rest.next(), c)?);
            continue;
        }
        match c {
            ']' => {
                out.push(']');
                return Ok(rest);
            }
            '-' | '^' => out.push(c),
            '[' => {
                let named = rest.as_str().strip_prefix(':').and_then(|name| name.split_once(":]"));
                let class = named.and_then(|(name, after)| {
                    let lower = name.to_ascii_lowercase();
                    let cased = name == lower || name == name.to_ascii_uppercase();
                    CLASSES.iter().find(|(known, _)| cased && *known == lower).map(|c| (c.1, after))
                });
                let Some((class, after)) = class else {
                    return Err("a class is not known: there are [:ALPHA:], [:DIGIT:] and others".to_owned());
                };
                out.push_str(class);
                rest = after.chars();
            }
            c if SPECIAL.contains(c) => return Err(format!("a {c} inside [ ] must be escaped")),
            c => out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    Err("a [ has no end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (text, pattern, escape, matches) in [
            ("abc", "a%", None, true),
            ("abc", "ab", None, false),
            ("abc", "(ab|x)_", None, true),
            ("a\nc", "a_c", None, false),
            ("a\nc", "a%c", None, true),
            ("aaa", "a{2,3}", None, true),
            ("x5", "[:alpha:]5", None, false),
            ("x5", "[[:alpha:]][[:DIGIT:]]", None, true),
            ("5", "[^a-z]", None, true),
            ("50%", "50!%", Some('!'), true),
            ("a$", "a$", None, true),
            ("a&&b", "[&a-b]+", None, true),
        ] {
            let regex = compile(pattern, escape);
            assert_eq!(regex.map(|regex| regex.is_match(text)), Ok(matches), "{text:?} {pattern}");
        }
        for pattern in ["a]", "[a", "[[:foo:]]", "[a(]", "(?i)a", "a*+", "(", "a!"] {
            assert!(compile(pattern, Some('!')).is_err(), "{pattern}");
        }
    }
}
