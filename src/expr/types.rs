//! SQL types as Flink names them, their physical Arrow form, and schemas.
//!
//! Physical form: one Arrow type per SQL type, so that no code asks for units. Timestamps are microseconds whatever
//! their precision (0 to 6; a value is always a multiple of its precision), event time is milliseconds derived from
//! them. Decimals are `Decimal128`. Strings are `Utf8`, bytes `Binary`. Day-time intervals are milliseconds,
//! year-month intervals are months, both in `Int64`. A MAP is the list of its entries, rows of `key` and `value`, in the
//! order in which their keys first came: physically an `ARRAY<ROW<key, value>>`.

use std::fmt;

use arrow_schema::{DataType as ArrowType, Field as ArrowField, Fields, TimeUnit};
use serde::{Deserialize, Serialize};

/// A SQL type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DataType {
    /// The type of a bare NULL; casts implicitly to every type.
    Null,
    Boolean,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    Float,
    Double,
    /// `DECIMAL(precision, scale)`, precision 1 to 38, scale 0 to precision.
    Decimal(u8, u8),
    String,
    Bytes,
    /// Days since the Unix epoch.
    Date,
    /// Milliseconds since midnight.
    Time,
    /// `TIMESTAMP(p)`: a wall-clock time without zone, p from 0 to 6.
    Timestamp(u8),
    /// `TIMESTAMP_LTZ(p)`: an instant, p from 0 to 6.
    TimestampLtz(u8),
    /// `INTERVAL DAY TO SECOND`, milliseconds.
    IntervalDayTime,
    /// `INTERVAL YEAR TO MONTH`, months.
    IntervalYearMonth,
    Array(Box<DataType>),
    Row(Vec<Field>),
    /// Key and value type.
    Map(Box<DataType>, Box<DataType>),
}

/// A named, typed column or ROW field. Every column may be NULL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    pub name: String,
    pub data_type: DataType,
    /// A system column: can be named, is not part of `*`.
    pub hidden: bool,
}

impl Field {
    /// A visible field.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Field {
        Field { name: name.into(), data_type, hidden: false }
    }
}

/// The columns of a stream and which of them is its time attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    pub fields: Vec<Field>,
    /// Index of the column that watermarks speak about, where there is one.
    pub time: Option<usize>,
}

impl Schema {
    /// A schema without time attribute.
    pub fn new(fields: Vec<Field>) -> Schema {
        Schema { fields, time: None }
    }

    /// Index of the column with this name (case-sensitive, as in Flink).
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The type of a column.
    pub fn type_of(&self, column: usize) -> Option<&DataType> {
        self.fields.get(column).map(|field| &field.data_type)
    }
}

impl DataType {
    /// The Arrow type that holds this type's values.
    pub fn arrow(&self) -> ArrowType {
        match self {
            DataType::Null => ArrowType::Null,
            DataType::Boolean => ArrowType::Boolean,
            DataType::TinyInt => ArrowType::Int8,
            DataType::SmallInt => ArrowType::Int16,
            DataType::Int => ArrowType::Int32,
            DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => ArrowType::Int64,
            DataType::Float => ArrowType::Float32,
            DataType::Double => ArrowType::Float64,
            DataType::Decimal(precision, scale) => {
                ArrowType::Decimal128(*precision, i8::try_from(*scale).unwrap_or(i8::MAX))
            }
            DataType::String => ArrowType::Utf8,
            DataType::Bytes => ArrowType::Binary,
            DataType::Date => ArrowType::Date32,
            DataType::Time => ArrowType::Time32(TimeUnit::Millisecond),
            DataType::Timestamp(_) => ArrowType::Timestamp(TimeUnit::Microsecond, None),
            DataType::TimestampLtz(_) => ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            DataType::Array(item) => ArrowType::List(ArrowField::new("item", item.arrow(), true).into()),
            DataType::Row(fields) => ArrowType::Struct(arrow_fields(fields)),
            DataType::Map(key, value) => {
                ArrowType::List(ArrowField::new("item", DataType::entry(key, value).arrow(), true).into())
            }
        }
    }

    /// The ROW that is an entry of a MAP.
    pub fn entry(key: &DataType, value: &DataType) -> DataType {
        DataType::Row(vec![Field::new("key", key.clone()), Field::new("value", value.clone())])
    }

    /// Whether values of the type cannot be compared: a MAP, whose entries have no order, or something that holds one.
    pub fn has_map(&self) -> bool {
        match self {
            DataType::Map(..) => true,
            DataType::Array(item) => item.has_map(),
            DataType::Row(fields) => fields.iter().any(|field| field.data_type.has_map()),
            _ => false,
        }
    }

    /// Whether the type is one of the numbers.
    pub fn is_numeric(&self) -> bool {
        self.is_integer() || matches!(self, DataType::Float | DataType::Double | DataType::Decimal(..))
    }

    /// Whether the type is one of the integers.
    pub fn is_integer(&self) -> bool {
        matches!(self, DataType::TinyInt | DataType::SmallInt | DataType::Int | DataType::BigInt)
    }

    /// Whether the type can be a time attribute.
    pub fn is_timestamp(&self) -> bool {
        matches!(self, DataType::Timestamp(_) | DataType::TimestampLtz(_))
    }
}

/// Arrow fields of SQL fields, all nullable.
pub fn arrow_fields(fields: &[Field]) -> Fields {
    fields.iter().map(|field| ArrowField::new(&field.name, field.data_type.arrow(), true)).collect()
}

/// The type's name in Flink SQL, as it can be written in a config file or a CAST.
impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Null => f.write_str("NULL"),
            DataType::Boolean => f.write_str("BOOLEAN"),
            DataType::TinyInt => f.write_str("TINYINT"),
            DataType::SmallInt => f.write_str("SMALLINT"),
            DataType::Int => f.write_str("INT"),
            DataType::BigInt => f.write_str("BIGINT"),
            DataType::Float => f.write_str("FLOAT"),
            DataType::Double => f.write_str("DOUBLE"),
            DataType::Decimal(p, s) => write!(f, "DECIMAL({p}, {s})"),
            DataType::String => f.write_str("STRING"),
            DataType::Bytes => f.write_str("BYTES"),
            DataType::Date => f.write_str("DATE"),
            DataType::Time => f.write_str("TIME"),
            DataType::Timestamp(p) => write!(f, "TIMESTAMP({p})"),
            DataType::TimestampLtz(p) => write!(f, "TIMESTAMP_LTZ({p})"),
            DataType::IntervalDayTime => f.write_str("INTERVAL DAY TO SECOND"),
            DataType::IntervalYearMonth => f.write_str("INTERVAL YEAR TO MONTH"),
            DataType::Array(item) => write!(f, "ARRAY<{item}>"),
            DataType::Map(key, value) => write!(f, "MAP<{key}, {value}>"),
            DataType::Row(fields) => {
                f.write_str("ROW<")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    write!(f, "{comma}`{}` {}", field.name, field.data_type)?;
                }
                f.write_str(">")
            }
        }
    }
}
