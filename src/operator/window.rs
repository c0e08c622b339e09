//! Window assignment: which windows an event time falls into, and when a window is over; and the bare window table
//! function, which only appends the window's columns.
//!
//! Windows that overlap share *slices*: stretches of time that lie whole inside every window that touches them. A slice
//! is named by its end. A tumbling window is its own slice; hopping windows are cut at every slide, cumulating ones at
//! every step. The windows that contain a slice end at the slice's end and at every slice after it, up to the last.
//!
//! Windows are cut on a wall clock: the pipeline's time zone for TIMESTAMP_LTZ, none for TIMESTAMP. A window is named by
//! its start and end on that wall clock, in milliseconds. It is over when the watermark reaches its last millisecond
//! as an instant; at a change from daylight-saving time, where a wall-clock time happens twice, the later one counts
//! (as in Flink's `TimeWindowUtil.toEpochMillsForTimer`). For `window_time` it is the earlier one (`toEpochMills`), so in
//! that hour rows come with a time that the watermark has passed, and are late for what orders or groups by it again.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, TimestampMicrosecondArray};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{Chunk, Operator, OperatorError, Sides, event_times, instants};
use crate::event::{EventTime, WATERMARK_MAX};
use crate::expr::{DataType, EvalContext};
use crate::sql::plan::{WindowKind, WindowProperty, WindowSpec};

/// Assigns windows to event times.
pub struct Assigner {
    slices: Slices,
    /// The rows carry the ends of their windows in place of event times.
    attached: bool,
    /// `None`: the wall clock is UTC.
    zone: Option<ZoneCache>,
    time_type: DataType,
}

/// How windows are cut on the wall clock.
#[derive(Clone, Copy)]
struct Slices {
    /// From one slice's end to the next.
    slice_ms: i64,
    size_ms: i64,
    offset_ms: i64,
    /// Windows that end within one size start together (CUMULATE).
    cumulating: bool,
}

impl Slices {
    fn new(kind: &WindowKind) -> Slices {
        let (slice_ms, size_ms, offset_ms) = match *kind {
            WindowKind::Tumble { size_ms, offset_ms } => (size_ms, size_ms, offset_ms),
            WindowKind::Hop { size_ms, slide_ms, offset_ms } => (slide_ms, size_ms, offset_ms),
            WindowKind::Cumulate { size_ms, step_ms, offset_ms } => (step_ms, size_ms, offset_ms),
            // Sessions are not cut: their own operator knows where they start.
            WindowKind::Session { gap_ms, .. } => (gap_ms, gap_ms, 0),
            WindowKind::Attached { .. } => (1, 1, 0),
        };
        let cumulating = matches!(kind, WindowKind::Cumulate { .. });
        let slice_ms = slice_ms.max(1);
        Slices { slice_ms, size_ms: size_ms.max(slice_ms), offset_ms, cumulating }
    }

    /// Start of the stretch of `length_ms` that contains a time.
    fn floor(&self, wall: i64, length_ms: i64) -> i64 {
        wall.saturating_sub(wall.saturating_sub(self.offset_ms).rem_euclid(length_ms))
    }

    fn slice_of(&self, wall: i64) -> i64 {
        self.floor(wall, self.slice_ms).saturating_add(self.slice_ms)
    }

    fn start_of(&self, end: i64) -> i64 {
        if self.cumulating { self.floor(end.saturating_sub(1), self.size_ms) } else { end.saturating_sub(self.size_ms) }
    }

    fn last_end(&self, slice: i64) -> i64 {
        if self.cumulating {
            self.start_of(slice).saturating_add(self.size_ms)
        } else {
            slice.saturating_sub(self.slice_ms).saturating_add(self.size_ms)
        }
    }
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
        let local = matches!(spec.time_type, DataType::TimestampLtz(_)) && *zone != TimeZone::UTC;
        Assigner {
            slices: Slices::new(&spec.kind),
            attached: matches!(spec.kind, WindowKind::Attached { .. }),
            zone: local.then(|| ZoneCache { zone: zone.clone(), from_ms: 0, to_ms: 0, offset_ms: 0 }),
            time_type: spec.time_type.clone(),
        }
    }

    /// An event time on the wall clock.
    pub fn wall_of(&mut self, event_time: EventTime) -> i64 {
        let shift = self.zone.as_mut().map_or(0, |zone| zone.offset_ms(event_time));
        event_time.saturating_add(shift)
    }

    /// End on the wall clock, exclusive, of the slice that an event time falls into.
    pub fn slice_of(&mut self, event_time: EventTime) -> i64 {
        if self.attached {
            return event_time;
        }
        let wall = self.wall_of(event_time);
        self.slices.slice_of(wall)
    }

    /// The event time of a row whose time column holds this: of a row that carries its window, the window's last moment.
    pub fn event_time_of(&self, time: EventTime) -> EventTime {
        if self.attached { self.over_at(time) } else { time }
    }

    /// End of the last window that contains the slice with this end.
    pub fn last_end(&self, slice: i64) -> i64 {
        self.slices.last_end(slice)
    }

    /// Ends of the windows that contain the slice with this end.
    pub fn ends_of(&self, slice: i64) -> impl Iterator<Item = i64> + use<> {
        let (last, slice_ms) = (self.last_end(slice), self.slices.slice_ms);
        std::iter::successors(Some(slice), move |end| end.checked_add(slice_ms).filter(|next| *next <= last))
    }

    /// Start on the wall clock of the window with this end.
    pub fn start_of(&self, end: i64) -> i64 {
        self.slices.start_of(end)
    }

    /// End of the first slice of the window with this end.
    pub fn first_slice(&self, end: i64) -> i64 {
        self.start_of(end).saturating_add(self.slices.slice_ms)
    }

    /// The watermark at which the window with this end is over.
    pub fn over_at(&self, end: i64) -> EventTime {
        self.last_instant(end, |_, after| after)
    }

    /// The time attribute of the window with this end.
    fn time_of(&self, end: i64) -> EventTime {
        self.last_instant(end, |before, _| before)
    }

    /// The last millisecond of the window with this end: see [`instant_of`].
    fn last_instant(&self, end: i64, which: fn(Offset, Offset) -> Offset) -> EventTime {
        let last = end.saturating_sub(1);
        match &self.zone {
            None => last,
            Some(zone) => instant_of(last, &zone.zone, which),
        }
    }

    /// A window property for windows given by their starts and ends.
    pub fn property(&self, property: WindowProperty, windows: impl Iterator<Item = (i64, i64)>) -> ArrayRef {
        let micros = |ms: i64| ms.saturating_mul(1000);
        match property {
            WindowProperty::Start => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(windows.map(|(start, _)| micros(start))))
            }
            WindowProperty::End => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(windows.map(|(_, end)| micros(end))))
            }
            WindowProperty::Time => {
                let times = windows.map(|(_, end)| micros(self.time_of(end)));
                match self.time_type {
                    DataType::TimestampLtz(_) => Arc::new(instants(times)),
                    _ => Arc::new(TimestampMicrosecondArray::from_iter_values(times)),
                }
            }
        }
    }
}

/// The instant of a wall-clock time: by `which` of the offsets before and after a change back, where it happens twice, and
/// shifted forward by the gap where there is none.
fn instant_of(wall_ms: i64, zone: &TimeZone, which: fn(Offset, Offset) -> Offset) -> EventTime {
    let Ok(at) = Timestamp::from_millisecond(wall_ms) else { return WATERMARK_MAX };
    let civil: DateTime = TimeZone::UTC.to_datetime(at);
    let offset = match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } => before,
        AmbiguousOffset::Fold { before, after } => which(before, after),
    };
    wall_ms.saturating_sub(i64::from(offset.seconds()) * 1000)
}

/// `TABLE(TUMBLE(…))` without aggregation: each row once for every window that it falls into, earlier windows first,
/// with `window_start`, `window_end`, `window_time`. Rows are never late here; a row whose time is NULL does not exist
/// (sources refuse it).
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
        let (mut rows, mut windows) = (Vec::new(), Vec::new());
        for (row, time) in event_times(times).enumerate() {
            let slice = self.assigner.slice_of(time.unwrap_or(0));
            for end in self.assigner.ends_of(slice) {
                rows.push(row as u32);
                windows.push((self.assigner.start_of(end), end));
            }
        }
        let mut output = input.repeat(&rows)?;
        for property in [WindowProperty::Start, WindowProperty::End, WindowProperty::Time] {
            output.columns.push(self.assigner.property(property, windows.iter().copied()));
        }
        debug_assert!(output.columns.iter().all(|column| column.len() == output.rows()));
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigner(size_ms: i64, offset_ms: i64, zone: &str) -> Assigner {
        of(WindowKind::Tumble { size_ms, offset_ms }, zone)
    }

    fn of(kind: WindowKind, zone: &str) -> Assigner {
        let zone = TimeZone::get(zone).expect("a zone of the bundled database");
        Assigner::new(&WindowSpec { kind, time_column: 0, time_type: DataType::TimestampLtz(3) }, &zone)
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_also_before_it() {
        let mut tens = assigner(10_000, 0, "UTC");
        assert_eq!(tens.slice_of(0), 10_000);
        assert_eq!(tens.slice_of(9_999), 10_000);
        assert_eq!(tens.slice_of(10_000), 20_000);
        assert_eq!(tens.slice_of(-1), 0);
        assert_eq!(tens.over_at(10_000), 9_999);
    }

    #[test]
    fn an_offset_shifts_the_edges() {
        let mut minutes = assigner(60_000, 7_000, "UTC");
        assert_eq!(minutes.slice_of(6_999), 7_000);
        assert_eq!(minutes.slice_of(7_000), 67_000);
    }

    #[test]
    fn hopping_windows_share_slices() {
        let kind = WindowKind::Hop { size_ms: 30, slide_ms: 10, offset_ms: 2 };
        let mut hops = of(kind, "UTC");
        assert_eq!(hops.slice_of(2), 12);
        assert_eq!(hops.slice_of(1), 2);
        assert_eq!(hops.ends_of(12).collect::<Vec<_>>(), [12, 22, 32]);
        assert_eq!((hops.start_of(32), hops.first_slice(32), hops.last_end(12)), (2, 12, 32));
    }

    #[test]
    fn cumulating_windows_start_together() {
        let kind = WindowKind::Cumulate { size_ms: 30, step_ms: 10, offset_ms: 0 };
        let mut steps = of(kind, "UTC");
        assert_eq!(steps.slice_of(10), 20);
        assert_eq!(steps.ends_of(20).collect::<Vec<_>>(), [20, 30]);
        assert_eq!((steps.start_of(20), steps.start_of(30), steps.start_of(40)), (0, 0, 30));
        assert_eq!((steps.first_slice(30), steps.last_end(-10)), (10, 0));
    }

    #[test]
    fn a_local_day_across_the_change_to_summer_time_has_23_hours() {
        let mut days = assigner(86_400_000, 0, "Europe/Berlin");
        let at = |text: &str| text.parse::<Timestamp>().expect("a timestamp").as_millisecond();
        let end = days.slice_of(at("2026-03-28T23:30:00Z"));
        assert_eq!(days.over_at(end) + 1, at("2026-03-29T22:00:00Z"));
        assert_eq!(days.slice_of(at("2026-03-29T21:59:59Z")), end);
        assert_ne!(days.slice_of(at("2026-03-29T22:00:00Z")), end);
    }

    #[test]
    fn an_hour_that_happens_twice_is_over_after_the_second() {
        let mut hours = assigner(3_600_000, 0, "Europe/Berlin");
        let at = |text: &str| text.parse::<Timestamp>().expect("a timestamp").as_millisecond();
        let first = hours.slice_of(at("2026-10-25T00:30:00Z"));
        assert_eq!(first, hours.slice_of(at("2026-10-25T01:30:00Z")));
        assert_eq!(hours.over_at(first) + 1, at("2026-10-25T02:00:00Z"));
        assert_eq!(hours.time_of(first) + 1, at("2026-10-25T01:00:00Z"), "window_time is in the earlier one");
    }
}
