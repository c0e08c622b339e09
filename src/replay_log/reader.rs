//! Reads a log from any LSN, one frame at a time: for replay, and for `stat`, `cat` and `verify` from another process
//! while the log is written.
//!
//! It changes nothing and holds one frame in memory. Every frame's checksum and its place in the chain are checked.
//! What is torn or still being written at the end is "no more for now". What is wrong elsewhere is corruption: a
//! reader that can race with the writer looks a second time before it says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogError;
use super::reference::References;
use super::segment::{Cursor, Look, Opened, Segment, find_frame_without_header, list, segment_name};
use crate::disk::{Access, Disk};
use crate::event::{Frame, LogTime, Lsn, Run, SourceId};

/// Reads frames in order.
pub struct LogReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Frames below are skipped.
    from: Lsn,
    segment: Segment,
    cursor: Cursor,
    buffer: Vec<u8>,
    references: References,
    /// Segment whose rest has been searched for frames behind its end.
    searched: u64,
    tail: Option<&'static str>,
    frame_bytes: u64,
}

impl LogReader {
    /// Opens the log in `dir` to read the frames that hold `from` and what follows; where the log starts later, all of
    /// it ([`LogReader::position`] tells).
    ///
    /// # Errors
    /// There is no log, it cannot be read, or a segment's header is corrupt.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, from: Lsn) -> Result<LogReader, LogError> {
        let segment = find_segment(disk.as_ref(), dir, from)?;
        let cursor = segment.start();
        Ok(LogReader {
            references: References::new(Arc::clone(&disk)),
            disk,
            dir: dir.to_owned(),
            from,
            segment,
            cursor,
            buffer: Vec::new(),
            searched: 0,
            tail: None,
            frame_bytes: 0,
        })
    }

    /// LSN of the next record to be read from the log (frames below `from` included).
    pub fn position(&self) -> Lsn {
        self.cursor.lsn
    }

    /// File and offset of the next frame.
    pub fn place(&self) -> (&Path, u64) {
        (&self.segment.path, self.cursor.offset)
    }

    /// The segment that is being read.
    pub fn header(&self) -> &super::format::SegmentHeader {
        &self.segment.header
    }

    /// Name of a source.
    pub fn source_name(&self, id: SourceId) -> Option<&str> {
        self.segment.header.sources.iter().find(|(known, _)| *known == id).map(|(_, name)| name.as_str())
    }

    /// Length in the log of the frame that was read last.
    pub fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }

    /// After [`LogReader::next`] has returned `None`: what is wrong at the end, if anything is: a torn tail, or a frame
    /// that is being written.
    pub fn tail(&self) -> Option<&'static str> {
        self.tail
    }

    /// The next frame with all payloads, also those that stand in files; `None`: there is no more for now.
    ///
    /// # Errors
    /// As [`LogReader::next_unread`]; or [`LogError::Referenced`].
    #[expect(clippy::should_implement_trait, reason = "not an iterator: after `None` there may be more")]
    pub fn next(&mut self) -> Result<Option<Frame>, LogError> {
        let Some(mut frame) = self.next_unread()? else { return Ok(None) };
        let mut lsn = frame.first_lsn;
        for run in &mut frame.runs {
            self.read_reference(run, lsn)?;
            lsn = lsn.plus(run.len() as u64);
        }
        Ok(Some(frame))
    }

    /// Reads the payloads of a run, whose first record is `lsn`, from the file that it refers to, if it does.
    ///
    /// # Errors
    /// [`LogError::Referenced`]: the file does not hold them any more. Or it cannot be read.
    pub fn read_reference(&mut self, run: &mut Run, lsn: Lsn) -> Result<(), LogError> {
        self.references.read(run, lsn)
    }

    /// The next frame; runs with a reference have no payload. `None`: there is no more for now.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] with the place; [`LogError::Trimmed`] where the writer has overtaken the reader; or the
    /// disk failed.
    pub fn next_unread(&mut self) -> Result<Option<Frame>, LogError> {
        loop {
            match self.step()? {
                Some(frame) if frame.last_lsn() < self.from => {}
                Some(frame) => return Ok(Some(frame)),
                None => return Ok(None),
            }
        }
    }

    fn step(&mut self) -> Result<Option<Frame>, LogError> {
        loop {
            self.tail = None;
            if let Some(frame) = self.look()?.frame() {
                return Ok(Some(frame));
            }
            // Where there is a next segment, this one was complete before it: look again after having seen it.
            match Segment::open(self.disk.as_ref(), &self.dir, self.segment.header.number + 1, Access::Read)? {
                Opened::Segment(next) => match self.look()? {
                    Step::Frame(frame) => return Ok(Some(frame)),
                    Step::Nothing | Step::Bad(_) if self.follows(&next) => {
                        self.cursor = next.start();
                        self.segment = next;
                    }
                    Step::Nothing => return Err(self.overtaken_or("the segment ends before the next one begins")?),
                    Step::Bad(what) => return Err(self.overtaken_or(what)?),
                },
                Opened::Bad(why) => {
                    let number = self.segment.header.number + 1;
                    if find_frame_without_header(self.disk.as_ref(), &self.dir, number)?.is_some() {
                        return Err(LogError::header(&self.dir.join(segment_name(number)), why));
                    }
                    return self.end();
                }
                Opened::Missing | Opened::Other => return self.end(),
            }
        }
    }

    /// At the end of the last segment.
    fn end(&mut self) -> Result<Option<Frame>, LogError> {
        if let Some(trimmed) = self.overtaken()? {
            return Err(trimmed);
        }
        let number = self.segment.header.number;
        let wrong = match self.look()? {
            Step::Frame(frame) => return Ok(Some(frame)),
            // Searched once: what is behind the end does not become a frame without the end becoming one.
            Step::Nothing if self.searched == number => return Ok(None),
            Step::Nothing => None,
            Step::Bad(what) => Some(what),
        };
        if let Some(found) = self.segment.find_frame(self.cursor.offset)? {
            // The writer may have been between two frames.
            if let Step::Frame(frame) = self.look()? {
                return Ok(Some(frame));
            }
            let what = wrong.unwrap_or("a frame is missing");
            let what = if found == self.cursor.offset {
                what.to_owned()
            } else {
                format!("{what}, but an intact frame follows at byte {found}")
            };
            return Err(self.overtaken_or(&what)?);
        }
        self.searched = number;
        self.tail = wrong;
        Ok(None)
    }

    fn look(&mut self) -> Result<Step, LogError> {
        Ok(match self.segment.look(self.cursor, &mut self.buffer)? {
            Look::Frame { runs, next } => {
                let frame = Frame { first_lsn: self.cursor.lsn, runs };
                self.cursor = next;
                self.frame_bytes = self.buffer.len() as u64;
                Step::Frame(frame)
            }
            Look::Nothing => Step::Nothing,
            Look::Bad(what) => Step::Bad(what),
        })
    }

    /// Whether this segment is complete as it has been read and `next` goes on from there.
    fn follows(&self, next: &Segment) -> bool {
        next.header.first_lsn == self.cursor.lsn
            && next.header.previous_crc == self.cursor.previous_crc
            && next.header.pipeline == self.segment.header.pipeline
    }

    fn overtaken_or(&self, what: &str) -> Result<LogError, LogError> {
        let corrupt = || LogError::corrupt(&self.segment.path, self.cursor.offset, what);
        Ok(self.overtaken()?.unwrap_or_else(corrupt))
    }

    /// The writer has trimmed the segment that is being read: its file is another one now, or none.
    fn overtaken(&self) -> Result<Option<LogError>, LogError> {
        if let Opened::Segment(again) =
            Segment::open(self.disk.as_ref(), &self.dir, self.segment.header.number, Access::Read)?
            && again.header == self.segment.header
        {
            return Ok(None);
        }
        let first = find_segment(self.disk.as_ref(), &self.dir, Lsn::ZERO)?.header.first_lsn;
        Ok((first > self.cursor.lsn).then_some(LogError::Trimmed { wanted: self.cursor.lsn, first }))
    }
}

enum Step {
    Frame(Frame),
    Nothing,
    Bad(&'static str),
}

impl Step {
    fn frame(self) -> Option<Frame> {
        match self {
            Step::Frame(frame) => Some(frame),
            Step::Nothing | Step::Bad(_) => None,
        }
    }
}

/// The segment that is written to, or was last.
pub(super) fn newest_segment(disk: &dyn Disk, dir: &Path) -> Result<Segment, LogError> {
    find_segment(disk, dir, Lsn(u64::MAX))
}

/// An LSN at or before the first record of this log time or later, by the segments' headers alone.
///
/// # Errors
/// There is no log, or it cannot be read.
pub fn lsn_before_time(disk: &dyn Disk, dir: &Path, time: LogTime) -> Result<Lsn, LogError> {
    let mut lsn = newest_segment(disk, dir)?.header.first_lsn;
    for number in list(disk, dir)?.unwrap_or_default().segments.into_iter().rev() {
        if let Opened::Segment(segment) = Segment::open(disk, dir, number, Access::Read)? {
            lsn = lsn.min(segment.header.first_lsn);
            if segment.header.last_time.is_none_or(|last| last < time) {
                break;
            }
        }
    }
    Ok(lsn)
}

/// The last segment that starts at or before `from`, else the first one.
fn find_segment(disk: &dyn Disk, dir: &Path, from: Lsn) -> Result<Segment, LogError> {
    /// A writer can trim all the segments of a list before they are opened, but not again and again.
    const ATTEMPTS: usize = 20;
    for _ in 0..ATTEMPTS {
        let names = list(disk, dir)?.unwrap_or_default();
        if let Some(segment) = find_listed(disk, dir, from, &names.segments)? {
            return Ok(segment);
        }
        if names.segments.is_empty() && names.spares.is_empty() {
            break;
        }
    }
    Err(LogError::NoLog { dir: dir.to_owned() })
}

fn find_listed(disk: &dyn Disk, dir: &Path, from: Lsn, numbers: &[u64]) -> Result<Option<Segment>, LogError> {
    let mut found: Option<Segment> = None;
    for number in numbers.iter().rev().copied() {
        match Segment::open(disk, dir, number, Access::Read)? {
            Opened::Segment(segment) => {
                // Below a gap lies what an unfinished trim has left.
                if found.as_ref().is_some_and(|found| found.header.number != number + 1) {
                    break;
                }
                let early = segment.header.first_lsn <= from;
                found = Some(segment);
                if early {
                    break;
                }
            }
            Opened::Bad(why) => {
                // The highest one may be what a roll has left that was cut short, if no frame is in it.
                if found.is_some() || find_frame_without_header(disk, dir, number)?.is_some() {
                    return Err(LogError::header(&dir.join(segment_name(number)), why));
                }
            }
            Opened::Missing | Opened::Other => {}
        }
    }
    Ok(found)
}
