//! `log repair`: cuts a log where it is damaged, and gives the state a new epoch.
//!
//! The log's half is `replay_log/repair.rs`. The checkpoint with the new epoch decides: before its commit the old log
//! holds, after it the new one, and [`finish`] changes their places, here or at the next start. What the repair has
//! taken out of the log goes to `repaired-N/log` in the state directory, where N is that checkpoint's number; the log
//! commands can read it there.
//!
//! Sinks are not touched: one that is ahead of what the repaired log gives is refused at the next start, as ever.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::warn;

use super::EngineError;
use super::host::Host;
use super::open;
use crate::checkpoint::{self, CheckpointError, CheckpointMeta, CheckpointView, Layer, OpenMode};
use crate::config;
use crate::disk::Disk;
use crate::event::{Epoch, Gap, RecordKind, Run, SourceId};
use crate::replay_log::{self, LogOptions, NEW_DIRECTORY, Rebuild, RepairPlan, StateLock, log_dir};
use crate::state::{Checkpointed, KeyedState, StateReader};

/// What a repair found, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repaired {
    /// A start would find no damage.
    Nothing,
    /// An earlier repair that a crash had interrupted was carried to its end.
    Finished {
        aside: PathBuf,
    },
    /// Nothing was changed; this is what would be.
    Planned(RepairPlan),
    Done {
        plan: RepairPlan,
        aside: PathBuf,
        epoch: Epoch,
    },
}

/// Repairs the log of a state, or only says what that would do.
///
/// # Errors
/// The state is in use, is none, its checkpoint cannot be read, or the disk failed: the log is as it was, or (after the
/// commit) the next start or repair goes on.
pub fn repair(host: &dyn Host, state: &Path, go: bool) -> Result<Repaired, EngineError> {
    let disk = host.disk();
    let _lock = StateLock::acquire(disk.as_ref(), state)?;
    let checkpoint_dir = state.join(checkpoint::DIRECTORY);
    let checkpoints = host.checkpoints(&checkpoint_dir, OpenMode::Existing)?;
    let view = checkpoints.view()?;
    let meta = view.meta()?.ok_or(CheckpointError::Missing { dir: checkpoint_dir })?;
    if let Some(aside) = finish(disk.as_ref(), state, &meta)? {
        return Ok(Repaired::Finished { aside });
    }
    let dir = log_dir(state);
    let found = replay_log::examine(disk.as_ref(), &dir, &meta.pipeline, meta.epoch, meta.cut)?;
    let plan = match found {
        None => return Ok(Repaired::Nothing),
        Some(plan) if !go => return Ok(Repaired::Planned(plan)),
        Some(plan) => plan,
    };
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let repaired = CheckpointMeta {
        id: meta.id + 1,
        epoch: host.epoch()?,
        wall_time_us: i64::try_from(wall.as_micros()).unwrap_or(i64::MAX),
        ..meta.clone()
    };
    // The pipeline's own options, so that the next start finds segments of its size.
    let options = match config::parse("the configuration kept in the checkpoint", &meta.config) {
        Ok(config) => open::log_options(&config),
        Err(_) => LogOptions::default(),
    };
    let how = Rebuild {
        pipeline: &meta.pipeline,
        epochs: (meta.epoch, repaired.epoch),
        options,
        cut_time: meta.cut_time,
        gap: gap(&plan, &meta),
    };
    replay_log::rebuild(&disk, &dir, &state.join(NEW_DIRECTORY), &plan, how)?;
    disk.sync_dir(state).map_err(|source| EngineError::Io { action: format!("sync {}", state.display()), source })?;
    checkpoints.commit(&repaired, &unchanged(&repaired, &view)?)?;
    finish(disk.as_ref(), state, &repaired)?;
    Ok(Repaired::Done { plan, aside: aside(state, &repaired), epoch: repaired.epoch })
}

/// Carries a repair whose checkpoint is committed to its end. Gives where the old log is now, if there was one.
///
/// # Errors
/// The disk failed; doing it again goes on.
pub fn finish(disk: &dyn Disk, state: &Path, meta: &CheckpointMeta) -> Result<Option<PathBuf>, EngineError> {
    let aside = aside(state, meta);
    if !replay_log::install(disk, &log_dir(state), &state.join(NEW_DIRECTORY), &log_dir(&aside), meta.epoch)? {
        return Ok(None);
    }
    warn!(epoch = %meta.epoch, aside = %aside.display(), "the repaired log is in place; the old one is aside");
    Ok(Some(aside))
}

/// Where the old log goes.
fn aside(state: &Path, meta: &CheckpointMeta) -> PathBuf {
    state.join(format!("repaired-{}", meta.id))
}

/// The layers of a checkpoint that changes no state.
fn unchanged(meta: &CheckpointMeta, view: &Arc<dyn CheckpointView>) -> Result<Vec<Layer>, EngineError> {
    let reader = Arc::clone(view) as Arc<dyn StateReader>;
    let layer = |operator: &checkpoint::OperatorMeta| {
        let namespaces = operator.namespaces.iter().copied();
        let mut state: KeyedState<()> = KeyedState::new(operator.id, Arc::clone(&reader), namespaces);
        Ok((operator.id, state.freeze()?))
    };
    meta.operators.iter().map(layer).collect()
}

/// The record that says what was cut.
fn gap(plan: &RepairPlan, meta: &CheckpointMeta) -> Run {
    let lost = plan.lost_records();
    let what = match plan.faults.first() {
        Some(fault) => {
            let file = fault.file.file_name().unwrap_or_default().to_string_lossy();
            format!("{file}, byte {}: {}", fault.offset, fault.what)
        }
        None => String::new(),
    };
    let cut = match lost {
        0 => "no whole record".to_owned(),
        _ => format!("LSN {} to {}", plan.next, plan.known_last),
    };
    let reason = format!("`log repair` has cut {cut} ({what}); epoch before: {}", meta.epoch);
    let gap = Gap { reason, messages: (lost > 0).then_some(lost), bytes: None };
    let payload = postcard::to_stdvec(&gap).unwrap_or_default();
    // The log gives it the time of the record before.
    Run::one(SourceId::PIPELINE, RecordKind::Gap, meta.cut_time, &payload)
}
