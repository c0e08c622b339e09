//! The reference interpreter: Flink's semantics once more, as naively as they can be written, to check the engine against
//! on queries that nobody thought of. It takes the typed plan from the engine (names and types), and nothing else: its
//! expressions, operators and clocks are its own, row by row over whole inputs in memory.
//!
//! - `flink`: the interpreter against Flink's own answers.
//! - `queries`: the engine against the interpreter, on random queries (`generate`) over random logs.
//! - `cases`: small cases with written answers.
//! - `days`: thirty days of event time at constant state.
//!
//! Not here: MATCH_RECOGNIZE, lookup tables, sketches (APPROX_…), whose error has tests of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod aggregate;
mod cases;
mod days;
mod engine;
mod flink;
mod functions;
mod generate;
mod interpreter;
mod joins;
mod log;
mod over;
mod queries;
mod random;
mod scalar;
mod stream;
mod value;
mod windows;
