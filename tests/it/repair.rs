//! `log repair` and `run --adopt` through the executable: what a start refuses with exit code 65 is cut on request, with
//! nothing destroyed, and the pipeline goes on; an output that is ahead of its log is refused with both numbers, and
//! adopted on request.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, Running, copy_dir, free_port, outcome, until};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(source: &str) -> String {
    format!(
        r#"
[pipeline]
name = "plant"
state = "state"
[durability]
delay = "0s"
[checkpoint]
every = "1h"
[log]
max_size = "1MiB"
segment = "64KiB"
compression = "none"
[source.plant]
{source}
columns = {{ n = "BIGINT", pad = "STRING" }}
[query.rows]
sql = "SELECT n, pad FROM plant"
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
"#
    )
}

fn lines(range: std::ops::Range<usize>) -> String {
    range.map(|n| format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(200))).collect()
}

fn rows(place: &Place) -> usize {
    place.text("out/rows.ndjson").lines().count()
}

/// A pipeline over a file that is followed, fed in pieces so that there are many frames and several segments.
struct Followed {
    place: Place,
    given: usize,
}

impl Followed {
    fn new() -> Followed {
        let place = Place::new();
        place.write("f.toml", &config("type = \"file\"\npath = \"input.ndjson\"\nfollow = true"));
        place.write("input.ndjson", "");
        Followed { place, given: 0 }
    }

    fn give(&mut self, pieces: usize) {
        for _ in 0..pieces {
            let next = self.given + 20;
            let mut file = std::fs::OpenOptions::new().append(true).open(self.place.path("input.ndjson")).unwrap();
            file.write_all(lines(self.given..next).as_bytes()).unwrap();
            self.given = next;
            until(PATIENCE, "rows come out", || (rows(&self.place) == next).then_some(()));
        }
    }

    fn segments(&self) -> Vec<PathBuf> {
        segments(&self.place.path("state/log"))
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir).expect("a directory").map(|it| it.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|it| it == "segment"));
    found.sort();
    found
}

/// Every file below a directory with its bytes, but for those of the locks (and the socket).
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(tree(&path));
        } else if path.is_file() && !path.ends_with("LOCK") && !path.ends_with("lock.mdb") {
            found.insert(path.clone(), std::fs::read(&path).expect("a file"));
        }
    }
    found
}

fn cat(place: &Place, state: &str) -> Vec<Value> {
    let output = place.forebay(&["log", "cat", state, "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn started(place: &Place) -> Running {
    let _ = std::fs::remove_file(place.path("stderr.txt"));
    let running = place.start("f.toml");
    until(PATIENCE, "it runs", || {
        let text = place.text("stderr.txt");
        assert!(!text.contains("error:"), "{text}");
        text.contains("running").then_some(())
    });
    running
}

/// Damages a killed pipeline's log, repairs it, and has the pipeline go on to the end.
fn repaired(damage: impl Fn(&Followed), says: &[&str]) {
    let mut it = Followed::new();
    let running = started(&it.place);
    it.give(10);
    assert_eq!(running.stop(), 0);
    let mut running = started(&it.place);
    it.give(20);
    running.kill();
    assert!(it.segments().len() >= 3);
    damage(&it);

    let place = &it.place;
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains("forebay log repair state"), "{message}");
    let before = tree(&place.path("state"));
    let asked = place.forebay(&["log", "repair", "state"]);
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert_eq!(outcome(&asked), (0, String::new()), "{text}");
    for what in says {
        assert!(text.contains(what), "{what} is not in {text}");
    }
    let asked = place.forebay(&["log", "repair", "state", "--format", "json"]);
    let planned: Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    assert_eq!(planned["outcome"], "planned", "{planned}");
    assert!(planned["damage"][0]["file"].as_str().unwrap().starts_with("state/log"), "{planned}");
    for key in ["offset", "what"] {
        assert!(!planned["damage"][0][key].is_null(), "{key}: {planned}");
    }
    for key in ["checkpoint_lsn", "kept_records", "next_lsn", "lost_records", "last_known_lsn", "cut_bytes"] {
        assert!(planned[key].is_u64(), "{key}: {planned}");
    }
    assert!(tree(&place.path("state")) == before, "nothing was changed");

    let done = place.forebay(&["log", "repair", "f.toml", "--yes"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(0), "{text} {}", String::from_utf8_lossy(&done.stderr));
    let aside = std::fs::read_dir(place.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("repaired-"))
        .expect("the old log is kept");
    assert!(text.contains(&*aside.file_name().unwrap().to_string_lossy()), "{text}");
    // Every old file is there as it was.
    let kept = tree(&aside.join("log"));
    let old = before.iter().filter(|(path, _)| path.starts_with(place.path("state/log")));
    for (path, bytes) in old {
        assert!(kept.get(&aside.join("log").join(path.file_name().unwrap())) == Some(bytes), "{}", path.display());
    }
    assert!(!place.path("state/log.new").exists());
    for command in ["log", "checkpoint"] {
        assert_eq!(outcome(&place.forebay(&[command, "verify", "state"])), (0, String::new()));
    }
    let again = place.forebay(&["log", "repair", "state", "--yes"]);
    assert_eq!(again.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&again.stdout).contains("needs no repair"));
    let again = place.forebay(&["log", "repair", "state", "--format=json"]);
    assert_eq!(String::from_utf8_lossy(&again.stdout), "{\"outcome\":\"nothing\"}\n");

    let log = cat(place, "state");
    let gaps: Vec<&Value> = log.iter().filter(|record| record["kind"] == "gap").collect();
    assert_eq!(gaps.len(), 1);
    assert!(gaps[0]["reason"].as_str().unwrap().contains("log repair"), "{}", gaps[0]);
    assert_eq!(log.last(), Some(gaps[0]));

    // The file is read again from where the log ends now; what the output holds is compared with it.
    let running = started(place);
    it.give(5);
    let place = &it.place;
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert!(place.text("out/rows.ndjson") == lines(0..it.given));
    let log = cat(place, "state");
    let lsns: Vec<u64> = log.iter().map(|record| record["lsn"].as_u64().unwrap()).collect();
    assert!(lsns.windows(2).all(|pair| pair[1] == pair[0] + 1), "LSNs are dense");
}

#[test]
fn a_damaged_frame_in_the_middle_is_cut_and_the_pipeline_goes_on() {
    let damage = |it: &Followed| {
        let path = it.segments().pop().expect("a segment");
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(4).position(|w| w == b"FbF1").unwrap() + 100;
        bytes[at] ^= 4;
        std::fs::write(path, bytes).unwrap();
    };
    repaired(damage, &["checksum is wrong", "kept", "records would be cut", "nothing was changed"]);
}

#[test]
fn a_damaged_frame_that_the_checkpoint_covers_costs_nothing() {
    // All that no checkpoint covers is in later segments; the last one is damaged where it is covered.
    let damage = |it: &Followed| {
        let cut = {
            let shown = it.place.forebay(&["checkpoint", "show", "state", "--format", "json"]);
            let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
            shown["lsn"].as_u64().unwrap_or_else(|| panic!("{shown}"))
        };
        assert!(cut > 100);
        let segments = it.segments();
        for path in &segments[1..] {
            std::fs::remove_file(path).unwrap();
        }
        let mut bytes = std::fs::read(&segments[0]).unwrap();
        bytes[4096 + 100] ^= 1;
        std::fs::write(&segments[0], bytes).unwrap();
    };
    repaired(damage, &["checksum is wrong", "nothing that is known of would be lost"]);
}

#[test]
fn a_missing_segment_is_cut_and_the_pipeline_goes_on() {
    let damage = |it: &Followed| {
        let segments = it.segments();
        std::fs::remove_file(&segments[segments.len() - 2]).unwrap();
    };
    repaired(damage, &["are missing", "records would be cut"]);
}

#[test]
fn a_log_that_is_gone_is_begun_anew_behind_the_checkpoint() {
    let damage = |it: &Followed| it.segments().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    repaired(damage, &["is empty", "nothing that is known of would be lost"]);
}

#[test]
fn the_header_of_a_segment_can_be_lost_without_its_records() {
    let damage = |it: &Followed| {
        let path = it.segments().pop().expect("a segment");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[30] ^= 4;
        std::fs::write(path, bytes).unwrap();
    };
    repaired(damage, &["checksum of its header", "nothing that is known of would be lost"]);
}

#[test]
fn a_log_in_use_or_without_damage_is_left_alone() {
    let mut it = Followed::new();
    let running = started(&it.place);
    it.give(2);
    let (code, message) = outcome(&it.place.forebay(&["log", "repair", "state", "--yes"]));
    assert_eq!(code, 75, "{message}");
    assert!(message.contains("another instance runs"), "{message}");
    assert_eq!(running.stop(), 0);
    let before = tree(&it.place.path("state"));
    let output = it.place.forebay(&["log", "repair", "state", "--yes"]);
    assert_eq!(outcome(&output), (0, String::new()));
    assert!(tree(&it.place.path("state")) == before);
    let (code, message) = outcome(&it.place.forebay(&["log", "repair", "nowhere"]));
    assert_eq!(code, 64, "{message}");
    assert!(!it.place.path("nowhere").exists());
}

/// A TCP pipeline, which cannot be fed again.
struct Fed {
    place: Place,
    port: u16,
    given: usize,
}

impl Fed {
    fn new() -> Fed {
        let (place, port) = (Place::new(), free_port());
        place.write("f.toml", &config(&format!("type = \"tcp\"\nlisten = \"127.0.0.1:{port}\"")));
        Fed { place, port, given: 0 }
    }

    fn give(&mut self, count: usize) {
        let already = rows(&self.place);
        let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", self.port)).ok());
        socket.write_all(lines(self.given..self.given + count).as_bytes()).unwrap();
        self.given += count;
        until(PATIENCE, "rows come out", || (rows(&self.place) == already + count).then_some(()));
    }

    /// The state as it was earlier, beside an output that went on.
    fn restored() -> Fed {
        let mut it = Fed::new();
        let running = started(&it.place);
        it.give(50);
        assert_eq!(running.stop(), 0);
        copy_dir(&it.place.path("state"), &it.place.path("state.old"));
        let running = started(&it.place);
        it.give(70);
        assert_eq!(running.stop(), 0);
        std::fs::remove_dir_all(it.place.path("state")).unwrap();
        std::fs::rename(it.place.path("state.old"), it.place.path("state")).unwrap();
        it
    }

    fn start_adopting(&self) -> Running {
        let errors = std::fs::File::create(self.place.path("stderr.txt")).unwrap();
        let mut command = self.place.command(&["run", "f.toml", "--adopt", "rows"]);
        Running { child: command.stderr(errors).spawn().expect("starts") }
    }
}

#[test]
fn an_output_ahead_of_a_restored_state_is_refused_with_both_numbers_and_adopted_on_request() {
    let mut it = Fed::restored();
    let old = it.place.text("out/rows.ndjson");
    let checkpointed = lines(0..50).len();
    let (code, message) = outcome(&it.place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 65, "{message}");
    for what in [&old.len().to_string(), &checkpointed.to_string(), "--adopt", "sink rows", "out/rows.ndjson"] {
        assert!(message.contains(what), "{what}: {message}");
    }
    assert!(it.place.text("out/rows.ndjson") == old, "nothing was changed");

    let (code, message) = outcome(&it.place.forebay(&["run", "f.toml", "--adopt", "row"]));
    assert_eq!(code, 64, "{message}");
    assert!(message.contains("did you mean `rows`"), "{message}");

    let mut running = it.start_adopting();
    it.give(10);
    let warnings = it.place.text("stderr.txt");
    assert!(warnings.contains("adopted") && warnings.contains(&old.len().to_string()), "{warnings}");
    // A crash right behind it does not refuse again, nor repeat anything.
    running.kill();
    let running = started(&it.place);
    it.give(10);
    assert_eq!(running.stop(), 0, "{}", it.place.text("stderr.txt"));
    assert!(it.place.text("out/rows.ndjson") == lines(0..140), "every old row, then the new ones");
}

#[test]
fn an_adopted_output_keeps_rows_that_the_log_gives_otherwise() {
    let it = Fed::restored();
    // The restored log gives other rows than those that stand behind its checkpoint: it went on by itself before.
    let old = it.place.text("out/rows.ndjson");
    std::fs::write(it.place.path("out/rows.ndjson"), lines(0..50)).unwrap();
    let mut second = Fed { given: 500, ..it };
    let mut running = started(&second.place);
    second.give(3);
    running.kill();
    // The first of them stands there, too; then something else.
    let mixed = lines(0..50) + &lines(500..501) + &old[lines(0..50).len()..];
    std::fs::write(second.place.path("out/rows.ndjson"), &mixed).unwrap();
    let mut running = second.start_adopting();
    // At any moment, as by a power cut: nobody adopts a second time.
    until(PATIENCE, "it is adopted", || second.place.text("stderr.txt").contains("adopted").then_some(()));
    running.kill();
    let running = started(&second.place);
    until(PATIENCE, "rows come out", || (rows(&second.place) == 123).then_some(()));
    second.give(3);
    assert_eq!(running.stop(), 0, "{}", second.place.text("stderr.txt"));
    assert!(second.place.text("out/rows.ndjson") == mixed + &lines(501..506));
}

#[test]
fn a_torn_last_line_is_not_adopted() {
    let mut it = Fed::restored();
    let whole = it.place.text("out/rows.ndjson");
    std::fs::write(it.place.path("out/rows.ndjson"), &whole[..whole.len() - 5]).unwrap();
    let (code, message) = outcome(&it.place.forebay(&["run", "f.toml", "--adopt", "rows"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains("does not end with a line end") && message.contains("--adopt"), "{message}");
    // Either of what the message says is taken, with the same command.
    for (complete, remedied) in [(true, whole.clone()), (false, lines(0..119))] {
        copy_dir(&it.place.path("state"), &it.place.path("state.refused"));
        std::fs::write(it.place.path("out/rows.ndjson"), &remedied).unwrap();
        let mut again = Fed { place: it.place, port: it.port, given: 200 };
        let running = again.start_adopting();
        again.give(10);
        assert_eq!(running.stop(), 0, "{}", again.place.text("stderr.txt"));
        assert!(again.place.text("out/rows.ndjson") == remedied + &lines(200..210), "completed: {complete}");
        std::fs::remove_dir_all(again.place.path("state")).unwrap();
        std::fs::rename(again.place.path("state.refused"), again.place.path("state")).unwrap();
        it = again;
    }
}

/// One refusal names one sink, so several are adopted one after the other, here at a changed configuration.
#[test]
fn sinks_that_are_adopted_one_after_the_other_repeat_nothing() {
    let mut it = Fed::new();
    let text = it.place.text("f.toml") + "[sink.copy]\ntype = \"file\"\nfrom = \"rows\"\npath = \"out/copy.ndjson\"\n";
    it.place.write("f.toml", &text);
    let running = started(&it.place);
    it.give(50);
    assert_eq!(running.stop(), 0);
    let mut running = started(&it.place);
    it.give(3);
    running.kill();
    // Both were written by another life that had gone on otherwise.
    let held = [lines(0..50) + &lines(100..110), lines(0..53) + &lines(100..110)];
    for (name, held) in ["out/rows.ndjson", "out/copy.ndjson"].into_iter().zip(&held) {
        it.place.write(name, held);
    }
    it.place.write("f.toml", &(text + "# changed\n"));
    let (code, message) = outcome(&it.place.forebay(&["run", "f.toml", "--adopt", "rows"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains("sink copy"), "{message}");
    let errors = std::fs::File::create(it.place.path("stderr.txt")).unwrap();
    let mut command = it.place.command(&["run", "f.toml", "--adopt", "rows", "--adopt", "copy"]);
    let running = Running { child: command.stderr(errors).spawn().expect("starts") };
    it.give(10);
    assert_eq!(running.stop(), 0, "{}", it.place.text("stderr.txt"));
    assert!(it.place.text("out/rows.ndjson") == held[0].clone() + &lines(50..63));
    assert!(it.place.text("out/copy.ndjson") == held[1].clone() + &lines(53..63));
}

/// Somebody has cut or removed the output: what is logged behind the checkpoint still comes out.
#[test]
fn a_cut_or_removed_output_is_refused_and_adopted_on_request() {
    for kept in [None, Some(0), Some(20)] {
        let mut it = Fed::new();
        let running = started(&it.place);
        it.give(50);
        assert_eq!(running.stop(), 0);
        let mut running = started(&it.place);
        it.give(30);
        running.kill();
        let (output, left) = (it.place.path("out/rows.ndjson"), lines(0..kept.unwrap_or(0)));
        match kept {
            Some(_) => std::fs::write(output, &left).unwrap(),
            None => std::fs::remove_file(output).unwrap(),
        }
        let (code, message) = outcome(&it.place.forebay(&["run", "f.toml"]));
        assert_eq!(code, 65, "{message}");
        assert!(message.contains("was cut or replaced") && message.contains("--adopt"), "{message}");
        let mut running = it.start_adopting();
        until(PATIENCE, "the tail comes out", || (rows(&it.place) == 30 + kept.unwrap_or(0)).then_some(()));
        running.kill();
        let running = started(&it.place);
        it.give(10);
        assert_eq!(running.stop(), 0, "{}", it.place.text("stderr.txt"));
        assert!(it.place.text("out/rows.ndjson") == left + &lines(50..90), "kept {kept:?}");
    }
}

/// After a repair the output holds rows whose records were cut: they stay, on request.
#[test]
fn an_output_ahead_of_a_repaired_log_is_adopted_on_request() {
    let mut it = Fed::new();
    let mut running = started(&it.place);
    for _ in 0..5 {
        it.give(20);
    }
    running.kill();
    let path = segments(&it.place.path("state/log")).pop().expect("a segment");
    let mut bytes = std::fs::read(&path).unwrap();
    let frames: Vec<usize> = (0..bytes.len() - 4).step_by(8).filter(|at| bytes[*at..].starts_with(b"FbF1")).collect();
    bytes[frames[frames.len() / 2] + 80] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let old = it.place.text("out/rows.ndjson");
    assert_eq!(outcome(&it.place.forebay(&["run", "f.toml"])).0, 65);
    let (code, message) = outcome(&it.place.forebay(&["log", "repair", "state", "--yes"]));
    assert_eq!(code, 0, "{message}");
    let (code, message) = outcome(&it.place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains(&old.len().to_string()) && message.contains("--adopt"), "{message}");
    let running = it.start_adopting();
    it.give(10);
    assert_eq!(running.stop(), 0, "{}", it.place.text("stderr.txt"));
    assert!(it.place.text("out/rows.ndjson") == old + &lines(100..110));
}

/// A state that was made anew beside an output of another life: nothing is appended silently.
#[test]
fn an_output_of_another_life_is_refused() {
    let it = Fed::restored();
    let old = it.place.text("out/rows.ndjson");
    std::fs::remove_dir_all(it.place.path("state")).unwrap();
    let (code, message) = outcome(&it.place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains("holds data already"), "{message}");
    assert!(it.place.text("out/rows.ndjson") == old);
}
