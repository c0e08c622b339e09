//! From a savepoint to a state directory: the way back of [`crate::checkpoint::savepoint::export`].
//!
//! The new state is built whole in `.<state>.import` beside it, a name that nobody gives to a state of his own, synced,
//! and renamed: it is there whole or not at all. What a killed import has left is cleared away by the next one. It has the
//! savepoint's checkpoint, under a new epoch, and an empty log that begins behind its cut. So the first start finds
//! nothing to replay, and goes on as after a clean stop.
//!
//! Sources go on at their positions, also in a copy of the input file. Sinks go on where the savepoint says; a start
//! compares what they hold. With fresh sinks the state knows none: the first start begins them anew, as sinks that are new
//! in a configuration, with row 1.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::EngineError;
use super::host::{Host, Machine};
use crate::checkpoint::lmdb::Import;
use crate::checkpoint::savepoint::{Progress, SavepointReader};
use crate::checkpoint::{CheckpointMeta, DIRECTORY};
use crate::config::{self, Config};
use crate::disk::Disk;
use crate::replay_log::{Identity, StateLock, begin_behind, log_dir};

/// What an import has made.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The checkpoint that the state begins with.
    pub meta: CheckpointMeta,
    pub entries: u64,
}

/// Makes the state directory `state` from the savepoint `file`. With `fresh_sinks` the state's sinks begin anew.
///
/// # Errors
/// The directory holds something; the savepoint is corrupt, of another version, or not of `config`'s pipeline; another
/// import is at it; the disk failed. The directory is as it was.
pub fn import(
    file: &Path,
    state: &Path,
    config: Option<&Config>,
    fresh_sinks: bool,
    progress: Progress<'_>,
) -> Result<Imported, EngineError> {
    let mut reader = SavepointReader::open(file)?;
    if let Some(config) = config.filter(|config| config.pipeline.name != reader.meta().pipeline) {
        let message = format!(
            "the savepoint {} is of the pipeline `{}`, not of `{}`: import it for that one",
            file.display(),
            reader.meta().pipeline,
            config.pipeline.name
        );
        return Err(EngineError::Configuration { message });
    }
    refuse_existing(state)?;
    let state = &resolve(state)?;
    let disk = Machine.disk();
    let staging = Staging::create(disk.as_ref(), state)?;
    let mut meta = reader.meta().clone();
    meta.epoch = Machine.epoch()?;
    if fresh_sinks {
        meta.sinks.clear();
    }
    find_copies(&mut meta, config);
    let mut environment = Import::create(&staging.path.join(DIRECTORY))?;
    progress(reader.offset(), reader.length());
    let mut entries = 0u64;
    let mut wrote = false;
    loop {
        if std::mem::take(&mut wrote) {
            progress(reader.offset(), reader.length());
        }
        let Some((key, stored)) = reader.next()? else { break };
        wrote = environment.put(key, stored)?;
        entries += 1;
    }
    environment.finish(&meta)?;
    progress(reader.length(), reader.length());
    let identity = Identity { pipeline: meta.pipeline.clone(), epoch: meta.epoch, sources: Vec::new() };
    begin_behind(Arc::clone(&disk), &log_dir(&staging.path), identity, meta.cut, meta.cut_time)?;
    progress(reader.length(), reader.length());
    disk.sync_dir(&staging.path).map_err(|source| io("sync", &staging.path, source))?;
    refuse_existing(state)?;
    staging.publish(disk.as_ref(), state)?;
    progress(reader.length(), reader.length());
    Ok(Imported { meta, entries })
}

/// Where an input file is a copy of the one that was read, its source goes on in the copy. Any other stays as it is, and
/// the source says so when it is started.
fn find_copies(meta: &mut CheckpointMeta, config: Option<&Config>) {
    let kept = config::parse("the configuration kept in the savepoint", &meta.config).ok();
    let Some(config) = config.or(kept.as_ref()) else { return };
    for source in &config.sources {
        if let Some(position) = meta.sources.get_mut(&source.name) {
            *position = source.connector.in_copy(*position).unwrap_or(*position);
        }
    }
}

fn io(action: &str, path: &Path, source: std::io::Error) -> EngineError {
    EngineError::Io { action: format!("{action} {}", path.display()), source }
}

/// A directory that is there must be empty.
fn refuse_existing(state: &Path) -> Result<(), EngineError> {
    let is_free = match fs::read_dir(state) {
        Ok(mut names) => names.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(source) => return Err(io("read", state, source)),
    };
    if is_free {
        return Ok(());
    }
    let message = format!(
        "{} holds a state already: move it away to begin from the savepoint, or name another directory",
        state.display()
    );
    Err(EngineError::Usage { message })
}

/// What a link to an empty directory leads to: a service's state directory may be one.
fn resolve(state: &Path) -> Result<PathBuf, EngineError> {
    if state.file_name().is_none() || !state.exists() {
        return Ok(state.to_owned());
    }
    fs::canonicalize(state).map_err(|source| io("look at", state, source))
}

/// The directory that becomes the state; removed when it is dropped before.
struct Staging {
    path: PathBuf,
    published: bool,
    _lock: StateLock,
}

impl Staging {
    /// Takes over what a killed import has left, but not the directory of one that runs.
    fn create(disk: &dyn Disk, state: &Path) -> Result<Staging, EngineError> {
        let Some(name) = state.file_name() else {
            let message =
                format!("{} is no name for a new state directory: name it from the directory above", state.display());
            return Err(EngineError::Usage { message });
        };
        let mut staging = OsString::from(".");
        staging.push(name);
        staging.push(".import");
        let path = state.with_file_name(staging);
        let lock = StateLock::acquire(disk, &path)?;
        for part in [path.join(DIRECTORY), path.join(format!("{DIRECTORY}.new")), log_dir(&path)] {
            match fs::remove_dir_all(&part) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(io("remove", &part, error)),
                _ => {}
            }
        }
        Ok(Staging { path, published: false, _lock: lock })
    }

    fn publish(mut self, disk: &dyn Disk, state: &Path) -> Result<(), EngineError> {
        let parent = match state.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::rename(&self.path, state).map_err(|source| io("rename", &self.path, source))?;
        self.published = true;
        disk.sync_dir(parent).map_err(|source| io("sync", parent, source))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.published {
            // The failure that led here is what is reported; what stays is cleared away by the next import.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
