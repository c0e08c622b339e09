//! The executable under a wall clock that jumps, by a preloaded library that shifts it (the clock since boot is the
//! machine's): a box that boots in 1970, synchronisation, steps of hours both ways, a start while log time is ahead.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{Place, Running, copy_dir, free_port, until};

const PATIENCE: Duration = Duration::from_secs(60);
const HOUR_S: i64 = 3600;

fn config(plant: u16, stamped: u16) -> String {
    format!(
        r#"
[pipeline]
name = "clock"
state = "state"
[durability]
delay = "2ms"
[checkpoint]
every = "1h"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{plant}"
columns = {{ n = "BIGINT" }}
[source.stamped]
type = "tcp"
listen = "127.0.0.1:{stamped}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", n = "BIGINT" }}
time = {{ column = "ts", max_future = "10m" }}
[query.arrivals]
sql = """
SELECT window_start, SUM(n) AS s, COUNT(*) AS c
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(_arrival), INTERVAL '1' SECOND)) GROUP BY window_start, window_end
"""
[query.accepted]
sql = "SELECT n FROM stamped"
[sink.arrivals]
type = "file"
from = "arrivals"
path = "out/arrivals.ndjson"
[sink.accepted]
type = "file"
from = "accepted"
path = "out/accepted.ndjson"
[sink.dead]
type = "file"
from = "stamped.dead"
path = "out/dead.ndjson"
"#
    )
}

/// A place whose wall clock can be set.
struct Machine {
    place: Place,
    plant: u16,
    stamped: u16,
    n: u64,
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

impl Machine {
    fn new() -> Machine {
        let place = Place::new();
        let (plant, stamped) = (free_port(), free_port());
        place.write("f.toml", &config(plant, stamped));
        Machine { place, plant, stamped, n: 0 }
    }

    /// From now on the wall clock is so far off.
    fn shift(&self, seconds: i64, synchronised: bool) {
        self.place.write("wall.new", &format!("{seconds} {}", u8::from(synchronised)));
        std::fs::rename(self.place.path("wall.new"), self.place.path("wall")).expect("renames");
    }

    fn start(&self) -> Running {
        self.place.start_on_wall_clock("f.toml")
    }

    /// Sends rows, each with the next number, and waits until they are logged.
    fn send(&mut self, rows: u64) {
        let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", self.plant)).ok());
        for _ in 0..rows {
            self.n += 1;
            writeln!(socket, "{{\"n\":{}}}", self.n).expect("writes");
        }
        drop(socket);
        self.until_logged(&format!("{{\"n\":{}}}", self.n));
    }

    /// Sends a row with this event time.
    fn send_stamped(&self, unix_s: i64, n: u64) {
        let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", self.stamped)).ok());
        let ts = jiff::Timestamp::from_second(unix_s).expect("a time");
        let row = format!("{{\"ts\":\"{ts}\",\"n\":{n}}}");
        writeln!(socket, "{row}").expect("writes");
        drop(socket);
        self.until_logged(&row);
    }

    fn until_logged(&self, row: &str) {
        until(PATIENCE, row, || self.log().iter().any(|record| record["payload"] == row).then_some(()));
    }

    fn log(&self) -> Vec<Value> {
        let cat = self.place.forebay(&["log", "cat", "f.toml", "--format", "json"]);
        let lines = String::from_utf8(cat.stdout).expect("UTF-8");
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn rows(&self, name: &str) -> Vec<Value> {
        let text = self.place.text(name);
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
    }

    /// Waits until every row sent is in a window that has fired: nothing comes, so ticks must do it.
    fn until_all_fired(&self) {
        until(PATIENCE, "every window fires", || {
            let count: u64 = self.rows("out/arrivals.ndjson").iter().map(|row| row["c"].as_u64().unwrap()).sum();
            (count == self.n).then_some(())
        });
    }
}

fn micros(record: &Value) -> i64 {
    record["time"].as_str().expect("text").parse::<jiff::Timestamp>().expect("a time").as_microsecond()
}

#[test]
fn a_wall_clock_that_jumps_loses_and_repeats_nothing() {
    let mut machine = Machine::new();
    // A box without a battery boots in 1970; nothing has set its clock.
    machine.shift(-now_s(), false);
    let mut running = machine.start();
    machine.send(3);
    machine.send_stamped(now_s(), 1);
    machine.until_all_fired();
    // Synchronised: fifty-six years forward.
    machine.shift(0, true);
    machine.send(3);
    machine.send_stamped(now_s() + 60, 2);
    machine.send_stamped(now_s() + 2 * HOUR_S, 3);
    machine.until_all_fired();
    // An hour forward and back; log time then goes on at half speed.
    for shift in [HOUR_S, 0] {
        machine.shift(shift, true);
        machine.send(3);
    }
    machine.until_all_fired();
    running.kill();
    let at_kill = machine.place.text("out/arrivals.ndjson");
    let copied = Machine { place: Place::new(), ..machine };
    copy_dir(machine.place.dir.path(), copied.place.dir.path());

    // A start while log time is ahead.
    machine.shift(-HOUR_S, true);
    let running = machine.start();
    machine.send(3);
    machine.until_all_fired();
    assert_eq!(running.stop(), 0, "{}", machine.place.text("stderr.txt"));

    let log = machine.log();
    let times: Vec<i64> = log.iter().map(micros).collect();
    assert!(times.is_sorted(), "log time never runs backwards");
    let steps: Vec<i64> = log
        .iter()
        .filter(|record| record["kind"] == "clock_step")
        .map(|record| record["wall_minus_log_us"].as_i64().expect("a number"))
        .collect();
    assert_eq!(steps.len(), 4, "1970 to now, an hour forward, an hour back, a start behind: {steps:?}");
    let hours = |us: i64| (us as f64 / 3.6e9).round() as i64;
    assert_eq!(steps.iter().map(|us| hours(*us)).collect::<Vec<_>>(), [0, 0, -1, -2], "{steps:?}");
    // What came in 1970 is marked, and a stamp of today was not in its future.
    let marked = |record: &&Value| record["unsynchronised"] == true && record["kind"] == "data";
    assert_eq!(log.iter().filter(marked).count(), 4);
    assert!(log.iter().filter(marked).all(|record| micros(record) < 86_400_000_000));
    let accepted: Vec<u64> = machine.rows("out/accepted.ndjson").iter().map(|row| row["n"].as_u64().unwrap()).collect();
    assert_eq!(accepted, [1, 2]);
    let dead = machine.place.text("out/dead.ndjson");
    assert!(dead.lines().count() == 1 && dead.contains("too far in the future"), "{dead}");

    // The windows, by hand: each row is in the one of its logged arrival.
    let mut expected: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    for record in log.iter().filter(|record| record["kind"] == "data" && record["source"] == "plant") {
        let row: Value = serde_json::from_str(record["payload"].as_str().expect("text")).expect("a row");
        let window = expected.entry(micros(record).div_euclid(1_000_000)).or_default();
        *window = (window.0 + row["n"].as_u64().expect("a number"), window.1 + 1);
    }
    let found: Vec<(i64, (u64, u64))> = machine
        .rows("out/arrivals.ndjson")
        .iter()
        .map(|row| {
            let start: jiff::Timestamp = format!("{}Z", row["window_start"].as_str().unwrap()).parse().unwrap();
            (start.as_second(), (row["s"].as_u64().unwrap(), row["c"].as_u64().unwrap()))
        })
        .collect();
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>());

    // The same log replayed under another clock, its output made anew: the same bytes.
    for (name, _) in [("arrivals", ()), ("accepted", ()), ("dead", ())] {
        std::fs::remove_file(copied.place.path(&format!("out/{name}.ndjson"))).expect("removes");
    }
    copied.shift(-20 * 365 * 24 * HOUR_S, false);
    let running = copied.start();
    until(PATIENCE, "the source listens", || TcpStream::connect(("127.0.0.1", copied.plant)).ok());
    assert_eq!(running.stop(), 0, "{}", copied.place.text("stderr.txt"));
    assert!(!at_kill.is_empty() && copied.place.text("out/arrivals.ndjson") == at_kill);
    assert_eq!(copied.place.text("out/dead.ndjson"), dead);
}
