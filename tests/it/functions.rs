//! Flink's scalar functions (`tests/golden/flink_functions.toml`): each is taken, with examples that are evaluated, or
//! refused with the reason that the list gives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use forebay::config::{self, Config};
use forebay::engine::trial;
use forebay::expr::functions;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Functions {
    taken: BTreeMap<String, BTreeMap<String, String>>,
    forms: BTreeMap<String, BTreeMap<String, String>>,
    refused: BTreeMap<String, String>,
    not_deterministic: Names,
    above_group_by: Names,
}

#[derive(Deserialize)]
struct Names {
    names: Vec<String>,
}

fn list() -> Functions {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/flink_functions.toml");
    toml::from_str(&std::fs::read_to_string(path).expect("the list")).expect("a list of functions")
}

/// A pipeline that evaluates an expression for two rows.
fn pipeline(expression: &str) -> Result<Config, String> {
    let quoted = serde_json::to_string(&format!("SELECT {expression} AS x FROM t")).expect("a string");
    let text = format!(
        "pipeline = {{ name = \"p\" }}\n[source.t]\ntype = \"tcp\"\nlisten = \"127.0.0.1:9000\"\n\
         columns = {{ id = \"INT\" }}\n[query.q]\nsql = {quoted}\n[sink.out]\ntype = \"stdout\"\nfrom = \"q\"\n\
         [[test]]\nname = \"t\"\ninput = [{{ source = \"t\", rows = ['{{\"id\":1}}', '{{\"id\":2}}'] }}]\n\
         expect = {{ q = [], \"q.errors\" = [] }}\n"
    );
    config::parse("p.toml", &text).map_err(|problems| problems.list[0].message.clone())
}

fn evaluated(expression: &str) -> Result<Value, String> {
    let config = pipeline(expression)?;
    let rows = trial::run(&config, &config.tests[0]).map_err(|error| error.to_string())?;
    let [rows, errors] = rows.as_slice() else { return Err("two streams".into()) };
    if let Some(error) = errors.first() {
        return Err(error.clone());
    }
    assert_eq!((rows.len(), &rows[0]), (2, &rows[1]), "{expression}");
    let row: Value = serde_json::from_str(&rows[0]).expect("JSON");
    Ok(row["x"].clone())
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Number(_), Value::Number(_)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

#[test]
fn every_function_of_flink_is_taken_or_refused() {
    let list = list();
    let registry: BTreeSet<String> = functions::list().map(str::to_owned).collect();
    let taken: BTreeSet<String> = list.taken.keys().cloned().collect();
    let missing: Vec<&String> = registry.symmetric_difference(&taken).collect();
    assert!(missing.is_empty(), "in the registry or in the list only: {missing:?}");
    for name in &list.above_group_by.names {
        assert_eq!(pipeline(&format!("{name}()")).err(), Some(format!("{name} needs GROUP BY")));
    }
    let known = taken.len() + list.refused.len() + list.above_group_by.names.len();
    assert!(taken.len() >= 140 && known >= 182, "{} {known}", taken.len());
    for (name, why) in &list.refused {
        let expression = match name.as_str() {
            "DEFAULT" => continue, // A reserved word: refused by the grammar.
            _ => format!("{name}(id)"),
        };
        let message = pipeline(&expression).err().unwrap_or_else(|| panic!("{name} is taken"));
        let wanted = format!("{name} is a function of Flink that Forebay does not take: {why}");
        assert_eq!(message, wanted);
    }
    for name in &list.not_deterministic.names {
        let bare = ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"];
        let call = if bare.contains(&name.as_str()) { name.clone() } else { format!("{name}()") };
        let message = pipeline(&call).err().unwrap_or_else(|| panic!("{name} is taken"));
        assert_eq!(message, format!("{name} is not deterministic: results must follow from the log alone"));
    }
}

#[test]
fn every_example_has_its_value() {
    let list = list();
    let mut wrong = Vec::new();
    let mut examples = 0;
    for (name, cases) in list.taken.iter().chain(&list.forms) {
        for (expression, expected) in cases {
            examples += 1;
            let expected: Value = serde_json::from_str(expected).unwrap_or_else(|e| panic!("{name}: {expected}: {e}"));
            match evaluated(expression) {
                Ok(found) if same(&found, &expected) => {}
                Ok(found) => wrong.push(format!("{expression} is {found}, not {expected}")),
                Err(error) => wrong.push(format!("{expression}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(examples >= 200, "{examples} examples");
}

/// Where Flink would fail the job, the row goes to the query's errors.
#[test]
fn a_wrong_length_of_hash_fails_its_row() {
    let error = evaluated("SHA2('a', 1)").expect_err("fails");
    assert!(error.contains("SHA2 has 224, 256, 384 or 512 bits, not 1"), "{error}");
}
