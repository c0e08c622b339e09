//! Repair of a damaged log, asked for by a person: what is intact and of use is written anew, the old files are moved
//! aside whole.
//!
//! - **What is kept**: the records behind the newest checkpoint's cut, up to the first place where their chain breaks.
//!   The engine needs nothing else: what the checkpoint covers is in it. Damage below the cut costs nothing, then.
//! - **What is cut**: everything behind that break, intact or not. To go on behind a hole would compute results that no
//!   log can give again.
//! - The new log begins at the LSN behind the cut, under a new epoch, and ends with a gap record that says what was cut.
//!   Its segments have higher numbers than the old ones, so that files of both never have one name.
//! - **Either the old log or the new one**: the new log is built in a directory beside ([`NEW_DIRECTORY`]), durable; then
//!   a checkpoint with the new epoch is committed, which is the one step that counts; then the files change places.
//!   [`install`] does that from whatever a crash has left, and every start calls it. A directory beside that is not of
//!   the checkpoint's epoch is a rest of a repair that came to nothing.
//!
//! It reads by the code that replay reads by. It does not repair checkpoints, and asks nobody.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogError;
use super::format::{ALIGNMENT, FormatError, PAGE_BYTES};
use super::retention::Segments;
use super::segment::{Cursor, Look, Opened, Segment, find_frame_without_header, list, segment_name};
use super::writer::{Identity, LogOptions, LogWriter};
use crate::disk::{Access, Disk};
use crate::event::{Epoch, Frame, LogTime, Lsn, Run, SourceId};

/// Where a state's new log is built.
pub const NEW_DIRECTORY: &str = "log.new";

/// A place where the log is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub file: PathBuf,
    pub offset: u64,
    pub what: String,
}

/// Frames that follow one another without a break.
#[derive(Clone, Debug)]
struct Stretch {
    first: Lsn,
    /// LSN behind the last record.
    next: Lsn,
    /// Between this stretch and the one before, a segment's number is missing.
    after_missing: bool,
}

/// What a repair would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPlan {
    /// What is wrong, in the order of the log.
    pub faults: Vec<Fault>,
    /// LSN that the newest checkpoint covers; the new log begins behind it.
    pub cut: Lsn,
    /// LSN behind the last record that is kept.
    pub next: Lsn,
    /// The last record that is known to have been there.
    pub known_last: Lsn,
    /// Payload bytes of intact records that are cut.
    pub cut_bytes: u64,
    /// Number of the stretch of frames that is kept.
    stretch: Option<usize>,
    /// Number of the first new segment.
    number: u64,
    sources: Vec<(SourceId, String)>,
    /// Length of the old segments, where a header tells it.
    segment_bytes: Option<u64>,
}

impl RepairPlan {
    /// Records behind the checkpoint that are kept.
    pub fn kept_records(&self) -> u64 {
        self.next.0.saturating_sub(self.cut.0 + 1)
    }

    /// Records that are known to be lost to the pipeline.
    pub fn lost_records(&self) -> u64 {
        (self.known_last.0 + 1).saturating_sub(self.next.0)
    }
}

/// A step of a walk over all that can be read.
enum Step<'a> {
    /// From here on frames follow one another, up to the next such step.
    Begin {
        at: Lsn,
        after_missing: bool,
    },
    Frame(&'a Frame),
    Fault(Fault),
    /// Something at the end of a segment that is no frame.
    Torn(Fault),
}

/// Goes over every intact frame. `epoch` is that of segments whose header is lost.
fn walk(
    disk: &dyn Disk,
    dir: &Path,
    epoch: Epoch,
    visit: &mut dyn FnMut(Step<'_>) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let mut before: Option<(u64, Cursor)> = None;
    let mut buffer = Vec::new();
    let numbers = list(disk, dir)?.unwrap_or_default().segments;
    let newest = numbers.last().copied();
    for number in numbers {
        let file = dir.join(segment_name(number));
        let fault = |offset, what: &str| Fault { file: file.clone(), offset, what: what.to_owned() };
        let (segment, mut cursor) = match Segment::open(disk, dir, number, Access::Read)? {
            Opened::Missing | Opened::Other => continue,
            Opened::Bad(why @ FormatError::UnknownVersion(_)) => return Err(LogError::header(&file, why)),
            Opened::Bad(why) => {
                let has_frames = find_frame_without_header(disk, dir, number)?.is_some();
                // What a roll has left that was cut short is the newest one and holds no frame.
                if has_frames || newest != Some(number) {
                    visit(Step::Fault(fault(0, &why.to_string())))?;
                }
                if !has_frames {
                    continue;
                }
                let segment = Segment::without_header(disk, dir, number, epoch)?;
                match segment.next_frame(PAGE_BYTES as u64)? {
                    Some(cursor) => (segment, cursor),
                    None => continue,
                }
            }
            Opened::Segment(segment) => {
                let start = segment.start();
                (segment, start)
            }
        };
        match before {
            Some((last, end)) if last + 1 == number => {
                if (end.lsn, end.previous_crc) != (cursor.lsn, cursor.previous_crc) {
                    let (file, what) =
                        (dir.join(segment_name(last)), "it ends before the next segment begins".to_owned());
                    visit(Step::Fault(Fault { file, offset: end.offset, what }))?;
                    visit(Step::Begin { at: cursor.lsn, after_missing: false })?;
                }
            }
            _ => visit(Step::Begin { at: cursor.lsn, after_missing: before.is_some() })?,
        }
        loop {
            let what = match segment.look(cursor, &mut buffer)? {
                Look::Frame { runs, next } => {
                    visit(Step::Frame(&Frame { first_lsn: cursor.lsn, runs }))?;
                    cursor = next;
                    continue;
                }
                Look::Nothing => None,
                Look::Bad(what) => Some(what),
            };
            let mut found = segment.next_frame(cursor.offset)?;
            if found == Some(cursor) {
                // Its checksum is right, its content is not.
                found = segment.next_frame(cursor.offset + ALIGNMENT as u64)?;
            }
            match (found, what) {
                (Some(next), what) => {
                    visit(Step::Fault(fault(cursor.offset, what.unwrap_or("a frame is missing"))))?;
                    visit(Step::Begin { at: next.lsn, after_missing: false })?;
                    cursor = next;
                }
                (None, Some(what)) => {
                    visit(Step::Torn(fault(cursor.offset, what)))?;
                    break;
                }
                (None, None) => break,
            }
        }
        before = Some((number, cursor));
    }
    Ok(())
}

/// Looks for damage. `None`: a start would find none.
///
/// `epoch` and `cut` are the newest checkpoint's.
///
/// # Errors
/// The log is another pipeline's, of another epoch or format version, or cannot be read.
pub fn examine(
    disk: &dyn Disk,
    dir: &Path,
    pipeline: &str,
    epoch: Epoch,
    cut: Lsn,
) -> Result<Option<RepairPlan>, LogError> {
    let names = list(disk, dir)?.unwrap_or_default();
    let (mut sources, mut segment_bytes) = (Vec::new(), None);
    for number in names.segments.iter().rev() {
        let Opened::Segment(segment) = Segment::open(disk, dir, *number, Access::Read)? else { continue };
        let (file, header) = (segment.path, segment.header);
        if header.pipeline != pipeline {
            return Err(LogError::WrongPipeline { file, found: header.pipeline, expected: pipeline.to_owned() });
        }
        if segment_bytes.is_none() {
            if header.epoch != epoch {
                return Err(LogError::WrongEpoch { file, found: header.epoch, expected: epoch });
            }
            (sources, segment_bytes) = (header.sources, Some(header.segment_bytes));
        }
    }

    let mut stretches: Vec<Stretch> = Vec::new();
    // Each with the number of stretches that begin before it.
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    let mut torn = None;
    walk(disk, dir, epoch, &mut |step| {
        match step {
            Step::Begin { at, after_missing } => {
                torn = None;
                stretches.push(Stretch { first: at, next: at, after_missing });
            }
            Step::Frame(frame) => {
                torn = None;
                if let Some(stretch) = stretches.last_mut() {
                    stretch.next = frame.last_lsn().plus(1);
                }
            }
            Step::Fault(fault) => faults.push((stretches.len(), fault)),
            Step::Torn(fault) => torn = Some(fault),
        }
        Ok(())
    })?;

    // Below a missing number lies what an unfinished trim has left, unless it is needed.
    let live = stretches.iter().rposition(|stretch| stretch.after_missing).unwrap_or(0);
    let begin = cut.plus(1);
    let whole = match stretches.get(live..) {
        // A start looks at every header, needed or not.
        Some([only]) => {
            let matters = |(at, fault): &(usize, Fault)| *at >= live || fault.offset == 0;
            only.first <= begin && begin <= only.next && !faults.iter().any(matters)
        }
        Some([]) | None => cut == Lsn::ZERO && faults.is_empty(),
        Some(_) => false,
    };
    if whole {
        return Ok(None);
    }
    let stretch = stretches.iter().rposition(|stretch| stretch.first <= begin && begin <= stretch.next);
    let next = stretch.and_then(|kept| stretches.get(kept)).map_or(begin, |kept| kept.next);
    let behind_last = stretches.iter().map(|stretch| stretch.next).max().unwrap_or(begin);
    let mut faults: Vec<Fault> = faults.into_iter().map(|(_, fault)| fault).collect();
    faults.extend(torn);
    if faults.is_empty() {
        let what = match stretches.iter().find(|stretch| stretch.after_missing) {
            Some(stretch) => format!("the segments before LSN {} are missing", stretch.first),
            None => match stretches.first() {
                Some(first) if first.first > begin => format!("it begins with LSN {}", first.first),
                Some(first) => format!("it ends before LSN {}", first.next),
                None => "it is empty".to_owned(),
            },
        };
        faults.push(Fault { file: dir.to_owned(), offset: 0, what });
    }
    let mut plan = RepairPlan {
        faults,
        cut,
        next,
        known_last: Lsn(behind_last.0.saturating_sub(1)).max(Lsn(next.0.saturating_sub(1))),
        cut_bytes: 0,
        stretch,
        number: names.segments.last().map_or(1, |number| number + 1),
        sources,
        segment_bytes,
    };
    measure(disk, dir, epoch, &mut plan)?;
    Ok(Some(plan))
}

/// Finds how far the kept records can be taken over, and what is cut.
fn measure(disk: &dyn Disk, dir: &Path, epoch: Epoch, plan: &mut RepairPlan) -> Result<(), LogError> {
    let mut unknown = None;
    let mut bytes = 0;
    each_frame(disk, dir, epoch, &mut |stretch, frame| {
        if frame.first_lsn <= plan.cut {
            return Ok(());
        }
        if Some(stretch) == plan.stretch && unknown.is_none() {
            // With a header the name of a source can be lost, and its records mean nothing then.
            let known = |run: &Run| {
                run.source == SourceId::PIPELINE || plan.sources.iter().any(|(source, _)| *source == run.source)
            };
            if frame.runs.iter().all(known) {
                return Ok(());
            }
            unknown = Some(frame.first_lsn);
        }
        bytes += frame.runs.iter().map(Run::payload_bytes).sum::<u64>();
        Ok(())
    })?;
    plan.next = unknown.unwrap_or(plan.next);
    plan.cut_bytes = bytes;
    Ok(())
}

/// Every intact frame with the number of its stretch.
fn each_frame(
    disk: &dyn Disk,
    dir: &Path,
    epoch: Epoch,
    visit: &mut dyn FnMut(usize, &Frame) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let mut stretches = 0usize;
    walk(disk, dir, epoch, &mut |step| {
        match step {
            Step::Begin { .. } => stretches += 1,
            Step::Frame(frame) => visit(stretches.saturating_sub(1), frame)?,
            Step::Fault(_) | Step::Torn(_) => {}
        }
        Ok(())
    })
}

/// What a repair builds its log with.
pub struct Rebuild<'a> {
    pub pipeline: &'a str,
    /// The old log's epoch, and the new one's.
    pub epochs: (Epoch, Epoch),
    /// The pipeline's options; segments keep their old length where that is known.
    pub options: LogOptions,
    /// Log time of the checkpoint's cut.
    pub cut_time: LogTime,
    /// The gap record that says what was cut.
    pub gap: Run,
}

/// Builds the new log of the state whose log is in `dir` in `new_dir`, durably. The old one stays as it is.
///
/// # Errors
/// The disk failed or is full; what was built is removed.
pub fn rebuild(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    new_dir: &Path,
    plan: &RepairPlan,
    how: Rebuild<'_>,
) -> Result<(), LogError> {
    remove_files(disk.as_ref(), new_dir)?;
    let built = build(disk, dir, new_dir, plan, how);
    if built.is_err() {
        // What cannot be removed now is removed by the next repair.
        let _ = remove_files(disk.as_ref(), new_dir);
    }
    built
}

fn build(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    new_dir: &Path,
    plan: &RepairPlan,
    how: Rebuild<'_>,
) -> Result<(), LogError> {
    disk.create_dir_all(new_dir).map_err(LogError::io("create", new_dir))?;
    let (old_epoch, epoch) = how.epochs;
    let identity = Identity { pipeline: how.pipeline.to_owned(), epoch, sources: plan.sources.clone() };
    // The cap holds for the log that is run; its checkpoints will bring it below.
    let segment_bytes = plan.segment_bytes.unwrap_or(how.options.segment_bytes);
    let options = LogOptions { max_bytes: u64::MAX / 2, segment_bytes, ..how.options };
    let segments = Segments::new(Arc::clone(disk), new_dir, options, Default::default());
    let mut writer = LogWriter::create(segments, identity, plan.number, plan.cut.plus(1), Some(how.cut_time))?;
    each_frame(disk.as_ref(), dir, old_epoch, &mut |stretch, frame| {
        if Some(stretch) == plan.stretch && frame.first_lsn > plan.cut && frame.first_lsn < plan.next {
            writer.append(frame.runs.clone())?;
        }
        Ok(())
    })?;
    writer.append(vec![how.gap])?;
    Ok(())
}

/// Puts a log that [`rebuild`] has made in place of the old one, whose files go to `aside`, if it is of the epoch that the
/// checkpoint says. Gives whether there was one.
///
/// # Errors
/// The disk failed; doing it again goes on.
pub fn install(disk: &dyn Disk, dir: &Path, new_dir: &Path, aside: &Path, epoch: Epoch) -> Result<bool, LogError> {
    let new = files(disk, new_dir)?;
    let of_epoch = |dir: &Path, name: &str| -> Result<bool, LogError> {
        let Some(number) = name.split('.').next().and_then(|number| number.parse().ok()) else { return Ok(false) };
        let opened = Segment::open(disk, dir, number, Access::Read)?;
        Ok(segment_name(number) == name && matches!(opened, Opened::Segment(it) if it.header.epoch == epoch))
    };
    match new.first() {
        Some(name) if of_epoch(new_dir, name)? => {}
        _ => return Ok(false),
    }
    disk.create_dir_all(dir).map_err(LogError::io("create", dir))?;
    disk.create_dir_all(aside).map_err(LogError::io("create", aside))?;
    let rename = |name: &String, from: &Path, to: &Path| {
        let path = from.join(name);
        disk.rename(&path, &to.join(name)).map_err(LogError::io("rename", &path))
    };
    let sync = |dir: &Path| disk.sync_dir(dir).map_err(LogError::io("sync", dir));
    for name in files(disk, dir)? {
        if !of_epoch(dir, &name)? {
            rename(&name, dir, aside)?;
        }
    }
    sync(aside)?;
    sync(dir)?;
    // The first one last: it shows that there is something to be done.
    for name in new.iter().rev() {
        rename(name, new_dir, dir)?;
        sync(dir)?;
        sync(new_dir)?;
    }
    disk.remove_dir(new_dir).map_err(LogError::io("remove", new_dir))?;
    Ok(true)
}

fn files(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, LogError> {
    match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        files => files.map_err(LogError::io("list", dir)),
    }
}

fn remove_files(disk: &dyn Disk, dir: &Path) -> Result<(), LogError> {
    for name in files(disk, dir)? {
        let path = dir.join(name);
        disk.remove(&path).map_err(LogError::io("remove", &path))?;
    }
    Ok(())
}
