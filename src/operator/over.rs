//! OVER: each row of the input with the values of functions over the rows of its key before it.
//!
//! Rows wait until the watermark passes their time; then they leave in order of time, key, arrival. As in Flink:
//!
//! - RANGE: rows of one time and key are peers and see each other; `n PRECEDING` reaches n ms back, both ends included.
//!   ROWS: each row sees those before it, ties in order of arrival. LAG looks back from the last of the peers. The edge
//!   functions (`edge.rs`) go row by row.
//! - Late with a bounded frame: time ≤ that of the last row that left for the key, or (RANGE) of the last time at which it
//!   was looked at to be forgotten; a row that is not late waits for the next step of the watermark. With an unbounded
//!   frame: time ≤ watermark. NULL keys are a key.
//!
//! Aggregates over bounded frames are folded anew from the frame's first row whenever that moves: no subtraction, so no
//! error adds up and one infinity does not stay for ever; a row costs as much as its frame is long.
//!
//! State. Namespace = event time, key = partition key: the rows that wait, or (RANGE) the time at which a silent key is
//! forgotten. Namespace [`KEYS`]: what is known of each key: the frame's rows, or the accumulators. So it is bounded by
//! the rows between watermark and newest row, and by the rows within the range; ROWS and unbounded frames also by the
//! number of keys. With `state_ttl` those forget a key that had no rows for so long; rows of it that wait then count as its
//! first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array};
use serde::{Deserialize, Serialize};

use super::accumulator::{Accumulator, Argument, finish};
use super::aggregation::opaque_rows;
use super::edge::{EdgeState, Given, Reading};
use super::retention::{EVENTS_FROM, Retention, Stamp};
use super::rows::{Parts, StoredRow, padded};
use super::{Chunk, Event, Mark, Named, Operator, OperatorError, Position, Sides, StreamClock, restored};
use crate::event::{EventTime, LogTime};
use crate::expr::row::RowKeys;
use crate::expr::{AggregateCall, Batch, DataType, EvalContext, RowErrors, eval::eval};
use crate::sql::plan::{Frame, OverCall, OverFunction, OverSpec};
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Entry`]: to be raised when it, or an accumulator's encoding, changes.
pub const VALUE_TYPE: &str = "over_entry/1";

/// Namespace of what is known of each key.
const KEYS: i64 = i64::MIN;

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// Rows of one time and key that wait, in order of arrival; arguments stand behind the input's columns.
    Waiting(Vec<StoredRow>),
    Known(Known),
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

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Time of the last row that left, or of a later timer.
    last: EventTime,
    /// When the key is forgotten if nothing comes (RANGE with a bound).
    forget_at: EventTime,
    /// Time and arguments of the rows that later frames reach back to (bounded frames).
    frame: VecDeque<(EventTime, StoredRow)>,
    /// One per call (unbounded frames).
    calls: Vec<CallState>,
}

/// What a call knows of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum CallState {
    Aggregate(Accumulator),
    /// The last values, at most offset + 1.
    Lag(VecDeque<StoredRow>),
    Edge(EdgeState),
    Rank {
        rows: i64,
        /// Different times.
        times: i64,
    },
}

/// A row that left its wait.
struct Due {
    position: Position,
    time: EventTime,
    key: Key,
    row: StoredRow,
}

/// `f(x) OVER (PARTITION BY … ORDER BY time …)`.
pub struct Over {
    named: Named,
    spec: OverSpec,
    /// Columns of the input.
    width: usize,
    keys: RowKeys,
    /// Input columns, then all arguments.
    rows: RowKeys,
    /// All arguments.
    arguments: RowKeys,
    /// The first argument of each call that compares or keeps values.
    values: Vec<Option<RowKeys>>,
    fresh: Known,
    empty: Vec<ArrayRef>,
    clock: StreamClock,
    retention: Retention,
    state: KeyedState<Entry>,
}

impl Over {
    /// OVER with these calls; `empty` are the output's columns without rows.
    ///
    /// # Errors
    /// A type has no order (the planner refuses such columns).
    pub fn new(
        named: Named,
        spec: OverSpec,
        empty: Vec<ArrayRef>,
        state: KeyedState<Entry>,
    ) -> Result<Over, OperatorError> {
        let types = |exprs: &mut dyn Iterator<Item = &crate::expr::build::Expr>| -> Vec<DataType> {
            exprs.map(|expr| expr.data_type.clone()).collect()
        };
        let arguments = types(&mut spec.calls.iter().flat_map(|call| &call.args));
        let mut stored: Vec<DataType> = named.input.iter().map(|field| field.data_type.clone()).collect();
        let width = stored.len();
        stored.extend(arguments.iter().cloned());
        let values = spec
            .calls
            .iter()
            .map(|call| match (&call.function, call.args.first()) {
                (OverFunction::Lag { .. } | OverFunction::Changed, Some(value)) => {
                    RowKeys::new(std::slice::from_ref(&value.data_type)).map(Some)
                }
                _ => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        let fresh = |call: &OverCall| match (&call.function, EdgeState::new(&call.function)) {
            (OverFunction::Aggregate(aggregate), _) => CallState::Aggregate(Accumulator::new(aggregate)),
            (OverFunction::Rank { .. }, _) => CallState::Rank { rows: 0, times: 0 },
            (_, Some(edge)) => CallState::Edge(edge),
            _ => CallState::Lag(VecDeque::new()),
        };
        let calls = if spec.frame.is_bounded() { Vec::new() } else { spec.calls.iter().map(fresh).collect() };
        Ok(Over {
            width,
            keys: RowKeys::new(&types(&mut spec.keys.iter()))?,
            rows: RowKeys::new(&stored)?,
            arguments: RowKeys::new(&arguments)?,
            values,
            fresh: Known { last: EventTime::MIN, forget_at: EventTime::MIN, frame: VecDeque::new(), calls },
            empty,
            clock: StreamClock::default(),
            retention: Retention::default(),
            named,
            spec,
            state,
        })
    }

    /// The same with a `state_ttl`, which a RANGE with a bound has no use for.
    #[must_use]
    pub fn retaining(self, retention: Retention) -> Over {
        if self.spec.frame.forgets() { self } else { Over { retention, ..self } }
    }

    fn is_late(&self, time: EventTime, key: &[u8]) -> Result<bool, OperatorError> {
        if !self.spec.frame.is_bounded() {
            return Ok(time <= self.clock.watermark);
        }
        Ok(match self.state.get(KEYS, key)?.as_deref() {
            Some(Entry::Known(known)) => time <= known.last,
            _ => false,
        })
    }

    /// Frees the rows that a mark's watermark has passed.
    fn advance(&mut self, mark: &Mark, due: &mut Vec<Due>, parts: &mut Parts) -> Result<(), OperatorError> {
        let advances = mark.clock.watermark > self.clock.watermark;
        self.clock = mark.clock;
        if !advances {
            return Ok(());
        }
        while let Some(time) = self.next_timer().filter(|time| *time <= self.clock.watermark) {
            let entries: Vec<(Key, Entry)> = self.state.take_namespace(time).collect::<Result<_, _>>()?;
            for (key, entry) in entries {
                if let Entry::Waiting(rows) = entry {
                    self.free(mark.position, time, key, rows, due, parts)?;
                }
            }
        }
        Ok(())
    }

    fn free(
        &mut self,
        position: Position,
        time: EventTime,
        key: Key,
        rows: Vec<StoredRow>,
        due: &mut Vec<Due>,
        parts: &mut Parts,
    ) -> Result<(), OperatorError> {
        let fresh = &self.fresh;
        let mut forget = false;
        if let Entry::Known(known) = self.state.entry(KEYS, &key, || Entry::Known(fresh.clone()))? {
            // Also where nothing but a timer that no longer counts was due, as in Flink.
            known.last = time;
            forget = self.spec.frame.forgets() && known.forget_at <= time;
        }
        self.retention.used(&mut self.state, &key)?;
        due.extend(rows.into_iter().map(|row| Due { position, time, key: key.clone(), row }));
        if forget {
            // What left already still needs the key.
            self.flush(due, parts)?;
            self.state.remove(KEYS, &key);
        }
        Ok(())
    }

    /// Takes a row that is not late, `row` of the chunk that was encoded last.
    fn take(&mut self, row: usize, time: EventTime) -> Result<(), OperatorError> {
        let key = self.keys.row(row);
        if let Frame::Range { preceding_ms: Some(reach_ms) } = self.spec.frame
            && let Entry::Known(known) = self.state.entry(KEYS, key, || Entry::Known(self.fresh.clone()))?
            && known.forget_at <= time.saturating_add(reach_ms)
        {
            // Half the reach more, so that a key that goes on is not looked at for each of its rows.
            let forget_at = time.saturating_add(reach_ms).saturating_add(reach_ms / 2).saturating_add(1);
            known.forget_at = forget_at;
            self.state.entry(forget_at, key, || Entry::Waiting(Vec::new()))?;
        }
        if let Entry::Waiting(rows) = self.state.entry(time, key, || Entry::Waiting(Vec::new()))? {
            rows.push(StoredRow::new(self.rows.row(row)));
        }
        self.retention.used(&mut self.state, key)?;
        Ok(())
    }

    /// Computes the calls for the rows that left, and appends them to the output.
    fn flush(&mut self, due: &mut Vec<Due>, parts: &mut Parts) -> Result<(), OperatorError> {
        if due.is_empty() {
            return Ok(());
        }
        let due = std::mem::take(due);
        let mut columns = self.rows.decode(due.iter().map(|due| &*due.row.0))?;
        let arguments = columns.split_off(self.width.min(columns.len()));
        let mut by_key: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        for (index, due) in due.iter().enumerate() {
            by_key.entry(&due.key).or_default().push(index);
        }
        let results = match self.spec.frame.is_bounded() {
            true => self.bounded(&due, &by_key, &arguments)?,
            false => self.unbounded(&due, &by_key, &arguments)?,
        };
        columns.extend(results);
        parts.push(due.iter().map(|due| due.position), columns);
        Ok(())
    }

    fn bounded(
        &mut self,
        due: &[Due],
        by_key: &BTreeMap<&[u8], Vec<usize>>,
        arguments: &[ArrayRef],
    ) -> Result<Vec<ArrayRef>, OperatorError> {
        self.arguments.encode(arguments, due.len())?;
        let mut results: Vec<Vec<Option<Accumulator>>> =
            self.spec.calls.iter().map(|_| vec![None; due.len()]).collect();
        for (key, indices) in by_key {
            let fresh = &self.fresh;
            let Entry::Known(known) = self.state.entry(KEYS, key, || Entry::Known(fresh.clone()))? else { continue };
            let kept = known.frame.len();
            for index in indices {
                if let Some(due) = due.get(*index) {
                    known.frame.push_back((due.time, StoredRow::new(self.arguments.row(*index))));
                }
            }
            // The frame's rows of before, then the new ones: one place for each.
            let places: Vec<EventTime> = known.frame.iter().map(|(time, _)| *time).collect();
            let columns = self.arguments.decode(known.frame.iter().map(|(_, row)| &*row.0))?;
            let columns: Vec<Option<&ArrayRef>> = first_arguments(&self.spec.calls, &columns);
            let views = views(&self.spec.calls, &columns);
            let mut next = kept;
            let (mut folded, mut folded_from, mut folded_to) = (Vec::new(), usize::MAX, 0);
            while let Some(time) = places.get(next) {
                let end = match self.spec.frame {
                    Frame::Range { .. } => places.partition_point(|place| place <= time),
                    Frame::Rows { .. } => next + 1,
                };
                let start = match self.spec.frame {
                    Frame::Range { preceding_ms } => {
                        let from = time.saturating_sub(preceding_ms.unwrap_or(i64::MAX));
                        places.partition_point(|place| *place < from)
                    }
                    Frame::Rows { preceding } => {
                        (next + 1).saturating_sub(preceding.unwrap_or(usize::MAX).saturating_add(1))
                    }
                };
                if start != folded_from {
                    folded = self.spec.calls.iter().map(accumulator).collect();
                    (folded_from, folded_to) = (start, start);
                }
                for (accumulator, view) in folded.iter_mut().zip(&views) {
                    fold(accumulator, view, folded_to..end);
                }
                folded_to = end;
                for place in next..end {
                    let Some(index) = place.checked_sub(kept).and_then(|at| indices.get(at)) else { continue };
                    for (results, accumulator) in results.iter_mut().zip(&folded) {
                        if let Some(slot) = results.get_mut(*index) {
                            slot.clone_from(accumulator);
                        }
                    }
                }
                next = end;
            }
            let last = places.last().copied().unwrap_or(EventTime::MIN);
            match self.spec.frame {
                Frame::Range { preceding_ms } => {
                    let from = last.saturating_sub(preceding_ms.unwrap_or(i64::MAX));
                    known.frame.drain(..places.partition_point(|place| *place < from));
                }
                Frame::Rows { preceding } => {
                    let more = known.frame.len().saturating_sub(preceding.unwrap_or(usize::MAX));
                    known.frame.drain(..more);
                }
            }
        }
        let calls = self.spec.calls.iter().filter_map(aggregate);
        Ok(calls.zip(&results).map(|(call, results)| finish(call, results.iter().map(Option::as_ref))).collect())
    }

    fn unbounded(
        &mut self,
        due: &[Due],
        by_key: &BTreeMap<&[u8], Vec<usize>>,
        arguments: &[ArrayRef],
    ) -> Result<Vec<ArrayRef>, OperatorError> {
        let mut results = Vec::new();
        let mut first = 0;
        for (call_index, call) in self.spec.calls.iter().enumerate() {
            let own = arguments.get(first..first + call.args.len()).unwrap_or_default();
            first += call.args.len();
            let mut column = Column::new(&call.function, due.len());
            let mut values = self.values.get_mut(call_index).and_then(Option::as_mut);
            let (stored, defaults) = match (&mut values, own.first()) {
                (Some(keys), Some(value)) => {
                    let stored = encoded(keys, value)?;
                    let defaults = own.get(1).map_or(Ok(Vec::new()), |default| encoded(keys, default))?;
                    (stored, defaults)
                }
                _ => (Vec::new(), Vec::new()),
            };
            let readings = Readings::new(call, own);
            let view = Argument::new(own.first(), call.args.first().map(|expr| &expr.data_type));
            let opaque = match (&call.function, own.first()) {
                (OverFunction::Aggregate(aggregate), Some(column)) => opaque_rows(aggregate, &Some(Arc::clone(column))),
                _ => None,
            };
            let view = match (view, &opaque) {
                (Argument::Opaque(column, _), Some(rows)) => Argument::Opaque(column, Some(rows)),
                (view, _) => view,
            };
            for (key, indices) in by_key {
                let fresh = &self.fresh;
                let Entry::Known(known) = self.state.entry(KEYS, key, || Entry::Known(fresh.clone()))? else {
                    continue;
                };
                let Some(state) = known.calls.get_mut(call_index) else { continue };
                let mut rest = indices.as_slice();
                while let Some(time) = rest.first().and_then(|index| due.get(*index)).map(|due| due.time) {
                    let peers = match self.spec.frame {
                        Frame::Rows { .. } => 1,
                        Frame::Range { .. } => {
                            rest.iter().take_while(|index| due.get(**index).is_some_and(|due| due.time == time)).count()
                        }
                    };
                    let (group, more) = rest.split_at(peers.min(rest.len()));
                    rest = more;
                    match state {
                        CallState::Aggregate(accumulator) => {
                            for index in group {
                                if !view.is_null(*index) {
                                    let position = due.get(*index).map(|due| due.position).unwrap_or_default();
                                    accumulator.update(&view, *index, position);
                                }
                            }
                            group.iter().for_each(|index| column.aggregate(*index, accumulator));
                        }
                        CallState::Lag(last) => {
                            let OverFunction::Lag { offset } = call.function else { continue };
                            for index in group {
                                last.extend(stored.get(*index).cloned());
                                if last.len() > offset + 1 {
                                    last.pop_front();
                                }
                            }
                            let default = group.last().and_then(|index| defaults.get(*index));
                            let value = if last.len() == offset + 1 { last.front() } else { default };
                            group.iter().for_each(|index| column.value(*index, value));
                        }
                        CallState::Rank { rows, times } => {
                            *times = times.saturating_add(1);
                            let dense = call.function == OverFunction::Rank { dense: true };
                            let rank = if dense { *times } else { rows.saturating_add(1) };
                            *rows = rows.saturating_add(i64::try_from(group.len()).unwrap_or(i64::MAX));
                            group.iter().for_each(|index| column.number(*index, rank));
                        }
                        CallState::Edge(state) => {
                            for index in group {
                                let bytes = stored.get(*index).map_or(&[][..], |row| &row.0);
                                column.edge(*index, state.next(&readings.row(*index, time, bytes)));
                            }
                        }
                    }
                }
            }
            results.push(column.finish(call, values.map(|keys| &*keys))?);
        }
        Ok(results)
    }
}

/// The values of one call, one per row.
enum Column {
    Aggregates(Vec<Option<Accumulator>>),
    Values(Vec<Option<StoredRow>>),
    Numbers(Vec<i64>),
    Booleans(Vec<bool>),
    Doubles(Vec<Option<f64>>),
}

impl Column {
    fn new(function: &OverFunction, rows: usize) -> Column {
        match function {
            OverFunction::Aggregate(_) => Column::Aggregates(vec![None; rows]),
            OverFunction::Lag { .. } => Column::Values(vec![None; rows]),
            OverFunction::Rank { .. } => Column::Numbers(vec![0; rows]),
            OverFunction::Changed | OverFunction::Deadband | OverFunction::Hysteresis => {
                Column::Booleans(vec![false; rows])
            }
            OverFunction::Ewma | OverFunction::Rate => Column::Doubles(vec![None; rows]),
        }
    }

    fn aggregate(&mut self, row: usize, accumulator: &Accumulator) {
        if let Column::Aggregates(list) = self
            && let Some(slot) = list.get_mut(row)
        {
            *slot = Some(accumulator.clone());
        }
    }

    fn value(&mut self, row: usize, value: Option<&StoredRow>) {
        if let Column::Values(list) = self
            && let Some(slot) = list.get_mut(row)
        {
            *slot = value.cloned();
        }
    }

    fn number(&mut self, row: usize, number: i64) {
        if let Column::Numbers(list) = self
            && let Some(slot) = list.get_mut(row)
        {
            *slot = number;
        }
    }

    fn edge(&mut self, row: usize, given: Given) {
        match (self, given) {
            (Column::Booleans(list), Given::Boolean(value)) => {
                if let Some(slot) = list.get_mut(row) {
                    *slot = value;
                }
            }
            (Column::Doubles(list), Given::Double(value)) => {
                if let Some(slot) = list.get_mut(row) {
                    *slot = value;
                }
            }
            _ => {}
        }
    }

    fn finish(self, call: &OverCall, keys: Option<&RowKeys>) -> Result<ArrayRef, OperatorError> {
        Ok(match (self, &call.function, keys) {
            (Column::Aggregates(list), OverFunction::Aggregate(call), _) => {
                finish(call, list.iter().map(Option::as_ref))
            }
            (Column::Values(list), _, Some(keys)) => nullable(keys, &list, &call.data_type)?,
            (Column::Numbers(list), ..) => Arc::new(Int64Array::from(list)),
            (Column::Booleans(list), ..) => Arc::new(BooleanArray::from(list)),
            (Column::Doubles(list), ..) => Arc::new(Float64Array::from(list)),
            (Column::Aggregates(list), ..) => arrow_array::new_null_array(&call.data_type.arrow(), list.len()),
            (Column::Values(list), ..) => arrow_array::new_null_array(&call.data_type.arrow(), list.len()),
        })
    }
}

/// Values of one column from their bytes; NULL where there are none.
fn nullable(keys: &RowKeys, list: &[Option<StoredRow>], data_type: &DataType) -> Result<ArrayRef, OperatorError> {
    let found = keys.decode(list.iter().flatten().map(|row| &*row.0))?;
    let column = padded(&found, [data_type], list.iter().map(Option::is_some))?.pop();
    Ok(column.unwrap_or_else(|| arrow_array::new_null_array(&data_type.arrow(), list.len())))
}

/// The values of a column as bytes.
fn encoded(keys: &mut RowKeys, column: &ArrayRef) -> Result<Vec<StoredRow>, OperatorError> {
    keys.encode(std::slice::from_ref(column), column.len())?;
    Ok((0..column.len()).map(|row| StoredRow::new(keys.row(row))).collect())
}

/// The arguments of an edge function.
struct Readings<'a> {
    numbers: [Option<&'a Float64Array>; 3],
    tau: Option<&'a Int64Array>,
}

impl<'a> Readings<'a> {
    fn new(call: &OverCall, own: &'a [ArrayRef]) -> Readings<'a> {
        let number = |index: usize| own.get(index).and_then(|column| column.as_primitive_opt::<Float64Type>());
        let tau = match call.function {
            OverFunction::Ewma => own.get(1).and_then(|column| column.as_primitive_opt::<Int64Type>()),
            _ => None,
        };
        Readings { numbers: [number(0), number(1), number(2)], tau }
    }

    fn row<'b>(&self, row: usize, time: EventTime, bytes: &'b [u8]) -> Reading<'b> {
        let number = |column: Option<&Float64Array>| {
            column.filter(|column| row < column.len() && column.is_valid(row)).map(|column| column.value(row))
        };
        let tau = self.tau.filter(|column| row < column.len() && column.is_valid(row));
        Reading { time, numbers: self.numbers.map(number), tau_ms: tau.map(|column| column.value(row)), bytes }
    }
}

fn aggregate(call: &OverCall) -> Option<&AggregateCall> {
    match &call.function {
        OverFunction::Aggregate(aggregate) => Some(aggregate.as_ref()),
        _ => None,
    }
}

fn accumulator(call: &OverCall) -> Option<Accumulator> {
    aggregate(call).map(Accumulator::new)
}

/// The first argument of each call, of the columns of all arguments.
fn first_arguments<'a>(calls: &[OverCall], columns: &'a [ArrayRef]) -> Vec<Option<&'a ArrayRef>> {
    let mut first = 0;
    calls
        .iter()
        .map(|call| {
            let own = if call.args.is_empty() { None } else { columns.get(first) };
            first += call.args.len();
            own
        })
        .collect()
}

/// The arguments of aggregates as accumulators take them, with the bytes that tell values of other types apart.
fn views<'a>(calls: &[OverCall], columns: &[Option<&'a ArrayRef>]) -> Vec<View<'a>> {
    calls
        .iter()
        .zip(columns)
        .map(|(call, column)| View {
            column: *column,
            data_type: call.args.first().map(|expr| expr.data_type.clone()),
            opaque: aggregate(call)
                .zip(*column)
                .and_then(|(call, column)| opaque_rows(call, &Some(Arc::clone(column)))),
        })
        .collect()
}

struct View<'a> {
    column: Option<&'a ArrayRef>,
    data_type: Option<DataType>,
    opaque: Option<arrow_row::Rows>,
}

fn fold(accumulator: &mut Option<Accumulator>, view: &View<'_>, rows: std::ops::Range<usize>) {
    let Some(accumulator) = accumulator else { return };
    let argument = match (Argument::new(view.column, view.data_type.as_ref()), &view.opaque) {
        (Argument::Opaque(column, _), Some(rows)) => Argument::Opaque(column, Some(rows)),
        (argument, _) => argument,
    };
    for row in rows {
        if !argument.is_null(row) {
            accumulator.update(&argument, row, Position::row(row as u64, 0));
        }
    }
}

impl Operator for Over {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            let keys: Vec<ArrayRef> = self.spec.keys.iter().map(|key| eval(key, &batch, context, errors)).collect();
            let mut stored = chunk.columns.clone();
            for argument in self.spec.calls.iter().flat_map(|call| &call.args) {
                stored.push(eval(argument, &batch, context, errors));
            }
            (keys, stored)
        };
        let (kept, (keys, stored)) = input.evaluated(&self.named, sides, evaluate);
        let input = &kept;
        self.keys.encode(&keys, input.rows())?;
        self.rows.encode(&stored, input.rows())?;
        let mut parts = Parts::default();
        let mut due = Vec::new();
        for event in input.timeline(self.spec.time_column) {
            let (row, position, time) = match event {
                Event::Mark(mark) => {
                    self.advance(mark, &mut due, &mut parts)?;
                    continue;
                }
                Event::Row(row, position, time) => (row, position, time),
            };
            let time = time.max(EVENTS_FROM);
            if self.is_late(time, self.keys.row(row))? {
                sides.late.push(&self.named, (&input.columns, row), position, time, self.clock.watermark);
                continue;
            }
            self.take(row, time)?;
        }
        self.flush(&mut due, &mut parts)?;
        parts.into_chunk(&self.empty, Arc::clone(&input.marks))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::StringArray;
    use jiff::tz::TimeZone;

    use super::super::{Mark, event_times, instants};
    use super::*;
    use crate::expr::Field;
    use crate::expr::aggregate::AggregateKind;
    use crate::expr::build::{self, Expr, Value};

    /// Time, key, value.
    type Row = (i64, Option<&'static str>, Option<i64>);
    /// Time, value, result.
    type Out = (i64, Option<i64>, Option<i64>);

    fn over(frame: Frame, function: OverFunction, args: Vec<Expr>) -> Over {
        let fields = vec![
            Field::new("ts", DataType::TimestampLtz(3)),
            Field::new("k", DataType::String),
            Field::new("x", DataType::BigInt),
        ];
        let render: crate::operator::RowText = Arc::new(|_, columns, row| format!("{:?}", columns[2].slice(row, 1)));
        let named = Named { name: "q/over/0".into(), input: Arc::new(fields.clone()), render };
        let keys = vec![build::column(1, DataType::String)];
        let calls = vec![OverCall { function, args, data_type: DataType::BigInt }];
        let mut empty: Vec<ArrayRef> =
            fields.iter().map(|field| arrow_array::new_empty_array(&field.data_type.arrow())).collect();
        empty.push(arrow_array::new_empty_array(&DataType::BigInt.arrow()));
        let spec = OverSpec { time_column: 0, keys, frame, calls };
        Over::new(named, spec, empty, KeyedState::empty(1)).expect("types with an order")
    }

    fn sum(frame: Frame) -> Over {
        let x = build::column(2, DataType::BigInt);
        let call = AggregateCall::new(AggregateKind::Sum, vec![x.clone()], None, false, None).expect("a sum");
        over(frame, OverFunction::Aggregate(Box::new(call)), vec![x])
    }

    /// Runs rows, each followed by the watermark in its second part, in batches; gives (time, x, result), and the number
    /// of late rows.
    fn run(over: &mut Over, rows: &[(Row, i64)], batch: usize) -> (Vec<Out>, usize) {
        let (mut out, mut sides) = (Vec::new(), Sides::default());
        let context = EvalContext { time_zone: TimeZone::UTC };
        for (number, rows) in rows.chunks(batch).enumerate() {
            let at = |row: usize| Position::row((number * batch + row) as u64, 0);
            let columns: Vec<ArrayRef> = vec![
                Arc::new(instants(rows.iter().map(|((time, ..), _)| time * 1000))),
                Arc::new(rows.iter().map(|((_, key, _), _)| *key).collect::<StringArray>()),
                Arc::new(rows.iter().map(|((_, _, x), _)| *x).collect::<Int64Array>()),
            ];
            let clock = |watermark| StreamClock { watermark, idle: false, ended: false };
            let marks = rows.iter().enumerate();
            let marks = marks.map(|(row, (_, w))| Mark { position: at(row).mark(), clock: clock(*w) }).collect();
            let positions = Arc::new((0..rows.len()).map(at).collect());
            let chunk = Chunk { columns, positions, marks: Arc::new(marks) };
            let chunk = over.process(&[chunk], &context, &mut sides).expect("runs");
            let times: Vec<_> = event_times(&chunk.columns[0]).map(Option::unwrap_or_default).collect();
            let numbers = |column: usize| -> Vec<Option<i64>> {
                chunk.columns[column].as_primitive::<Int64Type>().iter().collect()
            };
            let results = times.into_iter().zip(numbers(2)).zip(numbers(3));
            out.extend(results.map(|((time, x), result)| (time, x, result)));
        }
        (out, sides.late.positions.len())
    }

    fn agrees(make: &dyn Fn() -> Over, rows: &[(Row, i64)], expected: &[Out], late: usize) {
        for batch in [1, 2, 100] {
            assert_eq!(run(&mut make(), rows, batch), (expected.to_vec(), late), "batches of {batch}");
        }
    }

    const A: Option<&str> = Some("a");

    #[test]
    fn peers_see_each_other_in_a_range_and_not_in_rows() {
        let rows = [
            ((10, A, Some(1)), 0),
            ((20, A, Some(2)), 0),
            ((20, A, None), 0),
            ((20, None, Some(100)), 0),
            ((20, A, Some(4)), 20),
            ((31, A, Some(8)), 40),
        ];
        let n = |time, x, result| (time, Some(x), Some(result));
        agrees(
            &|| sum(Frame::Range { preceding_ms: Some(10) }),
            &rows,
            // NULL is a key of its own, and the first.
            &[n(10, 1, 1), n(20, 100, 100), n(20, 2, 7), (20, None, Some(7)), n(20, 4, 7), n(31, 8, 8)],
            0,
        );
        agrees(
            &|| sum(Frame::Rows { preceding: Some(1) }),
            &rows,
            &[n(10, 1, 1), n(20, 100, 100), n(20, 2, 3), (20, None, Some(2)), n(20, 4, 4), n(31, 8, 12)],
            0,
        );
        agrees(
            &|| sum(Frame::Rows { preceding: None }),
            &rows,
            &[n(10, 1, 1), n(20, 100, 100), n(20, 2, 3), (20, None, Some(3)), n(20, 4, 7), n(31, 8, 15)],
            0,
        );
    }

    #[test]
    fn a_bounded_frame_takes_what_the_key_has_not_passed() {
        // The row at 15 is behind the watermark, but not behind the last row that left for `b`.
        let rows = [
            ((10, Some("b"), Some(1)), 0),
            ((20, A, Some(2)), 20),
            ((15, Some("b"), Some(4)), 20),
            ((15, A, Some(8)), 20),
            ((30, A, Some(16)), 30),
        ];
        let n = |time, x, result| (time, Some(x), Some(result));
        agrees(
            &|| sum(Frame::Range { preceding_ms: Some(1000) }),
            &rows,
            &[n(10, 1, 1), n(20, 2, 2), n(15, 4, 5), n(30, 16, 18)],
            1,
        );
        agrees(&|| sum(Frame::Range { preceding_ms: None }), &rows, &[n(10, 1, 1), n(20, 2, 2), n(30, 16, 18)], 2);
    }

    /// As in Flink's `RowTimeRangeBoundedPrecedingFunction`, which plans the forgetting when a row comes, and takes every
    /// timer for the last time of the key.
    #[test]
    fn a_range_forgets_by_the_rows_that_came() {
        let n = |time, x, result| (time, Some(x), Some(result));
        let range = || sum(Frame::Range { preceding_ms: Some(10) });
        // The first row plans 26, the second replaces that by 36; yet at 26 the key is looked at, and 25 is late then.
        let rows = [
            ((10, A, Some(1)), 10),
            ((20, A, Some(2)), 27),
            ((25, A, Some(4)), 27),
            ((27, A, Some(8)), 28),
            ((60, A, Some(16)), 60),
        ];
        agrees(&range, &rows, &[n(10, 1, 1), n(20, 2, 3), n(27, 8, 10), n(60, 16, 16)], 1);
        // 20 comes before 10 and plans 36: the key is known until then, and 15 is late.
        let rows = [((20, A, Some(1)), 5), ((10, A, Some(2)), 30), ((15, A, Some(4)), 30), ((60, A, Some(8)), 60)];
        agrees(&range, &rows, &[n(10, 2, 2), n(20, 1, 3), n(60, 8, 8)], 1);
    }

    #[test]
    fn lag_looks_back_from_the_last_peer() {
        let make = || {
            let nine = build::literal(Value::Integer(9), DataType::BigInt);
            let args = vec![build::column(2, DataType::BigInt), nine];
            over(Frame::Range { preceding_ms: None }, OverFunction::Lag { offset: 1 }, args)
        };
        let rows = [((10, A, Some(1)), 10), ((20, A, None), 19), ((20, A, Some(3)), 20), ((30, A, Some(4)), 30)];
        let expected = [(10, Some(1), Some(9)), (20, None, None), (20, Some(3), None), (30, Some(4), Some(3))];
        agrees(&make, &rows, &expected, 0);
    }

    #[test]
    fn a_silent_key_is_forgotten_and_thirty_days_take_no_more_memory_than_one() {
        let mut over = sum(Frame::Range { preceding_ms: Some(10_000) });
        let mut largest = [0; 2];
        for day in 0..30_i64 {
            let rows: Vec<(Row, i64)> = (0..1000)
                .map(|i| {
                    let time = 1 + (day * 1000 + i) * 86_400;
                    ((time, Some(["a", "b", "c"][(i % 3) as usize]), Some(1)), time - 1)
                })
                .collect();
            let (_, late) = run(&mut over, &rows, 100);
            assert_eq!(late, 0);
            let bytes = over.state.memory_bytes();
            largest[usize::from(day > 0)] = largest[usize::from(day > 0)].max(bytes);
        }
        assert!(largest[1] <= largest[0] * 2, "{largest:?}");
        let (_, _) = run(&mut over, &[((i64::MAX / 4000, A, Some(1)), i64::MAX)], 1);
        let open: Vec<i64> = over.state.namespaces().iter().copied().collect();
        assert_eq!((open, over.state.take_namespace(KEYS).count()), (vec![KEYS], 0));
    }
}
