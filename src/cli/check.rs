//! `forebay check`: everything that is wrong with a configuration, and each sink's guarantee if nothing is.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::{Failure, Format, print};
use crate::config::{self, Config, ConfigError};
use crate::settings::line_column;

/// Checks a configuration file.
///
/// # Errors
/// What is wrong (exit code 78).
pub fn check(path: &Path, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let loaded = config::load(path);
    if format == Format::Json
        && let Err(ConfigError::Invalid(problems)) = &loaded
    {
        let list: Vec<_> = problems
            .list
            .iter()
            .map(|problem| {
                let place = problem.span.as_ref().map(|span| line_column(&problems.text, span.start));
                json!({
                    "message": problem.message,
                    "help": problem.help,
                    "file": problems.file,
                    "line": place.map(|(line, _)| line),
                    "column": place.map(|(_, column)| column),
                })
            })
            .collect();
        print(out, &format!("{}\n", json!({ "valid": false, "problems": list })))?;
        return Err(Failure { message: format!("{} is not valid", path.display()), code: 78 });
    }
    let config = loaded?;
    let text = match format {
        Format::Text => text(&config),
        Format::Json => {
            let sinks: Vec<_> = config
                .sinks
                .iter()
                .map(|sink| {
                    json!({
                        "name": sink.name,
                        "from": sink.from.to_string(),
                        "guarantee": sink.connector.guarantee().name(),
                    })
                })
                .collect();
            let warnings = warnings(&config);
            let report =
                json!({ "valid": true, "pipeline": config.pipeline.name, "sinks": sinks, "warnings": warnings });
            format!("{report}\n")
        }
    };
    print(out, &text)
}

fn text(config: &Config) -> String {
    let mut text = format!(
        "{}: valid. Pipeline {}: {}, {}, {}, {}\n",
        config.file,
        config.pipeline.name,
        counted(config.sources.len(), "source", "sources"),
        counted(config.queries.len(), "query", "queries"),
        counted(config.sinks.len(), "sink", "sinks"),
        counted(config.tests.len(), "test", "tests")
    );
    for sink in &config.sinks {
        text += &format!("  sink {} ← {}: {}\n", sink.name, sink.from, sink.connector.guarantee().name());
    }
    for warning in warnings(config) {
        text += &format!("  warning: {warning}\n");
    }
    text
}

/// What is valid and may yet surprise: state that grows with the number of keys, for ever; comparisons with NULL.
fn warnings(config: &Config) -> Vec<String> {
    let open = config.queries.iter().filter(|query| query.state_ttl.is_none());
    let told = open.filter_map(|query| {
        let kept = query.plan.bounded_by_keys();
        (!kept.is_empty()).then(|| {
            format!(
                "query {}: {}, for ever. If keys come and go, forget those that were not used for a while: state_ttl = \"7d\" in \
                 [query.{}]",
                query.name,
                kept.join("; "),
                query.name
            )
        })
    });
    let never = config.queries.iter().flat_map(|query| {
        let pitfalls = query.pitfalls(&config.text).into_iter();
        pitfalls.map(|(line, message)| format!("query {}, line {line}: {message}", query.name))
    });
    told.chain(never).collect()
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
