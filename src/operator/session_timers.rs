//! When open sessions are to be looked at, in order, whatever their number: the timers are entries of the state, and only
//! the next ones are in memory as well.
//!
//! State: key = the watermark at which the session is over, its end, its grouping keys, as bytes in that order; namespace =
//! [`TIMERS`] + a stretch of such watermarks, a quarter of the gap long. A timer up to the watermark has had its turn and
//! does not count any more; its entry goes with its namespace, once the watermark has passed that. So to take one costs no
//! write, however many are due at once.
//!
//! A timer says no more than that a session had this end once: whether it still has is for the operator to see.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::{ArrayRef, TimestampMicrosecondArray};

use super::sessions::{Content, Entry};
use super::{Preview, instants};
use crate::event::EventTime;
use crate::expr::{DataType, Field};
use crate::state::{Checkpointed, Key, KeyedState, StateError};

/// Middle of the namespaces of timers: far from what any timestamp of a session can be.
const TIMERS: i64 = i64::MIN / 4 * 3;
/// Stretches from there to the last namespace of timers on either side.
const REACH: i64 = 1 << 60;
/// Timers that are read ahead at once; twice as many are in memory at most.
const AHEAD: usize = if cfg!(test) { 4 } else { 4096 };

/// A time at which a session may be over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    /// The watermark.
    pub over: EventTime,
    /// The session's end on the wall clock.
    pub end: i64,
    pub key: Key,
}

impl Timer {
    /// Bytes in the order of timers.
    fn encode(&self) -> Vec<u8> {
        let ordered = |number: i64| (number ^ i64::MIN).to_be_bytes();
        [ordered(self.over).as_slice(), &ordered(self.end), &self.key].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Timer> {
        let (over, rest) = bytes.split_first_chunk::<8>()?;
        let (end, key) = rest.split_first_chunk::<8>()?;
        let number = |bytes: &[u8; 8]| i64::from_be_bytes(*bytes) ^ i64::MIN;
        Some(Timer { over: number(over), end: number(end), key: Key::from(key) })
    }
}

impl Timer {
    /// The entry of a timer for people: the watermark, the session's end, and the keys, which are the first of `fields`.
    pub fn preview(
        bytes: &[u8],
        fields: &[Field],
        keys: impl FnOnce(&[u8]) -> Option<Vec<ArrayRef>>,
    ) -> Option<Preview> {
        let Timer { over, end, key } = Timer::decode(bytes)?;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(instants([over.saturating_mul(1000)])),
            Arc::new(TimestampMicrosecondArray::from_iter_values([end.saturating_mul(1000)])),
        ];
        columns.extend(keys(&key)?);
        let own = [Field::new("timer", DataType::TimestampLtz(3)), Field::new("session_end", DataType::Timestamp(3))];
        Some(Preview { fields: own.into_iter().chain(fields.iter().cloned()).take(columns.len()).collect(), columns })
    }
}

/// The timers of all sessions.
pub struct Timers {
    /// Length of a namespace.
    stretch_ms: i64,
    /// The next timers.
    next: BTreeSet<Timer>,
    /// The timer up to which `next` has all; `None`: all there are.
    read_to: Option<Timer>,
}

impl Timers {
    /// Timers of sessions with this gap, none yet.
    pub fn new(gap_ms: i64) -> Timers {
        Timers { stretch_ms: (gap_ms / 4).max(1), next: BTreeSet::new(), read_to: None }
    }

    /// Forgets what was read: from now on the timers of `state` behind this watermark count.
    pub fn resume(&mut self, watermark: EventTime) {
        self.next.clear();
        self.read_to = Some(Timer { over: watermark, end: i64::MAX, key: Key::from([].as_slice()) });
    }

    fn namespace(&self, over: EventTime) -> i64 {
        TIMERS + over.div_euclid(self.stretch_ms).clamp(-REACH, REACH)
    }

    fn namespaces() -> RangeInclusive<i64> {
        TIMERS - REACH..=TIMERS + REACH
    }

    /// Adds a timer that the watermark has not passed.
    pub fn insert<C: Content>(&mut self, timer: Timer, state: &mut KeyedState<Entry<C>>) {
        state.put(self.namespace(timer.over), &timer.encode(), Entry::Timer);
        if self.read_to.as_ref().is_some_and(|read_to| timer > *read_to) {
            return;
        }
        self.next.insert(timer);
        if self.next.len() > 2 * AHEAD
            && let Some(first_left_out) = self.next.iter().nth(AHEAD).cloned()
        {
            self.next.split_off(&first_left_out);
            self.read_to = self.next.last().cloned();
        }
    }

    /// The first timer that is not taken yet, as it was read at the last [`Timers::first`].
    pub fn peek(&self) -> Option<&Timer> {
        self.next.first()
    }

    /// The first timer that is not taken yet.
    ///
    /// # Errors
    /// State could not be read.
    pub fn first<C: Content>(&mut self, state: &KeyedState<Entry<C>>) -> Result<Option<&Timer>, StateError> {
        while self.next.is_empty()
            && let Some(read_to) = self.read_to.take()
        {
            self.read_to = self.read_on(&read_to, state)?;
        }
        Ok(self.next.first())
    }

    /// Reads the timers behind one; gives up to which, where there may be more.
    fn read_on<C: Content>(&mut self, from: &Timer, state: &KeyedState<Entry<C>>) -> Result<Option<Timer>, StateError> {
        let after = from.encode();
        let decode = |key: &[u8]| {
            let what = "a session's timer is too short".to_owned();
            Timer::decode(key).ok_or(StateError::Corrupt { operator: state.operator(), what })
        };
        for namespace in state.namespaces().range(self.namespace(from.over)..=*Timers::namespaces().end()) {
            if self.next.len() >= AHEAD {
                return Ok(self.next.last().cloned());
            }
            let (last, entries) = state.next_entries(*namespace, &after, AHEAD - self.next.len())?;
            for (key, _) in entries {
                self.next.insert(decode(&key)?);
            }
            if let Some(last) = last {
                return decode(&last).map(Some);
            }
        }
        Ok(None)
    }

    /// Takes the first timer.
    pub fn take_first(&mut self) -> Option<Timer> {
        self.next.pop_first()
    }

    /// Puts the timer back that was taken last.
    pub fn put_back(&mut self, timer: Timer) {
        self.next.insert(timer);
    }

    /// Removes what the watermark has passed.
    pub fn forget<C: Content>(&self, watermark: EventTime, state: &mut KeyedState<Entry<C>>) {
        while let Some(namespace) = state.namespaces().range(Timers::namespaces()).next().copied() {
            let behind = (namespace - TIMERS + 1).saturating_mul(self.stretch_ms);
            if behind.saturating_sub(1) > watermark {
                break;
            }
            state.remove_namespace(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::aggregation::Group;
    use super::*;

    fn timer(over: i64, key: &str) -> Timer {
        Timer { over, end: over + 1, key: Key::from(key.as_bytes()) }
    }

    #[test]
    fn bytes_stand_in_the_order_of_timers() {
        let timers = [timer(i64::MIN, "b"), timer(-7, "a"), timer(-7, "b"), timer(0, ""), timer(0, "a"), timer(1, "a")];
        assert!(timers.is_sorted());
        let bytes: Vec<Vec<u8>> = timers.iter().map(Timer::encode).collect();
        assert!(bytes.is_sorted());
        assert_eq!(bytes.iter().map(|bytes| Timer::decode(bytes)).collect::<Vec<_>>(), timers.map(Some));
    }

    #[test]
    fn all_timers_come_in_order_and_few_are_in_memory() {
        const COUNT: i64 = 1001;
        let mut state = KeyedState::<Entry<Group>>::empty(1);
        let mut timers = Timers::new(10_000);
        for i in 0..COUNT {
            timers.insert(timer(i * 7919 % COUNT, "k"), &mut state);
        }
        assert!(timers.next.len() <= 2 * AHEAD);
        let mut taken = 0;
        while let Some(first) = timers.first(&state).expect("reads").cloned() {
            assert_eq!(first.over, taken);
            assert_eq!(timers.take_first(), Some(first));
            taken += 1;
            if taken == COUNT / 2 {
                timers.resume(taken - 1);
                // One that comes before what is read next, one in the middle, one at the end.
                for over in [taken, COUNT - 2, COUNT] {
                    timers.insert(timer(over, "k"), &mut state);
                }
            }
            timers.forget(taken - 1, &mut state);
        }
        assert_eq!(taken, COUNT + 1);
        assert!(state.namespaces().len() <= 1, "{:?}", state.namespaces());
        timers.forget(i64::MAX, &mut state);
        assert!(state.namespaces().is_empty());
    }
}
