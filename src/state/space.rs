//! The changes within one namespace: slots in the order in which they came, and an index of their places by key.
//!
//! A hash table of the slots themselves would be half empty after it grew, and to grow would move all of them. The index
//! has 8 bytes for each; the slots lie in blocks, which stay where they are.

use std::convert::Infallible;

use hashbrown::HashTable;
use serde::Serialize;

use super::key::{Key, hash_key};
use super::key_group;
use super::weight::heap_bytes;

/// An entry; without value it is a tombstone.
#[derive(Clone)]
pub(super) struct Slot<V> {
    pub key: Key,
    pub value: Option<V>,
}

/// Keys that are looked at together.
pub const AHEAD: usize = 16;

/// Slots of a block. Blocks are of one size, so that what the allocator gets back is what it is asked for next.
const BLOCK: usize = 512;

/// Slots in the order in which they came.
#[derive(Clone)]
struct Slots<V>(Vec<Vec<Slot<V>>>);

impl<V> Slots<V> {
    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * BLOCK + last.len())
    }

    /// How many slots there is memory for.
    fn capacity(&self) -> usize {
        match self.0.as_slice() {
            [first] => first.capacity(),
            blocks => blocks.len() * BLOCK,
        }
    }

    fn get(&self, number: usize) -> Option<&Slot<V>> {
        self.0.get(number / BLOCK)?.get(number % BLOCK)
    }

    fn get_mut(&mut self, number: usize) -> Option<&mut Slot<V>> {
        self.0.get_mut(number / BLOCK)?.get_mut(number % BLOCK)
    }

    fn push(&mut self, slot: Slot<V>) {
        match self.0.last_mut() {
            Some(last) if last.len() < BLOCK => last.push(slot),
            // The first one grows: most namespaces are small.
            None => self.0.push(vec![slot]),
            Some(_) => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(slot);
                self.0.push(block);
            }
        }
    }

    /// Removes a slot; the last one takes its number.
    fn swap_remove(&mut self, number: usize) -> Option<Slot<V>> {
        let last = self.0.last_mut()?.pop()?;
        self.0.pop_if(|block| block.is_empty());
        match self.get_mut(number) {
            Some(slot) => Some(std::mem::replace(slot, last)),
            None => Some(last),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Slot<V>> {
        self.0.iter().flatten()
    }
}

/// Where the slot of a key is.
#[derive(Clone, Copy)]
struct Place {
    /// Of the key: most others are told apart without a look at their slots.
    hash: u32,
    /// Its number.
    slot: u32,
}

/// The hash of a key in the index.
pub(super) fn short_hash(key: &[u8]) -> u32 {
    let hash = hash_key(key);
    (hash >> 32) as u32 ^ hash as u32
}

impl Place {
    fn of(key: &[u8], slot: usize) -> Place {
        // A layer is checkpointed long before it has so many slots.
        Place { hash: short_hash(key), slot: slot as u32 }
    }

    /// The hash for the table, which looks at the lowest and at the highest bits.
    fn spread(&self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

/// The changes within one namespace.
#[derive(Clone)]
pub(super) struct Space<V> {
    slots: Slots<V>,
    index: HashTable<Place>,
    /// The namespace was removed in this layer: what layers below hold of it does not count.
    pub cleared: bool,
    heap_key_bytes: usize,
}

impl<V> Default for Space<V> {
    fn default() -> Space<V> {
        Space { slots: Slots(Vec::new()), index: HashTable::new(), cleared: false, heap_key_bytes: 0 }
    }
}

impl<V> Space<V> {
    /// A namespace that was removed, and nothing else.
    pub fn cleared() -> Space<V> {
        Space { cleared: true, ..Space::default() }
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// The slots, in no order that means anything.
    pub fn slots(&self) -> impl Iterator<Item = &Slot<V>> {
        self.slots.iter()
    }

    /// As [`Space::slots`], to keep.
    pub fn into_slots(self) -> impl Iterator<Item = Slot<V>> {
        self.slots.0.into_iter().flatten()
    }

    /// A slot by its number.
    pub fn get(&self, number: usize) -> Option<&Slot<V>> {
        self.slots.get(number)
    }

    /// The key and the value of a slot by its number; the value is gone then.
    pub fn take(&mut self, number: usize) -> Option<Slot<V>> {
        let slot = self.slots.get_mut(number)?;
        Some(Slot { key: slot.key.clone(), value: slot.value.take() })
    }

    /// The slot of a key, where there is one.
    pub fn find(&self, key: &[u8]) -> Option<&Slot<V>> {
        self.slots.get(self.number(Place::of(key, 0), key)?)
    }

    /// As [`Space::find`], to change it.
    pub fn find_mut(&mut self, key: &[u8]) -> Option<&mut Slot<V>> {
        self.slots.get_mut(self.number(Place::of(key, 0), key)?)
    }

    /// The number of the slot of a key.
    fn number(&self, wanted: Place, key: &[u8]) -> Option<usize> {
        self.index.find(wanted.spread(), is_at(&self.slots, wanted, key)).map(|place| place.slot as usize)
    }

    /// Asks memory for the slots of all keys that were not `seen` yet before it waits for the first of them.
    pub fn look_ahead<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, seen: &mut [bool; AHEAD]) {
        let mut places = [None; AHEAD];
        for ((place, key), _) in places.iter_mut().zip(keys).zip(seen.iter()).filter(|(_, seen)| !**seen) {
            let wanted = Place::of(key, 0);
            *place = self.index.find(wanted.spread(), |place| place.hash == wanted.hash).map(|place| place.slot);
        }
        let mut bytes = 0;
        for (place, seen) in places.iter().zip(seen) {
            if let Some(slot) = place.and_then(|place| self.slots.get(place as usize)) {
                *seen = true;
                bytes += slot.key.len() + usize::from(slot.value.is_some());
            }
        }
        std::hint::black_box(bytes);
    }

    /// The value of the slot of `key`; an absent slot is filled with what `load` gives.
    pub fn slot_or_load<E>(
        &mut self,
        key: &[u8],
        load: impl FnOnce(bool) -> Result<Option<V>, E>,
    ) -> Result<&mut Option<V>, E> {
        let place = Place::of(key, self.slots.len());
        let number = match self.number(place, key) {
            Some(number) => number,
            None => {
                let value = load(self.cleared)?;
                let key = Key::from(key);
                self.heap_key_bytes += key.heap_bytes();
                self.slots.push(Slot { key, value });
                self.index.insert_unique(place.spread(), place, Place::spread);
                place.slot as usize
            }
        };
        Ok(&mut self.slots.0[number / BLOCK][number % BLOCK].value)
    }

    /// The value of the slot of `key`; an absent slot is made, without value.
    pub fn slot(&mut self, key: &[u8]) -> &mut Option<V> {
        match self.slot_or_load(key, |_| Ok::<_, Infallible>(None)) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Forgets the slot of a key.
    pub fn forget(&mut self, key: &[u8]) {
        let wanted = Place::of(key, 0);
        let Ok(found) = self.index.find_entry(wanted.spread(), is_at(&self.slots, wanted, key)) else { return };
        let (Place { slot: free, .. }, _) = found.remove();
        let forgotten = self.slots.swap_remove(free as usize);
        let bytes = forgotten.map_or(0, |slot| slot.key.heap_bytes());
        self.heap_key_bytes = self.heap_key_bytes.saturating_sub(bytes);
        // The last one lies there now.
        if let Some(moved) = self.slots.get(free as usize) {
            let moved = Place::of(&moved.key, self.slots.len());
            if let Some(place) = self.index.find_mut(moved.spread(), |place| place.slot == moved.slot) {
                place.slot = free;
            }
        }
    }

    /// The numbers of the slots in the order of (key group, key), each with its rank.
    pub fn sorted(&self) -> Vec<Ranked> {
        let same = shared_by(self.slots.iter().map(|slot| &*slot.key));
        let rank = |key: &[u8]| number_of([key_group(key)].iter().chain(key.iter().skip(same)));
        let mut ranked: Vec<Ranked> = self.slots.iter().map(|slot| rank(&slot.key)).zip(0..).collect();
        sort(&mut ranked, &|number| self.key(number));
        ranked
    }

    /// So many slots from everywhere, or all: what came first may be of another size than what came later, or every
    /// other one.
    fn sample(&self, count: usize) -> impl Iterator<Item = &Slot<V>> {
        let slots = self.slots.len();
        (1..=count.min(slots)).filter_map(move |i| match slots > count {
            // Steps of the golden ratio, around and around, come near every place and have no period.
            true => self.slots.get(((u64::from((i as u32).wrapping_mul(0x9E37_79B9)) * slots as u64) >> 32) as usize),
            false => self.slots.get(i - 1),
        })
    }

    /// The key of a slot by its number.
    fn key(&self, number: u32) -> &[u8] {
        self.slots.get(number as usize).map(|slot| &*slot.key).unwrap_or_default()
    }
}

/// Whether the slot at a place is that of the key which is looked for.
fn is_at<V>(slots: &Slots<V>, wanted: Place, key: &[u8]) -> impl Fn(&Place) -> bool {
    move |place| place.hash == wanted.hash && slots.get(place.slot as usize).is_some_and(|slot| *slot.key == *key)
}

/// A rank and what has it: that of a lower one comes first, among those of the same one the keys decide.
pub(super) type Ranked = (u64, u32);

/// Sorts by rank, then key, then number. (Once for all types of values: sorts are large.)
pub(super) fn sort<'k>(ranked: &mut [Ranked], key: &dyn Fn(u32) -> &'k [u8]) {
    ranked.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))).then(a.1.cmp(&b.1)));
}

/// How many bytes all keys begin with: they tell none apart.
pub(super) fn shared_by<'k>(mut keys: impl Iterator<Item = &'k [u8]>) -> usize {
    let first = keys.next().unwrap_or_default();
    let same = |key: &[u8]| first.iter().zip(key).take_while(|(a, b)| a == b).count();
    keys.map(same).min().unwrap_or(first.len())
}

/// The first eight of these bytes as a number, which has their order.
pub(super) fn number_of<'b>(bytes: impl Iterator<Item = &'b u8>) -> u64 {
    let mut number = [0; 8];
    number.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    u64::from_be_bytes(number)
}

/// The key group in a rank.
pub(super) fn group_of(rank: u64) -> u8 {
    let [group, ..] = rank.to_be_bytes();
    group
}

impl<V: Serialize> Space<V> {
    /// Memory of the index, of slots, and of what keys and values own, values weighed by a sample of so many.
    pub fn memory_bytes(&self, sample: usize) -> usize {
        let weights = self.sample(sample).map(|slot| slot.value.as_ref().map_or(0, heap_bytes));
        let values = weights.sum::<usize>().saturating_mul(self.slots.len()) / self.slots.len().clamp(1, sample);
        self.index.allocation_size() + self.slots.capacity() * size_of::<Slot<V>>() + self.heap_key_bytes + values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_gone_and_the_rest_is_found() {
        let mut space = Space::<usize>::default();
        let key = |number: usize| number.to_string().into_bytes();
        for number in 0..2000 {
            *space.slot(&key(number)) = Some(number);
        }
        (0..2000).filter(|number| number % 3 == 0).for_each(|number| space.forget(&key(number)));
        space.forget(b"never there");
        for number in 0..2000 {
            let found = space.find(&key(number)).map(|slot| slot.value);
            assert_eq!(found, (number % 3 != 0).then_some(Some(number)));
        }
        assert_eq!((space.len(), space.index.len()), (1333, 1333));
    }

    #[test]
    fn values_are_weighed_wherever_they_lie() {
        for is_large in [|i: usize| i >= 1024, |i: usize| i < 1024, |i: usize| i % 2 == 1, |i: usize| i % 512 > 255] {
            let mut space = Space::<String>::default();
            (0..2048).for_each(|i| {
                *space.slot(&i.to_string().into_bytes()) = Some("x".repeat(if is_large(i) { 10_000 } else { 0 }));
            });
            assert!((8_000_000..13_000_000).contains(&space.memory_bytes(128)), "{}", space.memory_bytes(128));
        }
        let mut space = Space::<String>::default();
        (0..100).for_each(|i| *space.slot(&[i]) = Some(String::new()));
        assert!(space.sample(1).all(|slot| slot.key[0] > 0), "where there is one, it is not the first");
        assert_eq!(space.sample(100).map(|slot| slot.key[0]).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn slots_are_sorted_by_group_and_key_whatever_the_keys_share() {
        let keys = ["", "a", "ab", "ab\0", "ab\0\0", "abcdefghi", "abcdefghij", "b"];
        for beginning in ["", "the same beginning of all, longer than what is inline"] {
            let mut space = Space::<u8>::default();
            for key in keys.iter().rev() {
                let key = [beginning, key].concat().into_bytes();
                space.slot(&key);
            }
            let sorted: Vec<_> =
                space.sorted().iter().map(|(rank, number)| (group_of(*rank), Key::from(space.key(*number)))).collect();
            let mut expected: Vec<_> = space.slots().map(|slot| (key_group(&slot.key), slot.key.clone())).collect();
            expected.sort();
            assert_eq!(sorted, expected);
        }
    }
}
