//! Expressions of the conformance cases, built by hand, against the rows that Flink gives (`tests/conformance`).

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_schema::Field as ArrowField;
use arrow_select::filter::filter;
use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json};

use super::build::{self, BinaryOp, Expr, Test, TimeUnit, TrimSide};
use super::eval::{Batch, EvalContext, RowErrors, eval, eval_predicate};
use super::types::{DataType, Field, Schema, arrow_fields};
use super::{cast, decimal, text};

type Row = Map<String, Json>;

fn rows(name: &str) -> Vec<Row> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name);
    let content = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    content.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

struct Input {
    schema: Schema,
    columns: Vec<ArrayRef>,
    rows: usize,
}

fn context() -> EvalContext {
    EvalContext { time_zone: TimeZone::UTC }
}

fn input(name: &str, fields: &[(&str, DataType)]) -> Input {
    let rows = rows(&format!("input/{name}.ndjson"));
    let columns = fields.iter().map(|(name, data_type)| array(&rows, name, data_type)).collect();
    let schema = Schema::new(fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone())).collect());
    Input { schema, columns, rows: rows.len() }
}

fn array(rows: &[Row], name: &str, data_type: &DataType) -> ArrayRef {
    let cells = rows.iter().map(|row| row.get(name).filter(|cell| !cell.is_null()));
    match data_type {
        DataType::Boolean => Arc::new(cells.map(|cell| cell?.as_bool()).collect::<BooleanArray>()),
        DataType::Int => Arc::new(cells.map(|cell| i32::try_from(cell?.as_i64()?).ok()).collect::<Int32Array>()),
        DataType::BigInt => Arc::new(cells.map(|cell| cell?.as_i64()).collect::<Int64Array>()),
        DataType::Double => Arc::new(cells.map(|cell| cell?.as_f64()).collect::<Float64Array>()),
        DataType::String => Arc::new(cells.map(|cell| cell?.as_str()).collect::<StringArray>()),
        DataType::Decimal(precision, scale) => {
            let parse = |cell: &Json| decimal::parse(&cell.to_string(), (*precision, *scale)).ok();
            let array: Decimal128Array = cells.map(|cell| parse(cell?)).collect();
            Arc::new(array.with_data_type(data_type.arrow()))
        }
        DataType::TimestampLtz(_) => {
            let parse = |cell: &Json| text::parse_timestamp(&cell.as_str()?.replace('T', " ").replace('Z', ""));
            let array: TimestampMicrosecondArray = cells.map(|cell| parse(cell?)).collect();
            Arc::new(array.with_data_type(data_type.arrow()))
        }
        DataType::Array(_) => {
            let mut list = ListBuilder::new(Float64Builder::new()).with_field(ArrowField::new(
                "item",
                DataType::Double.arrow(),
                true,
            ));
            for cell in cells {
                list.append_option(cell.and_then(Json::as_array).map(|items| items.iter().map(Json::as_f64)));
            }
            Arc::new(list.finish())
        }
        DataType::Row(fields) => {
            let cells: Vec<Option<&Json>> = cells.collect();
            let objects: Vec<Row> =
                cells.iter().map(|cell| cell.and_then(Json::as_object).cloned().unwrap_or_default()).collect();
            let columns = fields.iter().map(|field| array(&objects, &field.name, &field.data_type)).collect();
            let nulls = cells.iter().map(Option::is_some).collect::<Vec<bool>>().into();
            Arc::new(StructArray::new(arrow_fields(fields), columns, Some(nulls)))
        }
        other => panic!("no reader for {other}"),
    }
}

fn plant(name: &str) -> Input {
    input(
        name,
        &[
            ("ts", DataType::TimestampLtz(3)),
            ("device", DataType::String),
            ("site", DataType::String),
            ("temp", DataType::Double),
            ("hum", DataType::Double),
            ("pulses", DataType::Int),
            ("ok", DataType::Boolean),
            ("seq", DataType::BigInt),
        ],
    )
}

fn burst() -> Input {
    let pos = vec![Field::new("lat", DataType::Double), Field::new("lon", DataType::Double)];
    input(
        "burst",
        &[
            ("device", DataType::String),
            ("samples", DataType::Array(Box::new(DataType::Double))),
            ("pos", DataType::Row(pos)),
            ("price", DataType::Decimal(10, 2)),
            ("qty", DataType::Int),
        ],
    )
}

impl Input {
    fn col(&self, name: &str) -> Expr {
        let index = self.schema.index_of(name).unwrap_or_else(|| panic!("no column {name}"));
        build::column(index, self.schema.fields[index].data_type.clone())
    }

    /// The values of `exprs` in the rows where `predicate` holds, cell by cell as comparable text.
    fn select(&self, predicate: Option<&Expr>, exprs: &[Expr]) -> Vec<Vec<String>> {
        let mut selected = Vec::new();
        // Batches of uneven size: none, few, many rows.
        let mut start = 0;
        for size in [1, 0, 7, usize::MAX] {
            let size = size.min(self.rows - start);
            let columns: Vec<ArrayRef> = self.columns.iter().map(|column| column.slice(start, size)).collect();
            start += size;
            let mut errors = RowErrors::default();
            let mut batch = Batch { columns: &columns, rows: size };
            let kept: Vec<ArrayRef>;
            if let Some(predicate) = predicate {
                let mask = BooleanArray::new(eval_predicate(predicate, &batch, &context(), &mut errors), None);
                kept = columns.iter().map(|column| filter(column, &mask).unwrap()).collect();
                batch = Batch { columns: &kept, rows: mask.true_count() };
            }
            let made: Vec<ArrayRef> = exprs.iter().map(|expr| eval(expr, &batch, &context(), &mut errors)).collect();
            assert!(errors.list.is_empty(), "{:?}", errors.list.first());
            for (expr, array) in exprs.iter().zip(&made) {
                assert_eq!((array.data_type(), array.len()), (&expr.data_type.arrow(), batch.rows));
            }
            for row in 0..batch.rows {
                let cells = exprs.iter().zip(&made).map(|(expr, array)| cell(array, row, &expr.data_type));
                selected.push(cells.collect());
            }
        }
        selected
    }
}

fn cell(array: &ArrayRef, row: usize, data_type: &DataType) -> String {
    let mut out = String::new();
    if !cast::append_text(array.as_ref(), row, data_type, &TimeZone::UTC, &mut out) {
        return "null".to_owned();
    }
    match data_type {
        DataType::Double => format!("{:.9e}", text::parse_f64(&out).unwrap()),
        DataType::TimestampLtz(_) => format!("{}Z", out.replace(' ', "T")),
        DataType::Boolean => out.to_lowercase(),
        _ => out,
    }
}

fn expected(case: &str) -> Vec<Vec<String>> {
    let schema = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/conformance/cases/{case}.schema.json"));
    let schema: Row = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    let double = |name: &String| schema.get(name).and_then(Json::as_str) == Some("DOUBLE");
    let show = |(name, cell): (&String, &Json)| match cell {
        Json::Number(number) if double(name) => format!("{:.9e}", number.as_f64().unwrap()),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    // The columns of a row come in SELECT order; this parser sorts keys, so order them by the case's own text.
    let order = column_order(case);
    rows(&format!("cases/{case}.expected.ndjson"))
        .iter()
        .map(|row| order.iter().map(|name| show((name, row.get(name).unwrap()))).collect())
        .collect()
}

/// The names of a case's columns in SELECT order, from the first expected line.
fn column_order(case: &str) -> Vec<String> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/conformance/cases/{case}.expected.ndjson"));
    let content = std::fs::read_to_string(path).unwrap();
    let line = content.lines().next().unwrap().to_owned();
    let row: Row = serde_json::from_str(&line).unwrap();
    let mut names: Vec<String> = row.keys().cloned().collect();
    names.sort_by_key(|name| line.find(&format!("\"{name}\": ")).unwrap());
    names
}

fn check(case: &str, mut actual: Vec<Vec<String>>) {
    let mut expected = expected(case);
    assert!(!expected.is_empty());
    actual.sort();
    expected.sort();
    for (actual, expected) in actual.iter().zip(&expected) {
        assert_eq!(actual, expected, "{case}");
    }
    assert_eq!(actual.len(), expected.len(), "{case}");
}

fn num(text: &str) -> Expr {
    build::number_literal(text).unwrap()
}

fn str(text: &str) -> Expr {
    build::string_literal(text)
}

fn op(left: Expr, op: &str, right: Expr) -> Expr {
    let op = match op {
        "+" => BinaryOp::Add,
        "-" => BinaryOp::Subtract,
        "*" => BinaryOp::Multiply,
        "/" => BinaryOp::Divide,
        "%" => BinaryOp::Modulo,
        "=" => BinaryOp::Equal,
        "<>" => BinaryOp::NotEqual,
        "<" => BinaryOp::Less,
        ">" => BinaryOp::Greater,
        ">=" => BinaryOp::GreaterOrEqual,
        "AND" => BinaryOp::And,
        "OR" => BinaryOp::Or,
        "||" => BinaryOp::Concat,
        "DISTINCT" => BinaryOp::IsDistinctFrom,
        other => panic!("{other}"),
    };
    build::binary(op, left, right).unwrap()
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    build::function(name, args).unwrap()
}

fn to(e: Expr, data_type: DataType) -> Expr {
    build::cast(e, &data_type, false).unwrap()
}

#[test]
fn s01_project() {
    let t = plant("plant");
    let predicate = op(op(t.col("temp"), ">", num("20")), "AND", op(t.col("hum"), "<", num("60.5")));
    let exprs = [
        t.col("device"),
        op(op(t.col("temp"), "*", num("1.8")), "+", num("32")),
        op(t.col("hum"), "/", num("100")),
        op(t.col("seq"), "+", num("1")),
    ];
    check("s01_project", t.select(Some(&predicate), &exprs));
}

#[test]
fn s02_null_logic() {
    let t = plant("plant");
    let missing = |e| build::is_test(Test::Null, e, false).unwrap();
    let predicate = op(op(t.col("device"), "=", str("pump-β")), "OR", missing(t.col("device")));
    let warm = || op(t.col("temp"), ">", num("20"));
    let exprs = [
        t.col("seq"),
        t.col("device"),
        t.col("ok"),
        missing(t.col("temp")),
        op(t.col("ok"), "AND", warm()),
        op(t.col("ok"), "OR", warm()),
        build::not(t.col("ok")).unwrap(),
        call("COALESCE", vec![t.col("site"), str("nowhere")]),
        call("NULLIF", vec![t.col("pulses"), num("0")]),
        build::is_test(Test::True, t.col("ok"), false).unwrap(),
        build::is_test(Test::True, t.col("ok"), true).unwrap(),
    ];
    check("s02_null_logic", t.select(Some(&predicate), &exprs));
}

#[test]
fn s03_strings() {
    let t = plant("plant");
    let device = || t.col("device");
    let predicate = op(t.col("seq"), "<", num("40"));
    let path = op(op(device(), "||", str("/")), "||", call("COALESCE", vec![t.col("site"), str("-")]));
    let exprs = [
        t.col("seq"),
        call("upper", vec![device()]),
        call("LOWER", vec![device()]),
        call("CHAR_LENGTH", vec![device()]),
        call("SUBSTRING", vec![device(), num("2"), num("4")]),
        path,
        build::trim(TrimSide::Both, Some(str("x")), device()).unwrap(),
        call("REPLACE", vec![device(), str("-"), str("_")]),
        build::position(str("-"), device(), None).unwrap(),
        call("LPAD", vec![to(t.col("seq"), DataType::String), num("6"), str("0")]),
        call("REGEXP_EXTRACT", vec![device(), str("([a-z]+)-([0-9]+)"), num("2")]),
        call("CONCAT_WS", vec![str(":"), t.col("site"), device()]),
    ];
    check("s03_strings", t.select(Some(&predicate), &exprs));
}

#[test]
fn s04_casts() {
    let t = plant("plant");
    let predicate = op(t.col("seq"), "<", num("60"));
    let exprs = [
        t.col("seq"),
        to(t.col("temp"), DataType::Int),
        to(t.col("temp"), DataType::BigInt),
        op(to(t.col("seq"), DataType::Double), "/", num("3")),
        to(t.col("hum"), DataType::String),
        build::cast(t.col("device"), &DataType::Int, true).unwrap(),
        to(t.col("ok"), DataType::String),
        to(str("12.5"), DataType::Decimal(6, 2)),
    ];
    check("s04_casts", t.select(Some(&predicate), &exprs));
}

#[test]
fn s05_math() {
    let t = plant("plant");
    let (temp, hum) = (|| t.col("temp"), || t.col("hum"));
    let predicate = op(t.col("seq"), "<", num("80"));
    let exprs = [
        t.col("seq"),
        call("ABS", vec![op(temp(), "-", num("21"))]),
        call("ROUND", vec![temp(), num("1")]),
        call("ROUND", vec![temp()]),
        call("FLOOR", vec![temp()]),
        call("CEIL", vec![temp()]),
        call("MOD", vec![t.col("pulses"), num("3")]),
        call("POWER", vec![temp(), num("2")]),
        call("SIGN", vec![t.col("pulses")]),
        call("SQRT", vec![hum()]),
        call("GREATEST", vec![temp(), hum()]),
        call("LEAST", vec![temp(), hum()]),
        call("EXP", vec![op(temp(), "/", num("100"))]),
        call("LN", vec![op(hum(), "+", num("1"))]),
    ];
    check("s05_math", t.select(Some(&predicate), &exprs));
}

#[test]
fn s06_time() {
    let t = plant("plant");
    let ts = || t.col("ts");
    let predicate = build::between(t.col("seq"), num("10"), num("40"), false).unwrap();
    let start = build::timestamp_literal("2026-04-02 00:00:00").unwrap();
    let later = build::interval_literal("90", TimeUnit::Second, None, None, None).unwrap();
    let exprs = [
        t.col("seq"),
        build::extract(TimeUnit::Minute, ts()).unwrap(),
        build::extract(TimeUnit::Hour, ts()).unwrap(),
        build::floor_to(ts(), TimeUnit::Minute).unwrap(),
        build::timestamp_diff(TimeUnit::Second, start, to(ts(), DataType::Timestamp(3))).unwrap(),
        op(ts(), "+", later),
        call("DATE_FORMAT", vec![ts(), str("yyyy-MM-dd HH:mm")]),
    ];
    check("s06_time", t.select(Some(&predicate), &exprs));
}

#[test]
fn s07_integer_arithmetic() {
    let t = plant("plant");
    let pulses = || t.col("pulses");
    let predicate = op(t.col("seq"), "<", num("60"));
    let exprs = [
        t.col("seq"),
        op(pulses(), "/", num("2")),
        op(pulses(), "%", num("2")),
        op(t.col("seq"), "/", num("4")),
        build::negate(pulses()).unwrap(),
        op(pulses(), "*", num("1000")),
        op(pulses(), "+", t.col("seq")),
        op(to(pulses(), DataType::Double), "/", num("2")),
    ];
    let types: Vec<String> = exprs.iter().map(|expr| expr.data_type.to_string()).collect();
    assert_eq!(types, ["BIGINT", "INT", "INT", "BIGINT", "INT", "INT", "BIGINT", "DOUBLE"]);
    check("s07_integer_arithmetic", t.select(Some(&predicate), &exprs));
}

#[test]
fn s08_case_in_like() {
    let t = plant("plant");
    let (device, temp) = (|| t.col("device"), || t.col("temp"));
    let among = build::in_list(device(), vec![str("boiler-1"), str("pump-α")], false).unwrap();
    let unlike = build::like(device(), str("%2"), None, true).unwrap();
    let predicate = op(op(among, "AND", unlike), "AND", op(t.col("site"), "DISTINCT", str("north")));
    let band = build::case(
        None,
        vec![
            (op(temp(), ">=", num("30")), str("hot")),
            (op(temp(), ">=", num("10")), str("mild")),
            (build::is_test(Test::Null, temp(), false).unwrap(), str("unknown")),
        ],
        Some(str("cold")),
    );
    let code =
        build::case(Some(t.col("site")), vec![(str("north"), num("1")), (str("south"), num("2"))], None).unwrap();
    check("s08_case_in_like", t.select(Some(&predicate), &[t.col("seq"), device(), band.unwrap(), code]));
}

#[test]
fn s09_union_all() {
    let steady = plant("steady");
    let predicate = op(steady.col("temp"), ">", num("40"));
    let mut rows = steady.select(Some(&predicate), &[steady.col("ts"), steady.col("device"), str("reading")]);
    let alarm =
        input("alarm", &[("ts", DataType::TimestampLtz(3)), ("device", DataType::String), ("level", DataType::Int)]);
    let predicate = op(alarm.col("level"), ">=", num("4"));
    rows.extend(alarm.select(Some(&predicate), &[alarm.col("ts"), alarm.col("device"), str("alarm")]));
    check("s09_union_all", rows);
}

#[test]
fn s10_nested_projections_can_be_merged() {
    let t = plant("plant");
    let above = op(t.col("temp"), "-", num("20"));
    let above_column = || build::column(1, DataType::Double);
    // `above * 2` over the inner projection (device, above), its columns put in.
    let inner = [t.col("device"), above];
    let merge = |e: Expr| e.substitute(&|index, _| inner[index].clone());
    let warm = op(t.col("temp"), ">", num("20"));
    let strong = merge(op(above_column(), ">", num("10")));
    let named = op(t.col("device"), "<>", str(""));
    let predicate = op(op(warm, "AND", strong), "AND", named);
    let twice = merge(op(above_column(), "*", num("2")));
    assert_eq!(twice.columns(), [3]);
    check("s10_cte_nested", t.select(Some(&predicate), &[t.col("device"), twice]));
}

#[test]
fn s12_row_fields() {
    let t = burst();
    let exprs = [
        t.col("device"),
        build::field(t.col("pos"), "lat").unwrap(),
        op(build::field(t.col("pos"), "lon").unwrap(), "+", num("1")),
        build::index(t.col("samples"), num("1")).unwrap(),
        call("CARDINALITY", vec![t.col("samples")]),
        build::is_test(Test::Null, t.col("pos"), false).unwrap(),
    ];
    check("s12_row_fields", t.select(None, &exprs));
}

#[test]
fn s13_decimal() {
    let t = burst();
    let price = || t.col("price");
    let exprs = [
        t.col("device"),
        op(price(), "*", t.col("qty")),
        op(price(), "/", num("3")),
        to(price(), DataType::Double),
        op(price(), "+", num("0.001")),
        to(price(), DataType::Decimal(6, 1)),
        call("ROUND", vec![price(), num("1")]),
    ];
    check("s13_decimal", t.select(None, &exprs));
}
