//! What of a text cannot be split into tokens: a string, a quoted name or a comment that is not closed.

use std::ops::Range;

use super::SqlError;

/// What opens and is not closed, and where.
enum Unclosed {
    String,
    Name,
    Comment,
}

/// The error of a text that the tokenizer gave up at `at`.
pub(super) fn unreadable(text: &str, at: Range<usize>) -> SqlError {
    let Some((unclosed, start)) = unclosed(text) else {
        if text.get(..at.start).is_some_and(|before| before.to_ascii_lowercase().contains("u&'")) {
            return SqlError::new(at, "strings of the form U&'…' are not supported")
                .help("write the characters themselves: '…'");
        }
        let shown = text.get(at.clone()).unwrap_or_default();
        if shown.is_empty() {
            return SqlError::new(at, "the query ends within a string of a form that is not Flink SQL")
                .help("write strings as 'text'");
        }
        return SqlError::new(at, format!("`{shown}` begins nothing that SQL knows"))
            .help("leave it out; text stands in quotes: 'text'");
    };
    match unclosed {
        Unclosed::Comment => {
            SqlError::new(start..start + 2, "this comment is not closed").help("end it with `*/`, or write `-- …`")
        }
        Unclosed::Name => SqlError::new(start..start + 1, "this name is not closed").help("end it with a back-tick"),
        Unclosed::String => match text.get(..start).and_then(|before| before.rfind("\\'")) {
            Some(backslash) => SqlError::new(backslash..backslash + 2, "a backslash escapes nothing in SQL")
                .help("write a quote within a string twice: 'it''s'"),
            None => SqlError::new(start..start + 1, "this string is not closed")
                .help("end it with a quote; a quote within it is written twice: 'it''s'"),
        },
    }
}

/// The first string, name or comment without its end.
fn unclosed(text: &str) -> Option<(Unclosed, usize)> {
    let mut at = 0;
    loop {
        let rest = text.get(at..)?;
        let (begin, found) = rest.char_indices().find_map(|(offset, c)| match c {
            '\'' => Some((offset, "'")),
            '`' => Some((offset, "`")),
            '"' => Some((offset, "\"")),
            '-' if rest.get(offset..)?.starts_with("--") => Some((offset, "\n")),
            '/' if rest.get(offset..)?.starts_with("/*") => Some((offset, "*/")),
            _ => None,
        })?;
        let opened = at + begin;
        let inside = opened + if matches!(found, "\n" | "*/") { 2 } else { 1 };
        // A quote that is written twice closes one string and opens the next, which makes no difference here.
        match (text.get(inside..)?.find(found), found) {
            (Some(end), _) => at = inside + end + found.len(),
            (None, "\n") => return None,
            (None, "*/") => return Some((Unclosed::Comment, opened)),
            (None, "`") => return Some((Unclosed::Name, opened)),
            (None, _) => return Some((Unclosed::String, opened)),
        }
    }
}
