//! `forebay log stat|cat|verify`: look at a replay log, live from another process or copied. Nothing is changed, no
//! lock is taken.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use super::status::wear_text;
use crate::checkpoint::{self, CheckpointMeta, CheckpointReader, Wear};
use crate::disk::{Disk, RealDisk};
use crate::event::{Bad, ClockStep, Gap, LogTime, Lsn, Position, RecordKind, Run, SourceId, Start};
use crate::replay_log::{
    FileSummary, KindSummary, LogError, LogReader, SegmentSummary, Summary, check_references, log_dir, lsn_before_time,
    summarize,
};
use crate::settings::{parse_duration, suggestion};

/// Why a `log` command fails.
#[derive(Debug, Error)]
pub enum LogCommandError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl LogCommandError {
    /// The exit code of a program that ends by this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            LogCommandError::Usage(_) => 64,
            LogCommandError::Log(error) => error.exit_code(),
            LogCommandError::Output(_) => 74,
        }
    }

    /// The reader of the output has gone away (`log cat | head`): no failure worth a word.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, LogCommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// A place in the log on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Lsn(Lsn),
    Time(LogTime),
}

impl At {
    /// Reads an LSN (`1234`), a time (`2026-04-02T00:58:00Z`), or how long before `now` (`10m`, `1h30m`).
    ///
    /// # Errors
    /// It is none of these.
    pub fn parse(text: &str, now: LogTime) -> Result<At, LogCommandError> {
        if let Ok(lsn) = text.parse() {
            return Ok(At::Lsn(Lsn(lsn)));
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(At::Time(LogTime(time.as_microsecond())));
        }
        if let Ok(ago) = parse_duration(text) {
            let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
            return Ok(At::Time(LogTime(now.0.saturating_sub(ago))));
        }
        Err(LogCommandError::Usage(format!(
            "`{text}` is no place in the log: give an LSN (1234), a time (2026-04-02T00:58:00Z) or how long ago (10m)"
        )))
    }

    fn is_after(self, lsn: Lsn, time: LogTime) -> bool {
        match self {
            At::Lsn(at) => at > lsn,
            At::Time(at) => at > time,
        }
    }

    fn is_before(self, lsn: Lsn, time: LogTime) -> bool {
        match self {
            At::Lsn(at) => at < lsn,
            At::Time(at) => at < time,
        }
    }
}

/// What `log cat` shows; both ends are included.
#[derive(Clone, Debug, Default)]
pub struct CatOptions {
    pub from: Option<At>,
    pub to: Option<At>,
    /// Name of a source, or `pipeline`.
    pub source: Option<String>,
    pub json: bool,
}

/// A log time as RFC 3339 with microseconds.
pub(super) fn time_text(time: LogTime) -> String {
    match Timestamp::from_microsecond(time.0) {
        Ok(timestamp) => format!("{timestamp:.6}"),
        Err(_) => format!("{}us", time.0),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// stat and verify

#[derive(Serialize)]
struct StatJson<'a> {
    pipeline: &'a str,
    epoch: &'a str,
    segments: usize,
    spares: usize,
    disk_bytes: u64,
    first_lsn: Lsn,
    last_lsn: Lsn,
    first_time: Option<String>,
    last_time: Option<String>,
    frames: u64,
    records: u64,
    payload_bytes: u64,
    frame_bytes: u64,
    sources: Vec<KindJson<'a>>,
    files: Vec<FileJson<'a>>,
    tail: Option<&'a str>,
    /// Up to the last checkpoint.
    written: Option<Wear>,
    written_per_ingested: Option<f64>,
}

#[derive(Serialize)]
struct KindJson<'a> {
    source: &'a str,
    kind: &'a str,
    #[serde(flatten)]
    figures: KindSummary,
}

/// A file that holds payloads in the log's stead.
#[derive(Serialize)]
struct FileJson<'a> {
    source: &'a str,
    file: &'a str,
    #[serde(flatten)]
    bytes: FileSummary,
}

/// Prints what a log holds.
///
/// # Errors
/// There is no log, it is corrupt, or the disk or the output failed.
pub fn stat(state_dir: &Path, json: bool, out: &mut dyn Write) -> Result<(), LogCommandError> {
    let checkpoint = latest_checkpoint(state_dir);
    let cut = checkpoint.as_ref().map_or(Lsn::ZERO, |checkpoint| checkpoint.cut);
    let mut log = Summary { cut, ..Summary::default() };
    summarize(Arc::new(RealDisk), &log_dir(state_dir), &mut log)?;
    let wear = checkpoint.map(|checkpoint| checkpoint.wear);
    if json {
        let sources = log.kinds.iter().map(|((source, kind), figures)| KindJson { source, kind, figures: *figures });
        let files = log.files.iter().map(|((source, file), bytes)| FileJson { source, file, bytes: *bytes });
        let stat = StatJson {
            pipeline: &log.pipeline,
            epoch: &log.epoch,
            segments: log.segments.len(),
            spares: log.spares,
            disk_bytes: log.disk_bytes,
            first_lsn: log.first_lsn,
            last_lsn: log.last_lsn,
            first_time: log.first_time.map(time_text),
            last_time: log.last_time.map(time_text),
            frames: log.frames(),
            records: log.records(),
            payload_bytes: log.payload_bytes(),
            frame_bytes: log.frame_bytes(),
            sources: sources.collect(),
            files: files.collect(),
            tail: log.tail,
            written: wear,
            written_per_ingested: wear.and_then(|wear| wear.written_per_ingested()),
        };
        return json_line(&stat, out);
    }
    writeln!(out, "pipeline  {}", log.pipeline)?;
    writeln!(out, "epoch     {}", log.epoch)?;
    writeln!(
        out,
        "disk      {} in {} and {}",
        size_text(log.disk_bytes),
        count(log.segments.len() as u64, "segment"),
        count(log.spares as u64, "spare")
    )?;
    match (log.first_time, log.last_time) {
        (Some(first), Some(last)) => {
            writeln!(out, "records   {}, LSN {} to {}", log.records(), log.first_lsn, log.last_lsn)?;
            writeln!(out, "time      {} to {}", time_text(first), time_text(last))?;
        }
        _ => writeln!(out, "records   none; the next one gets LSN {}", log.first_lsn)?,
    }
    let (payload, stored) = (log.payload_bytes(), log.frame_bytes());
    write!(
        out,
        "bytes     {} of payload in {} of {}",
        size_text(payload),
        size_text(stored),
        count(log.frames(), "frame")
    )?;
    if payload > 0 {
        write!(out, ": {:.2} logged per byte taken in", stored as f64 / payload as f64)?;
    }
    writeln!(out)?;
    for ((source, kind), figures) in &log.kinds {
        let KindSummary { records, payload_bytes, lost_messages, lost_bytes } = figures;
        write!(out, "source    {source} {kind}: {}, {}", count(*records, "record"), size_text(*payload_bytes))?;
        if lost_messages + lost_bytes > 0 {
            write!(out, "; lost {}, {}", count(*lost_messages, "message"), size_text(*lost_bytes))?;
        }
        writeln!(out)?;
    }
    for ((source, file), FileSummary { from, to, needed_from }) in &log.files {
        write!(out, "file      {source}: {file} holds the payload, bytes {from} to {to}; ")?;
        match needed_from {
            Some(from) => writeln!(out, "a replay needs it from byte {from} on")?,
            None => writeln!(out, "no replay needs them any more")?,
        }
    }
    if let Some(wear) = wear {
        writeln!(out, "written   up to the last checkpoint: {}", wear_text(&wear))?;
    }
    print_tail(&log, out)
}

/// A log may be looked at without its checkpoint, or beside a damaged one: that is for `checkpoint verify` to say.
fn latest_checkpoint(state_dir: &Path) -> Option<CheckpointMeta> {
    let latest = CheckpointReader::open(&state_dir.join(checkpoint::DIRECTORY)).and_then(|reader| reader.latest());
    latest.ok().flatten()
}

fn print_tail(log: &Summary, out: &mut dyn Write) -> Result<(), LogCommandError> {
    if let Some(tail) = log.tail {
        writeln!(out, "tail      {tail}: a frame is being written, or was not finished; the next start cuts it off")?;
    }
    Ok(())
}

#[derive(Serialize)]
struct VerifyJson<'a> {
    ok: bool,
    segments: &'a [SegmentSummary],
    frames: u64,
    records: u64,
    tail: Option<&'a str>,
    fault: Option<FaultJson>,
}

#[derive(Serialize)]
struct FaultJson {
    file: Option<String>,
    offset: Option<u64>,
    message: String,
}

/// Checks every frame of a log and prints what was checked and the first fault, which is returned, too.
///
/// # Errors
/// The first fault.
pub fn verify(state_dir: &Path, json: bool, out: &mut dyn Write) -> Result<(), LogCommandError> {
    let mut log = Summary::default();
    let cut = || latest_checkpoint(state_dir).map(|checkpoint| checkpoint.cut);
    let dir = log_dir(state_dir);
    let cut_before = cut();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let result = summarize(Arc::clone(&disk), &dir, &mut log).and_then(|()| match (cut_before, cut()) {
        (Some(before), Some(after)) => {
            log.check_cut(&dir, before, after)?;
            if log.files.is_empty() { Ok(()) } else { check_references(&disk, &dir, after) }
        }
        _ => Ok(()),
    });
    if json {
        let fault = result.as_ref().err().map(|error| match error {
            LogError::Corrupt { file, offset, what } => {
                FaultJson { file: Some(file.display().to_string()), offset: Some(*offset), message: what.clone() }
            }
            LogError::Referenced { file, from, .. } => {
                let file = Some(file.display().to_string());
                FaultJson { file, offset: Some(*from), message: error.to_string() }
            }
            error => FaultJson { file: None, offset: None, message: error.to_string() },
        });
        let verify = VerifyJson {
            ok: result.is_ok(),
            segments: &log.segments,
            frames: log.frames(),
            records: log.records(),
            tail: log.tail,
            fault,
        };
        json_line(&verify, out)?;
        return Ok(result?);
    }
    for segment in &log.segments {
        let SegmentSummary { file, first_lsn, frames, records, bytes } = segment;
        writeln!(
            out,
            "{file}  from LSN {first_lsn}: {}, {}, {}",
            count(*frames, "frame"),
            count(*records, "record"),
            size_text(*bytes)
        )?;
    }
    print_tail(&log, out)?;
    let checked = format!(
        "{}, {}, {} checked",
        count(log.segments.len() as u64, "segment"),
        count(log.frames(), "frame"),
        count(log.records(), "record")
    );
    match result {
        Ok(()) => Ok(writeln!(out, "{checked}: no fault")?),
        Err(error) => {
            writeln!(out, "{checked} before the first fault")?;
            Err(error.into())
        }
    }
}

pub(super) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

pub(super) fn size_text(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

fn json_line(value: &impl Serialize, out: &mut dyn Write) -> Result<(), LogCommandError> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

// ---------------------------------------------------------------------------------------------------------------------
// cat

/// Prints records, one a line.
///
/// # Errors
/// There is no log or no such source, the log is corrupt, or the disk or the output failed.
pub fn cat(state_dir: &Path, options: &CatOptions, out: &mut dyn Write) -> Result<(), LogCommandError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let dir = log_dir(state_dir);
    let from = match options.from {
        None => Lsn::ZERO,
        Some(At::Lsn(lsn)) => lsn,
        Some(At::Time(time)) => lsn_before_time(disk.as_ref(), &dir, time)?,
    };
    let mut reader = LogReader::open(Arc::clone(&disk), &dir, from)?;
    if let Some(source) = options.source.as_deref().filter(|source| *source != "pipeline") {
        // The newest segment knows all names.
        let known = crate::replay_log::identity(disk.as_ref(), &dir)?.map(|log| log.sources).unwrap_or_default();
        let mut names: Vec<&str> = known.iter().map(|(_, name)| name.as_str()).collect();
        names.push("pipeline");
        if !names.contains(&source) {
            let help = suggestion(source, &names);
            return Err(LogCommandError::Usage(format!("the log has no source `{source}`: {help}")));
        }
    }
    loop {
        let mut frame = match reader.next_unread() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(LogError::Trimmed { wanted, first }) => {
                tracing::warn!(%wanted, %first, "the log was trimmed while it was read; the output has a gap");
                reader = LogReader::open(Arc::clone(&disk), &dir, first)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let mut lsn = frame.first_lsn;
        for run in &mut frame.runs {
            let label = reader.source_label(run.source);
            let shown = options.source.as_ref().is_none_or(|source| is_source(&reader, run.source, source));
            let last = lsn.plus(run.len() as u64 - 1);
            // What the files do not hold any more is shown by its place there.
            let is_read = !shown || reader.read_reference(run, lsn).is_ok();
            let run = &*run;
            let places = places(run).map(|place| place.filter(|_| !is_read));
            for (payload, place) in run.records().zip(places) {
                if options.to.is_some_and(|to| to.is_before(lsn, run.time)) {
                    return Ok(());
                }
                if shown && !options.from.is_some_and(|from| from.is_after(lsn, run.time)) {
                    let position = run.position.filter(|_| lsn == last);
                    if options.json {
                        json_line(&record_json(lsn, &label, run, position, payload, place), out)?;
                    } else {
                        print_record(lsn, &label, run, payload, place, out)?;
                    }
                }
                lsn = lsn.plus(1);
            }
        }
    }
}

/// Where a payload stands that the log only refers to.
#[derive(Clone, Copy, Serialize)]
struct PayloadPlace {
    payload_offset: u64,
    payload_bytes: u32,
}

/// The place of each payload of a run; `None`: the log holds it.
fn places(run: &Run) -> impl Iterator<Item = Option<PayloadPlace>> {
    let mut end = run.span().map(|(from, _)| from);
    let mut gaps = run.reference.as_ref().map(|reference| std::iter::once(0).chain(reference.gaps()));
    run.lengths.iter().map(move |length| {
        let payload_offset = end?.saturating_add(gaps.as_mut()?.next()?);
        end = Some(payload_offset.saturating_add(u64::from(*length)));
        Some(PayloadPlace { payload_offset, payload_bytes: *length })
    })
}

fn is_source(reader: &LogReader, id: SourceId, name: &str) -> bool {
    if name == "pipeline" && id == SourceId::PIPELINE { true } else { reader.source_name(id) == Some(name) }
}

/// Columns: LSN, log time (`~`: the clock was not synchronised), source, kind, peer, payload.
fn print_record(
    lsn: Lsn,
    source: &str,
    run: &Run,
    payload: &[u8],
    place: Option<PayloadPlace>,
    out: &mut dyn Write,
) -> Result<(), LogCommandError> {
    let mark = if run.unsynchronised { "~" } else { "" };
    write!(out, "{lsn} {}{mark} {source} {}", time_text(run.time), run.kind.name())?;
    if let Some(peer) = &run.peer {
        write!(out, " {}", bytes_text(peer.as_bytes()))?;
    }
    if let Some(PayloadPlace { payload_offset, payload_bytes }) = place {
        return Ok(writeln!(out, " ({payload_bytes} bytes at byte {payload_offset}; the file is not what it was)")?);
    }
    let text = match Detail::of(run.kind, payload) {
        Some(Detail::Bad(Bad { reason, bytes })) => format!("{reason}: {}", bytes_text(&bytes)),
        Some(Detail::Gap(Gap { reason, messages, bytes })) => {
            let mut text = reason;
            for (number, unit) in [(messages, "messages"), (bytes, "bytes")] {
                if let Some(number) = number {
                    let _ = write!(text, ", {number} {unit}");
                }
            }
            text
        }
        Some(Detail::Start(Start { version })) => format!("version {version}"),
        Some(Detail::ClockStep(ClockStep { wall_minus_log_us })) => {
            format!("wall clock minus log time {wall_minus_log_us} us")
        }
        None => bytes_text(payload),
    };
    if !text.is_empty() {
        write!(out, " {text}")?;
    }
    Ok(writeln!(out)?)
}

/// Decoded payload of a control record.
enum Detail {
    Bad(Bad),
    Gap(Gap),
    Start(Start),
    ClockStep(ClockStep),
}

impl Detail {
    /// `None`: the payload is shown as it is.
    fn of(kind: RecordKind, payload: &[u8]) -> Option<Detail> {
        match kind {
            RecordKind::Bad => postcard::from_bytes(payload).ok().map(Detail::Bad),
            RecordKind::Gap => postcard::from_bytes(payload).ok().map(Detail::Gap),
            RecordKind::Start => postcard::from_bytes(payload).ok().map(Detail::Start),
            RecordKind::ClockStep => postcard::from_bytes(payload).ok().map(Detail::ClockStep),
            RecordKind::Data
            | RecordKind::Tick
            | RecordKind::Connect
            | RecordKind::Disconnect
            | RecordKind::EndOfInput
            | RecordKind::ConfigChange
            | RecordKind::TableVersion => None,
        }
    }
}

/// Text as it is; control characters and what is not UTF-8 escaped, so that no payload can play with the terminal.
fn bytes_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[derive(Serialize)]
struct RecordJson<'a> {
    lsn: Lsn,
    time: String,
    source: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unsynchronised: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<PositionJson>,
    #[serde(flatten)]
    payload: PayloadJson<'a>,
}

#[derive(Serialize)]
struct PositionJson {
    inode: u64,
    offset: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PayloadJson<'a> {
    Empty {},
    Place(PayloadPlace),
    Text { payload: &'a str },
    Base64 { payload_base64: String },
    BadText { reason: String, payload: String },
    BadBase64 { reason: String, payload_base64: String },
    Gap(Gap),
    Start(Start),
    ClockStep(ClockStep),
}

fn record_json<'a>(
    lsn: Lsn,
    source: &'a str,
    run: &'a Run,
    position: Option<Position>,
    payload: &'a [u8],
    place: Option<PayloadPlace>,
) -> RecordJson<'a> {
    RecordJson {
        lsn,
        time: time_text(run.time),
        source,
        kind: run.kind.name(),
        peer: run.peer.as_deref(),
        unsynchronised: run.unsynchronised,
        position: position.map(|Position::File { inode, offset, .. }| PositionJson { inode, offset }),
        payload: place.map_or_else(|| payload_json(run.kind, payload), PayloadJson::Place),
    }
}

fn payload_json(kind: RecordKind, payload: &[u8]) -> PayloadJson<'_> {
    match Detail::of(kind, payload) {
        Some(Detail::Bad(Bad { reason, bytes })) => match String::from_utf8(bytes) {
            Ok(payload) => PayloadJson::BadText { reason, payload },
            Err(error) => PayloadJson::BadBase64 { reason, payload_base64: BASE64_STANDARD.encode(error.as_bytes()) },
        },
        Some(Detail::Gap(gap)) => PayloadJson::Gap(gap),
        Some(Detail::Start(start)) => PayloadJson::Start(start),
        Some(Detail::ClockStep(step)) => PayloadJson::ClockStep(step),
        None if payload.is_empty() && kind != RecordKind::Data => PayloadJson::Empty {},
        None => match std::str::from_utf8(payload) {
            Ok(payload) => PayloadJson::Text { payload },
            Err(_) => PayloadJson::Base64 { payload_base64: BASE64_STANDARD.encode(payload) },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Epoch;
    use crate::replay_log::{Identity, LogOptions, open};

    /// 2026-03-31T23:33:20Z
    const T: i64 = 1_775_000_000_000_000;

    fn state() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let sources = vec![(SourceId(0), "plant".to_owned()), (SourceId(1), "file".to_owned())];
        let identity = Identity { pipeline: "p".to_owned(), epoch: Epoch([0xab; 16]), sources };
        let options = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
        let (mut writer, _) = open(Arc::new(RealDisk), &log_dir(root.path()), identity, options, Lsn::ZERO).unwrap();
        let start = postcard::to_allocvec(&Start { version: "0.1.0".to_owned() }).unwrap();
        let bad = postcard::to_allocvec(&Bad { reason: "too long".to_owned(), bytes: vec![b'a', 0xff] }).unwrap();
        let gap = postcard::to_allocvec(&Gap { reason: "overrun".to_owned(), messages: Some(2), bytes: None }).unwrap();
        let mut plant = Run::new(SourceId(0), RecordKind::Data, LogTime(T + 1_000_000));
        plant.peer = Some(Arc::from("127.0.0.1:9"));
        plant.unsynchronised = true;
        plant.push("{\"a\":\"ü\"}".as_bytes());
        plant.push(b"\xfe\x1b[31m\\");
        let mut file = Run::new(SourceId(1), RecordKind::Data, LogTime(T + 2_000_000));
        file.position = Some(Position::File { inode: 5, head_crc: 0, head_len: 0, offset: 12 });
        file.push(b"one");
        file.push(b"");
        writer.append(vec![Run::one(SourceId::PIPELINE, RecordKind::Start, LogTime(T), &start)]).unwrap();
        writer.append(vec![plant, file]).unwrap();
        let late = LogTime(T + 3_000_000);
        writer
            .append(vec![
                Run::one(SourceId(0), RecordKind::Bad, late, &bad),
                Run::one(SourceId(0), RecordKind::Gap, late, &gap),
                Run::one(SourceId::PIPELINE, RecordKind::Tick, late, b""),
            ])
            .unwrap();
        root
    }

    fn shown(state: &Path, options: &CatOptions) -> String {
        let mut out = Vec::new();
        cat(state, options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn cat_prints_one_line_a_record() {
        let state = state();
        let expected = "\
1 2026-03-31T23:33:20.000000Z pipeline start version 0.1.0
2 2026-03-31T23:33:21.000000Z~ plant data 127.0.0.1:9 {\"a\":\"ü\"}
3 2026-03-31T23:33:21.000000Z~ plant data 127.0.0.1:9 \\xfe\\u{1b}[31m\\
4 2026-03-31T23:33:22.000000Z file data one
5 2026-03-31T23:33:22.000000Z file data
6 2026-03-31T23:33:23.000000Z plant bad too long: a\\xff
7 2026-03-31T23:33:23.000000Z plant gap overrun, 2 messages
8 2026-03-31T23:33:23.000000Z pipeline tick
";
        assert_eq!(shown(state.path(), &CatOptions::default()), expected);
    }

    #[test]
    fn cat_prints_json_with_text_or_base64() {
        let state = state();
        let expected = r#"{"lsn":1,"time":"2026-03-31T23:33:20.000000Z","source":"pipeline","kind":"start","version":"0.1.0"}
{"lsn":2,"time":"2026-03-31T23:33:21.000000Z","source":"plant","kind":"data","peer":"127.0.0.1:9","unsynchronised":true,"payload":"{\"a\":\"ü\"}"}
{"lsn":3,"time":"2026-03-31T23:33:21.000000Z","source":"plant","kind":"data","peer":"127.0.0.1:9","unsynchronised":true,"payload_base64":"/htbMzFtXA=="}
{"lsn":4,"time":"2026-03-31T23:33:22.000000Z","source":"file","kind":"data","payload":"one"}
{"lsn":5,"time":"2026-03-31T23:33:22.000000Z","source":"file","kind":"data","position":{"inode":5,"offset":12},"payload":""}
{"lsn":6,"time":"2026-03-31T23:33:23.000000Z","source":"plant","kind":"bad","reason":"too long","payload_base64":"Yf8="}
{"lsn":7,"time":"2026-03-31T23:33:23.000000Z","source":"plant","kind":"gap","reason":"overrun","messages":2,"bytes":null}
{"lsn":8,"time":"2026-03-31T23:33:23.000000Z","source":"pipeline","kind":"tick"}
"#;
        assert_eq!(shown(state.path(), &CatOptions { json: true, ..CatOptions::default() }), expected);
    }

    #[test]
    fn cat_selects_by_lsn_time_and_source() {
        let state = state();
        let lsns = |from: Option<&str>, to: Option<&str>, source: Option<&str>| {
            let at = |text: &str| At::parse(text, LogTime(T + 4_000_000)).unwrap();
            let options =
                CatOptions { from: from.map(at), to: to.map(at), source: source.map(str::to_owned), json: false };
            let text = shown(state.path(), &options);
            text.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!(lsns(Some("3"), Some("5"), None), [3, 4, 5]);
        assert_eq!(lsns(Some("2026-03-31T23:33:22Z"), None, None), [4, 5, 6, 7, 8]);
        assert_eq!(lsns(None, Some("2026-03-31T23:33:21Z"), None), [1, 2, 3]);
        assert_eq!(lsns(Some("2s"), None, None), [4, 5, 6, 7, 8]);
        assert!(lsns(Some("9"), None, None).is_empty());
        assert_eq!(lsns(None, None, Some("file")), [4, 5]);
        assert_eq!(lsns(None, None, Some("pipeline")), [1, 8]);
        let error = cat(
            state.path(),
            &CatOptions { source: Some("plont".to_owned()), ..CatOptions::default() },
            &mut Vec::new(),
        )
        .unwrap_err();
        assert_eq!(error.exit_code(), 64);
        assert!(error.to_string().contains("did you mean `plant`?"), "{error}");
        assert_eq!(At::parse("yesterday", LogTime(T)).unwrap_err().exit_code(), 64);
    }

    #[test]
    fn stat_and_verify_count_and_name_the_first_fault() {
        let state = state();
        let run = |f: fn(&Path, bool, &mut dyn Write) -> Result<(), LogCommandError>, json| {
            let mut out = Vec::new();
            let result = f(state.path(), json, &mut out);
            (result, String::from_utf8(out).unwrap())
        };
        let (result, text) = run(stat, false);
        result.unwrap();
        assert!(text.contains("records   8, LSN 1 to 8\n"), "{text}");
        assert!(text.contains("source    plant data: 2 records, 17 B\n"), "{text}");
        let (result, text) = run(stat, true);
        result.unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["records"], &value["last_lsn"]), (&8.into(), &8.into()));
        let (result, text) = run(verify, false);
        result.unwrap();
        assert!(text.ends_with("1 segment, 3 frames, 8 records checked: no fault\n"), "{text}");

        let file = log_dir(state.path()).join("000000000001.segment");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[4096 + 70] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let (result, text) = run(verify, false);
        let error = result.unwrap_err();
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains("000000000001.segment is corrupt at byte 4096"), "{error}");
        assert!(text.ends_with("1 segment, 0 frames, 0 records checked before the first fault\n"), "{text}");
        let (result, text) = run(verify, true);
        result.unwrap_err();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["ok"], &value["fault"]["offset"]), (&false.into(), &4096.into()));

        let none = tempfile::tempdir().unwrap();
        let error = stat(none.path(), false, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("there is no log in"), "{error}");
    }
}
