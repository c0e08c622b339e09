//! Projection: one output column per expression. Stateless; positions and marks pass through.

use super::{Chunk, Named, Operator, OperatorError, Sides};
use crate::expr::build::Expr;
use crate::expr::{Batch, EvalContext, eval::eval};

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
        let (kept, columns) = input.evaluated(&self.named, sides, |chunk, errors| {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            self.exprs.iter().map(|expr| eval(expr, &batch, context, errors)).collect()
        });
        Ok(Chunk { columns, positions: kept.positions, marks: kept.marks })
    }
}
