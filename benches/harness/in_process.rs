//! What the benchmarks share that run the engine in their own process: frames as a source makes them, and an engine.

#![allow(dead_code, reason = "each benchmark uses a part")]

use std::path::Path;
use std::sync::Arc;

use forebay::config::{self, Config};
use forebay::disk::RealDisk;
use forebay::engine::choices::Choices;
use forebay::engine::open::{Opened, Start, open};
use forebay::engine::step::Engine;
use forebay::event::{Epoch, Frame, LogTime, Lsn, RecordKind, Run, SourceId};
use forebay::expr::{DataType, Field};
use forebay::replay_log::{self, Compression, Identity, LogOptions, LogWriter};

/// The query of W1.
pub const WINDOWS: &str = include_str!("windows.toml");

/// Filter and projection.
pub const FILTER: &str = "[query.q]\nsql = \"SELECT ts, device, temp * 1.8 + 32 AS f FROM plant WHERE temp > 50\"\n";

/// The columns that are read of what [`frames`] gives.
pub fn columns() -> [Field; 3] {
    let field = |name: &str, of| Field::new(name, of);
    [field("ts", DataType::TimestampLtz(3)), field("device", DataType::String), field("temp", DataType::Double)]
}

/// Frames of so many readings each, of about 100 bytes.
pub fn frames(events: u64, per_frame: usize, devices: u64, source: SourceId, first: Lsn) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut first_lsn = first;
    let mut run = Run::new(source, RecordKind::Data, LogTime(1));
    for event in 0..events {
        let (ms, device) = (event / 10, event.wrapping_mul(2_654_435_761) % devices);
        let reading = format!(
            "{{\"ts\":\"2026-04-02T{:02}:{:02}:{:02}.{:03}Z\",\"device\":\"device-{device:06}\",\"temp\":{}.{:03},\"seq\":{event}}}",
            ms / 3_600_000 % 24,
            ms / 60_000 % 60,
            ms / 1000 % 60,
            ms % 1000,
            event % 97,
            event * 37 % 1000
        );
        run.push(reading.as_bytes());
        if run.len() == per_frame || event + 1 == events {
            let full = std::mem::replace(&mut run, Run::new(source, RecordKind::Data, LogTime(1)));
            let next = first_lsn.plus(full.len() as u64);
            frames.push(Frame { first_lsn, runs: vec![full] });
            first_lsn = next;
        }
    }
    frames
}

/// An engine at the beginning of a new state, with `query` (a query `q`) over a source `plant` into a file.
pub fn engine(dir: &Path, query: &str) -> (Config, Opened) {
    let text = format!(
        r#"
[pipeline]
name = "bench"
state = "{0}/state"
[source.plant]
type = "file"
path = "unused"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
{query}
[sink.out]
type = "file"
from = "q"
path = "{0}/out.ndjson"
"#,
        dir.display()
    );
    let config = config::parse("bench.toml", &text).expect("a configuration");
    let Start::Go(opened) = open(&config, 8192, &Choices::default()).expect("opens") else { panic!("a new state") };
    (config, *opened)
}

/// Lets an engine take frames.
pub fn take(engine: &mut Engine, frames: &[Frame]) {
    for frame in frames {
        engine.step(frame).expect("steps");
        engine.flush().expect("flushes");
    }
}

/// A new log without an engine.
pub fn log(dir: &Path, compression: Compression) -> LogWriter {
    let sources = vec![(SourceId(0), "plant".into())];
    let identity = Identity { pipeline: "bench".into(), epoch: Epoch::default(), sources };
    let options = LogOptions { segment_bytes: 16 << 20, max_bytes: 1 << 30, compression };
    let opened = replay_log::open(Arc::new(RealDisk), &dir.join("log"), identity, options, Lsn::ZERO);
    opened.expect("a log").0
}
