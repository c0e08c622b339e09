//! The parser of type names: one for TOML columns and for CAST, TRY_CAST.
//!
//! Taken: BOOLEAN, TINYINT, SMALLINT, INT, INTEGER, BIGINT, FLOAT, DOUBLE [PRECISION], DECIMAL | DEC | NUMERIC
//! [(p[, s])], STRING, VARCHAR, BYTES, VARBINARY, DATE, TIME, TIMESTAMP[(p)] [WITHOUT TIME ZONE], TIMESTAMP_LTZ[(p)],
//! TIMESTAMP[(p)] WITH LOCAL TIME ZONE, INTERVAL unit[(p)] [TO unit[(p)]], ARRAY<T>, T ARRAY, MAP<K, V>, ROW<a T, …>,
//! ROW(a T, …). Of an interval only whether it counts months matters: all have the same values here. Defaults are Flink's:
//! DECIMAL is (10, 0), TIMESTAMP is (6). Refused, with what to write: lengths of strings (Flink cuts and pads to them; CAST
//! does, see [`characters`]), precisions above 6, NOT NULL, MULTISET.

use std::ops::Range;

use sqlparser::tokenizer::Token;

use super::reserved::is_reserved;
use super::text::Text;
use super::{SqlError, nearest_help};
use crate::expr::build::Characters;
use crate::expr::{DataType, Field};

const DEPTH_MAX: usize = 32;
const NAMES: [&str; 25] = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "INTEGER",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "DEC",
    "NUMERIC",
    "STRING",
    "CHAR",
    "VARCHAR",
    "BYTES",
    "BINARY",
    "VARBINARY",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "ARRAY",
    "ROW",
    "MAP",
    "INTERVAL",
];

/// The length of `VARCHAR(n)` or `CHAR[(n)]`, which CAST takes and no column has.
pub fn characters(text: &str) -> Option<Characters> {
    let (name, length) = match text.trim().strip_suffix(')') {
        Some(rest) => rest.split_once('(').map(|(name, length)| (name, length.trim()))?,
        None => (text, "1"),
    };
    let name = name.trim().to_ascii_uppercase();
    let is_padded = matches!(name.as_str(), "CHAR" | "CHARACTER");
    let is_cut = matches!(name.as_str(), "VARCHAR" | "CHARACTER VARYING") && text.contains('(');
    let length = length.parse().ok().filter(|length| *length > 0)?;
    (is_padded || is_cut).then_some(Characters { length, is_padded })
}

/// The length of `VARBINARY(n)` or `BINARY[(n)]`, which CAST takes and no column has.
pub fn octets(text: &str) -> Option<Characters> {
    let (name, length) = match text.trim().strip_suffix(')') {
        Some(rest) => rest.split_once('(').map(|(name, length)| (name, length.trim()))?,
        None => (text, "1"),
    };
    let name = name.trim().to_ascii_uppercase();
    let is_padded = name == "BINARY";
    let is_cut = matches!(name.as_str(), "VARBINARY" | "BINARY VARYING") && text.contains('(');
    let length = length.parse().ok().filter(|length| *length > 0)?;
    (is_padded || is_cut).then_some(Characters { length, is_padded })
}

/// Parses the name of a type.
///
/// # Errors
/// The text is no type that is supported; the span says where.
pub fn parse_type(text: &str) -> Result<DataType, SqlError> {
    let text = Text::new(text)?;
    let mut parser = TypeParser { text: &text, next: 0, half_closed: false };
    let data_type = parser.data_type(0)?;
    match text.tokens.get(parser.next) {
        Some(_) if parser.half_closed => Err(parser.unexpected("the end of the type")),
        Some(_) => Err(parser.unexpected("the end of the type")),
        None if parser.half_closed => Err(SqlError::new(text.end(), "one `>` too many").help("leave it out")),
        None => Ok(data_type),
    }
}

struct TypeParser<'a> {
    text: &'a Text<'a>,
    next: usize,
    /// The first half of a `>>` was taken as `>`.
    half_closed: bool,
}

impl TypeParser<'_> {
    fn place(&self) -> Range<usize> {
        self.text.tokens.get(self.next).map_or_else(|| self.text.end(), |placed| placed.range.clone())
    }

    fn unexpected(&self, wanted: &str) -> SqlError {
        let place = self.place();
        let found = match self.text.slice(place.clone()) {
            "" => "the end".to_owned(),
            found => format!("`{found}`"),
        };
        SqlError::new(place, format!("expected {wanted}, found {found}"))
            .help("types are for example INT, STRING, DECIMAL(10, 2), TIMESTAMP_LTZ(3), ARRAY<INT>, ROW<a INT>")
    }

    fn word(&mut self, word: &str) -> bool {
        let found = self.text.is_word(self.next, word);
        self.next += usize::from(found);
        found
    }

    fn token(&mut self, token: &Token) -> bool {
        let found = self.text.tokens.get(self.next).is_some_and(|placed| placed.token == *token);
        self.next += usize::from(found);
        found
    }

    fn number(&mut self, what: &str, range: std::ops::RangeInclusive<u8>) -> Result<u8, SqlError> {
        let place = self.place();
        let Some(Token::Number(digits, _)) = self.text.tokens.get(self.next).map(|placed| &placed.token) else {
            return Err(self.unexpected("a number"));
        };
        match digits.parse::<u8>() {
            Ok(number) if range.contains(&number) => {
                self.next += 1;
                Ok(number)
            }
            _ => Err(SqlError::new(
                place,
                format!("the {what} must be between {} and {}, not {digits}", range.start(), range.end()),
            )
            .help("write for example DECIMAL(10, 2)")),
        }
    }

    fn data_type(&mut self, depth: usize) -> Result<DataType, SqlError> {
        if depth > DEPTH_MAX {
            return Err(SqlError::new(self.place(), format!("the type is nested deeper than {DEPTH_MAX} levels"))
                .help("flatten it"));
        }
        let mut data_type = self.plain(depth)?;
        let mut arrays = 0;
        loop {
            let place = self.place();
            if self.word("NOT") {
                return Err(SqlError::new(place, "NOT NULL is not supported: every column may be NULL")
                    .help("leave NOT NULL out; drop rows with WHERE x IS NOT NULL"));
            } else if self.word("ARRAY") {
                arrays += 1;
                if arrays > DEPTH_MAX {
                    return Err(SqlError::new(place, format!("the type is nested deeper than {DEPTH_MAX} levels"))
                        .help("flatten it"));
                }
                data_type = DataType::Array(Box::new(data_type));
            } else if self.word("MULTISET") {
                return Err(SqlError::new(place, "MULTISET is not supported yet").help("use ARRAY"));
            } else {
                return Ok(data_type);
            }
        }
    }

    fn plain(&mut self, depth: usize) -> Result<DataType, SqlError> {
        let place = self.place();
        let name = match self.text.tokens.get(self.next).map(|placed| &placed.token) {
            Some(Token::Word(word)) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
            _ => return Err(self.unexpected("a type")),
        };
        self.next += 1;
        let refuse = |message: String, help: &str| Err(SqlError::new(place.clone(), message).help(help));
        Ok(match name.as_str() {
            "BOOLEAN" => DataType::Boolean,
            "TINYINT" => DataType::TinyInt,
            "SMALLINT" => DataType::SmallInt,
            "INT" | "INTEGER" => DataType::Int,
            "BIGINT" => DataType::BigInt,
            "FLOAT" => DataType::Float,
            "DOUBLE" => {
                self.word("PRECISION");
                DataType::Double
            }
            "DECIMAL" | "DEC" | "NUMERIC" => self.decimal()?,
            "STRING" => DataType::String,
            "VARCHAR" => {
                self.no_length("VARCHAR", "STRING")?;
                DataType::String
            }
            "CHAR" | "CHARACTER" => {
                return refuse(
                    format!("{name} is not supported: Flink pads and cuts to its length"),
                    "use STRING, and LPAD, RPAD or SUBSTRING where the length matters",
                );
            }
            "BYTES" => DataType::Bytes,
            "VARBINARY" => {
                self.no_length("VARBINARY", "BYTES")?;
                DataType::Bytes
            }
            "BINARY" => {
                return refuse("BINARY is not supported: Flink pads and cuts to its length".to_owned(), "use BYTES");
            }
            "DATE" => DataType::Date,
            "TIME" => {
                if self.token(&Token::LParen) {
                    self.number("precision of TIME", 0..=3)?;
                    self.close(&Token::RParen, "`)`")?;
                }
                self.zone(false)?;
                DataType::Time
            }
            "TIMESTAMP" => {
                let precision = self.precision()?;
                if self.zone(true)? { DataType::TimestampLtz(precision) } else { DataType::Timestamp(precision) }
            }
            "TIMESTAMP_LTZ" => DataType::TimestampLtz(self.precision()?),
            "ARRAY" => {
                if !self.token(&Token::Lt) {
                    return Err(self.unexpected("`<` and the type of the items, as in ARRAY<INT>"));
                }
                let item = self.data_type(depth + 1)?;
                self.close_angle()?;
                DataType::Array(Box::new(item))
            }
            "ROW" => self.row(depth)?,
            "MAP" => self.map(depth)?,
            "INTERVAL" => self.interval()?,
            "MULTISET" | "RAW" | "VARIANT" => {
                return refuse(format!("the type {name} is not supported yet"), "use STRING, ROW or ARRAY");
            }
            "TEXT" | "BOOL" | "LONG" | "REAL" | "INT8" | "INT4" | "INT2" | "FLOAT8" | "FLOAT4" | "DATETIME"
            | "TIMESTAMPTZ" | "BLOB" | "JSON" => {
                let right = match name.as_str() {
                    "TEXT" | "JSON" => "STRING",
                    "BOOL" => "BOOLEAN",
                    "LONG" | "INT8" => "BIGINT",
                    "INT4" => "INT",
                    "INT2" => "SMALLINT",
                    "REAL" | "FLOAT4" => "FLOAT",
                    "FLOAT8" => "DOUBLE",
                    "BLOB" => "BYTES",
                    "TIMESTAMPTZ" => "TIMESTAMP_LTZ(3)",
                    _ => "TIMESTAMP(3)",
                };
                return refuse(format!("`{name}` is no type of Flink SQL"), &format!("write {right}"));
            }
            _ => {
                let error = SqlError::new(place, format!("unknown type `{name}`"));
                return Err(error.help(format!("there are {}", NAMES.join(", "))).help_if(nearest_help(&name, NAMES)));
            }
        })
    }

    fn map(&mut self, depth: usize) -> Result<DataType, SqlError> {
        if !self.token(&Token::Lt) {
            return Err(self.unexpected("`<` and the types of keys and values, as in MAP<STRING, INT>"));
        }
        let place = self.place();
        let key = self.data_type(depth + 1)?;
        if key.has_map() {
            return Err(SqlError::new(place, format!("{key} cannot be the key of a MAP: maps cannot be compared"))
                .help("take a STRING or a number as the key"));
        }
        if self.half_closed || !self.token(&Token::Comma) {
            return Err(self.unexpected("`,` and the type of the values"));
        }
        let value = self.data_type(depth + 1)?;
        self.close_angle()?;
        Ok(DataType::Map(Box::new(key), Box::new(value)))
    }

    /// `YEAR`, `YEAR TO MONTH`, `MONTH`; `DAY`, `DAY(p) TO SECOND(p)` and what lies between.
    fn interval(&mut self) -> Result<DataType, SqlError> {
        const UNITS: [&str; 6] = ["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"];
        const WANTED: &str = "the unit of the interval: YEAR TO MONTH or DAY TO SECOND";
        let first = UNITS.into_iter().position(|unit| self.word(unit)).ok_or_else(|| self.unexpected(WANTED))?;
        self.interval_precision()?;
        let months = first < 2;
        if self.word("TO") {
            let finer = UNITS.into_iter().enumerate().filter(|(at, _)| *at > first && (*at < 2) == months);
            let units: Vec<&str> = finer.map(|(_, unit)| unit).collect();
            if !units.into_iter().any(|unit| self.word(unit)) {
                return Err(self.unexpected(WANTED));
            }
            self.interval_precision()?;
        }
        Ok(if months { DataType::IntervalYearMonth } else { DataType::IntervalDayTime })
    }

    fn interval_precision(&mut self) -> Result<(), SqlError> {
        if !self.token(&Token::LParen) {
            return Ok(());
        }
        self.number("precision of INTERVAL", 0..=9)?;
        self.close(&Token::RParen, "`)`")
    }

    fn decimal(&mut self) -> Result<DataType, SqlError> {
        if !self.token(&Token::LParen) {
            return Ok(DataType::Decimal(10, 0));
        }
        let precision = self.number("precision of DECIMAL", 1..=38)?;
        let scale = if self.token(&Token::Comma) { self.number("scale of DECIMAL", 0..=precision)? } else { 0 };
        self.close(&Token::RParen, "`)`")?;
        Ok(DataType::Decimal(precision, scale))
    }

    fn no_length(&mut self, name: &str, instead: &str) -> Result<(), SqlError> {
        let place = self.place();
        if self.token(&Token::LParen) {
            return Err(SqlError::new(
                place.start
                    ..self
                        .text
                        .closing(self.next - 1)
                        .and_then(|i| self.text.tokens.get(i))
                        .map_or(place.end, |p| p.range.end),
                format!("a length of {name} is not supported: Flink cuts longer values"),
            )
            .help(format!("write {instead}")));
        }
        Ok(())
    }

    fn precision(&mut self) -> Result<u8, SqlError> {
        if !self.token(&Token::LParen) {
            return Ok(6);
        }
        let place = self.place();
        let precision = self.number("precision of TIMESTAMP", 0..=9)?;
        if precision > 6 {
            return Err(SqlError::new(
                place,
                format!("a precision of {precision} is not supported: times are kept to the microsecond"),
            )
            .help("write at most 6; event time itself is in milliseconds, TIMESTAMP_LTZ(3)"));
        }
        self.close(&Token::RParen, "`)`")?;
        Ok(precision)
    }

    /// `WITHOUT TIME ZONE` or `WITH LOCAL TIME ZONE`; true for the latter.
    fn zone(&mut self, local: bool) -> Result<bool, SqlError> {
        let place = self.place();
        if self.word("WITHOUT") {
            return if self.word("TIME") && self.word("ZONE") { Ok(false) } else { Err(self.unexpected("TIME ZONE")) };
        }
        if !self.word("WITH") {
            return Ok(false);
        }
        if local && self.word("LOCAL") {
            return if self.word("TIME") && self.word("ZONE") { Ok(true) } else { Err(self.unexpected("TIME ZONE")) };
        }
        Err(SqlError::new(place, "WITH TIME ZONE is not supported, in Flink neither").help("write TIMESTAMP_LTZ(3)"))
    }

    fn row(&mut self, depth: usize) -> Result<DataType, SqlError> {
        let angle = self.token(&Token::Lt);
        if !angle && !self.token(&Token::LParen) {
            return Err(self.unexpected("`<` and fields, as in ROW<a INT, b STRING>"));
        }
        let mut fields: Vec<Field> = Vec::new();
        loop {
            let place = self.place();
            let name = match self.text.tokens.get(self.next).map(|placed| &placed.token) {
                Some(Token::Word(word)) => word.clone(),
                _ => return Err(self.unexpected("the name of a field")),
            };
            self.next += 1;
            if name.quote_style.is_none() && is_reserved(&name.value) {
                return Err(reserved(place, &name.value));
            }
            if fields.iter().any(|field| field.name == name.value) {
                return Err(SqlError::new(place, format!("the field `{}` is there twice", name.value))
                    .help("give one of them another name"));
            }
            fields.push(Field::new(name.value, self.data_type(depth + 1)?));
            if !self.half_closed && self.token(&Token::Comma) {
                continue;
            }
            if angle {
                self.close_angle()?
            } else {
                self.close(&Token::RParen, "`,` or `)`")?
            }
            return Ok(DataType::Row(fields));
        }
    }

    fn close(&mut self, token: &Token, name: &str) -> Result<(), SqlError> {
        if self.half_closed || !self.token(token) {
            return Err(self.unexpected(name));
        }
        Ok(())
    }

    /// Takes a `>`; the tokenizer gives two of them as one `>>`.
    fn close_angle(&mut self) -> Result<(), SqlError> {
        if self.half_closed {
            self.half_closed = false;
            return Ok(());
        }
        if self.token(&Token::ShiftRight) {
            self.half_closed = true;
            return Ok(());
        }
        self.close(&Token::Gt, "`>`")
    }
}

/// A reserved word stands where a name is wanted.
pub(super) fn reserved(place: Range<usize>, word: &str) -> SqlError {
    SqlError::new(place, format!("`{word}` is a reserved word of Flink SQL"))
        .help(format!("write it in back-ticks: `{word}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_flink_reads_them() {
        for (text, wanted) in [
            ("int", "INT"),
            ("INTEGER", "INT"),
            ("DOUBLE PRECISION", "DOUBLE"),
            ("DEC", "DECIMAL(10, 0)"),
            ("NUMERIC(6)", "DECIMAL(6, 0)"),
            ("DECIMAL(38, 38)", "DECIMAL(38, 38)"),
            ("VARCHAR", "STRING"),
            ("VARBINARY", "BYTES"),
            ("TIMESTAMP", "TIMESTAMP(6)"),
            ("TIMESTAMP(0) WITHOUT TIME ZONE", "TIMESTAMP(0)"),
            ("timestamp(3) with local time zone", "TIMESTAMP_LTZ(3)"),
            ("TIMESTAMP_LTZ", "TIMESTAMP_LTZ(6)"),
            ("TIME(0)", "TIME"),
            ("INT ARRAY ARRAY", "ARRAY<ARRAY<INT>>"),
            ("ARRAY<ROW<a INT, `value` ARRAY<STRING>>>", "ARRAY<ROW<`a` INT, `value` ARRAY<STRING>>>"),
            ("ROW(lat DOUBLE, lon DOUBLE)", "ROW<`lat` DOUBLE, `lon` DOUBLE>"),
            ("map<STRING, ARRAY<MAP<INT, DATE>>>", "MAP<STRING, ARRAY<MAP<INT, DATE>>>"),
            ("MAP<STRING, INT> ARRAY", "ARRAY<MAP<STRING, INT>>"),
            ("INTERVAL DAY", "INTERVAL DAY TO SECOND"),
            ("interval day(3) to second(6)", "INTERVAL DAY TO SECOND"),
            ("INTERVAL HOUR TO MINUTE", "INTERVAL DAY TO SECOND"),
            ("INTERVAL MONTH", "INTERVAL YEAR TO MONTH"),
            ("INTERVAL YEAR(4) TO MONTH", "INTERVAL YEAR TO MONTH"),
        ] {
            let data_type = parse_type(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(data_type.to_string(), wanted);
            assert_eq!(parse_type(wanted), Ok(data_type), "{wanted} reads back");
        }
    }

    #[test]
    fn wrong_types_are_refused_at_their_place() {
        for (text, message, at) in [
            ("", "expected a type, found the end", ""),
            ("INTT", "unknown type `INTT`", "INTT"),
            ("TEXT", "`TEXT` is no type of Flink SQL", "TEXT"),
            ("INT NOT NULL", "NOT NULL is not supported", "NOT"),
            ("VARCHAR(20)", "a length of VARCHAR", "(20)"),
            ("CHAR(2)", "CHAR is not supported", "CHAR"),
            ("DECIMAL(39)", "between 1 and 38, not 39", "39"),
            ("DECIMAL(4, 5)", "between 0 and 4, not 5", "5"),
            ("TIMESTAMP(9)", "a precision of 9 is not supported", "9"),
            ("TIMESTAMP(3) WITH TIME ZONE", "WITH TIME ZONE is not supported", "WITH"),
            ("MAP<STRING>", "expected `,` and the type of the values", ">"),
            ("MAP STRING", "expected `<` and the types of keys and values", "STRING"),
            ("MAP<MAP<INT, INT>, INT>", "cannot be the key of a MAP", "MAP"),
            ("INT MULTISET", "MULTISET is not supported yet", "MULTISET"),
            ("INTERVAL", "expected the unit of the interval", ""),
            ("INTERVAL DAY TO MONTH", "expected the unit of the interval", "MONTH"),
            ("INTERVAL SECOND TO DAY", "expected the unit of the interval", "DAY"),
            ("ROW<a INT, a INT>", "the field `a` is there twice", "a"),
            ("ROW<value INT>", "`value` is a reserved word", "value"),
            ("ARRAY<INT", "expected `>`, found the end", ""),
            ("ARRAY<INT>>", "one `>` too many", ""),
            ("INT INT", "expected the end of the type, found `INT`", "INT"),
            ("ROW<a INT 'comment'>", "expected `>`, found `'comment'`", "'comment'"),
        ] {
            let error = parse_type(text).expect_err(text);
            assert!(error.message.contains(message), "{text}: {error:?}");
            assert_eq!(text.get(error.span.clone()), Some(at), "{text}: {error:?}");
        }
    }
}
