//! Operators: synchronous, deterministic transformations of chunks.
//!
//! ## Order
//! Everything happens at a [`Position`]: the record (LSN), the row within it, and the phase: first the row itself
//! flows, then the watermark it causes. A [`Chunk`] carries the position of each row and a [`Mark`] wherever the
//! watermark changes. An operator with one input walks rows and marks by position; rows that a mark frees take the
//! mark's position and stand before it. An operator with several inputs merges them by (position, input from left to
//! right, rows before marks). So the result does not depend on where a stream is cut into chunks: batch size 1 is the
//! specification, and the engine closes every position of a step in every operator before the next step. An operator
//! that may free more rows than memory holds hands them on in parts: see [`parts`].
//!
//! ## State
//! Bulk state lives in [`KeyedState`](crate::state::KeyedState); what is small and always resident (watermarks) is
//! saved as bytes with each checkpoint. An operator changes state only in [`Operator::process`].
//!
//! To add one: a file here; a node in `sql/plan.rs`; a line in the registry, `engine/graph.rs`.

pub mod accumulator;
pub mod aggregation;
pub mod edge;
pub mod expand;
pub mod filter;
pub mod fired;
pub mod first_row;
pub mod interval_join;
pub mod join;
pub mod last_row;
pub mod lookup_join;
pub mod match_recognize;
pub mod merge;
pub mod over;
pub mod parts;
pub mod pattern;
pub mod project;
pub mod retention;
pub mod rows;
mod scalar;
pub mod session_aggregate;
pub mod session_rows;
pub mod session_timers;
pub mod session_window;
pub mod sessions;
mod sketch;
pub mod temporal_join;
pub mod union_all;
pub mod unnest;
pub mod window;
pub mod window_aggregate;
pub mod window_join;
pub mod window_rank;

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::take::take;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::parts::Emit;
use crate::event::{EventTime, LogTime, WATERMARK_MAX, WATERMARK_MIN};
use crate::expr::row::KeyError;
use crate::expr::{DataType, EvalContext, Field, RowErrors};
use crate::state::{Checkpointed, StateError};

/// Where in the stream something happens: record, row within the record, phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub lsn: u64,
    /// `2 × row within the record`, + 1 in the watermark phase that follows the row.
    step: u32,
}

impl Position {
    /// The row with this ordinal within its record.
    pub fn row(lsn: u64, ordinal: u32) -> Position {
        Position { lsn, step: ordinal.saturating_mul(2) }
    }

    /// The watermark phase after this position's row.
    #[must_use]
    pub fn mark(self) -> Position {
        Position { lsn: self.lsn, step: self.step | 1 }
    }
}

/// The state of a stream's clock after a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub position: Position,
    pub clock: StreamClock,
}

/// Watermark, idleness and end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamClock {
    /// Milliseconds; +∞ once ended.
    pub watermark: EventTime,
    /// The stream has been without data for long enough that others need not wait for it.
    pub idle: bool,
    /// The stream has come to its end.
    pub ended: bool,
}

impl Default for StreamClock {
    fn default() -> StreamClock {
        StreamClock { watermark: WATERMARK_MIN, idle: false, ended: false }
    }
}

impl StreamClock {
    /// The clock of an operator over these inputs, as Flink's `StatusWatermarkValve` has it: the least watermark of those
    /// that are neither idle nor ended. One that comes back from idleness and is behind does not count until it has
    /// caught up. When all have become idle nobody waits for anybody: the greatest watermark counts.
    #[must_use]
    pub fn combine(self, inputs: &[StreamClock]) -> StreamClock {
        let ended = inputs.iter().all(|input| input.ended);
        let running = || inputs.iter().filter(|input| !input.ended);
        let active = || running().filter(|input| !input.idle);
        let idle = !ended && active().next().is_none();
        let watermark = if ended {
            WATERMARK_MAX
        } else if idle {
            running().map(|input| input.watermark).fold(self.watermark, EventTime::max)
        } else {
            let aligned = active().map(|input| input.watermark).filter(|watermark| *watermark >= self.watermark);
            aligned.min().unwrap_or(self.watermark)
        };
        StreamClock { watermark, idle, ended }
    }
}

/// Rows with their positions, and the marks between them. Both are in order of position.
#[derive(Clone, Debug, Default)]
pub struct Chunk {
    pub columns: Vec<ArrayRef>,
    /// One per row.
    pub positions: Arc<Vec<Position>>,
    pub marks: Arc<Vec<Mark>>,
}

/// What comes next in a chunk.
pub enum Event<'a> {
    /// The watermark changes.
    Mark(&'a Mark),
    /// Index, position and time of a row; a time that is NULL is before all others.
    Row(usize, Position, EventTime),
}

impl Chunk {
    /// Rows and marks in the order of their positions, rows with their time in this column.
    pub fn timeline(&self, time_column: usize) -> impl Iterator<Item = Event<'_>> {
        let times = self.columns.get(time_column).map(event_times).into_iter().flatten();
        let mut rows = self.positions.iter().enumerate().zip(times).peekable();
        let mut marks = self.marks.iter().peekable();
        std::iter::from_fn(move || {
            let next = rows.peek().map(|((_, position), _)| **position);
            if let Some(mark) = marks.next_if(|mark| next.is_none_or(|next| mark.position < next)) {
                return Some(Event::Mark(mark));
            }
            let ((row, position), time) = rows.next()?;
            Some(Event::Row(row, *position, time.unwrap_or(EventTime::MIN)))
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.positions.len()
    }

    /// Only the rows at these indices (ascending); all marks stay.
    #[expect(clippy::expect_used, reason = "no more than the chunk's own rows, each once")]
    pub fn select(&self, rows: &[u32]) -> Chunk {
        if rows.len() == self.rows() {
            return self.clone();
        }
        self.repeat(rows).expect("row indices are within the columns")
    }

    /// The rows at these indices (ascending, each as often as it is named); all marks stay.
    ///
    /// # Errors
    /// A column would exceed 2 GiB.
    pub fn repeat(&self, rows: &[u32]) -> Result<Chunk, OperatorError> {
        let indices = UInt32Array::from_iter_values(rows.iter().copied());
        let take = |column: &ArrayRef| take(column, &indices, None).map_err(OperatorError::Repeat);
        Ok(Chunk {
            columns: self.columns.iter().map(take).collect::<Result<_, _>>()?,
            positions: Arc::new(rows.iter().filter_map(|row| self.positions.get(*row as usize).copied()).collect()),
            marks: Arc::clone(&self.marks),
        })
    }

    /// Evaluates expressions over the rows. A row on which one fails leaves by the side; the others evaluate to the same
    /// values again.
    pub fn evaluated<T>(
        &self,
        operator: &Named,
        sides: &mut Sides,
        evaluate: impl Fn(&Chunk, &mut RowErrors) -> T,
    ) -> (Chunk, T) {
        let mut errors = RowErrors::default();
        let values = evaluate(self, &mut errors);
        if errors.list.is_empty() {
            return (self.clone(), values);
        }
        let kept = self.clone().without_errors(errors, operator, sides);
        let values = evaluate(&kept, &mut RowErrors::default());
        (kept, values)
    }

    /// Takes the rows that `errors` names out of the chunk and into `sides`.
    #[must_use]
    pub fn without_errors(self, errors: RowErrors, operator: &Named, sides: &mut Sides) -> Chunk {
        if errors.list.is_empty() {
            return self;
        }
        let mut list = errors.list;
        list.sort_by_key(|(row, _)| *row);
        list.dedup_by_key(|(row, _)| *row);
        let mut bad = list.iter().map(|(row, _)| *row).peekable();
        let kept: Vec<u32> = (0..self.rows() as u32).filter(|row| bad.next_if_eq(row).is_none()).collect();
        for (row, reason) in &list {
            let position = self.positions.get(*row as usize).copied().unwrap_or_default();
            sides.errors.push(operator, position, reason, operator.row_text(&self.columns, *row as usize));
        }
        self.select(&kept)
    }
}

/// Renders a row as JSON for the side outputs.
pub type RowText = Arc<dyn Fn(&[Field], &[ArrayRef], usize) -> String + Send + Sync>;

/// An entry of the keyed state as a row of columns with names.
pub struct Preview {
    pub fields: Vec<Field>,
    pub columns: Vec<ArrayRef>,
}

/// An operator's name and input, as its side outputs need them.
#[derive(Clone)]
pub struct Named {
    /// `query/kind/ordinal`.
    pub name: Arc<str>,
    /// The input's columns.
    pub input: Arc<Vec<Field>>,
    pub render: RowText,
}

impl Named {
    fn row_text(&self, columns: &[ArrayRef], row: usize) -> String {
        (self.render)(&self.input, columns, row)
    }
}

/// What [`Operator::save`] gave, for [`Operator::restore`].
fn restored<T: DeserializeOwned>(operator: &str, saved: &[u8]) -> Result<T, OperatorError> {
    postcard::from_bytes(saved).map_err(|source| OperatorError::Saved { operator: operator.to_owned(), source })
}

/// Rows that an operator refused, for the query's own outputs.
#[derive(Default)]
pub struct Sides {
    pub late: LateRows,
    pub errors: ErrorRows,
}

impl Sides {
    /// Puts what another operator refused behind this.
    pub fn append(&mut self, other: Sides) {
        let (late, errors) = (other.late, other.errors);
        self.late.positions.extend(late.positions);
        self.late.operators.extend(late.operators);
        self.late.event_times.extend(late.event_times);
        self.late.watermarks.extend(late.watermarks);
        self.late.rows.extend(late.rows);
        self.errors.positions.extend(errors.positions);
        self.errors.operators.extend(errors.operators);
        self.errors.reasons.extend(errors.reasons);
        self.errors.rows.extend(errors.rows);
    }
}

/// Rows of `q.late`.
#[derive(Default)]
pub struct LateRows {
    pub positions: Vec<Position>,
    operators: Vec<Arc<str>>,
    event_times: Vec<i64>,
    watermarks: Vec<i64>,
    rows: Vec<String>,
}

/// Rows of `q.errors`.
#[derive(Default)]
pub struct ErrorRows {
    pub positions: Vec<Position>,
    operators: Vec<Arc<str>>,
    reasons: Vec<String>,
    rows: Vec<String>,
}

impl LateRows {
    /// Row `row` of `columns` came too late for an operator that stood at `watermark`.
    fn push(
        &mut self,
        operator: &Named,
        (columns, row): (&[ArrayRef], usize),
        position: Position,
        event_time: EventTime,
        watermark: EventTime,
    ) {
        self.positions.push(position);
        self.operators.push(Arc::clone(&operator.name));
        self.event_times.push(event_time.saturating_mul(1000));
        self.watermarks.push(watermark.saturating_mul(1000));
        self.rows.push(operator.row_text(columns, row));
    }

    /// Columns of every `q.late`.
    pub fn fields() -> Vec<Field> {
        vec![
            Field::new("operator", DataType::String),
            Field::new("event_time", DataType::TimestampLtz(3)),
            Field::new("watermark", DataType::TimestampLtz(3)),
            Field::new("_lsn", DataType::BigInt),
            Field::new("row", DataType::String),
        ]
    }

    /// The rows as columns, in order of position.
    pub fn into_chunk(mut self) -> Chunk {
        let order = order_of(&self.positions);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(order.iter().map(|i| &*self.operators[*i]))),
            Arc::new(instants(order.iter().map(|i| self.event_times[*i]))),
            Arc::new(instants(order.iter().map(|i| self.watermarks[*i]))),
            Arc::new(Int64Array::from_iter_values(order.iter().map(|i| self.positions[*i].lsn as i64))),
            Arc::new(StringArray::from_iter_values(order.iter().map(|i| &self.rows[*i]))),
        ];
        self.positions.sort();
        Chunk { columns, positions: Arc::new(self.positions), marks: Arc::default() }
    }
}

impl ErrorRows {
    fn push(&mut self, operator: &Named, position: Position, reason: &str, row: String) {
        self.positions.push(position);
        self.operators.push(Arc::clone(&operator.name));
        self.reasons.push(reason.to_owned());
        self.rows.push(row);
    }

    /// Columns of every `q.errors`.
    pub fn fields() -> Vec<Field> {
        vec![
            Field::new("operator", DataType::String),
            Field::new("reason", DataType::String),
            Field::new("_lsn", DataType::BigInt),
            Field::new("row", DataType::String),
        ]
    }

    /// The rows as columns, in order of position.
    pub fn into_chunk(mut self) -> Chunk {
        let order = order_of(&self.positions);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(order.iter().map(|i| &*self.operators[*i]))),
            Arc::new(StringArray::from_iter_values(order.iter().map(|i| &self.reasons[*i]))),
            Arc::new(Int64Array::from_iter_values(order.iter().map(|i| self.positions[*i].lsn as i64))),
            Arc::new(StringArray::from_iter_values(order.iter().map(|i| &self.rows[*i]))),
        ];
        self.positions.sort();
        Chunk { columns, positions: Arc::new(self.positions), marks: Arc::default() }
    }
}

/// Indices in order of position; equal positions keep the order in which they came.
fn order_of(positions: &[Position]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by_key(|i| positions.get(*i).copied());
    order
}

/// An array of TIMESTAMP_LTZ values, µs.
pub fn instants(values: impl IntoIterator<Item = i64>) -> TimestampMicrosecondArray {
    TimestampMicrosecondArray::from_iter_values(values).with_timezone("UTC")
}

/// A stateful or stateless step of the plan.
pub trait Operator: Send {
    /// Takes the next chunk of each input (positions of the same step) and gives the output's chunk.
    ///
    /// # Errors
    /// State could not be read.
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError>;

    /// As [`Operator::process`], but rows may go to `emit` before it returns: see [`parts`].
    ///
    /// # Errors
    /// As [`Operator::process`], or what `emit` gave.
    fn process_in_parts(
        &mut self,
        inputs: &[Chunk],
        context: &EvalContext,
        sides: &mut Sides,
        _emit: Emit<'_>,
    ) -> Result<Chunk, OperatorError> {
        self.process(inputs, context, sides)
    }

    /// Log time has come this far. Called before the rows that came at it, as often as the engine likes.
    ///
    /// # Errors
    /// State could not be read.
    fn pass_time(&mut self, _now: LogTime) -> Result<(), OperatorError> {
        Ok(())
    }

    /// The keyed state, where the operator has any.
    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        None
    }

    /// An entry of the keyed state for people: the row that it would give if it were freed now, in columns with these
    /// labels, or what else it is; `None` where the bytes are not the operator's.
    fn preview(&self, _labels: &[Field], _namespace: i64, _key: &[u8], _value: &[u8]) -> Option<Preview> {
        None
    }

    /// The least watermark at which the operator would emit something, where it holds anything.
    fn next_timer(&self) -> Option<EventTime> {
        None
    }

    /// The operator as one that looks up a table, if it is.
    fn lookup(&mut self) -> Option<&mut dyn Lookup> {
        None
    }

    /// The small resident state, for a checkpoint.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what [`Operator::save`] gave.
    ///
    /// # Errors
    /// The bytes are not of this operator.
    fn restore(&mut self, _saved: &[u8]) -> Result<(), OperatorError> {
        Ok(())
    }
}

/// An operator that looks up a table.
pub trait Lookup {
    /// The table's name.
    fn table(&self) -> &str;

    /// Checksum of the version in force; `None` before the first.
    fn version(&self) -> Option<u32>;

    /// A new version of the table, in its declared columns, holds for all rows from now on.
    ///
    /// # Errors
    /// State could not be read.
    fn replace(&mut self, columns: &[ArrayRef], version: u32, context: &EvalContext) -> Result<(), OperatorError>;
}

/// What can go wrong in an operator: nothing that a row contains.
#[derive(Debug, Error)]
pub enum OperatorError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the rows that one batch multiplies into are too large: {0}; use smaller windows, arrays or batches")]
    Repeat(#[source] ArrowError),
    #[error("a part of an operator's output could not be taken")]
    Emit,
    #[error("the checkpointed state of {operator} cannot be decoded: {source}")]
    Saved {
        operator: String,
        #[source]
        source: postcard::Error,
    },
}

/// Milliseconds of each value of a time column; `None` where it is NULL.
pub fn event_times(column: &ArrayRef) -> impl Iterator<Item = Option<EventTime>> + '_ {
    let typed = column.as_any().downcast_ref::<TimestampMicrosecondArray>();
    (0..column.len())
        .map(move |row| typed.filter(|t| !arrow_array::Array::is_null(t, row)).map(|t| t.value(row).div_euclid(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(watermark: EventTime) -> StreamClock {
        StreamClock { watermark, ..StreamClock::default() }
    }

    fn idle(watermark: EventTime) -> StreamClock {
        StreamClock { idle: true, ..at(watermark) }
    }

    #[test]
    fn the_slowest_active_input_counts() {
        let start = StreamClock::default();
        let ended = StreamClock { ended: true, ..at(WATERMARK_MAX) };
        assert_eq!(start.combine(&[at(5), at(3)]), at(3));
        assert_eq!(at(3).combine(&[at(5), idle(3)]), at(5));
        assert_eq!(at(3).combine(&[at(5), ended]), at(5));
        assert_eq!(at(5).combine(&[ended, ended]), ended);
    }

    #[test]
    fn when_all_are_idle_the_greatest_watermark_counts_whichever_became_idle_first() {
        assert_eq!(at(3).combine(&[idle(5), at(3)]).combine(&[idle(5), idle(3)]), idle(5));
        assert_eq!(at(3).combine(&[at(5), idle(3)]).combine(&[idle(5), idle(3)]), idle(5));
        let ended = StreamClock { ended: true, ..at(WATERMARK_MAX) };
        assert_eq!(at(3).combine(&[idle(4), ended]), idle(4), "an end is no reason to close what is still open");
    }

    #[test]
    fn an_input_that_comes_back_behind_does_not_hold_up_the_others() {
        let back = at(5).combine(&[at(5), at(1)]);
        assert_eq!(back, at(5));
        assert_eq!(back.combine(&[at(9), at(1)]), at(9));
        // Caught up: it counts again.
        assert_eq!(at(9).combine(&[at(20), at(10)]), at(10));
    }
}
