//! What of MATCH_RECOGNIZE `sqlparser` cannot read: WITHIN is taken out of the tokens (the planner reads it from the
//! text), and what it would not understand is refused before.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::SqlError;
use super::text::{Text, is_word};

/// The tokens without `WITHIN INTERVAL '…' UNIT` behind `PATTERN (…)`.
pub(super) fn without_within(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(token(&tokens, *at), Some(Token::Whitespace(_)))).collect();
    let mut taken = vec![false; tokens.len()];
    for (at, index) in solid.iter().enumerate() {
        let word =
            |at: usize, word: &str| solid.get(at).and_then(|i| token(&tokens, *i)).is_some_and(|t| is_word(t, word));
        let is = |at: usize, wanted: &[Token]| {
            solid.get(at).and_then(|i| token(&tokens, *i)).is_some_and(|t| wanted.contains(t))
        };
        if !word(at, "WITHIN") || !word(at + 1, "INTERVAL") || !behind_pattern(&tokens, &solid, at) {
            continue;
        }
        let mut end = at + 2;
        if is(end, &[Token::Minus, Token::Plus]) {
            end += 1;
        }
        // The text, then UNIT[(p[, f])] [TO UNIT[(f)]].
        end += 2;
        loop {
            if is(end, &[Token::LParen]) {
                end += (end..solid.len()).position(|at| is(at, &[Token::RParen])).map_or(1, |length| length + 1);
            } else if word(end, "TO") {
                end += 2;
            } else {
                break;
            }
        }
        let last = solid.get(end).copied().unwrap_or(tokens.len());
        taken.iter_mut().take(last).skip(*index).for_each(|taken| *taken = true);
    }
    tokens.into_iter().zip(taken).filter(|(_, taken)| !taken).map(|(token, _)| token).collect()
}

fn token(tokens: &[TokenWithSpan], at: usize) -> Option<&Token> {
    tokens.get(at).map(|placed| &placed.token)
}

/// Whether the tokens before `at` are `PATTERN (…)`.
fn behind_pattern(tokens: &[TokenWithSpan], solid: &[usize], at: usize) -> bool {
    let mut depth = 0_usize;
    for before in (0..at).rev() {
        match solid.get(before).and_then(|index| token(tokens, *index)) {
            Some(Token::RParen) => depth += 1,
            Some(Token::LParen) => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    let word =
                        before.checked_sub(1).and_then(|at| solid.get(at)).and_then(|index| token(tokens, *index));
                    return word.is_some_and(|word| is_word(word, "PATTERN"));
                }
            }
            _ if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// Refuses the clauses of MATCH_RECOGNIZE that the parser does not know.
pub(super) fn check(text: &Text<'_>) -> Result<(), SqlError> {
    for (at, placed) in text.tokens.iter().enumerate() {
        if !text.is_word(at, "MATCH_RECOGNIZE") {
            continue;
        }
        let before = at.checked_sub(1).and_then(|before| text.tokens.get(before)).map(|placed| &placed.token);
        if before == Some(&Token::RParen) && !follows_function(text, at - 1) {
            return Err(SqlError::new(placed.range.clone(), "MATCH_RECOGNIZE behind a sub-query is not supported yet")
                .help("name the sub-query: WITH s AS (SELECT …) SELECT … FROM s MATCH_RECOGNIZE (…)"));
        }
        let Some(inside) = text.tokens.get(at + 2) else { continue };
        let clause = |words: &[&str]| {
            let place = text.clause(inside.range.start, words);
            words.first().filter(|word| text.is_word(text.index_at(place.start), word)).map(|_| place)
        };
        if let Some(place) = clause(&["SUBSET"]) {
            return Err(SqlError::new(place, "SUBSET is not supported, nor by Flink")
                .help("aggregate the variables one by one"));
        }
        if let (Some(place), None) = (clause(&["PATTERN"]), clause(&["DEFINE"])) {
            return Err(SqlError::new(place, "MATCH_RECOGNIZE needs DEFINE behind PATTERN")
                .help("write DEFINE A AS A.x > 0; a variable that is not defined is any row"));
        }
        if let Some(place) = clause(&["SKIP", "TO"]) {
            let next = text.index_at(place.end);
            if !["NEXT", "FIRST", "LAST"].iter().any(|word| text.is_word(next, word)) {
                let name = text.tokens.get(next).map_or("B", |placed| text.slice(placed.range.clone()));
                return Err(SqlError::new(place, "SKIP TO needs NEXT ROW, FIRST or LAST")
                    .help(format!("write AFTER MATCH SKIP TO LAST {name}")));
            }
        }
    }
    Ok(())
}

/// Whether the `)` at a token closes the arguments of a call.
fn follows_function(text: &Text<'_>, close: usize) -> bool {
    let open = (0..close).rev().find(|open| {
        text.tokens.get(*open).is_some_and(|placed| placed.token == Token::LParen) && text.closing(*open) == Some(close)
    });
    let before = open.and_then(|open| open.checked_sub(1)).and_then(|before| text.tokens.get(before));
    before.is_some_and(|placed| {
        matches!(&placed.token, Token::Word(_)) && !is_word(&placed.token, "FROM") && !is_word(&placed.token, "JOIN")
    })
}
