//! LMDB alone: a process commits checkpoints and says after each that it is durable.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forebay::checkpoint::{CheckpointMeta, CheckpointReader, CheckpointStore, OpenMode, OperatorMeta, lmdb};
use forebay::event::Lsn;
use forebay::state::{Checkpointed, KeyedState, StateReader};

use super::medium::{Device, Medium};
use super::recorder::{Op, mark};
use super::{cuts, recorder, scratch};
use crate::support::{Place, Random, rounds};

const OPERATOR: u32 = 7;

fn meta(id: u64) -> CheckpointMeta {
    let operator = OperatorMeta { id: OPERATOR, name: "q/window/0".to_owned(), ..OperatorMeta::default() };
    CheckpointMeta { id, cut: Lsn(id * 100), operators: vec![operator], ..CheckpointMeta::default() }
}

/// A figure that stands for every entry of the latest checkpoint.
fn digest(reader: &CheckpointReader) -> u32 {
    let (_, entries) = reader.entries(OPERATOR, None, None, usize::MAX).expect("reads");
    entries.iter().fold(0, |crc, entry| crc32c::crc32c_append(crc32c::crc32c_append(crc, &entry.place), &entry.value))
}

/// Commits changes that `seed` chooses: entries that come, change and go, some too large for a page, so that pages are
/// split, merged, freed and used again. `committed` is told the id of each.
fn restless(store: &CheckpointStore, seed: u64, commits: u64, mut committed: impl FnMut(u64)) {
    let snapshot = Arc::new(store.snapshot().expect("begins"));
    let before = snapshot.meta().expect("reads").unwrap_or_default();
    let namespaces = before.operators.first().map(|operator| operator.namespaces.clone()).unwrap_or_default();
    let reader = Arc::clone(&snapshot) as Arc<dyn StateReader>;
    let mut state = KeyedState::<Vec<u8>>::new(OPERATOR, reader, namespaces);
    let mut random = Random(seed);
    for id in before.id + 1..=before.id + commits {
        for _ in 0..random.below(60) {
            let (namespace, key) = (random.below(5) as i64, random.below(700).to_be_bytes());
            match random.below(10) {
                0 if random.below(8) == 0 => state.remove_namespace(namespace),
                0..3 => state.remove(namespace, &key),
                kind => {
                    let length = if kind == 9 { random.below(15_000) } else { random.below(200) };
                    *state.entry(namespace, &key, Vec::new).expect("reads") = vec![kind as u8; length as usize];
                }
            }
        }
        store.commit(&meta(id), &[(OPERATOR, state.freeze().expect("freezes"))]).expect("commits");
        committed(id);
        snapshot.renew().expect("renews");
        state.committed();
    }
}

const CHILD_DIR: &str = "FOREBAY_TEST_POWER_DIR";

#[test]
#[ignore = "the process that writes checkpoints for `power_cuts_under_checkpoints`"]
fn child_commits() {
    let Some(root) = std::env::var_os(CHILD_DIR) else { return };
    let root = Path::new(&root);
    let store = CheckpointStore::open(&root.join("checkpoint"), OpenMode::Create).expect("creates");
    mark(root, "0.0");
    restless(&store, 5, 60, |id| mark(root, &format!("{id}.{}", digest(&store.reader()))));
}

/// A record of a process of this test binary, which runs the ignored test `child_commits`.
fn record_commits() -> Option<Vec<Op>> {
    let place = Place::new();
    let recorder = recorder(place.path("disk"), None)?;
    let child = Command::new(std::env::current_exe().expect("is known"))
        .args(["--ignored", "--exact", "power::checkpoints::child_commits"])
        .env(CHILD_DIR, &recorder.root)
        .output()
        .expect("starts");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    Some(recorder.finish())
}

/// What a mark of `child_commits` says: a checkpoint's id and its digest.
fn read_mark(text: &str) -> (u64, u32) {
    let (id, digest) = text.split_once('.').expect("two parts");
    (id.parse().expect("an id"), digest.parse().expect("a digest"))
}

/// Whether an image holds the last checkpoint whose commit had returned, or the one under way, and can be written on.
fn check_checkpoint(dir: &Path, marks: &[&str], digests: &HashMap<u64, u32>) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let Some(committed) = marks.last().map(|text| read_mark(text).0) else {
        // Not even its creation had returned: it is there whole, or it can be made.
        return CheckpointStore::open(dir, OpenMode::Create).map(|_| ()).map_err(|error| say(&error));
    };
    lmdb::verify(dir).map_err(|error| say(&error))?;
    let store = CheckpointStore::open(dir, OpenMode::Existing).map_err(|error| say(&error))?;
    let id = store.reader().latest().map_err(|error| say(&error))?.map_or(0, |meta| meta.id);
    if id != committed && id != committed + 1 {
        return Err(format!("checkpoint {id} is there, {committed} had been committed"));
    }
    if digests.get(&id) != Some(&digest(&store.reader())) {
        return Err(format!("checkpoint {id} holds other entries than when it was committed"));
    }
    // Pages that are free now are used.
    restless(&store, id, 3, |_| {});
    drop(store);
    lmdb::verify(dir).map(|_| ()).map_err(|error| format!("after three more commits: {error}"))
}

/// Builds and checks `count` images of a device; gives what was wrong.
fn cut_commits(ops: &[Op], device: Device, count: u64, seed: u64) -> Vec<String> {
    let marks = ops.iter().filter_map(|op| if let Op::Mark(text) = op { Some(read_mark(text)) } else { None });
    let digests: HashMap<u64, u32> = marks.collect();
    let mut random = Random(seed);
    let mut medium = Medium::new(ops, device);
    let scratch = scratch();
    let mut wrong = Vec::new();
    for cut in cuts(ops, count, &mut random) {
        medium.advance(cut);
        let image = medium.cut(&mut random);
        let dir = scratch.path().join("image");
        image.write(&dir);
        if let Err(what) = check_checkpoint(&dir.join("checkpoint"), &medium.marks, &digests) {
            wrong.push(format!("{}: {what}", image.about));
        }
        std::fs::remove_dir_all(&dir).expect("removes");
    }
    wrong
}

#[test]
fn power_cuts_under_checkpoints() {
    let Some(ops) = record_commits() else { return };
    let count = rounds("FOREBAY_CUTS", 400);
    let wrong = cut_commits(&ops, Device::Honest, count, 1);
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} cuts in {} operations", ops.len());
    // A check that cannot fail is no check.
    for device in [Device::Lies, Device::LosesMetaPages, Device::ReordersPages] {
        let wrong = cut_commits(&ops, device, 100, 2);
        assert!(!wrong.is_empty(), "{device:?} was not noticed");
        println!("{device:?}: {} of 100 noticed, first {}", wrong.len(), wrong[0]);
    }
}
