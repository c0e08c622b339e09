//! Lookup joins: `a JOIN t FOR SYSTEM_TIME AS OF a._arrival AS t ON a.k = t.k`, where `t` is a `[table.NAME]`.
//!
//! In Flink the time is a processing-time attribute; `_arrival` is one there (`explain --flink`) and the nearest to one
//! here, so the same text runs on both.

use std::ops::Range;

use sqlparser::ast::{Expr as Ast, Ident, TableAlias};

use super::expression::Scope;
use super::join::{JOINED, combined, key, qualified, split, unqualified};
use super::{Planner, Relation, Result};
use crate::expr::build::{self, BinaryOp, ExprKind};
use crate::expr::{DataType, Schema};
use crate::sql::SqlError;
use crate::sql::plan::{JoinKind, LookupSpec, Node};

/// The column whose time a lookup can bear.
const ARRIVAL: &str = "_arrival";

impl Planner<'_> {
    /// Whether a name is that of a lookup table.
    pub(super) fn is_lookup(&self, name: &Ident) -> bool {
        !self.ctes.iter().any(|(cte, _)| *cte == name.value) && self.catalog.is_lookup(&name.value)
    }

    /// What is wrong with reading a lookup table as a stream.
    pub(super) fn lookup_alone(&self, place: Range<usize>, name: &str) -> SqlError {
        SqlError::new(place, format!("`{name}` is a lookup table: it can only be joined with what arrives")).help(
            format!(
                "write FROM a JOIN {name} FOR SYSTEM_TIME AS OF a.{ARRIVAL} AS t ON a.k = t.{}",
                self.catalog.key(name).and_then(|key| key.first()).map_or("k", String::as_str)
            ),
        )
    }

    /// Joins with a lookup table.
    pub(super) fn lookup_join(
        &mut self,
        left: Relation,
        (name, alias): (&Ident, Option<&TableAlias>),
        at: &Ast,
        kind: JoinKind,
        on: &Ast,
    ) -> Result<Relation> {
        let place = self.text.range(name.span);
        let table = name.value.clone();
        let schema = self.catalog.schema(&table).cloned().unwrap_or_default();
        let scan = self.node(Node::Scan { relation: table.clone() }, schema)?;
        let mut right = self.aliased(scan, alias)?;
        right.alias = right.alias.or_else(|| Some(table.clone()));
        if !matches!(kind, JoinKind::Inner | JoinKind::Left) {
            let help = format!("write LEFT JOIN {table} FOR SYSTEM_TIME AS OF a.{ARRIVAL}");
            return Err(SqlError::new(place, "a join with a lookup table is JOIN or LEFT JOIN").help(help));
        }
        let left = self.visible(left)?;
        self.check_arrival(&left, at)?;
        let combined = combined(&left, &right);
        let on_place = self.place(on);
        let planned = self.condition(on, &mut Scope::new(&combined, Some(JOINED), "ON"))?;
        let mut conjuncts = Vec::new();
        split(planned, &mut conjuncts);
        let width = left.plan.schema.fields.len();
        let declared = self.catalog.key(&table).unwrap_or_default().to_vec();
        let key_index = |expr: &build::Expr| match expr.kind {
            ExprKind::Column(column) => self.catalog.schema(&table).and_then(|schema| schema.fields.get(column)),
            _ => None,
        };
        let (mut keys, mut rest) = (Vec::new(), Vec::new());
        for conjunct in conjuncts {
            match key(&conjunct, width) {
                Some((l, r)) if key_index(&r).is_some_and(|field| declared.contains(&field.name)) => keys.push((l, r)),
                _ => rest.push(conjunct),
            }
        }
        let has = |column: &String| keys.iter().any(|(_, r)| key_index(r).is_some_and(|field| field.name == *column));
        if let Some(missing) = declared.iter().find(|column| !has(column)) {
            let message = format!("a join must compare the whole key of `{table}`: `{missing}` is missing");
            let help = format!("write ON … AND a.{missing} = b.{missing}, of one type");
            return Err(SqlError::new(on_place, message).help(help));
        }
        let condition = rest
            .into_iter()
            .map(Ok)
            .reduce(|a, b| build::binary(BinaryOp::And, a?, b?))
            .transpose()
            .map_err(|error| SqlError::new(on_place, error.message).help_if(error.help))?;
        let lookup = LookupSpec { table, columns: right.plan.schema.clone(), kind, keys, condition };
        let schema = Schema { time: left.plan.schema.time, ..combined };
        let plan = self.node(Node::Lookup { input: Box::new(left.plan), lookup }, schema)?;
        Ok(Relation { plan, alias: Some(JOINED.to_owned()) })
    }

    /// The time of a lookup is the arrival of the row.
    fn check_arrival(&mut self, left: &Relation, at: &Ast) -> Result<()> {
        let place = self.place(at);
        let schema = qualified(left);
        let planned = self.expr(at, &mut Scope::new(&schema, Some(JOINED), "FOR SYSTEM_TIME AS OF"))?;
        let field = match planned.kind {
            ExprKind::Column(column) => schema.fields.get(column),
            _ => None,
        };
        if field.is_some_and(|f| unqualified(&f.name) == ARRIVAL && f.data_type == DataType::TimestampLtz(3)) {
            return Ok(());
        }
        let message = format!("a lookup table is joined as of `{ARRIVAL}`: its file has no history by event time");
        let help =
            format!("write FOR SYSTEM_TIME AS OF a.{ARRIVAL}; a sub-query or view must pass `{ARRIVAL}` through");
        Err(SqlError::new(place, message).help(help))
    }
}
