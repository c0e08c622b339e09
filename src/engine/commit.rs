//! The log thread: group commit. What sources queue becomes frames, one sync each, and goes on to the engine only then.
//!
//! A frame waits for `durability.delay` from its first message or for `durability.bytes`, whichever comes first. While a
//! sync runs, what arrives gathers in the queue and goes into the next frame, so a fast source costs few, large syncs.
//! Ticks are logged only at the deadlines that the engine has asked for, and never while a source is held back: silence
//! by backpressure is no silence.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::handover::Handover;
use super::status::Board;
use crate::config::Durability;
use crate::disk::{LogClock, Stop};
use crate::event::{Gap, LogTime, Lsn, RecordKind, Run, SourceId};
use crate::replay_log::{LogError, LogStats, LogWriter, Wait};
use crate::source::queue::{Dropped, Popped, Queue};

/// Bytes of one append at most: bounds memory; larger ones would save no syncs worth having.
const APPEND_BYTES_MAX: u64 = 1 << 20;

/// Bytes of one append at most in a log of this cap and a pipeline of this memory. One that is larger than what trimming
/// can free would never fit; and state can only be checkpointed between frames.
pub fn append_bytes_max(log_bytes_max: u64, memory_bytes: u64) -> usize {
    usize::try_from(APPEND_BYTES_MAX.min(log_bytes_max / 8).min(memory_bytes / 64)).unwrap_or(usize::MAX)
}

/// How long the log thread sleeps at most when nothing happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a log thread without disk space waits at most until it tries again.
const SPACE_LOOK: Duration = Duration::from_millis(500);
/// While messages are dropped, one warning per this time.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// What the log thread and the engine tell each other.
pub struct Shared {
    /// Log time at which a tick is due; `i64::MAX`: none.
    deadline_us: AtomicI64,
    /// The log is full: a checkpoint is needed to trim it.
    checkpoint_wanted: AtomicBool,
    /// A checkpoint finds no space on the disk.
    space_wanted: AtomicBool,
    /// The engine has failed: waiting for it is in vain.
    abandoned: AtomicBool,
    trim: Mutex<Lsn>,
    trimmed: Condvar,
    stats: Mutex<LogStats>,
    /// The engine's part of a status.
    pub board: Board,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            deadline_us: AtomicI64::new(i64::MAX),
            checkpoint_wanted: AtomicBool::new(false),
            space_wanted: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            trim: Mutex::new(Lsn::ZERO),
            trimmed: Condvar::new(),
            stats: Mutex::default(),
            board: Board::default(),
        }
    }
}

impl Shared {
    /// The engine asks for a tick at this log time. Gives whether that is sooner than before.
    pub fn set_deadline(&self, deadline: Option<LogTime>) -> bool {
        let new = deadline.map_or(i64::MAX, |time| time.0);
        new < self.deadline_us.swap(new, Ordering::AcqRel)
    }

    /// A checkpoint has freed the log below this LSN.
    pub fn trim_below(&self, below: Lsn) {
        *self.trim.lock().unwrap_or_else(PoisonError::into_inner) = below;
        self.checkpoint_wanted.store(false, Ordering::Release);
        self.space_wanted.store(false, Ordering::Release);
        self.trimmed.notify_all();
    }

    /// The log needs a checkpoint to go on.
    pub fn want_checkpoint(&self) {
        self.checkpoint_wanted.store(true, Ordering::Release);
    }

    /// Whether the log needs a checkpoint to go on.
    pub fn checkpoint_wanted(&self) -> bool {
        self.checkpoint_wanted.load(Ordering::Acquire)
    }

    /// A checkpoint needs space on the disk: until one is through, the log takes none and gives back what it can.
    pub fn want_space(&self) {
        self.space_wanted.store(true, Ordering::Release);
    }

    fn space_wanted(&self) -> bool {
        self.space_wanted.load(Ordering::Acquire)
    }

    /// The engine is gone.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.trimmed.notify_all();
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// What the log has written since it was opened.
    pub fn stats(&self) -> LogStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to trim beyond `known`, or the time is over.
    fn wait_for_trim(&self, known: Lsn, timeout: Duration) -> Wait {
        let trim = self.trim.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = |trim: &mut Lsn| *trim <= known && !self.is_abandoned();
        let (trim, _) = self.trimmed.wait_timeout_while(trim, timeout, wait).unwrap_or_else(PoisonError::into_inner);
        match *trim {
            _ if self.is_abandoned() => Wait::Stop,
            below if below > known => Wait::Trim(below),
            _ => Wait::Retry,
        }
    }
}

/// The log thread's parts.
pub struct LogThread {
    pub queue: Arc<Queue>,
    pub writer: LogWriter,
    pub clock: Arc<LogClock>,
    pub handover: Arc<Handover>,
    pub shared: Arc<Shared>,
    pub durability: Durability,
    /// See [`append_bytes_max`].
    pub append_bytes_max: usize,
    /// No more waiting for space.
    pub stop: Stop,
    /// Wait for the engine when it lags: every source can wait as long as it likes.
    pub follows_engine: bool,
    /// What the log was trimmed to.
    pub trimmed: Lsn,
}

impl LogThread {
    /// Runs until the queue is closed and empty.
    ///
    /// # Errors
    /// The log failed; the engine has to start again.
    pub fn run(mut self) -> Result<(), LogError> {
        let shared = Arc::clone(&self.shared);
        let handover = Arc::clone(&self.handover);
        // Also after a panic, or the engine would wait for ever.
        let _closed = CloseOnDrop(Arc::clone(&self.handover));
        let stop = self.stop.clone();
        let queue = Arc::clone(&self.queue);
        let mut known = Lsn::ZERO;
        self.writer.set_space_wait(Box::new(move |timeout| {
            shared.want_checkpoint();
            handover.wake();
            queue.start_dropping();
            if stop.is_requested() {
                return Wait::Stop;
            }
            // In short steps, to hear of a stop. What a checkpoint waits for is not snatched from it: it frees the log.
            let mut wait = shared.wait_for_trim(known, timeout.min(SPACE_LOOK));
            while wait == Wait::Retry && shared.space_wanted() && !stop.is_requested() {
                wait = shared.wait_for_trim(known, SPACE_LOOK);
            }
            if let Wait::Trim(below) = &wait {
                known = *below;
            }
            wait
        }));
        let result = self.commit_until_closed();
        if result.is_err() {
            // There is no room for their records.
            self.warn_of_drops(&mut None);
        }
        result
    }

    fn commit_until_closed(&mut self) -> Result<(), LogError> {
        let mut warned = None;
        loop {
            let bytes = self.append_bytes_max;
            while self.follows_engine && !self.handover.has_room(bytes) && !self.shared.is_abandoned() {
                self.handover.wait_for_room(bytes, Duration::from_millis(100));
                self.give_space()?;
            }
            let popped = self.queue.pop_all(self.append_bytes_max, Some(self.patience()));
            let mut runs = match popped {
                Popped::Runs(runs) => self.gather(runs),
                Popped::Nothing => Vec::new(),
                Popped::Closed => return Ok(()),
            };
            self.add_own(&mut runs);
            while let Some(kept) = self.commit(runs)? {
                runs = kept;
                self.queue.start_dropping();
                self.warn_of_drops(&mut warned);
                if self.shared.wait_for_trim(self.trimmed, Duration::from_millis(100)) == Wait::Stop {
                    return self.give_up(runs);
                }
            }
            self.warn_of_drops(&mut warned);
            self.queue.stop_dropping(|source, dropped| self.gap(source, dropped));
        }
    }

    /// The record of what a full log could not take.
    fn gap(&self, source: SourceId, dropped: Dropped) -> Run {
        let reason = "the log was full (log.when_full = \"drop_newest\")".to_owned();
        let gap = Gap { reason, messages: Some(dropped.messages), bytes: Some(dropped.bytes) };
        Run::one(source, RecordKind::Gap, self.clock.now(), &postcard::to_stdvec(&gap).unwrap_or_default())
    }

    /// The engine is gone and the log stays full: what it cannot take of sources that cannot wait leaves its record in the
    /// room that is kept for such.
    fn give_up(&mut self, runs: Vec<Run>) -> Result<(), LogError> {
        self.queue.close();
        let mut gaps = self.queue.drop_rest(runs);
        self.warn_of_drops(&mut None);
        gaps.extend(self.queue.dropped().into_iter().map(|(source, it)| self.gap(source, it)));
        if self.writer.has_room(&gaps) {
            self.writer.append(gaps)?;
        }
        Ok(())
    }

    /// Warns of what was dropped, at most once in a while.
    fn warn_of_drops(&self, warned: &mut Option<Instant>) {
        let dropped = self.queue.dropped();
        if dropped.is_empty() || warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return;
        }
        *warned = Some(Instant::now());
        for (id, Dropped { messages, bytes }) in dropped {
            let source = self.writer.sources().iter().find(|(known, _)| *known == id).map(|(_, name)| name.as_str());
            let source = source.unwrap_or_default();
            warn!(source, messages, bytes, "the log is full: messages of a source that cannot wait are dropped");
        }
    }

    /// Adds the records that are the pipeline's own: a step of the clock, a tick that is due.
    pub fn add_own(&self, runs: &mut Vec<Run>) {
        if let Some(step) = self.clock.step() {
            let payload = postcard::to_stdvec(&step).unwrap_or_default();
            // What arrived before the step keeps its time: the log would raise it to that of a record before it.
            let now = self.clock.now();
            let time = runs.first().map_or(now, |run| run.time.min(now));
            runs.insert(0, Run::one(SourceId::PIPELINE, RecordKind::ClockStep, time, &payload));
        }
        // Also behind data: a source that never rests must not keep the others' silence from being seen.
        if self.tick_due() {
            runs.push(Run::one(SourceId::PIPELINE, RecordKind::Tick, self.clock.now(), &[]));
        }
    }

    /// Trims the log, then logs these runs and hands the frames to the engine. Gives the runs back where the log is full:
    /// a checkpoint is asked for, and must have freed some of it before they are tried again.
    ///
    /// # Errors
    /// The log failed.
    pub fn commit(&mut self, runs: Vec<Run>) -> Result<Option<Vec<Run>>, LogError> {
        if let Wait::Trim(below) = self.shared.wait_for_trim(self.trimmed, Duration::ZERO) {
            self.writer.trim(below)?;
            self.trimmed = below;
        }
        self.give_space()?;
        if runs.is_empty() {
            return Ok(None);
        }
        if !self.writer.has_room(&runs) {
            self.shared.want_checkpoint();
            self.handover.wake();
            return Ok(Some(runs));
        }
        for frame in self.writer.append(runs)? {
            self.handover.offer(frame);
        }
        *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.writer.stats();
        Ok(None)
    }

    /// Gives up the log's spares where a checkpoint finds no space.
    fn give_space(&mut self) -> Result<(), LogError> {
        if self.shared.space_wanted() { self.writer.release_spares() } else { Ok(()) }
    }

    /// Waits for more until the frame is large or old enough.
    fn gather(&self, mut runs: Vec<Run>) -> Vec<Run> {
        let wanted = usize::try_from(self.durability.bytes).unwrap_or(usize::MAX).min(self.append_bytes_max);
        let until = Instant::now() + self.durability.delay;
        // `durability.bytes` is what a sync writes: references to as much payload as an append takes are few bytes.
        let size = |runs: &[Run]| (runs.iter().map(Run::size_bytes).sum(), runs.iter().map(Run::logged_bytes).sum());
        let (mut bytes, mut logged): (usize, usize) = size(&runs);
        while logged < wanted && bytes < self.append_bytes_max {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match self.queue.pop_all(self.append_bytes_max - bytes, Some(left)) {
                Popped::Runs(more) => {
                    let (more_bytes, more_logged) = size(&more);
                    bytes += more_bytes;
                    logged += more_logged;
                    runs.extend(more);
                }
                Popped::Nothing => {}
                Popped::Closed => break,
            }
        }
        runs
    }

    /// How long to wait for a message: until the next tick is due. A jump of the wall clock is seen, and a deadline that
    /// a suspend has passed is met, at the end of the wait at the latest.
    fn patience(&self) -> Duration {
        let deadline = self.shared.deadline_us.load(Ordering::Acquire);
        if deadline == i64::MAX {
            return PATIENCE;
        }
        self.clock.time_until(LogTime(deadline)).min(PATIENCE)
    }

    fn tick_due(&self) -> bool {
        let deadline = self.shared.deadline_us.load(Ordering::Acquire);
        if deadline == i64::MAX || self.clock.now().0 < deadline || self.queue.blocked() {
            return false;
        }
        // One tick per deadline: the engine sets the next one when it has taken this tick.
        self.shared.deadline_us.compare_exchange(deadline, i64::MAX, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

struct CloseOnDrop(Arc<Handover>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::disk::{Clock, ManualClock};
    use crate::event::{ClockStep, Epoch};
    use crate::replay_log::{Identity, LogOptions, open};

    const START: i64 = 1_775_000_000_000_000;
    const HOUR: i64 = 3_600_000_000;

    /// A log thread that is not running, and its clock.
    fn log_thread() -> (LogThread, Arc<ManualClock>) {
        let identity =
            Identity { pipeline: "p".into(), epoch: Epoch([1; 16]), sources: vec![(SourceId(0), "plant".into())] };
        let disk = Arc::new(SimDisk::new(1));
        let (writer, _) = open(disk, Path::new("/log"), identity, LogOptions::default(), Lsn::ZERO).unwrap();
        let manual = Arc::new(ManualClock::new(START));
        let log = LogThread {
            queue: Arc::new(Queue::new(1 << 20)),
            handover: Arc::new(Handover::new(1 << 20, writer.last_lsn())),
            writer,
            clock: Arc::new(LogClock::new(Arc::clone(&manual) as Arc<dyn Clock>)),
            shared: Arc::default(),
            durability: Durability { delay: Duration::ZERO, bytes: 1 },
            append_bytes_max: 1 << 20,
            stop: Stop::default(),
            follows_engine: false,
            trimmed: Lsn::ZERO,
        };
        (log, manual)
    }

    fn data(time: i64) -> Run {
        Run::one(SourceId(0), RecordKind::Data, LogTime(time), b"{}")
    }

    fn kinds(runs: &[Run]) -> Vec<(RecordKind, i64)> {
        runs.iter().map(|run| (run.kind, run.time.0 - START)).collect()
    }

    #[test]
    fn a_tick_comes_once_and_also_behind_data() {
        let (log, clock) = log_thread();
        log.shared.set_deadline(Some(LogTime(START + 500)));
        assert_eq!(log.patience(), Duration::from_micros(500));
        let mut runs = vec![data(START)];
        log.add_own(&mut runs);
        assert_eq!(kinds(&runs), [(RecordKind::Data, 0)]);
        clock.advance(700);
        assert_eq!(log.patience(), Duration::ZERO);
        let mut runs = vec![data(START + 600)];
        log.add_own(&mut runs);
        assert_eq!(kinds(&runs), [(RecordKind::Data, 600), (RecordKind::Tick, 700)]);
        let mut runs = Vec::new();
        log.add_own(&mut runs);
        assert_eq!(kinds(&runs), []);
        assert_eq!(log.patience(), PATIENCE);
    }

    #[test]
    fn a_deadline_is_reached_while_log_time_is_ahead_without_a_wake_up_in_between() {
        let (log, clock) = log_thread();
        clock.set_wall(START - HOUR);
        log.shared.set_deadline(Some(LogTime(START + 10_000_000)));
        let wait = log.patience();
        assert_eq!(wait, Duration::from_secs(20), "at half speed");
        clock.advance(i64::try_from(wait.as_micros()).unwrap());
        let mut runs = Vec::new();
        log.add_own(&mut runs);
        assert_eq!(kinds(&runs), [(RecordKind::ClockStep, 10_000_000), (RecordKind::Tick, 10_000_000)]);
    }

    #[test]
    fn what_arrived_before_a_step_keeps_its_time() {
        let (mut log, clock) = log_thread();
        clock.advance(10);
        let before = data(START + 10);
        clock.set_wall(START + HOUR);
        let after = data(log.clock.now().0);
        let mut runs = vec![before, after];
        log.add_own(&mut runs);
        let expected = [(RecordKind::ClockStep, 10), (RecordKind::Data, 10), (RecordKind::Data, HOUR)];
        assert_eq!(kinds(&runs), expected);
        let step: ClockStep = postcard::from_bytes(&runs[0].payload).unwrap();
        assert_eq!(step.wall_minus_log_us, 0);
        assert!(log.commit(runs).unwrap().is_none());
        let handed = log.handover.next(Lsn::ZERO, Duration::ZERO);
        assert!(matches!(handed, super::super::handover::Next::Frame(frame) if kinds(&frame.runs) == expected));
    }
}
