//! What is said of queries that are almost right: every query of the conformance cases is mutated, token by token, and each
//! refusal must point into the text and say what to do, in words of SQL: nothing of the parser's own.

use std::collections::BTreeMap;
use std::path::Path;

use forebay::sql::{SqlError, plan_query};

use crate::features::catalog;
use crate::support::{Random, rounds};

/// Words of the parser's library and of dialects that are not Flink's.
const INTERNAL: [&str; 22] = [
    "token",
    "Token",
    "EOF",
    "infix",
    "prefix parser",
    "Expected",
    "Unexpected",
    "unterminated",
    "Unterminated",
    "literal int",
    "identifier",
    "parser",
    "keyword",
    "quote_style",
    "joined table",
    "quantifier range",
    "APPLY",
    "SEMI,",
    "SHARE",
    "NORMALIZED",
    "MATCH_CONDITION",
    "GROUPS",
];

/// What stands in the place of a token, or beside it.
const STRAY: [&str; 36] = [
    "(", ")", ",", "SELECT", "x", "1", "'s'", "FROM", ".", "AS", "*", "[", "]", "ORDER", "OVER", "=", "NOT", "-", "IS",
    "IN", "CASE", "BETWEEN", "WHERE", "LEFT", "JOIN", "UNION", "&&", "<<", "!=", "::", "FOR", "WITH", "INTERVAL",
    "ASOF", "{", "5m",
];

/// The pieces of a query: words, numbers, strings, quoted names and signs.
fn pieces(query: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = query.chars().peekable();
    while let Some(first) = chars.next() {
        if first.is_whitespace() {
            continue;
        }
        let mut piece = String::from(first);
        if matches!(first, '\'' | '`') {
            for next in chars.by_ref() {
                piece.push(next);
                if next == first {
                    break;
                }
            }
        } else {
            let same = |c: char| match first {
                '<' | '>' | '=' | '|' => "<>=|".contains(c),
                _ => (first.is_alphanumeric() || first == '_') && (c.is_alphanumeric() || c == '_'),
            };
            while let Some(next) = chars.next_if(|c| same(*c)) {
                piece.push(next);
            }
        }
        found.push(piece);
    }
    found
}

/// One mutation of a query.
fn mutated(pieces: &[String], random: &mut Random) -> String {
    let below = |random: &mut Random, limit: usize| random.below(limit as u64) as usize;
    let mut pieces = pieces.to_vec();
    let at = below(random, pieces.len());
    let stray = STRAY[below(random, STRAY.len())].to_owned();
    match random.below(6) {
        0 => drop(pieces.remove(at)),
        1 => pieces.insert(at, pieces[at].clone()),
        2 => {
            let next = (at + 1) % pieces.len();
            pieces.swap(at, next);
        }
        3 => pieces.truncate(at),
        4 => pieces[at] = stray,
        _ => pieces.insert(at, stray),
    }
    pieces.join(" ")
}

/// What is wrong with an error of a query.
fn faults(query: &str, error: &SqlError) -> Vec<String> {
    // What the query says itself may be repeated.
    let own = |text: &str| text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let told = format!("{} {}", own(&error.message), own(error.help.as_deref().unwrap_or_default()));
    let mut faults: Vec<String> =
        INTERNAL.iter().filter(|word| told.contains(**word)).map(|word| format!("says {word:?}")).collect();
    if error.help.as_deref().unwrap_or_default().is_empty() {
        faults.push("has no remedy".to_owned());
    }
    if query.get(error.span.clone()).is_none_or(|at| at.is_empty() && !query[error.span.end..].trim().is_empty()) {
        faults.push(format!("points nowhere: {:?}", error.span));
    }
    faults
}

#[test]
fn refusals_of_mutated_queries_say_what_to_do_in_words_of_sql() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/cases");
    let mut queries = Vec::new();
    for entry in std::fs::read_dir(cases).expect("cases") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            let text = std::fs::read_to_string(path).expect("a query");
            let code: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
            queries.push(pieces(&code.join("\n")));
        }
    }
    queries.sort();
    let catalog = catalog();
    let mut random = Random(1);
    let (mut wrong, mut refused) = (BTreeMap::new(), 0);
    let wanted = rounds("FOREBAY_QUERY_ERRORS", 3000);
    for round in 0..wanted {
        let query = mutated(&queries[round as usize % queries.len()], &mut random);
        let Err(errors) = plan_query(&query, &catalog) else { continue };
        refused += 1;
        for error in errors {
            for fault in faults(&query, &error) {
                let at = query.get(error.span.clone()).unwrap_or("?");
                let shown = format!("{:?}, help {:?}\n  at {at:?} of {query}", error.message, error.help);
                wrong.entry(fault).or_insert(shown);
            }
        }
    }
    let list: Vec<String> = wrong.iter().map(|(fault, shown)| format!("{fault}: {shown}")).collect();
    assert!(wrong.is_empty(), "{}", list.join("\n"));
    assert!(refused > wanted / 2, "{refused} of {wanted} mutations were refused");
    println!("{refused} of {wanted} mutated queries were refused, each with a remedy");
}
