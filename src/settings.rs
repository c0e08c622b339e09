//! Typed reading of a TOML document that keeps every position: what connectors, formats and the configuration are
//! read with.
//!
//! A [`Section`] hands out each key once; what nobody took is an unknown key, and [`Section::finish`] reports it with
//! the nearest known name. Problems are collected, not thrown, so that one `check` finds all of them. A reader of a
//! value that was absent or wrong gets `None`; a wrong value is then already reported.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing that is wrong, with its place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Byte range in the document; `None`: the document as a whole.
    pub span: Option<Range<usize>>,
}

/// Everything wrong with a document. Displays as one block per problem: message, `file:line:column`, the line, a
/// caret, the help.
#[derive(Clone, Debug)]
pub struct Problems {
    pub file: String,
    pub text: String,
    pub list: Vec<Problem>,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.list.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "error: {}", problem.message)?;
            match &problem.span {
                Some(span) => {
                    let (line, column) = line_column(&self.text, span.start);
                    write!(f, "\n  --> {}:{line}:{column}", self.file)?;
                    let shown = self.text.lines().nth(line - 1).unwrap_or("");
                    let before: String =
                        shown.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                    let rest = shown.chars().count().saturating_sub(column - 1).max(1);
                    let wide = self.text.get(span.clone()).map_or(1, |t| t.chars().count());
                    let carets = "^".repeat(wide.clamp(1, rest));
                    let gutter = line.to_string();
                    let pad = " ".repeat(gutter.len());
                    write!(f, "\n {pad} |\n {gutter} | {shown}\n {pad} | {before}{carets}")?;
                    if let Some(help) = &problem.help {
                        write!(f, "\n {pad} = help: {help}")?;
                    }
                }
                None => {
                    write!(f, "\n  --> {}", self.file)?;
                    if let Some(help) = &problem.help {
                        write!(f, "\n  = help: {help}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Line and column (both from 1, the column in characters) of a byte offset.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let offset = offset.min(text.len());
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let start = before.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let column = String::from_utf8_lossy(before.get(start..).unwrap_or_default()).chars().count() + 1;
    (line, column)
}

/// The candidate nearest to `name`, if one is near enough to be what was meant.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.chars().count().max(name.chars().count()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// A string value and where its text stands in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub value: String,
    /// Byte range of the whole value, quotes included.
    pub span: Range<usize>,
    /// Offset of the value's first byte, where the document holds it verbatim (no escapes): maps positions inside
    /// the value to positions in the document.
    pub verbatim_at: Option<usize>,
}

impl Text {
    /// The document's range for a byte range of the value; the whole value where it is not verbatim.
    pub fn locate(&self, inner: Range<usize>) -> Range<usize> {
        match self.verbatim_at {
            Some(start) => start + inner.start..start + inner.end,
            None => self.span.clone(),
        }
    }
}

type Sink = Rc<RefCell<Vec<Problem>>>;

/// Parses `text` and reads its root section with `read`. All problems, of syntax and of content, come together.
///
/// # Errors
/// The problems found, if any.
pub fn read_document<T>(
    file: &str,
    text: &str,
    read: impl FnOnce(&mut Section<'_>) -> Option<T>,
) -> Result<T, Problems> {
    let problems: Sink = Rc::default();
    let all = |list: Vec<Problem>| Problems { file: file.to_owned(), text: text.to_owned(), list };
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            let message = error.message().trim().replace('\n', ", ");
            return Err(all(vec![Problem { message, help: None, span: error.span() }]));
        }
    };
    let mut section = Section {
        path: String::new(),
        span: 0..0,
        text,
        table: root.get_ref(),
        known: Vec::new(),
        problems: Rc::clone(&problems),
    };
    let value = read(&mut section);
    section.finish();
    let mut list = std::mem::take(&mut *problems.borrow_mut());
    list.sort_by_key(|p| p.span.as_ref().map_or(usize::MAX, |s| s.start));
    list.dedup();
    match value {
        Some(value) if list.is_empty() => Ok(value),
        _ => Err(all(list)),
    }
}

/// One table of a document.
pub struct Section<'a> {
    /// Dotted path from the root, for messages: `source.plant`.
    path: String,
    span: Range<usize>,
    text: &'a str,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
    problems: Sink,
}

impl<'a> Section<'a> {
    /// Dotted path from the root: `source.plant`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Where the table's header or value stands.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Where the value of `key` stands, else the section itself.
    pub fn span_of(&self, key: &str) -> Range<usize> {
        self.table.iter().find(|(k, _)| k.get_ref() == key).map_or_else(|| self.span(), |(_, v)| v.span())
    }

    /// Number of problems reported so far, in the whole document.
    pub fn problems(&self) -> usize {
        self.problems.borrow().len()
    }

    /// Reports a problem at a place.
    pub fn problem(&self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        self.problems.borrow_mut().push(Problem { message: message.into(), help, span: Some(span) });
    }

    /// Reports a problem with the value of `key`.
    pub fn problem_at(&self, key: &str, message: impl Into<String>, help: Option<String>) {
        self.problem(self.span_of(key), message, help);
    }

    fn dotted(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table.iter().find(|(k, _)| k.get_ref() == key).map(|(_, value)| value)
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let message = format!("`{}` must be {wanted}, not {}", self.dotted(key), type_name(value.get_ref()));
        self.problem(value.span(), message, None);
    }

    /// Whether the key is there (without taking it).
    pub fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(k, _)| k.get_ref() == key)
    }

    /// Whether the value of `key` is a string (without taking it).
    pub fn is_string(&self, key: &str) -> bool {
        self.table.iter().any(|(k, v)| k.get_ref() == key && matches!(v.get_ref(), DeValue::String(_)))
    }

    /// Reports that `key` is missing, with what to write.
    pub fn missing(&self, key: &str, example: &str) {
        let message = if self.path.is_empty() {
            format!("`{key}` is missing")
        } else {
            format!("`{key}` is missing in [{}]", self.path)
        };
        self.problem(self.span(), message, Some(format!("add `{example}`")));
    }

    /// A string with its place.
    pub fn text(&mut self, key: &'static str) -> Option<Text> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::String(s) => Some(self.located(s, value.span())),
            _ => {
                self.wrong(key, value, "a string");
                None
            }
        }
    }

    fn located(&self, value: &str, span: Range<usize>) -> Text {
        let raw = self.text.get(span.clone()).unwrap_or_default();
        let verbatim_at = raw.find(value).filter(|at| *at <= 5).map(|at| span.start + at);
        Text { value: value.to_owned(), span, verbatim_at }
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Option<String> {
        self.text(key).map(|text| text.value)
    }

    /// A string that must be there; `example` is what the message suggests (`path = "…"`).
    pub fn required(&mut self, key: &'static str, example: &str) -> Option<String> {
        if !self.has(key) {
            self.known.push(key);
            self.missing(key, example);
            return None;
        }
        self.string(key)
    }

    /// A boolean.
    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Boolean(b) => Some(*b),
            _ => {
                self.wrong(key, value, "true or false");
                None
            }
        }
    }

    /// An integer within a range.
    pub fn integer(&mut self, key: &'static str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let value = self.value(key)?;
        let DeValue::Integer(i) = value.get_ref() else {
            self.wrong(key, value, "an integer");
            return None;
        };
        match i64::from_str_radix(i.as_str(), i.radix()) {
            Ok(i) if range.contains(&i) => Some(i),
            _ => {
                let message =
                    format!("`{}` must be between {} and {}, not {i}", self.dotted(key), range.start(), range.end());
                self.problem(value.span(), message, None);
                None
            }
        }
    }

    /// A number, integer or not.
    pub fn float(&mut self, key: &'static str) -> Option<f64> {
        let value = self.value(key)?;
        let parsed = match value.get_ref() {
            DeValue::Integer(i) => i64::from_str_radix(i.as_str(), i.radix()).ok().map(|i| i as f64),
            DeValue::Float(f) => f.as_str().parse().ok(),
            _ => None,
        };
        if parsed.is_none() {
            self.wrong(key, value, "a number");
        }
        parsed
    }

    /// A duration such as `"100ms"`, `"1m30s"`.
    pub fn duration(&mut self, key: &'static str) -> Option<Duration> {
        self.parsed(key, parse_duration, "\"100ms\", \"10s\", \"1m30s\"")
    }

    /// A size in bytes such as `"64KiB"`, `"1GiB"`.
    pub fn size(&mut self, key: &'static str) -> Option<u64> {
        self.parsed(key, parse_size, "\"64KiB\", \"16MiB\", \"1GiB\"")
    }

    fn parsed<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Result<T, String>, examples: &str) -> Option<T> {
        let value = self.value(key)?;
        let result = match value.get_ref() {
            DeValue::String(s) => parse(s),
            other => Err(format!("it is {}", type_name(other))),
        };
        match result {
            Ok(parsed) => Some(parsed),
            Err(why) => {
                let raw = self.text.get(value.span()).unwrap_or_default();
                let message = format!("`{}` cannot be {raw}: {why}", self.dotted(key));
                self.problem(value.span(), message, Some(format!("write for example {examples}")));
                None
            }
        }
    }

    /// One of a fixed list of words.
    pub fn choice<T: Clone>(&mut self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let value = self.value(key)?;
        let DeValue::String(s) = value.get_ref() else {
            self.wrong(key, value, "a string");
            return None;
        };
        let found = choices.iter().find(|(name, _)| *name == s.as_ref()).map(|(_, choice)| choice.clone());
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let message = format!("`{}` cannot be \"{s}\"", self.dotted(key));
            self.problem(value.span(), message, Some(suggestion(s, &names)));
        }
        found
    }

    /// A list of strings.
    pub fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        let value = self.value(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong(key, value, "a list of strings");
            return None;
        };
        let mut list = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(s) => list.push(s.to_string()),
                other => {
                    let message =
                        format!("`{}` must be a list of strings; this is {}", self.dotted(key), type_name(other));
                    self.problem(item.span(), message, None);
                    return None;
                }
            }
        }
        Some(list)
    }

    /// A sub-table.
    pub fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let value = self.value(key)?;
        self.as_section(key, value)
    }

    fn as_section(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Option<Section<'a>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section {
                path: self.dotted(key),
                span: value.span(),
                text: self.text,
                table,
                known: Vec::new(),
                problems: Rc::clone(&self.problems),
            }),
            _ => {
                self.wrong(key, value, &format!("a table ([{}])", self.dotted(key)));
                None
            }
        }
    }

    /// The sub-tables of a table of named things (`[source.NAME]`), in the document's order.
    pub fn named_sections(&mut self, key: &'static str) -> Vec<(Text, Section<'a>)> {
        let Some(parent) = self.section(key) else { return Vec::new() };
        parent
            .table
            .iter()
            .filter_map(|(name, value)| {
                let section = parent.as_section(name.get_ref(), value)?;
                let text = Text { value: name.get_ref().to_string(), span: name.span(), verbatim_at: None };
                Some((text, section))
            })
            .collect()
    }

    /// The entries of a table of names to strings (`[source.NAME.columns]`), in the document's order.
    pub fn named_texts(&mut self, key: &'static str) -> Option<Vec<(Text, Text)>> {
        let parent = self.section(key)?;
        let mut list = Vec::new();
        for (name, value) in parent.table {
            match value.get_ref() {
                DeValue::String(s) => list.push((
                    Text { value: name.get_ref().to_string(), span: name.span(), verbatim_at: None },
                    parent.located(s, value.span()),
                )),
                _ => parent.wrong(name.get_ref(), value, "a string"),
            }
        }
        Some(list)
    }

    /// The tables of a list of tables (`[[test]]`), in the document's order.
    pub fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong(key, value, &format!("a list of tables ([[{}]])", self.dotted(key)));
            return Vec::new();
        };
        items.iter().filter_map(|item| self.as_section(key, item)).collect()
    }

    /// A list of strings, or the lines of one string that are not blank, each with its place.
    pub fn lines(&mut self, key: &'static str) -> Option<Vec<Text>> {
        let value = self.value(key)?;
        self.as_lines(key, value)
    }

    fn as_lines(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Vec<Text>> {
        match value.get_ref() {
            DeValue::String(all) => {
                let whole = self.located(all, value.span());
                let line = |line: &str| {
                    let start = line.as_ptr() as usize - all.as_ptr() as usize;
                    let span = whole.locate(start..start + line.len());
                    Text { value: line.to_owned(), verbatim_at: whole.verbatim_at.map(|_| span.start), span }
                };
                Some(all.lines().map(str::trim).filter(|text| !text.is_empty()).map(line).collect())
            }
            DeValue::Array(items) => {
                let mut list = Vec::new();
                for item in items.iter() {
                    let DeValue::String(text) = item.get_ref() else {
                        let (key, found) = (self.dotted(key), type_name(item.get_ref()));
                        let help = "write each row in quotes, as it comes: '{\"a\":1}'";
                        let message = format!("`{key}` must be a list of strings; this is {found}");
                        self.problem(item.span(), message, Some(help.into()));
                        return None;
                    };
                    list.push(self.located(text, item.span()));
                }
                Some(list)
            }
            _ => {
                self.wrong(key, value, "a list of strings, or one string with a row a line");
                None
            }
        }
    }

    /// The entries of a table of names to [`Section::lines`], in the document's order.
    pub fn named_lines(&mut self, key: &'static str) -> Vec<(Text, Vec<Text>)> {
        let Some(parent) = self.section(key) else { return Vec::new() };
        let entries = parent.table.iter().filter_map(|(name, value)| {
            if let DeValue::Table(inner) = value.get_ref() {
                let dotted = inner.keys().next().map_or(String::new(), |key| format!(".{}", key.get_ref()));
                let (path, name) = (parent.dotted(name.get_ref()), name.get_ref());
                let message = format!("`{path}` must be a list of strings, not a table");
                let help = format!("write a name with a dot in quotes: \"{name}{dotted}\" = […]");
                parent.problem(value.span(), message, Some(help));
                return None;
            }
            let lines = parent.as_lines(name.get_ref(), value)?;
            Some((Text { value: name.get_ref().to_string(), span: name.span(), verbatim_at: None }, lines))
        });
        entries.collect()
    }

    /// Reports every key that nobody asked for, with the nearest one that exists.
    pub fn finish(self) {
        for (name, _) in self.table {
            if !self.known.iter().any(|known| known == name.get_ref()) {
                let place = if self.path.is_empty() { "here".to_owned() } else { format!("in [{}]", self.path) };
                let message = format!("unknown key `{}` {place}", name.get_ref());
                self.problem(name.span(), message, Some(suggestion(name.get_ref(), &self.known)));
            }
        }
    }
}

/// "did you mean …" where a name is near, else the list of what is possible.
pub fn suggestion(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let list: Vec<String> = known.iter().map(|k| format!("`{k}`")).collect();
            format!("possible: {}", list.join(", "))
        }
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Splits `1m30s` into numbers and units and adds up `number × factor(unit)`.
fn sum_of_units(text: &str, factor: impl Fn(&str) -> Option<u64>, units: &str) -> Result<u64, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut sum = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit = unit.trim();
        let number: u64 = number.parse().map_err(|_| format!("a whole number must stand before `{rest}`"))?;
        let factor = match factor(unit) {
            Some(factor) => factor,
            None if unit.is_empty() => return Err(format!("a unit is missing ({units})")),
            None => return Err(format!("`{unit}` is not a unit ({units})")),
        };
        sum = number.checked_mul(factor).and_then(|n| sum.checked_add(n)).ok_or("it is too large")?;
        rest = tail;
    }
    Ok(sum)
}

/// Parses a duration: `100ms`, `10s`, `1m30s`, `1h`, `7d`; units us, ms, s, m, h, d.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let micros = sum_of_units(
        text,
        |unit| match unit {
            "us" | "µs" => Some(1),
            "ms" => Some(1_000),
            "s" => Some(1_000_000),
            "m" | "min" => Some(60_000_000),
            "h" => Some(3_600_000_000),
            "d" => Some(86_400_000_000),
            _ => None,
        },
        "us, ms, s, m, h or d",
    )?;
    Ok(Duration::from_micros(micros))
}

/// Parses a size in bytes: `64KiB`, `16MiB`, `1GiB`, `100B`; units B, KiB, MiB, GiB, TiB.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    sum_of_units(
        text,
        |unit| match unit {
            "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            "TiB" => Some(1 << 40),
            _ => None,
        },
        "B, KiB, MiB, GiB or TiB",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        assert!(parse_duration("10").is_err());
        assert!(parse_duration("10 sec").is_err());
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert!(parse_size("64K").is_err());
        assert!(parse_size("99999999999999TiB").is_err());
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let text = "[log]\nsegmnt = \"1MiB\"\n";
        let result = read_document("f.toml", text, |root| {
            let mut log = root.section("log")?;
            let size = log.size("segment");
            log.finish();
            Some(size)
        });
        let shown = result.expect_err("must fail").to_string();
        assert!(shown.contains("unknown key `segmnt` in [log]"), "{shown}");
        assert!(shown.contains("f.toml:2:1"), "{shown}");
        assert!(shown.contains("did you mean `segment`?"), "{shown}");
    }

    #[test]
    fn positions_inside_a_string_map_to_the_document() {
        let text = "sql = \"\"\"\nSELECT x\n\"\"\"\n";
        let value = read_document("f.toml", text, |root| root.text("sql")).expect("reads");
        let span = value.locate(7..8);
        assert_eq!(text.get(span), Some("x"));
    }
}
