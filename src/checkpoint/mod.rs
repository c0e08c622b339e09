//! Checkpoints: operator state, positions and configuration at a cut of the log, in one LMDB transaction each.
//!
//! ```text
//! engine: freeze ──▶ Job ──▶ checkpoint thread: sync sinks ──▶ one write transaction ──▶ Finished ──▶ engine:
//!         renew the snapshot, tell every state `committed` (or `failed`), then trim the log
//! ```
//!
//! Invariants:
//! - All or nothing: whatever belongs to a checkpoint is written by one transaction, and no other transaction writes
//!   (the one that makes an empty environment excepted).
//! - Sinks are synced before the transaction begins.
//! - Stored bytes are never trusted: every value bears a CRC32C, every (operator, key group) a count and a set hash.
//!
//! - `layout.rs`: the bytes of keys and values (pure, golden-tested).
//! - `meta.rs`: what a checkpoint says about itself; the history of the last hundred.
//! - `lmdb.rs`: the environment; the only user of `heed`.
//! - `pages.rs`: an independent check of LMDB's pages.
//! - `readers.rs`: readers in other processes, and the end of those that make the environment grow without bound.
//! - `worker.rs`: the checkpoint thread.
//! - `savepoint/`: a checkpoint as one portable file.
//!
//! LMDB does not check its own pages; see [`lmdb::CheckpointReader::verify`] for what is checked and what is not.

pub mod layout;
pub mod lmdb;
pub mod meta;
mod pages;
mod readers;
pub mod savepoint;
pub mod worker;

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::state::{Frozen, StateError, StateReader};

pub use lmdb::{CheckpointReader, CheckpointStore, CommitStats, OpenMode, Pinned, Snapshot, Verified};
pub use meta::{CheckpointMeta, HistoryEntry, OperatorMeta, OperatorTotals, SinkMeta, SinkRows, Wear};
pub use worker::{CheckpointThread, CheckpointWorker, Finished, Job, SinkSync, Space, perform};

/// Name of the environment's directory within the state directory.
pub const DIRECTORY: &str = "checkpoint";

/// States up to this size are verified whole at start.
pub const VERIFY_AT_START_BYTES: u64 = 64 << 20;

/// An operator's number and its changes.
pub type Layer = (u32, Arc<dyn Frozen>);

/// A store of checkpoints: LMDB ([`CheckpointStore`]), or a model of it in a simulation.
pub trait Checkpoints: Send + Sync {
    /// Writes a checkpoint: whole or not at all, durable when this returns. `layers` has one layer, maybe an empty one,
    /// for each operator of `meta`; they fill in the operators' namespaces.
    ///
    /// # Errors
    /// [`CheckpointError::NoSpace`]: nothing changed, try again when there is space. Any other: nothing changed, and
    /// the process should end.
    fn commit(&self, meta: &CheckpointMeta, layers: &[Layer]) -> Result<CommitStats, CheckpointError>;

    /// A view of the last commit.
    ///
    /// # Errors
    /// The store cannot be read.
    fn view(&self) -> Result<Arc<dyn CheckpointView>, CheckpointError>;
}

/// The committed state at one commit, shared by all operators of an engine.
pub trait CheckpointView: StateReader {
    /// Shows the last commit from now on.
    ///
    /// # Errors
    /// The store cannot be read; the old view stays.
    fn renew(&self) -> Result<(), CheckpointError>;

    /// What the checkpoint shown says about itself; `None` before the first.
    ///
    /// # Errors
    /// It is corrupt or of another version.
    fn meta(&self) -> Result<Option<CheckpointMeta>, CheckpointError>;
}

/// What can go wrong with checkpoints.
#[derive(Debug, Error)]
pub enum CheckpointError {
    #[error("there is no checkpoint in {}: name the state directory of a pipeline that has run", .dir.display())]
    Missing { dir: PathBuf },
    #[error("the checkpoint in {} is already open in this process", .dir.display())]
    AlreadyOpen { dir: PathBuf },
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot {action} {}: {source}", .dir.display())]
    Lmdb {
        action: &'static str,
        dir: PathBuf,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    #[error("no space for a checkpoint in {} ({free_bytes} bytes are free): free some space", .dir.display())]
    NoSpace { dir: PathBuf, free_bytes: u64 },
    #[error(
        "the state in {} is as large as it may become ({map_bytes} bytes): let it forget (shorter windows, fewer keys); \
         `forebay explain` says what bounds each query's state",
        .dir.display()
    )]
    MapFull { dir: PathBuf, map_bytes: u64 },
    #[error(
        "the checkpoint in {} is corrupt: {what}; move the state directory away and begin from a savepoint (`forebay \
         checkpoint import FILE CONFIG`), from a copy of the directory, or anew",
        .dir.display()
    )]
    Corrupt { dir: PathBuf, what: String },
    #[error(
        "the checkpoint in {} has format version {found}, this program reads version {}: use the version that wrote it",
        .dir.display(), layout::FORMAT_VERSION
    )]
    Version { dir: PathBuf, found: u16 },
    #[error("two keys of operator {operator} have the same beginning and 128-bit hash; only one can be stored")]
    KeyCollision { operator: u32 },
    #[error("there is no checkpoint {id} in {}: `checkpoint list` shows those on record", .dir.display())]
    UnknownId { dir: PathBuf, id: u64 },
    #[error("there is no operator `{name}` in the checkpoint; there are: {known}")]
    UnknownOperator { name: String, known: String },
    #[error(transparent)]
    State(#[from] StateError),
    #[error("sink {sink} could not make its rows durable: {source}")]
    SinkSync {
        sink: String,
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    #[error("a checkpoint was asked for that cannot be: {what}")]
    Misuse { what: String },
    #[error("the checkpoint thread ended unexpectedly")]
    ThreadDied,
    #[error("cannot write the output: {source}")]
    Output {
        #[source]
        source: io::Error,
    },
}

impl CheckpointError {
    /// The exit code of a process that ends by this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            CheckpointError::UnknownId { .. } | CheckpointError::UnknownOperator { .. } => 64,
            CheckpointError::Missing { .. }
            | CheckpointError::Corrupt { .. }
            | CheckpointError::Version { .. }
            | CheckpointError::KeyCollision { .. } => 65,
            CheckpointError::AlreadyOpen { .. } | CheckpointError::Misuse { .. } | CheckpointError::ThreadDied => 70,
            CheckpointError::Io { .. }
            | CheckpointError::Lmdb { .. }
            | CheckpointError::NoSpace { .. }
            | CheckpointError::MapFull { .. }
            | CheckpointError::SinkSync { .. }
            | CheckpointError::Output { .. } => 74,
            CheckpointError::State(error) => error.exit_code(),
        }
    }
}
