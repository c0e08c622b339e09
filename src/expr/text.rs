//! Values as text and back, in the forms of Java and Flink: what CAST between STRING and the other types does.

use super::calendar::{US_PER_DAY, US_PER_SECOND, date_of, days_of, month_length};

/// The decimal digits of a finite number, shortest that reads back the same: `(digits, exponent)` with the absolute
/// value `digits × 10^exponent`.
pub fn shortest_digits(value: f64) -> (u64, i32) {
    let mut buffer = ryu::Buffer::new();
    digits_of(buffer.format_finite(value.abs()))
}

fn shortest_digits_f32(value: f32) -> (u64, i32) {
    let mut buffer = ryu::Buffer::new();
    digits_of(buffer.format_finite(value.abs()))
}

/// Reads the text that `ryu` writes.
fn digits_of(text: &str) -> (u64, i32) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mut exponent: i32 = exponent.parse().unwrap_or(0);
    let mut digits: u64 = 0;
    let mut behind_point = false;
    for byte in mantissa.bytes() {
        match byte {
            b'.' => behind_point = true,
            b'0'..=b'9' => {
                digits = digits.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
                exponent -= i32::from(behind_point);
            }
            _ => {}
        }
    }
    while digits != 0 && digits.is_multiple_of(10) {
        digits /= 10;
        exponent += 1;
    }
    (digits, exponent)
}

/// Appends a DOUBLE as Java's `Double.toString`: `25.6`, `1.0E10`, `NaN`, `-Infinity`.
pub fn format_f64(value: f64, out: &mut String) {
    if value.is_finite() {
        format_digits(value.is_sign_negative(), shortest_digits(value), out);
    } else {
        out.push_str(not_finite(value));
    }
}

/// Appends a FLOAT as Java's `Float.toString`.
pub fn format_f32(value: f32, out: &mut String) {
    if value.is_finite() {
        format_digits(value.is_sign_negative(), shortest_digits_f32(value), out);
    } else {
        out.push_str(not_finite(value.into()));
    }
}

fn not_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn format_digits(negative: bool, (digits, exponent): (u64, i32), out: &mut String) {
    if negative {
        out.push('-');
    }
    if digits == 0 {
        out.push_str("0.0");
        return;
    }
    let text = digits.to_string();
    // The value is d.ddd × 10^scientific.
    let scientific = exponent + i32::try_from(text.len()).unwrap_or(0) - 1;
    let push_split = |out: &mut String, at: usize| {
        let (whole, fraction) = text.split_at(at.min(text.len()));
        out.push_str(whole);
        out.extend(std::iter::repeat_n('0', at.saturating_sub(text.len())));
        out.push('.');
        out.push_str(if fraction.is_empty() { "0" } else { fraction });
    };
    match scientific {
        0..=6 => push_split(out, usize::try_from(scientific + 1).unwrap_or(1)),
        -3..=-1 => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', usize::try_from(-scientific - 1).unwrap_or(0)));
            out.push_str(&text);
        }
        _ => {
            push_split(out, 1);
            out.push('E');
            out.push_str(&scientific.to_string());
        }
    }
}

/// Parses an integer as Flink's CAST does: an optional sign, digits, and a fraction that is cut off; no blanks.
pub fn parse_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if digits.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut value: i64 = 0;
    for byte in whole.bytes() {
        // Counting down reaches the smallest number as well.
        value = value.checked_mul(10)?.checked_sub(i64::from(byte - b'0'))?;
    }
    if text.starts_with('-') { Some(value) } else { value.checked_neg() }
}

/// Parses a floating-point number as Java's `Double.parseDouble`, but for hexadecimal ones.
pub fn parse_f64(text: &str) -> Option<f64> {
    java_float(text).and_then(|text| text.parse().ok())
}

/// Parses a FLOAT as Java's `Float.parseFloat`.
pub fn parse_f32(text: &str) -> Option<f32> {
    java_float(text).and_then(|text| text.parse().ok())
}

/// The text in a form that both Java and Rust read, if Java reads it.
fn java_float(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return Some(text);
    }
    let text = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    plain.then_some(text)
}

/// Parses a BOOLEAN as Flink's CAST does.
pub fn parse_boolean(text: &str) -> Option<bool> {
    let is_one_of = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if is_one_of(&["t", "true", "y", "yes", "1"]) {
        Some(true)
    } else if is_one_of(&["f", "false", "n", "no", "0"]) {
        Some(false)
    } else {
        None
    }
}

fn digits(text: &str) -> Option<i64> {
    let text = text.trim_matches(|c: char| c <= ' ');
    if text.is_empty() || text.len() > 9 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Parses a DATE as Flink's CAST does: `2026-4-2`, `2026-04` and `2026` (the first day), what follows a blank ignored.
pub fn parse_date(text: &str) -> Option<i64> {
    let text = match text.find(' ') {
        Some(at) if at > 0 => text.get(..at)?,
        _ => text,
    };
    let mut parts = text.splitn(3, '-');
    let year = digits(parts.next()?)?;
    let month = parts.next().map_or(Some(1), digits)?;
    let day = parts.next().map_or(Some(1), digits)?;
    let valid = year <= 9999 && (1..=12).contains(&month) && (1..=month_length(year, month)).contains(&day);
    valid.then(|| days_of(year, month, day))
}

/// Parses a TIME in ms as Flink's CAST does: `12:34:56.789`, `12:34`, `12`, an offset as `+02:00` added.
pub fn parse_time(text: &str) -> Option<i64> {
    let zone_at = text.find('-').or_else(|| text.find('+'));
    let (clock, zone) = match zone_at {
        Some(at) => (text.get(..at)?, text.get(at..)?),
        None => (text, ""),
    };
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (zone_hours, zone_minutes) = match zone.get(1..) {
        Some(zone) => match zone.split_once(':') {
            Some((hours, minutes)) => (digits(hours)?, digits(minutes)?),
            None => (digits(zone)?, 0),
        },
        None => (0, 0),
    };
    let mut parts = clock.splitn(3, ':');
    let hours = digits(parts.next()?)?;
    let minutes = parts.next().map_or(Some(0), digits)?;
    let (seconds, millis) = match parts.next() {
        None => (0, 0),
        Some(part) => match part.split_once('.') {
            None => (digits(part)?, 0),
            Some((seconds, fraction)) => (digits(seconds)?, fraction_ms(fraction.trim())),
        },
    };
    let ms =
        (hours + sign * zone_hours) * 3_600_000 + (minutes + sign * zone_minutes) * 60_000 + seconds * 1000 + millis;
    (0..86_400_000).contains(&ms).then_some(ms)
}

/// The first three digits of a fraction, rounded by the fourth.
fn fraction_ms(fraction: &str) -> i64 {
    let digit = |i: usize| match fraction.as_bytes().get(i) {
        Some(byte) if byte.is_ascii_digit() => i64::from(byte - b'0'),
        _ => 0,
    };
    digit(0) * 100 + digit(1) * 10 + digit(2) + i64::from(digit(3) >= 5)
}

/// Parses a TIMESTAMP in µs as Flink's CAST does: `2026-04-02`, `2026-4-2 1:2:3`, `2026-04-02 01:02:03.123456`. Digits
/// beyond the sixth are cut; the days 29 to 31 of a shorter month are its last.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    let (date, clock) = match text.split_once(' ') {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let mut parts = date.splitn(3, '-');
    let year = parts.next().filter(|year| year.len() == 4).and_then(digits_only)?;
    let month = parts.next().filter(|part| part.len() <= 2).and_then(digits_only)?;
    let day = parts.next().filter(|part| part.len() <= 2).and_then(digits_only)?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_of(year, month, day.min(month_length(year, month)));
    let of_day = clock.map_or(Some(0), parse_clock)?;
    Some(days * US_PER_DAY + of_day)
}

fn digits_only(text: &str) -> Option<i64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn parse_clock(clock: &str) -> Option<i64> {
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.splitn(3, ':');
    let mut next = || parts.next().filter(|part| part.len() <= 2).and_then(digits_only);
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let us = (0..6).fold(0, |us, i| us * 10 + fraction.as_bytes().get(i).map_or(0, |b| i64::from(b - b'0')));
    let valid = hours < 24 && minutes < 60 && seconds < 60 || (hours, minutes, seconds, us) == (24, 0, 0, 0);
    valid.then(|| (hours * 3600 + minutes * 60 + seconds) * US_PER_SECOND + us)
}

fn push_padded(value: i64, width: usize, out: &mut String) {
    let text = value.unsigned_abs().to_string();
    if value < 0 {
        out.push('-');
    }
    out.extend(std::iter::repeat_n('0', width.saturating_sub(text.len())));
    out.push_str(&text);
}

/// Appends a DATE: `2026-04-02`.
pub fn format_date(days: i64, out: &mut String) {
    let date = date_of(days);
    push_padded(date.year, 4, out);
    out.push('-');
    push_padded(date.month, 2, out);
    out.push('-');
    push_padded(date.day, 2, out);
}

fn format_clock(seconds: i64, out: &mut String) {
    push_padded(seconds / 3600, 2, out);
    out.push(':');
    push_padded(seconds / 60 % 60, 2, out);
    out.push(':');
    push_padded(seconds % 60, 2, out);
}

/// Appends a TIME: `01:02:03`, without the milliseconds (a Flink TIME has precision 0).
pub fn format_time(ms: i64, out: &mut String) {
    format_clock(ms.rem_euclid(86_400_000) / 1000, out);
}

/// Appends a wall-clock time in µs with `precision` digits behind the seconds: `2026-04-02 01:02:03.123`.
pub fn format_timestamp(wall_us: i64, precision: u8, out: &mut String) {
    format_date(wall_us.div_euclid(US_PER_DAY), out);
    out.push(' ');
    let of_day = wall_us.rem_euclid(US_PER_DAY);
    format_clock(of_day / US_PER_SECOND, out);
    let precision = u32::from(precision.min(6));
    if precision > 0 {
        out.push('.');
        push_padded(of_day % US_PER_SECOND / 10_i64.pow(6 - precision), precision as usize, out);
    }
}

/// Appends an INTERVAL DAY TO SECOND: `+1 10:17:36.789`.
pub fn format_day_time(ms: i64, out: &mut String) {
    out.push(if ms < 0 { '-' } else { '+' });
    let ms = i64::try_from(ms.unsigned_abs()).unwrap_or(i64::MAX);
    out.push_str(&(ms / 86_400_000).to_string());
    out.push(' ');
    format_clock(ms / 1000 % 86_400, out);
    out.push('.');
    push_padded(ms % 1000, 3, out);
}

/// Appends an INTERVAL YEAR TO MONTH: `+10-03`.
pub fn format_year_month(months: i64, out: &mut String) {
    out.push(if months < 0 { '-' } else { '+' });
    let months = months.unsigned_abs();
    out.push_str(&(months / 12).to_string());
    out.push('-');
    push_padded(i64::try_from(months % 12).unwrap_or(0), 2, out);
}

/// Rounds a finite number to `places` decimals, half away from zero (`half`) or towards zero, in decimal as Java's
/// `BigDecimal.valueOf(x)` has it: 2.675 rounds to 2.68.
pub fn round_decimal(value: f64, places: i32, half: bool) -> f64 {
    let (digits, exponent) = shortest_digits(value);
    // An absurd number of places would overflow the exponent below; beyond these it changes nothing.
    let places = places.clamp(-400, 400);
    let drop = -(exponent + places);
    if drop <= 0 {
        return value + 0.0;
    }
    if drop > 19 {
        return 0.0;
    }
    let power = 10_u128.pow(drop.unsigned_abs());
    let rounded = (u128::from(digits) + if half { power / 2 } else { 0 }) / power;
    if rounded == 0 {
        return 0.0;
    }
    let magnitude = if rounded < 1 << 53 && (0..=22).contains(&places) {
        rounded as f64 / 10_f64.powi(places)
    } else {
        format!("{rounded}e{}", -places).parse().unwrap_or(f64::NAN)
    };
    magnitude.copysign(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(value: f64) -> String {
        let mut out = String::new();
        format_f64(value, &mut out);
        out
    }

    #[test]
    fn doubles_as_in_java() {
        for (value, text) in [
            (25.6, "25.6"),
            (13.0, "13.0"),
            (1e10, "1.0E10"),
            (1e7, "1.0E7"),
            (9_999_999.0, "9999999.0"),
            (0.001, "0.001"),
            (0.000_12, "1.2E-4"),
            (-0.0, "-0.0"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (12_345.678_901, "12345.678901"),
            (100.0, "100.0"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(shown(value), text);
        }
        let mut out = String::new();
        format_f32(-123.456, &mut out);
        assert_eq!(out, "-123.456");
    }

    #[test]
    fn numbers_from_text() {
        assert_eq!(parse_integer("12.9"), Some(12));
        assert_eq!(parse_integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_integer("9223372036854775808"), None);
        for bad in ["", "+", " 1", "1 ", "1e3", "1.2.3", "ä"] {
            assert_eq!(parse_integer(bad), None, "{bad}");
        }
        assert_eq!(parse_f64(" 1e3d "), Some(1000.0));
        assert_eq!(parse_f64("Infinity"), Some(f64::INFINITY));
        for bad in ["", "inf", "nan", "1_0", "0x10", "e5", "."] {
            assert_eq!(parse_f64(bad), None, "{bad}");
        }
        assert_eq!(parse_boolean("Yes"), Some(true));
        assert_eq!(parse_boolean(" true"), None);
    }

    #[test]
    fn times_from_text() {
        assert_eq!(parse_date("123"), Some(days_of(123, 1, 1)));
        assert_eq!(parse_date("2021-09-27 12:34:56.123"), Some(days_of(2021, 9, 27)));
        assert_eq!(parse_date("2021-02-29"), None);
        assert_eq!(parse_date("2021/09/27"), None);
        assert_eq!(parse_time("12:34:56.123456789"), Some(45_296_123));
        assert_eq!(parse_time("23:45"), Some(85_500_000));
        assert_eq!(parse_time("2021-09-27"), None);
        assert_eq!(parse_timestamp("1970-01-02 3:4:5.5"), Some(US_PER_DAY + 11_045_500_000));
        assert_eq!(parse_timestamp("2021-02-30"), Some(days_of(2021, 2, 28) * US_PER_DAY));
        for bad in ["123", "2026-04-02T00:00:00", "2026-04-02 00:00", "2026-13-01", "2026-04-02 24:00:01", ""] {
            assert_eq!(parse_timestamp(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_to_text() {
        let mut out = String::new();
        format_timestamp(parse_timestamp("2021-09-24 12:34:56.1").unwrap(), 3, &mut out);
        assert_eq!(out, "2021-09-24 12:34:56.100");
        out.clear();
        format_day_time(123_456_789, &mut out);
        format_year_month(-123, &mut out);
        assert_eq!(out, "+1 10:17:36.789-10-03");
    }

    #[test]
    fn rounding_is_decimal() {
        assert_eq!(round_decimal(2.675, 2, true), 2.68);
        assert_eq!(round_decimal(-2.5, 0, true), -3.0);
        assert_eq!(round_decimal(1234.5, -2, true), 1200.0);
        assert_eq!(round_decimal(-0.4, 0, true).to_bits(), 0);
        assert_eq!(round_decimal(9.99, 1, false), 9.9);
        assert_eq!(round_decimal(1e300, 400, true), 1e300);
    }

    proptest! {
        #[test]
        fn doubles_read_back(value in any::<f64>()) {
            if !value.is_nan() {
                prop_assert_eq!(parse_f64(&shown(value)), Some(value));
            }
        }

        #[test]
        fn parsers_are_total(text in "\\PC{0,24}", clock in "[0-9:. +-]{0,24}") {
            for text in [&text, &clock] {
                let _ = (parse_date(text), parse_time(text), parse_timestamp(text), parse_integer(text));
                let _ = (parse_f64(text), parse_boolean(text));
            }
        }

        #[test]
        fn formatting_is_total(a in any::<i64>(), value in any::<f64>(), places in any::<i32>()) {
            let mut out = String::new();
            format_timestamp(a, 6, &mut out);
            format_date(a, &mut out);
            format_day_time(a, &mut out);
            format_year_month(a, &mut out);
            if value.is_finite() {
                let _ = round_decimal(value, places, true);
            }
        }
    }
}
