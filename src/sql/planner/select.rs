//! SELECT: the list, WHERE, GROUP BY over a window, HAVING.

use std::ops::Range;

use sqlparser::ast::{
    Distinct, Expr as Ast, FunctionArguments, GroupByExpr, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, Spanned, WildcardAdditionalOptions,
};

use super::expression::Scope;
use super::join::{JOINED, time_columns, unqualified};
use super::over::Overs;
use super::window::{Origin, Unwindowed, property_field};
use super::{Planner, Relation, Result};
use crate::expr::aggregate::{self, AggregateCall};
use crate::expr::build::{self, Expr, ExprKind};
use crate::expr::{DataType, Field, Schema};
use crate::sql::parse::single;
use crate::sql::plan::{Node, Plan, WindowKind, WindowProperty, WindowSpec};
use crate::sql::{SqlError, nearest_help};

/// GROUP BY and what stands above it.
struct By<'s> {
    schema: &'s Schema,
    alias: Option<&'s str>,
    /// The keys over FROM, with their places.
    planned: (Vec<Expr>, Vec<Range<usize>>),
    sets: Vec<Vec<usize>>,
    having: Option<&'s Ast>,
    projection: &'s [SelectItem],
    place: Range<usize>,
}

/// Expressions, and the name of each with its place in the text.
type Named = (Vec<Expr>, Vec<(String, Range<usize>)>);

/// What is being grouped, while the expressions above it are planned: they see the keys, then the window's
/// properties, then the aggregates.
pub(super) struct Grouping {
    window: WindowSpec,
    /// For each column of FROM.
    origins: Vec<Origin>,
    /// Over the columns of FROM.
    pub keys: Vec<Expr>,
    /// Some key is more than a column.
    pub computed_keys: bool,
    /// GROUPING SETS: for each set, for each key, whether the set has it. The set's number stands behind the keys.
    pub sets: Option<Vec<Vec<bool>>>,
    properties: Vec<WindowProperty>,
    /// Over the window's input.
    calls: Vec<AggregateCall>,
    /// The rows carry their windows: expressions over the window's own columns can stand below.
    attached: bool,
    /// An expression that must stand below reads the window's own columns.
    pub reads_window: bool,
}

impl Grouping {
    /// The key that equals an expression over FROM.
    pub fn key(&self, expr: &Expr) -> Option<Expr> {
        let index = self.keys.iter().position(|key| key == expr)?;
        Some(build::column(index, expr.data_type.clone()))
    }

    fn property(&self, property: WindowProperty) -> Option<Expr> {
        let index = self.properties.iter().position(|known| *known == property)?;
        let Field { data_type, .. } = property_field(property, &self.window);
        Some(build::column(self.keys_width() + index, data_type))
    }

    /// Columns of the keys, with the number of the grouping set.
    fn keys_width(&self) -> usize {
        self.keys.len() + usize::from(self.sets.is_some())
    }

    /// A column of FROM, seen from above the aggregation.
    pub fn column(&self, column: usize, data_type: DataType) -> std::result::Result<Expr, &'static str> {
        match self.origins.get(column) {
            Some(Origin::Property(property)) => self
                .property(*property)
                .ok_or("add window_time to GROUP BY: GROUP BY window_start, window_end, window_time"),
            _ => self
                .key(&build::column(column, data_type))
                .ok_or("add it to GROUP BY, or aggregate it: MAX(x), COUNT(x), …"),
        }
    }

    /// The aggregate's value; equal calls are computed once.
    pub fn aggregate(&mut self, call: AggregateCall) -> Expr {
        let data_type = call.data_type.clone();
        let index = self.calls.iter().position(|known| *known == call).unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        build::column(self.keys_width() + self.properties.len() + index, data_type)
    }

    /// An expression over FROM as one over the window's input.
    pub fn below(&mut self, expr: Expr) -> Option<Expr> {
        if self.attached {
            return Some(expr);
        }
        let below = super::window::below(&self.origins, expr);
        self.reads_window |= below.is_none();
        below
    }
}

impl Planner<'_> {
    pub(super) fn select(&mut self, select: &Select) -> Result<Plan> {
        let alias = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { expr: _, alias } => Some(alias.value.clone()),
            _ => None,
        };
        let own = select.projection.iter().filter_map(alias).collect();
        let outer = std::mem::replace(&mut self.aliases, own);
        let planned = self.selected(select);
        self.aliases = outer;
        planned
    }

    /// Help where a clause reads a name that only the list of SELECT gives.
    pub(super) fn selected_as(&self, name: &str, clause: &str) -> Option<String> {
        let is_blind = matches!(clause, "SELECT" | "WHERE" | "GROUP BY" | "HAVING");
        let clause = if clause == "SELECT" { "SELECT itself" } else { clause };
        (is_blind && self.aliases.iter().any(|alias| alias == name))
            .then(|| format!("{clause} does not see the names of SELECT: repeat the expression"))
    }

    fn selected(&mut self, select: &Select) -> Result<Plan> {
        let Select {
            select_token,
            optimizer_hints,
            distinct,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        let select_place = self.text.range(select_token.0.span);
        let place = |words: &[&str]| self.text.clause(select_place.start, words);
        let foreign = |words: &[&str], help: &str| {
            let message = format!("{} is not part of Flink SQL", words.join(" "));
            Err(SqlError::new(place(words), message).help(help.to_owned()))
        };
        match distinct {
            None | Some(Distinct::All) => {}
            Some(Distinct::Distinct) => {
                let grouped = grouped_by_its_list(select).ok_or_else(|| {
                    SqlError::new(
                        place(&["DISTINCT"]),
                        "SELECT DISTINCT is not supported: it would keep every row for ever",
                    )
                    .help("group inside a window: GROUP BY window_start, window_end and the columns")
                })?;
                return self.select(&grouped);
            }
            Some(Distinct::On(_)) => {
                let help = "number the rows of each key, and keep the first: SELECT … FROM (SELECT *, ROW_NUMBER() OVER \
                            (PARTITION BY k ORDER BY ts) AS rn FROM t) WHERE rn = 1";
                return foreign(&["DISTINCT", "ON"], help);
            }
        }
        if !optimizer_hints.is_empty() {
            return Err(SqlError::new(select_place, "hints are not supported").help("leave them out"));
        }
        if top.is_some() {
            return foreign(&["TOP"], "leave it out; a column of that name needs back-ticks");
        }
        if select_modifiers.is_some() || value_table_mode.is_some() {
            return Err(
                SqlError::new(select_place, "the word behind SELECT is not part of Flink SQL").help("leave it out")
            );
        }
        if exclude.is_some() {
            return foreign(&["EXCLUDE"], "name the columns");
        }
        if into.is_some() {
            return foreign(&["INTO"], "a [sink.NAME] with `from` takes the rows of a query");
        }
        if !lateral_views.is_empty() {
            return foreign(&["LATERAL", "VIEW"], "leave the clause out");
        }
        if prewhere.is_some() {
            return foreign(&["PREWHERE"], "write WHERE");
        }
        if !connect_by.is_empty() {
            return Err(SqlError::new(select_place, "CONNECT BY is not part of Flink SQL").help("leave the clause out"));
        }
        if !cluster_by.is_empty() {
            return foreign(&["CLUSTER", "BY"], "leave the clause out");
        }
        if !distribute_by.is_empty() {
            return foreign(&["DISTRIBUTE", "BY"], "leave the clause out");
        }
        if !sort_by.is_empty() {
            return foreign(&["SORT", "BY"], "leave the clause out");
        }
        match flavor {
            SelectFlavor::Standard => {}
            SelectFlavor::FromFirst | SelectFlavor::FromFirstNoSelect => {
                return Err(SqlError::new(select_place, "SELECT must stand before FROM").help("write SELECT … FROM …"));
            }
        }
        let relation = self.filtered_from(from, selection.as_ref(), select_place.clone())?;
        let GroupByExpr::Expressions(keys, modifiers) = group_by else {
            return foreign(&["GROUP", "BY", "ALL"], "name the columns of GROUP BY");
        };
        if !modifiers.is_empty() {
            return Err(SqlError::new(place(&["GROUP", "BY"]), "this form of GROUP BY is not part of Flink SQL")
                .help("write GROUP BY window_start, window_end, ROLLUP (a, b)"));
        }
        if let Some(window) = named_window.first().filter(|_| !keys.is_empty()) {
            return Err(SqlError::new(self.text.range(window.0.span), "WINDOW beside GROUP BY is not supported")
                .help("put the GROUP BY into a sub-query"));
        }
        if qualify.is_some() && !keys.is_empty() {
            return Err(SqlError::new(place(&["QUALIFY"]), "QUALIFY beside GROUP BY is not supported")
                .help("put the GROUP BY into a sub-query, and QUALIFY above it"));
        }
        if !keys.is_empty() {
            return self.grouped(relation, keys, having.as_ref(), projection, place(&["GROUP", "BY"]));
        }
        if let Some(having) = having {
            let help = match find_aggregate_below(having) {
                true => windowed(&relation.plan, &[]),
                false => "write WHERE".to_owned(),
            };
            return Err(SqlError::new(self.place(having), "HAVING needs GROUP BY").help(help));
        }
        if let Some((call, name)) = projection.iter().find_map(|item| match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => find_aggregate(expr),
            _ => None,
        }) {
            let message = format!("{name} over the whole stream has no end: its result would never be final");
            let help = match self.unwindow(relation.plan.clone())? {
                Some(_) => "add GROUP BY window_start, window_end".to_owned(),
                None => windowed(&relation.plan, &[]),
            };
            return Err(SqlError::new(self.place(call), message).help(help));
        }
        let schema = relation.plan.schema.clone();
        let times = time_columns(&relation.plan, self.catalog);
        let mut overs = Overs::new(schema.fields.len(), times, named_window);
        let mut scope = Scope::new(&schema, relation.alias.as_deref(), "SELECT");
        scope.overs = Some(&mut overs);
        let (mut exprs, names) = self.list(projection, &mut scope)?;
        let named: Vec<(String, Expr)> = names.iter().map(|(name, _)| name.clone()).zip(exprs.clone()).collect();
        if let Some(qualify) = qualify {
            (scope.place, scope.names) = ("QUALIFY", &named);
            let condition = self.condition(qualify, &mut scope)?;
            if !condition.columns().iter().any(|column| *column >= schema.fields.len()) {
                return Err(SqlError::new(self.place(qualify), "QUALIFY needs a call with OVER").help("write WHERE"));
            }
            exprs.push(condition);
        }
        let (mut plan, mut exprs) = self.over(relation.plan, overs, exprs)?;
        if let (Some(qualify), Some(condition)) = (qualify, exprs.get(names.len())) {
            plan = self.limited(plan, condition.clone(), self.place(qualify))?;
            exprs.truncate(names.len());
        }
        self.project(plan, exprs, names)
    }

    /// The SELECT list; what is wrong with one item does not hide what is wrong with the next.
    fn list(&mut self, projection: &[SelectItem], scope: &mut Scope<'_>) -> Result<Named> {
        let (mut exprs, mut names) = (Vec::new(), Vec::new());
        let mut failure = None;
        for item in projection {
            let result = self.item(item, scope, &mut exprs, &mut names);
            if let Err(error) = result
                && let Some(earlier) = failure.replace(error)
            {
                self.errors.push(earlier);
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok((exprs, names)),
        }
    }

    fn item(
        &mut self,
        item: &SelectItem,
        scope: &mut Scope<'_>,
        exprs: &mut Vec<Expr>,
        names: &mut Vec<(String, Range<usize>)>,
    ) -> Result<()> {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                // Flink names a column after the last part of its path, and everything else by its number.
                let name = match expr {
                    Ast::Identifier(ident) => ident.value.clone(),
                    Ast::CompoundIdentifier(parts) => parts.last().map(|last| last.value.clone()).unwrap_or_default(),
                    _ => format!("EXPR${}", exprs.len()),
                };
                exprs.push(self.expr(expr, scope)?);
                names.push((unused(name, names), self.place(expr)));
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                let planned = self.expr(expr, scope)?;
                names.push((self.name(alias)?, self.text.range(alias.span)));
                exprs.push(planned);
            }
            SelectItem::ExprWithAliases { expr, aliases: _ } => {
                return Err(
                    SqlError::new(self.place(expr), "one column has one name: … AS name").help("write x AS a, y AS b")
                );
            }
            SelectItem::Wildcard(options) => {
                let place = self.wildcard(options)?;
                self.star(scope, None, place, exprs, names)?;
            }
            SelectItem::QualifiedWildcard(kind, options) => {
                let star = self.wildcard(options)?;
                let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else {
                    return Err(
                        SqlError::new(star, "`.*` can stand behind a table only").help("name the fields: x.a, x.b")
                    );
                };
                let place = self.text.range(name.span());
                let ident = single(name).map(|ident| self.name(ident)).transpose()?;
                let joined = scope.alias == Some(JOINED);
                let known = |table: &str| scope.schema.fields.iter().any(|f| f.name.starts_with(&format!("{table}.")));
                if joined && let Some(table) = ident.as_deref().filter(|table| known(table)) {
                    return self.star(scope, Some(table), place, exprs, names);
                }
                if ident.is_none() || ident.as_deref() != scope.alias {
                    let error = SqlError::new(place, format!("unknown table `{name}`"));
                    let known = scope.alias.filter(|_| !joined).map(|alias| format!("write {alias}.* or *"));
                    return Err(error.help("write *").help_if(known));
                }
                self.star(scope, None, place, exprs, names)?;
            }
        }
        Ok(())
    }

    fn wildcard(&self, options: &WildcardAdditionalOptions) -> Result<Range<usize>> {
        let WildcardAdditionalOptions {
            wildcard_token,
            opt_ilike,
            opt_exclude,
            opt_except,
            opt_replace,
            opt_rename,
            opt_alias,
        } = options;
        let place = self.text.range(wildcard_token.0.span);
        if opt_ilike.is_some()
            || opt_exclude.is_some()
            || opt_except.is_some()
            || opt_replace.is_some()
            || opt_rename.is_some()
            || opt_alias.is_some()
        {
            return Err(SqlError::new(place, "a clause behind `*` is not part of Flink SQL").help("name the columns"));
        }
        Ok(place)
    }

    fn star(
        &self,
        scope: &Scope<'_>,
        table: Option<&str>,
        place: Range<usize>,
        exprs: &mut Vec<Expr>,
        names: &mut Vec<(String, Range<usize>)>,
    ) -> Result<()> {
        let joined = scope.alias == Some(JOINED);
        let by_name = |field: &Field| !field.hidden && joined && !field.name.contains('.');
        if table.is_some() && scope.schema.fields.iter().any(by_name) {
            return Err(
                SqlError::new(place, "a table's `.*` behind a join by name is not supported").help("name the columns")
            );
        }
        for (index, field) in scope.schema.fields.iter().enumerate().filter(|(_, field)| !field.hidden) {
            let of_table = |table: &str| field.name.split_once('.').is_some_and(|(own, _)| own == table);
            if table.is_some_and(|table| !of_table(table)) {
                continue;
            }
            let name = if joined { unqualified(&field.name) } else { field.name.as_str() };
            let column = match &scope.grouping {
                None => build::column(index, field.data_type.clone()),
                Some(grouping) => grouping.column(index, field.data_type.clone()).map_err(|_| {
                    let message = format!("`*` stands for `{}` too, which is not in GROUP BY", field.name);
                    SqlError::new(place.clone(), message).help("name the columns")
                })?,
            };
            exprs.push(column);
            names.push((unused(name.to_owned(), names), place.clone()));
        }
        Ok(())
    }

    /// GROUP BY over a window function, which then assigns windows in the aggregation itself, or else over rows that
    /// carry their windows.
    fn grouped(
        &mut self,
        relation: Relation,
        keys: &[Ast],
        having: Option<&Ast>,
        projection: &[SelectItem],
        place: Range<usize>,
    ) -> Result<Plan> {
        let Relation { plan, alias } = relation;
        let schema = plan.schema.clone();
        let columns = keys.iter().filter(|key| matches!(key, Ast::Identifier(_) | Ast::CompoundIdentifier(_)));
        let columns: Vec<&str> = columns.map(|key| self.text.slice(self.place(key))).collect();
        let help = windowed(&plan, &columns);
        let (keys, sets) = self.grouping_sets(keys, &place)?;
        let planned = self.keys(&keys, &schema, alias.as_deref(), &help)?;
        let by =
            By { schema: &schema, alias: alias.as_deref(), planned, sets, having, projection, place: place.clone() };
        let attached = self.attached_windows(&plan, &by.planned.0);
        let (aggregated, errors) = (is_aggregated(&plan), self.errors.len());
        if let Some(unwindowed) = self.unwindow(plan.clone())? {
            let mut above = false;
            let result = self.grouped_over(&by, unwindowed, false, &mut above);
            if result.is_ok() || !above || attached.is_none() {
                return result;
            }
            self.errors.truncate(errors);
        }
        if let Some((window, origins)) = attached {
            return self.grouped_over(&by, Unwindowed { input: plan, window, origins }, true, &mut false);
        }
        if aggregated {
            return Err(SqlError::new(
                place,
                "GROUP BY over the result of a window must name its window_start and window_end",
            )
            .help(
                "select and group by both; or, for a longer window, group by window_time too in the inner query, \
                       select it, and put TUMBLE over it: DESCRIPTOR(window_time)",
            ));
        }
        Err(SqlError::new(place, "GROUP BY without a window is not supported: its groups would never end").help(help))
    }

    fn grouped_over(&mut self, by: &By<'_>, unwindowed: Unwindowed, attached: bool, above: &mut bool) -> Result<Plan> {
        let By { schema, alias, planned: (planned, places), sets, having, projection, place } = by;
        let (schema, place) = (*schema, place.clone());
        let Unwindowed { input, window, origins } = unwindowed;
        let mut grouping = Grouping {
            window,
            origins,
            keys: Vec::new(),
            computed_keys: false,
            sets: None,
            properties: Vec::new(),
            calls: Vec::new(),
            attached,
            reads_window: false,
        };
        let mut below = Vec::new();
        // For each key of the grouping, which of the keys as written are it.
        let mut written: Vec<Vec<usize>> = Vec::new();
        for (index, (key, key_place)) in planned.iter().zip(places).enumerate() {
            let origin = match key.kind {
                ExprKind::Column(column) => grouping.origins.get(column),
                _ => None,
            };
            if let Some(Origin::Property(property)) = origin {
                if !sets.iter().all(|set| set.contains(&index)) {
                    return Err(SqlError::new(key_place.clone(), "the window's columns must be in every grouping set")
                        .help("write GROUP BY window_start, window_end, GROUPING SETS (…)"));
                }
                if !grouping.properties.contains(property) {
                    grouping.properties.push(*property);
                }
                continue;
            }
            let Some(key_below) = grouping.below(key.clone()) else {
                *above = true;
                return Err(SqlError::new(
                    key_place.clone(),
                    "a key computed from the window's own columns needs both",
                )
                .help("group by window_start and window_end too"));
            };
            if let Some(known) = grouping.keys.iter().position(|known| known == key) {
                written.get_mut(known).into_iter().for_each(|written| written.push(index));
            } else {
                grouping.computed_keys |= !matches!(key.kind, ExprKind::Column(_));
                grouping.keys.push(key.clone());
                below.push(key_below);
                written.push(vec![index]);
            }
        }
        let missing: Vec<&str> = [(WindowProperty::Start, "window_start"), (WindowProperty::End, "window_end")]
            .into_iter()
            // The start of an attached window is a key like others.
            .filter(|(property, _)| !grouping.properties.contains(property) && !attached)
            .map(|(_, name)| name)
            .collect();
        if !missing.is_empty() {
            let message =
                format!("GROUP BY over a window must name {}: else its groups would never end", missing.join(" and "));
            return Err(SqlError::new(place, message).help("write GROUP BY window_start, window_end and your keys"));
        }
        if let WindowKind::Session { partition, .. } = &grouping.window.kind {
            let column = |key: &Expr| if let ExprKind::Column(column) = key.kind { Some(column) } else { None };
            let mut keys: Vec<Option<usize>> = below.iter().map(column).collect();
            let mut wanted: Vec<Option<usize>> = partition.iter().copied().map(Some).collect();
            keys.sort_unstable();
            wanted.sort_unstable();
            wanted.dedup();
            if keys != wanted {
                return Err(SqlError::new(place, "GROUP BY over SESSION must name the columns of its PARTITION BY")
                    .help("write SESSION(TABLE t PARTITION BY (a, b), …) GROUP BY window_start, window_end, a, b"));
            }
        }
        let (mut input, mut below) = (input, below);
        if sets.len() > 1 {
            let has = |set: &Vec<usize>| {
                written.iter().map(|written| written.iter().any(|index| set.contains(index))).collect::<Vec<bool>>()
            };
            let sets: Vec<Vec<bool>> = sets.iter().map(has).collect();
            grouping.sets = Some(sets.clone());
            (input, below) = self.expand(input, below, sets)?;
        }
        let mut scope = Scope::new(schema, *alias, "SELECT");
        scope.grouping = Some(&mut grouping);
        let list = self.list(projection, &mut scope);
        scope.place = "HAVING";
        let having = having.map(|having| self.condition(having, &mut scope)).transpose();
        *above |= grouping.reads_window;
        let (exprs, names) = list?;
        let having = having?;
        let keys_width = grouping.keys_width();
        let Grouping { window, keys, properties, calls, .. } = grouping;
        let mut fields = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let name = match key.kind {
                ExprKind::Column(column) => schema.fields.get(column).map(|field| field.name.clone()),
                _ => None,
            };
            fields.push(Field::new(name.unwrap_or_else(|| format!("key${index}")), key.data_type.clone()));
        }
        if keys_width > keys.len() {
            fields.push(Field { hidden: true, ..Field::new("grouping set", DataType::Int) });
        }
        fields.extend(properties.iter().map(|property| property_field(*property, &window)));
        let calls_at = fields.len();
        fields.extend(calls.iter().enumerate().map(|(i, call)| Field::new(format!("agg${i}"), call.data_type.clone())));
        let time = properties.iter().position(|property| *property == WindowProperty::Time).map(|at| keys_width + at);
        debug_assert_eq!(calls_at, keys_width + properties.len());
        let node = Node::WindowAggregate { input: Box::new(input), window, keys: below, properties, aggregates: calls };
        let schema = Schema { fields, time };
        let mut plan = self.node(node, schema.clone())?;
        if let Some(predicate) = having {
            plan = self.node(Node::Filter { input: Box::new(plan), predicate }, schema)?;
        }
        self.project(plan, exprs, names)
    }

    /// The expressions of GROUP BY, over the columns of FROM.
    fn keys(
        &mut self,
        keys: &[&Ast],
        schema: &Schema,
        alias: Option<&str>,
        help: &str,
    ) -> Result<(Vec<Expr>, Vec<Range<usize>>)> {
        let (mut planned, mut places) = (Vec::new(), Vec::new());
        for key in keys.iter().copied() {
            let place = self.place(key);
            match key {
                Ast::Value(_) => {
                    return Err(SqlError::new(place, "a constant groups nothing (a number is no position here)")
                        .help("name the column or repeat the expression"));
                }
                Ast::Function(function) => {
                    let name = single(&function.name).map(|name| name.value.to_ascii_uppercase()).unwrap_or_default();
                    if matches!(name.as_str(), "TUMBLE" | "HOP" | "SESSION") {
                        return Err(SqlError::new(place, format!("GROUP BY {name}(…) is the old form of windows"))
                            .help(self.legacy(function, help)));
                    }
                }
                _ => {}
            }
            let mut scope = Scope::new(schema, alias, "GROUP BY");
            let expr = self.expr(key, &mut scope)?;
            self.check_comparable(key, &expr, "a key of GROUP BY")?;
            planned.push(expr);
            places.push(place);
        }
        Ok((planned, places))
    }

    /// The table-function form of `GROUP BY TUMBLE(ts, INTERVAL …)`.
    fn legacy(&self, function: &sqlparser::ast::Function, help: &str) -> String {
        let FunctionArguments::List(list) = &function.args else { return help.to_owned() };
        let args: Vec<&str> = list.args.iter().map(|arg| self.text.slice(self.argument_place(arg))).collect();
        let (Some(window), Some((time, rest))) = (single(&function.name), args.split_first()) else {
            return help.to_owned();
        };
        help.replace("TUMBLE", &window.value.to_ascii_uppercase())
            .replace("DESCRIPTOR(ts)", &format!("DESCRIPTOR({time})"))
            .replace("INTERVAL '10' SECOND", &rest.join(", "))
    }
}

/// A name that no column has yet: as Flink, with a number behind it where it is there already.
fn unused(name: String, names: &[(String, Range<usize>)]) -> String {
    let is_used = |name: &String| names.iter().any(|(used, _)| used == name);
    if !is_used(&name) {
        return name;
    }
    (0_usize..).map(|number| format!("{name}{number}")).find(|name| !is_used(name)).unwrap_or(name)
}

/// The form to write instead of an unbounded aggregation over `plan` by these keys.
fn windowed(plan: &Plan, keys: &[&str]) -> String {
    let mut leaf = plan;
    let table = loop {
        match (&leaf.node, leaf.inputs().as_slice()) {
            (Node::Scan { relation }, _) => break format!("TABLE {relation}"),
            (_, [input]) => leaf = *input,
            _ => break "(SELECT …)".to_owned(),
        }
    };
    let time = plan.schema.time.and_then(|time| plan.schema.fields.get(time)).map_or("ts", |field| &field.name);
    let time = if time == "window_time" { "ts" } else { time };
    let by = [&["window_start", "window_end"], keys].concat().join(", ");
    format!("write FROM TABLE(TUMBLE({table}, DESCRIPTOR({time}), INTERVAL '10' SECOND)) GROUP BY {by}")
}

/// Whether the rows are results of a window.
fn is_aggregated(plan: &Plan) -> bool {
    match &plan.node {
        Node::WindowAggregate { .. } => true,
        Node::Project { input, .. }
        | Node::Filter { input, .. }
        | Node::Over { input, .. }
        | Node::Lookup { input, .. }
        | Node::Rank { input, .. } => is_aggregated(input),
        Node::UnionAll { inputs } => inputs.iter().any(is_aggregated),
        Node::Unnest { input, .. } => is_aggregated(input),
        Node::Join { left, right, .. } => is_aggregated(left) || is_aggregated(right),
        // A match is no result of the window that its rows came from.
        Node::Scan { .. } | Node::Window { .. } | Node::Expand { .. } | Node::Match { .. } => false,
    }
}

/// An aggregate in an expression, as far as a query without GROUP BY would have one: at the top or in arithmetic.
fn find_aggregate(expr: &Ast) -> Option<(&Ast, String)> {
    match expr {
        Ast::Function(function) if function.over.is_none() => {
            let name = single(&function.name)?.value.to_ascii_uppercase();
            aggregate::kind_of(&name).map(|_| (expr, name))
        }
        Ast::Nested(inner) => find_aggregate(inner),
        _ => None,
    }
}

/// Whether a condition has an aggregate, as far as comparisons and AND, OR, NOT go.
fn find_aggregate_below(expr: &Ast) -> bool {
    match expr {
        Ast::BinaryOp { left, op: _, right } => find_aggregate_below(left) || find_aggregate_below(right),
        Ast::UnaryOp { op: _, expr } => find_aggregate_below(expr),
        _ => find_aggregate(expr).is_some(),
    }
}

/// Help for a name that is no column.
pub(super) fn column_help(name: &str, schema: &Schema) -> Option<String> {
    if matches!(name, "window_start" | "window_end" | "window_time") {
        return Some(format!("`{name}` comes from a window: FROM TABLE(TUMBLE(TABLE …, DESCRIPTOR(…), INTERVAL …))"));
    }
    nearest_help(name, schema.fields.iter().map(|field| field.name.as_str())).or_else(|| {
        if schema.fields.is_empty() {
            return Some("a constant must stand here".to_owned());
        }
        let visible = schema.fields.iter().filter(|field| !field.hidden);
        let list: Vec<String> = visible.map(|field| format!("`{}`", field.name.trim_start_matches('.'))).collect();
        let mut length = 0;
        let fits = |name: &&String| {
            length += name.len() + 2;
            length <= 200
        };
        let shown: Vec<&str> = list.iter().take_while(fits).map(String::as_str).collect();
        let more = if shown.len() < list.len() { ", …" } else { "" };
        (!shown.is_empty()).then(|| format!("there are {}{more}", shown.join(", ")))
    })
}

/// `SELECT DISTINCT` of columns of a window, its start and end among them, as the GROUP BY of its list.
fn grouped_by_its_list(select: &Select) -> Option<Select> {
    let is_plain = matches!(&select.group_by, GroupByExpr::Expressions(keys, w) if keys.is_empty() && w.is_empty())
        && select.having.is_none()
        && select.qualify.is_none()
        && select.named_window.is_empty();
    let item = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, alias: _ } => Some(expr.clone()),
        _ => None,
    };
    let keys = select.projection.iter().map(item).collect::<Option<Vec<Ast>>>()?;
    let has = |wanted: &str| {
        keys.iter().any(|key| match key {
            Ast::Identifier(ident) => ident.value == wanted,
            Ast::CompoundIdentifier(parts) => parts.last().is_some_and(|last| last.value == wanted),
            _ => false,
        })
    };
    let is_windowed = has("window_start") && has("window_end") && !keys.iter().any(|key| find_aggregate(key).is_some());
    let group_by = GroupByExpr::Expressions(keys.clone(), Vec::new());
    (is_plain && is_windowed).then(|| Select { distinct: None, group_by, ..select.clone() })
}
