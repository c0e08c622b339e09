//! `ROW_NUMBER()` in a sub-query with `WHERE rn <= N` around it: window Top-N, window deduplication, keep-first
//! deduplication.
//!
//! The sub-query plans a rank without limit; the WHERE around it sets the limit; a rank that has none in the end is
//! refused.

use sqlparser::ast::{
    Expr as Ast, Function, FunctionArguments, OrderByExpr, OrderByOptions, OrderBySort, WindowSpec as AstWindow,
    WindowType,
};

use super::expression::Scope;
use super::over::Overs;
use super::window::window_column;
use super::{Planner, Result};
use crate::expr::build::{self, BinaryOp, Expr, ExprKind, Value};
use crate::expr::{DataType, Field, Schema};
use crate::sql::SqlError;
use crate::sql::plan::{Node, OverFunction, Plan, RankKind, RankOrder, RankSpec, WindowProperty};

const FORM: &str = "write SELECT … FROM (SELECT *, ROW_NUMBER() OVER (…) AS rn FROM …) WHERE rn <= 3";

/// What is wrong with rows that take the place of earlier ones.
pub const UPDATES: &str = "keeping the last row of a key has no end: each new row would take the place of the last";

/// What to do instead with those of a query.
pub fn updates_help(query: &str) -> String {
    format!(
        "join it, as a query of its own: JOIN {query} FOR SYSTEM_TIME AS OF a.ts ON a.k = {query}.k; or deduplicate \
         inside a window: PARTITION BY window_start, window_end, k ORDER BY ts DESC"
    )
}

impl Planner<'_> {
    /// `ROW_NUMBER() OVER (…)`, as the column behind those of FROM.
    pub(super) fn row_number(&mut self, expr: &Ast, function: &Function, scope: &mut Scope<'_>) -> Result<Expr> {
        let place = self.place(expr);
        let refuse = |message: &str, help: &str| Err(SqlError::new(place.clone(), message).help(help.to_owned()));
        let is_empty = match &function.args {
            FunctionArguments::List(list) => list.args.is_empty() && list.clauses.is_empty(),
            _ => false,
        };
        if !is_empty || function.filter.is_some() || function.null_treatment.is_some() {
            return refuse("ROW_NUMBER takes no arguments", FORM);
        }
        let Some(WindowType::WindowSpec(AstWindow { window_name: None, partition_by, order_by, window_frame: None })) =
            &function.over
        else {
            return refuse("ROW_NUMBER needs OVER (PARTITION BY … ORDER BY …) without a frame", FORM);
        };
        let mut inner = Scope { names: scope.names, ..Scope::new(scope.schema, scope.alias, "OVER") };
        let keys = partition_by.iter().map(|key| self.expr(key, &mut inner)).collect::<Result<Vec<Expr>>>()?;
        for (ast, key) in partition_by.iter().zip(&keys) {
            self.check_comparable(ast, key, "a key of PARTITION BY")?;
        }
        let mut order = Vec::new();
        for OrderByExpr { expr, options: OrderByOptions { sort, nulls_first }, with_fill } in order_by {
            let descending = match sort {
                None | Some(OrderBySort::Asc) => false,
                Some(OrderBySort::Desc) => true,
                Some(OrderBySort::Using(_)) => return refuse("ORDER BY … USING is not part of Flink SQL", FORM),
            };
            if with_fill.is_some() {
                return refuse("WITH FILL is not part of Flink SQL", FORM);
            }
            let ast = expr;
            let expr = self.expr(ast, &mut inner)?;
            self.check_comparable(ast, &expr, "a key of ORDER BY")?;
            // NULL is the least value, as in Flink.
            order.push(RankOrder { expr, descending, nulls_first: nulls_first.unwrap_or(!descending) });
        }
        if order.is_empty() {
            return refuse("ROW_NUMBER needs ORDER BY", FORM);
        }
        let Some(overs) = scope.overs.as_deref_mut() else {
            return refuse("ROW_NUMBER cannot stand here", FORM);
        };
        let spec = RankSpec { kind: RankKind::First, keys, order, limit: None, place: place.clone() };
        match &overs.rank {
            Some(known) if *known != spec => return refuse("a SELECT takes one ROW_NUMBER", FORM),
            _ => overs.rank = Some(spec),
        }
        Ok(build::column(scope.schema.fields.len(), DataType::BigInt))
    }

    /// Puts the rank between FROM and the SELECT list; only the columns that are needed go through.
    pub(super) fn rank(&mut self, input: Plan, overs: Overs, exprs: Vec<Expr>) -> Result<(Plan, Vec<Expr>)> {
        let width = input.schema.fields.len();
        let Some(mut spec) = overs.rank else { return Ok((input, exprs)) };
        let refuse = |message: &str, help: &str| Err(SqlError::new(spec.place.clone(), message).help(help.to_owned()));
        if overs.spec.is_some() {
            return refuse("ROW_NUMBER beside other calls with OVER is not supported", "use two sub-queries");
        }
        let property = |wanted: WindowProperty| {
            spec.keys.iter().find_map(|key| match key.kind {
                ExprKind::Column(column) => window_column(&input, column, self.catalog)
                    .filter(|(found, _)| *found == wanted)
                    .map(|(_, w)| (column, w)),
                _ => None,
            })
        };
        let is_time = |order: &RankOrder| matches!(order.expr.kind, ExprKind::Column(c) if is_time(&input, c));
        let single = if let [order] = spec.order.as_slice() { Some(order).filter(|o| is_time(o)) } else { None };
        spec.kind = match (property(WindowProperty::Start), property(WindowProperty::End)) {
            (Some((_, start)), Some((end_column, end))) if start == end => {
                RankKind::Window { window: end, end_column, by_time_descending: single.is_some_and(|o| o.descending) }
            }
            (None, None) => match single {
                Some(order) if !order.descending && order.expr.columns().first() == input.schema.time.as_ref() => {
                    RankKind::First
                }
                Some(order) if order.descending && order.expr.columns().first() == input.schema.time.as_ref() => {
                    RankKind::Last
                }
                Some(_) => return refuse(UPDATES, &updates_help("latest")),
                None => {
                    return refuse(
                        "the first rows by something other than time are never final without a window",
                        "put a window under it: PARTITION BY window_start, window_end ORDER BY x",
                    );
                }
            },
            _ => {
                return refuse(
                    "a rank within windows is partitioned by window_start and window_end of one window",
                    "write PARTITION BY window_start, window_end, k",
                );
            }
        };
        let order = spec.order.iter().map(|order| &order.expr);
        let mut needed: Vec<usize> = exprs.iter().chain(&spec.keys).chain(order).flat_map(Expr::columns).collect();
        needed.extend(input.schema.time);
        needed.retain(|column| *column < width);
        needed.sort_unstable();
        needed.dedup();
        let at = |column: usize| match column.checked_sub(width) {
            Some(_) => needed.len(),
            None => needed.binary_search(&column).unwrap_or(column),
        };
        let input = self.narrowed(input, &needed)?;
        if let RankKind::Window { end_column, .. } = &mut spec.kind {
            *end_column = at(*end_column);
        }
        spec.keys = spec.keys.into_iter().map(|key| key.map_columns(&at)).collect();
        spec.order =
            spec.order.into_iter().map(|order| RankOrder { expr: order.expr.map_columns(&at), ..order }).collect();
        let exprs = exprs.into_iter().map(|expr| expr.map_columns(&at)).collect();
        let mut fields = input.schema.fields.clone();
        fields.push(Field::new("row_number$", DataType::BigInt));
        let schema = Schema { fields, time: input.schema.time };
        let plan = self.node(Node::Rank { input: Box::new(input), rank: spec }, schema)?;
        Ok((plan, exprs))
    }
}

/// Columns and how large the predicate lets them be.
fn limits(predicate: &Expr, found: &mut Vec<(usize, usize)>) {
    let ExprKind::Binary { op, left, right } = &predicate.kind else { return };
    let (op, column, literal) = match (*op, &left.kind, &right.kind) {
        (BinaryOp::And, ..) => {
            limits(left, found);
            limits(right, found);
            return;
        }
        (op, ExprKind::Column(column), ExprKind::Literal(Value::Integer(literal))) => (op, *column, *literal),
        (BinaryOp::Greater, ExprKind::Literal(Value::Integer(literal)), ExprKind::Column(column)) => {
            (BinaryOp::Less, *column, *literal)
        }
        (BinaryOp::GreaterOrEqual, ExprKind::Literal(Value::Integer(literal)), ExprKind::Column(column)) => {
            (BinaryOp::LessOrEqual, *column, *literal)
        }
        (BinaryOp::Equal, ExprKind::Literal(Value::Integer(literal)), ExprKind::Column(column)) => {
            (BinaryOp::Equal, *column, *literal)
        }
        _ => return,
    };
    let limit = match op {
        BinaryOp::LessOrEqual | BinaryOp::Equal => literal,
        BinaryOp::Less => literal.saturating_sub(1),
        _ => return,
    };
    found.push((column, usize::try_from(limit).unwrap_or(0)));
}

/// Sets the limit of a rank below from the conditions above it; gives the RANK or DENSE_RANK that they would limit, which
/// Flink does not take.
pub(super) fn set_limits(plan: &mut Plan, predicate: &Expr) -> Option<&'static str> {
    let mut found = Vec::new();
    limits(predicate, &mut found);
    found.into_iter().filter_map(|(column, limit)| set_limit(plan, column, limit)).last()
}

fn set_limit(plan: &mut Plan, column: usize, limit: usize) -> Option<&'static str> {
    match &mut plan.node {
        Node::Project { input, exprs } => match exprs.get(column).map(|expr| &expr.kind) {
            Some(ExprKind::Column(below)) => set_limit(input, *below, limit),
            _ => None,
        },
        Node::Rank { input, rank } if column == input.schema.fields.len() => {
            rank.limit = Some(rank.limit.map_or(limit, |known| known.min(limit)));
            None
        }
        Node::Over { input, over } => {
            let call = column.checked_sub(input.schema.fields.len()).and_then(|call| over.calls.get(call))?;
            match call.function {
                OverFunction::Rank { dense: false } => Some("RANK"),
                OverFunction::Rank { dense: true } => Some("DENSE_RANK"),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Refuses a rank whose rows would never be final. The last row of each key can stand at the top: it is a versioned table.
pub(super) fn check(plan: &Plan) -> Result<()> {
    checked(plan, true)
}

fn checked(plan: &Plan, is_top: bool) -> Result<()> {
    if let Node::Rank { rank, .. } = &plan.node {
        let error = |message: &str, help: &str| Err(SqlError::new(rank.place.clone(), message).help(help.to_owned()));
        match (&rank.kind, rank.limit) {
            (_, None) => return error("the rows to number have no end", FORM),
            (RankKind::First, Some(limit)) if limit != 1 => {
                return error(
                    "without a window only the first row of each key can be kept",
                    "write WHERE rn = 1, or put a window under it: PARTITION BY window_start, window_end, k",
                );
            }
            (RankKind::Last, Some(limit)) if limit != 1 || !is_top => return error(UPDATES, &updates_help("latest")),
            _ => {}
        }
    }
    let is_top = is_top
        && match &plan.node {
            Node::Project { .. } => true,
            Node::Filter { input, predicate } => reads_number_alone(input, predicate),
            _ => false,
        };
    plan.inputs().into_iter().try_for_each(|input| checked(input, is_top))
}

/// Whether a condition reads nothing but the number of a rank: then it holds for all rows, if the rank's limit is 1.
pub(super) fn reads_number_alone(plan: &Plan, predicate: &Expr) -> bool {
    predicate.columns().into_iter().all(|column| is_number(plan, column))
}

fn is_number(plan: &Plan, column: usize) -> bool {
    match &plan.node {
        Node::Project { input, exprs } => match exprs.get(column).map(|expr| &expr.kind) {
            Some(ExprKind::Column(below)) => is_number(input, *below),
            _ => false,
        },
        Node::Rank { input, .. } => column == input.schema.fields.len(),
        _ => false,
    }
}

/// Whether a column is a time attribute, of the relation or of the one under its window.
fn is_time(plan: &Plan, column: usize) -> bool {
    if plan.schema.time == Some(column) {
        return true;
    }
    match &plan.node {
        Node::Window { input, .. } | Node::Filter { input, .. } => is_time(input, column),
        Node::Project { input, exprs } => match exprs.get(column).map(|expr| &expr.kind) {
            Some(ExprKind::Column(below)) => is_time(input, *below),
            _ => false,
        },
        _ => false,
    }
}
