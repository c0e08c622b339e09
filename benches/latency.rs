//! Latency from the write to a TCP socket to the row in the output file, at 10,000 events/s, and of an fdatasync on the
//! same disk in the same run.
//!
//!   cargo bench --bench latency            20 s for each setting
//!   cargo bench --bench latency -- 5       so many seconds for each
//!
//! `cargo test` runs it for a moment, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

mod harness;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use harness::Running;

const EVENTS_PER_MS: u64 = 10;

fn main() {
    let [seconds] = harness::sizes([20], [1]);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    println!("latency at 10,000 events/s, {seconds} s each, in ms: p50, p99, p99.9, max");
    print("fdatasync of 4 KiB into a file of zeros", &mut syncs(dir.path(), 200 * seconds));
    for (name, delay, every) in [
        ("delay 100 ms (default), no checkpoint", "100ms", "1h"),
        ("delay 0 s, no checkpoint", "0s", "1h"),
        ("delay 0 s, a checkpoint each second", "0s", "1s"),
    ] {
        print(name, &mut latencies(&dir.path().join(format!("{delay}-{every}")), delay, every, seconds));
    }
}

fn print(name: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!("{name:42} {:>8.2} {:>8.2} {:>8.2} {:>8.2}", at(0.5), at(0.99), at(0.999), at(1.0));
}

fn syncs(dir: &Path, count: u64) -> Vec<Duration> {
    let file = File::create(dir.join("syncs")).expect("a file");
    file.write_all_at(&vec![0; (count as usize) << 12], 0).expect("writes");
    file.sync_all().expect("syncs");
    let page = [1; 4096];
    (0..count)
        .map(|i| {
            file.write_all_at(&page, i << 12).expect("writes");
            let started = Instant::now();
            file.sync_data().expect("syncs");
            started.elapsed()
        })
        .collect()
}

fn latencies(dir: &Path, delay: &str, every: &str, seconds: u64) -> Vec<Duration> {
    std::fs::create_dir(dir).expect("a directory");
    let port = harness::free_port();
    std::fs::write(dir.join("latency.toml"), config(port, delay, every)).expect("writes");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let command = command.args(["run", "latency.toml"]).current_dir(dir).stdout(Stdio::null()).stderr(Stdio::null());
    let _forebay = Running(command.spawn().expect("starts"));
    let mut socket = harness::connect(port);
    socket.set_nodelay(true).expect("a socket");
    let events = seconds * 1000 * EVENTS_PER_MS;
    // Sending times by sequence number.
    let sent: Mutex<Vec<Instant>> = Mutex::new(Vec::with_capacity(events as usize));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            for ms in 0..seconds * 1000 {
                let due = started + Duration::from_millis(ms);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let lines: String = (0..EVENTS_PER_MS)
                    .map(|i| {
                        let seq = ms * EVENTS_PER_MS + i;
                        format!("{{\"seq\":{seq},\"device\":\"device-0001\",\"temp\":12.5,\"text\":\"{:050}\"}}\n", seq)
                    })
                    .collect();
                let mut sent = sent.lock().expect("not poisoned");
                socket.write_all(lines.as_bytes()).expect("sends");
                let now = Instant::now();
                sent.extend((0..EVENTS_PER_MS).map(|_| now));
            }
        });
        let mut latencies = Vec::with_capacity(events as usize);
        let (mut text, mut offset) = (String::new(), 0);
        let deadline = Instant::now() + Duration::from_secs(seconds + 30);
        while (latencies.len() as u64) < events {
            assert!(Instant::now() < deadline, "all rows come out");
            std::thread::sleep(Duration::from_micros(200));
            let Ok(mut file) = File::open(dir.join("out.ndjson")) else { continue };
            file.seek(SeekFrom::Start(offset)).expect("seeks");
            let read = file.read_to_string(&mut text).expect("reads");
            offset += read as u64;
            let now = Instant::now();
            let sent = sent.lock().expect("not poisoned");
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            latencies.extend(text.drain(..whole).as_str().lines().map(|line| {
                let seq: usize = line.trim_start_matches("{\"seq\":").trim_end_matches('}').parse().expect("a row");
                now.saturating_duration_since(sent[seq])
            }));
        }
        latencies
    })
}

fn config(port: u16, delay: &str, every: &str) -> String {
    format!(
        r#"
[pipeline]
name = "latency"
state = "state"
[durability]
delay = "{delay}"
[checkpoint]
every = "{every}"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ seq = "BIGINT" }}
[query.q]
sql = "SELECT seq FROM plant"
[sink.out]
type = "file"
from = "q"
path = "out.ndjson"
"#
    )
}
