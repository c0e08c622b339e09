//! Scalar functions: one file per family, and the one registry of all.
//!
//! A function is an entry of its family's list: name, signature (for messages), and `resolve`, which looks at the
//! arguments' types, casts them, and makes the expression: another expression that means the same, or a [`Call`] with
//! a kernel over columns.
//!
//! To add one: an entry in its family's file. To add a family: a file here, and a line in `FAMILIES`.
//!
//! Functions whose value is no function of the row (the clock, randomness) are refused by name: results must be
//! functions of the log alone.

use std::fmt;
use std::sync::Arc;

use arrow_array::ArrayRef;

use super::build::{Expr, ExprKind, TypeError, Value};
use super::types::DataType;
use super::vector::{Operand, Scope};
use crate::settings::nearest;

pub(super) mod array;
pub(super) mod conditional;
pub(super) mod encoding;
mod foreign;
pub(super) mod hash;
mod java_regex;
pub mod json;
mod json_make;
pub(super) mod map;
pub(super) mod math;
pub(super) mod pattern;
mod refused;
pub(super) mod similar;
pub(super) mod string;
pub(super) mod time;
mod url;

/// All families, in the order in which [`list`] names them.
const FAMILIES: [&[Function]; 12] = [
    math::FUNCTIONS,
    string::FUNCTIONS,
    encoding::FUNCTIONS,
    hash::FUNCTIONS,
    pattern::FUNCTIONS,
    time::FUNCTIONS,
    conditional::FUNCTIONS,
    array::FUNCTIONS,
    map::FUNCTIONS,
    json::FUNCTIONS,
    json_make::FUNCTIONS,
    url::FUNCTIONS,
];

/// What a call computes for a batch: an array with one value per row of the scope.
pub type Kernel = Arc<dyn Fn(&[Operand], &mut Scope<'_>) -> ArrayRef + Send + Sync>;

/// A function as the registry knows it.
pub struct Function {
    /// Upper case.
    pub name: &'static str,
    /// Parameters as a message shows them: `STRING, INT [, STRING]`.
    pub parameters: &'static str,
    /// Makes the expression.
    pub resolve: fn(Vec<Expr>) -> Resolved,
}

/// What a function makes of its arguments.
pub type Resolved = Result<Expr, Refusal>;

/// Why a function cannot be called with some arguments.
pub enum Refusal {
    /// Number or types do not fit the signature.
    Arguments,
    /// Something more special.
    Because(TypeError),
}

impl From<TypeError> for Refusal {
    fn from(error: TypeError) -> Refusal {
        Refusal::Because(error)
    }
}

/// A call of a scalar function.
#[derive(Clone)]
pub struct Call {
    pub name: &'static str,
    /// How the call is written where it is not `NAME(a, b)`: each `{}` stands for an argument. All that makes the
    /// kernel different from that of another call of the name stands here or in the arguments.
    pub form: Option<String>,
    pub args: Vec<Expr>,
    /// Whether the call itself can fail on a row.
    pub fallible: bool,
    kernel: Kernel,
}

impl Call {
    /// Evaluates the call.
    pub fn run(&self, args: &[Operand], scope: &mut Scope<'_>) -> ArrayRef {
        (self.kernel)(args, scope)
    }

    /// The same call of other arguments.
    #[must_use]
    pub fn with_args(self, args: Vec<Expr>) -> Call {
        Call { args, ..self }
    }
}

impl PartialEq for Call {
    fn eq(&self, other: &Call) -> bool {
        self.name == other.name && self.form == other.form && self.args == other.args
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("name", &self.name).field("form", &self.form).field("args", &self.args).finish()
    }
}

/// A call that cannot fail.
pub fn call(
    name: &'static str,
    args: Vec<Expr>,
    data_type: DataType,
    kernel: impl Fn(&[Operand], &mut Scope<'_>) -> ArrayRef + Send + Sync + 'static,
) -> Expr {
    let kernel: Kernel = Arc::new(kernel);
    Expr { kind: ExprKind::Call(Call { name, form: None, args, fallible: false, kernel }), data_type }
}

/// A call that can fail on a row.
pub fn fallible_call(
    name: &'static str,
    args: Vec<Expr>,
    data_type: DataType,
    kernel: impl Fn(&[Operand], &mut Scope<'_>) -> ArrayRef + Send + Sync + 'static,
) -> Expr {
    let kernel: Kernel = Arc::new(kernel);
    Expr { kind: ExprKind::Call(Call { name, form: None, args, fallible: true, kernel }), data_type }
}

/// Says how a call is written.
pub fn with_form(expr: Expr, form: String) -> Expr {
    match expr.kind {
        ExprKind::Call(call) => {
            Expr { kind: ExprKind::Call(Call { form: Some(form), ..call }), data_type: expr.data_type }
        }
        kind => Expr { kind, data_type: expr.data_type },
    }
}

/// Exactly `N` arguments.
pub fn exactly<const N: usize>(args: Vec<Expr>) -> Result<[Expr; N], Refusal> {
    args.try_into().map_err(|_| Refusal::Arguments)
}

/// An argument of type STRING.
pub fn string(expr: Expr) -> Result<Expr, Refusal> {
    typed(expr, DataType::String)
}

/// An argument of type STRING or BYTES.
pub fn text_or_bytes(expr: Expr) -> Result<Expr, Refusal> {
    if expr.data_type == DataType::Bytes { Ok(expr) } else { string(expr) }
}

/// The bytes of an argument that is BYTES, else STRING.
pub fn octets<'a>(arg: &'a Operand, data_type: &DataType) -> Box<dyn Fn(usize) -> Option<&'a [u8]> + 'a> {
    if *data_type == DataType::Bytes {
        let bytes = arg.bytes();
        return Box::new(move |row| bytes.get(row));
    }
    let texts = arg.strings();
    Box::new(move |row| texts.get(row).map(str::as_bytes))
}

/// An argument of exactly that type; a bare NULL takes it.
pub fn typed(expr: Expr, data_type: DataType) -> Result<Expr, Refusal> {
    if expr.data_type == data_type {
        Ok(expr)
    } else if expr.data_type == DataType::Null {
        Ok(super::build::implicit_cast(expr, &data_type))
    } else {
        Err(Refusal::Arguments)
    }
}

/// An argument of any integer type, as INT.
pub fn int(expr: Expr) -> Result<Expr, Refusal> {
    integer(expr, &DataType::Int)
}

/// An argument of any integer type, as BIGINT.
pub fn bigint(expr: Expr) -> Result<Expr, Refusal> {
    integer(expr, &DataType::BigInt)
}

fn integer(expr: Expr, data_type: &DataType) -> Result<Expr, Refusal> {
    if expr.data_type.is_integer() || expr.data_type == DataType::Null {
        Ok(super::build::implicit_cast(expr, data_type))
    } else {
        Err(Refusal::Arguments)
    }
}

/// An argument of any numeric type, as DOUBLE.
pub fn double(expr: Expr) -> Result<Expr, Refusal> {
    if expr.data_type.is_numeric() || expr.data_type == DataType::Null {
        Ok(super::build::implicit_cast(expr, &DataType::Double))
    } else {
        Err(Refusal::Arguments)
    }
}

/// The value of a string literal.
pub fn literal_text(expr: &Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Literal(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// `JSON_OBJECT` (keys and values by turns) or `JSON_ARRAY`, with `NULL ON NULL` or `ABSENT ON NULL`.
pub(super) fn json_made(name: &str, args: Vec<Expr>, with_nulls: bool) -> Resolved {
    if name == "JSON_ARRAY" { json_make::array(args, with_nulls) } else { json_make::object(args, with_nulls) }
}

/// `JSON(text)` as a value of those.
pub(super) fn json_raw(args: Vec<Expr>) -> Resolved {
    json_make::raw(args)
}

/// The key of `JSON_OBJECTAGG`.
pub(super) fn json_key(key: Expr) -> Resolved {
    json_make::key(key)
}

/// The value of an integer literal.
pub fn literal_integer(expr: &Expr) -> Option<i64> {
    match &expr.kind {
        ExprKind::Literal(Value::Integer(value)) => Some(*value),
        _ => None,
    }
}

/// Names of all scalar functions, upper case.
pub fn list() -> impl Iterator<Item = &'static str> {
    FAMILIES.into_iter().flatten().map(|function| function.name)
}

/// The function of this name (any case).
///
/// # Errors
/// There is none, or it is not taken.
pub(super) fn known(name: &str) -> Result<&'static Function, TypeError> {
    let upper = name.to_ascii_uppercase();
    if let Some(function) = FAMILIES.into_iter().flatten().find(|function| function.name == upper) {
        return Ok(function);
    }
    if refused::is_non_deterministic(&upper) {
        return Err(TypeError { message: not_deterministic(&upper), help: Some(ARRIVAL.to_owned()) });
    }
    if let Some(why) = refused::why(&upper) {
        let message = format!("{upper} is a function of Flink that Forebay does not take: {why}");
        return Err(TypeError { message, help: Some(LISTED.to_owned()) });
    }
    let near = || nearest(&upper, list().filter(|name| name.len() > 2)).map(|near| format!("did you mean {near}?"));
    let help = foreign::remedy(&upper).map(str::to_owned).or_else(near);
    let help = help.unwrap_or_else(|| LISTED.to_owned());
    Err(TypeError { message: format!("unknown function {name}"), help: Some(help) })
}

const LISTED: &str = "docs/sql.md lists the functions that there are";
const ARRIVAL: &str = "the arrival time of each row is the source's column `_arrival`";

fn not_deterministic(name: &str) -> String {
    format!("{name} is not deterministic: results must follow from the log alone")
}

/// Resolves a call by name.
pub(super) fn resolve(name: &str, args: Vec<Expr>) -> Result<Expr, TypeError> {
    let upper = name.to_ascii_uppercase();
    let refuse = |message: String, help: Option<String>| Err(TypeError { message, help });
    if upper == "UNIX_TIMESTAMP" && args.is_empty() {
        return refuse(not_deterministic(&upper), Some(ARRIVAL.to_owned()));
    }
    let function = known(name)?;
    let types: Vec<String> = args.iter().map(|arg| arg.data_type.to_string()).collect();
    match (function.resolve)(args) {
        Ok(expr) => Ok(expr),
        Err(Refusal::Because(error)) => Err(error),
        Err(Refusal::Arguments) => refuse(
            format!("{upper} takes ({}), not ({})", function.parameters, types.join(", ")),
            Some("CAST the arguments to these types".to_owned()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::build;

    #[test]
    fn names_are_unique_and_upper_case() {
        let mut names: Vec<&str> = list().collect();
        assert!(names.iter().all(|name| *name == name.to_ascii_uppercase()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| refused::why(name).is_none() && !refused::is_non_deterministic(name)));
    }

    #[test]
    fn refusals_tell_what_is_wrong() {
        let message = |name: &str, args| build::function(name, args).expect_err("must be refused");
        assert!(message("now", vec![]).message.contains("not deterministic"));
        assert!(message("Unix_Timestamp", vec![]).message.contains("not deterministic"));
        let printf = message("printf", vec![build::null()]).message;
        assert!(printf.starts_with("PRINTF is a function of Flink that Forebay does not take: "), "{printf}");
        assert_eq!(message("UPER", vec![]).help.as_deref(), Some("did you mean UPPER?"));
        let wrong = message("upper", vec![build::column(0, DataType::Int)]);
        assert_eq!(wrong.message, "UPPER takes (STRING), not (INT)");
    }
}
