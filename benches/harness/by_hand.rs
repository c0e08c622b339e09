//! What a person would write who wants nothing but tumbling windows per device: one thread, typed serde_json, a hash map,
//! no log, no checkpoint, no sync.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::harness::{self, DISORDER_MS};

/// The program, from a file into a file.
pub fn part(input: &Path, output: &Path, size_ms: u64) -> Command {
    let mut command = harness::part("windows");
    command.arg(input).arg(output).arg(size_ms.to_string());
    command
}

/// Runs it, if this process was started for it.
pub fn is_part() -> bool {
    harness::is_part("windows", |arguments| {
        windows(Path::new(&arguments[0]), Path::new(&arguments[1]), arguments[2].parse().expect("a number"));
    })
}

fn windows(input: &Path, output: &Path, size_ms: i64) {
    #[derive(Deserialize)]
    struct Reading<'a> {
        ts: &'a str,
        device: &'a str,
        temp: f64,
    }
    fn digits(text: &[u8]) -> i64 {
        text.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'))
    }
    // All events are of April 2026.
    fn millis(ts: &[u8]) -> i64 {
        let day = digits(&ts[8..10]) - 2;
        let of_day = (digits(&ts[11..13]) * 60 + digits(&ts[14..16])) * 60 + digits(&ts[17..19]);
        1_775_088_000_000 + day * 86_400_000 + of_day * 1000 + digits(&ts[20..23])
    }
    fn stamp(millis: i64) -> String {
        let day = 2 + (millis - 1_775_088_000_000).div_euclid(86_400_000);
        let s = millis / 1000 % 86_400;
        format!("2026-04-{day:02}T{:02}:{:02}:{:02}.000", s / 3600, s / 60 % 60, s % 60)
    }
    fn fire((start, end): (i64, i64), groups: HashMap<String, (f64, i64)>, out: &mut impl Write) {
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|a, b| a.0.cmp(&b.0));
        let (start, end) = (stamp(start), stamp(end));
        for (device, (sum, count)) in groups {
            let average = serde_json::to_string(&(sum / count as f64)).expect("a number");
            writeln!(out, "{{\"window_start\":\"{start}\",\"window_end\":\"{end}\",\"device\":\"{device}\",\"t\":{average},\"n\":{count}}}")
                .expect("writes");
        }
    }
    let mut reader = BufReader::with_capacity(256 << 10, File::open(input).expect("the input"));
    let mut out = BufWriter::with_capacity(256 << 10, File::create(output).expect("the output"));
    let mut windows: BTreeMap<i64, HashMap<String, (f64, i64)>> = Default::default();
    let (mut greatest, mut watermark) = (i64::MIN, i64::MIN);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).expect("reads") == 0 {
            break;
        }
        let reading: Reading<'_> = serde_json::from_slice(&line).expect("a reading");
        let time = millis(reading.ts.as_bytes());
        let end = time - time.rem_euclid(size_ms) + size_ms;
        if end - 1 > watermark {
            let groups = windows.entry(end).or_default();
            match groups.get_mut(reading.device) {
                Some((sum, count)) => {
                    *sum += reading.temp;
                    *count += 1;
                }
                None => {
                    groups.insert(reading.device.to_owned(), (0.0 + reading.temp, 1));
                }
            }
        }
        if time > greatest {
            greatest = time;
            watermark = time - DISORDER_MS as i64;
            while let Some(entry) = windows.first_entry().filter(|entry| entry.key() - 1 <= watermark) {
                let (end, groups) = entry.remove_entry();
                fire((end - size_ms, end), groups, &mut out);
            }
        }
    }
    for (end, groups) in windows {
        fire((end - size_ms, end), groups, &mut out);
    }
    out.flush().expect("writes");
}
