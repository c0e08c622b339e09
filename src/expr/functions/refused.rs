//! Flink's scalar functions that are not taken, and why. With the registry this is the whole of Flink's list
//! (`tests/golden/flink_functions.toml`, checked by `tests/it/functions.rs`).

/// Whether the value of Flink's function depends on more than the row.
pub fn is_non_deterministic(name: &str) -> bool {
    NON_DETERMINISTIC.contains(&name)
}

/// Why Flink's function of this name (upper case) is not taken; `None`: it has none, or it is taken.
pub fn why(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(names, _)| names.contains(&name)).map(|(_, why)| *why)
}

const NON_DETERMINISTIC: [&str; 13] = [
    "NOW",
    "CURRENT_TIMESTAMP",
    "CURRENT_ROW_TIMESTAMP",
    "CURRENT_DATE",
    "CURRENT_TIME",
    "LOCALTIME",
    "LOCALTIMESTAMP",
    "PROCTIME",
    "CURRENT_DATABASE",
    "CURRENT_WATERMARK",
    "RAND",
    "RAND_INTEGER",
    "UUID",
];

/// Names with one reason together.
const REFUSED: &[(&[&str], &str)] = &[
    (&["PARSE_JSON", "TRY_PARSE_JSON"], "there is no type VARIANT; read the text with JSON_VALUE or JSON_QUERY"),
    (
        &[
            "BITMAP_AND",
            "BITMAP_ANDNOT",
            "BITMAP_BUILD",
            "BITMAP_CARDINALITY",
            "BITMAP_FROM_BYTES",
            "BITMAP_OR",
            "BITMAP_TO_ARRAY",
            "BITMAP_TO_BYTES",
            "BITMAP_TO_STRING",
            "BITMAP_XOR",
        ],
        "there is no type BITMAP",
    ),
    (&["ST_GEOGFROMTEXT", "ST_GEOGFROMWKB", "ST_ASTEXT", "ST_ASWKB"], "there is no type GEOGRAPHY"),
    (&["OBJECT_OF", "OBJECT_UPDATE"], "there are no structured types with a Java class; use ROW(…)"),
    (&["JSON"], "it stands only as a value of JSON_OBJECT or JSON_ARRAY, in Flink too"),
    (&["JSON_LENGTH"], "declare the column as ARRAY or MAP, and take its CARDINALITY"),
    (&["PRINTF"], "Java's format strings are not followed; use CONCAT, LPAD and ROUND"),
    (&["URL_DECODE_RECURSIVE"], "write URL_DECODE as often as it was encoded"),
    (&["PRINT"], "a query has no output besides its rows"),
    (&["SOURCE_WATERMARK"], "the source's table [source.NAME.time] makes the watermark"),
    (&["MATCH_ROWTIME"], "it stands only in MEASURES and DEFINE of MATCH_RECOGNIZE"),
    (&["MATCH_PROCTIME"], "it depends on when it runs; write MATCH_ROWTIME()"),
    (&["DEFAULT"], "write the value"),
];
