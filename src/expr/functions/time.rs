//! Functions of dates and times. Those of TIMESTAMP_LTZ see the wall clock of the pipeline's time zone.

use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, Time32MillisecondType, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, new_null_array};
use jiff::tz::{Offset, TimeZone};

use super::{
    Function, Refusal, Resolved, bigint, call, exactly, fallible_call, literal_integer, literal_text, string, with_form,
};
use crate::expr::build::{self, Expr, TimeUnit, TypeError};
use crate::expr::calendar::{self, MS_PER_DAY, US_PER_DAY, US_PER_MS, US_PER_SECOND};
use crate::expr::decimal;
use crate::expr::pattern_format::{Format, Style};
use crate::expr::text;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, Scope, Strings, make_numbers, make_strings};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "YEAR", parameters: "DATE or TIMESTAMP", resolve: |args| field(TimeUnit::Year, args) },
    Function { name: "QUARTER", parameters: "DATE or TIMESTAMP", resolve: |args| field(TimeUnit::Quarter, args) },
    Function { name: "MONTH", parameters: "DATE or TIMESTAMP", resolve: |args| field(TimeUnit::Month, args) },
    Function { name: "WEEK", parameters: "DATE or TIMESTAMP", resolve: |args| field(TimeUnit::Week, args) },
    Function { name: "DAYOFYEAR", parameters: "DATE or TIMESTAMP", resolve: |args| field(TimeUnit::DayOfYear, args) },
    Function { name: "DAYOFMONTH", parameters: "DATE or TIMESTAMP", resolve: |args| field(TimeUnit::Day, args) },
    Function { name: "DAYOFWEEK", parameters: "DATE or TIMESTAMP", resolve: |args| field(TimeUnit::DayOfWeek, args) },
    Function { name: "HOUR", parameters: "TIME, TIMESTAMP or INTERVAL", resolve: |args| field(TimeUnit::Hour, args) },
    Function {
        name: "MINUTE",
        parameters: "TIME, TIMESTAMP or INTERVAL",
        resolve: |args| field(TimeUnit::Minute, args),
    },
    Function {
        name: "SECOND",
        parameters: "TIME, TIMESTAMP or INTERVAL",
        resolve: |args| field(TimeUnit::Second, args),
    },
    Function { name: "DATE_FORMAT", parameters: "TIMESTAMP, DATE or STRING, STRING", resolve: date_format },
    Function { name: "TO_TIMESTAMP", parameters: "STRING [, STRING]", resolve: to_timestamp },
    Function {
        name: "TO_TIMESTAMP_LTZ",
        parameters: "number [, 0 or 3] or STRING [, STRING [, STRING]]",
        resolve: to_timestamp_ltz,
    },
    Function { name: "TO_DATE", parameters: "STRING [, STRING]", resolve: to_date },
    Function { name: "FROM_UNIXTIME", parameters: "BIGINT [, STRING]", resolve: from_unix_time },
    Function { name: "UNIX_TIMESTAMP", parameters: "STRING [, STRING]", resolve: unix_timestamp },
    Function { name: "CONVERT_TZ", parameters: "STRING, STRING, STRING", resolve: convert_tz },
];

const SECONDS_FORMAT: &str = "yyyy-MM-dd HH:mm:ss";
/// The years 0000 to 9999, outside of which Flink's conversions give NULL.
const MS_RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200_000..=253_402_300_799_999;

fn field(unit: TimeUnit, args: Vec<Expr>) -> Resolved {
    let [e] = exactly(args)?;
    extract(unit, e)
}

fn is_calendar(unit: TimeUnit) -> bool {
    !matches!(
        unit,
        TimeUnit::Nanosecond
            | TimeUnit::Microsecond
            | TimeUnit::Millisecond
            | TimeUnit::Second
            | TimeUnit::Minute
            | TimeUnit::Hour
    )
}

/// Times as wall-clock µs: TIMESTAMP as it is, TIMESTAMP_LTZ in the pipeline's time zone.
fn wall_of(data_type: &DataType, scope: &Scope<'_>) -> impl Fn(i64) -> i64 + use<> {
    let zone = matches!(data_type, DataType::TimestampLtz(_)).then(|| scope.context.time_zone.clone());
    move |us| zone.as_ref().map_or(us, |zone| calendar::to_wall(zone, us))
}

/// `EXTRACT(unit FROM e)`: BIGINT.
pub fn extract(unit: TimeUnit, e: Expr) -> Resolved {
    let data_type = e.data_type.clone();
    let form = format!("EXTRACT({} FROM {{}})", unit.name());
    let clock = matches!(unit, TimeUnit::Hour | TimeUnit::Minute | TimeUnit::Second | TimeUnit::Millisecond);
    let kernel = move |args: &[Operand], scope: &mut Scope<'_>| -> ArrayRef {
        let arrow_type = DataType::BigInt.arrow();
        let Some(arg) = args.first() else { return new_null_array(&arrow_type, scope.rows) };
        match &data_type {
            DataType::Date => {
                let days = arg.numbers::<Date32Type>();
                make_numbers::<Int64Type>(scope, &arrow_type, |row| {
                    let day = |day: i32| if is_calendar(unit) { calendar::extract_day(unit, day.into()) } else { 0 };
                    Ok(days.get(row).map(day))
                })
            }
            DataType::Time => {
                let times = arg.numbers::<Time32MillisecondType>();
                make_numbers::<Int64Type>(scope, &arrow_type, |row| {
                    Ok(times.get(row).map(|ms| calendar::extract_us(unit, i64::from(ms) * US_PER_MS)))
                })
            }
            DataType::IntervalDayTime | DataType::IntervalYearMonth => {
                let lengths = arg.numbers::<Int64Type>();
                let extract = match data_type {
                    DataType::IntervalDayTime => calendar::extract_day_time,
                    _ => calendar::extract_year_month,
                };
                make_numbers::<Int64Type>(scope, &arrow_type, |row| {
                    Ok(lengths.get(row).and_then(|length| extract(unit, length)))
                })
            }
            _ => {
                let times = arg.numbers::<TimestampMicrosecondType>();
                let wall = wall_of(&data_type, scope);
                make_numbers::<Int64Type>(scope, &arrow_type, |row| {
                    Ok(times.get(row).map(|us| calendar::extract_us(unit, wall(us))))
                })
            }
        }
    };
    match &e.data_type {
        DataType::Null => Ok(build::implicit_cast(e, &DataType::BigInt)),
        DataType::Date if unit == TimeUnit::Nanosecond => Err(Refusal::Arguments),
        DataType::IntervalDayTime if calendar::extract_day_time(unit, 0).is_none() => Err(Refusal::Arguments),
        DataType::IntervalYearMonth if calendar::extract_year_month(unit, 0).is_none() => Err(Refusal::Arguments),
        DataType::Date
        | DataType::Timestamp(_)
        | DataType::TimestampLtz(_)
        | DataType::IntervalDayTime
        | DataType::IntervalYearMonth => Ok(with_form(call("EXTRACT", vec![e], DataType::BigInt, kernel), form)),
        DataType::Time if clock => Ok(with_form(call("EXTRACT", vec![e], DataType::BigInt, kernel), form)),
        _ => Err(Refusal::Arguments),
    }
}

/// `FLOOR(e TO unit)` and `CEIL(e TO unit)`, of the type of `e`.
pub fn round_to(e: Expr, unit: TimeUnit, ceil: bool) -> Resolved {
    let data_type = e.data_type.clone();
    let sized = calendar::unit_ms(unit).is_some() || calendar::unit_months(unit).is_some();
    let taken = match &data_type {
        DataType::Date => sized,
        DataType::Time => calendar::unit_ms(unit).is_some_and(|ms| ms < MS_PER_DAY),
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => sized,
        _ => false,
    };
    if !taken {
        return Err(Refusal::Arguments);
    }
    let result = data_type.clone();
    let kernel = move |args: &[Operand], scope: &mut Scope<'_>| -> ArrayRef {
        let arrow_type = data_type.arrow();
        let Some(arg) = args.first() else { return new_null_array(&arrow_type, scope.rows) };
        match &data_type {
            DataType::Date => {
                let days = arg.numbers::<Date32Type>();
                make_numbers::<Date32Type>(scope, &arrow_type, |row| {
                    // FLOOR and CEIL of a date to its own day, or to less, are the date.
                    let round = |day: i32| {
                        let day = i64::from(day);
                        if unit == TimeUnit::Day || !is_calendar(unit) {
                            day
                        } else {
                            calendar::round_day(unit, day, ceil)
                        }
                    };
                    Ok(days.get(row).and_then(|day| i32::try_from(round(day)).ok()))
                })
            }
            DataType::Time => {
                let times = arg.numbers::<Time32MillisecondType>();
                make_numbers::<Time32MillisecondType>(scope, &arrow_type, |row| {
                    let round = |ms: i32| calendar::round_us(unit, i64::from(ms) * US_PER_MS, ceil) / US_PER_MS;
                    Ok(times.get(row).and_then(|ms| i32::try_from(round(ms) % MS_PER_DAY).ok()))
                })
            }
            _ => {
                let times = arg.numbers::<TimestampMicrosecondType>();
                let zone = matches!(data_type, DataType::TimestampLtz(_)).then(|| scope.context.time_zone.clone());
                make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                    // As in Flink the offset is that of the time itself, also where the rounded one has another.
                    Ok(times.get(row).map(|us| {
                        let offset = zone.as_ref().map_or(0, |zone| calendar::offset_us(zone, us));
                        calendar::round_us(unit, us.saturating_add(offset), ceil).saturating_sub(offset)
                    }))
                })
            }
        }
    };
    let name = if ceil { "CEIL" } else { "FLOOR" };
    Ok(with_form(call(name, vec![e], result, kernel), format!("{name}({{}} TO {})", unit.name())))
}

/// `TIMESTAMPDIFF(unit, a, b)`: whole units from `a` to `b`, INT.
pub fn difference(unit: TimeUnit, a: Expr, b: Expr) -> Resolved {
    // A time of day stands on 1 January 1970.
    let typed = |e: Expr| match e.data_type {
        DataType::Null | DataType::Time => build::implicit_cast(e, &DataType::Timestamp(3)),
        _ => e,
    };
    let (a, b) = (typed(a), typed(b));
    let local = |e: &Expr| matches!(e.data_type, DataType::TimestampLtz(_));
    let point = |e: &Expr| local(e) || matches!(e.data_type, DataType::Date | DataType::Timestamp(_));
    if !point(&a) || !point(&b) || local(&a) != local(&b) {
        return Err(Refusal::Arguments);
    }
    let length = match (unit, calendar::unit_ms(unit), calendar::unit_months(unit)) {
        (TimeUnit::Microsecond, _, _) => Length::Microsecond,
        (_, Some(ms), _) => Length::Ms(ms),
        (_, _, Some(months)) => Length::Months(months),
        _ => return Err(Refusal::Arguments),
    };
    let made = call("TIMESTAMPDIFF", vec![a, b], DataType::Int, move |args, scope| {
        let arrow_type = DataType::Int.arrow();
        let [a, b] = args else { return new_null_array(&arrow_type, scope.rows) };
        let (a, b) = (ms_of(a), ms_of(b));
        make_numbers::<Int32Type>(scope, &arrow_type, |row| {
            let Some((a, b)) = a(row).zip(b(row)) else { return Ok(None) };
            let difference = match length {
                Length::Microsecond => b.wrapping_sub(a).wrapping_mul(1000),
                Length::Ms(ms) => b.wrapping_sub(a) / ms,
                Length::Months(months) => calendar::months_between(b, a) / months,
            };
            // Flink casts a BIGINT to INT here: the low bits stay.
            Ok(Some(difference as i32))
        })
    });
    Ok(with_form(made, format!("TIMESTAMPDIFF({}, {{}}, {{}})", unit.name())))
}

#[derive(Clone, Copy)]
enum Length {
    Microsecond,
    Ms(i64),
    Months(i64),
}

/// Points in time as ms.
fn ms_of(arg: &Operand) -> Box<dyn Fn(usize) -> Option<i64> + '_> {
    use arrow_array::cast::AsArray;
    if arg.array().as_primitive_opt::<Date32Type>().is_some() {
        let days = arg.numbers::<Date32Type>();
        Box::new(move |row| days.get(row).map(|day| i64::from(day) * MS_PER_DAY))
    } else {
        let times = arg.numbers::<TimestampMicrosecondType>();
        Box::new(move |row| times.get(row).map(|us| us.div_euclid(US_PER_MS)))
    }
}

/// A format that is a literal, read once, or one that each row brings along.
enum FormatArg {
    Fixed(Box<Format>),
    PerRow(Style),
}

impl FormatArg {
    fn of(expr: &Expr, style: Style) -> Result<FormatArg, Refusal> {
        match literal_text(expr) {
            None => Ok(FormatArg::PerRow(style)),
            Some(pattern) => match Format::parse(pattern, style) {
                Ok(format) => Ok(FormatArg::Fixed(Box::new(format))),
                Err(message) => Err(Refusal::Because(TypeError {
                    message,
                    help: Some("write for example 'yyyy-MM-dd HH:mm:ss.SSS'".to_owned()),
                })),
            },
        }
    }

    fn fallible(&self) -> bool {
        matches!(self, FormatArg::PerRow(_))
    }

    /// The format of a row: `None` where it is NULL.
    fn get<'a>(
        &'a self,
        patterns: Option<Strings<'_>>,
        row: usize,
        last: &'a mut Option<(String, Format)>,
    ) -> Result<Option<&'a Format>, String> {
        let style = match self {
            FormatArg::Fixed(format) => return Ok(Some(format)),
            FormatArg::PerRow(style) => *style,
        };
        let Some(pattern) = patterns.and_then(|patterns| patterns.get(row)) else { return Ok(None) };
        if last.as_ref().is_none_or(|(known, _)| known != pattern) {
            *last = Some((pattern.to_owned(), Format::parse(pattern, style)?));
        }
        Ok(last.as_ref().map(|(_, format)| format))
    }
}

/// Shows a call without the format that was left out.
fn with_optional_format(expr: Expr, name: &str, explicit: bool) -> Expr {
    if explicit { expr } else { with_form(expr, format!("{name}({{}})")) }
}

/// The optional format argument.
fn format_or(arg: Option<Expr>, default: &str, style: Style) -> Result<(Expr, FormatArg), Refusal> {
    let expr = match arg {
        Some(expr) => string(expr)?,
        None => build::string_literal(default),
    };
    let format = FormatArg::of(&expr, style)?;
    Ok((expr, format))
}

/// A call whose kernel can fail only if the format comes with the row.
fn formatting_call(
    name: &'static str,
    args: Vec<Expr>,
    data_type: DataType,
    fallible: bool,
    kernel: impl Fn(&[Operand], &mut Scope<'_>) -> ArrayRef + Send + Sync + 'static,
) -> Expr {
    if fallible { fallible_call(name, args, data_type, kernel) } else { call(name, args, data_type, kernel) }
}

fn date_format(args: Vec<Expr>) -> Resolved {
    let [value, pattern] = exactly(args)?;
    let data_type = value.data_type.clone();
    if data_type == DataType::Date {
        return date_format(vec![build::cast(value, &DataType::Timestamp(0), false)?, pattern]);
    }
    let from_string = matches!(data_type, DataType::String | DataType::Null);
    let value = if from_string { string(value)? } else { value };
    if !from_string && !data_type.is_timestamp() {
        return Err(Refusal::Arguments);
    }
    let style = if from_string { Style::Lenient } else { Style::Strict };
    let pattern = string(pattern)?;
    let format = FormatArg::of(&pattern, style)?;
    let input = Format::parse(SECONDS_FORMAT, Style::Lenient).map_err(|_| Refusal::Arguments)?;
    let fallible = format.fallible();
    Ok(formatting_call("DATE_FORMAT", vec![value, pattern], DataType::String, fallible, move |args, scope| {
        let [value, patterns] = args else { return new_null_array(&DataType::String.arrow(), scope.rows) };
        let (times, texts) = (value.numbers::<TimestampMicrosecondType>(), value.strings());
        let wall = wall_of(&data_type, scope);
        let patterns = Some(patterns.strings());
        let mut last = None;
        make_strings(scope, |row, out| {
            let time =
                if from_string { texts.get(row).and_then(|text| input.read(text)) } else { times.get(row).map(&wall) };
            let Some(time) = time else { return Ok(false) };
            let Some(format) = format.get(patterns, row, &mut last)? else { return Ok(false) };
            format.format(time, out);
            Ok(true)
        })
    }))
}

/// Reads a text by a format, or else as a plain timestamp, to the millisecond.
fn read_timestamp(format: &Format, value: &str) -> Option<i64> {
    let us = format.read(value).or_else(|| text::parse_timestamp(value.trim()))?;
    Some(calendar::truncate_us(us, 3))
}

/// TIMESTAMP(3); NULL for what cannot be read.
fn to_timestamp(args: Vec<Expr>) -> Resolved {
    read_text("TO_TIMESTAMP", args, DataType::Timestamp(3), |_, us| Some(us))
}

fn read_text(
    name: &'static str,
    args: Vec<Expr>,
    data_type: DataType,
    finish: fn(&TimeZone, i64) -> Option<i64>,
) -> Resolved {
    let mut args = args.into_iter();
    let value = string(args.next().ok_or(Refusal::Arguments)?)?;
    let pattern = args.next();
    let zone = args.next().map(|zone| ZoneArg::of(&zone).map(|known| (zone, known))).transpose()?;
    if args.next().is_some() || zone.is_some() && name != "TO_TIMESTAMP_LTZ" {
        return Err(Refusal::Arguments);
    }
    let explicit = pattern.is_some();
    let (pattern, format) = format_or(pattern, SECONDS_FORMAT, Style::Strict)?;
    let fallible = format.fallible();
    let mut list = vec![value, pattern];
    let zone = match zone {
        Some((expr, ZoneArg::Fixed(zone))) => {
            list.push(expr);
            zone
        }
        Some(_) => return Err(Refusal::Arguments),
        None => TimeZone::UTC,
    };
    let arrow_type = data_type.arrow();
    let made = formatting_call(name, list, data_type, fallible, move |args, scope| {
        let (Some(values), Some(patterns)) = (args.first(), args.get(1)) else {
            return new_null_array(&arrow_type, scope.rows);
        };
        let (values, patterns) = (values.strings(), Some(patterns.strings()));
        let mut last = None;
        make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
            let Some(value) = values.get(row) else { return Ok(None) };
            let us = if explicit {
                let Some(format) = format.get(patterns, row, &mut last)? else { return Ok(None) };
                read_timestamp(format, value)
            } else {
                text::parse_timestamp(value).map(|us| calendar::truncate_us(us, 3))
            };
            Ok(us.and_then(|us| finish(&zone, us)))
        })
    });
    Ok(with_optional_format(made, name, explicit))
}

/// Seconds (precision 0) or milliseconds (3, the default) since 1970, or a text in UTC or another zone; NULL outside
/// of the years 0000 to 9999.
fn to_timestamp_ltz(args: Vec<Expr>) -> Resolved {
    let Some(first) = args.first() else { return Err(Refusal::Arguments) };
    if matches!(first.data_type, DataType::String) {
        return read_text("TO_TIMESTAMP_LTZ", args, DataType::TimestampLtz(3), |zone, us| {
            Some(calendar::to_instant(zone, us))
        });
    }
    let mut args = args.into_iter();
    let value = args.next().ok_or(Refusal::Arguments)?;
    let precision = match args.next() {
        None => 3,
        Some(precision) => literal_integer(&precision).ok_or(Refusal::Arguments)?,
    };
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    if !matches!(precision, 0 | 3) {
        return Err(Refusal::Because(TypeError {
            message: format!("TO_TIMESTAMP_LTZ does not take the precision {precision}"),
            help: Some("0 for seconds, 3 for milliseconds".to_owned()),
        }));
    }
    let seconds = precision == 0;
    let data_type = DataType::TimestampLtz(3);
    let arrow_type = data_type.arrow();
    let value = match &value.data_type {
        t if t.is_integer() || *t == DataType::Null => bigint(value)?,
        DataType::Float => build::implicit_cast(value, &DataType::Double),
        DataType::Double | DataType::Decimal(..) => value,
        _ => return Err(Refusal::Arguments),
    };
    let from = value.data_type.clone();
    let made = call("TO_TIMESTAMP_LTZ", vec![value], data_type, move |args, scope| {
        let Some(arg) = args.first() else { return new_null_array(&arrow_type, scope.rows) };
        let scale = if seconds { 1000 } else { 1 };
        let in_range = |ms: i64| MS_RANGE.contains(&ms).then(|| ms * US_PER_MS);
        match &from {
            DataType::Double => {
                let values = arg.numbers::<Float64Type>();
                make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                    Ok(values.get(row).and_then(|value| in_range((value * scale as f64) as i64)))
                })
            }
            DataType::Decimal(_, digits) => {
                let values = arg.numbers::<Decimal128Type>();
                make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                    let whole = |value| decimal::to_integral(value, *digits, decimal::Direction::Down);
                    let ms = values.get(row).and_then(|value| i64::try_from(whole(value)).ok()?.checked_mul(scale));
                    Ok(ms.and_then(in_range))
                })
            }
            _ => {
                let values = arg.numbers::<Int64Type>();
                make_numbers::<TimestampMicrosecondType>(scope, &arrow_type, |row| {
                    Ok(values.get(row).and_then(|value| value.checked_mul(scale)).and_then(in_range))
                })
            }
        }
    });
    Ok(with_form(made, format!("TO_TIMESTAMP_LTZ({{}}, {precision})")))
}

/// NULL for what cannot be read.
fn to_date(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let value = string(args.next().ok_or(Refusal::Arguments)?)?;
    let pattern = args.next();
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let explicit = pattern.is_some();
    let (pattern, format) = format_or(pattern, "yyyy-MM-dd", Style::Lenient)?;
    let fallible = format.fallible();
    let made = formatting_call("TO_DATE", vec![value, pattern], DataType::Date, fallible, move |args, scope| {
        let arrow_type = DataType::Date.arrow();
        let [values, patterns] = args else { return new_null_array(&arrow_type, scope.rows) };
        let (values, patterns) = (values.strings(), Some(patterns.strings()));
        let mut last = None;
        make_numbers::<Date32Type>(scope, &arrow_type, |row| {
            let Some(value) = values.get(row) else { return Ok(None) };
            let days = if explicit {
                let Some(format) = format.get(patterns, row, &mut last)? else { return Ok(None) };
                format.read(value).map(|us| us.div_euclid(US_PER_DAY))
            } else {
                text::parse_date(value)
            };
            Ok(days.and_then(|days| i32::try_from(days).ok()))
        })
    });
    Ok(with_optional_format(made, "TO_DATE", explicit))
}

fn from_unix_time(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let value = bigint(args.next().ok_or(Refusal::Arguments)?)?;
    let pattern = args.next();
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let explicit = pattern.is_some();
    let (pattern, format) = format_or(pattern, SECONDS_FORMAT, Style::Lenient)?;
    let fallible = format.fallible();
    let made =
        formatting_call("FROM_UNIXTIME", vec![value, pattern], DataType::String, fallible, move |args, scope| {
            let [values, patterns] = args else { return new_null_array(&DataType::String.arrow(), scope.rows) };
            let (values, patterns) = (values.numbers::<Int64Type>(), Some(patterns.strings()));
            let zone = scope.context.time_zone.clone();
            let mut last = None;
            make_strings(scope, |row, out| {
                let Some(us) = values.get(row).and_then(|seconds| seconds.checked_mul(US_PER_SECOND)) else {
                    return Ok(false);
                };
                let Some(format) = format.get(patterns, row, &mut last)? else { return Ok(false) };
                format.format(calendar::to_wall(&zone, us), out);
                Ok(true)
            })
        });
    Ok(with_optional_format(made, "FROM_UNIXTIME", explicit))
}

/// Seconds since 1970 of a text in the pipeline's time zone. What cannot be read is the smallest BIGINT, as in Flink.
fn unix_timestamp(args: Vec<Expr>) -> Resolved {
    let mut args = args.into_iter();
    let value = string(args.next().ok_or(Refusal::Arguments)?)?;
    let pattern = args.next();
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let explicit = pattern.is_some();
    let (pattern, format) = format_or(pattern, SECONDS_FORMAT, Style::Lenient)?;
    let fallible = format.fallible();
    let made =
        formatting_call("UNIX_TIMESTAMP", vec![value, pattern], DataType::BigInt, fallible, move |args, scope| {
            let arrow_type = DataType::BigInt.arrow();
            let [values, patterns] = args else { return new_null_array(&arrow_type, scope.rows) };
            let (values, patterns) = (values.strings(), Some(patterns.strings()));
            let zone = scope.context.time_zone.clone();
            let mut last = None;
            make_numbers::<Int64Type>(scope, &arrow_type, |row| {
                let Some(value) = values.get(row) else { return Ok(None) };
                let Some(format) = format.get(patterns, row, &mut last)? else { return Ok(None) };
                let seconds = |us| calendar::to_instant(&zone, us).div_euclid(US_PER_MS) / 1000;
                Ok(Some(format.read(value).map_or(i64::MIN, seconds)))
            })
        });
    Ok(with_optional_format(made, "UNIX_TIMESTAMP", explicit))
}

/// A zone that is a literal, or one that each row brings along.
enum ZoneArg {
    Fixed(TimeZone),
    PerRow,
}

impl ZoneArg {
    fn of(expr: &Expr) -> Result<ZoneArg, Refusal> {
        match literal_text(expr) {
            None => Ok(ZoneArg::PerRow),
            Some(name) => match zone(name) {
                Some(zone) => Ok(ZoneArg::Fixed(zone)),
                None => Err(Refusal::Because(TypeError {
                    message: format!("unknown time zone '{name}'"),
                    help: Some("write an IANA name such as 'Europe/Berlin', or 'GMT+02:00'".to_owned()),
                })),
            },
        }
    }
}

/// A time zone by its IANA name, or as `GMT+8`, `GMT+08:00`, `UTC-03:30`.
fn zone(name: &str) -> Option<TimeZone> {
    if let Ok(zone) = TimeZone::get(name) {
        return Some(zone);
    }
    let offset = name.strip_prefix("GMT").or_else(|| name.strip_prefix("UTC"))?;
    let (sign, digits) = match offset.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    if !(0..24).contains(&hours) || !(0..60).contains(&minutes) {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok().map(TimeZone::fixed)
}

/// `CONVERT_TZ(text, from, to)`: `yyyy-MM-dd HH:mm:ss` from one zone to another; NULL for what cannot be read.
fn convert_tz(args: Vec<Expr>) -> Resolved {
    let [value, from, to] = exactly(args)?;
    let (value, from, to) = (string(value)?, string(from)?, string(to)?);
    let zones = Arc::new((ZoneArg::of(&from)?, ZoneArg::of(&to)?));
    let format = Format::parse(SECONDS_FORMAT, Style::Lenient).map_err(|_| Refusal::Arguments)?;
    Ok(call("CONVERT_TZ", vec![value, from, to], DataType::String, move |args, scope| {
        let [values, from, to] = args else { return new_null_array(&DataType::String.arrow(), scope.rows) };
        let (values, from, to) = (values.strings(), from.strings(), to.strings());
        let get = |known: &ZoneArg, name: Option<&str>| match (known, name) {
            (ZoneArg::Fixed(zone), _) => Some(zone.clone()),
            // Java takes an unknown zone for GMT.
            (ZoneArg::PerRow, Some(name)) => Some(zone(name).unwrap_or(TimeZone::UTC)),
            (ZoneArg::PerRow, None) => None,
        };
        make_strings(scope, |row, out| {
            let Some(wall) = values.get(row).and_then(|value| format.read(value)) else { return Ok(false) };
            let (Some(from), Some(to)) = (get(&zones.0, from.get(row)), get(&zones.1, to.get(row))) else {
                return Ok(false);
            };
            format.format(calendar::to_wall(&to, calendar::to_instant(&from, wall)), out);
            Ok(true)
        })
    }))
}
