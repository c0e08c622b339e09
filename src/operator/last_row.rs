//! Keep-last deduplication: `ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1`, numbered 1. A row goes on as it
//! comes, unless its time is before the greatest one of its key so far: so what goes on are the versions of each key, of
//! rows of one time the last to arrive. The watermark does not matter, and no row is late; as in Flink's
//! `RowTimeDeduplicateFunction`. The plan has it below a temporal join only: each row takes the place of the one before.
//!
//! State: the greatest time of each key; so it is bounded by the number of keys. With `state_ttl` a key is forgotten when
//! none of its rows went on for so long; then its next row goes on whatever its time.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use serde::{Deserialize, Serialize};

use super::retention::{Retention, Stamp};
use super::{Chunk, Event, Named, Operator, OperatorError, Sides};
use crate::event::{EventTime, LogTime};
use crate::expr::build::Expr;
use crate::expr::row::RowKeys;
use crate::expr::{Batch, EvalContext, RowErrors, eval::eval};
use crate::state::{Checkpointed, KeyedState};

/// Name and version of the encoding of [`Entry`].
pub const VALUE_TYPE: &str = "last_row_entry/1";

/// Namespace of the keys.
const KEYS: i64 = i64::MIN;

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// The greatest time of the key's rows.
    Last(EventTime),
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
            Entry::Last(_) => None,
        }
    }
}

/// `ROW_NUMBER() … = 1`, the last by time.
pub struct LastRow {
    named: Named,
    time_column: usize,
    key_exprs: Vec<Expr>,
    keys: RowKeys,
    retention: Retention,
    state: KeyedState<Entry>,
}

impl LastRow {
    /// The last row of each key.
    ///
    /// # Errors
    /// A key's type has no order (the planner refuses such keys).
    pub fn new(
        named: Named,
        time_column: usize,
        key_exprs: Vec<Expr>,
        retention: Retention,
        state: KeyedState<Entry>,
    ) -> Result<LastRow, OperatorError> {
        let types: Vec<_> = key_exprs.iter().map(|key| key.data_type.clone()).collect();
        Ok(LastRow { keys: RowKeys::new(&types)?, named, time_column, key_exprs, retention, state })
    }

    /// Whether the row, of the chunk that was encoded last, is the last of its key so far.
    fn is_last(&mut self, row: usize, time: EventTime) -> Result<bool, OperatorError> {
        let key = self.keys.row(row);
        if let Some(Entry::Last(last)) = self.state.get(KEYS, key)?.as_deref()
            && time < *last
        {
            return Ok(false);
        }
        *self.state.entry(KEYS, key, || Entry::Last(time))? = Entry::Last(time);
        self.retention.used(&mut self.state, key)?;
        Ok(true)
    }
}

impl Operator for LastRow {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| -> Vec<ArrayRef> {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            self.key_exprs.iter().map(|key| eval(key, &batch, context, errors)).collect()
        };
        let (input, keys) = input.evaluated(&self.named, sides, evaluate);
        self.keys.encode(&keys, input.rows())?;
        let mut kept: Vec<u32> = Vec::new();
        for event in input.timeline(self.time_column) {
            if let Event::Row(row, _, time) = event
                && self.is_last(row, time)?
            {
                kept.push(row as u32);
            }
        }
        let mut output = input.select(&kept);
        output.columns.push(Arc::new(Int64Array::from(vec![1; kept.len()])));
        Ok(output)
    }

    fn pass_time(&mut self, now: LogTime) -> Result<(), OperatorError> {
        for key in self.retention.expired(&mut self.state, now)? {
            self.state.remove(KEYS, &key);
        }
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }
}
