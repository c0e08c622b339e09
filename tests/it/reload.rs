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
