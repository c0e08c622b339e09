//! What aggregating operators free: groups with their windows, which become rows part by part.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::aggregation::{Aggregation, Group};
use super::parts::{Emit, PART_BYTES, PART_ROWS};
use super::window::Assigner;
use super::{Chunk, Mark, OperatorError, Position, Preview};
use crate::expr::Field;
use crate::sql::plan::WindowProperty;
use crate::state::{Key, memory_bytes};

/// Groups freed by watermarks, not yet columns.
#[derive(Default)]
pub struct Fired {
    positions: Vec<Position>,
    windows: Vec<(i64, i64)>,
    keys: Vec<Key>,
    groups: Vec<Group>,
    /// About what the groups take.
    bytes: usize,
}

impl Fired {
    /// Adds the group of a key in a window, which is given by its start and end.
    pub fn push(&mut self, position: Position, window: (i64, i64), key: Key, group: Group) {
        self.bytes += memory_bytes(&group);
        self.positions.push(position);
        self.windows.push(window);
        self.keys.push(key);
        self.groups.push(group);
    }
}

/// What makes rows of groups.
pub struct Output {
    pub aggregation: Aggregation,
    pub assigner: Assigner,
    pub properties: Vec<WindowProperty>,
}

impl Output {
    /// Hands on what has gathered, once it is a part.
    ///
    /// # Errors
    /// The bytes of a key are none; what `emit` gives.
    pub fn emit_full(&self, fired: &mut Fired, emit: Emit<'_>) -> Result<(), OperatorError> {
        if fired.positions.len() < PART_ROWS && fired.bytes < PART_BYTES {
            return Ok(());
        }
        emit(self.chunk(std::mem::take(fired), Arc::default())?)
    }

    /// The rows of what has gathered.
    ///
    /// # Errors
    /// The bytes of a key are none.
    pub fn chunk(&self, fired: Fired, marks: Arc<Vec<Mark>>) -> Result<Chunk, OperatorError> {
        let mut columns: Vec<ArrayRef> = self.aggregation.key_columns(fired.keys.iter().map(|key| &**key))?;
        for property in &self.properties {
            columns.push(self.assigner.property(*property, fired.windows.iter().copied()));
        }
        columns.extend(self.aggregation.results(&fired.groups));
        Ok(Chunk { columns, positions: Arc::new(fired.positions), marks })
    }

    /// The row that a group would give.
    pub fn preview(&self, labels: &[Field], window: (i64, i64), key: &[u8], group: Group) -> Option<Preview> {
        let mut fired = Fired::default();
        fired.push(Position::default(), window, Key::from(key), group);
        Some(Preview { fields: labels.to_vec(), columns: self.chunk(fired, Arc::default()).ok()?.columns })
    }
}
