//! `[[test]]`: rows that go in and the rows that must come out, for `forebay test`.
//!
//! Everything that names something (sources, streams, columns) is checked here, so that a test that cannot mean
//! anything is an error of the configuration and not a failed test.

use std::collections::BTreeMap;

use super::{Query, Source, Stream, Table, plan, stream_help};
use crate::event::LogTime;
use crate::expr::Field;
use crate::settings::{Section, Text, nearest, suggestion};

/// One `[[test]]`.
#[derive(Clone, Debug)]
pub struct Test {
    pub name: String,
    /// In the order of the log.
    pub inputs: Vec<TestInput>,
    pub expected: Vec<Expected>,
    /// Whether all sources end after the inputs, so that all windows fire.
    pub end: bool,
}

/// One `[[test.input]]`: messages of a source, or time that passes.
#[derive(Clone, Debug)]
pub struct TestInput {
    /// When it arrives; `None`: together with the input before.
    pub at: Option<LogTime>,
    /// Where the messages go, and they; `None`: only time passes.
    pub messages: Option<(InputOf, Vec<String>)>,
}

/// What an input is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputOf {
    /// Index of the source.
    Source(usize),
    /// Index of the lookup table; the rows are its new content.
    Table(usize),
}

/// The rows that a stream must give, in this order.
#[derive(Clone, Debug)]
pub struct Expected {
    pub stream: Stream,
    /// Its visible columns, and the index of each in the stream.
    pub fields: Vec<Field>,
    pub columns: Vec<usize>,
    /// JSON objects.
    pub rows: Vec<String>,
}

/// What the tests' names can refer to.
struct Known<'a> {
    sources: &'a [Source],
    tables: &'a [Table],
    queries: &'a [(String, Option<Query>)],
    names: &'a BTreeMap<String, &'static str>,
}

/// Reads all `[[test]]`s; what is wrong with one is reported.
pub(super) fn read_tests(
    root: &mut Section<'_>,
    (sources, tables): (&[Source], &[Table]),
    queries: &[(String, Option<Query>)],
    names: &BTreeMap<String, &'static str>,
) -> Vec<Test> {
    let known = Known { sources, tables, queries, names };
    let mut tests: Vec<Test> = Vec::new();
    for mut section in root.sections("test") {
        let name = section.required("name", "name = \"a hot reading is counted\"");
        let inputs = section.sections("input").into_iter().filter_map(|input| known.input(input)).collect();
        let expect = section.named_lines("expect");
        if expect.is_empty() && !section.has("expect") {
            section.missing("expect", "[test.expect] with QUERY = ['{…}'], the rows that must come out");
        }
        let expected =
            expect.into_iter().filter_map(|(stream, rows)| known.expected(&section, &stream, rows)).collect();
        let end = section.boolean("end").unwrap_or(true);
        if let Some(name) = name {
            if tests.iter().any(|test| test.name == name) {
                section.problem_at("name", format!("there are two tests with the name \"{name}\""), None);
            }
            tests.push(Test { name, inputs, expected, end });
        }
        section.finish();
    }
    tests
}

impl Known<'_> {
    fn input(&self, mut section: Section<'_>) -> Option<TestInput> {
        let at = section.string("at").and_then(|text| match text.parse::<jiff::Timestamp>() {
            Ok(time) => Some(LogTime(time.as_microsecond())),
            Err(_) => {
                let help = "write for example \"2026-04-02T00:00:00Z\"";
                section.problem_at("at", format!("`at` cannot be \"{text}\": it is no time"), Some(help.into()));
                None
            }
        });
        let rows = section.lines("rows");
        if !section.has("source") {
            if !section.has("at") || section.has("rows") {
                section.missing("source", "source = \"NAME\"");
            }
            section.finish();
            return Some(TestInput { at, messages: None });
        }
        let source = section.string("source")?;
        if !section.has("rows") {
            section.missing("rows", "rows = ['…'], messages in the source's own format");
        }
        let table = self.tables.iter().position(|known| known.name == source).map(InputOf::Table);
        let found = self.sources.iter().position(|known| known.name == source).map(InputOf::Source).or(table);
        // A source with an error of its own is no second problem.
        if found.is_none() && !matches!(self.names.get(&source), Some(&("source" | "table"))) {
            let tables = self.tables.iter().map(|table| table.name.as_str());
            let names: Vec<&str> = self.sources.iter().map(|source| source.name.as_str()).chain(tables).collect();
            section.problem_at("source", format!("there is no source `{source}`"), Some(suggestion(&source, &names)));
        }
        section.finish();
        let rows = rows?.into_iter().map(|row| row.value).collect();
        Some(TestInput { at, messages: Some((found?, rows)) })
    }

    fn expected(&self, section: &Section<'_>, stream: &Text, rows: Vec<Text>) -> Option<Expected> {
        let (stream, fields, columns) = match plan::resolve_stream(&stream.value, self.sources, self.queries) {
            plan::Resolved::Stream(stream, fields, columns) => (stream, fields, columns),
            plan::Resolved::Broken => return None,
            plan::Resolved::Updates => {
                let help = crate::sql::updates_help(&stream.value);
                section.problem(stream.span.clone(), crate::sql::UPDATES, Some(help));
                return None;
            }
            plan::Resolved::Unknown => {
                let help = stream_help(&stream.value, self.sources, self.names)?;
                let message = format!("`{}` names nothing whose rows a test can expect", stream.value);
                section.problem(stream.span.clone(), message, Some(help));
                return None;
            }
        };
        for row in &rows {
            match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&row.value) {
                Ok(object) => {
                    let names = || fields.iter().map(|field| field.name.as_str());
                    if let Some(column) = object.keys().find(|column| !names().any(|name| name == **column)) {
                        let help = match nearest(column, names()) {
                            Some(near) => format!("did you mean `{near}`?"),
                            None => format!("its columns: {}", names().collect::<Vec<_>>().join(", ")),
                        };
                        let message = format!("`{stream}` has no column `{column}`");
                        section.problem(row.span.clone(), message, Some(help));
                    }
                }
                Err(error) => {
                    let message = format!("an expected row must be a JSON object: {error}");
                    let help = "write it as the json sink prints it: '{\"device\":\"a\",\"n\":1}'";
                    section.problem(row.span.clone(), message, Some(help.into()));
                }
            }
        }
        Some(Expected { stream, fields, columns, rows: rows.into_iter().map(|row| row.value).collect() })
    }
}
