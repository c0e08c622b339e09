//! A process that may not reserve 64 GiB of address space keeps its state in a smaller map.

use std::process::Command;

use crate::support::{FOREBAY, Place, outcome};

#[test]
fn a_limit_on_address_space_makes_the_map_smaller() {
    let place = Place::new();
    place.write(
        "a.toml",
        r#"
[pipeline]
name = "a"
state = "state"
[source.plant]
type = "file"
path = "input.ndjson"
columns = { n = "INT" }
[query.q]
sql = "SELECT n FROM plant"
[sink.out]
type = "file"
from = "q"
path = "out.ndjson"
"#,
    );
    place.write("input.ndjson", "{\"n\":1}\n");
    let mut limited = Command::new("sh");
    // KiB.
    limited.args(["-c", "ulimit -v 6000000 && exec \"$0\" run a.toml", FOREBAY]).current_dir(place.dir.path());
    let (code, errors) = outcome(&limited.output().expect("a shell"));
    assert_eq!(code, 0, "{errors}");
    assert_eq!(place.text("out.ndjson"), "{\"n\":1}\n");
    // And without the limit it is read as ever.
    let (code, errors) = outcome(&place.forebay(&["checkpoint", "verify", "state"]));
    assert_eq!(code, 0, "{errors}");
}
