//! Parses the command line, runs it, maps the outcome to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == forebay::source::GUARD_WORD) {
        return ExitCode::from(forebay::source::guard(&words.collect::<Vec<_>>()));
    }
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    // A bug must not look like a wrong configuration or a full disk.
    let code = std::panic::catch_unwind(|| forebay::cli::main(&arguments)).unwrap_or(70);
    ExitCode::from(code)
}
