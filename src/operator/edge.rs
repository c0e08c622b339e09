//! Forebay's own OVER functions: what one reading says beside those before it. Not part of Flink.
//!
//! Each is computed row by row within its key, in order of event time, ties in order of arrival. x, band, low and high
//! are DOUBLE; a NULL among the arguments leaves the state as it is.
//!
//! | function | gives | first row | x is NULL |
//! |---|---|---|---|
//! | `CHANGED(x)` | BOOLEAN: x IS DISTINCT FROM the x of the row before; any type | TRUE | compares like any value |
//! | `DEADBAND(x, band)` | BOOLEAN: \|x − the last x for which it was TRUE\| > band | TRUE | FALSE |
//! | `HYSTERESIS(x, low, high)` | BOOLEAN: TRUE from x ≥ high on, FALSE from x ≤ low on, else as before | FALSE between low and high | as before |
//! | `EWMA(x, tau)` | DOUBLE: y + (1 − exp(−Δt / tau)) · (x − y), y the result before, Δt the time since then; tau an INTERVAL | x | y; NULL before the first x |
//! | `RATE(x)` | DOUBLE: (x − the last x of an earlier time) / Δt in seconds | NULL | NULL |
//!
//! A negative band is none: DEADBAND is TRUE for every x. Where low > high, HYSTERESIS asks `x ≥ high` first. A tau of
//! zero or less makes EWMA give x. RATE of several rows of one time: each against the last x of the time before.

use serde::{Deserialize, Serialize};

use crate::event::EventTime;
use crate::sql::plan::OverFunction;

/// What a function knows of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EdgeState {
    /// The row before, as comparable bytes.
    Changed(Option<Box<[u8]>>),
    /// The last x that was reported.
    Deadband(Option<f64>),
    Hysteresis(bool),
    /// Time and value of the last result.
    Ewma(Option<(EventTime, f64)>),
    Rate {
        /// Time and value of the last x.
        last: Option<(EventTime, f64)>,
        /// The last x of an earlier time than that.
        before: Option<(EventTime, f64)>,
    },
}

/// One row's arguments.
pub struct Reading<'a> {
    pub time: EventTime,
    /// The numbers: x, then band, or low and high.
    pub numbers: [Option<f64>; 3],
    /// tau in milliseconds.
    pub tau_ms: Option<i64>,
    /// x as comparable bytes.
    pub bytes: &'a [u8],
}

/// What a function gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Given {
    Boolean(bool),
    Double(Option<f64>),
}

impl EdgeState {
    /// The state before the first row; `None` where the function is none of these.
    pub fn new(function: &OverFunction) -> Option<EdgeState> {
        match function {
            OverFunction::Aggregate(_) | OverFunction::Lag { .. } | OverFunction::Rank { .. } => None,
            OverFunction::Changed => Some(EdgeState::Changed(None)),
            OverFunction::Deadband => Some(EdgeState::Deadband(None)),
            OverFunction::Hysteresis => Some(EdgeState::Hysteresis(false)),
            OverFunction::Ewma => Some(EdgeState::Ewma(None)),
            OverFunction::Rate => Some(EdgeState::Rate { last: None, before: None }),
        }
    }

    /// Takes the next row.
    pub fn next(&mut self, reading: &Reading<'_>) -> Given {
        let Reading { time, numbers: [x, a, b], tau_ms, bytes } = *reading;
        match self {
            EdgeState::Changed(last) => {
                let changed = last.as_deref() != Some(bytes);
                if changed {
                    *last = Some(bytes.into());
                }
                Given::Boolean(changed)
            }
            EdgeState::Deadband(last) => Given::Boolean(match (x, a) {
                (Some(x), Some(band)) => {
                    // A NaN is never within the band.
                    let within = last.is_some_and(|last| (x - last).abs() <= band);
                    if !within {
                        *last = Some(x);
                    }
                    !within
                }
                _ => false,
            }),
            EdgeState::Hysteresis(on) => {
                if let (Some(x), Some(low), Some(high)) = (x, a, b) {
                    if x >= high {
                        *on = true;
                    } else if x <= low {
                        *on = false;
                    }
                }
                Given::Boolean(*on)
            }
            EdgeState::Ewma(last) => {
                if let (Some(x), Some(tau_ms)) = (x, tau_ms) {
                    let value = match *last {
                        Some((then, y)) if tau_ms > 0 => {
                            let elapsed = time.saturating_sub(then) as f64 / tau_ms as f64;
                            y + (1.0 - (-elapsed).exp()) * (x - y)
                        }
                        _ => x,
                    };
                    *last = Some((time, value));
                }
                Given::Double(last.map(|(_, y)| y))
            }
            EdgeState::Rate { last, before } => Given::Double(x.and_then(|x| {
                if let Some((then, _)) = *last
                    && then < time
                {
                    *before = *last;
                }
                *last = Some((time, x));
                before.map(|(then, earlier)| (x - earlier) / (time.saturating_sub(then) as f64 / 1000.0))
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(function: &OverFunction, rows: &[(EventTime, Option<f64>)], a: f64, b: f64, tau_ms: i64) -> Vec<Given> {
        let mut state = EdgeState::new(function).expect("an edge function");
        rows.iter()
            .map(|(time, x)| {
                let bytes = format!("{x:?}");
                let numbers = [*x, Some(a), Some(b)];
                state.next(&Reading { time: *time, numbers, tau_ms: Some(tau_ms), bytes: bytes.as_bytes() })
            })
            .collect()
    }

    fn booleans(function: &OverFunction, xs: &[Option<f64>], a: f64, b: f64) -> Vec<bool> {
        let rows: Vec<(EventTime, Option<f64>)> = xs.iter().map(|x| (0, *x)).collect();
        run(function, &rows, a, b, 1).into_iter().map(|given| given == Given::Boolean(true)).collect()
    }

    #[test]
    fn changed_compares_with_the_row_before() {
        let xs = [None, None, Some(1.0), Some(1.0), Some(2.0), None, Some(2.0)];
        assert_eq!(booleans(&OverFunction::Changed, &xs, 0.0, 0.0), [true, false, true, false, true, true, true]);
    }

    #[test]
    fn a_deadband_reports_what_leaves_it() {
        let xs = [None, Some(10.0), Some(10.5), Some(9.5), Some(10.6), None, Some(10.2), Some(11.2)];
        let expected = [false, true, false, false, true, false, false, true];
        assert_eq!(booleans(&OverFunction::Deadband, &xs, 0.5, 0.0), expected);
        assert_eq!(booleans(&OverFunction::Deadband, &[Some(1.0), Some(1.0)], -1.0, 0.0), [true, true]);
    }

    #[test]
    fn hysteresis_switches_at_its_ends() {
        let xs = [Some(5.0), Some(8.0), Some(5.0), None, Some(2.0), Some(5.0), Some(9.0)];
        let expected = [false, true, true, true, false, false, true];
        assert_eq!(booleans(&OverFunction::Hysteresis, &xs, 2.0, 8.0), expected);
    }

    #[test]
    fn ewma_weighs_by_elapsed_time() {
        let rows = [(0, None), (0, Some(10.0)), (1000, Some(20.0)), (1500, None), (1000, Some(99.0))];
        let w = 1.0 - (-1.0_f64).exp();
        let second = 10.0 + w * 10.0;
        let given = run(&OverFunction::Ewma, &rows, 0.0, 0.0, 1000);
        let expected = [None, Some(10.0), Some(second), Some(second), Some(second)];
        assert_eq!(given, expected.map(Given::Double), "a tie weighs nothing");
        assert_eq!(run(&OverFunction::Ewma, &rows[1..3], 0.0, 0.0, 0), [10.0, 20.0].map(|y| Given::Double(Some(y))));
    }

    #[test]
    fn rate_is_per_second_against_an_earlier_time() {
        let rows =
            [(0, Some(1.0)), (0, Some(2.0)), (500, Some(4.0)), (500, Some(5.0)), (1500, None), (2500, Some(1.0))];
        let expected = [None, None, Some(4.0), Some(6.0), None, Some(-2.0)];
        assert_eq!(run(&OverFunction::Rate, &rows, 0.0, 0.0, 0), expected.map(Given::Double));
    }
}
