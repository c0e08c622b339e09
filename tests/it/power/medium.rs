//! What a power cut can leave of recorded changes.
//!
//! - Synced content and lengths, and entries of synced directories, are there for certain.
//! - Of each page that was written since, any version that it has had; sectors of 512 bytes may be of two versions. Where
//!   a file is longer than what survived of it, it holds zeros.
//! - Of a file's lengths since, any. Of the creates, renames and removes since: none, all, those before some moment, or
//!   any of them. A rename is there whole or not at all.
//!
//! A [`Device`] that lies makes less of it certain: with it the tests are shown to be able to fail.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::Path;

use super::recorder::{Op, ROOT};
use crate::support::Random;

const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// What the device makes of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Honest,
    /// It ignores all syncs.
    Lies,
    /// It ignores syncs of directories.
    LosesEntries,
    /// It ignores the syncs of LMDB's meta pages: as an environment with NOMETASYNC.
    LosesMetaPages,
    /// It ignores the syncs of LMDB's other pages, so that meta pages may overtake them: as one with NOSYNC.
    ReordersPages,
}

/// What survives of what was not synced.
#[derive(Clone, Copy, Debug)]
enum Keep {
    Nothing,
    /// As after SIGKILL.
    All,
    /// What came before this operation.
    Before(usize),
    /// Each by itself, so many of a hundred whole, any version of the others.
    Any(u64),
}

enum Change<'a> {
    Write { offset: usize, data: &'a [u8] },
    Resize { length: usize },
}

#[derive(Default)]
struct FileState<'a> {
    durable: Vec<u8>,
    /// With the number of the operation.
    pending: Vec<(usize, Change<'a>)>,
}

/// Entries of directories by number.
type Dirs = HashMap<u64, BTreeMap<OsString, u64>>;

/// The files at one moment of a record: what is certain, and what is not.
pub struct Medium<'a> {
    ops: &'a [Op],
    device: Device,
    /// How many operations have happened.
    at: usize,
    files: HashMap<u64, FileState<'a>>,
    dirs: Dirs,
    /// Changes of directories, with the number of the operation.
    pending: Vec<(usize, &'a Op)>,
    pub marks: Vec<&'a str>,
}

/// A file system as it was found after a cut: directories by number, contents of files by number.
pub struct Image {
    dirs: Dirs,
    files: HashMap<u64, Vec<u8>>,
    /// How it came to be, for messages.
    pub about: String,
}

impl<'a> Medium<'a> {
    pub fn new(ops: &'a [Op], device: Device) -> Medium<'a> {
        let dirs = Dirs::from([(ROOT, BTreeMap::new())]);
        Medium { ops, device, at: 0, files: HashMap::new(), dirs, pending: Vec::new(), marks: Vec::new() }
    }

    /// Lets the operations up to `cut` happen.
    pub fn advance(&mut self, cut: usize) {
        for at in self.at..cut {
            match &self.ops[at] {
                Op::Create { inode, is_dir, .. } => {
                    if *is_dir {
                        self.dirs.insert(*inode, BTreeMap::new());
                    } else {
                        self.files.insert(*inode, FileState::default());
                    }
                    self.pending.push((at, &self.ops[at]));
                }
                Op::Rename { .. } | Op::Remove { .. } => self.pending.push((at, &self.ops[at])),
                Op::Write { inode, offset, data } => {
                    self.change(at, *inode, Change::Write { offset: *offset as usize, data })
                }
                Op::Resize { inode, length } => self.change(at, *inode, Change::Resize { length: *length as usize }),
                Op::Sync { inode } => self.sync(*inode),
                Op::Mark(text) => self.marks.push(text),
            }
        }
        self.at = self.at.max(cut);
    }

    fn change(&mut self, at: usize, inode: u64, change: Change<'a>) {
        self.files.entry(inode).or_default().pending.push((at, change));
    }

    fn sync(&mut self, inode: u64) {
        if let Some(file) = self.files.get_mut(&inode) {
            // LMDB writes into one of the two meta pages last, and syncs that by itself.
            let of_meta_page = file.pending.last().is_some_and(|(_, change)| {
                matches!(change, Change::Write { offset, data } if *offset < 2 * PAGE_BYTES && data.len() < 256)
            });
            let durable_from = match self.device {
                Device::Honest | Device::LosesEntries => 0,
                Device::LosesMetaPages if !of_meta_page => 0,
                Device::ReordersPages if of_meta_page => file.pending.len() - 1,
                Device::Lies | Device::LosesMetaPages | Device::ReordersPages => file.pending.len(),
            };
            for (_, change) in file.pending.drain(durable_from..) {
                change.apply(&mut file.durable);
            }
        } else if !matches!(self.device, Device::Lies | Device::LosesEntries) {
            let (synced, rest) = std::mem::take(&mut self.pending).into_iter().partition(|(_, op)| match op {
                Op::Create { parent, .. } | Op::Remove { parent, .. } => *parent == inode,
                Op::Rename { from, to, .. } => from.0 == inode || to.0 == inode,
                _ => false,
            });
            self.pending = rest;
            let synced: Vec<(usize, &Op)> = synced;
            synced.iter().for_each(|(_, op)| apply(op, &mut self.dirs));
        }
    }

    /// The files as a running process sees them.
    pub fn live(&self) -> Image {
        self.image(Keep::All, &mut Random(0))
    }

    /// What a power cut at this moment may leave.
    pub fn cut(&self, random: &mut Random) -> Image {
        let keep = match random.below(8) {
            0 => Keep::Nothing,
            1 => Keep::All,
            2 => Keep::Before(random.below(self.at as u64 + 1) as usize),
            3 => {
                // Within what is pending, where it matters.
                let oldest = self.files.values().flat_map(|file| file.pending.first()).map(|(at, _)| *at).min();
                let oldest = oldest.unwrap_or(self.at).min(self.at) as u64;
                Keep::Before((oldest + random.below(self.at as u64 - oldest + 1)) as usize)
            }
            _ => Keep::Any([10, 50, 90][random.below(3) as usize]),
        };
        self.image(keep, random)
    }

    fn image(&self, keep: Keep, random: &mut Random) -> Image {
        let mut dirs = self.dirs.clone();
        // Half of the time directories keep their order where pages do not: many file systems do so.
        let until = random.below(self.pending.len() as u64 + 1) as usize;
        let in_order = random.below(2) == 0;
        for (place, (at, op)) in self.pending.iter().enumerate() {
            let kept = match keep {
                Keep::Nothing => false,
                Keep::All => true,
                Keep::Before(moment) => *at < moment,
                Keep::Any(_) if in_order => place < until,
                Keep::Any(percent) => random.below(100) < percent,
            };
            if kept {
                apply(op, &mut dirs);
            }
        }
        let mut inodes: Vec<&u64> = self.files.keys().collect();
        inodes.sort();
        let files = inodes.into_iter().map(|inode| (*inode, self.files[inode].survives(keep, random))).collect();
        Image { dirs, files, about: format!("cut at operation {} of {}, {keep:?}", self.at, self.ops.len()) }
    }
}

/// Changes a directory; what has been overtaken by a later change that survived alone changes nothing.
fn apply(op: &Op, dirs: &mut Dirs) {
    let forget = |dirs: &mut Dirs, parent: &u64, name: &OsString, inode: &u64| {
        if let Some(entries) = dirs.get_mut(parent).filter(|entries| entries.get(name) == Some(inode)) {
            entries.remove(name);
        }
    };
    match op {
        Op::Create { parent, name, inode, .. } => {
            dirs.entry(*parent).or_default().insert(name.clone(), *inode);
        }
        Op::Remove { parent, name, inode } => forget(dirs, parent, name, inode),
        Op::Rename { from, to, inode } => {
            forget(dirs, &from.0, &from.1, inode);
            dirs.entry(to.0).or_default().insert(to.1.clone(), *inode);
        }
        _ => {}
    }
}

impl Change<'_> {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Resize { length } => bytes.resize(*length, 0),
            Change::Write { offset, data } => {
                if bytes.len() < offset + data.len() {
                    bytes.resize(offset + data.len(), 0);
                }
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }

    /// Changes what lies in the page that begins at `start`.
    fn apply_to_page(&self, page: &mut [u8], start: usize) {
        match self {
            Change::Resize { length } => page[length.saturating_sub(start).min(PAGE_BYTES)..].fill(0),
            Change::Write { offset, data } => {
                let (from, to) = (start.max(*offset), (start + PAGE_BYTES).min(offset + data.len()));
                if from < to {
                    page[from - start..to - start].copy_from_slice(&data[from - offset..to - offset]);
                }
            }
        }
    }

    fn pages(&self, end: usize) -> std::ops::Range<usize> {
        match self {
            Change::Resize { length } => length / PAGE_BYTES..end,
            Change::Write { offset, data } => offset / PAGE_BYTES..(offset + data.len()).div_ceil(PAGE_BYTES),
        }
    }
}

impl FileState<'_> {
    fn survives(&self, keep: Keep, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        match keep {
            Keep::Nothing => return bytes,
            Keep::All | Keep::Before(_) => {
                let moment = if let Keep::Before(moment) = keep { moment } else { usize::MAX };
                let kept = self.pending.iter().filter(|(at, _)| *at < moment);
                kept.for_each(|(_, change)| change.apply(&mut bytes));
                return bytes;
            }
            Keep::Any(_) => {}
        }
        let Keep::Any(percent) = keep else { return bytes };
        // All lengths that it has had, then all versions of each page.
        let mut lengths = vec![bytes.len()];
        for (_, change) in &self.pending {
            let before = lengths.last().copied().unwrap_or(0);
            lengths.push(match change {
                Change::Resize { length } => *length,
                Change::Write { offset, data } => before.max(offset + data.len()),
            });
        }
        let end = lengths.iter().max().map_or(0, |length| length.div_ceil(PAGE_BYTES));
        let mut touched: BTreeMap<usize, Vec<&Change<'_>>> = BTreeMap::new();
        for (_, change) in &self.pending {
            for page in change.pages(end) {
                touched.entry(page).or_default().push(change);
            }
        }
        let mut pick = |versions: usize| {
            if random.below(100) < percent { versions } else { random.below(versions as u64 + 1) as usize }
        };
        let length = lengths[pick(self.pending.len())];
        let picked: Vec<(usize, usize)> = touched.values().map(|all| (pick(all.len()), pick(all.len()))).collect();
        bytes.resize(end * PAGE_BYTES, 0);
        for ((page, changes), (first, second)) in touched.iter().zip(picked) {
            let start = page * PAGE_BYTES;
            let old = bytes[start..start + PAGE_BYTES].to_vec();
            let version = |count: usize| {
                let mut page = old.clone();
                changes[..count].iter().for_each(|change| change.apply_to_page(&mut page, start));
                page
            };
            let mut found = version(first);
            if first != second && random.below(4) == 0 {
                let other = version(second);
                for sector in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
                    if random.below(2) == 0 {
                        found[sector..sector + SECTOR_BYTES].copy_from_slice(&other[sector..sector + SECTOR_BYTES]);
                    }
                }
            }
            bytes[start..start + PAGE_BYTES].copy_from_slice(&found);
        }
        bytes.resize(length, 0);
        bytes
    }
}

impl Image {
    /// A file's content, if the file is there.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        let mut inode = ROOT;
        for name in path.split('/') {
            inode = *self.dirs.get(&inode)?.get(std::ffi::OsStr::new(name))?;
        }
        self.files.get(&inode).map(Vec::as_slice)
    }

    /// Writes everything to a new directory.
    pub fn write(&self, to: &Path) {
        self.write_dir(ROOT, to, &mut BTreeSet::new());
    }

    fn write_dir(&self, inode: u64, to: &Path, above: &mut BTreeSet<u64>) {
        std::fs::create_dir_all(to).expect("a directory");
        if !above.insert(inode) {
            return;
        }
        for (name, child) in self.dirs.get(&inode).into_iter().flatten() {
            let path = to.join(name);
            match self.files.get(child) {
                Some(bytes) => std::fs::write(path, bytes).expect("a file"),
                None => self.write_dir(*child, &path, above),
            }
        }
    }
}
