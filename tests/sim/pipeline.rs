//! Random pipelines and their input.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use forebay::config::{self, Config};
use forebay::disk::sim::Random;

/// Output that rolls.
pub const ROLLS: u64 = 1;
/// A window over the source that cannot be rewound.
pub const FEED_WINDOW: u64 = 2;
/// Both sources in one stream.
pub const BOTH: u64 = 4;
/// Late and undecodable rows.
pub const SIDES: u64 = 8;
/// A compressed log.
pub const COMPRESSED: u64 = 16;
/// The source that cannot be rewound goes by the time of arrival.
pub const ARRIVAL: u64 = 32;
/// The log refers to the input of the source that can be rewound, until the configuration changes.
pub const POSITION: u64 = 64;
/// All of them.
pub const SHAPES: u64 = 128;

/// Where everything stands.
pub const STATE: &str = "/sim/state";
pub const OUT: &str = "/sim/out";
/// The file that can be rewound.
pub const INPUT: &str = "/sim/in/plant.ndjson";

/// The pipeline of a shape; `changed`: its projection computes something else.
fn text(shape: u64, changed: bool) -> String {
    let compression = if shape & COMPRESSED != 0 { "lz4" } else { "none" };
    let log = if shape & POSITION != 0 && !changed { "position" } else { "payload" };
    let factor = if changed { 3 } else { 2 };
    let (feed_time, feed_column) = match shape & ARRIVAL {
        0 => ("time = { column = \"ts\", max_out_of_orderness = \"500ms\" }", "ts"),
        _ => ("", "_arrival"),
    };
    let roll = if shape & ROLLS != 0 { "roll_size = \"1KiB\"" } else { "" };
    let mut text = format!(
        r#"
[pipeline]
name = "sim"
state = "{STATE}"
[checkpoint]
every = "1h"
[log]
max_size = "1MiB"
segment = "64KiB"
compression = "{compression}"
[source.plant]
type = "file"
path = "{INPUT}"
log = "{log}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE", n = "BIGINT" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
[source.feed]
type = "tcp"
listen = "127.0.0.1:9"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", n = "BIGINT" }}
{feed_time}
[query.tens]
sql = """SELECT window_start, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, device"""
[query.hot]
sql = "SELECT ts, device, temp * {factor} AS x, n FROM plant WHERE temp > 20"
[sink.tens]
type = "file"
from = "tens"
path = "{OUT}/tens.ndjson"
{roll}
[sink.hot]
type = "file"
from = "hot"
path = "{OUT}/hot.csv"
format = "csv"
{roll}
"#
    );
    let mut sink = |from: &str, path: &str, more: &str| {
        let name = from.replace('.', "_");
        writeln!(text, "[sink.{name}]\ntype = \"file\"\nfrom = \"{from}\"\npath = \"{OUT}/{path}.ndjson\"\n{more}")
            .expect("a string");
    };
    if shape & FEED_WINDOW != 0 {
        sink("fives", "fives", if shape & ROLLS != 0 { "roll_every = \"3s\"" } else { "" });
    }
    if shape & BOTH != 0 {
        sink("both", "both", "");
    }
    if shape & SIDES != 0 {
        sink("tens.late", "late", "");
        sink("feed.dead", "dead", "");
    }
    if shape & FEED_WINDOW != 0 {
        write!(
            text,
            r#"
[query.fives]
sql = """SELECT window_end, SUM(n) AS n, COUNT(DISTINCT device) AS devices
FROM TABLE(TUMBLE(TABLE feed, DESCRIPTOR({feed_column}), INTERVAL '5' SECOND)) GROUP BY window_start, window_end"""
"#,
        )
        .expect("a string");
    }
    if shape & BOTH != 0 {
        text.push_str("[query.both]\nsql = \"SELECT device, n FROM plant UNION ALL SELECT device, n FROM feed\"\n");
    }
    text
}

/// The configuration of a shape, read once.
pub fn config(shape: u64, changed: bool) -> Arc<Config> {
    static KNOWN: Mutex<BTreeMap<(u64, bool), Arc<Config>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().expect("not poisoned");
    let made = known.entry((shape, changed)).or_insert_with(|| {
        let text = text(shape, changed);
        let mut config = config::parse("sim.toml", &text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        // The least that the log allows, so that it rolls, trims and fills up.
        config.log.segment_bytes = 64 << 10;
        config.log.max_size_bytes = 256 << 10;
        config.checkpoint.log_bytes = 24 << 10;
        Arc::new(config)
    });
    Arc::clone(made)
}

fn stamp(ms: u64) -> String {
    let seconds = ms / 1000;
    format!("2026-04-02T{:02}:{:02}:{:02}.{:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60, ms % 1000)
}

/// Messages of a source, each with its number `n`, in rising event time but for some that are late.
pub fn messages(random: &mut Random, count: u64, pad_bytes: u64) -> Vec<String> {
    let mut time_ms = 3_600_000;
    let mut made = Vec::new();
    for n in 0..count {
        time_ms += random.below(4000);
        let ts = stamp(if random.one_in(12) { time_ms - 20_000 } else { time_ms });
        let (device, temp) = (random.below(4), random.below(400) as f64 / 10.0);
        let mut pad = String::new();
        let pad_bytes = if pad_bytes == 0 { 0 } else { pad_bytes / 2 + random.below(pad_bytes / 2) };
        while (pad.len() as u64) < pad_bytes {
            write!(pad, "{:x}", random.draw()).expect("a string");
        }
        let broken = if random.one_in(15) { "broken " } else { "" };
        made.push(format!(
            "{broken}{{\"ts\":\"{ts}\",\"device\":\"d{device}\",\"temp\":{temp:?},\"n\":{n},\"pad\":\"{pad}\"}}"
        ));
    }
    made
}

/// The number of a message.
pub fn number(message: &[u8]) -> u64 {
    let text = std::str::from_utf8(message).expect("UTF-8");
    let digits = text.split("\"n\":").nth(1).and_then(|rest| rest.split(',').next()).expect("a number");
    digits.parse().expect("a number")
}
