//! The state of one operator: typed values in layers.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::entries::{Entries, Next};
use super::key::Key;
use super::layer::{FrozenLayer, Layer};
use super::merged::Merged;
use super::scan::Scan;
use super::space::{AHEAD, Space};
use super::{Checkpointed, Frozen, NoStored, StateError, StateReader};

/// So many entries stay in the processor's caches by themselves.
const CACHED: usize = 4096;

/// Keyed state of one operator, for the engine thread.
pub struct KeyedState<V> {
    dirty: Layer<V>,
    /// Namespaces that were touched and not removed.
    open: BTreeSet<i64>,
    older: Older<V>,
}

/// Everything below the dirty layer.
pub(super) struct Older<V> {
    operator: u32,
    frozen: Option<Arc<FrozenLayer<V>>>,
    clean: Option<Arc<FrozenLayer<V>>>,
    reader: Arc<dyn StateReader>,
    /// Namespaces that the reader may have entries of: spares a lookup for the keys of every new window.
    stored: BTreeSet<i64>,
}

impl<V: Clone + DeserializeOwned> Older<V> {
    pub fn decode(&self, namespace: i64, key: &[u8], bytes: &[u8]) -> Result<V, StateError> {
        let source = match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => return Ok(value),
            Ok(_) => postcard::Error::DeserializeBadEncoding,
            Err(source) => source,
        };
        Err(StateError::Decode { operator: self.operator, namespace, key: key.to_vec(), source })
    }

    /// The frozen and the clean layer, newest first.
    fn layers(&self) -> impl Iterator<Item = &Layer<V>> + Clone {
        [&self.frozen, &self.clean].into_iter().flatten().map(|frozen| &frozen.layer)
    }

    fn find(&self, namespace: i64, key: &[u8]) -> Result<Option<Cow<'_, V>>, StateError> {
        for space in self.layers().filter_map(|layer| layer.spaces.get(&namespace)) {
            if let Some(slot) = space.find(key) {
                return Ok(slot.value.as_ref().map(Cow::Borrowed));
            }
            if space.cleared {
                return Ok(None);
            }
        }
        if !self.stored.contains(&namespace) {
            return Ok(None);
        }
        match self.reader.get(self.operator, namespace, key)? {
            Some(bytes) => self.decode(namespace, key, &bytes).map(|value| Some(Cow::Owned(value))),
            None => Ok(None),
        }
    }

    /// What the layers hold of a namespace, newest first, unless something newer hides it; and whether they hide the rest.
    fn spaces(&self, namespace: i64, mut hidden: bool) -> (Vec<&Space<V>>, bool) {
        let mut spaces = Vec::new();
        for space in self.layers().filter_map(|layer| layer.spaces.get(&namespace)) {
            if hidden {
                break;
            }
            spaces.push(space);
            hidden = space.cleared;
        }
        (spaces, hidden)
    }

    /// The entries of a namespace: those of its dirty layer, the reader's own or not, over what is older, if they do not
    /// hide it. As one of `scans` namespaces that are read at once. In memory only shared keys `within` are looked at.
    fn entries<'a>(
        &'a self,
        namespace: i64,
        own: Space<V>,
        newest: Option<&'a Space<V>>,
        scans: usize,
        within: impl Fn(&Key) -> bool,
    ) -> Entries<'a, V> {
        let hidden = own.cleared || newest.is_some_and(|space| space.cleared);
        let (older, hidden) = self.spaces(namespace, hidden);
        let stored = (!hidden && self.stored.contains(&namespace))
            .then(|| Scan::new(self.reader.as_ref(), self.operator, namespace, scans));
        let shared = newest.into_iter().chain(older).flat_map(Space::slots).filter(|slot| within(&slot.key));
        Entries::new(self, namespace, own, shared, stored)
    }

    /// Whether something of the namespace may be in a layer below the dirty one. (What the clean layer holds is stored.)
    fn may_hold(&self, namespace: i64) -> bool {
        self.stored.contains(&namespace)
            || self.frozen.as_ref().is_some_and(|frozen| frozen.layer.spaces.contains_key(&namespace))
    }
}

impl<V: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> KeyedState<V> {
    /// State of the operator with this number over what `reader` shows; `namespaces` are those persisted with it.
    pub fn new(
        operator: u32,
        reader: Arc<dyn StateReader>,
        namespaces: impl IntoIterator<Item = i64>,
    ) -> KeyedState<V> {
        let stored: BTreeSet<i64> = namespaces.into_iter().collect();
        KeyedState {
            dirty: Layer::default(),
            open: stored.clone(),
            older: Older { operator, frozen: None, clean: None, reader, stored },
        }
    }

    /// State over nothing: a fresh pipeline, or a test of an operator.
    pub fn empty(operator: u32) -> KeyedState<V> {
        KeyedState::new(operator, Arc::new(NoStored), [])
    }

    /// The entry's value to read and change, `default` where there is none. Opens the namespace.
    ///
    /// # Errors
    /// The stored value is corrupt or cannot be read.
    pub fn entry(&mut self, namespace: i64, key: &[u8], default: impl FnOnce() -> V) -> Result<&mut V, StateError> {
        let (open, older) = (&mut self.open, &self.older);
        let value = self.dirty.spaces.entry(namespace).or_default().slot_or_load(key, |cleared| {
            open.insert(namespace);
            if cleared { Ok(None) } else { Ok(older.find(namespace, key)?.map(Cow::into_owned)) }
        })?;
        Ok(value.get_or_insert_with(default))
    }

    /// Looks at the entries of up to [`AHEAD`] keys that are about to be changed. Where there are many entries, each lies
    /// in memory that no cache has: to look at some together waits for memory once, to change them one by one each time.
    pub fn look_ahead<'k>(&self, namespace: i64, keys: impl Iterator<Item = &'k [u8]> + Clone) {
        let layers = std::iter::once(&self.dirty).chain(self.older.layers());
        let spaces = layers.filter_map(|layer| layer.spaces.get(&namespace));
        if spaces.clone().map(Space::len).sum::<usize>() > CACHED {
            let mut seen = [false; AHEAD];
            spaces.for_each(|space| space.look_ahead(keys.clone(), &mut seen));
        }
    }

    /// The entry's value.
    ///
    /// # Errors
    /// The stored value is corrupt or cannot be read.
    pub fn get(&self, namespace: i64, key: &[u8]) -> Result<Option<Cow<'_, V>>, StateError> {
        if let Some(space) = self.dirty.spaces.get(&namespace) {
            if let Some(slot) = space.find(key) {
                return Ok(slot.value.as_ref().map(Cow::Borrowed));
            }
            if space.cleared {
                return Ok(None);
            }
        }
        self.older.find(namespace, key)
    }

    /// Sets the entry's value, whatever there was. Opens the namespace.
    pub fn put(&mut self, namespace: i64, key: &[u8], value: V) -> &mut V {
        self.open.insert(namespace);
        self.dirty.spaces.entry(namespace).or_default().slot(key).insert(value)
    }

    /// Removes an entry and gives its value; its namespace stays open.
    ///
    /// # Errors
    /// The stored value is corrupt or cannot be read.
    pub fn take(&mut self, namespace: i64, key: &[u8]) -> Result<Option<V>, StateError> {
        let space = self.dirty.spaces.get_mut(&namespace);
        let cleared = space.as_ref().is_some_and(|space| space.cleared);
        let value = match space.and_then(|space| space.find_mut(key)) {
            Some(slot) => slot.value.take(),
            None if cleared => None,
            None => self.older.find(namespace, key)?.map(Cow::into_owned),
        };
        if value.is_some() {
            self.remove(namespace, key);
        }
        Ok(value)
    }

    /// Removes an entry; its namespace stays open.
    pub fn remove(&mut self, namespace: i64, key: &[u8]) {
        if !self.open.contains(&namespace) {
            return;
        }
        if self.older.may_hold(namespace) {
            let space = self.dirty.spaces.entry(namespace).or_default();
            if space.cleared {
                space.forget(key);
            } else {
                *space.slot(key) = None;
            }
        } else if let Some(space) = self.dirty.spaces.get_mut(&namespace) {
            space.forget(key);
        }
    }

    /// Removes a namespace with all its entries, at no cost per entry.
    pub fn remove_namespace(&mut self, namespace: i64) {
        self.detach(namespace);
    }

    /// Closes the namespace and gives what the dirty layer held of it.
    fn detach(&mut self, namespace: i64) -> Space<V> {
        self.open.remove(&namespace);
        let space = self.dirty.spaces.remove(&namespace).unwrap_or_default();
        if space.cleared || self.older.may_hold(namespace) {
            self.dirty.spaces.insert(namespace, Space::cleared());
        }
        space
    }

    /// The open namespaces: those in which an entry was made and that were not removed since.
    pub fn namespaces(&self) -> &BTreeSet<i64> {
        &self.open
    }

    /// Removes a namespace and gives its entries in key order. The namespace is gone at once, however far the iterator
    /// is read. Stored entries are read in chunks, so they may be more than memory holds.
    pub fn take_namespace(&mut self, namespace: i64) -> Entries<'_, V> {
        let own = self.detach(namespace);
        self.older.entries(namespace, own, None, 1, |_| true)
    }

    /// The entries of a namespace in key order, which stays as it is.
    pub fn entries(&self, namespace: i64) -> Entries<'_, V> {
        self.entries_beside(namespace, 1)
    }

    /// The next entries of a namespace behind a key, in key order, `limit` at most; and the key up to which these are all
    /// there are, where there may be more. Looks at each entry of the namespace that is in memory.
    ///
    /// # Errors
    /// A stored value is corrupt or cannot be read.
    pub fn next_entries(&self, namespace: i64, after: &[u8], limit: usize) -> Result<Next<V>, StateError> {
        let limit = limit.max(1);
        let newest = self.dirty.spaces.get(&namespace);
        let (older, _) = self.older.spaces(namespace, newest.is_some_and(|space| space.cleared));
        let in_memory = newest.into_iter().chain(older).flat_map(Space::slots);
        let mut keys: Vec<&Key> = in_memory.map(|slot| &slot.key).filter(|key| ***key > *after).collect();
        let last = (keys.len() > limit).then(|| keys.select_nth_unstable(limit).1.clone());
        let within = |key: &Key| **key > *after && last.as_ref().is_none_or(|last| key <= last);
        let entries = self.older.entries(namespace, Space::default(), newest, 1, within).behind(after);
        let mut found = Vec::new();
        for entry in entries {
            let (key, value) = entry?;
            if last.as_ref().is_some_and(|last| key > *last) {
                break;
            }
            if found.len() == limit {
                return Ok((found.last().map(|(key, _): &(Key, V)| key.clone()), found));
            }
            found.push((key, value));
        }
        Ok((last, found))
    }

    fn entries_beside(&self, namespace: i64, scans: usize) -> Entries<'_, V> {
        self.older.entries(namespace, Space::default(), self.dirty.spaces.get(&namespace), scans, |_| true)
    }

    /// Several namespaces as one, in key order: the values of one key are merged in the order of `namespaces`. Those that
    /// `take` names are removed.
    pub fn merged_entries(
        &mut self,
        namespaces: &[i64],
        take: impl Fn(i64) -> bool,
        merge: fn(&mut V, V),
    ) -> Merged<'_, V> {
        let taken: Vec<Option<Space<V>>> =
            namespaces.iter().map(|namespace| take(*namespace).then(|| self.detach(*namespace))).collect();
        let inputs = namespaces.iter().zip(taken).map(|(namespace, taken)| match taken {
            Some(own) => self.older.entries(*namespace, own, None, namespaces.len(), |_| true),
            None => self.entries_beside(*namespace, namespaces.len()),
        });
        Merged::new(inputs.collect(), merge)
    }
}

impl<V: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Checkpointed for KeyedState<V> {
    fn operator(&self) -> u32 {
        self.older.operator
    }

    fn has_changes(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn freeze(&mut self) -> Result<Arc<dyn Frozen>, StateError> {
        if self.older.frozen.is_some() {
            return Err(StateError::InFlight { operator: self.older.operator });
        }
        let layer = std::mem::take(&mut self.dirty);
        let memory_bytes = layer.memory_bytes();
        let frozen =
            Arc::new(FrozenLayer { operator: self.older.operator, layer, namespaces: self.open.clone(), memory_bytes });
        self.older.frozen = Some(Arc::clone(&frozen));
        Ok(frozen)
    }

    fn committed(&mut self) -> Option<Arc<dyn Frozen>> {
        let frozen = self.older.frozen.take()?;
        self.older.stored.clone_from(&frozen.namespaces);
        if frozen.layer.is_empty() {
            // Nothing was written, so the older generation still shows what is stored.
            return None;
        }
        self.older.clean.replace(frozen).map(|old| old as Arc<dyn Frozen>)
    }

    fn release(&mut self) -> Option<Arc<dyn Frozen>> {
        self.older.clean.take().map(|clean| clean as Arc<dyn Frozen>)
    }

    fn failed(&mut self) {
        let Some(frozen) = self.older.frozen.take() else { return };
        let newer = std::mem::take(&mut self.dirty);
        // Only a checkpoint thread that still holds the layer makes this a copy.
        self.dirty = Arc::try_unwrap(frozen).map_or_else(|shared| shared.layer.clone(), |frozen| frozen.layer);
        self.dirty.overlay(newer);
    }

    fn dirty_bytes(&self) -> usize {
        self.dirty.memory_bytes()
    }

    fn older_bytes(&self) -> usize {
        [&self.older.frozen, &self.older.clean].into_iter().flatten().map(|frozen| frozen.memory_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::super::many;
    use super::super::model::{self, MemoryStore, Op};
    use super::super::{Change, KEY_GROUPS, key_group};
    use super::*;

    fn changes(frozen: &dyn Frozen) -> Vec<String> {
        let mut list = Vec::new();
        frozen
            .for_each(&mut |change| {
                list.push(match change {
                    Change::DeleteNamespace { namespace } => format!("clear {namespace}"),
                    Change::Delete { namespace, key } => format!("delete {namespace} {key:?}"),
                    Change::Put { namespace, key, value } => format!("put {namespace} {key:?} {value:?}"),
                });
                ControlFlow::Continue(())
            })
            .expect("encodes");
        list
    }

    #[test]
    fn an_untouched_state_has_nothing_to_write() {
        let mut state = KeyedState::<u64>::empty(1);
        assert!(!state.has_changes());
        let frozen = state.freeze().expect("freezes");
        assert!(frozen.is_empty());
        assert!(matches!(state.freeze(), Err(StateError::InFlight { operator: 1 })));
        assert!(state.committed().is_none());
        *state.entry(5, b"k", || 0).expect("reads") = 7;
        assert!(state.has_changes());
        state.remove_namespace(5);
        assert!(!state.has_changes(), "a namespace that lived between two checkpoints leaves nothing to write");
    }

    #[test]
    fn a_namespace_removed_and_made_again_hides_what_lies_below() {
        let mut state = KeyedState::<u64>::empty(1);
        *state.entry(5, b"old", || 1).expect("reads") += 1;
        let first = state.freeze().expect("freezes");
        state.remove_namespace(5);
        assert!(state.namespaces().is_empty());
        assert!(state.get(5, b"old").expect("reads").is_none());
        *state.entry(5, b"new", || 9).expect("reads") += 1;
        assert!(state.committed().is_none());
        let second = state.freeze().expect("freezes");
        assert_eq!(changes(first.as_ref()), ["put 5 [111, 108, 100] [2]"]);
        assert_eq!(changes(second.as_ref()), ["clear 5", "put 5 [110, 101, 119] [10]"]);
        let all: Vec<_> = state.take_namespace(5).map(|e| e.expect("reads")).map(|(k, v)| (k.to_vec(), v)).collect();
        assert_eq!(all, [(b"new".to_vec(), 10)]);
        drop(second);
        state.failed();
        let third = state.freeze().expect("freezes");
        assert_eq!(changes(third.as_ref()), ["clear 5"]);
    }

    #[test]
    fn a_freeze_moves_the_tables() {
        let mut state = KeyedState::<u64>::empty(1);
        for i in 0..100_000u64 {
            *state.entry(0, &i.to_be_bytes(), || 0).expect("reads") = i;
        }
        let before: *const u64 = state.entry(0, &77u64.to_be_bytes(), || 0).expect("reads");
        let frozen = state.freeze().expect("freezes");
        let Cow::Borrowed(after) = state.get(0, &77u64.to_be_bytes()).expect("reads").expect("is there") else {
            panic!("the value was copied")
        };
        assert!(std::ptr::eq(before, after), "the entry is where it was: nothing was copied");
        drop(frozen);
        assert!(state.memory_bytes() > 100_000 * 40);
    }

    #[test]
    fn values_of_every_namespace_are_weighed() {
        let mut state = KeyedState::<String>::empty(1);
        for i in 0..1000u64 {
            state.put(0, &i.to_be_bytes(), String::new());
            state.put(1, &i.to_be_bytes(), "x".repeat(10_000));
        }
        assert!((10_000_000..12_000_000).contains(&state.memory_bytes()), "{}", state.memory_bytes());
    }

    #[test]
    fn key_groups_are_fixed_and_even() {
        assert_eq!(key_group(b"123456789"), (0xe306_9283_u32 % 128) as u8);
        let mut counts = [0u32; KEY_GROUPS as usize];
        for i in 0..128_000u64 {
            counts[usize::from(key_group(format!("device-{i}").as_bytes()))] += 1;
        }
        assert!(counts.iter().all(|count| (500..2000).contains(count)), "{counts:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn behaves_like_a_map(ops in proptest::collection::vec(model::op(), 1..120)) {
            model::check(MemoryStore::default(), &ops);
        }
    }

    #[test]
    fn many_keys_behave_like_a_map() {
        (0..2).for_each(|seed| many::check(MemoryStore::default(), seed, 40));
    }

    #[test]
    fn a_key_removed_in_a_namespace_that_is_gone_does_not_hide_that_it_opens_again() {
        model::check(
            MemoryStore::default(),
            &[
                Op::Add(1, 0, 1),
                Op::Freeze,
                Op::Commit,
                Op::RemoveNamespace(1),
                Op::Freeze,
                Op::Remove(1, 0),
                Op::Add(1, 0, 5),
                Op::Commit,
                Op::Take(1),
            ],
        );
    }
}
