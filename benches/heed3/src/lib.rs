//! What both programs of this bench share: the sizes, the values, the measuring. One program cannot have both LMDBs: they
//! define the same symbols.
//!
//!   cargo run --release --manifest-path benches/heed3/Cargo.toml --bin forebay
//!   cargo run --release --manifest-path benches/heed3/Cargo.toml --bin heed3
//!
//! `-- 100000 200` after either: fewer keys, fewer flips.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub type Res<T> = Result<T, Box<dyn Error>>;

const VALUE_BYTES: usize = 100;
pub const FLIP_KEYS: u64 = 20_000;

/// What is measured.
pub trait Subject {
    /// Sets these keys to values made of `round`; gives the time of the commit.
    fn commit(&mut self, round: u64, keys: &[u64]) -> Res<Duration>;
    /// Reads these keys.
    fn read(&mut self, keys: &[u64]) -> Res<()>;
}

pub fn value(round: u64, key: u64) -> Vec<u8> {
    let mut state = round << 40 | key;
    (0..VALUE_BYTES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .collect()
}

/// A way to keep a state.
pub struct Contender {
    pub name: &'static str,
    /// Opens the environment in a directory; makes it where there is none.
    pub open: fn(&Path) -> Res<Box<dyn Subject>>,
    /// Checks everything, as a start would that may not trust the disk; gives a figure for all entries.
    pub check: fn(&Path) -> Res<u32>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % limit
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

fn measure(contender: &Contender, keys: u64) -> Res<()> {
    let subject = contender.name;
    let temp = tempfile::tempdir()?;
    let dir = temp.path().join("checkpoint");
    let all: Vec<u64> = (0..keys).collect();
    let mut random = Random(1);
    let mut store = (contender.open)(&dir)?;
    store.commit(0, &all)?;
    let mut line = format!("{subject:<24}");
    for (part, rounds) in [(100, 5), (10, 5), (1, 3)] {
        let mut times = Vec::new();
        for round in 0..rounds {
            let some: Vec<u64> = (0..keys / part).map(|_| random.below(keys)).collect();
            times.push(store.commit(part * 10 + round, if part == 1 { &all } else { &some })?);
        }
        line += &format!("{:>10.0}", median(times));
    }
    let some: Vec<u64> = (0..200_000).map(|_| random.below(keys)).collect();
    store.read(&some)?;
    let times = (0..3).map(|_| {
        let started = Instant::now();
        store.read(&some).map(|()| started.elapsed())
    });
    let read = median(times.collect::<Res<Vec<_>>>()?) * 1e6 / some.len() as f64;
    drop(store);
    let size = std::fs::metadata(dir.join("data.mdb"))?.len();
    let timed = |command: &str| -> Res<f64> {
        let times = (0..3).map(|_| {
            let started = Instant::now();
            let status = Command::new(std::env::current_exe()?)
                .args([command, subject])
                .arg(&dir)
                .stdout(Stdio::null())
                .status()?;
            if status.success() { Ok(started.elapsed()) } else { Err("a check failed".into()) }
        });
        Ok(median(times.collect::<Res<Vec<_>>>()?))
    };
    println!("{line}{read:>10.0}{:>10.1}{:>10.0}{:>10}", timed("--open")?, timed("--check")?, size >> 20);
    Ok(())
}

fn flip(contender: &Contender, flips: u64) -> Res<()> {
    let subject = contender.name;
    let temp = tempfile::tempdir()?;
    let dir = temp.path().join("checkpoint");
    let all: Vec<u64> = (0..FLIP_KEYS).collect();
    let mut random = Random(7);
    let mut store = (contender.open)(&dir)?;
    store.commit(0, &all)?;
    for round in 1..4 {
        let some: Vec<u64> = (0..FLIP_KEYS / 20).map(|_| random.below(FLIP_KEYS)).collect();
        store.commit(round, &some)?;
    }
    drop(store);
    let data = dir.join("data.mdb");
    let pristine = std::fs::read(&data)?;
    let expected = (contender.check)(&dir)?;
    let (mut found, mut harmless, mut silent, mut crashed) = (0, 0, 0, 0);
    for _ in 0..flips {
        let at = random.below(pristine.len() as u64) as usize;
        let mut damaged = pristine.clone();
        damaged[at] ^= 1 << random.below(8);
        std::fs::write(&data, &damaged)?;
        let output = Command::new(std::env::current_exe()?).args(["--check", subject]).arg(&dir).output()?;
        match output.status.code() {
            None => crashed += 1,
            Some(0) if String::from_utf8_lossy(&output.stdout).trim() == expected.to_string() => harmless += 1,
            Some(0) => silent += 1,
            Some(_) => found += 1,
        }
    }
    println!("{subject:<24}{found:>10}{harmless:>10}{silent:>10}{crashed:>10}");
    Ok(())
}

/// Measures the contenders; or, in a process of its own, opens or checks one of them.
pub fn run(contenders: &[Contender]) -> Res<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, subject, dir] = arguments.as_slice() {
        let contender = contenders.iter().find(|contender| contender.name == subject).ok_or("there is no such")?;
        if command == "--check" {
            println!("{}", (contender.check)(Path::new(dir))?);
        } else {
            (contender.open)(Path::new(dir))?.read(&[1])?;
        }
        return Ok(());
    }
    let number = |place: usize, default| arguments.get(place).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (keys, flips) = (number(0, 1_000_000).max(FLIP_KEYS), number(1, 1500));
    println!(
        "{keys} keys, values of {VALUE_BYTES} bytes; commits of 1 %, 10 % and all keys in ms; a random read in ns;"
    );
    println!("a process that opens and reads one key, and one that checks everything, in ms; the file in MiB");
    println!(
        "{:<24}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "1 %", "10 %", "all", "read", "open", "check", "MiB"
    );
    contenders.iter().try_for_each(|contender| measure(contender, keys))?;
    println!("\n{flips} flipped bits, one at a time, in a file of {FLIP_KEYS} keys");
    println!("{:<24}{:>10}{:>10}{:>10}{:>10}", "", "found", "harmless", "silent", "crashed");
    contenders.iter().try_for_each(|contender| flip(contender, flips))
}
