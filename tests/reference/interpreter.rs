//! The interpreter: the whole log in, the whole output out. Each operator gets everything that ever flows into it and
//! walks it row by row; nothing is cut into batches, nothing is saved, nothing is fast.

use std::collections::BTreeMap;

use forebay::config::Config;
use forebay::expr::build::Expr;
use forebay::expr::{AggregateCall, Field};
use forebay::sql::plan::{Node, Plan, RankKind, RankSpec, WindowKind, WindowProperty, WindowSpec};
use jiff::tz::TimeZone;
use serde_json::{Value as Json, json};

use crate::aggregate::{Seen, aggregate};
use crate::log::{Log, Record};
use crate::scalar::eval;
use crate::stream::{At, Clock, Event, Stream, merge};
use crate::value::{Key, Row, Value, from_json, timestamp_text, to_json};
use crate::windows::Windows;

/// What one query gives: its rows, its late rows, and the rows that failed (operator, LSN, row).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub rows: Vec<Json>,
    pub late: Vec<Json>,
    pub errors: Vec<Json>,
}

/// Interprets a configuration over a log; gives the output of its query `q`.
pub fn interpret(config: &Config, log: &Log) -> Output {
    let mut run = Interpreter {
        zone: config.pipeline.time_zone.clone(),
        streams: BTreeMap::new(),
        times_ms: log_times(log),
        ttl_ms: None,
        query: Query::default(),
    };
    for source in &config.sources {
        run.streams.insert(source.name.clone(), source_stream(source, log));
    }
    let mut output = Output::default();
    for query in &config.queries {
        run.query = Query { name: query.name.clone(), ..Query::default() };
        run.ttl_ms = query.state_ttl.map(|ttl| ttl.as_millis() as i64);
        let stream = run.node(&query.plan);
        if query.name == "q" {
            let side = |mut list: Vec<(At, Json)>| {
                list.sort_by_key(|(at, _)| *at);
                list.into_iter().map(|(_, row)| row).collect()
            };
            output.late = side(std::mem::take(&mut run.query.late));
            output.errors = side(std::mem::take(&mut run.query.errors));
            let rows = stream.0.iter().filter_map(|(_, event)| match event {
                Event::Row(row) => Some(row_json(row, &query.plan.schema.fields)),
                Event::Clock(_) => None,
            });
            output.rows = rows.collect();
        }
        run.streams.insert(query.name.clone(), stream);
    }
    output
}

fn log_times(log: &Log) -> Vec<i64> {
    let mut last = 0;
    let running = |(time_us, _): &(i64, Record)| {
        last = last.max(time_us.div_euclid(1000));
        last
    };
    log.0.iter().map(running).collect()
}

/// A source's rows, and the clock that follows from rows, silence and end.
fn source_stream(source: &forebay::config::Source, log: &Log) -> Stream {
    let mut stream = Stream::default();
    let mut clock = Clock::START;
    let idle_us = source.time.idle.map(|idle| idle.as_micros() as i64);
    let mut active_at_us = 0;
    for (index, (time_us, record)) in log.0.iter().enumerate() {
        let lsn = index as u64 + 1;
        let before = clock;
        match record {
            Record::Data { source: name, line } if *name == source.name => {
                let json: Json = serde_json::from_str(line).expect("JSON");
                let mut row: Vec<Value> =
                    source.columns.iter().map(|field| from_json(&json[&field.name], &field.data_type)).collect();
                let arrival_ms = time_us.div_euclid(1000);
                let time = source.time.column.map_or(arrival_ms, |column| row[column].millis().expect("a time"));
                row.extend([Value::Int(arrival_ms * 1000), Value::Int(lsn as i64), Value::Null]);
                stream.row(At { lsn, is_clock: false }, row);
                active_at_us = *time_us;
                clock.idle = false;
                clock.watermark = clock.watermark.max(time - source.time.max_out_of_orderness_ms);
            }
            Record::Start => active_at_us = *time_us,
            Record::Tick if source.time.column.is_none() => {
                let time = time_us.div_euclid(1000);
                clock.watermark = clock.watermark.max(time - source.time.max_out_of_orderness_ms);
            }
            Record::Tick => clock.idle |= !clock.ended && idle_us.is_some_and(|idle| active_at_us + idle <= *time_us),
            Record::End { source: name } if *name == source.name => clock = Clock::END,
            Record::Data { .. } | Record::End { .. } => {}
        }
        if clock != before {
            stream.clock(At { lsn, is_clock: true }, clock);
        }
    }
    stream
}

/// A row as a JSON object of its visible columns.
fn row_json(row: &[Value], fields: &[Field]) -> Json {
    let visible = row.iter().zip(fields).filter(|(_, field)| !field.hidden);
    visible
        .map(|(value, field)| (field.name.clone(), to_json(value, &field.data_type)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What is known of the query at hand besides its rows.
#[derive(Default)]
struct Query {
    name: String,
    operators: BTreeMap<&'static str, usize>,
    late: Vec<(At, Json)>,
    errors: Vec<(At, Json)>,
}

pub struct Interpreter {
    pub zone: TimeZone,
    streams: BTreeMap<String, Stream>,
    /// Log time of each record, never backwards.
    times_ms: Vec<i64>,
    ttl_ms: Option<i64>,
    query: Query,
}

/// When keys were last used, in log time.
pub struct Uses {
    ttl_ms: Option<i64>,
    at: BTreeMap<Key, i64>,
}

impl Uses {
    /// Keys that were not used for the query's `state_ttl`; they are forgotten here, too.
    pub fn expired(&mut self, now_ms: i64) -> Vec<Key> {
        let Some(ttl_ms) = self.ttl_ms else { return Vec::new() };
        self.at.extract_if(.., |_, used| *used + ttl_ms <= now_ms).map(|(key, _)| key).collect()
    }

    pub fn used(&mut self, key: &Key, now_ms: i64) {
        self.at.insert(key.clone(), now_ms);
    }
}

/// An operator's name and its input's columns, for late and failed rows.
pub struct Named<'a> {
    name: String,
    fields: &'a [Field],
}

impl<'a> Named<'a> {
    pub fn fields(&self) -> &'a [Field] {
        self.fields
    }
}

impl Interpreter {
    pub fn uses(&self) -> Uses {
        Uses { ttl_ms: self.ttl_ms, at: BTreeMap::new() }
    }

    /// Log time at a place, ms.
    pub fn now_ms(&self, at: At) -> i64 {
        self.times_ms[at.lsn as usize - 1]
    }

    /// The next name of an operator of this kind.
    pub fn named<'a>(&mut self, kind: &'static str, fields: &'a [Field]) -> Named<'a> {
        let ordinal = self.query.operators.entry(kind).or_default();
        *ordinal += 1;
        Named { name: format!("{}/{kind}/{}", self.query.name, *ordinal - 1), fields }
    }

    pub fn late(&mut self, named: &Named<'_>, at: At, time_ms: i64, watermark_ms: i64, row: &[Value]) {
        let stamp = |ms: i64| timestamp_text(ms * 1000, 3, 'T') + "Z";
        self.query.late.push((
            at,
            json!({
                "operator": named.name,
                "event_time": stamp(time_ms),
                "watermark": stamp(watermark_ms),
                "_lsn": at.lsn,
                "row": row_json(row, named.fields),
            }),
        ));
    }

    /// Evaluates expressions over a row; `None` where one fails: the row leaves by the side.
    pub fn values(&mut self, exprs: &[&Expr], named: &Named<'_>, at: At, row: &[Value]) -> Option<Vec<Value>> {
        let values: Result<Vec<Value>, String> = exprs.iter().map(|expr| eval(expr, row, &self.zone)).collect();
        if values.is_err() {
            self.failed(named, at, row_json(row, named.fields));
        }
        values.ok()
    }

    fn failed(&mut self, named: &Named<'_>, at: At, row: Json) {
        self.query.errors.push((at, json!({ "operator": named.name, "_lsn": at.lsn, "row": row })));
    }

    /// Whether a condition holds for a pair of rows; a pair on which it fails does not match.
    pub fn pair_holds(
        &mut self,
        condition: Option<&Expr>,
        named: &Named<'_>,
        fields: &[Field],
        at: At,
        pair: &[Value],
    ) -> bool {
        match condition.map(|condition| eval(condition, pair, &self.zone)) {
            None => true,
            Some(Ok(value)) => value.is_true(),
            Some(Err(_)) => {
                self.failed(named, at, row_json(pair, fields));
                false
            }
        }
    }

    fn node(&mut self, plan: &Plan) -> Stream {
        let fields_of = |plan: &Plan| plan.schema.fields.clone();
        let out = match &plan.node {
            Node::Scan { relation } => return self.streams[relation].clone(),
            Node::Project { input, exprs } => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let named = self.named("project", &fields);
                let exprs: Vec<&Expr> = exprs.iter().collect();
                stream.map(|at, row| self.values(&exprs, &named, at, &row).into_iter().collect())
            }
            Node::Filter { input, predicate } => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let named = self.named("filter", &fields);
                stream.map(|at, row| {
                    let holds = self.values(&[predicate], &named, at, &row).is_some_and(|values| values[0].is_true());
                    if holds { vec![row] } else { Vec::new() }
                })
            }
            Node::UnionAll { inputs } => {
                let inputs = inputs.iter().map(|input| self.node(input)).collect();
                self.named("union_all", &[]);
                Stream(merge(inputs).into_iter().map(|(at, _, event)| (at, event)).collect())
            }
            Node::Window { input, window } if matches!(window.kind, WindowKind::Session { .. }) => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let named = self.named("session_window", &fields);
                self.session_rows(stream, &named, window)
            }
            Node::Window { input, window } => {
                let stream = self.node(input);
                self.named("window", &[]);
                let windows = Windows::new(window, &self.zone);
                let properties = [WindowProperty::Start, WindowProperty::End, WindowProperty::Time];
                stream.map(|_, row| {
                    let with = |window| {
                        let own = properties.map(|property| windows.property(property, window));
                        row.iter().cloned().chain(own).collect()
                    };
                    windows.of(&row).into_iter().map(with).collect()
                })
            }
            Node::Unnest { input, array, outer, ordinality } => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let named = self.named("unnest", &fields);
                let width = plan.schema.fields.len() - fields.len() - usize::from(*ordinality);
                stream.map(|at, row| {
                    let Some(values) = self.values(&[array], &named, at, &row) else { return Vec::new() };
                    let mut items: Vec<(Value, Value)> = match &values[0] {
                        Value::List(items) => items.iter().cloned().zip((1..).map(Value::Int)).collect(),
                        _ => Vec::new(),
                    };
                    if items.is_empty() && *outer {
                        items.push((Value::Null, Value::Null));
                    }
                    let columns = |item: Value| match item {
                        Value::Row(values) => values,
                        Value::Null => vec![Value::Null; width],
                        value => vec![value],
                    };
                    let numbered = |(item, number): (Value, Value)| {
                        let number = ordinality.then_some(number);
                        row.iter().cloned().chain(columns(item)).chain(number).collect()
                    };
                    items.into_iter().map(numbered).collect()
                })
            }
            Node::Expand { input, keys, sets } => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let named = self.named("expand", &fields);
                let keys: Vec<&Expr> = keys.iter().collect();
                stream.map(|at, row| {
                    let Some(values) = self.values(&keys, &named, at, &row) else { return Vec::new() };
                    let copy = |(number, set): (usize, &Vec<bool>)| {
                        let keys = values.iter().zip(set).map(|(v, has)| if *has { v.clone() } else { Value::Null });
                        row.iter().cloned().chain(keys).chain([Value::Int(number as i64)]).collect()
                    };
                    sets.iter().enumerate().map(copy).collect()
                })
            }
            Node::WindowAggregate { input, window, keys, properties, aggregates } => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let session = matches!(window.kind, WindowKind::Session { .. });
                let named = self.named(if session { "session_aggregate" } else { "window_aggregate" }, &fields);
                let grouping = Grouping { window, keys, properties, aggregates };
                if session { self.sessions(stream, &named, &grouping) } else { self.grouped(stream, &named, &grouping) }
            }
            Node::Over { input, over } => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let named = self.named("over", &fields);
                crate::over::over(self, stream, &named, over)
            }
            Node::Rank { input, rank } => {
                let (stream, fields) = (self.node(input), fields_of(input));
                let named = self.named("rank", &fields);
                match &rank.kind {
                    RankKind::Window { window, end_column, by_time_descending } => {
                        self.window_rank(stream, &named, rank, (window, *end_column, *by_time_descending))
                    }
                    RankKind::First => self.first_rows(stream, &named, rank, input.schema.time.expect("a time")),
                    RankKind::Last => self.last_rows(stream, &named, rank, input.schema.time.expect("a time")),
                }
            }
            Node::Join { left, right, join } => {
                let inputs = [self.node(left), self.node(right)];
                let fields = [fields_of(left), fields_of(right)];
                let named = [self.named("join", &fields[0]), Named { name: String::new(), fields: &fields[1] }];
                let [left, mut right] = named;
                right.name.clone_from(&left.name);
                crate::joins::join(self, inputs, [left, right], join)
            }
            Node::Match { .. } | Node::Lookup { .. } => panic!("the interpreter does not know {plan:?}"),
        };
        out.settled()
    }

    /// Grouping key, and what each aggregate sees; `None` where an expression fails.
    fn seen(&mut self, grouping: &Grouping<'_>, named: &Named<'_>, at: At, row: &[Value]) -> Option<(Key, Vec<Seen>)> {
        let calls = grouping.aggregates;
        let exprs: Vec<&Expr> = grouping
            .keys
            .iter()
            .chain(calls.iter().flat_map(|call| call.argument.iter().chain(&call.filter)))
            .collect();
        let mut values = self.values(&exprs, named, at, row)?.into_iter();
        let key = Key(values.by_ref().take(grouping.keys.len()).collect());
        let mut next = |is_there: bool| if is_there { values.next() } else { None };
        let seen = |call: &AggregateCall| {
            let argument = next(call.argument.is_some());
            let taken = next(call.filter.is_some()).is_none_or(|value| value.is_true());
            Seen { taken, argument, place: 0 }
        };
        Some((key, calls.iter().map(seen).collect()))
    }

    /// GROUP BY windows that do not depend on each other: rows are kept per window until it is over.
    fn grouped(&mut self, stream: Stream, named: &Named<'_>, grouping: &Grouping<'_>) -> Stream {
        let windows = Windows::new(grouping.window, &self.zone);
        let attached = matches!(grouping.window.kind, WindowKind::Attached { .. });
        let mut watermark = i64::MIN;
        // By the time at which the window is over, then its end.
        let mut open: BTreeMap<(i64, i64, i64), Groups> = BTreeMap::new();
        let mut out = Stream::default();
        for (at, event) in stream.0 {
            match event {
                Event::Row(row) => {
                    let Some((key, mut seen)) = self.seen(grouping, named, at, &row) else { continue };
                    let own = windows.of(&row);
                    seen.iter_mut().for_each(|seen| seen.place = windows.place(&own, watermark));
                    let last = own.iter().map(|(_, end)| *end).max().expect("a window");
                    if windows.over_at(last) <= watermark {
                        let time = row[grouping.window.time_column].millis().expect("a time");
                        let time = if attached { windows.over_at(time) } else { time };
                        self.late(named, at, time, watermark, &row);
                        continue;
                    }
                    for (start, end) in own.into_iter().filter(|(_, end)| windows.over_at(*end) > watermark) {
                        // Rows that carry their windows have the start among their keys.
                        let start = if attached { 0 } else { start };
                        let groups = open.entry((windows.over_at(end), end, start)).or_default();
                        groups.entry(key.clone()).or_default().push(seen.clone());
                    }
                }
                Event::Clock(clock) => {
                    watermark = clock.watermark;
                    while let Some(entry) = open.first_entry().filter(|entry| entry.key().0 <= watermark) {
                        let ((_, end, start), groups) = entry.remove_entry();
                        for (key, rows) in groups {
                            out.row(at, grouping.result(&windows, key, (start, end), &rows));
                        }
                    }
                    out.clock(at, clock);
                }
            }
        }
        out
    }

    /// GROUP BY sessions of a key.
    fn sessions(&mut self, stream: Stream, named: &Named<'_>, grouping: &Grouping<'_>) -> Stream {
        let windows = Windows::new(grouping.window, &self.zone);
        let keyed = |run: &mut Interpreter, at: At, row: &[Value]| run.seen(grouping, named, at, row);
        self.each_session(stream, (named, grouping.window), keyed, |session| {
            let rows: Vec<Vec<Seen>> = session.rows.into_iter().map(|(_, seen)| seen).collect();
            vec![grouping.result(&windows, session.key, (session.start, session.end), &rows)]
        })
    }

    /// The rows of sessions, with their windows.
    fn session_rows(&mut self, stream: Stream, named: &Named<'_>, window: &WindowSpec) -> Stream {
        let windows = Windows::new(window, &self.zone);
        let WindowKind::Session { partition, .. } = &window.kind else { panic!("no session: {window:?}") };
        let key = |row: &[Value]| Key(partition.iter().map(|column| row[*column].clone()).collect());
        let keyed = |_: &mut Interpreter, _: At, row: &[Value]| Some((key(row), row.to_vec()));
        self.each_session(stream, (named, window), keyed, |Session { start, end, key: _, rows }| {
            let own = [WindowProperty::Start, WindowProperty::End, WindowProperty::Time]
                .map(|property| windows.property(property, (start, end)));
            rows.into_iter().map(|(_, row)| row.into_iter().chain(own.iter().cloned()).collect()).collect()
        })
    }

    /// Sessions of a key, and what each gives when it is over; `keyed` gives a row's key and what the session keeps of it.
    fn each_session<T>(
        &mut self,
        stream: Stream,
        (named, window): (&Named<'_>, &WindowSpec),
        keyed: impl Fn(&mut Interpreter, At, &[Value]) -> Option<(Key, T)>,
        result: impl Fn(Session<T>) -> Vec<Vec<Value>>,
    ) -> Stream {
        let windows = Windows::new(window, &self.zone);
        let mut watermark = i64::MIN;
        let mut open: Vec<Session<T>> = Vec::new();
        let mut out = Stream::default();
        for (number, (at, event)) in stream.0.into_iter().enumerate() {
            match event {
                Event::Row(row) => {
                    let Some((key, kept)) = keyed(self, at, &row) else { continue };
                    let (mut start, mut end) = windows.of(&row)[0];
                    let touches =
                        |session: &Session<T>| session.key == key && session.start <= end && start <= session.end;
                    let (touched, others): (Vec<Session<T>>, Vec<Session<T>>) =
                        std::mem::take(&mut open).into_iter().partition(touches);
                    for session in &touched {
                        (start, end) = (start.min(session.start), end.max(session.end));
                    }
                    open = others;
                    if windows.over_at(end) <= watermark {
                        open.extend(touched);
                        let time = row[window.time_column].millis().expect("a time");
                        self.late(named, at, time, watermark, &row);
                        continue;
                    }
                    let mut rows: Vec<_> = touched.into_iter().flat_map(|session| session.rows).collect();
                    rows.push((number, kept));
                    rows.sort_by_key(|(number, _)| *number);
                    open.push(Session { start, end, key, rows });
                }
                Event::Clock(clock) => {
                    watermark = clock.watermark;
                    let (mut over, rest): (Vec<Session<T>>, Vec<Session<T>>) =
                        std::mem::take(&mut open).into_iter().partition(|s| windows.over_at(s.end) <= watermark);
                    open = rest;
                    over.sort_by(|a, b| {
                        let place = |session: &Session<T>| (windows.over_at(session.end), session.end);
                        place(a).cmp(&place(b)).then_with(|| a.key.cmp(&b.key))
                    });
                    over.into_iter().flat_map(&result).for_each(|row| out.row(at, row));
                    out.clock(at, clock);
                }
            }
        }
        out
    }

    /// ROW_NUMBER within windows.
    fn window_rank(
        &mut self,
        stream: Stream,
        named: &Named<'_>,
        rank: &RankSpec,
        (window, end_column, by_time_descending): (&WindowSpec, usize, bool),
    ) -> Stream {
        let windows = Windows::new(window, &self.zone);
        let limit = rank.limit.expect("a limit");
        let last_of_ties = by_time_descending && limit == 1;
        let exprs: Vec<&Expr> = rank.keys.iter().chain(rank.order.iter().map(|order| &order.expr)).collect();
        let mut watermark = i64::MIN;
        // What rows are ordered by, and they themselves.
        let mut open: BTreeMap<(i64, Key), Vec<(Row, Row)>> = BTreeMap::new();
        let mut out = Stream::default();
        for (at, event) in stream.0 {
            match event {
                Event::Row(row) => {
                    let Some(mut key) = self.values(&exprs, named, at, &row) else { continue };
                    let order = key.split_off(rank.keys.len());
                    let end = row[end_column].millis().expect("a window");
                    if windows.over_at(end) <= watermark {
                        self.late(named, at, windows.over_at(end), watermark, &row);
                        continue;
                    }
                    open.entry((end, Key(key))).or_default().push((order, row));
                }
                Event::Clock(clock) => {
                    watermark = clock.watermark;
                    while let Some(entry) = open.first_entry().filter(|e| windows.over_at(e.key().0) <= watermark) {
                        let mut rows = entry.remove();
                        if last_of_ties {
                            rows.reverse();
                        }
                        rows.sort_by(|(a, _), (b, _)| {
                            let orders = rank.order.iter().zip(a.iter().zip(b)).map(|(by, (a, b))| {
                                let nulls = if by.nulls_first { a.key_order(b) } else { b.key_order(a) };
                                match (a.is_null() || b.is_null(), by.descending) {
                                    (true, _) => nulls,
                                    (false, true) => b.key_order(a),
                                    (false, false) => a.key_order(b),
                                }
                            });
                            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
                        });
                        for (number, (_, mut row)) in rows.into_iter().take(limit).enumerate() {
                            row.push(Value::Int(number as i64 + 1));
                            out.row(at, row);
                        }
                    }
                    out.clock(at, clock);
                }
            }
        }
        out
    }

    /// The first row of each key by time.
    fn first_rows(&mut self, stream: Stream, named: &Named<'_>, rank: &RankSpec, time_column: usize) -> Stream {
        let exprs: Vec<&Expr> = rank.keys.iter().collect();
        let mut watermark = i64::MIN;
        let mut left: Vec<Key> = Vec::new();
        let mut waiting: BTreeMap<Key, (i64, Vec<Value>)> = BTreeMap::new();
        let mut uses = self.uses();
        let mut out = Stream::default();
        for (at, event) in stream.0 {
            let expired = uses.expired(self.now_ms(at));
            left.retain(|key| !expired.contains(key));
            match event {
                Event::Row(row) => {
                    let Some(key) = self.values(&exprs, named, at, &row) else { continue };
                    let (key, time) = (Key(key), row[time_column].millis().expect("a time"));
                    if time < watermark {
                        self.late(named, at, time, watermark, &row);
                    } else if !left.contains(&key) && waiting.get(&key).is_none_or(|(first, _)| time < *first) {
                        waiting.insert(key, (time, row));
                    }
                }
                Event::Clock(clock) => {
                    if clock.watermark > watermark {
                        watermark = clock.watermark;
                        let mut due: Vec<(Key, (i64, Vec<Value>))> =
                            waiting.extract_if(.., |_, (time, _)| *time <= watermark).collect();
                        due.sort_by_key(|(_, (time, _))| *time);
                        for (key, (_, mut row)) in due {
                            row.push(Value::Int(1));
                            out.row(at, row);
                            uses.used(&key, self.now_ms(at));
                            left.push(key);
                        }
                    }
                    out.clock(at, clock);
                }
            }
        }
        out
    }

    /// The rows of each key that are the last by time so far, as they come.
    fn last_rows(&mut self, stream: Stream, named: &Named<'_>, rank: &RankSpec, time_column: usize) -> Stream {
        let exprs: Vec<&Expr> = rank.keys.iter().collect();
        let mut last: BTreeMap<Key, i64> = BTreeMap::new();
        let mut uses = self.uses();
        stream.map(|at, mut row| {
            for key in uses.expired(self.now_ms(at)) {
                last.remove(&key);
            }
            let Some(key) = self.values(&exprs, named, at, &row) else { return Vec::new() };
            let (key, time) = (Key(key), row[time_column].millis().expect("a time"));
            if last.get(&key).is_some_and(|last| time < *last) {
                return Vec::new();
            }
            uses.used(&key, self.now_ms(at));
            last.insert(key, time);
            row.push(Value::Int(1));
            vec![row]
        })
    }
}

/// An open session, with the numbers of its rows in the stream.
struct Session<T> {
    start: i64,
    end: i64,
    key: Key,
    rows: Vec<(usize, T)>,
}

/// What the aggregates of each key have seen, row by row.
type Groups = BTreeMap<Key, Vec<Vec<Seen>>>;

/// A windowed aggregation, from the plan.
struct Grouping<'a> {
    window: &'a WindowSpec,
    keys: &'a [Expr],
    properties: &'a [WindowProperty],
    aggregates: &'a [AggregateCall],
}

impl Grouping<'_> {
    fn result(&self, windows: &Windows<'_>, key: Key, window: (i64, i64), rows: &[Vec<Seen>]) -> Vec<Value> {
        let mut out = key.0;
        out.extend(self.properties.iter().map(|property| windows.property(*property, window)));
        let calls = self.aggregates.iter().enumerate();
        out.extend(calls.map(|(index, call)| aggregate(call, rows.iter().map(|seen| &seen[index]))));
        out
    }
}
