//! Scalar values from text, the same for every text format: exact, locale-free, total.
//!
//! White space around a value is ignored. Nothing is guessed: a text that does not denote a value of the wanted type is
//! refused, and so is a value that the type cannot hold.

/// Why a text is no value of the wanted type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The text is no such value at all.
    Malformed,
    OutOfRange,
    /// An integer was wanted.
    Fraction,
    /// An instant was wanted, but the text has neither `Z` nor an offset.
    ZoneMissing,
    /// A wall-clock time was wanted, but the text has `Z` or an offset.
    ZoneGiven,
    /// A number where a timestamp is wanted, without a declared unit.
    UnitMissing,
    /// The batch cannot hold that many bytes.
    TooLarge,
}

impl Refusal {
    /// The rest of the sentence "VALUE …" for a value of the type named.
    pub fn sentence(self, type_name: &str) -> String {
        match self {
            Refusal::Malformed => format!("is not a valid {type_name}"),
            Refusal::OutOfRange => format!("is out of range for {type_name}"),
            Refusal::Fraction => format!("has a fraction, which {type_name} cannot hold"),
            Refusal::ZoneMissing => format!("has no time zone, but {type_name} needs `Z` or an offset"),
            Refusal::ZoneGiven => {
                format!("has a time zone, which {type_name} cannot hold: declare the column as TIMESTAMP_LTZ")
            }
            Refusal::UnitMissing => {
                format!("is a number: for {type_name} set `unit` in the source's `time` section if it counts time")
            }
            Refusal::TooLarge => "does not fit: the batch would grow over 2 GiB".to_owned(),
        }
    }
}

type Parsed<T> = Result<T, Refusal>;

/// `true` or `false`, in any case.
pub fn boolean(text: &str) -> Parsed<bool> {
    let text = text.trim_ascii();
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(Refusal::Malformed)
    }
}

/// A number without fraction: `12`, `-3`, `1.0`, `1e3`.
pub fn integer(text: &str) -> Parsed<i64> {
    match short_integer(text.as_bytes()) {
        Some(value) => Ok(value),
        None => {
            let number = Scaled::parse(text, 0)?;
            if !number.exact {
                return Err(Refusal::Fraction);
            }
            i64::try_from(number.signed()).map_err(|_| Refusal::OutOfRange)
        }
    }
}

/// The usual form, too short to overflow.
fn short_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// A DOUBLE, correctly rounded; also `NaN`, `Infinity`, `-Infinity` by name, as in Flink.
pub fn double(text: &str) -> Parsed<f64> {
    let text = text.trim_ascii();
    match named_float(text)? {
        Some(named) => Ok(named),
        None => match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            Ok(_) => Err(Refusal::OutOfRange),
            Err(_) => Err(Refusal::Malformed),
        },
    }
}

/// A FLOAT, correctly rounded; names as for [`double`].
pub fn float(text: &str) -> Parsed<f32> {
    let text = text.trim_ascii();
    match named_float(text)? {
        Some(named) => Ok(named as f32),
        None => match text.parse::<f32>() {
            Ok(value) if value.is_finite() => Ok(value),
            Ok(_) => Err(Refusal::OutOfRange),
            Err(_) => Err(Refusal::Malformed),
        },
    }
}

/// Only digits, signs and points go on to Rust's parser, which takes more names than Flink does.
fn named_float(text: &str) -> Parsed<Option<f64>> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    match text {
        "NaN" => Ok(Some(f64::NAN)),
        "Infinity" | "+Infinity" => Ok(Some(f64::INFINITY)),
        "-Infinity" => Ok(Some(f64::NEG_INFINITY)),
        _ => Err(Refusal::Malformed),
    }
}

/// The unscaled value of a `DECIMAL(precision, scale)`, rounded half up (away from zero) to the scale.
pub fn decimal(text: &str, precision: u8, scale: u8) -> Parsed<i128> {
    let number = Scaled::parse(text, i64::from(scale))?;
    let rounded = number.magnitude + i128::from(number.next_digit >= 5);
    match 10i128.checked_pow(u32::from(precision)) {
        Some(limit) if rounded < limit => Ok(if number.negative { -rounded } else { rounded }),
        _ => Err(Refusal::OutOfRange),
    }
}

/// Microseconds of a number that counts time since 1970 in units of `10^-unit_exponent` seconds; what is finer is cut
/// (towards the past).
pub fn epoch_micros(text: &str, unit_exponent: i64) -> Parsed<i64> {
    let number = Scaled::parse(text, 6 - unit_exponent)?;
    let floor = number.signed() - i128::from(number.negative && !number.exact);
    i64::try_from(floor).map_err(|_| Refusal::OutOfRange)
}

/// A decimal number times `10^scale`: its whole part and what was cut off.
struct Scaled {
    negative: bool,
    magnitude: i128,
    /// First digit after the whole part.
    next_digit: u8,
    /// Nothing but zeros was cut off.
    exact: bool,
}

impl Scaled {
    fn signed(&self) -> i128 {
        if self.negative { -self.magnitude } else { self.magnitude }
    }

    fn parse(text: &str, scale: i64) -> Parsed<Scaled> {
        let text = text.trim_ascii();
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let mantissa_len = unsigned.iter().position(|b| matches!(b, b'e' | b'E')).unwrap_or(unsigned.len());
        let (mantissa, exponent) = unsigned.split_at(mantissa_len);
        let exponent = match exponent {
            [] => 0,
            [_, b'-', digits @ ..] => -exponent_digits(digits)?,
            [_, b'+', digits @ ..] | [_, digits @ ..] => exponent_digits(digits)?,
        };
        let point = mantissa.iter().position(|b| *b == b'.').unwrap_or(mantissa.len());
        // Of the mantissa's digits, this many belong to the whole part.
        let keep = i64::try_from(point).unwrap_or(i64::MAX).saturating_add(exponent).saturating_add(scale);
        let mut number = Scaled { negative, magnitude: 0, next_digit: 0, exact: true };
        let mut seen = 0i64;
        for (i, byte) in mantissa.iter().enumerate() {
            if i == point {
                continue;
            }
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return Err(Refusal::Malformed);
            }
            if seen < keep {
                number.push(digit)?;
            } else {
                if seen == keep {
                    number.next_digit = digit;
                }
                number.exact &= digit == 0;
            }
            seen += 1;
        }
        if seen == 0 {
            return Err(Refusal::Malformed);
        }
        if number.magnitude != 0 {
            for _ in seen..keep {
                number.push(0)?;
            }
        }
        Ok(number)
    }

    fn push(&mut self, digit: u8) -> Parsed<()> {
        let next = self.magnitude.checked_mul(10).and_then(|m| m.checked_add(i128::from(digit)));
        self.magnitude = next.ok_or(Refusal::OutOfRange)?;
        Ok(())
    }
}

/// The digits of an exponent; absurdly large ones are as good as a billion.
fn exponent_digits(digits: &[u8]) -> Parsed<i64> {
    if digits.is_empty() {
        return Err(Refusal::Malformed);
    }
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Refusal::Malformed);
        }
        value = (value * 10 + i64::from(digit)).min(1_000_000_000);
    }
    Ok(value)
}

const DAY_MICROS: i64 = 86_400_000_000;

/// `2026-04-02T00:58:00.150` (also with a space, without fraction, without seconds): µs, cut to `precision` digits.
pub fn timestamp(text: &str, precision: u8) -> Parsed<i64> {
    let (micros, zone) = date_time(text)?;
    match zone {
        None => cut(micros, precision),
        Some(_) => Err(Refusal::ZoneGiven),
    }
}

/// `2026-04-02T00:58:00.150Z`, or with an offset such as `+02:00`: µs since 1970 UTC, cut to `precision` digits.
pub fn timestamp_ltz(text: &str, precision: u8) -> Parsed<i64> {
    let (micros, zone) = date_time(text)?;
    match zone {
        Some(offset_micros) => cut(micros - offset_micros, precision),
        None => Err(Refusal::ZoneMissing),
    }
}

/// Cuts digits beyond the precision, towards the past (of the very first stamps there is none).
pub fn cut(micros: i64, precision: u8) -> Parsed<i64> {
    let step = match precision {
        0 => 1_000_000,
        1 => 100_000,
        2 => 10_000,
        3 => 1_000,
        4 => 100,
        5 => 10,
        _ => return Ok(micros),
    };
    micros.checked_sub(micros.rem_euclid(step)).ok_or(Refusal::OutOfRange)
}

/// `2026-04-02`: days since 1970.
pub fn date(text: &str) -> Parsed<i32> {
    let (days, rest) = year_month_day(text.trim_ascii().as_bytes())?;
    if rest.is_empty() { i32::try_from(days).map_err(|_| Refusal::OutOfRange) } else { Err(Refusal::Malformed) }
}

/// `00:58`, `00:58:00`, `00:58:00.150`: ms since midnight; finer digits are cut.
pub fn time(text: &str) -> Parsed<i32> {
    let (micros, rest) = time_of_day(text.trim_ascii().as_bytes())?;
    if rest.is_empty() {
        i32::try_from(micros / 1000).map_err(|_| Refusal::OutOfRange)
    } else {
        Err(Refusal::Malformed)
    }
}

/// Wall-clock µs since 1970 and the zone's offset in µs, where one is given.
#[inline]
fn date_time(text: &str) -> Parsed<(i64, Option<i64>)> {
    match usual_date_time(text.as_bytes()) {
        Some((micros, b"Z")) => Ok((micros, Some(0))),
        Some((micros, b"")) => Ok((micros, None)),
        _ => any_date_time(text),
    }
}

fn any_date_time(text: &str) -> Parsed<(i64, Option<i64>)> {
    let bytes = text.trim_ascii().as_bytes();
    let (days, rest) = year_month_day(bytes)?;
    let [b'T' | b't' | b' ', rest @ ..] = rest else { return Err(Refusal::Malformed) };
    let (micros, rest) = time_of_day(rest)?;
    let zone = match rest {
        [] => None,
        [b'Z' | b'z'] => Some(0),
        [b' ', rest @ ..] | rest => Some(offset(rest)?),
    };
    Ok((days * DAY_MICROS + micros, zone))
}

/// The fast way for the usual form, `2026-04-02T00:58:00` with three digits of a fraction or none, and what follows it.
/// `None`: another form, or none.
#[inline]
fn usual_date_time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = bytes.split_first_chunk::<8>()?;
    let (day_and_time, rest) = rest.split_first_chunk::<8>()?;
    let date = pairs(*date, *b"0000-00-")?;
    let [day, _, _, hour, _, _, minute, _] = pairs(*day_and_time, *b"00T00:00")?.map(i64::from);
    let ([b':', s1, s0], mut rest) = rest.split_first_chunk::<3>()? else { return None };
    let second = two(*s1, *s0).ok()?;
    let [century, _, of_century, _, _, month, _, _] = date.map(i64::from);
    let year = century * 100 + of_century;
    let exists = (1..=12).contains(&month) && day >= 1 && (day <= 28 || day <= days_in_month(year, month));
    if !exists || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = days_from_civil(year, month, day) * DAY_MICROS;
    micros += ((hour * 60 + minute) * 60 + second) * 1_000_000;
    if let [b'.', f2, f1, f0, tail @ ..] = rest {
        micros += (two(*f2, *f1).ok()? * 10 + two(b'0', *f0).ok()?) * 1000;
        rest = tail;
    }
    Some((micros, rest))
}

/// Eight characters that are digits where `form` has a `0`, and else as in `form`: at the place of each digit the number that
/// it and the next one make.
#[inline]
fn pairs(text: [u8; 8], form: [u8; 8]) -> Option<[u8; 8]> {
    // Added to a digit or, where there is none, to zero, these leave the highest bit of a byte alone; else they set it.
    let limits = u64::from_le_bytes(form.map(|byte| if byte == b'0' { 0x7f - 9 } else { 0x7f }));
    let digits = u64::from_le_bytes(text) ^ u64::from_le_bytes(form);
    let wrong = (digits | digits.wrapping_add(limits)) & u64::from_ne_bytes([0x80; 8]);
    (wrong == 0).then(|| (digits.wrapping_mul(10).wrapping_add(digits >> 8)).to_le_bytes())
}

/// `+02:00`, `+0200`, `+02`.
fn offset(bytes: &[u8]) -> Parsed<i64> {
    let (sign, hours, minutes) = match bytes {
        [sign, h1, h0, b':', m1, m0] | [sign, h1, h0, m1, m0] => (sign, two(*h1, *h0)?, two(*m1, *m0)?),
        [sign, h1, h0] => (sign, two(*h1, *h0)?, 0),
        _ => return Err(Refusal::Malformed),
    };
    if hours > 18 || minutes > 59 {
        return Err(Refusal::Malformed);
    }
    let micros = (hours * 60 + minutes) * 60_000_000;
    match sign {
        b'+' => Ok(micros),
        b'-' => Ok(-micros),
        _ => Err(Refusal::Malformed),
    }
}

fn year_month_day(bytes: &[u8]) -> Parsed<(i64, &[u8])> {
    let [y3, y2, y1, y0, b'-', m1, m0, b'-', d1, d0, rest @ ..] = bytes else { return Err(Refusal::Malformed) };
    let year = two(*y3, *y2)? * 100 + two(*y1, *y0)?;
    let (month, day) = (two(*m1, *m0)?, two(*d1, *d0)?);
    if day < 1 || day > days_in_month(year, month) {
        return Err(Refusal::Malformed);
    }
    Ok((days_from_civil(year, month, day), rest))
}

/// µs since midnight and what follows the time.
fn time_of_day(bytes: &[u8]) -> Parsed<(i64, &[u8])> {
    let [h1, h0, b':', m1, m0, rest @ ..] = bytes else { return Err(Refusal::Malformed) };
    let (hour, minute) = (two(*h1, *h0)?, two(*m1, *m0)?);
    let (second, mut rest) = match rest {
        [b':', s1, s0, rest @ ..] => (two(*s1, *s0)?, rest),
        _ => (0, rest),
    };
    if hour > 23 || minute > 59 || second > 59 {
        return Err(Refusal::Malformed);
    }
    let mut micros = ((hour * 60 + minute) * 60 + second) * 1_000_000;
    if let [b'.', digits @ ..] = rest {
        let length = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
        if length == 0 {
            return Err(Refusal::Malformed);
        }
        let (fraction, tail) = digits.split_at(length);
        let mut unit = 100_000;
        for byte in fraction.iter().take(6) {
            micros += i64::from(byte - b'0') * unit;
            unit /= 10;
        }
        rest = tail;
    }
    Ok((micros, rest))
}

fn two(tens: u8, ones: u8) -> Parsed<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    if tens > 9 || ones > 9 { Err(Refusal::Malformed) } else { Ok(i64::from(tens * 10 + ones)) }
}

/// Days of a month of the proleptic Gregorian calendar; 0 for a month that does not exist.
fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 0,
    }
}

/// Days since 1970 of a date of the proleptic Gregorian calendar, year 0 to 9999 (after Hinnant: years from March, and 400
/// years later, so that none is negative).
#[inline]
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let [year, month] = [year, month].map(|number| number as u32);
    let (year, month) = if month <= 2 { (year + 399, month + 9) } else { (year + 400, month - 3) };
    let before_month = (153 * month + 2) / 5;
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    i64::from(before_year + before_month) + day - 1 - 719_468 - 146_097
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_usual_form_means_what_any_form_means(
            year in 0u32..10_000, month in 0u32..14, day in 0u32..33, hour in 0u32..26, minute in 0u32..62,
            second in 0u32..62, fraction in prop_oneof![Just(String::new()), "\\.[0-9]{1,7}"],
            zone in prop_oneof![Just(""), Just("Z"), Just("z"), Just("+02:00"), Just(" "), Just("x")],
            wrong in proptest::option::weighted(0.3, (0usize..32, any::<u8>())),
        ) {
            let mut text =
                format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}").into_bytes();
            if let Some((at, byte)) = wrong && let Some(place) = text.get_mut(at) {
                *place = byte;
            }
            if let Ok(text) = std::str::from_utf8(&text) {
                prop_assert_eq!(date_time(text), any_date_time(text), "{}", text);
            }
        }
    }

    #[test]
    fn integers() {
        for (text, value) in [
            ("0", Ok(0)),
            ("-12", Ok(-12)),
            (" 7 ", Ok(7)),
            ("+7", Ok(7)),
            ("1.0", Ok(1)),
            ("1e3", Ok(1000)),
            ("12.50e1", Ok(125)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("-9223372036854775808", Ok(i64::MIN)),
            ("9223372036854775808", Err(Refusal::OutOfRange)),
            ("1e999999999999", Err(Refusal::OutOfRange)),
            ("0e999999999999", Ok(0)),
            ("1e-999999999999", Err(Refusal::Fraction)),
            ("1.7", Err(Refusal::Fraction)),
            ("", Err(Refusal::Malformed)),
            ("-", Err(Refusal::Malformed)),
            (".", Err(Refusal::Malformed)),
            ("1.2.3", Err(Refusal::Malformed)),
            ("1e", Err(Refusal::Malformed)),
            ("0x10", Err(Refusal::Malformed)),
        ] {
            assert_eq!(integer(text), value, "{text}");
        }
    }

    #[test]
    fn floats() {
        assert_eq!(double(" 12.5 "), Ok(12.5));
        assert_eq!(double("1e-7"), Ok(1e-7));
        assert_eq!(double("-Infinity"), Ok(f64::NEG_INFINITY));
        assert!(double("NaN").is_ok_and(f64::is_nan));
        assert_eq!(double("1e999"), Err(Refusal::OutOfRange));
        assert_eq!(float("1e39"), Err(Refusal::OutOfRange));
        assert_eq!(float("0.1"), Ok(0.1f32));
        for text in ["", "-", "inf", "nan", "infinity", "1,5", "1.5x", "true"] {
            assert_eq!(double(text), Err(Refusal::Malformed), "{text}");
            assert_eq!(float(text), Err(Refusal::Malformed), "{text}");
        }
    }

    #[test]
    fn decimals_round_half_up_and_do_not_overflow() {
        assert_eq!(decimal("209.59", 10, 2), Ok(20959));
        assert_eq!(decimal("1.005", 10, 2), Ok(101));
        assert_eq!(decimal("-1.005", 10, 2), Ok(-101));
        assert_eq!(decimal("1.00499999", 10, 2), Ok(100));
        assert_eq!(decimal("1.5e2", 10, 2), Ok(15000));
        assert_eq!(decimal("15e-1", 1, 0), Ok(2));
        assert_eq!(decimal("0.05", 1, 1), Ok(1));
        assert_eq!(decimal("0.005", 1, 1), Ok(0));
        assert_eq!(decimal("99999999.994", 10, 2), Ok(9_999_999_999));
        assert_eq!(decimal("99999999.995", 10, 2), Err(Refusal::OutOfRange));
        let nines = "9".repeat(38);
        assert_eq!(decimal(&nines, 38, 0), Ok(10i128.pow(38) - 1));
        assert_eq!(decimal(&format!("{nines}9"), 38, 0), Err(Refusal::OutOfRange));
        assert_eq!(decimal("x", 10, 2), Err(Refusal::Malformed));
    }

    #[test]
    fn epochs_are_cut_towards_the_past() {
        assert_eq!(epoch_micros("1775091480", 0), Ok(1_775_091_480_000_000));
        assert_eq!(epoch_micros("1775091480.1234567", 0), Ok(1_775_091_480_123_456));
        assert_eq!(epoch_micros("1775091480150", 3), Ok(1_775_091_480_150_000));
        assert_eq!(epoch_micros("1775091480150999", 9), Ok(1_775_091_480_150));
        assert_eq!(epoch_micros("-1", 9), Ok(-1));
        assert_eq!(epoch_micros("-0.5", 6), Ok(-1));
        assert_eq!(epoch_micros("1e300", 0), Err(Refusal::OutOfRange));
        assert_eq!(cut(i64::MIN, 3), Err(Refusal::OutOfRange));
        assert_eq!(cut(i64::MIN, 6), Ok(i64::MIN));
    }

    #[test]
    fn timestamps() {
        let at = 1_775_091_480_150_000;
        assert_eq!(timestamp_ltz("2026-04-02T00:58:00.150Z", 3), Ok(at));
        assert_eq!(timestamp_ltz("2026-04-02 00:58:00.15z", 3), Ok(at));
        assert_eq!(timestamp_ltz("2026-04-02T02:58:00.150999+02:00", 3), Ok(at));
        assert_eq!(timestamp_ltz("2026-04-01T19:28:00.150-0530", 3), Ok(at));
        assert_eq!(timestamp_ltz("2026-04-02T00:58:00.150123456Z", 6), Ok(at + 123));
        assert_eq!(timestamp_ltz("2026-04-02T00:58:00.150", 3), Err(Refusal::ZoneMissing));
        assert_eq!(timestamp("2026-04-02T00:58:00.150", 3), Ok(at));
        assert_eq!(timestamp("2026-04-02T00:58", 3), Ok(at - 150_000));
        assert_eq!(timestamp("2026-04-02T00:58:00.150Z", 3), Err(Refusal::ZoneGiven));
        assert_eq!(timestamp("1969-12-31T23:59:59.9995", 3), Ok(-1000));
        assert_eq!(timestamp("0000-01-01T00:00:00", 0), Ok(-62_167_219_200_000_000));
        assert_eq!(timestamp("9999-12-31T23:59:59.999999", 6), Ok(253_402_300_799_999_999));
        for text in [
            "2026-02-29T00:00:00",
            "2026-13-01T00:00:00",
            "2026-00-01T00:00:00",
            "2026-04-31T00:00:00",
            "2026-04-02T24:00:00",
            "2026-04-02T00:60:00",
            "2026-04-02T00:00:60",
            "2026-04-02T00:00:00.",
            "2026-04-02",
            "2026-04-02T",
            "2026-04-02T00:00:00+2",
            "2026-04-02T00:00:00 UTC",
            "1775091480150",
            "",
        ] {
            assert_eq!(timestamp(text, 3), Err(Refusal::Malformed), "{text}");
            assert_eq!(timestamp_ltz(text, 3), Err(Refusal::Malformed), "{text}");
        }
        assert_eq!(date("2024-02-29"), Ok(19_782));
        assert_eq!(date("2024-02-29T00:00"), Err(Refusal::Malformed));
        assert_eq!(time("23:59:59.9999"), Ok(86_399_999));
        assert_eq!(time("23:59:59Z"), Err(Refusal::Malformed));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC*", number in "[-+0-9.eE]{0,40}", stamp in "[-+0-9.:TZ ]{0,40}") {
            for text in [&text, &number, &stamp] {
                let _ = (boolean(text), integer(text), double(text), float(text), date(text), time(text));
                let _ = (decimal(text, 38, 18), epoch_micros(text, 9), timestamp(text, 3), timestamp_ltz(text, 3));
            }
        }

        #[test]
        fn days_agree_with_the_calendar_crate(days in -700_000i32..2_900_000) {
            let date_text = jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().days(days));
            if let Ok(civil) = date_text && civil.year() >= 0 {
                prop_assert_eq!(date(&civil.to_string()), Ok(days));
            }
        }
    }
}
