//! QUALIFY: the same rows as a condition in an outer query.

use crate::conformance::at_all_batch_sizes;

fn same(qualify: &str, nested: &str) {
    let (given, expected) = (at_all_batch_sizes(qualify).rows, at_all_batch_sizes(nested).rows);
    assert!(given.lines().count() > 2, "{given}");
    assert_eq!(given, expected, "{qualify}");
}

#[test]
fn the_first_row_of_a_key() {
    same(
        "SELECT ts, device, temp FROM plant QUALIFY ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts) = 1",
        "SELECT ts, device, temp FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY device ORDER BY ts) AS rn FROM plant) \
         WHERE rn = 1",
    );
}

#[test]
fn the_first_rows_of_a_window_by_a_name_of_the_list() {
    same(
        "SELECT window_start, device, temp AS t, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY t DESC, \
         device) AS rn FROM (SELECT *, temp AS t FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND)) \
         WHERE temp IS NOT NULL QUALIFY rn <= 2 AND t < 100",
        "SELECT window_start, device, temp AS t, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end \
         ORDER BY temp DESC, device) AS rn FROM TUMBLE(TABLE plant, DESCRIPTOR(ts), INTERVAL '10' SECOND) WHERE temp IS \
         NOT NULL) WHERE rn <= 2 AND temp < 100",
    );
}

#[test]
fn what_an_aggregate_over_the_rows_before_says() {
    same(
        "SELECT ts, device, temp + 0 AS x FROM plant WINDOW w AS (PARTITION BY device ORDER BY ts ROWS BETWEEN 4 PRECEDING \
         AND CURRENT ROW) QUALIFY x > AVG(temp) OVER w + 2",
        "SELECT ts, device, temp + 0 AS x FROM (SELECT *, AVG(temp) OVER (PARTITION BY device ORDER BY ts ROWS BETWEEN 4 \
         PRECEDING AND CURRENT ROW) AS m FROM plant) WHERE temp + 0 > m + 2",
    );
}
