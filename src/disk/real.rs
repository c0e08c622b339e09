//! The disk of this machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::{Access, Disk, DiskFile, Lock};

/// The file system of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(access != Access::Read).create(access == Access::Create).truncate(false);
        // Opening a pipe does not wait for its other end.
        options.custom_flags(libc::O_NONBLOCK);
        let file = options.open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                names.extend(entry.file_name().into_string().ok());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(std::fs::metadata(path)?.len())
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        let parent = match dir.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.create_dir_all(parent)?;
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !dir.is_dir() => return Err(error),
            _ => {}
        }
        self.sync_dir(parent)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn try_lock(&self, path: &Path, content: &[u8]) -> io::Result<Lock> {
        let file = self.open(path, Access::Create)?;
        if !file.try_lock()? {
            let mut held_by = vec![0; 64];
            let length = file.read_full_at(&mut held_by, 0)?;
            held_by.truncate(length);
            return Ok(Lock::Taken(held_by));
        }
        file.set_len(0)?;
        file.write_all_at(content, 0)?;
        Ok(Lock::Held(Box::new(file)))
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(std::os::unix::fs::MetadataExt::nlink(&self.metadata()?) > 0)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match flock(self, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_exclusive_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let held = RealDisk.try_lock(&path, b"17").unwrap();
        assert!(matches!(held, Lock::Held(_)));
        assert!(matches!(RealDisk.try_lock(&path, b"18").unwrap(), Lock::Taken(by) if by == b"17"));
        drop(held);
        assert!(matches!(RealDisk.try_lock(&path, b"18").unwrap(), Lock::Held(_)));
    }

    #[test]
    fn files_read_write_and_list() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a/b");
        RealDisk.create_dir_all(&dir).unwrap();
        RealDisk.create_dir_all(&dir).unwrap();
        let file = RealDisk.create(&dir.join("two")).unwrap();
        file.append(b"abc").unwrap();
        file.append(b"def").unwrap();
        file.write_zeros(1, 3).unwrap();
        file.sync().unwrap();
        let mut buffer = [9; 8];
        assert_eq!(file.read_full_at(&mut buffer, 0).unwrap(), 6);
        assert_eq!(&buffer, b"a\0\0def\x09\x09");
        RealDisk.create(&dir.join("one")).unwrap();
        RealDisk.create_dir_all(&dir.join("three")).unwrap();
        assert_eq!(RealDisk.list(&dir).unwrap(), ["one", "two"]);
        RealDisk.rename(&dir.join("two"), &dir.join("one")).unwrap();
        RealDisk.sync_dir(&dir).unwrap();
        assert_eq!(RealDisk.len(&dir.join("one")).unwrap(), 6);
        assert!(!RealDisk.exists(&dir.join("two")).unwrap());
        RealDisk.remove(&dir.join("one")).unwrap();
        assert!(RealDisk.open(&dir.join("one"), Access::Read).is_err());
    }
}
