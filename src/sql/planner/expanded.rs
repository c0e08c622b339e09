//! Aggregates with OVER that are computed from others. Flink expands AVG, STDDEV and VAR with OVER while it converts
//! the text (`AvgVarianceConvertlet` of its `StandardConvertletTable`), so for integers and DECIMALs each step has
//! their type: squares and sums of integers wrap, so does their number in the argument's type, quotients lose what is
//! behind the point. (In a window Flink computes deviations in DOUBLE, and averages from a sum in BIGINT.)
//!
//! Not expanded: deviations of FLOAT and DOUBLE, which are computed by a stable method instead, since the difference
//! of two large sums is noise; and what gives the same either way.

use crate::expr::DataType;
use crate::expr::aggregate::{AggregateCall, AggregateKind};
use crate::expr::build::{self, BinaryOp, Expr, TypeError, Value};
use crate::sql::plan::{OverCall, OverFunction};

/// What a call with OVER is computed from.
pub(super) struct Expanded {
    pub calls: Vec<OverCall>,
    /// Over the values of the calls: column 0 is that of the first.
    pub value: Expr,
}

impl From<OverCall> for Expanded {
    fn from(call: OverCall) -> Expanded {
        Expanded { value: build::column(0, call.data_type.clone()), calls: vec![call] }
    }
}

impl From<AggregateCall> for OverCall {
    fn from(call: AggregateCall) -> OverCall {
        let (args, data_type) = (call.argument.iter().cloned().collect(), call.data_type.clone());
        OverCall { function: OverFunction::Aggregate(Box::new(call)), args, data_type }
    }
}

/// An aggregate with OVER.
///
/// # Errors
/// The function does not take such arguments.
pub(super) fn expanded(kind: AggregateKind, arguments: Vec<Expr>, distinct: bool) -> Result<Expanded, TypeError> {
    use AggregateKind::{Avg, StddevPop, StddevSamp, VarPop, VarSamp};
    use DataType as T;
    let argument = arguments.first().cloned();
    let whole = AggregateCall::new(kind, arguments, None, distinct, None)?;
    let Some(argument) = argument else { return Ok(Expanded::from(OverCall::from(whole))) };
    let of = Of { result: whole.data_type.clone(), distinct };
    match (kind, &argument.data_type) {
        (Avg, T::TinyInt | T::SmallInt | T::Int | T::Float) => of.average(argument),
        (StddevPop | StddevSamp | VarPop | VarSamp, t) if t.is_integer() || matches!(t, T::Decimal(..)) => {
            let sample = matches!(kind, StddevSamp | VarSamp);
            of.variance(argument, sample, matches!(kind, StddevPop | StddevSamp))
        }
        _ => Ok(Expanded::from(OverCall::from(whole))),
    }
}

/// What is expanded, beside its argument.
struct Of {
    result: DataType,
    distinct: bool,
}

impl Of {
    fn call(&self, kind: AggregateKind, argument: &Expr) -> Result<OverCall, TypeError> {
        AggregateCall::new(kind, vec![argument.clone()], None, self.distinct, None).map(OverCall::from)
    }

    /// As a value of the result's type.
    fn typed(&self, value: Expr) -> Result<Expr, TypeError> {
        build::cast(value, &self.result, false)
    }

    /// The operation, its value as one of the result's type.
    fn step(&self, op: BinaryOp, left: &Expr, right: &Expr) -> Result<Expr, TypeError> {
        self.typed(build::binary(op, left.clone(), right.clone())?)
    }

    /// `SUM(x) / COUNT(x)`
    fn average(&self, argument: Expr) -> Result<Expanded, TypeError> {
        let calls = vec![self.call(AggregateKind::Sum, &argument)?, self.call(AggregateKind::Count, &argument)?];
        let (sum, count) = (value_of(&calls, 0), value_of(&calls, 1));
        Ok(Expanded { value: self.step(BinaryOp::Divide, &sum, &count)?, calls })
    }

    /// `(SUM(x * x) - SUM(x) * SUM(x) / COUNT(x)) / COUNT(x)`, or `… / (COUNT(x) - 1)`; the power ½ of it.
    fn variance(&self, argument: Expr, sample: bool, root: bool) -> Result<Expanded, TypeError> {
        let argument = self.typed(argument)?;
        let square = self.step(BinaryOp::Multiply, &argument, &argument)?;
        let calls = vec![
            self.call(AggregateKind::Sum, &square)?,
            self.call(AggregateKind::Sum, &argument)?,
            self.call(AggregateKind::Count, &argument)?,
        ];
        let (squares, sum) = (self.typed(value_of(&calls, 0))?, self.typed(value_of(&calls, 1))?);
        let count = value_of(&calls, 2);
        let number = self.typed(count.clone())?;
        let sum_squared = self.step(BinaryOp::Multiply, &sum, &sum)?;
        let mean = self.step(BinaryOp::Divide, &sum_squared, &number)?;
        let difference = self.step(BinaryOp::Subtract, &squares, &mean)?;
        let divisor = if sample { self.one_less(count)? } else { number };
        let mut value = build::binary(BinaryOp::Divide, difference, divisor)?;
        if root {
            value = build::function("POWER", vec![self.typed(value)?, build::number_literal("0.5")?])?;
        }
        Ok(Expanded { value: self.typed(value)?, calls })
    }

    /// The number less one; NULL of one.
    fn one_less(&self, count: Expr) -> Result<Expr, TypeError> {
        let one = build::number_literal("1")?;
        let is_one = build::binary(BinaryOp::Equal, count.clone(), one.clone())?;
        let none = build::literal(Value::Null, self.result.clone());
        build::case(None, vec![(is_one, none)], Some(build::binary(BinaryOp::Subtract, count, one)?))
    }
}

fn value_of(calls: &[OverCall], index: usize) -> Expr {
    build::column(index, calls.get(index).map_or(DataType::Null, |call| call.data_type.clone()))
}
