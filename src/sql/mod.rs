//! SQL text to a typed plan.
pub mod plan;
