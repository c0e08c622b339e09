//! What a power cut or bit rot does to the log, seen from the executable: a torn tail starts by itself, a damaged frame
//! before it refuses with exit code 65, naming file and offset.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Place, copy_dir, outcome, readings, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// A state whose log has a tail that no checkpoint covers: the pipeline was killed. Gives the place and the segment.
fn killed() -> (Place, PathBuf) {
    let place = Place::new();
    place.write(
        "f.toml",
        r#"
[pipeline]
name = "torn"
state = "state"
[durability]
delay = "0s"
bytes = "4KiB"
[checkpoint]
every = "1h"
[log]
max_size = "8MiB"
segment = "1MiB"
compression = "none"
[source.plant]
type = "file"
path = "input.ndjson"
follow = true
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }
[query.rows]
sql = "SELECT device, temp FROM plant WHERE device IS NOT NULL"
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
"#,
    );
    let input = readings(3, 600, 3);
    let rows = input.lines().filter(|line| !line.contains("broken")).count();
    // In pieces, so that there are several frames.
    place.write("input.ndjson", "");
    let mut running = place.start("f.toml");
    let lines: Vec<&str> = input.lines().collect();
    for piece in lines.chunks(100) {
        let before = place.text("out/rows.ndjson").lines().count();
        let mut file = std::fs::OpenOptions::new().append(true).open(place.path("input.ndjson")).expect("opens");
        file.write_all((piece.join("\n") + "\n").as_bytes()).expect("writes");
        until(PATIENCE, "rows come out", || (place.text("out/rows.ndjson").lines().count() > before).then_some(()));
    }
    until(PATIENCE, "all rows come out", || (place.text("out/rows.ndjson").lines().count() == rows).then_some(()));
    running.kill();
    let mut segments: Vec<PathBuf> = std::fs::read_dir(place.path("state/log"))
        .expect("a log")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| std::fs::metadata(path).is_ok_and(|m| m.len() == 1 << 20))
        .collect();
    segments.sort();
    let segment = segments
        .into_iter()
        .find(|path| std::fs::read(path).is_ok_and(|bytes| bytes.windows(6).any(|w| w == b"device")))
        .expect("a segment with records");
    (place, segment)
}

/// Where the frames of a segment begin, from `log verify`'s own walk over the magic numbers: the last non-zero byte ends
/// the last frame.
fn end_of_data(segment: &PathBuf) -> usize {
    let bytes = std::fs::read(segment).expect("a segment");
    bytes.iter().rposition(|byte| *byte != 0).expect("data") + 1
}

#[test]
fn a_torn_tail_starts_by_itself_and_the_output_is_whole() {
    let (place, segment) = killed();
    let expected = place.text("out/rows.ndjson");
    let end = end_of_data(&segment);
    copy_dir(&place.path("state"), &place.path("state.kept"));
    let bytes = std::fs::read(&segment).expect("a segment");
    // The last bytes of the last frame never reached the disk; its rows may have, or half of them.
    for (cut, output) in [(1usize, expected.len()), (7, expected.len() / 2), (40, expected.len() - 3), (200, 0)] {
        std::fs::remove_dir_all(place.path("state")).expect("removes");
        copy_dir(&place.path("state.kept"), &place.path("state"));
        let mut torn = bytes.clone();
        torn[end - cut..end].fill(0);
        std::fs::write(&segment, torn).expect("writes");
        std::fs::write(place.path("out/rows.ndjson"), &expected[..output]).expect("writes");
        std::fs::remove_file(place.path("stderr.txt")).expect("removes");
        let (code, message) = outcome(&place.forebay(&["log", "verify", "state"]));
        assert_eq!(code, 0, "cut {cut}: {message}");
        let running = place.start("f.toml");
        // The source is read again from where the log ends now.
        until(PATIENCE, "the tail is cut", || place.text("stderr.txt").contains("torn").then_some(()));
        until(PATIENCE, "the output is whole", || (place.text("out/rows.ndjson") == expected).then_some(()));
        assert_eq!(running.stop(), 0, "cut {cut}: {}", place.text("stderr.txt"));
        assert!(place.text("out/rows.ndjson") == expected, "cut {cut}");
    }
}

#[test]
fn a_flipped_bit_in_an_earlier_frame_refuses_with_file_and_offset() {
    let (place, segment) = killed();
    let bytes = std::fs::read(&segment).expect("a segment");
    let first = bytes.windows(6).position(|w| w == b"device").expect("a record");
    for bit in [0, 3, 7] {
        let copy = Place::new();
        copy_dir(place.dir.path(), copy.dir.path());
        let copied = copy.path("state/log").join(segment.file_name().expect("a name"));
        let mut damaged = bytes.clone();
        damaged[first + 20] ^= 1 << bit;
        std::fs::write(&copied, &damaged).expect("writes");
        let before = copy.text("out/rows.ndjson");
        for command in [vec!["log", "verify", "state"], vec!["run", "f.toml"]] {
            let (code, message) = outcome(&copy.forebay(&command));
            assert_eq!(code, 65, "{command:?}: {message}");
            let name = segment.file_name().expect("a name").to_string_lossy().into_owned();
            assert!(message.contains(&name) && message.contains("byte "), "{message}");
        }
        assert_eq!(copy.text("out/rows.ndjson"), before, "nothing was changed");
        assert_eq!(std::fs::read(&copied).expect("a segment"), damaged, "nothing was changed");
    }
}
