//! The ring of segment files: new ones are filled with zeros once, trimmed ones become spares, spares become segments.
//! An overwrite of blocks that are there already makes a sync touch no file-system metadata.
//!
//! Invariants:
//! - A segment has its name only once its header is durable; a file is a spare until then.
//! - A trimmed segment's new name is durable before the file is written to again.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::LogError;
use super::format::{ALIGNMENT, PAGE_BYTES, SegmentHeader};
use super::segment::{segment_name, spare_name};
use super::writer::{LogOptions, LogStats, SpaceWait, Wait};
use crate::disk::{Access, Disk, DiskFile, is_no_space};
use crate::event::Lsn;

/// Spares that are always kept for the next rolls; more only where there were as many rolls since the last trim.
const SPARES_MIN: usize = 2;
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A wait for space is told again after this long.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// A segment that holds a part of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub number: u64,
    pub first_lsn: Lsn,
    pub bytes: u64,
}

/// The segment that is written to.
pub(super) struct Active {
    pub file: Box<dyn DiskFile>,
    pub path: PathBuf,
    pub number: u64,
    /// Its format version.
    pub version: u32,
    pub header_bytes: u64,
    pub segment_bytes: u64,
}

/// The files of a log that is written to.
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    pub options: LogOptions,
    /// Oldest first; the last one is written to and never trimmed.
    pub live: VecDeque<Live>,
    spares: Vec<u64>,
    /// Segments that were begun since the last trim: as many spares will be of use until the next one.
    begun: usize,
    pub space_wait: SpaceWait,
    pub stats: LogStats,
}

/// How long a write has waited for space.
#[derive(Default)]
struct Waited {
    next: Option<Duration>,
    since_warning: Option<Duration>,
}

impl Segments {
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions, live: VecDeque<Live>) -> Segments {
        Segments {
            disk,
            dir: dir.to_owned(),
            options,
            live,
            spares: Vec::new(),
            begun: 0,
            space_wait: Box::new(|_| Wait::Stop),
            stats: LogStats::default(),
        }
    }

    /// Bytes that the live segments take, and that they and the spares take.
    pub fn bytes(&self) -> (u64, u64) {
        let live = self.live.iter().map(|segment| segment.bytes).sum();
        (live, live + self.spares.len() as u64 * self.options.segment_bytes)
    }

    /// Adopts spares that an earlier run has left, as far as they are of use, and removes the others.
    pub fn adopt_spares(&mut self, numbers: &[u64]) -> Result<(), LogError> {
        for number in numbers {
            let path = self.dir.join(spare_name(*number));
            let length = self.disk.len(&path).map_err(LogError::io("look at", &path))?;
            if length == self.options.segment_bytes && self.wants_spare() {
                self.spares.push(*number);
            } else {
                self.disk.remove(&path).map_err(LogError::io("remove", &path))?;
            }
        }
        Ok(())
    }

    fn wants_spare(&self) -> bool {
        self.spares.len() < self.begun.max(SPARES_MIN)
            && self.bytes().1 + self.options.segment_bytes <= self.options.max_bytes
    }

    /// Makes a segment with this header the one that is written to.
    pub fn create(&mut self, header: &SegmentHeader) -> Result<Active, LogError> {
        let mut bytes =
            header.encode().map_err(|why| LogError::Options(format!("{why}: use fewer sources or shorter names")))?;
        let header_bytes = bytes.len() as u64;
        bytes.extend_from_slice(&[0; ALIGNMENT]);

        let spare = self.take_spare()?;
        let spare_path = self.dir.join(spare_name(spare));
        let path = self.dir.join(segment_name(header.number));
        let file = self.disk.open(&spare_path, Access::ReadWrite).map_err(LogError::io("open", &spare_path))?;
        self.write(file.as_ref(), &spare_path, &bytes, 0)?;
        self.sync(file.as_ref(), &spare_path)?;
        self.disk.rename(&spare_path, &path).map_err(LogError::io("rename", &spare_path))?;
        self.sync_dir()?;
        self.begun += 1;
        self.live.push_back(Live {
            number: header.number,
            first_lsn: header.first_lsn,
            bytes: self.options.segment_bytes,
        });
        Ok(Active {
            file,
            path,
            number: header.number,
            version: header.version,
            header_bytes,
            segment_bytes: self.options.segment_bytes,
        })
    }

    /// Removes the spares: others need their space more. The next roll fills a new file.
    pub fn release_spares(&mut self) -> Result<(), LogError> {
        if self.spares.is_empty() {
            return Ok(());
        }
        while let Some(number) = self.spares.pop() {
            let path = self.dir.join(spare_name(number));
            self.disk.remove(&path).map_err(LogError::io("remove", &path))?;
        }
        self.sync_dir()
    }

    /// A spare of full length, made where there is none.
    fn take_spare(&mut self) -> Result<u64, LogError> {
        let mut waited = Waited::default();
        loop {
            if let Some(number) = self.spares.pop() {
                return Ok(number);
            }
            // No spare is left, so any number is free.
            let path = self.dir.join(spare_name(1));
            let length = self.options.segment_bytes;
            let filled = self.disk.create(&path).and_then(|file| file.write_zeros(0, length));
            match filled {
                Ok(()) => {
                    self.stats.written_bytes += length;
                    self.stats.device_bytes += length;
                    waited.over(&path);
                    return Ok(1);
                }
                Err(error) if is_no_space(&error) => {
                    // What was filled is given back: others wait for space, too.
                    if self.disk.exists(&path).map_err(LogError::io("look at", &path))? {
                        self.disk.remove(&path).map_err(LogError::io("remove", &path))?;
                    }
                    self.wait_for_space(&path, &mut waited)?;
                }
                Err(error) => return Err(LogError::io("fill", &path)(error)),
            }
        }
    }

    /// Turns whole segments whose records are all below this LSN into spares.
    pub fn trim(&mut self, below: Lsn) -> Result<(), LogError> {
        let mut trimmed = false;
        while let (Some(oldest), Some(second)) = (self.live.front().copied(), self.live.get(1)) {
            if second.first_lsn > below {
                break;
            }
            self.live.pop_front();
            let path = self.dir.join(segment_name(oldest.number));
            if oldest.bytes == self.options.segment_bytes && self.wants_spare() {
                let number = (1..).find(|number| !self.spares.contains(number)).unwrap_or_default();
                let spare = self.dir.join(spare_name(number));
                self.disk.rename(&path, &spare).map_err(LogError::io("rename", &path))?;
                self.spares.push(number);
            } else {
                self.disk.remove(&path).map_err(LogError::io("remove", &path))?;
            }
            trimmed = true;
        }
        if !trimmed {
            return Ok(());
        }
        self.begun = 0;
        self.sync_dir()
    }

    /// Writes all bytes; waits while there is no space.
    pub fn write(&mut self, file: &dyn DiskFile, path: &Path, bytes: &[u8], offset: u64) -> Result<(), LogError> {
        let mut waited = Waited::default();
        loop {
            match file.write_all_at(bytes, offset) {
                Ok(()) => {
                    self.stats.written_bytes += bytes.len() as u64;
                    self.stats.device_bytes += page_bytes(offset, bytes.len() as u64);
                    waited.over(path);
                    return Ok(());
                }
                Err(error) if is_no_space(&error) => self.wait_for_space(path, &mut waited)?,
                Err(error) => return Err(LogError::io("write", path)(error)),
            }
        }
    }

    pub fn sync(&mut self, file: &dyn DiskFile, path: &Path) -> Result<(), LogError> {
        self.stats.syncs += 1;
        file.sync().map_err(LogError::io("sync", path))
    }

    pub fn sync_dir(&mut self) -> Result<(), LogError> {
        self.stats.syncs += 1;
        self.disk.sync_dir(&self.dir).map_err(LogError::io("sync", &self.dir))
    }

    fn wait_for_space(&mut self, path: &Path, waited: &mut Waited) -> Result<(), LogError> {
        match (self.space_wait)(waited.next(path)) {
            Wait::Retry => Ok(()),
            Wait::Trim(below) => self.trim(below),
            Wait::Stop => Err(LogError::NoSpace { path: path.to_owned() }),
        }
    }
}

/// Bytes of the pages that a write touches.
fn page_bytes(offset: u64, length: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    if length == 0 { 0 } else { (offset + length).next_multiple_of(page) - offset / page * page }
}

impl Waited {
    fn next(&mut self, path: &Path) -> Duration {
        let delay = self.next.unwrap_or(WAIT_FIRST);
        self.next = Some((delay * 2).min(WAIT_MAX));
        match &mut self.since_warning {
            Some(since) if *since < WARN_EVERY => *since += delay,
            since => {
                *since = Some(delay);
                tracing::warn!(path = %path.display(), "no space left on the disk; the log waits until there is some");
            }
        }
        delay
    }

    fn over(&self, path: &Path) {
        if self.next.is_some() {
            tracing::info!(path = %path.display(), "there is space again; the log goes on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_costs_the_pages_that_it_touches() {
        assert_eq!(page_bytes(0, 0), 0);
        assert_eq!(page_bytes(4096, 1), 4096);
        assert_eq!(page_bytes(4095, 1), 4096);
        assert_eq!(page_bytes(4095, 2), 8192);
        assert_eq!(page_bytes(100, 8192), 3 * 4096);
    }
}
