//! A segment's file, as it is or with its checksums made right: `log verify` reads it whole, a start recovers from it
//! or refuses it; what recovery leaves reads without a fault.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use forebay::disk::{Disk, RealDisk};
use forebay::event::Lsn;
use forebay::replay_log::{LogOptions, LogReader, Summary, identity, open, summarize};
use forebay_fuzz::{mend_frames, mend_header, options};
use libfuzzer_sys::fuzz_target;

const SEGMENT_BYTES: usize = 64 * 1024;

fn read(disk: &Arc<dyn Disk>, dir: &Path) -> Option<u64> {
    let mut reader = LogReader::open(Arc::clone(disk), dir, Lsn::ZERO).ok()?;
    let mut records = 0;
    loop {
        match reader.next_unread() {
            Ok(Some(frame)) => records += frame.len(),
            Ok(None) => return Some(records),
            Err(_) => return None,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([option], data)) = options(data) else { return };
    let mut bytes = data.to_vec();
    if option & 1 != 0 {
        // The rest of a segment is zeros.
        bytes.resize(SEGMENT_BYTES, 0);
    }
    if option & 2 != 0
        && let Some(header_bytes) = mend_header(&mut bytes)
        && option & 4 != 0
    {
        mend_frames(&mut bytes, header_bytes);
    }
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let dir = scratch.path().join("log");
    std::fs::create_dir(&dir).expect("a directory");
    std::fs::write(dir.join("000000000001.segment"), &bytes).expect("writes");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut summary = Summary::default();
    let intact = summarize(Arc::clone(&disk), &dir, &mut summary).is_ok();
    let records = read(&disk, &dir);
    assert_eq!(records, intact.then_some(summary.records()));

    if let Ok(Some(identity)) = identity(disk.as_ref(), &dir) {
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES as u64,
            max_bytes: 8 * SEGMENT_BYTES as u64,
            ..LogOptions::default()
        };
        if let Ok((writer, recovered)) = open(Arc::clone(&disk), &dir, identity, options, Lsn::ZERO) {
            drop(writer);
            assert!(!recovered.created);
            assert!(recovered.torn.is_some() || records.is_some());
            let mut summary = Summary::default();
            summarize(Arc::clone(&disk), &dir, &mut summary).expect("a recovered log is intact");
            assert_eq!(summary.tail, None);
        }
    }
});
