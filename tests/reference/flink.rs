//! The interpreter against Flink's answers (`tests/conformance/`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay::config::{self, Config};
use serde_json::Value as Json;

use crate::interpreter::interpret;
use crate::log::{Log, Record};
use crate::value::same;

/// Cases that the interpreter cannot do, and why.
const LEFT_OUT: [(&str, &str); 3] =
    [("m01_rise", "MATCH_RECOGNIZE"), ("m02_three_hot", "MATCH_RECOGNIZE"), ("m03_match_late", "MATCH_RECOGNIZE")];

const READING: &str = r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", site = "STRING", temp = "DOUBLE", hum = "DOUBLE", pulses = "INT", ok = "BOOLEAN", seq = "BIGINT""#;

/// The tables as they were declared in Flink: name, columns, watermark's distance.
const TABLES: [(&str, &str, &str); 6] = [
    ("plant", READING, "2s"),
    ("steady", READING, "1ms"),
    ("alarm", r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", level = "INT", msg = "STRING""#, "1ms"),
    ("calib", r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", gain = "DOUBLE", bias = "DOUBLE""#, "1ms"),
    (
        "burst",
        r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", samples = "ARRAY<DOUBLE>", pos = "ROW<lat DOUBLE, lon DOUBLE>", price = "DECIMAL(10, 2)", qty = "INT", doc = "STRING""#,
        "1s",
    ),
    ("dst", r#"ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE""#, "10m"),
];

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// A case's pipeline, and the names of the tables that it reads.
fn pipeline(sql: &str) -> (Config, Vec<&'static str>) {
    let zone = sql.lines().next().and_then(|line| line.strip_prefix("-- time_zone: ")).unwrap_or("UTC").trim();
    let words: Vec<&str> = sql.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut text = format!("[pipeline]\nname = \"case\"\nstate = \"unused\"\ntime_zone = \"{zone}\"\n");
    let used: Vec<_> = TABLES.iter().filter(|(name, _, _)| words.contains(name)).collect();
    for (name, columns, distance) in &used {
        text += &format!(
            "[source.{name}]\ntype = \"file\"\npath = \"unused\"\ncolumns = {{ {columns} }}\n\
             time = {{ column = \"ts\", max_out_of_orderness = \"{distance}\" }}\n"
        );
        if *name == "calib" {
            text += "key = [\"device\"]\n";
        }
    }
    text += &format!("[query.q]\nsql = '''\n{sql}\n'''\n[sink.rows]\ntype = \"stdout\"\nfrom = \"q\"\n");
    let config = config::parse("case.toml", &text).unwrap_or_else(|problems| panic!("{sql}\n{problems}"));
    (config, used.iter().map(|(name, _, _)| *name).collect())
}

/// Rows in an order in which the last digit of a double does not count; decimals as numbers.
fn sorted(mut rows: Vec<Json>, schema: &BTreeMap<String, String>) -> Vec<Json> {
    for row in &mut rows {
        for (name, value) in row.as_object_mut().expect("an object") {
            let decimal = schema.get(name).is_some_and(|t| t == "DECIMAL");
            if let Some(digits) = value.as_str().filter(|_| decimal) {
                *value = serde_json::from_str(digits).expect("a number");
            }
        }
    }
    rows.sort_by_cached_key(|row| {
        let columns = row.as_object().expect("an object");
        let exact: Vec<String> = columns.iter().filter(|(_, v)| !v.is_f64()).map(|(n, v)| format!("{n}={v}")).collect();
        let about: Vec<String> = columns
            .iter()
            .filter(|(_, v)| v.is_f64())
            .map(|(n, v)| format!("{n}={:.6e}", v.as_f64().unwrap()))
            .collect();
        (exact, about)
    });
    rows
}

/// Every case gives Flink's rows, whichever of its inputs comes first.
#[test]
fn the_interpreter_gives_flinks_rows() {
    let mut names: Vec<String> = std::fs::read_dir(home().join("cases"))
        .expect("cases")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".sql").map(str::to_owned))
        .collect();
    names.sort();
    let mut checked = 0;
    for name in names.iter().filter(|name| !LEFT_OUT.iter().any(|(left_out, _)| name == left_out)) {
        let path = |kind: &str| home().join(format!("cases/{name}.{kind}"));
        let sql = std::fs::read_to_string(path("sql")).expect("a query");
        let schema = std::fs::read_to_string(path("schema.json")).expect("a schema");
        let schema: BTreeMap<String, String> = serde_json::from_str(&schema).expect("JSON");
        let expected = std::fs::read_to_string(path("expected.ndjson")).expect("rows");
        let expected =
            sorted(expected.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), &schema);
        let (config, mut used) = pipeline(&sql);
        for _ in 0..used.len() {
            let mut log = Log::default();
            for source in &used {
                let input = std::fs::read_to_string(home().join(format!("input/{source}.ndjson"))).expect("an input");
                let record = |line: &str| Record::Data { source: (*source).to_owned(), line: line.to_owned() };
                log.0.extend(input.lines().map(|line| (0, record(line))));
            }
            log.0.extend(used.iter().map(|source| (0, Record::End { source: (*source).to_owned() })));
            let output = interpret(&config, &log);
            assert!(output.errors.is_empty(), "{name}: {:?}", output.errors);
            let found = sorted(output.rows, &schema);
            assert_eq!(found.len(), expected.len(), "{name}: number of rows");
            for (found, expected) in found.iter().zip(&expected) {
                assert!(same(found, expected), "{name}\n found {found}\nwanted {expected}");
            }
            used.rotate_left(1);
        }
        checked += 1;
    }
    println!("{checked} of {} cases", names.len());
    assert!(checked >= 54, "only {checked}");
}
