//! `forebay run`: runs a pipeline, with its messages on standard error.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::hints::hints;
use super::{Failure, USAGE};
use crate::checkpoint::{DIRECTORY, VERIFY_AT_START_BYTES};
use crate::config;
use crate::engine::EngineError;
use crate::engine::reset::Choices;
use crate::engine::run::{End, Summary, listen_for_stop, run as run_engine};
use crate::settings::suggestion;
use crate::source::guard_with;

/// Runs the pipeline of a configuration file. `adopt`: sinks whose output stays although the log does not
/// give it; `reset`: queries (as `query.NAME`) whose state is dropped.
///
/// # Errors
/// Whatever stopped it, with its exit code.
pub fn run(path: &Path, adopt: &[String], reset: Vec<String>) -> Result<(), Failure> {
    let mut config = config::load(path)?;
    for name in adopt {
        let Some(sink) = config.sinks.iter_mut().find(|sink| sink.name == *name) else {
            let known: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
            let message = format!("`--adopt {name}`: there is no such sink; {}", suggestion(name, &known));
            return Err(Failure { message, code: USAGE });
        };
        sink.adopt = true;
    }
    log_to_stderr();
    if !is_service() {
        let program = std::env::args().next().unwrap_or_else(|| "forebay".to_owned());
        let _ = std::io::stderr().write_all(hints(&config, &program, &path.display().to_string()).as_bytes());
    }
    if let Ok(me) = std::env::current_exe() {
        guard_with(me);
    }
    let failure = |error: EngineError| Failure::new(&error, error.exit_code());
    let signals = listen_for_stop().map_err(failure)?;
    verify_checkpoint(&config.pipeline.state)?;
    let summary = run_engine(config, Choices { reset }, signals).map_err(failure)?;
    report(&summary);
    Ok(())
}

/// Checks the checkpointed state whole, up to a size, in a child process: LMDB trusts its pages, so reading a damaged
/// one can end a process by a signal.
pub(super) fn verify_checkpoint(state: &Path) -> Result<(), Failure> {
    let data = state.join(DIRECTORY).join("data.mdb");
    let size_bytes = std::fs::metadata(&data).map_or(0, |metadata| metadata.len());
    if size_bytes == 0 {
        return Ok(());
    }
    if size_bytes > VERIFY_AT_START_BYTES {
        tracing::info!(
            size_bytes,
            "the state is too large to be checked whole at the start; values are checked as read"
        );
        return Ok(());
    }
    let child = std::env::current_exe().and_then(|me| {
        Command::new(me).args(["checkpoint", "verify"]).arg(state).stdin(Stdio::null()).stdout(Stdio::null()).output()
    });
    let output = child.map_err(|error| Failure {
        message: format!("cannot start the process that checks the checkpoint: {error}"),
        code: 74,
    })?;
    match output.status.code() {
        Some(0) => Ok(()),
        Some(code) => {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let message = text.strip_prefix("error: ").map_or(text.clone(), str::to_owned);
            Err(Failure { message, code: u8::try_from(code).unwrap_or(70) })
        }
        None => {
            let message = format!(
                "the checkpoint in {} is corrupt: reading it ended the process that checked it ({}); move the \
                 state directory away and begin from a savepoint (`forebay checkpoint import FILE`), from a copy of the \
                 directory, or anew",
                state.join(DIRECTORY).display(),
                output.status
            );
            Err(Failure { message, code: 65 })
        }
    }
}

fn report(summary: &Summary) {
    let counters = &summary.counters;
    for (source, count) in &counters.sources {
        tracing::info!(%source, records = count.records, rows = count.rows, dead = count.dead, lost = count.lost, "read");
    }
    for (query, count) in &counters.queries {
        if count.late + count.errors > 0 {
            tracing::info!(%query, late = count.late, errors = count.errors, "rows that are in no result");
        }
    }
    for (sink, rows) in &counters.sinks {
        tracing::info!(%sink, rows, "written");
    }
    let log = &summary.log;
    tracing::info!(input_bytes = log.payload_bytes, log_bytes = log.written_bytes, syncs = log.syncs, "logged");
    match summary.end {
        End::Finished => tracing::info!("finished: all input is processed and all windows have fired"),
        End::AlreadyFinished => tracing::info!("nothing to do: the input had ended before and there is none since"),
        End::Stopped => tracing::info!("stopped: open windows wait in the checkpoint; run again to go on"),
    }
}

/// Whether systemd reads what is written to standard error.
fn is_service() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some()
}

/// Messages go to standard error: plain for a service (systemd stamps them), with time and colour on a terminal.
/// `FOREBAY_LOG` = error, warn, info (default), debug or trace.
fn log_to_stderr() {
    let level = std::env::var("FOREBAY_LOG").ok().and_then(|level| level.parse::<Level>().ok()).unwrap_or(Level::INFO);
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(LevelFilter::from_level(level))
        .with_target(false)
        .with_ansi(terminal);
    // A second subscriber (tests in one process) is no failure.
    let _ = if is_service() { builder.without_time().try_init() } else { builder.try_init() };
}
