//! Deliberately broken variants of the engine, made without touching it: by a disk that does not do what it says, by a
//! store or worker that does things in another order. The simulator must catch each.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::disk::sim::SimDisk;
use forebay::disk::{Access, Disk, DiskFile, Lock, Stop};
use forebay::replay_log::Compression;
use forebay::replay_log::format::{FrameEncoder, FrameHeader, Place, SegmentHeader, max_frame_bytes};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    NoDirectorySync,
    RetryAfterFailedSync,
    ReplayBeforeTailSync,
    CheckpointBeforeSinkFlush,
    CutBeyondSynced,
    TrimBeforeCheckpoint,
    PositionOutsideTransaction,
    UnseededChecksum,
    TailNotZeroed,
    ForgottenDirtyKeys,
    ConfigOverTail,
    UnsyncedInput,
}

/// A disk that does what `broken` says.
pub struct BrokenDisk {
    pub disk: SimDisk,
    pub broken: Broken,
    /// The process is starting: opening or replaying.
    pub starting: Arc<AtomicBool>,
}

impl BrokenDisk {
    fn file(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let ends = |suffix: &str| path.to_str().is_some_and(|path| path.ends_with(suffix));
        Box::new(BrokenFile {
            file,
            broken: self.broken,
            starting: Arc::clone(&self.starting),
            is_segment: ends(".segment"),
            is_log: ends(".segment") || ends(".spare"),
            unsynced: AtomicBool::new(false),
        })
    }
}

impl Disk for BrokenDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(path, self.disk.create(path)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(path, self.disk.open(path, access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.disk.len(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        match self.broken {
            Broken::NoDirectorySync => Ok(()),
            Broken::RetryAfterFailedSync => self.disk.sync_dir(dir).or_else(|_| self.disk.sync_dir(dir)),
            _ => self.disk.sync_dir(dir),
        }
    }

    fn try_lock(&self, path: &Path, content: &[u8]) -> io::Result<Lock> {
        self.disk.try_lock(path, content)
    }

    fn wait_for_space(&self, pause: Duration, stop: &Stop) -> bool {
        self.disk.wait_for_space(pause, stop)
    }
}

struct BrokenFile {
    file: Box<dyn DiskFile>,
    broken: Broken,
    starting: Arc<AtomicBool>,
    is_segment: bool,
    is_log: bool,
    unsynced: AtomicBool,
}

impl BrokenFile {
    /// Gives every frame of the file's earlier life a checksum that is right in its new one, as if the checksum knew
    /// nothing of the segment.
    fn reseal(&self, header: &SegmentHeader) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(self.file.length()?).unwrap_or(0)];
        self.file.read_full_at(&mut bytes, 0)?;
        let limit = max_frame_bytes(header.segment_bytes);
        for at in (0..bytes.len()).step_by(8) {
            let Ok(frame) = FrameHeader::decode(&bytes[at..], limit) else { continue };
            let old = Place { epoch: header.epoch, segment: frame.segment, offset: at as u64 };
            let Some(stale) = bytes.get(at..at + frame.frame_bytes()) else { continue };
            if !frame.is_intact(&old, stale) {
                continue;
            }
            let runs = frame.decode_runs(stale).expect("intact");
            let compression = if frame.compressed { Compression::Lz4 } else { Compression::None };
            let mut encoder = FrameEncoder::new(compression);
            let new = Place { segment: header.number, ..old };
            encoder.encode(&new, frame.first_lsn, frame.previous_crc, &runs, limit).expect("it was encoded before");
            if encoder.frame.len() == stale.len() {
                self.file.write_all_at(&encoder.frame, at as u64)?;
            }
        }
        Ok(())
    }
}

impl DiskFile for BrokenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        match self.broken {
            Broken::CutBeyondSynced if self.unsynced.swap(false, Ordering::Relaxed) => self.file.sync()?,
            Broken::TailNotZeroed
                if self.is_segment
                    && self.starting.load(Ordering::Relaxed)
                    && bytes.len() > 8
                    && bytes.iter().all(|byte| *byte == 0) =>
            {
                return Ok(bytes.len());
            }
            Broken::UnseededChecksum if self.is_log && offset == 0 => {
                if let Ok(header) = SegmentHeader::decode(bytes) {
                    self.reseal(&header)?;
                }
            }
            _ => {}
        }
        self.file.write_at(bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn sync(&self) -> io::Result<()> {
        match self.broken {
            Broken::RetryAfterFailedSync => self.file.sync().or_else(|_| self.file.sync()),
            Broken::ReplayBeforeTailSync if self.is_segment && self.starting.load(Ordering::Relaxed) => Ok(()),
            Broken::CutBeyondSynced if self.is_log => {
                self.unsynced.store(true, Ordering::Relaxed);
                Ok(())
            }
            _ => self.file.sync(),
        }
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}
