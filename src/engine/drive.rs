//! The engine thread: feeds the core with frames, decides when to checkpoint, and lets the log be trimmed.
//!
//! Law 4 is in the order of the calls here: a frame comes only from the hand-over (synced) or the log; the core processes
//! it; sinks are flushed; a checkpoint job syncs them, then commits; only then is the log trimmed, up to the
//! second-newest checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use smol::channel::Sender;
use tracing::{debug, info};

use super::EngineError;
use super::commit::Shared;
use super::handover::{Handover, Next};
use super::open::{self, Store};
use super::step::{Counters, Engine};
use crate::checkpoint::{CheckpointMeta, CheckpointWorker, Finished, Job, SinkSync};
use crate::config::Config;
use crate::disk::{RealDisk, Stop};
use crate::event::{Epoch, Lsn, Position, Run};
use crate::replay_log::{LogReader, log_dir};
use crate::source::queue::Queue;

/// The engine has processed all that the log held at the start.
pub struct Replayed {
    /// Where each replayable source resumes.
    pub positions: BTreeMap<String, Position>,
    /// Sources that had ended before.
    pub ended: BTreeSet<String>,
}

/// How long the engine sleeps at most when nothing happens: it is woken by frames, checkpoints and the log's needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often an engine that waits for a checkpoint looks whether it was asked to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// The engine thread's parts.
pub struct Driver {
    config: Arc<Config>,
    engine: Engine,
    snapshot: Arc<crate::checkpoint::Snapshot>,
    worker: CheckpointWorker,
    handover: Arc<Handover>,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    epoch: Epoch,
    /// The newest committed checkpoint.
    committed: CheckpointMeta,
    /// The checkpoint in flight.
    pending: Option<CheckpointMeta>,
    /// Below this the log has been given free.
    trimmed: Lsn,
    stop: Stop,
    last_checkpoint: Instant,
    bytes_since_checkpoint: u64,
    reader: Option<LogReader>,
    tail_end: Lsn,
    replayed: Option<Sender<Replayed>>,
}

impl Driver {
    /// A driver of an engine that stands at `checkpoint`.
    ///
    /// # Errors
    /// The checkpoint thread could not be started.
    #[expect(clippy::too_many_arguments, reason = "the parts of one thread, named by its fields")]
    pub fn new(
        config: Arc<Config>,
        engine: Engine,
        store: Store,
        handover: Arc<Handover>,
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        epoch: Epoch,
        checkpoint: CheckpointMeta,
        stop: Stop,
        tail_end: Lsn,
        replayed: Sender<Replayed>,
    ) -> Result<Driver, EngineError> {
        let wake = Arc::clone(&handover);
        let worker = CheckpointWorker::start(store.checkpoints, move || wake.wake())?;
        Ok(Driver {
            config,
            engine,
            snapshot: store.snapshot,
            worker,
            handover,
            shared,
            queue,
            epoch,
            committed: checkpoint,
            pending: None,
            trimmed: Lsn::ZERO,
            stop,
            last_checkpoint: Instant::now(),
            bytes_since_checkpoint: 0,
            reader: None,
            tail_end,
            replayed: Some(replayed),
        })
    }

    /// Runs until the hand-over is closed and everything is taken, then checkpoints.
    ///
    /// # Errors
    /// The engine, a sink, the log or a checkpoint failed.
    pub fn run(mut self) -> Result<Counters, EngineError> {
        let replay_from = self.engine.last_lsn();
        loop {
            self.collect_checkpoint()?;
            self.announce_replayed(replay_from)?;
            match self.handover.next(self.engine.last_lsn(), self.patience()) {
                Next::Frame(frame) => {
                    self.bytes_since_checkpoint += frame.runs.iter().map(Run::size_bytes).sum::<usize>() as u64;
                    self.engine.step(&frame)?;
                    self.engine.flush()?;
                }
                Next::OnDisk(synced) => self.step_from_disk(synced)?,
                Next::Nothing => {}
                Next::Closed => break,
            }
            // Behind the log nothing is known of silence; and a tick for each step would keep the engine behind for ever.
            let caught_up = self.handover.is_last(self.engine.last_lsn());
            if self.shared.set_deadline(self.engine.next_deadline().filter(|_| caught_up)) {
                self.queue.wake();
            }
            if self.checkpoint_is_due() {
                self.begin_checkpoint()?;
            } else if self.shared.checkpoint_wanted() && self.pending.is_none() && !self.has_news() {
                // The log needs room and no checkpoint can give more: let go of the safety margin.
                self.shared.trim_below(self.committed.cut.plus(1));
            }
            self.hold_memory()?;
        }
        if self.engine.ended() {
            self.engine.flush()?;
            self.engine.replayed()?;
        }
        // Take the checkpoint in flight, then a last one.
        self.wait_for_checkpoint()?;
        if self.has_news() {
            self.begin_checkpoint()?;
            self.wait_for_checkpoint()?;
        }
        Ok(self.engine.counters())
    }

    fn patience(&self) -> Duration {
        if !self.has_news() || self.pending.is_some() {
            return PATIENCE;
        }
        self.config.checkpoint.every.saturating_sub(self.last_checkpoint.elapsed()).min(PATIENCE)
    }

    /// Once: tells the sources where to resume, when all that was logged before the start is processed.
    fn announce_replayed(&mut self, from: Lsn) -> Result<(), EngineError> {
        if self.engine.last_lsn() < self.tail_end {
            return Ok(());
        }
        let Some(replayed) = self.replayed.take() else { return Ok(()) };
        self.engine.flush()?;
        // A pipeline of replayable sources alone may have lost the log's tail: it reads the same input again, and the
        // sinks compare it with what they hold.
        if !self.config.sources.iter().all(|source| source.connector.is_replayable()) {
            self.engine.replayed()?;
        }
        let records = self.engine.last_lsn().0.saturating_sub(from.0);
        if records > 0 {
            info!(records, "replayed what was logged since the last checkpoint");
        }
        let names = self.config.sources.iter().map(|source| source.name.clone());
        let ended = names.filter(|name| self.engine.source_ended(name)).collect();
        let positions = self.engine.source_positions().into_iter().collect();
        // Nobody listens when the pipeline is being stopped already.
        let _ = replayed.try_send(Replayed { positions, ended });
        Ok(())
    }

    fn step_from_disk(&mut self, synced: Lsn) -> Result<(), EngineError> {
        let next = self.engine.last_lsn().plus(1);
        let mut reader = match self.reader.take() {
            Some(reader) if reader.position() == next => reader,
            _ => LogReader::open(Arc::new(RealDisk), &log_dir(&self.config.pipeline.state), next)?,
        };
        let frame = reader.next()?.ok_or_else(|| EngineError::Saved {
            what: "the log".into(),
            reason: format!("LSN {next} is not there, though everything up to {synced} was synced"),
        })?;
        self.reader = Some(reader);
        self.bytes_since_checkpoint += frame.runs.iter().map(Run::size_bytes).sum::<usize>() as u64;
        self.engine.step(&frame)?;
        self.engine.flush()
    }

    fn has_news(&self) -> bool {
        self.engine.last_lsn() > self.pending.as_ref().unwrap_or(&self.committed).cut
    }

    fn checkpoint_is_due(&self) -> bool {
        let policy = &self.config.checkpoint;
        let due = self.last_checkpoint.elapsed() >= policy.every
            || self.bytes_since_checkpoint >= policy.log_bytes.min(self.config.log.max_size_bytes / 4);
        let wanted = self.shared.checkpoint_wanted();
        // The log is freed up to the second-newest checkpoint: a full one may need another checkpoint at the same place.
        let frees = wanted && self.trimmed <= self.committed.cut;
        self.pending.is_none() && ((due || wanted) && self.has_news() || frees)
    }

    fn begin_checkpoint(&mut self) -> Result<(), EngineError> {
        self.engine.flush()?;
        let cut = open::cut(&self.config, &mut self.engine, &self.committed, Vec::new())?;
        debug_assert_eq!(cut.meta.epoch, self.epoch);
        let syncs = cut
            .sinks
            .into_iter()
            .map(|sink| {
                let sync = sink.flushed.sync;
                SinkSync { sink: sink.name, sync: Box::new(move || sync().map_err(Into::into)) }
            })
            .collect();
        self.pending = Some(cut.meta.clone());
        self.last_checkpoint = Instant::now();
        self.bytes_since_checkpoint = 0;
        self.worker.submit(Job { meta: cut.meta, layers: cut.layers, syncs })?;
        Ok(())
    }

    fn collect_checkpoint(&mut self) -> Result<(), EngineError> {
        match self.worker.poll() {
            Some(finished) => self.finish_checkpoint(finished),
            None => Ok(()),
        }
    }

    fn wait_for_checkpoint(&mut self) -> Result<(), EngineError> {
        while self.worker.is_busy() {
            if let Some(finished) = self.worker.wait_for(STOP_LOOK) {
                return self.finish_checkpoint(finished);
            }
            if self.stop.is_requested() && self.worker.waits_for_space() {
                return Err(EngineError::NoSpace);
            }
        }
        Ok(())
    }

    fn finish_checkpoint(&mut self, finished: Finished) -> Result<(), EngineError> {
        let stats = finished.result?;
        self.snapshot.renew()?;
        let retired = self.engine.states().filter_map(|operator| operator.state.committed()).collect();
        self.worker.discard(retired);
        self.engine.sinks_committed()?;
        debug!(id = finished.id, cut = finished.cut.0, ?stats, "checkpoint");
        let second_newest = self.committed.cut;
        if let Some(meta) = self.pending.take() {
            self.committed = meta;
        }
        self.trimmed = second_newest.plus(1);
        self.shared.trim_below(self.trimmed);
        Ok(())
    }

    /// Keeps state in memory within its share: an early checkpoint turns dirty entries into clean ones, which can go.
    fn hold_memory(&mut self) -> Result<(), EngineError> {
        let share = usize::try_from(self.config.pipeline.memory_bytes / 2).unwrap_or(usize::MAX);
        if self.engine.memory_bytes() <= share || !self.has_news() && self.pending.is_none() {
            return Ok(());
        }
        self.wait_for_checkpoint()?;
        if self.has_news() {
            self.begin_checkpoint()?;
        }
        Ok(())
    }
}
