//! Flink's answers (`tests/conformance/`), and independence of batches: each case runs at batch sizes 1, 7 and 8192, with
//! random runs and frames, checkpoints at random moments and a crash in the middle (everything in memory is dropped, the
//! state is opened again and the log replayed). The rows must be Flink's, and the bytes the same at every size.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay::config::{self, Config};
use forebay::disk::RealDisk;
use forebay::engine::ahead::Ahead;
use forebay::engine::choices::Choices;
use forebay::engine::open::{Opened, Start, commit_now, open};
use forebay::event::{Frame, RecordKind, Run, SourceId};
use forebay::replay_log::{LogReader, log_dir};
use serde_json::Value;

use crate::support::{Place, Random, until};

const BATCH_ROWS: [usize; 3] = [1, 7, 8192];

/// The tables as they were declared in Flink: name, columns, watermark's distance.
pub const TABLES: [(&str, &str, &str); 6] = [
    (
        "plant",
        r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", site = "STRING", temp = "DOUBLE", hum = "DOUBLE", pulses = "INT", ok = "BOOLEAN", seq = "BIGINT""#,
        "2s",
    ),
    (
        "steady",
        r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", site = "STRING", temp = "DOUBLE", hum = "DOUBLE", pulses = "INT", ok = "BOOLEAN", seq = "BIGINT""#,
        "1ms",
    ),
    ("alarm", r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", level = "INT", msg = "STRING""#, "1ms"),
    ("calib", r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", gain = "DOUBLE", bias = "DOUBLE""#, "1ms"),
    (
        "burst",
        r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", samples = "ARRAY<DOUBLE>", pos = "ROW<lat DOUBLE, lon DOUBLE>", price = "DECIMAL(10, 2)", qty = "INT", doc = "STRING""#,
        "1s",
    ),
    ("dst", r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE""#, "10m"),
];

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// A case's pipeline: one query, one file.
fn pipeline(place: &Place, sql: &str) -> (Config, Vec<&'static str>) {
    let zone = sql.lines().next().and_then(|line| line.strip_prefix("-- time_zone: ")).unwrap_or("UTC").trim();
    let used: Vec<&'static str> = TABLES
        .iter()
        .map(|(name, _, _)| *name)
        .filter(|name| sql.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == *name))
        .collect();
    let root = place.dir.path().display();
    let mut text = format!("[pipeline]\nname = \"case\"\nstate = \"{root}/state\"\ntime_zone = \"{zone}\"\n");
    text += "[log]\nmax_size = \"8MiB\"\nsegment = \"256KiB\"\n";
    for (name, columns, distance) in TABLES.iter().filter(|(name, _, _)| used.contains(name)) {
        text += &format!(
            "[source.{name}]\ntype = \"file\"\npath = \"unused\"\ncolumns = {{ {columns} }}\n\
             time = {{ column = \"ts\", max_out_of_orderness = \"{distance}\" }}\n"
        );
        if *name == "calib" {
            text += "key = [\"device\"]\n";
        }
    }
    text += &format!("[query.q]\nsql = '''\n{sql}\n'''\n");
    text += &format!("[sink.rows]\ntype = \"file\"\nfrom = \"q\"\npath = \"{root}/rows.ndjson\"\n");
    text += &format!("[sink.late]\ntype = \"file\"\nfrom = \"q.late\"\npath = \"{root}/late.ndjson\"\n");
    let config = config::parse("case.toml", &text).unwrap_or_else(|problems| panic!("{sql}\n{problems}"));
    (config, used)
}

/// How two inputs interleave.
#[derive(Clone, Copy, Debug)]
enum Order {
    FirstFirst,
    SecondFirst,
    Alternating,
}

fn interleaved(inputs: &[(usize, Vec<String>)], order: Order) -> Vec<(usize, String)> {
    let tagged =
        |(source, lines): &(usize, Vec<String>)| lines.iter().map(|line| (*source, line.clone())).collect::<Vec<_>>();
    let mut all: Vec<Vec<(usize, String)>> = inputs.iter().map(tagged).collect();
    match order {
        Order::FirstFirst => all.concat(),
        Order::SecondFirst => {
            all.reverse();
            all.concat()
        }
        Order::Alternating => {
            let longest = all.iter().map(Vec::len).max().unwrap_or(0);
            (0..longest)
                .flat_map(|i| all.iter().filter_map(|lines| lines.get(i).cloned()).collect::<Vec<_>>())
                .collect()
        }
    }
}

fn opened(config: &Config, batch_rows: usize) -> Opened {
    // A process that another test is just starting has this one's lock for a moment, until it runs its own program.
    let start =
        until(Duration::from_secs(10), "the lock is free", || match open(config, batch_rows, &Choices::default()) {
            Err(error) if error.exit_code() == 75 => None,
            start => Some(start.unwrap_or_else(|error| panic!("opens: {error}"))),
        });
    match start {
        Start::Go(opened) => *opened,
        Start::Finished(_) => panic!("the state is finished already"),
    }
}

/// What a case gave: rows and late rows, as bytes.
pub struct Given {
    pub rows: String,
    late: String,
}

/// Runs a case with random cuts from `seed`, checkpoints and one crash, decoding ahead on so many threads.
fn play(sql: &str, order: Order, batch_rows: usize, threads: usize, seed: u64) -> Given {
    let mut random = Random(seed);
    let place = Place::new();
    let (config, used) = pipeline(&place, sql);
    let inputs: Vec<(usize, Vec<String>)> = used
        .iter()
        .enumerate()
        .map(|(source, name)| {
            let text = std::fs::read_to_string(home().join(format!("input/{name}.ndjson"))).expect("an input");
            (source, text.lines().map(str::to_owned).collect())
        })
        .collect();
    let lines = interleaved(&inputs, order);
    let crash_at = random.below(lines.len() as u64) as usize;
    let mut crashed = false;
    let mut state = opened(&config, batch_rows);
    let mut ahead = Ahead::start(threads, state.engine.preparer()).expect("threads");
    let mut meta = state.checkpoint.clone();
    let mut next = 0;
    while next < lines.len() {
        // A frame of some runs of some lines.
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..=random.below(4) {
            for (source, line) in lines.iter().skip(next).take(1 + random.below(60) as usize) {
                let name = used[*source];
                let id = state.writer.sources().iter().find(|(_, known)| known == name).expect("a source").0;
                match runs.last_mut() {
                    Some(run) if run.source == id && random.below(20) > 0 => run.push(line.as_bytes()),
                    _ => runs.push(Run::one(id, RecordKind::Data, state.clock.now(), line.as_bytes())),
                }
                next += 1;
            }
        }
        take(&mut state, &mut ahead, runs);
        if random.below(8) == 0 {
            meta = commit_now(&config, &mut state.engine, &meta, &state.store, Vec::new()).expect("commits");
        }
        if !crashed && next >= crash_at {
            crashed = true;
            drop(state);
            state = opened(&config, batch_rows);
            ahead = Ahead::start(threads, state.engine.preparer()).expect("threads");
            meta = state.checkpoint.clone();
            replay(&config, &mut state, &mut ahead);
        }
    }
    let ids: Vec<SourceId> = state.writer.sources().iter().map(|(id, _)| *id).collect();
    for id in ids {
        let end = Run::one(id, RecordKind::EndOfInput, state.clock.now(), &[]);
        take(&mut state, &mut ahead, vec![end]);
    }
    while process(&mut state, &mut ahead) {}
    assert!(state.engine.ended());
    commit_now(&config, &mut state.engine, &meta, &state.store, Vec::new()).expect("commits");
    let counters = state.engine.counters();
    assert!(counters.sources.iter().all(|(_, source)| source.dead == 0), "all input decodes: {counters:?}");
    assert!(counters.queries.iter().all(|(_, query)| query.errors == 0), "no row fails: {counters:?}");
    Given { rows: place.text("rows.ndjson"), late: place.text("late.ndjson") }
}

/// Logs runs and processes frames, as the threads do.
fn take(state: &mut Opened, ahead: &mut Ahead, runs: Vec<Run>) {
    for frame in state.writer.append(runs).expect("logs") {
        push(state, ahead, frame);
    }
}

/// What the threads have no room for is processed.
fn push(state: &mut Opened, ahead: &mut Ahead, frame: Frame) {
    let after = ahead.last_lsn().unwrap_or(state.engine.last_lsn());
    ahead.push(frame, after);
    while !ahead.has_room() && process(state, ahead) {}
}

/// Processes the next frame. Gives whether there was one.
fn process(state: &mut Opened, ahead: &mut Ahead) -> bool {
    let Some(popped) = ahead.pop(state.engine.preparer()) else { return false };
    let (frame, prepared) = popped.expect("the threads run");
    state.engine.take(&frame, prepared).expect("steps");
    state.engine.flush().expect("flushes");
    true
}

fn replay(config: &Config, state: &mut Opened, ahead: &mut Ahead) {
    let next = state.engine.last_lsn().plus(1);
    let mut reader =
        LogReader::open(Arc::new(RealDisk), &log_dir(&config.pipeline.state), next).expect("the log opens");
    while let Some(frame) = reader.next().expect("the log reads") {
        push(state, ahead, frame);
    }
    while process(state, ahead) {}
    state.engine.replayed().expect("no sink is ahead");
}

/// Rows as comparable values: what stands for a decimal or a double becomes a number.
fn rows(text: &str, schema: &BTreeMap<String, String>) -> Vec<Vec<(String, Value)>> {
    let mut rows: Vec<Vec<(String, Value)>> = text
        .lines()
        .map(|line| {
            let row: BTreeMap<String, Value> = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            row.into_iter()
                .map(|(name, value)| {
                    let decimal = schema.get(&name).is_some_and(|t| t == "DECIMAL");
                    let value = match value.as_str().filter(|_| decimal) {
                        Some(digits) => serde_json::json!(digits.parse::<f64>().expect("a decimal")),
                        None => value,
                    };
                    (name, value)
                })
                .collect()
        })
        .collect();
    // A key in which doubles do not decide, so that a last digit cannot change the order.
    rows.sort_by_cached_key(|row| {
        let exact: Vec<String> = row.iter().filter(|(_, v)| !v.is_f64()).map(|(n, v)| format!("{n}={v}")).collect();
        let about: Vec<String> =
            row.iter().filter_map(|(n, v)| Some(format!("{n}={:.6e}", v.as_f64().filter(|_| v.is_f64())?))).collect();
        (exact, about)
    });
    rows
}

fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
        _ => a == b,
    }
}

fn check(name: &str) {
    let path = |kind: &str| home().join(format!("cases/{name}.{kind}"));
    let sql = std::fs::read_to_string(path("sql")).expect("a query");
    let expected = std::fs::read_to_string(path("expected.ndjson")).expect("rows");
    let schema: BTreeMap<String, String> =
        serde_json::from_str(&std::fs::read_to_string(path("schema.json")).expect("a schema")).expect("JSON");
    let expected = rows(&expected, &schema);
    let sources = TABLES.iter().filter(|(table, _, _)| sql.contains(table)).count();
    let orders: &[Order] =
        if sources > 1 { &[Order::FirstFirst, Order::SecondFirst, Order::Alternating] } else { &[Order::FirstFirst] };
    for order in orders {
        let mut bytes: Option<(String, String)> = None;
        for (index, batch_rows) in BATCH_ROWS.iter().enumerate() {
            let given = play(&sql, *order, *batch_rows, index, 1 + index as u64);
            let found = rows(&given.rows, &schema);
            assert_eq!(found.len(), expected.len(), "{name}, {order:?}, batches of {batch_rows}: number of rows");
            for (found, expected) in found.iter().zip(&expected) {
                let equal = found.len() == expected.len()
                    && found.iter().zip(expected).all(|((n, a), (m, b))| n == m && same(a, b));
                assert!(equal, "{name}, {order:?}, batches of {batch_rows}:\n found {found:?}\nwanted {expected:?}");
            }
            let late: String = given.late.lines().map(without_lsn).collect();
            match &bytes {
                None => bytes = Some((given.rows, late)),
                Some((rows, others)) => {
                    assert!(*rows == given.rows, "{name}, {order:?}: batches of {batch_rows} give other bytes");
                    assert!(*others == late, "{name}, {order:?}: batches of {batch_rows} give other late rows");
                }
            }
        }
    }
}

/// A late row without its LSN: starts of the engine take LSNs too.
fn without_lsn(line: &str) -> String {
    let mut row: serde_json::Map<String, Value> = serde_json::from_str(line).expect("a late row");
    row.remove("_lsn");
    Value::Object(row).to_string() + "\n"
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        /// Every case that is there is run.
        #[test]
        fn all_cases_are_run() {
            let run = [$(stringify!($name)),*];
            for entry in std::fs::read_dir(home().join("cases")).expect("cases") {
                let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
                let case = name.split('.').next().unwrap_or_default().to_owned();
                assert!(run.contains(&case.as_str()), "{case} is not run");
            }
        }
    };
}

cases!(
    s01_project,
    s02_null_logic,
    s03_strings,
    s04_casts,
    s05_math,
    s06_time,
    s07_integer_arithmetic,
    s08_case_in_like,
    s09_union_all,
    s10_cte_nested,
    s11_unnest,
    s12_row_fields,
    s13_decimal,
    s14_json_value,
    m01_rise,
    m02_three_hot,
    m03_match_late,
    o01_over_range,
    o02_over_rows,
    o03_over_unbounded,
    o04_lag,
    o05_hop_then_over,
    o06_over_rows_late,
    j01_interval_inner,
    j02_interval_left,
    j03_interval_full,
    j04_temporal,
    j05_temporal_left,
    j06_window_join,
    j07_window_semi,
    j08_interval_left_then_tumble,
    t01_window_topn,
    t02_window_dedup_last,
    t03_dedup_first,
    t04_topn_of_aggregate,
    t05_dedup_first_late,
    w01_tumble_avg,
    w02_tumble_filter_having,
    w03_tumble_global,
    w04_tumble_offset,
    w05_hop,
    w06_cumulate,
    w07_session,
    w08_filter_clause,
    w09_null_groups,
    w10_spread,
    w11_first_last,
    w12_cascade,
    w13_grouping_sets,
    w14_expression_key,
    w15_day_window,
    w16_string_minmax,
    w17_listagg,
    w18_berlin_day,
    w19_berlin_hour,
    w20_berlin_hop,
    w21_decimal_sums,
);

/// Rows counted in windows + late rows = input rows.
#[test]
fn no_row_is_lost_between_windows_and_late_rows() {
    let sql = "SELECT window_start, window_end, device, COUNT(*) AS n \
               FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, device";
    let given = play(sql, Order::FirstFirst, 8192, 1, 3);
    let counted: u64 = given
        .rows
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a row")["n"].as_u64().expect("a count"))
        .sum();
    let late = given.late.lines().count() as u64;
    let input = std::fs::read_to_string(home().join("input/plant.ndjson")).expect("an input").lines().count() as u64;
    assert_eq!((counted, counted + late), (2602, input));
}

/// Plays a query at all batch sizes, with other cuts, checkpoints and crashes each time: the bytes must be the same.
pub fn at_all_batch_sizes(sql: &str) -> Given {
    let mut first: Option<Given> = None;
    for (index, batch_rows) in BATCH_ROWS.iter().enumerate() {
        let given = play(sql, Order::FirstFirst, *batch_rows, index, 40 + index as u64);
        let late = |given: &Given| given.late.lines().map(without_lsn).collect::<String>();
        match &first {
            None => first = Some(given),
            Some(first) => {
                assert!(first.rows == given.rows, "batches of {batch_rows} give other bytes:\n{sql}");
                assert!(late(first) == late(&given), "batches of {batch_rows} give other late rows:\n{sql}");
            }
        }
    }
    first.expect("batch sizes")
}

fn sum_of(rows: &str, column: &str) -> u64 {
    rows.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a row")[column].as_u64().expect("a count"))
        .sum()
}

#[test]
fn every_aggregate_merges_the_same_whatever_the_cuts() {
    let aggregates = "COUNT(*) AS n, COUNT(DISTINCT site) AS sites, SUM(DISTINCT pulses) AS p, AVG(temp) AS t, MIN(ts) AS a, \
                      MAX(device) AS b, STDDEV_SAMP(hum) AS s, VAR_POP(pulses) AS v, FIRST_VALUE(seq) AS f, \
                      LAST_VALUE(seq) AS l, LISTAGG(DISTINCT site, '; ') AS g, PERCENTILE(temp, ARRAY[0.1, 0.5, 0.99]) AS q, \
                      APPROX_PERCENTILE(temp, 0.5) AS aq, APPROX_COUNT_DISTINCT(seq) AS ad";
    let input = std::fs::read_to_string(home().join("input/plant.ndjson")).expect("an input");
    let lines: Vec<Value> = input.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    for window in [
        "HOP(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE, INTERVAL '3' SECOND)",
        "CUMULATE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE, INTERVAL '3' SECOND)",
        "SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '3' SECOND)",
    ] {
        let given = at_all_batch_sizes(&format!(
            "SELECT window_start, window_end, device, {aggregates} FROM {window} GROUP BY window_start, window_end, device"
        ));
        for line in given.rows.lines() {
            let row: Value = serde_json::from_str(line).expect("a row");
            let (n, distinct) = (row["n"].as_f64().expect("a count"), row["ad"].as_f64().expect("a count"));
            assert!((n - distinct).abs() <= 1.0 + 0.03 * n, "{line}");
            // The log's order, not that of event times.
            let first = lines.iter().position(|line| line["seq"] == row["f"]);
            let last = lines.iter().rposition(|line| line["seq"] == row["l"]);
            assert!(first.is_some() && first <= last, "{line}");
            let (exact, about) = (row["q"][1].as_f64(), row["aq"].as_f64());
            assert_eq!(exact.is_some(), about.is_some(), "{line}");
        }
    }
}

#[test]
fn windows_that_end_in_a_skipped_hour_fire_whole() {
    // 30 minutes by 15 across the change to summer time: the wall clock skips from 2:00 to 3:00.
    let given = at_all_batch_sizes(
        "-- time_zone: Europe/Berlin\nSELECT window_start, window_end, COUNT(*) AS n FROM HOP(TABLE dst, DESCRIPTOR(ts), \
         INTERVAL '15' MINUTE, INTERVAL '90' MINUTE) GROUP BY window_start, window_end",
    );
    let input = std::fs::read_to_string(home().join("input/dst.ndjson")).expect("an input").lines().count() as u64;
    assert_eq!(sum_of(&given.rows, "n"), 6 * (input - given.late.lines().count() as u64), "each row in six windows");
}

#[test]
fn rows_that_carry_their_windows_are_grouped_again() {
    let inner = "SELECT window_start, window_end, device, COUNT(*) AS n FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), \
                 INTERVAL '10' SECOND) GROUP BY window_start, window_end, device";
    let given = at_all_batch_sizes(&format!(
        "SELECT window_start, window_end, SUM(n) AS n, COUNT(*) AS devices FROM ({inner}) GROUP BY window_start, window_end"
    ));
    assert_eq!(sum_of(&given.rows, "n"), 2602);
    assert_eq!(given.late.lines().count(), 31, "only rows of the input are late");
    let given = at_all_batch_sizes(
        "SELECT window_start, window_end, MAX(window_time) AS t, COUNT(*) AS n FROM HOP(TABLE plant, DESCRIPTOR(ts), \
         INTERVAL '10' SECOND, INTERVAL '30' SECOND) WHERE EXTRACT(SECOND FROM window_start) < 30 \
         GROUP BY window_start, window_end",
    );
    assert!(sum_of(&given.rows, "n") > 0);
}

#[test]
fn unnest_keeps_rows_without_elements_only_with_left_join() {
    let count = |join: &str, by: &str| {
        let given = at_all_batch_sizes(&format!(
            "SELECT window_start, window_end, {by} COUNT(*) AS n, COUNT(x) AS xs FROM TUMBLE((SELECT b.ts, b.device AS d, s.x \
             FROM burst AS b {join}), DESCRIPTOR(ts), INTERVAL '30' SECOND) GROUP BY window_start, window_end"
        ));
        (sum_of(&given.rows, "n"), sum_of(&given.rows, "xs"), given.late.lines().count() as u64)
    };
    let (cross, xs, late) = count("CROSS JOIN UNNEST(b.samples) AS s (x)", "");
    let (left, left_xs, left_late) = count("LEFT JOIN UNNEST(b.samples) AS s (x) ON TRUE", "");
    let input = std::fs::read_to_string(home().join("input/burst.ndjson")).expect("an input");
    let rows: Vec<Value> = input.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let lengths = rows.iter().map(|row| row["samples"].as_array().map_or(0, Vec::len) as u64);
    let (elements, empty) = (lengths.clone().sum::<u64>(), lengths.filter(|length| *length == 0).count() as u64);
    assert_eq!((cross + late, left + left_late), (elements, elements + empty));
    assert!(empty > 0 && xs <= cross && left_xs == xs);
}

/// Forebay's own OVER functions on a real stream, against a naive computation, at every batch size.
#[test]
fn edge_functions_follow_each_key() {
    let sql = "SELECT device, seq, CHANGED(ok) OVER w AS c, DEADBAND(temp, 5) OVER w AS d, \
               HYSTERESIS(temp, 15, 30) OVER w AS h, EWMA(temp, INTERVAL '10' SECOND) OVER w AS e, RATE(temp) OVER w AS r \
               FROM steady WINDOW w AS (PARTITION BY device ORDER BY ts)";
    let mut given: BTreeMap<String, Value> = BTreeMap::new();
    let mut bytes: Option<String> = None;
    for (index, batch_rows) in BATCH_ROWS.iter().enumerate() {
        let rows = play(sql, Order::FirstFirst, *batch_rows, index, 40 + index as u64).rows;
        assert!(bytes.as_ref().is_none_or(|known| *known == rows), "batches of {batch_rows} give other bytes");
        for line in rows.lines() {
            let row: Value = serde_json::from_str(line).expect("a row");
            given.insert(format!("{} {}", row["device"], row["seq"]), row);
        }
        bytes = Some(rows);
    }
    #[derive(Default)]
    struct Key {
        ok: Option<Value>,
        reported: Option<f64>,
        on: bool,
        average: Option<(f64, f64)>,
        last: Option<(f64, f64)>,
        before: Option<(f64, f64)>,
    }
    let mut keys: BTreeMap<String, Key> = BTreeMap::new();
    let input = std::fs::read_to_string(home().join("input/steady.ndjson")).expect("an input");
    let mut compared = 0;
    for line in input.lines() {
        let row: Value = serde_json::from_str(line).expect("a row");
        let key = keys.entry(row["device"].to_string()).or_default();
        let at =
            row["ts"].as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time").as_millisecond() as f64;
        let changed = key.ok.as_ref() != Some(&row["ok"]);
        key.ok = Some(row["ok"].clone());
        let (mut reports, mut rate) = (false, None);
        if let Some(x) = row["temp"].as_f64() {
            reports = key.reported.is_none_or(|last| (x - last).abs() > 5.0);
            key.reported = if reports { Some(x) } else { key.reported };
            key.on = if x >= 30.0 { true } else { key.on && x > 15.0 };
            let average = match key.average {
                None => x,
                Some((then, y)) => y + (1.0 - (-(at - then) / 10_000.0).exp()) * (x - y),
            };
            key.average = Some((at, average));
            key.before = key.last.filter(|(then, _)| *then < at).or(key.before);
            key.last = Some((at, x));
            rate = key.before.map(|(then, earlier)| (x - earlier) / ((at - then) / 1000.0));
        }
        let found = &given[&format!("{} {}", row["device"], row["seq"])];
        let name = format!("{} {}", row["device"], row["seq"]);
        assert_eq!(found["c"], changed, "CHANGED {name}");
        assert_eq!(found["d"], reports, "DEADBAND {name}");
        assert_eq!(found["h"], key.on, "HYSTERESIS {name}");
        assert!(same(&found["e"], &serde_json::json!(key.average.map(|(_, y)| y))), "EWMA {name}");
        assert!(same(&found["r"], &serde_json::json!(rate)), "RATE {name}");
        compared += 1;
    }
    assert_eq!((compared, given.len()), (2633, 2633));
}

/// Patterns whose matches wait for others, whose conditions read rows of before a crash, ties and late rows.
#[test]
fn matches_are_the_same_whatever_the_cuts() {
    let given = |order: &str, skip: &str, pattern: &str, define: &str| {
        at_all_batch_sizes(&format!(
            "SELECT * FROM plant MATCH_RECOGNIZE (PARTITION BY device ORDER BY {order} MEASURES FIRST(seq) AS a, \
             LAST(seq) AS b, COUNT(*) AS n, SUM(B.temp) AS s, MATCH_ROWTIME(ts) AS t AFTER MATCH SKIP {skip} \
             PATTERN ({pattern}) WITHIN INTERVAL '25' SECOND DEFINE {define})"
        ))
    };
    let held =
        given("ts", "PAST LAST ROW", "A B*? C", "B AS B.temp >= LAST(B.temp, 1) OR COUNT(B.seq) < 3, C AS C.temp > 30");
    let runs = given("ts, seq DESC", "TO LAST B", "A B{2,} C", "B AS B.temp > A.temp AND SUM(B.temp) < 100");
    let every = given("ts", "TO NEXT ROW", "A B+ C", "A AS A.ok, B AS B.temp > 20, C AS C.temp < FIRST(B.temp)");
    for given in [&held, &runs, &every] {
        assert!(given.rows.lines().count() > 20, "{}", given.rows);
        assert!(given.late.lines().count() > 20, "late rows are told");
    }
}

/// The time of a match is a time attribute: no match is late behind it.
#[test]
fn matches_are_counted_in_windows() {
    let matches = "SELECT * FROM plant MATCH_RECOGNIZE (PARTITION BY device ORDER BY ts MEASURES MATCH_ROWTIME(ts) AS t, \
                   COUNT(*) AS n PATTERN (A B* C) WITHIN INTERVAL '20' SECOND DEFINE B AS B.temp > 15, C AS C.temp < 10)";
    let counted = format!(
        "WITH m AS ({matches}) SELECT window_start, window_end, COUNT(*) AS n \
         FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(t), INTERVAL '30' SECOND)) GROUP BY window_start, window_end"
    );
    let rows = at_all_batch_sizes(matches).rows.lines().count() as u64;
    assert!(rows > 20, "{rows}");
    assert_eq!(sum_of(&at_all_batch_sizes(&counted).rows, "n"), rows);
}
