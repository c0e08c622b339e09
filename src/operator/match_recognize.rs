//! MATCH_RECOGNIZE: the rows of a key in order of time, matched against a pattern (`pattern.rs`).
//!
//! Rows wait until the watermark passes their time; then each goes through its key's runs, in order of time, key, the
//! rest of ORDER BY, arrival. A row is late when its time ≤ watermark. A match leaves at the row that lets it go, or, where
//! runs held it back that are too old now, at the watermark; MATCH_ROWTIME is that time, as in Flink. (At the end of all
//! input, when there is no such time, it is the one at which the last of those runs was too old.)
//!
//! A condition that fails on a row (a division by zero) does not hold, and a match of which an output fails does not
//! leave; the row, or the match's last one, goes to the errors. So does a match from which AFTER MATCH SKIP cannot go
//! on, where Flink's job fails.
//!
//! State. Namespace = event time, key = partition key: the rows that wait; or none, where a run will be too old.
//! Namespace [`KEYS`]: the runs of a key. Namespace [`ROWS`], key = partition key, number: the rows that a run holds, each
//! an entry of its own. A key without runs has no entries. So state is bounded by the rows between watermark and newest
//! row, and by those within WITHIN before the watermark.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, NullArray, new_null_array};
use arrow_buffer::BooleanBuffer;
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use serde::{Deserialize, Serialize};

use super::accumulator::{Accumulator, Argument, finish};
use super::aggregation::opaque_rows;
use super::pattern::{Automaton, Match, RowId, Run, Runs};
use super::rows::{Parts, StoredRow};
use super::{Chunk, Event, Mark, Named, Operator, OperatorError, Position, Sides, StreamClock, instants, restored};
use crate::event::{EventTime, WATERMARK_MAX};
use crate::expr::row::{KeyError, RowKeys};
use crate::expr::{AggregateCall, Batch, DataType, EvalContext, RowErrors, eval::eval, eval::eval_predicate};
use crate::sql::match_plan::{MatchSpec, Slot, SlotKind};
use crate::state::{Checkpointed, Key, KeyedState};

/// Name and version of the encoding of [`Entry`].
pub const VALUE_TYPE: &str = "match_entry/1";

/// Namespace of the runs of each key.
const KEYS: i64 = i64::MIN;
/// Namespace of the rows that runs hold.
const ROWS: i64 = KEYS + 1;

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// Rows of one time and key that wait, in order of arrival.
    Waiting(Vec<StoredRow>),
    Row(StoredRow),
    Known(Known),
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Number of the first row that is held.
    first: u64,
    /// Number of the next row.
    next: u64,
    runs: Runs,
}

/// `MATCH_RECOGNIZE (…)`.
pub struct MatchRecognize {
    named: Named,
    spec: MatchSpec,
    automaton: Automaton,
    /// For each variable, the columns of the row that its condition reads.
    reads: Vec<BTreeSet<usize>>,
    keys: RowKeys,
    rows: RowKeys,
    ties: RowKeys,
    empty: Vec<ArrayRef>,
    clock: StreamClock,
    state: KeyedState<Entry>,
}

/// The rows that a watermark frees, as columns.
struct Due {
    position: Position,
    columns: Vec<ArrayRef>,
    rows: Vec<StoredRow>,
    /// Of each variable whose condition reads the row alone: the rows on which it holds, and those on which it fails.
    alone: Vec<Option<(BooleanBuffer, BTreeMap<u32, String>)>>,
}

/// A key while its rows are matched.
struct Session {
    /// As it was stored.
    before: Option<Known>,
    known: Known,
    /// The rows held before, as far as they were needed: parts of columns, and where in them each row is.
    held: Vec<Vec<ArrayRef>>,
    held_at: BTreeMap<u64, (usize, usize)>,
    /// Index in [`Due`] of the rows since, from `before.next` on.
    fresh: Vec<usize>,
}

impl Session {
    fn held_from(&self) -> u64 {
        self.before.as_ref().map_or(0, |before| before.first)
    }

    fn fresh_from(&self) -> u64 {
        self.before.as_ref().map_or(0, |before| before.next)
    }
}

/// What matches have given so far: one array for each slot and match.
#[derive(Default)]
struct Given {
    slots: Vec<Vec<ArrayRef>>,
    /// The last row of each match, for messages.
    last_rows: Vec<Vec<ArrayRef>>,
}

impl MatchRecognize {
    /// MATCH_RECOGNIZE with this pattern; `empty` are the output's columns without rows.
    ///
    /// # Errors
    /// A type has no order (the planner refuses such columns).
    pub fn new(
        named: Named,
        spec: MatchSpec,
        empty: Vec<ArrayRef>,
        state: KeyedState<Entry>,
    ) -> Result<MatchRecognize, OperatorError> {
        let keys: Vec<DataType> = spec.keys.iter().map(|key| key.data_type.clone()).collect();
        let rows: Vec<DataType> = named.input.iter().map(|field| field.data_type.clone()).collect();
        let ties: Vec<_> =
            spec.ties.iter().map(|tie| (tie.expr.data_type.clone(), tie.descending, tie.nulls_first)).collect();
        let width = rows.len();
        let reads = spec.pattern.iter().map(|variable| {
            let columns = variable.condition.iter().flat_map(|condition| condition.expr.columns());
            columns.filter(|column| *column < width).collect()
        });
        Ok(MatchRecognize {
            automaton: Automaton::new(&spec.pattern, spec.skip, spec.within_ms),
            reads: reads.collect(),
            keys: RowKeys::new(&keys)?,
            rows: RowKeys::new(&rows)?,
            ties: RowKeys::ordered(&ties)?,
            empty,
            clock: StreamClock::default(),
            named,
            spec,
            state,
        })
    }

    /// Matches the rows that a mark's watermark has passed.
    fn advance(
        &mut self,
        mark: &Mark,
        context: &EvalContext,
        sides: &mut Sides,
        parts: &mut Parts,
    ) -> Result<(), OperatorError> {
        let advances = mark.clock.watermark > self.clock.watermark;
        self.clock = mark.clock;
        if !advances || self.next_timer().is_none_or(|time| time > self.clock.watermark) {
            return Ok(());
        }
        let mut groups: Vec<(EventTime, Key, Range<usize>)> = Vec::new();
        let mut rows = Vec::new();
        while let Some(time) = self.next_timer().filter(|time| *time <= self.clock.watermark) {
            for entry in self.state.take_namespace(time) {
                if let (key, Entry::Waiting(waiting)) = entry? {
                    let from = rows.len();
                    rows.extend(waiting);
                    groups.push((time, key, from..rows.len()));
                }
            }
        }
        let due = self.due(mark.position, rows, context)?;
        let ties: Vec<ArrayRef> = {
            let batch = Batch { columns: &due.columns, rows: due.rows.len() };
            self.spec.ties.iter().map(|tie| eval(&tie.expr, &batch, context, &mut RowErrors::default())).collect()
        };
        self.ties.encode(&ties, due.rows.len())?;
        let mut sessions: BTreeMap<Key, Session> = BTreeMap::new();
        let mut given = Given { slots: vec![Vec::new(); self.spec.slots.len()], last_rows: Vec::new() };
        for (time, key, range) in groups {
            let mut session = match sessions.remove(&key) {
                Some(session) => session,
                None => self.session(&key)?,
            };
            if !range.is_empty() {
                let matches = self.automaton.advance(&mut session.known.runs, time);
                self.give(&key, &mut session, matches, time, &due, (context, sides), &mut given)?;
            }
            let mut indices: Vec<usize> = range.collect();
            if !self.spec.ties.is_empty() {
                indices.sort_by(|a, b| self.ties.row(*a).cmp(self.ties.row(*b)));
            }
            for index in indices {
                self.row(&key, &mut session, (time, index), &due, (context, sides), &mut given)?;
            }
            sessions.insert(key, session);
        }
        for (key, mut session) in sessions {
            let open: Vec<RowId> = session.known.runs.open().collect();
            for found in self.automaton.advance(&mut session.known.runs, self.clock.watermark) {
                let held_by = open.iter().filter(|start| Some(**start) < found.run.start());
                let time = match self.clock.watermark {
                    WATERMARK_MAX => held_by.map(|start| start.time.saturating_add(self.spec.within_ms)).max(),
                    watermark => Some(watermark),
                };
                let time = time.unwrap_or(WATERMARK_MAX);
                self.give(&key, &mut session, vec![found], time, &due, (context, sides), &mut given)?;
            }
            self.store(&key, session, &due)?;
        }
        self.emit(given, mark.position, context, sides, parts)
    }

    fn due(&self, position: Position, rows: Vec<StoredRow>, context: &EvalContext) -> Result<Due, OperatorError> {
        let columns = self.rows.decode(rows.iter().map(|row| &*row.0))?;
        let batch = Batch { columns: &columns, rows: rows.len() };
        let alone = self.spec.pattern.iter().map(|variable| {
            let condition = variable.condition.as_ref().filter(|condition| condition.slots.is_empty())?;
            let mut errors = RowErrors::default();
            let holds = eval_predicate(&condition.expr, &batch, context, &mut errors);
            Some((holds, errors.list.into_iter().collect()))
        });
        let alone = alone.collect();
        Ok(Due { position, columns, rows, alone })
    }

    fn session(&self, key: &Key) -> Result<Session, OperatorError> {
        let before = match self.state.get(KEYS, key)?.map(Cow::into_owned) {
            Some(Entry::Known(known)) => Some(known),
            _ => None,
        };
        let known = before.clone().unwrap_or_else(|| Known { first: 0, next: 0, runs: self.automaton.runs() });
        Ok(Session { before, known, held: Vec::new(), held_at: BTreeMap::new(), fresh: Vec::new() })
    }

    /// Takes the next row of a key.
    fn row(
        &self,
        key: &Key,
        session: &mut Session,
        (time, index): (EventTime, usize),
        due: &Due,
        (context, sides): (&EvalContext, &mut Sides),
        given: &mut Given,
    ) -> Result<(), OperatorError> {
        let row = RowId { number: session.known.next, time };
        session.known.next += 1;
        let mut runs = std::mem::replace(&mut session.known.runs, self.automaton.runs());
        let mut failed: Option<String> = None;
        let result = self.automaton.take(&mut runs, row, |variable, run| {
            let (holds, reason) = self.holds(key, session, (variable, run), row, index, due, context)?;
            failed = failed.take().or(reason);
            Ok::<bool, OperatorError>(holds)
        });
        session.known.runs = runs;
        session.fresh.push(index);
        if let Some(reason) = failed {
            sides.errors.push(&self.named, due.position, &reason, self.named.row_text(&due.columns, index));
        }
        self.give(key, session, result?, time, due, (context, sides), given)
    }

    /// Whether the row at `index` is one of a variable's after a run; and why that cannot be said.
    #[expect(clippy::too_many_arguments, reason = "the row, the run, and what both are read from")]
    fn holds(
        &self,
        key: &Key,
        session: &mut Session,
        (variable, run): (usize, &Run),
        row: RowId,
        index: usize,
        due: &Due,
        context: &EvalContext,
    ) -> Result<(bool, Option<String>), OperatorError> {
        let Some(condition) = self.spec.pattern.get(variable).and_then(|variable| variable.condition.as_ref()) else {
            return Ok((true, None));
        };
        if let Some(Some((holds, errors))) = due.alone.get(variable) {
            let reason = u32::try_from(index).ok().and_then(|index| errors.get(&index)).cloned();
            return Ok((index < holds.len() && holds.value(index), reason));
        }
        let reads = self.reads.get(variable);
        let mut columns: Vec<ArrayRef> = due
            .columns
            .iter()
            .enumerate()
            .map(|(column, array)| match reads.is_some_and(|reads| reads.contains(&column)) {
                true => array.slice(index, 1),
                false => Arc::new(NullArray::new(1)),
            })
            .collect();
        let mut errors = RowErrors::default();
        for slot in &condition.slots {
            let current = Some((variable, index));
            columns.push(self.slot(key, session, slot, run, current, row.time, due, context, &mut errors)?);
        }
        let holds = match errors.list.is_empty() {
            true => eval_predicate(&condition.expr, &Batch { columns: &columns, rows: 1 }, context, &mut errors),
            false => BooleanBuffer::new_unset(1),
        };
        Ok((holds.value(0), errors.list.into_iter().next().map(|(_, reason)| reason)))
    }

    /// What a slot reads of a run, as an array of one value. `current`: the row that is looked at, as one of a variable's.
    #[expect(clippy::too_many_arguments, reason = "the run, the row behind it, and what both are read from")]
    fn slot(
        &self,
        key: &Key,
        session: &mut Session,
        slot: &Slot,
        run: &Run,
        current: Option<(usize, usize)>,
        time: EventTime,
        due: &Due,
        context: &EvalContext,
        errors: &mut RowErrors,
    ) -> Result<ArrayRef, OperatorError> {
        let numbers = run.rows(slot.variable);
        let own = |(variable, _): &(usize, usize)| slot.variable.is_none_or(|wanted| wanted == *variable);
        let current = current.filter(own).map(|(_, index)| index);
        match &slot.kind {
            SlotKind::Time => {
                let time = instants([time.saturating_mul(1000)]);
                let is_local = matches!(slot.data_type, DataType::TimestampLtz(_));
                Ok(Arc::new(time.with_timezone_opt(is_local.then_some("UTC"))))
            }
            SlotKind::Row { column, first, offset } => {
                let rows = numbers.end - numbers.start + u64::from(current.is_some());
                let offset = *offset as u64;
                let at = if *first { Some(offset) } else { rows.checked_sub(1 + offset) };
                let Some(number) = at.filter(|at| *at < rows).map(|at| numbers.start + at) else {
                    return Ok(new_null_array(&slot.data_type.arrow(), 1));
                };
                let only = if number < numbers.end { (number..number + 1, None) } else { (0..0, current) };
                self.column(key, session, *column, only, due)
            }
            SlotKind::Aggregate(call) => {
                let rows = (numbers.end - numbers.start) as usize + usize::from(current.is_some());
                let reads = call.argument.iter().flat_map(|argument| argument.columns()).collect::<BTreeSet<usize>>();
                let mut columns: Vec<ArrayRef> = Vec::new();
                for column in 0..due.columns.len() {
                    columns.push(match reads.contains(&column) {
                        true => self.column(key, session, column, (numbers.clone(), current), due)?,
                        false => Arc::new(NullArray::new(rows)),
                    });
                }
                let batch = Batch { columns: &columns, rows };
                let argument = call.argument.as_ref().map(|argument| eval(argument, &batch, context, errors));
                Ok(aggregate(call, argument.as_ref(), rows))
            }
        }
    }

    /// A column of rows by their numbers, and then of the row that is looked at.
    fn column(
        &self,
        key: &Key,
        session: &mut Session,
        column: usize,
        (numbers, current): (Range<u64>, Option<usize>),
        due: &Due,
    ) -> Result<ArrayRef, OperatorError> {
        let fresh_from = session.fresh_from();
        let held = numbers.start..numbers.end.min(fresh_from);
        let missing: Vec<u64> = held.filter(|number| !session.held_at.contains_key(number)).collect();
        if !missing.is_empty() {
            let mut rows = Vec::new();
            for (row, number) in missing.into_iter().enumerate() {
                match self.state.get(ROWS, &numbered(key, number))?.as_deref() {
                    Some(Entry::Row(stored)) => rows.push(stored.clone()),
                    _ => return Err(KeyError::Length { rows: 1, found: 0 }.into()),
                }
                session.held_at.insert(number, (session.held.len(), row));
            }
            session.held.push(self.rows.decode(rows.iter().map(|row| &*row.0))?);
        }
        let parts = session.held.iter().chain(std::iter::once(&due.columns));
        let arrays: Vec<&ArrayRef> = parts.filter_map(|columns| columns.get(column)).collect();
        let in_due = |index: usize| (session.held.len(), index);
        let picks = numbers.filter_map(|number| match number.checked_sub(fresh_from) {
            None => session.held_at.get(&number).copied(),
            Some(since) => session.fresh.get(since as usize).map(|index| in_due(*index)),
        });
        let picks: Vec<(usize, usize)> = picks.chain(current.map(in_due)).collect();
        if let [(part, row)] = picks[..]
            && let Some(array) = arrays.get(part)
        {
            return Ok(array.slice(row, 1));
        }
        let arrays: Vec<&dyn Array> = arrays.into_iter().map(AsRef::as_ref).collect();
        Ok(interleave(&arrays, &picks).map_err(KeyError::from)?)
    }

    /// Reads what the outputs need of matches.
    #[expect(clippy::too_many_arguments, reason = "the matches, and what they are read from")]
    fn give(
        &self,
        key: &Key,
        session: &mut Session,
        matches: Vec<Match>,
        time: EventTime,
        due: &Due,
        (context, sides): (&EvalContext, &mut Sides),
        given: &mut Given,
    ) -> Result<(), OperatorError> {
        for Match { run, refused } in matches {
            let last = run.rows(None).end.saturating_sub(1);
            let mut errors = RowErrors::default();
            let mut slots = Vec::new();
            for slot in &self.spec.slots {
                slots.push(self.slot(key, session, slot, &run, None, time, due, context, &mut errors)?);
            }
            let mut row = Vec::new();
            for column in 0..due.columns.len() {
                row.push(self.column(key, session, column, (last..last + 1, None), due)?);
            }
            let reason = refused.map(str::to_owned).or_else(|| errors.list.into_iter().next().map(|(_, why)| why));
            if let Some(reason) = reason {
                sides.errors.push(&self.named, due.position, &reason, self.named.row_text(&row, 0));
                continue;
            }
            given.slots.iter_mut().zip(slots).for_each(|(list, slot)| list.push(slot));
            given.last_rows.push(row);
        }
        Ok(())
    }

    /// Writes back what is known of a key.
    fn store(&mut self, key: &Key, session: Session, due: &Due) -> Result<(), OperatorError> {
        let (held_from, fresh_from) = (session.held_from(), session.fresh_from());
        let Session { before, mut known, held: _, held_at: _, fresh } = session;
        known.first = known.runs.starts().map(|start| start.number).min().unwrap_or(known.next);
        for number in held_from..known.first.min(fresh_from) {
            self.state.remove(ROWS, &numbered(key, number));
        }
        for (number, index) in (fresh_from..known.next).zip(fresh) {
            if let Some(row) = due.rows.get(index).filter(|_| number >= known.first) {
                self.put(ROWS, &numbered(key, number), Entry::Row(row.clone()))?;
            }
        }
        let begun: BTreeSet<RowId> = known.runs.starts().filter(|start| start.number >= fresh_from).collect();
        for start in begun {
            let too_old = start.time.saturating_add(self.spec.within_ms);
            self.state.entry(too_old, key, || Entry::Waiting(Vec::new()))?;
        }
        if known.runs.is_empty() {
            if before.is_some() {
                self.state.remove(KEYS, key);
            }
        } else if before.as_ref() != Some(&known) {
            self.put(KEYS, key, Entry::Known(known))?;
        }
        Ok(())
    }

    fn put(&mut self, namespace: i64, key: &[u8], entry: Entry) -> Result<(), OperatorError> {
        *self.state.entry(namespace, key, || Entry::Waiting(Vec::new()))? = entry;
        Ok(())
    }

    /// Computes the outputs of matches.
    fn emit(
        &self,
        given: Given,
        position: Position,
        context: &EvalContext,
        sides: &mut Sides,
        parts: &mut Parts,
    ) -> Result<(), OperatorError> {
        let rows = given.last_rows.len();
        if rows == 0 {
            return Ok(());
        }
        let columns = given.slots.iter().map(|list| {
            let arrays: Vec<&dyn Array> = list.iter().map(AsRef::as_ref).collect();
            Ok(concat(&arrays).map_err(KeyError::from)?)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, OperatorError>>()?;
        let evaluate = |columns: &[ArrayRef], rows: usize, errors: &mut RowErrors| -> Vec<ArrayRef> {
            let batch = Batch { columns, rows };
            self.spec.outputs.iter().map(|output| eval(output, &batch, context, errors)).collect()
        };
        let mut errors = RowErrors::default();
        let outputs = evaluate(&columns, rows, &mut errors);
        if errors.list.is_empty() {
            parts.push((0..rows).map(|_| position), outputs);
            return Ok(());
        }
        let failed: BTreeMap<u32, String> = errors.list.into_iter().rev().collect();
        for (row, reason) in &failed {
            let text = given.last_rows.get(*row as usize).map(|row| self.named.row_text(row, 0)).unwrap_or_default();
            sides.errors.push(&self.named, position, reason, text);
        }
        let kept = (0..rows).filter(|row| u32::try_from(*row).is_ok_and(|row| !failed.contains_key(&row)));
        let kept: Vec<(usize, usize)> = kept.map(|row| (0, row)).collect();
        let outputs = outputs.iter().map(|array| Ok(interleave(&[array.as_ref()], &kept).map_err(KeyError::from)?));
        let outputs = outputs.collect::<Result<Vec<ArrayRef>, OperatorError>>()?;
        parts.push(kept.iter().map(|_| position), outputs);
        Ok(())
    }
}

/// An aggregate over all values of its argument, in their order.
fn aggregate(call: &AggregateCall, argument: Option<&ArrayRef>, rows: usize) -> ArrayRef {
    let opaque = opaque_rows(call, &argument.cloned());
    let values = match (Argument::new(argument, call.argument_type()), &opaque) {
        (Argument::Opaque(column, _), Some(rows)) => Argument::Opaque(column, Some(rows)),
        (values, _) => values,
    };
    let mut accumulator = Accumulator::new(call);
    for row in (0..rows).filter(|row| !values.is_null(*row)) {
        accumulator.update(&values, row, Position::row(row as u64, 0));
    }
    finish(call, std::iter::once(Some(&accumulator)))
}

/// The key of a row in [`ROWS`]: all numbers are of one length, so no two keys meet.
fn numbered(key: &[u8], number: u64) -> Vec<u8> {
    [key, &number.to_be_bytes()].concat()
}

impl Operator for MatchRecognize {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let batch = Batch { columns: &input.columns, rows: input.rows() };
        // Keys are columns: they do not fail.
        let keys = self.spec.keys.iter().map(|key| eval(key, &batch, context, &mut RowErrors::default()));
        let keys: Vec<ArrayRef> = keys.collect();
        self.keys.encode(&keys, input.rows())?;
        self.rows.encode(&input.columns, input.rows())?;
        let mut parts = Parts::default();
        for event in input.timeline(self.spec.time_column) {
            let (row, position, time) = match event {
                Event::Mark(mark) => {
                    self.advance(mark, context, sides, &mut parts)?;
                    continue;
                }
                Event::Row(row, position, time) => (row, position, time),
            };
            let time = time.max(ROWS + 1);
            if time <= self.clock.watermark {
                sides.late.push(&self.named, (&input.columns, row), position, time, self.clock.watermark);
                continue;
            }
            if let Entry::Waiting(rows) = self.state.entry(time, self.keys.row(row), || Entry::Waiting(Vec::new()))? {
                rows.push(StoredRow::new(self.rows.row(row)));
            }
        }
        parts.into_chunk(&self.empty, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.state.namespaces().range(ROWS + 1..).next().copied()
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
mod tests;
