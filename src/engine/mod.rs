//! The engine: knows all parts and makes them one.
//!
//! - `step` is the synchronous core: a frame of the log in, rows to sinks out; no clock, no I/O but the sinks'.
//! - `batch` cuts frames into batches and decodes them, `ahead` on other threads where there are some.
//! - `graph` makes operators from the plan, `source_node` rows from records, `watermark` a source's clock.
//! - `trial` runs the tests of a configuration through it.
//! - `table` brings the files of lookup tables to the log, and from there to the joins.
//! - `run` is the shell: threads, start and stop; `commit` (group commit) and `drive` (checkpoints) are what they do, one
//!   round at a time, so that a simulation can do it without threads; `host` is what a simulation puts in their place.
//! - `open` goes from a directory to a running engine, `repair` from a damaged log to one that opens.
//! - `import` makes a state from a savepoint.
//! - `status` is what the running engine tells of itself.

pub mod ahead;
pub mod batch;
pub mod choices;
pub mod commit;
mod decode;
pub mod drive;
mod flow;
pub mod graph;
pub mod handover;
pub mod host;
pub mod import;
pub mod open;
pub mod repair;
pub mod reserve;
pub mod run;
pub mod source_node;
pub mod status;
pub mod step;
pub mod table;
pub mod trial;
pub mod watermark;

use thiserror::Error;

use crate::checkpoint::CheckpointError;
use crate::checkpoint::savepoint::SavepointError;
use crate::event::Lsn;
use crate::operator::OperatorError;
use crate::replay_log::LogError;
use crate::sink::SinkError;
use crate::state::StateError;

/// Why the engine stopped.
#[derive(Debug, Error)]
pub enum EngineError {
    #[error(
        "source {source_name}, LSN {lsn}: {reason}. The source says on_error = \"stop\"; with \"dead_letter\" the message \
         goes to {source_name}.dead and the rest goes on"
    )]
    Refused { source_name: String, lsn: Lsn, reason: String },
    #[error("sink {sink}: {source}")]
    Sink {
        sink: String,
        #[source]
        source: SinkError,
    },
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Table(#[from] table::TableError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Savepoint(#[from] SavepointError),
    #[error("what the checkpoint holds of {what} cannot be used: {reason}")]
    Saved { what: String, reason: String },
    #[error("source {source_name} failed: {reason}")]
    Source { source_name: String, reason: String },
    #[error("cannot {action}: {source}")]
    Io {
        action: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "there was no space for a checkpoint when the process was asked to stop: nothing is lost, the next start goes on \
         from the checkpoint before"
    )]
    NoSpace,
    #[error("{message}")]
    Configuration { message: String },
    #[error("{message}")]
    Usage { message: String },
    #[error("{thread} ended by a panic; this is a bug")]
    Panic { thread: &'static str },
}

impl EngineError {
    /// The process's exit code for this end.
    pub fn exit_code(&self) -> u8 {
        match self {
            EngineError::Refused { .. } | EngineError::Saved { .. } => 65,
            EngineError::Sink { source, .. } => source.exit_code(),
            EngineError::Operator(OperatorError::State(error)) | EngineError::State(error) => error.exit_code(),
            EngineError::Operator(OperatorError::Saved { .. }) => 65,
            EngineError::Operator(OperatorError::Key(_) | OperatorError::Repeat(_) | OperatorError::Emit) => 70,
            EngineError::Table(error) => error.exit_code(),
            EngineError::Log(error) => error.exit_code(),
            EngineError::Checkpoint(error) => error.exit_code(),
            EngineError::Savepoint(error) => error.exit_code(),
            EngineError::Usage { .. } => 64,
            EngineError::Source { .. } | EngineError::Io { .. } | EngineError::NoSpace => 74,
            EngineError::Configuration { .. } => 78,
            EngineError::Panic { .. } => 70,
        }
    }
}
