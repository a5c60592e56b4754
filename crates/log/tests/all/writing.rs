//! Appended entries come back in order and once, whatever the number of cores. Segments roll, are reused and deleted. A
//! full disk and a failed fsync are told apart.

use std::sync::Arc;

use crate::common::*;
use millrace_base::{Lsn, ShardId};
use millrace_log::{Durability, LogError, Segments, Space, Writer, WriterOptions, recover};

/// Entries of two shards, `count` each, one of each shard in a batch.
fn append_pairs(writer: &mut Writer, from: u64, count: u64) -> Vec<Delivered> {
    let mut all = Vec::new();
    for lsn in from..from + count {
        let mut batch = batch_of(&[(1, lsn), (2, lsn)]);
        let report = writer.append(&mut batch).expect("appended");
        assert_eq!((report.entries, report.bytes), (2, 4096));
        assert!(batch.is_empty());
        assert_eq!(batch.committed().len(), 2);
        all.extend([seen(1, lsn), seen(2, lsn)]);
    }
    all
}

#[test]
fn entries_come_back_in_order_across_segments_after_a_kill_and_after_a_close() {
    for is_closed in [false, true] {
        let disk = MemoryDisk::default();
        let mut writer = open(&disk, small());
        let all = append_pairs(&mut writer, 1, 10);
        if is_closed {
            writer.close().expect("closed");
        }
        let disk = disk.after_kill();
        let (entries, recovered) = recover_all(&disk).expect("recovered");
        assert_eq!(entries, all);
        assert_eq!(recovered.unclosed.is_empty(), is_closed);
        assert_eq!(recovered.next_run, 2);
        assert_eq!(recovered.last[&ShardId(1)], Lsn(10));
        let again = recover_all(&disk).expect("recovered again");
        assert_eq!(again.0, all);
        assert!(again.1.unclosed.is_empty(), "recovery closed the stream");
    }
}

#[test]
fn a_batch_costs_one_write_and_one_sync_whatever_is_in_it() {
    for (durability, operations) in [(Durability::Fsync, 2), (Durability::Os, 1)] {
        let disk = MemoryDisk::default();
        let mut writer = open(&disk, WriterOptions { durability, reserve_bytes: 0, ..WriterOptions::default() });
        for (lsn, shards) in [(1, 1), (2, 64), (3, 1), (4, 1000)] {
            // Shards without an entry so far begin with this one.
            let entries: Vec<_> = (0..shards).map(|shard| (shard + lsn as u16 * 1000, 1)).collect();
            let before = disk.operations();
            let report = writer.append(&mut batch_of(&entries)).expect("appended");
            assert_eq!(report.entries, u32::from(shards));
            assert_eq!(disk.operations() - before, operations, "{shards} entries, {durability:?}");
        }
    }
}

#[test]
fn only_entries_above_the_checkpoint_are_delivered() {
    let disk = MemoryDisk::default();
    let all = append_pairs(&mut open(&disk, small()), 1, 10);
    let checkpoint = |shard: ShardId| if shard.0 == 1 { Lsn(4) } else { Lsn(12) };
    let (entries, recovered) = recover_above(&disk, &checkpoint).expect("recovered");
    let expected: Vec<_> = all.into_iter().filter(|(shard, lsn, _)| *shard == 1 && *lsn > 4).collect();
    assert_eq!(entries, expected);
    assert_eq!((recovered.applied, recovered.skipped), (6, 14));
}

#[test]
fn a_restart_with_another_number_of_cores_just_works() {
    let disk = MemoryDisk::default();
    let mut expected = Vec::new();
    let mut lsn = 1;
    for cores in [1u64, 3, 2, 1] {
        let (entries, recovered) = recover_all(&disk).expect("recovered");
        let mut sorted = entries.clone();
        sorted.sort_by_key(|(shard, lsn, _)| (*shard, *lsn));
        expected.sort_by_key(|(shard, lsn, _): &Delivered| (*shard, *lsn));
        assert_eq!(sorted, expected);
        for shard in 0..6 {
            let of_shard = entries.iter().filter(|entry| entry.0 == shard).map(|entry| entry.1);
            assert!(of_shard.is_sorted());
        }
        for core in 0..cores {
            let options = WriterOptions { run: recovered.next_run, core, ..small() };
            let mut writer = Writer::open(environment(&disk), recovered.segments.clone(), options).expect("opened");
            for shard in (0..6u16).filter(|shard| u64::from(*shard) % cores == core) {
                let mut batch = batch_of(&[(shard, lsn), (shard, lsn + 1)]);
                writer.append(&mut batch).expect("appended");
                expected.extend([seen(shard, lsn), seen(shard, lsn + 1)]);
            }
        }
        lsn += 2;
    }
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own() {
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, small());
    let content = vec![5; 100_000];
    let mut batch = batch_of(&[(1, 1)]);
    writer.append(&mut batch).expect("appended");
    writer.job().expect("a spare is wanted").run();
    for lsn in 2..5 {
        push(&mut batch, 1, lsn, &content);
        writer.append(&mut batch).expect("appended");
    }
    let mut batch = batch_of(&[(1, 5)]);
    writer.append(&mut batch).expect("appended");
    let (entries, _) = recover_all(&disk.after_kill()).expect("recovered");
    let lsns: Vec<_> = entries.iter().map(|entry| (entry.1, entry.2.len())).collect();
    assert_eq!(lsns, [(1, 3), (2, 100_000), (3, 100_000), (4, 100_000), (5, 3)]);
}

#[test]
fn covered_segments_are_deleted_or_reused_and_stale_bytes_never_come_back() {
    let disk = MemoryDisk::default();
    let (_, recovered) = recover_all(&disk).expect("an empty log");
    let mut writer = Writer::open(environment(&disk), recovered.segments.clone(), small()).expect("opened");
    let mut used = Vec::new();
    for round in 0..50 {
        append_pairs(&mut writer, 1 + round * 3, 3);
        let checkpoint = Lsn(round * 3);
        recovered.segments.delete_covered(&|_| checkpoint, 0).expect("deleted");
        while let Some(job) = writer.job() {
            job.run();
        }
        used.push(disk.used());
        let (entries, _) = recover_above(&disk.after_kill(), &|_| checkpoint).expect("recovered");
        let expected: Vec<_> = (round * 3 + 1..round * 3 + 4).flat_map(|lsn| [seen(1, lsn), seen(2, lsn)]).collect();
        assert_eq!(entries, expected);
    }
    assert!(used[10..].iter().all(|bytes| *bytes <= 4 * 5 * 4096), "{used:?}");
    let checkpoint = Lsn(150);
    assert!(recovered.segments.blockers(&|_| checkpoint).is_empty());
    writer.close().expect("closed");
    recovered.segments.delete_covered(&|_| checkpoint, 0).expect("deleted");
    assert_eq!(disk.contents().len(), 0, "an ended stream goes with its last segment");
}

#[test]
fn a_segment_stays_until_every_shard_in_it_and_before_it_is_covered() {
    let disk = MemoryDisk::default();
    let segments = Segments::new(Arc::new(disk.clone()), unlisted());
    let mut writer = Writer::open(environment(&disk), segments.clone(), small()).expect("opened");
    append_pairs(&mut writer, 1, 12);
    let only_one = |shard: ShardId| if shard.0 == 1 { Lsn(12) } else { Lsn(2) };
    assert_eq!(segments.delete_covered(&only_one, 0).expect("nothing to delete").segments, 0);
    let blockers = segments.blockers(&only_one);
    assert_eq!(blockers.iter().map(|range| (range.shard.0, range.last.0)).collect::<Vec<_>>(), [(2, 3)]);
    assert_eq!(segments.delete_covered(&|_| Lsn(6), 0).expect("deleted").segments, 2);
}

#[test]
fn a_full_disk_is_reported_before_anything_fails_and_passes_without_loss() {
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, small());
    writer.job().expect("a spare is wanted").run();
    assert_eq!(writer.space(), Space::Enough);
    disk.set_capacity(Some(disk.used() + 1000));
    let mut lsn = 1;
    // The spare is taken and no other can be made: space is low, but transactions that have begun still fit.
    while writer.space() == Space::Enough {
        append_pairs(&mut writer, lsn, 1);
        lsn += 1;
        if let Some(job) = writer.job() {
            job.run();
        }
    }
    assert_eq!(lsn, 5, "low as soon as the second segment is the last one");
    append_pairs(&mut writer, 5, 2);
    let mut batch = batch_of(&[(1, 7), (2, 7)]);
    for _ in 0..3 {
        assert_eq!(writer.append(&mut batch), Err(LogError::OutOfSpace));
        assert_eq!(batch.entry_count(), 2);
    }
    disk.set_capacity(None);
    writer.job().expect("a spare is wanted").run();
    assert_eq!(writer.space(), Space::Enough);
    writer.append(&mut batch).expect("the same batch");
    append_pairs(&mut writer, 8, 3);
    let (entries, _) = recover_all(&disk.after_kill()).expect("recovered");
    assert_eq!(entries.len(), 20);
}

#[test]
fn a_node_starts_and_recovers_on_a_full_disk() {
    let disk = MemoryDisk::default();
    append_pairs(&mut open(&disk, small()), 1, 5);
    let disk = disk.after_kill();
    disk.set_capacity(Some(disk.used()));
    let (entries, recovered) = recover_all(&disk).expect("recovered without any free space");
    assert_eq!(entries.len(), 10);
    disk.set_capacity(Some(disk.used()));
    let options = WriterOptions { run: recovered.next_run, ..small() };
    let mut writer = Writer::open(environment(&disk), recovered.segments, options).expect("opened");
    assert_eq!(writer.space(), Space::Low);
    assert_eq!(writer.append(&mut batch_of(&[(1, 6)])), Err(LogError::OutOfSpace));
    disk.set_capacity(None);
    writer.job().expect("a segment is wanted").run();
    assert_eq!(writer.space(), Space::Enough);
    writer.append(&mut batch_of(&[(1, 6)])).expect("appended");
    assert_eq!(recover_all(&disk.after_kill()).expect("recovered").0.len(), 11);
}

#[test]
fn a_failed_write_or_fsync_ends_the_stream_for_good() {
    for is_sync in [false, true] {
        let disk = MemoryDisk::default();
        let mut writer = open(&disk, small());
        append_pairs(&mut writer, 1, 1);
        let fail = |failing| if is_sync { disk.fail_syncs(failing) } else { disk.fail_writes(failing) };
        fail(true);
        assert!(matches!(writer.append(&mut batch_of(&[(1, 2)])), Err(LogError::Failed(_))));
        fail(false);
        let operations = disk.operations();
        assert!(matches!(writer.append(&mut batch_of(&[(1, 2)])), Err(LogError::Failed(_))));
        assert!(writer.job().is_none());
        assert!(writer.close().is_err());
        assert_eq!(disk.operations(), operations, "nothing is tried again");
        for seed in 0..20 {
            let (entries, _) = recover_all(&disk.after_power_cut(&mut Dice(seed))).expect("recovered");
            assert!(entries.len() == 2 || entries.len() == 3);
        }
    }
}

#[test]
fn what_a_restart_reads_after_a_failed_fsync_survives_a_power_cut() {
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, small());
    let all = append_pairs(&mut writer, 1, 2);
    disk.fail_syncs(true);
    writer.append(&mut batch_of(&[(1, 3), (2, 3)])).expect_err("the fsync failed");
    // The kernel shows the batch to the restarted node, but will never write it by itself.
    let disk = disk.after_kill();
    let (entries, recovered) = recover_all(&disk).expect("recovered");
    assert_eq!(entries.len(), all.len() + 2);
    let options = WriterOptions { run: recovered.next_run, ..small() };
    let mut writer = Writer::open(environment(&disk), recovered.segments, options).expect("opened");
    append_pairs(&mut writer, 4, 1);
    for seed in 0..20 {
        let (entries, _) = recover_all(&disk.after_power_cut(&mut Dice(seed))).expect("recovered");
        assert_eq!(entries.len(), all.len() + 4);
    }
}

#[test]
fn without_fsync_a_power_cut_leaves_a_prefix() {
    let options = WriterOptions { durability: Durability::Os, ..small() };
    let mut shortest = usize::MAX;
    for seed in 0..200 {
        let disk = MemoryDisk::default();
        let mut writer = open(&disk, options.clone());
        let mut all = append_pairs(&mut writer, 1, 10);
        if seed % 2 == 0 {
            while let Some(job) = writer.job() {
                job.run();
            }
            all.extend(append_pairs(&mut writer, 11, 2));
        }
        let disk = disk.after_power_cut(&mut Dice(seed));
        let (entries, recovered) = recover_all(&disk).expect("recovered alone");
        assert_eq!(entries, all[..entries.len()]);
        assert!(seed % 2 == 1 || entries.len() >= 18, "closed segments were synced");
        shortest = shortest.min(entries.len());
        // The entries after the hole are gone for good, and the log goes on.
        let next = recovered.last.get(&ShardId(1)).copied().unwrap_or_default().next().0;
        let options = WriterOptions { run: recovered.next_run, ..small() };
        let mut writer = Writer::open(environment(&disk), recovered.segments, options).expect("opened");
        append_pairs(&mut writer, next, 1);
        assert_eq!(recover_all(&disk.after_kill()).expect("recovered").0.len(), entries.len() + 2);
    }
    assert!(shortest < 10, "the test never saw a loss");
}

#[test]
fn without_fsync_a_close_makes_everything_durable() {
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, WriterOptions { durability: Durability::Os, ..small() });
    let all = append_pairs(&mut writer, 1, 10);
    writer.close().expect("closed");
    for seed in 0..20 {
        assert_eq!(recover_all(&disk.after_power_cut(&mut Dice(seed))).expect("recovered").0, all);
    }
}

#[test]
fn an_empty_batch_costs_nothing_and_an_empty_log_recovers() {
    let disk = MemoryDisk::default();
    assert_eq!(recover_all(&disk).expect("no log yet").1.next_run, 1);
    let mut writer = open(&disk, small());
    let operations = disk.operations();
    writer.append(&mut batch_of(&[])).expect("nothing to do");
    assert_eq!(disk.operations(), operations);
    let disk = disk.after_kill();
    let (entries, recovered) = recover_all(&disk).expect("recovered");
    assert_eq!((entries.len(), recovered.next_run), (0, 2));
    let millrace_disk: Arc<dyn millrace_io::Disk> = Arc::new(disk);
    assert_eq!(recover(&millrace_disk, &unlisted(), &|_| Lsn::ZERO, &mut |_| {}).expect("recovered").applied, 0);
}
