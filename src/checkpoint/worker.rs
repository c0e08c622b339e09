//! The checkpoint thread: makes sinks durable, then commits, and tells the engine.
//!
//! One job at a time. A commit that fails for want of space is tried again, in a fresh transaction, until there is
//! space or the worker is dropped; every other failure ends the job. A failed sync of a sink is never tried again.

use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::warn;

use super::lmdb::CommitStats;
use super::meta::CheckpointMeta;
use super::{CheckpointError, Checkpoints, DIRECTORY, Layer};
use crate::event::Lsn;
use crate::state::Frozen;

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// While space is wanting, one warning per this time.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Makes all rows that a sink took so far durable.
pub struct SinkSync {
    /// Name of the sink, for messages.
    pub sink: String,
    pub sync: Box<dyn FnOnce() -> Result<(), Box<dyn StdError + Send + Sync>> + Send>,
}

/// A checkpoint to be made.
pub struct Job {
    pub meta: CheckpointMeta,
    /// One layer for each operator of `meta`.
    pub layers: Vec<Layer>,
    /// Run first, in this order.
    pub syncs: Vec<SinkSync>,
}

/// What a commit found on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// No space: whoever can spare some should give it.
    Wanting,
    /// Enough.
    Found,
}

/// How a job ended. The worker holds none of its layers any more.
#[derive(Debug)]
pub struct Finished {
    pub id: u64,
    pub cut: Lsn,
    pub result: Result<CommitStats, CheckpointError>,
}

/// Does a job: makes the sinks durable, then commits.
pub fn perform(
    job: Job,
    commit: impl FnOnce(&CheckpointMeta, &[Layer]) -> Result<CommitStats, CheckpointError>,
) -> Finished {
    let Job { meta, layers, syncs } = job;
    let result = sync_sinks(syncs).and_then(|()| commit(&meta, &layers));
    // The engine takes the layers back if the commit failed: alone, or it would have to copy them.
    drop(layers);
    Finished { id: meta.id, cut: meta.cut, result }
}

/// Makes checkpoints for the engine, one at a time, while it goes on.
pub trait CheckpointWorker: Send {
    /// Hands over a job.
    ///
    /// # Errors
    /// A job is in flight already, or the worker is dead.
    fn submit(&mut self, job: Job) -> Result<(), CheckpointError>;

    /// How the job under way ended, once it has.
    fn poll(&mut self) -> Option<Finished>;

    /// Waits for the job under way, at most for so long; `None` when there is none or the time is over.
    fn wait_for(&mut self, timeout: Duration) -> Option<Finished>;

    /// Whether the job under way waits for space on the disk.
    fn waits_for_space(&self) -> bool {
        false
    }

    /// Drops layers that nobody needs.
    fn discard(&self, layers: Vec<Arc<dyn Frozen>>);
}

enum Message {
    Job(Box<Job>),
    Discard(Vec<Arc<dyn Frozen>>),
}

/// The engine's handle on the checkpoint thread. Dropping it waits for the thread, which finishes what it is at, but
/// waits no longer for space.
pub struct CheckpointThread {
    /// `None` only while the worker is dropped.
    messages: Option<Sender<Message>>,
    finished: Receiver<Finished>,
    /// Id and cut of the job under way.
    in_flight: Option<(u64, Lsn)>,
    waiting: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointThread {
    /// Starts the thread. `wake` is called whenever [`CheckpointWorker::poll`] has something to give, `space` after every
    /// attempt to commit that has succeeded or failed for want of space.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        store: Arc<dyn Checkpoints>,
        wake: impl Fn() + Send + 'static,
        space: impl Fn(Space) + Send + 'static,
    ) -> Result<CheckpointThread, CheckpointError> {
        let (messages, inbox) = channel();
        let (outbox, finished) = channel();
        let waiting = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&waiting);
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || run(store.as_ref(), &inbox, Outbox { finished: Some(outbox), wake }, &shared, &space))
            .map_err(|source| CheckpointError::Io { action: "start the thread of", path: DIRECTORY.into(), source })?;
        Ok(CheckpointThread { messages: Some(messages), finished, in_flight: None, waiting, thread: Some(thread) })
    }

    fn finish(&mut self, (id, cut): (u64, Lsn), finished: Option<Finished>) -> Option<Finished> {
        self.in_flight = None;
        Some(finished.unwrap_or(Finished { id, cut, result: Err(CheckpointError::ThreadDied) }))
    }
}

impl CheckpointWorker for CheckpointThread {
    fn submit(&mut self, job: Job) -> Result<(), CheckpointError> {
        if let Some((id, _)) = self.in_flight {
            return Err(CheckpointError::Misuse { what: format!("checkpoint {id} is still being made") });
        }
        let job_is = (job.meta.id, job.meta.cut);
        let sent = self.messages.as_ref().is_some_and(|messages| messages.send(Message::Job(Box::new(job))).is_ok());
        if !sent {
            return Err(CheckpointError::ThreadDied);
        }
        self.in_flight = Some(job_is);
        Ok(())
    }

    fn poll(&mut self) -> Option<Finished> {
        let in_flight = self.in_flight?;
        match self.finished.try_recv() {
            Err(TryRecvError::Empty) => None,
            Ok(finished) => self.finish(in_flight, Some(finished)),
            Err(TryRecvError::Disconnected) => self.finish(in_flight, None),
        }
    }

    fn wait_for(&mut self, timeout: Duration) -> Option<Finished> {
        let in_flight = self.in_flight?;
        match self.finished.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout) => None,
            Ok(finished) => self.finish(in_flight, Some(finished)),
            Err(RecvTimeoutError::Disconnected) => self.finish(in_flight, None),
        }
    }

    fn waits_for_space(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    fn discard(&self, layers: Vec<Arc<dyn Frozen>>) {
        if let Some(messages) = &self.messages {
            // A thread that is dead drops nothing, but then sending has dropped them here.
            let _ = messages.send(Message::Discard(layers));
        }
    }
}

impl Drop for CheckpointThread {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened, and by `poll`.
            let _ = thread.join();
        }
    }
}

/// Where results go; wakes the engine also when the thread ends by a panic.
struct Outbox<W: Fn()> {
    finished: Option<Sender<Finished>>,
    wake: W,
}

impl<W: Fn()> Drop for Outbox<W> {
    fn drop(&mut self) {
        self.finished = None;
        (self.wake)();
    }
}

fn run<W: Fn()>(
    store: &dyn Checkpoints,
    inbox: &Receiver<Message>,
    outbox: Outbox<W>,
    waiting: &AtomicBool,
    space: &dyn Fn(Space),
) {
    while let Ok(message) = inbox.recv() {
        let job = match message {
            Message::Job(job) => *job,
            Message::Discard(layers) => {
                drop(layers);
                continue;
            }
        };
        let finished = perform(job, |meta, layers| {
            commit_when_there_is_space(inbox, waiting, space, meta.id, || store.commit(meta, layers))
        });
        let sent = outbox.finished.as_ref().is_some_and(|outbox| outbox.send(finished).is_ok());
        if !sent {
            return;
        }
        (outbox.wake)();
    }
}

fn sync_sinks(syncs: Vec<SinkSync>) -> Result<(), CheckpointError> {
    syncs
        .into_iter()
        .try_for_each(|SinkSync { sink, sync }| sync().map_err(|source| CheckpointError::SinkSync { sink, source }))
}

fn commit_when_there_is_space(
    inbox: &Receiver<Message>,
    waiting: &AtomicBool,
    space: &dyn Fn(Space),
    id: u64,
    mut commit: impl FnMut() -> Result<CommitStats, CheckpointError>,
) -> Result<CommitStats, CheckpointError> {
    let started = Instant::now();
    let (mut pause, mut failures, mut warned) = (RETRY_FIRST, 0u64, None::<Instant>);
    loop {
        let error = match commit() {
            Err(error @ CheckpointError::NoSpace { .. }) => error,
            other => {
                waiting.store(false, Ordering::Relaxed);
                if other.is_ok() {
                    space(Space::Found);
                }
                return other;
            }
        };
        waiting.store(true, Ordering::Relaxed);
        space(Space::Wanting);
        failures += 1;
        if warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
            warned = Some(Instant::now());
            warn!(checkpoint = id, failures, waiting_s = started.elapsed().as_secs(), "{error}; will try again");
        }
        let until = Instant::now() + pause;
        loop {
            match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                // Only layers to drop can come: the engine has one job in flight.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    waiting.store(false, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    use super::super::lmdb::{CheckpointStore, OpenMode};
    use super::super::meta::OperatorMeta;
    use super::*;
    use crate::state::{Checkpointed, KeyedState};

    fn job(id: u64, state: &mut KeyedState<u64>, syncs: Vec<SinkSync>) -> Job {
        let operators = vec![OperatorMeta { id: 1, name: "q".to_owned(), ..OperatorMeta::default() }];
        let meta = CheckpointMeta { id, cut: Lsn(id), operators, ..CheckpointMeta::default() };
        Job { meta, layers: vec![(1, state.freeze().expect("freezes"))], syncs }
    }

    fn sync(f: impl FnOnce() -> Result<(), Box<dyn StdError + Send + Sync>> + Send + 'static) -> SinkSync {
        SinkSync { sink: "archive".to_owned(), sync: Box::new(f) }
    }

    #[test]
    fn sinks_are_synced_before_the_commit_and_a_failed_sync_prevents_it() {
        let temp = tempfile::tempdir().expect("creates");
        let store = CheckpointStore::open(&temp.path().join("checkpoint"), OpenMode::Create).expect("creates");
        let woken = Arc::new(AtomicUsize::new(0));
        let wakes = Arc::clone(&woken);
        let mut worker = CheckpointThread::start(
            Arc::new(store.clone()),
            move || {
                wakes.fetch_add(1, Ordering::SeqCst);
            },
            |_| {},
        )
        .expect("starts");
        assert!(worker.poll().is_none() && worker.wait_for(Duration::from_secs(60)).is_none());
        let mut state = KeyedState::<u64>::empty(1);
        *state.entry(0, b"k", || 1).expect("reads") = 2;

        let failing = job(1, &mut state, vec![sync(|| Err("EIO".into()))]);
        worker.submit(failing).expect("takes it");
        let second = CheckpointWorker::submit(&mut worker, job(2, &mut KeyedState::empty(1), Vec::new()));
        assert!(matches!(second, Err(CheckpointError::Misuse { .. })));
        let finished = worker.wait_for(Duration::from_secs(60)).expect("ends");
        assert_eq!(finished.id, 1);
        assert!(matches!(finished.result, Err(CheckpointError::SinkSync { .. })), "{finished:?}");
        assert_eq!(store.reader().latest().expect("reads"), None);
        state.failed();
        assert!(state.has_changes());

        let reader = store.reader();
        let before_commit = sync(move || {
            assert_eq!(reader.latest()?, None, "the commit comes after the sync");
            Ok(())
        });
        worker.submit(job(1, &mut state, vec![before_commit])).expect("takes it");
        let finished = worker.wait_for(Duration::from_secs(60)).expect("ends");
        assert_eq!(finished.result.expect("commits").operators[0].keys, 1);
        assert_eq!(store.reader().latest().expect("reads").map(|meta| meta.id), Some(1));
        worker.discard(state.committed().into_iter().collect());
        drop(worker);
        assert_eq!(woken.load(Ordering::SeqCst), 3, "two jobs and the thread's end");
    }

    #[test]
    fn a_thread_that_panics_is_seen() {
        let temp = tempfile::tempdir().expect("creates");
        let store = CheckpointStore::open(&temp.path().join("checkpoint"), OpenMode::Create).expect("creates");
        let (wake, woken) = channel();
        let mut worker = CheckpointThread::start(
            Arc::new(store),
            move || {
                let _ = wake.send(());
            },
            |_| {},
        )
        .expect("starts");
        worker.submit(job(1, &mut KeyedState::empty(1), vec![sync(|| panic!("(a test's panic)"))])).expect("takes it");
        woken.recv_timeout(Duration::from_secs(10)).expect("the engine is woken");
        let finished = worker.poll().expect("ends");
        assert!(matches!(finished.result, Err(CheckpointError::ThreadDied)));
    }

    fn no_space() -> CheckpointError {
        CheckpointError::NoSpace { dir: "d".into(), free_bytes: 0 }
    }

    #[test]
    fn a_commit_waits_for_space() {
        let (_messages, inbox) = channel();
        let waiting = AtomicBool::new(false);
        let told = Mutex::new(Vec::new());
        let space = |space| told.lock().expect("not poisoned").push(space);
        let mut tries = 0;
        let result = commit_when_there_is_space(&inbox, &waiting, &space, 1, || {
            tries += 1;
            assert_eq!(waiting.load(Ordering::Relaxed), tries > 1);
            if tries < 3 { Err(no_space()) } else { Ok(CommitStats::default()) }
        });
        assert!(result.is_ok() && tries == 3 && !waiting.load(Ordering::Relaxed));
        assert_eq!(*told.lock().expect("not poisoned"), [Space::Wanting, Space::Wanting, Space::Found]);
    }

    #[test]
    fn a_stop_does_not_wait_for_space() {
        let (messages, inbox) = channel();
        drop(messages);
        let result = commit_when_there_is_space(&inbox, &AtomicBool::new(false), &|_| {}, 1, || Err(no_space()));
        assert!(matches!(result, Err(CheckpointError::NoSpace { .. })));
    }
}
