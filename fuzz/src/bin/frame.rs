//! A frame and a segment header of the replay log: what can be read is written and read back the same.
#![no_main]

use forebay::event::LogTime;
use forebay::replay_log::format::{FrameHeader, SegmentHeader, decode_body, encode_body};
use forebay_fuzz::mend_header;
use libfuzzer_sys::fuzz_target;

const FRAME_BYTES_MAX: usize = 16 * 1024;

fuzz_target!(|data: &[u8]| {
    let time = LogTime(1_775_000_000_000_000);
    if let Ok(runs) = decode_body(data, time) {
        let mut body = Vec::new();
        encode_body(&runs, time, &mut body);
        assert_eq!(decode_body(&body, time).as_ref(), Ok(&runs));
    }
    if let Ok(header) = FrameHeader::decode(data, FRAME_BYTES_MAX) {
        assert!(header.frame_bytes() <= FRAME_BYTES_MAX + 8);
        let _ = header.next_lsn();
        let _ = header.decode_runs(data);
    }
    let mut bytes = data.to_vec();
    mend_header(&mut bytes);
    let _ = SegmentHeader::length(&bytes);
    if let Ok(header) = SegmentHeader::decode(&bytes) {
        let encoded = header.encode().expect("it was encoded before");
        assert_eq!(SegmentHeader::decode(&encoded).as_ref(), Ok(&header));
    }
});
