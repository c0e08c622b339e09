//! `log repair` under a crash at every operation of it: the old log or the new one, never half; a second repair, or just
//! the next start, ends what was begun; no file of the old log is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay::disk::Disk;
use forebay::disk::sim::Random;
use forebay::engine::choices::Choices;
use forebay::engine::open::{Start, open_on};
use forebay::engine::repair::{Repaired, repair};
use forebay::event::{Gap, Lsn, RecordKind, Run};
use forebay::replay_log::{LogReader, RepairPlan, log_dir};

use crate::broken::Broken;
use crate::host::SimHost;
use crate::pipeline::{STATE, config, messages};
use crate::run::{BEGIN_US, Process};

/// What has happened to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    /// A frame that no checkpoint covers, with intact ones behind it.
    Tail,
    /// A frame that the checkpoint covers, in the last segment.
    Covered,
    /// The header of the last segment.
    Header,
    /// A segment that is needed is gone.
    MissingSegment,
    /// All of the log is gone.
    Everything,
}

const ALL: [Damage; 5] = [Damage::Tail, Damage::Covered, Damage::Header, Damage::MissingSegment, Damage::Everything];

fn state() -> &'static Path {
    Path::new(STATE)
}

/// Where each frame of the log stands, with its first LSN.
fn frames(host: &SimHost) -> Vec<(PathBuf, u64, Lsn)> {
    let disk: Arc<dyn Disk> = Arc::new(host.disk.clone());
    let mut reader = LogReader::open(disk, &log_dir(state()), Lsn::ZERO).expect("a log");
    let mut found = Vec::new();
    loop {
        let place = (reader.place().0.to_owned(), reader.place().1);
        match reader.next().expect("reads") {
            Some(frame) => {
                let (path, end) = reader.place();
                let length = reader.frame_bytes();
                // Behind a roll the place before the frame is the old segment's.
                let place = if path == place.0 { place } else { (path.to_owned(), end - length) };
                found.push((place.0, place.1, frame.first_lsn));
            }
            None => return found,
        }
    }
}

/// A pipeline that was killed with an unreplayed tail behind its last checkpoint. Gives that checkpoint's cut.
fn killed(host: &SimHost) -> Lsn {
    let config = config(0, false);
    let Start::Go(opened) = open_on(host, &config, 16, &Choices::default()).expect("opens") else {
        panic!("it is new")
    };
    let ids = opened.writer.sources().to_vec();
    let mut process = Process::new(host, &config, *opened, 1);
    process.replay().expect("nothing to replay");
    let (id, _) = ids.iter().find(|(_, name)| name == "feed").expect("a source");
    let lines = messages(&mut Random::new(5), 80, 2500);
    let frame = |process: &Process, lines: &[String]| {
        host.clock.advance(1000);
        let mut run = Run::new(*id, RecordKind::Data, process.log.clock.now());
        lines.iter().for_each(|line| run.push(line.as_bytes()));
        vec![run]
    };
    for lines in lines[..20].chunks(4) {
        let runs = frame(&process, lines);
        process.commit(runs).expect("logs");
        process.round().expect("goes on");
    }
    let before = process.log.writer.last_lsn();
    let rounds = |process: &mut Process| (0..50).for_each(|_| assert!(process.round().expect("goes on")));
    rounds(&mut process);
    process.shared.want_checkpoint();
    rounds(&mut process);
    let mut cut = Lsn::ZERO;
    host.store.tamper(|meta| cut = meta.cut);
    assert!(cut >= before, "a checkpoint");
    // No other checkpoint: the engine does not run.
    for lines in lines[20..].chunks(4) {
        let runs = frame(&process, lines);
        assert_eq!(process.log.commit(runs).expect("logs"), None);
    }
    drop(process);
    host.disk.kill();
    cut
}

/// Does the damage; gives the LSN behind what can be kept.
fn damage(host: &SimHost, kind: Damage, cut: Lsn) -> Lsn {
    let frames = frames(host);
    let last_segment = frames.last().expect("frames").0.clone();
    let segments: std::collections::BTreeSet<&PathBuf> = frames.iter().map(|(path, _, _)| path).collect();
    let disk: Arc<dyn Disk> = Arc::new(host.disk.clone());
    let mut reader = LogReader::open(disk, &log_dir(state()), Lsn::ZERO).expect("a log");
    let mut end = Lsn::ZERO;
    while let Some(frame) = reader.next().expect("reads") {
        end = frame.last_lsn().plus(1);
    }
    let flip = |(path, offset, lsn): &(PathBuf, u64, Lsn)| {
        host.disk.flip(path, *offset as usize + 70, 3);
        *lsn
    };
    match kind {
        Damage::Tail => flip(&frames[frames.len() - 3]),
        Damage::Covered => {
            // In a log whose last segment begins below the cut: whatever stands behind the cut goes first.
            let covered = frames.iter().rfind(|(_, _, lsn)| *lsn <= cut).expect("a covered frame");
            for segment in segments.iter().filter(|path| **path > &covered.0) {
                host.disk.remove(segment).expect("removes");
            }
            let behind = frames.iter().find(|(path, _, _)| *path > covered.0).expect("a later segment").2;
            flip(covered);
            behind
        }
        Damage::Header => {
            host.disk.flip(&last_segment, 30, 1);
            // Its frames are found by themselves.
            end
        }
        Damage::MissingSegment => {
            let behind: Vec<&&PathBuf> =
                segments.iter().filter(|path| frames.iter().any(|(at, _, lsn)| at == **path && *lsn > cut)).collect();
            let gone: &PathBuf = behind[behind.len() - 2];
            host.disk.remove(gone).expect("removes");
            frames.iter().find(|(path, _, _)| path == gone).expect("its frames").2
        }
        Damage::Everything => {
            for path in host.disk.paths().iter().filter(|path| path.starts_with(log_dir(state()))) {
                host.disk.remove(path).expect("removes");
            }
            cut.plus(1)
        }
    }
}

fn damaged(kind: Damage) -> (SimHost, Lsn, Lsn) {
    let host = SimHost::new(3, BEGIN_US, 0..0, Broken::Nothing);
    let cut = killed(&host);
    let keep = damage(&host, kind, cut);
    // What a power cut leaves is about the repair alone.
    host.disk.sync_dir(&log_dir(state())).expect("syncs");
    (host, cut, keep)
}

/// Contents of the old log's segments, wherever they are.
fn old_segments(host: &SimHost) -> Vec<Vec<u8>> {
    let mut contents: Vec<Vec<u8>> = host
        .disk
        .paths()
        .iter()
        .filter(|path| path.starts_with(STATE) && path.extension().is_some_and(|it| it == "segment"))
        .map(|path| host.disk.content(path).expect("a file"))
        .collect();
    contents.sort();
    contents
}

/// The repaired log: what is kept, then the gap record; a start finds nothing wrong.
fn check(host: &SimHost, kind: Damage, cut: Lsn, keep: Lsn, old: &[Vec<u8>]) {
    let disk: Arc<dyn Disk> = Arc::new(host.disk.clone());
    assert_eq!(repair(host, state(), true).expect("reads"), Repaired::Nothing, "{kind:?}");
    let mut reader = LogReader::open(disk, &log_dir(state()), Lsn::ZERO).expect("a log");
    assert_eq!(reader.position(), cut.plus(1), "{kind:?}");
    let mut gaps = 0;
    let mut last = cut;
    while let Some(frame) = reader.next().expect("intact") {
        for run in &frame.runs {
            if run.kind == RecordKind::Gap {
                let gap: Gap = postcard::from_bytes(&run.payload).expect("a gap");
                assert!(gap.reason.contains("log repair"), "{}", gap.reason);
                assert_eq!(frame.first_lsn, keep, "{kind:?}: {frame:?}");
                gaps += 1;
            }
        }
        assert_eq!(frame.first_lsn, last.plus(1), "{kind:?}");
        last = frame.last_lsn();
    }
    assert_eq!(gaps, 1, "{kind:?}");
    let now = old_segments(host);
    assert!(old.iter().all(|content| now.contains(content)), "{kind:?}: a file of the old log is lost");
    let mut epoch = None;
    host.store.tamper(|meta| epoch = Some(meta.epoch));
    assert_eq!(Some(reader.header().epoch), epoch, "{kind:?}");
    match open_on(host, &config(0, false), 16, &Choices::default()) {
        Ok(Start::Go(opened)) => assert_eq!(opened.tail_end, last, "{kind:?}"),
        Ok(Start::Finished(_)) => panic!("{kind:?}: it has not ended"),
        Err(error) => panic!("{kind:?}: {error}"),
    }
}

fn planned(host: &SimHost) -> RepairPlan {
    match repair(host, state(), false).expect("reads") {
        Repaired::Planned(plan) => plan,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repair_keeps_what_is_intact_and_says_what_it_cuts() {
    for kind in ALL {
        let (host, cut, keep) = damaged(kind);
        let before = host.disk.paths();
        let refused = open_on(&host, &config(0, false), 16, &Choices::default()).err().expect("refused");
        assert_eq!(refused.exit_code(), 65, "{kind:?}: {refused}");
        assert!(refused.to_string().contains("forebay log repair /sim/state"), "{kind:?}: {refused}");
        let old = old_segments(&host);
        let plan = planned(&host);
        assert_eq!((plan.cut, plan.next), (cut, keep), "{kind:?}: {plan:?}");
        let lost = match kind {
            Damage::Tail => 12,
            Damage::Covered | Damage::Header | Damage::Everything => 0,
            Damage::MissingSegment => plan.known_last.0 + 1 - keep.0,
        };
        assert_eq!(plan.lost_records(), lost, "{kind:?}: {plan:?}");
        assert_eq!(host.disk.paths(), before, "{kind:?}: only asked");
        let done = repair(&host, state(), true).expect("repairs");
        assert!(matches!(done, Repaired::Done { .. }), "{kind:?}: {done:?}");
        check(&host, kind, cut, keep, &old);
    }
}

#[test]
fn a_repair_that_dies_at_any_operation_leaves_the_old_log_or_the_new_one() {
    for kind in ALL {
        let (host, _, _) = damaged(kind);
        let before = host.disk.operations();
        repair(&host, state(), true).expect("repairs");
        let operations = host.disk.operations() - before;
        assert!(operations > 15, "{kind:?}: {operations}");
        let (mut old_left, mut new_left) = (0, 0);
        for at in 1..=operations {
            for (power_cut, repair_again) in [(false, at % 2 == 0), (true, at % 2 == 1)] {
                let (host, cut, keep) = damaged(kind);
                let (old, plan) = (old_segments(&host), planned(&host));
                host.disk.crash_at(host.disk.operations() + at);
                assert!(repair(&host, state(), true).is_err(), "{kind:?} {at}");
                if power_cut {
                    host.disk.power_cut()
                } else {
                    host.disk.kill()
                }
                let context = format!("{kind:?}, operation {at}, power cut: {power_cut}");
                if !repair_again {
                    match open_on(&host, &config(0, false), 16, &Choices::default()) {
                        Ok(_) => new_left += 1,
                        Err(error) => {
                            assert_eq!(error.exit_code(), 65, "{context}: {error}");
                            assert_eq!(planned(&host), plan, "{context}: {error}");
                            repair(&host, state(), true).unwrap_or_else(|error| panic!("{context}: {error}"));
                            old_left += 1;
                        }
                    }
                    continue;
                }
                repair(&host, state(), true).unwrap_or_else(|error| panic!("{context}: {error}"));
                check(&host, kind, cut, keep, &old);
            }
        }
        assert!(old_left > 0 && new_left > 0, "{kind:?}: {old_left} {new_left}");
        println!("{kind:?}: {operations} operations");
    }
}
