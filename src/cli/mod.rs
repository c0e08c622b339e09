//! The command line: argh structs and one file per command. A command returns its exit code or an error that knows it.

pub mod check;
pub mod checkpoint;
mod diff;
mod dump;
pub mod explain;
mod hints;
pub mod log;
mod log_repair;
mod progress;
pub mod run;
pub mod sample;
mod savepoint;
mod scrub;
pub mod status;
pub mod test;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use argh::FromArgs;

use crate::checkpoint::CheckpointError;
use crate::config::{self, ConfigError};
use crate::event::LogTime;

/// Forebay: an edge stream processor that loses nothing. Sources go through a replay log, Flink SQL runs over the log
/// in event time, results come out exactly once.
#[derive(FromArgs, Debug)]
pub struct Arguments {
    #[argh(subcommand)]
    command: Command,
}

#[derive(FromArgs, Debug)]
#[argh(subcommand)]
enum Command {
    Run(RunArguments),
    Check(CheckArguments),
    Explain(ExplainArguments),
    Test(TestArguments),
    Sample(SampleArguments),
    Checkpoint(CheckpointArguments),
    Log(LogArguments),
    Status(StatusArguments),
}

/// Show what a running pipeline is at: positions, counts, the last checkpoint, bytes written.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "status")]
struct StatusArguments {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Run a pipeline until its input ends or it is stopped.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "run")]
struct RunArguments {
    /// the configuration file
    #[argh(positional)]
    config: PathBuf,
    /// a sink that holds more than the log gives: keep that, and go on behind it (may be repeated)
    #[argh(option)]
    adopt: Vec<String>,
    /// drop the state of a query, given as query.NAME, at this start; can be given more than once
    #[argh(option)]
    reset: Vec<String>,
}

/// Find everything that is wrong with a configuration, without touching the outside.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "check")]
struct CheckArguments {
    /// the configuration file
    #[argh(positional)]
    config: PathBuf,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Show the plan of each query, each sink's guarantee and what bounds each operator's state.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "explain")]
struct ExplainArguments {
    /// the configuration file
    #[argh(positional)]
    config: PathBuf,
    /// print the SQL that runs the pipeline on a Flink cluster instead
    #[argh(switch)]
    flink: bool,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Run the [[test]]s of a configuration: rows in, expected rows out, event time driven by the rows.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "test")]
struct TestArguments {
    /// the configuration file
    #[argh(positional)]
    config: PathBuf,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Print a complete, commented configuration to start from.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "sample")]
struct SampleArguments {}

/// Look into the checkpoints of a pipeline, also while it runs.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "checkpoint")]
struct CheckpointArguments {
    #[argh(subcommand)]
    command: CheckpointCommand,
}

#[derive(FromArgs, Debug)]
#[argh(subcommand)]
enum CheckpointCommand {
    List(CheckpointList),
    Show(CheckpointShow),
    Dump(CheckpointDump),
    Diff(CheckpointDiff),
    Verify(CheckpointVerify),
    Export(CheckpointExport),
    Import(CheckpointImport),
}

/// List the recorded checkpoints, newest first.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "list")]
struct CheckpointList {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Show one checkpoint: the newest, or the one with this id.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "show")]
struct CheckpointShow {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// id of the checkpoint
    #[argh(positional)]
    id: Option<u64>,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Print the keys and values of an operator's state, decoded.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "dump")]
struct CheckpointDump {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// name of the operator, as `checkpoint show` prints it
    #[argh(positional)]
    operator: String,
    /// at most so many entries
    #[argh(option)]
    limit: Option<u64>,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Show which keys of each operator differ between two checkpoints, and what their values are.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "diff")]
struct CheckpointDiff {
    /// a savepoint, a state directory, or a configuration file that names one
    #[argh(positional)]
    a: PathBuf,
    /// the other one
    #[argh(positional)]
    b: PathBuf,
    /// show at most so many entries; all are counted
    #[argh(option)]
    limit: Option<u64>,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Write the newest checkpoint to one portable file, also while the pipeline runs.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "export")]
struct CheckpointExport {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// the savepoint to write; there must be no such file
    #[argh(positional)]
    file: PathBuf,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Begin a state from a savepoint.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "import")]
struct CheckpointImport {
    /// the savepoint
    #[argh(positional)]
    file: PathBuf,
    /// the new state directory, or a configuration file that names it
    #[argh(positional)]
    place: PathBuf,
    /// begin the sinks anew: on a machine that does not have their output
    #[argh(switch)]
    fresh_sinks: bool,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Check every entry of the checkpointed state, or of a savepoint, against its checksum.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "verify")]
struct CheckpointVerify {
    /// a savepoint, a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// at most so many bytes per second (such as 4MiB), in small slices and at the lowest priority: what a running engine
    /// does in the background; ends with the process that started it
    #[argh(option, from_str_fn(crate::settings::parse_size))]
    rate: Option<u64>,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Look into the replay log of a pipeline, also while it runs.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "log")]
struct LogArguments {
    #[argh(subcommand)]
    command: LogCommand,
}

#[derive(FromArgs, Debug)]
#[argh(subcommand)]
enum LogCommand {
    Stat(LogStat),
    Cat(LogCat),
    Verify(LogVerify),
    Repair(LogRepair),
}

/// Show the segments of the log and what they hold.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "stat")]
struct LogStat {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Print the records of the log.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "cat")]
struct LogCat {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// first LSN, or a time: RFC 3339, or how long ago ("10m")
    #[argh(option)]
    from: Option<String>,
    /// last LSN, or a time
    #[argh(option)]
    to: Option<String>,
    /// only records of this source
    #[argh(option)]
    source: Option<String>,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Check every frame of the log.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "verify")]
struct LogVerify {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// Cut a damaged log where the damage begins, so that the pipeline can start again. Without --yes: only say what would
/// be lost.
#[derive(FromArgs, Debug)]
#[argh(subcommand, name = "repair")]
struct LogRepair {
    /// a state directory, or a configuration file that names one
    #[argh(positional)]
    place: PathBuf,
    /// do it
    #[argh(switch)]
    yes: bool,
    /// text or json
    #[argh(option, default = "Format::Text")]
    format: Format,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err(format!("\"{text}\" is not a format; possible: text, json")),
        }
    }
}

/// Why a command failed: the message for people and the exit code for machines.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    /// A failure with the whole chain of causes in its message.
    pub fn new(error: &dyn std::error::Error, code: u8) -> Failure {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Messages that spell their cause out already are not repeated.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Failure { message, code }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        match &error {
            // Problems come as whole blocks that begin with "error:" themselves.
            ConfigError::Invalid(problems) => {
                let text = problems.to_string();
                Failure { message: text.strip_prefix("error: ").map_or(text.clone(), str::to_owned), code: 78 }
            }
            ConfigError::Read { .. } | ConfigError::Directory { .. } => Failure::new(&error, 78),
        }
    }
}

/// Usage errors (exit code 64).
const USAGE: u8 = 64;

/// Parses the arguments (without the program's name), runs the command and gives the exit code.
pub fn main(arguments: &[String]) -> u8 {
    // argh knows only `--option value`.
    let split: Vec<&str> = arguments
        .iter()
        .flat_map(|argument| match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => vec![name, value],
            _ => vec![argument.as_str()],
        })
        .collect();
    if matches!(split.as_slice(), ["--version" | "-V" | "version"]) {
        return finish(print(&mut std::io::stdout(), &format!("forebay {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let parsed = match Arguments::from_args(&["forebay"], &split) {
        Ok(parsed) => parsed,
        Err(early) => {
            return match early.status {
                Ok(()) => finish(print(&mut std::io::stdout(), &format!("{}\n", early.output.trim_end()))),
                Err(()) => {
                    complain(early.output.trim_end());
                    USAGE
                }
            };
        }
    };
    finish(dispatch(parsed.command))
}

/// The exit code of a command's outcome, after saying what went wrong.
fn finish(outcome: Result<(), Failure>) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            complain(&format!("error: {}", failure.message));
            failure.code
        }
    }
}

/// A line on standard error. If nobody can read it, the exit code still says it.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn dispatch(command: Command) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match command {
        Command::Run(arguments) => {
            drop(out);
            run::run(&arguments.config, &arguments.adopt, &arguments.reset)
        }
        Command::Check(arguments) => check::check(&arguments.config, arguments.format, &mut out),
        Command::Explain(a) => explain::explain(&a.config, a.flink, a.format, &mut out),
        Command::Test(arguments) => test::test(&arguments.config, arguments.format, &mut out),
        Command::Sample(_) => print(&mut out, sample::SAMPLE),
        Command::Checkpoint(arguments) => {
            let done = match arguments.command {
                CheckpointCommand::List(a) => checkpoint::list(&checkpoints_of(&a.place)?, a.format, &mut out),
                CheckpointCommand::Show(a) => checkpoint::show(&checkpoints_of(&a.place)?, a.id, a.format, &mut out),
                CheckpointCommand::Dump(a) => {
                    let options = checkpoint::DumpOptions { key_group: None, limit: a.limit };
                    let dir = checkpoints_of(&a.place)?;
                    checkpoint::dump(&dir, &a.operator, options, dump::decoder, a.format, &mut out)
                }
                CheckpointCommand::Diff(a) => return diff::diff(&a.a, &a.b, a.limit, a.format, &mut out),
                CheckpointCommand::Export(a) => {
                    return savepoint::export(&state_of(&a.place)?, &a.file, a.format, &mut out);
                }
                CheckpointCommand::Import(a) => {
                    return savepoint::import(&a.file, &a.place, a.fresh_sinks, a.format, &mut out);
                }
                CheckpointCommand::Verify(a) if savepoint::is_savepoint(&a.place)? => {
                    return savepoint::verify(&a.place, a.format, &mut out);
                }
                CheckpointCommand::Verify(a) => {
                    checkpoint::verify(&checkpoints_of(&a.place)?, a.rate, a.format, &mut out)
                }
            };
            match done {
                Err(CheckpointError::Output { source }) if source.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
                done => done.map_err(|error| Failure::new(&error, error.exit_code())),
            }
        }
        Command::Status(a) => status::status(&state_of(&a.place)?, a.format == Format::Json, &mut out),
        Command::Log(arguments) => {
            let json = |format| format == Format::Json;
            let done = match arguments.command {
                LogCommand::Stat(a) => log::stat(&state_of(&a.place)?, json(a.format), &mut out),
                LogCommand::Cat(a) => {
                    let options = cat_options(&a)?;
                    log::cat(&state_of(&a.place)?, &options, &mut out)
                }
                LogCommand::Verify(a) => log::verify(&state_of(&a.place)?, json(a.format), &mut out),
                LogCommand::Repair(a) => return log_repair::repair(&state_of(&a.place)?, a.yes, a.format, &mut out),
            };
            match done {
                Err(error) if error.is_broken_pipe() => Ok(()),
                done => done.map_err(|error| Failure::new(&error, error.exit_code())),
            }
        }
    }
}

/// Prints text; a reader that went away (`| head`) is no failure.
fn print(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure { message: format!("cannot write the output: {error}"), code: 74 })
        }
        _ => Ok(()),
    }
}

fn cat_options(arguments: &LogCat) -> Result<log::CatOptions, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = LogTime(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
    let at = |text: &Option<String>| text.as_deref().map(|text| log::At::parse(text, now)).transpose();
    let usage = |error: log::LogCommandError| Failure::new(&error, error.exit_code());
    Ok(log::CatOptions {
        from: at(&arguments.from).map_err(usage)?,
        to: at(&arguments.to).map_err(usage)?,
        source: arguments.source.clone(),
        json: arguments.format == Format::Json,
    })
}

/// The directory of the checkpoints of a place.
fn checkpoints_of(place: &Path) -> Result<PathBuf, Failure> {
    Ok(state_of(place)?.join(crate::checkpoint::DIRECTORY))
}

/// The state directory that a place names: itself, or that of a configuration file.
fn state_of(place: &Path) -> Result<PathBuf, Failure> {
    if savepoint::is_savepoint(place)? {
        let message = format!(
            "{} is a savepoint: this takes a state directory, or a configuration file that names one",
            place.display()
        );
        return Err(Failure { message, code: USAGE });
    }
    if place.is_file() {
        return Ok(config::load(place)?.pipeline.state);
    }
    if place.is_dir() {
        return Ok(place.to_owned());
    }
    let message = format!("{} is neither a state directory nor a configuration file", place.display());
    Err(Failure { message, code: USAGE })
}
