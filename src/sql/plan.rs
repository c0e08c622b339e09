//! The logical plan of one query: what the SQL front end makes and the engine builds operators from.
//!
//! A plan is a tree whose leaves scan sources or other queries. Every node knows its output schema; expressions refer
//! to the columns of the node's input by index. Nothing in a plan depends on text: what was not understood was refused.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::match_plan::MatchSpec;
use crate::expr::{AggregateCall, DataType, Schema, build::Expr};

/// A node of the plan and everything below it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub node: Node,
    /// Output columns; `schema.time` is the time attribute that survives this node.
    pub schema: Schema,
}

impl Plan {
    /// The inputs of this step.
    pub fn inputs(&self) -> Vec<&Plan> {
        match &self.node {
            Node::Scan { .. } => Vec::new(),
            Node::Project { input, .. }
            | Node::Filter { input, .. }
            | Node::Window { input, .. }
            | Node::Unnest { input, .. }
            | Node::Expand { input, .. }
            | Node::WindowAggregate { input, .. }
            | Node::Over { input, .. }
            | Node::Match { input, .. }
            | Node::Lookup { input, .. }
            | Node::Rank { input, .. } => vec![input],
            Node::UnionAll { inputs } => inputs.iter().collect(),
            Node::Join { left, right, .. } => vec![left, right],
        }
    }

    /// Whether rows take the place of earlier ones: such a query is nothing but the versions of a table.
    pub fn gives_updates(&self) -> bool {
        match &self.node {
            Node::Project { input, .. } | Node::Filter { input, .. } => input.gives_updates(),
            Node::Rank { rank, .. } => rank.kind == RankKind::Last,
            _ => false,
        }
    }

    /// As [`Plan::inputs`], to be changed.
    pub fn inputs_mut(&mut self) -> Vec<&mut Plan> {
        match &mut self.node {
            Node::Scan { .. } => Vec::new(),
            Node::Project { input, .. }
            | Node::Filter { input, .. }
            | Node::Window { input, .. }
            | Node::Unnest { input, .. }
            | Node::Expand { input, .. }
            | Node::WindowAggregate { input, .. }
            | Node::Over { input, .. }
            | Node::Match { input, .. }
            | Node::Lookup { input, .. }
            | Node::Rank { input, .. } => vec![input],
            Node::UnionAll { inputs } => inputs.iter_mut().collect(),
            Node::Join { left, right, .. } => vec![left, right],
        }
    }
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
    /// Where it has `ordinality`, a last column numbers them (INT, from 1).
    Unnest { input: Box<Plan>, array: Expr, outer: bool, ordinality: bool },
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
    /// OVER: the input's columns, then one column per call.
    Over { input: Box<Plan>, over: OverSpec },
    /// The first rows of each partition: the input's columns, then the row's number from 1.
    Rank { input: Box<Plan>, rank: RankSpec },
    /// MATCH_RECOGNIZE: one row per match.
    Match { input: Box<Plan>, spec: Box<MatchSpec> },
    /// The input's columns, then those of a lookup table.
    Lookup { input: Box<Plan>, lookup: LookupSpec },
    /// The left columns, then (but for SEMI and ANTI) the right ones.
    Join { left: Box<Plan>, right: Box<Plan>, join: JoinSpec },
}

/// How two relations are joined.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinSpec {
    pub method: JoinMethod,
    pub kind: JoinKind,
    /// What must be equal, over the left and over the right columns, of one type each.
    pub keys: Vec<(Expr, Expr)>,
    /// What else must be TRUE, over the left columns and then the right ones.
    pub condition: Option<Expr>,
}

/// How rows look up a table. INNER or LEFT.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupSpec {
    pub table: String,
    /// The table's columns.
    pub columns: Schema,
    pub kind: JoinKind,
    /// What must be equal, over the input's columns and over the table's: its whole key.
    pub keys: Vec<(Expr, Expr)>,
    /// What else must be TRUE, over the input's columns and then the table's.
    pub condition: Option<Expr>,
}

/// What bounds a join in time.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinMethod {
    /// The left time lies in [right time + lower, right time + upper].
    Interval { left_time: usize, right_time: usize, lower_ms: i64, upper_ms: i64 },
    /// The right row is the version of its key that is valid at the left time.
    Temporal { left_time: usize, right_time: usize },
    /// Both rows lie in the same window; the columns hold its end.
    Window { window: WindowSpec, left_end: usize, right_end: usize },
}

/// The kinds of joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    Semi,
    Anti,
}

/// `ROW_NUMBER() OVER (PARTITION BY keys ORDER BY order) <= limit`.
#[derive(Clone, Debug, PartialEq)]
pub struct RankSpec {
    pub kind: RankKind,
    /// Over the input's columns, the window's own among them.
    pub keys: Vec<Expr>,
    pub order: Vec<RankOrder>,
    /// Set in every plan that is handed out.
    pub limit: Option<usize>,
    /// Where it stands in the text.
    pub place: Range<usize>,
}

/// When the rows of a rank are final.
#[derive(Clone, Debug, PartialEq)]
pub enum RankKind {
    /// When the watermark passes the window's end.
    Window {
        window: WindowSpec,
        /// The input's column with `window_end`.
        end_column: usize,
        /// The order is the time attribute, descending.
        by_time_descending: bool,
    },
    /// When the watermark passes the row's time: the first row by the time attribute.
    First,
    /// Never: the last row by the time attribute. Each one takes the place of that before, as the versions of a table do.
    Last,
}

/// One expression of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct RankOrder {
    pub expr: Expr,
    pub descending: bool,
    pub nulls_first: bool,
}

/// What is computed over the rows of a key, in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct OverSpec {
    /// Index of the time attribute in the input.
    pub time_column: usize,
    /// `PARTITION BY`, over the input's columns.
    pub keys: Vec<Expr>,
    pub frame: Frame,
    pub calls: Vec<OverCall>,
}

/// From which row on a call sees the rows up to the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Rows of the same time are peers. `None`: UNBOUNDED.
    Range { preceding_ms: Option<i64> },
    /// `None`: UNBOUNDED.
    Rows { preceding: Option<usize> },
}

impl Frame {
    /// Whether the frame ends somewhere behind.
    pub fn is_bounded(self) -> bool {
        !matches!(self, Frame::Range { preceding_ms: None } | Frame::Rows { preceding: None })
    }

    /// Whether a key without new rows is forgotten.
    pub fn forgets(self) -> bool {
        matches!(self, Frame::Range { preceding_ms: Some(_) })
    }
}

/// A call of OVER.
#[derive(Clone, Debug, PartialEq)]
pub struct OverCall {
    pub function: OverFunction,
    /// Over the input's columns.
    pub args: Vec<Expr>,
    pub data_type: DataType,
}

/// The functions of OVER.
#[derive(Clone, Debug, PartialEq)]
pub enum OverFunction {
    Aggregate(Box<AggregateCall>),
    /// Arguments: value and default, of one type.
    Lag {
        offset: usize,
    },
    /// RANK, or DENSE_RANK.
    Rank {
        dense: bool,
    },
    Changed,
    Deadband,
    Hysteresis,
    Ewma,
    Rate,
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
    /// An aggregation over it has the columns of PARTITION BY as its keys.
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
