//! What stands in a checkpoint: entries of the state, records of key groups, the description, the history; each as it
//! is and with its checksum made right.
#![no_main]

use forebay::checkpoint::layout::{
    Group, META_KEY, decode_record, decode_state, encode_record, state_key, state_value,
};
use forebay::checkpoint::{CheckpointMeta, HistoryEntry};
use forebay_fuzz::put_crc;
use libfuzzer_sys::fuzz_target;

fn look(key: &[u8], stored: &[u8]) {
    if let Ok(entry) = decode_state(key, stored) {
        let mut again = Vec::new();
        state_key(&mut again, entry.operator, entry.namespace, &entry.key);
        assert_eq!(again, key);
        let mut value = Vec::new();
        state_value(&mut value, key, &entry.key, entry.value);
        assert_eq!(value, stored);
    }
    let _ = Group::decode(key, stored);
    if let Ok(meta) = decode_record::<CheckpointMeta>(META_KEY, stored) {
        let encoded = encode_record(META_KEY, &meta).expect("encodes");
        assert_eq!(decode_record::<CheckpointMeta>(META_KEY, &encoded), Ok(meta));
    }
    if let Ok(entry) = decode_record::<HistoryEntry>(key, stored) {
        let encoded = encode_record(key, &entry).expect("encodes");
        assert_eq!(decode_record::<HistoryEntry>(key, &encoded), Ok(entry));
    }
}

fuzz_target!(|data: &[u8]| {
    // Length of the key, key, value.
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return };
    let length = usize::from(u16::from_le_bytes(*length) % 512).min(rest.len());
    let (key, stored) = rest.split_at(length);
    look(key, stored);
    let mut stored = stored.to_vec();
    for key in [key, META_KEY] {
        let crc = crc32c::crc32c_append(crc32c::crc32c(key), stored.get(4..).unwrap_or_default());
        put_crc(&mut stored, 0, crc);
        look(key, &stored);
    }
});
