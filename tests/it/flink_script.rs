//! `explain --flink`: golden text; the tables are declared as those that a real Flink took (`tests/conformance`); and what
//! the script says, read back, is the pipeline again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay::config::{self, Config};

use crate::conformance::TABLES;
use crate::support::{Place, outcome};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn script(path: &Path) -> String {
    let output = Place::new().forebay(&["explain", "--flink", &path.to_string_lossy()]);
    assert_eq!(outcome(&output).0, 0, "{}: {}", path.display(), outcome(&output).1);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Every configuration that the tests and the users have.
fn configurations() -> Vec<PathBuf> {
    let list =
        |dir: &str| std::fs::read_dir(root().join(dir)).expect("a directory").map(|e| e.expect("an entry").path());
    let mut found: Vec<PathBuf> = list("configs").chain(list("tests/golden/flink")).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    assert!(found.len() >= 5, "{found:?}");
    found
}

#[test]
fn the_script_is_as_it_should_be() {
    let golden = root().join("tests/golden/flink/all.sql");
    let found = script(&golden.with_extension("toml"));
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&golden, &found).expect("writes");
    }
    assert_eq!(found, std::fs::read_to_string(&golden).unwrap_or_default());
}

/// The part of a CREATE TABLE before WITH, without back-ticks, comments and white space.
fn declaration(statement: &str) -> String {
    let lines = statement.lines().filter(|line| !line.trim_start().starts_with("--"));
    let code = lines.collect::<Vec<_>>().join(" ").replace('`', "");
    code.split(") WITH (").next().unwrap_or_default().split_whitespace().collect::<String>()
}

#[test]
fn tables_are_declared_as_flink_took_them() {
    let mut text = "pipeline = { name = \"p\" }\n".to_owned();
    for (name, columns, distance) in TABLES {
        text += &format!(
            "[source.{name}]\ntype = \"file\"\npath = \"input/{name}.ndjson\"\non_error = \"stop\"\n\
             columns = {{ {columns} }}\ntime = {{ column = \"ts\", max_out_of_orderness = \"{distance}\" }}\n"
        );
        if name == "calib" {
            text += "key = [\"device\"]\n";
        }
    }
    text += "[sink.out]\ntype = \"stdout\"\nfrom = \"plant\"\n";
    let place = Place::new();
    let script = script(&place.write("p.toml", &text));
    let flink = std::fs::read_to_string(root().join("tests/conformance/tables.sql")).expect("the tables");
    let mut compared = 0;
    for taken in flink.split(';').filter(|statement| statement.contains("CREATE TABLE")) {
        let name = taken.split_whitespace().nth(2).expect("a name");
        let ours = script.split(";\n").find(|statement| statement.contains(&format!("CREATE TABLE `{name}` ")));
        let ours = ours.unwrap_or_else(|| panic!("{name} is not declared"));
        assert_eq!(declaration(ours), declaration(taken), "{name}");
        for option in ["'connector' = 'filesystem'", "'json.timestamp-format.standard' = 'ISO-8601'"] {
            assert!(ours.contains(option) && taken.contains(&option.replace(" = ", "=")), "{name}: {option}");
        }
        compared += 1;
    }
    assert_eq!(compared, TABLES.len());
}

type Pairs = Vec<(String, String)>;

/// Names and types of the columns of each table of a script, and the text of each view in order.
fn read_back(script: &str) -> (BTreeMap<String, Pairs>, Pairs) {
    let (mut tables, mut views) = (BTreeMap::new(), Vec::new());
    for rest in script.split("\nCREATE ").skip(1) {
        let (kind, rest) = rest.split_once(" `").expect("a kind");
        let (name, rest) = rest.split_once('`').expect("a name");
        if kind == "VIEW" {
            let body = rest.strip_prefix(" AS\n").expect("AS");
            let end = body.find(";\n").unwrap_or(body.len());
            views.push((name.to_owned(), body[..end].to_owned()));
            continue;
        }
        let columns = rest.lines().skip(1).take_while(|line| !line.starts_with(')')).filter_map(|line| {
            let (name, data_type) = line.trim().strip_prefix('`')?.split_once("` ")?;
            let declared = !data_type.starts_with("AS ");
            declared.then(|| (name.to_owned(), data_type.strip_suffix(',').unwrap_or(data_type).to_owned()))
        });
        tables.insert(name.to_owned(), columns.collect());
    }
    (tables, views)
}

#[test]
fn the_script_says_the_same_pipeline() {
    let mut views_seen = 0;
    for path in configurations() {
        let config: Config = config::load(&path).expect("a valid configuration");
        let script = script(&path);
        assert!(script.is_ascii() || script.contains('←'), "{script}");
        let (tables, views) = read_back(&script);
        for source in &config.sources {
            let declared: Vec<_> =
                source.columns.iter().map(|field| (field.name.clone(), field.data_type.to_string())).collect();
            assert_eq!(tables[&source.name], declared, "{}", path.display());
            for (_, data_type) in &declared {
                assert!(forebay::sql::parse_type(data_type).is_ok(), "{data_type}");
            }
        }
        // Views in an order in which each finds what it reads, and their text is still the query.
        assert_eq!(views.len(), config.queries.len());
        let mut known: Vec<String> = tables.keys().cloned().collect();
        for ((name, body), query) in views.iter().zip(&config.queries) {
            assert_eq!(*name, query.name);
            assert!(query.sql.value.contains(body.trim_end()), "{body}");
            let reads = forebay::sql::dependencies(body).expect("a query");
            assert!(reads.iter().all(|read| known.contains(read)), "{name} reads {reads:?}");
            known.push(name.clone());
            views_seen += 1;
        }
        // Every statement ends, and each sink that Flink can have gets its rows.
        for sink in &config.sinks {
            let columns: Vec<String> = sink.fields.iter().map(|field| format!("`{}`", field.name)).collect();
            let insert = format!("SELECT {} FROM `{}`;\n", columns.join(", "), sink.from);
            let aside = sink.from.to_string().contains('.');
            assert!(script.contains(&insert) != aside, "{}: {insert}", path.display());
        }
    }
    assert!(views_seen >= 8, "{views_seen}");
}
