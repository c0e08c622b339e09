//! OVER: calls of the SELECT list, the window they share, the WINDOW clause.

use std::ops::Range;

use sqlparser::ast::{
    DuplicateTreatment, Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, NamedWindowDefinition, NamedWindowExpr, OrderByExpr, OrderByOptions, OrderBySort, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};

use super::expanded::{self, Expanded};
use super::expression::Scope;
use super::{Planner, Result};
use crate::expr::aggregate;
use crate::expr::build::{self, Expr, ExprKind, Value};
use crate::expr::{DataType, Field, Schema};
use crate::sql::SqlError;
use crate::sql::plan::{Frame, Node, OverCall, OverFunction, OverSpec, Plan, RankSpec};

/// Forebay's own functions, with how they are called.
static EDGE: [(&str, &str, OverFunction); 5] = [
    ("CHANGED", "CHANGED(x)", OverFunction::Changed),
    ("DEADBAND", "DEADBAND(x, band)", OverFunction::Deadband),
    ("HYSTERESIS", "HYSTERESIS(x, low, high)", OverFunction::Hysteresis),
    ("EWMA", "EWMA(x, INTERVAL '10' SECOND)", OverFunction::Ewma),
    ("RATE", "RATE(x)", OverFunction::Rate),
];

/// The form of Forebay's own function of this name.
pub(super) fn edge_form(name: &str) -> Option<&'static str> {
    EDGE.iter().find(|(known, _, _)| *known == name).map(|(_, form, _)| *form)
}

/// The names of Forebay's own functions.
pub(in crate::sql) fn edge_names() -> impl Iterator<Item = &'static str> {
    EDGE.iter().map(|(name, _, _)| *name)
}

/// The calls with OVER of one SELECT, while its list is planned. They stand behind the columns of FROM.
pub(super) struct Overs {
    /// Columns of FROM.
    width: usize,
    /// The time attributes of FROM.
    times: Vec<usize>,
    named: Vec<NamedWindowDefinition>,
    /// Keys, frame and calls; all calls share one window.
    pub spec: Option<OverSpec>,
    /// `ROW_NUMBER()`, the only call where it is there.
    pub rank: Option<RankSpec>,
    /// Names of the WINDOW clause that a call has used.
    used: Vec<String>,
}

impl Overs {
    /// Over FROM with these columns and time attributes; `named` is the WINDOW clause.
    pub fn new(width: usize, times: Vec<usize>, named: &[NamedWindowDefinition]) -> Overs {
        Overs { width, times, named: named.to_vec(), spec: None, rank: None, used: Vec::new() }
    }
}

impl Planner<'_> {
    /// A call with OVER, as a column behind those of FROM.
    pub(super) fn over_call(
        &mut self,
        expr: &Ast,
        function: &Function,
        name: &str,
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let place = self.text.clause(self.place(expr).end, &["OVER"]);
        if scope.grouping.is_some() {
            return Err(SqlError::new(place, "OVER beside GROUP BY is not supported")
                .help("put the GROUP BY into a sub-query, and OVER above it: ORDER BY window_time"));
        }
        let Some(overs) = scope.overs.as_deref() else {
            return Err(SqlError::new(place, format!("OVER cannot stand in {}", scope.place))
                .help("compute it in the SELECT list of a sub-query: FROM (SELECT *, f(x) OVER (…) AS y FROM t)"));
        };
        if name == "ROW_NUMBER" {
            return self.row_number(expr, function, scope);
        }
        let Function { name: _, uses_odbc_syntax, parameters, args, within_group, filter, null_treatment, over } =
            function;
        let (Some(over), FunctionArguments::List(list)) = (over, args) else {
            return Err(SqlError::new(place, format!("{name} OVER takes arguments in parentheses"))
                .help("write the arguments in parentheses"));
        };
        let FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        if *uses_odbc_syntax
            || *parameters != FunctionArguments::None
            || !within_group.is_empty()
            || null_treatment.is_some()
            || !clauses.is_empty()
        {
            return Err(
                SqlError::new(place, format!("this clause of {name} OVER is not supported")).help("leave it out")
            );
        }
        if filter.is_some() {
            return Err(SqlError::new(place, "FILTER with OVER is not supported")
                .help("aggregate a CASE: SUM(CASE WHEN condition THEN x END) OVER (…)"));
        }
        let (named, times) = (overs.named.clone(), overs.times.clone());
        let mut inner = Scope { names: scope.names, ..Scope::new(scope.schema, scope.alias, "OVER") };
        let (keys, time_column, frame) = self.over_window(over, (&named, &times), (name, &place), &mut inner)?;
        let distinct = *duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let Expanded { calls, value } = self.over_function(expr, name, args, distinct, &mut inner)?;
        let any = |wanted: fn(&OverFunction) -> bool| calls.iter().any(|call| wanted(&call.function));
        let is_rank = any(|function| matches!(function, OverFunction::Rank { .. }));
        if frame.is_bounded() && any(|function| !matches!(function, OverFunction::Aggregate(_)))
            || is_rank && frame != (Frame::Range { preceding_ms: None })
        {
            return Err(SqlError::new(place, format!("{name} takes no frame")).help("leave ROWS or RANGE out"));
        }
        let Some(overs) = scope.overs.as_deref_mut() else { return self.lost(expr) };
        if let WindowType::NamedWindow(ident) = over {
            overs.used.push(ident.value.clone());
        }
        let width = overs.width;
        let spec = overs.spec.get_or_insert_with(|| OverSpec { time_column, keys: keys.clone(), frame, calls: vec![] });
        if spec.keys != keys || spec.frame != frame || spec.time_column != time_column {
            return Err(SqlError::new(place, "all OVER of one SELECT must have the same window, as in Flink")
                .help("compute one of them in a sub-query"));
        }
        let mut columns = Vec::new();
        for call in calls {
            let known = spec.calls.iter().position(|known| *known == call);
            columns.push(width + known.unwrap_or(spec.calls.len()));
            if known.is_none() {
                spec.calls.push(call);
            }
        }
        Ok(value.remap(&columns))
    }

    fn lost<T>(&self, expr: &Ast) -> Result<T> {
        Err(SqlError::new(self.place(expr), "OVER cannot stand here")
            .help("compute it in the SELECT list of a sub-query"))
    }

    /// Keys, time attribute and frame.
    fn over_window(
        &mut self,
        over: &WindowType,
        (named, times): (&[NamedWindowDefinition], &[usize]),
        (function, place): (&str, &Range<usize>),
        scope: &mut Scope<'_>,
    ) -> Result<(Vec<Expr>, usize, Frame)> {
        let spec = match over {
            WindowType::WindowSpec(spec) => spec,
            WindowType::NamedWindow(ident) => self.named_window(ident, named)?,
        };
        let WindowSpec { window_name, partition_by, order_by, window_frame } = spec;
        if let Some(base) = window_name {
            return Err(SqlError::new(self.text.range(base.span), "a window that extends another is not supported")
                .help("write the whole window"));
        }
        let keys = partition_by.iter().map(|key| self.expr(key, scope)).collect::<Result<Vec<Expr>>>()?;
        for (key, ast) in keys.iter().zip(partition_by) {
            if key.data_type == DataType::Null {
                return Err(SqlError::new(self.place(ast), "a constant NULL is no key").help("leave it out"));
            }
            self.check_comparable(ast, key, "a key of PARTITION BY")?;
        }
        let time_column = self.over_order(order_by, times, (function, place), scope)?;
        let frame = match window_frame {
            None => Frame::Range { preceding_ms: None },
            Some(frame) => self.frame(frame, place)?,
        };
        Ok((keys, time_column, frame))
    }

    fn named_window<'n>(&self, ident: &Ident, named: &'n [NamedWindowDefinition]) -> Result<&'n WindowSpec> {
        let found = named.iter().find(|NamedWindowDefinition(name, _)| name.value == ident.value);
        match found {
            Some(NamedWindowDefinition(_, NamedWindowExpr::WindowSpec(spec))) => Ok(spec),
            Some(NamedWindowDefinition(name, NamedWindowExpr::NamedWindow(_))) => {
                Err(SqlError::new(self.text.range(name.span), "a window that is another one is not supported")
                    .help("write WINDOW w AS (PARTITION BY … ORDER BY …)"))
            }
            None => Err(SqlError::new(self.text.range(ident.span), format!("unknown window `{}`", ident.value))
                .help("write WINDOW w AS (PARTITION BY … ORDER BY …) behind FROM and WHERE")),
        }
    }

    fn over_order(
        &mut self,
        order_by: &[OrderByExpr],
        times: &[usize],
        (function, place): (&str, &Range<usize>),
        scope: &mut Scope<'_>,
    ) -> Result<usize> {
        let time = times.first().copied();
        let time_name = time.and_then(|time| scope.schema.fields.get(time)).map(|field| field.name.clone());
        let help = match &time_name {
            Some(name) => format!("write ORDER BY `{name}`: the time attribute"),
            None => "this relation has no time attribute: pass the source's time column through unchanged".to_owned(),
        };
        let [OrderByExpr { expr, options: OrderByOptions { sort, nulls_first: _ }, with_fill: None }] = order_by else {
            let place = order_by.first().map_or_else(|| place.clone(), |order| self.place(&order.expr));
            return Err(SqlError::new(place, format!("{function} OVER needs ORDER BY one column, the time attribute"))
                .help(help));
        };
        let planned = self.expr(expr, scope)?;
        let help = match function {
            "RANK" | "DENSE_RANK" => {
                format!("{help}; the first rows of a window are numbered by ROW_NUMBER() only, as in Flink")
            }
            _ => help,
        };
        if !matches!(sort, None | Some(OrderBySort::Asc)) {
            return Err(SqlError::new(self.place(expr), "OVER goes forward in time: ORDER BY … ASC").help(help));
        }
        match planned.kind {
            ExprKind::Column(column) if times.contains(&column) => Ok(column),
            _ => Err(SqlError::new(self.place(expr), "OVER must be ordered by the time attribute").help(help)),
        }
    }

    fn frame(&mut self, frame: &WindowFrame, place: &Range<usize>) -> Result<Frame> {
        let WindowFrame { units, start_bound, end_bound } = frame;
        let place = place.clone();
        if !matches!(end_bound, None | Some(WindowFrameBound::CurrentRow)) {
            return Err(SqlError::new(place, "the frame must end at the CURRENT ROW: what follows is not known yet")
                .help("write BETWEEN … PRECEDING AND CURRENT ROW"));
        }
        let start = match start_bound {
            WindowFrameBound::Preceding(start) => start.as_deref(),
            WindowFrameBound::CurrentRow | WindowFrameBound::Following(_) => {
                return Err(SqlError::new(place, "the frame must start with … PRECEDING")
                    .help("write RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW"));
            }
        };
        let planned = match start {
            None => None,
            Some(start) => {
                let schema = Schema::default();
                Some((start, self.expr(start, &mut Scope::new(&schema, None, "a frame"))?))
            }
        };
        match (units, planned) {
            (WindowFrameUnits::Range, None) => Ok(Frame::Range { preceding_ms: None }),
            (WindowFrameUnits::Rows, None) => Ok(Frame::Rows { preceding: None }),
            (WindowFrameUnits::Range, Some((start, planned))) => match (&planned.kind, &planned.data_type) {
                (ExprKind::Literal(Value::Integer(ms)), DataType::IntervalDayTime) if *ms >= 0 => {
                    Ok(Frame::Range { preceding_ms: Some(*ms) })
                }
                _ => {
                    Err(SqlError::new(self.place(start), "RANGE needs an INTERVAL of days, hours, minutes or seconds")
                        .help("write for example INTERVAL '10' SECOND PRECEDING"))
                }
            },
            (WindowFrameUnits::Rows, Some((start, planned))) => match planned.kind {
                ExprKind::Literal(Value::Integer(rows)) if planned.data_type.is_integer() && rows >= 0 => {
                    Ok(Frame::Rows { preceding: Some(usize::try_from(rows).unwrap_or(usize::MAX)) })
                }
                _ => Err(SqlError::new(self.place(start), "ROWS needs a number").help("write for example 4 PRECEDING")),
            },
            (WindowFrameUnits::Groups, _) => {
                Err(SqlError::new(place, "GROUPS is not part of Flink SQL").help("write ROWS or RANGE"))
            }
        }
    }

    fn over_function(
        &mut self,
        expr: &Ast,
        name: &str,
        args: &[FunctionArg],
        distinct: bool,
        scope: &mut Scope<'_>,
    ) -> Result<Expanded> {
        if let Some(kind) = aggregate::kind_of(name) {
            let mut planned = Vec::new();
            for arg in args {
                match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if args.len() == 1 => {}
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => planned.push(self.expr(arg, scope)?),
                    _ => {
                        let help = format!("write {name}(x) OVER (…)");
                        return self.refuse(expr, &format!("{name} takes columns or constants"), &help);
                    }
                }
            }
            if args.is_empty() {
                return self.refuse(expr, &format!("{name} takes an argument"), &format!("write {name}(x) OVER (…)"));
            }
            return expanded::expanded(kind, planned, distinct).map_err(|error| self.typed(expr, error));
        }
        let mut planned = Vec::new();
        for arg in args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else {
                return self.refuse(expr, &format!("{name} takes values"), "name columns");
            };
            planned.push(self.expr(arg, scope)?);
        }
        if name == "LAG" && !distinct {
            return self.lag(expr, planned).map(Expanded::from);
        }
        if matches!(name, "RANK" | "DENSE_RANK") && !distinct {
            if !planned.is_empty() {
                return self.refuse(expr, &format!("{name} takes no arguments"), &format!("write {name}() OVER (…)"));
            }
            let function = OverFunction::Rank { dense: name == "DENSE_RANK" };
            return Ok(OverCall { function, args: Vec::new(), data_type: DataType::BigInt }.into());
        }
        let edge = EDGE.iter().find(|(known, _, _)| *known == name).filter(|_| !distinct);
        let Some((_, form, function)) = edge else {
            let help = match name {
                "LEAD" => "the rows that follow are not known yet: LAG looks back",
                _ => "there are COUNT, SUM, AVG, MIN, MAX, LAG, CHANGED, DEADBAND, HYSTERESIS, EWMA, RATE",
            };
            return self.refuse(expr, &format!("{name} OVER is not supported here"), help);
        };
        let wrong =
            || SqlError::new(self.place(expr), format!("{name} takes other arguments")).help(format!("write {form}"));
        let arity = match function {
            OverFunction::Changed | OverFunction::Rate => 1,
            OverFunction::Hysteresis => 3,
            _ => 2,
        };
        if planned.len() != arity {
            return Err(wrong());
        }
        for arg in &planned {
            self.check_comparable(expr, arg, "an argument of this function")?;
        }
        let mut args = Vec::new();
        for (index, arg) in planned.into_iter().enumerate() {
            let is_tau = *function == OverFunction::Ewma && index == 1;
            args.push(match (function, &arg.data_type) {
                (OverFunction::Changed, _) => arg,
                (_, DataType::IntervalDayTime) if is_tau => arg,
                (_, DataType::Double) if !is_tau => arg,
                (_, number) if number.is_numeric() && !is_tau => {
                    let cast = build::cast(arg, &DataType::Double, false);
                    cast.map_err(|error| SqlError::new(self.place(expr), error.message).help_if(error.help))?
                }
                _ => return Err(wrong()),
            });
        }
        let data_type = match function {
            OverFunction::Ewma | OverFunction::Rate => DataType::Double,
            _ => DataType::Boolean,
        };
        Ok(OverCall { function: function.clone(), args, data_type }.into())
    }

    /// `LAG(value [, offset [, default]])`.
    fn lag(&self, expr: &Ast, planned: Vec<Expr>) -> Result<OverCall> {
        let wrong =
            |message: &str| SqlError::new(self.place(expr), message).help("write LAG(x), LAG(x, 2) or LAG(x, 2, 0)");
        let mut planned = planned.into_iter();
        let (value, offset, default) = (planned.next(), planned.next(), planned.next());
        let Some(value) = value.filter(|_| planned.next().is_none()) else {
            return Err(wrong("LAG takes one to three arguments"));
        };
        let offset = match offset.map(|offset| offset.kind) {
            None => 1,
            Some(ExprKind::Literal(Value::Integer(offset))) if offset >= 0 => {
                usize::try_from(offset).unwrap_or(usize::MAX - 1).min(usize::MAX - 1)
            }
            Some(_) => return Err(wrong("the offset of LAG must be a number, not negative")),
        };
        let data_type = value.data_type.clone();
        let default = match default {
            None => build::literal(Value::Null, data_type.clone()),
            Some(default) if default.data_type == data_type => default,
            Some(default) => build::cast(default, &data_type, false)
                .map_err(|error| SqlError::new(self.place(expr), error.message).help_if(error.help))?,
        };
        Ok(OverCall { function: OverFunction::Lag { offset }, args: vec![value, default], data_type })
    }

    /// Puts OVER between FROM and the SELECT list; only the columns that are needed go through.
    pub(super) fn over(&mut self, input: Plan, overs: Overs, exprs: Vec<Expr>) -> Result<(Plan, Vec<Expr>)> {
        if let Some(NamedWindowDefinition(name, _)) = overs.named.iter().find(|w| !overs.used.contains(&w.0.value)) {
            let message = format!("the window `{}` is not used", name.value);
            return Err(SqlError::new(self.text.range(name.span), message).help("leave WINDOW out"));
        }
        if overs.rank.is_some() {
            return self.rank(input, overs, exprs);
        }
        let Overs { width, times: _, named: _, spec, rank: _, used: _ } = overs;
        let Some(spec) = spec else { return Ok((input, exprs)) };
        let arguments = spec.calls.iter().flat_map(|call| &call.args);
        let mut needed: Vec<usize> = exprs.iter().chain(&spec.keys).chain(arguments).flat_map(Expr::columns).collect();
        needed.push(spec.time_column);
        needed.retain(|column| *column < width);
        needed.sort_unstable();
        needed.dedup();
        let at = |column: usize| match column.checked_sub(width) {
            Some(call) => needed.len() + call,
            None => needed.binary_search(&column).unwrap_or(column),
        };
        let input = self.narrowed(input, &needed)?;
        let remapped = |exprs: Vec<Expr>| exprs.into_iter().map(|expr| expr.map_columns(&at)).collect::<Vec<Expr>>();
        let calls = spec.calls.into_iter().map(|call| OverCall {
            function: match call.function {
                OverFunction::Aggregate(mut aggregate) => {
                    aggregate.argument = aggregate.argument.map(|argument| argument.map_columns(&at));
                    OverFunction::Aggregate(aggregate)
                }
                other => other,
            },
            args: remapped(call.args),
            data_type: call.data_type,
        });
        let calls: Vec<OverCall> = calls.collect();
        let spec = OverSpec { time_column: at(spec.time_column), keys: remapped(spec.keys), frame: spec.frame, calls };
        let exprs = remapped(exprs);
        let mut fields = input.schema.fields.clone();
        fields.extend(
            spec.calls.iter().enumerate().map(|(i, call)| Field::new(format!("over${i}"), call.data_type.clone())),
        );
        let schema = Schema { fields, time: Some(spec.time_column) };
        let plan = self.node(Node::Over { input: Box::new(input), over: spec }, schema)?;
        Ok((plan, exprs))
    }

    /// Only these columns of a plan, ascending.
    pub(super) fn narrowed(&mut self, input: Plan, columns: &[usize]) -> Result<Plan> {
        if columns.len() == input.schema.fields.len() {
            return Ok(input);
        }
        let kept = columns.iter().filter_map(|column| Some((*column, input.schema.fields.get(*column)?.clone())));
        let (exprs, fields): (Vec<Expr>, Vec<Field>) =
            kept.map(|(column, field)| (build::column(column, field.data_type.clone()), field)).unzip();
        let time = input.schema.time.and_then(|time| columns.iter().position(|column| *column == time));
        self.node(Node::Project { input: Box::new(input), exprs }, Schema { fields, time })
    }
}
