//! Accumulators: the state of one aggregate for one group.
//!
//! Values are folded one by one in log order, never with vector lanes: the last digit of a floating-point sum depends
//! on the order, and a replay must give the same bytes. NULLs are skipped, as SQL says. Integer sums wrap, as Flink's.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, StringArray, Time32MillisecondArray, TimestampMicrosecondArray, new_null_array,
};
use serde::{Deserialize, Serialize};

use crate::expr::AggregateCall;
use crate::expr::DataType;
use crate::expr::aggregate::AggregateKind;

/// One value of an argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scalar {
    /// Integers, dates, times, timestamps, booleans.
    Integer(i64),
    Double(f64),
    Decimal(i128),
    String(Box<str>),
    /// A value whose identity alone counts (COUNT of other types).
    Opaque,
}

impl Scalar {
    /// Order of MIN and MAX; `None` with a NaN, as Java's `<` and `>` are false then.
    fn order(&self, other: &Scalar) -> Option<Ordering> {
        match (self, other) {
            (Scalar::Integer(a), Scalar::Integer(b)) => Some(a.cmp(b)),
            (Scalar::Double(a), Scalar::Double(b)) => a.partial_cmp(b),
            (Scalar::Decimal(a), Scalar::Decimal(b)) => Some(a.cmp(b)),
            (Scalar::String(a), Scalar::String(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// What one aggregate knows about one group.
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
    /// `sum` is `None` after an overflow of 38 digits.
    Decimal {
        sum: Option<i128>,
        count: i64,
    },
    Least(Option<Scalar>),
    Greatest(Option<Scalar>),
    /// DISTINCT: the values seen, as comparable bytes, before the accumulator proper.
    Distinct {
        seen: BTreeSet<Box<[u8]>>,
        of: Box<Accumulator>,
    },
}

impl Accumulator {
    /// The accumulator of an empty group.
    pub fn new(call: &AggregateCall) -> Accumulator {
        let argument = call.argument.as_ref().map(|expr| &expr.data_type);
        let plain = match (call.kind, argument) {
            (AggregateKind::Count, _) => Accumulator::Count(0),
            (AggregateKind::Min, _) => Accumulator::Least(None),
            (AggregateKind::Max, _) => Accumulator::Greatest(None),
            (_, Some(DataType::Decimal(..))) => Accumulator::Decimal { sum: Some(0), count: 0 },
            (AggregateKind::Sum, Some(DataType::Float)) => Accumulator::Float { sum: 0.0, count: 0 },
            (_, Some(DataType::Double | DataType::Float)) => Accumulator::Double { sum: 0.0, count: 0 },
            _ => Accumulator::Integer { sum: 0, count: 0 },
        };
        // DISTINCT changes nothing for MIN and MAX.
        if call.distinct && !matches!(call.kind, AggregateKind::Min | AggregateKind::Max) {
            return Accumulator::Distinct { seen: BTreeSet::new(), of: Box::new(plain) };
        }
        plain
    }

    /// Folds in one value that is not NULL.
    #[inline]
    pub fn update(&mut self, argument: &Argument<'_>, row: usize) {
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
            Accumulator::Decimal { sum, count } => {
                *sum = sum.and_then(|sum| sum.checked_add(argument.decimal(row))).filter(|sum| fits_38_digits(*sum));
                *count += 1;
            }
            Accumulator::Least(value) => replace_if(value, argument, row, Ordering::Less),
            Accumulator::Greatest(value) => replace_if(value, argument, row, Ordering::Greater),
            Accumulator::Distinct { seen, of } => {
                if seen.insert(argument.key(row)) {
                    of.update(argument, row);
                }
            }
        }
    }

    fn finished(&self) -> &Accumulator {
        match self {
            Accumulator::Distinct { of, .. } => of,
            plain => plain,
        }
    }
}

fn replace_if(value: &mut Option<Scalar>, argument: &Argument<'_>, row: usize, when: Ordering) {
    let better = match &*value {
        None => true,
        Some(current) => argument.compare(row, current) == Some(when),
    };
    if better {
        *value = Some(argument.scalar(row));
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
    /// Other types can only be counted; DISTINCT works on their comparable bytes, which the caller gives.
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
            _ => 0,
        }
    }

    fn double(&self, row: usize) -> f64 {
        match self {
            Argument::Float32(a) => f64::from(a.value(row)),
            Argument::Float64(a) => a.value(row),
            _ => 0.0,
        }
    }

    fn decimal(&self, row: usize) -> i128 {
        match self {
            Argument::Decimal(a) => a.value(row),
            _ => 0,
        }
    }

    fn scalar(&self, row: usize) -> Scalar {
        match self {
            Argument::None | Argument::Opaque(..) => Scalar::Opaque,
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
    let integers = |accumulator: &Accumulator| match accumulator {
        Accumulator::Count(count) => Some(*count),
        Accumulator::Integer { count: 0, .. } => None,
        Accumulator::Integer { sum, count } if average => Some(sum.wrapping_div(*count)),
        Accumulator::Integer { sum, .. } => Some(*sum),
        Accumulator::Least(Some(Scalar::Integer(value))) | Accumulator::Greatest(Some(Scalar::Integer(value))) => {
            Some(*value)
        }
        _ => None,
    };
    let doubles = |accumulator: &Accumulator| match accumulator {
        Accumulator::Double { count: 0, .. } | Accumulator::Float { count: 0, .. } => None,
        Accumulator::Float { sum, .. } => Some(f64::from(*sum)),
        Accumulator::Double { sum, count } if average => Some(sum / *count as f64),
        Accumulator::Double { sum, .. } => Some(*sum),
        Accumulator::Least(Some(Scalar::Double(value))) | Accumulator::Greatest(Some(Scalar::Double(value))) => {
            Some(*value)
        }
        _ => None,
    };
    let input_scale = match call.argument.as_ref().map(|expr| &expr.data_type) {
        Some(DataType::Decimal(_, scale)) => *scale,
        _ => 0,
    };
    let decimals = |accumulator: &Accumulator, scale: u8| match accumulator {
        Accumulator::Decimal { count: 0, .. } => None,
        Accumulator::Decimal { sum, count } if average => {
            let scaled = sum.and_then(|sum| sum.checked_mul(10i128.checked_pow(u32::from(scale - input_scale))?))?;
            Some(divide_half_up(scaled, i128::from(*count)))
        }
        Accumulator::Decimal { sum, .. } => *sum,
        Accumulator::Least(Some(Scalar::Decimal(value))) | Accumulator::Greatest(Some(Scalar::Decimal(value))) => {
            Some(*value)
        }
        _ => None,
    };
    let strings = |accumulator: &'a Accumulator| match accumulator {
        Accumulator::Least(Some(Scalar::String(value))) | Accumulator::Greatest(Some(Scalar::String(value))) => {
            Some(&**value)
        }
        _ => None,
    };
    let groups = groups.map(|accumulator| accumulator.map(Accumulator::finished));
    match &call.data_type {
        DataType::Boolean => Arc::new(groups.map(|a| a.and_then(integers).map(|v| v != 0)).collect::<BooleanArray>()),
        DataType::TinyInt => Arc::new(groups.map(|a| a.and_then(integers).map(|v| v as i8)).collect::<Int8Array>()),
        DataType::SmallInt => Arc::new(groups.map(|a| a.and_then(integers).map(|v| v as i16)).collect::<Int16Array>()),
        DataType::Int => Arc::new(groups.map(|a| a.and_then(integers).map(|v| v as i32)).collect::<Int32Array>()),
        DataType::BigInt => Arc::new(groups.map(|a| a.and_then(integers)).collect::<Int64Array>()),
        DataType::Date => Arc::new(groups.map(|a| a.and_then(integers).map(|v| v as i32)).collect::<Date32Array>()),
        DataType::Time => {
            Arc::new(groups.map(|a| a.and_then(integers).map(|v| v as i32)).collect::<Time32MillisecondArray>())
        }
        DataType::Timestamp(_) => Arc::new(groups.map(|a| a.and_then(integers)).collect::<TimestampMicrosecondArray>()),
        DataType::TimestampLtz(_) => {
            Arc::new(groups.map(|a| a.and_then(integers)).collect::<TimestampMicrosecondArray>().with_timezone("UTC"))
        }
        DataType::Float => Arc::new(groups.map(|a| a.and_then(doubles).map(|v| v as f32)).collect::<Float32Array>()),
        DataType::Double => Arc::new(groups.map(|a| a.and_then(doubles)).collect::<Float64Array>()),
        DataType::Decimal(precision, scale) => {
            let array: Decimal128Array = groups.map(|a| a.and_then(|a| decimals(a, *scale))).collect();
            let rows = array.len();
            match array.with_precision_and_scale(*precision, i8::try_from(*scale).unwrap_or(0)) {
                Ok(array) => Arc::new(array),
                Err(_) => new_null_array(&call.data_type.arrow(), rows),
            }
        }
        DataType::String => Arc::new(groups.map(|a| a.and_then(strings)).collect::<StringArray>()),
        other => {
            let rows = groups.len();
            new_null_array(&other.arrow(), rows)
        }
    }
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
