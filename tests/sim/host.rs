//! What stands in for the machine: the simulated disk, a clock set by hand, a model of the checkpoint store, and a
//! checkpoint worker that works when its seed says so.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::checkpoint::{
    CheckpointError, CheckpointMeta, CheckpointView, CheckpointWorker, Checkpoints, CommitStats, Finished, Job, Layer,
    OpenMode, perform,
};
use forebay::disk::sim::{Random, SimDisk};
use forebay::disk::{Clock, Disk, ManualClock};
use forebay::engine::EngineError;
use forebay::engine::commit::Shared;
use forebay::engine::host::Host;
use forebay::event::Epoch;
use forebay::state::{Change, Frozen, StateError, StateReader, StoredPair, key_group};

use crate::broken::{Broken, BrokenDisk};

/// A checkpoint.
#[derive(Clone, Default)]
pub struct Image {
    pub meta: Option<CheckpointMeta>,
    /// By operator, namespace and key.
    entries: BTreeMap<(u32, i64, Vec<u8>), Vec<u8>>,
}

/// Checkpoints that are durable whole or not at all, as LMDB's are.
#[derive(Clone)]
pub struct ModelStore {
    disk: SimDisk,
    durable: Arc<Mutex<Arc<Image>>>,
    /// Commits tried so far, in all lives.
    tried: Arc<AtomicU64>,
    /// Those that find no space.
    full: Range<u64>,
    broken: Broken,
}

impl ModelStore {
    fn image(&self) -> Arc<Image> {
        Arc::clone(&self.durable.lock().expect("not poisoned"))
    }

    fn replace(&self, image: Image) -> Result<(), CheckpointError> {
        let made = self.disk.atomically(|| *self.durable.lock().expect("not poisoned") = Arc::new(image));
        made.map_err(|source| CheckpointError::Io { action: "commit to", path: "model".into(), source })
    }

    /// Changes the durable description behind the engine's back.
    pub fn tamper(&self, change: impl FnOnce(&mut CheckpointMeta)) {
        let mut image = (*self.image()).clone();
        if let Some(meta) = &mut image.meta {
            change(meta);
        }
        *self.durable.lock().expect("not poisoned") = Arc::new(image);
    }
}

impl Checkpoints for ModelStore {
    fn commit(&self, meta: &CheckpointMeta, layers: &[Layer]) -> Result<CommitStats, CheckpointError> {
        if self.full.contains(&self.tried.fetch_add(1, Ordering::Relaxed)) {
            return Err(CheckpointError::NoSpace { dir: "model".into(), free_bytes: 0 });
        }
        let mut image = (*self.image()).clone();
        let mut meta = meta.clone();
        for (id, layer) in layers {
            let operator = meta.operators.iter_mut().find(|operator| operator.id == *id).expect("each layer is named");
            operator.namespaces.clone_from(layer.namespaces());
            layer.for_each(&mut |change| {
                match change {
                    Change::DeleteNamespace { namespace } => {
                        image.entries.retain(|(operator, of, _), _| operator != id || *of != namespace);
                    }
                    Change::Delete { namespace, key } => {
                        image.entries.remove(&(*id, namespace, key.to_vec()));
                    }
                    Change::Put { namespace, key, value } => {
                        image.entries.insert((*id, namespace, key.to_vec()), value.to_vec());
                    }
                }
                ControlFlow::Continue(())
            })?;
        }
        if self.broken == Broken::PositionOutsideTransaction {
            let sources = meta.sources.clone();
            meta.sources = image.meta.map(|meta| meta.sources).unwrap_or_default();
            image.meta = Some(meta.clone());
            self.replace(image.clone())?;
            meta.sources = sources;
        }
        image.meta = Some(meta);
        self.replace(image)?;
        Ok(CommitStats::default())
    }

    fn view(&self) -> Result<Arc<dyn CheckpointView>, CheckpointError> {
        Ok(Arc::new(View { store: self.clone(), shown: Mutex::new(self.image()) }))
    }
}

struct View {
    store: ModelStore,
    shown: Mutex<Arc<Image>>,
}

impl CheckpointView for View {
    fn renew(&self) -> Result<(), CheckpointError> {
        *self.shown.lock().expect("not poisoned") = self.store.image();
        Ok(())
    }

    fn meta(&self) -> Result<Option<CheckpointMeta>, CheckpointError> {
        Ok(self.shown.lock().expect("not poisoned").meta.clone())
    }
}

impl StateReader for View {
    fn get(&self, operator: u32, namespace: i64, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        let shown = self.shown.lock().expect("not poisoned");
        Ok(shown.entries.get(&(operator, namespace, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        operator: u32,
        namespace: i64,
        group: u8,
        after: Option<&[u8]>,
        limit: usize,
        out: &mut Vec<StoredPair>,
    ) -> Result<(), StateError> {
        let shown = self.shown.lock().expect("not poisoned");
        let from = (operator, namespace, after.unwrap_or_default().to_vec());
        let entries = shown.entries.range(from..).take_while(|((o, n, _), _)| *o == operator && *n == namespace);
        let wanted = entries
            .filter(|((_, _, key), _)| key_group(key) == group && after.is_none_or(|after| key.as_slice() > after));
        out.extend(wanted.take(limit.max(1)).map(|((_, _, key), value)| (key.clone(), value.clone())));
        Ok(())
    }
}

/// See the module.
pub struct SimHost {
    pub disk: SimDisk,
    pub store: ModelStore,
    pub clock: Arc<ManualClock>,
    pub starting: Arc<AtomicBool>,
    epochs: AtomicU8,
    broken: Broken,
}

impl SimHost {
    /// `full`: the tries of commits that find no space.
    pub fn new(seed: u64, wall_us: i64, full: Range<u64>, broken: Broken) -> SimHost {
        let disk = SimDisk::new(seed);
        SimHost {
            store: ModelStore { disk: disk.clone(), durable: Arc::default(), tried: Arc::default(), full, broken },
            disk,
            clock: Arc::new(ManualClock::new(wall_us)),
            starting: Arc::default(),
            epochs: AtomicU8::new(7),
            broken,
        }
    }
}

impl Host for SimHost {
    fn disk(&self) -> Arc<dyn Disk> {
        if self.broken == Broken::Nothing {
            return Arc::new(self.disk.clone());
        }
        let (disk, starting) = (self.disk.clone(), Arc::clone(&self.starting));
        Arc::new(BrokenDisk { disk, broken: self.broken, starting })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    fn checkpoints(&self, _: &Path, _: OpenMode) -> Result<Arc<dyn Checkpoints>, EngineError> {
        Ok(Arc::new(self.store.clone()))
    }

    fn epoch(&self) -> Result<Epoch, EngineError> {
        Ok(Epoch([self.epochs.fetch_add(1, Ordering::Relaxed); 16]))
    }
}

/// Does a job in one of the rounds after it was given, while the engine has gone on.
pub struct SimWorker {
    pub store: ModelStore,
    pub shared: Arc<Shared>,
    pub random: Random,
    pub job: Option<Job>,
    /// The job's sinks are synced, and it waits for space.
    pub waits: bool,
}

impl SimWorker {
    /// `None`: there is no space; the job is kept.
    fn perform(&mut self, job: Job) -> Option<Finished> {
        Some(match self.store.broken {
            Broken::CheckpointBeforeSinkFlush => {
                let Job { meta, layers, syncs } = job;
                let committed = self.store.commit(&meta, &layers);
                let result = committed.and_then(|stats| {
                    for sync in syncs {
                        (sync.sync)().map_err(|source| CheckpointError::SinkSync { sink: sync.sink, source })?;
                    }
                    Ok(stats)
                });
                Finished { id: meta.id, cut: meta.cut, result }
            }
            // It found no space, say, and nobody remembers.
            Broken::ForgottenDirtyKeys if self.random.one_in(2) => {
                perform(job, |_, _| Ok::<_, CheckpointError>(CommitStats::default()))
            }
            _ => {
                let (meta, layers) = (job.meta.clone(), job.layers.clone());
                let finished = perform(job, |meta, layers| self.store.commit(meta, layers));
                self.waits = matches!(finished.result, Err(CheckpointError::NoSpace { .. }));
                if self.waits {
                    self.job = Some(Job { meta, layers, syncs: Vec::new() });
                    return None;
                }
                finished
            }
        })
    }
}

impl CheckpointWorker for SimWorker {
    fn submit(&mut self, job: Job) -> Result<(), CheckpointError> {
        assert!(self.job.is_none(), "one at a time");
        if self.store.broken == Broken::TrimBeforeCheckpoint {
            self.shared.trim_below(job.meta.cut.plus(1));
        }
        self.job = Some(job);
        Ok(())
    }

    fn poll(&mut self) -> Option<Finished> {
        if self.job.is_some() && self.random.one_in(3) { self.wait_for(Duration::ZERO) } else { None }
    }

    fn wait_for(&mut self, _: Duration) -> Option<Finished> {
        let job = self.job.take()?;
        self.perform(job)
    }

    fn waits_for_space(&self) -> bool {
        self.waits
    }

    fn discard(&self, _: Vec<Arc<dyn Frozen>>) {}
}
