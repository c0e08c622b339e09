//! The integration tests: they drive the real executable, or the whole engine in this process where a test needs its
//! insides (batch sizes). One binary, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod commands;
mod config_errors;
mod conformance;
mod full;
mod kills;
mod memory;
mod parts;
mod scrub;
mod sources;
mod start;
mod structure;
mod support;
mod tcp;
mod torn;
