//! LIKE, and the functions of regular expressions.
//!
//! Regular expressions are Java's as far as `java_regex` has them; what it has not is refused when the query is checked,
//! where the pattern is a literal. A pattern that is a literal is compiled once per expression.

use arrow_array::new_null_array;
use arrow_array::types::Int32Type;
use regex::Regex;

use super::array::string_lists;
use super::java_regex::{compile, ends_line, matches, places};
use super::{Function, Refusal, Resolved, call, exactly, fallible_call, int, literal_text, string, with_form};
use crate::expr::build::{self, Expr, TypeError, Value};
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, make_booleans, make_numbers, make_strings};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "REGEXP", parameters: "STRING, STRING", resolve: regexp },
    Function { name: "REGEXP_EXTRACT", parameters: "STRING, STRING [, INT]", resolve: regexp_extract },
    Function { name: "REGEXP_EXTRACT_ALL", parameters: "STRING, STRING [, INT]", resolve: regexp_extract_all },
    Function {
        name: "REGEXP_COUNT",
        parameters: "STRING, STRING",
        resolve: |args| number("REGEXP_COUNT", args, count),
    },
    Function {
        name: "REGEXP_INSTR",
        parameters: "STRING, STRING",
        resolve: |args| number("REGEXP_INSTR", args, place),
    },
    Function { name: "REGEXP_SUBSTR", parameters: "STRING, STRING", resolve: regexp_substr },
    Function { name: "REGEXP_REPLACE", parameters: "STRING, STRING, STRING", resolve: regexp_replace },
];

/// A literal pattern compiled, or one that each row brings along.
pub(super) enum Pattern {
    Fixed(Regex),
    PerRow,
}

impl Pattern {
    pub(super) fn of(expr: &Expr) -> Result<Pattern, Refusal> {
        match literal_text(expr) {
            None => Ok(Pattern::PerRow),
            Some(text) => match compile(text) {
                Ok(regex) => Ok(Pattern::Fixed(regex)),
                Err(reason) => Err(Refusal::Because(TypeError {
                    message: format!("'{text}' is no regular expression that is supported: {reason}"),
                    help: Some("back-references and look-around are not supported".to_owned()),
                })),
            },
        }
    }

    /// The pattern of a row; `None` where it is none. `last` keeps the one of the row before.
    pub(super) fn get<'a>(&'a self, text: &str, last: &'a mut Option<(String, Option<Regex>)>) -> Option<&'a Regex> {
        if let Pattern::Fixed(regex) = self {
            return Some(regex);
        }
        if last.as_ref().is_none_or(|(known, _)| known != text) {
            *last = Some((text.to_owned(), compile(text).ok()));
        }
        last.as_ref().and_then(|(_, regex)| regex.as_ref())
    }
}

/// Whether the pattern matches somewhere. An empty one, or one that is none, does not.
fn regexp(args: Vec<Expr>) -> Resolved {
    let [s, regex] = exactly(args)?;
    let regex = string(regex)?;
    let pattern = Pattern::of(&regex)?;
    Ok(call("REGEXP", vec![string(s)?, regex], DataType::Boolean, move |args, scope| {
        let [s, regex] = args else { return new_null_array(&DataType::Boolean.arrow(), scope.rows) };
        let (s, texts) = (s.strings(), regex.strings());
        let mut last = None;
        make_booleans(scope, |row| {
            let (Some(s), Some(text)) = (s.get(row), texts.get(row)) else { return Ok(None) };
            Ok(Some(!text.is_empty() && pattern.get(text, &mut last).is_some_and(|regex| regex.is_match(s))))
        })
    }))
}

/// Group 0, the whole match, by default. NULL where there is no match or no such group.
fn regexp_extract(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let (Some(s), Some(regex)) = (args.next(), args.next()) else { return Err(Refusal::Arguments) };
    let group = args.next().unwrap_or_else(|| build::literal(Value::Integer(0), DataType::Int));
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let regex = string(regex)?;
    let pattern = Pattern::of(&regex)?;
    Ok(call("REGEXP_EXTRACT", vec![string(s)?, regex, int(group)?], DataType::String, move |args, scope| {
        let [s, regex, group] = args else { return new_null_array(&DataType::String.arrow(), scope.rows) };
        let (s, texts, group) = (s.strings(), regex.strings(), group.numbers::<Int32Type>());
        let mut last = None;
        make_strings(scope, |row, out| {
            let (Some(s), Some(text), Some(group)) = (s.get(row), texts.get(row), group.get(row)) else {
                return Ok(false);
            };
            let (Some(regex), Ok(group)) = (pattern.get(text, &mut last), usize::try_from(group)) else {
                return Ok(false);
            };
            let found =
                if group == 0 { regex.find(s) } else { regex.captures(s).and_then(|captures| captures.get(group)) };
            out.push_str(found.map_or("", |found| found.as_str()));
            Ok(found.is_some())
        })
    }))
}

/// A group (the first by default) of every match; NULL where it is no pattern, or has no such group. A group without a
/// part in the match is NULL.
fn regexp_extract_all(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let (Some(s), Some(regex)) = (args.next(), args.next()) else { return Err(Refusal::Arguments) };
    let group = args.next().unwrap_or_else(|| build::literal(Value::Integer(1), DataType::Int));
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let regex = string(regex)?;
    let pattern = Pattern::of(&regex)?;
    let args = vec![string(s)?, regex, int(group)?];
    Ok(string_lists("REGEXP_EXTRACT_ALL", args, move |args, row| {
        let [s, regex, group] = args else { return None };
        let (s, text) = (s.strings().get(row)?, regex.strings().get(row)?);
        let group = usize::try_from(group.numbers::<Int32Type>().get(row)?).ok()?;
        let mut last = None;
        let regex = pattern.get(text, &mut last).filter(|regex| group < regex.captures_len())?;
        let text = |captures: regex::Captures<'_>| captures.get(group).map(|found| found.as_str().to_owned());
        Some(matches(regex, s).map(text).collect())
    }))
}

/// A number that a pattern gives; NULL where it is no pattern.
fn number(name: &'static str, args: Vec<Expr>, f: fn(&Regex, &str) -> usize) -> Resolved {
    let [s, regex] = exactly(args)?;
    let regex = string(regex)?;
    let pattern = Pattern::of(&regex)?;
    Ok(call(name, vec![string(s)?, regex], DataType::Int, move |args, scope| {
        let [s, regex] = args else { return new_null_array(&DataType::Int.arrow(), scope.rows) };
        let (s, texts) = (s.strings(), regex.strings());
        let mut last = None;
        make_numbers::<Int32Type>(scope, &DataType::Int.arrow(), |row| {
            let (Some(s), Some(text)) = (s.get(row), texts.get(row)) else { return Ok(None) };
            Ok(pattern.get(text, &mut last).and_then(|regex| i32::try_from(f(regex, s)).ok()))
        })
    }))
}

fn count(regex: &Regex, s: &str) -> usize {
    places(regex, s).count()
}

/// Position of the first match, from 1, in characters of a Java string; 0 without one.
fn place(regex: &Regex, s: &str) -> usize {
    let before = regex.find(s).and_then(|found| s.get(..found.start()));
    before.map_or(0, |before| before.encode_utf16().count() + 1)
}

/// The first match; NULL without one.
fn regexp_substr(args: Vec<Expr>) -> Resolved {
    let [s, regex] = exactly(args)?;
    let regex = string(regex)?;
    let pattern = Pattern::of(&regex)?;
    Ok(call("REGEXP_SUBSTR", vec![string(s)?, regex], DataType::String, move |args, scope| {
        let [s, regex] = args else { return new_null_array(&DataType::String.arrow(), scope.rows) };
        let (s, texts) = (s.strings(), regex.strings());
        let mut last = None;
        make_strings(scope, |row, out| {
            let (Some(s), Some(text)) = (s.get(row), texts.get(row)) else { return Ok(false) };
            let found = pattern.get(text, &mut last).and_then(|regex| regex.find(s));
            out.push_str(found.map_or("", |found| found.as_str()));
            Ok(found.is_some())
        })
    }))
}

/// The replacement is taken as it is: `$1` stands for itself.
fn regexp_replace(args: Vec<Expr>) -> Resolved {
    let [s, regex, replacement] = exactly(args)?;
    let regex = string(regex)?;
    let pattern = Pattern::of(&regex)?;
    let args = vec![string(s)?, regex, string(replacement)?];
    Ok(fallible_call("REGEXP_REPLACE", args, DataType::String, move |args, scope| {
        let [s, regex, replacement] = args else { return new_null_array(&DataType::String.arrow(), scope.rows) };
        let (s, texts, replacement) = (s.strings(), regex.strings(), replacement.strings());
        let mut last = None;
        make_strings(scope, |row, out| {
            let (Some(s), Some(text), Some(replacement)) = (s.get(row), texts.get(row), replacement.get(row)) else {
                return Ok(false);
            };
            let Some(regex) = pattern.get(text, &mut last) else { return Ok(false) };
            let mut copied = 0;
            for found in places(regex, s) {
                out.push_str(s.get(copied..found.start).unwrap_or_default());
                out.push_str(replacement);
                copied = found.end;
            }
            out.push_str(s.get(copied..).unwrap_or_default());
            Ok(true)
        })
    }))
}

/// One piece of a LIKE pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Char(char),
    /// `_`: any character but a line terminator, as `.` in Java.
    One,
    /// `%`
    Any,
}

/// A LIKE pattern in the form that is matched fastest.
#[derive(Debug, PartialEq, Eq)]
enum Like {
    Equals(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    General(Vec<Piece>),
}

impl Like {
    fn parse(pattern: &str, escape: Option<char>) -> Result<Like, String> {
        let mut pieces = Vec::new();
        let mut chars = pattern.chars();
        while let Some(c) = chars.next() {
            pieces.push(if Some(c) == escape {
                match chars.next() {
                    Some(next) if matches!(next, '%' | '_') || Some(next) == escape => Piece::Char(next),
                    _ => {
                        return Err(format!(
                            "in the LIKE pattern '{pattern}' the escape {c} must stand before %, _ or {c}"
                        ));
                    }
                }
            } else {
                match c {
                    '%' => Piece::Any,
                    '_' => Piece::One,
                    c => Piece::Char(c),
                }
            });
        }
        let text = |pieces: &[Piece]| -> Option<String> {
            pieces.iter().map(|piece| if let Piece::Char(c) = piece { Some(*c) } else { None }).collect()
        };
        let special = match pieces.as_slice() {
            [Piece::Any, middle @ .., Piece::Any] => text(middle).map(Like::Contains),
            [Piece::Any, rest @ ..] => text(rest).map(Like::Suffix),
            [rest @ .., Piece::Any] => text(rest).map(Like::Prefix),
            all => text(all).map(Like::Equals),
        };
        Ok(special.unwrap_or(Like::General(pieces)))
    }

    fn matches(&self, s: &str) -> bool {
        match self {
            Like::Equals(text) => s == text,
            Like::Prefix(text) => s.starts_with(text.as_str()),
            Like::Suffix(text) => s.ends_with(text.as_str()),
            Like::Contains(text) => s.contains(text.as_str()),
            Like::General(pieces) => matches_pieces(s, pieces),
        }
    }
}

/// Goes back to the last `%` only: what an earlier one could take, the last can as well.
fn matches_pieces(s: &str, pieces: &[Piece]) -> bool {
    let (mut rest, mut at) = (s.chars(), 0);
    let mut retry: Option<(std::str::Chars<'_>, usize)> = None;
    loop {
        match (pieces.get(at), rest.clone().next()) {
            (Some(Piece::Any), _) => {
                at += 1;
                retry = Some((rest.clone(), at));
            }
            (Some(Piece::One), Some(found)) if !ends_line(found) => {
                rest.next();
                at += 1;
            }
            (Some(Piece::Char(wanted)), Some(found)) if *wanted == found => {
                rest.next();
                at += 1;
            }
            (None, None) => return true,
            _ => {
                let Some((from, after)) = &mut retry else { return false };
                if from.next().is_none() {
                    return false;
                }
                rest = from.clone();
                at = *after;
            }
        }
    }
}

/// `s LIKE pattern [ESCAPE escape]` of two STRINGs. Without ESCAPE no character escapes.
pub fn like(s: Expr, pattern: Expr, escape: Option<char>) -> Result<Expr, TypeError> {
    let fixed = match literal_text(&pattern) {
        Some(text) => Some(Like::parse(text, escape).map_err(|message| TypeError {
            message,
            help: Some("behind the escape character stands %, _ or itself".to_owned()),
        })?),
        None => None,
    };
    let fallible = fixed.is_none() && escape.is_some();
    let kernel = move |args: &[Operand], scope: &mut crate::expr::vector::Scope<'_>| {
        let [s, pattern] = args else { return new_null_array(&DataType::Boolean.arrow(), scope.rows) };
        let (s, texts) = (s.strings(), pattern.strings());
        let mut last: Option<(String, Like)> = None;
        make_booleans(scope, |row| {
            let (Some(s), Some(text)) = (s.get(row), texts.get(row)) else { return Ok(None) };
            if let Some(like) = &fixed {
                return Ok(Some(like.matches(s)));
            }
            let known = last.take().filter(|(known, _)| known == text);
            let (text, like) = match known {
                Some(known) => known,
                None => (text.to_owned(), Like::parse(text, escape)?),
            };
            let matches = like.matches(s);
            last = Some((text, like));
            Ok(Some(matches))
        })
    };
    let make = if fallible { fallible_call } else { call };
    let made = make("LIKE", vec![s, pattern], DataType::Boolean, kernel);
    let escape = escape.map_or_else(String::new, |c| format!(" ESCAPE '{c}'"));
    Ok(with_form(made, format!("{{}} LIKE {{}}{escape}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn like_patterns() {
        for (s, pattern, expected) in [
            ("boiler-1", "boiler%", true),
            ("boiler-1", "%er-%", true),
            ("boiler-1", "%2", false),
            ("boiler-1", "b_iler__", true),
            ("aXbXc", "a%b%c", true),
            ("aab", "%ab", true),
            ("aXbb", "a%b", true),
            ("", "%", true),
            ("", "_", false),
            ("ä", "_", true),
            ("a\nb", "a_b", false),
            ("a\nb", "a%b", true),
            ("a\\%", "a\\%", true),
        ] {
            assert_eq!(Like::parse(pattern, None).map(|like| like.matches(s)), Ok(expected), "{s} LIKE {pattern}");
        }
        assert_eq!(Like::parse("10!%", Some('!')), Ok(Like::Equals("10%".to_owned())));
        assert!(Like::parse("10!x", Some('!')).is_err());
        assert!(Like::parse("10!", Some('!')).is_err());
    }

    proptest! {
        #[test]
        fn like_agrees_with_a_regex(s in "[ab]{0,8}", pattern in "[ab%_]{0,8}") {
            let regex = format!("^{}$", pattern.replace('%', ".*").replace('_', "."));
            let expected = Regex::new(&regex).unwrap().is_match(&s);
            prop_assert_eq!(Like::parse(&pattern, None).unwrap().matches(&s), expected);
        }
    }
}
