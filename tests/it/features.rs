//! The table of features in `docs/sql.md`: every query of `tests/golden/features.toml` is planned, or refused with the
//! message that the table shows.

use std::path::Path;

use forebay::config;
use forebay::sql::{Catalog, plan_query};
use serde::Deserialize;

use crate::conformance::TABLES;

#[derive(Deserialize)]
struct Features {
    feature: Vec<Feature>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Feature {
    group: String,
    name: String,
    sql: Vec<String>,
    refused: Option<String>,
    #[serde(default)]
    beyond_flink: bool,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn features() -> Vec<Feature> {
    let text = std::fs::read_to_string(root().join("tests/golden/features.toml")).expect("the features");
    toml::from_str::<Features>(&text).expect("features").feature
}

/// The tables of the conformance cases, and a view of the last row of each key.
pub fn catalog() -> Catalog {
    let mut text = "pipeline = { name = \"p\" }\n[sink.out]\ntype = \"stdout\"\nfrom = \"plant\"\n".to_owned();
    for (name, columns, _) in TABLES {
        text += &format!(
            "[source.{name}]\ntype = \"file\"\npath = \"x\"\ncolumns = {{ {columns} }}\ntime.column = \"ts\"\n"
        );
        if name == "calib" {
            text += "key = [\"device\"]\n";
        }
    }
    text += "[table.devices]\ntype = \"file\"\npath = \"x\"\nformat = \"csv\"\nkey = [\"id\"]\n\
             columns = { id = \"STRING\", room = \"STRING\" }\n";
    let config = config::parse("p.toml", &text).expect("a valid configuration");
    let mut catalog = Catalog::default();
    for table in &config.tables {
        catalog.add_lookup(&table.name, table.schema(), table.key.clone());
    }
    for source in &config.sources {
        catalog.add(&source.name, source.schema());
        if !source.key.is_empty() {
            catalog.add_key(&source.name, source.key.clone());
        }
    }
    let latest = "SELECT ts, device, temp FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts DESC) AS rn \
                  FROM plant) WHERE rn = 1";
    catalog.add_query("latest", &plan_query(latest, &catalog).expect("a view"));
    catalog
}

#[test]
fn every_row_is_true() {
    let catalog = catalog();
    let mut wrong = Vec::new();
    let mut queries = 0;
    for feature in features() {
        for (index, sql) in feature.sql.iter().enumerate() {
            queries += 1;
            let outcome = plan_query(sql, &catalog).map(|plan| plan.explain());
            let found = outcome.as_ref().err().and_then(|errors| errors.first()).map(|error| error.message.as_str());
            let right = match (&feature.refused, found) {
                (None, None) => true,
                (Some(message), Some(found)) => index > 0 || message == found,
                _ => false,
            };
            if !right {
                wrong.push(format!("{}\t{sql}\t{}", feature.name, found.unwrap_or("it is taken")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(queries > 150, "{queries} queries");
}

fn table() -> String {
    let mut text = String::new();
    let mut group = String::new();
    for feature in features() {
        if feature.group != group {
            group = feature.group;
            text += &format!("\n### {group}\n\n| Flink | Forebay |\n|---|---|\n");
        }
        let cell = |text: &str| text.replace('|', "\\|");
        let stands = match (&feature.refused, feature.beyond_flink) {
            (Some(message), _) => format!("refused: {}", cell(message)),
            (None, true) => "beyond Flink".to_owned(),
            (None, false) => "taken".to_owned(),
        };
        text += &format!("| {} | {stands} |\n", cell(&feature.name));
    }
    text
}

#[test]
fn the_document_shows_the_same_table() {
    let path = root().join("docs/sql.md");
    let document = std::fs::read_to_string(&path).expect("the document");
    let (begin, end) = ("<!-- features: made by tests/it/features.rs -->\n", "\n<!-- end of features -->");
    let (before, rest) = document.split_once(begin).expect("where the table begins");
    let (shown, after) = rest.split_once(end).expect("where the table ends");
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{}{end}{after}", table())).expect("writes");
    } else {
        assert_eq!(shown, table(), "write it anew: FOREBAY_BLESS=1 cargo test --test it features");
    }
}
