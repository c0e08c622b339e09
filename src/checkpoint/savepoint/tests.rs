//! Savepoints in process: golden bytes, every flipped bit, round trips, a stop at every step.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::format::{self, BLOCK_BYTES, FormatError};
use super::*;
use crate::checkpoint::layout::{state_key, state_value};
use crate::checkpoint::lmdb::{self, Import};
use crate::checkpoint::{CheckpointMeta, CheckpointReader, CheckpointStore, OpenMode, OperatorMeta, SinkMeta};
use crate::event::{Epoch, LogTime, Lsn, Position};
use crate::state::{Checkpointed, KeyedState, NoStored};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn meta() -> CheckpointMeta {
    let operator = |id, name: &str| OperatorMeta {
        id,
        name: name.to_owned(),
        fingerprint: "f00d".to_owned(),
        value_type: "window_aggregate".to_owned(),
        namespaces: [-10_000, 0, 1].into(),
    };
    CheckpointMeta {
        id: 7,
        epoch: Epoch([9; 16]),
        pipeline: "plant-a".to_owned(),
        cut: Lsn(123_456),
        cut_time: LogTime(1_775_091_490_000_000),
        wall_time_us: 1_775_091_490_000_123,
        sources: [("plant".to_owned(), Position::File { inode: 42, head_crc: 1, head_len: 1024, offset: 99_999 })]
            .into(),
        engine: vec![1, 2, 3],
        operators: vec![operator(1, "avg/window/0"), operator(3, "top/rank/0"), operator(4, "empty/over/0")],
        sinks: vec![SinkMeta { name: "archive".to_owned(), rows: 1000, progress: vec![4, 5] }],
        config: "[pipeline]\nname = \"plant-a\"\n".repeat(5),
        semantics_version: 1,
        program_version: "0.1.0".to_owned(),
        ..CheckpointMeta::default()
    }
}

/// Entries as stored, in order.
fn stored(entries: impl IntoIterator<Item = (u32, i64, Vec<u8>, Vec<u8>)>) -> Entries {
    let encoded = entries.into_iter().map(|(operator, namespace, key, value)| {
        let (mut lmdb_key, mut stored) = (Vec::new(), Vec::new());
        state_key(&mut lmdb_key, operator, namespace, &key);
        state_value(&mut stored, &lmdb_key, &key, &value);
        (lmdb_key, stored)
    });
    let mut all: Entries = encoded.collect();
    all.sort();
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

fn some_entries() -> Entries {
    let long: Vec<u8> = (0..600u32).map(|i| (i % 251) as u8).collect();
    stored([
        (1, 0, b"device-1".to_vec(), vec![1, 2, 3]),
        (1, -10_000, b"device-2".to_vec(), vec![]),
        (3, 1, long, vec![7; 40]),
        (3, 1, b"k".to_vec(), vec![8]),
    ])
}

fn written(meta: &CheckpointMeta, entries: &Entries) -> Vec<u8> {
    let mut writer = SavepointWriter::new(Vec::new(), Path::new("s"), meta).expect("writes");
    entries.iter().for_each(|(key, stored)| writer.add(key, stored).expect("writes"));
    let (bytes, count) = writer.finish().expect("writes");
    assert_eq!(bytes.len() as u64, count);
    bytes
}

fn read(bytes: &[u8]) -> Result<(CheckpointMeta, Entries), SavepointError> {
    let mut reader = SavepointReader::new(Cursor::new(bytes), bytes.len() as u64, Path::new("s"))?;
    let mut entries = Vec::new();
    while let Some((key, stored)) = reader.next()? {
        entries.push((key.to_vec(), stored.to_vec()));
    }
    assert!(reader.next()?.is_none(), "the end stays the end");
    Ok((reader.meta().clone(), entries))
}

#[test]
fn the_format_is_as_committed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/savepoint-v1/small.savepoint");
    let bytes = written(&meta(), &some_entries());
    if std::env::var_os("FOREBAY_BLESS").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().expect("has a parent")).expect("creates");
        std::fs::write(&path, &bytes).expect("writes");
    }
    let committed = std::fs::read(&path).expect("is committed");
    assert_eq!(read(&committed).expect("reads"), (meta(), some_entries()));
    assert!(bytes == committed, "the format (or what lz4_flex makes) changed; bytes now: {bytes:02x?}");
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let mut bytes = written(&meta(), &some_entries());
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let error = read(&bytes).expect_err("a bit is flipped");
        assert_eq!(error.exit_code(), 65, "bit {bit}: {error}");
        assert!(!matches!(error, SavepointError::Version { .. }), "a flip is not another version: bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..bytes.len() {
        assert_eq!(read(&bytes[..length]).expect_err("it is cut").exit_code(), 65, "cut at {length}");
    }
    bytes.push(0);
    assert!(read(&bytes).expect_err("a byte too many").to_string().contains("behind its footer"));
}

/// Where the blocks of a savepoint begin, and its end.
fn block_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![format::HEADER_BYTES];
    while let Some(at) = starts.last().copied().filter(|at| *at < bytes.len()) {
        let stored = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes"));
        starts.push(at + format::BLOCK_HEAD_BYTES + stored as usize);
    }
    starts
}

#[test]
fn blocks_that_are_missing_repeated_or_exchanged_are_noticed() {
    let many = stored((0..3000u32).map(|i| (1, 0, i.to_be_bytes().to_vec(), noise(i, 300))));
    let bytes = written(&meta(), &many);
    assert_eq!(read(&bytes).expect("reads").1, many);
    let starts = block_starts(&bytes);
    assert!(starts.len() > 5, "there are blocks enough: {starts:?}");
    let block = |i: usize| bytes[starts[i]..starts[i + 1]].to_vec();
    let blocks: Vec<Vec<u8>> = (0..starts.len() - 1).map(block).collect();
    let joined = |blocks: &[Vec<u8>]| [&bytes[..starts[0]], &blocks.concat()].concat();
    assert_eq!(joined(&blocks), bytes);
    for i in 0..blocks.len() {
        let mut missing = blocks.clone();
        missing.remove(i);
        assert_eq!(read(&joined(&missing)).expect_err("a block is missing").exit_code(), 65, "block {i}");
        let mut twice = blocks.clone();
        twice.insert(i, blocks[i].clone());
        assert_eq!(read(&joined(&twice)).expect_err("a block is there twice").exit_code(), 65, "block {i}");
        let mut exchanged = blocks.clone();
        exchanged.swap(i, (i + 1) % blocks.len());
        assert_eq!(read(&joined(&exchanged)).expect_err("two are exchanged").exit_code(), 65, "block {i}");
    }
    // A block of another savepoint with the same description.
    let mut other = many.clone();
    other.remove(0);
    let other = written(&meta(), &other);
    let at = block_starts(&other);
    let mixed = [&bytes[..starts[3]], &other[at[3]..]].concat();
    assert_eq!(read(&mixed).expect_err("it is of two").exit_code(), 65);
}

#[test]
fn another_version_is_refused_by_name() {
    let mut bytes = written(&meta(), &some_entries());
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let error = read(&bytes).expect_err("another version");
    assert!(matches!(error, SavepointError::Version { found: 2, .. }));
    assert_eq!(error.exit_code(), 65);
    assert!(error.to_string().contains("format version 2, this program reads version 1"), "{error}");
}

/// Bytes that do not compress.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut x = u64::from(seed) + 1;
    std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    })
    .take(length)
    .collect()
}

#[test]
fn what_contradicts_itself_is_refused_though_its_checksums_are_right() {
    let refused = |meta: &CheckpointMeta, entries: &Entries, what: &str| {
        let error = read(&written(meta, entries)).expect_err(what);
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains(what), "{error}");
    };
    let mut unordered = some_entries();
    unordered.swap(0, 1);
    refused(&meta(), &unordered, "out of order");
    refused(&meta(), &stored([(2, 0, b"k".to_vec(), vec![])]), "no operator's open namespace");
    refused(&meta(), &stored([(1, 5, b"k".to_vec(), vec![])]), "no operator's open namespace");
    let mut damaged = some_entries();
    damaged.last_mut().expect("entries").1[4] ^= 1;
    refused(&meta(), &damaged, "checksum of a value");
    // A footer that counts other entries, correctly chained.
    let bytes = written(&meta(), &some_entries());
    let starts = block_starts(&bytes);
    let footer = starts[starts.len() - 2];
    let previous = u32::from_le_bytes(bytes[starts[starts.len() - 3] + 12..][..4].try_into().expect("four bytes"));
    let mut forged = bytes[..footer].to_vec();
    format::encode_block(&mut forged, format::Kind::Footer, &format::Footer::default().encode(), previous)
        .expect("fits");
    assert!(read(&forged).expect_err("wrong counts").to_string().contains("not those that its footer counts"));
    let mut out = Vec::new();
    format::push_entry(&mut out, &vec![0; 70_000], &[]).expect_err("a key is too long");
    assert_eq!(format::entry_at(&[1, 0, 255, 255, 255, 255, 0], 0), Err(FormatError::Entries));
}

#[test]
fn a_large_entry_has_a_block_of_its_own_and_blocks_are_bounded() {
    let mut entries = stored((0..200u32).map(|i| (1, 0, i.to_be_bytes().to_vec(), noise(i, 5000))));
    entries.extend(stored([(3, 0, b"big".to_vec(), noise(9, 4 * BLOCK_BYTES))]));
    let bytes = written(&meta(), &entries);
    assert_eq!(read(&bytes).expect("reads").1, entries);
    let lengths: Vec<usize> = block_starts(&bytes).windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(lengths.iter().filter(|length| **length > BLOCK_BYTES + 6000).count(), 1, "{lengths:?}");
}

#[test]
fn compression_is_used_where_it_helps() {
    let same = stored((0..2000u32).map(|i| (1, 0, i.to_be_bytes().to_vec(), vec![5; 200])));
    assert!(written(&meta(), &same).len() < 2000 * 200 / 4);
    let random = stored((0..2000u32).map(|i| (1, 0, i.to_be_bytes().to_vec(), noise(i, 200))));
    let raw: usize = random.iter().map(|(key, stored)| key.len() + stored.len() + 6).sum();
    assert!(written(&meta(), &random).len() < raw + 2000);
}

fn entry() -> impl Strategy<Value = (u32, i64, Vec<u8>, Vec<u8>)> {
    let key = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        prop::collection::vec(0..3u8, 480..520),
        prop::collection::vec(any::<u8>(), 495..600)
    ];
    let value = prop_oneof![prop::collection::vec(any::<u8>(), 0..50), prop::collection::vec(0..2u8, 0..5000)];
    (prop::sample::select(vec![1u32, 3]), prop::sample::select(vec![-10_000i64, 0, 1]), key, value)
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in prop::collection::vec(entry(), 0..60)) {
        let entries = stored(entries);
        let (read_meta, read_entries) = read(&written(&meta(), &entries)).expect("reads");
        prop_assert_eq!(read_meta, meta());
        prop_assert_eq!(read_entries, entries);
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error(
        tail in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        change in any::<u8>(),
        mend in any::<bool>(),
    ) {
        let _ = read(&tail);
        let (header, crc) = format::encode_header();
        let _ = read(&[header.clone(), tail.clone()].concat());
        let mut chained = header;
        format::encode_block(&mut chained, format::Kind::Description, &tail, crc).expect("fits");
        let _ = read(&chained);
        let mut bytes = written(&meta(), &some_entries());
        let at = at.index(bytes.len());
        bytes[at] = bytes[at].wrapping_add(change);
        if mend {
            mend_blocks(&mut bytes);
        }
        prop_assert!(change == 0 || mend || read(&bytes).is_err());
        let _ = read(&bytes);
    }
}

/// Makes all checksums right.
fn mend_blocks(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let (mut at, mut previous) = (16, crc);
    while let Some(head) = bytes.get(at..at + 16) {
        let stored = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
        let Some(body) = bytes.get(at + 16..(at + 16).saturating_add(stored)) else { return };
        previous = [head.get(..12).unwrap_or_default(), body]
            .iter()
            .fold(crc32c::crc32c(&previous.to_le_bytes()), |crc, part| crc32c::crc32c_append(crc, part));
        bytes[at + 12..at + 16].copy_from_slice(&previous.to_le_bytes());
        at += 16 + stored;
    }
}

/// A checkpoint with `count` entries.
fn environment(count: u32) -> (TempDir, PathBuf) {
    let temp = tempfile::tempdir().expect("creates");
    let dir = temp.path().join("checkpoint");
    let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
    let mut layers = Vec::new();
    for operator in &meta().operators {
        let mut state = KeyedState::<Vec<u8>>::new(operator.id, Arc::new(NoStored), []);
        for i in 0..if operator.id == 4 { 0 } else { count } {
            let key = if i % 50 == 0 { noise(i, 700) } else { i.to_be_bytes().to_vec() };
            *state.entry(i64::from(i % 2), &key, Vec::new).expect("reads") = noise(i, 40);
        }
        layers.push((operator.id, state.freeze().expect("freezes")));
    }
    store.commit(&meta(), &layers).expect("commits");
    (temp, dir)
}

fn all_entries(dir: &Path) -> (CheckpointMeta, Entries) {
    let pinned = CheckpointReader::open(dir).and_then(|reader| reader.pin()).expect("opens");
    let mut entries = Vec::new();
    let visited: Result<_, SavepointError> = pinned.walk(&mut |key, stored| {
        entries.push((key.to_vec(), stored.to_vec()));
        Ok(())
    });
    visited.expect("is right");
    (pinned.meta().clone(), entries)
}

#[test]
fn what_is_exported_and_imported_is_the_same_checkpoint() {
    let (temp, dir) = environment(40_000);
    let file = temp.path().join("a.savepoint");
    let mut seen = Vec::new();
    let exported = export(&dir, &file, &mut |done, total| seen.push((done, total))).expect("exports");
    assert!(seen.len() > 5 && seen.is_sorted() && seen.iter().all(|(done, total)| done <= total), "{seen:?}");
    assert_eq!(exported.entries, 80_000);
    assert_eq!(exported.file_bytes, std::fs::metadata(&file).expect("is there").len());
    assert_eq!(std::fs::read_dir(temp.path()).expect("lists").count(), 2, "nothing else is left");

    let copy = temp.path().join("copy");
    let mut import = Import::create(&copy).expect("creates");
    let mut reader = SavepointReader::open(&file).expect("opens");
    let mut writes = 0;
    while let Some((key, stored)) = reader.next().expect("is right") {
        writes += u32::from(import.put(key, stored).expect("puts"));
    }
    assert!(writes > 0, "in several transactions");
    import.finish(&reader.meta().clone()).expect("finishes");
    assert_eq!(all_entries(&copy), all_entries(&dir));
    let verified = lmdb::verify(&copy).expect("is right");
    assert_eq!(verified.entries, 80_000);
}

#[test]
fn an_export_of_damaged_state_leaves_nothing_behind() {
    let (temp, dir) = environment(300);
    let data = dir.join("data.mdb");
    let mut bytes = std::fs::read(&data).expect("reads");
    let value = noise(123, 40);
    let at = bytes.windows(40).position(|window| window == value).expect("the value is there");
    bytes[at + 3] ^= 16;
    std::fs::write(&data, bytes).expect("writes");
    let file = temp.path().join("a.savepoint");
    let error = export(&dir, &file, &mut |_, _| {}).expect_err("is damaged");
    assert_eq!(error.exit_code(), 65, "{error}");
    assert!(error.to_string().contains("forebay checkpoint import FILE CONFIG"), "{error}");
    assert_eq!(std::fs::read_dir(temp.path()).expect("lists").count(), 1);
}

#[test]
fn an_export_refuses_a_name_that_is_taken_and_clears_what_a_killed_one_left() {
    let (temp, dir) = environment(10);
    let file = temp.path().join("a.savepoint");
    std::fs::write(temp.path().join(".a.savepoint.export"), vec![1; 100_000]).expect("writes");
    export(&dir, &file, &mut |_, _| {}).expect("exports");
    let bytes = std::fs::read(&file).expect("reads");
    assert_eq!(read(&bytes).expect("reads").1.len(), 20);
    let error = export(&dir, &file, &mut |_, _| {}).expect_err("is taken");
    assert!(matches!(error, SavepointError::Exists { .. }));
    assert_eq!(std::fs::read(&file).expect("reads"), bytes);
    // Another one is at it.
    let other = temp.path().join("b.savepoint");
    let held = std::fs::File::create(temp.path().join(".b.savepoint.export")).expect("creates");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("locks");
    let error = export(&dir, &other, &mut |_, _| {}).expect_err("is busy");
    assert_eq!(error.exit_code(), 75, "{error}");
    assert!(temp.path().join(".b.savepoint.export").exists(), "the other's file stays");
}

#[test]
fn savepoints_are_told_from_configurations() {
    let temp = tempfile::tempdir().expect("creates");
    let is = |bytes: &[u8]| {
        let path = temp.path().join("f");
        std::fs::write(&path, bytes).expect("writes");
        is_savepoint(&path).expect("reads")
    };
    let mut bytes = written(&meta(), &some_entries());
    assert!(is(&bytes) && is(&bytes[..3]));
    for bit in 0..128 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(is(&bytes), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(!is(b"") && !is(b"[pipeline]\nname = \"p\"\n"));
}

/// Runs a test of this binary as a child that ends itself at its `step`-th step; false: it was done before.
fn stops_at(test: &str, dir: &Path, step: u64) -> bool {
    let name = format!("checkpoint::savepoint::tests::{test}");
    let output = Command::new(std::env::current_exe().expect("is there"))
        .args([&name, "--exact", "--nocapture", "--ignored"])
        .env("SAVEPOINT_TEST_DIR", dir)
        .env("SAVEPOINT_TEST_STEP", step.to_string())
        .output()
        .expect("runs");
    use std::os::unix::process::ExitStatusExt as _;
    match output.status.signal() {
        Some(9) => true,
        _ if output.status.success() => false,
        _ => panic!("{}", String::from_utf8_lossy(&output.stdout)),
    }
}

fn child_dir_and_step() -> (PathBuf, u64) {
    let variable = |name| std::env::var(name).expect("is set");
    (variable("SAVEPOINT_TEST_DIR").into(), variable("SAVEPOINT_TEST_STEP").parse().expect("a number"))
}

fn kill_at(step: u64) -> impl FnMut(u64, u64) {
    let mut steps = 0;
    move |_, _| {
        steps += 1;
        if steps == step {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

#[test]
#[ignore = "run by another test, as a child"]
fn child_exports() {
    let (dir, step) = child_dir_and_step();
    export(&dir.join("checkpoint"), &dir.join("a.savepoint"), &mut kill_at(step)).expect("exports");
}

#[test]
fn an_export_killed_at_any_step_leaves_a_whole_file_or_none() {
    let (temp, dir) = environment(10_000);
    let file = temp.path().join("a.savepoint");
    let whole = all_entries(&dir).1;
    let (mut step, mut absent, mut present) = (1, 0, 0);
    while stops_at("child_exports", temp.path(), step) {
        if file.exists() {
            present += 1;
            let bytes = std::fs::read(&file).expect("reads");
            assert!(read(&bytes).expect("is whole").1 == whole, "step {step}");
            std::fs::remove_file(&file).expect("removes");
        } else {
            absent += 1;
        }
        step += 1;
    }
    assert!(absent > 4 && present == 1, "{absent} {present}");
    assert!(read(&std::fs::read(&file).expect("reads")).expect("is whole").1 == whole);
    let names: BTreeSet<_> =
        std::fs::read_dir(temp.path()).expect("lists").map(|e| e.expect("is").file_name()).collect();
    assert_eq!(names, ["a.savepoint".into(), "checkpoint".into()].into(), "the last one has cleared up");
}

#[test]
#[ignore = "run by another test, as a child"]
fn child_imports() {
    let (dir, step) = child_dir_and_step();
    let mut kill = kill_at(step);
    crate::engine::import::import(&dir.join("a.savepoint"), &dir.join("state"), None, false, &mut kill)
        .expect("imports");
}

#[test]
fn an_import_killed_at_any_step_leaves_a_whole_state_or_none() {
    let (temp, dir) = environment(42_000);
    let state = temp.path().join("state");
    export(&dir, &temp.path().join("a.savepoint"), &mut |_, _| {}).expect("exports");
    let whole = all_entries(&dir).1;
    let check = || {
        let (found, entries) = all_entries(&state.join("checkpoint"));
        assert!(entries == whole && found.epoch != meta().epoch && found.cut == meta().cut);
        let disk: Arc<dyn crate::disk::Disk> = Arc::new(crate::disk::RealDisk);
        let identity = crate::replay_log::identity(disk.as_ref(), &crate::replay_log::log_dir(&state));
        assert_eq!(identity.expect("reads").expect("there is a log").epoch, found.epoch);
        std::fs::remove_dir_all(&state).expect("removes");
    };
    let (mut step, mut absent, mut present) = (1, 0, 0);
    while stops_at("child_imports", temp.path(), step) {
        if state.exists() {
            present += 1;
            check();
        } else {
            absent += 1;
        }
        step += 1;
    }
    assert!(absent > 3 && present == 1, "{absent} {present}");
    check();
    assert!(!temp.path().join(".state.import").exists(), "the last one has cleared up");
}
