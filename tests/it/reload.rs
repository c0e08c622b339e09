//! SIGHUP: a changed configuration is taken by the same process, or refused while the pipeline goes on.

use std::fmt::Write as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, until};

const PATIENCE: Duration = Duration::from_secs(60);

fn config(query: &str) -> String {
    format!(
        r#"
[pipeline]
name = "reload"
state = "state"
[durability]
delay = "5ms"
[source.plant]
type = "file"
path = "input.ndjson"
follow = true
columns = {{ n = "INT" }}
[query.rows]
sql = "{query}"
[sink.rows]
from = "rows"
type = "file"
path = "out.ndjson"
"#
    )
}

const FIRST: &str =
    "SELECT n, COUNT(*) OVER (ORDER BY _arrival ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS c FROM plant";

#[test]
fn a_changed_configuration_is_taken_by_the_same_process_or_refused_while_it_goes_on() {
    let place = Place::new();
    place.write("f.toml", &config(FIRST));
    let mut given = 0;
    let mut give = |rows: usize| {
        for n in given + 1..=given + 5 {
            let mut text = place.text("input.ndjson");
            writeln!(text, "{{\"n\":{n}}}").expect("writes");
            place.write("input.ndjson", &text);
        }
        given += 5;
        until(PATIENCE, "rows come out", || (place.text("out.ndjson").lines().count() == rows).then_some(()));
    };
    let says = |text: &str, times: usize| {
        until(PATIENCE, text, || (place.text("stderr.txt").matches(text).count() == times).then_some(()));
    };
    place.write("input.ndjson", "");
    let mut running = place.start("f.toml");
    let pid = Pid::from_child(&running.child);
    let hang_up = || kill_process(pid, Signal::HUP).expect("the process is there");
    says("running;", 1);
    give(5);

    // Not valid: said, and nothing else happens.
    place.write("f.toml", &config("SELECT nn FROM plant"));
    hang_up();
    says("not taken", 1);
    give(10);
    // Valid, but the state does not fit.
    place.write("f.toml", &config(&FIRST.replace("2 PRECEDING", "3 PRECEDING")));
    hang_up();
    says("is not taken; the pipeline goes on under the old one", 1);
    give(15);
    // Another state.
    place.write("f.toml", &config(FIRST).replace("\"reload\"", "\"another\""));
    hang_up();
    says("it names another pipeline", 1);

    // A filter above the same operator: its state goes on.
    place.write("f.toml", &config(&format!("SELECT n, c FROM ({FIRST}) AS t WHERE n > 17")));
    hang_up();
    says("running;", 2);
    assert!(running.child.try_wait().expect("a child").is_none(), "the process goes on");
    give(18);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));

    let count = |n: usize| n.min(3);
    let wanted: String =
        (1..=20).filter(|n| !(16..=17).contains(n)).map(|n| format!("{{\"n\":{n},\"c\":{}}}\n", count(n))).collect();
    assert_eq!(place.text("out.ndjson"), wanted);
}

#[test]
fn a_stop_right_behind_a_reload_stops() {
    for pause_ms in [0, 1, 3, 10, 30] {
        let place = Place::new();
        place.write("f.toml", &config(FIRST));
        let rows: String = (0..20_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        place.write("input.ndjson", &rows);
        let mut running = place.start("f.toml");
        until(PATIENCE, "it runs", || place.text("stderr.txt").contains("running;").then_some(()));
        place.write("f.toml", &config(&format!("SELECT n, c FROM ({FIRST}) AS t WHERE n > 17")));
        let pid = Pid::from_child(&running.child);
        kill_process(pid, Signal::HUP).expect("the process is there");
        std::thread::sleep(Duration::from_millis(pause_ms));
        kill_process(pid, Signal::TERM).expect("the process is there");
        let ended = || running.child.try_wait().expect("a child");
        let status = until(PATIENCE, "the process ends", ended);
        // Where the signal met the moment in which one program takes the place of the other, it ended that at once.
        let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(Signal::TERM.as_raw());
        assert!(status.success() || killed, "{pause_ms} ms: {status}\n{}", place.text("stderr.txt"));
    }
}

#[test]
fn columns_that_the_header_of_a_file_does_not_fit_are_not_taken() {
    let place = Place::new();
    let csv = |columns: &str| {
        let text = config("SELECT n FROM plant").replace("{ n = \"INT\" }", columns);
        text.replace("[query.rows]", "format = \"csv\"\nheader = true\n[query.rows]")
    };
    place.write("f.toml", &csv("{ n = \"INT\" }"));
    place.write("input.ndjson", "n,p,p\n1,2,3\n");
    let out = |rows: usize| {
        until(PATIENCE, "rows come out", || (place.text("out.ndjson").lines().count() == rows).then_some(()));
    };
    let running = place.start("f.toml");
    out(1);
    // With its end the header is in the checkpoint.
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
    let running = place.start("f.toml");
    until(PATIENCE, "it runs again", || (place.text("stderr.txt").matches("running;").count() == 2).then_some(()));
    place.write("f.toml", &csv("{ n = \"INT\", p = \"INT\" }"));
    kill_process(Pid::from_child(&running.child), Signal::HUP).expect("the process is there");
    until(PATIENCE, "it says so", || {
        place.text("stderr.txt").contains("the columns do not fit what was read of the file before").then_some(())
    });
    place.write("input.ndjson", "n,p,p\n1,2,3\n4,5,6\n");
    out(2);
    assert_eq!(running.stop(), 0, "{}", place.text("stderr.txt"));
}
