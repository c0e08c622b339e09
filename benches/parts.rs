//! Parts of an event's way, each by itself, timed by divan.
//!
//!   cargo bench --bench parts            all of them
//!   cargo bench --bench parts -- window  only these
//!
//! Whole processes are timed by the other benchmarks, instructions counted by `benches/kernels`. `cargo test` runs each
//! part once, so that it does not rot.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark that cannot go on fails")]

#[path = "harness/in_process.rs"]
mod in_process;

use std::cell::RefCell;

use divan::Bencher;
use divan::counter::ItemsCount;
use forebay::checkpoint::perform;
use forebay::engine::open::{Opened, begin, finish};
use forebay::event::{Frame, Lsn, SourceId};
use forebay::format::{FormatConfig, Messages};
use forebay::replay_log::Compression;
use tempfile::TempDir;

use in_process::{FILTER, WINDOWS, columns, engine, frames, log, take};

/// Events, or keys, of an iteration.
const EVENTS: u64 = 10_000;
/// Events of a frame: it has about 50 kB.
const FRAME_EVENTS: usize = 500;

fn main() {
    divan::main();
}

fn dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn input() -> Vec<Frame> {
    frames(EVENTS, FRAME_EVENTS, 1000, SourceId(0), Lsn(1))
}

/// The next frames of a source.
fn next(opened: &Opened, devices: u64) -> Vec<Frame> {
    frames(EVENTS, FRAME_EVENTS, devices, opened.writer.sources()[0].0, opened.engine.last_lsn().plus(1))
}

#[divan::bench]
fn decode_json(bencher: Bencher) {
    let frames = input();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        let mut decoder = FormatConfig::Json.decoder(&columns(), None);
        for run in frames.iter().flat_map(|frame| &frame.runs) {
            divan::black_box(decoder.decode(&[Messages { payload: &run.payload, lengths: &run.lengths }], None));
        }
    });
}

#[divan::bench(args = [Compression::None, Compression::Lz4])]
fn append_to_the_log(bencher: Bencher, compression: Compression) {
    let dir = dir();
    let mut writer = log(dir.path(), compression);
    bencher.counter(ItemsCount::new(EVENTS)).with_inputs(input).bench_local_values(|frames| {
        frames.into_iter().for_each(|frame| drop(writer.append(frame.runs).expect("appends")));
    });
}

/// Decoding and printing included.
#[divan::bench]
fn filter(bencher: Bencher) {
    run(bencher, FILTER, 1000);
}

/// Ten-second windows, decoding and printing included.
#[divan::bench(args = [1000, EVENTS])]
fn window(bencher: Bencher, devices: u64) {
    run(bencher, WINDOWS, devices);
}

fn run(bencher: Bencher, query: &str, devices: u64) {
    let dir = dir();
    let opened = RefCell::new(engine(dir.path(), query).1);
    bencher
        .counter(ItemsCount::new(EVENTS))
        .with_inputs(|| next(&opened.borrow(), devices))
        .bench_local_values(|frames| take(&mut opened.borrow_mut().engine, &frames));
}

/// A checkpoint of 10,000 dirty keys, with its sync.
#[divan::bench]
fn checkpoint(bencher: Bencher) {
    let dir = dir();
    let (config, opened) = engine(dir.path(), &WINDOWS.replace("'10' SECOND", "'30' DAY"));
    let opened = RefCell::new(opened);
    let job = || {
        let opened = &mut *opened.borrow_mut();
        let frames = next(opened, EVENTS);
        take(&mut opened.engine, &frames);
        begin(&config, &mut opened.engine, &opened.checkpoint, 0, Vec::new()).expect("begins")
    };
    bencher.counter(ItemsCount::new(EVENTS)).with_inputs(job).bench_local_values(|job| {
        let opened = &mut *opened.borrow_mut();
        let meta = job.meta.clone();
        let done = perform(job, |meta, layers| opened.store.checkpoints.commit(meta, layers));
        assert!(done.result.expect("commits").changes >= EVENTS, "all keys were dirty");
        drop(finish(&mut opened.engine, opened.store.view.as_ref()).expect("finishes"));
        opened.checkpoint = meta;
    });
}
