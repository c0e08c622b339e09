//! What a pipeline's state stands on: a disk, clocks, a checkpoint store, chance. The machine in production; all of them
//! from a seed in a simulation, which runs the same engine over them.

use std::path::Path;
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};

use super::EngineError;
use crate::checkpoint::{CheckpointStore, Checkpoints, OpenMode};
use crate::disk::{Clock, Disk, RealDisk, SystemClock};
use crate::event::Epoch;

/// See the module.
pub trait Host {
    /// Holds the log and the outputs.
    fn disk(&self) -> Arc<dyn Disk>;

    /// Stamps arrivals.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Opens the checkpoints in this directory.
    ///
    /// # Errors
    /// They are not there (and not to be created), corrupt, or cannot be read.
    fn checkpoints(&self, dir: &Path, mode: OpenMode) -> Result<Arc<dyn Checkpoints>, EngineError>;

    /// A new epoch.
    ///
    /// # Errors
    /// The system gives no random bytes.
    fn epoch(&self) -> Result<Epoch, EngineError>;
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Host for Machine {
    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(RealDisk)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    fn checkpoints(&self, dir: &Path, mode: OpenMode) -> Result<Arc<dyn Checkpoints>, EngineError> {
        Ok(Arc::new(CheckpointStore::open(dir, mode)?))
    }

    fn epoch(&self) -> Result<Epoch, EngineError> {
        let mut epoch = Epoch::default();
        getrandom(&mut epoch.0, GetRandomFlags::empty()).map_err(|errno| EngineError::Io {
            action: "get random bytes for an epoch".into(),
            source: errno.into(),
        })?;
        Ok(epoch)
    }
}
