//! A savepoint, as it is or with its checksums made right: it reads to its end or is refused, and what reads is written
//! again as the same entries.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use forebay::checkpoint::CheckpointMeta;
use forebay::checkpoint::savepoint::{SavepointReader, SavepointWriter};
use forebay_fuzz::put_crc;
use libfuzzer_sys::fuzz_target;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn read(bytes: &[u8]) -> Option<(CheckpointMeta, Entries)> {
    let mut reader = SavepointReader::new(Cursor::new(bytes), bytes.len() as u64, Path::new("savepoint")).ok()?;
    let mut entries = Vec::new();
    loop {
        match reader.next() {
            Ok(Some((key, stored))) => entries.push((key.to_vec(), stored.to_vec())),
            Ok(None) => return Some((reader.meta().clone(), entries)),
            Err(error) => {
                assert_eq!(error.exit_code(), 65, "{error}");
                return None;
            }
        }
    }
}

fn look(bytes: &[u8]) {
    let Some((meta, entries)) = read(bytes) else { return };
    let mut writer = SavepointWriter::new(Vec::new(), Path::new("savepoint"), &meta).expect("writes");
    for (key, stored) in &entries {
        writer.add(key, stored).expect("writes");
    }
    let (again, _) = writer.finish().expect("writes");
    assert_eq!(read(&again), Some((meta, entries)));
}

/// Makes the checksums of the header and of all blocks right.
fn mend(bytes: &mut [u8]) {
    let Some(header) = bytes.get(..12) else { return };
    let mut previous = crc32c::crc32c(header);
    put_crc(bytes, 12, previous);
    let mut at = 16;
    while let Some(head) = bytes.get(at..at + 16) {
        let stored = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some(body) = bytes.get(at + 16..(at + 16).saturating_add(stored)) else { return };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&previous.to_le_bytes()), &head[..12]);
        previous = crc32c::crc32c_append(crc, body);
        put_crc(bytes, at + 12, previous);
        at += 16 + stored;
    }
}

fuzz_target!(|data: &[u8]| {
    look(data);
    let mut mended = data.to_vec();
    mend(&mut mended);
    look(&mended);
});
