//! The name of a type, a duration, a size: what is taken prints as itself.
#![no_main]

use forebay::settings::{parse_duration, parse_size};
use forebay::sql::parse_type;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match parse_type(text) {
        Ok(data_type) => {
            let shown = data_type.to_string();
            assert_eq!(parse_type(&shown).as_ref(), Ok(&data_type), "{shown}");
            let _ = data_type.arrow();
        }
        Err(error) => assert!(text.get(error.span.clone()).is_some(), "{error:?}"),
    }
    let _ = parse_duration(text);
    let _ = parse_size(text);
});
