//! JOIN: interval, temporal and window joins; IN and EXISTS with a sub-query over windows as semi and anti joins.
//!
//! The columns of a joined relation are named `table.column`, and its alias is [`JOINED`]; names are looked up
//! accordingly.

use std::ops::Range;

use sqlparser::ast::{
    Expr as Ast, Ident, InTarget, Join, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, Spanned,
    TableFactor, TableVersion, WildcardAdditionalOptions,
};

use super::expression::Scope;
use super::from::Conditions;
use super::window::window_column;
use super::{Planner, Relation, Result};
use crate::expr::build::{self, BinaryOp, Expr, ExprKind, Test, Value};
use crate::expr::{DataType, Field, Schema};
use crate::sql::plan::{JoinKind, JoinMethod, JoinSpec, Node, Plan, RankKind, RankSpec, WindowProperty};
use crate::sql::{Catalog, SqlError};

/// The alias of a joined relation: no name that can be written.
pub(super) const JOINED: &str = "";

const BOUND: &str = "bound it in time: AND b.ts BETWEEN a.ts - INTERVAL '10' SECOND AND a.ts, or join inside windows";

impl Planner<'_> {
    /// A join; an inner one takes the conditions of WHERE that compare its sides.
    pub(super) fn join(&mut self, left: Relation, join: &Join, conditions: &mut Conditions<'_>) -> Result<Relation> {
        let Join { relation, global, join_operator } = join;
        let place = self.text.range(relation.span());
        let refuse = |message: &str, help: &str| Err(SqlError::new(place.clone(), message).help(help.to_owned()));
        if *global {
            return refuse("GLOBAL is not part of Flink SQL", "leave it out");
        }
        let (kind, constraint) = match join_operator {
            JoinOperator::Join(on) | JoinOperator::Inner(on) => (JoinKind::Inner, on),
            JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => (JoinKind::Left, on),
            JoinOperator::Right(on) | JoinOperator::RightOuter(on) => (JoinKind::Right, on),
            JoinOperator::FullOuter(on) => (JoinKind::Full, on),
            JoinOperator::CrossJoin(none) => (JoinKind::Inner, none),
            _ => {
                return refuse(
                    "this kind of JOIN is not part of Flink SQL",
                    "write JOIN or LEFT JOIN … ON; a semi join is WHERE x IN (SELECT …) or EXISTS (SELECT …)",
                );
            }
        };
        let is_cross = matches!(join_operator, JoinOperator::CrossJoin(_));
        let (on, using) = match constraint {
            JoinConstraint::On(on) => (Some(on), None),
            JoinConstraint::Using(names) => (None, Some(Some(names.as_slice()))),
            JoinConstraint::Natural => (None, Some(None)),
            JoinConstraint::None if is_cross => (None, None),
            JoinConstraint::None => return refuse("a JOIN needs ON", "write ON a.k = b.k AND …"),
            JoinConstraint::UsingAlias(..) => {
                return refuse("an alias behind USING is not part of Flink SQL", "leave it out");
            }
        };
        if let TableFactor::Table {
            name, alias, args: None, version: Some(TableVersion::ForSystemTimeAsOf(at)), ..
        } = relation
            && let Some(ident) = super::single(name).filter(|ident| self.is_lookup(ident))
        {
            self.check_table_clauses(relation, &place)?;
            let all = if is_cross { conditions.all_open() } else { None };
            let Some(on) = on.or(all.as_ref()) else {
                return refuse("a join with a lookup table needs ON", "write ON a.k = b.k");
            };
            let joined = self.lookup_join(left, (ident, alias.as_ref()), at, kind, on)?;
            all.iter().for_each(|_| conditions.take_all());
            return Ok(joined);
        }
        let (right, version) = match relation {
            TableFactor::Table { name, version: Some(TableVersion::ForSystemTimeAsOf(at)), .. } => {
                let mut table = relation.clone();
                if let TableFactor::Table { version, .. } = &mut table {
                    *version = None;
                }
                self.versioned = true;
                let table = self.factor(&table);
                self.versioned = false;
                (table?, Some((at, name.0.last().and_then(|part| part.as_ident()))))
            }
            _ => (self.factor(relation)?, None),
        };
        let (left, right) = (self.visible(left)?, self.visible(right)?);
        let combined = combined(&left, &right);
        let width = left.plan.schema.fields.len();
        let mut conjuncts = Vec::new();
        let mut on_place = on.map_or_else(|| place.clone(), |on| self.place(on));
        if let Some(on) = on {
            let planned = self.condition(on, &mut Scope::new(&combined, Some(JOINED), "ON"))?;
            split(planned, &mut conjuncts);
        }
        let common = match using {
            Some(names) => self.common_columns(&left, &right, names, relation)?,
            None => Vec::new(),
        };
        conjuncts.extend(self.equalities(&common, relation)?);
        if kind == JoinKind::Inner {
            let (taken, place) = self.taken(conditions, &combined, Some(width).filter(|_| !is_cross));
            conjuncts.extend(taken);
            on_place = place.filter(|_| on.is_none()).unwrap_or(on_place);
        }
        if conjuncts.is_empty() {
            let help =
                "compare the sides in ON or WHERE: a.k = b.k AND a.ts BETWEEN b.ts AND b.ts + INTERVAL '10' SECOND";
            return refuse("CROSS JOIN, or a comma, joins every row with every row", help);
        }
        let mut join = self.analysed(&left.plan, &right.plan, kind, conjuncts, &on_place, version.is_some())?;
        if let Some((at, table)) = version {
            self.version(&left, &right.plan, at, table, &mut join)?;
        }
        let time = match (&join.method, kind) {
            (_, JoinKind::Full) => None,
            (JoinMethod::Interval { right_time, .. }, JoinKind::Right) => Some(width + right_time),
            (JoinMethod::Interval { left_time, .. } | JoinMethod::Temporal { left_time, .. }, _) => Some(*left_time),
            (JoinMethod::Window { .. }, JoinKind::Right) => right.plan.schema.time.map(|time| width + time),
            (JoinMethod::Window { .. }, _) => left.plan.schema.time,
        };
        let schema = Schema { time, ..combined };
        let mut plan =
            self.node(Node::Join { left: Box::new(left.plan), right: Box::new(right.plan), join }, schema)?;
        if !common.is_empty() {
            plan = self.merged(plan, common, relation)?;
        }
        Ok(Relation { plan, alias: Some(JOINED.to_owned()) })
    }

    /// A relation without the system columns that the query does not name: a join would keep them.
    pub(super) fn visible(&mut self, relation: Relation) -> Result<Relation> {
        let Relation { plan, alias } = relation;
        let named = |field: &Field| !field.hidden || self.text.text.contains(&field.name);
        let columns: Vec<usize> = plan
            .schema
            .fields
            .iter()
            .enumerate()
            .filter(|(index, field)| named(field) || plan.schema.time == Some(*index))
            .map(|(index, _)| index)
            .collect();
        Ok(Relation { plan: self.narrowed(plan, &columns)?, alias })
    }

    /// The method of a join, its keys, and what remains as a condition.
    fn analysed(
        &self,
        left: &Plan,
        right: &Plan,
        kind: JoinKind,
        conjuncts: Vec<Expr>,
        place: &Range<usize>,
        is_temporal: bool,
    ) -> Result<JoinSpec> {
        let refuse = |message: &str, help: &str| Err(SqlError::new(place.clone(), message).help(help.to_owned()));
        let width = left.schema.fields.len();
        let (left_times, right_times) = (time_columns(left, self.catalog), time_columns(right, self.catalog));
        let mut keys = Vec::new();
        let mut windows = (None, None);
        let mut bounds: Option<Bounds> = None;
        let mut rest = Vec::new();
        for conjunct in conjuncts {
            if let Some(found) = bound(&conjunct, width, &left_times, &right_times).filter(|_| !is_temporal)
                && bounds.as_ref().is_none_or(|known| known.columns == found.columns)
            {
                bounds = Some(match bounds {
                    None => found,
                    Some(known) => known.and(&found),
                });
                continue;
            }
            let Some((a, b)) = key(&conjunct, width) else {
                rest.push(conjunct);
                continue;
            };
            if let (ExprKind::Column(l), ExprKind::Column(r)) = (&a.kind, &b.kind)
                && let (Some((p, window)), Some((q, other))) =
                    (window_column(left, *l, self.catalog), window_column(right, *r, self.catalog))
                && p == q
                && window.kind == other.kind
            {
                match p {
                    WindowProperty::Start => windows.0 = Some(()),
                    WindowProperty::End => windows.1 = Some((window, *l, *r)),
                    WindowProperty::Time => {}
                }
            }
            keys.push((a, b));
        }
        let method = if is_temporal {
            let (Some(left_time), Some(right_time)) = (left.schema.time, right.schema.time) else {
                return refuse(
                    "both sides of a temporal join need a time attribute",
                    "pass the time column through unchanged",
                );
            };
            JoinMethod::Temporal { left_time, right_time }
        } else if let (Some(()), Some((window, left_end, right_end))) = windows {
            if let Some(bounds) = bounds {
                rest.extend(bounds.conjuncts);
            }
            JoinMethod::Window { window, left_end, right_end }
        } else {
            match bounds {
                Some(Bounds {
                    columns: (left_time, right_time),
                    lower_ms: Some(lower_ms),
                    upper_ms: Some(upper_ms),
                    ..
                }) => JoinMethod::Interval { left_time, right_time, lower_ms, upper_ms },
                Some(_) => {
                    return refuse("the interval of this join is open at one end: rows would be kept for ever", BOUND);
                }
                None => return refuse("a join without a bound in time would keep every row for ever", BOUND),
            }
        };
        if keys.is_empty() && is_temporal {
            return refuse("a temporal join needs at least one equality between the sides", "write ON a.k = b.k AND …");
        }
        if matches!(kind, JoinKind::Right | JoinKind::Full) && is_temporal {
            return refuse("a temporal join is JOIN or LEFT JOIN", "write LEFT JOIN t FOR SYSTEM_TIME AS OF a.ts");
        }
        let condition = rest
            .into_iter()
            .map(Ok)
            .reduce(|a, b| build::binary(BinaryOp::And, a?, b?))
            .transpose()
            .map_err(|error| SqlError::new(place.clone(), error.message).help_if(error.help))?;
        Ok(JoinSpec { method, kind, keys, condition })
    }

    /// Checks `FOR SYSTEM_TIME AS OF`.
    fn version(
        &mut self,
        left: &Relation,
        right: &Plan,
        at: &Ast,
        table: Option<&Ident>,
        join: &mut JoinSpec,
    ) -> Result<()> {
        let place = self.place(at);
        let refuse = |message: String, help: String| Err(SqlError::new(place.clone(), message).help(help));
        let schema = qualified(left);
        let planned = self.expr(at, &mut Scope::new(&schema, Some(JOINED), "FOR SYSTEM_TIME AS OF"))?;
        let times = time_columns(&left.plan, self.catalog);
        let found = match planned.kind {
            ExprKind::Column(column) if times.contains(&column) => column,
            _ => {
                return refuse(
                    "FOR SYSTEM_TIME AS OF needs the time attribute of the left side".to_owned(),
                    "write FOR SYSTEM_TIME AS OF a.ts".to_owned(),
                );
            }
        };
        if let JoinMethod::Temporal { left_time, .. } = &mut join.method {
            *left_time = found;
        }
        let name = table.map(|ident| ident.value.as_str()).unwrap_or_default();
        let is_source = !self.ctes.iter().any(|(cte, _)| cte == name);
        let Some(key) = self.catalog.key(name).filter(|_| is_source) else {
            return refuse(
                format!("`{name}` is no versioned table: it has no key"),
                format!(
                    "declare it in the configuration: [source.{name}] key = [\"column\"]; or join a query of the last row of \
                     each key: SELECT … FROM {name} QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) = 1"
                ),
            );
        };
        let missing = key.iter().find(|column| {
            let index = right.schema.index_of(column);
            !join.keys.iter().any(|(_, right)| matches!(right.kind, ExprKind::Column(c) if Some(c) == index))
        });
        match missing {
            Some(column) => refuse(
                format!("a temporal join must compare the whole key of `{name}`: `{column}` is missing"),
                format!("write ON … AND a.{column} = b.{column}"),
            ),
            None => Ok(()),
        }
    }

    /// `WHERE x IN (SELECT y FROM …)`, `WHERE [NOT] EXISTS (SELECT … FROM …)`: rows with, or without, a match.
    pub(super) fn semi_join(&mut self, relation: Relation, predicate: &Ast) -> Result<Relation> {
        let place = self.place(predicate);
        let refuse = |message: &str, help: &str| Err(SqlError::new(place.clone(), message).help(help.to_owned()));
        let (value, query, negated) = match predicate {
            Ast::In { expr, target: InTarget::Subquery(query), negated, .. } => (Some(expr), query, *negated),
            Ast::Exists { subquery, negated } => (None, subquery, *negated),
            _ => return refuse("this form of sub-query is not supported here", "write IN (SELECT …) or EXISTS"),
        };
        let kind = if negated { JoinKind::Anti } else { JoinKind::Semi };
        let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } = query.as_ref() else {
            return refuse("this form of sub-query is not supported here", "write SELECT … FROM … WHERE …");
        };
        let SetExpr::Select(select) = body.as_ref() else {
            return refuse("this form of sub-query is not supported here", "write SELECT … FROM … WHERE …");
        };
        // All clauses but WHERE and the list are judged as those of any SELECT.
        let mut plain: Select = select.as_ref().clone();
        plain.selection = None;
        plain.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        self.select(&plain)?;
        let right = self.from(&select.from, &mut Conditions::default(), place.clone())?;
        let right = self.visible(right)?;
        let combined = combined(&relation, &right);
        let width = relation.plan.schema.fields.len();
        let mut conjuncts = Vec::new();
        if let Some(condition) = &select.selection {
            let planned = self.condition(condition, &mut Scope::new(&combined, Some(JOINED), "WHERE"))?;
            split(planned, &mut conjuncts);
        }
        if let Some(value) = value {
            let values = match value.as_ref() {
                Ast::Tuple(values) => values.as_slice(),
                value => std::slice::from_ref(value),
            };
            let item = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => Some(expr.clone()),
                _ => None,
            };
            let items: Vec<Ast> = select.projection.iter().map_while(item).collect();
            if items.len() != select.projection.len() || items.len() != values.len() {
                let message = match values.len() {
                    1 => "the sub-query of IN gives one column".to_owned(),
                    columns => format!("the sub-query of IN gives {columns} columns, as stand before IN"),
                };
                return refuse(&message, "name them: x IN (SELECT a FROM …), (x, y) IN (SELECT a, b FROM …)");
            }
            let mut equalities = Vec::new();
            for (value, item) in values.iter().zip(&items) {
                let schema = relation.plan.schema.clone();
                let value = self.expr(value, &mut Scope::new(&schema, relation.alias.as_deref(), "IN"))?;
                let schema = right.plan.schema.clone();
                let item = self.expr(item, &mut Scope::new(&schema, right.alias.as_deref(), "SELECT"))?;
                let item = item.map_columns(&|column| column + width);
                equalities.push(self.built(predicate, build::binary(BinaryOp::Equal, value, item))?);
            }
            if negated {
                // NOT IN is not true either where the comparison with any row of the sub-query is unknown.
                let both = equalities.into_iter().map(Ok).reduce(|a, b| build::binary(BinaryOp::And, a?, b?));
                let same = self.built(predicate, both.unwrap_or_else(|| Ok(build::null())))?;
                equalities = vec![self.built(predicate, build::is_test(Test::False, same, true))?];
            }
            conjuncts.extend(equalities);
        }
        let join = self.analysed(&relation.plan, &right.plan, kind, conjuncts, &place, false)?;
        if !matches!(join.method, JoinMethod::Window { .. }) {
            return refuse(
                "IN and EXISTS with a sub-query are supported inside windows only",
                "compare the windows too: WHERE a.window_start = b.window_start AND a.window_end = b.window_end",
            );
        }
        let schema = relation.plan.schema.clone();
        let (left, right) = (Box::new(relation.plan), Box::new(right.plan));
        let plan = self.node(Node::Join { left, right, join }, schema)?;
        Ok(Relation { plan, alias: relation.alias })
    }

    /// A column of a joined relation: its index, and how many of the names it takes.
    pub(super) fn joined_column(
        &self,
        names: &[String],
        schema: &Schema,
        place: Range<usize>,
    ) -> Result<Option<(usize, usize)>> {
        let [first, ..] = names else { return Ok(None) };
        if let Some(index) = names.get(1).and_then(|second| schema.index_of(&format!("{first}.{second}"))) {
            return Ok(Some((index, 2)));
        }
        if let Some(index) = schema.index_of(first).filter(|_| !first.contains('.')) {
            // Of a join by name.
            return Ok(Some((index, 1)));
        }
        let found: Vec<(usize, &Field)> =
            schema.fields.iter().enumerate().filter(|(_, field)| unqualified(&field.name) == first).collect();
        match found.as_slice() {
            [] => Ok(None),
            [(index, _)] => Ok(Some((*index, 1))),
            [(_, field), ..] => Err(SqlError::new(place, format!("`{first}` is ambiguous: several tables have it"))
                .help(format!("write for example {}", field.name))),
        }
    }
}

/// A column's name without its table.
pub(super) fn unqualified(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, name)| name)
}

/// The conditions of WHERE that are sub-queries of IN or EXISTS, and the others.
pub(super) fn split_subqueries(predicate: &Ast) -> (Vec<&Ast>, Vec<&Ast>) {
    let (mut subqueries, mut others) = (Vec::new(), Vec::new());
    let mut rest = vec![predicate];
    while let Some(expr) = rest.pop() {
        match expr {
            Ast::BinaryOp { left, op: sqlparser::ast::BinaryOperator::And, right } => {
                rest.push(right);
                rest.push(left);
            }
            Ast::In { target: InTarget::Subquery(_), .. } | Ast::Exists { .. } => subqueries.push(expr),
            _ => others.push(expr),
        }
    }
    (subqueries, others)
}

/// The columns that watermarks speak about, as in Flink's `RelTimeIndicatorConverter`: of interval and window joins the
/// times of both sides, of a temporal join those of the left one. A side that is padded has none: Flink would fail at its
/// NULLs.
pub(in crate::sql) fn time_columns(plan: &Plan, catalog: &Catalog) -> Vec<usize> {
    match &plan.node {
        Node::Scan { relation } => catalog.time_columns(relation, &plan.schema),
        Node::Filter { input, .. }
        | Node::Unnest { input, .. }
        | Node::Lookup { input, .. }
        | Node::Rank { input, .. } => time_columns(input, catalog),
        Node::Over { input, over } => {
            let mut times = time_columns(input, catalog);
            times.retain(|time| *time != over.time_column);
            times.insert(0, over.time_column);
            times
        }
        Node::Project { input, exprs } => {
            let copies = |time: usize| {
                let is_copy = move |(_, expr): &(usize, &Expr)| expr.kind == ExprKind::Column(time);
                exprs.iter().enumerate().filter(is_copy).map(|(index, _)| index)
            };
            time_columns(input, catalog).into_iter().flat_map(copies).collect()
        }
        Node::UnionAll { inputs } => {
            let mut inputs = inputs.iter().map(|input| time_columns(input, catalog));
            let mut times = inputs.next().unwrap_or_default();
            inputs.for_each(|others| times.retain(|time| others.contains(time)));
            times
        }
        Node::Join { left, right, join: JoinSpec { method, kind, .. } } => {
            let pads_left = matches!(kind, JoinKind::Right | JoinKind::Full);
            let pads_right = matches!(kind, JoinKind::Left | JoinKind::Full);
            let both =
                !matches!(method, JoinMethod::Temporal { .. }) && !matches!(kind, JoinKind::Semi | JoinKind::Anti);
            let width = left.schema.fields.len();
            let mut times = if pads_left { Vec::new() } else { time_columns(left, catalog) };
            if both && !pads_right {
                times.extend(time_columns(right, catalog).into_iter().map(|time| width + time));
            }
            times
        }
        Node::Window { .. } | Node::Expand { .. } | Node::WindowAggregate { .. } | Node::Match { .. } => {
            plan.schema.time.into_iter().collect()
        }
    }
}

/// The columns of a query's primary key, where it has one, as far as Flink sees it without looking at the rows: that of a
/// versioned table that is passed on, or what a deduplication is partitioned by.
pub(in crate::sql) fn primary_key(plan: &Plan, catalog: &Catalog) -> Option<Vec<usize>> {
    key_columns(plan, catalog).map(|(columns, _)| columns)
}

/// As [`primary_key`], and whether there is no more than one row of each key.
fn key_columns(plan: &Plan, catalog: &Catalog) -> Option<(Vec<usize>, bool)> {
    match &plan.node {
        Node::Scan { relation } => {
            let columns = catalog.key(relation)?.iter().map(|column| plan.schema.index_of(column));
            Some((columns.collect::<Option<Vec<usize>>>()?, false))
        }
        Node::Project { input, exprs } => {
            let (columns, is_single) = key_columns(input, catalog)?;
            let position = |key: usize| exprs.iter().position(|expr| expr.kind == ExprKind::Column(key));
            Some((columns.into_iter().map(position).collect::<Option<Vec<usize>>>()?, is_single))
        }
        // Where a key has several rows, one that is left out would have to take back the one before it.
        Node::Filter { input, predicate } => {
            let all = super::rank::reads_number_alone(input, predicate);
            key_columns(input, catalog).filter(|(_, is_single)| *is_single || all)
        }
        Node::Rank {
            rank: RankSpec { kind: kind @ (RankKind::First | RankKind::Last), limit: Some(1), keys, .. },
            ..
        } => {
            let column = |key: &Expr| if let ExprKind::Column(column) = key.kind { Some(column) } else { None };
            Some((keys.iter().map(column).collect::<Option<Vec<usize>>>()?, *kind == RankKind::First))
        }
        _ => None,
    }
}

/// A relation's columns named `table.column`.
pub(super) fn qualified(relation: &Relation) -> Schema {
    let alias = relation.alias.as_deref().unwrap_or_default();
    let mut schema = relation.plan.schema.clone();
    if relation.alias.as_deref() != Some(JOINED) {
        schema.fields.iter_mut().for_each(|field| field.name = format!("{alias}.{}", field.name));
    }
    schema
}

pub(super) fn combined(left: &Relation, right: &Relation) -> Schema {
    let mut fields = qualified(left).fields;
    fields.extend(qualified(right).fields);
    Schema::new(fields)
}

/// The operands of a chain of AND.
pub(super) fn split(expr: Expr, conjuncts: &mut Vec<Expr>) {
    match expr.kind {
        ExprKind::Binary { op: BinaryOp::And, left, right } => {
            split(*left, conjuncts);
            split(*right, conjuncts);
        }
        kind => conjuncts.push(Expr { kind, data_type: expr.data_type }),
    }
}

/// An equality between the sides, over the columns of each.
pub(super) fn key(conjunct: &Expr, width: usize) -> Option<(Expr, Expr)> {
    let ExprKind::Binary { op: BinaryOp::Equal, left, right } = &conjunct.kind else { return None };
    let is_left = |expr: &Expr| !expr.columns().is_empty() && expr.columns().iter().all(|column| *column < width);
    let is_right = |expr: &Expr| !expr.columns().is_empty() && expr.columns().iter().all(|column| *column >= width);
    let (left, right) = match (left.as_ref(), right.as_ref()) {
        (a, b) if is_left(a) && is_right(b) => (a, b),
        (a, b) if is_right(a) && is_left(b) => (b, a),
        _ => return None,
    };
    // Keys are compared by their bytes, which depend on the type.
    let same = left.data_type == right.data_type && left.data_type != DataType::Null;
    same.then(|| (left.clone(), right.clone().map_columns(&|column| column - width)))
}

/// Bounds of the left time against the right time.
struct Bounds {
    /// The time columns, each of its side.
    columns: (usize, usize),
    lower_ms: Option<i64>,
    upper_ms: Option<i64>,
    /// What they were read from.
    conjuncts: Vec<Expr>,
}

impl Bounds {
    fn and(self, other: &Bounds) -> Bounds {
        let tighter = |a: Option<i64>, b: Option<i64>, pick: fn(i64, i64) -> i64| match (a, b) {
            (Some(a), Some(b)) => Some(pick(a, b)),
            (a, b) => a.or(b),
        };
        let mut conjuncts = self.conjuncts;
        conjuncts.extend(other.conjuncts.iter().cloned());
        Bounds {
            columns: self.columns,
            lower_ms: tighter(self.lower_ms, other.lower_ms, i64::max),
            upper_ms: tighter(self.upper_ms, other.upper_ms, i64::min),
            conjuncts,
        }
    }
}

/// The bound that a comparison of both times sets.
fn bound(conjunct: &Expr, width: usize, left_times: &[usize], right_times: &[usize]) -> Option<Bounds> {
    let ExprKind::Binary { op, left, right } = &conjunct.kind else { return None };
    let (a, b) = (shifted(left)?, shifted(right)?);
    let is_left = |column: usize| column < width && left_times.contains(&column);
    let is_right = |column: usize| column.checked_sub(width).is_some_and(|column| right_times.contains(&column));
    // left time `op` right time + ms
    let (op, columns, ms) = match (a, b) {
        ((l, x), (r, y)) if is_left(l) && is_right(r) => (*op, (l, r - width), y.checked_sub(x)?),
        ((r, x), (l, y)) if is_right(r) && is_left(l) => {
            let flipped = match op {
                BinaryOp::Less => BinaryOp::Greater,
                BinaryOp::LessOrEqual => BinaryOp::GreaterOrEqual,
                BinaryOp::Greater => BinaryOp::Less,
                BinaryOp::GreaterOrEqual => BinaryOp::LessOrEqual,
                other => *other,
            };
            (flipped, (l, r - width), x.checked_sub(y)?)
        }
        _ => return None,
    };
    let (lower_ms, upper_ms) = match op {
        BinaryOp::Equal => (Some(ms), Some(ms)),
        BinaryOp::Less => (None, Some(ms.checked_sub(1)?)),
        BinaryOp::LessOrEqual => (None, Some(ms)),
        BinaryOp::Greater => (Some(ms.checked_add(1)?), None),
        BinaryOp::GreaterOrEqual => (Some(ms), None),
        _ => return None,
    };
    Some(Bounds { columns, lower_ms, upper_ms, conjuncts: vec![conjunct.clone()] })
}

/// A column and the milliseconds added to it.
fn shifted(expr: &Expr) -> Option<(usize, i64)> {
    let interval = |expr: &Expr| match (&expr.kind, &expr.data_type) {
        (ExprKind::Literal(Value::Integer(ms)), DataType::IntervalDayTime) => Some(*ms),
        _ => None,
    };
    match &expr.kind {
        ExprKind::Column(column) if expr.data_type.is_timestamp() => Some((*column, 0)),
        ExprKind::Binary { op: BinaryOp::Add, left, right } => match (shifted(left), interval(right)) {
            (Some((column, ms)), Some(more)) => Some((column, ms.checked_add(more)?)),
            _ => {
                let (column, ms) = shifted(right)?;
                Some((column, ms.checked_add(interval(left)?)?))
            }
        },
        ExprKind::Binary { op: BinaryOp::Subtract, left, right } => {
            let (column, ms) = shifted(left)?;
            Some((column, ms.checked_sub(interval(right)?)?))
        }
        _ => None,
    }
}
