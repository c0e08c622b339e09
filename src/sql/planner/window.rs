//! Window table functions, and the way from a GROUP BY back to its window.

use std::ops::Range;

use sqlparser::ast::{
    Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, Spanned, TableFunctionArgs,
};

use super::expression::Scope;
use super::{Planner, Result};
use crate::expr::build::{self, Expr, ExprKind, Value};
use crate::expr::{DataType, Field, Schema};
use crate::sql::parse::single;
use crate::sql::plan::{Node, Plan, WindowKind, WindowProperty, WindowSpec};
use crate::sql::{SqlError, nearest_help};

/// Names and types of a window's own columns.
const COLUMNS: [(&str, WindowProperty); 3] = [
    ("window_start", WindowProperty::Start),
    ("window_end", WindowProperty::End),
    ("window_time", WindowProperty::Time),
];

const FORM: &str = "write TUMBLE(TABLE name, DESCRIPTOR(time_column), INTERVAL '10' SECOND)";

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
        let function = single(name).map(|ident| ident.value.to_ascii_uppercase()).unwrap_or_default();
        match function.as_str() {
            "TUMBLE" => {}
            "HOP" | "CUMULATE" | "SESSION" => {
                return Err(SqlError::new(place, format!("{function} windows are not supported yet"))
                    .help("use TUMBLE, where windows do not overlap"));
            }
            "UNNEST" => {
                return Err(SqlError::new(place, "UNNEST is not supported yet").help("take single elements with a[1]"));
            }
            _ => {
                let help = nearest_help(&function, ["TUMBLE", "HOP", "CUMULATE", "SESSION"]);
                return Err(SqlError::new(place, format!("unknown table function `{name}`")).help(FORM).help_if(help));
            }
        }
        let call = place.start
            ..self
                .text
                .closing(self.text.index_at(place.end))
                .and_then(|i| self.text.tokens.get(i))
                .map_or(place.end, |p| p.range.end);
        let arguments = self.arguments(args, &["DATA", "TIMECOL", "SIZE", "OFFSET"], &call)?;
        let [Some(data), Some(descriptor), Some(size), offset] = arguments[..] else {
            let missing = if arguments.first() == Some(&None) {
                "the table"
            } else if arguments.get(1) == Some(&None) {
                "the time column"
            } else {
                "the size"
            };
            return Err(SqlError::new(call, format!("TUMBLE lacks {missing}")).help(FORM));
        };
        let input = self.window_input(data)?;
        let time_column = self.descriptor(descriptor, &input)?;
        let size_ms = self.milliseconds(size)?;
        if size_ms <= 0 {
            return Err(SqlError::new(self.place(size), "the size of a window must be more than zero"));
        }
        let offset_ms = offset.map_or(Ok(0), |offset| self.milliseconds(offset))?;
        if offset_ms.checked_abs().is_none_or(|offset_ms| offset_ms >= size_ms) {
            let place = offset.map_or(call, |offset| self.place(offset));
            return Err(SqlError::new(place, "the offset of a window must be less than its size"));
        }
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
        let window = WindowSpec { kind: WindowKind::Tumble { size_ms, offset_ms }, time_column, time_type };
        let mut fields = input.schema.fields.clone();
        fields.extend(COLUMNS.map(|(_, property)| property_field(property, &window)));
        let schema = Schema { time: Some(fields.len() - 1), fields };
        self.node(Node::Window { input: Box::new(input), window }, schema)
    }

    /// The arguments in the order of `names`, positional or all named.
    fn arguments<'e>(
        &self,
        args: &'e [FunctionArg],
        names: &[&str],
        call: &Range<usize>,
    ) -> Result<Vec<Option<&'e Ast>>> {
        let mut found: Vec<Option<&Ast>> = vec![None; names.len()];
        let mut named = 0;
        for (index, arg) in args.iter().enumerate() {
            let (slot, arg) = match arg {
                FunctionArg::Unnamed(arg) => (index, arg),
                FunctionArg::Named { name, arg, operator } => {
                    let place = self.text.range(name.span);
                    if *operator != FunctionArgOperator::RightArrow {
                        return Err(SqlError::new(place, "arguments are named with `=>`"));
                    }
                    let word = self.name(name)?.to_ascii_uppercase();
                    let Some(slot) = names.iter().position(|known| *known == word) else {
                        let help = nearest_help(&word, names.iter().copied());
                        return Err(SqlError::new(place, format!("TUMBLE has no argument `{}`", name.value))
                            .help(format!("its arguments are {}", names.join(", ")))
                            .help_if(help));
                    };
                    named += 1;
                    (slot, arg)
                }
                FunctionArg::ExprNamed { .. } => {
                    return Err(SqlError::new(self.text.range(arg.span()), "arguments are named with `=>`"));
                }
            };
            let FunctionArgExpr::Expr(arg) = arg else {
                return Err(SqlError::new(call.clone(), "`*` is no argument of a window function").help(FORM));
            };
            match found.get_mut(slot) {
                Some(slot) if slot.is_none() => *slot = Some(arg),
                Some(_) => return Err(SqlError::new(self.place(arg), "this argument is there twice").help(FORM)),
                None => {
                    return Err(SqlError::new(
                        self.place(arg),
                        format!("TUMBLE takes at most {} arguments", names.len()),
                    )
                    .help(format!("{FORM}; HOP and CUMULATE take more")));
                }
            }
        }
        if named != 0 && named != args.len() {
            return Err(SqlError::new(call.clone(), "name all arguments of a window function, or none").help(FORM));
        }
        Ok(found)
    }

    /// `TABLE name` or `(SELECT …)`.
    fn window_input(&mut self, data: &Ast) -> Result<Plan> {
        match data {
            Ast::Subquery(query) => self.query(query),
            Ast::Prefixed { prefix, value } if prefix.value.eq_ignore_ascii_case("TABLE") => match value.as_ref() {
                Ast::CompoundIdentifier(parts) => {
                    let name = ObjectName::from(parts.clone());
                    let place = self.text.range(name.span());
                    self.scan(&name, &place)
                }
                _ => Err(SqlError::new(self.place(data), "the name of a table must follow TABLE").help(FORM)),
            },
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
                .help_if(time.map(|time| format!("the time attribute is `{}`", time.name)))
                .help_if(nearest_help(&column, names)));
        };
        if schema.time == Some(index) {
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

    /// Takes a relation over a window apart, for a GROUP BY above it; `None`: there is no window.
    pub(super) fn unwindow(&mut self, plan: Plan, place: &Range<usize>) -> Result<Option<Unwindowed>> {
        let Plan { node, schema } = plan;
        match node {
            Node::Window { input, window } => {
                let mut origins: Vec<Origin> = (0..input.schema.fields.len()).map(Origin::Input).collect();
                origins.extend(COLUMNS.map(|(_, property)| Origin::Property(property)));
                Ok(Some(Unwindowed { input: *input, window, origins }))
            }
            Node::Filter { input, predicate } => {
                let Some(below) = self.unwindow(*input, place)? else { return Ok(None) };
                let Some(predicate) = below.below(predicate) else {
                    return Err(SqlError::new(
                        place.clone(),
                        "a condition on window_start, window_end or window_time below GROUP BY is not supported yet",
                    )
                    .help("put it into HAVING"));
                };
                let schema = below.input.schema.clone();
                let input = self.node(Node::Filter { input: Box::new(below.input), predicate }, schema)?;
                Ok(Some(Unwindowed { input, ..below }))
            }
            Node::Project { input, exprs } => {
                let Some(below) = self.unwindow(*input, place)? else { return Ok(None) };
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
                let schema = Schema { fields, time: Some(time) };
                let input = self.node(Node::Project { input: Box::new(below.input), exprs: inputs }, schema)?;
                Ok(Some(Unwindowed { input, window, origins }))
            }
            Node::Scan { .. }
            | Node::UnionAll { .. }
            | Node::WindowAggregate { .. }
            | Node::Over { .. }
            | Node::Join { .. }
            | Node::Rank { .. } => Ok(None),
        }
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
