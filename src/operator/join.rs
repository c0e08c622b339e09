//! What all joins share: their two sides, the condition on pairs, and the output.
//!
//! Rows match where their keys are equal and none is NULL, and the condition, if there is one, is TRUE. A pair on which
//! the condition fails goes to the query's errors and does not match.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};

use super::rows::{StoredRow, padded};
use super::{Chunk, Mark, Named, OperatorError, Position, Sides, event_times};
use crate::event::EventTime;
use crate::expr::build::Expr;
use crate::expr::row::RowKeys;
use crate::expr::{Batch, DataType, EvalContext, Field, RowErrors, eval::eval, eval::eval_predicate};

/// One input of a join.
pub struct Side {
    pub named: Named,
    key_exprs: Vec<Expr>,
    /// Event time, or the end of the window.
    time_column: usize,
    pub keys: RowKeys,
    pub rows: RowKeys,
    types: Vec<DataType>,
    /// Of the rows last prepared: whether a key is NULL.
    pub has_null: Vec<bool>,
    pub times: Vec<EventTime>,
}

impl Side {
    /// An input with these keys.
    ///
    /// # Errors
    /// A type has no order (the planner refuses such columns).
    pub fn new(named: Named, key_exprs: Vec<Expr>, time_column: usize) -> Result<Side, OperatorError> {
        let keys: Vec<DataType> = key_exprs.iter().map(|key| key.data_type.clone()).collect();
        let types: Vec<DataType> = named.input.iter().map(|field| field.data_type.clone()).collect();
        Ok(Side {
            keys: RowKeys::new(&keys)?,
            rows: RowKeys::new(&types)?,
            named,
            key_exprs,
            time_column,
            types,
            has_null: Vec::new(),
            times: Vec::new(),
        })
    }

    /// Computes keys and bytes of a chunk's rows; gives the chunk without the rows that failed.
    ///
    /// # Errors
    /// The columns are not those of the plan.
    pub fn prepare(&mut self, chunk: &Chunk, context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let evaluate = |chunk: &Chunk, errors: &mut RowErrors| -> Vec<ArrayRef> {
            let batch = Batch { columns: &chunk.columns, rows: chunk.rows() };
            self.key_exprs.iter().map(|key| eval(key, &batch, context, errors)).collect()
        };
        let (chunk, keys) = chunk.evaluated(&self.named, sides, evaluate);
        self.keys.encode(&keys, chunk.rows())?;
        self.rows.encode(&chunk.columns, chunk.rows())?;
        self.has_null = (0..chunk.rows()).map(|row| keys.iter().any(|key| key.is_null(row))).collect();
        let times = chunk.columns.get(self.time_column).map(event_times);
        self.times = times.into_iter().flatten().map(|time| time.unwrap_or(EventTime::MIN + 1)).collect();
        Ok(chunk)
    }

    /// Key of a row with its side in front, so that both sides can stand in one state.
    pub fn tagged_key(&self, tag: u8, row: usize) -> Vec<u8> {
        let key = self.keys.row(row);
        let mut tagged = Vec::with_capacity(key.len() + 1);
        tagged.push(tag);
        tagged.extend_from_slice(key);
        tagged
    }

    /// Columns of these rows; NULLs where there is none.
    fn columns(&self, rows: &[Option<&StoredRow>]) -> Result<Vec<ArrayRef>, OperatorError> {
        let found = self.rows.decode(rows.iter().flatten().map(|row| &*row.0))?;
        if rows.iter().all(Option::is_some) {
            return Ok(found);
        }
        padded(&found, &self.types, rows.iter().map(Option::is_some))
    }
}

/// Rows of the output: left, right, or one of them alone.
#[derive(Default)]
pub struct Joined {
    positions: Vec<Position>,
    rows: Vec<(Option<StoredRow>, Option<StoredRow>)>,
}

impl Joined {
    /// Appends a row.
    pub fn push(&mut self, position: Position, left: Option<StoredRow>, right: Option<StoredRow>) {
        self.positions.push(position);
        self.rows.push((left, right));
    }

    /// The rows as a chunk: the left columns, then (but for SEMI and ANTI) the right ones.
    ///
    /// # Errors
    /// The rows are not of these sides.
    pub fn into_chunk(self, left: &Side, right: Option<&Side>, marks: Vec<Mark>) -> Result<Chunk, OperatorError> {
        let lefts: Vec<Option<&StoredRow>> = self.rows.iter().map(|(row, _)| row.as_ref()).collect();
        let mut columns = left.columns(&lefts)?;
        if let Some(right) = right {
            let rights: Vec<Option<&StoredRow>> = self.rows.iter().map(|(_, row)| row.as_ref()).collect();
            columns.extend(right.columns(&rights)?);
        }
        Ok(Chunk { columns, positions: Arc::new(self.positions), marks: Arc::new(marks) })
    }
}

/// The condition on pairs besides the keys.
pub struct Condition {
    expr: Option<Expr>,
    named: Named,
}

impl Condition {
    /// A condition over the left columns and then the right ones.
    pub fn new(expr: Option<Expr>, left: &Named, right: &[Field]) -> Condition {
        let mut input = left.input.as_ref().clone();
        input.extend(right.iter().cloned());
        Condition { expr, named: Named { input: Arc::new(input), ..left.clone() } }
    }

    /// For each pair whether it matches.
    ///
    /// # Errors
    /// The rows are not of these sides.
    pub fn holds(
        &self,
        pairs: &[(&StoredRow, &StoredRow)],
        (left, right): (&Side, &Side),
        position: Position,
        context: &EvalContext,
        sides: &mut Sides,
    ) -> Result<Vec<bool>, OperatorError> {
        let Some(expr) = self.expr.as_ref().filter(|_| !pairs.is_empty()) else { return Ok(vec![true; pairs.len()]) };
        let lefts: Vec<Option<&StoredRow>> = pairs.iter().map(|(row, _)| Some(*row)).collect();
        let rights: Vec<Option<&StoredRow>> = pairs.iter().map(|(_, row)| Some(*row)).collect();
        let mut columns = left.columns(&lefts)?;
        columns.extend(right.columns(&rights)?);
        let mut errors = RowErrors::default();
        let truth = eval_predicate(expr, &Batch { columns: &columns, rows: pairs.len() }, context, &mut errors);
        let chunk = Chunk { columns, positions: Arc::new(vec![position; pairs.len()]), marks: Arc::default() };
        // A failed pair is not TRUE above.
        let _ = chunk.without_errors(errors, &self.named, sides);
        Ok((0..pairs.len()).map(|pair| truth.value(pair)).collect())
    }
}
