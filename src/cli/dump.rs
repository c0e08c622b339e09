//! How `checkpoint dump` shows an operator's entries: as the row that would come out if the window fired now, a timer of a
//! session as its time and keys. The checkpoint keeps the configuration that the state belongs to, and from it the operator is built again.

use std::sync::Arc;

use serde_json::Value;

use super::checkpoint::{EntryDecoder, undecoded};
use crate::checkpoint::{CheckpointMeta, OperatorMeta};
use crate::config;
use crate::engine::graph::{Stored, build};
use crate::engine::step::row_text;
use crate::expr::EvalContext;
use crate::state::{NoStored, StateReader};

struct Nothing;

impl Stored for Nothing {
    fn operator(&self, _: &str) -> (u32, Vec<i64>) {
        (0, Vec::new())
    }
}

/// A decoder of the entries of one operator of a checkpoint.
pub fn decoder(meta: &CheckpointMeta, operator: &OperatorMeta) -> EntryDecoder {
    let Ok(config) = config::parse("checkpoint", &meta.config) else { return Box::new(undecoded) };
    let context = EvalContext { time_zone: config.pipeline.time_zone.clone() };
    let reader: Arc<dyn StateReader> = Arc::new(NoStored);
    let render = row_text();
    let Ok(graph) = build(&config, &context, &Nothing, &reader, &render) else { return Box::new(undecoded) };
    let Some(node) = graph.operators.into_iter().find(|node| *node.name == *operator.name) else {
        return Box::new(undecoded);
    };
    Box::new(move |namespace, key, value| {
        let entry = node.operator.preview(&node.labels, namespace, key, value);
        let shown = entry.and_then(|e| serde_json::from_str::<Value>(&render(&e.fields, &e.columns, 0)).ok());
        shown.unwrap_or_else(|| undecoded(namespace, key, value))
    })
}
