//! Lookup tables: versions from a file, in the log and back.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use forebay::config;
use forebay::disk::RealDisk;
use forebay::engine::choices::Choices;
use forebay::engine::open::{Opened, Start, commit_now, open};
use forebay::event::{RecordKind, Run, SourceId};
use forebay::replay_log::{LogReader, log_dir};

use crate::support::{Place, Random, free_port, outcome, until};

const PATIENCE: Duration = Duration::from_secs(60);

fn pipeline(port: u16) -> String {
    format!(
        r#"
        [pipeline]
        name = "p"
        [durability]
        delay = "0s"
        [checkpoint]
        every = "20ms"
        [source.plant]
        type = "tcp"
        listen = "127.0.0.1:{port}"
        columns = {{ n = "INT", device = "STRING" }}
        [table.devices]
        type = "file"
        path = "devices.csv"
        format = "csv"
        header = true
        key = ["id"]
        columns = {{ id = "STRING", room = "STRING", most = "INT" }}
        [query.q]
        sql = """SELECT p.n, p.device, d.room FROM plant AS p
                 LEFT JOIN devices FOR SYSTEM_TIME AS OF p._arrival AS d ON p.device = d.id AND p.n < d.most"""
        [sink.out]
        type = "file"
        from = "q"
        path = "out.ndjson"
        "#
    )
}

const SECOND: &str = "id,room,most\nfan,attic,1000\nnew,hall,1000\n";

fn send(port: u16, line: &str) {
    let mut stream = until(PATIENCE, "the port is open", || TcpStream::connect(("127.0.0.1", port)).ok());
    writeln!(stream, "{line}").expect("sends");
}

fn rows(place: &Place, count: usize) -> String {
    until(PATIENCE, "the rows are there", || {
        let text = place.text("out.ndjson");
        (text.lines().count() >= count).then_some(text)
    })
}

fn messages(place: &Place, what: &str) {
    until(PATIENCE, what, || place.text("stderr.txt").contains(what).then_some(()));
}

/// The file changes, is broken, changes again; the process is killed in between; rows see what the log says.
#[test]
fn rows_see_the_version_that_was_in_force() {
    let place = Place::new();
    let port = free_port();
    place.write("p.toml", &pipeline(port));
    place.write("devices.csv", "id,room,most\nfan,cellar,1000\npump,yard,10\n");
    let mut running = place.start("p.toml");
    for (n, device) in [(1, "fan"), (2, "pump"), (20, "pump"), (3, "new")] {
        send(port, &format!("{{\"n\":{n},\"device\":\"{device}\"}}"));
        rows(&place, [1, 2, 20, 3].iter().position(|known| *known == n).expect("a number") + 1);
    }
    place.write("devices.csv", "id,room,most\nfan,attic,a lot\n");
    messages(&place, "devices.csv:2: ");
    send(port, "{\"n\":4,\"device\":\"fan\"}");
    rows(&place, 5);
    place.write("devices.csv", SECOND);
    let version = "a new version of the table is in force";
    until(PATIENCE, "the second version", || (place.text("stderr.txt").matches(version).count() >= 2).then_some(()));
    send(port, "{\"n\":5,\"device\":\"fan\"}");
    send(port, "{\"n\":6,\"device\":\"new\"}");
    rows(&place, 7);
    running.kill();

    // The file is gone: the version in the state goes on, and what is replayed sees what it saw.
    std::fs::remove_file(place.path("devices.csv")).expect("removes");
    let running = place.start("p.toml");
    messages(&place, "the version before stays in force");
    send(port, "{\"n\":7,\"device\":\"new\"}");
    rows(&place, 8);
    assert_eq!(running.stop(), 0);
    let mut found: Vec<String> = place.text("out.ndjson").lines().map(str::to_owned).collect();
    // Two connections may come in either order.
    found[5..7].sort();
    let expected = [
        r#"{"n":1,"device":"fan","room":"cellar"}"#,
        r#"{"n":2,"device":"pump","room":"yard"}"#,
        r#"{"n":20,"device":"pump","room":null}"#,
        r#"{"n":3,"device":"new","room":null}"#,
        r#"{"n":4,"device":"fan","room":"cellar"}"#,
        r#"{"n":5,"device":"fan","room":"attic"}"#,
        r#"{"n":6,"device":"new","room":"hall"}"#,
        r#"{"n":7,"device":"new","room":"hall"}"#,
    ];
    assert_eq!(found, expected);
    let log = place.forebay(&["log", "cat", "p.toml", "--source", "devices"]);
    assert_eq!(String::from_utf8_lossy(&log.stdout).matches("table_version").count(), 2);
}

/// Without any version there is nothing to go on with.
#[test]
fn a_first_start_needs_the_table() {
    let place = Place::new();
    place.write("p.toml", &pipeline(free_port()));
    let (code, message) = outcome(&place.forebay(&["run", "p.toml"]));
    assert_eq!(code, 74, "{message}");
    assert!(message.contains("cannot read the table devices from devices.csv"), "{message}");
    place.write("devices.csv", "id,room,most\na,b,1\na,c,2\n");
    let (code, message) = outcome(&place.forebay(&["run", "p.toml"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains("devices.csv:3: the key is that of line 2 again"), "{message}");
    place.write("devices.csv", &format!("id,room,most\n{}", "x,y,1\n".repeat(1 << 20)));
    let (code, message) = outcome(&place.forebay(&["run", "p.toml"]));
    assert_eq!(code, 65, "{message}");
    assert!(message.contains("devices.csv is larger than "), "{message}");
}

/// Order of the log decides, in tests of the configuration too, and INNER drops what has no match.
#[test]
fn a_version_holds_for_the_rows_behind_it() {
    let place = Place::new();
    let tests = r#"
        [query.inner]
        sql = """SELECT p.n, d.room FROM plant AS p
                 JOIN devices FOR SYSTEM_TIME AS OF p._arrival AS d ON d.id = p.device"""
        [[test]]
        name = "versions"
        [[test.input]]
        source = "plant"
        rows = '{"n":1,"device":"fan"}'
        [[test.input]]
        source = "devices"
        rows = """
        id,room,most
        fan,cellar,2
        """
        [[test.input]]
        source = "plant"
        rows = ['{"n":1,"device":"fan"}', '{"n":2,"device":"fan"}', '{"n":3}']
        [[test.input]]
        source = "devices"
        rows = "id,room,most"
        [[test.input]]
        source = "plant"
        rows = '{"n":4,"device":"fan"}'
        [test.expect]
        inner = ['{"n":1,"room":"cellar"}', '{"n":2,"room":"cellar"}']
        q = '''
        {"n":1,"device":"fan","room":null}
        {"n":1,"device":"fan","room":"cellar"}
        {"n":2,"device":"fan","room":null}
        {"n":3,"device":null,"room":null}
        {"n":4,"device":"fan","room":null}
        '''
    "#;
    place.write("p.toml", &(pipeline(9000) + tests));
    let output = place.forebay(&["test", "p.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}{}", outcome(&output).1, String::from_utf8_lossy(&output.stdout));
    let explained = place.forebay(&["explain", "p.toml"]);
    let shown = String::from_utf8_lossy(&explained.stdout);
    assert!(shown.contains("bounded by the size of the table `devices`"), "{shown}");
}

/// Versions among rows in one frame, checkpoints, and a crash in the middle: the same bytes at every batch size.
#[test]
fn batches_frames_and_crashes_change_nothing() {
    let outputs = [1, 7, 8192].map(|batch_rows| {
        let place = Place::new();
        let text = pipeline(9000)
            .replace("name = \"p\"", &format!("name = \"p\"\nstate = \"{}\"", place.path("state").display()));
        let text = text.replace("\"out.ndjson\"", &format!("\"{}\"", place.path("out.ndjson").display()));
        let config = config::parse("p.toml", &text).expect("a valid configuration");
        let opened = || -> Opened {
            match open(&config, batch_rows, &Choices::default()).expect("opens") {
                Start::Go(opened) => *opened,
                Start::Finished(_) => panic!("the state is finished already"),
            }
        };
        let mut state = opened();
        let mut meta = state.checkpoint.clone();
        let id = |state: &Opened, name: &str| -> SourceId {
            state.writer.sources().iter().find(|(_, known)| known == name).expect("an id").0
        };
        // What is logged is the same in all runs; where frames and checkpoints are is not.
        let (mut random, mut cuts) = (Random(7), Random(batch_rows as u64));
        let mut runs: Vec<Run> = Vec::new();
        for n in 0..600 {
            let now = state.clock.now();
            runs.push(if random.below(20) == 0 {
                let rows: String = (0..random.below(4)).map(|d| format!("d{d},room{n},{}\n", 300 + 100 * d)).collect();
                let content = format!("id,room,most\n{rows}");
                Run::one(id(&state, "devices"), RecordKind::TableVersion, now, content.as_bytes())
            } else {
                let row = format!("{{\"n\":{n},\"device\":\"d{}\"}}", random.below(4));
                Run::one(id(&state, "plant"), RecordKind::Data, now, row.as_bytes())
            });
            if cuts.below(30) == 0 || n == 599 {
                for frame in state.writer.append(std::mem::take(&mut runs)).expect("logs") {
                    state.engine.step(&frame).expect("steps");
                    state.engine.flush().expect("flushes");
                }
                if cuts.below(3) == 0 {
                    meta = commit_now(&config, &mut state.engine, &meta, &state.store, Vec::new()).expect("commits");
                }
            }
            if n == 300 {
                drop(state);
                state = opened();
                meta = state.checkpoint.clone();
                let next = state.engine.last_lsn().plus(1);
                let mut reader =
                    LogReader::open(Arc::new(RealDisk), &log_dir(&config.pipeline.state), next).expect("the log opens");
                while let Some(frame) = reader.next().expect("the log reads") {
                    state.engine.step(&frame).expect("steps");
                }
                state.engine.replayed().expect("no sink is ahead");
            }
        }
        state.engine.flush().expect("flushes");
        place.text("out.ndjson")
    });
    let (rows, found) = (outputs[0].lines().count(), outputs[0].matches("\"room\":\"room").count());
    assert!(rows > 500 && found > 50, "{rows} rows, {found} found");
    assert!(outputs[0] == outputs[1] && outputs[1] == outputs[2]);
}
