//! What `log stat` and `log verify` gather: the whole log, read by the loop that replay uses.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::recovery::lost;
use super::segment::{list, segment_name, spare_name};
use super::{LogError, LogReader};
use crate::disk::Disk;
use crate::event::{Frame, Gap, LogTime, Lsn, RecordKind, Run, SourceId};

/// A log in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub pipeline: String,
    pub epoch: String,
    /// Segments that were read, whole or up to a fault.
    pub segments: Vec<SegmentSummary>,
    pub spares: usize,
    /// Bytes that segments and spares take on the disk.
    pub disk_bytes: u64,
    pub first_lsn: Lsn,
    /// [`Lsn::ZERO`]: no record was ever logged.
    pub last_lsn: Lsn,
    pub first_time: Option<LogTime>,
    pub last_time: Option<LogTime>,
    /// By source and kind.
    pub kinds: BTreeMap<(String, &'static str), KindSummary>,
    /// LSN that the newest checkpoint covers, set by the caller: what the log holds behind it a replay needs.
    pub cut: Lsn,
    /// Files that the log refers to, by source and name.
    pub files: BTreeMap<(String, String), FileSummary>,
    /// What is wrong at the log's end: a torn tail, which the next start cuts, or a frame that is being written.
    pub tail: Option<&'static str>,
}

/// A segment in figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentSummary {
    pub file: String,
    pub first_lsn: Lsn,
    pub frames: u64,
    pub records: u64,
    /// Bytes of its frames.
    pub bytes: u64,
}

/// Records of one source and kind in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindSummary {
    pub records: u64,
    pub payload_bytes: u64,
    /// Messages and bytes that gap records say were lost, where they know.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_messages: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_bytes: u64,
}

/// Bytes of a file that the log refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FileSummary {
    /// Offset of the first of them.
    pub from: u64,
    /// Offset behind the last one.
    pub to: u64,
    /// Offset of the first byte that a replay needs, if it needs any.
    pub needed_from: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Summary {
    /// Checks that the log holds what a start from a checkpoint at `cut` would read: a missing segment shows in nothing
    /// else, since what lies below a gap may be what an unfinished trim has left. `cut_before` was read before the log,
    /// `cut_after` after it: a pipeline may be at work.
    ///
    /// # Errors
    /// [`LogError::Lost`].
    pub fn check_cut(&self, dir: &Path, cut_before: Lsn, cut_after: Lsn) -> Result<(), LogError> {
        if self.last_lsn < cut_before {
            return Err(lost(dir, self.first_lsn, self.last_lsn, cut_before));
        }
        if self.first_lsn > cut_after.plus(1) {
            return Err(lost(dir, self.first_lsn, self.last_lsn, cut_after));
        }
        Ok(())
    }

    pub fn frames(&self) -> u64 {
        self.segments.iter().map(|segment| segment.frames).sum()
    }

    pub fn records(&self) -> u64 {
        self.segments.iter().map(|segment| segment.records).sum()
    }

    /// Bytes of all frames.
    pub fn frame_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    pub fn payload_bytes(&self) -> u64 {
        self.kinds.values().map(|kind| kind.payload_bytes).sum()
    }

    fn enter_segment(&mut self, number: u64, first_lsn: Lsn) {
        self.segments.push(SegmentSummary { file: segment_name(number), first_lsn, frames: 0, records: 0, bytes: 0 });
    }

    fn add(&mut self, reader: &LogReader, frame: &Frame) {
        if let Some(segment) = self.segments.last_mut() {
            segment.frames += 1;
            segment.records += frame.len();
            segment.bytes += reader.frame_bytes();
        }
        self.last_lsn = frame.last_lsn();
        let mut lsn = frame.first_lsn;
        for run in &frame.runs {
            lsn = lsn.plus(run.len() as u64);
            self.add_reference(reader, run, lsn > self.cut.plus(1));
            self.first_time = self.first_time.or(Some(run.time));
            self.last_time = Some(run.time);
            let kind = self.kinds.entry((reader.source_label(run.source), run.kind.name())).or_default();
            kind.records += run.len() as u64;
            kind.payload_bytes += run.payload_bytes();
            if run.kind == RecordKind::Gap {
                for gap in run.records().filter_map(|payload| postcard::from_bytes::<Gap>(payload).ok()) {
                    kind.lost_messages += gap.messages.unwrap_or(0);
                    kind.lost_bytes += gap.bytes.unwrap_or(0);
                }
            }
        }
    }
}

impl Summary {
    fn add_reference(&mut self, reader: &LogReader, run: &Run, is_needed: bool) {
        let (Some((from, to)), Some(name)) = (run.span(), &run.peer) else { return };
        let key = (reader.source_label(run.source), name.to_string());
        let file = self.files.entry(key).or_insert(FileSummary { from, to, needed_from: None });
        file.from = file.from.min(from);
        file.to = file.to.max(to);
        if is_needed {
            file.needed_from = Some(file.needed_from.map_or(from, |needed| needed.min(from)));
        }
    }
}

impl LogReader {
    /// Name of a source for people: `pipeline` for the pipeline's own records.
    pub fn source_label(&self, id: SourceId) -> String {
        match self.source_name(id) {
            Some(name) => name.to_owned(),
            None if id == SourceId::PIPELINE => "pipeline".to_owned(),
            None => format!("#{}", id.0),
        }
    }
}

/// Reads the whole log in `dir` into `summary`, which after an error holds what was read before it.
///
/// # Errors
/// The first fault.
pub fn summarize(disk: Arc<dyn Disk>, dir: &Path, summary: &mut Summary) -> Result<(), LogError> {
    let names = list(disk.as_ref(), dir)?.unwrap_or_default();
    summary.spares = names.spares.len();
    let files = names.segments.iter().map(|number| segment_name(*number));
    for file in files.chain(names.spares.iter().map(|number| spare_name(*number))) {
        let path = dir.join(file);
        match disk.len(&path) {
            Ok(length) => summary.disk_bytes += length,
            // Trimmed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(LogError::io("look at", &path)(error)),
        }
    }

    let mut reader = LogReader::open(Arc::clone(&disk), dir, Lsn::ZERO)?;
    summary.pipeline.clone_from(&reader.header().pipeline);
    summary.epoch = reader.header().epoch.to_string();
    summary.first_lsn = reader.position();
    summary.last_lsn = Lsn(reader.position().0.saturating_sub(1));
    let mut number = reader.header().number;
    summary.enter_segment(number, reader.header().first_lsn);
    loop {
        let frame = match reader.next_unread() {
            Err(LogError::Trimmed { first, .. }) => {
                // The pipeline has no need of what was trimmed while this was reading; go on with what there is.
                reader = LogReader::open(Arc::clone(&disk), dir, first)?;
                number = reader.header().number;
                summary.enter_segment(number, reader.header().first_lsn);
                continue;
            }
            frame => frame?,
        };
        // Segments without frames are passed in between: they start where this one does.
        while number < reader.header().number {
            number += 1;
            summary.enter_segment(number, reader.header().first_lsn);
        }
        match frame {
            Some(frame) => summary.add(&reader, &frame),
            None => break,
        }
    }
    summary.tail = reader.tail();
    Ok(())
}

/// Reads all payloads that the log in `dir` refers to behind `cut`, as a replay would.
///
/// # Errors
/// The first fault; [`LogError::Referenced`] where a file does not hold them any more.
pub fn check_references(disk: &Arc<dyn Disk>, dir: &Path, cut: Lsn) -> Result<(), LogError> {
    let mut reader = LogReader::open(Arc::clone(disk), dir, cut.plus(1))?;
    loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            // A pipeline is at work, and what is trimmed is not needed any more.
            Err(LogError::Trimmed { first, .. }) => reader = LogReader::open(Arc::clone(disk), dir, first)?,
            Err(error) => return Err(error),
        }
    }
}
