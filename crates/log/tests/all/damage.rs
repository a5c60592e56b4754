//! Whatever happens to the bytes, there is no panic and no invented or reordered entry. Every lost acknowledged entry
//! is reported, with one exception: a flip in the last batch of a stream that was not closed. Such a batch cannot be
//! told from a torn one.

use crate::common::*;
use millrace_base::{Lsn, ShardId};
use millrace_format::{BatchHeader, SegmentHeader};
use millrace_log::{Damage, DamageKind, RecoverError, Writer, WriterOptions, inspect, repair};
use proptest::prelude::*;

/// A log of eight batches in three segments; shard 2 occurs in some of them.
fn write_run(disk: &MemoryDisk, run: u64, from: u64, is_closed: bool) -> Vec<Vec<Delivered>> {
    let mut writer = open(disk, WriterOptions { run, ..small() });
    let mut batches = Vec::new();
    for lsn in from..from + 8 {
        let mut entries = vec![(1, lsn)];
        if lsn % 3 == 0 {
            entries.push((2, lsn / 3));
        }
        writer.append(&mut batch_of(&entries)).expect("appended");
        batches.push(entries.into_iter().map(|(shard, lsn)| seen(shard, lsn)).collect());
        if let Some(job) = writer.job() {
            job.run();
        }
    }
    if is_closed {
        writer.close().expect("closed");
    }
    batches
}

fn damage_of(disk: &MemoryDisk) -> Option<Damage> {
    match recover_all(disk) {
        Err(RecoverError::Damaged(damage)) => Some(damage),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

/// Damages a copy of the log and checks what recovery makes of it. The result is everything, or an error that left the
/// disk alone. Only the last batch may be missing, and only where that is allowed.
fn check(
    disk: &MemoryDisk,
    batches: &[Vec<Delivered>],
    may_lose_last: bool,
    what: &str,
    path: &str,
    change: &dyn Fn(&mut Vec<u8>),
) -> bool {
    let damaged = disk.after_kill();
    damaged.change(path, |bytes| change(bytes));
    let before = damaged.contents();
    match recover_all(&damaged) {
        Ok((entries, _)) => {
            let all = batches.concat();
            let without_last = batches[..batches.len() - 1].concat();
            let is_allowed = entries == all || (may_lose_last && entries == without_last);
            assert!(is_allowed, "{what}: {} of {} entries", entries.len(), all.len());
            assert_eq!(recover_all(&damaged).expect("recovered again").0, entries, "{what}");
            false
        }
        Err(RecoverError::Damaged(damage)) => {
            assert_eq!(damaged.contents(), before, "{what}: a refused log is left alone");
            assert!(before.contains_key(&damage.file), "{what}");
            let report = inspect(&damaged, &mut |_, _| {}).expect("inspected");
            assert!(!report.damage.is_empty(), "{what}: inspect sees it too");
            true
        }
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Which bits of a file to flip: all in written parts, some elsewhere.
fn bits_of(bytes: &[u8]) -> Vec<usize> {
    let is_written = |bit: &usize| {
        let block = bit / 8 / 4096 * 4096;
        let used = bytes[block..].iter().take(4096).rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bit / 8 - block < used || bit.is_multiple_of(509)
    };
    (0..bytes.len() * 8).filter(is_written).collect()
}

fn check_all_flips_and_cuts(disk: &MemoryDisk, batches: &[Vec<Delivered>], unclosed: Option<u64>) {
    let mut refused = 0;
    let mut accepted = 0;
    for (path, bytes) in disk.contents() {
        let is_unclosed = unclosed.is_some_and(|run| path.starts_with(&format!("log/{run:010}/")));
        for bit in bits_of(&bytes) {
            let what = format!("{path} bit {} of byte {}", bit % 8, bit / 8);
            let flip = |bytes: &mut Vec<u8>| bytes[bit / 8] ^= 1 << (bit % 8);
            if check(disk, batches, is_unclosed, &what, &path, &flip) { refused += 1 } else { accepted += 1 }
        }
        let lengths: std::collections::BTreeSet<_> = bits_of(&bytes).into_iter().map(|bit| bit / 8).collect();
        for length in lengths {
            let what = format!("{path} cut to {length}");
            if check(disk, batches, false, &what, &path, &|bytes| bytes.truncate(length)) {
                refused += 1
            } else {
                accepted += 1
            }
        }
    }
    assert!(refused > 1000 && accepted > 1000, "{refused} refused, {accepted} accepted");
}

#[test]
fn every_flip_and_cut_in_a_log_that_was_not_closed() {
    let disk = MemoryDisk::default();
    let batches = write_run(&disk, 1, 1, false);
    check_all_flips_and_cuts(&disk, &batches, Some(1));
}

#[test]
fn every_flip_and_cut_in_a_closed_log() {
    let disk = MemoryDisk::default();
    let batches = write_run(&disk, 1, 1, true);
    check_all_flips_and_cuts(&disk, &batches, None);
}

#[test]
fn every_flip_and_cut_in_a_log_of_two_runs() {
    let disk = MemoryDisk::default();
    let mut batches = write_run(&disk, 1, 1, false);
    recover_all(&disk).expect("recovered");
    batches.extend(write_run(&disk, 2, 9, false));
    check_all_flips_and_cuts(&disk, &batches, Some(2));
}

#[test]
fn a_lost_batch_in_the_middle_is_named_with_file_and_offset() {
    let disk = MemoryDisk::default();
    write_run(&disk, 1, 1, false);
    let second = "log/0000000001/0000000002.log";
    let damaged = disk.after_kill();
    damaged.change(second, |bytes| bytes[2 * 4096 + 70] ^= 1);
    let damage = damage_of(&damaged).expect("damage");
    assert_eq!(damage, Damage { file: second.into(), offset: 8192, kind: DamageKind::Entry });
    let text = RecoverError::Damaged(damage).to_string();
    for part in [second, "byte 8192", "millrace inspect", "millrace repair --accept-loss"] {
        assert!(text.contains(part), "{text}");
    }
    let damaged = disk.after_kill();
    damaged.change(second, |bytes| bytes[4096..8192].fill(0));
    let kind = damage_of(&damaged).expect("damage").kind;
    assert_eq!(kind, DamageKind::Batch);
    let damaged = disk.after_kill();
    millrace_io::Disk::remove(&damaged, second).expect("removed");
    assert_eq!(damage_of(&damaged).expect("damage").kind, DamageKind::MissingSegment(2));
}

/// Two segments of the stream that was open change their names: both look like spares that never held anything.
#[test]
fn segments_that_changed_their_names_are_refused_by_name() {
    let disk = MemoryDisk::default();
    write_run(&disk, 1, 1, false);
    recover_all(&disk).expect("recovered");
    write_run(&disk, 2, 9, false);
    let paths: Vec<String> = disk.contents().into_keys().filter(|path| path.ends_with(".log")).collect();
    for one in &paths {
        for other in paths.iter().filter(|other| *other > one) {
            let swapped = disk.after_kill();
            let contents = swapped.contents();
            swapped.change(one, |bytes| bytes.clone_from(&contents[other]));
            swapped.change(other, |bytes| bytes.clone_from(&contents[one]));
            let before = swapped.contents();
            let damage = damage_of(&swapped).unwrap_or_else(|| panic!("{one} and {other} are lost silently"));
            let numbers = |path: &str| {
                let mut parts =
                    path.trim_end_matches(".log").split('/').skip(1).map(|part| part.parse().expect("a number"));
                (parts.next().expect("a stream"), parts.next().expect("a segment"))
            };
            let (stream, number) = numbers(other);
            let expected = Damage { file: one.clone(), offset: 0, kind: DamageKind::OtherSegment { stream, number } };
            assert_eq!(damage, expected);
            assert_eq!(swapped.contents(), before, "a refused log is left alone");
            let report = inspect(&swapped, &mut |_, _| {}).expect("inspected");
            assert!(report.damage.contains(&damage), "inspect sees it too");
            repair(&environment(&swapped), &unlisted(), &|_| Lsn::ZERO, true).expect("repaired");
            recover_all(&swapped).expect("a repaired log starts");
        }
    }
}

#[test]
fn bytes_that_look_like_a_batch_of_another_life_of_the_file_do_not_count() {
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, small());
    writer.append(&mut batch_of(&[(1, 1)])).expect("appended");
    let path = "log/0000000001/0000000001.log";
    let salt = SegmentHeader::decode(&disk.contents()[path]).expect("a header").salt;
    let own = BatchHeader {
        stream: 1,
        segment: 1,
        salt,
        number: 9,
        synced: 8,
        payload_bytes: 0,
        entry_count: 0,
        is_closing: false,
        has_zeros: false,
        is_doubtful: false,
    };
    let cases = [
        (BatchHeader { stream: 2, ..own }, false),
        (BatchHeader { segment: 2, ..own }, false),
        (BatchHeader { salt: salt ^ 1, ..own }, false),
        (own, true),
    ];
    for (header, is_believed) in cases {
        let disk = disk.after_kill();
        disk.change(path, |bytes| bytes[3 * 4096..3 * 4096 + 64].copy_from_slice(&header.encode().0));
        assert_eq!(damage_of(&disk).is_some(), is_believed, "{header:?}");
    }
}

#[test]
fn a_batch_whose_padding_was_cut_off_is_whole() {
    // Found by the property test below: the last whole batch of segment 1 ends in a cut, and the torn first batch of
    // segment 2 follows.
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, small());
    for lsn in 1..=4 {
        writer.append(&mut batch_of(&[(1, lsn)])).expect("appended");
    }
    disk.change("log/0000000001/0000000001.log", |bytes| bytes.truncate(3 * 4096 + 200));
    disk.change("log/0000000001/0000000002.log", |bytes| bytes[4096 + 80] ^= 1);
    assert_eq!(recover_all(&disk).expect("recovered").0, [seen(1, 1), seen(1, 2), seen(1, 3)]);
    assert_eq!(recover_all(&disk).expect("recovered again").0.len(), 3);
}

#[test]
fn a_shard_whose_entries_are_missing_above_its_checkpoint_is_damage() {
    let disk = MemoryDisk::default();
    let mut writer = open(&disk, small());
    for lsn in [1, 2, 5, 6] {
        writer.append(&mut batch_of(&[(1, lsn)])).expect("appended");
    }
    let kind = damage_of(&disk).expect("damage").kind;
    assert_eq!(kind, DamageKind::Gap { shard: ShardId(1), expected: Lsn(3), found: Lsn(5) });
    let (entries, _) = recover_above(&disk, &|_| Lsn(4)).expect("the checkpoint covers the gap");
    assert_eq!(entries, [seen(1, 5), seen(1, 6)]);
    let kind = match recover_above(&disk.after_kill(), &|_| Lsn(3)) {
        Err(RecoverError::Damaged(damage)) => damage.kind,
        _ => panic!("LSN 4 is missing"),
    };
    assert_eq!(kind, DamageKind::Gap { shard: ShardId(1), expected: Lsn(4), found: Lsn(5) });
}

#[test]
fn an_entry_that_repeats_is_damage() {
    let disk = MemoryDisk::default();
    open(&disk, small()).append(&mut batch_of(&[(1, 1), (1, 2), (1, 2)])).expect("appended");
    let kind = damage_of(&disk).expect("damage").kind;
    assert_eq!(kind, DamageKind::Order { shard: ShardId(1), after: Lsn(2), found: Lsn(2) });
}

#[test]
fn a_format_of_the_future_is_not_called_damage() {
    let disk = MemoryDisk::default();
    write_run(&disk, 1, 1, true);
    disk.change("log/0000000001/0000000001.log", |bytes| {
        bytes[8] = 2;
        let checksum = millrace_format::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    });
    let error = recover_all(&disk).err().expect("refused").to_string();
    assert!(error.contains("version 2") && error.contains("newer"), "{error}");
}

/// Runs two starts of a node on one disk. Returns what was acknowledged, and what was in flight when the power went.
fn live(disk: &MemoryDisk, batch_count: u64, big: bool) -> (Vec<Delivered>, Vec<Delivered>) {
    let mut acknowledged = Vec::new();
    for _start in 0..2 {
        let Ok((entries, recovered)) = recover_all(disk) else { return (acknowledged, Vec::new()) };
        assert_eq!(entries, acknowledged);
        let options = WriterOptions { run: recovered.next_run, ..small() };
        let Ok(mut writer) = Writer::open(environment(disk), recovered.segments, options) else {
            return (acknowledged, Vec::new());
        };
        for _ in 0..batch_count {
            let next = |shard| acknowledged.iter().filter(|entry: &&Delivered| entry.0 == shard).count() as u64 + 1;
            let mut entries = vec![seen(1, next(1)), seen(2, next(2)), seen(1, next(1) + 1)];
            if big {
                entries[1].2 = vec![9; 6000];
            }
            let mut batch = millrace_log::Batch::new();
            for (shard, lsn, content) in &entries {
                push(&mut batch, *shard, *lsn, content);
            }
            if writer.append(&mut batch).is_err() {
                return (acknowledged, entries);
            }
            acknowledged.extend(entries);
            while let Some(job) = writer.job() {
                job.run();
            }
        }
    }
    (acknowledged, Vec::new())
}

#[test]
fn power_may_go_at_every_operation() {
    for big in [false, true] {
        let disk = MemoryDisk::default();
        live(&disk, 5, big);
        let operations = disk.operations();
        for cut in 0..operations {
            let disk = MemoryDisk::default();
            disk.cut_power_after(cut);
            let (acknowledged, in_flight) = live(&disk, 5, big);
            for seed in 0..10 {
                let mut dice = Dice(cut * 100 + seed);
                let disk = if seed == 0 { disk.after_kill() } else { disk.after_power_cut(&mut dice) };
                // The power goes again and again during recovery, then stays.
                for more in 0..dice.below(4) {
                    disk.cut_power_after(more * 3 + dice.below(5));
                    let _ = recover_all(&disk);
                }
                let disk = disk.after_power_cut(&mut dice);
                let (entries, _) = recover_all(&disk).unwrap_or_else(|error| panic!("cut {cut} seed {seed}: {error}"));
                let with_in_flight = [acknowledged.clone(), in_flight.clone()].concat();
                assert!(
                    entries == acknowledged || entries == with_in_flight,
                    "cut {cut} seed {seed}: {} entries, {} acknowledged",
                    entries.len(),
                    acknowledged.len()
                );
                // What was accepted once stays, even after another power cut.
                let later = disk.after_power_cut(&mut dice);
                assert_eq!(recover_all(&later).expect("recovered").0, entries);
            }
        }
    }
}

#[test]
fn repair_keeps_what_precedes_the_damage_and_names_the_rest() {
    let disk = MemoryDisk::default();
    let batches = write_run(&disk, 1, 1, false);
    recover_all(&disk).expect("recovered");
    let later = write_run(&disk, 2, 9, false);
    // Batch 5 of run 1 holds LSN 5 of shard 1 only.
    disk.change("log/0000000001/0000000002.log", |bytes| bytes[2 * 4096 + 70] ^= 1);
    let environment = environment(&disk);
    let before = disk.contents();
    let plan = repair(&environment, &unlisted(), &|_| Lsn::ZERO, false).expect("surveyed");
    assert_eq!(disk.contents(), before, "without consent nothing changes");
    let lost: Vec<_> = plan.lost.iter().map(|range| (range.shard.0, range.first.0, range.last.0)).collect();
    assert_eq!(lost, [(1, 5, 16)]);
    assert_eq!(plan.given_up, 11);
    assert_eq!(plan.damage[0].offset, 8192);
    let report = repair(&environment, &unlisted(), &|_| Lsn::ZERO, true).expect("repaired");
    assert_eq!(report.lost, plan.lost);
    assert_eq!(report.set_aside, ["log/0000000001.damaged", "log/0000000002.damaged"]);
    let (entries, recovered) = recover_all(&disk).expect("it starts again");
    let keeps = |entry: &&Delivered| entry.0 == 2 || entry.1 < 5;
    let expected: Vec<_> = [batches, later].concat().concat().iter().filter(keeps).cloned().collect();
    assert_eq!(entries, expected);
    assert_eq!(report.kept, expected.len() as u64);
    assert_eq!(recovered.next_run, 3);
    let again = repair(&environment, &unlisted(), &|_| Lsn::ZERO, true).expect("nothing to do");
    assert!(again.is_whole() && again.set_aside.is_empty());
}

#[test]
fn repair_survives_a_power_cut_at_every_operation() {
    let damaged = MemoryDisk::default();
    write_run(&damaged, 1, 1, true);
    damaged.change("log/0000000001/0000000002.log", |bytes| bytes[4096] ^= 1);
    let whole = damaged.after_kill();
    let expected = repair(&environment(&whole), &unlisted(), &|_| Lsn::ZERO, true).expect("repaired");
    let entries = recover_all(&whole).expect("recovered").0;
    assert!(!expected.lost.is_empty() && !entries.is_empty());
    for cut in 0..whole.operations() {
        let disk = damaged.after_kill();
        disk.cut_power_after(cut);
        let _ = repair(&environment(&disk), &unlisted(), &|_| Lsn::ZERO, true);
        let disk = disk.after_power_cut(&mut Dice(cut));
        if let Err(error) = recover_all(&disk) {
            assert!(error.to_string().contains("millrace repair"), "cut {cut}: {error}");
        }
        repair(&environment(&disk), &unlisted(), &|_| Lsn::ZERO, true)
            .unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        assert_eq!(recover_all(&disk).expect("recovered").0, entries, "cut {cut}");
    }
}

proptest! {
    #[test]
    fn random_logs_survive_random_damage(
        sizes in proptest::collection::vec(proptest::collection::vec((0u16..4, 0usize..5000), 1..5), 1..20),
        seed in any::<u64>(),
        is_closed in any::<bool>(),
        damages in 0usize..4,
    ) {
        let disk = MemoryDisk::default();
        let mut writer = open(&disk, small());
        let mut next = [1u64; 4];
        let mut batches: Vec<Vec<Delivered>> = Vec::new();
        for sizes in &sizes {
            let mut batch = millrace_log::Batch::new();
            let mut entries = Vec::new();
            for (shard, size) in sizes {
                let lsn = next[usize::from(*shard)];
                next[usize::from(*shard)] += 1;
                push(&mut batch, *shard, lsn, &vec![lsn as u8; *size]);
                entries.push((*shard, lsn, vec![lsn as u8; *size]));
            }
            writer.append(&mut batch).expect("appended");
            batches.push(entries);
        }
        if is_closed {
            writer.close().expect("closed");
        }
        let mut dice = Dice(seed);
        let files: Vec<_> = disk.contents().into_keys().collect();
        for _ in 0..damages {
            let file = &files[dice.below(files.len() as u64) as usize];
            disk.change(file, |bytes| {
                let at = dice.below(bytes.len().max(1) as u64) as usize;
                match dice.below(3) {
                    0 => bytes.truncate(at),
                    1 => bytes.iter_mut().skip(at).take(4096).for_each(|byte| *byte = 0),
                    _ => if let Some(byte) = bytes.get_mut(at) { *byte ^= 1 << dice.below(8) },
                }
            });
        }
        let all = batches.concat();
        let environment = environment(&disk);
        inspect(&disk, &mut |_, _| {}).expect("inspected");
        let copy = disk.after_kill();
        if let Ok((entries, _)) = recover_all(&copy) {
            prop_assert!(damages > 0 || entries == all);
            prop_assert_eq!(&entries[..], &all[..entries.len()], "a prefix in order");
        }
        repair(&environment, &unlisted(), &|_| Lsn::ZERO, true).expect("repaired");
        let (entries, _) = recover_all(&disk).expect("a repaired log starts");
        for shard in 0..4 {
            let kept: Vec<_> = entries.iter().filter(|entry| entry.0 == shard).collect();
            let written: Vec<_> = all.iter().filter(|entry| entry.0 == shard).take(kept.len()).collect();
            prop_assert_eq!(kept, written, "each shard keeps a prefix");
        }
    }
}
