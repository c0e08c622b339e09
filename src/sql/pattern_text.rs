//! What of MATCH_RECOGNIZE `sqlparser` cannot read. The tokens are changed for it: WITHIN is taken out (the planner reads
//! it from the text), and FINAL before a call (with ONE ROW PER MATCH every measure is), `SKIP TO B` becomes `SKIP TO LAST B`, a sub-query before MATCH_RECOGNIZE the argument of a call of
//! [`SUBQUERY`]. What it would not understand is refused before.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::SqlError;
use super::text::{Text, is_word};

/// Name of a call that stands for a sub-query; no text has such a name without quotes.
pub(super) const SUBQUERY: &str = "sub-query";

/// The tokens as `sqlparser` can read them.
pub(super) fn readable(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|placed| is_word(&placed.token, "MATCH_RECOGNIZE")) {
        return tokens;
    }
    let tokens = without_unread(tokens);
    let solid = solid(&tokens);
    let word = |at: usize, words: &[&str]| {
        let found = solid.get(at).and_then(|index| token(&tokens, *index));
        found.is_some_and(|found| words.iter().any(|word| is_word(found, word)))
    };
    let mut before: Vec<(usize, Token)> = Vec::new();
    for at in 0..solid.len() {
        if word(at, &["AFTER"]) && word(at + 1, &["MATCH"]) && word(at + 2, &["SKIP"]) && word(at + 3, &["TO"]) {
            if !word(at + 4, &["NEXT", "FIRST", "LAST"]) {
                before.push((at + 4, Token::make_word("LAST", None)));
            }
        } else if word(at, &["MATCH_RECOGNIZE"])
            && let Some(open) = at.checked_sub(1).and_then(|close| opening(&tokens, &solid, close))
            && word(open + 1, &["SELECT", "WITH"])
            && !open.checked_sub(1).is_some_and(|before| word(before, &["TABLE"]))
        {
            before.extend([(open, Token::make_word(SUBQUERY, None)), (open, Token::LParen), (at, Token::RParen)]);
        }
    }
    let before: Vec<(usize, Token)> =
        before.into_iter().filter_map(|(at, token)| Some((*solid.get(at)?, token))).collect();
    let mut changed = Vec::new();
    for (index, placed) in tokens.into_iter().enumerate() {
        let added = before.iter().filter(|(before, _)| *before == index);
        changed.extend(added.map(|(_, token)| TokenWithSpan::new(token.clone(), placed.span)));
        changed.push(placed);
    }
    changed
}

/// Indices of the tokens that are no white space.
fn solid(tokens: &[TokenWithSpan]) -> Vec<usize> {
    (0..tokens.len()).filter(|at| !matches!(token(tokens, *at), Some(Token::Whitespace(_)))).collect()
}

/// The tokens without `WITHIN INTERVAL '…' UNIT` behind `PATTERN (…)`, and without FINAL before a call.
fn without_unread(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let solid = solid(&tokens);
    let mut taken = vec![false; tokens.len()];
    for (at, index) in solid.iter().enumerate() {
        let word =
            |at: usize, word: &str| solid.get(at).and_then(|i| token(&tokens, *i)).is_some_and(|t| is_word(t, word));
        let is = |at: usize, wanted: &[Token]| {
            solid.get(at).and_then(|i| token(&tokens, *i)).is_some_and(|t| wanted.contains(t))
        };
        if word(at, "FINAL") && is_call(&tokens, &solid, at + 1) {
            taken.iter_mut().skip(*index).take(1).for_each(|taken| *taken = true);
            continue;
        }
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

/// Whether a name and `(` stand here.
fn is_call(tokens: &[TokenWithSpan], solid: &[usize], at: usize) -> bool {
    let token = |at: usize| solid.get(at).and_then(|index| token(tokens, *index));
    matches!(token(at), Some(Token::Word(_))) && token(at + 1) == Some(&Token::LParen)
}

/// Whether the tokens before `at` are `PATTERN (…)`.
fn behind_pattern(tokens: &[TokenWithSpan], solid: &[usize], at: usize) -> bool {
    let open = at.checked_sub(1).and_then(|close| opening(tokens, solid, close));
    let word = open.and_then(|open| solid.get(open.checked_sub(1)?)).and_then(|index| token(tokens, *index));
    word.is_some_and(|word| is_word(word, "PATTERN"))
}

/// The `(` of a `)`, both as places in `solid`.
fn opening(tokens: &[TokenWithSpan], solid: &[usize], close: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for at in (0..=close).rev() {
        match solid.get(at).and_then(|index| token(tokens, *index)) {
            Some(Token::RParen) => depth += 1,
            Some(Token::LParen) => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Refuses the clauses of MATCH_RECOGNIZE that the parser does not know.
pub(super) fn check(text: &Text<'_>) -> Result<(), SqlError> {
    for (at, placed) in text.tokens.iter().enumerate() {
        if !text.is_word(at, "MATCH_RECOGNIZE") {
            continue;
        }
        if at.checked_sub(1).is_some_and(|before| closes_table(text, before)) {
            return Err(SqlError::new(placed.range.clone(), "MATCH_RECOGNIZE behind TABLE(…) is not supported")
                .help("name it: WITH w AS (SELECT … FROM TABLE(…)) SELECT … FROM w MATCH_RECOGNIZE (…)"));
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
        if let Some(place) = clause(&["RUNNING"]) {
            return Err(SqlError::new(place, "RUNNING is not supported, nor by Flink").help(
                "leave it out: a measure is what the whole match gives, and DEFINE sees the match so far anyway",
            ));
        }
        if let (Some(place), None) = (clause(&["PATTERN"]), clause(&["DEFINE"])) {
            return Err(SqlError::new(place, "MATCH_RECOGNIZE needs DEFINE behind PATTERN")
                .help("write DEFINE A AS A.x > 0; a variable that is not defined is any row"));
        }
    }
    Ok(())
}

/// Whether the token is the `)` of `TABLE(…)`.
fn closes_table(text: &Text<'_>, close: usize) -> bool {
    (0..close).any(|at| {
        let is_open = text.tokens.get(at + 1).is_some_and(|placed| placed.token == Token::LParen);
        is_open && text.is_word(at, "TABLE") && text.closing(at + 1) == Some(close)
    })
}
