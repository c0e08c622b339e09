//! Sketches: approximate aggregates of bounded size. Both are deterministic (no seeds, no floating-point functions whose
//! last digit depends on the machine), and merging gives the same as one sketch over all values.

use std::collections::BTreeMap;
use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// Registers of [`DistinctSketch`] as a power of two.
const PRECISION: u32 = 14;
/// Registers from which the sketch is written whole.
const SPARSE_MAX: usize = 2048;

/// HyperLogLog with 2¹⁴ registers: the number of distinct values with a standard error of 0.8 % (1.04 / √2¹⁴). The
/// estimator is Ertl's ("New cardinality estimation algorithms for HyperLogLog sketches", 2017), which needs no tables
/// and has no bias at small numbers. Few values take a few bytes each, many 16 KiB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DistinctSketch(Registers);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Registers {
    Sparse(BTreeMap<u16, u8>),
    Dense(Box<[u8]>),
}

impl Default for Registers {
    fn default() -> Registers {
        Registers::Sparse(BTreeMap::new())
    }
}

impl DistinctSketch {
    /// Adds a value by its identity.
    pub fn add(&mut self, value: &[u8]) {
        let mut hasher = SipHasher13::new();
        hasher.write(value);
        let hash = hasher.finish();
        let register = (hash >> (64 - PRECISION)) as u16;
        // A bit that ends the run, so that a rank is at most 64 − PRECISION + 1.
        let rank = ((hash << PRECISION) | 1 << (PRECISION - 1)).leading_zeros() as u8 + 1;
        self.raise(register, rank);
    }

    /// Adds the values of another sketch.
    pub fn merge(&mut self, other: &DistinctSketch) {
        match &other.0 {
            Registers::Sparse(ranks) => ranks.iter().for_each(|(register, rank)| self.raise(*register, *rank)),
            Registers::Dense(ranks) => {
                let nonzero = (0..).zip(ranks).filter(|(_, rank)| **rank > 0);
                nonzero.for_each(|(register, rank)| self.raise(register, *rank));
            }
        }
    }

    fn raise(&mut self, register: u16, rank: u8) {
        match &mut self.0 {
            Registers::Sparse(ranks) => {
                let known = ranks.entry(register).or_default();
                *known = rank.max(*known);
                if ranks.len() > SPARSE_MAX {
                    let mut dense = vec![0; 1 << PRECISION].into_boxed_slice();
                    for (register, rank) in ranks {
                        if let Some(slot) = dense.get_mut(usize::from(*register)) {
                            *slot = *rank;
                        }
                    }
                    self.0 = Registers::Dense(dense);
                }
            }
            Registers::Dense(ranks) => {
                if let Some(known) = ranks.get_mut(usize::from(register)) {
                    *known = rank.max(*known);
                }
            }
        }
    }

    /// The estimated number of distinct values.
    pub fn estimate(&self) -> i64 {
        const LONGEST: usize = (64 - PRECISION + 1) as usize;
        let registers = f64::from(1u32 << PRECISION);
        let mut counts = [0.0_f64; LONGEST + 1];
        let mut count = |rank: u8, registers: f64| {
            if let Some(known) = counts.get_mut(usize::from(rank)) {
                *known += registers;
            }
        };
        match &self.0 {
            Registers::Sparse(ranks) => {
                ranks.values().for_each(|rank| count(*rank, 1.0));
                count(0, registers - ranks.len() as f64);
            }
            Registers::Dense(ranks) => ranks.iter().for_each(|rank| count(*rank, 1.0)),
        }
        let [zeros, inner @ .., longest] = counts;
        let mut z = registers * tau(1.0 - longest / registers);
        for count in inner.iter().rev() {
            z = 0.5 * (z + count);
        }
        z += registers * sigma(zeros / registers);
        let alpha = 0.5 / std::f64::consts::LN_2;
        (alpha * registers * registers / z).round() as i64
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Bits of the mantissa that tell buckets of [`QuantileSketch`] apart.
const MANTISSA_BITS: u32 = 7;

/// Counts in buckets whose width grows with the value: a quantile within 0.4 % (2⁻⁸) of the true value. A bucket is an
/// exponent and the first 7 bits of the mantissa, so no logarithm is needed. As large as the number of buckets in use:
/// 128 for each doubling between the smallest and the largest value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuantileSketch {
    buckets: BTreeMap<i32, u64>,
    range: Option<(f64, f64)>,
}

impl QuantileSketch {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        *self.buckets.entry(bucket_of(value)).or_default() += 1;
        self.widen(value, value);
    }

    /// Adds the values of another sketch.
    pub fn merge(&mut self, other: &QuantileSketch) {
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        if let Some((least, greatest)) = other.range {
            self.widen(least, greatest);
        }
    }

    fn widen(&mut self, least: f64, greatest: f64) {
        let (a, b) = self.range.unwrap_or((least, greatest));
        let least = if least.total_cmp(&a).is_lt() { least } else { a };
        let greatest = if greatest.total_cmp(&b).is_gt() { greatest } else { b };
        self.range = Some((least, greatest));
    }

    /// About the value that `quantile` (0 to 1) of all values are not above; `None` without values.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let (least, greatest) = self.range?;
        let total: u64 = self.buckets.values().sum();
        let rank = (quantile * total.saturating_sub(1) as f64).round() as u64;
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen > rank {
                let middle = middle_of(*bucket);
                return Some(if middle.is_nan() { middle } else { middle.max(least).min(greatest) });
            }
        }
        Some(greatest)
    }
}

/// Buckets in the order of the values; zeros are bucket 0, NaNs the last.
fn bucket_of(value: f64) -> i32 {
    if value.is_nan() {
        return i32::MAX;
    }
    let magnitude = (value.abs().to_bits() >> (52 - MANTISSA_BITS)) as i32;
    if value < 0.0 { -magnitude } else { magnitude }
}

fn middle_of(bucket: i32) -> f64 {
    if bucket == i32::MAX {
        return f64::NAN;
    }
    if bucket == 0 {
        return 0.0;
    }
    let first = u64::from(bucket.unsigned_abs()) << (52 - MANTISSA_BITS);
    let middle = f64::from_bits(first | 1 << (51 - MANTISSA_BITS));
    let middle = if middle.is_nan() { f64::INFINITY } else { middle };
    if bucket < 0 { -middle } else { middle }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_values_are_counted_within_three_standard_errors() {
        for n in [0u64, 1, 10, 100, 1000, 5000, 20_000, 100_000, 300_000] {
            let (mut whole, mut even, mut odd) =
                (DistinctSketch::default(), DistinctSketch::default(), DistinctSketch::default());
            for i in 0..n {
                whole.add(&i.to_be_bytes());
                whole.add(&i.to_be_bytes());
                if i % 2 == 0 { &mut even } else { &mut odd }.add(&i.to_be_bytes());
            }
            let error = (whole.estimate() as f64 - n as f64).abs();
            assert!(error <= 3.0 * 0.0081 * n as f64, "{n}: {}", whole.estimate());
            even.merge(&odd);
            assert_eq!(even.estimate(), whole.estimate());
        }
    }

    #[test]
    fn quantiles_are_within_the_error_stated() {
        let mut values: Vec<f64> = (0..9973u32).map(|i| f64::from(i * 7919 % 9973) * 0.37 - 900.0).collect();
        let (mut whole, mut low, mut high) =
            (QuantileSketch::default(), QuantileSketch::default(), QuantileSketch::default());
        assert_eq!(whole.quantile(0.5), None);
        for value in &values {
            whole.add(*value);
            if *value < 0.0 { &mut low } else { &mut high }.add(*value);
        }
        high.merge(&low);
        assert_eq!(high, whole);
        values.sort_by(f64::total_cmp);
        for percent in 0..=100 {
            let quantile = f64::from(percent) / 100.0;
            let exact = values[(quantile * (values.len() - 1) as f64).round() as usize];
            let found = whole.quantile(quantile).expect("values");
            assert!((found - exact).abs() <= exact.abs() / 256.0, "{percent}: {found} for {exact}");
        }
        let mut edge = QuantileSketch::default();
        for value in [f64::NEG_INFINITY, -0.0, 5e-324, f64::INFINITY, f64::NAN] {
            edge.add(value);
        }
        assert_eq!(edge.quantile(0.0), Some(f64::NEG_INFINITY));
        assert_eq!(edge.quantile(0.75), Some(f64::INFINITY));
        assert!(edge.quantile(1.0).expect("values").is_nan());
    }
}
