//! What the sources' tests share: a source that runs on a thread of its own, and what came out of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::framing::testing::{Piece, pieces};
use super::queue::{Popped, Queue};
use super::{Arrival, Counters, End, Output, Resume, SourceConfig, SourceError};
use crate::event::{Gap, LogTime, Position, RecordKind, Run, SourceId};
use crate::settings::read_document;

const DEADLINE: Duration = Duration::from_secs(20);

/// Polls until `condition` holds.
pub fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not happen in time");
        std::thread::yield_now();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The source that a document's root section describes.
fn document(text: &str) -> Result<SourceConfig, String> {
    read_document("f.toml", text, |root| {
        let type_name = root.required("type", "type = \"file\"")?;
        SourceConfig::read(&type_name, root)
    })
    .map_err(|problems| problems.to_string())
}

pub fn read(text: &str) -> SourceConfig {
    document(text).unwrap_or_else(|shown| panic!("{shown}"))
}

pub fn problems(text: &str) -> String {
    document(text).expect_err(text)
}

/// An output whose clock counts the reads.
pub fn output(limit_bytes: usize) -> (Output, Arc<Queue>) {
    let queue = Arc::new(Queue::new(limit_bytes));
    let reads = AtomicI64::new(0);
    let clock = move || Arrival { time: LogTime(reads.fetch_add(1, Ordering::Relaxed) + 1), unsynchronised: false };
    let counters = Arc::new(Counters::default());
    let out = Output::new(SourceId(3), "test".into(), Arc::clone(&queue), Arc::new(clock), counters, 256 * 1024);
    (out, queue)
}

/// What a source gave, flattened: one entry per record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Message(String),
    Bad(String),
    Connect,
    Disconnect,
    Gap(Gap),
}

pub fn message(text: &str) -> Seen {
    Seen::Message(text.to_owned())
}

pub fn messages(texts: &[&str]) -> Vec<Seen> {
    texts.iter().map(|text| message(text)).collect()
}

pub fn seen(run: &Run) -> Vec<Seen> {
    match run.kind {
        RecordKind::Data | RecordKind::Bad => pieces(run)
            .into_iter()
            .map(|piece| match piece {
                Piece::Good(bytes) => Seen::Message(String::from_utf8_lossy(&bytes).into_owned()),
                Piece::Bad { reason, .. } => Seen::Bad(reason),
            })
            .collect(),
        RecordKind::Connect => vec![Seen::Connect; run.len()],
        RecordKind::Disconnect => vec![Seen::Disconnect; run.len()],
        RecordKind::Gap => run.records().map(|record| Seen::Gap(postcard::from_bytes(record).unwrap())).collect(),
        kind => panic!("{kind:?}"),
    }
}

/// A source that runs. Dropping it drops the source's future.
pub struct Harness {
    pub out: Output,
    queue: Arc<Queue>,
    task: Option<smol::Task<Result<End, SourceError>>>,
    pub runs: Vec<Run>,
}

impl Harness {
    pub fn start(text: &str) -> Harness {
        Harness::resume(text, None)
    }

    pub fn resume(text: &str, position: Option<Position>) -> Harness {
        Harness::with_queue(text, position, 16 << 20)
    }

    pub fn with_queue(text: &str, position: Option<Position>, limit_bytes: usize) -> Harness {
        let (out, queue) = output(limit_bytes);
        let task = smol::spawn(read(text).build(Resume { position }).run(out.clone()));
        Harness { out, queue, task: Some(task), runs: Vec::new() }
    }

    /// Takes what there is now.
    pub fn pump(&mut self) {
        if let Popped::Runs(runs) = self.queue.pop_all(usize::MAX, Some(Duration::from_millis(2))) {
            for run in &runs {
                assert_eq!(run.source, SourceId(3));
                assert_eq!(run.payload.len(), run.lengths.iter().map(|length| *length as usize).sum::<usize>());
            }
            self.runs.extend(runs);
        }
    }

    pub fn blocked(&self) -> bool {
        self.queue.blocked()
    }

    /// Everything seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.runs.iter().flat_map(seen).collect()
    }

    /// Everything seen so far that came by peers whose name contains `peer`.
    pub fn seen_by(&self, peer: &str) -> Vec<Seen> {
        let of_peer = |run: &&Run| run.peer.as_ref().is_some_and(|name| name.contains(peer));
        self.runs.iter().filter(of_peer).flat_map(seen).collect()
    }

    /// Pumps until `condition` holds for what was seen.
    pub fn until(&mut self, condition: impl Fn(&Harness) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "not in time: {:?}", self.seen());
            assert!(!self.is_finished() || self.queue.bytes() > 0, "{:?}, seen {:?}", self.task, self.seen());
            self.pump();
        }
    }

    /// Pumps until as many records were seen.
    pub fn until_seen(&mut self, count: usize) -> Vec<Seen> {
        self.until(|harness| harness.seen().len() >= count);
        self.seen()
    }

    fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(smol::Task::is_finished)
    }

    /// Pumps until the source ends by itself.
    pub fn finish(&mut self) -> Result<End, SourceError> {
        let deadline = Instant::now() + DEADLINE;
        while !self.is_finished() {
            assert!(Instant::now() < deadline, "it did not end: {:?}", self.seen());
            self.pump();
        }
        self.pump();
        smol::block_on(self.task.take().expect("runs once"))
    }

    /// Stops the source and waits until it is gone.
    pub fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            smol::block_on(task.cancel());
        }
    }

    /// The position after the last run that has one.
    pub fn position(&self) -> Option<Position> {
        self.runs.iter().rev().find_map(|run| run.position)
    }

    pub fn count(&self, of: impl Fn(&Counters) -> &std::sync::atomic::AtomicU64) -> u64 {
        of(self.out.counters()).load(Ordering::Relaxed)
    }
}
