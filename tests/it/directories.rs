//! A directory where a file is expected is named as one, with what to do.

use crate::support::{Place, outcome};

const CONFIG: &str = r#"
[pipeline]
name = "p"
[source.plant]
type = "file"
path = "in.csv"
format = "csv"
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING" }
time = { column = "ts" }
[table.devices]
type = "file"
path = "devices.csv"
format = "csv"
key = ["id"]
columns = { id = "STRING", room = "STRING" }
[query.q]
sql = """SELECT p.device, d.room FROM plant AS p
JOIN devices FOR SYSTEM_TIME AS OF p._arrival AS d ON p.device = d.id"""
[sink.out]
type = "file"
from = "q"
path = "out.csv"
format = "csv"
"#;

#[test]
fn a_directory_in_the_place_of_a_file_is_named() {
    let place = Place::new();
    std::fs::create_dir(place.path("dir")).expect("creates");
    place.write("in.csv", "2026-04-02T00:00:01Z,a\n");
    place.write("devices.csv", "a,hall\n");
    let refused = |arguments: &[&str], expected: i32, parts: &[&str]| {
        let (code, message) = outcome(&place.forebay(arguments));
        assert_eq!(code, expected, "{arguments:?}: {message}");
        parts.iter().for_each(|part| assert!(message.contains(part), "{arguments:?}: {part} is not in: {message}"));
    };
    refused(&["check", "dir"], 78, &["dir", "it is a directory", "dir/forebay.toml"]);
    let once = CONFIG.replace("name = \"p\"", "name = \"p\"\non_source_error = \"fail\"");
    for (file, says) in [
        ("in.csv", "it is a directory, not a regular file: set `path` to a file"),
        ("devices.csv", "it is a directory; set the table's `path` to the file in it"),
        ("out.csv", "dir is a directory, and rows go into a file: set the sink's `path` to a file"),
    ] {
        place.write("f.toml", &once.replace(file, "dir"));
        refused(&["run", "f.toml"], 74, &["dir", says]);
        std::fs::remove_dir_all(place.path("state")).expect("removes");
    }
    place.write("f.toml", &once);
    refused(&["run", "f.toml"], 0, &[]);
}

#[test]
fn an_output_that_a_link_leads_into_the_state_or_onto_an_input_is_refused() {
    let place = Place::new();
    place.write("in.csv", "");
    place.write("devices.csv", "");
    std::fs::create_dir_all(place.path("var/state/log")).expect("creates");
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, place.path(from)).expect("links");
    link("var/state", "here");
    link("var", "there");
    link("../in.csv", "var/alias.csv");
    for (state, out, says) in [
        ("var/state", "here/log/out.csv", Some("is inside the state directory")),
        ("here", "var/state/out.csv", Some("is inside the state directory")),
        ("there/state", "var/state/new/out.csv", Some("is inside the state directory")),
        ("there/state", "there/alias.csv", Some("is a file that this pipeline reads")),
        ("var/state", "there/out.csv", None),
    ] {
        let text = CONFIG.replace("name = \"p\"", &format!("name = \"p\"\nstate = \"{state}\""));
        place.write("f.toml", &text.replace("\"out.csv\"", &format!("\"{out}\"")));
        let (code, message) = outcome(&place.forebay(&["check", "f.toml"]));
        match says {
            Some(says) => {
                assert_eq!(code, 78, "{state}, {out}: {message}");
                assert!(message.contains(says), "{state}, {out}: {message}");
            }
            None => assert_eq!(code, 0, "{state}, {out}: {message}"),
        }
    }
    // Two sinks onto one file, one of them by a link.
    let second = "[sink.other]\ntype = \"file\"\nfrom = \"q\"\npath = \"there/out.csv\"\n";
    place.write("f.toml", &(CONFIG.replace("\"out.csv\"", "\"var/out.csv\"") + second));
    let (code, message) = outcome(&place.forebay(&["check", "f.toml"]));
    assert_eq!(code, 78, "{message}");
    assert!(message.contains("both write"), "{message}");
}
