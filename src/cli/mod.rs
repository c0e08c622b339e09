//! (to come)
pub mod log;
