//! The one writer of a log.
//!
//! Invariants:
//! - A frame is written only after the sync of the frame before it has returned; so at most one frame is ever torn.
//! - What [`LogWriter::append`] returns is durable.
//! - Log time never decreases from record to record.
//! - After a failed write, sync or rename nothing more is written until the log is opened again: the system may have
//!   dropped the pages that it could not write. Want of space is no failure, it is waited for.

use std::ops::Range;
use std::time::Duration;

use super::LogError;
use super::format::{
    ALIGNMENT, Compression, FRAME_HEADER_BYTES, FrameEncoder, PAGE_BYTES, PEER_BYTES_MAX, Place, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, SegmentHeader, VERSION_PLAIN, VERSION_REFERENCES, frame_bytes, length_bytes, max_frame_bytes,
    max_record_bytes, record_bytes, run_head_bytes,
};
use super::retention::{Active, Segments};
use super::segment::{Cursor, last_time};
use crate::event::{Epoch, Frame, LogTime, Lsn, RecordKind, Run, SourceId};

/// Least number of segments that `max_bytes` must have room for: one to trim, the active one, one to fill, the reserve.
const SEGMENTS_MIN: u64 = 4;

/// How a log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Length of a segment: a multiple of 4096, 64 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// Hard cap over all segments and spares; at least four segments.
    pub max_bytes: u64,
    pub compression: Compression,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { segment_bytes: 16 << 20, max_bytes: 1 << 30, compression: Compression::Lz4 }
    }
}

impl LogOptions {
    /// Longest record that can be logged; framing must refuse longer ones.
    pub fn max_record_bytes(&self) -> usize {
        max_record_bytes(self.segment_bytes)
    }

    pub(super) fn check(&self) -> Result<(), LogError> {
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(PAGE_BYTES as u64)
        {
            return Err(LogError::Options(format!(
                "`log.segment` must be a multiple of 4KiB between 64KiB and 1GiB, not {} bytes",
                self.segment_bytes
            )));
        }
        if self.max_bytes / self.segment_bytes < SEGMENTS_MIN {
            return Err(LogError::Options(format!(
                "`log.max_size` ({} bytes) must hold at least {SEGMENTS_MIN} segments of {} bytes",
                self.max_bytes, self.segment_bytes
            )));
        }
        Ok(())
    }
}

/// What a log belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pipeline: String,
    pub epoch: Epoch,
    /// Names of all sources that the log may hold records of; see [`super::merge_sources`].
    pub sources: Vec<(SourceId, String)>,
}

/// What to do after a wait for disk space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Try again.
    Retry,
    /// A checkpoint has freed this much of the log: trim below it, then try again.
    Trim(Lsn),
    /// Give up with [`LogError::NoSpace`].
    Stop,
}

/// Called while there is no space: waits for at most the given time, or until there is something to do.
pub type SpaceWait = Box<dyn FnMut(Duration) -> Wait + Send>;

/// What a writer has done since it was opened, and what the log takes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Payload bytes taken in.
    pub payload_bytes: u64,
    /// Bytes written: frames, headers, zeros of new segments.
    pub written_bytes: u64,
    /// Bytes that a device writes for them: whole pages of 4 KiB, one that several syncs have changed each time.
    pub device_bytes: u64,
    pub frames: u64,
    pub records: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
    /// Segments that hold the log.
    pub segments: u64,
    /// Bytes that segments and spares take on the disk.
    pub disk_bytes: u64,
}

/// Appends to a log. Made by [`super::open`].
pub struct LogWriter {
    segments: Segments,
    identity: Identity,
    active: Active,
    cursor: Cursor,
    last_time: Option<LogTime>,
    /// Format version of new segments: that of references from the first one on.
    version: u32,
    encoder: FrameEncoder,
    poisoned: Option<String>,
}

impl LogWriter {
    /// A writer that goes on at `cursor` in the active segment.
    pub(super) fn resume(
        segments: Segments,
        identity: Identity,
        active: Active,
        cursor: Cursor,
        last_time: Option<LogTime>,
    ) -> LogWriter {
        let encoder = FrameEncoder::new(segments.options.compression);
        let version = VERSION_PLAIN;
        LogWriter { segments, identity, active, cursor, last_time, version, encoder, poisoned: None }
    }

    /// A writer of a log that has no segment yet; its first one gets this number, its first record this LSN.
    pub(super) fn create(
        mut segments: Segments,
        identity: Identity,
        number: u64,
        first_lsn: Lsn,
        last_time: Option<LogTime>,
    ) -> Result<LogWriter, LogError> {
        let mut cursor = Cursor { offset: 0, lsn: first_lsn, previous_crc: 0 };
        let active =
            segments.create(&segment_header(&segments, &identity, number, cursor, last_time, VERSION_PLAIN))?;
        cursor.offset = active.header_bytes;
        Ok(LogWriter::resume(segments, identity, active, cursor, last_time))
    }

    /// Logs runs durably, empty ones left out, and returns them as frames with their LSNs, ready to be processed.
    ///
    /// A run that does not fit into one frame is split between records; a position stays on its last part, so that the
    /// source of a run with a position had better keep it smaller (`max_frame_bytes`). One with a reference is not split,
    /// and too large if it does not fit. A run whose time is before that of the record before it gets that time.
    ///
    /// # Errors
    /// [`LogError::Full`] (see [`LogWriter::has_room`]), [`LogError::TooLarge`] and [`LogError::Malformed`]: nothing
    /// was logged. [`LogError::NoSpace`]: the wait for space was stopped; some of the frames may have been logged.
    /// Else the disk failed and the writer takes nothing more.
    pub fn append(&mut self, mut runs: Vec<Run>) -> Result<Vec<Frame>, LogError> {
        self.check_poisoned()?;
        let plan = plan(&runs, max_frame_bytes(self.segments.options.segment_bytes))?;
        if !self.fits(&plan, is_control(&runs)) {
            return Err(LogError::Full { bytes: self.segments.bytes().0 });
        }
        let mut time = self.last_time;
        for run in &mut runs {
            run.time = time.map_or(run.time, |time| time.max(run.time));
            time = Some(run.time);
        }
        let result = split(runs, plan).into_iter().map(|runs| self.append_frame(runs)).collect();
        self.poison_on_failure(result)
    }

    /// Whether [`LogWriter::append`] would take these runs now. Where not, the caller keeps them and waits for a trim.
    pub fn has_room(&self, runs: &[Run]) -> bool {
        plan(runs, max_frame_bytes(self.segments.options.segment_bytes))
            .is_ok_and(|plan| self.fits(&plan, is_control(runs)))
    }

    /// Lets go of whole segments whose records are all below this LSN.
    ///
    /// # Errors
    /// The disk failed; the writer takes nothing more.
    pub fn trim(&mut self, below: Lsn) -> Result<(), LogError> {
        self.check_poisoned()?;
        let result = self.segments.trim(below);
        self.poison_on_failure(result)
    }

    /// Gives back the space of files that wait to become segments.
    ///
    /// # Errors
    /// The disk failed; the writer takes nothing more.
    pub fn release_spares(&mut self) -> Result<(), LogError> {
        self.check_poisoned()?;
        let result = self.segments.release_spares();
        self.poison_on_failure(result)
    }

    /// Sets what is done while there is no space. At first it gives up at once.
    pub fn set_space_wait(&mut self, wait: SpaceWait) {
        self.segments.space_wait = wait;
    }

    /// LSN of the last durable record; [`Lsn::ZERO`] where there is none.
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.cursor.lsn.0.saturating_sub(1))
    }

    /// LSN of the first record that is still there (of the next one, where none is).
    pub fn first_lsn(&self) -> Lsn {
        self.segments.live.front().map_or(self.cursor.lsn, |segment| segment.first_lsn)
    }

    /// Log time of the last record.
    pub fn last_time(&self) -> Option<LogTime> {
        self.last_time
    }

    /// Names of the sources.
    pub fn sources(&self) -> &[(SourceId, String)] {
        &self.identity.sources
    }

    /// Counters.
    pub fn stats(&self) -> LogStats {
        LogStats {
            segments: self.segments.live.len() as u64,
            disk_bytes: self.segments.bytes().1,
            ..self.segments.stats
        }
    }

    /// Goes on in a new segment.
    pub(super) fn roll(&mut self) -> Result<(), LogError> {
        // Every frame of the old segment was synced when it was written.
        let number = self.active.number + 1;
        let header = segment_header(&self.segments, &self.identity, number, self.cursor, self.last_time, self.version);
        self.active = self.segments.create(&header)?;
        self.cursor.offset = self.active.header_bytes;
        Ok(())
    }

    fn append_frame(&mut self, runs: Vec<Run>) -> Result<Frame, LogError> {
        if refers(&runs) {
            self.version = VERSION_REFERENCES;
        }
        let mut crc = self.encode(&runs)?;
        if self.active.version < self.version || !self.holds(self.cursor.offset, self.encoder.frame.len()) {
            self.roll()?;
            crc = self.encode(&runs)?;
        }
        let length = self.encoder.frame.len() as u64;
        if self.cursor.offset + length < self.active.segment_bytes {
            self.encoder.frame.extend_from_slice(&[0; ALIGNMENT]);
        }
        self.segments.write(self.active.file.as_ref(), &self.active.path, &self.encoder.frame, self.cursor.offset)?;
        self.segments.sync(self.active.file.as_ref(), &self.active.path)?;

        let frame = Frame { first_lsn: self.cursor.lsn, runs };
        self.cursor =
            Cursor { offset: self.cursor.offset + length, lsn: self.cursor.lsn.plus(frame.len()), previous_crc: crc };
        self.last_time = last_time(&frame.runs).or(self.last_time);
        let stats = &mut self.segments.stats;
        stats.frames += 1;
        stats.records += frame.len();
        stats.payload_bytes += frame.runs.iter().map(Run::payload_bytes).sum::<u64>();
        Ok(frame)
    }

    fn encode(&mut self, runs: &[Run]) -> Result<u32, LogError> {
        let place = Place { epoch: self.identity.epoch, segment: self.active.number, offset: self.cursor.offset };
        let limit = max_frame_bytes(self.segments.options.segment_bytes);
        self.encoder
            .encode(&place, self.cursor.lsn, self.cursor.previous_crc, runs, limit)
            .map_err(|_| LogError::TooLarge { bytes: self.encoder.frame.len(), limit })
    }

    /// Whether the active segment takes a frame of this length at this offset.
    fn holds(&self, offset: u64, length: usize) -> bool {
        offset + length as u64 <= self.active.segment_bytes && length <= max_frame_bytes(self.active.segment_bytes)
    }

    /// Whether frames of at most the planned lengths stay within the cap. The last segment below it is a reserve for
    /// control records: they bring about the checkpoint that frees the others.
    fn fits(&self, plan: &[Planned], control: bool) -> bool {
        let LogOptions { segment_bytes, max_bytes, .. } = self.segments.options;
        let mut taken = self.segments.bytes().0;
        let mut offset = self.cursor.offset;
        let mut in_active = true;
        for planned in plan {
            let length = frame_bytes(planned.body_bytes);
            let holds = match in_active {
                true if planned.refers && self.active.version < VERSION_REFERENCES => false,
                true => self.holds(offset, length),
                false => offset + length as u64 <= segment_bytes,
            };
            if !holds {
                taken += segment_bytes;
                offset = self.active.header_bytes;
                in_active = false;
            }
            offset += length as u64;
        }
        taken + if control { 0 } else { segment_bytes } <= max_bytes
    }

    fn check_poisoned(&self) -> Result<(), LogError> {
        match &self.poisoned {
            Some(cause) => Err(LogError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn poison_on_failure<T>(&mut self, result: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(error @ LogError::Io { .. }) = &result {
            self.poisoned = Some(error.to_string());
        }
        result
    }
}

fn segment_header(
    segments: &Segments,
    identity: &Identity,
    number: u64,
    cursor: Cursor,
    last_time: Option<LogTime>,
    version: u32,
) -> SegmentHeader {
    SegmentHeader {
        version,
        pipeline: identity.pipeline.clone(),
        epoch: identity.epoch,
        number,
        first_lsn: cursor.lsn,
        previous_crc: cursor.previous_crc,
        last_time,
        segment_bytes: segments.options.segment_bytes,
        sources: identity.sources.clone(),
    }
}

/// Records of the pipeline itself, and gaps, which stand for what a full log could not take.
fn is_control(runs: &[Run]) -> bool {
    runs.iter().all(|run| run.source == SourceId::PIPELINE || run.kind == RecordKind::Gap)
}

fn refers(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.reference.is_some())
}

/// A frame to be: parts of runs.
#[derive(Default)]
struct Planned {
    parts: Vec<Part>,
    /// It will hold a reference.
    refers: bool,
    /// Greatest length of its body before compression.
    body_bytes: usize,
}

struct Part {
    run: usize,
    records: Range<usize>,
    payload: Range<usize>,
}

/// Cuts runs into frames of at most `limit` bytes, between records.
fn plan(runs: &[Run], limit: usize) -> Result<Vec<Planned>, LogError> {
    let body_limit = limit.saturating_sub(FRAME_HEADER_BYTES);
    let mut frames: Vec<Planned> = Vec::new();
    let mut open = Planned::default();
    for (index, run) in runs.iter().enumerate() {
        let payload_bytes = run.payload_bytes();
        // A repair takes references over without having read them.
        let unread = run.reference.is_some() && run.payload.is_empty();
        if payload_bytes != run.payload.len() as u64 && !unread {
            return Err(LogError::Malformed);
        }
        if let Some(peer) = run.peer.as_deref().filter(|peer| peer.len() > PEER_BYTES_MAX) {
            return Err(LogError::TooLarge { bytes: peer.len(), limit: PEER_BYTES_MAX });
        }
        let head = run_head_bytes(run);
        let record_bytes = if run.reference.is_some() { length_bytes } else { record_bytes };
        // A run that fits into one frame is not split: only its end carries its position, and a crash between its parts
        // would have the first part read again.
        let whole = head + run.lengths.iter().map(|length| record_bytes(*length)).sum::<usize>();
        if !open.parts.is_empty() && whole <= body_limit && open.body_bytes + whole > body_limit {
            frames.push(std::mem::take(&mut open));
        }
        if run.reference.is_some() && whole > body_limit {
            return Err(LogError::TooLarge { bytes: whole, limit: body_limit });
        }
        open.refers |= run.reference.is_some();
        if open.body_bytes + whole <= body_limit && !run.is_empty() {
            open.parts.push(Part { run: index, records: 0..run.len(), payload: 0..run.payload.len() });
            open.body_bytes += whole;
            continue;
        }
        let mut part = Part { run: index, records: 0..0, payload: 0..0 };
        for (at, length) in run.lengths.iter().enumerate() {
            let bytes = record_bytes(*length);
            let more = if part.records.is_empty() { head + bytes } else { bytes };
            if open.body_bytes + more > body_limit {
                if head + bytes > body_limit {
                    let limit = body_limit.saturating_sub(head + 5);
                    return Err(LogError::TooLarge { bytes: *length as usize, limit });
                }
                let rest = Part { run: index, records: at..at, payload: part.payload.end..part.payload.end };
                let done = std::mem::replace(&mut part, rest);
                if !done.records.is_empty() {
                    open.parts.push(done);
                }
                frames.push(std::mem::take(&mut open));
                open.body_bytes = head;
            } else if part.records.is_empty() {
                open.body_bytes += head;
            }
            open.body_bytes += bytes;
            part.records.end += 1;
            part.payload.end += *length as usize;
        }
        if !part.records.is_empty() {
            open.parts.push(part);
        }
    }
    if !open.parts.is_empty() {
        frames.push(open);
    }
    Ok(frames)
}

/// Carries out a plan. Runs that stay whole are moved, not copied.
fn split(runs: Vec<Run>, plan: Vec<Planned>) -> Vec<Vec<Run>> {
    let mut runs: Vec<Option<Run>> = runs.into_iter().map(Some).collect();
    let mut take = |part: Part| {
        let slot = runs.get_mut(part.run)?;
        let run = slot.as_ref()?;
        if part.records == (0..run.len()) {
            return slot.take();
        }
        let last = part.records.end == run.len();
        Some(Run {
            peer: run.peer.clone(),
            position: run.position.filter(|_| last),
            reference: None,
            lengths: run.lengths.get(part.records)?.to_vec(),
            payload: run.payload.get(part.payload)?.to_vec(),
            ..*run
        })
    };
    plan.into_iter().map(|planned| planned.parts.into_iter().filter_map(&mut take).collect()).collect()
}
