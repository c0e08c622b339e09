//! CSV messages, with and without header: the rows do not depend on how the messages are grouped, a decoder's saved
//! headers restore it, and what is printed reads back the same.
#![no_main]

use std::sync::LazyLock;

use forebay::expr::Field;
use forebay::format::csv::{CsvConfig, CsvDecoder};
use forebay::format::{Decoder as _, FormatConfig};
use forebay_fuzz::{decode_lines, decode_whole, encode, options, scalars};
use libfuzzer_sys::fuzz_target;

static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(scalars);

fuzz_target!(|data: &[u8]| {
    let Some(([option, cut], data)) = options(data) else { return };
    let fields = &*FIELDS;
    let config = CsvConfig {
        header: option & 1 != 0,
        separator: [b',', b';', b'\t', b'-'][option / 2 % 4],
        quote: [b'"', b'\''][option / 8 % 2],
        null: [None, Some(String::new()), Some("NULL".to_owned()), Some("0".to_owned())][option / 16 % 4].clone(),
    };
    let decoder = || FormatConfig::Csv(config.clone()).decoder(fields, None);
    let (rows, refused) = decode_lines(decoder().as_mut(), fields, data, usize::MAX);
    let grouped = decode_lines(decoder().as_mut(), fields, data, 1 + option / 64);
    assert_eq!((&rows, &refused), (&grouped.0, &grouped.1));

    // A restart between two messages.
    let messages: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let (before, after) = messages.split_at(cut.min(messages.len()));
    let mut first = decoder();
    let mut restarted = Vec::new();
    if !before.is_empty() {
        restarted = decode_lines(first.as_mut(), fields, &before.join(&b'\n'), usize::MAX).0;
    }
    let mut second = decoder();
    second.restore(&first.save()).expect("its own bytes");
    if !after.is_empty() {
        restarted.extend(decode_lines(second.as_mut(), fields, &after.join(&b'\n'), usize::MAX).0);
    }
    assert_eq!(rows, restarted);
    let _ = CsvDecoder::new(&config, fields, None).restore(data);

    let lines: Vec<&[u8]> = rows.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let columns = decode_whole(FormatConfig::Json.decoder(fields, None).as_mut(), &lines).columns;
    let config = FormatConfig::Csv(CsvConfig { header: true, null: config.null.or(Some(String::new())), ..config });
    let mut encoder = config.encoder(fields);
    let mut decoder = config.decoder(fields, None);
    let header = encoder.header();
    decode_whole(decoder.as_mut(), &[header.trim_ascii_end()]);
    let mut printed: Vec<Vec<u8>> = Vec::new();
    for row in 0..lines.len() {
        let mut line = Vec::new();
        encoder.encode(&columns, row, &mut line);
        line.pop();
        printed.push(line);
    }
    let printed: Vec<&[u8]> = printed.iter().map(Vec::as_slice).collect();
    let again = decode_whole(decoder.as_mut(), &printed);
    assert_eq!(again.refused, []);
    assert_eq!(rows, encode(FormatConfig::Json.encoder(fields).as_mut(), &again.columns));
});
