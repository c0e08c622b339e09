//! Opening a log after whatever has happened to it.
//!
//! - Frame N+1 is written only after N was synced. So what is wrong with nothing intact behind it is a **torn tail**: it
//!   was never durable, nobody has seen it, it is cut. What is wrong with an intact frame or segment behind it, or
//!   below a checkpoint, is **corruption**: nothing is changed, nothing is started.
//! - All is checked before anything is written.
//! - The tail is durable before anyone reads it: bytes survive the death of a process unsynced, and their effects must
//!   not outlive them in a power cut. The last frame is written again for this: where its sync has failed, the system
//!   may hold its pages for clean, and a sync alone would do nothing.
//! - Only the last segment is read whole. Older frames are checked when they are replayed.
//!
//! Where the eight bytes at the log's end are zero, nothing was begun there (each frame is written with eight zero bytes
//! behind it), and older bytes of a recycled segment may follow; they never validate and stay. Else the end is torn, and
//! zeros are written from there to the segment's end.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogError;
use super::format::{ALIGNMENT, FormatError, SegmentHeader};
use super::retention::{Active, Live, Segments};
use super::segment::{Cursor, Look, Names, Opened, Segment, find_frame_without_header, last_time, list, segment_name};
use super::writer::{Identity, LogOptions, LogWriter};
use crate::disk::{Access, Disk};
use crate::event::{LogTime, Lsn, SourceId};

/// What was found when a log was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// There was no log.
    pub created: bool,
    /// LSN of the first record that is there (of the next one, where none is).
    pub first_lsn: Lsn,
    /// LSN of the last record; [`Lsn::ZERO`] where there is none.
    pub last_lsn: Lsn,
    /// Log time of the last record, trimmed or not.
    pub last_time: Option<LogTime>,
    /// A tail that was cut.
    pub torn: Option<Torn>,
}

/// A torn tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    pub file: PathBuf,
    /// Where the log ends now.
    pub offset: u64,
    /// What was wrong there.
    pub what: &'static str,
}

/// Opens the log in `dir`, creating it where there is none and `cut` is zero. `cut` is the LSN that the newest
/// checkpoint covers.
///
/// # Errors
/// Corruption, another pipeline's log, another epoch or format version: nothing was changed. Or the disk failed.
pub fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    identity: Identity,
    options: LogOptions,
    cut: Lsn,
) -> Result<(LogWriter, Recovered), LogError> {
    options.check()?;
    let names = list(disk.as_ref(), dir)?.unwrap_or_default();
    let survey = survey(disk.as_ref(), dir, &identity, names)?;
    match survey.headers.back() {
        Some(last) => resume(disk, dir, identity, options, cut, &survey, last),
        None if cut > Lsn::ZERO => Err(lost(dir, Lsn(1), Lsn::ZERO, cut)),
        None => {
            disk.create_dir_all(dir).map_err(LogError::io("create", dir))?;
            discard(disk.as_ref(), dir, &survey.leftovers)?;
            let mut segments = Segments::new(disk, dir, options, VecDeque::new());
            segments.adopt_spares(&survey.spares)?;
            let writer = LogWriter::create(segments, identity, 1, Lsn(1), None)?;
            let recovered =
                Recovered { created: true, first_lsn: Lsn(1), last_lsn: Lsn::ZERO, last_time: None, torn: None };
            Ok((writer, recovered))
        }
    }
}

pub(super) fn lost(dir: &Path, first: Lsn, last: Lsn, cut: Lsn) -> LogError {
    let held = if last < first { "it is empty".to_owned() } else { format!("it holds LSN {first} to {last}") };
    LogError::Lost { dir: dir.to_owned(), held, cut }
}

/// The segments by their headers.
struct Survey {
    /// Those that make up the log: consecutive, ascending.
    headers: VecDeque<SegmentHeader>,
    /// Files of an unfinished trim or roll, with what shows it.
    leftovers: Vec<(u64, String)>,
    spares: Vec<u64>,
}

fn survey(disk: &dyn Disk, dir: &Path, identity: &Identity, names: Names) -> Result<Survey, LogError> {
    let mut survey = Survey { headers: VecDeque::new(), leftovers: Vec::new(), spares: names.spares };
    for number in names.segments.into_iter().rev() {
        let file = dir.join(segment_name(number));
        let header = match Segment::open(disk, dir, number, Access::Read)? {
            Opened::Missing => continue,
            Opened::Other => {
                survey.leftovers.push((number, "its header is of another segment".to_owned()));
                continue;
            }
            Opened::Bad(why @ FormatError::UnknownVersion(_)) => return Err(LogError::header(&file, why)),
            Opened::Bad(why) if survey.headers.is_empty() => {
                // A roll that was cut short, unless there are frames: those are only written behind a durable header.
                if let Some(offset) = find_frame_without_header(disk, dir, number)? {
                    let what = format!("{why}, but a frame follows at byte {offset}");
                    return Err(LogError::corrupt(&file, 0, what));
                }
                survey.leftovers.push((number, why.to_string()));
                continue;
            }
            Opened::Bad(why) => return Err(LogError::header(&file, why)),
            Opened::Segment(segment) => segment.header,
        };
        if header.pipeline != identity.pipeline {
            let expected = identity.pipeline.clone();
            return Err(LogError::WrongPipeline { file, found: header.pipeline, expected });
        }
        match survey.headers.front() {
            // A repair mints an epoch and leaves the segments before the cut as they are.
            None if header.epoch != identity.epoch => {
                return Err(LogError::WrongEpoch { file, found: header.epoch, expected: identity.epoch });
            }
            None => survey.headers.push_front(header),
            Some(next) if next.number == number + 1 => survey.headers.push_front(header),
            Some(_) => survey.leftovers.push((number, "the segment after it has been trimmed".to_owned())),
        }
    }
    Ok(survey)
}

/// Removes what an unfinished trim or roll has left.
fn discard(disk: &dyn Disk, dir: &Path, leftovers: &[(u64, String)]) -> Result<(), LogError> {
    for (number, why) in leftovers {
        let path = dir.join(segment_name(*number));
        tracing::warn!(file = %path.display(), why, "removed what an unfinished roll or trim of the log has left");
        disk.remove(&path).map_err(LogError::io("remove", &path))?;
    }
    Ok(())
}

/// Where the last segment ends.
struct End {
    cursor: Cursor,
    /// Where the last frame stands, if the segment has one.
    last_frame: Option<Cursor>,
    last_time: Option<LogTime>,
    torn: Option<&'static str>,
}

fn scan(segment: &Segment) -> Result<End, LogError> {
    let mut end = End { cursor: segment.start(), last_frame: None, last_time: segment.header.last_time, torn: None };
    let mut buffer = Vec::new();
    loop {
        match segment.look(end.cursor, &mut buffer)? {
            Look::Frame { runs, next } => {
                end.last_frame = Some(end.cursor);
                end.cursor = next;
                end.last_time = last_time(&runs).or(end.last_time);
            }
            Look::Nothing => break,
            Look::Bad(what) => {
                end.torn = Some(what);
                break;
            }
        }
    }
    if let Some(found) = segment.find_frame(end.cursor.offset)? {
        let what = end.torn.unwrap_or("a frame is missing");
        let what = if found == end.cursor.offset {
            what.to_owned()
        } else {
            format!("{what}, but an intact frame follows at byte {found}")
        };
        return Err(LogError::corrupt(&segment.path, end.cursor.offset, what));
    }
    Ok(end)
}

fn resume(
    disk: Arc<dyn Disk>,
    dir: &Path,
    identity: Identity,
    options: LogOptions,
    cut: Lsn,
    survey: &Survey,
    last: &SegmentHeader,
) -> Result<(LogWriter, Recovered), LogError> {
    check_sources(&last.sources, &identity.sources)?;
    let segment = match Segment::open(disk.as_ref(), dir, last.number, Access::ReadWrite)? {
        Opened::Segment(segment) => segment,
        _ => return Err(LogError::corrupt(&dir.join(segment_name(last.number)), 0, "its header has changed")),
    };
    let end = scan(&segment)?;
    let first_lsn = survey.headers.front().map_or(last.first_lsn, |header| header.first_lsn);
    let last_lsn = Lsn(end.cursor.lsn.0.saturating_sub(1));
    if let Some(what) = end.torn.filter(|_| last_lsn < cut) {
        let what = format!("{what}, but a checkpoint covers all up to LSN {cut} and the log ends here at {last_lsn}");
        return Err(LogError::corrupt(&segment.path, end.cursor.offset, what));
    }
    if last_lsn < cut || first_lsn > cut.plus(1) {
        return Err(lost(dir, first_lsn, last_lsn, cut));
    }

    // All is checked; from here on the disk is written to.
    discard(disk.as_ref(), dir, &survey.leftovers)?;
    let torn = settle_tail(&segment, &end)?;
    disk.sync_dir(dir).map_err(LogError::io("sync", dir))?;

    let mut live = VecDeque::new();
    for header in &survey.headers {
        let path = dir.join(segment_name(header.number));
        let bytes = disk.len(&path).map_err(LogError::io("look at", &path))?;
        live.push_back(Live { number: header.number, first_lsn: header.first_lsn, bytes });
    }
    let mut segments = Segments::new(disk, dir, options, live);
    segments.adopt_spares(&survey.spares)?;
    let new_table = segment.header.sources != identity.sources;
    let active = Active {
        file: segment.file,
        path: segment.path,
        number: segment.header.number,
        version: segment.header.version,
        header_bytes: segment.header_bytes,
        segment_bytes: segment.header.segment_bytes,
    };
    let mut writer = LogWriter::resume(segments, identity, active, end.cursor, end.last_time);
    if new_table {
        writer.roll()?;
    }
    Ok((writer, Recovered { created: false, first_lsn, last_lsn, last_time: end.last_time, torn }))
}

/// Cuts a torn tail and makes what is left durable.
fn settle_tail(segment: &Segment, end: &End) -> Result<Option<Torn>, LogError> {
    let Segment { file, path, header, .. } = segment;
    let offset = end.cursor.offset;
    let length = file.length().map_err(LogError::io("read", path))?;
    let mut torn = end.torn;
    if torn.is_some() {
        file.write_zeros(offset, header.segment_bytes).map_err(LogError::io("write", path))?;
    } else if length < header.segment_bytes {
        torn = Some("the file is shorter than it was");
        file.write_zeros(length, header.segment_bytes).map_err(LogError::io("write", path))?;
    }
    if let Some(last_frame) = end.last_frame {
        let mut frame = Vec::new();
        segment.look(last_frame, &mut frame)?;
        if offset < header.segment_bytes {
            frame.extend_from_slice(&[0; ALIGNMENT]);
        }
        file.write_all_at(&frame, last_frame.offset).map_err(LogError::io("write", path))?;
    }
    file.sync().map_err(LogError::io("sync", path))?;
    let torn = torn.map(|what| Torn { file: path.clone(), offset, what });
    if let Some(torn) = &torn {
        tracing::warn!(file = %path.display(), offset, what = torn.what, "cut a torn tail of the log, which was never durable");
    }
    Ok(torn)
}

/// A number that means one source in old records must not mean another in new ones.
fn check_sources(old: &[(SourceId, String)], new: &[(SourceId, String)]) -> Result<(), LogError> {
    match old.iter().find(|entry| !new.contains(entry)) {
        Some((id, name)) => Err(LogError::Options(format!(
            "source `{name}` has number {} in the log, but another one in the pipeline: this is a bug",
            id.0
        ))),
        None => Ok(()),
    }
}
