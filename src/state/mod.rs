//! Keyed state of operators: what the engine thread reads and changes for every row, in layers over the last checkpoint.
//!
//! ```text
//! dirty   changed since the last freeze; the only layer that changes; engine thread
//! frozen  being checkpointed; shared read-only with the checkpoint thread
//! clean   what the last committed checkpoint wrote; kept as a cache
//! stored  the committed entries behind a StateReader (LMDB at the last commit, or a model)
//! ```
//!
//! Invariants:
//! - A read takes the first layer that knows the entry; a tombstone knows it too. A namespace tombstone in a layer hides
//!   the namespace in all layers below it.
//! - A change touches `dirty` only: a value found below is copied up on first touch.
//! - `freeze` swaps layers and copies nothing. At most one frozen layer is in flight; it stays readable until the engine
//!   says `committed` (after the reader shows the new commit) or `failed` (it merges back under newer changes).
//! - Nothing here depends on the order of a hash map: what leaves a layer is sorted.
//!
//! An entry is addressed by (namespace, key): the namespace is an `i64` (a window end in ms, say), the key is bytes whose
//! order is the order of output (arrow-row encoding). Values are stored as postcard.
//!
//! Not here: disk (`checkpoint/`), and a bound on memory: [`Checkpointed::memory_bytes`] is what the engine bounds.
//! What is read of a namespace comes in key order without being gathered first, so it may be more than memory holds.

mod entries;
mod key;
mod keyed;
mod layer;
#[cfg(test)]
pub(crate) mod many;
mod merged;
#[cfg(test)]
pub(crate) mod model;
mod scan;
mod space;
mod weight;

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::sync::Arc;

use thiserror::Error;

pub use entries::{Entries, Next};
pub use key::Key;
pub use keyed::KeyedState;
pub use merged::Merged;
pub use space::AHEAD;
pub use weight::memory_bytes;

/// Number of key groups; part of the layout on disk.
pub const KEY_GROUPS: u8 = 128;

/// The key group of a key: CRC32C (Castagnoli) of its bytes modulo [`KEY_GROUPS`]. Part of the layout on disk.
pub fn key_group(key: &[u8]) -> u8 {
    (crc32c::crc32c(key) % u32::from(KEY_GROUPS)) as u8
}

/// One difference between a frozen layer and the checkpoint before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// All entries of the namespace are gone. Comes before the layer's other changes.
    DeleteNamespace { namespace: i64 },
    /// The entry is gone (it need not have been there).
    Delete { namespace: i64, key: &'a [u8] },
    /// The entry has this value (postcard).
    Put { namespace: i64, key: &'a [u8], value: &'a [u8] },
}

/// A frozen layer as the checkpoint thread sees it.
pub trait Frozen: Send + Sync {
    /// Whether there is no change.
    fn is_empty(&self) -> bool;

    /// The namespaces that were open when the layer was frozen; persisted with the operator.
    fn namespaces(&self) -> &BTreeSet<i64>;

    /// Calls `visit` with every change: namespace tombstones first, then the rest in the order of
    /// (key group, namespace, key). Stops early when `visit` breaks.
    ///
    /// # Errors
    /// A value cannot be encoded.
    fn for_each(&self, visit: &mut dyn FnMut(Change<'_>) -> ControlFlow<()>) -> Result<(), StateError>;
}

/// Key and value (postcard) of a committed entry.
pub type StoredPair = (Vec<u8>, Vec<u8>);

/// The committed state below the layers: one consistent view, which changes only when its owner renews it.
pub trait StateReader: Send + Sync {
    /// The committed value of an entry.
    ///
    /// # Errors
    /// The entry is corrupt or cannot be read.
    fn get(&self, operator: u32, namespace: i64, key: &[u8]) -> Result<Option<Vec<u8>>, StateError>;

    /// Appends at least one and about `limit` entries of one key group of a namespace to `out`, in key
    /// order, from the first whose key is greater than `after`; appends nothing when there are no more.
    ///
    /// # Errors
    /// An entry is corrupt or cannot be read.
    fn scan(
        &self,
        operator: u32,
        namespace: i64,
        group: u8,
        after: Option<&[u8]>,
        limit: usize,
        out: &mut Vec<StoredPair>,
    ) -> Result<(), StateError>;
}

/// No committed state: a fresh pipeline, or a test of an operator.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStored;

impl StateReader for NoStored {
    fn get(&self, _: u32, _: i64, _: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(None)
    }

    fn scan(
        &self,
        _: u32,
        _: i64,
        _: u8,
        _: Option<&[u8]>,
        _: usize,
        _: &mut Vec<StoredPair>,
    ) -> Result<(), StateError> {
        Ok(())
    }
}

/// What the engine needs of an operator's state around a checkpoint, whatever its values are.
pub trait Checkpointed: Send {
    /// The operator's number in the checkpoint.
    fn operator(&self) -> u32;

    /// Whether anything changed since the last freeze.
    fn has_changes(&self) -> bool;

    /// Hands over the changes since the last freeze, without copying.
    ///
    /// # Errors
    /// [`StateError::InFlight`].
    fn freeze(&mut self) -> Result<Arc<dyn Frozen>, StateError>;

    /// The frozen layer is committed and the reader shows that commit. Returns the layer that is no longer needed:
    /// to drop a large one takes time, which the checkpoint thread has.
    fn committed(&mut self) -> Option<Arc<dyn Frozen>>;

    /// Lets go of the layer that is only a cache: what it holds is stored. Returns it, as [`Checkpointed::committed`] does.
    fn release(&mut self) -> Option<Arc<dyn Frozen>>;

    /// The commit failed: the frozen layer's changes are due again, under those made since.
    fn failed(&mut self);

    /// Estimate of the memory that the changes since the last freeze take, in bytes.
    fn dirty_bytes(&self) -> usize;

    /// Estimate of the memory that the layers below these changes take, in bytes.
    fn older_bytes(&self) -> usize;

    /// Estimate of the memory that all layers take, in bytes.
    fn memory_bytes(&self) -> usize {
        self.dirty_bytes() + self.older_bytes()
    }
}

/// What can go wrong with keyed state.
#[derive(Debug, Error)]
pub enum StateError {
    #[error(
        "stored state of operator {operator} is corrupt: {what}; move the state directory away and begin from a savepoint \
         (`forebay checkpoint import FILE CONFIG`), from a copy of the directory, or anew"
    )]
    Corrupt { operator: u32, what: String },
    #[error(
        "the stored value of operator {operator}, namespace {namespace}, key {key:02x?} does not decode ({source}); \
         move the state directory away and begin from a savepoint (`forebay checkpoint import FILE CONFIG`), from a \
         copy of the directory, or anew"
    )]
    Decode {
        operator: u32,
        namespace: i64,
        key: Vec<u8>,
        #[source]
        source: postcard::Error,
    },
    #[error("a value of operator {operator}, namespace {namespace} cannot be encoded: {source}")]
    Encode {
        operator: u32,
        namespace: i64,
        #[source]
        source: postcard::Error,
    },
    #[error("cannot read stored state: {source}")]
    Read {
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    #[error("state of operator {operator} was frozen again before its last checkpoint ended")]
    InFlight { operator: u32 },
}

impl StateError {
    /// The exit code of a process that ends by this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            StateError::Corrupt { .. } | StateError::Decode { .. } => 65,
            StateError::Encode { .. } | StateError::InFlight { .. } => 70,
            StateError::Read { .. } => 74,
        }
    }
}
