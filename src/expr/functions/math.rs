//! Functions of numbers. Doubles as in `java.lang.Math` up to the last digit of the transcendental ones, which the
//! platform's mathematical library decides.

use arrow_array::ArrayRef;
use arrow_array::new_null_array;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};

use super::{Function, Refusal, Resolved, bigint, call, double, exactly, int, literal_integer};
use crate::expr::build::{self, BinaryOp, Expr, Value};
use crate::expr::decimal::{self, Direction};
use crate::expr::text;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, Scope, make_numbers, make_strings, numbers_array};

pub const FUNCTIONS: &[Function] = &[
    Function { name: "ABS", parameters: "number", resolve: |args| numeric("ABS", args, abs) },
    Function { name: "SIGN", parameters: "number", resolve: |args| numeric("SIGN", args, sign) },
    Function { name: "CEIL", parameters: "number", resolve: |args| whole("CEIL", args, Direction::Ceil) },
    Function { name: "CEILING", parameters: "number", resolve: |args| whole("CEIL", args, Direction::Ceil) },
    Function { name: "FLOOR", parameters: "number", resolve: |args| whole("FLOOR", args, Direction::Floor) },
    Function { name: "ROUND", parameters: "number [, INT]", resolve: |args| round("ROUND", args, true) },
    Function { name: "TRUNCATE", parameters: "number [, INT]", resolve: |args| round("TRUNCATE", args, false) },
    Function { name: "MOD", parameters: "number, number", resolve: modulo },
    Function { name: "POWER", parameters: "number, number", resolve: |args| two("POWER", args, f64::powf) },
    Function { name: "SQRT", parameters: "number", resolve: |args| one("SQRT", args, f64::sqrt) },
    Function { name: "EXP", parameters: "number", resolve: |args| one("EXP", args, f64::exp) },
    Function { name: "LN", parameters: "number", resolve: |args| one("LN", args, f64::ln) },
    Function { name: "LOG", parameters: "[base,] number", resolve: log },
    Function { name: "LOG10", parameters: "number", resolve: |args| one("LOG10", args, f64::log10) },
    Function { name: "LOG2", parameters: "number", resolve: |args| one("LOG2", args, |x| x.ln() / 2_f64.ln()) },
    Function { name: "SIN", parameters: "number", resolve: |args| one("SIN", args, f64::sin) },
    Function { name: "COS", parameters: "number", resolve: |args| one("COS", args, f64::cos) },
    Function { name: "TAN", parameters: "number", resolve: |args| one("TAN", args, f64::tan) },
    Function { name: "COT", parameters: "number", resolve: |args| one("COT", args, |x| 1.0 / x.tan()) },
    Function { name: "ASIN", parameters: "number", resolve: |args| one("ASIN", args, f64::asin) },
    Function { name: "ACOS", parameters: "number", resolve: |args| one("ACOS", args, f64::acos) },
    Function { name: "ATAN", parameters: "number", resolve: |args| one("ATAN", args, f64::atan) },
    Function { name: "ATAN2", parameters: "number, number", resolve: |args| two("ATAN2", args, f64::atan2) },
    Function { name: "SINH", parameters: "number", resolve: |args| one("SINH", args, f64::sinh) },
    Function { name: "COSH", parameters: "number", resolve: |args| one("COSH", args, f64::cosh) },
    Function { name: "TANH", parameters: "number", resolve: |args| one("TANH", args, f64::tanh) },
    Function { name: "DEGREES", parameters: "number", resolve: |args| one("DEGREES", args, f64::to_degrees) },
    Function { name: "RADIANS", parameters: "number", resolve: |args| one("RADIANS", args, f64::to_radians) },
    Function { name: "PI", parameters: "", resolve: |args| constant(args, std::f64::consts::PI) },
    Function { name: "E", parameters: "", resolve: |args| constant(args, std::f64::consts::E) },
    Function { name: "HEX", parameters: "BIGINT or STRING", resolve: hex },
    Function { name: "BIN", parameters: "BIGINT", resolve: bin },
];

fn constant(args: Vec<Expr>, value: f64) -> Resolved {
    let []: [Expr; 0] = exactly(args)?;
    Ok(build::literal(Value::Double(value), DataType::Double))
}

fn one(name: &'static str, args: Vec<Expr>, f: fn(f64) -> f64) -> Resolved {
    let [x] = exactly(args)?;
    Ok(call(name, vec![double(x)?], DataType::Double, move |args, scope| map::<Float64Type>(args, scope, f)))
}

fn two(name: &'static str, args: Vec<Expr>, f: fn(f64, f64) -> f64) -> Resolved {
    let [x, y] = exactly(args)?;
    Ok(call(name, vec![double(x)?, double(y)?], DataType::Double, move |args, scope| {
        let [x, y] = args else { return new_null_array(&DataType::Double.arrow(), scope.rows) };
        let (x, y) = (x.numbers::<Float64Type>(), y.numbers::<Float64Type>());
        make_numbers::<Float64Type>(scope, &DataType::Double.arrow(), |row| {
            Ok(x.get(row).zip(y.get(row)).map(|(x, y)| f(x, y)))
        })
    }))
}

fn log(args: Vec<Expr>) -> Resolved {
    if args.len() == 1 { one("LOG", args, f64::ln) } else { two("LOG", args, |base, x| x.ln() / base.ln()) }
}

fn modulo(args: Vec<Expr>) -> Resolved {
    let [x, y] = exactly(args)?;
    Ok(build::binary(BinaryOp::Modulo, x, y)?)
}

/// Applies `f` to every value of a column that has the type of its result.
fn map<T: ArrowPrimitiveType>(args: &[Operand], scope: &Scope<'_>, f: impl Fn(T::Native) -> T::Native) -> ArrayRef {
    let Some(arg) = args.first() else { return new_null_array(&T::DATA_TYPE, scope.rows) };
    let numbers = arg.numbers::<T>();
    let values = numbers.values.iter().map(|value| f(*value)).collect();
    numbers_array::<T>(values, numbers.nulls.cloned(), arg.array().data_type())
}

/// A function whose result has the type of its argument.
fn numeric(name: &'static str, args: Vec<Expr>, kernel: fn(&DataType, &[Operand], &Scope<'_>) -> ArrayRef) -> Resolved {
    let [x] = exactly(args)?;
    let x = if x.data_type == DataType::Null { build::implicit_cast(x, &DataType::Int) } else { x };
    if !x.data_type.is_numeric() {
        return Err(Refusal::Arguments);
    }
    let data_type = x.data_type.clone();
    Ok(call(name, vec![x], data_type.clone(), move |args, scope| kernel(&data_type, args, scope)))
}

/// The smallest integer has no positive counterpart and stays, as in Java.
fn abs(data_type: &DataType, args: &[Operand], scope: &Scope<'_>) -> ArrayRef {
    match data_type {
        DataType::TinyInt => map::<Int8Type>(args, scope, i8::wrapping_abs),
        DataType::SmallInt => map::<Int16Type>(args, scope, i16::wrapping_abs),
        DataType::Int => map::<Int32Type>(args, scope, i32::wrapping_abs),
        DataType::BigInt => map::<Int64Type>(args, scope, i64::wrapping_abs),
        DataType::Float => map::<Float32Type>(args, scope, f32::abs),
        DataType::Double => map::<Float64Type>(args, scope, f64::abs),
        DataType::Decimal(..) => map::<Decimal128Type>(args, scope, i128::wrapping_abs),
        other => new_null_array(&other.arrow(), scope.rows),
    }
}

fn sign(data_type: &DataType, args: &[Operand], scope: &Scope<'_>) -> ArrayRef {
    // Zeros and NaN are their own sign.
    match data_type {
        DataType::TinyInt => map::<Int8Type>(args, scope, i8::signum),
        DataType::SmallInt => map::<Int16Type>(args, scope, i16::signum),
        DataType::Int => map::<Int32Type>(args, scope, i32::signum),
        DataType::BigInt => map::<Int64Type>(args, scope, i64::signum),
        DataType::Float => map::<Float32Type>(args, scope, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
        DataType::Double => map::<Float64Type>(args, scope, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
        DataType::Decimal(_, scale) => {
            let one = decimal::pow10(u32::from(*scale)).unwrap_or(1);
            map::<Decimal128Type>(args, scope, |x| x.signum() * one)
        }
        other => new_null_array(&other.arrow(), scope.rows),
    }
}

/// CEIL and FLOOR: integers stay, a DECIMAL loses its scale.
fn whole(name: &'static str, args: Vec<Expr>, direction: Direction) -> Resolved {
    let [x] = exactly(args)?;
    let up = direction == Direction::Ceil;
    match x.data_type.clone() {
        data_type if data_type.is_integer() => Ok(x),
        DataType::Null => Ok(build::implicit_cast(x, &DataType::Int)),
        DataType::Float => Ok(call(name, vec![x], DataType::Float, move |args, scope| {
            map::<Float32Type>(args, scope, if up { f32::ceil } else { f32::floor })
        })),
        DataType::Double => Ok(call(name, vec![x], DataType::Double, move |args, scope| {
            map::<Float64Type>(args, scope, if up { f64::ceil } else { f64::floor })
        })),
        DataType::Decimal(precision, scale) => {
            let to = DataType::Decimal(precision, 0);
            let arrow_type = to.arrow();
            Ok(call(name, vec![x], to, move |args, scope| {
                let Some(arg) = args.first() else { return new_null_array(&arrow_type, scope.rows) };
                let numbers = arg.numbers::<Decimal128Type>();
                let values =
                    numbers.values.iter().map(|value| decimal::to_integral(*value, scale, direction)).collect();
                numbers_array::<Decimal128Type>(values, numbers.nulls.cloned(), &arrow_type)
            }))
        }
        _ => Err(Refusal::Arguments),
    }
}

/// ROUND (half away from zero) and TRUNCATE (towards zero) to a number of decimals, which may be negative. Doubles
/// are rounded as the decimal numbers they are written as. A NaN or infinity fails its row, as in Flink.
fn round(name: &'static str, args: Vec<Expr>, half: bool) -> Resolved {
    let mut args = args.into_iter();
    let x = args.next().ok_or(Refusal::Arguments)?;
    let places = match args.next() {
        Some(places) => int(places)?,
        None => build::literal(Value::Integer(0), DataType::Int),
    };
    if args.next().is_some() {
        return Err(Refusal::Arguments);
    }
    let x = if x.data_type == DataType::Null { build::implicit_cast(x, &DataType::Int) } else { x };
    let from = x.data_type.clone();
    if !from.is_numeric() {
        return Err(Refusal::Arguments);
    }
    let to = match (&from, literal_integer(&places)) {
        (DataType::Decimal(precision, scale), Some(places)) => {
            let places = i32::try_from(places).unwrap_or(0);
            let (precision, scale) = decimal::round_shape((*precision, *scale), places);
            DataType::Decimal(precision, scale)
        }
        _ => from.clone(),
    };
    let float = matches!(from, DataType::Float | DataType::Double);
    let make = if float { super::fallible_call } else { call };
    let result = to.clone();
    let kernel = move |args: &[Operand], scope: &mut Scope<'_>| -> ArrayRef {
        let arrow_type = result.arrow();
        let [x, places] = args else { return new_null_array(&arrow_type, scope.rows) };
        let places = places.numbers::<Int32Type>();
        macro_rules! integers {
            ($T:ty, $native:ty) => {{
                let x = x.numbers::<$T>();
                make_numbers::<$T>(scope, &arrow_type, |row| {
                    Ok(x.get(row)
                        .zip(places.get(row))
                        .map(|(x, places)| round_integer(x.into(), places, half) as $native))
                })
            }};
        }
        let not_finite =
            |x: f64| if x.is_finite() { Ok(x) } else { Err(format!("{name} of a value that is not finite")) };
        match &from {
            DataType::TinyInt => integers!(Int8Type, i8),
            DataType::SmallInt => integers!(Int16Type, i16),
            DataType::Int => integers!(Int32Type, i32),
            DataType::BigInt => integers!(Int64Type, i64),
            DataType::Float => {
                let x = x.numbers::<Float32Type>();
                make_numbers::<Float32Type>(scope, &arrow_type, |row| {
                    let Some((x, places)) = x.get(row).zip(places.get(row)) else { return Ok(None) };
                    Ok(Some(text::round_decimal(not_finite(x.into())?, places, half) as f32))
                })
            }
            DataType::Double => {
                let x = x.numbers::<Float64Type>();
                make_numbers::<Float64Type>(scope, &arrow_type, |row| {
                    let Some((x, places)) = x.get(row).zip(places.get(row)) else { return Ok(None) };
                    Ok(Some(text::round_decimal(not_finite(x)?, places, half)))
                })
            }
            DataType::Decimal(_, scale) => {
                let DataType::Decimal(to_precision, to_scale) = result else {
                    return new_null_array(&arrow_type, scope.rows);
                };
                let x = x.numbers::<Decimal128Type>();
                make_numbers::<Decimal128Type>(scope, &arrow_type, |row| {
                    let Some((x, places)) = x.get(row).zip(places.get(row)) else { return Ok(None) };
                    let rounded = round_unscaled(x, i32::from(*scale).saturating_sub(places), half);
                    Ok(decimal::rescale(rounded, *scale, (to_precision, to_scale)))
                })
            }
            _ => new_null_array(&arrow_type, scope.rows),
        }
    };
    Ok(make(name, vec![x, places], to, kernel))
}

fn round_integer(x: i64, places: i32, half: bool) -> i128 {
    round_unscaled(x.into(), places.saturating_neg(), half)
}

/// Makes the last `drop` digits zero, where there are any to drop.
fn round_unscaled(x: i128, drop: i32, half: bool) -> i128 {
    let Ok(drop) = u32::try_from(drop) else { return x };
    let Some(power) = decimal::pow10(drop) else { return 0 };
    let (quotient, remainder) = (x / power, x % power);
    let away = if half && remainder.unsigned_abs() >= power.unsigned_abs().div_ceil(2) && remainder != 0 {
        x.signum()
    } else {
        0
    };
    (quotient + away).saturating_mul(power)
}

fn hex(args: Vec<Expr>) -> Resolved {
    let [x] = exactly(args)?;
    if matches!(x.data_type, DataType::String | DataType::Null) {
        let x = super::string(x)?;
        return Ok(super::fallible_call("HEX", vec![x], DataType::String, |args, scope| {
            let Some(arg) = args.first() else { return new_null_array(&DataType::String.arrow(), scope.rows) };
            let strings = arg.strings();
            make_strings(scope, |row, out| {
                let Some(value) = strings.get(row) else { return Ok(false) };
                crate::expr::cast::push_hex(value.as_bytes(), out);
                out.make_ascii_uppercase();
                Ok(true)
            })
        }));
    }
    integer_text("HEX", bigint(x)?, |value| format!("{value:X}"))
}

fn bin(args: Vec<Expr>) -> Resolved {
    let [x] = exactly(args)?;
    integer_text("BIN", bigint(x)?, |value| format!("{value:b}"))
}

fn integer_text(name: &'static str, x: Expr, write: fn(i64) -> String) -> Resolved {
    Ok(call(name, vec![x], DataType::String, move |args, scope| {
        let Some(arg) = args.first() else { return new_null_array(&DataType::String.arrow(), scope.rows) };
        let numbers = arg.numbers::<Int64Type>();
        make_strings(scope, |row, out| {
            let Some(value) = numbers.get(row) else { return Ok(false) };
            out.push_str(&write(value));
            Ok(true)
        })
    }))
}
