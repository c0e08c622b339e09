//! The committed entries of a namespace in key order: its key groups merged, read in chunks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::vec::IntoIter;

use super::{KEY_GROUPS, StateError, StateReader, StoredPair};

/// Entries read from one key group at a time, at most.
const CHUNK_MAX: usize = 32;
/// About how many bytes are read ahead of all key groups, and of all scans that run at once.
const AHEAD_BYTES: usize = 1 << 20;

/// (key, key group, value): the least key on top of the heap.
type Head = Reverse<(Vec<u8>, u8, Vec<u8>)>;

/// A merge of the key groups of one namespace.
pub(super) struct Scan<'a> {
    reader: &'a dyn StateReader,
    operator: u32,
    namespace: i64,
    /// Only entries behind this key.
    after: Option<Vec<u8>>,
    /// What was read ahead of each key group; empty until the first read.
    buffers: Vec<IntoIter<StoredPair>>,
    heap: BinaryHeap<Head>,
    /// Scans that run at once.
    scans: usize,
    /// Entries to read from a key group at once. The first read of each finds out how large they are.
    chunk: usize,
}

impl<'a> Scan<'a> {
    /// A scan beside others, `scans` in all.
    pub fn new(reader: &'a dyn StateReader, operator: u32, namespace: i64, scans: usize) -> Scan<'a> {
        Scan { reader, operator, namespace, after: None, buffers: Vec::new(), heap: BinaryHeap::new(), scans, chunk: 1 }
    }

    /// The same from behind a key on.
    pub fn behind(self, after: &[u8]) -> Scan<'a> {
        Scan { after: Some(after.to_vec()), ..self }
    }

    fn read(&mut self, group: u8, after: Option<&[u8]>) -> Result<IntoIter<StoredPair>, StateError> {
        let mut chunk = Vec::new();
        self.reader.scan(self.operator, self.namespace, group, after, self.chunk, &mut chunk)?;
        let bytes: usize = chunk.iter().map(|(key, value)| key.len() + value.len() + size_of::<Head>()).sum();
        if let Some(mean) = bytes.checked_div(chunk.len()) {
            let groups = usize::from(KEY_GROUPS) * self.scans.max(1);
            self.chunk = (AHEAD_BYTES / groups / mean.max(1)).clamp(1, CHUNK_MAX);
        }
        Ok(chunk.into_iter())
    }

    fn start(&mut self) -> Result<(), StateError> {
        let after = self.after.take();
        for group in 0..KEY_GROUPS {
            let mut buffer = self.read(group, after.as_deref())?;
            self.heap.extend(buffer.next().map(|(key, value)| Reverse((key, group, value))));
            self.buffers.push(buffer);
        }
        Ok(())
    }

    /// The key that [`Scan::next`] gives.
    pub fn peek(&mut self) -> Result<Option<&[u8]>, StateError> {
        if self.buffers.is_empty() {
            self.start()?;
        }
        Ok(self.heap.peek().map(|Reverse((key, _, _))| key.as_slice()))
    }

    /// The next entry in key order.
    pub fn next(&mut self) -> Result<Option<StoredPair>, StateError> {
        self.peek()?;
        let Some(Reverse((key, group, value))) = self.heap.pop() else { return Ok(None) };
        let buffered = self.buffers.get_mut(usize::from(group)).and_then(Iterator::next);
        let head = match buffered {
            Some(head) => Some(head),
            None => {
                let mut chunk = self.read(group, Some(&key))?;
                let head = chunk.next();
                if let Some(buffer) = self.buffers.get_mut(usize::from(group)) {
                    *buffer = chunk;
                }
                head
            }
        };
        self.heap.extend(head.map(|(key, value)| Reverse((key, group, value))));
        Ok(Some((key, value)))
    }
}
