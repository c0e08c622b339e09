//! Projection: one output column per expression. Stateless; positions and marks pass through.

use super::{Chunk, Named, Operator, OperatorError, Sides};
use crate::expr::build::Expr;
use crate::expr::{Batch, EvalContext, RowErrors, eval::eval};

/// `SELECT expr, …`.
pub struct Project {
    named: Named,
    exprs: Vec<Expr>,
}

impl Project {
    /// A projection to `exprs`.
    pub fn new(named: Named, exprs: Vec<Expr>) -> Project {
        Project { named, exprs }
    }
}

impl Operator for Project {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let mut errors = RowErrors::default();
        let batch = Batch { columns: &input.columns, rows: input.rows() };
        let columns: Vec<_> = self.exprs.iter().map(|expr| eval(expr, &batch, context, &mut errors)).collect();
        if errors.list.is_empty() {
            return Ok(Chunk { columns, positions: input.positions.clone(), marks: input.marks.clone() });
        }
        // Rows without errors evaluate to the same values again; those with one leave by the side.
        let kept = input.clone().without_errors(errors, &self.named, sides);
        let mut none = RowErrors::default();
        let batch = Batch { columns: &kept.columns, rows: kept.rows() };
        let columns = self.exprs.iter().map(|expr| eval(expr, &batch, context, &mut none)).collect();
        Ok(Chunk { columns, positions: kept.positions, marks: kept.marks })
    }
}
