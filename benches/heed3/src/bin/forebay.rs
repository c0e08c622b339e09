//! Forebay's own way: LMDB 0.9 whose pages bear nothing, a CRC32C on every value, a set hash on every key group, and a
//! check of the pages. Only the modules that are measured are compiled, straight from `src/`.

#![allow(dead_code, unused_imports, reason = "modules of the product, of which a part is used")]

#[path = "../../../../src/checkpoint/mod.rs"]
mod checkpoint;
#[path = "../../../../src/event.rs"]
mod event;
#[path = "../../../../src/state/mod.rs"]
mod state;

use std::path::Path;
use std::sync::Arc;

use checkpoint::{CheckpointMeta, CheckpointStore, OpenMode, OperatorMeta, lmdb};
use heed3_bench::{Contender, Cost, Res, Subject, cost, run, value};
use state::{Checkpointed, KeyedState, StateReader};

const OPERATOR: u32 = 7;

struct Forebay {
    store: CheckpointStore,
    next: u64,
}

impl Forebay {
    fn open(dir: &Path) -> Res<Forebay> {
        let store = CheckpointStore::open(dir, OpenMode::Create)?;
        let next = store.reader().latest()?.map_or(1, |meta| meta.id + 1);
        Ok(Forebay { store, next })
    }

    fn state(&self) -> Res<KeyedState<Vec<u8>>> {
        let snapshot = Arc::new(self.store.snapshot()?);
        let namespaces = if self.next > 1 { vec![0] } else { vec![] };
        Ok(KeyedState::new(OPERATOR, snapshot as Arc<dyn StateReader>, namespaces))
    }
}

impl Subject for Forebay {
    fn commit(&mut self, round: u64, keys: &[u64]) -> Res<Cost> {
        let mut state = self.state()?;
        for key in keys {
            *state.entry(0, &key.to_be_bytes(), Vec::new)? = value(round, *key);
        }
        let operators = vec![OperatorMeta { id: OPERATOR, name: "q/window/0".to_owned(), ..OperatorMeta::default() }];
        let meta = CheckpointMeta { id: self.next, operators, ..CheckpointMeta::default() };
        let layers = [(OPERATOR, state.freeze()?)];
        self.next += 1;
        cost(|| Ok(self.store.commit(&meta, &layers).map(|_| ())?))
    }

    fn read(&mut self, keys: &[u64]) -> Res<()> {
        let snapshot = self.store.snapshot()?;
        for key in keys {
            snapshot.get(OPERATOR, 0, &key.to_be_bytes())?.ok_or("a key is not there")?;
        }
        Ok(())
    }
}

fn check(dir: &Path) -> Res<u32> {
    lmdb::verify(dir)?;
    let store = CheckpointStore::open(dir, OpenMode::Existing)?;
    let (_, entries) = store.reader().entries(OPERATOR, None, None, usize::MAX)?;
    let add =
        |crc, entry: &lmdb::StoredEntry| crc32c::crc32c_append(crc32c::crc32c_append(crc, &entry.key), &entry.value);
    Ok(entries.iter().fold(0, add))
}

fn main() -> Res<()> {
    let open = |dir: &Path| -> Res<Box<dyn Subject>> { Ok(Box::new(Forebay::open(dir)?)) };
    run(&[Contender { name: "forebay", open, check }])
}
