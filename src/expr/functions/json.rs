//! Functions of JSON texts: `JSON_VALUE`, `JSON_QUERY`, `JSON_EXISTS`, `IS JSON`.
//!
//! Rules, as Flink's (`SqlJsonUtils`):
//!
//! - A path is a literal: `$`, `.name`, `['name']`, `[n]` (from 0; negative: from the end), behind `lax` or `strict`
//!   (the default); `.*` and `[*]` lead to all of an object or array, and what they lead to is an array. `..`, filters,
//!   slices and functions of paths are refused.
//! - *Empty* is a path that leads to `null`; in lax mode also one that leads nowhere, a text that is no JSON, and for
//!   `JSON_VALUE` an object or array, for `JSON_QUERY` a scalar. In strict mode these are *errors*.
//! - `JSON_VALUE` gives a scalar's text: a string's content, an integer's digits, any other number as Java's
//!   `BigDecimal` prints it (`1.50`, `1E+3`). `RETURNING INTEGER` takes integers, `DOUBLE` numbers, `BOOLEAN` truth
//!   values; another value fails its row (in Flink it fails the job, and so does an integer for DOUBLE).
//! - `JSON_QUERY` gives objects and arrays without white space, keys sorted. `RETURNING ARRAY<STRING>` takes arrays.
//! - A key that comes twice: the last one counts. What follows the first value of a text is not looked at.
//! - A text that nests deeper than [`DEPTH_MAX`] is no JSON here.
//! - NULL gives NULL.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{ArrayRef, new_null_array};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::array::fallible_string_lists;
use super::{Function, Refusal, Resolved, call, exactly, fallible_call, literal_text, string, typed, with_form};
use crate::expr::build::{Expr, TypeError};
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, Scope, make_booleans, make_numbers, make_strings};

/// Deepest nesting of a JSON text.
const DEPTH_MAX: usize = 100;

pub const FUNCTIONS: &[Function] = &[
    Function { name: "JSON_VALUE", parameters: "STRING, STRING literal", resolve: plain_value },
    Function { name: "JSON_QUERY", parameters: "STRING, STRING literal", resolve: plain_query },
    Function { name: "JSON_EXISTS", parameters: "STRING, STRING literal", resolve: plain_exists },
];

/// What `JSON_VALUE` gives where there is no value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Otherwise {
    #[default]
    Null,
    Error,
    Default(Expr),
}

/// What `JSON_QUERY` gives where there is no value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryOtherwise {
    #[default]
    Null,
    Error,
    EmptyArray,
    EmptyObject,
}

/// `WITH … WRAPPER` of `JSON_QUERY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrapper {
    #[default]
    Without,
    Conditional,
    Unconditional,
}

/// `… ON ERROR` of `JSON_EXISTS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistsOnError {
    True,
    #[default]
    False,
    Unknown,
    Error,
}

/// What `IS JSON` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Value,
    Scalar,
    Array,
    Object,
}

// ---- Paths ------------------------------------------------------------------------------------------------------

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(i64),
    /// `*`: everything in an object or array.
    All,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    lax: bool,
    steps: Vec<Step>,
}

impl Path {
    /// The path that a literal argument spells.
    fn of(expr: &Expr) -> Result<Path, Refusal> {
        let Some(text) = literal_text(expr) else {
            return Err(TypeError {
                message: "the path of a JSON function must be a literal".to_owned(),
                help: Some("write for example '$.a.b'".to_owned()),
            }
            .into());
        };
        Path::parse(text).ok_or_else(|| {
            TypeError {
                message: format!("'{text}' is no JSON path that is supported"),
                help: Some("write $ and steps of the forms .name, ['name'], [0], behind `lax` or `strict`".to_owned()),
            }
            .into()
        })
    }

    fn parse(text: &str) -> Option<Path> {
        let trimmed = text.trim_start();
        let word = trimmed.split_whitespace().next().unwrap_or_default();
        let (lax, rest) = match word.to_ascii_lowercase().as_str() {
            "lax" => (true, trimmed.get(word.len()..)?.trim_start()),
            "strict" => (false, trimmed.get(word.len()..)?.trim_start()),
            _ => (false, trimmed),
        };
        let mut rest = rest.trim_end().strip_prefix('$')?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            // A dot may stand before a bracket.
            if let Some(after) = rest.strip_prefix(".*").or_else(|| rest.strip_prefix("[*]")) {
                steps.push(Step::All);
                rest = after;
                continue;
            }
            if let Some(name) = rest.strip_prefix('.').filter(|after| !after.starts_with('[')) {
                let end = name.find(['.', '[']).unwrap_or(name.len());
                let (name, after) = name.split_at(end);
                if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '$')) {
                    return None;
                }
                steps.push(Step::Key(name.to_owned()));
                rest = after;
                continue;
            }
            let inner = rest.strip_prefix('.').unwrap_or(rest).strip_prefix('[')?.trim_start();
            let quote = inner.chars().next()?;
            let after = if matches!(quote, '\'' | '"') {
                let name = inner.get(1..)?;
                let end = name.find(quote)?;
                let (name, after) = name.split_at(end);
                if name.contains('\\') {
                    return None;
                }
                steps.push(Step::Key(name.to_owned()));
                after.get(1..)?
            } else {
                let end = inner.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(inner.len());
                let (number, after) = inner.split_at(end);
                steps.push(Step::Index(number.parse().ok()?));
                after
            };
            rest = after.trim_start().strip_prefix(']')?;
        }
        Some(Path { lax, steps })
    }

    /// Where the path leads in a text; `Ok(None)`: empty.
    fn find<'t>(&self, text: &'t str) -> Result<Option<Cow<'t, str>>, String> {
        match self.walk(text) {
            Ok(found) if found == "null" => Ok(None),
            Ok(found) => Ok(Some(found)),
            Err(_) if self.lax => Ok(None),
            Err(reason) => Err(reason),
        }
    }

    /// Behind `*` the places that the path does not lead to are left out, and the others make an array.
    fn walk<'t>(&self, text: &'t str) -> Result<Cow<'t, str>, String> {
        let mut at = vec![first_value(text).ok_or("the text is no JSON")?];
        let mut many = false;
        for step in &self.steps {
            let mut next = Vec::new();
            for value in at {
                step.from(value, &mut next);
            }
            many |= matches!(step, Step::All);
            if next.is_empty() && !many {
                return Err("the path leads nowhere".to_owned());
            }
            at = next;
        }
        match at.as_slice() {
            [one] if !many => Ok(Cow::Borrowed(*one)),
            all => Ok(Cow::Owned(format!("[{}]", all.join(",")))),
        }
    }
}

impl Step {
    /// Adds where the step leads from a value.
    fn from<'t>(&self, value: &'t str, out: &mut Vec<&'t str>) {
        match self {
            Step::Key(key) => {
                let members = members(value).unwrap_or_default();
                out.extend(members.into_iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.get()));
            }
            Step::Index(index) => {
                let items = items(value).unwrap_or_default();
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { length.saturating_add(*index) } else { *index };
                out.extend(usize::try_from(index).ok().and_then(|index| items.get(index)).map(|value| value.get()));
            }
            Step::All => {
                out.extend(members(value).unwrap_or_default().into_iter().map(|(_, value)| value.get()));
                out.extend(items(value).unwrap_or_default().into_iter().map(RawValue::get));
            }
        }
    }
}

// ---- JSON texts -------------------------------------------------------------------------------------------------

/// The first value of a text, which must be JSON up to its end.
pub(super) fn first_value(text: &str) -> Option<&str> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let value = values.next()?.ok()?.get();
    let mut depth = 0_usize;
    let mut quoted = false;
    let mut escaped = false;
    for byte in value.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return None;
        }
    }
    Some(value)
}

/// An object's members, in order.
struct Members<'t>(Vec<(String, &'t RawValue)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(List)
    }
}

fn members(value: &str) -> Option<Vec<(String, &RawValue)>> {
    value.starts_with('{').then(|| serde_json::from_str::<Members<'_>>(value).ok()).flatten().map(|members| members.0)
}

fn items(value: &str) -> Option<Vec<&RawValue>> {
    value.starts_with('[').then(|| serde_json::from_str(value).ok()).flatten()
}

fn is_scalar(value: &str) -> bool {
    !value.starts_with(['{', '['])
}

/// A value without white space, keys sorted as Java sorts strings.
pub(super) fn print(value: &str, out: &mut String) {
    if let Some(members) = members(value) {
        let mut members: Vec<(String, &RawValue)> = members;
        members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        // The sort is stable: of equal keys the last one counts.
        members.reverse();
        members.dedup_by(|later, kept| later.0 == kept.0);
        out.push('{');
        for (index, (key, value)) in members.iter().rev().enumerate() {
            if index > 0 {
                out.push(',');
            }
            quoted(key, out);
            out.push(':');
            print(value.get(), out);
        }
        out.push('}');
    } else if let Some(items) = items(value) {
        out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            print(item.get(), out);
        }
        out.push(']');
    } else if let Some(text) = content(value) {
        quoted(&text, out);
    } else {
        scalar(value, out);
    }
}

/// A string as Jackson writes it.
pub fn quoted(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            // Writing to a String cannot fail.
            c if u32::from(c) < 0x20 => drop(write!(out, "\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The content of a string.
fn content(value: &str) -> Option<String> {
    value.starts_with('"').then(|| serde_json::from_str(value).ok()).flatten()
}

/// A scalar's text.
fn scalar(value: &str, out: &mut String) {
    if let Some(text) = content(value) {
        out.push_str(&text);
    } else if value.starts_with(['t', 'f', 'n']) {
        out.push_str(value);
    } else if !value.contains(['.', 'e', 'E']) {
        out.push_str(if value == "-0" { "0" } else { value });
    } else {
        big_decimal(value, out);
    }
}

/// A number with a fraction or an exponent as Java's `BigDecimal.toString` prints it.
pub(super) fn big_decimal(number: &str, out: &mut String) {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i64 = exponent.trim_start_matches('+').parse().unwrap_or(0);
    let scale = i64::try_from(fraction.len()).unwrap_or(0).saturating_sub(exponent);
    let digits = format!("{whole}{fraction}");
    let digits = match digits.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let sign = if digits == "0" { "" } else { sign };
    let adjusted = i64::try_from(digits.len()).unwrap_or(0) - 1 - scale;
    out.push_str(sign);
    if scale == 0 {
        out.push_str(digits);
    } else if scale > 0 && adjusted >= -6 {
        let scale = usize::try_from(scale).unwrap_or(0);
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        let _ = write!(out, "{whole}.{fraction}");
    } else {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let _ = write!(out, "{first}{point}{rest}");
        if adjusted != 0 {
            let _ = write!(out, "E{adjusted:+}");
        }
    }
}

// ---- Functions --------------------------------------------------------------------------------------------------

fn plain_value(args: Vec<Expr>) -> Resolved {
    let [doc, path] = exactly(args)?;
    value(doc, path, &DataType::String, Otherwise::Null, Otherwise::Null)
}

fn plain_query(args: Vec<Expr>) -> Resolved {
    let [doc, path] = exactly(args)?;
    query(doc, path, Wrapper::Without, QueryOtherwise::Null, QueryOtherwise::Null)
}

fn plain_exists(args: Vec<Expr>) -> Resolved {
    let [doc, path] = exactly(args)?;
    exists(doc, path, ExistsOnError::False)
}

/// `JSON_VALUE(doc, path RETURNING type … ON EMPTY … ON ERROR)`.
pub fn value(doc: Expr, path: Expr, returning: &DataType, on_empty: Otherwise, on_error: Otherwise) -> Resolved {
    let steps = Path::of(&path)?;
    if !matches!(returning, DataType::String | DataType::Boolean | DataType::Int | DataType::Double) {
        return Err(TypeError {
            message: format!("JSON_VALUE does not return {returning}"),
            help: Some("it returns STRING, BOOLEAN, INTEGER or DOUBLE: CAST that".to_owned()),
        }
        .into());
    }
    let mut args = vec![string(doc)?, path];
    let mut form = format!("JSON_VALUE({{}}, {{}} RETURNING {returning}");
    let mut clause = |otherwise: Otherwise, event: &str| -> Result<(bool, Option<usize>), Refusal> {
        Ok(match otherwise {
            Otherwise::Null => (false, None),
            Otherwise::Error => {
                form += &format!(" ERROR ON {event}");
                (true, None)
            }
            Otherwise::Default(value) => {
                form += &format!(" DEFAULT {{}} ON {event}");
                args.push(typed(value, returning.clone())?);
                (false, Some(args.len() - 1))
            }
        })
    };
    let (empty, error) = (clause(on_empty, "EMPTY")?, clause(on_error, "ERROR")?);
    form.push(')');
    let look = move |text: &str| {
        let otherwise = |(fails, default): (bool, Option<usize>), reason: &str| match fails {
            true => Err(reason.to_owned()),
            false => Ok(Found::Default(default)),
        };
        match steps.find(text) {
            Err(reason) => otherwise(error, &reason),
            Ok(Some(value)) if is_scalar(&value) => {
                let mut shown = String::new();
                scalar(&value, &mut shown);
                Ok(Found::Value { text: shown, quoted: value.starts_with('"') })
            }
            Ok(Some(_)) if !steps.lax => otherwise(error, "the path leads to no scalar"),
            Ok(_) => otherwise(empty, "the path leads to no value"),
        }
    };
    let data_type = returning.clone();
    let expr =
        fallible_call("JSON_VALUE", args, returning.clone(), move |args, scope| run(args, scope, &data_type, &look));
    Ok(with_form(expr, form))
}

/// What `JSON_VALUE` finds in a row.
enum Found {
    /// A scalar, and whether it is a string.
    Value { text: String, quoted: bool },
    /// The value of the argument with this index; NULL where there is none.
    Default(Option<usize>),
}

fn run(
    args: &[Operand],
    scope: &mut Scope<'_>,
    returning: &DataType,
    look: &dyn Fn(&str) -> Result<Found, String>,
) -> ArrayRef {
    let Some(docs) = args.first().map(Operand::strings) else {
        return new_null_array(&returning.arrow(), scope.rows);
    };
    let default = |index: Option<usize>| index.and_then(|index| args.get(index));
    let look = |row: usize| docs.get(row).map_or(Ok(Found::Default(None)), look);
    let wrong = |text: &str| format!("JSON_VALUE found {text}, which is no {returning}");
    match returning {
        DataType::Boolean => make_booleans(scope, |row| match look(row)? {
            Found::Value { text, quoted: false } if text == "true" || text == "false" => Ok(Some(text == "true")),
            Found::Value { text, .. } => Err(wrong(&text)),
            Found::Default(index) => Ok(default(index).and_then(|value| value.booleans().get(row))),
        }),
        DataType::Int => make_numbers::<Int32Type>(scope, &returning.arrow(), |row| match look(row)? {
            Found::Value { text, quoted: false } => text.parse().map(Some).map_err(|_| wrong(&text)),
            Found::Value { text, .. } => Err(wrong(&text)),
            Found::Default(index) => Ok(default(index).and_then(|value| value.numbers::<Int32Type>().get(row))),
        }),
        DataType::Double => make_numbers::<Float64Type>(scope, &returning.arrow(), |row| match look(row)? {
            Found::Value { text, quoted: false } => text.parse().map(Some).map_err(|_| wrong(&text)),
            Found::Value { text, .. } => Err(wrong(&text)),
            Found::Default(index) => Ok(default(index).and_then(|value| value.numbers::<Float64Type>().get(row))),
        }),
        _ => make_strings(scope, |row, out| {
            let text = match look(row)? {
                Found::Value { text, .. } => Some(text),
                Found::Default(index) => default(index).and_then(|value| value.strings().get(row).map(str::to_owned)),
            };
            out.push_str(text.as_deref().unwrap_or_default());
            Ok(text.is_some())
        }),
    }
}

/// A `JSON_QUERY` with its clauses.
struct Query {
    path: Path,
    wrapper: Wrapper,
    on_empty: QueryOtherwise,
    on_error: QueryOtherwise,
    /// Whether it is to find an array.
    is_array: bool,
}

impl Query {
    /// What it finds in a text, as JSON without white space.
    fn run(&self, text: &str) -> Result<Option<String>, String> {
        let otherwise = |what: QueryOtherwise, reason: &str| match what {
            QueryOtherwise::Null => Ok(None),
            QueryOtherwise::Error => Err(reason.to_owned()),
            QueryOtherwise::EmptyArray => Ok(Some("[]".to_owned())),
            QueryOtherwise::EmptyObject => Ok(Some("{}".to_owned())),
        };
        let found = match self.path.find(text) {
            Err(reason) => return otherwise(self.on_error, &reason),
            Ok(None) => return otherwise(self.on_empty, "the path leads to no value"),
            Ok(Some(found)) => found,
        };
        let wrapped = match self.wrapper {
            Wrapper::Without => false,
            Wrapper::Conditional => !found.starts_with('['),
            Wrapper::Unconditional => true,
        };
        match wrapped {
            false if is_scalar(&found) && self.path.lax => otherwise(self.on_empty, "the path leads to a scalar"),
            false if is_scalar(&found) => otherwise(self.on_error, "the path leads to a scalar"),
            false if self.is_array && !found.starts_with('[') => otherwise(self.on_error, "the path leads to no array"),
            _ => {
                let mut out = String::from(if wrapped { "[" } else { "" });
                print(&found, &mut out);
                out.push_str(if wrapped { "]" } else { "" });
                Ok(Some(out))
            }
        }
    }
}

/// `JSON_QUERY(doc, path … WRAPPER … ON EMPTY … ON ERROR)`.
pub fn query(doc: Expr, path: Expr, wrapper: Wrapper, on_empty: QueryOtherwise, on_error: QueryOtherwise) -> Resolved {
    let form = format!("JSON_QUERY({{}}, {{}} WRAPPER {wrapper:?} {on_empty:?} ON EMPTY {on_error:?} ON ERROR)");
    let query = Query { path: Path::of(&path)?, wrapper, on_empty, on_error, is_array: false };
    let expr = fallible_call("JSON_QUERY", vec![string(doc)?, path], DataType::String, move |args, scope| {
        let docs = args.first().map(Operand::strings);
        make_strings(scope, |row, out| {
            let Some(text) = docs.and_then(|docs| docs.get(row)) else { return Ok(false) };
            let found = query.run(text)?;
            out.push_str(found.as_deref().unwrap_or_default());
            Ok(found.is_some())
        })
    });
    Ok(with_form(expr, form))
}

/// `JSON_QUERY(doc, path RETURNING ARRAY<STRING> …)`: the items of an array, strings as their content, objects and
/// arrays as JSON, `null` as NULL.
pub fn query_array(
    doc: Expr,
    path: Expr,
    wrapper: Wrapper,
    on_empty: QueryOtherwise,
    on_error: QueryOtherwise,
) -> Resolved {
    if [on_empty, on_error].contains(&QueryOtherwise::EmptyObject) {
        return Err(TypeError {
            message: "an empty object is no ARRAY<STRING>".to_owned(),
            help: Some("write EMPTY ARRAY".to_owned()),
        }
        .into());
    }
    let form = format!(
        "JSON_QUERY({{}}, {{}} RETURNING ARRAY<STRING> WRAPPER {wrapper:?} {on_empty:?} ON EMPTY {on_error:?} ON ERROR)"
    );
    let query = Query { path: Path::of(&path)?, wrapper, on_empty, on_error, is_array: true };
    let expr = fallible_string_lists("JSON_QUERY", vec![string(doc)?, path], move |args, row| {
        let Some(text) = args.first().map(Operand::strings).and_then(|docs| docs.get(row)) else { return Ok(None) };
        let found = query.run(text)?;
        let texts = |found: &str| {
            let item = |item: &RawValue| {
                let mut shown = String::new();
                match is_scalar(item.get()) {
                    true => scalar(item.get(), &mut shown),
                    false => print(item.get(), &mut shown),
                }
                (item.get() != "null").then_some(shown)
            };
            items(found).unwrap_or_default().into_iter().map(item).collect()
        };
        Ok(found.as_deref().map(texts))
    });
    Ok(with_form(expr, form))
}

/// `JSON_EXISTS(doc, path … ON ERROR)`.
pub fn exists(doc: Expr, path: Expr, on_error: ExistsOnError) -> Resolved {
    let steps = Path::of(&path)?;
    let form = format!("JSON_EXISTS({{}}, {{}} {on_error:?} ON ERROR)");
    let expr = fallible_call("JSON_EXISTS", vec![string(doc)?, path], DataType::Boolean, move |args, scope| {
        let Some(docs) = args.first().map(Operand::strings) else {
            return new_null_array(&DataType::Boolean.arrow(), scope.rows);
        };
        make_booleans(scope, |row| {
            let Some(text) = docs.get(row) else { return Ok(None) };
            match (steps.find(text), on_error) {
                (Ok(found), _) => Ok(Some(found.is_some())),
                (Err(_), ExistsOnError::True) => Ok(Some(true)),
                (Err(_), ExistsOnError::False) => Ok(Some(false)),
                (Err(_), ExistsOnError::Unknown) => Ok(None),
                (Err(reason), ExistsOnError::Error) => Err(reason),
            }
        })
    });
    Ok(with_form(expr, form))
}

/// `x IS JSON VALUE | SCALAR | ARRAY | OBJECT`.
pub fn is_json(doc: Expr, shape: Shape) -> Resolved {
    let expr = call("IS JSON", vec![string(doc)?], DataType::Boolean, move |args, scope| {
        let Some(docs) = args.first().map(Operand::strings) else {
            return new_null_array(&DataType::Boolean.arrow(), scope.rows);
        };
        make_booleans(scope, |row| {
            Ok(docs.get(row).map(|text| {
                first_value(text).is_some_and(|value| match shape {
                    Shape::Value => true,
                    Shape::Scalar => is_scalar(value),
                    Shape::Array => value.starts_with('['),
                    Shape::Object => value.starts_with('{'),
                })
            }))
        })
    });
    Ok(with_form(expr, format!("{{}} IS JSON {}", format!("{shape:?}").to_uppercase())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Batch, EvalContext, RowErrors, build, eval::eval};
    use arrow_array::cast::AsArray;

    fn text(value: &str) -> Expr {
        build::string_literal(value.to_owned())
    }

    /// The value as text, `None` for NULL, or why the row failed.
    fn given(expr: Resolved) -> Result<Option<String>, String> {
        let Ok(expr) = expr else { panic!("refused") };
        let cast = build::cast(expr, &DataType::String, false).expect("casts");
        let context = EvalContext { time_zone: jiff::tz::TimeZone::UTC };
        let mut errors = RowErrors::default();
        let array = eval(&cast, &Batch { columns: &[], rows: 1 }, &context, &mut errors);
        if let Some((_, reason)) = errors.list.pop() {
            return Err(reason);
        }
        Ok(array.as_string::<i32>().iter().next().flatten().map(str::to_owned))
    }

    fn found(doc: &str, path: &str) -> Option<String> {
        given(plain_value(vec![text(doc), text(path)])).expect("does not fail")
    }

    fn queried(doc: &str, path: &str) -> Option<String> {
        given(plain_query(vec![text(doc), text(path)])).expect("does not fail")
    }

    #[test]
    fn paths_lead_through_objects_and_arrays() {
        let doc = r#"{"a":{"b":[10,20,{"c d":"x"}]},"n":null,"t":true,"a":{"b":[1,2,{"c d":"y"}]}}"#;
        assert_eq!(found(doc, "$.a.b[0]").as_deref(), Some("1"), "the last of equal keys counts");
        assert_eq!(found(doc, "$.a.b[-1]['c d']").as_deref(), Some("y"));
        assert_eq!(found(doc, "lax $.t").as_deref(), Some("true"));
        assert_eq!(found(doc, "strict $['a']['b'][1]").as_deref(), Some("2"));
        assert_eq!(
            (found(doc, "$.n"), found(doc, "$.a"), found(doc, "$.x"), found("no", "$")),
            (None, None, None, None)
        );
        assert_eq!(found(doc, "$.['a'].b[0]").as_deref(), Some("1"));
        let many = r#"{"b":[{"x":1},{"y":2},3,{"x":null}],"a":[]}"#;
        assert_eq!(queried(many, "$.b[*].x").as_deref(), Some("[1,null]"));
        assert_eq!(queried(many, "$.*[0]").as_deref(), Some(r#"[{"x":1}]"#));
        assert_eq!(queried(many, "$.a[*]").as_deref(), Some("[]"));
        for wrong in ["a", "$.", "$..a", "$[1", "$[?(@.a)]", "$.a b", "$['a]", ""] {
            assert!(plain_value(vec![text("{}"), text(wrong)]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_print_as_big_decimals_do() {
        for (number, shown) in [
            ("1.50", "1.50"),
            ("1e3", "1E+3"),
            ("12.5e3", "1.25E+4"),
            ("1e-3", "0.001"),
            ("0.0000001", "1E-7"),
            ("-0.0", "0.0"),
            ("-0", "0"),
            ("-12.30", "-12.30"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("100e-2", "1.00"),
        ] {
            assert_eq!(found(number, "$").as_deref(), Some(shown), "{number}");
        }
    }

    #[test]
    fn queries_print_sorted_and_without_white_space() {
        assert_eq!(
            queried(r#"{ "b" : 1.50, "a" : [ "\u00fc\"\u0001", null ], "b":2 }"#, "$").as_deref(),
            Some(r#"{"a":["ü\"\u0001",null],"b":2}"#)
        );
        assert_eq!((queried("1", "$"), queried("{", "$")), (None, None));
        let wrapped = |wrapper, doc: &str| {
            given(query(text(doc), text("$"), wrapper, QueryOtherwise::EmptyArray, QueryOtherwise::EmptyObject))
        };
        assert_eq!(wrapped(Wrapper::Unconditional, "[1]"), Ok(Some("[[1]]".to_owned())));
        assert_eq!(wrapped(Wrapper::Conditional, "[1]"), Ok(Some("[1]".to_owned())));
        assert_eq!(wrapped(Wrapper::Conditional, "\"x\""), Ok(Some("[\"x\"]".to_owned())));
        assert_eq!(wrapped(Wrapper::Without, "1"), Ok(Some("{}".to_owned())));
        assert_eq!(wrapped(Wrapper::Without, "null"), Ok(Some("[]".to_owned())));
    }

    #[test]
    fn empty_and_error_have_their_clauses() {
        let at = |path: &str, empty, error| {
            given(value(text(r#"{"n":null,"o":{}}"#), text(path), &DataType::Int, empty, error))
        };
        let seven = || Otherwise::Default(build::literal(build::Value::Integer(7), DataType::Int));
        assert_eq!(at("$.n", seven(), Otherwise::Error), Ok(Some("7".to_owned())));
        assert_eq!(at("$.o", Otherwise::Error, seven()), Ok(Some("7".to_owned())));
        assert_eq!(at("lax $.o", seven(), Otherwise::Error), Ok(Some("7".to_owned())));
        assert_eq!(at("lax $.x", Otherwise::Null, Otherwise::Error), Ok(None));
        assert!(at("$.x", Otherwise::Null, Otherwise::Error).is_err());
        assert!(at("$.n", Otherwise::Error, Otherwise::Null).is_err());
        let typed = |doc: &str, data_type: &DataType| {
            given(value(text(doc), text("$"), data_type, Otherwise::Null, Otherwise::Null))
        };
        assert_eq!(typed("1.5", &DataType::Double), Ok(Some("1.5".to_owned())));
        assert_eq!(typed("true", &DataType::Boolean), Ok(Some("TRUE".to_owned())));
        assert!(typed("1.5", &DataType::Int).is_err() && typed("\"1\"", &DataType::Double).is_err());
        let exists_at = |doc: &str, path: &str, on_error| given(exists(text(doc), text(path), on_error));
        assert_eq!(exists_at("{\"a\":0}", "$.a", ExistsOnError::False), Ok(Some("TRUE".to_owned())));
        assert_eq!(exists_at("{\"a\":null}", "$.a", ExistsOnError::True), Ok(Some("FALSE".to_owned())));
        assert_eq!(exists_at("{", "$.a", ExistsOnError::Unknown), Ok(None));
        assert!(exists_at("{", "$.a", ExistsOnError::Error).is_err());
    }

    #[test]
    fn shapes_are_told_apart_and_deep_texts_are_none() {
        let is = |doc: &str, shape| given(is_json(text(doc), shape)).expect("does not fail").as_deref() == Some("TRUE");
        assert!(is("1", Shape::Value) && is("1", Shape::Scalar) && !is("1", Shape::Array) && !is("abc", Shape::Value));
        assert!(
            is(" [1] ", Shape::Array) && is("{}", Shape::Object) && !is("{}", Shape::Scalar) && !is("", Shape::Value)
        );
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(!is(&deep, Shape::Value));
        let within = "[".repeat(DEPTH_MAX) + &"]".repeat(DEPTH_MAX);
        assert_eq!(queried(&within, "$").as_deref(), Some(&*within));
    }
}
