//! Repair against any damage: what it leaves is a log that opens and replays, and what it calls whole is one, too.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::format::SEGMENT_BYTES_MIN;
use super::segment::segment_name;
use super::*;
use crate::disk::RealDisk;
use crate::event::{Epoch, Frame, LogTime, Lsn, RecordKind, Reference, Run};

const OPTIONS: LogOptions =
    LogOptions { segment_bytes: SEGMENT_BYTES_MIN, max_bytes: 1 << 20, compression: Compression::None };
const OLD: Epoch = Epoch([1; 16]);
const NEW: Epoch = Epoch([2; 16]);
const SEGMENTS: u64 = 3;

fn identity(epoch: Epoch) -> Identity {
    Identity { pipeline: "p".to_owned(), epoch, sources: vec![(SourceId(0), "a".to_owned())] }
}

/// Three segments of frames of one to three records. Some of them stand in a file beside the log.
fn write_log(dir: &Path) -> Vec<Frame> {
    let input = dir.with_file_name("input");
    let (mut writer, _) = open(Arc::new(RealDisk), dir, identity(OLD), OPTIONS, Lsn::ZERO).unwrap();
    let mut frames = Vec::new();
    for n in 0.. {
        let mut run = Run::new(SourceId(0), RecordKind::Data, LogTime(n));
        (0..=n % 3).for_each(|k| run.push(&vec![b'a' + (n % 20) as u8; 1500 + 700 * k as usize]));
        let mut runs = vec![run];
        if writer.stats().segments > 1 && n % 4 == 0 {
            let mut run = Run::one(SourceId(0), RecordKind::Data, LogTime(n), b"in a file");
            let offset = std::fs::metadata(&input).map_or(0, |metadata| metadata.len());
            run.reference = Some(Reference { offset, gaps: Vec::new(), crc: crc32c::crc32c(&run.payload) });
            run.peer = Some(input.to_str().unwrap().into());
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&input).unwrap();
            file.write_all(&run.payload).unwrap();
            runs.push(run);
        }
        frames.extend(writer.append(runs).unwrap());
        if writer.stats().segments == SEGMENTS && n % 9 == 8 {
            return frames;
        }
    }
    frames
}

/// What a start would do: the records behind the cut, or an error.
fn start(dir: &Path, epoch: Epoch, cut: Lsn) -> Result<Vec<Frame>, LogError> {
    open(Arc::new(RealDisk), dir, identity(epoch), OPTIONS, cut)?;
    let mut reader = LogReader::open(Arc::new(RealDisk), dir, cut.plus(1))?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame);
    }
    Ok(frames)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// In a segment (from 0), from a place in it (of 1000) so many bytes change; no bytes: the file is gone.
type Damage = (u64, u64, usize, u8);

fn damage(dir: &Path, (segment, place, length, with): Damage) {
    let path = dir.join(segment_name(1 + segment % SEGMENTS));
    let Ok(mut bytes) = std::fs::read(&path) else { return };
    if length == 0 {
        return std::fs::remove_file(path).unwrap();
    }
    let at = (bytes.len() as u64 * place / 1000) as usize;
    let end = bytes.len().min(at + length);
    bytes[at..end].iter_mut().for_each(|byte| *byte = if with == 0 { 0 } else { *byte ^ with });
    std::fs::write(path, bytes).unwrap();
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0), 4 => 1usize..9, 2 => 1usize..20_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_repaired_log_opens_and_holds_what_was_intact_behind_the_cut(
        cut in 0usize..60,
        damages in vec((0..SEGMENTS, 0u64..1000, length(), any::<u8>()), 0..4),
    ) {
        let root = tempfile::tempdir().unwrap();
        let (dir, new, aside) = (root.path().join("log"), root.path().join("log.new"), root.path().join("aside/log"));
        let frames = write_log(&dir);
        // A cut is between frames.
        let cut = frames.get(cut).or(frames.last()).unwrap().first_lsn.0 - 1;
        let cut = Lsn(cut);
        damages.into_iter().for_each(|it| damage(&dir, it));
        let trial = root.path().join("trial");
        copy(&dir, &trial);

        let behind: Vec<Frame> = frames.into_iter().filter(|frame| frame.first_lsn > cut).collect();
        match examine(&RealDisk, &dir, "p", OLD, cut).unwrap() {
            None => {
                let found = start(&trial, OLD, cut);
                prop_assert!(found.is_ok(), "called whole, but {:?}", found.err());
                prop_assert!(behind.starts_with(&found.unwrap()));
            }
            Some(plan) => {
                prop_assert!(!plan.faults.is_empty());
                let how = Rebuild {
                    pipeline: "p",
                    epochs: (OLD, NEW),
                    options: OPTIONS,
                    cut_time: LogTime(0),
                    gap: Run::one(SourceId::PIPELINE, RecordKind::Gap, LogTime(0), b"gap"),
                };
                let disk: Arc<dyn Disk> = Arc::new(RealDisk);
                rebuild(&disk, &dir, &new, &plan, how).unwrap();
                prop_assert!(!install(&RealDisk, &dir, &new, &aside, OLD).unwrap(), "not decided");
                prop_assert!(install(&RealDisk, &dir, &new, &aside, NEW).unwrap());
                prop_assert!(!install(&RealDisk, &dir, &new, &aside, NEW).unwrap(), "done");
                let mut found = start(&dir, NEW, cut).unwrap();
                let gap = found.pop().unwrap();
                prop_assert_eq!((gap.first_lsn, gap.runs[0].kind), (plan.next, RecordKind::Gap));
                prop_assert_eq!(found.iter().map(Frame::len).sum::<u64>(), plan.kept_records());
                prop_assert!(behind.starts_with(&found));
                prop_assert_eq!(examine(&RealDisk, &dir, "p", NEW, cut).unwrap(), None);
            }
        }
    }
}
