//! Arrow columns under construction that can take a row back: the target of every decoder.
//!
//! A message is decoded straight into the columns. When it turns out to be undecodable, or a key comes twice, the
//! columns are cut back to the length they had ([`Column::truncate`]), so that no half row ever stays.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, ListArray, NullArray, PrimitiveArray, StringArray, StructArray,
    new_null_array,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType as ArrowType;
use base64::Engine as _;

use super::EpochUnit;
use super::parse::{self, Refusal};
use crate::expr::{DataType, Field};

/// A column under construction.
pub struct Column {
    pub data_type: DataType,
    arrow_type: ArrowType,
    nulls: NullBufferBuilder,
    pub values: Values,
    /// Else nobody wants the values: they are checked, not kept, and the array holds NULLs.
    read: bool,
    /// What numbers in a timestamp column count.
    unit: Option<EpochUnit>,
}

/// The values of a column so far, one (of any content) for each NULL as well.
pub enum Values {
    Null,
    Boolean(BooleanBufferBuilder),
    TinyInt(Vec<i8>),
    SmallInt(Vec<i16>),
    Int(Vec<i32>),
    BigInt(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal(Vec<i128>, u8, u8),
    String(Bytes),
    Bytes(Bytes),
    Date(Vec<i32>),
    Time(Vec<i32>),
    Timestamp(Vec<i64>, u8),
    TimestampLtz(Vec<i64>, u8),
    Array(List),
    Row(Row),
}

/// Values of varying length, one behind the other.
pub struct Bytes {
    data: Vec<u8>,
    /// End of each value, behind a leading 0.
    ends: Vec<i32>,
}

/// The items of all arrays of a column.
pub struct List {
    pub item: Box<Column>,
    /// Items up to the end of each array, behind a leading 0.
    ends: Vec<i32>,
}

/// The fields of a ROW column, or the columns of a stream.
pub struct Row {
    pub names: Names,
    pub columns: Vec<Column>,
}

/// Column names in order, found by name; made for keys that come in the declared order.
pub struct Names {
    list: Vec<Box<str>>,
    index: hashbrown::HashMap<Box<str>, usize, foldhash::fast::FixedState>,
}

impl Names {
    fn new(fields: &[Field]) -> Names {
        let list: Vec<Box<str>> = fields.iter().map(|field| field.name.as_str().into()).collect();
        let index = list.iter().enumerate().map(|(i, name)| (name.clone(), i)).collect();
        Names { list, index }
    }

    /// Index of the column with this name; `expected` is tried first.
    #[inline]
    pub fn find(&self, name: &str, expected: usize) -> Option<usize> {
        match self.list.get(expected) {
            Some(next) if **next == *name => Some(expected),
            _ => self.index.get(name).copied(),
        }
    }

    /// Name of a column; empty where there is none.
    pub fn get(&self, column: usize) -> &str {
        self.list.get(column).map_or("", |name| name)
    }
}

impl Row {
    /// Columns for a schema, empty.
    pub fn new(fields: &[Field]) -> Row {
        Row { names: Names::new(fields), columns: fields.iter().map(|field| Column::new(&field.data_type)).collect() }
    }

    /// Numbers in this timestamp column count `unit`s since 1970.
    pub fn count_time(&mut self, column: usize, unit: EpochUnit) {
        if let Some(column) = self.columns.get_mut(column) {
            column.unit = Some(unit);
        }
    }

    /// Only the values of these columns are wanted. (Those of an ARRAY, ROW or MAP are kept all the same.)
    pub fn keep_only(&mut self, read: &[bool]) {
        for (column, read) in self.columns.iter_mut().zip(read) {
            column.read = *read || matches!(column.values, Values::Array(_) | Values::Row(_));
        }
    }

    /// Cuts all columns to `rows` values.
    pub fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }

    /// Fills columns that have fewer than `rows` values with NULL.
    #[inline]
    pub fn complete(&mut self, rows: usize) {
        for column in &mut self.columns {
            if column.rows() < rows {
                column.push_null();
            }
        }
    }

    /// Makes room for `rows` more rows.
    pub fn reserve(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.reserve(rows));
    }

    /// The columns as arrays; leaves them empty.
    pub fn finish(&mut self) -> Vec<ArrayRef> {
        self.columns.iter_mut().map(Column::finish).collect()
    }
}

impl Bytes {
    fn new() -> Bytes {
        Bytes { data: Vec::new(), ends: vec![0] }
    }

    /// Appends what `write` appends to the data, and closes the value.
    #[inline]
    fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let start = self.data.len();
        let end = write(&mut self.data).and_then(|()| i32::try_from(self.data.len()).map_err(|_| Refusal::TooLarge));
        match end {
            Ok(end) => {
                self.ends.push(end);
                Ok(())
            }
            Err(refusal) => {
                self.data.truncate(start);
                Err(refusal)
            }
        }
    }

    fn push_empty(&mut self) {
        self.ends.push(self.ends.last().copied().unwrap_or(0));
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        self.data.truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let (ends, data) = (std::mem::replace(&mut self.ends, vec![0]), std::mem::take(&mut self.data));
        (OffsetBuffer::new(ScalarBuffer::from(ends)), Buffer::from(data))
    }
}

impl List {
    /// Closes an array: all items since the last one belong to it.
    fn close(&mut self) -> Result<(), Refusal> {
        let end = i32::try_from(self.item.rows()).map_err(|_| Refusal::TooLarge)?;
        self.ends.push(end);
        Ok(())
    }

    fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows + 1);
        self.item.truncate(self.ends.last().map_or(0, |end| *end as usize));
    }
}

impl Values {
    fn truncate(&mut self, rows: usize) {
        match self {
            Values::Null => {}
            Values::Boolean(v) => v.truncate(rows),
            Values::TinyInt(v) => v.truncate(rows),
            Values::SmallInt(v) => v.truncate(rows),
            Values::Int(v) | Values::Date(v) | Values::Time(v) => v.truncate(rows),
            Values::BigInt(v) | Values::Timestamp(v, _) | Values::TimestampLtz(v, _) => v.truncate(rows),
            Values::Float(v) => v.truncate(rows),
            Values::Double(v) => v.truncate(rows),
            Values::Decimal(v, _, _) => v.truncate(rows),
            Values::String(v) | Values::Bytes(v) => v.truncate(rows),
            Values::Array(list) => list.truncate(rows),
            Values::Row(row) => row.truncate(rows),
        }
    }
}

impl Column {
    /// An empty column of a type.
    pub fn new(data_type: &DataType) -> Column {
        let values = match data_type {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            DataType::TinyInt => Values::TinyInt(Vec::new()),
            DataType::SmallInt => Values::SmallInt(Vec::new()),
            DataType::Int => Values::Int(Vec::new()),
            DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => Values::BigInt(Vec::new()),
            DataType::Float => Values::Float(Vec::new()),
            DataType::Double => Values::Double(Vec::new()),
            DataType::Decimal(precision, scale) => Values::Decimal(Vec::new(), *precision, *scale),
            DataType::String => Values::String(Bytes::new()),
            DataType::Bytes => Values::Bytes(Bytes::new()),
            DataType::Date => Values::Date(Vec::new()),
            DataType::Time => Values::Time(Vec::new()),
            DataType::Timestamp(precision) => Values::Timestamp(Vec::new(), *precision),
            DataType::TimestampLtz(precision) => Values::TimestampLtz(Vec::new(), *precision),
            DataType::Array(item) => Values::Array(List { item: Box::new(Column::new(item)), ends: vec![0] }),
            DataType::Row(fields) => Values::Row(Row::new(fields)),
            DataType::Map(key, value) => {
                let entry = Column::new(&DataType::entry(key, value));
                Values::Array(List { item: Box::new(entry), ends: vec![0] })
            }
        };
        Column {
            data_type: data_type.clone(),
            arrow_type: data_type.arrow(),
            nulls: NullBufferBuilder::new(0),
            values,
            read: true,
            unit: None,
        }
    }

    /// Number of values. A value that is being pushed counts when it is complete.
    #[inline]
    pub fn rows(&self) -> usize {
        self.nulls.len()
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        if !self.read {
            return self.nulls.append_non_null();
        }
        match &mut self.values {
            Values::Null => {}
            Values::Boolean(v) => v.append(false),
            Values::TinyInt(v) => v.push(0),
            Values::SmallInt(v) => v.push(0),
            Values::Int(v) | Values::Date(v) | Values::Time(v) => v.push(0),
            Values::BigInt(v) | Values::Timestamp(v, _) | Values::TimestampLtz(v, _) => v.push(0),
            Values::Float(v) => v.push(0.0),
            Values::Double(v) => v.push(0.0),
            Values::Decimal(v, _, _) => v.push(0),
            Values::String(v) | Values::Bytes(v) => v.push_empty(),
            Values::Array(list) => list.ends.push(list.ends.last().copied().unwrap_or(0)),
            Values::Row(row) => row.columns.iter_mut().for_each(Column::push_null),
        }
        self.nulls.append_null();
    }

    /// Appends the value that a scalar's text denotes: the content of a string, or a number or boolean as written.
    ///
    /// # Errors
    /// It denotes none; the column is as before.
    #[inline]
    pub fn push_text(&mut self, text: &str) -> Result<(), Refusal> {
        match &mut self.values {
            Values::Null => return Err(Refusal::Malformed),
            Values::Boolean(v) => v.append(parse::boolean(text)?),
            Values::TinyInt(v) => v.push(narrow(parse::integer(text)?)?),
            Values::SmallInt(v) => v.push(narrow(parse::integer(text)?)?),
            Values::Int(v) => v.push(narrow(parse::integer(text)?)?),
            Values::BigInt(v) => v.push(parse::integer(text)?),
            Values::Float(v) => v.push(parse::float(text)?),
            Values::Double(v) => v.push(parse::double(text)?),
            Values::Decimal(v, precision, scale) => v.push(parse::decimal(text, *precision, *scale)?),
            Values::String(v) => v.push_with(|data| {
                data.extend_from_slice(text.as_bytes());
                Ok(())
            })?,
            Values::Bytes(v) => v.push_with(|data| decode_base64(text, data))?,
            Values::Date(v) => v.push(parse::date(text)?),
            Values::Time(v) => v.push(parse::time(text)?),
            Values::Timestamp(v, precision) => {
                let value = match parse::timestamp(text, *precision) {
                    Err(Refusal::Malformed) => counted(text, self.unit, *precision)?,
                    parsed => parsed?,
                };
                v.push(value);
            }
            Values::TimestampLtz(v, precision) => {
                let value = match parse::timestamp_ltz(text, *precision) {
                    Err(Refusal::Malformed) => counted(text, self.unit, *precision)?,
                    parsed => parsed?,
                };
                v.push(value);
            }
            Values::Array(_) | Values::Row(_) => return Err(Refusal::Malformed),
        }
        self.pushed();
        Ok(())
    }

    /// Appends to a DOUBLE column.
    #[inline]
    pub fn push_double(&mut self, value: f64) {
        if let Values::Double(v) = &mut self.values {
            v.push(value);
            self.pushed();
        }
    }

    /// Appends to a STRING or BYTES column what `write` appends to the bytes given; for STRING it must be UTF-8.
    ///
    /// # Errors
    /// `write` refused, or the column is of another type; the column is as before.
    #[inline]
    pub fn push_bytes(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let (Values::String(v) | Values::Bytes(v)) = &mut self.values else { return Err(Refusal::Malformed) };
        v.push_with(write)?;
        self.pushed();
        Ok(())
    }

    /// A value was pushed.
    #[inline]
    fn pushed(&mut self) {
        self.nulls.append_non_null();
        if !self.read {
            self.values.truncate(0);
        }
    }

    /// Completes an ARRAY whose items, or a ROW whose fields, were pushed.
    ///
    /// # Errors
    /// More items than a batch can hold.
    pub fn close(&mut self) -> Result<(), Refusal> {
        match &mut self.values {
            Values::Array(list) => list.close()?,
            Values::Row(row) => row.complete(self.nulls.len() + 1),
            _ => return Err(Refusal::Malformed),
        }
        self.nulls.append_non_null();
        Ok(())
    }

    /// Cuts the column to `rows` values, whatever was pushed or half pushed since.
    pub fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.nulls.truncate(rows);
    }

    fn reserve(&mut self, rows: usize) {
        if !self.read {
            return;
        }
        match &mut self.values {
            Values::Null => {}
            Values::Boolean(v) => v.reserve(rows),
            Values::TinyInt(v) => v.reserve(rows),
            Values::SmallInt(v) => v.reserve(rows),
            Values::Int(v) | Values::Date(v) | Values::Time(v) => v.reserve(rows),
            Values::BigInt(v) | Values::Timestamp(v, _) | Values::TimestampLtz(v, _) => v.reserve(rows),
            Values::Float(v) => v.reserve(rows),
            Values::Double(v) => v.reserve(rows),
            Values::Decimal(v, _, _) => v.reserve(rows),
            Values::String(v) | Values::Bytes(v) => v.ends.reserve(rows),
            Values::Array(list) => list.ends.reserve(rows),
            Values::Row(row) => row.reserve(rows),
        }
    }

    /// The column as an array; leaves it empty.
    pub fn finish(&mut self) -> ArrayRef {
        let rows = self.nulls.len();
        let nulls = self.nulls.finish();
        let of = &self.arrow_type;
        if !self.read {
            return new_null_array(of, rows);
        }
        match &mut self.values {
            Values::Null => Arc::new(NullArray::new(rows)),
            Values::Boolean(v) => Arc::new(BooleanArray::new(v.finish(), nulls)),
            Values::TinyInt(v) => primitive::<Int8Type>(v, nulls, of),
            Values::SmallInt(v) => primitive::<Int16Type>(v, nulls, of),
            Values::Int(v) => primitive::<Int32Type>(v, nulls, of),
            Values::BigInt(v) => primitive::<Int64Type>(v, nulls, of),
            Values::Float(v) => primitive::<Float32Type>(v, nulls, of),
            Values::Double(v) => primitive::<Float64Type>(v, nulls, of),
            Values::Decimal(v, _, _) => primitive::<Decimal128Type>(v, nulls, of),
            Values::String(v) => {
                let (ends, data) = v.finish();
                Arc::new(StringArray::new(ends, data, nulls))
            }
            Values::Bytes(v) => {
                let (ends, data) = v.finish();
                Arc::new(BinaryArray::new(ends, data, nulls))
            }
            Values::Date(v) => primitive::<Date32Type>(v, nulls, of),
            Values::Time(v) => primitive::<Time32MillisecondType>(v, nulls, of),
            Values::Timestamp(v, _) | Values::TimestampLtz(v, _) => primitive::<TimestampMicrosecondType>(v, nulls, of),
            Values::Array(list) => {
                let ends = std::mem::replace(&mut list.ends, vec![0]);
                let item = list.item.finish();
                let field = match of {
                    ArrowType::List(field) => Arc::clone(field),
                    _ => Arc::new(arrow_schema::Field::new("item", item.data_type().clone(), true)),
                };
                Arc::new(ListArray::new(field, OffsetBuffer::new(ScalarBuffer::from(ends)), item, nulls))
            }
            Values::Row(row) => {
                let fields = match of {
                    ArrowType::Struct(fields) => fields.clone(),
                    _ => arrow_schema::Fields::empty(),
                };
                if fields.is_empty() {
                    Arc::new(StructArray::new_empty_fields(rows, nulls))
                } else {
                    Arc::new(StructArray::new(fields, row.finish(), nulls))
                }
            }
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
    of: &ArrowType,
) -> ArrayRef {
    let values = ScalarBuffer::from(std::mem::take(values));
    Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(of.clone()))
}

#[inline]
fn narrow<T: TryFrom<i64>>(value: i64) -> Result<T, Refusal> {
    T::try_from(value).map_err(|_| Refusal::OutOfRange)
}

/// A number in a timestamp column.
fn counted(text: &str, unit: Option<EpochUnit>, precision: u8) -> Result<i64, Refusal> {
    match unit {
        Some(unit) => parse::cut(parse::epoch_micros(text, unit.exponent())?, precision),
        None if parse::epoch_micros(text, 0).is_err_and(|refusal| refusal == Refusal::Malformed) => {
            Err(Refusal::Malformed)
        }
        None => Err(Refusal::UnitMissing),
    }
}

/// Standard base64, padded or not, with white space around it.
fn decode_base64(text: &str, out: &mut Vec<u8>) -> Result<(), Refusal> {
    use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    ENGINE.decode_vec(text.trim_ascii(), out).map_err(|_| Refusal::Malformed)
}
