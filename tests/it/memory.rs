//! State larger than memory: what the process allocates stays within `pipeline.memory` and a constant, however much a
//! window holds, also while it fires; and the results are right.
//!
//! `FOREBAY_STATE_MB=2048 tests/run memory` for more than the 256 MB of CI.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::time::{Duration, Instant};

use crate::support::{Place, Random, Running, rounds, stamp};

/// What the process may allocate beside `pipeline.memory`: as README.md says.
const CONSTANT_BYTES: u64 = 24 << 20;
const MEMORY_BYTES: u64 = 32 << 20;
/// Bytes of one key's value: two fit on a page of LMDB.
const VALUE_BYTES: u64 = 1700;
/// Debug builds on a busy machine take their time; a build that hangs fails.
const PATIENCE: Duration = Duration::from_secs(900);

/// Anonymous memory of a process in bytes; `None` once it has ended.
fn anonymous_bytes(running: &Running) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Runs to the end; the greatest anonymous memory that was seen.
fn peak_of(running: &mut Running) -> u64 {
    let started = Instant::now();
    let (mut peak, mut last) = (0, 0);
    let mut trace = String::new();
    loop {
        let now = anonymous_bytes(running).unwrap_or(0);
        if now >> 22 != last >> 22 {
            last = now;
            let _ = writeln!(trace, "{} ms: {} KiB", started.elapsed().as_millis(), now >> 10);
        }
        peak = peak.max(now);
        if let Some(status) = running.child.try_wait().expect("a child") {
            println!("{trace}peak {} KiB, {} ms", peak >> 10, started.elapsed().as_millis());
            assert!(status.success(), "{status}");
            return peak;
        }
        assert!(started.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn config(window: &str) -> String {
    format!(
        r#"
[pipeline]
name = "memory"
memory = "32MiB"
[checkpoint]
every = "5s"
[log]
max_size = "64MiB"
segment = "4MiB"
[source.plant]
type = "file"
path = "input.csv"
format = "csv"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", n = "INT", note = "STRING" }}
time = {{ column = "ts" }}
[query.per_device]
sql = """
SELECT device, COUNT(*) AS readings, SUM(n) AS total, AVG(n) AS mean, CHAR_LENGTH(LISTAGG(REPEAT(note, 10))) AS text
FROM TABLE({window})
GROUP BY window_start, window_end, device
"""
[sink.out]
type = "file"
from = "per_device"
path = "out.csv"
format = "csv"
"#
    )
}

/// One reading per device, in no order; the devices.
fn write_input(place: &Place, state_bytes: u64) -> u64 {
    let devices = state_bytes / VALUE_BYTES;
    let mut file = BufWriter::new(std::fs::File::create(place.path("input.csv")).expect("creates"));
    // A permutation of the devices: a multiplier without a factor in common.
    let prime = 982_451_653;
    let note = "n".repeat(VALUE_BYTES as usize / 10);
    let offset = Random(devices).below(devices);
    for i in 0..devices {
        let device = (i * prime + offset) % devices;
        let at = 1_775_001_600_000 + i * 80_000_000 / devices;
        writeln!(file, "{},d{device:09},{},{note}", stamp(at), device % 1000).expect("writes");
    }
    file.flush().expect("writes");
    devices
}

#[test]
fn memory_holds_a_window_that_is_larger_than_it() {
    let state_bytes = rounds("FOREBAY_STATE_MB", 256) << 20;
    let place = Place::new();
    place.write("m.toml", &config("TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' DAY)"));
    let devices = write_input(&place, state_bytes);
    let mut running = place.start("m.toml");
    let peak = peak_of(&mut running);
    let out = BufReader::new(std::fs::File::open(place.path("out.csv")).expect("opens"));
    let mut rows = 0;
    for (row, line) in out.lines().skip(1).enumerate() {
        let n = row % 1000;
        let expected = format!("d{row:09},1,{n},{n},{}", VALUE_BYTES / 10 * 10);
        assert_eq!(line.expect("UTF-8"), expected, "row {row}");
        rows += 1;
    }
    assert_eq!(rows, devices, "every device once, in order");
    let allowed = MEMORY_BYTES + CONSTANT_BYTES;
    assert!(peak <= allowed, "{} KiB were allocated, {} KiB are allowed", peak >> 10, allowed >> 10);
}
