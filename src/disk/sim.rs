//! A disk in memory for simulations: everything that happens, and everything that a power cut leaves, follows from a seed.
//!
//! Each file has a live image (what a process sees) and a durable one (what the medium holds); between the two stand
//! dirty pages. Names have the same two images, with the changes since their directory was synced in between.
//!
//! - [`SimDisk::kill`]: the process dies. The live image stays, synced or not.
//! - [`SimDisk::power_cut`]: of what was not synced the seed lets any part survive, in any order: pages whole or torn
//!   within, lengths, creates, renames and removes. A rename itself is one step: done or not.
//! - While it lives, the system writes dirty pages back on its own now and then, in any order.
//! - After a sync that failed the pages count as clean, whether they reached the medium or not (as Linux does it): a
//!   second sync succeeds and writes nothing.
//! - A crash can be placed at any operation that changes something; it then happens in the middle of that operation.
//!
//! It is stricter than ext4 where POSIX is: a file's sync does not make its name durable, and unsynced name changes
//! survive independently of each other. What it does not do: directories that get lost (they are durable at once), a
//! device that lies about flushing, and time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Access, Disk, DiskFile, Lock, Stop};

const PAGE_BYTES: usize = 4096;

/// Errno of an input/output error.
const EIO: i32 = 5;

/// What goes wrong at an operation, or at the first one behind it that can go wrong in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A create or write finds no space, and as many attempts after it.
    NoSpace { more: u32 },
    /// A write takes only a part of the bytes.
    ShortWrite,
    /// A write fails; a part of the bytes may be there.
    WriteError,
    /// A sync of a file or directory fails; its pages count as clean from then on.
    SyncError,
}

/// What an operation is, as far as faults tell them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Write,
    Sync,
    Other,
}

/// See the module. Clones are handles on the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

struct State {
    random: Random,
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    /// Name changes that are not durable yet, in order.
    pending: Vec<NameChange>,
    directories: BTreeSet<PathBuf>,
    /// Locked inodes and who holds them.
    locks: BTreeMap<u64, u64>,
    next_id: u64,
    /// Counts processes: handles of earlier ones are dead.
    life: u64,
    crashed: bool,
    crash_at: Option<u64>,
    operations: u64,
    reads: u64,
    flip_at_read: Option<u64>,
    faults: Vec<(u64, Fault)>,
}

#[derive(Clone, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Clone)]
enum NameChange {
    Create { path: PathBuf, inode: u64 },
    Rename { from: PathBuf, to: PathBuf, inode: u64 },
    Remove { path: PathBuf },
}

/// A small generator of numbers (SplitMix64): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 where that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw().checked_rem(limit).unwrap_or(0)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap_or(0)
    }
}

impl Inode {
    /// Brings one page to the medium.
    fn write_back(&mut self, page: usize) {
        let (start, end) = (page * PAGE_BYTES, ((page + 1) * PAGE_BYTES).min(self.live.len()));
        if end > self.durable.len() {
            self.durable.resize(end, 0);
        }
        if let (Some(to), Some(from)) = (self.durable.get_mut(start..end), self.live.get(start..end)) {
            to.copy_from_slice(from);
        }
        self.dirty.remove(&page);
    }

    fn sync(&mut self) {
        for page in std::mem::take(&mut self.dirty) {
            self.write_back(page);
        }
        self.durable.resize(self.live.len(), 0);
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if bytes.is_empty() {
            return;
        }
        if self.live.len() < end {
            self.set_len(end);
        }
        if let Some(to) = self.live.get_mut(offset..end) {
            to.copy_from_slice(bytes);
        }
        self.dirty.extend(offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES);
    }

    fn set_len(&mut self, length: usize) {
        let before = self.live.len();
        self.live.resize(length, 0);
        self.dirty.retain(|page| page * PAGE_BYTES < length);
        if length > before {
            // What a cut has hidden must not come back.
            self.dirty.extend(before / PAGE_BYTES..=(length - 1) / PAGE_BYTES);
        }
    }

    /// What the medium holds after a power cut.
    fn power_cut(&mut self, random: &mut Random) {
        let (old, new) = (self.durable.len(), self.live.len());
        let fate = random.below(4);
        let length = match fate {
            0 => old,
            1 => new,
            _ if random.one_in(2) => old,
            _ => old.min(new) + random.index(old.abs_diff(new) + 1),
        };
        for page in std::mem::take(&mut self.dirty) {
            let kept = match fate {
                0 => continue,
                1 => 8,
                _ => random.below(12),
            };
            match kept {
                0..4 => {}
                4..7 => {
                    // Torn: one side of a byte within the page is new.
                    let before = self.durable.clone();
                    self.write_back(page);
                    let at = page * PAGE_BYTES + random.index(PAGE_BYTES);
                    let old_side = if random.one_in(2) { page * PAGE_BYTES..at } else { at..(page + 1) * PAGE_BYTES };
                    let end = old_side.end.min(self.durable.len());
                    for (at, byte) in self.durable.iter_mut().enumerate().take(end).skip(old_side.start) {
                        *byte = before.get(at).copied().unwrap_or(0);
                    }
                }
                _ => self.write_back(page),
            }
        }
        self.durable.resize(length, 0);
        self.live.clone_from(&self.durable);
    }

    /// After a failed sync: each page reached the medium or did not, and may be dropped from memory.
    fn forget_dirty(&mut self, random: &mut Random) {
        for page in std::mem::take(&mut self.dirty) {
            match random.below(3) {
                0 => self.write_back(page),
                1 => {}
                _ => {
                    let (start, end) = (page * PAGE_BYTES, ((page + 1) * PAGE_BYTES).min(self.live.len()));
                    for (at, byte) in self.live.iter_mut().enumerate().take(end).skip(start) {
                        *byte = self.durable.get(at).copied().unwrap_or(0);
                    }
                }
            }
        }
    }
}

fn apply(names: &mut BTreeMap<PathBuf, u64>, change: &NameChange) {
    match change {
        NameChange::Create { path, inode } => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Rename { from, to, inode } => {
            if names.get(from) == Some(inode) {
                names.remove(from);
            }
            names.insert(to.clone(), *inode);
        }
        NameChange::Remove { path } => {
            names.remove(path);
        }
    }
}

impl NameChange {
    fn directory(&self) -> &Path {
        let (NameChange::Create { path, .. } | NameChange::Rename { to: path, .. } | NameChange::Remove { path }) =
            self;
        path.parent().unwrap_or(path)
    }
}

fn dead() -> io::Error {
    io::Error::other("the simulated process is dead")
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl State {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn alive(&self, life: u64) -> io::Result<()> {
        if self.crashed || life != self.life { Err(dead()) } else { Ok(()) }
    }

    /// Counts an operation that changes something. `Ok(true)`: the crash comes in its middle.
    fn begin(&mut self, life: u64) -> io::Result<bool> {
        self.alive(life)?;
        self.operations += 1;
        self.crashed = self.crash_at.is_some_and(|at| self.operations >= at);
        Ok(self.crashed)
    }

    fn fault(&mut self, kind: Kind) -> Option<Fault> {
        let fits = |fault: &Fault| match fault {
            Fault::NoSpace { .. } => kind == Kind::Create || kind == Kind::Write,
            Fault::ShortWrite | Fault::WriteError => kind == Kind::Write,
            Fault::SyncError => kind == Kind::Sync,
        };
        let found = self.faults.iter().position(|(at, fault)| *at <= self.operations && fits(fault))?;
        let (at, fault) = self.faults.swap_remove(found);
        if let Fault::NoSpace { more: more @ 1.. } = fault {
            self.faults.push((at, Fault::NoSpace { more: more - 1 }));
        }
        Some(fault)
    }

    /// Changes names: wholly, or not at all where the crash comes.
    fn rename(&mut self, life: u64, kind: Kind, change: impl FnOnce(&mut State) -> NameChange) -> io::Result<()> {
        let crash = self.begin(life)?;
        if crash && self.random.one_in(2) {
            return Err(dead());
        }
        if !crash && self.fault(kind).is_some() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let change = change(self);
        apply(&mut self.names, &change);
        self.pending.push(change);
        if crash { Err(dead()) } else { Ok(()) }
    }

    fn sync_names(&mut self, directory: &Path) {
        let (now, later) = self.pending.drain(..).partition(|change| change.directory() == directory);
        self.pending = later;
        let now: Vec<NameChange> = now;
        now.iter().for_each(|change| apply(&mut self.durable_names, change));
    }

    fn inode(&mut self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(not_found)
    }

    fn create(&mut self, life: u64, path: &Path) -> io::Result<u64> {
        if !path.parent().is_some_and(|directory| self.directories.contains(directory)) {
            return Err(not_found());
        }
        let inode = self.id();
        self.inodes.insert(inode, Inode::default());
        self.rename(life, Kind::Create, |_| NameChange::Create { path: path.to_owned(), inode })?;
        Ok(inode)
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            random: Random::new(seed),
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            directories: BTreeSet::from([PathBuf::from("/")]),
            locks: BTreeMap::new(),
            next_id: 0,
            life: 0,
            crashed: false,
            crash_at: None,
            operations: 0,
            reads: 0,
            flip_at_read: None,
            faults: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations so far that changed something.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    /// The process dies in the middle of this operation (counted from 1).
    pub fn crash_at(&self, operation: u64) {
        self.state().crash_at = Some(operation);
    }

    /// A fault at this operation, or at the first one behind it that it fits.
    pub fn fault_at(&self, operation: u64, fault: Fault) {
        self.state().faults.push((operation, fault));
    }

    /// One bit of what this read gives is wrong.
    pub fn flip_at_read(&self, read: u64) {
        self.state().flip_at_read = Some(read);
    }

    /// Whether the crash has come: nothing works until [`SimDisk::kill`] or [`SimDisk::power_cut`].
    pub fn crashed(&self) -> bool {
        self.state().crashed
    }

    /// The process is gone, the machine is not. Planned faults and crashes are off.
    pub fn kill(&self) {
        let mut state = self.state();
        state.life += 1;
        state.crashed = false;
        state.crash_at = None;
        state.faults.clear();
        state.locks.clear();
    }

    /// The machine is gone; what is left is what was durable, and what the seed lets survive of the rest.
    pub fn power_cut(&self) {
        self.kill();
        let mut guard = self.state();
        let state = &mut *guard;
        let fate = state.random.below(4);
        for change in std::mem::take(&mut state.pending) {
            if fate == 1 || fate > 1 && state.random.one_in(2) {
                apply(&mut state.durable_names, &change);
            }
        }
        state.names.clone_from(&state.durable_names);
        for inode in state.inodes.values_mut() {
            inode.power_cut(&mut state.random);
        }
        let names = &state.names;
        state.inodes.retain(|inode, _| names.values().any(|named| named == inode));
    }

    /// One operation that is durable whole or not at all, and may be cut off by the crash: `change` makes it so.
    ///
    /// # Errors
    /// The crash came, before or after the change.
    pub fn atomically(&self, change: impl FnOnce()) -> io::Result<()> {
        let (crash, done) = {
            let mut state = self.state();
            let life = state.life;
            let crash = state.begin(life)?;
            (crash, !crash || state.random.one_in(2))
        };
        if done {
            change();
        }
        if crash { Err(dead()) } else { Ok(()) }
    }

    /// The live content of a file.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let mut state = self.state();
        let inode = state.inode(path).ok()?;
        state.inodes.get(&inode).map(|inode| inode.live.clone())
    }

    /// Paths of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Flips a bit of what a file holds, also on the medium.
    pub fn flip(&self, path: &Path, offset: usize, bit: u32) {
        let mut guard = self.state();
        let state = &mut *guard;
        if let Some(inode) = state.names.get(path).and_then(|inode| state.inodes.get_mut(inode)) {
            for image in [&mut inode.live, &mut inode.durable] {
                if let Some(byte) = image.get_mut(offset) {
                    *byte ^= 1u8.wrapping_shl(bit % 8);
                }
            }
        }
    }

    fn handle(&self, state: &mut State, inode: u64) -> Box<dyn DiskFile> {
        Box::new(SimFile { disk: self.clone(), inode, id: state.id(), life: state.life })
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let life = state.life;
        let inode = match state.inode(path) {
            Ok(inode) => {
                if state.begin(life)? {
                    return Err(dead());
                }
                if let Some(file) = state.inodes.get_mut(&inode) {
                    file.set_len(0);
                }
                inode
            }
            Err(_) => state.create(life, path)?,
        };
        Ok(self.handle(&mut state, inode))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let life = state.life;
        state.alive(life)?;
        let inode = match state.inode(path) {
            Err(_) if access == Access::Create => state.create(life, path)?,
            found => found?,
        };
        Ok(self.handle(&mut state, inode))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.inode(from)?;
        let (life, from, to) = (state.life, from.to_owned(), to.to_owned());
        state.rename(life, Kind::Other, |_| NameChange::Rename { from, to, inode })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.inode(path)?;
        let (life, path) = (state.life, path.to_owned());
        state.rename(life, Kind::Other, |_| NameChange::Remove { path })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        state.alive(state.life)?;
        if !state.directories.contains(dir) {
            return Err(not_found());
        }
        let within = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(within.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        state.alive(state.life)?;
        Ok(state.names.contains_key(path) || state.directories.contains(path))
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.state();
        state.alive(state.life)?;
        let inode = state.inode(path)?;
        Ok(state.inodes.get(&inode).map_or(0, |inode| inode.live.len() as u64))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.directories.contains(dir) {
            return state.alive(state.life);
        }
        let life = state.life;
        let crash = state.begin(life)?;
        if !crash || state.random.one_in(2) {
            state.directories.extend(dir.ancestors().map(Path::to_owned));
        }
        if crash { Err(dead()) } else { Ok(()) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let crash = state.begin(life)?;
        if crash && state.random.one_in(2) {
            return Err(dead());
        }
        if state.fault(Kind::Sync).is_some() {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        state.sync_names(dir);
        if crash { Err(dead()) } else { Ok(()) }
    }

    fn try_lock(&self, path: &Path, content: &[u8]) -> io::Result<Lock> {
        let file = self.open(path, Access::Create)?;
        if !file.try_lock()? {
            return Ok(Lock::Taken(self.content(path).unwrap_or_default()));
        }
        file.set_len(0)?;
        file.write_all_at(content, 0)?;
        Ok(Lock::Held(Box::new(file)))
    }

    fn wait_for_space(&self, _: Duration, stop: &Stop) -> bool {
        stop.is_requested()
    }
}

/// An open file of a [`SimDisk`].
struct SimFile {
    disk: SimDisk,
    inode: u64,
    id: u64,
    life: u64,
}

impl SimFile {
    fn with<T>(&self, f: impl FnOnce(&mut State, &mut Inode) -> io::Result<T>) -> io::Result<T> {
        let mut guard = self.disk.state();
        let state = &mut *guard;
        state.alive(self.life)?;
        let mut inode = state.inodes.remove(&self.inode).unwrap_or_default();
        let result = f(state, &mut inode);
        state.inodes.insert(self.inode, inode);
        result
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state, inode| {
            state.reads += 1;
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            let rest = inode.live.get(offset..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) else { return Ok(0) };
            to.copy_from_slice(from);
            if state.flip_at_read == Some(state.reads) {
                let at = state.random.index(count);
                if let Some(byte) = to.get_mut(at) {
                    *byte ^= 1u8.wrapping_shl(state.random.below(8) as u32);
                }
            }
            Ok(count)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(|state, inode| {
            let crash = state.begin(self.life)?;
            let fault = if crash { None } else { state.fault(Kind::Write) };
            let some = state.random.index(bytes.len() + 1);
            let taken = match fault {
                None if crash => some,
                None => bytes.len(),
                Some(Fault::ShortWrite) => some.max(1).min(bytes.len()),
                Some(Fault::WriteError) => some,
                // A full disk takes what fits.
                Some(_) => return Err(io::ErrorKind::StorageFull.into()),
            };
            inode.write(bytes.get(..taken).unwrap_or_default(), usize::try_from(offset).unwrap_or(usize::MAX));
            if state.random.one_in(8)
                && let Some(page) = inode.dirty.iter().nth(state.random.index(inode.dirty.len())).copied()
            {
                inode.write_back(page);
            }
            match fault {
                _ if crash => Err(dead()),
                Some(Fault::WriteError) => Err(io::Error::from_raw_os_error(EIO)),
                _ => Ok(taken),
            }
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.with(|state, inode| {
            let crash = state.begin(self.life)?;
            if !crash || state.random.one_in(2) {
                inode.set_len(usize::try_from(length).unwrap_or(usize::MAX));
            }
            if crash { Err(dead()) } else { Ok(()) }
        })
    }

    fn length(&self) -> io::Result<u64> {
        self.with(|_, inode| Ok(inode.live.len() as u64))
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state, inode| {
            let crash = state.begin(self.life)?;
            if crash {
                let pages: Vec<usize> = inode.dirty.iter().copied().collect();
                pages.into_iter().filter(|_| state.random.one_in(2)).for_each(|page| inode.write_back(page));
                return Err(dead());
            }
            if state.fault(Kind::Sync).is_some() {
                inode.forget_dirty(&mut state.random);
                return Err(io::Error::from_raw_os_error(EIO));
            }
            inode.sync();
            Ok(())
        })
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.with(|state, _| Ok(*state.locks.entry(self.inode).or_insert(self.id) == self.id))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.locks.get(&self.inode) == Some(&self.id) {
            state.locks.remove(&self.inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_with_dir(seed: u64) -> (SimDisk, PathBuf) {
        let disk = SimDisk::new(seed);
        let dir = PathBuf::from("/a/b");
        disk.create_dir_all(&dir).unwrap();
        (disk, dir)
    }

    #[test]
    fn what_was_synced_survives_and_nothing_that_was_never_written_appears() {
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let (disk, dir) = disk_with_dir(seed);
            let path = dir.join("f");
            let file = disk.create(&path).unwrap();
            file.append(&[1; 3 * PAGE_BYTES]).unwrap();
            file.sync().unwrap();
            disk.sync_dir(&dir).unwrap();
            file.write_all_at(&[2; 2 * PAGE_BYTES], 100).unwrap();
            file.append(&[3; PAGE_BYTES]).unwrap();
            disk.power_cut();
            assert!(file.read_at(&mut [0], 0).is_err(), "a handle of a dead process");
            let content = disk.content(&path).unwrap();
            assert!(content.len() >= 3 * PAGE_BYTES && content.len() <= 4 * PAGE_BYTES);
            assert!(content[..100].iter().all(|byte| *byte == 1));
            assert!(content[100..2 * PAGE_BYTES + 100].iter().all(|byte| *byte == 1 || *byte == 2));
            assert!(content[2 * PAGE_BYTES + 100..3 * PAGE_BYTES].iter().all(|byte| *byte == 1));
            assert!(content[3 * PAGE_BYTES..].iter().all(|byte| *byte == 0 || *byte == 3));
            seen.insert(content);
        }
        assert!(seen.len() > 100, "seeds differ: {}", seen.len());
    }

    #[test]
    fn names_survive_in_any_part_and_order() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let (disk, dir) = disk_with_dir(seed);
            disk.create(&dir.join("a")).unwrap().append(b"a").unwrap();
            disk.sync_dir(&dir).unwrap();
            disk.rename(&dir.join("a"), &dir.join("b")).unwrap();
            disk.create(&dir.join("c")).unwrap();
            disk.power_cut();
            let names = disk.list(&dir).unwrap();
            assert_eq!(names.iter().filter(|name| *name == "a" || *name == "b").count(), 1, "a rename is one step");
            seen.insert(names);
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn a_kill_keeps_all_and_lets_go_of_locks() {
        let (disk, dir) = disk_with_dir(1);
        let path = dir.join("f");
        let file = disk.open(&path, Access::Create).unwrap();
        file.append(b"abc").unwrap();
        assert!(file.try_lock().unwrap());
        let other = disk.open(&path, Access::ReadWrite).unwrap();
        assert!(!other.try_lock().unwrap());
        disk.kill();
        let file = disk.open(&path, Access::ReadWrite).unwrap();
        assert!(file.try_lock().unwrap());
        assert_eq!(disk.content(&path).unwrap(), b"abc");
    }

    #[test]
    fn after_a_failed_sync_a_second_one_succeeds_and_writes_nothing() {
        let mut lost = 0;
        for seed in 0..100 {
            let (disk, dir) = disk_with_dir(seed);
            let file = disk.create(&dir.join("f")).unwrap();
            disk.sync_dir(&dir).unwrap();
            file.append(b"abc").unwrap();
            disk.fault_at(0, Fault::SyncError);
            assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(EIO));
            file.sync().unwrap();
            disk.power_cut();
            lost += usize::from(disk.content(&dir.join("f")).unwrap() != b"abc");
        }
        assert!(lost > 20 && lost < 95, "{lost}");
    }

    #[test]
    fn faults_come_at_their_operation() {
        let (disk, dir) = disk_with_dir(3);
        let file = disk.create(&dir.join("f")).unwrap();
        let next = disk.operations() + 1;
        disk.fault_at(next, Fault::NoSpace { more: 1 });
        disk.fault_at(next + 2, Fault::ShortWrite);
        disk.fault_at(next + 3, Fault::WriteError);
        for _ in 0..2 {
            assert_eq!(file.write_at(b"abcdef", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        assert!((1..=6).contains(&file.write_at(b"abcdef", 0).unwrap()));
        assert_eq!(file.write_at(b"abcdef", 0).unwrap_err().raw_os_error(), Some(EIO));
        assert_eq!(file.write_at(b"abcdef", 0).unwrap(), 6);
        disk.flip_at_read(disk.reads() + 2);
        let mut buffer = [0; 6];
        file.read_full_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"abcdef");
        file.read_full_at(&mut buffer, 0).unwrap();
        assert_ne!(&buffer, b"abcdef");
        disk.crash_at(disk.operations() + 1);
        assert!(file.sync().is_err() && disk.crashed());
        assert!(file.read_at(&mut buffer, 0).is_err());
    }

    #[test]
    fn an_atomic_operation_is_done_or_not() {
        let mut done = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            disk.crash_at(1);
            assert!(disk.atomically(|| done += 1).is_err());
            assert!(disk.atomically(|| panic!("dead")).is_err());
        }
        assert!(done > 10 && done < 40);
    }
}
