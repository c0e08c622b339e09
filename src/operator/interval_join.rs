//! Interval join: rows of one key whose times lie within bounds: left time in [right time + lower, right time + upper].
//!
//! A row meets the kept rows of the other side when it comes, and is kept until the watermark has passed the last time
//! that can match it; a row of an outer side that has met none by then leaves with NULLs. No row is late. The output's
//! watermark stays behind by the larger of the two bounds, so that what leaves is not late downstream.
//!
//! State: namespace [`KEPT`], key = side and key: the kept rows by time. Namespace = the watermark at which rows are let
//! go, same key: a timer. Bounded by the rows within the bounds and the watermark's delay.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::join::{Condition, Joined, Side};
use super::merge::{Clocks, merged};
use super::rows::StoredRow;
use super::{Chunk, Mark, Operator, OperatorError, Position, Sides, StreamClock, restored};
use crate::event::{EventTime, WATERMARK_MAX, WATERMARK_MIN};
use crate::expr::EvalContext;
use crate::sql::plan::JoinKind;
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Entry`].
pub const VALUE_TYPE: &str = "interval_join_entry/1";

/// Namespace of the kept rows.
const KEPT: i64 = i64::MIN;
const LEFT: u8 = 0;
const RIGHT: u8 = 1;

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    Timer,
    /// By time, in order of arrival.
    Kept(BTreeMap<EventTime, Vec<Kept>>),
}

/// A kept row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    row: StoredRow,
    /// It has met a row of the other side.
    matched: bool,
}

/// `a JOIN b ON a.k = b.k AND a.t BETWEEN b.t + lower AND b.t + upper`.
pub struct IntervalJoin {
    left: Side,
    right: Side,
    condition: Condition,
    lower_ms: i64,
    upper_ms: i64,
    pads_left: bool,
    pads_right: bool,
    clocks: Clocks,
    state: KeyedState<Entry>,
}

impl IntervalJoin {
    /// A join within bounds in milliseconds.
    pub fn new(
        (left, right): (Side, Side),
        condition: Condition,
        (lower_ms, upper_ms): (i64, i64),
        kind: JoinKind,
        state: KeyedState<Entry>,
    ) -> IntervalJoin {
        IntervalJoin {
            left,
            right,
            condition,
            lower_ms,
            upper_ms,
            pads_left: matches!(kind, JoinKind::Left | JoinKind::Full),
            pads_right: matches!(kind, JoinKind::Right | JoinKind::Full),
            clocks: Clocks::new(2),
            state,
        }
    }

    /// The clock of what leaves.
    fn delayed(&self, clock: StreamClock) -> StreamClock {
        let delay_ms = self.upper_ms.max(self.lower_ms.saturating_neg()).max(0);
        let watermark = match clock.watermark {
            WATERMARK_MIN | WATERMARK_MAX => clock.watermark,
            watermark => watermark.saturating_sub(delay_ms),
        };
        StreamClock { watermark, ..clock }
    }

    /// The times of the other side that match a row, and the watermark at which the last of them has passed.
    fn reach(&self, is_left: bool, time: EventTime) -> (EventTime, EventTime) {
        match is_left {
            true => (time.saturating_sub(self.upper_ms), time.saturating_sub(self.lower_ms)),
            false => (time.saturating_add(self.lower_ms), time.saturating_add(self.upper_ms)),
        }
    }

    fn take(
        &mut self,
        is_left: bool,
        row: usize,
        position: Position,
        context: &EvalContext,
        (joined, sides): (&mut Joined, &mut Sides),
    ) -> Result<(), OperatorError> {
        let (own, other) = if is_left { (&self.left, &self.right) } else { (&self.right, &self.left) };
        let (tag, other_tag) = if is_left { (LEFT, RIGHT) } else { (RIGHT, LEFT) };
        let (Some(time), Some(has_null)) = (own.times.get(row).copied(), own.has_null.get(row).copied()) else {
            return Ok(());
        };
        let stored = StoredRow::new(own.rows.row(row));
        let (from, to) = self.reach(is_left, time);
        let (mut matched, mut fresh) = (false, Vec::new());
        let other_key = own.tagged_key(other_tag, row);
        if !has_null
            && from <= to
            && let Some(Entry::Kept(kept)) = self.state.get(KEPT, &other_key)?.as_deref()
        {
            let candidates: Vec<(EventTime, usize, &Kept)> = kept
                .range(from..=to)
                .flat_map(|(time, list)| list.iter().enumerate().map(|(index, kept)| (*time, index, kept)))
                .collect();
            let pairs: Vec<(&StoredRow, &StoredRow)> = candidates
                .iter()
                .map(|(_, _, kept)| if is_left { (&stored, &kept.row) } else { (&kept.row, &stored) })
                .collect();
            let both = if is_left { (own, other) } else { (other, own) };
            let holds = self.condition.holds(&pairs, both, position, context, sides)?;
            for (((left, right), _), (time, index, kept)) in
                pairs.iter().zip(holds).zip(&candidates).filter(|((_, holds), _)| *holds)
            {
                matched = true;
                joined.push(position, Some((*left).clone()), Some((*right).clone()));
                if !kept.matched {
                    fresh.push((*time, *index));
                }
            }
        }
        if !fresh.is_empty() && if is_left { self.pads_right } else { self.pads_left } {
            self.mark_matched(&other_key, &fresh)?;
        }
        let own = if is_left { &self.left } else { &self.right };
        let pads = if is_left { self.pads_left } else { self.pads_right };
        if to > self.clocks.output.watermark {
            let key = own.tagged_key(tag, row);
            self.state.entry(to, &key, || Entry::Timer)?;
            if let Entry::Kept(kept) = self.state.entry(KEPT, &key, || Entry::Kept(BTreeMap::new()))? {
                kept.entry(time).or_default().push(Kept { row: stored, matched });
            }
        } else if pads && !matched {
            if is_left { joined.push(position, Some(stored), None) } else { joined.push(position, None, Some(stored)) }
        }
        Ok(())
    }

    fn mark_matched(&mut self, key: &[u8], rows: &[(EventTime, usize)]) -> Result<(), OperatorError> {
        if let Entry::Kept(kept) = self.state.entry(KEPT, key, || Entry::Kept(BTreeMap::new()))? {
            for (time, index) in rows {
                if let Some(kept) = kept.get_mut(time).and_then(|list| list.get_mut(*index)) {
                    kept.matched = true;
                }
            }
        }
        Ok(())
    }

    /// Lets go the rows that nothing can match any more.
    fn advance(&mut self, position: Position, joined: &mut Joined) -> Result<(), OperatorError> {
        while let Some(at) = self.next_timer().filter(|at| *at <= self.clocks.output.watermark) {
            let entries: Vec<(Key, Entry)> = self.state.take_namespace(at).collect::<Result<_, _>>()?;
            for (key, _) in entries {
                let is_left = key.first() == Some(&LEFT);
                // The inverse of `reach`: rows up to this time have no match ahead.
                let until = match is_left {
                    true => at.saturating_add(self.lower_ms),
                    false => at.saturating_sub(self.upper_ms),
                };
                let pads = if is_left { self.pads_left } else { self.pads_right };
                let Entry::Kept(kept) = self.state.entry(KEPT, &key, || Entry::Kept(BTreeMap::new()))? else {
                    continue;
                };
                let stays = kept.split_off(&until.saturating_add(1));
                let gone = std::mem::replace(kept, stays);
                if kept.is_empty() {
                    self.state.remove(KEPT, &key);
                }
                for kept in gone.into_values().flatten().filter(|kept| pads && !kept.matched) {
                    match is_left {
                        true => joined.push(position, Some(kept.row), None),
                        false => joined.push(position, None, Some(kept.row)),
                    }
                }
            }
        }
        Ok(())
    }
}

impl Operator for IntervalJoin {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [left, right] = inputs else { return Ok(Chunk::default()) };
        let inputs = [self.left.prepare(left, context, sides)?, self.right.prepare(right, context, sides)?];
        let mut joined = Joined::default();
        let mut marks = Vec::new();
        for event in merged(&inputs) {
            if !event.is_mark {
                let out = (&mut joined, &mut *sides);
                self.take(event.input == 0, event.index, event.position, context, out)?;
            } else if let Some(clock) = self.clocks.take(&inputs, event) {
                self.advance(event.position, &mut joined)?;
                marks.push(Mark { position: event.position, clock: self.delayed(clock) });
            }
        }
        joined.into_chunk(&self.left, Some(&self.right), marks)
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.state.namespaces().range(KEPT + 1..).next().copied()
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clocks).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clocks = restored(&self.left.named.name, saved)?;
        Ok(())
    }
}
