//! `forebay test`: the shipped configurations pass their own tests; a failing one is explained (golden text).

use std::path::Path;

use serde_json::Value;

use crate::support::{Place, outcome};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_shipped_configurations_pass_their_tests() {
    let place = Place::new();
    let mut passed = 0;
    for entry in std::fs::read_dir(root().join("configs")).expect("configurations") {
        let path = entry.expect("an entry").path();
        let output = place.forebay(&["test", &path.to_string_lossy(), "--format=json"]);
        let (code, message) = outcome(&output);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(code, 0, "{}: {message}{shown}", path.display());
        let report: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(report["failed"], 0);
        assert!(report["passed"].as_u64() > Some(0), "{} has no test", path.display());
        passed += 1;
    }
    assert!(passed >= 4, "{passed} configurations");
    assert_eq!(std::fs::read_dir(place.dir.path()).expect("a directory").count(), 0, "nothing outside is touched");
}

/// The README's pipeline and its test, put together.
#[test]
fn the_readme_tells_the_truth() {
    let place = Place::new();
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let blocks = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    place.write("readme.toml", &blocks.collect::<String>());
    let output = place.forebay(&["test", "readme.toml"]);
    let (code, message) = outcome(&output);
    assert_eq!(code, 0, "{message}{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("1 passed, 0 failed\n"));
}

/// Each `flink_*.toml`: queries of Flink's own tests, under their names, with the rows that those expect.
#[test]
fn flink_answers() {
    let place = Place::new();
    let mut queries = 0;
    for entry in std::fs::read_dir(root().join("tests/golden/tests")).expect("tests") {
        let path = entry.expect("an entry").path();
        let is_flink = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("flink_"));
        if !is_flink {
            continue;
        }
        let output = place.forebay(&["test", &path.to_string_lossy()]);
        let (code, message) = outcome(&output);
        assert_eq!(code, 0, "{}: {message}{}", path.display(), String::from_utf8_lossy(&output.stdout));
        let text = std::fs::read_to_string(&path).expect("a test");
        queries += text.lines().filter(|line| line.ends_with(" = [")).count();
    }
    println!("{queries} queries of Flink's tests");
    assert!(queries >= 90, "{queries} queries");
}

#[test]
fn a_failed_test_shows_what_differs() {
    let place = Place::new();
    let golden = root().join("tests/golden/tests");
    std::fs::copy(golden.join("failing.toml"), place.path("failing.toml")).expect("a copy");
    let output = place.forebay(&["test", "failing.toml"]);
    let (code, message) = outcome(&output);
    assert_eq!((code, message.as_str()), (1, "error: 4 of 5 tests failed\n"));
    let shown = String::from_utf8_lossy(&output.stdout);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(golden.join("failing.txt"), shown.as_bytes()).expect("writes");
    }
    assert_eq!(shown, std::fs::read_to_string(golden.join("failing.txt")).unwrap_or_default());

    let output = place.forebay(&["test", "failing.toml", "--format", "json"]);
    assert_eq!(outcome(&output).0, 1);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["passed"], &report["failed"]), (&1.into(), &4.into()));
    let difference = &report["tests"][2]["differences"][0];
    assert_eq!(difference["stream"], "hot");
    assert_eq!(
        (difference["expected"].as_array().map(Vec::len), difference["found"].as_array().map(Vec::len)),
        (Some(2), Some(3))
    );
}

/// Idleness and windows of arrival times follow the times that the inputs bear.
#[test]
fn time_passes_as_the_inputs_say() {
    let place = Place::new();
    place.write(
        "p.toml",
        r#"
        pipeline = { name = "p" }
        [source.a]
        type = "tcp"
        listen = "127.0.0.1:9000"
        columns = { ts = "TIMESTAMP_LTZ(3)", n = "INT" }
        time = { column = "ts", idle = "30s" }
        [source.b]
        type = "tcp"
        listen = "127.0.0.1:9001"
        columns = { ts = "TIMESTAMP_LTZ(3)", n = "INT" }
        time = { column = "ts", idle = "30s" }
        [source.rare]
        type = "tcp"
        listen = "127.0.0.1:9002"
        columns = { n = "INT" }
        [query.both]
        sql = "SELECT ts, n FROM a UNION ALL SELECT ts, n FROM b"
        [query.sums]
        sql = """SELECT window_end, SUM(n) AS n FROM TUMBLE(TABLE `both`, DESCRIPTOR(ts), INTERVAL '1' SECOND)
                 GROUP BY window_start, window_end"""
        [query.arrived]
        sql = """SELECT window_end, COUNT(*) AS n FROM TUMBLE(TABLE rare, DESCRIPTOR(_arrival), INTERVAL '1' MINUTE)
                 GROUP BY window_start, window_end"""
        [sink.out]
        type = "stdout"
        from = "sums"

        [[test]]
        name = "the silent source is waited for"
        end = false
        [[test.input]]
        source = "a"
        at = "2026-04-02T12:00:00Z"
        rows = ['{"ts":"2026-04-02T00:00:00Z","n":1}', '{"ts":"2026-04-02T00:00:05Z","n":2}']
        [[test.input]]
        at = "2026-04-02T12:00:29.999Z"
        [test.expect]
        sums = []

        [[test]]
        name = "until it is idle, as the other one is then too"
        end = false
        [[test.input]]
        source = "a"
        at = "2026-04-02T12:00:00Z"
        rows = ['{"ts":"2026-04-02T00:00:00Z","n":1}', '{"ts":"2026-04-02T00:00:05Z","n":2}']
        [[test.input]]
        at = "2026-04-02T12:00:30Z"
        [test.expect]
        sums = ['{"window_end":"2026-04-02T00:00:01.000","n":1}']

        [[test]]
        name = "minutes of arrival"
        end = false
        [[test.input]]
        source = "rare"
        at = "2026-04-02T12:00:59Z"
        rows = '{"n":1}'
        [[test.input]]
        source = "rare"
        at = "2026-04-02T12:01:00Z"
        rows = '{"n":2}'
        [[test.input]]
        at = "2026-04-02T12:01:30Z"
        [test.expect]
        arrived = ['{"window_end":"2026-04-02T12:01:00.000","n":1}']
        "#,
    );
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
    // `check` knows the tests too.
    let checked = place.forebay(&["check", "p.toml"]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("3 tests"));
}
