//! One simulated pipeline, from its plan to the verdict.
//!
//! Everything happens in one thread: the log's rounds, the engine's rounds and the checkpoint worker's are called in an
//! order that the seed chooses; a crash ends the process in the middle of a disk operation; the next start recovers.
//!
//! The ledger is what the log has acknowledged (returned by an append) or was found to hold after a crash. From then on
//! no record of it may be lost or change. In the end the ledger is run once more, on a disk without faults and without
//! any crash, and must give the same bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay::config::Config;
use forebay::disk::sim::{Fault, Random, SimDisk};
use forebay::disk::{Clock, Disk, ManualClock, Stop};
use forebay::engine::EngineError;
use forebay::engine::choices::Choices;
use forebay::engine::commit::{LogThread, Shared, append_bytes_max};
use forebay::engine::drive::{Driver, Parts, Replayed};
use forebay::engine::handover::Handover;
use forebay::engine::open::{Opened, Start, open_on};
use forebay::event::{LogTime, Lsn, Position, RecordKind, Reference, Run, SourceId};
use forebay::replay_log::{LogError, LogReader, StateLock, Wait, log_dir};
use forebay::source::queue::Queue;

use crate::broken::Broken;
use crate::host::{SimHost, SimWorker};
use crate::pipeline::{ARRIVAL, FEED_WINDOW, INPUT, OUT, POSITION, STATE, config, messages, number};

/// 2026-04-02T01:00:00Z.
pub const BEGIN_US: i64 = 1_775_091_600_000_000;
/// Lives after which a simulation makes no progress.
const LIVES_MAX: u32 = 40;
const HOUR_US: i64 = 3_600_000_000;
/// Bytes of one commit at most, so that runs with a position stay whole.
const COMMIT_BYTES_MAX: usize = 12 << 10;

/// What a simulation does.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub shape: u64,
    /// Messages of the source that can be rewound; the other one gives half as many.
    pub messages: u64,
    pub pad_bytes: u64,
    /// Operation of the first life at which it crashes.
    pub crash: Option<u64>,
    /// Operation of the second life at which it crashes.
    pub second_crash: Option<u64>,
    /// Whether a crash takes the power; by the seed where it does not say.
    pub power_cut: Option<bool>,
    /// A fault of the disk, at this operation of the first life.
    pub fault: Option<(u64, Fault)>,
    /// A bit is flipped: while the log is read, or in the log between two lives.
    pub corruption: bool,
    /// The second life has another configuration.
    pub change: bool,
    /// The clocks: 1970 after a power cut, steps of hours both ways, suspends.
    pub clock: bool,
    /// From this try of a commit on, so many find no space.
    pub full: Option<(u64, u64)>,
    pub broken: Broken,
}

impl Plan {
    /// A calm run.
    pub fn calm(seed: u64, shape: u64, messages: u64, pad_bytes: u64) -> Plan {
        Plan {
            seed,
            shape,
            messages,
            pad_bytes,
            crash: None,
            second_crash: None,
            power_cut: None,
            fault: None,
            corruption: false,
            change: false,
            clock: false,
            full: None,
            broken: Broken::Nothing,
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub crashes: u32,
    /// Operations in all.
    pub operations: u64,
    /// Operations of the second life up to the end of its replay.
    pub recovery_operations: u64,
    /// Corruption was refused.
    pub refused: bool,
    /// Corruption has hit the log's last frame, which cannot be told from a torn one.
    pub last_frame_lost: bool,
    pub segments: u64,
    /// The log has been trimmed.
    pub trimmed: bool,
    /// Steps of the clock in the log.
    pub clock_steps: u64,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    source: SourceId,
    kind: RecordKind,
    time: LogTime,
    unsynchronised: bool,
    position: Option<Position>,
    payload: Vec<u8>,
}

impl Record {
    fn run(&self) -> Run {
        let mut run = Run::one(self.source, self.kind, self.time, &self.payload);
        run.position = self.position;
        run.unsynchronised = self.unsynchronised;
        run
    }
}

fn records(runs: &[Run]) -> Vec<Record> {
    let of = |run: &Run| {
        let last = run.len() - 1;
        let record = |(index, payload): (usize, &[u8])| Record {
            source: run.source,
            kind: run.kind,
            time: run.time,
            unsynchronised: run.unsynchronised,
            position: run.position.filter(|_| index == last),
            payload: payload.to_vec(),
        };
        run.records().enumerate().map(record).collect::<Vec<_>>()
    };
    runs.iter().flat_map(of).collect()
}

/// Why a life ended.
#[derive(Debug)]
pub enum End {
    Failed(EngineError),
    /// The promise is broken.
    Violation(String),
    LastFrameLost,
}

impl From<EngineError> for End {
    fn from(error: EngineError) -> End {
        End::Failed(error)
    }
}

impl From<LogError> for End {
    fn from(error: LogError) -> End {
        End::Failed(error.into())
    }
}

/// A process: an opened state and what runs on it.
pub struct Process {
    pub log: LogThread,
    driver: Driver,
    handover: Arc<Handover>,
    pub shared: Arc<Shared>,
    stop: Stop,
    replayed: smol::channel::Receiver<Replayed>,
    _lock: StateLock,
}

impl Process {
    pub fn new(host: &SimHost, config: &Arc<Config>, opened: Opened, seed: u64) -> Process {
        let Opened { engine, store, mut writer, clock, tail_end, torn: _, checkpoint, lock, stop } = opened;
        // Small, so that the engine reads from the disk, too.
        let handover = Arc::new(Handover::new(8 << 10, writer.last_lsn()));
        let shared = Arc::new(Shared::default());
        let queue = Arc::new(Queue::new(1 << 20));
        let (out, replayed) = smol::channel::bounded(1);
        let random = Random::new(seed);
        let worker =
            SimWorker { store: host.store.clone(), shared: Arc::clone(&shared), random, job: None, waits: false };
        let driver = Driver::new(Parts {
            config: Arc::clone(config),
            engine,
            store,
            worker: Box::new(worker),
            handover: Arc::clone(&handover),
            shared: Arc::clone(&shared),
            queue: Arc::clone(&queue),
            checkpoint,
            stop: stop.clone(),
            tail_end,
            replayed: out,
            // What they do depends on no schedule, and they touch no disk.
            decode_threads: (seed % 3) as usize,
        })
        .expect("threads");
        writer.set_space_wait(Box::new(|_| Wait::Retry));
        let log = LogThread {
            queue,
            writer,
            clock,
            handover: Arc::clone(&handover),
            shared: Arc::clone(&shared),
            durability: config.durability,
            append_bytes_max: append_bytes_max(config.log.max_size_bytes, config.pipeline.memory_bytes),
            stop: stop.clone(),
            follows_engine: false,
            trimmed: Lsn::ZERO,
        };
        Process { log, driver, handover, shared, stop, replayed, _lock: lock }
    }

    pub fn round(&mut self) -> Result<bool, EngineError> {
        self.driver.round(Duration::ZERO)
    }

    pub fn replay(&mut self) -> Result<Replayed, EngineError> {
        loop {
            if let Ok(replayed) = self.replayed.try_recv() {
                return Ok(replayed);
            }
            self.round()?;
        }
    }

    /// Logs runs; a full log has the engine go on until it is not.
    pub fn commit(&mut self, mut runs: Vec<Run>) -> Result<(), End> {
        for _ in 0..10_000 {
            match self.log.commit(runs)? {
                None => return Ok(()),
                Some(kept) => runs = kept,
            }
            self.round()?;
        }
        Err(End::Violation("the log stays full".into()))
    }

    /// Ends as after SIGTERM: what is logged is processed, then checkpointed.
    fn stop(mut self) -> Result<(), EngineError> {
        self.handover.close();
        while self.round()? {}
        self.driver.end()?;
        Ok(())
    }
}

struct Sim<'p> {
    plan: &'p Plan,
    host: SimHost,
    random: Random,
    /// Chooses what the clocks do.
    clock_random: Random,
    plant: Vec<String>,
    feed: Vec<String>,
    /// The next message of the source that does not wait for anybody.
    feed_next: usize,
    ledger: Vec<Record>,
    /// Length of the ledger before the last append.
    before_last_append: usize,
    ids: BTreeMap<String, SourceId>,
    changed: bool,
    /// Last record before the new configuration.
    boundary: Option<Lsn>,
    outcome: Outcome,
}

/// Runs a plan. The error says how the promise was broken.
pub fn run(plan: &Plan) -> Result<Outcome, String> {
    let mut random = Random::new(plan.seed);
    let full = plan.full.map_or(0..0, |(from, tries)| from..from + tries);
    let host = SimHost::new(random.draw(), BEGIN_US, full, plan.broken);
    let plant = messages(&mut random, plan.messages, plan.pad_bytes);
    let feed = messages(&mut random, plan.messages / 2, plan.pad_bytes);
    let mut sim = Sim {
        plan,
        host,
        clock_random: Random::new(plan.seed ^ 0xC10C),
        random,
        plant,
        feed,
        feed_next: 0,
        ledger: Vec::new(),
        before_last_append: 0,
        ids: BTreeMap::new(),
        changed: false,
        boundary: None,
        outcome: Outcome::default(),
    };
    sim.run().map_err(|what| format!("{what}\n  {plan:?}"))
}

impl Sim<'_> {
    fn run(&mut self) -> Result<Outcome, String> {
        let disk = self.host.disk.clone();
        self.write_input(&disk).map_err(|error| error.to_string())?;
        for life in 0..LIVES_MAX {
            self.prepare(life, &disk);
            let started = disk.operations();
            let end = self.life(life, started);
            self.host.starting.store(false, Ordering::Relaxed);
            match end {
                Ok(true) => {
                    self.outcome.operations = disk.operations();
                    let steps = self.ledger.iter().filter(|record| record.kind == RecordKind::ClockStep);
                    self.outcome.clock_steps = steps.count() as u64;
                    return self.verdict().map(|()| self.outcome);
                }
                Ok(false) => {}
                Err(End::LastFrameLost) => {
                    self.outcome.last_frame_lost = true;
                    return Ok(self.outcome);
                }
                Err(End::Violation(what)) => return Err(what),
                Err(End::Failed(error)) => {
                    let code = error.exit_code();
                    if disk.crashed() {
                        self.outcome.crashes += 1;
                    } else if code == 65 && self.plan.corruption {
                        self.outcome.refused = true;
                        return Ok(self.outcome);
                    } else if code != 74 || self.plan.fault.is_none() && self.plan.full.is_none() {
                        return Err(format!("life {life} ended with exit code {code}: {error}"));
                    }
                    match self.plan.power_cut.unwrap_or_else(|| self.random.one_in(2)) {
                        true => {
                            disk.power_cut();
                            self.boot();
                        }
                        false => disk.kill(),
                    }
                }
            }
        }
        Err("it makes no progress".into())
    }

    /// What the source that can be rewound reads, made durable before its first byte is referred to.
    fn write_input(&self, disk: &SimDisk) -> std::io::Result<()> {
        if self.plan.shape & POSITION == 0 {
            return Ok(());
        }
        let path = Path::new(INPUT);
        let dir = path.parent().expect("a directory");
        disk.create_dir_all(dir)?;
        let file = disk.create(path)?;
        file.append(self.plant.iter().map(|line| line.clone() + "\n").collect::<String>().as_bytes())?;
        if self.plan.broken == Broken::UnsyncedInput {
            return Ok(());
        }
        file.sync()?;
        disk.sync_dir(dir)
    }

    /// The clocks after a power cut: the one since boot begins anew; a box without a battery takes the other for 1970.
    fn boot(&mut self) {
        if self.plan.clock {
            let wall_us = if self.clock_random.one_in(2) { 0 } else { self.host.clock.wall_us() };
            self.host.clock = Arc::new(ManualClock::new(wall_us));
            self.host.clock.set_synchronised(self.clock_random.one_in(2));
        }
    }

    /// What may happen to the clocks: time since boot only goes on, also over a suspend; the wall clock jumps.
    fn disturb_clock(&mut self) {
        if !self.plan.clock || !self.clock_random.one_in(6) {
            return;
        }
        let clock = &self.host.clock;
        let hours = 1 + self.clock_random.below(5) as i64;
        match self.clock_random.below(6) {
            0 => clock.set_wall(self.clock_random.below(1_000_000_000) as i64),
            1 => clock.set_wall(clock.wall_us() + hours * HOUR_US),
            2 => clock.set_wall(clock.wall_us() - hours * HOUR_US),
            3 => clock.set_wall(BEGIN_US + clock.boottime_us()),
            4 => clock.advance(hours * HOUR_US),
            _ => clock.set_synchronised(self.clock_random.one_in(2)),
        }
    }

    /// Plans what happens to the next life.
    fn prepare(&mut self, life: u32, disk: &SimDisk) {
        let now = disk.operations();
        match life {
            0 => {
                if let Some(crash) = self.plan.crash {
                    disk.crash_at(now + crash);
                }
                if let Some((at, fault)) = self.plan.fault {
                    disk.fault_at(now + at, fault);
                }
            }
            1 => {
                if let Some(crash) = self.plan.second_crash {
                    disk.crash_at(now + crash);
                }
            }
            _ => {}
        }
        if self.plan.corruption && life > 0 {
            if self.random.one_in(3) {
                disk.flip_at_read(disk.reads() + 1 + self.random.below(40));
            } else {
                let mut files = disk.paths();
                files.retain(|path| {
                    path.extension().is_some_and(|extension| extension == "segment") || path == Path::new(INPUT)
                });
                if let Some(path) = files.get(self.random.below(files.len() as u64) as usize) {
                    let within = if self.random.one_in(2) { 64 << 10 } else { 8 << 10 };
                    let at = self.random.below(within);
                    disk.flip(path, at as usize, self.random.below(8) as u32);
                }
            }
        }
    }

    /// One life of the process. True: all input has ended and is processed; false: it was stopped.
    fn life(&mut self, life: u32, started: u64) -> Result<bool, End> {
        if self.plan.change && life > 0 && !self.changed {
            self.changed = true;
            if self.plan.broken == Broken::ConfigOverTail {
                let text = config(self.plan.shape, true).text.clone();
                self.host.store.tamper(|meta| meta.config = text);
            }
        }
        let config = config(self.plan.shape, self.changed);
        self.host.starting.store(true, Ordering::Relaxed);
        let opened = match open_on(&self.host, &config, 1 + self.random.below(40) as usize, &Choices::default())? {
            Start::Go(opened) => *opened,
            Start::Finished(_) => {
                self.check_log(false)?;
                return Ok(true);
            }
        };
        if self.changed && self.boundary.is_none() {
            self.boundary = Some(opened.tail_end);
        }
        self.ids = opened.writer.sources().iter().map(|(id, name)| (name.clone(), *id)).collect();
        self.check_log(opened.torn.is_some())?;
        let mut process = Process::new(&self.host, &config, opened, self.random.draw());
        let at = process.replay()?;
        self.host.starting.store(false, Ordering::Relaxed);
        if life == 1 {
            self.outcome.recovery_operations = self.host.disk.operations() - started;
        }
        let mut plant_next = self.resume(at.positions.get("plant"))?;
        let mut ended = at.ended;
        while ended.len() < 2 {
            match self.random.below(12) {
                0..6 => self.push(&mut process, &mut plant_next, &mut ended)?,
                6..11 => {
                    process.round()?;
                }
                _ => process.shared.want_checkpoint(),
            }
            if self.random.one_in(80) {
                if self.plan.full.is_some() && self.random.one_in(2) {
                    process.stop.request();
                }
                process.stop()?;
                return Ok(false);
            }
        }
        self.outcome.segments = process.log.writer.stats().segments.max(self.outcome.segments);
        process.stop()?;
        Ok(true)
    }

    /// Where the source that can be rewound goes on.
    fn resume(&self, position: Option<&Position>) -> Result<usize, End> {
        let Some(Position::File { offset, .. }) = position else { return Ok(0) };
        let mut at = 0;
        for (index, line) in self.plant.iter().enumerate() {
            if at == *offset {
                return Ok(index);
            }
            at += line.len() as u64 + 1;
        }
        if at == *offset { Ok(self.plant.len()) } else { Err(End::Violation(format!("no line ends at {offset}"))) }
    }

    /// A commit of what the sources have by chance.
    fn push(
        &mut self,
        process: &mut Process,
        plant_next: &mut usize,
        ended: &mut std::collections::BTreeSet<String>,
    ) -> Result<(), End> {
        let (log_before, boot_before) = (process.log.clock.now(), self.host.clock.boottime_us());
        self.host.clock.advance(self.random.below(2_000_000) as i64);
        self.disturb_clock();
        let (log_now, passed) = (process.log.clock.now(), self.host.clock.boottime_us() - boot_before);
        if log_now.0 - log_before.0 < passed / 2 {
            return Err(End::Violation(format!("log time went from {log_before:?} to {log_now:?} in {passed} us")));
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut bytes = 0;
        for _ in 0..self.random.below(4) {
            let plant = self.random.one_in(2);
            let (name, lines, next) = match plant {
                true => ("plant", &self.plant, &mut *plant_next),
                false => ("feed", &self.feed, &mut self.feed_next),
            };
            if ended.contains(name) {
                continue;
            }
            let id = self.ids[name];
            let now = process.log.clock.now();
            let first = *next;
            let mut run = Run::new(id, RecordKind::Data, now);
            run.unsynchronised = !process.log.clock.synchronised();
            for line in lines.iter().skip(*next).take(1 + self.random.below(4) as usize) {
                if bytes + line.len() > COMMIT_BYTES_MAX {
                    break;
                }
                bytes += line.len();
                run.push(line.as_bytes());
                *next += 1;
            }
            if plant && !run.is_empty() {
                let behind = |lines: &[String]| lines.iter().map(|line| line.len() as u64 + 1).sum();
                let offset = behind(&self.plant[..*next]);
                run.position = Some(Position::File { inode: 1, head_crc: 0, head_len: 0, offset });
                if self.plan.shape & POSITION != 0 && !self.changed {
                    let (offset, crc) = (behind(&self.plant[..first]), crc32c::crc32c(&run.payload));
                    let mut reference = Reference { offset, gaps: Vec::new(), crc };
                    (1..run.len()).for_each(|_| reference.push(1));
                    run.reference = Some(reference);
                    run.peer = Some(INPUT.into());
                }
            }
            if !run.is_empty() {
                runs.push(run);
            } else if *next == lines.len() {
                runs.push(Run::one(id, RecordKind::EndOfInput, now, &[]));
                ended.insert(name.to_owned());
            }
        }
        process.log.add_own(&mut runs);
        let logged = records(&runs);
        process.commit(runs)?;
        if !logged.is_empty() {
            self.before_last_append = self.ledger.len();
            self.ledger.extend(logged);
        }
        Ok(())
    }

    /// Compares the log with the ledger, and adds what was logged but not acknowledged before the crash.
    fn check_log(&mut self, torn: bool) -> Result<(), End> {
        let disk: Arc<dyn Disk> = Arc::new(self.host.disk.clone());
        let mut reader = LogReader::open(disk, &log_dir(Path::new(STATE)), Lsn(1))?;
        let mut next = reader.position().0 as usize - 1;
        if next > self.ledger.len() {
            return Err(End::Violation(format!("the log begins at {next}, behind what was acknowledged")));
        }
        self.outcome.trimmed |= next > 0;
        let known = self.ledger.len();
        while let Some(frame) = reader.next()? {
            for record in records(&frame.runs) {
                match self.ledger.get(next) {
                    Some(known) if *known == record => {}
                    // Its own last record, the start, stands where acknowledged ones stood.
                    Some(known) => return self.lost(next, &format!("{known:?} became {record:?}")),
                    None => self.ledger.push(record),
                }
                next += 1;
            }
        }
        if next < known {
            return self.lost(next, "the log ends");
        }
        self.before_last_append = self.ledger.len() - 1;
        if torn {
            let (path, offset) = reader.place();
            let content = self.host.disk.content(path).unwrap_or_default();
            if content.iter().skip(offset as usize).any(|byte| *byte != 0) {
                return Err(End::Violation("after a cut something follows the log's end".into()));
            }
        }
        Ok(())
    }

    fn lost(&self, at: usize, what: &str) -> Result<(), End> {
        if self.plan.corruption && at >= self.before_last_append {
            return Err(End::LastFrameLost);
        }
        let acknowledged = self.ledger.len();
        Err(End::Violation(format!("acknowledged records are lost: {what} at LSN {} of {acknowledged}", at + 1)))
    }

    /// Windows over the time of arrival, computed by hand: each row is in exactly one, by its logged arrival, and each
    /// has fired, whatever the clocks did.
    fn arrival_windows(&self, found: &BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
        if self.plan.shape & ARRIVAL == 0 || self.plan.shape & FEED_WINDOW == 0 {
            return Ok(());
        }
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        let rows = self.ledger.iter().filter(|record| record.source == self.ids["feed"]);
        for row in rows.filter(|row| row.kind == RecordKind::Data && row.payload.starts_with(b"{")) {
            let end = row.time.0.div_euclid(5_000_000) * 5_000_000 + 5_000_000;
            let end = jiff::Timestamp::from_microsecond(end).expect("a time").strftime("%Y-%m-%dT%H:%M:%S.000");
            *expected.entry(end.to_string()).or_default() += number(&row.payload);
        }
        let mut windows: BTreeMap<String, u64> = BTreeMap::new();
        for (path, content) in found {
            if !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"fives")) {
                continue;
            }
            for line in String::from_utf8_lossy(content).lines() {
                let row: serde_json::Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
                let end = row["window_end"].as_str().expect("text").to_owned();
                if windows.insert(end, row["n"].as_u64().expect("a number")).is_some() {
                    return Err(format!("a window has fired twice: {line}"));
                }
            }
        }
        if windows == expected { Ok(()) } else { Err(format!("windows {windows:?}, expected {expected:?}")) }
    }

    /// Everything has ended: nothing is lost, nothing is there twice, the output is what it would have been.
    fn verdict(&self) -> Result<(), String> {
        let of = |name: &str| {
            let id = self.ids[name];
            self.ledger.iter().filter(move |record| record.source == id && record.kind == RecordKind::Data)
        };
        let plant: Vec<&[u8]> = of("plant").map(|record| record.payload.as_slice()).collect();
        if plant != self.plant.iter().map(|line| line.as_bytes()).collect::<Vec<_>>() {
            let numbers: Vec<u64> = plant.iter().map(|line| number(line)).collect();
            return Err(format!("of {} lines the log took {numbers:?}", self.plant.len()));
        }
        let feed: Vec<u64> = of("feed").map(|record| number(&record.payload)).collect();
        if !feed.is_sorted_by(|a, b| a < b) {
            return Err(format!("messages are not each there once and in order: {feed:?}"));
        }
        if !self.ledger.is_sorted_by_key(|record| record.time) {
            return Err("log time ran backwards".into());
        }
        let expected = reference(&self.ledger, self.boundary, self.plan.shape)
            .map_err(|end| format!("the run without crashes failed: {end:?}"))?;
        let found = outputs(&self.host.disk);
        for (path, expected) in &expected {
            match found.get(path) {
                Some(found) if found == expected => {}
                found => return Err(difference(path, expected, found)),
            }
        }
        match found.keys().find(|path| !expected.contains_key(*path)) {
            Some(path) => Err(format!("{} should not be there", path.display())),
            None => self.arrival_windows(&found),
        }
    }
}

fn difference(path: &Path, expected: &[u8], found: Option<&Vec<u8>>) -> String {
    let Some(found) = found else { return format!("{} is missing", path.display()) };
    let at = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let around =
        |bytes: &[u8]| String::from_utf8_lossy(&bytes[at.saturating_sub(60)..bytes.len().min(at + 60)]).into_owned();
    format!(
        "{} differs at byte {at} ({} bytes expected, {} found):\n  expected {:?}\n  found    {:?}",
        path.display(),
        expected.len(),
        found.len(),
        around(expected),
        around(found)
    )
}

/// The output files.
fn outputs(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut paths = disk.paths();
    paths.retain(|path| path.starts_with(OUT) && path.extension().is_none_or(|extension| extension != "lock"));
    paths.into_iter().map(|path| (path.clone(), disk.content(&path).unwrap_or_default())).collect()
}

/// What the ledger gives without any crash.
fn reference(ledger: &[Record], boundary: Option<Lsn>, shape: u64) -> Result<BTreeMap<PathBuf, Vec<u8>>, End> {
    let host = SimHost::new(0, BEGIN_US, 0..0, Broken::Nothing);
    let boundary = boundary.map_or(ledger.len(), |lsn| lsn.0 as usize);
    let mut begin = 0;
    for (end, changed) in [(boundary, false), (ledger.len(), true)] {
        if begin == end {
            continue;
        }
        let config = config(shape, changed);
        host.clock.set_wall(ledger[begin].time.0);
        let Start::Go(opened) = open_on(&host, &config, 8192, &Choices::default())? else {
            return Err(End::Violation("it is finished already".into()));
        };
        let mut process = Process::new(&host, &config, *opened, 1);
        process.replay()?;
        // The start has logged the first record by itself.
        for records in ledger[begin + 1..end].chunks(3) {
            process.commit(records.iter().map(Record::run).collect())?;
            process.round()?;
        }
        process.stop()?;
        begin = end;
    }
    Ok(outputs(&host.disk))
}
