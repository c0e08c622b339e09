//! `forebay log repair`: cuts a damaged log on request. Without `--yes` it only says what would be lost.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::{Failure, Format, print, scrub};
use crate::engine::EngineError;
use crate::engine::host::Machine;
use crate::engine::repair::{Repaired, repair as repair_log};
use crate::replay_log::{Fault, LogError, RepairPlan};

/// Repairs the log of a state, or says what a repair would do.
///
/// # Errors
/// The state is in use (75), its checkpoint is corrupt (65), the log is none that can be repaired, or the disk failed.
pub fn repair(state: &Path, yes: bool, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
    let failure = |error: EngineError| Failure::new(&error, error.exit_code());
    if !state.is_dir() {
        return Err(failure(LogError::NoLog { dir: state.to_owned() }.into()));
    }
    scrub::verify_at_start(state)?;
    let repaired = repair_log(&Machine, state, yes).map_err(failure)?;
    let text = match format {
        Format::Text => text(&repaired),
        Format::Json => format!("{}\n", value(&repaired)),
    };
    print(out, &text)
}

fn text(repaired: &Repaired) -> String {
    match repaired {
        Repaired::Nothing => "the log needs no repair: a start would find nothing wrong with it\n".to_owned(),
        Repaired::Finished { aside } => {
            format!("an earlier repair was carried to its end; the old log is in {}\n", aside.display())
        }
        Repaired::Planned(plan) => {
            describe(plan, "would be")
                + "nothing was changed; the same with --yes does it, and keeps the old log beside the new one\n"
        }
        Repaired::Done { plan, aside, epoch } => {
            let aside = aside.display();
            describe(plan, "was")
                + &format!(
                    "the log is repaired, under the new epoch {epoch}. The old one is in {aside} (`forebay log cat \
                     {aside}` shows it); remove it when nobody needs it any more\n"
                )
        }
    }
}

/// One object: `outcome` is nothing, finished, planned or done.
fn value(repaired: &Repaired) -> Value {
    let with = |mut value: Value, more: Value| {
        if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
            value.extend(more);
        }
        value
    };
    match repaired {
        Repaired::Nothing => json!({ "outcome": "nothing" }),
        Repaired::Finished { aside } => json!({ "outcome": "finished", "old_log": aside.display().to_string() }),
        Repaired::Planned(plan) => with(json!({ "outcome": "planned" }), plan_value(plan)),
        Repaired::Done { plan, aside, epoch } => {
            let done = json!({ "outcome": "done", "old_log": aside.display().to_string(), "epoch": epoch.to_string() });
            with(done, plan_value(plan))
        }
    }
}

fn plan_value(plan: &RepairPlan) -> Value {
    let fault =
        |fault: &Fault| json!({ "file": fault.file.display().to_string(), "offset": fault.offset, "what": fault.what });
    json!({
        "damage": plan.faults.iter().map(fault).collect::<Vec<_>>(),
        "checkpoint_lsn": plan.cut.0,
        "kept_records": plan.kept_records(),
        "next_lsn": plan.next.0,
        "lost_records": plan.lost_records(),
        "last_known_lsn": plan.known_last.0,
        "cut_bytes": plan.cut_bytes,
    })
}

fn describe(plan: &RepairPlan, would: &str) -> String {
    let mut text = String::new();
    for fault in &plan.faults {
        let _ = writeln!(text, "damage    {} at byte {}: {}", fault.file.display(), fault.offset, fault.what);
    }
    let _ = writeln!(text, "kept      all up to LSN {} is in the checkpoint", plan.cut);
    if plan.kept_records() > 0 {
        let (from, to) = (plan.cut.0 + 1, plan.next.0 - 1);
        let _ = writeln!(text, "kept      {} records of the log, LSN {from} to {to}", plan.kept_records());
    }
    let _ = match plan.lost_records() {
        0 => writeln!(text, "lost      nothing that is known of {would} lost behind LSN {}", plan.next.0 - 1),
        lost => writeln!(
            text,
            "lost      {lost} records {would} cut, LSN {} to {}; of the intact ones among them {} bytes",
            plan.next, plan.known_last, plan.cut_bytes
        ),
    };
    text
}
