//! What both programs of this bench share: the sizes, the values, the measuring. One program cannot have both LMDBs: they
//! define the same symbols.
//!
//!   cargo run --release --manifest-path benches/heed3/Cargo.toml --bin forebay
//!   cargo run --release --manifest-path benches/heed3/Cargo.toml --bin heed3
//!
//! `-- 100000 200` after either: fewer keys, fewer flips.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub type Res<T> = Result<T, Box<dyn Error>>;

const VALUE_BYTES: usize = 100;
pub const FLIP_KEYS: u64 = 20_000;

/// What is measured.
pub trait Subject {
    /// Sets these keys to values made of `round`; gives what the commit cost.
    fn commit(&mut self, round: u64, keys: &[u64]) -> Res<Cost>;
    /// Reads these keys.
    fn read(&mut self, keys: &[u64]) -> Res<()>;
}

pub fn value(round: u64, key: u64) -> Vec<u8> {
    let mut state = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ key;
    (0..VALUE_BYTES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .collect()
}

/// What something cost this process: not the time by the clock, which a busy machine makes longer.
pub struct Cost {
    pub cpu: Duration,
    pub written_bytes: u64,
}

/// Does something and gives its cost.
pub fn cost(action: impl FnOnce() -> Res<()>) -> Res<Cost> {
    let written = || -> Res<u64> {
        let counters = std::fs::read_to_string("/proc/self/io")?;
        let line = counters.lines().find_map(|line| line.strip_prefix("wchar: "));
        Ok(line.ok_or("no counter of written bytes")?.parse()?)
    };
    let cpu = || Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime));
    let (cpu_before, written_before) = (cpu()?, written()?);
    action()?;
    Ok(Cost { cpu: cpu()?.saturating_sub(cpu_before), written_bytes: written()?.saturating_sub(written_before) })
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

/// The middle one, in ms.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

fn measure(contender: &Contender, keys: u64) -> Res<()> {
    let temp = tempfile::tempdir()?;
    let dir = temp.path().join("checkpoint");
    let all: Vec<u64> = (0..keys).collect();
    let mut random = Random(1);
    let mut store = (contender.open)(&dir)?;
    store.commit(0, &all)?;
    let mut line = format!("{:<24}", contender.name);
    for (part, rounds) in [(100, 5), (10, 5), (1, 3)] {
        let (mut times, mut written) = (Vec::new(), 0);
        for round in 0..rounds {
            let some: Vec<u64> = (0..keys / part).map(|_| random.below(keys)).collect();
            let cost = store.commit(part * 10 + round, if part == 1 { &all } else { &some })?;
            times.push(cost.cpu);
            written = cost.written_bytes >> 20;
        }
        line += &format!("{:>8.0} /{written:>4}", median(times));
    }
    let some: Vec<u64> = (0..200_000).map(|_| random.below(keys)).collect();
    let times = (0..3).map(|_| cost(|| store.read(&some)).map(|cost| cost.cpu));
    let read_ns = median(times.collect::<Res<Vec<_>>>()?) * 1e6 / some.len() as f64;
    drop(store);
    let size = std::fs::metadata(dir.join("data.mdb"))?.len();
    let times = (0..3).map(|_| cost(|| (contender.open)(&dir)?.read(&[1])).map(|cost| cost.cpu));
    let open = median(times.collect::<Res<Vec<_>>>()?);
    let times = (0..3).map(|_| cost(|| (contender.check)(&dir).map(|_| ())).map(|cost| cost.cpu));
    let check = median(times.collect::<Res<Vec<_>>>()?);
    println!("{line}{read_ns:>8.0}{open:>8.1}{check:>8.0}{:>8}", size >> 20);
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

/// Measures the contenders; or, in a process of its own, checks one of them.
pub fn run(contenders: &[Contender]) -> Res<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, subject, dir] = arguments.as_slice()
        && command == "--check"
    {
        let contender = contenders.iter().find(|contender| contender.name == subject).ok_or("there is no such")?;
        println!("{}", (contender.check)(Path::new(dir))?);
        return Ok(());
    }
    let number = |place: usize, default| arguments.get(place).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (keys, flips) = (number(0, 1_000_000).max(FLIP_KEYS), number(1, 1500));
    println!(
        "{keys} keys, values of {VALUE_BYTES} bytes. CPU time in ms / MiB written of commits of 1 %, 10 % and all"
    );
    println!(
        "keys; CPU time of a random read in ns, of an opening and of a check of everything in ms; the file in MiB"
    );
    println!("{:<24}{:>14}{:>14}{:>14}{:>8}{:>8}{:>8}{:>8}", "", "1 %", "10 %", "all", "read", "open", "check", "MiB");
    for contender in contenders {
        if let Err(error) = measure(contender, keys) {
            println!("{:<24} fails: {error}", contender.name);
        }
    }
    println!("\n{flips} flipped bits, one at a time, in a file of {FLIP_KEYS} keys");
    println!("{:<24}{:>10}{:>10}{:>10}{:>10}", "", "found", "harmless", "silent", "crashed");
    contenders.iter().try_for_each(|contender| flip(contender, flips))
}
