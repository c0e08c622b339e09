//! The byte-bounded queue between source tasks and the log thread.
//!
//! Producers are async and wait while the queue is full (backpressure: a source that waits here reads nothing); the
//! consumer is a plain thread that blocks. Invariants: runs of one producer stay in order; producers that wait are
//! served in the order they came; the queue holds at most its limit in bytes, or one run that alone exceeds it.
//!
//! Messages of sources that cannot wait are dropped and counted instead, but only while the consumer says that the log is
//! full *and* the queue is full, too. The consumer takes the counts as gap records, which enter the queue where the
//! messages would have. These sources do not queue up behind those that wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_listener::Event;
use thiserror::Error;

use crate::event::{RecordKind, Run, SourceId};

/// The queue takes no more runs: the engine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the replay log takes no more input")]
pub struct Closed;

/// What a full log could not take of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub messages: u64,
    /// Bytes of the messages.
    pub bytes: u64,
}

/// What [`Queue::pop_all`] came back with.
#[derive(Debug, PartialEq, Eq)]
pub enum Popped {
    /// At least one run, in order.
    Runs(Vec<Run>),
    /// The timeout passed or [`Queue::wake`] was called.
    Nothing,
    /// The queue is closed and empty.
    Closed,
}

/// See the module.
pub struct Queue {
    limit_bytes: usize,
    state: Mutex<State>,
    /// Tells the consumer that there is something to look at.
    filled: Condvar,
    /// Tells the producer at the head of `turn` that there is room.
    drained: Event,
    /// Sources that cannot wait.
    droppable: BTreeSet<SourceId>,
    /// Tells their producers that there is room, or that there is none for long.
    decided: Event,
    /// Held by the one producer that may enter next: the others queue behind it, in order.
    turn: smol::lock::Mutex<()>,
    waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    runs: VecDeque<Run>,
    bytes: usize,
    closed: bool,
    woken: bool,
    /// The log is full: what does not fit is dropped where it may be.
    dropping: bool,
    dropped: BTreeMap<SourceId, Dropped>,
}

impl State {
    fn drop_run(&mut self, run: &Run) {
        let dropped = self.dropped.entry(run.source).or_default();
        dropped.messages += run.len() as u64;
        dropped.bytes += run.payload.len() as u64;
    }
}

impl Queue {
    /// An empty queue for `limit_bytes` of runs.
    pub fn new(limit_bytes: usize) -> Queue {
        Queue {
            limit_bytes,
            state: Mutex::default(),
            filled: Condvar::new(),
            drained: Event::new(),
            droppable: BTreeSet::new(),
            decided: Event::new(),
            turn: smol::lock::Mutex::new(()),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Messages of these sources are dropped rather than waited with, while the log is full.
    #[must_use]
    pub fn dropping_for(self, sources: BTreeSet<SourceId>) -> Queue {
        Queue { droppable: sources, ..self }
    }

    /// Whether a full log may drop this run. What is no message (a connection's end, a gap) may not be lost.
    fn may_drop(&self, run: &Run) -> bool {
        matches!(run.kind, RecordKind::Data | RecordKind::Bad) && self.droppable.contains(&run.source)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere cannot leave the state half changed: every change is made of moves that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a run; waits while there is no room. A run larger than the limit enters an empty queue. Dropping the
    /// future before it is done leaves the run out.
    ///
    /// # Errors
    /// The queue was closed.
    pub async fn push(&self, run: Run) -> Result<(), Closed> {
        let mut run = run;
        if self.may_drop(&run) {
            let mut waiting = None;
            loop {
                let listener = self.decided.listen();
                run = match self.offer(run) {
                    Offered::Taken => return Ok(()),
                    Offered::Closed => return Err(Closed),
                    Offered::Full(run) => run,
                };
                waiting.get_or_insert_with(|| Waiting::new(&self.waiting));
                listener.await;
            }
        }
        let _turn = self.turn.lock().await;
        let mut waiting = None;
        loop {
            run = match self.offer(run) {
                Offered::Taken => return Ok(()),
                Offered::Closed => return Err(Closed),
                Offered::Full(run) => run,
            };
            let listener = self.drained.listen();
            waiting.get_or_insert_with(|| Waiting::new(&self.waiting));
            // Room may have come between the offer and the listener.
            run = match self.offer(run) {
                Offered::Taken => return Ok(()),
                Offered::Closed => return Err(Closed),
                Offered::Full(run) => run,
            };
            listener.await;
        }
    }

    fn offer(&self, run: Run) -> Offered {
        let size = run.size_bytes();
        let mut state = self.state();
        if state.closed {
            return Offered::Closed;
        }
        if !state.runs.is_empty() && state.bytes.saturating_add(size) > self.limit_bytes {
            if state.dropping && self.may_drop(&run) {
                state.drop_run(&run);
                return Offered::Taken;
            }
            return Offered::Full(run);
        }
        state.bytes = state.bytes.saturating_add(size);
        state.runs.push_back(run);
        drop(state);
        self.filled.notify_one();
        Offered::Taken
    }

    /// Takes what is there, in order, up to `max_bytes` (at least one run). Blocks until something is there, `timeout`
    /// has passed (`None`: no limit), [`Queue::wake`] is called, or the queue is closed and empty.
    pub fn pop_all(&self, max_bytes: usize, timeout: Option<Duration>) -> Popped {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state();
        loop {
            if !state.runs.is_empty() {
                state.woken = false;
                let runs = take(&mut state, max_bytes);
                drop(state);
                self.drained.notify(1);
                self.decided.notify(usize::MAX);
                return Popped::Runs(runs);
            }
            if state.closed {
                return Popped::Closed;
            }
            if std::mem::take(&mut state.woken) {
                return Popped::Nothing;
            }
            state = match deadline {
                None => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Popped::Nothing;
                    }
                    self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Interrupts the consumer's wait, or its next one.
    pub fn wake(&self) {
        self.state().woken = true;
        self.filled.notify_one();
    }

    /// Refuses further runs; what is in the queue can still be taken.
    pub fn close(&self) {
        self.state().closed = true;
        self.filled.notify_all();
        self.drained.notify(usize::MAX);
        self.decided.notify(usize::MAX);
    }

    /// The log is full: from now on messages that find the queue full, too, are dropped where they may be.
    pub fn start_dropping(&self) {
        if !self.droppable.is_empty() {
            self.state().dropping = true;
            self.decided.notify(usize::MAX);
        }
    }

    /// The log has room again: what was dropped enters the queue as the records that `gap` makes of it.
    pub fn stop_dropping(&self, mut gap: impl FnMut(SourceId, Dropped) -> Run) {
        let mut state = self.state();
        state.dropping = false;
        for (source, dropped) in std::mem::take(&mut state.dropped) {
            let run = gap(source, dropped);
            state.bytes = state.bytes.saturating_add(run.size_bytes());
            state.runs.push_back(run);
        }
    }

    /// The log will never take these runs, nor what is in the queue: drops of them what may be dropped, and gives the gap
    /// records among them.
    pub fn drop_rest(&self, runs: Vec<Run>) -> Vec<Run> {
        let mut state = self.state();
        state.bytes = 0;
        let rest = std::mem::take(&mut state.runs);
        let (dropped, kept): (Vec<Run>, Vec<Run>) = runs.into_iter().chain(rest).partition(|run| self.may_drop(run));
        dropped.iter().for_each(|run| state.drop_run(run));
        kept.into_iter().filter(|run| run.kind == RecordKind::Gap).collect()
    }

    /// What was dropped since [`Queue::stop_dropping`] was called last.
    pub fn dropped(&self) -> BTreeMap<SourceId, Dropped> {
        self.state().dropped.clone()
    }

    /// Whether a producer waits for room.
    pub fn blocked(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Bytes in the queue.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }
}

enum Offered {
    Taken,
    Full(Run),
    Closed,
}

fn take(state: &mut State, max_bytes: usize) -> Vec<Run> {
    let mut sum = 0usize;
    let mut count = 0;
    for run in &state.runs {
        let next = sum.saturating_add(run.size_bytes());
        if count > 0 && next > max_bytes {
            break;
        }
        sum = next;
        count += 1;
    }
    state.bytes = state.bytes.saturating_sub(sum);
    state.runs.drain(..count).collect()
}

/// Counts a waiting producer for as long as it waits, also when its future is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;
    use crate::event::{LogTime, RecordKind, SourceId};
    use crate::source::testing::eventually;

    fn run(source: u16, payload: &[u8]) -> Run {
        Run::one(SourceId(source), RecordKind::Data, LogTime(0), payload)
    }

    fn payloads(popped: Popped) -> Vec<Vec<u8>> {
        match popped {
            Popped::Runs(runs) => runs.into_iter().map(|run| run.payload).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_queue_makes_the_producer_wait_and_gives_room_again() {
        let queue = Arc::new(Queue::new(200));
        smol::block_on(queue.push(run(0, b"a"))).unwrap();
        smol::block_on(queue.push(run(0, b"b"))).unwrap();
        let producer = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || smol::block_on(queue.push(run(0, b"c")))
        });
        eventually(|| queue.blocked());
        assert_eq!(queue.bytes(), 2 * run(0, b"a").size_bytes());
        assert_eq!(payloads(queue.pop_all(usize::MAX, None)), [b"a", b"b"]);
        producer.join().unwrap().unwrap();
        assert!(!queue.blocked());
        assert_eq!(payloads(queue.pop_all(usize::MAX, None)), [b"c"]);
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn a_run_larger_than_the_limit_enters_only_an_empty_queue() {
        let queue = Arc::new(Queue::new(100));
        smol::block_on(queue.push(run(0, &[1; 500]))).unwrap();
        let producer = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || smol::block_on(queue.push(run(0, &[2; 500])))
        });
        eventually(|| queue.blocked());
        assert_eq!(payloads(queue.pop_all(usize::MAX, None)), [[1; 500]]);
        assert_eq!(payloads(queue.pop_all(usize::MAX, None)), [[2; 500]]);
        producer.join().unwrap().unwrap();
    }

    #[test]
    fn the_byte_argument_bounds_what_is_taken_but_always_gives_one() {
        let queue = Queue::new(10_000);
        for payload in [b"a", b"b", b"c"] {
            smol::block_on(queue.push(run(0, payload))).unwrap();
        }
        let one = run(0, b"a").size_bytes();
        assert_eq!(payloads(queue.pop_all(2 * one, None)), [b"a", b"b"]);
        assert_eq!(payloads(queue.pop_all(0, None)), [b"c"]);
    }

    #[test]
    fn timeout_wake_and_close_end_the_consumers_wait() {
        let queue = Arc::new(Queue::new(100));
        assert_eq!(queue.pop_all(1, Some(Duration::from_millis(1))), Popped::Nothing);
        queue.wake();
        assert_eq!(queue.pop_all(1, None), Popped::Nothing);
        let consumer = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.pop_all(1, None)
        });
        queue.wake();
        assert_eq!(consumer.join().unwrap(), Popped::Nothing);

        smol::block_on(queue.push(run(0, &[0; 90]))).unwrap();
        let producer = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || smol::block_on(queue.push(run(0, b"late")))
        });
        eventually(|| queue.blocked());
        queue.close();
        assert_eq!(producer.join().unwrap(), Err(Closed));
        assert_eq!(payloads(queue.pop_all(1, None)), [[0; 90]]);
        assert_eq!(queue.pop_all(1, None), Popped::Closed);
        assert_eq!(smol::block_on(queue.push(run(0, b"x"))), Err(Closed));
    }

    #[test]
    fn a_dropped_push_neither_enters_nor_blocks_the_others() {
        let queue = Arc::new(Queue::new(100));
        smol::block_on(queue.push(run(0, &[0; 90]))).unwrap();
        let mut dropped = Box::pin(queue.push(run(0, b"dropped")));
        assert!(smol::block_on(smol::future::poll_once(&mut dropped)).is_none());
        assert!(queue.blocked());
        drop(dropped);
        assert!(!queue.blocked());
        let producer = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || smol::block_on(queue.push(run(0, b"next")))
        });
        eventually(|| queue.blocked());
        queue.pop_all(usize::MAX, None);
        producer.join().unwrap().unwrap();
        assert_eq!(payloads(queue.pop_all(usize::MAX, None)), [b"next"]);
    }

    #[test]
    fn a_source_that_cannot_wait_drops_its_newest_only_while_log_and_queue_are_full() {
        let queue = Arc::new(Queue::new(200).dropping_for(BTreeSet::from([SourceId(1)])));
        let push = |source, payload: &'static [u8]| smol::block_on(queue.push(run(source, payload)));
        push(1, b"a").unwrap();
        queue.start_dropping();
        push(1, b"b").unwrap();
        assert!(queue.dropped().is_empty(), "there was room");
        // One that can wait does, and is not in the way of the other.
        let waiter = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || smol::block_on(queue.push(run(0, b"waits")))
        });
        eventually(|| queue.blocked());
        push(1, b"ccc").unwrap();
        push(1, b"dd").unwrap();
        assert_eq!(queue.dropped(), BTreeMap::from([(SourceId(1), Dropped { messages: 2, bytes: 5 })]));
        queue.stop_dropping(|source, dropped| {
            Run::one(source, RecordKind::Gap, LogTime(0), format!("{dropped:?}").as_bytes())
        });
        assert!(queue.dropped().is_empty());
        // Full, but the log is not: it waits.
        let second = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || smol::block_on(queue.push(run(1, b"e")))
        });
        let mut seen = Vec::new();
        while seen.len() < 5 {
            seen.extend(payloads(queue.pop_all(1, None)));
        }
        waiter.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
        assert_eq!(seen[..3], [b"a".to_vec(), b"b".to_vec(), b"Dropped { messages: 2, bytes: 5 }".to_vec()]);
        assert!(seen[3..].contains(&b"waits".to_vec()) && seen[3..].contains(&b"e".to_vec()), "{seen:?}");
    }

    #[test]
    fn a_source_that_waits_is_freed_when_the_log_is_full_and_the_rest_is_counted() {
        let queue = Arc::new(Queue::new(100).dropping_for(BTreeSet::from([SourceId(1)])));
        smol::block_on(queue.push(run(0, &[0; 40]))).unwrap();
        let producer = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || smol::block_on(queue.push(run(1, b"xyz")))
        });
        eventually(|| queue.blocked());
        queue.start_dropping();
        producer.join().unwrap().unwrap();
        let gap = Run::one(SourceId(1), RecordKind::Gap, LogTime(0), b"earlier");
        assert_eq!(queue.drop_rest(vec![run(1, b"kept"), gap.clone(), run(0, b"can wait")]), [gap]);
        assert_eq!(queue.dropped(), BTreeMap::from([(SourceId(1), Dropped { messages: 2, bytes: 7 })]));
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn many_producers_lose_nothing_and_keep_their_order() {
        let queue = Arc::new(Queue::new(1000));
        let producers: Vec<_> = (0..8u16)
            .map(|source| {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || {
                    for i in 0..500u32 {
                        smol::block_on(queue.push(run(source, &i.to_le_bytes()))).unwrap();
                    }
                })
            })
            .collect();
        let mut next: HashMap<u16, u32> = HashMap::new();
        let mut total = 0;
        while total < 8 * 500 {
            let Popped::Runs(runs) = queue.pop_all(700, Some(Duration::from_secs(20))) else { panic!("stuck") };
            for run in runs {
                let expected = next.entry(run.source.0).or_default();
                assert_eq!(run.payload, expected.to_le_bytes());
                *expected += 1;
                total += 1;
            }
        }
        for producer in producers {
            producer.join().unwrap();
        }
        assert_eq!(queue.bytes(), 0);
    }
}
