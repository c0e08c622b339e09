//! From logged records to rows: decoding, system columns, event time and the watermark of one source.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{Array, ArrayRef, Int64Array, UInt32Array, new_null_array};
use arrow_select::take::take;
use serde::{Deserialize, Serialize};

use super::EngineError;
use super::watermark::{Rules, SourceClock};
use crate::config::{OnError, Source};
use crate::event::{Bad, LogTime, Lsn, Position as SourcePosition, RecordKind, Run};
use crate::format::{Decoded, Decoder};
use crate::operator::{Chunk, Mark, Position, event_times, instants};

/// A source within the engine.
pub struct SourceNode {
    pub name: Arc<str>,
    config: Source,
    decoder: Box<dyn Decoder>,
    rules: Rules,
    clock: SourceClock,
    position: Option<SourcePosition>,
    /// Which of `_arrival`, `_lsn`, `_peer` anybody reads; the others are NULL columns.
    reads: [bool; 3],
    empty: Vec<ArrayRef>,
    /// Records of the batch at hand, in LSN order.
    pending: Pending,
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

#[derive(Default)]
struct Pending {
    payload: Vec<u8>,
    lengths: Vec<u32>,
    lsns: Vec<u64>,
    times: Vec<LogTime>,
    unsynchronised: Vec<bool>,
    /// Ends (in records) and names of stretches with one peer.
    peers: Vec<(usize, Option<Arc<str>>)>,
    bad: Vec<Dead>,
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
    /// A source; `reads` tells which system columns anybody reads.
    pub fn new(config: &Source, reads: [bool; 3]) -> SourceNode {
        let fields = config.schema().fields;
        SourceNode {
            name: config.name.as_str().into(),
            decoder: config.format.decoder(&config.columns, config.time.epoch),
            rules: Rules::new(&config.time),
            clock: SourceClock::default(),
            position: None,
            reads,
            empty: fields.iter().map(|field| arrow_array::new_empty_array(&field.data_type.arrow())).collect(),
            pending: Pending::default(),
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
    /// The decoder's part is not its own.
    pub fn restore(&mut self, saved: &SourceSaved, position: Option<SourcePosition>) -> Result<(), EngineError> {
        self.clock = saved.clock;
        self.counters = saved.counters;
        self.position = position;
        self.decoder
            .restore(&saved.decoder)
            .map_err(|reason| EngineError::Saved { what: self.name.to_string(), reason })
    }

    /// A chunk without rows.
    pub fn empty(&self) -> Chunk {
        Chunk { columns: self.empty.clone(), ..Chunk::default() }
    }

    /// Takes records `from..to` of a data or bad run, whose payloads are `payload`.
    pub fn take(&mut self, run: &Run, first_lsn: Lsn, records: std::ops::Range<usize>, payload: &[u8]) {
        let lengths = run.lengths.get(records.clone()).unwrap_or_default();
        self.counters.records += lengths.len() as u64;
        if records.end == run.len() && run.position.is_some() {
            self.position = run.position;
        }
        if run.kind == RecordKind::Bad {
            let mut rest = payload;
            for (record, length) in records.zip(lengths) {
                let (one, tail) = rest.split_at((*length as usize).min(rest.len()));
                rest = tail;
                let bad = postcard::from_bytes(one).unwrap_or_else(|_| Bad {
                    reason: "unreadable record of a refused message".into(),
                    bytes: one.into(),
                });
                self.pending.bad.push(Dead {
                    position: Position::row(first_lsn.0 + record as u64, 0),
                    arrival: run.time,
                    peer: run.peer.clone(),
                    reason: bad.reason,
                    raw: bad.bytes,
                });
            }
            return;
        }
        let pending = &mut self.pending;
        pending.payload.extend_from_slice(payload);
        pending.lengths.extend_from_slice(lengths);
        pending.lsns.extend(records.map(|record| first_lsn.0 + record as u64));
        pending.times.resize(pending.lsns.len(), run.time);
        pending.unsynchronised.resize(pending.lsns.len(), run.unsynchronised);
        let end = pending.lsns.len();
        match pending.peers.last_mut() {
            Some((last, peer)) if *peer == run.peer => *last = end,
            _ => pending.peers.push((end, run.peer.clone())),
        }
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
                    self.decoder = self.config.format.decoder(&self.config.columns, self.config.time.epoch);
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

    /// Decodes what [`SourceNode::take`] took: the rows, and the dead ones.
    ///
    /// # Errors
    /// A message was refused and the source says `on_error = "stop"`.
    pub fn rows(&mut self) -> Result<(Chunk, Chunk), EngineError> {
        if self.pending.lsns.is_empty() && self.pending.bad.is_empty() {
            return Ok((self.empty(), Chunk::default()));
        }
        let mut pending = std::mem::take(&mut self.pending);
        let mut columns: Vec<ArrayRef> = Vec::new();
        let mut messages: Vec<u32> = Vec::new();
        let mut dead = std::mem::take(&mut pending.bad);
        self.decode(&pending, &mut columns, &mut messages, &mut dead);

        // Positions, then event times; rows without a usable time are dead.
        let mut positions = Vec::with_capacity(messages.len());
        let mut before = None;
        let mut ordinal = 0;
        for message in &messages {
            ordinal = if before == Some(*message) { ordinal + 1 } else { 0 };
            before = Some(*message);
            positions.push(Position::row(pending.lsns.get(*message as usize).copied().unwrap_or_default(), ordinal));
        }
        let arrival = |message: u32| pending.times.get(message as usize).copied().unwrap_or_default();
        let mut kept: Vec<u32> = Vec::with_capacity(messages.len());
        let mut marks = Vec::new();
        let mut row_time = |row: usize, time: Result<i64, &str>, clock: &mut SourceClock| {
            let message = messages.get(row).copied().unwrap_or_default();
            let position = positions.get(row).copied().unwrap_or_default();
            match time {
                Ok(time) => {
                    kept.push(row as u32);
                    if clock.row(time, arrival(message), &self.rules) {
                        marks.push(Mark { position: position.mark(), clock: clock.stream });
                    }
                }
                Err(reason) => dead.push(pending.dead(message, position, reason.to_owned())),
            }
        };
        let latest = |message: u32| match self.config.time.max_future_ms {
            Some(ms) if !pending.unsynchronised.get(message as usize).copied().unwrap_or(false) => {
                arrival(message).millis().saturating_add(ms)
            }
            _ => i64::MAX,
        };
        match self.config.time.column {
            None => {
                for (row, message) in messages.iter().enumerate() {
                    row_time(row, Ok(arrival(*message).millis()), &mut self.clock);
                }
            }
            Some(column) => {
                let times = columns.get(column).map(event_times).into_iter().flatten();
                for ((row, message), time) in messages.iter().enumerate().zip(times) {
                    let time = match time {
                        None => Err("the event time is NULL"),
                        Some(time) if time > latest(*message) => Err("the event time is too far in the future"),
                        Some(time) => Ok(time),
                    };
                    row_time(row, time, &mut self.clock);
                }
            }
        }
        if kept.len() < messages.len() {
            let indices = UInt32Array::from(kept.clone());
            columns = columns.iter().map(|column| select(column, &indices)).collect();
            messages = kept.iter().filter_map(|row| messages.get(*row as usize).copied()).collect();
            positions = kept.iter().filter_map(|row| positions.get(*row as usize).copied()).collect();
        }
        self.counters.rows += messages.len() as u64;
        self.counters.dead += dead.len() as u64;
        self.system_columns(&pending, &messages, &mut columns);
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
        pending.clear();
        self.pending = pending;
        Ok((Chunk { columns, positions: Arc::new(positions), marks: Arc::new(marks) }, dead_chunk(dead)))
    }

    fn decode(
        &mut self,
        pending: &Pending,
        columns: &mut Vec<ArrayRef>,
        messages: &mut Vec<u32>,
        dead: &mut Vec<Dead>,
    ) {
        // Only a decoder that keeps something per byte stream needs one call per stretch.
        let stretches: &[(usize, Option<Arc<str>>)] =
            if self.decoder.per_peer() { &pending.peers } else { &[(pending.lengths.len(), None)] };
        let (mut record, mut byte) = (0, 0);
        let mut parts: Vec<Vec<ArrayRef>> = Vec::new();
        for (end, peer) in stretches {
            let lengths = pending.lengths.get(record..*end).unwrap_or_default();
            let bytes = lengths.iter().map(|length| *length as usize).sum::<usize>();
            let payload = pending.payload.get(byte..byte + bytes).unwrap_or_default();
            let decoded = self.decode_guarded(payload, lengths, peer.as_deref());
            for (message, reason) in decoded.refused {
                let message = message + record as u32;
                let lsn = pending.lsns.get(message as usize).copied().unwrap_or_default();
                dead.push(pending.dead(message, Position::row(lsn, 0), reason));
            }
            messages.extend(decoded.messages.iter().map(|message| message + record as u32));
            parts.push(decoded.columns);
            record = *end;
            byte += bytes;
        }
        *columns = match parts.len() {
            1 => parts.pop().unwrap_or_default(),
            _ => (0..self.config.columns.len()).map(|column| concat(&parts, column, &self.empty)).collect(),
        };
    }

    /// Decodes; a message on which the decoder panics is refused, the same in every replay, and the others stand.
    fn decode_guarded(&mut self, payload: &[u8], lengths: &[u32], peer: Option<&str>) -> Decoded {
        let decoder = &mut self.decoder;
        let attempt = |decoder: &mut Box<dyn Decoder>, payload: &[u8], lengths: &[u32]| {
            catch_unwind(AssertUnwindSafe(|| decoder.decode(payload, lengths, peer))).ok()
        };
        if let Some(decoded) = attempt(decoder, payload, lengths) {
            return decoded;
        }
        // What the panic left half done goes with the decoder; message by message, only the culprit is refused.
        let fresh = |old: &dyn Decoder| {
            let mut new = self.config.format.decoder(&self.config.columns, self.config.time.epoch);
            let _ = new.restore(&old.save());
            new
        };
        *decoder = fresh(decoder.as_ref());
        let mut whole = Decoded::default();
        let mut parts = Vec::new();
        let mut rest = payload;
        for (message, length) in (0u32..).zip(lengths) {
            let (one, tail) = rest.split_at((*length as usize).min(rest.len()));
            rest = tail;
            match attempt(decoder, one, &[*length]) {
                Some(decoded) => {
                    whole.messages.extend(decoded.messages.iter().map(|_| message));
                    whole.refused.extend(decoded.refused.into_iter().map(|(_, reason)| (message, reason)));
                    parts.push(decoded.columns);
                }
                None => {
                    *decoder = fresh(decoder.as_ref());
                    whole.refused.push((message, "the decoder failed on this message: please report it".to_owned()));
                }
            }
        }
        whole.columns = (0..self.config.columns.len()).map(|column| concat(&parts, column, &self.empty)).collect();
        whole
    }

    fn system_columns(&self, pending: &Pending, messages: &[u32], columns: &mut Vec<ArrayRef>) {
        let [arrival, lsn, peer] = self.reads;
        let at = |message: &u32| *message as usize;
        let unread = |column: usize| {
            let data_type = self.empty.get(column).map_or(arrow_schema::DataType::Null, |c| c.data_type().clone());
            new_null_array(&data_type, messages.len())
        };
        let declared = columns.len();
        columns.push(if arrival {
            let times =
                messages.iter().map(|m| pending.times.get(at(m)).map_or(0, |t| t.millis().saturating_mul(1000)));
            Arc::new(instants(times))
        } else {
            unread(declared)
        });
        columns.push(if lsn {
            let lsns = messages.iter().map(|m| pending.lsns.get(at(m)).map_or(0, |lsn| *lsn as i64));
            Arc::new(Int64Array::from_iter_values(lsns))
        } else {
            unread(declared + 1)
        });
        columns.push(if peer {
            let mut builder = StringBuilder::new();
            for message in messages {
                builder.append_option(pending.peer(at(message)));
            }
            Arc::new(builder.finish())
        } else {
            unread(declared + 2)
        });
    }
}

impl Pending {
    fn peer(&self, message: usize) -> Option<&str> {
        let stretch = self.peers.partition_point(|(end, _)| *end <= message);
        self.peers.get(stretch).and_then(|(_, peer)| peer.as_deref())
    }

    fn dead(&self, message: u32, position: Position, reason: String) -> Dead {
        let message = message as usize;
        let start: usize = self.lengths.iter().take(message).map(|length| *length as usize).sum();
        let length = self.lengths.get(message).map_or(0, |length| *length as usize);
        Dead {
            position,
            arrival: self.times.get(message).copied().unwrap_or_default(),
            peer: self.peer(message).map(Arc::from),
            reason,
            raw: self.payload.get(start..start + length).unwrap_or_default().to_vec(),
        }
    }

    fn clear(&mut self) {
        self.payload.clear();
        self.lengths.clear();
        self.lsns.clear();
        self.times.clear();
        self.unsynchronised.clear();
        self.peers.clear();
    }
}

#[expect(clippy::expect_used, reason = "the indices are rows of the column")]
fn select(column: &ArrayRef, indices: &UInt32Array) -> ArrayRef {
    take(column, indices, None).expect("row indices are within the column")
}

#[expect(clippy::expect_used, reason = "a decoder gives every column in its declared type")]
fn concat(parts: &[Vec<ArrayRef>], column: usize, empty: &[ArrayRef]) -> ArrayRef {
    let arrays: Vec<&dyn Array> = parts.iter().filter_map(|part| part.get(column)).map(AsRef::as_ref).collect();
    if arrays.is_empty() {
        return empty.get(column).cloned().unwrap_or_else(|| new_null_array(&arrow_schema::DataType::Null, 0));
    }
    arrow_select::concat::concat(&arrays).expect("parts of one column have one type")
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
