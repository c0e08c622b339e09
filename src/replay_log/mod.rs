//! The replay log: one total order of all sources' records, durable before anything else sees them.
//!
//! One writer appends runs; each group commit is one frame and one sync, and comes back as the [`Frame`] that the
//! pipeline works on. After a restart a [`LogReader`] gives the same frames again, so live processing and replay are
//! the same code. An outbox is a log of encoded rows, by the same code.
//!
//! - [`format`]: the bytes, and their specification
//! - `segment`: a segment's file
//! - `retention`: the ring of files
//! - `writer`, `reader`, `recovery`, `repair`
//! - `reference`: payloads that the log refers to instead of holding them
//! - `inspect`: what `log stat` and `log verify` gather
//!
//! It does not know what records mean (but `inspect` sums up what gap records say), when to commit or when a checkpoint
//! allows a trim.
//!
//! [`Frame`]: crate::event::Frame

pub mod format;

mod begin;
mod error;
mod inspect;
mod lock;
mod reader;
mod recovery;
mod reference;
mod repair;
mod retention;
mod segment;
mod writer;

use std::path::{Path, PathBuf};

pub use begin::begin_behind;
pub use error::LogError;
pub use format::Compression;
pub use inspect::{FileSummary, KindSummary, SegmentSummary, Summary, check_references, summarize};
pub use lock::StateLock;
pub use reader::{LogReader, lsn_before_time};
pub use recovery::{Recovered, Torn, open};
pub use repair::{Fault, NEW_DIRECTORY, Rebuild, RepairPlan, examine, install, rebuild};
pub use writer::{Identity, LogOptions, LogStats, LogWriter, SpaceWait, Wait};

use crate::disk::Disk;
use crate::event::SourceId;

/// Where the log of a state stands.
pub fn log_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("log")
}

/// The numbers of the configured sources: names that the log knows keep theirs, new ones get the next, and names that
/// are no longer configured stay, for the records that bear them.
///
/// # Errors
/// There are more than 65,535 names.
pub fn merge_sources(known: &[(SourceId, String)], configured: &[String]) -> Result<Vec<(SourceId, String)>, LogError> {
    let mut table = known.to_vec();
    for name in configured {
        if !table.iter().any(|(_, known)| known == name) {
            let next = table.iter().map(|(id, _)| u32::from(id.0) + 1).max().unwrap_or(0);
            let id = u16::try_from(next).ok().map(SourceId).filter(|id| *id != SourceId::PIPELINE);
            let id = id.ok_or_else(|| LogError::Options("the log has seen too many source names".to_owned()))?;
            table.push((id, name.clone()));
        }
    }
    Ok(table)
}

/// What the log in `dir` belongs to, by its newest segment; `None` where there is no log.
///
/// # Errors
/// It cannot be read.
pub fn identity(disk: &dyn Disk, dir: &Path) -> Result<Option<Identity>, LogError> {
    let found = match reader::newest_segment(disk, dir) {
        Ok(segment) => segment.header,
        Err(LogError::NoLog { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(Identity { pipeline: found.pipeline, epoch: found.epoch, sources: found.sources }))
}

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod tests;
