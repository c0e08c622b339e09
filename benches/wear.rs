//! Flash wear: bytes that the device writes per byte ingested, at steady rates of JSON lines of 90 bytes over TCP, with
//! the default settings, for log, checkpoints and output; from the engine's own counters (`forebay status`).
//!
//!   cargo bench --bench wear               all rates, a minute each
//!   cargo bench --bench wear -- 20         so many seconds each
//!
//! With `WEAR_DIR=/mnt/alone`, a directory on a device that nobody else writes to (a loop device does), it runs there and
//! shows beside them what the device itself has counted, the file system's own blocks included. (`write_bytes` of
//! /proc/PID/io is no use for this: a kernel with large folios counts a whole one where a page of it is written.)
//!
//! The log's segments are smaller than the default (256 KiB instead of 16 MiB), and before it is measured a burst fills
//! some: so the ring has turned, and no segment is made any more. `cargo test` runs it tiny, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

use std::fmt::Write as _;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Bytes of an event, its line end included.
const EVENT_BYTES: usize = 90;
const PATIENCE: Duration = Duration::from_secs(120);

struct Load {
    events_per_s: u64,
    devices: u64,
    delay: &'static str,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let whole = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments.iter().find_map(|argument| argument.parse::<u64>().ok());
    let seconds = given.unwrap_or(if whole { 60 } else { 1 });
    let load = |events_per_s, devices, delay| Load { events_per_s, devices, delay };
    let mut loads = vec![load(1000, 100, "100ms")];
    if whole {
        loads = vec![
            load(10, 10, "100ms"),
            load(10, 10, "1s"),
            load(10, 10, "10s"),
            load(1000, 100, "100ms"),
            load(1000, 1000, "100ms"),
            load(100_000, 1000, "100ms"),
        ];
    }
    println!("device bytes per ingested byte, {EVENT_BYTES} bytes an event, {seconds} s each");
    println!("events/s  devices  delay    log  checkpoints  log + checkpoints  output  device, all  log syncs/s");
    for load in &loads {
        measure(load, seconds, if whole { 12_000_000 } else { 1_000_000 }, whole);
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is counted at one moment.
struct Counts {
    ingested: u64,
    log: u64,
    checkpoints: u64,
    output: u64,
    syncs: u64,
    device: Option<u64>,
    records: u64,
}

/// Bytes that the device of a directory has written.
fn device_bytes(dir: &Path) -> Option<u64> {
    std::env::var_os("WEAR_DIR")?;
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let counts = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    Some(counts.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}

fn counts(dir: &Path) -> Option<Counts> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let output = command.args(["status", "wear.toml", "--format", "json"]).current_dir(dir).output().expect("runs");
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    let wear = |name: &str| status["wear"][name].as_u64();
    Some(Counts {
        ingested: wear("ingested_bytes")?,
        log: wear("log_bytes")?,
        checkpoints: wear("checkpoint_bytes")?,
        output: wear("output_bytes")?,
        syncs: wear("log_syncs")?,
        device: device_bytes(dir),
        // Every event must be a row, or nothing of this is measured.
        records: status["sources"][0]["rows"].as_u64()?,
    })
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Events of now, of devices in a fixed pseudo-random order.
struct Events {
    devices: u64,
    sent: u64,
    state: u64,
}

impl Events {
    fn write(&mut self, count: u64, out: &mut String) {
        let ts = jiff::Timestamp::now();
        for _ in 0..count {
            self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (device, temp) = ((self.state >> 33) % self.devices, (self.state >> 40) % 100_000);
            let start = out.len();
            write!(
                out,
                "{{\"ts\":\"{ts:.3}\",\"device\":\"device-{device:04}\",\"temp\":{}.{:03},\"seq\":{:>8}",
                temp / 1000,
                temp % 1000,
                self.sent % 100_000_000
            )
            .expect("a string");
            while out.len() - start < EVENT_BYTES - 2 {
                out.push(' ');
            }
            out.push_str("}\n");
            self.sent += 1;
        }
    }
}

fn measure(load: &Load, seconds: u64, burst_bytes: usize, whole: bool) {
    let place = std::env::var_os("WEAR_DIR").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let dir = tempfile::tempdir_in(place).expect("a directory");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    std::fs::write(dir.path().join("wear.toml"), config(port, load.delay)).expect("writes");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let command = command.args(["run", "wear.toml"]).current_dir(dir.path());
    let _running = Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"));
    let mut socket = until("the port opens", || TcpStream::connect(("127.0.0.1", port)).ok());
    let mut events = Events { devices: load.devices, sent: 0, state: 42 };
    let mut text = String::new();

    // The ring turns: segments are filled, and trimmed by two checkpoints.
    events.write((burst_bytes / EVENT_BYTES) as u64, &mut text);
    socket.write_all(text.as_bytes()).expect("writes");
    until("the burst is processed", || counts(dir.path()).filter(|counts| counts.records >= events.sent));
    let warm = Duration::from_secs(if whole { 25 } else { 0 });
    pace(&mut events, &mut socket, load.events_per_s, warm);
    let before = until("counts", || counts(dir.path()));
    let (started, first) = (Instant::now(), events.sent);
    pace(&mut events, &mut socket, load.events_per_s, Duration::from_secs(seconds));
    // Fewer than wanted where the engine cannot follow.
    let events_per_s = (events.sent - first) as f64 / started.elapsed().as_secs_f64();
    // The last frame waits for its delay.
    until("all is logged", || counts(dir.path()).filter(|counts| counts.records >= events.sent));
    let after = until("counts", || counts(dir.path()));

    let ingested = (after.ingested - before.ingested) as f64;
    let per_byte = |of: fn(&Counts) -> u64| (of(&after) - of(&before)) as f64 / ingested;
    let (log, checkpoints) = (per_byte(|counts| counts.log), per_byte(|counts| counts.checkpoints));
    let device = after.device.zip(before.device).map(|(after, before)| (after - before) as f64 / ingested);
    let device = device.map_or("-".to_owned(), |device| format!("{device:.2}"));
    println!(
        "{events_per_s:>8.0}  {:>7}  {:>5}  {log:>5.2}  {checkpoints:>11.2}  {:>17.2}  {:>6.2}  {device:>11}  {:>11.1}",
        load.devices,
        load.delay,
        log + checkpoints,
        per_byte(|counts| counts.output),
        (after.syncs - before.syncs) as f64 / seconds as f64
    );
    assert!(ingested > 0.0 && log > 0.0);
}

/// Sends at a steady rate, 100 times a second at most.
fn pace(events: &mut Events, socket: &mut TcpStream, events_per_s: u64, time: Duration) {
    let (started, first) = (Instant::now(), events.sent);
    let mut text = String::new();
    while started.elapsed() < time {
        let due = (started.elapsed().as_secs_f64() * events_per_s as f64) as u64;
        let count = due.saturating_sub(events.sent - first);
        text.clear();
        events.write(count, &mut text);
        socket.write_all(text.as_bytes()).expect("writes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn config(port: u16, delay: &str) -> String {
    format!(
        r#"
[pipeline]
name = "wear"
state = "state"
[durability]
delay = "{delay}"
[log]
segment = "256KiB"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
[query.tens]
sql = """
SELECT window_start, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, device
"""
[sink.out]
type = "file"
from = "tens"
path = "out.ndjson"
"#
    )
}
