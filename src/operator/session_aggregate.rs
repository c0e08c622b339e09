//! Aggregation over SESSION windows: one row per key and session when the watermark passes the session's end. A session
//! ends `gap` after its last row; a row that touches sessions on both sides makes them one.
//!
//! State: namespace = the session's end rounded up to a multiple of the gap (two sessions of a key that do not touch end
//! more than a gap apart, so never in one namespace), key = the grouping keys as comparable bytes, value = the session. A
//! row looks for sessions of its key from the namespace of its own time on. Beside them the timers (`session_timers.rs`).
//! So the state is bounded by the sessions that are open and those that were within the last gap.
//!
//! - For each session there is a timer at or before its end, made when the session came into its namespace. Rows that only
//!   move the end within the namespace leave the timer as it is; when its turn comes and the session goes on, there is a
//!   new one at the end that it then has.
//! - Sessions that are over have fired. Where many fire at once their entries stay until their namespace goes, which it
//!   does with its last open session: else what is left to be deleted would itself take memory for each.
//!
//! Resident are the clock, the number of open sessions in each namespace, the next timers, and for some keys where their
//! newest session stands. A row is late when the session that it would be part of, after merging, is over.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::ArrayRef;
use serde::{Deserialize, Serialize};

use super::aggregation::{Aggregation, Arguments, Group};
use super::fired::{Fired, Output};
use super::parts::{Emit, in_one_part};
use super::session_timers::{Timer, Timers};
use super::window::Assigner;
use super::window_aggregate::Spec;
use super::{Chunk, Named, Operator, OperatorError, Position, Sides, StreamClock, event_times, restored};
use crate::event::EventTime;
use crate::expr::EvalContext;
use crate::state::{Checkpointed, Key, KeyedState, StateError};

/// Name and version of the encoding of [`Entry`]: to be raised when it, or an accumulator's encoding, changes.
pub const VALUE_TYPE: &str = "session/2";

/// Of the sessions that fire in one batch, those of which the entries are deleted one by one.
const DELETIONS_MAX: usize = if cfg!(test) { 2 } else { 8192 };

/// Where a row would look through more namespaces than this it is noted for its key where the newest session stands.
const LOOKED_THROUGH_MAX: usize = if cfg!(test) { 1 } else { 4 };
/// Keys for which that is noted.
const NOTED_MAX: usize = if cfg!(test) { 3 } else { 8192 };

/// One entry of the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    Session(Session),
    Timer,
}

/// A session, on the wall clock in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    start: i64,
    /// A gap after the last row.
    end: i64,
    group: Group,
}

/// A session where it was found.
struct Found {
    namespace: i64,
    start: i64,
    end: i64,
    /// The session itself, where it was read from the checkpoint: what is in memory is taken from there.
    read: Option<Session>,
}

/// What is saved with a checkpoint.
#[derive(Serialize, Deserialize)]
struct Saved {
    clock: StreamClock,
    open: BTreeMap<i64, u64>,
}

/// `GROUP BY window_start, window_end, key, …` over `SESSION(TABLE t PARTITION BY key, …)`.
pub struct SessionAggregate {
    output: Output,
    time_column: usize,
    clock: StreamClock,
    sessions: Sessions,
}

/// The sessions in the state.
struct Sessions {
    gap_ms: i64,
    /// Open sessions in each namespace: the last one takes it away.
    open: BTreeMap<i64, u64>,
    timers: Timers,
    /// For some keys: the namespace behind which there is no session of theirs.
    newest: HashMap<Box<[u8]>, i64>,
    /// Of [`DELETIONS_MAX`].
    deletions_left: usize,
    state: KeyedState<Entry>,
}

impl Sessions {
    fn new(gap_ms: i64, state: KeyedState<Entry>) -> Sessions {
        let gap_ms = gap_ms.max(1);
        let (timers, newest) = (Timers::new(gap_ms), HashMap::new());
        Sessions { gap_ms, open: BTreeMap::new(), timers, newest, deletions_left: 0, state }
    }

    fn namespace(&self, end: i64) -> i64 {
        end.saturating_add((self.gap_ms - end.rem_euclid(self.gap_ms)) % self.gap_ms)
    }

    /// The session of a key in a namespace.
    fn find(&self, namespace: i64, key: &[u8]) -> Result<Option<Found>, StateError> {
        Ok(match self.state.get(namespace, key)? {
            Some(Cow::Owned(Entry::Session(session))) => {
                Some(Found { namespace, start: session.start, end: session.end, read: Some(session) })
            }
            Some(Cow::Borrowed(Entry::Session(session))) => {
                Some(Found { namespace, start: session.start, end: session.end, read: None })
            }
            _ => None,
        })
    }

    /// The open sessions of a key that a stretch of time touches, in order of time.
    fn touching(
        &mut self,
        key: &[u8],
        (from, to): (i64, i64),
        is_over: impl Fn(i64) -> bool,
    ) -> Result<Vec<Found>, StateError> {
        let first = self.namespace(from);
        let many = self.open.range(first..).nth(LOOKED_THROUGH_MAX).is_some();
        let noted = if many { self.newest.get(key).copied() } else { None };
        // Older ones are not looked at.
        let (mut touched, mut newest) = (Vec::new(), first);
        for namespace in self.open.range(first..).map(|(namespace, _)| *namespace) {
            if noted.is_some_and(|noted| namespace > noted) {
                break;
            }
            let Some(found) = self.find(namespace, key)? else { continue };
            newest = namespace;
            if found.start > to {
                if many && noted.is_none() { continue } else { break }
            }
            if found.end >= from && !is_over(found.end) {
                touched.push(found);
            }
        }
        if many && noted.is_none() {
            if self.newest.len() >= NOTED_MAX {
                self.newest.clear();
            }
            self.newest.insert(key.into(), newest);
        }
        Ok(touched)
    }

    /// Takes an open session out.
    fn take(&mut self, key: &[u8], found: Found) -> Result<Option<Group>, StateError> {
        let namespace = found.namespace;
        let group = match found.read {
            Some(session) => {
                self.state.remove(namespace, key);
                Some(session.group)
            }
            None => match self.state.take(namespace, key)? {
                Some(Entry::Session(session)) => Some(session.group),
                _ => None,
            },
        };
        self.closed(namespace);
        Ok(group)
    }

    /// Takes a session that is over out.
    fn finish(&mut self, key: &[u8], found: Found) -> Result<Option<Group>, StateError> {
        if self.deletions_left > 0 {
            self.deletions_left -= 1;
            return self.take(key, found);
        }
        let namespace = found.namespace;
        let session = match found.read {
            Some(session) => Some(session),
            None => match self.state.get(namespace, key)?.map(Cow::into_owned) {
                Some(Entry::Session(session)) => Some(session),
                _ => None,
            },
        };
        self.closed(namespace);
        Ok(session.map(|session| session.group))
    }

    fn closed(&mut self, namespace: i64) {
        let left = self.open.entry(namespace).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.open.remove(&namespace);
            self.state.remove_namespace(namespace);
        }
    }

    /// Takes a row in that touches these sessions: it makes one of them and of the window, from the earliest start to the
    /// latest end.
    fn take_row(
        &mut self,
        key: &[u8],
        (start, end): (i64, i64),
        touched: Vec<Found>,
        assigner: &Assigner,
        (arguments, row, empty): (&Arguments<'_>, usize, &Group),
    ) -> Result<(), StateError> {
        let namespace = self.namespace(end);
        let before = match touched.as_slice() {
            [one] if one.namespace == namespace => Some(one.end),
            _ => None,
        };
        if let Some(before) = before {
            let read = touched.into_iter().find_map(|found| found.read);
            let entry = match read {
                Some(session) => self.state.put(namespace, key, Entry::Session(session)),
                // It is there.
                None => self.state.entry(namespace, key, || Entry::Timer)?,
            };
            if let Entry::Session(session) = entry {
                (session.start, session.end) = (start, end);
                arguments.fold(row, &mut session.group);
            }
            // Where the wall clock skips, a later end is over earlier: before the timer that stands.
            let over = assigner.over_at(end);
            if end != before && over < assigner.over_at(before) {
                self.timers.insert(Timer { over, end, key: Key::from(key) }, &mut self.state);
            }
            return Ok(());
        }
        let mut merged: Option<Group> = None;
        for found in touched {
            match (&mut merged, self.take(key, found)?) {
                (Some(merged), Some(later)) => merged.merge(later),
                (None, first) => merged = first,
                (Some(_), None) => {}
            }
        }
        let mut group = merged.unwrap_or_else(|| empty.clone());
        arguments.fold(row, &mut group);
        self.put(Key::from(key), Session { start, end, group }, assigner.over_at(end));
        Ok(())
    }

    /// Puts an open session where it belongs.
    fn put(&mut self, key: Key, session: Session, over: EventTime) {
        let namespace = self.namespace(session.end);
        *self.open.entry(namespace).or_default() += 1;
        self.timers.insert(Timer { over, end: session.end, key: key.clone() }, &mut self.state);
        if let Some(newest) = self.newest.get_mut(&*key) {
            *newest = namespace.max(*newest);
        }
        self.state.put(namespace, &key, Entry::Session(session));
    }

    /// The first session by the watermark at which it is over, if that is not beyond `until`. Its timer is taken.
    fn next_over(&mut self, until: EventTime, assigner: &Assigner) -> Result<Option<(Timer, Found)>, StateError> {
        while let Some(timer) = self.timers.first(&self.state)?.filter(|timer| timer.over <= until).cloned() {
            self.timers.take_first();
            let Some(found) = self.find(self.namespace(timer.end), &timer.key)? else { continue };
            if found.end == timer.end {
                return Ok(Some((timer, found)));
            }
            let at_end = Timer { over: assigner.over_at(found.end), end: found.end, key: timer.key.clone() };
            if found.end > timer.end && at_end > timer {
                self.timers.insert(at_end, &mut self.state);
            }
        }
        Ok(None)
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
        state: KeyedState<Entry>,
    ) -> Result<SessionAggregate, OperatorError> {
        Ok(SessionAggregate {
            output: Output {
                aggregation: Aggregation::new(named, spec.keys, spec.aggregates)?,
                assigner: Assigner::new(&spec.window, &context.time_zone),
                properties: spec.properties,
            },
            time_column: spec.window.time_column,
            clock: StreamClock::default(),
            sessions: Sessions::new(gap_ms, state),
        })
    }

    /// Frees every session that is over at the watermark, in order of time, then key. What is more than a part goes to
    /// `emit`, the rest stays in `fired`.
    fn fire(&mut self, position: Position, fired: &mut Fired, emit: Emit<'_>) -> Result<(), OperatorError> {
        let SessionAggregate { output, sessions, .. } = self;
        let watermark = self.clock.watermark;
        while let Some((timer, found)) = sessions.next_over(watermark, &output.assigner)? {
            let window = (found.start, found.end);
            if let Some(group) = sessions.finish(&timer.key, found)? {
                fired.push(position, window, timer.key, group);
                output.emit_full(fired, emit)?;
            }
        }
        sessions.timers.forget(watermark, &mut sessions.state);
        Ok(())
    }

    /// Looks ahead, so that the first timer is that of a session which ends then.
    fn look_ahead(&mut self) -> Result<(), OperatorError> {
        if let Some((timer, _)) = self.sessions.next_over(EventTime::MAX, &self.output.assigner)? {
            self.sessions.timers.put_back(timer);
        }
        Ok(())
    }
}

impl Operator for SessionAggregate {
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
        self.sessions.deletions_left = DELETIONS_MAX;
        let mut marks = input.marks.iter().peekable();
        let times = input.columns.get(self.time_column).map(event_times);
        for ((row, position), time) in input.positions.iter().enumerate().zip(times.into_iter().flatten()) {
            while let Some(mark) = marks.next_if(|mark| mark.position < *position) {
                self.clock = mark.clock;
                self.fire(mark.position, &mut fired, emit)?;
            }
            let time = time.unwrap_or(EventTime::MIN);
            let watermark = self.clock.watermark;
            let SessionAggregate { output: Output { aggregation, assigner, .. }, sessions, .. } = self;
            let start = assigner.wall_of(time);
            let end = start.saturating_add(sessions.gap_ms);
            let key = aggregation.key(row);
            let touched = sessions.touching(key, (start, end), |end| assigner.over_at(end) <= watermark)?;
            let start = touched.first().map_or(start, |first| first.start.min(start));
            let end = touched.last().map_or(end, |last| last.end.max(end));
            if assigner.over_at(end) <= watermark {
                sides.late.push(&aggregation.named, (&input.columns, row), *position, time, watermark);
                continue;
            }
            let values = (&arguments, row, aggregation.empty());
            sessions.take_row(key, (start, end), touched, assigner, values)?;
        }
        for mark in marks {
            self.clock = mark.clock;
            self.fire(mark.position, &mut fired, emit)?;
        }
        self.look_ahead()?;
        self.output.chunk(fired, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.sessions.state)
    }

    fn preview(&self, _namespace: i64, key: &[u8], value: &[u8]) -> Option<Vec<ArrayRef>> {
        match postcard::from_bytes(value).ok()? {
            Entry::Session(Session { start, end, group })
                if group.0.len() == self.output.aggregation.empty().0.len() =>
            {
                self.output.preview((start, end), key, group)
            }
            _ => None,
        }
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.sessions.timers.peek().map(|timer| timer.over)
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&Saved { clock: self.clock, open: self.sessions.open.clone() }).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        let Saved { clock, open } = restored(&self.output.aggregation.named.name, saved)?;
        self.clock = clock;
        self.sessions.open = open;
        self.sessions.timers.resume(clock.watermark);
        self.look_ahead()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::StringArray;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampMicrosecondType};
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    use super::super::{Mark, instants};
    use super::*;
    use crate::expr::aggregate::AggregateKind;
    use crate::expr::build;
    use crate::expr::{AggregateCall, DataType, Field};
    use crate::sql::plan::{WindowKind, WindowProperty, WindowSpec};
    use crate::state::Frozen;
    use crate::state::model::{MemoryStore, OPERATOR, Store};

    const GAP_MS: i64 = 1000;
    /// Half a minute before the clocks of Berlin go from 2:00 to 3:00.
    const START_MS: i64 = 1_774_745_970_000;

    #[derive(Clone, Debug)]
    enum Op {
        /// Milliseconds from the start, and a key.
        Row(i64, u8),
        /// The watermark goes on by so much.
        Watermark(i64),
        Checkpoint,
        Restart,
    }

    /// Start and end on the wall clock, key, rows.
    type Out = (i64, i64, String, i64);

    fn operator(zone: &TimeZone, state: KeyedState<Entry>) -> SessionAggregate {
        let fields = vec![Field::new("ts", DataType::TimestampLtz(3)), Field::new("k", DataType::String)];
        let render: crate::operator::RowText = Arc::new(|_, _, _| String::new());
        let named = Named { name: "q/session_aggregate/0".into(), input: Arc::new(fields), render };
        let spec = Spec {
            window: WindowSpec {
                kind: WindowKind::Session { gap_ms: GAP_MS, partition: Vec::new() },
                time_column: 0,
                time_type: DataType::TimestampLtz(3),
            },
            keys: vec![build::column(1, DataType::String)],
            properties: vec![WindowProperty::Start, WindowProperty::End],
            aggregates: vec![AggregateCall::new(AggregateKind::Count, vec![], None, false, None).expect("a count")],
        };
        SessionAggregate::new(named, spec, GAP_MS, &EvalContext { time_zone: zone.clone() }, state)
            .expect("has an order")
    }

    /// What there is to compare with: all sessions in a list, looked through each time.
    struct Naive {
        assigner: Assigner,
        watermark: EventTime,
        open: Vec<Out>,
        late: usize,
    }

    impl Naive {
        fn row(&mut self, time: EventTime, key: &str) {
            let start = self.assigner.wall_of(time);
            let end = start + GAP_MS;
            let touches = |session: &Out| session.2 == key && session.0 <= end && session.1 >= start;
            let touched: Vec<Out> = self.open.iter().filter(|session| touches(session)).cloned().collect();
            let new = (
                touched.iter().map(|session| session.0).min().unwrap_or(start).min(start),
                touched.iter().map(|session| session.1).max().unwrap_or(end).max(end),
                key.to_owned(),
                touched.iter().map(|session| session.3).sum::<i64>() + 1,
            );
            if self.assigner.over_at(new.1) <= self.watermark {
                self.late += 1;
                return;
            }
            self.open.retain(|session| !touches(session));
            self.open.push(new);
        }

        fn fire(&mut self) -> Vec<Out> {
            let is_over = |session: &Out| self.assigner.over_at(session.1) <= self.watermark;
            let (mut over, open): (Vec<Out>, _) = self.open.drain(..).partition(is_over);
            self.open = open;
            over.sort_by_key(|session| (self.assigner.over_at(session.1), session.1, session.2.clone()));
            over
        }
    }

    struct Run {
        operator: SessionAggregate,
        store: MemoryStore,
        zone: TimeZone,
        at: u64,
        late: usize,
    }

    impl Run {
        fn new(zone: &TimeZone) -> Run {
            let mut store = MemoryStore::default();
            let (reader, namespaces) = store.reader();
            let operator = operator(zone, KeyedState::new(OPERATOR, reader, namespaces));
            Run { operator, store, zone: zone.clone(), at: 0, late: 0 }
        }

        /// A batch of rows, then a watermark.
        fn step(&mut self, rows: &[(EventTime, String)], watermark: EventTime) -> Vec<Out> {
            self.at += 1;
            let columns: Vec<ArrayRef> = vec![
                Arc::new(instants(rows.iter().map(|(time, _)| time * 1000))),
                Arc::new(rows.iter().map(|(_, key)| Some(key)).collect::<StringArray>()),
            ];
            let position = |row: usize| Position::row(self.at, row as u32);
            let clock = StreamClock { watermark, idle: false, ended: false };
            let chunk = Chunk {
                columns,
                positions: Arc::new((0..rows.len()).map(position).collect()),
                marks: Arc::new(vec![Mark { position: position(rows.len()).mark(), clock }]),
            };
            let mut sides = Sides::default();
            let context = EvalContext { time_zone: self.zone.clone() };
            let chunk = self.operator.process(&[chunk], &context, &mut sides).expect("runs");
            self.late += sides.late.positions.len();
            // Keys, window properties, aggregates.
            let millis = |column: usize| chunk.columns[column].as_primitive::<TimestampMicrosecondType>().clone();
            let (starts, ends) = (millis(1), millis(2));
            let counts = chunk.columns[3].as_primitive::<Int64Type>();
            let keys = chunk.columns[0].as_string::<i32>();
            (0..chunk.rows())
                .map(|row| {
                    let key = keys.value(row).to_owned();
                    (starts.value(row) / 1000, ends.value(row) / 1000, key, counts.value(row))
                })
                .collect()
        }

        fn checkpoint(&mut self) -> Vec<u8> {
            let state = self.operator.state().expect("has state");
            let frozen: Arc<dyn Frozen> = state.freeze().expect("nothing is in flight");
            self.store.commit(&frozen);
            self.store.renew();
            state.committed();
            self.operator.save()
        }

        fn restart(&mut self, saved: &[u8]) {
            self.store.reopen();
            let (reader, namespaces) = self.store.reader();
            self.operator = operator(&self.zone, KeyedState::new(OPERATOR, reader, namespaces));
            self.operator.restore(saved).expect("restores");
        }
    }

    fn check(zone: &str, ops: &[Op]) {
        let zone = TimeZone::get(zone).expect("a zone of the bundled database");
        let mut run = Run::new(&zone);
        let assigner = Assigner::new(
            &WindowSpec {
                kind: WindowKind::Session { gap_ms: GAP_MS, partition: Vec::new() },
                time_column: 0,
                time_type: DataType::TimestampLtz(3),
            },
            &zone,
        );
        let mut naive = Naive { assigner, watermark: START_MS, open: Vec::new(), late: 0 };
        for op in ops {
            let mut rows = Vec::new();
            match op {
                Op::Row(ms, key) => {
                    rows.push((START_MS + ms, format!("k{key}")));
                    naive.row(START_MS + ms, &format!("k{key}"));
                }
                Op::Watermark(ms) => naive.watermark += ms,
                Op::Checkpoint => drop(run.checkpoint()),
                Op::Restart => {
                    let saved = run.checkpoint();
                    run.restart(&saved);
                }
            }
            assert_eq!(run.step(&rows, naive.watermark), naive.fire());
            assert_eq!(run.late, naive.late);
            let next = naive.open.iter().map(|session| naive.assigner.over_at(session.1)).min();
            assert_eq!(run.operator.next_timer(), next);
        }
        naive.watermark = EventTime::MAX;
        assert_eq!(run.step(&[], EventTime::MAX), naive.fire());
        assert!(run.operator.sessions.state.namespaces().is_empty(), "{:?}", run.operator.sessions.state.namespaces());
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            20 => (0i64..60_000, 0u8..6).prop_map(|(ms, key)| Op::Row(ms, key)),
            6 => (0i64..4000).prop_map(Op::Watermark),
            2 => Just(Op::Checkpoint),
            1 => Just(Op::Restart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn sessions_are_those_of_a_plain_list(ops in proptest::collection::vec(op(), 1..150)) {
            check("UTC", &ops);
        }

        /// The wall clock skips an hour in the middle.
        #[test]
        fn sessions_are_right_where_the_wall_clock_skips(ops in proptest::collection::vec(op(), 1..150)) {
            check("Europe/Berlin", &ops);
        }
    }

    #[test]
    fn what_fires_at_once_leaves_nothing_to_delete_one_by_one() {
        let mut run = Run::new(&TimeZone::UTC);
        let rows: Vec<(EventTime, String)> = (0..1000).map(|i| (START_MS + i / 2, format!("k{i:04}"))).collect();
        assert!(run.step(&rows, START_MS).is_empty());
        let saved = run.checkpoint();
        run.restart(&saved);
        let fired = run.step(&[(START_MS + 500, "late".to_owned())], START_MS + 400 + GAP_MS - 1);
        assert_eq!(fired.len(), 802);
        let state = &mut run.operator.sessions.state;
        let frozen = state.freeze().expect("nothing is in flight");
        let mut changes = 0;
        let count = &mut |_: crate::state::Change<'_>| {
            changes += 1;
            std::ops::ControlFlow::Continue(())
        };
        frozen.for_each(count).expect("encodes");
        assert!(changes < 10, "{changes}");
        // A session that has fired is none any more, though its entry is there: this is another one.
        let again = run.step(&[(START_MS + 401, "k0000".to_owned())], EventTime::MAX);
        assert_eq!(again.len(), 1000 - 802 + 2);
        assert!(again.contains(&(START_MS + 401, START_MS + 401 + GAP_MS, "k0000".to_owned(), 1)));
    }
}
