//! The check of the checkpointed state beside `run`: whole at the start where it is small, in the background where it is
//! large.
//!
//! LMDB trusts its pages, so reading a damaged one can end a process by a signal: a child does it, and its death by such a
//! signal is damage. The background check reads [`RATE_BYTES`] per second in slices and goes over the whole once a day,
//! in a child at the lowest priority; it writes nothing. What is found ends the process with exit code 65 at once,
//! without another commit into a damaged file.

use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, nice, set_parent_process_death_signal};
use tracing::{error, info, warn};

use super::Failure;
use crate::checkpoint::lmdb::{self, Verified};
use crate::checkpoint::{CheckpointError, DIRECTORY, VERIFY_AT_START_BYTES};

/// Bytes of state that the background check reads per second: 64 GiB, the largest state, take five hours.
const RATE_BYTES: u64 = 4 << 20;
/// Read between two pauses, at least: so a pause takes two seconds or more.
const SLICE_BYTES: u64 = 2 * RATE_BYTES;
/// From the beginning of one background check to that of the next.
const EVERY: Duration = Duration::from_secs(24 * 3600);
/// How often a state is looked at that was too small for one.
const LOOK: Duration = Duration::from_secs(3600);
/// How often a check under way is looked at.
const CHILD_LOOK: Duration = Duration::from_secs(2);

fn size_bytes(state: &Path) -> u64 {
    std::fs::metadata(state.join(DIRECTORY).join("data.mdb")).map_or(0, |metadata| metadata.len())
}

fn verify(state: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // A group of its own: Ctrl-C is for the engine, which ends the child when it ends.
    command.args(["checkpoint", "verify"]).arg(state).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    Ok(command)
}

/// What the end of a checking child says.
fn judge(state: &Path, status: ExitStatus, stderr: &[u8]) -> Result<(), Failure> {
    const CRASHES: [Signal; 5] = [Signal::SEGV, Signal::BUS, Signal::ABORT, Signal::ILL, Signal::FPE];
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => {
            let text = String::from_utf8_lossy(stderr).trim().to_owned();
            let message = text.strip_prefix("error: ").map_or(text.clone(), str::to_owned);
            Err(Failure { message, code: u8::try_from(code).unwrap_or(70) })
        }
        (None, Some(signal)) if CRASHES.iter().any(|crash| crash.as_raw() == signal) => {
            let message = format!(
                "the checkpoint in {} is corrupt: reading it ended the process that checked it ({status}); move the \
                 state directory away and begin from a savepoint (`forebay checkpoint import FILE CONFIG`), from a copy \
                 of the directory, or anew",
                state.join(DIRECTORY).display(),
            );
            Err(Failure { message, code: 65 })
        }
        _ => Err(Failure { message: format!("the process that checks the checkpoint was ended ({status})"), code: 74 }),
    }
}

fn cannot_start(error: &std::io::Error) -> Failure {
    Failure { message: format!("cannot start the process that checks the checkpoint: {error}"), code: 74 }
}

/// Checks the checkpointed state whole, up to a size.
pub fn verify_at_start(state: &Path) -> Result<(), Failure> {
    let size_bytes = size_bytes(state);
    if size_bytes == 0 {
        return Ok(());
    }
    if size_bytes > VERIFY_AT_START_BYTES {
        info!(size_bytes, "the state is too large to be checked whole at the start; it is checked in the background");
        return Ok(());
    }
    let output = verify(state).and_then(|mut command| command.output()).map_err(|error| cannot_start(&error))?;
    judge(state, output.status, &output.stderr)
}

/// The child's part of the background check: in slices, at the lowest priority.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify_slowly(dir: &Path, rate_bytes: u64) -> Result<Verified, CheckpointError> {
    // Without either it is only less polite.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = nice(19);
    let mut unpaid = 0;
    lmdb::scrub(dir, &mut |bytes| {
        unpaid += bytes;
        if unpaid >= SLICE_BYTES {
            std::thread::sleep(Duration::from_secs_f64(unpaid as f64 / rate_bytes.max(1) as f64));
            unpaid = 0;
        }
    })
}

/// The background check of a running engine's state; ends when dropped.
pub struct Scrub {
    /// `None` only while it is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scrub {
    /// Starts to watch over the state in this directory.
    pub fn start(state: &Path) -> Result<Scrub, Failure> {
        let (stop, stopped) = channel();
        let state: PathBuf = state.to_owned();
        let thread = std::thread::Builder::new()
            .name("scrub".to_owned())
            .spawn(move || watch(&state, &stopped))
            .map_err(|error| cannot_start(&error))?;
        Ok(Scrub { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Scrub {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn watch(state: &Path, stopped: &Receiver<()>) {
    let mut wait = Duration::ZERO;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
        wait = LOOK;
        if size_bytes(state) <= VERIFY_AT_START_BYTES {
            continue;
        }
        let started = Instant::now();
        match check(state, stopped) {
            None => return,
            Some(Ok(())) => {
                info!(seconds = started.elapsed().as_secs(), "checked the whole state in the background: it is right");
                wait = EVERY.saturating_sub(started.elapsed());
            }
            Some(Err(Failure { message, code: 65 })) => {
                super::complain(&format!("error: {message}"));
                error!("the background check found damage; stopping at once, as by a crash");
                std::process::exit(65);
            }
            Some(Err(failure)) => {
                warn!(reason = %failure.message, "the state could not be checked; trying again later")
            }
        }
    }
}

/// One check; `None` where it was stopped.
fn check(state: &Path, stopped: &Receiver<()>) -> Option<Result<(), Failure>> {
    let rate = format!("{}MiB", RATE_BYTES >> 20);
    let child = verify(state).and_then(|mut command| command.args(["--rate", &rate]).stderr(Stdio::piped()).spawn());
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Some(Err(cannot_start(&error))),
    };
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(judge(state, status, &stderr_of(&mut child))),
            Ok(None) => {}
            Err(error) => return Some(Err(cannot_start(&error))),
        }
        if !matches!(stopped.recv_timeout(CHILD_LOOK), Err(RecvTimeoutError::Timeout)) {
            // It may have ended by itself just now.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
    }
}

/// What an ended child wrote: less than a pipe holds, so it never waited.
fn stderr_of(child: &mut Child) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_end(&mut text);
    }
    text
}
