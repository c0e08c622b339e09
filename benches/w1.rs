//! W1: file → 10 s windows per device → file, all durable, beside a hand-written single-thread program that does the same
//! work with nothing durable. Both run as whole processes, alternating; medians and ratios are printed, and the outputs
//! must be the same bytes.
//!
//!   cargo bench --bench w1                 5 million events of about 90 bytes, 1,000 devices, 5 rounds
//!   cargo bench --bench w1 -- 200000 1     fewer events, fewer rounds
//!
//! `cargo test` runs it tiny, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::Deserialize;

const DISORDER_MS: u64 = 500;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, input, output] = arguments.as_slice()
        && mode == "--ceiling"
    {
        ceiling(Path::new(input), Path::new(output));
        return;
    }
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<u64>().ok());
    // `cargo bench` says so; `cargo test` does not.
    let whole = arguments.iter().any(|argument| argument == "--bench");
    let events = numbers.next().unwrap_or(if whole { 5_000_000 } else { 20_000 });
    let rounds = numbers.next().unwrap_or(if whole { 5 } else { 1 });
    compare(events, rounds);
}

/// Readings of 1,000 devices, one each 100 µs of event time, up to 500 ms of disorder. Fixed seed.
fn generate(path: &Path, events: u64) {
    let mut state = 42u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("the input file"));
    let mut line = String::new();
    for event in 0..events {
        let millis = 1_775_088_000_000 + event / 10 - (random() % DISORDER_MS).min(event / 10);
        let (s, ms) = (millis / 1000 % 86_400, millis % 1000);
        let day = 2 + (millis - 1_775_088_000_000) / 86_400_000;
        line.clear();
        let (h, m, sec) = (s / 3600, s / 60 % 60, s % 60);
        let (device, temp) = (random() % 1000, random() % 100_000);
        let _ = writeln!(
            line,
            "{{\"ts\":\"2026-04-{day:02}T{h:02}:{m:02}:{sec:02}.{ms:03}Z\",\"device\":\"device-{device:04}\",\"temp\":{}.{:03},\"seq\":{event}}}",
            temp / 1000,
            temp % 1000
        );
        out.write_all(line.as_bytes()).expect("writes");
    }
    out.flush().expect("writes");
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

struct Measured {
    wall: Duration,
    cpu: Duration,
    peak_kib: u64,
}

/// Runs a command to its end: wall time, CPU of all its threads, peak resident memory.
fn measure(command: &mut Command) -> Measured {
    let started = Instant::now();
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let pid = Pid::from_child(&child);
    let proc = format!("/proc/{}", child.id());
    let mut peak_kib = 0;
    // The status of a process that has ended tells its CPU time but no longer its memory: look while it runs.
    while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
        .expect("a child")
        .is_none()
    {
        let status = std::fs::read_to_string(format!("{proc}/status")).unwrap_or_default();
        let high = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak_kib = peak_kib.max(high.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    let wall = started.elapsed();
    let stat = std::fs::read_to_string(format!("{proc}/stat")).expect("a zombie's times");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|field| fields[*field].parse::<u64>().expect("ticks")).sum();
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Measured { wall, cpu: Duration::from_millis(ticks * 10), peak_kib }
}

fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values[values.len() / 2]
}

fn compare(events: u64, rounds: u64) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let input = dir.path().join("input.ndjson");
    generate(&input, events);
    let bytes = std::fs::metadata(&input).expect("the input").len();
    println!(
        "W1: {events} events, {:.1} bytes each, 1,000 devices; medians of {rounds} alternating rounds",
        bytes as f64 / events as f64
    );
    let variants = [("forebay, lz4", "lz4"), ("forebay, no compression", "none")];
    let mut ceilings = Vec::new();
    let mut ours: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        let plain = dir.path().join("ceiling.ndjson");
        let me = std::env::current_exe().expect("this program");
        ceilings.push(measure(Command::new(me).arg("--ceiling").arg(&input).arg(&plain)));
        for ((_, compression), measured) in variants.iter().zip(&mut ours) {
            let work = dir.path().join("work");
            let _ = std::fs::remove_dir_all(&work);
            std::fs::create_dir(&work).expect("a directory");
            std::fs::write(work.join("w1.toml"), config(&input, compression)).expect("writes");
            let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
            measured.push(measure(command.args(["run", "w1.toml"]).current_dir(&work)));
            let same =
                std::fs::read(&plain).expect("output") == std::fs::read(work.join("out.ndjson")).expect("output");
            assert!(same, "both give the same bytes");
        }
    }
    let print = |name: &str, measured: &[Measured], base: &[Measured]| {
        let wall = median(measured.iter().map(|m| m.wall));
        let cpu = median(measured.iter().map(|m| m.cpu));
        let peak = median(measured.iter().map(|m| m.peak_kib));
        let speed = |m: &Measured| (events as f64 / m.wall.as_secs_f64()) as u64;
        let ratio = median(measured.iter().zip(base).map(|(m, b)| speed(m) * 1000 / speed(b)));
        let cpu_ratio =
            median(measured.iter().zip(base).map(|(m, b)| m.cpu.as_millis() * 1000 / b.cpu.as_millis().max(10)));
        println!(
            "{name:26} {:>6.2} M events/s  {:>6.3} CPU-s per 1M events  {:>6.1} MB peak   speed {:.2} × ceiling, CPU {:.2} ×",
            events as f64 / wall.as_secs_f64() / 1e6,
            cpu.as_secs_f64() / (events as f64 / 1e6),
            peak as f64 * 1024.0 / 1e6,
            ratio as f64 / 1000.0,
            cpu_ratio as f64 / 1000.0
        );
    };
    print("hand-written, not durable", &ceilings, &ceilings);
    for ((name, _), measured) in variants.iter().zip(&ours) {
        print(name, measured, &ceilings);
    }
}

fn config(input: &Path, compression: &str) -> String {
    format!(
        r#"
[pipeline]
name = "w1"
state = "state"
[log]
compression = "{compression}"
[source.plant]
type = "file"
path = "{}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "{DISORDER_MS}ms" }}
[query.q]
sql = """
SELECT window_start, window_end, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, device
"""
[sink.out]
type = "file"
from = "q"
path = "out.ndjson"
"#,
        input.display()
    )
}
