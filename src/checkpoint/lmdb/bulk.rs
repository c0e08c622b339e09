//! Whole checkpoints at once: a view that stays, for those who read all of one (export, diff), and an environment that is
//! built from entries in order (import).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use heed::PutFlags;

use super::{
    CheckpointReader, Environment, META_KEY, OpenMode, Txn, Verified, Visit, Writer, create, micros, verify_pages,
};
use crate::checkpoint::layout::{self, Group};
use crate::checkpoint::{CheckpointError, CheckpointMeta, CheckpointStore, HistoryEntry};
use crate::state::StoredPair;

/// The newest checkpoint as it was when this was made, however many come after it. LMDB keeps its pages for as long.
pub struct Pinned {
    env: Arc<Environment>,
    txn: Txn,
    meta: CheckpointMeta,
}

impl CheckpointReader {
    /// A view of the newest checkpoint that stays.
    ///
    /// # Errors
    /// There is none; it is corrupt or of another version.
    pub fn pin(&self) -> Result<Pinned, CheckpointError> {
        let txn = self.env.begin()?;
        let meta = self.env.meta(&txn)?.ok_or_else(|| CheckpointError::Missing { dir: self.env.dir.clone() })?;
        Ok(Pinned { env: Arc::clone(&self.env), txn, meta })
    }
}

impl Pinned {
    /// What the checkpoint says about itself.
    pub fn meta(&self) -> &CheckpointMeta {
        &self.meta
    }

    /// Checks LMDB's pages, as far as that is possible while commits go on.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check_pages(&self) -> Result<(), CheckpointError> {
        verify_pages(&self.env.dir, &mut |_| {})
    }

    /// Bytes of all keys and values, as on record.
    ///
    /// # Errors
    /// The record is corrupt.
    pub fn entries_bytes(&self) -> Result<u64, CheckpointError> {
        let groups = self.env.groups(&self.txn)?;
        Ok(groups.values().fold(0, |sum, group| sum.wrapping_add(group.bytes)))
    }

    /// Visits every entry (key and value as stored) in the order of keys and checks everything, as
    /// [`CheckpointReader::verify`] does.
    ///
    /// # Errors
    /// The first thing that is wrong, or what `visit` gives.
    pub fn walk<E: From<CheckpointError>>(&self, visit: Visit<'_, E>) -> Result<Verified, E> {
        self.env.verify(&self.txn, visit)
    }

    /// The next entries (key and value as stored) of an operator behind the key `after`, about `bytes_max` of them; none
    /// when there are no more. Unchecked.
    ///
    /// # Errors
    /// LMDB cannot read them.
    pub fn page(
        &self,
        operator: u32,
        after: Option<&[u8]>,
        bytes_max: usize,
    ) -> Result<Vec<StoredPair>, CheckpointError> {
        let read_error = |error| self.env.read_error(error);
        let mut page = Vec::new();
        let mut bytes = 0;
        for entry in self.env.state_range(&self.txn, &operator.to_be_bytes(), after)? {
            let (key, stored) = entry.map_err(read_error)?;
            bytes += key.len() + stored.len();
            page.push((key.to_vec(), stored.to_vec()));
            if bytes >= bytes_max {
                break;
            }
        }
        Ok(page)
    }
}

/// Bytes of entries that are written in one transaction: it holds its pages in memory.
const BATCH_BYTES: usize = 4 << 20;

/// An environment that is being built. It has no checkpoint before [`Import::finish`] has returned.
pub struct Import {
    store: CheckpointStore,
    pending: Vec<StoredPair>,
    pending_bytes: usize,
    groups: BTreeMap<(u32, u8), Group>,
}

impl Import {
    /// Begins with an empty environment in `dir`, where there must be none.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(dir: &Path) -> Result<Import, CheckpointError> {
        create(dir)?;
        let store = CheckpointStore::open(dir, OpenMode::Existing)?;
        Ok(Import { store, pending: Vec::new(), pending_bytes: 0, groups: BTreeMap::new() })
    }

    /// Adds an entry, key and value as stored; keys must ascend. Gives whether it led to a write.
    ///
    /// # Errors
    /// The entry is none, or the disk failed.
    pub fn put(&mut self, key: &[u8], stored: &[u8]) -> Result<bool, CheckpointError> {
        let entry = layout::decode_state(key, stored).map_err(|what| self.store.env.corrupt(what, key))?;
        self.groups.entry((entry.operator, entry.group)).or_default().add(key, stored);
        self.pending_bytes += key.len() + stored.len();
        self.pending.push((key.to_vec(), stored.to_vec()));
        let is_full = self.pending_bytes >= BATCH_BYTES;
        if is_full {
            let mut writer = Writer::begin(&self.store.env)?;
            writer.append(&self.pending)?;
            writer.commit()?;
            self.pending.clear();
            self.pending_bytes = 0;
        }
        Ok(is_full)
    }

    /// Writes what is left, and the checkpoint itself; durable when this returns.
    ///
    /// # Errors
    /// The disk failed.
    pub fn finish(mut self, meta: &CheckpointMeta) -> Result<(), CheckpointError> {
        let started = std::time::Instant::now();
        let groups = std::mem::take(&mut self.groups);
        let entries = groups.values().map(|group| group.count).sum();
        let bytes = groups.values().map(|group| group.bytes).sum();
        let env = &*self.store.env;
        let mut writer = Writer::begin(&self.store.env)?;
        writer.append(&self.pending)?;
        writer.groups = groups.into_iter().map(|(number, group)| (number, (Group::default(), group))).collect();
        writer.write_groups()?;
        let operators = env.totals(&writer.txn, meta)?;
        let own = HistoryEntry {
            changes: entries,
            bytes_written: bytes,
            ..HistoryEntry::unsynced(meta, micros(started.elapsed()), operators)
        };
        writer.write_history(&own, None)?;
        writer.put_record(env.dbs.meta, META_KEY, meta)?;
        writer.commit()
    }
}

impl Writer<'_> {
    /// Puts entries behind all that are there.
    fn append(&mut self, entries: &[StoredPair]) -> Result<(), CheckpointError> {
        let env = self.env;
        for (key, stored) in entries {
            let put = env.dbs.state.put_with_flags(&mut self.txn, PutFlags::APPEND, key, stored);
            put.map_err(|error| env.write_error(error))?;
        }
        Ok(())
    }

    fn commit(self) -> Result<(), CheckpointError> {
        self.txn.commit().map_err(|error| self.env.write_error(error))
    }
}
