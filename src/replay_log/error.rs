//! What can go wrong with the log.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::format::FormatError;
use crate::access;
use crate::event::{Epoch, Lsn};

/// A failure of the log. Nothing on disk has been changed by one, but where it says so.
#[derive(Debug, Error)]
pub enum LogError {
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{file} is corrupt at byte {offset}: {what}. Nothing was changed. Restore the state directory from a copy, or cut \
         there: `forebay log repair {}` says first what would be lost", state_of(file).display()
    )]
    Corrupt { file: PathBuf, offset: u64, what: String },
    #[error(
        "the log in {dir} has lost durable data: {held}, but the newest checkpoint stands at LSN {cut}. Nothing \
         was changed. Restore the state directory from a copy, or go on without it: `forebay log repair {}` says first \
         what would be lost", dir.parent().unwrap_or(dir).display()
    )]
    Lost { dir: PathBuf, held: String, cut: Lsn },
    #[error(
        "{file} belongs to the pipeline `{found}`, not to `{expected}`: give this pipeline a state directory of its own"
    )]
    WrongPipeline { file: PathBuf, found: String, expected: String },
    #[error(
        "{file} is of epoch {found}, but the state is of epoch {expected}: log and checkpoint are not of one state. \
         Restore both from the same copy"
    )]
    WrongEpoch { file: PathBuf, found: Epoch, expected: Epoch },
    #[error(
        "{file} is of format version {version}; this program reads versions 1 and 2: use the version that wrote it"
    )]
    UnknownVersion { file: PathBuf, version: u32 },
    #[error(
        "from LSN {lsn} on the log holds no payload (log = \"position\") but refers to bytes {from} to {to} of {file}, and \
         {what}. Log and checkpoint stay as they are. Put the file back (a copy will do) and start again. If it is lost for \
         good: `forebay checkpoint export` and `import` begin another state at the newest checkpoint, without the records \
         behind it, and for sources other than this file"
    )]
    Referenced { file: PathBuf, from: u64, to: u64, lsn: Lsn, what: String },
    #[error("the log is full: {bytes} bytes (`log.max_size`) are taken by records that no checkpoint covers yet")]
    Full { bytes: u64 },
    #[error("no space left for {path}: stopped while waiting for some")]
    NoSpace { path: PathBuf },
    #[error("the log takes nothing more since an earlier failure ({cause}): start again to recover")]
    Poisoned { cause: String },
    #[error(
        "a record or a name of {bytes} bytes cannot be logged, {limit} is the most that a segment of this size takes"
    )]
    TooLarge { bytes: usize, limit: usize },
    #[error("the lengths of a run do not add up to its payload: this is a bug")]
    Malformed,
    #[error("the log cannot be set up like this: {0}")]
    Options(String),
    #[error("there is no log in {dir}: name the state directory of a pipeline that has run")]
    NoLog { dir: PathBuf },
    #[error("LSN {wanted} is no longer in the log, which starts at LSN {first}")]
    Trimmed { wanted: Lsn, first: Lsn },
    #[error("another instance runs on {path} (process {pid}); stop it first, or use another state directory")]
    Locked { path: PathBuf, pid: String },
}

/// The state directory whose log this file is of.
fn state_of(file: &Path) -> &Path {
    file.ancestors().nth(2).unwrap_or(file)
}

impl LogError {
    /// The exit code of a program that ends by this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            LogError::Corrupt { .. }
            | LogError::Lost { .. }
            | LogError::WrongPipeline { .. }
            | LogError::WrongEpoch { .. }
            | LogError::UnknownVersion { .. }
            | LogError::Referenced { .. }
            | LogError::Trimmed { .. } => 65,
            LogError::TooLarge { .. } | LogError::Malformed => 70,
            LogError::Io { .. }
            | LogError::Full { .. }
            | LogError::NoSpace { .. }
            | LogError::Poisoned { .. }
            | LogError::NoLog { .. } => 74,
            LogError::Locked { .. } => 75,
            LogError::Options(_) => 78,
        }
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
        move |source| LogError::Io { action, path: path.to_owned(), source: access::explained(path, source) }
    }

    pub(super) fn corrupt(file: &Path, offset: u64, what: impl Into<String>) -> LogError {
        LogError::Corrupt { file: file.to_owned(), offset, what: what.into() }
    }

    /// A segment header that cannot be read.
    pub(super) fn header(file: &Path, why: FormatError) -> LogError {
        match why {
            FormatError::UnknownVersion(version) => LogError::UnknownVersion { file: file.to_owned(), version },
            why => LogError::corrupt(file, 0, why.to_string()),
        }
    }
}
