//! The last row of each key as a versioned table: what a temporal join sees of it, and where it cannot stand.

use crate::support::{Place, outcome};

const PIPELINE: &str = r#"
pipeline = { name = "p" }
[source.readings]
type = "tcp"
listen = "127.0.0.1:9000"
time = { column = "ts" }
columns = { ts = "TIMESTAMP_LTZ(3)", k = "STRING", x = "INT" }
[source.settings]
type = "tcp"
listen = "127.0.0.1:9001"
time = { column = "ts", max_out_of_orderness = "1h" }
columns = { ts = "TIMESTAMP_LTZ(3)", k = "STRING", target = "INT", valid = "BOOLEAN" }
[query.latest]
sql = """SELECT k, target, ts AS since FROM
         (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM settings WHERE valid) WHERE rn = 1"""
[query.q]
sql = """SELECT r.ts, r.k, r.x, s.target, s.since FROM readings AS r LEFT JOIN latest FOR SYSTEM_TIME AS OF r.ts AS s ON r.k = s.k"""
[sink.out]
type = "stdout"
from = "FROM"
"#;

#[test]
fn readings_find_the_setting_of_their_time() {
    let place = Place::new();
    let test = r#"
[[test]]
name = "settings out of order"
[[test.input]]
source = "settings"
rows = [
  '{"ts":"2026-04-02T00:00:10Z","k":"a","target":1,"valid":true}',
  '{"ts":"2026-04-02T00:00:30Z","k":"a","target":2,"valid":true}',
  '{"ts":"2026-04-02T00:00:20Z","k":"a","target":3,"valid":true}',
  '{"ts":"2026-04-02T00:00:40Z","k":"a","target":4,"valid":false}',
  '{"ts":"2026-04-02T00:00:30Z","k":"a","target":5,"valid":true}',
  '{"ts":"2026-04-02T00:00:05Z","k":"b","target":6,"valid":true}',
  '{"ts":"2026-04-02T00:00:05Z","k":null,"target":7,"valid":true}',
]
[[test.input]]
source = "readings"
rows = [
  '{"ts":"2026-04-02T00:00:09Z","k":"a","x":1}',
  '{"ts":"2026-04-02T00:00:25Z","k":"a","x":2}',
  '{"ts":"2026-04-02T00:00:30Z","k":"a","x":3}',
  '{"ts":"2026-04-02T00:00:50Z","k":"b","x":4}',
  '{"ts":"2026-04-02T00:00:50Z","k":null,"x":5}',
]
[test.expect]
q = [
  '{"ts":"2026-04-02T00:00:09.000Z","k":"a","x":1,"target":null,"since":null}',
  '{"ts":"2026-04-02T00:00:25.000Z","k":"a","x":2,"target":1,"since":"2026-04-02T00:00:10.000Z"}',
  '{"ts":"2026-04-02T00:00:30.000Z","k":"a","x":3,"target":5,"since":"2026-04-02T00:00:30.000Z"}',
  '{"ts":"2026-04-02T00:00:50.000Z","k":null,"x":5,"target":null,"since":null}',
  '{"ts":"2026-04-02T00:00:50.000Z","k":"b","x":4,"target":6,"since":"2026-04-02T00:00:05.000Z"}',
]
"#;
    place.write("p.toml", &(PIPELINE.replace("FROM\"\n", "q\"\n") + test));
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
    let explained = place.forebay(&["explain", "p.toml"]);
    let text = String::from_utf8_lossy(&explained.stdout);
    assert!(text.contains("the last of each key: PARTITION BY k ORDER BY ts DESC"), "{text}");
    assert!(text.contains("bounded by the number of keys: the time of the last row of each"), "{text}");
}

#[test]
fn a_sink_or_a_test_cannot_read_it() {
    let place = Place::new();
    let wanted = "keeping the last row of a key has no end: each new row would take the place of the last";
    place.write("sink.toml", &PIPELINE.replace("FROM\"\n", "latest\"\n"));
    let test = "[[test]]\nname = \"t\"\n[test.expect]\nlatest = []\n";
    place.write("test.toml", &(PIPELINE.replace("FROM\"\n", "q\"\n") + test));
    for (file, at) in [("sink.toml", "from = \"latest\""), ("test.toml", "latest = []")] {
        let (code, message) = outcome(&place.forebay(&["check", file]));
        assert_eq!(code, 78, "{message}");
        assert!(message.contains(wanted) && message.contains(at), "{message}");
        assert!(message.contains("JOIN latest FOR SYSTEM_TIME AS OF a.ts ON a.k = latest.k"), "{message}");
    }
}
