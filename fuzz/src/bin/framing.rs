//! Framings: the messages do not depend on how the stream is cut into reads, and every byte is accounted for.
#![no_main]

use std::time::Duration;

use forebay::event::{LogTime, RecordKind, Run, SourceId};
use forebay::source::framing::{Framed, Framer, FramingConfig, Method, Prefix};
use forebay_fuzz::options;
use libfuzzer_sys::fuzz_target;

fn framed(taken: u64) -> Framed {
    Framed::new(Run::new(SourceId(1), RecordKind::Data, LogTime(0)), 300, taken)
}

/// Messages and the bytes taken at the end.
fn frame(framer: &mut dyn Framer, reads: &[&[u8]], breaks: bool) -> Vec<(RecordKind, Vec<u8>)> {
    let mut found = Vec::new();
    let mut taken = 0;
    let mut pushed = 0;
    let mut collect = |out: Framed| {
        let taken = out.taken();
        for (run, end) in out.into_runs() {
            assert!(end <= taken);
            found.extend(run.records().map(|record| (run.kind, record.to_vec())));
        }
        taken
    };
    for read in reads {
        let mut out = framed(taken);
        framer.push(read, &mut out);
        pushed += read.len() as u64;
        taken = collect(out);
        assert!(taken <= pushed);
        assert_eq!(framer.is_partial(), taken < pushed);
    }
    let mut out = framed(taken);
    if breaks {
        framer.break_off("the stream broke off", &mut out);
    } else {
        framer.finish(&mut out);
    }
    assert_eq!(collect(out), pushed);
    assert!(!framer.is_partial());
    found
}

fuzz_target!(|data: &[u8]| {
    let Some(([method, length, ending, step], stream)) = options(data) else { return };
    let max_length = 1 + length;
    let prefixes = Prefix::NAMES.map(|(_, prefix)| prefix);
    let method = match method % 12 {
        0 | 1 => Method::Lines,
        2 => Method::Delimiter(b";".to_vec()),
        3 => Method::Delimiter(b"\r\n".to_vec()),
        4 => Method::Delimiter(b"aab".to_vec()),
        5 => Method::Fixed(1 + length % 16),
        6 => Method::Whole,
        other => Method::Length(prefixes[(other - 7) % prefixes.len()]),
    };
    let datagram = method == Method::Whole;
    let config = FramingConfig { method, max_length, idle_flush: None::<Duration> };
    let (at_start, breaks) = (ending & 1 != 0, ending & 2 != 0);
    let whole = frame(config.framer(at_start).as_mut(), &[stream], breaks);
    for (kind, message) in &whole {
        assert!(*kind != RecordKind::Data || message.len() <= config.message_bytes_max());
    }
    if datagram {
        return;
    }
    // Cut evenly, and where the bytes say.
    let even: Vec<&[u8]> = stream.chunks(1 + step).collect();
    assert_eq!(whole, frame(config.framer(at_start).as_mut(), &even, breaks));
    let uneven: Vec<&[u8]> = stream.split_inclusive(|byte| usize::from(*byte) % (2 + step) == 0).collect();
    assert_eq!(whole, frame(config.framer(at_start).as_mut(), &uneven, breaks));
});
