//! Java's patterns of dates and times (`yyyy-MM-dd HH:mm:ss`): formatting and parsing.
//!
//! Flink uses two of Java's classes, which differ: `DateTimeFormatter` (here [`Style::Strict`]) reads the whole text
//! with fixed widths and takes `S` for digits of a fraction; `SimpleDateFormat` ([`Style::Lenient`]) reads a prefix,
//! counts over-large fields on into the next, and takes `S` for milliseconds. Letters: y u M L d D H h k K m s S E a Q;
//! the others (zones, week years, eras) are refused. Names are English. Two-digit years are those from 2000 to 2099.

use super::calendar::{self, US_PER_DAY, US_PER_MS, US_PER_SECOND};

/// Which of Java's classes is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Strict,
    Lenient,
}

/// A pattern that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    tokens: Vec<Token>,
    style: Style,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(String),
    Field { letter: char, count: usize },
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The first three letters of an English name.
fn short(name: &str) -> &str {
    name.get(..3).unwrap_or(name)
}

impl Token {
    /// Whether the field is written in digits.
    fn is_number(&self) -> bool {
        match self {
            Token::Literal(_) => false,
            Token::Field { letter, count } => {
                !(matches!(letter, 'E' | 'a') || matches!(letter, 'M' | 'L') && *count > 2)
            }
        }
    }
}

impl Format {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub fn parse(pattern: &str, style: Style) -> Result<Format, String> {
        let mut tokens: Vec<Token> = Vec::new();
        let mut chars = pattern.chars().peekable();
        let literal = |tokens: &mut Vec<Token>, c: char| match tokens.last_mut() {
            Some(Token::Literal(text)) => text.push(c),
            _ => tokens.push(Token::Literal(c.to_string())),
        };
        while let Some(c) = chars.next() {
            if c == '\'' {
                if chars.next_if_eq(&'\'').is_some() {
                    literal(&mut tokens, '\'');
                    continue;
                }
                loop {
                    match chars.next() {
                        Some('\'') if chars.next_if_eq(&'\'').is_none() => break,
                        Some(quoted) => literal(&mut tokens, quoted),
                        None => return Err(format!("the format '{pattern}' has a quote without end")),
                    }
                }
            } else if c.is_ascii_alphabetic() {
                let mut count = 1;
                while chars.next_if_eq(&c).is_some() {
                    count += 1;
                }
                let limit = match c {
                    'y' => 9,
                    'u' if style == Style::Strict => 9,
                    'M' | 'L' | 'E' => 4,
                    'd' | 'H' | 'h' | 'k' | 'K' | 'm' | 's' => 2,
                    'D' => 3,
                    'S' => 9,
                    'Q' if style == Style::Strict => 2,
                    'a' => 1,
                    _ => 0,
                };
                if count > limit {
                    let field = c.to_string().repeat(count);
                    return Err(format!("the format '{pattern}' has the field {field}, which is not supported"));
                }
                tokens.push(Token::Field { letter: c, count });
            } else if style == Style::Strict && matches!(c, '[' | ']' | '{' | '}' | '#') {
                return Err(format!("the format '{pattern}' has a {c}, which is not supported: quote it as '{c}'"));
            } else {
                literal(&mut tokens, c);
            }
        }
        Ok(Format { tokens, style })
    }

    /// Appends a wall-clock time in µs.
    pub fn format(&self, wall_us: i64, out: &mut String) {
        let days = wall_us.div_euclid(US_PER_DAY);
        let us = wall_us.rem_euclid(US_PER_DAY);
        let date = calendar::date_of(days);
        let (hour, minute, second) =
            (us / (3600 * US_PER_SECOND), us / (60 * US_PER_SECOND) % 60, us / US_PER_SECOND % 60);
        for token in &self.tokens {
            let (letter, count) = match token {
                Token::Literal(text) => {
                    out.push_str(text);
                    continue;
                }
                Token::Field { letter, count } => (*letter, *count),
            };
            let mut name = |names: &[&str], index: i64, full: bool| {
                let name = usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or_default();
                out.push_str(if full { name } else { short(name) });
            };
            let (value, width) = match letter {
                'y' | 'u' if count == 2 => (date.year.rem_euclid(100), 2),
                'y' | 'u' => (date.year, count),
                'M' | 'L' if count > 2 => {
                    name(&MONTHS, date.month - 1, count > 3);
                    continue;
                }
                'M' | 'L' => (date.month, count),
                'E' => {
                    name(&WEEKDAYS, calendar::weekday(days), count > 3);
                    continue;
                }
                'a' => {
                    out.push_str(if hour < 12 { "AM" } else { "PM" });
                    continue;
                }
                'd' => (date.day, count),
                'D' => (days - calendar::days_of(date.year, 1, 1) + 1, count),
                'H' => (hour, count),
                'k' => (if hour == 0 { 24 } else { hour }, count),
                'K' => (hour % 12, count),
                'h' => (if hour % 12 == 0 { 12 } else { hour % 12 }, count),
                'm' => (minute, count),
                's' => (second, count),
                'Q' => ((date.month + 2) / 3, count),
                'S' if self.style == Style::Strict => {
                    let nanos = format!("{:09}", us % US_PER_SECOND * 1000);
                    out.push_str(nanos.get(..count).unwrap_or(&nanos));
                    continue;
                }
                _ => (us % US_PER_SECOND / US_PER_MS, count),
            };
            let digits = value.unsigned_abs().to_string();
            if value < 0 {
                out.push('-');
            }
            out.extend(std::iter::repeat_n('0', width.saturating_sub(digits.len())));
            out.push_str(&digits);
        }
    }

    /// Reads a wall-clock time in µs. What the pattern leaves out is that of 1970-01-01 00:00:00.
    pub fn read(&self, text: &str) -> Option<i64> {
        let strict = self.style == Style::Strict;
        let mut fields = Fields::default();
        let mut rest = text;
        for (i, token) in self.tokens.iter().enumerate() {
            let (letter, count) = match token {
                Token::Literal(literal) => {
                    rest = rest.strip_prefix(literal.as_str())?;
                    continue;
                }
                Token::Field { letter, count } => (*letter, *count),
            };
            if !token.is_number() {
                let names: &[&str] = match letter {
                    'a' => &["AM", "PM"],
                    'E' => &WEEKDAYS,
                    _ => &MONTHS,
                };
                let found = names.iter().position(|name| {
                    let full = !strict || count > 3 || letter == 'a';
                    let prefix = |wanted: &str| {
                        rest.get(..wanted.len()).is_some_and(|start| {
                            if strict { start == wanted } else { start.eq_ignore_ascii_case(wanted) }
                        })
                    };
                    let (long, abbreviated) = (prefix(name), prefix(short(name)));
                    let taken = if full && long {
                        name.len()
                    } else if abbreviated && (!strict || count <= 3) {
                        short(name).len()
                    } else {
                        return false;
                    };
                    rest = rest.get(taken..).unwrap_or_default();
                    true
                })?;
                fields.set(letter, i64::try_from(found).ok()? + i64::from(letter != 'a'));
                continue;
            }
            if !strict {
                rest = rest.trim_start_matches([' ', '\t']);
            }
            let available = rest.bytes().take_while(u8::is_ascii_digit).count();
            let adjacent = self.tokens.get(i + 1).is_some_and(Token::is_number);
            let width = match (strict, count) {
                (true, 1) => available.min(if matches!(letter, 'y' | 'u') { 9 } else { 3 }).min(available),
                (true, count) => count,
                (false, count) if adjacent => count,
                (false, _) => available.min(18),
            };
            if width == 0 || width > available {
                return None;
            }
            let (digits, after) = rest.split_at(width);
            rest = after;
            let value: i64 = digits.parse().ok()?;
            match letter {
                'y' | 'u' if count == 2 && width == 2 => fields.set('y', 2000 + value),
                'S' if strict => {
                    let scale = 10_i64.pow(u32::try_from(9_usize.saturating_sub(width)).ok()?);
                    fields.us = Some(value.checked_mul(scale)? / 1000);
                }
                'S' => fields.us = Some(value.checked_mul(US_PER_MS)?),
                letter => fields.set(letter, value),
            }
        }
        if strict && !rest.is_empty() {
            return None;
        }
        fields.resolve(strict)
    }
}

/// What was read.
#[derive(Default)]
struct Fields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: Option<i64>,
    /// 0 to 11.
    hour_of_half: Option<i64>,
    afternoon: Option<i64>,
    minute: Option<i64>,
    second: Option<i64>,
    us: Option<i64>,
}

impl Fields {
    fn set(&mut self, letter: char, value: i64) {
        match letter {
            'y' | 'u' => self.year = Some(value),
            'M' | 'L' => self.month = Some(value),
            'd' => self.day = Some(value),
            'D' => self.day_of_year = Some(value),
            'H' => self.hour = Some(value),
            'k' => self.hour = Some(if value == 24 { 0 } else { value }),
            'h' => self.hour_of_half = Some(if value == 12 { 0 } else { value }),
            'K' => self.hour_of_half = Some(value),
            'a' => self.afternoon = Some(value),
            'm' => self.minute = Some(value),
            's' => self.second = Some(value),
            // The day of the week and the quarter follow from the date.
            _ => {}
        }
    }

    fn resolve(self, strict: bool) -> Option<i64> {
        let (year, month, day) = (self.year.unwrap_or(1970), self.month.unwrap_or(1), self.day.unwrap_or(1));
        let half = self.hour_of_half.filter(|_| !strict || self.afternoon.is_some());
        let hour = self.hour.or(half.map(|hour| hour + 12 * self.afternoon.unwrap_or(0))).unwrap_or(0);
        let (minute, second) = (self.minute.unwrap_or(0), self.second.unwrap_or(0));
        if strict {
            let fits = (1..=12).contains(&month)
                && (1..=31).contains(&day)
                && (0..24).contains(&hour)
                && (0..60).contains(&minute)
                && (0..60).contains(&second)
                && self.day_of_year.is_none_or(|day| (1..=366).contains(&day));
            if !fits {
                return None;
            }
        }
        if [year, month, day, hour, minute, second].iter().any(|value| value.abs() > 1_000_000_000) {
            return None;
        }
        let days = match self.day_of_year {
            Some(day_of_year) if self.month.is_none() => calendar::days_of(year, 1, 1).checked_add(day_of_year - 1)?,
            _ if strict => calendar::days_of(year, month, day.min(calendar::month_length(year, month))),
            _ => calendar::days_of(year, month, day),
        };
        let seconds = hour * 3600 + minute * 60 + second;
        days.checked_mul(US_PER_DAY)?.checked_add(seconds * US_PER_SECOND)?.checked_add(self.us.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::text::parse_timestamp;
    use proptest::prelude::*;

    fn formatted(pattern: &str, style: Style, time: &str) -> String {
        let mut out = String::new();
        Format::parse(pattern, style).unwrap().format(parse_timestamp(time).unwrap(), &mut out);
        out
    }

    #[test]
    fn formats_as_java() {
        let time = "2026-04-02 15:04:05.678901";
        for (pattern, expected) in [
            ("yyyy-MM-dd HH:mm:ss.SSS", "2026-04-02 15:04:05.678"),
            ("yy/M/d h:mm a", "26/4/2 3:04 PM"),
            ("EEE, d MMM yyyy", "Thu, 2 Apr 2026"),
            ("EEEE MMMM D", "Thursday April 92"),
            ("yyyy-MM-dd'T'HH:mm''", "2026-04-02T15:04'"),
            ("SSSSSSSSS", "678901000"),
        ] {
            assert_eq!(formatted(pattern, Style::Strict, time), expected, "{pattern}");
        }
        assert_eq!(formatted("s.SSSS", Style::Lenient, time), "5.0678");
        for bad in ["yyyy-MM-dd z", "'open", "[yyyy]", "ddd"] {
            assert!(Format::parse(bad, Style::Strict).is_err(), "{bad}");
        }
    }

    #[test]
    fn reads_as_java() {
        let strict = |pattern: &str, text: &str| Format::parse(pattern, Style::Strict).unwrap().read(text);
        let lenient = |pattern: &str, text: &str| Format::parse(pattern, Style::Lenient).unwrap().read(text);
        let at = |text: &str| parse_timestamp(text);
        assert_eq!(strict("yyyyMMddHHmmss", "20260402150405"), at("2026-04-02 15:04:05"));
        assert_eq!(strict("dd MMM yyyy, h:mm a", "02 Apr 2026, 3:04 PM"), at("2026-04-02 15:04:00"));
        assert_eq!(strict("yyyy-MM-dd", "2026-04-02x"), None);
        assert_eq!(strict("yyyy-MM-dd", "2026-13-02"), None);
        assert_eq!(strict("yyyy-MM-dd", "2026-02-31"), at("2026-02-28"));
        assert_eq!(strict("HH:mm:ss.SSS", "01:02:03.045"), at("1970-01-01 01:02:03.045"));
        assert_eq!(lenient("yyyy-MM-dd", "2026-4-2 rest"), at("2026-04-02"));
        assert_eq!(lenient("yyyy-MM-dd", "2026-13-02"), at("2027-01-02"));
        assert_eq!(lenient("yyyy-MM-dd", "no date"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(pattern in "[yuMLdDHhkKmsSEaQ' :.-]{0,12}", text in "[0-9A-Za-z :.-]{0,24}", us in any::<i64>()) {
            for style in [Style::Strict, Style::Lenient] {
                if let Ok(format) = Format::parse(&pattern, style) {
                    format.format(us, &mut String::new());
                    let _ = format.read(&text);
                }
            }
        }
    }
}
