//! FROM and WHERE: tables, joins and commas from left to right.
//!
//! A condition of WHERE that compares the sides of an inner join belongs to the join, as in Flink's optimizer: so
//! `FROM a, b WHERE …`, `CROSS JOIN` and `JOIN … USING` find the bound in time that they need. Where a RIGHT or FULL join
//! may pad what stands left of it, WHERE stays behind all joins.

use std::ops::Range;

use sqlparser::ast::{
    BinaryOperator, Expr as Ast, Join, JoinConstraint, JoinOperator, ObjectName, TableFactor, TableWithJoins,
};

use super::expression::Scope;
use super::join::{JOINED, combined, qualified, split, split_subqueries, unqualified};
use super::unnest::is_unnest;
use super::{Planner, Relation, Result};
use crate::expr::build::{self, BinaryOp, Expr};
use crate::expr::{DataType, Field, Schema};
use crate::sql::SqlError;
use crate::sql::parse::single;
use crate::sql::plan::{Node, Plan};

/// The conditions of WHERE while FROM is planned.
#[derive(Default)]
pub(super) struct Conditions<'a> {
    open: Vec<&'a Ast>,
    /// By joins.
    taken: Vec<&'a Ast>,
}

impl Conditions<'_> {
    /// All that no join has taken so far, as one.
    pub fn all_open(&self) -> Option<Ast> {
        let and = |left: Ast, right: Ast| Ast::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::And,
            right: Box::new(right),
        };
        self.open.iter().copied().cloned().reduce(and)
    }

    /// A join has taken what [`Conditions::all_open`] gave.
    pub fn take_all(&mut self) {
        self.taken.append(&mut self.open);
    }
}

/// A column that a join by name has of both sides: by USING or NATURAL.
pub(super) struct Common {
    name: String,
    left: Expr,
    /// Behind the left columns.
    right: Expr,
}

impl Planner<'_> {
    /// FROM and WHERE.
    pub(super) fn filtered_from(
        &mut self,
        from: &[TableWithJoins],
        selection: Option<&Ast>,
        select: Range<usize>,
    ) -> Result<Relation> {
        let Some(selection) = selection else { return self.from(from, &mut Conditions::default(), select) };
        let (subqueries, open) = split_subqueries(selection);
        let pads_left = |join: &Join| {
            matches!(
                join.join_operator,
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_)
            )
        };
        let mut conditions = Conditions { open, taken: Vec::new() };
        let mut relation = if from.iter().flat_map(|table| &table.joins).any(pads_left) {
            self.from(from, &mut Conditions::default(), select)?
        } else {
            self.from(from, &mut conditions, select)?
        };
        if subqueries.is_empty() && conditions.taken.is_empty() {
            return self.filter(relation, selection);
        }
        let schema = relation.plan.schema.clone();
        for condition in &conditions.taken {
            // A name that was clear when the join took the condition may be ambiguous among all tables.
            self.condition(condition, &mut Scope::new(&schema, relation.alias.as_deref(), "WHERE"))?;
        }
        for condition in conditions.open {
            relation = self.filter(relation, condition)?;
        }
        subqueries.into_iter().try_fold(relation, |relation, subquery| self.semi_join(relation, subquery))
    }

    /// FROM: relations, from left to right.
    pub(super) fn from(
        &mut self,
        from: &[TableWithJoins],
        conditions: &mut Conditions<'_>,
        select: Range<usize>,
    ) -> Result<Relation> {
        let mut left: Option<Relation> = None;
        for TableWithJoins { relation, joins } in from {
            let mut joined = match left {
                None => self.factor(relation)?,
                Some(left) if is_unnest(relation) => self.unnest(left, relation, false)?,
                Some(left) => {
                    let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
                    let comma = Join { relation: relation.clone(), global: false, join_operator };
                    self.join(left, &comma, conditions)?
                }
            };
            for join in joins {
                joined = match is_unnest(&join.relation) {
                    true => self.unnest_join(joined, join)?,
                    false => self.join(joined, join, conditions)?,
                };
            }
            left = Some(joined);
        }
        left.ok_or_else(|| SqlError::new(select, "this SELECT has no FROM").help("a query reads a stream: FROM name"))
    }

    fn filter(&mut self, relation: Relation, predicate: &Ast) -> Result<Relation> {
        let Relation { plan, alias } = relation;
        let place = self.place(predicate);
        let predicate = {
            let mut scope = Scope::new(&plan.schema, alias.as_deref(), "WHERE");
            self.condition(predicate, &mut scope)?
        };
        Ok(Relation { plan: self.limited(plan, predicate, place)?, alias })
    }

    /// A filter, which sets the limit of a rank below.
    pub(super) fn limited(&mut self, mut plan: Plan, predicate: Expr, place: Range<usize>) -> Result<Plan> {
        if let Some(name) = super::rank::set_limits(&mut plan, &predicate) {
            let message = format!("the first rows by {name} are not supported, nor by Flink");
            return Err(SqlError::new(place, message).help("number them by ROW_NUMBER()"));
        }
        let schema = plan.schema.clone();
        self.node(Node::Filter { input: Box::new(plan), predicate }, schema)
    }

    /// Takes the conditions of WHERE that compare columns of both sides, the left one of which has `width` columns; without
    /// ON (`None`) all that these sides can answer. Gives their place, too.
    pub(super) fn taken(
        &mut self,
        conditions: &mut Conditions<'_>,
        combined: &Schema,
        width: Option<usize>,
    ) -> (Vec<Expr>, Option<Range<usize>>) {
        let (errors, mut taken) = (self.errors.len(), Vec::new());
        let mut place: Option<Range<usize>> = None;
        for condition in std::mem::take(&mut conditions.open) {
            let planned = self.condition(condition, &mut Scope::new(combined, Some(JOINED), "WHERE"));
            let compares = |expr: &Expr, width: usize| {
                let columns = expr.columns();
                columns.iter().any(|column| *column < width) && columns.iter().any(|column| *column >= width)
            };
            match planned {
                Ok(expr) if width.is_none_or(|width| compares(&expr, width)) => {
                    split(expr, &mut taken);
                    conditions.taken.push(condition);
                    let own = self.place(condition);
                    place = Some(place.map_or(own.start, |place| place.start)..own.end);
                }
                // It may read a table that comes later, or be wrong: then the filter says so.
                _ => conditions.open.push(condition),
            }
        }
        self.errors.truncate(errors);
        (taken, place)
    }

    /// The columns of USING, or of NATURAL, which are all that both sides have.
    pub(super) fn common_columns(
        &self,
        left: &Relation,
        right: &Relation,
        using: Option<&[ObjectName]>,
        factor: &TableFactor,
    ) -> Result<Vec<Common>> {
        let combined = combined(left, right);
        let width = left.plan.schema.fields.len();
        let (ours, theirs) = (qualified(left), qualified(right));
        let place = self.text.range(sqlparser::ast::Spanned::span(factor));
        let names = match using {
            Some(names) => names
                .iter()
                .map(|name| match single(name) {
                    Some(ident) => Ok((self.name(ident)?, self.text.range(ident.span))),
                    None => Err(SqlError::new(place.clone(), "USING takes names of columns").help("write USING (k)")),
                })
                .collect::<Result<Vec<_>>>()?,
            None => {
                let visible = |schema: &Schema| -> Vec<String> {
                    let fields = schema.fields.iter().filter(|field| !field.hidden);
                    fields.map(|field| unqualified(&field.name).to_owned()).collect()
                };
                let theirs = visible(&theirs);
                let mut names: Vec<String> = visible(&ours).into_iter().filter(|name| theirs.contains(name)).collect();
                names.dedup();
                names.into_iter().map(|name| (name, place.clone())).collect()
            }
        };
        let mut common = Vec::new();
        for (name, place) in names {
            let side = |schema: &Schema, from: usize| {
                let names = std::slice::from_ref(&name);
                let Some((index, _)) = self.joined_column(names, schema, place.clone())? else {
                    return Err(SqlError::new(place.clone(), format!("`{name}` is not a column of both sides"))
                        .help("write JOIN … ON a.x = b.y"));
                };
                let data_type = combined.type_of(index + from).cloned().unwrap_or(DataType::Null);
                Ok(build::column(index + from, data_type))
            };
            let (left, right) = (side(&ours, 0)?, side(&theirs, width)?);
            common.push(Common { name, left, right });
        }
        Ok(common)
    }

    /// The equality of common columns.
    pub(super) fn equalities(&self, common: &[Common], factor: &TableFactor) -> Result<Vec<Expr>> {
        let equality = |common: &Common| {
            build::binary(BinaryOp::Equal, common.left.clone(), common.right.clone()).map_err(|error| {
                let place = self.text.range(sqlparser::ast::Spanned::span(factor));
                SqlError::new(place, format!("`{}` of both sides: {}", common.name, error.message)).help_if(error.help)
            })
        };
        common.iter().map(equality).collect()
    }

    /// A join with its common columns in front, each once; those of the sides stay under their tables' names.
    pub(super) fn merged(&mut self, plan: Plan, common: Vec<Common>, factor: &TableFactor) -> Result<Plan> {
        let width = common.len();
        let (mut exprs, mut fields) = (Vec::new(), plan.schema.fields.clone());
        for Common { name: _, left, right } in &common {
            for side in [left, right] {
                let own = side.columns().first().and_then(|column| fields.get_mut(*column));
                own.into_iter().for_each(|field| field.hidden = true);
            }
        }
        let mut names = Vec::new();
        for Common { name, left, right } in common {
            let merged = build::function("COALESCE", vec![left, right]).map_err(|error| {
                let place = self.text.range(sqlparser::ast::Spanned::span(factor));
                SqlError::new(place, format!("`{name}` of both sides: {}", error.message)).help_if(error.help)
            })?;
            names.push(Field::new(name, merged.data_type.clone()));
            exprs.push(merged);
        }
        exprs.extend(fields.iter().enumerate().map(|(index, field)| build::column(index, field.data_type.clone())));
        names.append(&mut fields);
        let schema = Schema { fields: names, time: plan.schema.time.map(|time| time + width) };
        self.node(Node::Project { input: Box::new(plan), exprs }, schema)
    }
}
