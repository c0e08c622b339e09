//! OVER: every row of a key is remembered, and each result is computed from all of them.

use std::collections::{BTreeMap, BTreeSet};

use forebay::expr::build::Expr;
use forebay::sql::plan::{Frame, OverCall, OverFunction, OverSpec};

use crate::aggregate::{Seen, aggregate};
use crate::interpreter::{Interpreter, Named};
use crate::stream::{Event, Stream};
use crate::value::{Key, Row, Value};

/// A row that waits, and the arguments of each call.
type Waiting = (Row, Vec<Row>);
/// A row of the past: its time and the arguments of each call.
type Past = (i64, Vec<Row>);

/// What is known of a key.
#[derive(Default)]
struct Known {
    /// The last time at which something happened.
    last: Option<i64>,
    /// Of a RANGE with a bound: when the key is forgotten.
    forget_at: Option<i64>,
    past: Vec<Past>,
    edges: Vec<Edge>,
}

/// What an edge function remembers.
#[derive(Clone, Default)]
struct Edge {
    value: Option<Value>,
    on: bool,
    last: Option<(i64, f64)>,
    before: Option<(i64, f64)>,
}

pub fn over(run: &mut Interpreter, stream: Stream, named: &Named<'_>, spec: &OverSpec) -> Stream {
    let exprs: Vec<&Expr> = spec.keys.iter().chain(spec.calls.iter().flat_map(|call| &call.args)).collect();
    let mut watermark = i64::MIN;
    let mut known: BTreeMap<Key, Known> = BTreeMap::new();
    let mut waiting: BTreeMap<(i64, Key), Vec<Waiting>> = BTreeMap::new();
    let mut timers: BTreeSet<(i64, Key)> = BTreeSet::new();
    let mut uses = run.uses();
    let keeps = !spec.frame.forgets();
    let mut out = Stream::default();
    for (at, event) in stream.0 {
        let now_ms = run.now_ms(at);
        for key in uses.expired(now_ms).iter().filter(|_| keeps) {
            known.remove(key);
        }
        match event {
            Event::Row(row) => {
                let Some(values) = run.values(&exprs, named, at, &row) else { continue };
                let (key, mut rest) =
                    (Key(values[..spec.keys.len()].to_vec()), values[spec.keys.len()..].iter().cloned());
                let args = spec.calls.iter().map(|call| rest.by_ref().take(call.args.len()).collect()).collect();
                let time = row[spec.time_column].millis().expect("a time");
                let own = known.entry(key.clone()).or_default();
                let late = match spec.frame.is_bounded() {
                    true => own.last.is_some_and(|last| time <= last),
                    false => time <= watermark,
                };
                if late {
                    run.late(named, at, time, watermark, &row);
                    continue;
                }
                if let Frame::Range { preceding_ms: Some(reach) } = spec.frame
                    && own.forget_at.is_none_or(|forget_at| forget_at <= time + reach)
                {
                    let forget_at = time + reach + reach / 2 + 1;
                    own.forget_at = Some(forget_at);
                    timers.insert((forget_at, key.clone()));
                }
                uses.used(&key, now_ms);
                timers.insert((time, key.clone()));
                waiting.entry((time, key)).or_default().push((row, args));
            }
            Event::Clock(clock) => {
                if clock.watermark > watermark {
                    watermark = clock.watermark;
                    while timers.first().is_some_and(|(time, _)| *time <= watermark) {
                        let (time, key) = timers.pop_first().expect("it is there");
                        let own = known.entry(key.clone()).or_default();
                        if own.forget_at.is_some_and(|forget_at| forget_at <= time) {
                            known.remove(&key);
                            continue;
                        }
                        own.last = Some(time);
                        uses.used(&key, now_ms);
                        for row in results(own, spec, time, waiting.remove(&(time, key)).unwrap_or_default()) {
                            out.row(at, row);
                        }
                    }
                }
                out.clock(at, clock);
            }
        }
    }
    out
}

/// The rows of one time and key with their results.
fn results(known: &mut Known, spec: &OverSpec, time: i64, rows: Vec<Waiting>) -> Vec<Vec<Value>> {
    let peers = matches!(spec.frame, Frame::Range { .. });
    known.edges.resize(spec.calls.len(), Edge::default());
    let mut out = Vec::new();
    if peers {
        known.past.extend(rows.iter().map(|(_, args)| (time, args.clone())));
    }
    let last_of_peers = rows.last().map(|(_, args)| args.clone());
    for (mut row, args) in rows {
        if !peers {
            known.past.push((time, args.clone()));
        }
        for (index, call) in spec.calls.iter().enumerate() {
            row.push(match &call.function {
                OverFunction::Aggregate(aggregate_call) => {
                    let seen: Vec<Seen> = frame(&known.past, spec.frame, time)
                        .iter()
                        .map(|(_, args)| Seen { taken: true, argument: args[index].first().cloned(), place: 0 })
                        .collect();
                    aggregate(aggregate_call, seen.iter())
                }
                OverFunction::Lag { offset } => match known.past.len().checked_sub(offset + 1) {
                    Some(place) => known.past[place].1[index][0].clone(),
                    None => {
                        let args = if peers { last_of_peers.as_ref().expect("a row") } else { &args };
                        args[index].get(1).cloned().unwrap_or(Value::Null)
                    }
                },
                OverFunction::Rank { dense } => {
                    let mut earlier: Vec<i64> =
                        known.past.iter().map(|(then, _)| *then).filter(|then| *then < time).collect();
                    if *dense {
                        earlier.dedup();
                    }
                    Value::Int(earlier.len() as i64 + 1)
                }
                _ => known.edges[index].next(call, time, &args[index]),
            });
        }
        out.push(row);
    }
    out
}

/// The rows that a row at the end of the past sees.
fn frame(past: &[Past], frame: Frame, time: i64) -> &[Past] {
    let start = match frame {
        Frame::Range { preceding_ms: None } | Frame::Rows { preceding: None } => 0,
        Frame::Range { preceding_ms: Some(reach) } => past.iter().take_while(|(then, _)| *then < time - reach).count(),
        Frame::Rows { preceding: Some(rows) } => past.len().saturating_sub(rows + 1),
    };
    &past[start..]
}

impl Edge {
    fn next(&mut self, call: &OverCall, time: i64, args: &[Value]) -> Value {
        let number = |index: usize| match args.get(index) {
            Some(Value::Double(value)) => Some(*value),
            _ => None,
        };
        match call.function {
            OverFunction::Changed => {
                let same = self.value.as_ref().is_some_and(|before| before.key_order(&args[0]).is_eq());
                self.value = Some(args[0].clone());
                Value::Bool(!same)
            }
            OverFunction::Deadband => {
                let (Some(x), Some(band)) = (number(0), number(1)) else { return Value::Bool(false) };
                let reports = self.last.is_none_or(|(_, last)| (x - last).abs() > band);
                if reports {
                    self.last = Some((time, x));
                }
                Value::Bool(reports)
            }
            OverFunction::Hysteresis => {
                if let (Some(x), Some(low), Some(high)) = (number(0), number(1), number(2)) {
                    self.on = x >= high || (self.on && x > low);
                }
                Value::Bool(self.on)
            }
            OverFunction::Ewma => {
                if let (Some(x), Some(Value::Int(tau))) = (number(0), args.get(1)) {
                    let value = match self.last {
                        Some((then, y)) if *tau > 0 => {
                            y + (1.0 - (-((time - then) as f64) / *tau as f64).exp()) * (x - y)
                        }
                        _ => x,
                    };
                    self.last = Some((time, value));
                }
                self.last.map_or(Value::Null, |(_, y)| Value::Double(y))
            }
            OverFunction::Rate => {
                let Some(x) = number(0) else { return Value::Null };
                if self.last.is_some_and(|(then, _)| then < time) {
                    self.before = self.last;
                }
                self.last = Some((time, x));
                let rate = |(then, earlier): (i64, f64)| (x - earlier) / ((time - then) as f64 / 1000.0);
                self.before.map_or(Value::Null, |before| Value::Double(rate(before)))
            }
            OverFunction::Aggregate(_) | OverFunction::Lag { .. } | OverFunction::Rank { .. } => {
                unreachable!("no edge function")
            }
        }
    }
}
