//! The commands as a person uses them: start, stop, start again, look inside; and what happens when a state is in use,
//! another's, read-only or finished.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Place, free_port, outcome, readings, until};

const PATIENCE: Duration = Duration::from_secs(30);

/// A pipeline over TCP that never ends by itself.
fn tcp_config(port: u16) -> String {
    format!(
        r#"
[pipeline]
name = "live"
state = "state"
[durability]
delay = "5ms"
[checkpoint]
every = "50ms"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
[query.tens]
sql = """
SELECT window_start, window_end, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND))
GROUP BY window_start, window_end, device
"""
[query.all_rows]
sql = "SELECT device, temp FROM plant"
[sink.tens]
type = "file"
from = "tens"
path = "out/tens.ndjson"
[sink.rows]
type = "file"
from = "all_rows"
path = "out/rows.ndjson"
"#
    )
}

fn connect(port: u16) -> TcpStream {
    until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok())
}

/// A pipeline over a file that ends.
fn file_config(name: &str) -> String {
    format!(
        r#"
[pipeline]
name = "{name}"
state = "state"
[source.plant]
type = "file"
path = "input.ndjson"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", temp = "DOUBLE" }}
time = {{ column = "ts", max_out_of_orderness = "500ms" }}
[query.minutes]
sql = """
SELECT window_start, device, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, device
"""
[sink.minutes]
type = "file"
from = "minutes"
path = "out/{name}.ndjson"
"#
    )
}

#[test]
fn a_stop_fires_no_window_and_the_next_start_goes_on() {
    let place = Place::new();
    let port = free_port();
    place.write("f.toml", &tcp_config(port));
    let running = place.start("f.toml");
    let mut socket = connect(port);
    let row =
        |second: u32| format!("{{\"ts\":\"2026-04-02T00:58:{second:02}.000Z\",\"device\":\"a\",\"temp\":{second}}}\n");
    for second in [1, 2, 3, 11] {
        socket.write_all(row(second).as_bytes()).expect("sends");
    }
    until(PATIENCE, "four rows come out", || (place.text("out/rows.ndjson").lines().count() == 4).then_some(()));
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    // 11 s with 500 ms of disorder closes the first window; the second stays open.
    let first = "{\"window_start\":\"2026-04-02T00:58:00.000\",\"window_end\":\"2026-04-02T00:58:10.000\",\"device\":\"a\",\"t\":2.0,\"n\":3}\n";
    assert_eq!(place.text("out/tens.ndjson"), first);

    let running = place.start("f.toml");
    let mut socket = connect(port);
    for second in [12, 21] {
        socket.write_all(row(second).as_bytes()).expect("sends");
    }
    until(PATIENCE, "two more rows come out", || (place.text("out/rows.ndjson").lines().count() == 6).then_some(()));
    assert_eq!(running.stop(), 0);
    let tens = place.text("out/tens.ndjson");
    let second = tens.strip_prefix(first).expect("the first window stands");
    assert!(second.contains("\"t\":11.5,\"n\":2}"), "the window that was open holds both rows: {second}");
    assert_eq!(second.lines().count(), 1);
}

#[test]
fn a_second_instance_is_refused_and_harms_nothing() {
    let place = Place::new();
    let port = free_port();
    place.write("f.toml", &tcp_config(port));
    let running = place.start("f.toml");
    let mut socket = connect(port);
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 75, "{message}");
    assert!(message.contains("another instance"), "{message}");
    socket.write_all(b"{\"ts\":\"2026-04-02T00:58:01.000Z\",\"device\":\"a\",\"temp\":1}\n").expect("sends");
    until(PATIENCE, "the first goes on", || (place.text("out/rows.ndjson").lines().count() == 1).then_some(()));
    assert_eq!(running.stop(), 0);
}

#[test]
fn a_finished_state_is_done_and_takes_no_new_input() {
    let place = Place::new();
    place.write("f.toml", &file_config("bounded"));
    place.write("input.ndjson", &readings(7, 2000, 3));
    assert_eq!(outcome(&place.forebay(&["run", "f.toml"])).0, 0);
    let rows = place.text("out/bounded.ndjson");
    assert!(!rows.is_empty());
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("nothing to do"), "{message}");
    assert_eq!(place.text("out/bounded.ndjson"), rows);

    let mut longer = std::fs::OpenOptions::new().append(true).open(place.path("input.ndjson")).expect("opens");
    longer.write_all(readings(8, 10, 3).as_bytes()).expect("writes");
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 78, "{message}");
    assert!(message.contains("follow = true"), "{message}");
    assert_eq!(place.text("out/bounded.ndjson"), rows);
}

#[test]
fn the_state_of_another_pipeline_is_refused_unharmed() {
    let place = Place::new();
    place.write("input.ndjson", &readings(7, 2000, 3));
    place.write("a.toml", &file_config("a"));
    place.write("b.toml", &file_config("b"));
    assert_eq!(outcome(&place.forebay(&["run", "a.toml"])).0, 0);
    let (code, message) = outcome(&place.forebay(&["run", "b.toml"]));
    assert_eq!(code, 78, "{message}");
    assert!(message.contains("belongs to the pipeline `a`"), "{message}");
    assert!(!place.path("out/b.ndjson").exists());
    assert_eq!(outcome(&place.forebay(&["run", "a.toml"])).0, 0);
    assert_eq!(outcome(&place.forebay(&["log", "verify", "state"])).0, 0);
}

#[test]
fn a_state_directory_that_cannot_be_made_is_a_clear_error() {
    let place = Place::new();
    place.write("input.ndjson", "");
    // A file where the directory should be: also root cannot write there.
    place.write("blocked", "");
    place.write("f.toml", &file_config("x").replace("state = \"state\"", "state = \"blocked/state\""));
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 74, "{message}");
    assert!(message.contains("blocked/state"), "{message}");
}

#[test]
fn an_output_file_that_holds_something_is_not_overwritten_by_a_new_state() {
    let place = Place::new();
    place.write("f.toml", &file_config("x"));
    place.write("input.ndjson", &readings(7, 100, 3));
    std::fs::create_dir(place.path("out")).expect("a directory");
    place.write("out/x.ndjson", "precious\n");
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_ne!(code, 0);
    assert!(message.contains("out/x.ndjson") && message.contains("append"), "{message}");
    assert_eq!(place.text("out/x.ndjson"), "precious\n");
}

#[test]
fn log_and_checkpoints_can_be_looked_at_while_the_engine_runs() {
    let place = Place::new();
    let port = free_port();
    place.write("f.toml", &tcp_config(port));
    let running = place.start("f.toml");
    let mut socket = connect(port);
    socket
        .write_all(b"{\"ts\":\"2026-04-02T00:58:01.000Z\",\"device\":\"pump\",\"temp\":1.5}\nnot json\n")
        .expect("sends");
    until(PATIENCE, "a row comes out", || (place.text("out/rows.ndjson").lines().count() == 1).then_some(()));

    let cat = place.forebay(&["log", "cat", "f.toml", "--source", "plant", "--format", "json"]);
    let records: Vec<serde_json::Value> =
        String::from_utf8_lossy(&cat.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(records.iter().any(|record| record["payload"] == "not json"), "{records:?}");
    let stat = place.forebay(&["log", "stat", "state", "--format=json"]);
    assert!(stat.status.success());
    assert_eq!(outcome(&place.forebay(&["log", "verify", "state"])).0, 0);

    let operator = "tens/window_aggregate/0";
    let dumped = until(PATIENCE, "a checkpoint holds the open window", || {
        let dump = place.forebay(&["checkpoint", "dump", "f.toml", operator, "--format=json"]);
        let text = String::from_utf8_lossy(&dump.stdout).into_owned();
        (dump.status.success() && text.contains("pump")).then_some(text)
    });
    let entry: serde_json::Value = serde_json::from_str(dumped.lines().next().expect("an entry")).expect("JSON");
    assert_eq!(entry["entry"]["AVG(temp)"], 1.5, "{entry}");
    assert_eq!(entry["entry"]["COUNT(*)"], 1, "{entry}");
    let list = place.forebay(&["checkpoint", "list", "state", "--format=json"]);
    let last: serde_json::Value =
        serde_json::from_str(String::from_utf8_lossy(&list.stdout).lines().last().expect("a checkpoint"))
            .expect("JSON");
    for key in ["id", "time", "lsn", "duration_us", "operators", "sinks"] {
        assert!(!last[key].is_null(), "{key}: {last}");
    }
    let show = place.forebay(&["checkpoint", "show", "state"]);
    assert!(String::from_utf8_lossy(&show.stdout).contains(operator));
    assert_eq!(running.stop(), 0);
}

#[test]
fn usage_errors_exit_64() {
    let place = Place::new();
    for arguments in
        [vec!["fly"], vec!["run"], vec!["log", "cat"], vec!["log", "cat", "nowhere"], vec!["run", "a", "b"]]
    {
        let (code, message) = outcome(&place.forebay(&arguments));
        assert_eq!(code, 64, "{arguments:?}: {message}");
        assert!(!message.is_empty());
    }
    let (code, _) = outcome(&place.forebay(&["--help"]));
    assert_eq!(code, 0);
    let version = place.forebay(&["--version"]);
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), format!("forebay {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_sample_and_the_shipped_configurations_are_valid() {
    let place = Place::new();
    let sample = place.forebay(&["sample"]);
    place.write("sample.toml", &String::from_utf8(sample.stdout).expect("UTF-8"));
    let (code, message) = outcome(&place.forebay(&["check", "sample.toml"]));
    assert_eq!(code, 0, "{message}");
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    for entry in std::fs::read_dir(shipped).expect("configs") {
        let path = entry.expect("an entry").path();
        for command in ["check", "explain"] {
            let (code, message) = outcome(&place.forebay(&[command, &path.display().to_string()]));
            assert_eq!(code, 0, "{}: {message}", path.display());
        }
    }
}

#[test]
fn check_warns_of_a_comparison_with_null_and_names_its_line() {
    let place = Place::new();
    let config =
        tcp_config(9000).replace("SELECT device, temp FROM plant", "SELECT device, temp FROM plant WHERE temp = NULL");
    place.write("f.toml", &config);
    let line = config.lines().position(|line| line.contains("= NULL")).expect("the line") + 1;
    let checked = place.forebay(&["check", "f.toml"]);
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    let warning = format!("warning: query all_rows, line {line}: `= NULL` is never true: write IS NULL");
    assert!(text.contains(&warning), "{text}");
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn explain_shows_the_plan_the_guarantees_and_what_bounds_state() {
    let place = Place::new();
    place.write("f.toml", &tcp_config(9000));
    let explained = place.forebay(&["explain", "f.toml"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    for part in ["exactly-once", "window", "10", "device", "open windows"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    // The same as JSON: every line of the tree is in it.
    let explained = place.forebay(&["explain", "f.toml", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&explained.stdout).expect("JSON");
    assert_eq!(json["pipeline"], "live");
    assert_eq!(json["sources"][0]["time_column"], "ts", "{json}");
    assert_eq!(json["sources"][0]["max_out_of_orderness_ms"], 500);
    let tens = json["queries"].as_array().unwrap().iter().find(|query| query["name"] == "tens").expect("the query");
    let aggregate = &tens["plan"]["inputs"][0];
    assert_eq!(aggregate["step"], "WindowAggregate", "{tens}");
    assert!(aggregate["state"].as_str().unwrap().contains("open windows"), "{tens}");
    assert!(
        aggregate["details"].as_array().unwrap().iter().any(|line| line == "TUMBLE 10s, on `ts` TIMESTAMP_LTZ(3)"),
        "{tens}"
    );
    assert_eq!(tens["plan"]["columns"][2], serde_json::json!({"name": "device", "type": "STRING"}));
    assert_eq!(json["sinks"][0]["guarantee"], "exactly-once");
    let script = place.forebay(&["explain", "f.toml", "--flink", "--format=json"]);
    let script: serde_json::Value = serde_json::from_slice(&script.stdout).expect("JSON");
    assert!(script["flink"].as_str().unwrap().contains("CREATE TABLE"), "{script}");
}

#[test]
fn a_changed_configuration_is_taken_after_the_tail_was_processed_under_the_old_one() {
    let place = Place::new();
    let port = free_port();
    let old = tcp_config(port);
    place.write("f.toml", &old);
    let mut running = place.start("f.toml");
    let mut socket = connect(port);
    let row =
        |second: u32| format!("{{\"ts\":\"2026-04-02T00:58:{second:02}.000Z\",\"device\":\"a\",\"temp\":{second}}}\n");
    socket.write_all(row(1).as_bytes()).expect("sends");
    until(PATIENCE, "a row comes out", || (place.text("out/rows.ndjson").lines().count() == 1).then_some(()));
    running.kill();
    // The projection changes; the window does not.
    place.write("f.toml", &old.replace("SELECT device, temp FROM plant", "SELECT device, temp, 'new' AS v FROM plant"));
    let running = place.start("f.toml");
    let mut socket = connect(port);
    for second in [2, 11] {
        socket.write_all(row(second).as_bytes()).expect("sends");
    }
    until(PATIENCE, "rows come out", || (place.text("out/rows.ndjson").lines().count() == 3).then_some(()));
    assert_eq!(running.stop(), 0);
    let rows = place.text("out/rows.ndjson");
    let shapes: Vec<bool> = rows.lines().map(|line| line.contains("new")).collect();
    assert_eq!(shapes, [false, true, true], "{rows}");
    assert!(place.text("out/tens.ndjson").contains("\"t\":1.5,\"n\":2"), "{}", place.text("out/tens.ndjson"));

    // A window that changes does not fit its state.
    place.write("f.toml", &old.replace("'10' SECOND", "'20' SECOND"));
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 78, "{message}");
    assert!(message.contains("`tens`"), "{message}");
}
