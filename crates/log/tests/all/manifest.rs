//! A log with its manifest: every file that is deleted, put back as it was earlier, or cut is refused by
//! name, or recovery gives the same entries; and a crash at any operation leaves a log that opens.

use std::sync::Arc;

use crate::common::*;
use millrace_base::{Lsn, ShardId};
use millrace_io::Disk;
use millrace_log::{RecoverError, Recovered, Segments, Writer, WriterOptions, recover, repair};
use millrace_manifest::Manifest;

fn manifest_of(disk: &MemoryDisk) -> Manifest {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Manifest::open(&disk).expect("readable").unwrap_or_else(|| Manifest::new(&disk, [7; 16]))
}

fn recover_listed(disk: &MemoryDisk, covered: u64) -> Result<(Vec<Delivered>, Recovered), RecoverError> {
    let mut entries = Vec::new();
    let dynamic: Arc<dyn Disk> = Arc::new(disk.clone());
    let recovered = recover(&dynamic, &manifest_of(disk), &|_| Lsn(covered), &mut |entry| entries.push(see(&entry)))?;
    Ok((entries, recovered))
}

fn writer(disk: &MemoryDisk, recovered: &Recovered) -> Writer {
    let options = WriterOptions { run: recovered.next_run, ..small() };
    Writer::open(environment(disk), recovered.segments.clone(), options).expect("a writer")
}

fn append(writer: &mut Writer, lsns: std::ops::RangeInclusive<u64>) {
    for lsn in lsns {
        writer.append(&mut batch_of(&[(3, lsn)])).expect("appended");
        while let Some(job) = writer.job() {
            job.run();
        }
    }
}

/// Two streams, the first closed by recovery, the second left open, or closed.
fn log(is_closed: bool) -> MemoryDisk {
    let disk = MemoryDisk::default();
    let (_, recovered) = recover_listed(&disk, 0).expect("an empty log");
    let mut first = writer(&disk, &recovered);
    append(&mut first, 1..=8);
    drop(first);
    let (_, recovered) = recover_listed(&disk, 0).expect("the first stream");
    let mut second = writer(&disk, &recovered);
    append(&mut second, 9..=16);
    if is_closed {
        second.close().expect("closed");
    }
    disk
}

fn all() -> Vec<Delivered> {
    (1..=16).map(|lsn| seen(3, lsn)).collect()
}

#[test]
fn what_was_written_comes_back() {
    for is_closed in [false, true] {
        let disk = log(is_closed);
        assert_eq!(recover_listed(&disk, 0).expect("whole").0, all());
        assert_eq!(recover_listed(&disk, 0).expect("again").0, all());
    }
}

#[test]
fn a_deleted_segment_is_refused_by_its_name() {
    for is_closed in [false, true] {
        let paths = log(is_closed).contents().into_keys();
        let segments: Vec<String> = paths.filter(|path| path.ends_with(".log")).collect();
        assert!(segments.len() >= 4, "both streams have several segments: {segments:?}");
        for path in segments {
            let disk = log(is_closed);
            Disk::remove(&disk, &path).expect("deleted");
            let error = recover_listed(&disk, 0).map(|_| ()).expect_err(&path);
            assert!(error.to_string().contains(&path), "{path}: {error}");
            assert!(matches!(error, RecoverError::Damaged(_)), "{path}: {error}");
        }
    }
}

#[test]
fn a_log_that_is_gone_as_a_whole_is_refused_and_can_be_given_up() {
    let disk = log(true);
    for path in disk.contents().into_keys().filter(|path| path.starts_with("log/")) {
        Disk::remove(&disk, &path).expect("deleted");
    }
    let error = recover_listed(&disk, 0).map(|_| ()).expect_err("the log is gone");
    assert!(error.to_string().contains("log/0000000001/0000000001.log"), "{error}");
    let plan = repair(&environment(&disk), &manifest_of(&disk), &|_| Lsn::ZERO, false).expect("surveyed");
    assert!(!plan.is_whole());
    assert!(recover_listed(&disk, 0).is_err(), "a survey changes nothing");
    repair(&environment(&disk), &manifest_of(&disk), &|_| Lsn::ZERO, true).expect("given up");
    assert_eq!(recover_listed(&disk, 0).expect("an empty log").0, []);
}

/// The file as it was before its last batches.
#[test]
fn a_closed_stream_that_ends_earlier_is_refused() {
    let disk = log(false);
    let open = disk.contents();
    recover_listed(&disk, 0).expect("whole");
    let (path, bytes) = open
        .into_iter()
        .rfind(|(path, bytes)| path.starts_with("log/0000000002/") && bytes[4096..].iter().any(|byte| *byte != 0))
        .expect("one");
    // Without its last batch, and without the closing one that recovery has written since.
    let cut = bytes.iter().rposition(|byte| *byte != 0).expect("a batch") / 4096 * 4096;
    let mut earlier = bytes;
    earlier[cut..].fill(0);
    disk.put(&path, &earlier);
    let error = recover_listed(&disk, 0).map(|_| ()).expect_err("older");
    assert!(error.to_string().contains(&path), "{error}");
}

#[test]
fn an_open_stream_that_ends_before_the_checkpoint_is_refused() {
    let disk = log(false);
    assert!(recover_listed(&disk.after_kill(), 16).is_ok());
    let (path, mut bytes) = disk
        .contents()
        .into_iter()
        .rfind(|(path, bytes)| path.starts_with("log/0000000002/") && bytes[4096..].iter().any(|byte| *byte != 0))
        .expect("one");
    let cut = bytes.iter().rposition(|byte| *byte != 0).expect("a batch") / 4096 * 4096;
    bytes[cut..].fill(0);
    disk.put(&path, &bytes);
    let error = recover_listed(&disk, 16).map(|_| ()).expect_err("the checkpoint has entry 16");
    assert!(error.to_string().contains(&path) && error.to_string().contains("16"), "{error}");
}

#[test]
fn an_older_manifest_is_refused() {
    let disk = MemoryDisk::default();
    let (_, recovered) = recover_listed(&disk, 0).expect("an empty log");
    let mut older = vec![disk.contents()["manifest"].clone()];
    let mut first = writer(&disk, &recovered);
    for lsn in 1..=12 {
        append(&mut first, lsn..=lsn);
        older.push(disk.contents()["manifest"].clone());
    }
    first.close().expect("closed");
    older.dedup();
    let newest = older.pop().expect("several");
    let mut refused = 0;
    for manifest in older.into_iter().filter(|manifest| *manifest != newest) {
        let put_back = disk.after_kill();
        put_back.put("manifest", &manifest);
        match recover_listed(&put_back, 0) {
            Ok((entries, _)) => assert_eq!(entries.len(), 12, "nothing is lost where it lists the same segments"),
            Err(error) => {
                assert!(error.to_string().contains("manifest"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 2, "{refused}");
}

#[test]
fn covered_segments_go_and_are_not_missed() {
    let disk = log(true);
    let before = disk.contents().len();
    let (_, recovered) = recover_listed(&disk, 8).expect("whole");
    let deleted = recovered.segments.delete_covered(&|_: ShardId| Lsn(8), 5).expect("deleted");
    assert!(deleted.segments > 0 && disk.contents().len() < before);
    assert_eq!(recover_listed(&disk, 8).expect("the rest").0, all()[8..]);
}

/// Every operation of the disk may be the last one before the power goes.
#[test]
fn a_crash_at_any_operation_leaves_a_log_that_opens() {
    for cut in 0.. {
        let disk = MemoryDisk::default();
        disk.cut_power_after(cut);
        let acknowledged = run_until_crash(&disk);
        for seed in 0..4 {
            let disk = disk.after_power_cut(&mut Dice(cut * 4 + seed));
            let (entries, _) = recover_listed(&disk, 0).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
            assert!(entries.len() as u64 >= acknowledged, "cut {cut}: {} of {acknowledged}", entries.len());
        }
        if disk.operations() <= cut {
            return;
        }
    }
}

fn run_until_crash(disk: &MemoryDisk) -> u64 {
    let mut acknowledged = 0;
    for _ in 0..2 {
        let Ok((entries, recovered)) = try_recover(disk) else { return acknowledged };
        let options = WriterOptions { run: recovered.next_run, ..small() };
        let Ok(mut writer) = Writer::open(environment(disk), recovered.segments.clone(), options) else {
            return acknowledged;
        };
        let next = entries.len() as u64 + 1;
        for lsn in next..next + 6 {
            if writer.append(&mut batch_of(&[(3, lsn)])).is_err() {
                return acknowledged;
            }
            acknowledged = lsn;
            if let Some(job) = writer.job() {
                job.run();
            }
        }
        if writer.close().is_err() {
            return acknowledged;
        }
    }
    acknowledged
}

fn try_recover(disk: &MemoryDisk) -> Result<(Vec<Delivered>, Recovered), ()> {
    let dynamic: Arc<dyn Disk> = Arc::new(disk.clone());
    let manifest = Manifest::open(&dynamic).map_err(|_| ())?.unwrap_or_else(|| Manifest::new(&dynamic, [7; 16]));
    let mut entries = Vec::new();
    let recovered = recover(&dynamic, &manifest, &|_| Lsn::ZERO, &mut |entry| entries.push(see(&entry)));
    recovered.map(|recovered| (entries, recovered)).map_err(|_| ())
}

#[test]
fn segments_of_an_unlisted_log_are_taken_as_they_are() {
    let disk = MemoryDisk::default();
    let segments = Segments::new(Arc::new(disk.clone()), unlisted());
    let mut writer = Writer::open(environment(&disk), segments, small()).expect("a writer");
    append(&mut writer, 1..=16);
    drop(writer);
    assert_eq!(recover_listed(&disk, 0).expect("a directory of an earlier version").0, all());
    Disk::remove(&disk, "log/0000000001/0000000001.log").expect("deleted");
    assert!(recover_listed(&disk, 0).is_err(), "listed since then");
}
