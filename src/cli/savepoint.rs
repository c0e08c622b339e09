//! `forebay checkpoint export|import`, and `verify` of a savepoint.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::checkpoint::size;
use super::progress::ProgressBar;
use super::{Failure, Format};
use crate::checkpoint::savepoint::{self, SavepointError, SavepointReader};
use crate::checkpoint::{CheckpointError, DIRECTORY};
use crate::config::{self, Config};
use crate::engine::import;

fn failure(error: &SavepointError) -> Failure {
    Failure::new(error, error.exit_code())
}

/// Prints one line. A reader that went away is no failure.
fn say(out: &mut dyn Write, line: &str) -> Result<(), Failure> {
    super::print(out, &format!("{line}\n"))
}

/// Exports the newest checkpoint of the state in `state` to `file`.
///
/// # Errors
/// See [`savepoint::export`].
pub fn export(state: &Path, file: &Path, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let mut bar = ProgressBar::new("exporting");
    let exported = savepoint::export(&state.join(DIRECTORY), file, &mut |done, total| bar.at(done, total));
    drop(bar);
    let exported = exported.map_err(|error| failure(&error))?;
    let (id, cut) = (exported.meta.id, exported.meta.cut);
    let line = match format {
        Format::Json => json!({
            "file": file.display().to_string(), "checkpoint": id, "lsn": cut.0, "entries": exported.entries,
            "file_bytes": exported.file_bytes,
        })
        .to_string(),
        Format::Text => format!(
            "exported checkpoint {id} (LSN {cut}): {} entries, {} in {}",
            exported.entries,
            size(exported.file_bytes),
            file.display()
        ),
    };
    say(out, &line)
}

/// Makes a state from a savepoint. `place` is the new state directory, or a configuration that names it.
///
/// # Errors
/// See [`import::import`].
pub fn import(
    file: &Path,
    place: &Path,
    fresh_sinks: bool,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if is_savepoint(place)? {
        let message = format!("{} is a savepoint: name the one to import first, then the new state", place.display());
        return Err(Failure { message, code: super::USAGE });
    }
    let config: Option<Config> = if place.is_file() { Some(config::load(place)?) } else { None };
    if config.is_none() && place.extension().is_some_and(|extension| extension == "toml") {
        let message = format!("there is no configuration file {}", place.display());
        return Err(Failure { message, code: super::USAGE });
    }
    let state = config.as_ref().map_or(place, |config| &config.pipeline.state);
    let mut bar = ProgressBar::new("importing");
    let mut progress = |done, total| bar.at(done, total);
    let imported = import::import(file, state, config.as_ref(), fresh_sinks, &mut progress);
    drop(bar);
    let imported = imported.map_err(|error| Failure::new(&error, error.exit_code()))?;
    let (id, cut) = (imported.meta.id, imported.meta.cut);
    let line = match format {
        Format::Json => json!({
            "state": state.display().to_string(), "checkpoint": id, "lsn": cut.0, "entries": imported.entries,
            "epoch": imported.meta.epoch.to_string(), "fresh_sinks": fresh_sinks,
        })
        .to_string(),
        Format::Text => format!(
            "{} begins at checkpoint {id} (LSN {cut}) with {} entries{}",
            state.display(),
            imported.entries,
            if fresh_sinks { "; its sinks begin anew" } else { "" }
        ),
    };
    say(out, &line)
}

/// Reads a savepoint to its end.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(file: &Path, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let mut bar = ProgressBar::new("verifying");
    let summary = SavepointReader::open(file)
        .and_then(|mut reader| savepoint::read_through(&mut reader, &mut |done, total| bar.at(done, total)));
    drop(bar);
    let summary = summary.map_err(|error| failure(&error))?;
    let line = match format {
        Format::Json => json!({
            "ok": true, "entries": summary.entries, "bytes": summary.bytes, "blocks": summary.blocks,
            "file_bytes": summary.file_bytes,
        })
        .to_string(),
        Format::Text => format!(
            "ok: {} entries in {} blocks, {}; {} on disk",
            summary.entries,
            summary.blocks,
            size(summary.bytes),
            size(summary.file_bytes)
        ),
    };
    say(out, &line)
}

/// Whether `place` is a savepoint and not a state directory or a configuration.
///
/// # Errors
/// It cannot be read.
pub fn is_savepoint(place: &Path) -> Result<bool, Failure> {
    if !place.is_file() {
        return Ok(false);
    }
    savepoint::is_savepoint(place).map_err(|source| {
        let error = CheckpointError::Io { action: "read", path: place.to_owned(), source };
        Failure::new(&error, error.exit_code())
    })
}
