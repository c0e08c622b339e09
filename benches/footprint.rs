//! What an idle pipeline costs: bytes written, wake-ups, memory; and how long it takes to be ready.
//!
//!   cargo bench --bench footprint          idle for 60 s, 20 starts of each kind
//!   cargo bench --bench footprint -- 10 5  so many seconds, so many starts
//!
//! `cargo test` runs it for a moment, so that it does not rot; `tests/it/quiet.rs` holds what does not depend on the
//! machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

mod harness;

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Running, WINDOWS, median, number_of, status, voluntary_switches};

const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let [seconds, starts] = harness::sizes([60, 20], [1, 2]);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    println!("binary: {} bytes", std::fs::metadata(FOREBAY).expect("the binary").len());
    idle(dir.path(), seconds);
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for _ in 0..starts {
        let _ = std::fs::remove_dir_all(dir.path().join("state"));
        new.push(ready(dir.path()).1);
        known.push(ready(dir.path()).1);
    }
    println!("start to ready, medians of {starts}: new state {:.1?}, after a SIGKILL {:.1?}", mid(&new), mid(&known));
}

fn mid(times: &[Duration]) -> Duration {
    median(times.iter().copied())
}

/// Starts a pipeline and waits until it says that it is ready (sd_notify).
fn ready(dir: &Path) -> (Running, Duration) {
    std::fs::write(dir.join("idle.toml"), config(harness::free_port())).expect("writes");
    let notify = dir.join("notify.sock");
    let _ = std::fs::remove_file(&notify);
    let socket = UnixDatagram::bind(&notify).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut command = Command::new(FOREBAY);
    let command = command.args(["run", "idle.toml"]).current_dir(dir).env("NOTIFY_SOCKET", &notify);
    let started = Instant::now();
    let running = Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"));
    let mut message = [0; 64];
    let length = socket.recv(&mut message).expect("it is ready");
    let elapsed = started.elapsed();
    assert!(message[..length].starts_with(b"READY=1"));
    (running, elapsed)
}

fn idle(dir: &Path, seconds: u64) {
    let (running, _) = ready(dir);
    let pid = running.0.id();
    let started = Instant::now();
    loop {
        // Its start is in the log, and not yet in a checkpoint.
        let Some(status) = status(&dir.join("state")) else { continue };
        if status["checkpoint"]["lsn"] == status["logged_lsn"] && status["checkpoint"]["in_flight"] == false {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "its start is in a checkpoint");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Threads that are not needed any more end.
    std::thread::sleep(Duration::from_secs(2));
    let written = || number_of(pid, "io", "wchar:");
    let (written_before, switches_before) = (written(), voluntary_switches(pid));
    std::thread::sleep(Duration::from_secs(seconds));
    let (bytes, switches) = (written() - written_before, voluntary_switches(pid) - switches_before);
    let of_status = |name| number_of(pid, "status", name);
    println!(
        "idle for {seconds} s: {bytes} bytes written, {:.2} wake-ups per second, {:.2} MB resident ({:.2} MB anonymous), {} threads",
        switches as f64 / seconds as f64,
        of_status("VmRSS:") as f64 * 1024.0 / 1e6,
        of_status("RssAnon:") as f64 * 1024.0 / 1e6,
        of_status("Threads:")
    );
}

fn config(port: u16) -> String {
    format!(
        r#"
[pipeline]
name = "idle"
state = "state"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
{WINDOWS}
[sink.out]
type = "file"
from = "q"
path = "out.ndjson"
"#
    )
}
