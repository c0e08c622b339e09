//! The bytes of the checkpoint environment, format version 1. Pure.
//!
//! Database `state`: one entry per (operator, namespace, key).
//!
//! ```text
//! key    operator u32 BE · key group u8 · namespace i64 BE with the sign bit flipped · key bytes          (short keys)
//!        operator u32 BE · key group u8 · namespace … · first 482 bytes of the key · 128-bit hash of the key    (long)
//! value  CRC32C u32 LE · postcard bytes                                                                   (short keys)
//!        CRC32C u32 LE · length u32 LE of the key's tail · the key from byte 482 on · postcard bytes            (long)
//! ```
//!
//! LMDB keys are at most 511 bytes. A key of up to 497 bytes is short; a longer one is long, and its LMDB key is exactly
//! 511 bytes, which no short one is. The CRC is over the LMDB key and everything behind the CRC. The hash is
//! SipHash-1-3 with 128 bits of output (u128 LE) and zero keys. LMDB's order is the order of keys, but
//! among keys that share their first 482 bytes the full keys must be compared; such keys are neighbours.
//!
//! Database `groups`: one entry per (operator, key group) that has entries.
//!
//! ```text
//! key    operator u32 BE · key group u8
//! value  CRC32C u32 LE · count u64 LE · bytes u64 LE · set hash u128 LE
//! ```
//!
//! `bytes` is the sum of the lengths of keys and values as stored; the set hash is the wrapping sum of the entries'
//! hashes: SipHash-1-3-128 over length u16 LE of the LMDB key · LMDB key · stored value.
//!
//! Databases `meta` (key `checkpoint`: the one checkpoint there is) and `history` (key: checkpoint id u64 BE):
//!
//! ```text
//! value  CRC32C u32 LE · format version u16 LE · postcard bytes
//! ```
//!
//! The CRC is over the LMDB key and everything behind the CRC; these six bytes are the same in every version.

use std::borrow::Cow;
use std::hash::Hasher;
use std::ops::Bound;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::state::key_group;

/// Version of everything described here.
pub const FORMAT_VERSION: u16 = 1;
/// Key of the checkpoint in `meta`.
pub const META_KEY: &[u8] = b"checkpoint";

/// Key of the record of what the state has cost the device, beside the description.
pub const WEAR_KEY: &[u8] = b"wear";

/// Length of a `state` key before the key's own bytes.
const HEAD: usize = 13;
/// Length of an LMDB key that stands for a long key.
const LONG: usize = 511;
/// Bytes of a long key that stand in the LMDB key.
pub const LONG_PREFIX: usize = LONG - HEAD - 16;
/// Longest key that is stored as it is.
const SHORT_MAX: usize = LONG - HEAD - 1;

/// Hash of a long key.
fn long_hash(key: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(key);
    hasher.finish128().as_u128().to_le_bytes()
}

fn head(operator: u32, group: u8, namespace: i64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let (front, ordered) = (operator.to_be_bytes(), (namespace ^ i64::MIN).to_be_bytes());
    let bytes = front.into_iter().chain([group]).chain(ordered);
    head.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    head
}

/// The LMDB key of an entry, into `out`.
pub fn state_key(out: &mut Vec<u8>, operator: u32, namespace: i64, key: &[u8]) {
    out.clear();
    out.extend_from_slice(&head(operator, key_group(key), namespace));
    match key.get(..LONG_PREFIX) {
        Some(prefix) if key.len() > SHORT_MAX => {
            out.extend_from_slice(prefix);
            out.extend_from_slice(&long_hash(key));
        }
        _ => out.extend_from_slice(key),
    }
}

/// What all LMDB keys of a namespace in a key group begin with.
pub fn namespace_prefix(operator: u32, group: u8, namespace: i64) -> Vec<u8> {
    head(operator, group, namespace).to_vec()
}

/// Where the keys that begin with `prefix` end.
pub fn prefix_end(prefix: &[u8]) -> Bound<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Bound::Excluded(end);
        }
    }
    Bound::Unbounded
}

fn with_crc(lmdb_key: &[u8], out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.clear();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let crc = out.get(4..).map(|body| crc32c::crc32c_append(crc32c::crc32c(lmdb_key), body)).unwrap_or_default();
    out.iter_mut().zip(crc.to_le_bytes()).for_each(|(to, byte)| *to = byte);
}

/// What stands behind the CRC, if it is right.
fn checked<'a>(lmdb_key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (crc, body) = stored.split_first_chunk::<4>()?;
    (crc32c::crc32c_append(crc32c::crc32c(lmdb_key), body) == u32::from_le_bytes(*crc)).then_some(body)
}

/// The stored value of an entry whose LMDB key is `lmdb_key`, into `out`.
pub fn state_value(out: &mut Vec<u8>, lmdb_key: &[u8], key: &[u8], value: &[u8]) {
    with_crc(lmdb_key, out, |out| {
        if key.len() > SHORT_MAX {
            let tail = key.get(LONG_PREFIX..).unwrap_or_default();
            out.extend_from_slice(&u32::try_from(tail.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(tail);
        }
        out.extend_from_slice(value);
    });
}

/// An entry of `state`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry<'a> {
    pub operator: u32,
    pub group: u8,
    pub namespace: i64,
    pub key: Cow<'a, [u8]>,
    pub value: &'a [u8],
}

/// Reads an entry of `state` and checks it.
///
/// # Errors
/// What is wrong with it.
pub fn decode_state<'a>(lmdb_key: &'a [u8], stored: &'a [u8]) -> Result<StateEntry<'a>, &'static str> {
    let body = checked(lmdb_key, stored).ok_or("the checksum of a value does not match")?;
    let (operator, rest) = lmdb_key.split_first_chunk::<4>().ok_or("a key is too short")?;
    let (group, rest) = rest.split_first().ok_or("a key is too short")?;
    let (namespace, rest) = rest.split_first_chunk::<8>().ok_or("a key is too short")?;
    let (key, value) = if lmdb_key.len() == LONG {
        let (prefix, hash) = rest.split_at_checked(LONG_PREFIX).ok_or("a key is too short")?;
        let (tail_len, body) = body.split_first_chunk::<4>().ok_or("a value is too short")?;
        let (tail, value) =
            body.split_at_checked(u32::from_le_bytes(*tail_len) as usize).ok_or("a value is too short")?;
        let key = [prefix, tail].concat();
        if long_hash(&key) != hash || key.len() <= SHORT_MAX {
            return Err("a long key does not match its hash");
        }
        (Cow::Owned(key), value)
    } else {
        (Cow::Borrowed(rest), body)
    };
    if key_group(&key) != *group {
        return Err("a key stands in a key group that is not its own");
    }
    Ok(StateEntry {
        operator: u32::from_be_bytes(*operator),
        group: *group,
        namespace: i64::from_be_bytes(*namespace) ^ i64::MIN,
        key,
        value,
    })
}

/// Count, size and set hash of the entries of a key group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub count: u64,
    pub bytes: u64,
    pub hash: u128,
}

impl Group {
    fn entry(lmdb_key: &[u8], stored: &[u8]) -> (u64, u128) {
        let mut hasher = SipHasher13::new();
        hasher.write(&u16::try_from(lmdb_key.len()).unwrap_or(u16::MAX).to_le_bytes());
        hasher.write(lmdb_key);
        hasher.write(stored);
        ((lmdb_key.len() + stored.len()) as u64, hasher.finish128().as_u128())
    }

    /// An entry came.
    pub fn add(&mut self, lmdb_key: &[u8], stored: &[u8]) {
        let (bytes, hash) = Group::entry(lmdb_key, stored);
        self.count = self.count.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.hash = self.hash.wrapping_add(hash);
    }

    /// An entry went.
    pub fn remove(&mut self, lmdb_key: &[u8], stored: &[u8]) {
        let (bytes, hash) = Group::entry(lmdb_key, stored);
        self.count = self.count.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_sub(bytes);
        self.hash = self.hash.wrapping_sub(hash);
    }

    /// The stored value of the group.
    pub fn encode(&self, lmdb_key: &[u8], out: &mut Vec<u8>) {
        with_crc(lmdb_key, out, |out| {
            out.extend_from_slice(&self.count.to_le_bytes());
            out.extend_from_slice(&self.bytes.to_le_bytes());
            out.extend_from_slice(&self.hash.to_le_bytes());
        });
    }

    /// Reads an entry of `groups` and checks it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(lmdb_key: &[u8], stored: &[u8]) -> Result<((u32, u8), Group), &'static str> {
        let wrong = "the checksum of a key group's record does not match";
        let body = checked(lmdb_key, stored).ok_or(wrong)?;
        let (operator, group) = match lmdb_key.split_first_chunk::<4>() {
            Some((operator, [group])) => (u32::from_be_bytes(*operator), *group),
            _ => return Err(wrong),
        };
        let (count, body) = body.split_first_chunk::<8>().ok_or(wrong)?;
        let (bytes, body) = body.split_first_chunk::<8>().ok_or(wrong)?;
        let hash = <[u8; 16]>::try_from(body).map_err(|_| wrong)?;
        let decoded = Group {
            count: u64::from_le_bytes(*count),
            bytes: u64::from_le_bytes(*bytes),
            hash: u128::from_le_bytes(hash),
        };
        Ok(((operator, group), decoded))
    }
}

/// The LMDB key of a key group in `groups`.
pub fn group_key(operator: u32, group: u8) -> Vec<u8> {
    [operator.to_be_bytes().as_slice(), &[group]].concat()
}

/// Why a record of `meta` or `history` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    Corrupt(String),
    /// Written by another version.
    Version(u16),
}

/// The stored bytes of a record of `meta` or `history`.
///
/// # Errors
/// The record cannot be encoded.
pub fn encode_record(lmdb_key: &[u8], record: &impl serde::Serialize) -> Result<Vec<u8>, postcard::Error> {
    let body = postcard::to_stdvec(record)?;
    let mut out = Vec::with_capacity(body.len() + 6);
    with_crc(lmdb_key, &mut out, |out| {
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&body);
    });
    Ok(out)
}

/// Reads a record of `meta` or `history` and checks it.
///
/// # Errors
/// It is corrupt or of another version.
pub fn decode_record<T: serde::de::DeserializeOwned>(lmdb_key: &[u8], stored: &[u8]) -> Result<T, RecordError> {
    let body = checked(lmdb_key, stored)
        .ok_or_else(|| RecordError::Corrupt("the checksum of a record does not match".to_owned()))?;
    let (version, body) =
        body.split_first_chunk::<2>().ok_or_else(|| RecordError::Corrupt("a record is too short".to_owned()))?;
    match u16::from_le_bytes(*version) {
        FORMAT_VERSION => {}
        other => return Err(RecordError::Version(other)),
    }
    match postcard::take_from_bytes(body) {
        Ok((record, [])) => Ok(record),
        Ok(_) => Err(RecordError::Corrupt("a record has bytes too many".to_owned())),
        Err(error) => Err(RecordError::Corrupt(format!("a record does not decode ({error})"))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::super::meta::{CheckpointMeta, HistoryEntry, OperatorMeta, OperatorTotals, SinkMeta, SinkRows, Wear};
    use super::*;
    use crate::event::{Epoch, LogTime, Lsn, Position};

    fn encoded(operator: u32, namespace: i64, key: &[u8], value: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut lmdb_key, mut stored) = (Vec::new(), Vec::new());
        state_key(&mut lmdb_key, operator, namespace, key);
        state_value(&mut stored, &lmdb_key, key, value);
        (lmdb_key, stored)
    }

    /// Compares with committed bytes; `FOREBAY_BLESS=1` writes them where there are none.
    fn golden(name: &str, bytes: &[u8]) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/checkpoint-v1").join(name);
        if std::env::var_os("FOREBAY_BLESS").is_some() && !path.exists() {
            std::fs::create_dir_all(path.parent().expect("has a parent")).expect("creates");
            std::fs::write(&path, bytes).expect("writes");
        }
        let committed = std::fs::read(&path).expect("is committed");
        assert!(bytes == committed, "{name}: the format changed; bytes now: {bytes:02x?}");
    }

    fn meta() -> CheckpointMeta {
        CheckpointMeta {
            id: 7,
            epoch: Epoch([9; 16]),
            pipeline: "plant-a".to_owned(),
            cut: Lsn(123_456),
            cut_time: LogTime(1_775_091_490_000_000),
            wall_time_us: 1_775_091_490_000_123,
            sources: [(
                "plant".to_owned(),
                Position::File { inode: 42, head_crc: 0xdead_beef, head_len: 1024, offset: 99_999 },
            )]
            .into(),
            engine: vec![1, 2, 3],
            operators: vec![OperatorMeta {
                id: 1,
                name: "avg_10s/window/0".to_owned(),
                fingerprint: "f00d".to_owned(),
                value_type: "window_aggregate".to_owned(),
                namespaces: [-10_000, 1_775_091_500_000].into(),
            }],
            sinks: vec![SinkMeta { name: "archive".to_owned(), rows: 1000, progress: vec![4, 5] }],
            config: "[pipeline]\nname = \"plant-a\"\n".to_owned(),
            semantics_version: 1,
            program_version: "0.1.0".to_owned(),
            wear: Wear::default(),
        }
    }

    #[test]
    fn the_format_is_as_committed() {
        let long: Vec<u8> = (0..600u32).map(|i| (i % 251) as u8).collect();
        for (name, namespace, key) in [("short", 1_775_091_500_000, b"device-1".as_slice()), ("long", -1, &long)] {
            let (lmdb_key, stored) = encoded(1, namespace, key, &[1, 2, 3]);
            golden(&format!("state-{name}-key.bin"), &lmdb_key);
            golden(&format!("state-{name}-value.bin"), &stored);
        }
        let (lmdb_key, stored) = encoded(1, 0, b"k", b"v");
        let mut group = Group::default();
        group.add(&lmdb_key, &stored);
        let key = group_key(1, 5);
        let mut value = Vec::new();
        group.encode(&key, &mut value);
        golden("group-key.bin", &key);
        golden("group-value.bin", &value);
        golden("meta.bin", &encode_record(META_KEY, &meta()).expect("encodes"));
        let history = HistoryEntry {
            id: 7,
            wall_time_us: 1_775_091_490_000_123,
            cut: Lsn(123_456),
            cut_time: LogTime(1_775_091_490_000_000),
            duration_us: 12_345,
            synced: true,
            changes: 10,
            bytes_written: 1000,
            operators: vec![OperatorTotals { name: "avg_10s/window/0".to_owned(), keys: 10, bytes: 500 }],
            sinks: vec![SinkRows { name: "archive".to_owned(), rows: 1000 }],
        };
        golden("history.bin", &encode_record(&7u64.to_be_bytes(), &history).expect("encodes"));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let record = encode_record(META_KEY, &meta()).expect("encodes");
        assert_eq!(decode_record::<CheckpointMeta>(META_KEY, &record), Ok(meta()));
        let (lmdb_key, stored) = encoded(1, 5, &[7; 700], b"value");
        for bit in 0..record.len() * 8 {
            let mut flipped = record.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode_record::<CheckpointMeta>(META_KEY, &flipped), Err(RecordError::Corrupt(_))));
        }
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_state(&lmdb_key, &flipped).is_err());
        }
        for bit in 0..lmdb_key.len() * 8 {
            let mut flipped = lmdb_key.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_state(&flipped, &stored).is_err());
        }
    }

    #[test]
    fn an_unknown_version_is_told_from_damage() {
        let mut record = Vec::new();
        with_crc(META_KEY, &mut record, |out| out.extend_from_slice(&[2, 0, 1, 2, 3]));
        assert_eq!(decode_record::<CheckpointMeta>(META_KEY, &record), Err(RecordError::Version(2)));
    }

    #[test]
    fn a_prefix_ends_behind_all_that_begins_with_it() {
        assert_eq!(prefix_end(&[1, 2]), Bound::Excluded(vec![1, 3]));
        assert_eq!(prefix_end(&[1, 255, 255]), Bound::Excluded(vec![2]));
        assert_eq!(prefix_end(&[255, 255]), Bound::Unbounded);
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            proptest::collection::vec(any::<u8>(), 470..520),
            Just(vec![3; 5000]),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(operator: u32, namespace: i64, key in key(), value: Vec<u8>) {
            let (lmdb_key, stored) = encoded(operator, namespace, &key, &value);
            prop_assert!(lmdb_key.len() <= 511);
            let entry = decode_state(&lmdb_key, &stored).expect("decodes");
            prop_assert_eq!((entry.operator, entry.namespace), (operator, namespace));
            prop_assert_eq!((&*entry.key, entry.value), (key.as_slice(), value.as_slice()));
            prop_assert!(lmdb_key.starts_with(&namespace_prefix(operator, entry.group, namespace)));
        }

        #[test]
        fn lmdb_keys_are_ordered_as_keys_are(a: (i64, Vec<u8>), b: (i64, Vec<u8>)) {
            let of = |(namespace, key): &(i64, Vec<u8>)| {
                [namespace_prefix(0, 0, *namespace), key.clone()].concat()
            };
            prop_assert_eq!(of(&a).cmp(&of(&b)), a.cmp(&b));
        }

        #[test]
        fn nothing_makes_a_decoder_panic(lmdb_key in proptest::collection::vec(any::<u8>(), 0..520), body: Vec<u8>) {
            let _ = decode_state(&lmdb_key, &body);
            let mut stored = Vec::new();
            with_crc(&lmdb_key, &mut stored, |out| out.extend_from_slice(&body));
            let _ = decode_state(&lmdb_key, &stored);
            let _ = Group::decode(&lmdb_key, &stored);
            let mut record = Vec::new();
            with_crc(META_KEY, &mut record, |out| out.extend([1, 0].iter().chain(&body)));
            let _ = decode_record::<CheckpointMeta>(META_KEY, &record);
            let _ = decode_record::<HistoryEntry>(META_KEY, &record);
        }
    }
}
