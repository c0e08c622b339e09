//! What spans tables: schemas of sources, the order and plans of queries, the streams that sinks read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::{Query, Sink, Source, SourceTime, Table};
use crate::expr::{DataType, Field, Schema};
use crate::format::{EpochColumn, EpochUnit};
use crate::operator::{ErrorRows, LateRows};
use crate::replay_log::format::max_frame_bytes;
use crate::settings::{Section, Text, nearest};
use crate::source::SourceConfig;
use crate::sql::plan::{Node, Plan};
use crate::sql::{Catalog, plan_query};

/// Names of the system columns of every source, in the order in which they follow the declared columns.
pub const SYSTEM_COLUMNS: [&str; 3] = ["_arrival", "_lsn", "_peer"];

/// How long a source that others wait for may be silent, where nothing is said.
const IDLE_DEFAULT: Duration = Duration::from_secs(30);

/// A stream that a sink can read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    Source(String),
    Query(String),
    /// `SOURCE.dead`: undecodable input.
    Dead(String),
    /// `QUERY.late`: rows that came after their window was over.
    Late(String),
    /// `QUERY.errors`: rows on which an expression failed.
    Errors(String),
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stream::Source(name) | Stream::Query(name) => f.write_str(name),
            Stream::Dead(name) => write!(f, "{name}.dead"),
            Stream::Late(name) => write!(f, "{name}.late"),
            Stream::Errors(name) => write!(f, "{name}.errors"),
        }
    }
}

impl Source {
    /// All columns, system columns last and hidden; the time attribute is the declared one or the arrival.
    pub fn schema(&self) -> Schema {
        let mut fields = self.columns.clone();
        let types = [DataType::TimestampLtz(3), DataType::BigInt, DataType::String];
        for (name, data_type) in SYSTEM_COLUMNS.iter().zip(types) {
            fields.push(Field { name: (*name).to_owned(), data_type, hidden: true });
        }
        Schema { fields, time: Some(self.time.column.unwrap_or(self.columns.len())) }
    }

    /// Columns of `SOURCE.dead`.
    pub fn dead_fields() -> Vec<Field> {
        vec![
            Field::new("_arrival", DataType::TimestampLtz(3)),
            Field::new("_lsn", DataType::BigInt),
            Field::new("_peer", DataType::String),
            Field::new("reason", DataType::String),
            Field::new("raw", DataType::Bytes),
        ]
    }
}

impl Query {
    /// What `state_ttl` does to the query, as a sentence.
    pub fn retention(&self) -> Option<String> {
        let ttl = crate::sql::explain::duration_text(self.state_ttl?);
        Some(match self.plan.bounded_by_keys().is_empty() {
            true => format!("state_ttl {ttl}: nothing here is bounded by keys alone, so it changes nothing"),
            false => format!(
                "state_ttl {ttl}: what is bounded by keys alone is forgotten for a key that was not used for {ttl} of log time"
            ),
        })
    }
}

pub(super) fn read_columns(section: &mut Section<'_>) -> Option<Vec<Field>> {
    if !section.has("columns") {
        section.missing("columns", "columns = { ts = \"TIMESTAMP_LTZ(3)\", value = \"DOUBLE\" }");
    }
    let list = section.named_texts("columns")?;
    if list.is_empty() {
        section.problem_at("columns", "a source needs at least one column", None);
        return None;
    }
    let mut fields = Vec::new();
    for (name, declared) in list {
        if SYSTEM_COLUMNS.contains(&name.value.as_str()) {
            let message = format!("`{}` is a system column of every source and cannot be declared", name.value);
            section.problem(name.span, message, Some("rename the column".into()));
            continue;
        }
        match crate::sql::parse_type(&declared.value) {
            Ok(data_type) => fields.push(Field::new(name.value, data_type)),
            Err(error) => section.problem(declared.locate(error.span), error.message, error.help),
        }
    }
    Some(fields)
}

/// `key = ["device"]`.
pub(super) fn read_key(section: &mut Section<'_>, columns: &[Field]) -> Vec<String> {
    let key = section.strings("key").unwrap_or_default();
    for (index, column) in key.iter().enumerate() {
        if key.iter().take(index).any(|earlier| earlier == column) {
            section.problem_at("key", format!("`key` names `{column}` twice"), None);
        }
        if !columns.is_empty() && !columns.iter().any(|field| field.name == *column) {
            let help = nearest(column, columns.iter().map(|field| field.name.as_str()));
            let help = help.map(|near| format!("did you mean `{near}`?"));
            section.problem_at("key", format!("there is no column `{column}`"), help);
        }
    }
    key
}

pub(super) fn read_time(section: &mut Section<'_>, columns: &[Field], connector: &SourceConfig) -> Option<SourceTime> {
    let mut time =
        SourceTime { column: None, epoch: None, max_out_of_orderness_ms: 1, idle: None, max_future_ms: None };
    let Some(mut section) = section.section("time") else { return Some(time) };
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
    let column = section.required("column", "column = \"ts\"");
    if let Some(column) = column {
        match columns.iter().position(|field| field.name == column) {
            Some(index) => {
                let declared = columns.get(index).map(|field| &field.data_type);
                if let Some(other) = declared.filter(|t| !t.is_timestamp()) {
                    let message = format!("the time column `{column}` must be a timestamp, not {other}");
                    let help = "declare it TIMESTAMP_LTZ(3); for numbers add `unit = \"ms\"` to the time table";
                    section.problem_at("column", message, Some(help.into()));
                }
                time.column = Some(index);
            }
            None if columns.is_empty() => {}
            None => {
                let help = nearest(&column, columns.iter().map(|field| field.name.as_str()));
                let help = help.map(|near| format!("did you mean `{near}`?"));
                section.problem_at("column", format!("there is no column `{column}`"), help);
            }
        }
    }
    let unit = section.choice("unit", &EpochUnit::CHOICES);
    time.epoch = unit.zip(time.column).map(|(unit, column)| EpochColumn { column, unit });
    if let Some(bound) = section.duration("max_out_of_orderness") {
        time.max_out_of_orderness_ms = millis(bound);
    }
    time.idle = section.duration("idle").filter(|idle| !idle.is_zero());
    if connector.is_bounded() && time.idle.is_some() {
        let message = "a bounded source is never idle: it ends";
        section.problem_at("idle", message, Some("remove `idle`".into()));
    }
    time.max_future_ms = section.duration("max_future").map(millis);
    section.finish();
    Some(time)
}

/// Orders the queries, plans each, and reports what is wrong. A query that cannot be planned is `None`.
pub(super) fn plan_queries(
    root: &Section<'_>,
    (sources, tables): (&[Source], &[Table]),
    queries: Vec<(Text, Text)>,
    whole: bool,
) -> Vec<(String, Option<Query>)> {
    let mut catalog = Catalog::default();
    for source in sources {
        catalog.add(&source.name, source.schema());
        if !source.key.is_empty() {
            catalog.add_key(&source.name, source.key.clone());
        }
    }
    for table in tables {
        catalog.add_lookup(&table.name, table.schema(), table.key.clone());
    }
    let mut reads: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut broken = BTreeSet::new();
    for (name, sql) in &queries {
        match crate::sql::dependencies(&sql.value) {
            Ok(list) => {
                reads.insert(name.value.clone(), list.into_iter().collect());
            }
            Err(error) => {
                root.problem(sql.locate(error.span), error.message, error.help);
                broken.insert(name.value.clone());
                reads.insert(name.value.clone(), BTreeSet::new());
            }
        }
    }
    let by_name: BTreeMap<String, (Text, Text)> =
        queries.into_iter().map(|(name, sql)| (name.value.clone(), (name, sql))).collect();
    let mut planned: Vec<(String, Option<Query>)> = Vec::new();
    // Kahn's algorithm over names in order: topological, ties by name.
    while planned.len() < by_name.len() {
        let done: BTreeSet<&String> = planned.iter().map(|(name, _)| name).collect();
        let ready = reads.iter().find(|(name, reads)| {
            !done.contains(name) && reads.iter().all(|read| !by_name.contains_key(read) || done.contains(read))
        });
        let Some(name) = ready.map(|(name, _)| name.clone()) else {
            report_cycle(root, &by_name, &reads, &done);
            planned.extend(
                by_name.keys().filter(|name| !done.contains(name)).map(|n| (n.clone(), None)).collect::<Vec<_>>(),
            );
            break;
        };
        let Some((_, sql)) = by_name.get(&name) else { break };
        let upstream_broken = reads.get(&name).is_some_and(|reads| {
            reads.iter().any(|read| {
                planned.iter().any(|(other, query)| other == read && query.is_none())
                    || (!whole && !by_name.contains_key(read) && catalog.schema(read).is_none())
            })
        });
        let mut query = None;
        if !broken.contains(&name) && !upstream_broken {
            match plan_query(&sql.value, &catalog) {
                Ok(plan) => {
                    catalog.add_query(&name, &plan);
                    query = Some(Query { name: name.clone(), sql: sql.clone(), plan, state_ttl: None });
                }
                Err(errors) => {
                    for error in errors {
                        root.problem(sql.locate(error.span), error.message, error.help);
                    }
                }
            }
        }
        planned.push((name, query));
    }
    planned
}

fn report_cycle(
    root: &Section<'_>,
    by_name: &BTreeMap<String, (Text, Text)>,
    reads: &BTreeMap<String, BTreeSet<String>>,
    done: &BTreeSet<&String>,
) {
    let Some(mut name) = by_name.keys().find(|name| !done.contains(name)) else { return };
    // Every query that is left reads one that is left, so the walk must come back to a name.
    let mut path: Vec<&String> = Vec::new();
    while !path.contains(&name) {
        path.push(name);
        let next =
            reads.get(name).and_then(|reads| reads.iter().find(|r| by_name.contains_key(*r) && !done.contains(r)));
        match next {
            Some(next) => name = next,
            None => return,
        }
    }
    let start = path.iter().position(|p| *p == name).unwrap_or(0);
    let mut shown: Vec<&str> = path.iter().skip(start).map(|name| name.as_str()).collect();
    shown.push(name);
    if let Some((text, _)) = by_name.get(name) {
        let message = format!("queries read each other in a circle: {}", shown.join(" → "));
        root.problem(text.span.clone(), message, Some("a query can only read sources and queries before it".into()));
    }
}

/// Gives unbounded sources that meet another source the default idleness.
pub(super) fn default_idle(sources: &mut [Source], queries: &[(String, Option<Query>)]) {
    let mut roots: BTreeMap<String, BTreeSet<String>> =
        sources.iter().map(|s| (s.name.clone(), BTreeSet::from([s.name.clone()]))).collect();
    let mut meeting = BTreeSet::new();
    for (name, query) in queries {
        let Some(query) = query else { continue };
        let below = sources_below(&query.plan, &roots, &mut meeting);
        roots.insert(name.clone(), below);
    }
    for source in sources {
        let meets = meeting.contains(&source.name);
        if meets && source.time.idle.is_none() && source.time.column.is_some() && !source.connector.is_bounded() {
            source.time.idle = Some(IDLE_DEFAULT);
        }
    }
}

fn sources_below(
    plan: &Plan,
    roots: &BTreeMap<String, BTreeSet<String>>,
    meeting: &mut BTreeSet<String>,
) -> BTreeSet<String> {
    if let Node::Scan { relation } = &plan.node {
        return roots.get(relation).cloned().unwrap_or_default();
    }
    let inputs = plan.inputs();
    let all: BTreeSet<String> = inputs.iter().flat_map(|input| sources_below(input, roots, meeting)).collect();
    if inputs.len() > 1 && all.len() > 1 {
        meeting.extend(all.iter().cloned());
    }
    all
}

/// What `from` names.
pub(super) enum Resolved {
    Stream(Stream, Vec<Field>, Vec<usize>),
    /// It exists, but has an error of its own that is reported already.
    Broken,
    /// A query whose rows take the place of earlier ones.
    Updates,
    Unknown,
}

pub(super) fn resolve_stream(from: &str, sources: &[Source], queries: &[(String, Option<Query>)]) -> Resolved {
    let whole = |stream: Stream, fields: Vec<Field>| {
        let visible: Vec<usize> =
            fields.iter().enumerate().filter(|(_, field)| !field.hidden).map(|(index, _)| index).collect();
        let fields = fields.into_iter().filter(|field| !field.hidden).collect();
        Resolved::Stream(stream, fields, visible)
    };
    let (base, side) = from.split_once('.').map_or((from, None), |(base, side)| (base, Some(side)));
    if let Some(source) = sources.iter().find(|source| source.name == base) {
        return match side {
            None => whole(Stream::Source(base.to_owned()), source.schema().fields),
            Some("dead") => whole(Stream::Dead(base.to_owned()), Source::dead_fields()),
            Some(_) => Resolved::Unknown,
        };
    }
    match (queries.iter().find(|(name, _)| name == base), side) {
        (Some((_, None)), _) => Resolved::Broken,
        (Some((_, Some(query))), None) if query.plan.gives_updates() => Resolved::Updates,
        (Some((_, Some(query))), None) => whole(Stream::Query(base.to_owned()), query.plan.schema.fields.clone()),
        (Some(_), Some("late")) => whole(Stream::Late(base.to_owned()), LateRows::fields()),
        (Some(_), Some("errors")) => whole(Stream::Errors(base.to_owned()), ErrorRows::fields()),
        _ => Resolved::Unknown,
    }
}

/// Two sinks cannot write one file.
pub(super) fn refuse_shared_outputs(root: &Section<'_>, sinks: &[Sink]) {
    let mut taken: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for sink in sinks {
        for path in sink.connector.paths() {
            if let Some(other) = taken.insert(plain(path), &sink.name) {
                let message = format!("the sinks `{other}` and `{}` both write {}", sink.name, path.display());
                root.problem(root.span_of("sink"), message, Some("give each its own path".into()));
            }
        }
    }
}

/// The state directory is Forebay's own: an output in it could take the place of a file that is needed there. Nor may an
/// output go into a file that is read.
pub(super) fn refuse_outputs_in_the_way(root: &mut Section<'_>, config: &super::Config) {
    let state = plain(&config.pipeline.state);
    if root.problems() > 0 {
        return;
    }
    let inputs = config.sources.iter().filter_map(|source| source.connector.file());
    let inputs: Vec<_> = inputs.chain(config.tables.iter().map(|table| table.path.as_path())).map(plain).collect();
    for (name, section) in root.named_sections("sink") {
        let sink = config.sinks.iter().find(|sink| sink.name == name.value);
        for path in sink.iter().flat_map(|sink| sink.connector.paths()) {
            let output = plain(path);
            if output.starts_with(&state) {
                let message = format!(
                    "{} is inside the state directory {}, where only Forebay's own files may be",
                    path.display(),
                    config.pipeline.state.display()
                );
                section.problem_at("path", message, Some("give the output a path outside of it".into()));
            }
            if inputs.contains(&output) {
                let message = format!("{} is a file that this pipeline reads", path.display());
                section.problem_at("path", message, Some("give the output a path of its own".into()));
            }
        }
    }
}

/// A path from the root on, without `.`, `..` and links, as far as it exists.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in std::path::absolute(path).as_deref().unwrap_or(path).components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            component => plain.push(component),
        }
        if let Ok(followed) = plain.canonicalize() {
            plain = followed;
        }
    }
    plain
}

impl super::Config {
    /// Names of what has records of its own in the log: sources and lookup tables.
    pub fn logged_names(&self) -> Vec<String> {
        let tables = self.tables.iter().map(|table| table.name.clone());
        self.sources.iter().map(|source| source.name.clone()).chain(tables).collect()
    }

    /// Bytes that wait before the log, and again between log and engine, at most.
    pub fn queue_bytes(&self) -> usize {
        usize::try_from(self.pipeline.memory_bytes / 16).unwrap_or(usize::MAX)
    }

    /// Bytes that a source hands over at once, at most.
    pub fn run_bytes_max(&self) -> usize {
        // A run that the log had to split would carry its position on the last part only.
        let frame = max_frame_bytes(self.log.segment_bytes) / 2;
        (256 << 10).min(self.queue_bytes()).min(frame)
    }
}
