//! `forebay explain`: sources, the plan of each query as a tree, sinks with their guarantees; with `--flink` the SQL that
//! runs the pipeline on a Flink cluster.

use std::io::Write;
use std::path::Path;

use super::{Failure, print};
use crate::config::{self, Config, Source};

/// Explains a configuration file.
///
/// # Errors
/// The configuration is not valid.
pub fn explain(path: &Path, flink: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let config = config::load(path)?;
    print(out, &if flink { config.flink_script() } else { text(&config) })
}

fn text(config: &Config) -> String {
    let mut text = String::new();
    for source in &config.sources {
        text += &format!("source {}: {}, {}\n", source.name, source.connector, source.format.name());
        text += &source_time(source);
    }
    for query in &config.queries {
        text += &format!("\nquery {}\n", query.name);
        for line in query.plan.explain().lines() {
            text += &format!("  {line}\n");
        }
        if let Some(retention) = query.retention() {
            text += &format!("  {retention}\n");
        }
    }
    text.push('\n');
    for sink in &config.sinks {
        let guarantee = sink.connector.guarantee().name();
        text += &format!("sink {} ← {}: {}, {guarantee}\n", sink.name, sink.from, sink.connector.describe());
    }
    text
}

fn source_time(source: &Source) -> String {
    let column = source.time.column.and_then(|index| source.columns.get(index)).map_or("_arrival", |c| &c.name);
    let bound = source.time.max_out_of_orderness_ms;
    let idle = match source.time.idle {
        Some(idle) => format!(", idle after {} ms of silence", idle.as_millis()),
        None => String::new(),
    };
    format!("  event time: {column}; watermark: greatest − {bound} ms{idle}\n")
}
