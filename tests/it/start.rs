//! A start reads as much with a large state as with a small one, and with much unread input as with little: counted until
//! the first row of the new input, after a SIGKILL. Counted, not timed: bytes read and pages touched do not depend on the
//! load of the machine.
//!
//! `FOREBAY_STATE_MB=1024 FOREBAY_BACKLOG_MB=1024 tests/run first_output --nocapture` prints the times too.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::{Duration, Instant};

use crate::support::{Place, Running, rounds, stamp, until};

const PATIENCE: Duration = Duration::from_secs(1200);
const VALUE_BYTES: u64 = 1700;
/// A line of the input, and the row that it gives at once.
const LINE_BYTES: u64 = 36;
const ROW_BYTES: u64 = 11;

/// Windows that stay open.
const TUMBLE: &str = "TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' DAY))";
const SESSION: &str = "SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '1' DAY)";

const CONFIG: &str = r#"
[pipeline]
name = "start"
memory = "16MiB"
[checkpoint]
every = "300ms"
[log]
max_size = "4MiB"
segment = "512KiB"
[source.plant]
type = "file"
path = "input.csv"
format = "csv"
follow = true
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING" }
time = { column = "ts" }
[query.texts]
sql = """
SELECT device, LISTAGG(REPEAT(device, 170)) AS text
FROM WINDOWS
GROUP BY window_start, window_end, device
"""
[query.devices]
sql = "SELECT device FROM plant"
[sink.texts]
type = "file"
from = "texts"
path = "texts.csv"
[sink.devices]
type = "file"
from = "devices"
path = "devices.csv"
format = "csv"
"#;

/// What a process had read, touched and put out when it was looked at.
#[derive(Clone, Copy, Debug)]
struct Work {
    read_bytes: u64,
    faults: u64,
    /// Of the new input, that of which the rows were out.
    done_bytes: u64,
}

fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

fn work_of(running: &Running, done_bytes: u64) -> Work {
    let proc = |name: &str| {
        std::fs::read_to_string(format!("/proc/{}/{name}", running.child.id())).expect("the process is there")
    };
    let read = proc("io").lines().find_map(|line| line.strip_prefix("rchar:").map(number)).expect("rchar");
    // After the name, which is in brackets: state, …; minor faults are the eighth, major ones the tenth.
    let stat = proc("stat");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("a name").split(' ').collect();
    Work { read_bytes: read, faults: number(fields[7]) + number(fields[9]), done_bytes }
}

/// Appends a reading for each of these devices.
fn append(place: &Place, devices: std::ops::Range<u64>) {
    let file = File::options().create(true).append(true).open(place.path("input.csv")).expect("opens");
    let mut file = BufWriter::new(file);
    for device in devices {
        writeln!(file, "{},d{device:09}", stamp(1_775_001_600_000 + device / 1000)).expect("writes");
    }
    file.flush().expect("writes");
}

/// The work until the first new row after a SIGKILL, with so much state of these windows and so much input to read. For
/// each device there are so many `entries`.
fn first_output((windows, entries): (&str, u64), state_bytes: u64, backlog_bytes: u64) -> Work {
    let place = Place::new();
    place.write("s.toml", &CONFIG.replace("WINDOWS", windows));
    let devices = state_bytes / VALUE_BYTES;
    append(&place, 0..devices);
    let mut running = place.start("s.toml");
    until(PATIENCE, "all is checkpointed", || {
        std::thread::sleep(Duration::from_millis(200));
        let list = place.forebay(&["checkpoint", "list", "state", "--format", "json"]);
        String::from_utf8_lossy(&list.stdout).contains(&format!("\"keys\":{},", devices * entries)).then_some(())
    });
    running.kill();
    let before = place.read("devices.csv").len() as u64;
    append(&place, devices..devices + 1 + backlog_bytes / LINE_BYTES);
    let started = Instant::now();
    let running = place.start("s.toml");
    let rows = place.path("devices.csv");
    let grown = || std::fs::metadata(&rows).map_or(0, |metadata| metadata.len()).saturating_sub(before);
    until(PATIENCE, "the first new row", || (grown() > 0).then_some(()));
    let elapsed = started.elapsed();
    // It goes on while it is looked at, were it not stopped.
    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("the process is there");
    let work = work_of(&running, grown() / ROW_BYTES * LINE_BYTES);
    println!("{} MiB of state, {} MiB of backlog: {work:?}, {elapsed:?}", state_bytes >> 20, backlog_bytes >> 20);
    work
}

#[test]
fn the_first_output_after_a_crash_costs_the_same_with_much_state_and_much_backlog() {
    let small = first_output((TUMBLE, 1), 2 << 20, 0);
    let state_bytes = rounds("FOREBAY_STATE_MB", 80) << 20;
    let backlog_bytes = rounds("FOREBAY_BACKLOG_MB", 128) << 20;
    let large = first_output((TUMBLE, 1), state_bytes, 0);
    assert!(large.read_bytes <= 2 * small.read_bytes + (1 << 20), "bytes read: {small:?}, {large:?}");
    // A page fault maps 16 pages: to go over 80 MiB takes 1280 of them.
    assert!(large.faults <= 2 * small.faults, "pages touched: {small:?}, {large:?}");
    // While the first row is on its way the source reads ahead until the log is full, and the engine may read that again.
    let behind = first_output((TUMBLE, 1), 2 << 20, backlog_bytes);
    let allowed = backlog_bytes / 2 + 3 * behind.done_bytes;
    assert!(behind.read_bytes <= allowed, "bytes read: {small:?}, {behind:?}");
    assert!(behind.done_bytes < backlog_bytes / 8, "the backlog is too small to tell: {behind:?}");
}

/// A session is an entry, and so is its timer.
#[test]
fn the_first_output_after_a_crash_costs_the_same_with_many_open_sessions() {
    let small = first_output((SESSION, 2), 2 << 20, 0);
    let large = first_output((SESSION, 2), rounds("FOREBAY_STATE_MB", 80) << 20, 0);
    assert!(large.read_bytes <= 2 * small.read_bytes + (1 << 20), "bytes read: {small:?}, {large:?}");
    assert!(large.faults <= 2 * small.faults, "pages touched: {small:?}, {large:?}");
}
