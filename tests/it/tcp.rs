//! Kills with a source that cannot be rewound: what the log shows is in the output exactly once, closed windows equal a
//! recomputation from the log, and what was durable before a kill is there after it.
//!
//! `FOREBAY_KILLS=2000 tests/run kill` for many, here and in `kills`.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kills::share;
use crate::support::{Place, Random, free_port, stamp, until};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(port: u16) -> String {
    format!(
        r#"
[pipeline]
name = "tcp"
state = "state"
[durability]
delay = "3ms"
[checkpoint]
every = "40ms"
[source.plant]
type = "tcp"
listen = "127.0.0.1:{port}"
columns = {{ ts = "TIMESTAMP_LTZ(3)", device = "STRING", seq = "BIGINT" }}
time = {{ column = "ts", max_out_of_orderness = "300ms" }}
[query.rows]
sql = "SELECT seq, _lsn AS lsn FROM plant"
[query.seconds]
sql = """
SELECT window_start, device, COUNT(*) AS n, MIN(seq) AS lo, MAX(seq) AS hi
FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' SECOND))
GROUP BY window_start, window_end, device
"""
[sink.rows]
type = "file"
from = "rows"
path = "out/rows.ndjson"
[sink.seconds]
type = "file"
from = "seconds"
path = "out/seconds.ndjson"
[sink.late]
type = "file"
from = "seconds.late"
path = "out/late.ndjson"
"#
    )
}

/// The log's records of the source: LSN and row.
fn logged(place: &Place) -> Vec<(u64, Value)> {
    let cat = place.forebay(&["log", "cat", "f.toml", "--source", "plant", "--format", "json"]);
    assert!(cat.status.success(), "{}", String::from_utf8_lossy(&cat.stderr));
    String::from_utf8_lossy(&cat.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|record| record["kind"] == "data")
        .map(|record| {
            let row = serde_json::from_str(record["payload"].as_str().expect("text")).expect("a row");
            (record["lsn"].as_u64().expect("an LSN"), row)
        })
        .collect()
}

fn lines(place: &Place, name: &str) -> Vec<Value> {
    place.text(name).lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
}

#[test]
fn a_tcp_pipeline_loses_nothing_logged_and_repeats_nothing_under_kills() {
    let mut kills = 0;
    let mut seed = 1;
    while kills < share(40) {
        kills += storm(seed);
        seed += 1;
    }
    println!("{kills} kills");
}

/// A window: end and device; count, least and greatest sequence number.
type Window = ((i64, String), (u64, u64, u64));

/// One pipeline, killed ten times while a client sends. Gives the number of kills.
fn storm(seed: u64) -> u64 {
    let mut random = Random(seed);
    let place = Place::new();
    let port = free_port();
    place.write("f.toml", &config(port));
    let mut seq = 0u64;
    let kills = 10;
    let mut durable = 0;
    for round in 0..=kills {
        let mut running = place.start("f.toml");
        let mut socket: TcpStream = until(PATIENCE, "the port opens", || TcpStream::connect(("127.0.0.1", port)).ok());
        let end = Instant::now() + Duration::from_millis(20 + random.below(150));
        while Instant::now() < end {
            let mut batch = String::new();
            for _ in 0..1 + random.below(30) {
                let disorder = if random.below(50) == 0 { 3_000 } else { random.below(300) };
                let millis = 1_775_000_000_000 + (seq * 7).saturating_sub(disorder);
                batch += &format!("{{\"ts\":\"{}\",\"device\":\"d{}\",\"seq\":{seq}}}\n", stamp(millis), seq % 5);
                seq += 1;
            }
            if socket.write_all(batch.as_bytes()).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if round == kills {
            // All that was sent on this connection is read before the end.
            drop(socket);
            until(PATIENCE, "everything sent is logged", || {
                logged(&place).last().is_some_and(|(_, row)| row["seq"] == seq - 1).then_some(())
            });
            assert_eq!(running.stop(), 0, "seed {seed}: {}", place.text("stderr.txt"));
        } else {
            if round % 3 == 0 {
                // What a look at the running engine says is durable must be there at the end.
                durable = logged(&place).last().map_or(durable, |(lsn, _)| *lsn);
            }
            running.kill();
        }
    }

    let log = logged(&place);
    assert!(log.len() > 100, "seed {seed}: {} records", log.len());
    assert!(log.iter().any(|(lsn, _)| *lsn == durable), "seed {seed}: LSN {durable} was durable and is lost");
    // The projection: each logged record once, in order.
    let rows: Vec<(u64, u64)> = lines(&place, "out/rows.ndjson")
        .iter()
        .map(|row| (row["lsn"].as_u64().unwrap(), row["seq"].as_u64().unwrap()))
        .collect();
    let expected: Vec<(u64, u64)> = log.iter().map(|(lsn, row)| (*lsn, row["seq"].as_u64().unwrap())).collect();
    assert!(rows == expected, "seed {seed}: {} rows for {} records", rows.len(), expected.len());

    // The windows: a recomputation from the log, row by row.
    let mut watermark = i64::MIN;
    let mut greatest = i64::MIN;
    let mut open: BTreeMap<(i64, String), (u64, u64, u64)> = BTreeMap::new();
    let mut closed = Vec::new();
    let mut late = 0;
    for (_, row) in &log {
        let time: jiff::Timestamp = row["ts"].as_str().unwrap().parse().unwrap();
        let time = time.as_millisecond();
        let seq = row["seq"].as_u64().unwrap();
        let end = time - time.rem_euclid(1000) + 1000;
        if end - 1 <= watermark {
            late += 1;
        } else {
            let device = row["device"].as_str().unwrap().to_owned();
            let group = open.entry((end, device)).or_insert((0, u64::MAX, 0));
            *group = (group.0 + 1, group.1.min(seq), group.2.max(seq));
        }
        greatest = greatest.max(time);
        watermark = watermark.max(greatest - 300);
        while let Some(entry) = open.first_entry().filter(|entry| entry.key().0 - 1 <= watermark) {
            closed.push(entry.remove_entry());
        }
    }
    let found: Vec<Window> = lines(&place, "out/seconds.ndjson")
        .iter()
        .map(|row| {
            let start: jiff::Timestamp = format!("{}Z", row["window_start"].as_str().unwrap()).parse().unwrap();
            let start = start.as_millisecond();
            let number = |name: &str| row[name].as_u64().unwrap();
            ((start + 1000, row["device"].as_str().unwrap().to_owned()), (number("n"), number("lo"), number("hi")))
        })
        .collect();
    assert!(found == closed, "seed {seed}: {} windows for {}", found.len(), closed.len());
    assert_eq!(lines(&place, "out/late.ndjson").len(), late, "seed {seed}");
    kills
}
