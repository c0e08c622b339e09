//! UNION ALL: all rows of all inputs by position, inputs from left to right. Its clock is the inputs' minimum.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_select::interleave::interleave;

use super::merge::{Clocks, merged};
use super::{Chunk, Mark, Operator, OperatorError, Sides, restored};
use crate::expr::EvalContext;

/// `a UNION ALL b …`.
pub struct UnionAll {
    name: Arc<str>,
    clocks: Clocks,
}

impl UnionAll {
    /// A union of `inputs` streams.
    pub fn new(name: Arc<str>, inputs: usize) -> UnionAll {
        UnionAll { name, clocks: Clocks::new(inputs) }
    }
}

impl Operator for UnionAll {
    fn process(&mut self, inputs: &[Chunk], _: &EvalContext, _: &mut Sides) -> Result<Chunk, OperatorError> {
        let mut rows = Vec::new();
        let mut positions = Vec::new();
        let mut marks = Vec::new();
        for event in merged(inputs) {
            if !event.is_mark {
                rows.push((event.input, event.index));
                positions.push(event.position);
            } else if let Some(clock) = self.clocks.take(inputs, event) {
                marks.push(Mark { position: event.position, clock });
            }
        }
        let columns = inputs.first().map_or(0, |chunk| chunk.columns.len());
        let columns = (0..columns).map(|column| gather(inputs, column, &rows)).collect();
        Ok(Chunk { columns, positions: Arc::new(positions), marks: Arc::new(marks) })
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.clocks).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        self.clocks = restored(&self.name, saved)?;
        Ok(())
    }
}

#[expect(clippy::expect_used, reason = "the planner made the inputs' types equal; indices come from the inputs")]
fn gather(inputs: &[Chunk], column: usize, rows: &[(usize, usize)]) -> ArrayRef {
    let arrays: Vec<&dyn arrow_array::Array> =
        inputs.iter().filter_map(|chunk| chunk.columns.get(column)).map(AsRef::as_ref).collect();
    interleave(&arrays, rows).expect("inputs of a union have equal types")
}
