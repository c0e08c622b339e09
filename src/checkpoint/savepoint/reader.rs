//! Reads a savepoint and checks all of it on the way.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::format::{self, BLOCK_HEAD_BYTES, BlockHead, Footer, FormatError, HEADER_BYTES, Kind};
use super::{Pair, SavepointError};
use crate::checkpoint::CheckpointMeta;
use crate::checkpoint::layout;

/// A place between blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    offset: u64,
    /// CRC of what is before it.
    previous: u32,
}

/// Reads a savepoint from its beginning. Its entries are trusted as they come; that none is missing is known only when
/// [`SavepointReader::next`] has given `None`.
pub struct SavepointReader<R> {
    input: R,
    file: PathBuf,
    length: u64,
    at: Place,
    meta: CheckpointMeta,
    /// Body of the block of entries at hand, and where the next entry begins.
    body: Vec<u8>,
    next: usize,
    last_key: Vec<u8>,
    /// What came so far.
    counted: Footer,
    /// Where the first block of each operator begins.
    first_blocks: BTreeMap<u32, Place>,
    ended: bool,
    /// Went to a place by [`SavepointReader::go_to`]: what is counted says nothing any more.
    jumped: bool,
}

impl SavepointReader<File> {
    /// Opens a savepoint.
    ///
    /// # Errors
    /// It cannot be read, is none, or its beginning is damaged or of another version.
    pub fn open(file: &Path) -> Result<SavepointReader<File>, SavepointError> {
        let input = File::open(file).map_err(SavepointError::io("open", file))?;
        let length = input.metadata().map_err(SavepointError::io("read", file))?.len();
        SavepointReader::new(input, length, file)
    }
}

impl<R: Read> SavepointReader<R> {
    /// Reads the beginning of a savepoint of `length` bytes; `file` is its name, for messages.
    ///
    /// # Errors
    /// As [`SavepointReader::open`].
    pub fn new(input: R, length: u64, file: &Path) -> Result<SavepointReader<R>, SavepointError> {
        let mut reader = SavepointReader {
            input,
            file: file.to_owned(),
            length,
            at: Place { offset: 0, previous: 0 },
            meta: CheckpointMeta::default(),
            body: Vec::new(),
            next: 0,
            last_key: Vec::new(),
            counted: Footer::default(),
            first_blocks: BTreeMap::new(),
            ended: false,
            jumped: false,
        };
        let header = reader.take_array::<HEADER_BYTES>()?;
        reader.at.previous = format::decode_header(&header).map_err(|error| reader.bad(&error))?;
        reader.at.offset = HEADER_BYTES as u64;
        let description = match reader.block()? {
            (Kind::Description, body) => body,
            _ => return Err(reader.corrupt("it does not begin with a description")),
        };
        reader.meta = match postcard::take_from_bytes(&description) {
            Ok((meta, [])) => meta,
            _ => return Err(reader.corrupt("its description does not decode")),
        };
        Ok(reader)
    }

    /// What the checkpoint says about itself.
    pub fn meta(&self) -> &CheckpointMeta {
        &self.meta
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.at.offset
    }

    /// Bytes of the whole file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What has come so far: blocks, and the sum of each operator's entries.
    pub fn counted(&self) -> &Footer {
        &self.counted
    }

    /// The next entry (key and value as stored); `None` behind the last one, when the whole savepoint was right.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing that is wrong.
    #[expect(clippy::should_implement_trait, reason = "it lends")]
    pub fn next(&mut self) -> Result<Option<Pair<'_>>, SavepointError> {
        let is_first = self.next >= self.body.len();
        if is_first && !self.next_block()? {
            return Ok(None);
        }
        let (key, value, end) = format::entry_at(&self.body, self.next).map_err(|error| self.bad(&error))?;
        self.next = end;
        self.check(key, value, end, is_first)?;
        Ok(Some((self.body.get(key..value).unwrap_or_default(), self.body.get(value..end).unwrap_or_default())))
    }

    fn check(&mut self, key: usize, value: usize, end: usize, is_first: bool) -> Result<(), SavepointError> {
        let lmdb_key = self.body.get(key..value).unwrap_or_default();
        let stored = self.body.get(value..end).unwrap_or_default();
        let entry = layout::decode_state(lmdb_key, stored).map_err(|what| self.corrupt(what))?;
        if lmdb_key <= self.last_key.as_slice() {
            return Err(self.corrupt("keys are out of order"));
        }
        let operator = self.meta.operators.iter().find(|operator| operator.id == entry.operator);
        if operator.is_none_or(|operator| !operator.namespaces.contains(&entry.namespace)) {
            return Err(self.corrupt("an entry belongs to no operator's open namespace"));
        }
        if !is_first && self.last_key.get(..4) != lmdb_key.get(..4) {
            return Err(self.corrupt("a block holds entries of two operators"));
        }
        self.counted.operators.entry(entry.operator).or_default().add(lmdb_key, stored);
        self.last_key.clear();
        self.last_key.extend_from_slice(lmdb_key);
        Ok(())
    }

    /// Goes to the next block of entries; false: that was the last one, and all is right.
    fn next_block(&mut self) -> Result<bool, SavepointError> {
        if self.ended {
            return Ok(false);
        }
        let place = self.at;
        match self.block()? {
            (Kind::Entries, body) => {
                if body.is_empty() {
                    return Err(self.corrupt("a block of entries is empty"));
                }
                self.counted.blocks += 1;
                if let Some(operator) = body.get(6..).and_then(super::operator_of) {
                    self.first_blocks.entry(operator).or_insert(place);
                }
                self.body = body;
                self.next = 0;
                Ok(true)
            }
            (Kind::Footer, body) => {
                let footer = Footer::decode(&body).map_err(|error| self.bad(&error))?;
                if footer != self.counted && !self.jumped {
                    return Err(self.corrupt("its entries are not those that its footer counts"));
                }
                if self.at.offset != self.length {
                    return Err(self.corrupt("there are bytes behind its footer"));
                }
                self.ended = true;
                Ok(false)
            }
            (Kind::Description, _) => Err(self.corrupt("a block is out of place")),
        }
    }

    fn block(&mut self) -> Result<(Kind, Vec<u8>), SavepointError> {
        let head = BlockHead::new(self.take_array::<BLOCK_HEAD_BYTES>()?);
        let stored_bytes = u64::from(head.stored_bytes());
        if stored_bytes > self.length.saturating_sub(self.at.offset + BLOCK_HEAD_BYTES as u64) {
            return Err(self.corrupt("it ends in the middle of a block, or a block's length is wrong"));
        }
        let mut stored = vec![0; head.stored_bytes() as usize];
        self.take(&mut stored)?;
        let opened = head.open(&stored, self.at.previous).map(|(crc, kind, body)| (crc, kind, body.into_owned()));
        let (crc, kind, body) = opened.map_err(|error| self.bad(&error))?;
        self.at = Place { offset: self.at.offset + BLOCK_HEAD_BYTES as u64 + stored_bytes, previous: crc };
        Ok((kind, body))
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], SavepointError> {
        let mut bytes = [0; N];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    fn take(&mut self, bytes: &mut [u8]) -> Result<(), SavepointError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.corrupt("it ends before its footer"),
            _ => SavepointError::io("read", &self.file)(error),
        })
    }

    fn corrupt(&self, what: &str) -> SavepointError {
        SavepointError::Corrupt { file: self.file.clone(), offset: self.at.offset, what: what.to_owned() }
    }

    fn bad(&self, error: &FormatError) -> SavepointError {
        match error {
            FormatError::Version(found) => SavepointError::Version { file: self.file.clone(), found: *found },
            error => self.corrupt(&error.to_string()),
        }
    }
}

impl<R: Read + Seek> SavepointReader<R> {
    /// Goes to the first entry of an operator, as far as one was seen already; false: none was. From there on entries
    /// are checked one by one, but the footer is not compared any more: read all of them once before.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn go_to(&mut self, operator: u32) -> Result<bool, SavepointError> {
        let Some(place) = self.first_blocks.get(&operator).copied() else { return Ok(false) };
        self.input.seek(SeekFrom::Start(place.offset)).map_err(SavepointError::io("read", &self.file))?;
        self.at = place;
        self.body.clear();
        self.next = 0;
        self.last_key.clear();
        self.ended = false;
        self.jumped = true;
        Ok(true)
    }
}
