//! Calendar arithmetic on days and microseconds since the Unix epoch, and time zones.
//!
//! The calendar is the proleptic Gregorian one. Zone rules come from `jiff`; outside the years it knows (±9999) the
//! offset at its end holds. A wall-clock time that a zone skips or repeats becomes an instant as in `java.time`: a
//! skipped one moves forward by the length of the gap, of a repeated one the earlier is taken.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::build::TimeUnit;

pub const US_PER_MS: i64 = 1000;
pub const US_PER_SECOND: i64 = 1_000_000;
pub const US_PER_DAY: i64 = 86_400 * US_PER_SECOND;
pub const MS_PER_DAY: i64 = 86_400_000;

/// A date of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
}

/// The date of a day number.
pub fn date_of(days: i64) -> Date {
    // Years start in March here, so that the leap day is the last of its year.
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    Date {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month,
        day: day_of_year - (153 * shifted + 2) / 5 + 1,
    }
}

/// The day number of a date; months and days beyond their range count on into the neighbouring ones.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let months = year.saturating_mul(12).saturating_add(month - 1);
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era.saturating_mul(146_097).saturating_add(day_of_era - 719_468).saturating_add(day - 1)
}

/// Days of a month.
pub fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The day `months` later, at most the last of its month.
pub fn add_months(days: i64, months: i64) -> i64 {
    let date = date_of(days);
    let total = date.year.saturating_mul(12).saturating_add(date.month - 1).saturating_add(months);
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
    days_of(year, month, date.day.min(month_length(year, month)))
}

/// Whole months from `b` to `a`, both in milliseconds.
pub fn months_between(a_ms: i64, b_ms: i64) -> i64 {
    if a_ms < b_ms {
        return -months_between(b_ms, a_ms);
    }
    let (a, b) = (date_of(a_ms.div_euclid(MS_PER_DAY)), b_ms.div_euclid(MS_PER_DAY));
    let from = date_of(b);
    let months = (a.year - from.year) * 12 + a.month - from.month;
    let reached = add_months(b, months).saturating_mul(MS_PER_DAY).saturating_add(b_ms.rem_euclid(MS_PER_DAY));
    if reached > a_ms { months - 1 } else { months }
}

/// Day of the week, 0 = Sunday.
pub fn weekday(days: i64) -> i64 {
    days.saturating_add(4).rem_euclid(7)
}

/// ISO 8601 year and week of a day.
pub fn iso_week(days: i64) -> (i64, i64) {
    // The week belongs to the year of its Thursday.
    let thursday = days - (weekday(days) + 6) % 7 + 3;
    let year = date_of(thursday).year;
    (year, (thursday - days_of(year, 1, 1)) / 7 + 1)
}

/// Offset from UTC in µs of a zone at an instant.
pub fn offset_us(zone: &TimeZone, instant_us: i64) -> i64 {
    let clamped = if instant_us < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let at = Timestamp::from_microsecond(instant_us).unwrap_or(clamped);
    i64::from(zone.to_offset(at).seconds()) * US_PER_SECOND
}

/// Wall-clock time in µs of an instant.
pub fn to_wall(zone: &TimeZone, instant_us: i64) -> i64 {
    instant_us.saturating_add(offset_us(zone, instant_us))
}

/// Instant in µs of a wall-clock time.
pub fn to_instant(zone: &TimeZone, wall_us: i64) -> i64 {
    civil(wall_us)
        .and_then(|wall| zone.to_ambiguous_timestamp(wall).compatible().ok())
        .map_or_else(|| wall_us.saturating_sub(offset_us(zone, wall_us)), Timestamp::as_microsecond)
}

fn civil(wall_us: i64) -> Option<DateTime> {
    let date = date_of(wall_us.div_euclid(US_PER_DAY));
    let of_day = wall_us.rem_euclid(US_PER_DAY);
    let seconds = of_day / US_PER_SECOND;
    DateTime::new(
        i16::try_from(date.year).ok()?,
        i8::try_from(date.month).ok()?,
        i8::try_from(date.day).ok()?,
        i8::try_from(seconds / 3600).ok()?,
        i8::try_from(seconds / 60 % 60).ok()?,
        i8::try_from(seconds % 60).ok()?,
        i32::try_from(of_day % US_PER_SECOND * 1000).ok()?,
    )
    .ok()
}

/// Length in ms of a unit that always has the same; `None` for months and above, and for what is no length.
pub fn unit_ms(unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Millisecond => Some(1),
        TimeUnit::Second => Some(1000),
        TimeUnit::Minute => Some(60_000),
        TimeUnit::Hour => Some(3_600_000),
        TimeUnit::Day => Some(MS_PER_DAY),
        TimeUnit::Week => Some(7 * MS_PER_DAY),
        _ => None,
    }
}

/// Length in months of a unit.
pub fn unit_months(unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Month => Some(1),
        TimeUnit::Quarter => Some(3),
        TimeUnit::Year => Some(12),
        TimeUnit::Decade => Some(120),
        TimeUnit::Century => Some(1200),
        TimeUnit::Millennium => Some(12_000),
        _ => None,
    }
}

/// EXTRACT of a calendar field from a day number.
pub fn extract_day(unit: TimeUnit, days: i64) -> i64 {
    let date = date_of(days);
    match unit {
        TimeUnit::Year => date.year,
        TimeUnit::Quarter => (date.month + 2) / 3,
        TimeUnit::Month => date.month,
        TimeUnit::Day => date.day,
        TimeUnit::Week => iso_week(days).1,
        TimeUnit::IsoYear => iso_week(days).0,
        TimeUnit::DayOfWeek => weekday(days) + 1,
        TimeUnit::IsoDayOfWeek => (weekday(days) + 6) % 7 + 1,
        TimeUnit::DayOfYear => days - days_of(date.year, 1, 1) + 1,
        TimeUnit::Decade => date.year / 10,
        TimeUnit::Century => (if date.year > 0 { date.year + 99 } else { date.year - 99 }) / 100,
        TimeUnit::Millennium => (if date.year > 0 { date.year + 999 } else { date.year - 999 }) / 1000,
        TimeUnit::Epoch => days.saturating_mul(86_400),
        _ => 0,
    }
}

/// EXTRACT from a wall-clock time in µs. Before 1970 Flink truncates towards zero, and so does this.
pub fn extract_us(unit: TimeUnit, wall_us: i64) -> i64 {
    let ms = wall_us.div_euclid(US_PER_MS);
    match unit {
        TimeUnit::Microsecond => (ms % 1000) * 1000 + wall_us.rem_euclid(US_PER_MS),
        TimeUnit::Nanosecond => extract_us(TimeUnit::Microsecond, wall_us) * 1000,
        TimeUnit::Millisecond => ms % 1000,
        TimeUnit::Second => ms % 60_000 / 1000,
        TimeUnit::Minute => ms % 3_600_000 / 60_000,
        TimeUnit::Hour => ms % MS_PER_DAY / 3_600_000,
        TimeUnit::Epoch => ms / 1000,
        _ => extract_day(unit, ms / MS_PER_DAY),
    }
}

/// EXTRACT from an interval in ms.
pub fn extract_day_time(unit: TimeUnit, ms: i64) -> Option<i64> {
    match unit {
        TimeUnit::Day => Some(ms / MS_PER_DAY),
        TimeUnit::Hour => Some(ms % MS_PER_DAY / 3_600_000),
        TimeUnit::Minute => Some(ms % 3_600_000 / 60_000),
        TimeUnit::Second => Some(ms % 60_000 / 1000),
        _ => None,
    }
}

/// EXTRACT from an interval in months. As in Flink the months 0 to 3 are the first quarter, 4 to 6 the second.
pub fn extract_year_month(unit: TimeUnit, months: i64) -> Option<i64> {
    match unit {
        TimeUnit::Year => Some(months / 12),
        TimeUnit::Quarter => Some((months % 12 - 1) / 3 + 1),
        TimeUnit::Month => Some(months % 12),
        _ => None,
    }
}

/// FLOOR or CEIL of a day number to a calendar unit, as Flink does it: CEIL to QUARTER always goes to the next
/// quarter but on 1 January, weeks start on Sunday.
pub fn round_day(unit: TimeUnit, days: i64, ceil: bool) -> i64 {
    let Date { year, month, day } = date_of(days);
    let up = i64::from(ceil);
    match unit {
        TimeUnit::Millennium => days_of(1000 * ((year + 999) / 1000) + if ceil { 1 } else { -999 }, 1, 1),
        TimeUnit::Century => days_of(100 * ((year + 99) / 100) + if ceil { 1 } else { -99 }, 1, 1),
        TimeUnit::Decade => days_of(10 * (year / 10 + up), 1, 1),
        TimeUnit::Year => days_of(year + i64::from(ceil && (month > 1 || day > 1)), 1, 1),
        TimeUnit::Quarter => days_of(year, ((month + 2) / 3 + i64::from(ceil && (month > 1 || day > 1))) * 3 - 2, 1),
        TimeUnit::Month => days_of(year, month + i64::from(ceil && day > 1), 1),
        TimeUnit::Week => {
            let weekday = weekday(days);
            if ceil && weekday > 0 { days - weekday + 7 } else { days - weekday }
        }
        _ => days + up,
    }
}

/// FLOOR or CEIL of a wall-clock time in µs. What lies below a millisecond is dropped, as in Flink; for calendar
/// units CEIL looks at the date alone.
pub fn round_us(unit: TimeUnit, wall_us: i64, ceil: bool) -> i64 {
    let step_ms = match unit {
        TimeUnit::Nanosecond | TimeUnit::Microsecond => return wall_us,
        // The one unit for which CEIL sees what lies below a millisecond.
        TimeUnit::Millisecond if ceil => {
            return wall_us.saturating_add(US_PER_MS - 1).div_euclid(US_PER_MS).saturating_mul(US_PER_MS);
        }
        TimeUnit::Week => None,
        _ => unit_ms(unit),
    };
    let ms = wall_us.div_euclid(US_PER_MS);
    let rounded_ms = match step_ms {
        Some(step) => {
            let floor = ms.div_euclid(step).saturating_mul(step);
            if ceil && floor != ms { floor.saturating_add(step) } else { floor }
        }
        None => round_day(unit, ms.div_euclid(MS_PER_DAY), ceil).saturating_mul(MS_PER_DAY),
    };
    rounded_ms.saturating_mul(US_PER_MS)
}

/// Cuts a timestamp to a precision of 0 to 6 digits, towards the past.
pub fn truncate_us(us: i64, precision: u8) -> i64 {
    let step = 10_i64.pow(6 - u32::from(precision.min(6)));
    us.div_euclid(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_days() {
        assert_eq!(days_of(1970, 1, 1), 0);
        assert_eq!(days_of(2026, 4, 2), 20_545);
        assert_eq!(date_of(-1), Date { year: 1969, month: 12, day: 31 });
        assert_eq!(weekday(0), 4);
        assert_eq!(iso_week(days_of(2021, 1, 3)), (2020, 53));
        assert_eq!(iso_week(days_of(2026, 12, 31)), (2026, 53));
        assert_eq!(date_of(add_months(days_of(2024, 1, 31), 1)), Date { year: 2024, month: 2, day: 29 });
        assert_eq!(months_between(days_of(2026, 4, 2) * MS_PER_DAY, days_of(2026, 2, 3) * MS_PER_DAY), 1);
        assert_eq!(date_of(round_day(TimeUnit::Quarter, days_of(2026, 4, 1), true)).month, 7);
    }

    #[test]
    fn summer_time_is_that_of_java() {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let wall =
            |hour: i64, minute: i64| days_of(2026, 3, 29) * US_PER_DAY + (hour * 60 + minute) * 60 * US_PER_SECOND;
        // 02:30 does not exist: 03:30 summer time.
        assert_eq!(to_instant(&zone, wall(2, 30)), wall(1, 30));
        assert_eq!(to_wall(&zone, wall(1, 30)), wall(3, 30));
        let autumn = days_of(2026, 10, 25) * US_PER_DAY + 150 * 60 * US_PER_SECOND;
        // 02:30 comes twice: the first.
        assert_eq!(to_instant(&zone, autumn), autumn - 2 * 3600 * US_PER_SECOND);
    }

    proptest! {
        #[test]
        fn days_and_dates_are_inverse(days in -100_000_000_i64..100_000_000) {
            let date = date_of(days);
            prop_assert_eq!(days_of(date.year, date.month, date.day), days);
            prop_assert!((1..=month_length(date.year, date.month)).contains(&date.day));
        }

        #[test]
        fn nothing_overflows(us in any::<i64>(), months in any::<i32>(), ceil in any::<bool>()) {
            let zone = TimeZone::get("America/New_York").unwrap();
            let _ = (to_wall(&zone, us), to_instant(&zone, us), truncate_us(us, 3));
            for unit in [
                TimeUnit::Microsecond, TimeUnit::Millisecond, TimeUnit::Second, TimeUnit::Hour, TimeUnit::Day,
                TimeUnit::Week, TimeUnit::Month, TimeUnit::Quarter, TimeUnit::Year, TimeUnit::Decade,
                TimeUnit::Century, TimeUnit::Millennium, TimeUnit::DayOfWeek, TimeUnit::IsoYear, TimeUnit::Epoch,
            ] {
                let _ = (extract_us(unit, us), round_us(unit, us, ceil));
            }
            let _ = add_months(us.div_euclid(US_PER_DAY), months.into());
            let _ = months_between(us, us.wrapping_mul(3));
        }
    }
}
