//! The whole executable: log, checkpoints, windows, rolled and plain file sinks, over a source that can be read again and
//! one that cannot.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use fuser::Errno;

use super::medium::{Device, Medium};
use super::recorder::{Op, SyncFailure};
use super::{cuts, recorder, scratch};
use crate::support::{FOREBAY, Place, Random, outcome, readings, rounds};

/// Limits as small as they may be, so that a short run commits, rolls, trims and recycles.
fn config(name: &str, source: &str) -> String {
    format!(
        r#"
[pipeline]
name = "{name}"
state = "state"
[durability]
delay = "1ms"
bytes = "4KiB"
[checkpoint]
every = "15ms"
[log]
max_size = "1MiB"
segment = "64KiB"
compression = "none"
[source.plant]
{source}
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
[query.tens]
sql = """
SELECT window_start, device, AVG(temp) AS t, COUNT(DISTINCT temp) AS d, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end, device
"""
[query.rows]
sql = "SELECT ts, device, temp FROM plant WHERE temp > 80"
[sink.tens]
type = "file"
from = "tens"
path = "out/tens.ndjson"
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
[sink.rolled]
type = "file"
from = "rows"
path = "rolled/rows.ndjson"
roll_size = "8KiB"
"#
    )
}

const EVENTS: u64 = 25_000;

/// Runs the pipeline on a recording file system, fed through standard input if there is any text.
fn record(config: &str, input: Option<&str>) -> Option<Vec<Op>> {
    let place = Place::new();
    let recorder = recorder(place.path("disk"), None)?;
    std::fs::write(recorder.root.join("f.toml"), config).expect("writes");
    let (code, message) = run(&recorder.root, input);
    assert_eq!(code, 0, "{message}");
    Some(recorder.finish())
}

/// What the tests look at, so that it is known that the record has all of it.
fn summary(ops: &[Op]) -> String {
    let count = |is: fn(&Op) -> bool| ops.iter().filter(|op| is(op)).count();
    let renames = count(|op| matches!(op, Op::Rename { .. }));
    let removes = count(|op| matches!(op, Op::Remove { .. }));
    let syncs = count(|op| matches!(op, Op::Sync { .. }));
    assert!(renames > 20 && syncs > 200, "{renames} renames, {syncs} syncs");
    format!("{} operations: {syncs} syncs, {renames} renames, {removes} removes", ops.len())
}

/// Runs `forebay run f.toml` in `dir` to its end.
fn run(dir: &Path, input: Option<&str>) -> (i32, String) {
    let mut command = std::process::Command::new(FOREBAY);
    command.args(["run", "f.toml"]).current_dir(dir).env_remove("STATE_DIRECTORY");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), input) {
        pipe.write_all(text.as_bytes()).expect("it reads its input");
    }
    outcome(&child.wait_with_output().expect("ends"))
}

/// The rows of a sink, over all its files in the order of their names, the open file last.
fn rows(dir: &Path) -> String {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect();
    names.retain(|path| path.extension().is_none_or(|extension| extension != "lock"));
    names.sort_by_key(|path| (path.extension().is_some_and(|extension| extension == "open"), path.clone()));
    names.iter().map(|path| std::fs::read_to_string(path).expect("text")).collect()
}

/// Cuts a recorded run, starts the executable on what is left, and lets `check` look at the directory and at what the
/// run showed before the cut. Gives what was wrong.
fn cut_runs(
    ops: &[Op],
    device: Device,
    count: u64,
    config: &str,
    check: impl Fn(&Path, &str) -> Result<(), String>,
) -> Vec<String> {
    let mut random = Random(count);
    let mut medium = Medium::new(ops, device);
    let scratch = scratch();
    let mut wrong = Vec::new();
    for cut in cuts(ops, count, &mut random) {
        medium.advance(cut);
        let shown = String::from_utf8_lossy(medium.live().file("out/rows.ndjson").unwrap_or_default()).into_owned();
        let image = medium.cut(&mut random);
        let dir = scratch.path().join("image");
        image.write(&dir);
        std::fs::write(dir.join("f.toml"), config).expect("writes");
        let (code, message) = run(&dir, None);
        let checked = if code == 0 { check(&dir, &shown) } else { Err(format!("exit code {code}: {message}")) };
        if let Err(what) = checked {
            wrong.push(format!("{}: {what}", image.about));
        }
        std::fs::remove_dir_all(&dir).expect("removes");
    }
    wrong
}

/// A source that can be read again: the output is the same bytes, whatever was lost.
#[test]
fn power_cuts_under_a_file_pipeline() {
    let place = Place::new();
    let input = place.write("input.ndjson", &readings(9, EVENTS, 20));
    let config = config("cuts", &format!("type = \"file\"\npath = {:?}", input.display().to_string()));
    place.write("f.toml", &config);
    assert_eq!(run(place.dir.path(), None).0, 0);
    let golden = ["out/tens.ndjson", "out/rows.ndjson"].map(|name| place.text(name));
    let rolled = rows(&place.path("rolled"));
    assert!(golden.iter().all(|text| text.len() > 10_000) && rolled == golden[1]);

    let Some(ops) = record(&config, None) else { return };
    let count = rounds("FOREBAY_CUTS", 400) / 8;
    let wrong = cut_runs(&ops, Device::Honest, count, &config, |dir, _| {
        for (name, golden) in ["out/tens.ndjson", "out/rows.ndjson"].iter().zip(&golden) {
            if std::fs::read_to_string(dir.join(name)).ok().as_ref() != Some(golden) {
                return Err(format!("{name} differs"));
            }
        }
        if rows(&dir.join("rolled")) == rolled { Ok(()) } else { Err("the rolled files differ".to_owned()) }
    });
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} cuts in {}", summary(&ops));
}

/// A source that cannot be read again: what any sink had shown stays, as the beginning of what comes out.
#[test]
fn power_cuts_under_a_pipeline_that_cannot_read_again() {
    let input = readings(10, EVENTS, 20);
    let config = config("cuts", "type = \"stdin\"");
    let calm = Place::new();
    calm.write("f.toml", &config);
    assert_eq!(run(calm.dir.path(), Some(&input)).0, 0);
    let golden = calm.text("out/rows.ndjson");
    assert!(golden.len() > 100_000);

    let Some(ops) = record(&config, Some(&input)) else { return };
    let check = |dir: &Path, shown: &str| {
        let found = std::fs::read_to_string(dir.join("out/rows.ndjson")).unwrap_or_default();
        if !golden.starts_with(&found) {
            return Err("the output is not the beginning of what it should be".to_owned());
        }
        if !found.starts_with(shown) {
            return Err(format!("{} bytes of rows had been shown, {} are there", shown.len(), found.len()));
        }
        if rows(&dir.join("rolled")) == found { Ok(()) } else { Err("the rolled files differ".to_owned()) }
    };
    let count = rounds("FOREBAY_CUTS", 400) / 8;
    let wrong = cut_runs(&ops, Device::Honest, count, &config, check);
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} cuts in {}", summary(&ops));
    // A check that cannot fail is no check.
    for device in [Device::Lies, Device::LosesEntries] {
        let wrong = cut_runs(&ops, device, 24, &config, check);
        assert!(!wrong.is_empty(), "{device:?} was not noticed");
        println!("{device:?}: {} of 24 noticed, first {}", wrong.len(), wrong[0]);
    }
}

/// A sync that fails once ends the process, also if it says that space is wanting; the next start, on what a cut then
/// leaves, goes on. Only LMDB's own pages may be written and synced again (see `write_error` in src/checkpoint/lmdb.rs).
#[test]
fn a_sync_that_fails_once_ends_the_process_and_loses_nothing() {
    let place = Place::new();
    let input = place.write("input.ndjson", &readings(11, EVENTS, 20));
    let config = config("fails", &format!("type = \"file\"\npath = {:?}", input.display().to_string()));
    place.write("f.toml", &config);
    assert_eq!(run(place.dir.path(), None).0, 0);
    let golden = place.text("out/rows.ndjson");
    let mut ended = 0;
    for after in (0..200).step_by(13) {
        let errno = if after % 2 == 0 { Errno::EIO } else { Errno::ENOSPC };
        let faulty = Place::new();
        let Some(recorder) = recorder(faulty.path("disk"), Some(SyncFailure { after, errno })) else { return };
        std::fs::write(recorder.root.join("f.toml"), &config).expect("writes");
        let (code, message) = run(&recorder.root, None);
        let ops = recorder.finish();
        assert!(code == 74 || (code == 0 && after % 2 == 1), "sync {after}, {errno:?}: exit code {code}: {message}");
        ended += u32::from(code == 74);
        let mut medium = Medium::new(&ops, Device::Honest);
        medium.advance(ops.len());
        let scratch = scratch();
        let dir = scratch.path().join("image");
        medium.cut(&mut Random(after)).write(&dir);
        std::fs::write(dir.join("f.toml"), &config).expect("writes");
        let (code, message) = run(&dir, None);
        assert_eq!(code, 0, "after sync {after}: {message}");
        assert!(std::fs::read_to_string(dir.join("out/rows.ndjson")).expect("text") == golden, "after sync {after}");
    }
    assert!(ended >= 8, "{ended} of 16 failures ended the process");
}
