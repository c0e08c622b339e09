//! Filter: rows for which the predicate is TRUE (WHERE, HAVING). Stateless; marks pass through.

use super::{Chunk, Named, Operator, OperatorError, Sides};
use crate::expr::build::Expr;
use crate::expr::{Batch, EvalContext, RowErrors, eval::eval_predicate};

/// `WHERE predicate`.
pub struct Filter {
    named: Named,
    predicate: Expr,
}

impl Filter {
    /// A filter by a BOOLEAN expression.
    pub fn new(named: Named, predicate: Expr) -> Filter {
        Filter { named, predicate }
    }
}

impl Operator for Filter {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let mut errors = RowErrors::default();
        let batch = Batch { columns: &input.columns, rows: input.rows() };
        let truth = eval_predicate(&self.predicate, &batch, context, &mut errors);
        if !errors.list.is_empty() {
            // A failed row is NULL in the predicate, hence not selected below.
            let _ = input.clone().without_errors(errors, &self.named, sides);
        }
        let kept: Vec<u32> = truth.set_indices_u32().collect();
        Ok(input.select(&kept))
    }
}
