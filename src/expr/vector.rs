//! Columns of values as kernels see them: an array with one value per row, or one value for all rows.
//!
//! The accessors are total: a value is NULL where the array is shorter or of another type than asked for, which a
//! well-typed expression never meets.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, PrimitiveArray, StringArray, UInt32Array,
    new_null_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType as ArrowType;

use super::eval::{EvalContext, RowErrors};

/// Longest string or byte value that an expression may make; a row that exceeds it fails.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The values of an expression for the rows of a batch.
#[derive(Clone, Debug)]
pub enum Operand {
    /// One value per row.
    Rows(ArrayRef),
    /// An array of length 1: the value for all rows.
    Scalar(ArrayRef),
}

/// What a kernel works in.
pub struct Scope<'a> {
    /// Rows of the result. 1 where all arguments are scalars.
    pub rows: usize,
    pub context: &'a EvalContext,
    pub errors: &'a mut RowErrors,
}

impl Scope<'_> {
    /// Notes that a row failed.
    pub fn fail(&mut self, row: usize, reason: impl Into<String>) {
        self.errors.push(row, reason.into());
    }
}

/// Values of a primitive type.
pub struct Numbers<'a, T: ArrowPrimitiveType> {
    pub values: &'a [T::Native],
    pub nulls: Option<&'a NullBuffer>,
    pub scalar: bool,
}

impl<T: ArrowPrimitiveType> Clone for Numbers<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ArrowPrimitiveType> Copy for Numbers<'_, T> {}

impl<T: ArrowPrimitiveType> Numbers<'_, T> {
    /// The value of a row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<T::Native> {
        let i = if self.scalar { 0 } else { row };
        if self.nulls.is_some_and(|nulls| nulls.is_null(i)) { None } else { self.values.get(i).copied() }
    }
}

/// Values of STRING.
#[derive(Clone, Copy)]
pub struct Strings<'a> {
    array: Option<&'a StringArray>,
    scalar: bool,
}

impl<'a> Strings<'a> {
    /// The value of a row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&'a str> {
        let i = if self.scalar { 0 } else { row };
        self.array.filter(|array| i < array.len() && array.is_valid(i)).map(|array| array.value(i))
    }
}

/// Values of BYTES.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    array: Option<&'a BinaryArray>,
    scalar: bool,
}

impl<'a> Bytes<'a> {
    /// The value of a row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        let i = if self.scalar { 0 } else { row };
        self.array.filter(|array| i < array.len() && array.is_valid(i)).map(|array| array.value(i))
    }
}

/// Values of BOOLEAN.
#[derive(Clone, Copy)]
pub struct Booleans<'a> {
    array: Option<&'a BooleanArray>,
    scalar: bool,
}

impl Booleans<'_> {
    /// The value of a row.
    #[inline]
    pub fn get(&self, row: usize) -> Option<bool> {
        let i = if self.scalar { 0 } else { row };
        self.array.filter(|array| i < array.len() && array.is_valid(i)).map(|array| array.value(i))
    }
}

impl Operand {
    /// The array behind it.
    pub fn array(&self) -> &ArrayRef {
        match self {
            Operand::Rows(array) | Operand::Scalar(array) => array,
        }
    }

    /// Whether one value stands for all rows.
    pub fn is_scalar(&self) -> bool {
        matches!(self, Operand::Scalar(_))
    }

    /// Whether every value is NULL because the one value is.
    pub fn is_null_scalar(&self) -> bool {
        matches!(self, Operand::Scalar(array) if array.is_empty() || array.is_null(0))
    }

    /// Index of a row's value in [`Operand::array`].
    pub fn index(&self, row: usize) -> usize {
        if self.is_scalar() { 0 } else { row }
    }

    /// The values as numbers.
    pub fn numbers<T: ArrowPrimitiveType>(&self) -> Numbers<'_, T> {
        match self.array().as_primitive_opt::<T>() {
            Some(array) => Numbers { values: array.values(), nulls: array.nulls(), scalar: self.is_scalar() },
            None => Numbers { values: &[], nulls: None, scalar: self.is_scalar() },
        }
    }

    /// The values as strings.
    pub fn strings(&self) -> Strings<'_> {
        Strings { array: self.array().as_string_opt::<i32>(), scalar: self.is_scalar() }
    }

    /// The values as byte strings.
    pub fn bytes(&self) -> Bytes<'_> {
        Bytes { array: self.array().as_binary_opt::<i32>(), scalar: self.is_scalar() }
    }

    /// The values as booleans.
    pub fn booleans(&self) -> Booleans<'_> {
        Booleans { array: self.array().as_boolean_opt(), scalar: self.is_scalar() }
    }

    /// One value per row.
    pub fn into_rows(self, rows: usize) -> ArrayRef {
        match self {
            Operand::Rows(array) => array,
            Operand::Scalar(array) if rows == 1 && array.len() == 1 => array,
            Operand::Scalar(array) => {
                let indices = UInt32Array::from(vec![0; rows]);
                match arrow_select::take::take(&array, &indices, None) {
                    Ok(repeated) => repeated,
                    Err(_) => new_null_array(array.data_type(), rows),
                }
            }
        }
    }
}

/// An array of numbers with the physical type `arrow_type` (timestamps and decimals carry parameters).
pub fn numbers_array<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    arrow_type: &ArrowType,
) -> ArrayRef {
    let rows = values.len();
    match PrimitiveArray::<T>::try_new(ScalarBuffer::from(values), nulls) {
        Ok(array) if PrimitiveArray::<T>::is_compatible(arrow_type) => {
            Arc::new(array.with_data_type(arrow_type.clone()))
        }
        _ => new_null_array(arrow_type, rows),
    }
}

/// Makes an array of numbers row by row. An error fails its row.
pub fn make_numbers<T: ArrowPrimitiveType>(
    scope: &mut Scope<'_>,
    arrow_type: &ArrowType,
    mut value: impl FnMut(usize) -> Result<Option<T::Native>, String>,
) -> ArrayRef {
    let mut values = Vec::with_capacity(scope.rows);
    let mut valid = Vec::with_capacity(scope.rows);
    for row in 0..scope.rows {
        let made = value(row).unwrap_or_else(|reason| {
            scope.fail(row, reason);
            None
        });
        valid.push(made.is_some());
        values.push(made.unwrap_or_default());
    }
    let nulls = NullBuffer::from(valid);
    numbers_array::<T>(values, (nulls.null_count() > 0).then_some(nulls), arrow_type)
}

/// Makes an array of booleans row by row. An error fails its row.
pub fn make_booleans(scope: &mut Scope<'_>, mut value: impl FnMut(usize) -> Result<Option<bool>, String>) -> ArrayRef {
    let mut values = Vec::with_capacity(scope.rows);
    for row in 0..scope.rows {
        values.push(value(row).unwrap_or_else(|reason| {
            scope.fail(row, reason);
            None
        }));
    }
    Arc::new(BooleanArray::from(values))
}

/// Makes an array of strings row by row: `value` appends to the buffer and says whether the row has a value. An error
/// fails its row.
pub fn make_strings(
    scope: &mut Scope<'_>,
    mut value: impl FnMut(usize, &mut String) -> Result<bool, String>,
) -> ArrayRef {
    let mut builder = StringBuilder::with_capacity(scope.rows, scope.rows * 8);
    let mut text = String::new();
    let mut total: usize = 0;
    for row in 0..scope.rows {
        text.clear();
        let made = value(row, &mut text).and_then(|is_some| {
            if is_some {
                checked_total(&mut total, text.len())?
            }
            Ok(is_some)
        });
        match made {
            Ok(true) => builder.append_value(&text),
            Ok(false) => builder.append_null(),
            Err(reason) => {
                scope.fail(row, reason);
                builder.append_null();
            }
        }
    }
    Arc::new(builder.finish())
}

/// Makes an array of byte strings row by row, as [`make_strings`].
pub fn make_bytes(
    scope: &mut Scope<'_>,
    mut value: impl FnMut(usize, &mut Vec<u8>) -> Result<bool, String>,
) -> ArrayRef {
    let mut builder = BinaryBuilder::with_capacity(scope.rows, scope.rows * 8);
    let mut bytes = Vec::new();
    let mut total: usize = 0;
    for row in 0..scope.rows {
        bytes.clear();
        let made = value(row, &mut bytes).and_then(|is_some| {
            if is_some {
                checked_total(&mut total, bytes.len())?
            }
            Ok(is_some)
        });
        match made {
            Ok(true) => builder.append_value(&bytes),
            Ok(false) => builder.append_null(),
            Err(reason) => {
                scope.fail(row, reason);
                builder.append_null();
            }
        }
    }
    Arc::new(builder.finish())
}

/// Counts the bytes of an array, whose offsets are 31 bits wide.
fn checked_total(total: &mut usize, length: usize) -> Result<(), String> {
    let sum = total.saturating_add(length);
    if length > VALUE_BYTES_MAX || i32::try_from(sum).is_err() {
        return Err(too_long());
    }
    *total = sum;
    Ok(())
}

/// The reason of a row whose value exceeds [`VALUE_BYTES_MAX`].
pub fn too_long() -> String {
    format!("a value would be longer than {} MiB", VALUE_BYTES_MAX >> 20)
}

/// An array of booleans from bits.
pub fn booleans_array(values: BooleanBuffer, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(BooleanArray::new(values, nulls.filter(|nulls| nulls.null_count() > 0)))
}

/// Where the rows of a two-sided kernel are NULL because a side is.
pub fn union_nulls<T: ArrowPrimitiveType, U: ArrowPrimitiveType>(
    left: &Numbers<'_, T>,
    right: &Numbers<'_, U>,
) -> Option<NullBuffer> {
    let left = if left.scalar { None } else { left.nulls };
    let right = if right.scalar { None } else { right.nulls };
    NullBuffer::union(left, right)
}
