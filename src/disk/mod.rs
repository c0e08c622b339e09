//! The disk and the clocks as the log, the outbox and the file sink see them: traits, so that a simulation can stand in
//! for both.
//!
//! Contract of every implementation:
//! - What [`DiskFile::sync`] returned for survives a power cut; what it has not returned for may survive in part and in
//!   any order.
//! - A created, renamed or removed name survives a power cut once [`Disk::sync_dir`] has returned for its directory.
//! - Reads and writes may be short, as in the system calls; the provided methods finish them.
//!
//! Paths are not interpreted, nothing is cached, nothing is retried but `EINTR`.

use std::io;
use std::path::Path;
use std::time::Duration;

mod clock;
mod code;
mod ntp;
mod real;
pub mod sim;
mod stop;

pub use clock::{Clock, LogClock, ManualClock, SystemClock};
pub use code::release_code;
pub use real::RealDisk;
pub use stop::Stop;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
    /// For reading and writing; created where it is missing, left as it is where it is there.
    Create,
}

/// Outcome of [`Disk::try_lock`].
pub enum Lock {
    /// Ours until the guard is dropped or the process ends.
    Held(Box<dyn Send + Sync>),
    /// Another holder has it; what it wrote into the file.
    Taken(Vec<u8>),
}

/// A file system.
pub trait Disk: Send + Sync {
    /// Creates a file, or empties one that is there, for reading and writing.
    ///
    /// # Errors
    /// As `open(2)`.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a regular file.
    ///
    /// # Errors
    /// As `open(2)`; or it is there, but not a regular file.
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name in place of what had it.
    ///
    /// # Errors
    /// As `rename(2)`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As `unlink(2)`.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Names of the files in a directory, sorted; directories are left out.
    ///
    /// # Errors
    /// As `readdir(3)`.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Whether there is something of this name.
    ///
    /// # Errors
    /// As `stat(2)`, but for "not found".
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Length of a file in bytes.
    ///
    /// # Errors
    /// As `stat(2)`.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Creates a directory and its parents, durably.
    ///
    /// # Errors
    /// As `mkdir(2)` and `fsync(2)`.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Removes an empty directory, on a disk that keeps such.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Makes the names in a directory durable. A failure is never to be retried.
    ///
    /// # Errors
    /// As `fsync(2)`.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive lock on a file, which is created where it is missing, and writes `content` into it.
    ///
    /// # Errors
    /// As `open(2)`, `flock(2)` and `write(2)`, but for a lock that another holds.
    fn try_lock(&self, path: &Path, content: &[u8]) -> io::Result<Lock>;

    /// Lets time pass in which space may become free, or until asked to stop. Gives whether it was asked.
    fn wait_for_space(&self, pause: Duration, stop: &Stop) -> bool {
        stop.pause(pause)
    }
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Reads at an offset; 0 is the end of the file.
    ///
    /// # Errors
    /// As `pread(2)`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at an offset; may write less.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// As `fstat(2)`.
    fn length(&self) -> io::Result<u64>;

    /// Whether the file still has a name.
    ///
    /// # Errors
    /// As `fstat(2)`.
    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Makes the content and the length durable (`fdatasync`). A failure is never to be retried: the system may have
    /// dropped the pages.
    ///
    /// # Errors
    /// As `fdatasync(2)`.
    fn sync(&self) -> io::Result<()>;

    /// Takes an exclusive lock, held until this handle is dropped; false: another handle has it.
    ///
    /// # Errors
    /// As `flock(2)`.
    fn try_lock(&self) -> io::Result<bool>;

    /// Reads until the buffer is full or the file ends; returns the number of bytes read.
    ///
    /// # Errors
    /// As [`DiskFile::read_at`].
    fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes all bytes at an offset. After an error some of them may have been written.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.write_at(rest, offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all bytes behind the end of the file (which must have one writer).
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, self.length()?)
    }

    /// Writes zeros from `from` up to `to`: blocks that later overwrites need not allocate.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        let zeros = vec![0; 64 * 1024];
        let mut at = from;
        while at < to {
            let count = usize::try_from(to - at).unwrap_or(usize::MAX).min(zeros.len());
            self.write_all_at(zeros.get(..count).unwrap_or_default(), at)?;
            at += count as u64;
        }
        Ok(())
    }
}

/// Whether an error means that there is no space: a state that passes, so the caller waits and tries again.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
