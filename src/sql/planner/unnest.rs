//! UNNEST behind CROSS JOIN, LEFT JOIN or a comma.
//!
//! The columns of a joined relation are named `table.column`, and its alias is [`JOINED`]; names are looked up
//! accordingly.

use sqlparser::ast::{
    Expr as Ast, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, Spanned, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, Value as AstValue, ValueWithSpan,
};

use super::expression::Scope;
use super::join::JOINED;
use super::{Planner, Relation, Result};
use crate::expr::{DataType, Field, Schema};
use crate::sql::SqlError;
use crate::sql::parse::single;
use crate::sql::plan::Node;

const FORM: &str =
    "write FROM t CROSS JOIN UNNEST(t.samples) AS s (x), or LEFT JOIN UNNEST(t.samples) AS s (x) ON TRUE";

/// Whether FROM names UNNEST here.
pub(super) fn is_unnest(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Table { name, .. }
        if single(name).is_some_and(|name| name.quote_style.is_none() && name.value.eq_ignore_ascii_case("UNNEST")))
}

impl Planner<'_> {
    /// `… JOIN UNNEST(array)`.
    pub(super) fn unnest_join(&mut self, left: Relation, join: &Join) -> Result<Relation> {
        let Join { relation, global, join_operator } = join;
        let is_true = |on: &Ast| matches!(on, Ast::Value(ValueWithSpan { value: AstValue::Boolean(true), span: _ }));
        let outer = match join_operator {
            JoinOperator::CrossJoin(JoinConstraint::None) => Some(false),
            JoinOperator::Join(JoinConstraint::On(on)) | JoinOperator::Inner(JoinConstraint::On(on)) if is_true(on) => {
                Some(false)
            }
            JoinOperator::Left(JoinConstraint::On(on)) | JoinOperator::LeftOuter(JoinConstraint::On(on))
                if is_true(on) =>
            {
                Some(true)
            }
            _ => None,
        };
        match outer.filter(|_| !global) {
            Some(outer) => self.unnest(left, relation, outer),
            None => {
                let place = self.text.range(relation.span());
                Err(SqlError::new(place, "UNNEST can stand behind CROSS JOIN, or LEFT JOIN … ON TRUE").help(FORM))
            }
        }
    }

    /// `UNNEST(array) AS alias (columns)` over the rows to its left.
    pub(super) fn unnest(&mut self, left: Relation, factor: &TableFactor, outer: bool) -> Result<Relation> {
        let place = self.text.range(factor.span());
        let wrong = |message: &str| Err(SqlError::new(place.clone(), message.to_owned()).help(FORM));
        let TableFactor::Table {
            name: _,
            alias,
            args: Some(TableFunctionArgs { args, settings: None }),
            with_hints,
            version: None,
            with_ordinality,
            partitions,
            json_path: None,
            sample: None,
            index_directives,
            inheritance: None,
        } = factor
        else {
            return wrong("UNNEST takes an array");
        };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(array))] = args.as_slice() else {
            return wrong("UNNEST takes one array");
        };
        if !with_hints.is_empty() || !partitions.is_empty() || !index_directives.is_empty() {
            return wrong("this clause behind UNNEST is not part of Flink SQL");
        }
        let Relation { plan: input, alias: left_alias } = left;
        let planned = self.expr(array, &mut Scope::new(&input.schema, left_alias.as_deref(), "UNNEST"))?;
        let mut elements = match &planned.data_type {
            DataType::Array(element) => match element.as_ref() {
                DataType::Row(fields) => fields.clone(),
                scalar => vec![Field::new("EXPR$0", scalar.clone())],
            },
            // The names that Calcite gives.
            DataType::Map(key, value) => {
                vec![Field::new("KEY", key.as_ref().clone()), Field::new("VALUE", value.as_ref().clone())]
            }
            other => {
                let message = format!("UNNEST takes an ARRAY or a MAP, not {other}");
                return Err(SqlError::new(self.place(array), message).help(FORM));
            }
        };
        if *with_ordinality {
            elements.push(Field::new("ORDINALITY", DataType::Int));
        }
        let mut prefix = String::new();
        if let Some(TableAlias { explicit: _, name, columns, at: None }) = alias {
            prefix = format!("{}.", self.name(name)?);
            if !columns.is_empty() && columns.len() != elements.len() {
                let message =
                    format!("`{}` names {} columns, but there are {}", name.value, columns.len(), elements.len());
                return Err(SqlError::new(self.text.range(name.span), message).help("name each of them, or none"));
            }
            for (TableAliasColumnDef { name, data_type }, field) in columns.iter().zip(&mut elements) {
                if data_type.is_some() {
                    let place = self.text.range(name.span);
                    return Err(SqlError::new(place, "a type in a list of column names is not part of Flink SQL")
                        .help("name the column alone"));
                }
                field.name = self.name(name)?;
            }
        }
        let mut fields = input.schema.fields.clone();
        if let Some(alias) = left_alias.filter(|alias| alias != JOINED) {
            fields.iter_mut().for_each(|field| field.name = format!("{alias}.{}", field.name));
        }
        for field in elements {
            let name = format!("{prefix}{}", field.name);
            if fields.iter().any(|known| known.name == name) {
                return Err(SqlError::new(place, format!("two columns are named `{name}`"))
                    .help("name the elements otherwise: UNNEST(…) AS s (x)"));
            }
            fields.push(Field { name, ..field });
        }
        let schema = Schema { fields, time: input.schema.time };
        let plan = self.node(
            Node::Unnest { input: Box::new(input), array: planned, outer, ordinality: *with_ordinality },
            schema,
        )?;
        Ok(Relation { plan, alias: Some(JOINED.to_owned()) })
    }
}
