//! GROUPING SETS: each row once for every grouping set, with the keys that are not in the set NULL, and the set's number.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, UInt32Array};
use arrow_select::take::take;

use super::{Chunk, Named, Operator, OperatorError, Sides};
use crate::expr::build::Expr;
use crate::expr::{Batch, EvalContext, RowErrors, eval::eval};

/// Appends the keys and the number of the grouping set to each copy of a row.
pub struct Expand {
    named: Named,
    keys: Vec<Expr>,
    /// For each set, for each key: whether the set has it.
    sets: Vec<Vec<bool>>,
}

impl Expand {
    /// Repeats rows for each of `sets`.
    pub fn new(named: Named, keys: Vec<Expr>, sets: Vec<Vec<bool>>) -> Expand {
        Expand { named, keys, sets }
    }
}

impl Operator for Expand {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| -> Vec<ArrayRef> {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            self.keys.iter().map(|key| eval(key, &batch, context, errors)).collect()
        };
        let (input, keys) = input.evaluated(&self.named, sides, evaluate);
        let copies = || (0..input.rows() as u32).flat_map(|row| self.sets.iter().map(move |set| (row, set)));
        let mut output = input.repeat(&copies().map(|(row, _)| row).collect::<Vec<u32>>())?;
        for (index, key) in keys.iter().enumerate() {
            let has = |set: &Vec<bool>| set.get(index).copied().unwrap_or(false);
            let rows: UInt32Array = copies().map(|(row, set)| has(set).then_some(row)).collect();
            output.columns.push(take(key, &rows, None).map_err(OperatorError::Repeat)?);
        }
        let numbers = (0..input.rows()).flat_map(|_| 0..self.sets.len() as i32);
        output.columns.push(Arc::new(Int32Array::from_iter_values(numbers)));
        Ok(output)
    }
}
