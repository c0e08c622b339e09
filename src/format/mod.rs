//! Formats: messages into rows (decoders) and rows into bytes (encoders).
//!
//! To add one: a file here with its config struct, decoder and encoder; a variant in [`FormatConfig`]; a line in the
//! registry below. A forgotten step does not compile.

pub mod columns;
pub mod csv;
pub mod json;
pub mod parse;
pub mod print;
pub mod raw;

use arrow_array::ArrayRef;
use serde::{Deserialize, Serialize};

use crate::expr::Field;
use crate::settings::Section;

/// The registry: every format and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FormatConfig {
    Json,
    Csv(csv::CsvConfig),
    Raw,
}

#[derive(Clone, Copy)]
enum Kind {
    Json,
    Csv,
    Raw,
}

impl FormatConfig {
    /// Reads key `format` (default `json`) and the format's own keys from a source's section.
    pub fn read_input(section: &mut Section<'_>) -> Option<FormatConfig> {
        let kinds = [("json", Kind::Json), ("csv", Kind::Csv), ("raw", Kind::Raw)];
        FormatConfig::read(section, &kinds, false)
    }

    /// Reads key `format` (default `json`) and the format's own keys from a sink's section.
    pub fn read_output(section: &mut Section<'_>) -> Option<FormatConfig> {
        FormatConfig::read(section, &[("json", Kind::Json), ("csv", Kind::Csv)], true)
    }

    fn read(section: &mut Section<'_>, kinds: &[(&str, Kind)], header: bool) -> Option<FormatConfig> {
        let kind = if section.has("format") { section.choice("format", kinds)? } else { section_default(section) };
        match kind {
            Kind::Json => Some(FormatConfig::Json),
            Kind::Csv => csv::CsvConfig::read(section, header).map(FormatConfig::Csv),
            Kind::Raw => Some(FormatConfig::Raw),
        }
    }

    /// The name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            FormatConfig::Json => "json",
            FormatConfig::Csv(_) => "csv",
            FormatConfig::Raw => "raw",
        }
    }

    /// Whether the format can carry these columns.
    ///
    /// # Errors
    /// Which column it cannot carry, as a sentence.
    pub fn check(&self, columns: &[Field]) -> Result<(), String> {
        match self {
            FormatConfig::Json => json::check(columns),
            FormatConfig::Csv(_) => csv::check(columns),
            FormatConfig::Raw => raw::check(columns),
        }
    }

    /// A decoder of messages into these columns. Numbers in the timestamp column of `epoch` are counts of its unit;
    /// in any other timestamp column they are refused.
    pub fn decoder(&self, columns: &[Field], epoch: Option<EpochColumn>) -> Box<dyn Decoder> {
        match self {
            FormatConfig::Json => Box::new(json::JsonDecoder::new(columns, epoch)),
            FormatConfig::Csv(config) => Box::new(csv::CsvDecoder::new(config, columns, epoch)),
            FormatConfig::Raw => Box::new(raw::RawDecoder::new(columns)),
        }
    }

    /// An encoder of rows of this schema.
    pub fn encoder(&self, schema: &[Field]) -> Box<dyn Encoder> {
        match self {
            FormatConfig::Json => Box::new(json::JsonEncoder::new(schema)),
            FormatConfig::Csv(config) => Box::new(csv::CsvEncoder::new(config, schema)),
            FormatConfig::Raw => Box::new(raw::RawEncoder),
        }
    }
}

/// Takes the absent key, so that it is known in suggestions.
fn section_default(section: &mut Section<'_>) -> Kind {
    section.string("format");
    Kind::Json
}

/// The column whose numbers count time since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochColumn {
    pub column: usize,
    pub unit: EpochUnit,
}

/// What a number that stands for a point in time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EpochUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl EpochUnit {
    /// The names in the configuration, for [`Section::choice`].
    pub const CHOICES: [(&'static str, EpochUnit); 4] = [
        ("s", EpochUnit::Seconds),
        ("ms", EpochUnit::Milliseconds),
        ("us", EpochUnit::Microseconds),
        ("ns", EpochUnit::Nanoseconds),
    ];

    /// The unit is `10^-exponent` seconds.
    fn exponent(self) -> i64 {
        match self {
            EpochUnit::Seconds => 0,
            EpochUnit::Milliseconds => 3,
            EpochUnit::Microseconds => 6,
            EpochUnit::Nanoseconds => 9,
        }
    }
}

/// Messages that lie one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Messages<'a> {
    pub payload: &'a [u8],
    /// Of each message, in bytes.
    pub lengths: &'a [u32],
}

impl<'a> Messages<'a> {
    /// Each message; what the payload does not hold is missing.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.payload;
        self.lengths.iter().map(move |length| {
            let (message, tail) = rest.split_at((*length as usize).min(rest.len()));
            rest = tail;
            message
        })
    }
}

/// Turns messages into rows of the declared columns. Decoding is a pure function of the messages since the last
/// [`Decoder::connected`], so that a replay gives the same rows.
pub trait Decoder: Send {
    /// Decodes messages, counted over all parts. Columns come in schema order. A message that is neither in
    /// [`Decoded::messages`] nor in [`Decoded::refused`] had no row to give (a CSV header).
    fn decode(&mut self, parts: &[Messages<'_>], peer: Option<&str>) -> Decoded;

    /// Only these columns are wanted: the others may be NULL. What is refused stays the same.
    fn keep_only(&mut self, read: &[bool]);

    /// Whether messages of different byte streams must not share a call of [`Decoder::decode`]. A decoder that says no
    /// keeps nothing from one call to the next.
    fn per_peer(&self) -> bool {
        false
    }

    /// A new byte stream of `peer` begins (a CSV header is expected again).
    fn connected(&mut self, _peer: Option<&str>) {}

    /// The byte stream of `peer` ended.
    fn disconnected(&mut self, _peer: Option<&str>) {}

    /// What must survive a restart (the CSV headers seen), for the checkpoint; empty where there is nothing.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes back what [`Decoder::save`] gave.
    ///
    /// # Errors
    /// The bytes are not of this decoder.
    fn restore(&mut self, _saved: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

/// What came out of a run of messages.
#[derive(Debug, Default)]
pub struct Decoded {
    /// One array per declared column, all as long as `messages`.
    pub columns: Vec<ArrayRef>,
    /// For each row the index of its message in the run, ascending.
    pub messages: Vec<u32>,
    /// Messages that could not be decoded, with the reason, ascending.
    pub refused: Vec<(u32, String)>,
}

/// Turns rows into the bytes a sink writes.
pub trait Encoder: Send {
    /// Bytes that stand at the start of every file (a CSV header).
    fn header(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Appends row `row` of `columns` with its line end.
    fn encode(&mut self, columns: &[ArrayRef], row: usize, out: &mut Vec<u8>);
}

/// What one message is to a decoder.
enum Outcome {
    Row,
    /// Taken, but no row.
    Nothing,
}

/// The loop of all decoders over the messages of a run: a row that `decode_one` leaves half done is taken back.
fn decode_run(
    rows: &mut columns::Row,
    parts: &[Messages<'_>],
    mut decode_one: impl FnMut(&mut columns::Row, usize, Message<'_>) -> Result<Outcome, String>,
) -> Decoded {
    rows.truncate(0);
    let count = parts.iter().map(|part| part.lengths.len()).sum();
    rows.reserve(count);
    let mut decoded = Decoded { messages: Vec::with_capacity(count), ..Decoded::default() };
    let mut i = 0;
    for part in parts {
        // Checked at once, which is faster; where it fails, message by message.
        let text = std::str::from_utf8(part.payload).ok();
        let mut at = 0;
        for bytes in part.iter() {
            let message = Message { bytes, text: text.and_then(|text| text.get(at..at + bytes.len())) };
            at += bytes.len();
            let done = decoded.messages.len();
            match decode_one(rows, done, message) {
                Ok(Outcome::Row) => {
                    rows.complete(done + 1);
                    decoded.messages.push(i);
                }
                Ok(Outcome::Nothing) => {}
                Err(reason) => {
                    rows.truncate(done);
                    decoded.refused.push((i, reason));
                }
            }
            i += 1;
        }
    }
    decoded.columns = rows.finish();
    decoded
}

/// A message on its way into columns.
struct Message<'a> {
    bytes: &'a [u8],
    /// The same, where it is known to be text.
    text: Option<&'a str>,
}

impl<'a> Message<'a> {
    /// The message as text.
    fn text(&self) -> Result<&'a str, String> {
        let checked = || {
            std::str::from_utf8(self.bytes)
                .map_err(|error| format!("the message is not UTF-8 (byte {})", error.valid_up_to() + 1))
        };
        self.text.map_or_else(checked, Ok)
    }

    /// The message as text without its byte order mark.
    fn utf8(&self) -> Result<&'a str, String> {
        self.text().map(|text| text.strip_prefix('\u{feff}').unwrap_or(text))
    }
}

/// Something found in a message, cut to what fits into a sentence.
fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
