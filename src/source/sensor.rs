//! Polls files such as those of `/sys` and `/proc`. Each poll gives one message: a JSON object with a number for each
//! reading, in the order of the config.
//!
//! A reading that cannot be had (the file vanished, holds no number) is null; the log says when that begins and ends. Polls keep to a steady
//! schedule from the first on; those that a stopped machine or a full queue made impossible are left out. Integers
//! without `scale` and `offset` stay exact.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{End, Output, Running, Source, SourceError, Warnings};
use crate::event::RecordKind;
use crate::settings::Section;

/// Bytes of a file that are looked at.
const FILE_BYTES_MAX: u64 = 256 * 1024;
const EVERY_MIN: Duration = Duration::from_millis(1);
/// Longest form of a number.
const NUMBER_BYTES_MAX: usize = 40;

/// Settings of a `sensor` source.
#[derive(Clone, Debug, PartialEq)]
pub struct SensorConfig {
    pub every: Duration,
    pub readings: Vec<Reading>,
}

/// One number that is polled.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub name: String,
    /// A `*` stands for any part of a name; the first match in alphabetical order is taken, at each poll.
    pub path: String,
    pub field: Field,
    /// value = number · scale + offset; `None`: the number as it stands.
    pub linear: Option<(f64, f64)>,
}

/// Where in the file the number stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// It is all the file holds.
    Whole,
    /// The field of the first line with this index, counted from 0, between white space.
    Index(usize),
    /// Behind this name at the start of a line: `name: value`, `name value` or `name=value`.
    Name(String),
}

impl SensorConfig {
    /// Reads `every` and `read`.
    pub fn read(section: &mut Section<'_>) -> Option<SensorConfig> {
        if !section.has("every") {
            section.missing("every", "every = \"1s\"");
        }
        let every = section.duration("every");
        if every.is_some_and(|every| every < EVERY_MIN) {
            section.problem_at("every", "`every` must be at least 1ms", None);
        }
        if !section.has("read") {
            section.missing("read", "read = { load = { path = \"/proc/loadavg\", field = 0 } }");
        }
        let entries = section.named_sections("read");
        if section.has("read") && entries.is_empty() {
            section.problem_at(
                "read",
                "`read` is empty",
                Some("write for example `read = { load = { path = \"/proc/loadavg\", field = 0 } }`".to_owned()),
            );
        }
        let wanted = entries.len();
        let readings: Vec<Reading> =
            entries.into_iter().filter_map(|(name, entry)| Reading::read(name.value, entry)).collect();
        (readings.len() == wanted).then_some(())?;
        Some(SensorConfig { every: every?, readings })
    }

    /// The longest message, in bytes.
    pub fn message_bytes_max(&self) -> usize {
        // A character of a name takes at most six bytes in JSON.
        2 + self.readings.iter().map(|reading| 6 * reading.name.len() + 4 + NUMBER_BYTES_MAX).sum::<usize>()
    }
}

impl Reading {
    fn read(name: String, mut entry: Section<'_>) -> Option<Reading> {
        let path = entry.required("path", "path = \"/proc/loadavg\"");
        let field = if entry.is_string("field") || !entry.has("field") {
            Some(entry.string("field").map_or(Field::Whole, Field::Name))
        } else {
            entry.integer("field", 0..=100_000).and_then(|index| usize::try_from(index).ok()).map(Field::Index)
        };
        let (scale, offset) = (entry.float("scale"), entry.float("offset"));
        entry.finish();
        let linear = (scale.is_some() || offset.is_some()).then(|| (scale.unwrap_or(1.0), offset.unwrap_or(0.0)));
        Some(Reading { name, path: path?, field: field?, linear })
    }

    /// The number as JSON.
    fn poll(&self) -> Result<String, String> {
        let path = find(&self.path).ok_or_else(|| format!("no file matches {}", self.path))?;
        let mut bytes = Vec::new();
        std::fs::File::open(&path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let number = self.field.find(&text).ok_or_else(|| format!("{} does not have the field", path.display()))?;
        self.value(number).ok_or_else(|| format!("what stands in {} is not a number", path.display()))
    }

    fn value(&self, number: &str) -> Option<String> {
        let Some((scale, offset)) = self.linear else {
            if let Ok(integer) = number.parse::<i128>() {
                return Some(integer.to_string()).filter(|text| text.len() <= NUMBER_BYTES_MAX);
            }
            return json_number(number.parse().ok()?);
        };
        json_number(number.parse::<f64>().ok()? * scale + offset)
    }
}

/// A finite number in its shortest form that reads back the same.
fn json_number(number: f64) -> Option<String> {
    serde_json::Number::from_f64(number).map(|number| number.to_string())
}

impl Field {
    fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self {
            Field::Whole => Some(text.trim_matches(|c: char| c.is_whitespace() || c == '\0')),
            Field::Index(index) => text.lines().next()?.split_whitespace().nth(*index),
            Field::Name(name) => text.lines().find_map(|line| {
                let rest = line.trim_start().strip_prefix(name.as_str())?;
                let is_separator = |c: char| c.is_whitespace() || c == ':' || c == '=';
                if !rest.starts_with(is_separator) {
                    return None;
                }
                rest.trim_start_matches(is_separator).split_whitespace().next()
            }),
        }
    }
}

/// The path itself, or the first existing path that it matches.
fn find(pattern: &str) -> Option<PathBuf> {
    if !pattern.contains('*') {
        return Some(PathBuf::from(pattern));
    }
    let start = if pattern.starts_with('/') { "/" } else { "." };
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    find_below(Path::new(start), &parts)
}

fn find_below(dir: &Path, parts: &[&str]) -> Option<PathBuf> {
    let Some((part, rest)) = parts.split_first() else { return dir.exists().then(|| dir.to_owned()) };
    if !part.contains('*') {
        return find_below(&dir.join(part), rest);
    }
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .filter(|name| matches(part.as_bytes(), name.as_encoded_bytes()))
        .collect();
    names.sort_unstable();
    names.into_iter().find_map(|name| find_below(&dir.join(name), rest))
}

/// Whether `name` matches a pattern in which `*` stands for any bytes. Like the shell's, a `*` at the start does not
/// match a leading dot.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match memchr::memmem::find(rest, piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl fmt::Display for SensorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.readings.len();
        write!(f, "sensor, {count} value{} each {:?}", if count == 1 { "" } else { "s" }, self.every)
    }
}

/// See the module.
pub struct Sensor {
    config: SensorConfig,
}

impl Sensor {
    /// A source that has not polled yet.
    pub fn new(config: SensorConfig) -> Sensor {
        Sensor { config }
    }
}

impl Source for Sensor {
    fn run(self: Box<Self>, out: Output) -> Running {
        Box::pin(run(self.config, out))
    }
}

async fn run(config: SensorConfig, out: Output) -> Result<End, SourceError> {
    let mut readings: Vec<(Reading, Trouble)> =
        config.readings.into_iter().map(|reading| (reading, Trouble::new())).collect();
    let mut due = Instant::now();
    loop {
        let arrival = out.now();
        // Some drivers wait for their hardware.
        let polled;
        (readings, polled) = smol::unblock(move || {
            let polled: Vec<_> = readings.iter().map(|(reading, _)| reading.poll()).collect();
            (readings, polled)
        })
        .await;
        let mut message = String::from("{");
        for ((reading, trouble), result) in readings.iter_mut().zip(polled) {
            trouble.note(&out, &reading.name, result.as_ref().err());
            let value = result.unwrap_or_else(|_| "null".to_owned());
            if message.len() > 1 {
                message.push(',');
            }
            message.push_str(&serde_json::Value::from(reading.name.as_str()).to_string());
            message.push(':');
            message.push_str(&value);
        }
        message.push('}');
        let mut run = out.run(RecordKind::Data, arrival, None);
        run.push(message.as_bytes());
        out.send(run).await?;
        due = next_due(due, config.every, Instant::now());
        smol::Timer::at(due).await;
    }
}

/// Whether a reading cannot be had: said when that begins and when it ends, not at every poll.
struct Trouble {
    missing: bool,
    /// The log has a warning of which the end is to be told.
    said: bool,
    warnings: Warnings,
}

impl Trouble {
    fn new() -> Trouble {
        Trouble { missing: false, said: false, warnings: Warnings::new() }
    }

    fn note(&mut self, out: &Output, reading: &str, reason: Option<&String>) {
        let source = out.name();
        let was_missing = std::mem::replace(&mut self.missing, reason.is_some());
        match reason {
            Some(reason) if !was_missing => {
                if let Some(suppressed) = self.warnings.count(out) {
                    self.said = true;
                    tracing::warn!(%source, suppressed, %reading, %reason, "a reading is missing; it is NULL until it comes");
                }
            }
            None if std::mem::take(&mut self.said) => {
                tracing::info!(%source, %reading, "a reading is there again");
            }
            _ => {}
        }
    }
}

/// The first point of the schedule after `now`.
fn next_due(due: Instant, every: Duration, now: Instant) -> Instant {
    let behind = now.saturating_duration_since(due).as_nanos();
    let steps = behind / every.as_nanos().max(1) + 1;
    let step_ns = u64::try_from(steps.saturating_mul(every.as_nanos())).unwrap_or(u64::MAX);
    due.checked_add(Duration::from_nanos(step_ns)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn each_poll_is_a_json_object_in_config_order() {
        let dir = tempfile::tempdir().unwrap();
        let hwmon = dir.path().join("hwmon7");
        std::fs::create_dir(&hwmon).unwrap();
        std::fs::write(hwmon.join("temp1_input"), "48250\n").unwrap();
        std::fs::write(dir.path().join("loadavg"), "0.52 0.58 0.59 1/467 12345\n").unwrap();
        std::fs::write(dir.path().join("meminfo"), "MemTotal:  100 kB\nMemAvailable:   18446744073709551615 kB\n")
            .unwrap();
        let base = dir.path().display();
        let mut source = Harness::start(&format!(
            "type = \"sensor\"\nevery = \"5ms\"\n[read]\n\
             temp = {{ path = \"{base}/hwmon*/temp*_input\", scale = 0.001, offset = -1 }}\n\
             load = {{ path = \"{base}/loadavg\", field = 1 }}\n\
             free = {{ path = \"{base}/meminfo\", field = \"MemAvailable\" }}\n\
             gone = {{ path = \"{base}/gone\" }}\n\
             text = {{ path = \"{base}/meminfo\" }}\n"
        ));
        let first = r#"{"temp":47.25,"load":0.58,"free":18446744073709551615,"gone":null,"text":null}"#;
        assert_eq!(source.until_seen(2)[..2], messages(&[first, first]));
        // `gone` and `text`, once each.
        assert_eq!(source.count(|c| &c.warnings), 2);
        std::fs::remove_file(hwmon.join("temp1_input")).unwrap();
        std::fs::write(dir.path().join("gone"), "7").unwrap();
        let second = r#"{"temp":null,"load":0.58,"free":18446744073709551615,"gone":7,"text":null}"#;
        source.until(|s| s.seen().contains(&message(second)));
    }

    #[test]
    fn numbers_keep_their_value() {
        let plain = |text: &str| reading(None).value(text);
        assert_eq!(plain("12345678901234567890").as_deref(), Some("12345678901234567890"));
        assert_eq!(plain("-0.50").as_deref(), Some("-0.5"));
        assert_eq!(plain("1e3").as_deref(), Some("1000.0"));
        for not in ["", "abc", "NaN", "inf", "1e999", "0x10"] {
            assert_eq!(plain(not), None, "{not}");
        }
        assert_eq!(reading(Some((0.5, 1.0))).value("3").as_deref(), Some("2.5"));
    }

    fn reading(linear: Option<(f64, f64)>) -> Reading {
        Reading { name: "a".into(), path: "/x".into(), field: Field::Whole, linear }
    }

    #[test]
    fn fields_are_found() {
        let meminfo = "MemFree2: 1 kB\nMemFree:\t 20 kB\nCAPACITY=93\ncpu  4705 150\ncpu MHz\t\t: 2400.1\n";
        let named = |name: &str| Field::Name(name.into()).find(meminfo);
        assert_eq!(named("MemFree"), Some("20"));
        assert_eq!(named("CAPACITY"), Some("93"));
        assert_eq!(named("cpu"), Some("4705"));
        assert_eq!(named("cpu MHz"), Some("2400.1"));
        assert_eq!(named("Mem"), None);
        assert_eq!(Field::Index(2).find("a b c\nd"), Some("c"));
        assert_eq!(Field::Index(3).find("a b c\nd"), None);
        assert_eq!(Field::Whole.find(" 1\0\n"), Some("1"));
    }

    #[test]
    fn stars_match_parts_of_names() {
        for (pattern, name, expected) in [
            ("*", "a", true),
            ("*", ".a", false),
            ("temp*_input", "temp1_input", true),
            ("temp*_input", "temp_inpu", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "ac", false),
            ("ab*ba", "aba", false),
            ("a", "a", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_schedule_does_not_drift_and_skips_what_it_missed() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let every = Duration::from_millis(100);
        assert_eq!(next_due(start, every, at(30)), at(100));
        assert_eq!(next_due(at(100), every, at(130)), at(200));
        assert_eq!(next_due(at(200), every, at(750)), at(800));
        assert_eq!(next_due(at(200), every, at(300)), at(400));
    }

    proptest! {
        #[test]
        fn any_content_gives_json_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..200), index in 0usize..4) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("value");
            std::fs::write(&path, bytes).unwrap();
            for field in [Field::Whole, Field::Index(index), Field::Name("a".into())] {
                let reading = Reading { path: path.display().to_string(), field, ..reading(None) };
                if let Ok(value) = reading.poll() {
                    prop_assert!(serde_json::from_str::<serde_json::Number>(&value).is_ok(), "{}", value);
                    prop_assert!(value.len() <= NUMBER_BYTES_MAX);
                }
            }
        }
    }
}
