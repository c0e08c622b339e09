//! W1: file → 10 s windows per device → file, all durable, beside a hand-written single-thread program that does the same
//! work with nothing durable. Both run as whole processes, alternating; medians and ratios are printed, and the outputs
//! must be the same bytes. Then the same with checkpoints more often: what fault tolerance costs in the steady state.
//!
//!   cargo bench --bench w1                 5 million events of about 90 bytes, 1,000 devices, 5 rounds
//!   cargo bench --bench w1 -- 200000 1     fewer events, fewer rounds
//!
//! `cargo test` runs it tiny, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

#[path = "harness/by_hand.rs"]
mod by_hand;
mod harness;

use std::path::Path;
use std::process::Command;

use harness::{DISORDER_MS, Measured, WINDOWS, generate, measure, median};

fn main() {
    if by_hand::is_part() {
        return;
    }
    let [events, rounds] = harness::sizes([5_000_000, 5], [20_000, 1]);
    compare(events, rounds);
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
        ceilings.push(measure(&mut by_hand::part(&input, &plain, 10_000)));
        for ((_, compression, log, checkpoints), measured) in VARIANTS.iter().zip(&mut ours) {
            let work = dir.path().join("work");
            let _ = std::fs::remove_dir_all(&work);
            std::fs::create_dir(&work).expect("a directory");
            std::fs::write(work.join("w1.toml"), config(&input, compression, log, checkpoints)).expect("writes");
            let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
            measured.push(measure(command.args(["run", "w1.toml"]).current_dir(&work)));
            assert!(harness::same(&plain, &work.join("out.ndjson")), "both give the same bytes");
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
