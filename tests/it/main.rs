//! The integration tests: they drive the real executable, or the whole engine in this process where a test needs its
//! insides (batch sizes). One binary, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod address_space;
mod aging;
mod clock;
mod collected;
mod commands;
mod config_errors;
mod conformance;
mod directories;
mod drops;
mod failing_sync;
mod features;
mod flink_script;
mod flips;
mod full;
mod full_checkpoint;
mod functions;
mod idle;
mod kills;
mod kills_join;
mod lookup;
mod maps;
mod memory;
mod order_by;
mod parts;
mod permissions;
mod pipeline_tests;
mod positions;
mod power;
mod qualify;
mod query_errors;
mod quiet;
mod readers;
mod reload;
mod repair;
mod savepoints;
mod scrub;
mod session_timers;
mod sources;
mod start;
mod state_ttl;
mod status;
mod structure;
mod support;
mod tcp;
mod torn;
mod values;
mod versioned_views;
mod versions;
