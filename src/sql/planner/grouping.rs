//! GROUPING SETS, ROLLUP and CUBE: which keys there are, and which of them each grouping set has.

use std::ops::Range;

use sqlparser::ast::{Expr as Ast, FunctionArg, FunctionArgExpr};

use super::expression::Scope;
use super::{Planner, Result};
use crate::expr::build::{self, Expr, Value};
use crate::expr::{DataType, Field, Schema};
use crate::sql::SqlError;
use crate::sql::plan::{Node, Plan};

/// Most grouping sets of one GROUP BY: each repeats every row.
const SETS_MAX: usize = 128;

/// Indices into the keys.
type Set = Vec<usize>;

impl Planner<'_> {
    /// The keys of GROUP BY as written, and the grouping sets over them: one that has all where there are no others.
    pub(super) fn grouping_sets<'e>(&self, keys: &'e [Ast], place: &Range<usize>) -> Result<(Vec<&'e Ast>, Vec<Set>)> {
        let mut flat: Vec<&Ast> = Vec::new();
        let mut sets: Vec<Set> = vec![Vec::new()];
        for key in keys {
            let alternatives: Vec<Vec<&Ast>> = match key {
                Ast::GroupingSets(sets) => sets.iter().map(|set| set.iter().flat_map(parts).collect()).collect(),
                Ast::Rollup(groups) => {
                    (0..=groups.len()).rev().map(|most| groups.iter().take(most).flatten().collect()).collect()
                }
                Ast::Cube(groups) => {
                    if groups.len() > SETS_MAX.ilog2() as usize {
                        return Err(self.too_many(place));
                    }
                    let chosen = |bits: usize| {
                        let own = groups.iter().enumerate().filter(|(at, _)| bits >> (groups.len() - 1 - at) & 1 == 1);
                        own.flat_map(|(_, group)| group).collect()
                    };
                    (0..1usize << groups.len()).rev().map(chosen).collect()
                }
                key => vec![parts(key)],
            };
            let alternatives: Vec<Set> = alternatives
                .into_iter()
                .map(|alternative| {
                    let first = flat.len();
                    flat.extend(alternative);
                    (first..flat.len()).collect()
                })
                .collect();
            if sets.len() * alternatives.len() > SETS_MAX {
                return Err(self.too_many(place));
            }
            let with = |set: &Set, more: &Set| set.iter().chain(more).copied().collect::<Set>();
            sets = sets.iter().flat_map(|set| alternatives.iter().map(|more| with(set, more))).collect();
        }
        Ok((flat, sets))
    }

    fn too_many(&self, place: &Range<usize>) -> SqlError {
        SqlError::new(place.clone(), format!("more than {SETS_MAX} grouping sets: each repeats every row"))
            .help("name the sets that are needed: GROUPING SETS ((a, b), (a), ())")
    }

    /// Rows repeated for each grouping set, and the keys over them.
    pub(super) fn expand(&mut self, input: Plan, keys: Vec<Expr>, sets: Vec<Vec<bool>>) -> Result<(Plan, Vec<Expr>)> {
        let width = input.schema.fields.len();
        let mut fields = input.schema.fields.clone();
        let own = keys.iter().map(|key| key.data_type.clone()).chain([DataType::Int]);
        fields.extend(own.enumerate().map(|(i, t)| Field { hidden: true, ..Field::new(format!("set$key{i}"), t) }));
        let columns = fields.iter().enumerate().skip(width);
        let above = columns.map(|(index, field)| build::column(index, field.data_type.clone())).collect();
        let schema = Schema { fields, time: input.schema.time };
        Ok((self.node(Node::Expand { input: Box::new(input), keys, sets }, schema)?, above))
    }

    /// `GROUPING(a, …)` and `GROUPING_ID(a, …)`: a bit for each key, 1 where the row's grouping set has it not.
    /// `GROUP_ID()`: how often the row's grouping set stands before it among the sets.
    pub(super) fn grouping_id(
        &mut self,
        expr: &Ast,
        name: &str,
        args: &[FunctionArg],
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        if scope.grouping.is_none() {
            return self.refuse(expr, &format!("{name} needs GROUP BY"), "leave it out");
        }
        let mut keys = Vec::new();
        for arg in args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(ast)) = arg else {
                return self.refuse(expr, &format!("{name} takes keys of GROUP BY"), "name a key");
            };
            let planned = self.expr(ast, &mut Scope::new(scope.schema, scope.alias, "GROUPING"))?;
            let known = scope.grouping.as_deref().and_then(|grouping| grouping.keys.iter().position(|k| *k == planned));
            match known {
                Some(key) => keys.push(key),
                None => return self.refuse(ast, &format!("{name} takes keys of GROUP BY"), "name a key"),
            }
        }
        if name == "GROUP_ID" {
            if !args.is_empty() {
                return self.refuse(expr, "GROUP_ID takes no argument", "write GROUP_ID()");
            }
        } else if keys.is_empty() || keys.len() > 62 {
            return self.refuse(expr, &format!("{name} takes 1 to 62 keys of GROUP BY"), "name a key");
        }
        let number = |value: i64| build::literal(Value::Integer(value), DataType::BigInt);
        let Some((at, sets)) = scope.grouping.as_deref().and_then(|g| Some((g.keys.len(), g.sets.clone()?))) else {
            return Ok(number(0));
        };
        let before = |at: usize, set: &Vec<bool>| sets.iter().take(at).filter(|known| *known == set).count() as i64;
        let bits = |set: &Vec<bool>| {
            keys.iter().fold(0, |bits, key| bits << 1 | i64::from(!set.get(*key).copied().unwrap_or(false)))
        };
        let value = |at: usize, set: &Vec<bool>| if name == "GROUP_ID" { before(at, set) } else { bits(set) };
        let whens = sets.iter().enumerate().map(|(index, set)| {
            (build::literal(Value::Integer(index as i64), DataType::Int), number(value(index, set)))
        });
        self.built(expr, build::case(Some(build::column(at, DataType::Int)), whens.collect(), None))
    }
}

/// The keys of `a` or `(a, b)`.
fn parts(key: &Ast) -> Vec<&Ast> {
    match key {
        Ast::Tuple(items) => items.iter().collect(),
        Ast::Nested(inner) => vec![inner],
        key => vec![key],
    }
}
