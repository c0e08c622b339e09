//! The text of a query: a plan that can be shown, or problems within the text.
#![no_main]

use std::sync::LazyLock;

use forebay::sql::{Catalog, dependencies, plan_query};
use libfuzzer_sys::fuzz_target;

static CATALOG: LazyLock<Catalog> = LazyLock::new(forebay_fuzz::catalog);

fuzz_target!(|text: &str| {
    let reads = dependencies(text);
    match plan_query(text, &CATALOG) {
        Ok(plan) => {
            let reads = reads.expect("a text with a plan has dependencies");
            assert!(reads.iter().all(|name| CATALOG.schema(name).is_some()), "{reads:?}");
            assert!(!plan.schema.fields.is_empty());
            let _ = (plan.explain(), plan.fingerprint(), plan.state_bound(), plan.bounded_by_keys(), plan.labels());
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(!error.message.is_empty());
                assert!(text.get(error.span.clone()).is_some(), "{error:?}");
            }
        }
    }
});
