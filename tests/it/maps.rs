//! MAP, INTERVAL and TIME columns through the whole chain: decoded, in expressions, in state, printed.

use crate::conformance::at_all_batch_sizes;
use crate::support::{Place, outcome};

#[test]
fn maps_intervals_and_times_go_through_a_pipeline() {
    let place = Place::new();
    place.write(
        "p.toml",
        r#"
        pipeline = { name = "p" }
        [source.s]
        type = "tcp"
        listen = "127.0.0.1:9000"
        time = { column = "ts" }
        [source.s.columns]
        ts = "TIMESTAMP_LTZ(3)"
        m = "MAP<STRING, MAP<STRING, INT>>"
        age = "INTERVAL DAY TO SECOND"
        term = "INTERVAL YEAR TO MONTH"
        at = "TIME(3)"
        [query.shown]
        sql = """SELECT m, age, term, `at`, m['a']['x'] AS x, CARDINALITY(m) AS n, age * 2 AS twice,
                 age > INTERVAL '1' MINUTE AS aged, ts - age AS since, `at` + age AS later FROM s"""
        [query.entries]
        sql = "SELECT k, v['x'] AS x FROM s CROSS JOIN UNNEST(m) AS t (k, v)"
        [query.names]
        sql = "SELECT t.`KEY` AS k, CARDINALITY(t.`VALUE`) AS n FROM s LEFT JOIN UNNEST(m) AS t ON TRUE"
        [query.counts]
        sql = """SELECT COUNT(m) AS m, COUNT(age) AS age FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
                 GROUP BY window_start, window_end"""
        [sink.out]
        type = "stdout"
        from = "shown"

        [[test]]
        name = "values and NULLs"
        [[test.input]]
        source = "s"
        rows = [
          '{"ts":"2026-04-02T00:00:00Z","m":{"b":{"x":1},"a":{"y":2,"x":null,"y":3},"b":{}},"age":90000,"term":14,"at":"23:59:00"}',
          '{"ts":"2026-04-02T00:00:01Z","m":{"a":{"x":7}},"age":"1000","at":"10:00:00.5"}',
          '{"ts":"2026-04-02T00:00:02Z"}',
          '{"ts":"2026-04-02T00:00:03Z","m":{"a":null}}',
          '{"ts":"2026-04-02T00:00:04Z","m":{"a":{"x":"bad"}}}',
          '{"ts":"2026-04-02T00:00:05Z","m":[]}',
        ]
        [test.expect]
        shown = [
          '{"m":{"b":{},"a":{"y":3,"x":null}},"age":90000,"term":14,"at":"23:59:00","x":null,"n":2,"twice":180000,"aged":true,"since":"2026-04-01T23:58:30.000Z","later":"00:00:30"}',
          '{"m":{"a":{"x":7}},"age":1000,"term":null,"at":"10:00:00.500","x":7,"n":1,"twice":2000,"aged":false,"since":"2026-04-02T00:00:00.000Z","later":"10:00:01.500"}',
          '{"m":null,"age":null,"term":null,"at":null,"x":null,"n":null,"twice":null,"aged":null,"since":null,"later":null}',
          '{"m":{"a":null},"age":null,"term":null,"at":null,"x":null,"n":1,"twice":null,"aged":null,"since":null,"later":null}',
        ]
        entries = ['{"k":"b","x":null}', '{"k":"a","x":null}', '{"k":"a","x":7}', '{"k":"a","x":null}']
        names = [
          '{"k":"b","n":0}', '{"k":"a","n":2}', '{"k":"a","n":1}', '{"k":null,"n":null}', '{"k":"a","n":null}',
        ]
        counts = ['{"m":3,"age":2}']
        "#,
    );
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
    let script = place.forebay(&["explain", "--flink", "p.toml"]);
    let script = String::from_utf8_lossy(&script.stdout).into_owned();
    assert!(script.contains("MAP<STRING, MAP<STRING, INT>>"), "{script}");
    let csv = std::fs::read_to_string(place.path("p.toml"))
        .unwrap()
        .replace("type = \"tcp\"", "type = \"tcp\"\nformat = \"csv\"");
    place.write("csv.toml", &csv);
    let refused = outcome(&place.forebay(&["check", "csv.toml"]));
    assert_eq!(refused.0, 78);
    assert!(refused.1.contains("cannot hold column `m` of type MAP"), "{}", refused.1);
}

/// Rows with maps wait in the state of a join, through checkpoints and a crash.
#[test]
fn maps_in_state_are_the_same_at_all_batch_sizes() {
    let given = at_all_batch_sizes(
        "WITH a AS (SELECT ts, device, MAP[site, temp, 'hum', hum] AS m FROM steady) \
         SELECT a.device, a.m, a.m['hum'] AS hum, b.level FROM a LEFT JOIN alarm AS b ON a.device = b.device \
         AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts + INTERVAL '5' SECOND",
    );
    assert!(given.rows.lines().count() > 50, "{}", given.rows);
    for line in given.rows.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["m"]["hum"], row["hum"], "{line}");
    }
}
