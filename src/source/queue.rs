//! The byte-bounded queue between source tasks and the log thread.
//!
//! Producers are async and wait while the queue is full (backpressure: a source that waits here reads nothing); the
//! consumer is a plain thread that blocks. Invariants: runs of one producer stay in order; producers that wait are
//! served in the order they came; the queue holds at most its limit in bytes, or one run that alone exceeds it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use event_listener::Event;
use thiserror::Error;

use crate::event::Run;

/// The queue takes no more runs: the engine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the replay log takes no more input")]
pub struct Closed;

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
}

impl Queue {
    /// An empty queue for `limit_bytes` of runs.
    pub fn new(limit_bytes: usize) -> Queue {
        Queue {
            limit_bytes,
            state: Mutex::default(),
            filled: Condvar::new(),
            drained: Event::new(),
            turn: smol::lock::Mutex::new(()),
            waiting: AtomicUsize::new(0),
        }
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
