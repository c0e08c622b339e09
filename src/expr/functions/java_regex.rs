//! Java's regular expressions, as far as the `regex` crate can do the same, in linear time.
//!
//! What Java reads otherwise is translated: `\d`, `\w`, `\s` and `\p{Alpha}` are ASCII, `.` stops at every line
//! terminator, `\v` is a class. Refused are back-references, look-around, possessive quantifiers and what else the crate
//! has not. One difference stays: `$` is the very end of the text, not also the place before a last line break.

use std::ops::Range;

use regex::{Captures, Regex, RegexBuilder};

/// Java's `.`: all but line terminators.
pub(super) const ANY: &str = "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]";

/// Whether `.` of Java does not match this character.
pub(super) fn ends_line(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The classes that Java has for ASCII alone.
const POSIX: [(&str, &str); 13] = [
    ("Lower", "[:lower:]"),
    ("Upper", "[:upper:]"),
    ("ASCII", "[:ascii:]"),
    ("Alpha", "[:alpha:]"),
    ("Digit", "[:digit:]"),
    ("Alnum", "[:alnum:]"),
    ("Punct", "[:punct:]"),
    ("Graph", "[:graph:]"),
    ("Print", "[:print:]"),
    ("Blank", "[:blank:]"),
    ("Cntrl", "[:cntrl:]"),
    ("XDigit", "[:xdigit:]"),
    ("Space", "[:space:]"),
];

/// Compiles a pattern of Java's, as far as there is the same here.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    build(&translated(pattern)?)
}

/// Compiles a pattern of the crate's.
pub(super) fn build(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).build().map_err(|error| {
        let shown = error.to_string();
        shown.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
}

fn translated(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    let (mut depth, mut quantified) = (0_usize, false);
    // With the flag s, `.` is any character for both; where the flag holds is left to the crate.
    let any = if has_flag(pattern, 's') { "." } else { ANY };
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        let was_quantified = std::mem::take(&mut quantified);
        match c {
            '\\' => rest = escape(rest, &mut out),
            '[' => {
                depth += 1;
                out.push('[');
            }
            ']' => {
                depth = depth.saturating_sub(1);
                out.push(']');
            }
            '.' if depth == 0 => out.push_str(any),
            '+' if depth == 0 && was_quantified => {
                return Err("possessive quantifiers are not supported".to_owned());
            }
            '*' | '+' | '?' | '}' if depth == 0 => {
                quantified = true;
                out.push(c);
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Whether `(?flags` sets a flag somewhere.
fn has_flag(pattern: &str, flag: char) -> bool {
    pattern.split("(?").skip(1).any(|group| group.chars().take_while(char::is_ascii_alphabetic).any(|c| c == flag))
}

/// Translates what follows a backslash, and returns what follows that.
fn escape<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let mut chars = rest.chars();
    match chars.next() {
        Some('d') => out.push_str("[0-9]"),
        Some('D') => out.push_str("[^0-9]"),
        Some('w') => out.push_str("[a-zA-Z0-9_]"),
        Some('W') => out.push_str("[^a-zA-Z0-9_]"),
        Some('s') => out.push_str("[ \\t\\n\\x0B\\f\\r]"),
        Some('S') => out.push_str("[^ \\t\\n\\x0B\\f\\r]"),
        Some('v') => out.push_str("[\\n\\x0B\\f\\r\\x{85}\\x{2028}\\x{2029}]"),
        // Plain characters in Java, the bounds of a word in the crate.
        Some(c @ ('<' | '>')) => out.push(c),
        Some(c @ ('p' | 'P')) => {
            let name = chars.as_str().strip_prefix('{').and_then(|name| name.split_once('}'));
            let posix = name.and_then(|(name, after)| {
                POSIX.iter().find(|(known, _)| *known == name).map(|(_, class)| (*class, after))
            });
            let Some((class, after)) = posix else {
                out.push('\\');
                out.push(c);
                return chars.as_str();
            };
            out.push_str(if c == 'p' { "[" } else { "[^" });
            out.push_str(class);
            out.push(']');
            return after;
        }
        Some(other) => {
            out.push('\\');
            out.push(other);
        }
        None => out.push('\\'),
    }
    chars.as_str()
}

/// All matches as Java's `Matcher.find` goes through them: behind a match that is not empty there can be an empty one.
pub(super) fn matches<'s>(regex: &Regex, text: &'s str) -> impl Iterator<Item = Captures<'s>> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let captures = regex.captures_at(text, from?)?;
        from = next(text, captures.get(0)?.range());
        Some(captures)
    })
}

/// The places of all [`matches`].
pub(super) fn places(regex: &Regex, text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let found = regex.find_at(text, from?)?.range();
        from = next(text, found.clone());
        Some(found)
    })
}

/// Where the search for the next match begins; `None` at the end.
fn next(text: &str, found: Range<usize>) -> Option<usize> {
    if !found.is_empty() {
        return Some(found.end);
    }
    let step = text.get(found.end..).and_then(|rest| rest.chars().next())?.len_utf8();
    Some(found.end + step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_java() {
        for (pattern, text, matches) in [
            ("^\\d+$", "٣", false),
            ("^[\\w-]+$", "a-1", true),
            ("a.b", "a\nb", false),
            ("a.b", "a\rb", false),
            ("(?s)a.b", "a\rb", true),
            ("^\\p{Alpha}+$", "ä", false),
            ("^\\P{Alpha}+$", "ä", true),
            ("^[\\p{Upper}_]+$", "A_B", true),
            ("^\\p{L}+$", "ä", true),
            ("\\<a\\>", "<a>", true),
            ("^\\v$", "\n", true),
            ("[.+]", "+", true),
            ("^a+?$", "aa", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), matches, "{pattern} {text:?}");
        }
        for pattern in ["(a)\\1", "a(?=b)", "a++", "a*+", "a?+", "a{2}+", "\\Qa\\E", "\\Z", "(", "[a"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn an_empty_match_can_follow_another() {
        let places =
            |pattern: &str, text: &str| -> Vec<Range<usize>> { places(&compile(pattern).unwrap(), text).collect() };
        assert_eq!(places("a*", "aab"), [0..2, 2..2, 3..3]);
        assert_eq!(places("", "ä"), [0..0, 2..2]);
        assert_eq!(places("b", "abb"), [1..2, 2..3]);
        assert_eq!(places("x*", ""), vec![0..0]);
    }
}
