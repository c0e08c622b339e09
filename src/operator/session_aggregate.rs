//! Aggregation over SESSION windows: one row per key and session when the watermark passes the session's end.
//!
//! State: see [`sessions`](super::sessions); a session holds one accumulator per aggregate. Only the watermark is saved
//! beside it.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::aggregation::{Aggregation, Group};
use super::sessions::{self, Content, Sessions};
use super::window::Assigner;
use super::window_aggregate::Spec;
use super::{Chunk, Mark, Named, Operator, OperatorError, Position, Sides, StreamClock, event_times, restored};
use crate::event::EventTime;
use crate::expr::EvalContext;
use crate::sql::plan::WindowProperty;
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Session`]: to be raised when an accumulator's encoding changes.
pub const VALUE_TYPE: &str = "session/1";

/// A session and its accumulators.
pub type Session = sessions::Session<Group>;

impl Content for Group {
    fn merge(&mut self, later: Group) {
        Group::merge(self, later);
    }
}

/// `GROUP BY window_start, window_end, key, …` over `SESSION(TABLE t PARTITION BY key, …)`.
pub struct SessionAggregate {
    aggregation: Aggregation,
    time_column: usize,
    properties: Vec<WindowProperty>,
    clock: StreamClock,
    sessions: Sessions<Group>,
}

/// Rows freed by watermarks, not yet columns.
#[derive(Default)]
struct Fired {
    positions: Vec<Position>,
    windows: Vec<(i64, i64)>,
    keys: Vec<Key>,
    groups: Vec<Group>,
}

impl Fired {
    fn push(&mut self, position: Position, key: Key, session: Session) {
        self.positions.push(position);
        self.windows.push((session.start, session.end));
        self.keys.push(key);
        self.groups.push(session.content);
    }
}

impl SessionAggregate {
    /// An aggregation over sessions.
    ///
    /// # Errors
    /// A key's type has no order (the planner refuses such keys).
    pub fn new(
        named: Named,
        spec: Spec,
        gap_ms: i64,
        context: &EvalContext,
        state: KeyedState<Session>,
    ) -> Result<SessionAggregate, OperatorError> {
        Ok(SessionAggregate {
            aggregation: Aggregation::new(named, spec.keys, spec.aggregates)?,
            time_column: spec.window.time_column,
            properties: spec.properties,
            clock: StreamClock::default(),
            sessions: Sessions::new(Assigner::new(&spec.window, &context.time_zone), gap_ms, state),
        })
    }

    fn advance(&mut self, mark: &Mark, fired: &mut Fired) -> Result<(), OperatorError> {
        self.clock = mark.clock;
        while let Some((key, session)) = self.sessions.due(self.clock.watermark)? {
            fired.push(mark.position, key, session);
        }
        Ok(())
    }

    fn output(&self, fired: Fired, marks: Arc<Vec<Mark>>) -> Result<Chunk, OperatorError> {
        let mut columns: Vec<ArrayRef> = self.aggregation.key_columns(fired.keys.iter().map(|key| &**key))?;
        for property in &self.properties {
            columns.push(self.sessions.assigner.property(*property, fired.windows.iter().copied()));
        }
        columns.extend(self.aggregation.results(&fired.groups));
        Ok(Chunk { columns, positions: Arc::new(fired.positions), marks })
    }
}

impl Operator for SessionAggregate {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluated = self.aggregation.evaluate(input, context, sides)?;
        let arguments = self.aggregation.arguments(&evaluated);
        let input = &evaluated.input;
        let mut fired = Fired::default();
        let mut marks = input.marks.iter().peekable();
        let times = input.columns.get(self.time_column).map(event_times);
        for ((row, position), time) in input.positions.iter().enumerate().zip(times.into_iter().flatten()) {
            while let Some(mark) = marks.next_if(|mark| mark.position < *position) {
                self.advance(mark, &mut fired)?;
            }
            let time = time.unwrap_or(EventTime::MIN);
            let key = Key::from(self.aggregation.key(row));
            let empty = self.aggregation.empty();
            match self.sessions.take(key, time, self.clock.watermark, || empty.clone())? {
                Some(group) => arguments.fold(row, group),
                None => {
                    let named = &self.aggregation.named;
                    sides.late.push(named, (&input.columns, row), *position, time, self.clock.watermark);
                }
            }
        }
        for mark in marks {
            self.advance(mark, &mut fired)?;
        }
        self.output(fired, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(self.sessions.state())
    }

    fn preview(&self, _namespace: i64, key: &[u8], value: &[u8]) -> Option<Vec<ArrayRef>> {
        let session: Session = postcard::from_bytes(value).ok()?;
        let mut fired = Fired::default();
        if session.content.0.len() != self.aggregation.empty().0.len() {
            return None;
        }
        fired.push(Position::default(), Key::from(key), session);
        Some(self.output(fired, Arc::default()).ok()?.columns)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.sessions.next_timer()
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clock).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clock = restored(&self.aggregation.named.name, saved)?;
        Ok(self.sessions.find_open()?)
    }
}
