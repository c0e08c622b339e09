//! Kills of a pipeline with two sources and a join: each pair of rows is in the output once, whatever the order in which
//! the sources were read, and as a computation by hand has it.

use std::fmt::Write as _;

use crate::kills::{kill_until_done, share};
use crate::support::{Place, Random, stamp};

const CONFIG: &str = r#"
[pipeline]
name = "joined"
state = "state"
[durability]
delay = "3ms"
bytes = "8KiB"
[checkpoint]
every = "60ms"
[log]
max_size = "2MiB"
segment = "128KiB"
[source.orders]
type = "file"
path = "orders.ndjson"
columns = { ts = "TIMESTAMP_LTZ(3)", k = "BIGINT", id = "BIGINT" }
time = { column = "ts", max_out_of_orderness = "500ms" }
[source.parts]
type = "file"
path = "parts.ndjson"
columns = { ts = "TIMESTAMP_LTZ(3)", k = "BIGINT", id = "BIGINT" }
time = { column = "ts", max_out_of_orderness = "500ms" }
[query.pairs]
sql = """
SELECT o.id AS o, p.id AS p FROM orders AS o JOIN parts AS p
ON o.k = p.k AND p.ts BETWEEN o.ts - INTERVAL '0.2' SECOND AND o.ts + INTERVAL '0.2' SECOND
"""
[sink.pairs]
type = "file"
from = "pairs"
path = "out/pairs.ndjson"
roll_size = "64KiB"
"#;

/// Event time, key.
type Rows = Vec<(u64, u64)>;

fn rows(random: &mut Random, count: u64) -> Rows {
    (0..count).map(|id| (1_775_000_000_000 + id * 2 + 500 - random.below(500), random.below(150))).collect()
}

fn text(rows: &Rows) -> String {
    let mut text = String::new();
    for (id, (ts, k)) in rows.iter().enumerate() {
        writeln!(text, "{{\"ts\":\"{}\",\"k\":{k},\"id\":{id}}}", stamp(*ts)).unwrap();
    }
    text
}

#[test]
fn a_join_of_two_sources_gives_each_pair_once() {
    let wanted = share(50);
    let (mut kills, mut seed) = (0, 1);
    while kills < wanted {
        let mut random = Random(seed);
        let (orders, parts) = (rows(&mut random, 8000), rows(&mut random, 8000));
        let place = Place::new();
        place.write("orders.ndjson", &text(&orders));
        place.write("parts.ndjson", &text(&parts));
        place.write("f.toml", CONFIG);
        kills += kill_until_done(&place, seed, &mut random, |_| {});

        let mut expected = Vec::new();
        for (o, (o_ts, o_k)) in orders.iter().enumerate() {
            let near = parts.iter().enumerate().filter(|(_, (ts, k))| k == o_k && ts.abs_diff(*o_ts) <= 200);
            expected.extend(near.map(|(p, _)| format!("{{\"o\":{o},\"p\":{p}}}")));
        }
        let mut found: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(place.path("out")).expect("output") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            if !name.ends_with(".lock") {
                found.extend(place.text(&format!("out/{name}")).lines().map(str::to_owned));
            }
        }
        expected.sort();
        found.sort();
        assert!(expected.len() > 1000);
        assert!(expected == found, "seed {seed}, {kills} kills: {} pairs, {} expected", found.len(), expected.len());
        seed += 1;
    }
    println!("{kills} kills over {} seeds", seed - 1);
}
