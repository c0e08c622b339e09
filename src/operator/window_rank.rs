//! Window Top-N and window deduplication: `ROW_NUMBER() OVER (PARTITION BY window_start, window_end, … ORDER BY …) <= N`.
//! When the watermark passes a window's end, the first N rows of each of its keys leave, numbered from 1.
//!
//! Rows that compare equal keep the order of arrival; with ORDER BY the time attribute DESC and N = 1 the last of them
//! is kept, as in Flink, where that is a deduplication. A row whose window is over is late.
//!
//! State: namespace = the window's end on the wall clock, key = the partition, value = its first N rows. Bounded by the
//! windows that are open: N rows for each of their keys.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use serde::{Deserialize, Serialize};

use super::parts::{Emit, PART_BYTES, PART_ROWS, in_one_part};
use super::rows::{Parts, StoredRow};
use super::window::Assigner;
use super::{Chunk, Event, Mark, Named, Operator, OperatorError, Sides, StreamClock, restored};
use crate::event::EventTime;
use crate::expr::row::RowKeys;
use crate::expr::{Batch, EvalContext, RowErrors, eval::eval};
use crate::sql::plan::{RankSpec, WindowSpec};
use crate::state::{Checkpointed, KeyedState};

/// Name and version of the encoding of [`Ranked`].
pub const VALUE_TYPE: &str = "window_rank_rows/1";

/// The first rows of a partition: what they are ordered by, and they themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranked(Vec<(StoredRow, StoredRow)>);

/// `ROW_NUMBER() … <= N` within windows.
pub struct WindowRank {
    named: Named,
    spec: RankSpec,
    end_column: usize,
    last_of_ties: bool,
    assigner: Assigner,
    keys: RowKeys,
    order: RowKeys,
    rows: RowKeys,
    empty: Vec<ArrayRef>,
    clock: StreamClock,
    state: KeyedState<Ranked>,
}

/// Where a rank finds the window of a row.
pub struct RankWindow {
    pub window: WindowSpec,
    pub end_column: usize,
    pub last_of_ties: bool,
}

impl WindowRank {
    /// A rank within windows; `empty` are the output's columns without rows.
    ///
    /// # Errors
    /// A type has no order (the planner refuses such columns).
    pub fn new(
        named: Named,
        spec: RankSpec,
        window: RankWindow,
        empty: Vec<ArrayRef>,
        context: &EvalContext,
        state: KeyedState<Ranked>,
    ) -> Result<WindowRank, OperatorError> {
        let keys: Vec<_> = spec.keys.iter().map(|key| key.data_type.clone()).collect();
        let rows: Vec<_> = named.input.iter().map(|field| field.data_type.clone()).collect();
        let order: Vec<_> = spec
            .order
            .iter()
            .map(|order| (order.expr.data_type.clone(), order.descending, order.nulls_first))
            .collect();
        Ok(WindowRank {
            end_column: window.end_column,
            last_of_ties: window.last_of_ties,
            assigner: Assigner::new(&window.window, &context.time_zone),
            keys: RowKeys::new(&keys)?,
            order: RowKeys::ordered(&order)?,
            rows: RowKeys::new(&rows)?,
            empty,
            clock: StreamClock::default(),
            named,
            spec,
            state,
        })
    }

    fn advance(&mut self, mark: &Mark, parts: &mut Parts, emit: Emit<'_>) -> Result<(), OperatorError> {
        self.clock = mark.clock;
        while let Some(end) = self.state.namespaces().first().copied() {
            if self.assigner.over_at(end) > self.clock.watermark {
                break;
            }
            let (mut rows, mut numbers, mut bytes) = (Vec::new(), Vec::new(), 0);
            for entry in self.state.take_namespace(end) {
                let (_, Ranked(ranked)) = entry?;
                numbers.extend(1..=i64::try_from(ranked.len()).unwrap_or(i64::MAX));
                bytes += ranked.iter().map(|(_, row)| row.0.len()).sum::<usize>();
                rows.extend(ranked.into_iter().map(|(_, row)| row));
                if rows.len() >= PART_ROWS || bytes >= PART_BYTES {
                    parts.push(rows.iter().map(|_| mark.position), decoded(&self.rows, &rows, &numbers)?);
                    emit(std::mem::take(parts).into_chunk(&self.empty, Arc::default())?)?;
                    rows.clear();
                    numbers.clear();
                    bytes = 0;
                }
            }
            parts.push(rows.iter().map(|_| mark.position), decoded(&self.rows, &rows, &numbers)?);
        }
        Ok(())
    }
}

/// The columns of rows and their numbers.
fn decoded(keys: &RowKeys, rows: &[StoredRow], numbers: &[i64]) -> Result<Vec<ArrayRef>, OperatorError> {
    let mut columns = keys.decode(rows.iter().map(|row| &*row.0))?;
    columns.push(Arc::new(Int64Array::from(numbers.to_vec())));
    Ok(columns)
}

impl Operator for WindowRank {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        in_one_part(|emit| self.process_in_parts(inputs, context, sides, emit))
    }

    fn process_in_parts(
        &mut self,
        inputs: &[Chunk],
        context: &EvalContext,
        sides: &mut Sides,
        emit: Emit<'_>,
    ) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            let keys: Vec<ArrayRef> = self.spec.keys.iter().map(|key| eval(key, &batch, context, errors)).collect();
            let order = self.spec.order.iter().map(|order| eval(&order.expr, &batch, context, errors));
            (keys, order.collect::<Vec<ArrayRef>>())
        };
        let (kept, (keys, order)) = input.evaluated(&self.named, sides, evaluate);
        let input = &kept;
        self.keys.encode(&keys, input.rows())?;
        self.order.encode(&order, input.rows())?;
        self.rows.encode(&input.columns, input.rows())?;
        let limit = self.spec.limit.unwrap_or(0);
        let mut parts = Parts::default();
        for event in input.timeline(self.end_column) {
            let (row, position, end) = match event {
                Event::Mark(mark) => {
                    self.advance(mark, &mut parts, emit)?;
                    continue;
                }
                Event::Row(row, position, end) => (row, position, end),
            };
            let over_at = self.assigner.over_at(end);
            if over_at <= self.clock.watermark {
                sides.late.push(&self.named, (&input.columns, row), position, over_at, self.clock.watermark);
                continue;
            }
            let ranked = &mut self.state.entry(end, self.keys.row(row), Ranked::default)?.0;
            let own = self.order.row(row);
            let at = match self.last_of_ties {
                true => ranked.partition_point(|(order, _)| &*order.0 < own),
                false => ranked.partition_point(|(order, _)| &*order.0 <= own),
            };
            if at < limit {
                ranked.insert(at, (StoredRow::new(own), StoredRow::new(self.rows.row(row))));
                ranked.truncate(limit);
            }
        }
        parts.into_chunk(&self.empty, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.state.namespaces().first().map(|end| self.assigner.over_at(*end))
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clock).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clock = restored(&self.named.name, saved)?;
        Ok(())
    }
}
