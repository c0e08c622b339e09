//! Flink SQL as a dialect of `sqlparser`.
//!
//! What `sqlparser` would read by its own rules is read here, in [`Dialect::parse_prefix`], and handed on in nodes that
//! keep the places: types of CAST as their text, units as words, `TABLE t` as a prefixed expression. What it accepts
//! beyond Flink is refused by the lexical check (`text.rs`) or by the planner, which takes no node it does not know.

use std::cell::{Cell, RefCell};

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    CaseWhen, CastKind, CeilFloorKind, DataType, DateTimeField, Expr, ExtractSyntax, Function, FunctionArg,
    FunctionArgExpr, FunctionArgOperator, FunctionArgumentList, FunctionArguments, Ident, Interval, ObjectName, Value,
    ValueWithSpan,
};
use sqlparser::dialect::Dialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::reserved::is_reserved;
use super::syntax_error::unit;

/// Most operators in one query: they chain to the left, so their number bounds the depth of the syntax tree.
pub(super) const OPERATORS_MAX: usize = 2000;

/// Clauses of other dialects whose first word Flink does not reserve: no names of tables or columns without AS.
pub(super) const FOREIGN_CLAUSES: [&str; 6] = ["PREWHERE", "SETTINGS", "CLUSTER", "DISTRIBUTE", "SORT", "SAMPLE"];

/// Words that end an expression or join two, and start none.
const NO_EXPRESSION: [&str; 22] = [
    "AND", "AS", "BETWEEN", "BY", "ELSE", "END", "FROM", "GROUP", "HAVING", "IN", "IS", "JOIN", "LIKE", "LIMIT", "ON",
    "OR", "ORDER", "THEN", "UNION", "USING", "WHEN", "WHERE",
];

/// A refusal of the dialect's own, with its place.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub span: Span,
    pub message: String,
    /// `None`: the message is as the library's, to be put into words.
    pub help: Option<String>,
}

/// The dialect of one parser run.
#[derive(Debug, Default)]
pub(super) struct FlinkDialect {
    operators: Cell<usize>,
    /// Index of the farthest token at which an expression was looked for.
    farthest: Cell<usize>,
    /// The first refusal. `sqlparser` tries alternatives and loses errors; this one stands if it fails in the end.
    refusal: RefCell<Option<Refusal>>,
}

impl FlinkDialect {
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal.borrow().clone()
    }

    /// Index (white space counted) of the farthest token at which an expression was looked for.
    pub fn farthest(&self) -> usize {
        self.farthest.get()
    }

    fn refuse<T>(&self, span: Span, message: &str, help: &str) -> Result<T, ParserError> {
        let refusal = Refusal { span, message: message.to_owned(), help: Some(help.to_owned()) };
        self.refusal.borrow_mut().get_or_insert(refusal);
        Err(ParserError::ParserError(message.to_owned()))
    }

    /// `CAST(e AS type)`: the type is kept as the place of its text.
    fn cast(&self, parser: &mut Parser<'_>, kind: CastKind) -> Result<Expr, ParserError> {
        parser.advance_token();
        parser.expect_token(&Token::LParen)?;
        let expr = Box::new(parser.parse_expr()?);
        parser.expect_keyword_is(Keyword::AS)?;
        let start = parser.peek_token_ref().span.start;
        let mut end = start;
        let mut depth = 0_usize;
        loop {
            let TokenWithSpan { token, span } = parser.peek_token_ref();
            match token {
                Token::EOF => break,
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => break,
                Token::RParen => depth -= 1,
                _ => {}
            }
            end = span.end;
            parser.advance_token();
        }
        if end == start {
            return self.refuse(
                parser.peek_token_ref().span,
                "a type must follow AS",
                "write for example CAST(x AS INT)",
            );
        }
        parser.expect_token(&Token::RParen)?;
        let place = Ident::with_span(Span::new(start, end), "type");
        let data_type = DataType::Custom(ObjectName::from(vec![place]), Vec::new());
        Ok(Expr::Cast { kind, expr, data_type, format: None })
    }

    /// `CASE [operand] WHEN … THEN … [ELSE …] END`; behind an operand several values may share a WHEN.
    fn case(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        let case_token = AttachedToken(parser.next_token());
        let operand = match parser.parse_keyword(Keyword::WHEN) {
            true => None,
            false => {
                let operand = parser.parse_expr()?;
                parser.expect_keyword_is(Keyword::WHEN)?;
                Some(Box::new(operand))
            }
        };
        let mut conditions = Vec::new();
        loop {
            let mut values = vec![parser.parse_expr()?];
            while operand.is_some() && parser.consume_token(&Token::Comma) {
                values.push(parser.parse_expr()?);
            }
            parser.expect_keyword_is(Keyword::THEN)?;
            let result = parser.parse_expr()?;
            conditions.extend(values.into_iter().map(|condition| CaseWhen { condition, result: result.clone() }));
            if !parser.parse_keyword(Keyword::WHEN) {
                break;
            }
        }
        let else_result = match parser.parse_keyword(Keyword::ELSE) {
            true => Some(Box::new(parser.parse_expr()?)),
            false => None,
        };
        let end_token = AttachedToken(parser.expect_keyword(Keyword::END)?);
        Ok(Expr::Case { case_token, end_token, operand, conditions, else_result })
    }

    /// `JSON_VALUE(doc, path clauses)` and its like: a call whose clauses are arguments named after them.
    fn json(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        let name = parser.parse_identifier()?;
        parser.expect_token(&Token::LParen)?;
        let mut args = Vec::new();
        loop {
            args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(parser.parse_expr()?)));
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        while !parser.consume_token(&Token::RParen) {
            let (clause, arg) = self.json_clause(parser)?;
            let operator = FunctionArgOperator::Colon;
            args.push(FunctionArg::Named { name: clause, arg: FunctionArgExpr::Expr(arg), operator });
        }
        Ok(call(name, args))
    }

    /// `JSON_OBJECT([KEY] key VALUE value, … [NULL | ABSENT ON NULL])` and `JSON_ARRAY(value, … [… ON NULL])`: a call
    /// whose clause is an argument of that name. The aggregates JSON_OBJECTAGG and JSON_ARRAYAGG alike, with FILTER.
    fn json_made(&self, parser: &mut Parser<'_>, is_object: bool, is_aggregate: bool) -> Result<Expr, ParserError> {
        const FORM: &str = "write JSON_OBJECT('a' VALUE x, 'b' VALUE y) or JSON_ARRAY(x, y)";
        let TokenWithSpan { token, span } = parser.next_token();
        let Token::Word(name) = token else { return self.refuse(span, "a function must stand here", FORM) };
        parser.expect_token(&Token::LParen)?;
        let word = |token: &Token| match token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
            _ => String::new(),
        };
        let mut args = Vec::new();
        loop {
            let next = parser.peek_token();
            let clause = word(&next.token);
            if next.token == Token::RParen {
                break;
            }
            if word(&parser.peek_nth_token_ref(1).token) == "ON" && matches!(clause.as_str(), "NULL" | "ABSENT") {
                parser.advance_token();
                parser.advance_token();
                if word(&parser.next_token().token) != "NULL" {
                    return self.refuse(next.span, "the clause is NULL ON NULL or ABSENT ON NULL", FORM);
                }
                args.push(FunctionArg::Named {
                    name: Ident::with_span(next.span, clause),
                    arg: FunctionArgExpr::Wildcard,
                    operator: FunctionArgOperator::Colon,
                });
                break;
            }
            if !args.is_empty() {
                parser.expect_token(&Token::Comma)?;
            }
            if is_object {
                if word(&parser.peek_token_ref().token) == "KEY" {
                    parser.advance_token();
                }
                let key = parser.peek_token();
                if !is_aggregate && !matches!(key.token, Token::SingleQuotedString(_)) {
                    return self.refuse(key.span, "a key of JSON_OBJECT must be a constant string", FORM);
                }
                let key = if is_aggregate { parser.parse_expr()? } else { Expr::Value(parser.parse_value()?) };
                args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(key)));
                let separator = parser.next_token();
                if word(&separator.token) != "VALUE" && separator.token != Token::Colon {
                    return self.refuse(separator.span, "VALUE must follow the key", FORM);
                }
            }
            args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(parser.parse_expr()?)));
        }
        parser.expect_token(&Token::RParen)?;
        let mut made = call(name.into_ident(span), args);
        if let Expr::Function(function) = &mut made
            && is_aggregate
            && word(&parser.peek_token_ref().token) == "FILTER"
        {
            parser.advance_token();
            parser.expect_token(&Token::LParen)?;
            parser.expect_keyword_is(Keyword::WHERE)?;
            function.filter = Some(Box::new(parser.parse_expr()?));
            parser.expect_token(&Token::RParen)?;
        }
        Ok(made)
    }

    /// `RETURNING type`, `… WRAPPER`, `… ON EMPTY`, `… ON ERROR`: its name and its words, its type or its default.
    fn json_clause(&self, parser: &mut Parser<'_>) -> Result<(Ident, Expr), ParserError> {
        let first = parser.peek_token();
        let word = |parser: &mut Parser<'_>, word: &str| {
            let found = matches!(&parser.peek_token_ref().token,
                Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word));
            if found {
                parser.advance_token();
            }
            found
        };
        if word(parser, "RETURNING") {
            let start = parser.peek_token_ref().span.start;
            let mut end = start;
            let mut depth = 0_usize;
            loop {
                let TokenWithSpan { token, span } = parser.peek_token_ref();
                match token {
                    Token::LParen | Token::Lt => depth += 1,
                    Token::RParen if depth == 0 => break,
                    Token::RParen | Token::Gt => depth = depth.saturating_sub(1),
                    Token::Word(_) if depth > 0 || end == start => {}
                    _ if depth == 0 => break,
                    _ => {}
                }
                if *token == Token::EOF {
                    break;
                }
                end = span.end;
                parser.advance_token();
            }
            if end == start {
                let help = "write for example RETURNING DOUBLE";
                return self.refuse(parser.peek_token_ref().span, "a type must follow RETURNING", help);
            }
            let place = Ident::with_span(Span::new(start, end), "type");
            return Ok((Ident::with_span(first.span, "RETURNING"), Expr::Identifier(place)));
        }
        let mut value = None;
        let mut words = Vec::new();
        if word(parser, "DEFAULT") {
            words.push("DEFAULT".to_owned());
            value = Some(parser.parse_expr()?);
        }
        while let Token::Word(next) = &parser.peek_token_ref().token {
            let next = next.value.to_ascii_uppercase();
            if next == "ON" {
                break;
            }
            parser.advance_token();
            if next == "WRAPPER" {
                let words = Ident::with_span(first.span, words.join(" "));
                return Ok((Ident::with_span(first.span, "WRAPPER"), Expr::Identifier(words)));
            }
            words.push(next);
        }
        if word(parser, "ON") {
            for event in ["EMPTY", "ERROR"] {
                if word(parser, event) {
                    let words = Expr::Identifier(Ident::with_span(first.span, words.join(" ")));
                    return Ok((Ident::with_span(first.span, event), value.unwrap_or(words)));
                }
            }
        }
        let help = "the clauses are RETURNING type, NULL | ERROR | DEFAULT x ON EMPTY | ERROR, WITH [CONDITIONAL] ARRAY WRAPPER";
        self.refuse(first.span, "this clause of a JSON function is not known", help)
    }

    /// `MAP[key, value, …]`: a call of MAP.
    fn map(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        let TokenWithSpan { token: _, span } = parser.next_token();
        parser.expect_token(&Token::LBracket)?;
        let items = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::RBracket)?;
        let args = items.into_iter().map(|item| FunctionArg::Unnamed(FunctionArgExpr::Expr(item))).collect();
        Ok(call(Ident::with_span(span, "MAP"), args))
    }

    fn unit(&self, parser: &mut Parser<'_>) -> Result<DateTimeField, ParserError> {
        let TokenWithSpan { token, span } = parser.peek_token();
        match token {
            Token::Word(word) if word.quote_style.is_none() => {
                parser.advance_token();
                Ok(DateTimeField::Custom(word.into_ident(span)))
            }
            _ => self.refuse(span, "a unit of time must stand here", "write for example SECOND, MINUTE, HOUR, DAY"),
        }
    }

    fn extract(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        parser.advance_token();
        parser.expect_token(&Token::LParen)?;
        let field = self.unit(parser)?;
        parser.expect_keyword_is(Keyword::FROM)?;
        let expr = Box::new(parser.parse_expr()?);
        parser.expect_token(&Token::RParen)?;
        Ok(Expr::Extract { field, syntax: ExtractSyntax::From, expr })
    }

    /// `FLOOR(e)`, `FLOOR(e TO unit)`, and CEIL.
    fn floor(&self, parser: &mut Parser<'_>, floor: bool) -> Result<Expr, ParserError> {
        parser.advance_token();
        parser.expect_token(&Token::LParen)?;
        let expr = Box::new(parser.parse_expr()?);
        let field = match parser.parse_keyword(Keyword::TO) {
            true => self.unit(parser)?,
            false => DateTimeField::NoDateTime,
        };
        parser.expect_token(&Token::RParen)?;
        let field = CeilFloorKind::DateTimeField(field);
        Ok(if floor { Expr::Floor { expr, field } } else { Expr::Ceil { expr, field } })
    }

    /// `INTERVAL [sign] 'text' unit[(p[, f])] [TO unit[(f)]]`.
    fn interval(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        const HELP: &str = "write for example INTERVAL '10' SECOND or INTERVAL '1:30' MINUTE TO SECOND";
        let keyword = parser.next_token().span;
        let negative = parser.consume_token(&Token::Minus);
        let _signed = negative || parser.consume_token(&Token::Plus);
        let TokenWithSpan { token, span } = parser.peek_token();
        let Token::SingleQuotedString(text) = token else {
            let next = |n: usize| parser.peek_nth_token_ref(n).token.to_string();
            let help = match (&token, unit(&next(1))) {
                (Token::Number(number, _), Some(unit)) => format!("write INTERVAL '{number}' {unit}"),
                _ => HELP.to_owned(),
            };
            return self.refuse(keyword, "INTERVAL needs a quoted number and a unit", &help);
        };
        parser.advance_token();
        let text = match (negative, text.strip_prefix('-')) {
            (true, Some(positive)) => positive.to_owned(),
            (true, None) => format!("-{text}"),
            (false, _) => text,
        };
        let next = parser.peek_token_ref();
        let written = text.split_once(' ').and_then(|(number, word)| Some((number, unit(word.trim())?)));
        if written.is_some() || !matches!(next.token, Token::Word(_)) {
            let help = written.map(|(number, unit)| format!("write INTERVAL '{number}' {unit}"));
            return self.refuse(keyword.union(&span), "this INTERVAL has no unit", help.as_deref().unwrap_or(HELP));
        }
        let leading_field = self.unit(parser)?;
        let (mut leading_precision, mut fraction) = (None, None);
        if parser.consume_token(&Token::LParen) {
            leading_precision = Some(parser.parse_literal_uint()?);
            if parser.consume_token(&Token::Comma) {
                fraction = Some(parser.parse_literal_uint()?);
            }
            parser.expect_token(&Token::RParen)?;
        }
        let mut last_field = None;
        if parser.parse_keyword(Keyword::TO) {
            last_field = Some(self.unit(parser)?);
            if fraction.is_none() && parser.consume_token(&Token::LParen) {
                fraction = Some(parser.parse_literal_uint()?);
                parser.expect_token(&Token::RParen)?;
            }
        }
        Ok(Expr::Interval(Interval {
            value: Box::new(Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), span })),
            leading_field: Some(leading_field),
            leading_precision,
            last_field,
            fractional_seconds_precision: fraction,
        }))
    }

    /// What follows `TABLE name PARTITION BY`: a column, or several in parentheses. The name comes first in the tuple.
    fn partitioned(&self, parser: &mut Parser<'_>, table: Expr) -> Result<Expr, ParserError> {
        let mut items = vec![table];
        if parser.consume_token(&Token::LParen) {
            loop {
                items.push(Expr::Identifier(parser.parse_identifier()?));
                if !parser.consume_token(&Token::Comma) {
                    break;
                }
            }
            parser.expect_token(&Token::RParen)?;
        } else {
            items.push(Expr::Identifier(parser.parse_identifier()?));
        }
        Ok(Expr::Tuple(items))
    }

    /// `(SELECT …) PARTITION BY …`: the query comes first in the tuple.
    fn partitioned_query(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        parser.expect_token(&Token::LParen)?;
        let query = Expr::Subquery(parser.parse_query()?);
        parser.expect_token(&Token::RParen)?;
        parser.expect_keywords(&[Keyword::PARTITION, Keyword::BY])?;
        self.partitioned(parser, query)
    }

    /// The first bound of `BETWEEN [A]SYMMETRIC`: the word before an expression.
    fn bound(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        let TokenWithSpan { token, span } = parser.next_token();
        let Token::Word(word) = token else { return parser.expected("a word", TokenWithSpan::new(token, span)) };
        let value = Box::new(parser.parse_subexpr(self.between_low_bound_precedence())?);
        Ok(Expr::Prefixed { prefix: word.into_ident(span), value })
    }

    /// `DATE 'text'`, `TIME 'text'`, `TIMESTAMP 'text'`, and `TABLE name`: a word before an expression.
    fn prefixed(&self, parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
        let TokenWithSpan { token, span } = parser.next_token();
        let Token::Word(word) = token else { return parser.expected("a word", TokenWithSpan::new(token, span)) };
        let value = match parser.peek_token_ref().token {
            Token::SingleQuotedString(_) => Expr::Value(parser.parse_value()?),
            _ => {
                let mut parts = vec![parser.parse_identifier()?];
                while parser.consume_token(&Token::Period) {
                    parts.push(parser.parse_identifier()?);
                }
                Expr::CompoundIdentifier(parts)
            }
        };
        let value = match parser.parse_keywords(&[Keyword::PARTITION, Keyword::BY]) {
            true => self.partitioned(parser, value)?,
            false => value,
        };
        Ok(Expr::Prefixed { prefix: word.into_ident(span), value: Box::new(value) })
    }
}

/// Whether a query in parentheses with `PARTITION BY` behind it comes next.
fn partitioned_query(parser: &Parser<'_>) -> bool {
    let is_word = |token: &Token, word: &str| matches!(token, Token::Word(w) if w.value.eq_ignore_ascii_case(word));
    let second = &parser.peek_nth_token_ref(1).token;
    if parser.peek_token_ref().token != Token::LParen || !(is_word(second, "SELECT") || is_word(second, "WITH")) {
        return false;
    }
    let (mut open, mut closed) = (0_usize, false);
    for n in 0.. {
        // By place, white space included: to count words from here each time would take the square of the query's length.
        match parser.peek_nth_token_no_skip(n).token {
            Token::Whitespace(_) => {}
            Token::EOF => return false,
            token if closed => return is_word(&token, "PARTITION"),
            Token::LParen => open += 1,
            Token::RParen => {
                open = open.saturating_sub(1);
                closed = open == 0;
            }
            _ => {}
        }
    }
    false
}

fn call(name: Ident, args: Vec<FunctionArg>) -> Expr {
    let list = FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
    Expr::Function(Function {
        name: ObjectName::from(vec![name]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

impl Dialect for FlinkDialect {
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn identifier_quote_style(&self, _identifier: &str) -> Option<char> {
        Some('`')
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        ch.is_alphabetic() || ch == '_'
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        ch.is_alphanumeric() || ch == '_' || ch == '$'
    }

    fn supports_unicode_string_literal(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn supports_comma_separated_trim(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_match_recognize(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_string_literal_column_alias(&self, _explicit: bool) -> bool {
        false
    }

    fn supports_string_literal_table_alias(&self, _explicit: bool) -> bool {
        false
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        is_reserved(&format!("{keyword:?}"))
    }

    fn is_column_alias(&self, keyword: &Keyword, _parser: &mut Parser<'_>) -> bool {
        let word = format!("{keyword:?}");
        !is_reserved(&word) && !FOREIGN_CLAUSES.contains(&word.as_str())
    }

    fn is_table_factor(&self, keyword: &Keyword, _parser: &mut Parser<'_>) -> bool {
        // UNNEST is read as a table function, and refused as one.
        *keyword == Keyword::UNNEST || !is_reserved(&format!("{keyword:?}"))
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser<'_>) -> bool {
        self.is_column_alias(keyword, parser)
    }

    fn parse_infix(&self, parser: &mut Parser<'_>, _: &Expr, _: u8) -> Option<Result<Expr, ParserError>> {
        self.operators.set(self.operators.get() + 1);
        if self.operators.get() <= OPERATORS_MAX {
            return None;
        }
        let message = format!("the query has more than {OPERATORS_MAX} operators");
        let span = parser.peek_token_ref().span;
        Some(self.refuse(span, &message, "split it with WITH; write `x = 1 OR x = 2 …` as `x IN (1, 2, …)`"))
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        self.farthest.set(self.farthest.get().max(parser.get_current_index().saturating_add(1)));
        if partitioned_query(parser) {
            return Some(self.partitioned_query(parser));
        }
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        if word.quote_style.is_some() {
            return None;
        }
        let word = word.value.to_ascii_uppercase();
        let next = &parser.peek_nth_token_ref(1).token;
        let (call, string) = (*next == Token::LParen, matches!(next, Token::SingleQuotedString(_)));
        match word.as_str() {
            word if NO_EXPRESSION.contains(&word) => {
                let TokenWithSpan { token, span } = parser.peek_token();
                let message = format!("Expected: an expression, found: {token}");
                let refusal = Refusal { span, message: message.clone(), help: None };
                self.refusal.borrow_mut().get_or_insert(refusal);
                Some(Err(ParserError::ParserError(message)))
            }
            "CAST" if call => Some(self.cast(parser, CastKind::Cast)),
            "TRY_CAST" if call => Some(self.cast(parser, CastKind::TryCast)),
            "CASE" if !call => Some(self.case(parser)),
            "EXTRACT" if call => Some(self.extract(parser)),
            "FLOOR" if call => Some(self.floor(parser, true)),
            "CEIL" | "CEILING" if call => Some(self.floor(parser, false)),
            "JSON_VALUE" | "JSON_QUERY" | "JSON_EXISTS" if call => Some(self.json(parser)),
            "JSON_OBJECT" | "JSON_ARRAY" if call => Some(self.json_made(parser, word == "JSON_OBJECT", false)),
            "JSON_OBJECTAGG" | "JSON_ARRAYAGG" if call => Some(self.json_made(parser, word == "JSON_OBJECTAGG", true)),
            "MAP" if *next == Token::LBracket => Some(self.map(parser)),
            "INTERVAL" => Some(self.interval(parser)),
            "DATE" | "TIME" | "TIMESTAMP" if string => Some(self.prefixed(parser)),
            "TABLE" if !call => Some(self.prefixed(parser)),
            "SYMMETRIC" | "ASYMMETRIC" => Some(self.bound(parser)),
            _ => None,
        }
    }
}
