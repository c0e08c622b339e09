//! Small cases with written answers: what random queries once found, by Flink's sources, and `state_ttl` on log time.

use forebay::config::{self, Config};
use serde_json::Value as Json;

use crate::engine::{Play, play};
use crate::generate::SOURCES;
use crate::interpreter::{Output, interpret};
use crate::log::{Log, Record};
use crate::value::{same, timestamp_text};

const MINUTE_MS: i64 = 60_000;

fn pipeline(sql: &str, ttl: &str) -> Config {
    let mut text = format!("[pipeline]\nname = \"case\"\nstate = \"unused\"\n{SOURCES}");
    text += &format!("[query.q]\nsql = '''{sql}'''\nstate_ttl = \"{ttl}\"\n");
    for (sink, from) in [("rows", "q"), ("late", "q.late"), ("errors", "q.errors")] {
        text += &format!("[sink.{sink}]\ntype = \"file\"\npath = \"{sink}\"\nfrom = \"{from}\"\n");
    }
    config::parse("case.toml", &text).unwrap_or_else(|problems| panic!("{sql}\n{problems}"))
}

/// A row: log time and event time in ms since some midnight, source, other columns.
fn row(log_ms: i64, time_ms: i64, source: &str, columns: &str) -> (i64, Record) {
    let ts = timestamp_text((1_775_088_000_000 + time_ms) * 1000, 3, 'T') + "Z";
    let line = format!("{{\"ts\":\"{ts}\",{columns}}}");
    (log_ms * 1000, Record::Data { source: source.to_owned(), line })
}

fn tick(log_ms: i64) -> (i64, Record) {
    (log_ms * 1000, Record::Tick)
}

/// The output, which must be the same for the interpreter and for the engine at every batch size, with checkpoints and
/// crashes anywhere.
fn output(config: &Config, log: Vec<(i64, Record)>) -> Output {
    let log = Log(log);
    let expected = interpret(config, &log);
    for batch_rows in [1, 2, 8192] {
        for seed in 0..20 {
            let found = play(config, &log, Play { batch_rows, seed, checkpoints: seed % 3 });
            let equal = |a: &[Json], b: &[Json]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
            assert!(
                equal(&found.rows, &expected.rows) && equal(&found.late, &expected.late),
                "batches of {batch_rows}, seed {seed}\nengine {found:#?}\ninterpreter {expected:#?}"
            );
        }
    }
    expected
}

/// The values of a column.
fn column(rows: &[Json], name: &str) -> Vec<String> {
    rows.iter().map(|row| row[name].to_string()).collect()
}

/// `TemporalRowTimeJoinOperator` lets go, with each step of the watermark, all versions that it has passed but the last: so
/// one that comes late, behind a later one, is no answer to a late left row.
#[test]
fn a_version_that_comes_late_is_gone_with_the_next_step() {
    let sql = "SELECT p.g, c.gain FROM a AS p LEFT JOIN v FOR SYSTEM_TIME AS OF p.ts AS c ON p.k = c.k";
    let log = vec![
        row(0, 10_000, "v", "\"k\":\"a\",\"gain\":1"),
        row(0, 20_000, "a", "\"k\":\"z\",\"g\":0"),
        row(0, 20_000, "v", "\"k\":\"z\",\"gain\":0"),
        // The watermark is at 18 s. This version is behind that of 10 s.
        row(0, 5000, "v", "\"k\":\"a\",\"gain\":2"),
        // It is valid for a left row of 7 s that comes before the next step,
        row(0, 7000, "a", "\"k\":\"a\",\"g\":1"),
        row(0, 30_000, "a", "\"k\":\"z\",\"g\":2"),
        row(0, 30_000, "v", "\"k\":\"z\",\"gain\":0"),
        // and not for one that comes after it.
        row(0, 7000, "a", "\"k\":\"a\",\"g\":3"),
        row(0, 40_000, "a", "\"k\":\"z\",\"g\":4"),
        row(0, 40_000, "v", "\"k\":\"z\",\"gain\":0"),
    ];
    let rows = output(&pipeline(sql, "0s"), log).rows;
    assert_eq!(column(&rows, "g"), ["1", "0", "3", "2"]);
    assert_eq!(column(&rows, "gain"), ["2.0", "0.0", "null", "0.0"]);
}

/// `RowTimeRangeBoundedPrecedingFunction` looks at a key when it was first to be forgotten, though rows have come since, and
/// takes that for the key's last time.
#[test]
fn a_bounded_range_is_late_by_its_timers_too() {
    let sql = "SELECT g, COUNT(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT \
               ROW) AS n FROM a";
    let log = vec![
        row(0, 10_000, "a", "\"k\":\"a\",\"g\":1"),
        row(0, 20_000, "a", "\"k\":\"a\",\"g\":2"),
        // The watermark is at 28 s, behind the first row's 10 + 15 s.
        row(0, 30_000, "a", "\"k\":\"a\",\"g\":3"),
        row(0, 24_000, "a", "\"k\":\"a\",\"g\":4"),
        row(0, 26_000, "a", "\"k\":\"a\",\"g\":5"),
        row(0, 40_000, "a", "\"k\":\"b\",\"g\":6"),
    ];
    let output = output(&pipeline(sql, "0s"), log);
    assert_eq!(column(&output.rows, "g"), ["1", "2", "5", "3"]);
    assert_eq!(column(&output.rows, "n"), ["1", "2", "2", "3"]);
    assert_eq!(output.late.len(), 1);
}

// ---- state_ttl ------------------------------------------------------------------------------------------------------

/// A key's second row is a first one again when its first one left so long ago, in log time: event time stands almost still
/// here. Ticks are log time, too.
#[test]
fn a_deduplicated_key_is_forgotten_by_log_time() {
    let sql = "SELECT k, g FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS rn FROM a) WHERE rn = 1";
    let log = || {
        vec![
            row(0, 10_000, "a", "\"k\":\"a\",\"g\":1"),
            row(0, 10_000, "a", "\"k\":\"b\",\"g\":2"),
            // Both leave here.
            row(MINUTE_MS, 12_000, "a", "\"k\":\"c\",\"g\":3"),
            row(2 * MINUTE_MS - 1, 12_001, "a", "\"k\":\"a\",\"g\":4"),
            tick(2 * MINUTE_MS),
            row(2 * MINUTE_MS, 12_002, "a", "\"k\":\"a\",\"g\":5"),
            row(3 * MINUTE_MS, 20_000, "a", "\"k\":\"b\",\"g\":6"),
            row(3 * MINUTE_MS, 30_000, "a", "\"k\":\"b\",\"g\":7"),
        ]
    };
    assert_eq!(column(&output(&pipeline(sql, "0s"), log()).rows, "g"), ["1", "2", "3"]);
    assert_eq!(column(&output(&pipeline(sql, "1m"), log()).rows, "g"), ["1", "2", "3", "5", "6"]);
    // Longer than that, nothing is forgotten.
    assert_eq!(column(&output(&pipeline(sql, "2m1s"), log()).rows, "g"), ["1", "2", "3"]);
}

/// Every row of the key is a use, also one that only waits; what has no bound but the number of keys begins anew, and a
/// RANGE that time bounds does not.
#[test]
fn over_begins_anew_after_the_ttl() {
    let log = || {
        vec![
            row(0, 1000, "a", "\"k\":\"a\",\"g\":1"),
            row(MINUTE_MS, 2000, "a", "\"k\":\"a\",\"g\":2"),
            row(2 * MINUTE_MS - 1, 3000, "a", "\"k\":\"a\",\"g\":3"),
            row(2 * MINUTE_MS, 9000, "a", "\"k\":\"b\",\"g\":0"),
            row(3 * MINUTE_MS, 10_000, "a", "\"k\":\"a\",\"g\":4"),
            row(3 * MINUTE_MS, 20_000, "a", "\"k\":\"b\",\"g\":0"),
        ]
    };
    let of = |frame: &str, function: &str, ttl: &str| {
        let sql = format!("SELECT k, {function} OVER (PARTITION BY k ORDER BY ts {frame}) AS n FROM a");
        let rows = output(&pipeline(&sql, ttl), log()).rows;
        column(&rows.into_iter().filter(|row| row["k"] == "a").collect::<Vec<_>>(), "n")
    };
    let unbounded = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW";
    assert_eq!(of(unbounded, "SUM(g)", "0s"), ["1", "3", "6", "10"]);
    // The three rows left at 2 min: a minute before the fourth came.
    assert_eq!(of(unbounded, "SUM(g)", "1m"), ["1", "3", "6", "4"]);
    assert_eq!(of(unbounded, "SUM(g)", "1m1s"), ["1", "3", "6", "10"]);
    assert_eq!(of("ROWS BETWEEN 5 PRECEDING AND CURRENT ROW", "SUM(g)", "1m"), ["1", "3", "6", "4"]);
    assert_eq!(of("", "LAG(g)", "1m"), ["null", "1", "2", "null"]);
    assert_eq!(of("", "CHANGED(1)", "1m"), ["true", "false", "false", "true"]);
    assert_eq!(
        of("RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW", "SUM(g)", "1m"),
        ["1", "3", "6", "10"]
    );
}

/// A version is used by every row of its key, of either side.
#[test]
fn versions_are_forgotten_after_the_ttl() {
    let sql = "SELECT p.g, c.gain FROM a AS p LEFT JOIN v FOR SYSTEM_TIME AS OF p.ts AS c ON p.k = c.k";
    let log = || {
        let both = |log_ms: i64, time_ms: i64, g: i64| {
            [
                row(log_ms, time_ms, "a", &format!("\"k\":\"a\",\"g\":{g}")),
                row(log_ms, time_ms + 2000, "v", "\"k\":\"z\",\"gain\":0"),
                row(log_ms, time_ms + 2000, "a", "\"k\":\"z\",\"g\":0"),
            ]
        };
        let mut log = vec![row(0, 1000, "v", "\"k\":\"a\",\"gain\":1")];
        log.extend(both(MINUTE_MS - 1, 10_000, 1));
        log.extend(both(2 * MINUTE_MS - 2, 20_000, 2));
        log.extend(both(3 * MINUTE_MS - 2, 30_000, 3));
        log.push(row(3 * MINUTE_MS, 60_000, "a", "\"k\":\"z\",\"g\":0"));
        log.push(row(3 * MINUTE_MS, 60_000, "v", "\"k\":\"z\",\"gain\":0"));
        log
    };
    let of = |ttl: &str| {
        let rows = output(&pipeline(sql, ttl), log()).rows;
        column(&rows.into_iter().filter(|row| row["g"] != 0).collect::<Vec<_>>(), "gain")
    };
    assert_eq!(of("0s"), ["1.0", "1.0", "1.0"]);
    assert_eq!(of("1m"), ["1.0", "1.0", "null"]);
}
