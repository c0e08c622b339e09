//! Every type of source, every framing, and what a source can suffer, through the executable into files.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Place, Running, free_port, outcome, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A pipeline that copies `device` and `temp` of source `s` to `out/rows.ndjson`, and what it cannot decode to
/// `out/dead.ndjson`. `source` is the rest of the source's table.
fn copying(source: &str) -> String {
    format!(
        r#"
[pipeline]
name = "copying"
state = "state"
[durability]
delay = "5ms"
[checkpoint]
every = "50ms"
[source.s]
columns = {{ device = "STRING", temp = "DOUBLE" }}
{source}
[query.q]
sql = "SELECT device, temp FROM s"
[sink.rows]
type = "file"
from = "q"
path = "out/rows.ndjson"
[sink.dead]
type = "file"
from = "s.dead"
path = "out/dead.ndjson"
"#
    )
}

fn parsed(text: &str) -> Vec<Value> {
    // A line is complete with its end.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

/// The rows of an output once there are `count`.
fn rows(place: &Place, name: &str, count: usize) -> Vec<Value> {
    until(PATIENCE, &format!("{count} rows in {name}"), || {
        let rows = parsed(&place.text(name));
        (rows.len() >= count).then_some(rows)
    })
}

fn row(device: &str, temp: f64) -> Value {
    json!({ "device": device, "temp": temp })
}

/// Waits for a line of the log on standard error.
fn until_said(place: &Place, what: &str) {
    until(PATIENCE, what, || place.text("stderr.txt").contains(what).then_some(()));
}

fn connect(port: u16) -> TcpStream {
    until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok())
}

fn stopped(place: &Place, running: Running) {
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
}

#[test]
fn stdin_is_read_to_its_end() {
    let place = Place::new();
    place.write("f.toml", &copying("type = \"stdin\""));
    let mut child =
        place.command(&["run", "f.toml"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"{\"device\":\"a\",\"temp\":1}\nnot json\n{\"device\":\"b\",").expect("writes");
    rows(&place, "out/rows.ndjson", 1);
    input.write_all(b"\"temp\":2}").expect("writes");
    drop(input);
    let (code, message) = outcome(&child.wait_with_output().expect("ends"));
    assert_eq!(code, 0, "{message}");
    assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("a", 1.0), row("b", 2.0)]);
    let dead = rows(&place, "out/dead.ndjson", 1);
    assert_eq!((dead.len(), &dead[0]["_peer"]), (1, &json!("stdin")));
}

#[test]
fn udp_datagrams_are_messages() {
    let place = Place::new();
    let free = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    place.write("f.toml", &copying(&format!("type = \"udp\"\nbind = \"{address}\"")));
    let running = place.start("f.toml");
    until_said(&place, "the source listens");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for datagram in ["{\"device\":\"a\",\"temp\":1}", "", "{\"device\":\"b\",\n\"temp\":2}"] {
        socket.send_to(datagram.as_bytes(), address).expect("sends");
    }
    assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("a", 1.0), row("b", 2.0)]);
    let dead = rows(&place, "out/dead.ndjson", 1);
    assert_eq!(dead[0]["_peer"], json!(socket.local_addr().expect("an address").to_string()));
    stopped(&place, running);
}

#[test]
fn unix_sockets_of_both_kinds() {
    let place = Place::new();
    let path = place.path("in.sock");
    place.write("f.toml", &copying("type = \"unix\"\npath = \"in.sock\"\npermissions = \"0600\""));
    let running = place.start("f.toml");
    let mut first = until(PATIENCE, "the socket is there", || UnixStream::connect(&path).ok());
    let mut second = UnixStream::connect(&path).expect("connects");
    first.write_all(b"{\"device\":\"a\",").expect("sends");
    second.write_all(b"{\"device\":\"b\",\"temp\":2}\n").expect("sends");
    rows(&place, "out/rows.ndjson", 1);
    first.write_all(b"\"temp\":1}\n").expect("sends");
    assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("b", 2.0), row("a", 1.0)]);
    stopped(&place, running);
    assert!(!path.exists(), "the socket is removed at the end");

    let place = Place::new();
    let path = place.path("in.sock");
    place.write("f.toml", &copying("type = \"unix\"\npath = \"in.sock\"\nmode = \"datagram\""));
    let running = place.start("f.toml");
    let socket = UnixDatagram::unbound().expect("a socket");
    until(PATIENCE, "the socket is there", || socket.send_to(b"{\"device\":\"a\",\"temp\":1}", &path).ok());
    socket.send_to(b"{\"device\":\"b\",\"temp\":2}", &path).expect("sends");
    assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("a", 1.0), row("b", 2.0)]);
    stopped(&place, running);
}

#[test]
fn a_serial_line_that_is_unplugged_and_plugged_in_again() {
    let place = Place::new();
    let device = place.path("ttyTEST");
    let plug_in = || {
        let (far, near) = serialport::TTYPort::pair().expect("a pair of pseudo terminals");
        // The copy is not inherited by what other tests start, so that dropping it unplugs the line.
        let far = far.try_clone_native().expect("a copy");
        let name = serialport::SerialPort::name(&near).expect("a name");
        // Its own handle would keep the device locked.
        drop(near);
        std::os::unix::fs::symlink(name, &device).expect("a link");
        far
    };
    place.write(
        "f.toml",
        &copying("type = \"serial\"\ndevice = \"ttyTEST\"\nbaud = 115200\nformat = \"csv\"\nidle_flush = \"50ms\""),
    );
    let running = place.start("f.toml");
    until_said(&place, "no serial device");
    let mut far = plug_in();
    until_said(&place, "the serial device is open");
    far.write_all(b"a,1\r\nnoise\r\n").expect("writes");
    rows(&place, "out/rows.ndjson", 1);
    // Without a line end: the pause ends it.
    far.write_all(b"b,2").expect("writes");
    rows(&place, "out/rows.ndjson", 2);
    std::fs::remove_file(&device).expect("removes");
    drop(far);
    let mut far = plug_in();
    until(PATIENCE, "the device is open again", || {
        (place.text("stderr.txt").matches("the serial device is open").count() == 2).then_some(())
    });
    far.write_all(b"c,3\n").expect("writes");
    assert_eq!(rows(&place, "out/rows.ndjson", 3), [row("a", 1.0), row("b", 2.0), row("c", 3.0)]);
    assert_eq!(rows(&place, "out/dead.ndjson", 1)[0]["reason"], "the line has 1 field, but 2 are declared");
    stopped(&place, running);
}

#[test]
fn a_sensor_polls_files() {
    let place = Place::new();
    place.write("temp", "21500\n");
    let source = r#"
type = "sensor"
every = "20ms"
[source.s.read]
temp = { path = "te*p", scale = 0.001 }
load = { path = "/proc/loadavg", field = 0 }
total = { path = "/proc/meminfo", field = "MemTotal" }
"#;
    let text = copying(source)
        .replace("device = \"STRING\", temp = \"DOUBLE\"", "temp = \"DOUBLE\", load = \"DOUBLE\", total = \"BIGINT\"")
        .replace("SELECT device, temp", "SELECT temp, load, total");
    place.write("f.toml", &text);
    let running = place.start("f.toml");
    let first = rows(&place, "out/rows.ndjson", 1).remove(0);
    assert_eq!(first["temp"], 21.5);
    assert!(first["load"].as_f64().is_some_and(|load| load >= 0.0), "{first}");
    assert!(first["total"].as_u64().is_some_and(|kib| kib > 1000), "{first}");
    // Renamed into place: no poll sees half of it.
    place.write("new", "-3000\n");
    std::fs::rename(place.path("new"), place.path("temp")).expect("renames");
    until(PATIENCE, "the new reading", || {
        parsed(&place.text("out/rows.ndjson")).iter().any(|row| row["temp"] == -3.0).then_some(())
    });
    std::fs::remove_file(place.path("temp")).expect("removes");
    until(PATIENCE, "a reading that cannot be had is NULL", || {
        parsed(&place.text("out/rows.ndjson")).iter().any(|row| row["temp"].is_null()).then_some(())
    });
    stopped(&place, running);
}

#[test]
fn the_lines_of_a_command() {
    let place = Place::new();
    let command = "printf '{\"device\":\"%s\",\"temp\":1}\\n' a b; echo trouble >&2";
    let source = format!("type = \"exec\"\ncommand = [\"sh\", \"-c\", {command:?}]");
    place.write("once.toml", &copying(&format!("{source}\nrestart = \"never\"")));
    let (code, message) = outcome(&place.forebay(&["run", "once.toml"]));
    assert_eq!(code, 0, "{message}");
    assert!(message.contains("trouble"), "{message}");
    assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("a", 1.0), row("b", 1.0)]);

    let place = Place::new();
    place.write("f.toml", &copying(&source));
    let running = place.start("f.toml");
    let found = rows(&place, "out/rows.ndjson", 4);
    assert_eq!(found.get(..4), Some(&[row("a", 1.0), row("b", 1.0), row("a", 1.0), row("b", 1.0)][..]));
    stopped(&place, running);
}

/// A killed process must not leave its commands behind: each restart would add one.
#[test]
fn a_command_dies_with_the_process_that_is_killed() {
    let place = Place::new();
    let command = "echo \"{\\\"device\\\":\\\"$$\\\",\\\"temp\\\":1}\"; while :; do sleep 0.05; done";
    place.write("f.toml", &copying(&format!("type = \"exec\"\ncommand = [\"sh\", \"-c\", {command:?}]")));
    let mut running = place.start("f.toml");
    let device = rows(&place, "out/rows.ndjson", 1).remove(0)["device"].clone();
    let child = format!("/proc/{}", device.as_str().expect("a process id"));
    assert!(std::path::Path::new(&child).exists());
    running.kill();
    until(PATIENCE, "the command ends too", || (!std::path::Path::new(&child).exists()).then_some(()));
}

#[test]
fn a_file_is_followed_through_rotation_and_restarts() {
    let place = Place::new();
    place.write("f.toml", &copying("type = \"file\"\npath = \"app.log\"\nfollow = true"));
    place.write("app.log", "{\"device\":\"a\",\"temp\":1}\n");
    let append = |text: &str| {
        let mut file = std::fs::OpenOptions::new().append(true).open(place.path("app.log")).expect("opens");
        file.write_all(text.as_bytes()).expect("writes");
    };
    let mut running = place.start("f.toml");
    rows(&place, "out/rows.ndjson", 1);
    append("{\"device\":\"b\",\"temp\":2}\n{\"device\":");
    rows(&place, "out/rows.ndjson", 2);
    running.kill();
    // While it is away: the line is completed, the file rotated.
    append("\"c\",\"temp\":3}\n");
    std::fs::rename(place.path("app.log"), place.path("app.log.1")).expect("renames");
    place.write("app.log", "{\"device\":\"d\",\"temp\":4}\n");
    let running = place.start("f.toml");
    rows(&place, "out/rows.ndjson", 4);
    append("{\"device\":\"e\",\"temp\":5}\n");
    let expected = [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0), ("e", 5.0)].map(|(d, t)| row(d, t));
    assert_eq!(rows(&place, "out/rows.ndjson", 5), expected);
    assert_eq!(place.text("out/dead.ndjson"), "");
    stopped(&place, running);
}

#[test]
fn framings_over_tcp() {
    let (a, b) = ("a,1", "b,2");
    let prefixed =
        |text: &str| [&u16::try_from(text.len()).expect("short").to_be_bytes()[..], text.as_bytes()].concat();
    for (framing, bytes, bad) in [
        ("framing = \"delimiter\"\ndelimiter = \";\"", format!("{a};{b};").into_bytes(), None),
        ("framing = \"length\"\nlength = \"u16be\"", [prefixed(a), prefixed(b)].concat(), None),
        ("framing = \"fixed\"\nsize = 3", format!("{a}{b}").into_bytes(), None),
        (
            "framing = \"lines\"\nmax_length = \"3B\"",
            format!("{a}\nmuch too long\n{b}\n").into_bytes(),
            Some("longer than max_length, 3 bytes"),
        ),
    ] {
        let place = Place::new();
        let port = free_port();
        let source = format!("type = \"tcp\"\nlisten = \"127.0.0.1:{port}\"\nformat = \"csv\"\n{framing}");
        place.write("f.toml", &copying(&source));
        let running = place.start("f.toml");
        let mut socket = connect(port);
        let (front, back) = bytes.split_at(bytes.len() / 2);
        socket.write_all(front).expect("sends");
        socket.flush().expect("sends");
        socket.write_all(back).expect("sends");
        assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("a", 1.0), row("b", 2.0)], "{framing}");
        stopped(&place, running);
        let dead = place.text("out/dead.ndjson");
        assert!(bad.map_or(dead.is_empty(), |bad| dead.contains(bad)), "{framing}: {dead}");
    }
}

#[test]
fn a_tcp_source_can_connect_and_connects_again() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    place.write("f.toml", &copying(&format!("type = \"tcp\"\nconnect = \"{address}\"")));
    let running = place.start("f.toml");
    for (count, device) in [(1, "a"), (2, "b")] {
        let (mut socket, _) = listener.accept().expect("a connection");
        socket.write_all(format!("{{\"device\":\"{device}\",\"temp\":{count}}}\n").as_bytes()).expect("sends");
        rows(&place, "out/rows.ndjson", count);
    }
    assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("a", 1.0), row("b", 2.0)]);
    stopped(&place, running);
}

#[test]
fn every_connection_has_its_csv_header_also_after_a_restart() {
    let place = Place::new();
    let port = free_port();
    let source = format!("type = \"tcp\"\nlisten = \"127.0.0.1:{port}\"\nformat = \"csv\"\nheader = true");
    place.write("f.toml", &copying(&source));
    let mut running = place.start("f.toml");
    let mut first = connect(port);
    first.write_all(b"temp,other,device\n1,x,a\n").expect("sends");
    rows(&place, "out/rows.ndjson", 1);
    let mut second = connect(port);
    second.write_all(b"device,temp\nb,2\n").expect("sends");
    rows(&place, "out/rows.ndjson", 2);
    first.write_all(b"3,y,c\n").expect("sends");
    rows(&place, "out/rows.ndjson", 3);
    running.kill();
    let running = place.start("f.toml");
    let mut third = connect(port);
    third.write_all(b"temp,device\n4,d\n").expect("sends");
    let expected = [("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 4.0)].map(|(d, t)| row(d, t));
    assert_eq!(rows(&place, "out/rows.ndjson", 4), expected);
    assert_eq!(place.text("out/dead.ndjson"), "");
    stopped(&place, running);
}

#[test]
fn on_error_stop_stops_until_the_configuration_says_otherwise() {
    let place = Place::new();
    let port = free_port();
    let stop = copying(&format!("type = \"tcp\"\nlisten = \"127.0.0.1:{port}\"\non_error = \"stop\""));
    place.write("f.toml", &stop);
    let mut running = place.start("f.toml");
    let mut socket = connect(port);
    socket.write_all(b"{\"device\":\"a\",\"temp\":1}\n{\"device\":\"b\",\"temp\":\"hot\"}\n").expect("sends");
    assert_eq!(running.wait(PATIENCE), 65, "{}", place.text("stderr.txt"));
    let said = place.text("stderr.txt");
    let error = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_else(|| panic!("{said}"));
    for part in ["source s", "LSN ", "column `temp`", "\"hot\"", "on_error = \"stop\"", "dead_letter"] {
        assert!(error.contains(part), "{part} in: {error}");
    }
    // The same in every replay: what is logged stays.
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 65, "{message}");
    place.write("f.toml", &stop.replace("on_error = \"stop\"", "on_error = \"dead_letter\""));
    let running = place.start("f.toml");
    let mut socket = connect(port);
    socket.write_all(b"{\"device\":\"c\",\"temp\":3}\n").expect("sends");
    assert_eq!(rows(&place, "out/rows.ndjson", 2), [row("a", 1.0), row("c", 3.0)]);
    let dead = rows(&place, "out/dead.ndjson", 1);
    assert!(dead[0]["reason"].as_str().is_some_and(|reason| reason.contains("column `temp`")), "{dead:?}");
    stopped(&place, running);
}

#[test]
fn an_idle_source_does_not_hold_back_the_others() {
    let place = Place::new();
    let (busy, quiet) = (free_port(), free_port());
    let source = |name: &str, port: u16| {
        format!(
            "[source.{name}]\ntype = \"tcp\"\nlisten = \"127.0.0.1:{port}\"\n\
             columns = {{ ts = \"TIMESTAMP_LTZ(3)\", device = \"STRING\" }}\n\
             time = {{ column = \"ts\", idle = \"300ms\" }}\n"
        )
    };
    let text = format!(
        r#"
[pipeline]
name = "idle"
state = "state"
[durability]
delay = "5ms"
{}{}
[query.both]
sql = "SELECT ts, device FROM busy UNION ALL SELECT ts, device FROM quiet"
[query.seconds]
sql = """
SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE `both`, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end
"""
[sink.rows]
type = "file"
from = "seconds"
path = "out/rows.ndjson"
[sink.late]
type = "file"
from = "seconds.late"
path = "out/late.ndjson"
"#,
        source("busy", busy),
        source("quiet", quiet)
    );
    place.write("f.toml", &text);
    let running = place.start("f.toml");
    let mut busy = connect(busy);
    let mut quiet = connect(quiet);
    let reading = |second: u32| format!("{{\"ts\":\"2026-04-02T00:58:{second:02}.500Z\",\"device\":\"x\"}}\n");
    quiet.write_all(reading(1).as_bytes()).expect("sends");
    busy.write_all((reading(1) + &reading(5)).as_bytes()).expect("sends");
    // Only `busy` has gone beyond the first second, and then both are silent.
    let found = rows(&place, "out/rows.ndjson", 1);
    assert_eq!(found, [json!({ "window_start": "2026-04-02T00:58:01.000", "n": 2 })]);
    // Back from idleness, too late for its window.
    quiet.write_all(reading(1).as_bytes()).expect("sends");
    rows(&place, "out/late.ndjson", 1);
    stopped(&place, running);
}

#[test]
fn times_far_ahead_go_to_the_dead_and_move_nothing() {
    let place = Place::new();
    let port = free_port();
    let source =
        format!("type = \"tcp\"\nlisten = \"127.0.0.1:{port}\"\ntime = {{ column = \"ts\", max_future = \"1h\" }}");
    let text = copying(&source).replace("columns = { ", "columns = { ts = \"TIMESTAMP_LTZ(3)\", ").replace(
        "SELECT device, temp FROM s",
        "SELECT device, COUNT(*) AS temp FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' SECOND)) \
         GROUP BY window_start, window_end, device",
    );
    place.write("f.toml", &text);
    // A machine whose clock nobody vouches for judges no stamps.
    let running = place.start_on_wall_clock("f.toml");
    let mut socket = connect(port);
    let mut send = |ts: &str, device: &str| {
        socket.write_all(format!("{{\"ts\":\"{ts}\",\"device\":\"{device}\"}}\n").as_bytes()).expect("sends");
    };
    send("2026-04-02T00:58:01Z", "a");
    send("9000-01-01T00:00:00Z", "broken");
    send("2026-04-02T00:58:01Z", "a");
    send("2026-04-02T00:58:03Z", "a");
    let found = rows(&place, "out/rows.ndjson", 1);
    assert_eq!(found, [json!({ "device": "a", "temp": 2 })], "the broken clock closed no window");
    let dead = rows(&place, "out/dead.ndjson", 1);
    assert_eq!(dead[0]["reason"], "the event time is too far in the future");
    stopped(&place, running);
}

#[test]
fn a_row_on_which_an_expression_fails_goes_to_the_errors() {
    let place = Place::new();
    let text = copying("type = \"file\"\npath = \"input.ndjson\"")
        .replace("temp = \"DOUBLE\"", "temp = \"INT\"")
        .replace("SELECT device, temp", "SELECT device, 12 / temp AS temp")
        + "[sink.errors]\ntype = \"file\"\nfrom = \"q.errors\"\npath = \"out/errors.ndjson\"\n";
    place.write("f.toml", &text);
    place.write(
        "input.ndjson",
        "{\"device\":\"a\",\"temp\":5}\n{\"device\":\"b\",\"temp\":0}\n{\"device\":\"c\",\"temp\":null}\n",
    );
    let (code, message) = outcome(&place.forebay(&["run", "f.toml"]));
    assert_eq!(code, 0, "{message}");
    let expected = [json!({ "device": "a", "temp": 2 }), json!({ "device": "c", "temp": null })];
    assert_eq!(rows(&place, "out/rows.ndjson", 2), expected);
    let errors = rows(&place, "out/errors.ndjson", 1);
    assert_eq!(errors.len(), 1);
    assert!(errors[0]["reason"].as_str().is_some_and(|reason| reason.contains("zero")), "{errors:?}");
    let row: Value = serde_json::from_str(errors[0]["row"].as_str().expect("text")).expect("JSON");
    assert_eq!((&row["device"], &row["temp"]), (&json!("b"), &json!(0)));
    assert!(message.contains("errors=1"), "the run says so at its end: {message}");
}

#[test]
fn rows_on_standard_output() {
    let place = Place::new();
    let text = copying("type = \"file\"\npath = \"input.ndjson\"")
        .replace("type = \"file\"\nfrom = \"q\"\npath = \"out/rows.ndjson\"", "type = \"stdout\"\nfrom = \"q\"");
    place.write("f.toml", &text);
    place.write("input.ndjson", "{\"device\":\"a\",\"temp\":1}\n{\"device\":\"b\",\"temp\":2}\n");
    let output = place.forebay(&["run", "f.toml"]);
    assert_eq!(outcome(&output).0, 0, "{}", outcome(&output).1);
    // Nothing else goes there.
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "{\"device\":\"a\",\"temp\":1.0}\n{\"device\":\"b\",\"temp\":2.0}\n"
    );
}

#[test]
fn systemd_hears_when_it_is_ready_and_when_it_stops() {
    let place = Place::new();
    let port = free_port();
    // As a service: the state directory comes from systemd.
    let text = copying(&format!("type = \"tcp\"\nlisten = \"127.0.0.1:{port}\""));
    place.write("f.toml", &text.replace("state = \"state\"\n", ""));
    let notified = UnixDatagram::bind(place.path("notify.sock")).expect("a socket");
    notified.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let heard = || {
        let mut buffer = [0; 256];
        let length = notified.recv(&mut buffer).expect("a message in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let errors = std::fs::File::create(place.path("stderr.txt")).expect("a file");
    let child = place
        .command(&["run", "f.toml"])
        .env("NOTIFY_SOCKET", place.path("notify.sock"))
        .env("STATE_DIRECTORY", place.path("lib"))
        .env("JOURNAL_STREAM", "1:1")
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .expect("starts");
    let running = Running { child };
    assert_eq!(heard(), "READY=1");
    assert!(place.path("lib/log").is_dir());
    stopped(&place, running);
    assert_eq!(heard(), "STOPPING=1");
    let said = place.text("stderr.txt");
    assert!(said.lines().all(|line| line.trim_start().starts_with("INFO")), "without times and colours: {said}");
}
