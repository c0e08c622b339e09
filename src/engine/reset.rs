//! What the operator chooses at a start: queries whose state is dropped.
//!
//! `run --reset query.NAME` drops the state of all of a query's operators, changed or not: half of an old query's state
//! below half of a new one would give results that belong to neither. It is taken as a changed configuration is: what is
//! logged is first processed under the old one, then one checkpoint has the new query with empty state. Where its sources
//! stand in event time is kept, so rows that were late stay late. Queries that read it keep their state and their
//! watermark; sinks go on behind what they have.

use std::collections::BTreeSet;

use super::EngineError;
use crate::config::Config;
use crate::settings::suggestion;

/// What holds for one start only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Queries, as `query.NAME`, whose state is dropped.
    pub reset: Vec<String>,
}

/// The query that an operator belongs to: the first part of its name.
pub fn query_of(operator: &str) -> &str {
    operator.split('/').next().unwrap_or(operator)
}

/// The names of queries that are given as `query.NAME`.
///
/// # Errors
/// There is no such query.
pub fn queries(config: &Config, given: &[String]) -> Result<BTreeSet<String>, EngineError> {
    let known: Vec<String> = config.queries.iter().map(|query| format!("query.{}", query.name)).collect();
    let name = |given: &String| match given.strip_prefix("query.").filter(|_| known.contains(given)) {
        Some(name) => Ok(name.to_owned()),
        None => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let meant = if given.starts_with("query.") { given.clone() } else { format!("query.{given}") };
            let help = suggestion(&meant, &known);
            let message = format!("--reset {given}: the configuration has no such query; {help}");
            Err(EngineError::Usage { message })
        }
    };
    given.iter().map(name).collect()
}
