//! Golden error messages: each `tests/golden/errors/NAME.toml` is wrong in one way (`several_at_once`: in three), and
//! `NAME.txt` is what `forebay check` says. `FOREBAY_BLESS=1` writes the files anew, to be read before they are committed.

use std::path::Path;

use crate::support::{Place, outcome};

#[test]
fn wrong_configurations_are_explained() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/errors");
    let bless = std::env::var_os("FOREBAY_BLESS").is_some();
    let place = Place::new();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(&dir).expect("cases") {
        let path = entry.expect("an entry").path();
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()).filter(|n| n.ends_with(".toml"))
        else {
            continue;
        };
        std::fs::copy(&path, place.path(&name)).expect("a copy");
        let (code, message) = outcome(&place.forebay(&["check", &name]));
        assert_eq!(code, 78, "{name}: {message}");
        // `run` says the same before it touches anything.
        let (code, ran) = outcome(&place.forebay(&["run", &name]));
        assert_eq!((code, &ran), (78, &message), "{name}");
        assert!(!place.path("state").exists(), "{name} made a state");
        let golden = path.with_extension("txt");
        if bless {
            std::fs::write(&golden, &message).expect("writes");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if expected != message {
            wrong.push(format!("{name}:\n--- expected\n{expected}\n--- found\n{message}"));
        }
        checked += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 25, "{checked} cases");
}
