//! The synchronous core: a pure function of the log. [`Engine::step`] takes one frame, runs it through the graph in
//! batches, and writes the rows that come out to the sinks. No wall clock, no randomness, no task order.
//!
//! Control records (connect, tick, end of input, …) form batches of their own, so that within a batch there is only
//! data. Where batches and frames are cut changes nothing (see `operator`); tests run the same log at sizes 1, 7, 8192.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::EngineError;
use super::batch::{Cutting, Prepared, Preparer, Taken, Wanted, What};
use super::choices::query_of;
use super::flow::Flow;
use super::graph::{self, Graph, Outlet};
use super::source_node::{SourceCounters, SourceSaved};
use super::table;
use crate::checkpoint::CheckpointMeta;
use crate::config::{Config, Table};
use crate::event::{EventTime, Frame, LogTime, Lsn, Position as SourcePosition, RecordKind, Run, SourceId};
use crate::expr::EvalContext;
use crate::format::FormatConfig;
use crate::operator::{Chunk, Mark, Position, RowText, Sides, StreamClock};
use crate::sink::{Flushed, Sink};
use crate::state::{Checkpointed, StateReader};

/// Rows per batch in production.
pub const BATCH_ROWS: usize = 8192;

/// The engine's place in the log and everything it has computed from it.
pub struct Engine {
    graph: Graph,
    context: EvalContext,
    sinks: Vec<SinkNode>,
    /// A query has a `state_ttl`: operators are told the log time.
    forgets: bool,
    preparer: Preparer,
    tables: BTreeMap<SourceId, Table>,
    last_lsn: Lsn,
    last_time: LogTime,
    query_counters: Vec<QueryCounters>,
}

/// A sink and what it reads.
pub(super) struct SinkNode {
    name: String,
    pub outlet: Outlet,
    columns: Vec<usize>,
    rows: u64,
    sink: Box<dyn Sink>,
}

impl SinkNode {
    /// Writes the rows of a chunk.
    pub fn write(&mut self, chunk: &Chunk, time: LogTime) -> Result<(), EngineError> {
        if chunk.rows() == 0 {
            return Ok(());
        }
        let columns: Vec<_> = self.columns.iter().filter_map(|column| chunk.columns.get(*column).cloned()).collect();
        self.rows += chunk.rows() as u64;
        self.sink.write(&columns, time).map_err(|source| EngineError::Sink { sink: self.name.clone(), source })
    }
}

/// What a query has refused, since the state was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryCounters {
    pub rows: u64,
    pub late: u64,
    pub errors: u64,
}

/// What a checkpoint keeps of the engine besides keyed state and positions.
#[derive(Serialize, Deserialize)]
struct Saved {
    last_time: LogTime,
    sources: BTreeMap<String, SourceSaved>,
    operators: BTreeMap<String, Vec<u8>>,
    queries: BTreeMap<String, QueryCounters>,
    sink_rows: BTreeMap<String, u64>,
}

/// An opened sink and its name, as the engine takes it.
pub struct OpenSink {
    pub name: String,
    pub sink: Box<dyn Sink>,
}

/// The keyed state of an operator, with what identifies it.
pub struct OperatorState<'a> {
    pub name: &'a str,
    pub fingerprint: &'a str,
    pub value_type: &'static str,
    pub state: &'a mut dyn Checkpointed,
}

/// What a sink contributes to a checkpoint.
pub struct SinkCut {
    pub name: String,
    pub rows: u64,
    pub flushed: Flushed,
}

impl Engine {
    /// An engine at the beginning of the log.
    ///
    /// `ids` maps the log's source ids to names; `operator_id` gives each stateful operator its number in the
    /// checkpoint, and `namespaces` those it had open there.
    ///
    /// # Errors
    /// A sink's stream is missing (the configuration was not validated).
    pub fn new(
        config: &Config,
        ids: &[(SourceId, String)],
        stored: &dyn graph::Stored,
        reader: &Arc<dyn StateReader>,
        sinks: Vec<OpenSink>,
        batch_rows: usize,
    ) -> Result<Engine, EngineError> {
        let context = EvalContext { time_zone: config.pipeline.time_zone.clone() };
        let graph = graph::build(config, &context, stored, reader, &row_text())?;
        let by_id = ids
            .iter()
            .filter_map(|(id, name)| Some((*id, graph.sources.iter().position(|source| *source.name == **name)?)))
            .collect();
        let table = |name: &String| config.tables.iter().find(|table| table.name == *name).cloned();
        let tables = ids.iter().filter_map(|(id, name)| Some((*id, table(name)?))).collect();
        let mut nodes = Vec::new();
        for open in sinks {
            let plan = config.sinks.iter().find(|sink| sink.name == open.name);
            let outlet = plan.and_then(|plan| graph.outlet(&plan.from));
            let (Some(plan), Some(outlet)) = (plan, outlet) else {
                let message = format!("sink {} reads a stream that does not exist", open.name);
                return Err(EngineError::Configuration { message });
            };
            nodes.push(SinkNode { name: open.name, outlet, columns: plan.columns.clone(), rows: 0, sink: open.sink });
        }
        let forgets = config.queries.iter().any(|query| query.state_ttl.is_some());
        Ok(Engine {
            query_counters: vec![QueryCounters::default(); graph.queries.len()],
            preparer: Preparer::new(
                Cutting {
                    by_id,
                    batch_rows: batch_rows.max(1),
                    one_time: forgets || nodes.iter().any(|node| node.sink.needs_time()),
                },
                config
                    .sources
                    .iter()
                    .map(|source| Wanted { source: source.clone(), columns: graph::columns_read(config, source) })
                    .collect(),
            ),
            graph,
            context,
            sinks: nodes,
            forgets,
            tables,
            last_lsn: Lsn::ZERO,
            last_time: LogTime(i64::MIN),
        })
    }

    /// Takes one frame: the next after [`Engine::last_lsn`]. Records that are covered already are passed over.
    ///
    /// # Errors
    /// A sink or the state failed, or a source with `on_error = "stop"` had a bad message.
    pub fn step(&mut self, frame: &Frame) -> Result<(), EngineError> {
        let prepared = self.preparer.prepare(frame, self.last_lsn);
        self.take(frame, prepared)
    }

    /// What prepares frames for [`Engine::take`].
    pub fn preparer(&mut self) -> &mut Preparer {
        &mut self.preparer
    }

    /// As [`Engine::step`], of a frame that was prepared behind [`Engine::last_lsn`].
    ///
    /// # Errors
    /// As [`Engine::step`].
    pub fn take(&mut self, frame: &Frame, prepared: Prepared) -> Result<(), EngineError> {
        for step in prepared.steps {
            self.last_time = self.last_time.max(step.time);
            match step.what {
                What::Batch(taken) => self.batch(frame, taken)?,
                What::Control { run, record, lsn } => {
                    let Some(run) = frame.runs.get(run) else { continue };
                    if run.kind == RecordKind::TableVersion {
                        self.table_version(run.source, run.records().nth(record).unwrap_or_default())?;
                    }
                    let source = self.preparer.source(run.source);
                    self.control(run, lsn, source)?;
                }
            }
        }
        self.last_time = self.last_time.max(prepared.time);
        self.last_lsn = self.last_lsn.max(frame.last_lsn());
        Ok(())
    }

    /// Runs what the sources have in a batch through the graph.
    fn batch(&mut self, frame: &Frame, taken: Vec<Taken>) -> Result<(), EngineError> {
        let mut chunks = Vec::with_capacity(self.graph.sources.len() + self.graph.operators.len());
        let mut dead = Vec::with_capacity(self.graph.sources.len());
        let mut taken = taken.into_iter().peekable();
        for (index, source) in self.graph.sources.iter_mut().enumerate() {
            let (rows, refused) = match taken.next_if(|taken| taken.source == index) {
                Some(taken) => source.rows(frame, taken)?,
                None => (source.empty(), Chunk::default()),
            };
            chunks.push(rows);
            dead.push(refused);
        }
        self.pass_time()?;
        self.flow(chunks, &dead)
    }

    /// Tells the operators the log time, if any of them forgets by it.
    fn pass_time(&mut self) -> Result<(), EngineError> {
        if self.forgets {
            for node in &mut self.graph.operators {
                node.operator.pass_time(self.last_time)?;
            }
        }
        Ok(())
    }

    fn control(&mut self, run: &Run, lsn: Lsn, own: Option<usize>) -> Result<(), EngineError> {
        self.pass_time()?;
        let chunks: Vec<Chunk> = self
            .graph
            .sources
            .iter_mut()
            .enumerate()
            .map(|(index, source)| source.control(run, lsn, own == Some(index)))
            .collect();
        if chunks.iter().all(|chunk| chunk.marks.is_empty()) {
            return Ok(());
        }
        self.flow(chunks, &[])
    }

    /// Gives a new version of a lookup table to those that look it up.
    fn table_version(&mut self, id: SourceId, content: &[u8]) -> Result<(), EngineError> {
        let Some(table) = self.tables.get(&id) else { return Ok(()) };
        // What was logged under other columns of the table does not decode under these: the version before stays.
        let Ok(columns) = table::decode(table, content) else { return Ok(()) };
        let version = table::version(content);
        for node in &mut self.graph.operators {
            if let Some(lookup) = node.operator.lookup().filter(|lookup| lookup.table() == table.name) {
                lookup.replace(&columns, version, &self.context)?;
            }
        }
        Ok(())
    }

    /// Checksum of the version of a lookup table that is in force everywhere; `None`: there is no one version.
    pub fn table_version_of(&mut self, table: &str) -> Option<u32> {
        let lookups = self.graph.operators.iter_mut().filter_map(|node| node.operator.lookup());
        let mut versions = lookups.filter(|lookup| lookup.table() == table).map(|lookup| lookup.version());
        let first = versions.next()?;
        first.filter(|_| versions.all(|version| version == first))
    }

    /// Runs the sources' chunks through the operators and hands what comes out to the sinks.
    fn flow(&mut self, mut chunks: Vec<Chunk>, dead: &[Chunk]) -> Result<(), EngineError> {
        let mut sides: Vec<Sides> = self.graph.operators.iter().map(|_| Sides::default()).collect();
        let time = self.last_time;
        let outputs = self.graph.queries.iter().map(|(_, output)| *output).collect();
        Flow::new(&self.context, &mut self.sinks, outputs, &mut self.query_counters, time).run(
            &mut self.graph.operators,
            &mut sides,
            &mut chunks,
        )?;
        let mut of_queries: Vec<Sides> = self.graph.queries.iter().map(|_| Sides::default()).collect();
        for (node, sides) in self.graph.operators.iter().zip(sides) {
            if let Some(of_query) = of_queries.get_mut(node.query) {
                of_query.append(sides);
            }
        }
        for ((sides, counters), (_, output)) in of_queries.iter().zip(&mut self.query_counters).zip(&self.graph.queries)
        {
            counters.rows += chunks.get(*output).map_or(0, |chunk| chunk.rows() as u64);
            counters.late += sides.late.positions.len() as u64;
            counters.errors += sides.errors.positions.len() as u64;
        }
        let mut late = Vec::with_capacity(of_queries.len());
        let mut errors = Vec::with_capacity(of_queries.len());
        for sides in of_queries {
            late.push(sides.late.into_chunk());
            errors.push(sides.errors.into_chunk());
        }
        for node in &mut self.sinks {
            let chunk = match node.outlet {
                Outlet::Node(id) => chunks.get(id),
                Outlet::Dead(source) => dead.get(source),
                Outlet::Late(query) => late.get(query),
                Outlet::Errors(query) => errors.get(query),
            };
            if let Some(chunk) = chunk {
                node.write(chunk, time)?;
            }
        }
        Ok(())
    }

    /// LSN of the last record taken.
    pub fn last_lsn(&self) -> Lsn {
        self.last_lsn
    }

    /// Greatest log time taken.
    pub fn last_time(&self) -> LogTime {
        self.last_time
    }

    /// Where each source that can resume stands.
    pub fn source_positions(&self) -> Vec<(String, SourcePosition)> {
        let positions = self.graph.sources.iter();
        positions.filter_map(|source| Some((source.name.to_string(), source.position()?))).collect()
    }

    /// Whether every source has ended.
    pub fn ended(&self) -> bool {
        self.graph.sources.iter().all(|source| source.clock().stream.ended)
    }

    /// Whether this source has ended.
    pub fn source_ended(&self, name: &str) -> bool {
        self.graph.sources.iter().any(|source| *source.name == *name && source.clock().stream.ended)
    }

    /// The log time by which a tick is due: the earliest at which a source becomes idle, or at which the watermark of
    /// a source on arrival time frees something.
    pub fn next_deadline(&self) -> Option<LogTime> {
        let idle = self.graph.sources.iter().filter_map(|source| source.clock().idle_at(source.rules()));
        let timers: Vec<EventTime> =
            self.graph.operators.iter().filter_map(|node| node.operator.next_timer()).collect();
        let arrival = self.graph.sources.iter().filter(|s| s.rules().by_arrival && !s.clock().stream.ended);
        let due = arrival.flat_map(|source| {
            let (now, rules) = (source.clock().stream.watermark, source.rules());
            timers
                .iter()
                .filter(move |timer| **timer > now && **timer < i64::MAX / 2000)
                .map(|timer| LogTime(timer.saturating_add(rules.max_out_of_orderness_ms).saturating_mul(1000)))
        });
        idle.chain(due).min()
    }

    /// Hands everything written to the sinks to the operating system.
    ///
    /// # Errors
    /// A sink failed.
    pub fn flush(&mut self) -> Result<(), EngineError> {
        self.each_sink(|sink| sink.flush())
    }

    /// The log is replayed: no sink may be ahead of it. Gives whether one was, and was adopted: a checkpoint must follow.
    ///
    /// # Errors
    /// A sink is ahead, or failed.
    pub fn replayed(&mut self) -> Result<bool, EngineError> {
        let mut adopted = false;
        self.each_sink(|sink| sink.replayed().map(|it| adopted |= it))?;
        Ok(adopted)
    }

    /// A checkpoint is durable.
    ///
    /// # Errors
    /// A sink failed.
    pub fn sinks_committed(&mut self) -> Result<(), EngineError> {
        self.each_sink(|sink| sink.committed())
    }

    fn each_sink(
        &mut self,
        mut call: impl FnMut(&mut dyn Sink) -> Result<(), crate::sink::SinkError>,
    ) -> Result<(), EngineError> {
        for node in &mut self.sinks {
            call(node.sink.as_mut()).map_err(|source| EngineError::Sink { sink: node.name.clone(), source })?;
        }
        Ok(())
    }

    /// What each sink needs for a checkpoint of everything taken so far. Call after [`Engine::flush`].
    pub fn cut_sinks(&mut self) -> Vec<SinkCut> {
        self.sinks
            .iter_mut()
            .map(|node| SinkCut { name: node.name.clone(), rows: node.rows, flushed: node.sink.checkpoint() })
            .collect()
    }

    /// The keyed states, with what identifies them.
    pub fn states(&mut self) -> impl Iterator<Item = OperatorState<'_>> {
        self.graph.operators.iter_mut().filter_map(|node| {
            let state = node.operator.state()?;
            Some(OperatorState { name: &node.name, fingerprint: &node.fingerprint, value_type: node.value_type, state })
        })
    }

    /// Bytes that the sinks have written to local disks since they were opened.
    pub fn output_bytes(&self) -> u64 {
        self.sinks.iter().map(|node| node.sink.written_bytes()).sum()
    }

    /// Estimated memory of keyed state that has not changed since the last checkpoint was begun, in bytes.
    pub fn older_bytes(&mut self) -> usize {
        self.states().map(|operator| operator.state.older_bytes()).sum()
    }

    /// Estimated memory of what has changed since then, in bytes.
    pub fn dirty_bytes(&mut self) -> usize {
        self.states().map(|operator| operator.state.dirty_bytes()).sum()
    }

    /// The small resident state (postcard).
    pub fn save(&self) -> Vec<u8> {
        let queries = self.graph.queries.iter().map(|(name, _)| name.clone());
        let saved = Saved {
            last_time: self.last_time,
            sources: self.graph.sources.iter().map(|source| (source.name.to_string(), source.save())).collect(),
            operators: self
                .graph
                .operators
                .iter()
                .map(|node| (node.name.to_string(), node.operator.save()))
                .filter(|(_, saved)| !saved.is_empty())
                .collect(),
            queries: queries.zip(self.query_counters.iter().copied()).collect(),
            sink_rows: self.sinks.iter().map(|node| (node.name.clone(), node.rows)).collect(),
        };
        postcard::to_stdvec(&saved).unwrap_or_default()
    }

    /// Whether the sources can go on from a checkpoint.
    ///
    /// # Errors
    /// The bytes are not an engine's, or a source's columns do not fit what it has kept.
    pub fn fits(&mut self, meta: &CheckpointMeta) -> Result<(), EngineError> {
        self.restore_sources(meta).map(drop)
    }

    fn restore_sources(&mut self, meta: &CheckpointMeta) -> Result<Saved, EngineError> {
        let saved: Saved = postcard::from_bytes(&meta.engine)
            .map_err(|error| EngineError::Saved { what: "the engine".into(), reason: error.to_string() })?;
        for source in &mut self.graph.sources {
            if let Some(kept) = saved.sources.get(&*source.name) {
                let position = meta.sources.get(&*source.name).copied();
                source.restore(kept, position)?;
            }
        }
        Ok(saved)
    }

    /// Takes back what [`Engine::save`] gave at a checkpoint, but not the operators of queries that are `reset`. Gives the
    /// operators (by place in the graph) that the checkpoint knows nothing of.
    ///
    /// # Errors
    /// The bytes are not an engine's, or not this one's.
    pub fn restore(&mut self, meta: &CheckpointMeta, reset: &BTreeSet<String>) -> Result<Vec<usize>, EngineError> {
        let saved = self.restore_sources(meta)?;
        self.last_lsn = meta.cut;
        self.last_time = saved.last_time;
        let mut fresh = Vec::new();
        for (index, node) in self.graph.operators.iter_mut().enumerate() {
            match saved.operators.get(&*node.name).filter(|_| !reset.contains(query_of(&node.name))) {
                Some(kept) => node.operator.restore(kept)?,
                None => fresh.push(index),
            }
        }
        for ((name, _), counters) in self.graph.queries.iter().zip(&mut self.query_counters) {
            *counters = saved.queries.get(name).copied().unwrap_or_default();
        }
        // A sink that the checkpoint does not know begins with row 1.
        for node in self.sinks.iter_mut().filter(|node| meta.sinks.iter().any(|known| known.name == node.name)) {
            node.rows = saved.sink_rows.get(&node.name).copied().unwrap_or_default();
        }
        Ok(fresh)
    }

    /// Tells operators that are new at this checkpoint where the clocks of the sources stand, else they would learn of
    /// one that is idle or has ended only when it comes back. They hold no row, so none comes out.
    ///
    /// # Errors
    /// State could not be read.
    pub fn begin_fresh(&mut self, fresh: &[usize]) -> Result<(), EngineError> {
        let position = Position::row(self.last_lsn.0, 0).mark();
        let mut chunks: Vec<Chunk> = Vec::with_capacity(self.graph.sources.len() + self.graph.operators.len());
        for source in &self.graph.sources {
            let clock = source.clock().stream;
            let marks = if clock == StreamClock::default() { Vec::new() } else { vec![Mark { position, clock }] };
            chunks.push(Chunk { marks: Arc::new(marks), ..source.empty() });
        }
        for (index, node) in self.graph.operators.iter_mut().enumerate() {
            let inputs: Vec<Chunk> = node.inputs.iter().filter_map(|input| chunks.get(*input).cloned()).collect();
            let tells = fresh.contains(&index) && inputs.iter().any(|input| !input.marks.is_empty());
            chunks.push(match tells {
                true => node.operator.process(&inputs, &self.context, &mut Sides::default())?,
                false => Chunk { columns: node.empty.clone(), ..Chunk::default() },
            });
        }
        Ok(())
    }

    /// What sources and queries have seen, for the closing summary and for status.
    pub fn counters(&self) -> Counters {
        let sources = self.graph.sources.iter().map(|source| (source.name.to_string(), source.counters)).collect();
        let queries = self.graph.queries.iter().map(|(name, _)| name.clone());
        let sinks = self.sinks.iter().map(|node| (node.name.clone(), node.rows)).collect();
        Counters { sources, queries: queries.zip(self.query_counters.iter().copied()).collect(), sinks }
    }
}

/// Rows as JSON objects of their visible columns, for the side outputs.
pub fn row_text() -> RowText {
    Arc::new(|fields, columns, row| {
        let visible = || fields.iter().zip(columns).filter(|(field, _)| !field.hidden);
        let fields: Vec<_> = visible().map(|(field, _)| field.clone()).collect();
        let columns: Vec<_> = visible().map(|(_, column)| Arc::clone(column)).collect();
        let mut text = Vec::new();
        FormatConfig::Json.encoder(&fields).encode(&columns, row, &mut text);
        String::from_utf8_lossy(&text).trim_end().to_owned()
    })
}

/// Counts since the state was created.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub sources: Vec<(String, SourceCounters)>,
    pub queries: Vec<(String, QueryCounters)>,
    /// Rows given to each sink.
    pub sinks: Vec<(String, u64)>,
}
