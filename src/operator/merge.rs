//! The one order in which an operator with several inputs meets them, and the clock of such an operator.

use serde::{Deserialize, Serialize};

use super::{Chunk, Position, StreamClock};

/// A row or a mark of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    pub position: Position,
    pub input: usize,
    pub is_mark: bool,
    /// Index of the row, or of the mark.
    pub index: usize,
}

/// Rows and marks of all inputs by (position, input, row before mark): the order of the module doc of `operator`.
pub fn merged(inputs: &[Chunk]) -> Vec<Event> {
    let mut events = Vec::new();
    for (input, chunk) in inputs.iter().enumerate() {
        let rows = chunk.positions.iter().enumerate();
        events.extend(rows.map(|(index, position)| Event { position: *position, input, is_mark: false, index }));
        let marks = chunk.marks.iter().enumerate();
        events.extend(marks.map(|(index, mark)| Event { position: mark.position, input, is_mark: true, index }));
    }
    events.sort();
    events
}

/// The clocks of the inputs and the one that follows from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    inputs: Vec<StreamClock>,
    pub output: StreamClock,
}

impl Clocks {
    /// For so many inputs.
    pub fn new(inputs: usize) -> Clocks {
        Clocks { inputs: vec![StreamClock::default(); inputs], output: StreamClock::default() }
    }

    /// Takes the mark of an event; gives the combined clock where it changes.
    pub fn take(&mut self, inputs: &[Chunk], event: Event) -> Option<StreamClock> {
        let mark = inputs.get(event.input)?.marks.get(event.index)?;
        *self.inputs.get_mut(event.input)? = mark.clock;
        let combined = self.output.combine(&self.inputs);
        let changed = combined != self.output;
        self.output = combined;
        changed.then_some(combined)
    }
}
