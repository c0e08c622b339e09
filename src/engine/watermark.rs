//! The clock of one source: watermark, idleness, end; a function of the log's records alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::SourceTime;
use crate::event::{EventTime, LogTime, WATERMARK_MAX};
use crate::operator::StreamClock;

/// What a source's watermark is made from.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Event time is the arrival; ticks advance the watermark too.
    pub by_arrival: bool,
    pub max_out_of_orderness_ms: i64,
    pub idle: Option<Duration>,
}

impl Rules {
    /// The rules of a `[source.NAME.time]` table.
    pub fn new(time: &SourceTime) -> Rules {
        Rules {
            by_arrival: time.column.is_none(),
            max_out_of_orderness_ms: time.max_out_of_orderness_ms,
            idle: time.idle,
        }
    }
}

/// The running clock of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceClock {
    pub stream: StreamClock,
    /// Log time of the last data, or of the last start.
    pub active_at: LogTime,
}

impl SourceClock {
    /// A row was taken. Gives whether the stream's clock changed.
    pub fn row(&mut self, event_time: EventTime, arrival: LogTime, rules: &Rules) -> bool {
        self.active_at = arrival;
        let before = self.stream;
        self.stream.idle = false;
        self.advance(event_time, rules);
        self.stream != before
    }

    /// Time passed without data.
    pub fn tick(&mut self, now: LogTime, rules: &Rules) -> bool {
        let before = self.stream;
        if self.stream.ended {
            return false;
        }
        if rules.by_arrival {
            self.advance(now.millis(), rules);
        } else if self.idle_at(rules).is_some_and(|at| at <= now) {
            self.stream.idle = true;
        }
        self.stream != before
    }

    /// The engine started: the count for idleness begins anew.
    pub fn started(&mut self, now: LogTime) {
        self.active_at = now;
    }

    /// The source has given all it had.
    pub fn end(&mut self) -> bool {
        let before = self.stream;
        self.stream = StreamClock { watermark: WATERMARK_MAX, idle: false, ended: true };
        self.stream != before
    }

    /// The log time at which the source becomes idle if nothing comes.
    pub fn idle_at(&self, rules: &Rules) -> Option<LogTime> {
        let idle = i64::try_from(rules.idle?.as_micros()).unwrap_or(i64::MAX);
        let waits = !self.stream.idle && !self.stream.ended && !rules.by_arrival;
        waits.then(|| LogTime(self.active_at.0.saturating_add(idle)))
    }

    fn advance(&mut self, event_time: EventTime, rules: &Rules) {
        let watermark = event_time.saturating_sub(rules.max_out_of_orderness_ms);
        self.stream.watermark = self.stream.watermark.max(watermark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::WATERMARK_MIN;

    const RULES: Rules =
        Rules { by_arrival: false, max_out_of_orderness_ms: 2000, idle: Some(Duration::from_secs(30)) };

    #[test]
    fn the_watermark_follows_the_greatest_time_and_never_falls() {
        let mut clock = SourceClock::default();
        assert_eq!(clock.stream.watermark, WATERMARK_MIN);
        assert!(clock.row(10_000, LogTime(1), &RULES));
        assert_eq!(clock.stream.watermark, 8_000);
        assert!(!clock.row(5_000, LogTime(2), &RULES));
        assert_eq!(clock.stream.watermark, 8_000);
    }

    #[test]
    fn silence_makes_idle_and_data_wakes() {
        let mut clock = SourceClock::default();
        clock.started(LogTime(0));
        assert_eq!(clock.idle_at(&RULES), Some(LogTime(30_000_000)));
        assert!(!clock.tick(LogTime(29_999_999), &RULES));
        assert!(clock.tick(LogTime(30_000_000), &RULES));
        assert!(clock.stream.idle);
        assert_eq!(clock.idle_at(&RULES), None);
        assert!(clock.row(10_000, LogTime(31_000_000), &RULES));
        assert!(!clock.stream.idle);
    }

    #[test]
    fn ticks_move_a_source_on_arrival_time() {
        let rules = Rules { by_arrival: true, max_out_of_orderness_ms: 1, idle: None };
        let mut clock = SourceClock::default();
        assert!(clock.tick(LogTime(10_000_000), &rules));
        assert_eq!(clock.stream.watermark, 9_999);
        assert!(clock.end());
        assert!(!clock.tick(LogTime(20_000_000), &rules));
    }
}
