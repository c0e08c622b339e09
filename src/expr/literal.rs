//! Literals of SQL text.

use super::build::{Expr, TimeUnit, TypeError, Value, literal};
use super::types::DataType;

type Built = Result<Expr, TypeError>;

fn later() -> TypeError {
    TypeError { message: "not built yet".to_owned(), help: None }
}

/// A string literal.
pub fn string_literal(text: impl Into<String>) -> Expr {
    literal(Value::String(text.into()), DataType::String)
}

/// A number as written in SQL text, without sign.
///
/// # Errors
/// It is no number, or has more digits than a DECIMAL can hold.
pub fn number_literal(text: &str) -> Built {
    let _ = text;
    Err(later())
}

/// `INTERVAL 'text' leading[(leading_precision)] [TO last][(fraction_precision)]`.
///
/// # Errors
/// The text does not fit the units.
pub fn interval_literal(
    text: &str,
    leading: TimeUnit,
    leading_precision: Option<u64>,
    last: Option<TimeUnit>,
    fraction_precision: Option<u64>,
) -> Built {
    let _ = (text, leading, leading_precision, last, fraction_precision);
    Err(later())
}

/// `TIMESTAMP 'text'`.
///
/// # Errors
/// The text is no timestamp.
pub fn timestamp_literal(text: &str) -> Built {
    let _ = text;
    Err(later())
}

/// `DATE 'text'`.
///
/// # Errors
/// The text is no date.
pub fn date_literal(text: &str) -> Built {
    let _ = text;
    Err(later())
}

/// `TIME 'text'`.
///
/// # Errors
/// The text is no time of day.
pub fn time_literal(text: &str) -> Built {
    let _ = text;
    Err(later())
}
