//! `forebay checkpoint list|show|dump|verify`: what a state's checkpoints hold, also while the engine runs.
//!
//! Every read is one short transaction, so that the engine is neither stopped nor slowed; a dump reads in pieces, and
//! says so when a checkpoint came between them.

use std::io::{self, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Format;
use crate::checkpoint::{CheckpointError, CheckpointMeta, CheckpointReader, HistoryEntry, OperatorMeta, lmdb};
use crate::event::Position;

/// Turns a stored entry (namespace, key, postcard value) of one operator into what is printed.
pub type EntryDecoder = Box<dyn Fn(i64, &[u8], &[u8]) -> Value>;

/// Which entries a dump prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpOptions {
    /// Only this key group.
    pub key_group: Option<u8>,
    /// At most so many entries.
    pub limit: Option<u64>,
}

/// Entries that a dump reads in one transaction.
const DUMP_CHUNK: usize = 256;

fn output(source: io::Error) -> CheckpointError {
    CheckpointError::Output { source }
}

/// An instant in UTC, from µs since the Unix epoch.
fn time(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| format!("{micros} µs"), |time| format!("{time:.3}"))
}

fn duration(entry: &HistoryEntry) -> String {
    // Without the time of its own sync the figure is a lower bound.
    let bound = if entry.synced { "" } else { "≥" };
    format!("{bound}{:.1} ms", entry.duration_us as f64 / 1000.0)
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut scaled = bytes as f64;
    let mut unit = "B";
    for larger in units {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{scaled:.1} {unit}") }
}

/// Prints rows under a header in columns as wide as their widest cell; those in `right` are right-aligned.
pub(super) fn table(out: &mut dyn Write, header: &[&str], right: &[usize], rows: &[Vec<String>]) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(header.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let gap = if column > 0 { "  " } else { "" };
            let (before, after) = if right.contains(&column) { (pad.as_str(), "") } else { ("", pad.as_str()) };
            line.extend([gap, before, cell, after]);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn history_json(entry: &HistoryEntry, restorable: bool) -> Value {
    let operators = entry.operators.iter().map(|op| json!({"name": op.name, "keys": op.keys, "bytes": op.bytes}));
    let sinks = entry.sinks.iter().map(|sink| json!({"name": sink.name, "rows": sink.rows}));
    json!({
        "id": entry.id,
        "time": time(entry.wall_time_us),
        "log_time": time(entry.cut_time.0),
        "lsn": entry.cut.0,
        "duration_us": entry.duration_us,
        "duration_complete": entry.synced,
        "changes": entry.changes,
        "bytes_written": entry.bytes_written,
        "operators": operators.collect::<Vec<_>>(),
        "sinks": sinks.collect::<Vec<_>>(),
        "restorable": restorable,
    })
}

/// Lists the checkpoints on record, oldest first; `dir` is the `checkpoint` directory of a state.
///
/// # Errors
/// There is no checkpoint, it is corrupt, or `out` fails.
pub fn list(dir: &Path, format: Format, out: &mut dyn Write) -> Result<(), CheckpointError> {
    let (meta, history) = CheckpointReader::open(dir)?.history()?;
    let live = meta.map(|meta| meta.id);
    if format == Format::Json {
        return history
            .iter()
            .try_for_each(|entry| writeln!(out, "{}", history_json(entry, live == Some(entry.id))))
            .map_err(output);
    }
    let rows: Vec<Vec<String>> = history
        .iter()
        .map(|entry| {
            let (keys, bytes) = entry
                .operators
                .iter()
                .fold((0u64, 0u64), |(k, b), op| (k.wrapping_add(op.keys), b.wrapping_add(op.bytes)));
            let sinks: Vec<String> = entry.sinks.iter().map(|sink| format!("{}:{}", sink.name, sink.rows)).collect();
            vec![
                entry.id.to_string(),
                time(entry.wall_time_us),
                entry.cut.to_string(),
                keys.to_string(),
                size(bytes),
                size(entry.bytes_written),
                duration(entry),
                sinks.join(" "),
                if live == Some(entry.id) { "live".to_owned() } else { String::new() },
            ]
        })
        .collect();
    let header = ["ID", "TIME", "LSN", "KEYS", "STATE", "WRITTEN", "DURATION", "SINK ROWS", "RESTORABLE"];
    table(out, &header, &[0, 2, 3, 4, 5, 6], &rows).map_err(output)
}

fn position_json(position: &Position) -> Value {
    match position {
        Position::File { inode, head_crc, head_len, offset } => {
            json!({"inode": inode, "head_crc": head_crc, "head_len": head_len, "offset": offset})
        }
    }
}

fn position_text(position: &Position) -> String {
    match position {
        Position::File { inode, offset, .. } => format!("inode {inode}, offset {offset}"),
    }
}

/// Shows one checkpoint: the live one whole, an older one as far as the history has it.
///
/// # Errors
/// There is no such checkpoint, it is corrupt, or `out` fails.
pub fn show(dir: &Path, id: Option<u64>, format: Format, out: &mut dyn Write) -> Result<(), CheckpointError> {
    let reader = CheckpointReader::open(dir)?;
    let (meta, history) = reader.history()?;
    let id = match (id, &meta) {
        (Some(id), _) => id,
        (None, Some(meta)) => meta.id,
        (None, None) => return Err(CheckpointError::Missing { dir: dir.to_owned() }),
    };
    let entry = history.iter().find(|entry| entry.id == id);
    let entry = entry.ok_or_else(|| CheckpointError::UnknownId { dir: dir.to_owned(), id })?;
    let live = meta.as_ref().filter(|meta| meta.id == id);
    match format {
        Format::Json => writeln!(out, "{}", show_json(entry, live)),
        Format::Text => show_text(entry, live, out),
    }
    .map_err(output)
}

fn show_json(entry: &HistoryEntry, live: Option<&CheckpointMeta>) -> Value {
    let mut shown = history_json(entry, live.is_some());
    if let (Some(meta), Some(object)) = (live, shown.as_object_mut()) {
        let sources: serde_json::Map<String, Value> =
            meta.sources.iter().map(|(name, position)| (name.clone(), position_json(position))).collect();
        let operators = meta.operators.iter().zip(&entry.operators).map(|(op, totals)| {
            json!({
                "name": op.name, "id": op.id, "keys": totals.keys, "bytes": totals.bytes, "value_type": op.value_type,
                "fingerprint": op.fingerprint, "namespaces": op.namespaces,
            })
        });
        let fields = [
            ("pipeline", json!(meta.pipeline)),
            ("epoch", json!(meta.epoch.to_string())),
            ("program_version", json!(meta.program_version)),
            ("semantics_version", json!(meta.semantics_version)),
            ("sources", Value::Object(sources)),
            ("operators", operators.collect()),
            ("config", json!(meta.config)),
        ];
        object.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    }
    shown
}

fn show_text(entry: &HistoryEntry, live: Option<&CheckpointMeta>, out: &mut dyn Write) -> io::Result<()> {
    let restorable = if live.is_some() { "yes (live)" } else { "no (on record only)" };
    let mut facts = vec![
        ("checkpoint", entry.id.to_string()),
        ("time", time(entry.wall_time_us)),
        ("cut LSN", entry.cut.to_string()),
        ("cut log time", time(entry.cut_time.0)),
        ("duration", duration(entry)),
        ("changes", entry.changes.to_string()),
        ("written", size(entry.bytes_written)),
        ("restorable", restorable.to_owned()),
    ];
    if let Some(meta) = live {
        facts.push(("pipeline", meta.pipeline.clone()));
        facts.push(("epoch", meta.epoch.to_string()));
        facts.push(("written by", format!("forebay {}", meta.program_version)));
        facts.push(("semantics version", meta.semantics_version.to_string()));
    }
    facts.iter().try_for_each(|(name, value)| writeln!(out, "{name:<18}{value}"))?;
    if !entry.operators.is_empty() {
        let namespaces = |name: &str| {
            let operator = live.and_then(|meta| meta.operator(name));
            operator.map_or_else(|| "-".to_owned(), |operator| operator.namespaces.len().to_string())
        };
        let rows = entry
            .operators
            .iter()
            .map(|op| vec![op.name.clone(), op.keys.to_string(), size(op.bytes), namespaces(&op.name)]);
        writeln!(out)?;
        table(out, &["OPERATOR", "KEYS", "SIZE", "NAMESPACES"], &[1, 2, 3], &rows.collect::<Vec<_>>())?;
    }
    if let Some(meta) = live.filter(|meta| !meta.sources.is_empty()) {
        let rows = meta.sources.iter().map(|(name, position)| vec![name.clone(), position_text(position)]);
        writeln!(out)?;
        table(out, &["SOURCE", "POSITION"], &[], &rows.collect::<Vec<_>>())?;
    }
    if !entry.sinks.is_empty() {
        let rows = entry.sinks.iter().map(|sink| vec![sink.name.clone(), sink.rows.to_string()]);
        writeln!(out)?;
        table(out, &["SINK", "ROWS"], &[1], &rows.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Prints an entry whose type is not known: key in hex, value in base64.
pub fn undecoded(_: i64, key: &[u8], value: &[u8]) -> Value {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({"key_hex": key, "value_base64": BASE64.encode(value)})
}

/// Prints the entries of an operator, in the order (key group, namespace, key).
///
/// # Errors
/// There is no such operator, its state is corrupt, or `out` fails.
pub fn dump(
    dir: &Path,
    operator: &str,
    options: DumpOptions,
    decoder: impl FnOnce(&CheckpointMeta, &OperatorMeta) -> EntryDecoder,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), CheckpointError> {
    let reader = CheckpointReader::open(dir)?;
    let meta = reader.latest()?.ok_or_else(|| CheckpointError::Missing { dir: dir.to_owned() })?;
    let operator = meta.operator(operator).ok_or_else(|| {
        let known: Vec<&str> = meta.operators.iter().map(|operator| operator.name.as_str()).collect();
        CheckpointError::UnknownOperator { name: operator.to_owned(), known: known.join(", ") }
    })?;
    let decode = decoder(&meta, operator);
    let mut left = options.limit.unwrap_or(u64::MAX);
    let mut place: Option<Vec<u8>> = None;
    let mut last_id = meta.id;
    while left > 0 {
        let chunk = usize::try_from(left).unwrap_or(usize::MAX).min(DUMP_CHUNK);
        let (id, entries) = reader.entries(operator.id, options.key_group, place.as_deref(), chunk)?;
        let Some(last) = entries.last() else { break };
        left = left.saturating_sub(entries.len() as u64);
        last_id = id;
        for entry in &entries {
            let decoded = decode(entry.namespace, &entry.key, &entry.value);
            match format {
                Format::Json => {
                    writeln!(
                        out,
                        "{}",
                        json!({"key_group": entry.group, "namespace": entry.namespace, "entry": decoded})
                    )
                }
                Format::Text => writeln!(out, "{:>3}  {:>20}  {decoded}", entry.group, entry.namespace),
            }
            .map_err(output)?;
        }
        place = Some(last.place.clone());
    }
    if last_id != meta.id && format == Format::Text {
        writeln!(out, "(checkpoint {} became {last_id} meanwhile: entries are of both)", meta.id).map_err(output)?;
    }
    Ok(())
}

/// Checks everything that is stored; with a rate in bytes per second in slices, as [`super::scrub`] has it done.
///
/// # Errors
/// The first thing that is wrong, or `out` fails.
pub fn verify(dir: &Path, rate: Option<u64>, format: Format, out: &mut dyn Write) -> Result<(), CheckpointError> {
    let verified = match rate {
        None => lmdb::verify(dir)?,
        Some(rate) => super::scrub::verify_slowly(dir, rate)?,
    };
    match format {
        Format::Json => writeln!(
            out,
            "{}",
            json!({"ok": true, "entries": verified.entries, "key_groups": verified.groups, "bytes": verified.bytes})
        ),
        Format::Text => writeln!(
            out,
            "ok: {} entries in {} key groups, {}",
            verified.entries,
            verified.groups,
            size(verified.bytes)
        ),
    }
    .map_err(output)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use tempfile::TempDir;

    use super::*;
    use crate::checkpoint::{CheckpointStore, OpenMode, SinkMeta};
    use crate::event::{Epoch, LogTime, Lsn};
    use crate::state::{Checkpointed, KeyedState, StateReader};

    fn filled() -> (TempDir, PathBuf) {
        let temp = tempfile::tempdir().expect("creates");
        let dir = temp.path().join("checkpoint");
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let snapshot = Arc::new(store.snapshot().expect("begins"));
        let mut state = KeyedState::<u64>::new(4, Arc::clone(&snapshot) as Arc<dyn StateReader>, []);
        for id in 1..=2u64 {
            for i in 0..600 * id {
                *state.entry(10_000, &i.to_be_bytes(), || 0).expect("reads") += 1;
            }
            let operator = OperatorMeta {
                id: 4,
                name: "avg/window/0".to_owned(),
                value_type: "u64".to_owned(),
                ..OperatorMeta::default()
            };
            let meta = CheckpointMeta {
                id,
                epoch: Epoch([0xab; 16]),
                pipeline: "plant-a".to_owned(),
                cut: Lsn(1000 * id),
                cut_time: LogTime(1_775_091_490_000_000),
                wall_time_us: 1_775_091_490_250_000,
                sources: [(
                    "plant".to_owned(),
                    Position::File { inode: 42, head_crc: 1, head_len: 1024, offset: 99_999 },
                )]
                .into(),
                operators: vec![operator],
                sinks: vec![SinkMeta { name: "archive".to_owned(), rows: 10 * id, progress: vec![1] }],
                ..CheckpointMeta::default()
            };
            store.commit(&meta, &[(4, state.freeze().expect("freezes"))]).expect("commits");
            snapshot.renew().expect("begins");
            state.committed();
        }
        (temp, dir)
    }

    fn printed(print: impl FnOnce(&mut dyn Write) -> Result<(), CheckpointError>) -> String {
        let mut out = Vec::new();
        print(&mut out).expect("prints");
        String::from_utf8(out).expect("is text")
    }

    fn json_lines(text: &str) -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect()
    }

    #[test]
    fn list_shows_each_checkpoint_and_which_is_live() {
        let (_temp, dir) = filled();
        let text = printed(|out| list(&dir, Format::Text, out));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("ID  TIME                       LSN  KEYS"), "{text}");
        assert!(lines[1].starts_with(" 1  2026-04-02T00:58:10.250Z  1000   600"), "{text}");
        assert!(lines[1].ends_with("archive:10"), "{text}");
        assert!(lines[2].starts_with(" 2  2026-04-02T00:58:10.250Z  2000  1200"), "{text}");
        assert!(lines[2].contains('≥') && lines[2].ends_with("archive:20  live"), "{text}");
        assert_eq!(lines.len(), 3);
        let json = json_lines(&printed(|out| list(&dir, Format::Json, out)));
        assert_eq!(json[0]["restorable"], false);
        assert_eq!(json[1]["restorable"], true);
        assert_eq!(json[1]["operators"][0]["keys"], 1200);
        assert_eq!(json[1]["sinks"][0]["rows"], 20);
    }

    #[test]
    fn show_tells_all_of_the_live_one_and_what_is_on_record_of_others() {
        let (_temp, dir) = filled();
        let text = printed(|out| show(&dir, None, Format::Text, out));
        for part in ["checkpoint        2\n", "plant-a", "yes (live)", "avg/window/0  1200", "inode 42, offset 99999"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let json = json_lines(&printed(|out| show(&dir, Some(2), Format::Json, out)));
        assert_eq!(json[0]["sources"]["plant"]["offset"], 99_999);
        assert_eq!(json[0]["operators"][0]["namespaces"][0], 10_000);
        let text = printed(|out| show(&dir, Some(1), Format::Text, out));
        assert!(text.contains("on record only") && text.contains("avg/window/0   600"), "{text}");
        let error = show(&dir, Some(9), Format::Text, &mut Vec::new()).expect_err("is not there");
        assert_eq!(error.exit_code(), 64, "{error}");
    }

    #[test]
    fn dump_prints_every_entry_decoded() {
        let (_temp, dir) = filled();
        let decoder = |_: &CheckpointMeta, operator: &OperatorMeta| -> EntryDecoder {
            assert_eq!(operator.value_type, "u64");
            Box::new(
                |_, key, value| json!({"key": key.last(), "value": postcard::from_bytes::<u64>(value).expect("decodes")}),
            )
        };
        let all = |options, format| printed(|out| dump(&dir, "avg/window/0", options, decoder, format, out));
        let json = json_lines(&all(DumpOptions::default(), Format::Json));
        assert_eq!(json.len(), 1200);
        assert_eq!(json.iter().filter_map(|line| line["entry"]["value"].as_u64()).sum::<u64>(), 1800);
        assert!(json.is_sorted_by_key(|line| line["key_group"].as_u64()));
        assert_eq!(all(DumpOptions { limit: Some(300), ..DumpOptions::default() }, Format::Text).lines().count(), 300);
        let of_group = json_lines(&all(DumpOptions { key_group: Some(7), limit: None }, Format::Json));
        assert!(!of_group.is_empty() && of_group.iter().all(|line| line["key_group"] == 7));

        let bare = |_: &CheckpointMeta, _: &OperatorMeta| -> EntryDecoder { Box::new(undecoded) };
        let raw = printed(|out| {
            let options = DumpOptions { limit: Some(1), ..DumpOptions::default() };
            dump(&dir, "avg/window/0", options, bare, Format::Text, out)
        });
        assert!(raw.contains("\"key_hex\":\"") && raw.contains("\"value_base64\":\""), "{raw}");
        let options = DumpOptions::default();
        let error = dump(&dir, "avg", options, bare, Format::Text, &mut Vec::new()).expect_err("unknown");
        assert!(error.to_string().contains("avg/window/0"), "{error}");
    }

    #[test]
    fn verify_reports_what_it_went_over() {
        let (_temp, dir) = filled();
        assert!(printed(|out| verify(&dir, None, Format::Text, out)).starts_with("ok: 1200 entries in 128 key groups"));
        assert_eq!(json_lines(&printed(|out| verify(&dir, Some(1 << 30), Format::Json, out)))[0]["entries"], 1200);
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!([0, 1023, 1024, 5 << 20, 3 << 40].map(size), ["0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 TiB"]);
    }
}
