//! What is chosen for one start: queries whose state is dropped, and outputs that stay although the log does not give them
//! (`run --adopt SINK`, see `sink/file.rs`).
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

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Names of queries whose state is dropped.
    pub reset: BTreeSet<String>,
    /// Names of sinks whose output stays.
    pub adopt: BTreeSet<String>,
}

impl Choices {
    /// Choices as they are given: queries as `query.NAME`, sinks by name.
    ///
    /// # Errors
    /// There is no such query or sink.
    pub fn given(config: &Config, reset: &[String], adopt: &[String]) -> Result<Choices, EngineError> {
        Ok(Choices { reset: queries(config, reset)?, adopt: sinks(config, adopt)? })
    }

    /// Without the queries to be reset.
    pub fn keeping_state(&self) -> Choices {
        Choices { reset: BTreeSet::new(), ..self.clone() }
    }
}

/// The query that an operator belongs to: the first part of its name.
pub fn query_of(operator: &str) -> &str {
    operator.split('/').next().unwrap_or(operator)
}

fn sinks(config: &Config, given: &[String]) -> Result<BTreeSet<String>, EngineError> {
    let known: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
    match given.iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            let message = format!("`--adopt {name}`: there is no such sink; {}", suggestion(name, &known));
            Err(EngineError::Usage { message })
        }
        None => Ok(given.iter().cloned().collect()),
    }
}

fn queries(config: &Config, given: &[String]) -> Result<BTreeSet<String>, EngineError> {
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
