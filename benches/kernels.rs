//! Instructions per event of the single-threaded kernels, counted by valgrind: they do not depend on how busy the machine
//! is. Each kernel runs twice, once with twice the events, and the difference counts: start-up cancels out.
//!
//!   cargo bench --bench kernels              prints the counts and fails where one is over the baseline by more than 5 %
//!   cargo bench --bench kernels -- --accept  writes them to benches/kernels.txt, the baseline
//!
//! `cargo test` runs each kernel once, without valgrind, so that it does not rot. The counts belong to the toolchain and
//! the lock file they were taken with.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

mod harness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use forebay::config::{self, Config};
use forebay::disk::RealDisk;
use forebay::engine::choices::Choices;
use forebay::engine::open::{Opened, Start, commit_now, open};
use forebay::event::{Epoch, Frame, LogTime, Lsn, RecordKind, Run, SourceId};
use forebay::expr::{DataType, Field};
use forebay::format::{FormatConfig, Messages};
use forebay::replay_log::{self, Compression, Identity, LogOptions};

use harness::WINDOWS;

/// Name, what is counted, events of the shorter run.
const KERNELS: [(&str, &str, u64); 4] = [
    ("decode", "JSON to columns, per event", 50_000),
    ("log", "append to the log with LZ4, per event", 50_000),
    ("window", "decode and update 10 s windows of 1,000 devices, per event", 50_000),
    ("checkpoint", "commit, per dirty key", 20_000),
];

/// Over the baseline by so much is a failure.
const TOLERANCE: f64 = 0.05;

fn main() {
    let kernel =
        |arguments: &[String]| run(&arguments[0], arguments[1].parse().expect("events"), Path::new(&arguments[2]));
    if harness::is_part("kernel", kernel) {
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--bench") {
        count(arguments.iter().any(|argument| argument == "--accept"));
    } else {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        KERNELS.iter().for_each(|(name, _, _)| run(name, 500, &dir.path().join(name)));
    }
}

fn run(kernel: &str, events: u64, dir: &Path) {
    std::fs::create_dir_all(dir).expect("a directory");
    match kernel {
        "decode" => decode(events),
        "log" => log(events, dir),
        "window" => drop(window(events, 1000, dir)),
        "checkpoint" => checkpoint(events, dir),
        other => panic!("there is no kernel {other}"),
    }
}

/// Frames of 500 readings each, about 50 kB.
fn frames(events: u64, devices: u64, source: SourceId, first: Lsn) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut first_lsn = first;
    let mut run = Run::new(source, RecordKind::Data, LogTime(1));
    for event in 0..events {
        let (ms, device) = (event / 10, event.wrapping_mul(2_654_435_761) % devices);
        let reading = format!(
            "{{\"ts\":\"2026-04-02T{:02}:{:02}:{:02}.{:03}Z\",\"device\":\"device-{device:06}\",\"temp\":{}.{:03},\"seq\":{event}}}",
            ms / 3_600_000 % 24,
            ms / 60_000 % 60,
            ms / 1000 % 60,
            ms % 1000,
            event % 97,
            event * 37 % 1000
        );
        run.push(reading.as_bytes());
        if run.len() == 500 || event + 1 == events {
            let full = std::mem::replace(&mut run, Run::new(source, RecordKind::Data, LogTime(1)));
            let next = first_lsn.plus(full.len() as u64);
            frames.push(Frame { first_lsn, runs: vec![full] });
            first_lsn = next;
        }
    }
    frames
}

fn decode(events: u64) {
    let field = |name: &str, of| Field::new(name, of);
    let columns =
        [field("ts", DataType::TimestampLtz(3)), field("device", DataType::String), field("temp", DataType::Double)];
    let mut decoder = FormatConfig::Json.decoder(&columns, None);
    let mut rows = 0;
    for run in frames(events, 1000, SourceId(0), Lsn(1)).iter().flat_map(|frame| &frame.runs) {
        rows +=
            decoder.decode(&[Messages { payload: &run.payload, lengths: &run.lengths }], None).messages.len() as u64;
    }
    assert_eq!(rows, events);
}

fn log(events: u64, dir: &Path) {
    let identity =
        Identity { pipeline: "kernels".into(), epoch: Epoch::default(), sources: vec![(SourceId(0), "plant".into())] };
    let options = LogOptions { segment_bytes: 16 << 20, max_bytes: 1 << 30, compression: Compression::Lz4 };
    let (mut writer, _) =
        replay_log::open(Arc::new(RealDisk), &dir.join("log"), identity, options, Lsn::ZERO).expect("a log");
    for frame in frames(events, 1000, SourceId(0), Lsn(1)) {
        writer.append(frame.runs).expect("appends");
    }
}

fn window(events: u64, devices: u64, dir: &Path) -> (Config, Opened) {
    let text = format!(
        r#"
[pipeline]
name = "kernels"
state = "{0}/state"
[source.plant]
type = "file"
path = "unused"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
{WINDOWS}
[sink.out]
type = "file"
from = "q"
path = "{0}/out.ndjson"
"#,
        dir.display()
    );
    let config = config::parse("kernels.toml", &text).expect("a configuration");
    let Start::Go(opened) = open(&config, 8192, &Choices::default()).expect("opens") else { panic!("a new state") };
    let mut opened = *opened;
    let source = opened.writer.sources()[0].0;
    for frame in frames(events, devices, source, opened.engine.last_lsn().plus(1)) {
        opened.engine.step(&frame).expect("steps");
        opened.engine.flush().expect("flushes");
    }
    (config, opened)
}

/// As many keys as events, all dirty; what comes before the commit costs the same per event in both runs, so it is told
/// apart by the kernel `window`.
fn checkpoint(events: u64, dir: &Path) {
    let (config, mut opened) = window(events, events, dir);
    commit_now(&config, &mut opened.engine, &opened.checkpoint, &opened.store, Vec::new()).expect("commits");
}

/// Instructions of a kernel under valgrind.
fn instructions(kernel: &str, events: u64, dir: &Path) -> u64 {
    let work = dir.join(format!("{kernel}-{events}"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--part", "kernel", kernel, &events.to_string()])
        .arg(&work)
        .stdin(Stdio::null())
        .output()
        .expect("valgrind runs: install the package valgrind");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let _ = std::fs::remove_dir_all(&work);
    let line = text.lines().find_map(|line| line.split("Collected :").nth(1)).expect("a count");
    line.trim().parse().expect("a number")
}

fn count(accept: bool) {
    let baseline_path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/kernels.txt");
    let baseline: BTreeMap<String, f64> = std::fs::read_to_string(&baseline_path)
        .unwrap_or_default()
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' ').map(|(name, count)| (name.to_owned(), count.parse().expect("a count"))))
        .collect();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut text = "# Instructions per event; written by `cargo bench --bench kernels -- --accept`\n".to_owned();
    let mut over = Vec::new();
    for (name, what, events) in KERNELS {
        let (short, long) = (instructions(name, events, dir.path()), instructions(name, 2 * events, dir.path()));
        let each = (long - short) as f64 / events as f64;
        text += &format!("{name} {each:.1}\n");
        match baseline.get(name) {
            Some(known) => {
                let change = each / known - 1.0;
                println!("{name:12} {each:>8.1} instructions {what}; baseline {known:.1}, {:+.1} %", change * 100.0);
                if change > TOLERANCE {
                    over.push(name);
                }
            }
            None => {
                println!("{name:12} {each:>8.1} instructions {what}; no baseline");
                over.push(name);
            }
        }
    }
    if accept {
        std::fs::write(&baseline_path, text).expect("writes");
    } else if !over.is_empty() {
        eprintln!("over the baseline by more than 5 %: {over:?}; look why, or accept with -- --accept");
        std::process::exit(1);
    }
}
