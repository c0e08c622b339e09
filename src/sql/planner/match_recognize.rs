//! MATCH_RECOGNIZE: its clauses, and what an expression of DEFINE and MEASURES sees of a match.
//!
//! `sqlparser` does not know WITHIN: `parse.rs` takes the clause out, and it is read from the text here.

use std::ops::Range;

use sqlparser::ast::{
    AfterMatchSkip, DuplicateTreatment, Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    MatchRecognizePattern, MatchRecognizeSymbol, Measure, OrderByExpr, OrderByOptions, OrderBySort, Query,
    RepetitionQuantifier, RowsPerMatch, Spanned, SymbolDefinition, TableFactor,
};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::expression::Scope;
use super::select::column_help;
use super::{Planner, Relation, Result};
use crate::expr::aggregate::{self, AggregateCall, AggregateKind};
use crate::expr::build::{self, Expr, ExprKind, Value};
use crate::expr::{DataType, Field, Schema};
use crate::sql::dialect::FlinkDialect;
use crate::sql::match_plan::{Condition, MatchSpec, Skip, Slot, SlotKind, Variable};
use crate::sql::parse::single;
use crate::sql::pattern_text::SUBQUERY;
use crate::sql::plan::{Node, Plan, RankOrder};
use crate::sql::{SqlError, nearest_help};

/// Most states of a pattern: `{n}` is one for each row.
const STATES_MAX: usize = 1000;

/// The clauses as they are parsed.
pub(super) struct Clauses<'c> {
    pub partition_by: &'c [Ast],
    pub order_by: &'c [OrderByExpr],
    pub measures: &'c [Measure],
    pub rows_per_match: Option<&'c RowsPerMatch>,
    pub skip: Option<&'c AfterMatchSkip>,
    pub pattern: &'c MatchRecognizePattern,
    pub symbols: &'c [SymbolDefinition],
}

/// What an expression sees of a match: columns of variables, as slots behind the columns of the row.
pub(super) struct Matched {
    variables: Vec<String>,
    /// DEFINE: the variable whose row is looked at. MEASURES: none.
    current: Option<usize>,
    /// Columns of the row that is looked at.
    width: usize,
    slots: Vec<Slot>,
    within: Within,
    /// Variables of the columns that were read inside the call.
    seen: Vec<Option<usize>>,
}

/// The call that an expression stands in.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Nothing,
    /// FIRST or LAST with an offset.
    Navigation {
        first: bool,
        offset: usize,
    },
    Aggregate,
}

impl Matched {
    fn new(variables: Vec<String>, current: Option<usize>, width: usize) -> Matched {
        Matched { variables, current, width, slots: Vec::new(), within: Within::Nothing, seen: Vec::new() }
    }

    fn slot(&mut self, slot: Slot) -> Expr {
        let data_type = slot.data_type.clone();
        let index = self.slots.iter().position(|known| *known == slot).unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        });
        build::column(self.width + index, data_type)
    }

    /// A column of the variable's rows, as the call around it reads it.
    fn column(&mut self, variable: Option<usize>, column: usize, data_type: DataType) -> Expr {
        let (first, offset) = match self.within {
            Within::Aggregate => {
                self.seen.push(variable);
                return build::column(column, data_type);
            }
            Within::Navigation { first, offset } => {
                self.seen.push(variable);
                (first, offset)
            }
            Within::Nothing => (false, 0),
        };
        let is_current = self.current.is_some() && (variable.is_none() || variable == self.current);
        if is_current && !first && offset == 0 {
            return build::column(column, data_type);
        }
        self.slot(Slot { kind: SlotKind::Row { column, first, offset }, variable, data_type })
    }
}

/// The sub-query that stands as a call for the parser's sake.
fn subquery(table: &TableFactor) -> Option<&Query> {
    let TableFactor::Table { name, args: Some(args), .. } = table else { return None };
    let is_marker = single(name).is_some_and(|ident| ident.quote_style.is_none() && ident.value == SUBQUERY);
    match args.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Subquery(query)))] if is_marker => Some(query),
        _ => None,
    }
}

impl Planner<'_> {
    /// `table MATCH_RECOGNIZE (…)`.
    pub(super) fn match_recognize(&mut self, table: &TableFactor, clauses: &Clauses<'_>) -> Result<Plan> {
        let from = match subquery(table) {
            // Past the sub-query, so that a MATCH_RECOGNIZE within it is not taken for this one.
            Some(query) => {
                let select = self.text.index_at(self.text.range(query.span()).start);
                let open =
                    (0..select).rev().find(|at| self.text.tokens.get(*at).is_some_and(|t| t.token == Token::LParen));
                let close = open.and_then(|open| self.text.tokens.get(self.text.closing(open)?));
                close.map_or(0, |close| close.range.end)
            }
            None => self.text.range(table.span()).start,
        };
        let whole = self.text.clause(from, &["MATCH_RECOGNIZE"]);
        let inside = self.text.tokens.get(self.text.index_at(whole.end) + 1).map_or(whole.end, |t| t.range.start);
        let Relation { plan: input, alias } = match subquery(table) {
            Some(query) => Relation { plan: self.query(query)?, alias: None },
            None => self.factor(table)?,
        };
        if let TableFactor::Table { alias: Some(alias), .. } = table {
            let place = self.text.range(alias.name.span);
            return Err(SqlError::new(place, "the alias of MATCH_RECOGNIZE stands behind its parentheses")
                .help("write FROM t MATCH_RECOGNIZE (…) AS m"));
        }
        let schema = input.schema.clone();
        let alias = alias.as_deref();
        if let Some(RowsPerMatch::AllRows(_)) = clauses.rows_per_match {
            let place = self.text.clause(inside, &["ALL", "ROWS", "PER", "MATCH"]);
            return Err(SqlError::new(place, "ALL ROWS PER MATCH is not supported, nor by Flink")
                .help("write ONE ROW PER MATCH"));
        }
        let mut scope = Scope::new(&schema, alias, "PARTITION BY");
        let (mut keys, mut fields) = (Vec::new(), Vec::new());
        for key in clauses.partition_by {
            let planned = self.expr(key, &mut scope)?;
            let ExprKind::Column(column) = planned.kind else {
                let message = "PARTITION BY of MATCH_RECOGNIZE takes columns only";
                return Err(SqlError::new(self.place(key), message).help("compute it in a WITH query before"));
            };
            let name = schema.fields.get(column).map(|field| field.name.clone()).unwrap_or_default();
            fields.push((Field::new(name, planned.data_type.clone()), self.place(key)));
            keys.push(planned);
        }
        scope.place = "ORDER BY";
        let (time_column, ties) = self.match_order(clauses.order_by, whole.clone(), &mut scope)?;
        let within_ms = self.within(inside)?;
        let mut pattern = self.pattern(clauses.pattern, inside)?;
        let names: Vec<String> = pattern.iter().map(|variable| variable.name.clone()).collect();
        let skip = self.skip(clauses.skip, &names)?;
        for SymbolDefinition { symbol, definition } in clauses.symbols {
            let name = self.name(symbol)?;
            let place = self.text.range(symbol.span);
            let Some((index, variable)) = pattern.iter_mut().enumerate().find(|(_, v)| v.name == name) else {
                return Err(SqlError::new(place, format!("`{name}` is not in the pattern"))
                    .help_if(nearest_help(&name, names.iter().map(String::as_str)))
                    .help_if(Some("use it in PATTERN, or leave its definition out".to_owned())));
            };
            if variable.condition.is_some() {
                return Err(SqlError::new(place, format!("`{name}` is defined twice"))
                    .help("join the conditions with AND, or name another variable"));
            }
            let mut matched = Matched::new(names.clone(), Some(index), schema.fields.len());
            let mut scope = Scope::new(&schema, alias, "DEFINE");
            scope.matched = Some(&mut matched);
            let expr = self.condition(definition, &mut scope)?;
            variable.condition = Some(Condition { expr, slots: matched.slots });
        }
        let mut matched = Matched::new(names, None, 0);
        let mut outputs = Vec::new();
        for (key, (field, _)) in keys.iter().zip(&fields) {
            let ExprKind::Column(column) = key.kind else { continue };
            let kind = SlotKind::Row { column, first: true, offset: 0 };
            outputs.push(matched.slot(Slot { kind, variable: None, data_type: field.data_type.clone() }));
        }
        if clauses.measures.is_empty() {
            return Err(SqlError::new(whole, "MATCH_RECOGNIZE needs MEASURES: what a match gives")
                .help("write MEASURES LAST(A.x) AS x, FIRST(A.ts) AS from_ts"));
        }
        let mut scope = Scope::new(&schema, alias, "MEASURES");
        scope.matched = Some(&mut matched);
        for Measure { expr, alias } in clauses.measures {
            let place = self.text.range(alias.span);
            let before = self.text.index_at(place.start).wrapping_sub(1);
            if !self.text.is_word(before, "AS") {
                return Err(SqlError::new(place, "a measure needs AS before its name").help("write LAST(A.x) AS x"));
            }
            let planned = self.expr(expr, &mut scope)?;
            if planned.data_type == DataType::Null {
                return self.refuse(expr, "this NULL has no type", "write CAST(NULL AS type)");
            }
            fields.push((Field::new(self.name(alias)?, planned.data_type.clone()), place));
            outputs.push(planned);
        }
        for (index, (field, place)) in fields.iter().enumerate() {
            if fields.iter().take(index).any(|(known, _)| known.name == field.name) {
                let message = format!("the output has two columns named `{}`", field.name);
                return Err(SqlError::new(place.clone(), message).help("name one of them otherwise: … AS other_name"));
            }
        }
        let width = schema.fields.len();
        let spec = MatchSpec { time_column, keys, ties, pattern, skip, within_ms, slots: matched.slots, outputs };
        let needed = spec.columns(width);
        let input = self.narrowed(input, &needed)?;
        let spec = if needed.len() == width { spec } else { spec.narrowed(&needed, width) };
        let schema = Schema { fields: fields.into_iter().map(|(f, _)| f).collect(), time: spec.output_time() };
        self.node(Node::Match { input: Box::new(input), spec: Box::new(spec) }, schema)
    }

    /// The time attribute, ascending, and what orders rows of one time.
    fn match_order(
        &mut self,
        order_by: &[OrderByExpr],
        whole: Range<usize>,
        scope: &mut Scope<'_>,
    ) -> Result<(usize, Vec<RankOrder>)> {
        let Some(time) = scope.schema.time else {
            return Err(SqlError::new(whole, "MATCH_RECOGNIZE needs a time attribute, and this relation has none")
                .help("pass the source's time column through unchanged"));
        };
        let name = scope.schema.fields.get(time).map(|field| field.name.clone()).unwrap_or_default();
        let help = format!("write ORDER BY `{name}`: the time attribute");
        let mut ties = Vec::new();
        for (index, OrderByExpr { expr, options, with_fill }) in order_by.iter().enumerate() {
            let OrderByOptions { sort, nulls_first } = options;
            let planned = self.expr(expr, scope)?;
            let column = if let ExprKind::Column(column) = planned.kind { Some(column) } else { None };
            let descending = match sort {
                None | Some(OrderBySort::Asc) => false,
                Some(OrderBySort::Desc) => true,
                Some(OrderBySort::Using(_)) => {
                    return self.refuse(expr, "ORDER BY … USING is not part of Flink SQL", &help);
                }
            };
            if with_fill.is_some() || nulls_first.is_some() {
                return self.refuse(expr, "this clause of ORDER BY is not supported here", "leave it out");
            }
            if index == 0 && column != Some(time) {
                return self.refuse(expr, "the first of ORDER BY must be the time attribute", &help);
            }
            if index == 0 && descending {
                return self.refuse(expr, "MATCH_RECOGNIZE goes forward in time: ORDER BY … ASC", &help);
            }
            if column.is_none() {
                return self.refuse(expr, "ORDER BY of MATCH_RECOGNIZE takes columns only", "compute it before");
            }
            if index > 0 {
                // NULL is the least value, as in Flink.
                ties.push(RankOrder { expr: planned, descending, nulls_first: !descending });
            }
        }
        match order_by.is_empty() {
            true => Err(SqlError::new(whole, "MATCH_RECOGNIZE needs ORDER BY the time attribute").help(help)),
            false => Ok((time, ties)),
        }
    }

    /// `WITHIN INTERVAL '…' UNIT`, in milliseconds.
    fn within(&mut self, inside: usize) -> Result<i64> {
        const FORM: &str = "write PATTERN (…) WITHIN INTERVAL '1' MINUTE";
        let pattern = self.text.clause(inside, &["PATTERN"]);
        let place = self.text.clause(inside, &["WITHIN"]);
        let at = self.text.index_at(place.start);
        if !self.text.is_word(at, "WITHIN") {
            let message = "PATTERN needs WITHIN: without it the rows of a match that never ends would be kept for ever";
            return Err(SqlError::new(pattern, message).help(FORM));
        }
        let end = (at..self.text.tokens.len()).find(|at| self.text.is_word(*at, "DEFINE"));
        let raw = |at: usize| self.text.tokens.get(at).map(|placed| placed.raw);
        let tokens = raw(at + 1).and_then(|from| self.text.raw.get(from..end.and_then(raw)?));
        let dialect = FlinkDialect::default();
        let parsed = Parser::new(&dialect).with_tokens_with_locations(tokens.unwrap_or_default().to_vec()).parse_expr();
        let Ok(interval @ Ast::Interval(_)) = parsed else {
            return Err(SqlError::new(place, "WITHIN needs a constant INTERVAL").help(FORM));
        };
        let none = Schema::new(Vec::new());
        let planned = self.expr(&interval, &mut Scope::new(&none, None, "WITHIN"))?;
        match (planned.kind, planned.data_type) {
            (ExprKind::Literal(Value::Integer(ms)), DataType::IntervalDayTime) if ms > 0 => Ok(ms),
            (ExprKind::Literal(Value::Integer(_)), DataType::IntervalDayTime) => {
                self.refuse(&interval, "WITHIN must be longer than 0", FORM)
            }
            _ => self.refuse(&interval, "WITHIN takes days, hours, minutes and seconds, not months", FORM),
        }
    }

    /// The variables in order, with their quantifiers.
    fn pattern(&mut self, pattern: &MatchRecognizePattern, inside: usize) -> Result<Vec<Variable>> {
        let whole = self.text.clause(inside, &["PATTERN"]);
        let open = self.text.index_at(whole.end);
        let close = self.text.closing(open).and_then(|close| self.text.tokens.get(close));
        let whole = whole.start..close.map_or(whole.end, |close| close.range.end);
        let mut variables = Vec::new();
        let mut places: Vec<Range<usize>> = Vec::new();
        for (ident, quantifier) in self.factors(pattern, &whole)? {
            let name = self.name(ident)?;
            let place = self.text.range(ident.span);
            if variables.iter().any(|known: &Variable| known.name == name) {
                return Err(SqlError::new(
                    place,
                    format!("`{name}` stands twice in the pattern, which Flink does not take"),
                )
                .help("use a variable of another name with the same definition"));
            }
            let quantified = place.start..self.quantifier_end(place.end);
            let refuse =
                |message: &str, help: &str| Err(SqlError::new(quantified.clone(), message).help(help.to_owned()));
            let (quantifier, reluctant) = match quantifier {
                Some(RepetitionQuantifier::Reluctant(inner)) => (Some(inner.as_ref()), true),
                other => (other, false),
            };
            let size = |rows: u32| usize::try_from(rows).unwrap_or(usize::MAX);
            let (least, most) = match quantifier {
                None => (1, Some(1)),
                Some(RepetitionQuantifier::ZeroOrMore) => (0, None),
                Some(RepetitionQuantifier::OneOrMore) => (1, None),
                Some(RepetitionQuantifier::AtMostOne) => (0, Some(1)),
                Some(RepetitionQuantifier::Exactly(rows)) => (size(*rows), Some(size(*rows))),
                Some(RepetitionQuantifier::AtLeast(rows)) => (size(*rows), None),
                Some(RepetitionQuantifier::AtMost(rows)) => (0, Some(size(*rows))),
                Some(RepetitionQuantifier::Range(least, most)) => (size(*least), Some(size(*most))),
                Some(RepetitionQuantifier::Reluctant(_)) => {
                    return refuse("a quantifier takes one `?`", "write B+? or B{1,3}?");
                }
            };
            if most.is_some_and(|most| most < least.max(1)) {
                return refuse("this quantifier takes no row", "write {n,m} with n ≤ m and m > 0");
            }
            if reluctant && (least, most) == (0, Some(1)) {
                return refuse("`??` is not supported, nor by Flink", "write `?`, or leave the variable out");
            }
            let greedy = !reluctant && most != Some(least) && (least, most) != (0, Some(1));
            places.push(quantified);
            variables.push(Variable { name, least, most, greedy, condition: None });
        }
        let states: usize =
            variables.iter().map(|v| v.most.unwrap_or(v.least).max(v.least)).fold(0, usize::saturating_add);
        if states > STATES_MAX {
            return Err(SqlError::new(whole, format!("the pattern counts more than {STATES_MAX} rows"))
                .help("use `+` or `*` with a condition"));
        }
        if variables.iter().all(|variable| variable.least == 0) {
            return Err(SqlError::new(whole, "this pattern matches no row at all, which Flink does not take")
                .help("make one variable mandatory: `+` for `*`, or leave `?` out"));
        }
        if let (Some(last), Some(place)) = (variables.last().filter(|last| last.greedy), places.last()) {
            let message =
                format!("`{}` at the end of the pattern is greedy: its match would never be complete", last.name);
            return Err(SqlError::new(place.clone(), message)
                .help("end with a variable that ends the match, or make the quantifier reluctant: `+?`, `{2,}?`"));
        }
        Ok(variables)
    }

    /// The variables of a pattern as they stand.
    fn factors<'p>(
        &self,
        pattern: &'p MatchRecognizePattern,
        whole: &Range<usize>,
    ) -> Result<Vec<(&'p Ident, Option<&'p RepetitionQuantifier>)>> {
        let place = |symbols: &[&str]| {
            let from = self.text.index_at(whole.start);
            let found = (from..self.text.index_at(whole.end))
                .filter_map(|at| self.text.tokens.get(at))
                .find(|placed| symbols.iter().any(|s| self.text.slice(placed.range.clone()).eq_ignore_ascii_case(s)));
            found.map_or_else(|| whole.clone(), |placed| placed.range.clone())
        };
        let refuse = |symbols: &[&str], message: &str, help: &str| {
            Err(SqlError::new(place(symbols), message).help(help.to_owned()))
        };
        let groups = "quantify each variable, or write the group out as often as it comes";
        match pattern {
            MatchRecognizePattern::Symbol(MatchRecognizeSymbol::Named(ident)) => Ok(vec![(ident, None)]),
            MatchRecognizePattern::Symbol(MatchRecognizeSymbol::Start | MatchRecognizeSymbol::End) => {
                refuse(&["^", "$"], "`^` and `$` are not supported, nor by Flink: a stream has no ends", "leave it out")
            }
            MatchRecognizePattern::Exclude(_) => {
                refuse(&["{"], "`{- -}` is not supported, nor by Flink", "leave the variable out of MEASURES")
            }
            MatchRecognizePattern::Permute(_) => {
                refuse(&["PERMUTE"], "PERMUTE is not supported, nor by Flink", "write one query for each order")
            }
            MatchRecognizePattern::Alternation(_) => refuse(
                &["|"],
                "`|` is not supported, nor by Flink",
                "define one variable with both conditions: C AS a OR b; or write two queries",
            ),
            MatchRecognizePattern::Concat(patterns) => {
                let parts = patterns.iter().map(|part| self.factors(part, whole)).collect::<Result<Vec<_>>>()?;
                Ok(parts.into_iter().flatten().collect())
            }
            MatchRecognizePattern::Group(inner) => self.factors(inner, whole),
            MatchRecognizePattern::Repetition(inner, quantifier) => match self.factors(inner, whole)?.as_slice() {
                [(ident, None)] => Ok(vec![(ident, Some(quantifier))]),
                _ => refuse(&["("], "a quantifier behind a group is not supported, nor by Flink", groups),
            },
        }
    }

    /// Where the quantifier that follows a variable ends.
    fn quantifier_end(&self, from: usize) -> usize {
        let mut end = from;
        for placed in self.text.tokens.iter().skip(self.text.index_at(from)) {
            let symbol = self.text.slice(placed.range.clone());
            if !matches!(symbol, "{" | "}" | "," | "*" | "+" | "?" | "??")
                && !symbol.starts_with(|c: char| c.is_ascii_digit())
            {
                break;
            }
            end = placed.range.end;
        }
        end
    }

    fn skip(&mut self, skip: Option<&AfterMatchSkip>, names: &[String]) -> Result<Skip> {
        let target = |ident: &Ident| {
            let name = self.name(ident)?;
            let place = self.text.range(ident.span);
            let Some(index) = names.iter().position(|known| *known == name) else {
                return Err(SqlError::new(place, format!("`{name}` is not in the pattern"))
                    .help_if(nearest_help(&name, names.iter().map(String::as_str))));
            };
            Ok((index, place))
        };
        match skip {
            None | Some(AfterMatchSkip::ToNextRow) => Ok(Skip::ToNextRow),
            Some(AfterMatchSkip::PastLastRow) => Ok(Skip::PastLastRow),
            Some(AfterMatchSkip::ToFirst(ident)) => match target(ident)? {
                (0, place) => {
                    Err(SqlError::new(place, "this would go on at the first row of the match, and match it again")
                        .help("name a later variable, or write AFTER MATCH SKIP TO NEXT ROW"))
                }
                (index, _) => Ok(Skip::ToFirst(index)),
            },
            Some(AfterMatchSkip::ToLast(ident)) => Ok(Skip::ToLast(target(ident)?.0)),
        }
    }

    /// A column of a variable (`A.x`), or of any (`x`), and fields of it.
    pub(super) fn matched_path(&mut self, parts: &[Ident], matched: &mut Matched, schema: &Schema) -> Result<Expr> {
        let names = parts.iter().map(|part| self.name(part)).collect::<Result<Vec<String>>>()?;
        let place = |at: usize| parts.get(at).map_or_else(|| self.text.end(), |part| self.text.range(part.span));
        let (variable, column_at) = match names.as_slice() {
            [] | [_] => (None, 0),
            [first, ..] => match matched.variables.iter().position(|known| known == first) {
                Some(variable) => (Some(variable), 1),
                None => {
                    let known = matched.variables.join(", ");
                    return Err(SqlError::new(place(0), format!("`{first}` is no variable of the pattern"))
                        .help_if(nearest_help(first, matched.variables.iter().map(String::as_str)))
                        .help_if(Some(format!("the variables are {known}"))));
                }
            },
        };
        let name = names.get(column_at).map(String::as_str).unwrap_or_default();
        let Some(column) = schema.index_of(name) else {
            let help = match matched.variables.iter().any(|known| known == name) {
                true => Some(format!("`{name}` is a variable: name a column of its rows, `{name}.x`")),
                false => column_help(name, schema),
            };
            return Err(SqlError::new(place(column_at), format!("unknown column `{name}`")).help_if(help));
        };
        let data_type = schema.type_of(column).cloned().unwrap_or(DataType::Null);
        let mut expr = matched.column(variable, column, data_type);
        for (at, field) in names.iter().enumerate().skip(column_at + 1) {
            expr = build::field(expr, field)
                .map_err(|error| SqlError::new(place(at), error.message).help_if(error.help))?;
        }
        Ok(expr)
    }

    /// The functions that look at a match, aggregates among them; `None` where it is another.
    pub(super) fn matched_function(
        &mut self,
        expr: &Ast,
        function: &Function,
        name: &str,
        scope: &mut Scope<'_>,
    ) -> Result<Option<Expr>> {
        let kind = aggregate::kind_of(name);
        let is_own = matches!(
            name,
            "FIRST" | "LAST" | "PREV" | "NEXT" | "MATCH_ROWTIME" | "MATCH_PROCTIME" | "CLASSIFIER" | "MATCH_NUMBER"
        );
        if kind.is_none() && !is_own {
            return Ok(None);
        }
        let list: &[FunctionArg] = if let FunctionArguments::List(list) = &function.args { &list.args } else { &[] };
        let distinct = matches!(&function.args,
            FunctionArguments::List(list) if list.duplicate_treatment == Some(DuplicateTreatment::Distinct));
        if distinct {
            return self.refuse(expr, "DISTINCT inside MATCH_RECOGNIZE is not supported, nor by Flink", "leave it out");
        }
        if function.filter.is_some() {
            let help = "aggregate a CASE: SUM(CASE WHEN condition THEN A.x END)";
            return self.refuse(expr, "FILTER inside MATCH_RECOGNIZE is not supported", help);
        }
        let within = scope.matched.as_deref().map_or(Within::Nothing, |matched| matched.within);
        if within != Within::Nothing {
            let message = format!("{name} cannot stand inside FIRST, LAST or an aggregate");
            return self.refuse(expr, &message, "take it out of the other call");
        }
        let mut args = Vec::new();
        for arg in list {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => args.push(arg),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if name == "COUNT" && list.len() == 1 => {}
                _ => return self.refuse(expr, &format!("{name} takes columns of variables"), "write for example A.x"),
            }
        }
        match (name, kind) {
            ("FIRST" | "LAST", _) => self.navigation(expr, name, &args, scope).map(Some),
            ("MATCH_ROWTIME", _) => self.match_rowtime(expr, &args, scope).map(Some),
            (_, Some(kind)) => self.matched_aggregate(expr, name, kind, &args, scope).map(Some),
            ("PREV" | "NEXT", _) => {
                let help = "write LAST(A.x, 1): the row before the last of A";
                self.refuse(expr, &format!("{name} is not supported, nor by Flink: it counts rows of the input"), help)
            }
            ("MATCH_PROCTIME", _) => {
                self.refuse(expr, "MATCH_PROCTIME() depends on when it runs", "write MATCH_ROWTIME()")
            }
            _ => self.refuse(expr, &format!("{name}() is not supported, nor by Flink"), "leave it out"),
        }
    }

    /// `FIRST(x [, offset])`, `LAST(x [, offset])`: each column in it is read of that row.
    fn navigation(&mut self, expr: &Ast, name: &str, args: &[&Ast], scope: &mut Scope<'_>) -> Result<Expr> {
        let form = format!("write {name}(A.x) or {name}(A.x, 1)");
        let (value, offset) = match args {
            [value] => (value, 0),
            [value, offset] => {
                let planned = self.expr(offset, scope)?;
                match planned.kind {
                    ExprKind::Literal(Value::Integer(rows)) if rows >= 0 => {
                        (value, usize::try_from(rows).unwrap_or(usize::MAX / 2))
                    }
                    _ => return self.refuse(offset, &format!("the offset of {name} must be a number ≥ 0"), &form),
                }
            }
            _ => return self.refuse(expr, &format!("{name} takes a value and an offset"), &form),
        };
        let within = Within::Navigation { first: name == "FIRST", offset };
        let (planned, seen) = self.inside(within, value, scope)?;
        match self.one_variable(expr, name, &seen)? {
            Some(_) => Ok(planned),
            None => self.refuse(expr, &format!("{name} needs a column"), &form),
        }
    }

    /// Plans an expression inside a call; gives the variables of its columns too.
    fn inside(&mut self, within: Within, expr: &Ast, scope: &mut Scope<'_>) -> Result<(Expr, Vec<Option<usize>>)> {
        if let Some(matched) = scope.matched.as_deref_mut() {
            matched.within = within;
            matched.seen.clear();
        }
        let planned = self.expr(expr, scope);
        let seen = scope.matched.as_deref_mut().map_or_else(Vec::new, |matched| {
            matched.within = Within::Nothing;
            std::mem::take(&mut matched.seen)
        });
        Ok((planned?, seen))
    }

    /// The one variable that a call reads; `None` where it reads no column.
    fn one_variable(&self, expr: &Ast, name: &str, seen: &[Option<usize>]) -> Result<Option<Option<usize>>> {
        let Some(first) = seen.first() else { return Ok(None) };
        match seen.iter().all(|variable| variable == first) {
            true => Ok(Some(*first)),
            false => self.refuse(
                expr,
                &format!("{name} must read the rows of one variable, as in Flink"),
                "write one call for each variable",
            ),
        }
    }

    fn matched_aggregate(
        &mut self,
        expr: &Ast,
        name: &str,
        kind: AggregateKind,
        args: &[&Ast],
        scope: &mut Scope<'_>,
    ) -> Result<Expr> {
        let (mut planned, mut seen) = (Vec::new(), Vec::new());
        for arg in args {
            let (arg, variables) = self.inside(Within::Aggregate, arg, scope)?;
            planned.push(arg);
            seen.extend(variables);
        }
        let variable = match self.one_variable(expr, name, &seen)? {
            Some(variable) => variable,
            None if planned.is_empty() => None,
            None => {
                let help = format!("write {name}(A.x); COUNT(*) counts the rows of the match");
                return self.refuse(expr, &format!("{name} needs a column of a variable, as in Flink"), &help);
            }
        };
        let call = AggregateCall::new(kind, planned, None, false, None).map_err(|error| self.typed(expr, error))?;
        let data_type = call.data_type.clone();
        let Some(matched) = scope.matched.as_deref_mut() else {
            return self.refuse(expr, &format!("{name} cannot stand here"), "put it into MEASURES");
        };
        Ok(matched.slot(Slot { kind: SlotKind::Aggregate(Box::new(call)), variable, data_type }))
    }

    /// `MATCH_ROWTIME([time attribute])`.
    fn match_rowtime(&mut self, expr: &Ast, args: &[&Ast], scope: &mut Scope<'_>) -> Result<Expr> {
        const FORM: &str = "write MATCH_ROWTIME(ts) with the time attribute, or MATCH_ROWTIME() for a TIMESTAMP(3)";
        let time = scope.schema.time;
        let data_type = match args {
            [] => DataType::Timestamp(3),
            [arg] => {
                let (planned, _) = self.inside(Within::Aggregate, arg, scope)?;
                match planned.kind {
                    ExprKind::Column(column) if Some(column) == time => planned.data_type,
                    _ => return self.refuse(arg, "MATCH_ROWTIME takes the time attribute", FORM),
                }
            }
            _ => return self.refuse(expr, "MATCH_ROWTIME takes at most one argument", FORM),
        };
        let Some(matched) = scope.matched.as_deref_mut() else {
            return self.refuse(expr, "MATCH_ROWTIME cannot stand here", "put it into MEASURES");
        };
        Ok(matched.slot(Slot { kind: SlotKind::Time, variable: None, data_type }))
    }
}
