//! The syntax tree of a query to a typed plan: queries, CTEs, tables, UNION ALL. `from.rs` has FROM and WHERE,
//! `select.rs` SELECT and GROUP BY, `window.rs` the window table functions, `expression.rs` the expressions.
//!
//! Every node of the syntax tree that is taken is destructured without `..`, so that a clause that a later `sqlparser`
//! adds does not compile until it is decided on. Recursion is bounded: by the parser's limits, by
//! [`expression::DEPTH_MAX`] and, since a CTE is planned anew where it is read, by [`NODES_MAX`].

mod expanded;
mod expression;
mod from;
mod grouping;
mod join;
mod json;
mod lookup;
mod match_recognize;
mod over;
mod rank;
mod select;
mod sort;
mod unnest;
mod window;

use std::ops::Range;

use sqlparser::ast::{
    Cte, Expr as Ast, Ident, Query, SetExpr, SetOperator, SetQuantifier, Spanned, TableAlias, TableFactor, With,
};

use self::match_recognize::Clauses;
use super::parse::single;
use super::plan::{Node, Plan, WindowProperty, WindowSpec};
use super::reserved::is_reserved;
use super::text::Text;
use super::{Catalog, SqlError, nearest_help, types};
use crate::expr::build::{self, Expr};
use crate::expr::{DataType, Schema};

/// Most nodes in one plan.
const NODES_MAX: usize = 2000;

pub(super) use join::{primary_key, time_columns};
pub(super) use over::edge_names;
pub use rank::{UPDATES, updates_help};

type Result<T> = std::result::Result<T, SqlError>;

/// Plans a parsed query.
pub(super) fn plan(text: &Text<'_>, query: &Query, catalog: &Catalog) -> std::result::Result<Plan, Vec<SqlError>> {
    let (ctes, aliases, errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut planner = Planner { text, catalog, ctes, nodes: 0, versioned: false, depth: 0, aliases, errors };
    let result = planner.query(query).and_then(sort::number_rows).and_then(|plan| rank::check(&plan).map(|()| plan));
    let mut errors = planner.errors;
    match result {
        Ok(plan) if errors.is_empty() => return Ok(plan),
        Ok(_) => {}
        Err(error) => errors.push(error),
    }
    errors.sort_by_key(|error| error.span.start);
    errors.dedup();
    Err(errors)
}

/// What each column of a plan is to the window that its rows carry.
pub(super) fn window_columns(plan: &Plan, catalog: &Catalog) -> Vec<Option<(WindowProperty, WindowSpec)>> {
    (0..plan.schema.fields.len()).map(|column| window::window_column(plan, column, catalog)).collect()
}

/// What a query's text is planned with.
struct Planner<'a> {
    text: &'a Text<'a>,
    catalog: &'a Catalog,
    /// The CTEs in sight, the innermost last.
    ctes: Vec<(String, Plan)>,
    /// Nodes planned so far, copies of CTEs included.
    nodes: usize,
    /// The table that is being planned stands before FOR SYSTEM_TIME AS OF.
    versioned: bool,
    /// Depth of the expression being planned.
    depth: usize,
    /// The names that the list of the SELECT being planned gives with AS.
    aliases: Vec<String>,
    /// Errors after which planning went on to find more.
    errors: Vec<SqlError>,
}

/// What FROM gives: a plan and the name by which its columns can be qualified.
struct Relation {
    plan: Plan,
    alias: Option<String>,
}

/// What to do instead of LIMIT.
const FEWER: &str = "leave it out; WHERE keeps fewer rows, and ROW_NUMBER() OVER (PARTITION BY window_start, window_end \
                     ORDER BY x) AS rn, with WHERE rn <= 3 around it, the first of each window";

impl Planner<'_> {
    fn query(&mut self, query: &Query) -> Result<Plan> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        let from = body_start(self, body);
        let never = |clause: &[&str], help: &str| {
            let place = self.text.clause(from, clause);
            let message = format!("{} is not supported: a stream has no end to wait for", clause.join(" "));
            Err(SqlError::new(place, message).help(help.to_owned()))
        };
        if limit_clause.is_some() {
            let clause = if self.text.clause(from, &["LIMIT"]).start > from { "LIMIT" } else { "OFFSET" };
            return never(&[clause], FEWER);
        }
        if fetch.is_some() {
            return never(&["FETCH"], FEWER);
        }
        let foreign = |clause: &[&str]| {
            let message = format!("{} is not part of Flink SQL", clause.join(" "));
            Err(SqlError::new(self.text.clause(from, clause), message).help("leave the clause out"))
        };
        if !locks.is_empty() || for_clause.is_some() {
            return foreign(&["FOR"]);
        }
        if settings.is_some() {
            return foreign(&["SETTINGS"]);
        }
        if format_clause.is_some() {
            return foreign(&["FORMAT"]);
        }
        if !pipe_operators.is_empty() {
            return Err(SqlError::new(self.text.range(query.span()), "pipe operators are not part of Flink SQL")
                .help("write SELECT … FROM … WHERE …"));
        }
        let outer = self.ctes.len();
        if let Some(with) = with {
            self.with(with)?;
        }
        let plan = self.body(body);
        let plan = match order_by {
            Some(order_by) => {
                plan.and_then(|plan| self.sorted(plan, body, order_by, self.text.clause(from, &["ORDER", "BY"])))
            }
            None => plan,
        };
        self.ctes.truncate(outer);
        plan
    }

    fn with(&mut self, with: &With) -> Result<()> {
        let With { with_token, recursive, cte_tables } = with;
        let outer = self.ctes.len();
        if *recursive {
            let place = self.text.clause(self.text.range(with_token.0.span).start, &["WITH", "RECURSIVE"]);
            return Err(SqlError::new(place, "WITH RECURSIVE is not supported: its state has no bound")
                .help("leave RECURSIVE out; a query cannot read itself"));
        }
        for cte in cte_tables {
            let Cte { alias, query, from, materialized, closing_paren_token: _ } = cte;
            let place = self.text.range(alias.name.span);
            if materialized.is_some() {
                let place = self.text.clause(place.start, &["MATERIALIZED"]);
                return Err(SqlError::new(place, "MATERIALIZED is not supported here").help("leave it out"));
            }
            if from.is_some() {
                return Err(SqlError::new(place, "FROM behind a CTE is not part of Flink SQL").help("leave it out"));
            }
            let name = self.name(&alias.name)?;
            if self.ctes.iter().skip(outer).any(|(known, _)| *known == name) {
                return Err(SqlError::new(place, format!("the CTE `{name}` is there twice"))
                    .help("give one of them another name"));
            }
            let plan = self.query(query)?;
            let relation = self.aliased(plan, Some(alias))?;
            self.ctes.push((name, relation.plan));
        }
        Ok(())
    }

    fn body(&mut self, body: &SetExpr) -> Result<Plan> {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                // UNIONs chain to the left: walk down instead of recursing.
                let mut inputs = vec![(right.as_ref(), *op, *set_quantifier)];
                let mut rest = left.as_ref();
                while let SetExpr::SetOperation { left, op, set_quantifier, right } = rest {
                    inputs.push((right.as_ref(), *op, *set_quantifier));
                    rest = left.as_ref();
                }
                let mut from = body_start(self, rest);
                let mut plans = vec![(self.body(rest)?, self.body_place(rest))];
                for (input, op, quantifier) in inputs.into_iter().rev() {
                    self.check_set_operator(from, op, quantifier)?;
                    from = body_start(self, input);
                    plans.push((self.body(input)?, self.body_place(input)));
                }
                self.union_all(plans)
            }
            SetExpr::Values(_) => {
                Err(SqlError::new(self.text.range(body.span()), "VALUES is not supported: a query reads streams")
                    .help("read the rows with a source of type \"file\""))
            }
            SetExpr::Table(_) => {
                let place = self.body_place(body);
                Err(SqlError::new(place, "TABLE as a query is not supported").help("write SELECT * FROM name"))
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                let place = self.body_place(body);
                Err(SqlError::new(place, "only SELECT can stand here").help("a [sink.NAME] takes the rows of a query"))
            }
        }
    }

    /// Place of a part of a UNION, for messages: its first word.
    fn body_place(&self, body: &SetExpr) -> Range<usize> {
        let at = self.text.index_at(body_start(self, body));
        self.text.tokens.get(at).map_or_else(|| self.text.end(), |placed| placed.range.clone())
    }

    fn check_set_operator(&self, from: usize, op: SetOperator, quantifier: SetQuantifier) -> Result<()> {
        let (word, never) = match op {
            SetOperator::Union => ("UNION", "UNION without ALL"),
            SetOperator::Except => ("EXCEPT", "EXCEPT"),
            SetOperator::Intersect => ("INTERSECT", "INTERSECT"),
            SetOperator::Minus => ("MINUS", "MINUS"),
        };
        let place = self.text.clause(from, &[word]);
        match (op, quantifier) {
            (SetOperator::Union, SetQuantifier::All) => Ok(()),
            (_, SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName) => {
                Err(SqlError::new(place, format!("{word} BY NAME is not part of Flink SQL")).help("name the columns"))
            }
            (_, SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None) => {
                let message = format!("{never} is not supported: it would keep every row for ever");
                let help = match op {
                    SetOperator::Union => "write UNION ALL",
                    _ => "compare inside windows: group by window_start, window_end and the columns",
                };
                Err(SqlError::new(place, message).help(help))
            }
        }
    }

    fn union_all(&mut self, plans: Vec<(Plan, Range<usize>)>) -> Result<Plan> {
        let Some(((first, _), rest)) = plans.split_first() else {
            return Err(SqlError::new(self.text.end(), "the query is empty").help("write SELECT … FROM …"));
        };
        let width = first.schema.fields.len();
        for (plan, place) in rest {
            if plan.schema.fields.len() != width {
                let message = format!(
                    "the parts of UNION ALL must have the same columns: the first has {width}, this one {}",
                    plan.schema.fields.len()
                );
                return Err(SqlError::new(place.clone(), message)
                    .help("select as many columns in each part; CAST(NULL AS STRING) stands for one that is missing"));
            }
        }
        let mut fields = first.schema.fields.clone();
        let mut columns: Vec<Vec<Expr>> = vec![Vec::new(); plans.len()];
        for (index, field) in fields.iter_mut().enumerate() {
            let of = |plan: &Plan| plan.schema.fields.get(index).map(|field| field.data_type.clone());
            let exprs = plans.iter().filter_map(|(plan, _)| Some(build::column(index, of(plan)?))).collect();
            let (exprs, data_type) = build::coerce_common(exprs).map_err(|error| {
                let types: Vec<String> = plans.iter().filter_map(|(plan, _)| of(plan)).map(|t| t.to_string()).collect();
                let odd = plans.iter().find(|(plan, _)| of(plan).as_ref() != Some(&field.data_type));
                let place = odd.map_or_else(|| self.text.end(), |(_, place)| place.clone());
                let message = format!(
                    "column {} (`{}`) of UNION ALL has no common type: {}",
                    index + 1,
                    field.name,
                    types.join(", ")
                );
                SqlError::new(place, message).help_if(error.help).help_if(Some("cast it in one part".to_owned()))
            })?;
            field.data_type = data_type;
            columns.iter_mut().zip(exprs).for_each(|(columns, expr)| columns.push(expr));
        }
        let types = Schema { fields, time: None };
        let mut inputs = Vec::new();
        for ((plan, _), exprs) in plans.into_iter().zip(columns) {
            let cast = exprs.iter().enumerate().any(|(i, expr)| expr.kind != build::ExprKind::Column(i));
            inputs.push(match cast {
                true => self.node(Node::Project { input: Box::new(plan), exprs }, types.clone())?,
                false => plan,
            });
        }
        let mut union = self.node(Node::UnionAll { inputs }, types)?;
        let time = time_columns(&union, self.catalog).first().copied();
        union.inputs_mut().into_iter().for_each(|input| input.schema.time = time.or(input.schema.time));
        union.schema.time = time;
        Ok(union)
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<Relation> {
        let place = self.text.range(factor.span());
        self.check_table_clauses(factor, &place)?;
        match factor {
            TableFactor::Table { name, alias, args, version, .. } => {
                if version.is_some() {
                    return Err(SqlError::new(
                        self.text.clause(place.start, &["FOR"]),
                        "FOR SYSTEM_TIME AS OF can stand behind JOIN only",
                    )
                    .help("write FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k"));
                }
                match args {
                    None => {
                        let plan = self.scan(name, &place)?;
                        let mut relation = self.aliased(plan, alias.as_ref())?;
                        if relation.alias.is_none() {
                            relation.alias = single(name).map(|ident| ident.value.clone());
                        }
                        Ok(relation)
                    }
                    Some(args) => {
                        let plan = self.window_of_factor(name, args)?;
                        self.aliased(plan, alias.as_ref())
                    }
                }
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                if *lateral {
                    return Err(SqlError::new(place, "LATERAL is not supported yet").help("leave it out"));
                }
                if sample.is_some() {
                    return Err(self.sample(&place));
                }
                let plan = self.query(subquery)?;
                self.aliased(plan, alias.as_ref())
            }
            TableFactor::TableFunction { expr, alias } => {
                let plan = self.window_of_expr(expr)?;
                self.aliased(plan, alias.as_ref())
            }
            TableFactor::NestedJoin { .. } => Err(SqlError::new(place, "joins are not supported yet")
                .help("read one relation; UNION ALL brings several streams together")),
            TableFactor::UNNEST { .. } => {
                Err(SqlError::new(place, "UNNEST is not supported yet").help("take single elements with a[1], a[2], …"))
            }
            TableFactor::MatchRecognize {
                table,
                partition_by,
                order_by,
                measures,
                rows_per_match,
                after_match_skip,
                pattern,
                symbols,
                alias,
            } => {
                let clauses = Clauses {
                    partition_by,
                    order_by,
                    measures,
                    rows_per_match: rows_per_match.as_ref(),
                    skip: after_match_skip.as_ref(),
                    pattern,
                    symbols,
                };
                let plan = self.match_recognize(table, &clauses)?;
                self.aliased(plan, alias.as_ref())
            }
            TableFactor::Function { .. } => Err(SqlError::new(place, "LATERAL is not supported yet")
                .help("arrays are joined by CROSS JOIN UNNEST(t.samples) AS s (x)")),
            TableFactor::Pivot { .. }
            | TableFactor::Unpivot { .. }
            | TableFactor::UnpivotExpr { .. }
            | TableFactor::JsonTable { .. }
            | TableFactor::OpenJsonTable { .. }
            | TableFactor::XmlTable { .. }
            | TableFactor::SemanticView { .. } => {
                Err(SqlError::new(place, "this form of FROM is not supported").help("write FROM name"))
            }
        }
    }

    /// Refuses the clauses behind a table that no table takes.
    fn check_table_clauses(&self, factor: &TableFactor, place: &Range<usize>) -> Result<()> {
        let TableFactor::Table {
            name: _,
            alias: _,
            args: _,
            with_hints,
            version: _,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_directives,
            inheritance,
        } = factor
        else {
            return Ok(());
        };
        if sample.is_some() {
            return Err(self.sample(place));
        }
        if !with_hints.is_empty()
            || *with_ordinality
            || !partitions.is_empty()
            || json_path.is_some()
            || !index_directives.is_empty()
            || inheritance.is_some()
        {
            return Err(SqlError::new(place.clone(), "this clause behind a table is not part of Flink SQL")
                .help("write FROM name [AS alias]"));
        }
        Ok(())
    }

    fn sample(&self, place: &Range<usize>) -> SqlError {
        let place = self.text.clause(place.start, &["TABLESAMPLE"]);
        SqlError::new(place, "TABLESAMPLE is not supported: its rows are random").help("keep fewer rows with WHERE")
    }

    /// The rows of a CTE, a query or a source.
    fn scan(&mut self, name: &sqlparser::ast::ObjectName, place: &Range<usize>) -> Result<Plan> {
        let Some(ident) = single(name) else {
            let parts: Vec<String> =
                name.0.iter().filter_map(|part| part.as_ident()).map(|i| i.value.clone()).collect();
            if let [relation, output @ ("dead" | "late")] = parts.iter().map(String::as_str).collect::<Vec<_>>()[..]
                && self.catalog.schema(relation).is_some()
            {
                return Err(SqlError::new(place.clone(), format!("`{relation}.{output}` cannot be read by a query"))
                    .help(format!("it feeds sinks only: write `from = \"{relation}.{output}\"` in a [sink.NAME]")));
            }
            let last = parts.last().cloned().unwrap_or_default();
            return Err(SqlError::new(place.clone(), format!("unknown table `{}`", parts.join(".")))
                .help(format!("there are no catalogs and databases: write the name alone, `{last}`")));
        };
        self.relation(ident)
    }

    /// The rows of the CTE, query or source with this name.
    fn relation(&mut self, ident: &Ident) -> Result<Plan> {
        let name = self.name(ident)?;
        if let Some((_, plan)) = self.ctes.iter().rev().find(|(known, _)| *known == name) {
            let plan = plan.clone();
            self.nodes += count(&plan);
            self.check_size()?;
            return Ok(plan);
        }
        if self.catalog.gives_updates(&name) && !self.versioned {
            let place = self.text.range(ident.span);
            return Err(SqlError::new(place, UPDATES).help(updates_help(&name)));
        }
        if self.catalog.is_lookup(&name) {
            return Err(self.lookup_alone(self.text.range(ident.span), &name));
        }
        if let Some(schema) = self.catalog.schema(&name) {
            let schema = schema.clone();
            return self.node(Node::Scan { relation: name }, schema);
        }
        let known = self.ctes.iter().map(|(name, _)| name.as_str()).chain(self.catalog.names());
        let all = || self.catalog.names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let help = nearest_help(&name, known).or_else(|| match all() {
            list if list.is_empty() || list.len() > 200 => None,
            list => Some(format!("there are {list}")),
        });
        Err(SqlError::new(self.text.range(ident.span), format!("unknown table `{name}`")).help_if(help))
    }

    /// A relation under its alias, with its columns renamed where the alias lists names.
    fn aliased(&mut self, plan: Plan, alias: Option<&TableAlias>) -> Result<Relation> {
        let Some(TableAlias { explicit: _, name, columns, at }) = alias else {
            return Ok(Relation { plan, alias: None });
        };
        if let Some(at) = at {
            return Err(SqlError::new(self.text.range(at.span), "AT behind an alias is not part of Flink SQL")
                .help("leave it out"));
        }
        let alias = Some(self.name(name)?);
        if columns.is_empty() {
            return Ok(Relation { plan, alias });
        }
        let visible: Vec<usize> =
            (0..plan.schema.fields.len()).filter(|i| plan.schema.fields.get(*i).is_some_and(|f| !f.hidden)).collect();
        let place = self.text.range(name.span);
        if visible.len() != columns.len() {
            let message = format!("`{}` names {} columns, but there are {}", name.value, columns.len(), visible.len());
            return Err(SqlError::new(place, message).help("name each of them, or none"));
        }
        let mut fields = Vec::new();
        let mut exprs = Vec::new();
        for (index, column) in visible.iter().zip(columns) {
            let sqlparser::ast::TableAliasColumnDef { name, data_type } = column;
            if data_type.is_some() {
                let place = self.text.range(name.span);
                return Err(SqlError::new(place, "a type in a list of column names is not part of Flink SQL")
                    .help("name the column alone"));
            }
            let data_type = plan.schema.type_of(*index).cloned().unwrap_or(DataType::Null);
            fields.push((self.name(name)?, self.text.range(name.span)));
            exprs.push(build::column(*index, data_type));
        }
        let plan = self.project(plan, exprs, fields)?;
        Ok(Relation { plan, alias })
    }

    /// A projection; a column passed through unchanged keeps the time attribute.
    fn project(&mut self, input: Plan, exprs: Vec<Expr>, names: Vec<(String, Range<usize>)>) -> Result<Plan> {
        let mut fields: Vec<crate::expr::Field> = Vec::new();
        for (expr, (name, place)) in exprs.iter().zip(names) {
            if fields.iter().any(|field| field.name == name) {
                return Err(SqlError::new(place, format!("the output has two columns named `{name}`"))
                    .help("name one of them otherwise: … AS other_name"));
            }
            fields.push(crate::expr::Field::new(name, expr.data_type.clone()));
        }
        let position = |time: usize| exprs.iter().position(|expr| expr.kind == build::ExprKind::Column(time));
        let time = time_columns(&input, self.catalog).into_iter().find_map(position);
        let schema = Schema { fields, time };
        if schema == input.schema
            && exprs.iter().enumerate().all(|(index, expr)| expr.kind == build::ExprKind::Column(index))
        {
            return Ok(input);
        }
        self.node(Node::Project { input: Box::new(input), exprs }, schema)
    }

    fn node(&mut self, node: Node, schema: Schema) -> Result<Plan> {
        self.nodes += 1;
        self.check_size()?;
        Ok(Plan { node, schema })
    }

    /// Refuses a key, or a value whose change matters, that cannot be compared.
    fn check_comparable(&self, ast: &Ast, planned: &Expr, what: &str) -> Result<()> {
        if !planned.data_type.has_map() {
            return Ok(());
        }
        let message = format!("{what} cannot be {}: a MAP cannot be compared", planned.data_type);
        Err(SqlError::new(self.place(ast), message).help("take a value of it: m['key']"))
    }

    fn check_size(&self) -> Result<()> {
        if self.nodes > NODES_MAX {
            let message = format!("the plan has more than {NODES_MAX} steps");
            return Err(SqlError::new(self.text.end(), message)
                .help("a CTE is planned once for each use: make it a [query.NAME] of its own"));
        }
        Ok(())
    }

    /// An identifier's name; a reserved word needs back-ticks.
    fn name(&self, ident: &Ident) -> Result<String> {
        let Ident { value, quote_style, span } = ident;
        match quote_style {
            Some('`') => Ok(value.clone()),
            None if !is_reserved(value) => Ok(value.clone()),
            None => Err(types::reserved(self.text.range(*span), value)),
            Some(_) => Err(SqlError::new(self.text.range(*span), "a name must stand here")
                .help(format!("quote names with back-ticks: `{value}`"))),
        }
    }
}

/// Offset of the first word of a query body.
fn body_start(planner: &Planner<'_>, body: &SetExpr) -> usize {
    match body {
        SetExpr::Select(select) => planner.text.range(select.select_token.0.span).start,
        SetExpr::SetOperation { left, .. } => {
            let mut first = left.as_ref();
            while let SetExpr::SetOperation { left, .. } = first {
                first = left.as_ref();
            }
            match first {
                SetExpr::SetOperation { .. } => 0,
                first => body_start(planner, first),
            }
        }
        SetExpr::Query(query) => {
            let inner = query.with.as_ref().map_or_else(
                || body_start(planner, &query.body),
                |with| planner.text.range(with.with_token.0.span).start,
            );
            let open = planner.text.index_at(inner).saturating_sub(1);
            planner.text.tokens.get(open).map_or(inner, |placed| placed.range.start)
        }
        _ => planner.text.range(body.span()).start.min(planner.text.text.len()),
    }
}

/// Nodes of a plan.
fn count(plan: &Plan) -> usize {
    1 + plan.inputs().into_iter().map(count).sum::<usize>()
}
