//! A soak: a pipeline under a steady load, whose memory, descriptors, threads and log must not grow with its age. It takes
//! three minutes, and its name lets it begin first, so that the other tests run beside it.
//!
//! `FOREBAY_SOAK_S=3600 tests/run soak --nocapture` for an hour; it prints what it saw.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Place, Random, Running, free_port, rounds, stamp, until};

const PATIENCE: Duration = Duration::from_secs(120);
/// Event time runs so many times as fast as the clock, so that many windows end.
const SPEED: u64 = 10;
const EVENTS_PER_S: u64 = 500;
const LOG_BYTES_MAX: u64 = 4 << 20;
/// What the allocator may hold back more in the second half than in the first.
const GROWTH_BYTES: u64 = 1 << 20;

/// Windows of all kinds, and rows over a while; devices come and go, so keys do.
const CONFIG: &str = r#"
[pipeline]
name = "soak"
state = "state"
memory = "8MiB"
[checkpoint]
every = "1s"
[log]
max_size = "4MiB"
segment = "256KiB"
[source.plant]
type = "tcp"
listen = "127.0.0.1:PORT"
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }
time = { column = "ts", max_out_of_orderness = "500ms" }
[query.tens]
sql = """
SELECT window_start, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, device
"""
[query.minutes]
sql = """
SELECT window_start, MAX(temp) AS t, COUNT(DISTINCT device) AS devices
FROM TABLE(HOP(TABLE plant, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '1' MINUTE)) GROUP BY window_start, window_end
"""
[query.sessions]
sql = """
SELECT window_start, window_end, device, COUNT(*) AS n
FROM SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '3' SECOND) GROUP BY window_start, window_end, device
"""
[query.recent]
sql = """
SELECT ts, device, t FROM (
  SELECT ts, device,
    AVG(temp) OVER (PARTITION BY device ORDER BY ts RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW) AS t
  FROM plant)
WHERE t > 95
"""
[sink.tens]
type = "file"
from = "tens"
path = "tens.ndjson"
roll_size = "64KiB"
[sink.minutes]
type = "file"
from = "minutes"
path = "minutes.ndjson"
[sink.sessions]
type = "file"
from = "sessions"
path = "sessions.ndjson"
roll_size = "64KiB"
[sink.recent]
type = "file"
from = "recent"
path = "recent.ndjson"
"#;

/// What was seen of the process at a moment.
#[derive(Clone, Copy, Debug)]
struct Seen {
    anonymous_bytes: u64,
    descriptors: u64,
    threads: u64,
    log_bytes: u64,
}

fn entries(dir: &Path) -> u64 {
    std::fs::read_dir(dir).map_or(0, |entries| entries.count() as u64)
}

fn look(running: &Running, place: &Place) -> Seen {
    let proc = Path::new("/proc").join(running.child.id().to_string());
    let status = std::fs::read_to_string(proc.join("status")).expect("the process is there");
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    let segments = std::fs::read_dir(place.path("state/log")).expect("the log");
    Seen {
        anonymous_bytes: anonymous.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10,
        descriptors: entries(&proc.join("fd")),
        threads: entries(&proc.join("task")),
        // One may be renamed or removed meanwhile.
        log_bytes: segments.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum(),
    }
}

/// Readings of one second, from the one with this number on.
fn second(random: &mut Random, first: u64) -> String {
    let mut text = String::new();
    for event in first..first + EVENTS_PER_S {
        let millis = 1_775_001_600_000 + event * 1000 * SPEED / EVENTS_PER_S;
        let (device, temp) = (event / (20 * EVENTS_PER_S) * 20 + random.below(100), random.below(100_000));
        let disorder = random.below(500).min(event);
        writeln!(
            text,
            "{{\"ts\":\"{}\",\"device\":\"d{device}\",\"temp\":{}.{:03}}}",
            stamp(millis - disorder),
            temp / 1000,
            temp % 1000
        )
        .expect("a string");
    }
    text
}

#[test]
fn a_soak_leaves_memory_descriptors_threads_and_log_as_they_were() {
    let time = Duration::from_secs(rounds("FOREBAY_SOAK_S", 180));
    let (place, port) = (Place::new(), free_port());
    place.write("s.toml", &CONFIG.replace("PORT", &port.to_string()));
    let running = place.start("s.toml");
    let mut random = Random(7);
    let (started, mut sent, mut seen) = (Instant::now(), 0, Vec::new());
    while started.elapsed() < time {
        // Each second another connection, somebody asks for the status, and somebody reads the checkpoint.
        let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok());
        socket.write_all(second(&mut random, sent).as_bytes()).expect("sends");
        sent += EVENTS_PER_S;
        drop(socket);
        place.forebay(&["checkpoint", "show", "state", "--format", "json"]);
        let shown = place.forebay(&["status", "s.toml", "--format", "json"]);
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        seen.push(look(&running, &place));
        let next = Duration::from_secs(sent / EVENTS_PER_S);
        std::thread::sleep(next.saturating_sub(started.elapsed()));
    }
    until(PATIENCE, "all rows are processed", || {
        let shown = place.forebay(&["status", "s.toml", "--format", "json"]);
        let status: Value = serde_json::from_slice(&shown.stdout).ok()?;
        (status["sources"][0]["rows"] == sent).then_some(())
    });
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));

    let (first, second) = seen.split_at(seen.len() / 2);
    let most = |of: &[Seen], what: fn(&Seen) -> u64| of.iter().map(what).max().unwrap_or(0);
    let middle = |of: &[Seen], what: fn(&Seen) -> u64| {
        let mut values: Vec<u64> = of.iter().map(what).collect();
        values.sort();
        values[values.len() / 2]
    };
    println!("{sent} events in {:?}", started.elapsed());
    for (name, what) in [
        ("anonymous bytes", (|seen| seen.anonymous_bytes) as fn(&Seen) -> u64),
        ("descriptors", |seen| seen.descriptors),
        ("threads", |seen| seen.threads),
        ("log bytes", |seen| seen.log_bytes),
    ] {
        let of = |half: &[Seen]| format!("median {}, most {}", middle(half, what), most(half, what));
        println!("{name}: first half {}; second half {}", of(first), of(second));
    }
    let grown = most(second, |seen| seen.anonymous_bytes).saturating_sub(most(first, |seen| seen.anonymous_bytes));
    assert!(grown <= GROWTH_BYTES, "the second half took {grown} bytes more memory");
    assert_eq!(middle(second, |seen| seen.descriptors), middle(first, |seen| seen.descriptors));
    assert!(most(second, |seen| seen.descriptors) <= most(first, |seen| seen.descriptors) + 1);
    assert_eq!(middle(second, |seen| seen.threads), middle(first, |seen| seen.threads));
    assert!(most(second, |seen| seen.threads) <= most(first, |seen| seen.threads) + 1);
    assert!(most(&seen, |seen| seen.log_bytes) <= LOG_BYTES_MAX);
}
