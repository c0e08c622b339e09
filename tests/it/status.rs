//! `forebay status` and `log stat` on a pipeline that runs, is killed, runs again and ends.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, free_port, outcome, until};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(port: u16) -> String {
    format!(
        r#"
[pipeline]
name = "told"
state = "state"
[durability]
delay = "2ms"
[checkpoint]
every = "50ms"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", n = "BIGINT" }}
time = {{ column = "ts" }}
[query.seconds]
sql = """
SELECT window_start, SUM(n) AS s
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end
"""
[sink.seconds]
type = "file"
from = "seconds"
path = "out/seconds.ndjson"
[sink.late]
type = "file"
from = "seconds.late"
path = "out/late.ndjson"
"#
    )
}

fn status(place: &Place) -> Option<Value> {
    let output = place.forebay(&["status", "f.toml", "--format", "json"]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn send(port: u16, text: &str) {
    let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok());
    socket.write_all(text.as_bytes()).expect("writes");
}

/// Waits for a status that shows so many records of the source, all of them in a checkpoint.
fn settled(place: &Place, records: u64) -> Value {
    until(PATIENCE, "records are in a checkpoint", || {
        let status = status(place)?;
        let lsn = |name: &str| status[name].as_u64();
        let all = status["checkpoint"]["lsn"].as_u64() == lsn("logged_lsn");
        (status["sources"][0]["records"] == records && all).then_some(status)
    })
}

#[test]
fn a_running_engine_tells_what_it_is_at() {
    let place = Place::new();
    let port = free_port();
    place.write("f.toml", &config(port));
    let (code, message) = outcome(&place.forebay(&["status", "f.toml"]));
    assert!(code == 69 || code == 64, "{message}");
    let mut running = place.start("f.toml");
    send(
        port,
        "{\"ts\":\"2026-04-02T01:00:00.000Z\",\"n\":1}\n{\"ts\":\"2026-04-02T01:00:05.000Z\",\"n\":2}\n\
         {\"ts\":\"2026-04-02T01:00:00.500Z\",\"n\":3}\nnonsense\n",
    );
    let first = settled(&place, 4);
    assert_eq!(first["pipeline"], "told");
    assert_eq!(first["pid"], running.child.id());
    let source = &first["sources"][0];
    assert_eq!((&source["name"], &source["rows"], &source["dead"]), (&"plant".into(), &3.into(), &1.into()));
    assert_eq!(source["run_bytes"], 3 * 39 + 8);
    assert_eq!(first["queries"][0]["late"], 1);
    let sinks: Vec<(&str, u64)> = first["sinks"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|sink| (sink["name"].as_str().unwrap(), sink["rows"].as_u64().unwrap()))
        .collect();
    assert_eq!(sinks, [("seconds", 1), ("late", 1)]);
    assert_eq!(first["processed_lsn"], first["logged_lsn"]);
    assert!(first["checkpoint"]["age_ms"].as_u64().is_some());
    assert_eq!(first["log_time_ahead_us"], 0);
    let wear = &first["wear"];
    let number = |name: &str| wear[name].as_u64().unwrap();
    assert!(number("ingested_bytes") >= 125, "{wear}");
    // The first segment is filled with zeros; a checkpoint takes some pages.
    assert!(number("log_bytes") > 16 << 20 && number("log_bytes").is_multiple_of(4096), "{wear}");
    assert!(number("checkpoint_bytes") >= 4096 && number("checkpoints") > 0, "{wear}");
    assert!(number("output_bytes") > 0 && number("log_syncs") > 0, "{wear}");
    assert!(first["written_per_ingested"].as_f64().unwrap() > 1.0);

    let text = place.forebay(&["status", "state"]);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    for part in ["pipeline    told, ", "source      plant: 4 records, 3 rows, 1 dead", "sink        seconds: 1 rows"] {
        assert!(text.contains(part), "{text}");
    }
    let mode = place.path("state/control.sock").symlink_metadata().expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    running.kill();
    let (code, message) = outcome(&place.forebay(&["status", "state"]));
    assert!(code == 69 && message.contains("no engine runs on state"), "{code}: {message}");
    // Another start takes the place of the dead socket, and goes on counting.
    let running = place.start("f.toml");
    send(port, "{\"ts\":\"2026-04-02T01:00:20.000Z\",\"n\":4}\n");
    let second = settled(&place, 5);
    // (The bytes of the very last checkpoint before a kill are in none.)
    for name in ["ingested_bytes", "log_bytes", "checkpoints", "output_bytes", "log_syncs"] {
        assert!(second["wear"][name].as_u64() > first["wear"][name].as_u64(), "{name}: {second}\n{first}");
    }
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert!(!place.path("state/control.sock").exists());
    assert_eq!(place.forebay(&["status", "state"]).status.code(), Some(69));

    let stat = place.forebay(&["log", "stat", "state", "--format", "json"]);
    let stat: Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    assert!(stat["written"]["checkpoints"].as_u64() >= second["wear"]["checkpoints"].as_u64(), "{stat}");
    let text = place.forebay(&["log", "stat", "state"]);
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(text.contains("bytes written per byte ingested"), "{text}");
}
