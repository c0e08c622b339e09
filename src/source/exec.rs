//! The standard output of a command. Each run of the command counts as a connection, whose peer is its program.
//!
//! The command is a process group of its own, killed when it ends, and when the source is dropped. So that it does not
//! outlive a process that is killed with SIGKILL, it is started through a guard ([`guard_with`]): this program again,
//! which asks the kernel for a SIGKILL at its parent's death and then becomes the command. What the command writes to its
//! standard error goes to our log output, at most once in ten seconds.

use std::fmt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use smol::io::AsyncReadExt;
use smol::process::{Child, ChildStderr, ChildStdout, Command};

use super::framing::{FramingConfig, Medium};
use super::queue::Closed;
use super::stream::{Ending, READ_BYTES, Stream};
use super::{Backoff, End, Output, Running, Source, SourceError, Warnings, within};
use crate::settings::Section;

/// The program whose first arguments [`GUARD_WORD`] make it a guard.
static GUARD: OnceLock<PathBuf> = OnceLock::new();
/// What tells a guard from a command of a person's.
pub const GUARD_WORD: &str = "__guard";

/// From now on commands are started through this program, whose `main` calls [`guard`]. Without it (in unit tests)
/// commands are started directly.
pub fn guard_with(program: PathBuf) {
    let _ = GUARD.set(program);
}

fn guarded(program: &str) -> std::process::Command {
    match GUARD.get() {
        None => std::process::Command::new(program),
        Some(guard) => {
            let mut command = std::process::Command::new(guard);
            command.arg(GUARD_WORD).arg(std::process::id().to_string()).arg(program);
            command
        }
    }
}

/// Becomes the command `arguments` (the parent's process id, the program, its arguments) that dies with its parent.
/// Returns only where that failed: the exit code.
pub fn guard(arguments: &[std::ffi::OsString]) -> u8 {
    use std::os::unix::process::CommandExt;
    let [parent, program, arguments @ ..] = arguments else { return 64 };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("cannot be bound to the parent's life: {error}");
        return 74;
    }
    // A parent that was gone before the call is noticed by the child's having another one.
    let is_orphan = getppid().map(|pid| pid.as_raw_nonzero().to_string()) != parent.to_str().map(str::to_owned);
    if is_orphan {
        return 74;
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    eprintln!("cannot start {}: {error}", program.display());
    127
}

/// A command that ran for this long before it ended is started again soon.
const GOOD_RUN: Duration = Duration::from_secs(10);
/// How long the last words on standard error are awaited after the command has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Settings of an `exec` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecConfig {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether the command is started again when it ends; else its end is the end of the input.
    pub restart: bool,
    pub framing: FramingConfig,
}

impl ExecConfig {
    /// Reads `command`, `restart` and the framing.
    pub fn read(section: &mut Section<'_>) -> Option<ExecConfig> {
        if !section.has("command") {
            section.missing("command", "command = [\"vmstat\", \"1\"]");
        }
        let command = section.strings("command");
        if command.as_ref().is_some_and(|command| command.first().is_none_or(String::is_empty)) {
            section.problem_at("command", "`command` is empty", Some("name the program and its arguments".to_owned()));
        }
        if command.iter().flatten().any(|part| part.contains('\0')) {
            section.problem_at("command", "`command` cannot contain NUL bytes", None);
        }
        let restart = section.choice("restart", &[("always", true), ("never", false)]).unwrap_or(true);
        let framing = FramingConfig::read(section, Medium::Stream);
        Some(ExecConfig { command: command?, restart, framing })
    }

    fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// The command as one would type it.
    fn line(&self) -> String {
        let quoted = |part: &String| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
            if !part.is_empty() && part.chars().all(is_plain) {
                part.clone()
            } else {
                format!("'{}'", part.replace('\'', "'\\''"))
            }
        };
        self.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

impl fmt::Display for ExecConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.restart { "restarted when it ends" } else { "once" };
        write!(f, "exec `{}`, {end}, {}", self.line(), self.framing)
    }
}

/// See the module.
pub struct Exec {
    config: ExecConfig,
}

impl Exec {
    /// A source whose command was not started yet.
    pub fn new(config: ExecConfig) -> Exec {
        Exec { config }
    }
}

impl Source for Exec {
    fn run(self: Box<Self>, out: Output) -> Running {
        Box::pin(run(self.config, out))
    }
}

async fn run(config: ExecConfig, out: Output) -> Result<End, SourceError> {
    let mut backoff = Backoff::new();
    let mut warnings = Warnings::new();
    loop {
        let started = Instant::now();
        let status = run_once(&config, &out).await?;
        if !config.restart {
            return match status.success() {
                true => Ok(End::EndOfInput),
                false => Err(SourceError::Exited { command: config.line(), status }),
            };
        }
        if started.elapsed() >= GOOD_RUN {
            backoff.reset();
        }
        if let Some(suppressed) = warnings.count(&out) {
            let (name, command) = (out.name(), config.line());
            tracing::warn!(source = %name, suppressed, command, %status, "the command ended; the source starts it again");
        }
        backoff.wait(&out).await;
    }
}

async fn run_once(config: &ExecConfig, out: &Output) -> Result<ExitStatus, SourceError> {
    let failed = || SourceError::io("run", format!("`{}`", config.line()));
    let mut command = guarded(config.program());
    command.args(config.command.iter().skip(1));
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut command = Command::from(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed())?;
    let _group = Group::of(&child);

    // The executor owns the task: it ends with this future.
    let beside = smol::Executor::new();
    let last_words = child.stderr.take().map(|stderr| beside.spawn(pass_on(stderr, out.clone())));
    let mut stream = Stream::open(out, &config.framing, config.program().into()).await?;
    let output = child.stdout.take();
    let reading = async {
        if let Some(stdout) = output {
            read_output(stdout, &mut stream).await?;
        }
        child.status().await.map_err(failed())
    };
    let status = beside.run(reading).await?;
    if let Some(last_words) = last_words {
        within(Some(LAST_WORDS), beside.run(last_words)).await;
    }
    let ending = match status.success() {
        true => Ending::Clean,
        false => Ending::Broken(format!("the command ended with {status}")),
    };
    stream.end(ending).await?;
    Ok(status)
}

/// Reads until the command closes its output.
async fn read_output(mut stdout: ChildStdout, stream: &mut Stream) -> Result<(), Closed> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match within(stream.idle_flush(), stdout.read(&mut buffer)).await {
            None => stream.flush().await?,
            // A pipe that cannot be read has no more to give; how the command ended says the rest.
            Some(Ok(0) | Err(_)) => return Ok(()),
            Some(Ok(count)) => {
                let framed = stream.frame(buffer.get(..count).unwrap_or_default());
                stream.send(framed).await?;
            }
        }
    }
}

/// Passes the command's complaints on to our log output.
async fn pass_on(mut stderr: ChildStderr, out: Output) {
    let mut warnings = Warnings::new();
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        if let Some(suppressed) = warnings.count(&out) {
            let text = String::from_utf8_lossy(buffer.get(..count).unwrap_or_default());
            let text = text.trim_end();
            tracing::warn!(source = %out.name(), suppressed, text, "the command wrote to its standard error");
        }
    }
}

/// The process group of a command, killed on drop.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        Group(i32::try_from(child.id()).ok().and_then(Pid::from_raw))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It fails if nobody of the group lives, which is as good.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn shell(script: &str, more: &str) -> String {
        format!("type = \"exec\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n{more}")
    }

    #[test]
    fn the_lines_of_a_command_and_its_end() {
        let mut source = Harness::start(&shell("echo one; echo two >&2; printf three", "restart = \"never\""));
        assert_eq!(source.finish().unwrap(), End::EndOfInput);
        assert_eq!(source.seen(), [Seen::Connect, message("one"), message("three"), Seen::Disconnect]);
        assert_eq!(source.runs[1].peer.as_deref(), Some("sh"));
        assert_eq!(source.count(|c| &c.warnings), 1);
    }

    #[test]
    fn a_failed_command_is_an_error_and_its_partial_line_is_bad() {
        let mut source = Harness::start(&shell("echo one; printf par; exit 3", "restart = \"never\""));
        let error = source.finish().expect_err("failed").to_string();
        assert_eq!(error, "the command `sh -c 'echo one; printf par; exit 3'` ended with exit status: 3");
        let reason = "the command ended with exit status: 3 after 3 bytes of a message".to_owned();
        assert_eq!(source.seen(), [Seen::Connect, message("one"), Seen::Bad(reason), Seen::Disconnect]);
    }

    #[test]
    fn a_command_that_ends_is_started_again() {
        let mut source = Harness::start(&shell("echo again", ""));
        let once = [Seen::Connect, message("again"), Seen::Disconnect];
        assert_eq!(source.until_seen(6)[..6], [once.clone(), once].concat());
        assert!(source.count(|c| &c.reconnects) >= 1);
    }

    #[test]
    fn a_command_that_cannot_be_run_is_an_error() {
        let mut source = Harness::start("type = \"exec\"\ncommand = [\"/nowhere/at all\"]");
        let error = source.finish().expect_err("no program").to_string();
        assert!(error.starts_with("cannot run `'/nowhere/at all'`: No such file"), "{error}");
    }

    #[test]
    fn dropping_the_source_kills_the_command_and_its_children() {
        let mut source = Harness::start(&shell("sleep 1000 & echo $!; sleep 1000", ""));
        source.until_seen(2);
        let Seen::Message(pid) = source.seen()[1].clone() else { panic!("{:?}", source.seen()) };
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        assert!(is_alive());
        source.stop();
        eventually(|| !is_alive());
    }

    #[test]
    fn idle_flush_ends_a_prompt() {
        let mut source = Harness::start(&shell("printf 'ready> '; sleep 1000", "idle_flush = \"20ms\""));
        source.until(|s| s.seen().contains(&message("ready> ")));
    }
}
