//! Output in parts: what one step frees can be more than memory holds, so an operator may hand rows on before it returns.
//!
//! A part holds rows in order of position and no mark; the mark that freed them comes with a later part or with the
//! chunk that is returned. Where parts are cut changes nothing, as with chunks.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_select::concat::concat;

use super::{Chunk, OperatorError};

/// Rows of a part, at most.
pub const PART_ROWS: usize = 8192;
/// A part ends behind the row with which what it holds reaches so many bytes.
pub const PART_BYTES: usize = 1 << 20;

/// Takes a part.
pub type Emit<'a> = &'a mut dyn FnMut(Chunk) -> Result<(), OperatorError>;

/// All parts and the last chunk as one.
///
/// # Errors
/// What `process` gives, or a column would exceed 2 GiB.
pub fn in_one_part(process: impl FnOnce(Emit<'_>) -> Result<Chunk, OperatorError>) -> Result<Chunk, OperatorError> {
    let mut parts = Vec::new();
    let last = process(&mut |part| {
        parts.push(part);
        Ok(())
    })?;
    joined(parts, last)
}

/// Chunks that follow on each other as one.
///
/// # Errors
/// A column would exceed 2 GiB.
pub fn joined(before: Vec<Chunk>, last: Chunk) -> Result<Chunk, OperatorError> {
    if before.is_empty() {
        return Ok(last);
    }
    let chunks: Vec<&Chunk> = before.iter().chain([&last]).collect();
    let column = |index: usize| -> Result<ArrayRef, OperatorError> {
        let parts: Vec<&dyn Array> =
            chunks.iter().filter_map(|chunk| chunk.columns.get(index)).map(AsRef::as_ref).collect();
        concat(&parts).map_err(OperatorError::Repeat)
    };
    Ok(Chunk {
        columns: (0..last.columns.len()).map(column).collect::<Result<_, _>>()?,
        positions: Arc::new(chunks.iter().flat_map(|chunk| chunk.positions.iter().copied()).collect()),
        marks: Arc::new(chunks.iter().flat_map(|chunk| chunk.marks.iter().copied()).collect()),
    })
}
