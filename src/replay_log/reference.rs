//! Reads again what a log refers to (`log = "position"`): payloads that stand in an input file and not in the log.
//!
//! The file is opened by the name that the run bears, relative to the working directory. Whether it is the right one is
//! decided by the checksum of the payloads alone: a copy that was put back is as good as the file itself, a file that was
//! edited, cut or replaced is refused. Nothing is guessed and nothing is skipped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogError;
use crate::disk::{Access, Disk, DiskFile};
use crate::event::{Lsn, Run};

/// Reads payloads from the files they stand in; keeps the last file open.
pub(super) struct References {
    disk: Arc<dyn Disk>,
    open: Option<(Arc<str>, Box<dyn DiskFile>)>,
    buffer: Vec<u8>,
}

impl References {
    pub fn new(disk: Arc<dyn Disk>) -> References {
        References { disk, open: None, buffer: Vec::new() }
    }

    /// Puts the payloads of a run with a reference, whose first record is `lsn`, in their place.
    ///
    /// # Errors
    /// [`LogError::Referenced`]: the file does not hold them any more. Or it cannot be read.
    pub fn read(&mut self, run: &mut Run, lsn: Lsn) -> Result<(), LogError> {
        let (Some(reference), Some((from, to)), Some(name)) = (&run.reference, run.span(), &run.peer) else {
            return Ok(());
        };
        let path = Path::new(name.as_ref());
        let refused = |what: String| LogError::Referenced { file: PathBuf::from(path), from, to, lsn, what };
        let file = match &mut self.open {
            Some((open, file)) if open == name => file,
            open => {
                let file = match self.disk.open(path, Access::Read) {
                    Ok(file) => file,
                    Err(error) => {
                        return Err(match error.kind() {
                            io::ErrorKind::NotFound => refused("there is no such file".to_owned()),
                            // What stands there, or who may read it, is somebody's doing: a restart does not mend it.
                            io::ErrorKind::InvalidInput
                            | io::ErrorKind::IsADirectory
                            | io::ErrorKind::NotADirectory
                            | io::ErrorKind::PermissionDenied => refused(format!("it cannot be read: {error}")),
                            _ => LogError::io("open", path)(error),
                        });
                    }
                };
                &mut open.insert((Arc::clone(name), file)).1
            }
        };
        let length = file.length().map_err(LogError::io("read", path))?;
        if length < to {
            return Err(refused(format!("the file is only {length} bytes long")));
        }
        // The decoder has bounded the span.
        self.buffer.resize(usize::try_from(to - from).unwrap_or(usize::MAX), 0);
        let got = file.read_full_at(&mut self.buffer, from).map_err(LogError::io("read", path))?;
        if got < self.buffer.len() {
            return Err(refused(format!("the file ends at byte {}", from + got as u64)));
        }
        let mut rest = self.buffer.as_slice();
        let mut payload = Vec::with_capacity(usize::try_from(run.payload_bytes()).unwrap_or(0));
        let gaps = std::iter::once(0).chain(reference.gaps());
        for (length, gap) in run.lengths.iter().zip(gaps) {
            let start = usize::try_from(gap).unwrap_or(usize::MAX).min(rest.len());
            let (_, behind) = rest.split_at(start);
            let (record, behind) = behind.split_at((*length as usize).min(behind.len()));
            payload.extend_from_slice(record);
            rest = behind;
        }
        if crc32c::crc32c(&payload) != reference.crc {
            return Err(refused("what stands there now is something else (the checksum is wrong)".to_owned()));
        }
        run.payload = payload;
        Ok(())
    }
}
