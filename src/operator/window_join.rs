//! Window join: rows of the same window and key, when the watermark passes the window's end. A row whose window is over
//! is late. SEMI gives left rows that match some right row, ANTI those that match none.
//!
//! Within a window: matched pairs and unmatched left rows by key and arrival, then unmatched right rows.
//!
//! State: namespace = the window's end on the wall clock, key = side and key: the rows, in order of arrival. Bounded by
//! the windows that are open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::join::{Condition, Joined, Side};
use super::merge::{Clocks, merged};
use super::rows::StoredRow;
use super::window::Assigner;
use super::{Chunk, Mark, Operator, OperatorError, Position, Sides, restored};
use crate::event::EventTime;
use crate::expr::EvalContext;
use crate::sql::plan::JoinKind;
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Rows`].
pub const VALUE_TYPE: &str = "window_join_rows/1";

const LEFT: u8 = 0;
const RIGHT: u8 = 1;

/// Rows of one side, window and key, each with whether a key is NULL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows(Vec<(StoredRow, bool)>);

/// `a JOIN b ON a.window_start = b.window_start AND a.window_end = b.window_end AND a.k = b.k`.
pub struct WindowJoin {
    left: Side,
    right: Side,
    condition: Condition,
    kind: JoinKind,
    assigner: Assigner,
    clocks: Clocks,
    state: KeyedState<Rows>,
}

impl WindowJoin {
    /// A join within windows; the sides' times are the ends of their windows.
    pub fn new(
        (left, right): (Side, Side),
        condition: Condition,
        kind: JoinKind,
        assigner: Assigner,
        state: KeyedState<Rows>,
    ) -> WindowJoin {
        WindowJoin { left, right, condition, kind, assigner, clocks: Clocks::new(2), state }
    }

    fn take(
        &mut self,
        is_left: bool,
        row: usize,
        chunk: &Chunk,
        position: Position,
        sides: &mut Sides,
    ) -> Result<(), OperatorError> {
        let (side, tag) = if is_left { (&self.left, LEFT) } else { (&self.right, RIGHT) };
        let (Some(end), Some(has_null)) = (side.times.get(row).copied(), side.has_null.get(row)) else { return Ok(()) };
        let over_at = self.assigner.over_at(end);
        let watermark = self.clocks.output.watermark;
        if over_at <= watermark {
            sides.late.push(&side.named, (&chunk.columns, row), position, over_at, watermark);
            return Ok(());
        }
        let rows = self.state.entry(end, &side.tagged_key(tag, row), Rows::default)?;
        rows.0.push((StoredRow::new(side.rows.row(row)), *has_null));
        Ok(())
    }

    fn advance(
        &mut self,
        position: Position,
        context: &EvalContext,
        (joined, sides): (&mut Joined, &mut Sides),
    ) -> Result<(), OperatorError> {
        while let Some(end) = self.state.namespaces().first().copied() {
            if self.assigner.over_at(end) > self.clocks.output.watermark {
                break;
            }
            let (mut lefts, mut rights) = (Vec::new(), BTreeMap::new());
            for entry in self.state.take_namespace(end) {
                let (key, rows): (Key, Rows) = entry?;
                let plain = key.get(1..).unwrap_or_default().to_vec();
                if key.first() == Some(&LEFT) {
                    lefts.push((plain, rows.0));
                } else {
                    rights.insert(plain, rows.0.into_iter().map(|(row, null)| (row, null, false)).collect::<Vec<_>>());
                }
            }
            for (key, rows) in lefts {
                let mut none = Vec::new();
                let others = rights.get_mut(&key).unwrap_or(&mut none);
                for (row, has_null) in rows {
                    let pairs: Vec<(&StoredRow, &StoredRow)> =
                        others.iter().filter(|_| !has_null).map(|(other, _, _)| (&row, other)).collect();
                    let both = (&self.left, &self.right);
                    let holds = self.condition.holds(&pairs, both, position, context, sides)?;
                    let matched = holds.contains(&true);
                    for ((other, _, met), _) in others.iter_mut().zip(&holds).filter(|(_, holds)| **holds) {
                        *met = true;
                        if !matches!(self.kind, JoinKind::Semi | JoinKind::Anti) {
                            joined.push(position, Some(row.clone()), Some(other.clone()));
                        }
                    }
                    let alone = match self.kind {
                        JoinKind::Semi => matched,
                        JoinKind::Anti | JoinKind::Left | JoinKind::Full => !matched,
                        JoinKind::Inner | JoinKind::Right => false,
                    };
                    if alone {
                        joined.push(position, Some(row), None);
                    }
                }
            }
            if matches!(self.kind, JoinKind::Right | JoinKind::Full) {
                for (row, _, _) in rights.into_values().flatten().filter(|(_, _, met)| !met) {
                    joined.push(position, None, Some(row));
                }
            }
        }
        Ok(())
    }
}

impl Operator for WindowJoin {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [left, right] = inputs else { return Ok(Chunk::default()) };
        let inputs = [self.left.prepare(left, context, sides)?, self.right.prepare(right, context, sides)?];
        let mut joined = Joined::default();
        let mut marks = Vec::new();
        for event in merged(&inputs) {
            if !event.is_mark {
                if let Some(chunk) = inputs.get(event.input) {
                    self.take(event.input == 0, event.index, chunk, event.position, sides)?;
                }
            } else if let Some(clock) = self.clocks.take(&inputs, event) {
                self.advance(event.position, context, (&mut joined, &mut *sides))?;
                marks.push(Mark { position: event.position, clock });
            }
        }
        let right = Some(&self.right).filter(|_| !matches!(self.kind, JoinKind::Semi | JoinKind::Anti));
        joined.into_chunk(&self.left, right, marks)
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.state.namespaces().first().map(|end| self.assigner.over_at(*end))
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clocks).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clocks = restored(&self.left.named.name, saved)?;
        Ok(())
    }
}
