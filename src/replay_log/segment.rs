//! A segment's file: its name, and reading what stands in it. Recovery, replay and verification read through here, so
//! that they cannot drift apart.

use std::io;
use std::path::{Path, PathBuf};

use super::LogError;
use super::format::{
    ALIGNMENT, FRAME_HEADER_BYTES, FormatError, FrameHeader, PAGE_BYTES, Place, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SegmentHeader, VERSION_REFERENCES, max_frame_bytes,
};
use crate::disk::{Access, Disk, DiskFile};
use crate::event::{Epoch, LogTime, Lsn, Run};

const SEGMENT_SUFFIX: &str = ".segment";
const SPARE_SUFFIX: &str = ".spare";

/// Name of the file of a segment.
pub(super) fn segment_name(number: u64) -> String {
    format!("{number:012}{SEGMENT_SUFFIX}")
}

/// Name of a file that waits to become a segment.
pub(super) fn spare_name(number: u64) -> String {
    format!("{number:012}{SPARE_SUFFIX}")
}

/// What a log directory holds, by name.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Segment numbers, ascending.
    pub segments: Vec<u64>,
    /// Spare numbers, ascending.
    pub spares: Vec<u64>,
}

/// Lists a log directory; `None` where there is none.
pub(super) fn list(disk: &dyn Disk, dir: &Path) -> Result<Option<Names>, LogError> {
    let files = match disk.list(dir) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("list", dir)(error)),
    };
    let mut names = Names::default();
    for file in files {
        // Only names that this program gives: a copy made by hand beside them is none of ours.
        let number = |suffix: &str| file.strip_suffix(suffix).and_then(|number| number.parse().ok());
        if let Some(number) = number(SEGMENT_SUFFIX).filter(|number| segment_name(*number) == file) {
            names.segments.push(number);
        } else if let Some(number) = number(SPARE_SUFFIX).filter(|number| spare_name(*number) == file) {
            names.spares.push(number);
        }
    }
    names.segments.sort_unstable();
    names.spares.sort_unstable();
    Ok(Some(names))
}

/// A place in the log: where the next frame stands and what it must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// In the segment, in bytes.
    pub offset: u64,
    pub lsn: Lsn,
    pub previous_crc: u32,
}

/// What stands at a cursor.
pub(super) enum Look {
    /// The next frame, and the cursor behind it.
    Frame { runs: Vec<Run>, next: Cursor },
    /// Nothing was begun here: zeros, or the segment's end.
    Nothing,
    /// Something else than the next frame: torn, being written, or corrupt.
    Bad(&'static str),
}

/// An open segment.
pub(super) struct Segment {
    pub path: PathBuf,
    pub file: Box<dyn DiskFile>,
    pub header: SegmentHeader,
    pub header_bytes: u64,
}

/// Outcome of [`Segment::open`].
pub(super) enum Opened {
    Segment(Segment),
    /// There is no such file.
    Missing,
    /// There is a file, but no intact header.
    Bad(FormatError),
    /// The header is intact, but of another number: the file is a spare.
    Other,
}

impl Segment {
    /// Opens the segment of this number.
    pub fn open(disk: &dyn Disk, dir: &Path, number: u64, access: Access) -> Result<Opened, LogError> {
        match Self::open_once(disk, dir, number, access)? {
            // The writer may have trimmed the segment and be writing another header. Then its name is gone by now.
            Opened::Bad(_) => Self::open_once(disk, dir, number, access),
            opened => Ok(opened),
        }
    }

    fn open_once(disk: &dyn Disk, dir: &Path, number: u64, access: Access) -> Result<Opened, LogError> {
        let path = dir.join(segment_name(number));
        let file = match disk.open(&path, access) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opened::Missing),
            Err(error) => return Err(LogError::io("open", &path)(error)),
        };
        let mut bytes = vec![0; PAGE_BYTES];
        let got = file.read_full_at(&mut bytes, 0).map_err(LogError::io("read", &path))?;
        bytes.truncate(got);
        let length = match SegmentHeader::length(&bytes) {
            Ok(length) => length,
            Err(why) => return Ok(Opened::Bad(why)),
        };
        if length > bytes.len() {
            bytes.resize(length, 0);
            let got = file.read_full_at(&mut bytes, 0).map_err(LogError::io("read", &path))?;
            bytes.truncate(got);
        }
        match SegmentHeader::decode(&bytes) {
            Ok(header) if header.number != number => Ok(Opened::Other),
            Ok(header) => Ok(Opened::Segment(Segment { path, file, header, header_bytes: length as u64 })),
            Err(why) => Ok(Opened::Bad(why)),
        }
    }

    /// A segment of this epoch whose header cannot be read: its frames can be, where they bear their places.
    pub fn without_header(disk: &dyn Disk, dir: &Path, number: u64, epoch: Epoch) -> Result<Segment, LogError> {
        let path = dir.join(segment_name(number));
        let file = disk.open(&path, Access::Read).map_err(LogError::io("open", &path))?;
        let length = file.length().map_err(LogError::io("read", &path))?;
        let header = SegmentHeader {
            version: VERSION_REFERENCES,
            pipeline: String::new(),
            epoch,
            number,
            first_lsn: Lsn::ZERO,
            previous_crc: 0,
            last_time: None,
            segment_bytes: length.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
            sources: Vec::new(),
        };
        Ok(Segment { path, file, header, header_bytes: PAGE_BYTES as u64 })
    }

    /// The first intact frame at or behind `offset`, whatever it follows, as the cursor that finds it.
    pub fn next_frame(&self, offset: u64) -> Result<Option<Cursor>, LogError> {
        let Some(offset) = self.find_frame(offset)? else { return Ok(None) };
        let mut frame = Vec::new();
        let limit = max_frame_bytes(self.header.segment_bytes);
        match read_frame(self.file.as_ref(), &self.path, self.place(offset), limit, &mut frame)? {
            Found::Intact(header) => {
                Ok(Some(Cursor { offset, lsn: header.first_lsn, previous_crc: header.previous_crc }))
            }
            Found::Zeros | Found::Bad(_) => Ok(None),
        }
    }

    /// Where the segment's first frame stands.
    pub fn start(&self) -> Cursor {
        Cursor { offset: self.header_bytes, lsn: self.header.first_lsn, previous_crc: self.header.previous_crc }
    }

    fn place(&self, offset: u64) -> Place {
        Place { epoch: self.header.epoch, segment: self.header.number, offset }
    }

    /// Looks at what stands at a cursor; `buffer` holds the frame's bytes afterwards, if it is one.
    pub fn look(&self, cursor: Cursor, buffer: &mut Vec<u8>) -> Result<Look, LogError> {
        let frame_bytes_max = max_frame_bytes(self.header.segment_bytes);
        let header =
            match read_frame(self.file.as_ref(), &self.path, self.place(cursor.offset), frame_bytes_max, buffer)? {
                Found::Intact(header) => header,
                Found::Zeros => return Ok(Look::Nothing),
                Found::Bad(what) => return Ok(Look::Bad(what)),
            };
        if header.first_lsn != cursor.lsn || header.previous_crc != cursor.previous_crc {
            return Ok(Look::Bad("the frame does not follow the one before it"));
        }
        match header.decode_runs(buffer) {
            Ok(runs) => {
                let next = Cursor {
                    offset: cursor.offset + buffer.len() as u64,
                    lsn: header.next_lsn(),
                    previous_crc: header.crc,
                };
                Ok(Look::Frame { runs, next })
            }
            Err(FormatError::Bad(what) | FormatError::TooLarge(what)) => Ok(Look::Bad(what)),
            Err(FormatError::UnknownVersion(_)) => Ok(Look::Bad("the frame is of another version")),
        }
    }

    /// The first intact frame at or behind `offset`, whatever it follows.
    pub fn find_frame(&self, offset: u64) -> Result<Option<u64>, LogError> {
        let limit = max_frame_bytes(self.header.segment_bytes);
        let mut frame = Vec::new();
        find(self.file.as_ref(), &self.path, self.header.number, limit, offset, &mut |offset| {
            let found = read_frame(self.file.as_ref(), &self.path, self.place(offset), limit, &mut frame)?;
            Ok(matches!(found, Found::Intact(_)))
        })
    }
}

/// The first thing that looks like a frame of this segment in a file whose header is lost, and the epoch with it.
pub(super) fn find_frame_without_header(disk: &dyn Disk, dir: &Path, number: u64) -> Result<Option<u64>, LogError> {
    let path = dir.join(segment_name(number));
    let file = match disk.open(&path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogError::io("open", &path)(error)),
    };
    let limit = max_frame_bytes(SEGMENT_BYTES_MAX);
    find(file.as_ref(), &path, number, limit, PAGE_BYTES as u64, &mut |_| Ok(true))
}

enum Found {
    Intact(FrameHeader),
    Zeros,
    Bad(&'static str),
}

fn read_frame(
    file: &dyn DiskFile,
    path: &Path,
    place: Place,
    frame_bytes_max: usize,
    buffer: &mut Vec<u8>,
) -> Result<Found, LogError> {
    buffer.clear();
    buffer.resize(FRAME_HEADER_BYTES, 0);
    let got = file.read_full_at(buffer, place.offset).map_err(LogError::io("read", path))?;
    buffer.truncate(got);
    if buffer.iter().take(ALIGNMENT).all(|byte| *byte == 0) {
        return Ok(Found::Zeros);
    }
    let header = match FrameHeader::decode(buffer, frame_bytes_max) {
        Ok(header) => header,
        Err(FormatError::Bad(what) | FormatError::TooLarge(what)) => return Ok(Found::Bad(what)),
        Err(FormatError::UnknownVersion(_)) => return Ok(Found::Bad("the frame is of another version")),
    };
    if header.segment != place.segment {
        return Ok(Found::Bad("the frame is of another segment"));
    }
    buffer.resize(header.frame_bytes(), 0);
    let rest = buffer.get_mut(FRAME_HEADER_BYTES..).unwrap_or_default();
    let got = file.read_full_at(rest, place.offset + FRAME_HEADER_BYTES as u64).map_err(LogError::io("read", path))?;
    if got < rest.len() {
        return Ok(Found::Bad("the file ends within the frame"));
    }
    if !header.is_intact(&place, buffer) {
        return Ok(Found::Bad("the frame's checksum is wrong"));
    }
    Ok(Found::Intact(header))
}

/// The first header of a frame of this segment, at or behind `from`, that `accept` takes.
fn find(
    file: &dyn DiskFile,
    path: &Path,
    segment: u64,
    frame_bytes_max: usize,
    from: u64,
    accept: &mut dyn FnMut(u64) -> Result<bool, LogError>,
) -> Result<Option<u64>, LogError> {
    const CHUNK_BYTES: usize = 256 * 1024;
    let mut chunk = vec![0; CHUNK_BYTES + FRAME_HEADER_BYTES];
    let mut at = from;
    loop {
        let got = file.read_full_at(&mut chunk, at).map_err(LogError::io("read", path))?;
        for start in (0..got.min(CHUNK_BYTES)).step_by(ALIGNMENT) {
            let candidate = chunk.get(start..got).unwrap_or_default();
            if FrameHeader::decode(candidate, frame_bytes_max).is_ok_and(|header| header.segment == segment)
                && accept(at + start as u64)?
            {
                return Ok(Some(at + start as u64));
            }
        }
        if got < chunk.len() {
            return Ok(None);
        }
        at += CHUNK_BYTES as u64;
    }
}

/// Log time of the last record of these runs.
pub(super) fn last_time(runs: &[Run]) -> Option<LogTime> {
    runs.last().map(|run| run.time)
}
