//! An independent check of LMDB's file: that its pages form the trees and the free list that they should.
//!
//! LMDB trusts its pages. A flipped bit can make a search miss a key, let a commit reuse a page that is in use, or end
//! the process by a signal; values with checksums find none of that. This module reads the file as bytes, never through
//! the map, and so cannot be ended by what it reads. It checks, for the newest of the two meta pages:
//!
//! - every page bears its own number and exactly one kind, and is reached at most once;
//! - keys ascend within pages and lie between their parents' separators; all leaves are equally deep;
//! - the counts of entries and pages in each tree's record are right, and no tree has flags that Forebay does not set;
//! - no page is both free and in use, or free twice, and none lies beyond the last page.
//!
//! What it does not check: keys and values (see [`super::layout`]), the contents of free pages, pages that are neither
//! free nor in use (lost room, no lost data), and the older meta page, which the next commit overwrites.
//!
//! Format: `MDB_page`, `MDB_node`, `MDB_meta`, `MDB_db` of LMDB 0.9.70 with 64-bit page numbers, little endian. On other
//! machines nothing is checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use thiserror::Error;

const MAGIC: u32 = 0xBEEF_C0DE;
const DATA_VERSION: u32 = 1;
const PAGE_HEADER_BYTES: usize = 16;
const NODE_HEADER_BYTES: usize = 8;
const DB_BYTES: usize = 48;
/// Within a meta page, behind the page header: magic, version, address, map size.
const DBS_AT: usize = PAGE_HEADER_BYTES + 24;
const LAST_PAGE_AT: usize = DBS_AT + 2 * DB_BYTES;
const TXN_AT: usize = LAST_PAGE_AT + 8;
const META_BYTES: usize = TXN_AT + 8;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
const META: u16 = 0x08;
const NODE_BIG: u16 = 0x01;
const NODE_TREE: u16 = 0x02;
const INTEGER_KEY: u16 = 0x08;
const NO_PAGE: u64 = u64::MAX;
/// How much is read between two pauses.
const SLICE_BYTES: u64 = 1 << 20;
/// LMDB's own bound of a tree's depth.
const DEPTH_MAX: u16 = 32;

/// Why the file is not what it should be.
#[derive(Debug, Error)]
pub enum PagesError {
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    #[error("page {page}: {what}")]
    Damaged { page: u64, what: String },
}

fn damaged(page: u64, what: impl Into<String>) -> PagesError {
    PagesError::Damaged { page, what: what.into() }
}

/// A tree's record (`MDB_db`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tree {
    pad: u32,
    flags: u16,
    depth: u16,
    branch_pages: u64,
    leaf_pages: u64,
    overflow_pages: u64,
    entries: u64,
    root: u64,
}

impl Tree {
    fn read(bytes: &[u8]) -> Option<Tree> {
        Some(Tree {
            pad: u32_at(bytes, 0)?,
            flags: u16_at(bytes, 4)?,
            depth: u16_at(bytes, 6)?,
            branch_pages: u64_at(bytes, 8)?,
            leaf_pages: u64_at(bytes, 16)?,
            overflow_pages: u64_at(bytes, 24)?,
            entries: u64_at(bytes, 32)?,
            root: u64_at(bytes, 40)?,
        })
    }
}

/// The newest of the two meta pages.
struct Meta {
    page: u64,
    page_bytes: usize,
    txn: u64,
    last_page: u64,
    free: Tree,
    main: Tree,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Checks the pages of an LMDB data file. Where commits go on meanwhile, a view that they have overwritten is given up,
/// and the newer one is checked; after some attempts nothing is said. `pause` is told now and
/// then how many bytes were read since.
///
/// # Errors
/// The first thing that is wrong, or the file cannot be read.
pub fn check(data_file: &Path, pause: &mut dyn FnMut(u64)) -> Result<(), PagesError> {
    if cfg!(not(all(target_pointer_width = "64", target_endian = "little"))) {
        return Ok(());
    }
    let file = File::open(data_file)?;
    for _ in 0..3 {
        let meta = newest_meta(&file)?;
        let checked = Check::new(&file, &meta, pause).run(&meta);
        // Pages of a view may be used again once a second commit has come after it.
        let overtaken = newest_meta(&file)?.txn > meta.txn;
        if !overtaken {
            return checked;
        }
    }
    Ok(())
}

fn newest_meta(file: &File) -> Result<Meta, PagesError> {
    let first = read_meta(file, 0, None)?;
    let second = read_meta(file, 1, first.as_ref().map(|meta| meta.page_bytes))?;
    match (first, second) {
        (Some(first), Some(second)) => Ok(if second.txn > first.txn { second } else { first }),
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (None, None) => Err(damaged(0, "neither of the two meta pages is one")),
    }
}

/// A meta page, if it is one. Where the first is none, the page size is unknown: the usual ones are tried.
fn read_meta(file: &File, page: u64, page_bytes: Option<usize>) -> Result<Option<Meta>, PagesError> {
    let sizes = page_bytes.map_or(vec![4096, 8192, 16384, 32768, 65536], |known| vec![known]);
    for size in sizes {
        let mut bytes = vec![0; META_BYTES];
        if file.read_exact_at(&mut bytes, page * size as u64).is_err() {
            continue;
        }
        let read = || {
            let is_meta = u64_at(&bytes, 0)? == page
                && u16_at(&bytes, 10)? == META
                && u32_at(&bytes, PAGE_HEADER_BYTES)? == MAGIC
                && u32_at(&bytes, PAGE_HEADER_BYTES + 4)? == DATA_VERSION;
            let free = Tree::read(bytes.get(DBS_AT..)?)?;
            let main = Tree::read(bytes.get(DBS_AT + DB_BYTES..)?)?;
            let page_bytes = usize::try_from(free.pad).ok().filter(|size| size.is_power_of_two() && *size >= 4096)?;
            let last_page = u64_at(&bytes, LAST_PAGE_AT)?;
            let txn = u64_at(&bytes, TXN_AT)?;
            is_meta.then_some(Meta { page, page_bytes, txn, last_page, free, main })
        };
        if let Some(meta) = read() {
            return Ok(Some(meta));
        }
    }
    Ok(None)
}

/// The pages seen so far.
struct Check<'a> {
    file: &'a File,
    page_bytes: usize,
    last_page: u64,
    /// A bit per page: in use, or free.
    used: Vec<u64>,
    free: Vec<u64>,
    txn: u64,
    pause: &'a mut dyn FnMut(u64),
    /// Read since the last pause.
    read_bytes: u64,
}

/// What a walk over a tree has counted.
#[derive(Default)]
struct Counted {
    branch_pages: u64,
    leaf_pages: u64,
    overflow_pages: u64,
    entries: u64,
}

/// What leaves hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Lists of free pages under numbers of transactions.
    FreeLists,
    /// Records of further trees.
    Trees,
    Values,
}

impl<'a> Check<'a> {
    fn new(file: &'a File, meta: &Meta, pause: &'a mut dyn FnMut(u64)) -> Check<'a> {
        Check {
            file,
            page_bytes: meta.page_bytes,
            last_page: meta.last_page,
            used: Vec::new(),
            free: Vec::new(),
            txn: meta.txn,
            pause,
            read_bytes: 0,
        }
    }

    fn run(&mut self, meta: &Meta) -> Result<(), PagesError> {
        let length = self.file.metadata()?.len();
        // The file may be shorter than the last page says only by pages that are free; one map is the outermost bound.
        if meta.last_page > (length / self.page_bytes as u64).saturating_add(1 << 20) {
            return Err(damaged(meta.page, format!("its last page is {}, beyond the file", meta.last_page)));
        }
        if meta.free.flags != INTEGER_KEY || meta.main.flags != 0 {
            return Err(damaged(meta.page, "a tree has flags that are never set"));
        }
        self.take(0)?;
        self.take(1)?;
        self.tree(&meta.free, Content::FreeLists)?;
        self.tree(&meta.main, Content::Trees)?;
        let both = self.used.iter().zip(&self.free).position(|(used, free)| used & free != 0);
        match both {
            Some(word) => Err(damaged(word as u64 * 64, "a page of the 64 from here on is both in use and free")),
            None => Ok(()),
        }
    }

    fn tree(&mut self, tree: &Tree, content: Content) -> Result<(), PagesError> {
        if tree.root == NO_PAGE {
            let empty = Tree { root: NO_PAGE, pad: tree.pad, flags: tree.flags, ..Tree::default() };
            return if *tree == empty { Ok(()) } else { Err(damaged(tree.root, "an empty tree has a count")) };
        }
        if !(1..=DEPTH_MAX).contains(&tree.depth) {
            return Err(damaged(tree.root, format!("a tree is {} pages deep", tree.depth)));
        }
        let mut counted = Counted::default();
        self.walk(tree.root, tree.depth, content, None, None, &mut counted)?;
        let found = (counted.branch_pages, counted.leaf_pages, counted.overflow_pages, counted.entries);
        if found != (tree.branch_pages, tree.leaf_pages, tree.overflow_pages, tree.entries) {
            return Err(damaged(tree.root, "a tree does not have as many pages or entries as its record says"));
        }
        Ok(())
    }

    /// Marks a page as in use.
    fn take(&mut self, page: u64) -> Result<(), PagesError> {
        let last = self.last_page;
        if page > last {
            return Err(damaged(page, format!("it is in use, but lies beyond the last page, {last}")));
        }
        if mark(&mut self.used, page) { Ok(()) } else { Err(damaged(page, "it is in use twice")) }
    }

    fn read(&mut self, page: u64) -> Result<Vec<u8>, PagesError> {
        if self.read_bytes >= SLICE_BYTES {
            (self.pause)(std::mem::take(&mut self.read_bytes));
            // To go on would be in vain, and what is returned does not count.
            if newest_meta(self.file)?.txn > self.txn {
                return Err(damaged(page, "a commit came meanwhile"));
            }
        }
        self.read_bytes += self.page_bytes as u64;
        let mut bytes = vec![0; self.page_bytes];
        let at = page.checked_mul(self.page_bytes as u64).ok_or_else(|| damaged(page, "there is no such page"))?;
        match self.file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(damaged(page, "it is in use, but lies beyond the end of the file"))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(bytes),
        }
    }

    fn walk(
        &mut self,
        page: u64,
        depth: u16,
        content: Content,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        counted: &mut Counted,
    ) -> Result<(), PagesError> {
        self.take(page)?;
        let bytes = self.read(page)?;
        let bad = |what: &str| damaged(page, what);
        let short = || bad("its header does not fit it");
        let kind = if depth > 1 { BRANCH } else { LEAF };
        if u64_at(&bytes, 0) != Some(page) {
            return Err(bad("it bears another number"));
        }
        if u16_at(&bytes, 10) != Some(kind) {
            return Err(bad("it is of another kind than its place in the tree asks for"));
        }
        let lower = usize::from(u16_at(&bytes, 12).ok_or_else(short)?);
        let upper = usize::from(u16_at(&bytes, 14).ok_or_else(short)?);
        if lower < PAGE_HEADER_BYTES || lower > upper || upper > self.page_bytes || lower % 2 != 0 {
            return Err(short());
        }
        let count = (lower - PAGE_HEADER_BYTES) / 2;
        if count == 0 || (kind == BRANCH && count < 2) {
            return Err(bad("it holds too few nodes"));
        }
        let mut nodes = Vec::with_capacity(count);
        for index in 0..count {
            let at = usize::from(u16_at(&bytes, PAGE_HEADER_BYTES + 2 * index).ok_or_else(short)?);
            let node = bytes.get(at..).filter(|_| at >= upper).and_then(|rest| Node::read(rest, kind));
            nodes.push(node.ok_or_else(|| bad("a node lies outside of it"))?);
        }
        // Keys: ascending, and between the parents' separators. A branch's first key is implied.
        let mut before = low;
        for node in nodes.iter().skip(usize::from(kind == BRANCH)) {
            let first = std::ptr::eq(node, nodes.first().unwrap_or(node));
            let ascends = before.is_none_or(|before| match content {
                Content::FreeLists => {
                    integer(before) < integer(node.key) || first && integer(before) == integer(node.key)
                }
                _ => before < node.key || first && before == node.key,
            });
            let below = high.is_none_or(|high| match content {
                Content::FreeLists => integer(node.key) < integer(high),
                _ => node.key < high,
            });
            if !ascends || !below {
                return Err(bad("its keys are out of order"));
            }
            before = Some(node.key);
        }
        if kind == BRANCH {
            counted.branch_pages += 1;
            for (index, node) in nodes.iter().enumerate() {
                let from = if index == 0 { low } else { Some(node.key) };
                let to = nodes.get(index + 1).map_or(high, |next| Some(next.key));
                self.walk(node.child, depth - 1, content, from, to, counted)?;
            }
            return Ok(());
        }
        counted.leaf_pages += 1;
        for node in &nodes {
            counted.entries += 1;
            let big;
            let data = match node.flags {
                NODE_BIG => {
                    big = self.overflow(page, node, counted)?;
                    big.as_slice()
                }
                0 | NODE_TREE => node.data,
                _ => return Err(bad("a node has flags that are never set")),
            };
            match content {
                Content::Values if node.flags == NODE_TREE => return Err(bad("a value is marked as a tree")),
                Content::Values => {}
                Content::Trees => {
                    let tree = Tree::read(data).filter(|_| node.flags == NODE_TREE && data.len() == DB_BYTES);
                    let tree = tree.filter(|tree| tree.flags == 0 && tree.pad == 0);
                    self.tree(&tree.ok_or_else(|| bad("the record of a tree is none"))?, Content::Values)?;
                }
                Content::FreeLists => self.free_list(page, data)?,
            }
        }
        Ok(())
    }

    /// Marks the pages of a large value; gives its bytes.
    fn overflow(&mut self, page: u64, node: &Node<'_>, counted: &mut Counted) -> Result<Vec<u8>, PagesError> {
        let first = u64_at(node.data, 0).ok_or_else(|| damaged(page, "a large value has no page"))?;
        let needed = (PAGE_HEADER_BYTES - 1 + node.data_bytes) / self.page_bytes + 1;
        let head = self.read(first)?;
        let pages = u32_at(&head, 12).unwrap_or(0) as usize;
        if u64_at(&head, 0) != Some(first) || u16_at(&head, 10) != Some(OVERFLOW) || pages != needed {
            return Err(damaged(first, "the page of a large value is none"));
        }
        let mut bytes = Vec::new();
        for page in first..first + pages as u64 {
            self.take(page)?;
            bytes.extend(self.read(page)?);
        }
        counted.overflow_pages += pages as u64;
        bytes.drain(..PAGE_HEADER_BYTES);
        bytes.truncate(node.data_bytes);
        Ok(bytes)
    }

    /// Marks the pages of a free list: their number, then the pages, descending.
    fn free_list(&mut self, page: u64, data: &[u8]) -> Result<(), PagesError> {
        let bad = || damaged(page, "a list of free pages is not in order");
        let count = u64_at(data, 0).and_then(|count| usize::try_from(count).ok()).ok_or_else(bad)?;
        let mut before = u64::MAX;
        for index in 1..=count {
            let free = u64_at(data, index.checked_mul(8).ok_or_else(bad)?).ok_or_else(bad)?;
            if free >= before || free < 2 || free > self.last_page {
                return Err(bad());
            }
            before = free;
            if !mark(&mut self.free, free) {
                return Err(damaged(free, "it is free twice"));
            }
        }
        Ok(())
    }
}

/// Sets a page's bit; `false` if it was set already.
fn mark(bits: &mut Vec<u64>, page: u64) -> bool {
    let (word, bit) = ((page / 64) as usize, 1u64 << (page % 64));
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    bits.get_mut(word).is_some_and(|bits| {
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    })
}

fn integer(key: &[u8]) -> u64 {
    u64_at(key, 0).unwrap_or(0)
}

/// A node of a page.
struct Node<'p> {
    key: &'p [u8],
    flags: u16,
    /// Of a branch: the page below.
    child: u64,
    /// Of a leaf: the data, or the number of the page that holds it.
    data: &'p [u8],
    data_bytes: usize,
}

impl<'p> Node<'p> {
    fn read(bytes: &'p [u8], kind: u16) -> Option<Node<'p>> {
        let (low, high, flags) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?, u16_at(bytes, 4)?);
        let key_end = NODE_HEADER_BYTES + usize::from(u16_at(bytes, 6)?);
        let key = bytes.get(NODE_HEADER_BYTES..key_end)?;
        let number = u64::from(low) | u64::from(high) << 16;
        if kind == BRANCH {
            return Some(Node { key, flags: 0, child: number | u64::from(flags) << 32, data: &[], data_bytes: 0 });
        }
        let data_bytes = usize::try_from(number).ok()?;
        let stored = if flags & NODE_BIG != 0 { 8 } else { data_bytes };
        let data = bytes.get(key_end..key_end.checked_add(stored)?)?;
        Some(Node { key, flags, child: 0, data, data_bytes })
    }
}
