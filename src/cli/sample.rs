//! `forebay sample`: a complete, commented configuration.

/// The sample; it is a valid configuration.
pub const SAMPLE: &str = include_str!("../../configs/sample.toml");
