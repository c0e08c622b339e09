//! The engine over a log, in this thread: batches of any size, frames cut anywhere, checkpoints into memory, and crashes
//! after which another engine goes on from the last checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use arrow_array::{Array as _, ArrayRef};
use forebay::checkpoint::CheckpointMeta;
use forebay::config::Config;
use forebay::engine::ahead::Ahead;
use forebay::engine::graph::Stored;
use forebay::engine::step::{Engine, OpenSink};
use forebay::event::{Frame, LogTime, Lsn, RecordKind, Run, SourceId};
use forebay::format::{Encoder, FormatConfig};
use forebay::sink::{Flushed, Sink, SinkError};
use forebay::state::{Change, StateError, StateReader, StoredPair, key_group};
use serde_json::Value as Json;

use crate::interpreter::Output;
use crate::log::{Log, Record};
use crate::random::Random;

/// How a log is played.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    pub batch_rows: usize,
    /// For frames, runs, checkpoints, crashes and the number of decode threads.
    pub seed: u64,
    /// A checkpoint after about one frame in so many; a crash after one checkpoint in two. 0: none.
    pub checkpoints: u64,
}

/// What a sink has been given, as JSON lines.
type Lines = Arc<Mutex<Vec<u8>>>;

struct MemorySink {
    encoder: Box<dyn Encoder>,
    lines: Lines,
}

impl Sink for MemorySink {
    fn write(&mut self, columns: &[ArrayRef], _: LogTime) -> Result<(), SinkError> {
        let mut lines = self.lines.lock().expect("not poisoned");
        for row in 0..columns.first().map_or(0, |column| column.len()) {
            self.encoder.encode(columns, row, &mut lines);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn checkpoint(&mut self) -> Flushed {
        Flushed { progress: Vec::new(), rows: 0, sync: Box::new(|| Ok(())) }
    }

    fn committed(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn replayed(&mut self) -> Result<bool, SinkError> {
        Ok(false)
    }
}

/// By operator, namespace and key.
type Entries = BTreeMap<(u32, i64, Vec<u8>), Vec<u8>>;

/// Committed entries.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Entries>>);

impl StateReader for Store {
    fn get(&self, operator: u32, namespace: i64, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.0.lock().expect("not poisoned").get(&(operator, namespace, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        operator: u32,
        namespace: i64,
        group: u8,
        after: Option<&[u8]>,
        limit: usize,
        out: &mut Vec<StoredPair>,
    ) -> Result<(), StateError> {
        let entries = self.0.lock().expect("not poisoned");
        let from = (operator, namespace, after.unwrap_or_default().to_vec());
        let own = entries.range(from..).take_while(|((o, n, _), _)| *o == operator && *n == namespace);
        let wanted =
            own.filter(|((_, _, key), _)| key_group(key) == group && after.is_none_or(|after| key.as_slice() > after));
        out.extend(wanted.take(limit.max(1)).map(|((_, _, key), value)| (key.clone(), value.clone())));
        Ok(())
    }
}

/// Numbers and open namespaces of the operators at the last checkpoint.
#[derive(Default)]
struct Operators(Mutex<BTreeMap<String, (u32, Vec<i64>)>>);

impl Stored for Operators {
    fn operator(&self, name: &str) -> (u32, Vec<i64>) {
        let mut known = self.0.lock().expect("not poisoned");
        let number = known.len() as u32 + 1;
        known.entry(name.to_owned()).or_insert((number, Vec::new())).clone()
    }
}

/// A pipeline in memory.
pub struct Pipeline<'a> {
    config: &'a Config,
    ids: Vec<(SourceId, String)>,
    outputs: Vec<(String, Lines)>,
    store: Store,
    operators: Operators,
    batch_rows: usize,
    pub engine: Engine,
    saved: Option<(Vec<u8>, Lsn, Vec<usize>)>,
}

impl<'a> Pipeline<'a> {
    pub fn new(config: &'a Config, batch_rows: usize) -> Pipeline<'a> {
        let ids: Vec<(SourceId, String)> =
            (1..).zip(&config.sources).map(|(id, source)| (SourceId(id), source.name.clone())).collect();
        let outputs: Vec<(String, Lines)> =
            config.sinks.iter().map(|sink| (sink.name.clone(), Lines::default())).collect();
        let (store, operators) = (Store::default(), Operators::default());
        let engine = engine(config, &ids, &outputs, &store, &operators, batch_rows);
        Pipeline { config, ids, outputs, store, operators, batch_rows, engine, saved: None }
    }

    /// Source's number in the log.
    pub fn id(&self, name: &str) -> SourceId {
        self.ids.iter().find(|(_, known)| known == name).expect("a source").0
    }

    pub fn step(&mut self, frame: &Frame) {
        self.engine.step(frame).expect("steps");
    }

    /// Processes the next frame. Gives whether there was one.
    fn take(&mut self, ahead: &mut Ahead) -> bool {
        let Some(popped) = ahead.pop(self.engine.preparer()) else { return false };
        let (frame, prepared) = popped.expect("the threads run");
        self.engine.take(&frame, prepared).expect("steps");
        true
    }

    /// Commits everything to the store.
    pub fn checkpoint(&mut self) {
        let mut entries = self.store.0.lock().expect("not poisoned");
        let mut operators = self.operators.0.lock().expect("not poisoned");
        for operator in self.engine.states() {
            let id = operator.state.operator();
            let frozen = operator.state.freeze().expect("freezes");
            operators.insert(operator.name.to_owned(), (id, frozen.namespaces().iter().copied().collect()));
            frozen
                .for_each(&mut |change| {
                    match change {
                        Change::DeleteNamespace { namespace } => {
                            entries.retain(|(operator, of, _), _| *operator != id || *of != namespace);
                        }
                        Change::Delete { namespace, key } => {
                            entries.remove(&(id, namespace, key.to_vec()));
                        }
                        Change::Put { namespace, key, value } => {
                            entries.insert((id, namespace, key.to_vec()), value.to_vec());
                        }
                    }
                    ControlFlow::Continue(())
                })
                .expect("encodes");
        }
        drop((entries, operators));
        self.engine.states().for_each(|operator| drop(operator.state.committed()));
        let lengths = self.outputs.iter().map(|(_, lines)| lines.lock().expect("not poisoned").len()).collect();
        self.saved = Some((self.engine.save(), self.engine.last_lsn(), lengths));
    }

    /// Loses everything since the last checkpoint; gives the LSN from which to go on.
    pub fn crash(&mut self) -> Lsn {
        let (saved, cut, lengths) = self.saved.clone().unwrap_or((Vec::new(), Lsn::ZERO, vec![0; self.outputs.len()]));
        for ((_, lines), length) in self.outputs.iter().zip(lengths) {
            lines.lock().expect("not poisoned").truncate(length);
        }
        self.engine = engine(self.config, &self.ids, &self.outputs, &self.store, &self.operators, self.batch_rows);
        if !saved.is_empty() {
            let meta = CheckpointMeta { engine: saved, cut, ..CheckpointMeta::default() };
            self.engine.restore(&meta, &BTreeSet::new()).expect("restores");
        }
        cut.plus(1)
    }

    /// How many entries the store holds of each operator.
    pub fn stored_entries(&self) -> Vec<(String, usize)> {
        let entries = self.store.0.lock().expect("not poisoned");
        let operators = self.operators.0.lock().expect("not poisoned");
        let count =
            |number: u32| entries.range((number, i64::MIN, Vec::new())..(number + 1, i64::MIN, Vec::new())).count();
        operators.iter().map(|(name, (number, _))| (name.clone(), count(*number))).collect()
    }

    /// Lines that a sink has been given.
    pub fn lines(&self, sink: &str) -> String {
        let (_, lines) = self.outputs.iter().find(|(name, _)| name == sink).expect("a sink");
        String::from_utf8(lines.lock().expect("not poisoned").clone()).expect("UTF-8")
    }
}

fn engine(
    config: &Config,
    ids: &[(SourceId, String)],
    outputs: &[(String, Lines)],
    store: &Store,
    operators: &Operators,
    batch_rows: usize,
) -> Engine {
    let sinks = config.sinks.iter().zip(outputs).map(|(sink, (name, lines))| {
        let encoder = FormatConfig::Json.encoder(&sink.fields);
        OpenSink { name: name.clone(), sink: Box::new(MemorySink { encoder, lines: Arc::clone(lines) }) }
    });
    let reader: Arc<dyn StateReader> = Arc::new(store.clone());
    Engine::new(config, ids, operators, &reader, sinks.collect(), batch_rows).expect("an engine")
}

/// Plays a log; the sinks are called `rows`, `late` and `errors`.
pub fn play(config: &Config, log: &Log, play: Play) -> Output {
    let mut random = Random(play.seed);
    let mut pipeline = Pipeline::new(config, play.batch_rows);
    let threads = (play.seed % 3) as usize;
    let mut ahead = Ahead::start(threads, pipeline.engine.preparer()).expect("threads");
    let mut next = 0;
    let mut crashes = 0;
    while next < log.0.len() {
        let most = if random.one_in(4) { 40 } else { 6 };
        let count = 1 + random.below(most) as usize;
        let records = &log.0[next..(next + count).min(log.0.len())];
        let mut runs: Vec<Run> = Vec::new();
        for (time_us, record) in records {
            let time = LogTime(*time_us);
            let control = |kind| Run::one(SourceId(0), kind, time, &[]);
            match record {
                Record::Data { source, line } => {
                    let id = pipeline.id(source);
                    match runs.last_mut() {
                        Some(run) if run.source == id && run.kind == RecordKind::Data && run.time == time => {
                            run.push(line.as_bytes());
                        }
                        _ => runs.push(Run::one(id, RecordKind::Data, time, line.as_bytes())),
                    }
                }
                Record::Tick => runs.push(control(RecordKind::Tick)),
                Record::Start => runs.push(control(RecordKind::Start)),
                Record::End { source } => {
                    runs.push(Run::one(pipeline.id(source), RecordKind::EndOfInput, time, &[]));
                }
            }
        }
        let after = ahead.last_lsn().unwrap_or(pipeline.engine.last_lsn());
        ahead.push(Frame { first_lsn: Lsn(next as u64 + 1), runs }, after);
        while !ahead.has_room() && pipeline.take(&mut ahead) {}
        next += records.len();
        if play.checkpoints > 0 && random.below(play.checkpoints) == 0 {
            pipeline.checkpoint();
        }
        if play.checkpoints > 0 && crashes < 2 && random.below(play.checkpoints * 2) == 0 {
            crashes += 1;
            next = pipeline.crash().0 as usize - 1;
            ahead = Ahead::start(threads, pipeline.engine.preparer()).expect("threads");
        }
    }
    while pipeline.take(&mut ahead) {}
    let rows = |sink: &str| -> Vec<Json> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        pipeline.lines(sink).lines().map(parse).collect()
    };
    let mut output = Output { rows: rows("rows"), late: rows("late"), errors: rows("errors") };
    for side in [&mut output.late, &mut output.errors] {
        for row in side {
            let object = row.as_object_mut().expect("an object");
            // Its wording is the engine's own.
            object.remove("reason");
            let refused = object.get("row").and_then(Json::as_str).map(|row| serde_json::from_str(row).expect("JSON"));
            object.insert("row".to_owned(), refused.unwrap_or_default());
        }
    }
    output
}
