//! One layer of changes: a hash table per namespace, and the frozen form that the checkpoint thread reads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use serde::Serialize;

use super::key::{Key, hash_key};
use super::{Change, Frozen, StateError, heap_bytes, key_group};

/// Entries that are weighed for the estimate of memory.
const SAMPLE: usize = 128;
/// What a commit takes for each entry while it sorts them.
const SORT_BYTES: usize = 32;

/// An entry; without value it is a tombstone.
#[derive(Clone)]
pub(super) struct Slot<V> {
    pub key: Key,
    pub value: Option<V>,
}

/// The changes within one namespace.
#[derive(Clone)]
pub(super) struct Space<V> {
    pub table: HashTable<Slot<V>>,
    /// The namespace was removed in this layer: what layers below hold of it does not count.
    pub cleared: bool,
    pub heap_key_bytes: usize,
}

impl<V> Default for Space<V> {
    fn default() -> Space<V> {
        Space { table: HashTable::new(), cleared: false, heap_key_bytes: 0 }
    }
}

impl<V> Space<V> {
    /// The slot of a key, where there is one.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<&Slot<V>> {
        self.table.find(hash, |slot| *slot.key == *key)
    }

    /// As [`Space::find`], to change it.
    pub fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut Slot<V>> {
        self.table.find_mut(hash, |slot| *slot.key == *key)
    }

    /// The value of the slot of `key`; an absent slot is filled with what `load` gives. One hash lookup.
    pub fn slot_or_load<E>(
        &mut self,
        hash: u64,
        key: &[u8],
        load: impl FnOnce(bool) -> Result<Option<V>, E>,
    ) -> Result<&mut Option<V>, E> {
        match self.table.entry(hash, |slot| *slot.key == *key, |slot| hash_key(&slot.key)) {
            Entry::Occupied(slot) => Ok(&mut slot.into_mut().value),
            Entry::Vacant(vacant) => {
                let value = load(self.cleared)?;
                let key = Key::from(key);
                self.heap_key_bytes += key.heap_bytes();
                Ok(&mut vacant.insert(Slot { key, value }).into_mut().value)
            }
        }
    }

    /// Sets the slot of a key.
    pub fn set(&mut self, slot: Slot<V>) {
        match self.table.entry(hash_key(&slot.key), |other| other.key == slot.key, |slot| hash_key(&slot.key)) {
            Entry::Occupied(old) => *old.into_mut() = slot,
            Entry::Vacant(vacant) => {
                self.heap_key_bytes += slot.key.heap_bytes();
                vacant.insert(slot);
            }
        }
    }

    /// Forgets the slot of a key.
    pub fn forget(&mut self, key: &[u8]) {
        if let Ok(slot) = self.table.find_entry(hash_key(key), |slot| *slot.key == *key) {
            let (slot, _) = slot.remove();
            self.heap_key_bytes = self.heap_key_bytes.saturating_sub(slot.key.heap_bytes());
        }
    }
}

/// Changes by namespace.
#[derive(Clone)]
pub(super) struct Layer<V> {
    pub spaces: BTreeMap<i64, Space<V>>,
}

impl<V> Default for Layer<V> {
    fn default() -> Layer<V> {
        Layer { spaces: BTreeMap::new() }
    }
}

impl<V> Layer<V> {
    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.spaces.values().all(|space| !space.cleared && space.table.is_empty())
    }

    /// Puts `newer` changes on top of these. Costs what `newer` holds.
    pub fn overlay(&mut self, newer: Layer<V>) {
        for (namespace, newer) in newer.spaces {
            let space = self.spaces.entry(namespace).or_default();
            if newer.cleared {
                *space = newer;
            } else {
                newer.table.into_iter().for_each(|slot| space.set(slot));
            }
        }
    }
}

impl<V: Serialize> Layer<V> {
    /// Memory of tables, keys and what values own (weighed by a sample), and of the sort of a commit.
    pub fn memory_bytes(&self) -> usize {
        // Of each namespace, since they hold values of different kinds.
        let sample = (SAMPLE / self.spaces.len().max(1)).max(1);
        let of = |space: &Space<V>| {
            let weights = space.table.iter().take(sample).map(|slot| slot.value.as_ref().map_or(0, heap_bytes));
            let values = weights.sum::<usize>().saturating_mul(space.table.len()) / space.table.len().clamp(1, sample);
            space.table.allocation_size() + space.heap_key_bytes + 64 + SORT_BYTES * space.table.len() + values
        };
        self.spaces.values().map(of).sum()
    }
}

/// A layer that no longer changes.
pub(super) struct FrozenLayer<V> {
    pub operator: u32,
    pub layer: Layer<V>,
    /// Namespaces open at the freeze.
    pub namespaces: BTreeSet<i64>,
    pub memory_bytes: usize,
}

impl<V: Serialize + Send + Sync> Frozen for FrozenLayer<V> {
    fn is_empty(&self) -> bool {
        self.layer.is_empty()
    }

    fn namespaces(&self) -> &BTreeSet<i64> {
        &self.namespaces
    }

    fn for_each(&self, visit: &mut dyn FnMut(Change<'_>) -> ControlFlow<()>) -> Result<(), StateError> {
        for (namespace, _) in self.layer.spaces.iter().filter(|(_, space)| space.cleared) {
            if visit(Change::DeleteNamespace { namespace: *namespace }).is_break() {
                return Ok(());
            }
        }
        let mut slots: Vec<(u8, i64, &Slot<V>)> = self
            .layer
            .spaces
            .iter()
            .flat_map(|(namespace, space)| space.table.iter().map(|slot| (key_group(&slot.key), *namespace, slot)))
            .collect();
        slots.sort_unstable_by(|a, b| (a.0, a.1, &a.2.key).cmp(&(b.0, b.1, &b.2.key)));
        let mut value = Vec::new();
        for (_, namespace, slot) in slots {
            let key = &*slot.key;
            let flow = match &slot.value {
                None => visit(Change::Delete { namespace, key }),
                Some(v) => {
                    value.clear();
                    value = postcard::to_extend(v, value).map_err(|source| StateError::Encode {
                        operator: self.operator,
                        namespace,
                        source,
                    })?;
                    visit(Change::Put { namespace, key, value: &value })
                }
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }
}
