//! The replay log's bytes, format versions 1 and 2: this text is the specification, this code its pure half (no I/O).
//!
//! The log is a row of **segments**, files of one fixed length each. A segment is a header and then **frames**; a frame
//! is one group commit and holds **runs** of records. Integers are little-endian. *Varint*: unsigned LEB128 of at most
//! ten bytes. *Zigzag*: a signed integer as the varint of `(n << 1) ^ (n >> 63)`. *CRC*: CRC32C.
//!
//! # Limits
//!
//! A segment is 64 KiB to 1 GiB long. A segment header takes at most 256 KiB and a quarter of the segment. A frame
//! takes at most a quarter of the segment, and so does its body before compression. A peer's name takes at most
//! [`PEER_BYTES_MAX`]. A reference spans at most [`REFERENCE_BYTES_MAX`] of its file,
//! and the payloads that a frame refers to are no more than that.
//!
//! # Versions
//!
//! Version 2 is version 1 with references in runs. A segment is of version 2 only where it may hold one, so that a log
//! without references stays readable by programs that know version 1 alone.
//!
//! # Segment header
//!
//! The first 20 bytes mean the same in every format version.
//!
//! | offset | bytes | content |
//! |-------:|------:|---------|
//! |      0 |     8 | magic `FOREBAYL` |
//! |      8 |     4 | format version: 1 or 2 |
//! |     12 |     4 | length `H` of the header, a multiple of 4096 |
//! |     16 |     4 | CRC of all `H` bytes, these four taken as zero |
//! |     20 |     4 | CRC of the frame before this segment; 0: there is none |
//! |     24 |    16 | epoch |
//! |     40 |     8 | segment number, from 1; the file is called after it |
//! |     48 |     8 | LSN of the segment's first record |
//! |     56 |     8 | log time of the record before the segment, µs, signed; the least number: there is none |
//! |     64 |     8 | length of the segment |
//! |     72 |     2 | `n`: length of the pipeline's name |
//! |     74 |     2 | number of sources |
//! |     76 |   `n` | the pipeline's name, UTF-8 |
//! |        |       | for each source: number (2), length of its name (2), its name, UTF-8 |
//! |        |       | zeros up to `H` |
//!
//! # Frame
//!
//! Frames start at `H` and follow one another on multiples of eight. Behind the last one stand eight zero bytes where
//! there is room for them, so that a clean end shows although a recycled segment holds older bytes further on.
//!
//! | offset | bytes | content |
//! |-------:|------:|---------|
//! |      0 |     4 | magic `FbF1` |
//! |      4 |     4 | CRC of: epoch, segment number (8), offset of the frame in the segment (8), the frame from byte 8 on, padding included |
//! |      8 |     4 | flags: bit 0: the body is compressed (LZ4 block); other bits 0 |
//! |     12 |     4 | number of records, at least 1 |
//! |     16 |     4 | `s`: length of the body as it stands here |
//! |     20 |     4 | length of the body after decompression |
//! |     24 |     4 | CRC of the frame before, in whatever segment; 0 in the log's first frame |
//! |     28 |     4 | 0 |
//! |     32 |     8 | segment number |
//! |     40 |     8 | LSN of the first record |
//! |     48 |     8 | base time: log time of the first run, µs, signed |
//! |     56 |   `s` | the body |
//! |        |       | zeros up to a multiple of eight |
//!
//! What seeds the CRC makes a stale frame of a recycled segment invalid wherever it lies, and zeros are no frame. The
//! chain of CRCs makes a frame that is missing or exchanged show at the next one, across segments.
//!
//! # Body
//!
//! Runs, one behind the other, to the body's end:
//!
//! | content | as |
//! |---------|----|
//! | source | varint, at most 65535 |
//! | kind | 1 byte, the number of [`RecordKind`] |
//! | flags | 1 byte: bit 0: arrived while the clock was not synchronised; bit 1: there is a peer; bit 2: there is a position; bit 3 (version 2): there is a reference, and a peer; other bits 0 |
//! | number of records | varint, at least 1 |
//! | time | zigzag: log time minus that of the run before, wrapping; of the first run: minus the base time |
//! | peer, if any | varint: its number in the order in which peers first occur in this frame, from 0; at its first occurrence followed by varint length and UTF-8 |
//! | position, if any | 1 byte 0 (file), varint inode, 4 bytes CRC of the head, varint length of the head, varint offset |
//! | lengths | a varint for each record |
//! | payloads, if there is no reference | one behind the other |
//! | reference, if any | varint: offset of the first payload in the file that the peer names; 4 bytes CRC of the payloads; varint number of stretches; for each: varint, how many payloads follow the one before them at the same distance (at least 1; all together one less than the records), varint, that distance in bytes |
//!
//! Decoding is total: any bytes give a value or an error, and memory is bounded by the frame's limit, whatever the
//! length fields say.

use std::collections::HashMap;
use std::sync::Arc;

use thiserror::Error;

use crate::event::{Epoch, LogTime, Lsn, Position, RecordKind, Reference, Run, SourceId};

/// Version of segments without references.
pub const VERSION_PLAIN: u32 = 1;
/// Version of segments that may hold references.
pub const VERSION_REFERENCES: u32 = 2;
/// Least length of a segment in bytes.
pub const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
/// Greatest length of a segment in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Greatest length of a peer's name in bytes.
pub const PEER_BYTES_MAX: usize = 1024;
/// Most bytes of its file that a reference spans, and most payload that a frame refers to: bounds what a reader takes into
/// memory for a frame.
pub const REFERENCE_BYTES_MAX: u64 = 256 << 20;

/// Unit of header lengths: a page of any common disk.
pub(super) const PAGE_BYTES: usize = 4096;
const HEADER_BYTES_MAX: usize = 256 * 1024;
const SEGMENT_MAGIC: &[u8; 8] = b"FOREBAYL";
const SEGMENT_CRC_AT: usize = 16;
const NO_TIME: i64 = i64::MIN;

/// Length of a frame's header in bytes.
pub(super) const FRAME_HEADER_BYTES: usize = 56;
/// Frames start on multiples of this.
pub(super) const ALIGNMENT: usize = 8;
const FRAME_MAGIC: &[u8; 4] = b"FbF1";
const FLAG_LZ4: u32 = 1;
/// Bodies up to this length are not worth compressing: a sync writes whole pages.
const COMPRESS_ABOVE_BYTES: usize = 4096;

const RUN_UNSYNCHRONISED: u8 = 1;
const RUN_PEER: u8 = 2;
const RUN_POSITION: u8 = 4;
const RUN_REFERENCE: u8 = 8;
const POSITION_FILE: u8 = 0;
/// Most that a run takes beside its peer, lengths and payloads: source, kind, flags, count, time; position.
const RUN_OVERHEAD_BYTES: usize = (3 + 1 + 1 + 5 + 10) + (1 + 10 + 4 + 3 + 10);
/// Most that a reference takes beside its stretches: offset, CRC, number of stretches.
const REFERENCE_HEAD_BYTES: usize = 10 + 4 + 5;
/// Most that the number and the length of a peer take.
const PEER_OVERHEAD_BYTES: usize = 5 + 2;

/// Whether and how frames are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 for bodies over 4 KiB, where it helps.
    #[default]
    Lz4,
    None,
}

/// Why bytes are not what the format says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// A format version that this program does not know, in an intact header.
    #[error("it is of format version {0}")]
    UnknownVersion(u32),
    #[error("{0}")]
    Bad(&'static str),
    /// What was to be encoded does not fit.
    #[error("{0}")]
    TooLarge(&'static str),
}

use FormatError::Bad;

/// Greatest length of a frame in a segment of this length.
pub fn max_frame_bytes(segment_bytes: u64) -> usize {
    let quarter = usize::try_from(segment_bytes.min(SEGMENT_BYTES_MAX) / 4).unwrap_or(0);
    quarter - quarter % ALIGNMENT
}

/// Longest record that fits into a frame of a segment of this length, whatever its peer and position.
pub fn max_record_bytes(segment_bytes: u64) -> usize {
    max_frame_bytes(segment_bytes)
        .saturating_sub(FRAME_HEADER_BYTES + RUN_OVERHEAD_BYTES + PEER_OVERHEAD_BYTES + PEER_BYTES_MAX + 5)
}

/// Most bytes that a run takes in a body beside its records.
pub(super) fn run_head_bytes(run: &Run) -> usize {
    let reference = run.reference.as_ref().map_or(0, |reference| REFERENCE_HEAD_BYTES + gaps_bytes(reference));
    RUN_OVERHEAD_BYTES + run.peer.as_ref().map_or(0, |peer| PEER_OVERHEAD_BYTES + peer.len()) + reference
}

fn gaps_bytes(reference: &Reference) -> usize {
    reference.gaps.iter().map(|(times, bytes)| varint_bytes(u64::from(*times)) + varint_bytes(*bytes)).sum()
}

/// Bytes that a record of this length takes in a body, its payload included.
pub(super) fn record_bytes(length: u32) -> usize {
    length_bytes(length) + length as usize
}

/// Bytes that the length of a record takes in a body.
pub(super) fn length_bytes(length: u32) -> usize {
    // Without a branch or a count of bits: it is asked of every record.
    1 + [7, 14, 21, 28].map(|bits| usize::from(length >> bits != 0)).into_iter().sum::<usize>()
}

fn varint_bytes(value: u64) -> usize {
    (64 - value.leading_zeros()).max(1).div_ceil(7) as usize
}

/// Length of a frame whose body has this length.
pub(super) fn frame_bytes(body_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + body_bytes).next_multiple_of(ALIGNMENT)
}

// ---------------------------------------------------------------------------------------------------------------------
// Reading and writing primitives.

/// Takes values from the front of a byte slice.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Bad("it ends too early"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(Bad("it ends too early"))?;
        self.0 = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, FormatError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, FormatError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, FormatError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FormatError> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, FormatError> {
        self.array().map(i64::from_le_bytes)
    }

    fn varint(&mut self) -> Result<u64, FormatError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Bad("a number is too large"))
    }

    fn varint_as<T: TryFrom<u64>>(&mut self) -> Result<T, FormatError> {
        T::try_from(self.varint()?).map_err(|_| Bad("a number is too large"))
    }

    fn text(&mut self, count: usize) -> Result<&'a str, FormatError> {
        std::str::from_utf8(self.take(count)?).map_err(|_| Bad("a name is not UTF-8"))
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn set(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Segment header.

/// What stands at the start of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// [`VERSION_PLAIN`] or [`VERSION_REFERENCES`].
    pub version: u32,
    pub pipeline: String,
    pub epoch: Epoch,
    /// From 1.
    pub number: u64,
    /// LSN of the segment's first record.
    pub first_lsn: Lsn,
    /// CRC of the frame before the segment.
    pub previous_crc: u32,
    /// Log time of the record before the segment.
    pub last_time: Option<LogTime>,
    /// Length of the segment.
    pub segment_bytes: u64,
    /// Names of the sources.
    pub sources: Vec<(SourceId, String)>,
}

impl SegmentHeader {
    /// The header's bytes.
    ///
    /// # Errors
    /// The names take too much room.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let too_large = || FormatError::TooLarge("the names of the pipeline and its sources are too long");
        let mut out = Vec::with_capacity(PAGE_BYTES);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.previous_crc.to_le_bytes());
        out.extend_from_slice(&self.epoch.0);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.first_lsn.0.to_le_bytes());
        out.extend_from_slice(&self.last_time.map_or(NO_TIME, |time| time.0).to_le_bytes());
        out.extend_from_slice(&self.segment_bytes.to_le_bytes());
        let length_of = |length: usize| u16::try_from(length).map(u16::to_le_bytes).map_err(|_| too_large());
        out.extend_from_slice(&length_of(self.pipeline.len())?);
        out.extend_from_slice(&length_of(self.sources.len())?);
        out.extend_from_slice(self.pipeline.as_bytes());
        for (id, name) in &self.sources {
            out.extend_from_slice(&id.0.to_le_bytes());
            out.extend_from_slice(&length_of(name.len())?);
            out.extend_from_slice(name.as_bytes());
        }
        out.resize(out.len().next_multiple_of(PAGE_BYTES), 0);
        if out.len() > HEADER_BYTES_MAX || out.len() as u64 > self.segment_bytes / 4 {
            return Err(too_large());
        }
        let length = u32::try_from(out.len()).map_err(|_| too_large())?;
        set(&mut out, 12, &length.to_le_bytes());
        let crc = crc32c::crc32c(&out);
        set(&mut out, SEGMENT_CRC_AT, &crc.to_le_bytes());
        Ok(out)
    }

    /// Length of the header whose first bytes these are (at least 16, of any format version).
    ///
    /// # Errors
    /// They are none.
    pub fn length(start: &[u8]) -> Result<usize, FormatError> {
        let mut input = Input(start);
        if &input.array::<8>()? != SEGMENT_MAGIC {
            return Err(Bad("it does not start as a segment does"));
        }
        input.u32()?;
        let length = input.u32()? as usize;
        if length == 0 || !length.is_multiple_of(PAGE_BYTES) || length > HEADER_BYTES_MAX {
            return Err(Bad("the length of its header is impossible"));
        }
        Ok(length)
    }

    /// Reads a header of which these are at least its bytes.
    ///
    /// # Errors
    /// They are none, or of another format version.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, FormatError> {
        let bytes = Input(bytes).take(Self::length(bytes)?)?;
        let (before, rest) = bytes.split_at_checked(SEGMENT_CRC_AT).ok_or(Bad("it ends too early"))?;
        let mut input = Input(rest);
        let stored = input.u32()?;
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(before), &[0; 4]), input.0);
        if crc != stored {
            return Err(Bad("the checksum of its header is wrong"));
        }
        let version = Input(before.get(8..).unwrap_or_default()).u32()?;
        if !(VERSION_PLAIN..=VERSION_REFERENCES).contains(&version) {
            return Err(FormatError::UnknownVersion(version));
        }
        let previous_crc = input.u32()?;
        let epoch = Epoch(input.array()?);
        let number = input.u64()?;
        let first_lsn = Lsn(input.u64()?);
        let last_time = Some(input.i64()?).filter(|time| *time != NO_TIME).map(LogTime);
        let segment_bytes = input.u64()?;
        if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            return Err(Bad("the length of the segment is impossible"));
        }
        let name_bytes = usize::from(input.u16()?);
        let sources_count = usize::from(input.u16()?);
        let pipeline = input.text(name_bytes)?.to_owned();
        let mut sources = Vec::new();
        for _ in 0..sources_count {
            let id = SourceId(input.u16()?);
            let length = usize::from(input.u16()?);
            sources.push((id, input.text(length)?.to_owned()));
        }
        Ok(SegmentHeader {
            version,
            pipeline,
            epoch,
            number,
            first_lsn,
            previous_crc,
            last_time,
            segment_bytes,
            sources,
        })
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Frame.

/// Where a frame stands: the seed of its CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub epoch: Epoch,
    pub segment: u64,
    /// In the segment, in bytes.
    pub offset: u64,
}

impl Place {
    fn crc(&self, frame_from_byte_8: &[u8]) -> u32 {
        let seed = crc32c::crc32c(&self.epoch.0);
        let seed = crc32c::crc32c_append(seed, &self.segment.to_le_bytes());
        let seed = crc32c::crc32c_append(seed, &self.offset.to_le_bytes());
        crc32c::crc32c_append(seed, frame_from_byte_8)
    }
}

/// What stands at the start of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub crc: u32,
    pub compressed: bool,
    pub records: u32,
    pub stored_bytes: u32,
    pub raw_bytes: u32,
    pub previous_crc: u32,
    pub segment: u64,
    pub first_lsn: Lsn,
    pub base_time: LogTime,
}

impl FrameHeader {
    /// Reads a frame's header; its lengths are at most `frame_bytes_max` then. The checksum is not looked at yet.
    ///
    /// # Errors
    /// The bytes are no such header.
    pub fn decode(bytes: &[u8], frame_bytes_max: usize) -> Result<FrameHeader, FormatError> {
        let mut input = Input(bytes);
        if &input.array::<4>()? != FRAME_MAGIC {
            return Err(Bad("it does not start as a frame does"));
        }
        let crc = input.u32()?;
        let flags = input.u32()?;
        let header = FrameHeader {
            crc,
            compressed: flags & FLAG_LZ4 != 0,
            records: input.u32()?,
            stored_bytes: input.u32()?,
            raw_bytes: input.u32()?,
            previous_crc: input.u32()?,
            segment: { (input.u32()?, input.u64()?).1 },
            first_lsn: Lsn(input.u64()?),
            base_time: LogTime(input.i64()?),
        };
        if flags & !FLAG_LZ4 != 0 {
            return Err(Bad("the frame has unknown flags"));
        }
        let body_max = frame_bytes_max.saturating_sub(FRAME_HEADER_BYTES);
        if header.stored_bytes as usize > body_max || header.raw_bytes as usize > body_max {
            return Err(Bad("the frame's length is impossible"));
        }
        if header.records == 0 || (!header.compressed && header.stored_bytes != header.raw_bytes) {
            return Err(Bad("the frame's header contradicts itself"));
        }
        Ok(header)
    }

    /// Length of the whole frame.
    pub fn frame_bytes(&self) -> usize {
        frame_bytes(self.stored_bytes as usize)
    }

    /// LSN behind the frame's last record.
    pub fn next_lsn(&self) -> Lsn {
        self.first_lsn.plus(u64::from(self.records))
    }

    /// Whether these bytes, the whole frame, are what was written at this place.
    pub fn is_intact(&self, place: &Place, frame: &[u8]) -> bool {
        self.segment == place.segment && frame.get(8..).is_some_and(|rest| place.crc(rest) == self.crc)
    }

    /// The runs of an intact frame, of which these are all bytes.
    ///
    /// # Errors
    /// The bytes are not what the format says.
    pub fn decode_runs(&self, frame: &[u8]) -> Result<Vec<Run>, FormatError> {
        let mut input = Input(frame);
        input.take(FRAME_HEADER_BYTES)?;
        let stored = input.take(self.stored_bytes as usize)?;
        let runs = if self.compressed {
            let mut raw = vec![0; self.raw_bytes as usize];
            let length = lz4_flex::block::decompress_into(stored, &mut raw)
                .map_err(|_| Bad("the frame's body cannot be decompressed"))?;
            if length != raw.len() {
                return Err(Bad("the frame's body has another length than its header says"));
            }
            decode_body(&raw, self.base_time)?
        } else {
            decode_body(stored, self.base_time)?
        };
        if runs.iter().map(|run| run.len() as u64).sum::<u64>() != u64::from(self.records) {
            return Err(Bad("the frame holds another number of records than its header says"));
        }
        Ok(runs)
    }
}

/// Encodes frames; keeps its buffers, so that a commit allocates nothing.
#[derive(Debug, Default)]
pub struct FrameEncoder {
    compression: Compression,
    /// The last frame.
    pub frame: Vec<u8>,
    compressed: Vec<u8>,
}

impl FrameEncoder {
    pub fn new(compression: Compression) -> FrameEncoder {
        FrameEncoder { compression, ..FrameEncoder::default() }
    }

    /// Encodes runs, none of them empty, into [`FrameEncoder::frame`] and returns the frame's CRC.
    ///
    /// # Errors
    /// The frame would be longer than `frame_bytes_max`.
    pub fn encode(
        &mut self,
        place: &Place,
        first_lsn: Lsn,
        previous_crc: u32,
        runs: &[Run],
        frame_bytes_max: usize,
    ) -> Result<u32, FormatError> {
        let too_large = || FormatError::TooLarge("the records are longer than a frame can be");
        let base_time = runs.first().map_or(LogTime(0), |run| run.time);
        let FrameEncoder { compression, compressed, frame: out } = self;
        // The body behind the place of the header, where it stays unless it shrinks.
        out.clear();
        out.resize(FRAME_HEADER_BYTES, 0);
        encode_body(runs, base_time, out);
        let raw_bytes = out.len() - FRAME_HEADER_BYTES;
        if frame_bytes(raw_bytes) > frame_bytes_max || exceeds_reference_bytes_max(runs) {
            return Err(too_large());
        }
        let mut flags = 0u32;
        if *compression == Compression::Lz4 && raw_bytes > COMPRESS_ABOVE_BYTES {
            let room = lz4_flex::block::get_maximum_output_size(raw_bytes);
            if compressed.len() < room {
                compressed.resize(room, 0);
            }
            // Worth the reader's work only where it saves something.
            let limit = raw_bytes - raw_bytes / 16;
            let raw = out.get(FRAME_HEADER_BYTES..).unwrap_or_default();
            if let Ok(length) = lz4_flex::block::compress_into(raw, compressed)
                && length <= limit
            {
                flags = FLAG_LZ4;
                out.truncate(FRAME_HEADER_BYTES);
                out.extend_from_slice(compressed.get(..length).unwrap_or_default());
            }
        }
        let stored_bytes = out.len() - FRAME_HEADER_BYTES;
        let records: u64 = runs.iter().map(|run| run.len() as u64).sum();
        let short = |number: usize| u32::try_from(number).map(u32::to_le_bytes).map_err(|_| too_large());
        set(out, 0, FRAME_MAGIC);
        set(out, 8, &flags.to_le_bytes());
        set(out, 12, &u32::try_from(records).map_err(|_| too_large())?.to_le_bytes());
        set(out, 16, &short(stored_bytes)?);
        set(out, 20, &short(raw_bytes)?);
        set(out, 24, &previous_crc.to_le_bytes());
        set(out, 32, &place.segment.to_le_bytes());
        set(out, 40, &first_lsn.0.to_le_bytes());
        set(out, 48, &base_time.0.to_le_bytes());
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        let crc = place.crc(out.get(8..).unwrap_or_default());
        set(out, 4, &crc.to_le_bytes());
        Ok(crc)
    }
}

/// Appends the body that holds these runs to `out`.
pub fn encode_body(runs: &[Run], base_time: LogTime, out: &mut Vec<u8>) {
    let mut peers: HashMap<&str, u64> = HashMap::new();
    let mut time = base_time;
    for run in runs {
        let mut flags = 0;
        if run.unsynchronised {
            flags |= RUN_UNSYNCHRONISED;
        }
        if run.peer.is_some() {
            flags |= RUN_PEER;
        }
        if run.position.is_some() {
            flags |= RUN_POSITION;
        }
        if run.reference.is_some() {
            flags |= RUN_REFERENCE;
        }
        put_varint(out, u64::from(run.source.0));
        out.push(run.kind as u8);
        out.push(flags);
        put_varint(out, run.len() as u64);
        put_varint(out, zigzag(run.time.0.wrapping_sub(time.0)));
        time = run.time;
        if let Some(peer) = run.peer.as_deref() {
            let next = peers.len() as u64;
            let number = *peers.entry(peer).or_insert(next);
            put_varint(out, number);
            if number == next {
                put_varint(out, peer.len() as u64);
                out.extend_from_slice(peer.as_bytes());
            }
        }
        match run.position {
            Some(Position::File { inode, head_crc, head_len, offset }) => {
                out.push(POSITION_FILE);
                put_varint(out, inode);
                out.extend_from_slice(&head_crc.to_le_bytes());
                put_varint(out, u64::from(head_len));
                put_varint(out, offset);
            }
            None => {}
        }
        for length in &run.lengths {
            put_varint(out, u64::from(*length));
        }
        match &run.reference {
            None => out.extend_from_slice(&run.payload),
            Some(Reference { offset, gaps, crc }) => {
                put_varint(out, *offset);
                out.extend_from_slice(&crc.to_le_bytes());
                put_varint(out, gaps.len() as u64);
                for (times, bytes) in gaps {
                    put_varint(out, u64::from(*times));
                    put_varint(out, *bytes);
                }
            }
        }
    }
}

/// Reads the runs of a body.
///
/// # Errors
/// The bytes are no body.
pub fn decode_body(bytes: &[u8], base_time: LogTime) -> Result<Vec<Run>, FormatError> {
    let mut input = Input(bytes);
    let mut runs = Vec::new();
    let mut peers: Vec<Arc<str>> = Vec::new();
    let mut time = base_time;
    while !input.0.is_empty() {
        let source = SourceId(input.varint_as()?);
        let kind = RecordKind::from_number(input.u8()?).ok_or(Bad("a record is of an unknown kind"))?;
        let flags = input.u8()?;
        if flags & !(RUN_UNSYNCHRONISED | RUN_PEER | RUN_POSITION | RUN_REFERENCE) != 0 {
            return Err(Bad("a run has unknown flags"));
        }
        if flags & RUN_REFERENCE != 0 && flags & RUN_PEER == 0 {
            return Err(Bad("a run refers to a file without a name"));
        }
        let count: usize = input.varint_as()?;
        time = LogTime(time.0.wrapping_add(unzigzag(input.varint()?)));
        let mut run = Run::new(source, kind, time);
        run.unsynchronised = flags & RUN_UNSYNCHRONISED != 0;
        if flags & RUN_PEER != 0 {
            let number: usize = input.varint_as()?;
            if number == peers.len() {
                let length: usize = input.varint_as()?;
                peers.push(Arc::from(input.text(length)?));
            }
            run.peer = Some(Arc::clone(peers.get(number).ok_or(Bad("a run names an unknown peer"))?));
        }
        if flags & RUN_POSITION != 0 {
            if input.u8()? != POSITION_FILE {
                return Err(Bad("a source position is of an unknown kind"));
            }
            run.position = Some(Position::File {
                inode: input.varint()?,
                head_crc: input.u32()?,
                head_len: input.varint_as()?,
                offset: input.varint()?,
            });
        }
        // Each record takes at least a byte of the body, so no count can ask for more memory than the body justifies.
        if count == 0 || count > input.0.len() {
            return Err(Bad("the number of records of a run is impossible"));
        }
        run.lengths.reserve(count.min(1024));
        let mut payload_bytes = 0usize;
        for _ in 0..count {
            let length: u32 = input.varint_as()?;
            payload_bytes = payload_bytes.checked_add(length as usize).ok_or(Bad("a number is too large"))?;
            run.lengths.push(length);
        }
        if flags & RUN_REFERENCE != 0 {
            run.reference = Some(decode_reference(&mut input, count)?);
        } else {
            run.payload = input.take(payload_bytes)?.to_vec();
        }
        runs.push(run);
    }
    if exceeds_reference_bytes_max(&runs) {
        return Err(Bad("the frame refers to more bytes than it can"));
    }
    Ok(runs)
}

/// Whether these runs refer to more than a reader takes into memory.
fn exceeds_reference_bytes_max(runs: &[Run]) -> bool {
    let referring = || runs.iter().filter(|run| run.reference.is_some());
    let spans = referring().filter_map(Run::span).map(|(from, to)| if to == u64::MAX { to } else { to - from });
    let payloads = referring().map(Run::payload_bytes).fold(0, u64::saturating_add);
    spans.max().unwrap_or(0).max(payloads) > REFERENCE_BYTES_MAX
}

/// Reads the reference of a run of `count` records.
fn decode_reference(input: &mut Input<'_>, count: usize) -> Result<Reference, FormatError> {
    let offset = input.varint()?;
    let crc = input.u32()?;
    let stretches: usize = input.varint_as()?;
    let mut gaps = Vec::new();
    let mut payloads = 1usize;
    for _ in 0..stretches {
        let times: u32 = input.varint_as()?;
        payloads = payloads.checked_add(times as usize).filter(|_| times > 0).ok_or(Bad("a number is too large"))?;
        gaps.push((times, input.varint()?));
    }
    if payloads != count {
        return Err(Bad("a run refers to another number of records than it has"));
    }
    Ok(Reference { offset, gaps, crc })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 16 * 1024;
    const PLACE: Place = Place { epoch: Epoch([7; 16]), segment: 3, offset: 4096 };

    fn run() -> impl Strategy<Value = Run> {
        let position = (any::<u64>(), any::<u32>(), any::<u16>(), any::<u64>())
            .prop_map(|(inode, head_crc, head_len, offset)| Position::File { inode, head_crc, head_len, offset });
        (
            (any::<u16>(), 0..RecordKind::ALL.len(), any::<i64>(), any::<bool>()),
            proptest::option::of("[a-c]{0,3}"),
            proptest::option::of(position),
            vec((vec(any::<u8>(), 0..40), 0u64..3), 1..20),
            proptest::option::of((any::<u32>(), any::<u32>())),
        )
            .prop_map(|((source, kind, time, unsynchronised), peer, position, records, reference)| {
                let mut run = Run::new(SourceId(source), RecordKind::ALL[kind], LogTime(time));
                run.unsynchronised = unsynchronised;
                run.peer = peer.map(Arc::from);
                run.position = position;
                records.iter().for_each(|(record, _)| run.push(record));
                if let Some((offset, crc)) = reference.filter(|_| run.peer.is_some()) {
                    let mut reference = Reference { offset: u64::from(offset) << 20, gaps: Vec::new(), crc };
                    records.iter().skip(1).for_each(|(_, gap)| reference.push(gap * gap * 100));
                    run.reference = Some(reference);
                    // As a reader gives it.
                    run.payload.clear();
                }
                run
            })
    }

    fn encoded(runs: &[Run], compression: Compression) -> Vec<u8> {
        let mut encoder = FrameEncoder::new(compression);
        let crc = encoder.encode(&PLACE, Lsn(17), 99, runs, LIMIT).unwrap();
        let header = FrameHeader::decode(&encoder.frame, LIMIT).unwrap();
        assert_eq!((header.crc, header.previous_crc, header.first_lsn, header.segment), (crc, 99, Lsn(17), 3));
        assert_eq!(header.frame_bytes(), encoder.frame.len());
        encoder.frame
    }

    fn decoded(place: &Place, frame: &[u8]) -> Result<Vec<Run>, FormatError> {
        let header = FrameHeader::decode(frame, LIMIT)?;
        let frame = frame.get(..header.frame_bytes()).ok_or(Bad("short"))?;
        if !header.is_intact(place, frame) {
            return Err(Bad("checksum"));
        }
        header.decode_runs(frame)
    }

    fn header() -> SegmentHeader {
        SegmentHeader {
            version: VERSION_PLAIN,
            pipeline: "plant-ü".to_owned(),
            epoch: Epoch([3; 16]),
            number: 5,
            first_lsn: Lsn(77),
            previous_crc: 1,
            last_time: Some(LogTime(-5)),
            segment_bytes: SEGMENT_BYTES_MIN,
            sources: vec![(SourceId(0), "a".to_owned()), (SourceId(9), "b".to_owned())],
        }
    }

    proptest! {
        #[test]
        fn a_frame_decodes_to_what_was_encoded(runs in vec(run(), 1..12), lz4: bool) {
            let compression = if lz4 { Compression::Lz4 } else { Compression::None };
            prop_assert_eq!(decoded(&PLACE, &encoded(&runs, compression)), Ok(runs));
        }

        #[test]
        fn the_planned_length_is_enough(runs in vec(run(), 1..12)) {
            let planned: usize = runs
                .iter()
                .map(|run| {
                    let of = if run.reference.is_some() { length_bytes } else { record_bytes };
                    run_head_bytes(run) + run.lengths.iter().map(|n| of(*n)).sum::<usize>()
                })
                .sum();
            let mut body = Vec::new();
            encode_body(&runs, LogTime(0), &mut body);
            prop_assert!(body.len() <= planned, "{} > {planned}", body.len());
        }

        #[test]
        fn decoding_any_bytes_ends(bytes in vec(any::<u8>(), 0..300)) {
            let _ = decode_body(&bytes, LogTime(0));
            let _ = FrameHeader::decode(&bytes, LIMIT);
            let _ = SegmentHeader::decode(&bytes);
        }

        #[test]
        fn decoding_a_changed_body_ends(runs in vec(run(), 1..5), changes in vec((any::<usize>(), any::<u8>()), 1..4)) {
            let mut body = Vec::new();
            encode_body(&runs, LogTime(0), &mut body);
            for (at, byte) in changes {
                let at = at % body.len();
                body[at] = byte;
            }
            if let Ok(runs) = decode_body(&body, LogTime(0)) {
                let mut again = Vec::new();
                encode_body(&runs, LogTime(0), &mut again);
                prop_assert_eq!(decode_body(&again, LogTime(0)), Ok(runs));
            }
        }

        #[test]
        fn a_compressed_body_that_is_changed_ends(at: usize, byte: u8) {
            let runs = [Run::one(SourceId(1), RecordKind::Data, LogTime(5), &[b'x'; 9000])];
            let mut frame = encoded(&runs, Compression::Lz4);
            prop_assert!(frame.len() < 1000);
            let at = at % frame.len();
            frame[at] = byte;
            if let Ok(header) = FrameHeader::decode(&frame, LIMIT) {
                let _ = header.decode_runs(&frame);
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_frame_shows() {
        let runs = [Run::one(SourceId(1), RecordKind::Data, LogTime(5), b"hello, world")];
        let frame = encoded(&runs, Compression::None);
        for bit in 0..frame.len() * 8 {
            let mut frame = frame.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            assert!(decoded(&PLACE, &frame).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_is_valid_in_its_place_alone() {
        let runs = [Run::one(SourceId(1), RecordKind::Data, LogTime(5), b"x")];
        let frame = encoded(&runs, Compression::None);
        assert!(decoded(&PLACE, &frame).is_ok());
        assert!(decoded(&Place { epoch: Epoch([8; 16]), ..PLACE }, &frame).is_err());
        assert!(decoded(&Place { segment: 4, ..PLACE }, &frame).is_err());
        assert!(decoded(&Place { offset: 4104, ..PLACE }, &frame).is_err());
        assert!(decoded(&PLACE, &[0; 4096]).is_err());
    }

    #[test]
    fn small_or_incompressible_bodies_stay_as_they_are() {
        let flags = |payload: &[u8]| {
            let runs = [Run::one(SourceId(1), RecordKind::Data, LogTime(5), payload)];
            encoded(&runs, Compression::Lz4)[8]
        };
        assert_eq!(flags(&[b'x'; 4000]), 0);
        assert_eq!(flags(&[b'x'; 5000]), 1);
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(5000)
        .collect();
        assert_eq!(flags(&noise), 0);
    }

    #[test]
    fn the_longest_record_fits_with_the_longest_peer_and_position() {
        let max = max_record_bytes(SEGMENT_BYTES_MIN);
        let mut run = Run::one(SourceId(65534), RecordKind::TableVersion, LogTime(i64::MIN), &vec![1; max]);
        run.peer = Some(Arc::from("p".repeat(PEER_BYTES_MAX)));
        run.position =
            Some(Position::File { inode: u64::MAX, head_crc: u32::MAX, head_len: u16::MAX, offset: u64::MAX });
        let mut encoder = FrameEncoder::new(Compression::None);
        encoder.encode(&PLACE, Lsn(1), 0, &[run], max_frame_bytes(SEGMENT_BYTES_MIN)).unwrap();
    }

    #[test]
    fn a_segment_header_decodes_to_what_was_encoded() {
        for (version, last_time) in [(VERSION_PLAIN, None), (VERSION_REFERENCES, Some(LogTime(-5)))] {
            let header = SegmentHeader { version, last_time, ..header() };
            let bytes = header.encode().unwrap();
            assert_eq!(bytes.len(), PAGE_BYTES);
            assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        }
        let many = (0..400).map(|id| (SourceId(id), format!("source_{id}"))).collect();
        let header = SegmentHeader { sources: many, ..header() };
        let bytes = header.encode().unwrap();
        assert_eq!(bytes.len(), 2 * PAGE_BYTES);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    }

    #[test]
    fn every_flipped_bit_of_a_segment_header_shows() {
        let bytes = header().encode().unwrap();
        for bit in (0..200 * 8).chain((200 * 8..bytes.len() * 8).step_by(61)) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(SegmentHeader::decode(&bytes), Err(Bad(_))), "bit {bit}");
        }
    }

    #[test]
    fn a_later_format_version_is_told_from_damage() {
        let mut bytes = header().encode().unwrap();
        bytes[8] = 3;
        bytes[16..20].fill(0);
        let crc = crc32c::crc32c(&bytes);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(FormatError::UnknownVersion(3)));
    }

    #[test]
    fn a_frame_refers_to_no_more_than_a_reader_takes() {
        let referring = |length: u32, gap: u64| {
            let mut run = Run::new(SourceId(1), RecordKind::Data, LogTime(5));
            run.peer = Some(Arc::from("in"));
            run.lengths = vec![length, 1];
            run.reference = Some(Reference { offset: 7, gaps: vec![(1, gap)], crc: 0 });
            run
        };
        let half = u32::try_from(REFERENCE_BYTES_MAX / 2).unwrap() - 1;
        let is_taken = |runs: &[Run]| {
            let mut body = Vec::new();
            encode_body(runs, LogTime(5), &mut body);
            let decoded = decode_body(&body, LogTime(5)).is_ok();
            let encoded = FrameEncoder::new(Compression::None).encode(&PLACE, Lsn(1), 0, runs, LIMIT).is_ok();
            assert_eq!(decoded, encoded);
            decoded
        };
        assert!(is_taken(&[referring(half, 0), referring(half, 0)]));
        assert!(!is_taken(&[referring(half, 0), referring(half + 1, 0)]));
        // What is between payloads counts for each run.
        assert!(is_taken(&[referring(half, u64::from(half)), referring(1, u64::from(half))]));
        assert!(!is_taken(&[referring(half, u64::from(half) + 2)]));
        assert!(!is_taken(&[referring(half, u64::MAX)]));
    }

    #[test]
    fn the_length_of_a_length_is_known_before() {
        for length in (0..32).flat_map(|bits| [(1u32 << bits) - 1, 1 << bits, (1 << bits) + 1]).chain([u32::MAX]) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, u64::from(length));
            assert_eq!((length_bytes(length), varint_bytes(u64::from(length))), (bytes.len(), bytes.len()), "{length}");
        }
    }

    #[test]
    fn numbers_round_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Input(&bytes).varint(), Ok(value));
            let signed = value as i64;
            assert_eq!(unzigzag(zigzag(signed)), signed);
        }
        assert!(Input(&[0xff; 10]).varint().is_err());
        assert!(Input(&[0x80; 11]).varint().is_err());
    }
}
