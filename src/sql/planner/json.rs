//! `JSON_VALUE`, `JSON_QUERY`, `JSON_EXISTS` with their clauses, which the dialect hands over as named arguments.

use sqlparser::ast::{Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArguments, Ident};

use super::expression::Scope;
use super::{Planner, Result};
use crate::expr::DataType;
use crate::expr::build::{self, ExistsOnError, Expr, Otherwise, QueryOtherwise, Wrapper};
use crate::sql::SqlError;
use crate::sql::parse::single;
use crate::sql::types::parse_type;

/// The clauses as written.
#[derive(Default)]
struct Clauses<'a> {
    returning: Option<&'a Ident>,
    wrapper: Option<&'a Ident>,
    empty: Option<&'a Ast>,
    error: Option<&'a Ast>,
}

impl Planner<'_> {
    /// A call of a JSON function; `None`: `name` is none.
    pub(super) fn json(
        &mut self,
        expr: &Ast,
        name: &str,
        args: &[FunctionArg],
        scope: &mut Scope<'_>,
    ) -> Result<Option<Expr>> {
        if matches!(name, "JSON_OBJECT" | "JSON_ARRAY") {
            return self.json_made(expr, name, args, scope).map(Some);
        }
        if !matches!(name, "JSON_VALUE" | "JSON_QUERY" | "JSON_EXISTS") {
            return Ok(None);
        }
        let mut plain = Vec::new();
        let mut clauses = Clauses::default();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => plain.push(self.expr(arg, scope)?),
                FunctionArg::Named { name: clause, arg: FunctionArgExpr::Expr(arg), operator: _ } => {
                    let words = if let Ast::Identifier(ident) = arg { Some(ident) } else { None };
                    let twice = match clause.value.as_str() {
                        "RETURNING" => std::mem::replace(&mut clauses.returning, words).is_some(),
                        "WRAPPER" => std::mem::replace(&mut clauses.wrapper, words).is_some(),
                        "EMPTY" => clauses.empty.replace(arg).is_some(),
                        _ => clauses.error.replace(arg).is_some(),
                    };
                    if twice {
                        let place = self.text.range(clause.span);
                        return Err(
                            SqlError::new(place, format!("{name} has this clause twice")).help("leave one of them out")
                        );
                    }
                }
                _ => {
                    return Err(SqlError::new(self.argument_place(arg), format!("{name} takes a text and a path"))
                        .help(format!("write {name}(doc, '$.a.b')")));
                }
            }
        }
        let Ok([doc, path]) = <[Expr; 2]>::try_from(plain) else {
            return Err(SqlError::new(self.place(expr), format!("{name} takes a text and a path"))
                .help(format!("write {name}(doc, '$.a.b')")));
        };
        let allowed: &[&str] = match name {
            "JSON_VALUE" => &["RETURNING", "EMPTY", "ERROR"],
            "JSON_QUERY" => &["RETURNING", "WRAPPER", "EMPTY", "ERROR"],
            _ => &["ERROR"],
        };
        for arg in args {
            if let FunctionArg::Named { name: clause, .. } = arg
                && !allowed.contains(&clause.value.as_str())
            {
                let place = self.text.range(clause.span);
                return Err(SqlError::new(place, format!("{name} has no such clause")).help("leave it out"));
            }
        }
        let returning = clauses.returning.map(|ident| self.returning(ident)).transpose()?.unwrap_or(DataType::String);
        let built = match name {
            "JSON_VALUE" => {
                let on_empty = self.otherwise(clauses.empty, scope)?;
                let on_error = self.otherwise(clauses.error, scope)?;
                build::json_value(doc, path, &returning, on_empty, on_error)
            }
            "JSON_QUERY" => {
                let is_array = matches!(&returning, DataType::Array(item) if **item == DataType::String);
                if !is_array && returning != DataType::String {
                    let message = format!("JSON_QUERY does not return {returning}");
                    return Err(SqlError::new(self.place(expr), message).help("it returns STRING or ARRAY<STRING>"));
                }
                let wrapper = self.wrapper(clauses.wrapper)?;
                let on_empty = self.query_otherwise(clauses.empty)?;
                let on_error = self.query_otherwise(clauses.error)?;
                build::json_query(doc, path, wrapper, on_empty, on_error, is_array)
            }
            _ => build::json_exists(doc, path, self.exists_on_error(clauses.error)?),
        };
        self.built(expr, built).map(Some)
    }

    /// JSON_OBJECT has NULLs unless it says otherwise, JSON_ARRAY has not.
    fn json_made(&mut self, expr: &Ast, name: &str, args: &[FunctionArg], scope: &mut Scope<'_>) -> Result<Expr> {
        let mut with_nulls = name == "JSON_OBJECT";
        let mut planned = Vec::new();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => planned.push(self.json_part(arg, scope)?),
                FunctionArg::Named { name: clause, arg: _, operator: _ } => with_nulls = clause.value == "NULL",
                _ => {
                    return Err(
                        SqlError::new(self.argument_place(arg), format!("{name} takes values")).help("name columns")
                    );
                }
            }
        }
        self.built(expr, build::json_made(name, planned, with_nulls))
    }

    /// A value of those, which may be `JSON(text)`.
    fn json_part(&mut self, expr: &Ast, scope: &mut Scope<'_>) -> Result<Expr> {
        let Ast::Function(function) = expr else { return self.expr(expr, scope) };
        let FunctionArguments::List(list) = &function.args else { return self.expr(expr, scope) };
        if single(&function.name).is_none_or(|name| !name.value.eq_ignore_ascii_case("JSON")) || function.over.is_some()
        {
            return self.expr(expr, scope);
        }
        let mut planned = Vec::new();
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) => planned.push(self.expr(arg, scope)?),
                _ => return Err(SqlError::new(self.argument_place(arg), "JSON takes one STRING").help("write JSON(x)")),
            }
        }
        self.built(expr, build::json_raw(planned))
    }

    fn returning(&self, ident: &Ident) -> Result<DataType> {
        let place = self.text.range(ident.span);
        parse_type(self.text.slice(place.clone()))
            .map_err(|error| SqlError { span: place.start + error.span.start..place.start + error.span.end, ..error })
    }

    /// `NULL | ERROR | DEFAULT x`.
    fn otherwise(&mut self, clause: Option<&Ast>, scope: &mut Scope<'_>) -> Result<Otherwise> {
        match clause {
            None => Ok(Otherwise::Null),
            Some(Ast::Identifier(ident)) => match ident.value.as_str() {
                "NULL" => Ok(Otherwise::Null),
                "ERROR" => Ok(Otherwise::Error),
                _ => Ok(Otherwise::Default(self.expr(&Ast::Identifier(ident.clone()), scope)?)),
            },
            Some(default) => Ok(Otherwise::Default(self.expr(default, scope)?)),
        }
    }

    fn query_otherwise(&self, clause: Option<&Ast>) -> Result<QueryOtherwise> {
        let help = "write NULL, ERROR, EMPTY ARRAY or EMPTY OBJECT, then ON EMPTY or ON ERROR";
        Ok(match self.words(clause, help)?.as_deref() {
            None | Some("NULL") => QueryOtherwise::Null,
            Some("ERROR") => QueryOtherwise::Error,
            Some("EMPTY ARRAY") => QueryOtherwise::EmptyArray,
            Some("EMPTY OBJECT") => QueryOtherwise::EmptyObject,
            Some(_) => return self.unknown(clause, help),
        })
    }

    fn exists_on_error(&self, clause: Option<&Ast>) -> Result<ExistsOnError> {
        let help = "write TRUE, FALSE, UNKNOWN or ERROR, then ON ERROR";
        Ok(match self.words(clause, help)?.as_deref() {
            None | Some("FALSE") => ExistsOnError::False,
            Some("TRUE") => ExistsOnError::True,
            Some("UNKNOWN") => ExistsOnError::Unknown,
            Some("ERROR") => ExistsOnError::Error,
            Some(_) => return self.unknown(clause, help),
        })
    }

    fn wrapper(&self, clause: Option<&Ident>) -> Result<Wrapper> {
        Ok(match clause.map(|ident| ident.value.as_str()) {
            None | Some("WITHOUT" | "WITHOUT ARRAY") => Wrapper::Without,
            Some("WITH" | "WITH ARRAY" | "WITH UNCONDITIONAL" | "WITH UNCONDITIONAL ARRAY") => Wrapper::Unconditional,
            Some("WITH CONDITIONAL" | "WITH CONDITIONAL ARRAY") => Wrapper::Conditional,
            Some(_) => {
                let place = clause.map_or_else(|| self.text.end(), |ident| self.text.range(ident.span));
                return Err(SqlError::new(place, "this WRAPPER clause is not known")
                    .help("write WITHOUT WRAPPER, WITH CONDITIONAL WRAPPER or WITH UNCONDITIONAL WRAPPER"));
            }
        })
    }

    fn words(&self, clause: Option<&Ast>, help: &str) -> Result<Option<String>> {
        match clause {
            None => Ok(None),
            Some(Ast::Identifier(ident)) => Ok(Some(ident.value.clone())),
            Some(_) => self.unknown(clause, help),
        }
    }

    fn unknown<T>(&self, clause: Option<&Ast>, help: &str) -> Result<T> {
        let place = clause.map_or_else(|| self.text.end(), |clause| self.place(clause));
        Err(SqlError::new(place, "this clause is not known here").help(help.to_owned()))
    }
}
