//! `forebay test`: runs the `[[test]]`s of a configuration; one line per test, and a diff of what differs. Nothing
//! outside is touched. Rows are compared in order, as JSON: the order of columns does not matter, `20` is `20.0`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde_json::json;
use serde_json::value::RawValue;

use super::{Failure, Format, print};
use crate::config::{self, Expected};
use crate::engine::trial;

/// Equal rows shown before and after a difference.
const CONTEXT_ROWS: usize = 3;

/// Runs the tests of a configuration file.
///
/// # Errors
/// The configuration is not valid (78), or a test failed (1).
pub fn test(path: &Path, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let config = config::load(path)?;
    let mut failed = 0;
    let mut list = Vec::new();
    for test in &config.tests {
        let (error, given) = match trial::run(&config, test) {
            Ok(given) => (None, given),
            Err(error) => (Some(Failure::new(&error, 1).message), Vec::new()),
        };
        let differences: Vec<(&Expected, Vec<String>)> = test
            .expected
            .iter()
            .zip(given)
            .filter(|(expected, rows)| first_difference(&expected.rows, rows).is_some())
            .collect();
        let passed = error.is_none() && differences.is_empty();
        failed += usize::from(!passed);
        match format {
            Format::Text => {
                let mut text = format!("{} {}\n", if passed { "ok    " } else { "FAILED" }, test.name);
                if let Some(error) = &error {
                    let _ = writeln!(text, "  {error}");
                }
                for (expected, rows) in &differences {
                    text += &diff(&expected.stream.to_string(), &expected.rows, rows);
                }
                print(out, &text)?;
            }
            Format::Json => {
                let differences = differences.iter().map(|(expected, rows)| {
                    json!({ "stream": expected.stream.to_string(), "expected": expected.rows, "found": rows })
                });
                let differences: Vec<_> = differences.collect();
                list.push(json!({ "name": test.name, "passed": passed, "error": error, "differences": differences }));
            }
        }
    }
    let passed = config.tests.len() - failed;
    match format {
        Format::Json => print(out, &format!("{}\n", json!({ "passed": passed, "failed": failed, "tests": list })))?,
        Format::Text if config.tests.is_empty() => {
            print(out, &format!("{}: there is no [[test]]\n", path.display()))?;
        }
        Format::Text => print(out, &format!("{passed} passed, {failed} failed\n"))?,
    }
    if failed > 0 {
        let message = format!("{failed} of {} tests failed", config.tests.len());
        return Err(Failure { message, code: 1 });
    }
    Ok(())
}

/// Index of the first row that differs or is on one side only.
fn first_difference(expected: &[String], found: &[String]) -> Option<usize> {
    let same = expected.iter().zip(found).take_while(|(a, b)| Json::parse(a) == Json::parse(b)).count();
    (same < expected.len().max(found.len())).then_some(same)
}

/// What differs, as lines: `-` expected, `+` found.
fn diff(stream: &str, expected: &[String], found: &[String]) -> String {
    let Some(first) = first_difference(expected, found) else { return String::new() };
    let same = |a: Option<&String>, b: Option<&String>| a.zip(b).is_some_and(|(a, b)| Json::parse(a) == Json::parse(b));
    // What both have at the end, so that one missing row does not mark all that follow.
    let shorter = expected.len().min(found.len());
    let tail = (0..shorter - first.min(shorter))
        .take_while(|back| same(expected.get(expected.len() - 1 - back), found.get(found.len() - 1 - back)))
        .count();
    let mut text = format!("  {stream}: expected {}, found {}", rows(expected.len()), rows(found.len()));
    let columns = match (expected.get(first), found.get(first)) {
        (Some(a), Some(b)) => Json::parse(a).columns_unlike(&Json::parse(b)),
        _ => Vec::new(),
    };
    let _ = match columns.as_slice() {
        [] => writeln!(text, "; they differ from row {} on", first + 1),
        columns => writeln!(text, "; row {} differs in {}", first + 1, columns.join(", ")),
    };
    text += "  - expected\n  + found\n";
    let before = first.saturating_sub(CONTEXT_ROWS);
    if before > 0 {
        let _ = writeln!(text, "    … {} equal", rows(before));
    }
    let mut lines = |sign: char, rows: &[String], from: usize, to: usize| {
        for row in rows.get(from..to).unwrap_or_default() {
            let _ = writeln!(text, "  {sign} {row}");
        }
    };
    lines(' ', found, before, first);
    lines('-', expected, first, expected.len() - tail);
    lines('+', found, first, found.len() - tail);
    let shown = tail.min(CONTEXT_ROWS);
    lines(' ', found, found.len() - tail, found.len() - tail + shown);
    if tail > shown {
        let _ = writeln!(text, "    … {} equal", rows(tail - shown));
    }
    text
}

fn rows(count: usize) -> String {
    format!("{count} {}", if count == 1 { "row" } else { "rows" })
}

/// JSON for comparison: numbers by their exact decimal value, however many digits.
#[derive(Debug, PartialEq, Eq)]
enum Json {
    Number(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
    /// A string, `true`, `false`, `null`; what is no JSON stands for itself.
    Other(serde_json::Value),
}

impl Json {
    fn parse(text: &str) -> Json {
        let text = text.trim();
        match text.as_bytes().first() {
            Some(b'{') => match serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
                Ok(object) => {
                    Json::Object(object.into_iter().map(|(name, raw)| (name, Json::parse(raw.get()))).collect())
                }
                Err(_) => Json::Other(text.into()),
            },
            Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
                Ok(list) => Json::List(list.into_iter().map(|raw| Json::parse(raw.get())).collect()),
                Err(_) => Json::Other(text.into()),
            },
            Some(b'-' | b'0'..=b'9') => Json::Number(number(text)),
            _ => Json::Other(serde_json::from_str(text).unwrap_or_else(|_| text.into())),
        }
    }

    /// Columns in which two rows differ.
    fn columns_unlike(&self, other: &Json) -> Vec<String> {
        let (Json::Object(a), Json::Object(b)) = (self, other) else { return Vec::new() };
        let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
        names.sort();
        names.dedup();
        names.into_iter().filter(|name| a.get(*name) != b.get(*name)).map(|name| format!("`{name}`")).collect()
    }
}

/// A number's digits without leading and trailing zeros, and its exponent: one text per value.
fn number(text: &str) -> String {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let (whole, fraction) =
        mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa.trim_start_matches('-'), ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    let exponent = exponent.trim_start_matches('+').parse::<i64>().unwrap_or(i64::MAX);
    let exponent = exponent.saturating_add(zeros as i64).saturating_sub(fraction.len() as i64);
    format!("{sign}{significant}e{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_value() {
        for same in [["20", "20.0"], ["-0.50", "-5e-1"], ["1e3", "1000"], ["0", "-0.000"], ["1.5E+2", "150"]] {
            assert_eq!(Json::parse(same[0]), Json::parse(same[1]));
        }
        for other in [["20", "-20"], ["1", "10"], ["12345678901234567890.1", "12345678901234567890.2"], ["1", "\"1\""]]
        {
            assert_ne!(Json::parse(other[0]), Json::parse(other[1]));
        }
        assert_eq!(Json::parse("{\"a\":[1.0,null],\"b\":\"x\"}"), Json::parse("{ \"b\": \"x\", \"a\": [1, null] }"));
    }

    #[test]
    fn a_missing_row_marks_only_itself() {
        let row = |n: usize| format!("{{\"n\":{n}}}");
        let expected: Vec<String> = (0..20).map(row).collect();
        let mut found = expected.clone();
        found.remove(10);
        let shown = diff("q", &expected, &found);
        let marked: Vec<&str> = shown.lines().skip(3).filter(|l| !l.starts_with("    ")).collect();
        assert_eq!(marked, ["  - {\"n\":10}"], "{shown}");
        assert!(shown.contains("… 7 rows equal") && shown.contains("… 6 rows equal"), "{shown}");
        assert!(diff("q", &expected[..1], &[]).contains("they differ from row 1 on"));
        assert!(diff("q", &expected[..1], &expected[1..2]).contains("row 1 differs in `n`"));
    }
}
