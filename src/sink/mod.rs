//! Sinks: rows with sequence numbers, out into the world.
//!
//! A sink's rows are numbered from 1 and a replay regenerates the same rows with the same numbers; so a sink that knows
//! the number of the last row it durably took drops what replay sends again, and needs no two-phase commit.
//!
//! Order of durability: the engine calls [`Sink::write`] for rows caused by records up to a cut, then [`Sink::flush`];
//! the checkpoint thread calls the returned [`Flushed::sync`] and only then commits [`Flushed::progress`].
//!
//! To add one: a file here with its config struct and code; a variant in [`SinkConfig`]; a line in the registry below.

use std::sync::Arc;

use arrow_array::ArrayRef;
use thiserror::Error;

use crate::event::LogTime;

/// What a sink gives, by its honest name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    ExactlyOnce,
    EffectivelyOnce,
    AtLeastOnce,
}

impl Guarantee {
    /// The name that `check` and `explain` print.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::ExactlyOnce => "exactly-once",
            Guarantee::EffectivelyOnce => "effectively-once",
            Guarantee::AtLeastOnce => "at-least-once",
        }
    }
}

/// An open sink.
pub trait Sink: Send {
    /// Takes rows; `time` is the log time of the record that caused them. May buffer.
    ///
    /// # Errors
    /// The medium failed. A full disk is not an error: the sink waits.
    fn write(&mut self, columns: &[ArrayRef], time: LogTime) -> Result<(), SinkError>;

    /// Hands everything buffered to the operating system, so that a reader sees it.
    ///
    /// # Errors
    /// The medium failed.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// After [`Sink::flush`]: what a checkpoint needs to make all rows so far durable.
    fn checkpoint(&mut self) -> Flushed;

    /// A checkpoint with the last [`Flushed::progress`] is durable (rolled files get their final names now).
    ///
    /// # Errors
    /// The medium failed.
    fn committed(&mut self) -> Result<(), SinkError>;

    /// Replay has regenerated all that the log holds: a sink that is ahead of it means lost log data.
    ///
    /// # Errors
    /// [`SinkError::Ahead`].
    fn replayed(&mut self) -> Result<(), SinkError>;
}

/// What a checkpoint needs of a sink.
pub struct Flushed {
    /// The sink's own record of where it stands (postcard), committed with the checkpoint.
    pub progress: Vec<u8>,
    /// Number of rows taken since the state was created.
    pub rows: u64,
    /// Makes all rows so far durable, directories too; run on the checkpoint thread, never retried.
    pub sync: Box<dyn FnOnce() -> Result<(), SinkError> + Send>,
}

/// What can go wrong at a sink.
#[derive(Debug, Error)]
pub enum SinkError {
    #[error("{action} {path}: {source}")]
    Io {
        action: &'static str,
        path: String,
        #[source]
        source: Arc<std::io::Error>,
    },
    #[error("{path} is {length} bytes long, but {durable} bytes of it were durable: it was cut or replaced")]
    Short { path: String, length: u64, durable: u64 },
    #[error("{path} holds {length} bytes, but the log gives only {regenerated}: durable log data was lost")]
    Ahead { path: String, length: u64, regenerated: u64 },
}
