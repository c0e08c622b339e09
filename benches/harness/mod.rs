//! What the benchmarks share: input from a fixed seed, processes measured from outside, medians.

#![allow(dead_code, reason = "each benchmark uses a part")]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

/// Events reach back behind the newest by up to so much.
pub const DISORDER_MS: u64 = 500;

/// The query of W1.
pub const WINDOWS: &str = include_str!("windows.toml");

/// The numbers among the arguments, or these: `whole` for `cargo bench`, `tiny` for `cargo test`.
pub fn sizes<const N: usize>(whole: [u64; N], tiny: [u64; N]) -> [u64; N] {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` says so; `cargo test` does not.
    let mut sizes = if arguments.iter().any(|argument| argument == "--bench") { whole } else { tiny };
    let numbers = arguments.iter().filter_map(|argument| argument.parse::<u64>().ok());
    sizes.iter_mut().zip(numbers).for_each(|(size, number)| *size = number);
    sizes
}

/// Calls `part` with the arguments behind `--part NAME`, if this process was started for it.
pub fn is_part(name: &str, part: impl FnOnce(&[String])) -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [flag, asked, rest @ ..] if flag == "--part" && asked == name => {
            part(rest);
            true
        }
        _ => false,
    }
}

/// This program again, for one of its parts.
pub fn part(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--part", name]);
    command
}

/// Numbers that look like chance, from a fixed seed.
pub fn random() -> impl FnMut() -> u64 {
    let mut state = 42u64;
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    }
}

/// Readings of 1,000 devices, one each 100 µs of event time, up to 500 ms of disorder. Fixed seed.
pub fn generate(path: &Path, events: u64) {
    let file = File::create(path).expect("the input file");
    generate_of(file, 0..events, random(), |_, random| random % 1000);
}

/// As [`generate`], the events with these numbers; `device` gives the device of an event, from a random number.
pub fn generate_of(
    file: File,
    events: std::ops::Range<u64>,
    mut random: impl FnMut() -> u64,
    device: impl Fn(u64, u64) -> u64,
) {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut line = String::new();
    for event in events {
        let millis = 1_775_088_000_000 + event / 10 - (random() % DISORDER_MS).min(event / 10);
        let (s, ms) = (millis / 1000 % 86_400, millis % 1000);
        let day = 2 + (millis - 1_775_088_000_000) / 86_400_000;
        line.clear();
        let (h, m, sec) = (s / 3600, s / 60 % 60, s % 60);
        let (device, temp) = (device(event, random()), random() % 100_000);
        let _ = writeln!(
            line,
            "{{\"ts\":\"2026-04-{day:02}T{h:02}:{m:02}:{sec:02}.{ms:03}Z\",\"device\":\"device-{device:04}\",\"temp\":{}.{:03},\"seq\":{event}}}",
            temp / 1000,
            temp % 1000
        );
        out.write_all(line.as_bytes()).expect("writes");
    }
    out.flush().expect("writes");
}

/// Whether two outputs are the same bytes.
pub fn same(one: &Path, other: &Path) -> bool {
    std::fs::read(one).expect("an output") == std::fs::read(other).expect("an output")
}

/// What a process took.
#[derive(Clone, Copy)]
pub struct Measured {
    pub wall: Duration,
    pub cpu: Duration,
    pub peak_kib: u64,
}

/// Runs a command to its end: wall time, CPU of all its threads, peak resident memory.
pub fn measure(command: &mut Command) -> Measured {
    let started = Instant::now();
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let pid = Pid::from_child(&child);
    let mut peak_kib = 0;
    // The status of a process that has ended tells its CPU time but no longer its memory: look while it runs.
    while waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT)
        .expect("a child")
        .is_none()
    {
        peak_kib = peak_kib.max(peak_kib_of(child.id()));
        std::thread::sleep(Duration::from_millis(2));
    }
    let wall = started.elapsed();
    let cpu = cpu_of(child.id());
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Measured { wall, cpu, peak_kib }
}

/// The middle one.
pub fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values[values.len() / 2]
}

/// A line with medians: speed, CPU, memory, and both against `base`, round by round.
pub fn print_row(name: &str, events: u64, measured: &[Measured], base: &[Measured]) {
    let wall = median(measured.iter().map(|m| m.wall));
    let cpu = median(measured.iter().map(|m| m.cpu));
    let peak = median(measured.iter().map(|m| m.peak_kib));
    let speed = |m: &Measured| (events as f64 / m.wall.as_secs_f64()) as u64;
    let ratio = median(measured.iter().zip(base).map(|(m, b)| speed(m) * 1000 / speed(b).max(1)));
    let cpu_ratio =
        median(measured.iter().zip(base).map(|(m, b)| m.cpu.as_millis() * 1000 / b.cpu.as_millis().max(10)));
    println!(
        "{name:42} {:>6.2} M events/s  {:>6.3} CPU-s per 1M events  {:>6.1} MB peak   speed {:.2} × ceiling, CPU {:.2} ×",
        events as f64 / wall.as_secs_f64() / 1e6,
        cpu.as_secs_f64() / (events as f64 / 1e6),
        peak as f64 * 1024.0 / 1e6,
        ratio as f64 / 1000.0,
        cpu_ratio as f64 / 1000.0
    );
}

/// CPU time of all threads of a process, also of one that has just ended.
pub fn cpu_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process's times");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|field| fields[*field].parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

/// Peak resident memory of a process that runs.
pub fn peak_kib_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let high =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
    high.unwrap_or(0)
}

/// The number behind `name` in a file of /proc/PID.
pub fn number_of(pid: u32, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// How often the threads of a process have gone to sleep, all in all: each time but the last somebody woke them.
pub fn voluntary_switches(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let tasks = tasks.map(|task| task.expect("a thread").file_name().into_string().expect("a number"));
    tasks.map(|task| number_of(pid, &format!("task/{task}/status"), "voluntary_ctxt_switches:")).sum()
}

/// What `forebay status` shows as JSON, if an engine runs on this state and answers.
pub fn status(state: &Path) -> Option<serde_json::Value> {
    let mut socket = std::os::unix::net::UnixStream::connect(state.join("control.sock")).ok()?;
    socket.write_all(b"status\n").ok()?;
    serde_json::from_reader(socket).ok()
}

/// A child that is killed when it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of the loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Connects as soon as somebody listens.
pub fn connect(port: u16) -> std::net::TcpStream {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match std::net::TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "nobody listens: {error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
