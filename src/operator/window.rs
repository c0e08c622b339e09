//! Window assignment: which window an event time falls into, and when that window is over; and the bare window table
//! function, which only appends the window's columns.
//!
//! Windows are cut on a wall clock: the pipeline's time zone for TIMESTAMP_LTZ, none for TIMESTAMP. A window is named by
//! its start and end on that wall clock, in milliseconds. It is over when the watermark reaches its last millisecond
//! as an instant; at a change from daylight-saving time, where a wall-clock time happens twice, the later one counts
//! (as in Flink's `TimeWindowUtil.toEpochMillsForTimer`).

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, TimestampMicrosecondArray};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{Chunk, Operator, OperatorError, Sides, event_times, instants};
use crate::event::{EventTime, WATERMARK_MAX};
use crate::expr::{DataType, EvalContext};
use crate::sql::plan::{WindowKind, WindowProperty, WindowSpec};

/// Assigns windows to event times.
pub struct Assigner {
    size_ms: i64,
    offset_ms: i64,
    /// `None`: the wall clock is UTC.
    zone: Option<ZoneCache>,
    time_type: DataType,
}

/// The zone's UTC offset, kept for as long as it holds.
struct ZoneCache {
    zone: TimeZone,
    /// Milliseconds from and to which `offset_ms` holds.
    from_ms: i64,
    to_ms: i64,
    offset_ms: i64,
}

impl ZoneCache {
    fn offset_ms(&mut self, instant_ms: i64) -> i64 {
        if instant_ms < self.from_ms || instant_ms >= self.to_ms {
            let Ok(at) = Timestamp::from_millisecond(instant_ms) else { return 0 };
            self.offset_ms = i64::from(self.zone.to_offset(at).seconds()) * 1000;
            self.to_ms = self.zone.following(at).next().map_or(i64::MAX, |t| t.timestamp().as_millisecond());
            // `preceding` is exclusive, so ask from just after.
            let after = at.checked_add(SignedDuration::from_nanos(1)).unwrap_or(at);
            self.from_ms = self.zone.preceding(after).next().map_or(i64::MIN, |t| t.timestamp().as_millisecond());
        }
        self.offset_ms
    }
}

impl Assigner {
    /// An assigner for windows over `spec`'s time attribute.
    pub fn new(spec: &WindowSpec, zone: &TimeZone) -> Assigner {
        let WindowKind::Tumble { size_ms, offset_ms } = spec.kind;
        let local = matches!(spec.time_type, DataType::TimestampLtz(_)) && *zone != TimeZone::UTC;
        Assigner {
            size_ms: size_ms.max(1),
            offset_ms,
            zone: local.then(|| ZoneCache { zone: zone.clone(), from_ms: 0, to_ms: 0, offset_ms: 0 }),
            time_type: spec.time_type.clone(),
        }
    }

    /// End on the wall clock, exclusive, of the window that an event time falls into.
    pub fn end_of(&mut self, event_time: EventTime) -> i64 {
        let shift = self.zone.as_mut().map_or(0, |zone| zone.offset_ms(event_time));
        let wall = event_time.saturating_add(shift);
        let into = wall.saturating_sub(self.offset_ms).rem_euclid(self.size_ms);
        wall.saturating_sub(into).saturating_add(self.size_ms)
    }

    /// Start on the wall clock of the window with this end.
    pub fn start_of(&self, end: i64) -> i64 {
        end.saturating_sub(self.size_ms)
    }

    /// The watermark at which the window with this end is over.
    pub fn over_at(&self, end: i64) -> EventTime {
        let last = end.saturating_sub(1);
        match &self.zone {
            None => last,
            Some(zone) => instant_of(last, &zone.zone),
        }
    }

    /// A window property for windows given by their ends.
    pub fn property(&self, property: WindowProperty, ends: impl Iterator<Item = i64>) -> ArrayRef {
        let micros = |ms: i64| ms.saturating_mul(1000);
        match property {
            WindowProperty::Start => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(ends.map(|end| micros(self.start_of(end)))))
            }
            WindowProperty::End => Arc::new(TimestampMicrosecondArray::from_iter_values(ends.map(micros))),
            WindowProperty::Time => {
                let times = ends.map(|end| micros(self.over_at(end)));
                match self.time_type {
                    DataType::TimestampLtz(_) => Arc::new(instants(times)),
                    _ => Arc::new(TimestampMicrosecondArray::from_iter_values(times)),
                }
            }
        }
    }
}

/// The instant of a wall-clock time: the later of two, and shifted forward by the gap where there is none.
fn instant_of(wall_ms: i64, zone: &TimeZone) -> EventTime {
    let Ok(at) = Timestamp::from_millisecond(wall_ms) else { return WATERMARK_MAX };
    let civil: DateTime = TimeZone::UTC.to_datetime(at);
    let offset = match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } => before,
        AmbiguousOffset::Fold { after, .. } => after,
    };
    wall_ms.saturating_sub(i64::from(offset.seconds()) * 1000)
}

/// `TABLE(TUMBLE(…))` without aggregation: appends `window_start`, `window_end`, `window_time`. Rows are never late
/// here; a row whose time is NULL does not exist (sources refuse it).
pub struct Window {
    time_column: usize,
    assigner: Assigner,
}

impl Window {
    /// A bare window function.
    pub fn new(spec: &WindowSpec, zone: &TimeZone) -> Window {
        Window { time_column: spec.time_column, assigner: Assigner::new(spec, zone) }
    }
}

impl Operator for Window {
    fn process(&mut self, inputs: &[Chunk], _: &EvalContext, _: &mut Sides) -> Result<Chunk, OperatorError> {
        let [input] = inputs else { return Ok(Chunk::default()) };
        let Some(times) = input.columns.get(self.time_column) else { return Ok(input.clone()) };
        let ends: Vec<i64> = event_times(times).map(|time| self.assigner.end_of(time.unwrap_or(0))).collect();
        let mut output = input.clone();
        for property in [WindowProperty::Start, WindowProperty::End, WindowProperty::Time] {
            output.columns.push(self.assigner.property(property, ends.iter().copied()));
        }
        debug_assert!(output.columns.iter().all(|column| column.len() == output.rows()));
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigner(size_ms: i64, offset_ms: i64, zone: &str) -> Assigner {
        let zone = TimeZone::get(zone).expect("a zone of the bundled database");
        let kind = WindowKind::Tumble { size_ms, offset_ms };
        Assigner::new(&WindowSpec { kind, time_column: 0, time_type: DataType::TimestampLtz(3) }, &zone)
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_also_before_it() {
        let mut tens = assigner(10_000, 0, "UTC");
        assert_eq!(tens.end_of(0), 10_000);
        assert_eq!(tens.end_of(9_999), 10_000);
        assert_eq!(tens.end_of(10_000), 20_000);
        assert_eq!(tens.end_of(-1), 0);
        assert_eq!(tens.over_at(10_000), 9_999);
    }

    #[test]
    fn an_offset_shifts_the_edges() {
        let mut minutes = assigner(60_000, 7_000, "UTC");
        assert_eq!(minutes.end_of(6_999), 7_000);
        assert_eq!(minutes.end_of(7_000), 67_000);
    }

    #[test]
    fn a_local_day_across_the_change_to_summer_time_has_23_hours() {
        let mut days = assigner(86_400_000, 0, "Europe/Berlin");
        let at = |text: &str| text.parse::<Timestamp>().expect("a timestamp").as_millisecond();
        let end = days.end_of(at("2026-03-28T23:30:00Z"));
        assert_eq!(days.over_at(end) + 1, at("2026-03-29T22:00:00Z"));
        assert_eq!(days.end_of(at("2026-03-29T21:59:59Z")), end);
        assert_ne!(days.end_of(at("2026-03-29T22:00:00Z")), end);
    }

    #[test]
    fn an_hour_that_happens_twice_is_over_after_the_second() {
        let mut hours = assigner(3_600_000, 0, "Europe/Berlin");
        let at = |text: &str| text.parse::<Timestamp>().expect("a timestamp").as_millisecond();
        let first = hours.end_of(at("2026-10-25T00:30:00Z"));
        assert_eq!(first, hours.end_of(at("2026-10-25T01:30:00Z")));
        assert_eq!(hours.over_at(first) + 1, at("2026-10-25T02:00:00Z"));
    }
}
