//! Which windows an event time falls into, and when a window is over.

use forebay::expr::DataType;
use forebay::sql::plan::{WindowKind, WindowProperty, WindowSpec};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::scalar::wall;
use crate::value::Value;

/// Windows of one specification, cut on the wall clock of `zone` where times are instants.
pub struct Windows<'a> {
    spec: &'a WindowSpec,
    zone: TimeZone,
}

impl Windows<'_> {
    pub fn new<'a>(spec: &'a WindowSpec, zone: &TimeZone) -> Windows<'a> {
        let local = matches!(spec.time_type, DataType::TimestampLtz(_));
        Windows { spec, zone: if local { zone.clone() } else { TimeZone::UTC } }
    }

    pub fn wall(&self, time_ms: i64) -> i64 {
        wall(time_ms * 1000, &self.zone) / 1000
    }

    /// Start and end, on the wall clock, of every window of a row, earlier ends first.
    pub fn of(&self, row: &[Value]) -> Vec<(i64, i64)> {
        let time = row[self.spec.time_column].millis().expect("rows have a time");
        let (size, step, offset) = match self.spec.kind {
            WindowKind::Tumble { size_ms, offset_ms } => (size_ms, size_ms, offset_ms),
            WindowKind::Hop { size_ms, slide_ms, offset_ms } => (size_ms, slide_ms, offset_ms),
            WindowKind::Cumulate { size_ms, step_ms, offset_ms } => (size_ms, step_ms, offset_ms),
            WindowKind::Attached { start } => {
                return vec![(row[start].millis().expect("windows have a start"), time)];
            }
            WindowKind::Session { gap_ms, .. } => {
                let start = self.wall(time);
                return vec![(start, start + gap_ms)];
            }
        };
        let at = self.wall(time) - offset;
        // Try every multiple of the step around the time.
        let first = at.div_euclid(step) * step;
        let steps = size / step + 1;
        let mut windows = Vec::new();
        for end in (0..=steps).map(|index| first + index * step) {
            let start = match self.spec.kind {
                WindowKind::Cumulate { .. } => (end - 1).div_euclid(size) * size,
                _ => end - size,
            };
            if start <= at && at < end {
                windows.push((start + offset, end + offset));
            }
        }
        windows
    }

    /// Where lists have a row among the others of a window: hopping windows are put together from the last slice back;
    /// cumulating ones in the order of the slices, but a row whose slice has fired goes behind what has fired by then.
    pub fn place(&self, own: &[(i64, i64)], watermark: i64) -> i64 {
        let slice = own[0].1;
        match self.spec.kind {
            WindowKind::Hop { .. } => -slice,
            WindowKind::Cumulate { .. } => {
                own.iter().map(|(_, end)| *end).filter(|end| self.over_at(*end) <= watermark).max().unwrap_or(slice)
            }
            _ => 0,
        }
    }

    /// The watermark at which the window with this end is over: its last millisecond, the later one where the wall clock
    /// shows it twice.
    pub fn over_at(&self, end: i64) -> i64 {
        self.instant(end - 1, false)
    }

    /// The instant of a time on the wall clock: of two, the earlier one or the later.
    fn instant(&self, last: i64, earlier: bool) -> i64 {
        let shown = TimeZone::UTC.to_datetime(Timestamp::from_millisecond(last).expect("within the calendar"));
        let offset = match self.zone.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } => before,
            AmbiguousOffset::Fold { before, after } => {
                if earlier {
                    before
                } else {
                    after
                }
            }
        };
        last - i64::from(offset.seconds()) * 1000
    }

    pub fn property(&self, property: WindowProperty, (start, end): (i64, i64)) -> Value {
        Value::Int(match property {
            WindowProperty::Start => start * 1000,
            WindowProperty::End => end * 1000,
            WindowProperty::Time => self.instant(end - 1, true) * 1000,
        })
    }
}
