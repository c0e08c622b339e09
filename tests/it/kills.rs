//! The golden rule: for every input and every crash point, the bytes after recovery are the bytes without the crash.
//! The real executable is killed with SIGKILL at random moments and started again until its input is done.
//!
//! `FOREBAY_KILLS=2000 tests/run kill` for many: so many over all shapes, here, in `kills_join` and in `tcp`.

use std::time::Duration;

use crate::support::{Place, Random, readings, rounds};

/// A pipeline over a file, with every kind of output: windows, a cascade, a projection, late, dead.
fn config(checkpoint_ms: u64, delay_ms: u64) -> String {
    format!(
        r#"
[pipeline]
name = "kills"
state = "state"

[durability]
delay = "{delay_ms}ms"
bytes = "16KiB"

[checkpoint]
every = "{checkpoint_ms}ms"

[log]
max_size = "4MiB"
segment = "256KiB"

[source.plant]
type = "file"
path = "input.ndjson"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}

[query.tens]
sql = """
SELECT window_start AS s10, window_time AS wt, device, AVG(temp) AS t, SUM(temp) AS s, COUNT(*) AS n,
       COUNT(DISTINCT temp) AS d
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, window_time, device
"""

[query.minutes]
sql = """
SELECT window_start, MAX(t) AS hottest, SUM(n) AS n
FROM TABLE(TUMBLE(TABLE tens, DESCRIPTOR(wt), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end
"""

[query.hot]
sql = "SELECT ts, device, temp, _lsn AS lsn FROM plant WHERE temp > 99"

[query.both]
sql = "SELECT device, t AS x FROM tens WHERE t > 60 UNION ALL SELECT device, temp AS x FROM hot"

[sink.tens]
type = "file"
from = "tens"
path = "out/tens.ndjson"

[sink.minutes]
type = "file"
from = "minutes"
path = "out/minutes.csv"
format = "csv"

[sink.hot]
type = "file"
from = "hot"
path = "out/hot.ndjson"
roll_size = "8KiB"

[sink.both]
type = "file"
from = "both"
path = "out/both.ndjson"

[sink.late]
type = "file"
from = "tens.late"
path = "out/late.ndjson"

[sink.dead]
type = "file"
from = "plant.dead"
path = "out/dead.ndjson"
"#
    )
}

/// All output files by name. `_arrival` and LSNs depend on when the input was read, so rows are compared without them
/// where they appear.
fn outputs(place: &Place) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = std::fs::read_dir(place.path("out"))
        .expect("output")
        .map(|entry| {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            let text = place.text(&format!("out/{name}"));
            (name, text)
        })
        .filter(|(name, _)| !name.ends_with(".lock"))
        .collect();
    files.sort();
    files
}

fn without_stamps(files: Vec<(String, String)>) -> Vec<(String, String)> {
    let mask = |line: &str| -> String {
        let mut row: serde_json::Map<String, serde_json::Value> = match serde_json::from_str(line) {
            Ok(row) => row,
            Err(_) => return line.to_owned(),
        };
        for stamp in ["_arrival", "_lsn", "lsn"] {
            row.remove(stamp);
        }
        serde_json::Value::Object(row).to_string()
    };
    // Files of the rolled sink are cut by size, which the digits of LSNs change: compare their rows.
    let mut joined: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    for (name, text) in files {
        let base = name.split(['-', '.']).next().unwrap_or_default().to_owned();
        let masked: String = text.lines().map(|line| mask(line) + "\n").collect();
        joined.entry(base).or_default().push_str(&masked);
    }
    joined.into_iter().collect()
}

/// Kills of one shape: so many of every 200 that are asked for.
pub fn share(of_200: u64) -> u64 {
    (rounds("FOREBAY_KILLS", 200) * of_200).div_ceil(200)
}

#[test]
fn a_file_pipeline_gives_the_same_bytes_however_often_it_is_killed() {
    storm(60, |_, _| {});
}

/// The text of the configuration changes, though not what it says: each life first processes what is logged under the
/// old one, and takes the new one at a checkpoint.
#[test]
fn a_pipeline_whose_configuration_changes_between_kills_gives_the_same_bytes() {
    storm(50, |place, life| {
        let text = place.text("f.toml");
        let text = text.split("# life").next().unwrap_or_default();
        place.write("f.toml", &format!("{text}# life {life}\n"));
    });
}

/// `log = "position"`: the log refers to the input, and replays read it again.
fn by_position(text: &str) -> String {
    text.replace("path = \"input.ndjson\"\n", "path = \"input.ndjson\"\nlog = \"position\"\n")
}

#[test]
fn a_pipeline_that_logs_positions_gives_the_same_bytes_however_often_it_is_killed() {
    storm(50, |place, life| {
        if life == 0 {
            place.write("f.toml", &by_position(&place.text("f.toml")));
        }
    });
}

/// Payloads in one life, positions in the next.
#[test]
fn what_is_logged_may_change_between_kills() {
    storm(30, |place, life| {
        let text = place.text("f.toml").replace("log = \"position\"\n", "");
        place.write("f.toml", &if life % 2 == 0 { by_position(&text) } else { text });
    });
}

/// So many kills of every 200, over as many inputs as it takes; before each life `change` is called.
fn storm(of_200: u64, change: impl Fn(&Place, u64)) {
    let wanted = share(of_200);
    let mut kills = 0;
    let mut seed = 1;
    while kills < wanted {
        kills += killed_run(seed, 200_000, &change);
        seed += 1;
    }
    println!("{kills} kills over {} seeds", seed - 1);
}

/// Kills of one input at most: then its last life may end by itself, so that a slow machine comes to an end, too.
const KILLS_MAX: u64 = 25;

/// Starts `f.toml` and kills it until it is done; a third of the lives are so short that most end while it recovers.
/// Gives the number of kills.
pub fn kill_until_done(place: &Place, seed: u64, random: &mut Random, change: impl Fn(u64)) -> u64 {
    let mut kills = 0;
    loop {
        change(kills);
        let mut running = place.start("f.toml");
        if kills == KILLS_MAX {
            let code = running.wait(Duration::from_secs(300));
            assert_eq!(code, 0, "seed {seed}, after {kills} kills: {}", place.text("stderr.txt"));
            return kills;
        }
        let longest = if random.below(3) == 0 { 40 } else { 400 };
        std::thread::sleep(Duration::from_millis(5 + random.below(longest)));
        match running.child.try_wait().expect("a child") {
            Some(status) => {
                assert!(status.success(), "seed {seed}, after {kills} kills: {}", place.text("stderr.txt"));
                return kills;
            }
            None => {
                running.kill();
                kills += 1;
            }
        }
    }
}

/// One input, killed until it is done. Gives the number of kills.
fn killed_run(seed: u64, events: u64, change: impl Fn(&Place, u64)) -> u64 {
    let mut random = Random(seed);
    let input = readings(seed, events, 40);
    let text = config(20 + random.below(150), random.below(20));

    let calm = Place::new();
    calm.write("input.ndjson", &input);
    calm.write("f.toml", &text);
    let output = calm.forebay(&["run", "f.toml"]);
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));

    let stormy = Place::new();
    stormy.write("input.ndjson", &input);
    stormy.write("f.toml", &text);
    let kills = kill_until_done(&stormy, seed, &mut random, |life| change(&stormy, life));
    let (expected, found) = (outputs(&calm), outputs(&stormy));
    // Names and bytes of what no stamp is in.
    for name in ["tens.ndjson", "minutes.csv", "both.ndjson"] {
        let of = |files: &[(String, String)]| files.iter().find(|(n, _)| n == name).map(|(_, text)| text.clone());
        assert!(of(&expected).is_some_and(|text| !text.is_empty()), "{name} has rows");
        let (expected, found) = (of(&expected).unwrap_or_default(), of(&found).unwrap_or_default());
        assert!(expected == found, "seed {seed}, {kills} kills: {name}: {}", difference(&expected, &found));
    }
    let (expected, found) = (without_stamps(expected), without_stamps(found));
    for (expected, found) in expected.iter().zip(&found) {
        let what = || format!("{}: {}", expected.0, difference(&expected.1, &found.1));
        assert!(expected == found, "seed {seed}, {kills} kills: {}", what());
    }
    assert_eq!(expected.len(), found.len(), "seed {seed}");
    kills
}

/// Where two texts begin to differ.
fn difference(expected: &str, found: &str) -> String {
    let line = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or_else(|| expected.lines().count().min(found.lines().count()));
    let show = |text: &str| text.lines().skip(line.saturating_sub(1)).take(3).collect::<Vec<_>>().join("\n  ");
    format!("from line {}:\nexpected\n  {}\nfound\n  {}", line + 1, show(expected), show(found))
}
