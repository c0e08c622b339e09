//! Savepoints through the executable: exported while a pipeline runs, imported elsewhere, killed at any moment, damaged.
//!
//! `FOREBAY_EXPORT_KILLS=500 tests/run savepoint` for many kills; `FOREBAY_FLIPS=all` flips every bit of a savepoint.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::support::{Place, Random, outcome, readings, rounds, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A pipeline over a unix socket: every row goes to `rows`, so that its count tells how much input is in a checkpoint.
pub fn socket_config() -> String {
    r#"
[pipeline]
name = "live"
state = "state"
[durability]
delay = "2ms"
[checkpoint]
every = "30ms"
[log]
max_size = "4MiB"
segment = "256KiB"
[source.plant]
type = "unix"
path = "in.sock"
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }
time = { column = "ts", max_out_of_orderness = "500ms" }
[query.tens]
sql = """
SELECT window_start AS s10, window_time AS wt, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, window_time, device
"""
[query.minutes]
sql = """
SELECT window_start, MAX(t) AS hottest, SUM(n) AS n
FROM TABLE(TUMBLE(TABLE tens, DESCRIPTOR(wt), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end
"""
[query.every]
sql = "SELECT device, temp FROM plant"
[sink.rows]
type = "file"
from = "every"
path = "out/rows.ndjson"
[sink.tens]
type = "file"
from = "tens"
path = "out/tens.ndjson"
[sink.minutes]
type = "file"
from = "minutes"
path = "out/minutes.ndjson"
"#
    .to_owned()
}

const OUTPUTS: [&str; 3] = ["rows", "tens", "minutes"];

pub fn connect(place: &Place) -> UnixStream {
    until(PATIENCE, "the socket is there", || UnixStream::connect(place.path("in.sock")).ok())
}

pub fn lines_of(place: &Place, output: &str) -> usize {
    place.read(&format!("out/{output}.ndjson")).iter().filter(|byte| **byte == b'\n').count()
}

pub fn wait_for_rows(place: &Place, output: &str, count: usize) {
    until(PATIENCE, &format!("{count} rows of {output} come out"), || (lines_of(place, output) >= count).then_some(()));
}

/// Input that decodes line for line.
fn input(events: u64) -> String {
    readings(11, events, 20).lines().filter(|line| !line.contains("broken")).map(|line| format!("{line}\n")).collect()
}

fn first_lines(text: &str, count: usize) -> String {
    text.split_inclusive('\n').take(count).collect()
}

/// Rows that each sink has at the checkpoint of a state.
fn sink_rows(place: &Place, state: &str) -> Vec<usize> {
    let shown = place.forebay(&["checkpoint", "show", state, "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let sinks = shown["sinks"].as_array().expect("sinks");
    let rows = |name: &str| sinks.iter().find(|sink| sink["name"] == name).and_then(|sink| sink["rows"].as_u64());
    OUTPUTS.iter().map(|name| rows(name).expect("a count") as usize).collect()
}

fn ok(place: &Place, arguments: &[&str]) -> String {
    let output = place.forebay(arguments);
    let (code, message) = outcome(&output);
    assert_eq!(code, 0, "{arguments:?}: {message}");
    String::from_utf8(output.stdout).expect("text")
}

fn refused(place: &Place, arguments: &[&str], expected: i32, part: &str) {
    let (code, message) = outcome(&place.forebay(arguments));
    assert_eq!(code, expected, "{arguments:?}: {message}");
    assert!(message.contains(part), "{arguments:?}: {message}");
}

#[test]
fn a_live_pipeline_is_exported_while_it_runs_and_another_goes_on_from_there() {
    let a = Place::new();
    a.write("f.toml", &socket_config());
    let input = input(150_000);
    let running = a.start("f.toml");
    let mut socket = connect(&a);
    let sent = input.clone();
    let feeder = std::thread::spawn(move || {
        for piece in sent.as_bytes().chunks(40_000) {
            socket.write_all(piece).expect("sends");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    wait_for_rows(&a, "rows", 20_000);
    let before = lines_of(&a, "rows");
    let said = ok(&a, &["checkpoint", "export", "f.toml", "a.savepoint"]);
    assert!(said.contains("exported checkpoint"), "{said}");
    wait_for_rows(&a, "rows", before + 20_000);
    ok(&a, &["checkpoint", "export", "state", "b.savepoint"]);
    let all = input.lines().count();
    wait_for_rows(&a, "rows", all);
    feeder.join().expect("sent all");
    assert_eq!(running.stop(), 0, "{}", a.text("stderr.txt"));

    for savepoint in ["a.savepoint", "b.savepoint"] {
        ok(&a, &["checkpoint", "verify", savepoint]);
        let b = Place::new();
        b.write("f.toml", &socket_config());
        std::fs::copy(a.path(savepoint), b.path(savepoint)).expect("copies");
        ok(&b, &["checkpoint", "import", savepoint, "f.toml"]);
        ok(&b, &["checkpoint", "verify", "state"]);
        ok(&b, &["log", "verify", "state"]);
        let rows = sink_rows(&b, "state");
        assert!(rows[0] >= 10_000 && rows[0] < all, "{savepoint} is of the middle: {rows:?}");
        std::fs::create_dir(b.path("out")).expect("creates");
        for (output, count) in OUTPUTS.iter().zip(&rows) {
            let name = format!("out/{output}.ndjson");
            b.write(&name, &first_lines(&a.text(&name), *count));
        }
        let mut running = b.start("f.toml");
        let rest: Vec<&str> = input.split_inclusive('\n').skip(rows[0]).collect();
        // Also through a crash.
        let (first, second) = rest.split_at(rest.len() / 2);
        connect(&b).write_all(first.concat().as_bytes()).expect("sends");
        wait_for_rows(&b, "rows", rows[0] + first.len());
        running.kill();
        let running = b.start("f.toml");
        connect(&b).write_all(second.concat().as_bytes()).expect("sends");
        wait_for_rows(&b, "rows", all);
        assert_eq!(running.stop(), 0, "{}", b.text("stderr.txt"));
        for output in OUTPUTS {
            let name = format!("out/{output}.ndjson");
            assert!(!a.read(&name).is_empty() && a.read(&name) == b.read(&name), "{savepoint}: {name}");
        }
    }
}

/// A pipeline over a file, with a state of many keys.
fn file_config() -> String {
    r#"
[pipeline]
name = "bounded"
state = "state"
[checkpoint]
every = "20ms"
[source.plant]
type = "file"
path = "input.ndjson"
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }
time = { column = "ts", max_out_of_orderness = "500ms" }
[query.rows]
sql = "SELECT device, temp FROM plant"
[query.tens]
sql = """
SELECT window_start, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, device
"""
[query.minutes]
sql = """
SELECT window_start, device, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' DAY))
GROUP BY window_start, window_end, device
"""
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
[sink.tens]
type = "file"
from = "tens"
path = "out/tens.ndjson"
[sink.minutes]
type = "file"
from = "minutes"
path = "out/minutes.ndjson"
"#
    .to_owned()
}

#[test]
fn the_position_in_a_file_goes_along() {
    let place = Place::new();
    place.write("f.toml", &file_config());
    place.write("input.ndjson", &readings(5, 200_000, 500));
    let mut running = place.start("f.toml");
    wait_for_rows(&place, "rows", 30_000);
    ok(&place, &["checkpoint", "export", "f.toml", "a.savepoint"]);
    assert_eq!(running.wait(PATIENCE), 0, "{}", place.text("stderr.txt"));
    let name = |output: &str| format!("out/{output}.ndjson");
    let expected: Vec<String> = OUTPUTS.iter().map(|output| place.text(&name(output))).collect();
    assert!(expected.iter().all(|text| !text.is_empty()));

    refused(&place, &["checkpoint", "import", "a.savepoint", "f.toml"], 64, "holds a state already");
    std::fs::rename(place.path("state"), place.path("old")).expect("moves");
    ok(&place, &["checkpoint", "import", "a.savepoint", "f.toml"]);
    let rows = sink_rows(&place, "state");
    assert!(rows[0] < expected[0].lines().count(), "the savepoint is of the middle");
    for (output, (text, count)) in OUTPUTS.iter().zip(expected.iter().zip(&rows)) {
        place.write(&name(output), &first_lines(text, *count));
    }
    let output = place.forebay(&["run", "f.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}", outcome(&output).1);
    for (output, text) in OUTPUTS.iter().zip(&expected) {
        assert!(place.text(&name(output)) == *text, "{output}");
    }
    // Both have come to the same end.
    let diff = ok(&place, &["checkpoint", "diff", "old", "state", "--format", "json"]);
    assert!(diff.lines().all(|line| line.contains("\"changed\":0") && line.contains("\"only_a\":0")), "{diff}");
}

/// A stopped socket pipeline with rows in open windows, and its savepoint `a.savepoint`.
fn stopped() -> Place {
    let place = Place::new();
    place.write("f.toml", &socket_config());
    let running = place.start("f.toml");
    let text = input(25_000);
    connect(&place).write_all(text.as_bytes()).expect("sends");
    wait_for_rows(&place, "rows", text.lines().count());
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    ok(&place, &["checkpoint", "export", "f.toml", "a.savepoint"]);
    place
}

#[test]
fn on_a_new_machine_the_sinks_can_begin_anew() {
    let old = stopped();
    let place = Place::new();
    place.write("f.toml", &socket_config());
    std::fs::copy(old.path("a.savepoint"), place.path("a.savepoint")).expect("copies");
    ok(&place, &["checkpoint", "import", "a.savepoint", "f.toml"]);
    // The output is not here: refused, with the way out.
    refused(&place, &["run", "f.toml"], 65, "--fresh-sinks");
    std::fs::remove_dir_all(place.path("state")).expect("removes");
    std::fs::remove_dir_all(place.path("out")).expect("removes");
    ok(&place, &["checkpoint", "import", "a.savepoint", "f.toml", "--fresh-sinks"]);
    let row = |second: u32| format!("{{\"ts\":\"2026-04-02T00:59:{second:02}.000Z\",\"device\":\"z\",\"temp\":1}}\n");
    let mut running = place.start("f.toml");
    connect(&place).write_all((row(1) + &row(30)).as_bytes()).expect("sends");
    wait_for_rows(&place, "rows", 2);
    wait_for_rows(&place, "tens", 1);
    running.kill();
    let running = place.start("f.toml");
    connect(&place).write_all(row(31).as_bytes()).expect("sends");
    wait_for_rows(&place, "rows", 3);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert_eq!(sink_rows(&place, "state")[0], 3, "rows are counted from the beginning of the sink");
    // Windows that were open at the cut hold their rows.
    let counted: u64 = place
        .text("out/tens.ndjson")
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["n"].as_u64().expect("a count"))
        .sum();
    assert!(counted > 1000, "{}", place.text("out/tens.ndjson"));
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let place = stopped();
    refused(&place, &["checkpoint", "export", "f.toml", "a.savepoint"], 64, "a.savepoint is there already");
    refused(&place, &["checkpoint", "export", "f.toml", "no/such/a.savepoint"], 74, "no/such");
    refused(&place, &["checkpoint", "import", "nothing", "new"], 74, "nothing");
    refused(&place, &["checkpoint", "import", "f.toml", "new"], 65, "does not begin as a savepoint does");
    refused(&place, &["checkpoint", "import", "a.savepoint", "g.toml"], 64, "no configuration file");
    place.write("other.toml", &socket_config().replace("\"live\"", "\"other\"").replace("\"state\"", "\"new\""));
    refused(&place, &["checkpoint", "import", "a.savepoint", "other.toml"], 78, "`live`");
    refused(&place, &["checkpoint", "diff", "a.savepoint", "a.savepoint"], 64, "the same");
    assert!(!place.path("new").exists() && !place.path(".new.import").exists());
    refused(&place, &["checkpoint", "import", "f.toml", "a.savepoint"], 64, "name the one to import first");
    refused(&place, &["checkpoint", "list", "a.savepoint"], 64, "a.savepoint is a savepoint");
    // An output that has gone on since: what it holds beyond is no lost log, but it is not of this state either.
    let running = place.start("f.toml");
    connect(&place).write_all(input(26_000).as_bytes()).expect("sends");
    wait_for_rows(&place, "rows", 30_000);
    assert_eq!(running.stop(), 0);
    std::fs::rename(place.path("state"), place.path("old")).expect("moves");
    ok(&place, &["checkpoint", "import", "a.savepoint", "f.toml"]);
    refused(&place, &["run", "f.toml"], 65, "out/");
}

#[test]
fn diff_shows_what_came_went_and_changed() {
    let place = stopped();
    ok(&place, &["checkpoint", "import", "a.savepoint", "copy"]);
    for pair in [["a.savepoint", "state"], ["state", "copy"]] {
        let same = ok(&place, &["checkpoint", "diff", pair[0], pair[1]]);
        let table: Vec<Vec<&str>> = same.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert!(table.len() == 2 && table.iter().all(|row| row[1..4] == ["0", "0", "0"]), "{same}");
    }
    let running = place.start("f.toml");
    let row = |ts: &str, device: &str| format!("{{\"ts\":\"{ts}\",\"device\":\"{device}\",\"temp\":55}}\n");
    let open = "2026-03-31T23:33:44.800Z";
    let before = lines_of(&place, "rows");
    connect(&place).write_all((row(open, "d1") + &row(open, "new")).as_bytes()).expect("sends");
    wait_for_rows(&place, "rows", before + 2);
    assert_eq!(running.stop(), 0);
    ok(&place, &["checkpoint", "export", "state", "b.savepoint"]);
    for b in ["state", "b.savepoint"] {
        let lines = ok(&place, &["checkpoint", "diff", "a.savepoint", b, "--format", "json"]);
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of = |change: &str| lines.iter().filter(|line| line["change"] == change).collect::<Vec<_>>();
        assert_eq!((of("changed").len(), of("only_b").len(), of("only_a").len()), (1, 1, 0), "{lines:?}");
        assert_eq!(of("only_b")[0]["b"]["device"], "new");
        assert_eq!((&of("changed")[0]["a"]["device"], &of("changed")[0]["b"]["device"]), (&"d1".into(), &"d1".into()));
        let count = |side: &str| of("changed")[0][side]["COUNT(*)"].as_u64().expect("a count");
        assert_eq!(count("a") + 1, count("b"));
        let total = lines.iter().find(|line| line["operator"] == "tens/window_aggregate/0" && !line["total"].is_null());
        assert_eq!(total.expect("totals")["total"]["only_b"], 1);
    }
    let text = ok(&place, &["checkpoint", "diff", "b.savepoint", "a.savepoint", "--limit", "1"]);
    assert_eq!(
        text.lines().filter(|line| line.starts_with(['~', ' '])).count(),
        1 + usize::from(text.contains('~')),
        "{text}"
    );
}

/// A stopped pipeline with a state of some size.
fn large() -> Place {
    let place = Place::new();
    place.write("f.toml", &file_config().replace("path = \"input.ndjson\"", "path = \"input.ndjson\"\nfollow = true"));
    let text = readings(9, 60_000, 50_000);
    place.write("input.ndjson", &text);
    let running = place.start("f.toml");
    wait_for_rows(&place, "rows", text.lines().filter(|line| !line.contains("broken")).count());
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    place
}

#[test]
fn a_kill_during_export_or_import_leaves_all_or_nothing() {
    let place = large();
    let mut random = Random(21);
    let kills = rounds("FOREBAY_EXPORT_KILLS", 20);
    let (mut killed, mut done) = ([0, 0], [0, 0]);
    let steps = [
        (["checkpoint", "export", "state", "a.savepoint"], "a.savepoint"),
        (["checkpoint", "import", "keep.savepoint", "new"], "new"),
    ];
    ok(&place, &["checkpoint", "export", "state", "keep.savepoint"]);
    let mut life_max_ms = [100, 100];
    while killed.iter().any(|killed| *killed < kills) {
        for (step, (arguments, result)) in steps.iter().enumerate() {
            let mut child = place.command(arguments).stdout(std::process::Stdio::null()).spawn().expect("starts");
            std::thread::sleep(Duration::from_millis(random.below(life_max_ms[step])));
            if child.try_wait().expect("a child").is_none() {
                killed[step] += 1;
                // Where most are killed, later ones live longer.
                life_max_ms[step] = (life_max_ms[step] * 5 / 4).min(5000);
            } else {
                done[step] += 1;
                life_max_ms[step] = (life_max_ms[step] / 2).max(4);
            }
            let _ = child.kill();
            let _ = child.wait();
            if place.path(result).exists() {
                ok(&place, &["checkpoint", "verify", result]);
                let diff = ok(&place, &["checkpoint", "diff", result, "state", "--format", "json"]);
                assert!(!diff.contains("\"change\""), "{diff}");
                if Path::new(result).extension().is_some() {
                    std::fs::remove_file(place.path(result)).expect("removes");
                } else {
                    ok(&place, &["log", "verify", result]);
                    std::fs::remove_dir_all(place.path(result)).expect("removes");
                }
            }
        }
    }
    println!("killed {killed:?} (exports, imports), {done:?} were done before");
    for (arguments, _) in steps {
        ok(&place, &arguments);
    }
    let left: Vec<String> = std::fs::read_dir(place.dir.path())
        .expect("lists")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".import") || name.ends_with(".export"))
        .collect();
    assert!(left.is_empty(), "the last ones have cleared up: {left:?}");
}

/// Neither is anything but what an import or export has left taken for that, nor a link for something that is full.
#[test]
fn what_others_keep_beside_a_savepoint_or_a_state_stays() {
    let place = stopped();
    ok(&place, &["checkpoint", "export", "f.toml", "b.savepoint.new"]);
    ok(&place, &["checkpoint", "export", "f.toml", "b.savepoint"]);
    ok(&place, &["checkpoint", "verify", "b.savepoint.new"]);
    ok(&place, &["checkpoint", "import", "a.savepoint", "c.new"]);
    refused(&place, &["checkpoint", "import", "f.toml", "c"], 65, "does not begin as a savepoint does");
    ok(&place, &["checkpoint", "import", "a.savepoint", "c"]);
    for state in ["c", "c.new"] {
        ok(&place, &["checkpoint", "verify", state]);
    }
    std::fs::create_dir(place.path("empty")).expect("creates");
    std::os::unix::fs::symlink("empty", place.path("link")).expect("links");
    ok(&place, &["checkpoint", "import", "a.savepoint", "link"]);
    ok(&place, &["checkpoint", "verify", "empty"]);
}

#[test]
fn every_flipped_bit_of_a_savepoint_is_found() {
    let bytes = include_bytes!("../golden/savepoint-v1/small.savepoint").to_vec();
    let all = std::env::var("FOREBAY_FLIPS").is_ok_and(|flips| flips == "all");
    let mut random = Random(4);
    let bits: Vec<usize> = if all {
        (0..bytes.len() * 8).collect()
    } else {
        (0..60).map(|_| random.below(bytes.len() as u64 * 8) as usize).collect()
    };
    let place = Place::new();
    for bit in bits {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(place.path("f.savepoint"), flipped).expect("writes");
        refused(&place, &["checkpoint", "verify", "f.savepoint"], 65, "f.savepoint");
        refused(&place, &["checkpoint", "import", "f.savepoint", "state"], 65, "f.savepoint");
        let left = std::fs::read_dir(place.dir.path()).expect("lists").count();
        assert_eq!(left, 1, "bit {bit}: nothing is left behind");
    }
}

#[test]
fn on_a_new_machine_the_input_can_be_a_copy() {
    let old = large();
    ok(&old, &["checkpoint", "export", "state", "a.savepoint"]);
    let place = Place::new();
    for name in ["a.savepoint", "f.toml", "input.ndjson"] {
        std::fs::copy(old.path(name), place.path(name)).expect("copies");
    }
    ok(&place, &["checkpoint", "import", "a.savepoint", "f.toml", "--fresh-sinks"]);
    let running = place.start("f.toml");
    let rest = "{\"ts\":\"2026-04-03T00:00:00.000Z\",\"device\":\"behind\",\"temp\":1}\n";
    let mut file = std::fs::OpenOptions::new().append(true).open(place.path("input.ndjson")).expect("opens");
    file.write_all(rest.as_bytes()).expect("writes");
    wait_for_rows(&place, "rows", 1);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert_eq!(place.text("out/rows.ndjson"), "{\"device\":\"behind\",\"temp\":1.0}\n");
    assert!(lines_of(&place, "minutes") > 1000, "the windows of before fire");
}
