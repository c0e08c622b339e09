//! The LMDB environment: creation, the one write transaction of a checkpoint, snapshots, reading from other processes,
//! verification. The only user of `heed`.
//!
//! - The map is reserved once and never grows under readers. No WRITEMAP, no NOSYNC.
//! - A new environment is built beside its place, synced and renamed: it is there whole or not at all. Opening an
//!   existing one writes nothing.
//! - Read transactions are not bound to threads, so that the engine's snapshot may move with the engine. A snapshot
//!   pins the pages of its commit: renew it after each commit; readers of other processes use short transactions, but
//!   those who need all of one checkpoint (`bulk`).

mod bulk;

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls};
use rustix::io::Errno;

use super::layout::{self, Group, META_KEY, RecordError, WEAR_KEY};
use super::meta::{CheckpointMeta, HISTORY_MAX, HistoryEntry, OperatorTotals};
use super::pages::{self, PagesError};
use super::readers::ReaderWatch;
use super::{CheckpointError, CheckpointView, Checkpoints, Layer};
use crate::access;
use crate::state::{Change, Frozen, KEY_GROUPS, StateError, StateReader, StoredPair};

pub use bulk::{Import, Pinned};

/// Address space that is reserved for the map: what a state can grow to.
#[cfg(target_pointer_width = "64")]
const MAP_BYTES: usize = 64 << 30;
#[cfg(not(target_pointer_width = "64"))]
const MAP_BYTES: usize = MAP_BYTES_MIN;
/// What is reserved at least, where a process may not have more (`ulimit -v`, valgrind).
const MAP_BYTES_MIN: usize = 1 << 30;

/// A failed write while less than this is free is for want of space: LMDB says EIO for it.
const RESERVE_BYTES: u64 = 16 << 20;

const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "lock.mdb";

/// Takes an entry: key and value as stored.
pub type Visit<'a, E> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), E>;

type Db = Database<'static, Bytes, Bytes>;
type Txn = RoTxn<'static, WithoutTls>;

#[derive(Clone, Copy)]
struct Databases {
    meta: Db,
    history: Db,
    state: Db,
    groups: Db,
}

/// Whether an environment may be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Create it where there is none: when the state itself is created, only.
    Create,
    /// It must be there.
    Existing,
}

/// An open environment.
struct Environment {
    env: Env<WithoutTls>,
    dbs: Databases,
    dir: PathBuf,
    /// The engine's: dropped last, as it must be (see there).
    readers: Option<Mutex<ReaderWatch>>,
}

fn open_env(dir: &Path, flags: EnvFlags) -> Result<Env<WithoutTls>, CheckpointError> {
    let mut map_bytes = MAP_BYTES;
    loop {
        match open_env_with(dir, flags, map_bytes) {
            Err(heed::Error::Io(error))
                if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::OutOfMemory)
                    && map_bytes > MAP_BYTES_MIN =>
            {
                map_bytes /= 2;
            }
            opened => return opened.map_err(|error| lmdb_error(dir, "open the checkpoint in", error)),
        }
    }
}

#[expect(unsafe_code, reason = "heed marks every opening of a memory map as unsafe")]
fn open_env_with(dir: &Path, flags: EnvFlags, map_bytes: usize) -> heed::Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_bytes).max_dbs(4);
    // SAFETY: only LMDB writes to the file while it is mapped: the state directory belongs to one engine (LOCK), other
    // processes open it read-only, and LMDB's lock file keeps them apart. The flags used (READ_ONLY, and NO_LOCK where
    // there is no writer) do not weaken that.
    unsafe {
        options.flags(flags);
        options.open(dir)
    }
}

fn lmdb_error(dir: &Path, action: &'static str, error: heed::Error) -> CheckpointError {
    let dir = dir.to_owned();
    match error {
        heed::Error::EnvAlreadyOpened => CheckpointError::AlreadyOpen { dir },
        heed::Error::Io(source) => {
            let source = access::explained(&dir.join(DATA_FILE), source);
            CheckpointError::Io { action, path: dir, source }
        }
        // Then the file is as long as the map.
        heed::Error::Mdb(MdbError::MapFull) => {
            let file_bytes = fs::metadata(dir.join(DATA_FILE)).map(|file| file.len());
            CheckpointError::MapFull { dir, map_bytes: file_bytes.unwrap_or(MAP_BYTES as u64) }
        }
        heed::Error::Mdb(
            MdbError::Corrupted
            | MdbError::PageNotFound
            | MdbError::Invalid
            | MdbError::VersionMismatch
            | MdbError::Incompatible,
        ) => CheckpointError::Corrupt { dir, what: error.to_string() },
        other => CheckpointError::Lmdb { action, dir, source: Box::new(other) },
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    move |source| CheckpointError::Io { action, path: path.to_owned(), source: access::explained(path, source) }
}

/// Whether an environment is in `dir`.
fn is_there(dir: &Path) -> Result<bool, CheckpointError> {
    let data = dir.join(DATA_FILE);
    data.try_exists().map_err(io_error("read", &data))
}

fn sync_dir(dir: &Path) -> Result<(), CheckpointError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error("sync", dir))
}

/// The databases, if all are there.
fn find_databases(env: &Env<WithoutTls>) -> heed::Result<Option<Databases>> {
    let txn = env.read_txn()?;
    let found = env.open_databases_and_commit(txn, |opener, txn| {
        let open = |name| opener.open_database::<Bytes, Bytes>(txn, Some(name));
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit((
            open("meta")?,
            open("history")?,
            open("state")?,
            open("groups")?,
        )))
    })?;
    Ok(match found {
        CommitOrAbort::Commit((Some(meta), Some(history), Some(state), Some(groups))) => {
            Some(Databases { meta, history, state, groups })
        }
        _ => None,
    })
}

/// Builds an empty environment beside `dir` and renames it there.
fn create(dir: &Path) -> Result<(), CheckpointError> {
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let staging = parent.join(name);
    match fs::remove_dir_all(&staging) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_error("remove", &staging)(error)),
        _ => {}
    }
    fs::create_dir_all(&staging).map_err(io_error("create", &staging))?;
    let env = open_env(&staging, EnvFlags::empty())?;
    let made = env.write_txn().and_then(|txn| {
        env.create_databases_and_commit(txn, |opener, txn| {
            for name in ["meta", "history", "state", "groups"] {
                opener.create_database::<Bytes, Bytes>(txn, Some(name))?;
            }
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(()))
        })
    });
    made.map_err(|error| lmdb_error(&staging, "create the checkpoint in", error))?;
    env.prepare_for_closing().wait();
    sync_dir(&staging)?;
    fs::rename(&staging, dir).map_err(io_error("create", dir))?;
    sync_dir(parent)
}

impl Environment {
    fn open(dir: &Path, flags: EnvFlags) -> Result<Environment, CheckpointError> {
        let env = open_env(dir, flags)?;
        let dbs = find_databases(&env).map_err(|error| lmdb_error(dir, "read the checkpoint in", error))?;
        let Some(dbs) = dbs else { return Err(corrupt(dir, "its databases are not there".to_owned())) };
        Ok(Environment { env, dbs, dir: dir.to_owned(), readers: None })
    }

    fn read_error(&self, error: heed::Error) -> CheckpointError {
        lmdb_error(&self.dir, "read the checkpoint in", error)
    }

    fn write_error(&self, error: heed::Error) -> CheckpointError {
        write_error(&self.dir, error, || free_bytes(&self.dir))
    }

    fn corrupt(&self, what: &str, lmdb_key: &[u8]) -> CheckpointError {
        corrupt(&self.dir, format!("{what} (key {})", hex(lmdb_key)))
    }

    /// Whether an entry of the state is that of this key, and not of another one that has the same place.
    fn is_of(&self, key: &[u8], (lmdb_key, stored): (&[u8], &[u8])) -> Result<bool, CheckpointError> {
        let entry = layout::decode_state(lmdb_key, stored).map_err(|what| self.corrupt(what, lmdb_key))?;
        Ok(*entry.key == *key)
    }

    fn begin(&self) -> Result<Txn, CheckpointError> {
        self.env.clone().static_read_txn().map_err(|error| self.read_error(error))
    }

    fn record<T: serde::de::DeserializeOwned>(&self, lmdb_key: &[u8], stored: &[u8]) -> Result<T, CheckpointError> {
        layout::decode_record(lmdb_key, stored).map_err(|error| match error {
            RecordError::Corrupt(what) => self.corrupt(&what, lmdb_key),
            RecordError::Version(found) => CheckpointError::Version { dir: self.dir.clone(), found },
        })
    }

    fn meta(&self, txn: &RoTxn<'_>) -> Result<Option<CheckpointMeta>, CheckpointError> {
        let stored = self.dbs.meta.get(txn, META_KEY).map_err(|error| self.read_error(error))?;
        if stored.is_none() && !self.dbs.history.is_empty(txn).map_err(|error| self.read_error(error))? {
            return Err(self.corrupt("the checkpoint's description is not there", META_KEY));
        }
        let Some(stored) = stored else { return Ok(None) };
        let mut meta: CheckpointMeta = self.record(META_KEY, stored)?;
        if let Some(stored) = self.dbs.meta.get(txn, WEAR_KEY).map_err(|error| self.read_error(error))? {
            meta.wear = self.record(WEAR_KEY, stored)?;
        }
        Ok(Some(meta))
    }

    fn history(&self, txn: &RoTxn<'_>) -> Result<Vec<HistoryEntry>, CheckpointError> {
        let entries = self.dbs.history.iter(txn).map_err(|error| self.read_error(error))?;
        entries
            .map(|entry| {
                let (key, stored) = entry.map_err(|error| self.read_error(error))?;
                self.record(key, stored)
            })
            .collect()
    }

    /// The entries of the state whose keys begin with `prefix`, from the first behind the key `after`.
    fn state_range<'t>(
        &self,
        txn: &'t RoTxn<'_>,
        prefix: &[u8],
        after: Option<&[u8]>,
    ) -> Result<heed::RoRange<'t, Bytes, Bytes>, CheckpointError> {
        let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let end = layout::prefix_end(prefix);
        let range = (start, end.as_ref().map(Vec::as_slice));
        self.dbs.state.range(txn, &range).map_err(|error| self.read_error(error))
    }

    /// Every key group on record.
    fn groups(&self, txn: &RoTxn<'_>) -> Result<BTreeMap<(u32, u8), Group>, CheckpointError> {
        let entries = self.dbs.groups.iter(txn).map_err(|error| self.read_error(error))?;
        entries
            .map(|entry| {
                let (key, stored) = entry.map_err(|error| self.read_error(error))?;
                Group::decode(key, stored).map_err(|what| self.corrupt(what, key))
            })
            .collect()
    }

    /// What each operator's state amounts to, in the order of `meta.operators`.
    fn totals(&self, txn: &RoTxn<'_>, meta: &CheckpointMeta) -> Result<Vec<OperatorTotals>, CheckpointError> {
        let mut sums: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for ((operator, _), group) in self.groups(txn)? {
            let (keys, bytes) = sums.entry(operator).or_default();
            *keys = keys.wrapping_add(group.count);
            *bytes = bytes.wrapping_add(group.bytes);
        }
        let totals = meta.operators.iter().map(|operator| {
            let (keys, bytes) = sums.remove(&operator.id).unwrap_or_default();
            OperatorTotals { name: operator.name.clone(), keys, bytes }
        });
        let totals = totals.collect();
        match sums.first_key_value() {
            None => Ok(totals),
            Some((operator, _)) => {
                Err(misuse(format!("there is state of operator {operator}, which the checkpoint does not name")))
            }
        }
    }

    /// Checks everything, and shows every entry to `visit`.
    fn verify<E: From<CheckpointError>>(&self, txn: &RoTxn<'_>, visit: Visit<'_, E>) -> Result<Verified, E> {
        let meta = self.meta(txn)?.unwrap_or_default();
        let mut verified = Verified::default();
        let operators: BTreeSet<u32> = meta.operators.iter().map(|operator| operator.id).collect();
        for operator in operators {
            for group in 0..KEY_GROUPS {
                verified.add(self.verify_group(txn, &meta, operator, group, visit)?);
            }
        }
        self.verify_rest(txn, &meta)?;
        Ok(verified)
    }

    /// Checks the entries of a key group, shows them to `visit`, and checks that they are those on record.
    fn verify_group<E: From<CheckpointError>>(
        &self,
        txn: &RoTxn<'_>,
        meta: &CheckpointMeta,
        operator: u32,
        number: u8,
        visit: Visit<'_, E>,
    ) -> Result<Group, E> {
        let read_error = |error| self.read_error(error);
        let namespaces = meta.operators.iter().find(|known| known.id == operator).map(|known| &known.namespaces);
        let prefix = layout::group_key(operator, number);
        let mut counted = Group::default();
        let mut last: Vec<u8> = Vec::new();
        for entry in self.dbs.state.prefix_iter(txn, &prefix).map_err(read_error)? {
            let (key, stored) = entry.map_err(read_error)?;
            if key <= last.as_slice() {
                return Err(self.corrupt("keys are out of order", key).into());
            }
            last.clear();
            last.extend_from_slice(key);
            let entry = layout::decode_state(key, stored).map_err(|what| self.corrupt(what, key))?;
            // A damaged branch page can hide from a lookup what a walk over the leaves still finds.
            if self.dbs.state.get(txn, key).map_err(read_error)? != Some(stored) {
                return Err(self.corrupt("an entry cannot be looked up", key).into());
            }
            if namespaces.is_none_or(|namespaces| !namespaces.contains(&entry.namespace)) {
                return Err(self.corrupt("an entry belongs to no operator's open namespace", key).into());
            }
            visit(key, stored)?;
            counted.add(key, stored);
        }
        let recorded = match self.dbs.groups.get(txn, &prefix).map_err(read_error)? {
            None => Group::default(),
            Some(stored) => Group::decode(&prefix, stored).map_err(|what| self.corrupt(what, &prefix))?.1,
        };
        if counted != recorded {
            let (found, expected) = (counted.count, recorded.count);
            let what = format!(
                "key group {number} of operator {operator} holds {found} entries that are not the {expected} on record"
            );
            return Err(corrupt(&self.dir, what).into());
        }
        Ok(counted)
    }

    /// Checks what is stored beside the entries, and that there are no others than those of the key groups on record.
    fn verify_rest(&self, txn: &RoTxn<'_>, meta: &CheckpointMeta) -> Result<(), CheckpointError> {
        let groups = self.groups(txn)?;
        let recorded = groups.values().fold(0u64, |sum, group| sum.wrapping_add(group.count));
        let stray = groups.keys().any(|(operator, _)| !meta.operators.iter().any(|known| known.id == *operator));
        if stray || recorded != self.dbs.state.len(txn).map_err(|error| self.read_error(error))? {
            return Err(corrupt(&self.dir, "there are entries that belong to no key group on record".to_owned()));
        }
        let history = self.history(txn)?;
        if history.last().map_or(0, |entry| entry.id) != meta.id {
            return Err(corrupt(&self.dir, "its history does not end with the checkpoint itself".to_owned()));
        }
        Ok(())
    }
}

fn corrupt(dir: &Path, what: String) -> CheckpointError {
    CheckpointError::Corrupt { dir: dir.to_owned(), what }
}

fn misuse(what: String) -> CheckpointError {
    CheckpointError::Misuse { what }
}

/// The beginning of a key, for messages.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(48).map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that an unprivileged process can still write to the file system of `dir`.
fn free_bytes(dir: &Path) -> Option<u64> {
    rustix::fs::statvfs(dir).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// A failed write, told apart: for want of space (LMDB says EIO), or for good.
///
/// To try again is right also where it was the sync that failed, unlike for a log: the pages that it lost are those of a
/// transaction that came to nothing. A later one writes all of its own again and syncs them before its meta page.
fn write_error(dir: &Path, error: heed::Error, free_bytes: impl FnOnce() -> Option<u64>) -> CheckpointError {
    if let heed::Error::Io(io) = &error {
        let errno = Errno::from_io_error(io);
        let free = match errno {
            Some(Errno::NOSPC | Errno::DQUOT) => free_bytes().or(Some(0)),
            Some(Errno::IO) => free_bytes().filter(|free| *free < RESERVE_BYTES),
            _ => None,
        };
        if let Some(free_bytes) = free {
            return CheckpointError::NoSpace { dir: dir.to_owned(), free_bytes };
        }
    }
    lmdb_error(dir, "write a checkpoint in", error)
}

/// What a check of a whole environment went over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub entries: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    pub groups: u64,
}

impl Verified {
    fn add(&mut self, group: Group) {
        self.entries += group.count;
        self.bytes += group.bytes;
        self.groups += u64::from(group.count > 0);
    }
}

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// From the begin of the transaction to the end of its sync.
    pub duration: Duration,
    /// Entries put and deleted, a namespace's removed entries each counted.
    pub changes: u64,
    /// Bytes of keys and values put.
    pub bytes_written: u64,
    /// Bytes of the pages that LMDB wrote.
    pub device_bytes: u64,
    /// Totals per operator after the commit.
    pub operators: Vec<OperatorTotals>,
}

/// The engine's handle: writes checkpoints, gives snapshots.
#[derive(Clone)]
pub struct CheckpointStore {
    env: Arc<Environment>,
    /// Id and duration in µs of the last commit, for its history entry.
    last: Arc<Mutex<Option<(u64, u64)>>>,
}

impl CheckpointStore {
    /// Opens the environment in `dir`, the `checkpoint` directory of a state.
    ///
    /// # Errors
    /// It is not there, is not an environment, is of another version, or cannot be read.
    pub fn open(dir: &Path, mode: OpenMode) -> Result<CheckpointStore, CheckpointError> {
        if !is_there(dir)? {
            let is_free = match fs::read_dir(dir) {
                Ok(mut entries) => entries.next().is_none(),
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) => return Err(io_error("read", dir)(error)),
            };
            match mode {
                OpenMode::Existing => return Err(CheckpointError::Missing { dir: dir.to_owned() }),
                OpenMode::Create if !is_free => return Err(corrupt(dir, format!("{DATA_FILE} is not there"))),
                OpenMode::Create => create(dir)?,
            }
        }
        let mut env = Environment::open(dir, EnvFlags::empty())?;
        env.env.clear_stale_readers().map_err(|error| env.read_error(error))?;
        let lock_file = dir.join(LOCK_FILE);
        let readers = ReaderWatch::new(&lock_file, &dir.join(DATA_FILE)).map_err(io_error("open", &lock_file))?;
        env.readers = Some(Mutex::new(readers));
        let store = CheckpointStore { env: Arc::new(env), last: Arc::default() };
        // Refuses another format version before anything else is read.
        store.reader().latest()?;
        Ok(store)
    }

    /// The reading side.
    pub fn reader(&self) -> CheckpointReader {
        CheckpointReader { env: Arc::clone(&self.env) }
    }

    /// A view of the last commit for the operators' state.
    ///
    /// # Errors
    /// LMDB gives no read transaction.
    pub fn snapshot(&self) -> Result<Snapshot, CheckpointError> {
        let txn = Mutex::new(self.env.begin()?);
        Ok(Snapshot { env: Arc::clone(&self.env), txn })
    }

    /// Writes a checkpoint: one transaction, durable when this returns. `layers` has one layer, maybe an empty one, for
    /// each operator of `meta`; they fill in the operators' namespaces.
    ///
    /// # Errors
    /// [`CheckpointError::NoSpace`]: nothing changed, try again when there is space. Any other: nothing changed, and
    /// the process should end.
    pub fn commit(
        &self,
        meta: &CheckpointMeta,
        layers: &[(u32, Arc<dyn Frozen>)],
    ) -> Result<CommitStats, CheckpointError> {
        let result = self.write(meta, layers);
        let disk_is_full = matches!(result, Err(CheckpointError::NoSpace { .. }));
        if let Some(readers) = self.env.readers.as_ref().filter(|_| disk_is_full || result.is_ok()) {
            let last_txn = self.env.env.info().last_txn_id as u64;
            readers.lock().unwrap_or_else(PoisonError::into_inner).look(last_txn, disk_is_full);
        }
        result
    }

    fn write(&self, meta: &CheckpointMeta, layers: &[(u32, Arc<dyn Frozen>)]) -> Result<CommitStats, CheckpointError> {
        let started = Instant::now();
        let written_before = written_by_this_thread();
        let meta = with_namespaces(meta, layers)?;
        let env = &*self.env;
        // A reader that was killed must not keep pages from being used again.
        env.env.clear_stale_readers().map_err(|error| env.read_error(error))?;
        let mut writer = Writer::begin(env)?;
        for (operator, layer) in layers {
            let mut failed = None;
            layer.for_each(&mut |change| match writer.apply(*operator, change) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        writer.write_groups()?;
        let operators = env.totals(&writer.txn, &meta)?;
        let own = HistoryEntry {
            changes: writer.changes,
            bytes_written: writer.bytes,
            ..HistoryEntry::unsynced(&meta, micros(started.elapsed()), operators.clone())
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_history(&own, *last)?;
        writer.put_record(env.dbs.meta, META_KEY, &meta)?;
        writer.put_record(env.dbs.meta, WEAR_KEY, &meta.wear)?;
        let Writer { txn, changes, bytes, .. } = writer;
        txn.commit().map_err(|error| env.write_error(error))?;
        let duration = started.elapsed();
        *last = Some((meta.id, micros(duration)));
        let written = written_by_this_thread().zip(written_before).map(|(after, before)| after.saturating_sub(before));
        let device_bytes = written.unwrap_or(bytes).next_multiple_of(4096);
        Ok(CommitStats { duration, changes, bytes_written: bytes, device_bytes, operators })
    }
}

/// Bytes that this thread has given to the system to write; LMDB tells nobody how many pages a transaction writes. `None`
/// where the kernel does not count.
fn written_by_this_thread() -> Option<u64> {
    let counts = fs::read_to_string("/proc/thread-self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("wchar: ")?.trim().parse().ok())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn with_namespaces(
    meta: &CheckpointMeta,
    layers: &[(u32, Arc<dyn Frozen>)],
) -> Result<CheckpointMeta, CheckpointError> {
    let mut meta = meta.clone();
    let mut rest: BTreeMap<u32, &Arc<dyn Frozen>> = layers.iter().map(|(id, layer)| (*id, layer)).collect();
    if rest.len() != layers.len() || meta.operators.len() != layers.len() {
        return Err(misuse("there is not one layer for each operator".to_owned()));
    }
    for operator in &mut meta.operators {
        match rest.remove(&operator.id) {
            Some(layer) => operator.namespaces.clone_from(layer.namespaces()),
            None => return Err(misuse(format!("operator {} has no layer", operator.name))),
        }
    }
    Ok(meta)
}

/// A write transaction under way.
struct Writer<'e> {
    env: &'e Environment,
    txn: RwTxn<'e>,
    /// The key groups looked at so far, as they are stored and as they will be.
    groups: BTreeMap<(u32, u8), (Group, Group)>,
    /// Whether the entry before was there already: then the next one is looked for first, else it is put first.
    replaces: bool,
    /// Room for the key and the value of an entry.
    entry: (Vec<u8>, Vec<u8>),
    changes: u64,
    bytes: u64,
}

impl Writer<'_> {
    fn begin(env: &Environment) -> Result<Writer<'_>, CheckpointError> {
        let txn = env.env.write_txn().map_err(|error| env.write_error(error))?;
        let entry = (Vec::new(), Vec::new());
        Ok(Writer { env, txn, groups: BTreeMap::new(), replaces: false, entry, changes: 0, bytes: 0 })
    }

    fn group(&mut self, operator: u32, number: u8) -> Result<&mut Group, CheckpointError> {
        let place = match self.groups.entry((operator, number)) {
            btree_map::Entry::Occupied(known) => return Ok(&mut known.into_mut().1),
            btree_map::Entry::Vacant(place) => place,
        };
        let key = layout::group_key(operator, number);
        let stored = self.env.dbs.groups.get(&self.txn, &key).map_err(|error| self.env.read_error(error))?;
        let stored = stored.map_or(Ok(Group::default()), |stored| {
            Group::decode(&key, stored).map(|(_, group)| group).map_err(|what| self.env.corrupt(what, &key))
        })?;
        Ok(&mut place.insert((stored, stored)).1)
    }

    fn apply(&mut self, operator: u32, change: Change<'_>) -> Result<(), CheckpointError> {
        match change {
            Change::DeleteNamespace { namespace } => {
                (0..KEY_GROUPS).try_for_each(|group| self.clear(operator, group, namespace))
            }
            Change::Delete { namespace, key } => self.replace(operator, namespace, key, None),
            Change::Put { namespace, key, value } => self.replace(operator, namespace, key, Some(value)),
        }
    }

    /// Removes a namespace's entries of one key group.
    fn clear(&mut self, operator: u32, group_number: u8, namespace: i64) -> Result<(), CheckpointError> {
        let mut group = *self.group(operator, group_number)?;
        if group.count == 0 {
            return Ok(());
        }
        let (env, state) = (self.env, self.env.dbs.state);
        let prefix = layout::namespace_prefix(operator, group_number, namespace);
        let before = group.count;
        for entry in state.prefix_iter(&self.txn, &prefix).map_err(|error| env.read_error(error))? {
            let (key, stored) = entry.map_err(|error| env.read_error(error))?;
            layout::decode_state(key, stored).map_err(|what| env.corrupt(what, key))?;
            group.remove(key, stored);
        }
        if group.count != before {
            let end = layout::prefix_end(&prefix);
            let range = (Bound::Included(prefix.as_slice()), end.as_ref().map(Vec::as_slice));
            state.delete_range(&mut self.txn, &range).map_err(|error| env.write_error(error))?;
            self.changes += before.saturating_sub(group.count);
            *self.group(operator, group_number)? = group;
        }
        Ok(())
    }

    /// Puts or deletes one entry.
    fn replace(
        &mut self,
        operator: u32,
        namespace: i64,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), CheckpointError> {
        let (mut lmdb_key, mut new) = std::mem::take(&mut self.entry);
        layout::state_key(&mut lmdb_key, operator, namespace, key);
        let number = crate::state::key_group(key);
        let mut group = *self.group(operator, number)?;
        let changed = match value {
            None => self.delete(key, &lmdb_key, &mut group)?,
            Some(value) => {
                layout::state_value(&mut new, &lmdb_key, key, value);
                let changed = self.put(operator, key, (&lmdb_key, &new), &mut group)?;
                if changed {
                    group.add(&lmdb_key, &new);
                    self.bytes += (lmdb_key.len() + new.len()) as u64;
                }
                changed
            }
        };
        if changed {
            self.changes += 1;
            *self.group(operator, number)? = group;
        }
        self.entry = (lmdb_key, new);
        Ok(())
    }

    /// Deletes the entry, if it is there, and takes it out of its group. False: it is not there.
    fn delete(&mut self, key: &[u8], lmdb_key: &[u8], group: &mut Group) -> Result<bool, CheckpointError> {
        let (env, state) = (self.env, self.env.dbs.state);
        let Some(old) = state.get(&self.txn, lmdb_key).map_err(|error| env.read_error(error))? else {
            return Ok(false);
        };
        if !env.is_of(key, (lmdb_key, old))? {
            return Ok(false);
        }
        group.remove(lmdb_key, old);
        state.delete(&mut self.txn, lmdb_key).map_err(|error| env.write_error(error))
    }

    /// Puts the entry, and takes the old one, if there is one, out of its group. False: it is as it was.
    #[expect(unsafe_code, reason = "to put where a cursor stands saves a walk through the tree for each entry")]
    fn put(
        &mut self,
        operator: u32,
        key: &[u8],
        (lmdb_key, new): (&[u8], &[u8]),
        group: &mut Group,
    ) -> Result<bool, CheckpointError> {
        let (env, state) = (self.env, self.env.dbs.state);
        // Whether the old entry is another one, of the same key.
        let mut differs = |old: &[u8]| {
            if !env.is_of(key, (lmdb_key, old))? {
                return Err(CheckpointError::KeyCollision { operator });
            }
            let differs = old != new;
            if differs {
                group.remove(lmdb_key, old);
            }
            Ok(differs)
        };
        if self.replaces {
            let only = (Bound::Included(lmdb_key), Bound::Included(lmdb_key));
            let mut cursor = state.range_mut(&mut self.txn, &only).map_err(|error| env.read_error(error))?;
            if let Some((_, old)) = cursor.next().transpose().map_err(|error| env.read_error(error))? {
                if !differs(old)? {
                    return Ok(false);
                }
                // SAFETY: nothing that was read in this transaction is referred to any more: `old` is used up, key and
                // value are ours. The cursor stands at an entry with this very key.
                let put = unsafe { cursor.put_current(lmdb_key, new) }.map_err(|error| env.write_error(error))?;
                return if put { Ok(true) } else { Err(env.corrupt("an entry cannot be put", lmdb_key)) };
            }
        } else {
            match state.get_or_put(&mut self.txn, lmdb_key, new).map_err(|error| env.write_error(error))? {
                None => return Ok(true),
                Some(old) if !differs(old)? => return Ok(false),
                Some(_) => {}
            }
        }
        self.replaces = !self.replaces;
        state.put(&mut self.txn, lmdb_key, new).map_err(|error| env.write_error(error))?;
        Ok(true)
    }

    fn write_groups(&mut self) -> Result<(), CheckpointError> {
        let env = self.env;
        let mut value = Vec::new();
        let groups = std::mem::take(&mut self.groups);
        for ((operator, number), (_, group)) in groups.into_iter().filter(|(_, (stored, now))| stored != now) {
            let key = layout::group_key(operator, number);
            if group.count > 0 {
                group.encode(&key, &mut value);
                self.bytes += (key.len() + value.len()) as u64;
                env.dbs.groups.put(&mut self.txn, &key, &value)
            } else if group == Group::default() {
                env.dbs.groups.delete(&mut self.txn, &key).map(|_| ())
            } else {
                return Err(env.corrupt("a key group without entries has a set hash", &key));
            }
            .map_err(|error| env.write_error(error))?;
        }
        Ok(())
    }

    fn put_record(&mut self, db: Db, key: &[u8], record: &impl serde::Serialize) -> Result<(), CheckpointError> {
        let stored = layout::encode_record(key, record)
            .map_err(|error| misuse(format!("its description cannot be encoded ({error})")))?;
        self.bytes += (key.len() + stored.len()) as u64;
        db.put(&mut self.txn, key, &stored).map_err(|error| self.env.write_error(error))
    }

    /// Adds the new entry, puts the whole duration into the one before, drops the oldest.
    fn write_history(&mut self, own: &HistoryEntry, last: Option<(u64, u64)>) -> Result<(), CheckpointError> {
        let (env, db) = (self.env, self.env.dbs.history);
        let newest = db.last(&self.txn).map_err(|error| env.read_error(error))?;
        let newest: Option<HistoryEntry> = newest.map(|(key, stored)| env.record(key, stored)).transpose()?;
        if let Some(mut entry) = newest {
            if entry.id >= own.id {
                return Err(misuse(format!("checkpoint {} does not come after checkpoint {}", own.id, entry.id)));
            }
            if let Some((_, duration_us)) = last.filter(|(id, _)| *id == entry.id) {
                entry.duration_us = duration_us;
                entry.synced = true;
                self.put_record(db, &entry.id.to_be_bytes(), &entry)?;
            }
        }
        self.put_record(db, &own.id.to_be_bytes(), own)?;
        while db.len(&self.txn).map_err(|error| env.read_error(error))? > HISTORY_MAX as u64 {
            let oldest = db.first(&self.txn).map_err(|error| env.read_error(error))?;
            let Some(key) = oldest.map(|(key, _)| key.to_vec()) else { break };
            db.delete(&mut self.txn, &key).map_err(|error| env.write_error(error))?;
        }
        Ok(())
    }
}

/// The committed state at one commit. Shared by all operators of an engine, renewed by the engine after each commit.
pub struct Snapshot {
    env: Arc<Environment>,
    txn: Mutex<Txn>,
}

impl Snapshot {
    fn txn(&self) -> MutexGuard<'_, Txn> {
        self.txn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the last commit from now on, and lets LMDB use the pages of the one before again.
    ///
    /// # Errors
    /// LMDB gives no read transaction; the old view stays.
    pub fn renew(&self) -> Result<(), CheckpointError> {
        let new = self.env.begin()?;
        *self.txn() = new;
        Ok(())
    }

    /// What the checkpoint shown says about itself; `None` before the first.
    ///
    /// # Errors
    /// It is corrupt or of another version.
    pub fn meta(&self) -> Result<Option<CheckpointMeta>, CheckpointError> {
        self.env.meta(&self.txn())
    }

    fn state_error(operator: u32, error: CheckpointError) -> StateError {
        match error {
            CheckpointError::Corrupt { what, .. } => StateError::Corrupt { operator, what },
            other => StateError::Read { source: Box::new(other) },
        }
    }
}

impl Checkpoints for CheckpointStore {
    fn commit(&self, meta: &CheckpointMeta, layers: &[Layer]) -> Result<CommitStats, CheckpointError> {
        CheckpointStore::commit(self, meta, layers)
    }

    fn view(&self) -> Result<Arc<dyn CheckpointView>, CheckpointError> {
        Ok(Arc::new(self.snapshot()?))
    }
}

impl CheckpointView for Snapshot {
    fn renew(&self) -> Result<(), CheckpointError> {
        Snapshot::renew(self)
    }

    fn meta(&self) -> Result<Option<CheckpointMeta>, CheckpointError> {
        Snapshot::meta(self)
    }
}

impl StateReader for Snapshot {
    fn get(&self, operator: u32, namespace: i64, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        let mut lmdb_key = Vec::new();
        layout::state_key(&mut lmdb_key, operator, namespace, key);
        let txn = self.txn();
        let stored = self.env.dbs.state.get(&txn, &lmdb_key);
        let stored = stored.map_err(|error| Self::state_error(operator, self.env.read_error(error)))?;
        let Some(stored) = stored else { return Ok(None) };
        let entry = layout::decode_state(&lmdb_key, stored)
            .map_err(|what| Self::state_error(operator, self.env.corrupt(what, &lmdb_key)))?;
        Ok((*entry.key == *key).then(|| entry.value.to_vec()))
    }

    fn scan(
        &self,
        operator: u32,
        namespace: i64,
        group: u8,
        after: Option<&[u8]>,
        limit: usize,
        out: &mut Vec<StoredPair>,
    ) -> Result<(), StateError> {
        let read_error = |error| Self::state_error(operator, self.env.read_error(error));
        let prefix = layout::namespace_prefix(operator, group, namespace);
        let start = match after {
            None => Bound::Included(prefix.clone()),
            Some(after) => match after.get(..layout::LONG_PREFIX) {
                None => Bound::Excluded([prefix.as_slice(), after].concat()),
                // Keys that begin the same stand in another order in LMDB: read all of them again.
                Some(shared) => Bound::Included([prefix.as_slice(), shared].concat()),
            },
        };
        let end = layout::prefix_end(&prefix);
        let range = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
        let txn = self.txn();
        let first = out.len();
        // From here on the entries in `out` share the beginning of their keys.
        let mut neighbours = first;
        for entry in self.env.dbs.state.range(&txn, &range).map_err(read_error)? {
            let (lmdb_key, stored) = entry.map_err(read_error)?;
            let entry = layout::decode_state(lmdb_key, stored)
                .map_err(|what| Self::state_error(operator, self.env.corrupt(what, lmdb_key)))?;
            let shared = out.get(neighbours).and_then(|(key, _)| key.get(..layout::LONG_PREFIX));
            if shared.is_none() || shared != entry.key.get(..layout::LONG_PREFIX) {
                sort_tail(out, neighbours);
                if out.len() - first >= limit {
                    return Ok(());
                }
                neighbours = out.len();
            }
            if after.is_none_or(|after| *entry.key > *after) {
                out.push((entry.key.into_owned(), entry.value.to_vec()));
            }
        }
        sort_tail(out, neighbours);
        Ok(())
    }
}

fn sort_tail(entries: &mut [StoredPair], from: usize) {
    if let Some(tail) = entries.get_mut(from..) {
        tail.sort_by(|a, b| a.0.cmp(&b.0));
    }
}

/// Reads checkpoints, also from another process while the engine runs, by short transactions.
pub struct CheckpointReader {
    env: Arc<Environment>,
}

/// An entry of an operator's state as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Where it stands: what to go on after.
    pub place: Vec<u8>,
    pub group: u8,
    pub namespace: i64,
    pub key: Vec<u8>,
    /// Postcard.
    pub value: Vec<u8>,
}

impl CheckpointReader {
    /// Opens the environment in `dir` read-only. Creates nothing, and works on a copy and on a read-only file system.
    ///
    /// # Errors
    /// There is none, it is corrupt or of another version, or it (its lock file, which readers write) is not accessible.
    pub fn open(dir: &Path) -> Result<CheckpointReader, CheckpointError> {
        if !is_there(dir)? {
            return Err(CheckpointError::Missing { dir: dir.to_owned() });
        }
        // LMDB would create the lock file. Where there is none no engine runs, since an engine makes it first.
        let lock = if dir.join(LOCK_FILE).exists() { EnvFlags::empty() } else { EnvFlags::NO_LOCK };
        let env = Arc::new(Environment::open(dir, EnvFlags::READ_ONLY | lock)?);
        Ok(CheckpointReader { env })
    }

    /// The directory that was opened.
    pub fn dir(&self) -> &Path {
        &self.env.dir
    }

    /// The checkpoint that a start would go on from; `None` before the first.
    ///
    /// # Errors
    /// It is corrupt or of another version.
    pub fn latest(&self) -> Result<Option<CheckpointMeta>, CheckpointError> {
        self.env.meta(&*self.env.begin()?)
    }

    /// The checkpoint that a start would go on from, and the last hundred on record, oldest first.
    ///
    /// # Errors
    /// Something is corrupt or of another version.
    pub fn history(&self) -> Result<(Option<CheckpointMeta>, Vec<HistoryEntry>), CheckpointError> {
        let txn = self.env.begin()?;
        Ok((self.env.meta(&txn)?, self.env.history(&txn)?))
    }

    /// About how many bytes of pages are in use.
    ///
    /// # Errors
    /// LMDB cannot tell.
    pub fn used_bytes(&self) -> Result<u64, CheckpointError> {
        let txn = self.env.begin()?;
        let dbs = &self.env.dbs;
        [dbs.meta, dbs.history, dbs.state, dbs.groups].into_iter().try_fold(0u64, |sum, db| {
            let stat = db.stat(&txn).map_err(|error| self.env.read_error(error))?;
            let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
            Ok(sum + pages as u64 * u64::from(stat.page_size))
        })
    }

    /// Up to `limit` entries of an operator, of one key group or all, in the order (key group, namespace, key), from
    /// the first behind the place `after`; with the id of the checkpoint they are of. One short transaction.
    ///
    /// # Errors
    /// An entry is corrupt.
    pub fn entries(
        &self,
        operator: u32,
        group: Option<u8>,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<(u64, Vec<StoredEntry>), CheckpointError> {
        let read_error = |error| self.env.read_error(error);
        let txn = self.env.begin()?;
        let id = self.env.meta(&txn)?.map_or(0, |meta| meta.id);
        let prefix = match group {
            Some(group) => layout::group_key(operator, group),
            None => operator.to_be_bytes().to_vec(),
        };
        let range = self.env.state_range(&txn, &prefix, after)?;
        let entries = range.take(limit).map(|entry| {
            let (place, stored) = entry.map_err(read_error)?;
            let entry = layout::decode_state(place, stored).map_err(|what| self.env.corrupt(what, place))?;
            Ok(StoredEntry {
                place: place.to_vec(),
                group: entry.group,
                namespace: entry.namespace,
                key: entry.key.into_owned(),
                value: entry.value.to_vec(),
            })
        });
        Ok((id, entries.collect::<Result<_, CheckpointError>>()?))
    }

    /// Checks everything that is stored: the CRC of every value and record, that every entry can be looked up, and the
    /// count and set hash of every key group.
    ///
    /// It goes through LMDB, which trusts its pages: [`verify`] checks those first.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self) -> Result<Verified, CheckpointError> {
        self.env.verify(&*self.env.begin()?, &mut |_, _| Ok::<_, CheckpointError>(()))
    }
}

impl CheckpointReader {
    /// As [`CheckpointReader::verify`], a key group at a time in a read transaction of its own, so that no page is kept
    /// from being used again for long. After each, `pause` is told how many bytes were read.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify_in_slices(&self, pause: &mut dyn FnMut(u64)) -> Result<Verified, CheckpointError> {
        let mut verified = Verified::default();
        let operators: Vec<u32> = self.latest()?.unwrap_or_default().operators.iter().map(|known| known.id).collect();
        for operator in operators {
            for group in 0..KEY_GROUPS {
                let txn = self.env.begin()?;
                let meta = self.env.meta(&txn)?.unwrap_or_default();
                let checked =
                    self.env.verify_group(&txn, &meta, operator, group, &mut |_, _| Ok::<_, CheckpointError>(()))?;
                drop(txn);
                verified.add(checked);
                pause(checked.bytes);
            }
        }
        let txn = self.env.begin()?;
        self.env.verify_rest(&txn, &self.env.meta(&txn)?.unwrap_or_default())?;
        Ok(verified)
    }
}

/// Checks the environment in `dir` whole: what `forebay checkpoint verify` does. First LMDB's pages by themselves
/// ([`super::pages`]), then what they hold ([`CheckpointReader::verify`]). Should run in a process of its own all the
/// same: the file can be damaged between the two.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(dir: &Path) -> Result<Verified, CheckpointError> {
    verify_pages(dir, &mut |_| {})?;
    CheckpointReader::open(dir)?.verify()
}

/// As [`verify`], in slices: `pause` is told how many bytes were read since it was called last. Where commits overtake the check of the pages it is given up; that of the entries is not.
///
/// # Errors
/// The first thing that is wrong.
pub fn scrub(dir: &Path, pause: &mut dyn FnMut(u64)) -> Result<Verified, CheckpointError> {
    verify_pages(dir, pause)?;
    CheckpointReader::open(dir)?.verify_in_slices(pause)
}

fn verify_pages(dir: &Path, pause: &mut dyn FnMut(u64)) -> Result<(), CheckpointError> {
    let data = dir.join(DATA_FILE);
    if !is_there(dir)? {
        return Ok(());
    }
    pages::check(&data, pause).map_err(|error| match error {
        PagesError::Io(source) => io_error("read", &data)(source),
        damaged => corrupt(dir, damaged.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::super::meta::OperatorMeta;
    use super::*;
    use crate::event::Lsn;
    use crate::state::many;
    use crate::state::model::{self, OPERATOR, Store};
    use crate::state::{Checkpointed, KeyedState};

    fn dir() -> (TempDir, PathBuf) {
        let temp = tempfile::tempdir().expect("creates");
        let dir = temp.path().join("checkpoint");
        (temp, dir)
    }

    fn meta(id: u64) -> CheckpointMeta {
        let operator = OperatorMeta { id: OPERATOR, name: "q/window/0".to_owned(), ..OperatorMeta::default() };
        CheckpointMeta { id, cut: Lsn(id * 100), operators: vec![operator], ..CheckpointMeta::default() }
    }

    fn state(store: &CheckpointStore) -> (Arc<Snapshot>, KeyedState<Vec<u8>>) {
        let snapshot = Arc::new(store.snapshot().expect("begins"));
        let meta = snapshot.meta().expect("reads").unwrap_or_default();
        let namespaces = meta.operators.first().map(|operator| operator.namespaces.clone()).unwrap_or_default();
        let state = KeyedState::new(OPERATOR, Arc::clone(&snapshot) as Arc<dyn StateReader>, namespaces);
        (snapshot, state)
    }

    fn commit(store: &CheckpointStore, id: u64, state: &mut KeyedState<Vec<u8>>) -> CommitStats {
        let frozen = state.freeze().expect("freezes");
        store.commit(&meta(id), &[(OPERATOR, frozen)]).expect("commits")
    }

    /// A store whose one checkpoint holds `count` entries; the values are easy to find in the file.
    fn filled(dir: &Path, count: u64) -> CheckpointStore {
        let store = CheckpointStore::open(dir, OpenMode::Create).expect("creates");
        let (_, mut state) = state(&store);
        for i in 0..count {
            state.entry((i % 3) as i64, &i.to_be_bytes(), Vec::new).expect("reads").extend(marker(i));
        }
        commit(&store, 1, &mut state);
        store
    }

    fn marker(i: u64) -> Vec<u8> {
        format!("<<value {i:06} of the test>>").into_bytes()
    }

    /// Commits of random sizes: entries that come, change and go, some too large for a page, so that pages are split,
    /// merged, freed and used again.
    fn restless(dir: &Path, seed: u64, commits: u64) {
        let store = CheckpointStore::open(dir, OpenMode::Create).expect("creates");
        let (snapshot, mut state) = state(&store);
        let mut random = seed;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        for id in 1..=commits {
            for _ in 0..next() % 300 {
                let (namespace, key) = ((next() % 5) as i64, (next() % 2000).to_be_bytes());
                match next() % 10 {
                    0 => state.remove_namespace(namespace),
                    1..4 => state.remove(namespace, &key),
                    kind => {
                        let length = if kind == 9 { next() % 20_000 } else { next() % 200 };
                        *state.entry(namespace, &key, Vec::new).expect("reads") = vec![kind as u8; length as usize];
                    }
                }
            }
            commit(&store, id, &mut state);
            snapshot.renew().expect("renews");
            state.committed();
            pages::check(&dir.join(DATA_FILE), &mut |_| {})
                .unwrap_or_else(|error| panic!("seed {seed}, commit {id}: {error}"));
        }
    }

    #[test]
    fn pages_that_lmdb_wrote_are_in_order() {
        for seed in 0..8 {
            let (_temp, dir) = dir();
            restless(&dir, seed, 25);
            verify(&dir).expect("is whole");
        }
    }

    /// A flipped bit anywhere in a page that is in use or in the list of free pages is found before LMDB sees it, or it
    /// changes nothing that is read: the entries are then what they were.
    #[test]
    fn a_flipped_bit_in_any_page_is_found_or_harmless() {
        let (_temp, dir) = dir();
        restless(&dir, 3, 12);
        let data = dir.join(DATA_FILE);
        let bytes = fs::read(&data).expect("reads");
        let whole = verify(&dir).expect("is whole");
        let (mut found, mut structural) = (0, 0);
        // Every page's header and its first pointers, and some bytes everywhere.
        let heads = (0..bytes.len() / 4096).flat_map(|page| [0, 10, 12, 14, 16, 19].map(|byte| page * 4096 + byte));
        for (round, at) in heads.chain((0..bytes.len()).step_by(4099)).enumerate() {
            let mut damaged = bytes.clone();
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= 1 << (round % 8);
            }
            let copy = dir.with_extension("damaged");
            fs::create_dir_all(&copy).expect("creates");
            fs::write(copy.join(DATA_FILE), &damaged).expect("writes");
            match pages::check(&copy.join(DATA_FILE), &mut |_| {}) {
                Err(PagesError::Damaged { .. }) => (found, structural) = (found + 1, structural + 1),
                Err(PagesError::Io(error)) => panic!("byte {at}: {error}"),
                // Structure is whole: it is safe to let LMDB read it.
                Ok(()) => match verify(&copy) {
                    Ok(verified) => assert_eq!(verified, whole, "byte {at}"),
                    Err(_) => found += 1,
                },
            }
        }
        assert!(structural > 20 && found > structural, "{structural} by structure, {found} in all");
    }

    /// A layer that fails after some changes.
    struct Fails {
        layer: Arc<dyn Frozen>,
        after: usize,
    }

    impl Frozen for Fails {
        fn is_empty(&self) -> bool {
            false
        }

        fn namespaces(&self) -> &BTreeSet<i64> {
            self.layer.namespaces()
        }

        fn for_each(&self, visit: &mut dyn FnMut(Change<'_>) -> ControlFlow<()>) -> Result<(), StateError> {
            let mut left = self.after;
            self.layer.for_each(&mut |change| {
                if left == 0 {
                    return ControlFlow::Break(());
                }
                left -= 1;
                visit(change)
            })?;
            Err(StateError::InFlight { operator: OPERATOR })
        }
    }

    struct LmdbStore {
        _temp: TempDir,
        dir: PathBuf,
        store: Option<(CheckpointStore, Arc<Snapshot>)>,
        id: u64,
    }

    impl LmdbStore {
        fn new() -> LmdbStore {
            let (temp, dir) = dir();
            let mut store = LmdbStore { _temp: temp, dir, store: None, id: 0 };
            store.reopen();
            store
        }

        fn store(&self) -> &(CheckpointStore, Arc<Snapshot>) {
            self.store.as_ref().expect("is open")
        }
    }

    impl Store for LmdbStore {
        fn reader(&mut self) -> (Arc<dyn StateReader>, BTreeSet<i64>) {
            let (_, snapshot) = self.store();
            let meta = snapshot.meta().expect("reads").unwrap_or_default();
            let namespaces = meta.operators.first().map(|operator| operator.namespaces.clone()).unwrap_or_default();
            (Arc::clone(snapshot) as Arc<dyn StateReader>, namespaces)
        }

        fn commit(&mut self, frozen: &Arc<dyn Frozen>) {
            self.id += 1;
            let (store, _) = self.store();
            store.commit(&meta(self.id), &[(OPERATOR, Arc::clone(frozen))]).expect("commits");
            store.reader().verify().expect("is right");
        }

        fn renew(&mut self) {
            self.store().1.renew().expect("begins");
        }

        fn fail(&mut self, frozen: &Arc<dyn Frozen>) {
            let fails = Fails { layer: Arc::clone(frozen), after: 3 };
            let (store, _) = self.store();
            store.commit(&meta(self.id + 1), &[(OPERATOR, Arc::new(fails))]).expect_err("must fail");
            store.reader().verify().expect("is right");
        }

        fn reopen(&mut self) {
            self.store = None;
            let store = CheckpointStore::open(&self.dir, OpenMode::Create).expect("opens");
            let snapshot = Arc::new(store.snapshot().expect("begins"));
            self.store = Some((store, snapshot));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn state_over_lmdb_behaves_like_a_map(ops in proptest::collection::vec(model::op(), 1..100)) {
            model::check(LmdbStore::new(), &ops);
        }
    }

    #[test]
    fn many_keys_over_lmdb_behave_like_a_map() {
        (0..3).for_each(|seed| many::check(LmdbStore::new(), seed, 40));
    }

    /// Commits of more pages than a transaction may hold in memory: LMDB writes some of them early and takes them back,
    /// also where a cursor stands at an entry that is put again with another length.
    #[test]
    fn commits_larger_than_the_dirty_pages_are_whole() {
        let (_temp, dir) = dir();
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let (snapshot, mut state) = state(&store);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut random = 1u64;
        let mut below = move |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % end
        };
        for id in 1..=3 {
            for number in 0..25_000u32 {
                let tail = number.to_be_bytes();
                let key = if number % 50 == 0 { [vec![1; 495], tail.to_vec()].concat() } else { tail.to_vec() };
                let length = match below(500) {
                    0 => below(150_000),
                    1..9 => below(9000),
                    // About as much as still stands in a page.
                    9..50 => 2000 + below(60),
                    _ => 350 + below(300),
                };
                match below(12) {
                    0..3 if id > 1 => {}
                    3 => {
                        state.remove(1, &key);
                        model.remove(&key);
                    }
                    _ => drop(model.insert(key.clone(), state.put(1, &key, vec![number as u8; length]).clone())),
                }
            }
            assert!(commit(&store, id, &mut state).device_bytes > 12 << 20);
            assert_eq!(verify_pages(&dir, &mut |_| {}).err().map(|error| error.to_string()), None);
            assert_eq!(store.reader().verify().expect("is right").entries, model.len() as u64);
            snapshot.renew().expect("renews");
            state.committed();
            state.release();
            let entries = state.entries(1).map(|entry| entry.expect("reads")).map(|(key, value)| (key.to_vec(), value));
            assert!(entries.eq(model.clone()), "commit {id}");
        }
    }

    #[test]
    fn an_empty_state_commits_and_opens_again() {
        let (_temp, dir) = dir();
        assert!(matches!(CheckpointStore::open(&dir, OpenMode::Existing), Err(CheckpointError::Missing { .. })));
        assert!(matches!(CheckpointReader::open(&dir), Err(CheckpointError::Missing { .. })));
        assert!(!dir.exists());
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        assert!(matches!(CheckpointReader::open(&dir), Err(CheckpointError::AlreadyOpen { .. })));
        assert_eq!(store.reader().latest().expect("reads"), None);
        assert_eq!(store.reader().verify().expect("is right"), Verified::default());
        store.commit(&CheckpointMeta { id: 1, ..CheckpointMeta::default() }, &[]).expect("commits");
        drop(store);
        let store = CheckpointStore::open(&dir, OpenMode::Existing).expect("opens");
        assert_eq!(store.reader().latest().expect("reads").map(|meta| meta.id), Some(1));
        assert!(!dir.with_extension("new").exists());
    }

    #[test]
    fn a_creation_that_broke_off_is_begun_again_but_lost_data_is_not_made_new() {
        let (_temp, dir) = dir();
        fs::create_dir_all(dir.with_extension("new")).expect("creates");
        fs::write(dir.with_extension("new").join(DATA_FILE), b"half").expect("writes");
        fs::create_dir_all(&dir).expect("creates");
        drop(CheckpointStore::open(&dir, OpenMode::Create).expect("creates"));
        fs::remove_file(dir.join(DATA_FILE)).expect("removes");
        let error = CheckpointStore::open(&dir, OpenMode::Create).err().expect("refuses");
        assert_eq!(error.exit_code(), 65, "{error}");
    }

    #[test]
    fn opening_an_existing_environment_writes_nothing() {
        let (_temp, dir) = dir();
        drop(filled(&dir, 100));
        let before = fs::read(dir.join(DATA_FILE)).expect("reads");
        let store = CheckpointStore::open(&dir, OpenMode::Existing).expect("opens");
        store.snapshot().expect("begins");
        drop(store);
        assert!(fs::read(dir.join(DATA_FILE)).expect("reads") == before);
    }

    #[test]
    fn what_a_failed_commit_held_is_in_the_next() {
        let (_temp, dir) = dir();
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let (snapshot, mut state) = state(&store);
        for i in 0..50u64 {
            state.entry(1, &i.to_be_bytes(), Vec::new).expect("reads").push(1);
        }
        let frozen = state.freeze().expect("freezes");
        for i in 40..60u64 {
            state.entry(1, &i.to_be_bytes(), Vec::new).expect("reads").push(2);
        }
        state.remove(1, &0u64.to_be_bytes());
        let layer: Arc<dyn Frozen> = Arc::new(Fails { layer: frozen, after: 20 });
        store.commit(&meta(1), &[(OPERATOR, layer)]).expect_err("must fail");
        state.failed();
        assert_eq!(store.reader().latest().expect("reads"), None);
        let stats = commit(&store, 1, &mut state);
        assert_eq!((stats.changes, stats.operators[0].keys), (59, 59));
        snapshot.renew().expect("begins");
        state.committed();
        let (_, mut reopened) = self::state(&store);
        let all: Vec<(u64, Vec<u8>)> = reopened
            .take_namespace(1)
            .map(|entry| entry.expect("reads"))
            .map(|(key, value)| (u64::from_be_bytes((*key).try_into().expect("is eight bytes")), value))
            .collect();
        let expected = (1..60u64).map(|i| {
            let value = [1].into_iter().filter(|_| i < 50).chain([2].into_iter().filter(|_| i >= 40));
            (i, value.collect::<Vec<u8>>())
        });
        assert_eq!(all, expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_flipped_bit_in_a_value_is_found() {
        let (_temp, dir) = dir();
        drop(filled(&dir, 300));
        let path = dir.join(DATA_FILE);
        let pristine = fs::read(&path).expect("reads");
        for i in (0..300).step_by(7) {
            let marker = marker(i);
            // Pages that were split still show the value in their unused part.
            let places: Vec<usize> = memchr::memmem::find_iter(&pristine, &marker).collect();
            assert!(!places.is_empty());
            let mut damaged = pristine.clone();
            for at in places {
                damaged[at + (i as usize) % marker.len()] ^= 1 << (i % 8);
            }
            fs::write(&path, &damaged).expect("writes");
            let error = verify(&dir).expect_err("must be found");
            assert_eq!(error.exit_code(), 65, "{error}");
            let store = CheckpointStore::open(&dir, OpenMode::Existing).expect("opens");
            let (_, state) = state(&store);
            let error = state.get((i % 3) as i64, &i.to_be_bytes()).expect_err("a read finds it too");
            assert_eq!(error.exit_code(), 65, "{error}");
        }
        fs::write(&path, &pristine).expect("writes");
        assert_eq!(verify(&dir).expect("is right").entries, 300);
    }

    /// Changes the environment behind the checkpoint's back.
    fn tamper(store: &CheckpointStore, change: impl FnOnce(&Databases, &mut RwTxn<'_>)) -> CheckpointError {
        let mut txn = store.env.env.write_txn().expect("begins");
        change(&store.env.dbs, &mut txn);
        txn.commit().expect("commits");
        store.reader().verify().expect_err("must be found")
    }

    /// LMDB spills what is more than 2047 pages, and takes some of them back when they change again.
    #[test]
    fn commits_of_more_pages_than_memory_may_hold_are_whole() {
        let (_temp, dir) = dir();
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let (snapshot, mut state) = state(&store);
        for (id, length) in [(1, 1000), (2, 1700), (3, 300), (4, 3000)] {
            for key in 0..8000u64 {
                // Every second time every third key goes, and some windows.
                match key % 3 == 0 && id % 2 == 0 {
                    true => state.remove((key % 7) as i64, &key.to_be_bytes()),
                    false => {
                        *state.entry((key % 7) as i64, &key.to_be_bytes(), Vec::new).expect("reads") =
                            vec![id as u8; length]
                    }
                }
            }
            if id == 3 {
                state.remove_namespace(4);
            }
            commit(&store, id, &mut state);
            snapshot.renew().expect("renews");
            state.committed();
            state.release();
            pages::check(&dir.join(DATA_FILE), &mut |_| {}).expect("is in order");
            assert!(store.reader().verify().expect("is right").entries > 5000);
        }
    }

    #[test]
    fn a_check_in_slices_goes_on_beside_commits_and_finds_a_flipped_bit() {
        let (_temp, dir) = dir();
        let store = filled(&dir, 3000);
        let (snapshot, mut state) = state(&store);
        let (mut slices, mut id) = (0, 1u64);
        let verified = store.reader().verify_in_slices(&mut |_| {
            slices += 1;
            if slices % 8 == 0 {
                id += 1;
                state.remove((id % 3) as i64, &id.to_be_bytes());
                *state.entry(1, &(5000 + id).to_be_bytes(), Vec::new).expect("reads") = marker(id);
                commit(&store, id, &mut state);
                snapshot.renew().expect("renews");
                state.committed();
            }
        });
        assert!((2900..3100).contains(&verified.expect("is right").entries));
        assert_eq!((slices, id), (128, 17));
        drop((store, snapshot, state));
        assert!(scrub(&dir, &mut |_| {}).expect("is right").entries >= 2900);
        let data = dir.join(DATA_FILE);
        let mut bytes = fs::read(&data).expect("reads");
        let needle = marker(1234);
        let places: Vec<usize> =
            (0..bytes.len() - needle.len()).filter(|at| bytes[*at..].starts_with(&needle)).collect();
        places.iter().for_each(|at| bytes[at + 3] ^= 1);
        fs::write(&data, bytes).expect("writes");
        let error = scrub(&dir, &mut |_| {}).expect_err("must be found");
        assert!(matches!(error, CheckpointError::Corrupt { .. }), "{error}");
    }

    #[test]
    fn entries_that_are_missing_old_or_too_many_are_found() {
        let entry = |i: u64, value: &[u8]| {
            let (mut key, mut stored) = (Vec::new(), Vec::new());
            layout::state_key(&mut key, OPERATOR, 0, &i.to_be_bytes());
            layout::state_value(&mut stored, &key, &i.to_be_bytes(), value);
            (key, stored)
        };
        type Tamper<'a> = &'a dyn Fn(&Databases, &mut RwTxn<'_>);
        let changes: [Tamper<'_>; 4] = [
            &|dbs, txn| assert!(dbs.state.delete(txn, &entry(3, b"").0).expect("deletes")),
            &|dbs, txn| dbs.state.put(txn, &entry(3, b"").0, &entry(3, b"old").1).expect("puts"),
            &|dbs, txn| dbs.state.put(txn, &entry(300_000, b"").0, &entry(300_000, b"new").1).expect("puts"),
            &|dbs, txn| {
                let key = dbs.groups.first(txn).expect("reads").expect("is there").0.to_vec();
                dbs.groups.delete(txn, &key).expect("deletes");
            },
        ];
        for change in changes {
            let (_temp, dir) = dir();
            let error = tamper(&filled(&dir, 300), change);
            assert_eq!(error.exit_code(), 65, "{error}");
            assert!(error.to_string().contains("key group"), "{error}");
        }
    }

    #[test]
    fn another_format_version_is_refused() {
        let (_temp, dir) = dir();
        let store = filled(&dir, 3);
        let mut record = store
            .env
            .dbs
            .meta
            .get(&store.env.begin().expect("begins"), META_KEY)
            .expect("reads")
            .expect("is there")
            .to_vec();
        record[4] = 99;
        let crc = crc32c::crc32c_append(crc32c::crc32c(META_KEY), &record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        tamper(&store, |dbs, txn| dbs.meta.put(txn, META_KEY, &record).expect("puts"));
        drop(store);
        let error = CheckpointStore::open(&dir, OpenMode::Existing).err().expect("refuses");
        assert!(matches!(error, CheckpointError::Version { found: 99, .. }), "{error}");
        assert_eq!(error.exit_code(), 65);
    }

    #[test]
    fn a_commit_takes_one_layer_for_each_operator_and_an_ascending_id() {
        let (_temp, dir) = dir();
        let store = filled(&dir, 3);
        let refused = |meta: &CheckpointMeta, layers: &[(u32, Arc<dyn Frozen>)]| {
            matches!(store.commit(meta, layers), Err(CheckpointError::Misuse { .. }))
        };
        let layer = || KeyedState::<Vec<u8>>::empty(OPERATOR).freeze().expect("freezes");
        assert!(refused(&meta(2), &[]));
        assert!(refused(&meta(2), &[(OPERATOR, layer()), (OPERATOR, layer())]));
        assert!(refused(&meta(1), &[(OPERATOR, layer())]), "the id must ascend");
        assert!(refused(&CheckpointMeta { id: 2, ..CheckpointMeta::default() }, &[]), "state would belong to nobody");
        assert_eq!(store.reader().latest().expect("reads").map(|meta| meta.id), Some(1));
    }

    #[test]
    fn history_keeps_the_last_hundred_and_the_file_stays_small() {
        let (_temp, dir) = dir();
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let (snapshot, mut state) = state(&store);
        for id in 1..=150u64 {
            for i in 0..50u64 {
                *state.entry(0, &i.to_be_bytes(), Vec::new).expect("reads") = vec![id as u8; 100];
            }
            commit(&store, id, &mut state);
            snapshot.renew().expect("begins");
            state.committed();
        }
        let (meta, history) = store.reader().history().expect("reads");
        assert_eq!(meta.map(|meta| meta.id), Some(150));
        assert_eq!(history.iter().map(|entry| entry.id).collect::<Vec<_>>(), (51..=150).collect::<Vec<_>>());
        assert!(history.iter().all(|entry| entry.synced == (entry.id < 150) && entry.operators[0].keys == 50));
        assert!(fs::metadata(dir.join(DATA_FILE)).expect("is there").len() < 1 << 20);
        assert!(store.reader().used_bytes().expect("tells") < 1 << 20);
    }

    #[test]
    fn neighbours_with_the_same_long_beginning_come_in_order() {
        let (_temp, dir) = dir();
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let (_, mut state) = state(&store);
        // More neighbours in each key group than a scan reads at once, and others behind them.
        let long = |first, i: u32| [vec![first; 600], i.to_be_bytes().to_vec()].concat();
        let mut keys: Vec<Vec<u8>> = (0..8000).map(|i| long(b'x', i)).chain((0..300).map(|i| long(b'y', i))).collect();
        keys.extend([480, 481, 482, 483, 497, 498, 499].map(|len| vec![b'x'; len]));
        keys.sort();
        for key in &keys {
            state.entry(7, key, Vec::new).expect("reads").push(1);
        }
        commit(&store, 1, &mut state);
        let (snapshot, mut reopened) = self::state(&store);
        let of_group: Vec<&Vec<u8>> = keys.iter().filter(|key| crate::state::key_group(key) == 9).collect();
        for pair in of_group.windows(2) {
            let mut next = Vec::new();
            snapshot.scan(OPERATOR, 7, 9, Some(pair[0]), 1, &mut next).expect("reads");
            assert!(next[0].0 == *pair[1]);
        }
        let found: Vec<Vec<u8>> = reopened.take_namespace(7).map(|entry| entry.expect("reads").0.to_vec()).collect();
        assert!(found == keys);
        store.reader().verify().expect("is right");
    }

    #[test]
    fn a_copy_without_lock_file_is_read_and_nothing_is_created() {
        let (temp, dir) = dir();
        drop(filled(&dir, 300));
        let copy = temp.path().join("copy");
        fs::create_dir(&copy).expect("creates");
        fs::copy(dir.join(DATA_FILE), copy.join(DATA_FILE)).expect("copies");
        let reader = CheckpointReader::open(&copy).expect("opens");
        assert_eq!(reader.verify().expect("is right").entries, 300);
        let (_, first) = reader.entries(OPERATOR, None, None, 200).expect("reads");
        let (_, rest) = reader.entries(OPERATOR, None, first.last().map(|e| e.place.as_slice()), 200).expect("reads");
        assert_eq!((first.len(), rest.len()), (200, 100));
        let group = first[0].group;
        let (_, of_group) = reader.entries(OPERATOR, Some(group), None, 1000).expect("reads");
        assert!(!of_group.is_empty() && of_group.iter().all(|entry| entry.group == group));
        assert_eq!(fs::read_dir(&copy).expect("reads").count(), 1);
    }

    const CHILD_DIR: &str = "FOREBAY_TEST_CHECKPOINT_DIR";

    /// Runs an ignored test of this module in a process of its own, over `dir`.
    fn child(test: &str, dir: &Path) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("is known"));
        command.args(["--ignored", "--exact", "--nocapture", &format!("checkpoint::lmdb::tests::{test}")]);
        command.env(CHILD_DIR, dir).stdout(Stdio::piped());
        command
    }

    #[test]
    #[ignore = "the other process of `a_reader_in_another_process_sees_whole_checkpoints`"]
    fn child_reads() {
        let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
        let reader = CheckpointReader::open(Path::new(&dir)).expect("opens");
        let (mut last, started) = (0, Instant::now());
        while last < 60 {
            assert!(started.elapsed() < Duration::from_secs(120), "the other process stopped");
            let (meta, history) = reader.history().expect("reads");
            let id = meta.expect("is there").id;
            assert!(id >= last && history.last().map(|entry| entry.id) == Some(id));
            last = id;
            // All values of one checkpoint are the same.
            let (id, entries) = reader.entries(OPERATOR, None, None, 1000).expect("reads");
            assert!(entries.len() == 200 && entries.iter().all(|entry| entry.value == entries[0].value), "{id}");
            reader.verify().expect("is right");
        }
    }

    #[test]
    fn a_reader_in_another_process_sees_whole_checkpoints() {
        let (_temp, dir) = dir();
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let (snapshot, mut state) = state(&store);
        let mut reader = None;
        for id in 1..=60u64 {
            for i in 0..200u64 {
                *state.entry(0, &i.to_be_bytes(), Vec::new).expect("reads") = vec![id as u8; 50];
            }
            commit(&store, id, &mut state);
            snapshot.renew().expect("begins");
            state.committed();
            reader.get_or_insert_with(|| child("child_reads", &dir).spawn().expect("starts"));
        }
        let output = reader.expect("was started").wait_with_output().expect("ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }

    #[test]
    #[ignore = "the other process of `a_killed_engine_leaves_its_last_checkpoint`"]
    fn child_commits() {
        let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
        let store = CheckpointStore::open(Path::new(&dir), OpenMode::Create).expect("opens");
        let (snapshot, mut state) = state(&store);
        let first = snapshot.meta().expect("reads").map_or(1, |meta| meta.id + 1);
        for id in first.. {
            for i in 0..500u64 {
                *state.entry((id / 10) as i64, &i.to_be_bytes(), Vec::new).expect("reads") = id.to_be_bytes().to_vec();
            }
            state.remove_namespace((id / 10) as i64 - 1);
            commit(&store, id, &mut state);
            println!("\ncommitted {id}");
            snapshot.renew().expect("begins");
            state.committed();
        }
    }

    #[test]
    fn a_killed_engine_leaves_its_last_checkpoint() {
        let (_temp, dir) = dir();
        let mut reported = 0u64;
        for round in 1..=8 {
            let mut child = child("child_commits", &dir).spawn().expect("starts");
            let lines = BufReader::new(child.stdout.take().expect("is piped")).lines().map_while(Result::ok);
            let ids = lines.filter_map(|line| line.strip_prefix("committed ").and_then(|id| id.parse().ok()));
            let mut ids = ids.take(round * 2);
            reported = ids.by_ref().last().expect("commits");
            child.kill().expect("kills");
            child.wait().expect("ends");
            let store = CheckpointStore::open(&dir, OpenMode::Existing).expect("opens");
            let verified = store.reader().verify().expect("is right");
            let id = store.reader().latest().expect("reads").expect("is there").id;
            assert!(id >= reported, "{id} after {reported}");
            assert_eq!(verified.entries, 500);
            let (_, state) = state(&store);
            let value = state.get((id / 10) as i64, &7u64.to_be_bytes()).expect("reads").expect("is there");
            assert_eq!(value.as_slice(), id.to_be_bytes());
        }
        assert!(reported > 8);
    }

    #[test]
    fn want_of_space_is_told_from_a_broken_disk() {
        let error = |errno: Errno, free: u64| {
            write_error(Path::new("d"), heed::Error::Io(errno.into()), || Some(free)).exit_code_and_kind()
        };
        assert_eq!(error(Errno::IO, RESERVE_BYTES - 1), (74, true));
        assert_eq!(error(Errno::IO, RESERVE_BYTES), (74, false));
        assert_eq!(error(Errno::NOSPC, RESERVE_BYTES * 2), (74, true));
        assert_eq!(error(Errno::ACCESS, 0), (74, false));
        let damaged = write_error(Path::new("d"), heed::Error::Mdb(MdbError::Corrupted), || Some(0));
        assert_eq!(damaged.exit_code_and_kind(), (65, false));
        let full = write_error(Path::new("d"), heed::Error::Mdb(MdbError::MapFull), || Some(0));
        assert_eq!(full.exit_code_and_kind(), (74, false), "a full map is not a full disk");
    }

    #[test]
    #[expect(unsafe_code, reason = "heed marks every change of the map's size as unsafe")]
    fn a_full_map_is_named_and_changes_nothing() {
        let (_temp, dir) = dir();
        let store = filled(&dir, 300);
        // SAFETY: no transaction is open in this process.
        unsafe { store.env.env.resize(256 << 10) }.expect("resizes");
        let (_, mut state) = state(&store);
        for i in 0..5000u64 {
            *state.entry(0, &i.to_be_bytes(), Vec::new).expect("reads") = vec![7; 100];
        }
        let error = store.commit(&meta(2), &[(OPERATOR, state.freeze().expect("freezes"))]).expect_err("is full");
        assert!(matches!(error, CheckpointError::MapFull { .. }), "{error}");
        assert!(error.to_string().contains("as large as it may become"), "{error}");
        assert_eq!(store.reader().verify().expect("is right").entries, 300);
    }

    impl CheckpointError {
        fn exit_code_and_kind(&self) -> (u8, bool) {
            (self.exit_code(), matches!(self, CheckpointError::NoSpace { .. }))
        }
    }
}
