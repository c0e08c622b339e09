//! Bits of a small log and a small checkpoint flipped one at a time, one process per flip: it ends with exit code 65, or
//! with the output of a clean run; never by a signal, never late, never with something else in the output.
//!
//! A sample in CI; `FOREBAY_FLIPS=5000 tests/run flips` for more, `FOREBAY_FLIPS=all tests/run flips` for every bit.
//!
//! The log's very last frame is the exception that the promise names: damaged, it cannot be told from a torn one and is
//! cut. Here its source is a file, which is read again.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Place, Random, Running, copy_dir, until};

const PATIENCE: Duration = Duration::from_secs(60);
const SAMPLE: u64 = 40;
const OUTPUTS: [&str; 2] = ["out/rows.ndjson", "out/minutes.ndjson"];

fn config(follow: bool) -> String {
    format!(
        r#"
[pipeline]
name = "flips"
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
type = "file"
path = "input.ndjson"
follow = {follow}
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", n = "INT" }}
time = {{ column = "ts" }}
[query.rows]
sql = "SELECT device, n FROM plant"
[query.minutes]
sql = """
SELECT window_start, device, SUM(n) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, device
"""
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
[sink.minutes]
type = "file"
from = "minutes"
path = "out/minutes.ndjson"
"#
    )
}

/// A pipeline that was killed with open windows in its checkpoint and a tail of several frames behind it.
fn killed() -> Place {
    let place = Place::new();
    place.write("f.toml", &config(true));
    // Ends where its input ends.
    place.write("g.toml", &config(false));
    place.write("input.ndjson", "");
    let mut given = 0;
    let mut give = |frames: usize| {
        for _ in 0..frames {
            let line = |n: usize| {
                format!("{{\"ts\":\"2026-04-02T01:{:02}:00Z\",\"device\":\"d{}\",\"n\":{n}}}\n", n / 2, n % 3)
            };
            let text: String = (given..given + 3).map(line).collect();
            let mut file = std::fs::OpenOptions::new().append(true).open(place.path("input.ndjson")).expect("opens");
            file.write_all(text.as_bytes()).expect("writes");
            given += 3;
            until(PATIENCE, "rows come out", || (place.text("out/rows.ndjson").lines().count() == given).then_some(()));
        }
    };
    let running = place.start("f.toml");
    give(3);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    let mut running = place.start("f.toml");
    give(4);
    running.kill();
    place
}

/// Runs to the end of the input, in time.
fn run(place: &Place) -> i32 {
    let errors = std::fs::File::create(place.path("stderr.txt")).expect("a file");
    let mut command = place.command(&["run", "g.toml"]);
    let child = command.stdout(Stdio::null()).stderr(errors).spawn().expect("starts");
    Running { child }.wait(PATIENCE)
}

/// How many flips of these, and which: all, or a sample by a seed.
fn chosen(bits: u64, seed: u64) -> Vec<u64> {
    let wanted = std::env::var("FOREBAY_FLIPS").unwrap_or_default();
    if wanted == "all" {
        return (0..bits).collect();
    }
    let mut random = Random(seed);
    (0..wanted.parse().unwrap_or(SAMPLE)).map(|_| random.below(bits)).collect()
}

/// Flips bits among the bytes of `file` that `concerned` takes.
fn flip(place: &Place, file: &Path, concerned: impl Fn(usize, &[u8]) -> bool, seed: u64) {
    // In place: a copy of the input would be another file.
    for directory in ["state", "out"] {
        copy_dir(&place.path(directory), &place.path(&format!("kept/{directory}")));
    }
    let restore = || {
        for directory in ["state", "out"] {
            std::fs::remove_dir_all(place.path(directory)).expect("removes");
            copy_dir(&place.path(&format!("kept/{directory}")), &place.path(directory));
        }
    };
    assert_eq!(run(place), 0, "{}", place.text("stderr.txt"));
    let expected = OUTPUTS.map(|name| place.text(name));
    assert!(expected.iter().all(|text| text.lines().count() > 5));
    restore();

    let whole = std::fs::read(place.dir.path().join(file)).expect("a file");
    let bytes: Vec<usize> = (0..whole.len()).filter(|at| concerned(*at, &whole)).collect();
    let (mut refused, mut harmless) = (0, 0);
    for bit in chosen(bytes.len() as u64 * 8, seed) {
        let (at, bit) = (bytes[(bit / 8) as usize], bit % 8);
        restore();
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << bit;
        std::fs::write(place.dir.path().join(file), damaged).expect("writes");
        let code = run(place);
        let context = || format!("byte {at}, bit {bit} of {}: {}", file.display(), place.text("stderr.txt"));
        match code {
            65 => {
                assert!(place.text("stderr.txt").contains("error:"), "{}", context());
                for (name, expected) in OUTPUTS.iter().zip(&expected) {
                    assert!(expected.starts_with(&place.text(name)), "{name}, {}", context());
                }
                refused += 1;
            }
            0 => {
                assert!(OUTPUTS.map(|name| place.text(name)) == expected, "{}", context());
                harmless += 1;
            }
            code => panic!("exit code {code}: {}", context()),
        }
    }
    println!("{}: {refused} flips refused, {harmless} harmless", file.display());
    assert!(refused > 0, "no flip was noticed");
}

#[test]
fn flips_in_the_log_are_refused_or_harmless() {
    let place = killed();
    let segments: Vec<PathBuf> = std::fs::read_dir(place.path("state/log"))
        .expect("a log")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|it| it == "segment"))
        .collect();
    let [segment] = segments.as_slice() else { panic!("{segments:?}") };
    let file = segment.strip_prefix(place.dir.path()).expect("within").to_owned();
    // The header, the frames, and a little behind them.
    let end = std::fs::read(segment).expect("a segment").iter().rposition(|byte| *byte != 0).expect("frames") + 64;
    flip(&place, &file, |at, _| at < end, 5);
}

/// LMDB does not check its pages: what is damaged must be refused, never read wrong.
#[test]
fn flips_in_the_checkpoint_are_refused_or_harmless() {
    let place = killed();
    flip(&place, Path::new("state/checkpoint/data.mdb"), |at, bytes| bytes[at] != 0, 11);
}
