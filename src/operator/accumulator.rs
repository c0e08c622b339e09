//! Accumulators: the state of one aggregate for one group.
//!
//! Values are folded one by one in log order, never with vector lanes: the last digit of a floating-point sum depends
//! on the order, and a replay must give the same bytes. NULLs are skipped, as SQL says. Integer sums wrap, as Flink's.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, StringArray, Time32MillisecondArray, TimestampMicrosecondArray, new_null_array,
};
use serde::{Deserialize, Serialize};

use super::Position;
use super::scalar::{self, Scalar};
use super::sketch::{DistinctSketch, QuantileSketch};
use crate::expr::AggregateCall;
use crate::expr::DataType;
use crate::expr::aggregate::{AggregateKind, Parameter};
use crate::expr::functions::json;

/// What one aggregate knows about one group. What is large stands in a box, so that a group of the common ones is small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Accumulator {
    Count(i64),
    /// Sum and number of values: SUM (NULL without values) and AVG.
    Integer {
        sum: i64,
        count: i64,
    },
    Double {
        sum: f64,
        count: i64,
    },
    /// SUM(FLOAT): single precision, as Flink's.
    Float {
        sum: f32,
        count: i64,
    },
    Decimal(Box<DecimalSum>),
    Least(Option<Box<Scalar>>),
    Greatest(Option<Box<Scalar>>),
    /// DISTINCT: the values seen by their identity, folded at the end in the order of the log.
    Distinct(Box<Seen>),
    Spread(Box<Spread>),
    First(Option<Box<(Position, Scalar)>>),
    Last(Option<Box<(Position, Scalar)>>),
    /// LISTAGG, in order.
    Texts(Box<Vec<(Position, Box<str>)>>),
    /// PERCENTILE: how often each value was there, by its [`ordered_bits`].
    Values(Box<BTreeMap<u64, u64>>),
    ApproxDistinct(Box<DistinctSketch>),
    ApproxValues(Box<QuantileSketch>),
    /// ARRAY_AGG, JSON_ARRAYAGG and JSON_OBJECTAGG: all values, in order.
    Items(Box<Vec<(Position, Scalar)>>),
}

/// Values by their identity, each with where it was first.
type Seen = BTreeMap<Box<[u8]>, (Position, Scalar)>;

/// Welford's method: mean and sum of squared distances from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    count: i64,
    mean: f64,
    squares: f64,
}

/// Sum and number of values of type DECIMAL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecimalSum {
    /// `None` after an overflow of 38 digits.
    sum: Option<i128>,
    count: i64,
}

impl Accumulator {
    /// The accumulator of an empty group.
    pub fn new(call: &AggregateCall) -> Accumulator {
        // DISTINCT changes nothing for these.
        let indifferent =
            [AggregateKind::Min, AggregateKind::Max, AggregateKind::FirstValue, AggregateKind::ApproxCountDistinct];
        match call.distinct && !indifferent.contains(&call.kind) {
            true => Accumulator::Distinct(Box::default()),
            false => Accumulator::plain(call),
        }
    }

    fn plain(call: &AggregateCall) -> Accumulator {
        match (call.kind, call.argument_type()) {
            (AggregateKind::Count, _) => Accumulator::Count(0),
            (AggregateKind::Min, _) => Accumulator::Least(None),
            (AggregateKind::Max, _) => Accumulator::Greatest(None),
            (
                AggregateKind::StddevPop | AggregateKind::StddevSamp | AggregateKind::VarPop | AggregateKind::VarSamp,
                _,
            ) => Accumulator::Spread(Box::default()),
            (AggregateKind::FirstValue, _) => Accumulator::First(None),
            (AggregateKind::LastValue, _) => Accumulator::Last(None),
            (AggregateKind::ListAgg, _) => Accumulator::Texts(Box::default()),
            (AggregateKind::Percentile, _) => Accumulator::Values(Box::default()),
            (AggregateKind::ApproxCountDistinct, _) => Accumulator::ApproxDistinct(Box::default()),
            (AggregateKind::ApproxPercentile, _) => Accumulator::ApproxValues(Box::default()),
            (AggregateKind::ArrayAgg | AggregateKind::JsonObjectAgg | AggregateKind::JsonArrayAgg, _) => {
                Accumulator::Items(Box::default())
            }
            (AggregateKind::Sum | AggregateKind::Avg, Some(DataType::Decimal(..))) => {
                Accumulator::Decimal(Box::new(DecimalSum { sum: Some(0), count: 0 }))
            }
            (AggregateKind::Sum, Some(DataType::Float)) => Accumulator::Float { sum: 0.0, count: 0 },
            (AggregateKind::Sum | AggregateKind::Avg, Some(DataType::Double | DataType::Float)) => {
                Accumulator::Double { sum: 0.0, count: 0 }
            }
            (AggregateKind::Sum | AggregateKind::Avg, _) => Accumulator::Integer { sum: 0, count: 0 },
        }
    }

    /// Folds in one value that is not NULL.
    #[inline]
    pub fn update(&mut self, argument: &Argument<'_>, row: usize, position: Position) {
        match self {
            Accumulator::Count(count) => *count += 1,
            Accumulator::Integer { sum, count } => {
                *sum = sum.wrapping_add(argument.integer(row));
                *count += 1;
            }
            Accumulator::Double { sum, count } => {
                *sum += argument.double(row);
                *count += 1;
            }
            Accumulator::Float { sum, count } => {
                *sum += argument.double(row) as f32;
                *count += 1;
            }
            Accumulator::Decimal(total) => {
                total.sum = add_decimals(total.sum, Some(argument.decimal(row)));
                total.count += 1;
            }
            Accumulator::Least(value) => replace_if(value, argument, row, Ordering::Less),
            Accumulator::Greatest(value) => replace_if(value, argument, row, Ordering::Greater),
            Accumulator::Distinct(seen) => {
                seen.entry(argument.key(row)).or_insert_with(|| (position, argument.scalar(row)));
            }
            Accumulator::Spread(spread) => {
                let Spread { count, mean, squares } = &mut **spread;
                let value = argument.double(row);
                *count += 1;
                let before = value - *mean;
                *mean += before / *count as f64;
                *squares += before * (value - *mean);
            }
            Accumulator::First(first) => {
                first.get_or_insert_with(|| Box::new((position, argument.scalar(row))));
            }
            Accumulator::Last(last) => set(last, (position, argument.scalar(row))),
            Accumulator::Texts(texts) => texts.push((position, argument.string(row).into())),
            Accumulator::Values(values) => {
                if let Some((value, count)) = argument.weighted(row) {
                    *values.entry(ordered_bits(value)).or_default() += count;
                }
            }
            Accumulator::ApproxDistinct(sketch) => sketch.add(&argument.key(row)),
            Accumulator::ApproxValues(sketch) => sketch.add(argument.double(row)),
            Accumulator::Items(items) => items.push((position, argument.scalar(row))),
        }
    }

    /// Folds in the values of another accumulator of the same aggregate, which is later in event time.
    pub fn merge(&mut self, later: Accumulator) {
        match (self, later) {
            (Accumulator::Count(count), Accumulator::Count(more)) => *count += more,
            (Accumulator::Integer { sum, count }, Accumulator::Integer { sum: other, count: more }) => {
                *sum = sum.wrapping_add(other);
                *count += more;
            }
            (Accumulator::Double { sum, count }, Accumulator::Double { sum: other, count: more }) => {
                *sum += other;
                *count += more;
            }
            (Accumulator::Float { sum, count }, Accumulator::Float { sum: other, count: more }) => {
                *sum += other;
                *count += more;
            }
            (Accumulator::Decimal(total), Accumulator::Decimal(other)) => {
                total.sum = add_decimals(total.sum, other.sum);
                total.count += other.count;
            }
            (Accumulator::Least(value), Accumulator::Least(Some(other))) => {
                replace_by(value, other, |value, other| other.order(value) == Some(Ordering::Less));
            }
            (Accumulator::Greatest(value), Accumulator::Greatest(Some(other))) => {
                replace_by(value, other, |value, other| other.order(value) == Some(Ordering::Greater));
            }
            (Accumulator::Distinct(seen), Accumulator::Distinct(others)) => {
                for (key, other) in *others {
                    match seen.entry(key) {
                        Entry::Vacant(vacant) => drop(vacant.insert(other)),
                        Entry::Occupied(mut known) => known.get_mut().0 = known.get().0.min(other.0),
                    }
                }
            }
            (Accumulator::Spread(spread), Accumulator::Spread(others)) => {
                let Spread { count, mean, squares } = &mut **spread;
                let Spread { count: more, mean: other, squares: other_squares } = *others;
                if *count == 0 {
                    (*count, *mean, *squares) = (more, other, other_squares);
                } else if more > 0 {
                    let (a, b) = (*count as f64, more as f64);
                    let distance = other - *mean;
                    *count += more;
                    *mean += b / *count as f64 * distance;
                    *squares += other_squares + a * b / *count as f64 * distance * distance;
                }
            }
            (Accumulator::First(first), Accumulator::First(Some(other))) => {
                replace_by(first, other, |first, other| other.0 < first.0);
            }
            (Accumulator::Last(last), Accumulator::Last(Some(other))) => {
                replace_by(last, other, |last, other| other.0 >= last.0);
            }
            (Accumulator::Texts(texts), Accumulator::Texts(others)) => {
                texts.extend(*others);
                texts.sort_by_key(|(position, _)| *position);
            }
            (Accumulator::Values(values), Accumulator::Values(others)) => {
                for (value, count) in *others {
                    *values.entry(value).or_default() += count;
                }
            }
            (Accumulator::ApproxDistinct(sketch), Accumulator::ApproxDistinct(other)) => sketch.merge(&other),
            (Accumulator::ApproxValues(sketch), Accumulator::ApproxValues(other)) => sketch.merge(&other),
            (Accumulator::Items(items), Accumulator::Items(others)) => {
                items.extend(*others);
                items.sort_by_key(|(position, _)| *position);
            }
            // What is left has no values to give, or is of another aggregate, which does not happen.
            _ => {}
        }
    }

    /// As [`Accumulator::merge`], but what is listed of the other one comes behind all that is listed here.
    pub fn append(&mut self, other: Accumulator) {
        match (self, other) {
            (Accumulator::Texts(texts), Accumulator::Texts(others)) => texts.extend(*others),
            (Accumulator::Items(items), Accumulator::Items(others)) => items.extend(*others),
            (this, other) => this.merge(other),
        }
    }

    /// The one value that is kept of all.
    fn kept(&self) -> Option<&Scalar> {
        match self {
            Accumulator::Least(value) | Accumulator::Greatest(value) => value.as_deref(),
            Accumulator::First(value) | Accumulator::Last(value) => value.as_deref().map(|(_, value)| value),
            _ => None,
        }
    }

    /// The accumulator with DISTINCT resolved.
    fn finished(&self, call: &AggregateCall) -> Cow<'_, Accumulator> {
        let Accumulator::Distinct(seen) = self else { return Cow::Borrowed(self) };
        let mut values: Vec<&(Position, Scalar)> = seen.values().collect();
        values.sort_by_key(|(position, _)| *position);
        let mut plain = Accumulator::plain(call);
        for (position, value) in values {
            plain.update(&Argument::One(value), 0, *position);
        }
        Cow::Owned(plain)
    }
}

fn add_decimals(a: Option<i128>, b: Option<i128>) -> Option<i128> {
    a?.checked_add(b?).filter(|sum| fits_38_digits(*sum))
}

/// Bits in the order of the values: −0.0 before 0.0, all NaNs one and last.
fn ordered_bits(value: f64) -> u64 {
    let bits = if value.is_nan() { f64::NAN.abs().to_bits() } else { value.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

fn value_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

/// The percentile of values given as [`ordered_bits`] with their counts, as Flink interpolates it.
fn percentile(values: &BTreeMap<u64, u64>, percentage: f64) -> Option<f64> {
    let total: u64 = values.values().sum();
    let position = percentage * total.checked_sub(1)? as f64 + 1.0;
    let (lower, higher) = (position.floor(), position.ceil());
    let mut seen = 0;
    let mut rest = values.iter();
    while let Some((value, count)) = rest.next() {
        seen += count;
        if seen as f64 >= lower {
            let value = value_of(*value);
            return Some(match rest.next() {
                Some((next, _)) if (seen as f64) < higher => {
                    (higher - position) * value + (position - lower) * value_of(*next)
                }
                _ => value,
            });
        }
    }
    None
}

fn replace_by<T>(value: &mut Option<T>, other: T, is_better: impl Fn(&T, &T) -> bool) {
    if value.as_ref().is_none_or(|value| is_better(value, &other)) {
        *value = Some(other);
    }
}

/// Sets a value that stands in a box, in the box that is there.
fn set<T>(value: &mut Option<Box<T>>, new: T) {
    match value {
        Some(old) => **old = new,
        None => *value = Some(Box::new(new)),
    }
}

fn replace_if(value: &mut Option<Box<Scalar>>, argument: &Argument<'_>, row: usize, when: Ordering) {
    let better = match &*value {
        None => true,
        Some(current) => argument.compare(row, current) == Some(when),
    };
    if better {
        set(value, argument.scalar(row));
    }
}

fn fits_38_digits(value: i128) -> bool {
    value.unsigned_abs() < 10u128.pow(38)
}

/// A typed view of an aggregate's argument column.
pub enum Argument<'a> {
    /// `COUNT(*)`: no argument.
    None,
    Boolean(&'a BooleanArray),
    Int8(&'a Int8Array),
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    Float32(&'a Float32Array),
    Float64(&'a Float64Array),
    Decimal(&'a Decimal128Array),
    String(&'a StringArray),
    Date(&'a Date32Array),
    Time(&'a Time32MillisecondArray),
    Timestamp(&'a TimestampMicrosecondArray),
    /// The same value for every row.
    One(&'a Scalar),
    /// Another type; DISTINCT works on its comparable bytes, which the caller gives.
    Opaque(&'a ArrayRef, Option<&'a arrow_row::Rows>),
}

impl<'a> Argument<'a> {
    /// The view of a column of this SQL type.
    pub fn new(column: Option<&'a ArrayRef>, data_type: Option<&DataType>) -> Argument<'a> {
        let (Some(column), Some(data_type)) = (column, data_type) else { return Argument::None };
        let any = column.as_any();
        let view = match data_type {
            DataType::Boolean => any.downcast_ref().map(Argument::Boolean),
            DataType::TinyInt => any.downcast_ref().map(Argument::Int8),
            DataType::SmallInt => any.downcast_ref().map(Argument::Int16),
            DataType::Int => any.downcast_ref().map(Argument::Int32),
            DataType::BigInt => any.downcast_ref().map(Argument::Int64),
            DataType::Float => any.downcast_ref().map(Argument::Float32),
            DataType::Double => any.downcast_ref().map(Argument::Float64),
            DataType::Decimal(..) => any.downcast_ref().map(Argument::Decimal),
            DataType::String => any.downcast_ref().map(Argument::String),
            DataType::Date => any.downcast_ref().map(Argument::Date),
            DataType::Time => any.downcast_ref().map(Argument::Time),
            DataType::Timestamp(_) | DataType::TimestampLtz(_) => any.downcast_ref().map(Argument::Timestamp),
            _ => None,
        };
        view.unwrap_or(Argument::Opaque(column, None))
    }

    /// Whether the argument is NULL in this row.
    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        match self {
            Argument::None => false,
            Argument::Boolean(a) => a.is_null(row),
            Argument::Int8(a) => a.is_null(row),
            Argument::Int16(a) => a.is_null(row),
            Argument::Int32(a) => a.is_null(row),
            Argument::Int64(a) => a.is_null(row),
            Argument::Float32(a) => a.is_null(row),
            Argument::Float64(a) => a.is_null(row),
            Argument::Decimal(a) => a.is_null(row),
            Argument::String(a) => a.is_null(row),
            Argument::Date(a) => a.is_null(row),
            Argument::Time(a) => a.is_null(row),
            Argument::Timestamp(a) => a.is_null(row),
            Argument::One(_) => false,
            Argument::Opaque(a, _) => a.is_null(row),
        }
    }

    fn integer(&self, row: usize) -> i64 {
        match self {
            Argument::Boolean(a) => i64::from(a.value(row)),
            Argument::Int8(a) => i64::from(a.value(row)),
            Argument::Int16(a) => i64::from(a.value(row)),
            Argument::Int32(a) => i64::from(a.value(row)),
            Argument::Int64(a) => a.value(row),
            Argument::Date(a) => i64::from(a.value(row)),
            Argument::Time(a) => i64::from(a.value(row)),
            Argument::Timestamp(a) => a.value(row),
            Argument::One(Scalar::Integer(value)) => *value,
            _ => 0,
        }
    }

    fn double(&self, row: usize) -> f64 {
        match self {
            Argument::Float32(a) => f64::from(a.value(row)),
            Argument::Float64(a) => a.value(row),
            Argument::One(Scalar::Double(value)) => *value,
            _ => 0.0,
        }
    }

    /// A value of PERCENTILE and how often it counts; `None` where that is not at all.
    fn weighted(&self, row: usize) -> Option<(f64, u64)> {
        let parts = match self {
            Argument::Opaque(column, _) => Scalar::of(column.as_ref(), row),
            Argument::One(value @ Scalar::List(_)) => (*value).clone(),
            _ => return Some((self.double(row), 1)),
        };
        match parts {
            Scalar::List(parts) => match *parts {
                [Scalar::Double(value), Scalar::Integer(count)] if count > 0 => Some((value, count.unsigned_abs())),
                _ => None,
            },
            _ => None,
        }
    }

    fn decimal(&self, row: usize) -> i128 {
        match self {
            Argument::Decimal(a) => a.value(row),
            Argument::One(Scalar::Decimal(value)) => *value,
            _ => 0,
        }
    }

    fn string(&self, row: usize) -> &str {
        match self {
            Argument::String(a) => a.value(row),
            Argument::One(Scalar::String(value)) => value,
            _ => "",
        }
    }

    fn scalar(&self, row: usize) -> Scalar {
        match self {
            Argument::None => Scalar::Opaque,
            Argument::Opaque(column, _) => Scalar::of(column.as_ref(), row),
            Argument::One(value) => (*value).clone(),
            Argument::Float32(_) | Argument::Float64(_) => Scalar::Double(self.double(row)),
            Argument::Decimal(a) => Scalar::Decimal(a.value(row)),
            Argument::String(a) => Scalar::String(a.value(row).into()),
            _ => Scalar::Integer(self.integer(row)),
        }
    }

    fn compare(&self, row: usize, with: &Scalar) -> Option<Ordering> {
        match (self, with) {
            (Argument::String(a), Scalar::String(b)) => Some(a.value(row).cmp(b)),
            _ => self.scalar(row).order(with),
        }
    }

    /// The value's identity for DISTINCT.
    fn key(&self, row: usize) -> Box<[u8]> {
        match self {
            Argument::None => Box::default(),
            Argument::String(a) => a.value(row).as_bytes().into(),
            Argument::Opaque(_, rows) => rows.map_or_else(Box::default, |rows| rows.row(row).as_ref().into()),
            Argument::Float32(_) | Argument::Float64(_) => {
                // −0.0 and 0.0 differ and all NaNs are one, as with Java's Double.equals.
                let value = self.double(row);
                let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
                bits.to_be_bytes().into()
            }
            Argument::Decimal(a) => a.value(row).to_be_bytes().into(),
            _ => self.integer(row).to_be_bytes().into(),
        }
    }
}

/// The results of one aggregate over many groups, as a column of the call's type.
pub fn finish<'a>(call: &AggregateCall, groups: impl ExactSizeIterator<Item = Option<&'a Accumulator>>) -> ArrayRef {
    let average = call.kind == AggregateKind::Avg;
    let spread = |count: i64, squares: f64| {
        let (divisor, root) = match call.kind {
            AggregateKind::StddevPop => (count, true),
            AggregateKind::StddevSamp => (count - 1, true),
            AggregateKind::VarPop => (count, false),
            _ => (count - 1, false),
        };
        let variance = (divisor > 0).then(|| squares / divisor as f64)?;
        Some(if root { variance.sqrt() } else { variance })
    };
    let integers = |accumulator: &Accumulator| match accumulator {
        Accumulator::Count(count) => Some(*count),
        Accumulator::ApproxDistinct(sketch) => Some(sketch.estimate()),
        // Flink casts the deviation of integers back to their type.
        Accumulator::Spread(it) => spread(it.count, it.squares).map(|value| value as i64),
        Accumulator::Integer { count: 0, .. } => None,
        Accumulator::Integer { sum, count } if average => Some(sum.wrapping_div(*count)),
        Accumulator::Integer { sum, .. } => Some(*sum),
        other => match other.kept() {
            Some(Scalar::Integer(value)) => Some(*value),
            _ => None,
        },
    };
    let quantiles: &[f64] = match &call.parameter {
        Parameter::Percentages { values, .. } => values,
        _ => &[],
    };
    let quantile = |accumulator: &Accumulator, at: f64| match accumulator {
        Accumulator::Values(values) => percentile(values, at),
        Accumulator::ApproxValues(sketch) => sketch.quantile(at),
        _ => None,
    };
    let doubles = |accumulator: &Accumulator| match accumulator {
        Accumulator::Spread(it) => spread(it.count, it.squares),
        Accumulator::Values(_) | Accumulator::ApproxValues(_) => {
            quantiles.first().and_then(|at| quantile(accumulator, *at))
        }
        Accumulator::Double { count: 0, .. } | Accumulator::Float { count: 0, .. } => None,
        Accumulator::Float { sum, .. } => Some(f64::from(*sum)),
        Accumulator::Double { sum, count } if average => Some(sum / *count as f64),
        Accumulator::Double { sum, .. } => Some(*sum),
        other => match other.kept() {
            Some(Scalar::Double(value)) => Some(*value),
            _ => None,
        },
    };
    let input_scale = match call.argument.as_ref().map(|expr| &expr.data_type) {
        Some(DataType::Decimal(_, scale)) => *scale,
        _ => 0,
    };
    let decimals = |accumulator: &Accumulator, scale: u8| match accumulator {
        Accumulator::Decimal(total) if total.count == 0 => None,
        Accumulator::Decimal(total) if average => {
            let scaled =
                total.sum.and_then(|sum| sum.checked_mul(10i128.checked_pow(u32::from(scale - input_scale))?))?;
            Some(divide_half_up(scaled, i128::from(total.count)))
        }
        Accumulator::Decimal(total) => total.sum,
        Accumulator::Spread(it) => spread(it.count, it.squares).and_then(|value| decimal_of(value, scale)),
        other => match other.kept() {
            Some(Scalar::Decimal(value)) => Some(*value),
            _ => None,
        },
    };
    let separator = match &call.parameter {
        Parameter::Separator(separator) => separator.as_str(),
        _ => "",
    };
    let strings = |accumulator: &Accumulator| match accumulator {
        Accumulator::Texts(texts) if !texts.is_empty() => {
            Some(texts.iter().map(|(_, text)| &**text).collect::<Vec<_>>().join(separator))
        }
        Accumulator::Items(items) => Some(json_text(call.kind, items)),
        other => match other.kept() {
            Some(Scalar::String(value)) => Some(String::from(&**value)),
            _ => None,
        },
    };
    let groups = groups.map(|accumulator| accumulator.map(|accumulator| accumulator.finished(call)));
    match &call.data_type {
        DataType::Boolean => {
            Arc::new(groups.map(|a| a.as_deref().and_then(integers).map(|v| v != 0)).collect::<BooleanArray>())
        }
        DataType::TinyInt => {
            Arc::new(groups.map(|a| a.as_deref().and_then(integers).map(|v| v as i8)).collect::<Int8Array>())
        }
        DataType::SmallInt => {
            Arc::new(groups.map(|a| a.as_deref().and_then(integers).map(|v| v as i16)).collect::<Int16Array>())
        }
        DataType::Int => {
            Arc::new(groups.map(|a| a.as_deref().and_then(integers).map(|v| v as i32)).collect::<Int32Array>())
        }
        DataType::BigInt => Arc::new(groups.map(|a| a.as_deref().and_then(integers)).collect::<Int64Array>()),
        DataType::Date => {
            Arc::new(groups.map(|a| a.as_deref().and_then(integers).map(|v| v as i32)).collect::<Date32Array>())
        }
        DataType::Time => Arc::new(
            groups.map(|a| a.as_deref().and_then(integers).map(|v| v as i32)).collect::<Time32MillisecondArray>(),
        ),
        DataType::Timestamp(_) => {
            Arc::new(groups.map(|a| a.as_deref().and_then(integers)).collect::<TimestampMicrosecondArray>())
        }
        DataType::TimestampLtz(_) => Arc::new(
            groups.map(|a| a.as_deref().and_then(integers)).collect::<TimestampMicrosecondArray>().with_timezone("UTC"),
        ),
        DataType::Float => {
            Arc::new(groups.map(|a| a.as_deref().and_then(doubles).map(|v| v as f32)).collect::<Float32Array>())
        }
        DataType::Double => Arc::new(groups.map(|a| a.as_deref().and_then(doubles)).collect::<Float64Array>()),
        DataType::Decimal(precision, scale) => {
            let array: Decimal128Array = groups.map(|a| a.as_deref().and_then(|a| decimals(a, *scale))).collect();
            let rows = array.len();
            match array.with_precision_and_scale(*precision, i8::try_from(*scale).unwrap_or(0)) {
                Ok(array) => Arc::new(array),
                Err(_) => new_null_array(&call.data_type.arrow(), rows),
            }
        }
        DataType::String => Arc::new(groups.map(|a| a.as_deref().and_then(strings)).collect::<StringArray>()),
        DataType::Array(_) if call.kind.is_percentile() => {
            let mut lists = ListBuilder::new(Float64Builder::new());
            for accumulator in groups {
                let values: Vec<Option<f64>> = match accumulator.as_deref() {
                    Some(accumulator) => quantiles.iter().map(|at| quantile(accumulator, *at)).collect(),
                    None => Vec::new(),
                };
                let some = values.iter().any(Option::is_some);
                if some {
                    lists.values().extend(values);
                }
                lists.append(some);
            }
            Arc::new(lists.finish())
        }
        other => {
            let values: Vec<Option<Scalar>> = groups.map(|a| a.as_deref().and_then(|a| kept_values(call, a))).collect();
            scalar::column(other, &values.iter().map(Option::as_ref).collect::<Vec<_>>())
        }
    }
}

/// A result that is one of the values, or all of them.
fn kept_values(call: &AggregateCall, accumulator: &Accumulator) -> Option<Scalar> {
    match accumulator {
        Accumulator::First(_) | Accumulator::Last(_) => accumulator.kept().cloned(),
        Accumulator::Items(items) if !items.is_empty() => {
            let item = |item: &Scalar| match (item, &call.parameter) {
                (Scalar::List(row), Parameter::WithNulls(true)) => row.first().cloned().unwrap_or(Scalar::Null),
                (value, _) => value.clone(),
            };
            Some(Scalar::List(items.iter().map(|(_, value)| item(value)).collect()))
        }
        _ => None,
    }
}

/// The JSON of an array's items in the order of the log, or of an object's members, its keys sorted as Java sorts strings.
fn json_text(kind: AggregateKind, items: &[(Position, Scalar)]) -> String {
    let mut items: Vec<&(Position, Scalar)> = items.iter().collect();
    items.sort_by_key(|(position, _)| *position);
    if kind == AggregateKind::JsonArrayAgg {
        let texts = items.iter().map(|(_, item)| if let Scalar::String(text) = item { &**text } else { "null" });
        return format!("[{}]", texts.collect::<Vec<_>>().join(","));
    }
    let mut members: BTreeMap<Vec<u16>, String> = BTreeMap::new();
    for (_, item) in items {
        if let Scalar::List(member) = item
            && let [Scalar::String(key), Scalar::String(value)] = &**member
        {
            let mut text = String::new();
            json::quoted(key, &mut text);
            members.insert(key.encode_utf16().collect(), format!("{text}:{value}"));
        }
    }
    format!("{{{}}}", members.into_values().collect::<Vec<_>>().join(","))
}

/// The nearest DECIMAL(38, scale), half away from zero.
fn decimal_of(value: f64, scale: u8) -> Option<i128> {
    let scaled = (value * 10f64.powi(i32::from(scale))).round();
    (scaled.abs() < 1e38).then_some(scaled as i128)
}

/// Quotient rounded half away from zero.
fn divide_half_up(numerator: i128, denominator: i128) -> i128 {
    let quotient = numerator / denominator;
    let remainder = numerator % denominator;
    if remainder.unsigned_abs() * 2 >= denominator.unsigned_abs() {
        quotient + numerator.signum() * denominator.signum()
    } else {
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::super::aggregation::Group;
    use super::*;
    use crate::expr::build;

    fn call(kind: AggregateKind, distinct: bool, parameters: Vec<build::Expr>, of: DataType) -> AggregateCall {
        let mut arguments = vec![build::column(0, of)];
        arguments.extend(parameters);
        AggregateCall::new(kind, arguments, None, distinct, None).expect("a call")
    }

    fn at(lsn: u64) -> Position {
        Position::row(lsn, 0)
    }

    /// Folds values in the order given, cut into slices by event time, and merges the slices in order.
    fn merged(call: &AggregateCall, column: &ArrayRef, slices: &[&[usize]]) -> ArrayRef {
        let argument = Argument::new(Some(column), call.argument_type());
        let mut whole = Accumulator::new(call);
        for slice in slices {
            let mut part = Accumulator::new(call);
            for row in *slice {
                part.update(&argument, *row, at(*row as u64));
            }
            whole.merge(part);
        }
        let stored = postcard::to_stdvec(&whole).expect("encodes");
        let whole: Accumulator = postcard::from_bytes(&stored).expect("decodes");
        finish(call, std::iter::once(Some(&whole)))
    }

    #[test]
    fn a_group_stays_small() {
        assert_eq!((size_of::<Accumulator>(), size_of::<Group>()), (24, 64), "state in memory is made of these");
    }

    #[test]
    fn merging_slices_gives_what_folding_gives() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]));
        let half = build::number_literal("0.5").expect("a number");
        for kind in [
            AggregateKind::Count,
            AggregateKind::Sum,
            AggregateKind::Avg,
            AggregateKind::Min,
            AggregateKind::Max,
            AggregateKind::StddevPop,
            AggregateKind::StddevSamp,
            AggregateKind::VarPop,
            AggregateKind::VarSamp,
            AggregateKind::FirstValue,
            AggregateKind::LastValue,
            AggregateKind::Percentile,
            AggregateKind::ApproxCountDistinct,
            AggregateKind::ApproxPercentile,
        ] {
            for distinct in [false, true] {
                let parameters = match kind {
                    AggregateKind::Percentile | AggregateKind::ApproxPercentile => vec![half.clone()],
                    _ => Vec::new(),
                };
                let call = call(kind, distinct, parameters, DataType::Double);
                let whole = merged(&call, &values, &[&[0, 1, 2, 3, 4, 5, 6, 7]]);
                // Late rows of an earlier slice: the log's order is not the slices' order.
                let parts = merged(&call, &values, &[&[], &[0, 3, 7], &[1, 4, 5], &[], &[2, 6]]);
                match (whole.as_any().downcast_ref::<Float64Array>(), parts.as_any().downcast_ref::<Float64Array>()) {
                    (Some(a), Some(b)) => assert!((a.value(0) - b.value(0)).abs() < 1e-12, "{call:?}: {a:?} {b:?}"),
                    _ => assert_eq!(&whole, &parts, "{call:?}"),
                }
                let none = merged(&call, &values, &[&[], &[]]);
                let counts = matches!(kind, AggregateKind::Count | AggregateKind::ApproxCountDistinct);
                assert_eq!(none.is_null(0), !counts, "{call:?}");
            }
        }
    }

    #[test]
    fn lists_follow_the_log_and_keep_first_repeats_only_once_with_distinct() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["b", "a", "b", "c"]));
        for (distinct, wanted) in [(false, "b;a;b;c"), (true, "b;a;c")] {
            let separator = vec![build::string_literal(";".to_owned())];
            let call = call(AggregateKind::ListAgg, distinct, separator, DataType::String);
            let list = merged(&call, &texts, &[&[2, 3], &[0, 1]]);
            assert_eq!(list.as_any().downcast_ref::<StringArray>().expect("strings").value(0), wanted);
        }
    }

    #[test]
    fn percentiles_interpolate_as_in_flink() {
        let of = |values: &[f64], at: f64| {
            let mut counts = BTreeMap::new();
            values.iter().for_each(|value| *counts.entry(ordered_bits(*value)).or_default() += 1);
            percentile(&counts, at)
        };
        assert_eq!(of(&[], 0.5), None);
        assert_eq!(of(&[7.0], 0.9), Some(7.0));
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        assert_eq!(of(&[4.0, 1.0, 1.0, 2.0], 0.25), Some(1.0));
        assert_eq!((of(&[-1.0, -2.0, 10.0], 0.0), of(&[-1.0, -2.0, 10.0], 1.0)), (Some(-2.0), Some(10.0)));
        assert!(of(&[f64::NAN, 1.0], 1.0).expect("a value").is_nan());
    }

    #[test]
    fn one_value_has_no_sample_deviation_and_integers_keep_their_type() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 4.0]));
        let call_of = |kind| call(kind, false, Vec::new(), DataType::Int);
        assert!(merged(&call_of(AggregateKind::StddevSamp), &values, &[&[0]]).is_null(0));
        let variance = merged(&call_of(AggregateKind::VarSamp), &values, &[&[0, 1]]);
        assert_eq!(variance.as_any().downcast_ref::<Int32Array>().expect("an INT").value(0), 4);
    }
}
