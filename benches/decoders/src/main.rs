//! JSON lines into columns (a timestamp with time zone, a string, a double; a fourth member is ignored): Forebay's decoder
//! beside arrow-json and beside typed structs of sonic-rs, simd-json and serde_json whose fields are pushed into vectors.
//! Each gives the same columns; one thread; medians of 7 alternating rounds.
//!
//!   cargo run --release --manifest-path benches/decoders/Cargo.toml

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{Field as ArrowField, Schema, TimeUnit};
use forebay::expr::{DataType, Field};
use forebay::format::{FormatConfig, Messages, parse};
use serde::Deserialize;

const EVENTS: u64 = 1_000_000;
const ROUNDS: usize = 7;
/// Messages that are decoded at once.
const BATCH: usize = 8192;

#[derive(Deserialize)]
struct Reading<'a> {
    ts: &'a str,
    device: &'a str,
    temp: f64,
}

/// Columns as plain vectors.
#[derive(Default)]
struct Columns {
    ts: Vec<i64>,
    device: Vec<u8>,
    ends: Vec<usize>,
    temp: Vec<f64>,
}

impl Columns {
    fn push(&mut self, reading: &Reading<'_>) {
        self.ts.push(parse::timestamp_ltz(reading.ts, 3).expect("a time"));
        self.device.extend_from_slice(reading.device.as_bytes());
        self.ends.push(self.device.len());
        self.temp.push(reading.temp);
    }
}

/// What must be the same of all: sums over the columns.
type Sums = (i64, usize, f64);

fn of_arrays(columns: &[ArrayRef]) -> Sums {
    let ts = columns[0].as_primitive::<TimestampMicrosecondType>();
    let device = columns[1].as_string::<i32>();
    let temp = columns[2].as_primitive::<Float64Type>();
    assert!(columns.iter().all(|column| column.null_count() == 0));
    let sum = |values: &[i64]| values.iter().fold(0i64, |sum, value| sum.wrapping_add(*value));
    (sum(ts.values()), device.value_data().len(), temp.values().iter().sum())
}

fn add(sums: &mut Sums, more: Sums) {
    *sums = (sums.0.wrapping_add(more.0), sums.1 + more.1, sums.2 + more.2);
}

struct Input {
    /// Lines without their ends, in batches.
    batches: Vec<(Vec<u8>, Vec<u32>)>,
    bytes: u64,
}

fn input() -> Input {
    let mut state = 42u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    let (mut batches, mut bytes) = (vec![(Vec::new(), Vec::new())], 0);
    for event in 0..EVENTS {
        let ms = event / 10 + 500 - random() % 500;
        let (s, temp) = (ms / 1000, random() % 100_000);
        let line = format!(
            "{{\"ts\":\"2026-04-02T{:02}:{:02}:{:02}.{:03}Z\",\"device\":\"device-{:04}\",\"temp\":{}.{:03},\"seq\":{event}}}",
            s / 3600 % 24,
            s / 60 % 60,
            s % 60,
            ms % 1000,
            random() % 1000,
            temp / 1000,
            temp % 1000
        );
        if batches.last().is_some_and(|(_, lengths)| lengths.len() == BATCH) {
            batches.push((Vec::new(), Vec::new()));
        }
        let (payload, lengths) = batches.last_mut().expect("a batch");
        payload.extend_from_slice(line.as_bytes());
        lengths.push(line.len() as u32);
        bytes += line.len() as u64;
    }
    Input { batches, bytes }
}

fn forebay(input: &Input) -> Sums {
    let fields = [
        Field::new("ts", DataType::TimestampLtz(3)),
        Field::new("device", DataType::String),
        Field::new("temp", DataType::Double),
    ];
    let mut decoder = FormatConfig::Json.decoder(&fields, None);
    let mut sums = Sums::default();
    for (payload, lengths) in &input.batches {
        let decoded = decoder.decode(&[Messages { payload, lengths }], None);
        assert!(decoded.refused.is_empty());
        add(&mut sums, of_arrays(&decoded.columns));
    }
    sums
}

fn arrow_json(input: &Input) -> Sums {
    // Names of zones need another crate.
    let zone: Arc<str> = "+00:00".into();
    let schema = Schema::new(vec![
        ArrowField::new("ts", arrow_schema::DataType::Timestamp(TimeUnit::Microsecond, Some(zone)), true),
        ArrowField::new("device", arrow_schema::DataType::Utf8, true),
        ArrowField::new("temp", arrow_schema::DataType::Float64, true),
    ]);
    let mut decoder =
        arrow_json::ReaderBuilder::new(Arc::new(schema)).with_batch_size(BATCH).build_decoder().expect("a decoder");
    let mut sums = Sums::default();
    for (payload, _) in &input.batches {
        // Objects one behind the other need no line ends.
        assert_eq!(decoder.decode(payload).expect("decodes"), payload.len());
        let batch = decoder.flush().expect("decodes").expect("rows");
        add(&mut sums, of_arrays(batch.columns()));
    }
    sums
}

/// Line by line into a struct, and from there into vectors.
fn typed(input: &Input, mut parse: impl FnMut(&[u8], &mut Columns)) -> Sums {
    let mut sums = Sums::default();
    for (payload, lengths) in &input.batches {
        let mut columns = Columns::default();
        for line in (Messages { payload, lengths }).iter() {
            parse(line, &mut columns);
        }
        black_box(&columns.ends);
        let ts = columns.ts.iter().fold(0i64, |sum, value| sum.wrapping_add(*value));
        add(&mut sums, (ts, columns.device.len(), columns.temp.iter().sum()));
    }
    sums
}

fn sonic_rs(input: &Input) -> Sums {
    typed(input, |line, columns| columns.push(&sonic_rs::from_slice(line).expect("a reading")))
}

fn serde_json(input: &Input) -> Sums {
    typed(input, |line, columns| columns.push(&serde_json::from_slice(line).expect("a reading")))
}

fn simd_json(input: &Input) -> Sums {
    // It writes into its input.
    let mut copy = Vec::new();
    typed(input, |line, columns| {
        copy.clear();
        copy.extend_from_slice(line);
        columns.push(&simd_json::serde::from_slice(&mut copy).expect("a reading"));
    })
}

fn main() {
    let input = input();
    let decoders: [(&str, fn(&Input) -> Sums); 5] = [
        ("forebay", forebay),
        ("sonic-rs, typed", sonic_rs),
        ("serde_json, typed", serde_json),
        ("simd-json, typed", simd_json),
        ("arrow-json", arrow_json),
    ];
    let mut seconds = [const { Vec::new() }; 5];
    let expected = forebay(&input);
    for _ in 0..ROUNDS {
        for ((name, decode), seconds) in decoders.iter().zip(&mut seconds) {
            let started = Instant::now();
            let sums = decode(&input);
            seconds.push(started.elapsed().as_secs_f64());
            assert_eq!(sums, expected, "{name}");
        }
    }
    println!("{EVENTS} events, {:.1} bytes each", input.bytes as f64 / EVENTS as f64);
    for ((name, _), mut seconds) in decoders.iter().zip(seconds) {
        seconds.sort_by(f64::total_cmp);
        println!("{name:20} {:.2} GB/s", input.bytes as f64 / seconds[ROUNDS / 2] / 1e9);
    }
}
