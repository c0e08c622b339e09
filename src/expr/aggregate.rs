//! Aggregate functions: which there are, their arguments and result types. How they are computed is in `operator/`.

use super::build::{self, Expr, ExprKind, TypeError, Value};
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
    StddevPop,
    StddevSamp,
    VarPop,
    VarSamp,
    /// The first value that is not NULL, in the order of the log.
    FirstValue,
    /// The last value that is not NULL, in the order of the log.
    LastValue,
    /// Strings joined in the order of the log.
    ListAgg,
    /// Exact, with linear interpolation.
    Percentile,
    ApproxCountDistinct,
    /// Forebay's own.
    ApproxPercentile,
    /// The values in the order of the log.
    ArrayAgg,
    /// A JSON object, the keys sorted; the last value of a key counts.
    JsonObjectAgg,
    /// A JSON array in the order of the log.
    JsonArrayAgg,
}

/// The constant arguments of an aggregate.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    None,
    /// Of LISTAGG.
    Separator(String),
    /// Of the percentiles, 0 to 1; the result is an ARRAY where an ARRAY was asked for.
    Percentages {
        values: Vec<f64>,
        array: bool,
    },
    /// Of ARRAY_AGG and the JSON aggregates: whether NULLs are kept. Those of ARRAY_AGG come in a ROW of one field, so
    /// that the argument itself is never NULL.
    WithNulls(bool),
}

/// One aggregate of a SELECT list.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateCall {
    pub kind: AggregateKind,
    /// `None` only for `COUNT(*)`. Already cast to the type that is aggregated.
    pub argument: Option<Expr>,
    pub parameter: Parameter,
    pub distinct: bool,
    /// `FILTER (WHERE …)`: BOOLEAN.
    pub filter: Option<Expr>,
    pub data_type: DataType,
}

/// Names of the aggregate functions that are taken, for messages and for telling aggregates from scalar functions. The
/// first name of a kind is its own, further ones are Flink's synonyms.
pub const NAMES: [(&str, AggregateKind); 20] = [
    ("COUNT", AggregateKind::Count),
    ("SUM", AggregateKind::Sum),
    ("AVG", AggregateKind::Avg),
    ("MIN", AggregateKind::Min),
    ("MAX", AggregateKind::Max),
    ("STDDEV_POP", AggregateKind::StddevPop),
    ("STDDEV_SAMP", AggregateKind::StddevSamp),
    ("STDDEV", AggregateKind::StddevSamp),
    ("VAR_POP", AggregateKind::VarPop),
    ("VAR_SAMP", AggregateKind::VarSamp),
    ("VARIANCE", AggregateKind::VarSamp),
    ("FIRST_VALUE", AggregateKind::FirstValue),
    ("LAST_VALUE", AggregateKind::LastValue),
    ("LISTAGG", AggregateKind::ListAgg),
    ("PERCENTILE", AggregateKind::Percentile),
    ("APPROX_COUNT_DISTINCT", AggregateKind::ApproxCountDistinct),
    ("APPROX_PERCENTILE", AggregateKind::ApproxPercentile),
    ("ARRAY_AGG", AggregateKind::ArrayAgg),
    ("JSON_OBJECTAGG", AggregateKind::JsonObjectAgg),
    ("JSON_ARRAYAGG", AggregateKind::JsonArrayAgg),
];

/// The aggregate function of this name (any case).
pub fn kind_of(name: &str) -> Option<AggregateKind> {
    NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
}

impl AggregateKind {
    /// The function's name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Whether it is PERCENTILE or APPROX_PERCENTILE.
    pub fn is_percentile(self) -> bool {
        matches!(self, AggregateKind::Percentile | AggregateKind::ApproxPercentile)
    }

    /// Whether a clause says what becomes of NULLs, and what holds without one.
    fn null_clause(self) -> Option<bool> {
        match self {
            AggregateKind::ArrayAgg | AggregateKind::JsonObjectAgg => Some(true),
            AggregateKind::JsonArrayAgg => Some(false),
            _ => None,
        }
    }

    /// Least and most number of arguments, `*` not counted.
    fn arguments(self) -> (usize, usize) {
        match self {
            AggregateKind::ListAgg => (1, 2),
            AggregateKind::JsonObjectAgg => (2, 2),
            AggregateKind::Percentile => (2, 3),
            AggregateKind::ApproxPercentile => (2, 2),
            _ => (1, 1),
        }
    }
}

type Refused<T> = Result<T, TypeError>;

fn refuse<T>(message: impl Into<String>, help: impl Into<String>) -> Refused<T> {
    Err(TypeError { message: message.into(), help: Some(help.into()) })
}

impl AggregateCall {
    /// Type of the argument; `None` for `COUNT(*)`.
    pub fn argument_type(&self) -> Option<&DataType> {
        self.argument.as_ref().map(|expr| &expr.data_type)
    }

    /// Builds a typed call; no arguments stand for `*`. Result types are Flink's: SUM, AVG and the deviations of an
    /// integer type have that type (sums wrap), `SUM(DECIMAL(p, s))` is `DECIMAL(38, s)`, `AVG(DECIMAL(p, s))` is
    /// `DECIMAL(38, max(s, 6))`. `with_nulls` is the clause on NULLs, where there is one.
    ///
    /// # Errors
    /// The function does not take such arguments.
    pub fn new(
        kind: AggregateKind,
        arguments: Vec<Expr>,
        with_nulls: Option<bool>,
        distinct: bool,
        filter: Option<Expr>,
    ) -> Refused<AggregateCall> {
        let name = kind.name();
        if let Some(filter) = &filter
            && filter.data_type != DataType::Boolean
        {
            return refuse(format!("FILTER needs a BOOLEAN, not {}", filter.data_type), "write a comparison");
        }
        if with_nulls.is_some() && kind.null_clause().is_none() {
            return refuse(format!("{name} has no clause on NULLs"), "leave it out: NULLs do not count");
        }
        let mut arguments = arguments.into_iter();
        let Some(argument) = arguments.next() else {
            return match kind {
                AggregateKind::Count if !distinct => Ok(AggregateCall {
                    kind,
                    argument: None,
                    parameter: Parameter::None,
                    distinct,
                    filter,
                    data_type: DataType::BigInt,
                }),
                _ => refuse(format!("{name}(*) does not exist"), format!("name a column: {name}(x)")),
            };
        };
        if distinct && argument.data_type.has_map() {
            return refuse(
                format!("{name} does not take DISTINCT {}", argument.data_type),
                "a MAP cannot be compared: count what it holds",
            );
        }
        let rest: Vec<Expr> = arguments.collect();
        let (least, most) = kind.arguments();
        if !(least..=most).contains(&(1 + rest.len())) {
            return match kind {
                AggregateKind::ListAgg => {
                    refuse("LISTAGG takes a string and a separator", "write LISTAGG(x) or LISTAGG(x, '; ')")
                }
                AggregateKind::JsonObjectAgg => {
                    refuse("JSON_OBJECTAGG takes a key and a value", "write JSON_OBJECTAGG(k VALUE v)")
                }
                kind if kind.is_percentile() => {
                    refuse(format!("{name} takes a number and a percentage"), format!("write {name}(x, 0.9)"))
                }
                _ => refuse(format!("{name} takes one argument"), format!("write {name}(x)")),
            };
        }
        if let Some(default) = kind.null_clause() {
            let with_nulls = with_nulls.unwrap_or(default);
            // The key of a row that FILTER leaves out is not looked at.
            let argument = match &filter {
                Some(filter) if kind == AggregateKind::JsonObjectAgg && argument.data_type == DataType::String => {
                    build::case(None, vec![(filter.clone(), argument)], Some(build::string_literal("")))?
                }
                _ => argument,
            };
            let (argument, data_type) = collected(kind, argument, rest, with_nulls)?;
            let parameter = Parameter::WithNulls(with_nulls);
            return Ok(AggregateCall { kind, argument: Some(argument), parameter, distinct, filter, data_type });
        }
        let (mut argument, data_type) = typed(kind, argument)?;
        let (parameter, data_type) = match rest.first() {
            Some(parameter) if kind.is_percentile() => {
                if let Some(frequency) = rest.get(1) {
                    argument = weighted(argument, frequency)?;
                }
                percentages(kind, parameter)?
            }
            Some(separator) => (Parameter::Separator(constant_text(separator)?), data_type),
            None if kind == AggregateKind::ListAgg => (Parameter::Separator(",".to_owned()), data_type),
            None => (Parameter::None, data_type),
        };
        Ok(AggregateCall { kind, argument: Some(argument), parameter, distinct, filter, data_type })
    }
}

/// The argument of an aggregate that keeps all values, and the type of the result.
fn collected(kind: AggregateKind, first: Expr, rest: Vec<Expr>, with_nulls: bool) -> Refused<(Expr, DataType)> {
    let text = |value: Expr| build::function("JSON_STRING", vec![value]);
    let null = || build::string_literal("null");
    match (kind, rest.into_iter().next()) {
        (AggregateKind::JsonObjectAgg, Some(value)) => {
            let absent = build::is_test(build::Test::Null, value.clone(), true)?;
            let value = build::function("COALESCE", vec![text(value)?, null()])?;
            let member = build::row(vec![build::json_key(first)?, value])?;
            let member = if with_nulls { member } else { build::case(None, vec![(absent, member)], None)? };
            Ok((member, DataType::String))
        }
        (AggregateKind::JsonArrayAgg, _) => {
            let value = text(first)?;
            let value = if with_nulls { build::function("COALESCE", vec![value, null()])? } else { value };
            Ok((value, DataType::String))
        }
        _ => {
            let data_type = DataType::Array(Box::new(first.data_type.clone()));
            // A ROW refuses a bare NULL, whose type nobody knows.
            let row = build::row(vec![first.clone()])?;
            Ok((if with_nulls { row } else { first }, data_type))
        }
    }
}

/// The argument of PERCENTILE with how often each value counts.
fn weighted(value: Expr, frequency: &Expr) -> Refused<Expr> {
    if !frequency.data_type.is_integer() {
        return refuse(
            format!("the frequency of PERCENTILE must be an integer, not {}", frequency.data_type),
            "write PERCENTILE(x, 0.9, CAST(n AS INT))",
        );
    }
    build::row(vec![value, build::cast(frequency.clone(), &DataType::BigInt, false)?])
}

/// The argument as it is aggregated, and the type of the result.
fn typed(kind: AggregateKind, argument: Expr) -> Refused<(Expr, DataType)> {
    let name = kind.name();
    let argument_type = argument.data_type.clone();
    let numeric = argument_type.is_numeric();
    let average = match &argument_type {
        DataType::Decimal(_, scale) => DataType::Decimal(38, (*scale).max(6)),
        other => other.clone(),
    };
    let scalar = numeric
        || matches!(
            argument_type,
            DataType::Boolean
                | DataType::String
                | DataType::Date
                | DataType::Time
                | DataType::Timestamp(_)
                | DataType::TimestampLtz(_)
        );
    let as_double = |argument: Expr| build::cast(argument, &DataType::Double, false);
    match kind {
        AggregateKind::Count => Ok((argument, DataType::BigInt)),
        AggregateKind::Sum if numeric => match argument_type {
            DataType::Decimal(_, scale) => Ok((argument, DataType::Decimal(38, scale))),
            other => Ok((argument, other)),
        },
        AggregateKind::Avg if numeric => Ok((argument, average)),
        AggregateKind::StddevPop | AggregateKind::StddevSamp | AggregateKind::VarPop | AggregateKind::VarSamp
            if numeric =>
        {
            Ok((as_double(argument)?, average))
        }
        AggregateKind::Min | AggregateKind::Max if scalar => Ok((argument, argument_type)),
        AggregateKind::FirstValue | AggregateKind::LastValue if argument_type != DataType::Null => {
            Ok((argument, argument_type))
        }
        AggregateKind::ApproxCountDistinct if scalar || argument_type == DataType::Bytes => {
            Ok((argument, DataType::BigInt))
        }
        AggregateKind::Percentile | AggregateKind::ApproxPercentile if numeric => {
            Ok((as_double(argument)?, DataType::Double))
        }
        AggregateKind::ListAgg if argument_type == DataType::String => Ok((argument, DataType::String)),
        AggregateKind::ListAgg => {
            refuse(format!("LISTAGG does not take {argument_type}"), "cast the argument: LISTAGG(CAST(x AS STRING))")
        }
        _ => refuse(
            format!("{name} does not take {argument_type}"),
            format!("cast the argument: {name}(CAST(x AS DOUBLE))"),
        ),
    }
}

fn constant_text(separator: &Expr) -> Refused<String> {
    match &separator.kind {
        ExprKind::Literal(Value::String(text)) => Ok(text.clone()),
        _ => refuse("the separator of LISTAGG must be a constant string", "write LISTAGG(x, '; ')"),
    }
}

fn percentages(kind: AggregateKind, parameter: &Expr) -> Refused<(Parameter, DataType)> {
    let name = kind.name();
    let items = match &parameter.kind {
        ExprKind::Array(items) => items.iter().map(constant_number).collect(),
        _ => constant_number(parameter).map(|value| vec![value]),
    };
    let Some(values) = items.filter(|values: &Vec<f64>| !values.is_empty()) else {
        return refuse(
            format!("the percentage of {name} must be a constant"),
            format!("write {name}(x, 0.9) or {name}(x, ARRAY[0.5, 0.9])"),
        );
    };
    if let Some(wrong) = values.iter().find(|value| !(0.0..=1.0).contains(*value)) {
        return refuse(
            format!("the percentage of {name} must lie between 0 and 1, not {wrong}"),
            format!("write {name}(x, 0.9) for 90 %"),
        );
    }
    let array = matches!(parameter.kind, ExprKind::Array(_));
    let data_type = if array { DataType::Array(Box::new(DataType::Double)) } else { DataType::Double };
    Ok((Parameter::Percentages { values, array }, data_type))
}

fn constant_number(expr: &Expr) -> Option<f64> {
    match (&expr.kind, &expr.data_type) {
        (ExprKind::Literal(Value::Integer(value)), t) if t.is_integer() => Some(*value as f64),
        (ExprKind::Literal(Value::Double(value)), _) => Some(*value),
        // Parsed as text, so that 0.9 is the nearest double to it.
        (ExprKind::Literal(Value::Decimal(value)), DataType::Decimal(_, scale)) => {
            format!("{value}e-{scale}").parse().ok()
        }
        (ExprKind::Cast { input, .. }, t) if t.is_numeric() => constant_number(input),
        _ => None,
    }
}
