//! A state of many keys beside maps (tests only): slots in several blocks, keys that have the same 32 bits of hash,
//! that share long beginnings or begin one another, values that change their length, removals in any order.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use super::model::{Model, Pair, Store};
use super::space::{AHEAD, short_hash};
use super::{Checkpointed, KeyedState};

type Entries = BTreeMap<(i64, Vec<u8>), Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

const NAMESPACES: u64 = 3;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// Pairs of keys of which the index of a space holds the same hash.
fn colliding() -> Vec<Vec<u8>> {
    let mut known: HashMap<u32, u32> = HashMap::new();
    let mut keys = Vec::new();
    for number in 0..300_000u32 {
        if let Some(other) = known.insert(short_hash(&number.to_le_bytes()), number) {
            keys.extend([other, number].map(|number| number.to_le_bytes().to_vec()));
        }
    }
    assert!(keys.len() >= 4, "some of so many collide");
    keys
}

/// Every key that is used.
fn keys() -> Vec<Vec<u8>> {
    let mut keys = colliding();
    for number in 0..2000 {
        let tail = (number as u32).to_be_bytes();
        keys.push(tail.to_vec());
        keys.push([b"a beginning of all that is longer than what is inline".as_slice(), &tail].concat());
        keys.push(format!("d{number}").into_bytes());
        if number % 8 == 0 {
            // Too long for LMDB, and the same up to where LMDB tells them apart by a hash.
            keys.push([vec![7; 478 + number % 40], tail.to_vec()].concat());
        }
        if number < 600 {
            keys.push(vec![0; number]);
        }
    }
    keys
}

fn pairs<'a>(entries: impl Iterator<Item = (&'a (i64, Vec<u8>), &'a Vec<u8>)>) -> Pairs {
    entries.map(|((_, key), value)| (key.clone(), value.clone())).collect()
}

fn of(model: &Entries, namespace: i64) -> Pairs {
    pairs(model.range((namespace, Vec::new())..(namespace + 1, Vec::new())))
}

/// Compares everything, read in each way.
fn compare(state: &KeyedState<Vec<u8>>, model: &Entries, keys: &[Vec<u8>], random: &mut Random) {
    for namespace in 0..NAMESPACES as i64 {
        let entries = state.entries(namespace).map(|entry| entry.expect("reads"));
        assert_eq!(entries.map(|(key, value)| (key.to_vec(), value)).collect::<Pairs>(), of(model, namespace));
        for _ in 0..200 {
            let key = &keys[random.below(keys.len())];
            let value = state.get(namespace, key).expect("reads").map(Cow::into_owned);
            assert_eq!(value.as_ref(), model.get(&(namespace, key.clone())));
        }
        // The empty key is behind none.
        let (mut after, mut all) = (Vec::new(), pairs(model.get_key_value(&(namespace, Vec::new())).into_iter()));
        loop {
            let limit = 1 + random.below(900);
            let (last, next) = state.next_entries(namespace, &after, limit).expect("reads");
            assert!(next.len() <= limit);
            all.extend(next.into_iter().map(|(key, value)| (key.to_vec(), value)));
            match last {
                Some(last) => after = last.to_vec(),
                None => break,
            }
        }
        assert_eq!(all, of(model, namespace));
    }
}

/// Changes up to `changes` entries of a namespace one by one.
fn change(
    state: &mut KeyedState<Vec<u8>>,
    (model, open): &mut Model<Vec<u8>>,
    keys: &[Vec<u8>],
    changes: usize,
    random: &mut Random,
) {
    let namespace = random.below(NAMESPACES as usize) as i64;
    let removes = random.below(10);
    // Neighbours in the order of keys, so that those that are there and those that are not alternate, or any.
    let (from, step) = (random.below(keys.len()), [1, 2, 7919][random.below(3)]);
    let chosen: Vec<&Vec<u8>> = (0..changes).map(|i| &keys[(from + i * step) % keys.len()]).collect();
    for chunk in chosen.chunks(AHEAD) {
        state.look_ahead(namespace, chunk.iter().map(|key| key.as_slice()));
        for key in chunk {
            let place = (namespace, (*key).clone());
            if random.below(10) < removes {
                match random.below(2) {
                    0 => {
                        state.remove(namespace, key);
                        model.remove(&place);
                    }
                    _ => assert_eq!(state.take(namespace, key).expect("reads"), model.remove(&place)),
                }
                continue;
            }
            open.insert(namespace);
            let length = match random.below(200) {
                0 => random.below(120_000),
                1..10 => random.below(6000),
                _ => random.below(40),
            };
            let value = vec![random.below(256) as u8; length];
            match random.below(3) {
                0 => *state.entry(namespace, key, Vec::new).expect("reads") = value.clone(),
                1 => {
                    let now = state.entry(namespace, key, || value.clone()).expect("reads");
                    assert_eq!(now, model.get(&place).unwrap_or(&value));
                    model.entry(place).or_insert(value);
                    continue;
                }
                _ => drop(state.put(namespace, key, value.clone())),
            }
            model.insert(place, value);
        }
    }
}

/// Runs `rounds` of changes, of commits that come about or do not, and of starts, over a store; compares all the time.
pub(crate) fn check(store: impl Store, seed: u64, rounds: usize) {
    let keys = keys();
    let mut random = Random(seed);
    let mut pair = Pair::new(store);
    for _ in 0..rounds {
        let Pair { state, model: (model, open), .. } = &mut pair;
        match random.below(16) {
            0..6 => {
                let changes = [10, 600, 5000][random.below(3)];
                change(&mut pair.state, &mut pair.model, &keys, changes, &mut random);
            }
            6 => {
                let namespace = random.below(NAMESPACES as usize) as i64;
                let all = of(model, namespace).len();
                // In part to the end.
                let part = random.below(2) * all + random.below(all + 1);
                let taken = state.take_namespace(namespace).map(|entry| entry.expect("reads"));
                let taken: Pairs = taken.map(|(key, value)| (key.to_vec(), value)).take(part).collect();
                assert_eq!(taken, of(model, namespace).into_iter().take(part).collect::<Pairs>());
                model.retain(|(of, _), _| *of != namespace);
                open.remove(&namespace);
            }
            7 => {
                let gone = random.below(NAMESPACES as usize + 1) as i64;
                let mut expected = BTreeMap::<Vec<u8>, Vec<u8>>::new();
                for (key, value) in (0..NAMESPACES as i64).rev().flat_map(|namespace| of(model, namespace)) {
                    expected.entry(key).or_default().extend(value);
                }
                let order: Vec<i64> = (0..NAMESPACES as i64).rev().collect();
                let merged =
                    state.merged_entries(&order, |namespace| namespace == gone, |all, later| all.extend(later));
                let merged = merged.map(|entry| entry.expect("reads")).map(|(key, value)| (key.to_vec(), value));
                assert_eq!(merged.collect::<Pairs>(), expected.into_iter().collect::<Pairs>());
                model.retain(|(of, _), _| *of != gone);
                open.remove(&gone);
            }
            8..10 if !pair.is_in_flight() => pair.freeze(),
            8..13 => pair.commit(),
            13 => pair.fail(),
            14 => drop(pair.state.release()),
            _ => pair.restart(),
        }
        let Pair { state, model: (model, open), .. } = &pair;
        assert_eq!(state.namespaces(), open);
        compare(state, model, &keys, &mut random);
    }
}
