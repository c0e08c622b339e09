//! The file of a lookup table, in each format: rows or a message with its line; no key is NULL or there twice.
#![no_main]

use std::sync::LazyLock;

use arrow_array::Array as _;
use forebay::config::{self, Table};
use forebay::engine::table::decode;
use forebay_fuzz::{configuration, options};
use libfuzzer_sys::fuzz_target;

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let columns = "columns = { id = \"INT\", name = \"STRING\", x = \"DOUBLE\", day = \"DATE\" }";
    let formats = ["format = \"csv\"", "format = \"csv\"\nheader = true\nnull = \"\"", "format = \"json\""];
    let keys = ["[\"id\"]", "[\"name\"]", "[\"day\", \"x\"]"];
    let both = formats.iter().flat_map(|format| keys.iter().map(move |key| (format, key)));
    let text: String = both
        .enumerate()
        .map(|(index, (format, key))| {
            format!("[table.t{index}]\ntype = \"file\"\npath = \"x\"\n{format}\nkey = {key}\n{columns}\n")
        })
        .collect();
    let config = config::parse("tables.toml", &configuration(&text)).unwrap_or_else(|problems| panic!("{problems}"));
    config.tables.into_iter().filter(|table| table.name != "devices").collect()
});

fuzz_target!(|data: &[u8]| {
    let Some(([option], data)) = options(data) else { return };
    let table = &TABLES[option % TABLES.len()];
    match decode(table, data) {
        Ok(columns) => {
            assert_eq!(columns.len(), table.columns.len());
            for (column, field) in columns.iter().zip(&table.columns) {
                assert_eq!(column.len(), columns[0].len());
                assert_eq!(*column.data_type(), field.data_type.arrow());
                assert!(!table.key.contains(&field.name) || column.null_count() == 0);
            }
        }
        Err(error) => {
            assert_eq!(error.exit_code(), 65);
            // Of a decoder that panicked, unless the input says so itself.
            let bug = "please report it";
            assert!(String::from_utf8_lossy(data).contains(bug) || !error.to_string().contains(bug), "{error}");
        }
    }
});
