//! Several namespaces read as one, in key order, without holding more than the next entry of each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::de::DeserializeOwned;

use super::StateError;
use super::entries::Entries;
use super::key::Key;

/// The next entry of an input; ordered by key, then by input.
struct Head<V> {
    key: Key,
    input: usize,
    value: V,
}

impl<V> PartialEq for Head<V> {
    fn eq(&self, other: &Head<V>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<V> Eq for Head<V> {}

impl<V> PartialOrd for Head<V> {
    fn partial_cmp(&self, other: &Head<V>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<V> Ord for Head<V> {
    fn cmp(&self, other: &Head<V>) -> std::cmp::Ordering {
        (&self.key, self.input).cmp(&(&other.key, other.input))
    }
}

/// Each key once, the values of the inputs merged in the inputs' order.
pub struct Merged<'a, V> {
    inputs: Vec<Entries<'a, V>>,
    heads: BinaryHeap<Reverse<Head<V>>>,
    merge: fn(&mut V, V),
    started: bool,
}

impl<'a, V: Clone + DeserializeOwned> Merged<'a, V> {
    pub(super) fn new(inputs: Vec<Entries<'a, V>>, merge: fn(&mut V, V)) -> Merged<'a, V> {
        Merged { inputs, heads: BinaryHeap::new(), merge, started: false }
    }

    /// Reads the next entry of an input onto the heap.
    fn read(&mut self, input: usize) -> Result<(), StateError> {
        if let Some((key, value)) = self.inputs.get_mut(input).and_then(Iterator::next).transpose()? {
            self.heads.push(Reverse(Head { key, input, value }));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<(Key, V)>, StateError> {
        if !self.started {
            self.started = true;
            (0..self.inputs.len()).try_for_each(|input| self.read(input))?;
        }
        let Some(Reverse(Head { key, input, mut value })) = self.heads.pop() else { return Ok(None) };
        self.read(input)?;
        while self.heads.peek().is_some_and(|Reverse(head)| head.key == key) {
            let Some(Reverse(later)) = self.heads.pop() else { break };
            (self.merge)(&mut value, later.value);
            self.read(later.input)?;
        }
        Ok(Some((key, value)))
    }
}

impl<V: Clone + DeserializeOwned> Iterator for Merged<'_, V> {
    type Item = Result<(Key, V), StateError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Checkpointed, KeyedState};

    #[test]
    fn namespaces_merge_in_their_order_whatever_layers_they_lie_in() {
        let mut state = KeyedState::<Vec<u8>>::empty(1);
        let put = |state: &mut KeyedState<Vec<u8>>, namespace: i64, key: &str, value: u8| {
            state.entry(namespace, key.as_bytes(), Vec::new).expect("reads").push(value);
        };
        put(&mut state, 1, "a", 1);
        put(&mut state, 2, "a", 2);
        put(&mut state, 3, "c", 3);
        let _frozen = state.freeze().expect("freezes");
        put(&mut state, 3, "a", 4);
        put(&mut state, 2, "b", 5);
        put(&mut state, 1, "a", 6);
        state.remove(3, b"c");
        let merged = state.merged_entries(&[1, 2, 3], |namespace| namespace == 1, |all, later| all.extend(later));
        let merged: Vec<(Vec<u8>, Vec<u8>)> =
            merged.map(|entry| entry.expect("reads")).map(|(key, value)| (key.to_vec(), value)).collect();
        assert_eq!(merged, [(b"a".to_vec(), vec![1, 6, 2, 4]), (b"b".to_vec(), vec![5])]);
        assert_eq!(state.namespaces().iter().copied().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(state.get(1, b"a").expect("reads"), None);
        assert_eq!(state.get(2, b"a").expect("reads").as_deref(), Some(&vec![2]));
    }
}
