//! From a checkpoint to a savepoint, also while the engine runs.
//!
//! One read transaction: what it sees stays, and the engine goes on; the pages that it pins are free again when it ends.
//! The walk is that of `checkpoint verify`, so a savepoint is never made of what would not pass.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{Progress, SavepointError, SavepointWriter};
use crate::checkpoint::{CheckpointMeta, CheckpointReader};

/// What an export wrote.
#[derive(Clone, Debug)]
pub struct Exported {
    pub meta: CheckpointMeta,
    pub entries: u64,
    /// Bytes of the savepoint.
    pub file_bytes: u64,
}

/// Exports the newest checkpoint in `dir`, the `checkpoint` directory of a state, to `file`.
///
/// # Errors
/// There is such a file already; there is no checkpoint, or it is corrupt; the disk failed. Nothing is left behind.
pub fn export(dir: &Path, file: &Path, progress: Progress<'_>) -> Result<Exported, SavepointError> {
    refuse_existing(file)?;
    let pinned = CheckpointReader::open(dir)?.pin()?;
    pinned.check_pages()?;
    let staging = Staging::create(file)?;
    let total_bytes = pinned.entries_bytes()?;
    progress(0, total_bytes);
    let mut writer = SavepointWriter::new(&staging.handle, &staging.path, pinned.meta())?;
    let (mut done_bytes, mut told_bytes) = (0u64, 0u64);
    let verified = pinned.walk(&mut |key, stored| {
        done_bytes += (key.len() + stored.len()) as u64;
        if done_bytes - told_bytes >= super::format::BLOCK_BYTES as u64 {
            told_bytes = done_bytes;
            progress(done_bytes, total_bytes);
        }
        writer.add(key, stored)
    })?;
    let (_, file_bytes) = writer.finish()?;
    progress(total_bytes, total_bytes);
    staging.handle.sync_all().map_err(SavepointError::io("sync", &staging.path))?;
    progress(total_bytes, total_bytes);
    refuse_existing(file)?;
    staging.publish(file)?;
    progress(total_bytes, total_bytes);
    let parent = parent(file);
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(SavepointError::io("sync", parent))?;
    Ok(Exported { meta: pinned.meta().clone(), entries: verified.entries, file_bytes })
}

fn parent(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn refuse_existing(file: &Path) -> Result<(), SavepointError> {
    match fs::symlink_metadata(file) {
        Ok(_) => Err(SavepointError::Exists { file: file.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(SavepointError::io("look at", file)(error)),
    }
}

/// A file that does not bear its name yet, but one that nobody gives to a file of his own; removed when it is dropped.
struct Staging {
    handle: File,
    path: PathBuf,
    published: bool,
}

impl Staging {
    /// Takes over what a killed export has left, but not the file of one that runs.
    fn create(file: &Path) -> Result<Staging, SavepointError> {
        let Some(name) = file.file_name() else {
            return Err(SavepointError::io("create", file)(ErrorKind::IsADirectory.into()));
        };
        let mut staging = OsString::from(".");
        staging.push(name);
        staging.push(".export");
        let path = parent(file).join(staging);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let handle = opened.map_err(SavepointError::io("create", &path))?;
        let busy = || SavepointError::Busy { file: file.to_owned() };
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(busy()),
            Err(error) => return Err(SavepointError::io("lock", &path)(error.into())),
            Ok(()) => {}
        }
        // Between opening and locking, another export may have given it its name.
        let looked = |result: std::io::Result<fs::Metadata>| result.map_err(SavepointError::io("look at", &path));
        let (held, named) = (looked(handle.metadata())?, fs::metadata(&path).ok());
        if named.is_none_or(|named| (named.dev(), named.ino()) != (held.dev(), held.ino())) {
            return Err(busy());
        }
        handle.set_len(0).map_err(SavepointError::io("empty", &path))?;
        Ok(Staging { handle, path, published: false })
    }

    fn publish(mut self, file: &Path) -> Result<(), SavepointError> {
        fs::rename(&self.path, file).map_err(SavepointError::io("rename", &self.path))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.published {
            // The failure that led here is what is reported.
            let _ = fs::remove_file(&self.path);
        }
    }
}
