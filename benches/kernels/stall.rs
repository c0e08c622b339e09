//! How long a checkpoint of many dirty keys holds the engine up: the work that is done on the engine's thread when it
//! begins (the dirty maps are taken away) and when it is committed (they become a cache). What lies between runs on the
//! checkpoint thread.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay::checkpoint::perform;
use forebay::engine::open::{begin, finish};

use crate::in_process::{engine, frames};

/// A window that stays open.
const WINDOW: &str = r#"
[query.q]
sql = """
SELECT window_start, device, AVG(temp) AS t, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '30' DAY))
GROUP BY window_start, window_end, device
"""
"#;

/// Makes so many checkpoints, and prints the medians.
pub fn measure(keys: u64, rounds: usize, dir: &Path) {
    let (config, mut opened) = engine(dir, WINDOW);
    let source = opened.writer.sources()[0].0;
    let (mut began, mut finished, mut committed) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        for frame in frames(keys, 1000, keys, source, opened.engine.last_lsn().plus(1)) {
            opened.engine.step(&frame).expect("steps");
        }
        let (job, took) =
            timed(|| begin(&config, &mut opened.engine, &opened.checkpoint, 0, Vec::new()).expect("begins"));
        began.push(took);
        let meta = job.meta.clone();
        let (done, took) = timed(|| perform(job, |meta, layers| opened.store.checkpoints.commit(meta, layers)));
        committed.push(took);
        assert!(done.result.expect("commits").changes >= keys, "all keys were dirty");
        // What is retired is dropped by the checkpoint thread.
        let (_retired, took) = timed(|| finish(&mut opened.engine, opened.store.view.as_ref()).expect("finishes"));
        finished.push(took);
        opened.checkpoint = meta;
    }
    println!(
        "a checkpoint of {keys} dirty keys, medians of {rounds}: the engine stands still for {:.2?} when it begins and {:.2?} \
         when it is committed (at most {:.2?}, {:.2?}); the commit itself takes {:.2?}",
        median(&mut began),
        median(&mut finished),
        began.last().expect("a round"),
        finished.last().expect("a round"),
        median(&mut committed)
    );
}

/// The middle one of the times, which are put in order.
fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let done = work();
    (done, started.elapsed())
}
