//! Formats: messages into rows (decoders) and rows into bytes (encoders).
//!
//! To add one: a file here with its config struct, decoder and encoder; a variant in [`FormatConfig`]; a line in the
//! registry below. A forgotten step does not compile.

use arrow_array::ArrayRef;

/// Turns messages into rows of the declared columns. Decoding is a pure function of the messages since the last
/// [`Decoder::connected`], so that a replay gives the same rows.
pub trait Decoder: Send {
    /// Decodes messages that lie one behind the other in `payload`. Columns come in schema order.
    fn decode(&mut self, payload: &[u8], lengths: &[u32], peer: Option<&str>) -> Decoded;

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
