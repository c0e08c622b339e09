//! The operator against a naive matcher: for each first row all ways through the pattern are followed row by row, by
//! the rules of `pattern.rs` as they are written there, without states, queues or watermarks.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, Int64Array, StringArray, TimestampMicrosecondArray};
use jiff::tz::TimeZone;

use super::*;
use crate::expr::{Field, Schema};
use crate::sql::plan::Node;
use crate::sql::{Catalog, plan_query};

/// A row: time, key, value, which of the bits of four variables it has.
#[derive(Clone, Copy, Debug)]
struct Input {
    time: EventTime,
    key: &'static str,
    x: i64,
    bits: u8,
}

fn fields() -> Vec<Field> {
    let bits = (0..4).map(|bit| Field::new(format!("b{bit}"), DataType::Boolean));
    let mut fields = vec![
        Field::new("ts", DataType::TimestampLtz(3)),
        Field::new("k", DataType::String),
        Field::new("id", DataType::BigInt),
        Field::new("x", DataType::BigInt),
    ];
    fields.extend(bits);
    fields
}

/// The operator of `SELECT * FROM t MATCH_RECOGNIZE (clauses)`.
fn operator(clauses: &str) -> MatchRecognize {
    let mut catalog = Catalog::default();
    catalog.add("t", Schema { fields: fields(), time: Some(0) });
    let text = format!("SELECT * FROM t MATCH_RECOGNIZE ({clauses})");
    let plan = plan_query(&text, &catalog).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"));
    let Node::Match { input, spec } = plan.node else { panic!("no match at the top: {text}") };
    let named = Named {
        name: "q/match/0".into(),
        input: Arc::new(input.schema.fields),
        render: Arc::new(|_, columns, row| format!("{:?}", columns[0].slice(row, 1))),
    };
    let empty = plan.schema.fields.iter().map(|f| arrow_array::new_empty_array(&f.data_type.arrow())).collect();
    MatchRecognize::new(named, *spec, empty, KeyedState::empty(1)).expect("types with an order")
}

fn column(name: &str, rows: &[(usize, Input)]) -> ArrayRef {
    match name {
        "ts" => Arc::new(instants(rows.iter().map(|(_, row)| row.time * 1000))),
        "k" => Arc::new(rows.iter().map(|(_, row)| Some(row.key)).collect::<StringArray>()),
        "id" => Arc::new(rows.iter().map(|(id, _)| Some(*id as i64)).collect::<Int64Array>()),
        "x" => Arc::new(rows.iter().map(|(_, row)| Some(row.x)).collect::<Int64Array>()),
        bit => {
            let bit: u32 = bit[1..].parse().expect("a bit");
            Arc::new(rows.iter().map(|(_, row)| Some(row.bits >> bit & 1 == 1)).collect::<BooleanArray>())
        }
    }
}

/// What the rows gave: the output's columns as numbers (times in ms), one list per row, and the numbers of late and of
/// failed rows. The watermark is `delay_ms` behind the newest row; in the end it is +∞.
struct Given {
    rows: Vec<Vec<Option<i64>>>,
    late: usize,
    errors: usize,
}

fn run(operator: &mut MatchRecognize, rows: &[Input], delay_ms: i64, cuts: impl Fn(usize) -> usize) -> Given {
    let context = EvalContext { time_zone: TimeZone::UTC };
    let mut given = Given { rows: Vec::new(), late: 0, errors: 0 };
    let (mut at, mut newest) = (0, EventTime::MIN / 2);
    while at <= rows.len() {
        let size = cuts(at).clamp(1, (rows.len() - at).max(1));
        let part: Vec<(usize, Input)> = (at..rows.len().min(at + size)).map(|id| (id, rows[id])).collect();
        let mut marks = Vec::new();
        for (id, row) in &part {
            newest = newest.max(row.time);
            let clock = StreamClock { watermark: newest - delay_ms, ..StreamClock::default() };
            marks.push(Mark { position: Position::row(*id as u64, 0).mark(), clock });
        }
        if at == rows.len() {
            let clock = StreamClock { watermark: WATERMARK_MAX, idle: false, ended: true };
            marks.push(Mark { position: Position::row(at as u64, 0).mark(), clock });
        }
        let chunk = Chunk {
            columns: operator.named.input.iter().map(|field| column(&field.name, &part)).collect(),
            positions: Arc::new(part.iter().map(|(id, _)| Position::row(*id as u64, 0)).collect()),
            marks: Arc::new(marks),
        };
        let mut sides = Sides::default();
        let out = operator.process(&[chunk], &context, &mut sides).expect("runs");
        given.late += sides.late.positions.len();
        given.errors += sides.errors.positions.len();
        for row in 0..out.rows() {
            let value = |array: &ArrayRef| -> Option<i64> {
                if array.is_null(row) {
                    return None;
                }
                if let Some(numbers) = array.as_primitive_opt::<Int64Type>() {
                    return Some(numbers.value(row));
                }
                if let Some(times) = array.as_any().downcast_ref::<TimestampMicrosecondArray>() {
                    return Some(times.value(row) / 1000);
                }
                Some(i64::from(array.as_string::<i32>().value(row).as_bytes()[0]))
            };
            given.rows.push(out.columns.iter().map(value).collect());
        }
        at += size;
    }
    given
}

/// Times from 0 on, one second each, all of one key, watermark right behind.
fn simple(clauses: &str, xs: &[i64]) -> Vec<Vec<Option<i64>>> {
    let rows: Vec<Input> =
        xs.iter().enumerate().map(|(i, x)| Input { time: i as i64 * 1000, key: "a", x: *x, bits: 0 }).collect();
    let given = run(&mut operator(clauses), &rows, 1, |_| 1);
    assert_eq!(given.errors, 0);
    given.rows
}

#[test]
fn first_last_and_aggregates_read_the_match() {
    let rows = simple(
        "ORDER BY ts MEASURES FIRST(A.x) AS a, LAST(B.x, 1) AS b, LAST(B.x, 5) AS far, B.x AS c, x AS d, \
         SUM(B.x * 2) AS e, COUNT(*) AS f, FIRST(x, 1) AS g, AVG(A.x) + MAX(C.x) AS h \
         AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) WITHIN INTERVAL '1' MINUTE \
         DEFINE A AS x = 1, B AS B.x > A.x, C AS C.x < LAST(A.x)",
        &[5, 1, 4, 3, 9, 0, 7],
    );
    let expected = [1, 3, i64::MIN, 9, 0, 32, 5, 4, 1].map(|v| Some(v).filter(|v| *v != i64::MIN));
    assert_eq!(rows, [expected.to_vec()]);
}

#[test]
fn a_condition_sees_the_row_as_one_of_its_variable() {
    let ids = "ORDER BY ts MEASURES FIRST(id) AS a, LAST(id) AS b AFTER MATCH SKIP PAST LAST ROW ";
    // The sum counts the row that is looked at.
    let sum = format!("{ids} PATTERN (A+ B) WITHIN INTERVAL '1' MINUTE DEFINE A AS SUM(A.x) < 10");
    assert_eq!(simple(&sum, &[4, 4, 4, 1, 1]), [[Some(0), Some(2)]]);
    // What is defined before it, and what comes behind it: nothing yet.
    let later = format!("{ids} PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE A AS B.x IS NULL, B AS COUNT(A.x) = 1");
    assert_eq!(simple(&later, &[4, 4]), [[Some(0), Some(1)]]);
}

#[test]
fn a_greedy_variable_takes_what_also_follows() {
    let clauses = |quantifier: &str| {
        format!(
            "ORDER BY ts MEASURES COUNT(B.x) AS n, C.id AS c AFTER MATCH SKIP PAST LAST ROW \
             PATTERN (A B{quantifier} C) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.x = 0, B AS B.x > 0, C AS C.x > 1"
        )
    };
    assert_eq!(simple(&clauses("+"), &[0, 1, 2, 3, 0]), Vec::<Vec<Option<i64>>>::new(), "2 and 3 are rows of B");
    assert_eq!(simple(&clauses("+?"), &[0, 1, 2, 3, 0]), [[Some(1), Some(2)]]);
    assert_eq!(simple(&clauses("{2}"), &[0, 1, 2, 3, 0]), [[Some(2), Some(3)]]);
    assert_eq!(simple(&clauses("{1,2}"), &[0, 1, 2, 3, 0]), Vec::<Vec<Option<i64>>>::new(), "nor at the most");
}

#[test]
fn within_ends_before_its_bound() {
    let clauses = |seconds: u32| {
        format!(
            "ORDER BY ts MEASURES FIRST(id) AS a AFTER MATCH SKIP PAST LAST ROW \
             PATTERN (A B{{2}} C) WITHIN INTERVAL '{seconds}' SECOND DEFINE A AS A.x = 1"
        )
    };
    assert_eq!(simple(&clauses(3), &[1, 2, 2, 2]), Vec::<Vec<Option<i64>>>::new(), "3 s are not within 3 s");
    assert_eq!(simple(&clauses(4), &[1, 2, 2, 2]), [[Some(0)]]);
}

#[test]
fn skip_says_where_the_next_match_may_start() {
    let clauses = |skip: &str| {
        format!(
            "ORDER BY ts MEASURES FIRST(id) AS a, LAST(id) AS b {skip} \
             PATTERN (A B C) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.x > 0"
        )
    };
    let starts = |skip: &str| -> Vec<i64> {
        simple(&clauses(skip), &[1; 7]).into_iter().map(|row| row[0].expect("an id")).collect()
    };
    assert_eq!(starts("AFTER MATCH SKIP PAST LAST ROW"), [0, 3]);
    assert_eq!(starts("AFTER MATCH SKIP TO NEXT ROW"), [0, 1, 2, 3, 4]);
    assert_eq!(starts(""), [0, 1, 2, 3, 4], "the default");
    assert_eq!(starts("AFTER MATCH SKIP TO FIRST B"), [0, 1, 2, 3, 4]);
    assert_eq!(starts("AFTER MATCH SKIP TO LAST C"), [0, 2, 4]);
}

#[test]
fn a_match_from_which_skip_cannot_go_on_is_an_error() {
    let clauses = "ORDER BY ts MEASURES FIRST(id) AS a AFTER MATCH SKIP TO LAST B \
                   PATTERN (A B? C) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.x = 1, B AS B.x = 2, C AS C.x = 3";
    let rows: Vec<Input> =
        [1, 3, 1, 2, 3].iter().enumerate().map(|(i, x)| Input { time: i as i64, key: "a", x: *x, bits: 0 }).collect();
    let given = run(&mut operator(clauses), &rows, 1, |_| 1);
    assert_eq!((given.rows, given.errors), (vec![vec![Some(2)]], 1));
}

#[test]
fn a_failing_condition_does_not_hold_and_a_failing_output_does_not_leave() {
    let rows: Vec<Input> =
        [1, 0, 2, 5].iter().enumerate().map(|(i, x)| Input { time: i as i64, key: "a", x: *x, bits: 0 }).collect();
    let condition = "ORDER BY ts MEASURES LAST(id) AS a AFTER MATCH SKIP PAST LAST ROW \
                     PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.x > 0, B AS 10 / B.x > A.x";
    let given = run(&mut operator(condition), &rows, 1, |_| 1);
    assert_eq!((given.rows, given.errors), (Vec::new(), 1), "10 / 0, and 10 / 5 > 2 does not hold");
    let output = "ORDER BY ts MEASURES 10 / LAST(B.x) AS a AFTER MATCH SKIP PAST LAST ROW \
                  PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.x > 0";
    let given = run(&mut operator(output), &rows, 1, |_| 4);
    assert_eq!((given.rows, given.errors), (vec![vec![Some(2)]], 1));
}

#[test]
fn the_time_of_a_match_is_when_it_leaves() {
    // A at 0 could still become a longer match until it is too old; so the one at 1000 waits.
    let clauses = "ORDER BY ts MEASURES FIRST(id) AS a, MATCH_ROWTIME(ts) AS t AFTER MATCH SKIP PAST LAST ROW \
                   PATTERN (A B*? C) WITHIN INTERVAL '5' SECOND DEFINE A AS A.x > 0, B AS B.x > 0, C AS C.x = 9 AND \
                   A.x < 2";
    let row = |time, x| Input { time, key: "a", x, bits: 0 };
    // (2, …): A holds, C does not (A.x is 2); (1, 9): a match that begins later.
    let rows = [row(0, 2), row(1000, 1), row(1500, 9)];
    let given = run(&mut operator(clauses), &rows, 1, |_| 1);
    assert_eq!(given.rows, [[Some(1), Some(5000)]], "at the end of all input: when the first run is too old");
    let later = [rows[0], rows[1], rows[2], row(9000, 0)];
    assert_eq!(run(&mut operator(clauses), &later, 1, |_| 1).rows, [[Some(1), Some(8999)]], "at the watermark");
    let on_time = [row(0, 1), row(1500, 9)];
    assert_eq!(run(&mut operator(clauses), &on_time, 1, |_| 1).rows, [[Some(0), Some(1500)]], "at its last row");
}

#[test]
fn ties_go_by_the_rest_of_order_by_then_arrival_and_late_rows_are_told() {
    let clauses = |order: &str| {
        format!(
            "PARTITION BY k ORDER BY ts{order} MEASURES A.x AS a, B.x AS b, C.x AS c AFTER MATCH SKIP PAST LAST ROW \
             PATTERN (A B C) WITHIN INTERVAL '1' SECOND DEFINE A AS TRUE"
        )
    };
    let row = |time, x| Input { time, key: "a", x, bits: 0 };
    let rows = [row(5, 2), row(5, 3), row(5, 1), row(100, 0), row(5, 9)];
    let values = |order: &str| run(&mut operator(&clauses(order)), &rows, 10, |_| 2);
    let key = Some(97);
    assert_eq!(values("").rows, [[key, Some(2), Some(3), Some(1)]]);
    assert_eq!(values(", x").rows, [[key, Some(1), Some(2), Some(3)]]);
    assert_eq!(values(" ASC, x DESC").rows, [[key, Some(3), Some(2), Some(1)]]);
    assert_eq!(values("").late, 1);
}

#[test]
fn state_does_not_grow_with_time() {
    let clauses = "PARTITION BY k ORDER BY ts MEASURES FIRST(id) AS a \
                   PATTERN (A B* C) WITHIN INTERVAL '1' MINUTE DEFINE B AS B.x > A.x, C AS C.x < 0";
    let mut operator = operator(clauses);
    let rows: Vec<Input> = (0..30 * 24 * 60)
        .map(|minute| Input { time: minute * 60_000, key: ["a", "b"][minute as usize % 2], x: minute % 5, bits: 0 })
        .collect();
    run(&mut operator, &rows[..2000], 1000, |_| 100);
    run(&mut operator, &rows[2000..], 1000, |_| 1000);
    assert_eq!(operator.state.entries(ROWS).count() + operator.state.entries(KEYS).count(), 0, "all is too old");
    let open: Vec<i64> = operator.state.namespaces().iter().copied().filter(|time| *time > ROWS).collect();
    assert_eq!(open, Vec::<i64>::new());
}

/// Deterministic random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What a variable asks of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asks {
    Nothing,
    Bit,
    /// More than the variable's row before.
    Rises,
    /// The variable's sum with it is less than 12.
    SumBelow,
    /// Not less than the match's first row.
    AtLeastFirst,
}

#[derive(Clone, Debug)]
struct Quantified {
    asks: Asks,
    least: usize,
    most: Option<usize>,
    greedy: bool,
    text: &'static str,
}

const QUANTIFIERS: [(&str, usize, Option<usize>, bool); 15] = [
    ("", 1, Some(1), false),
    ("", 1, Some(1), false),
    ("?", 0, Some(1), false),
    ("*", 0, None, true),
    ("*?", 0, None, false),
    ("+", 1, None, true),
    ("+?", 1, None, false),
    ("{2}", 2, Some(2), false),
    ("{2}?", 2, Some(2), false),
    ("{2,}", 2, None, true),
    ("{2,}?", 2, None, false),
    ("{1,3}", 1, Some(3), true),
    ("{1,3}?", 1, Some(3), false),
    ("{,2}", 0, Some(2), true),
    ("{,2}?", 0, Some(2), false),
];

const NAMES: [&str; 4] = ["A", "B", "C", "D"];

fn pattern(random: &mut Random) -> Vec<Quantified> {
    loop {
        let pattern: Vec<Quantified> = (0..1 + random.below(4))
            .map(|_| {
                let (text, least, most, greedy) = QUANTIFIERS[random.below(15) as usize];
                let asks =
                    [Asks::Nothing, Asks::Bit, Asks::Bit, Asks::Bit, Asks::Rises, Asks::SumBelow, Asks::AtLeastFirst];
                Quantified { asks: asks[random.below(7) as usize], least, most, greedy, text }
            })
            .collect();
        let ends = pattern.last().is_some_and(|last| !last.greedy);
        if ends && pattern.iter().any(|q| q.least > 0) && pattern.iter().any(|q| q.asks != Asks::Nothing) {
            return pattern;
        }
    }
}

/// A way through the pattern so far: the first row, and the number of rows of each variable.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    first: usize,
    counts: [usize; 4],
    /// The variable of its last row.
    at: usize,
}

struct Naive<'a> {
    pattern: &'a [Quantified],
    rows: &'a [Input],
}

impl Naive<'_> {
    fn is(&self, variable: usize, way: &Way, row: usize) -> bool {
        let before: usize = way.counts[..variable].iter().sum();
        let own = way.first + before..way.first + before + way.counts[variable];
        let x = self.rows[row].x;
        match self.pattern[variable].asks {
            Asks::Nothing => true,
            Asks::Bit => self.rows[row].bits >> variable & 1 == 1,
            Asks::Rises => own.last().is_none_or(|last| x > self.rows[last].x),
            Asks::SumBelow => own.map(|row| self.rows[row].x).sum::<i64>() + x < 12,
            Asks::AtLeastFirst => x >= self.rows[way.first].x,
        }
    }

    /// Whether a row cannot leave for this variable, because the greedy one before would take it.
    fn held(&self, variable: usize, way: &Way, row: usize) -> bool {
        variable.checked_sub(1).is_some_and(|before| self.pattern[before].greedy && self.is(before, way, row))
    }

    /// The variables as which a row can be taken where none of `variable` is taken yet.
    fn begin(&self, variable: usize, way: &Way, row: usize) -> Vec<usize> {
        if variable == self.pattern.len() || self.held(variable, way, row) {
            return Vec::new();
        }
        let mut found = Vec::new();
        if self.is(variable, way, row) {
            found.push(variable);
        }
        if self.pattern[variable].least == 0 {
            found.extend(self.begin(variable + 1, way, row));
        }
        found
    }

    fn next(&self, way: &Way, row: usize) -> Vec<usize> {
        let Quantified { least, most, .. } = self.pattern[way.at];
        let taken = way.counts[way.at];
        let mut found = Vec::new();
        if most.is_none_or(|most| taken < most) && self.is(way.at, way, row) {
            found.push(way.at);
        }
        if taken >= least.max(1) {
            found.extend(self.begin(way.at + 1, way, row));
        }
        found
    }

    /// Whether the match is complete with the row that was taken last, `way` being what was before it.
    fn ends(&self, taken: &Way, way: &Way, row: usize) -> bool {
        taken.counts[taken.at] >= self.pattern[taken.at].least.max(1)
            && (taken.at + 1..self.pattern.len())
                .all(|variable| self.pattern[variable].least == 0 && !self.held(variable, way, row))
    }

    /// Checks the matches that were given against those that there are.
    fn check(&self, skip: &str, target: usize, within_ms: i64, given: &[(usize, [usize; 4])]) -> Result<(), String> {
        let mut given = given.iter();
        let (mut open, mut complete): (Vec<Way>, Vec<Way>) = (Vec::new(), Vec::new());
        let mut leave = |open: &mut Vec<Way>, complete: &mut Vec<Way>| -> Result<(), String> {
            while let Some(first) = complete.iter().map(|way| way.first).min() {
                if open.iter().any(|way| way.first < first) {
                    break;
                }
                let Some((start, counts)) = given.next() else { return Err(format!("{complete:?} is missing")) };
                let found =
                    complete.iter().find(|way| way.first == first && way.first == *start && way.counts == *counts);
                let Some(way) = found else { return Err(format!("{start} {counts:?} is none of {complete:?}")) };
                let before: usize = way.counts[..target].iter().sum();
                let until = way.first
                    + match skip {
                        "PAST LAST ROW" => way.counts.iter().sum(),
                        "TO NEXT ROW" => 1,
                        "TO FIRST" => before,
                        _ => before + way.counts[target] - 1,
                    };
                open.retain(|way| way.first >= until);
                complete.retain(|way| way.first >= until);
            }
            Ok(())
        };
        for row in 0..self.rows.len() {
            let time = self.rows[row].time;
            open.retain(|way| time - self.rows[way.first].time < within_ms);
            leave(&mut open, &mut complete)?;
            let start = Way { first: row, counts: [0; 4], at: 0 };
            let begun = self.begin(0, &start, row).into_iter().map(|variable| (start.clone(), variable));
            let went_on = open.iter().flat_map(|way| self.next(way, row).into_iter().map(|v| (way.clone(), v)));
            let taken: Vec<(Way, usize)> = went_on.chain(begun).collect();
            open.clear();
            for (way, variable) in taken {
                let mut next = Way { at: variable, ..way.clone() };
                next.counts[variable] += 1;
                if self.ends(&next, &way, row) {
                    complete.push(next.clone());
                }
                let Quantified { most, .. } = self.pattern[variable];
                if most.is_none_or(|most| next.counts[variable] < most) || variable + 1 < self.pattern.len() {
                    open.push(next);
                }
            }
            leave(&mut open, &mut complete)?;
        }
        open.clear();
        leave(&mut open, &mut complete)?;
        given.next().map_or(Ok(()), |more| Err(format!("{more:?} is too much")))
    }
}

#[test]
fn random_patterns_match_as_a_naive_matcher_says_whatever_the_cuts() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut matches, mut late, mut ties) = (0, 0, 0);
    for _ in 0..600 {
        let pattern = pattern(&mut random);
        let targets: Vec<usize> = (1..pattern.len())
            .filter(|v| pattern[*v].least > 0 && pattern[..*v].iter().any(|before| before.least > 0))
            .collect();
        let skips = if targets.is_empty() { 2 } else { 4 };
        let skip = ["PAST LAST ROW", "TO NEXT ROW", "TO FIRST", "TO LAST"][random.below(skips) as usize];
        let target = targets.get(random.below(targets.len().max(1) as u64) as usize).copied().unwrap_or(0);
        let to = if skip.len() < 9 { NAMES[target] } else { "" };
        let within_ms = 3 + random.below(12) as i64;
        let text: Vec<String> = pattern.iter().zip(NAMES).map(|(q, name)| format!("{name}{}", q.text)).collect();
        let mut define = Vec::new();
        for (variable, (quantified, name)) in pattern.iter().zip(NAMES).enumerate() {
            define.push(match quantified.asks {
                Asks::Nothing => continue,
                Asks::Bit => format!("{name} AS {name}.b{variable}"),
                Asks::Rises => format!("{name} AS {name}.x > LAST({name}.x, 1) OR LAST({name}.x, 1) IS NULL"),
                Asks::SumBelow => format!("{name} AS SUM({name}.x) < 12"),
                Asks::AtLeastFirst => format!("{name} AS x >= FIRST(x)"),
            });
        }
        let counts: Vec<String> =
            NAMES[..pattern.len()].iter().map(|name| format!("COUNT({name}.x) AS n{name}")).collect();
        let clauses = format!(
            "PARTITION BY k ORDER BY ts MEASURES FIRST(id) AS i, {} AFTER MATCH SKIP {skip} {to} PATTERN ({}) \
             WITHIN INTERVAL '0.{within_ms:03}' SECOND DEFINE {}",
            counts.join(", "),
            text.join(" "),
            define.join(", ")
        );
        let mut time = 0;
        let rows: Vec<Input> = (0..30)
            .map(|_| {
                time += random.below(3) as i64;
                let key = ["a", "b"][random.below(2) as usize];
                let bits = (random.below(16) | random.below(16)) as u8;
                Input { time: (time - random.below(4) as i64).max(0), key, x: random.below(6) as i64, bits }
            })
            .collect();
        let (delay_ms, cut) = (1 + random.below(4) as i64, 1 + random.below(9) as usize);
        let given = run(&mut operator(&clauses), &rows, delay_ms, |_| 1);
        let cuts = run(&mut operator(&clauses), &rows, delay_ms, |at| 1 + at % cut);
        assert_eq!(given.rows, cuts.rows, "other cuts give other rows: {clauses}\n{rows:?}");
        let mut newest = EventTime::MIN / 2;
        let mut by_key: BTreeMap<&str, Vec<(EventTime, usize)>> = BTreeMap::new();
        for (id, row) in rows.iter().enumerate() {
            match row.time > newest - delay_ms {
                true => by_key.entry(row.key).or_default().push((row.time, id)),
                false => late += 1,
            }
            newest = newest.max(row.time);
        }
        for (key, ids) in &mut by_key {
            ids.sort();
            ties += ids.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
            let own: Vec<Input> = ids.iter().map(|(_, id)| rows[*id]).collect();
            let of_key = given.rows.iter().filter(|row| row[0] == Some(i64::from(key.as_bytes()[0])));
            let given: Vec<(usize, [usize; 4])> = of_key
                .map(|row| {
                    let mut counts = [0; 4];
                    counts.iter_mut().zip(&row[2..]).for_each(|(count, n)| *count = n.expect("a count") as usize);
                    let first = ids.iter().position(|(_, id)| Some(*id as i64) == row[1]).expect("a row of the key");
                    (first, counts)
                })
                .collect();
            matches += given.len();
            let naive = Naive { pattern: &pattern, rows: &own };
            naive
                .check(skip, target, within_ms, &given)
                .unwrap_or_else(|problem| panic!("{problem}\n{clauses}\n{own:#?}\ngiven: {given:?}"));
        }
    }
    println!("{matches} matches, {late} late rows, {ties} ties");
    assert!(matches > 1200 && late > 200 && ties > 200, "{matches} matches, {late} late rows, {ties} ties");
}
