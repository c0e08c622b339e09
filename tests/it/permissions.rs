//! What a process without the permission is told: which path, whose it is, and what to do. Where the tests run as root, the
//! process under test runs as another user; else as the same one, on paths whose mode forbids it.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{FOREBAY, Place, outcome, until};

/// `nobody`.
const OTHER: u32 = 65534;

const CONFIG: &str = r#"
[pipeline]
name = "p"
state = "state"
[source.plant]
type = "file"
path = "in.ndjson"
columns = { n = "BIGINT" }
[query.q]
sql = "SELECT n FROM plant"
[sink.out]
type = "file"
from = "q"
path = "q.ndjson"
"#;

fn mode(path: &Path, bits: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits)).expect("sets the mode");
}

/// The command without root's rights. The executable is a copy, where everybody reaches it.
fn unprivileged(place: &Place, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(place.path("forebay"));
    command.args(arguments).current_dir(place.dir.path()).env_remove("STATE_DIRECTORY").stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(OTHER).gid(OTHER);
    }
    let output = command.output().expect("forebay runs");
    let (code, message) = outcome(&output);
    // The hints of a start are not of interest here.
    (code, message.lines().filter(|line| line.starts_with("error:")).collect())
}

#[test]
fn a_refused_path_is_named_with_its_owner_and_the_remedy() {
    let place = Place::new();
    mode(place.dir.path(), 0o755);
    std::fs::copy(FOREBAY, place.path("forebay")).expect("a copy");
    mode(&place.path("forebay"), 0o755);
    place.write("f.toml", CONFIG);
    place.write("in.ndjson", "{\"n\":1}\n");
    assert_eq!(place.forebay(&["run", "f.toml"]).status.code(), Some(0));
    let owner = rustix::process::geteuid().as_raw();
    let user = if owner == 0 { OTHER } else { owner };
    for (forbidden, commands) in [
        ("state/LOCK", vec![vec!["run", "f.toml"], vec!["log", "repair", "state"]]),
        ("state/log", vec![vec!["log", "stat", "state"], vec!["log", "cat", "state"], vec!["log", "verify", "state"]]),
        ("state/log/000000000001.segment", vec![vec!["log", "cat", "state"]]),
        (
            "state/checkpoint",
            vec![vec!["run", "f.toml"], vec!["checkpoint", "list", "state"], vec!["checkpoint", "verify", "state"]],
        ),
        (
            "state/checkpoint/data.mdb",
            vec![
                vec!["run", "f.toml"],
                vec!["checkpoint", "show", "state"],
                vec!["checkpoint", "verify", "state"],
                vec!["checkpoint", "export", "state", "s.savepoint"],
            ],
        ),
    ] {
        // All but one path is open to everybody.
        let mut all = Vec::new();
        for name in ["state", "state/log", "state/checkpoint"] {
            all.push((place.path(name), 0o777));
            let entries = std::fs::read_dir(place.path(name)).expect("a directory");
            let files = entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
            all.extend(files.map(|path| (path, 0o666)));
        }
        all.iter().for_each(|(path, bits)| mode(path, *bits));
        mode(&place.path(forbidden), 0);
        for arguments in commands {
            let (code, message) = unprivileged(&place, &arguments);
            assert_eq!(code, 74, "{forbidden}, {arguments:?}: {message}");
            let parts = [
                format!("{forbidden} belongs to uid {owner}, "),
                "mode 0000".to_owned(),
                format!("runs as uid {user}"),
                "User=".to_owned(),
                "chown".to_owned(),
            ];
            for part in parts {
                assert!(message.contains(&part), "{forbidden}, {arguments:?}: {part} is not in: {message}");
            }
        }
        all.iter().for_each(|(path, bits)| mode(path, *bits));
    }
    // The control socket of a running engine.
    place.write(
        "f.toml",
        &CONFIG.replace("type = \"file\"\npath = \"in", "type = \"file\"\nfollow = true\npath = \"in"),
    );
    std::fs::remove_dir_all(place.path("state")).expect("removes");
    std::fs::remove_file(place.path("q.ndjson")).expect("removes");
    let running = place.start("f.toml");
    let socket = place.path("state/control.sock");
    until(Duration::from_secs(30), "it answers", || place.forebay(&["status", "state"]).status.success().then_some(()));
    mode(&socket, 0);
    let (code, message) = unprivileged(&place, &["status", "state"]);
    assert_eq!(code, 74, "{message}");
    assert!(
        message.contains(&format!("control.sock belongs to uid {owner}, ")) && message.contains("User="),
        "{message}"
    );
    assert_eq!(running.stop(), 0);
    // A directory in which nothing may be made.
    mode(&place.path("state"), 0o777);
    std::fs::remove_dir_all(place.path("state")).expect("removes");
    std::fs::create_dir(place.path("closed")).expect("creates");
    mode(&place.path("closed"), 0o555);
    place.write("f.toml", &CONFIG.replace("\"state\"", "\"closed/state\""));
    let (code, message) = unprivileged(&place, &["run", "f.toml"]);
    assert_eq!(code, 74, "{message}");
    assert!(
        message.contains(&format!("closed belongs to uid {owner}, ")) && message.contains("mode 0555"),
        "{message}"
    );
}
