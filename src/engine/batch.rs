//! From a frame to batches: where it is cut, and what its messages decode to.
//!
//! Both follow from the frame and the configuration alone, so any thread can prepare any frame, in any order
//! ([`ahead`](super::ahead)). What depends on the records before (clocks, headers, state) comes after, in LSN order, in
//! [`Engine::take`](super::step::Engine::take). A decoder that keeps something per byte stream is left to that, too.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::decode::SourceDecoder;
use crate::config::Source;
use crate::event::{Frame, LogTime, Lsn, RecordKind, Run, SourceId};
use crate::format::{Decoded, Messages};

/// What a frame is to the engine, in LSN order.
pub struct Prepared {
    pub steps: Vec<Step>,
    /// Greatest log time of the frame's runs.
    pub time: LogTime,
}

/// A batch, or a control record between two.
pub struct Step {
    /// Greatest log time of the frame up to the end of this step.
    pub time: LogTime,
    pub what: What,
}

pub enum What {
    /// What each source has in the batch, ascending by source.
    Batch(Vec<Taken>),
    /// A record of this run of the frame.
    Control { run: usize, record: usize, lsn: Lsn },
}

/// The messages of one source in a batch.
#[derive(Default)]
pub struct Taken {
    /// Place of the source in the graph.
    pub source: usize,
    pub data: Vec<Part>,
    /// Messages that the framing has refused.
    pub bad: Vec<Part>,
    /// What the messages of `data` decode to, unless only the engine can tell.
    pub decoded: Option<Decoded>,
}

/// Records of one run of the frame.
#[derive(Clone, Debug)]
pub struct Part {
    pub run: usize,
    pub records: Range<usize>,
    /// Their place in the run's payload.
    pub payload: Range<usize>,
    /// LSN of the first one.
    pub first_lsn: Lsn,
}

impl Part {
    /// The run it is a part of.
    pub fn run<'f>(&self, frame: &'f Frame) -> Option<&'f Run> {
        frame.runs.get(self.run)
    }

    /// The messages.
    pub fn messages<'f>(&self, frame: &'f Frame) -> Messages<'f> {
        let Some(run) = self.run(frame) else { return Messages::default() };
        Messages {
            payload: run.payload.get(self.payload.clone()).unwrap_or_default(),
            lengths: run.lengths.get(self.records.clone()).unwrap_or_default(),
        }
    }
}

/// Where frames are cut: what of the configuration matters for it.
#[derive(Clone)]
pub struct Cutting {
    /// Source id in the log → place in the graph; ids of sources that are gone map to nothing.
    pub by_id: BTreeMap<SourceId, usize>,
    /// Rows of a batch at most.
    pub batch_rows: usize,
    /// Sinks that roll by log time, or state that is forgotten by it, see one time per batch.
    pub one_time: bool,
}

/// A source, and what is wanted of it.
pub struct Wanted {
    pub source: Source,
    /// Of its columns, the system columns last: whether anybody reads them.
    pub columns: Vec<bool>,
}

/// Prepares frames. Each thread has its own.
pub struct Preparer {
    cutting: Cutting,
    sources: Arc<[Wanted]>,
    /// Decoders of the sources, where they keep nothing from call to call.
    decoders: Vec<Option<SourceDecoder>>,
}

impl Preparer {
    /// A preparer for these sources, in the order of the graph.
    pub fn new(cutting: Cutting, sources: Arc<[Wanted]>) -> Preparer {
        let stateless = |Wanted { source, columns }: &Wanted| {
            Some(SourceDecoder::new(source, columns)).filter(|decoder| !decoder.per_peer())
        };
        Preparer { cutting, decoders: sources.iter().map(stateless).collect(), sources }
    }

    /// One for another thread.
    #[must_use]
    pub fn another(&self) -> Preparer {
        Preparer::new(self.cutting.clone(), Arc::clone(&self.sources))
    }

    /// Place in the graph of the source with this id in the log.
    pub fn source(&self, id: SourceId) -> Option<usize> {
        self.cutting.by_id.get(&id).copied()
    }

    /// Prepares what a frame holds behind `after`.
    pub fn prepare(&mut self, frame: &Frame, after: Lsn) -> Prepared {
        let mut prepared = cut(&self.cutting, frame, after);
        for step in &mut prepared.steps {
            let What::Batch(taken) = &mut step.what else { continue };
            for taken in taken.iter_mut().filter(|taken| !taken.data.is_empty()) {
                let decoder = self.decoders.get_mut(taken.source).and_then(Option::as_mut);
                taken.decoded = decoder.map(|decoder| decoder.decode(frame, &taken.data));
            }
        }
        prepared
    }
}

/// Cuts what a frame holds behind `after` into batches and control records.
fn cut(cutting: &Cutting, frame: &Frame, after: Lsn) -> Prepared {
    let mut cut = Cut { steps: Vec::new(), open: BTreeMap::new(), pending: 0, time: LogTime(i64::MIN) };
    let mut lsn = frame.first_lsn;
    let mut first_time = LogTime(i64::MIN);
    for (index, run) in frame.runs.iter().enumerate() {
        let skip = usize::try_from((after.0 + 1).saturating_sub(lsn.0)).unwrap_or(usize::MAX).min(run.len());
        let source = cutting.by_id.get(&run.source).copied();
        if !matches!(run.kind, RecordKind::Data | RecordKind::Bad) {
            cut.close();
            cut.time = cut.time.max(run.time);
            for record in skip..run.len() {
                let what = What::Control { run: index, record, lsn: lsn.plus(record as u64) };
                cut.steps.push(Step { time: cut.time, what });
            }
        } else if let Some(source) = source {
            let bytes = |records: Range<usize>| -> usize {
                run.lengths.get(records).unwrap_or_default().iter().map(|length| *length as usize).sum()
            };
            let mut record = skip;
            let mut byte = bytes(0..skip);
            while record < run.len() {
                if cut.pending > 0 && first_time != run.time && cutting.one_time {
                    cut.close();
                }
                first_time = run.time;
                cut.time = cut.time.max(run.time);
                let end = run.len().min(record + cutting.batch_rows - cut.pending);
                let payload = byte..byte + bytes(record..end);
                byte = payload.end;
                let part = Part { run: index, records: record..end, payload, first_lsn: lsn.plus(record as u64) };
                let taken = cut.taken(source);
                if run.kind == RecordKind::Data {
                    taken.data.push(part)
                } else {
                    taken.bad.push(part)
                }
                cut.pending += end - record;
                record = end;
                if cut.pending >= cutting.batch_rows {
                    cut.close();
                }
            }
        }
        cut.time = cut.time.max(run.time);
        lsn = lsn.plus(run.len() as u64);
    }
    cut.close();
    Prepared { steps: cut.steps, time: cut.time }
}

/// A frame that is being cut.
struct Cut {
    steps: Vec<Step>,
    /// The batch at hand, and its number of records.
    open: BTreeMap<usize, Taken>,
    pending: usize,
    time: LogTime,
}

impl Cut {
    fn taken(&mut self, source: usize) -> &mut Taken {
        self.open.entry(source).or_insert_with(|| Taken { source, ..Taken::default() })
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.pending) > 0 {
            let taken = std::mem::take(&mut self.open).into_values().collect();
            self.steps.push(Step { time: self.time, what: What::Batch(taken) });
        }
    }
}
