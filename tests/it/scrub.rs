//! The background check: a state that is too large to be checked at the start is checked while the pipeline runs.

use std::fmt::Write as _;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use crate::support::{Place, outcome, stamp, until};

/// Over 64 MiB, what is checked at the start: 1.7 KB for each.
const DEVICES: u64 = 45_000;
const PATIENCE: Duration = Duration::from_secs(300);

const CONFIG: &str = r#"
[pipeline]
name = "scrub"
state = "state"
[checkpoint]
every = "500ms"
[source.plant]
type = "file"
path = "input.csv"
format = "csv"
follow = true
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING" }
time = { column = "ts" }
[query.texts]
sql = """
SELECT device, LISTAGG(REPEAT(device, 170)) AS text
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' DAY))
GROUP BY window_start, window_end, device
"""
[sink.out]
type = "file"
from = "texts"
path = "out.ndjson"
"#;

#[test]
fn a_flipped_bit_in_a_large_state_stops_the_running_engine() {
    let place = Place::new();
    place.write("s.toml", CONFIG);
    let mut input = String::new();
    for device in 0..DEVICES {
        writeln!(input, "{},d{device:09}", stamp(1_775_001_600_000 + device)).expect("writes");
    }
    place.write("input.csv", &input);
    let data = place.path("state/checkpoint/data.mdb");
    let running = place.start("s.toml");
    let entries = || {
        let show = place.forebay(&["checkpoint", "list", "state", "--format", "json"]);
        String::from_utf8_lossy(&show.stdout).contains(&format!("\"keys\":{DEVICES}")).then_some(())
    };
    until(PATIENCE, "all is checkpointed", || {
        std::thread::sleep(Duration::from_millis(200));
        entries()
    });
    let (code, text) = outcome(&place.forebay(&["checkpoint", "verify", "state", "--rate", "1GiB"]));
    assert_eq!(code, 0, "beside the running engine: {text}");
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert!(std::fs::metadata(&data).expect("is there").len() > 64 << 20);

    // In every copy of one value, the live one among them.
    let bytes = std::fs::read(&data).expect("reads");
    let needle = b"d000031415d000031415d000031415";
    let file = std::fs::File::options().write(true).open(&data).expect("opens");
    let mut at = 0;
    let mut flipped = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memmem::find(rest, needle)) {
        file.write_all_at(&[bytes[at + found] ^ 1], (at + found) as u64).expect("writes");
        at += found + 2000;
        flipped += 1;
    }
    assert!(flipped > 0);

    let mut running = place.start("s.toml");
    assert_eq!(running.wait(PATIENCE), 65, "{}", place.text("stderr.txt"));
    let text = place.text("stderr.txt");
    assert!(text.contains("is corrupt: the checksum of a value does not match"), "{text}");
    assert!(text.contains("begin from a savepoint (`forebay checkpoint import FILE"), "{text}");
}
