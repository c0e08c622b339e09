//! The wall clock, the clock since boot, and log time, which is made of both.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use super::ntp;
use crate::event::{ClockStep, LogTime};

/// A jump of the wall clock of at least this much is a step; less is the slewing of time synchronisation.
const STEP_US: i64 = 1_000_000;

/// The machine's clocks.
pub trait Clock: Send + Sync {
    /// The wall clock: µs since the Unix epoch. May jump both ways.
    fn wall_us(&self) -> i64;

    /// µs since boot, suspend included. Never jumps.
    fn boottime_us(&self) -> i64;

    /// Whether the wall clock is known to be right; true where that cannot be told.
    fn synchronised(&self) -> bool;
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall_us(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX),
        }
    }

    fn boottime_us(&self) -> i64 {
        let time = clock_gettime(ClockId::Boottime);
        time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000)
    }

    fn synchronised(&self) -> bool {
        ntp::synchronised()
    }
}

/// A clock that is set by hand: for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock {
    state: Mutex<Manual>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Manual {
    wall_us: i64,
    boottime_us: i64,
    unsynchronised: bool,
}

impl ManualClock {
    /// A synchronised clock at this wall time, just booted.
    pub fn new(wall_us: i64) -> ManualClock {
        ManualClock { state: Mutex::new(Manual { wall_us, ..Manual::default() }) }
    }

    fn change(&self, change: impl FnOnce(&mut Manual)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn get(&self) -> Manual {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time passes on both clocks.
    pub fn advance(&self, us: i64) {
        self.change(|state| {
            state.wall_us = state.wall_us.saturating_add(us);
            state.boottime_us = state.boottime_us.saturating_add(us);
        });
    }

    /// The wall clock jumps.
    pub fn set_wall(&self, wall_us: i64) {
        self.change(|state| state.wall_us = wall_us);
    }

    /// Whether the wall clock is known to be right.
    pub fn set_synchronised(&self, synchronised: bool) {
        self.change(|state| state.unsynchronised = !synchronised);
    }
}

impl Clock for ManualClock {
    fn wall_us(&self) -> i64 {
        self.get().wall_us
    }

    fn boottime_us(&self) -> i64 {
        self.get().boottime_us
    }

    fn synchronised(&self) -> bool {
        !self.get().unsynchronised
    }
}

/// Log time: `max(wall clock, last + ½ · time since boot elapsed)`.
///
/// It never runs backwards, and after the wall clock was ahead and has been set back it goes on at half speed until
/// the wall clock has caught up. Shared by everything that stamps arrivals.
pub struct LogClock {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    last_us: i64,
    /// Time since boot that `last_us` accounts for.
    boottime_us: i64,
    /// Wall clock minus time since boot at the last look for a step; constant but for slewing and steps.
    offset_us: i64,
    /// Log time stood ahead of the wall clock by more than a step when it was resumed.
    resumed_ahead: bool,
}

impl LogClock {
    /// Log time that starts at the wall clock.
    pub fn new(clock: Arc<dyn Clock>) -> LogClock {
        let (wall, boottime_us) = (clock.wall_us(), clock.boottime_us());
        let state =
            State { last_us: wall, boottime_us, offset_us: wall.saturating_sub(boottime_us), resumed_ahead: false };
        LogClock { clock, state: Mutex::new(state) }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State, i64, i64) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, boottime) = (self.clock.wall_us(), self.clock.boottime_us());
        state.go_on(wall, boottime);
        f(&mut state, wall, boottime)
    }

    /// The log time now; never less than any before.
    pub fn now(&self) -> LogTime {
        self.with(|state, _, _| LogTime(state.last_us))
    }

    /// Goes on behind the last record of the log, after a restart.
    pub fn resume(&self, last: LogTime) {
        self.with(|state, wall, boottime| {
            if last.0 > state.last_us {
                state.last_us = last.0;
                state.boottime_us = boottime;
            }
            state.resumed_ahead = state.last_us.saturating_sub(wall) > STEP_US;
        });
    }

    /// Whether the wall clock has jumped by a second or more since the last call, and where log time stands then. The
    /// caller logs it.
    pub fn step(&self) -> Option<ClockStep> {
        self.with(|state, wall, boottime| {
            let offset = wall.saturating_sub(boottime);
            let jumped = offset.saturating_sub(state.offset_us).saturating_abs() >= STEP_US;
            state.offset_us = offset;
            let stepped = jumped || std::mem::take(&mut state.resumed_ahead);
            stepped.then(|| ClockStep { wall_minus_log_us: wall.saturating_sub(state.last_us) })
        })
    }

    /// How long it takes until log time has come so far, unless the wall clock jumps. While log time is ahead it goes at
    /// half speed, until the wall clock has caught up.
    pub fn time_until(&self, deadline: LogTime) -> Duration {
        self.with(|state, wall, _| {
            let left = deadline.0.saturating_sub(state.last_us).max(0);
            let ahead = state.last_us.saturating_sub(wall).max(0);
            Duration::from_micros(left.saturating_add(left.min(ahead)).unsigned_abs())
        })
    }

    /// The wall clock, in µs since the Unix epoch: for people.
    pub fn wall_us(&self) -> i64 {
        self.clock.wall_us()
    }

    /// How far log time is ahead of the wall clock, in µs; 0 in normal life.
    pub fn ahead_us(&self) -> i64 {
        self.with(|state, wall, _| state.last_us.saturating_sub(wall).max(0))
    }

    /// Whether the wall clock is known to be right.
    pub fn synchronised(&self) -> bool {
        self.clock.synchronised()
    }
}

impl State {
    fn go_on(&mut self, wall: i64, boottime: i64) {
        let half = boottime.saturating_sub(self.boottime_us).max(0) / 2;
        let slow = self.last_us.saturating_add(half);
        if wall >= slow {
            self.last_us = wall;
            self.boottime_us = boottime;
        } else {
            // An odd microsecond stays for the next time, else a clock that is asked often would stand still.
            self.last_us = slow;
            self.boottime_us = self.boottime_us.saturating_add(half * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;
    const START: i64 = 1_775_000_000 * SECOND;

    fn clocks(wall: i64) -> (Arc<ManualClock>, LogClock) {
        let manual = Arc::new(ManualClock::new(wall));
        let log = LogClock::new(Arc::clone(&manual) as Arc<dyn Clock>);
        (manual, log)
    }

    #[test]
    fn follows_the_wall_clock() {
        let (manual, log) = clocks(START);
        assert_eq!(log.now(), LogTime(START));
        manual.advance(7);
        assert_eq!(log.now(), LogTime(START + 7));
        assert_eq!(log.ahead_us(), 0);
        assert_eq!(log.step(), None);
    }

    #[test]
    fn an_hour_forward_is_followed_and_reported_once() {
        let (manual, log) = clocks(START);
        manual.set_wall(START + HOUR);
        assert_eq!(log.now(), LogTime(START + HOUR));
        assert_eq!(log.step(), Some(ClockStep { wall_minus_log_us: 0 }));
        assert_eq!(log.step(), None);
    }

    #[test]
    fn an_hour_back_goes_on_at_half_speed_until_the_wall_has_caught_up() {
        let (manual, log) = clocks(START);
        manual.set_wall(START - HOUR);
        assert_eq!(log.now(), LogTime(START));
        assert_eq!(log.step(), Some(ClockStep { wall_minus_log_us: -HOUR }));
        manual.advance(10 * SECOND);
        assert_eq!(log.now(), LogTime(START + 5 * SECOND));
        assert_eq!(log.ahead_us(), HOUR - 5 * SECOND);
        manual.advance(2 * HOUR - 10 * SECOND);
        assert_eq!(log.now(), LogTime(START + HOUR));
        assert_eq!(log.ahead_us(), 0);
        manual.advance(SECOND);
        assert_eq!(log.now(), LogTime(START + HOUR + SECOND));
        assert_eq!(log.step(), None);
    }

    #[test]
    fn is_not_frozen_by_being_asked_each_microsecond() {
        let (manual, log) = clocks(START);
        manual.set_wall(0);
        for _ in 0..1000 {
            manual.advance(1);
            log.now();
        }
        assert_eq!(log.now(), LogTime(START + 500));
    }

    #[test]
    fn a_blip_of_an_hour_and_back_never_runs_backwards() {
        let (manual, log) = clocks(START);
        let mut last = log.now();
        for jump in [HOUR, -HOUR, -HOUR, HOUR] {
            manual.set_wall(manual.wall_us() + jump);
            manual.advance(SECOND);
            let now = log.now();
            assert!(now > last, "{now:?} after {last:?}");
            last = now;
            assert!(log.step().is_some());
        }
    }

    #[test]
    fn a_clock_of_1970_after_a_power_cut_goes_on_behind_the_log() {
        let (manual, log) = clocks(0);
        log.resume(LogTime(START));
        assert_eq!(log.now(), LogTime(START));
        assert_eq!(log.step(), Some(ClockStep { wall_minus_log_us: -START }));
        manual.advance(10 * SECOND);
        assert_eq!(log.now(), LogTime(START + 5 * SECOND));
        assert_eq!(log.step(), None);
        manual.set_wall(START + HOUR);
        assert_eq!(log.now(), LogTime(START + HOUR));
        assert_eq!(log.step(), Some(ClockStep { wall_minus_log_us: 0 }));
    }

    #[test]
    fn a_deadline_is_reached_when_it_was_said_to_be() {
        for (ahead, left) in [(0, 10), (HOUR, 10 * SECOND), (3 * SECOND, 10 * SECOND), (HOUR, 1), (5, 7), (7, 0)] {
            let (manual, log) = clocks(START);
            manual.set_wall(START - ahead);
            let deadline = LogTime(START + left);
            let wait = i64::try_from(log.time_until(deadline).as_micros()).unwrap();
            if wait > 2 {
                manual.advance(wait - 2);
                assert!(log.now() < deadline, "{ahead} ahead, {left} left: {wait} is too long");
                manual.advance(2);
            } else {
                manual.advance(wait);
            }
            assert!(log.now() >= deadline, "{ahead} ahead, {left} left: {wait} is too short");
            assert_eq!(log.time_until(deadline), Duration::ZERO);
        }
    }

    #[test]
    fn a_suspend_is_no_step() {
        let (manual, log) = clocks(START);
        manual.advance(8 * HOUR);
        assert_eq!(log.now(), LogTime(START + 8 * HOUR));
        assert_eq!(log.step(), None);
    }

    #[test]
    fn a_normal_restart_is_no_step() {
        let (_, log) = clocks(START + HOUR);
        log.resume(LogTime(START));
        assert_eq!(log.now(), LogTime(START + HOUR));
        assert_eq!(log.step(), None);
    }

    #[test]
    fn the_system_clock_ticks() {
        let before = SystemClock.boottime_us();
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while SystemClock.boottime_us() == before {
            assert!(std::time::Instant::now() < deadline);
        }
        assert!(SystemClock.wall_us() > START - 365 * 24 * HOUR);
    }
}
