//! Commands that read the checkpoint while the engine runs must not make it grow without bound: one that is stopped in
//! the middle of a read is ended by the engine, and one that was killed holds nothing back.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, Random, until};

const PATIENCE: Duration = Duration::from_secs(120);
const DEVICES: u64 = 60_000;
/// Devices that change from one checkpoint to the next: several in every page of the state.
const CHANGED: u64 = 8_000;

/// A pipeline with many keys in one window that stays open; its input is given by [`feed`].
fn place() -> Place {
    let place = Place::new();
    place.write(
        "f.toml",
        r#"
[pipeline]
name = "readers"
state = "state"
[durability]
delay = "5ms"
[checkpoint]
every = "30ms"
[source.plant]
type = "file"
path = "input.ndjson"
follow = true
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING" }
time = { column = "ts" }
[query.counts]
sql = """
SELECT window_start, device, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, device
"""
[sink.counts]
type = "file"
from = "counts"
path = "out/counts.ndjson"
"#,
    );
    place.write("input.ndjson", "");
    place
}

/// Number of the last commit, from LMDB's two meta pages.
fn last_commit(place: &Place) -> u64 {
    let data = File::open(place.path("state/checkpoint/data.mdb")).expect("is there");
    let txn = |page: u64| {
        let mut bytes = [0; 8];
        data.read_exact_at(&mut bytes, page * 4096 + 144).expect("a meta page");
        u64::from_le_bytes(bytes)
    };
    txn(0).max(txn(1))
}

fn file_bytes(place: &Place) -> u64 {
    std::fs::metadata(place.path("state/checkpoint/data.mdb")).expect("is there").len()
}

/// Gives events of these devices, and waits for a checkpoint after them.
fn feed(place: &Place, devices: impl Iterator<Item = u64>) {
    let line = |n| format!("{{\"ts\":\"2026-04-02T00:00:00.000Z\",\"device\":\"device-number-{n}\"}}\n");
    let before = last_commit(place);
    let mut file = std::fs::OpenOptions::new().append(true).open(place.path("input.ndjson")).expect("opens");
    file.write_all(devices.map(line).collect::<String>().as_bytes()).expect("writes");
    until(PATIENCE, "a checkpoint comes", || (last_commit(place) > before).then_some(()));
}

/// Whether a process stands in LMDB's table of readers with an open transaction.
fn is_reading(place: &Place, pid: u32) -> bool {
    let table = place.read("state/checkpoint/lock.mdb");
    table.chunks_exact(64).skip(2).any(|slot| slot[8..12] == pid.to_le_bytes() && slot[..8] != [0xff; 8])
}

/// A `checkpoint verify` that was stopped in the middle of its read.
fn stopped_reader(place: &Place) -> Child {
    for _ in 0..50 {
        let mut command = place.command(&["checkpoint", "verify", "state"]);
        let mut reader = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        let pid = Pid::from_child(&reader);
        until(PATIENCE, "it reads", || {
            let done = reader.try_wait().expect("a child").is_some();
            (done || is_reading(place, reader.id())).then_some(())
        });
        let stopped = kill_process(pid, Signal::STOP).is_ok();
        // It stops at once, but not before it is next scheduled; a moment later nothing of it changes any more.
        std::thread::sleep(Duration::from_millis(20));
        if stopped && is_reading(place, reader.id()) {
            return reader;
        }
        let _ = reader.kill();
        let _ = reader.wait();
    }
    panic!("no reader could be stopped in the middle of its read");
}

#[test]
fn a_reader_that_was_stopped_does_not_make_the_state_grow_without_bound() {
    let place = place();
    let running = place.start("f.toml");
    until(PATIENCE, "the state is made", || place.path("state/checkpoint/data.mdb").exists().then_some(()));
    feed(&place, 0..DEVICES);
    let mut random = Random(3);
    let mut churn = || feed(&place, (0..CHANGED).map(|_| random.below(DEVICES)).collect::<Vec<_>>().into_iter());
    churn();
    let calm = file_bytes(&place);

    // One that is gone holds nothing back.
    let mut killed = stopped_reader(&place);
    killed.kill().expect("is there");
    killed.wait().expect("ends");
    churn();
    churn();
    assert!(!is_reading(&place, killed.id()), "its slot was cleared");

    let mut reader = stopped_reader(&place);
    let before = file_bytes(&place);
    let mut rounds = 0;
    let status = loop {
        churn();
        rounds += 1;
        if let Some(status) = reader.try_wait().expect("a child") {
            break status;
        }
        assert!(file_bytes(&place) < before.max(64 << 20) + before + (64 << 20), "it grows without bound");
    };
    assert_eq!(status.signal(), Some(9));
    assert!(rounds >= 5, "a reader may take its time: {rounds}");
    until(PATIENCE, "the engine says whom it has ended", || {
        let messages = place.text("stderr.txt");
        let line = messages.lines().find(|line| line.contains("read an old checkpoint for too long"))?;
        line.contains(&format!("pid={}", reader.id())).then_some(())
    });

    // Its pages are used again.
    let grown = file_bytes(&place);
    for _ in 0..10 {
        churn();
    }
    assert!(file_bytes(&place) < grown + (16 << 20), "{} after {grown}, {calm} at first", file_bytes(&place));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
}
