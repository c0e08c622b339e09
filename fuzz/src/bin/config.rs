//! The text of a configuration: a valid one or problems that can be shown; reading it twice gives the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match forebay::config::parse("fuzz.toml", text) {
        Ok(config) => {
            assert_eq!(config.text, text);
            let _ = config.flink_script();
        }
        Err(problems) => {
            assert!(!problems.list.is_empty());
            let shown = problems.to_string();
            assert!(shown.contains("error: "));
            for problem in &problems.list {
                if let Some(span) = &problem.span {
                    assert!(span.start <= text.len(), "{problem:?}");
                    let _ = forebay::settings::line_column(text, span.start);
                }
            }
        }
    }
});
