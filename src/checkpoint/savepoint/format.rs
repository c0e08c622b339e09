//! A savepoint's bytes, format version 1: this text is the specification, this code its pure half (no I/O).
//!
//! A savepoint is a header, then blocks: one description, entries, one footer. Nothing follows the footer. Integers are
//! little-endian where nothing else is said, so that a savepoint moves between machines of any word size and byte order.
//! *CRC*: CRC32C.
//!
//! # Header
//!
//! These 16 bytes mean the same in every format version.
//!
//! | offset | bytes | content |
//! |-------:|------:|---------|
//! |      0 |     8 | magic `FOREBAYS` |
//! |      8 |     4 | format version: 1 |
//! |     12 |     4 | CRC of the 12 bytes before |
//!
//! # Block
//!
//! | offset | bytes | content |
//! |-------:|------:|---------|
//! |      0 |     1 | kind: 1 description, 2 entries, 3 footer |
//! |      1 |     1 | 1: the body is compressed (LZ4 block); 0: it is not |
//! |      2 |     2 | 0 |
//! |      4 |     4 | `s`: length of the body as it stands here |
//! |      8 |     4 | length of the body after decompression |
//! |     12 |     4 | CRC of: the CRC of the header or block before, bytes 0 to 12 of this block, the body as it stands here |
//! |     16 |   `s` | the body |
//!
//! The chain of CRCs makes a block that is missing, repeated or exchanged show at the next one.
//!
//! # Bodies
//!
//! - Description: [`CheckpointMeta`](super::super::CheckpointMeta) as postcard, with the namespaces open at the cut.
//! - Entries, one behind the other: length of the key (2), length of the value (4), key, value; both as they stand in the
//!   checkpoint's database `state` (see [`layout`](super::super::layout), version 1), value with its own CRC. Keys ascend
//!   over all blocks. A block holds entries of one operator, at least one; it ends at about [`BLOCK_BYTES`], so a longer
//!   one holds a single entry.
//! - Footer: number of blocks of entries (8); then for each operator that has entries, ascending: its number (4), the
//!   number of its entries (8), the bytes of their keys and values (8), their set hash (16), as in a key group's record of
//!   the checkpoint, but over all groups.
//!
//! Decoding is total: any bytes give a value or an error, and memory is bounded by what stands in the file, whatever the
//! length fields say.

use std::borrow::Cow;
use std::collections::BTreeMap;

use thiserror::Error;

use super::super::layout::Group;

/// Version of everything described here.
pub const FORMAT_VERSION: u32 = 1;
/// A savepoint's first bytes.
pub const MAGIC: [u8; 8] = *b"FOREBAYS";
pub const HEADER_BYTES: usize = 16;
pub const BLOCK_HEAD_BYTES: usize = 16;
/// A block of entries is closed when its body has reached this length.
pub const BLOCK_BYTES: usize = 256 << 10;
/// LZ4 never makes more than this many bytes of one.
const LZ4_RATIO_MAX: u64 = 255;

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    #[error("it does not begin as a savepoint does")]
    NotASavepoint,
    #[error("it has format version {0}")]
    Version(u32),
    #[error("the checksum of the header does not match")]
    Header,
    #[error("the checksum of a block does not match")]
    Block,
    #[error("a block is not what its head says")]
    Body,
    #[error("a block of entries does not decode")]
    Entries,
    #[error("the footer does not decode")]
    Footer,
    #[error("the state has a key or a value that is too long for a savepoint")]
    TooLong,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Description = 1,
    Entries = 2,
    Footer = 3,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The header, and its CRC: the first link of the chain.
pub fn encode_header() -> (Vec<u8>, u32) {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&header);
    header.extend_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// Reads the header; gives its CRC.
///
/// # Errors
/// It is none, or of another version.
pub fn decode_header(header: &[u8; HEADER_BYTES]) -> Result<u32, FormatError> {
    let (body, _) = header.split_at(HEADER_BYTES - 4);
    if !body.starts_with(&MAGIC) {
        return Err(FormatError::NotASavepoint);
    }
    let crc = crc32c::crc32c(body);
    if u32_at(header, HEADER_BYTES - 4) != Some(crc) {
        return Err(FormatError::Header);
    }
    match u32_at(header, MAGIC.len()) {
        Some(FORMAT_VERSION) => Ok(crc),
        other => Err(FormatError::Version(other.unwrap_or_default())),
    }
}

/// Appends a block behind the one with CRC `previous`; gives its own.
///
/// # Errors
/// [`FormatError::TooLong`].
pub fn encode_block(out: &mut Vec<u8>, kind: Kind, body: &[u8], previous: u32) -> Result<u32, FormatError> {
    let packed = lz4_flex::block::compress(body);
    let (compressed, stored) = if packed.len() < body.len() { (1, packed.as_slice()) } else { (0, body) };
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| FormatError::TooLong);
    let mut head = vec![kind as u8, compressed, 0, 0];
    head.extend_from_slice(&length(stored)?.to_le_bytes());
    head.extend_from_slice(&length(body)?.to_le_bytes());
    let crc = block_crc(previous, &head, stored);
    head.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(stored);
    Ok(crc)
}

fn block_crc(previous: u32, head: &[u8], stored: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&previous.to_le_bytes()), head), stored)
}

/// A block's head as it stands in the file; nothing of it is known to be right before [`BlockHead::open`].
#[derive(Clone, Copy, Debug)]
pub struct BlockHead([u8; BLOCK_HEAD_BYTES]);

impl BlockHead {
    pub fn new(bytes: [u8; BLOCK_HEAD_BYTES]) -> BlockHead {
        BlockHead(bytes)
    }

    /// How many bytes of body follow.
    pub fn stored_bytes(&self) -> u32 {
        u32_at(&self.0, 4).unwrap_or_default()
    }

    /// Checks the block against the CRC of what is before it; gives its own CRC, its kind and its body.
    ///
    /// # Errors
    /// The checksum does not match, or the block cannot be one.
    pub fn open<'a>(&self, stored: &'a [u8], previous: u32) -> Result<(u32, Kind, Cow<'a, [u8]>), FormatError> {
        let (head, _) = self.0.split_at(BLOCK_HEAD_BYTES - 4);
        let crc = block_crc(previous, head, stored);
        if u32_at(&self.0, BLOCK_HEAD_BYTES - 4) != Some(crc) {
            return Err(FormatError::Block);
        }
        let raw_bytes = u32_at(&self.0, 8).unwrap_or_default();
        let (kind, compressed) = match head {
            [kind, compressed, 0, 0, ..] => (*kind, *compressed),
            _ => return Err(FormatError::Body),
        };
        let kind = match kind {
            1 => Kind::Description,
            2 => Kind::Entries,
            3 => Kind::Footer,
            _ => return Err(FormatError::Body),
        };
        let body = match compressed {
            0 => Cow::Borrowed(stored),
            1 if u64::from(raw_bytes) <= stored.len() as u64 * LZ4_RATIO_MAX => {
                let unpacked = lz4_flex::block::decompress(stored, raw_bytes as usize);
                Cow::Owned(unpacked.map_err(|_| FormatError::Body)?)
            }
            _ => return Err(FormatError::Body),
        };
        if body.len() != raw_bytes as usize {
            return Err(FormatError::Body);
        }
        Ok((crc, kind, body))
    }
}

/// Appends an entry to a body.
///
/// # Errors
/// [`FormatError::TooLong`].
pub fn push_entry(body: &mut Vec<u8>, key: &[u8], stored: &[u8]) -> Result<(), FormatError> {
    let key_bytes = u16::try_from(key.len()).map_err(|_| FormatError::TooLong)?;
    let value_bytes = u32::try_from(stored.len()).map_err(|_| FormatError::TooLong)?;
    body.extend_from_slice(&key_bytes.to_le_bytes());
    body.extend_from_slice(&value_bytes.to_le_bytes());
    body.extend_from_slice(key);
    body.extend_from_slice(stored);
    Ok(())
}

/// The entry that begins at `at` in a body: where its key begins, its value, and where it ends.
///
/// # Errors
/// There is no whole entry.
pub fn entry_at(body: &[u8], at: usize) -> Result<(usize, usize, usize), FormatError> {
    let rest = body.get(at..).ok_or(FormatError::Entries)?;
    let (key_bytes, rest) = rest.split_first_chunk::<2>().ok_or(FormatError::Entries)?;
    let (value_bytes, rest) = rest.split_first_chunk::<4>().ok_or(FormatError::Entries)?;
    let (key_bytes, value_bytes) = (u16::from_le_bytes(*key_bytes), u32::from_le_bytes(*value_bytes));
    let length = u64::from(key_bytes) + u64::from(value_bytes);
    if length > rest.len() as u64 {
        return Err(FormatError::Entries);
    }
    let key = at + 6;
    let value = key + usize::from(key_bytes);
    Ok((key, value, value + value_bytes as usize))
}

/// What all entries amount to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Blocks of entries.
    pub blocks: u64,
    pub operators: BTreeMap<u32, Group>,
}

impl Footer {
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.blocks.to_le_bytes().to_vec();
        for (operator, sum) in &self.operators {
            body.extend_from_slice(&operator.to_le_bytes());
            body.extend_from_slice(&sum.count.to_le_bytes());
            body.extend_from_slice(&sum.bytes.to_le_bytes());
            body.extend_from_slice(&sum.hash.to_le_bytes());
        }
        body
    }

    /// Reads what [`Footer::encode`] gives.
    ///
    /// # Errors
    /// The bytes are no footer.
    pub fn decode(body: &[u8]) -> Result<Footer, FormatError> {
        let (blocks, mut rest) = body.split_first_chunk::<8>().ok_or(FormatError::Footer)?;
        let mut footer = Footer { blocks: u64::from_le_bytes(*blocks), operators: BTreeMap::new() };
        while !rest.is_empty() {
            let (operator, tail) = rest.split_first_chunk::<4>().ok_or(FormatError::Footer)?;
            let (count, tail) = tail.split_first_chunk::<8>().ok_or(FormatError::Footer)?;
            let (bytes, tail) = tail.split_first_chunk::<8>().ok_or(FormatError::Footer)?;
            let (hash, tail) = tail.split_first_chunk::<16>().ok_or(FormatError::Footer)?;
            rest = tail;
            let operator = u32::from_le_bytes(*operator);
            let sum = Group {
                count: u64::from_le_bytes(*count),
                bytes: u64::from_le_bytes(*bytes),
                hash: u128::from_le_bytes(*hash),
            };
            if footer.operators.last_key_value().is_some_and(|(last, _)| *last >= operator) {
                return Err(FormatError::Footer);
            }
            footer.operators.insert(operator, sum);
        }
        Ok(footer)
    }
}
