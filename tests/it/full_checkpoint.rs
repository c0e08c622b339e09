//! A disk that fills up while a checkpoint is written, not the log: the log's ring is as large as it becomes, and the
//! state grows. The engine waits, goes on when there is space, and a kill meanwhile changes nothing.

use std::time::Duration;

use crate::full::{SmallDisk, no_mount};
use crate::support::{Place, outcome, until};

const PATIENCE: Duration = Duration::from_secs(120);
const DEVICES: u64 = 40_000;
/// Room for the log, for the checkpoints of a small state, not for those of the whole one.
const LEFT_BYTES: u64 = 3 << 20;

fn place() -> Place {
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
every = "20ms"
[log]
max_size = "1MiB"
compression = "none"
[source.plant]
type = "file"
path = "input.ndjson"
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING", n = "INT" }
time = { column = "ts" }
[query.counts]
sql = """
SELECT window_start, device, COUNT(*) AS n, MAX(n) AS largest
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, device
"""
[sink.counts]
type = "file"
from = "counts"
path = "out/counts.ndjson"
"#,
    );
    let line = |n| format!("{{\"ts\":\"2026-04-02T00:00:00.000Z\",\"device\":\"device-number-{n}\",\"n\":{n}}}\n");
    place.write("input.ndjson", &(0..DEVICES).map(line).collect::<String>());
    place
}

fn golden() -> String {
    let calm = place();
    let output = calm.forebay(&["run", "f.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let golden = calm.text("out/counts.ndjson");
    assert_eq!(golden.lines().count() as u64, DEVICES);
    golden
}

#[test]
fn a_disk_that_fills_up_during_a_checkpoint_is_waited_for() {
    let golden = golden();
    for mount in [SmallDisk::mount, SmallDisk::mount_ext4] {
        let place = place();
        let Some(disk) = mount(place.path("disk")) else { return no_mount() };
        disk.fill_but(LEFT_BYTES);
        let is_full = || place.text("stderr.txt").contains("no space for a checkpoint").then_some(());
        let mut running = place.start("f.toml");
        until(PATIENCE, "the disk is full", is_full);
        assert!(running.child.try_wait().expect("a child").is_none(), "it waits: {}", place.text("stderr.txt"));

        // A kill now, and starts on the full disk: they wait, or end as a unit that is started again may.
        running.kill();
        std::fs::remove_file(place.path("stderr.txt")).expect("removes");
        let mut running = place.start("f.toml");
        let code = until(PATIENCE, "it waits or ends", || {
            is_full().map(|()| None).or_else(|| running.child.try_wait().expect("a child").map(Some))
        });
        if let Some(status) = code {
            assert_eq!(status.code(), Some(74), "{}", place.text("stderr.txt"));
        }
        disk.free();
        if code.is_some() {
            let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
            assert_eq!(code, 0, "{message}");
        } else {
            assert_eq!(running.wait(PATIENCE), 0, "{}", place.text("stderr.txt"));
        }
        assert!(place.text("out/counts.ndjson") == golden);
        let (code, message) = outcome(&place.forebay(&["checkpoint", "verify", "disk/state"]));
        assert_eq!(code, 0, "{message}");
    }
}
