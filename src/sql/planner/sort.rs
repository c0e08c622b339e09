//! What needs rows in order of time and nothing else: `ORDER BY` the time attribute, and `ROW_NUMBER` that nothing
//! limits. Both are an OVER: rows wait for the watermark and leave in event time, ties in order of arrival.
//!
//! As in Flink, `ORDER BY` drops a row that is not newer than the last one that left (`RowTimeSortOperator`), which is
//! what a bounded frame does; the numbers drop what is not newer than the watermark, as any unbounded frame.

use std::ops::Range;

use sqlparser::ast::{
    Expr as Ast, GroupByExpr, Ident, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, OrderBySort, SelectItem,
    SetExpr, Spanned,
};

use super::{Planner, Result, time_columns};
use crate::expr::Schema;
use crate::expr::aggregate::{AggregateCall, AggregateKind};
use crate::expr::build::{self, Expr, ExprKind};
use crate::sql::SqlError;
use crate::sql::plan::{Frame, Node, OverCall, OverFunction, OverSpec, Plan, RankKind};

impl Planner<'_> {
    /// `ORDER BY ts` behind a query.
    pub(super) fn sorted(
        &mut self,
        plan: Plan,
        body: &SetExpr,
        order_by: &OrderBy,
        place: Range<usize>,
    ) -> Result<Plan> {
        let expr = match &order_by.kind {
            OrderByKind::Expressions(exprs) => match exprs.as_slice() {
                [OrderByExpr { expr, options: OrderByOptions { sort, nulls_first: _ }, with_fill: None }]
                    if matches!(sort, None | Some(OrderBySort::Asc)) && order_by.interpolate.is_none() =>
                {
                    Some(expr)
                }
                _ => None,
            },
            OrderByKind::All(_) => None,
        };
        if let Some((expr, name)) = expr.and_then(|expr| Some((expr, name_of(expr)?)))
            && plan.schema.index_of(name).is_none()
            && let Some(sorted) = self.sorted_by_other(body, expr)?
        {
            return Ok(sorted);
        }
        let time = plan.schema.time.and_then(|time| Some((time, plan.schema.fields.get(time)?.name.clone())));
        let Some((time_column, name)) = time else {
            let help =
                "leave it out: rows come in the order of event time; or select the time attribute and order by that";
            return Err(refused(place).help(help));
        };
        match expr.and_then(name_of) {
            Some(found) if found == name => self.in_order(plan, time_column),
            _ => {
                let help = format!("leave it out, or order by the time attribute, ascending: ORDER BY `{name}`");
                Err(refused(place).help(help))
            }
        }
    }

    /// A SELECT in order of a time attribute that is not in its list.
    fn sorted_by_other(&mut self, body: &SetExpr, expr: &Ast) -> Result<Option<Plan>> {
        let SetExpr::Select(select) = body else { return Ok(None) };
        let is_plain = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
            && select.distinct.is_none();
        if !is_plain {
            return Ok(None);
        }
        let mut select = select.as_ref().clone();
        let alias = Ident { value: "order$".to_owned(), quote_style: None, span: expr.span() };
        select.projection.push(SelectItem::ExprWithAlias { expr: expr.clone(), alias });
        let plan = self.select(&select)?;
        let Some(last) = plan.schema.fields.len().checked_sub(1) else { return Ok(None) };
        if !time_columns(&plan, self.catalog).contains(&last) {
            return Ok(None);
        }
        let plan = self.in_order(plan, last)?;
        let place = self.place(expr);
        let fields = plan.schema.fields.iter().take(last).enumerate();
        let (exprs, names): (Vec<Expr>, Vec<(String, Range<usize>)>) = fields
            .map(|(index, field)| (build::column(index, field.data_type.clone()), (field.name.clone(), place.clone())))
            .unzip();
        self.project(plan, exprs, names).map(Some)
    }

    fn in_order(&mut self, plan: Plan, time_column: usize) -> Result<Plan> {
        let frame = Frame::Rows { preceding: Some(0) };
        let over = OverSpec { time_column, keys: Vec::new(), frame, calls: Vec::new() };
        let schema = Schema { time: Some(time_column), ..plan.schema.clone() };
        self.node(Node::Over { input: Box::new(plan), over }, schema)
    }
}

/// The name of a column, without its table.
fn name_of(expr: &Ast) -> Option<&str> {
    match expr {
        Ast::Identifier(ident) => Some(&ident.value),
        Ast::CompoundIdentifier(parts) => parts.last().map(|last| last.value.as_str()),
        _ => None,
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
