//! Literals of SQL text: how they are read and which types they have (Calcite's rules).

use super::build::{Expr, TimeUnit, TypeError, Value, literal};
use super::types::DataType;
use super::{calendar, decimal, text};

type Built = Result<Expr, TypeError>;

fn refuse<T>(message: String, help: &str) -> Result<T, TypeError> {
    Err(TypeError { message, help: Some(help.to_owned()) })
}

/// A string literal.
pub fn string_literal(text: impl Into<String>) -> Expr {
    literal(Value::String(text.into()), DataType::String)
}

/// A number as written in SQL text, without sign: `1` is INT, or BIGINT, or DECIMAL if it needs it; `1.50` is
/// DECIMAL(3, 2); `1e3` is DOUBLE.
///
/// # Errors
/// It is no number, or has more digits than a DECIMAL can hold.
pub fn number_literal(text: &str) -> Built {
    if text.contains(['e', 'E']) {
        return match text::parse_f64(text) {
            Some(value) if value.is_finite() => Ok(literal(Value::Double(value), DataType::Double)),
            _ => refuse(format!("{text} is no DOUBLE"), "write for example 1.5e3"),
        };
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if text.is_empty() || text == "." || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return refuse(format!("{text} is no number"), "write for example 1.5");
    }
    if fraction.is_empty()
        && let Ok(value) = whole.parse::<i64>()
    {
        let data_type = if i32::try_from(value).is_ok() { DataType::Int } else { DataType::BigInt };
        return Ok(literal(Value::Integer(value), data_type));
    }
    let (precision, scale) = (whole.len() + fraction.len(), fraction.len());
    let shape =
        u8::try_from(precision).ok().zip(u8::try_from(scale).ok()).filter(|(p, _)| *p <= decimal::PRECISION_MAX);
    let parsed = shape.and_then(|shape| Some((shape, decimal::parse(text, shape).ok()?)));
    match parsed {
        Some(((precision, scale), value)) => Ok(literal(Value::Decimal(value), DataType::Decimal(precision, scale))),
        None => refuse(format!("{text} has more than 38 digits"), "write it as a DOUBLE, with an exponent: 1.5e40"),
    }
}

/// `INTERVAL 'text' leading[(leading_precision)] [TO last][(fraction_precision)]`. The leading field has at most two
/// digits unless a precision says otherwise, as in Flink.
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
    let last = last.unwrap_or(leading);
    let fields = [TimeUnit::Day, TimeUnit::Hour, TimeUnit::Minute, TimeUnit::Second];
    let place = |unit| fields.iter().position(|known| *known == unit);
    let units = match (place(leading), place(last)) {
        (Some(from), Some(to)) if from <= to => fields.get(from..=to).unwrap_or_default().to_vec(),
        _ if leading == TimeUnit::Year && last == TimeUnit::Month => vec![leading, last],
        _ if leading == last
            && matches!(leading, TimeUnit::Week | TimeUnit::Month | TimeUnit::Quarter | TimeUnit::Year) =>
        {
            vec![leading]
        }
        _ => {
            return refuse(
                format!("there is no interval {} TO {}", leading.name(), last.name()),
                "units: YEAR, MONTH, DAY, HOUR, MINUTE, SECOND; ranges such as DAY TO SECOND",
            );
        }
    };
    let form = match (leading, last) {
        (TimeUnit::Year, TimeUnit::Month) => "1-6",
        (TimeUnit::Day, TimeUnit::Hour) => "1 12",
        (TimeUnit::Day, TimeUnit::Minute) => "1 12:30",
        (TimeUnit::Day, TimeUnit::Second) => "1 12:30:15.5",
        (TimeUnit::Hour, TimeUnit::Minute) => "12:30",
        (TimeUnit::Hour, TimeUnit::Second) => "12:30:15.5",
        (TimeUnit::Minute, TimeUnit::Second) => "30:15.5",
        _ => "10",
    };
    let malformed = || {
        let to = if last == leading { String::new() } else { format!(" TO {}", last.name()) };
        refuse(
            format!("'{text}' is no interval {}{to}", leading.name()),
            &format!("write for example INTERVAL '{form}' {}{to}", leading.name()),
        )
    };
    let trimmed = text.trim();
    let (negative, unsigned) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let (clock, fraction) = match (last, unsigned.split_once('.')) {
        (TimeUnit::Second, Some(split)) => split,
        _ => (unsigned, ""),
    };
    let fraction_max = usize::try_from(fraction_precision.unwrap_or(6)).unwrap_or(9).min(9);
    if fraction.len() > fraction_max || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return malformed();
    }
    let mut rest = Some(clock);
    let mut total: i64 = 0;
    for (i, unit) in units.iter().enumerate() {
        let Some(field) = rest else { return malformed() };
        let separator = match unit {
            TimeUnit::Year => '-',
            TimeUnit::Day => ' ',
            _ => ':',
        };
        let (field, after) = match field.split_once(separator) {
            Some((field, after)) if i + 1 < units.len() => (field, Some(after)),
            _ => (field, None),
        };
        rest = after;
        if field.is_empty() || !field.bytes().all(|b| b.is_ascii_digit()) {
            return malformed();
        }
        let significant = field.trim_start_matches('0');
        let limit = match unit {
            TimeUnit::Month => 12,
            TimeUnit::Hour => 24,
            _ => 60,
        };
        let precision = leading_precision.unwrap_or(2);
        if i == 0 && significant.len() as u64 > precision {
            return refuse(
                format!("'{text}' has more than {precision} digits in {}", unit.name()),
                &format!("give the number of digits: INTERVAL '{text}' {}({})", unit.name(), significant.len()),
            );
        }
        let size = calendar::unit_ms(*unit).or_else(|| calendar::unit_months(*unit)).unwrap_or(0);
        let value = if significant.is_empty() { Ok(0) } else { significant.parse::<i64>() };
        let sum = value
            .ok()
            .filter(|value| i == 0 || *value < limit)
            .and_then(|value| value.checked_mul(size))
            .and_then(|value| total.checked_add(value));
        match sum {
            Some(sum) => total = sum,
            None => return malformed(),
        }
    }
    if rest.is_some() {
        return malformed();
    }
    let ms = (0..3).fold(0, |ms, i| ms * 10 + fraction.as_bytes().get(i).map_or(0, |b| i64::from(b - b'0')));
    let Some(total) = total.checked_add(ms) else { return malformed() };
    let data_type =
        if calendar::unit_ms(leading).is_some() { DataType::IntervalDayTime } else { DataType::IntervalYearMonth };
    Ok(literal(Value::Integer(if negative { -total } else { total }), data_type))
}

/// `TIMESTAMP 'text'`: a TIMESTAMP with as many digits as the text has behind the seconds.
///
/// # Errors
/// The text is no timestamp.
pub fn timestamp_literal(text: &str) -> Built {
    let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.len().min(6));
    match text::parse_timestamp(text).filter(|_| text.contains(' ')) {
        Some(us) => Ok(literal(Value::Integer(us), DataType::Timestamp(u8::try_from(digits).unwrap_or(6)))),
        None => refuse(format!("'{text}' is no timestamp"), "write TIMESTAMP '2026-04-02 01:02:03.456'"),
    }
}

/// `DATE 'text'`.
///
/// # Errors
/// The text is no date.
pub fn date_literal(text: &str) -> Built {
    let shaped = text.len() == 10 && text.bytes().filter(|b| *b == b'-').count() == 2;
    match text::parse_date(text).filter(|_| shaped) {
        Some(days) => Ok(literal(Value::Integer(days), DataType::Date)),
        None => refuse(format!("'{text}' is no date"), "write DATE '2026-04-02'"),
    }
}

/// `TIME 'text'`.
///
/// # Errors
/// The text is no time of day.
pub fn time_literal(text: &str) -> Built {
    let shaped = text.bytes().filter(|b| *b == b':').count() == 2 && !text.contains(['+', '-']);
    match text::parse_time(text).filter(|_| shaped) {
        Some(ms) => Ok(literal(Value::Integer(ms), DataType::Time)),
        None => refuse(format!("'{text}' is no time of day"), "write TIME '01:02:03'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn integer(expr: &Expr) -> i64 {
        match expr.kind {
            crate::expr::build::ExprKind::Literal(Value::Integer(i)) => i,
            _ => panic!("no integer literal"),
        }
    }

    #[test]
    fn numbers_have_the_types_of_calcite() {
        for (text, data_type) in [
            ("1", DataType::Int),
            ("2147483648", DataType::BigInt),
            ("9223372036854775808", DataType::Decimal(19, 0)),
            ("1.5", DataType::Decimal(2, 1)),
            ("0.001", DataType::Decimal(4, 3)),
            (".5", DataType::Decimal(1, 1)),
            ("5.", DataType::Int),
            ("1e3", DataType::Double),
        ] {
            assert_eq!(number_literal(text).map(|e| e.data_type), Ok(data_type), "{text}");
        }
        for bad in ["", ".", "1x", "1e", "1e999", &"9".repeat(39)] {
            assert!(number_literal(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn intervals() {
        use TimeUnit::{Day, Hour, Minute, Month, Second, Week, Year};
        for (text, leading, last, value) in [
            ("10", Second, None, 10_000),
            ("0.001", Second, None, 1),
            ("-1.5", Second, None, -1500),
            ("1 02:03:04.5", Day, Some(Second), 93_784_500),
            ("1 2", Day, Some(Hour), 93_600_000),
            ("10:30", Minute, Some(Second), 630_000),
            ("1-6", Year, Some(Month), 18),
            ("2", Week, None, 1_209_600_000),
        ] {
            let made = interval_literal(text, leading, None, last, None).unwrap();
            assert_eq!(integer(&made), value, "{text}");
        }
        let long = interval_literal("100", Second, None, None, None).expect_err("too many digits");
        assert_eq!(long.help.as_deref(), Some("give the number of digits: INTERVAL '100' SECOND(3)"));
        assert!(interval_literal("100", Second, Some(3), None, None).is_ok());
        for (text, leading, last) in
            [("", Second, None), ("1:70", Minute, Some(Second)), ("1", Second, Some(Day)), ("1:2", Second, None)]
        {
            assert!(interval_literal(text, leading, None, last, None).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(timestamp_literal("1970-01-01 00:00:01.25").map(|e| e.data_type), Ok(DataType::Timestamp(2)));
        assert!(timestamp_literal("1970-01-01").is_err());
        assert_eq!(date_literal("1970-01-03").map(|e| integer(&e)), Ok(2));
        assert!(date_literal("1970-1-3").is_err());
        assert_eq!(time_literal("00:01:00").map(|e| integer(&e)), Ok(60_000));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9:. eE]{0,20}") {
            let _ = (number_literal(&text), timestamp_literal(&text), date_literal(&text), time_literal(&text));
            for (leading, last) in [(TimeUnit::Day, TimeUnit::Second), (TimeUnit::Year, TimeUnit::Month)] {
                let _ = interval_literal(&text, leading, Some(30), Some(last), None);
                let _ = interval_literal(&text, leading, None, None, None);
            }
        }
    }
}
