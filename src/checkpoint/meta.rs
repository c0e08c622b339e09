//! What a checkpoint says about itself. Stored as postcard: a field may be added only with a new format version.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::{Epoch, LogTime, Lsn, Position};

/// Entries that the history keeps.
pub const HISTORY_MAX: usize = 100;

/// Everything of a checkpoint but the keyed state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMeta {
    /// Ascending within a state.
    pub id: u64,
    pub epoch: Epoch,
    /// Name of the pipeline.
    pub pipeline: String,
    /// The checkpoint holds the effect of the records up to this one.
    pub cut: Lsn,
    /// Log time of the cut.
    pub cut_time: LogTime,
    /// Wall clock when the checkpoint was made, µs since the Unix epoch; for people only.
    pub wall_time_us: i64,
    /// Where each replayable source stands at the cut, by name.
    pub sources: BTreeMap<String, Position>,
    /// The engine's own part (watermarks, end marks, …), opaque here.
    pub engine: Vec<u8>,
    pub operators: Vec<OperatorMeta>,
    pub sinks: Vec<SinkMeta>,
    /// Text of the configuration that the state belongs to.
    pub config: String,
    /// Version of the engine's semantics.
    pub semantics_version: u32,
    /// Version of the program that wrote the checkpoint.
    pub program_version: String,
    /// Stored beside the rest, as a record of its own: states that are older than it have none.
    #[serde(skip)]
    pub wear: Wear,
}

/// What a state has cost the device since it was created. What was written between the last checkpoint and a crash is not
/// in it, nor what was ingested then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wear {
    /// Bytes of messages that the log took in.
    pub ingested_bytes: u64,
    /// Bytes of whole pages, as the device writes them, the zeros of new segments among them.
    pub log_bytes: u64,
    pub log_syncs: u64,
    /// Bytes of whole pages; nobody knows those of the checkpoint that this stands in before it is written.
    pub checkpoint_bytes: u64,
    /// With the one that this stands in.
    pub checkpoints: u64,
    /// Bytes of rows.
    pub output_bytes: u64,
}

impl Wear {
    /// Bytes written per byte ingested; `None` before the first.
    pub fn written_per_ingested(&self) -> Option<f64> {
        let written = self.log_bytes + self.checkpoint_bytes + self.output_bytes;
        (self.ingested_bytes > 0).then(|| written as f64 / self.ingested_bytes as f64)
    }
}

/// A stateful operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorMeta {
    /// Number in the keys of its entries.
    pub id: u32,
    /// Query name, operator kind, ordinal among the query's stateful operators of that kind.
    pub name: String,
    /// Tells whether the state fits the operator of a changed configuration.
    pub fingerprint: String,
    /// What type the values are of, for those who print them.
    pub value_type: String,
    /// Namespaces open at the cut. Filled in by the commit, from the layer.
    pub namespaces: BTreeSet<i64>,
}

/// A sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkMeta {
    pub name: String,
    /// Rows taken since the state was created.
    pub rows: u64,
    /// The sink's own record of where it stands.
    pub progress: Vec<u8>,
}

impl CheckpointMeta {
    /// The operator with this name.
    pub fn operator(&self, name: &str) -> Option<&OperatorMeta> {
        self.operators.iter().find(|operator| operator.name == name)
    }
}

/// A checkpoint on record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    pub id: u64,
    pub wall_time_us: i64,
    pub cut: Lsn,
    pub cut_time: LogTime,
    /// Time that the write transaction took. Its own sync is in it only once the next checkpoint has put it in.
    pub duration_us: u64,
    /// Whether `duration_us` has the sync in it.
    pub synced: bool,
    /// Entries put and deleted, a namespace's removed entries each counted.
    pub changes: u64,
    /// Bytes of keys and values put.
    pub bytes_written: u64,
    pub operators: Vec<OperatorTotals>,
    pub sinks: Vec<SinkRows>,
}

impl HistoryEntry {
    /// The entry of a checkpoint whose sync is still to come; `changes` and `bytes_written` are to be filled in.
    pub fn unsynced(meta: &CheckpointMeta, duration_us: u64, operators: Vec<OperatorTotals>) -> HistoryEntry {
        HistoryEntry {
            id: meta.id,
            wall_time_us: meta.wall_time_us,
            cut: meta.cut,
            cut_time: meta.cut_time,
            duration_us,
            operators,
            sinks: meta.sinks.iter().map(|sink| SinkRows { name: sink.name.clone(), rows: sink.rows }).collect(),
            ..HistoryEntry::default()
        }
    }
}

/// What an operator's state amounts to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorTotals {
    pub name: String,
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// How far a sink was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkRows {
    pub name: String,
    pub rows: u64,
}
