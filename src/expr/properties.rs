//! Properties of all expressions, and behaviour that no conformance case shows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, ListArray, PrimitiveArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::Field as ArrowField;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::build::{self, BinaryOp, Expr, Test, TimeUnit, TrimSide, Value};
use super::cast;
use super::eval::{Batch, EvalContext, RowErrors, eval, eval_predicate};
use super::functions;
use super::types::{DataType, Field, Schema, arrow_fields};

fn context() -> EvalContext {
    EvalContext { time_zone: TimeZone::get("Europe/Berlin").unwrap() }
}

/// Evaluates over columns and shows the values of all rows as text.
fn shown(expr: &Expr, columns: &[ArrayRef], rows: usize) -> (Vec<String>, Vec<(u32, String)>) {
    let mut errors = RowErrors::default();
    let array = eval(expr, &Batch { columns, rows }, &context(), &mut errors);
    let text = |row| {
        let mut out = String::new();
        let some = cast::append_text(array.as_ref(), row, &expr.data_type, &context().time_zone, &mut out);
        if some { out } else { "NULL".to_owned() }
    };
    ((0..rows).map(text).collect(), errors.list)
}

/// The value of an expression without columns; an error is shown after a `!`.
fn value(expr: &Expr) -> String {
    let (values, errors) = shown(expr, &[], 1);
    match errors.first() {
        Some((_, reason)) => format!("!{reason}"),
        None => values[0].clone(),
    }
}

fn num(text: &str) -> Expr {
    match text.strip_prefix('-') {
        Some(text) => build::negate(build::number_literal(text).unwrap()).unwrap(),
        None => build::number_literal(text).unwrap(),
    }
}

fn str(text: &str) -> Expr {
    build::string_literal(text)
}

fn call(name: &str, args: Vec<Expr>) -> String {
    value(&build::function(name, args).unwrap())
}

fn cast_text(text: &str, to: DataType) -> String {
    value(&build::cast(str(text), &to, false).unwrap())
}

#[test]
fn functions_give_what_flink_gives() {
    let null = || build::null();
    for (name, args, expected) in [
        ("SUBSTRING", vec![str("Fräse"), num("-3")], "äse"),
        ("SUBSTRING", vec![str("Fräse"), num("0"), num("2")], "Fr"),
        ("SUBSTRING", vec![str("Fräse"), num("9")], ""),
        ("SUBSTRING", vec![str("Fräse"), num("2"), num("-1")], "NULL"),
        ("LPAD", vec![str("hi"), num("4"), str("??")], "??hi"),
        ("LPAD", vec![str("hi"), num("1"), str("??")], "h"),
        ("LPAD", vec![str("hi"), num("-1"), str("?")], "NULL"),
        ("RPAD", vec![str("hi"), num("5"), str("ab")], "hiaba"),
        ("LEFT", vec![str("äöü"), num("2")], "äö"),
        ("RIGHT", vec![str("äöü"), num("2")], "öü"),
        ("INITCAP", vec![str("hELLO w0rLD-x")], "Hello W0rld-X"),
        ("REVERSE", vec![str("aä")], "äa"),
        ("ASCII", vec![str("A")], "65"),
        ("CHR", vec![num("97")], "a"),
        ("REPEAT", vec![str("ab"), num("3")], "ababab"),
        ("REPEAT", vec![str("ab"), num("99999999")], "!a value would be longer than 16 MiB"),
        ("CONCAT", vec![str("a"), null()], "NULL"),
        ("CONCAT_WS", vec![str("~"), str("AA"), null(), str(""), str("CC")], "AA~~CC"),
        ("INSTR", vec![str("Corporate Floor"), str("or"), num("3"), num("2")], "14"),
        ("INSTR", vec![str("Corporate Floor"), str("or"), num("-3"), num("2")], "2"),
        ("LOCATE", vec![str("r"), str("Corporate"), num("4")], "6"),
        ("SPLIT_INDEX", vec![str("a;b;;c"), str(";"), num("2")], ""),
        ("SPLIT_INDEX", vec![str("a;b"), num("59"), num("1")], "b"),
        ("SPLIT_INDEX", vec![str("a;b"), str(";"), num("2")], "NULL"),
        ("OVERLAY", vec![str("xxxxxtest"), str("xxxx"), num("6"), num("2")], "xxxxxxxxxst"),
        ("REGEXP", vec![str("foobar"), str("ob")], "TRUE"),
        ("REGEXP_REPLACE", vec![str("foobar"), str("oo|ar"), str("$1")], "f$1b$1"),
        ("REGEXP_EXTRACT", vec![str("foothebar"), str("foo(.*?)(bar)"), num("2")], "bar"),
        ("REGEXP_COUNT", vec![str("hello world! hello everyone!"), str("hello")], "2"),
        ("REGEXP_COUNT", vec![str("abc"), str("x")], "0"),
        ("REGEXP_INSTR", vec![str("hello world! hello everyone!"), str("world")], "7"),
        ("REGEXP_INSTR", vec![str("abc"), str("x")], "0"),
        ("REGEXP_SUBSTR", vec![str("100-200, 300-400"), str("(\\d+)-(\\d+)")], "100-200"),
        ("TO_BASE64", vec![str("hello world")], "aGVsbG8gd29ybGQ="),
        ("FROM_BASE64", vec![str("aGVsbG8gd29ybGQ=")], "hello world"),
        ("BTRIM", vec![str("xxhixx"), str("x")], "hi"),
        ("ROUND", vec![num("2.5")], "3"),
        ("ROUND", vec![num("-2.5")], "-3"),
        ("ROUND", vec![num("1255"), num("-1")], "1260"),
        ("ROUND", vec![num("3.14159"), num("3")], "3.142"),
        ("ROUND", vec![num("2.675e0"), num("2")], "2.68"),
        ("TRUNCATE", vec![num("42.345"), num("2")], "42.34"),
        ("FLOOR", vec![num("-1.5")], "-2"),
        ("CEIL", vec![num("1.01")], "2"),
        ("SIGN", vec![num("-2.5")], "-1.0"),
        ("MOD", vec![num("-7"), num("3")], "-1"),
        ("MOD", vec![num("7"), num("0")], "!division by zero"),
        ("LOG", vec![num("2"), num("8")], "3.0"),
        ("HEX", vec![num("255")], "FF"),
        ("HEX", vec![str("hi")], "6869"),
        ("BIN", vec![num("5")], "101"),
        ("GREATEST", vec![num("1"), num("2.5"), num("-3")], "2.5"),
        ("LEAST", vec![num("1"), null()], "NULL"),
        ("NULLIF", vec![num("5"), num("0")], "5"),
        ("IF", vec![null(), str("yes"), str("no")], "no"),
        ("IFNULL", vec![null(), num("5")], "5"),
        ("TO_TIMESTAMP", vec![str("2026-04-02 01:02:03.4567")], "2026-04-02 01:02:03.456"),
        ("TO_TIMESTAMP", vec![str("02.04.2026"), str("dd.MM.yyyy")], "2026-04-02 00:00:00.000"),
        ("TO_TIMESTAMP", vec![str("nonsense")], "NULL"),
        ("TO_TIMESTAMP_LTZ", vec![num("1000"), num("3")], "1970-01-01 01:00:01.000"),
        ("TO_TIMESTAMP_LTZ", vec![num("1.5"), num("0")], "1970-01-01 01:00:01.000"),
        ("TO_DATE", vec![str("2026-04-02")], "2026-04-02"),
        ("FROM_UNIXTIME", vec![num("44")], "1970-01-01 01:00:44"),
        ("UNIX_TIMESTAMP", vec![str("1970-01-01 01:00:44")], "44"),
        ("CONVERT_TZ", vec![str("1970-01-01 00:00:00"), str("UTC"), str("America/Los_Angeles")], "1969-12-31 16:00:00"),
        ("DATE_FORMAT", vec![build::date_literal("2026-04-02").unwrap(), str("EEE dd.MM.yy")], "Thu 02.04.26"),
        ("IS_DECIMAL", vec![str("1.5")], "TRUE"),
        ("IS_DIGIT", vec![null()], "FALSE"),
    ] {
        let args: Vec<Expr> = args;
        let written: Vec<String> = args.iter().map(|arg| arg.display(&Schema::default()).to_string()).collect();
        assert_eq!(call(name, args), expected, "{name}({})", written.join(", "));
    }
}

#[test]
fn casts_give_what_flink_gives() {
    use DataType as T;
    for (text, to, expected) in [
        ("1.234", T::Int, "1"),
        ("-3276913443134", T::BigInt, "-3276913443134"),
        ("128", T::TinyInt, "!cannot cast '128' to TINYINT"),
        ("foo", T::Double, "!cannot cast 'foo' to DOUBLE"),
        ("YES", T::Boolean, "TRUE"),
        ("2026-04-02 25:00:00", T::Timestamp(3), "!cannot cast '2026-04-02 25:00:00' to TIMESTAMP(3)"),
        ("2026-04-02 01:02:03.4567", T::TimestampLtz(3), "2026-04-02 01:02:03.456"),
        ("123", T::Date, "0123-01-01"),
        ("23:45", T::Time, "23:45:00"),
        ("0aFf", T::Bytes, "0aFf"),
        ("99.995", T::Decimal(4, 2), "NULL"),
        ("99.994", T::Decimal(4, 2), "99.99"),
    ] {
        assert_eq!(cast_text(text, to), expected, "{text}");
    }
    let cast = |e: Expr, to: DataType| value(&build::cast(e, &to, false).unwrap());
    assert_eq!(cast(num("9234567891"), T::Int), "644633299");
    assert_eq!(cast(num("9234567891.1e0"), T::Int), "2147483647");
    assert_eq!(cast(num("300.7e0"), T::TinyInt), "44");
    assert_eq!(cast(num("1e10"), T::String), "1.0E10");
    assert_eq!(cast(num("99.9"), T::Decimal(2, 0)), "NULL");
    assert_eq!(cast(num("-9.99"), T::Int), "-9");
    let stamp = || build::timestamp_literal("2026-03-29 02:30:00").unwrap();
    assert_eq!(cast(stamp(), T::TimestampLtz(3)), "2026-03-29 03:30:00.000");
    assert_eq!(cast(stamp(), T::Date), "2026-03-29");
    assert_eq!(cast(stamp(), T::Time), "02:30:00");
    let array = build::array(vec![num("1"), build::null(), num("2.5")]).unwrap();
    assert_eq!(cast(array, T::String), "[1.0, NULL, 2.5]");
    let row = build::row(vec![num("1"), str("a")]).unwrap();
    assert_eq!(cast(row, T::String), "(1, a)");
    let bad = build::array(vec![str("1"), str("x")]).unwrap();
    let ints = T::Array(Box::new(T::Int));
    assert_eq!(cast(bad.clone(), ints.clone()), "!cannot cast 'x' to INT");
    assert_eq!(value(&build::cast(bad, &ints, true).unwrap()), "NULL");
}

#[test]
fn arithmetic_of_times_and_numbers() {
    let binary = |left, op, right| value(&build::binary(op, left, right).unwrap());
    let day = |text| build::date_literal(text).unwrap();
    let interval = |text, unit| build::interval_literal(text, unit, None, None, None).unwrap();
    assert_eq!(binary(day("2024-01-31"), BinaryOp::Add, interval("1", TimeUnit::Month)), "2024-02-29");
    assert_eq!(binary(interval("1", TimeUnit::Day), BinaryOp::Add, day("2024-01-31")), "2024-02-01");
    assert_eq!(binary(num("2147483647"), BinaryOp::Add, num("1")), "-2147483648");
    assert_eq!(binary(num("1"), BinaryOp::Divide, num("0")), "!division by zero");
    assert_eq!(binary(num("1e0"), BinaryOp::Divide, num("0")), "Infinity");
    assert_eq!(binary(num("1.0"), BinaryOp::Divide, num("0")), "!division by zero");
    let day_of = |e| value(&build::extract(TimeUnit::DayOfWeek, e).unwrap());
    assert_eq!(day_of(day("2026-04-02")), "5");
    let diff = build::timestamp_diff(TimeUnit::Month, day("2026-02-03"), day("2026-04-02")).unwrap();
    assert_eq!(value(&diff), "1");
    let added = build::timestamp_add(TimeUnit::Week, num("1"), day("2026-04-02")).unwrap();
    assert_eq!(value(&added), "2026-04-09");
    let compared =
        build::binary(BinaryOp::Less, build::timestamp_literal("2026-04-02 00:00:00").unwrap(), str("2026-04-03"));
    assert_eq!(value(&compared.unwrap()), "TRUE");
    let message = |left, op, right| build::binary(op, left, right).expect_err("must be refused").message;
    assert_eq!(message(str("1"), BinaryOp::Equal, num("1")), "cannot compare STRING with INT");
    assert_eq!(message(str("1"), BinaryOp::Add, num("1")), "cannot compute STRING + INT");
}

/// `1 / x` of a column of INT, which fails where x is 0.
fn reciprocal() -> Expr {
    build::binary(BinaryOp::Divide, num("1"), build::column(0, DataType::Int)).unwrap()
}

fn zeros() -> [ArrayRef; 1] {
    [Arc::new(PrimitiveArray::<Int32Type>::from(vec![Some(0), Some(1), None, Some(-1), Some(0)]))]
}

#[test]
fn a_branch_that_is_not_taken_cannot_fail() {
    let x = || build::column(0, DataType::Int);
    let nonzero = || build::binary(BinaryOp::NotEqual, x(), num("0")).unwrap();
    let positive = || build::binary(BinaryOp::Greater, reciprocal(), num("0")).unwrap();
    let guarded = build::case(None, vec![(nonzero(), reciprocal())], None).unwrap();
    assert_eq!(shown(&guarded, &zeros(), 5), (["NULL", "1", "NULL", "-1", "NULL"].map(str::to_owned).into(), vec![]));
    let and = build::binary(BinaryOp::And, nonzero(), positive()).unwrap();
    let (values, errors) = shown(&and, &zeros(), 5);
    assert_eq!(values, ["FALSE", "TRUE", "NULL", "FALSE", "FALSE"]);
    assert!(errors.is_empty());
    let or = build::binary(BinaryOp::Or, build::not(nonzero()).unwrap(), positive()).unwrap();
    assert_eq!(shown(&or, &zeros(), 5).0, ["TRUE", "TRUE", "NULL", "FALSE", "TRUE"]);
    let coalesce = build::function("COALESCE", vec![x(), reciprocal(), num("7")]).unwrap();
    assert_eq!(shown(&coalesce, &zeros(), 5), (["0", "1", "7", "-1", "0"].map(str::to_owned).into(), vec![]));
}

#[test]
fn a_failed_row_is_null_and_noted_with_its_own_number() {
    let (values, errors) = shown(&reciprocal(), &zeros(), 5);
    assert_eq!(values, ["NULL", "1", "NULL", "-1", "NULL"]);
    let rows: Vec<u32> = errors.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, [0, 4]);
    // Behind a condition the rows keep their numbers.
    let always = build::is_test(Test::Null, build::column(0, DataType::Int), true).unwrap();
    let guarded = build::case(None, vec![(always, reciprocal())], None).unwrap();
    let rows: Vec<u32> = shown(&guarded, &zeros(), 5).1.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, [0, 4]);
    // An expression without columns fails every row.
    let constant = build::binary(BinaryOp::Divide, num("1"), num("0")).unwrap();
    assert_eq!(shown(&constant, &zeros(), 5).1.len(), 5);
}

#[test]
fn three_valued_logic_is_complete() {
    let states = [Some(true), Some(false), None];
    let pairs: Vec<(Option<bool>, Option<bool>)> =
        states.iter().flat_map(|a| states.iter().map(move |b| (*a, *b))).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(pairs.iter().map(|(a, _)| *a).collect::<BooleanArray>()),
        Arc::new(pairs.iter().map(|(_, b)| *b).collect::<BooleanArray>()),
    ];
    let column = |index| build::column(index, DataType::Boolean);
    for op in [BinaryOp::And, BinaryOp::Or] {
        let expr = build::binary(op, column(0), column(1)).unwrap();
        let expected: Vec<String> = pairs
            .iter()
            .map(|(a, b)| {
                let deciding = op == BinaryOp::Or;
                let known = match (a, b) {
                    (Some(x), _) | (_, Some(x)) if *x == deciding => Some(deciding),
                    (_, Some(y)) if *y == deciding => Some(deciding),
                    (Some(_), Some(_)) => Some(!deciding),
                    _ => None,
                };
                known.map_or("NULL".to_owned(), |known| known.to_string().to_uppercase())
            })
            .collect();
        assert_eq!(shown(&expr, &columns, 9).0, expected);
        // The same with a literal on either side.
        for (row, (a, b)) in pairs.iter().enumerate() {
            let literal = |state: &Option<bool>| match state {
                Some(b) => build::literal(Value::Boolean(*b), DataType::Boolean),
                None => build::null(),
            };
            for expr in [
                build::binary(op, literal(a), column(1)).unwrap(),
                build::binary(op, column(0), literal(b)).unwrap(),
                build::binary(op, literal(a), literal(b)).unwrap(),
            ] {
                assert_eq!(shown(&expr, &columns, 9).0[row], expected[row], "{a:?} {op:?} {b:?}");
            }
        }
    }
}

#[test]
fn in_and_nulls() {
    let x = || build::column(0, DataType::Int);
    let list = |items, negated| build::in_list(x(), items, negated).unwrap();
    let show = |expr: Expr| shown(&expr, &zeros(), 5).0.join(" ");
    assert_eq!(show(list(vec![num("0"), num("1")], false)), "TRUE TRUE NULL FALSE TRUE");
    assert_eq!(show(list(vec![num("0"), build::null()], true)), "FALSE NULL NULL NULL FALSE");
    assert_eq!(show(list(vec![x(), num("5")], false)), "TRUE TRUE NULL TRUE TRUE");
    assert_eq!(show(list(vec![num("0.5"), num("1.0")], false)), "FALSE TRUE NULL FALSE FALSE");
}

/// Found by fuzzing: all rows were compared with the value of the last.
#[test]
fn one_array_for_all_rows_is_searched_by_the_value_of_each() {
    let values: ArrayRef = Arc::new([Some(1), Some(2), None, Some(5)].iter().collect::<PrimitiveArray<Int32Type>>());
    let show = |name: &str| {
        let array = build::array(vec![num("2"), num("1"), build::null(), num("2")]).unwrap();
        let expr = build::function(name, vec![array, build::column(0, DataType::Int)]).unwrap();
        shown(&expr, &[Arc::clone(&values)], 4).0.join(" ")
    };
    assert_eq!(show("ARRAY_CONTAINS"), "TRUE TRUE TRUE FALSE");
    assert_eq!(show("ARRAY_POSITION"), "2 1 NULL 0");
    assert_eq!(show("ARRAY_REMOVE"), "[2, NULL, 2] [1, NULL] [2, 1, 2] [2, 1, NULL, 2]");
}

#[test]
fn a_column_of_another_type_is_an_error_not_a_panic() {
    let expr = build::binary(BinaryOp::Add, build::column(0, DataType::BigInt), num("1")).unwrap();
    let (values, errors) = shown(&expr, &zeros(), 5);
    assert_eq!(values, ["NULL"; 5]);
    assert!(errors[0].1.contains("column 0 holds Int32 where BIGINT is declared"), "{}", errors[0].1);
}

// ---- Random expressions over random values ----------------------------------------------------------------------

fn types() -> Vec<DataType> {
    use DataType as T;
    vec![
        T::Boolean,
        T::TinyInt,
        T::SmallInt,
        T::Int,
        T::BigInt,
        T::Float,
        T::Double,
        T::Decimal(38, 10),
        T::Decimal(10, 2),
        T::String,
        T::Bytes,
        T::Date,
        T::Time,
        T::Timestamp(3),
        T::TimestampLtz(6),
        T::IntervalDayTime,
        T::IntervalYearMonth,
        T::Array(Box::new(T::Int)),
        T::Row(vec![Field::new("a", T::Double), Field::new("b", T::String)]),
        T::Map(Box::new(T::String), Box::new(T::Int)),
    ]
}

/// A column of values chosen by `seeds`, extremes among them.
fn column_of(data_type: &DataType, seeds: &[u64]) -> ArrayRef {
    let arrow_type = data_type.arrow();
    fn pick(seed: u64, low: i64, high: i64) -> Option<i64> {
        match seed % 8 {
            0 => None,
            1 => Some(low),
            2 => Some(high),
            3 => Some(0),
            4 => Some(-1),
            5 => Some(1),
            _ => Some((seed as i64).clamp(low, high)),
        }
    }
    macro_rules! integers {
        ($T:ty, $native:ty) => {
            integers!($T, $native, <$native>::MIN as i64, <$native>::MAX as i64)
        };
        ($T:ty, $native:ty, $low:expr, $high:expr) => {{
            let array: PrimitiveArray<$T> = seeds.iter().map(|s| pick(*s, $low, $high).map(|i| i as $native)).collect();
            Arc::new(array.with_data_type(arrow_type))
        }};
    }
    let floats = |seed: u64| match seed % 12 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(f64::INFINITY),
        3 => Some(f64::NEG_INFINITY),
        4 => Some(-0.0),
        5 => Some(f64::MAX),
        6 => Some(f64::MIN_POSITIVE),
        7 => Some(f64::from_bits(seed)),
        _ => Some((seed % 10_000) as f64 / 16.0 - 100.0),
    };
    let strings = |seed: u64| match seed % 12 {
        0 => None,
        1 => Some(String::new()),
        2 => Some("2026-04-02 01:02:03".to_owned()),
        3 => Some("12:34:56.789".to_owned()),
        4 => Some("-12.5".to_owned()),
        5 => Some("äöü 😀 \u{0}".to_owned()),
        6 => Some("yyyy-MM-dd".to_owned()),
        7 => Some("(a|b".to_owned()),
        8 => Some("%_!".to_owned()),
        9 => Some("UTF-8".to_owned()),
        _ => Some(seed.to_string()),
    };
    match data_type {
        DataType::Boolean => Arc::new(seeds.iter().map(|s| pick(*s, 0, 1).map(|i| i > 0)).collect::<BooleanArray>()),
        DataType::TinyInt => integers!(Int8Type, i8),
        DataType::SmallInt => integers!(Int16Type, i16),
        DataType::Int => integers!(Int32Type, i32),
        DataType::BigInt | DataType::IntervalDayTime | DataType::IntervalYearMonth => integers!(Int64Type, i64),
        DataType::Date => integers!(Date32Type, i32),
        DataType::Time => integers!(Time32MillisecondType, i32, 0, 86_399_999),
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => integers!(TimestampMicrosecondType, i64),
        DataType::Float => {
            Arc::new(seeds.iter().map(|s| floats(*s).map(|f| f as f32)).collect::<PrimitiveArray<Float32Type>>())
        }
        DataType::Double => Arc::new(seeds.iter().map(|s| floats(*s)).collect::<PrimitiveArray<Float64Type>>()),
        DataType::Decimal(precision, _) => {
            let limit = 10_i128.pow((*precision).into()) - 1;
            let value = |s: u64| {
                let wide = i128::from(s).wrapping_mul(i128::from(s));
                pick(s, -9, 9).map(|i| if i.abs() == 9 { limit * i128::from(i.signum()) } else { wide % limit })
            };
            let array: PrimitiveArray<Decimal128Type> = seeds.iter().map(|s| value(*s)).collect();
            Arc::new(array.with_data_type(arrow_type))
        }
        DataType::String => Arc::new(seeds.iter().map(|s| strings(*s)).collect::<StringArray>()),
        DataType::Bytes => {
            let bytes: Vec<Option<Vec<u8>>> = seeds.iter().map(|s| strings(*s).map(String::into_bytes)).collect();
            Arc::new(bytes.iter().map(Option::as_deref).collect::<BinaryArray>())
        }
        DataType::Array(item) => {
            let lengths: Vec<usize> = seeds.iter().map(|s| (*s % 3) as usize).collect();
            let items: Vec<u64> = (0..lengths.iter().sum::<usize>() as u64).map(|i| i * 7 + 3).collect();
            let nulls: Vec<bool> = seeds.iter().map(|s| s % 8 != 0).collect();
            let field = ArrowField::new("item", item.arrow(), true);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(Arc::new(field), offsets, column_of(item, &items), Some(NullBuffer::from(nulls))))
        }
        DataType::Row(fields) => {
            let columns = fields.iter().map(|field| column_of(&field.data_type, seeds)).collect();
            let nulls: Vec<bool> = seeds.iter().map(|s| s % 8 != 1).collect();
            let nulls = Some(NullBuffer::from(nulls));
            Arc::new(StructArray::try_new_with_length(arrow_fields(fields), columns, nulls, seeds.len()).unwrap())
        }
        DataType::Map(key, value) => {
            let lengths: Vec<usize> = seeds.iter().map(|s| (*s % 3) as usize).collect();
            let items: Vec<u64> = (0..lengths.iter().sum::<usize>() as u64).map(|i| i * 5 + 1).collect();
            let entry = DataType::entry(key, value);
            let columns = vec![column_of(key, &items), column_of(value, &items)];
            let DataType::Row(fields) = &entry else { unreachable!() };
            let entries = StructArray::try_new_with_length(arrow_fields(fields), columns, None, items.len()).unwrap();
            let nulls: Vec<bool> = seeds.iter().map(|s| s % 8 != 0).collect();
            let field = ArrowField::new("item", entry.arrow(), true);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(Arc::new(field), offsets, Arc::new(entries), Some(NullBuffer::from(nulls))))
        }
        DataType::Null => Arc::new(arrow_array::NullArray::new(seeds.len())),
    }
}

/// Draws numbers from a list that proptest shrinks.
struct Draw<'a> {
    numbers: &'a [u64],
    at: usize,
}

impl Draw<'_> {
    fn below(&mut self, limit: usize) -> usize {
        let number = self.numbers.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        (number % limit.max(1) as u64) as usize
    }

    fn one<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

fn leaf(draw: &mut Draw<'_>, types: &[DataType]) -> Expr {
    match draw.below(4) {
        0 => draw.one(&[
            num("0"),
            num("3"),
            num("-1"),
            num("2.5"),
            num("1e300"),
            num("9223372036854775807"),
            num("99999999999999999999999999999999999999"),
            str("a%b"),
            str("yyyy-MM-dd"),
            str("2026-04-02 01:02:03"),
            build::null(),
            build::array(vec![num("1"), num("0"), num("-1"), build::null()]).unwrap(),
            build::array(vec![str("a%b"), str("")]).unwrap(),
            build::literal(Value::Boolean(true), DataType::Boolean),
            build::interval_literal("1", TimeUnit::Month, None, None, None).unwrap(),
            build::interval_literal("90", TimeUnit::Second, None, None, None).unwrap(),
        ]),
        _ => {
            let index = draw.below(types.len());
            build::column(index, types[index].clone())
        }
    }
}

/// A random expression.
fn expression(draw: &mut Draw<'_>, types: &[DataType], depth: usize) -> Expr {
    if depth == 0 {
        return leaf(draw, types);
    }
    const OPS: [BinaryOp; 16] = [
        BinaryOp::Add,
        BinaryOp::Subtract,
        BinaryOp::Multiply,
        BinaryOp::Divide,
        BinaryOp::Modulo,
        BinaryOp::Equal,
        BinaryOp::NotEqual,
        BinaryOp::Less,
        BinaryOp::LessOrEqual,
        BinaryOp::Greater,
        BinaryOp::GreaterOrEqual,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Concat,
        BinaryOp::IsDistinctFrom,
        BinaryOp::IsNotDistinctFrom,
    ];
    const UNITS: [TimeUnit; 10] = [
        TimeUnit::Microsecond,
        TimeUnit::Millisecond,
        TimeUnit::Second,
        TimeUnit::Hour,
        TimeUnit::Day,
        TimeUnit::Week,
        TimeUnit::Month,
        TimeUnit::Quarter,
        TimeUnit::Year,
        TimeUnit::Epoch,
    ];
    let mut sub = || expression(draw, types, depth - 1);
    let subs = (sub(), sub(), sub());
    // What the builders refuse gives way to something else.
    for _ in 0..12 {
        let (a, b, c) = subs.clone();
        let unit = draw.one(&UNITS);
        let negated = draw.below(2) == 0;
        let as_boolean = |e: Expr| build::is_test(Test::Null, e, negated).unwrap();
        let made = match draw.below(20) {
            0..=3 => build::binary(draw.one(&OPS), a, b),
            4 => build::negate(a),
            5 => build::not(a),
            6 => build::is_test(draw.one(&[Test::Null, Test::True, Test::False, Test::Unknown]), a, negated),
            7 => build::cast(a, &draw.one(types), negated),
            8 => build::case(None, vec![(as_boolean(a), b)], Some(c)),
            9 => build::case(Some(a), vec![(b, c)], None),
            10 => build::in_list(a, vec![b, c], negated),
            11 => build::between(a, b, c, negated),
            12 => build::like(a, b, Some('!'), negated),
            13 => build::extract(unit, a),
            14 => {
                if negated {
                    build::floor_to(a, unit)
                } else {
                    build::ceil_to(a, unit)
                }
            }
            15 => build::timestamp_diff(unit, a, b),
            16 => build::timestamp_add(unit, a, b),
            17 => match draw.below(4) {
                0 => build::trim(TrimSide::Both, Some(a), b),
                1 => build::array(vec![a, b]),
                2 => build::row(vec![a, b]),
                _ => build::index(a, b),
            },
            _ => {
                let names: Vec<&str> = functions::list().collect();
                let name = draw.one(&names);
                let args = match draw.below(4) {
                    0 => vec![a],
                    1 | 2 => vec![a, b],
                    _ => vec![a, b, c],
                };
                build::function(name, args)
            }
        };
        if let Ok(made) = made {
            return made;
        }
    }
    leaf(draw, types)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_expression_gives_its_type_for_every_row(
        numbers in proptest::collection::vec(any::<u64>(), 40..400),
        seeds in proptest::collection::vec(any::<u64>(), 0..12),
    ) {
        let types = types();
        let expr = expression(&mut Draw { numbers: &numbers, at: 0 }, &types, 3);
        let columns: Vec<ArrayRef> = types.iter().map(|data_type| column_of(data_type, &seeds)).collect();
        let batch = Batch { columns: &columns, rows: seeds.len() };
        let mut errors = RowErrors::default();
        let whole = eval(&expr, &batch, &context(), &mut errors);
        prop_assert_eq!(whole.data_type(), &expr.data_type.arrow());
        prop_assert_eq!(whole.len(), seeds.len());
        prop_assert!(errors.list.is_empty() || expr.can_fail(), "{:?} cannot fail: {:?}", expr, errors.list);
        for (row, reason) in &errors.list {
            prop_assert!((*row as usize) < seeds.len());
            prop_assert!(!reason.contains("bug"), "{}", reason);
        }
        let _ = expr.display(&Schema::default()).to_string();

        // Row by row gives the same values and the same failed rows as all at once.
        let mut failed: Vec<u32> = errors.list.iter().map(|(row, _)| *row).collect();
        failed.sort_unstable();
        failed.dedup();
        let mut failed_alone = Vec::new();
        for row in 0..seeds.len() {
            let one: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, 1)).collect();
            let mut errors = RowErrors::default();
            let alone = eval(&expr, &Batch { columns: &one, rows: 1 }, &context(), &mut errors);
            if !errors.list.is_empty() {
                failed_alone.push(row as u32);
            }
            let show = |array: &ArrayRef, row| {
                let mut out = String::new();
                let some = cast::append_text(array.as_ref(), row, &expr.data_type, &TimeZone::UTC, &mut out);
                (some, out)
            };
            prop_assert_eq!(show(&alone, 0), show(&whole, row), "row {} of {:?}", row, expr);
        }
        prop_assert_eq!(failed, failed_alone);

        if expr.data_type == DataType::Boolean {
            let truth = eval_predicate(&expr, &batch, &context(), &mut RowErrors::default());
            let array = whole.as_boolean();
            for row in 0..seeds.len() {
                prop_assert_eq!(truth.value(row), array.is_valid(row) && array.value(row));
            }
        }

        // Over renumbered columns it is the same expression.
        let count = types.len();
        let moved = expr.clone().map_columns(&|index| index + count);
        let used: Vec<usize> = expr.columns().iter().map(|index| index + count).collect();
        prop_assert_eq!(moved.columns(), used);
    }
}
