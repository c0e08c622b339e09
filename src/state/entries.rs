//! The entries of a namespace in key order: those in memory merged with those that are stored.

use serde::de::DeserializeOwned;

use super::StateError;
use super::key::Key;
use super::keyed::Older;
use super::scan::Scan;
use super::space::{AHEAD, Ranked, Slot, Space, number_of, shared_by, sort};

/// Where an entry in memory is: in the namespace that its reader has for itself, or in a layer, where it stays.
enum Held<'a, V> {
    Own(usize),
    Shared(&'a Slot<V>),
}

impl<V> Clone for Held<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Held<'_, V> {}

impl<'a, V> Held<'a, V> {
    fn slot<'s>(self, own: &'s Space<V>) -> Option<&'s Slot<V>>
    where
        'a: 's,
    {
        match self {
            Held::Own(number) => own.get(number),
            Held::Shared(slot) => Some(slot),
        }
    }

    fn key<'s>(self, own: &'s Space<V>) -> &'s [u8]
    where
        'a: 's,
    {
        self.slot(own).map(|slot| &*slot.key).unwrap_or_default()
    }
}

/// Entries in key order, and the last key up to which they are all there are; `None` where there are no more.
pub type Next<V> = (Option<Key>, Vec<(Key, V)>);

/// The entries of a namespace in key order.
pub struct Entries<'a, V> {
    older: &'a Older<V>,
    namespace: i64,
    /// The newest of them, where the namespace was taken.
    own: Space<V>,
    /// Of those in memory the newest of each key, in key order.
    in_memory: Vec<Held<'a, V>>,
    /// How many of these were given.
    given: usize,
    stored: Option<Scan<'a>>,
}

impl<'a, V: Clone + DeserializeOwned> Entries<'a, V> {
    /// What is in memory, newest first, in part the reader's own, over what is stored.
    pub(super) fn new(
        older: &'a Older<V>,
        namespace: i64,
        own: Space<V>,
        shared: impl Iterator<Item = &'a Slot<V>>,
        stored: Option<Scan<'a>>,
    ) -> Entries<'a, V> {
        let held: Vec<Held<'a, V>> = (0..own.len()).map(Held::Own).chain(shared.map(Held::Shared)).collect();
        let same = shared_by(held.iter().map(|held| held.key(&own)));
        let rank = |held: &Held<'a, V>| number_of(held.key(&own).iter().skip(same));
        let mut ranked: Vec<Ranked> = held.iter().map(rank).zip(0..).collect();
        let key = |number: u32| held.get(number as usize).map(|held| held.key(&own)).unwrap_or_default();
        sort(&mut ranked, &key);
        // Of equal keys the newest is kept.
        ranked.dedup_by(|later, kept| later.0 == kept.0 && key(later.1) == key(kept.1));
        let in_memory = ranked.iter().filter_map(|(_, number)| held.get(*number as usize).copied()).collect();
        Entries { older, namespace, own, in_memory, given: 0, stored }
    }

    /// Leaves out what is stored up to a key.
    pub(super) fn behind(mut self, after: &[u8]) -> Entries<'a, V> {
        self.stored = self.stored.map(|scan| scan.behind(after));
        self
    }

    /// Asks memory for the next entries before the first of them is waited for.
    fn look_ahead(&self) {
        let ahead = self.in_memory.iter().skip(self.given).take(AHEAD);
        let slots = ahead.filter_map(|held| held.slot(&self.own));
        std::hint::black_box(slots.filter(|slot| slot.value.is_some()).count());
    }

    fn step(&mut self) -> Result<Option<(Key, V)>, StateError> {
        loop {
            if self.given.is_multiple_of(AHEAD) {
                self.look_ahead();
            }
            let stored_key = self.stored.as_mut().map_or(Ok(None), Scan::peek)?;
            let in_memory = self.in_memory.get(self.given).copied();
            let (take_memory, take_stored) = match (in_memory.map(|held| held.key(&self.own)), stored_key) {
                (None, None) => return Ok(None),
                (Some(_), None) => (true, false),
                (None, Some(_)) => (false, true),
                (Some(memory), Some(stored)) => (memory <= stored, stored <= memory),
            };
            let from_stored = match &mut self.stored {
                Some(scan) if take_stored => scan.next()?,
                _ => None,
            };
            if take_memory {
                self.given += 1;
                let slot = match in_memory {
                    Some(Held::Own(number)) => self.own.take(number),
                    Some(Held::Shared(slot)) => Some(slot.clone()),
                    None => None,
                };
                // Without value it is a tombstone.
                if let Some(Slot { key, value: Some(value) }) = slot {
                    return Ok(Some((key, value)));
                }
            } else if let Some((key, bytes)) = from_stored {
                let value = self.older.decode(self.namespace, &key, &bytes)?;
                return Ok(Some((Key::from(key.as_slice()), value)));
            }
        }
    }
}

impl<V: Clone + DeserializeOwned> Iterator for Entries<'_, V> {
    type Item = Result<(Key, V), StateError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
