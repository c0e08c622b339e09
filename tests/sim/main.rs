//! The simulator: the whole engine but LMDB, in one thread, on a simulated disk, from a seed. It crashes anywhere, and
//! the promise must hold: output is what it would have been, nothing acknowledged is lost, nothing is there twice, no
//! crash needs a human, corruption is refused.
//!
//! `FOREBAY_SEEDS=1000000 cargo test --release --test sim random` for many. A seed that fails is printed: add it to
//! `regressions.txt`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod broken;
mod host;
mod pipeline;
mod repair;
mod run;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::disk::sim::{Fault, Random};

use broken::Broken;
use pipeline::{ARRIVAL, BOTH, COMPRESSED, FEED_WINDOW, POSITION, ROLLS, SHAPES, SIDES};
use run::{Outcome, Plan, run};

/// Calls `each` with every number on all processors; gives the failures, at most about ten.
fn in_parallel(
    numbers: impl Iterator<Item = u64> + Send,
    each: impl Fn(u64) -> Result<(), String> + Sync,
) -> Vec<String> {
    let numbers = Mutex::new(numbers);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = numbers.lock().expect("not poisoned").next();
                    let Some(number) = next else { break };
                    if failures.lock().expect("not poisoned").len() >= 10 {
                        break;
                    }
                    if let Err(what) = each(number) {
                        eprintln!("seed {number}: {what}");
                        failures.lock().expect("not poisoned").push(format!("seed {number}: {what}"));
                    }
                }
            });
        }
    });
    failures.into_inner().expect("not poisoned")
}

/// The plan of a seed: any shape and size, a crash, half of them a second one while it recovers, some with a fault of
/// the disk, some with another configuration after the crash, with clocks that jump, with no space for checkpoints.
fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed ^ 0x5EED);
    // Half of them fill the log often enough that it rolls and is trimmed.
    let pad_bytes = [0, 300, 2500, 2500][random.below(4) as usize];
    let messages = 4 + random.below(if pad_bytes == 2500 { 110 } else { 50 });
    let mut plan = Plan::calm(seed, random.below(SHAPES), messages, pad_bytes);
    // Small so often that recovery and the first steps are hit, too.
    let crash = 1 + random.below(60 + 6 * messages);
    plan.crash = Some(1 + random.below(crash));
    let within = if random.one_in(2) { 12 } else { 50 };
    plan.second_crash = random.one_in(2).then(|| 1 + random.below(within));
    plan.change = random.one_in(4);
    if random.one_in(4) {
        let fault = match random.below(4) {
            0 => Fault::NoSpace { more: random.below(4) as u32 },
            1 => Fault::ShortWrite,
            2 => Fault::WriteError,
            _ => Fault::SyncError,
        };
        plan.fault = Some((1 + random.below(crash), fault));
    }
    plan.clock = random.one_in(3);
    if plan.clock && random.one_in(2) {
        plan.shape |= ARRIVAL | FEED_WINDOW;
    }
    plan.full = random.one_in(6).then(|| (random.below(6), 1 + random.below(20)));
    plan
}

/// Runs a seed. Where the plan's crash comes too late, it is brought forward: each seed crashes.
fn simulate(seed: u64) -> Result<Outcome, String> {
    let mut plan = plan(seed);
    let mut outcome = run(&plan)?;
    for _ in 0..4 {
        if outcome.crashes > 0 {
            break;
        }
        plan.crash = plan.crash.map(|crash| 1 + crash % outcome.operations / 2);
        plan.fault = None;
        outcome = run(&plan)?;
    }
    Ok(outcome)
}

fn seeds() -> u64 {
    std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2000)
}

fn fail_on(failures: &[String]) {
    assert!(failures.is_empty(), "{} failed, the first: {}", failures.len(), failures[0]);
}

#[test]
fn random_crashes_leave_no_trace() {
    let (crashes, calm, segments) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (trimmed, steps) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = in_parallel(0..seeds(), |seed| {
        let outcome = simulate(seed)?;
        calm.fetch_add(u64::from(outcome.crashes == 0), Ordering::Relaxed);
        crashes.fetch_add(u64::from(outcome.crashes), Ordering::Relaxed);
        segments.fetch_max(outcome.segments, Ordering::Relaxed);
        trimmed.fetch_add(u64::from(outcome.trimmed), Ordering::Relaxed);
        steps.fetch_add(outcome.clock_steps, Ordering::Relaxed);
        Ok(())
    });
    fail_on(&failures);
    println!(
        "{} seeds, {crashes:?} crashes, {calm:?} seeds without one; up to {segments:?} segments, {trimmed:?} seeds found \
         a trimmed log; {steps:?} steps of the clock",
        seeds()
    );
    assert!(crashes.into_inner() > seeds(), "more than one crash per seed");
    // A stop can come before the crash and end all input.
    assert!(calm.into_inner() <= seeds() / 100 + 1, "hardly a seed is without a crash");
    assert!(segments.into_inner() > 1, "the log rolls");
    assert!(trimmed.into_inner() > seeds() / 20, "logs are trimmed");
    assert!(steps.into_inner() > seeds() / 10, "clocks jump");
}

#[test]
fn seeds_that_failed_once_pass() {
    let seeds: Vec<u64> = include_str!("regressions.txt")
        .lines()
        .filter_map(|line| line.split('#').next().unwrap_or_default().trim().parse().ok())
        .collect();
    fail_on(&in_parallel(seeds.into_iter(), |seed| simulate(seed).map(|_| ())));
}

#[test]
fn flipped_bits_are_refused_or_harmless() {
    let (refused, last, harmless) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failures = in_parallel(0..seeds() / 4, |seed| {
        let mut plan = plan(seed);
        plan.fault = None;
        plan.corruption = true;
        let outcome = run(&plan)?;
        match outcome {
            Outcome { refused: true, .. } => &refused,
            Outcome { last_frame_lost: true, .. } => &last,
            _ => &harmless,
        }
        .fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    fail_on(&failures);
    println!("refused {refused:?}, harmless {harmless:?}, in the last frame {last:?}");
    assert!(refused.into_inner() > 0);
}

/// A crash at every operation, and at every one of the recovery from it.
fn exhaust(scenario: &Plan) {
    let calm = run(scenario).expect("without a crash");
    assert!(calm.operations > 40 && calm.operations <= 100, "{} operations", calm.operations);
    let runs = AtomicU64::new(0);
    let failures = in_parallel(1..calm.operations + 1, |at| {
        for power_cut in [false, true] {
            let first = Plan { crash: Some(at), power_cut: Some(power_cut), ..scenario.clone() };
            let recovery = run(&first)?.recovery_operations;
            for second in 1..=recovery {
                run(&Plan { second_crash: Some(second), ..first.clone() })?;
                runs.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    });
    fail_on(&failures);
    println!("{} operations, {runs:?} double crashes", calm.operations);
}

#[test]
fn every_crash_of_a_small_pipeline() {
    exhaust(&Plan::calm(3, 0, 20, 0));
}

#[test]
fn every_crash_while_outputs_roll() {
    exhaust(&Plan::calm(1, ROLLS, 14, 300));
}

#[test]
fn every_crash_with_both_sources() {
    exhaust(&Plan::calm(1, BOTH | COMPRESSED, 6, 0));
}

#[test]
fn every_crash_while_the_log_rolls() {
    exhaust(&Plan::calm(1, 0, 26, 2500));
}

#[test]
fn every_crash_around_a_change_of_configuration() {
    exhaust(&Plan { change: true, ..Plan::calm(2, SIDES, 12, 0) });
}

#[test]
fn every_crash_while_positions_are_logged() {
    exhaust(&Plan { change: true, ..Plan::calm(1, POSITION | ROLLS, 14, 300) });
}

/// Goes through seeds until one shows what is broken, by a message with `how` in it.
fn caught(broken: Broken, how: &str, mut adjust: impl FnMut(&mut Plan, &mut Random)) {
    let mut others = 0;
    for seed in 0..3000 {
        let mut plan = plan(seed);
        plan.broken = broken;
        plan.fault = None;
        plan.change = false;
        adjust(&mut plan, &mut Random::new(seed));
        match run(&plan) {
            Ok(_) => {}
            Err(what) if what.contains(how) => {
                println!("{broken:?}: caught by seed {seed}, {others} others before it: {what}");
                return;
            }
            Err(_) => others += 1,
        }
    }
    panic!("{broken:?} was not caught ({others} others)");
}

#[test]
fn catches_a_missing_directory_sync() {
    caught(Broken::NoDirectorySync, "exit code 65", |plan, _| plan.power_cut = Some(true));
}

#[test]
fn catches_a_retry_after_a_failed_sync() {
    caught(Broken::RetryAfterFailedSync, "exit code 65", |plan, random| {
        plan.fault = Some((20 + random.below(60), Fault::SyncError));
        plan.crash = Some(30 + random.below(100));
        plan.power_cut = Some(true);
    });
}

/// The first crash leaves a tail that is not synced; the second one, by a power cut, takes it away from what came of it.
#[test]
fn catches_a_replay_before_the_tail_is_synced() {
    caught(Broken::ReplayBeforeTailSync, "newest checkpoint stands at", |plan, random| {
        *plan = Plan {
            crash: Some(10 + random.below(50)),
            second_crash: Some(5 + random.below(35)),
            // Makes a checkpoint at the end of the replay.
            change: true,
            broken: plan.broken,
            ..Plan::calm(plan.seed, 0, 12, 0)
        };
    });
}

#[test]
fn catches_a_checkpoint_before_the_sinks_are_flushed() {
    caught(Broken::CheckpointBeforeSinkFlush, "of it were durable", |plan, _| plan.power_cut = Some(true));
}

#[test]
fn catches_a_cut_beyond_the_synced_lsn() {
    caught(Broken::CutBeyondSynced, "newest checkpoint stands at", |plan, _| plan.power_cut = Some(true));
}

#[test]
fn catches_a_trim_before_the_checkpoint() {
    caught(Broken::TrimBeforeCheckpoint, "newest checkpoint stands at", |plan, random| {
        (plan.messages, plan.pad_bytes) = (90, 2500);
        plan.crash = Some(60 + random.below(200));
    });
}

#[test]
fn catches_a_position_outside_the_transaction() {
    caught(Broken::PositionOutsideTransaction, "lines the log took", |plan, random| {
        let crash = Some(10 + random.below(90));
        *plan = Plan { crash, broken: plan.broken, ..Plan::calm(plan.seed, 0, 20, 0) };
    });
}

#[test]
fn catches_a_checksum_without_a_seed() {
    caught(Broken::UnseededChecksum, "an intact frame follows", |plan, random| {
        (plan.messages, plan.pad_bytes) = (150, 2500);
        plan.crash = Some(200 + random.below(400));
    });
}

/// By the bytes behind the cut: the output cannot show it, since at most one frame is ever torn, each frame is written
/// with zeros behind it, and a rest of a frame does not validate. The zeros are a second line of defence.
#[test]
fn catches_a_tail_that_is_not_zeroed() {
    caught(Broken::TailNotZeroed, "something follows the log's end", |plan, _| plan.pad_bytes = 2500);
}

#[test]
fn catches_a_failed_checkpoint_that_forgets_its_dirty_keys() {
    caught(Broken::ForgottenDirtyKeys, "tens.ndjson differs", |plan, _| plan.shape &= !ROLLS);
}

#[test]
fn catches_a_change_of_configuration_over_an_unreplayed_tail() {
    caught(Broken::ConfigOverTail, "hot.csv differs", |plan, _| {
        plan.change = true;
        plan.shape &= !ROLLS;
    });
}

#[test]
fn catches_a_reference_to_an_input_that_is_not_synced() {
    caught(Broken::UnsyncedInput, "exit code 65", |plan, _| {
        plan.shape |= POSITION;
        plan.power_cut = Some(true);
    });
}

#[test]
fn a_calm_run_passes_in_every_shape() {
    for shape in [0, ROLLS, POSITION, FEED_WINDOW | ROLLS, SHAPES - 1] {
        run(&Plan::calm(1, shape, 20, 0)).expect("nothing happens");
        run(&Plan::calm(2, shape, 60, 2500)).expect("nothing happens");
    }
}
