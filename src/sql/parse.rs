//! Query text to the syntax tree of `sqlparser`, and the relations that a query reads.

use std::ops::Range;

use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, InTarget, Join, ObjectName,
    ObjectNamePart, Query, Select, SetExpr, TableFactor, TableWithJoins,
};
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::SqlError;
use super::dialect::FlinkDialect;
use super::syntax_error::explained;
use super::text::{NESTING_MAX, Text, is_word};
use super::{foreign, nearest_help, pattern_text};

/// Nesting that `sqlparser` follows; above [`NESTING_MAX`], since words nest too (`CASE CASE …`).
const RECURSION_MAX: usize = NESTING_MAX + 20;
/// Most UNIONs in one query: they chain to the left, so their number bounds the depth of the syntax tree.
const SET_OPERATORS_MAX: usize = 200;

/// Parses one query; one `;` may follow.
pub(super) fn parse(text: &Text<'_>) -> Result<Box<Query>, SqlError> {
    check_statement(text)?;
    let mut tokens = text.raw.clone();
    if text.tokens.last().is_some_and(|placed| placed.token == Token::SemiColon)
        && let Some(index) = tokens.iter().rposition(|token| token.token == Token::SemiColon)
    {
        tokens.truncate(index);
    }
    let error = match run(text, tokens, text.end()) {
        Ok(query) => return Ok(query),
        Err(error) => error,
    };
    // `sqlparser` tries a sub-query in FROM, forgets why it failed and then complains about its first word. So each
    // sub-query is parsed alone, the innermost first, and the first that fails tells what is wrong.
    for (open, placed) in text.tokens.iter().enumerate().rev() {
        if placed.token != Token::LParen || !["SELECT", "WITH"].iter().any(|word| text.is_word(open + 1, word)) {
            continue;
        }
        let Some(close) = text.closing(open).and_then(|close| text.tokens.get(close)) else { continue };
        let inner = text.raw.get(placed.raw + 1..close.raw).unwrap_or_default().to_vec();
        run(text, inner, close.range.clone())?;
    }
    Err(error)
}

/// Refuses what is no query, by its first word.
fn check_statement(text: &Text<'_>) -> Result<(), SqlError> {
    let Some(first) = text.tokens.first() else {
        return Err(SqlError::new(text.end(), "the query is empty").help("write SELECT … FROM …"));
    };
    let is_set_operator = |i: &usize| ["UNION", "EXCEPT", "INTERSECT", "MINUS"].iter().any(|w| text.is_word(*i, w));
    if let Some(placed) =
        (0..text.tokens.len()).filter(is_set_operator).nth(SET_OPERATORS_MAX).and_then(|i| text.tokens.get(i))
    {
        let message = format!("the query has more than {SET_OPERATORS_MAX} set operators");
        return Err(SqlError::new(placed.range.clone(), message).help("split it: one [query.NAME] may read another"));
    }
    foreign::check(text)?;
    check_forgotten(text)?;
    pattern_text::check(text)?;
    let written = text.slice(first.range.clone());
    let word = written.to_ascii_uppercase();
    let refuse = |help: &str| Err(SqlError::new(first.range.clone(), format!("{written} is no query")).help(help));
    match word.as_str() {
        "SELECT" | "WITH" | "(" | "FROM" | "TABLE" => Ok(()),
        "VALUES" => Err(SqlError::new(first.range.clone(), "VALUES is not supported: a query reads streams")
            .help("read the rows with a source of type \"file\"")),
        "INSERT" => refuse("write the SELECT alone; a [sink.NAME] with `from` takes its rows"),
        "CREATE" => refuse("write the SELECT of a view alone, as [query.NAME]; tables are [source.NAME]"),
        "SET" | "RESET" => refuse("settings stand in the configuration file"),
        "EXPLAIN" => refuse("`forebay explain CONFIG` shows the plan of each query"),
        _ => match nearest_help(&word, ["SELECT", "WITH"]) {
            Some(help) => refuse(&help),
            None => refuse("a query starts with SELECT or WITH"),
        },
    }
}

/// Refuses what `sqlparser` reads and forgets: `GLOBAL` without a join, and the IS that is missing in `x NOT NULL`.
fn check_forgotten(text: &Text<'_>) -> Result<(), SqlError> {
    if let Some(global) = text.tokens.iter().find(|placed| is_word(&placed.token, "GLOBAL")) {
        let message = "GLOBAL is not part of Flink SQL";
        return Err(SqlError::new(global.range.clone(), message).help("as a name, write it in back-ticks: `GLOBAL`"));
    }
    for (index, window) in text.tokens.windows(3).enumerate() {
        let [before, not, null] = window else { continue };
        let operand = match &before.token {
            Token::Word(word) => {
                word.quote_style.is_some() || !NO_OPERAND.contains(&word.value.to_ascii_uppercase().as_str())
            }
            Token::RParen | Token::RBracket | Token::Number(..) | Token::SingleQuotedString(_) => true,
            _ => false,
        };
        if operand && text.is_word(index + 1, "NOT") && text.is_word(index + 2, "NULL") {
            return Err(SqlError::new(not.range.start..null.range.end, "`NOT NULL` behind a value is not Flink SQL")
                .help("write x IS NOT NULL; types in CAST take no NOT NULL"));
        }
    }
    Ok(())
}

/// Words before which a value ends, so that `NOT NULL` behind them is the negation of NULL.
const NO_OPERAND: [&str; 17] = [
    "IS", "SELECT", "ALL", "DISTINCT", "WHERE", "AND", "OR", "NOT", "ON", "WHEN", "THEN", "ELSE", "CASE", "HAVING",
    "BY", "BETWEEN", "FROM",
];

/// Parses tokens as one query; `end` is the place behind them.
fn run(text: &Text<'_>, tokens: Vec<TokenWithSpan>, end: Range<usize>) -> Result<Box<Query>, SqlError> {
    let dialect = FlinkDialect::default();
    let tokens = pattern_text::readable(tokens);
    let mut parser = Parser::new(&dialect).with_recursion_limit(RECURSION_MAX).with_tokens_with_locations(tokens);
    let result = parser.parse_query().and_then(|query| match parser.peek_token_ref().token {
        Token::EOF => Ok(query),
        _ => parser.expected_ref("the end of the query", parser.peek_token_ref()),
    });
    let error = match result {
        Ok(query) => return Ok(query),
        Err(error) => error,
    };
    if let Some(refusal) = dialect.refusal() {
        let place = text.range(refusal.span);
        return Err(match refusal.help {
            Some(help) => SqlError::new(place, refusal.message).help(help),
            None => explained(text, &refusal.message, place),
        });
    }
    let farthest = || {
        let token = parser.token_at(dialect.farthest());
        let at = text.index_at(text.range(token.span).start);
        match text.tokens.get(at).filter(|placed| token.token != Token::EOF && placed.range.start < end.start) {
            Some(placed) => placed.range.clone(),
            None => end.clone(),
        }
    };
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            let message = format!("the query is nested deeper than {RECURSION_MAX} levels");
            return Err(SqlError::new(farthest(), message).help("split it with WITH"));
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let located = message.rsplit_once(" at Line: ").and_then(|(message, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        Some((message, line.parse().ok()?, column.trim().parse().ok()?))
    });
    let (message, place) = match located {
        Some((message, line, column)) => (message, text.token_at(line, column)),
        None if message.contains("found: EOF") => (message.as_str(), end),
        None => (message.as_str(), farthest()),
    };
    Err(explained(text, message, place))
}

/// The relations that a query reads, CTEs excluded, in order of appearance, each once.
pub(super) fn relations(query: &Query) -> Vec<String> {
    let mut walk = Walk { found: Vec::new(), ctes: Vec::new() };
    walk.query(query);
    walk.found
}

/// What [`relations`] meets. It looks only where a relation can stand in a query that is taken; the planner refuses
/// the rest.
struct Walk<'a> {
    found: Vec<String>,
    ctes: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn query(&mut self, query: &'a Query) {
        let outer = self.ctes.len();
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.query(&cte.query);
            self.ctes.push(&cte.alias.name.value);
        }
        self.body(&query.body);
        self.ctes.truncate(outer);
    }

    fn body(&mut self, body: &'a SetExpr) {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(query) => self.query(query),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left);
                self.body(right);
            }
            _ => {}
        }
    }

    fn select(&mut self, select: &'a Select) {
        for TableWithJoins { relation, joins } in &select.from {
            self.factor(relation);
            for Join { relation, .. } in joins {
                self.factor(relation);
            }
        }
        // Sub-queries of IN and EXISTS, as far as they are taken.
        let mut rest: Vec<&Expr> = select.selection.iter().collect();
        while let Some(expr) = rest.pop() {
            match expr {
                Expr::BinaryOp { left, op: BinaryOperator::And, right } => rest.extend([right.as_ref(), left.as_ref()]),
                Expr::In { target: InTarget::Subquery(query), .. } | Expr::Exists { subquery: query, .. } => {
                    self.query(query);
                }
                _ => {}
            }
        }
    }

    fn factor(&mut self, factor: &'a TableFactor) {
        match factor {
            TableFactor::Table { name, args: None, .. } => {
                if let [ObjectNamePart::Identifier(Ident { value, .. })] = name.0.as_slice() {
                    self.name(value);
                }
            }
            TableFactor::Table { args: Some(args), .. } => args.args.iter().for_each(|arg| self.argument(arg)),
            TableFactor::Derived { subquery, .. } => self.query(subquery),
            TableFactor::TableFunction { expr: Expr::Function(function), .. } => {
                if let FunctionArguments::List(list) = &function.args {
                    list.args.iter().for_each(|arg| self.argument(arg));
                }
            }
            TableFactor::NestedJoin { table_with_joins, .. } => {
                self.factor(&table_with_joins.relation);
                table_with_joins.joins.iter().for_each(|join| self.factor(&join.relation));
            }
            TableFactor::MatchRecognize { table, .. } => self.factor(table),
            _ => {}
        }
    }

    fn argument(&mut self, arg: &'a FunctionArg) {
        let (FunctionArg::Named { arg, .. } | FunctionArg::ExprNamed { arg, .. } | FunctionArg::Unnamed(arg)) = arg;
        match arg {
            FunctionArgExpr::Expr(Expr::Prefixed { value, .. }) => {
                let table = match value.as_ref() {
                    Expr::Tuple(items) => items.first(),
                    table => Some(table),
                };
                if let Some(Expr::CompoundIdentifier(parts)) = table
                    && let [Ident { value, .. }] = parts.as_slice()
                {
                    self.name(value);
                }
            }
            FunctionArgExpr::Expr(Expr::Subquery(query)) => self.query(query),
            _ => {}
        }
    }

    fn name(&mut self, name: &'a str) {
        if !self.ctes.contains(&name) && !self.found.iter().any(|found| found == name) {
            self.found.push(name.to_owned());
        }
    }
}

/// The single identifier of an object name.
pub(super) fn single(name: &ObjectName) -> Option<&Ident> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => Some(ident),
        _ => None,
    }
}
