//! Keys as bytes whose order is the order of the keys: column by column, ascending, NULLs first (arrow-row format).
//!
//! Two rows have the same bytes when they belong to the same group. As in Flink, whose keys are compared as binary
//! rows, −0.0 and 0.0 are different groups; all NaNs are one group, the last.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, SortOptions};
use thiserror::Error;

use super::types::DataType;

/// Key columns that cannot be encoded or decoded: a bug of the caller.
#[derive(Debug, Error)]
pub enum KeyError {
    #[error("bug: the key columns do not fit the encoding")]
    Columns(#[source] ArrowError),
    #[error("bug: a column has {found} rows, not {rows}")]
    Length { rows: usize, found: usize },
}

impl From<ArrowError> for KeyError {
    fn from(error: ArrowError) -> KeyError {
        KeyError::Columns(error)
    }
}

/// Encoder and decoder of key columns. The memory of the encoded rows is kept from batch to batch.
pub struct RowKeys {
    converter: RowConverter,
    encoded: Rows,
    /// Keys of no columns are all the same, and empty.
    columns: usize,
    rows: usize,
}

impl RowKeys {
    /// For key columns of these types.
    ///
    /// # Errors
    /// A type has no order.
    pub fn new(types: &[DataType]) -> Result<RowKeys, KeyError> {
        let fields = types.iter().map(|data_type| SortField::new(data_type.arrow())).collect();
        let converter = RowConverter::new(fields)?;
        let encoded = converter.empty_rows(0, 0);
        Ok(RowKeys { converter, encoded, columns: types.len(), rows: 0 })
    }

    /// For columns of these types, each with whether it descends and whether its NULLs come first: bytes that sort so.
    ///
    /// # Errors
    /// A type has no order.
    pub fn ordered(columns: &[(DataType, bool, bool)]) -> Result<RowKeys, KeyError> {
        let field = |(data_type, descending, nulls_first): &(DataType, bool, bool)| {
            SortField::new_with_options(
                data_type.arrow(),
                SortOptions { descending: *descending, nulls_first: *nulls_first },
            )
        };
        let converter = RowConverter::new(columns.iter().map(field).collect())?;
        let encoded = converter.empty_rows(0, 0);
        Ok(RowKeys { converter, encoded, columns: columns.len(), rows: 0 })
    }

    /// Encodes the rows of a batch, in place of those before.
    ///
    /// # Errors
    /// The columns are not of the types given to [`RowKeys::new`], or not `rows` long.
    pub fn encode(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), KeyError> {
        self.encoded.clear();
        self.rows = 0;
        if let Some(column) = columns.iter().find(|column| column.len() != rows) {
            return Err(KeyError::Length { rows, found: column.len() });
        }
        if self.columns > 0 {
            let columns: Vec<ArrayRef> = columns.iter().map(with_one_nan).collect();
            self.converter.append(&mut self.encoded, &columns)?;
        }
        self.rows = rows;
        Ok(())
    }

    /// Number of rows encoded.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether no row is encoded.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The key of a row of the batch; empty beyond its end.
    pub fn row(&self, row: usize) -> &[u8] {
        if row < self.encoded.num_rows() { self.encoded.row(row).data() } else { &[] }
    }

    /// The columns that keys stand for. The bytes must come from [`RowKeys::encode`] for the same types: they are not
    /// checked here (what is read back from a checkpoint carries a CRC).
    ///
    /// # Errors
    /// The bytes hold no such columns.
    pub fn decode<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, KeyError> {
        if self.columns == 0 {
            return Ok(Vec::new());
        }
        let parser = self.converter.parser();
        let rows: Vec<_> = keys.into_iter().map(|key| parser.parse(key)).collect();
        Ok(self.converter.convert_rows(rows)?)
    }
}

/// The column with every NaN made the same one, whose bits depend on how it came about.
fn with_one_nan(column: &ArrayRef) -> ArrayRef {
    if let Some(doubles) = column.as_primitive_opt::<Float64Type>()
        && doubles.values().iter().any(|value| value.is_nan())
    {
        let one: PrimitiveArray<Float64Type> =
            doubles.unary(|value| if value.is_nan() { f64::NAN.abs() } else { value });
        return Arc::new(one);
    }
    if let Some(floats) = column.as_primitive_opt::<Float32Type>()
        && floats.values().iter().any(|value| value.is_nan())
    {
        let one: PrimitiveArray<Float32Type> =
            floats.unary(|value| if value.is_nan() { f32::NAN.abs() } else { value });
        return Arc::new(one);
    }
    Arc::clone(column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int32Array, StringArray};

    #[test]
    fn keys_sort_and_come_back() {
        let mut keys = RowKeys::new(&[DataType::String, DataType::Int]).unwrap();
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a"), Some("")]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(-1)]));
        keys.encode(&[names.clone(), numbers.clone()], 4).unwrap();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by(|a, b| keys.row(*a).cmp(keys.row(*b)));
        assert_eq!(order, [1, 3, 2, 0]);
        let decoded = keys.decode((0..4).map(|row| keys.row(row))).unwrap();
        assert_eq!(decoded, [names.clone(), numbers]);
        assert!(keys.encode(&[names], 3).is_err());
        assert!(keys.is_empty());
        assert_eq!(keys.row(9), b"");
    }

    #[test]
    fn all_nans_are_one_group_and_zeros_are_two() {
        let mut keys = RowKeys::new(&[DataType::Double]).unwrap();
        let values: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY]));
        keys.encode(&[values], 5).unwrap();
        assert_eq!(keys.row(0), keys.row(1));
        assert_ne!(keys.row(2), keys.row(3));
        assert!(keys.row(4) < keys.row(0));
    }

    #[test]
    fn no_columns_make_one_group() {
        let mut keys = RowKeys::new(&[]).unwrap();
        keys.encode(&[], 3).unwrap();
        assert_eq!((keys.len(), keys.row(0)), (3, &b""[..]));
        assert!(keys.decode([&b""[..]]).unwrap().is_empty());
    }
}
