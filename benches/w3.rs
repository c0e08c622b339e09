//! W3: TCP → filter → file, all durable, beside a hand-written single-thread program that syncs its output each 100 ms.
//! Sender and receiver share the cores. Both receivers run as whole processes, alternating; time runs from the first byte
//! sent to the last row in the file; medians and ratios are printed, and the outputs must be the same bytes.
//!
//!   cargo bench --bench w3                 3 million events of about 90 bytes over one connection, 5 rounds
//!   cargo bench --bench w3 -- 200000 1     fewer events, fewer rounds
//!
//! `cargo test` runs it tiny, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

mod harness;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use harness::{DISORDER_MS, Measured, Running, generate};

fn main() {
    let number = |text: &String| text.parse().expect("a port");
    if harness::is_part("send", |arguments| send(number(&arguments[0]), Path::new(&arguments[1])))
        || harness::is_part("ceiling", |arguments| ceiling(number(&arguments[0]), Path::new(&arguments[1])))
    {
        return;
    }
    let [events, rounds] = harness::sizes([3_000_000, 5], [20_000, 1]);
    compare(events, rounds);
}

fn send(port: u16, input: &Path) {
    let mut stream = harness::connect(port);
    let mut file = File::open(input).expect("the input");
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut buffer).expect("reads");
        if read == 0 {
            break;
        }
        stream.write_all(&buffer[..read]).expect("sends");
    }
}

#[derive(Deserialize, Serialize)]
struct Reading<'a> {
    ts: &'a str,
    device: &'a str,
    temp: f64,
}

/// The hand-written program: one connection, one thread, typed serde_json, a sync each 100 ms.
fn ceiling(port: u16, output: &Path) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("listens");
    let (stream, _) = listener.accept().expect("a connection");
    let mut reader = BufReader::with_capacity(256 << 10, stream);
    let mut file = File::create(output).expect("the output");
    let mut rows = Vec::new();
    let mut synced = Instant::now();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).expect("reads");
        if read > 0 {
            let reading: Reading<'_> = serde_json::from_slice(&line).expect("a reading");
            if reading.temp > 50.0 {
                serde_json::to_writer(&mut rows, &reading).expect("writes");
                rows.push(b'\n');
            }
        }
        if read == 0 || synced.elapsed() >= Duration::from_millis(100) {
            file.write_all(&rows).expect("writes");
            rows.clear();
            file.sync_data().expect("syncs");
            synced = Instant::now();
        }
        if read == 0 {
            return;
        }
    }
}

/// Starts the receiver, sends, waits until the output is as long as `length` or the receiver ends.
fn measure(receiver: &mut Command, port: u16, input: &Path, output: &Path, length: Option<u64>) -> Measured {
    let mut receiver = Running(receiver.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"));
    let pid = receiver.0.id();
    // The connection that shows that somebody listens would be the ceiling's only one: look at the system's table.
    let wanted = format!(":{port:04X} 00000000:0000 0A");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !std::fs::read_to_string("/proc/net/tcp").expect("the table").contains(&wanted) {
        assert!(Instant::now() < deadline, "the receiver listens");
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = harness::cpu_of(pid);
    let started = Instant::now();
    let mut sender = Running(harness::part("send").arg(port.to_string()).arg(input).spawn().expect("starts"));
    let mut peak_kib = 0;
    loop {
        peak_kib = peak_kib.max(harness::peak_kib_of(pid));
        let done = match length {
            Some(length) => std::fs::metadata(output).is_ok_and(|file| file.len() >= length),
            None => std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process").contains(") Z "),
        };
        if done {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "the output is complete");
        std::thread::sleep(Duration::from_millis(2));
    }
    let wall = started.elapsed();
    let cpu = harness::cpu_of(pid).saturating_sub(before);
    assert!(sender.0.wait().expect("ends").success());
    if length.is_none() {
        assert!(receiver.0.wait().expect("ends").success());
    }
    Measured { wall, cpu, peak_kib }
}

const VARIANTS: [&str; 2] = ["lz4", "none"];

fn compare(events: u64, rounds: u64) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let input = dir.path().join("input.ndjson");
    generate(&input, events);
    let mut ceilings = Vec::new();
    let mut ours: Vec<Vec<Measured>> = VARIANTS.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        let plain = dir.path().join("ceiling.ndjson");
        let _ = std::fs::remove_file(&plain);
        let port = harness::free_port();
        let mut command = harness::part("ceiling");
        ceilings.push(measure(command.arg(port.to_string()).arg(&plain), port, &input, &plain, None));
        let length = std::fs::metadata(&plain).expect("output").len();
        for (compression, measured) in VARIANTS.iter().zip(&mut ours) {
            let work = dir.path().join("work");
            let _ = std::fs::remove_dir_all(&work);
            std::fs::create_dir(&work).expect("a directory");
            let port = harness::free_port();
            std::fs::write(work.join("w3.toml"), config(port, compression)).expect("writes");
            let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
            let command = command.args(["run", "w3.toml"]).current_dir(&work);
            let output = work.join("out.ndjson");
            measured.push(measure(command, port, &input, &output, Some(length)));
            assert!(harness::same(&plain, &output), "both give the same bytes");
        }
    }
    println!("W3: {events} events over one TCP connection; medians of {rounds} alternating rounds");
    harness::print_row("hand-written, a sync each 100 ms", events, &ceilings, &ceilings);
    for (compression, measured) in VARIANTS.iter().zip(&ours) {
        harness::print_row(&format!("forebay, compression {compression}"), events, measured, &ceilings);
    }
}

fn config(port: u16, compression: &str) -> String {
    format!(
        r#"
[pipeline]
name = "w3"
state = "state"
[log]
compression = "{compression}"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "{DISORDER_MS}ms" }}
[query.q]
sql = "SELECT ts, device, temp FROM plant WHERE temp > 50"
[sink.out]
type = "file"
from = "q"
path = "out.ndjson"
"#
    )
}
