//! Instructions per event of the single-threaded kernels, counted by valgrind: they do not depend on how busy the machine
//! is. Each part runs twice, once with twice the events, and the difference counts: start-up cancels out. A kernel is what
//! its part takes more than another that does all but it (making the input, say).
//!
//!   cargo run --release -p forebay-kernels              prints the counts; fails where one is over the baseline by 5 %
//!   cargo run --release -p forebay-kernels -- --accept  writes them to benches/kernels.txt, the baseline
//!   cargo run --release -p forebay-kernels -- --stall   how long a checkpoint of 1 million keys holds the engine up
//!
//! The counts belong to the compiler, the lock file and the valgrind they were taken with: the baseline names them, and
//! the check says where others are used. `tests/run` runs each part once, without valgrind, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

#[path = "../harness/in_process.rs"]
mod in_process;
mod stall;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::config::Config;
use forebay::engine::open::{Opened, commit_now};
use forebay::event::{Frame, Lsn, SourceId};
use forebay::format::{FormatConfig, Messages};
use forebay::replay_log::Compression;

use in_process::{FILTER, WINDOWS, columns, engine, frames, log};

/// Parts, and the events of the shorter run.
const PARTS: [(&str, u64); 9] = [
    ("input", 50_000),
    ("decode", 50_000),
    ("log", 50_000),
    ("filter", 50_000),
    ("window", 50_000),
    ("keys", 20_000),
    ("checkpoint", 20_000),
    ("changed", 20_000),
    ("checkpoint again", 20_000),
];

/// Each the name of a part, the part that does all but it, what is counted.
const KERNELS: [(&str, &str, &str); 6] = [
    ("decode", "input", "JSON to columns, per event"),
    ("log", "input", "append to the log with LZ4, per event"),
    ("filter", "input", "decode, filter, project and print, per event"),
    ("window", "input", "decode and update 10 s windows of 1,000 devices, per event"),
    ("checkpoint", "keys", "commit, per new key"),
    ("checkpoint again", "changed", "commit, per changed key"),
];

/// Events of a frame: it has about 50 kB.
const FRAME_EVENTS: usize = 500;

/// Over the baseline by so much is a failure.
const TOLERANCE: f64 = 0.05;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--part", part, events, dir] => run(part, events.parse().expect("events"), Path::new(dir)),
        ["--stall"] => stall::measure(1_000_000, 5, &Scratch::new().0),
        rest => count(rest.contains(&"--accept")),
    }
}

/// A directory that is removed.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-kernels-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(part: &str, events: u64, dir: &Path) {
    std::fs::create_dir_all(dir).expect("a directory");
    match part {
        "input" => drop(input(events)),
        "decode" => decode(events),
        "log" => append(events, dir),
        "filter" => take(&mut engine(dir, FILTER).1, events, 1000),
        "window" => take(&mut engine(dir, WINDOWS).1, events, 1000),
        // As many keys as events.
        "keys" => take(&mut engine(dir, WINDOWS).1, events, events),
        "checkpoint" => drop(checkpoint(engine(dir, WINDOWS), events)),
        "changed" => take(&mut checkpoint(engine(dir, WINDOWS), events).1, events, events),
        "checkpoint again" => drop(checkpoint(checkpoint(engine(dir, WINDOWS), events), events)),
        other => panic!("there is no part {other}"),
    }
}

fn input(events: u64) -> Vec<Frame> {
    frames(events, FRAME_EVENTS, 1000, SourceId(0), Lsn(1))
}

fn decode(events: u64) {
    let mut decoder = FormatConfig::Json.decoder(&columns(), None);
    let mut rows = 0;
    for run in input(events).iter().flat_map(|frame| &frame.runs) {
        rows +=
            decoder.decode(&[Messages { payload: &run.payload, lengths: &run.lengths }], None).messages.len() as u64;
    }
    assert_eq!(rows, events);
}

fn append(events: u64, dir: &Path) {
    let mut writer = log(dir, Compression::Lz4);
    for frame in input(events) {
        writer.append(frame.runs).expect("appends");
    }
}

/// Lets an engine take so many events.
fn take(opened: &mut Opened, events: u64, devices: u64) {
    let source = opened.writer.sources()[0].0;
    let frames = frames(events, FRAME_EVENTS, devices, source, opened.engine.last_lsn().plus(1));
    in_process::take(&mut opened.engine, &frames);
}

/// Lets an engine take as many keys as events, and makes a checkpoint of them.
fn checkpoint((config, mut opened): (Config, Opened), events: u64) -> (Config, Opened) {
    take(&mut opened, events, events);
    let committed = commit_now(&config, &mut opened.engine, &opened.checkpoint, &opened.store, Vec::new());
    opened.checkpoint = committed.expect("commits");
    (config, opened)
}

/// Instructions of a part under valgrind.
fn instructions(part: &str, events: u64, dir: &Path) -> u64 {
    let work = dir.join(format!("{part}-{events}"));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--part", part, &events.to_string()])
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

/// What a program prints first when it is asked for its version.
fn version_of(program: &str) -> String {
    let output = Command::new(program).arg("--version").output().unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}

/// What the counts depend on besides the code.
fn surroundings() -> Vec<String> {
    let lock = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).expect("the lock file");
    vec![
        format!("{}, {}", version_of("rustc"), std::env::consts::ARCH),
        format!("Cargo.lock with CRC32C {:08x}", crc32c::crc32c(&lock)),
        version_of("valgrind"),
    ]
}

fn count(accept: bool) {
    let baseline_path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../kernels.txt");
    let before = std::fs::read_to_string(&baseline_path).unwrap_or_default();
    let baseline: BTreeMap<&str, f64> = before
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' ').map(|(name, count)| (name, count.parse().expect("a count"))))
        .collect();
    let surroundings = surroundings();
    let others: Vec<&String> = surroundings.iter().filter(|line| !before.contains(line.as_str())).collect();
    let dir = Scratch::new();
    let each: BTreeMap<&str, f64> = PARTS
        .iter()
        .map(|(part, events)| {
            let (short, long) = (instructions(part, *events, &dir.0), instructions(part, 2 * events, &dir.0));
            (*part, (long - short) as f64 / *events as f64)
        })
        .collect();
    let mut text =
        "# Instructions per event; written by `cargo run --release -p forebay-kernels -- --accept`, with\n".to_owned();
    surroundings.iter().for_each(|line| text += &format!("# {line}\n"));
    let mut over = Vec::new();
    for (name, without, what) in KERNELS {
        let count = each[name] - each[without];
        text += &format!("{name} {count:.1}\n");
        let change = baseline.get(name).map(|known| count / known - 1.0);
        let shown = change.map_or("no baseline".to_owned(), |change| format!("{:+.1} %", change * 100.0));
        println!("{name:16} {count:>8.1} instructions {what}; against the baseline: {shown}");
        if change.is_none_or(|change| change > TOLERANCE) {
            over.push(name);
        }
    }
    if accept {
        std::fs::write(&baseline_path, text).expect("writes");
        return;
    }
    if !others.is_empty() {
        println!("the baseline was taken with others than {others:?}: where that explains a change, accept it anew");
    }
    if !over.is_empty() {
        eprintln!("over the baseline by more than 5 %: {over:?}; look why, or accept with -- --accept");
        std::process::exit(1);
    }
}

#[test]
fn every_kernel_runs() {
    let dir = Scratch::new();
    PARTS.iter().for_each(|(part, _)| run(part, 500, &dir.0.join(part)));
}

#[test]
fn a_stall_is_measured() {
    stall::measure(1000, 2, &Scratch::new().0);
}
