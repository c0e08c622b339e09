//! Aggregates over a list of rows, from scratch for each result.

use std::cmp::Ordering;

use forebay::expr::aggregate::{AggregateKind, Parameter};
use forebay::expr::{AggregateCall, DataType};

use crate::scalar::{divide_half_up, fits, narrow};
use crate::value::{Key, Value};

/// What an aggregate sees of one row: whether its filter takes the row, and the argument (nothing for `COUNT(*)`).
#[derive(Clone, Debug)]
pub struct Seen {
    pub taken: bool,
    pub argument: Option<Value>,
    /// Where LISTAGG has the row among the others of its window: see [`crate::windows::Windows::place`].
    pub place: i64,
}

/// The aggregate of rows, which stand in the order of the log.
pub fn aggregate<'a>(call: &AggregateCall, rows: impl Iterator<Item = &'a Seen>) -> Value {
    let mut rows: Vec<&Seen> = rows.collect();
    if call.kind == AggregateKind::ListAgg && !call.distinct {
        rows.sort_by_key(|seen| seen.place);
    }
    let mut values: Vec<Option<Value>> = rows
        .into_iter()
        .filter(|seen| seen.taken)
        .map(|seen| seen.argument.clone())
        .filter(|argument| argument.as_ref().is_none_or(|value| !value.is_null()))
        .collect();
    if call.kind == AggregateKind::Count && call.argument.is_none() {
        return Value::Int(values.len() as i64);
    }
    let mut values: Vec<Value> = values.drain(..).flatten().collect();
    if call.distinct {
        let mut known: Vec<Key> = Vec::new();
        values.retain(|value| {
            let key = Key(vec![value.clone()]);
            let new = !known.contains(&key);
            if new {
                known.push(key);
            }
            new
        });
    }
    let count = values.len();
    if call.kind == AggregateKind::Count {
        return Value::Int(count as i64);
    }
    if count == 0 {
        return Value::Null;
    }
    let extreme = |wanted: Ordering| {
        values.iter().skip(1).fold(values[0].clone(), |best, value| {
            if value.compare(&best) == Some(wanted) { value.clone() } else { best }
        })
    };
    match call.kind {
        AggregateKind::Sum | AggregateKind::Avg => sum(call, &values),
        AggregateKind::Min => extreme(Ordering::Less),
        AggregateKind::Max => extreme(Ordering::Greater),
        AggregateKind::FirstValue => values[0].clone(),
        AggregateKind::LastValue => values[count - 1].clone(),
        AggregateKind::ListAgg => {
            let Parameter::Separator(separator) = &call.parameter else { panic!("LISTAGG has a separator") };
            Value::Text(values.iter().map(Value::text).collect::<Vec<_>>().join(separator))
        }
        AggregateKind::StddevPop | AggregateKind::StddevSamp | AggregateKind::VarPop | AggregateKind::VarSamp => {
            spread(call, &values)
        }
        AggregateKind::Percentile => {
            let Parameter::Percentages { values: places, array } = &call.parameter else { panic!("has percentages") };
            let mut sorted: Vec<f64> = values.iter().map(Value::double).collect();
            sorted.sort_by(f64::total_cmp);
            let at = |place: &f64| {
                let position = place * (count - 1) as f64;
                let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
                Value::Double(low + (high - low) * position.fract())
            };
            if *array { Value::List(places.iter().map(at).collect()) } else { at(&places[0]) }
        }
        other => panic!("the interpreter does not know {other:?}"),
    }
}

/// SUM and AVG: integers wrap and stay what they are, decimals grow to 38 digits.
fn sum(call: &AggregateCall, values: &[Value]) -> Value {
    let count = values.len();
    let average = call.kind == AggregateKind::Avg;
    match (&values[0], &call.data_type) {
        (Value::Int(_), to) => {
            let sum = values.iter().fold(0_i64, |sum, value| sum.wrapping_add(value.int()));
            Value::Int(narrow(if average { sum / count as i64 } else { sum }, to))
        }
        (Value::Double(_), DataType::Float) if !average => {
            Value::Double(f64::from(values.iter().fold(0.0_f32, |sum, value| sum + value.double() as f32)))
        }
        (Value::Double(_), to) => {
            let sum = values.iter().fold(0.0, |sum, value| sum + value.double());
            let value = if average { sum / count as f64 } else { sum };
            Value::Double(if *to == DataType::Float { f64::from(value as f32) } else { value })
        }
        (Value::Decimal(_), DataType::Decimal(precision, scale)) => {
            let from = match call.argument.as_ref().map(|argument| &argument.data_type) {
                Some(DataType::Decimal(_, scale)) => *scale,
                _ => 0,
            };
            let sum: i128 = values.iter().map(|value| if let Value::Decimal(value) = value { *value } else { 0 }).sum();
            let sum = sum * 10_i128.pow(u32::from(scale - from));
            fits(if average { divide_half_up(sum, count as i128) } else { sum }, *precision)
        }
        (value, to) => panic!("the interpreter does not know the sum of {value:?} as {to}"),
    }
}

/// Variance in two passes.
fn spread(call: &AggregateCall, values: &[Value]) -> Value {
    let n = values.len() as f64;
    let mean = values.iter().map(Value::double).sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value.double() - mean).powi(2)).sum();
    let sample = matches!(call.kind, AggregateKind::StddevSamp | AggregateKind::VarSamp);
    let divisor = if sample { n - 1.0 } else { n };
    if divisor == 0.0 {
        return Value::Null;
    }
    let variance = squares / divisor;
    let root = matches!(call.kind, AggregateKind::StddevSamp | AggregateKind::StddevPop);
    assert_eq!(call.data_type, DataType::Double, "the interpreter knows the deviation of DOUBLE only");
    Value::Double(if root { variance.sqrt() } else { variance })
}
