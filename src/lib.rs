//! Forebay: a single-binary edge stream processor. Sources that cannot be rewound go through a write-ahead replay
//! log; Flink SQL runs over the log in event time; operator state is checkpointed to LMDB; output is exactly once.
//!
//! The data's way, and the modules in that order:
//!
//! ```text
//! source ──run──▶ replay log ──frame──▶ format ──batch──▶ operators ──rows──▶ sink
//!  task            log thread            engine thread                         file, stdout
//!                     ▲                                    │                     │
//!                     └────────── trim ◀── checkpoint thread (LMDB) ◀── flushed ─┘
//! ```
//!
//! `ARCHITECTURE.md` has the invariants, the fault model and how to add a thing.

pub mod access;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod control;
pub mod disk;
pub mod engine;
pub mod event;
pub mod expr;
pub mod format;
pub mod operator;
pub mod replay_log;
pub mod settings;
pub mod sink;
pub mod source;
pub mod sql;
pub mod state;
