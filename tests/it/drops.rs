//! `log.when_full = "drop_newest"`: a source that cannot wait goes on behind a full log, what is dropped is counted
//! exactly and leaves gap records; a source that can wait loses nothing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, Running, free_port, outcome, until};

const PATIENCE: Duration = Duration::from_secs(60);
const SENT: usize = 120_000;
const FILE_ROWS: usize = 30_000;

fn place(port: u16) -> Place {
    let place = Place::new();
    place.write(
        "f.toml",
        &format!(
            r#"
[pipeline]
name = "drops"
state = "state"
memory = "8MiB"
[durability]
delay = "5ms"
[checkpoint]
every = "100ms"
[log]
max_size = "1MiB"
segment = "128KiB"
compression = "none"
when_full = "drop_newest"
[source.feed]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ n = "INT" }}
[source.plant]
type = "file"
path = "input.ndjson"
columns = {{ n = "INT" }}
[query.fed]
sql = "SELECT n FROM feed"
[query.planted]
sql = "SELECT n FROM plant"
[sink.fed]
from = "fed"
type = "stdout"
[sink.planted]
from = "planted"
type = "file"
path = "out/planted.ndjson"
"#
        ),
    );
    place.write("input.ndjson", &(0..FILE_ROWS).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>());
    place
}

/// Starts with standard output as a pipe that nobody reads yet, and sends more than log and queue hold: the sender is
/// never held up for long.
fn overfed(place: &Place, port: u16) -> (Running, TcpStream) {
    let errors = std::fs::File::create(place.path("stderr.txt")).expect("a file");
    let child = place.command(&["run", "f.toml"]).stdout(Stdio::piped()).stderr(errors).spawn().expect("starts");
    let running = Running { child };
    let mut socket = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok());
    socket.set_write_timeout(Some(PATIENCE)).expect("a timeout");
    let text: String = (0..SENT).map(|n| format!("{{\"n\":{n},\"pad\":\"{:040}\"}}\n", 0)).collect();
    socket.write_all(text.as_bytes()).expect("the source reads on");
    until(PATIENCE, "all that was sent is read", || is_drained(port).then_some(()));
    until(PATIENCE, "drops are told", || place.text("stderr.txt").contains("are dropped").then_some(()));
    (running, socket)
}

/// Whether the kernel holds nothing of the connections to this port.
fn is_drained(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("procfs");
    let port = format!(":{port:04X}");
    table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).all(|fields| {
        let concerned = fields[1].ends_with(&port) || fields[2].ends_with(&port);
        // State 0A: it listens; its queue is that of connections.
        !concerned || fields[3] == "0A" || fields[4] == "00000000:00000000"
    })
}

/// Records and losses of a source by the closing lines.
fn closing(place: &Place, source: &str) -> (usize, usize) {
    let text = place.text("stderr.txt");
    let line = text.lines().rfind(|line| line.contains(" read ") && line.contains(&format!("source={source}")));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let number = |name: &str| {
        let rest = line.split(&format!("{name}=")).nth(1).expect("a counter");
        rest.split_whitespace().next().unwrap().parse().expect("a number")
    };
    (number("records"), number("lost"))
}

#[test]
fn what_a_full_log_drops_is_counted_to_the_message_and_sources_that_can_wait_lose_nothing() {
    let port = free_port();
    let place = place(port);
    let (mut running, socket) = overfed(&place, port);
    let mut output = running.child.stdout.take().expect("a pipe");
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    drop(socket);
    until(PATIENCE, "the connection's end is logged", || {
        let cat = place.forebay(&["log", "cat", "state", "--source", "feed"]);
        String::from_utf8_lossy(&cat.stdout).contains(" disconnect ").then_some(())
    });
    until(PATIENCE, "the file is read", || {
        (place.text("out/planted.ndjson").lines().count() == FILE_ROWS).then_some(())
    });
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    let rows = reading.join().expect("reads").expect("UTF-8").lines().count();
    let (records, lost) = closing(&place, "feed");
    assert_eq!(records, rows);
    assert!(lost > 0 && records > 0);
    assert_eq!(records + lost, SENT, "{records} records, {lost} lost");
    assert_eq!(closing(&place, "plant"), (FILE_ROWS, 0));
}

#[test]
fn a_stop_behind_a_full_log_counts_what_it_could_not_take() {
    let port = free_port();
    let place = place(port);
    let (running, _socket) = overfed(&place, port);
    assert_eq!(running.stop(), 74, "{}", place.text("stderr.txt"));
    let cat = place.forebay(&["log", "cat", "state", "--format", "json", "--source", "feed"]);
    let (mut logged, mut lost) = (0, 0);
    for line in String::from_utf8_lossy(&cat.stdout).lines() {
        let record: Value = serde_json::from_str(line).expect("JSON");
        match record["kind"].as_str() {
            Some("data") => logged += 1,
            Some("gap") => {
                assert!(record["reason"].as_str().unwrap().contains("log was full"), "{record}");
                lost += record["messages"].as_u64().expect("known");
            }
            _ => {}
        }
    }
    assert!(logged > 0 && lost > 0);
    assert_eq!(logged + lost, SENT as u64, "{logged} logged, {lost} lost");
    let stat = place.forebay(&["log", "stat", "state"]);
    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
    assert!(stat.contains("feed gap: ") && stat.contains(&format!("lost {lost} messages")), "{stat}");
    // The next start goes on with it, and knows it, too.
    std::fs::remove_file(place.path("stderr.txt")).expect("removes");
    let running = place.start("f.toml");
    until(PATIENCE, "the log is replayed", || place.text("stderr.txt").contains("running;").then_some(()));
    until(PATIENCE, "the file is read", || {
        (place.text("out/planted.ndjson").lines().count() == FILE_ROWS).then_some(())
    });
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    assert_eq!(closing(&place, "feed"), (logged as usize, lost as usize));
    assert_eq!(outcome(&place.forebay(&["log", "verify", "state"])), (0, String::new()));
}
