//! JSON messages: the rows do not depend on how the messages are grouped, and what is printed reads back the same.
#![no_main]

use std::sync::LazyLock;

use forebay::expr::Field;
use forebay::format::{EpochColumn, EpochUnit, FormatConfig};
use forebay_fuzz::{decode_lines, decode_whole, encode, nested, options};
use libfuzzer_sys::fuzz_target;

static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(nested);

fuzz_target!(|data: &[u8]| {
    let Some(([option], data)) = options(data) else { return };
    let fields = &*FIELDS;
    let units = [EpochUnit::Seconds, EpochUnit::Milliseconds, EpochUnit::Microseconds, EpochUnit::Nanoseconds];
    let time = fields.iter().position(|field| field.name == "ltz").expect("a column");
    let epoch = units.get(option % 5).map(|unit| EpochColumn { column: time, unit: *unit });
    let decoder = || FormatConfig::Json.decoder(fields, epoch);
    let (rows, refused) = decode_lines(decoder().as_mut(), fields, data, usize::MAX);
    let grouped = decode_lines(decoder().as_mut(), fields, data, 1 + option / 5 % 4);
    assert_eq!((&rows, &refused), (&grouped.0, &grouped.1));

    let lines: Vec<&[u8]> = rows.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let again = decode_whole(FormatConfig::Json.decoder(fields, None).as_mut(), &lines);
    if epoch.is_none() {
        assert_eq!(again.refused, [], "{}", String::from_utf8_lossy(&rows));
        assert_eq!(rows, encode(FormatConfig::Json.encoder(fields).as_mut(), &again.columns));
    }
});
