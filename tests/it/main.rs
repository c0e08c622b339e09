//! The integration tests: they drive the real executable, or the whole engine in this process where a test needs its
//! insides (batch sizes). One binary, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod clock;
mod commands;
mod config_errors;
mod conformance;
mod features;
mod flink_script;
mod full;
mod functions;
mod full_checkpoint;
mod drops;
mod failing_sync;
mod flips;
mod full;
mod idle;
mod kills;
mod repair;
mod lookup;
mod pipeline_tests;
mod memory;
mod power;
mod savepoints;
mod readers;
mod sources;
mod state_ttl;
mod kills_join;
mod sources;
mod status;
mod scrub;
mod sources;
mod start;
mod structure;
mod support;
mod tcp;
mod torn;
mod versions;
