//! What `forebay status` shows of a running engine.
//!
//! The engine thread makes its part only when somebody asks: it looks at one flag in each round, and the one who asks
//! wakes it. An engine that is busy with a long step does not answer in time; then its last part is shown, with its age.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use event_listener::Event;
use futures_lite::future::or;
use serde::{Deserialize, Serialize};
use smol::Timer;

use super::commit::Shared;
use super::handover::Handover;
use super::step::Counters;
use crate::checkpoint::{CheckpointMeta, Wear};
use crate::config::Config;
use crate::disk::LogClock;
use crate::event::{LogTime, Lsn, Position};
use crate::source;
use crate::source::queue::Queue;

/// How long the engine has to make its part.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the engine thread knows.
#[derive(Clone, Debug)]
pub struct EnginePart {
    pub processed: Lsn,
    pub processed_time: LogTime,
    pub replaying: bool,
    pub state_memory_bytes: u64,
    pub counters: Counters,
    pub checkpoint: CheckpointMeta,
    /// When this run has made it, and the time of its write transaction; `None`: a run before has.
    pub committed: Option<(Instant, Duration)>,
    pub checkpoint_in_flight: bool,
    /// With what was written since the checkpoint.
    pub wear: Wear,
}

/// Where the engine thread puts its part.
#[derive(Default)]
pub struct Board {
    wanted: AtomicBool,
    part: Mutex<Option<(Instant, EnginePart)>>,
    put: Event,
}

impl Board {
    /// Whether somebody waits for the engine's part.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// The engine's part.
    pub fn put(&self, part: EnginePart) {
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), part));
        self.wanted.store(false, Ordering::Release);
        self.put.notify(usize::MAX);
    }

    /// Waits for a part that is made from now on; the last one where it does not come in time.
    async fn ask(&self, wake: impl Fn()) -> Option<(Instant, EnginePart)> {
        let put = self.put.listen();
        self.wanted.store(true, Ordering::Release);
        wake();
        or(put, async {
            Timer::after(PATIENCE).await;
        })
        .await;
        self.part.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where the parts of a status are found.
pub struct Observed<'a> {
    pub config: &'a Config,
    pub started: Instant,
    pub clock: &'a LogClock,
    pub queue: &'a Queue,
    pub handover: &'a Handover,
    pub shared: &'a Shared,
    /// One for each source of the configuration.
    pub sources: &'a [Arc<source::Counters>],
}

impl Observed<'_> {
    /// The status as JSON; `None`: the engine has not said anything yet.
    pub async fn answer(&self, request: &str) -> Option<String> {
        match request {
            "status" => serde_json::to_string(&self.status().await?).ok(),
            _ => None,
        }
    }

    /// The first byte of a source's file that a replay from this checkpoint needs, where the log refers to the file.
    fn needed_from(&self, name: &str, checkpoint: &CheckpointMeta) -> Option<u64> {
        let source = self.config.sources.iter().find(|source| source.name == name)?;
        source.connector.logs_positions().then(|| match checkpoint.sources.get(name) {
            Some(Position::File { offset, .. }) => *offset,
            None => 0,
        })
    }

    async fn status(&self) -> Option<Status> {
        let (made, engine) = self.shared.board.ask(|| self.handover.wake()).await?;
        let counts = |name: &str| self.config.sources.iter().position(|source| source.name == name);
        let sources = engine.counters.sources.iter().map(|(name, count)| {
            let run = counts(name).and_then(|index| self.sources.get(index));
            let run = |value: fn(&source::Counters) -> &std::sync::atomic::AtomicU64| {
                run.map_or(0, |counters| value(counters).load(Ordering::Relaxed))
            };
            SourceStatus {
                name: name.clone(),
                records: count.records,
                rows: count.rows,
                dead: count.dead,
                lost: count.lost,
                needed_from: self.needed_from(name, &engine.checkpoint),
                run_messages: run(|counters| &counters.messages),
                run_bytes: run(|counters| &counters.bytes),
                run_bad: run(|counters| &counters.bad),
                run_reconnects: run(|counters| &counters.reconnects),
            }
        });
        let queries = engine.counters.queries.iter().map(|(name, count)| QueryStatus {
            name: name.clone(),
            rows: count.rows,
            late: count.late,
            errors: count.errors,
        });
        let sinks = engine.counters.sinks.iter().map(|(name, rows)| SinkStatus { name: name.clone(), rows: *rows });
        let log = self.shared.stats();
        Some(Status {
            pipeline: self.config.pipeline.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            replaying: engine.replaying,
            engine_age_ms: millis(made.elapsed()),
            log_time_us: self.clock.now().0,
            log_time_ahead_us: self.clock.ahead_us(),
            clock_synchronised: self.clock.synchronised(),
            logged_lsn: self.handover.synced(),
            processed_lsn: engine.processed,
            processed_time_us: engine.processed_time.0,
            queue_bytes: self.queue.bytes() as u64,
            log_segments: log.segments,
            log_disk_bytes: log.disk_bytes,
            state_memory_bytes: engine.state_memory_bytes,
            sources: sources.collect(),
            queries: queries.collect(),
            sinks: sinks.collect(),
            checkpoint: CheckpointStatus {
                id: engine.checkpoint.id,
                lsn: engine.checkpoint.cut,
                wall_time_us: engine.checkpoint.wall_time_us,
                age_ms: engine.committed.map(|(at, _)| millis(at.elapsed())),
                duration_ms: engine.committed.map(|(_, duration)| millis(duration)),
                in_flight: engine.checkpoint_in_flight,
            },
            written_per_ingested: engine.wear.written_per_ingested(),
            wear: engine.wear,
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The answer to `status`. Counts are since the state was created, those that begin with `run_` since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    pub pipeline: String,
    pub version: String,
    pub pid: u32,
    pub uptime_s: u64,
    /// The engine still processes what was logged before the start.
    pub replaying: bool,
    /// How old the engine's part is: more than some milliseconds where it is busy or waits.
    pub engine_age_ms: u64,
    pub log_time_us: i64,
    pub log_time_ahead_us: i64,
    pub clock_synchronised: bool,
    pub logged_lsn: Lsn,
    pub processed_lsn: Lsn,
    pub processed_time_us: i64,
    pub queue_bytes: u64,
    pub log_segments: u64,
    pub log_disk_bytes: u64,
    pub state_memory_bytes: u64,
    pub sources: Vec<SourceStatus>,
    pub queries: Vec<QueryStatus>,
    pub sinks: Vec<SinkStatus>,
    pub checkpoint: CheckpointStatus,
    pub wear: Wear,
    pub written_per_ingested: Option<f64>,
}

/// A source's part of [`Status`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceStatus {
    pub name: String,
    pub records: u64,
    pub rows: u64,
    pub dead: u64,
    pub lost: u64,
    /// With `log = "position"`: the first byte of the file that a replay needs.
    pub needed_from: Option<u64>,
    pub run_messages: u64,
    pub run_bytes: u64,
    pub run_bad: u64,
    pub run_reconnects: u64,
}

/// A query's part of [`Status`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueryStatus {
    pub name: String,
    pub rows: u64,
    pub late: u64,
    pub errors: u64,
}

/// A sink's part of [`Status`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SinkStatus {
    pub name: String,
    pub rows: u64,
}

/// The newest checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointStatus {
    pub id: u64,
    pub lsn: Lsn,
    pub wall_time_us: i64,
    /// `None`: an earlier run has made it.
    pub age_ms: Option<u64>,
    pub duration_ms: Option<u64>,
    pub in_flight: bool,
}
