//! One layer of changes: a space per namespace, and the frozen form that the checkpoint thread reads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde::Serialize;

use super::space::{AHEAD, Ranked, Slot, Space, group_of};
use super::{Change, Frozen, KEY_GROUPS, StateError};

/// Entries that are weighed for the estimate of memory.
const SAMPLE: usize = 128;
/// What a commit takes for each entry while it sorts them.
const SORT_BYTES: usize = size_of::<Ranked>();

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
        self.spaces.values().all(|space| !space.cleared && space.len() == 0)
    }

    /// Puts `newer` changes on top of these. Costs what `newer` holds.
    pub fn overlay(&mut self, newer: Layer<V>) {
        for (namespace, newer) in newer.spaces {
            let space = self.spaces.entry(namespace).or_default();
            if newer.cleared {
                *space = newer;
            } else {
                newer.into_slots().for_each(|Slot { key, value }| *space.slot(&key) = value);
            }
        }
    }
}

impl<V: Serialize> Layer<V> {
    /// Memory of the spaces, and of the sort of a commit.
    pub fn memory_bytes(&self) -> usize {
        // Of each namespace, since they hold values of different kinds.
        let sample = (SAMPLE / self.spaces.len().max(1)).max(1);
        self.spaces.values().map(|space| 64 + space.memory_bytes(sample) + SORT_BYTES * space.len()).sum()
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

impl<V: Serialize> FrozenLayer<V> {
    /// Shows a slot as the change that it is; `value` is room for its encoding.
    fn visit(
        &self,
        namespace: i64,
        slot: &Slot<V>,
        value: &mut Vec<u8>,
        visit: &mut dyn FnMut(Change<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StateError> {
        let key = &*slot.key;
        let Some(of_slot) = &slot.value else { return Ok(visit(Change::Delete { namespace, key })) };
        value.clear();
        *value = postcard::to_extend(of_slot, std::mem::take(value)).map_err(|source| StateError::Encode {
            operator: self.operator,
            namespace,
            source,
        })?;
        Ok(visit(Change::Put { namespace, key, value }))
    }
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
        let spaces: Vec<_> =
            self.layer.spaces.iter().map(|(namespace, space)| (*namespace, space, space.sorted())).collect();
        let mut rest: Vec<_> =
            spaces.iter().map(|(namespace, space, ranked)| (*namespace, *space, ranked.as_slice())).collect();
        let mut value = Vec::new();
        for group in 0..KEY_GROUPS {
            for (namespace, space, rest) in &mut rest {
                let (ranked, behind) = rest.split_at(rest.partition_point(|(rank, _)| group_of(*rank) <= group));
                *rest = behind;
                for ahead in ranked.chunks(AHEAD) {
                    let slots = ahead.iter().filter_map(|(_, number)| space.get(*number as usize));
                    // They lie anywhere: to read them one behind the other would wait for memory each time.
                    std::hint::black_box(slots.clone().filter(|slot| slot.value.is_some()).count());
                    for slot in slots {
                        if self.visit(*namespace, slot, &mut value, visit)?.is_break() {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
