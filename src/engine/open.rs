//! Opening a state: from a directory to an engine that stands at its last checkpoint, and a log whose tail is known.
//!
//! Order, each step refusing before the next changes anything: lock, checkpoint, log (recovery cuts a torn tail), sinks,
//! engine. A new state begins with a checkpoint at LSN 0, which carries the epoch and where the sinks begin; so a crash
//! at any later moment finds both.
//!
//! A changed configuration is taken at a checkpoint: where the log has a tail, its rows came from the old
//! configuration, so the tail is first replayed under that one (it is kept whole in the checkpoint), and then a
//! checkpoint under the new one is written before any new input. So one log tail always belongs to one configuration.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::EngineError;
use super::choices::{Choices, query_of};
use super::graph::Stored;
use super::host::{Host, Machine};
use super::step::{BATCH_ROWS, Counters, Engine, OpenSink, OperatorState};
use crate::checkpoint::{
    self, CheckpointError, CheckpointMeta, CheckpointView, Checkpoints, Job, OpenMode, OperatorMeta, SinkMeta,
    SinkSync, Wear,
};
use crate::config::{self, Config, OnError};
use crate::disk::{Clock, Disk, LogClock, Stop};
use crate::event::{Lsn, RecordKind, Run, SourceId, Start as StartRecord};
use crate::replay_log::{self, Identity, LogOptions, LogReader, LogWriter, StateLock, Torn};
use crate::state::{Checkpointed, Frozen, KeyedState, StateReader};

/// Version of what a log's records mean to the engine. Raised when the same log would give other results.
pub const SEMANTICS_VERSION: u32 = 1;

/// What a start found.
pub enum Start {
    Go(Box<Opened>),
    /// All sources have ended before, and there is nothing new.
    Finished(Counters),
}

/// An open state.
pub struct Opened {
    pub engine: Engine,
    pub store: Store,
    pub writer: LogWriter,
    pub clock: Arc<LogClock>,
    /// LSN of the last record that was in the log at the start: the end of the replay.
    pub tail_end: Lsn,
    /// What was cut off the log.
    pub torn: Option<Torn>,
    /// The checkpoint that the engine stands at.
    pub checkpoint: CheckpointMeta,
    /// Ends the sinks' waits for space.
    pub stop: Stop,
    pub lock: StateLock,
}

/// Where a state is kept: the disk of log and outputs, the machine's clocks, the checkpoints, and the engine's view of the last one.
pub struct Store {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub checkpoints: Arc<dyn Checkpoints>,
    pub view: Arc<dyn CheckpointView>,
}

impl Store {
    fn reader(&self) -> Arc<dyn StateReader> {
        Arc::clone(&self.view) as Arc<dyn StateReader>
    }
}

/// Opens the state of a configuration, creating it where there is none. The engine takes `batch_rows` at a time.
///
/// # Errors
/// The state is another's, is in use, is corrupt, or does not fit the configuration; the disk failed.
pub fn open(config: &Config, batch_rows: usize, choices: &Choices) -> Result<Start, EngineError> {
    open_on(&Machine, config, batch_rows, choices)
}

/// As [`open`], on any host.
///
/// # Errors
/// As [`open`].
pub fn open_on(host: &dyn Host, config: &Config, batch_rows: usize, choices: &Choices) -> Result<Start, EngineError> {
    let state = &config.pipeline.state;
    let disk = host.disk();
    let lock = StateLock::acquire(disk.as_ref(), state)?;
    let clock = wait_for_clock(host.clock(), config.wait_for_sync);
    let checkpoint_dir = state.join(checkpoint::DIRECTORY);
    let log_dir = replay_log::log_dir(state);

    let (store, meta) = match open_store(host, &checkpoint_dir, &log_dir)? {
        (store, Some(meta)) => (store, meta),
        (store, None) => {
            let meta = create(host, config, choices, &store, &clock)?;
            (store, meta)
        }
    };
    if meta.pipeline != config.pipeline.name {
        let message = format!(
            "the state directory {} belongs to the pipeline `{}`, not to `{}`: give this pipeline a directory of its own",
            state.display(),
            meta.pipeline,
            config.pipeline.name
        );
        return Err(EngineError::Configuration { message });
    }
    // A repair that was committed, but died before the files had changed places.
    super::repair::finish(disk.as_ref(), state, &meta)?;
    let identity = Identity {
        pipeline: meta.pipeline.clone(),
        epoch: meta.epoch,
        sources: replay_log::merge_sources(
            &replay_log::identity(disk.as_ref(), &log_dir)?.map(|known| known.sources).unwrap_or_default(),
            &config.logged_names(),
        )?,
    };
    let (writer, recovered) = replay_log::open(Arc::clone(&disk), &log_dir, identity, log_options(config), meta.cut)?;
    if let Some(last) = writer.last_time() {
        clock.resume(last.max(meta.cut_time));
    } else {
        clock.resume(meta.cut_time);
    }
    let tail_end = writer.last_lsn();
    if meta.semantics_version != SEMANTICS_VERSION && tail_end > meta.cut {
        let message = format!(
            "the log holds records that version {} has logged but not processed, and this version {} would compute \
             something else from them: run version {0} once and stop it, then this one",
            meta.program_version,
            env!("CARGO_PKG_VERSION")
        );
        return Err(EngineError::Configuration { message });
    }
    // An imported state may know none of the sinks. They begin at a checkpoint, as those of a changed configuration do.
    let knows_sinks = config.sinks.iter().all(|sink| meta.sinks.iter().any(|known| known.name == sink.name));
    let meta = if meta.config == config.text && knows_sinks && choices.reset.is_empty() {
        meta
    } else {
        change_config(config, meta, choices, &store, &writer, &log_dir)?
    };

    let stop = Stop::default();
    let (mut engine, _) =
        engine_at(config, &meta, &choices.keeping_state(), &store, writer.sources(), batch_rows, &stop)?;
    let meta = keep_adopted(config, choices, &mut engine, meta, &store)?;
    if engine.ended() && tail_end <= meta.cut {
        refuse_new_input(config, &engine)?;
        if engine.replayed()? {
            commit_now(config, &mut engine, &meta, &store, Vec::new())?;
        }
        return Ok(Start::Finished(engine.counters()));
    }
    let mut writer = writer;
    log_start(&mut writer, &clock)?;
    let torn = recovered.torn;
    Ok(Start::Go(Box::new(Opened { engine, store, writer, clock, tail_end, torn, checkpoint: meta, stop, lock })))
}

/// Waits until the system clock is known to be right, at most for so long.
fn wait_for_clock(system: Arc<dyn Clock>, patience: Duration) -> Arc<LogClock> {
    let until = Instant::now() + patience;
    if !patience.is_zero() && !system.synchronised() {
        info!(seconds = patience.as_secs(), "waiting for the system clock to be synchronised");
        while !system.synchronised() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Arc::new(LogClock::new(system))
}

/// The store, and the checkpoint in it; none where the state is new.
fn open_store(
    host: &dyn Host,
    checkpoint_dir: &Path,
    log_dir: &Path,
) -> Result<(Store, Option<CheckpointMeta>), EngineError> {
    let disk = host.disk();
    let has_log = match disk.list(log_dir) {
        Ok(names) => !names.is_empty(),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(source) => return Err(EngineError::Io { action: format!("list {}", log_dir.display()), source }),
    };
    let mode = if has_log { OpenMode::Existing } else { OpenMode::Create };
    let no_checkpoint = || EngineError::Saved {
        what: "the state".into(),
        reason: format!(
            "{} holds a log, but there is no checkpoint: restore both from one copy, or move the state directory away and \
             begin from a savepoint (`forebay checkpoint import FILE CONFIG`)",
            log_dir.display()
        ),
    };
    let checkpoints = host.checkpoints(checkpoint_dir, mode).map_err(|error| match error {
        EngineError::Checkpoint(CheckpointError::Missing { .. }) if has_log => no_checkpoint(),
        error => error,
    })?;
    let view = checkpoints.view()?;
    let meta = view.meta()?;
    if meta.is_none() && has_log {
        return Err(no_checkpoint());
    }
    Ok((Store { disk, clock: host.clock(), checkpoints, view }, meta))
}

/// Begins a state: an epoch, and a checkpoint at LSN 0 with where the sinks begin.
fn create(
    host: &dyn Host,
    config: &Config,
    choices: &Choices,
    store: &Store,
    clock: &LogClock,
) -> Result<CheckpointMeta, EngineError> {
    let epoch = host.epoch()?;
    let start = CheckpointMeta {
        epoch,
        pipeline: config.pipeline.name.clone(),
        cut_time: clock.now(),
        config: config.text.clone(),
        semantics_version: SEMANTICS_VERSION,
        ..CheckpointMeta::default()
    };
    let sinks = open_sinks(config, &start, choices, &store.disk, &Stop::default())?;
    let ids: Vec<(SourceId, String)> = Vec::new();
    let mut engine = Engine::new(config, &ids, &Ids::of(&start, &BTreeSet::new()), &store.reader(), sinks, BATCH_ROWS)?;
    let meta = commit_now(config, &mut engine, &start, store, Vec::new())?;
    info!(state = %config.pipeline.state.display(), %epoch, "created a new state");
    Ok(meta)
}

/// Writes a checkpoint on this thread, before the others run. `retired`: states to be deleted with it.
///
/// # Errors
/// A sink or the store failed.
pub fn commit_now(
    config: &Config,
    engine: &mut Engine,
    before: &CheckpointMeta,
    store: &Store,
    retired: Vec<KeyedState<()>>,
) -> Result<CheckpointMeta, EngineError> {
    let job = begin(config, engine, before, store.clock.wall_us(), retired)?;
    checkpoint::perform(job, |meta, layers| store.checkpoints.commit(meta, layers)).result?;
    finish(engine, store.view.as_ref())?;
    store.view.meta()?.ok_or_else(|| EngineError::Saved {
        what: "the state".into(),
        reason: "a checkpoint that was just committed is not there".into(),
    })
}

/// Makes the job of a checkpoint at the engine's place, its outputs handed to the operating system. `retired`: states to
/// be deleted with it.
///
/// # Errors
/// A sink failed; a checkpoint is in flight already.
pub fn begin(
    config: &Config,
    engine: &mut Engine,
    before: &CheckpointMeta,
    wall_time_us: i64,
    retired: Vec<KeyedState<()>>,
) -> Result<Job, EngineError> {
    engine.flush()?;
    let sinks = engine.cut_sinks();
    let engine_bytes = engine.save();
    let positions = engine.source_positions().into_iter().collect();
    let mut operators = Vec::new();
    let mut layers = Vec::new();
    for OperatorState { name, fingerprint, value_type, state } in engine.states() {
        operators.push(OperatorMeta {
            id: state.operator(),
            name: name.to_owned(),
            fingerprint: fingerprint.to_owned(),
            value_type: value_type.to_owned(),
            ..OperatorMeta::default()
        });
        layers.push((state.operator(), state.freeze()?));
    }
    for mut state in retired {
        // Numbers are never used twice, so what is left of one in the list harms nobody.
        operators.push(OperatorMeta { id: state.operator(), ..OperatorMeta::default() });
        layers.push((state.operator(), state.freeze()?));
    }
    let meta = CheckpointMeta {
        id: before.id + 1,
        epoch: before.epoch,
        pipeline: config.pipeline.name.clone(),
        cut: engine.last_lsn(),
        cut_time: engine.last_time().max(before.cut_time),
        wall_time_us,
        sources: positions,
        engine: engine_bytes,
        operators,
        sinks: sinks
            .iter()
            .map(|sink| SinkMeta { name: sink.name.clone(), rows: sink.rows, progress: sink.flushed.progress.clone() })
            .collect(),
        config: config.text.clone(),
        semantics_version: SEMANTICS_VERSION,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        wear: Wear { checkpoints: before.wear.checkpoints + 1, ..before.wear },
    };
    let syncs = sinks.into_iter().map(|sink| {
        let sync = sink.flushed.sync;
        SinkSync { sink: sink.name, sync: Box::new(move || sync().map_err(Into::into)) }
    });
    Ok(Job { meta, layers, syncs: syncs.collect() })
}

/// A checkpoint is durable: the engine's view shows it, and states and sinks are told. Returns layers that nobody needs.
///
/// # Errors
/// The view cannot be renewed; a sink failed.
pub fn finish(engine: &mut Engine, view: &dyn CheckpointView) -> Result<Vec<Arc<dyn Frozen>>, EngineError> {
    view.renew()?;
    let retired = engine.states().filter_map(|operator| operator.state.committed()).collect();
    engine.sinks_committed()?;
    Ok(retired)
}

/// An engine and its sinks at a checkpoint, without the state of queries that are `reset`; and the operators that the
/// checkpoint knows nothing of.
fn engine_at(
    config: &Config,
    meta: &CheckpointMeta,
    choices: &Choices,
    store: &Store,
    ids: &[(SourceId, String)],
    batch_rows: usize,
    stop: &Stop,
) -> Result<(Engine, Vec<usize>), EngineError> {
    let sinks = open_sinks(config, meta, choices, &store.disk, stop)?;
    let mut engine = Engine::new(config, ids, &Ids::of(meta, &choices.reset), &store.reader(), sinks, batch_rows)?;
    refuse_other_encoding(meta, &mut engine, &choices.reset)?;
    let fresh = engine.restore(meta, &choices.reset)?;
    Ok((engine, fresh))
}

/// What stays of adopted outputs is on record before anything is written behind it.
fn keep_adopted(
    config: &Config,
    choices: &Choices,
    engine: &mut Engine,
    meta: CheckpointMeta,
    store: &Store,
) -> Result<CheckpointMeta, EngineError> {
    if config.sinks.iter().any(|sink| choices.adopt.contains(&sink.name)) {
        commit_now(config, engine, &meta, store, Vec::new())
    } else {
        Ok(meta)
    }
}

fn open_sinks(
    config: &Config,
    meta: &CheckpointMeta,
    choices: &Choices,
    disk: &Arc<dyn Disk>,
    stop: &Stop,
) -> Result<Vec<OpenSink>, EngineError> {
    config
        .sinks
        .iter()
        .map(|sink| {
            let progress =
                meta.sinks.iter().find(|known| known.name == sink.name).map(|known| known.progress.as_slice());
            let adopt = choices.adopt.contains(&sink.name);
            let opened = sink.connector.open(disk, &sink.fields, progress, adopt, stop.clone());
            let name = sink.name.clone();
            match opened {
                Ok(sink) => Ok(OpenSink { name, sink }),
                Err(source) => Err(EngineError::Sink { sink: name, source }),
            }
        })
        .collect()
}

/// Operators' numbers and open namespaces, from a checkpoint.
struct Ids {
    known: BTreeMap<String, (u32, Vec<i64>)>,
    next: Cell<u32>,
}

impl Ids {
    fn of(meta: &CheckpointMeta, reset: &BTreeSet<String>) -> Ids {
        let known: BTreeMap<String, (u32, Vec<i64>)> = meta
            .operators
            .iter()
            .filter(|operator| !reset.contains(query_of(&operator.name)))
            .map(|operator| (operator.name.clone(), (operator.id, operator.namespaces.iter().copied().collect())))
            .collect();
        let next = meta.operators.iter().map(|operator| operator.id + 1).max().unwrap_or(0);
        Ids { known, next: Cell::new(next) }
    }
}

impl Stored for Ids {
    fn operator(&self, name: &str) -> (u32, Vec<i64>) {
        self.known.get(name).cloned().unwrap_or_else(|| {
            let id = self.next.get();
            self.next.set(id + 1);
            (id, Vec::new())
        })
    }
}

/// Takes a new configuration over a state of an old one, and resets queries: replays the tail under the old, checkpoints
/// under the new.
fn change_config(
    config: &Config,
    meta: CheckpointMeta,
    choices: &Choices,
    store: &Store,
    writer: &LogWriter,
    log_dir: &Path,
) -> Result<CheckpointMeta, EngineError> {
    let mut old = config::parse("the configuration kept in the checkpoint", &meta.config).map_err(|problems| {
        EngineError::Saved { what: "the old configuration".into(), reason: problems.to_string() }
    })?;
    // Whether to stop at a bad message changes no row, and to go on after such a stop is why one changes it.
    for source in &mut old.sources {
        let new = config.sources.iter().find(|new| new.name == source.name);
        source.on_error = new.map_or(OnError::DeadLetter, |new| new.on_error);
    }
    refuse_changed_state(config, &meta, &choices.reset, &store.reader())?;
    // A signal ends the process at once here.
    let stop = Stop::default();
    let mut meta = meta;
    if writer.last_lsn() > meta.cut {
        info!(
            from = meta.cut.0 + 1,
            to = writer.last_lsn().0,
            "the configuration changed: what is logged is first processed under the old one"
        );
        let (mut engine, _) =
            engine_at(&old, &meta, &choices.keeping_state(), store, writer.sources(), BATCH_ROWS, &stop)?;
        meta = keep_adopted(&old, choices, &mut engine, meta, store)?;
        let mut reader = LogReader::open(Arc::clone(&store.disk), log_dir, meta.cut.plus(1))?;
        while engine.last_lsn() < writer.last_lsn() {
            let Some(frame) = reader.next()? else { break };
            engine.step(&frame)?;
            engine.flush()?;
        }
        engine.replayed()?;
        meta = commit_now(&old, &mut engine, &meta, store, Vec::new())?;
    }
    let (mut engine, fresh) = engine_at(config, &meta, choices, store, writer.sources(), BATCH_ROWS, &stop)?;
    engine.begin_fresh(&fresh)?;
    let kept: Vec<u32> = engine.states().map(|operator| operator.state.operator()).collect();
    let mut retired = Vec::new();
    for operator in meta.operators.iter().filter(|operator| !kept.contains(&operator.id)) {
        let mut state: KeyedState<()> =
            KeyedState::new(operator.id, store.reader(), operator.namespaces.iter().copied());
        for namespace in &operator.namespaces {
            state.remove_namespace(*namespace);
        }
        if choices.reset.contains(query_of(&operator.name)) {
            warn!(operator = %operator.name, "the query is reset: this operator's state is deleted");
        } else if !operator.namespaces.is_empty() {
            warn!(operator = %operator.name, "the configuration has this operator no longer: its state is deleted");
        }
        retired.push(state);
    }
    let meta = commit_now(config, &mut engine, &meta, store, retired)?;
    info!("a checkpoint under the present configuration is made: it is in force");
    Ok(meta)
}

/// Whether a start with the configuration `new` would go on from the state of a running `old`.
///
/// # Errors
/// It would be another state's, or the state does not fit it; the checkpoint cannot be read.
pub fn check_change(old: &Config, new: &Config, checkpoints: &dyn Checkpoints) -> Result<(), EngineError> {
    if (&new.pipeline.name, &new.pipeline.state) != (&old.pipeline.name, &old.pipeline.state) {
        let message = "it names another pipeline or state directory: stop this one and start that".to_owned();
        return Err(EngineError::Configuration { message });
    }
    let view = checkpoints.view()?;
    let meta = view.meta()?.unwrap_or_default();
    refuse_changed_state(new, &meta, &BTreeSet::new(), &(view as Arc<dyn StateReader>))
}

/// State that another version has written in a form that this one does not read.
fn refuse_other_encoding(
    meta: &CheckpointMeta,
    engine: &mut Engine,
    reset: &BTreeSet<String>,
) -> Result<(), EngineError> {
    for OperatorState { name, fingerprint, value_type, .. } in engine.states() {
        let same = meta.operator(name).filter(|old| old.fingerprint == fingerprint && !reset.contains(query_of(name)));
        let Some(old) = same.filter(|old| old.value_type != value_type) else { continue };
        let message = format!(
            "version {theirs} has written the state of the query `{query}` (operator {name}) in the form {}, and this version \
             {} reads {value_type} only: go on with version {theirs}; or run it once and stop it, so that nothing that is \
             logged is left to be processed, and drop the query's state, open windows included, by `forebay run CONFIG --reset \
             query.{query}`",
            old.value_type,
            env!("CARGO_PKG_VERSION"),
            theirs = meta.program_version,
            query = query_of(name)
        );
        return Err(EngineError::Configuration { message });
    }
    Ok(())
}

/// A stateful operator whose definition changed cannot take its old state over.
fn refuse_changed_state(
    config: &Config,
    meta: &CheckpointMeta,
    reset: &BTreeSet<String>,
    reader: &Arc<dyn StateReader>,
) -> Result<(), EngineError> {
    let ids = Ids::of(meta, &BTreeSet::new());
    let mut engine = Engine::new(config, &[], &ids, reader, Vec::new(), BATCH_ROWS)?;
    refuse_other_encoding(meta, &mut engine, reset)?;
    for OperatorState { name, fingerprint, value_type, .. } in engine.states() {
        let query = query_of(name);
        let changed =
            meta.operator(name).is_some_and(|old| old.fingerprint != fingerprint || old.value_type != value_type);
        if changed && !reset.contains(query) {
            let message = format!(
                "the query `{query}` has changed in a way that its state (operator {name}) does not fit any more. Take the \
                 old configuration back; or drop the query's state, open windows included, by `forebay run {file} \
                 --reset query.{query}`; or give the new query another name: then, too, the old one's state is dropped",
                file = config.file
            );
            return Err(EngineError::Configuration { message });
        }
    }
    // A checkpoint that begins an imported or repaired state may know nothing of the engine yet.
    if meta.engine.is_empty() { Ok(()) } else { engine.fits(meta) }
}

/// A finished state takes no new input.
fn refuse_new_input(config: &Config, engine: &Engine) -> Result<(), EngineError> {
    let positions: BTreeMap<String, _> = engine.source_positions().into_iter().collect();
    for source in &config.sources {
        if source.connector.has_more(positions.get(&source.name).copied()) {
            let message = format!(
                "the input had ended and all windows have fired, but source {} has more now: use `follow = true` for a \
                 file that grows, or a new state directory for new input",
                source.name
            );
            return Err(EngineError::Configuration { message });
        }
    }
    Ok(())
}

fn log_start(writer: &mut LogWriter, clock: &LogClock) -> Result<(), EngineError> {
    let payload =
        postcard::to_stdvec(&StartRecord { version: env!("CARGO_PKG_VERSION").to_owned() }).unwrap_or_default();
    writer.append(vec![Run::one(SourceId::PIPELINE, RecordKind::Start, clock.now(), &payload)])?;
    Ok(())
}

/// How the log of a configuration is kept.
pub fn log_options(config: &Config) -> LogOptions {
    LogOptions {
        segment_bytes: config.log.segment_bytes,
        max_bytes: config.log.max_size_bytes,
        compression: config.log.compression,
    }
}
