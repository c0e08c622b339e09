//! Expressions: names to columns, the nodes of the syntax tree to the builders of `expr/`, which know the types.

use std::ops::Range;

use sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType as AstType, DateTimeField,
    DuplicateTreatment, Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArgumentList, FunctionArguments, Ident, InTarget, Interval, JsonPredicateType, NullTreatment, Spanned,
    Subscript, TrimWhereField, UnaryOperator, Value as AstValue, ValueWithSpan,
};

use super::join::JOINED;
use super::match_recognize::Matched;
use super::over::{Overs, edge_form};
use super::select::{Grouping, column_help};
use super::{Planner, Result};
use crate::expr::aggregate::{self, AggregateCall, AggregateKind};
use crate::expr::build::{self, BinaryOp, Expr, JsonShape, Test, TimeUnit, TrimSide, TypeError, Value};
use crate::expr::{DataType, Schema};
use crate::sql::SqlError;
use crate::sql::parse::single;
use crate::sql::syntax_error::unit as meant;
use crate::sql::types::{characters, octets, parse_type};

/// Deepest nesting of an expression. Chains of AND and OR do not nest.
pub(super) const DEPTH_MAX: usize = 100;

/// Aggregates that Flink has and Forebay does not have yet.
const AGGREGATES_LATER: [&str; 5] = ["CUME_DIST", "LEAD", "MODE", "NTILE", "PERCENT_RANK"];

/// What an expression can see.
pub(super) struct Scope<'s> {
    pub schema: &'s Schema,
    /// The name by which columns can be qualified.
    pub alias: Option<&'s str>,
    /// The clause, for messages.
    pub place: &'static str,
    /// The aggregation above which the expression stands.
    pub grouping: Option<&'s mut Grouping>,
    /// The calls with OVER of the SELECT list, where they can stand.
    pub overs: Option<&'s mut Overs>,
    /// The match that DEFINE and MEASURES look at.
    pub matched: Option<&'s mut Matched>,
    /// Names of the SELECT list that hide columns.
    pub names: &'s [(String, Expr)],
}

impl<'s> Scope<'s> {
    pub fn new(schema: &'s Schema, alias: Option<&'s str>, place: &'static str) -> Scope<'s> {
        Scope { schema, alias, place, grouping: None, overs: None, matched: None, names: &[] }
    }

    /// What bears this name in the SELECT list; what it computes with OVER can stand only where OVER can.
    fn named(&self, name: &str) -> Option<Expr> {
        let can_stand = |expr: &Expr| {
            self.overs.is_some() || expr.columns().into_iter().all(|column| column < self.schema.fields.len())
        };
        self.names.iter().find(|(known, expr)| known == name && can_stand(expr)).map(|(_, expr)| expr.clone())
    }
}

impl Planner<'_> {
    /// The place of an expression in the text.
    pub(super) fn place(&self, expr: &Ast) -> Range<usize> {
        if let Ast::BinaryOp { left, op: _, right } = expr {
            // Chains of operators are long: walk down their left side instead of recursing.
            let mut first = left.as_ref();
            while let Ast::BinaryOp { left, .. } = first {
                first = left.as_ref();
            }
            let (start, end) = (self.place(first).start, self.place(right).end);
            return start..end.max(start);
        }
        let own = self.text.range(expr.span());
        match expr {
            Ast::Function(function) => {
                let open = self.text.index_at(self.text.range(function.name.span()).end);
                let close = match function.args {
                    FunctionArguments::List(_) => self.text.closing(open),
                    _ => None,
                };
                let end = close.and_then(|close| self.text.tokens.get(close)).map_or(own.end, |p| p.range.end);
                own.start..end.max(own.start)
            }
            Ast::Cast { .. }
            | Ast::Extract { .. }
            | Ast::Ceil { .. }
            | Ast::Floor { .. }
            | Ast::Position { .. }
            | Ast::Substring { .. }
            | Ast::Trim { .. }
            | Ast::Overlay { .. }
            | Ast::Convert { .. }
            | Ast::Exists { .. } => self.text.enclosing_call(own),
            Ast::Nested(inner) => self.text.grown(self.place(inner), 1, 1),
            Ast::Subquery(_) => {
                let open = self.text.index_at(own.start).saturating_sub(1);
                let start = self.text.tokens.get(open).map_or(own.start, |p| p.range.start);
                let close = self.text.closing(open).and_then(|close| self.text.tokens.get(close));
                start..close.map_or(own.end, |p| p.range.end).max(start)
            }
            Ast::UnaryOp { op: _, expr } => self.text.grown(self.place(expr), 1, 0),
            Ast::Interval(Interval { value: _, last_field, leading_field, .. }) => {
                let unit = last_field.as_ref().or(leading_field.as_ref());
                let end = match unit {
                    Some(DateTimeField::Custom(ident)) => self.text.range(ident.span).end,
                    _ => own.end,
                };
                let mut first = self.text.index_at(own.start);
                while first > 0 && !self.text.is_word(first, "INTERVAL") {
                    first -= 1;
                }
                let start = self.text.tokens.get(first).map_or(own.start, |p| p.range.start.min(own.start));
                start..end.max(own.end)
            }
            Ast::Prefixed { prefix, value } => {
                let start = self.text.range(prefix.span).start;
                start..self.place(value).end.max(start)
            }
            Ast::IsNull(inner) | Ast::IsTrue(inner) | Ast::IsFalse(inner) | Ast::IsUnknown(inner) => {
                self.text.grown(self.place(inner), 0, 2)
            }
            Ast::IsNotNull(inner) | Ast::IsNotTrue(inner) | Ast::IsNotFalse(inner) | Ast::IsNotUnknown(inner) => {
                self.text.grown(self.place(inner), 0, 3)
            }
            _ => own,
        }
    }

    /// The place of a function's argument.
    pub(super) fn argument_place(&self, arg: &FunctionArg) -> Range<usize> {
        match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.place(expr),
            _ => self.text.range(arg.span()),
        }
    }

    /// A condition: BOOLEAN.
    pub(super) fn condition(&mut self, expr: &Ast, scope: &mut Scope<'_>) -> Result<Expr> {
        let clause = scope.place;
        let planned = self.expr(expr, scope)?;
        match &planned.data_type {
            DataType::Boolean => Ok(planned),
            DataType::Null => self.built(expr, build::cast(planned, &DataType::Boolean, false)),
            other => Err(SqlError::new(self.place(expr), format!("{clause} needs a BOOLEAN, not {other}"))
                .help("write a comparison, for example x > 0")),
        }
    }

    /// An expression over the columns of a scope.
    pub(super) fn expr(&mut self, expr: &Ast, scope: &mut Scope<'_>) -> Result<Expr> {
        if self.depth >= DEPTH_MAX {
            let message = format!("the expression is nested deeper than {DEPTH_MAX} levels");
            return Err(SqlError::new(self.place(expr), message)
                .help("compute parts of it in a sub-query, or write CONCAT(a, b, …) for long chains of ||"));
        }
        self.depth += 1;
        let result = match self.computed_key(expr, scope) {
            Some(key) => Ok(key),
            None => self.expr_node(expr, scope),
        };
        self.depth -= 1;
        result
    }

    /// The grouping key that is the same expression.
    fn computed_key(&mut self, expr: &Ast, scope: &Scope<'_>) -> Option<Expr> {
        let grouping = scope.grouping.as_deref()?;
        if !grouping.computed_keys || matches!(expr, Ast::Identifier(_) | Ast::Value(_)) {
            return None;
        }
        let mut plain = Scope::new(scope.schema, scope.alias, "GROUP BY");
        let planned = self.expr_node(expr, &mut plain).ok()?;
        grouping.key(&planned)
    }

    pub(super) fn built(&self, expr: &Ast, result: std::result::Result<Expr, TypeError>) -> Result<Expr> {
        result.map_err(|error| self.typed(expr, error))
    }

    pub(super) fn typed(&self, expr: &Ast, error: TypeError) -> SqlError {
        SqlError::new(self.place(expr), error.message).help_if(error.help)
    }

    pub(super) fn refuse<T>(&self, expr: &Ast, message: &str, help: &str) -> Result<T> {
        Err(SqlError::new(self.place(expr), message).help(help))
    }

    fn expr_node(&mut self, expr: &Ast, scope: &mut Scope<'_>) -> Result<Expr> {
        match expr {
            Ast::Identifier(ident) => self.path(std::slice::from_ref(ident), scope),
            Ast::CompoundIdentifier(parts) => self.path(parts, scope),
            Ast::CompoundFieldAccess { root, access_chain } => self.access(expr, root, access_chain, scope),
            Ast::Nested(inner) => self.expr(inner, scope),
            Ast::Value(value) => self.literal(expr, value),
            Ast::BinaryOp { left, op: BinaryOperator::And, right } => {
                self.chain(expr, BinaryOp::And, &BinaryOperator::And, (left, right), scope)
            }
            Ast::BinaryOp { left, op: BinaryOperator::Or, right } => {
                self.chain(expr, BinaryOp::Or, &BinaryOperator::Or, (left, right), scope)
            }
            Ast::BinaryOp { left, op: BinaryOperator::Overlaps, right } => self.overlaps(expr, [left, right], scope),
            Ast::BinaryOp { left, op, right } => {
                let op = self.operator(expr, op)?;
                self.binary(expr, op, left, right, scope)
            }
            Ast::IsDistinctFrom(left, right) => self.binary(expr, BinaryOp::IsDistinctFrom, left, right, scope),
            Ast::IsNotDistinctFrom(left, right) => self.binary(expr, BinaryOp::IsNotDistinctFrom, left, right, scope),
            Ast::UnaryOp { op, expr: inner } => self.unary(expr, *op, inner, scope),
            Ast::IsNull(inner) => self.test(expr, Test::Null, inner, false, scope),
            Ast::IsNotNull(inner) => self.test(expr, Test::Null, inner, true, scope),
            Ast::IsTrue(inner) => self.test(expr, Test::True, inner, false, scope),
            Ast::IsNotTrue(inner) => self.test(expr, Test::True, inner, true, scope),
            Ast::IsFalse(inner) => self.test(expr, Test::False, inner, false, scope),
            Ast::IsNotFalse(inner) => self.test(expr, Test::False, inner, true, scope),
            Ast::IsUnknown(inner) => self.test(expr, Test::Unknown, inner, false, scope),
            Ast::IsNotUnknown(inner) => self.test(expr, Test::Unknown, inner, true, scope),
            Ast::In { expr: inner, target, negated, global: false } => {
                self.in_target(expr, inner, target, *negated, scope)
            }
            Ast::Between { expr: inner, negated, low, high } => {
                let inner = self.expr(inner, scope)?;
                let (symmetric, low) = match low.as_ref() {
                    Ast::Prefixed { prefix, value } if prefix.value.eq_ignore_ascii_case("SYMMETRIC") => (true, value),
                    Ast::Prefixed { prefix, value } if prefix.value.eq_ignore_ascii_case("ASYMMETRIC") => {
                        (false, value)
                    }
                    _ => (false, low),
                };
                let (low, high) = (self.expr(low, scope)?, self.expr(high, scope)?);
                self.built(
                    expr,
                    match symmetric {
                        true => build::between_symmetric(inner, low, high, *negated),
                        false => build::between(inner, low, high, *negated),
                    },
                )
            }
            Ast::Like { negated, any: false, expr: inner, pattern, escape_char } => {
                let escape = escape_char.as_deref().map(|escape| self.escape(escape)).transpose()?;
                let (inner, pattern) = (self.expr(inner, scope)?, self.expr(pattern, scope)?);
                self.built(expr, build::like(inner, pattern, escape, *negated))
            }
            Ast::SimilarTo { negated, expr: inner, pattern, escape_char } => {
                let escape = escape_char.as_deref().map(|escape| self.escape(escape)).transpose()?;
                let (inner, pattern) = (self.expr(inner, scope)?, self.expr(pattern, scope)?);
                self.built(expr, build::similar(inner, pattern, escape, *negated))
            }
            Ast::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.case(expr, operand.as_deref(), conditions, else_result.as_deref(), scope)
            }
            Ast::Cast { kind, expr: inner, data_type, format } => {
                if format.is_some() {
                    return self.refuse(
                        expr,
                        "CAST … FORMAT is not part of Flink SQL",
                        "use DATE_FORMAT or TO_TIMESTAMP",
                    );
                }
                self.cast(expr, kind, inner, data_type, scope)
            }
            Ast::Extract { field, syntax: _, expr: inner } => {
                let unit = self.unit(expr, field)?;
                let inner = self.expr(inner, scope)?;
                self.built(expr, build::extract(unit, inner))
            }
            Ast::Ceil { expr: inner, field } => self.floor(expr, inner, field, "CEIL", scope),
            Ast::Floor { expr: inner, field } => self.floor(expr, inner, field, "FLOOR", scope),
            Ast::Position { expr: needle, r#in: hay } => {
                let (needle, hay) = (self.expr(needle, scope)?, self.expr(hay, scope)?);
                self.built(expr, build::position(needle, hay, None))
            }
            Ast::Substring { expr: inner, substring_from, substring_for, special: _, shorthand: _ } => {
                let Some(from) = substring_from else {
                    return self.refuse(expr, "SUBSTRING lacks the start", "write SUBSTRING(x FROM 1 FOR 3)");
                };
                let (inner, from) = (self.expr(inner, scope)?, self.expr(from, scope)?);
                let count = substring_for.as_deref().map(|count| self.expr(count, scope)).transpose()?;
                self.built(expr, build::substring(inner, from, count))
            }
            Ast::Overlay { expr: inner, overlay_what, overlay_from, overlay_for } => {
                let (inner, what) = (self.expr(inner, scope)?, self.expr(overlay_what, scope)?);
                let from = self.expr(overlay_from, scope)?;
                let count = overlay_for.as_deref().map(|count| self.expr(count, scope)).transpose()?;
                self.built(expr, build::overlay(inner, what, from, count))
            }
            Ast::Trim { trim_where, trim_what, expr: inner, trim_characters: None } => {
                let side = match trim_where {
                    None | Some(TrimWhereField::Both) => TrimSide::Both,
                    Some(TrimWhereField::Leading) => TrimSide::Leading,
                    Some(TrimWhereField::Trailing) => TrimSide::Trailing,
                };
                let what = trim_what.as_deref().map(|what| self.expr(what, scope)).transpose()?;
                let inner = self.expr(inner, scope)?;
                self.built(expr, build::trim(side, what, inner))
            }
            Ast::Prefixed { prefix, value } => self.prefixed(expr, prefix, value),
            Ast::Interval(interval) => self.interval(expr, interval),
            Ast::Function(function) => self.function(expr, function, scope),
            Ast::Tuple(items) => {
                let items = self.exprs(items, scope)?;
                self.built(expr, build::row(items))
            }
            Ast::IsJson { expr: inner, kind, unique_keys: None, negated } => {
                let shape = match kind {
                    None | Some(JsonPredicateType::Value) => JsonShape::Value,
                    Some(JsonPredicateType::Scalar) => JsonShape::Scalar,
                    Some(JsonPredicateType::Array) => JsonShape::Array,
                    Some(JsonPredicateType::Object) => JsonShape::Object,
                };
                let inner = self.expr(inner, scope)?;
                self.built(expr, build::is_json(inner, shape, *negated))
            }
            Ast::Array(Array { elem, named: true }) => {
                let items = self.exprs(elem, scope)?;
                self.built(expr, build::array(items))
            }
            _ => Err(self.refused(expr)),
        }
    }

    /// What is known and not taken.
    fn refused(&self, expr: &Ast) -> SqlError {
        let (message, help) = match expr {
            Ast::Subquery(_) => (
                "a sub-query as a value is not supported: its answer changes with every row",
                "compute it in a query of its own and join that",
            ),
            Ast::Exists { .. } => ("EXISTS is not supported yet", "filter with WHERE and IN (…)"),
            Ast::AnyOp { .. } | Ast::AllOp { .. } => {
                ("ANY, SOME and ALL are not supported yet", "write IN (…) or several comparisons")
            }
            Ast::ILike { .. } => ("ILIKE is not supported", "write LOWER(x) LIKE 'pattern'"),
            Ast::RLike { .. } => (
                "RLIKE or REGEXP between values is not part of Flink SQL",
                "write REGEXP(x, 'pattern') or x SIMILAR TO 'pattern'",
            ),
            Ast::IsJson { .. } => ("UNIQUE KEYS is not supported", "write x IS JSON"),
            Ast::AtTimeZone { .. } => {
                ("AT TIME ZONE is not supported yet", "set pipeline.time_zone, and cast: CAST(x AS TIMESTAMP(3))")
            }
            Ast::TypedString(_) => ("a constant of this type cannot be written so", "write CAST('…' AS type)"),
            Ast::Convert { .. } => ("CONVERT is not part of Flink SQL", "write CAST(x AS type)"),
            Ast::Collate { .. } => ("COLLATE is not supported", "leave it out: strings compare by their characters"),
            Ast::Like { .. } => ("LIKE ANY is not part of Flink SQL", "write x LIKE 'a' OR x LIKE 'b'"),
            Ast::Array(_) => {
                ("an array needs the word ARRAY", "write ARRAY[1, 2]; names that need quotes stand in back-ticks")
            }
            Ast::Trim { .. } => ("TRIM takes one argument", "write TRIM(BOTH 'x' FROM s)"),
            Ast::GroupingSets(_) | Ast::Cube(_) | Ast::Rollup(_) => (
                "GROUPING SETS, ROLLUP and CUBE stand in GROUP BY",
                "write GROUP BY window_start, window_end, ROLLUP (a, b)",
            ),
            Ast::Wildcard(_) | Ast::QualifiedWildcard(..) => ("`*` cannot stand in an expression", "name a column"),
            _ => ("this form of expression is not part of Flink SQL", "see the functions and operators of Flink"),
        };
        let place = self.place(expr);
        let place = if place.is_empty() { self.text.grown(place, 1, 0) } else { place };
        SqlError::new(place, message).help(help)
    }

    fn exprs(&mut self, list: &[Ast], scope: &mut Scope<'_>) -> Result<Vec<Expr>> {
        list.iter().map(|item| self.expr(item, scope)).collect()
    }

    /// A column, possibly qualified, and fields of it.
    fn path(&mut self, parts: &[Ident], scope: &mut Scope<'_>) -> Result<Expr> {
        if let Some(matched) = scope.matched.as_deref_mut() {
            return self.matched_path(parts, matched, scope.schema);
        }
        let names = parts.iter().map(|part| self.name(part)).collect::<Result<Vec<String>>>()?;
        let place = |from: usize, to: usize| {
            let start = parts.get(from).map_or_else(|| self.text.end(), |part| self.text.range(part.span));
            start.start..parts.get(to).map_or(start.end, |part| self.text.range(part.span).end)
        };
        let (Some(first), Some(last)) = (names.first(), parts.len().checked_sub(1)) else {
            return Err(SqlError::new(self.text.end(), "a name must stand here").help("write a column of FROM"));
        };
        let schema = scope.schema;
        if let (Some(expr), [_]) = (scope.named(first), parts) {
            return Ok(expr);
        }
        let qualified = scope.alias == Some(first.as_str());
        let joined = match scope.alias == Some(JOINED) {
            true => self.joined_column(&names, schema, place(0, 0))?,
            false => None,
        };
        let column = match names.get(1).filter(|_| qualified).and_then(|name| schema.index_of(name)) {
            Some(index) => Some((index, 2)),
            None => joined.or_else(|| schema.index_of(first).map(|index| (index, 1))),
        };
        let Some((index, fields_from)) = column else {
            return Err(match names.get(1) {
                Some(name) if qualified => SqlError::new(place(1, 1), format!("unknown column `{name}` in `{first}`"))
                    .help_if(column_help(name, schema)),
                Some(_) => {
                    let alias = scope.alias.filter(|alias| *alias != JOINED);
                    let help = alias.map(|alias| format!("the columns here are those of `{alias}`"));
                    SqlError::new(place(0, 0), format!("unknown table or column `{first}`"))
                        .help_if(column_help(first, schema))
                        .help_if(help)
                }
                None => SqlError::new(place(0, 0), format!("unknown column `{first}`"))
                    .help_if(column_help(first, schema))
                    .help_if(self.selected_as(first, scope.place)),
            });
        };
        let data_type = schema.type_of(index).cloned().unwrap_or(DataType::Null);
        let mut expr = match scope.grouping.as_deref() {
            None => build::column(index, data_type),
            Some(grouping) => grouping.column(index, data_type).map_err(|help| {
                let name = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
                SqlError::new(place(0, last), format!("`{name}` is neither in GROUP BY nor inside an aggregate"))
                    .help(help)
            })?,
        };
        for (at, name) in names.iter().enumerate().skip(fields_from) {
            expr = build::field(expr, name)
                .map_err(|error| SqlError::new(place(at, at), error.message).help_if(error.help))?;
        }
        Ok(expr)
    }

    /// `root.field`, `root[index]`.
    fn access(&mut self, expr: &Ast, root: &Ast, chain: &[AccessExpr], scope: &mut Scope<'_>) -> Result<Expr> {
        // `t.a[1]` comes as root `t` and chain `.a`, `[1]`: the dots before the first bracket are a path.
        let (mut value, chain) = match root {
            Ast::Identifier(ident) => {
                let mut parts = vec![ident.clone()];
                let dots = chain.iter().map_while(|access| match access {
                    AccessExpr::Dot(Ast::Identifier(ident)) => Some(ident.clone()),
                    _ => None,
                });
                parts.extend(dots);
                (self.path(&parts, scope)?, chain.get(parts.len() - 1..).unwrap_or_default())
            }
            _ => (self.expr(root, scope)?, chain),
        };
        for access in chain {
            value = match access {
                AccessExpr::Dot(Ast::Identifier(ident)) => {
                    let name = self.name(ident)?;
                    build::field(value, &name).map_err(|error| {
                        SqlError::new(self.text.range(ident.span), error.message).help_if(error.help)
                    })?
                }
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    let planned = self.expr(index, scope)?;
                    self.built(index, build::index(value, planned))?
                }
                AccessExpr::Subscript(Subscript::Slice { .. }) => {
                    return self.refuse(expr, "slices of arrays are not part of Flink SQL", "write a[1]");
                }
                AccessExpr::Dot(_) => return self.refuse(expr, "the name of a field must follow the dot", "write a.b"),
            };
        }
        Ok(value)
    }

    fn literal(&self, expr: &Ast, value: &ValueWithSpan) -> Result<Expr> {
        let ValueWithSpan { value, span: _ } = value;
        match value {
            AstValue::Number(text, false) => self.built(expr, build::number_literal(text)),
            AstValue::SingleQuotedString(text) => Ok(build::string_literal(text.clone())),
            AstValue::Boolean(value) => Ok(build::literal(Value::Boolean(*value), DataType::Boolean)),
            AstValue::Null => Ok(build::null()),
            AstValue::HexStringLiteral(digits) => {
                let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
                let bytes = digits.chunks_exact(2).filter_map(|pair| match pair {
                    [high, low] => u8::try_from(high * 16 + low).ok(),
                    _ => None,
                });
                let bytes: Vec<u8> = bytes.collect();
                // 2 digits a byte, besides X and the quotes.
                if self.place(expr).len() != bytes.len() * 2 + 3 {
                    return self.refuse(expr, "X'…' needs pairs of hexadecimal digits", "write for example X'0AFF'");
                }
                Ok(build::literal(Value::Bytes(bytes), DataType::Bytes))
            }
            _ => self.refuse(expr, "a constant of this kind is not part of Flink SQL", "write 'text', 1, 1.5 or TRUE"),
        }
    }

    fn operator(&self, expr: &Ast, op: &BinaryOperator) -> Result<BinaryOp> {
        Ok(match op {
            BinaryOperator::Plus => BinaryOp::Add,
            BinaryOperator::Minus => BinaryOp::Subtract,
            BinaryOperator::Multiply => BinaryOp::Multiply,
            BinaryOperator::Divide => BinaryOp::Divide,
            BinaryOperator::Modulo => BinaryOp::Modulo,
            BinaryOperator::StringConcat => BinaryOp::Concat,
            BinaryOperator::Eq => BinaryOp::Equal,
            BinaryOperator::NotEq => BinaryOp::NotEqual,
            BinaryOperator::Lt => BinaryOp::Less,
            BinaryOperator::LtEq => BinaryOp::LessOrEqual,
            BinaryOperator::Gt => BinaryOp::Greater,
            BinaryOperator::GtEq => BinaryOp::GreaterOrEqual,
            BinaryOperator::And => BinaryOp::And,
            BinaryOperator::Or => BinaryOp::Or,
            other => {
                let message = format!("the operator `{other}` is not part of Flink SQL");
                let help = "docs/sql.md lists the operators; many others are functions";
                return Err(SqlError::new(self.place(expr), message).help(help));
            }
        })
    }

    fn binary(&mut self, expr: &Ast, op: BinaryOp, left: &Ast, right: &Ast, scope: &mut Scope<'_>) -> Result<Expr> {
        let (left, right) = (self.expr(left, scope)?, self.expr(right, scope)?);
        self.built(expr, build::binary(op, left, right))
    }

    /// `(a, b) OVERLAPS (c, d)`.
    fn overlaps(&mut self, expr: &Ast, sides: [&Ast; 2], scope: &mut Scope<'_>) -> Result<Expr> {
        let [Ast::Tuple(left), Ast::Tuple(right)] = sides else {
            return self.refuse(expr, "OVERLAPS compares two periods", "write (a, b) OVERLAPS (c, d)");
        };
        let (left, right) = (self.exprs(left, scope)?, self.exprs(right, scope)?);
        self.built(expr, build::overlaps(left, right))
    }

    /// A chain of AND or of OR, as a balanced tree: `a OR b OR …` may be long, and must not be deep.
    fn chain(
        &mut self,
        expr: &Ast,
        op: BinaryOp,
        ast_op: &BinaryOperator,
        (left, right): (&Ast, &Ast),
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let mut operands = vec![right];
        let mut rest = left;
        while let Ast::BinaryOp { left, op, right } = rest {
            if op != ast_op {
                break;
            }
            operands.push(right);
            rest = left;
        }
        operands.push(rest);
        let mut level = Vec::new();
        for operand in operands.into_iter().rev() {
            let planned = self.expr(operand, scope)?;
            if !matches!(planned.data_type, DataType::Boolean | DataType::Null) {
                let message = format!("{ast_op} needs a BOOLEAN, not {}", planned.data_type);
                return Err(SqlError::new(self.place(operand), message).help("write a comparison, for example x > 0"));
            }
            level.push(planned);
        }
        while level.len() > 1 {
            let mut above = Vec::new();
            let mut pairs = level.into_iter();
            while let Some(first) = pairs.next() {
                above.push(match pairs.next() {
                    Some(second) => self.built(expr, build::binary(op, first, second))?,
                    None => first,
                });
            }
            level = above;
        }
        level.pop().ok_or_else(|| {
            SqlError::new(self.place(expr), "an expression must stand here").help("write a column or a value")
        })
    }

    fn unary(&mut self, expr: &Ast, op: UnaryOperator, inner: &Ast, scope: &mut Scope<'_>) -> Result<Expr> {
        let planned = self.expr(inner, scope)?;
        match op {
            UnaryOperator::Minus => self.built(expr, build::negate(planned)),
            UnaryOperator::Not => self.built(expr, build::not(planned)),
            UnaryOperator::Plus if planned.data_type.is_numeric() => Ok(planned),
            other => {
                let message = format!("the operator `{other}` does not take {}", planned.data_type);
                Err(SqlError::new(self.place(expr), message).help("leave it out"))
            }
        }
    }

    fn test(&mut self, expr: &Ast, test: Test, inner: &Ast, negated: bool, scope: &mut Scope<'_>) -> Result<Expr> {
        let inner = self.expr(inner, scope)?;
        self.built(expr, build::is_test(test, inner, negated))
    }

    fn in_target(
        &mut self,
        expr: &Ast,
        inner: &Ast,
        target: &InTarget,
        negated: bool,
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        match target {
            InTarget::List(list) => {
                let inner = self.expr(inner, scope)?;
                let list = self.exprs(list, scope)?;
                self.built(expr, build::in_list(inner, list, negated))
            }
            InTarget::Subquery(_) | InTarget::Unnest(_) | InTarget::Table { .. } => {
                self.refuse(expr, "IN (SELECT …) is not supported yet", "write the values: x IN (1, 2)")
            }
        }
    }

    fn escape(&self, escape: &Ast) -> Result<char> {
        if let Ast::Value(ValueWithSpan { value: AstValue::SingleQuotedString(text), span: _ }) = escape {
            let mut chars = text.chars();
            if let (Some(character), None) = (chars.next(), chars.next()) {
                return Ok(character);
            }
        }
        self.refuse(escape, "ESCAPE needs one character", "write for example ESCAPE '!'")
    }

    fn case(
        &mut self,
        expr: &Ast,
        operand: Option<&Ast>,
        conditions: &[CaseWhen],
        otherwise: Option<&Ast>,
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let operand_type = operand.is_some();
        let operand = operand.map(|operand| self.expr(operand, scope)).transpose()?;
        let mut whens = Vec::new();
        for CaseWhen { condition, result } in conditions {
            let planned = match operand_type {
                true => self.expr(condition, scope)?,
                false => {
                    let clause = std::mem::replace(&mut scope.place, "WHEN");
                    let planned = self.condition(condition, scope);
                    scope.place = clause;
                    planned?
                }
            };
            whens.push((planned, self.expr(result, scope)?));
        }
        let otherwise = otherwise.map(|otherwise| self.expr(otherwise, scope)).transpose()?;
        self.built(expr, build::case(operand, whens, otherwise))
    }

    fn cast(
        &mut self,
        expr: &Ast,
        kind: &CastKind,
        inner: &Ast,
        data_type: &AstType,
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let try_cast = match kind {
            CastKind::Cast => false,
            CastKind::TryCast => true,
            CastKind::SafeCast => {
                return self.refuse(expr, "SAFE_CAST is not part of Flink SQL", "write TRY_CAST(x AS type)");
            }
            CastKind::DoubleColon => return self.refuse(expr, "`::` is not Flink SQL", "write CAST(x AS type)"),
        };
        // The dialect keeps the place of the type's text.
        let AstType::Custom(name, _) = data_type else {
            return self.refuse(expr, "this type is not known", "write CAST(x AS type)");
        };
        let place = self.text.range(name.span());
        if let Some(length) = characters(self.text.slice(place.clone())) {
            let text = self.expr(inner, scope)?;
            return self.built(expr, build::cast_to_characters(text, length, try_cast));
        }
        if let Some(length) = octets(self.text.slice(place.clone())) {
            let bytes = self.expr(inner, scope)?;
            return self.built(expr, build::cast_to_octets(bytes, length, try_cast));
        }
        let data_type = parse_type(self.text.slice(place.clone())).map_err(|error| SqlError {
            span: place.start + error.span.start..place.start + error.span.end,
            ..error
        })?;
        let inner = self.expr(inner, scope)?;
        self.built(expr, build::cast(inner, &data_type, try_cast))
    }

    fn unit(&self, expr: &Ast, field: &DateTimeField) -> Result<TimeUnit> {
        match field {
            DateTimeField::Custom(ident) => self.unit_of(ident),
            _ => self.refuse(expr, "a unit of time must stand here", "write for example SECOND, MINUTE, HOUR, DAY"),
        }
    }

    fn unit_of(&self, ident: &Ident) -> Result<TimeUnit> {
        TimeUnit::parse(&ident.value).filter(|_| ident.quote_style.is_none()).ok_or_else(|| {
            SqlError::new(self.text.range(ident.span), format!("`{}` is no unit of time", ident.value))
                .help("the units are SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER, YEAR")
                .help_if(meant(&ident.value).map(|unit| format!("write {unit}")))
        })
    }

    fn floor(
        &mut self,
        expr: &Ast,
        inner: &Ast,
        field: &CeilFloorKind,
        name: &str,
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let CeilFloorKind::DateTimeField(field) = field else {
            return self.refuse(expr, "FLOOR and CEIL take one argument", "write FLOOR(x) or ROUND(x, 2)");
        };
        let inner = self.expr(inner, scope)?;
        let result = match field {
            DateTimeField::NoDateTime => build::function(name, vec![inner]),
            unit if name == "FLOOR" => build::floor_to(inner, self.unit(expr, unit)?),
            unit => build::ceil_to(inner, self.unit(expr, unit)?),
        };
        self.built(expr, result)
    }

    /// `DATE '…'`, `TIME '…'`, `TIMESTAMP '…'`.
    fn prefixed(&self, expr: &Ast, prefix: &Ident, value: &Ast) -> Result<Expr> {
        let text = match value {
            Ast::Value(ValueWithSpan { value: AstValue::SingleQuotedString(text), span: _ }) => text,
            _ => {
                return self.refuse(
                    expr,
                    "a table cannot stand in an expression",
                    "TABLE name is the first argument of a window function",
                );
            }
        };
        let result = match prefix.value.to_ascii_uppercase().as_str() {
            "DATE" => build::date_literal(text),
            "TIME" => build::time_literal(text),
            "TIMESTAMP" => build::timestamp_literal(text),
            _ => return self.refuse(expr, "this kind of constant is not part of Flink SQL", "write 'text'"),
        };
        self.built(expr, result)
    }

    fn interval(&self, expr: &Ast, interval: &Interval) -> Result<Expr> {
        let Interval { value, leading_field, leading_precision, last_field, fractional_seconds_precision } = interval;
        let (Ast::Value(ValueWithSpan { value: AstValue::SingleQuotedString(text), span: _ }), Some(leading)) =
            (value.as_ref(), leading_field)
        else {
            let place = self.text.range(value.span());
            return Err(SqlError::new(place, "INTERVAL needs a quoted number and a unit")
                .help("write for example INTERVAL '10' SECOND"));
        };
        let leading = self.unit(expr, leading)?;
        let last = last_field.as_ref().map(|last| self.unit(expr, last)).transpose()?;
        let built = build::interval_literal(text, leading, *leading_precision, last, *fractional_seconds_precision);
        self.built(expr, built)
    }

    fn function(&mut self, expr: &Ast, function: &Function, scope: &mut Scope<'_>) -> Result<Expr> {
        let Function { name, uses_odbc_syntax, parameters, args, within_group, filter, null_treatment, over } =
            function;
        let Some(ident) = single(name) else {
            let place = self.text.range(name.span());
            return Err(SqlError::new(place, format!("unknown function `{name}`")).help("functions have no qualifier"));
        };
        let upper = ident.value.to_ascii_uppercase();
        if over.is_some() {
            return self.over_call(expr, function, &upper, scope);
        }
        if *uses_odbc_syntax || *parameters != FunctionArguments::None {
            return self.refuse(expr, &format!("a clause of {upper} that is not supported"), "write NAME(arguments)");
        }
        if !within_group.is_empty() {
            let help = "leave it out; a percentile is PERCENTILE(x, 0.5)";
            return self.refuse(expr, "WITHIN GROUP is not supported yet", help);
        }
        let mut nulls = *null_treatment;
        let (distinct, args) = match args {
            FunctionArguments::None => (None, [].as_slice()),
            FunctionArguments::Subquery(_) => {
                return self.refuse(expr, "a sub-query as an argument is not supported", "name columns");
            }
            FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args, clauses }) => {
                match (clauses.as_slice(), &nulls) {
                    ([], _) => {}
                    ([FunctionArgumentClause::IgnoreOrRespectNulls(treatment)], None) => nulls = Some(*treatment),
                    _ => {
                        let message = format!("a clause inside {upper}( ) is not supported");
                        return self.refuse(expr, &message, "leave it out");
                    }
                }
                (*duplicate_treatment, args.as_slice())
            }
        };
        if scope.matched.is_some()
            && let Some(planned) = self.matched_function(expr, function, &upper, scope)?
        {
            return Ok(planned);
        }
        if let Some(kind) = aggregate::kind_of(&upper) {
            let distinct = distinct == Some(DuplicateTreatment::Distinct);
            let nulls = nulls.map(|treatment| treatment == NullTreatment::RespectNulls);
            return self.aggregate(expr, kind, (args, nulls, distinct, filter.as_deref()), scope);
        }
        if nulls.is_some() {
            return self.refuse(expr, &format!("{upper} has no clause on NULLs"), "leave it out");
        }
        if matches!(upper.as_str(), "COLLECT" | "FUSION" | "INTERSECTION") {
            let message = format!("there is no type MULTISET, which {upper} makes");
            return self.refuse(expr, &message, "write ARRAY_AGG(x): it keeps every value, and their order");
        }
        if matches!(upper.as_str(), "LAG" | "ROW_NUMBER" | "RANK" | "DENSE_RANK") {
            let form = if upper == "LAG" { "LAG(x)".to_owned() } else { format!("{upper}()") };
            let help = format!("write {form} OVER (PARTITION BY k ORDER BY ts)");
            return self.refuse(expr, &format!("{upper} needs OVER"), &help);
        }
        if AGGREGATES_LATER.contains(&upper.as_str()) {
            let names: Vec<&str> = aggregate::NAMES.iter().map(|(name, _)| *name).collect();
            let help = format!("there are {}", names.join(", "));
            return self.refuse(expr, &format!("the aggregate {upper} is not supported yet"), &help);
        }
        if let Some(form) = edge_form(&upper) {
            let help = format!("write {form} OVER (PARTITION BY k ORDER BY ts)");
            return self.refuse(expr, &format!("{upper} looks at the rows before: it needs OVER"), &help);
        }
        if filter.is_some() || distinct.is_some() {
            return self.refuse(
                expr,
                &format!("{upper} is no aggregate: it takes no DISTINCT, ALL or FILTER"),
                "leave it out",
            );
        }
        if matches!(upper.as_str(), "GROUPING" | "GROUPING_ID" | "GROUP_ID") {
            return self.grouping_id(expr, &upper, args, scope);
        }
        if let Some((window, form)) = legacy(&upper) {
            let help = format!("write FROM TABLE({window}(TABLE name, DESCRIPTOR(ts), INTERVAL …)) and {form}");
            return self.refuse(expr, &format!("{upper}( ) is the old form of windows"), &help);
        }
        if matches!(upper.as_str(), "TIMESTAMPADD" | "TIMESTAMPDIFF") {
            return self.timestamp_function(expr, &upper, args, scope);
        }
        if let Some(planned) = self.json(expr, &upper, args, scope)? {
            return Ok(planned);
        }
        // An unknown aggregate is not blamed on its arguments.
        if upper != "ROW" {
            build::known_function(&ident.value).map_err(|error| self.typed(expr, error))?;
        }
        let mut planned = Vec::new();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => planned.push(self.expr(arg, scope)?),
                FunctionArg::Unnamed(_) => {
                    return self.refuse(expr, &format!("{upper} does not take `*`"), "name columns");
                }
                FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
                    let place = self.argument_place(arg);
                    return Err(
                        SqlError::new(place, format!("{upper} has no named arguments")).help("leave the names out")
                    );
                }
            }
        }
        match upper.as_str() {
            "ROW" => self.built(expr, build::row(planned)),
            _ => self.built(expr, build::function(&ident.value, planned)),
        }
    }

    fn timestamp_function(
        &mut self,
        expr: &Ast,
        name: &str,
        args: &[FunctionArg],
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Identifier(unit))),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(first)),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(second)),
        ] = args
        else {
            return self.refuse(
                expr,
                &format!("{name} takes a unit and two values"),
                &format!("write {name}(SECOND, a, b)"),
            );
        };
        let unit = self.unit_of(unit)?;
        let (first, second) = (self.expr(first, scope)?, self.expr(second, scope)?);
        self.built(
            expr,
            match name {
                "TIMESTAMPADD" => build::timestamp_add(unit, first, second),
                _ => build::timestamp_diff(unit, first, second),
            },
        )
    }

    /// A call with its arguments, clause on NULLs, DISTINCT and FILTER.
    fn aggregate(
        &mut self,
        expr: &Ast,
        kind: AggregateKind,
        (args, mut nulls, distinct, filter): (&[FunctionArg], Option<bool>, bool, Option<&Ast>),
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let name = kind.name();
        let Some(grouping) = scope.grouping.as_deref_mut() else {
            let message = format!("the aggregate {name} cannot stand in {}", scope.place);
            return Err(SqlError::new(self.place(expr), message).help(match scope.place {
                "WHERE" => "put it into HAVING, behind GROUP BY",
                "an aggregate" => "compute the inner one in a window of its own and aggregate its rows again",
                _ => "aggregate in a window: GROUP BY window_start, window_end",
            }));
        };
        let args = match args.split_last() {
            // The clause of a JSON aggregate, as the dialect hands it over.
            Some((FunctionArg::Named { name, .. }, args)) => {
                nulls = Some(name.value == "NULL");
                args
            }
            _ => args,
        };
        let arguments: Option<Vec<&Ast>> = match args {
            [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] => Some(Vec::new()),
            [] => None,
            args => args
                .iter()
                .map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => Some(arg),
                    _ => None,
                })
                .collect(),
        };
        let Some(arguments) = arguments else {
            return self.refuse(expr, &format!("{name} takes columns or constants"), &format!("write {name}(x)"));
        };
        let mut inner = Scope::new(scope.schema, scope.alias, "an aggregate");
        let mut planned = Vec::new();
        for argument in &arguments {
            planned.push((self.expr(argument, &mut inner)?, *argument));
        }
        inner.place = "FILTER";
        let condition = filter.map(|filter| Ok((self.condition(filter, &mut inner)?, filter))).transpose()?;
        let mut below = |(planned, ast): (Expr, &Ast)| {
            grouping.below(planned).ok_or_else(|| {
                let message = format!("{name} over the window's own columns needs window_start and window_end as keys");
                SqlError::new(self.place(ast), message).help("GROUP BY window_start, window_end")
            })
        };
        let arguments = planned.into_iter().map(&mut below).collect::<Result<Vec<Expr>>>()?;
        let condition = condition.map(below).transpose()?;
        let call = AggregateCall::new(kind, arguments, nulls, distinct, condition);
        Ok(grouping.aggregate(call.map_err(|error| self.typed(expr, error))?))
    }
}

/// The table function and the column that replace a function of the old windows.
fn legacy(name: &str) -> Option<(&'static str, &'static str)> {
    let window = ["TUMBLE", "HOP", "SESSION"].into_iter().find(|window| name.starts_with(window))?;
    let form = match name.strip_prefix(window)? {
        "" => "GROUP BY window_start, window_end",
        "_START" => "take window_start",
        "_END" => "take window_end",
        "_ROWTIME" | "_PROCTIME" => "take window_time",
        _ => return None,
    };
    Some((window, form))
}
