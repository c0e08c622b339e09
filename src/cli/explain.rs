//! `forebay explain`: sources, the plan of each query as a tree, sinks with their guarantees; with `--flink` the SQL that
//! runs the pipeline on a Flink cluster.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::{Failure, Format, print};
use crate::config::{self, Config, Source, Step};

/// Explains a configuration file.
///
/// # Errors
/// The configuration is not valid.
pub fn explain(path: &Path, flink: bool, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let config = config::load(path)?;
    let text = match (format, flink) {
        (Format::Text, false) => text(&config),
        (Format::Text, true) => config.flink_script(),
        (Format::Json, false) => format!("{}\n", value(&config)),
        (Format::Json, true) => format!("{}\n", json!({ "flink": config.flink_script() })),
    };
    print(out, &text)
}

fn value(config: &Config) -> Value {
    let source = |source: &Source| {
        json!({
            "name": source.name,
            "type": source.connector.to_string(),
            "format": source.format.name(),
            "time_column": time_column(source),
            "max_out_of_orderness_ms": source.time.max_out_of_orderness_ms,
            "idle_ms": source.time.idle.map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)),
        })
    };
    let query = |query: &config::Query| {
        let plan = step(&query.plan.steps());
        json!({ "name": query.name, "plan": plan, "state_ttl": query.retention() })
    };
    let sink = |sink: &config::Sink| {
        json!({
            "name": sink.name,
            "from": sink.from.to_string(),
            "type": sink.connector.describe().to_string(),
            "guarantee": sink.connector.guarantee().name(),
        })
    };
    json!({
        "pipeline": config.pipeline.name,
        "sources": config.sources.iter().map(source).collect::<Vec<_>>(),
        "queries": config.queries.iter().map(query).collect::<Vec<_>>(),
        "sinks": config.sinks.iter().map(sink).collect::<Vec<_>>(),
    })
}

fn step(it: &Step) -> Value {
    let columns = it.columns.iter().map(|field| json!({ "name": field.name, "type": field.data_type.to_string() }));
    json!({
        "step": it.name,
        "details": it.details,
        "columns": columns.collect::<Vec<_>>(),
        "time_attribute": it.time.as_ref().map(|field| &field.name),
        "state": it.state,
        "inputs": it.inputs.iter().map(step).collect::<Vec<_>>(),
    })
}

fn time_column(source: &Source) -> &str {
    source.time.column.and_then(|index| source.columns.get(index)).map_or("_arrival", |column| &column.name)
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
    let column = time_column(source);
    let bound = source.time.max_out_of_orderness_ms;
    let idle = match source.time.idle {
        Some(idle) => format!(", idle after {} ms of silence", idle.as_millis()),
        None => String::new(),
    };
    format!("  event time: {column}; watermark: greatest − {bound} ms{idle}\n")
}
