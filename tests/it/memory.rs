//! State larger than memory: what the process allocates stays within `pipeline.memory` and a constant, however much a
//! window holds, also while it fires; and the results are right.
//!
//! `FOREBAY_STATE_MB=2048 tests/run memory` for more than the 256 MB of CI.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::time::{Duration, Instant};

use crate::support::{Place, Random, Running, rounds, stamp};

/// What the process may allocate beside `pipeline.memory`: as README.md says; beyond 256 MB of state it grows slowly
/// (ARCHITECTURE.md).
const CONSTANT_BYTES: u64 = 24 << 20;
/// Bytes of one key's value: two fit on a page of LMDB.
const VALUE_BYTES: u64 = 1700;
/// Debug builds on a busy machine take their time; a build that hangs fails.
const PATIENCE: Duration = Duration::from_secs(900);

/// Anonymous memory of a process in bytes; `None` once it has ended.
fn anonymous_bytes(running: &Running) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Runs to the end; the greatest anonymous memory that was seen.
fn peak_of(running: &mut Running) -> u64 {
    let started = Instant::now();
    let (mut peak, mut last) = (0, 0);
    let mut trace = String::new();
    loop {
        let now = anonymous_bytes(running).unwrap_or(0);
        if now >> 22 != last >> 22 {
            last = now;
            let _ = writeln!(trace, "{} ms: {} KiB", started.elapsed().as_millis(), now >> 10);
        }
        peak = peak.max(now);
        if let Some(status) = running.child.try_wait().expect("a child") {
            println!("{trace}peak {} KiB, {} ms", peak >> 10, started.elapsed().as_millis());
            assert!(status.success(), "{status}");
            return peak;
        }
        assert!(started.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn config(memory: &str, query: &str) -> String {
    format!(
        r#"
[pipeline]
name = "memory"
memory = "{memory}"
[checkpoint]
every = "5s"
[log]
max_size = "64MiB"
segment = "4MiB"
[source.plant]
type = "file"
path = "input.csv"
format = "csv"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", n = "INT", note = "STRING" }}
time = {{ column = "ts" }}
[query.per_device]
sql = """{query}"""
[sink.out]
type = "file"
from = "per_device"
path = "out.csv"
format = "csv"
"#
    )
}

/// A permutation of the numbers below `count`.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    let offset = Random(count).below(count);
    // A prime beyond every count has no factor in common with it.
    (0..count).map(move |i| (i * 982_451_653 + offset) % count)
}

fn write_input(place: &Place, lines: impl Iterator<Item = String>) {
    let mut file = BufWriter::new(std::fs::File::create(place.path("input.csv")).expect("creates"));
    lines.for_each(|line| writeln!(file, "{line}").expect("writes"));
    file.flush().expect("writes");
}

/// Compares the output with the rows that must be there, in order.
fn compare(place: &Place, expected: impl Iterator<Item = String>) {
    let out = BufReader::new(std::fs::File::open(place.path("out.csv")).expect("opens"));
    let mut rows = out.lines().skip(1).map(|line| line.expect("UTF-8"));
    for (index, expected) in expected.enumerate() {
        assert_eq!(rows.next(), Some(expected), "row {index}");
    }
    assert_eq!(rows.next(), None);
}

fn run_within(place: &Place, memory_bytes: u64, state_bytes: u64) {
    let peak = peak_of(&mut place.start("m.toml"));
    let growth_bytes = state_bytes.saturating_sub(256 << 20) / 128;
    let allowed = memory_bytes + CONSTANT_BYTES + growth_bytes;
    assert!(peak <= allowed, "{} KiB were allocated, {} KiB are allowed", peak >> 10, allowed >> 10);
}

/// One large value of each device, by a query over windows `FROM` here: more than memory, within `memory = "32MiB"`.
/// Gives the place and the number of devices.
fn large_values(windows: &str, megabytes: u64) -> (Place, u64) {
    let query = format!(
        "
SELECT device, COUNT(*) AS readings, SUM(n) AS total, AVG(n) AS mean, CHAR_LENGTH(LISTAGG(REPEAT(note, 10))) AS text
FROM {windows}
GROUP BY window_start, window_end, device
"
    );
    let state_bytes = rounds("FOREBAY_STATE_MB", megabytes) << 20;
    let devices = state_bytes / VALUE_BYTES;
    let place = Place::new();
    place.write("m.toml", &config("32MiB", &query));
    let note = "n".repeat(VALUE_BYTES as usize / 10);
    write_input(
        &place,
        shuffled(devices).enumerate().map(|(i, device)| {
            let at = 1_775_001_600_000 + i as u64 * 80_000_000 / devices;
            format!("{},d{device:09},{},{note}", stamp(at), device % 1000)
        }),
    );
    run_within(&place, 32 << 20, state_bytes);
    (place, devices)
}

/// What comes out of [`large_values`] for a device.
fn large_value(device: u64) -> String {
    format!("d{device:09},1,{0},{0},{1}", device % 1000, VALUE_BYTES / 10 * 10)
}

#[test]
fn memory_holds_a_window_that_is_larger_than_it() {
    let (place, devices) = large_values("TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' DAY))", 256);
    compare(&place, (0..devices).map(large_value));
}

/// Sessions that are open all at once, and all over at once. They fire in the order of their ends.
#[test]
fn memory_holds_open_sessions_that_are_larger_than_it() {
    let windows = "SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '1' DAY)";
    let (place, devices) = large_values(windows, 96);
    compare(&place, shuffled(devices).map(large_value));
}

/// Small sessions, many of them: what each one takes beside its value counts, too. All go on once before they are over.
#[test]
fn memory_holds_many_small_sessions() {
    const QUERY: &str = "
SELECT window_start, device, COUNT(*) AS readings
FROM SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '1' DAY)
GROUP BY window_start, window_end, device
";
    const DEVICES: u64 = 150_000;
    let place = Place::new();
    place.write("m.toml", &config("8MiB", QUERY));
    let times = |from: u64| {
        shuffled(DEVICES).enumerate().map(move |(i, device)| {
            let at = 1_775_001_600_000 + from + i as u64 * 100;
            format!("{},d{device:09},0,n", stamp(at))
        })
    };
    write_input(&place, times(0).chain(times(20_000_000)));
    run_within(&place, 8 << 20, 0);
    compare(
        &place,
        shuffled(DEVICES).enumerate().map(|(i, device)| {
            let start = stamp(1_775_001_600_000 + i as u64 * 100);
            format!("{},d{device:09},2", start.trim_end_matches('Z'))
        }),
    );
}

/// The rows of sessions that are open all at once: without GROUP BY each of them is kept whole.
#[test]
fn memory_holds_the_rows_of_open_sessions() {
    const QUERY: &str = "
SELECT window_start, device, n, CHAR_LENGTH(note) AS length
FROM SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '1' DAY)
";
    const DEVICES: u64 = 3_000;
    const ROUNDS: u64 = 10;
    let place = Place::new();
    place.write("m.toml", &config("8MiB", QUERY));
    let note = "n".repeat(VALUE_BYTES as usize);
    let time = |round: u64, i: usize| stamp(1_775_001_600_000 + (round * DEVICES + i as u64) * 100);
    write_input(
        &place,
        (0..ROUNDS)
            .flat_map(|round| {
                let row = move |(i, device)| (round, i, device);
                shuffled(DEVICES).enumerate().map(row)
            })
            .map(|(round, i, device)| format!("{},d{device:09},{round},{note}", time(round, i))),
    );
    run_within(&place, 8 << 20, 0);
    compare(
        &place,
        shuffled(DEVICES).enumerate().flat_map(|(i, device)| {
            let start = time(0, i).trim_end_matches('Z').to_owned();
            (0..ROUNDS).map(move |round| format!("{start},d{device:09},{round},{VALUE_BYTES}"))
        }),
    );
}

/// Windows of several slices merge them from disk, and memory may be as small as 8 MiB.
#[test]
fn memory_holds_overlapping_windows_of_many_keys() {
    const QUERY: &str = "
SELECT window_start, device, COUNT(*) AS readings, SUM(n) AS total, AVG(n) AS mean, MIN(note) AS note
FROM TABLE(HOP(TABLE plant, DESCRIPTOR(ts), INTERVAL '12' HOUR, INTERVAL '1' DAY))
GROUP BY window_start, window_end, device
";
    const DEVICES: u64 = 40_000;
    let place = Place::new();
    place.write("m.toml", &config("8MiB", QUERY));
    let half = |from: u64| {
        shuffled(DEVICES).enumerate().map(move |(i, device)| {
            let at = 1_775_001_600_000 + from + i as u64 * 40_000_000 / DEVICES;
            format!("{},d{device:09},{},n", stamp(at), device % 1000)
        })
    };
    write_input(&place, half(0).chain(half(43_200_000)));
    run_within(&place, 8 << 20, 0);
    let windows = [("2026-03-31T12:00:00.000", 1), ("2026-04-01T00:00:00.000", 2), ("2026-04-01T12:00:00.000", 1)];
    let rows = windows.iter().flat_map(|(start, readings)| {
        (0..DEVICES).map(move |device| {
            let n = device % 1000;
            format!("{start},d{device:09},{readings},{},{n},n", n * readings)
        })
    });
    compare(&place, rows);
}
