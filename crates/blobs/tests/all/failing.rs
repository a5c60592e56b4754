//! Disks that are full or fail. A full one is told apart, leaves nothing half written, and is written to again when
//! there is space. After a failed sync nothing more is taken that might depend on it.

use std::sync::Arc;

use crate::common::*;
use millrace_base::ShardId;
use millrace_blobs::{BlobError, Bodies, BodyOptions};

#[test]
fn a_full_disk_takes_no_half_bodies_and_goes_on_when_there_is_space() {
    for length in [0, 700, 2_000, 70_000] {
        let disk = MemoryDisk::default();
        let (bodies, _) = open(&disk);
        let first = put(&bodies, 0, b"owner", &content(1, length)).expect("a body");
        let mut kept = vec![(first, content(1, length))];
        // Wherever the space ends: before the header, in the data, before the footer.
        for room in (0..length as u64 + 200).step_by(1 + length / 40) {
            let seed = room + 2;
            let used = disk.used();
            disk.faults(|faults| faults.capacity = Some(used + room));
            match put(&bodies, 0, b"owner", &content(seed, length)) {
                Ok(name) => kept.push((name, content(seed, length))),
                Err(error) => assert_eq!(error, BlobError::Full),
            }
            assert_eq!(bodies.counts().bodies, kept.len() as u64);
            disk.faults(|faults| faults.capacity = None);
            let name = put(&bodies, 0, b"owner", &content(!seed, length)).expect("there is space");
            kept.push((name, content(!seed, length)));
        }
        for bodies in [bodies, open(&disk.after_kill()).0] {
            assert_eq!(bodies.counts().bodies, kept.len() as u64);
            for (name, bytes) in &kept {
                assert!(read(&bodies, *name).as_ref() == Ok(bytes));
            }
        }
    }
}

#[test]
fn a_store_opens_and_is_read_on_a_full_disk() {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    let names = [1_000, 70_000].map(|length| put(&bodies, 0, b"o", &content(7, length)).expect("a body"));
    let disk = disk.after_kill();
    let used = disk.used();
    disk.faults(|faults| faults.capacity = Some(used));
    let (bodies, recovered) = open(&disk);
    assert_eq!(recovered.bodies, 2);
    for (name, length) in names.into_iter().zip([1_000, 70_000]) {
        assert!(read(&bodies, name) == Ok(content(7, length)));
    }
    assert_eq!(put(&bodies, 0, b"o", b"content"), Err(BlobError::Full));
    // What is freed is room for what comes.
    bodies.free(names[1]);
    put(&bodies, 0, b"o", b"content").expect("there is space");
}

#[test]
fn new_bodies_leave_the_reserve_free() {
    let disk = MemoryDisk::default();
    let options = BodyOptions { reserve_bytes: 5_000, ..small() };
    let (bodies, _) = Bodies::open(Arc::new(disk.clone()), options).expect("opens");
    let first = put(&bodies, 0, b"o", &content(1, 1_000)).expect("a body");
    let used = disk.used();
    disk.faults(|faults| faults.capacity = Some(used + 7_000));
    // Into a segment, and into a file of its own.
    for length in [2_500, 3_500] {
        assert_eq!(put(&bodies, 0, b"o", &content(2, length)), Err(BlobError::Full), "{length}");
    }
    put(&bodies, 0, b"o", &content(2, 500)).expect("there is room beside the reserve");
    bodies.free(first);
    // One whose length nobody knows is stopped when it has taken too much, while the disk still has room.
    let options = BodyOptions { reserve_bytes: 3 << 20, ..small() };
    let (bodies, _) = Bodies::open(Arc::new(disk.clone()), options).expect("opens");
    let used = disk.used();
    disk.faults(|faults| faults.capacity = Some(used + (10 << 20) + 1_000));
    let mut writer = bodies.begin(0, ShardId(1), b"o", None).expect("begins");
    let piece = vec![7; 1 << 20];
    let taken = (0..20).take_while(|_| writer.append(&piece).is_ok()).count();
    assert_eq!(taken, 8);
}

#[test]
fn a_failed_sync_stops_its_lane_and_no_other() {
    for length in [500, 70_000] {
        let disk = MemoryDisk::default();
        let (bodies, _) = open(&disk);
        let before = put(&bodies, 0, b"o", &content(1, 600)).expect("a body");
        let begun = bodies.begin(0, ShardId(0), b"o", Some(5)).expect("a writer");
        let waiting = write(&bodies, 0, b"o", &content(2, 700)).expect("a body");
        let failing = write(&bodies, 0, b"o", &content(3, length)).expect("a body");
        disk.faults(|faults| faults.is_failing_file_syncs = true);
        assert!(matches!(sync(&bodies, 0, failing), Err(BlobError::Failed(_))));
        // The disk works again. Whether the bytes of the other body are there, nobody knows.
        assert!(matches!(sync(&bodies, 0, waiting), Err(BlobError::Failed(_))));
        assert!(matches!(put(&bodies, 0, b"o", b"more"), Err(BlobError::Failed(_))));
        let mut begun = begun;
        assert!(matches!(begun.append(b"12345"), Err(BlobError::Failed(_))));
        assert!(read(&bodies, before) == Ok(content(1, 600)));
        let other = put(&bodies, 1, b"o", &content(4, length)).expect("another lane");
        assert!(read(&bodies, other) == Ok(content(4, length)));
        drop(begun);
        let (bodies, _) = open(&disk.after_power_cut(&mut Dice(3)));
        assert!(read(&bodies, before) == Ok(content(1, 600)) && read(&bodies, other) == Ok(content(4, length)));
        put(&bodies, 0, b"o", b"more").expect("a store that is opened again");
    }
}

/// All lanes have their names in the same directories.
#[test]
fn a_failed_sync_of_names_stops_all_lanes() {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    put(&bodies, 0, b"o", b"first").expect("a body");
    let waiting = write(&bodies, 1, b"o", &content(2, 70_000)).expect("a body");
    let failing = write(&bodies, 0, b"o", &content(3, 70_000)).expect("a body");
    disk.faults(|faults| faults.is_failing_directory_syncs = true);
    assert!(matches!(sync(&bodies, 0, failing), Err(BlobError::Failed(_))));
    disk.faults(|faults| faults.is_failing_directory_syncs = false);
    assert!(matches!(sync(&bodies, 1, waiting), Err(BlobError::Failed(_))));
    assert!(matches!(put(&bodies, 1, b"o", b"more"), Err(BlobError::Failed(_))));
}

#[test]
fn a_failed_sync_of_a_new_segments_name_is_not_tried_again() {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    // The number of the start is noted before.
    drop(bodies.begin(0, ShardId(0), b"o", Some(4)).expect("a writer"));
    disk.faults(|faults| faults.is_failing_directory_syncs = true);
    assert!(matches!(put(&bodies, 0, b"o", b"more"), Err(BlobError::Failed(_))));
    disk.faults(|faults| faults.is_failing_directory_syncs = false);
    assert!(matches!(put(&bodies, 0, b"o", b"more"), Err(BlobError::Failed(_))));
}

/// A process that has too many open files has lost nothing.
#[test]
fn a_file_that_cannot_be_made_stops_no_lane() {
    for length in [500, 70_000] {
        let disk = MemoryDisk::default();
        let (bodies, _) = open(&disk);
        drop(bodies.begin(0, ShardId(0), b"o", Some(4)).expect("a writer"));
        disk.faults(|faults| faults.is_failing_creates = true);
        assert!(matches!(put(&bodies, 0, b"o", &content(1, length)), Err(BlobError::Failed(_))));
        disk.faults(|faults| faults.is_failing_creates = false);
        put(&bodies, 0, b"o", &content(1, length)).expect("a body");
    }
}

/// Linux tells one caller of a failed sync, and the next that all is well.
#[test]
fn of_two_threads_that_sync_a_lane_neither_believes_a_sync_after_a_failed_one() {
    for _ in 0..20 {
        let disk = MemoryDisk::default();
        let bodies = Arc::new(open(&disk).0);
        let written: Vec<_> =
            (0..2).map(|seed| write(&bodies, 0, b"o", &content(seed, 600)).expect("a body")).collect();
        disk.faults(|faults| {
            faults.is_failing_file_syncs = true;
            faults.sync_ms = 5;
        });
        let results: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = written
                .into_iter()
                .map(|body| {
                    let bodies = Arc::clone(&bodies);
                    scope.spawn(move || sync(&bodies, 0, body).is_ok())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(results, [false, false]);
    }
}

/// Copying bodies together never leaves segments, also when the limit between segments and files was changed.
#[test]
fn bodies_are_copied_together_after_the_limit_for_segments_was_lowered() {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    let length = |seed: usize| if seed.is_multiple_of(4) { 1_000 } else { 2_000 };
    let bytes = |seed: usize| content(seed as u64, length(seed));
    let names: Vec<_> = (0..12).map(|seed| put(&bodies, 0, b"o", &bytes(seed)).expect("a body")).collect();
    bodies.close().expect("closed");
    let options = BodyOptions { segment_body_bytes: 100, ..small() };
    let (bodies, _) = Bodies::open(Arc::new(disk.clone()), options).expect("opened");
    for (seed, name) in names.iter().enumerate() {
        if seed % 4 != 0 {
            bodies.free(*name);
        }
    }
    tidy(&bodies);
    for seed in 0..20 {
        let (bodies, _) = open(&disk.after_power_cut(&mut Dice(seed)));
        for (seed, name) in names.iter().enumerate().step_by(4) {
            assert!(read(&bodies, *name) == Ok(bytes(seed)), "{name}");
        }
    }
}

#[test]
fn what_a_caller_says_wrongly_is_refused_and_leaves_nothing() {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    let begin = |length| bodies.begin(0, ShardId(1), b"o", length).expect("a writer");
    for length in [Some(10), Some(70_000)] {
        let mut writer = begin(length);
        writer.append(b"short").expect("taken");
        assert!(matches!(writer.finish(), Err(BlobError::Misuse(_))));
        let mut writer = begin(length);
        assert!(matches!(writer.append(&vec![0; 70_001]), Err(BlobError::Misuse(_))));
    }
    let owner = vec![1; millrace_blobs::OWNER_BYTES + 1];
    assert!(matches!(bodies.begin(0, ShardId(0), &owner, None), Err(BlobError::Misuse(_))));
    let name = put(&bodies, 0, &owner[1..], b"content").expect("a body");
    let reader = bodies.read(name).expect("a body");
    assert!(matches!(reader.read_at(5, &mut [0; 3]), Err(BlobError::Misuse(_))));
    assert!(matches!(reader.read_at(u64::MAX, &mut [0; 3]), Err(BlobError::Misuse(_))));
    assert_eq!(bodies.counts().bodies, 1);
    bodies.free(name);
    bodies.close().expect("closed");
    assert_eq!(disk.contents().keys().collect::<Vec<_>>(), ["start"]);
}

/// Files that others left in the directory keep nobody from opening it.
#[test]
fn strange_files_do_not_keep_a_store_from_opening() {
    use millrace_io::Disk as _;
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    let name = put(&bodies, 0, b"o", b"content").expect("a body");
    for path in ["segments/5.seg", "segments/+0000005.seg", "segments/x.idx", "files/x", "files/0000-0000000000000000"]
    {
        let file = disk.create(path).expect("a file");
        file.write_at(b"something", 0).expect("written");
    }
    let (bodies, _) = open(&disk.after_kill());
    assert_eq!(read(&bodies, name), Ok(b"content".to_vec()));
    put(&bodies, 0, b"o", b"content").expect("a body");
    assert!(scrub(&bodies).len() <= 1);
}
