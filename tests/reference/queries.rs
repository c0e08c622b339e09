//! The engine against the interpreter, on random queries over random logs: at a random batch size, with frames cut anywhere,
//! and in most cases checkpoints and crashes. Rows, late rows and failed rows must be the same, in the same order.
//!
//! `FOREBAY_QUERIES=1000000 cargo test --release --test reference random` for many, from seed 1 on; `FOREBAY_SEED=n` for
//! one seed alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::config::{self, Config};
use serde_json::Value as Json;

use crate::engine::{Play, play};
use crate::generate::{Query, SOURCES, Traits, log, query};
use crate::interpreter::{Output, interpret};
use crate::log::Log;
use crate::random::Random;
use crate::value::same;

/// Random queries in CI.
const QUERIES: u64 = 2000;
/// Logs for each query.
const LOGS: u64 = 2;

fn pipeline(query: &Query, zone: &str, ttl: &str) -> Result<Config, String> {
    let mut text = format!("[pipeline]\nname = \"random\"\nstate = \"unused\"\ntime_zone = \"{zone}\"\n{SOURCES}");
    for (name, sql) in query.views.iter().map(|(name, sql)| (name.as_str(), sql)).chain([("q", &query.text)]) {
        text += &format!("[query.{name}]\nsql = '''{sql}'''\nstate_ttl = \"{ttl}\"\n");
    }
    for (sink, from) in [("rows", "q"), ("late", "q.late"), ("errors", "q.errors")] {
        text += &format!("[sink.{sink}]\ntype = \"file\"\npath = \"{sink}\"\nfrom = \"{from}\"\n");
    }
    config::parse("random.toml", &text).map_err(|problems| problems.to_string())
}

/// Where two outputs differ.
fn difference(engine: &Output, interpreter: &Output) -> Option<String> {
    let parts = [
        ("rows", &engine.rows, &interpreter.rows),
        ("late rows", &engine.late, &interpreter.late),
        ("failed rows", &engine.errors, &interpreter.errors),
    ];
    parts.into_iter().find_map(|(what, a, b)| {
        let equal = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b));
        let lines = |rows: &[Json]| rows.iter().map(|row| format!("  {row}\n")).collect::<String>();
        (!equal).then(|| format!("{what}\nengine:\n{}interpreter:\n{}", lines(a), lines(b)))
    })
}

/// The output, or what is wrong with the engine's.
fn agreed(config: &Config, log: &Log, way: Play) -> Result<Output, String> {
    let expected = catch_unwind(AssertUnwindSafe(|| interpret(config, log)));
    let expected = expected.map_err(|_| "the interpreter panicked".to_owned())?;
    match catch_unwind(AssertUnwindSafe(|| play(config, log, way))) {
        Ok(output) => match difference(&output, &expected) {
            Some(difference) => Err(format!("{way:?}: {difference}")),
            None => Ok(expected),
        },
        Err(_) => Err(format!("{way:?}: the engine panicked")),
    }
}

/// Leaves out records, most at once first, as long as it still goes wrong.
fn minimised(config: &Config, mut log: Log, way: Play) -> Log {
    let mut size = log.0.len() / 2;
    while size > 0 {
        let mut from = 0;
        while from < log.0.len() {
            let mut fewer = log.clone();
            fewer.0.drain(from..(from + size).min(log.0.len()));
            if agreed(config, &fewer, way).is_err() { log = fewer } else { from += size }
        }
        size /= 2;
    }
    log
}

#[derive(Default)]
struct Counts {
    queries: u64,
    refused: u64,
    cases: u64,
    late: u64,
    tied: u64,
    null_keys: u64,
    two_sources: u64,
    idle: u64,
    crashes: u64,
    rows: u64,
    late_rows: u64,
    failed_rows: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        let pairs = [
            (&mut self.queries, other.queries),
            (&mut self.refused, other.refused),
            (&mut self.cases, other.cases),
            (&mut self.late, other.late),
            (&mut self.tied, other.tied),
            (&mut self.null_keys, other.null_keys),
            (&mut self.two_sources, other.two_sources),
            (&mut self.idle, other.idle),
            (&mut self.crashes, other.crashes),
            (&mut self.rows, other.rows),
            (&mut self.late_rows, other.late_rows),
            (&mut self.failed_rows, other.failed_rows),
        ];
        pairs.into_iter().for_each(|(sum, count)| *sum += count);
    }
}

/// Failures that are told before the test gives up.
const FAILURES: usize = 3;

/// Plays one seed: a query over some logs. Gives what is wrong.
fn seed(seed: u64, counts: &mut Counts) -> Option<String> {
    let mut random = Random(seed);
    let query = query(&mut random);
    let zone = if random.one_in(4) { "Europe/Berlin" } else { "UTC" };
    counts.queries += 1;
    let ttl = *random.pick(&["0s", "0s", "0s", "2s", "5s"]);
    let config = match pipeline(&query, zone, ttl) {
        Ok(config) => config,
        Err(problems) => {
            if std::env::var_os("FOREBAY_REFUSED").is_some() {
                println!("seed {seed}: {problems}");
            }
            counts.refused += 1;
            return None;
        }
    };
    let texts = || query.views.iter().map(|(_, text)| text).chain([&query.text]);
    let words: Vec<&str> = texts().flat_map(|text| text.split(|c: char| !c.is_alphanumeric())).collect();
    let mut sources: Vec<&str> = ["a", "b", "v", "r"].into_iter().filter(|name| words.contains(name)).collect();
    // Not every such word is a name: a source that nobody reads gets rows too, which changes nothing.
    sources.truncate(3);
    for _ in 0..LOGS {
        let (log, traits) = log(&mut random, &sources);
        let batch_rows = *random.pick(&[1, 2, 3, 7, 8192]);
        let way = Play { batch_rows, seed: random.next(), checkpoints: random.below(4) };
        let Traits { late, tied, null_keys, idle, .. } = traits;
        counts.cases += 1;
        counts.late += u64::from(late);
        counts.tied += u64::from(tied);
        counts.null_keys += u64::from(null_keys);
        counts.idle += u64::from(idle);
        counts.two_sources += u64::from(sources.len() > 1);
        counts.crashes += u64::from(way.checkpoints > 0);
        let output = match agreed(&config, &log, way) {
            Ok(output) => output,
            Err(first) => {
                let log = minimised(&config, log, way);
                let problem = agreed(&config, &log, way).err().unwrap_or(first);
                let input: String = log.0.iter().map(|(time, record)| format!("  {time} {record:?}\n")).collect();
                let texts: String = query.views.iter().map(|(name, text)| format!("{name}: {text}\n")).collect();
                let failure = format!(
                    "seed {seed}, time zone {zone}, state_ttl {ttl}\n{texts}q: {}\n{problem}input:\n{input}",
                    query.text
                );
                println!("{failure}");
                return Some(failure);
            }
        };
        counts.rows += output.rows.len() as u64;
        counts.late_rows += output.late.len() as u64;
        counts.failed_rows += output.errors.len() as u64;
    }
    None
}

/// A watermark that is a second off, or keys that are forgotten, do not go unseen.
#[test]
fn the_comparison_sees_differences() {
    let mut seen = [0; 2];
    for seed in 1..=60 {
        let mut random = Random(seed);
        let query = query(&mut random);
        let Ok(config) = pipeline(&query, "UTC", "0s") else { continue };
        let (log, _) = log(&mut random, &["a", "b", "v"]);
        let output = play(&config, &log, Play { batch_rows: 7, seed, checkpoints: 0 });
        let mut other = config.clone();
        other.sources.iter_mut().for_each(|source| source.time.max_out_of_orderness_ms += 1000);
        seen[0] += u64::from(difference(&output, &interpret(&other, &log)).is_some());
        let other = pipeline(&query, "UTC", "1s").expect("it is valid");
        seen[1] += u64::from(difference(&output, &interpret(&other, &log)).is_some());
    }
    assert!(seen[0] >= 10 && seen[1] > 0, "{seen:?}");
}

/// See the module.
#[test]
fn random_queries_give_what_the_interpreter_gives() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("FOREBAY_SEED") {
        Some(one) => one..=one,
        None => 1..=number("FOREBAY_QUERIES").unwrap_or(QUERIES),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (seeds, failures, counts) = (Mutex::new(seeds), AtomicUsize::new(0), Mutex::new(Counts::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Counts::default();
                while failures.load(Ordering::Relaxed) < FAILURES {
                    let Some(next) = seeds.lock().expect("not poisoned").next() else { break };
                    failures.fetch_add(usize::from(seed(next, &mut own).is_some()), Ordering::Relaxed);
                }
                counts.lock().expect("not poisoned").add(&own);
            });
        }
    });
    assert_eq!(failures.into_inner(), 0, "the engine differs from the interpreter");
    let counts = counts.into_inner().expect("not poisoned");
    let Counts { queries, refused, cases, .. } = counts;
    let share = |count: u64| format!("{count} ({} %)", count * 100 / cases.max(1));
    println!(
        "{queries} queries ({refused} refused by the planner), {cases} cases: late rows in {}, tied rows in {}, NULL keys in \
         {}, several sources in {}, idle sources in {}, checkpoints and crashes in {}; rows out: {}, late: {}, failed: {}",
        share(counts.late),
        share(counts.tied),
        share(counts.null_keys),
        share(counts.two_sources),
        share(counts.idle),
        share(counts.crashes),
        counts.rows,
        counts.late_rows,
        counts.failed_rows
    );
    if queries >= 500 {
        assert!(refused * 10 <= queries, "{refused} of {queries} queries are refused");
        for count in [counts.late, counts.tied, counts.null_keys, counts.two_sources, counts.idle] {
            assert!(count * 5 >= cases, "each in a fifth of the cases");
        }
    }
}
