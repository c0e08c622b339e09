//! What a query text needs to know to run on a Flink cluster: where it ends, and what it uses that Flink lacks.

use sqlparser::tokenizer::Token;

use super::planner::edge_names;
use super::text::Text;

/// Aggregates that Flink does not have, or not over streams.
const AGGREGATES: [&str; 2] = ["APPROX_COUNT_DISTINCT", "APPROX_PERCENTILE"];

/// The query without the semicolon that may end it.
pub fn without_semicolon(query: &str) -> &str {
    let end = Text::new(query).ok().and_then(|text| {
        let last = text.tokens.last()?;
        (last.token == Token::SemiColon).then_some(last.range.start)
    });
    query.get(..end.unwrap_or(query.len())).unwrap_or(query).trim()
}

/// The functions in the query that Flink does not have over streams.
pub fn beyond_flink(query: &str) -> Vec<&'static str> {
    let Ok(text) = Text::new(query) else { return Vec::new() };
    let calls = |name: &str| {
        let mut pairs = text.tokens.iter().zip(text.tokens.iter().skip(1));
        pairs.any(|(word, next)| next.token == Token::LParen && super::text::is_word(&word.token, name))
    };
    edge_names().chain(AGGREGATES).filter(|name| calls(name)).collect()
}

/// Whether the query names this column or relation.
pub fn mentions(query: &str, name: &str) -> bool {
    let Ok(text) = Text::new(query) else { return false };
    text.tokens.iter().any(|placed| matches!(&placed.token, Token::Word(word) if word.value == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_told_from_what_ends_it() {
        assert_eq!(without_semicolon(" SELECT ';' AS a FROM t ; -- the end\n"), "SELECT ';' AS a FROM t");
        assert_eq!(without_semicolon("SELECT a FROM t -- ;"), "SELECT a FROM t -- ;");
    }

    #[test]
    fn what_flink_lacks_is_found_in_code_alone() {
        assert_eq!(beyond_flink("SELECT deadband(x, 1) OVER w AS rate, 'EWMA(x)' FROM t"), ["DEADBAND"]);
        assert_eq!(beyond_flink("SELECT APPROX_PERCENTILE (x, 0.5), rate FROM t"), ["APPROX_PERCENTILE"]);
        assert!(mentions("SELECT t._lsn FROM t", "_lsn") && mentions("SELECT `_lsn` FROM t", "_lsn"));
        assert!(!mentions("SELECT '_lsn' FROM t -- _lsn", "_lsn"));
    }
}
