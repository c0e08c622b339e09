//! CAST and TRY_CAST: which there are, and what they do. Flink 2's rules (`LogicalTypeCasts`, `casting/*CastRule`).
//!
//! - Between integers the low bits stay; a float is cut towards zero and saturates as in Java.
//! - To DECIMAL values are rounded HALF_UP; a number that does not fit is NULL, a text that does not fit fails.
//! - A text that is no value of the type fails its row in CAST and is NULL in TRY_CAST. Blanks around integers,
//!   booleans and timestamps are no part of them.
//! - Timestamps are cut to a lower precision; between TIMESTAMP_LTZ and all else the pipeline's time zone decides.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, ListArray, StructArray, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_schema::Field as ArrowField;
use jiff::tz::TimeZone;

use super::calendar::{self, MS_PER_DAY, US_PER_DAY, US_PER_MS};
use super::eval::RowErrors;
use super::types::{DataType, arrow_fields};
use super::vector::{Operand, Scope, make_booleans, make_bytes, make_numbers, make_strings, numbers_array};
use super::{decimal, text};

/// Whether `CAST(from AS to)` exists.
pub fn exists(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    if from == to || *from == T::Null {
        return true;
    }
    match (from, to) {
        (_, T::Null) => false,
        (_, T::String) => true,
        (T::String, T::Bytes | T::Boolean | T::Date | T::Time | T::Timestamp(_) | T::TimestampLtz(_)) => true,
        (T::String | T::Boolean, to) if to.is_numeric() => true,
        (from, T::Boolean) => from.is_integer() || matches!(from, T::Decimal(..)),
        (T::IntervalDayTime | T::IntervalYearMonth, to) => to.is_integer(),
        (T::Date | T::Time, T::Timestamp(_) | T::TimestampLtz(_)) => true,
        (T::Timestamp(_) | T::TimestampLtz(_), T::Date | T::Time | T::Timestamp(_) | T::TimestampLtz(_)) => true,
        (T::Array(from), T::Array(to)) => exists(from, to),
        (T::Map(key, value), T::Map(to_key, to_value)) => exists(key, to_key) && exists(value, to_value),
        (T::Row(from), T::Row(to)) => {
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| exists(&from.data_type, &to.data_type))
        }
        (from, to) => from.is_numeric() && to.is_numeric(),
    }
}

/// Whether `CAST(from AS to)` can fail on a row.
pub fn can_fail(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    match (from, to) {
        (from, to) if from == to => false,
        (T::String, to) => *to != T::String,
        (T::Float | T::Double, T::Decimal(..)) | (T::Date, T::Timestamp(_) | T::TimestampLtz(_)) => true,
        (T::Array(from), T::Array(to)) => can_fail(from, to),
        (T::Map(key, value), T::Map(to_key, to_value)) => can_fail(key, to_key) || can_fail(value, to_value),
        (T::Row(from), T::Row(to)) => from.iter().zip(to).any(|(from, to)| can_fail(&from.data_type, &to.data_type)),
        _ => false,
    }
}

/// Casts the values of `arg`.
pub fn run(arg: &Operand, from: &DataType, to: &DataType, try_cast: bool, scope: &mut Scope<'_>) -> ArrayRef {
    if !try_cast {
        return cast(arg, from, to, scope);
    }
    let mut failed = RowErrors::default();
    cast(arg, from, to, &mut Scope { rows: scope.rows, context: scope.context, errors: &mut failed })
}

fn cast(arg: &Operand, from: &DataType, to: &DataType, scope: &mut Scope<'_>) -> ArrayRef {
    use DataType as T;
    if from == to {
        return arg.clone().into_rows(scope.rows);
    }
    let arrow_type = to.arrow();
    match (from, to) {
        (T::Null, _) => new_null_array(&arrow_type, scope.rows),
        // The same microseconds: more digits change nothing.
        (T::Timestamp(p), T::Timestamp(q)) | (T::TimestampLtz(p), T::TimestampLtz(q)) if p <= q => {
            arg.clone().into_rows(scope.rows)
        }
        (_, T::String) => {
            let zone = &scope.context.time_zone;
            let zone = zone.clone();
            make_strings(scope, |row, out| Ok(append_text(arg.array().as_ref(), arg.index(row), from, &zone, out)))
        }
        (T::String, _) => from_text(arg, to, scope),
        (T::Boolean, _) => {
            let values = arg.booleans();
            to_number(to, scope, |row| Ok(values.get(row).map(|b| Number::Integer(b.into()))))
        }
        (_, T::Boolean) => {
            let number = numbers_of(arg, from);
            make_booleans(scope, |row| {
                Ok(number(row).map(|number| match number {
                    Number::Integer(i) => i != 0,
                    Number::Double(d) => d != 0.0,
                    Number::Float(f) => f != 0.0,
                    Number::Decimal(d, _) => d != 0,
                }))
            })
        }
        (T::Date, T::Timestamp(_) | T::TimestampLtz(_)) => {
            let days = arg.numbers::<Date32Type>();
            let zone = scope.context.time_zone.clone();
            let local = matches!(to, T::TimestampLtz(_));
            make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                let Some(day) = days.get(row) else { return Ok(None) };
                let wall = i64::from(day).checked_mul(US_PER_DAY).ok_or("the date is out of range")?;
                Ok(Some(if local { calendar::to_instant(&zone, wall) } else { wall }))
            })
        }
        // A time of day stands on 1 January 1970.
        (T::Time, T::Timestamp(precision) | T::TimestampLtz(precision)) => {
            let times = arg.numbers::<Time32MillisecondType>();
            let zone = matches!(to, T::TimestampLtz(_)).then(|| scope.context.time_zone.clone());
            let us = |ms: i32| calendar::truncate_us(i64::from(ms) * US_PER_MS, *precision);
            make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                let us = times.get(row).map(us);
                Ok(us.map(|us| zone.as_ref().map_or(us, |zone| calendar::to_instant(zone, us))))
            })
        }
        (T::Timestamp(_) | T::TimestampLtz(_), _) => from_timestamp(arg, from, to, scope),
        (T::Array(from_item), T::Array(to_item)) => cast_array(arg, from_item, to_item, scope),
        (T::Map(key, value), T::Map(to_key, to_value)) => {
            cast_array(arg, &T::entry(key, value), &T::entry(to_key, to_value), scope)
        }
        (T::Row(_), T::Row(_)) => cast_row(arg, from, to, scope),
        (T::Int, T::BigInt) => widen::<Int32Type, Int64Type>(arg, to, i64::from),
        (T::Int, T::Double) => widen::<Int32Type, Float64Type>(arg, to, f64::from),
        (T::BigInt, T::Double) => widen::<Int64Type, Float64Type>(arg, to, |i| i as f64),
        (T::Float, T::Double) => widen::<Float32Type, Float64Type>(arg, to, f64::from),
        _ => {
            let number = numbers_of(arg, from);
            to_number(to, scope, |row| Ok(number(row)))
        }
    }
}

/// The casts between numbers that every query has, without a look at each value's type.
fn widen<T: ArrowPrimitiveType, U: ArrowPrimitiveType>(
    arg: &Operand,
    to: &DataType,
    f: impl Fn(T::Native) -> U::Native,
) -> ArrayRef {
    let numbers = arg.numbers::<T>();
    numbers_array::<U>(numbers.values.iter().map(|value| f(*value)).collect(), numbers.nulls.cloned(), &to.arrow())
}

/// A number on its way from one type to another.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Float(f32),
    Double(f64),
    /// Unscaled value, precision and scale.
    Decimal(i128, decimal::Shape),
}

fn numbers_of<'a>(arg: &'a Operand, from: &DataType) -> Box<dyn Fn(usize) -> Option<Number> + 'a> {
    macro_rules! integers {
        ($T:ty) => {{
            let values = arg.numbers::<$T>();
            Box::new(move |row| values.get(row).map(|i| Number::Integer(i.into())))
        }};
    }
    match from {
        DataType::TinyInt => integers!(Int8Type),
        DataType::SmallInt => integers!(Int16Type),
        DataType::Int => integers!(Int32Type),
        DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => integers!(Int64Type),
        DataType::Float => {
            let values = arg.numbers::<Float32Type>();
            Box::new(move |row| values.get(row).map(Number::Float))
        }
        DataType::Double => {
            let values = arg.numbers::<Float64Type>();
            Box::new(move |row| values.get(row).map(Number::Double))
        }
        DataType::Decimal(precision, scale) => {
            let values = arg.numbers::<Decimal128Type>();
            let shape = (*precision, *scale);
            Box::new(move |row| values.get(row).map(|unscaled| Number::Decimal(unscaled, shape)))
        }
        _ => Box::new(|_| None),
    }
}

impl Number {
    /// As Java's `(long)`.
    fn to_i64(self) -> i64 {
        match self {
            Number::Integer(i) => i,
            Number::Float(f) => f as i64,
            Number::Double(d) => d as i64,
            Number::Decimal(unscaled, (_, scale)) => {
                decimal::to_integral(unscaled, scale, decimal::Direction::Down) as i64
            }
        }
    }

    /// As Java's `(int)`: floats saturate here, integers lose their high bits.
    fn to_i32(self) -> i32 {
        match self {
            Number::Float(f) => f as i32,
            Number::Double(d) => d as i32,
            _ => self.to_i64() as i32,
        }
    }

    fn to_f64(self) -> f64 {
        match self {
            Number::Integer(i) => i as f64,
            Number::Float(f) => f.into(),
            Number::Double(d) => d,
            Number::Decimal(unscaled, shape) => decimal::to_f64(unscaled, shape),
        }
    }

    fn to_f32(self) -> f32 {
        match self {
            Number::Integer(i) => i as f32,
            Number::Float(f) => f,
            _ => self.to_f64() as f32,
        }
    }

    fn to_decimal(self, to: decimal::Shape) -> Result<Option<i128>, String> {
        let float = |value: f64| {
            if !value.is_finite() {
                return Err(format!("cannot cast {value} to DECIMAL"));
            }
            let (digits, exponent) = text::shortest_digits(value);
            let written = format!("{}{digits}e{exponent}", if value < 0.0 { "-" } else { "" });
            Ok(decimal::parse(&written, to).ok())
        };
        match self {
            Number::Integer(i) => Ok(decimal::rescale(i.into(), 0, to)),
            Number::Float(f) => float(f.into()),
            Number::Double(d) => float(d),
            Number::Decimal(unscaled, (_, scale)) => Ok(decimal::rescale(unscaled, scale, to)),
        }
    }
}

fn to_number(
    to: &DataType,
    scope: &mut Scope<'_>,
    number: impl Fn(usize) -> Result<Option<Number>, String>,
) -> ArrayRef {
    let arrow_type = to.arrow();
    macro_rules! make {
        ($T:ty, $convert:expr) => {
            make_numbers::<$T>(scope, &arrow_type, |row| Ok(number(row)?.map($convert)))
        };
    }
    match to {
        DataType::TinyInt => make!(Int8Type, |n| n.to_i32() as i8),
        DataType::SmallInt => make!(Int16Type, |n| n.to_i32() as i16),
        DataType::Int => make!(Int32Type, Number::to_i32),
        DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => make!(Int64Type, Number::to_i64),
        DataType::Float => make!(Float32Type, Number::to_f32),
        DataType::Double => make!(Float64Type, Number::to_f64),
        DataType::Decimal(precision, scale) => {
            let shape = (*precision, *scale);
            make_numbers::<Decimal128Type>(scope, &arrow_type, |row| match number(row)? {
                Some(number) => number.to_decimal(shape),
                None => Ok(None),
            })
        }
        _ => new_null_array(&arrow_type, scope.rows),
    }
}

fn from_text(arg: &Operand, to: &DataType, scope: &mut Scope<'_>) -> ArrayRef {
    let strings = arg.strings();
    let arrow_type = to.arrow();
    let fail = |value: &str| {
        let shown: String = value.chars().take(60).collect();
        let dots = if shown.len() < value.len() { "…" } else { "" };
        format!("cannot cast '{shown}{dots}' to {to}")
    };
    macro_rules! parse {
        ($T:ty, $parse:expr) => {
            make_numbers::<$T>(scope, &arrow_type, |row| match strings.get(row) {
                Some(value) => $parse(value).map(Some).ok_or_else(|| fail(value)),
                None => Ok(None),
            })
        };
    }
    macro_rules! integers {
        ($T:ty) => {
            parse!($T, |value| text::parse_integer(value).and_then(|i| i.try_into().ok()))
        };
    }
    match to {
        DataType::Boolean => make_booleans(scope, |row| match strings.get(row) {
            Some(value) => text::parse_boolean(value).map(Some).ok_or_else(|| fail(value)),
            None => Ok(None),
        }),
        DataType::TinyInt => integers!(Int8Type),
        DataType::SmallInt => integers!(Int16Type),
        DataType::Int => integers!(Int32Type),
        DataType::BigInt => integers!(Int64Type),
        DataType::Float => parse!(Float32Type, text::parse_f32),
        DataType::Double => parse!(Float64Type, text::parse_f64),
        DataType::Decimal(precision, scale) => {
            let shape = (*precision, *scale);
            make_numbers::<Decimal128Type>(scope, &arrow_type, |row| {
                match strings.get(row).map(|v| (v, decimal::parse(v, shape))) {
                    Some((_, Ok(number))) => Ok(Some(number)),
                    // As a number that is too large does, a text gives NULL.
                    Some((_, Err(decimal::ParseError::Overflow))) | None => Ok(None),
                    Some((value, Err(_))) => Err(fail(value)),
                }
            })
        }
        DataType::Date => parse!(Date32Type, |value| text::parse_date(value).and_then(|i| i.try_into().ok())),
        DataType::Time => {
            parse!(Time32MillisecondType, |value| text::parse_time(value).and_then(|i| i.try_into().ok()))
        }
        DataType::Timestamp(precision) => {
            parse!(TimestampMicrosecondType, |value| {
                text::parse_timestamp(value).map(|us| calendar::truncate_us(us, *precision))
            })
        }
        DataType::TimestampLtz(precision) => {
            let zone = scope.context.time_zone.clone();
            parse!(TimestampMicrosecondType, |value| {
                text::parse_timestamp(value)
                    .map(|us| calendar::to_instant(&zone, calendar::truncate_us(us, *precision)))
            })
        }
        DataType::Bytes => make_bytes(scope, |row, out| match strings.get(row) {
            Some(value) => {
                out.extend_from_slice(value.as_bytes());
                Ok(true)
            }
            None => Ok(false),
        }),
        _ => new_null_array(&arrow_type, scope.rows),
    }
}

fn from_timestamp(arg: &Operand, from: &DataType, to: &DataType, scope: &mut Scope<'_>) -> ArrayRef {
    let values = arg.numbers::<TimestampMicrosecondType>();
    let arrow_type = to.arrow();
    let zone = scope.context.time_zone.clone();
    let from_local = matches!(from, DataType::TimestampLtz(_));
    let wall = |us: i64| if from_local { calendar::to_wall(&zone, us) } else { us };
    match to {
        DataType::Date => make_numbers::<Date32Type>(scope, &arrow_type, |row| {
            Ok(values.get(row).and_then(|us| i32::try_from(wall(us).div_euclid(US_PER_DAY)).ok()))
        }),
        DataType::Time => make_numbers::<Time32MillisecondType>(scope, &arrow_type, |row| {
            let ms = |us: i64| wall(us).div_euclid(US_PER_MS).rem_euclid(MS_PER_DAY);
            Ok(values.get(row).and_then(|us| i32::try_from(ms(us)).ok()))
        }),
        DataType::Timestamp(precision) => make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
            Ok(values.get(row).map(|us| calendar::truncate_us(wall(us), *precision)))
        }),
        DataType::TimestampLtz(precision) => make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
            Ok(values.get(row).map(|us| {
                let us = calendar::truncate_us(us, *precision);
                if from_local { us } else { calendar::to_instant(&zone, us) }
            }))
        }),
        _ => new_null_array(&arrow_type, scope.rows),
    }
}

/// Casts item by item; a failed item fails its row.
fn cast_array(arg: &Operand, from: &DataType, to: &DataType, scope: &mut Scope<'_>) -> ArrayRef {
    let field = Arc::new(ArrowField::new("item", to.arrow(), true));
    let missing = new_null_array(&DataType::Array(Box::new(to.clone())).arrow(), scope.rows);
    let rows = arg.clone().into_rows(scope.rows);
    let Some(list) = rows.as_list_opt::<i32>() else { return missing };
    let mut item_errors = RowErrors::default();
    let items = Operand::Rows(Arc::clone(list.values()));
    let mut inner = Scope { rows: list.values().len(), context: scope.context, errors: &mut item_errors };
    let values = cast(&items, from, to, &mut inner);
    let mut failed = vec![false; scope.rows];
    for (item, reason) in item_errors.list {
        let row = list.value_offsets().partition_point(|offset| i64::from(*offset) <= i64::from(item));
        if let Some(row) = row.checked_sub(1)
            && list.is_valid(row)
            && let Some(failed) = failed.get_mut(row)
        {
            *failed = true;
            scope.fail(row, reason);
        }
    }
    let nulls: NullBuffer =
        failed.iter().enumerate().map(|(row, failed)| !failed && list.is_valid(row)).collect::<Vec<bool>>().into();
    match ListArray::try_new(field, list.offsets().clone(), values, Some(nulls)) {
        Ok(array) => Arc::new(array),
        Err(_) => missing,
    }
}

/// Casts field by field; a failed field fails its row.
fn cast_row(arg: &Operand, from: &DataType, to: &DataType, scope: &mut Scope<'_>) -> ArrayRef {
    let missing = new_null_array(&to.arrow(), scope.rows);
    let (DataType::Row(from), DataType::Row(to)) = (from, to) else { return missing };
    let rows = arg.clone().into_rows(scope.rows);
    let Some(row_array) = rows.as_struct_opt() else { return missing };
    let mut columns = Vec::with_capacity(to.len());
    for (column, (from, to)) in row_array.columns().iter().zip(from.iter().zip(to)) {
        let mut errors = RowErrors::default();
        let mut inner = Scope { rows: scope.rows, context: scope.context, errors: &mut errors };
        columns.push(cast(&Operand::Rows(Arc::clone(column)), &from.data_type, &to.data_type, &mut inner));
        // What lies below a NULL row is no value and cannot fail.
        scope.errors.list.extend(errors.list.into_iter().filter(|(row, _)| row_array.is_valid(*row as usize)));
    }
    match StructArray::try_new_with_length(arrow_fields(to), columns, row_array.nulls().cloned(), scope.rows) {
        Ok(array) => Arc::new(array),
        Err(_) => missing,
    }
}

/// Appends the text of a value as `CAST(… AS STRING)` gives it; `false` if it is NULL.
pub fn append_text(array: &dyn Array, index: usize, data_type: &DataType, zone: &TimeZone, out: &mut String) -> bool {
    if *data_type == DataType::Null || index >= array.len() || array.is_null(index) {
        return false;
    }
    fn number<T: ArrowPrimitiveType>(array: &dyn Array, index: usize) -> T::Native {
        array.as_primitive_opt::<T>().map_or_else(Default::default, |array| array.value(index))
    }
    let local = |us: i64| calendar::to_wall(zone, us);
    match data_type {
        DataType::Boolean => {
            let value = array.as_boolean_opt().is_some_and(|array| array.value(index));
            out.push_str(if value { "TRUE" } else { "FALSE" });
        }
        DataType::TinyInt => push_integer(number::<Int8Type>(array, index).into(), out),
        DataType::SmallInt => push_integer(number::<Int16Type>(array, index).into(), out),
        DataType::Int => push_integer(number::<Int32Type>(array, index).into(), out),
        DataType::BigInt => push_integer(number::<Int64Type>(array, index), out),
        DataType::Float => text::format_f32(number::<Float32Type>(array, index), out),
        DataType::Double => text::format_f64(number::<Float64Type>(array, index), out),
        DataType::Decimal(_, scale) => decimal::format(number::<Decimal128Type>(array, index), *scale, out),
        DataType::String => out.push_str(array.as_string_opt::<i32>().map_or("", |array| array.value(index))),
        DataType::Bytes => {
            let bytes = array.as_binary_opt::<i32>().map_or(&[][..], |array| array.value(index));
            out.push_str(&String::from_utf8_lossy(bytes));
        }
        DataType::Date => text::format_date(number::<Date32Type>(array, index).into(), out),
        DataType::Time => text::format_time(number::<Time32MillisecondType>(array, index).into(), out),
        DataType::Timestamp(precision) => {
            text::format_timestamp(number::<TimestampMicrosecondType>(array, index), *precision, out);
        }
        DataType::TimestampLtz(precision) => {
            text::format_timestamp(local(number::<TimestampMicrosecondType>(array, index)), *precision, out);
        }
        DataType::IntervalDayTime => text::format_day_time(number::<Int64Type>(array, index), out),
        DataType::IntervalYearMonth => text::format_year_month(number::<Int64Type>(array, index), out),
        DataType::Array(item) => {
            let Some(list) = array.as_list_opt::<i32>() else { return false };
            let values = list.value(index);
            out.push('[');
            for i in 0..values.len() {
                append_item(values.as_ref(), i, i, item, zone, out);
            }
            out.push(']');
        }
        DataType::Row(fields) => {
            let Some(row) = array.as_struct_opt() else { return false };
            out.push('(');
            for (i, (column, field)) in row.columns().iter().zip(fields).enumerate() {
                append_item(column.as_ref(), index, i, &field.data_type, zone, out);
            }
            out.push(')');
        }
        DataType::Map(key, value) => {
            let Some(list) = array.as_list_opt::<i32>() else { return false };
            let entries = list.value(index);
            let Some([keys, values]) = entries.as_struct_opt().map(|entries| entries.columns()) else { return false };
            out.push('{');
            for i in 0..entries.len() {
                append_item(keys.as_ref(), i, i, key, zone, out);
                out.push('=');
                append_item(values.as_ref(), i, 0, value, zone, out);
            }
            out.push('}');
        }
        DataType::Null => return false,
    }
    true
}

fn append_item(array: &dyn Array, index: usize, position: usize, item: &DataType, zone: &TimeZone, out: &mut String) {
    if position > 0 {
        out.push_str(", ");
    }
    if !append_text(array, index, item, zone, out) {
        out.push_str("NULL");
    }
}

fn push_integer(value: i64, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// Appends bytes as hexadecimal digits, lower case.
pub fn push_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            out.extend(char::from_digit(nibble.into(), 16));
        }
    }
}
