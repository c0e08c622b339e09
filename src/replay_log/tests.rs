//! The log as a whole: what comes back after whatever has happened to its files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;

use super::format::{SEGMENT_BYTES_MIN, SegmentHeader, VERSION_PLAIN};
use super::*;
use crate::disk::{Access, DiskFile, Lock, RealDisk};
use crate::event::{Epoch, Frame, LogTime, Lsn, Position, RecordKind, Run};

/// The real disk without its syncs, which the death of a process does not need, and with faults.
#[derive(Clone, Default)]
struct TestDisk(Arc<Faults>);

struct Faults {
    /// Changes that are still carried out; then the "process is dead": a write is done by half, and nothing after it.
    left: AtomicI64,
    /// Changes so far.
    changes: AtomicU64,
    /// Writes that find no space from now on.
    no_space: AtomicI64,
    fail_sync: AtomicBool,
    /// Bytes read so far.
    read_bytes: AtomicU64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            left: AtomicI64::new(i64::MAX),
            changes: AtomicU64::new(0),
            no_space: AtomicI64::new(0),
            fail_sync: AtomicBool::new(false),
            read_bytes: AtomicU64::new(0),
        }
    }
}

impl Faults {
    fn change(&self) -> io::Result<()> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::Relaxed) > 0 { Ok(()) } else { Err(io::Error::other("dead")) }
    }
}

struct TestFile(Box<dyn DiskFile>, Arc<Faults>);

impl Disk for TestDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.change()?;
        Ok(Box::new(TestFile(RealDisk.create(path)?, Arc::clone(&self.0))))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(TestFile(RealDisk.open(path, access)?, Arc::clone(&self.0))))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.change()?;
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.change()?;
        RealDisk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        RealDisk.len(path)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.0.change()?;
        std::fs::create_dir_all(dir)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.0.change()
    }

    fn try_lock(&self, path: &Path, content: &[u8]) -> io::Result<Lock> {
        RealDisk.try_lock(path, content)
    }
}

impl DiskFile for TestFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let got = self.0.read_at(buffer, offset)?;
        self.1.read_bytes.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if self.1.no_space.fetch_sub(1, Ordering::Relaxed) > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.1.no_space.store(0, Ordering::Relaxed);
        if let Err(error) = self.1.change() {
            if self.1.left.load(Ordering::Relaxed) == -1 {
                self.0.write_at(&bytes[..bytes.len() / 2], offset)?;
            }
            return Err(error);
        }
        self.0.write_at(bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.1.change()?;
        self.0.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn sync(&self) -> io::Result<()> {
        self.1.change()?;
        if self.1.fail_sync.load(Ordering::Relaxed) { Err(io::Error::other("no sync")) } else { Ok(()) }
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.0.try_lock()
    }
}

const OPTIONS: LogOptions =
    LogOptions { segment_bytes: SEGMENT_BYTES_MIN, max_bytes: 1 << 20, compression: Compression::None };
const HEADER_BYTES: u64 = 4096;

fn named() -> Identity {
    Identity {
        pipeline: "plant".to_owned(),
        epoch: Epoch([7; 16]),
        sources: vec![(SourceId(0), "a".to_owned()), (SourceId(1), "b".to_owned())],
    }
}

fn open_with(disk: &TestDisk, dir: &Path, cut: u64) -> Result<(LogWriter, Recovered), LogError> {
    open(Arc::new(disk.clone()), dir, named(), OPTIONS, Lsn(cut))
}

fn open_log(dir: &Path) -> Result<(LogWriter, Recovered), LogError> {
    open_with(&TestDisk::default(), dir, 0)
}

fn data(source: u16, time: i64, payload: &[u8]) -> Run {
    Run::one(SourceId(source), RecordKind::Data, LogTime(time), payload)
}

fn read_from(dir: &Path, from: u64) -> Result<Vec<Frame>, LogError> {
    let mut reader = LogReader::open(Arc::new(TestDisk::default()), dir, Lsn(from))?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push(frame);
    }
    Ok(frames)
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(segment::segment_name(number))
}

fn assert_corrupt<T>(result: Result<T, LogError>, file: &Path, at: u64, context: &str) {
    match result {
        Err(error @ LogError::Corrupt { .. }) => {
            assert_eq!(error.exit_code(), 65);
            let LogError::Corrupt { file: found, offset, .. } = &error else { unreachable!() };
            assert_eq!((found.as_path(), *offset), (file, at), "{context}: {error}");
            assert!(error.to_string().contains("Restore the state directory from a copy"));
        }
        Err(error) => panic!("{context}: {error}"),
        Ok(_) => panic!("{context}: no error"),
    }
}

/// Three frames in one segment, with the offset of each and of the end.
fn three_frames(dir: &Path) -> (Vec<Frame>, Vec<u64>) {
    let (mut writer, recovered) = open_log(dir).unwrap();
    assert!(recovered.created);
    let mut frames = Vec::new();
    for n in 1..=3 {
        let mut second = data(1, n * 10 + 1, b"");
        second.peer = Some(Arc::from("peer"));
        frames.extend(writer.append(vec![data(0, n * 10, format!("payload {n}").as_bytes()), second]).unwrap());
    }
    let mut reader = LogReader::open(Arc::new(TestDisk::default()), dir, Lsn::ZERO).unwrap();
    let mut offsets = vec![reader.place().1];
    while let Some(frame) = reader.next().unwrap() {
        assert_eq!(frame, frames[offsets.len() - 1]);
        offsets.push(reader.place().1);
    }
    assert_eq!(offsets.len(), 4);
    (frames, offsets)
}

#[test]
fn what_was_appended_is_read_again_from_any_lsn() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("state/log");
    let (frames, _) = three_frames(&dir);
    assert_eq!(frames.iter().map(|frame| frame.first_lsn.0).collect::<Vec<_>>(), [1, 3, 5]);
    let (writer, recovered) = open_log(&dir).unwrap();
    assert_eq!(
        recovered,
        Recovered { created: false, first_lsn: Lsn(1), last_lsn: Lsn(6), last_time: Some(LogTime(31)), torn: None }
    );
    assert_eq!((writer.last_lsn(), writer.first_lsn()), (Lsn(6), Lsn(1)));
    for (from, skipped) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2), (7, 3)] {
        assert_eq!(read_from(&dir, from).unwrap(), frames[skipped..], "from {from}");
    }
}

#[test]
fn a_torn_tail_at_any_byte_is_cut_and_the_log_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (frames, offsets) = three_frames(dir);
    let file = segment_path(dir, 1);
    let whole = std::fs::read(&file).unwrap();
    let (start, end) = (offsets[2] as usize, offsets[3] as usize);
    for at in start..end {
        for damage in ["cut", "zeroed", "stale"] {
            let mut bytes = whole.clone();
            match damage {
                "cut" => bytes.truncate(at),
                "zeroed" => bytes[at..].fill(0),
                _ => bytes[at..end].iter_mut().for_each(|byte| *byte = !*byte),
            }
            if bytes == whole {
                continue; // Zeros in place of the padding's zeros.
            }
            std::fs::write(&file, &bytes).unwrap();
            let context = format!("{damage} at {at}");
            let (mut writer, recovered) = open_log(dir).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(recovered.last_lsn, Lsn(4), "{context}");
            if damage == "zeroed" && at == start {
                assert_eq!(recovered.torn, None, "nothing shows that there was a frame");
            } else {
                let torn = recovered.torn.unwrap_or_else(|| panic!("{context}: not noticed"));
                assert_eq!((torn.file, torn.offset), (file.clone(), start as u64), "{context}");
            }
            let after = std::fs::read(&file).unwrap();
            assert_eq!(after.len(), whole.len(), "{context}");
            assert_eq!(after[..start], whole[..start], "{context}");
            assert!(after[start..].iter().all(|byte| *byte == 0), "{context}");
            let more = writer.append(vec![data(0, 99, b"more")]).unwrap();
            assert_eq!(more[0].first_lsn, Lsn(5), "{context}");
            let read = read_from(dir, 0).unwrap();
            assert_eq!(read[..2], frames[..2], "{context}");
            assert_eq!(read[2..], more, "{context}");
            let (_, again) = open_log(dir).unwrap();
            assert_eq!((again.torn, again.last_lsn), (None, Lsn(5)), "{context}");
        }
    }
}

#[test]
fn a_frame_that_lost_any_of_its_pages_is_cut() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (mut writer, _) = open_log(dir).unwrap();
    // In a recycled segment, where pages that were lost hold frames of an earlier life.
    for time in 0..17 {
        append_large(&mut writer, time).unwrap();
        writer.trim(Lsn(time as u64)).unwrap();
    }
    let (_, recovered) = open_with(&TestDisk::default(), dir, 16).unwrap();
    let (last, number) =
        (recovered.last_lsn, *segment::list(&RealDisk, dir).unwrap().unwrap().segments.last().unwrap());
    let file = segment_path(dir, number);
    let before = std::fs::read(&file).unwrap();
    let (mut writer, _) = open_with(&TestDisk::default(), dir, 16).unwrap();
    append_large(&mut writer, 99).unwrap();
    let after = std::fs::read(&file).unwrap();
    let pages: Vec<usize> = (0..16).filter(|n| before[n * 4096..][..4096] != after[n * 4096..][..4096]).collect();
    assert_eq!(pages.len(), 4);
    for lost in 0..1u32 << pages.len() {
        let mut bytes = after.clone();
        for (_, page) in pages.iter().enumerate().filter(|(n, _)| lost & (1 << n) != 0) {
            bytes[page * 4096..][..4096].copy_from_slice(&before[page * 4096..][..4096]);
        }
        std::fs::write(&file, &bytes).unwrap();
        let (mut writer, recovered) = open_with(&TestDisk::default(), dir, 16).unwrap();
        assert_eq!(recovered.last_lsn, last.plus(u64::from(lost == 0)), "lost {lost:b}");
        let frames = append_large(&mut writer, 100).unwrap();
        assert_eq!(read_from(dir, recovered.last_lsn.0 + 1).unwrap(), frames, "lost {lost:b}");
        let (_, again) = open_with(&TestDisk::default(), dir, 16).unwrap();
        assert_eq!((again.last_lsn, again.torn), (recovered.last_lsn.plus(1), None), "lost {lost:b}");
    }
}

#[test]
fn a_flipped_bit_in_an_earlier_frame_is_corruption_and_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (_, offsets) = three_frames(dir);
    let file = segment_path(dir, 1);
    let whole = std::fs::read(&file).unwrap();
    for at in offsets[0]..offsets[2] {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 1 << (at % 8);
        std::fs::write(&file, &bytes).unwrap();
        let frame = *offsets.iter().rev().find(|offset| **offset <= at).unwrap();
        assert_corrupt(open_log(dir), &file, frame, &format!("open, byte {at}"));
        assert_corrupt(read_from(dir, 0), &file, frame, &format!("read, byte {at}"));
        assert_eq!(std::fs::read(&file).unwrap(), bytes);
    }
    // A whole frame lost to zeros, and one in another's place.
    let (first, second) = (offsets[0] as usize, offsets[1] as usize);
    for n in 0..2 {
        let mut bytes = whole.clone();
        if n == 0 {
            bytes[first..second].fill(0)
        } else {
            bytes.copy_within(second..second + second - first, first)
        }
        std::fs::write(&file, &bytes).unwrap();
        assert_corrupt(open_log(dir), &file, offsets[0], "open");
        assert_corrupt(read_from(dir, 0), &file, offsets[0], "read");
    }
    // The header of a segment that has frames.
    for at in (0..HEADER_BYTES).step_by(97) {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 0x10;
        std::fs::write(&file, &bytes).unwrap();
        assert_corrupt(open_log(dir), &file, 0, &format!("header byte {at}"));
        assert_corrupt(read_from(dir, 0), &file, 0, &format!("header byte {at}"));
    }
}

#[test]
fn a_bad_frame_that_a_checkpoint_covers_is_corruption() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (_, offsets) = three_frames(dir);
    let file = segment_path(dir, 1);
    let whole = std::fs::read(&file).unwrap();
    let mut bytes = whole.clone();
    bytes[offsets[3] as usize - 1] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    for cut in [5, 6] {
        assert_corrupt(open_with(&TestDisk::default(), dir, cut), &file, offsets[2], "covered");
    }
    open_with(&TestDisk::default(), dir, 4).unwrap();
    // Nothing is left to see of the frame.
    bytes[offsets[2] as usize..].fill(0);
    std::fs::write(&file, &bytes).unwrap();
    let error = open_with(&TestDisk::default(), dir, 6).err().unwrap();
    assert!(matches!(error, LogError::Lost { .. }), "{error}");
    assert_eq!(error.exit_code(), 65);
    assert!(error.to_string().contains("LSN 1 to 4"), "{error}");
    // Nothing is left of the log.
    let error = open_with(&TestDisk::default(), &root.path().join("none"), 6).err().unwrap();
    assert!(matches!(error, LogError::Lost { .. }), "{error}");
    assert!(!root.path().join("none").exists());
}

#[test]
fn a_log_of_another_pipeline_epoch_or_version_is_refused_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    three_frames(dir);
    let file = segment_path(dir, 1);
    let whole = std::fs::read(&file).unwrap();
    let open_as = |identity| open(Arc::new(TestDisk::default()), dir, identity, OPTIONS, Lsn::ZERO).err().unwrap();
    let error = open_as(Identity { pipeline: "mine".to_owned(), ..named() });
    assert!(matches!(error, LogError::WrongPipeline { .. }), "{error}");
    assert!(error.to_string().contains("`plant`, not to `mine`"), "{error}");
    assert_eq!(error.exit_code(), 65);
    let error = open_as(Identity { epoch: Epoch([8; 16]), ..named() });
    assert!(matches!(error, LogError::WrongEpoch { .. }), "{error}");
    assert_eq!(error.exit_code(), 65);
    let error = open_as(Identity { sources: vec![(SourceId(0), "b".to_owned())], ..named() });
    assert!(matches!(error, LogError::Options(_)), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), whole);

    let mut later = whole;
    later[8] = 9;
    later[16..20].fill(0);
    let crc = crc32c::crc32c(&later[..HEADER_BYTES as usize]);
    later[16..20].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&file, &later).unwrap();
    let error = open_log(dir).err().unwrap();
    assert!(matches!(error, LogError::UnknownVersion { version: 9, .. }), "{error}");
    assert_eq!(error.exit_code(), 65);
    assert_eq!(std::fs::read(&file).unwrap(), later);
}

#[test]
fn a_large_list_of_runs_becomes_frames_of_a_quarter_segment() {
    let root = tempfile::tempdir().unwrap();
    let (mut writer, _) = open_log(root.path()).unwrap();
    let position = Position::File { inode: 1, head_crc: 2, head_len: 3, offset: 4 };
    let mut run = Run::new(SourceId(0), RecordKind::Data, LogTime(5));
    run.position = Some(position);
    run.peer = Some(Arc::from("file"));
    for n in 0..3000u32 {
        run.push(format!("record number {n}").as_bytes());
    }
    let runs = vec![data(1, 4, b"before"), run.clone(), Run::new(SourceId(1), RecordKind::Data, LogTime(5))];
    let frames = writer.append(runs).unwrap();
    assert!(frames.len() > 2, "{}", frames.len());
    let mut lsn = 1;
    for frame in &frames {
        assert_eq!(frame.first_lsn, Lsn(lsn));
        lsn += frame.len();
    }
    assert_eq!(lsn, 3002);
    let parts: Vec<&Run> = frames.iter().flat_map(|frame| &frame.runs).skip(1).collect();
    let records: Vec<&[u8]> = parts.iter().flat_map(|part| part.records()).collect();
    assert_eq!(records, run.records().collect::<Vec<_>>());
    for (n, part) in parts.iter().enumerate() {
        assert_eq!(part.position, (n + 1 == parts.len()).then_some(position));
        assert_eq!((part.peer.as_deref(), part.time), (Some("file"), LogTime(5)));
    }
    assert_eq!(read_from(root.path(), 0).unwrap(), frames);

    let longest = OPTIONS.max_record_bytes();
    writer.append(vec![data(0, 6, &vec![1; longest])]).unwrap();
    let error = writer.append(vec![data(0, 6, &vec![1; SEGMENT_BYTES_MIN as usize / 4])]).unwrap_err();
    assert!(matches!(error, LogError::TooLarge { .. }), "{error}");
    let error =
        writer.append(vec![Run { lengths: vec![3], payload: b"four".to_vec(), ..data(0, 6, b"") }]).unwrap_err();
    assert!(matches!(error, LogError::Malformed), "{error}");
    assert_eq!(writer.append(Vec::new()).unwrap(), []);
    assert_eq!(writer.append(vec![data(0, 6, b"goes on")]).unwrap()[0].first_lsn, Lsn(3003));
}

/// Only a run's end carries its position: were a run split that fits a frame, a crash between the parts would have the
/// source read the first part again.
#[test]
fn a_run_that_fits_into_a_frame_is_never_split() {
    let root = tempfile::tempdir().unwrap();
    let (mut writer, _) = open_log(root.path()).unwrap();
    let half = OPTIONS.max_record_bytes() / 2;
    let runs: Vec<Run> = (0..9)
        .map(|n| {
            let mut run = Run::new(SourceId(0), RecordKind::Data, LogTime(n));
            run.position = Some(Position::File { inode: 1, head_crc: 2, head_len: 3, offset: n as u64 });
            (0..3).for_each(|_| run.push(&vec![n as u8; half / 4 + 1]));
            run
        })
        .collect();
    let frames = writer.append(runs.clone()).unwrap();
    assert!(frames.len() > 2);
    assert_eq!(frames.into_iter().flat_map(|frame| frame.runs).collect::<Vec<_>>(), runs);
}

#[test]
fn log_time_never_decreases() {
    let root = tempfile::tempdir().unwrap();
    let (mut writer, _) = open_log(root.path()).unwrap();
    let mut times = Vec::new();
    for runs in [vec![data(0, 5, b""), data(1, 3, b""), data(0, 9, b"")], vec![data(1, 8, b""), data(1, 10, b"")]] {
        let frames = writer.append(runs).unwrap();
        times.extend(frames.iter().flat_map(|frame| &frame.runs).map(|run| run.time.0));
    }
    assert_eq!(times, [5, 5, 9, 9, 10]);
}

/// Appends a frame of about 12 KB: five to a segment.
fn append_large(writer: &mut LogWriter, time: i64) -> Result<Vec<Frame>, LogError> {
    let payload: Vec<u8> = (0..12_000u32).map(|n| (n as i64 * 7 + time) as u8).collect();
    writer.append(vec![data(0, time, &payload)])
}

#[test]
fn the_ring_rolls_trims_and_recycles_and_stale_frames_never_count() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (mut writer, _) = open_log(dir).unwrap();
    let mut frames = Vec::new();
    for time in 0..60 {
        frames.extend(append_large(&mut writer, time).unwrap());
        writer.trim(Lsn((frames.len() as u64).saturating_sub(2))).unwrap();
        let first = writer.first_lsn().0 as usize;
        assert!(first + 8 > frames.len(), "{first}");
        assert_eq!(read_from(dir, 0).unwrap(), frames[first - 1..], "at {time}");
        // What is read back after a restart, from a segment with stale frames behind the end.
        if time % 7 == 0 {
            let (reopened, recovered) = open_with(&TestDisk::default(), dir, frames.len() as u64).unwrap();
            writer = reopened;
            assert_eq!((recovered.torn, recovered.last_lsn), (None, Lsn(frames.len() as u64)));
            assert_eq!((recovered.first_lsn, recovered.last_time), (Lsn(first as u64), Some(LogTime(time))));
        }
    }
    let names = std::fs::read_dir(dir).unwrap().count();
    assert!(names <= 4, "{names} files");
    assert_eq!(segment::list(&RealDisk, dir).unwrap().unwrap().segments.last(), Some(&12));
    for file in std::fs::read_dir(dir).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().len(), SEGMENT_BYTES_MIN);
    }
    // The last segment is a recycled one: its frames of an earlier life are there, and are not taken.
    let last = std::fs::read(segment_path(dir, 12)).unwrap();
    assert!(last.windows(4).filter(|bytes| bytes == b"FbF1").count() >= 5);

    // Torn in a recycled segment: cut, and zeros from there.
    let end = LogReader::open(Arc::new(TestDisk::default()), dir, Lsn(60)).and_then(|mut reader| {
        let before = reader.place().1;
        while reader.next()?.is_some() {}
        assert!(reader.place().1 > before);
        Ok(reader.place().1 as usize)
    });
    let mut torn = last;
    torn[end.unwrap() - 1] ^= 0x80;
    std::fs::write(segment_path(dir, 12), &torn).unwrap();
    let (mut writer, recovered) = open_with(&TestDisk::default(), dir, 58).unwrap();
    assert!(recovered.torn.is_some());
    assert_eq!(recovered.last_lsn, Lsn(59));
    append_large(&mut writer, 100).unwrap();
    assert_eq!(read_from(dir, 60).unwrap()[0].runs[0].time, LogTime(100));
}

#[test]
fn a_start_reads_the_headers_of_earlier_segments_and_only_the_last_one_whole() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let options = LogOptions { max_bytes: 64 * SEGMENT_BYTES_MIN, ..OPTIONS };
    let open_it = |disk: &TestDisk| open(Arc::new(disk.clone()), dir, named(), options, Lsn::ZERO).unwrap().0;
    let read_by_a_start = || {
        let disk = TestDisk::default();
        let writer = open_it(&disk);
        (writer.stats().segments, disk.0.read_bytes.load(Ordering::Relaxed))
    };
    let mut writer = open_it(&TestDisk::default());
    let mut time = 0;
    while writer.stats().segments < 20 {
        append_large(&mut writer, time).unwrap();
        time += 1;
    }
    drop(writer);
    let (segments, bytes) = read_by_a_start();
    assert_eq!(segments, 20);
    // Once each frame, once in search of one behind the end, once the last frame again.
    assert!(bytes < 20 * HEADER_BYTES + 3 * SEGMENT_BYTES_MIN, "{bytes} of {}", 20 * SEGMENT_BYTES_MIN);
    // Ten segments fewer cost ten headers less.
    for number in 1..=10 {
        std::fs::remove_file(segment_path(dir, number)).unwrap();
    }
    let disk = TestDisk::default();
    let cut = LogReader::open(Arc::new(TestDisk::default()), dir, Lsn::ZERO).unwrap().position();
    open(Arc::new(disk.clone()), dir, named(), options, Lsn(cut.0 - 1)).unwrap();
    assert_eq!(bytes - disk.0.read_bytes.load(Ordering::Relaxed), 10 * HEADER_BYTES);
}

#[test]
fn trimming_all_keeps_lsn_and_time_in_the_header() {
    let root = tempfile::tempdir().unwrap();
    let (mut writer, _) = open_log(root.path()).unwrap();
    append_large(&mut writer, 50).unwrap();
    let more = Identity { sources: merge_sources(&named().sources, &["c".to_owned()]).unwrap(), ..named() };
    // A new source: the log rolls at the start.
    let disk: Arc<dyn Disk> = Arc::new(TestDisk::default());
    let (mut writer, _) = open(Arc::clone(&disk), root.path(), more.clone(), OPTIONS, Lsn(1)).unwrap();
    assert_eq!(writer.stats().segments, 2);
    writer.trim(Lsn(2)).unwrap();
    assert_eq!(writer.stats().segments, 1);
    let (mut writer, recovered) = open(disk, root.path(), more.clone(), OPTIONS, Lsn(1)).unwrap();
    assert_eq!((recovered.first_lsn, recovered.last_lsn), (Lsn(2), Lsn(1)));
    assert_eq!(recovered.last_time, Some(LogTime(50)));
    assert_eq!(writer.append(vec![data(2, 1, b"x")]).unwrap()[0].runs[0].time, LogTime(50));
    assert_eq!(identity(&RealDisk, root.path()).unwrap(), Some(more));
    assert_eq!(identity(&RealDisk, &root.path().join("none")).unwrap(), None);
}

#[test]
fn sources_keep_their_numbers() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let table = merge_sources(&[], &names(&["b", "a"])).unwrap();
    assert_eq!(table, [(SourceId(0), "b".to_owned()), (SourceId(1), "a".to_owned())]);
    let table = merge_sources(&table, &names(&["c", "a"])).unwrap();
    assert_eq!(
        table.iter().map(|(id, name)| (id.0, name.as_str())).collect::<Vec<_>>(),
        [(0, "b"), (1, "a"), (2, "c")]
    );
}

#[test]
fn a_flipped_bit_in_an_earlier_segment_shows_when_it_is_read() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (mut writer, _) = open_log(dir).unwrap();
    (0..12).for_each(|time| drop(append_large(&mut writer, time).unwrap()));
    let file = segment_path(dir, 1);
    let whole = std::fs::read(&file).unwrap();
    let frame_bytes = 12_064;
    // The last frame of segment 1: nothing is behind it but the next segment.
    for at in [HEADER_BYTES + 4 * frame_bytes, HEADER_BYTES + 4 * frame_bytes + 5000] {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        assert_corrupt(read_from(dir, 0), &file, HEADER_BYTES + 4 * frame_bytes, "read");
        open_log(dir).unwrap();
    }
    std::fs::write(&file, &whole).unwrap();
    let mut bytes = std::fs::read(segment_path(dir, 2)).unwrap();
    bytes[20] ^= 1;
    std::fs::write(segment_path(dir, 2), &bytes).unwrap();
    assert_corrupt(open_log(dir), &segment_path(dir, 2), 0, "header");
    assert_corrupt(read_from(dir, 0), &segment_path(dir, 2), 0, "header");
    // A segment is missing: what is left does not go on from the checkpoint.
    std::fs::remove_file(segment_path(dir, 2)).unwrap();
    assert!(matches!(open_log(dir).err().unwrap(), LogError::Lost { .. }));
}

/// Rolls, trims and reopens; what `append` returned goes into `acknowledged`, trims into `trimmed`.
fn scenario(disk: &TestDisk, dir: &Path, acknowledged: &mut Vec<Frame>, trimmed: &mut u64) -> Result<(), LogError> {
    let (mut writer, _) = open_with(disk, dir, 0)?;
    for time in 0..8 {
        acknowledged.extend(append_large(&mut writer, time)?);
    }
    *trimmed = 7;
    writer.trim(Lsn(*trimmed))?;
    drop(writer);
    let identity = Identity { sources: merge_sources(&named().sources, &["c".to_owned()])?, ..named() };
    let (mut writer, _) = open(Arc::new(disk.clone()), dir, identity, OPTIONS, Lsn(*trimmed))?;
    for time in 8..16 {
        acknowledged.extend(append_large(&mut writer, time)?);
    }
    *trimmed = 14;
    writer.trim(Lsn(*trimmed))?;
    for time in 16..24 {
        acknowledged.extend(append_large(&mut writer, time)?);
    }
    Ok(())
}

#[test]
fn a_kill_at_any_change_of_the_disk_loses_nothing_and_needs_nobody() {
    let root = tempfile::tempdir().unwrap();
    let full = TestDisk::default();
    scenario(&full, &root.path().join("full"), &mut Vec::new(), &mut 0).unwrap();
    let changes = full.0.changes.load(Ordering::Relaxed);
    assert!(changes > 60, "{changes}");
    for kill_at in 0..changes {
        let dir = root.path().join(format!("killed-{kill_at}"));
        let disk = TestDisk::default();
        disk.0.left.store(kill_at as i64, Ordering::Relaxed);
        let (mut acknowledged, mut trimmed) = (Vec::new(), 0);
        scenario(&disk, &dir, &mut acknowledged, &mut trimmed).unwrap_err();

        // Once more, killed at any change of the recovery.
        let identity = Identity { sources: merge_sources(&named().sources, &["c".to_owned()]).unwrap(), ..named() };
        for kill_again_at in 0.. {
            let disk = TestDisk::default();
            disk.0.left.store(kill_again_at, Ordering::Relaxed);
            if open(Arc::new(disk), &dir, identity.clone(), OPTIONS, Lsn(trimmed)).is_ok() {
                break;
            }
        }
        let context = format!("killed at change {kill_at} of {changes}");
        let (mut writer, recovered) =
            open(Arc::new(TestDisk::default()), &dir, identity.clone(), OPTIONS, Lsn(trimmed))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
        // A frame that was whole when the process died may be there beyond what it knew of.
        let extra = recovered.last_lsn.0.checked_sub(acknowledged.len() as u64).expect("nothing acknowledged is lost");
        assert!(extra <= 1, "{context}: {extra}");
        assert!(recovered.first_lsn.0 <= trimmed + 1, "{context}");
        let first = recovered.first_lsn.0 as usize;
        let read = read_from(&dir, 0).unwrap();
        assert_eq!(
            read[..read.len() - extra as usize],
            acknowledged[(first - 1).min(acknowledged.len())..],
            "{context}"
        );
        for time in 100..106 {
            append_large(&mut writer, time).unwrap();
        }
        let again = read_from(&dir, 0).unwrap();
        assert_eq!(again[..read.len()], read, "{context}");
        assert_eq!(again.len(), read.len() + 6, "{context}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Action {
    /// Runs of records of these lengths.
    Append(Vec<Vec<usize>>),
    /// Trim all but this many records.
    Trim(u64),
    Reopen,
    /// Lose this many of the last frame's bytes, then reopen.
    Tear(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let lengths = vec(prop_oneof![8 => 0..200usize, 1 => 0..15_000usize], 1..40);
    prop_oneof![
        6 => vec(lengths, 1..4).prop_map(Action::Append),
        2 => (0..50u64).prop_map(Action::Trim),
        1 => Just(Action::Reopen),
        1 => (1..100usize).prop_map(Action::Tear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_life_of_a_log_reads_back_as_its_model(actions in vec(action(), 1..40), lz4: bool) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let compression = if lz4 { Compression::Lz4 } else { Compression::None };
        let options = LogOptions { compression, max_bytes: 1 << 30, ..OPTIONS };
        let open_at = |cut| open(Arc::new(TestDisk::default()), dir, named(), options, Lsn(cut)).unwrap();
        let (mut writer, _) = open_at(0);
        let (mut model, mut trimmed, mut time, mut fresh) = (Vec::<Frame>::new(), 0, 0, false);
        for action in actions {
            match action {
                Action::Append(runs) => {
                    let runs = runs.iter().enumerate().map(|(n, lengths)| {
                        time += 1;
                        let mut run = Run::new(SourceId(n as u16 % 2), RecordKind::Data, LogTime(time));
                        lengths.iter().for_each(|length| run.push(&vec![(length * 7) as u8; *length]));
                        run
                    });
                    let runs: Vec<Run> = runs.collect();
                    let frames = writer.append(runs.clone()).unwrap();
                    let wanted = runs.iter().flat_map(|run| run.records());
                    prop_assert!(wanted.eq(frames.iter().flat_map(|frame| &frame.runs).flat_map(Run::records)));
                    model.extend(frames);
                    fresh = true;
                }
                Action::Trim(but) => {
                    trimmed = trimmed.max(writer.last_lsn().0.saturating_sub(but));
                    writer.trim(Lsn(trimmed)).unwrap();
                }
                Action::Reopen => writer = open_at(trimmed).0,
                Action::Tear(bytes) => {
                    // Only what was not synced is ever torn: never the frame before it, too.
                    let last = model.last().filter(|frame| fresh && frame.first_lsn.0 > trimmed);
                    let Some(last) = last else { continue };
                    fresh = false;
                    let mut reader = LogReader::open(Arc::new(RealDisk), dir, last.first_lsn).unwrap();
                    let path = reader.next().unwrap().map(|_| reader.place().0.to_owned()).unwrap();
                    let end = reader.place().1 as usize;
                    let start = end - reader.frame_bytes() as usize;
                    let mut content = std::fs::read(&path).unwrap();
                    content[end.saturating_sub(bytes).max(start)..end].iter_mut().for_each(|byte| *byte = !*byte);
                    std::fs::write(&path, content).unwrap();
                    let (reopened, recovered) = open_at(trimmed);
                    prop_assert!(recovered.torn.is_some());
                    model.pop();
                    writer = reopened;
                }
            }
            prop_assert_eq!(writer.last_lsn(), model.last().map_or(Lsn::ZERO, Frame::last_lsn));
        }
        let first = writer.first_lsn();
        let left: Vec<Frame> = model.into_iter().filter(|frame| frame.first_lsn >= first).collect();
        prop_assert!(first.0 <= trimmed + 1);
        prop_assert_eq!(read_from(dir, 0).unwrap(), left);
    }
}

#[test]
fn a_roll_that_died_before_its_header_was_whole_is_never_corruption() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (frames, _) = three_frames(dir);
    let header = SegmentHeader {
        version: VERSION_PLAIN,
        pipeline: "plant".to_owned(),
        epoch: Epoch([7; 16]),
        number: 2,
        first_lsn: Lsn(7),
        previous_crc: 0,
        last_time: None,
        segment_bytes: SEGMENT_BYTES_MIN,
        sources: named().sources,
    };
    let stale = std::fs::read(segment_path(dir, 1)).unwrap();
    let whole = header.encode().unwrap();
    let mut half = stale.clone();
    half[..45].copy_from_slice(&whole[..45]);
    for content in [Vec::new(), vec![0; SEGMENT_BYTES_MIN as usize], whole[..100].to_vec(), half, stale] {
        std::fs::write(segment_path(dir, 2), &content).unwrap();
        assert_eq!(read_from(dir, 0).unwrap(), frames);
        let (_, recovered) = open_log(dir).unwrap();
        assert_eq!((recovered.last_lsn, recovered.torn), (Lsn(6), None));
        assert!(!segment_path(dir, 2).exists());
    }
    // The same where it is the first segment of all.
    let dir = &root.path().join("new");
    std::fs::create_dir(dir).unwrap();
    std::fs::write(segment_path(dir, 1), vec![0; 5000]).unwrap();
    assert_eq!(identity(&RealDisk, dir).unwrap(), None);
    assert!(open_log(dir).unwrap().1.created);
}

#[test]
fn a_spare_whose_rename_was_lost_and_odd_files_do_no_harm() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (frames, _) = three_frames(dir);
    std::fs::copy(segment_path(dir, 1), dir.join(segment::spare_name(4))).unwrap();
    std::fs::write(dir.join(segment::spare_name(5)), b"short").unwrap();
    std::fs::write(dir.join("notes.txt"), b"mine").unwrap();
    std::fs::write(dir.join("1.segment"), b"mine").unwrap();
    let (mut writer, _) = open_log(dir).unwrap();
    assert_eq!(writer.stats().disk_bytes, 2 * SEGMENT_BYTES_MIN);
    let mut all = frames;
    for time in 100..106 {
        all.extend(append_large(&mut writer, time).unwrap());
    }
    assert!(!dir.join(segment::spare_name(4)).exists(), "it became segment 2");
    assert_eq!(read_from(dir, 0).unwrap(), all);
    assert_eq!(std::fs::read(dir.join("notes.txt")).unwrap(), b"mine");
    assert!(dir.join("1.segment").exists());
}

#[test]
fn after_a_failed_sync_the_writer_takes_nothing_and_a_restart_recovers() {
    let root = tempfile::tempdir().unwrap();
    let disk = TestDisk::default();
    let (mut writer, _) = open_with(&disk, root.path(), 0).unwrap();
    writer.append(vec![data(0, 1, b"one")]).unwrap();
    disk.0.fail_sync.store(true, Ordering::Relaxed);
    let error = writer.append(vec![data(0, 2, b"two")]).unwrap_err();
    assert!(matches!(error, LogError::Io { action: "sync", .. }), "{error}");
    assert_eq!(error.exit_code(), 74);
    disk.0.fail_sync.store(false, Ordering::Relaxed);
    for error in [writer.append(vec![data(0, 3, b"three")]).err(), writer.trim(Lsn(1)).err()] {
        let error = error.unwrap();
        assert!(matches!(error, LogError::Poisoned { .. }), "{error}");
        assert_eq!(error.exit_code(), 74);
    }
    let (mut writer, recovered) = open_log(root.path()).unwrap();
    assert!(recovered.last_lsn >= Lsn(1));
    writer.append(vec![data(0, 4, b"four")]).unwrap();
    assert_eq!(read_from(root.path(), 0).unwrap()[0].runs[0].payload, b"one");
}

#[test]
fn want_of_space_is_waited_for() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let disk = TestDisk::default();
    let (mut writer, _) = open_with(&disk, dir, 0).unwrap();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (log, script) = (Arc::clone(&waits), Arc::clone(&answers));
    writer.set_space_wait(Box::new(move |delay| {
        log.lock().unwrap().push(delay.as_millis());
        script.lock().unwrap().pop().unwrap_or(Wait::Retry)
    }));

    disk.0.no_space.store(9, Ordering::Relaxed);
    let mut frames = writer.append(vec![data(0, 1, b"patience")]).unwrap();
    assert_eq!(*waits.lock().unwrap(), [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);

    // Stopped: nothing is there, nothing is broken.
    disk.0.no_space.store(i64::MAX, Ordering::Relaxed);
    answers.lock().unwrap().push(Wait::Stop);
    let error = writer.append(vec![data(0, 2, b"too late")]).unwrap_err();
    assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
    assert_eq!(error.exit_code(), 74);
    disk.0.no_space.store(0, Ordering::Relaxed);
    for time in 3..13 {
        frames.extend(append_large(&mut writer, time).unwrap());
    }
    assert_eq!(read_from(dir, 0).unwrap(), frames);
    assert_eq!(writer.stats().segments, 2);

    // The roll finds no space for a new segment; a trim during the wait gives it an old one.
    disk.0.no_space.store(1, Ordering::Relaxed);
    answers.lock().unwrap().push(Wait::Trim(Lsn(8)));
    frames.extend(append_large(&mut writer, 13).unwrap());
    assert_eq!(writer.stats().segments, 2);
    assert_eq!(writer.stats().disk_bytes, 2 * SEGMENT_BYTES_MIN);
    let first = writer.first_lsn().0 as usize;
    assert!(first > 1);
    assert_eq!(read_from(dir, 0).unwrap(), frames[first - 1..]);
}

#[test]
fn a_full_log_takes_control_records_until_it_is_trimmed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let options = LogOptions { max_bytes: 4 * SEGMENT_BYTES_MIN, ..OPTIONS };
    let disk: Arc<dyn Disk> = Arc::new(TestDisk::default());
    let (mut writer, _) = open(Arc::clone(&disk), dir, named(), options, Lsn::ZERO).unwrap();
    let mut time = 0;
    let error = loop {
        match append_large(&mut writer, time) {
            Ok(_) => time += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::Full { .. }), "{error}");
    assert_eq!((time, writer.stats().segments), (15, 3));
    assert!(!writer.has_room(&[data(0, time, &[0; 12_000])]));
    let gap = |time| Run::one(SourceId(0), RecordKind::Gap, LogTime(time), &[0; 9000]);
    assert!(writer.has_room(&[gap(time)]));
    let mut gaps = 0;
    while writer.has_room(&[gap(time)]) {
        writer.append(vec![gap(time)]).unwrap();
        gaps += 1;
    }
    assert!(gaps >= 6, "{gaps}");
    assert!(matches!(writer.append(vec![gap(time)]).unwrap_err(), LogError::Full { .. }));
    assert!(!writer.has_room(&[data(0, time, b"x")]));
    writer.trim(Lsn(6)).unwrap();
    writer.append(vec![data(0, time, b"x")]).unwrap();
    let files = std::fs::read_dir(dir).unwrap().count() as u64;
    assert!(files <= 4, "{files}");

    for (segment_bytes, max_bytes) in [(4096, 1 << 20), (65_537, 1 << 20), (SEGMENT_BYTES_MIN, 3 * SEGMENT_BYTES_MIN)] {
        let options = LogOptions { segment_bytes, max_bytes, ..OPTIONS };
        let error = open(Arc::clone(&disk), dir, named(), options, Lsn(10)).err().unwrap();
        assert_eq!(error.exit_code(), 78, "{error}");
    }
}

#[test]
fn segments_of_another_length_are_read_on_and_replaced() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (mut writer, _) = open_log(dir).unwrap();
    let mut frames = Vec::new();
    (0..8).for_each(|time| frames.extend(append_large(&mut writer, time).unwrap()));
    let disk: Arc<dyn Disk> = Arc::new(TestDisk::default());
    let larger = LogOptions { segment_bytes: 4 * SEGMENT_BYTES_MIN, ..OPTIONS };
    let (mut writer, _) = open(Arc::clone(&disk), dir, named(), larger, Lsn(8)).unwrap();
    // Longer than a frame of the old segment may be.
    frames.extend(writer.append(vec![data(0, 9, &[9; 40_000])]).unwrap());
    assert_eq!(read_from(dir, 0).unwrap(), frames);
    let (mut writer, _) = open(disk, dir, named(), OPTIONS, Lsn(9)).unwrap();
    for time in 10..40 {
        frames.extend(append_large(&mut writer, time).unwrap());
    }
    assert_eq!(read_from(dir, 0).unwrap(), frames);
    writer.trim(Lsn(39)).unwrap();
    let lengths: Vec<u64> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).collect();
    assert!(lengths.iter().all(|length| *length == SEGMENT_BYTES_MIN), "{lengths:?}");
}

#[test]
fn a_reader_follows_the_writer_and_is_told_when_it_is_overtaken() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (mut writer, _) = open_log(dir).unwrap();
    let mut reader = LogReader::open(Arc::new(TestDisk::default()), dir, Lsn::ZERO).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    for time in 0..20 {
        let frames = append_large(&mut writer, time).unwrap();
        assert_eq!(reader.next().unwrap().as_ref(), frames.first(), "at {time}");
        assert_eq!(reader.next().unwrap(), None);
        assert_eq!(reader.tail(), None);
        writer.trim(Lsn(time as u64)).unwrap();
    }
    for time in 20..40 {
        append_large(&mut writer, time).unwrap();
    }
    writer.trim(Lsn(38)).unwrap();
    let mut read = 0;
    let error = loop {
        match reader.next() {
            Ok(Some(_)) => read += 1,
            Ok(None) => panic!("the end after {read} frames"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::Trimmed { first, .. } if first == writer.first_lsn()), "{error}");
}

#[test]
fn a_reader_races_with_a_writer_that_recycles() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_owned();
    let (mut writer, _) = open_log(&dir).unwrap();
    append_large(&mut writer, 0).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let (finished, path) = (Arc::clone(&done), dir.clone());
    let thread = std::thread::spawn(move || {
        for time in 1..1500 {
            append_large(&mut writer, time).unwrap();
            writer.trim(Lsn(time as u64)).unwrap();
        }
        finished.store(true, Ordering::Release);
        writer.last_lsn()
    });
    let disk: Arc<dyn Disk> = Arc::new(TestDisk::default());
    let mut reader = LogReader::open(Arc::clone(&disk), &path, Lsn::ZERO).unwrap();
    let (mut last, mut overtaken) = (Lsn::ZERO, 0);
    loop {
        let stop = done.load(Ordering::Acquire);
        match reader.next() {
            Ok(Some(frame)) => {
                assert_eq!(frame.runs[0].time.0 as u64 + 1, frame.first_lsn.0);
                assert!(frame.first_lsn > last);
                last = frame.last_lsn();
            }
            Ok(None) if stop => break,
            Ok(None) => {}
            Err(LogError::Trimmed { first, .. }) => {
                overtaken += 1;
                reader = LogReader::open(Arc::clone(&disk), &path, first).unwrap();
            }
            Err(error) => panic!("after LSN {last}, overtaken {overtaken} times: {error}"),
        }
    }
    assert_eq!(thread.join().unwrap(), last);
}

#[test]
fn the_counters_add_up() {
    let root = tempfile::tempdir().unwrap();
    let (mut writer, _) = open_log(root.path()).unwrap();
    let before = writer.stats();
    assert_eq!((before.segments, before.disk_bytes), (1, SEGMENT_BYTES_MIN));
    writer.append(vec![data(0, 1, b"12345"), data(1, 1, b"678")]).unwrap();
    let stats = writer.stats();
    assert_eq!((stats.payload_bytes, stats.records, stats.frames), (8, 2, 1));
    assert_eq!(stats.syncs, before.syncs + 1);
    let mut summary = Summary::default();
    summarize(Arc::new(RealDisk), root.path(), &mut summary).unwrap();
    assert_eq!((summary.records(), summary.payload_bytes(), summary.frames()), (2, 8, 1));
    assert_eq!(stats.written_bytes - before.written_bytes, summary.frame_bytes() + 8);
}

// ---------------------------------------------------------------------------------------------------------------------
// Golden bytes: what version 1 of the format looks like, for all later versions.

fn golden_frames() -> Vec<Vec<Run>> {
    use crate::event::{Bad, ClockStep, Gap, Start};
    let control = |kind, time, payload: Vec<u8>| Run::one(SourceId::PIPELINE, kind, LogTime(time), &payload);
    const T: i64 = 1_775_000_000_000_000;
    let mut tcp = data(0, T + 1, br#"{"ts":"2026-04-02T00:58:00Z","temp":20.5}"#);
    tcp.push(b"");
    tcp.push("gr\u{fc}n".as_bytes());
    tcp.peer = Some(Arc::from("127.0.0.1:40000"));
    tcp.unsynchronised = true;
    let other = Run { peer: Some(Arc::from("127.0.0.1:40001")), ..data(0, T + 2, b"other peer") };
    let again = Run { payload: b"same peer".to_vec(), lengths: vec![9], time: LogTime(T + 2), ..tcp.clone() };
    let mut file = data(1, T + 3, &[0, 1, 254, 255]);
    file.position =
        Some(Position::File { inode: 4_000_000_000, head_crc: 0xdead_beef, head_len: 1024, offset: 70_000 });
    let bad = Bad { reason: "the line is too long".to_owned(), bytes: vec![b'x'; 5] };
    let gap = Gap { reason: "overrun".to_owned(), messages: Some(3), bytes: None };
    vec![
        vec![control(RecordKind::Start, T, postcard::to_allocvec(&Start { version: "0.1.0".to_owned() }).unwrap())],
        vec![tcp, other, again, file],
        vec![
            Run::one(SourceId(1), RecordKind::Bad, LogTime(T + 4), &postcard::to_allocvec(&bad).unwrap()),
            Run::one(SourceId(1), RecordKind::Gap, LogTime(T + 4), &postcard::to_allocvec(&gap).unwrap()),
            control(
                RecordKind::ClockStep,
                T + 5,
                postcard::to_allocvec(&ClockStep { wall_minus_log_us: -7_000_000 }).unwrap(),
            ),
            control(RecordKind::Tick, T + 6, Vec::new()),
            control(RecordKind::ConfigChange, T + 6, b"[pipeline]\n".to_vec()),
            Run::one(SourceId(1), RecordKind::TableVersion, LogTime(T + 6), b"a,b\n"),
            Run {
                peer: Some(Arc::from("127.0.0.1:40000")),
                ..Run::one(SourceId(0), RecordKind::Connect, LogTime(T + 7), b"")
            },
            Run {
                peer: Some(Arc::from("127.0.0.1:40000")),
                ..Run::one(SourceId(0), RecordKind::Disconnect, LogTime(T + 8), b"")
            },
            Run::one(SourceId(1), RecordKind::EndOfInput, LogTime(T + 9), b""),
        ],
        vec![data(0, T + 10, b"the same words, again and again; ".repeat(200).as_slice())],
    ]
}

fn write_golden(dir: &Path, compression: Compression) {
    let options = LogOptions { compression, ..OPTIONS };
    let (mut writer, _) = open(Arc::new(TestDisk::default()), dir, named(), options, Lsn::ZERO).unwrap();
    for runs in golden_frames() {
        writer.append(runs).unwrap();
    }
}

fn golden_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/log-v1").join(name)
}

#[test]
fn golden_bytes_of_version_1_are_written_and_read() {
    let root = tempfile::tempdir().unwrap();
    write_golden(root.path(), Compression::None);
    let golden = std::fs::read(segment_path(&golden_dir("plain"), 1)).unwrap();
    assert!(std::fs::read(segment_path(root.path(), 1)).unwrap() == golden, "the bytes of version 1 have changed");
    // How well LZ4 compresses may change; what it means may not.
    for name in ["plain", "lz4"] {
        let frames = read_from(&golden_dir(name), 0).unwrap();
        let runs: Vec<Vec<Run>> = frames.iter().map(|frame| frame.runs.clone()).collect();
        assert_eq!(runs, golden_frames(), "{name}");
        assert_eq!(frames.last().unwrap().last_lsn(), Lsn(17));
        let log = identity(&RealDisk, &golden_dir(name)).unwrap().unwrap();
        assert_eq!(log, named());
    }
}

/// Run with `--ignored` for a new format version; the files of an old one are never written again.
#[test]
#[ignore = "writes tests/golden"]
fn write_golden_files() {
    for (name, compression) in [("plain", Compression::None), ("lz4", Compression::Lz4)] {
        assert!(!golden_dir(name).exists(), "{name} is there already");
        write_golden(&golden_dir(name), compression);
    }
}
