//! What the parser stumbled over, in terms of SQL: the library's messages are read for what it wanted to see, and never
//! shown. What they do not tell is told by the tokens around the place.

use std::ops::Range;

use sqlparser::tokenizer::Token;

use super::SqlError;
use super::dialect::FOREIGN_CLAUSES;
use super::foreign::NO_BITS;
use super::reserved::is_reserved;
use super::text::Text;
use super::types::reserved;

/// Longest piece of a query that a message repeats, in characters.
const SHOWN_MAX: usize = 40;

/// The clauses of a SELECT in their order.
const CLAUSES: [&str; 7] = ["SELECT", "FROM", "WHERE", "GROUP", "HAVING", "WINDOW", "ORDER"];

/// Reserved words that build a query: nobody means them as names.
const STRUCTURE: [&str; 42] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "WINDOW",
    "ORDER",
    "BY",
    "AS",
    "ON",
    "USING",
    "JOIN",
    "LEFT",
    "RIGHT",
    "FULL",
    "INNER",
    "OUTER",
    "CROSS",
    "NATURAL",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "WITH",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "BETWEEN",
    "LIKE",
    "OVER",
    "PARTITION",
    "FOR",
    "TABLE",
    "LATERAL",
    "DISTINCT",
    "ALL",
    "INTERVAL",
];

const CASE: &str = "write CASE WHEN x > 0 THEN 'a' ELSE 'b' END";
const FRAME: &str = "write for example ROWS BETWEEN 4 PRECEDING AND CURRENT ROW";
const MATCH: &str = "the order is PARTITION BY, ORDER BY, MEASURES, ONE ROW PER MATCH, AFTER MATCH SKIP …, PATTERN (…), \
                     WITHIN, DEFINE";
const QUANTIFIER: &str = "write {3}, {2,}, {2,4} or {,3}";
const JOINS: &str = "write JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN or CROSS JOIN";
const TEST: &str = "write x IS NULL or x IS NOT NULL; values are compared with `=` and `<>`";
const SKIP: &str = "write AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, TO FIRST x or TO LAST x";

/// What the library wants, what that is in SQL, and the form of it. What is not here is not named.
const WANTED: [(&str, &str, Option<&str>); 41] = [
    ("an expression", "an expression", None),
    ("identifier", "a name", None),
    ("wildcard or identifier", "a name", None),
    ("an identifier or value", "a name or a value", None),
    ("an identifier after AS", "a name behind AS", None),
    ("an identifier or a '*' after '.'", "a name or `*` behind the dot", None),
    ("table name", "the name of a table", None),
    ("joined table", "a join or a sub-query in these parentheses", Some("write FROM t, FROM (SELECT …) AS s")),
    ("a list of columns in parentheses", "a list of columns in parentheses", None),
    ("literal int", "a whole number", None),
    ("literal number", "a number", None),
    ("number", "a number", None),
    ("a value", "a value", None),
    ("a concrete value", "a value", None),
    ("at least one value", "a value", None),
    ("literal string", "a string", Some("write 'text'")),
    ("string literal", "a string", Some("write 'text'")),
    ("a string", "a string", Some("write 'text'")),
    ("SELECT, VALUES, or a subquery in the query body", "SELECT", Some("a query is SELECT … FROM …")),
    ("ROWS, RANGE, GROUPS", "PARTITION BY, ORDER BY, ROWS or RANGE", Some("write OVER (PARTITION BY k ORDER BY ts)")),
    ("PRECEDING or FOLLOWING", "PRECEDING", Some(FRAME)),
    ("after match skip option", "PAST LAST ROW or TO", Some(SKIP)),
    ("quantifier range", "a quantifier", Some(QUANTIFIER)),
    ("} or upper bound", "a number or `}`", Some(QUANTIFIER)),
    (", or }", "`,` or `}`", Some(QUANTIFIER)),
    (":", "`]`", None),
    ("JOIN or APPLY after CROSS", "JOIN", Some(JOINS)),
    ("OUTER, SEMI, ANTI or JOIN after LEFT", "JOIN", Some(JOINS)),
    ("a join type after NATURAL", "JOIN", Some(JOINS)),
    ("APPLY", "JOIN", Some(JOINS)),
    ("JOIN", "JOIN", Some(JOINS)),
    ("ON, or USING after JOIN", "ON or USING", Some("write JOIN t ON a.k = t.k AND …")),
    ("IN or BETWEEN after NOT", "IN, BETWEEN, LIKE or SIMILAR TO", Some("write for example x NOT IN (1, 2)")),
    ("END", "END", Some(CASE)),
    ("THEN", "THEN", Some(CASE)),
    ("WHEN", "WHEN", Some(CASE)),
    ("AND", "AND", Some("write x BETWEEN 1 AND 2")),
    ("PATTERN", "PATTERN", Some(MATCH)),
    ("DEFINE", "DEFINE", Some(MATCH)),
    ("FROM", "FROM", Some("write SELECT … FROM t, EXTRACT(MINUTE FROM ts) or TRIM(BOTH 'x' FROM s)")),
    ("BY", "BY", Some("write GROUP BY, ORDER BY or PARTITION BY")),
];

/// The place of a syntax error among the tokens.
struct At<'t, 'a> {
    text: &'t Text<'a>,
    /// Index of the token that was found; behind the last one at the end.
    index: usize,
    place: Range<usize>,
    /// What was found, as it is written; empty at the end of the query.
    found: &'a str,
}

impl<'a> At<'_, 'a> {
    fn token(&self, index: usize) -> Option<&Token> {
        self.text.tokens.get(index).map(|placed| &placed.token)
    }

    fn written(&self, index: usize) -> &'a str {
        self.text.tokens.get(index).map_or("", |placed| self.text.slice(placed.range.clone()))
    }

    /// What stands before the place.
    fn before(&self) -> &'a str {
        self.index.checked_sub(1).map_or("", |before| self.written(before))
    }

    /// Whether nothing stands between a token and the one before it.
    fn touches(&self, index: usize) -> bool {
        let before = index.checked_sub(1).and_then(|before| self.text.tokens.get(before));
        before.zip(self.text.tokens.get(index)).is_some_and(|(before, it)| before.range.end == it.range.start)
    }
    /// Whether the token so many before this one is `*`.
    fn star_at(&self, back: usize) -> bool {
        self.index.checked_sub(back).and_then(|index| self.token(index)) == Some(&Token::Mul)
    }

    fn error(&self, message: impl Into<String>, help: impl Into<String>) -> SqlError {
        SqlError::new(self.place.clone(), message).help(help)
    }

    fn found_is(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.found.eq_ignore_ascii_case(word))
    }

    fn before_is(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.before().eq_ignore_ascii_case(word))
    }

    /// Whether a value or name can end with this token.
    fn ends_value(&self, index: usize) -> bool {
        match self.token(index) {
            Some(Token::Word(word)) => word.quote_style.is_some() || !is_structure(&word.value),
            Some(Token::Number(..) | Token::SingleQuotedString(_) | Token::RParen | Token::RBracket) => true,
            _ => false,
        }
    }

    /// Whether a value or name can begin with the token that was found.
    fn begins_value(&self) -> bool {
        match self.token(self.index) {
            Some(Token::Word(word)) => {
                word.quote_style.is_some() || !is_structure(&word.value) || self.found_is(&["INTERVAL", "CASE"])
            }
            Some(Token::Number(..) | Token::SingleQuotedString(_) | Token::LParen) => true,
            _ => false,
        }
    }
}

fn is_structure(word: &str) -> bool {
    STRUCTURE.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// A piece of the query, not too long.
fn shown(piece: &str) -> String {
    let mut short: String = piece.chars().take(SHOWN_MAX).collect();
    if short.len() < piece.len() {
        short.push('…');
    }
    short
}

/// A piece of the query in a message; a quoted name is that already.
fn quoted(piece: &str) -> String {
    if piece.starts_with('`') { shown(piece) } else { format!("`{}`", shown(piece)) }
}

/// The error at `place`, where the library says `message`.
pub(super) fn explained(text: &Text<'_>, message: &str, place: Range<usize>) -> SqlError {
    let wanted = wanted(message);
    let place = match wanted == Some("OUTER, SEMI, ANTI or JOIN after LEFT") {
        true => behind_left(text),
        false => place,
    };
    let found = text.slice(place.clone());
    let at = At { text, index: text.index_at(place.start), place, found };
    // Of a sub-query that was parsed alone the closing parenthesis is the end.
    let is_end = found.is_empty() || found == ")" && message.ends_with("EOF");
    // Something was complete, and what follows does not belong to it.
    let is_over = matches!(wanted, Some("the end of the query" | ")" | "]" | "end of statement")) || wanted.is_none();
    if let Some(error) = foreign(&at, wanted) {
        return error;
    }
    if is_end {
        let end = if found.is_empty() { "of the query" } else { "of the sub-query" };
        let help = match at.before() {
            "" => "write SELECT … FROM …".to_owned(),
            "," => "leave out the comma before it".to_owned(),
            before => format!("something is missing behind {}", quoted(before)),
        };
        let (expected, form) = in_sql(&at, wanted);
        let message = match expected {
            Some(expected) => format!("expected {expected}, found the end {end}"),
            None => format!("the end {end} comes too early"),
        };
        return at.error(message, form.filter(|_| at.before() != ",").map_or(help, str::to_owned));
    }
    if is_over && let Some(error) = clause_out_of_order(&at).or_else(|| behind_a_value(&at)) {
        return error;
    }
    let (expected, form) = in_sql(&at, wanted);
    let message = match (expected.filter(|_| !is_over), at.before()) {
        (Some(expected), _) => format!("expected {expected}, found {}", quoted(found)),
        (None, "") => format!("{} cannot stand here", quoted(found)),
        (None, before) => format!("{} cannot stand behind {}", quoted(found), quoted(before)),
    };
    let help = match (wanted, form) {
        (Some("("), None) if at.before() != "," => format!("write `(` behind {}", quoted(at.before())),
        (_, form) => remedy(&at, form.filter(|_| !is_over), is_over),
    };
    at.error(message, help)
}

/// The place behind the first LEFT without its JOIN, which the library does not tell.
fn behind_left(text: &Text<'_>) -> Range<usize> {
    let joins = |index: usize| {
        let words = ["JOIN", "OUTER", "SEMI", "ANTI"];
        let is_call = text.tokens.get(index).is_some_and(|placed| placed.token == Token::LParen);
        is_call || words.iter().any(|word| text.is_word(index, word))
    };
    let lonely = (0..text.tokens.len()).find(|index| text.is_word(*index, "LEFT") && !joins(index + 1));
    lonely.and_then(|left| text.tokens.get(left + 1)).map_or_else(|| text.end(), |placed| placed.range.clone())
}

/// What to do, where the pair of tokens is nothing known.
fn remedy(at: &At<'_, '_>, form: Option<&str>, is_over: bool) -> String {
    let (before, found) = (quoted(at.before()), quoted(at.found));
    if let Some(Token::SingleQuotedString(name)) = at.token(at.index)
        && let Some(before) = at.index.checked_sub(1)
    {
        let is_name = matches!(at.token(before), Some(Token::Word(_)));
        if at.before_is(&["AS", "."]) {
            return format!("names stand in back-ticks: `{}`", shown(name));
        }
        if is_over && is_name && at.ends_value(before) {
            let name = shown(name);
            return format!("names stand in back-ticks: `{name}`; between values a comma or an operator is missing");
        }
    }
    if at.before_is(&["AS"]) && matches!(at.token(at.index), Some(Token::Number(..)))
        || at.found == "-" && at.text.is_word(at.index.saturating_sub(2), "AS")
    {
        return "a name that begins with a digit or has other signs stands in back-ticks: `1st`, `a-b`".to_owned();
    }
    if is_over && at.found_is(&["NOT"]) {
        return "write x <> y, x IS NOT NULL, x NOT IN (…), x NOT LIKE '…' or x NOT BETWEEN 1 AND 2".to_owned();
    }
    if at.before() == "," {
        return "leave out the comma before it, or write what is missing there".to_owned();
    }
    if let Some(form) = form {
        return form.to_owned();
    }
    if at.found == "," {
        return "leave out the comma, or write what is missing before it".to_owned();
    }
    if is_reserved(at.found) && !is_structure(at.found) {
        let own = reserved(at.place.clone(), at.found).help.unwrap_or_default();
        return own.replace("write it", "as a name, write it");
    }
    let before_ends = at.index.checked_sub(1).is_some_and(|before| at.ends_value(before));
    if before_ends && at.begins_value() {
        return format!("a comma or an operator is missing between {before} and {found}");
    }
    match before_ends || at.before().is_empty() {
        true => format!("leave {found} out, or write what must stand before it"),
        false => format!("something is missing between {before} and {found}"),
    }
}

/// What the library wanted to see.
fn wanted(message: &str) -> Option<&str> {
    let rest = ["Expected: ", "Expected ", "expected: ", "expected "].iter().find_map(|p| message.strip_prefix(p))?;
    Some(rest.split_once(", found").map_or(rest, |(wanted, _)| wanted))
}

/// The same in terms of SQL, with its form.
fn in_sql<'w>(at: &At<'_, '_>, wanted: Option<&'w str>) -> (Option<std::borrow::Cow<'w, str>>, Option<&'static str>) {
    let Some(wanted) = wanted else { return (None, None) };
    if let Some((_, sql, form)) = WANTED.iter().find(|(known, _, _)| *known == wanted) {
        return (Some((*sql).into()), *form);
    }
    if wanted.starts_with("[NOT] NULL") {
        return (Some("NULL, TRUE, FALSE, UNKNOWN, DISTINCT FROM or JSON behind IS".into()), Some(TEST));
    }
    let form = match wanted {
        "AS" => Some(form_of_as(at)),
        "(" if at.before_is(&["IN"]) => Some("write x IN (1, 2)"),
        "(" if at.before_is(&["AS"]) => Some("write WITH name AS (SELECT …)"),
        _ => None,
    };
    // A word of Flink's or a sign stands for itself; what is more than that is the library's own way to put it.
    let is_known = is_reserved(wanted) || wanted.len() == 1 && !wanted.contains(char::is_alphanumeric);
    (is_known.then(|| format!("`{wanted}`").into()), form)
}

fn form_of_as(at: &At<'_, '_>) -> &'static str {
    let call = at.text.slice(at.text.enclosing_call(at.place.clone())).to_ascii_uppercase();
    if call.starts_with("CAST") || call.starts_with("TRY_CAST") {
        return "write CAST(x AS INT)";
    }
    match at.index.checked_sub(2).is_some_and(|window| at.text.is_word(window, "WINDOW")) {
        true => "write WINDOW w AS (PARTITION BY k ORDER BY ts)",
        false => "write WITH name AS (SELECT …), other AS (SELECT …) SELECT …",
    }
}

/// Clauses and operators of other systems.
fn foreign(at: &At<'_, '_>, wanted: Option<&str>) -> Option<SqlError> {
    const TUMBLE: &str = "write FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY \
                          window_start, window_end";
    let upper = at.found.to_ascii_uppercase();
    if upper == ";" {
        return Some(at.error(
            "only one query can stand here",
            "give each query a [query.NAME] of its own, and leave out the `;`",
        ));
    }
    if FOREIGN_CLAUSES.contains(&upper.as_str()) {
        return Some(at.error(format!("{upper} is not part of Flink SQL"), "leave the clause out"));
    }
    let before = at.before().to_ascii_uppercase();
    let previous = at.index.checked_sub(1).and_then(|before| at.text.tokens.get(before))?;
    let there = |message: String, help: &str| {
        let place = previous.range.start..at.place.end.max(previous.range.end);
        Some(SqlError::new(place, message).help(help))
    };
    match (before.as_str(), upper.as_str()) {
        ("TOP", _) if wanted == Some("literal int") => Some(
            SqlError::new(previous.range.clone(), "TOP is not part of Flink SQL")
                .help("leave it out; as a name, write it in back-ticks: `top`"),
        ),
        (_, _) if wanted == Some("MATCH_CONDITION") => Some(at.error(
            "ASOF JOIN is not Flink SQL",
            "write JOIN t FOR SYSTEM_TIME AS OF a.ts AS x ON a.k = x.k, where t has a `key`",
        )),
        ("*", "EXCEPT" | "EXCLUDE" | "REPLACE" | "RENAME") => {
            there(format!("`* {upper}` is not Flink SQL"), "name the columns")
        }
        ("(", _) if at.text.is_word(at.index.saturating_sub(2), "EXCEPT") && at.star_at(3) => {
            Some(at.error("`* EXCEPT (…)` is not Flink SQL", "name the columns"))
        }
        ("FOR", "SYSTEM_TIME") => there(
            "FOR SYSTEM_TIME AS OF stands right behind a table, its alias behind that".to_owned(),
            "write JOIN t FOR SYSTEM_TIME AS OF a.ts AS x ON a.k = x.k",
        ),
        ("PARTITION", "BY") if at.text.is_word(at.index.saturating_sub(2), "OVER") => there(
            "what follows OVER stands in parentheses".to_owned(),
            "write AVG(x) OVER (PARTITION BY k ORDER BY ts)",
        ),
        (_, "WITHIN") => Some(at.error(
            "WITHIN stands behind PATTERN (…), with an INTERVAL",
            "write PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE …",
        )),
        ("EMIT", _) => there("EMIT is not part of Flink SQL".to_owned(), "leave it out: rows leave as they are final"),
        ("SAMPLE", "BY") => there("SAMPLE BY is not part of Flink SQL".to_owned(), TUMBLE),
        ("TUMBLING" | "HOPPING" | "SESSION", "(") => there("a window stands in FROM".to_owned(), TUMBLE),
        (_, "TIMESTAMP") if at.text.is_word(at.index + 1, "BY") => Some(at.error(
            "TIMESTAMP BY is not part of Flink SQL",
            "leave it out: [source.NAME.time] says which column is the time",
        )),
        (_, "OVER") => Some(
            at.error("OVER must stand right behind its function", "write AVG(x) OVER (PARTITION BY k ORDER BY ts)"),
        ),
        ("=", "<" | ">") => there(format!("`={upper}` is no comparison"), "write `<=` or `>=`"),
        (">", "<") => there("`><` is no comparison".to_owned(), "write `<>`"),
        (_, "=>") => Some(at.error("`=>` is no comparison: it names an argument of a function", "write `>=`")),
        (_, ">>") => Some(at.error("`>>` is not Flink SQL", NO_BITS)),
        ("*", "*") => there("`**` is not Flink SQL".to_owned(), "write POWER(x, y)"),
        ("/", "/") => there("`//` is not Flink SQL".to_owned(), "write `--` before a comment, FLOOR(x / y) to divide"),
        (_, "DIV") => Some(at.error("DIV is not Flink SQL", "write FLOOR(x / y), or x / y of two INTs")),
        (_, "REGEXP") => Some(at.error("REGEXP is no operator of Flink SQL", "write REGEXP(x, 'pattern')")),
        _ => number_and_unit(at, previous.range.start),
    }
}

/// `5 MINUTES`, `5m`, `(a - b) SECOND`, `5,5`.
fn number_and_unit(at: &At<'_, '_>, start: usize) -> Option<SqlError> {
    let unit = unit(at.found);
    let previous = at.index.checked_sub(1)?;
    match (at.token(previous)?, unit) {
        (Token::RParen, Some(unit)) => Some(at.error(
            format!("a unit behind parentheses, `(…) {}`, is not taken", at.found),
            format!("write TIMESTAMPDIFF({unit}, b, a) for (a - b) {unit}"),
        )),
        (Token::SingleQuotedString(number), Some(unit)) => {
            let message = format!("a string with a unit, `{}`, is no interval", at.text.slice(start..at.place.end));
            let error = SqlError::new(start..at.place.end, message);
            Some(error.help(format!("write INTERVAL '{number}' {unit}")))
        }
        (Token::Number(number, _), Some(unit)) if at.token(at.index + 1) != Some(&Token::LParen) => {
            let message = format!("a number with a unit, `{}`, is no interval", at.text.slice(start..at.place.end));
            let error = SqlError::new(start..at.place.end, message);
            Some(error.help(format!("write INTERVAL '{number}' {unit}")))
        }
        (Token::Number(whole, _), None) if at.found == "," && at.touches(at.index) && at.touches(at.index + 1) => {
            let Some(Token::Number(digits, _)) = at.token(at.index + 1) else { return None };
            let message = "a comma cannot stand here; in numbers of SQL a point does";
            Some(at.error(message, format!("write {whole}.{digits}")))
        }
        _ => None,
    }
}

/// The unit of time that a word means.
pub(super) fn unit(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_uppercase().as_str() {
        "S" | "SEC" | "SECS" | "SECOND" | "SECONDS" => "SECOND",
        "M" | "MIN" | "MINS" | "MINUTE" | "MINUTES" => "MINUTE",
        "H" | "HR" | "HRS" | "HOUR" | "HOURS" => "HOUR",
        "D" | "DAY" | "DAYS" => "DAY",
        "W" | "WEEK" | "WEEKS" => "WEEK",
        "MONTH" | "MONTHS" => "MONTH",
        "YEAR" | "YEARS" => "YEAR",
        _ => return None,
    })
}

/// A clause that is there twice, or before one that it must follow.
fn clause_out_of_order(at: &At<'_, '_>) -> Option<SqlError> {
    let rank = |index: usize| CLAUSES.iter().position(|clause| at.text.is_word(index, clause));
    let own = rank(at.index)?;
    let mut depth = 0_usize;
    let mut seen = Vec::new();
    for index in (0..at.index).rev() {
        match at.token(index) {
            Some(Token::RParen | Token::RBracket) => depth += 1,
            Some(Token::LParen | Token::LBracket) => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => break,
            },
            _ if depth == 0 => {
                seen.extend(rank(index));
                if seen.last() == Some(&0) {
                    break;
                }
            }
            _ => {}
        }
    }
    if seen.last() != Some(&0) {
        return None;
    }
    let by =
        |clause: &str| if matches!(clause, "GROUP" | "ORDER") { format!("{clause} BY") } else { clause.to_owned() };
    let clause = CLAUSES.get(own).copied().unwrap_or_default();
    if seen.contains(&own) {
        let help = match clause {
            "SELECT" => "write a sub-query in parentheses; the rows of two queries join with UNION ALL",
            "FROM" => "name all tables behind one FROM: FROM a JOIN b ON …",
            "WHERE" | "HAVING" => "join the conditions with AND",
            _ => "write all of it in one clause",
        };
        return Some(at.error(format!("a second {} cannot stand here", by(clause)), help));
    }
    if let Some(later) = seen.iter().filter(|seen| **seen > own).min().and_then(|later| CLAUSES.get(*later)) {
        return Some(at.error(
            format!("{} must stand before {}", by(clause), by(later)),
            "the order is SELECT … FROM … WHERE … GROUP BY … HAVING … WINDOW … ORDER BY …",
        ));
    }
    if matches!(clause, "GROUP" | "ORDER") && !at.text.is_word(at.index + 1, "BY") {
        return Some(at.error(format!("BY must follow {clause}"), format!("write {clause} BY")));
    }
    None
}

/// What cannot stand behind a complete value, table or query.
fn behind_a_value(at: &At<'_, '_>) -> Option<SqlError> {
    if at.found_is(&["AS"]) {
        let help = "a name is given once, in the list of SELECT (x AS name) or behind a table (t AS name)";
        return Some(at.error(format!("AS cannot stand behind {}", quoted(at.before())), help));
    }
    if at.found == "." {
        return Some(at.error(
            format!("`.` cannot stand behind {}", quoted(at.before())),
            "a dot stands between names only: table.column, column.field",
        ));
    }
    if at.found.starts_with('.') && at.index.checked_sub(1).is_some_and(|before| at.ends_value(before)) {
        return Some(at.error(
            format!("{} cannot stand behind {}", quoted(at.found), quoted(at.before())),
            "an element of an array is x[1]",
        ));
    }
    None
}
