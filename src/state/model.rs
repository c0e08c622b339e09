//! Operations as data, and the check that keyed state over any store behaves like a map (tests only).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::{Arc, RwLock};

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Change, Checkpointed, Frozen, KeyedState, StateError, StateReader, StoredPair, key_group};

/// Number of the operator in these tests.
pub(crate) const OPERATOR: u32 = 3;

/// An operation on the state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Add(i64, u8, u64),
    Get(i64, u8),
    Remove(i64, u8),
    RemoveNamespace(i64),
    Take(i64),
    Put(i64, u8, u64),
    TakeEntry(i64, u8),
    /// The next entries behind a key, so many at most.
    Next(i64, u8, usize),
    Freeze,
    Commit,
    Fail,
    Release,
    /// Drop everything in memory, open again at the last commit.
    Restart,
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let namespace = -2i64..3;
    let key = 0u8..12;
    prop_oneof![
        20 => (namespace.clone(), key.clone(), 0u64..1000).prop_map(|(n, k, v)| Op::Add(n, k, v)),
        4 => (namespace.clone(), key.clone()).prop_map(|(n, k)| Op::Get(n, k)),
        6 => (namespace.clone(), key.clone()).prop_map(|(n, k)| Op::Remove(n, k)),
        3 => namespace.clone().prop_map(Op::RemoveNamespace),
        3 => namespace.clone().prop_map(Op::Take),
        5 => (namespace.clone(), key.clone(), 0u64..1000).prop_map(|(n, k, v)| Op::Put(n, k, v)),
        4 => (namespace.clone(), key.clone()).prop_map(|(n, k)| Op::TakeEntry(n, k)),
        4 => (namespace, key, 1usize..6).prop_map(|(n, k, limit)| Op::Next(n, k, limit)),
        5 => Just(Op::Freeze),
        4 => Just(Op::Commit),
        2 => Just(Op::Fail),
        2 => Just(Op::Release),
        1 => Just(Op::Restart),
    ]
}

/// Keys of all sizes, some sharing a long beginning.
pub(crate) fn key_bytes(key: u8) -> Vec<u8> {
    match key {
        0 => Vec::new(),
        1..5 => vec![key; usize::from(key) * 12],
        5 => vec![9; 481],
        6 => vec![9; 482],
        7 => vec![9; 497],
        8 => vec![9; 498],
        9 => vec![9; 5000],
        _ => [vec![9; 490], vec![key; 100]].concat(),
    }
}

/// What holds committed state in the check.
pub(crate) trait Store {
    /// The last commit's view, and the namespaces persisted with it.
    fn reader(&mut self) -> (Arc<dyn StateReader>, BTreeSet<i64>);
    /// Makes the layer durable; the reader does not show it yet.
    fn commit(&mut self, frozen: &Arc<dyn Frozen>);
    /// Lets the reader show the last commit.
    fn renew(&mut self);
    /// Tries to commit and fails in the middle.
    fn fail(&mut self, frozen: &Arc<dyn Frozen>);
    /// Forgets all that is not durable.
    fn reopen(&mut self);
}

/// Entries and open namespaces.
pub(crate) type Model<V> = (BTreeMap<(i64, Vec<u8>), V>, BTreeSet<i64>);

/// A state over a store, and the maps that it must be equal to: what changes one changes the other.
pub(crate) struct Pair<V, S> {
    store: S,
    pub state: KeyedState<V>,
    pub model: Model<V>,
    committed: Model<V>,
    in_flight: Option<(Arc<dyn Frozen>, Model<V>)>,
}

impl<V, S> Pair<V, S>
where
    V: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    S: Store,
{
    pub fn new(mut store: S) -> Pair<V, S> {
        let (reader, namespaces) = store.reader();
        let state = KeyedState::new(OPERATOR, reader, namespaces);
        let empty = || (BTreeMap::new(), BTreeSet::new());
        Pair { store, state, model: empty(), committed: empty(), in_flight: None }
    }

    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Begins a checkpoint, unless one is in flight.
    pub fn freeze(&mut self) {
        if !self.is_in_flight() {
            self.in_flight = Some((self.state.freeze().expect("nothing is in flight"), self.model.clone()));
        }
    }

    /// The checkpoint in flight, if there is one, comes about.
    pub fn commit(&mut self) {
        if let Some((frozen, at_freeze)) = self.in_flight.take() {
            self.store.commit(&frozen);
            drop(frozen);
            self.store.renew();
            self.state.committed();
            self.committed = at_freeze;
        }
    }

    /// It does not.
    pub fn fail(&mut self) {
        if let Some((frozen, _)) = self.in_flight.take() {
            self.store.fail(&frozen);
            drop(frozen);
            self.state.failed();
        }
    }

    /// Drops everything in memory, opens again at the last commit.
    pub fn restart(&mut self) {
        self.in_flight = None;
        // The old one lets go of the store first.
        self.state = KeyedState::empty(OPERATOR);
        self.store.reopen();
        let (reader, namespaces) = self.store.reader();
        self.state = KeyedState::new(OPERATOR, reader, namespaces);
        self.model = self.committed.clone();
    }
}

/// Runs `ops` against the state over `store` and against maps; values are equal at every step.
pub(crate) fn check(store: impl Store, ops: &[Op]) {
    let mut pair = Pair::<u64, _>::new(store);
    for op in ops {
        let (state, model) = (&mut pair.state, &mut pair.model);
        match *op {
            Op::Add(namespace, key, add) => {
                let key = key_bytes(key);
                let value = state.entry(namespace, &key, || 1).expect("reads");
                *value += add;
                let expected = model.0.entry((namespace, key)).or_insert(1);
                *expected += add;
                model.1.insert(namespace);
                assert_eq!(value, expected);
            }
            Op::Get(namespace, key) => {
                let key = key_bytes(key);
                let value = state.get(namespace, &key).expect("reads").map(Cow::into_owned);
                assert_eq!(value, model.0.get(&(namespace, key)).copied());
            }
            Op::Remove(namespace, key) => {
                state.remove(namespace, &key_bytes(key));
                model.0.remove(&(namespace, key_bytes(key)));
            }
            Op::RemoveNamespace(namespace) => {
                state.remove_namespace(namespace);
                model.0.retain(|(n, _), _| *n != namespace);
                model.1.remove(&namespace);
            }
            Op::Take(namespace) => {
                let taken: Vec<(Vec<u8>, u64)> =
                    state.take_namespace(namespace).map(|e| e.expect("reads")).map(|(k, v)| (k.to_vec(), v)).collect();
                let expected: Vec<(Vec<u8>, u64)> =
                    model.0.iter().filter(|((n, _), _)| *n == namespace).map(|((_, k), v)| (k.clone(), *v)).collect();
                assert_eq!(taken, expected);
                model.0.retain(|(n, _), _| *n != namespace);
                model.1.remove(&namespace);
            }
            Op::Put(namespace, key, value) => {
                assert_eq!(*state.put(namespace, &key_bytes(key), value), value);
                model.0.insert((namespace, key_bytes(key)), value);
                model.1.insert(namespace);
            }
            Op::TakeEntry(namespace, key) => {
                let taken = state.take(namespace, &key_bytes(key)).expect("reads");
                assert_eq!(taken, model.0.remove(&(namespace, key_bytes(key))));
            }
            Op::Next(namespace, key, limit) => {
                let after = key_bytes(key);
                let (last, next) = state.next_entries(namespace, &after, limit).expect("reads");
                assert!(next.len() <= limit);
                let behind = model.0.iter().filter(|((n, k), _)| *n == namespace && *k > after);
                let expected: Vec<(Vec<u8>, u64)> = behind
                    .filter(|((_, k), _)| last.as_ref().is_none_or(|last| **k <= **last))
                    .map(|((_, k), v)| (k.clone(), *v))
                    .collect();
                assert!(last.is_none_or(|last| *last > *after), "it goes on");
                assert_eq!(next.into_iter().map(|(k, v)| (k.to_vec(), v)).collect::<Vec<_>>(), expected);
            }
            Op::Freeze => pair.freeze(),
            Op::Commit => pair.commit(),
            Op::Fail => pair.fail(),
            Op::Restart => pair.restart(),
            Op::Release => drop(state.release()),
        }
        let (state, model) = (&pair.state, &pair.model);
        assert_eq!(state.namespaces(), &model.1);
        for (namespace, key) in model.0.keys() {
            let value = state.get(*namespace, key).expect("reads").map(Cow::into_owned);
            assert_eq!(value, model.0.get(&(*namespace, key.clone())).copied());
        }
        for namespace in &model.1 {
            let entries: Vec<(Vec<u8>, u64)> =
                state.entries(*namespace).map(|e| e.expect("reads")).map(|(k, v)| (k.to_vec(), v)).collect();
            let expected: Vec<(Vec<u8>, u64)> =
                model.0.iter().filter(|((n, _), _)| n == namespace).map(|((_, k), v)| (k.clone(), *v)).collect();
            assert_eq!(entries, expected);
        }
    }
}

type Shared = Arc<RwLock<BTreeMap<(i64, Vec<u8>), Vec<u8>>>>;

/// A store in memory.
#[derive(Default)]
pub(crate) struct MemoryStore {
    durable: Model<Vec<u8>>,
    shown: Shared,
}

struct MemoryReader(Shared);

impl StateReader for MemoryReader {
    fn get(&self, operator: u32, namespace: i64, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        assert_eq!(operator, OPERATOR);
        Ok(self.0.read().expect("not poisoned").get(&(namespace, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        _: u32,
        namespace: i64,
        group: u8,
        after: Option<&[u8]>,
        limit: usize,
        out: &mut Vec<StoredPair>,
    ) -> Result<(), StateError> {
        let shown = self.0.read().expect("not poisoned");
        let entries = shown
            .iter()
            .filter(|((n, key), _)| *n == namespace && key_group(key) == group)
            .filter(|((_, key), _)| after.is_none_or(|after| key.as_slice() > after));
        // One at a time, so that chunks end everywhere.
        out.extend(entries.take(limit.min(1)).map(|((_, key), value)| (key.clone(), value.clone())));
        Ok(())
    }
}

impl Store for MemoryStore {
    fn reader(&mut self) -> (Arc<dyn StateReader>, BTreeSet<i64>) {
        (Arc::new(MemoryReader(Arc::clone(&self.shown))), self.durable.1.clone())
    }

    fn commit(&mut self, frozen: &Arc<dyn Frozen>) {
        let entries = &mut self.durable.0;
        frozen
            .for_each(&mut |change| {
                match change {
                    Change::DeleteNamespace { namespace } => entries.retain(|(n, _), _| *n != namespace),
                    Change::Delete { namespace, key } => {
                        entries.remove(&(namespace, key.to_vec()));
                    }
                    Change::Put { namespace, key, value } => {
                        entries.insert((namespace, key.to_vec()), value.to_vec());
                    }
                }
                ControlFlow::Continue(())
            })
            .expect("encodes");
        self.durable.1.clone_from(frozen.namespaces());
    }

    fn renew(&mut self) {
        self.shown.write().expect("not poisoned").clone_from(&self.durable.0);
    }

    fn fail(&mut self, _: &Arc<dyn Frozen>) {}

    fn reopen(&mut self) {
        self.renew();
    }
}
