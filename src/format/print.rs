//! Scalar values to text, the same for every text format: what [`super::parse`] reads back as the same value.
//!
//! Dates are ISO 8601; years before 0000 or after 9999 bear a sign, as in Java.

use arrow_array::Array;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, TimestampMicrosecondType,
};

use crate::expr::DataType;

/// Appends the text of a value that is neither NULL, a STRING nor composite; `None`, and nothing appended, where there
/// is no text for it (a DOUBLE that is no number).
pub fn scalar(of: &DataType, array: &dyn Array, row: usize, calendar: &mut Calendar, out: &mut Vec<u8>) -> Option<()> {
    match of {
        DataType::Boolean => {
            out.extend_from_slice(if array.as_boolean_opt()?.value(row) { b"true" } else { b"false" });
        }
        DataType::TinyInt => integer(array.as_primitive_opt::<Int8Type>()?.value(row), out),
        DataType::SmallInt => integer(array.as_primitive_opt::<Int16Type>()?.value(row), out),
        DataType::Int => integer(array.as_primitive_opt::<Int32Type>()?.value(row), out),
        DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => {
            integer(array.as_primitive_opt::<Int64Type>()?.value(row), out);
        }
        DataType::Float => float(array.as_primitive_opt::<Float32Type>()?.value(row), out)?,
        DataType::Double => double(array.as_primitive_opt::<Float64Type>()?.value(row), out)?,
        DataType::Decimal(_, scale) => decimal(array.as_primitive_opt::<Decimal128Type>()?.value(row), *scale, out),
        DataType::Bytes => base64(array.as_binary_opt::<i32>()?.value(row), out),
        DataType::Date => calendar.date(i64::from(array.as_primitive_opt::<Date32Type>()?.value(row)), out),
        DataType::Time => time(i64::from(array.as_primitive_opt::<Time32MillisecondType>()?.value(row)), out),
        DataType::Timestamp(precision) => {
            calendar.timestamp(array.as_primitive_opt::<TimestampMicrosecondType>()?.value(row), *precision, out);
        }
        DataType::TimestampLtz(precision) => {
            calendar.timestamp(array.as_primitive_opt::<TimestampMicrosecondType>()?.value(row), *precision, out);
            out.push(b'Z');
        }
        DataType::Null | DataType::String | DataType::Array(_) | DataType::Row(_) | DataType::Map(..) => return None,
    }
    Some(())
}

/// Prints dates and times; remembers the last day, since neighbouring rows mostly share it.
#[derive(Default)]
pub struct Calendar {
    day: i64,
    /// Text of `day`; empty before the first.
    text: Vec<u8>,
}

const DAY_MICROS: i64 = 86_400_000_000;

impl Calendar {
    /// `2026-04-02`, from days since 1970.
    pub fn date(&mut self, day: i64, out: &mut Vec<u8>) {
        if self.day != day || self.text.is_empty() {
            self.day = day;
            self.text.clear();
            let (year, month, day) = civil_from_days(day);
            match year {
                0..=9999 => {
                    two(year / 100, &mut self.text);
                    two(year % 100, &mut self.text);
                }
                10_000.. => self.text.extend_from_slice(format!("+{year}").as_bytes()),
                _ => self.text.extend_from_slice(format!("-{:04}", -year).as_bytes()),
            }
            self.text.push(b'-');
            two(month, &mut self.text);
            self.text.push(b'-');
            two(day, &mut self.text);
        }
        out.extend_from_slice(&self.text);
    }

    /// `2026-04-02T00:58:00.150` with `precision` digits of fraction, from µs since 1970.
    pub fn timestamp(&mut self, micros: i64, precision: u8, out: &mut Vec<u8>) {
        self.date(micros.div_euclid(DAY_MICROS), out);
        out.push(b'T');
        let of_day = micros.rem_euclid(DAY_MICROS);
        hours_minutes_seconds(of_day / 1_000_000, out);
        fraction(of_day % 1_000_000, precision, out);
    }
}

/// `00:58:00`, or `00:58:00.150` where there are milliseconds, from ms since midnight.
pub fn time(millis: i64, out: &mut Vec<u8>) {
    let of_day = millis.rem_euclid(86_400_000);
    hours_minutes_seconds(of_day / 1000, out);
    if of_day % 1000 != 0 {
        fraction(of_day % 1000 * 1000, 3, out);
    }
}

fn hours_minutes_seconds(seconds: i64, out: &mut Vec<u8>) {
    two(seconds / 3600, out);
    out.push(b':');
    two(seconds / 60 % 60, out);
    out.push(b':');
    two(seconds % 60, out);
}

/// The first `precision` of six digits, behind a point.
fn fraction(micros: i64, precision: u8, out: &mut Vec<u8>) {
    if precision > 0 {
        out.push(b'.');
        let mut unit = 100_000;
        for _ in 0..precision.min(6) {
            out.push(digit(micros / unit % 10));
            unit /= 10;
        }
    }
}

/// Two digits of a number below 100.
fn two(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&[digit(number / 10), digit(number % 10)]);
}

fn digit(number: i64) -> u8 {
    b'0' + (number % 10).unsigned_abs() as u8
}

/// The shortest decimal that reads back as the same DOUBLE; `None` for what is no number.
pub fn double(value: f64, out: &mut Vec<u8>) -> Option<()> {
    value.is_finite().then(|| out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes()))
}

/// The shortest decimal that reads back as the same FLOAT; `None` for what is no number.
pub fn float(value: f32, out: &mut Vec<u8>) -> Option<()> {
    value.is_finite().then(|| out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes()))
}

/// An integer.
pub fn integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A DECIMAL with all digits of its scale: `12.50`.
pub fn decimal(unscaled: i128, scale: u8, out: &mut Vec<u8>) {
    if unscaled < 0 {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(unscaled.unsigned_abs()).as_bytes();
    let scale = usize::from(scale);
    let whole = digits.len().saturating_sub(scale);
    let (integer, fraction) = digits.split_at(whole);
    out.extend_from_slice(if integer.is_empty() { b"0" } else { integer });
    if scale > 0 {
        out.push(b'.');
        out.resize(out.len() + (scale - fraction.len()), b'0');
        out.extend_from_slice(fraction);
    }
}

/// Standard base64 with padding.
pub fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    use base64::Engine as _;
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let target = out.get_mut(start..).unwrap_or_default();
    let written = base64::engine::general_purpose::STANDARD.encode_slice(bytes, target).unwrap_or(0);
    out.truncate(start + written);
}

/// Year, month and day of days since 1970 (Hinnant's algorithm).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parse;
    use super::*;

    fn printed(print: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        print(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn timestamps_and_times() {
        let mut calendar = Calendar::default();
        let at = 1_775_091_480_150_000;
        assert_eq!(printed(|out| calendar.timestamp(at, 3, out)), "2026-04-02T00:58:00.150");
        assert_eq!(printed(|out| calendar.timestamp(at, 0, out)), "2026-04-02T00:58:00");
        assert_eq!(printed(|out| calendar.timestamp(-1, 6, out)), "1969-12-31T23:59:59.999999");
        assert_eq!(printed(|out| calendar.timestamp(0, 3, out)), "1970-01-01T00:00:00.000");
        assert_eq!(printed(|out| calendar.timestamp(i64::MAX, 6, out)), "+294247-01-10T04:00:54.775807");
        assert_eq!(printed(|out| calendar.timestamp(i64::MIN, 6, out)), "-290308-12-21T19:59:05.224192");
        assert_eq!(printed(|out| calendar.date(i64::from(i32::MIN), out)), "-5877641-06-23");
        assert_eq!(printed(|out| time(86_399_000, out)), "23:59:59");
        assert_eq!(printed(|out| time(86_399_001, out)), "23:59:59.001");
        assert_eq!(printed(|out| time(-1, out)), "23:59:59.999");
    }

    #[test]
    fn decimals_keep_their_scale() {
        assert_eq!(printed(|out| decimal(20_950, 2, out)), "209.50");
        assert_eq!(printed(|out| decimal(-5, 3, out)), "-0.005");
        assert_eq!(printed(|out| decimal(7, 0, out)), "7");
        assert_eq!(printed(|out| decimal(i128::MIN, 38, out)), "-1.70141183460469231731687303715884105728");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(
            micros in -62_167_219_200_000_000i64..253_402_300_800_000_000,
            unscaled in -(10i128.pow(38) - 1)..10i128.pow(38),
            bits in any::<u64>(),
        ) {
            let text = printed(|out| Calendar::default().timestamp(micros, 6, out));
            prop_assert_eq!(parse::timestamp(&text, 6), Ok(micros), "{}", text);
            for scale in [0, 5, 38] {
                let text = printed(|out| decimal(unscaled, scale, out));
                prop_assert_eq!(parse::decimal(&text, 38, scale), Ok(unscaled), "{}", text);
            }
            let value = f64::from_bits(bits);
            if value.is_finite() {
                let text = printed(|out| { double(value, out); });
                prop_assert_eq!(parse::double(&text).map(f64::to_bits), Ok(bits), "{}", text);
            }
        }
    }
}
