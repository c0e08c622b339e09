//! The code's structure: imports go one way. Every `crate::module` in a source file outside its tests is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each module may use, besides itself. The order is the data's way (see `src/lib.rs`).
const MAY_USE: [(&str, &[&str]); 17] = [
    ("access", &[]),
    ("event", &[]),
    ("settings", &[]),
    ("disk", &["event"]),
    ("source", &["event", "settings"]),
    ("replay_log", &["access", "event", "disk"]),
    ("expr", &["event", "settings"]),
    ("format", &["event", "settings", "expr"]),
    ("sql", &["event", "settings", "expr"]),
    ("state", &["event"]),
    ("operator", &["event", "expr", "sql", "state"]),
    ("checkpoint", &["access", "event", "state"]),
    ("sink", &["event", "settings", "disk", "expr", "format"]),
    ("config", &["event", "settings", "expr", "sql", "source", "format", "operator", "replay_log", "sink"]),
    ("control", &[]),
    (
        "engine",
        &[
            "event",
            "settings",
            "disk",
            "source",
            "replay_log",
            "expr",
            "format",
            "sql",
            "state",
            "operator",
            "checkpoint",
            "sink",
            "config",
            "control",
        ],
    ),
    (
        "cli",
        &[
            "access",
            "event",
            "settings",
            "disk",
            "source",
            "replay_log",
            "expr",
            "format",
            "state",
            "checkpoint",
            "config",
            "control",
            "engine",
        ],
    ),
];

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file without its unit tests, which stand last, and without comments.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source file");
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn imports_go_one_way() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let mut found = Vec::new();
    files(&src, &mut found);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in found {
        let relative = path.strip_prefix(&src).expect("below src").to_string_lossy().into_owned();
        let module = relative.split(['/', '.']).next().unwrap_or_default().to_owned();
        if ["main", "lib"].contains(&module.as_str())
            || relative.ends_with("tests.rs")
            || relative.ends_with("testing.rs")
        {
            continue;
        }
        let may =
            allowed.get(module.as_str()).unwrap_or_else(|| panic!("src/{relative}: a module that is not listed here"));
        let code = code(&path);
        // `use crate::{a, b}` would hide names from this test.
        assert!(!code.contains("crate::{"), "src/{relative}: write one `use crate::module` per module");
        for rest in code.split("crate::").skip(1) {
            let used: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !allowed.contains_key(used.as_str()) {
                continue;
            }
            seen += 1;
            if used != module && !may.contains(&used.as_str()) {
                wrong.push(format!("src/{relative} uses crate::{used}"));
            }
        }
    }
    assert!(seen > 100, "the test reads the imports: {seen}");
    assert!(wrong.is_empty(), "against the direction of the design:\n{}", wrong.join("\n"));
}

#[test]
fn only_the_checkpoint_folder_knows_lmdb() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&src, &mut found);
    for path in found.iter().filter(|path| !path.starts_with(src.join("checkpoint"))) {
        assert!(!code(path).contains("heed"), "{} uses heed", path.display());
    }
}

#[test]
fn main_is_short() {
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs");
    assert!(std::fs::read_to_string(main).expect("main.rs").lines().count() < 60);
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut links = 0;
    for document in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/sql.md"] {
        let text = std::fs::read_to_string(root.join(document)).expect("a document");
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !target.contains("://") && !file.is_empty() {
                let beside = root.join(document).with_file_name(file);
                assert!(beside.exists(), "{document} links to {target}");
                links += 1;
            }
        }
    }
    assert!(links > 3, "the test reads the links: {links}");
}
