//! SQL text to a typed plan.
//!
//! ```text
//! text ──text.rs──▶ tokens ──dialect.rs, parse.rs──▶ syntax tree ──planner/──▶ plan.rs ──▶ explain.rs, the engine
//! ```
//!
//! The language is Flink SQL, and a text taken here runs unchanged on Flink. `sqlparser` reads the text and accepts far
//! more; so the lexical check and the planner take only what they know, every node of the syntax tree is taken apart
//! whole, and nothing is ignored. All problems come as [`SqlError`]: what, where, and what to write instead.
//!
//! Taken:
//!
//! | | |
//! |---|---|
//! | query | `SELECT`, `*`, `t.*`, aliases, `WHERE`, `WITH` (several, nested, with column lists), sub-queries in `FROM`, `UNION ALL`, `ORDER BY` the time attribute, one `;` at the end |
//! | windows | `TUMBLE`, `HOP`, `CUMULATE`, `SESSION` over `TABLE t` or `(SELECT …)`, inside `TABLE(…)` or not, positional or named arguments, offset; alone or under `GROUP BY window_start, window_end [, window_time] [, keys]`; `GROUPING SETS`, `ROLLUP`, `CUBE`, `GROUPING`; cascades over `window_time`; further grouping by the `window_start`, `window_end` of a sub-query or view |
//! | aggregates | `COUNT(*)`, `COUNT`, `SUM`, `AVG`, `MIN`, `MAX`, `STDDEV_POP`, `STDDEV_SAMP`, `VAR_POP`, `VAR_SAMP`, `FIRST_VALUE`, `LAST_VALUE`, `LISTAGG`, `PERCENTILE`, `APPROX_COUNT_DISTINCT`, Forebay's `APPROX_PERCENTILE`; `DISTINCT`, `FILTER (WHERE …)`, inside expressions; `HAVING` |
//! | arrays, maps | `CROSS JOIN UNNEST(a) AS s (x)`, `LEFT JOIN UNNEST(a) AS s (x) ON TRUE`, `WITH ORDINALITY` |
//! | OVER | aggregates, `LAG`, `RANK` and `DENSE_RANK`, `PARTITION BY … ORDER BY` the time attribute, `ROWS` or `RANGE` from `n` or `UNBOUNDED PRECEDING` to the `CURRENT ROW`, the `WINDOW` clause; beyond Flink `CHANGED`, `DEADBAND`, `HYSTERESIS`, `EWMA`, `RATE` |
//! | first rows | `ROW_NUMBER()` in a sub-query with `WHERE rn <= n` around it, or with `QUALIFY`: window Top-N, window deduplication, the first row of a key by time; without a limit the number of each row by time; `SELECT DISTINCT` of a window's columns |
//! | joins | interval (`JOIN`, `LEFT`, `RIGHT`, `FULL`; with `ON`, `USING`, `NATURAL`; `FROM a, b, c WHERE …`, `CROSS JOIN … WHERE`), temporal (`FOR SYSTEM_TIME AS OF` with a source that declares a `key`, or a query that passes it on or keeps the first or last row of a key; `JOIN`, `LEFT`), lookup (`FOR SYSTEM_TIME AS OF a._arrival` with a `[table.NAME]`; `JOIN`, `LEFT`), window (all kinds; `[NOT] IN`, `[NOT] EXISTS` with a sub-query) |
//! | patterns | `MATCH_RECOGNIZE` as Flink has it, with `WITHIN`: see `docs/match_recognize.md` |
//! | JSON | `JSON_VALUE`, `JSON_QUERY`, `JSON_EXISTS`, `JSON_OBJECT`, `JSON_ARRAY` with their clauses, `IS JSON` |
//! | expressions | arithmetic, comparison, `\|\|`, `AND`, `OR`, `NOT`, `CASE`, `CAST`, `TRY_CAST`, `[NOT] IN (list)`, `BETWEEN [SYMMETRIC]`, `LIKE … ESCAPE`, `SIMILAR TO`, `OVERLAPS`, `IS [NOT] NULL \| TRUE \| FALSE \| UNKNOWN \| DISTINCT FROM`, `EXTRACT`, `FLOOR/CEIL(x TO unit)`, `TRIM`, `POSITION`, `SUBSTRING`, `OVERLAY`, `TIMESTAMPADD`, `TIMESTAMPDIFF`, ROW fields `a.b.c`, `a[1]`, `m['k']`, `ROW(…)`, `ARRAY[…]`, `MAP[…]`, literals of numbers, strings, `X'…'`, `INTERVAL`, `DATE`, `TIME`, `TIMESTAMP`, and the functions of `expr/` |
//!
//! Refused, at the place and with what to write:
//!
//! | | |
//! |---|---|
//! | not yet | `FILTER` with `OVER`, `WITHIN GROUP`, `MULTISET` (`COLLECT`), year-month windows |
//! | never: its state has no bound | `GROUP BY` without a window, joins without a bound in time, the last row of a key but for temporal joins, Top-N without a window, aggregates over a whole stream, `SELECT DISTINCT` and `ORDER BY` otherwise, `UNION`, `EXCEPT`, `INTERSECT`, `LIMIT`, `OFFSET`, `FETCH`, scalar sub-queries, `WITH RECURSIVE` |
//! | no query | `INSERT`, `CREATE`, `SET`, `VALUES`, several statements |
//! | not Flink | hints, `"…"`, `U&'…'`, `N'…'`, `E'…'`, `::`, `==`, `!=`, `&&`, `:=`, placeholders, `TOP`, `TABLESAMPLE`, `DISTINCT ON`, `SELECT INTO`, `FOR UPDATE`, `LATERAL VIEW`, `PREWHERE`, `CLUSTER BY`, `SETTINGS`, reserved words without back-ticks, legacy `GROUP BY TUMBLE(…)` |

mod dialect;
pub mod explain;
mod foreign;
pub mod match_plan;
#[cfg(test)]
mod match_tests;
mod parse;
mod pattern_text;
pub mod pitfalls;
pub mod plan;
mod planner;
pub mod portable;
mod reserved;
mod syntax_error;
#[cfg(test)]
mod tests;
mod text;
mod types;
mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use thiserror::Error;

use crate::expr::Schema;
use crate::settings::{self, Problem, nearest};
use plan::{Plan, WindowProperty, WindowSpec};
pub use planner::{UPDATES, updates_help};
use text::Text;
pub use types::parse_type;

/// What is wrong with a query or a type, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SqlError {
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Byte range in the text.
    pub span: Range<usize>,
}

impl SqlError {
    fn new(span: Range<usize>, message: impl Into<String>) -> SqlError {
        SqlError { message: message.into(), help: None, span }
    }

    fn help(mut self, help: impl Into<String>) -> SqlError {
        self.help = Some(help.into());
        self
    }

    fn help_if(mut self, help: Option<String>) -> SqlError {
        self.help = help.or(self.help);
        self
    }
}

/// `did you mean …`, where a candidate is near.
fn nearest_help<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(name, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// The relations that a query can read: the sources (with their hidden system columns) and the queries planned before.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    relations: BTreeMap<String, Schema>,
    /// Of queries whose rows carry windows, what each column is to them.
    windows: BTreeMap<String, Vec<Option<(WindowProperty, WindowSpec)>>>,
    /// Of queries with several time attributes, all of them.
    times: BTreeMap<String, Vec<usize>>,
    /// Columns of the primary keys of versioned tables and of lookup tables.
    keys: BTreeMap<String, Vec<String>>,
    lookups: BTreeSet<String>,
    /// Queries whose rows take the place of earlier ones.
    updates: BTreeSet<String>,
}

impl Catalog {
    /// Adds a query.
    pub fn add_query(&mut self, name: impl Into<String>, plan: &Plan) {
        let name = name.into();
        let windows = planner::window_columns(plan, self);
        if windows.iter().any(Option::is_some) {
            self.windows.insert(name.clone(), windows);
        }
        let named = |column: &usize| plan.schema.fields.get(*column).map(|field| field.name.clone());
        if let Some(key) = planner::primary_key(plan, self).filter(|key| !key.is_empty()) {
            self.add_key(&name, key.iter().filter_map(named).collect());
        }
        let times = planner::time_columns(plan, self);
        if times.len() > 1 {
            self.times.insert(name.clone(), times);
        }
        if plan.gives_updates() {
            self.updates.insert(name.clone());
        }
        self.add(name, plan.schema.clone());
    }

    fn window_column(&self, relation: &str, column: usize) -> Option<(WindowProperty, WindowSpec)> {
        self.windows.get(relation)?.get(column)?.clone()
    }

    fn time_columns(&self, relation: &str, schema: &Schema) -> Vec<usize> {
        self.times.get(relation).cloned().unwrap_or_else(|| schema.time.into_iter().collect())
    }

    /// Adds a source.
    pub fn add(&mut self, name: impl Into<String>, schema: Schema) {
        self.relations.insert(name.into(), schema);
    }

    /// Declares a relation's primary key: it is a versioned table.
    pub fn add_key(&mut self, name: impl Into<String>, columns: Vec<String>) {
        self.keys.insert(name.into(), columns);
    }

    /// Adds a lookup table with its primary key.
    pub fn add_lookup(&mut self, name: impl Into<String>, schema: Schema, key: Vec<String>) {
        let name = name.into();
        self.lookups.insert(name.clone());
        self.add_key(&name, key);
        self.add(name, schema);
    }

    /// Whether the relation is a lookup table.
    pub fn is_lookup(&self, name: &str) -> bool {
        self.lookups.contains(name)
    }

    fn gives_updates(&self, name: &str) -> bool {
        self.updates.contains(name)
    }

    /// The columns of a relation's primary key.
    pub fn key(&self, name: &str) -> Option<&[String]> {
        self.keys.get(name).map(Vec::as_slice)
    }

    /// The columns of a relation.
    pub fn schema(&self, name: &str) -> Option<&Schema> {
        self.relations.get(name)
    }

    /// The names of all relations.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.relations.keys().map(String::as_str)
    }
}

/// A query of the configuration: its name and its text with its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub name: String,
    pub text: settings::Text,
}

impl Query {
    /// Plans the query.
    ///
    /// # Errors
    /// Its problems, placed in the configuration file.
    pub fn plan(&self, catalog: &Catalog) -> Result<Plan, Vec<Problem>> {
        plan_query(&self.text.value, catalog).map_err(|errors| errors.into_iter().map(|e| self.problem(e)).collect())
    }

    /// The relations that the query reads.
    ///
    /// # Errors
    /// The text is no query; the problem is placed in the configuration file.
    pub fn dependencies(&self) -> Result<Vec<String>, Problem> {
        dependencies(&self.text.value).map_err(|error| self.problem(error))
    }

    /// An error of this query as a problem of the configuration file.
    pub fn problem(&self, error: SqlError) -> Problem {
        Problem { message: error.message, help: error.help, span: Some(self.text.locate(error.span)) }
    }
}

/// Plans a query over the relations of `catalog`.
///
/// # Errors
/// What is wrong, at least one.
pub fn plan_query(text: &str, catalog: &Catalog) -> Result<Plan, Vec<SqlError>> {
    on_deep_stack(|| {
        let text = Text::new(text).map_err(|error| vec![error])?;
        let query = parse::parse(&text).map_err(|error| vec![error])?;
        planner::plan(&text, &query, catalog)
    })
    .unwrap_or_else(|error| Err(vec![error]))
}

/// The names of the relations that a query reads, without its CTEs: what must be planned before it.
///
/// # Errors
/// The text cannot be parsed.
pub fn dependencies(text: &str) -> Result<Vec<String>, SqlError> {
    on_deep_stack(|| {
        let text = Text::new(text)?;
        let query = parse::parse(&text)?;
        Ok(parse::relations(&query))
    })?
}

/// Runs `work` on a stack of its own. Syntax trees are as deep as their chains of operators are long, and `sqlparser`
/// walks and drops them recursively; the bounds on the text keep that within this stack, whoever calls.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, SqlError> {
    const STACK_BYTES: usize = 16 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sql".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, work).map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(SqlError::new(0..0, format!("no thread to plan the query in: {error}"))),
        }
    })
}
