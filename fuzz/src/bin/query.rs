//! A query over the tables of the conformance cases, played through the engine: it ends without a fault, and its rows do
//! not depend on how the messages are cut into records.
#![no_main]

use std::sync::LazyLock;

use forebay::config;
use forebay::engine::trial;
use forebay::sql::{Catalog, plan_query};
use libfuzzer_sys::fuzz_target;

static CATALOG: LazyLock<Catalog> = LazyLock::new(forebay_fuzz::catalog);
static TESTS: LazyLock<String> = LazyLock::new(forebay_fuzz::tests);

fuzz_target!(|text: &str| {
    // Quicker than a whole configuration.
    if plan_query(text, &CATALOG).is_err() {
        return;
    }
    let sql: String = text.chars().map(|c| format!("\\U{:08X}", u32::from(c))).collect();
    let text = forebay_fuzz::configuration(&format!("[query.q]\nsql = \"{sql}\"\n{}", *TESTS));
    let Ok(config) = config::parse("query.toml", &text) else { return };
    let _ = config.flink_script();
    let results: Vec<_> = config.tests.iter().map(|test| trial::run(&config, test)).collect();
    for result in &results {
        // A fault of the engine's own.
        assert!(result.as_ref().err().is_none_or(|error| error.exit_code() != 70), "{result:?}");
    }
    if let [Ok(whole), Ok(cut)] = &results[..] {
        assert_eq!(whole, cut);
    }
});
