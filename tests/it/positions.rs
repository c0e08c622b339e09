//! `log = "position"`: what happens when the file that the log refers to does not stay as it was, and what the commands
//! show of such a log. Kills are in `kills`.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use crate::failing_sync::library;
use crate::support::{Place, Running, free_port, outcome, until};

const PATIENCE: Duration = Duration::from_secs(30);
const ROWS: usize = 500;

fn config(port: u16, log: &str) -> String {
    format!(
        r#"
[pipeline]
name = "positions"
state = "state"
[durability]
delay = "0s"
[checkpoint]
every = "1h"
[source.plant]
type = "file"
path = "input.ndjson"
log = "{log}"
columns = {{ n = "BIGINT", text = "STRING" }}
[source.feed]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ n = "BIGINT" }}
[query.rows]
sql = "SELECT n, text FROM plant"
[query.feeds]
sql = "SELECT n FROM feed"
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
[sink.feeds]
type = "file"
from = "feeds"
path = "out/feeds.ndjson"
"#
    )
}

fn input() -> String {
    (0..ROWS).map(|n| format!("{{\"n\":{n},\"text\":\"grün {n}\"}}\n")).collect()
}

fn run_until_read(place: &Place) -> Running {
    let running = place.start("f.toml");
    let rows = || place.text("out/rows.ndjson").lines().count();
    until(PATIENCE, "all rows come out", || (rows() == ROWS).then_some(()));
    running
}

/// A pipeline whose file is read to its end, killed before any checkpoint covers that: a second source never ends.
fn killed(log: &str) -> Place {
    let place = Place::new();
    place.write("f.toml", &config(free_port(), log));
    place.write("input.ndjson", &input());
    run_until_read(&place).kill();
    place
}

fn refused(place: &Place, arguments: &[&str], parts: &[&str]) {
    let (code, message) = outcome(&place.forebay(arguments));
    assert_eq!(code, 65, "{arguments:?}: {message}");
    for part in parts {
        assert!(message.contains(part), "{arguments:?}: {part:?} is not in: {message}");
    }
}

/// What the commands print.
fn shown(place: &Place, arguments: &[&str]) -> String {
    let output = place.forebay(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Starts, waits until the replay is through, stops; the output must be what it was.
fn goes_on(place: &Place, expected: &str) {
    let running = place.start("f.toml");
    until(PATIENCE, "it runs", || place.forebay(&["status", "f.toml"]).status.success().then_some(()));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert_eq!(place.text("out/rows.ndjson"), expected);
}

#[test]
fn the_log_holds_positions_and_a_replay_reads_the_file_again() {
    let place = killed("position");
    let expected = place.text("out/rows.ndjson");
    let log: Vec<u8> = std::fs::read_dir(place.path("state/log"))
        .expect("a log")
        .flat_map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a segment"))
        .collect();
    assert!(!log.windows(6).any(|bytes| bytes == b"\"text\""), "the log holds payload");

    let cat = shown(&place, &["log", "cat", "state", "--source", "plant"]);
    assert!(cat.contains("data input.ndjson {\"n\":7,\"text\":\"grün 7\"}\n"), "{cat}");
    let stat = shown(&place, &["log", "stat", "state"]);
    let length = input().len();
    let says =
        format!("plant: input.ndjson holds the payload, bytes 0 to {}; a replay needs it from byte 0 on", length - 1);
    assert!(stat.contains(&says), "{stat}");
    let stat: serde_json::Value =
        serde_json::from_str(&shown(&place, &["log", "stat", "state", "--format=json"])).expect("JSON");
    assert_eq!((&stat["files"][0]["file"], &stat["files"][0]["needed_from"]), (&"input.ndjson".into(), &0.into()));
    shown(&place, &["log", "verify", "state"]);
    assert!(shown(&place, &["explain", "f.toml"]).contains("logged by position: the file must stay as it is"));

    // The replay rewrites what a power cut has taken from the output.
    place.write("out/rows.ndjson", "");
    goes_on(&place, &expected);
    // A checkpoint covers it: nobody needs the file any more.
    let stat = shown(&place, &["log", "stat", "state"]);
    assert!(stat.contains("no replay needs them any more"), "{stat}");
    std::fs::remove_file(place.path("input.ndjson")).expect("removes");
    shown(&place, &["log", "verify", "state"]);
    goes_on(&place, &expected);
}

#[test]
fn status_tells_from_where_on_the_file_is_needed() {
    let place = Place::new();
    place.write("f.toml", &config(free_port(), "position").replace("\"1h\"", "\"50ms\""));
    place.write("input.ndjson", &input());
    let running = run_until_read(&place);
    let says = format!("its file is needed from byte {} on", input().len());
    until(PATIENCE, "a checkpoint covers the file", || {
        shown(&place, &["status", "f.toml"]).contains(&says).then_some(())
    });
    assert_eq!(running.stop(), 0);
}

/// Changes the input of a killed pipeline, checks that a start refuses with `what`, and mends it.
fn broken(what: &str, change: impl Fn(&Place), mend: impl Fn(&Place)) {
    let place = killed("position");
    let expected = place.text("out/rows.ndjson");
    change(&place);
    for arguments in [&["run", "f.toml"][..], &["log", "verify", "state"]] {
        refused(&place, arguments, &["input.ndjson", "from LSN ", "bytes 0 to ", what, "Put the file back"]);
    }
    assert_eq!(place.text("out/rows.ndjson"), expected, "what was written stays");
    let cat = shown(&place, &["log", "cat", "state", "--source", "plant"]);
    let first = "data input.ndjson (24 bytes at byte 0; the file is not what it was)\n";
    assert!(cat.contains(first), "{cat}");
    let cat = shown(&place, &["log", "cat", "state", "--source", "plant", "--format=json"]);
    assert!(cat.contains("\"payload_offset\":25,\"payload_bytes\":24}\n"), "{cat}");
    mend(&place);
    goes_on(&place, &expected);
}

#[test]
fn a_file_that_is_gone_refuses_until_it_is_back() {
    broken(
        "there is no such file",
        |place| std::fs::rename(place.path("input.ndjson"), place.path("moved")).expect("renames"),
        |place| std::fs::rename(place.path("moved"), place.path("input.ndjson")).expect("renames"),
    );
}

#[test]
fn a_file_that_is_shorter_refuses_until_a_copy_is_put_in_its_place() {
    broken(
        "the file is only 100 bytes long",
        |place| {
            let file = OpenOptions::new().write(true).open(place.path("input.ndjson")).expect("opens");
            file.set_len(100).expect("cuts");
        },
        // Another file, but with the same bytes.
        |place| {
            place.write("copy", &input());
            std::fs::rename(place.path("copy"), place.path("input.ndjson")).expect("renames");
        },
    );
}

/// Neither waits for somebody to write into it, nor is started again and again.
#[test]
fn a_pipe_or_a_directory_in_the_place_of_the_file_refuses() {
    let away = |place: &Place| std::fs::rename(place.path("input.ndjson"), place.path("moved")).expect("renames");
    let back = |place: &Place| std::fs::rename(place.path("moved"), place.path("input.ndjson")).expect("renames");
    let pipe = |place: &Place| {
        away(place);
        let made = Command::new("mkfifo").arg(place.path("input.ndjson")).status().expect("runs");
        assert!(made.success());
    };
    broken("it cannot be read: not a regular file", pipe, back);
    let directory = |place: &Place| {
        away(place);
        std::fs::create_dir(place.path("input.ndjson")).expect("creates");
    };
    broken("it cannot be read: not a regular file", directory, |place| {
        std::fs::remove_dir(place.path("input.ndjson")).expect("removes");
        back(place);
    });
}

#[test]
fn a_file_that_was_edited_refuses_until_it_is_as_it_was() {
    let put = |place: &Place, byte: &[u8]| {
        let file = OpenOptions::new().write(true).open(place.path("input.ndjson")).expect("opens");
        file.write_all_at(byte, 5).expect("writes");
    };
    broken("what stands there now is something else", |place| put(place, b"7"), |place| put(place, b"0"));
}

#[test]
fn a_state_without_its_file_goes_on_from_its_checkpoint_elsewhere() {
    let place = killed("position");
    std::fs::remove_file(place.path("input.ndjson")).expect("removes");
    refused(&place, &["run", "f.toml"], &["`forebay checkpoint export` and `import`"]);
    shown(&place, &["checkpoint", "export", "state", "plant.savepoint"]);
    shown(&place, &["checkpoint", "import", "plant.savepoint", "other"]);
    let text = place.text("f.toml").replace("state = \"state\"", "state = \"other\"");
    // Nothing was checkpointed of the file: another one is read from its beginning.
    place.write("f.toml", &text);
    place.write("input.ndjson", "{\"n\":1}\n");
    std::fs::remove_file(place.path("out/rows.ndjson")).expect("removes");
    place.write("out/rows.ndjson", "");
    let running = place.start("f.toml");
    until(PATIENCE, "a row comes out", || (!place.text("out/rows.ndjson").is_empty()).then_some(()));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert_eq!(place.text("out/rows.ndjson"), "{\"n\":1,\"text\":null}\n");
}

/// Either way the tail is of the old mode, and is replayed as such.
#[test]
fn the_mode_changes_over_a_tail() {
    for (old, new) in [("position", "payload"), ("payload", "position")] {
        let place = killed(old);
        let expected = place.text("out/rows.ndjson");
        let text = place.text("f.toml");
        place.write("f.toml", &text.replace(&format!("log = \"{old}\""), &format!("log = \"{new}\"")));
        goes_on(&place, &expected);
    }
}

/// What the log refers to is made durable before, as the log itself is; a sync that fails is not tried again.
#[test]
fn the_file_is_synced_before_the_log_refers_to_it() {
    for (log, expected) in [("position", Some(74)), ("payload", None)] {
        let place = Place::new();
        let library = library(&place);
        place.write("f.toml", &config(free_port(), log));
        place.write("input.ndjson", &input());
        place.write("armed", "");
        let errors = std::fs::File::create(place.path("stderr.txt")).expect("a file");
        let mut command = place.command(&["run", "f.toml"]);
        command
            .env("LD_PRELOAD", library)
            .env("FAIL_SYNC_OF", "input.ndjson")
            .env("FAIL_SYNC_ARMED", place.path("armed"));
        let mut running = Running { child: command.stderr(errors).spawn().expect("starts") };
        match expected {
            Some(code) => {
                assert_eq!(running.wait(PATIENCE), code);
                let message = place.text("stderr.txt");
                assert!(message.contains("cannot make input.ndjson durable"), "{message}");
                assert_eq!(place.text("out/rows.ndjson"), "");
                assert!(!shown(&place, &["log", "cat", "state"]).contains(" data "));
            }
            None => {
                until(PATIENCE, "rows come out", || {
                    (place.text("out/rows.ndjson").lines().count() == ROWS).then_some(())
                });
                assert!(place.path("armed").exists(), "nobody has synced the input");
                running.kill();
            }
        }
        run_until_read(&place).kill();
    }
}
