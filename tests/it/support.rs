//! What the tests share: scratch directories, the executable, deterministic input.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The executable under test.
pub const FOREBAY: &str = env!("CARGO_BIN_EXE_forebay");

/// A small deterministic generator (SplitMix64), so that a seed in a failure message is all there is to know.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Readings as NDJSON: `devices` devices, about one event per millisecond of event time, up to 500 ms of disorder, 1 %
/// late by several seconds, some undecodable lines, some NULLs.
pub fn readings(seed: u64, events: u64, devices: u64) -> String {
    let mut random = Random(seed);
    let mut text = String::new();
    for event in 0..events {
        let disorder = if random.below(100) == 0 { 5_000 + random.below(20_000) } else { random.below(500) };
        let millis = 1_775_000_000_000u64 + event - disorder.min(event);
        let device = random.below(devices);
        let temp = random.below(100_000) as f64 / 1000.0;
        match random.below(1000) {
            0 => text.push_str("{\"ts\": broken\n"),
            1 => writeln!(text, "{{\"ts\":\"{}\",\"device\":\"d{device}\",\"temp\":null}}", stamp(millis)).unwrap(),
            _ => writeln!(text, "{{\"ts\":\"{}\",\"device\":\"d{device}\",\"temp\":{temp}}}", stamp(millis)).unwrap(),
        }
    }
    text
}

/// `2026-04-02T00:58:00.150Z` of milliseconds since 1970.
pub fn stamp(millis: u64) -> String {
    let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
    // Howard Hinnant's civil_from_days.
    let z = days as i64 + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (h, m, s, ms) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

/// A scratch directory with a configuration in it.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("a scratch directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a scratch file");
        path
    }

    /// Content of a file; empty where there is none.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_default()
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    /// Runs `forebay` here to its end.
    pub fn forebay(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("forebay runs")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(FOREBAY);
        command.args(arguments).current_dir(self.dir.path()).env_remove("STATE_DIRECTORY").stdin(Stdio::null());
        command
    }

    /// Starts `forebay run CONFIG`; its messages go to `stderr.txt`.
    pub fn start(&self, config: &str) -> Running {
        self.spawn(self.command(&["run", config]))
    }

    /// As [`Place::start`], on a wall clock that is synchronised and right but for what the file `wall` here says: see
    /// `wall.c`.
    pub fn start_on_wall_clock(&self, config: &str) -> Running {
        let library = self.path("wall.so");
        if !library.exists() {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/wall.c");
            let cc = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
            assert!(cc.expect("a C compiler").success());
        }
        let mut command = self.command(&["run", config]);
        command.env("LD_PRELOAD", &library).env("WALL_FILE", self.path("wall"));
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Running {
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(self.path("stderr.txt")).unwrap();
        Running { child: command.stdout(Stdio::null()).stderr(errors).spawn().expect("forebay starts") }
    }
}

/// A started process; killed when dropped.
pub struct Running {
    pub child: Child,
}

impl Running {
    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, then the exit code.
    pub fn stop(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the process is there");
        self.wait(Duration::from_secs(60))
    }

    /// The exit code, if it comes in time.
    pub fn wait(&mut self, patience: Duration) -> i32 {
        let status = until(patience, "the process ends", || self.child.try_wait().expect("a child"));
        status.code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Polls until there is something, or fails with `what`.
pub fn until<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Exit code and standard error of a finished process.
pub fn outcome(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A free TCP port on the loopback interface.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Number of rounds of a random test: the default in CI, more by the environment variable.
pub fn rounds(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Copies a directory with all files in it.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else if entry.file_type().expect("a type").is_file() {
            // Not the control socket of an engine that was killed.
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
