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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::engine::batch::{Cutting, Wanted, What};
    use crate::event::{LogTime, RecordKind, Run, SourceId};

    /// Prepares batches of three messages of one source with a column `n`.
    fn preparer() -> Preparer {
        let text = "[pipeline]\nname = \"p\"\nstate = \"s\"\n\
                    [source.a]\ntype = \"stdin\"\ncolumns = { n = \"BIGINT\" }\n\
                    [sink.o]\ntype = \"stdout\"\nfrom = \"a\"\n";
        let source = config::parse("f.toml", text).expect("valid").sources.remove(0);
        let cutting = Cutting { by_id: [(SourceId(0), 0)].into(), batch_rows: 3, one_time: false };
        Preparer::new(cutting, [Wanted { source, columns: vec![true; 4] }].into())
    }

    /// A frame of one connect record and so many messages.
    fn frame(first: u64, messages: u64) -> Frame {
        let mut data = Run::new(SourceId(0), RecordKind::Data, LogTime(1));
        (1..=messages).for_each(|message| data.push(format!("{{\"n\":{}}}", first + message).as_bytes()));
        let connect = Run::one(SourceId(0), RecordKind::Connect, LogTime(1), &[]);
        Frame { first_lsn: Lsn(first), runs: vec![connect, data] }
    }

    /// What was prepared, as text.
    fn told(frame: &Frame, prepared: &Prepared) -> String {
        let steps = prepared.steps.iter().map(|step| match &step.what {
            What::Control { lsn, .. } => format!("{lsn}: control"),
            What::Batch(taken) => {
                let of = |taken: &crate::engine::batch::Taken| {
                    let first = taken.data.first().map_or(Lsn::ZERO, |part| part.first_lsn);
                    format!("{first}: {:?}", taken.decoded.as_ref().map(|decoded| &decoded.columns))
                };
                taken.iter().map(of).collect::<String>()
            }
        });
        format!("{}: {}", frame.first_lsn, steps.collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn any_number_of_threads_gives_the_same_in_the_same_order() {
        let frames: Vec<Frame> = (0..200).map(|at| frame(1 + at * 10, 9)).collect();
        let mut own = preparer();
        let expected: Vec<String> =
            frames.iter().map(|frame| told(frame, &own.prepare(frame, Lsn(frame.first_lsn.0 - 1)))).collect();
        assert!(expected[0].starts_with("1: 1: control; 2: Some") && expected[0].matches("Some").count() == 3);
        for threads in [0, 1, 4] {
            let mut ahead = Ahead::start(threads, &own).expect("threads");
            let mut found = Vec::new();
            for frame in &frames {
                let after = ahead.last_lsn().unwrap_or(Lsn(frame.first_lsn.0 - 1));
                assert_eq!(after.plus(1), frame.first_lsn);
                ahead.push(frame.clone(), after);
                while !ahead.has_room() && !ahead.is_empty() {
                    let (frame, prepared) = ahead.pop(&mut own).expect("a frame").expect("prepared");
                    found.push(told(&frame, &prepared));
                }
            }
            while let Some(popped) = ahead.pop(&mut own) {
                let (frame, prepared) = popped.expect("prepared");
                found.push(told(&frame, &prepared));
            }
            assert!(found == expected, "{threads} threads");
        }
    }

    #[test]
    fn only_what_is_behind_the_place_is_prepared() {
        let frame = frame(1, 9);
        let prepared = preparer().prepare(&frame, Lsn(8));
        assert_eq!(told(&frame, &prepared).matches("Some").count(), 1);
        let What::Batch(taken) = &prepared.steps[0].what else { panic!("no batch") };
        assert_eq!(taken[0].data[0].first_lsn, Lsn(9));
        assert_eq!(taken[0].data[0].messages(&frame).iter().next(), Some(&b"{\"n\":9}"[..]));
    }

    #[test]
    fn a_frame_whose_thread_is_gone_is_an_error() {
        let mut ahead = Ahead::start(0, &preparer()).expect("threads");
        ahead.push(frame(1, 1), Lsn::ZERO);
        let job = Arc::clone(&ahead.frames[0]);
        let thread = std::thread::spawn(move || {
            *lock(&job.state) = State::Running;
            let _done = SetOnDrop { job: &job, state: State::Lost };
            panic!("a bug");
        });
        assert!(thread.join().is_err());
        let popped = ahead.pop(&mut preparer()).expect("a frame");
        assert!(matches!(popped, Err(EngineError::Panic { .. })));
    }
}
