//! Aggregation over SESSION windows: one row per key and session when the watermark passes the session's end. A session
//! ends `gap` after its last row; a row that touches sessions on both sides makes them one.
//!
//! State: namespace = the session's end rounded up to a multiple of the gap (two sessions of a key that do not touch end
//! more than a gap apart, so never in one namespace), key = the grouping keys as comparable bytes, value = the session.
//! Bounded by the sessions that are open. Beside it an index of the open sessions is resident: their ends and keys. It
//! follows from the state, so only the watermark is saved.
//!
//! A row is late when the session that it would be part of, after merging, is over.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::ArrayRef;
use serde::{Deserialize, Serialize};

use super::aggregation::{Aggregation, Group};
use super::window::Assigner;
use super::window_aggregate::Spec;
use super::{Chunk, Mark, Named, Operator, OperatorError, Position, Sides, StreamClock, event_times, restored};
use crate::event::EventTime;
use crate::expr::EvalContext;
use crate::sql::plan::WindowProperty;
use crate::state::{Checkpointed, Key, KeyedState, StateError};

/// Name and version of the encoding of [`Session`]: to be raised when an accumulator's encoding changes.
pub const VALUE_TYPE: &str = "session/1";

/// An open session, on the wall clock in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    start: i64,
    /// A gap after the last row.
    end: i64,
    group: Group,
}

/// `GROUP BY window_start, window_end, key, …` over `SESSION(TABLE t PARTITION BY key, …)`.
pub struct SessionAggregate {
    aggregation: Aggregation,
    assigner: Assigner,
    gap_ms: i64,
    time_column: usize,
    properties: Vec<WindowProperty>,
    clock: StreamClock,
    index: Index,
    state: KeyedState<Session>,
}

/// The open sessions.
#[derive(Default)]
struct Index {
    by_key: BTreeSet<(Key, i64)>,
    /// By the watermark at which they are over, then the end.
    timers: BTreeSet<(EventTime, i64, Key)>,
    /// Sessions in each namespace: the last one takes it away.
    sizes: BTreeMap<i64, usize>,
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
        self.groups.push(session.group);
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
            assigner: Assigner::new(&spec.window, &context.time_zone),
            gap_ms: gap_ms.max(1),
            time_column: spec.window.time_column,
            properties: spec.properties,
            clock: StreamClock::default(),
            index: Index::default(),
            state,
        })
    }

    fn namespace(&self, end: i64) -> i64 {
        end.saturating_add((-end).rem_euclid(self.gap_ms))
    }

    fn open(&mut self, key: Key, end: i64) {
        *self.index.sizes.entry(self.namespace(end)).or_default() += 1;
        self.index.timers.insert((self.assigner.over_at(end), end, key.clone()));
        self.index.by_key.insert((key, end));
    }

    /// Takes an open session out.
    fn close(&mut self, key: &Key, end: i64) -> Result<Option<Session>, StateError> {
        let namespace = self.namespace(end);
        self.index.by_key.remove(&(key.clone(), end));
        self.index.timers.remove(&(self.assigner.over_at(end), end, key.clone()));
        let session = self.state.get(namespace, key)?.map(Cow::into_owned);
        self.state.remove(namespace, key);
        let left = self.index.sizes.entry(namespace).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.index.sizes.remove(&namespace);
            self.state.remove_namespace(namespace);
        }
        Ok(session)
    }

    /// Frees every session that is over at the watermark, in order of time, then key.
    fn fire(&mut self, position: Position, fired: &mut Fired) -> Result<(), OperatorError> {
        while let Some((over, end, key)) = self.index.timers.first().cloned() {
            if over > self.clock.watermark {
                break;
            }
            if let Some(session) = self.close(&key, end)? {
                fired.push(position, key, session);
            }
        }
        Ok(())
    }

    fn output(&self, fired: Fired, marks: Arc<Vec<Mark>>) -> Result<Chunk, OperatorError> {
        let mut columns: Vec<ArrayRef> = self.aggregation.key_columns(fired.keys.iter().map(|key| &**key))?;
        for property in &self.properties {
            columns.push(self.assigner.property(*property, fired.windows.iter().copied()));
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
                self.clock = mark.clock;
                self.fire(mark.position, &mut fired)?;
            }
            let time = time.unwrap_or(EventTime::MIN);
            let start = self.assigner.wall_of(time);
            let own = (start, start.saturating_add(self.gap_ms));
            let key = Key::from(self.aggregation.key(row));
            let (mut window, mut touched) = (own, Vec::new());
            for (_, end) in self.index.by_key.range((key.clone(), own.0)..=(key.clone(), i64::MAX)) {
                let Some(session) = self.state.get(self.namespace(*end), &key)? else { continue };
                if session.start > own.1 {
                    break;
                }
                window = (window.0.min(session.start), window.1.max(session.end));
                touched.push(*end);
            }
            if self.assigner.over_at(window.1) <= self.clock.watermark {
                let named = &self.aggregation.named;
                sides.late.push(named, (&input.columns, row), *position, time, self.clock.watermark);
                continue;
            }
            let (start, end) = window;
            let mut merged: Option<Group> = None;
            if touched != [end] {
                for old in touched {
                    match (&mut merged, self.close(&key, old)?) {
                        (Some(merged), Some(later)) => merged.merge(later.group),
                        (None, first) => merged = first.map(|session| session.group),
                        (Some(_), None) => {}
                    }
                }
                self.open(key.clone(), end);
            }
            let namespace = self.namespace(end);
            let empty = self.aggregation.empty();
            let new = || Session { start, end, group: merged.unwrap_or_else(|| empty.clone()) };
            let session = self.state.entry(namespace, &key, new)?;
            session.start = start;
            arguments.fold(row, &mut session.group);
        }
        for mark in marks {
            self.clock = mark.clock;
            self.fire(mark.position, &mut fired)?;
        }
        self.output(fired, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn preview(&self, _namespace: i64, key: &[u8], value: &[u8]) -> Option<Vec<ArrayRef>> {
        let session: Session = postcard::from_bytes(value).ok()?;
        let mut fired = Fired::default();
        if session.group.0.len() != self.aggregation.empty().0.len() {
            return None;
        }
        fired.push(Position::default(), Key::from(key), session);
        Some(self.output(fired, Arc::default()).ok()?.columns)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.index.timers.first().map(|(over, _, _)| *over)
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clock).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clock = restored(&self.aggregation.named.name, saved)?;
        self.index = Index::default();
        let namespaces: Vec<i64> = self.state.namespaces().iter().copied().collect();
        for namespace in namespaces {
            let open: Vec<(Key, i64)> = self
                .state
                .entries(namespace)
                .map(|entry| entry.map(|(key, session)| (key, session.end)))
                .collect::<Result<_, _>>()?;
            for (key, end) in open {
                self.open(key, end);
            }
        }
        Ok(())
    }
}
