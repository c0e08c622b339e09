//! What is full, and what blocks: a disk without space, a reader that takes nothing, a log at its cap. The pipeline waits,
//! goes on by itself, loses and repeats nothing, and ends when it is asked to.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Place, Running, outcome, until};

const PATIENCE: Duration = Duration::from_secs(60);
/// A stop must not wait for space or for a reader.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
const ROWS: usize = 60_000;

/// More bytes than the smallest log holds, into `sink`; state and output may be on a disk of their own.
fn place(state: &str, sink: &str) -> Place {
    let place = Place::new();
    place.write(
        "f.toml",
        &format!(
            r#"
[pipeline]
name = "full"
state = "{state}"
[durability]
delay = "10ms"
[checkpoint]
every = "100ms"
[log]
max_size = "1MiB"
compression = "none"
[source.plant]
type = "file"
path = "input.ndjson"
columns = {{ device = "STRING", n = "INT" }}
[query.rows]
sql = "SELECT device, n FROM plant"
[sink.rows]
from = "rows"
{sink}
"#
        ),
    );
    place.write("input.ndjson", &rows());
    place
}

fn rows() -> String {
    (0..ROWS).map(|n| format!("{{\"device\":\"device-{}\",\"n\":{n}}}\n", n % 100)).collect()
}

/// Starts with standard output as a pipe that nobody reads yet; waits until the log can take no more.
fn blocked(place: &Place) -> Running {
    let errors = std::fs::OpenOptions::new().create(true).append(true).open(place.path("stderr.txt")).expect("opens");
    let child = place.command(&["run", "f.toml"]).stdout(Stdio::piped()).stderr(errors).spawn().expect("starts");
    let running = Running { child };
    let segments = || {
        let entries = std::fs::read_dir(place.path("state/log")).ok()?;
        Some(entries.filter_map(Result::ok).filter(|e| e.file_name().to_string_lossy().ends_with(".segment")).count())
    };
    until(PATIENCE, "the log fills", || segments().filter(|segments| *segments >= 7));
    running
}

#[test]
fn a_log_that_filled_up_behind_a_slow_reader_goes_on() {
    let place = place("state", "type = \"stdout\"");
    let mut running = blocked(&place);
    let mut text = String::new();
    let mut output = running.child.stdout.take().expect("a pipe");
    // A reader in a thread, so that a pipeline that hangs fails the test.
    let reading = std::thread::spawn(move || output.read_to_string(&mut text).map(|_| text));
    assert_eq!(running.wait(PATIENCE), 0, "{}", place.text("stderr.txt"));
    assert!(reading.join().expect("reads").expect("UTF-8") == rows());
}

#[test]
fn a_stop_does_not_wait_for_a_reader_that_takes_nothing() {
    let place = place("state", "type = \"stdout\"");
    let mut running = blocked(&place);
    terminate(&running);
    assert_eq!(running.wait(STOP_PATIENCE), 74, "{}", place.text("stderr.txt"));
    assert!(place.text("stderr.txt").contains("nothing is lost"), "{}", place.text("stderr.txt"));
    // The next start begins behind the last checkpoint at the latest, and repeats only what stands behind it.
    let output = place.forebay(&["run", "f.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(rows().ends_with(&*String::from_utf8_lossy(&output.stdout)));
}

fn terminate(running: &Running) {
    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the process is there");
}

/// A small file system in memory, unmounted when dropped; none where this user may not mount.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn mount(at: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).expect("a directory");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(&at).status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk(at))
    }

    /// One on a device, which learns late that it is full: of ext4 in a file beside it.
    pub fn mount_ext4(at: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir_all(&at).expect("a directory");
        let image = at.with_extension("ext4");
        std::fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image).status();
        let made = made.is_ok_and(|status| status.success());
        let mounted = made
            && Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &at])
                .status()
                .is_ok_and(|status| status.success());
        mounted.then_some(SmallDisk(at))
    }

    /// Takes all space but so much.
    pub fn fill_but(&self, left_bytes: u64) {
        let path = self.ballast();
        let _full = std::fs::write(&path, vec![b'x'; 16 << 20]);
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
        let length = file.metadata().expect("a length").len();
        file.set_len(length.saturating_sub(left_bytes)).expect("gives back");
    }

    pub fn free(&self) {
        std::fs::remove_file(self.ballast()).expect("removes");
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Where file systems cannot be mounted nothing is shown; CI must be able to.
pub fn no_mount() {
    assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a tmpfs and an ext4 file: run it as root");
    println!("skipped: this user may not mount a file system");
}

#[test]
fn a_state_on_a_read_only_disk_is_refused_unharmed() {
    let place = place("disk/state", "type = \"file\"\npath = \"out/rows.ndjson\"");
    let Some(disk) = SmallDisk::mount(place.path("disk")) else { return no_mount() };
    assert_eq!(outcome(&place.forebay(&["run", "f.toml"])).0, 0);
    let remount = |how: &str| {
        let remounted = Command::new("mount").args(["-o", how]).arg(&disk.0).status();
        assert!(remounted.is_ok_and(|status| status.success()), "{how}");
    };
    remount("remount,ro");
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    remount("remount,rw");
    assert_eq!(code, 74, "{message}");
    assert!(message.contains("disk/state") && message.contains("Read-only"), "{message}");
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 0, "{message}");
    assert!(place.text("out/rows.ndjson") == rows());
}

#[test]
fn a_full_disk_under_the_output_is_waited_for() {
    for state in ["state", "disk/state"] {
        let place = place(state, "type = \"file\"\npath = \"disk/out/rows.ndjson\"");
        let Some(disk) = SmallDisk::mount(place.path("disk")) else { return no_mount() };
        disk.fill_but(if state == "state" { 64 << 10 } else { 1500 << 10 });
        let mut running = place.start("f.toml");
        until(PATIENCE, "the disk is full", || place.text("stderr.txt").contains("no space").then_some(()));
        assert!(running.child.try_wait().expect("a child").is_none(), "{}", place.text("stderr.txt"));
        disk.free();
        assert_eq!(running.wait(PATIENCE), 0, "{}", place.text("stderr.txt"));
        assert!(place.text("disk/out/rows.ndjson") == rows());
    }
}

/// The state grows with every key, so each checkpoint needs new pages; the output is on another disk.
#[test]
fn a_checkpoint_on_a_full_disk_takes_what_is_kept_for_it() {
    let place = Place::new();
    place.write(
        "f.toml",
        r#"
[pipeline]
name = "full"
state = "disk/state"
[durability]
delay = "5ms"
[checkpoint]
every = "50ms"
[log]
max_size = "1MiB"
segment = "64KiB"
compression = "none"
[source.plant]
type = "file"
path = "input.ndjson"
follow = true
columns = { n = "INT" }
[query.rows]
sql = "SELECT n FROM (SELECT n, ROW_NUMBER() OVER (PARTITION BY n ORDER BY _arrival) AS r FROM plant) WHERE r = 1"
[sink.rows]
from = "rows"
type = "file"
path = "out/rows.ndjson"
"#,
    );
    let Some(disk) = SmallDisk::mount(place.path("disk")) else { return no_mount() };
    let mut given = 0;
    let mut give = |count: usize| {
        let line = |n: usize| format!("{{\"n\":{n},\"pad\":\"{:0300}\"}}\n", 0);
        let text: String = (given..given + count).map(line).collect();
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(place.path("input.ndjson")).expect("opens");
        file.write_all(text.as_bytes()).expect("writes");
        given += count;
        until(PATIENCE, "rows come out", || (place.text("out/rows.ndjson").lines().count() == given).then_some(()));
        given
    };
    let checkpointed = || {
        let shown = place.forebay(&["checkpoint", "show", "disk/state", "--format", "json"]);
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        shown["sinks"][0]["rows"].as_u64().unwrap_or(0) as usize
    };
    let has = |suffix: &str| {
        let names = |dir: &str| std::fs::read_dir(place.path(dir)).into_iter().flatten().filter_map(Result::ok);
        let mut all = names("disk/state").chain(names("disk/state/log"));
        all.any(|entry| entry.file_name().to_string_lossy().ends_with(suffix))
    };

    let running = place.start("f.toml");
    for _ in 0..10 {
        give(300);
    }
    until(PATIENCE, "the log was trimmed", || has(".spare").then_some(()));
    assert!(has("reserve"));
    until(PATIENCE, "a checkpoint", || (checkpointed() == 3000).then_some(()));
    disk.fill_but(0);
    // Until the state has outgrown the pages that the checkpoint has free.
    let is_taken = || place.text("stderr.txt").contains("takes the space kept for it");
    let mut count = 0;
    for _ in 0..40 {
        count = give(300);
        if is_taken() {
            break;
        }
    }
    until(PATIENCE, "a checkpoint on a full disk", || (checkpointed() == count).then_some(()));
    let told = place.text("stderr.txt");
    assert!(told.contains("no space for a checkpoint") && told.contains("takes the space kept for it"), "{told}");
    assert!(!has("reserve"), "it is used");
    disk.free();
    let count = give(300);
    until(PATIENCE, "the reserve is made again", || has("reserve").then_some(()));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert!(place.text("out/rows.ndjson") == (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>());
}

#[test]
fn a_stop_does_not_wait_for_space() {
    let place = place("state", "type = \"file\"\npath = \"disk/out/rows.ndjson\"");
    let Some(disk) = SmallDisk::mount(place.path("disk")) else { return no_mount() };
    disk.fill_but(64 << 10);
    let mut running = place.start("f.toml");
    until(PATIENCE, "the disk is full", || place.text("stderr.txt").contains("no space").then_some(()));
    terminate(&running);
    assert_eq!(running.wait(STOP_PATIENCE), 74, "{}", place.text("stderr.txt"));
    disk.free();
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 0, "{message}");
    assert!(place.text("disk/out/rows.ndjson") == rows());
}

#[test]
fn a_missing_segment_is_found_by_verify_as_by_a_start() {
    let place = place("state", "type = \"stdout\"");
    let mut running = blocked(&place);
    running.kill();
    let segment = |number: u32| place.path(&format!("state/log/{number:012}.segment"));
    let third =
        (1..100).find(|number| segment(number + 3).exists() && segment(*number).exists()).expect("segments") + 2;
    std::fs::remove_file(segment(third)).expect("removes");
    for command in [["log", "verify", "state"].as_slice(), &["run", "f.toml"]] {
        let (code, message) = outcome(&place.forebay(command));
        assert_eq!(code, 65, "{command:?}: {message}");
        assert!(message.contains("lost durable data"), "{command:?}: {message}");
    }
}

#[test]
fn a_lost_checkpoint_beside_a_log_is_named() {
    let place = place("state", "type = \"stdout\"");
    let mut running = blocked(&place);
    running.kill();
    std::fs::remove_dir_all(place.path("state/checkpoint")).expect("removes");
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains("holds a log, but there is no checkpoint"), "{message}");
    assert!(!Path::new(&place.path("state/checkpoint/data.mdb")).exists(), "nothing was made anew");
}
