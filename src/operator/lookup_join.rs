//! Lookup join: each row with the row of a table that has its key. The version of the table in force is the last that
//! the log brought; a new one replaces it whole, and holds for the rows behind it in the log.
//!
//! Rows leave at once, in their order, and marks pass. State: the table's rows by key, in one namespace; with them in the
//! resident state the version's checksum.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::join::{Condition, Joined, Side};
use super::rows::StoredRow;
use super::{Chunk, Lookup, Operator, OperatorError, Position, Sides, restored};
use crate::expr::EvalContext;
use crate::state::{Checkpointed, KeyedState};

/// Name and version of the encoding of the state's values.
pub const VALUE_TYPE: &str = "lookup_join_row/1";

/// Namespace of the table's rows.
const ROWS: i64 = 0;

/// `a JOIN t FOR SYSTEM_TIME AS OF a._arrival ON a.k = t.k`.
pub struct LookupJoin {
    left: Side,
    /// The table's rows.
    right: Side,
    table: String,
    condition: Condition,
    pads: bool,
    state: KeyedState<StoredRow>,
    version: Option<u32>,
}

impl LookupJoin {
    /// A lookup join with this table; `pads`: rows without a match leave too.
    pub fn new(
        (left, right): (Side, Side),
        table: String,
        condition: Condition,
        pads: bool,
        state: KeyedState<StoredRow>,
    ) -> LookupJoin {
        LookupJoin { left, right, table, condition, pads, state, version: None }
    }
}

impl Operator for LookupJoin {
    fn process(&mut self, inputs: &[Chunk], context: &EvalContext, sides: &mut Sides) -> Result<Chunk, OperatorError> {
        let [left] = inputs else { return Ok(Chunk::default()) };
        let left = self.left.prepare(left, context, sides)?;
        let mut joined = Joined::default();
        for (row, position) in left.positions.iter().enumerate() {
            let stored = StoredRow::new(self.left.rows.row(row));
            let found = match self.left.has_null.get(row) {
                Some(false) => self.state.get(ROWS, self.left.keys.row(row))?.map(|found| found.into_owned()),
                _ => None,
            };
            let found = match found {
                Some(found) => {
                    let both = (&self.left, &self.right);
                    let holds = self.condition.holds(&[(&stored, &found)], both, *position, context, sides)?;
                    (holds.first() == Some(&true)).then_some(found)
                }
                None => None,
            };
            if found.is_some() || self.pads {
                joined.push(*position, Some(stored), found);
            }
        }
        joined.into_chunk(&self.left, Some(&self.right), left.marks.to_vec())
    }

    fn state(&mut self) -> Option<&mut dyn Checkpointed> {
        Some(&mut self.state)
    }

    fn lookup(&mut self) -> Option<&mut dyn Lookup> {
        Some(self)
    }

    fn save(&self) -> Vec<u8> {
        self.version.map(|version| postcard::to_stdvec(&version).unwrap_or_default()).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), OperatorError> {
        let decoded = restored(&self.left.named.name, saved)?;
        self.version = Some(decoded);
        Ok(())
    }
}

impl Lookup for LookupJoin {
    fn table(&self) -> &str {
        &self.table
    }

    fn version(&self) -> Option<u32> {
        self.version
    }

    fn replace(&mut self, columns: &[ArrayRef], version: u32, context: &EvalContext) -> Result<(), OperatorError> {
        let rows = columns.first().map_or(0, |column| column.len());
        let positions = Arc::new(vec![Position::default(); rows]);
        let chunk = Chunk { columns: columns.to_vec(), positions, marks: Arc::default() };
        // The keys are columns, which cannot fail.
        self.right.prepare(&chunk, context, &mut Sides::default())?;
        self.state.remove_namespace(ROWS);
        for row in 0..rows {
            // The keys are there once: a table with one twice is refused.
            self.state.entry(ROWS, self.right.keys.row(row), || StoredRow::new(self.right.rows.row(row)))?;
        }
        self.version = Some(version);
        Ok(())
    }
}
