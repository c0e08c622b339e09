//! `checkpoint dump` shows the timers of sessions as what they are: a time, and the key whose session may then be over.

use crate::support::{Place, outcome};

const CONFIG: &str = r#"
[pipeline]
name = "p"
state = "state"
[source.plant]
type = "file"
path = "in.ndjson"
follow = true
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING" }
time = { column = "ts" }
[query.q]
sql = """QUERY"""
[sink.out]
type = "file"
from = "q"
path = "out.ndjson"
"#;

const GROUPED: &str = "SELECT window_start, window_end, device, COUNT(*) AS n FROM SESSION(TABLE plant PARTITION BY device, \
                       DESCRIPTOR(ts), INTERVAL '5' MINUTE) GROUP BY window_start, window_end, device";
const BARE: &str = "SELECT * FROM SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '5' MINUTE)";

#[test]
fn a_dump_names_the_key_and_the_time_of_each_timer() {
    for (query, operator) in [(GROUPED, "q/session_aggregate/0"), (BARE, "q/session_window/0")] {
        let place = Place::new();
        place.write("f.toml", &CONFIG.replace("QUERY", query));
        place.write("in.ndjson", "{\"ts\":\"2026-04-02T00:58:01.000Z\",\"device\":\"pump\"}\n");
        let running = place.start("f.toml");
        crate::support::until(std::time::Duration::from_secs(30), "the row is read", || {
            let status = place.forebay(&["status", "state", "--format", "json"]);
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
            (status["processed_lsn"].as_u64()? >= 3 && status["logged_lsn"] == status["processed_lsn"]).then_some(())
        });
        assert_eq!(running.stop(), 0);
        let known = place.forebay(&["checkpoint", "show", "state"]);
        let known = String::from_utf8_lossy(&known.stdout).into_owned();
        let dump = place.forebay(&["checkpoint", "dump", "state", operator, "--format", "json"]);
        assert_eq!(outcome(&dump), (0, String::new()), "{known}");
        let text = String::from_utf8_lossy(&dump.stdout).into_owned();
        let entries: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let timer = entries.iter().map(|entry| &entry["entry"]).find(|entry| !entry["timer"].is_null());
        let timer = timer.unwrap_or_else(|| panic!("no timer in {text}"));
        assert_eq!(timer["device"], "pump", "{timer}");
        assert_eq!(timer["timer"], "2026-04-02T01:03:00.999Z", "{timer}");
        assert_eq!(timer["session_end"], "2026-04-02T01:03:01.000", "{timer}");
    }
}
