//! The words that Flink 2.3 reserves: as an identifier such a word needs back-ticks, or the text would not run there.
//!
//! Source: the keywords of Flink's parser (`Parser.jj` and the `keywords` of `Parser.tdd`) without its
//! `nonReservedKeywords` and `nonReservedKeywordsToAdd`. The longer list in Flink's documentation also names words that
//! its parser takes as identifiers (`A`, `DATA`, `LEVEL`, `TYPE`, …).

/// Whether Flink reserves `word` (any case).
pub(super) fn is_reserved(word: &str) -> bool {
    let upper = word.to_ascii_uppercase();
    WORDS.binary_search(&upper.as_str()).is_ok()
}

/// Sorted.
#[rustfmt::skip]
pub(super) const WORDS: &[&str] = &[
    "ABS", "ALL", "ALLOCATE", "ALLOW", "ALTER", "AND", "ANY", "ARE", "ARRAY", "ARRAY_CONCAT_AGG",
    "ARRAY_MAX_CARDINALITY", "AS", "ASENSITIVE", "ASYMMETRIC", "AT", "ATOMIC", "AUTHORIZATION", "AVG", "BEGIN",
    "BEGIN_FRAME", "BEGIN_PARTITION", "BETWEEN", "BIGINT", "BINARY", "BIT", "BLOB", "BOOLEAN", "BOTH", "BUCKETS",
    "BY", "BYTES", "CALL", "CALLED", "CARDINALITY", "CASCADED", "CASE", "CAST", "CATALOGS", "CEIL", "CEILING", "CHAR",
    "CHARACTER", "CHARACTER_LENGTH", "CHAR_LENGTH", "CHECK", "CLASSIFIER", "CLOB", "CLOSE", "COALESCE", "COLLATE",
    "COLLECT", "COLUMN", "COMMENT", "COMMIT", "CONDITION", "CONNECT", "CONNECTIONS", "CONSTRAINT", "CONTAINS",
    "CONTINUOUS", "CONVERT", "CORR", "CORRESPONDING", "COUNT", "COVAR_POP", "COVAR_SAMP", "CREATE", "CROSS", "CUBE",
    "CUME_DIST", "CURRENT", "CURRENT_CATALOG", "CURRENT_DATE", "CURRENT_DEFAULT_TRANSFORM_GROUP", "CURRENT_PATH",
    "CURRENT_ROLE", "CURRENT_ROW", "CURRENT_SCHEMA", "CURRENT_TIME", "CURRENT_TIMESTAMP",
    "CURRENT_TRANSFORM_GROUP_FOR_TYPE", "CURRENT_USER", "CURSOR", "CYCLE", "DATABASES", "DATE", "DATETIME",
    "DATE_TRUNC", "DAY", "DEALLOCATE", "DEC", "DECIMAL", "DECLARE", "DEFAULT", "DEFINE", "DELETE", "DENSE_RANK",
    "DEREF", "DESCRIBE", "DETERMINISTIC", "DISALLOW", "DISCONNECT", "DISTINCT", "DISTRIBUTED", "DISTRIBUTION", "DOT",
    "DOUBLE", "DROP", "DYNAMIC", "EACH", "ELEMENT", "ELSE", "EMPTY", "END", "END_FRAME", "END_PARTITION", "EQUALS",
    "ESCAPE", "EVERY", "EXCEPT", "EXEC", "EXECUTE", "EXISTS", "EXP", "EXPLAIN", "EXTEND", "EXTENDED", "EXTERNAL",
    "EXTRACT", "FALSE", "FETCH", "FILTER", "FIRST_VALUE", "FLOAT", "FLOOR", "FOR", "FOREIGN", "FRAME_ROW", "FREE",
    "FRESHNESS", "FRIDAY", "FROM", "FULL", "FUNCTION", "FUNCTIONS", "FUSION", "GET", "GLOBAL", "GRANT", "GROUP",
    "GROUPING", "GROUPS", "GROUP_CONCAT", "HASH", "HAVING", "HOLD", "HOUR", "IDENTITY", "ILIKE", "IMPORT", "IN",
    "INCLUDE", "INDICATOR", "INITIAL", "INNER", "INOUT", "INSENSITIVE", "INSERT", "INT", "INTEGER", "INTERSECT",
    "INTERSECTION", "INTERVAL", "INTO", "IS", "JOIN", "JSON_ARRAY", "JSON_ARRAYAGG", "JSON_EXISTS", "JSON_OBJECT",
    "JSON_OBJECTAGG", "JSON_QUERY", "JSON_VALUE", "LAG", "LANGUAGE", "LARGE", "LAST_VALUE", "LATERAL", "LEAD",
    "LEADING", "LEFT", "LIKE", "LIKE_REGEX", "LIMIT", "LN", "LOCAL", "LOCALTIME", "LOCALTIMESTAMP", "LOWER", "MATCH",
    "MATCHES", "MATCH_NUMBER", "MATCH_RECOGNIZE", "MATERIALIZED", "MAX", "MEASURES", "MEMBER", "MERGE", "METHOD",
    "MIN", "MINUS", "MINUTE", "MOD", "MODELS", "MODIFIES", "MODIFY", "MODULE", "MODULES", "MONDAY", "MONTH",
    "MULTISET", "NATIONAL", "NATURAL", "NCHAR", "NCLOB", "NEW", "NEXT", "NO", "NONE", "NORMALIZE", "NOT", "NTH_VALUE",
    "NTILE", "NULL", "NULLIF", "NUMERIC", "OCCURRENCES_REGEX", "OCTET_LENGTH", "OF", "OFFSET", "OLD", "OMIT", "ON",
    "ONE", "ONLY", "OPEN", "OR", "ORDER", "OUT", "OUTER", "OVER", "OVERLAPS", "OVERLAY", "PARAMETER", "PARTITION",
    "PATTERN", "PER", "PERCENT", "PERCENTILE_CONT", "PERCENTILE_DISC", "PERCENT_RANK", "PERIOD", "PERMUTE", "PIVOT",
    "PORTION", "POSITION", "POSITION_REGEX", "POWER", "PRECEDES", "PRECISION", "PREPARE", "PREV", "PRIMARY",
    "PROCEDURE", "PROCEDURES", "QUALIFY", "QUARTERS", "RANGE", "RANK", "RAW", "READS", "REAL", "RECURSIVE", "REF",
    "REFERENCES", "REFERENCING", "REFRESH", "REFRESH_MODE", "REGR_AVGX", "REGR_AVGY", "REGR_COUNT", "REGR_INTERCEPT",
    "REGR_R2", "REGR_SLOPE", "REGR_SXX", "REGR_SXY", "REGR_SYY", "RELEASE", "RENAME", "RESET", "RESULT", "RESUME",
    "RETURN", "RETURNS", "REVOKE", "RIGHT", "RLIKE", "ROLLBACK", "ROLLUP", "ROW", "ROWS", "ROW_NUMBER", "RUNNING",
    "SATURDAY", "SAVEPOINT", "SCALA", "SCOPE", "SCROLL", "SEARCH", "SECOND", "SEEK", "SELECT", "SENSITIVE",
    "SEPARATOR", "SESSION_USER", "SET", "SHOW", "SIMILAR", "SKIP", "SMALLINT", "SOME", "SPECIFIC", "SPECIFICTYPE",
    "SQL", "SQLEXCEPTION", "SQLSTATE", "SQLWARNING", "SQRT", "START", "STATEMENT", "STATIC", "STDDEV_POP",
    "STDDEV_SAMP", "STREAM", "STRING", "STRING_AGG", "STRUCTURED", "SUBMULTISET", "SUBSET", "SUBSTRING",
    "SUBSTRING_REGEX", "SUCCEEDS", "SUM", "SUNDAY", "SUSPEND", "SYMMETRIC", "SYSTEM", "SYSTEM_TIME", "SYSTEM_USER",
    "TABLE", "TABLES", "TABLESAMPLE", "THEN", "THURSDAY", "TIME", "TIMESTAMP", "TIMESTAMP_DIFF", "TIMESTAMP_LTZ",
    "TIMESTAMP_TRUNC", "TIMEZONE_HOUR", "TIMEZONE_MINUTE", "TIME_DIFF", "TIME_TRUNC", "TINYINT", "TO", "TRAILING",
    "TRANSLATE", "TRANSLATE_REGEX", "TRANSLATION", "TREAT", "TRIGGER", "TRIM", "TRIM_ARRAY", "TRUE", "TRUNCATE",
    "TUESDAY", "UESCAPE", "UNION", "UNIQUE", "UNKNOWN", "UNNEST", "UNPIVOT", "UPDATE", "UPPER", "UPSERT", "USE",
    "USER", "USING", "VALUE", "VALUES", "VALUE_OF", "VARBINARY", "VARCHAR", "VARIANT", "VARYING", "VAR_POP",
    "VAR_SAMP", "VERSIONING", "VIEWS", "WATERMARK", "WATERMARKS", "WEDNESDAY", "WEEKS", "WHEN", "WHENEVER", "WHERE",
    "WIDTH_BUCKET", "WINDOW", "WITH", "WITHIN", "WITHOUT", "YEAR",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(WORDS.is_sorted());
    }

    #[test]
    fn what_the_flink_parser_takes_is_free() {
        for word in ["a", "b", "c", "level", "data", "type", "name", "state", "device", "tumble"] {
            assert!(!is_reserved(word), "{word}");
        }
        for word in ["value", "user", "end", "day", "time", "count", "timestamp"] {
            assert!(is_reserved(word), "{word}");
        }
    }
}
