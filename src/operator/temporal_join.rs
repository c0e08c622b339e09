//! Temporal join: each left row with the version of its key that was valid at its time.
//!
//! Left rows wait until the watermark passes their time, then they leave in order of time, key, arrival; one without a
//! version leaves alone (LEFT) or not at all. A version is valid from its time until that of the next; of versions of
//! one time the last to arrive counts. No row is late: a left row behind the watermark waits for its next step.
//!
//! State: namespace [`VERSIONS`]: the versions of each key by time, all but the last of those that the watermark passed
//! let go. Namespace = event time: the left rows that wait, and a timer for each version. Bounded by the number of keys,
//! and by the rows that the watermark has not passed. With `state_ttl` the versions of a key are forgotten when no row of
//! it, of either side, came or left for so long.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::join::{Condition, Joined, Side};
use super::merge::{Clocks, merged};
use super::retention::{EVENTS_FROM, Retention, Stamp};
use super::rows::StoredRow;
use super::{Chunk, Mark, Operator, OperatorError, Position, Sides, restored};
use crate::event::{EventTime, LogTime};
use crate::expr::EvalContext;
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Entry`].
pub const VALUE_TYPE: &str = "temporal_join_entry/1";

/// Namespace of the versions.
const VERSIONS: i64 = i64::MIN;

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Left rows of one time and key, in order of arrival, each with whether a key is NULL; none: only a timer.
    Waiting(Vec<(StoredRow, bool)>),
    Versions(BTreeMap<EventTime, StoredRow>),
    /// Of `state_ttl`.
    Stamp(i64),
}

impl Stamp for Entry {
    fn stamp(at_ms: i64) -> Entry {
        Entry::Stamp(at_ms)
    }

    fn stamped(&self) -> Option<i64> {
        match self {
            Entry::Stamp(at_ms) => Some(*at_ms),
            _ => None,
        }
    }
}

/// `a JOIN b FOR SYSTEM_TIME AS OF a.t ON a.k = b.k`.
pub struct TemporalJoin {
    left: Side,
    right: Side,
    condition: Condition,
    pads: bool,
    clocks: Clocks,
    retention: Retention,
    state: KeyedState<Entry>,
}

impl TemporalJoin {
    /// A temporal join; `pads`: left rows without a version leave too.
    pub fn new(
        (left, right): (Side, Side),
        condition: Condition,
        pads: bool,
        state: KeyedState<Entry>,
    ) -> TemporalJoin {
        let retention = Retention::default();
        TemporalJoin { left, right, condition, pads, clocks: Clocks::new(2), retention, state }
    }

    /// The same with a `state_ttl`.
    #[must_use]
    pub fn retaining(self, retention: Retention) -> TemporalJoin {
        TemporalJoin { retention, ..self }
    }

    fn take(&mut self, is_left: bool, row: usize) -> Result<(), OperatorError> {
        let side = if is_left { &self.left } else { &self.right };
        let (Some(time), Some(has_null)) = (side.times.get(row).copied(), side.has_null.get(row)) else {
            return Ok(());
        };
        if !is_left && *has_null {
            return Ok(());
        }
        let time = time.max(EVENTS_FROM);
        let (key, stored) = (side.keys.row(row), StoredRow::new(side.rows.row(row)));
        if let Entry::Waiting(rows) = self.state.entry(time, key, || Entry::Waiting(Vec::new()))?
            && is_left
        {
            rows.push((stored, *has_null));
        } else if let Entry::Versions(versions) =
            self.state.entry(VERSIONS, key, || Entry::Versions(BTreeMap::new()))?
        {
            versions.insert(time, stored);
        }
        self.retention.used(&mut self.state, key)?;
        Ok(())
    }

    fn advance(
        &mut self,
        position: Position,
        context: &EvalContext,
        (joined, sides): (&mut Joined, &mut Sides),
    ) -> Result<(), OperatorError> {
        let mut touched = BTreeSet::new();
        while let Some(time) = self.next_timer().filter(|time| *time <= self.clocks.output.watermark) {
            let entries: Vec<(Key, Entry)> = self.state.take_namespace(time).collect::<Result<_, _>>()?;
            for (key, entry) in entries {
                let Entry::Waiting(rows) = entry else { continue };
                let version = match self.state.get(VERSIONS, &key)?.as_deref() {
                    Some(Entry::Versions(versions)) => versions.range(..=time).next_back().map(|(_, row)| row.clone()),
                    _ => None,
                };
                touched.insert(key);
                for (row, has_null) in rows {
                    let version = version.as_ref().filter(|_| !has_null);
                    let holds = match version {
                        None => false,
                        Some(version) => {
                            let both = (&self.left, &self.right);
                            let holds = self.condition.holds(&[(&row, version)], both, position, context, sides)?;
                            holds.first() == Some(&true)
                        }
                    };
                    match version.filter(|_| holds) {
                        Some(version) => joined.push(position, Some(row), Some(version.clone())),
                        None if self.pads => joined.push(position, Some(row), None),
                        None => {}
                    }
                }
            }
        }
        for key in touched {
            self.retention.used(&mut self.state, &key)?;
            self.forget(&key)?;
        }
        Ok(())
    }

    /// Lets go the versions of a key that were replaced by one that the watermark has passed. One that comes late goes with
    /// the next step of the watermark, as in Flink.
    fn forget(&mut self, key: &Key) -> Result<(), OperatorError> {
        let watermark = self.clocks.output.watermark;
        let valid = match self.state.get(VERSIONS, key)?.as_deref() {
            Some(Entry::Versions(versions)) => {
                let mut passed = versions.range(..=watermark).rev();
                passed.next().filter(|_| passed.next().is_some()).map(|(time, _)| *time)
            }
            _ => None,
        };
        if let Some(valid) = valid
            && let Entry::Versions(versions) = self.state.entry(VERSIONS, key, || Entry::Versions(BTreeMap::new()))?
        {
            *versions = versions.split_off(&valid);
        }
        Ok(())
    }
}

impl Operator for TemporalJoin {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [left, right] = inputs else { return Ok(Chunk::default()) };
        let inputs = [self.left.prepare(left, context, sides)?, self.right.prepare(right, context, sides)?];
        let mut joined = Joined::default();
        let mut marks = Vec::new();
        for event in merged(&inputs) {
            if !event.is_mark {
                self.take(event.input == 0, event.index)?;
                continue;
            }
            let before = self.clocks.output.watermark;
            if let Some(clock) = self.clocks.take(&inputs, event) {
                if clock.watermark > before {
                    self.advance(event.position, context, (&mut joined, &mut *sides))?;
                }
                marks.push(Mark { position: event.position, clock });
            }
        }
        joined.into_chunk(&self.left, Some(&self.right), marks)
    }

    fn pass_time(&mut self, now: LogTime) -> Result<(), OperatorError> {
        for key in self.retention.expired(&mut self.state, now)? {
            self.state.remove(VERSIONS, &key);
        }
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.state.namespaces().range(EVENTS_FROM..).next().copied()
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clocks).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clocks = restored(&self.left.named.name, saved)?;
        Ok(())
    }
}
