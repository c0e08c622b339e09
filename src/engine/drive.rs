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
use super::ahead::Ahead;
use super::commit::Shared;
use super::handover::{Handover, Next};
use super::open::{self, Store};
use super::status::EnginePart;
use super::step::{Counters, Engine};
use crate::checkpoint::{CheckpointMeta, CheckpointWorker, Finished, Wear};
use crate::config::Config;
use crate::disk::Stop;
use crate::event::{Frame, Lsn, Position, Run};
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
    parts: Parts,
    /// The checkpoint in flight.
    pending: Option<CheckpointMeta>,
    /// Below this the log has been given free.
    trimmed: Lsn,
    last_checkpoint: Instant,
    /// When this run's newest checkpoint was committed, and how long its transaction took.
    committed: Option<(Instant, Duration)>,
    /// What the state had cost the device at the start.
    wear_before: Wear,
    /// Bytes and number of this run's checkpoints.
    checkpoints_written: (u64, u64),
    bytes_since_checkpoint: u64,
    reader: Option<LogReader>,
    ahead: Ahead,
    replay_from: Lsn,
    announced: bool,
}

/// What a [`Driver`] is made of.
pub struct Parts {
    pub config: Arc<Config>,
    /// Stands at `checkpoint`.
    pub engine: Engine,
    pub store: Store,
    pub worker: Box<dyn CheckpointWorker>,
    pub handover: Arc<Handover>,
    pub shared: Arc<Shared>,
    pub queue: Arc<Queue>,
    /// The newest committed checkpoint.
    pub checkpoint: CheckpointMeta,
    /// Ends waits for space.
    pub stop: Stop,
    /// Last record that was in the log at the start.
    pub tail_end: Lsn,
    /// Who waits for the end of the replay.
    pub replayed: Sender<Replayed>,
    /// Beside the engine's own.
    pub decode_threads: usize,
}

impl Driver {
    /// A driver that begins with the replay.
    ///
    /// # Errors
    /// The decode threads cannot be started.
    pub fn new(mut parts: Parts) -> Result<Driver, EngineError> {
        Ok(Driver {
            ahead: Ahead::start(parts.decode_threads, parts.engine.preparer())?,
            replay_from: parts.engine.last_lsn(),
            committed: None,
            wear_before: parts.checkpoint.wear,
            checkpoints_written: (0, 0),
            parts,
            pending: None,
            trimmed: Lsn::ZERO,
            last_checkpoint: Instant::now(),
            bytes_since_checkpoint: 0,
            reader: None,
            announced: false,
        })
    }

    /// Runs until the hand-over is closed and everything is taken, then checkpoints.
    ///
    /// # Errors
    /// The engine, a sink, the log or a checkpoint failed.
    pub fn run(mut self) -> Result<Counters, EngineError> {
        while self.round(PATIENCE)? {}
        self.end()
    }

    /// One round: takes what has come, for which it waits at most so long, and checkpoints where one is due. False: there
    /// will be no more.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn round(&mut self, patience: Duration) -> Result<bool, EngineError> {
        self.collect_checkpoint()?;
        self.announce_replayed()?;
        if self.ahead.is_empty() {
            let patience = self.patience().min(patience);
            match self.next_frame(self.parts.engine.last_lsn(), patience)? {
                Next::Frame(frame) => self.ahead.push(frame, self.parts.engine.last_lsn()),
                Next::Closed => return Ok(false),
                Next::Nothing | Next::OnDisk(_) => {}
            }
        }
        self.read_ahead();
        if let Some(popped) = self.ahead.pop(self.parts.engine.preparer()) {
            let (frame, prepared) = popped?;
            self.bytes_since_checkpoint += frame.runs.iter().map(Run::size_bytes).sum::<usize>() as u64;
            self.parts.engine.take(&frame, prepared)?;
            self.parts.engine.flush()?;
        }
        // Behind the log nothing is known of silence; and a tick for each step would keep the engine behind for ever.
        let caught_up = self.parts.handover.is_last(self.parts.engine.last_lsn());
        if self.parts.shared.set_deadline(self.parts.engine.next_deadline().filter(|_| caught_up)) {
            self.parts.queue.wake();
        }
        if self.checkpoint_is_due() {
            self.begin_checkpoint()?;
        }
        self.hold_memory()?;
        if self.parts.shared.board.is_wanted() {
            let part = self.status();
            self.parts.shared.board.put(part);
        }
        Ok(true)
    }

    fn status(&mut self) -> EnginePart {
        EnginePart {
            processed: self.parts.engine.last_lsn(),
            processed_time: self.parts.engine.last_time(),
            replaying: !self.announced,
            state_memory_bytes: (self.parts.engine.dirty_bytes() + self.parts.engine.older_bytes()) as u64,
            counters: self.parts.engine.counters(),
            checkpoint: self.parts.checkpoint.clone(),
            committed: self.committed,
            checkpoint_in_flight: self.pending.is_some(),
            wear: self.wear(),
        }
    }

    /// What the state has cost the device up to now.
    fn wear(&self) -> Wear {
        let (before, log, output_bytes) =
            (&self.wear_before, self.parts.shared.stats(), self.parts.engine.output_bytes());
        let (checkpoint_bytes, checkpoints) = self.checkpoints_written;
        Wear {
            ingested_bytes: before.ingested_bytes + log.payload_bytes,
            log_bytes: before.log_bytes + log.device_bytes,
            log_syncs: before.log_syncs + log.syncs,
            checkpoint_bytes: before.checkpoint_bytes + checkpoint_bytes,
            checkpoints: before.checkpoints + checkpoints,
            output_bytes: before.output_bytes + output_bytes,
        }
    }

    /// After the last round: takes the checkpoint in flight, then a last one.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub fn end(mut self) -> Result<Counters, EngineError> {
        let mut adopted = false;
        if self.parts.engine.ended() {
            self.parts.engine.flush()?;
            adopted = self.parts.engine.replayed()?;
        }
        self.wait_for_checkpoint()?;
        if self.has_news() || adopted {
            self.begin_checkpoint()?;
            self.wait_for_checkpoint()?;
        }
        Ok(self.parts.engine.counters())
    }

    fn patience(&self) -> Duration {
        if !self.has_news() || self.pending.is_some() {
            return PATIENCE;
        }
        self.parts.config.checkpoint.every.saturating_sub(self.last_checkpoint.elapsed()).min(PATIENCE)
    }

    /// Once: tells the sources where to resume, when all that was logged before the start is processed.
    fn announce_replayed(&mut self) -> Result<(), EngineError> {
        if self.announced || self.parts.engine.last_lsn() < self.parts.tail_end {
            return Ok(());
        }
        self.announced = true;
        self.parts.engine.flush()?;
        // A pipeline of replayable sources alone may have lost the log's tail: it reads the same input again, and the
        // sinks compare it with what they hold.
        let all_replayable = self.parts.config.sources.iter().all(|source| source.connector.is_replayable());
        if !all_replayable && self.parts.engine.replayed()? {
            // At once: a crash behind this must not find the sink ahead again.
            self.wait_for_checkpoint()?;
            self.begin_checkpoint()?;
            self.wait_for_checkpoint()?;
        }
        let records = self.parts.engine.last_lsn().0.saturating_sub(self.replay_from.0);
        if records > 0 {
            info!(records, "replayed what was logged since the last checkpoint");
        }
        let names = self.parts.config.sources.iter().map(|source| source.name.clone());
        let ended = names.filter(|name| self.parts.engine.source_ended(name)).collect();
        let positions = self.parts.engine.source_positions().into_iter().collect();
        // Nobody listens when the pipeline is being stopped already.
        let _ = self.parts.replayed.try_send(Replayed { positions, ended });
        Ok(())
    }

    /// Gives the decode threads what is there already. What goes wrong does so again when it is the engine's turn, behind
    /// the frames before.
    fn read_ahead(&mut self) {
        while let Some(after) = self.ahead.last_lsn().filter(|_| self.ahead.has_room()) {
            match self.next_frame(after, Duration::ZERO) {
                Ok(Next::Frame(frame)) => self.ahead.push(frame, after),
                _ => break,
            }
        }
    }

    /// What follows `after`, also where it has to be read from the log.
    fn next_frame(&mut self, after: Lsn, patience: Duration) -> Result<Next, EngineError> {
        match self.parts.handover.next(after, patience) {
            Next::OnDisk(synced) => self.read_from_disk(after.plus(1), synced).map(Next::Frame),
            next => Ok(next),
        }
    }

    fn read_from_disk(&mut self, next: Lsn, synced: Lsn) -> Result<Frame, EngineError> {
        let mut reader = match self.reader.take() {
            Some(reader) if reader.position() == next => reader,
            _ => {
                LogReader::open(Arc::clone(&self.parts.store.disk), &log_dir(&self.parts.config.pipeline.state), next)?
            }
        };
        let frame = reader.next()?.ok_or_else(|| EngineError::Saved {
            what: "the log".into(),
            reason: format!("LSN {next} is not there, though everything up to {synced} was synced"),
        })?;
        self.reader = Some(reader);
        Ok(frame)
    }

    fn has_news(&self) -> bool {
        self.parts.engine.last_lsn() > self.pending.as_ref().unwrap_or(&self.parts.checkpoint).cut
    }

    fn checkpoint_is_due(&self) -> bool {
        let policy = &self.parts.config.checkpoint;
        let due = self.last_checkpoint.elapsed() >= policy.every
            || self.bytes_since_checkpoint >= policy.log_bytes.min(self.parts.config.log.max_size_bytes / 4);
        let wanted = self.parts.shared.checkpoint_wanted();
        // The log is freed up to the second-newest checkpoint: a full one may need another checkpoint at the same place.
        let frees = wanted && self.trimmed <= self.parts.checkpoint.cut;
        self.pending.is_none() && ((due || wanted) && self.has_news() || frees)
    }

    fn begin_checkpoint(&mut self) -> Result<(), EngineError> {
        let wear = self.wear();
        let Parts { config, engine, checkpoint, store, .. } = &mut self.parts;
        let mut job = open::begin(config, engine, checkpoint, store.clock.wall_us(), Vec::new())?;
        job.meta.wear = Wear { checkpoints: wear.checkpoints + 1, ..wear };
        self.pending = Some(job.meta.clone());
        self.last_checkpoint = Instant::now();
        self.bytes_since_checkpoint = 0;
        Ok(self.parts.worker.submit(job)?)
    }

    fn collect_checkpoint(&mut self) -> Result<(), EngineError> {
        match self.parts.worker.poll() {
            Some(finished) => self.finish_checkpoint(finished),
            None => Ok(()),
        }
    }

    fn wait_for_checkpoint(&mut self) -> Result<(), EngineError> {
        while self.pending.is_some() {
            if let Some(finished) = self.parts.worker.wait_for(STOP_LOOK) {
                return self.finish_checkpoint(finished);
            }
            if self.parts.stop.is_requested() && self.parts.worker.waits_for_space() {
                return Err(EngineError::NoSpace);
            }
        }
        Ok(())
    }

    fn finish_checkpoint(&mut self, finished: Finished) -> Result<(), EngineError> {
        let stats = finished.result?;
        let retired = open::finish(&mut self.parts.engine, self.parts.store.view.as_ref())?;
        self.parts.worker.discard(retired);
        debug!(id = finished.id, cut = finished.cut.0, ?stats, "checkpoint");
        self.committed = Some((Instant::now(), stats.duration));
        self.checkpoints_written.0 += stats.device_bytes;
        self.checkpoints_written.1 += 1;
        let second_newest = self.parts.checkpoint.cut;
        if let Some(meta) = self.pending.take() {
            self.parts.checkpoint = meta;
        }
        self.trimmed = second_newest.plus(1);
        self.parts.shared.trim_below(self.trimmed);
        // The log thread may have nothing else to do for long, and what it frees others may need.
        self.parts.queue.wake();
        Ok(())
    }

    /// Keeps state in memory within its share. Changes that have grown to two thirds of it are checkpointed early, so that
    /// they become a cache; beyond the whole, the cache goes, then the engine waits for the checkpoint in flight.
    fn hold_memory(&mut self) -> Result<(), EngineError> {
        let share = usize::try_from(self.parts.config.pipeline.memory_bytes / 2).unwrap_or(usize::MAX);
        // To weigh what is dirty means to look at values everywhere: once per frame.
        let dirty = self.parts.engine.dirty_bytes();
        if dirty + self.parts.engine.older_bytes() > share {
            // Dropped here: the checkpoint thread may be busy, and would hold it for as long.
            self.parts.engine.states().for_each(|operator| drop(operator.state.release()));
        }
        if dirty + self.parts.engine.older_bytes() > share {
            self.wait_for_checkpoint()?;
        }
        if self.pending.is_none() && self.has_news() && dirty > share / 3 * 2 {
            self.begin_checkpoint()?;
        }
        Ok(())
    }
}
