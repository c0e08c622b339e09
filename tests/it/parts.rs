//! Windows that fire in more than one part give the rows that they would give in one, in the same order: through
//! projections, into several sinks, where two of them meet, and in windows over windows.

use std::fmt::Write as _;

use crate::support::{Place, outcome, stamp};

/// More than two parts.
const DEVICES: u64 = 20_000;

const CONFIG: &str = r#"
[pipeline]
name = "parts"
[source.plant]
type = "file"
path = "input.csv"
format = "csv"
columns = { ts = "TIMESTAMP_LTZ(3)", device = "STRING", n = "INT" }
time = { column = "ts" }
[query.a]
sql = """
SELECT window_time AS t, device, SUM(n) AS total
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, window_time, device
"""
[query.b]
sql = """
SELECT window_start, device, -SUM(n) AS total
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, device
HAVING SUM(n) > 0
"""
[query.both]
sql = "SELECT device, total FROM a UNION ALL SELECT device, total FROM b"
[query.failing]
sql = "SELECT device, 100 / total AS share FROM a"
[query.days]
sql = """
SELECT COUNT(*) AS windows, SUM(total) AS total
FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL '1' DAY))
GROUP BY window_start, window_end
"""
[query.best]
sql = """
SELECT device, total, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, device ORDER BY total DESC) AS place FROM (
    SELECT window_start, window_end, device, SUM(n) AS total
    FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' HOUR))
    GROUP BY window_start, window_end, device
  )
) WHERE place <= 1
"""
[sink]
both = { type = "file", from = "both", path = "both.csv", format = "csv" }
failing = { type = "file", from = "failing", path = "failing.csv", format = "csv" }
errors = { type = "file", from = "failing.errors", path = "errors.ndjson" }
days = { type = "file", from = "days", path = "days.csv", format = "csv" }
best = { type = "file", from = "best", path = "best.csv", format = "csv" }
"#;

#[test]
fn windows_of_several_parts_give_what_they_would_in_one() {
    let place = Place::new();
    place.write("p.toml", CONFIG);
    let (mut input, mut both, mut failing, mut best) =
        (String::new(), "device,total\n".to_owned(), "device,share\n".to_owned(), "device,total,place\n".to_owned());
    let n = |hour: u64, device: u64| (device + hour) % 100;
    for hour in 0..2 {
        for device in (0..DEVICES).rev() {
            let at = 1_775_001_600_000 + hour * 3_600_000;
            writeln!(input, "{},d{device:05},{}", stamp(at), n(hour, device)).expect("writes");
        }
        for device in 0..DEVICES {
            let total = n(hour, device);
            writeln!(both, "d{device:05},{total}").expect("writes");
            writeln!(best, "d{device:05},{total},1").expect("writes");
            if let Some(share) = 100u64.checked_div(total) {
                writeln!(failing, "d{device:05},{share}").expect("writes");
            }
        }
        for device in (0..DEVICES).filter(|device| n(hour, *device) > 0) {
            writeln!(both, "d{device:05},-{}", n(hour, device)).expect("writes");
        }
    }
    place.write("input.csv", &input);
    let (code, text) = outcome(&place.forebay(&["run", "p.toml"]));
    assert_eq!(code, 0, "{text}");
    assert!(place.text("both.csv") == both, "UNION ALL: all of the left window, then all of the right one");
    assert!(place.text("failing.csv") == failing);
    assert_eq!(place.text("errors.ndjson").lines().count() as u64, 2 * DEVICES / 100);
    assert!(place.text("best.csv") == best);
    let total: u64 = (0..2).flat_map(|hour| (0..DEVICES).map(move |device| n(hour, device))).sum();
    assert_eq!(place.text("days.csv"), format!("windows,total\n{},{total}\n", 2 * DEVICES));
}
