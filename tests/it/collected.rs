//! Aggregates that keep values: ARRAY_AGG, JSON_OBJECTAGG, JSON_ARRAYAGG, PERCENTILE with frequencies, FIRST_VALUE and
//! LAST_VALUE of nested types; and the numbers that a query gives out: WITH ORDINALITY, GROUP_ID.

use crate::conformance::at_all_batch_sizes;
use crate::support::{Place, outcome};

const PIPELINE: &str = r#"
pipeline = { name = "p" }
[source.t]
type = "tcp"
listen = "127.0.0.1:9000"
time = { column = "ts" }
columns = { ts = "TIMESTAMP_LTZ(3)", k = "STRING", a = "INT", f = "INT", s = "STRING", l = "ARRAY<INT>" }
[query.arrays]
sql = """SELECT ARRAY_AGG(s) AS x, ARRAY_AGG(s IGNORE NULLS) AS present, ARRAY_AGG(s) IGNORE NULLS AS present2,
         ARRAY_AGG(DISTINCT s) AS d, ARRAY_AGG(s) FILTER (WHERE a > 4) AS f,
         ARRAY_AGG(s) FILTER (WHERE a > 100) AS none_
         FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"""
[query.texts]
sql = """SELECT JSON_OBJECTAGG(KEY k VALUE s) AS o, JSON_OBJECTAGG(k VALUE s ABSENT ON NULL) AS p, JSON_ARRAYAGG(s) AS x,
         JSON_ARRAYAGG(s NULL ON NULL) AS y, JSON_ARRAYAGG(a) FILTER (WHERE a > 4) AS f
         FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"""
[query.shares]
sql = """SELECT PERCENTILE(a, 0.5) AS m, PERCENTILE(a, 0.3) AS n, PERCENTILE(a, ARRAY[0.9, 0.7, 0.3, 1.0]) AS x,
         PERCENTILE(a, 0.75, f) AS w
         FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"""
[query.ends]
sql = """SELECT FIRST_VALUE(l) AS f, LAST_VALUE(MAP[k, a]) AS m, LAST_VALUE(a * INTERVAL '1' SECOND) AS d
         FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"""
[query.sets]
sql = """SELECT GROUP_ID() AS g, COUNT(*) AS n FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
         GROUP BY window_start, window_end, GROUPING SETS ((), ())"""
[query.places]
sql = "SELECT k, v, n FROM t CROSS JOIN UNNEST(l) WITH ORDINALITY AS u (v, n)"
[query.entries]
sql = "SELECT k, u.v, u.n FROM t LEFT JOIN UNNEST(MAP['k', a]) WITH ORDINALITY AS u (e, v, n) ON TRUE WHERE a > 4"
[sink.out]
type = "stdout"
from = "arrays"

[[test]]
name = "seven rows"
[[test.input]]
source = "t"
rows = [
  '{"ts":"2026-04-02T00:00:00Z","k":"b","a":1,"f":1,"s":"x","l":null}',
  '{"ts":"2026-04-02T00:00:01Z","k":"a","a":5,"f":1,"s":null,"l":[3,null]}',
  '{"ts":"2026-04-02T00:00:02Z","k":"c","a":4,"f":1,"s":"y","l":[]}',
  '{"ts":"2026-04-02T00:00:03Z","k":"d","a":2,"f":1,"s":"x","l":[9]}',
  '{"ts":"2026-04-02T00:00:04Z","k":"e","a":9,"f":3,"s":"z"}',
  '{"ts":"2026-04-02T00:00:05Z","k":"f","a":1,"f":1,"s":null}',
  '{"ts":"2026-04-02T00:00:06Z","k":"g","a":4,"f":1,"s":"x"}',
]
[test.expect]
arrays = ['{"x":["x",null,"y","x","z",null,"x"],"present":["x","y","x","z","x"],"present2":["x","y","x","z","x"],"d":["x",null,"y","z"],"f":[null,"z"],"none_":null}']
texts = ['{"o":"{\"a\":null,\"b\":\"x\",\"c\":\"y\",\"d\":\"x\",\"e\":\"z\",\"f\":null,\"g\":\"x\"}","p":"{\"b\":\"x\",\"c\":\"y\",\"d\":\"x\",\"e\":\"z\",\"g\":\"x\"}","x":"[\"x\",\"y\",\"x\",\"z\",\"x\"]","y":"[\"x\",null,\"y\",\"x\",\"z\",null,\"x\"]","f":"[5,9]"}']
shares = ['{"m":4.0,"n":1.7999999999999998,"x":[6.600000000000001,4.199999999999999,1.7999999999999998,9.0],"w":9.0}']
ends = ['{"f":[3,null],"m":{"g":4},"d":4000}']
sets = ['{"g":0,"n":7}', '{"g":1,"n":7}']
places = ['{"k":"a","v":3,"n":1}', '{"k":"a","v":null,"n":2}', '{"k":"d","v":9,"n":1}']
entries = ['{"k":"a","v":5,"n":1}', '{"k":"e","v":9,"n":1}']
"#;

#[test]
fn values_are_collected_and_numbered() {
    let place = Place::new();
    place.write("p.toml", PIPELINE);
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
}

/// The values of Flink's own test of these aggregates: of integers they are integers.
#[test]
fn deviations_are_those_of_flink() {
    let place = Place::new();
    place.write(
        "p.toml",
        r#"
        pipeline = { name = "p" }
        [source.t]
        type = "tcp"
        listen = "127.0.0.1:9000"
        time = { column = "ts" }
        columns = { ts = "TIMESTAMP_LTZ(3)", b = "TINYINT", i = "INT", d = "DOUBLE" }
        [query.q]
        sql = """SELECT STDDEV_POP(b) AS b1, STDDEV_SAMP(b) AS b2, VAR_POP(b) AS b3, VAR_SAMP(b) AS b4,
                 STDDEV_POP(i) AS i1, STDDEV_SAMP(i) AS i2, VAR_POP(i) AS i3, VAR_SAMP(i) AS i4,
                 ROUND(STDDEV_POP(d), 6) AS d1, ROUND(STDDEV_SAMP(d), 6) AS d2, ROUND(VAR_POP(d), 6) AS d3,
                 ROUND(VAR_SAMP(d), 6) AS d4
                 FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"""
        [sink.out]
        type = "stdout"
        from = "q"
        [[test]]
        name = "three rows"
        [[test.input]]
        source = "t"
        rows = [
          '{"ts":"2026-04-02T00:00:00Z","b":1,"i":256,"d":0.27}',
          '{"ts":"2026-04-02T00:00:01Z","b":2,"i":512,"d":0.28}',
          '{"ts":"2026-04-02T00:00:02Z","b":3,"i":768,"d":0.29}',
        ]
        [test.expect]
        q = ['{"b1":0,"b2":1,"b3":0,"b4":1,"i1":209,"i2":256,"i3":43690,"i4":65536,"d1":0.008165,"d2":0.01,"d3":0.000067,"d4":0.0001}']
        "#,
    );
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
}

/// Collected values wait in the slices of a window, through checkpoints and a crash.
#[test]
fn collected_values_are_the_same_at_all_batch_sizes() {
    let given = at_all_batch_sizes(
        "SELECT window_start, device, COUNT(*) AS n, ARRAY_AGG(temp) AS x, JSON_ARRAYAGG(site NULL ON NULL) AS y, \
         JSON_OBJECTAGG(KEY device VALUE temp) FILTER (WHERE device IS NOT NULL) AS o, PERCENTILE(temp, 0.5, 2) AS p \
         FROM CUMULATE(TABLE steady, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND) \
         GROUP BY window_start, window_end, device",
    );
    assert!(given.rows.lines().count() > 20, "{}", given.rows);
    for line in given.rows.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let sites: serde_json::Value = serde_json::from_str(row["y"].as_str().unwrap()).unwrap();
        let count = row["n"].as_u64().unwrap();
        assert_eq!(row["x"].as_array().unwrap().len() as u64, count, "{line}");
        assert_eq!(sites.as_array().unwrap().len() as u64, count, "{line}");
        let last: serde_json::Value = serde_json::from_str(row["o"].as_str().unwrap()).unwrap();
        let Some(device) = row["device"].as_str() else {
            assert_eq!(row["o"], "{}", "{line}");
            continue;
        };
        assert_eq!(last[device], row["x"][usize::try_from(count).unwrap() - 1], "{line}");
    }
}

/// Flink merges the slices of a hopping window from the last one back (`HoppingSlicesIterable`).
#[test]
fn a_hopping_window_lists_its_last_slice_first() {
    let given = at_all_batch_sizes(
        "SELECT window_start, device, ARRAY_AGG(CAST(ts AS STRING)) AS x, LISTAGG(CAST(ts AS STRING)) AS y \
         FROM HOP(TABLE steady, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND) \
         GROUP BY window_start, window_end, device",
    );
    let mut turned = 0;
    for line in given.rows.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut times: Vec<&str> = row["x"].as_array().unwrap().iter().map(|time| time.as_str().unwrap()).collect();
        assert_eq!(row["y"], times.join(","), "{line}");
        // In order but for one place, where the last slice ends.
        if let Some(at) = times.windows(2).position(|pair| pair[1] < pair[0]) {
            times.rotate_left(at + 1);
            turned += 1;
        }
        assert!(times.is_sorted(), "{line}");
    }
    assert!(turned > 20, "{turned}");
}

/// What comes late goes behind what has fired by then, in front of the slices that fire later. (Flink cannot merge
/// JSON_ARRAYAGG: here it stays in the order of the log.)
#[test]
fn a_cumulating_window_lists_late_rows_behind_what_has_fired() {
    let place = Place::new();
    place.write(
        "p.toml",
        r#"
        pipeline = { name = "p" }
        [source.t]
        type = "tcp"
        listen = "127.0.0.1:9000"
        time = { column = "ts" }
        columns = { ts = "TIMESTAMP_LTZ(3)", k = "STRING", s = "STRING" }
        [query.q]
        sql = """SELECT EXTRACT(SECOND FROM window_end) AS w, k, LISTAGG(s) AS l, ARRAY_AGG(s) AS a, JSON_ARRAYAGG(s) AS j
                 FROM CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '30' SECOND)
                 GROUP BY window_start, window_end, k"""
        [sink.out]
        type = "stdout"
        from = "q"
        [[test]]
        name = "late rows of slices that have fired"
        [[test.input]]
        source = "t"
        rows = [
          '{"ts":"2026-04-02T00:00:01Z","k":"x","s":"a1"}',
          '{"ts":"2026-04-02T00:00:11Z","k":"x","s":"b1"}',
          '{"ts":"2026-04-02T00:00:02Z","k":"x","s":"a2"}',
          '{"ts":"2026-04-02T00:00:03Z","k":"y","s":"a3"}',
          '{"ts":"2026-04-02T00:00:21Z","k":"x","s":"c1"}',
          '{"ts":"2026-04-02T00:00:12Z","k":"x","s":"b2"}',
          '{"ts":"2026-04-02T00:00:04Z","k":"x","s":"a4"}',
          '{"ts":"2026-04-02T00:00:22Z","k":"x","s":"c2"}',
          '{"ts":"2026-04-02T00:00:13Z","k":"y","s":"b3"}',
        ]
        [test.expect]
        q = [
          '{"w":10,"k":"x","l":"a1","a":["a1"],"j":"[\"a1\"]"}',
          '{"w":20,"k":"x","l":"a1,a2,b1","a":["a1","a2","b1"],"j":"[\"a1\",\"b1\",\"a2\"]"}',
          '{"w":20,"k":"y","l":"a3","a":["a3"],"j":"[\"a3\"]"}',
          '{"w":30,"k":"x","l":"a1,a2,b1,b2,a4,c1,c2","a":["a1","a2","b1","b2","a4","c1","c2"],"j":"[\"a1\",\"b1\",\"a2\",\"c1\",\"b2\",\"a4\",\"c2\"]"}',
          '{"w":30,"k":"y","l":"a3,b3","a":["a3","b3"],"j":"[\"a3\",\"b3\"]"}',
        ]
        "#,
    );
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
}

/// The same through checkpoints and a crash.
#[test]
fn late_rows_of_cumulating_windows_are_listed_the_same_at_all_batch_sizes() {
    let given = at_all_batch_sizes(
        "SELECT window_start, window_end, LISTAGG(CAST(seq AS STRING)) AS x, ARRAY_AGG(seq) AS y \
         FROM CUMULATE(TABLE plant, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '1' MINUTE) \
         GROUP BY window_start, window_end",
    );
    assert!(given.rows.lines().count() > 100, "{}", given.rows);
    for line in given.rows.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let listed: Vec<String> = row["y"].as_array().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(row["x"], listed.join(","), "{line}");
    }
}

/// With OVER Flink computes averages and deviations from sums, each step in the argument's type.
#[test]
fn deviations_and_averages_with_over_wrap_as_in_flink() {
    let place = Place::new();
    place.write(
        "p.toml",
        r#"
        pipeline = { name = "p" }
        [source.t]
        type = "tcp"
        listen = "127.0.0.1:9000"
        time = { column = "ts" }
        columns = { ts = "TIMESTAMP_LTZ(3)", b = "TINYINT", s = "SMALLINT", i = "INT", l = "BIGINT", f = "FLOAT", d = "DOUBLE", c = "DECIMAL(6, 2)" }
        [query.q]
        sql = """SELECT VAR_POP(i) OVER w AS vp, VAR_SAMP(i) OVER w AS vs, STDDEV_POP(i) OVER w AS sp, STDDEV_SAMP(i) OVER w AS ss,
                 AVG(b) OVER w AS ab, AVG(s) OVER w AS a2, AVG(i) OVER w AS ai, AVG(l) OVER w AS al
                 FROM t WINDOW w AS (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"""
        [query.wide]
        sql = """SELECT VAR_POP(b) OVER w AS vb, STDDEV_SAMP(b) OVER w AS sb, VAR_SAMP(l) OVER w AS vl,
                 VAR_POP(c) OVER w AS vc, VAR_SAMP(c) OVER w AS wc, ROUND(STDDEV_POP(c) OVER w, 4) AS sc, AVG(c) OVER w AS ac,
                 AVG(f) OVER w AS af, ROUND(VAR_POP(d) OVER w, 9) AS vd
                 FROM t WINDOW w AS (ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"""
        [sink.out]
        type = "stdout"
        from = "q"
        [[test]]
        name = "three rows"
        [[test.input]]
        source = "t"
        rows = [
          '{"ts":"2026-04-02T00:00:00Z","b":100,"s":30000,"i":1,"l":4000000000,"f":16777216,"d":1.5,"c":1.10}',
          '{"ts":"2026-04-02T00:00:01Z","b":100,"s":30000,"i":2,"l":4000000001,"f":1,"d":2.5,"c":2.20}',
          '{"ts":"2026-04-02T00:00:02Z","b":null,"s":30000,"i":2147483647,"l":4000000002,"f":1,"d":3.5,"c":2.25}',
        ]
        [test.expect]
        q = [
          '{"vp":0,"vs":null,"sp":0,"ss":null,"ab":100,"a2":30000,"ai":1,"al":4000000000}',
          '{"vp":0,"vs":1,"sp":0,"ss":1,"ab":-28,"a2":-2768,"ai":1,"al":4000000000}',
          '{"vp":1,"vs":2,"sp":1,"ss":1,"ab":-28,"a2":8154,"ai":-715827882,"al":4000000001}',
        ]
        wide = [
          '{"vb":0,"sb":null,"vl":null,"vc":0.000000,"wc":null,"sc":0.0000,"ac":1.100000,"af":16777216.0,"vd":0.0}',
          '{"vb":0,"sb":0,"vl":-9223372036854775807,"vc":0.302500,"wc":0.605000,"sc":0.5500,"ac":1.650000,"af":8388608.0,"vd":0.25}',
          '{"vb":0,"sb":0,"vl":-3074457345618258602,"vc":0.281667,"wc":0.422500,"sc":0.5307,"ac":1.850000,"af":5592405.5,"vd":0.666666667}',
        ]
        "#,
    );
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
}
