//! Windowed aggregation: one row per window and key when the watermark passes the window's end.
//!
//! State: namespace = the window's end on the wall clock, key = the grouping keys as comparable bytes, value = one
//! accumulator per aggregate. Bounded by the windows that are open. A row whose window is already over is late and
//! goes to the query's late output; so rows counted + late rows + rows that failed = input rows.

use std::sync::Arc;

use arrow_array::ArrayRef;
use serde::{Deserialize, Serialize};

use super::accumulator::{Accumulator, Argument, finish};
use super::window::Assigner;
use super::{Chunk, Named, Operator, OperatorError, Position, Sides, StreamClock, event_times};
use crate::event::EventTime;
use crate::expr::build::Expr;
use crate::expr::row::RowKeys;
use crate::expr::{AggregateCall, Batch, EvalContext, RowErrors, eval::eval, eval::eval_predicate};
use crate::sql::plan::{WindowProperty, WindowSpec};
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Group`]: to be raised when an accumulator's encoding changes.
pub const VALUE_TYPE: &str = "window_aggregate_group/1";

/// The accumulators of one group, in the order of the aggregates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group(pub Box<[Accumulator]>);

/// `GROUP BY window_start, window_end, key, …` over a window table function.
pub struct WindowAggregate {
    named: Named,
    assigner: Assigner,
    time_column: usize,
    keys: Vec<Expr>,
    row_keys: RowKeys,
    properties: Vec<WindowProperty>,
    aggregates: Vec<AggregateCall>,
    empty: Group,
    clock: StreamClock,
    state: KeyedState<Group>,
}

/// What the operator is made of, from the plan.
pub struct Spec {
    pub window: WindowSpec,
    pub keys: Vec<Expr>,
    pub properties: Vec<WindowProperty>,
    pub aggregates: Vec<AggregateCall>,
}

/// Rows freed by watermarks, not yet columns.
#[derive(Default)]
struct Fired {
    positions: Vec<Position>,
    ends: Vec<i64>,
    keys: Vec<Key>,
    groups: Vec<Group>,
}

impl WindowAggregate {
    /// A windowed aggregation.
    ///
    /// # Errors
    /// A key's type has no order (the planner refuses such keys).
    pub fn new(
        named: Named,
        spec: Spec,
        context: &EvalContext,
        state: KeyedState<Group>,
    ) -> Result<WindowAggregate, OperatorError> {
        let types: Vec<_> = spec.keys.iter().map(|key| key.data_type.clone()).collect();
        Ok(WindowAggregate {
            named,
            assigner: Assigner::new(&spec.window, &context.time_zone),
            time_column: spec.window.time_column,
            row_keys: RowKeys::new(&types)?,
            empty: Group(spec.aggregates.iter().map(Accumulator::new).collect()),
            keys: spec.keys,
            properties: spec.properties,
            aggregates: spec.aggregates,
            clock: StreamClock::default(),
            state,
        })
    }

    /// Frees every window that is over at the watermark, in order of time, then key.
    fn fire(&mut self, position: Position, fired: &mut Fired) -> Result<(), OperatorError> {
        while let Some(end) = self.state.namespaces().first().copied() {
            if self.assigner.over_at(end) > self.clock.watermark {
                break;
            }
            for entry in self.state.take_namespace(end) {
                let (key, group) = entry?;
                fired.positions.push(position);
                fired.ends.push(end);
                fired.keys.push(key);
                fired.groups.push(group);
            }
        }
        Ok(())
    }

    fn output(&self, fired: Fired, marks: Arc<Vec<super::Mark>>) -> Result<Chunk, OperatorError> {
        let mut columns: Vec<ArrayRef> = self.row_keys.decode(fired.keys.iter().map(|key| &**key))?;
        for property in &self.properties {
            columns.push(self.assigner.property(*property, fired.ends.iter().copied()));
        }
        for (i, call) in self.aggregates.iter().enumerate() {
            columns.push(finish(call, fired.groups.iter().map(|group| group.0.get(i))));
        }
        Ok(Chunk { columns, positions: Arc::new(fired.positions), marks })
    }
}

impl Operator for WindowAggregate {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            let keys: Vec<ArrayRef> = self.keys.iter().map(|key| eval(key, &batch, context, errors)).collect();
            let mut arguments = Vec::with_capacity(self.aggregates.len());
            let mut filters = Vec::with_capacity(self.aggregates.len());
            for call in &self.aggregates {
                arguments.push(call.argument.as_ref().map(|expr| eval(expr, &batch, context, errors)));
                filters.push(call.filter.as_ref().map(|expr| eval_predicate(expr, &batch, context, errors)));
            }
            (keys, arguments, filters)
        };
        let mut errors = RowErrors::default();
        let mut evaluated = evaluate(input, &mut errors);
        let kept;
        let input = if errors.list.is_empty() {
            input
        } else {
            kept = input.clone().without_errors(errors, &self.named, sides);
            evaluated = evaluate(&kept, &mut RowErrors::default());
            &kept
        };
        let (keys, arguments, filters) = evaluated;
        let opaque: Vec<_> =
            self.aggregates.iter().zip(&arguments).map(|(call, column)| opaque_rows(call, column)).collect();
        let arguments: Vec<Argument<'_>> = self
            .aggregates
            .iter()
            .zip(&arguments)
            .zip(&opaque)
            .map(|((call, column), rows)| match (Argument::new(column.as_ref(), call.argument_type()), rows) {
                (Argument::Opaque(column, _), Some(rows)) => Argument::Opaque(column, Some(rows)),
                (argument, _) => argument,
            })
            .collect();
        self.row_keys.encode(&keys, input.rows())?;

        let mut fired = Fired::default();
        let mut marks = input.marks.iter().peekable();
        let times = input.columns.get(self.time_column).map(event_times);
        for ((row, position), time) in input.positions.iter().enumerate().zip(times.into_iter().flatten()) {
            while let Some(mark) = marks.next_if(|mark| mark.position < *position) {
                self.clock = mark.clock;
                self.fire(mark.position, &mut fired)?;
            }
            let time = time.unwrap_or(EventTime::MIN);
            let end = self.assigner.end_of(time);
            if self.assigner.over_at(end) <= self.clock.watermark {
                let text = self.named.row_text(&input.columns, row);
                sides.late.push(&self.named, *position, time, self.clock.watermark, text);
                continue;
            }
            let empty = &self.empty;
            let group = self.state.entry(end, self.row_keys.row(row), || empty.clone())?;
            for ((accumulator, argument), filter) in group.0.iter_mut().zip(&arguments).zip(&filters) {
                if !argument.is_null(row) && filter.as_ref().is_none_or(|truth| truth.value(row)) {
                    accumulator.update(argument, row);
                }
            }
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

    fn preview(&self, namespace: i64, key: &[u8], value: &[u8]) -> Option<Vec<ArrayRef>> {
        let group: Group =
            postcard::from_bytes(value).ok().filter(|group: &Group| group.0.len() == self.empty.0.len())?;
        let fired = Fired {
            positions: vec![Position::default()],
            ends: vec![namespace],
            keys: vec![Key::from(key)],
            groups: vec![group],
        };
        Some(self.output(fired, Arc::default()).ok()?.columns)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.state.namespaces().first().map(|end| self.assigner.over_at(*end))
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clock).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clock = postcard::from_bytes(saved)
            .map_err(|source| OperatorError::Saved { operator: self.named.name.to_string(), source })?;
        Ok(())
    }
}

/// Comparable bytes of an argument of a type that DISTINCT has no shorter identity for.
pub(super) fn opaque_rows(call: &AggregateCall, column: &Option<ArrayRef>) -> Option<arrow_row::Rows> {
    let column = column.as_ref().filter(|_| call.distinct)?;
    let field = arrow_row::SortField::new(column.data_type().clone());
    arrow_row::RowConverter::new(vec![field]).ok()?.convert_columns(std::slice::from_ref(column)).ok()
}
