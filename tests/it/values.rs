//! Values that Flink's own tests state, put through the pipeline: `tests/golden/values/*.txt`, one file per test of
//! Flink. A line is `expression ==> value`, the value as `CAST(… AS STRING)` shows it; `!refused` is for what Flink's
//! planner does not take, `!fails` for what fails at run time. `@ zone` begins a section, `: name type json` gives it
//! a column and the column's value.

use std::fmt::Write;
use std::path::Path;

use forebay::config::{self, Config};
use forebay::engine::trial;
use serde_json::Value;

struct Section {
    zone: String,
    columns: Vec<(String, String)>,
    row: Vec<String>,
    cases: Vec<(String, String)>,
}

fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(zone) = line.strip_prefix("@ ") {
            sections.push(Section { zone: zone.to_owned(), columns: Vec::new(), row: Vec::new(), cases: Vec::new() });
            continue;
        }
        let section = sections.last_mut().unwrap_or_else(|| panic!("no zone before {line}"));
        if let Some(column) = line.strip_prefix(": ") {
            let (name, rest) = column.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            // Types have blanks of their own: the value is what reads as JSON.
            let split = rest.match_indices(' ').map(|(at, _)| rest.split_at(at));
            let (data_type, value) = split
                .filter(|(_, value)| serde_json::from_str::<Value>(value).is_ok())
                .max_by_key(|(_, value)| value.len())
                .unwrap_or_else(|| panic!("no value: {line}"));
            section.columns.push((name.to_owned(), data_type.to_owned()));
            section.row.push(format!("\"{name}\": {}", value.trim()));
        } else {
            let (expression, value) = line.split_once(" ==> ").unwrap_or_else(|| panic!("{line}"));
            section.cases.push((expression.to_owned(), value.to_owned()));
        }
    }
    sections
}

fn pipeline(section: &Section, expression: &str) -> Result<Config, String> {
    let quoted = |text: &str| serde_json::to_string(text).expect("a string");
    let mut columns = String::new();
    for (name, data_type) in &section.columns {
        writeln!(columns, "{name} = {}", quoted(data_type)).expect("writes");
    }
    let text = format!(
        "[pipeline]\nname = \"p\"\ntime_zone = {}\n[source.t]\ntype = \"tcp\"\nlisten = \"127.0.0.1:9000\"\n\
         [source.t.columns]\nunused = \"INT\"\n{columns}[query.q]\nsql = {}\n[sink.out]\ntype = \"stdout\"\n\
         from = \"q\"\n[[test]]\nname = \"t\"\ninput = [{{ source = \"t\", rows = [{}] }}]\n\
         expect = {{ q = [], \"q.errors\" = [], \"t.dead\" = [] }}\n",
        quoted(&section.zone),
        quoted(&format!("SELECT CAST(({expression}) AS STRING) AS x FROM t")),
        quoted(&format!("{{{}}}", section.row.join(", "))),
    );
    config::parse("p.toml", &text).map_err(|problems| problems.list[0].message.clone())
}

fn evaluated(section: &Section, expression: &str) -> Result<String, String> {
    let config = pipeline(section, expression).map_err(|message| format!("!refused: {message}"))?;
    let rows = trial::run(&config, &config.tests[0]).map_err(|error| error.to_string())?;
    let [rows, errors, dead] = rows.as_slice() else { return Err("three streams".into()) };
    assert!(dead.is_empty(), "{}", dead[0]);
    if let Some(error) = errors.first() {
        return Err(format!("!fails: {error}"));
    }
    let row: Value = serde_json::from_str(&rows[0]).expect("JSON");
    Ok(row["x"].as_str().unwrap_or("NULL").to_owned())
}

#[test]
fn every_value_is_that_of_flink() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/values");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the values").map(|entry| entry.expect("it").path()).collect();
    paths.sort();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for path in paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        for section in sections(&std::fs::read_to_string(&path).expect("reads")) {
            for (expression, expected) in &section.cases {
                checked += 1;
                let found = evaluated(&section, expression).unwrap_or_else(|error| error);
                let same = match expected.as_str() {
                    "!refused" | "!fails" => found.starts_with(expected.as_str()),
                    _ => found == *expected,
                };
                if !same {
                    wrong.push(format!("{name}: {expression}\n    is {found}\n   not {expected}"));
                }
            }
        }
    }
    println!("{checked} values");
    assert!(wrong.is_empty(), "{} of {checked} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked >= 1350, "{checked} values");
}
