//! W1: file → 10 s windows per device → file, all durable, beside a hand-written single-thread program that does the same
//! work with nothing durable. Both run as whole processes, alternating; medians and ratios are printed, and the outputs
//! must be the same bytes. Then the same with checkpoints more often: what fault tolerance costs in the steady state.
//!
//!   cargo bench --bench w1                 5 million events of about 90 bytes, 1,000 devices, 5 rounds
//!   cargo bench --bench w1 -- 200000 1     fewer events, fewer rounds
//!
//! `cargo test` runs it tiny, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

mod harness;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use harness::{DISORDER_MS, Measured, WINDOWS, generate, measure, median};

fn main() {
    if harness::is_part("ceiling", |paths| ceiling(Path::new(&paths[0]), Path::new(&paths[1]))) {
        return;
    }
    let [events, rounds] = harness::sizes([5_000_000, 5], [20_000, 1]);
    compare(events, rounds);
}

/// The hand-written program: one thread, typed serde_json, a hash map, no log, no checkpoint, no sync.
fn ceiling(input: &Path, output: &Path) {
    #[derive(Deserialize)]
    struct Reading<'a> {
        ts: &'a str,
        device: &'a str,
        temp: f64,
    }
    fn digits(text: &[u8]) -> i64 {
        text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'))
    }
    // All events are of April 2026.
    fn millis(ts: &[u8]) -> i64 {
        let day = digits(&ts[8..10]) - 2;
        let of_day = (digits(&ts[11..13]) * 60 + digits(&ts[14..16])) * 60 + digits(&ts[17..19]);
        1_775_088_000_000 + day * 86_400_000 + of_day * 1000 + digits(&ts[20..23])
    }
    fn stamp(millis: i64) -> String {
        let day = 2 + (millis - 1_775_088_000_000).div_euclid(86_400_000);
        let s = millis / 1000 % 86_400;
        format!("2026-04-{day:02}T{:02}:{:02}:{:02}.000", s / 3600, s / 60 % 60, s % 60)
    }
    fn fire(end: i64, groups: HashMap<String, (f64, i64)>, out: &mut impl Write) {
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|a, b| a.0.cmp(&b.0));
        let (start, end) = (stamp(end - 10_000), stamp(end));
        for (device, (sum, count)) in groups {
            let average = serde_json::to_string(&(sum / count as f64)).expect("a number");
            writeln!(out, "{{\"window_start\":\"{start}\",\"window_end\":\"{end}\",\"device\":\"{device}\",\"t\":{average},\"n\":{count}}}")
                .expect("writes");
        }
    }
    let mut reader = BufReader::with_capacity(256 << 10, File::open(input).expect("the input"));
    let mut out = BufWriter::with_capacity(256 << 10, File::create(output).expect("the output"));
    let mut windows: std::collections::BTreeMap<i64, HashMap<String, (f64, i64)>> = Default::default();
    let (mut greatest, mut watermark) = (i64::MIN, i64::MIN);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).expect("reads") == 0 {
            break;
        }
        let reading: Reading<'_> = serde_json::from_slice(&line).expect("a reading");
        let time = millis(reading.ts.as_bytes());
        let end = time - time.rem_euclid(10_000) + 10_000;
        if end - 1 > watermark {
            let groups = windows.entry(end).or_default();
            match groups.get_mut(reading.device) {
                Some((sum, count)) => {
                    *sum += reading.temp;
                    *count += 1;
                }
                None => {
                    groups.insert(reading.device.to_owned(), (0.0 + reading.temp, 1));
                }
            }
        }
        if time > greatest {
            greatest = time;
            watermark = time - DISORDER_MS as i64;
            while let Some(entry) = windows.first_entry().filter(|entry| entry.key() - 1 <= watermark) {
                let (end, groups) = entry.remove_entry();
                fire(end, groups, &mut out);
            }
        }
    }
    for (end, groups) in windows {
        fire(end, groups, &mut out);
    }
    out.flush().expect("writes");
}

/// Name, compression, what the log holds, when there are checkpoints: the default, or by time alone.
const VARIANTS: [(&str, &str, &str, &str); 6] = [
    ("defaults", "lz4", "payload", ""),
    ("no compression", "none", "payload", ""),
    ("log = \"position\"", "lz4", "position", ""),
    ("one checkpoint, at the end", "lz4", "payload", "[checkpoint]\nevery = \"1h\"\nlog_bytes = \"1GiB\""),
    ("a checkpoint each second", "lz4", "payload", "[checkpoint]\nevery = \"1s\"\nlog_bytes = \"1GiB\""),
    ("a checkpoint each 100 ms", "lz4", "payload", "[checkpoint]\nevery = \"100ms\"\nlog_bytes = \"1GiB\""),
];

fn compare(events: u64, rounds: u64) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let input = dir.path().join("input.ndjson");
    generate(&input, events);
    let bytes = std::fs::metadata(&input).expect("the input").len();
    println!(
        "W1: {events} events, {:.1} bytes each, 1,000 devices; medians of {rounds} alternating rounds",
        bytes as f64 / events as f64
    );
    let mut ceilings = Vec::new();
    let mut ours: Vec<Vec<Measured>> = VARIANTS.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        let plain = dir.path().join("ceiling.ndjson");
        ceilings.push(measure(harness::part("ceiling").arg(&input).arg(&plain)));
        for ((_, compression, log, checkpoints), measured) in VARIANTS.iter().zip(&mut ours) {
            let work = dir.path().join("work");
            let _ = std::fs::remove_dir_all(&work);
            std::fs::create_dir(&work).expect("a directory");
            std::fs::write(work.join("w1.toml"), config(&input, compression, log, checkpoints)).expect("writes");
            let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
            measured.push(measure(command.args(["run", "w1.toml"]).current_dir(&work)));
            let same =
                std::fs::read(&plain).expect("output") == std::fs::read(work.join("out.ndjson")).expect("output");
            assert!(same, "both give the same bytes");
        }
    }
    harness::print_row("hand-written, not durable", events, &ceilings, &ceilings);
    for ((name, _, _, _), measured) in VARIANTS.iter().zip(&ours) {
        harness::print_row(&format!("forebay, {name}"), events, measured, &ceilings);
    }
    if let [_, _, _, end, each_second, each_100_ms] = ours.as_slice() {
        for (name, often) in [("each second", each_second), ("each 100 ms", each_100_ms)] {
            let ratio = |pick: fn(&Measured) -> u128| {
                median(often.iter().zip(end).map(|(often, end)| pick(often) * 1000 / pick(end).max(1))) as f64 / 1000.0
            };
            println!(
                "checkpoints {name} against one at the end: wall {:.3} ×, CPU {:.3} ×",
                ratio(|m| m.wall.as_micros()),
                ratio(|m| m.cpu.as_micros())
            );
        }
    }
}

fn config(input: &Path, compression: &str, log: &str, checkpoints: &str) -> String {
    format!(
        r#"
[pipeline]
name = "w1"
state = "state"
{checkpoints}
[log]
compression = "{compression}"
[source.plant]
type = "file"
path = "{}"
log = "{log}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "{DISORDER_MS}ms" }}
{WINDOWS}
[sink.out]
type = "file"
from = "q"
path = "out.ndjson"
"#,
        input.display()
    )
}
