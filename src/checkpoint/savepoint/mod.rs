//! Savepoints: a checkpoint as one portable file, to keep, to move to another machine and to begin a state from.
//!
//! - [`format`]: the bytes, and their specification (pure).
//! - `writer`, `reader`: streaming, one block in memory.
//! - `export`: from an environment to a file; [`crate::engine::import`] is the way back.
//!
//! Invariants:
//! - A file bears the name that was asked for only when it is whole and durable.
//! - Whatever is read was checked: each block's CRC, chained; each value's own CRC; the order of keys; at the end the count
//!   and set hash of every operator, and that nothing follows.
//!
//! A savepoint holds no part of the log. What was logged behind its cut is not in it.

mod export;
pub mod format;
mod reader;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::CheckpointError;

pub use export::{Exported, export};
pub use reader::SavepointReader;
pub use writer::SavepointWriter;

/// Key and value of an entry, as they stand in the checkpoint.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

/// Told how much is done, and of how much; called at every step that leaves a trace on the disk.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The operator that a key belongs to.
pub fn operator_of(key: &[u8]) -> Option<u32> {
    key.first_chunk().map(|operator| u32::from_be_bytes(*operator))
}

/// Whether a file is a savepoint, whole or damaged, and not a configuration: text holds no zero byte.
///
/// # Errors
/// It cannot be read.
pub fn is_savepoint(file: &Path) -> io::Result<bool> {
    use io::Read as _;
    let mut head = Vec::new();
    std::fs::File::open(file)?.take(format::HEADER_BYTES as u64).read_to_end(&mut head)?;
    Ok(head.contains(&0) || head.starts_with(&format::MAGIC) || !head.is_empty() && format::MAGIC.starts_with(&head))
}

/// What a check of a savepoint went over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    pub blocks: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Reads a savepoint to its end.
///
/// # Errors
/// The first thing that is wrong.
pub fn read_through<R: io::Read>(
    reader: &mut SavepointReader<R>,
    progress: Progress<'_>,
) -> Result<Summary, SavepointError> {
    let mut blocks = 0;
    while reader.next()?.is_some() {
        if reader.counted().blocks != blocks {
            blocks = reader.counted().blocks;
            progress(reader.offset(), reader.length());
        }
    }
    let sums = reader.counted().operators.values();
    let (entries, bytes) = sums
        .fold((0u64, 0u64), |(entries, bytes), sum| (entries.wrapping_add(sum.count), bytes.wrapping_add(sum.bytes)));
    Ok(Summary { entries, bytes, blocks, file_bytes: reader.length() })
}

/// What can go wrong with savepoints.
#[derive(Debug, Error)]
pub enum SavepointError {
    #[error("{} is not a whole savepoint: {what} (block at byte {offset}). Use another copy, or export again", .file.display())]
    Corrupt { file: PathBuf, offset: u64, what: String },
    #[error(
        "the savepoint {} has format version {found}, this program reads version {}: use the version that wrote it",
        .file.display(), format::FORMAT_VERSION
    )]
    Version { file: PathBuf, found: u32 },
    #[error("{} is there already: remove it, or choose another name", .file.display())]
    Exists { file: PathBuf },
    #[error("{} is being written by another export: wait for it, or choose another name", .file.display())]
    Busy { file: PathBuf },
    #[error("the savepoint {} cannot be written: {what}", .file.display())]
    Unwritable { file: PathBuf, what: String },
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl SavepointError {
    /// The exit code of a process that ends by this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            SavepointError::Corrupt { .. } | SavepointError::Version { .. } => 65,
            SavepointError::Exists { .. } => 64,
            SavepointError::Busy { .. } => 75,
            SavepointError::Unwritable { .. } => 70,
            SavepointError::Io { .. } => 74,
            SavepointError::Checkpoint(error) => error.exit_code(),
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SavepointError {
        move |source| SavepointError::Io { action, path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests;
