//! Aggregation over SESSION windows: one row per key and session when the watermark passes the session's end.
//!
//! State: see [`sessions`](super::sessions); a session holds one accumulator per aggregate.

use std::sync::Arc;

use super::aggregation::{Aggregation, Group};
use super::fired::{Fired, Output};
use super::parts::{Emit, in_one_part};
use super::session_timers::Timer;
use super::sessions::{self, Content, Session, Sessions};
use super::window::Assigner;
use super::window_aggregate::Spec;
use super::{Chunk, Event, Named, Operator, OperatorError, Position, Preview, Sides, StreamClock, restored};
use crate::event::EventTime;
use crate::expr::{EvalContext, Field};
use crate::state::{Checkpointed, KeyedState};

/// Name and version of the encoding of [`Entry`]: to be raised when it, or an accumulator's encoding, changes.
pub const VALUE_TYPE: &str = "session/2";

/// One entry of the state.
pub type Entry = sessions::Entry<Group>;

impl Content for Group {
    type Part = ();

    fn merge(&mut self, later: Group) {
        Group::merge(self, later);
    }
}

/// `GROUP BY window_start, window_end, key, …` over `SESSION(TABLE t PARTITION BY key, …)`.
pub struct SessionAggregate {
    output: Output,
    time_column: usize,
    clock: StreamClock,
    sessions: Sessions<Group>,
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
        while let Some((key, session)) = self.sessions.due(self.clock.watermark, &self.output.assigner)? {
            fired.push(position, (session.start, session.end), key, session.content);
            self.output.emit_full(fired, emit)?;
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
        self.sessions.begin_batch();
        for event in input.timeline(self.time_column) {
            let (row, position, time) = match event {
                Event::Mark(mark) => {
                    self.clock = mark.clock;
                    self.fire(mark.position, &mut fired, emit)?;
                    continue;
                }
                Event::Row(row, position, time) => (row, position, time),
            };
            let watermark = self.clock.watermark;
            let SessionAggregate { output: Output { aggregation, assigner, .. }, sessions, .. } = self;
            let wall = assigner.wall_of(time);
            let empty = || aggregation.empty().clone();
            let fold = |group: &mut Group| arguments.fold(row, group);
            if sessions.take_row(aggregation.key(row), wall, watermark, assigner, empty, fold)?.is_none() {
                sides.late.push(&aggregation.named, (&input.columns, row), position, time, watermark);
            }
        }
        self.sessions.look_ahead(&self.output.assigner)?;
        self.output.chunk(fired, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.sessions.state)
    }

    fn preview(&self, labels: &[Field], _namespace: i64, key: &[u8], value: &[u8]) -> Option<Preview> {
        match postcard::from_bytes(value).ok()? {
            Entry::Timer => Timer::preview(key, labels, |key| self.output.aggregation.key_columns([key]).ok()),
            Entry::Session(Session { start, end, content })
                if content.0.len() == self.output.aggregation.empty().0.len() =>
            {
                self.output.preview(labels, (start, end), key, content)
            }
            _ => None,
        }
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.sessions.next_timer()
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&(self.clock, self.sessions.open())).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        let (clock, open) = restored(&self.output.aggregation.named.name, saved)?;
        self.clock = clock;
        Ok(self.sessions.resume(open, self.clock.watermark, &self.output.assigner)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampMicrosecondType};
    use arrow_array::{ArrayRef, StringArray};
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
