//! Streams, whole: rows and clocks in the order in which they happen.

use crate::value::Value;

/// Where something happens: a record of the log, and first its row, then the watermark that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub lsn: u64,
    pub is_clock: bool,
}

/// Watermark (ms), idleness and end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    pub watermark: i64,
    pub idle: bool,
    pub ended: bool,
}

impl Clock {
    pub const START: Clock = Clock { watermark: i64::MIN, idle: false, ended: false };
    pub const END: Clock = Clock { watermark: i64::MAX, idle: false, ended: true };
}

#[derive(Clone, Debug)]
pub enum Event {
    Row(Vec<Value>),
    Clock(Clock),
}

/// Everything that ever flows on an edge of the plan.
#[derive(Clone, Debug, Default)]
pub struct Stream(pub Vec<(At, Event)>);

impl Stream {
    pub fn row(&mut self, at: At, row: Vec<Value>) {
        self.0.push((at, Event::Row(row)));
    }

    pub fn clock(&mut self, at: At, clock: Clock) {
        self.0.push((at, Event::Clock(clock)));
    }

    /// Each row to any number of rows; clocks pass.
    pub fn map(self, mut f: impl FnMut(At, Vec<Value>) -> Vec<Vec<Value>>) -> Stream {
        let mut out = Stream::default();
        for (at, event) in self.0 {
            match event {
                Event::Row(row) => f(at, row).into_iter().for_each(|row| out.row(at, row)),
                Event::Clock(clock) => out.clock(at, clock),
            }
        }
        out
    }

    /// Rows before clocks at each place: what several clocks of one place free stands before all of them.
    pub fn settled(mut self) -> Stream {
        self.0.sort_by_key(|(at, event)| (*at, matches!(event, Event::Clock(_))));
        self
    }
}

/// All events of several inputs in the order in which an operator meets them, with the index of the input; in place of
/// the inputs' clocks their common one, wherever it changes.
pub fn merge(inputs: Vec<Stream>) -> Vec<(At, usize, Event)> {
    let mut clocks = vec![Clock::START; inputs.len()];
    let mut common = Clock::START;
    let mut all: Vec<(At, usize, Event)> = Vec::new();
    for (input, stream) in inputs.into_iter().enumerate() {
        all.extend(stream.0.into_iter().map(|(at, event)| (at, input, event)));
    }
    all.sort_by_key(|(at, input, event)| (*at, *input, matches!(event, Event::Clock(_))));
    let mut merged = Vec::new();
    for (at, input, event) in all {
        match event {
            Event::Row(row) => merged.push((at, input, Event::Row(row))),
            Event::Clock(clock) => {
                clocks[input] = clock;
                let next = combined(common, &clocks);
                if next != common {
                    common = next;
                    merged.push((at, input, Event::Clock(next)));
                }
            }
        }
    }
    merged
}

/// The rule of idleness: the slowest input that is neither idle nor ended decides, but never backwards: an input that comes
/// back behind the others counts when it has caught up. When all that have not ended are idle, the fastest decides.
fn combined(before: Clock, inputs: &[Clock]) -> Clock {
    if inputs.iter().all(|input| input.ended) {
        return Clock::END;
    }
    let open: Vec<&Clock> = inputs.iter().filter(|input| !input.ended).collect();
    let active: Vec<i64> = open.iter().filter(|input| !input.idle).map(|input| input.watermark).collect();
    let watermark = if active.is_empty() {
        open.iter().map(|input| input.watermark).max().unwrap_or(before.watermark)
    } else {
        active.into_iter().filter(|watermark| *watermark >= before.watermark).min().unwrap_or(before.watermark)
    };
    let idle = open.iter().all(|input| input.idle);
    Clock { watermark: watermark.max(before.watermark), idle, ended: false }
}
