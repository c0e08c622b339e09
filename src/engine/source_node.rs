//! From logged records to rows: decoding, system columns, event time and the watermark of one source.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{Array as _, ArrayRef, Int64Array, new_empty_array, new_null_array};
use serde::{Deserialize, Serialize};

use super::EngineError;
use super::batch::{Part, Taken};
use super::decode::SourceDecoder;
use super::watermark::{Rules, SourceClock};
use crate::config::{OnError, Source};
use crate::event::{Bad, EventTime, Frame, LogTime, Lsn, Position as SourcePosition, RecordKind, Run};
use crate::format::{Decoded, Messages};
use crate::operator::{Chunk, Mark, Position, event_times, instants};

/// A source within the engine.
pub struct SourceNode {
    pub name: Arc<str>,
    config: Source,
    decoder: SourceDecoder,
    rules: Rules,
    clock: SourceClock,
    position: Option<SourcePosition>,
    /// Which of `_arrival`, `_lsn`, `_peer` anybody reads; the others are NULL columns.
    reads: [bool; 3],
    empty: Vec<ArrayRef>,
    pub counters: SourceCounters,
}

/// What a source has seen, since the state was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCounters {
    pub records: u64,
    pub rows: u64,
    pub dead: u64,
    /// Messages lost before the log, where that is known.
    pub lost: u64,
}

struct Dead {
    position: Position,
    arrival: LogTime,
    peer: Option<Arc<str>>,
    reason: String,
    raw: Vec<u8>,
}

/// What a checkpoint keeps of a source.
#[derive(Serialize, Deserialize)]
pub struct SourceSaved {
    clock: SourceClock,
    decoder: Vec<u8>,
    counters: SourceCounters,
}

impl SourceNode {
    /// A source; `reads` tells which of its columns anybody reads, the system columns last.
    pub fn new(config: &Source, reads: &[bool]) -> SourceNode {
        let system = |column: usize| reads.get(config.columns.len() + column).copied().unwrap_or(false);
        let fields = config.schema().fields;
        SourceNode {
            name: config.name.as_str().into(),
            decoder: SourceDecoder::new(config, reads),
            rules: Rules::new(&config.time),
            clock: SourceClock::default(),
            position: None,
            reads: [system(0), system(1), system(2)],
            empty: fields.iter().map(|field| new_empty_array(&field.data_type.arrow())).collect(),
            counters: SourceCounters::default(),
            config: config.clone(),
        }
    }

    /// Where reading resumes.
    pub fn position(&self) -> Option<SourcePosition> {
        self.position
    }

    /// The clock as it stands.
    pub fn clock(&self) -> &SourceClock {
        &self.clock
    }

    /// The rules of the clock.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What a checkpoint keeps.
    pub fn save(&self) -> SourceSaved {
        SourceSaved { clock: self.clock, decoder: self.decoder.save(), counters: self.counters }
    }

    /// Takes back what a checkpoint kept.
    ///
    /// # Errors
    /// What the decoder has kept of a file does not fit the columns.
    pub fn restore(&mut self, saved: &SourceSaved, position: Option<SourcePosition>) -> Result<(), EngineError> {
        self.clock = saved.clock;
        self.counters = saved.counters;
        self.position = position;
        match self.decoder.restore(&saved.decoder) {
            // Under other columns; its byte streams have ended, and with the next one it begins anew anyway.
            Err(_) if !self.config.connector.is_replayable() => {
                self.decoder.reset();
                Ok(())
            }
            restored => restored.map_err(|reason| EngineError::Configuration {
                message: format!(
                    "source {}: the columns do not fit what was read of the file before: {reason}. Take the old columns \
                     back, or give the source another name: then it is read from its beginning",
                    self.name
                ),
            }),
        }
    }

    /// A chunk without rows.
    pub fn empty(&self) -> Chunk {
        Chunk { columns: self.empty.clone(), ..Chunk::default() }
    }

    /// A control record of this source or of the pipeline: what it does to the decoder and the clock.
    pub fn control(&mut self, run: &Run, lsn: Lsn, own: bool) -> Chunk {
        let mut chunk = self.empty();
        let changed = match run.kind {
            RecordKind::Connect if own => {
                self.decoder.connected(run.peer.as_deref());
                false
            }
            RecordKind::Disconnect if own => {
                self.decoder.disconnected(run.peer.as_deref());
                false
            }
            RecordKind::EndOfInput if own => self.clock.end(),
            RecordKind::Gap if own => {
                let gap: Option<crate::event::Gap> = postcard::from_bytes(&run.payload).ok();
                self.counters.lost += gap.and_then(|gap| gap.messages).unwrap_or(0);
                false
            }
            RecordKind::Tick => self.clock.tick(run.time, &self.rules),
            RecordKind::Start => {
                self.clock.started(run.time);
                if !self.config.connector.is_replayable() {
                    // Its byte streams ended with the process: headers are expected again.
                    self.decoder.reset();
                }
                false
            }
            _ => false,
        };
        if own && run.position.is_some() {
            self.position = run.position;
        }
        if changed {
            let position = Position::row(lsn.0, 0).mark();
            chunk.marks = Arc::new(vec![Mark { position, clock: self.clock.stream }]);
        }
        chunk
    }

    /// The rows of a batch, and the dead ones.
    ///
    /// # Errors
    /// A message was refused and the source says `on_error = "stop"`.
    pub fn rows(&mut self, frame: &Frame, taken: Taken) -> Result<(Chunk, Chunk), EngineError> {
        let Taken { data, bad, decoded, .. } = taken;
        let parts = || data.iter().chain(&bad);
        self.counters.records += parts().map(|part| part.records.len() as u64).sum::<u64>();
        // A run's position is behind its last record.
        let position = |part: &Part| part.run(frame).filter(|run| part.records.end == run.len())?.position;
        let positions = parts().filter_map(|part| Some((part.first_lsn, position(part)?)));
        self.position = positions.max_by_key(|(lsn, _)| *lsn).map(|(_, position)| position).or(self.position);
        let mut dead: Vec<Dead> = bad.iter().flat_map(|part| Dead::refused(frame, part)).collect();
        let decoded = decoded.unwrap_or_else(|| self.decoder.decode(frame, &data));
        let chunk = self.stamp(frame, &data, decoded, &mut dead);
        self.counters.rows += chunk.rows() as u64;
        self.counters.dead += dead.len() as u64;
        dead.sort_by_key(|dead| dead.position);
        if self.config.on_error == OnError::Stop
            && let Some(first) = dead.first()
        {
            return Err(EngineError::Refused {
                source_name: self.name.to_string(),
                lsn: Lsn(first.position.lsn),
                reason: first.reason.clone(),
            });
        }
        Ok((chunk, dead_chunk(dead)))
    }

    /// Gives decoded rows their positions and event times, and moves the clock. A row without a usable time is dead.
    fn stamp(&mut self, frame: &Frame, data: &[Part], decoded: Decoded, dead: &mut Vec<Dead>) -> Chunk {
        let Decoded { mut columns, messages, refused } = decoded;
        let times = self.config.time.column.and_then(|column| columns.get(column).cloned());
        let mut times = times.as_ref().map(event_times);
        let mut stamps = Stamps { reads: self.reads, ..Stamps::default() };
        let mut positions = Vec::with_capacity(messages.len());
        let mut marks = Vec::new();
        let mut timeless: Vec<u32> = Vec::new();
        let (mut row, mut first) = (0, 0);
        let mut refused = refused.into_iter().peekable();
        for part in data {
            let Some(run) = part.run(frame) else { continue };
            let end = first + part.records.len() as u32;
            let lsn_of = |message: u32| part.first_lsn.0 + u64::from(message - first);
            let latest = match self.config.time.max_future_ms {
                Some(ms) if !run.unsynchronised => run.time.millis().saturating_add(ms),
                _ => EventTime::MAX,
            };
            let (mut of_rows, mut of_refused) = (Seek::new(part, frame), Seek::new(part, frame));
            let rows_before = row;
            let (mut before, mut ordinal) = (None, 0);
            while let Some(message) = messages.get(row).copied().filter(|message| *message < end) {
                ordinal = if before == Some(message) { ordinal + 1 } else { 0 };
                before = Some(message);
                let position = Position::row(lsn_of(message), ordinal);
                positions.push(position);
                let time = match &mut times {
                    None => Ok(run.time.millis()),
                    Some(times) => match times.next().flatten() {
                        None => Err("the event time is NULL"),
                        Some(time) if time > latest => Err("the event time is too far in the future"),
                        Some(time) => Ok(time),
                    },
                };
                match time {
                    Ok(time) => {
                        if self.clock.row(time, run.time, &self.rules) {
                            marks.push(Mark { position: position.mark(), clock: self.clock.stream });
                        }
                    }
                    Err(reason) => {
                        timeless.push(row as u32);
                        dead.push(Dead::new(run, position, reason.to_owned(), of_rows.to(message - first)));
                    }
                }
                row += 1;
            }
            stamps.append(run, row - rows_before);
            while let Some((message, reason)) = refused.next_if(|(message, _)| *message < end) {
                let position = Position::row(lsn_of(message), 0);
                dead.push(Dead::new(run, position, reason, of_refused.to(message - first)));
            }
            first = end;
        }
        columns.extend(stamps.columns(&positions, self.empty.get(self.config.columns.len()..).unwrap_or_default()));
        let chunk = Chunk { columns, positions: Arc::new(positions), marks: Arc::new(marks) };
        if timeless.is_empty() {
            return chunk;
        }
        let mut timeless = timeless.into_iter().peekable();
        let kept: Vec<u32> = (0..chunk.rows() as u32).filter(|row| timeless.next_if_eq(row).is_none()).collect();
        chunk.select(&kept)
    }
}

/// The system columns of a batch.
#[derive(Default)]
struct Stamps {
    reads: [bool; 3],
    rows: usize,
    arrivals: Vec<i64>,
    peers: StringBuilder,
}

impl Stamps {
    /// The next rows are of this run.
    fn append(&mut self, run: &Run, rows: usize) {
        let [arrival, _, peer] = self.reads;
        self.rows += rows;
        if arrival {
            self.arrivals.resize(self.rows, run.time.millis().saturating_mul(1000));
        }
        if peer {
            (0..rows).for_each(|_| self.peers.append_option(run.peer.as_deref()));
        }
    }

    /// The columns; `empty` gives their types.
    fn columns(mut self, positions: &[Position], empty: &[ArrayRef]) -> Vec<ArrayRef> {
        let [arrival, lsn, peer] = self.reads;
        let mut columns: Vec<ArrayRef> =
            empty.iter().map(|column| new_null_array(column.data_type(), self.rows)).collect();
        if let [arrivals, lsns, peers] = columns.as_mut_slice() {
            if arrival {
                *arrivals = Arc::new(instants(self.arrivals));
            }
            if lsn {
                *lsns = Arc::new(Int64Array::from_iter_values(positions.iter().map(|position| position.lsn as i64)));
            }
            if peer {
                *peers = Arc::new(self.peers.finish());
            }
        }
        columns
    }
}

impl Dead {
    fn new(run: &Run, position: Position, reason: String, raw: &[u8]) -> Dead {
        Dead { position, arrival: run.time, peer: run.peer.clone(), reason, raw: raw.to_vec() }
    }

    /// What framing has refused.
    fn refused<'f>(frame: &'f Frame, part: &'f Part) -> impl Iterator<Item = Dead> + 'f {
        let run = part.run(frame).into_iter();
        run.flat_map(|run| {
            (part.first_lsn.0..).zip(part.messages(frame).iter()).map(|(lsn, payload)| {
                let unreadable =
                    || Bad { reason: "unreadable record of a refused message".into(), bytes: payload.into() };
                let bad: Bad = postcard::from_bytes(payload).unwrap_or_else(|_| unreadable());
                Dead::new(run, Position::row(lsn, 0), bad.reason, &bad.bytes)
            })
        })
    }
}

/// Finds messages of a part that are asked for in ascending order.
struct Seek<'f> {
    /// From the message on that was found last.
    rest: Messages<'f>,
    /// Its number.
    at: u32,
}

impl<'f> Seek<'f> {
    fn new(part: &Part, frame: &'f Frame) -> Seek<'f> {
        Seek { rest: part.messages(frame), at: 0 }
    }

    fn to(&mut self, message: u32) -> &'f [u8] {
        let (passed, lengths) =
            self.rest.lengths.split_at(self.rest.lengths.len().min(message.saturating_sub(self.at) as usize));
        let bytes: usize = passed.iter().map(|length| *length as usize).sum();
        self.rest = Messages { payload: self.rest.payload.get(bytes..).unwrap_or_default(), lengths };
        self.at = message;
        self.rest.iter().next().unwrap_or_default()
    }
}

fn dead_chunk(dead: Vec<Dead>) -> Chunk {
    if dead.is_empty() {
        return Chunk::default();
    }
    let mut peers = StringBuilder::new();
    let mut reasons = StringBuilder::new();
    let mut raw = BinaryBuilder::new();
    for row in &dead {
        peers.append_option(row.peer.as_deref());
        reasons.append_value(&row.reason);
        raw.append_value(&row.raw);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(instants(dead.iter().map(|row| row.arrival.millis().saturating_mul(1000)))),
        Arc::new(Int64Array::from_iter_values(dead.iter().map(|row| row.position.lsn as i64))),
        Arc::new(peers.finish()),
        Arc::new(reasons.finish()),
        Arc::new(raw.finish()),
    ];
    Chunk { columns, positions: Arc::new(dead.iter().map(|row| row.position).collect()), marks: Arc::default() }
}
