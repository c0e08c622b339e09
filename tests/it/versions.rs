//! Changes of configuration and version: a query that is reset, a log of other semantics, files of another format version,
//! and what version 1 has written, committed in `tests/golden/state-v1`.
//!
//! A later format version gets a directory of its own and this one stays. Written by
//! `cargo test --test it write_golden_state -- --ignored`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay::checkpoint::layout::{META_KEY, encode_record};
use forebay::checkpoint::{CheckpointMeta, CheckpointReader};
use forebay::engine::open::SEMANTICS_VERSION;

use crate::savepoints::{connect, lines_of, socket_config, wait_for_rows};
use crate::support::{Place, Running, copy_dir, outcome, until};

const PATIENCE: Duration = Duration::from_secs(60);

fn refused(place: &Place, arguments: &[&str], expected: i32, parts: &[&str]) {
    let (code, message) = outcome(&place.forebay(arguments));
    assert_eq!(code, expected, "{arguments:?}: {message}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {part} is not in: {message}");
    }
}

fn row(second: u32) -> String {
    format!(
        "{{\"ts\":\"2026-04-02T00:{:02}:{:02}.000Z\",\"device\":\"a\",\"temp\":{second}}}\n",
        second / 60,
        second % 60
    )
}

fn send(place: &Place, seconds: impl IntoIterator<Item = u32>) {
    let rows: String = seconds.into_iter().map(row).collect();
    let before = lines_of(place, "rows");
    connect(place).write_all(rows.as_bytes()).expect("sends");
    wait_for_rows(place, "rows", before + rows.lines().count());
}

fn start_with(place: &Place, arguments: &[&str]) -> Running {
    let errors = std::fs::OpenOptions::new().create(true).append(true).open(place.path("stderr.txt")).unwrap();
    let child = place.command(arguments).stdout(std::process::Stdio::null()).stderr(errors).spawn();
    Running { child: child.expect("forebay starts") }
}

/// Without checkpoints in between, so that a killed pipeline has a tail.
fn config() -> String {
    socket_config().replace("\"30ms\"", "\"1h\"")
        + r#"
[query.others]
sql = """
SELECT window_start, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '40' SECOND))
GROUP BY window_start, window_end
"""
[sink.others]
type = "file"
from = "others"
path = "out/others.ndjson"
[sink.late]
type = "file"
from = "tens.late"
path = "out/late.ndjson"
"#
}

#[test]
fn a_reset_drops_the_state_of_the_named_query_alone() {
    let place = Place::new();
    let old = config();
    place.write("f.toml", &old);
    let mut running = place.start("f.toml");
    send(&place, [1, 2, 25, 26]);
    running.kill();
    let tens = place.text("out/tens.ndjson");
    assert!(tens.lines().count() == 1 && tens.contains("\"n\":2"), "{tens}");

    place.write("f.toml", &old.replace("'10' SECOND", "'20' SECOND"));
    let command = "`forebay run f.toml --reset query.tens`";
    refused(&place, &["run", "f.toml"], 78, &["`tens`", "tens/window_aggregate/0", command]);
    let data = std::fs::read(place.path("state/checkpoint/data.mdb")).expect("reads");
    refused(&place, &["run", "f.toml", "--reset", "query.ten"], 64, &["query.ten", "did you mean `query.tens`?"]);
    refused(&place, &["run", "f.toml", "--reset", "tens"], 64, &["did you mean `query.tens`?"]);
    // Another query's reset does not help this one.
    refused(&place, &["run", "f.toml", "--reset", "query.minutes"], 78, &[command]);
    assert!(std::fs::read(place.path("state/checkpoint/data.mdb")).expect("reads") == data, "nothing was touched");

    let running = start_with(&place, &["run", "f.toml", "--reset", "query.tens"]);
    // 5 s was late before the reset and stays late.
    send(&place, [5, 27, 28, 45]);
    until(PATIENCE, "a window fires", || (lines_of(&place, "tens") == 2).then_some(()));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    let second = place.text("out/tens.ndjson").strip_prefix(&tens).expect("what was there stays").to_owned();
    assert!(second.contains("T00:00:20.000") && second.contains("\"n\":2"), "25 and 26 are dropped: {second}");
    assert_eq!(lines_of(&place, "late"), 1, "{}", place.text("out/late.ndjson"));
    let others = place.text("out/others.ndjson");
    assert!(others.contains("\"n\":7"), "the other query has all rows: {others}");

    // Once is enough; and what is there of the old query's state is gone.
    let running = place.start("f.toml");
    send(&place, [46, 130]);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert!(place.text("out/tens.ndjson").contains("T00:00:40.000"), "{}", place.text("out/tens.ndjson"));
    let minutes = place.text("out/minutes.ndjson");
    assert!(minutes.contains("\"n\":6"), "the query behind it has kept its state: 2 + 2 + 2: {minutes}");
    assert_eq!(outcome(&place.forebay(&["checkpoint", "verify", "state"])).0, 0);
}

/// Changes bytes in a state's LMDB file, which has no checksums of its own.
fn patch(place: &Place, old: &[u8], new: &[u8]) {
    let path = place.path("state/checkpoint/data.mdb");
    let mut data = std::fs::read(&path).expect("reads");
    let at: Vec<usize> = (0..data.len() - old.len()).filter(|at| data[*at..].starts_with(old)).collect();
    assert!(!at.is_empty() && old.len() == new.len(), "the record stands in the file");
    at.into_iter().for_each(|at| data[at..at + new.len()].copy_from_slice(new));
    std::fs::write(path, data).expect("writes");
}

fn meta_of(place: &Place) -> CheckpointMeta {
    let reader = CheckpointReader::open(&place.path("state/checkpoint")).expect("opens");
    reader.latest().expect("reads").expect("a checkpoint")
}

#[test]
fn a_tail_of_other_semantics_needs_the_version_that_logged_it() {
    let place = Place::new();
    place.write("f.toml", &config());
    let make_other = || {
        let meta = meta_of(&place);
        assert_eq!(meta.program_version, env!("CARGO_PKG_VERSION"));
        let version = "9".repeat(meta.program_version.len());
        let other =
            CheckpointMeta { semantics_version: SEMANTICS_VERSION + 1, program_version: version, ..meta.clone() };
        let record = |meta| encode_record(META_KEY, meta).expect("encodes");
        patch(&place, &record(&meta), &record(&other));
        other
    };
    let mut running = place.start("f.toml");
    send(&place, [1, 2]);
    running.kill();
    copy_dir(&place.path("state"), &place.path("kept"));
    let other = make_other();
    let message = format!("run version {} once", other.program_version);
    refused(&place, &["run", "f.toml"], 78, &[&message]);
    assert_eq!(meta_of(&place), other, "nothing was changed");

    // That version has processed it: no tail is left, and this one goes on.
    std::fs::remove_dir_all(place.path("state")).expect("removes");
    std::fs::rename(place.path("kept"), place.path("state")).expect("renames");
    assert_eq!(place.start_and_stop(), 0, "{}", place.text("stderr.txt"));
    make_other();
    let running = place.start("f.toml");
    send(&place, [3, 30]);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert!(place.text("out/tens.ndjson").contains("\"n\":3"), "{}", place.text("out/tens.ndjson"));
    assert_eq!(meta_of(&place).semantics_version, SEMANTICS_VERSION);
}

#[test]
fn sessions_in_an_older_form_are_refused_until_they_are_reset() {
    let place = Place::new();
    let sessions = r#"
[query.visits]
sql = """
SELECT window_start, device, COUNT(*) AS n
FROM SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '20' SECOND)
GROUP BY window_start, window_end, device
"""
[sink.visits]
type = "file"
from = "visits"
path = "out/visits.ndjson"
"#;
    place.write("f.toml", &(config() + sessions));
    let make_older = || {
        let meta = meta_of(&place);
        let mut older = meta.clone();
        let operator = older.operators.iter_mut().find(|operator| operator.name == "visits/session_aggregate/0");
        let value_type = &mut operator.expect("the operator").value_type;
        assert_eq!(value_type, "session/2");
        *value_type = "session/1".to_owned();
        let record = |meta| encode_record(META_KEY, meta).expect("encodes");
        patch(&place, &record(&meta), &record(&older));
        older
    };
    let mut running = place.start("f.toml");
    send(&place, [1, 2]);
    running.kill();
    // With a tail: what is logged is that version's to process.
    copy_dir(&place.path("state"), &place.path("kept"));
    let older = make_older();
    let parts = ["`visits`", "session/1", "session/2", "`forebay run CONFIG --reset query.visits`"];
    refused(&place, &["run", "f.toml"], 78, &parts);
    refused(&place, &["run", "f.toml", "--reset", "query.visits"], 78, &parts);
    assert_eq!(meta_of(&place), older, "nothing was changed");

    std::fs::remove_dir_all(place.path("state")).expect("removes");
    std::fs::rename(place.path("kept"), place.path("state")).expect("renames");
    assert_eq!(place.start_and_stop(), 0, "{}", place.text("stderr.txt"));
    let older = make_older();
    refused(&place, &["run", "f.toml"], 78, &parts);
    assert_eq!(meta_of(&place), older, "nothing was changed");
    let running = start_with(&place, &["run", "f.toml", "--reset", "query.visits"]);
    send(&place, [3, 60]);
    until(PATIENCE, "a session is over", || (lines_of(&place, "visits") == 1).then_some(()));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    let visits = place.text("out/visits.ndjson");
    assert!(visits.contains("T00:00:03.000") && visits.contains("\"n\":1"), "1 and 2 are dropped: {visits}");
    assert!(place.text("out/tens.ndjson").contains("\"n\":3"), "{}", place.text("out/tens.ndjson"));
}

impl Place {
    fn start_and_stop(&self) -> i32 {
        let running = self.start("f.toml");
        drop(connect(self));
        running.stop()
    }
}

/// A record with another format version and the right checksum.
fn of_version_2(key: &[u8], record: &[u8]) -> Vec<u8> {
    let mut other = record.to_vec();
    other[4] = 2;
    let crc = crc32c::crc32c_append(crc32c::crc32c(key), &other[4..]);
    other[..4].copy_from_slice(&crc.to_le_bytes());
    other
}

#[test]
fn another_format_version_is_refused_and_never_misread() {
    let place = Place::new();
    place.write("f.toml", &config());
    let running = place.start("f.toml");
    send(&place, [1, 2]);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    let (code, message) = outcome(&place.forebay(&["checkpoint", "export", "f.toml", "a.savepoint"]));
    assert_eq!(code, 0, "{message}");
    copy_dir(&place.path("state"), &place.path("kept"));
    let restore = || {
        std::fs::remove_dir_all(place.path("state")).expect("removes");
        copy_dir(&place.path("kept"), &place.path("state"));
    };
    let both = ["version 2", "version 1"];
    // The checkpoint's description.
    let record = encode_record(META_KEY, &meta_of(&place)).expect("encodes");
    patch(&place, &record, &of_version_2(META_KEY, &record));
    refused(&place, &["run", "f.toml"], 65, &both);
    refused(&place, &["checkpoint", "verify", "state"], 65, &both);
    refused(&place, &["checkpoint", "export", "state", "b.savepoint"], 65, &both);
    assert!(!place.path("b.savepoint").exists());
    restore();
    // The last entry of its history.
    let reader = CheckpointReader::open(&place.path("state/checkpoint")).expect("opens");
    let entry = reader.history().expect("reads").1.pop().expect("an entry");
    drop(reader);
    let key = entry.id.to_be_bytes();
    let record = encode_record(&key, &entry).expect("encodes");
    patch(&place, &record, &of_version_2(&key, &record));
    refused(&place, &["run", "f.toml"], 65, &both);
    refused(&place, &["checkpoint", "list", "state"], 65, &both);
    restore();
    // The log.
    let segment = place.path("state/log/000000000001.segment");
    let mut bytes = std::fs::read(&segment).expect("reads");
    let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    bytes[8] = 3;
    bytes[16..20].fill(0);
    let crc = crc32c::crc32c(&bytes[..length]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&segment, bytes).expect("writes");
    let both_of_log = ["version 3", "versions 1 and 2"];
    refused(&place, &["run", "f.toml"], 65, &both_of_log);
    refused(&place, &["log", "verify", "state"], 65, &both_of_log);
    restore();
    // A savepoint.
    let mut bytes = std::fs::read(place.path("a.savepoint")).expect("reads");
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(place.path("c.savepoint"), bytes).expect("writes");
    refused(&place, &["checkpoint", "verify", "c.savepoint"], 65, &both);
    refused(&place, &["checkpoint", "import", "c.savepoint", "new"], 65, &both);
    refused(&place, &["checkpoint", "diff", "c.savepoint", "state"], 65, &both);
    // And with what it was all is well.
    assert_eq!(place.start_and_stop(), 0, "{}", place.text("stderr.txt"));
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/state-v1")
}

/// Seconds of event time in each part of the golden input, one row each.
const PART: u32 = 90;

fn part(number: u32) -> std::ops::Range<u32> {
    number * PART..(number + 1) * PART
}

fn golden_config() -> String {
    config().replace("\"4MiB\"", "\"1MiB\"").replace("\"256KiB\"", "\"64KiB\"")
}

fn check_golden_output(place: &Place) {
    for output in ["rows", "tens", "minutes", "others", "late"] {
        let name = format!("{output}.ndjson");
        let expected = std::fs::read(golden().join("expected").join(&name)).expect("is committed");
        assert!(place.read(&format!("out/{name}")) == expected, "{name}: {}", place.text(&format!("out/{name}")));
    }
}

#[test]
#[ignore = "writes tests/golden/state-v1"]
fn write_golden_state() {
    let place = Place::new();
    place.write("f.toml", &golden_config());
    let _ = std::fs::remove_dir_all(golden());
    let running = place.start("f.toml");
    send(&place, part(0));
    assert_eq!(running.stop(), 0);
    copy_dir(&place.path("out"), &golden().join("out-at-checkpoint"));
    assert_eq!(outcome(&place.forebay(&["checkpoint", "export", "state", "plant.savepoint"])).0, 0);
    let mut running = place.start("f.toml");
    send(&place, part(1));
    running.kill();
    copy_dir(&place.path("state"), &golden().join("state"));
    copy_dir(&place.path("out"), &golden().join("out"));
    std::fs::remove_file(golden().join("state/LOCK")).expect("removes");
    std::fs::remove_file(golden().join("state/checkpoint/lock.mdb")).expect("removes");
    let running = place.start("f.toml");
    send(&place, part(2));
    assert_eq!(running.stop(), 0);
    copy_dir(&place.path("out"), &golden().join("expected"));
    for name in ["f.toml", "plant.savepoint"] {
        std::fs::copy(place.path(name), golden().join(name)).expect("copies");
    }
}

/// LMDB's file is of one word size and byte order.
#[cfg(all(target_pointer_width = "64", target_endian = "little"))]
#[test]
fn a_state_of_version_1_goes_on() {
    // As it was left by the kill, and with output that a power cut has taken back to the checkpoint.
    for output in ["out", "out-at-checkpoint"] {
        let place = Place::new();
        std::fs::copy(golden().join("f.toml"), place.path("f.toml")).expect("copies");
        copy_dir(&golden().join("state"), &place.path("state"));
        copy_dir(&golden().join(output), &place.path("out"));
        let running = place.start("f.toml");
        wait_for_rows(&place, "rows", 2 * PART as usize);
        send(&place, part(2));
        assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
        check_golden_output(&place);
    }
}

#[test]
fn a_savepoint_of_version_1_goes_on() {
    let place = Place::new();
    std::fs::copy(golden().join("f.toml"), place.path("f.toml")).expect("copies");
    copy_dir(&golden().join("out-at-checkpoint"), &place.path("out"));
    let savepoint = golden().join("plant.savepoint");
    let savepoint = savepoint.to_str().expect("a path of text");
    assert_eq!(outcome(&place.forebay(&["checkpoint", "verify", savepoint])).0, 0);
    let (code, message) = outcome(&place.forebay(&["checkpoint", "import", savepoint, "f.toml"]));
    assert_eq!(code, 0, "{message}");
    let running = place.start("f.toml");
    send(&place, part(1).chain(part(2)));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    check_golden_output(&place);
}
