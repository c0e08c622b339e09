//! SESSION without aggregation: each row with the window of its session, when the watermark passes the session's end.
//! Sessions leave in order of time, then key; rows of a session in order of arrival, as in Flink's
//! `UnalignedWindowTableFunctionOperator`.
//!
//! State: see [`sessions`](super::sessions), and [`session_rows`](super::session_rows) for the rows. Bounded by the rows of
//! open sessions.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::parts::{Emit, PART_BYTES, PART_ROWS, in_one_part};
use super::rows::StoredRow;
use super::session_rows::{Reader, Rows, Runs};
use super::session_timers::Timer;
use super::sessions::{self, Sessions};
use super::window::Assigner;
use super::{Chunk, Event, Mark, Named, Operator, OperatorError, Position, Preview, Sides, StreamClock, restored};
use crate::event::EventTime;
use crate::expr::row::RowKeys;
use crate::expr::{EvalContext, Field};
use crate::sql::plan::{WindowProperty, WindowSpec};
use crate::state::{Checkpointed, KeyedState};

/// Name and version of the encoding of [`Entry`].
pub const VALUE_TYPE: &str = "session_rows/1";

/// One entry of the state.
pub type Entry = sessions::Entry<Rows>;

/// `SESSION(TABLE t PARTITION BY key, …)` without GROUP BY.
pub struct SessionWindow {
    named: Named,
    assigner: Assigner,
    gap_ms: i64,
    time_column: usize,
    partition: Vec<usize>,
    keys: RowKeys,
    rows: RowKeys,
    clock: StreamClock,
    runs: Runs,
    sessions: Sessions<Rows>,
}

/// Rows freed by watermarks, not yet columns.
#[derive(Default)]
struct Freed {
    positions: Vec<Position>,
    windows: Vec<(i64, i64)>,
    rows: Vec<StoredRow>,
    bytes: usize,
}

impl SessionWindow {
    /// Sessions of `partition`'s columns, with this gap.
    ///
    /// # Errors
    /// A type has no order (the planner refuses such columns).
    pub fn new(
        named: Named,
        window: &WindowSpec,
        (gap_ms, partition): (i64, Vec<usize>),
        context: &EvalContext,
        state: KeyedState<Entry>,
    ) -> Result<SessionWindow, OperatorError> {
        let types: Vec<_> = named.input.iter().map(|field| field.data_type.clone()).collect();
        let keys: Vec<_> = partition.iter().filter_map(|column| types.get(*column).cloned()).collect();
        Ok(SessionWindow {
            assigner: Assigner::new(window, &context.time_zone),
            gap_ms: gap_ms.max(1),
            time_column: window.time_column,
            keys: RowKeys::new(&keys)?,
            rows: RowKeys::new(&types)?,
            partition,
            clock: StreamClock::default(),
            runs: Runs::default(),
            sessions: Sessions::new(gap_ms, state),
            named,
        })
    }

    /// Frees the rows of every session that is over at the watermark. What is more than a part goes to `emit`, the rest
    /// stays in `freed`.
    fn fire(&mut self, position: Position, freed: &mut Freed, emit: Emit<'_>) -> Result<(), OperatorError> {
        while let Some((_, session)) = self.sessions.due(self.clock.watermark, &self.assigner)? {
            let mut rows = Reader::new(session.content, &mut self.sessions)?;
            while let Some(row) = rows.next(&mut self.runs, &mut self.sessions)? {
                freed.bytes += row.0.len();
                freed.positions.push(position);
                freed.windows.push((session.start, session.end));
                freed.rows.push(row);
                if freed.rows.len() >= PART_ROWS || freed.bytes >= PART_BYTES {
                    emit(self.chunk(std::mem::take(freed), Arc::default())?)?;
                }
            }
        }
        Ok(())
    }

    /// The rows with their windows.
    fn chunk(&self, freed: Freed, marks: Arc<Vec<Mark>>) -> Result<Chunk, OperatorError> {
        let mut columns = self.rows.decode(freed.rows.iter().map(|row| &*row.0))?;
        for property in [WindowProperty::Start, WindowProperty::End, WindowProperty::Time] {
            columns.push(self.assigner.property(property, freed.windows.iter().copied()));
        }
        Ok(Chunk { columns, positions: Arc::new(freed.positions), marks })
    }
}

impl Operator for SessionWindow {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        in_one_part(|emit| self.process_in_parts(inputs, context, sides, emit))
    }

    fn process_in_parts(
        &mut self,
        inputs: &[Chunk],
        _: &EvalContext,
        sides: &mut Sides,
        emit: Emit<'_>,
    ) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let keys: Vec<ArrayRef> =
            self.partition.iter().filter_map(|column| input.columns.get(*column).cloned()).collect();
        self.keys.encode(&keys, input.rows())?;
        self.rows.encode(&input.columns, input.rows())?;
        let mut freed = Freed::default();
        self.sessions.begin_batch();
        for event in input.timeline(self.time_column) {
            let (row, position, time) = match event {
                Event::Mark(mark) => {
                    self.clock = mark.clock;
                    self.fire(mark.position, &mut freed, emit)?;
                    continue;
                }
                Event::Row(row, position, time) => (row, position, time),
            };
            let watermark = self.clock.watermark;
            let SessionWindow { assigner, gap_ms, keys, rows, runs, sessions, .. } = self;
            let bytes = rows.row(row);
            let wall = assigner.wall_of(time);
            let place = |rows: &mut Rows| runs.place(rows, bytes.len(), wall.div_euclid(*gap_ms));
            match sessions.take_row(keys.row(row), wall, watermark, assigner, Rows::default, place)? {
                Some(place) => place.put(StoredRow::new(bytes), sessions)?,
                None => sides.late.push(&self.named, (&input.columns, row), position, time, watermark),
            }
        }
        self.sessions.look_ahead(&self.assigner)?;
        self.chunk(freed, Arc::clone(&input.marks))
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.sessions.state)
    }

    fn preview(&self, _labels: &[Field], _namespace: i64, key: &[u8], value: &[u8]) -> Option<Preview> {
        let Entry::Timer = postcard::from_bytes(value).ok()? else { return None };
        let fields = self.partition.iter().filter_map(|column| self.named.input.get(*column).cloned());
        Timer::preview(key, &fields.collect::<Vec<_>>(), |key| self.keys.decode([key]).ok())
    }

    fn next_timer(&self) -> Option<EventTime> {
        self.sessions.next_timer()
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&(self.clock, self.sessions.open(), &self.runs)).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        let (clock, open, runs) = restored(&self.named.name, saved)?;
        (self.clock, self.runs) = (clock, runs);
        Ok(self.sessions.resume(open, self.clock.watermark, &self.assigner)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int64Type, TimestampMicrosecondType};
    use arrow_array::{Int64Array, StringArray};
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    use super::super::instants;
    use super::*;
    use crate::expr::DataType;
    use crate::sql::plan::WindowKind;
    use crate::state::Frozen;
    use crate::state::model::{MemoryStore, OPERATOR, Store};

    const GAP_MS: i64 = 1000;

    /// Start and end, key, number of the row.
    type Out = (i64, i64, String, i64);

    /// End, key, rows: time and number.
    type Listed = (i64, String, Vec<(i64, i64)>);

    fn operator(state: KeyedState<Entry>) -> SessionWindow {
        let fields = vec![
            Field::new("ts", DataType::TimestampLtz(3)),
            Field::new("k", DataType::String),
            Field::new("n", DataType::BigInt),
        ];
        let render: crate::operator::RowText = Arc::new(|_, _, _| String::new());
        let named = Named { name: "q/session_window/0".into(), input: Arc::new(fields), render };
        let kind = WindowKind::Session { gap_ms: GAP_MS, partition: vec![1] };
        let window = WindowSpec { kind, time_column: 0, time_type: DataType::TimestampLtz(3) };
        SessionWindow::new(named, &window, (GAP_MS, vec![1]), &EvalContext { time_zone: TimeZone::UTC }, state)
            .expect("has an order")
    }

    /// An operator beside a plain list of sessions.
    struct Run {
        operator: SessionWindow,
        store: MemoryStore,
        at: u64,
        watermark: EventTime,
        late: usize,
        open: Vec<Listed>,
        late_expected: usize,
    }

    impl Run {
        fn new() -> Run {
            let mut store = MemoryStore::default();
            let (reader, namespaces) = store.reader();
            let operator = operator(KeyedState::new(OPERATOR, reader, namespaces));
            Run { operator, store, at: 0, watermark: 0, late: 0, open: Vec::new(), late_expected: 0 }
        }

        fn expect_row(&mut self, time: i64, key: &str, number: i64) {
            let touches = |session: &Listed| {
                let start = session.2.iter().map(|row| row.0).min().unwrap_or(0);
                session.1 == key && start <= time + GAP_MS && session.0 >= time
            };
            let (touched, others): (Vec<_>, Vec<_>) = self.open.iter().cloned().partition(touches);
            let end = touched.iter().map(|session| session.0).fold(time + GAP_MS, i64::max);
            if end - 1 <= self.watermark {
                self.late_expected += 1;
                return;
            }
            let mut rows: Vec<(i64, i64)> = touched.into_iter().flat_map(|session| session.2).collect();
            rows.push((time, number));
            rows.sort_by_key(|row| row.1);
            self.open = others;
            self.open.push((end, key.to_owned(), rows));
        }

        fn expect_fired(&mut self) -> Vec<Out> {
            let watermark = self.watermark;
            let (mut over, open): (Vec<_>, Vec<_>) =
                self.open.drain(..).partition(|session| session.0 - 1 <= watermark);
            self.open = open;
            over.sort_by_key(|session| (session.0, session.1.clone()));
            let rows = |(end, key, rows): Listed| {
                let start = rows.iter().map(|row| row.0).min().unwrap_or(0);
                rows.into_iter().map(move |(_, number)| (start, end, key.clone(), number)).collect::<Vec<Out>>()
            };
            over.into_iter().flat_map(rows).collect()
        }

        /// A batch of rows, then a watermark.
        fn step(&mut self, rows: &[(i64, String)], watermark: EventTime) -> Vec<Out> {
            self.at += 1;
            let numbers: Vec<i64> = (0..rows.len()).map(|row| (self.at * 1000) as i64 + row as i64).collect();
            for ((time, key), number) in rows.iter().zip(&numbers) {
                self.expect_row(*time, key, *number);
            }
            self.watermark = watermark;
            let columns: Vec<ArrayRef> = vec![
                Arc::new(instants(rows.iter().map(|(time, _)| time * 1000))),
                Arc::new(rows.iter().map(|(_, key)| Some(key)).collect::<StringArray>()),
                Arc::new(Int64Array::from(numbers)),
            ];
            let position = |row: usize| Position::row(self.at, row as u32);
            let clock = StreamClock { watermark, idle: false, ended: false };
            let chunk = Chunk {
                columns,
                positions: Arc::new((0..rows.len()).map(position).collect()),
                marks: Arc::new(vec![Mark { position: position(rows.len()).mark(), clock }]),
            };
            let mut sides = Sides::default();
            let context = EvalContext { time_zone: TimeZone::UTC };
            let chunk = self.operator.process(&[chunk], &context, &mut sides).expect("runs");
            self.late += sides.late.positions.len();
            let millis = |column: usize| chunk.columns[column].as_primitive::<TimestampMicrosecondType>().clone();
            let (starts, ends) = (millis(3), millis(4));
            let (keys, numbers) = (chunk.columns[1].as_string::<i32>(), chunk.columns[2].as_primitive::<Int64Type>());
            let fired: Vec<Out> = (0..chunk.rows())
                .map(|row| {
                    let key = keys.value(row).to_owned();
                    (starts.value(row) / 1000, ends.value(row) / 1000, key, numbers.value(row))
                })
                .collect();
            assert_eq!(fired, self.expect_fired());
            assert_eq!(self.late, self.late_expected);
            let next = self.open.iter().map(|session| session.0 - 1).min();
            assert_eq!(self.operator.next_timer(), next);
            fired
        }

        fn checkpoint(&mut self) -> Vec<u8> {
            let state = self.operator.state().expect("has state");
            let frozen: Arc<dyn Frozen> = state.freeze().expect("nothing is in flight");
            self.store.commit(&frozen);
            self.store.renew();
            state.committed();
            self.operator.save()
        }

        fn restart(&mut self) {
            let saved = self.checkpoint();
            self.store.reopen();
            let (reader, namespaces) = self.store.reader();
            self.operator = operator(KeyedState::new(OPERATOR, reader, namespaces));
            self.operator.restore(&saved).expect("restores");
        }

        fn end(&mut self) {
            self.step(&[], EventTime::MAX);
            let namespaces = self.operator.sessions.state.namespaces();
            assert!(namespaces.is_empty(), "{namespaces:?}");
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Rows(Vec<(i64, u8)>),
        Watermark(i64),
        Checkpoint,
        Restart,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            20 => proptest::collection::vec((0i64..30_000, 0u8..4), 1..8).prop_map(Op::Rows),
            6 => (0i64..4000).prop_map(Op::Watermark),
            2 => Just(Op::Checkpoint),
            1 => Just(Op::Restart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn rows_leave_with_the_sessions_of_a_plain_list(ops in proptest::collection::vec(op(), 1..80)) {
            let mut run = Run::new();
            for op in ops {
                let (mut rows, mut watermark) = (Vec::new(), run.watermark);
                match op {
                    Op::Rows(of) => rows = of.into_iter().map(|(time, key)| (time, format!("k{key}"))).collect(),
                    Op::Watermark(ms) => watermark += ms,
                    Op::Checkpoint => drop(run.checkpoint()),
                    Op::Restart => run.restart(),
                }
                run.step(&rows, watermark);
            }
            run.end();
        }
    }

    #[test]
    fn a_long_session_is_read_page_by_page_and_leaves_nothing() {
        let mut run = Run::new();
        // Two sessions of many pages, which a row between them makes one.
        for at in 0..100 {
            run.step(&[(at * 10, "a".to_owned()), (2500 + at * 10, "a".to_owned())], 0);
        }
        run.restart();
        run.step(&[(1900, "a".to_owned())], 0);
        let fired = run.step(&[(1700, "a".to_owned()), (9000, "b".to_owned())], 5000);
        assert_eq!(fired.len(), 202);
        // Few of its pages were deleted one by one; the others went with their namespace.
        let entries = |run: &Run| -> usize {
            let state = &run.operator.sessions.state;
            state.namespaces().iter().map(|namespace| state.entries(*namespace).count()).sum()
        };
        // What is left: a session, its timer, its page.
        assert_eq!(entries(&run), 3);
        run.end();
    }
}
