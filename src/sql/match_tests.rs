//! MATCH_RECOGNIZE: what is taken, and what is refused where.

use super::match_plan::{MatchSpec, Skip, SlotKind};
use super::plan::Node;
use super::tests::{columns, planned, refused};

fn text(order: &str, measures: &str, skip: &str, pattern: &str, define: &str) -> String {
    format!(
        "SELECT * FROM plant MATCH_RECOGNIZE (PARTITION BY device ORDER BY {order} MEASURES {measures} {skip} \
         PATTERN {pattern} DEFINE {define})"
    )
}

/// A pattern with its WITHIN and DEFINE.
fn pattern(pattern: &str) -> String {
    text("ts", "A.seq AS s", "", &format!("({pattern}) WITHIN INTERVAL '1' MINUTE"), "A AS A.temp > 1")
}

fn measures(measures: &str) -> String {
    text("ts", measures, "", "(A B) WITHIN INTERVAL '1' MINUTE", "A AS A.temp > 1")
}

fn define(define: &str) -> String {
    text("ts", "A.seq AS s", "", "(A B) WITHIN INTERVAL '1' MINUTE", define)
}

fn within(within: &str) -> String {
    text("ts", "A.seq AS s", "", &format!("(A B) {within}"), "A AS A.temp > 1")
}

fn skip(skip: &str) -> String {
    text("ts", "A.seq AS s", skip, "(A B) WITHIN INTERVAL '1' MINUTE", "A AS A.temp > 1")
}

fn spec(text: &str) -> MatchSpec {
    let plan = planned(text);
    let Node::Match { spec, .. } = plan.node else { panic!("no match at the top: {}", plan.explain()) };
    *spec
}

#[test]
fn quantifiers_are_read() {
    let spec = spec(&pattern("A B? C* D*? E+ F+? G{3} H{3}? I{2,} J{2,}? K{2,4} L{2,4}? M{,4} N{,4}? (O) Z"));
    let read: Vec<_> = spec.pattern.iter().map(|v| (v.name.as_str(), v.least, v.most, v.greedy)).collect();
    let expected = [
        ("A", 1, Some(1), false),
        ("B", 0, Some(1), false),
        ("C", 0, None, true),
        ("D", 0, None, false),
        ("E", 1, None, true),
        ("F", 1, None, false),
        ("G", 3, Some(3), false),
        ("H", 3, Some(3), false),
        ("I", 2, None, true),
        ("J", 2, None, false),
        ("K", 2, Some(4), true),
        ("L", 2, Some(4), false),
        ("M", 0, Some(4), true),
        ("N", 0, Some(4), false),
        ("O", 1, Some(1), false),
        ("Z", 1, Some(1), false),
    ];
    assert_eq!(read, expected);
}

#[test]
fn within_and_skip_are_read() {
    for (text, ms) in [
        ("WITHIN INTERVAL '10' SECOND", 10_000),
        ("within interval '0.5' SECOND(3)", 500),
        ("WITHIN INTERVAL '1:30' MINUTE TO SECOND", 90_000),
        ("WITHIN INTERVAL '1 2' DAY(3) TO HOUR", 93_600_000),
    ] {
        assert_eq!(spec(&within(text)).within_ms, ms, "{text}");
    }
    for (text, wanted) in [
        ("", Skip::ToNextRow),
        ("ONE ROW PER MATCH", Skip::ToNextRow),
        ("AFTER MATCH SKIP TO NEXT ROW", Skip::ToNextRow),
        ("ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW", Skip::PastLastRow),
        ("AFTER MATCH SKIP TO FIRST B", Skip::ToFirst(1)),
        ("AFTER MATCH SKIP TO LAST A", Skip::ToLast(0)),
        ("AFTER MATCH SKIP TO B", Skip::ToLast(1)),
    ] {
        assert_eq!(spec(&skip(text)).skip, wanted, "{text}");
    }
}

#[test]
fn outputs_are_the_keys_then_the_measures() {
    let plan = planned(&measures(
        "FIRST(A.ts) AS a, MATCH_ROWTIME(ts) AS t, MATCH_ROWTIME() AS u, COUNT(*) AS n, AVG(B.pulses) AS p, \
         LAST(B.temp, 1) - A.temp AS d, UPPER(site) AS s",
    ));
    let types = ["device STRING", "a TIMESTAMP_LTZ(3)", "t TIMESTAMP_LTZ(3)", "u TIMESTAMP(3)", "n BIGINT", "p INT"];
    let found: Vec<String> = columns(&plan).iter().map(|(name, t)| format!("{name} {t}")).collect();
    assert_eq!(found[..6], types);
    assert_eq!(found[6..], ["d DOUBLE", "s STRING"]);
    assert_eq!(plan.schema.time, Some(2), "the first MATCH_ROWTIME");
    assert_eq!(planned(&measures("LAST(ts) AS t")).schema.time, None, "a time of a row is no time attribute");
}

#[test]
fn matches_can_go_on_into_windows_views_and_joins() {
    planned(
        "WITH m AS (SELECT * FROM plant MATCH_RECOGNIZE (PARTITION BY device ORDER BY ts MEASURES MATCH_ROWTIME(ts) AS t, \
         A.temp AS x PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.temp > 1) AS r) \
         SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(t), INTERVAL '1' MINUTE)) \
         GROUP BY window_start, window_end",
    );
    planned(
        "SELECT r.x, a.level FROM plant MATCH_RECOGNIZE (PARTITION BY device ORDER BY ts MEASURES MATCH_ROWTIME(ts) AS t, \
         A.temp AS x PATTERN (A B) WITHIN INTERVAL '1' MINUTE DEFINE A AS A.temp > 1) AS r JOIN alarm AS a \
         ON r.device = a.device AND r.t BETWEEN a.ts AND a.ts + INTERVAL '1' MINUTE",
    );
    let inner = measures("MATCH_ROWTIME(ts) AS t, COUNT(*) AS n, LAST(temp) AS temp").replace("plant", "`plant`");
    let nested = text("t", "SUM(n) AS n", "", "(A B) WITHIN INTERVAL '2' MINUTE", "B AS B.n > A.n");
    let nested = nested.replace("plant", &format!("({inner})"));
    assert_eq!(spec(&nested).within_ms, 120_000);
    assert_eq!(spec(&nested.replace("FROM (", "FROM(").replace(") MATCH", ")MATCH")).pattern.len(), 2);
    planned(
        "SELECT c FROM plant MATCH_RECOGNIZE (ORDER BY ts, seq DESC MEASURES A.seq AS x PATTERN (A B) \
         WITHIN INTERVAL '1' MINUTE DEFINE A AS A.temp > 1) AS r (c)",
    );
}

#[test]
fn only_what_is_read_is_kept() {
    let spec = spec(&text("ts", "COUNT(*) AS n", "", "(A B) WITHIN INTERVAL '1' MINUTE", "A AS temp > FIRST(hum)"));
    let plan = planned(&measures("COUNT(*) AS n"));
    assert_eq!(plan.inputs()[0].schema.fields.len(), 3, "ts, device, temp");
    let [slot] = &spec.pattern[0].condition.as_ref().expect("a condition").slots[..] else { panic!("one slot") };
    assert!(matches!(slot.kind, SlotKind::Row { column: 3, first: true, offset: 0 }), "{slot:?}");
}

#[test]
fn explain_shows_the_pattern_and_what_bounds_its_state() {
    let text = text(
        "ts, seq DESC",
        "LAST(B.temp) AS t, SUM(A.pulses + 1) AS p",
        "AFTER MATCH SKIP TO LAST B",
        "(A{2,}? B?  C) WITHIN INTERVAL '90' SECOND",
        "B AS B.temp > LAST(A.temp, 1)",
    );
    let explained = planned(&text).explain();
    for line in [
        "MatchRecognize",
        "    PARTITION BY device",
        "    ORDER BY ts, seq DESC",
        "    PATTERN (A{2,}? B? C) WITHIN 1m30s, AFTER MATCH SKIP TO LAST B",
        "    B AS temp > LAST(A.temp, 1)",
        "    `t` DOUBLE = LAST(B.temp, 0)",
        "    `p` INT = SUM(pulses + 1) of A",
        "    time attribute: none",
        "    state: bounded by time: the rows that the watermark has not passed, and for each key those of the 1m30s",
    ] {
        assert!(explained.contains(line), "{line}\n{explained}");
    }
}

#[test]
fn what_flink_does_not_take_is_refused_at_its_place() {
    let cases: [(String, &str, &str, &str); 47] = [
        (pattern("A B+"), "`B` at the end of the pattern is greedy", "B+", "reluctant"),
        (pattern("A B{2,}"), "`B` at the end of the pattern is greedy", "B{2,}", "reluctant"),
        (pattern("A B*"), "`B` at the end of the pattern is greedy", "B*", "reluctant"),
        (pattern("A? B*?"), "matches no row at all", "PATTERN (A? B*?)", "mandatory"),
        (pattern("A B?? C"), "`??` is not supported, nor by Flink", "B??", "`?`"),
        (pattern("A B{0,1}? C"), "`??` is not supported", "B{0,1}?", "`?`"),
        (pattern("A B{0} C"), "takes no row", "B{0}", "{n,m}"),
        (pattern("A B{3,2} C"), "takes no row", "B{3,2}", "{n,m}"),
        (pattern("A B A"), "`A` stands twice", "A", "another name"),
        (pattern("A | B"), "`|` is not supported", "|", "OR"),
        (pattern("A (B | C)"), "`|` is not supported", "|", "OR"),
        (pattern("A (B C)+ D"), "behind a group", "(", "quantify each"),
        (pattern("A (B+){2} D"), "behind a group", "(", "quantify each"),
        (pattern("PERMUTE(A, B)"), "PERMUTE is not supported", "PERMUTE", "one query for each"),
        (pattern("{- A -} B"), "`{- -}` is not supported", "{", "MEASURES"),
        (pattern("^ A B"), "no ends", "^", "leave it out"),
        (pattern("A B $"), "no ends", "$", "leave it out"),
        (pattern("A{2000} B"), "counts more than 1000 rows", "PATTERN (A{2000} B)", "`+`"),
        (within(""), "PATTERN needs WITHIN", "PATTERN", "WITHIN INTERVAL '1' MINUTE"),
        (within("WITHIN INTERVAL '1' MONTH"), "not months", "INTERVAL '1' MONTH", "MINUTE"),
        (within("WITHIN INTERVAL '0' SECOND"), "longer than 0", "INTERVAL '0' SECOND", "MINUTE"),
        (within("WITHIN INTERVAL '-1' SECOND"), "longer than 0", "INTERVAL '-1' SECOND", "MINUTE"),
        (within("WITHIN INTERVAL '1' MINUTE SUBSET C = (A, B)"), "SUBSET is not supported", "SUBSET", "one by one"),
        (skip("ALL ROWS PER MATCH"), "ALL ROWS PER MATCH is not supported", "ALL ROWS PER MATCH", "ONE ROW"),
        (skip("AFTER MATCH SKIP TO FIRST A"), "match it again", "A", "later variable"),
        (skip("AFTER MATCH SKIP TO LAST D"), "`D` is not in the pattern", "D", ""),
        (define("C AS TRUE"), "`C` is not in the pattern", "C", ""),
        (define("A AS TRUE, A AS FALSE"), "`A` is defined twice", "A", ""),
        (define("A AS A.temp"), "DEFINE needs a BOOLEAN", "A.temp", "comparison"),
        (define("A AS D.temp > 1"), "`D` is no variable of the pattern", "D", ""),
        (define("A AS A.tmp > 1"), "unknown column `tmp`", "tmp", "temp"),
        (define("A AS A > 1"), "unknown column `A`", "A", "`A.x`"),
        (define("A AS PREV(A.temp) > 1"), "PREV is not supported, nor by Flink", "PREV(A.temp)", "LAST(A.x, 1)"),
        (define("A AS NEXT(A.temp, 2) > 1"), "NEXT is not supported", "NEXT(A.temp, 2)", "LAST(A.x, 1)"),
        (
            define("B AS LAST(A.temp + B.temp) > 1"),
            "rows of one variable",
            "LAST(A.temp + B.temp)",
            "for each variable",
        ),
        (define("B AS LAST(SUM(A.temp)) > 1"), "cannot stand inside FIRST, LAST", "SUM(A.temp)", "take it out"),
        (define("B AS LAST(A.temp, -1) > 1"), "must be a number ≥ 0", "-1", "LAST(A.x, 1)"),
        (define("B AS LAST(A.temp, A.seq) > 1"), "must be a number ≥ 0", "A.seq", "LAST(A.x, 1)"),
        (define("B AS LAST(1) > 1"), "LAST needs a column", "LAST(1)", "LAST(A.x)"),
        (define("B AS SUM(A.temp * B.temp) > 1"), "rows of one variable", "SUM(A.temp * B.temp)", ""),
        (define("B AS COUNT(DISTINCT A.temp) > 1"), "DISTINCT inside MATCH_RECOGNIZE", "COUNT(DISTINCT A.temp)", ""),
        (define("B AS COUNT(1) > 1"), "needs a column of a variable", "COUNT(1)", "COUNT(*)"),
        (measures("CLASSIFIER() AS c"), "CLASSIFIER() is not supported", "CLASSIFIER()", ""),
        (measures("MATCH_PROCTIME() AS c"), "depends on when it runs", "MATCH_PROCTIME()", "MATCH_ROWTIME()"),
        (measures("MATCH_ROWTIME(seq) AS c"), "takes the time attribute", "seq", "MATCH_ROWTIME()"),
        (measures("A.seq s"), "needs AS before its name", "s", "AS"),
        (measures("A.seq AS s, B.seq AS s"), "two columns named `s`", "s", "AS other_name"),
    ];
    for (text, message, place, help) in cases {
        let (found, at, advice) = refused(&text);
        assert!(found.contains(message), "{text}\n{found}");
        assert_eq!(at, place, "{text}\n{found}");
        assert!(advice.contains(help), "{text}\n{advice}");
    }
}

#[test]
fn order_and_input_are_checked() {
    let ordered = |order: &str| text(order, "A.seq AS s", "", "(A B) WITHIN INTERVAL '1' MINUTE", "A AS A.temp > 1");
    for (text, message, place) in [
        (ordered("seq"), "must be the time attribute", "seq"),
        (ordered("ts DESC"), "goes forward in time", "ts"),
        (ordered("ts, seq + 1"), "takes columns only", "seq + 1"),
        (ordered("ts").replace("ORDER BY ts ", ""), "needs ORDER BY", "MATCH_RECOGNIZE"),
        (ordered("ts").replace("BY device", "BY UPPER(device)"), "takes columns only", "UPPER(device)"),
        (ordered("ts").replace("MEASURES A.seq AS s", ""), "needs MEASURES", "MATCH_RECOGNIZE"),
        (ordered("ts").replace("DEFINE A AS A.temp > 1", ""), "needs DEFINE", "PATTERN"),
        (
            ordered("ts").replace("plant", "TABLE(TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"),
            "behind TABLE(…)",
            "MATCH_RECOGNIZE",
        ),
        (
            ordered("ts").replace("plant", "(SELECT device, temp FROM plant)"),
            "needs a time attribute",
            "MATCH_RECOGNIZE",
        ),
        (ordered("ts").replace("plant", "(SELECT nothing FROM plant)"), "unknown column `nothing`", "nothing"),
        (ordered("ts").replace("plant", "plant AS p"), "stands behind its parentheses", "p"),
        (
            format!(
                "WITH s AS (SELECT device, temp, seq FROM plant) {}",
                ordered("ts").replace("FROM plant", "FROM s")
            ),
            "needs a time attribute",
            "MATCH_RECOGNIZE",
        ),
        ("SELECT a ? b FROM plant".to_owned(), "placeholders are not supported", "?"),
        ("SELECT UPPER(device) WITHIN INTERVAL '1' SECOND FROM plant".to_owned(), "", "WITHIN"),
    ] {
        let (found, at, _) = refused(&text);
        assert!(found.contains(message), "{text}\n{found}");
        assert_eq!(at, place, "{text}\n{found}");
    }
}

#[test]
fn the_documented_query_is_taken() {
    let page = include_str!("../../docs/match_recognize.md");
    let query = page.split("```sql").nth(1).and_then(|rest| rest.split("```").next()).expect("a query");
    let names: Vec<String> = columns(&planned(query)).into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["device", "from_ts", "peak", "steps", "t"]);
}
