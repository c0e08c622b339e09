//! Functions of other databases that Flink does not have under that name, and what Flink SQL has instead.

/// What to write for a function of another system; `None`: it is none that is known here.
pub fn remedy(name: &str) -> Option<&'static str> {
    REMEDIES.iter().find(|(names, _)| names.contains(&name)).map(|(_, remedy)| *remedy)
}

/// Names (upper case) with one remedy together.
const REMEDIES: &[(&[&str], &str)] = &[
    (
        &["TIME_BUCKET", "DATE_BIN", "DATE_TRUNC", "TIME_SLICE", "TIMESTAMP_TRUNC", "TIME_TRUNC", "BIN"],
        "write FLOOR(ts TO MINUTE); to group by time, FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE)) \
         GROUP BY window_start, window_end",
    ),
    (
        &["TUMBLINGWINDOW", "HOPPINGWINDOW", "SLIDINGWINDOW", "SESSIONWINDOW", "TUMBLING", "HOPPING"],
        "write FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE)) GROUP BY window_start, window_end; or \
         HOP, SESSION",
    ),
    (
        &["GETDATE", "GETUTCDATE", "SYSDATE", "SYSDATETIME", "SYSTIMESTAMP", "CURDATE", "CURTIME", "CLOCK_TIMESTAMP"],
        "results must follow from the log alone: the arrival time of each row is the source's column `_arrival`",
    ),
    (&["NVL", "ISNULL", "ZEROIFNULL"], "write COALESCE(x, y)"),
    (&["IIF", "DECODE_IF", "MULTIIF"], "write IF(condition, a, b) or CASE WHEN … THEN … ELSE … END"),
    (&["LEN", "STRLEN", "STRING_LENGTH"], "write CHAR_LENGTH(x)"),
    (&["STRPOS", "CHARINDEX", "PATINDEX"], "write POSITION('x' IN s)"),
    (&["DATEDIFF", "DATE_DIFF", "TIME_DIFF", "TIMESTAMP_DIFF", "AGE", "TIMEDIFF"], "write TIMESTAMPDIFF(SECOND, a, b)"),
    (
        &["DATEADD", "DATE_ADD", "TIMESTAMP_ADD", "ADDDATE", "DATE_SUB", "SUBDATE", "TIMESTAMP_SUB"],
        "write ts + INTERVAL '5' MINUTE or ts - INTERVAL '5' MINUTE",
    ),
    (&["DATE_PART", "DATEPART", "WEEKDAY"], "write EXTRACT(HOUR FROM ts)"),
    (&["TO_CHAR", "STRFTIME", "FORMAT_TIMESTAMP", "FORMATDATETIME"], "write DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss')"),
    (
        &["STR_TO_DATE", "STRPTIME", "PARSE_TIMESTAMP", "PARSEDATETIME", "TO_DATETIME"],
        "write TO_TIMESTAMP(x, 'yyyy-MM-dd HH:mm:ss')",
    ),
    (
        &["TO_NUMBER", "TO_NUMERIC", "TO_INT", "TO_DOUBLE", "TRY_CONVERT"],
        "write CAST(x AS DOUBLE) or TRY_CAST(x AS DOUBLE)",
    ),
    (&["ISNUMERIC"], "write TRY_CAST(x AS DOUBLE) IS NOT NULL"),
    (&["POW"], "write POWER(x, y)"),
    (&["TRUNC"], "write TRUNCATE(x, n)"),
    (&["MEAN"], "write AVG(x)"),
    (&["MEDIAN", "PERCENTILE_CONT", "PERCENTILE_DISC", "QUANTILE", "APPROX_QUANTILE"], "write PERCENTILE(x, 0.5)"),
    (&["STDEV", "STD", "STDDEV_SAMPLE"], "write STDDEV_SAMP(x)"),
    (&["VAR", "VARIANCE_SAMP"], "write VAR_SAMP(x)"),
    (&["STRING_AGG", "GROUP_CONCAT", "ARRAY_CONCAT_AGG"], "write LISTAGG(x, ', ')"),
    (&["COLLECT_LIST", "GROUP_ARRAY", "ARRAY_COLLECT"], "write ARRAY_AGG(x)"),
    (&["COUNT_IF", "COUNTIF", "SUM_IF", "SUMIF"], "write COUNT(*) FILTER (WHERE condition)"),
    (&["COUNT_DISTINCT", "UNIQ", "APPROX_DISTINCT"], "write COUNT(DISTINCT x) or APPROX_COUNT_DISTINCT(x)"),
    (&["FIRST", "ANY_VALUE", "ARBITRARY"], "write FIRST_VALUE(x)"),
    (&["LAST", "LATEST", "LATEST_BY_OFFSET", "LAST_OVER_TIME"], "write LAST_VALUE(x)"),
    (
        &["MAX_BY", "MIN_BY", "ARG_MAX", "ARG_MIN", "ARGMAX", "ARGMIN"],
        "number the rows of each window and keep the first: ROW_NUMBER() OVER (PARTITION BY window_start, window_end \
         ORDER BY x DESC) AS rn, in an outer query WHERE rn = 1",
    ),
    (&["DIFFERENCE", "DELTA", "DIFF"], "write x - LAG(x) OVER (PARTITION BY k ORDER BY ts)"),
    (&["DERIVATIVE", "IRATE"], "write RATE(x) OVER (PARTITION BY k ORDER BY ts)"),
    (
        &["MOVING_AVERAGE", "MOVING_AVG", "MAVG"],
        "write AVG(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW)",
    ),
    (&["EXPLODE", "UNNEST", "FLATTEN"], "write FROM t CROSS JOIN UNNEST(t.samples) AS s (x)"),
    (&["JSON_EXTRACT", "JSON_EXTRACT_SCALAR", "GET_JSON_OBJECT", "JSON_TUPLE"], "write JSON_VALUE(doc, '$.a.b')"),
    (&["ARRAY_LENGTH", "ARRAY_SIZE", "SIZE"], "write CARDINALITY(x)"),
    (&["REGEXP_LIKE", "REGEXP_MATCHES", "RLIKE"], "write REGEXP(x, 'pattern')"),
    (&["CONTAINS"], "write POSITION('x' IN s) > 0, or ARRAY_CONTAINS(a, x)"),
    (&["SHA", "SHA_256"], "write SHA256(x) or SHA1(x)"),
];
