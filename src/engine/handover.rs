//! Synced frames on their way from the log thread to the engine.
//!
//! A frame is offered only after its sync has returned. The hand-over keeps frames in memory up to a bound; when the
//! engine lags behind it, frames are left out, and the engine reads them from the log instead: a slow engine never
//! holds the log back, and memory stays bounded.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::event::{Frame, Lsn, Run};

/// What the engine gets when it asks for what follows an LSN.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Frame(Frame),
    /// The log has more, but not here: read it from disk, up to this LSN at least.
    OnDisk(Lsn),
    /// Nothing new within the time.
    Nothing,
    /// There will be no more, and everything was taken.
    Closed,
}

/// See the module.
pub struct Handover {
    limit_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Frame>,
    bytes: usize,
    synced: Lsn,
    closed: bool,
    woken: bool,
}

impl State {
    fn has_room(&self, bytes: usize, limit_bytes: usize) -> bool {
        self.frames.is_empty() || self.bytes + bytes <= limit_bytes
    }
}

impl Handover {
    /// A hand-over at a log whose records up to `synced` are durable already.
    pub fn new(limit_bytes: usize, synced: Lsn) -> Handover {
        Handover { limit_bytes, state: Mutex::new(State { synced, ..State::default() }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is made of moves that do not panic, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame is durable.
    pub fn offer(&self, frame: Frame) {
        let size = size_bytes(&frame);
        let mut state = self.state();
        state.synced = frame.last_lsn();
        if state.has_room(size, self.limit_bytes) {
            state.bytes += size;
            state.frames.push_back(frame);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// There will be no more frames.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Interrupts the engine's wait.
    pub fn wake(&self) {
        self.state().woken = true;
        self.changed.notify_all();
    }

    /// The last durable record.
    pub fn synced(&self) -> Lsn {
        self.state().synced
    }

    /// Whether this is the last durable record.
    pub fn is_last(&self, lsn: Lsn) -> bool {
        self.state().synced <= lsn
    }

    /// Whether a frame of this size would be kept in memory.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.state().has_room(bytes, self.limit_bytes)
    }

    /// What follows `after`; waits up to `timeout` where there is nothing yet.
    pub fn next(&self, after: Lsn, timeout: Duration) -> Next {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            while state.frames.front().is_some_and(|frame| frame.last_lsn() <= after) {
                pop(&mut state);
            }
            if state.frames.front().is_some_and(|frame| frame.first_lsn <= after.plus(1)) {
                let frame = pop(&mut state);
                drop(state);
                self.changed.notify_all();
                if let Some(frame) = frame {
                    return Next::Frame(frame);
                }
                state = self.state();
                continue;
            }
            if state.synced > after {
                return Next::OnDisk(state.synced);
            }
            if state.closed {
                return Next::Closed;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || std::mem::take(&mut state.woken) {
                return Next::Nothing;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until a frame of this size would be kept in memory, the hand-over is woken, or the time is over.
    pub fn wait_for_room(&self, bytes: usize, timeout: Duration) {
        let state = self.state();
        if !state.has_room(bytes, self.limit_bytes) && !state.closed {
            let _ = self.changed.wait_timeout(state, timeout);
        }
    }
}

fn pop(state: &mut State) -> Option<Frame> {
    let frame = state.frames.pop_front()?;
    state.bytes -= size_bytes(&frame);
    Some(frame)
}

fn size_bytes(frame: &Frame) -> usize {
    frame.runs.iter().map(Run::size_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{LogTime, RecordKind, SourceId};

    fn frame(first: u64, records: u64, bytes: usize) -> Frame {
        let mut run = Run::new(SourceId(0), RecordKind::Data, LogTime(0));
        (0..records).for_each(|_| run.push(&vec![b'x'; bytes]));
        Frame { first_lsn: Lsn(first), runs: vec![run] }
    }

    #[test]
    fn frames_come_in_order_and_end_with_closed() {
        let handover = Handover::new(1 << 20, Lsn::ZERO);
        handover.offer(frame(1, 2, 10));
        handover.offer(frame(3, 1, 10));
        handover.close();
        assert_eq!(handover.next(Lsn(0), Duration::ZERO), Next::Frame(frame(1, 2, 10)));
        assert_eq!(handover.next(Lsn(2), Duration::ZERO), Next::Frame(frame(3, 1, 10)));
        assert_eq!(handover.next(Lsn(3), Duration::ZERO), Next::Closed);
    }

    #[test]
    fn what_does_not_fit_is_read_from_disk_and_then_the_rest_is_in_order() {
        let handover = Handover::new(1000, Lsn::ZERO);
        handover.offer(frame(1, 1, 800));
        handover.offer(frame(2, 1, 800));
        assert!(matches!(handover.next(Lsn(0), Duration::ZERO), Next::Frame(f) if f.first_lsn == Lsn(1)));
        handover.offer(frame(3, 1, 100));
        assert_eq!(handover.next(Lsn(1), Duration::ZERO), Next::OnDisk(Lsn(3)));
        assert!(matches!(handover.next(Lsn(2), Duration::ZERO), Next::Frame(f) if f.first_lsn == Lsn(3)));
        assert_eq!(handover.next(Lsn(3), Duration::ZERO), Next::Nothing);
    }

    #[test]
    fn who_waits_for_room_is_kept_in_memory() {
        let handover = Handover::new(1000, Lsn::ZERO);
        assert!(handover.has_room(2000), "the only one");
        handover.offer(frame(1, 1, 800));
        assert!(!handover.has_room(size_bytes(&frame(2, 1, 800))));
        assert!(matches!(handover.next(Lsn(0), Duration::ZERO), Next::Frame(_)));
        assert!(handover.has_room(size_bytes(&frame(2, 1, 800))));
        handover.offer(frame(2, 1, 800));
        assert!(matches!(handover.next(Lsn(1), Duration::ZERO), Next::Frame(f) if f.first_lsn == Lsn(2)));
    }

    #[test]
    fn records_logged_before_the_start_are_on_disk() {
        let handover = Handover::new(1000, Lsn(7));
        assert_eq!(handover.next(Lsn(3), Duration::ZERO), Next::OnDisk(Lsn(7)));
        assert_eq!(handover.next(Lsn(7), Duration::ZERO), Next::Nothing);
    }
}
