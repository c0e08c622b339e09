//! `forebay run`: runs a pipeline, with its messages on standard error.

use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use tracing::Level;
use tracing::level_filters::LevelFilter;

use super::Failure;
use super::hints::hints;
use super::scrub::{self, Scrub};
use crate::config;
use crate::engine::EngineError;
use crate::engine::choices::Choices;
use crate::engine::run::{End, Summary, listen_for_signals, run as run_engine};
use crate::source::guard_with;

/// Runs the pipeline of a configuration file. `adopt`: sinks whose output stays although the log does not
/// give it; `reset`: queries (as `query.NAME`) whose state is dropped.
///
/// # Errors
/// Whatever stopped it, with its exit code.
pub fn run(path: &Path, adopt: &[String], reset: &[String]) -> Result<(), Failure> {
    let config = config::load(path)?;
    let failure = |error: EngineError| Failure::new(&error, error.exit_code());
    let choices = Choices::given(&config, reset, adopt).map_err(failure)?;
    log_to_stderr();
    if !is_service() {
        let program = std::env::args().next().unwrap_or_else(|| "forebay".to_owned());
        let _ = std::io::stderr().write_all(hints(&config, &program, &path.display().to_string()).as_bytes());
    }
    if let Ok(me) = std::env::current_exe() {
        guard_with(me);
    }
    // On a terminal a hang-up is one.
    let signals = listen_for_signals(!std::io::stderr().is_terminal()).map_err(failure)?;
    scrub::verify_at_start(&config.pipeline.state)?;
    let scrub = Scrub::start(&config.pipeline.state)?;
    let reload = || config::load(path).inspect_err(|error| tracing::warn!("not taken: {error}")).ok();
    let summary = run_engine(config, choices, signals, &reload).map_err(failure)?;
    report(&summary);
    drop(scrub);
    if summary.end == End::Changed { start_again(path) } else { Ok(()) }
}

/// Starts anew in the same process, so that the service manager sees one that goes on.
fn start_again(path: &Path) -> Result<(), Failure> {
    let error = match std::env::current_exe() {
        Ok(me) => Command::new(me).arg("run").arg(path).exec(),
        Err(error) => error,
    };
    Err(Failure { message: format!("cannot start again under the changed configuration: {error}"), code: 74 })
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
        End::Changed => tracing::info!("open windows wait in the checkpoint; starting under the changed configuration"),
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
