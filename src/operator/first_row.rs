//! Keep-first deduplication: `ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) = 1`. When the watermark passes the time of
//! a key's first row, that row leaves, numbered 1; later rows of the key are dropped: they are what was asked away.
//!
//! Of rows of one time the first to arrive is kept. Late: time < watermark (a row at the watermark itself waits for its
//! next step), as in Flink.
//!
//! State: namespace = event time, key = the partition: the row that waits. Namespace [`KEYS`]: for each key the time of
//! the row that waits, or that one has left; so it is bounded by the number of keys. With `state_ttl` a key is forgotten
//! so long after its row has left; then its next row is a first one again.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use serde::{Deserialize, Serialize};

use super::retention::{EVENTS_FROM, Retention, Stamp};
use super::rows::{Parts, StoredRow};
use super::{Chunk, Event, Mark, Named, Operator, OperatorError, Sides, StreamClock, restored};
use crate::event::{EventTime, LogTime};
use crate::expr::build::Expr;
use crate::expr::row::RowKeys;
use crate::expr::{Batch, EvalContext, RowErrors, eval::eval};
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Entry`].
pub const VALUE_TYPE: &str = "first_row_entry/1";

/// Namespace of what is known of each key.
const KEYS: i64 = i64::MIN;

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The row that waits.
    Row(StoredRow),
    /// The time of the key's row that waits.
    WaitsAt(EventTime),
    /// The key's row has left.
    Left,
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

/// `ROW_NUMBER() … = 1`, the first by time.
pub struct FirstRow {
    named: Named,
    time_column: usize,
    key_exprs: Vec<Expr>,
    keys: RowKeys,
    rows: RowKeys,
    empty: Vec<ArrayRef>,
    clock: StreamClock,
    retention: Retention,
    state: KeyedState<Entry>,
}

impl FirstRow {
    /// The first row of each key; `empty` are the output's columns without rows.
    ///
    /// # Errors
    /// A type has no order (the planner refuses such columns).
    pub fn new(
        named: Named,
        time_column: usize,
        key_exprs: Vec<Expr>,
        empty: Vec<ArrayRef>,
        state: KeyedState<Entry>,
    ) -> Result<FirstRow, OperatorError> {
        let keys: Vec<_> = key_exprs.iter().map(|key| key.data_type.clone()).collect();
        let rows: Vec<_> = named.input.iter().map(|field| field.data_type.clone()).collect();
        Ok(FirstRow {
            keys: RowKeys::new(&keys)?,
            rows: RowKeys::new(&rows)?,
            clock: StreamClock::default(),
            named,
            time_column,
            key_exprs,
            empty,
            retention: Retention::default(),
            state,
        })
    }

    /// The same with a `state_ttl`.
    #[must_use]
    pub fn retaining(self, retention: Retention) -> FirstRow {
        FirstRow { retention, ..self }
    }

    fn advance(&mut self, mark: &Mark, parts: &mut Parts) -> Result<(), OperatorError> {
        let advances = mark.clock.watermark > self.clock.watermark;
        self.clock = mark.clock;
        while let Some(time) = self.next_timer().filter(|time| advances && *time <= self.clock.watermark) {
            let entries: Vec<(Key, Entry)> = self.state.take_namespace(time).collect::<Result<_, _>>()?;
            let mut rows = Vec::new();
            for (key, entry) in entries {
                if let Entry::Row(row) = entry {
                    *self.state.entry(KEYS, &key, || Entry::Left)? = Entry::Left;
                    self.retention.used(&mut self.state, &key)?;
                    rows.push(row);
                }
            }
            let mut columns = self.rows.decode(rows.iter().map(|row| &*row.0))?;
            columns.push(Arc::new(Int64Array::from(vec![1; rows.len()])));
            parts.push(rows.iter().map(|_| mark.position), columns);
        }
        Ok(())
    }

    /// Takes a row that is not late.
    fn take(&mut self, row: usize, time: EventTime) -> Result<(), OperatorError> {
        let key = self.keys.row(row);
        match self.state.get(KEYS, key)?.map(Cow::into_owned) {
            Some(Entry::Left) => return Ok(()),
            Some(Entry::WaitsAt(first)) if first <= time => return Ok(()),
            Some(Entry::WaitsAt(later)) => self.state.remove(later, key),
            _ => {}
        }
        *self.state.entry(KEYS, key, || Entry::Left)? = Entry::WaitsAt(time);
        let row = StoredRow::new(self.rows.row(row));
        *self.state.entry(time, key, || Entry::Left)? = Entry::Row(row);
        Ok(())
    }
}

impl Operator for FirstRow {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| -> Vec<ArrayRef> {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            self.key_exprs.iter().map(|key| eval(key, &batch, context, errors)).collect()
        };
        let (kept, keys) = input.evaluated(&self.named, sides, evaluate);
        let input = &kept;
        self.keys.encode(&keys, input.rows())?;
        self.rows.encode(&input.columns, input.rows())?;
        let mut parts = Parts::default();
        for event in input.timeline(self.time_column) {
            let (row, position, time) = match event {
                Event::Mark(mark) => {
                    self.advance(mark, &mut parts)?;
                    continue;
                }
                Event::Row(row, position, time) => (row, position, time),
            };
            let time = time.max(EVENTS_FROM);
            if time < self.clock.watermark {
                sides.late.push(&self.named, (&input.columns, row), position, time, self.clock.watermark);
                continue;
            }
            self.take(row, time)?;
        }
        parts.into_chunk(&self.empty, Arc::clone(&input.marks))
    }

    fn pass_time(&mut self, now: LogTime) -> Result<(), OperatorError> {
        for key in self.retention.expired(&mut self.state, now)? {
            // Where a row waits again, the key counts from when that one leaves.
            if matches!(self.state.get(KEYS, &key)?.as_deref(), Some(Entry::Left)) {
                self.state.remove(KEYS, &key);
            }
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
        postcard::to_stdvec(&self.clock).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clock = restored(&self.named.name, saved)?;
        Ok(())
    }
}
