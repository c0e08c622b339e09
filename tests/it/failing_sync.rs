//! A sync that fails once: the process ends at once with exit code 74 and never tries again, since the system may have
//! dropped the pages; the next start recovers, and nothing that was logged is lost. Shown with the executable and a
//! preloaded library (`failing_sync.c`), for every file that is synced, LMDB's included.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::{Place, Running, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// Builds the library.
pub fn library(place: &Place) -> PathBuf {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/failing_sync.c");
    let library = place.path("failing_sync.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
    let output = compile.output().expect("cc runs: tests/run installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Feeds a followed file while the next sync of a file whose path contains `of` fails.
fn fails_once(of: &str, says: &str) {
    let place = Place::new();
    let library = library(&place);
    place.write(
        "f.toml",
        r#"
[pipeline]
name = "syncs"
state = "state"
[durability]
delay = "0s"
[checkpoint]
every = "50ms"
[log]
max_size = "1MiB"
segment = "64KiB"
[source.plant]
type = "file"
path = "input.ndjson"
follow = true
columns = { n = "BIGINT" }
[query.rows]
sql = "SELECT n FROM plant"
[query.first]
sql = "SELECT n FROM (SELECT n, ROW_NUMBER() OVER (PARTITION BY n ORDER BY _arrival) AS r FROM plant) WHERE r = 1"
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
[sink.first]
type = "file"
from = "first"
path = "out/first.ndjson"
"#,
    );
    let mut given = 0;
    let mut give = || {
        let mut file = OpenOptions::new().append(true).create(true).open(place.path("input.ndjson")).expect("opens");
        file.write_all((given..given + 25).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>().as_bytes()).unwrap();
        given += 25;
        given
    };
    let rows = |name: &str| place.text(name).lines().count();
    let start = || {
        let errors = std::fs::File::create(place.path("stderr.txt")).expect("a file");
        let mut command = place.command(&["run", "f.toml"]);
        command.env("LD_PRELOAD", &library).env("FAIL_SYNC_OF", of).env("FAIL_SYNC_ARMED", place.path("armed"));
        Running { child: command.stderr(errors).spawn().expect("starts") }
    };

    let count = give();
    let mut running = start();
    until(PATIENCE, "rows come out", || (rows("out/rows.ndjson") == count).then_some(()));
    place.write("armed", "");
    // The writer goes on until the process has ended; so whatever is synced is soon synced again.
    let code = until(PATIENCE, "the process ends", || {
        give();
        std::thread::sleep(Duration::from_millis(20));
        running.child.try_wait().expect("a child")
    });
    let message = place.text("stderr.txt");
    assert!(!place.path("armed").exists(), "no such sync: {message}");
    assert_eq!(code.code(), Some(74), "{message}");
    assert!(message.contains("error:") && message.contains(says), "{message}");
    let before = place.text("out/rows.ndjson");

    let count = give();
    let running = start();
    until(PATIENCE, "rows come out", || (rows("out/rows.ndjson") == count).then_some(()));
    until(PATIENCE, "rows come out", || (rows("out/first.ndjson") == count).then_some(()));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    let expected: String = (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert!(expected.starts_with(&before), "what was seen before is what there is now");
    assert!(place.text("out/rows.ndjson") == expected && place.text("out/first.ndjson") == expected);
}

#[test]
fn a_failed_sync_of_the_log_ends_the_process_and_a_restart_recovers() {
    fails_once(".segment", "cannot sync state/log/");
}

#[test]
fn a_failed_sync_of_a_rolling_log_ends_the_process_and_a_restart_recovers() {
    fails_once(".spare", "cannot sync state/log/");
}

#[test]
fn a_failed_sync_of_an_output_ends_the_process_and_a_restart_recovers() {
    fails_once("out/rows.ndjson", "out/rows.ndjson");
}

#[test]
fn a_failed_sync_of_the_checkpoint_ends_the_process_and_a_restart_recovers() {
    fails_once("data.mdb", "state/checkpoint");
}
