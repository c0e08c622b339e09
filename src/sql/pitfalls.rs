//! What Flink takes and hardly anybody means.

use std::ops::Range;

use sqlparser::tokenizer::Token;

use super::text::Text;

/// A place of a query that is valid, and does not do what it seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pitfall {
    pub message: String,
    /// Byte range in the query.
    pub span: Range<usize>,
}

/// The pitfalls of a query: comparisons with NULL, which are never true.
pub fn pitfalls(query: &str) -> Vec<Pitfall> {
    let Ok(text) = Text::new(query) else { return Vec::new() };
    let compared = text.tokens.iter().enumerate().filter_map(|(index, placed)| {
        let test = match placed.token {
            Token::Eq => "IS NULL",
            Token::Neq => "IS NOT NULL",
            _ => return None,
        };
        let null = text.tokens.get(index + 1).filter(|_| text.is_word(index + 1, "NULL"))?;
        let span = placed.range.start..null.range.end;
        Some(Pitfall { message: format!("`{}` is never true: write {test}", text.slice(span.clone())), span })
    });
    compared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_with_null_are_found_in_code_alone() {
        let query = "SELECT a IS NULL AS b, '= NULL' AS c FROM t WHERE a = NULL OR b <>\nNULL -- = NULL";
        let found = pitfalls(query);
        let shown: Vec<&str> = found.iter().filter_map(|pitfall| query.get(pitfall.span.clone())).collect();
        assert_eq!(shown, ["= NULL", "<>\nNULL"]);
        assert!(found[0].message.contains("IS NULL") && found[1].message.contains("IS NOT NULL"));
    }
}
