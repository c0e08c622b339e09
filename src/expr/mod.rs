//! Types, typed expressions and their evaluation. Flink decides what is right, also where it surprises.
//!
//! [`Expr`] is a tree in which every implicit cast is spelled out and every node knows its type. Trees are made only
//! by the functions in [`build`], which hold the typing rules and say what is wrong when there is no rule; [`eval`]
//! then never meets an ill-typed tree.
//!
//! A row on which an expression fails at run time (division by zero, a failed CAST, an overflow of DECIMAL where Flink
//! would fail the job) does not fail its batch: the value is NULL and the row is noted in [`RowErrors`]; the operator
//! sends it to the query's error output. CASE, AND, OR and COALESCE evaluate a branch only for the rows that need it,
//! so that `CASE WHEN x <> 0 THEN 1 / x END` cannot fail.

pub mod aggregate;
pub mod build;
mod calendar;
mod cast;
mod decimal;
pub mod eval;
pub mod functions;
mod literal;
mod pattern_format;
pub mod row;
mod show;
mod text;
pub mod types;
mod vector;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod properties;

pub use aggregate::AggregateCall;
pub use eval::{Batch, EvalContext, RowErrors};
pub use types::{DataType, Field, Schema};
