//! The LMDB environment: creation, the one write transaction of a checkpoint, snapshots, reading from other processes,
//! verification. The only user of `heed`.
//!
//! - The map is reserved once and never grows under readers. No WRITEMAP, no NOSYNC.
//! - A new environment is built beside its place, synced and renamed: it is there whole or not at all. Opening an
//!   existing one writes nothing.
//! - Read transactions are not bound to threads, so that the engine's snapshot may move with the engine. A snapshot
//!   pins the pages of its commit: renew it after each commit; readers of other processes use short transactions.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, RoTxn, RwTxn, WithoutTls};
use rustix::io::Errno;

use super::CheckpointError;
use super::layout::{self, Group, META_KEY, RecordError};
use super::meta::{CheckpointMeta, HISTORY_MAX, HistoryEntry, OperatorTotals, SinkRows};
use crate::state::{Change, Frozen, KEY_GROUPS, StateError, StateReader};

/// Address space that is reserved for the map: what a state can grow to.
#[cfg(target_pointer_width = "64")]
const MAP_BYTES: usize = 64 << 30;
#[cfg(not(target_pointer_width = "64"))]
const MAP_BYTES: usize = 1 << 30;

/// A failed write while less than this is free is for want of space: LMDB says EIO for it.
const RESERVE_BYTES: u64 = 16 << 20;

const DATA_FILE: &str = "data.mdb";
const LOCK_FILE: &str = "lock.mdb";

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
}

#[expect(unsafe_code, reason = "heed marks every opening of a memory map as unsafe")]
fn open_env(dir: &Path, flags: EnvFlags) -> Result<Env<WithoutTls>, CheckpointError> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_dbs(4);
    // SAFETY: only LMDB writes to the file while it is mapped: the state directory belongs to one engine (LOCK), other
    // processes open it read-only, and LMDB's lock file keeps them apart. The flags used (READ_ONLY, and NO_LOCK where
    // there is no writer) do not weaken that.
    let opened = unsafe {
        options.flags(flags);
        options.open(dir)
    };
    opened.map_err(|error| lmdb_error(dir, "open the checkpoint in", error))
}

fn lmdb_error(dir: &Path, action: &'static str, error: heed::Error) -> CheckpointError {
    let dir = dir.to_owned();
    match error {
        heed::Error::EnvAlreadyOpened => CheckpointError::AlreadyOpen { dir },
        heed::Error::Io(source) => CheckpointError::Io { action, path: dir, source },
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
    move |source| CheckpointError::Io { action, path: path.to_owned(), source }
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
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &staging)(error)),
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
        Ok(Environment { env, dbs, dir: dir.to_owned() })
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
        stored.map(|stored| self.record(META_KEY, stored)).transpose()
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

    fn verify(&self, txn: &RoTxn<'_>) -> Result<Verified, CheckpointError> {
        let meta = self.meta(txn)?.unwrap_or_default();
        let read_error = |error| self.read_error(error);
        let mut verified = Verified::default();
        let mut counted: BTreeMap<(u32, u8), Group> = BTreeMap::new();
        let mut last: Vec<u8> = Vec::new();
        for entry in self.dbs.state.iter(txn).map_err(read_error)? {
            let (key, stored) = entry.map_err(read_error)?;
            if key <= last.as_slice() {
                return Err(self.corrupt("keys are out of order", key));
            }
            last.clear();
            last.extend_from_slice(key);
            let entry = layout::decode_state(key, stored).map_err(|what| self.corrupt(what, key))?;
            // A damaged branch page can hide from a lookup what a walk over the leaves still finds.
            if self.dbs.state.get(txn, key).map_err(read_error)? != Some(stored) {
                return Err(self.corrupt("an entry cannot be looked up", key));
            }
            let operator = meta.operators.iter().find(|operator| operator.id == entry.operator);
            if operator.is_none_or(|operator| !operator.namespaces.contains(&entry.namespace)) {
                return Err(self.corrupt("an entry belongs to no operator's open namespace", key));
            }
            counted.entry((entry.operator, entry.group)).or_default().add(key, stored);
            verified.entries += 1;
            verified.bytes += (key.len() + stored.len()) as u64;
        }
        let recorded = self.groups(txn)?;
        for id in counted.keys().chain(recorded.keys()) {
            if counted.get(id) != recorded.get(id) {
                let (operator, group) = id;
                let count = |groups: &BTreeMap<(u32, u8), Group>| groups.get(id).map_or(0, |group| group.count);
                return Err(corrupt(
                    &self.dir,
                    format!(
                        "key group {group} of operator {operator} holds {} entries that are not the {} on record",
                        count(&counted),
                        count(&recorded)
                    ),
                ));
            }
        }
        let history = self.history(txn)?;
        if history.last().map_or(0, |entry| entry.id) != meta.id {
            return Err(corrupt(&self.dir, "its history does not end with the checkpoint itself".to_owned()));
        }
        verified.groups = recorded.len() as u64;
        Ok(verified)
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

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// From the begin of the transaction to the end of its sync.
    pub duration: Duration,
    /// Entries put and deleted, a namespace's removed entries each counted.
    pub changes: u64,
    /// Bytes of keys and values put.
    pub bytes_written: u64,
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
        if !dir.join(DATA_FILE).exists() {
            let is_free = match fs::read_dir(dir) {
                Ok(mut entries) => entries.next().is_none(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                Err(error) => return Err(io_error("read", dir)(error)),
            };
            match mode {
                OpenMode::Existing => return Err(CheckpointError::Missing { dir: dir.to_owned() }),
                OpenMode::Create if !is_free => return Err(corrupt(dir, format!("{DATA_FILE} is not there"))),
                OpenMode::Create => create(dir)?,
            }
        }
        let env = Environment::open(dir, EnvFlags::empty())?;
        env.env.clear_stale_readers().map_err(|error| env.read_error(error))?;
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
        let started = Instant::now();
        let meta = with_namespaces(meta, layers)?;
        let env = &*self.env;
        // A reader that was killed must not keep pages from being used again.
        env.env.clear_stale_readers().map_err(|error| env.read_error(error))?;
        let txn = env.env.write_txn().map_err(|error| env.write_error(error))?;
        let mut writer = Writer { env, txn, groups: BTreeMap::new(), changes: 0, bytes: 0 };
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
            id: meta.id,
            wall_time_us: meta.wall_time_us,
            cut: meta.cut,
            cut_time: meta.cut_time,
            duration_us: micros(started.elapsed()),
            synced: false,
            changes: writer.changes,
            bytes_written: writer.bytes,
            operators: operators.clone(),
            sinks: meta.sinks.iter().map(|sink| SinkRows { name: sink.name.clone(), rows: sink.rows }).collect(),
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        writer.write_history(&own, *last)?;
        writer.put_record(env.dbs.meta, META_KEY, &meta)?;
        let Writer { txn, changes, bytes, .. } = writer;
        txn.commit().map_err(|error| env.write_error(error))?;
        let duration = started.elapsed();
        *last = Some((meta.id, micros(duration)));
        Ok(CommitStats { duration, changes, bytes_written: bytes, operators })
    }
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
    /// The key groups touched so far, as they will be written.
    groups: BTreeMap<(u32, u8), Group>,
    changes: u64,
    bytes: u64,
}

impl Writer<'_> {
    fn group(&self, operator: u32, group: u8) -> Result<Group, CheckpointError> {
        if let Some(group) = self.groups.get(&(operator, group)) {
            return Ok(*group);
        }
        let key = layout::group_key(operator, group);
        match self.env.dbs.groups.get(&self.txn, &key).map_err(|error| self.env.read_error(error))? {
            None => Ok(Group::default()),
            Some(stored) => match Group::decode(&key, stored) {
                Ok((_, group)) => Ok(group),
                Err(what) => Err(self.env.corrupt(what, &key)),
            },
        }
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
        let mut group = self.group(operator, group_number)?;
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
            self.groups.insert((operator, group_number), group);
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
        let (env, state) = (self.env, self.env.dbs.state);
        let (mut lmdb_key, mut new) = (Vec::new(), Vec::new());
        layout::state_key(&mut lmdb_key, operator, namespace, key);
        if let Some(value) = value {
            layout::state_value(&mut new, &lmdb_key, key, value);
        }
        let group_number = crate::state::key_group(key);
        let mut group = self.group(operator, group_number)?;
        if let Some(old) = state.get(&self.txn, &lmdb_key).map_err(|error| env.read_error(error))? {
            let entry = layout::decode_state(&lmdb_key, old).map_err(|what| env.corrupt(what, &lmdb_key))?;
            if *entry.key != *key {
                return if value.is_none() { Ok(()) } else { Err(CheckpointError::KeyCollision { operator }) };
            }
            if value.is_some() && old == new {
                return Ok(());
            }
            group.remove(&lmdb_key, old);
        } else if value.is_none() {
            return Ok(());
        }
        if value.is_some() {
            group.add(&lmdb_key, &new);
            self.bytes += (lmdb_key.len() + new.len()) as u64;
            state.put(&mut self.txn, &lmdb_key, &new)
        } else {
            state.delete(&mut self.txn, &lmdb_key).map(|_| ())
        }
        .map_err(|error| env.write_error(error))?;
        self.changes += 1;
        self.groups.insert((operator, group_number), group);
        Ok(())
    }

    fn write_groups(&mut self) -> Result<(), CheckpointError> {
        let env = self.env;
        let mut value = Vec::new();
        for ((operator, number), group) in std::mem::take(&mut self.groups) {
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
        out: &mut Vec<(Vec<u8>, Vec<u8>)>,
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

fn sort_tail(entries: &mut [(Vec<u8>, Vec<u8>)], from: usize) {
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
        if !dir.join(DATA_FILE).exists() {
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
        let start = after.map_or(Bound::Included(prefix.as_slice()), Bound::Excluded);
        let end = layout::prefix_end(&prefix);
        let range = (start, end.as_ref().map(Vec::as_slice));
        let range = self.env.dbs.state.range(&txn, &range).map_err(read_error)?;
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
    /// Damage to LMDB's own pages shows as an entry missing, doubled or changed, or as a page that LMDB refuses; but
    /// following a damaged page can also end the process by a signal, so this should run in a process of its own. The
    /// list of free pages is not checked: damage there shows after a later commit has overwritten a page in use.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self) -> Result<Verified, CheckpointError> {
        self.env.verify(&*self.env.begin()?)
    }
}

/// Checks the environment in `dir` whole: what `forebay checkpoint verify` does. See [`CheckpointReader::verify`].
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(dir: &Path) -> Result<Verified, CheckpointError> {
    CheckpointReader::open(dir)?.verify()
}
