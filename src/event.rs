//! The vocabulary that every stage shares: positions in the log, times, records. Pure data, no I/O.
//!
//! Invariants:
//! - LSNs are dense: record N+1 follows record N, over all sources, from 1. [`Lsn::ZERO`] is "before everything".
//! - Log time never decreases with the LSN.
//! - A [`Run`] is what a source hands over, what the log stores and what a decoder reads: one currency, so that
//!   live processing and replay are the same code.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Log sequence number of a record: dense, starting at 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first record.
    pub const ZERO: Lsn = Lsn(0);

    /// The LSN `records` after this one.
    #[must_use]
    pub fn plus(self, records: u64) -> Lsn {
        Lsn(self.0.saturating_add(records))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Random identity of one life of a state: minted when a state is created, imported or repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch(pub [u8; 16]);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Log time: microseconds since the Unix epoch, on the clock that never runs backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogTime(pub i64);

impl LogTime {
    /// Milliseconds since the Unix epoch, rounded down: the unit of event time.
    pub fn millis(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

/// A watermark or an event time in milliseconds since the Unix epoch.
pub type EventTime = i64;
/// The watermark before any row.
pub const WATERMARK_MIN: EventTime = i64::MIN;
/// The watermark after the end of all input.
pub const WATERMARK_MAX: EventTime = i64::MAX;

/// Number of a source within a pipeline; the log's segment headers carry the names.
/// [`SourceId::PIPELINE`] stands for records that belong to no source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceId(pub u16);

impl SourceId {
    /// Records of the pipeline itself: ticks, starts, clock steps, config changes.
    pub const PIPELINE: SourceId = SourceId(u16::MAX);
}

/// What a record is. The numbers are part of the log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum RecordKind {
    /// One message of a source; payload: its bytes.
    Data = 0,
    /// What framing refused; payload: [`Bad`].
    Bad = 1,
    /// Time passed; payload empty.
    Tick = 2,
    /// Input was lost before the log; payload: [`Gap`].
    Gap = 3,
    /// A new byte stream begins (a connection, a file); the run's peer names it; payload empty.
    Connect = 4,
    /// The byte stream of that peer ended; payload empty.
    Disconnect = 5,
    /// The engine started; payload: [`Start`].
    Start = 6,
    /// A bounded source has given all it had; payload empty.
    EndOfInput = 7,
    /// The wall clock jumped; payload: [`ClockStep`].
    ClockStep = 8,
    /// The configuration changed; payload: the new TOML text.
    ConfigChange = 9,
    /// A lookup table's file changed; payload: its new content.
    TableVersion = 10,
}

impl RecordKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [RecordKind; 11] = [
        RecordKind::Data,
        RecordKind::Bad,
        RecordKind::Tick,
        RecordKind::Gap,
        RecordKind::Connect,
        RecordKind::Disconnect,
        RecordKind::Start,
        RecordKind::EndOfInput,
        RecordKind::ClockStep,
        RecordKind::ConfigChange,
        RecordKind::TableVersion,
    ];

    /// The kind with this number in the log.
    pub fn from_number(number: u8) -> Option<RecordKind> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The kind's name in `log cat`.
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Data => "data",
            RecordKind::Bad => "bad",
            RecordKind::Tick => "tick",
            RecordKind::Gap => "gap",
            RecordKind::Connect => "connect",
            RecordKind::Disconnect => "disconnect",
            RecordKind::Start => "start",
            RecordKind::EndOfInput => "end_of_input",
            RecordKind::ClockStep => "clock_step",
            RecordKind::ConfigChange => "config_change",
            RecordKind::TableVersion => "table_version",
        }
    }
}

/// Payload of a [`RecordKind::Bad`] record (postcard).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bad {
    /// Why framing refused the bytes, as a sentence.
    pub reason: String,
    /// The bytes, cut to a sane length.
    pub bytes: Vec<u8>,
}

/// Payload of a [`RecordKind::Gap`] record (postcard).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    pub reason: String,
    /// Messages lost, where that is known.
    pub messages: Option<u64>,
    /// Bytes lost, where that is known.
    pub bytes: Option<u64>,
}

/// Payload of a [`RecordKind::Start`] record (postcard).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Version of the program that started.
    pub version: String,
}

/// Payload of a [`RecordKind::ClockStep`] record (postcard).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// Wall clock minus log time after the step, µs.
    pub wall_minus_log_us: i64,
}

/// Where a replayable source stands after a run: reading resumes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Position {
    /// A byte offset in a file.
    File {
        inode: u64,
        /// CRC32C of the file's first `head_len` (≤ 1024) bytes: tells a rotated or rewritten file.
        head_crc: u32,
        head_len: u16,
        /// Offset in bytes of the first byte not yet taken.
        offset: u64,
    },
}

/// Where the payloads of a run stand in the file that its peer names, of which the log holds no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Offset in bytes of the first payload.
    pub offset: u64,
    /// Bytes of the file between one payload and the next, run-length coded: how often, how many bytes.
    pub gaps: Vec<(u32, u64)>,
    /// CRC32C of the payloads, one behind the other.
    pub crc: u32,
}

impl Reference {
    /// Appends a payload that stands `gap_bytes` behind the one before.
    pub fn push(&mut self, gap_bytes: u64) {
        match self.gaps.last_mut() {
            Some((times, bytes)) if *bytes == gap_bytes && *times < u32::MAX => *times += 1,
            _ => self.gaps.push((1, gap_bytes)),
        }
    }

    /// The bytes before each payload but the first.
    pub fn gaps(&self) -> impl Iterator<Item = u64> {
        self.gaps.iter().flat_map(|(times, bytes)| std::iter::repeat_n(*bytes, *times as usize))
    }
}

/// Consecutive records of one source and kind that arrived together: their payloads as one run of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub source: SourceId,
    pub kind: RecordKind,
    /// Arrival (log time) of every record of the run.
    pub time: LogTime,
    /// The wall clock was not known to be right when the run arrived.
    pub unsynchronised: bool,
    /// Name of the byte stream the records came by (address and port, file name), where there are several.
    pub peer: Option<Arc<str>>,
    /// Source position after the last record of the run (replayable sources).
    pub position: Option<Position>,
    /// Where the payloads stand, if the log is to hold no copy of them.
    pub reference: Option<Reference>,
    /// Length in bytes of each record's payload.
    pub lengths: Vec<u32>,
    /// The payloads, one behind the other; empty in a run whose reference has not been read yet.
    pub payload: Vec<u8>,
}

impl Run {
    /// A run without records.
    pub fn new(source: SourceId, kind: RecordKind, time: LogTime) -> Run {
        Run {
            source,
            kind,
            time,
            unsynchronised: false,
            peer: None,
            position: None,
            reference: None,
            lengths: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// A run of one record.
    pub fn one(source: SourceId, kind: RecordKind, time: LogTime, payload: &[u8]) -> Run {
        let mut run = Run::new(source, kind, time);
        run.push(payload);
        run
    }

    /// Appends a record. A payload longer than `u32::MAX` cannot occur: framing bounds every message.
    pub fn push(&mut self, payload: &[u8]) {
        self.lengths.push(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        self.payload.extend_from_slice(payload);
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether the run has no record.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Bytes that the run takes in queues.
    pub fn size_bytes(&self) -> usize {
        self.payload.len() + self.rest_bytes()
    }

    /// Bytes that the run takes in the log, roughly.
    pub fn logged_bytes(&self) -> usize {
        if self.reference.is_some() { self.rest_bytes() } else { self.size_bytes() }
    }

    fn rest_bytes(&self) -> usize {
        let gaps = self.reference.as_ref().map_or(0, |reference| reference.gaps.len());
        4 * self.lengths.len() + 16 * gaps + 64
    }

    /// Bytes of the payloads, whether they are here or in a file.
    pub fn payload_bytes(&self) -> u64 {
        self.lengths.iter().map(|length| u64::from(*length)).sum()
    }

    /// Offsets in its file of the first payload and behind the last one.
    pub fn span(&self) -> Option<(u64, u64)> {
        let reference = self.reference.as_ref()?;
        let gaps = reference.gaps.iter().map(|(times, bytes)| bytes.saturating_mul(u64::from(*times)));
        let bytes = gaps.fold(self.payload_bytes(), u64::saturating_add);
        Some((reference.offset, reference.offset.saturating_add(bytes)))
    }

    /// The payload of each record, in order.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.payload.as_slice();
        self.lengths.iter().map(move |length| {
            let (record, tail) = rest.split_at((*length as usize).min(rest.len()));
            rest = tail;
            record
        })
    }
}

/// One group commit: what was written with one sync and is replayed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// LSN of the first record.
    pub first_lsn: Lsn,
    pub runs: Vec<Run>,
}

impl Frame {
    /// Number of records.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.len() as u64).sum()
    }

    /// Whether the frame has no record.
    pub fn is_empty(&self) -> bool {
        self.runs.iter().all(Run::is_empty)
    }

    /// LSN of the last record (of the first, in a frame without records, which the log never holds).
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0 + self.len().max(1) - 1)
    }
}
