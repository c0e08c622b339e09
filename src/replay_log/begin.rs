//! The log of a state that begins with a checkpoint: of an imported savepoint.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::LogError;
use super::format::SEGMENT_BYTES_MIN;
use super::retention::Segments;
use super::writer::{Identity, LogOptions, LogWriter};
use crate::disk::Disk;
use crate::event::{LogTime, Lsn};

/// Makes an empty log in `dir`, where there must be none: its first record will be the one behind `cut`, and no record is
/// before `cut_time`.
///
/// Its one segment is of the smallest size, which fits below every `log.max_size`; the next one is of the configured.
///
/// # Errors
/// The disk failed.
pub fn begin_behind(
    disk: Arc<dyn Disk>,
    dir: &Path,
    identity: Identity,
    cut: Lsn,
    cut_time: LogTime,
) -> Result<(), LogError> {
    disk.create_dir_all(dir).map_err(LogError::io("create", dir))?;
    let options = LogOptions { segment_bytes: SEGMENT_BYTES_MIN, ..LogOptions::default() };
    let segments = Segments::new(disk, dir, options, VecDeque::new());
    LogWriter::create(segments, identity, 1, cut.plus(1), Some(cut_time)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::event::{Epoch, RecordKind, Run, SourceId};
    use crate::replay_log::open;

    #[test]
    fn a_log_begins_behind_a_cut_and_only_there() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("log");
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let identity = Identity { pipeline: "p".to_owned(), epoch: Epoch([7; 16]), sources: Vec::new() };
        let time = LogTime(1_000_000);
        begin_behind(Arc::clone(&disk), &dir, identity.clone(), Lsn(41), time).unwrap();
        let with_source = Identity { sources: vec![(SourceId(0), "s".to_owned())], ..identity.clone() };
        // A checkpoint elsewhere is not of this log.
        for cut in [40, 42] {
            let error =
                open(Arc::clone(&disk), &dir, with_source.clone(), LogOptions::default(), Lsn(cut)).err().unwrap();
            assert_eq!(error.exit_code(), 65, "{error}");
        }
        let other = Identity { epoch: Epoch([8; 16]), ..identity };
        let error = open(Arc::clone(&disk), &dir, other, LogOptions::default(), Lsn(41)).err().unwrap();
        assert!(matches!(error, LogError::WrongEpoch { .. }), "{error}");
        let (mut writer, recovered) = open(disk, &dir, with_source, LogOptions::default(), Lsn(41)).unwrap();
        assert!(recovered.torn.is_none() && writer.last_lsn() == Lsn(41) && writer.last_time() == Some(time));
        let frames = writer.append(vec![Run::one(SourceId(0), RecordKind::Data, LogTime(5), b"x")]).unwrap();
        assert_eq!((frames[0].first_lsn, frames[0].runs[0].time), (Lsn(42), time));
    }
}
