//! The SQL front end as a whole: what is taken, what is refused and how, and that nothing panics.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::expr::build::ExprKind;
use crate::expr::{DataType, Field};
use plan::{Node, WindowKind, WindowProperty};

const CASES: [&str; 55] = [
    "j01_interval_inner",
    "j02_interval_left",
    "j03_interval_full",
    "j04_temporal",
    "j05_temporal_left",
    "j06_window_join",
    "j07_window_semi",
    "j08_interval_left_then_tumble",
    "m01_rise",
    "m02_three_hot",
    "m03_match_late",
    "o01_over_range",
    "o02_over_rows",
    "o03_over_unbounded",
    "o04_lag",
    "o05_hop_then_over",
    "o06_over_rows_late",
    "s01_project",
    "s02_null_logic",
    "s03_strings",
    "s04_casts",
    "s05_math",
    "s06_time",
    "s07_integer_arithmetic",
    "s08_case_in_like",
    "s09_union_all",
    "s10_cte_nested",
    "s11_unnest",
    "s12_row_fields",
    "s13_decimal",
    "s14_json_value",
    "t01_window_topn",
    "t02_window_dedup_last",
    "t03_dedup_first",
    "t04_topn_of_aggregate",
    "t05_dedup_first_late",
    "w01_tumble_avg",
    "w02_tumble_filter_having",
    "w03_tumble_global",
    "w04_tumble_offset",
    "w05_hop",
    "w06_cumulate",
    "w07_session",
    "w08_filter_clause",
    "w09_null_groups",
    "w10_spread",
    "w11_first_last",
    "w12_cascade",
    "w13_grouping_sets",
    "w14_expression_key",
    "w15_day_window",
    "w16_string_minmax",
    "w17_listagg",
    "w20_berlin_hop",
    "w21_decimal_sums",
];

fn conformance(file: &str) -> String {
    let path = format!("{}/tests/conformance/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The tables of the conformance cases, read from their declarations in Flink, with the system columns of sources.
fn catalog() -> Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(read_catalog);
    CATALOG.clone()
}

fn read_catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for line in conformance("tables.sql").lines() {
        let rest = line.strip_prefix("CREATE TABLE ").expect("a table");
        let (name, rest) = rest.split_once(" (").expect("columns");
        let (columns, _) = rest.split_once(", WATERMARK").expect("a watermark");
        let DataType::Row(mut fields) = parse_type(&format!("ROW({columns})")).expect("types") else { panic!("a row") };
        let hidden = |name: &str, data_type| Field { hidden: true, ..Field::new(name, data_type) };
        fields.push(hidden("_arrival", DataType::TimestampLtz(3)));
        fields.push(hidden("_lsn", DataType::BigInt));
        fields.push(hidden("_peer", DataType::String));
        catalog.add(name, Schema { fields, time: Some(0) });
        if rest.contains("PRIMARY KEY (device)") {
            catalog.add_key(name, vec!["device".to_owned()]);
        }
    }
    catalog
}

pub(super) fn planned(text: &str) -> Plan {
    plan_query(text, &catalog()).unwrap_or_else(|errors| panic!("{:.300}\n{errors:#?}", text))
}

pub(super) fn columns(plan: &Plan) -> Vec<(&str, String)> {
    plan.schema.fields.iter().map(|field| (field.name.as_str(), field.data_type.to_string())).collect()
}

/// The first problem of a text: message, the text it points at, help.
pub(super) fn refused(text: &str) -> (String, String, String) {
    let errors = plan_query(text, &catalog()).map(|plan| plan.explain()).expect_err("must be refused");
    let error = errors.into_iter().next().expect("an error");
    let at = text.get(error.span.clone()).unwrap_or_else(|| panic!("{:?}", error.span));
    (error.message, at.to_owned(), error.help.unwrap_or_default())
}

#[test]
fn a_comma_with_where_is_a_join_with_on() {
    let on = "a.device = b.device AND b.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts AND b.level > 1";
    let comma = planned(&format!("SELECT a.seq, b.msg FROM plant AS a, alarm AS b WHERE {on}"));
    let join = planned(&format!("SELECT a.seq, b.msg FROM plant AS a JOIN alarm AS b ON {on}"));
    assert_eq!(comma.explain(), join.explain());
}

#[test]
fn where_binds_inner_joins_as_on_does() {
    let bound = "b.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts";
    let on =
        planned(&format!("SELECT a.seq, b.msg FROM plant a JOIN alarm b ON a.device = b.device AND {bound}")).explain();
    for text in [
        format!("SELECT a.seq, b.msg FROM plant a JOIN alarm b ON a.device = b.device WHERE {bound}"),
        format!("SELECT a.seq, b.msg FROM plant a CROSS JOIN alarm b WHERE a.device = b.device AND {bound}"),
    ] {
        assert_eq!(planned(&text).explain(), on);
    }
    let three = "a.device = b.device AND b.device = c.device AND a.ts = b.ts AND b.ts = c.ts";
    let comma = planned(&format!("SELECT a.seq FROM steady a, alarm b, calib c WHERE {three}")).explain();
    assert_eq!(comma.matches("INNER within an interval").count(), 2, "{comma}");
    // A join that may pad its left side keeps the condition behind it.
    let padded = format!(
        "SELECT a.seq FROM plant a RIGHT JOIN alarm b ON a.device = b.device AND {bound} WHERE a.temp > b.level"
    );
    assert!(planned(&padded).explain().contains("Filter"));
}

#[test]
fn a_join_by_name_has_each_common_column_once() {
    let bound = "s.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts";
    let plan = planned(&format!(
        "SELECT * FROM steady s JOIN (SELECT device, level, ts FROM alarm) a USING (device) WHERE {bound}"
    ));
    let names: Vec<&str> = columns(&plan).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["device", "ts", "site", "temp", "hum", "pulses", "ok", "seq", "level", "ts0"]);
    let plan = planned(
        "SELECT device, level, gain FROM (SELECT device, ts, level FROM alarm) AS a NATURAL JOIN (SELECT device, ts, gain \
         FROM calib) AS c",
    );
    assert!(
        plan.explain().contains("INNER within an interval: ts - ts from 0s to 0s; device = device"),
        "{}",
        plan.explain()
    );
    planned("SELECT a.device, c.device AS d FROM alarm AS a JOIN calib AS c USING (device, ts)");
}

#[test]
fn both_times_of_a_join_go_on_through_a_query() {
    let mut catalog = catalog();
    let join = |kind: &str| {
        format!(
            "SELECT a.ts AS ats, b.ts AS bts, a.device AS k FROM plant a {kind} JOIN alarm b ON a.device = b.device AND a.ts \
             BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts"
        )
    };
    for (name, kind) in [("both_sides", ""), ("left_side", "LEFT")] {
        let plan = plan_query(&join(kind), &catalog).expect("a plan");
        catalog.add_query(name, &plan);
    }
    let uses = |relation: &str, time: &str| {
        [
            format!("SELECT COUNT(*) AS n FROM TUMBLE(TABLE {relation}, DESCRIPTOR({time}), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"),
            format!("SELECT SUM(1) OVER (PARTITION BY k ORDER BY {time}) AS n FROM {relation}"),
            format!("SELECT l.k FROM {relation} l JOIN steady r ON l.{time} = r.ts"),
            format!("SELECT x.k FROM (SELECT * FROM {relation} UNION ALL SELECT * FROM {relation}) AS x JOIN steady r ON x.{time} = r.ts"),
        ]
        .map(|text| plan_query(&text, &catalog).is_ok())
    };
    assert_eq!((uses("both_sides", "ats"), uses("both_sides", "bts")), ([true; 4], [true; 4]));
    assert_eq!((uses("left_side", "ats"), uses("left_side", "bts")), ([true; 4], [false; 4]));
}

#[test]
fn a_query_can_be_a_versioned_table() {
    let mut catalog = catalog();
    for (name, text) in [
        ("passed", "SELECT device AS d, gain, ts FROM calib"),
        (
            "firsts",
            "SELECT device AS d, level, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts) AS rn FROM alarm) WHERE rn = 1",
        ),
        ("some", "SELECT device AS d, gain, ts FROM calib WHERE gain > 1"),
    ] {
        let plan = plan_query(text, &catalog).expect("a plan");
        catalog.add_query(name, &plan);
    }
    let joined = |name: &str| {
        let text = format!("SELECT p.temp FROM plant p JOIN {name} FOR SYSTEM_TIME AS OF p.ts AS c ON p.device = c.d");
        plan_query(&text, &catalog).is_ok()
    };
    assert_eq!(["passed", "firsts", "some"].map(joined), [true, true, false]);
}

#[test]
fn conformance_queries_have_the_columns_of_flink() {
    for case in CASES {
        let plan = planned(&conformance(&format!("cases/{case}.sql")));
        let schema: serde_json::Value =
            serde_json::from_str(&conformance(&format!("cases/{case}.schema.json"))).expect("a schema");
        let wanted = schema.as_object().expect("an object");
        let mut wanted: Vec<(String, String)> =
            wanted.iter().map(|(name, t)| (name.clone(), t.as_str().expect("a type").to_owned())).collect();
        let short = |data_type: &DataType| match data_type {
            DataType::String => "VARCHAR".to_owned(),
            other => other.to_string().split('(').next().unwrap_or_default().to_owned(),
        };
        let mut found: Vec<(String, String)> =
            plan.schema.fields.iter().map(|field| (field.name.clone(), short(&field.data_type))).collect();
        // The JSON library gives the keys sorted.
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted, "{case}");
        assert!(plan.explain().contains("state: "), "{case}");
    }
}

#[test]
fn a_window_aggregate_has_keys_properties_and_aggregates() {
    let plan = planned(&conformance("cases/w01_tumble_avg.sql"));
    let Node::Project { input, exprs } = &plan.node else { panic!("{plan:?}") };
    let Node::WindowAggregate { input, window, keys, properties, aggregates } = &input.node else { panic!("{plan:?}") };
    assert!(matches!(input.node, Node::Scan { .. }));
    assert_eq!(window.kind, WindowKind::Tumble { size_ms: 10_000, offset_ms: 0 });
    assert_eq!((window.time_column, keys.len(), aggregates.len()), (0, 1, 3));
    assert_eq!(properties.as_slice(), [WindowProperty::Start, WindowProperty::End]);
    let order: Vec<&ExprKind> = exprs.iter().map(|expr| &expr.kind).collect();
    let column = ExprKind::Column;
    assert_eq!(order, [&column(1), &column(2), &column(0), &column(3), &column(4), &column(5)]);
    assert_eq!(plan.schema.time, None);
}

#[test]
fn the_spellings_of_a_window_mean_the_same() {
    let tail = "GROUP BY window_start, window_end, device";
    let head = "SELECT window_start, device, COUNT(*) AS n FROM";
    let wanted = planned(&format!("{head} TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND)) {tail}"));
    for from in [
        "TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        "TABLE(TUMBLE(TABLE `plant`, DESCRIPTOR(`ts`), INTERVAL '10' SECONDS))",
        "TABLE(TUMBLE(DATA => TABLE plant, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '10' SECOND)) AS w",
        "tumble(SIZE => INTERVAL '10' SECOND, DATA => TABLE plant, TIMECOL => DESCRIPTOR(ts)) w",
        "TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '0:10' MINUTE TO SECOND, INTERVAL '0' SECOND))",
    ] {
        let plan = planned(&format!("{head} {from} {tail}"));
        assert_eq!(plan.explain(), wanted.explain(), "{from}");
    }
    let sub = planned(&format!(
        "{head} TABLE(TUMBLE((SELECT ts, device FROM plant WHERE temp > 1), DESCRIPTOR(ts), INTERVAL '10' SECOND)) {tail};"
    ));
    assert_eq!(sub.schema, wanted.schema);
}

#[test]
fn windows_of_another_query_can_be_grouped_again() {
    let mut catalog = catalog();
    let inner = planned(
        "SELECT window_start, window_end AS until, window_time, device, COUNT(*) AS n FROM HOP(TABLE plant, DESCRIPTOR(ts), \
         INTERVAL '10' SECOND, INTERVAL '1' MINUTE) GROUP BY window_start, window_end, window_time, device",
    );
    catalog.add_query("counts", &inner);
    let query =
        "SELECT window_start, until, window_time, SUM(n) AS n FROM counts GROUP BY window_start, until, window_time";
    let plan = plan_query(query, &catalog).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!(plan.schema.time, Some(2));
    catalog.add_query("sums", &plan);
    let query = "SELECT MAX(n) AS n FROM sums GROUP BY window_start, until";
    assert!(plan_query(query, &catalog).is_ok());
    let query = "SELECT MAX(n) AS n FROM sums GROUP BY window_start, n";
    assert!(plan_query(query, &catalog).is_err());
}

#[test]
fn what_stands_above_a_window_is_pushed_below_it() {
    let plan = planned(
        "SELECT s, b, COUNT(*) AS n FROM (SELECT window_start AS s, window_end AS e, temp > 25 AS b FROM \
         TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) WHERE hum > 1) GROUP BY s, e, b",
    );
    assert_eq!(columns(&plan)[1], ("b", "BOOLEAN".to_owned()));
    let Node::Project { input, .. } = &plan.node else { panic!("{plan:?}") };
    let Node::WindowAggregate { input, window, .. } = &input.node else { panic!("{plan:?}") };
    assert_eq!(input.schema.time, Some(window.time_column));
    assert_eq!(input.schema.type_of(window.time_column), Some(&DataType::TimestampLtz(3)));
    let Node::Project { input, .. } = &input.node else { panic!("{plan:?}") };
    assert!(matches!(input.node, Node::Filter { .. }));
}

#[test]
fn keys_are_found_again_in_expressions() {
    let window =
        "FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) p GROUP BY window_start, window_end";
    let plan = planned(&format!(
        "SELECT FLOOR(temp) + 1 AS f, p.device || '!' AS d, AVG(hum) * 2 AS h, COUNT(*) AS n {window}, p.device, FLOOR(p.temp) \
         HAVING COUNT(*) > 1 AND FLOOR(temp) < 9"
    ));
    assert_eq!(
        columns(&plan),
        [
            ("f", "DOUBLE".to_owned()),
            ("d", "STRING".to_owned()),
            ("h", "DOUBLE".to_owned()),
            ("n", "BIGINT".to_owned())
        ]
    );
    let Node::Project { input, .. } = &plan.node else { panic!("{plan:?}") };
    let Node::Filter { input, .. } = &input.node else { panic!("{plan:?}") };
    let Node::WindowAggregate { keys, aggregates, .. } = &input.node else { panic!("{plan:?}") };
    assert_eq!((keys.len(), aggregates.len()), (2, 2));
}

#[test]
fn grouping_sets_multiply_out() {
    let sets = |by: &str| {
        let plan = planned(&format!(
            "SELECT site, device, GROUPING(site, device) AS g, COUNT(*) AS n FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), \
             INTERVAL '1' MINUTE) GROUP BY window_start, window_end, {by}"
        ));
        let Node::Project { input, .. } = &plan.node else { panic!("{plan:?}") };
        let Node::WindowAggregate { input, .. } = &input.node else { panic!("{plan:?}") };
        match &input.node {
            Node::Expand { sets, .. } => {
                sets.iter().map(|set| set.iter().map(|has| u8::from(*has)).collect()).collect()
            }
            _ => Vec::<Vec<u8>>::new(),
        }
    };
    assert_eq!(sets("GROUPING SETS ((site, device), (site), ())"), [[1, 1], [1, 0], [0, 0]]);
    assert_eq!(sets("ROLLUP (site, device)"), [[1, 1], [1, 0], [0, 0]]);
    assert_eq!(sets("CUBE (site, device)"), [[1, 1], [1, 0], [0, 1], [0, 0]]);
    assert_eq!(sets("site, ROLLUP (device)"), [[1, 1], [1, 0]]);
    assert!(sets("site, device").is_empty());
}

#[test]
fn the_time_attribute_survives_what_passes_it_on() {
    let time = |text: &str| {
        let plan = planned(text);
        plan.schema.time.map(|time| plan.schema.fields[time].name.clone())
    };
    assert_eq!(time("SELECT ts FROM plant").as_deref(), Some("ts"));
    assert_eq!(time("SELECT device, ts AS rowtime FROM plant WHERE temp > 1").as_deref(), Some("rowtime"));
    assert_eq!(time("SELECT ts + INTERVAL '1' SECOND AS ts FROM plant"), None);
    assert_eq!(time("SELECT device FROM plant"), None);
    assert_eq!(time("SELECT device, ts FROM plant UNION ALL SELECT device, ts FROM alarm").as_deref(), Some("ts"));
    assert_eq!(time("SELECT ts, device FROM plant UNION ALL SELECT _arrival, device FROM alarm"), None);
    let window = "FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE))";
    assert_eq!(time(&format!("SELECT ts, window_time AS w {window}")).as_deref(), Some("w"));
    let grouped = "GROUP BY window_start, window_end";
    assert_eq!(time(&format!("SELECT window_time {window} {grouped}, window_time")).as_deref(), Some("window_time"));
    assert_eq!(time(&format!("SELECT window_end {window} {grouped}, window_time")), None);
}

#[test]
fn columns_are_named_as_in_flink() {
    let plan = planned("SELECT b.pos.lat, samples[1], UPPER(device), b.device FROM burst AS b");
    let names: Vec<&str> = columns(&plan).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["lat", "EXPR$1", "EXPR$2", "device"]);
    let plan = planned("SELECT *, _lsn FROM alarm");
    let names: Vec<&str> = columns(&plan).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["ts", "device", "level", "msg", "_lsn"]);
    let plan = planned("WITH x (a, b) AS (SELECT device, level FROM alarm) SELECT y.* FROM x AS y (c, d)");
    assert_eq!(columns(&plan), [("c", "STRING".to_owned()), ("d", "INT".to_owned())]);
}

#[test]
fn names_resolve_as_in_flink() {
    planned("SELECT alarm.device FROM alarm");
    planned("SELECT plant.device FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS plant");
    planned("SELECT `level` FROM alarm WHERE level > 1");
    planned("WITH alarm AS (SELECT temp FROM plant) SELECT temp FROM alarm");
    planned("SELECT d FROM (WITH x AS (SELECT device AS d FROM plant) SELECT d FROM x) WHERE d <> 'it''s' -- done\n;");
    planned("SELECT pos.lat AS a, (pos).lon AS b, burst.samples[1 + 1] AS c FROM burst");
}

#[test]
fn dependencies_leave_ctes_out() {
    let of = |text: &str| dependencies(text).expect(text);
    assert_eq!(of("SELECT 1 AS x FROM a UNION ALL SELECT 1 AS x FROM b UNION ALL SELECT 1 AS x FROM a"), ["a", "b"]);
    assert_eq!(
        of("WITH c AS (SELECT * FROM a), d AS (SELECT * FROM c) SELECT * FROM TABLE(TUMBLE(TABLE d, DESCRIPTOR(t), \
            INTERVAL '1' DAY)) UNION ALL SELECT * FROM (SELECT * FROM TUMBLE(DATA => TABLE b, TIMECOL => DESCRIPTOR(t), \
            SIZE => INTERVAL '1' DAY)) UNION ALL SELECT * FROM TUMBLE((SELECT * FROM e), DESCRIPTOR(t), INTERVAL '1' DAY)"),
        ["a", "b", "e"]
    );
    assert_eq!(of("WITH a AS (SELECT * FROM a) SELECT * FROM a"), ["a"]);
    assert!(dependencies("SELECT FROM").is_err());
}

#[test]
fn explain_shows_the_tree_and_what_bounds_it() {
    let plan = planned(
        "SELECT window_start, device, COUNT(DISTINCT site) AS n FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), \
         INTERVAL '90' SECOND, INTERVAL '5' SECOND)) WHERE temp > 20 GROUP BY window_start, window_end, device",
    );
    let text = plan.explain();
    for part in [
        "Project\n",
        "  WindowAggregate\n      TUMBLE 1m30s, offset 5s, on `ts` TIMESTAMP_LTZ(3)\n      key `device` STRING = device\n",
        "`n` BIGINT = COUNT(DISTINCT site)\n",
        "state: bounded by open windows: one entry for each key and distinct value for each 1m30s of the windows",
        "    Filter\n",
        "      Scan plant\n",
        "time attribute: `ts` TIMESTAMP_LTZ(3)\n",
    ]
    .iter()
    .map(|part| part.replace("agg$0", "n"))
    {
        let part = part.replace("`n` BIGINT", "`agg$0` BIGINT");
        assert!(text.contains(&part), "{part}\n---\n{text}");
    }
    let prints: Vec<String> = plan.stateful().into_iter().map(|(_, fingerprint)| fingerprint).collect();
    let [print] = prints.as_slice() else { panic!("{prints:?}") };
    assert!(print.contains("TUMBLE 1m30s, offset 5s") && print.contains("COUNT(DISTINCT site) BIGINT"), "{print}");
    assert_eq!(planned("SELECT device FROM plant").fingerprint(), None);
}

/// Wherever a reserved word is put into a query, the query is refused or means something else.
#[test]
fn no_reserved_word_is_ignored() {
    let text = "SELECT p.window_start, device AS d, COUNT(*) FILTER (WHERE ok) AS n FROM TABLE(TUMBLE(TABLE plant, \
                DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS p WHERE temp > 1 GROUP BY window_start, window_end, device";
    let whole = planned(text).explain();
    let tokens = Text::new(text).expect("tokens").tokens;
    for (cut, word) in tokens.iter().flat_map(|token| reserved::WORDS.iter().map(|word| (token.range.start, *word))) {
        let changed = format!("{} {word} {}", &text[..cut], &text[cut..]);
        if let Ok(plan) = plan_query(&changed, &catalog()) {
            // SELECT ALL and `COUNT(ALL x)` are the default, and AS is optional.
            assert!(plan.explain() != whole || ["ALL", "AS"].contains(&word), "{changed}");
        }
    }
}

/// Text, message, where it points, part of the help.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("SELECT device FROM plant LIMIT 5", "LIMIT is not supported", "LIMIT", "WHERE"),
    ("SELECT device FROM plant OFFSET 5", "OFFSET is not supported", "OFFSET", ""),
    ("SELECT device FROM plant FETCH FIRST 5 ROWS ONLY", "FETCH is not supported", "FETCH", ""),
    ("SELECT device FROM plant ORDER BY device", "ORDER BY is not supported", "ORDER BY", ""),
    ("SELECT DISTINCT device FROM plant", "SELECT DISTINCT is not supported", "DISTINCT", "GROUP BY window_start"),
    ("SELECT DISTINCT ON (device) device FROM plant", "DISTINCT ON is not part of Flink SQL", "DISTINCT ON", ""),
    ("SELECT /*+ OPTIONS('a'='b') */ device FROM plant", "hints", "/*+ OPTIONS('a'='b') */", ""),
    ("SELECT device FROM plant /*+ OPTIONS('a'='b') */", "hints", "/*+ OPTIONS('a'='b') */", ""),
    ("SELECT U&'a' FROM plant", "U&'…'", "U&'a'", ""),
    ("SELECT \"device\" FROM plant", "double quotes", "\"device\"", "`name`"),
    ("SELECT device::INT FROM plant", "`::`", "::", "CAST"),
    ("SELECT device FROM plant WHERE temp == 1", "`==`", "==", "`=`"),
    ("SELECT ? FROM plant", "placeholders", "?", ""),
    ("SELECT device FROM plant WHERE temp NOT NULL", "`NOT NULL` behind a value", "NOT NULL", "IS NOT NULL"),
    ("SELECT device FROM plant WHERE (temp) NOT NULL", "`NOT NULL` behind a value", "NOT NULL", "IS NOT NULL"),
    ("SELECT device FROM plant GLOBAL", "GLOBAL is not part", "GLOBAL", "`GLOBAL`"),
    ("SELECT top FROM plant", "TOP is not part", "top", "`top`"),
    ("SELECT N'a' FROM plant", "this kind of string", "N'a'", "'text'"),
    ("SELECT device FROM plant TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE", "TABLESAMPLE", ""),
    ("SELECT device FROM plant QUALIFY 1 = 1", "QUALIFY needs a call with OVER", "1 = 1", "WHERE"),
    (
        "SELECT device, COUNT(*) AS n FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, \
         window_end, device QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n) = 1",
        "QUALIFY beside GROUP BY is not supported",
        "QUALIFY",
        "sub-query",
    ),
    ("SELECT TOP 5 device FROM plant", "TOP is not part", "TOP", ""),
    ("SELECT device INTO x FROM plant", "INTO is not part", "INTO", "[sink.NAME]"),
    ("SELECT device FROM plant FOR UPDATE", "FOR is not part", "FOR", ""),
    ("SELECT device FROM plant LATERAL VIEW explode(x) t", "LATERAL VIEW", "LATERAL VIEW", ""),
    ("SELECT device FROM plant PREWHERE x = 1", "PREWHERE", "PREWHERE", ""),
    ("SELECT device FROM plant SETTINGS x = 1", "SETTINGS", "SETTINGS", ""),
    ("SELECT device FROM plant CLUSTER BY device", "CLUSTER BY", "CLUSTER BY", ""),
    ("SELECT device FROM plant WINDOW w AS (ORDER BY ts)", "the window `w` is not used", "w", ""),
    ("SELECT device FROM plant; SELECT device FROM plant", "only one query", ";", "[query.NAME]"),
    ("SELECT device FROM plant;;", "only one query", ";", ""),
    ("SELECT device FROM plant garbage trailing", "`trailing` cannot stand behind `garbage`", "trailing", ""),
    ("SELECT x FROM UNNEST(samples) AS s (x)", "UNNEST must follow a relation", "UNNEST", "CROSS JOIN UNNEST"),
    (
        "SELECT x FROM burst CROSS JOIN UNNEST(device) AS s (x)",
        "UNNEST takes an ARRAY or a MAP, not STRING",
        "device",
        "",
    ),
    ("SELECT x FROM burst CROSS JOIN UNNEST(samples) AS s (x, y)", "names 2 columns, but there are 1", "s", ""),
    (
        "SELECT x FROM burst LEFT JOIN UNNEST(samples) AS s (x) ON x > 1",
        "UNNEST can stand behind CROSS JOIN, or LEFT JOIN … ON TRUE",
        "",
        "ON TRUE",
    ),
    ("SELECT y FROM burst AS b CROSS JOIN UNNEST(b.samples) AS s (x)", "unknown column `y`", "y", ""),
    (
        "SELECT a.device FROM plant a JOIN alarm b ON a.device = b.device",
        "without a bound in time",
        "a.device = b.device",
        "",
    ),
    ("SELECT plant.device FROM plant, alarm", "joins every row with every row", "alarm", ""),
    ("SELECT p.device FROM plant p CROSS JOIN alarm a", "joins every row with every row", "alarm a", "WHERE"),
    ("SELECT p.device FROM plant p JOIN alarm a USING (device)", "without a bound in time", "alarm a", ""),
    ("SELECT p.device FROM plant p JOIN alarm a USING (site)", "`site` is not a column of both sides", "site", ""),
    ("SELECT p.* FROM plant p JOIN alarm a USING (device, ts)", "`.*` behind a join by name", "p", "name the columns"),
    (
        "SELECT p.temp FROM plant p RIGHT JOIN alarm a ON p.device = a.device WHERE p.ts BETWEEN a.ts AND a.ts + INTERVAL '1' \
         SECOND",
        "without a bound in time",
        "p.device = a.device",
        "",
    ),
    (
        "SELECT p.temp FROM plant p, alarm a, calib c WHERE p.ts = a.ts AND a.ts = c.ts AND gain > 1 AND device = 'x'",
        "`device` is ambiguous",
        "device",
        "p.device",
    ),
    (
        "SELECT * FROM (SELECT ts, RANK() OVER (PARTITION BY device ORDER BY ts) AS rk FROM plant) WHERE rk <= 3",
        "the first rows by RANK are not supported, nor by Flink",
        "rk <= 3",
        "ROW_NUMBER()",
    ),
    (
        "SELECT DENSE_RANK() OVER (PARTITION BY window_start, window_end ORDER BY temp) AS rk FROM TUMBLE(TABLE plant, \
         DESCRIPTOR(ts), INTERVAL '1' SECOND)",
        "ordered by the time attribute",
        "temp",
        "ROW_NUMBER() only",
    ),
    (
        "SELECT RANK() OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS rk FROM plant",
        "RANK takes no frame",
        "OVER",
        "",
    ),
    ("SELECT RANK(temp) OVER (ORDER BY ts) AS rk FROM plant", "RANK takes no arguments", "RANK(temp)", ""),
    (
        "SELECT SUM(temp) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND CURRENT ROW) AS s FROM plant",
        "the frame must start with",
        "OVER",
        "PRECEDING",
    ),
    (
        "SELECT SUM(temp) OVER (ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS s FROM plant",
        "must end at the CURRENT ROW",
        "OVER",
        "",
    ),
    ("SELECT SUM(temp) OVER (ORDER BY seq) AS s FROM plant", "ordered by the time attribute", "seq", "`ts`"),
    ("SELECT SUM(temp) OVER (ORDER BY ts DESC) AS s FROM plant", "OVER goes forward in time", "ts", "`ts`"),
    ("SELECT SUM(temp) OVER () AS s FROM plant", "needs ORDER BY", "OVER", "`ts`"),
    (
        "SELECT SUM(temp) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS s FROM plant",
        "must end at the CURRENT ROW",
        "OVER",
        "",
    ),
    (
        "SELECT SUM(temp) OVER (ORDER BY ts RANGE BETWEEN 5 PRECEDING AND CURRENT ROW) AS s FROM plant",
        "RANGE needs an INTERVAL",
        "5",
        "",
    ),
    (
        "SELECT SUM(temp) OVER (ORDER BY ts) AS s, COUNT(*) OVER (PARTITION BY device ORDER BY ts) AS n FROM plant",
        "must have the same window",
        "OVER",
        "",
    ),
    ("SELECT LEAD(temp) OVER (ORDER BY ts) AS s FROM plant", "LEAD OVER", "LEAD(temp)", "LAG looks back"),
    ("SELECT CHANGED(temp) AS c FROM plant", "it needs OVER", "CHANGED(temp)", "CHANGED(x) OVER"),
    (
        "SELECT EWMA(temp, 5) OVER (ORDER BY ts) AS c FROM plant",
        "EWMA takes other arguments",
        "EWMA(temp, 5)",
        "INTERVAL",
    ),
    (
        "SELECT * FROM (SELECT device, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts) AS rn FROM plant) WHERE rn <= 2",
        "only the first row of each key",
        "ROW_NUMBER()",
        "window_start",
    ),
    (
        "SELECT * FROM (SELECT device, ROW_NUMBER() OVER (PARTITION BY device ORDER BY temp) AS rn FROM plant) WHERE rn = 1",
        "never final without a window",
        "ROW_NUMBER()",
        "window_start",
    ),
    ("SELECT a.device FROM plant a, alarm b", "joins every row with every row", "alarm b", "ON"),
    (
        "SELECT a.device FROM plant a, alarm b WHERE a.device = b.device",
        "without a bound in time",
        "a.device = b.device",
        "",
    ),
    (
        "SELECT device FROM plant a JOIN alarm b ON a.device = b.device AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' SECOND",
        "`device` is ambiguous",
        "device",
        "a.device",
    ),
    (
        "SELECT a.seq FROM plant a JOIN alarm b ON a.device = b.device AND b.ts > a.ts",
        "open at one end",
        "a.device = b.device AND b.ts > a.ts",
        "BETWEEN",
    ),
    (
        "SELECT a.seq FROM plant a JOIN alarm FOR SYSTEM_TIME AS OF a.ts AS b ON a.device = b.device",
        "is no versioned table",
        "a.ts",
        "key = ",
    ),
    ("SELECT JSON_VALUE(device, '$..a') AS a FROM plant", "is no JSON path", "JSON_VALUE(device, '$..a')", ""),
    ("SELECT JSON_EXISTS(device, '$.a' NULL ON EMPTY) AS a FROM plant", "has no such clause", "NULL", ""),
    (
        "SELECT JSON_VALUE(device, '$.a' RETURNING DATE) AS a FROM plant",
        "does not return DATE",
        "JSON_VALUE(device, '$.a' RETURNING DATE)",
        "",
    ),
    ("SELECT device FROM plant WHERE device IN (SELECT device FROM alarm)", "without a bound in time", "", ""),
    (
        "SELECT device FROM plant WHERE EXISTS (SELECT 1 FROM alarm)",
        "without a bound in time",
        "EXISTS (SELECT 1 FROM alarm)",
        "",
    ),
    ("SELECT (SELECT 1 FROM alarm) AS x FROM plant", "a sub-query as a value", "(SELECT 1 FROM alarm)", ""),
    (
        "SELECT * FROM plant MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ts AS x PATTERN (A) DEFINE A AS A.temp > 1)",
        "PATTERN needs WITHIN",
        "PATTERN",
        "WITHIN INTERVAL '1' MINUTE",
    ),
    ("VALUES (1)", "VALUES is not supported", "VALUES", ""),
    ("INSERT INTO x SELECT device FROM plant", "INSERT is no query", "INSERT", "[sink.NAME]"),
    ("CREATE VIEW v AS SELECT device FROM plant", "CREATE is no query", "CREATE", "[query.NAME]"),
    ("SET 'a' = 'b'", "SET is no query", "SET", ""),
    ("", "the query is empty", "", "SELECT"),
    ("SELECT device AS `a`, temp AS a FROM plant", "two columns named `a`", "a", "AS"),
    ("SELECT device AS value FROM plant", "`value` is a reserved word", "value", "`value`"),
    ("SELECT device AS x FROM plant AS user", "`user` is a reserved word", "user", "`user`"),
    ("SELECT day FROM plant", "`day` is a reserved word", "day", "`day`"),
    ("SELECT end FROM plant", "found `end`", "end", "`end`"),
    ("SELECT device, FROM plant", "expected an expression, found `FROM`", "FROM", ""),
    ("SELECT a FROM (SELECT device, AS a FROM plant)", "expected an expression, found `AS`", "AS", ""),
    ("SELECT CASE WHEN ok THEN 1 FROM plant", "expected ", "FROM", ""),
    ("SELECT device FROM (SELECT device FROM plant", "this `(` is not closed", "(", ""),
    ("SELECT device) FROM plant", "`)` closes nothing", ")", "leave it out"),
    ("SELECT device AS 'd' FROM plant", "expected a name behind AS, found `'d'`", "'d'", "`d`"),
    ("SELECT device AS 1st FROM plant", "expected a name behind AS, found `1`", "1", "back-ticks"),
    ("SELECT device FROM plant GROUP device", "BY must follow GROUP", "GROUP", "GROUP BY"),
    ("SELECT device FROM plant LEFT x", "expected JOIN, found `x`", "x", "LEFT JOIN"),
    ("SELECT device FROM plant WHERE device NOT 'a'", "`NOT` cannot stand behind `device`", "NOT", "x <> y"),
    ("SELECT device FROM plant WHERE temp =< 5", "`=<` is no comparison", "=<", "<="),
    ("SELECT device FROM plant WHERE temp = 5,5", "a comma cannot stand here", ",", "5.5"),
    ("SELECT temp >> 1 AS t FROM plant", "`>>` is not Flink SQL", ">>", "operators on bits"),
    ("SELECT temp DIV 2 AS t FROM plant", "DIV is not Flink SQL", "DIV", "FLOOR"),
    ("SELECT CAST(temp, INT) AS t FROM plant", "expected `AS`, found `,`", ",", "CAST(x AS INT)"),
    ("SELECT CAST(temp AS) AS t FROM plant", "a type must follow AS", ")", "CAST(x AS INT)"),
    ("SELECT * EXCEPT (temp) FROM plant", "`* EXCEPT (…)` is not Flink SQL", "temp", "name the columns"),
    ("SELECT AVG(temp) OVER PARTITION BY device FROM plant", "OVER stands in parentheses", "PARTITION BY", "OVER ("),
    (
        "SELECT a.seq FROM plant a JOIN alarm b ON a.device = b.device FOR SYSTEM_TIME AS OF a.ts",
        "stands right behind a table",
        "FOR SYSTEM_TIME",
        "JOIN t FOR SYSTEM_TIME AS OF a.ts AS x",
    ),
    ("SELECT LAG(temp) AS t FROM plant", "LAG needs OVER", "LAG(temp)", "ORDER BY ts"),
    ("SELECT MEDIAN(temp) AS t FROM plant", "unknown function MEDIAN", "MEDIAN(temp)", "PERCENTILE(x, 0.5)"),
    ("SELECT temp * 2 AS t, t + 1 AS u FROM plant", "unknown column `t`", "t", "does not see the names"),
    ("SELEC device FROM plant", "SELEC is no query", "SELEC", "`SELECT`"),
    ("SELECT 'abc FROM plant", "this string is not closed", "'", "end it with a quote"),
    ("SELECT devcie FROM plant", "unknown column `devcie`", "devcie", "`device`"),
    ("SELECT Device FROM plant", "unknown column `Device`", "Device", "`device`"),
    ("SELECT p.devcie FROM plant p", "unknown column `devcie` in `p`", "devcie", "`device`"),
    ("SELECT plant.device FROM plant AS p", "unknown table or column `plant`", "plant", "`p`"),
    ("SELECT x.* FROM plant AS p", "unknown table `x`", "x", "p.*"),
    ("SELECT device FROM plnt", "unknown table `plnt`", "plnt", "`plant`"),
    ("SELECT device FROM plant.late", "`plant.late` cannot be read", "plant.late", "sinks only"),
    ("SELECT device FROM plant.dead", "`plant.dead` cannot be read", "plant.dead", "sinks only"),
    ("SELECT device FROM a.b.plant", "unknown table `a.b.plant`", "a.b.plant", "`plant`"),
    ("SELECT UPER(device) AS u FROM plant", "unknown function UPER", "UPER(device)", "UPPER"),
    ("SELECT device FROM plant WHERE ts < NOW()", "not deterministic", "NOW()", "_arrival"),
    ("SELECT CURRENT_TIMESTAMP AS t FROM plant", "not deterministic", "CURRENT_TIMESTAMP", "_arrival"),
    ("SELECT device FROM plant WHERE temp", "WHERE needs a BOOLEAN, not DOUBLE", "temp", ""),
    ("SELECT device FROM plant WHERE ok AND temp", "AND needs a BOOLEAN, not DOUBLE", "temp", ""),
    ("SELECT CAST(temp AS INTT) AS i FROM plant", "unknown type `INTT`", "INTT", "`INT`"),
    ("SELECT CAST(NULL AS ARRAY<VARCHAR(10)>) AS i FROM plant", "a length of VARCHAR", "(10)", "STRING"),
    ("SELECT CAST(ts AS TIMESTAMP(9)) AS i FROM plant", "a precision of 9", "9", "6"),
    (
        "SELECT COUNT(*) AS n FROM plant",
        "COUNT over the whole stream",
        "COUNT(*)",
        "TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts)",
    ),
    (
        "SELECT device, COUNT(*) AS n FROM plant GROUP BY device",
        "GROUP BY without a window",
        "GROUP BY",
        "TUMBLE(TABLE plant",
    ),
    (
        "SELECT COUNT(*) AS n FROM plant GROUP BY TUMBLE(ts, INTERVAL '5' SECOND)",
        "the old form of windows",
        "TUMBLE(ts, INTERVAL '5' SECOND)",
        "TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '5' SECOND))",
    ),
    (
        "SELECT TUMBLE_START(ts, INTERVAL '5' SECOND) AS n FROM plant",
        "the old form of windows",
        "TUMBLE_START(ts, INTERVAL '5' SECOND)",
        "window_start",
    ),
    ("SELECT device FROM plant HAVING device = 'a'", "HAVING needs GROUP BY", "device = 'a'", "WHERE"),
    ("SELECT device FROM plant WHERE COUNT(*) > 1", "COUNT cannot stand in WHERE", "COUNT(*)", "HAVING"),
    ("SELECT device FROM plant UNION SELECT device FROM alarm", "UNION without ALL", "UNION", "UNION ALL"),
    ("SELECT device FROM plant EXCEPT SELECT device FROM alarm", "EXCEPT is not supported", "EXCEPT", ""),
    ("SELECT device FROM plant UNION ALL SELECT device, ts FROM alarm", "must have the same columns", "SELECT", ""),
    (
        "SELECT device FROM plant UNION ALL SELECT ts FROM alarm",
        "no common type: STRING, TIMESTAMP_LTZ(3)",
        "SELECT",
        "",
    ),
    ("WITH RECURSIVE x AS (SELECT 1 AS a FROM plant) SELECT a FROM x", "WITH RECURSIVE", "WITH RECURSIVE", ""),
    (
        "WITH x AS (SELECT 1 AS a FROM plant), x AS (SELECT 1 AS a FROM plant) SELECT a FROM x",
        "the CTE `x` is there twice",
        "x",
        "",
    ),
    ("SELECT 1 AS a", "this SELECT has no FROM", "SELECT", ""),
    (
        "SELECT * FROM TABLE(HOP(TABLE plant, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '3' SECOND))",
        "the size of a HOP window must be a multiple of its slide: 3000 ms is none of 2000 ms",
        "INTERVAL '3' SECOND",
        "HOP(TABLE name, DESCRIPTOR(time_column), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)",
    ),
    (
        "SELECT * FROM TABLE(HOP(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' SECOND))",
        "must be a multiple of its slide",
        "INTERVAL '1' SECOND",
        "the slide comes first",
    ),
    (
        "SELECT * FROM TABLE(HOP(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '1' DAY))",
        "each row would fall into 86400 windows",
        "INTERVAL '1' DAY",
        "",
    ),
    ("SELECT * FROM HOP(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "HOP lacks the size", "", "HOP(TABLE name"),
    (
        "SELECT * FROM HOP(DATA => TABLE plant, TIMECOL => DESCRIPTOR(ts), STEP => INTERVAL '1' SECOND, SIZE => INTERVAL '1' DAY)",
        "HOP has no argument `STEP`",
        "STEP",
        "SLIDE, SIZE",
    ),
    (
        "SELECT * FROM CUMULATE(TABLE plant, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '3' SECOND)",
        "the size of a CUMULATE window must be a multiple of its step: 3000 ms is none of 2000 ms",
        "INTERVAL '3' SECOND",
        "CUMULATE(TABLE name",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '2' SECOND)",
        "TUMBLE takes no PARTITION BY",
        "",
        "GROUP BY",
    ),
    (
        "SELECT COUNT(*) AS n FROM SESSION(TABLE plant PARTITION BY devcie, DESCRIPTOR(ts), INTERVAL '2' SECOND) \
         GROUP BY window_start, window_end",
        "unknown column `devcie`",
        "devcie",
        "`device`",
    ),
    (
        "SELECT COUNT(*) AS n FROM SESSION(TABLE plant PARTITION BY device, DESCRIPTOR(ts), INTERVAL '2' SECOND) \
         GROUP BY window_start, window_end, site",
        "must name the columns of its PARTITION BY",
        "GROUP BY",
        "PARTITION BY (a, b)",
    ),
    (
        "SELECT * FROM TUMBEL(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
        "unknown table function",
        "TUMBEL",
        "`TUMBLE`",
    ),
    ("SELECT * FROM TUMBLE(plant, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "is a table", "plant", "TABLE plant"),
    ("SELECT * FROM TUMBLE(TABLE plant, ts, INTERVAL '1' SECOND)", "DESCRIPTOR(column)", "ts", ""),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(device), INTERVAL '1' SECOND)",
        "`device` is not a time attribute",
        "device",
        "`ts`",
    ),
    (
        "SELECT * FROM TUMBLE((SELECT device, ts + INTERVAL '1' SECOND AS ts FROM plant), DESCRIPTOR(ts), INTERVAL '1' SECOND)",
        "`ts` is not a time attribute",
        "ts",
        "unchanged",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MONTH)",
        "months or years",
        "INTERVAL '1' MONTH",
        "days",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '0' SECOND)",
        "more than zero",
        "INTERVAL '0' SECOND",
        "",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '1' SECOND)",
        "less than its size",
        "INTERVAL '1' SECOND",
        "",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), 10)",
        "must be an INTERVAL, not INT",
        "10",
        "INTERVAL '10' SECOND",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10')",
        "this INTERVAL has no unit",
        "INTERVAL '10'",
        "SECOND",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECND)",
        "`SECND` is no unit of time",
        "SECND",
        "",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts))",
        "TUMBLE lacks the size",
        "TUMBLE(TABLE plant, DESCRIPTOR(ts))",
        "",
    ),
    (
        "SELECT * FROM TUMBLE(TABLE plant, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' SECOND)",
        "name all arguments",
        "",
        "",
    ),
    (
        "SELECT * FROM TUMBLE(DATA => TABLE plant, TIME => DESCRIPTOR(ts), SIZE => INTERVAL '1' SECOND)",
        "`TIME` is a reserved word",
        "TIME",
        "",
    ),
    (
        "SELECT * FROM TUMBLE(DATA => TABLE plant, TIMECOLL => DESCRIPTOR(ts), SIZE => INTERVAL '1' SECOND)",
        "TUMBLE has no argument `TIMECOLL`",
        "TIMECOLL",
        "`TIMECOL`",
    ),
];

#[test]
fn refusals_name_the_cause_and_point_at_it() {
    let mut wrong = Vec::new();
    for (text, message, at, help) in REFUSED {
        let found = refused(text);
        let points = at.is_empty() || found.1 == *at || (at.ends_with(" b") && found.1 == "alarm");
        if !found.0.contains(message) || !points || !found.2.contains(help) {
            wrong.push(format!(
                "{text}\n  wanted: {message} @ {at} help {help}\n  found:  {} @ {} help {}",
                found.0, found.1, found.2
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn grouping_over_a_window_is_checked() {
    let query = |list: &str, by: &str| {
        format!("SELECT {list} FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) {by}")
    };
    for (list, by, message, at) in [
        ("device", "GROUP BY device", "must name window_start and window_end", "GROUP BY"),
        ("device", "GROUP BY window_start, device", "must name window_end", "GROUP BY"),
        ("temp", "GROUP BY window_start, window_end, device", "`temp` is neither in GROUP BY", "temp"),
        ("window_time", "GROUP BY window_start, window_end", "`window_time` is neither in GROUP BY", "window_time"),
        ("*", "GROUP BY window_start, window_end", "which is not in GROUP BY", "*"),
        ("SUM(AVG(temp)) AS x", "GROUP BY window_start, window_end", "AVG cannot stand in an aggregate", "AVG(temp)"),
        ("SUM(device) AS x", "GROUP BY window_start, window_end", "SUM does not take STRING", "SUM(device)"),
        ("SUM(*) AS x", "GROUP BY window_start, window_end", "SUM(*) does not exist", "SUM(*)"),
        ("SUM(temp, hum) AS x", "GROUP BY window_start, window_end", "SUM takes one argument", "SUM(temp, hum)"),
        ("MEDIAN(temp) AS x", "GROUP BY window_start, window_end", "unknown function MEDIAN", "MEDIAN(temp)"),
        ("COUNT(*) FILTER (WHERE temp) AS x", "GROUP BY window_start, window_end", "FILTER needs a BOOLEAN", "temp"),
        (
            "COLLECT(device) AS x",
            "GROUP BY window_start, window_end",
            "there is no type MULTISET, which COLLECT makes",
            "COLLECT(device)",
        ),
        ("LISTAGG(temp) AS x", "GROUP BY window_start, window_end", "LISTAGG does not take DOUBLE", "LISTAGG(temp)"),
        (
            "LISTAGG(device, site) AS x",
            "GROUP BY window_start, window_end",
            "must be a constant string",
            "LISTAGG(device, site)",
        ),
        (
            "PERCENTILE(temp) AS x",
            "GROUP BY window_start, window_end",
            "PERCENTILE takes a number and a percentage",
            "PERCENTILE(temp)",
        ),
        (
            "PERCENTILE(temp, 90) AS x",
            "GROUP BY window_start, window_end",
            "must lie between 0 and 1, not 90",
            "PERCENTILE(temp, 90)",
        ),
        (
            "APPROX_PERCENTILE(temp, hum) AS x",
            "GROUP BY window_start, window_end",
            "must be a constant",
            "APPROX_PERCENTILE(temp, hum)",
        ),
        ("device AS d", "GROUP BY window_start, window_end, d", "unknown column `d`", "d"),
        ("device", "GROUP BY window_start, window_end, 1", "a constant groups nothing", "1"),
        (
            "device",
            "GROUP BY GROUPING SETS ((window_start, window_end, device), (window_start, window_end))",
            "the window's columns must be in every grouping set",
            "window_start",
        ),
        (
            "device",
            "GROUP BY window_start, window_end, CUBE (device, site, temp, hum, ok, seq, ts, pulses)",
            "more than 128",
            "GROUP BY",
        ),
        ("GROUPING(temp) AS g", "GROUP BY window_start, window_end, ROLLUP (device)", "takes keys of GROUP BY", "temp"),
        ("device", "GROUP BY ALL", "GROUP BY ALL", "GROUP BY ALL"),
        ("COUNT(*) AS n", "", "COUNT over the whole stream", "COUNT(*)"),
    ] {
        let text = query(list, by);
        let found = refused(&text);
        assert!(found.0.contains(message) && found.1 == at, "{text}\n{found:?}");
    }
    for (list, by) in [
        ("COUNT(*) AS n", "WHERE window_start > TIMESTAMP '2026-01-01 00:00:00' GROUP BY window_start, window_end"),
        ("MAX(window_end) AS x", "GROUP BY window_start, window_end"),
        ("h, COUNT(*) AS n", "GROUP BY window_start, window_end, h"),
    ] {
        let list = list.replace("h,", "HOUR(window_start) AS h,");
        let plan = planned(&query(&list, &by.replace(", h", ", HOUR(window_start)")));
        let text = plan.explain();
        assert!(text.contains("the rows' own windows, from `window_start` to `window_end`"), "{text}");
    }
    let (message, ..) = refused("SELECT window_start FROM plant");
    assert!(message.contains("unknown column `window_start`"));
    let again = "SELECT SUM(n) AS n FROM (SELECT window_start AS s, COUNT(*) AS n FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), \
                 INTERVAL '1' MINUTE) GROUP BY window_start, window_end) GROUP BY s";
    assert!(refused(again).0.contains("over the result of a window"));
    let nested = "SELECT * FROM TUMBLE((SELECT * FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE)), \
                  DESCRIPTOR(window_time), INTERVAL '1' HOUR)";
    assert!(refused(nested).0.contains("already has a column `window_start`"));
}

#[test]
fn all_items_of_a_select_list_are_checked() {
    let errors = plan_query("SELECT a, device, b FROM plant", &catalog()).expect_err("two unknown columns");
    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(messages, ["unknown column `a`", "unknown column `b`"]);
}

#[test]
fn problems_are_placed_in_the_configuration() {
    let document = "[query.q]\nsql = \"\"\"\nSELECT devcie\nFROM plant\n\"\"\"\n";
    let at = document.find("SELECT").expect("there");
    let text = settings::Text {
        value: document[at..document.len() - 4].to_owned(),
        span: 16..document.len() - 1,
        verbatim_at: Some(at),
    };
    let query = Query { name: "q".to_owned(), text };
    let problems = query.plan(&catalog()).map(|plan| plan.explain()).expect_err("unknown column");
    let spans: Vec<&str> = problems.iter().filter_map(|p| document.get(p.span.clone()?)).collect();
    assert_eq!(spans, ["devcie"]);
    assert_eq!(query.dependencies(), Ok(vec!["plant".to_owned()]));
}

#[test]
fn deep_and_long_texts_are_errors_or_plans_and_never_a_crash() {
    let deep =
        |open: &str, close: &str, n: usize| format!("SELECT {}1{} AS x FROM plant", open.repeat(n), close.repeat(n));
    for n in [30, 10_000] {
        for (open, close) in
            [("(", ")"), ("NOT ", ""), ("- ", ""), ("CASE WHEN ok THEN ", " END"), ("ABS(", ")"), ("ARRAY[", "]")]
        {
            let _ = plan_query(&deep(open, close, n), &catalog());
        }
    }
    assert!(refused(&deep("(", ")", 10_000)).0.contains("nested deeper than"));
    assert!(refused(&deep("- ", "", 10_000)).0.contains("nested deeper than"));
    let chain = |op: &str, n: usize| format!("SELECT device FROM plant WHERE {}", vec!["temp = 1"; n].join(op));
    planned(&chain(" OR ", 900));
    assert!(refused(&chain(" OR ", 10_000)).0.contains("operators"));
    let sum = |n: usize| format!("SELECT {} AS x FROM plant", vec!["temp"; n].join(" + "));
    planned(&sum(90));
    assert!(refused(&sum(1900)).0.contains("nested deeper than 100 levels"));
    assert!(refused(&sum(10_000)).0.contains("operators"));
    let union = |n: usize| vec!["SELECT device FROM plant"; n].join(" UNION ALL ");
    assert!(matches!(planned(&union(150)).node, Node::UnionAll { inputs } if inputs.len() == 150));
    assert!(refused(&union(10_000)).0.contains("set operators"));
    let subqueries = format!("SELECT * FROM {}plant{}", "(SELECT * FROM ".repeat(10_000), ")".repeat(10_000));
    assert!(refused(&subqueries).0.contains("nested deeper than"));
    let subqueries = format!("SELECT * FROM {}plant{}", "(SELECT * FROM ".repeat(38), ")".repeat(38));
    let _ = plan_query(&subqueries, &catalog());
    let doubling: Vec<String> = (1..40)
        .map(|i| format!("c{i} AS (SELECT device FROM c{0} UNION ALL SELECT device FROM c{0})", i - 1))
        .collect();
    let doubling = format!("WITH c0 AS (SELECT device FROM plant), {} SELECT * FROM c39", doubling.join(", "));
    assert!(refused(&doubling).0.contains("the plan has more than"));
    let types = format!("SELECT CAST(temp AS {}INT{}) AS x FROM plant", "ARRAY<".repeat(10_000), ">".repeat(10_000));
    assert!(refused(&types).0.contains("nested deeper than"));
}

const WORDS: &[&str] = &[
    "OVER (PARTITION BY device ORDER BY ts)",
    "ROWS",
    "RANGE",
    "PRECEDING",
    "CURRENT ROW",
    "WINDOW w AS",
    "ROW_NUMBER()",
    "LAG",
    "EWMA(temp, INTERVAL '1' SECOND)",
    "LEFT JOIN alarm ON",
    "FOR SYSTEM_TIME AS OF",
    "EXISTS (SELECT * FROM alarm WHERE",
    "JSON_VALUE(device, '$.a'",
    "RETURNING",
    "DEFAULT",
    "ON EMPTY",
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "HAVING",
    "plant",
    "alarm",
    "device",
    "temp",
    "ts",
    "(",
    ")",
    ",",
    ".",
    "*",
    "+",
    "-",
    "/",
    "=",
    "<>",
    "<",
    ">",
    "||",
    "'a'",
    "''",
    "1",
    "1.5",
    "1e3",
    "NULL",
    "TRUE",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "TRY_CAST",
    "AS",
    "INT",
    "DECIMAL",
    "ARRAY",
    "ROW",
    "[",
    "]",
    "EXTRACT",
    "FLOOR",
    "TO",
    "SECOND",
    "MINUTE",
    "INTERVAL",
    "'10'",
    "TABLE",
    "TUMBLE",
    "DESCRIPTOR",
    "=>",
    "WITH",
    "x",
    "UNION",
    "ALL",
    "COUNT",
    "SUM",
    "DISTINCT",
    "FILTER",
    "OVER",
    "PARTITION",
    "ORDER",
    "LIMIT",
    "FOR",
    "JOIN",
    "ON",
    "LEFT",
    "LATERAL",
    "UNNEST",
    "MATCH_RECOGNIZE",
    "MEASURES",
    "PATTERN",
    "WITHIN INTERVAL '1' SECOND",
    "DEFINE",
    "A.temp",
    "FIRST",
    "window_start",
    "window_end",
    "window_time",
    "`",
    "\"",
    "'",
    "--",
    "/*",
    "*/",
    "/*+",
    ";",
    "{",
    "}",
    "?",
    "::",
    "U&'x'",
    "X'0'",
    "TIMESTAMP",
    "DATE",
    "TRIM",
    "BOTH",
    "POSITION",
    "SUBSTRING",
    "OVERLAY",
    "PLACING",
    "VALUES",
    "EXISTS",
    "GROUPING",
    "SETS",
    "ROLLUP",
    "ä",
    "β",
    "\u{0}",
    "\n",
    "\r\n",
    "\t",
    "$",
    "@",
    "#",
    "TIMESTAMPDIFF",
    "PIVOT",
    "TABLESAMPLE",
    "AT",
    "TIME",
    "ZONE",
    "SIMILAR",
    "ANY",
    "SOME",
    "COLLATE",
    "STRUCT",
    "MAP",
    "%",
];

fn check_total(text: &str) {
    let _ = dependencies(text);
    match plan_query(text, &catalog()) {
        Ok(plan) => {
            assert!(!plan.explain().is_empty());
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(text.get(error.span.clone()).is_some(), "{text:?}: {error:?}");
                assert!(!error.message.is_empty());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn token_soup_never_panics(words in proptest::collection::vec(select(WORDS), 0..40)) {
        check_total(&words.join(" "));
        check_total(&format!("SELECT {}", words.join(" ")));
        check_total(&format!("SELECT {} FROM plant", words.join("")));
    }

    #[test]
    fn any_text_never_panics(text in any::<String>()) {
        check_total(&text);
        check_total(&format!("SELECT {text} FROM plant"));
        let _ = parse_type(&text);
    }

    #[test]
    fn type_soup_never_panics(words in proptest::collection::vec(select(&[
        "ROW", "ARRAY", "<", ">", ">>", "(", ")", ",", "INT", "DECIMAL", "a", "38", "3", "TIMESTAMP", "WITH", "LOCAL", "TIME",
        "ZONE", "NOT", "NULL", "VARCHAR",
    ][..]), 0..20)) {
        let text = words.join(" ");
        match parse_type(&text) {
            Ok(data_type) => prop_assert_eq!(parse_type(&data_type.to_string()), Ok(data_type)),
            Err(error) => prop_assert!(text.get(error.span.clone()).is_some()),
        }
    }

    #[test]
    fn mutated_queries_never_panic(
        case in select(&CASES[..]),
        edits in proptest::collection::vec((any::<Index>(), any::<Index>(), 0..4, select(WORDS)), 1..6),
    ) {
        let text = conformance(&format!("cases/{case}.sql"));
        let mut words: Vec<&str> = text.split_inclusive([' ', ',', '(', ')', '.']).collect();
        for (at, other, kind, word) in &edits {
            let (at, other) = (at.index(words.len()), other.index(words.len()));
            match kind {
                0 => { if words.len() > 1 { words.remove(at); } }
                1 => words.insert(at, word),
                2 => words.swap(at, other),
                _ => words[at] = word,
            }
        }
        check_total(&words.concat());
        check_total(&words.join(" "));
    }
}

#[test]
fn over_ranks_and_joins_say_what_they_keep() {
    let explained = |text: &str| planned(text).explain();
    let named = explained(
        "SELECT device, LAG(temp, 2, 0) OVER w AS a, COUNT(*) OVER w AS n FROM plant WINDOW w AS (PARTITION BY device ORDER BY ts)",
    );
    assert!(
        named.contains("LAG(temp, 2, CAST(0 AS DOUBLE))") && named.contains("RANGE UNBOUNDED PRECEDING"),
        "{named}"
    );
    assert!(named.contains("bounded by the number of keys"), "{named}");
    assert_eq!(named.matches("pulses").count(), 1, "only what is needed is kept: {named}");
    let range = "SELECT AVG(temp) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) AS a FROM plant";
    assert!(explained(range).contains("those of the 10s before"), "{}", explained(range));
    let first =
        "SELECT seq FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts) AS rn FROM plant) WHERE 1 = rn";
    assert!(explained(first).contains("the first of each key"), "{}", explained(first));
    let join = "SELECT a.seq, b.`level` FROM plant a JOIN alarm b ON a.device = b.device AND a.ts < b.ts AND b.ts - INTERVAL '2' SECOND <= a.ts";
    assert!(explained(join).contains("from -2s to -1ms"), "{}", explained(join));
    // Both times of an inner interval join are time attributes.
    let both = "WITH j AS (SELECT b.ts AS t, a.temp FROM plant a JOIN alarm b ON a.device = b.device AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts) \
                SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(t), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end";
    assert!(explained(both).contains("INNER within an interval"), "{}", explained(both));
    let anti = "SELECT L.seq FROM (SELECT * FROM TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) L WHERE NOT EXISTS \
                (SELECT * FROM (SELECT * FROM TABLE(TUMBLE(TABLE alarm, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) R \
                WHERE L.device = R.device AND L.window_start = R.window_start AND L.window_end = R.window_end)";
    assert!(explained(anti).contains("ANTI in windows of TUMBLE 1m"), "{}", explained(anti));
}

#[test]
fn equal_texts_share_state_and_others_do_not() {
    let fingerprint =
        |text: &str| planned(text).stateful().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n");
    let over = |frame: &str| format!("SELECT SUM(temp) OVER (PARTITION BY device ORDER BY ts {frame}) AS s FROM plant");
    assert_eq!(fingerprint(&over("")), fingerprint(&over("RANGE UNBOUNDED PRECEDING")));
    assert_ne!(fingerprint(&over("ROWS 3 PRECEDING")), fingerprint(&over("ROWS 4 PRECEDING")));
    let join = |bound: &str| {
        format!(
            "SELECT a.seq FROM plant a JOIN alarm b ON a.device = b.device AND a.ts BETWEEN b.ts - INTERVAL '{bound}' SECOND AND b.ts"
        )
    };
    assert_ne!(fingerprint(&join("1")), fingerprint(&join("2")));
}
