//! Raw messages: each is its own value, whatever it holds, but text must be UTF-8.
#![no_main]

use arrow_array::cast::AsArray as _;
use forebay::expr::{DataType, Field};
use forebay::format::{FormatConfig, Messages};
use forebay_fuzz::decode_whole;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let messages: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let bytes = [Field::new("x", DataType::Bytes)];
    let decoded = decode_whole(FormatConfig::Raw.decoder(&bytes, None).as_mut(), &messages);
    let values: Vec<Option<&[u8]>> = decoded.columns[0].as_binary::<i32>().iter().collect();
    assert_eq!(values, messages.iter().copied().map(Some).collect::<Vec<_>>());
    let text = [Field::new("x", DataType::String)];
    let decoded = decode_whole(FormatConfig::Raw.decoder(&text, None).as_mut(), &messages);
    let values: Vec<Option<&str>> = decoded.columns[0].as_string::<i32>().iter().collect();
    let wanted: Vec<Option<&str>> =
        messages.iter().filter_map(|message| std::str::from_utf8(message).ok()).map(Some).collect();
    assert_eq!(values, wanted);
    // Lengths that lie.
    let lengths: Vec<u32> = data.chunks(4).map(|c| c.iter().fold(0, |n, b| n << 8 | u32::from(*b))).collect();
    let lied = FormatConfig::Raw.decoder(&bytes, None).decode(&[Messages { payload: data, lengths: &lengths }], None);
    assert_eq!(lied.messages.len(), lengths.len());
});
