//! `forebay status`: what a running engine says of itself on its control socket.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::Failure;
use super::log::{count, size_text, time_text};
use crate::access;
use crate::checkpoint::Wear;
use crate::control::socket;
use crate::engine::status::Status;
use crate::event::LogTime;

/// No engine runs on the state.
const NO_ENGINE: u8 = 69;

/// Asks the engine that runs on a state, and prints what it says.
///
/// # Errors
/// None runs (exit code 69), it does not answer, or the output failed.
pub fn status(state: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let failure = |message, code| Failure { message, code };
    let text = socket::ask(state, "status").map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let message = format!("no engine runs on {}: start it with `forebay run CONFIG`", state.display());
            failure(message, NO_ENGINE)
        }
        _ => {
            let error = access::explained(&state.join(socket::NAME), error);
            failure(format!("the engine on {} does not answer: {error}", state.display()), 74)
        }
    })?;
    let status: Status = serde_json::from_str(&text).map_err(|error| {
        failure(format!("the engine is of another version, its answer cannot be read: {error}"), 70)
    })?;
    let printed = if json { writeln!(out, "{text}") } else { print(&status, out) };
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(failure(format!("cannot write the output: {error}"), 74))
        }
        _ => Ok(()),
    }
}

fn print(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    let Status { pipeline, version, pid, uptime_s, .. } = status;
    writeln!(out, "pipeline    {pipeline}, version {version}, process {pid}, up for {}", seconds(*uptime_s))?;
    if status.replaying {
        writeln!(out, "replay      what was logged before the start is being processed")?;
    }
    if status.engine_age_ms > 1000 {
        writeln!(out, "engine      busy: its figures are {} old", seconds(status.engine_age_ms / 1000))?;
    }
    let synchronised = if status.clock_synchronised { "synchronised" } else { "not known to be right" };
    let ahead_s = status.log_time_ahead_us / 1_000_000;
    let ahead = if ahead_s > 0 { format!(", {} ahead of it", seconds(ahead_s.unsigned_abs())) } else { String::new() };
    writeln!(out, "log time    {}{ahead}; wall clock {synchronised}", time_text(LogTime(status.log_time_us)))?;
    writeln!(
        out,
        "log         logged up to LSN {}, processed up to {}; {} on the disk in {}, {} wait",
        status.logged_lsn,
        status.processed_lsn,
        size_text(status.log_disk_bytes),
        count(status.log_segments, "segment"),
        size_text(status.queue_bytes)
    )?;
    let checkpoint = &status.checkpoint;
    let made = match (checkpoint.age_ms, checkpoint.duration_ms) {
        (Some(age), Some(took)) => format!("{} ago, took {took} ms", seconds(age / 1000)),
        _ => format!("at {} by the wall clock, before the start", time_text(LogTime(checkpoint.wall_time_us))),
    };
    let next = if checkpoint.in_flight { "; the next one is being written" } else { "" };
    writeln!(out, "checkpoint  {} at LSN {}, {made}{next}", checkpoint.id, checkpoint.lsn)?;
    writeln!(out, "state       {} in memory", size_text(status.state_memory_bytes))?;
    for source in &status.sources {
        let needed = source.needed_from.map(|from| format!("; its file is needed from byte {from} on"));
        let needed = needed.unwrap_or_default();
        writeln!(
            out,
            "source      {}: {}, {} rows, {} dead, {} lost; since the start {}, {} bad, {}{needed}",
            source.name,
            count(source.records, "record"),
            source.rows,
            source.dead,
            source.lost,
            size_text(source.run_bytes),
            source.run_bad,
            count(source.run_reconnects, "reconnect")
        )?;
    }
    for query in &status.queries {
        writeln!(out, "query       {}: {} rows, {} late, {} failed", query.name, query.rows, query.late, query.errors)?;
    }
    for sink in &status.sinks {
        writeln!(out, "sink        {}: {} rows", sink.name, sink.rows)?;
    }
    writeln!(out, "written     {}", wear_text(&status.wear))
}

/// What a state has cost the device, in one line.
pub(super) fn wear_text(wear: &Wear) -> String {
    let per_byte = match wear.written_per_ingested() {
        Some(ratio) => format!(": {ratio:.2} bytes written per byte ingested"),
        None => String::new(),
    };
    format!(
        "log {} ({}), checkpoints {} ({}), output {} for {} ingested{per_byte}",
        size_text(wear.log_bytes),
        count(wear.log_syncs, "sync"),
        size_text(wear.checkpoint_bytes),
        wear.checkpoints,
        size_text(wear.output_bytes),
        size_text(wear.ingested_bytes)
    )
}

/// `1d 2h`, `3m 4s`, `5s`: the two largest units.
fn seconds(seconds: u64) -> String {
    let parts = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut left = seconds;
    let mut words = Vec::new();
    for (size, unit) in parts {
        if left >= size {
            words.push(format!("{}{unit}", left / size));
            left %= size;
        }
    }
    words.truncate(2);
    if words.is_empty() { "0s".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let texts = [0, 5, 184, 7265, 93_784].map(seconds);
        assert_eq!(texts, ["0s", "5s", "3m 4s", "2h 1m", "1d 2h"]);
    }

    #[test]
    fn nobody_answers_where_nobody_runs() {
        let temp = tempfile::tempdir().unwrap();
        let failure = status(temp.path(), false, &mut Vec::new()).unwrap_err();
        assert_eq!(failure.code, 69);
        assert!(failure.message.contains("no engine runs on"), "{}", failure.message);
    }

    #[test]
    fn wear_is_told_per_ingested_byte() {
        let wear = Wear { ingested_bytes: 1000, log_bytes: 600, checkpoint_bytes: 300, ..Wear::default() };
        let text = wear_text(&wear);
        assert!(text.ends_with("for 1000 B ingested: 0.90 bytes written per byte ingested"), "{text}");
        assert!(!wear_text(&Wear::default()).contains("per byte"));
    }
}
