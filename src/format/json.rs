//! Format `json`: one JSON object (RFC 8259, UTF-8) per message; rows as compact objects in SELECT order.
//!
//! # In
//!
//! The message's bytes go straight into the columns, in one pass, without a tree in between. What Flink's `json` format
//! (`ignore-parse-errors = false`, `timestamp-format.standard = ISO-8601`) takes is taken, with these decisions:
//!
//! | found | becomes |
//! |---|---|
//! | a key that is missing; `null` | NULL |
//! | a key that is not declared | ignored (but must be JSON) |
//! | a key that comes twice | the last one counts |
//! | a string where a number, BOOLEAN or DECIMAL is declared | what its content denotes, white space around it ignored; `"true"` in any case; `"NaN"` and `"Infinity"` for FLOAT and DOUBLE |
//! | a number with a fraction where an integer is declared | refused; `1.0` and `1e3` are integers (Flink cuts 1.7 to 1) |
//! | a number that the type cannot hold | refused; FLOAT and DOUBLE round to the nearest |
//! | a number for DECIMAL | exact, rounded half up to the scale; overflow is refused (Flink: NULL) |
//! | a number or boolean where STRING is declared | its text, as written |
//! | an object or array where STRING is declared | its text without white space between tokens |
//! | a number where BOOLEAN, DATE, TIME or BYTES is declared | refused |
//! | a string for TIMESTAMP(p) | ISO 8601, `T` or a space, seconds optional; digits beyond p are cut; with a zone it is refused, as in Flink |
//! | a string for TIMESTAMP_LTZ(p) | the same with `Z` or an offset (Flink: `Z` only); without a zone it is refused, as in Flink |
//! | a number for a timestamp | where the source declares a unit for this column: that time since 1970 UTC; else refused |
//! | DATE, TIME | `2026-04-02`, `HH:MM[:SS[.fff]]` |
//! | BYTES | a string in base64, padded or not |
//! | ROW, ARRAY | an object, an array (NULLs inside are kept); anything else is refused |
//! | MAP<STRING, …> | an object; the last value of a key counts |
//! | INTERVAL | a number: milliseconds, or months of a year-month interval |
//! | bad UTF-8 anywhere, a lone surrogate in a declared string | refused |
//! | a byte order mark in front | skipped |
//! | nothing, an array, several values in one message | refused |
//!
//! A refused message leaves nothing behind. The reason names the column, what was found and the byte (from 1) at which
//! it starts (for broken syntax: at which it was noticed). Depth: skipped and copied values are scanned without recursion, others recurse as deep as their type.
//!
//! # Out
//!
//! `{"a":1,"b":null}`. DOUBLE and FLOAT in the shortest form that reads back the same; NaN and infinities, which JSON
//! does not have, are `null`. TIMESTAMP(p) as `2026-04-02T00:58:00.000` with p digits, TIMESTAMP_LTZ in UTC with `Z`,
//! TIME as `HH:MM:SS` with `.mmm` where there are milliseconds, DECIMAL as a number with its scale, BYTES in base64,
//! intervals as their number of milliseconds or months, MAP as an object in the order in which its keys first came; a
//! key that is NULL as `"null"` (Flink: `map-null-key.mode = LITERAL`).

mod scan;

use std::collections::BTreeMap;
use std::fmt;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef};
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::columns::{Column, Names, Row, Values};
use super::parse::Refusal;
use super::print::{self, Calendar};
use super::{Decoded, Decoder, Encoder, EpochColumn, Messages, Outcome, decode_run, excerpt};
use crate::expr::{DataType, Field};

/// Refuses maps whose keys are no strings, as Flink's format does.
///
/// # Errors
/// The first such column.
pub fn check(columns: &[Field]) -> Result<(), String> {
    fn fits(of: &DataType) -> bool {
        match of {
            DataType::Map(key, value) => **key == DataType::String && fits(value),
            DataType::Array(item) => fits(item),
            DataType::Row(fields) => fields.iter().all(|field| fits(&field.data_type)),
            _ => true,
        }
    }
    match columns.iter().find(|column| !fits(&column.data_type)) {
        None => Ok(()),
        Some(Field { name, data_type, .. }) => Err(format!(
            "format \"json\" cannot hold column `{name}` of type {data_type}: the keys of a MAP must be STRING"
        )),
    }
}

/// See the module.
pub struct JsonDecoder {
    rows: Row,
    layout: scan::Layout,
    scratch: Vec<u8>,
}

impl JsonDecoder {
    /// A decoder into these columns.
    pub fn new(columns: &[Field], epoch: Option<EpochColumn>) -> JsonDecoder {
        let mut rows = Row::new(columns);
        if let Some(epoch) = epoch {
            rows.count_time(epoch.column, epoch.unit);
        }
        JsonDecoder { rows, layout: scan::Layout::default(), scratch: Vec::new() }
    }
}

impl Decoder for JsonDecoder {
    fn keep_only(&mut self, read: &[bool]) {
        self.rows.keep_only(read);
    }

    fn decode(&mut self, parts: &[Messages<'_>], _peer: Option<&str>) -> Decoded {
        let JsonDecoder { rows, layout, scratch } = self;
        decode_run(rows, parts, |rows, done, message| {
            let text = message.utf8()?;
            if scan::message(rows, layout, done, text).is_none() {
                rows.truncate(done);
                decode_any_message(rows, done, text, scratch)?;
            }
            Ok(Outcome::Row)
        })
    }
}

/// Any message, and the reason where it is refused.
fn decode_any_message(rows: &mut Row, done: usize, message: &str, scratch: &mut Vec<u8>) -> Result<(), String> {
    let start = message.trim_ascii_start();
    if !start.starts_with('{') {
        return Err(match start.as_bytes().first() {
            None => "the message is empty".to_owned(),
            Some(b'[') => "the message is a JSON array; one message must be one object".to_owned(),
            Some(_) => format!("the message is not a JSON object: it starts with `{}`", excerpt(start)),
        });
    }
    let mut context = Context { message, scratch, refused: None, path: Vec::new() };
    let mut json = serde_json::Deserializer::from_str(message);
    let result = json.deserialize_map(Object { row: rows, done, context: &mut context }).and_then(|()| json.end());
    result.map_err(|error| context.reason(&error))
}

/// What the visitors of one message share.
struct Context<'m, 's> {
    message: &'m str,
    /// For strings with escapes.
    scratch: &'s mut Vec<u8>,
    /// The value that was refused, and why; serde's own error is then only a signal.
    refused: Option<String>,
    /// Where it was refused, from the inside out.
    path: Vec<String>,
}

impl Context<'_, '_> {
    /// Notes a refusal of the value `found`, a part of the message.
    #[cold]
    fn refuse<E: serde::de::Error>(&mut self, found: &str, refusal: Refusal, of: &DataType) -> E {
        // The excerpt lies in the message, so that the distance of their addresses is its position.
        let byte = (found.as_ptr() as usize).wrapping_sub(self.message.as_ptr() as usize) + 1;
        self.refused = Some(format!("{} {} (byte {byte})", excerpt(found), refusal.sentence(&of.to_string())));
        E::custom("refused")
    }

    #[cold]
    fn reason(mut self, error: &serde_json::Error) -> String {
        self.path.reverse();
        let path: String = self.path.concat();
        let path = path.strip_prefix('.').unwrap_or(&path);
        let what = match self.refused.take() {
            Some(what) => what,
            None => misfit(error, byte_of(self.message, error.line(), error.column())),
        };
        match (path, error.is_data()) {
            ("", _) => format!("not valid JSON: {what}"),
            (path, true) => format!("column `{path}`: {what}"),
            (path, false) => format!("not valid JSON in column `{path}`: {what}"),
        }
    }
}

/// What serde says, with the byte at which it noticed.
fn misfit(error: &serde_json::Error, byte: usize) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    format!("{} (byte {byte})", excerpt_long(text.strip_suffix(&place).unwrap_or(&text)))
}

/// Room for a sentence of serde around an excerpt.
fn excerpt_long(text: &str) -> String {
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Position, from 1, of a line and column (both from 1) of serde.
fn byte_of(message: &str, line: usize, column: usize) -> usize {
    let before: usize = message.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    before + column
}

/// The fields of a row from an object's keys and values.
struct Object<'c, 'm, 's> {
    row: &'c mut Row,
    /// Complete rows that the columns hold.
    done: usize,
    context: &'c mut Context<'m, 's>,
}

impl<'de> Visitor<'de> for Object<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Object { row, done, context } = self;
        let mut expected = 0;
        while let Some(key) = map.next_key_seed(Key { names: &row.names, expected })? {
            let Some((index, column)) = key.and_then(|i| Some((i, row.columns.get_mut(i)?))) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            expected = index + 1;
            if column.rows() > done {
                column.truncate(done);
            }
            if let Err(error) = map.next_value_seed(Cell { column, context }) {
                context.path.push(format!(".{}", row.names.get(index)));
                return Err(error);
            }
        }
        Ok(())
    }
}

/// A key: the index of the column it names.
struct Key<'c> {
    names: &'c Names,
    expected: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Option<usize>, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    #[inline]
    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.names.find(key, self.expected))
    }
}

/// One value of a column.
struct Cell<'c, 'm, 's> {
    column: &'c mut Column,
    context: &'c mut Context<'m, 's>,
}

impl<'de> DeserializeSeed<'de> for Cell<'_, '_, '_> {
    type Value = ();

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        match self.column.values {
            Values::Row(_) | Values::Array(_) => value.deserialize_any(self),
            _ => {
                let text = <&RawValue>::deserialize(value)?.get();
                push_scalar(self.column, text, self.context.scratch)
                    .map_err(|refusal| self.context.refuse(text, refusal, &self.column.data_type))
            }
        }
    }
}

impl<'de> Visitor<'de> for Cell<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let article = if matches!(self.column.data_type, DataType::Array(_)) { "an array" } else { "an object" };
        write!(f, "{article} for {}", self.column.data_type)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.column.push_null();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Cell { column, context } = self;
        if matches!(column.data_type, DataType::Map(..)) {
            push_entries(column, context, map)?;
            return column.close().map_err(|refusal| A::Error::custom(refusal.sentence("MAP")));
        }
        let done = column.rows();
        let Values::Row(row) = &mut column.values else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Map, &Cell { column, context }));
        };
        Object { row, done, context }.visit_map(map)?;
        column.close().map_err(|refusal| A::Error::custom(refusal.sentence("ROW")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Cell { column, context } = self;
        let (Values::Array(list), DataType::Array(_)) = (&mut column.values, &column.data_type) else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &Cell { column, context }));
        };
        let mut index = 0usize;
        loop {
            match items.next_element_seed(Cell { column: &mut list.item, context }) {
                Ok(Some(())) => index += 1,
                Ok(None) => break,
                Err(error) => {
                    context.path.push(format!("[{index}]"));
                    return Err(error);
                }
            }
        }
        column.close().map_err(|refusal| A::Error::custom(refusal.sentence("ARRAY")))
    }
}

/// Pushes the entries of a MAP, each key once: they are collected first, since the last value of a key counts.
fn push_entries<'de, A: MapAccess<'de>>(
    column: &mut Column,
    context: &mut Context<'_, '_>,
    mut map: A,
) -> Result<(), A::Error> {
    let mut entries: Vec<(String, &'de RawValue)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
        match places.get(&key).and_then(|at| entries.get_mut(*at)) {
            Some(known) => known.1 = value,
            None => {
                places.insert(key.clone(), entries.len());
                entries.push((key, value));
            }
        }
    }
    let Values::Array(list) = &mut column.values else { return Ok(()) };
    for (key, value) in entries {
        let Values::Row(entry) = &mut list.item.values else { return Ok(()) };
        let [keys, values] = entry.columns.as_mut_slice() else { return Ok(()) };
        let pushed = keys.push_text(&key).map_err(|refusal| refusal.sentence("STRING"));
        let text = value.get();
        let mut json = serde_json::Deserializer::from_str(text);
        let pushed = pushed.and_then(|()| {
            Cell { column: values, context: &mut *context }.deserialize(&mut json).map_err(|error| {
                let from = (text.as_ptr() as usize).wrapping_sub(context.message.as_ptr() as usize);
                misfit(&error, from + byte_of(text, error.line(), error.column()))
            })
        });
        if let Err(reason) = pushed {
            context.refused.get_or_insert(reason);
            context.path.push(format!("['{key}']"));
            return Err(A::Error::custom("refused"));
        }
        list.item.close().map_err(|refusal| A::Error::custom(refusal.sentence("MAP")))?;
    }
    Ok(())
}

/// Appends a scalar column's value from the exact text of a JSON value (valid as far as a scan can tell).
#[inline]
fn push_scalar(column: &mut Column, text: &str, scratch: &mut Vec<u8>) -> Result<(), Refusal> {
    match text.as_bytes() {
        [b'"', content @ .., b'"'] if memchr::memchr(b'\\', content).is_none() => {
            column.push_text(text.get(1..text.len() - 1).unwrap_or_default())
        }
        [b'"', content @ .., b'"'] => {
            if matches!(column.values, Values::String(_)) {
                return column.push_bytes(|data| unescape(content, data));
            }
            scratch.clear();
            unescape(content, scratch)?;
            column.push_text(std::str::from_utf8(scratch).map_err(|_| Refusal::Malformed)?)
        }
        b"null" => {
            column.push_null();
            Ok(())
        }
        nested @ [b'{' | b'[', ..] => match column.values {
            Values::String(_) => column.push_bytes(|data| {
                compact(nested, data);
                Ok(())
            }),
            _ => Err(Refusal::Malformed),
        },
        // Digits would be base64 as well.
        _ if matches!(column.values, Values::Bytes(_)) => Err(Refusal::Malformed),
        _ => column.push_text(text),
    }
}

/// Appends the content of a JSON string with its escapes resolved.
fn unescape(content: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut rest = content;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (run, escape) = rest.split_at(at);
        out.extend_from_slice(run);
        let [_, kind, tail @ ..] = escape else { return Err(Refusal::Malformed) };
        rest = tail;
        out.push(match kind {
            b'"' | b'\\' | b'/' => *kind,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, tail) = unicode_escape(tail).ok_or(Refusal::Malformed)?;
                rest = tail;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            _ => return Err(Refusal::Malformed),
        });
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// The character of `XXXX` or `XXXX\uXXXX` (a surrogate pair) and what follows it.
fn unicode_escape(bytes: &[u8]) -> Option<(char, &[u8])> {
    let (first, rest) = four_digits(bytes)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, rest));
    }
    let [b'\\', b'u', rest @ ..] = rest else { return None };
    let (second, rest) = four_digits(rest)?;
    let pair = char::decode_utf16([u16::try_from(first).ok()?, u16::try_from(second).ok()?]).next()?.ok()?;
    Some((pair, rest))
}

fn four_digits(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = bytes.split_at_checked(4)?;
    let mut value = 0;
    for digit in digits {
        value = value * 16 + char::from(*digit).to_digit(16)?;
    }
    Some((value, rest))
}

/// Appends JSON text without the white space between its tokens.
fn compact(json: &[u8], out: &mut Vec<u8>) {
    let mut in_string = false;
    let mut escaped = false;
    for byte in json {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
        } else {
            in_string = *byte == b'"';
            if byte.is_ascii_whitespace() {
                continue;
            }
        }
        out.push(*byte);
    }
}

/// See the module.
pub struct JsonEncoder {
    root: Vec<Member>,
    calendar: Calendar,
}

/// A key with its quotes and colon, and the shape of its value.
type Member = (Vec<u8>, Shape);

enum Shape {
    Scalar(DataType),
    Text,
    Array(Box<Shape>),
    Row(Vec<Member>),
    /// Of the values.
    Map(Box<Shape>),
}

impl JsonEncoder {
    /// An encoder of rows of this schema.
    pub fn new(schema: &[Field]) -> JsonEncoder {
        JsonEncoder { root: members(schema), calendar: Calendar::default() }
    }
}

fn members(fields: &[Field]) -> Vec<Member> {
    let member = |field: &Field| {
        let mut key = Vec::new();
        quote(&field.name, &mut key);
        key.push(b':');
        (key, Shape::new(&field.data_type))
    };
    fields.iter().map(member).collect()
}

impl Shape {
    fn new(of: &DataType) -> Shape {
        match of {
            DataType::String => Shape::Text,
            DataType::Array(item) => Shape::Array(Box::new(Shape::new(item))),
            DataType::Row(fields) => Shape::Row(members(fields)),
            DataType::Map(_, value) => Shape::Map(Box::new(Shape::new(value))),
            scalar => Shape::Scalar(scalar.clone()),
        }
    }

    fn write(&self, array: &dyn Array, row: usize, calendar: &mut Calendar, out: &mut Vec<u8>) {
        let start = out.len();
        if array.is_null(row) || self.write_value(array, row, calendar, out).is_none() {
            out.truncate(start);
            out.extend_from_slice(b"null");
        }
    }

    fn write_value(&self, array: &dyn Array, row: usize, calendar: &mut Calendar, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Shape::Text => quote(array.as_string_opt::<i32>()?.value(row), out),
            Shape::Scalar(of) => {
                let quoted = matches!(
                    of,
                    DataType::Bytes
                        | DataType::Date
                        | DataType::Time
                        | DataType::Timestamp(_)
                        | DataType::TimestampLtz(_)
                );
                if quoted {
                    out.push(b'"');
                }
                print::scalar(of, array, row, calendar, out)?;
                if quoted {
                    out.push(b'"');
                }
            }
            Shape::Array(shape) => {
                let items = array.as_list_opt::<i32>()?.value(row);
                out.push(b'[');
                for i in 0..items.len() {
                    if i > 0 {
                        out.push(b',');
                    }
                    shape.write(&items, i, calendar, out);
                }
                out.push(b']');
            }
            Shape::Row(members) => write_object(members, array.as_struct_opt()?.columns(), row, calendar, out),
            Shape::Map(shape) => write_map(shape, &array.as_list_opt::<i32>()?.value(row), calendar, out)?,
        }
        Some(())
    }
}

fn write_object(members: &[Member], columns: &[ArrayRef], row: usize, calendar: &mut Calendar, out: &mut Vec<u8>) {
    out.push(b'{');
    for (i, ((key, shape), column)) in members.iter().zip(columns).enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(key);
        shape.write(column, row, calendar, out);
    }
    out.push(b'}');
}

/// A key that comes twice has its last value.
fn write_map(shape: &Shape, entries: &dyn Array, calendar: &mut Calendar, out: &mut Vec<u8>) -> Option<()> {
    let [keys, values] = entries.as_struct_opt()?.columns() else { return None };
    let keys = keys.as_string_opt::<i32>()?;
    let key = |entry: usize| if keys.is_null(entry) { "null" } else { keys.value(entry) };
    let mut last: BTreeMap<&str, usize> = (0..keys.len()).map(|entry| (key(entry), entry)).collect();
    out.push(b'{');
    let mut is_first = true;
    for entry in 0..keys.len() {
        let Some(value) = last.remove(key(entry)) else { continue };
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        quote(key(entry), out);
        out.push(b':');
        shape.write(values, value, calendar, out);
    }
    out.push(b'}');
    Some(())
}

impl Encoder for JsonEncoder {
    fn encode(&mut self, columns: &[ArrayRef], row: usize, out: &mut Vec<u8>) {
        write_object(&self.root, columns, row, &mut self.calendar, out);
        out.push(b'\n');
    }
}

/// Appends a string in quotes; only what must be escaped is, non-ASCII text stays as it is.
fn quote(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)) {
        let (run, tail) = rest.split_at(at);
        out.extend_from_slice(run);
        let Some((byte, tail)) = tail.split_first() else { break };
        rest = tail;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::scan::Layout;
    use super::*;
    use crate::format::tests::{decode, field, rows_as_json};
    use crate::format::{EpochUnit, FormatConfig};

    /// Row and refusals of one message by the fast way (`None` where it gives up) and by the general one.
    fn both_ways(
        columns: &[Field],
        layout: &mut Layout,
        message: &str,
    ) -> (Option<Vec<ArrayRef>>, Result<Vec<ArrayRef>, String>) {
        let (mut fast, mut general) = (Row::new(columns), Row::new(columns));
        let taken = scan::message(&mut fast, layout, 0, message).map(|()| {
            fast.complete(1);
            fast.finish()
        });
        let decoded = decode_any_message(&mut general, 0, message, &mut Vec::new()).map(|()| {
            general.complete(1);
            general.finish()
        });
        (taken, decoded)
    }

    /// Whether the fast way takes it, whatever the messages before laid down; then the general one gives the same row.
    #[track_caller]
    fn agree(columns: &[Field], layout: &mut Layout, message: &str) -> bool {
        match both_ways(columns, layout, message) {
            (None, _) => false,
            (Some(fast), Ok(general)) => {
                let same = fast.iter().zip(&general).all(|(fast, general)| fast.to_data() == general.to_data());
                assert!(same, "{message}: {fast:?} {general:?}");
                true
            }
            (Some(_), Err(reason)) => panic!("the fast way takes {message:?}, which is refused: {reason}"),
        }
    }

    fn every_type() -> Vec<Field> {
        let types = [
            DataType::Boolean,
            DataType::TinyInt,
            DataType::BigInt,
            DataType::Float,
            DataType::Double,
            DataType::Decimal(10, 2),
            DataType::String,
            DataType::Bytes,
            DataType::Date,
            DataType::Time,
            DataType::Timestamp(3),
            DataType::TimestampLtz(3),
            DataType::Array(Box::new(DataType::Int)),
        ];
        (b'a'..).zip(types).map(|(name, of)| field(&char::from(name).to_string(), of)).collect()
    }

    #[test]
    fn the_usual_message_goes_the_fast_way() {
        let columns = every_type();
        let mut layout = Layout::default();
        for message in [
            "{}",
            " { } ",
            r#"{"g":"x","e":1.5}"#,
            "\t{ \"g\" : \"\u{e9}\u{10348} and more than eight\" ,\r\n \"e\":-0.0}",
            r#"{"e":0.1,"zz":"skipped","d":1e3,"z":-1.5E+7,"c":-12,"a":true,"y":false,"x":null,"g":null}"#,
            r#"{"k":"2026-04-02T00:58:00.150","l":"2026-04-02 00:58:00.150+02:00","i":"2026-04-02","j":"10:11"}"#,
            r#"{"e":123456789012345,"f":"1.005","h":"AQI=","b":"12","e":2,"g":12.50}"#,
            r#"{"e":9007199254740993,"d":123456789.125,"c":9223372036854775807}"#,
            r#"{"e":0.000000000000001,"g":true}"#,
        ] {
            assert!(agree(&columns, &mut layout, message), "{message}");
        }
        for message in [
            "",
            "{",
            "[]",
            "{}x",
            "{}{}",
            "{,}",
            r#"{"e":1,}"#,
            r#"{"e" 1}"#,
            r#"{"e":01}"#,
            r#"{"e":1.}"#,
            r#"{"e":.5}"#,
            r#"{"e":+1}"#,
            r#"{"e":1e}"#,
            r#"{"e":-}"#,
            r#"{"e":1x}"#,
            r#"{"e":1"#,
            r#"{"e":truely}"#,
            r#"{"x":nul}"#,
            r#"{"g":"a\"b"}"#,
            r#"{"g":"open}"#,
            "{\"g\":\"tab\there\"}",
            "{\"g\":\"eight by\ttes\"}",
            "{\"g\\u0000\":1}",
            r#"{"h":12}"#,
            r#"{"h":true}"#,
            r#"{"m":[1]}"#,
            r#"{"x":{"y":1}}"#,
            r#"{"b":1.5}"#,
            r#"{"b":300}"#,
            r#"{"e":1e999}"#,
        ] {
            assert!(!agree(&columns, &mut layout, message), "{message}");
        }
    }

    const SCRAPS: [&str; 44] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\n",
        "\"",
        "\\",
        "\\u00e9",
        "\"a\":",
        "\"b\":",
        "\"c\":",
        "\"d\":",
        "\"e\":",
        "\"f\":",
        "\"g\":",
        "\"h\":",
        "\"l\":",
        "\"m\":",
        "\"zz\":",
        "\"text\"",
        "\"AQI=\"",
        "\"1.50\"",
        "0",
        "-0",
        "12",
        "-12.5",
        "0.1",
        "1e3",
        "1E-5",
        "123456789012345678",
        "0.30000000000000004",
        "true",
        "false",
        "null",
        "\"2026-04-02T00:58:00.150Z\"",
        "\u{e9}",
        "\u{1}",
        "\u{7f}",
        "\u{feff}",
        "-",
        "\"eight by\"",
    ];
    const VALUES: [&str; 17] = [
        "1",
        "-0",
        "0.25",
        "179.99",
        "1e2",
        "\"x\"",
        "\"7\"",
        "null",
        "true",
        "\"2026-04-02\"",
        "\"2026-04-02T00:58:00Z\"",
        "\"10:11:12\"",
        "12345678901234567890",
        "\"a\\nb\"",
        "[1]",
        "2.2250738585072011e-308",
        "999999999999999.9",
    ];

    /// Of columns and of none, of every length around those that a layout keeps.
    const KEYS: [&str; 24] = [
        "\"a\":",
        "\"b\":",
        "\"c\":",
        "\"d\":",
        "\"e\":",
        "\"f\":",
        "\"g\":",
        "\"h\":",
        "\"i\":",
        "\"j\":",
        "\"k\":",
        "\"l\":",
        "\"a\": ",
        "\"g\" :",
        " \"e\":",
        "\"\":",
        "\"abcd\":",
        "\"abcde\":",
        "\"abcdef\":",
        "\"abcdeg\":",
        "\"abcdefghijkl\":",
        "\"abcdefghijklm\":",
        "\"abcdefghijkln\":",
        "\"abcdefghijklmn\":",
    ];

    proptest::proptest! {
        /// Whatever the fast way takes, the general one takes, and gives the same row.
        #[test]
        fn every_message_decodes_the_same_both_ways(
            scraps in proptest::collection::vec(proptest::sample::select(&SCRAPS[..]), 0..24),
            messages in proptest::collection::vec(
                proptest::collection::vec(
                    (proptest::sample::select(&KEYS[..]), proptest::sample::select(&VALUES[..])),
                    0..6,
                ),
                1..6,
            ),
            times in 1usize..3,
        ) {
            let columns = every_type();
            let mut layout = Layout::default();
            agree(&columns, &mut layout, &scraps.concat());
            for members in std::iter::repeat_n(messages, times).flatten() {
                let members: Vec<String> = members.iter().map(|(key, value)| format!("{key}{value}")).collect();
                agree(&columns, &mut layout, &format!("{{{}}}", members.join(",")));
            }
        }

        #[test]
        fn doubles_of_few_digits_are_the_nearest(
            digits in 0u64..1_000_000_000_000_000,
            point in 0usize..16,
            negative: bool,
        ) {
            let text = format!("{digits:016}");
            let (whole, fraction) = text.split_at(16 - point);
            let whole = Some(whole.trim_start_matches('0')).filter(|whole| !whole.is_empty()).unwrap_or("0");
            let (sign, dot) = (if negative { "-" } else { "" }, if point == 0 { "" } else { "." });
            let message = format!("{{\"e\":{sign}{whole}{dot}{fraction}}}");
            proptest::prop_assert!(agree(&every_type(), &mut Layout::default(), &message));
        }
    }

    /// Decodes one message into column `v` of a type and prints the row.
    fn value(of: DataType, json: &str) -> Result<String, String> {
        message(&[field("v", of)], &format!("{{\"v\":{json}}}"))
    }

    fn message(columns: &[Field], message: &str) -> Result<String, String> {
        let mut decoder = JsonDecoder::new(columns, None);
        let decoded = decode(&mut decoder, &[message.as_bytes()]);
        match decoded.refused.into_iter().next() {
            Some((_, reason)) => Err(reason),
            None => Ok(rows_as_json(columns, &decoded.columns).remove(0)),
        }
    }

    #[track_caller]
    fn gives(of: DataType, json: &str, wanted: &str) {
        assert_eq!(value(of, json).as_deref(), Ok(format!("{{\"v\":{wanted}}}").as_str()), "{json}");
    }

    #[track_caller]
    fn refuses(of: DataType, json: &str, reason: &str) {
        assert_eq!(value(of, json), Err(reason.to_owned()), "{json}");
    }

    #[test]
    fn numbers() {
        gives(DataType::Double, "\" 12.5 \"", "12.5");
        gives(DataType::Double, "1", "1.0");
        gives(DataType::Double, "0.1", "0.1");
        gives(DataType::Double, "123456789012345678901234567890", "1.2345678901234568e29");
        gives(DataType::Double, "\"NaN\"", "null");
        gives(DataType::Float, "0.1", "0.1");
        gives(DataType::Int, "1.0", "1");
        gives(DataType::Int, "\"-7\"", "-7");
        gives(DataType::BigInt, "9223372036854775807", "9223372036854775807");
        gives(DataType::Decimal(10, 2), "209.595", "209.60");
        gives(
            DataType::Decimal(38, 0),
            "12345678901234567890123456789012345678",
            "12345678901234567890123456789012345678",
        );
        gives(DataType::IntervalDayTime, "1500", "1500");
        refuses(DataType::Int, "1.7", "column `v`: 1.7 has a fraction, which INT cannot hold (byte 6)");
        refuses(DataType::TinyInt, "128", "column `v`: 128 is out of range for TINYINT (byte 6)");
        refuses(DataType::BigInt, "1e30", "column `v`: 1e30 is out of range for BIGINT (byte 6)");
        refuses(DataType::Decimal(3, 2), "10", "column `v`: 10 is out of range for DECIMAL(3, 2) (byte 6)");
        refuses(DataType::Double, "true", "column `v`: true is not a valid DOUBLE (byte 6)");
        refuses(DataType::Double, "\"\"", "column `v`: \"\" is not a valid DOUBLE (byte 6)");
        refuses(DataType::Double, "1e999", "column `v`: 1e999 is out of range for DOUBLE (byte 6)");
        assert!(value(DataType::Double, "NaN").is_err_and(|reason| reason.starts_with("not valid JSON")));
        assert!(value(DataType::Int, "01").is_err_and(|reason| reason.starts_with("not valid JSON")));
    }

    #[test]
    fn booleans_and_strings() {
        gives(DataType::Boolean, "\"TRUE\"", "true");
        gives(DataType::Boolean, "false", "false");
        refuses(DataType::Boolean, "1", "column `v`: 1 is not a valid BOOLEAN (byte 6)");
        gives(DataType::String, "1.50", "\"1.50\"");
        gives(DataType::String, "true", "\"true\"");
        gives(DataType::String, "{ \"a b\" : [1, \"\\\" x\"] }", "\"{\\\"a b\\\":[1,\\\"\\\\\\\" x\\\"]}\"");
        gives(DataType::String, r#""\u00fc\ud83d\ude00\/\b\f\n\r\t\"\\""#, "\"ü😀/\\b\\f\\n\\r\\t\\\"\\\\\"");
        gives(DataType::String, "\"\\u0000\\u001f\"", "\"\\u0000\\u001f\"");
        gives(DataType::Int, "\"\\u0031\"", "1");
        for lone in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx""#, r#""\ud83d\u0041""#] {
            assert!(value(DataType::String, lone).is_err(), "{lone}");
        }
        let long = "x".repeat(100);
        refuses(
            DataType::Int,
            &format!("\"{long}\""),
            &format!("column `v`: \"{}… is not a valid INT (byte 6)", "x".repeat(59)),
        );
    }

    #[test]
    fn times() {
        gives(DataType::TimestampLtz(3), "\"2026-04-02T02:58:00.1509+02:00\"", "\"2026-04-02T00:58:00.150Z\"");
        gives(DataType::Timestamp(0), "\"2026-04-02 00:58:00.9\"", "\"2026-04-02T00:58:00\"");
        gives(DataType::Date, "\"2026-04-02\"", "\"2026-04-02\"");
        gives(DataType::Time, "\"00:58:00.1504\"", "\"00:58:00.150\"");
        refuses(DataType::Date, "2026", "column `v`: 2026 is not a valid DATE (byte 6)");
        refuses(
            DataType::TimestampLtz(3),
            "\"2026-04-02T00:58:00\"",
            "column `v`: \"2026-04-02T00:58:00\" has no time zone, but TIMESTAMP_LTZ(3) needs `Z` or an offset (byte 6)",
        );
        refuses(
            DataType::Timestamp(3),
            "\"2026-04-02T00:58:00Z\"",
            "column `v`: \"2026-04-02T00:58:00Z\" has a time zone, which TIMESTAMP(3) cannot hold: declare the column \
             as TIMESTAMP_LTZ (byte 6)",
        );
        refuses(
            DataType::TimestampLtz(3),
            "1775091480150",
            "column `v`: 1775091480150 is a number: for TIMESTAMP_LTZ(3) set `unit` in the source's `time` \
             section if it counts time (byte 6)",
        );
    }

    #[test]
    fn numbers_count_time_in_the_declared_unit() {
        let columns = [field("v", DataType::TimestampLtz(3)), field("other", DataType::TimestampLtz(3))];
        let epoch = Some(EpochColumn { column: 0, unit: EpochUnit::Seconds });
        let mut decoder = FormatConfig::Json.decoder(&columns, epoch);
        let messages: [&[u8]; 4] = [
            b"{\"v\":1775091480.1509}",
            b"{\"v\":\"1775091480\"}",
            b"{\"v\":\"2026-04-02T00:58:00Z\"}",
            b"{\"other\":1}",
        ];
        let decoded = decode(decoder.as_mut(), &messages);
        assert_eq!(
            rows_as_json(&columns, &decoded.columns),
            [
                r#"{"v":"2026-04-02T00:58:00.150Z","other":null}"#,
                r#"{"v":"2026-04-02T00:58:00.000Z","other":null}"#,
                r#"{"v":"2026-04-02T00:58:00.000Z","other":null}"#,
            ]
        );
        assert_eq!(decoded.messages, [0, 1, 2]);
        assert_eq!(decoded.refused.len(), 1);
    }

    #[test]
    fn bytes() {
        gives(DataType::Bytes, "\"AAECAw==\"", "\"AAECAw==\"");
        gives(DataType::Bytes, "\"AAECAw\"", "\"AAECAw==\"");
        refuses(DataType::Bytes, "1234", "column `v`: 1234 is not a valid BYTES (byte 6)");
        refuses(DataType::Bytes, "\"a b\"", "column `v`: \"a b\" is not a valid BYTES (byte 6)");
    }

    #[test]
    fn rows_and_arrays() {
        let position = DataType::Row(vec![field("lat", DataType::Double), field("lon", DataType::Double)]);
        gives(position.clone(), "{\"lon\":2,\"x\":[{}],\"lat\":1}", "{\"lat\":1.0,\"lon\":2.0}");
        gives(position.clone(), "{\"lon\":2}", "{\"lat\":null,\"lon\":2.0}");
        gives(position.clone(), "null", "null");
        let numbers = DataType::Array(Box::new(DataType::Double));
        gives(numbers.clone(), "[1, null, \"2\"]", "[1.0,null,2.0]");
        gives(numbers.clone(), "[]", "[]");
        gives(DataType::Array(Box::new(position.clone())), "[{},null]", "[{\"lat\":null,\"lon\":null},null]");
        refuses(numbers.clone(), "[1, \"x\"]", "column `v[1]`: \"x\" is not a valid DOUBLE (byte 10)");
        refuses(
            DataType::Array(Box::new(position.clone())),
            "[{\"lat\":[]}]",
            "column `v[0].lat`: [] is not a valid DOUBLE (byte 14)",
        );
        assert_eq!(
            value(numbers, "{}"),
            Err("column `v`: invalid type: map, expected an array for ARRAY<DOUBLE> (byte 7)".to_owned())
        );
        assert!(value(position, "\"x\"").is_err_and(|reason| reason.starts_with("column `v`: invalid type: string")));
    }

    #[test]
    fn objects() {
        let columns = [field("a", DataType::Int), field("b", DataType::String)];
        for (text, wanted) in [
            ("{}", Ok("{\"a\":null,\"b\":null}")),
            (" {\"b\":\"x\",\"a\":1} \r", Ok("{\"a\":1,\"b\":\"x\"}")),
            ("\u{feff}{\"a\":1}", Ok("{\"a\":1,\"b\":null}")),
            ("{\"\\u0061\":1,\"extra\":{\"a\":[2]}}", Ok("{\"a\":1,\"b\":null}")),
            ("{\"a\":1,\"b\":\"x\",\"a\":2,\"b\":null,\"a\":3}", Ok("{\"a\":3,\"b\":null}")),
            ("", Err("the message is empty")),
            (" \r", Err("the message is empty")),
            ("[{}]", Err("the message is a JSON array; one message must be one object")),
            ("12", Err("the message is not a JSON object: it starts with `12`")),
            ("{} {}", Err("not valid JSON: trailing characters (byte 4)")),
            ("{\"a\":1", Err("not valid JSON: EOF while parsing an object (byte 6)")),
            ("{\"a\":}", Err("not valid JSON in column `a`: expected value (byte 6)")),
            ("{\"a\":1}\n}", Err("not valid JSON: trailing characters (byte 9)")),
        ] {
            assert_eq!(message(&columns, text), wanted.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        let mut decoder = JsonDecoder::new(&columns, None);
        let decoded = decode(&mut decoder, &[b"{\"x\":\"\xff\"}"]);
        assert_eq!(decoded.refused, [(0, "the message is not UTF-8 (byte 7)".to_owned())]);
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert!(message(&[field("a", DataType::Int)], &format!("{{\"x\":{deep}}}")).is_ok());
        gives(DataType::String, &deep, &format!("\"{deep}\""));
        assert!(value(DataType::String, &"[".repeat(200_000)).is_err());
        assert!(value(DataType::Array(Box::new(DataType::String)), &"[".repeat(200_000)).is_err());
    }

    #[test]
    fn a_refused_message_leaves_nothing_behind() {
        let position = DataType::Row(vec![field("lat", DataType::Double)]);
        let columns = [
            field("s", DataType::String),
            field("l", DataType::Array(Box::new(DataType::Array(Box::new(DataType::Int))))),
            field("r", position),
            field("b", DataType::Boolean),
            field("i", DataType::Int),
        ];
        let good = r#"{"s":"x","l":[[1],[2,3]],"r":{"lat":1},"b":true,"i":1}"#;
        let bad = r#"{"s":"lost","l":[[7],[8,9]],"r":{"lat":9},"b":false,"i":"x"}"#;
        let half = r#"{"s":"lost","l":[[7],[8,"y"]],"r":{"lat":9}}"#;
        let cut = r#"{"s":"lost","l":[[7],[8"#;
        let mut decoder = JsonDecoder::new(&columns, None);
        let messages = [bad, good, half, good, cut, bad].map(str::as_bytes);
        let decoded = decode(&mut decoder, &messages);
        assert_eq!(decoded.messages, [1, 3]);
        assert_eq!(decoded.refused.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [0, 2, 4, 5]);
        let wanted = r#"{"s":"x","l":[[1],[2,3]],"r":{"lat":1.0},"b":true,"i":1}"#;
        assert_eq!(rows_as_json(&columns, &decoded.columns), [wanted, wanted]);
        let again = decode(&mut decoder, &[good.as_bytes()]);
        assert_eq!(rows_as_json(&columns, &again.columns), [wanted]);
    }
}
