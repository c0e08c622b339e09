//! Space that is kept for checkpoints, so that a full disk does not keep the log from being trimmed.
//!
//! A file of zeros in the state directory. A checkpoint that finds no space takes it (together with the log's spares, see
//! `commit`); after one that found some it is made again. Where there is no room for it, it is not there: it is a help,
//! never a condition, and never synced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{debug, info};

use crate::disk::Disk;

/// As much as a checkpoint of a small state writes, many times over.
const RESERVE_BYTES: u64 = 1 << 20;

/// See the module.
pub struct Reserve {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    is_there: AtomicBool,
}

impl Reserve {
    /// The reserve of a state, made where there is room.
    pub fn new(disk: Arc<dyn Disk>, state: &Path) -> Reserve {
        let path = state.join("reserve");
        let is_there = AtomicBool::new(disk.len(&path).is_ok_and(|length| length == RESERVE_BYTES));
        let reserve = Reserve { disk, path, is_there };
        reserve.make();
        reserve
    }

    /// Makes it again, where it is missing and there is room.
    pub fn make(&self) {
        if self.is_there.load(Ordering::Relaxed) {
            return;
        }
        let made = self.disk.create(&self.path).and_then(|file| file.write_zeros(0, RESERVE_BYTES));
        match made {
            Ok(()) => self.is_there.store(true, Ordering::Relaxed),
            Err(error) => {
                debug!(path = %self.path.display(), %error, "no room for the reserve");
                // A part of it would only be in the way.
                let _ = self.disk.remove(&self.path);
            }
        }
    }

    /// Gives its space to whoever waits for some.
    pub fn release(&self) {
        if self.is_there.swap(false, Ordering::Relaxed) && self.disk.remove(&self.path).is_ok() {
            info!(path = %self.path.display(), "the disk is full: the checkpoint takes the space kept for it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;

    #[test]
    fn it_is_made_released_and_made_again() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("reserve");
        let length = || RealDisk.len(&path).ok();
        std::fs::write(&path, b"half of one").unwrap();
        let reserve = Reserve::new(Arc::new(RealDisk), root.path());
        assert_eq!(length(), Some(RESERVE_BYTES));
        reserve.release();
        assert_eq!(length(), None);
        reserve.make();
        assert_eq!(length(), Some(RESERVE_BYTES));
        drop(reserve);
        Reserve::new(Arc::new(RealDisk), root.path()).release();
        assert_eq!(length(), None);
    }
}
