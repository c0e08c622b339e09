//! Whole rows as bytes, for operators that keep rows in their state, and columns made of several parts.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use serde::{Deserialize, Serialize};

use super::{Chunk, Mark, OperatorError, Position};
use crate::expr::DataType;
use crate::expr::row::KeyError;

/// A row in the encoding of [`RowKeys`](crate::expr::row::RowKeys).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRow(#[serde(with = "bytes")] pub Box<[u8]>);

impl StoredRow {
    /// A copy of a row's bytes.
    pub fn new(bytes: &[u8]) -> StoredRow {
        StoredRow(bytes.into())
    }
}

/// Bytes as one run, not as a list of numbers.
mod bytes {
    use std::fmt;

    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[u8]>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Box<[u8]>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Box<[u8]>, E> {
                Ok(bytes.into())
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Columns with a value of `found` where `there` is true, in order, and NULL elsewhere.
///
/// # Errors
/// `found` has columns of other types, or fewer values.
pub fn padded<'t>(
    found: &[ArrayRef],
    types: impl IntoIterator<Item = &'t DataType>,
    there: impl Iterator<Item = bool>,
) -> Result<Vec<ArrayRef>, OperatorError> {
    let mut next = 0;
    let pick = |is_there| {
        next += usize::from(is_there);
        if is_there { (0, next - 1) } else { (1, 0) }
    };
    let picks: Vec<(usize, usize)> = there.map(pick).collect();
    let columns = found.iter().zip(types).map(|(column, data_type)| {
        let null = new_null_array(&data_type.arrow(), 1);
        Ok(interleave(&[column.as_ref(), null.as_ref()], &picks).map_err(KeyError::from)?)
    });
    columns.collect()
}

/// An output that grows part by part, in order of position.
#[derive(Default)]
pub struct Parts {
    positions: Vec<Position>,
    columns: Vec<Vec<ArrayRef>>,
}

impl Parts {
    /// Appends rows: a position for each, and their columns.
    pub fn push(&mut self, positions: impl IntoIterator<Item = Position>, columns: Vec<ArrayRef>) {
        self.positions.extend(positions);
        self.columns.push(columns);
    }

    /// All rows as one chunk; `empty` are the output's columns without rows.
    ///
    /// # Errors
    /// The parts have columns of different types.
    pub fn into_chunk(mut self, empty: &[ArrayRef], marks: Arc<Vec<Mark>>) -> Result<Chunk, OperatorError> {
        let columns = match self.columns.len() {
            0 => empty.to_vec(),
            1 => self.columns.pop().unwrap_or_default(),
            _ => (0..empty.len()).map(|index| column(&self.columns, index)).collect::<Result<_, _>>()?,
        };
        Ok(Chunk { columns, positions: Arc::new(self.positions), marks })
    }
}

fn column(parts: &[Vec<ArrayRef>], index: usize) -> Result<ArrayRef, OperatorError> {
    let arrays: Vec<&dyn Array> = parts.iter().filter_map(|part| part.get(index)).map(AsRef::as_ref).collect();
    Ok(concat(&arrays).map_err(KeyError::from)?)
}
