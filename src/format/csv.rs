//! Format `csv` (RFC 4180, UTF-8): one line per message; one line per row.
//!
//! # In
//!
//! - `header = false` (default): the fields are the declared columns, in order.
//! - `header = true`: the first line of every byte stream (a connection, a file) names the fields. Names that are not
//!   declared are ignored, columns that are not named are NULL. A header that names a column twice, or none of them, is
//!   refused, and the next line is taken for the header. Headers survive a restart.
//! - A line with more or fewer fields than the header or the declaration has is refused: it was cut, or a separator in
//!   it is not quoted.
//! - `separator` and `quote` are one ASCII character each. A quote inside quotes is doubled. A line end inside quotes
//!   cannot be had with a framing that cuts at line ends: the pieces are refused (a quote is not closed).
//! - An empty field is NULL, but for STRING, where it is the empty string, as in Flink, and for BYTES in quotes. An
//!   unquoted field equal to the `null` setting is NULL in any column.
//! - Values as in format `json`, where they are in quotes. ARRAY and ROW cannot be had.
//!
//! # Out
//!
//! `header = true` (default) puts the column names on the first line of every file. Values as in format `json`; NULL is
//! the `null` setting (default: nothing), and a STRING that would read as NULL is quoted. Lines end in `\n`.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef};
use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use serde::{Deserialize, Serialize};

use super::columns::{Row, Values};
use super::print::{self, Calendar};
use super::{Decoded, Decoder, Encoder, EpochColumn, Messages, Outcome, decode_run, excerpt};
use crate::expr::{DataType, Field};
use crate::settings::Section;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CsvConfig {
    pub header: bool,
    pub separator: u8,
    pub quote: u8,
    /// Text of an unquoted field that is NULL.
    pub null: Option<String>,
}

impl CsvConfig {
    /// Reads the format's keys; `header` is the default of the key of that name.
    pub fn read(section: &mut Section<'_>, header: bool) -> Option<CsvConfig> {
        let header = section.boolean("header").unwrap_or(header);
        let separator = character(section, "separator", b',');
        let quote = character(section, "quote", b'"');
        let null = section.string("null");
        let (separator, quote) = (separator?, quote?);
        if separator == quote {
            section.problem_at("quote", "`quote` and `separator` must be different", None);
            return None;
        }
        if null.as_ref().is_some_and(|null| null.bytes().any(|b| b == separator || b == quote || b < b' ')) {
            section.problem_at("null", "`null` cannot contain the separator, the quote or a line end", None);
            return None;
        }
        Some(CsvConfig { header, separator, quote, null })
    }
}

/// A key whose value is one ASCII character.
fn character(section: &mut Section<'_>, key: &'static str, default: u8) -> Option<u8> {
    if !section.has(key) {
        let _ = section.string(key);
        return Some(default);
    }
    let text = section.string(key)?;
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Some(*byte),
        _ => {
            let help = "write for example \",\", \";\" or \"\\t\"".to_owned();
            section.problem_at(key, format!("`{key}` must be one ASCII character and no line end"), Some(help));
            None
        }
    }
}

/// Refuses columns that have no place in a line.
///
/// # Errors
/// The first such column.
pub fn check(columns: &[Field]) -> Result<(), String> {
    let composite = |of: &DataType| matches!(of, DataType::Array(_) | DataType::Row(_) | DataType::Map(..));
    match columns.iter().find(|column| composite(&column.data_type)) {
        Some(column) => {
            Err(format!("format \"csv\" cannot hold column `{}` of type {}", column.name, column.data_type))
        }
        None => Ok(()),
    }
}

/// See the module.
pub struct CsvDecoder {
    rows: Row,
    header: bool,
    /// The header lines seen, by byte stream.
    headers: BTreeMap<Option<String>, Header>,
    splitter: Splitter,
}

/// A header line and what it means for the declared columns.
struct Header {
    names: Vec<String>,
    /// For each field the index of its column.
    columns: Vec<Option<usize>>,
}

/// First byte of what [`Decoder::save`] gives.
const SAVED_VERSION: u8 = 1;

impl CsvDecoder {
    /// For columns that passed [`check`].
    pub fn new(config: &CsvConfig, columns: &[Field], epoch: Option<EpochColumn>) -> CsvDecoder {
        let mut rows = Row::new(columns);
        if let Some(epoch) = epoch {
            rows.count_time(epoch.column, epoch.unit);
        }
        let reader = ReaderBuilder::new().delimiter(config.separator).quote(config.quote).build();
        let splitter = Splitter {
            reader: Box::new(reader),
            quote: config.quote,
            null: config.null.clone(),
            text: Vec::new(),
            fields: Vec::new(),
        };
        CsvDecoder { rows, header: config.header, headers: BTreeMap::new(), splitter }
    }
}

impl Decoder for CsvDecoder {
    fn keep_only(&mut self, read: &[bool]) {
        self.rows.keep_only(read);
    }

    fn per_peer(&self) -> bool {
        self.header
    }

    fn decode(&mut self, parts: &[Messages<'_>], peer: Option<&str>) -> Decoded {
        let CsvDecoder { rows, header, headers, splitter } = self;
        let peer = peer.map(str::to_owned);
        decode_run(rows, parts, |rows, _, message| {
            splitter.split(message.utf8()?)?;
            if !*header {
                let columns = rows.columns.len();
                decode_line(rows, splitter, columns, "are declared", Some)?;
                return Ok(Outcome::Row);
            }
            match headers.get(&peer) {
                Some(header) => {
                    let column = |field: usize| header.columns.get(field).copied().flatten();
                    decode_line(rows, splitter, header.names.len(), "stand in the header", column)?;
                    Ok(Outcome::Row)
                }
                None => {
                    let names = (0..splitter.fields.len()).map(|i| splitter.field(i).0.trim().to_owned()).collect();
                    headers.insert(peer.clone(), Header::new(names, rows)?);
                    Ok(Outcome::Nothing)
                }
            }
        })
    }

    fn connected(&mut self, peer: Option<&str>) {
        self.headers.remove(&peer.map(str::to_owned));
    }

    fn disconnected(&mut self, peer: Option<&str>) {
        self.headers.remove(&peer.map(str::to_owned));
    }

    fn save(&self) -> Vec<u8> {
        if self.headers.is_empty() {
            return Vec::new();
        }
        let headers: Vec<(&Option<String>, &Vec<String>)> =
            self.headers.iter().map(|(peer, header)| (peer, &header.names)).collect();
        postcard::to_allocvec(&(SAVED_VERSION, headers)).unwrap_or_default()
    }

    fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        self.headers.clear();
        if saved.is_empty() {
            return Ok(());
        }
        type Saved = (u8, Vec<(Option<String>, Vec<String>)>);
        let (version, headers): Saved =
            postcard::from_bytes(saved).map_err(|error| format!("saved CSV headers cannot be read: {error}"))?;
        if version != SAVED_VERSION {
            return Err(format!("saved CSV headers have version {version}, this program knows {SAVED_VERSION}"));
        }
        for (peer, names) in headers {
            self.headers.insert(peer, Header::new(names, &self.rows)?);
        }
        Ok(())
    }
}

impl Header {
    fn new(names: Vec<String>, rows: &Row) -> Result<Header, String> {
        let columns: Vec<Option<usize>> = names.iter().map(|name| rows.names.find(name, usize::MAX)).collect();
        let mut seen = vec![false; rows.columns.len()];
        for (column, name) in columns.iter().zip(&names) {
            if let Some(seen) = column.and_then(|column| seen.get_mut(column)) {
                if *seen {
                    return Err(format!("the header names column `{}` twice", excerpt(name)));
                }
                *seen = true;
            }
        }
        if seen.contains(&true) {
            Ok(Header { names, columns })
        } else {
            let found = excerpt(&names.join(", "));
            Err(format!("a header was expected, but this line names none of the declared columns: {found}"))
        }
    }
}

/// Takes a line that was split as a row; `column` gives the column of a field.
fn decode_line(
    rows: &mut Row,
    splitter: &Splitter,
    expected: usize,
    where_from: &str,
    column: impl Fn(usize) -> Option<usize>,
) -> Result<(), String> {
    let found = splitter.fields.len();
    if found != expected {
        let fields = if found == 1 { "field" } else { "fields" };
        return Err(format!("the line has {found} {fields}, but {expected} {where_from}"));
    }
    for i in 0..found {
        let Some(index) = column(i) else { continue };
        let Some(target) = rows.columns.get_mut(index) else { continue };
        let (text, form) = splitter.field(i);
        let null = match (form, &target.values) {
            (Form::Null, _) => true,
            (_, Values::String(_)) | (Form::Quoted, Values::Bytes(_)) => false,
            _ => text.is_empty(),
        };
        if null {
            target.push_null();
        } else if let Err(refusal) = target.push_text(text) {
            let (name, what) = (rows.names.get(index), refusal.sentence(&target.data_type.to_string()));
            return Err(format!("column `{name}`: `{}` {what} (field {})", excerpt(text), i + 1));
        }
    }
    Ok(())
}

/// Cuts a line into fields.
struct Splitter {
    reader: Box<Reader>,
    quote: u8,
    null: Option<String>,
    /// The fields' texts, one behind the other.
    text: Vec<u8>,
    /// End of each field's text, and how it stood there.
    fields: Vec<(usize, Form)>,
}

/// How a field stood in its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Quoted,
    /// Plain, and the text that means NULL.
    Null,
}

impl Splitter {
    /// Text of a field and how it stood there.
    fn field(&self, index: usize) -> (&str, Form) {
        let start = index.checked_sub(1).and_then(|before| self.fields.get(before)).map_or(0, |(end, _)| *end);
        let (end, form) = self.fields.get(index).copied().unwrap_or((start, Form::Plain));
        // Field ends are ASCII characters of a UTF-8 line.
        (std::str::from_utf8(self.text.get(start..end).unwrap_or_default()).unwrap_or_default(), form)
    }

    fn split(&mut self, line: &str) -> Result<(), String> {
        self.fields.clear();
        self.reader.reset();
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Err("the line is empty".to_owned());
        }
        self.text.resize(line.len() + 1, 0);
        let mut input = line.as_bytes();
        let mut written = 0;
        let mut field = input;
        loop {
            let output = self.text.get_mut(written..).unwrap_or_default();
            let (result, taken, added) = self.reader.read_field(input, output);
            input = input.get(taken..).unwrap_or_default();
            written += added;
            match result {
                // An empty input tells the reader that the line has ended.
                ReadFieldResult::InputEmpty => {}
                ReadFieldResult::OutputFull => self.text.resize(self.text.len() + line.len() + 1, 0),
                ReadFieldResult::Field { record_end } => {
                    let raw = field.get(..field.len() - input.len()).unwrap_or_default();
                    let quoted = raw.first() == Some(&self.quote);
                    if quoted && raw.iter().filter(|byte| **byte == self.quote).count() % 2 == 1 {
                        return Err(format!("a quote is not closed (field {})", self.fields.len() + 1));
                    }
                    let start = self.fields.last().map_or(0, |(end, _)| *end);
                    let text = self.text.get(start..written).unwrap_or_default();
                    let form = match &self.null {
                        _ if quoted => Form::Quoted,
                        Some(null) if null.as_bytes() == text => Form::Null,
                        _ => Form::Plain,
                    };
                    self.fields.push((written, form));
                    field = input;
                    if record_end {
                        break;
                    }
                }
                ReadFieldResult::End => break,
            }
        }
        if input.is_empty() { Ok(()) } else { Err("the message holds more than one line".to_owned()) }
    }
}

/// See the module.
pub struct CsvEncoder {
    fields: Vec<(String, DataType)>,
    config: CsvConfig,
    calendar: Calendar,
}

impl CsvEncoder {
    /// For a schema that passed [`check`].
    pub fn new(config: &CsvConfig, schema: &[Field]) -> CsvEncoder {
        let fields = schema.iter().map(|field| (field.name.clone(), field.data_type.clone())).collect();
        CsvEncoder { fields, config: config.clone(), calendar: Calendar::default() }
    }
}

impl CsvConfig {
    fn null_text(&self) -> &str {
        self.null.as_deref().unwrap_or_default()
    }

    /// Appends a STRING, in quotes where it needs them.
    fn write_text(&self, text: &str, out: &mut Vec<u8>) {
        let special = |byte: u8| byte == self.separator || byte == self.quote || byte == b'\n' || byte == b'\r';
        if text == self.null_text() || text.is_empty() || text.bytes().any(special) {
            out.push(self.quote);
            for byte in text.bytes() {
                if byte == self.quote {
                    out.push(byte);
                }
                out.push(byte);
            }
            out.push(self.quote);
        } else {
            out.extend_from_slice(text.as_bytes());
        }
    }
}

impl Encoder for CsvEncoder {
    fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.config.header {
            for (i, (name, _)) in self.fields.iter().enumerate() {
                if i > 0 {
                    out.push(self.config.separator);
                }
                self.config.write_text(name, &mut out);
            }
            out.push(b'\n');
        }
        out
    }

    fn encode(&mut self, columns: &[ArrayRef], row: usize, out: &mut Vec<u8>) {
        for (i, ((_, of), column)) in self.fields.iter().zip(columns).enumerate() {
            if i > 0 {
                out.push(self.config.separator);
            }
            let start = out.len();
            let text = match column.as_string_opt::<i32>() {
                _ if column.is_null(row) => None,
                Some(strings) => {
                    self.config.write_text(strings.value(row), out);
                    continue;
                }
                None => print::scalar(of, column, row, &mut self.calendar, out),
            };
            match text {
                None => {
                    out.truncate(start);
                    out.extend_from_slice(self.config.null_text().as_bytes());
                }
                // Rare: a separator that occurs in numbers or times, or a null text like "0".
                Some(()) => self.quote_if_needed(start, out),
            }
        }
        out.push(b'\n');
    }
}

impl CsvEncoder {
    /// Puts a value just written into quotes where it could be misread.
    fn quote_if_needed(&self, start: usize, out: &mut Vec<u8>) {
        let text = out.get(start..).unwrap_or_default();
        let separator = self.config.separator;
        let null = self.config.null_text().as_bytes();
        if text.is_empty() || text == null || text.iter().any(|b| *b == separator || *b == self.config.quote) {
            let text = String::from_utf8_lossy(text).into_owned();
            out.truncate(start);
            self.config.write_text(&text, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::tests::{decode, encode, field, rows_as_json};

    fn config(header: bool) -> CsvConfig {
        CsvConfig { header, separator: b',', quote: b'"', null: None }
    }

    fn columns() -> [Field; 3] {
        [field("a", DataType::Int), field("b", DataType::String), field("c", DataType::Double)]
    }

    fn rows(config: &CsvConfig, lines: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut decoder = CsvDecoder::new(config, &columns(), None);
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        let decoded = decode(&mut decoder, &lines);
        let reasons = decoded.refused.into_iter().map(|(_, reason)| reason).collect();
        (rows_as_json(&columns(), &decoded.columns), reasons)
    }

    #[test]
    fn declared_order() {
        let lines =
            ["1,x,2.5", "\u{feff}1,\"a,\"\"b\"\"\",", ",,\r", "1,x", "1", "1,x,2,3", "x,x,1", "", "1,\"x", "1,é,2"];
        let (rows, reasons) = rows(&config(false), &lines);
        assert_eq!(
            rows,
            [
                r#"{"a":1,"b":"x","c":2.5}"#,
                r#"{"a":1,"b":"a,\"b\"","c":null}"#,
                r#"{"a":null,"b":"","c":null}"#,
                r#"{"a":1,"b":"é","c":2.0}"#
            ]
        );
        assert_eq!(
            reasons,
            [
                "the line has 2 fields, but 3 are declared",
                "the line has 1 field, but 3 are declared",
                "the line has 4 fields, but 3 are declared",
                "column `a`: `x` is not a valid INT (field 1)",
                "the line is empty",
                "a quote is not closed (field 2)",
            ]
        );
    }

    #[test]
    fn settings() {
        let config = CsvConfig { header: false, separator: b';', quote: b'\'', null: Some("-".to_owned()) };
        let (rows, reasons) = rows(&config, &["-;-;-", "1;'-';2", "1;'a;b''c';\"2\""]);
        assert_eq!(rows, [r#"{"a":null,"b":null,"c":null}"#, r#"{"a":1,"b":"-","c":2.0}"#]);
        assert_eq!(reasons, ["column `c`: `\"2\"` is not a valid DOUBLE (field 3)"]);
    }

    #[test]
    fn a_message_of_two_lines_is_refused() {
        let (rows, reasons) = rows(&config(false), &["1,x,2\n3,y,4", "1,\"x\ny\",2"]);
        assert_eq!(rows, [r#"{"a":1,"b":"x\ny","c":2.0}"#]);
        assert_eq!(reasons, ["the message holds more than one line"]);
    }

    #[test]
    fn header_lines() {
        let (rows, reasons) = rows(&config(true), &["c,zz,a", "1.5,?,2", "1.5,?", "1,2,3"]);
        assert_eq!(rows, [r#"{"a":2,"b":null,"c":1.5}"#, r#"{"a":3,"b":null,"c":1.0}"#]);
        assert_eq!(reasons, ["the line has 2 fields, but 3 stand in the header"]);
    }

    #[test]
    fn bad_headers_are_refused_until_a_good_one_comes() {
        let (rows, reasons) = rows(&config(true), &["1,2,3", "a,b,a", " a ,b", "1,x"]);
        assert_eq!(rows, [r#"{"a":1,"b":"x","c":null}"#]);
        assert_eq!(
            reasons,
            [
                "a header was expected, but this line names none of the declared columns: 1, 2, 3",
                "the header names column `a` twice",
            ]
        );
    }

    #[test]
    fn every_byte_stream_has_its_header_and_keeps_it_over_a_restart() {
        let mut decoder = CsvDecoder::new(&config(true), &columns(), None);
        let decode_as = |decoder: &mut CsvDecoder, peer: &str, line: &str| {
            let decoded =
                decoder.decode(&[Messages { payload: line.as_bytes(), lengths: &[line.len() as u32] }], Some(peer));
            rows_as_json(&columns(), &decoded.columns)
        };
        assert!(decode_as(&mut decoder, "x", "a,b").is_empty());
        assert!(decode_as(&mut decoder, "y", "b,a").is_empty());
        let saved = decoder.save();
        let mut decoder = CsvDecoder::new(&config(true), &columns(), None);
        decoder.restore(&saved).expect("its own bytes");
        assert_eq!(decode_as(&mut decoder, "x", "1,2"), [r#"{"a":1,"b":"2","c":null}"#]);
        assert_eq!(decode_as(&mut decoder, "y", "1,2"), [r#"{"a":2,"b":"1","c":null}"#]);
        decoder.connected(Some("y"));
        assert!(decode_as(&mut decoder, "y", "a,c").is_empty());
        assert_eq!(decode_as(&mut decoder, "y", "1,2"), [r#"{"a":1,"b":null,"c":2.0}"#]);
        decoder.disconnected(Some("x"));
        decoder.disconnected(Some("y"));
        assert!(decoder.save().is_empty());
        assert!(decoder.restore(b"\xff\xff").is_err());
        assert!(decoder.restore(&postcard::to_allocvec(&(2u8, 0u8)).expect("encodes")).is_err());
    }

    #[test]
    fn encoding() {
        let fields = columns();
        let lines = ["1,\"a,\"\"b\",2", ",,", "3,é x,1e300"];
        let mut decoder = CsvDecoder::new(&config(false), &fields, None);
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        let decoded = decode(&mut decoder, &lines);
        let mut encoder = CsvEncoder::new(&config(true), &fields);
        assert_eq!(encoder.header(), b"a,b,c\n");
        assert_eq!(encode(&mut encoder, &decoded.columns), "1,\"a,\"\"b\",2.0\n,\"\",\n3,é x,1e300\n");
        let odd = CsvConfig { header: true, separator: b'.', quote: b'"', null: Some("3".to_owned()) };
        let mut encoder = CsvEncoder::new(&odd, &fields);
        assert_eq!(encode(&mut encoder, &decoded.columns), "1.\"a,\"\"b\".\"2.0\"\n3.\"\".3\n\"3\".é x.1e300\n");
    }
}
