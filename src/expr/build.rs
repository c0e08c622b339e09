//! Typed expressions and the only functions that make them: the typing rules.
//!
//! Every function returns a well-typed tree (implicit casts spelled out) or a [`TypeError`] whose message names the
//! types and says what to write instead; the SQL front end adds the place.

use thiserror::Error;

use super::DataType;
use super::functions::Call;
pub use super::literal::{
    date_literal, interval_literal, number_literal, string_literal, time_literal, timestamp_literal,
};

/// A typed expression over the columns of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub data_type: DataType,
}

/// What an expression does. Trees are made by the functions of this module only; `eval` relies on their types.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// The input column with this index.
    Column(usize),
    Literal(Value),
    /// The input as a value of the expression's type.
    Cast {
        input: Box<Expr>,
        try_cast: bool,
    },
    /// Arithmetic, comparison, AND, OR. Both sides have one type, but for DECIMAL, where scales may differ.
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    Test {
        test: Test,
        input: Box<Expr>,
        negated: bool,
    },
    /// The value behind the first condition that is TRUE. All values have the expression's type.
    Case {
        whens: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    /// The first value that is not NULL. All have the expression's type.
    Coalesce(Vec<Expr>),
    /// Whether the input equals one of the list; all have comparable types.
    InList {
        input: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
    },
    /// Field number `field` of a ROW.
    Field {
        input: Box<Expr>,
        field: usize,
    },
    /// Element `index` (INT, from 1) of an ARRAY; NULL beyond its end.
    Index {
        array: Box<Expr>,
        index: Box<Expr>,
    },
    /// `ARRAY[…]`; all items have the item type.
    Array(Vec<Expr>),
    /// `ROW(…)`.
    Row(Vec<Expr>),
    /// A function of the registry.
    Call(Call),
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

/// Which end TRIM cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimSide {
    Both,
    Leading,
    Trailing,
}

/// Units of EXTRACT, FLOOR … TO, TIMESTAMPADD, TIMESTAMPDIFF and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
}

type Built = Result<Expr, TypeError>;

fn later() -> TypeError {
    TypeError { message: "not built yet".to_owned(), help: None }
}

/// The column of the input with this index and type.
pub fn column(index: usize, data_type: DataType) -> Expr {
    Expr { kind: ExprKind::Column(index), data_type }
}

/// A literal of a type.
pub fn literal(value: Value, data_type: DataType) -> Expr {
    Expr { kind: ExprKind::Literal(value), data_type }
}

/// A bare NULL.
pub fn null() -> Expr {
    literal(Value::Null, DataType::Null)
}

macro_rules! stubs {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])* #[allow(clippy::missing_errors_doc)]
        pub fn $name($($arg: $type),*) -> Built { let _ = ($($arg),*); Err(later()) })*
    };
}

stubs! {
    /// Operators between two values: arithmetic, comparison, AND, OR, `||`, IS [NOT] DISTINCT FROM.
    fn binary(op: BinaryOp, left: Expr, right: Expr);
    /// `-e`.
    fn negate(e: Expr);
    /// `NOT e`.
    fn not(e: Expr);
    /// `e IS [NOT] NULL | TRUE | FALSE | UNKNOWN`.
    fn is_test(test: Test, e: Expr, negated: bool);
    /// `CAST(e AS target)` or `TRY_CAST`.
    fn cast(e: Expr, target: &DataType, try_cast: bool);
    /// `CASE [operand] WHEN … THEN … [ELSE …] END`.
    fn case(operand: Option<Expr>, whens: Vec<(Expr, Expr)>, otherwise: Option<Expr>);
    /// `e [NOT] IN (…)`.
    fn in_list(e: Expr, list: Vec<Expr>, negated: bool);
    /// `e [NOT] BETWEEN low AND high`.
    fn between(e: Expr, low: Expr, high: Expr, negated: bool);
    /// `e [NOT] LIKE pattern [ESCAPE c]`.
    fn like(e: Expr, pattern: Expr, escape: Option<char>, negated: bool);
    /// A call of a scalar function by name (any case).
    fn function(name: &str, args: Vec<Expr>);
    /// `EXTRACT(unit FROM e)`.
    fn extract(unit: TimeUnit, e: Expr);
    /// `FLOOR(e TO unit)`.
    fn floor_to(e: Expr, unit: TimeUnit);
    /// `CEIL(e TO unit)`.
    fn ceil_to(e: Expr, unit: TimeUnit);
    /// `TIMESTAMPDIFF(unit, a, b)`: b minus a.
    fn timestamp_diff(unit: TimeUnit, a: Expr, b: Expr);
    /// `TIMESTAMPADD(unit, n, e)`.
    fn timestamp_add(unit: TimeUnit, n: Expr, e: Expr);
    /// `TRIM([side] [chars] FROM e)`.
    fn trim(side: TrimSide, chars: Option<Expr>, e: Expr);
    /// `POSITION(needle IN hay [FROM from])`.
    fn position(needle: Expr, hay: Expr, from: Option<Expr>);
    /// `SUBSTRING(e FROM from [FOR count])`.
    fn substring(e: Expr, from: Expr, count: Option<Expr>);
    /// `OVERLAY(e PLACING replacement FROM from [FOR count])`.
    fn overlay(e: Expr, replacement: Expr, from: Expr, count: Option<Expr>);
    /// Field `name` of a ROW.
    fn field(e: Expr, name: &str);
    /// Element `i` (from 1) of an ARRAY.
    fn index(e: Expr, i: Expr);
    /// `ARRAY[…]`.
    fn array(items: Vec<Expr>);
    /// `ROW(…)` or `(a, b)`.
    fn row(items: Vec<Expr>);
}

/// Casts all expressions to their common type: UNION ALL, CASE, COALESCE.
///
/// # Errors
/// There is no common type.
pub fn coerce_common(exprs: Vec<Expr>) -> Result<(Vec<Expr>, DataType), TypeError> {
    let _ = exprs;
    Err(later())
}

impl TimeUnit {
    /// The unit of this name (any case): `SECOND`, `DOW`, `SQL_TSI_DAY`, …
    pub fn parse(name: &str) -> Option<TimeUnit> {
        let _ = name;
        None
    }
}

impl Expr {
    /// The input columns that the expression reads, ascending, each once.
    pub fn columns(&self) -> Vec<usize> {
        Vec::new()
    }

    /// The expression over an input whose columns were renumbered by `new_index`.
    #[must_use]
    pub fn map_columns(self, new_index: &impl Fn(usize) -> usize) -> Expr {
        let _ = new_index;
        self
    }

    /// Whether evaluation can fail on a row.
    pub fn can_fail(&self) -> bool {
        true
    }
}
