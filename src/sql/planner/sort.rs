//! What needs rows in order of time and nothing else: `ORDER BY` the time attribute, and `ROW_NUMBER` that nothing
//! limits. Both are an OVER: rows wait for the watermark and leave in event time, ties in order of arrival.
//!
//! As in Flink, `ORDER BY` drops a row that is not newer than the last one that left (`RowTimeSortOperator`), which is
//! what a bounded frame does; the numbers drop what is not newer than the watermark, as any unbounded frame.

use std::ops::Range;

use sqlparser::ast::{Expr as Ast, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, OrderBySort};

use super::{Planner, Result};
use crate::expr::aggregate::{AggregateCall, AggregateKind};
use crate::expr::build::ExprKind;
use crate::sql::SqlError;
use crate::sql::plan::{Frame, Node, OverCall, OverFunction, OverSpec, Plan, RankKind};

impl Planner<'_> {
    /// `ORDER BY ts` behind a query.
    pub(super) fn sorted(&mut self, plan: Plan, order_by: &OrderBy, place: Range<usize>) -> Result<Plan> {
        let time = plan.schema.time.and_then(|time| Some((time, plan.schema.fields.get(time)?.name.clone())));
        let (Some((time_column, name)), true) = (&time, order_by.interpolate.is_none()) else {
            let help =
                "leave it out: rows come in the order of event time; or select the time attribute and order by that";
            return Err(refused(place).help(help));
        };
        let is_time = |expr: &Ast| match expr {
            Ast::Identifier(ident) => ident.value == *name,
            Ast::CompoundIdentifier(parts) => parts.last().is_some_and(|last| last.value == *name),
            _ => false,
        };
        match &order_by.kind {
            OrderByKind::Expressions(exprs)
                if let [OrderByExpr { expr, options: OrderByOptions { sort, nulls_first: _ }, with_fill: None }] =
                    exprs.as_slice()
                    && matches!(sort, None | Some(OrderBySort::Asc))
                    && is_time(expr) => {}
            _ => {
                let help = format!("leave it out, or order by the time attribute, ascending: ORDER BY `{name}`");
                return Err(refused(place).help(help));
            }
        }
        let frame = Frame::Rows { preceding: Some(0) };
        let over = OverSpec { time_column: *time_column, keys: Vec::new(), frame, calls: Vec::new() };
        let schema = plan.schema.clone();
        self.node(Node::Over { input: Box::new(plan), over }, schema)
    }
}

fn refused(place: Range<usize>) -> SqlError {
    SqlError::new(place, "ORDER BY is not supported: a stream has no end to wait for")
}

/// Turns each `ROW_NUMBER() OVER (… ORDER BY ts)` that nothing limits into a count of the rows so far, as Flink does.
pub(super) fn number_rows(mut plan: Plan) -> Result<Plan> {
    numbered(&mut plan)?;
    Ok(plan)
}

fn numbered(plan: &mut Plan) -> Result<()> {
    plan.inputs_mut().into_iter().try_for_each(numbered)?;
    let Node::Rank { input, rank } = &plan.node else { return Ok(()) };
    let time = rank.order.first().map(|order| &order.expr.kind);
    let (RankKind::First, None, Some(ExprKind::Column(time_column))) = (&rank.kind, rank.limit, time) else {
        return Ok(());
    };
    let count = AggregateCall::new(AggregateKind::Count, Vec::new(), None, false, None)
        .map_err(|error| SqlError::new(rank.place.clone(), error.message))?;
    let data_type = count.data_type.clone();
    let call = OverCall { function: OverFunction::Aggregate(Box::new(count)), args: Vec::new(), data_type };
    let frame = Frame::Rows { preceding: None };
    let over = OverSpec { time_column: *time_column, keys: rank.keys.clone(), frame, calls: vec![call] };
    plan.node = Node::Over { input: input.clone(), over };
    Ok(())
}
