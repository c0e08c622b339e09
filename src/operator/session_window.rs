//! SESSION without aggregation: each row with the window of its session, when the watermark passes the session's end.
//! Sessions leave in order of time, then key; rows of a session in order of arrival, as in Flink's
//! `UnalignedWindowTableFunctionOperator`.
//!
//! State: see [`sessions`](super::sessions); a session holds its rows, so it is bounded by the rows of open sessions. Only
//! the watermark is saved beside it.

use std::sync::Arc;

use arrow_array::ArrayRef;
use serde::{Deserialize, Serialize};

use super::parts::{Emit, PART_BYTES, PART_ROWS, in_one_part};
use super::rows::{Parts, StoredRow};
use super::sessions::{self, Content, Sessions};
use super::window::Assigner;
use super::{Chunk, Mark, Named, Operator, OperatorError, Position, Sides, StreamClock, event_times, restored};
use crate::event::EventTime;
use crate::expr::EvalContext;
use crate::expr::row::RowKeys;
use crate::sql::plan::{WindowProperty, WindowSpec};
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Session`].
pub const VALUE_TYPE: &str = "session_rows/1";

/// A session and its rows, in order of arrival.
pub type Session = sessions::Session<Rows>;

/// Rows with their places in the stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows(Vec<(Position, StoredRow)>);

impl Content for Rows {
    fn merge(&mut self, later: Rows) {
        self.0.extend(later.0);
        self.0.sort_by_key(|(position, _)| *position);
    }
}

/// `SESSION(TABLE t PARTITION BY key, …)` without GROUP BY.
pub struct SessionWindow {
    named: Named,
    time_column: usize,
    partition: Vec<usize>,
    keys: RowKeys,
    rows: RowKeys,
    empty: Vec<ArrayRef>,
    clock: StreamClock,
    sessions: Sessions<Rows>,
}

impl SessionWindow {
    /// Sessions of `partition`'s columns; `empty` are the output's columns without rows.
    ///
    /// # Errors
    /// A type has no order (the planner refuses such columns).
    pub fn new(
        named: Named,
        window: &WindowSpec,
        (gap_ms, partition): (i64, Vec<usize>),
        empty: Vec<ArrayRef>,
        context: &EvalContext,
        state: KeyedState<Session>,
    ) -> Result<SessionWindow, OperatorError> {
        let types: Vec<_> = named.input.iter().map(|field| field.data_type.clone()).collect();
        let keys: Vec<_> = partition.iter().filter_map(|column| types.get(*column).cloned()).collect();
        Ok(SessionWindow {
            time_column: window.time_column,
            keys: RowKeys::new(&keys)?,
            rows: RowKeys::new(&types)?,
            partition,
            empty,
            clock: StreamClock::default(),
            sessions: Sessions::new(Assigner::new(window, &context.time_zone), gap_ms, state),
            named,
        })
    }

    fn advance(&mut self, mark: &Mark, parts: &mut Parts, emit: Emit<'_>) -> Result<(), OperatorError> {
        self.clock = mark.clock;
        let (mut rows, mut windows, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some((_, session)) = self.sessions.due(self.clock.watermark)? {
            let sessions::Session { start, end, content: Rows(content) } = session;
            windows.extend(content.iter().map(|_| (start, end)));
            bytes += content.iter().map(|(_, row)| row.0.len()).sum::<usize>();
            rows.extend(content.into_iter().map(|(_, row)| row));
            if rows.len() >= PART_ROWS || bytes >= PART_BYTES {
                parts.push(rows.iter().map(|_| mark.position), self.columns(&rows, &windows)?);
                emit(std::mem::take(parts).into_chunk(&self.empty, Arc::default())?)?;
                rows.clear();
                windows.clear();
                bytes = 0;
            }
        }
        if !rows.is_empty() {
            parts.push(rows.iter().map(|_| mark.position), self.columns(&rows, &windows)?);
        }
        Ok(())
    }

    /// The columns of rows and their windows.
    fn columns(&self, rows: &[StoredRow], windows: &[(i64, i64)]) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut columns = self.rows.decode(rows.iter().map(|row| &*row.0))?;
        for property in [WindowProperty::Start, WindowProperty::End, WindowProperty::Time] {
            columns.push(self.sessions.assigner.property(property, windows.iter().copied()));
        }
        Ok(columns)
    }
}

impl Operator for SessionWindow {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        in_one_part(|emit| self.process_in_parts(inputs, context, sides, emit))
    }

    fn process_in_parts(
        &mut self,
        inputs: &[Chunk],
        _: &EvalContext,
        sides: &mut Sides,
        emit: Emit<'_>,
    ) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let keys: Vec<ArrayRef> =
            self.partition.iter().filter_map(|column| input.columns.get(*column).cloned()).collect();
        self.keys.encode(&keys, input.rows())?;
        self.rows.encode(&input.columns, input.rows())?;
        let mut parts = Parts::default();
        let mut marks = input.marks.iter().peekable();
        let times = input.columns.get(self.time_column).map(event_times);
        for ((row, position), time) in input.positions.iter().enumerate().zip(times.into_iter().flatten()) {
            while let Some(mark) = marks.next_if(|mark| mark.position < *position) {
                self.advance(mark, &mut parts, emit)?;
            }
            let time = time.unwrap_or(EventTime::MIN);
            let key = Key::from(self.keys.row(row));
            match self.sessions.take(key, time, self.clock.watermark, Rows::default)? {
                Some(rows) => rows.0.push((*position, StoredRow::new(self.rows.row(row)))),
                None => sides.late.push(&self.named, (&input.columns, row), *position, time, self.clock.watermark),
            }
        }
        for mark in marks {
            self.advance(mark, &mut parts, emit)?;
        }
        parts.into_chunk(&self.empty, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self.sessions.state())
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.sessions.next_timer()
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clock).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clock = restored(&self.named.name, saved)?;
        Ok(self.sessions.find_open()?)
    }
}
