//! The logical plan of one query: what the SQL front end makes and the engine builds operators from.
//!
//! A plan is a tree whose leaves scan sources or other queries. Every node knows its output schema; expressions refer
//! to the columns of the node's input by index. Nothing in a plan depends on text: what was not understood was refused.

use serde::{Deserialize, Serialize};

use crate::expr::{AggregateCall, DataType, Schema, build::Expr};

/// A node of the plan and everything below it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub node: Node,
    /// Output columns; `schema.time` is the time attribute that survives this node.
    pub schema: Schema,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Node {
    /// Rows of a source or of another query, all columns (a source's hidden system columns included).
    Scan { relation: String },
    /// One output column per expression.
    Project { input: Box<Plan>, exprs: Vec<Expr> },
    /// Rows for which the predicate is TRUE.
    Filter { input: Box<Plan>, predicate: Expr },
    /// All rows of all inputs (same types).
    UnionAll { inputs: Vec<Plan> },
    /// A bare window table function: the input's columns, then `window_start`, `window_end`, `window_time`.
    Window { input: Box<Plan>, window: WindowSpec },
    /// Each row once for every element of an array, with the element (of a ROW, its fields) behind the row's columns.
    /// `outer`: a row without elements stays, with NULLs.
    Unnest { input: Box<Plan>, array: Expr, outer: bool },
    /// GROUPING SETS: each row once for every set; behind the input's columns stand the keys, NULL where the set has
    /// them not, and the set's number (INT).
    Expand {
        input: Box<Plan>,
        keys: Vec<Expr>,
        /// For each set, for each key: whether the set has it.
        sets: Vec<Vec<bool>>,
    },
    /// Windowed aggregation: output columns are the keys, then those of `properties`, then the aggregates.
    WindowAggregate {
        input: Box<Plan>,
        window: WindowSpec,
        /// Grouping keys besides the window, over the input's columns.
        keys: Vec<Expr>,
        /// Which of the window's own columns are in the output, in this order.
        properties: Vec<WindowProperty>,
        aggregates: Vec<AggregateCall>,
    },
}

/// A window assignment over a time attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSpec {
    pub kind: WindowKind,
    /// Index of the time attribute in the input; TIMESTAMP or TIMESTAMP_LTZ.
    pub time_column: usize,
    pub time_type: DataType,
}

/// The kinds of windows; all sizes in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowKind {
    Tumble {
        size_ms: i64,
        offset_ms: i64,
    },
    /// `size_ms` is a multiple of `slide_ms`.
    Hop {
        size_ms: i64,
        slide_ms: i64,
        offset_ms: i64,
    },
    /// `size_ms` is a multiple of `step_ms`.
    Cumulate {
        size_ms: i64,
        step_ms: i64,
        offset_ms: i64,
    },
    /// Only below an aggregation whose keys are the columns of PARTITION BY.
    Session {
        gap_ms: i64,
        /// Columns of the input.
        partition: Vec<usize>,
    },
    /// The rows carry their windows: `time_column` is the window's end, this column its start (a key).
    Attached {
        start: usize,
    },
}

/// A window's own columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowProperty {
    /// `window_start`, TIMESTAMP(3) on the pipeline's wall clock.
    Start,
    /// `window_end`, TIMESTAMP(3) on the pipeline's wall clock; exclusive.
    End,
    /// `window_time` = end − 1 ms, of the time attribute's type; the output's time attribute.
    Time,
}
