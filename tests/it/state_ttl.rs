//! `state_ttl` as a user meets it: `check` asks for it where state grows with the keys, `explain` tells what it does, and a
//! running pipeline, killed and started again, forgets by log time.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Place, free_port, outcome, stamp, until};

const PATIENCE: Duration = Duration::from_secs(60);

fn config(port: u16, ttl: &str) -> String {
    format!(
        "[pipeline]\nname = \"first\"\nstate = \"state\"\n[durability]\ndelay = \"10ms\"\n[source.plant]\ntype = \"tcp\"\nlisten = \
         \"127.0.0.1:{port}\"\ncolumns = {{ ts = \"TIMESTAMP_LTZ(3)\", device = \"STRING\" }}\ntime = {{ column = \"ts\" }}\n\
         [query.first]\nsql = \"SELECT ts, device FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts) AS rn FROM \
         plant) WHERE rn = 1\"\n{ttl}\n[sink.rows]\ntype = \"file\"\nfrom = \"first\"\npath = \"rows.ndjson\"\n"
    )
}

#[test]
fn check_asks_for_it_and_explain_shows_it() {
    let place = Place::new();
    place.write("open.toml", &config(9000, ""));
    place.write("bounded.toml", &config(9000, "state_ttl = \"7d\""));
    place.write("wrong.toml", &config(9000, "state_ttl = \"7 days\""));
    let text = |arguments: &[&str]| String::from_utf8_lossy(&place.forebay(arguments).stdout).into_owned();
    let checked = text(&["check", "open.toml"]);
    assert!(
        checked.contains("warning: query first: the deduplication keeps an entry of each key, for ever"),
        "{checked}"
    );
    assert!(checked.contains("state_ttl = \"7d\" in [query.first]"), "{checked}");
    let checked = text(&["check", "bounded.toml"]);
    assert!(!checked.contains("warning"), "{checked}");
    let report = text(&["check", "open.toml", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["warnings"].as_array().map(Vec::len), Some(1), "{report}");
    let explained = text(&["explain", "bounded.toml"]);
    assert!(explained.contains("state_ttl 7d:"), "{explained}");
    assert!(!text(&["explain", "open.toml"]).contains("state_ttl"));
    let (code, message) = outcome(&place.forebay(&["check", "wrong.toml"]));
    assert_eq!(code, 78, "{message}");
    assert!(message.contains("state_ttl"), "{message}");
}

#[test]
fn a_running_pipeline_forgets_over_a_crash() {
    let place = Place::new();
    let port = free_port();
    place.write("f.toml", &config(port, "state_ttl = \"1s\""));
    // Over one connection, since nothing orders two.
    let send = |readings: &[(u64, &str)]| {
        let mut socket = until(PATIENCE, "it listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        for (second, device) in readings {
            let ts = stamp(1_775_088_000_000 + second * 1000);
            let line = format!("{{\"ts\":\"{ts}\",\"device\":\"{device}\"}}\n");
            socket.write_all(line.as_bytes()).expect("sends");
        }
    };
    let devices = || -> Vec<String> {
        let text = place.text("rows.ndjson");
        let device = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("a row")["device"].to_string();
        text.lines().map(device).collect()
    };
    let mut running = place.start("f.toml");
    send(&[(1, "a"), (2, "b")]);
    until(PATIENCE, "a leaves", || (devices() == ["\"a\""]).then_some(()));
    running.kill();
    let running = place.start("f.toml");
    // As soon as a second has gone by, a row of `a` is a first one again.
    let mut second = 2;
    until(PATIENCE, "a comes again", || {
        second += 1;
        send(&[(second, "a")]);
        (devices().iter().filter(|device| *device == "\"a\"").count() == 2).then_some(())
    });
    assert_eq!(running.stop(), 0);
    assert_eq!(devices()[1], "\"b\"");
}
