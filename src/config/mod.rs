//! The configuration: one TOML file, read and validated once; later code never checks again.
//!
//! [`parse`] finds everything that can be found without touching the outside, and reports all of it with file, line
//! and column. Connectors, formats and sinks read their own keys (`settings`); this module owns what belongs to no
//! one of them: names, references between tables, the order of queries.

mod flink;
mod plan;
mod table;
mod test;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::tz::TimeZone;
use thiserror::Error;

use crate::format::{EpochColumn, FormatConfig};
use crate::replay_log::{Compression, LogOptions};
use crate::settings::{Problem, Problems, Section, Text, line_column, nearest, read_document, suggestion};
use crate::sink::SinkConfig;
use crate::source::SourceConfig;
use crate::sql::pitfalls::pitfalls;
use crate::sql::plan::Plan;

/// A larger file is no configuration (a device, a log).
const FILE_BYTES_MAX: u64 = 16 << 20;

pub use plan::{SYSTEM_COLUMNS, Stream};
pub use table::Table;
pub use test::{Expected, InputOf, Test, TestInput};

pub use crate::sql::explain::Step;

/// A whole, valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file as it was named.
    pub file: String,
    /// Its text, kept whole in every checkpoint.
    pub text: String,
    pub pipeline: Pipeline,
    pub durability: Durability,
    pub checkpoint: CheckpointPolicy,
    pub log: LogPolicy,
    /// How long a start may wait for the clock to be set.
    pub wait_for_sync: Duration,
    pub sources: Vec<Source>,
    /// Lookup tables.
    pub tables: Vec<Table>,
    /// In topological order, ties by name.
    pub queries: Vec<Query>,
    pub sinks: Vec<Sink>,
    /// `[[test]]`: what `forebay test` runs.
    pub tests: Vec<Test>,
}

/// `[pipeline]`.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub name: String,
    pub state: PathBuf,
    pub time_zone: TimeZone,
    /// Queues, dirty state and state cache together.
    pub memory_bytes: u64,
    pub on_source_error: OnSourceError,
}

/// What to do when a source fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSourceError {
    Retry,
    Fail,
}

/// `[durability]`: a group commit comes when either is reached.
#[derive(Clone, Copy, Debug)]
pub struct Durability {
    pub delay: Duration,
    pub bytes: u64,
}

/// `[checkpoint]`: a checkpoint comes when either is reached.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointPolicy {
    pub every: Duration,
    pub log_bytes: u64,
}

/// `[log]`.
#[derive(Clone, Copy, Debug)]
pub struct LogPolicy {
    pub max_size_bytes: u64,
    pub segment_bytes: u64,
    pub when_full: WhenFull,
    pub compression: Compression,
}

/// What a log at its cap does with the messages of sources that cannot wait. Those that can always do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Nothing is read until a checkpoint has freed some of it.
    Block,
    /// The newest messages are dropped, counted, and leave a gap record.
    DropNewest,
}

/// `[source.NAME]`.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub connector: SourceConfig,
    pub format: FormatConfig,
    pub on_error: OnError,
    /// The declared columns, without the system columns.
    pub columns: Vec<crate::expr::Field>,
    /// Primary key: names of columns. With one the source is a versioned table for temporal joins.
    pub key: Vec<String>,
    pub time: SourceTime,
}

/// What to do with a message that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    DeadLetter,
    Stop,
}

/// `[source.NAME.time]`.
#[derive(Clone, Debug)]
pub struct SourceTime {
    /// Index of the time column; `None`: event time is the arrival.
    pub column: Option<usize>,
    /// The unit of times that are numbers.
    pub epoch: Option<EpochColumn>,
    pub max_out_of_orderness_ms: i64,
    /// `None`: never idle.
    pub idle: Option<Duration>,
    pub max_future_ms: Option<i64>,
}

/// `[query.NAME]`.
#[derive(Clone, Debug)]
pub struct Query {
    pub name: String,
    pub sql: Text,
    pub plan: Plan,
    /// What is known of a key is dropped when it was not used for so long of log time; `None`: never.
    pub state_ttl: Option<Duration>,
}

impl Query {
    /// What is valid and does not do what it seems to: line in the file `text`, and message.
    pub fn pitfalls(&self, text: &str) -> Vec<(usize, String)> {
        let found = pitfalls(&self.sql.value).into_iter();
        found.map(|it| (line_column(text, self.sql.locate(it.span).start).0, it.message)).collect()
    }
}

/// `[sink.NAME]`.
#[derive(Clone, Debug)]
pub struct Sink {
    pub name: String,
    pub connector: SinkConfig,
    pub from: Stream,
    /// Columns that the sink writes.
    pub fields: Vec<crate::expr::Field>,
    /// Index of each of them in the stream.
    pub columns: Vec<usize>,
}

/// Why there is no configuration. Exit code 78.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {source}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read the configuration {path}: it is a directory; name the file in it, as in {path}/forebay.toml")]
    Directory { path: String },
    #[error("{0}")]
    Invalid(Problems),
}

/// Reads and validates a configuration file.
///
/// # Errors
/// The file cannot be read, or everything that is wrong with it.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(
        |source| match source.kind() {
            std::io::ErrorKind::IsADirectory => ConfigError::Directory { path: name.clone() },
            _ => ConfigError::Read { path: name.clone(), source },
        },
    )?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let source = std::io::Error::new(std::io::ErrorKind::FileTooLarge, "it is larger than 16MiB");
        return Err(ConfigError::Read { path: name, source });
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let at = error.utf8_error().valid_up_to();
        let problem = Problem { message: "the file is not UTF-8".to_owned(), help: None, span: Some(at..at + 1) };
        ConfigError::Invalid(Problems { file: name.clone(), text, list: vec![problem] })
    })?;
    // Not of a configuration that a checkpoint keeps: by it the log's tail is still processed.
    let read = |root: &mut Section<'_>| {
        let config = read_root(&name, &text, root)?;
        plan::refuse_outputs_in_the_way(root, &config);
        Some(config)
    };
    read_document(&name, &text, read).map_err(ConfigError::Invalid)
}

/// Validates the text of a configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(file: &str, text: &str) -> Result<Config, Problems> {
    read_document(file, text, |root| read_root(file, text, root))
}

fn read_root(file: &str, text: &str, root: &mut Section<'_>) -> Option<Config> {
    let pipeline = match root.section("pipeline") {
        Some(section) => read_pipeline(section),
        None => {
            root.missing("pipeline", "[pipeline] with name = \"…\"");
            None
        }
    };
    let durability = read_durability(root);
    let checkpoint = read_checkpoint(root);
    let log = read_log(root);
    let wait_for_sync = root
        .section("clock")
        .map(|mut section| {
            let wait = section.duration("wait_for_sync");
            section.finish();
            wait.unwrap_or(Duration::ZERO)
        })
        .unwrap_or(Duration::ZERO);

    let mut names: BTreeMap<String, &'static str> = BTreeMap::new();
    let mut sources = Vec::new();
    let mut whole = true;
    for (name, section) in root.named_sections("source") {
        take_name(&section, &name, "source", &mut names);
        match read_source(&name.value, section, &log) {
            Some(source) => sources.push(source),
            None => whole = false,
        }
    }
    if sources.is_empty() && whole {
        root.problem(root.span(), "there is no source", Some("add a [source.NAME] table; see `forebay sample`".into()));
    }
    let mut tables = Vec::new();
    for (name, section) in root.named_sections("table") {
        take_name(&section, &name, "table", &mut names);
        match table::read_table(&name.value, section, &log) {
            Some(table) => tables.push(table),
            None => whole = false,
        }
    }
    let mut queries = Vec::new();
    let mut ttls = BTreeMap::new();
    for (name, mut section) in root.named_sections("query") {
        take_name(&section, &name, "query", &mut names);
        if !section.has("sql") {
            section.missing("sql", "sql = \"SELECT …\"");
        }
        let sql = section.text("sql");
        let state_ttl = section.duration("state_ttl").filter(|ttl| !ttl.is_zero());
        section.finish();
        match sql {
            Some(sql) => {
                ttls.insert(name.value.clone(), state_ttl);
                queries.push((name, sql));
            }
            None => whole = false,
        }
    }
    let mut queries = plan::plan_queries(root, (&sources, &tables), queries, whole);
    for (name, query) in &mut queries {
        if let Some(query) = query {
            query.state_ttl = ttls.get(name).copied().flatten();
        }
    }
    plan::default_idle(&mut sources, &queries);
    let mut sinks = Vec::new();
    let mut sink_names = BTreeMap::new();
    for (name, section) in root.named_sections("sink") {
        take_name(&section, &name, "sink", &mut sink_names);
        sinks.extend(read_sink(&name.value, section, &sources, &queries, &names));
    }
    plan::refuse_shared_outputs(root, &sinks);
    if sinks.is_empty() && whole && !root.has("sink") {
        let help = "add a [sink.NAME] table with `type`, `from` and what the type needs; see `forebay sample`";
        root.problem(root.span(), "there is no sink, so no result would go anywhere", Some(help.into()));
    }
    let tests = test::read_tests(root, (&sources, &tables), &queries, &names);
    Some(Config {
        file: file.to_owned(),
        text: text.to_owned(),
        pipeline: pipeline?,
        durability,
        checkpoint,
        log,
        wait_for_sync,
        sources,
        tables,
        queries: queries.into_iter().filter_map(|(_, query)| query).collect(),
        sinks,
        tests,
    })
}

fn take_name(section: &Section<'_>, name: &Text, kind: &'static str, names: &mut BTreeMap<String, &'static str>) {
    let mut chars = name.value.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !starts || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let message = format!("`{}` cannot be the name of a {kind}", name.value);
        let help = "a name is letters, digits and underscores, and does not start with a digit";
        section.problem(name.span.clone(), message, Some(help.into()));
    }
    if let Some(other) = names.insert(name.value.clone(), kind) {
        let message = format!("`{}` names a {other} and a {kind}", name.value);
        section.problem(name.span.clone(), message, Some("queries read both by name: rename one".into()));
    }
}

fn read_pipeline(mut section: Section<'_>) -> Option<Pipeline> {
    let name = section.required("name", "name = \"my-pipeline\"");
    if let Some(name) = &name {
        let valid = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !valid || name.is_empty() || name.len() > 64 {
            let help = "1 to 64 letters, digits, `-`, `_` and `.`";
            section.problem_at("name", format!("`{name}` cannot be the name of a pipeline"), Some(help.into()));
        }
    }
    let state = section.string("state").filter(|path| !path.is_empty());
    // systemd gives one or more directories, separated by colons.
    let given = std::env::var("STATE_DIRECTORY").ok();
    let given = given.as_deref().and_then(|list| list.split(':').next()).filter(|path| !path.is_empty());
    let state = PathBuf::from(state.as_deref().or(given).unwrap_or("state"));
    let time_zone = match section.string("time_zone") {
        None => TimeZone::UTC,
        Some(zone) => TimeZone::get(&zone).unwrap_or_else(|_| {
            let help = "an IANA name such as \"UTC\" or \"Europe/Berlin\"";
            section.problem_at("time_zone", format!("there is no time zone `{zone}`"), Some(help.into()));
            TimeZone::UTC
        }),
    };
    let memory_bytes = section.size("memory").unwrap_or(64 << 20);
    if memory_bytes < 8 << 20 {
        section.problem_at("memory", "`pipeline.memory` must be at least 8MiB", None);
    }
    let choices = [("retry", OnSourceError::Retry), ("fail", OnSourceError::Fail)];
    let on_source_error = section.choice("on_source_error", &choices).unwrap_or(OnSourceError::Retry);
    section.finish();
    Some(Pipeline { name: name?, state, time_zone, memory_bytes, on_source_error })
}

fn read_durability(root: &mut Section<'_>) -> Durability {
    let mut durability = Durability { delay: Duration::from_millis(100), bytes: 64 << 10 };
    if let Some(mut section) = root.section("durability") {
        durability.delay = section.duration("delay").unwrap_or(durability.delay);
        durability.bytes = section.size("bytes").unwrap_or(durability.bytes);
        if durability.delay > Duration::from_secs(60) {
            section.problem_at("delay", "`durability.delay` must be at most 60s", None);
        }
        section.finish();
    }
    durability
}

fn read_checkpoint(root: &mut Section<'_>) -> CheckpointPolicy {
    let mut policy = CheckpointPolicy { every: Duration::from_secs(10), log_bytes: 64 << 20 };
    if let Some(mut section) = root.section("checkpoint") {
        policy.every = section.duration("every").unwrap_or(policy.every);
        policy.log_bytes = section.size("log_bytes").unwrap_or(policy.log_bytes);
        if policy.every < Duration::from_millis(10) {
            section.problem_at("every", "`checkpoint.every` must be at least 10ms", None);
        }
        section.finish();
    }
    policy
}

fn read_log(root: &mut Section<'_>) -> LogPolicy {
    let mut policy = LogPolicy {
        max_size_bytes: 1 << 30,
        segment_bytes: 16 << 20,
        when_full: WhenFull::Block,
        compression: Compression::Lz4,
    };
    let Some(mut section) = root.section("log") else { return policy };
    policy.max_size_bytes = section.size("max_size").unwrap_or(policy.max_size_bytes);
    if policy.max_size_bytes < 1 << 20 {
        section.problem_at("max_size", "`log.max_size` must be at least 1MiB", None);
    }
    let largest = (policy.max_size_bytes / 8).max(64 << 10);
    let segment = section.size("segment");
    if segment.is_some_and(|segment| segment < 64 << 10 || segment > largest) {
        let message = format!("`log.segment` must be between 64KiB and an eighth of `log.max_size` ({largest}B)");
        section.problem_at("segment", message, None);
    }
    policy.segment_bytes = segment.unwrap_or(policy.segment_bytes.min(largest)) & !4095;
    let choices = [("block", WhenFull::Block), ("drop_newest", WhenFull::DropNewest)];
    policy.when_full = section.choice("when_full", &choices).unwrap_or(policy.when_full);
    let choices = [("lz4", Compression::Lz4), ("none", Compression::None)];
    policy.compression = section.choice("compression", &choices).unwrap_or(policy.compression);
    section.finish();
    policy
}

/// A source with a problem is none, so that queries over it do not report its consequences.
fn read_source(name: &str, mut section: Section<'_>, limits: &LogPolicy) -> Option<Source> {
    let before = section.problems();
    // Without its type nothing else of the table can be judged.
    let kind = section.required("type", "type = \"tcp\"")?;
    let mut connector = SourceConfig::read(&kind, &mut section)?;
    let longest = LogOptions { segment_bytes: limits.segment_bytes, ..LogOptions::default() }.max_record_bytes();
    if !section.has("max_length") {
        connector.limit_messages(longest);
    }
    let format = FormatConfig::read_input(&mut section);
    let choices = [("dead_letter", OnError::DeadLetter), ("stop", OnError::Stop)];
    let on_error = section.choice("on_error", &choices).unwrap_or(OnError::DeadLetter);
    let columns = plan::read_columns(&mut section);
    let key = plan::read_key(&mut section, columns.as_deref().unwrap_or_default());
    let time = plan::read_time(&mut section, columns.as_deref().unwrap_or_default(), &connector);
    if let (Some(format), Some(columns)) = (&format, &columns)
        && let Err(why) = format.check(columns)
    {
        section.problem_at("columns", why, None);
    }
    if connector.message_bytes_max() > longest {
        let message = format!(
            "messages of up to {} bytes do not fit a log segment of {} bytes",
            connector.message_bytes_max(),
            limits.segment_bytes
        );
        let help = format!("set `max_length = \"{}KiB\"` here, or a larger `log.segment`", longest >> 10);
        section.problem_at("max_length", message, Some(help));
    }
    let whole = section.problems() == before;
    section.finish();
    let source =
        Source { name: name.to_owned(), connector, format: format?, on_error, columns: columns?, key, time: time? };
    whole.then_some(source)
}

/// What to write instead of a stream that does not exist; `None` where its source has an error of its own.
fn stream_help(from: &str, sources: &[Source], names: &BTreeMap<String, &'static str>) -> Option<String> {
    let base = from.split('.').next().unwrap_or_default();
    if names.get(base) == Some(&"source") && !sources.iter().any(|source| source.name == base) {
        return None;
    }
    Some(match nearest(base, names.keys().map(String::as_str)) {
        Some(near) if near != base => format!("did you mean `{near}`?"),
        _ => {
            let mut all: Vec<&str> = names.keys().map(String::as_str).collect();
            all.extend(["QUERY.late", "QUERY.errors", "SOURCE.dead"]);
            suggestion(from, &all)
        }
    })
}

fn read_sink(
    name: &str,
    mut section: Section<'_>,
    sources: &[Source],
    queries: &[(String, Option<Query>)],
    names: &BTreeMap<String, &'static str>,
) -> Option<Sink> {
    let from = section.required("from", "from = \"QUERY\"");
    let from = from.and_then(|from| match plan::resolve_stream(&from, sources, queries) {
        plan::Resolved::Stream(stream, fields, columns) => Some((stream, fields, columns)),
        plan::Resolved::Broken => None,
        plan::Resolved::Updates => {
            section.problem_at("from", crate::sql::UPDATES, Some(crate::sql::updates_help(&from)));
            None
        }
        plan::Resolved::Unknown => {
            let help = stream_help(&from, sources, names)?;
            section.problem_at("from", format!("`{from}` names nothing that a sink can read"), Some(help));
            None
        }
    });
    let kind = section.required("type", "type = \"file\"")?;
    let connector = SinkConfig::read(&kind, &mut section)?;
    if let Some((_, fields, _)) = &from
        && let Err(why) = connector.check(fields)
    {
        section.problem_at("format", why, None);
    }
    section.finish();
    let (from, fields, columns) = from?;
    Some(Sink { name: name.to_owned(), connector, from, fields, columns })
}
