//! An idle pipeline with an open window writes nothing until the window's end, and one tick then.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::{Place, free_port, until};

const PATIENCE: Duration = Duration::from_secs(30);
const WINDOW_MS: u128 = 4000;

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()
}

/// All files of the state with their bytes, but for LMDB's table of readers.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("lock.mdb") {
            found.insert(path.clone(), std::fs::read(&path).unwrap_or_default());
        }
    }
    found
}

fn log(place: &Place) -> Vec<Value> {
    let cat = place.forebay(&["log", "cat", "state", "--format", "json"]);
    String::from_utf8_lossy(&cat.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn an_open_window_costs_one_tick_at_its_end_and_nothing_before() {
    let (place, port) = (Place::new(), free_port());
    place.write(
        "f.toml",
        &format!(
            r#"
[pipeline]
name = "idle"
state = "state"
[durability]
delay = "0s"
[checkpoint]
every = "20ms"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ n = "INT" }}
[query.windows]
sql = """
SELECT window_end, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(_arrival), INTERVAL '4' SECOND)) GROUP BY window_start, window_end
"""
[sink.windows]
type = "file"
from = "windows"
path = "out/windows.ndjson"
"#
        ),
    );
    let running = place.start("f.toml");
    let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok());
    // Early in a window, so that there is time to be idle in.
    until(PATIENCE, "a window begins", || (now_ms() % WINDOW_MS < 500).then_some(()));
    socket.write_all(b"{\"n\":1}\n").expect("sends");
    let end_ms = now_ms() / WINDOW_MS * WINDOW_MS + WINDOW_MS;
    let checkpointed = || {
        let shown = place.forebay(&["checkpoint", "show", "state", "--format", "json"]);
        serde_json::from_slice::<Value>(&shown.stdout).unwrap_or_default()["lsn"].as_u64()
    };
    until(PATIENCE, "the row is logged and checkpointed", || {
        let data = log(&place).into_iter().find(|record| record["kind"] == "data")?;
        (checkpointed() >= data["lsn"].as_u64()).then_some(())
    });

    let idle = files(&place.path("state"));
    let mut looks = 0;
    until(PATIENCE, "the window is nearly over", || {
        assert!(files(&place.path("state")) == idle, "an idle box writes nothing");
        looks += 1;
        (now_ms() + 200 >= end_ms).then_some(())
    });
    assert!(looks > 5);
    assert_eq!(place.text("out/windows.ndjson"), "");

    until(PATIENCE, "the window closes", || (!place.text("out/windows.ndjson").is_empty()).then_some(()));
    let ticks = || log(&place).into_iter().filter(|record| record["kind"] == "tick").collect::<Vec<_>>();
    let [tick] = ticks().try_into().unwrap_or_else(|ticks| panic!("{ticks:?}"));
    let time: jiff::Timestamp = tick["time"].as_str().expect("text").parse().expect("a time");
    let late_ms = time.as_millisecond() - end_ms as i64;
    assert!((0..2000).contains(&late_ms), "{late_ms} ms behind the deadline");
    // Nothing is open any more: nothing is waited for.
    let began = Instant::now();
    until(PATIENCE, "a while passes", || {
        assert_eq!(ticks().len(), 1);
        (began.elapsed() > Duration::from_secs(1)).then_some(())
    });
    drop(socket);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
}
