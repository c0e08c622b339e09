//! UNNEST: a row once for each element of an array, with the element's columns behind its own, and WITH ORDINALITY its number.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, UInt32Array};
use arrow_select::take::take;

use super::{Chunk, Named, Operator, OperatorError, Sides};
use crate::expr::build::Expr;
use crate::expr::{Batch, EvalContext, RowErrors, eval::eval};

/// `CROSS JOIN UNNEST(array) [WITH ORDINALITY]` and `LEFT JOIN UNNEST(array) ON TRUE`.
pub struct Unnest {
    named: Named,
    array: Expr,
    /// A row without elements stays, with NULLs.
    outer: bool,
    /// The element's number from 1 stands behind it.
    numbered: bool,
}

impl Unnest {
    /// Takes `array` apart.
    pub fn new(named: Named, array: Expr, outer: bool, numbered: bool) -> Unnest {
        Unnest { named, array, outer, numbered }
    }
}

impl Operator for Unnest {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| {
            eval(&self.array, &Batch { columns: &chunk.columns, rows: chunk.rows() }, context, errors)
        };
        let (input, arrays) = input.evaluated(&self.named, sides, evaluate);
        let Some(lists) = arrays.as_list_opt::<i32>() else { return Ok(input) };
        let (mut rows, mut elements, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (row, bounds) in lists.value_offsets().windows(2).enumerate() {
            let [from, to] = *bounds else { continue };
            let own = if lists.is_valid(row) { from..to } else { from..from };
            if own.is_empty() && self.outer {
                rows.push(row as u32);
                elements.push(None);
                numbers.push(None);
            }
            for element in own {
                numbers.push(Some(element - from + 1));
                rows.push(row as u32);
                elements.push(Some(element as u32));
            }
        }
        let mut output = input.repeat(&rows)?;
        let mut push = |column: &ArrayRef, elements: UInt32Array| -> Result<(), OperatorError> {
            output.columns.push(take(column, &elements, None).map_err(OperatorError::Repeat)?);
            Ok(())
        };
        match lists.values().as_struct_opt() {
            None => push(lists.values(), UInt32Array::from(elements))?,
            Some(fields) => {
                let valid = |element: &Option<u32>| element.filter(|element| fields.is_valid(*element as usize));
                for column in fields.columns() {
                    push(column, elements.iter().map(valid).collect())?;
                }
            }
        }
        if self.numbered {
            output.columns.push(Arc::new(Int32Array::from(numbers)));
        }
        Ok(output)
    }
}
