//! Frames prepared ahead of the engine, on other threads.
//!
//! The engine pushes frames in LSN order and pops them, prepared, in the same order. What no thread has begun when its turn
//! comes the engine prepares itself: so there is never a wait for a thread that sleeps, a machine of one core needs none, and
//! a single frame that nothing follows takes no way round. How many threads there are changes no result: what they
//! do is a function of the frame ([`Preparer`]).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::EngineError;
use super::batch::{Prepared, Preparer};
use crate::event::{Frame, Lsn};

const THREADS_MAX: usize = 3;

/// Threads of a machine like this one: a core stays for the engine.
pub fn threads_for_this_machine() -> usize {
    std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1).min(THREADS_MAX)
}

/// See the module. Ends its threads when dropped.
pub struct Ahead {
    /// What the engine has pushed and not popped.
    frames: VecDeque<Arc<Job>>,
    /// LSN of the last record pushed.
    pushed: Lsn,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Job {
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    /// The frame, and behind which LSN it is wanted.
    Waiting(Frame, Lsn),
    Running,
    Done(Frame, Prepared),
    /// The thread that had begun it is gone.
    Lost,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<Job>>,
    closed: bool,
}

impl Ahead {
    /// Starts so many threads.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(threads: usize, preparer: &Preparer) -> Result<Ahead, EngineError> {
        let shared = Arc::new(Shared::default());
        let mut ahead =
            Ahead { frames: VecDeque::new(), pushed: Lsn::ZERO, shared: Arc::clone(&shared), threads: Vec::new() };
        for _ in 0..threads {
            let (shared, mut preparer) = (Arc::clone(&shared), preparer.another());
            let thread = std::thread::Builder::new().name("decode".to_owned());
            let thread = thread
                .spawn(move || {
                    while let Some(job) = shared.next() {
                        job.run(&mut preparer);
                    }
                })
                .map_err(|source| EngineError::Io { action: "start a decode thread".to_owned(), source })?;
            ahead.threads.push(thread);
        }
        Ok(ahead)
    }

    /// Whether nothing was pushed that is not popped.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether another frame would be of use before one is popped: each thread has one, and one waits.
    pub fn has_room(&self) -> bool {
        !self.threads.is_empty() && self.frames.len() <= self.threads.len()
    }

    /// LSN of the last record that was pushed and not popped.
    pub fn last_lsn(&self) -> Option<Lsn> {
        (!self.frames.is_empty()).then_some(self.pushed)
    }

    /// Appends a frame, of which the records behind `after` are wanted.
    pub fn push(&mut self, frame: Frame, after: Lsn) {
        self.pushed = frame.last_lsn();
        let job = Arc::new(Job { state: Mutex::new(State::Waiting(frame, after)), changed: Condvar::new() });
        // The first one is the engine's own next: nobody is woken for it.
        let is_next = self.frames.is_empty();
        self.frames.push_back(Arc::clone(&job));
        if !self.threads.is_empty() && !is_next {
            lock(&self.shared.queue).jobs.push_back(job);
            self.shared.filled.notify_one();
        }
    }

    /// The oldest frame, prepared: by a thread, or by this `preparer`. `None`: nothing was pushed.
    ///
    /// # Errors
    /// A thread has ended by a panic.
    pub fn pop(&mut self, preparer: &mut Preparer) -> Option<Result<(Frame, Prepared), EngineError>> {
        let job = self.frames.pop_front()?;
        job.run(preparer);
        let mut state = lock(&job.state);
        while matches!(*state, State::Running) {
            state = job.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Some(match std::mem::replace(&mut *state, State::Lost) {
            State::Done(frame, prepared) => Ok((frame, prepared)),
            _ => Err(EngineError::Panic { thread: "a decode thread" }),
        })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.filled.notify_all();
        for thread in self.threads.drain(..) {
            // Its panic was told by the frame that it had begun.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The next job; `None`: no more will come.
    fn next(&self) -> Option<Arc<Job>> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Job {
    /// Prepares the frame, unless somebody has begun it.
    fn run(&self, preparer: &mut Preparer) {
        let mut state = lock(&self.state);
        let State::Waiting(..) = *state else { return };
        let State::Waiting(frame, after) = std::mem::replace(&mut *state, State::Running) else { return };
        drop(state);
        // Also after a panic, or the engine would wait for ever.
        let mut done = SetOnDrop { job: self, state: State::Lost };
        let prepared = preparer.prepare(&frame, after);
        done.state = State::Done(frame, prepared);
    }
}

struct SetOnDrop<'j> {
    job: &'j Job,
    state: State,
}

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        *lock(&self.job.state) = std::mem::replace(&mut self.state, State::Lost);
        self.job.changed.notify_all();
    }
}

/// Every change is made of moves that do not panic, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
