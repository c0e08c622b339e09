//! The shell around the core: opens a state, starts the threads, and ends them in order.
//!
//! ```text
//! main      source tasks (smol), signals           ─▶ queue
//! log       group commit: queue → log → hand-over     (commit.rs)
//! engine    hand-over → step → sinks, checkpoints     (drive.rs)
//! checkpoint  sink syncs, then one LMDB transaction   (checkpoint/worker.rs)
//! ```
//!
//! Ending, whatever the cause (all sources ended, SIGTERM, SIGINT): sources are dropped, the queue closes; the log thread
//! commits what is queued and closes the hand-over; the engine takes the rest, checkpoints, and ends. Nothing fires that
//! the log does not say. While it ends, nobody waits for disk space any more; a second signal ends the process at once.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_signal::{Signal, Signals};
use futures_lite::StreamExt;
use futures_lite::future::{or, pending};
use smol::Executor;
use smol::channel::{Receiver, Sender, bounded};
use tracing::{info, warn};

use super::EngineError;
use super::ahead::threads_for_this_machine;
use super::choices::Choices;
use super::commit::{LogThread, Shared, append_bytes_max};
use super::drive::{Driver, Parts, Replayed};
use super::handover::Handover;
use super::open::{self, Opened};
use super::reserve::Reserve;
use super::status::Observed;
use super::step::{BATCH_ROWS, Counters};
use super::table::Watcher;
use crate::checkpoint::{CheckpointThread, Checkpoints, Space};
use crate::config::{Config, OnSourceError, Source, WhenFull};
use crate::control::notify;
use crate::control::socket::{self, ControlSocket};
use crate::disk::{LogClock, Stop, release_code};
use crate::event::{Lsn, RecordKind, Run, SourceId};
use crate::replay_log::LogStats;
use crate::source::queue::Queue;
use crate::source::{Arrival, ArrivalClock, Output, Resume, SourceError};

/// Pauses between attempts to start a failed source.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// How a run ended well.
#[derive(Debug)]
pub struct Summary {
    pub end: End,
    pub counters: Counters,
    /// What this run wrote to the log.
    pub log: LogStats,
}

/// Why a run ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All sources have ended and all windows have fired.
    Finished,
    /// The state was finished already and there is no new input.
    AlreadyFinished,
    /// Asked to stop by a signal.
    Stopped,
    /// Asked by SIGHUP to take a changed configuration: start again.
    Changed,
}

/// Starts to listen for SIGTERM and SIGINT, and for SIGHUP where that means a changed configuration: from here on they no
/// longer end the process by themselves.
///
/// # Errors
/// The system refuses.
pub fn listen_for_signals(hangup_is_change: bool) -> Result<Signals, EngineError> {
    let change = hangup_is_change.then_some(Signal::Hup);
    Signals::new([Signal::Term, Signal::Int].into_iter().chain(change))
        .map_err(|source| EngineError::Io { action: "listen for signals".into(), source })
}

/// Runs a pipeline until its input ends or one of `signals` asks it to stop. At SIGHUP `reload` gives the configuration as
/// it is now, if it is valid; the pipeline ends for a start under it only if its state fits.
///
/// # Errors
/// Whatever stopped it; a start after that recovers.
pub fn run(
    config: Config,
    choices: Choices,
    mut signals: Signals,
    reload: &(dyn Fn() -> Option<Config> + Sync),
) -> Result<Summary, EngineError> {
    let config = Arc::new(config);
    let opening = Arc::clone(&config);
    let opened = smol::unblock(move || open::open(&opening, BATCH_ROWS, &choices));
    let Opened { engine, store, writer, clock, tail_end, torn: _, checkpoint, stop, lock } =
        match smol::block_on(or(opened, stopped_at_start(&mut signals)))? {
            open::Start::Go(opened) => *opened,
            open::Start::Finished(counters) => {
                return Ok(Summary { end: End::AlreadyFinished, counters, log: LogStats::default() });
            }
        };
    let mut engine = engine;
    let is_replayed = engine.last_lsn() >= tail_end;
    let tables: Vec<(Option<u32>, bool)> = config
        .tables
        .iter()
        .map(|table| engine.table_version_of(&table.name))
        // Behind a tail the version may be another one by then.
        .map(|version| (version.filter(|_| is_replayed), version.is_some()))
        .collect();
    if !clock.synchronised() && config.sources.iter().any(|source| source.time.max_future_ms.is_some()) {
        warn!("the clock is not known to be right: until it is, `max_future` refuses nothing");
    }
    let shared = Arc::new(Shared::default());
    let handover = Arc::new(Handover::new(config.queue_bytes(), writer.last_lsn()));
    let ids: Vec<(SourceId, String)> = writer.sources().to_vec();
    let drops = config.log.when_full == WhenFull::DropNewest;
    let cannot_wait = config.sources.iter().filter(|source| drops && !source.connector.can_wait());
    let cannot_wait = cannot_wait.filter_map(|it| Some(ids.iter().find(|(_, name)| *name == it.name)?.0)).collect();
    let queue = Arc::new(Queue::new(config.queue_bytes()).dropping_for(cannot_wait));
    let (replayed_out, replayed_in) = bounded::<Replayed>(1);
    let (ended_out, ended_in) = bounded::<()>(2);

    let log = LogThread {
        queue: Arc::clone(&queue),
        writer,
        clock: Arc::clone(&clock),
        handover: Arc::clone(&handover),
        shared: Arc::clone(&shared),
        durability: config.durability,
        append_bytes_max: append_bytes_max(config.log.max_size_bytes, config.pipeline.memory_bytes),
        stop: stop.clone(),
        // Sources that can wait as long as they like need not fill the disk when the engine is slower.
        follows_engine: config.sources.iter().all(|source| source.connector.is_bounded()),
        trimmed: Lsn::ZERO,
    };
    let log = spawn("log", ended_out.clone(), move || log.run())?;
    let (wake, observed_handover) = (Arc::clone(&handover), Arc::clone(&handover));
    let reserve = Reserve::new(Arc::clone(&store.disk), &config.pipeline.state);
    let (wanting, log_queue) = (Arc::clone(&shared), Arc::clone(&queue));
    let space = move |space| match space {
        Space::Wanting => {
            reserve.release();
            wanting.want_space();
            log_queue.wake();
        }
        Space::Found => reserve.make(),
    };
    let checkpoints = Arc::clone(&store.checkpoints);
    let worker = CheckpointThread::start(Arc::clone(&store.checkpoints), move || wake.wake(), space);
    let parts = worker.map(|worker| Parts {
        config: Arc::clone(&config),
        engine,
        store,
        worker: Box::new(worker),
        handover,
        shared: Arc::clone(&shared),
        queue: Arc::clone(&queue),
        checkpoint,
        stop: stop.clone(),
        tail_end,
        replayed: replayed_out,
        decode_threads: threads_for_this_machine(),
    });
    let abandoned = Arc::clone(&shared);
    let engine = spawn("engine", ended_out, move || {
        // Also after a panic, or the log thread would wait for ever.
        let _abandoned = AbandonOnDrop(abandoned);
        parts.map_err(EngineError::from).and_then(Driver::new).and_then(Driver::run)
    })?;

    let counters: Vec<_> = config.sources.iter().map(|_| Arc::default()).collect();
    let observed = Observed {
        config: &config,
        started: Instant::now(),
        clock: &clock,
        queue: &queue,
        handover: &observed_handover,
        shared: &shared,
        sources: &counters,
    };
    let sources = Sources {
        config: &config,
        ids: &ids,
        tables: &tables,
        queue: &queue,
        clock: &clock,
        observed: &observed,
        checkpoints: checkpoints.as_ref(),
        reload,
    };
    let outcome = smol::block_on(sources.run(replayed_in, &ended_in, &mut signals, &stop));
    // Also when the sources failed: what is logged is processed and checkpointed.
    queue.close();
    match outcome {
        Ok(End::Changed) => notify::reloading(),
        _ => notify::stopping(),
    }
    smol::block_on(or(all_ended(&ended_in), obey(&mut signals, &stop)));
    let log = join("the log thread", log);
    let engine = join("the engine thread", engine);
    drop(lock);
    // The engine's failure explains the log's end, not the other way round; the log's own failure comes first.
    log?.map_err(EngineError::from)?;
    let counters = engine??;
    let mut end = outcome?;
    if end == End::Changed && stop.is_requested() {
        // Asked to stop while it was stopping for the change: the next start takes it.
        end = End::Stopped;
    }
    Ok(Summary { end, counters, log: shared.stats() })
}

type Thread<T> = JoinHandle<T>;

fn spawn<T: Send + 'static>(
    name: &'static str,
    ended: Sender<()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Thread<T>, EngineError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Also when the work panics, the main thread must hear of its end.
            let _ended = OnDrop(ended);
            work()
        })
        .map_err(|source| EngineError::Io { action: format!("start the {name} thread"), source })
}

struct AbandonOnDrop(Arc<Shared>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// While a state is opened nothing new is logged, and every step is safe against a crash: a signal ends the process here,
/// however long the opening takes.
async fn stopped_at_start<T>(signals: &mut Signals) -> T {
    while let Some(Ok(signal)) = signals.next().await {
        if signal != Signal::Hup {
            info!(?signal, "stopped while starting; run again to go on");
            std::process::exit(0);
        }
        warn!("asked to take a changed configuration while starting: ask again when it runs");
    }
    pending().await
}

/// Waits until no thread holds its end of the channel any more.
async fn all_ended(ended: &Receiver<()>) {
    while ended.recv().await.is_ok() {}
}

/// While the threads end: the first signal ends waits for space, the second one the process.
async fn obey(signals: &mut Signals, stop: &Stop) {
    while let Some(Ok(signal)) = signals.next().await {
        if signal == Signal::Hup {
            warn!(
                "no reload now: all input is logged, or the pipeline is stopping; a start takes a changed configuration"
            );
            continue;
        }
        if stop.is_requested() {
            warn!(?signal, "asked again: ending at once, as by a crash; the next start recovers");
            std::process::exit(128 + signal as i32);
        }
        info!(?signal, "stopping: no more waiting for space");
        stop.request();
    }
    pending().await
}

struct OnDrop(Sender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

fn join<T>(thread: &'static str, handle: Thread<T>) -> Result<T, EngineError> {
    handle.join().map_err(|_| EngineError::Panic { thread })
}

/// The main thread's part: source tasks and signals.
struct Sources<'a> {
    config: &'a Config,
    ids: &'a [(SourceId, String)],
    /// Of each lookup table: the version in force, where it is known; and whether there is any.
    tables: &'a [(Option<u32>, bool)],
    queue: &'a Arc<Queue>,
    clock: &'a Arc<LogClock>,
    observed: &'a Observed<'a>,
    checkpoints: &'a dyn Checkpoints,
    reload: &'a (dyn Fn() -> Option<Config> + Sync),
}

impl Sources<'_> {
    /// Whether the configuration file says something that a start would take; else the pipeline goes on as it is.
    fn takes_change(&self) -> bool {
        let Some(new) = (self.reload)() else { return false };
        let taken = open::check_change(self.config, &new, self.checkpoints);
        if let Err(error) = &taken {
            warn!(%error, "the changed configuration is not taken; the pipeline goes on under the old one");
        }
        taken.is_ok()
    }

    /// Listens on the control socket. Without one the engine runs as well.
    fn listen(&self) -> Option<ControlSocket> {
        let state = &self.config.pipeline.state;
        let bound = ControlSocket::bind(state);
        if let Err(error) = &bound {
            let socket = state.join(socket::NAME);
            warn!(socket = %socket.display(), %error, "cannot listen on the control socket: `forebay status` finds nobody");
        }
        bound.ok()
    }

    /// Runs the sources until all have ended, one has failed for good, a thread has ended, or a signal comes.
    async fn run(
        &self,
        replayed: Receiver<Replayed>,
        ended: &Receiver<()>,
        signals: &mut Signals,
        stop: &Stop,
    ) -> Result<End, EngineError> {
        let control = self.listen();
        let executor = Executor::new();
        let answer = |request: String| async move { self.observed.answer(&request).await };
        let _answering: Vec<_> = control
            .iter()
            .flat_map(|control| std::iter::repeat_n(control, socket::CONNECTIONS_MAX))
            .map(|control| executor.spawn(control.serve(answer)))
            .collect();
        let work = async {
            // What cannot wait starts before the replay; what resumes at a position must know it first.
            let (failed_out, failed_in) = bounded::<EngineError>(1);
            let mut tasks = Vec::new();
            // The first rows find the tables. The watchers have no end: they go with this future.
            let mut watchers = Vec::new();
            for (table, (version, has_version)) in self.config.tables.iter().zip(self.tables) {
                let Some((id, _)) = self.ids.iter().find(|(_, name)| *name == table.name) else { continue };
                let mut watcher = Watcher::new(table, *id, self.queue, self.clock, *version);
                match watcher.load().await {
                    Err(error) if *has_version => watcher.complain(&error),
                    loaded => loaded?,
                }
                watchers.push(executor.spawn(watcher.watch()));
            }
            for source in self.config.sources.iter().filter(|source| !source.connector.is_replayable()) {
                tasks.push(executor.spawn(self.supervise(source, Resume::default(), failed_out.clone())));
            }
            let Ok(at) = replayed.recv().await else {
                // The engine ended during the replay; its error says why.
                return pending().await;
            };
            for source in self.config.sources.iter().filter(|source| source.connector.is_replayable()) {
                let resume = Resume { position: at.positions.get(&source.name).copied() };
                if !at.ended.contains(&source.name) {
                    tasks.push(executor.spawn(self.supervise(source, resume, failed_out.clone())));
                }
            }
            notify::ready();
            release_code();
            info!(
                pipeline = %self.config.pipeline.name,
                sources = self.config.sources.len(),
                queries = self.config.queries.len(),
                sinks = self.config.sinks.len(),
                "running; SIGTERM or Ctrl-C stops, a restart goes on where this ends"
            );
            let all = async {
                for task in tasks {
                    task.await;
                }
                Ok(End::Finished)
            };
            let failed = async {
                match failed_in.recv().await {
                    Ok(error) => Err(error),
                    Err(_) => pending().await,
                }
            };
            or(failed, all).await
        };
        let asked = async {
            loop {
                match signals.next().await {
                    Some(Ok(Signal::Hup)) => {
                        if self.takes_change() {
                            info!("taking the changed configuration: what is logged is processed, then checkpointed");
                            return Ok(End::Changed);
                        }
                        continue;
                    }
                    Some(Ok(signal)) => info!(?signal, "stopping: what is logged is processed, then checkpointed"),
                    Some(Err(error)) => warn!(%error, "the signal watch failed; stopping"),
                    None => pending().await,
                }
                stop.request();
                return Ok(End::Stopped);
            }
        };
        let thread_ended = async {
            let _ = ended.recv().await;
            // Its result says why.
            Ok(End::Stopped)
        };
        executor.run(or(or(asked, thread_ended), work)).await
    }

    /// Runs one source, again and again where it fails and that is wanted, and logs its end of input.
    async fn supervise(&self, source: &Source, resume: Resume, failed: Sender<EngineError>) {
        let Some((id, _)) = self.ids.iter().find(|(_, name)| *name == source.name) else { return };
        let clock = Arc::clone(self.clock);
        let stamp: ArrivalClock =
            Arc::new(move || Arrival { time: clock.now(), unsynchronised: !clock.synchronised() });
        let run_bytes_max = self.config.run_bytes_max();
        let index = self.config.sources.iter().position(|known| known.name == source.name);
        let counters = index.and_then(|index| self.observed.sources.get(index)).cloned().unwrap_or_default();
        let name = source.name.as_str().into();
        let output = Output::new(*id, name, Arc::clone(self.queue), stamp, counters, run_bytes_max);
        let mut pause = RETRY_FIRST;
        let mut resume = resume;
        loop {
            let error = match source.connector.build(resume).run(output.clone()).await {
                Ok(crate::source::End::EndOfInput) => {
                    let run = Run::one(*id, RecordKind::EndOfInput, self.clock.now(), &[]);
                    // A closed queue means that the end was not logged: it will come again.
                    let _ = self.queue.push(run).await;
                    return;
                }
                Err(error) => error,
            };
            if matches!(error, SourceError::Closed(_)) {
                return;
            }
            if error.is_final() || self.config.pipeline.on_source_error == OnSourceError::Fail {
                let error = EngineError::Source { source_name: source.name.clone(), reason: error.to_string() };
                let _ = failed.try_send(error);
                return;
            }
            warn!(source = %source.name, %error, retry_ms = pause.as_millis() as u64, "the source failed; trying again");
            smol::Timer::after(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
            resume = Resume { position: output.position().or(resume.position) };
        }
    }
}
