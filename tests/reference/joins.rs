//! Joins: every row of one side against every row of the other.

use forebay::expr::Field;
use forebay::expr::build::Expr;
use forebay::sql::plan::{JoinKind, JoinMethod, JoinSpec, WindowSpec};

use crate::interpreter::{Interpreter, Named};
use crate::stream::{At, Clock, Event, Stream, merge};
use crate::value::{Key, Value};
use crate::windows::Windows;

/// A row of a side, with its key, its time (of a window join: the window's end) and whether it has met another.
#[derive(Clone)]
struct Kept {
    left: bool,
    key: Key,
    time: i64,
    row: Vec<Value>,
    met: bool,
}

/// What all joins share.
struct Join<'a> {
    spec: &'a JoinSpec,
    named: [Named<'a>; 2],
    fields: Vec<Field>,
    widths: [usize; 2],
}

pub fn join<'a>(run: &mut Interpreter, inputs: [Stream; 2], named: [Named<'a>; 2], spec: &'a JoinSpec) -> Stream {
    let fields: Vec<Field> = named.iter().flat_map(|named| named.fields()).cloned().collect();
    let widths = [named[0].fields().len(), named[1].fields().len()];
    let join = Join { spec, named, fields, widths };
    let [left, right] = inputs;
    let keyed = [join.keyed(run, left, true), join.keyed(run, right, false)];
    let events = merge(keyed.into());
    match &spec.method {
        JoinMethod::Interval { lower_ms, upper_ms, .. } => join.interval(run, events, (*lower_ms, *upper_ms)),
        JoinMethod::Temporal { .. } => join.temporal(run, events),
        JoinMethod::Window { window, .. } => join.window(run, events, window),
        #[expect(unreachable_patterns, reason = "methods that are added and that the interpreter does not know yet")]
        other => panic!("the interpreter does not know {other:?}"),
    }
}

impl Join<'_> {
    /// Rows with their keys in front; those on which a key fails are gone.
    fn keyed(&self, run: &mut Interpreter, stream: Stream, left: bool) -> Stream {
        let exprs: Vec<&Expr> = self.spec.keys.iter().map(|(l, r)| if left { l } else { r }).collect();
        let named = &self.named[usize::from(!left)];
        stream.map(|at, row| {
            let with_row = |mut keys: Vec<Value>| {
                keys.extend(row.iter().cloned());
                keys
            };
            run.values(&exprs, named, at, &row).map(with_row).into_iter().collect()
        })
    }

    fn kept(&self, input: usize, mut values: Vec<Value>) -> Kept {
        let row = values.split_off(self.spec.keys.len());
        let (left_time, right_time) = match self.spec.method {
            JoinMethod::Interval { left_time, right_time, .. } | JoinMethod::Temporal { left_time, right_time } => {
                (left_time, right_time)
            }
            JoinMethod::Window { left_end, right_end, .. } => (left_end, right_end),
            #[expect(
                unreachable_patterns,
                reason = "methods that are added and that the interpreter does not know yet"
            )]
            ref other => panic!("the interpreter does not know {other:?}"),
        };
        let time = row[if input == 0 { left_time } else { right_time }].millis().expect("a time");
        Kept { left: input == 0, key: Key(values), time, row, met: false }
    }

    fn pads(&self, left: bool) -> bool {
        let own = if left { JoinKind::Left } else { JoinKind::Right };
        self.spec.kind == own || self.spec.kind == JoinKind::Full
    }

    /// The row of a pair, if keys and condition hold.
    fn pair(&self, run: &mut Interpreter, at: At, left: &Kept, right: &Kept) -> Option<Vec<Value>> {
        if left.key != right.key || left.key.has_null() {
            return None;
        }
        let pair: Vec<Value> = left.row.iter().chain(&right.row).cloned().collect();
        run.pair_holds(self.spec.condition.as_ref(), &self.named[0], &self.fields, at, &pair).then_some(pair)
    }

    fn alone(&self, kept: Kept) -> Vec<Value> {
        let nulls = |side: usize| std::iter::repeat_n(Value::Null, self.widths[side]);
        if kept.left { kept.row.into_iter().chain(nulls(1)).collect() } else { nulls(0).chain(kept.row).collect() }
    }

    /// Rows are kept until the watermark has passed the last time of the other side that can match them.
    fn interval(&self, run: &mut Interpreter, events: Vec<(At, usize, Event)>, (lower, upper): (i64, i64)) -> Stream {
        let last = |kept: &Kept| if kept.left { kept.time - lower } else { kept.time + upper };
        let mut watermark = i64::MIN;
        let mut all: Vec<Kept> = Vec::new();
        let mut out = Stream::default();
        for (at, input, event) in events {
            match event {
                Event::Row(values) => {
                    let mut own = self.kept(input, values);
                    // By time, then arrival.
                    all.sort_by_key(|kept| kept.time);
                    for other in all.iter_mut().filter(|other| other.left != own.left) {
                        let (left, right) = if own.left { (&own, &*other) } else { (&*other, &own) };
                        let within = right.time + lower <= left.time && left.time <= right.time + upper;
                        if within && let Some(pair) = self.pair(run, at, left, right) {
                            out.row(at, pair);
                            own.met = true;
                            other.met = true;
                        }
                    }
                    if last(&own) > watermark {
                        all.push(own);
                    } else if self.pads(own.left) && !own.met {
                        out.row(at, self.alone(own));
                    }
                }
                Event::Clock(clock) => {
                    watermark = clock.watermark;
                    let (mut gone, rest): (Vec<Kept>, Vec<Kept>) = all.into_iter().partition(|k| last(k) <= watermark);
                    all = rest;
                    gone.sort_by(|a, b| (last(a), !a.left).cmp(&(last(b), !b.left)).then_with(|| a.key.cmp(&b.key)));
                    for kept in gone.into_iter().filter(|kept| self.pads(kept.left) && !kept.met) {
                        out.row(at, self.alone(kept));
                    }
                    // What leaves is that much behind.
                    let delay = upper.max(-lower).max(0);
                    let behind = if [i64::MIN, i64::MAX].contains(&watermark) { 0 } else { delay };
                    out.clock(at, Clock { watermark: watermark - behind, ..clock });
                }
            }
        }
        out
    }

    /// Left rows wait for the watermark; versions that the watermark has passed are gone but for the last.
    fn temporal(&self, run: &mut Interpreter, events: Vec<(At, usize, Event)>) -> Stream {
        let mut watermark = i64::MIN;
        let (mut waiting, mut versions): (Vec<Kept>, Vec<Kept>) = (Vec::new(), Vec::new());
        let mut uses = run.uses();
        let mut out = Stream::default();
        for (at, input, event) in events {
            let now_ms = run.now_ms(at);
            let expired = uses.expired(now_ms);
            versions.retain(|version| !expired.contains(&version.key));
            match event {
                Event::Row(values) => {
                    let own = self.kept(input, values);
                    uses.used(&own.key, now_ms);
                    if own.left {
                        waiting.push(own);
                    } else {
                        // Of one time the last counts.
                        versions.retain(|version| version.key != own.key || version.time != own.time);
                        versions.push(own);
                    }
                }
                Event::Clock(clock) => {
                    if clock.watermark > watermark {
                        watermark = clock.watermark;
                        let (mut due, rest): (Vec<Kept>, Vec<Kept>) =
                            waiting.into_iter().partition(|kept| kept.time <= watermark);
                        waiting = rest;
                        // A version that the watermark passes is a use of its key, too.
                        for version in versions.iter_mut().filter(|version| version.time <= watermark && !version.met) {
                            version.met = true;
                            uses.used(&version.key, now_ms);
                        }
                        due.iter().for_each(|left| uses.used(&left.key, now_ms));
                        due.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.key.cmp(&b.key)));
                        for left in due {
                            let valid =
                                versions.iter().filter(|version| version.key == left.key && version.time <= left.time);
                            let pair = valid.max_by_key(|version| version.time).cloned();
                            match pair.and_then(|version| self.pair(run, at, &left, &version)) {
                                Some(pair) => out.row(at, pair),
                                None if self.pads(true) => out.row(at, self.alone(left)),
                                None => {}
                            }
                        }
                        let passed = versions.clone();
                        versions.retain(|version| {
                            let replaced = |later: &Kept| {
                                later.key == version.key && version.time < later.time && later.time <= watermark
                            };
                            !passed.iter().any(replaced)
                        });
                    }
                    out.clock(at, clock);
                }
            }
        }
        out
    }

    /// Everything of a window when it is over.
    fn window(&self, run: &mut Interpreter, events: Vec<(At, usize, Event)>, window: &WindowSpec) -> Stream {
        let zone = run.zone.clone();
        let windows = Windows::new(window, &zone);
        let mut watermark = i64::MIN;
        let mut all: Vec<Kept> = Vec::new();
        let mut out = Stream::default();
        for (at, input, event) in events {
            match event {
                Event::Row(values) => {
                    let own = self.kept(input, values);
                    let over_at = windows.over_at(own.time);
                    if over_at <= watermark {
                        run.late(&self.named[input], at, over_at, watermark, &own.row);
                    } else {
                        all.push(own);
                    }
                }
                Event::Clock(clock) => {
                    watermark = clock.watermark;
                    let (mut over, rest): (Vec<Kept>, Vec<Kept>) =
                        all.into_iter().partition(|kept| windows.over_at(kept.time) <= watermark);
                    all = rest;
                    over.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.key.cmp(&b.key)));
                    let mut ends: Vec<i64> = over.iter().map(|kept| kept.time).collect();
                    ends.dedup();
                    for end in ends {
                        let of =
                            |left: bool| over.iter().filter(move |kept| kept.time == end && kept.left == left).cloned();
                        let mut rights: Vec<Kept> = of(false).collect();
                        for mut left in of(true) {
                            for right in &mut rights {
                                if let Some(pair) = self.pair(run, at, &left, right) {
                                    (left.met, right.met) = (true, true);
                                    if !matches!(self.spec.kind, JoinKind::Semi | JoinKind::Anti) {
                                        out.row(at, pair);
                                    }
                                }
                            }
                            match self.spec.kind {
                                JoinKind::Semi if left.met => out.row(at, left.row),
                                JoinKind::Anti if !left.met => out.row(at, left.row),
                                JoinKind::Left | JoinKind::Full if !left.met => out.row(at, self.alone(left)),
                                _ => {}
                            }
                        }
                        for right in rights.into_iter().filter(|right| self.pads(false) && !right.met) {
                            out.row(at, self.alone(right));
                        }
                    }
                    out.clock(at, clock);
                }
            }
        }
        out
    }
}
