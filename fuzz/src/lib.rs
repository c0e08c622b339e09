//! What the fuzz targets share: rich schemas, one way to cut bytes into pieces, a set of rows, checksums made right.
//!
//! A target panics where an invariant is broken; libFuzzer keeps the input. `fuzz/run` runs them all.

use arrow_array::{Array, ArrayRef};
use forebay::expr::{DataType, Field};
use forebay::format::{Decoded, Decoder, Encoder, FormatConfig, Messages};
use forebay::sql::Catalog;

/// One column of every scalar type.
pub fn scalars() -> Vec<Field> {
    [
        ("b", DataType::Boolean),
        ("i8", DataType::TinyInt),
        ("i16", DataType::SmallInt),
        ("i", DataType::Int),
        ("i64", DataType::BigInt),
        ("f", DataType::Float),
        ("d", DataType::Double),
        ("dec", DataType::Decimal(20, 5)),
        ("s", DataType::String),
        ("bytes", DataType::Bytes),
        ("date", DataType::Date),
        ("time", DataType::Time),
        ("ts0", DataType::Timestamp(0)),
        ("ts", DataType::Timestamp(3)),
        ("ltz", DataType::TimestampLtz(6)),
    ]
    .into_iter()
    .map(|(name, data_type)| Field::new(name, data_type))
    .collect()
}

/// The scalars, and rows and arrays of them.
pub fn nested() -> Vec<Field> {
    let mut fields = scalars();
    fields.push(Field::new("list", DataType::Array(Box::new(DataType::Int))));
    fields.push(Field::new("rows", DataType::Array(Box::new(DataType::Row(scalars())))));
    fields.push(Field::new(
        "r",
        DataType::Row(vec![Field::new(
            "lists",
            DataType::Array(Box::new(DataType::Array(Box::new(DataType::Double)))),
        )]),
    ));
    fields
}

/// The tables of the conformance cases, `t` with every type, a versioned and a lookup table.
const TABLES: &str = include_str!("../tables.toml");

/// The lines of each table that a query is tried on: enough of them for windows, matches and joins.
const LINES: [(&str, &str, usize); 7] = [
    ("plant", include_str!("../../tests/conformance/input/plant.ndjson"), 40),
    ("steady", include_str!("../../tests/conformance/input/steady.ndjson"), 40),
    ("alarm", include_str!("../../tests/conformance/input/alarm.ndjson"), 16),
    ("calib", include_str!("../../tests/conformance/input/calib.ndjson"), 12),
    ("burst", include_str!("../../tests/conformance/input/burst.ndjson"), 10),
    ("dst", include_str!("../../tests/conformance/input/dst.ndjson"), 40),
    ("t", include_str!("../rows.ndjson"), usize::MAX),
];

/// Configurations end with what a caller appends.
pub fn configuration(queries: &str) -> String {
    format!("{TABLES}\n{queries}")
}

/// Two tests of query `q` with the same messages: those of a table in one record or each in its own.
pub fn tests() -> String {
    let literal = |lines: &[&str]| lines.iter().map(|line| format!("{line:?}, ")).collect::<String>();
    let mut text = String::new();
    for step in [usize::MAX, 1] {
        text += &format!("[[test]]\nname = \"{step}\"\n[test.expect]\nq = []\n");
        text += "[[test.input]]\nsource = \"devices\"\nrows = [\"boiler-1,north\", \"pump-α,\"]\n";
        for (table, content, count) in LINES {
            let lines: Vec<&str> = content.lines().take(count).collect();
            for chunk in lines.chunks(step) {
                text += &format!("[[test.input]]\nsource = \"{table}\"\nrows = [{}]\n", literal(chunk));
            }
        }
    }
    text
}

/// The catalog of the tables.
pub fn catalog() -> Catalog {
    let text = configuration("");
    let config = forebay::config::parse("tables.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let mut catalog = Catalog::default();
    for table in &config.tables {
        catalog.add_lookup(&table.name, table.schema(), table.key.clone());
    }
    for source in &config.sources {
        catalog.add(&source.name, source.schema());
        if !source.key.is_empty() {
            catalog.add_key(&source.name, source.key.clone());
        }
    }
    catalog
}

/// The first bytes of an input, which choose options, and the rest.
pub fn options<const N: usize>(data: &[u8]) -> Option<([usize; N], &[u8])> {
    let (head, rest) = data.split_first_chunk::<N>()?;
    Some((head.map(usize::from), rest))
}

/// Decodes lines as messages, in calls of `step` messages each; gives the rows as JSON and the refusals by message.
pub fn decode_lines(
    decoder: &mut dyn Decoder,
    fields: &[Field],
    data: &[u8],
    step: usize,
) -> (Vec<u8>, Vec<(usize, String)>) {
    let messages: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let mut rows = Vec::new();
    let mut refused = Vec::new();
    let mut encoder = FormatConfig::Json.encoder(fields);
    let mut first = 0;
    for chunk in messages.chunks(step) {
        let lengths: Vec<u32> = chunk.iter().map(|message| message.len() as u32).collect();
        let decoded = decoder.decode(&[Messages { payload: &chunk.concat(), lengths: &lengths }], Some("peer"));
        whole(&decoded, fields);
        for row in 0..decoded.messages.len() {
            encoder.encode(&decoded.columns, row, &mut rows);
        }
        refused.extend(decoded.refused.into_iter().map(|(message, reason)| (first + message as usize, reason)));
        first += chunk.len();
    }
    (rows, refused)
}

/// What every decoder promises of what it gives.
fn whole(decoded: &Decoded, fields: &[Field]) {
    assert_eq!(decoded.columns.len(), fields.len());
    for (column, field) in decoded.columns.iter().zip(fields) {
        assert_eq!(column.len(), decoded.messages.len());
        assert_eq!(*column.data_type(), field.data_type.arrow());
    }
    assert!(decoded.messages.is_sorted());
    assert!(decoded.refused.is_sorted_by_key(|(message, _)| *message));
}

/// All rows as an encoder prints them.
pub fn encode(encoder: &mut dyn Encoder, columns: &[ArrayRef]) -> Vec<u8> {
    let mut out = Vec::new();
    for row in 0..columns.first().map_or(0, |column| column.len()) {
        encoder.encode(columns, row, &mut out);
    }
    out
}

/// Decodes lines in one call.
pub fn decode_whole(decoder: &mut dyn Decoder, lines: &[&[u8]]) -> Decoded {
    let lengths: Vec<u32> = lines.iter().map(|line| line.len() as u32).collect();
    decoder.decode(&[Messages { payload: &lines.concat(), lengths: &lengths }], None)
}

/// Puts `crc` in place at `at`, little-endian.
pub fn put_crc(bytes: &mut [u8], at: usize, crc: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Makes the checksum of a segment header right, so that what lies behind it is reached. Gives its length, if possible.
pub fn mend_header(bytes: &mut [u8]) -> Option<usize> {
    let length = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) as usize;
    put_crc(bytes, 16, 0);
    let crc = crc32c::crc32c(bytes.get(..length)?);
    put_crc(bytes, 16, crc);
    Some(length)
}

/// Makes the checksums and the chain of all frames of a segment right.
pub fn mend_frames(bytes: &mut [u8], header_bytes: usize) {
    let seed: Vec<u8> = [bytes.get(24..40), bytes.get(40..48)].into_iter().flatten().flatten().copied().collect();
    let mut at = header_bytes;
    let mut previous = bytes.get(20..24).and_then(|crc| crc.try_into().ok()).map_or(0, u32::from_le_bytes);
    while bytes.get(at..at + 4) == Some(b"FbF1") && at + 56 <= bytes.len() {
        let stored = u32::from_le_bytes([bytes[at + 16], bytes[at + 17], bytes[at + 18], bytes[at + 19]]) as usize;
        put_crc(bytes, at + 24, previous);
        let end = (at + 56).saturating_add(stored).next_multiple_of(8);
        let Some(frame) = bytes.get(at + 8..end) else { return };
        let crc =
            crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&seed), &(at as u64).to_le_bytes()), frame);
        put_crc(bytes, at + 4, crc);
        previous = crc;
        at = end;
    }
}
