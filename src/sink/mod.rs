//! Sinks: rows with sequence numbers, out into the world.
//!
//! A sink's rows are numbered from 1 and a replay regenerates the same rows with the same numbers; so a sink that knows
//! the number of the last row it durably took drops what replay sends again, and needs no two-phase commit.
//!
//! Order of durability: the engine calls [`Sink::write`] for rows caused by records up to a cut, then [`Sink::flush`];
//! the checkpoint thread calls the returned [`Flushed::sync`] and only then commits [`Flushed::progress`].
//!
//! To add one: a file here with its config struct and code; a variant in [`SinkConfig`]; a line in the registry below.

pub mod file;
pub mod stdout;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::ArrayRef;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::disk::{Disk, Stop, is_no_space};
use crate::event::LogTime;
use crate::expr::Field;
use crate::settings::{Section, suggestion};

/// The registry: every sink and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SinkConfig {
    File(file::FileConfig),
    Stdout(stdout::StdoutConfig),
}

impl SinkConfig {
    /// The values of key `type`.
    pub const TYPES: [&'static str; 2] = ["file", "stdout"];

    /// Reads the keys of a sink of this type (without `type` and `from`).
    pub fn read(type_name: &str, section: &mut Section<'_>) -> Option<SinkConfig> {
        match type_name {
            "file" => file::FileConfig::read(section).map(SinkConfig::File),
            "stdout" => stdout::StdoutConfig::read(section).map(SinkConfig::Stdout),
            _ => {
                let help = suggestion(type_name, &SinkConfig::TYPES);
                section.problem_at("type", format!("there is no sink type \"{type_name}\""), Some(help));
                None
            }
        }
    }

    /// Whether the sink can take rows of this schema.
    ///
    /// # Errors
    /// What it cannot take, as a sentence.
    pub fn check(&self, schema: &[Field]) -> Result<(), String> {
        match self {
            SinkConfig::File(config) => config.format.check(schema),
            SinkConfig::Stdout(config) => config.format.check(schema),
        }
    }

    /// What the sink gives when it is asked to take a row twice.
    pub fn guarantee(&self) -> Guarantee {
        match self {
            SinkConfig::File(_) => Guarantee::ExactlyOnce,
            SinkConfig::Stdout(_) => Guarantee::AtLeastOnce,
        }
    }

    /// One line for `explain`.
    pub fn describe(&self) -> String {
        match self {
            SinkConfig::File(config) => config.describe(),
            SinkConfig::Stdout(config) => format!("stdout ({})", config.format.name()),
        }
    }

    /// What the sink alone may write: two sinks with the same path are a mistake.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            SinkConfig::File(config) => vec![&config.path],
            SinkConfig::Stdout(_) => Vec::new(),
        }
    }

    /// Opens the sink, on a disk if it needs one, where its last committed [`Flushed::progress`] says it stands; `None`:
    /// the state is new, or the sink is. Commit a checkpoint with its progress before the first row is written. With
    /// `adopt` whatever stands in the medium stays, also where the log does not give it or less is there than the progress
    /// says: [`Sink::replayed`] takes it as this state's instead of refusing it. A sink that is never ahead has nothing to
    /// adopt. After `stop` it waits no longer for space or for a reader.
    ///
    /// # Errors
    /// The medium failed, is in use, or does not hold what the progress says.
    pub fn open(
        &self,
        disk: &Arc<dyn Disk>,
        schema: &[Field],
        progress: Option<&[u8]>,
        adopt: bool,
        stop: Stop,
    ) -> Result<Box<dyn Sink>, SinkError> {
        match self {
            SinkConfig::File(config) => {
                Ok(Box::new(file::FileSink::open(config, disk, schema, progress, adopt, stop)?))
            }
            SinkConfig::Stdout(config) => Ok(Box::new(stdout::StdoutSink::open(config, schema, progress, stop)?)),
        }
    }
}

/// What a sink gives, by its honest name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    ExactlyOnce,
    EffectivelyOnce,
    AtLeastOnce,
}

impl Guarantee {
    /// The name that `check` and `explain` print.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::ExactlyOnce => "exactly-once",
            Guarantee::EffectivelyOnce => "effectively-once",
            Guarantee::AtLeastOnce => "at-least-once",
        }
    }
}

/// An open sink.
pub trait Sink: Send {
    /// Takes rows; `time` is the log time of the record that caused them. May buffer.
    ///
    /// # Errors
    /// The medium failed. A full disk is not an error: the sink waits.
    fn write(&mut self, columns: &[ArrayRef], time: LogTime) -> Result<(), SinkError>;

    /// Whether rows of one [`Sink::write`] must have one log time (the sink rolls by it).
    fn needs_time(&self) -> bool {
        false
    }

    /// Hands everything buffered to the operating system, so that a reader sees it.
    ///
    /// # Errors
    /// The medium failed.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// After [`Sink::flush`]: what a checkpoint needs to make all rows so far durable.
    fn checkpoint(&mut self) -> Flushed;

    /// Bytes written to a local disk since the sink was opened.
    fn written_bytes(&self) -> u64 {
        0
    }

    /// A checkpoint with the last [`Flushed::progress`] is durable (rolled files get their final names now).
    ///
    /// # Errors
    /// The medium failed.
    fn committed(&mut self) -> Result<(), SinkError>;

    /// Replay has regenerated all that the log holds: a sink that is ahead of it means lost log data. Gives whether
    /// something was adopted; a checkpoint must follow at once then.
    ///
    /// # Errors
    /// [`SinkError::Ahead`].
    fn replayed(&mut self) -> Result<bool, SinkError>;
}

/// What a checkpoint needs of a sink.
pub struct Flushed {
    /// The sink's own record of where it stands (postcard), committed with the checkpoint.
    pub progress: Vec<u8>,
    /// Number of rows taken since the state was created.
    pub rows: u64,
    /// Makes all rows so far durable, directories too; run on the checkpoint thread, never retried.
    pub sync: Box<dyn FnOnce() -> Result<(), SinkError> + Send>,
}

/// What can go wrong at a sink.
#[derive(Debug, Error)]
pub enum SinkError {
    #[error("{action} {path}: {source}")]
    Io {
        action: &'static str,
        path: String,
        #[source]
        source: Arc<io::Error>,
    },
    #[error("{path} is a directory, and rows go into a file: set the sink's `path` to a file, as in {path}/rows")]
    Directory { path: String },
    #[error(
        "{path} is {length} bytes long, but {durable} bytes of it were durable: it was cut or replaced. Bring it back, or \
         {remedy}"
    )]
    Short { path: String, length: u64, durable: u64, remedy: &'static str },
    #[error(
        "{path} holds {length} bytes, but the log gives only {regenerated}: durable log data was lost, or this state is an \
         older copy. Restore the newer state, or {remedy}"
    )]
    Ahead { path: String, length: u64, regenerated: u64, remedy: &'static str },
    #[error("{path} holds data already, but this state has never written to it: move it away, or {append}")]
    Exists { path: String, append: &'static str },
    #[error(
        "{path} does not end with a line end, so nothing can be appended: complete or remove its last \
         line, and {again}"
    )]
    Unterminated { path: String, again: &'static str },
    #[error("{path} is being written by another process or sink: stop it, or choose another path")]
    Locked { path: String },
    #[error("the checkpoint's position of sink {path} cannot be read: {reason}")]
    Progress { path: String, reason: String },
    #[error(
        "there was no space for {path} when the process was asked to stop: nothing is lost, the next start goes on from \
         the last checkpoint"
    )]
    NoSpace { path: String },
    #[error(
        "the reader of standard output took nothing when the process was asked to stop: nothing is lost, the next start \
         goes on from the last checkpoint"
    )]
    Stuck,
    #[error("the reader of standard output is gone")]
    Closed,
}

impl SinkError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> SinkError {
        let path = path.display().to_string();
        match source.kind() {
            io::ErrorKind::IsADirectory => SinkError::Directory { path },
            _ => SinkError::Io { action, path, source: Arc::new(source) },
        }
    }

    /// The process's exit code when this ends it.
    pub fn exit_code(&self) -> u8 {
        match self {
            SinkError::Short { .. }
            | SinkError::Ahead { .. }
            | SinkError::Exists { .. }
            | SinkError::Unterminated { .. }
            | SinkError::Progress { .. } => 65,
            SinkError::Io { .. }
            | SinkError::Directory { .. }
            | SinkError::NoSpace { .. }
            | SinkError::Stuck
            | SinkError::Closed => 74,
            SinkError::Locked { .. } => 75,
        }
    }
}

/// What to do about a file that is ahead of the log.
const ADOPT: &str =
    "keep what is there and go on behind it: start once with `forebay run CONFIG --adopt` and this sink's name";
/// The same for one of several files of an output.
const MOVE_AWAY: &str = "move this file and the ones behind it away: files of a rolled output cannot be adopted";
/// After its last line, which was torn, is completed or removed.
const ADOPT_AGAIN: &str = "start once more with `forebay run CONFIG --adopt` and this sink's name";
/// What to do about a file that is shorter than it was.
const GO_ON: &str = "go on behind what is left: start once with `forebay run CONFIG --adopt` and this sink's name. On a \
     machine that never had it, import the savepoint with `--fresh-sinks`";
/// The same for one of several files of an output.
const BEGIN_ANEW: &str = "export the state, move it and the output away, and import it with `--fresh-sinks`: rows of what \
     was logged since the last checkpoint are lost then (`forebay log cat` shows it)";

/// Buffered rows are handed over when they are this many bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes all of `bytes`. While the medium is full it pauses and tries again; that is no error. `write` takes what is
/// left and how much is done, and gives the number of bytes it wrote; `pause` gives whether to give up.
fn write_all_waiting(
    path: &Path,
    bytes: &[u8],
    mut write: impl FnMut(&[u8], usize) -> io::Result<usize>,
    mut pause: impl FnMut(Duration) -> bool,
) -> Result<(), SinkError> {
    const PAUSE_MIN: Duration = Duration::from_millis(100);
    const PAUSE_MAX: Duration = Duration::from_secs(5);
    const WARN_EVERY: Duration = Duration::from_secs(60);
    let mut delay = PAUSE_MIN;
    let mut attempts = 0u64;
    let mut warned: Option<Instant> = None;
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match write(rest, done) {
            Ok(0) => return Err(SinkError::io("cannot write", path, io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                done += written;
                delay = PAUSE_MIN;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_no_space(&error) => {
                attempts += 1;
                if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
                    warned = Some(Instant::now());
                    tracing::warn!(path = %path.display(), attempts, %error, "no space for output; waiting for it");
                }
                if pause(delay) {
                    return Err(SinkError::NoSpace { path: path.display().to_string() });
                }
                delay = (delay * 2).min(PAUSE_MAX);
            }
            Err(error) => return Err(SinkError::io("cannot write", path, error)),
        }
    }
    if attempts > 0 {
        tracing::info!(path = %path.display(), attempts, "there is space for output again");
    }
    Ok(())
}

/// The directory of a file.
fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FormatConfig;
    use crate::settings;

    #[test]
    fn a_full_disk_is_waited_for() {
        let mut written = Vec::new();
        let mut pauses = Vec::new();
        let mut calls = 0;
        let result = write_all_waiting(
            Path::new("out"),
            b"0123456789",
            |rest, done| {
                calls += 1;
                assert_eq!(done, written.len());
                match calls {
                    2 => Err(io::ErrorKind::Interrupted.into()),
                    3..=10 => Err(io::ErrorKind::StorageFull.into()),
                    _ => {
                        written.extend_from_slice(&rest[..rest.len().min(4)]);
                        Ok(rest.len().min(4))
                    }
                }
            },
            |pause| {
                pauses.push(pause);
                false
            },
        );
        assert!(result.is_ok());
        assert_eq!(written, b"0123456789");
        assert_eq!(pauses.len(), 8);
        assert_eq!(pauses.first(), Some(&Duration::from_millis(100)));
        assert_eq!(pauses.last(), Some(&Duration::from_secs(5)));
        let failed =
            write_all_waiting(Path::new("out"), b"x", |_, _| Err(io::ErrorKind::NotConnected.into()), |_| false);
        assert!(failed.is_err_and(|error| error.exit_code() == 74));
        let stuck = write_all_waiting(Path::new("out"), b"x", |_, _| Ok(0), |_| false);
        assert!(stuck.is_err());
        let full = |_: &[u8], _| Err(io::ErrorKind::StorageFull.into());
        let stopped = write_all_waiting(Path::new("out"), b"x", full, |_| true);
        assert!(matches!(stopped, Err(SinkError::NoSpace { .. })));
    }

    #[test]
    fn settings_are_read_and_checked() {
        let read = |type_name: &str, text: &str| {
            settings::read_document("f.toml", text, |root| {
                root.string("type");
                SinkConfig::read(type_name, root)
            })
        };
        let text = "path = \"/tmp/o/avg.csv\"\nformat = \"csv\"\nroll_size = \"16MiB\"\nroll_every = \"1h\"";
        let config = read("file", text).expect("reads");
        assert_eq!(config.paths(), [Path::new("/tmp/o/avg.csv")]);
        assert_eq!(config.guarantee().name(), "exactly-once");
        assert_eq!(config.describe(), "file /tmp/o/avg.csv (csv, rolled at 16777216 bytes, rolled every 1h)");
        let config = read("stdout", "").expect("reads");
        assert_eq!(config, SinkConfig::Stdout(stdout::StdoutConfig { format: FormatConfig::Json }));
        assert_eq!(config.guarantee().name(), "at-least-once");
        assert!(config.paths().is_empty());
        for (type_name, text, message) in [
            ("fil", "type = \"fil\"", "did you mean `file`?"),
            ("file", "", "`path` is missing"),
            ("file", "path = \"\"", "`path` cannot be empty"),
            ("file", "path = \"x/\"", "`path` must name a file"),
            ("file", "path = \"x\"\nroll_size = \"0B\"", "`roll_size` must be more than zero"),
            ("file", "path = \"x\"\nroll_every = \"0s\"", "`roll_every` must be more than zero"),
            ("file", "path = \"x\"\nexisting = \"apend\"", "did you mean `append`?"),
            ("file", "path = \"x\"\nexisting = \"append\"\nroll_size = \"1MiB\"", "rolled files are never appended to"),
            ("stdout", "path = \"x\"", "unknown key `path`"),
        ] {
            let shown = read(type_name, text).expect_err(text).to_string();
            assert!(shown.contains(message), "{shown}");
        }
    }
}
