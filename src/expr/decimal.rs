//! DECIMAL arithmetic over unscaled `i128` values, with 256-bit intermediate products.
//!
//! Types and rounding are Flink's (`LogicalTypeMerging`, `DecimalDataUtils`): a result that does not fit its precision
//! is NULL (`None` here), rounding is HALF_UP. One difference: Flink rounds a quotient to 38 significant digits before
//! it rounds to the result's scale; here it is rounded once.

use arrow_buffer::i256;

use super::types::DataType;

/// Largest precision of a DECIMAL.
pub const PRECISION_MAX: u8 = 38;

/// Precision and scale of a DECIMAL type.
pub type Shape = (u8, u8);

/// Flink's cut of a result type that exceeds 38 digits: integral digits are kept, the scale shrinks to 6 at least.
fn adjusted(precision: i32, scale: i32) -> Shape {
    let max = i32::from(PRECISION_MAX);
    let (precision, scale) = if precision <= max {
        (precision, scale)
    } else {
        let digits = precision - scale;
        (max, (max - digits).max(scale.min(6)))
    };
    (u8::try_from(precision.clamp(1, max)).unwrap_or(PRECISION_MAX), u8::try_from(scale.clamp(0, max)).unwrap_or(0))
}

fn wide((precision, scale): Shape) -> (i32, i32) {
    (i32::from(precision), i32::from(scale))
}

/// Type of `+` and `-`.
pub fn sum_shape(left: Shape, right: Shape) -> Shape {
    let ((p1, s1), (p2, s2)) = (wide(left), wide(right));
    let scale = s1.max(s2);
    adjusted((p1 - s1).max(p2 - s2) + scale + 1, scale)
}

/// Type of `*`.
pub fn product_shape(left: Shape, right: Shape) -> Shape {
    let ((p1, s1), (p2, s2)) = (wide(left), wide(right));
    adjusted(p1 + p2 + 1, s1 + s2)
}

/// Type of `/`.
pub fn quotient_shape(left: Shape, right: Shape) -> Shape {
    let ((p1, s1), (p2, s2)) = (wide(left), wide(right));
    let scale = (s1 + p2 + 1).max(6);
    adjusted(p1 - s1 + s2 + scale, scale)
}

/// Type of `%`.
pub fn remainder_shape(left: Shape, right: Shape) -> Shape {
    let ((p1, s1), (p2, s2)) = (wide(left), wide(right));
    let scale = s1.max(s2);
    adjusted((p1 - s1).min(p2 - s2) + scale, scale)
}

/// The smallest type that holds all values of both.
pub fn common_shape(left: Shape, right: Shape) -> Shape {
    let ((p1, s1), (p2, s2)) = (wide(left), wide(right));
    let digits = (p1 - s1).max(p2 - s2);
    let scale = s1.max(s2).min(38 - digits);
    adjusted(digits + scale, scale)
}

/// Type of `ROUND(x, places)`.
pub fn round_shape((precision, scale): Shape, places: i32) -> Shape {
    let (p, s) = wide((precision, scale));
    if places >= s {
        (precision, scale)
    } else if places < 0 {
        adjusted((1 + p - s).min(38), 0)
    } else {
        adjusted((1 + p - s + places).min(38), places)
    }
}

/// The DECIMAL that holds an integer type.
pub fn shape_of(data_type: &DataType) -> Option<Shape> {
    match data_type {
        DataType::TinyInt => Some((3, 0)),
        DataType::SmallInt => Some((5, 0)),
        DataType::Int => Some((10, 0)),
        DataType::BigInt => Some((19, 0)),
        DataType::Decimal(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

/// 10 to the power of `exponent`, up to 10^38.
pub fn pow10(exponent: u32) -> Option<i128> {
    10_i128.checked_pow(exponent)
}

fn pow10_wide(exponent: u32) -> Option<i256> {
    if exponent > 76 { None } else { Some(i256::from_i128(10).wrapping_pow(exponent)) }
}

/// The value, if it has at most `precision` digits.
pub fn fit(value: i128, precision: u8) -> Option<i128> {
    let limit = pow10(u32::from(precision))?;
    (value.unsigned_abs() < limit.unsigned_abs()).then_some(value)
}

fn fit_wide(value: i256, precision: u8) -> Option<i128> {
    fit(value.to_i128()?, precision)
}

/// `value / divisor` rounded HALF_UP (away from zero on ties).
fn divide_half_up(value: i256, divisor: i256) -> Option<i256> {
    let (quotient, remainder) = (value.checked_div(divisor)?, value.checked_rem(divisor)?);
    let twice = remainder.checked_abs()?.checked_mul(i256::from_i128(2))?;
    if twice >= divisor.checked_abs()? {
        let away = if value.is_negative() == divisor.is_negative() { i256::ONE } else { i256::MINUS_ONE };
        quotient.checked_add(away)
    } else {
        Some(quotient)
    }
}

/// The same number with another scale, rounded HALF_UP; `None` if it does not fit 256 bits.
fn rescale_wide(value: i256, from: u8, to: u8) -> Option<i256> {
    if to >= from {
        value.checked_mul(pow10_wide(u32::from(to - from))?)
    } else {
        divide_half_up(value, pow10_wide(u32::from(from - to))?)
    }
}

/// Casts an unscaled value between scales, rounding HALF_UP; `None` if it does not fit `to`.
pub fn rescale(value: i128, from_scale: u8, to: Shape) -> Option<i128> {
    let (precision, scale) = to;
    if from_scale == scale {
        return fit(value, precision);
    }
    if scale > from_scale {
        return fit(value.checked_mul(pow10(u32::from(scale - from_scale))?)?, precision);
    }
    let divisor = pow10(u32::from(from_scale - scale))?;
    let (quotient, remainder) = (value / divisor, value % divisor);
    let away = if remainder.unsigned_abs() * 2 >= divisor.unsigned_abs() { value.signum() } else { 0 };
    fit(quotient + away, precision)
}

/// `left + right`, or `left - right` where `subtract`.
pub fn add(left: i128, left_scale: u8, right: i128, right_scale: u8, to: Shape, subtract: bool) -> Option<i128> {
    if left_scale == right_scale {
        let sum = if subtract { left.checked_sub(right) } else { left.checked_add(right) };
        if let Some(sum) = sum {
            return rescale(sum, left_scale, to);
        }
    }
    let scale = left_scale.max(right_scale);
    let left = rescale_wide(i256::from_i128(left), left_scale, scale)?;
    let right = rescale_wide(i256::from_i128(right), right_scale, scale)?;
    let sum = if subtract { left.checked_sub(right)? } else { left.checked_add(right)? };
    fit_wide(rescale_wide(sum, scale, to.1)?, to.0)
}

/// `left * right`.
pub fn multiply(left: i128, left_scale: u8, right: i128, right_scale: u8, to: Shape) -> Option<i128> {
    let scale = left_scale + right_scale;
    if let Some(product) = left.checked_mul(right)
        && scale == to.1
    {
        return fit(product, to.0);
    }
    let product = i256::from_i128(left).checked_mul(i256::from_i128(right))?;
    fit_wide(rescale_wide(product, scale, to.1)?, to.0)
}

/// `left / right`; `None` also for a zero divisor, which the caller has to tell apart.
pub fn divide(left: i128, left_scale: u8, right: i128, right_scale: u8, to: Shape) -> Option<i128> {
    let exponent = i32::from(to.1) - i32::from(left_scale) + i32::from(right_scale);
    let power = pow10_wide(exponent.unsigned_abs())?;
    let (mut value, mut divisor) = (i256::from_i128(left), i256::from_i128(right));
    if exponent >= 0 {
        // A product beyond 256 bits divided by at most 10^38 has more than 38 digits.
        value = value.checked_mul(power)?;
    } else {
        divisor = divisor.checked_mul(power)?;
    }
    fit_wide(divide_half_up(value, divisor)?, to.0)
}

/// `left % right`, with the sign of `left`; `None` also for a zero divisor.
pub fn remainder(left: i128, left_scale: u8, right: i128, right_scale: u8, to: Shape) -> Option<i128> {
    let scale = left_scale.max(right_scale);
    let left = rescale_wide(i256::from_i128(left), left_scale, scale)?;
    let right = rescale_wide(i256::from_i128(right), right_scale, scale)?;
    fit_wide(rescale_wide(left.checked_rem(right)?, scale, to.1)?, to.0)
}

/// Compares two decimals of any scales.
pub fn compare(left: i128, left_scale: u8, right: i128, right_scale: u8) -> std::cmp::Ordering {
    if left_scale == right_scale {
        return left.cmp(&right);
    }
    let scale = left_scale.max(right_scale);
    let left = rescale_wide(i256::from_i128(left), left_scale, scale);
    let right = rescale_wide(i256::from_i128(right), right_scale, scale);
    left.cmp(&right)
}

/// Which way [`to_integral`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Down,
    Floor,
    Ceil,
}

/// The whole number next to an unscaled value.
pub fn to_integral(value: i128, scale: u8, direction: Direction) -> i128 {
    let Some(divisor) = pow10(u32::from(scale)) else { return 0 };
    match direction {
        Direction::Down => value / divisor,
        Direction::Floor => value.div_euclid(divisor),
        Direction::Ceil => {
            let floor = value.div_euclid(divisor);
            if value.rem_euclid(divisor) == 0 { floor } else { floor + 1 }
        }
    }
}

/// The nearest double, as Flink computes it: by one division up to 18 digits, correctly rounded above.
pub fn to_f64(value: i128, (precision, scale): Shape) -> f64 {
    if precision <= 18 {
        value as f64 / 10_f64.powi(i32::from(scale))
    } else {
        let mut text = String::new();
        format(value, scale, &mut text);
        text.parse().unwrap_or(f64::NAN)
    }
}

/// Appends the number with `scale` digits behind the point.
pub fn format(value: i128, scale: u8, out: &mut String) {
    let digits = value.unsigned_abs().to_string();
    if value < 0 {
        out.push('-');
    }
    let scale = usize::from(scale);
    if scale == 0 {
        out.push_str(&digits);
        return;
    }
    let whole = digits.len().saturating_sub(scale);
    let (integral, fraction) = digits.split_at(whole);
    out.push_str(if integral.is_empty() { "0" } else { integral });
    out.push('.');
    out.extend(std::iter::repeat_n('0', scale - fraction.len()));
    out.push_str(fraction);
}

/// Why a text is no value of a DECIMAL type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    Malformed,
    Overflow,
}

/// Parses `[+-]digits[.digits][e[+-]digits]`, blanks around it allowed, rounding HALF_UP to the scale.
pub fn parse(text: &str, to: Shape) -> Result<i128, ParseError> {
    let text = text.trim_matches([' ', '\n', '\t']);
    let (negative, rest) = match text.as_bytes() {
        [b'-', ..] => (true, text.get(1..)),
        [b'+', ..] => (false, text.get(1..)),
        _ => (false, Some(text)),
    };
    let rest = rest.unwrap_or_default();
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => {
            let exponent = rest.get(at + 1..).unwrap_or_default();
            let sign = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if sign.is_empty() || !sign.bytes().all(|b| b.is_ascii_digit()) {
                return Err(ParseError::Malformed);
            }
            // An exponent beyond 32 bits overflows, or vanishes, like a large one.
            let size = sign.parse::<i32>().unwrap_or(i32::MAX / 2).min(i32::MAX / 2);
            (rest.get(..at).unwrap_or_default(), if exponent.starts_with('-') { -size } else { size })
        }
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return Err(ParseError::Malformed);
    }
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).skip_while(|b| *b == b'0').map(|b| b - b'0').collect();
    if digits.is_empty() {
        return Ok(0);
    }
    // The value is 0.d1d2d3… × 10^point; keep point + scale digits.
    let skipped = whole.len() + fraction.len() - digits.len();
    let point =
        i64::try_from(whole.len()).unwrap_or(i64::MAX) - i64::try_from(skipped).unwrap_or(0) + i64::from(exponent);
    let kept = point + i64::from(to.1);
    if kept < 0 {
        return Ok(0);
    }
    if kept > 39 {
        return Err(ParseError::Overflow);
    }
    let kept = usize::try_from(kept).unwrap_or(0);
    let mut value: i128 = 0;
    for i in 0..kept {
        let digit = digits.get(i).copied().unwrap_or(0);
        value = value.checked_mul(10).and_then(|v| v.checked_add(digit.into())).ok_or(ParseError::Overflow)?;
    }
    if digits.get(kept).is_some_and(|digit| *digit >= 5) {
        value += 1;
    }
    fit(if negative { -value } else { value }, to.0).ok_or(ParseError::Overflow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shapes_are_those_of_flink() {
        assert_eq!(quotient_shape((10, 2), (10, 0)), (21, 13));
        assert_eq!(product_shape((10, 2), (10, 0)), (21, 2));
        assert_eq!(sum_shape((10, 2), (4, 3)), (12, 3));
        assert_eq!(sum_shape((38, 8), (32, 8)), (38, 7));
        assert_eq!(round_shape((10, 2), 1), (10, 1));
        assert_eq!(common_shape((10, 2), (19, 0)), (21, 2));
    }

    #[test]
    fn text_both_ways() {
        for (text, shape, value) in [
            ("12.5", (6, 2), Ok(1250)),
            (" -0.005 ", (6, 2), Ok(-1)),
            ("1e3", (6, 2), Ok(100_000)),
            ("12.345e1", (6, 1), Ok(1235)),
            (".5", (1, 0), Ok(1)),
            ("99.5", (2, 0), Err(ParseError::Overflow)),
            ("", (6, 2), Err(ParseError::Malformed)),
            (".", (6, 2), Err(ParseError::Malformed)),
            ("1e", (6, 2), Err(ParseError::Malformed)),
            ("1e-999999999999", (6, 2), Ok(0)),
            ("1e999999999999", (6, 2), Err(ParseError::Overflow)),
        ] {
            assert_eq!(parse(text, shape), value, "{text}");
        }
        let mut out = String::new();
        format(-5, 3, &mut out);
        assert_eq!(out, "-0.005");
    }

    #[test]
    fn large_operands_need_no_luck() {
        let max = pow10(38).map_or(0, |p| p - 1);
        assert_eq!(multiply(max, 38, max, 38, (38, 37)), pow10(37));
        assert_eq!(add(max, 0, max, 0, (38, 0), false), None);
        assert_eq!(divide(max, 0, 1, 38, (38, 6)), None);
        assert_eq!(divide(1, 0, 3, 0, (38, 38)), Some(33_333_333_333_333_333_333_333_333_333_333_333_333));
        assert_eq!(remainder(-7, 0, 30, 1, (2, 1)), Some(-10));
        assert_eq!(to_integral(-15, 1, Direction::Floor), -2);
        assert_eq!(to_integral(-15, 1, Direction::Ceil), -1);
        assert_eq!(to_integral(-15, 1, Direction::Down), -1);
    }

    proptest! {
        #[test]
        fn formatted_numbers_parse_back(value in any::<i128>(), scale in 0_u8..=38) {
            let value = value % 10_i128.pow(38);
            let mut text = String::new();
            format(value, scale, &mut text);
            prop_assert_eq!(parse(&text, (38, scale)), Ok(value));
        }

        #[test]
        fn arithmetic_is_total(
            a in any::<i128>(), b in any::<i128>(), s in 0_u8..=38, t in 0_u8..=38, p in 1_u8..=38, u in 0_u8..=38,
        ) {
            let (a, b) = (a % 10_i128.pow(38), b % 10_i128.pow(38));
            let to = (p, u.min(p));
            for result in [
                add(a, s, b, t, to, false), add(a, s, b, t, to, true), multiply(a, s, b, t, to),
                divide(a, s, b, t, to), remainder(a, s, b, t, to), rescale(a, s, to),
            ].into_iter().flatten() {
                prop_assert!(result.unsigned_abs() < 10_u128.pow(p.into()));
            }
            prop_assert_eq!(compare(a, s, b, t), compare(b, t, a, s).reverse());
        }

        #[test]
        fn any_text_parses_or_not(text in "[ 0-9.eE+-]{0,60}") {
            let _ = parse(&text, (38, 10));
        }
    }
}
