//! Aggregate functions: which there are, their result types, and (in `operator/`) nothing else.

use super::build::{Expr, TypeError};
use super::types::DataType;

/// The aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateKind {
    /// `COUNT(*)` (no argument) and `COUNT(x)`.
    Count,
    Sum,
    Avg,
    Min,
    Max,
}

/// One aggregate of a SELECT list.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateCall {
    pub kind: AggregateKind,
    /// `None` only for `COUNT(*)`. Already cast to the type that is aggregated.
    pub argument: Option<Expr>,
    pub distinct: bool,
    /// `FILTER (WHERE …)`: BOOLEAN.
    pub filter: Option<Expr>,
    pub data_type: DataType,
}

/// Names of the aggregate functions that are taken, for messages and for telling aggregates from scalar functions.
pub const NAMES: [(&str, AggregateKind); 5] = [
    ("COUNT", AggregateKind::Count),
    ("SUM", AggregateKind::Sum),
    ("AVG", AggregateKind::Avg),
    ("MIN", AggregateKind::Min),
    ("MAX", AggregateKind::Max),
];

/// The aggregate function of this name (any case).
pub fn kind_of(name: &str) -> Option<AggregateKind> {
    NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
}

impl AggregateCall {
    /// Type of the argument; `None` for `COUNT(*)`.
    pub fn argument_type(&self) -> Option<&DataType> {
        self.argument.as_ref().map(|expr| &expr.data_type)
    }

    /// Builds a typed call. Result types are Flink's: SUM and AVG of an integer type have that type (wrapping),
    /// `SUM(DECIMAL(p, s))` is `DECIMAL(38, s)`, `AVG(DECIMAL(p, s))` is `DECIMAL(38, max(s, 6))`.
    ///
    /// # Errors
    /// The function does not take an argument of that type.
    pub fn new(
        kind: AggregateKind,
        argument: Option<Expr>,
        distinct: bool,
        filter: Option<Expr>,
    ) -> Result<AggregateCall, TypeError> {
        let name = NAMES.iter().find(|(_, k)| *k == kind).map_or("", |(name, _)| name);
        let refuse = |message: String, help: Option<String>| Err(TypeError { message, help });
        if let Some(filter) = &filter
            && filter.data_type != DataType::Boolean
        {
            return refuse(format!("FILTER needs a BOOLEAN, not {}", filter.data_type), None);
        }
        let Some(expr) = &argument else {
            return match kind {
                AggregateKind::Count if !distinct => {
                    Ok(AggregateCall { kind, argument, distinct, filter, data_type: DataType::BigInt })
                }
                _ => refuse(format!("{name}(*) does not exist"), Some(format!("name a column: {name}(x)"))),
            };
        };
        let argument_type = expr.data_type.clone();
        let data_type = match (kind, &argument_type) {
            (AggregateKind::Count, _) => DataType::BigInt,
            (AggregateKind::Sum, DataType::Decimal(_, scale)) => DataType::Decimal(38, *scale),
            (AggregateKind::Avg, DataType::Decimal(_, scale)) => DataType::Decimal(38, (*scale).max(6)),
            (AggregateKind::Sum | AggregateKind::Avg, t) if t.is_numeric() => t.clone(),
            (
                AggregateKind::Min | AggregateKind::Max,
                t @ (DataType::Boolean
                | DataType::String
                | DataType::Date
                | DataType::Time
                | DataType::Timestamp(_)
                | DataType::TimestampLtz(_)),
            ) => t.clone(),
            (AggregateKind::Min | AggregateKind::Max, t) if t.is_numeric() => t.clone(),
            (_, t) => {
                return refuse(
                    format!("{name} does not take {t}"),
                    Some(format!("cast the argument: {name}(CAST(x AS DOUBLE))")),
                );
            }
        };
        Ok(AggregateCall { kind, argument, distinct, filter, data_type })
    }
}
