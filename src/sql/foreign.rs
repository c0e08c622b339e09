//! Habits of other databases that the tokens alone give away, and what to write in Flink SQL instead.

use std::ops::Range;

use sqlparser::tokenizer::{Token, Whitespace};

use super::SqlError;
use super::reserved::is_reserved;
use super::text::{Text, is_word};

/// What to do with operators on bits.
pub(super) const NO_BITS: &str = "there are no operators on bits; the logical ones are AND, OR and NOT";

/// What is wrong with one token, whatever stands around it, and the remedy.
pub(super) fn sign(token: &Token, written: &str) -> Option<(String, &'static str)> {
    const PATTERN: &str = "write REGEXP(x, 'pattern'), x SIMILAR TO 'pattern' or x LIKE 'pattern'";
    const JSON: &str = "write JSON_VALUE(x, '$.a.b') for a field of a JSON text, x.a for one of a ROW";
    let help = match token {
        Token::Neq if written == "!=" => "write `<>`",
        Token::Overlap => "write AND",
        Token::ExclamationMark => "write NOT",
        Token::DoubleExclamationMark => "leave it out",
        Token::Spaceship => "write x IS NOT DISTINCT FROM y",
        Token::Caret => "write POWER(x, y)",
        Token::Ampersand | Token::ShiftLeft | Token::Pipe => NO_BITS,
        Token::Tilde
        | Token::TildeEqual
        | Token::TildeAsterisk
        | Token::ExclamationMarkTilde
        | Token::ExclamationMarkTildeAsterisk
        | Token::DoubleTilde
        | Token::DoubleTildeAsterisk
        | Token::ExclamationMarkDoubleTilde
        | Token::ExclamationMarkDoubleTildeAsterisk => PATTERN,
        Token::Arrow | Token::LongArrow | Token::HashArrow | Token::HashLongArrow => JSON,
        Token::Sharp => "a comment begins with `--`",
        Token::Backslash => "leave it out",
        Token::LBrace | Token::RBrace => "braces stand in PATTERN only; fill in templates before",
        Token::AtSign => "there are no variables: write the value",
        Token::Char(c) => return Some(character(*c)),
        _ => return None,
    };
    Some((format!("`{written}` is not Flink SQL"), help))
}

fn character(c: char) -> (String, &'static str) {
    let code = u32::from(c);
    match c {
        '‘' | '’' | '‚' | '‛' | '“' | '”' | '„' | '‟' | '«' | '»' | '‹' | '›' | '′' | '″' | '´' => {
            (
                format!("`{c}` is a typographic quote (U+{code:04X}), which encloses nothing in SQL"),
                "write strings as 'text', names as `name` in back-ticks",
            )
        }
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => {
            (format!("an invisible character (U+{code:04X}) stands here"), "remove it: type the place anew")
        }
        '–' | '—' | '−' => (format!("`{c}` is a dash (U+{code:04X}), no minus"), "write `-`"),
        '≤' => (format!("`{c}` is not Flink SQL"), "write `<=`"),
        '≥' => (format!("`{c}` is not Flink SQL"), "write `>=`"),
        '≠' => (format!("`{c}` is not Flink SQL"), "write `<>`"),
        '×' => (format!("`{c}` is not Flink SQL"), "write `*`"),
        _ => (
            format!("the character `{}` (U+{code:04X}) is not part of SQL", c.escape_debug()),
            "leave it out; text stands in quotes: 'text'",
        ),
    }
}

/// Refuses forms that need several tokens to be seen.
pub(super) fn check(text: &Text<'_>) -> Result<(), SqlError> {
    for token in &text.raw {
        let range = text.range(token.span);
        if token.token == Token::Whitespace(Whitespace::Space)
            && let Some(c) = text.slice(range.clone()).chars().next().filter(|c| !c.is_ascii())
        {
            let message = format!("a space of another kind (U+{:04X}) stands here, which is none to SQL", u32::from(c));
            return Err(SqlError::new(range, message).help("type it anew as a plain space"));
        }
    }
    for (index, pair) in text.tokens.windows(2).enumerate() {
        let [first, second] = pair else { continue };
        let is_escaped = ["E", "B", "R"].iter().any(|prefix| is_word(&first.token, prefix));
        if is_escaped && matches!(second.token, Token::SingleQuotedString(_)) && first.range.end == second.range.start {
            let message = format!("strings of the form {}'…' are not Flink SQL", text.slice(first.range.clone()));
            return Err(SqlError::new(first.range.start..second.range.end, message)
                .help("write 'text': a backslash escapes nothing, a quote is written twice"));
        }
        if is_word(&first.token, "FOR") && is_word(&second.token, "SYSTEM_TIME") {
            alias_before_version(text, index)?;
        }
    }
    Ok(())
}

/// `t AS x FOR SYSTEM_TIME AS OF a.ts`, with FOR at `index`: the alias stands in front of the clause.
fn alias_before_version(text: &Text<'_>, index: usize) -> Result<(), SqlError> {
    let name = |index: Option<usize>| match text.tokens.get(index?) {
        Some(placed) => match &placed.token {
            Token::Word(word) if word.quote_style.is_some() || !is_reserved(&word.value) => Some(placed.range.clone()),
            _ => None,
        },
        None => None,
    };
    let has_as = index.checked_sub(2).is_some_and(|at| text.is_word(at, "AS"));
    let table = name(index.checked_sub(if has_as { 3 } else { 2 }));
    let (Some(table), Some(alias)) = (table, name(index.checked_sub(1))) else { return Ok(()) };
    let time = time_of_version(text, index + 4);
    let message = "an alias cannot stand before FOR SYSTEM_TIME AS OF, but behind it";
    let (table, written) = (text.slice(table), text.slice(alias.clone()));
    Err(SqlError::new(alias, message).help(format!("write {table} FOR SYSTEM_TIME AS OF {time} AS {written}")))
}

/// The column behind `AS OF`; an example where none stands there.
fn time_of_version<'a>(text: &Text<'a>, from: usize) -> &'a str {
    let is_dot = |index: usize| text.tokens.get(index).is_some_and(|placed| placed.token == Token::Period);
    let part = |index: usize| match text.tokens.get(index).map(|placed| &placed.token) {
        Some(Token::Period) => true,
        Some(Token::Word(word)) if index == from || is_dot(index - 1) => {
            word.quote_style.is_some() || !is_reserved(&word.value)
        }
        _ => false,
    };
    let place = |index: usize| text.tokens.get(index).map(|placed| placed.range.clone());
    let last = (from..).take_while(|index| part(*index)).last();
    match (place(from), last.and_then(place)) {
        (Some(Range { start, .. }), Some(Range { end, .. })) => text.slice(start..end),
        _ => "a.ts",
    }
}
