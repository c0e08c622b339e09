//! Power cuts below LMDB, the log and the file sinks: the real executable (and LMDB alone) writes to a recording file
//! system (`recorder.rs`); from the record, what a cut at any moment could leave is built (`medium.rs`), and everything
//! must go on from that without human hands.
//!
//! `FOREBAY_CUTS=20000 tests/run power_cuts` for many. The file system is a FUSE one: it takes `/dev/fuse` and a user
//! who may mount (root); CI must have both.

mod checkpoints;
mod medium;
mod pipelines;
mod recorder;

use std::path::{Path, PathBuf};

use crate::support::Random;
use recorder::{Op, Recorder, SyncFailure};

/// A recording file system; `None`, said aloud, where this user may not mount one.
fn recorder(root: PathBuf, failure: Option<SyncFailure>) -> Option<Recorder> {
    match Recorder::mount(root, failure) {
        Ok(recorder) => Some(recorder),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a FUSE file system, as root: {error}");
            println!("skipped: this user may not mount a FUSE file system ({error})");
            None
        }
    }
}

/// Where images are built: in memory if there is such a place, since nothing is shown by syncing them.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    dir.expect("a scratch directory")
}

/// Moments to cut at, ascending: half just before a sync, when the most is at stake.
fn cuts(ops: &[Op], count: u64, random: &mut Random) -> Vec<usize> {
    let syncs: Vec<usize> = (0..ops.len()).filter(|at| matches!(ops[*at], Op::Sync { .. })).collect();
    let mut cuts: Vec<usize> = (0..count)
        .map(|number| match number % 2 {
            0 => syncs[random.below(syncs.len() as u64) as usize],
            _ => random.below(ops.len() as u64 + 1) as usize,
        })
        .collect();
    cuts.sort_unstable();
    cuts
}
