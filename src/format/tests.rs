//! Helpers and properties that hold for all formats.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef};
use proptest::prelude::*;

use super::csv::CsvConfig;
use super::*;
use crate::expr::DataType;
use crate::settings;

pub fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type)
}

/// Decodes messages as one run.
pub fn decode(decoder: &mut dyn Decoder, messages: &[&[u8]]) -> Decoded {
    let lengths: Vec<u32> = messages.iter().map(|message| message.len() as u32).collect();
    let decoded = decoder.decode(&[Messages { payload: &messages.concat(), lengths: &lengths }], None);
    for column in &decoded.columns {
        assert_eq!(column.len(), decoded.messages.len());
    }
    decoded
}

/// All rows as an encoder prints them.
pub fn encode(encoder: &mut dyn Encoder, columns: &[ArrayRef]) -> String {
    let mut out = Vec::new();
    for row in 0..columns.first().map_or(0, |column| column.len()) {
        encoder.encode(columns, row, &mut out);
    }
    String::from_utf8(out).expect("encoders write UTF-8")
}

pub fn rows_as_json(fields: &[Field], columns: &[ArrayRef]) -> Vec<String> {
    encode(&mut json::JsonEncoder::new(fields), columns).lines().map(str::to_owned).collect()
}

/// One column of every scalar type.
fn scalars() -> Vec<Field> {
    vec![
        field("b", DataType::Boolean),
        field("i8", DataType::TinyInt),
        field("i16", DataType::SmallInt),
        field("i32", DataType::Int),
        field("i64", DataType::BigInt),
        field("f", DataType::Float),
        field("d", DataType::Double),
        field("dec", DataType::Decimal(20, 5)),
        field("a \"quoted\", name", DataType::String),
        field("bytes", DataType::Bytes),
        field("date", DataType::Date),
        field("time", DataType::Time),
        field("ts", DataType::Timestamp(3)),
        field("ltz", DataType::TimestampLtz(6)),
    ]
}

/// A JSON value that a column of the type takes, in the form our encoder prints it.
fn json_value(of: &DataType) -> BoxedStrategy<String> {
    let value = match of {
        DataType::Boolean => any::<bool>().prop_map(|v| v.to_string()).boxed(),
        DataType::TinyInt => any::<i8>().prop_map(|v| v.to_string()).boxed(),
        DataType::SmallInt => any::<i16>().prop_map(|v| v.to_string()).boxed(),
        DataType::Int => any::<i32>().prop_map(|v| v.to_string()).boxed(),
        DataType::BigInt => any::<i64>().prop_map(|v| v.to_string()).boxed(),
        DataType::Float => any::<f32>().prop_map(|v| ryu::Buffer::new().format_finite(v).to_owned()).boxed(),
        DataType::Double => any::<f64>().prop_map(|v| ryu::Buffer::new().format_finite(v).to_owned()).boxed(),
        DataType::Decimal(_, _) => {
            (any::<i32>(), 0u32..100_000).prop_map(|(whole, part)| format!("{whole}.{part:05}")).boxed()
        }
        DataType::String => prop_oneof![any::<String>(), "[a\",\\\\\n\r\u{0}é-]{0,5}"]
            .prop_map(|v| serde_json::json!(v).to_string())
            .boxed(),
        DataType::Bytes => any::<Vec<u8>>()
            .prop_map(|v| {
                let mut text = b"\"".to_vec();
                print::base64(&v, &mut text);
                text.push(b'"');
                String::from_utf8(text).expect("ASCII")
            })
            .boxed(),
        DataType::Date => {
            (0u32..10_000, 1u32..13, 1u32..29).prop_map(|(y, m, d)| format!("\"{y:04}-{m:02}-{d:02}\"")).boxed()
        }
        DataType::Time => (0u32..24, 0u32..60, 0u32..60, 1u32..1000)
            .prop_map(|(h, m, s, f)| format!("\"{h:02}:{m:02}:{s:02}.{f:03}\""))
            .boxed(),
        DataType::Timestamp(_) => (0u32..10_000, 1u32..13, 1u32..29, 0u32..60, 0u32..1000)
            .prop_map(|(y, m, d, s, f)| format!("\"{y:04}-{m:02}-{d:02}T23:59:{s:02}.{f:03}\""))
            .boxed(),
        DataType::TimestampLtz(_) => (0u32..10_000, 1u32..13, 1u32..29, 0u32..60, 0u32..1_000_000)
            .prop_map(|(y, m, d, s, f)| format!("\"{y:04}-{m:02}-{d:02}T23:59:{s:02}.{f:06}Z\""))
            .boxed(),
        DataType::Array(item) => {
            proptest::collection::vec(json_value(item), 0..4).prop_map(|items| format!("[{}]", items.join(","))).boxed()
        }
        DataType::Row(fields) => json_object(fields),
        DataType::Map(_, value) => proptest::collection::btree_map("[a-c\"\\\\é]{0,3}", json_value(value), 0..4)
            .prop_map(|entries| {
                let entries = entries.iter().map(|(key, value)| format!("{}:{value}", serde_json::json!(key)));
                format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
            })
            .boxed(),
        DataType::IntervalDayTime | DataType::IntervalYearMonth => any::<i64>().prop_map(|v| v.to_string()).boxed(),
        DataType::Null => Just("null".to_owned()).boxed(),
    };
    prop_oneof![4 => value, 1 => Just("null".to_owned())].boxed()
}

fn json_object(fields: &[Field]) -> BoxedStrategy<String> {
    let members: Vec<_> = fields
        .iter()
        .map(|field| {
            let key = serde_json::json!(field.name).to_string();
            json_value(&field.data_type).prop_map(move |value| format!("{key}:{value}"))
        })
        .collect();
    members.prop_map(|members| format!("{{{}}}", members.join(","))).boxed()
}

fn nested() -> Vec<Field> {
    let mut fields = scalars();
    fields.push(field("list", DataType::Array(Box::new(DataType::Row(scalars())))));
    let map = |value| DataType::Map(Box::new(DataType::String), Box::new(value));
    fields.push(field("map", map(map(DataType::Row(scalars())))));
    fields.push(field("row", DataType::Row(vec![field("l", DataType::Array(Box::new(DataType::Double)))])));
    fields
}

fn same(left: &[ArrayRef], right: &[ArrayRef]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(l, r)| l.to_data() == r.to_data())
}

proptest! {
    #[test]
    fn json_prints_what_it_read(rows in proptest::collection::vec(json_object(&nested()), 0..5)) {
        let fields = nested();
        let mut decoder = FormatConfig::Json.decoder(&fields, None);
        let messages: Vec<&[u8]> = rows.iter().map(|row| row.as_bytes()).collect();
        let decoded = decode(decoder.as_mut(), &messages);
        prop_assert_eq!(&decoded.refused, &[]);
        let printed = encode(FormatConfig::Json.encoder(&fields).as_mut(), &decoded.columns);
        let lines: Vec<&[u8]> = printed.lines().map(str::as_bytes).collect();
        let again = decode(decoder.as_mut(), &lines);
        prop_assert!(same(&decoded.columns, &again.columns), "{}", printed);
        // Number for number and character for character, as a tree of another maker sees it.
        for (row, line) in rows.iter().zip(printed.lines()) {
            let (row, line): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(row).expect("JSON"), serde_json::from_str(line).expect("JSON"));
            prop_assert_eq!(row, line);
        }
    }

    #[test]
    fn csv_reads_back_what_it_printed(
        rows in proptest::collection::vec(json_object(&scalars()), 1..5),
        separator in prop::sample::select(b",;\t.-e".to_vec()),
        null in prop::sample::select(vec!["", "NULL", "-", "a"]),
    ) {
        let fields = scalars();
        let messages: Vec<&[u8]> = rows.iter().map(|row| row.as_bytes()).collect();
        let decoded = decode(FormatConfig::Json.decoder(&fields, None).as_mut(), &messages);
        let quote = b'"';
        let null = if null.as_bytes().contains(&separator) { "" } else { null };
        let config = FormatConfig::Csv(CsvConfig { header: true, separator, quote, null: Some(null.to_owned()) });
        let mut encoder = config.encoder(&fields);
        let mut lines = vec![encoder.header()];
        for row in 0..decoded.messages.len() {
            let mut line = Vec::new();
            encoder.encode(&decoded.columns, row, &mut line);
            prop_assert_eq!(line.pop(), Some(b'\n'));
            lines.push(line);
        }
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        let again = decode(config.decoder(&fields, None).as_mut(), &lines);
        prop_assert_eq!(&again.refused, &[]);
        prop_assert!(same(&decoded.columns, &again.columns));
    }

    #[test]
    fn what_nobody_reads_is_checked_all_the_same(
        rows in proptest::collection::vec(json_object(&nested()), 1..5),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        read in proptest::collection::vec(any::<bool>(), nested().len()),
    ) {
        let mut wrong = rows[0].clone().into_bytes();
        let at = at.index(wrong.len());
        wrong[at] = byte;
        let mut messages: Vec<&[u8]> = rows.iter().map(|row| row.as_bytes()).collect();
        messages.insert(1, &wrong);
        let whole = decode(FormatConfig::Json.decoder(&nested(), None).as_mut(), &messages);
        let mut decoder = FormatConfig::Json.decoder(&nested(), None);
        decoder.keep_only(&read);
        let part = decode(decoder.as_mut(), &messages);
        prop_assert_eq!(&whole.messages, &part.messages);
        prop_assert_eq!(&whole.refused, &part.refused);
        for ((whole, part), (read, of)) in whole.columns.iter().zip(&part.columns).zip(read.iter().zip(nested())) {
            prop_assert_eq!(part.data_type(), &of.data_type.arrow());
            let is_scalar = !whole.data_type().is_nested();
            prop_assert!(whole.to_data() == part.to_data() || !read && is_scalar);
            prop_assert!(*read || !is_scalar || part.null_count() == part.len());
        }
    }

    #[test]
    fn decoders_take_any_bytes(messages in proptest::collection::vec(any::<Vec<u8>>(), 0..6), json in json_object(&nested()), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut mutated = json.clone().into_bytes();
        let at = at.index(mutated.len());
        mutated[at] = byte;
        let cut = json.as_bytes().get(..at).unwrap_or_default();
        let mut list: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        list.extend([mutated.as_slice(), json.as_bytes(), cut, json.as_bytes()]);
        let fields = nested();
        let alone = decode(FormatConfig::Json.decoder(&fields, None).as_mut(), &[json.as_bytes(), json.as_bytes()]);
        let decoded = decode(FormatConfig::Json.decoder(&fields, None).as_mut(), &list);
        prop_assert_eq!(decoded.messages.len() + decoded.refused.len(), list.len());
        // Whatever the bad ones did, the good ones are as if alone.
        let good = decoded.columns.iter().map(|column| column.slice(column.len() - 1, 1)).collect::<Vec<_>>();
        let wanted = alone.columns.iter().map(|column| column.slice(1, 1)).collect::<Vec<_>>();
        prop_assert!(rows_as_json(&fields, &good) == rows_as_json(&fields, &wanted));

        let csv = CsvConfig { header: false, separator: b',', quote: b'"', null: None };
        for config in [FormatConfig::Csv(csv.clone()), FormatConfig::Csv(CsvConfig { header: true, ..csv })] {
            let decoded = decode(config.decoder(&scalars(), None).as_mut(), &list);
            prop_assert!(decoded.messages.len() + decoded.refused.len() >= list.len() - 1);
        }
        let decoded = decode(FormatConfig::Raw.decoder(&[field("x", DataType::Bytes)], None).as_mut(), &list);
        prop_assert_eq!(decoded.messages.len(), list.len());
        decode(FormatConfig::Raw.decoder(&[field("x", DataType::String)], None).as_mut(), &list);
    }
}

#[test]
fn lengths_that_lie_do_no_harm() {
    for config in [FormatConfig::Json, FormatConfig::Raw] {
        let decoded = config
            .decoder(&[field("x", DataType::String)], None)
            .decode(&[Messages { payload: b"{}", lengths: &[2, 7, u32::MAX] }], None);
        assert_eq!(decoded.messages.len() + decoded.refused.len(), 3);
    }
}

#[test]
fn raw_takes_the_whole_message() {
    let columns = [field("x", DataType::String)];
    let decoded = decode(FormatConfig::Raw.decoder(&columns, None).as_mut(), &[b" a\xc3\xa9 \r", b"\xff", b""]);
    assert_eq!(rows_as_json(&columns, &decoded.columns), [r#"{"x":" aé \r"}"#, r#"{"x":""}"#]);
    assert_eq!(decoded.refused, [(1, "the message is not UTF-8 (byte 1)".to_owned())]);
    let columns = [field("x", DataType::Bytes)];
    let decoded = decode(FormatConfig::Raw.decoder(&columns, None).as_mut(), &[b"\xff\x00"]);
    assert_eq!(rows_as_json(&columns, &decoded.columns), [r#"{"x":"/wA="}"#]);
}

#[test]
fn encoders_print_extreme_values() {
    let columns: [(DataType, ArrayRef, &str); 6] = [
        (
            DataType::Double,
            Arc::new(arrow_array::Float64Array::from(vec![f64::NAN, f64::INFINITY, -0.0, 1e21, 5e-324])),
            "null null -0.0 1e21 5e-324",
        ),
        (DataType::Float, Arc::new(arrow_array::Float32Array::from(vec![f32::NAN, 16_777_216.0])), "null 16777216.0"),
        (
            DataType::TimestampLtz(3),
            Arc::new(arrow_array::TimestampMicrosecondArray::from(vec![i64::MIN, i64::MAX])),
            r#""-290308-12-21T19:59:05.224Z" "+294247-01-10T04:00:54.775Z""#,
        ),
        (
            DataType::Date,
            Arc::new(arrow_array::Date32Array::from(vec![i32::MIN, i32::MAX])),
            r#""-5877641-06-23" "+5881580-07-11""#,
        ),
        (
            DataType::Time,
            Arc::new(arrow_array::Time32MillisecondArray::from(vec![-1, i32::MIN])),
            r#""23:59:59.999" "03:28:36.352""#,
        ),
        // A column that is not of the declared type prints as NULL rather than ending the program.
        (DataType::Int, Arc::new(arrow_array::StringArray::from(vec!["x"])), "null"),
    ];
    for (of, column, wanted) in columns {
        let rows = rows_as_json(&[field("v", of)], &[column]);
        let values: Vec<&str> =
            rows.iter().map(|row| row.trim_start_matches("{\"v\":").trim_end_matches('}')).collect();
        assert_eq!(values.join(" "), wanted);
    }
}

#[test]
fn settings_are_read_and_checked() {
    let read = |text: &str| settings::read_document("f.toml", text, FormatConfig::read_input);
    assert_eq!(read("").ok(), Some(FormatConfig::Json));
    assert_eq!(read("format = \"raw\"").ok(), Some(FormatConfig::Raw));
    let csv = CsvConfig { header: true, separator: b'\t', quote: b'"', null: Some(String::new()) };
    let text = "format = \"csv\"\nheader = true\nseparator = \"\\t\"\nnull = \"\"";
    assert_eq!(read(text).ok(), Some(FormatConfig::Csv(csv)));
    let output = settings::read_document("f.toml", "format = \"csv\"", FormatConfig::read_output).ok();
    assert!(matches!(output, Some(FormatConfig::Csv(CsvConfig { header: true, null: None, .. }))));
    for (text, message) in [
        ("format = \"jsn\"", "did you mean `json`?"),
        ("format = \"json\"\nheader = true", "unknown key `header`"),
        ("formt = \"json\"", "did you mean `format`?"),
        ("format = \"csv\"\nseparator = \"ab\"", "`separator` must be one ASCII character"),
        ("format = \"csv\"\nseparator = \"\\n\"", "`separator` must be one ASCII character"),
        ("format = \"csv\"\nquote = \",\"", "must be different"),
        ("format = \"csv\"\nnull = \"a,b\"", "`null` cannot contain"),
    ] {
        let shown = read(text).expect_err(text).to_string();
        assert!(shown.contains(message), "{shown}");
    }
    let raw = settings::read_document("f.toml", "format = \"raw\"", FormatConfig::read_output);
    assert!(raw.is_err());

    let row = DataType::Row(vec![field("x", DataType::Int)]);
    assert!(FormatConfig::Json.check(&[field("r", row.clone())]).is_ok());
    let map = DataType::Map(Box::new(DataType::Int), Box::new(DataType::Int));
    let refused =
        FormatConfig::Json.check(&[field("m", DataType::Array(Box::new(map.clone())))]).expect_err("INT keys");
    assert!(refused.ends_with("the keys of a MAP must be STRING"), "{refused}");
    assert!(
        FormatConfig::Csv(CsvConfig { header: true, separator: b',', quote: b'"', null: None })
            .check(&[field("m", map)])
            .is_err()
    );
    assert_eq!(
        output.expect("read").check(&[field("r", row)]),
        Err("format \"csv\" cannot hold column `r` of type ROW<`x` INT>".to_owned())
    );
    assert!(FormatConfig::Raw.check(&[field("x", DataType::Bytes)]).is_ok());
    assert!(FormatConfig::Raw.check(&[field("x", DataType::Int)]).is_err());
    assert!(FormatConfig::Raw.check(&[]).is_err());
}
