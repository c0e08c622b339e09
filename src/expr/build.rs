//! Typed expressions and the only functions that make them: the typing rules.
//!
//! Every function returns a well-typed tree (implicit casts spelled out) or a [`TypeError`] whose message names the
//! types and says what to write instead; the SQL front end adds the place.

use thiserror::Error;

use super::DataType;

/// A typed expression over the columns of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub data_type: DataType,
}

/// What an expression does.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// The input column with this index.
    Column(usize),
    Literal(Value),
}

/// A literal's value; its type stands in the [`Expr`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    /// TINYINT to BIGINT; DATE (days), TIME (ms), TIMESTAMP and TIMESTAMP_LTZ (µs), intervals (ms or months).
    Integer(i64),
    /// FLOAT and DOUBLE.
    Double(f64),
    /// Unscaled value of a DECIMAL.
    Decimal(i128),
    String(String),
    Bytes(Vec<u8>),
}

/// Why no typed expression can be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TypeError {
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// Binary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    Concat,
    IsDistinctFrom,
    IsNotDistinctFrom,
}

/// `IS …` tests that look at one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Null,
    True,
    False,
    Unknown,
}

/// Units of EXTRACT, FLOOR … TO, TIMESTAMPADD, TIMESTAMPDIFF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    DayOfWeek,
    DayOfYear,
    Epoch,
    // (more where Flink has them)
}

type Built = Result<Expr, TypeError>;
