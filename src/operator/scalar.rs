//! One value of any type, as accumulators keep it: taken out of a column and put into one again.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, PrimitiveArray, StringArray, StructArray, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType as ArrowType, Field as ArrowField};
use serde::{Deserialize, Serialize};

use crate::expr::DataType;
use crate::expr::types::arrow_fields;

/// One value of an argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scalar {
    /// Integers, dates, times, timestamps, booleans, intervals.
    Integer(i64),
    Double(f64),
    Decimal(i128),
    String(Box<str>),
    /// A value whose identity alone counted when it was stored.
    Opaque,
    Null,
    Bytes(Box<[u8]>),
    /// The items of an ARRAY, the entries of a MAP, the fields of a ROW.
    List(Box<[Scalar]>),
}

impl Scalar {
    /// Order of MIN and MAX; `None` with a NaN, as Java's `<` and `>` are false then.
    pub fn order(&self, other: &Scalar) -> Option<Ordering> {
        match (self, other) {
            (Scalar::Integer(a), Scalar::Integer(b)) => Some(a.cmp(b)),
            (Scalar::Double(a), Scalar::Double(b)) => a.partial_cmp(b),
            (Scalar::Decimal(a), Scalar::Decimal(b)) => Some(a.cmp(b)),
            (Scalar::String(a), Scalar::String(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// The value of a row of a column; NULL beyond its end.
    pub fn of(column: &dyn Array, row: usize) -> Scalar {
        if row >= column.len() || column.is_null(row) {
            return Scalar::Null;
        }
        fn number<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<T::Native> {
            column.as_primitive_opt::<T>().map(|column| column.value(row))
        }
        let value = match column.data_type() {
            ArrowType::Boolean => column.as_boolean_opt().map(|column| Scalar::Integer(column.value(row).into())),
            ArrowType::Int8 => number::<Int8Type>(column, row).map(|value| Scalar::Integer(value.into())),
            ArrowType::Int16 => number::<Int16Type>(column, row).map(|value| Scalar::Integer(value.into())),
            ArrowType::Int32 => number::<Int32Type>(column, row).map(|value| Scalar::Integer(value.into())),
            ArrowType::Int64 => number::<Int64Type>(column, row).map(Scalar::Integer),
            ArrowType::Date32 => number::<Date32Type>(column, row).map(|value| Scalar::Integer(value.into())),
            ArrowType::Time32(_) => {
                number::<Time32MillisecondType>(column, row).map(|value| Scalar::Integer(value.into()))
            }
            ArrowType::Timestamp(..) => number::<TimestampMicrosecondType>(column, row).map(Scalar::Integer),
            ArrowType::Float32 => number::<Float32Type>(column, row).map(|value| Scalar::Double(value.into())),
            ArrowType::Float64 => number::<Float64Type>(column, row).map(Scalar::Double),
            ArrowType::Decimal128(..) => number::<Decimal128Type>(column, row).map(Scalar::Decimal),
            ArrowType::Utf8 => column.as_string_opt::<i32>().map(|column| Scalar::String(column.value(row).into())),
            ArrowType::Binary => column.as_binary_opt::<i32>().map(|column| Scalar::Bytes(column.value(row).into())),
            ArrowType::List(_) => column.as_list_opt::<i32>().map(|column| {
                let items = column.value(row);
                Scalar::List((0..items.len()).map(|item| Scalar::of(items.as_ref(), item)).collect())
            }),
            ArrowType::Struct(_) => column.as_struct_opt().map(|column| {
                Scalar::List(column.columns().iter().map(|field| Scalar::of(field.as_ref(), row)).collect())
            }),
            _ => None,
        };
        value.unwrap_or(Scalar::Null)
    }
}

/// A column of this type; what is of another is NULL.
pub fn column(data_type: &DataType, values: &[Option<&Scalar>]) -> ArrayRef {
    let integer = |value: &Option<&Scalar>| match value {
        Some(Scalar::Integer(value)) => Some(*value),
        _ => None,
    };
    let double = |value: &Option<&Scalar>| match value {
        Some(Scalar::Double(value)) => Some(*value),
        _ => None,
    };
    let arrow_type = data_type.arrow();
    macro_rules! numbers {
        ($T:ty, $value:expr) => {{
            let array: PrimitiveArray<$T> = values.iter().map($value).collect();
            Arc::new(array.with_data_type(arrow_type))
        }};
    }
    match data_type {
        DataType::Boolean => {
            Arc::new(values.iter().map(|value| integer(value).map(|value| value != 0)).collect::<BooleanArray>())
        }
        DataType::TinyInt => numbers!(Int8Type, |value| integer(value).map(|value| value as i8)),
        DataType::SmallInt => numbers!(Int16Type, |value| integer(value).map(|value| value as i16)),
        DataType::Int => numbers!(Int32Type, |value| integer(value).map(|value| value as i32)),
        DataType::Date => numbers!(Date32Type, |value| integer(value).map(|value| value as i32)),
        DataType::Time => numbers!(Time32MillisecondType, |value| integer(value).map(|value| value as i32)),
        DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => numbers!(Int64Type, integer),
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => numbers!(TimestampMicrosecondType, integer),
        DataType::Float => numbers!(Float32Type, |value| double(value).map(|value| value as f32)),
        DataType::Double => numbers!(Float64Type, double),
        DataType::Decimal(..) => numbers!(Decimal128Type, |value| match value {
            Some(Scalar::Decimal(value)) => Some(*value),
            _ => None,
        }),
        DataType::String => {
            let text = |value: &Option<&Scalar>| match value {
                Some(Scalar::String(text)) => Some(String::from(&**text)),
                _ => None,
            };
            Arc::new(values.iter().map(text).collect::<StringArray>())
        }
        DataType::Bytes => {
            let bytes = |value: &Option<&Scalar>| match value {
                Some(Scalar::Bytes(bytes)) => Some(bytes.to_vec()),
                _ => None,
            };
            Arc::new(values.iter().map(bytes).collect::<BinaryArray>())
        }
        DataType::Array(item) => lists(item, values, data_type),
        DataType::Map(key, value) => lists(&DataType::entry(key, value), values, data_type),
        DataType::Row(fields) => {
            let parts = parts(values);
            let columns = fields.iter().enumerate().map(|(at, field)| {
                let values: Vec<Option<&Scalar>> = parts.iter().map(|parts| parts.and_then(|p| p.get(at))).collect();
                column(&field.data_type, &values)
            });
            let nulls = parts.iter().map(Option::is_some).collect::<Vec<bool>>().into();
            let columns = columns.collect();
            match StructArray::try_new_with_length(arrow_fields(fields), columns, Some(nulls), values.len()) {
                Ok(array) => Arc::new(array),
                Err(_) => new_null_array(&arrow_type, values.len()),
            }
        }
        DataType::Null => new_null_array(&arrow_type, values.len()),
    }
}

/// The parts of each value; `None` where it has none.
fn parts<'a>(values: &[Option<&'a Scalar>]) -> Vec<Option<&'a [Scalar]>> {
    let parts = |value: &Option<&'a Scalar>| match value {
        Some(Scalar::List(parts)) => Some(&**parts),
        _ => None,
    };
    values.iter().map(parts).collect()
}

fn lists(item: &DataType, values: &[Option<&Scalar>], data_type: &DataType) -> ArrayRef {
    let parts = parts(values);
    let items: Vec<Option<&Scalar>> = parts.iter().flatten().flat_map(|parts| parts.iter()).map(Some).collect();
    let offsets = OffsetBuffer::from_lengths(parts.iter().map(|parts| parts.map_or(0, <[Scalar]>::len)));
    let nulls = parts.iter().map(Option::is_some).collect::<Vec<bool>>().into();
    let field = Arc::new(ArrowField::new("item", item.arrow(), true));
    match ListArray::try_new(field, offsets, column(item, &items), Some(nulls)) {
        Ok(array) => Arc::new(array),
        Err(_) => new_null_array(&data_type.arrow(), values.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Field;

    #[test]
    fn every_type_comes_back_as_it_was() {
        use DataType as T;
        let ints = T::Array(Box::new(T::Int));
        let row = T::Row(vec![Field::new("a", T::String), Field::new("b", ints.clone())]);
        let list = |items: &[Scalar]| Scalar::List(items.into());
        let text = |text: &str| Scalar::String(text.into());
        for (data_type, value) in [
            (T::Boolean, Scalar::Integer(1)),
            (T::TinyInt, Scalar::Integer(-128)),
            (T::SmallInt, Scalar::Integer(32_767)),
            (T::Int, Scalar::Integer(-1)),
            (T::BigInt, Scalar::Integer(i64::MIN)),
            (T::Float, Scalar::Double(0.5)),
            (T::Double, Scalar::Double(-0.1)),
            (T::Decimal(38, 2), Scalar::Decimal(10_i128.pow(37))),
            (T::String, text("ä")),
            (T::Bytes, Scalar::Bytes([0, 255].into())),
            (T::Date, Scalar::Integer(-7)),
            (T::Time, Scalar::Integer(86_399_999)),
            (T::Timestamp(3), Scalar::Integer(-1000)),
            (T::TimestampLtz(6), Scalar::Integer(1)),
            (T::IntervalDayTime, Scalar::Integer(5)),
            (T::IntervalYearMonth, Scalar::Integer(13)),
            (ints.clone(), list(&[Scalar::Integer(1), Scalar::Null])),
            (ints.clone(), list(&[])),
            (row.clone(), list(&[text("x"), list(&[Scalar::Integer(3)])])),
            (row.clone(), list(&[Scalar::Null, Scalar::Null])),
            (T::Map(Box::new(T::String), Box::new(T::Double)), list(&[list(&[text("k"), Scalar::Double(1.0)])])),
            (T::Array(Box::new(row)), list(&[Scalar::Null, list(&[text("x"), list(&[])])])),
        ] {
            let made = column(&data_type, &[Some(&value), None, Some(&Scalar::Null)]);
            assert_eq!((made.data_type(), made.len()), (&data_type.arrow(), 3), "{data_type}");
            assert_eq!(Scalar::of(made.as_ref(), 0), value, "{data_type}");
            assert_eq!((Scalar::of(made.as_ref(), 1), Scalar::of(made.as_ref(), 2)), (Scalar::Null, Scalar::Null));
        }
        assert_eq!(column(&T::Int, &[Some(&text("no number"))]).null_count(), 1);
    }
}
