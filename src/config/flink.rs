//! The pipeline as a script for Flink's SQL client: the way up when one box is not enough.
//!
//! Queries are views with their text unchanged. What has no equivalent there (connectors, system columns, side outputs,
//! Forebay's own functions) is marked by a comment that begins with [`LACKS`]; nothing is left out silently.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{Config, OnError, Query, SYSTEM_COLUMNS, Sink, Source, Stream, Table};
use crate::expr::Field;
use crate::expr::aggregate::AggregateKind;
use crate::format::FormatConfig;
use crate::sink::SinkConfig;
use crate::source::SourceConfig;
use crate::sql::plan::{Node, Plan, WindowKind};
use crate::sql::portable;

/// How a comment on what Flink does not have begins.
const LACKS: &str = "-- Flink lacks";

impl Config {
    /// Statements that run the pipeline on a Flink 2.3 cluster.
    pub fn flink_script(&self) -> String {
        let mut script = format!("-- Pipeline {} for the SQL client of Flink 2.3.\n\n", self.pipeline.name);
        let zone = self.pipeline.time_zone.iana_name().unwrap_or("UTC");
        for (key, value) in [
            ("pipeline.name", self.pipeline.name.as_str()),
            ("execution.runtime-mode", "streaming"),
            ("table.local-time-zone", zone),
        ] {
            let _ = writeln!(script, "SET '{key}' = {};", string(value));
        }
        script +=
            "-- A watermark after every row, as Forebay has it.\nSET 'pipeline.auto-watermark-interval' = '0 ms';\n";
        self.idleness(&mut script);
        for source in &self.sources {
            script.push('\n');
            script += &self.source_table(source);
        }
        for table in &self.tables {
            script.push('\n');
            script += &lookup_table(table);
        }
        for query in &self.queries {
            script.push('\n');
            script += &view(query);
        }
        let mut inserts = String::new();
        for sink in &self.sinks {
            script.push('\n');
            script += &self.sink_table(sink, &mut inserts);
        }
        if !inserts.is_empty() {
            let _ = write!(script, "\nEXECUTE STATEMENT SET\nBEGIN\n{inserts}END;\n");
        }
        script
    }

    fn idleness(&self, script: &mut String) {
        let mut idle: Vec<u128> =
            self.sources.iter().filter_map(|s| s.time.idle).map(|idle| idle.as_millis()).collect();
        idle.sort_unstable();
        idle.dedup();
        if idle.len() > 1 {
            let _ = writeln!(script, "{LACKS} one idleness per table of this connector: here is the longest.");
        }
        if let Some(longest) = idle.last() {
            let _ = writeln!(script, "SET 'table.exec.source.idle-timeout' = '{longest} ms';");
        }
    }

    fn source_table(&self, source: &Source) -> String {
        let mut text = format!("-- Source {}: {}, {}\n", source.name, source.connector, source.format.name());
        let mut options = vec![("connector", "filesystem".to_owned())];
        match &source.connector {
            SourceConfig::File(file) => options.push(("path", file.path.clone())),
            _ => {
                let _ = writeln!(text, "{LACKS} this source: put a connector here that brings the same messages.");
                options.push(("path", format!("/replace/{}", source.name)));
            }
        }
        if source.time.max_future_ms.is_some() {
            let _ = writeln!(text, "{LACKS} `max_future`: a time far ahead closes all windows up to it.");
        }
        if source.on_error == OnError::DeadLetter {
            let _ = writeln!(text, "{LACKS} {}.dead: what cannot be decoded is dropped.", source.name);
        }
        if let Some(column) = source.time.epoch.and_then(|epoch| source.columns.get(epoch.column)) {
            let column = identifier(&column.name);
            let _ = writeln!(
                text,
                "{LACKS} times that are numbers: declare {column} BIGINT and make a TIMESTAMP_LTZ column of it."
            );
        }
        format_options(&source.format, source.on_error == OnError::DeadLetter, &mut text, &mut options);
        let mut lines: Vec<String> = source.columns.iter().map(column).collect();
        lines.extend(self.system_columns(source));
        if let Some(time) = source.time.column.and_then(|time| source.columns.get(time)) {
            let time = identifier(&time.name);
            let bound = interval(source.time.max_out_of_orderness_ms);
            lines.push(format!("WATERMARK FOR {time} AS {time} - {bound}"));
        }
        if !source.key.is_empty() {
            lines.push(primary_key(&source.key));
        }
        text + &create_table(&source.name, &lines, &options)
    }

    /// Computed columns in place of the system columns that are read.
    fn system_columns(&self, source: &Source) -> Vec<String> {
        let schema = source.schema();
        let time = schema.time.and_then(|time| schema.fields.get(time)).map(|field| field.name.clone());
        let read = |name: &str| {
            let both = |sql: &str| portable::mentions(sql, name) && portable::mentions(sql, &source.name);
            self.queries.iter().any(|query| both(&query.sql.value))
        };
        let lines = SYSTEM_COLUMNS.into_iter().filter(|name| time.as_deref() == Some(name) || read(name)).map(|name| {
            let column = identifier(name);
            match name {
                "_arrival" => format!(
                    "{LACKS} {name}: this is the time at which Flink processes the row.\n  {column} AS PROCTIME()"
                ),
                "_lsn" => format!("{LACKS} {name}.\n  {column} AS CAST(NULL AS BIGINT)"),
                _ => format!("{LACKS} {name}.\n  {column} AS CAST(NULL AS STRING)"),
            }
        });
        lines.collect()
    }

    fn sink_table(&self, sink: &Sink, inserts: &mut String) -> String {
        let mut text = format!("-- Sink {} ← {}: {}\n", sink.name, sink.from, sink.connector.describe());
        let (Stream::Query(from) | Stream::Source(from)) = &sink.from else {
            return text + &format!("{LACKS} {}: such rows are dropped, or fail the job.\n", sink.from);
        };
        // Sinks have names of their own here; there all tables share one space.
        let mut name = format!("sink_{}", sink.name);
        let taken = self.logged_names();
        while taken.contains(&name) || self.queries.iter().any(|query| query.name == name) {
            name.push('_');
        }
        let mut options = Vec::new();
        match &sink.connector {
            SinkConfig::Stdout(_) => options.push(("connector", "print".to_owned())),
            SinkConfig::File(file) => {
                text += "-- There the path is a directory of files.\n";
                options.push(("connector", "filesystem".to_owned()));
                options.push(("path", file.path.display().to_string()));
                format_options(&file.format, false, &mut text, &mut options);
            }
        }
        let columns: Vec<String> = sink.fields.iter().map(column).collect();
        let names: Vec<String> = sink.fields.iter().map(|field| identifier(&field.name)).collect();
        let _ = writeln!(
            inserts,
            "INSERT INTO {} SELECT {} FROM {};",
            identifier(&name),
            names.join(", "),
            identifier(from)
        );
        text + &create_table(&name, &columns, &options)
    }
}

fn lookup_table(table: &Table) -> String {
    let mut text = format!("-- Table {}: file {}\n", table.name, table.path.display());
    let _ = writeln!(text, "{LACKS} lookups in a file: put a connector here that has the same rows and takes lookups.");
    let mut options = vec![("connector", "filesystem".to_owned()), ("path", table.path.display().to_string())];
    format_options(&table.format, false, &mut text, &mut options);
    let mut lines: Vec<String> = table.columns.iter().map(column).collect();
    lines.push(primary_key(&table.key));
    text + &create_table(&table.name, &lines, &options)
}

fn primary_key(key: &[String]) -> String {
    let key: Vec<String> = key.iter().map(|column| identifier(column)).collect();
    format!("PRIMARY KEY ({}) NOT ENFORCED", key.join(", "))
}

fn view(query: &Query) -> String {
    let mut text = String::new();
    for function in portable::beyond_flink(&query.sql.value) {
        let _ = writeln!(text, "{LACKS} {function} over streams: the view needs another form there.");
    }
    let mut unmergeable = BTreeSet::new();
    note_unmergeable(&query.plan, &mut unmergeable);
    for function in unmergeable {
        let _ = writeln!(text, "{LACKS} {function} over HOP and CUMULATE: the view needs another form there.");
    }
    let statement = portable::without_semicolon(&query.sql.value);
    // A comment that ends the query must not take the semicolon.
    let end = if statement.lines().last().is_some_and(|line| line.contains("--")) { "\n;" } else { ";" };
    let _ = writeln!(text, "CREATE VIEW {} AS\n{statement}{end}", identifier(&query.name));
    text
}

/// The aggregates of overlapping windows that Flink cannot merge from slices.
fn note_unmergeable(plan: &Plan, found: &mut BTreeSet<&'static str>) {
    if let Node::WindowAggregate { window, aggregates, .. } = &plan.node
        && matches!(window.kind, WindowKind::Hop { .. } | WindowKind::Cumulate { .. })
    {
        found.extend(aggregates.iter().filter_map(|call| match call.kind {
            AggregateKind::FirstValue => Some("FIRST_VALUE"),
            AggregateKind::LastValue => Some("LAST_VALUE"),
            AggregateKind::JsonArrayAgg => Some("JSON_ARRAYAGG"),
            _ => None,
        }));
    }
    plan.inputs().into_iter().for_each(|input| note_unmergeable(input, found));
}

fn create_table(name: &str, lines: &[String], options: &[(&str, String)]) -> String {
    let options: Vec<String> = options.iter().map(|(key, value)| format!("  '{key}' = {}", string(value))).collect();
    format!("CREATE TABLE {} (\n  {}\n) WITH (\n{}\n);\n", identifier(name), lines.join(",\n  "), options.join(",\n"))
}

fn column(field: &Field) -> String {
    format!("{} {}", identifier(&field.name), field.data_type)
}

fn format_options(format: &FormatConfig, skips: bool, text: &mut String, options: &mut Vec<(&'static str, String)>) {
    options.push(("format", format.name().to_owned()));
    match format {
        FormatConfig::Json => {
            options.push(("json.timestamp-format.standard", "ISO-8601".to_owned()));
            if skips {
                options.push(("json.ignore-parse-errors", "true".to_owned()));
            }
        }
        FormatConfig::Csv(csv) => {
            if csv.header {
                let _ = writeln!(text, "{LACKS} the header line of CSV.");
            }
            let separator =
                if csv.separator == b'\t' { "\\t".to_owned() } else { char::from(csv.separator).to_string() };
            options.push(("csv.field-delimiter", separator));
            options.push(("csv.quote-character", char::from(csv.quote).to_string()));
            if let Some(null) = &csv.null {
                options.push(("csv.null-literal", null.clone()));
            }
            if skips {
                options.push(("csv.ignore-parse-errors", "true".to_owned()));
            }
        }
        FormatConfig::Raw => {}
    }
}

fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn string(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// An INTERVAL literal: two digits of the largest unit that holds it exactly, else seconds with their digits declared.
fn interval(ms: i64) -> String {
    for (unit_ms, unit) in [(86_400_000, "DAY"), (3_600_000, "HOUR"), (60_000, "MINUTE"), (1000, "SECOND")] {
        if ms >= unit_ms && ms % unit_ms == 0 && ms / unit_ms < 100 {
            return format!("INTERVAL '{}' {unit}", ms / unit_ms);
        }
    }
    let seconds = (ms / 1000).to_string();
    let precision = if seconds.len() > 2 { format!("({}, 3)", seconds.len()) } else { String::new() };
    match ms % 1000 {
        0 => format!("INTERVAL '{seconds}' SECOND{precision}"),
        rest => format!("INTERVAL '{seconds}.{rest:03}' SECOND{precision}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_exact() {
        let shown = [2000, 1, 600_000, 150_000, 100_000, 7_200_000, 123_456_789, 0].map(interval);
        let wanted = [
            "INTERVAL '2' SECOND",
            "INTERVAL '0.001' SECOND",
            "INTERVAL '10' MINUTE",
            "INTERVAL '150' SECOND(3, 3)",
            "INTERVAL '100' SECOND(3, 3)",
            "INTERVAL '2' HOUR",
            "INTERVAL '123456.789' SECOND(6, 3)",
            "INTERVAL '0' SECOND",
        ];
        assert_eq!(shown, wanted);
    }
}
