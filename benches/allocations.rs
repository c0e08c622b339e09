//! Allocations in the steady state, counted by an allocator that counts: of decoding, of the operators, of the log, and
//! of all of them together. What grows with events, and not only with frames or results, is an allocation per event.
//!
//!   cargo bench --bench allocations
//!
//! `cargo test` runs it small, and fails where a frame of twice the events costs more than a few allocations more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

#[path = "harness/in_process.rs"]
mod in_process;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::engine::open::Opened;
use forebay::event::{Frame, Lsn, SourceId};
use forebay::format::{FormatConfig, Messages};
use forebay::replay_log::Compression;

use in_process::{FILTER, WINDOWS, columns, engine, frames, log};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator as it came; the counter takes no memory.
#[allow(unsafe_code, reason = "an allocator is an unsafe trait; this one only counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(old, layout, new_size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const DEVICES: u64 = 1000;

/// Allocations that a frame of twice the events may cost more: buffers that grow by doubling.
const GROWTH: f64 = 16.0;

/// A step of the pipeline that takes one frame after the other.
struct Part {
    take: Box<dyn FnMut(Frame)>,
    source: SourceId,
    first: Lsn,
}

fn main() {
    let whole = std::env::args().any(|argument| argument == "--bench");
    // Tiny, no window ends: what the rows of a result take is no matter of events.
    let (warm, measured) = if whole { (200, 800) } else { (20, 40) };
    println!("allocations, {measured} frames behind {warm}:   per event, and per frame of 500 and of 1,000 events");
    for part in ["decode", "filter and project", "10 s windows", "log, LZ4", "log and 10 s windows"] {
        let [few, many] = [500, 1000].map(|events| per_frame(part, events, warm, measured));
        println!("{part:24} {:>8.4} {few:>10.1} {many:>10.1}", (many - few) / 500.0);
        assert!(whole || many - few <= GROWTH, "{part}: allocations grow with the events of a frame");
    }
}

fn per_frame(name: &str, events: usize, warm: usize, measured: usize) -> f64 {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let mut part = part(name, dir.path());
    let count = (warm + measured) * events;
    let mut frames = frames(count as u64, events, DEVICES, part.source, part.first).into_iter();
    frames.by_ref().take(warm).for_each(&mut part.take);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    frames.for_each(&mut part.take);
    (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / measured as f64
}

fn part(name: &str, dir: &Path) -> Part {
    let at_start = |take| Part { take, source: SourceId(0), first: Lsn(1) };
    match name {
        "decode" => {
            let mut decoder = FormatConfig::Json.decoder(&columns(), None);
            at_start(Box::new(move |frame| {
                for run in &frame.runs {
                    drop(decoder.decode(&[Messages { payload: &run.payload, lengths: &run.lengths }], None));
                }
            }))
        }
        "log, LZ4" => {
            let mut writer = log(dir, Compression::Lz4);
            at_start(Box::new(move |frame| drop(writer.append(frame.runs).expect("appends"))))
        }
        "filter and project" => stepping(dir, FILTER, false),
        "10 s windows" => stepping(dir, WINDOWS, false),
        "log and 10 s windows" => stepping(dir, WINDOWS, true),
        other => panic!("there is no part {other}"),
    }
}

/// An engine that takes frames, from its log if they are `logged`.
fn stepping(dir: &Path, query: &str, logged: bool) -> Part {
    let (_, opened) = engine(dir, query);
    let Opened { mut engine, mut writer, lock, .. } = opened;
    let (source, first) = (writer.sources()[0].0, engine.last_lsn().plus(1));
    let take = move |frame: Frame| {
        let _lock = &lock;
        let frames = if logged { writer.append(frame.runs).expect("appends") } else { vec![frame] };
        in_process::take(&mut engine, &frames);
    };
    Part { take: Box::new(take), source, first }
}
