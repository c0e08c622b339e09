//! Parses the command line, runs it, maps the outcome to an exit code.

fn main() {}
