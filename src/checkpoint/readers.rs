//! Readers of the environment in other processes, and the end of those that make it grow without bound.
//!
//! A read transaction pins the pages of its commit and of all later ones: while it is open, every commit takes new pages
//! from the end of the file, which never shrinks. Commands read by short transactions, but one that was stopped, or whose
//! output nobody takes, can hold one for ever. So after each commit the engine looks at LMDB's table of readers, and ends
//! (SIGKILL, which also ends a stopped process) one that is both old and costly. Slots of processes that are gone are
//! cleared by LMDB at each commit.
//!
//! Invariants:
//! - Only a process is ended that stands in the table and maps this very data file.
//! - The lock file is opened once and held open: LMDB's locks on it are POSIX locks, which a process loses when it closes
//!   any of its descriptors of the file.
//!
//! Not done: readers within this process are left alone; where `/proc` does not show the process (another user's, another
//! container's) it is only named.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tracing::warn;

/// A reader may be as many commits old, whatever it costs.
const BEHIND_COMMITS: u64 = 10;
/// What the file may grow by during one read; or by its size, if that is more.
const GROWN_BYTES: u64 = 64 << 20;

// The table in lock.mdb, from `MDB_txninfo` in LMDB's mdb.c: a header (magic, format, last transaction, number of slots
// ever used, mutex), a mutex, then the slots (transaction, process, thread), each padded to cache lines.
const MAGIC: u32 = 0xBEEF_C0DE;
const LINE_BYTES: usize = 64;
const WORD_BYTES: usize = size_of::<usize>();
const MUTEX_BYTES: usize = size_of::<libc::pthread_mutex_t>();
const COUNT_AT: usize = 8 + WORD_BYTES;
const HEADER_BYTES: usize = (COUNT_AT + size_of::<c_uint>()).next_multiple_of(WORD_BYTES) + MUTEX_BYTES;
const SLOTS_AT: usize = HEADER_BYTES.next_multiple_of(LINE_BYTES) + MUTEX_BYTES.next_multiple_of(LINE_BYTES);

/// A read transaction: who reads, and the commit that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reader {
    pid: i32,
    txn: u64,
}

/// What is known of a reader.
struct Seen {
    /// Size of the data file when it was first seen.
    file_bytes: u64,
    /// It could not be ended, and that was said.
    told: bool,
}

/// Watches the readers of one environment.
pub struct ReaderWatch {
    lock_file: File,
    data_file: PathBuf,
    seen: BTreeMap<Reader, Seen>,
}

impl ReaderWatch {
    /// Must live as long as the environment is open.
    ///
    /// # Errors
    /// The lock file cannot be opened.
    pub fn new(lock_file: &Path, data_file: &Path) -> io::Result<ReaderWatch> {
        let lock_file = File::open(lock_file)?;
        Ok(ReaderWatch { lock_file, data_file: data_file.to_owned(), seen: BTreeMap::new() })
    }

    /// All read transactions that are open, those of this process too.
    fn readers(&self) -> io::Result<Vec<Reader>> {
        let mut header = [0; SLOTS_AT];
        self.lock_file.read_exact_at(&mut header, 0)?;
        if number(&header, 0, 4) != u64::from(MAGIC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not LMDB's table of readers"));
        }
        let count = number(&header, COUNT_AT, size_of::<c_uint>()) as usize;
        let mut slots = Vec::new();
        for index in 0..count {
            let mut slot = [0; LINE_BYTES];
            self.lock_file.read_exact_at(&mut slot, (SLOTS_AT + index * LINE_BYTES) as u64)?;
            let reader = Reader { txn: number(&slot, 0, WORD_BYTES), pid: number(&slot, WORD_BYTES, 4) as i32 };
            // A slot of nobody, or of one who does not read now.
            if reader.pid != 0 && reader.txn != number(&[0xff; WORD_BYTES], 0, WORD_BYTES) {
                slots.push(reader);
            }
        }
        Ok(slots)
    }

    /// Ends readers that are too old and too costly. `last_txn` is the last commit; on a full disk every old one is too
    /// costly.
    pub fn look(&mut self, last_txn: u64, disk_is_full: bool) {
        let looked = self.readers().and_then(|readers| Ok((readers, fs::metadata(&self.data_file)?)));
        let (mut readers, data) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                tracing::debug!("cannot look at the readers of the checkpoint: {error}");
                return;
            }
        };
        readers.retain(|reader| u32::try_from(reader.pid) != Ok(std::process::id()));
        self.seen.retain(|reader, _| readers.contains(reader));
        for reader in readers {
            let seen = self.seen.entry(reader).or_insert(Seen { file_bytes: data.len(), told: false });
            let commits_behind = last_txn.saturating_sub(reader.txn);
            let grown_bytes = data.len().saturating_sub(seen.file_bytes);
            let is_costly = disk_is_full || grown_bytes > GROWN_BYTES.max(seen.file_bytes);
            if seen.told || commits_behind <= BEHIND_COMMITS || !is_costly {
                continue;
            }
            let Reader { pid, .. } = reader;
            match end(pid, data.ino()) {
                Ok(()) => warn!(
                    pid,
                    commits_behind,
                    grown_bytes,
                    "ended a process that read an old checkpoint for too long: nothing that was in use then could be \
                     used again"
                ),
                Err(error) => {
                    seen.told = true;
                    warn!(
                        pid,
                        commits_behind,
                        grown_bytes,
                        "a process reads an old checkpoint, and the state grows for as long as it does; it cannot be \
                         ended from here ({error}): end it"
                    );
                }
            }
        }
    }
}

/// Kills a process that maps the data file.
fn end(pid: i32, data_inode: u64) -> io::Result<()> {
    let not_found = || io::Error::new(io::ErrorKind::NotFound, "there is no such process that has the state open");
    let process = pidfd_open(Pid::from_raw(pid).ok_or_else(not_found)?, PidfdFlags::empty())?;
    // Looked at after the handle was taken: it stays this process's, also if the number is given to another one.
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    let inode = data_inode.to_string();
    let reads_it = String::from_utf8_lossy(&maps).lines().any(|line| {
        // Address, permissions, offset, device, inode, path.
        let mut fields = line.split_ascii_whitespace().skip(4);
        fields.next() == Some(&inode) && fields.next().is_some_and(|path| path.starts_with('/'))
    });
    if !reads_it {
        return Err(not_found());
    }
    Ok(pidfd_send_signal(process, Signal::KILL)?)
}

/// A number of up to eight bytes as this machine stores it.
fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let stored = bytes.get(at..at + length).unwrap_or_default();
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if cfg!(target_endian = "little") { stored.iter().rev().fold(0, fold) } else { stored.iter().fold(0, fold) }
}

#[cfg(test)]
mod tests {
    use super::super::lmdb::{CheckpointStore, OpenMode};
    use super::super::{CheckpointMeta, DIRECTORY};
    use super::*;

    #[test]
    fn the_table_shows_who_reads_which_commit() {
        let temp = tempfile::tempdir().expect("creates");
        let dir = temp.path().join(DIRECTORY);
        let store = CheckpointStore::open(&dir, OpenMode::Create).expect("creates");
        let watch = ReaderWatch::new(&dir.join("lock.mdb"), &dir.join("data.mdb")).expect("opens");
        let txns = || {
            let readers = watch.readers().expect("reads");
            assert!(readers.iter().all(|reader| reader.pid as u32 == std::process::id()));
            readers.iter().map(|reader| reader.txn).collect::<Vec<_>>()
        };
        assert!(txns().is_empty());
        let first = store.snapshot().expect("begins");
        let [txn] = txns()[..] else { panic!("one reader") };
        store.commit(&CheckpointMeta { id: 1, ..CheckpointMeta::default() }, &[]).expect("commits");
        let second = store.snapshot().expect("begins");
        assert_eq!(txns(), [txn, txn + 1]);
        drop(first);
        assert_eq!(txns(), [txn + 1]);
        drop(second);
    }

    #[test]
    fn only_a_process_that_has_the_file_open_is_ended() {
        let temp = tempfile::tempdir().expect("creates");
        let file = temp.path().join("data.mdb");
        fs::write(&file, b"not mapped").expect("writes");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let error = end(child.id() as i32, fs::metadata(&file).expect("is there").ino()).expect_err("refuses");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(child.try_wait().expect("a child").is_none());
        // What it maps: its own program, as soon as it has become that.
        let program = || fs::metadata(format!("/proc/{}/exe", child.id())).expect("is there").ino();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while let Err(error) = end(child.id() as i32, program()) {
            assert!(std::time::Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
        assert!(!child.wait().expect("ends").success());
    }
}
