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
