//! A source's decoder, behind what protects the engine from it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_empty_array};

use super::batch::Part;
use crate::config::Source;
use crate::event::Frame;
use crate::expr::Field;
use crate::format::{Decoded, Decoder, EpochColumn, FormatConfig, Messages};

/// See the module. A message on which the format's decoder panics is refused, the same in every replay.
pub struct SourceDecoder {
    format: FormatConfig,
    columns: Arc<[Field]>,
    epoch: Option<EpochColumn>,
    read: Arc<[bool]>,
    decoder: Box<dyn Decoder>,
}

impl SourceDecoder {
    /// The decoder of a source's messages, of which these columns are read.
    pub fn new(source: &Source, read: &[bool]) -> SourceDecoder {
        let (columns, read): (Arc<[Field]>, Arc<[bool]>) = (source.columns.as_slice().into(), read.into());
        let decoder = decoder(&source.format, &columns, source.time.epoch, &read);
        SourceDecoder { format: source.format.clone(), columns, epoch: source.time.epoch, read, decoder }
    }

    /// Whether it keeps something per byte stream. Else it keeps nothing from call to call.
    pub fn per_peer(&self) -> bool {
        self.decoder.per_peer()
    }

    /// A new byte stream of `peer` begins.
    pub fn connected(&mut self, peer: Option<&str>) {
        self.decoder.connected(peer);
    }

    /// The byte stream of `peer` ended.
    pub fn disconnected(&mut self, peer: Option<&str>) {
        self.decoder.disconnected(peer);
    }

    /// Forgets what it keeps.
    pub fn reset(&mut self) {
        self.decoder = decoder(&self.format, &self.columns, self.epoch, &self.read);
    }

    /// What must survive a restart.
    pub fn save(&self) -> Vec<u8> {
        self.decoder.save()
    }

    /// Takes back what [`SourceDecoder::save`] gave.
    ///
    /// # Errors
    /// The bytes are not of this decoder.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), String> {
        self.decoder.restore(saved)
    }

    /// Decodes parts of a frame's data runs; messages are counted over all of them.
    pub fn decode(&mut self, frame: &Frame, parts: &[Part]) -> Decoded {
        if !self.per_peer() {
            let messages: Vec<Messages<'_>> = parts.iter().map(|part| part.messages(frame)).collect();
            return self.decode_guarded(&messages, None);
        }
        // Byte streams must not share a call.
        let mut whole = Whole::default();
        for part in parts {
            let peer = part.run(frame).and_then(|run| run.peer.as_deref());
            let decoded = self.decode_guarded(&[part.messages(frame)], peer);
            whole.append(decoded, part.records.len() as u32);
        }
        whole.finish(&self.columns)
    }

    fn decode_guarded(&mut self, messages: &[Messages<'_>], peer: Option<&str>) -> Decoded {
        let attempt = |decoder: &mut Box<dyn Decoder>, messages: &[Messages<'_>]| {
            catch_unwind(AssertUnwindSafe(|| decoder.decode(messages, peer))).ok()
        };
        if let Some(decoded) = attempt(&mut self.decoder, messages) {
            return decoded;
        }
        // What the panic left half done goes with the decoder; message by message, only the culprit is refused.
        let fresh = |old: &dyn Decoder| {
            let mut new = decoder(&self.format, &self.columns, self.epoch, &self.read);
            let _ = new.restore(&old.save());
            new
        };
        self.decoder = fresh(self.decoder.as_ref());
        let mut whole = Whole::default();
        for message in messages.iter().flat_map(|messages| messages.iter()) {
            let length = [u32::try_from(message.len()).unwrap_or(u32::MAX)];
            let decoded = attempt(&mut self.decoder, &[Messages { payload: message, lengths: &length }]);
            let decoded = decoded.unwrap_or_else(|| {
                self.decoder = fresh(self.decoder.as_ref());
                let refused = vec![(0, "the decoder failed on this message: please report it".to_owned())];
                Decoded { refused, ..Decoded::default() }
            });
            whole.append(decoded, 1);
        }
        whole.finish(&self.columns)
    }
}

fn decoder(format: &FormatConfig, columns: &[Field], epoch: Option<EpochColumn>, read: &[bool]) -> Box<dyn Decoder> {
    let mut decoder = format.decoder(columns, epoch);
    decoder.keep_only(read);
    decoder
}

/// What several calls of a decoder gave.
#[derive(Default)]
struct Whole {
    decoded: Decoded,
    parts: Vec<Vec<ArrayRef>>,
    /// Messages of the calls so far.
    messages: u32,
}

impl Whole {
    fn append(&mut self, decoded: Decoded, messages: u32) {
        let before = self.messages;
        self.decoded.messages.extend(decoded.messages.iter().map(|message| before + message));
        self.decoded.refused.extend(decoded.refused.into_iter().map(|(message, reason)| (before + message, reason)));
        if !decoded.messages.is_empty() {
            self.parts.push(decoded.columns);
        }
        self.messages += messages;
    }

    fn finish(mut self, columns: &[Field]) -> Decoded {
        self.decoded.columns = match self.parts.len() {
            1 => self.parts.pop().unwrap_or_default(),
            _ => columns.iter().enumerate().map(|(index, field)| concat(&self.parts, index, field)).collect(),
        };
        self.decoded
    }
}

#[expect(clippy::expect_used, reason = "a decoder gives every column in its declared type")]
fn concat(parts: &[Vec<ArrayRef>], column: usize, field: &Field) -> ArrayRef {
    let arrays: Vec<&dyn Array> = parts.iter().filter_map(|part| part.get(column)).map(AsRef::as_ref).collect();
    if arrays.is_empty() {
        return new_empty_array(&field.data_type.arrow());
    }
    arrow_select::concat::concat(&arrays).expect("parts of one column have one type")
}
