//! Windowed aggregation: one row per window and key when the watermark passes the window's end.
//!
//! State: namespace = the end of a slice on the wall clock (see `window.rs`), key = the grouping keys as comparable
//! bytes, value = one accumulator per aggregate. A window's result is its slices merged in order of time, those of a
//! hopping one from the last one back, as Flink's `HoppingSlicesIterable` has them, which LISTAGG shows; a slice goes
//! when the last window that contains it has fired, so the state is bounded by the windows that are open. A row is late
//! when the last window that it falls into is over, and goes to the query's late output; until then it counts in those
//! that have not fired. So rows counted + late rows + rows that failed = input rows.
//!
//! Of cumulating windows the slices that have fired are merged into the first one, so that each result costs two merges;
//! and what still comes for a slice that has fired goes there too, behind what is listed of it: as in Flink's
//! `CumulativeSliceAssigner` (`mergeSlices`) and `SliceSharedSyncStateWindowAggProcessor` (`sliceStateMergeTarget`).
//!
//! Which windows are still to fire follows from the open slices and the watermark, so only the watermark is saved.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::aggregation::{Aggregation, Group};
use super::fired::{Fired, Output};
use super::parts::{Emit, in_one_part};
use super::window::Assigner;
use super::{Chunk, Event, Named, Operator, OperatorError, Position, Preview, Sides, StreamClock, restored};
use crate::event::EventTime;
use crate::expr::build::Expr;
use crate::expr::{AggregateCall, EvalContext, Field};
use crate::sql::plan::{WindowKind, WindowProperty, WindowSpec};
use crate::state::{AHEAD, Checkpointed, KeyedState};

/// Name and version of the encoding of [`Group`]: to be raised when an accumulator's encoding changes.
pub const VALUE_TYPE: &str = "window_aggregate_group/2";

/// `GROUP BY window_start, window_end, key, …` over a window table function.
pub struct WindowAggregate {
    output: Output,
    hopping: bool,
    cumulating: bool,
    time_column: usize,
    clock: StreamClock,
    pending: Pending,
    state: KeyedState<Group>,
}

/// What the operator is made of, from the plan.
pub struct Spec {
    pub window: WindowSpec,
    pub keys: Vec<Expr>,
    pub properties: Vec<WindowProperty>,
    pub aggregates: Vec<AggregateCall>,
}

/// The windows that contain an open slice and are not over, by their ends. Where wall-clock times are skipped or happen
/// twice, windows are not over in the order of their ends.
#[derive(Default)]
struct Pending {
    ends: BTreeSet<i64>,
    timers: BTreeSet<(EventTime, i64)>,
}

impl Pending {
    /// Adds the windows of a slice. Those that contain a neighbour too are there already, or over.
    fn add(&mut self, slice: i64, open: &BTreeSet<i64>, assigner: &Assigner, watermark: EventTime) {
        let after = open.range(..slice).next_back().map(|before| assigner.last_end(*before));
        let until = open.range(slice.saturating_add(1)..).next();
        for end in assigner.ends_of(slice) {
            if after.is_some_and(|after| end <= after) {
                continue;
            }
            if until.is_some_and(|until| end >= *until) {
                break;
            }
            let over = assigner.over_at(end);
            if over > watermark {
                self.ends.insert(end);
                self.timers.insert((over, end));
            }
        }
    }

    /// The next window that is over at the watermark.
    fn due(&mut self, watermark: EventTime) -> Option<i64> {
        let (_, end) = self.timers.first().copied().filter(|(over, _)| *over <= watermark)?;
        self.timers.pop_first();
        self.ends.remove(&end);
        Some(end)
    }

    /// Whether a window that is to fire contains the slice.
    fn needs(&self, slice: i64, assigner: &Assigner) -> bool {
        self.ends.range(slice..=assigner.last_end(slice)).next().is_some()
    }
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
        let mut this = WindowAggregate {
            output: Output {
                aggregation: Aggregation::new(named, spec.keys, spec.aggregates)?,
                assigner: Assigner::new(&spec.window, &context.time_zone),
                properties: spec.properties,
            },
            hopping: matches!(spec.window.kind, WindowKind::Hop { .. }),
            cumulating: matches!(spec.window.kind, WindowKind::Cumulate { .. }),
            time_column: spec.window.time_column,
            clock: StreamClock::default(),
            pending: Pending::default(),
            state,
        };
        this.find_pending();
        Ok(this)
    }

    /// Finds the windows that are to fire from the open slices.
    fn find_pending(&mut self) {
        self.pending = Pending::default();
        let mut open = BTreeSet::new();
        for slice in self.state.namespaces() {
            self.pending.add(*slice, &open, &self.output.assigner, self.clock.watermark);
            open.insert(*slice);
        }
    }

    /// Frees every window that is over at the watermark, in order of time, then key. What is more than a part goes to
    /// `emit`, the rest stays in `fired`.
    fn fire(&mut self, position: Position, fired: &mut Fired, emit: Emit<'_>) -> Result<(), OperatorError> {
        while let Some(end) = self.pending.due(self.clock.watermark) {
            let WindowAggregate { output, pending, state, .. } = self;
            let first = output.assigner.first_slice(end);
            let window = (output.assigner.start_of(end), end);
            let mut slices: Vec<i64> = state.namespaces().range(first..=end).copied().collect();
            if let [slice] = slices.as_slice()
                && !pending.needs(*slice, &output.assigner)
            {
                for entry in state.take_namespace(*slice) {
                    let (key, group) = entry?;
                    fired.push(position, window, key, group);
                    output.emit_full(fired, emit)?;
                }
                continue;
            }
            // Only where wall-clock times are skipped is an earlier window still to fire.
            let compact = self.cumulating && slices != [first] && pending.ends.range(first..end).next().is_none();
            let keep = compact && pending.needs(end, &output.assigner);
            let take = |slice| compact || !pending.needs(slice, &output.assigner);
            let mut kept = Vec::new();
            if self.hopping {
                slices.reverse();
            }
            for entry in state.merged_entries(&slices, take, Group::append) {
                let (key, group) = entry?;
                if keep {
                    kept.push((key.clone(), group.clone()));
                }
                fired.push(position, window, key, group);
                output.emit_full(fired, emit)?;
            }
            for (key, group) in kept {
                state.entry(first, &key, || group)?;
            }
        }
        Ok(())
    }
}

impl Operator for WindowAggregate {
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
        let evaluated = self.output.aggregation.evaluate(input, context, sides)?;
        let arguments = self.output.aggregation.arguments(&evaluated);
        let input = &evaluated.input;
        let mut fired = Fired::default();
        // The slice of the row before and where it counts, if no mark came between: it is not late and has its windows.
        let mut open = None;
        // The groups of the rows before this one were looked at.
        let mut seen = 0;
        for event in input.timeline(self.time_column) {
            let (row, position, time) = match event {
                Event::Mark(mark) => {
                    open = None;
                    self.clock = mark.clock;
                    self.fire(mark.position, &mut fired, emit)?;
                    continue;
                }
                Event::Row(row, position, time) => (row, position, time),
            };
            let of = self.output.assigner.slice_of(time);
            let slice = match open {
                Some((known, slice)) if known == of => slice,
                _ => {
                    if self.output.assigner.over_at(self.output.assigner.last_end(of)) <= self.clock.watermark {
                        let time = self.output.assigner.event_time_of(time);
                        let named = &self.output.aggregation.named;
                        sides.late.push(named, (&input.columns, row), position, time, self.clock.watermark);
                        continue;
                    }
                    let mut slice = of;
                    if self.cumulating && self.output.assigner.over_at(slice) <= self.clock.watermark {
                        let first = self.output.assigner.first_slice(slice);
                        // Only where wall-clock times are skipped is an earlier window still to fire.
                        if self.pending.ends.range(first..slice).next().is_none() {
                            slice = first;
                        }
                    }
                    if !self.state.namespaces().contains(&slice) {
                        self.pending.add(slice, self.state.namespaces(), &self.output.assigner, self.clock.watermark);
                    }
                    open = Some((of, slice));
                    slice
                }
            };
            if row >= seen {
                seen = (row + AHEAD).min(input.rows());
                self.state.look_ahead(slice, (row..seen).map(|row| self.output.aggregation.key(row)));
            }
            let empty = self.output.aggregation.empty();
            arguments.fold(row, self.state.entry(slice, self.output.aggregation.key(row), || empty.clone())?);
        }
        self.output.chunk(fired, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn preview(&self, labels: &[Field], namespace: i64, key: &[u8], value: &[u8]) -> Option<Preview> {
        let window = (self.output.assigner.start_of(namespace), namespace);
        self.output.preview(labels, window, key, self.output.aggregation.decode_group(value)?)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.pending.timers.first().map(|(over, _)| *over)
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clock).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clock = restored(&self.output.aggregation.named.name, saved)?;
        self.find_pending();
        Ok(())
    }
}
