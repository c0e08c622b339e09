//! UNION ALL: all rows of all inputs by position, inputs from left to right. Its clock is the inputs' minimum.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_select::interleave::interleave;

use super::{Chunk, Mark, Operator, OperatorError, Sides, StreamClock};
use crate::expr::EvalContext;

/// `a UNION ALL b …`.
pub struct UnionAll {
    name: Arc<str>,
    inputs: Vec<StreamClock>,
    output: StreamClock,
}

impl UnionAll {
    /// A union of `inputs` streams.
    pub fn new(name: Arc<str>, inputs: usize) -> UnionAll {
        UnionAll { name, inputs: vec![StreamClock::default(); inputs], output: StreamClock::default() }
    }
}

impl Operator for UnionAll {
    fn process(&mut self, inputs: &[Chunk], _: &EvalContext, _: &mut Sides) -> Result<Chunk, OperatorError> {
        // (position, input, row before mark): the order of the module doc of `operator`.
        let mut events = Vec::new();
        for (input, chunk) in inputs.iter().enumerate() {
            events.extend(chunk.positions.iter().enumerate().map(|(row, at)| (*at, input, false, row)));
            events.extend(chunk.marks.iter().enumerate().map(|(mark, m)| (m.position, input, true, mark)));
        }
        events.sort();
        let mut rows = Vec::new();
        let mut positions = Vec::new();
        let mut marks = Vec::new();
        for (position, input, is_mark, index) in events {
            if !is_mark {
                rows.push((input, index));
                positions.push(position);
                continue;
            }
            let mark = inputs.get(input).and_then(|chunk| chunk.marks.get(index));
            if let (Some(mark), Some(clock)) = (mark, self.inputs.get_mut(input)) {
                *clock = mark.clock;
                let combined = self.output.combine(&self.inputs);
                if combined != self.output {
                    self.output = combined;
                    marks.push(Mark { position, clock: combined });
                }
            }
        }
        let columns = inputs.first().map_or(0, |chunk| chunk.columns.len());
        let columns = (0..columns).map(|column| gather(inputs, column, &rows)).collect();
        Ok(Chunk { columns, positions: Arc::new(positions), marks: Arc::new(marks) })
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&(&self.inputs, self.output)).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        (self.inputs, self.output) = postcard::from_bytes(saved)
            .map_err(|source| OperatorError::Saved { operator: self.name.to_string(), source })?;
        Ok(())
    }
}

#[expect(clippy::expect_used, reason = "the planner made the inputs' types equal; indices come from the inputs")]
fn gather(inputs: &[Chunk], column: usize, rows: &[(usize, usize)]) -> ArrayRef {
    let arrays: Vec<&dyn arrow_array::Array> =
        inputs.iter().filter_map(|chunk| chunk.columns.get(column)).map(AsRef::as_ref).collect();
    interleave(&arrays, rows).expect("inputs of a union have equal types")
}
