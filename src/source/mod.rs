//! Sources: bytes from outside, cut into messages and stamped with their arrival, on their way to the replay log.
//! Sources know nothing of SQL.
//!
//! A source is one future. It owns its connections and children; dropping it ends them. What it gives goes through
//! [`Output`] into the byte-bounded [`queue::Queue`]; a full queue makes it wait, and then it reads nothing.
//!
//! To add one: a file here with its config struct, its code and its unit tests; a variant in [`SourceConfig`]; a line
//! in the registry below. A forgotten step does not compile.

mod datagram;
mod exec;
mod file;
pub mod framing;
pub mod queue;
mod sensor;
mod serial;
mod stdin;
mod stream;
mod tcp;
mod udp;
mod unix;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use thiserror::Error;

use crate::event::{Gap, LogTime, Position, RecordKind, Run, SourceId};
use crate::settings::{Section, suggestion};

pub use exec::{ExecConfig, GUARD_WORD, guard, guard_with};
pub use file::FileConfig;
pub use sensor::SensorConfig;
pub use serial::SerialConfig;
pub use stdin::StdinConfig;
pub use tcp::TcpConfig;
pub use udp::UdpConfig;
pub use unix::UnixConfig;

use queue::{Closed, Queue};

/// A source that is about to run.
pub trait Source: Send {
    /// Reads until the input ends, the source fails or the future is dropped.
    fn run(self: Box<Self>, out: Output) -> Running;
}

/// A running source.
pub type Running = Pin<Box<dyn Future<Output = Result<End, SourceError>> + Send>>;

/// Why a source came to a good end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A bounded source has given all it had.
    EndOfInput,
}

/// Where a replayable source goes on: after the last of its records in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// `None`: from the start.
    pub position: Option<Position>,
}

/// A source that failed. The supervisor starts it again later, or stops the pipeline.
#[derive(Debug, Error)]
pub enum SourceError {
    #[error("cannot {action} {what}: {source}")]
    Io {
        action: &'static str,
        /// The path or address.
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read {path}: it is {found}, not a regular file: set `path` to a file")]
    NotAFile { path: String, found: &'static str },
    #[error(
        "{path} was replaced or cut since it was read up to byte {offset}: put the old file back, \
         or start with a new state directory"
    )]
    Replaced { path: String, offset: u64 },
    #[error("cannot {action} serial device {device}: {source}")]
    Serial {
        action: &'static str,
        device: String,
        #[source]
        source: serialport::Error,
    },
    #[error(
        "cannot make {path} durable, which the log is to refer to: {source}. Start again; if it stays like this, leave out \
         `log = \"position\"`"
    )]
    Sync {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the command `{command}` ended with {status}")]
    Exited { command: String, status: std::process::ExitStatus },
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl SourceError {
    fn io(action: &'static str, what: impl fmt::Display) -> impl FnOnce(std::io::Error) -> SourceError {
        let what = what.to_string();
        move |source| SourceError::Io { action, what, source }
    }

    fn sync(path: &Path) -> impl FnOnce(std::io::Error) -> SourceError {
        let path = path.display().to_string();
        move |source| SourceError::Sync { path, source }
    }

    /// Whether to try again would only hide what happened: a file that was replaced stays replaced, and after a failed
    /// sync the system may hold bytes for durable that are not.
    pub fn is_final(&self) -> bool {
        matches!(self, SourceError::Replaced { .. } | SourceError::Sync { .. })
    }
}

/// The settings of a source, checked.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceConfig {
    Exec(ExecConfig),
    File(FileConfig),
    Sensor(SensorConfig),
    Serial(SerialConfig),
    Stdin(StdinConfig),
    Tcp(TcpConfig),
    Udp(UdpConfig),
    Unix(UnixConfig),
}

/// What `log` says of a source: whether positions are logged instead of payloads.
const LOG_CHOICES: [(&str, bool); 2] = [("payload", false), ("position", true)];

type Read = fn(&mut Section<'_>) -> Option<SourceConfig>;

/// The registry: names of the types as they stand in a config, with their readers.
const REGISTRY: [(&str, Read); 8] = [
    ("exec", |section| ExecConfig::read(section).map(SourceConfig::Exec)),
    ("file", |section| FileConfig::read(section).map(SourceConfig::File)),
    ("sensor", |section| SensorConfig::read(section).map(SourceConfig::Sensor)),
    ("serial", |section| SerialConfig::read(section).map(SourceConfig::Serial)),
    ("stdin", |section| StdinConfig::read(section).map(SourceConfig::Stdin)),
    ("tcp", |section| TcpConfig::read(section).map(SourceConfig::Tcp)),
    ("udp", |section| UdpConfig::read(section).map(SourceConfig::Udp)),
    ("unix", |section| UnixConfig::read(section).map(SourceConfig::Unix)),
];

const NAMES: [&str; REGISTRY.len()] = {
    let mut names = [""; REGISTRY.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = REGISTRY[i].0;
        i += 1;
    }
    names
};

/// The types of sources, by name.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

impl SourceConfig {
    /// Reads the settings of a source of this type from its section. `None`: a problem was reported.
    pub fn read(type_name: &str, section: &mut Section<'_>) -> Option<SourceConfig> {
        match REGISTRY.iter().find(|(name, _)| *name == type_name) {
            Some((_, read)) => {
                let config = read(section)?;
                let by_position = !config.is_replayable() && section.choice("log", &LOG_CHOICES) == Some(true);
                if by_position {
                    let message = format!(
                        "`log = \"position\"` is for files, which can be read again; what type \"{type_name}\" gives is \
                         gone if the log does not hold it"
                    );
                    section.problem_at("log", message, Some("remove `log`".to_owned()));
                }
                Some(config)
            }
            None => {
                let message = format!("there is no source type \"{type_name}\"");
                section.problem_at("type", message, Some(suggestion(type_name, &NAMES)));
                None
            }
        }
    }

    /// The source that these settings describe.
    pub fn build(&self, resume: Resume) -> Box<dyn Source> {
        match self.clone() {
            SourceConfig::Exec(config) => Box::new(exec::Exec::new(config)),
            SourceConfig::File(config) => Box::new(file::File::new(config, resume)),
            SourceConfig::Sensor(config) => Box::new(sensor::Sensor::new(config)),
            SourceConfig::Serial(config) => Box::new(serial::Serial::new(config)),
            SourceConfig::Stdin(config) => Box::new(stdin::Stdin::new(config)),
            SourceConfig::Tcp(config) => Box::new(tcp::Tcp::new(config)),
            SourceConfig::Udp(config) => Box::new(udp::Udp::new(config)),
            SourceConfig::Unix(config) => Box::new(unix::Unix::new(config)),
        }
    }

    /// Whether the source's input comes to an end.
    pub fn is_bounded(&self) -> bool {
        match self {
            SourceConfig::File(config) => !config.follow,
            SourceConfig::Stdin(_) => true,
            SourceConfig::Exec(config) => !config.restart,
            SourceConfig::Sensor(_)
            | SourceConfig::Serial(_)
            | SourceConfig::Tcp(_)
            | SourceConfig::Udp(_)
            | SourceConfig::Unix(_) => false,
        }
    }

    /// Whether the source can be read again from a [`Position`].
    pub fn is_replayable(&self) -> bool {
        matches!(self, SourceConfig::File(_))
    }

    /// The file that the source reads, where it is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            SourceConfig::File(config) => Some(Path::new(&config.path)),
            _ => None,
        }
    }

    /// Whether the log refers to the source's input instead of holding it.
    pub fn logs_positions(&self) -> bool {
        matches!(self, SourceConfig::File(config) if config.log_position)
    }

    /// Whether the other side of the source loses nothing, however long nobody reads: input that ends, or that can be read
    /// again. A peer or a device that is not read loses or blocks.
    pub fn can_wait(&self) -> bool {
        self.is_bounded() || self.is_replayable()
    }

    /// Lowers the bound of a message to what the log can take; for a bound that nobody has set.
    pub fn limit_messages(&mut self, bytes_max: usize) {
        let framing = match self {
            SourceConfig::Exec(config) => &mut config.framing,
            SourceConfig::File(config) => &mut config.framing,
            SourceConfig::Sensor(_) => return,
            SourceConfig::Serial(config) => &mut config.framing,
            SourceConfig::Stdin(config) => &mut config.framing,
            SourceConfig::Tcp(config) => &mut config.framing,
            SourceConfig::Udp(config) => &mut config.framing,
            SourceConfig::Unix(config) => &mut config.framing,
        };
        framing.max_length = framing.max_length.min(bytes_max);
    }

    /// The address that takes lines of text over TCP, if the source has one.
    pub fn line_address(&self) -> Option<&str> {
        match self {
            SourceConfig::Tcp(TcpConfig { side: tcp::Side::Listen { address, .. }, framing })
                if framing.method == framing::Method::Lines =>
            {
                Some(address)
            }
            _ => None,
        }
    }

    /// `position` in a copy of the input on another machine, where there is one.
    pub fn in_copy(&self, position: Position) -> Option<Position> {
        match self {
            SourceConfig::File(config) => config.in_copy(position),
            SourceConfig::Exec(_)
            | SourceConfig::Sensor(_)
            | SourceConfig::Serial(_)
            | SourceConfig::Stdin(_)
            | SourceConfig::Tcp(_)
            | SourceConfig::Udp(_)
            | SourceConfig::Unix(_) => None,
        }
    }

    /// Whether a source that had ended at `position` has new input now, as far as can be told.
    pub fn has_more(&self, position: Option<Position>) -> bool {
        match self {
            SourceConfig::File(config) => config.has_more(position),
            SourceConfig::Exec(_)
            | SourceConfig::Sensor(_)
            | SourceConfig::Serial(_)
            | SourceConfig::Stdin(_)
            | SourceConfig::Tcp(_)
            | SourceConfig::Udp(_)
            | SourceConfig::Unix(_) => false,
        }
    }

    /// The longest message the source can give, in bytes.
    pub fn message_bytes_max(&self) -> usize {
        match self {
            SourceConfig::Exec(config) => config.framing.message_bytes_max(),
            SourceConfig::File(config) => config.framing.message_bytes_max(),
            SourceConfig::Sensor(config) => config.message_bytes_max(),
            SourceConfig::Serial(config) => config.framing.message_bytes_max(),
            SourceConfig::Stdin(config) => config.framing.message_bytes_max(),
            SourceConfig::Tcp(config) => config.framing.message_bytes_max(),
            SourceConfig::Udp(config) => config.framing.message_bytes_max(),
            SourceConfig::Unix(config) => config.framing.message_bytes_max(),
        }
    }
}

/// One line for `explain`: `tcp, listens on 127.0.0.1:9000, lines`.
impl fmt::Display for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceConfig::Exec(config) => config.fmt(f),
            SourceConfig::File(config) => config.fmt(f),
            SourceConfig::Sensor(config) => config.fmt(f),
            SourceConfig::Serial(config) => config.fmt(f),
            SourceConfig::Stdin(config) => config.fmt(f),
            SourceConfig::Tcp(config) => config.fmt(f),
            SourceConfig::Udp(config) => config.fmt(f),
            SourceConfig::Unix(config) => config.fmt(f),
        }
    }
}

/// When something arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub time: LogTime,
    /// The wall clock was not known to be right.
    pub unsynchronised: bool,
}

/// Gives the arrival stamp of what has just been read.
pub type ArrivalClock = Arc<dyn Fn() -> Arrival + Send + Sync>;

/// What a source counted since it was first started.
#[derive(Debug, Default)]
pub struct Counters {
    pub messages: AtomicU64,
    /// Bytes of the messages.
    pub bytes: AtomicU64,
    /// Messages that framing refused.
    pub bad: AtomicU64,
    /// Connections, devices or commands that were lost and tried again.
    pub reconnects: AtomicU64,
    /// Warnings, also those that rate limiting kept out of the log output.
    pub warnings: AtomicU64,
}

/// The way from a source to the replay log; a cheap handle.
#[derive(Clone)]
pub struct Output {
    source: SourceId,
    name: Arc<str>,
    queue: Arc<Queue>,
    clock: ArrivalClock,
    counters: Arc<Counters>,
    run_bytes_max: usize,
    position: Arc<Mutex<Option<Position>>>,
}

impl Output {
    /// Runs of more than one record are at most `run_bytes_max` bytes large ([`Run::size_bytes`]).
    pub fn new(
        source: SourceId,
        name: Arc<str>,
        queue: Arc<Queue>,
        clock: ArrivalClock,
        counters: Arc<Counters>,
        run_bytes_max: usize,
    ) -> Output {
        Output { source, name, queue, clock, counters, run_bytes_max, position: Arc::default() }
    }

    /// The source's name in the config.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where the source stands after what it has handed over: a source that failed goes on there.
    pub fn position(&self) -> Option<Position> {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stamp of what has just been read.
    pub fn now(&self) -> Arrival {
        (self.clock)()
    }

    /// An empty run of this source.
    pub fn run(&self, kind: RecordKind, arrival: Arrival, peer: Option<&Arc<str>>) -> Run {
        Run { unsynchronised: arrival.unsynchronised, peer: peer.cloned(), ..Run::new(self.source, kind, arrival.time) }
    }

    /// Hands a run over; waits while the queue is full. A run without records is dropped.
    ///
    /// # Errors
    /// The engine stops.
    pub async fn send(&self, run: Run) -> Result<(), Closed> {
        if run.is_empty() {
            return Ok(());
        }
        let (kind, records, bytes) = (run.kind, run.len() as u64, run.payload.len() as u64);
        let position = run.position;
        self.queue.push(run).await?;
        if position.is_some() {
            *self.position.lock().unwrap_or_else(PoisonError::into_inner) = position;
        }
        match kind {
            RecordKind::Data => {
                self.counters.messages.fetch_add(records, Ordering::Relaxed);
                self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            RecordKind::Bad => {
                self.counters.bad.fetch_add(records, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(())
    }

    /// Starts to collect what a framer finds, of which `taken` bytes of the stream have gone before.
    fn framed(&self, arrival: Arrival, peer: Option<&Arc<str>>, taken: u64) -> framing::Framed {
        framing::Framed::new(self.run(RecordKind::Data, arrival, peer), self.run_bytes_max, taken)
    }

    /// Sends a record of that kind and payload.
    async fn send_one(&self, kind: RecordKind, peer: Option<&Arc<str>>, payload: &[u8]) -> Result<(), Closed> {
        let mut run = self.run(kind, self.now(), peer);
        run.push(payload);
        self.send(run).await
    }

    /// Sends a gap record.
    async fn send_gap(&self, gap: &Gap, peer: Option<&Arc<str>>) -> Result<(), Closed> {
        self.send_one(RecordKind::Gap, peer, &encode(gap)).await
    }
}

/// Serialises a record's payload.
fn encode(payload: &impl Serialize) -> Vec<u8> {
    // Serialising these plain structs into memory cannot fail.
    postcard::to_allocvec(payload).unwrap_or_default()
}

/// Counts warnings of one sort and says which of them may be printed.
struct Warnings {
    last: Option<Instant>,
    suppressed: u64,
}

impl Warnings {
    const INTERVAL: Duration = Duration::from_secs(10);

    fn new() -> Warnings {
        Warnings { last: None, suppressed: 0 }
    }

    /// Counts one. `Some(n)`: print it; `n` were kept back since the last one printed.
    fn count(&mut self, out: &Output) -> Option<u64> {
        out.counters.warnings.fetch_add(1, Ordering::Relaxed);
        if self.last.is_some_and(|last| last.elapsed() < Self::INTERVAL) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Waits between attempts: 100 ms, doubled each time, up to 30 s.
struct Backoff {
    delay: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LAST: Duration = Duration::from_secs(30);

    fn new() -> Backoff {
        Backoff { delay: Self::FIRST }
    }

    /// It worked: the next wait is a short one.
    fn reset(&mut self) {
        self.delay = Self::FIRST;
    }

    /// Counts a reconnect and waits.
    async fn wait(&mut self, out: &Output) {
        out.counters.reconnects.fetch_add(1, Ordering::Relaxed);
        smol::Timer::after(self.delay).await;
        self.delay = self.delay.saturating_mul(2).min(Self::LAST);
    }
}

/// `work`, unless `limit` passes before it is done.
async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    let Some(limit) = limit else { return Some(work.await) };
    smol::future::or(async { Some(work.await) }, async {
        smol::Timer::after(limit).await;
        None
    })
    .await
}

/// Reads `key` as an address `host:port`. Whether the host exists is for later to find out.
fn read_address(section: &mut Section<'_>, key: &'static str) -> Option<String> {
    let address = section.string(key)?;
    let wrong = |why: &str, help: &str| {
        section.problem_at(key, format!("`{key}` cannot be \"{address}\": {why}"), Some(help.to_owned()));
        None
    };
    let Some((host, port)) = address.rsplit_once(':') else {
        return wrong("the port is missing", &format!("write for example `{key} = \"127.0.0.1:9000\"`"));
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !is_bracketed {
        return wrong("an IPv6 address needs brackets", &format!("write for example `{key} = \"[::1]:9000\"`"));
    }
    if is_bracketed && address.parse::<std::net::SocketAddrV6>().is_err() {
        return wrong(
            "between the brackets stands no IPv6 address",
            &format!("write for example `{key} = \"[::1]:9000\"`"),
        );
    }
    if host.is_empty() {
        return wrong(
            "the host is missing",
            &format!("write `{key} = \"127.0.0.1:{port}\"`, or \"0.0.0.0:{port}\" for every interface"),
        );
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Some(address),
        _ => {
            wrong("the port must be a number from 1 to 65535", &format!("write for example `{key} = \"{host}:9000\"`"))
        }
    }
}

/// The addresses that a checked `host:port` stands for.
async fn resolve(address: &str) -> std::io::Result<Vec<SocketAddr>> {
    let found = smol::net::resolve(address).await?;
    if found.is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address"));
    }
    Ok(found)
}

/// The one of `addresses` that `bind` takes.
async fn bind<T>(address: &str, bind: impl Fn(SocketAddr) -> std::io::Result<T>) -> Result<T, SourceError> {
    let mut failure = None;
    for candidate in resolve(address).await.map_err(SourceError::io("resolve", address))? {
        match bind(candidate) {
            Ok(bound) => return Ok(bound),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let failure = failure.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into());
    Err(SourceError::io("listen on", address)(failure))
}

/// An address as it stands in `_peer`: IPv4 stays IPv4, also through an IPv6 socket.
fn peer_name(address: SocketAddr) -> Arc<str> {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string().into()
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::testing::{problems, read};
    use super::*;

    #[test]
    fn every_name_reads_and_an_unknown_one_suggests_the_nearest() {
        assert_eq!(names(), ["exec", "file", "sensor", "serial", "stdin", "tcp", "udp", "unix"]);
        let shown = problems("type = \"tpc\"");
        assert!(shown.contains("there is no source type \"tpc\""), "{shown}");
        assert!(shown.contains("did you mean `tcp`?"), "{shown}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("type = \"tcp\"", "`listen` or `connect` is missing"),
            ("type = \"tcp\"\nlisten = \"a:1\"\nconnect = \"b:2\"", "not both"),
            ("type = \"tcp\"\nlisten = \"127.0.0.1\"", "the port is missing"),
            ("type = \"tcp\"\nlisten = \":9000\"", "the host is missing"),
            ("type = \"tcp\"\nlisten = \"::1:9000\"", "needs brackets"),
            ("type = \"tcp\"\nlisten = \"[zz]:9000\"", "no IPv6 address"),
            ("type = \"tcp\"\nlisten = \"a:70000\"", "from 1 to 65535"),
            ("type = \"tcp\"\nlisten = \"a:0\"", "from 1 to 65535"),
            ("type = \"tcp\"\nconnect = \"a:1\"\nmax_connections = 3", "only with `listen`"),
            ("type = \"tcp\"\nlisten = \"a:1\"\nmax_connections = 0", "between 1 and"),
            ("type = \"udp\"", "`bind` is missing"),
            ("type = \"udp\"\nbind = \"a:1\"\nreceive_buffer = \"0B\"", "`receive_buffer` must be between"),
            ("type = \"unix\"", "`path` is missing"),
            ("type = \"unix\"\npath = \"/a\"\nmode = \"packet\"", "cannot be \"packet\""),
            ("type = \"unix\"\npath = \"/a\"\npermissions = \"rw\"", "octal"),
            ("type = \"unix\"\npath = \"/a\"\nmode = \"datagram\"\nmax_connections = 3", "only with mode \"stream\""),
            ("type = \"file\"", "`path` is missing"),
            ("type = \"file\"\npath = \"\"", "`path` is empty"),
            ("type = \"serial\"\nbaud = 9600", "`device` is missing"),
            ("type = \"serial\"\ndevice = \"/dev/ttyUSB0\"", "`baud` is missing"),
            ("type = \"serial\"\ndevice = \"/dev/x\"\nbaud = 9600\ndata_bits = 9", "between 5 and 8"),
            ("type = \"serial\"\ndevice = \"/dev/x\"\nbaud = 9600\nparity = \"evn\"", "did you mean `even`?"),
            ("type = \"exec\"", "`command` is missing"),
            ("type = \"exec\"\ncommand = []", "`command` is empty"),
            ("type = \"exec\"\ncommand = \"ls\"", "must be a list of strings"),
            ("type = \"exec\"\ncommand = [\"ls\"]\nrestart = \"no\"", "cannot be \"no\""),
            ("type = \"sensor\"\nread = { a = { path = \"/x\" } }", "`every` is missing"),
            ("type = \"sensor\"\nevery = \"0s\"\nread = { a = { path = \"/x\" } }", "at least 1ms"),
            ("type = \"sensor\"\nevery = \"1s\"", "`read` is missing"),
            ("type = \"sensor\"\nevery = \"1s\"\nread = {}", "`read` is empty"),
            ("type = \"sensor\"\nevery = \"1s\"\nread = { a = { } }", "`path` is missing"),
            ("type = \"sensor\"\nevery = \"1s\"\nread = { a = { path = \"/x\", feild = 1 } }", "did you mean `field`?"),
            ("type = \"sensor\"\nevery = \"1s\"\nread = { a = { path = \"/x\", field = -1 } }", "between 0 and"),
        ] {
            let shown = problems(text);
            assert!(shown.contains(expected), "{text}: {shown}");
            assert_eq!(shown.matches("error:").count(), 1, "{text}: {shown}");
        }
    }

    #[test]
    fn explain_lines() {
        for (text, expected) in [
            ("type = \"tcp\"\nlisten = \"[::1]:9000\"", "tcp, listens on [::1]:9000, lines"),
            (
                "type = \"tcp\"\nconnect = \"plc:502\"\nframing = \"fixed\"\nsize = 4",
                "tcp, connects to plc:502, messages of 4 bytes",
            ),
            ("type = \"udp\"\nbind = \"0.0.0.0:514\"", "udp, bound to 0.0.0.0:514, a message per datagram"),
            ("type = \"unix\"\npath = \"/run/x\"", "unix, stream socket /run/x, lines"),
            ("type = \"file\"\npath = \"/a.csv\"", "file /a.csv, lines"),
            ("type = \"file\"\npath = \"/a.log\"\nfollow = true", "file /a.log, followed, lines"),
            ("type = \"stdin\"", "stdin, lines"),
            ("type = \"serial\"\ndevice = \"/dev/ttyS0\"\nbaud = 9600", "serial /dev/ttyS0, 9600 baud 8N1, lines"),
            ("type = \"exec\"\ncommand = [\"ping\", \"-c 1\"]", "exec `ping '-c 1'`, restarted when it ends, lines"),
            ("type = \"sensor\"\nevery = \"1s\"\nread = { a = { path = \"/x\" } }", "sensor, 1 value each 1s"),
        ] {
            assert_eq!(read(text).to_string(), expected);
        }
    }

    #[test]
    fn bounded_and_replayable() {
        let flags = |text: &str| {
            let config = read(text);
            (config.is_bounded(), config.is_replayable())
        };
        assert_eq!(flags("type = \"file\"\npath = \"/a\""), (true, true));
        assert_eq!(flags("type = \"file\"\npath = \"/a\"\nfollow = true"), (false, true));
        assert_eq!(flags("type = \"stdin\""), (true, false));
        assert_eq!(flags("type = \"exec\"\ncommand = [\"a\"]\nrestart = \"never\""), (true, false));
        assert_eq!(flags("type = \"udp\"\nbind = \"a:1\""), (false, false));
    }

    #[test]
    fn repeated_warnings_are_counted_but_printed_once() {
        let (out, _queue) = testing::output(1000);
        let mut warnings = Warnings::new();
        assert_eq!(warnings.count(&out), Some(0));
        assert_eq!(warnings.count(&out), None);
        assert_eq!(warnings.count(&out), None);
        assert_eq!((warnings.suppressed, out.counters().warnings.load(Ordering::Relaxed)), (2, 3));
    }
}
