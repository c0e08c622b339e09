//! An idle pipeline costs nothing: no byte is written, and hardly a thread wakes. Both are counted by the kernel and do
//! not depend on the load of the machine. `cargo bench --bench footprint` has the figures that do.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, Running, free_port, until};

const PATIENCE: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(10);
/// Over [`QUIET`]: less than one in two seconds, all threads together.
const WAKE_UPS_MAX: u64 = 4;
/// The number behind `name` in a file of /proc/PID.
fn number_of(running: &Running, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", running.child.id())).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the line is there");
    line.trim().parse().expect("a number")
}

/// Bytes written so far, to whatever, and how often threads have gone to sleep.
fn costs(running: &Running) -> (u64, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.child.id())).expect("the process is there");
    let tasks = tasks.map(|task| task.expect("a thread").file_name().into_string().expect("a number"));
    let switches = tasks.map(|task| number_of(running, &format!("task/{task}/status"), "voluntary_ctxt_switches:"));
    (number_of(running, "io", "wchar:"), switches.sum())
}

#[test]
fn an_idle_pipeline_writes_nothing_and_hardly_wakes() {
    let (place, port) = (Place::new(), free_port());
    place.write(
        "q.toml",
        &format!(
            r#"
[pipeline]
name = "quiet"
state = "state"
[checkpoint]
every = "100ms"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", n = "INT" }}
time = {{ column = "ts" }}
[query.windows]
sql = """
SELECT window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '4' SECOND)) GROUP BY window_start, window_end
"""
[sink.windows]
type = "file"
from = "windows"
path = "windows.ndjson"
"#
        ),
    );
    let running = place.start("q.toml");
    // A connection stays open, and so does a window.
    let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok());
    socket.write_all(b"{\"ts\":\"2026-04-02T00:00:00Z\",\"n\":1}\n").expect("sends");
    until(PATIENCE, "all is in a checkpoint", || {
        let shown = place.forebay(&["status", "q.toml", "--format", "json"]);
        let status: Value = serde_json::from_slice(&shown.stdout).ok()?;
        let is_all = status["sources"][0]["rows"] == 1
            && status["checkpoint"]["lsn"] == status["logged_lsn"]
            && status["checkpoint"]["in_flight"] == false;
        is_all.then_some(())
    });
    // Threads that are not needed any more end within a second or so: the first quiet time counts.
    until(PATIENCE, "a quiet time", || {
        let before = costs(&running);
        std::thread::sleep(QUIET);
        let after = costs(&running);
        let (bytes, wake_ups) = (after.0 - before.0, after.1.saturating_sub(before.1));
        println!("in {QUIET:?}: {bytes} bytes written, {wake_ups} wake-ups");
        (bytes == 0 && wake_ups <= WAKE_UPS_MAX).then_some(())
    });
    drop(socket);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
}
