//! Window table functions, and the way from a GROUP BY back to its window.

use std::ops::Range;

use sqlparser::ast::{
    Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, Spanned, TableFunctionArgs,
};

use super::expression::Scope;
use super::join::time_columns;
use super::{Planner, Result};
use crate::expr::build::{self, Expr, ExprKind, Value};
use crate::expr::{DataType, Field, Schema};
use crate::sql::parse::single;
use crate::sql::plan::{JoinKind, Node, Plan, WindowKind, WindowProperty, WindowSpec};
use crate::sql::{Catalog, SqlError, nearest_help};

/// Names and types of a window's own columns.
const COLUMNS: [(&str, WindowProperty); 3] = [
    ("window_start", WindowProperty::Start),
    ("window_end", WindowProperty::End),
    ("window_time", WindowProperty::Time),
];

const FORM: &str = "write TUMBLE(TABLE name, DESCRIPTOR(time_column), INTERVAL '10' SECOND)";

/// Most windows that one row can fall into.
const WINDOWS_MAX: i64 = 10_000;

/// A window table function.
#[derive(Clone, Copy)]
struct WindowFunction {
    name: &'static str,
    /// In the order of positional arguments.
    arguments: &'static [&'static str],
    form: &'static str,
}

const FUNCTIONS: [WindowFunction; 4] = [
    WindowFunction { name: "TUMBLE", arguments: &["DATA", "TIMECOL", "SIZE", "OFFSET"], form: FORM },
    WindowFunction {
        name: "HOP",
        arguments: &["DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"],
        form: "the slide comes first: \
               HOP(TABLE name, DESCRIPTOR(time_column), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)",
    },
    WindowFunction {
        name: "CUMULATE",
        arguments: &["DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"],
        form: "the step comes first: \
               CUMULATE(TABLE name, DESCRIPTOR(time_column), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
    },
    WindowFunction {
        name: "SESSION",
        arguments: &["DATA", "TIMECOL", "GAP"],
        form: "write SESSION(TABLE name PARTITION BY key, DESCRIPTOR(time_column), INTERVAL '10' MINUTE)",
    },
];

/// The property's name and type in a window over `spec`.
pub(super) fn property_field(property: WindowProperty, spec: &WindowSpec) -> Field {
    let (name, data_type) = match property {
        WindowProperty::Start => ("window_start", DataType::Timestamp(3)),
        WindowProperty::End => ("window_end", DataType::Timestamp(3)),
        WindowProperty::Time => ("window_time", spec.time_type.clone()),
    };
    Field::new(name, data_type)
}

/// What a column of a relation over a window is, seen from the window's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Column of the input.
    Input(usize),
    Property(WindowProperty),
    /// Computed from the window's own columns.
    Mixed,
}

/// A relation over a window, taken apart: what the window reads, with all that stands above it pushed below.
pub(super) struct Unwindowed {
    pub input: Plan,
    pub window: WindowSpec,
    /// For each column of the relation.
    pub origins: Vec<Origin>,
}

impl Planner<'_> {
    /// `FROM TABLE(TUMBLE(…))`.
    pub(super) fn window_of_expr(&mut self, expr: &Ast) -> Result<Plan> {
        let refuse = || Err(SqlError::new(self.place(expr), "TABLE( ) needs a window function").help(FORM));
        let Ast::Function(function) = expr else { return refuse() };
        let Function { name, uses_odbc_syntax, parameters, args, within_group, filter, null_treatment, over } =
            function;
        let FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args, clauses }) = args else {
            return refuse();
        };
        if *uses_odbc_syntax
            || *parameters != FunctionArguments::None
            || !within_group.is_empty()
            || filter.is_some()
            || null_treatment.is_some()
            || over.is_some()
            || duplicate_treatment.is_some()
            || !clauses.is_empty()
        {
            return Err(SqlError::new(self.place(expr), "a window function takes no such clause").help(FORM));
        }
        self.window_function(name, args)
    }

    /// `FROM TUMBLE(…)`.
    pub(super) fn window_of_factor(&mut self, name: &ObjectName, args: &TableFunctionArgs) -> Result<Plan> {
        let TableFunctionArgs { args, settings } = args;
        if settings.is_some() {
            let place = self.text.range(name.span());
            return Err(SqlError::new(place, "SETTINGS is not part of Flink SQL").help(FORM));
        }
        self.window_function(name, args)
    }

    fn window_function(&mut self, name: &ObjectName, args: &[FunctionArg]) -> Result<Plan> {
        let place = self.text.range(name.span());
        let word = single(name).map(|ident| ident.value.to_ascii_uppercase()).unwrap_or_default();
        let Some(function) = FUNCTIONS.iter().find(|function| function.name == word) else {
            return Err(match word.as_str() {
                "UNNEST" => SqlError::new(place, "UNNEST must follow a relation")
                    .help("write FROM t CROSS JOIN UNNEST(t.samples) AS s (x)"),
                _ => {
                    let help = nearest_help(&word, FUNCTIONS.iter().map(|function| function.name));
                    SqlError::new(place, format!("unknown table function `{name}`")).help(FORM).help_if(help)
                }
            });
        };
        let call = place.start
            ..self
                .text
                .closing(self.text.index_at(place.end))
                .and_then(|i| self.text.tokens.get(i))
                .map_or(place.end, |p| p.range.end);
        let arguments = self.arguments(args, function, &call)?;
        let argument = |name: &str| {
            let index = function.arguments.iter().position(|argument| *argument == name);
            index.and_then(|index| arguments.get(index).copied().flatten())
        };
        let needed = |name: &str| {
            argument(name).ok_or_else(|| {
                let what = match name {
                    "DATA" => "table",
                    "TIMECOL" => "time column",
                    name => &name.to_ascii_lowercase(),
                };
                SqlError::new(call.clone(), format!("{} lacks the {what}", function.name)).help(function.form)
            })
        };
        let data = needed("DATA")?;
        let descriptor = needed("TIMECOL")?;
        let (input, partition) = self.window_input(data)?;
        let time_column = self.descriptor(descriptor, &input)?;
        let kind = match function.name {
            "SESSION" => {
                let mut columns = Vec::new();
                for ident in partition {
                    columns.push(self.partition_column(ident, &input)?);
                }
                WindowKind::Session { gap_ms: self.positive(needed("GAP")?, "gap")?, partition: columns }
            }
            _ if !partition.is_empty() => {
                let message = format!("{} takes no PARTITION BY: only SESSION does", function.name);
                return Err(SqlError::new(self.place(data), message).help("leave it out and name the keys in GROUP BY"));
            }
            name => {
                let slice = match name {
                    "HOP" => Some(("slide", needed("SLIDE")?)),
                    "CUMULATE" => Some(("step", needed("STEP")?)),
                    _ => None,
                };
                self.cut(function, slice, needed("SIZE")?, argument("OFFSET"))?
            }
        };
        for (name, _) in COLUMNS {
            if input.schema.index_of(name).is_some() {
                return Err(SqlError::new(
                    self.place(data),
                    format!("the window's input already has a column `{name}`"),
                )
                .help(format!("rename it before: SELECT {name} AS inner_{name}, …")));
            }
        }
        let time_type = input.schema.type_of(time_column).cloned().unwrap_or(DataType::TimestampLtz(3));
        let window = WindowSpec { kind, time_column, time_type };
        let mut fields = input.schema.fields.clone();
        fields.extend(COLUMNS.map(|(_, property)| property_field(property, &window)));
        let schema = Schema { time: Some(fields.len() - 1), fields };
        self.node(Node::Window { input: Box::new(input), window }, schema)
    }

    /// Windows of a fixed size.
    fn cut(
        &mut self,
        function: &WindowFunction,
        slice: Option<(&str, &Ast)>,
        size: &Ast,
        offset: Option<&Ast>,
    ) -> Result<WindowKind> {
        let size_ms = self.positive(size, "size")?;
        let slice_ms = slice.map_or(Ok(size_ms), |(name, slice)| self.positive(slice, name))?;
        if let Some((name, _)) = slice
            && size_ms % slice_ms != 0
        {
            let message = format!(
                "the size of a {} window must be a multiple of its {name}: {size_ms} ms is none of {slice_ms} ms",
                function.name
            );
            return Err(SqlError::new(self.place(size), message).help(function.form));
        }
        let windows = size_ms / slice_ms;
        if windows > WINDOWS_MAX {
            let message = format!("each row would fall into {windows} windows; at most {WINDOWS_MAX} are taken");
            return Err(SqlError::new(self.place(size), message).help("use a longer slide or step, or a smaller size"));
        }
        let offset_ms = offset.map_or(Ok(0), |offset| self.milliseconds(offset))?;
        if offset_ms.checked_abs().is_none_or(|offset_ms| offset_ms >= size_ms) {
            let place = self.place(offset.unwrap_or(size));
            return Err(SqlError::new(place, "the offset of a window must be less than its size")
                .help("take the remainder: of windows of an hour, 70 minutes are 10"));
        }
        Ok(match function.name {
            "HOP" => WindowKind::Hop { size_ms, slide_ms: slice_ms, offset_ms },
            "CUMULATE" => WindowKind::Cumulate { size_ms, step_ms: slice_ms, offset_ms },
            _ => WindowKind::Tumble { size_ms, offset_ms },
        })
    }

    fn partition_column(&self, ident: &Ident, input: &Plan) -> Result<usize> {
        let (name, place) = (self.name(ident)?, self.text.range(ident.span));
        let Some(column) = input.schema.index_of(&name) else {
            let error = SqlError::new(place, format!("unknown column `{name}`"));
            return Err(error.help_if(super::select::column_help(&name, &input.schema)));
        };
        match input.schema.type_of(column) {
            Some(data_type) if data_type.has_map() => {
                let message = format!("PARTITION BY cannot take {data_type}: a MAP cannot be compared");
                Err(SqlError::new(place, message).help("take a value of it in a sub-query: m['key'] AS k"))
            }
            _ => Ok(column),
        }
    }

    /// Refuses `TABLE t PARTITION BY a, b, DESCRIPTOR(…)`, whose second column would be an argument.
    fn check_partition_columns(&self, args: &[FunctionArg]) -> Result<()> {
        let Some((FunctionArg::Unnamed(FunctionArgExpr::Expr(data)), rest)) = args.split_first() else { return Ok(()) };
        let first = match data {
            Ast::Prefixed { prefix: _, value } => value.as_ref(),
            query => query,
        };
        let Ast::Tuple(items) = first else { return Ok(()) };
        let is_column = |arg: &&FunctionArg| {
            matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Identifier(_) | Ast::CompoundIdentifier(_))))
        };
        let more = rest.iter().take_while(is_column).map(|arg| self.text.slice(self.argument_place(arg)));
        let columns = items.iter().skip(1).map(|column| self.text.slice(self.place(column)));
        let columns: Vec<&str> = columns.chain(more).collect();
        match rest.first().filter(|arg| is_column(arg)) {
            Some(extra) => {
                let error =
                    SqlError::new(self.argument_place(extra), "several columns of PARTITION BY need parentheses");
                Err(error.help(format!("write PARTITION BY ({})", columns.join(", "))))
            }
            None => Ok(()),
        }
    }

    /// The arguments in the function's order, positional or all named.
    fn arguments<'e>(
        &self,
        args: &'e [FunctionArg],
        function: &WindowFunction,
        call: &Range<usize>,
    ) -> Result<Vec<Option<&'e Ast>>> {
        let WindowFunction { name: function, arguments: names, form } = *function;
        self.check_partition_columns(args)?;
        let mut found: Vec<Option<&Ast>> = vec![None; names.len()];
        let mut named = 0;
        for (index, arg) in args.iter().enumerate() {
            let (slot, arg) = match arg {
                FunctionArg::Unnamed(arg) => (index, arg),
                FunctionArg::Named { name, arg, operator } => {
                    let place = self.text.range(name.span);
                    if *operator != FunctionArgOperator::RightArrow {
                        return Err(SqlError::new(place, "arguments are named with `=>`")
                            .help("write for example SIZE => INTERVAL '10' SECOND"));
                    }
                    let word = self.name(name)?.to_ascii_uppercase();
                    let Some(slot) = names.iter().position(|known| *known == word) else {
                        let help = nearest_help(&word, names.iter().copied());
                        return Err(SqlError::new(place, format!("{function} has no argument `{}`", name.value))
                            .help(format!("its arguments are {}", names.join(", ")))
                            .help_if(help));
                    };
                    named += 1;
                    (slot, arg)
                }
                FunctionArg::ExprNamed { .. } => {
                    return Err(SqlError::new(self.text.range(arg.span()), "arguments are named with `=>`")
                        .help("write for example SIZE => INTERVAL '10' SECOND"));
                }
            };
            let FunctionArgExpr::Expr(arg) = arg else {
                return Err(SqlError::new(call.clone(), "`*` is no argument of a window function").help(form));
            };
            match found.get_mut(slot) {
                Some(slot) if slot.is_none() => *slot = Some(arg),
                Some(_) => return Err(SqlError::new(self.place(arg), "this argument is there twice").help(form)),
                None => {
                    return Err(SqlError::new(
                        self.place(arg),
                        format!("{function} takes at most {} arguments", names.len()),
                    )
                    .help(form));
                }
            }
        }
        if named != 0 && named != args.len() {
            return Err(SqlError::new(call.clone(), "name all arguments of a window function, or none").help(form));
        }
        Ok(found)
    }

    /// `TABLE name [PARTITION BY …]` or `(SELECT …)`: the rows, and the columns of PARTITION BY.
    fn window_input<'e>(&mut self, data: &'e Ast) -> Result<(Plan, Vec<&'e Ident>)> {
        match data {
            Ast::Subquery(query) => Ok((self.query(query)?, Vec::new())),
            // `(SELECT …) PARTITION BY …`, as the dialect hands it over.
            Ast::Tuple(items) if let Some((Ast::Subquery(query), columns)) = items.split_first() => {
                let column = |column: &'e Ast| if let Ast::Identifier(ident) = column { Some(ident) } else { None };
                Ok((self.query(query)?, columns.iter().filter_map(column).collect()))
            }
            Ast::Prefixed { prefix, value } if prefix.value.eq_ignore_ascii_case("TABLE") => {
                let (table, columns) = match value.as_ref() {
                    Ast::Tuple(items) => (items.first(), items.get(1..).unwrap_or_default()),
                    table => (Some(table), [].as_slice()),
                };
                let Some(Ast::CompoundIdentifier(parts)) = table else {
                    return Err(SqlError::new(self.place(data), "the name of a table must follow TABLE").help(FORM));
                };
                let columns = columns.iter().filter_map(|column| match column {
                    Ast::Identifier(ident) => Some(ident),
                    _ => None,
                });
                let name = ObjectName::from(parts.clone());
                let place = self.text.range(name.span());
                Ok((self.scan(&name, &place)?, columns.collect()))
            }
            Ast::Identifier(Ident { value, .. }) => {
                Err(SqlError::new(self.place(data), "the first argument of a window function is a table")
                    .help(format!("write TABLE {value}")))
            }
            _ => Err(SqlError::new(self.place(data), "the first argument of a window function is a table").help(FORM)),
        }
    }

    /// `DESCRIPTOR(column)`: the time attribute's index.
    fn descriptor(&self, descriptor: &Ast, input: &Plan) -> Result<usize> {
        let place = self.place(descriptor);
        let wrong =
            || Err(SqlError::new(place.clone(), "the time column must be given as DESCRIPTOR(column)").help(FORM));
        let Ast::Function(Function {
            name,
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            args: FunctionArguments::List(list),
            within_group,
            filter: None,
            null_treatment: None,
            over: None,
        }) = descriptor
        else {
            return wrong();
        };
        if !within_group.is_empty() || !single(name).is_some_and(|name| name.value.eq_ignore_ascii_case("DESCRIPTOR")) {
            return wrong();
        }
        let FunctionArgumentList { duplicate_treatment: None, args, clauses } = list else { return wrong() };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Identifier(ident)))] = args.as_slice() else {
            return wrong();
        };
        if !clauses.is_empty() {
            return wrong();
        }
        let column = self.name(ident)?;
        let place = self.text.range(ident.span);
        let schema = &input.schema;
        let time = schema.time.and_then(|time| schema.fields.get(time));
        let Some(index) = schema.index_of(&column) else {
            let names = schema.fields.iter().map(|field| field.name.as_str());
            return Err(SqlError::new(place, format!("unknown column `{column}`"))
                .help("this relation has no time attribute: pass the source's time column through unchanged")
                .help_if(time.map(|time| format!("the time attribute is `{}`", time.name)))
                .help_if(nearest_help(&column, names)));
        };
        if time_columns(input, self.catalog).contains(&index) {
            return Ok(index);
        }
        let error =
            SqlError::new(place, format!("`{column}` is not a time attribute, so no watermark closes its windows"));
        Err(match time {
            Some(time) => error.help(format!("the time attribute here is `{}`", time.name)),
            None => {
                error.help("this relation has none: pass the source's time column (or window_time) through unchanged")
            }
        })
    }

    /// The length of a constant interval above zero.
    fn positive(&mut self, length: &Ast, name: &str) -> Result<i64> {
        match self.milliseconds(length)? {
            ms if ms > 0 => Ok(ms),
            _ => Err(SqlError::new(self.place(length), format!("the {name} of a window must be more than zero"))
                .help("write for example INTERVAL '10' SECOND")),
        }
    }

    /// The length of a constant interval.
    fn milliseconds(&mut self, size: &Ast) -> Result<i64> {
        let schema = Schema::default();
        let expr = self.expr(size, &mut Scope::new(&schema, None, "the size of a window"))?;
        let place = self.place(size);
        match (&expr.kind, &expr.data_type) {
            (ExprKind::Literal(Value::Integer(ms)), DataType::IntervalDayTime) => Ok(*ms),
            (_, DataType::IntervalYearMonth) => Err(SqlError::new(place, "a window cannot last months or years")
                .help("their lengths differ: give the size in days, hours, minutes or seconds")),
            (_, other) => Err(SqlError::new(place, format!("the size of a window must be an INTERVAL, not {other}"))
                .help("write for example INTERVAL '10' SECOND")),
        }
    }

    /// Takes a relation over a window apart, for a GROUP BY above it; `None`: there is no window, or what stands above it
    /// reads the window's own columns.
    pub(super) fn unwindow(&mut self, plan: Plan) -> Result<Option<Unwindowed>> {
        let Plan { node, schema } = plan;
        match node {
            Node::Window { input, window } => {
                let mut origins: Vec<Origin> = (0..input.schema.fields.len()).map(Origin::Input).collect();
                origins.extend(COLUMNS.map(|(_, property)| Origin::Property(property)));
                Ok(Some(Unwindowed { input: *input, window, origins }))
            }
            Node::Filter { input, predicate } => {
                let Some(below) = self.unwindow(*input)? else { return Ok(None) };
                let Some(predicate) = below.below(predicate) else { return Ok(None) };
                let schema = below.input.schema.clone();
                let input = self.node(Node::Filter { input: Box::new(below.input), predicate }, schema)?;
                Ok(Some(Unwindowed { input, ..below }))
            }
            Node::Project { input, exprs } => {
                let Some(below) = self.unwindow(*input)? else { return Ok(None) };
                let mut window = below.window.clone();
                let (mut inputs, mut fields, mut origins) = (Vec::new(), Vec::new(), Vec::new());
                for (expr, field) in exprs.into_iter().zip(schema.fields) {
                    let property = match expr.kind {
                        ExprKind::Column(column) => {
                            below.origins.get(column).filter(|o| !matches!(o, Origin::Input(_)))
                        }
                        _ => None,
                    };
                    origins.push(match (property.cloned(), below.below(expr)) {
                        (Some(property), _) => property,
                        (None, Some(expr)) => {
                            inputs.push(expr);
                            fields.push(field);
                            Origin::Input(inputs.len() - 1)
                        }
                        (None, None) => Origin::Mixed,
                    });
                }
                // The window needs its time attribute, whether the projection passed it on or not.
                let is_time = |expr: &Expr| expr.kind == ExprKind::Column(window.time_column);
                let time = inputs.iter().position(is_time).unwrap_or_else(|| {
                    inputs.push(build::column(window.time_column, window.time_type.clone()));
                    let hidden = below.input.schema.fields.get(window.time_column);
                    let name = hidden.map_or("time", |field| field.name.as_str());
                    fields.push(Field { hidden: true, ..Field::new(format!("{name}$"), window.time_type.clone()) });
                    inputs.len() - 1
                });
                window.time_column = time;
                if let WindowKind::Session { partition, .. } = &mut window.kind {
                    for column in partition {
                        let own = |expr: &Expr| expr.kind == ExprKind::Column(*column);
                        *column = inputs.iter().position(own).unwrap_or_else(|| {
                            let field = below.input.schema.fields.get(*column);
                            let data_type = field.map_or(DataType::Null, |field| field.data_type.clone());
                            let name = field.map_or("key", |field| field.name.as_str());
                            fields.push(Field { hidden: true, ..Field::new(format!("{name}$"), data_type.clone()) });
                            inputs.push(build::column(*column, data_type));
                            inputs.len() - 1
                        });
                    }
                }
                let schema = Schema { fields, time: Some(time) };
                let input = self.node(Node::Project { input: Box::new(below.input), exprs: inputs }, schema)?;
                Ok(Some(Unwindowed { input, window, origins }))
            }
            Node::Scan { .. }
            | Node::UnionAll { .. }
            | Node::Unnest { .. }
            | Node::Expand { .. }
            | Node::WindowAggregate { .. }
            | Node::Over { .. }
            | Node::Match { .. }
            | Node::Lookup { .. }
            | Node::Join { .. }
            | Node::Rank { .. } => Ok(None),
        }
    }
}

impl Planner<'_> {
    /// The windows that the rows of a plan carry, if the keys name their start and end: the assignment, and what each
    /// column is.
    pub(super) fn attached_windows(&self, plan: &Plan, keys: &[Expr]) -> Option<(WindowSpec, Vec<Origin>)> {
        let mut found = Vec::new();
        for key in keys {
            if let ExprKind::Column(column) = key.kind
                && let Some((property, window)) = window_column(plan, column, self.catalog)
            {
                found.push((property, column, window));
            }
        }
        let (_, start, window) = found.iter().find(|(property, _, _)| *property == WindowProperty::Start)?;
        let of = |wanted: WindowProperty| {
            let same = |(p, _, w): &&(WindowProperty, usize, WindowSpec)| {
                *p == wanted && w.kind == window.kind && w.time_type == window.time_type
            };
            found.iter().find(same).map(|(_, column, _)| *column)
        };
        let end = of(WindowProperty::End)?;
        let mut origins: Vec<Origin> = (0..plan.schema.fields.len()).map(Origin::Input).collect();
        for (property, column) in [(WindowProperty::End, Some(end)), (WindowProperty::Time, of(WindowProperty::Time))] {
            if let Some(origin) = column.and_then(|column| origins.get_mut(column)) {
                *origin = Origin::Property(property);
            }
        }
        let kind = WindowKind::Attached { start: *start };
        Some((WindowSpec { kind, time_column: end, time_type: window.time_type.clone() }, origins))
    }
}

/// What a column is to the window that the plan's rows carry.
pub(super) fn window_column(plan: &Plan, column: usize, catalog: &Catalog) -> Option<(WindowProperty, WindowSpec)> {
    match &plan.node {
        Node::Window { input, window } => match column.checked_sub(input.schema.fields.len()) {
            Some(own) => COLUMNS.get(own).map(|(_, property)| (*property, window.clone())),
            None => window_column(input, column, catalog),
        },
        Node::Filter { input, .. }
        | Node::Unnest { input, .. }
        | Node::Expand { input, .. }
        | Node::Over { input, .. }
        | Node::Rank { input, .. }
        | Node::Lookup { input, .. } => {
            (column < input.schema.fields.len()).then(|| window_column(input, column, catalog)).flatten()
        }
        Node::Project { input, exprs } => match exprs.get(column)?.kind {
            ExprKind::Column(column) => window_column(input, column, catalog),
            _ => None,
        },
        Node::WindowAggregate { input, window, keys, properties, .. } => {
            let property = match column.checked_sub(keys.len()) {
                Some(index) => *properties.get(index)?,
                None => match keys.get(column)?.kind {
                    ExprKind::Column(column) => return window_column(input, column, catalog),
                    _ => return None,
                },
            };
            match window.kind {
                WindowKind::Attached { .. } => {
                    let (_, window) = window_column(input, window.time_column, catalog)?;
                    Some((property, window))
                }
                _ => Some((property, window.clone())),
            }
        }
        Node::Scan { relation } => catalog.window_column(relation, column),
        // A side that is padded has no window.
        Node::Join { left, right, join } => match column.checked_sub(left.schema.fields.len()) {
            Some(column) if !matches!(join.kind, JoinKind::Left | JoinKind::Full) => {
                window_column(right, column, catalog)
            }
            None if !matches!(join.kind, JoinKind::Right | JoinKind::Full) => window_column(left, column, catalog),
            _ => None,
        },
        Node::UnionAll { .. } | Node::Match { .. } => None,
    }
}

impl Unwindowed {
    /// The expression over the window's input, if it reads no column of the window.
    pub fn below(&self, expr: Expr) -> Option<Expr> {
        below(&self.origins, expr)
    }
}

/// The expression over the window's input, if it reads no column of the window.
pub(super) fn below(origins: &[Origin], expr: Expr) -> Option<Expr> {
    let input = |column: usize| match origins.get(column) {
        Some(Origin::Input(index)) => Some(*index),
        _ => None,
    };
    let own = expr.columns().into_iter().all(|column| input(column).is_some());
    own.then(|| expr.map_columns(&|column| input(column).unwrap_or(column)))
}
