//! Thirty days of event time through every operator whose state time bounds: what is stored, and the memory that it takes,
//! stay the same from the second day to the last. Operators that only the number of keys bounds run along, with as many keys.

use forebay::config::{self, Config};
use forebay::event::{Frame, LogTime, Lsn, RecordKind, Run};

use crate::engine::Pipeline;
use crate::value::timestamp_text;

const DAYS: i64 = 30;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// From one row of a source to its next.
const STEP_MS: i64 = 240_000;
const KEYS: i64 = 8;

/// What only the number of keys bounds, with keys that come and go.
const FIRST: &str =
    "SELECT ts, k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM a) WHERE rn = 1";
/// The query without `state_ttl`, which must grow.
const GROWING: &str = "growing";
/// The same with `state_ttl`.
const FORGETTING: &str = "forgetting";

/// Name, text.
const QUERIES: [(&str, &str); 25] = [
    (GROWING, FIRST),
    (FORGETTING, FIRST),
    (
        "tumble",
        "SELECT window_start, window_end, k, SUM(x) AS s FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' MINUTE) GROUP BY window_start, window_end, k",
    ),
    (
        "hop",
        "SELECT window_start, window_end, k, AVG(x) AS s FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL '1' HOUR) GROUP BY window_start, window_end, k",
    ),
    (
        "cumulate",
        "SELECT window_start, window_end, COUNT(*) AS n FROM CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '6' HOUR) GROUP BY window_start, window_end",
    ),
    (
        "session_rows",
        "SELECT k, x, window_end FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
    ),
    ("interval_unkeyed", "SELECT p.k, q.y FROM a AS p JOIN b AS q ON p.ts BETWEEN q.ts - INTERVAL '5' MINUTE AND q.ts"),
    (
        "session",
        "SELECT window_start, window_end, k, COUNT(*) AS n FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE) GROUP BY window_start, window_end, k",
    ),
    (
        "cascade",
        "SELECT window_start, window_end, MAX(n) AS n FROM TUMBLE((SELECT window_time AS rt, COUNT(*) AS n FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' MINUTE) GROUP BY window_start, window_end, window_time, k), DESCRIPTOR(rt), INTERVAL '1' HOUR) GROUP BY window_start, window_end",
    ),
    (
        "sets",
        "SELECT window_start, window_end, k, g, LISTAGG(k) AS l FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' MINUTE) GROUP BY window_start, window_end, CUBE (k, g)",
    ),
    (
        "topn",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY x DESC) AS rn FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE rn <= 3",
    ),
    (
        "last",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY ts DESC) AS rn FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE rn = 1",
    ),
    (
        "interval_inner",
        "SELECT p.ts, p.k, q.y FROM a AS p JOIN b AS q ON p.k = q.k AND p.ts BETWEEN q.ts - INTERVAL '30' MINUTE AND q.ts + INTERVAL '5' MINUTE",
    ),
    (
        "interval_left",
        "SELECT p.ts, p.k, q.y FROM a AS p LEFT JOIN b AS q ON p.k = q.k AND p.ts BETWEEN q.ts - INTERVAL '30' MINUTE AND q.ts",
    ),
    (
        "interval_right",
        "SELECT q.ts, p.k, q.y FROM a AS p RIGHT JOIN b AS q ON p.k = q.k AND p.ts BETWEEN q.ts - INTERVAL '30' MINUTE AND q.ts",
    ),
    (
        "interval_full",
        "SELECT p.k, q.y FROM a AS p FULL JOIN b AS q ON p.k = q.k AND p.ts BETWEEN q.ts - INTERVAL '30' MINUTE AND q.ts",
    ),
    (
        "window_join",
        "SELECT p.k, q.y FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '20' MINUTE)) p FULL JOIN (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '20' MINUTE)) q ON p.k = q.k AND p.window_start = q.window_start AND p.window_end = q.window_end",
    ),
    (
        "window_semi",
        "SELECT k FROM (SELECT * FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '20' MINUTE)) p WHERE EXISTS (SELECT * FROM (SELECT * FROM TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '20' MINUTE)) q WHERE p.k = q.k AND p.window_start = q.window_start AND p.window_end = q.window_end)",
    ),
    (
        "over_range",
        "SELECT ts, k, SUM(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS s FROM a",
    ),
    (
        "over_rows",
        "SELECT ts, k, SUM(x) OVER (PARTITION BY g ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS s FROM a",
    ),
    ("lag", "SELECT ts, k, LAG(x, 2) OVER (PARTITION BY g ORDER BY ts) AS s FROM a"),
    ("rank", "SELECT ts, k, RANK() OVER (PARTITION BY g ORDER BY ts) AS s FROM a"),
    ("edge", "SELECT ts, k, EWMA(x, INTERVAL '1' HOUR) OVER (PARTITION BY g ORDER BY ts) AS s FROM a"),
    ("first", "SELECT ts, g FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY ts) AS rn FROM a) WHERE rn = 1"),
    ("temporal", "SELECT p.ts, p.k, c.gain FROM a AS p LEFT JOIN v FOR SYSTEM_TIME AS OF p.ts AS c ON p.g = c.g"),
];

/// All queries, each with a sink. Keys `k` are new every day; `g` are always the same.
fn pipeline() -> Config {
    let mut text = "[pipeline]\nname = \"days\"\nstate = \"unused\"\n".to_owned();
    for (source, own) in [("a", "x = \"DOUBLE\""), ("b", "y = \"DOUBLE\""), ("v", "gain = \"DOUBLE\"")] {
        text += &format!(
            "[source.{source}]\ntype = \"file\"\npath = \"unused\"\ncolumns = {{ ts = \"TIMESTAMP_LTZ(3)\", k = \"STRING\", g = \
             \"INT\", {own} }}\ntime = {{ column = \"ts\", max_out_of_orderness = \"10s\" }}\n"
        );
        if source == "v" {
            text += "key = [\"g\"]\n";
        }
    }
    for (name, sql) in QUERIES {
        let ttl = if name == FORGETTING { "state_ttl = \"1d\"\n" } else { "" };
        text +=
            &format!("[query.{name}]\nsql = '''{sql}'''\n{ttl}[sink.{name}]\ntype = \"stdout\"\nfrom = \"{name}\"\n");
    }
    config::parse("days.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// What a pipeline holds: stored entries by operator, and bytes of memory by operator, right after a checkpoint.
#[derive(Debug)]
struct Held {
    entries: Vec<(String, usize)>,
    bytes: Vec<(String, usize)>,
}

fn held(pipeline: &mut Pipeline<'_>) -> Held {
    let bytes =
        pipeline.engine.states().map(|operator| (operator.name.to_owned(), operator.state.memory_bytes())).collect();
    pipeline.checkpoint();
    Held { entries: pipeline.stored_entries(), bytes }
}

/// See the module.
#[test]
fn thirty_days_take_no_more_state_than_two() {
    let config = pipeline();
    let mut pipeline = Pipeline::new(&config, 8192);
    let start_ms = 1_775_088_000_000;
    let mut lsn = 1;
    let mut second: Option<Held> = None;
    for day in 0..DAYS {
        let mut runs: Vec<Run> = Vec::new();
        for step in 0..DAY_MS / STEP_MS {
            let time_ms = start_ms + day * DAY_MS + step * STEP_MS;
            for (source, shift_ms) in [("a", 0), ("b", 700), ("v", 900)] {
                // Some rows are a bit late, few of them too late.
                let early = if step % 7 == 0 { step % 5 * 60_000 } else { 0 };
                let ts = timestamp_text((time_ms + shift_ms - early) * 1000, 3, 'T') + "Z";
                let key = step % KEYS;
                let value = match source {
                    "a" => "x",
                    "b" => "y",
                    _ => "gain",
                };
                let line = format!("{{\"ts\":\"{ts}\",\"k\":\"day {day} {key}\",\"g\":{key},\"{value}\":{step}}}");
                let id = pipeline.id(source);
                // What is forgotten by log time makes a batch of each: one an hour will do.
                let arrival = LogTime(time_ms / HOUR_MS * HOUR_MS * 1000);
                runs.push(Run::one(id, RecordKind::Data, arrival, line.as_bytes()));
            }
        }
        let count = runs.len() as u64;
        pipeline.step(&Frame { first_lsn: Lsn(lsn), runs });
        lsn += count;
        let now = held(&mut pipeline);
        if day == 1 {
            assert_eq!(now.bytes.len(), QUERIES.len() + 1, "every query keeps something (a cascade twice): {now:?}");
            assert!(now.entries.iter().all(|(_, count)| *count > 0), "{now:?}");
            second = Some(now);
            continue;
        }
        if let Some(second) = &second {
            for (what, before, after) in
                [("entries", &second.entries, &now.entries), ("bytes", &second.bytes, &now.bytes)]
            {
                let bounded = before.iter().zip(after).filter(|((name, _), _)| !name.starts_with(GROWING));
                for ((name, before), (_, after)) in bounded {
                    assert!(
                        after <= &(before * 3 / 2 + 16),
                        "{name}: {before} {what} on day 2, {after} on day {}",
                        day + 1
                    );
                }
            }
        }
    }
    for (name, _) in QUERIES {
        assert!(!pipeline.lines(name).is_empty(), "{name} gives rows");
    }
    let second = second.expect("a second day");
    let growing = |held: &Held| {
        held.entries.iter().filter(|(name, _)| name.starts_with(GROWING)).map(|(_, count)| count).sum::<usize>()
    };
    let last = held(&mut pipeline);
    assert!(growing(&last) > 10 * growing(&second), "the test would see growth: {second:?}, {last:?}");
    let sum = |list: &[(String, usize)]| list.iter().map(|(_, count)| count).sum::<usize>();
    println!("{} entries, {} bytes on day 2", sum(&second.entries), sum(&second.bytes));
}
