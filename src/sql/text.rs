//! The text of a query, its tokens, and where in the text they stand.
//!
//! The lexical check refuses what the tokenizer accepts but Flink reads differently, or not at all: hints, `"…"`,
//! `U&'…'`, `==`, placeholders, parentheses without partner.

use std::ops::Range;

use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer, Whitespace};

use super::SqlError;
use super::dialect::FlinkDialect;
use super::foreign;
use super::unreadable::unreadable;

/// Longest query text in bytes: bounds the work of planning.
const TEXT_MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of parentheses and brackets.
pub(super) const NESTING_MAX: usize = 40;

/// A token that is no white space.
#[derive(Debug)]
pub(super) struct Placed {
    pub token: Token,
    pub range: Range<usize>,
    /// Index in [`Text::raw`].
    pub raw: usize,
}

/// A text with its tokens.
#[derive(Debug)]
pub(super) struct Text<'a> {
    pub text: &'a str,
    /// Byte offset of each character, then of the end.
    chars: Vec<usize>,
    /// Index in `chars` of the first character of each line.
    line_starts: Vec<usize>,
    /// With white space, for the parser.
    pub raw: Vec<TokenWithSpan>,
    /// Without white space, in order.
    pub tokens: Vec<Placed>,
}

impl<'a> Text<'a> {
    /// Splits a text into tokens.
    pub fn new(text: &'a str) -> Result<Text<'a>, SqlError> {
        if text.len() > TEXT_MAX_BYTES {
            let message = format!("the query is {} bytes long; at most {TEXT_MAX_BYTES} are taken", text.len());
            return Err(SqlError::new(0..0, message).help("split it: one [query.NAME] may read another"));
        }
        let chars = text.char_indices().map(|(at, _)| at).chain(std::iter::once(text.len())).collect();
        let ends = text.chars().enumerate().filter(|(_, c)| *c == '\n').map(|(index, _)| index + 1);
        let line_starts = std::iter::once(0).chain(ends).collect();
        let mut this = Text { text, chars, line_starts, raw: Vec::new(), tokens: Vec::new() };
        match Tokenizer::new(&FlinkDialect::default(), text).tokenize_with_location() {
            Ok(raw) => this.raw = raw,
            Err(error) => {
                let at = this.offset(error.location);
                return Err(unreadable(text, this.char_at(at)));
            }
        }
        this.tokens = this
            .raw
            .iter()
            .enumerate()
            .filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)))
            .map(|(raw, token)| Placed { token: token.token.clone(), range: this.range(token.span), raw })
            .collect();
        this.check()?;
        Ok(this)
    }

    fn offset(&self, location: Location) -> usize {
        let (Ok(line), Ok(column)) = (usize::try_from(location.line), usize::try_from(location.column)) else {
            return self.text.len();
        };
        let Some(start) = line.checked_sub(1).and_then(|line| self.line_starts.get(line)) else {
            return self.text.trim_end().len();
        };
        self.chars.get(start + column.saturating_sub(1)).copied().unwrap_or(self.text.len())
    }

    /// The byte range of a parser's span; the end of the text for an empty one.
    pub fn range(&self, span: Span) -> Range<usize> {
        if span.start.line == 0 {
            return self.end();
        }
        let start = self.offset(span.start);
        start..self.offset(span.end).max(start)
    }

    /// The character at an offset.
    fn char_at(&self, at: usize) -> Range<usize> {
        let rest = self.text.get(at..).unwrap_or_default();
        at..at + rest.chars().next().map_or(0, char::len_utf8)
    }

    /// The empty range behind the last token.
    pub fn end(&self) -> Range<usize> {
        let end = self.text.trim_end().len();
        end..end
    }

    /// The token that starts at or behind an offset given as `line` and `column`.
    pub fn token_at(&self, line: u64, column: u64) -> Range<usize> {
        let at = self.offset(Location { line, column });
        self.tokens.get(self.index_at(at)).map_or_else(|| self.end(), |token| token.range.clone())
    }

    /// Index of the first token that starts at or behind `offset`.
    pub fn index_at(&self, offset: usize) -> usize {
        self.tokens.partition_point(|token| token.range.start < offset)
    }

    /// The token's text.
    pub fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    /// Whether the token at an index is this word, unquoted (any case).
    pub fn is_word(&self, index: usize, word: &str) -> bool {
        self.tokens.get(index).is_some_and(|placed| is_word(&placed.token, word))
    }

    /// Place of the words of a clause, the first at or behind `from` on the same level of parentheses; `from` itself
    /// where there is none.
    pub fn clause(&self, from: usize, words: &[&str]) -> Range<usize> {
        let mut depth = 0_usize;
        for index in self.index_at(from)..self.tokens.len() {
            let Some(placed) = self.tokens.get(index) else { break };
            match placed.token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => break,
                },
                _ if depth == 0 && words.iter().enumerate().all(|(i, word)| self.is_word(index + i, word)) => {
                    let last = self.tokens.get(index + words.len().saturating_sub(1)).unwrap_or(placed);
                    return placed.range.start..last.range.end;
                }
                _ => {}
            }
        }
        self.tokens.get(self.index_at(from)).map_or_else(|| self.end(), |placed| placed.range.clone())
    }

    /// End of the parentheses that open at token `open`.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (index, placed) in self.tokens.iter().enumerate().skip(open) {
            match placed.token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(index);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The call around `inner`: from the word before the enclosing `(` to its `)`.
    pub fn enclosing_call(&self, inner: Range<usize>) -> Range<usize> {
        let mut depth = 0_usize;
        for index in (0..self.index_at(inner.start)).rev() {
            match self.tokens.get(index).map(|placed| &placed.token) {
                Some(Token::RParen | Token::RBracket) => depth += 1,
                Some(Token::LParen | Token::LBracket) if depth > 0 => depth -= 1,
                Some(Token::LParen) => {
                    let start = self.tokens.get(index.saturating_sub(1)).map_or(inner.start, |p| p.range.start);
                    let end = self.closing(index).and_then(|close| self.tokens.get(close));
                    return start..end.map_or(inner.end, |placed| placed.range.end);
                }
                _ => {}
            }
        }
        inner
    }

    /// `inner` grown by `left` tokens before it and `right` tokens behind it.
    pub fn grown(&self, inner: Range<usize>, left: usize, right: usize) -> Range<usize> {
        let first = self.index_at(inner.start).saturating_sub(left);
        let start = self.tokens.get(first).map_or(inner.start, |placed| placed.range.start.min(inner.start));
        let behind = self.index_at(inner.end);
        let end = match right {
            0 => inner.end,
            _ => self.tokens.get(behind + right - 1).map_or(inner.end, |placed| placed.range.end),
        };
        start..end
    }

    fn check(&self) -> Result<(), SqlError> {
        for token in &self.raw {
            if let Token::Whitespace(Whitespace::MultiLineComment(comment)) = &token.token
                && comment.starts_with('+')
            {
                return Err(SqlError::new(self.range(token.span), "hints (`/*+ … */`) are not supported")
                    .help("leave it out; a plain comment is `/* … */`"));
            }
        }
        let mut open: Vec<(char, Range<usize>)> = Vec::new();
        // How many are open around the innermost `PATTERN (`, where `?` and `$` have a meaning.
        let mut pattern_depth = usize::MAX;
        for (index, placed) in self.tokens.iter().enumerate() {
            let range = placed.range.clone();
            let refuse = |message: &str, help: &str| Err(SqlError::new(range.clone(), message).help(help));
            match &placed.token {
                Token::LParen => {
                    if index.checked_sub(1).is_some_and(|before| self.is_word(before, "PATTERN")) {
                        pattern_depth = open.len();
                    }
                    open.push((')', range));
                }
                Token::LBracket => open.push((']', range)),
                Token::RParen | Token::RBracket => {
                    let found = if placed.token == Token::RParen { ')' } else { ']' };
                    match open.pop() {
                        Some((wanted, _)) if wanted == found => {
                            if open.len() == pattern_depth {
                                pattern_depth = usize::MAX;
                            }
                        }
                        Some((wanted, opened)) => {
                            return Err(SqlError::new(range, format!("expected `{wanted}`, found `{found}`"))
                                .help(format!("`{}` before it is not closed", self.slice(opened))));
                        }
                        None => {
                            let message = format!("`{found}` closes nothing");
                            return Err(SqlError::new(range, message).help("leave it out, or open it before"));
                        }
                    }
                }
                Token::DoubleQuotedString(_) => {
                    return refuse(
                        "double quotes are not Flink SQL",
                        "write strings as 'text', names as `name` in back-ticks",
                    );
                }
                Token::UnicodeStringLiteral(_) => {
                    return refuse(
                        "strings of the form U&'…' are not supported",
                        "write the characters themselves: '…'",
                    );
                }
                Token::NationalStringLiteral(_)
                | Token::EscapedStringLiteral(_)
                | Token::DollarQuotedString(_)
                | Token::TripleSingleQuotedString(_)
                | Token::TripleDoubleQuotedString(_)
                | Token::SingleQuotedByteStringLiteral(_)
                | Token::DoubleQuotedByteStringLiteral(_)
                | Token::TripleSingleQuotedByteStringLiteral(_)
                | Token::TripleDoubleQuotedByteStringLiteral(_)
                | Token::SingleQuotedRawStringLiteral(_)
                | Token::DoubleQuotedRawStringLiteral(_)
                | Token::TripleSingleQuotedRawStringLiteral(_)
                | Token::TripleDoubleQuotedRawStringLiteral(_)
                | Token::QuoteDelimitedStringLiteral(_)
                | Token::NationalQuoteDelimitedStringLiteral(_) => {
                    return refuse("this kind of string is not supported", "write 'text'");
                }
                Token::Number(_, true) => {
                    return refuse("a number with the suffix L is not Flink SQL", "write CAST(… AS BIGINT)");
                }
                Token::Placeholder(mark) if open.len() > pattern_depth && matches!(mark.as_str(), "?" | "$") => {}
                Token::Placeholder(_) | Token::Question => {
                    return refuse("placeholders are not supported", "write the value");
                }
                Token::DoubleEq => return refuse("`==` is not Flink SQL", "write `=`"),
                Token::DoubleColon => return refuse("`::` is not Flink SQL", "write CAST(x AS type)"),
                Token::Assignment => return refuse("`:=` is not Flink SQL", "name an argument with `=>`"),
                token if is_word(token, "FILTER") => {
                    let next = self.tokens.get(index + 1).map(|placed| &placed.token);
                    if next != Some(&Token::LParen) || !self.is_word(index + 2, "WHERE") {
                        return refuse(
                            "`FILTER` must be followed by `(WHERE …)`",
                            "write COUNT(*) FILTER (WHERE x > 0); a column of that name needs back-ticks",
                        );
                    }
                }
                token if open.len() <= pattern_depth => {
                    if let Some((message, help)) = foreign::sign(token, self.slice(range.clone())) {
                        return refuse(&message, help);
                    }
                }
                _ => {}
            }
            if open.len() > NESTING_MAX {
                return Err(SqlError::new(
                    placed.range.clone(),
                    format!("nested deeper than {NESTING_MAX} levels of parentheses"),
                )
                .help("split the query with WITH, or leave out parentheses"));
            }
        }
        match open.pop() {
            Some((wanted, range)) => {
                let message = format!("this `{}` is not closed", self.slice(range.clone()));
                Err(SqlError::new(range, message).help(format!("write the missing `{wanted}`")))
            }
            None => Ok(()),
        }
    }
}

/// Whether a token is this word, unquoted (any case).
pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}
