//! Runs whose payload stands in a file: what the log keeps of them, and what it says when the file is not what it was.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{SEGMENT_BYTES_MIN, VERSION_PLAIN, VERSION_REFERENCES};
use super::reader::newest_segment;
use super::segment::segment_name;
use super::*;
use crate::disk::sim::SimDisk;
use crate::disk::{Disk, RealDisk};
use crate::event::{Epoch, Frame, LogTime, Lsn, Position, RecordKind, Reference, Run};

const OPTIONS: LogOptions =
    LogOptions { segment_bytes: SEGMENT_BYTES_MIN, max_bytes: 4 * SEGMENT_BYTES_MIN, compression: Compression::None };

fn identity() -> Identity {
    Identity { pipeline: "plant".to_owned(), epoch: Epoch([7; 16]), sources: vec![(SourceId(0), "a".to_owned())] }
}

fn open_log(dir: &Path) -> LogWriter {
    open(Arc::new(RealDisk), dir, identity(), OPTIONS, Lsn::ZERO).unwrap().0
}

/// A run of the records at these places (offset, length) of the file.
fn referring(file: &Path, time: i64, places: &[(usize, usize)]) -> Run {
    let content = std::fs::read(file).unwrap();
    let mut run = Run::new(SourceId(0), RecordKind::Data, LogTime(time));
    let mut reference = Reference { offset: places[0].0 as u64, gaps: Vec::new(), crc: 0 };
    let mut end = places[0].0;
    for (index, (offset, length)) in places.iter().enumerate() {
        run.push(&content[*offset..offset + length]);
        if index > 0 {
            reference.push((offset - end) as u64);
        }
        end = offset + length;
    }
    reference.crc = crc32c::crc32c(&run.payload);
    run.peer = Some(file.to_str().unwrap().into());
    run.position = Some(Position::File { inode: 5, head_crc: 6, head_len: 7, offset: end as u64 + 1 });
    run.reference = Some(reference);
    run
}

fn plain(time: i64) -> Run {
    Run::one(SourceId(0), RecordKind::Data, LogTime(time), &[b'x'; 500])
}

fn read(dir: &Path) -> Result<Vec<Frame>, LogError> {
    let mut reader = LogReader::open(Arc::new(RealDisk), dir, Lsn::ZERO)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame);
    }
    Ok(frames)
}

fn golden_dir() -> PathBuf {
    // The name is in the log, so it must not depend on where this stands.
    PathBuf::from("tests/golden/log-v2")
}

fn golden_runs() -> Vec<Run> {
    let file = golden_dir().join("input.ndjson");
    let first = referring(&file, 10, &[(3, 7), (11, 7), (21, 8)]);
    vec![plain(1), first, referring(&file, 11, &[(30, 13), (43, 0)])]
}

fn write_golden(dir: &Path) -> Vec<Frame> {
    open_log(dir).append(golden_runs()).unwrap()
}

#[test]
fn golden_bytes_of_version_2_are_written_and_read() {
    let root = tempfile::tempdir().unwrap();
    let frames = write_golden(root.path());
    let golden = std::fs::read(golden_dir().join(segment_name(2))).unwrap();
    assert!(std::fs::read(root.path().join(segment_name(2))).unwrap() == golden, "the bytes of version 2 have changed");
    assert_eq!(read(&golden_dir()).unwrap(), frames);
    assert_eq!(frames[0].runs, golden_runs());
}

/// Run with `--ignored` for a new format version; the files of an old one are never written again.
#[test]
#[ignore = "writes tests/golden"]
fn write_golden_references() {
    assert!(!golden_dir().join(segment_name(2)).exists(), "it is there already");
    write_golden(&golden_dir());
}

#[test]
fn only_segments_that_may_hold_references_are_of_version_2() {
    let root = tempfile::tempdir().unwrap();
    let (dir, input) = (root.path().join("log"), root.path().join("input"));
    std::fs::write(&input, "one two").unwrap();
    let newest = || newest_segment(&RealDisk, &dir).unwrap().header;
    let mut writer = open_log(&dir);
    let mut frames = writer.append(vec![plain(1)]).unwrap();
    assert_eq!((newest().version, newest().number), (VERSION_PLAIN, 1));
    // Payloads do not go back to version 1 while the writer lives.
    let two = [(0, 3), (4, 3)];
    for runs in [vec![referring(&input, 2, &two)], vec![plain(3)], vec![plain(4), referring(&input, 4, &two)]] {
        frames.extend(writer.append(runs).unwrap());
        assert_eq!((newest().version, newest().number), (VERSION_REFERENCES, 2));
    }
    // The next one does with its next segment.
    let mut writer = open_log(&dir);
    while newest().number == 2 {
        frames.extend(writer.append(vec![plain(5)]).unwrap());
    }
    assert_eq!(newest().version, VERSION_PLAIN);
    assert_eq!(read(&dir).unwrap(), frames);
}

/// A reference needs a segment of its version: where that would take the reserve, there is no room.
#[test]
fn a_log_that_says_it_has_room_for_a_reference_has_it() {
    let root = tempfile::tempdir().unwrap();
    let input = root.path().join("input");
    std::fs::write(&input, "one two").unwrap();
    let mut found = Vec::new();
    for filled in 190..320 {
        let disk = Arc::new(SimDisk::new(1));
        let dir = Path::new("/log");
        let (mut writer, _) = open(Arc::clone(&disk) as Arc<dyn Disk>, dir, identity(), OPTIONS, Lsn::ZERO).unwrap();
        (0..filled).for_each(|n| drop(writer.append(vec![plain(n)]).unwrap()));
        let runs = vec![referring(&input, 1000, &[(0, 3)])];
        let has_room = writer.has_room(&runs);
        assert_eq!(writer.append(runs).is_ok(), has_room, "{filled}");
        let segments = disk.paths().into_iter().filter(|path| path.to_string_lossy().ends_with(".segment")).count();
        assert!(segments <= 3, "{filled}: the reserve is taken");
        found.push(has_room);
        if found.ends_with(&[false, false, false]) {
            break;
        }
    }
    assert!(found.len() > 5 && found[0] && !found[found.len() - 1], "{found:?}");
}

#[test]
fn a_file_that_is_not_what_it_was_is_named_with_place_and_lsn() {
    let root = tempfile::tempdir().unwrap();
    let (dir, input) = (root.path().join("log"), root.path().join("input"));
    let content = "one\ntwo\nthree\n";
    std::fs::write(&input, content).unwrap();
    let mut writer = open_log(&dir);
    writer.append(vec![plain(1), referring(&input, 2, &[(0, 3), (4, 3)])]).unwrap();
    writer.append(vec![referring(&input, 3, &[(8, 5)])]).unwrap();
    let whole = read(&dir).unwrap();
    assert_eq!(whole[1].runs[0].payload, b"three");

    let refused = |expected: (u64, u64, u64), what: &str| {
        let error = read(&dir).unwrap_err();
        assert_eq!(error.exit_code(), 65, "{error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
        match error {
            LogError::Referenced { file, from, to, lsn, .. } => {
                assert_eq!((file.as_path(), (from, to, lsn.0)), (input.as_path(), expected));
            }
            error => panic!("{error}"),
        }
    };
    std::fs::write(&input, "one\ntwo\nthreE\n").unwrap();
    refused((8, 13, 4), "something else");
    std::fs::write(&input, "").unwrap();
    refused((0, 7, 2), "only 0 bytes long");
    std::fs::write(&input, "one\ntwo\nthre").unwrap();
    refused((8, 13, 4), "only 12 bytes long");
    std::fs::remove_file(&input).unwrap();
    refused((0, 7, 2), "no such file");
    // What is between the payloads is of no use to anybody, nor is what stands behind.
    std::fs::write(&input, "one two three, four").unwrap();
    assert_eq!(read(&dir).unwrap(), whole);
    // A restart does not mend it.
    std::fs::remove_file(&input).unwrap();
    std::fs::create_dir(&input).unwrap();
    refused((0, 7, 2), "it cannot be read");
    // Nobody needs the file to look at the log itself.
    let mut summary = Summary { cut: Lsn(3), ..Summary::default() };
    summarize(Arc::new(RealDisk), &dir, &mut summary).unwrap();
    let name = input.to_str().unwrap().to_owned();
    let expected = FileSummary { from: 0, to: 13, needed_from: Some(8) };
    assert_eq!(summary.files.into_iter().collect::<Vec<_>>(), [(("a".to_owned(), name), expected)]);
}

#[test]
fn a_run_with_a_reference_is_never_split() {
    let root = tempfile::tempdir().unwrap();
    let (dir, input) = (root.path().join("log"), root.path().join("input"));
    std::fs::write(&input, vec![b'x'; 100_000]).unwrap();
    let mut writer = open_log(&dir);
    // A payload that would not fit into the log does, by its place.
    let frames = writer.append(vec![plain(1), referring(&input, 2, &[(0, 90_000)])]).unwrap();
    assert_eq!(frames.len(), 1);
    let places: Vec<(usize, usize)> = (0..30_000).map(|n| (n, 1)).collect();
    assert!(matches!(writer.append(vec![referring(&input, 3, &places)]), Err(LogError::TooLarge { .. })));
    assert_eq!(read(&dir).unwrap(), frames);
}
