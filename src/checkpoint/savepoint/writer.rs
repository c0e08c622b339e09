//! Writes a savepoint's bytes, one block at a time.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::format::{self, BLOCK_BYTES, Footer, FormatError, Kind};
use super::{SavepointError, operator_of};
use crate::checkpoint::CheckpointMeta;

/// Writes a savepoint. What it has written is none before [`SavepointWriter::finish`] has returned.
pub struct SavepointWriter<W> {
    out: W,
    /// Name of what is written to, for messages.
    file: PathBuf,
    previous: u32,
    body: Vec<u8>,
    block: Vec<u8>,
    /// The operator whose entries are in `body`.
    operator: Option<u32>,
    footer: Footer,
    written_bytes: u64,
}

impl<W: Write> SavepointWriter<W> {
    /// Begins a savepoint of the checkpoint that `meta` describes.
    ///
    /// # Errors
    /// `out` failed.
    pub fn new(out: W, file: &Path, meta: &CheckpointMeta) -> Result<SavepointWriter<W>, SavepointError> {
        let (header, previous) = format::encode_header();
        let mut writer = SavepointWriter {
            out,
            file: file.to_owned(),
            previous,
            body: Vec::new(),
            block: Vec::new(),
            operator: None,
            footer: Footer::default(),
            written_bytes: 0,
        };
        writer.put(&header)?;
        let body = postcard::to_stdvec(meta).map_err(|_| writer.failed(FormatError::TooLong))?;
        writer.block(Kind::Description, &body)?;
        Ok(writer)
    }

    /// Adds an entry; keys must ascend.
    ///
    /// # Errors
    /// `out` failed.
    pub fn add(&mut self, key: &[u8], stored: &[u8]) -> Result<(), SavepointError> {
        let operator = operator_of(key);
        if self.operator != operator || self.body.len() >= BLOCK_BYTES {
            self.close_block()?;
            self.operator = operator;
        }
        format::push_entry(&mut self.body, key, stored).map_err(|error| self.failed(error))?;
        self.footer.operators.entry(operator.unwrap_or_default()).or_default().add(key, stored);
        Ok(())
    }

    /// Writes the footer; gives back what was written to, and how many bytes went there.
    ///
    /// # Errors
    /// `out` failed.
    pub fn finish(mut self) -> Result<(W, u64), SavepointError> {
        self.close_block()?;
        let footer = self.footer.encode();
        self.block(Kind::Footer, &footer)?;
        Ok((self.out, self.written_bytes))
    }

    fn close_block(&mut self) -> Result<(), SavepointError> {
        if self.body.is_empty() {
            return Ok(());
        }
        let mut body = std::mem::take(&mut self.body);
        self.footer.blocks += 1;
        self.block(Kind::Entries, &body)?;
        body.clear();
        self.body = body;
        Ok(())
    }

    fn block(&mut self, kind: Kind, body: &[u8]) -> Result<(), SavepointError> {
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        let crc = format::encode_block(&mut block, kind, body, self.previous).map_err(|error| self.failed(error))?;
        self.previous = crc;
        self.put(&block)?;
        self.block = block;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), SavepointError> {
        self.written_bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(SavepointError::io("write", &self.file))
    }

    fn failed(&self, error: FormatError) -> SavepointError {
        SavepointError::Unwritable { file: self.file.clone(), what: error.to_string() }
    }
}
