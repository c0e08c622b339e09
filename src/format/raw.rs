//! Format `raw`: the whole message is the value of the one column, STRING (must be UTF-8) or BYTES. Nothing is cut off
//! or trimmed. An empty message is an empty value. Sources only.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray as _;

use super::columns::Row;
use super::parse::Refusal;
use super::{Decoded, Decoder, Encoder, Messages, Outcome, decode_run};
use crate::expr::{DataType, Field};

/// Exactly one column, STRING or BYTES.
///
/// # Errors
/// What is there instead.
pub fn check(columns: &[Field]) -> Result<(), String> {
    match columns {
        [Field { data_type: DataType::String | DataType::Bytes, .. }] => Ok(()),
        [column] => {
            Err(format!("format \"raw\" needs a STRING or BYTES column, but `{}` is {}", column.name, column.data_type))
        }
        _ => {
            Err(format!("format \"raw\" needs exactly one STRING or BYTES column, but {} are declared", columns.len()))
        }
    }
}

/// See the module.
pub struct RawDecoder {
    rows: Row,
    text: bool,
}

impl RawDecoder {
    /// For columns that passed [`check`].
    pub fn new(columns: &[Field]) -> RawDecoder {
        let text = columns.iter().any(|column| column.data_type == DataType::String);
        RawDecoder { rows: Row::new(columns), text }
    }
}

impl Decoder for RawDecoder {
    fn keep_only(&mut self, read: &[bool]) {
        self.rows.keep_only(read);
    }

    fn decode(&mut self, parts: &[Messages<'_>], _peer: Option<&str>) -> Decoded {
        let text = self.text;
        decode_run(&mut self.rows, parts, |rows, _, message| {
            if text {
                message.text()?;
            }
            for column in &mut rows.columns {
                let pushed = column.push_bytes(|data| {
                    data.extend_from_slice(message.bytes);
                    Ok(())
                });
                pushed.map_err(|refusal: Refusal| format!("the message {}", refusal.sentence("STRING")))?;
            }
            Ok(Outcome::Row)
        })
    }
}

/// The value's bytes and a line end.
pub struct RawEncoder;

impl Encoder for RawEncoder {
    fn encode(&mut self, columns: &[ArrayRef], row: usize, out: &mut Vec<u8>) {
        if let Some(column) = columns.first() {
            if let Some(text) = column.as_string_opt::<i32>() {
                out.extend_from_slice(text.value(row).as_bytes());
            } else if let Some(bytes) = column.as_binary_opt::<i32>() {
                out.extend_from_slice(bytes.value(row));
            }
        }
        out.push(b'\n');
    }
}
