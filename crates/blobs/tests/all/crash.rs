//! The power goes at each operation on the disk. What was settled is whole afterwards, and what was not is whole or gone.
//! Nothing else is there, and no name is given twice. Nothing is left over once the bodies that nobody needs are freed.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use millrace_base::ShardId;
use millrace_blobs::{BlobError, Bodies, BodyName};

/// What its writer knows of a store.
#[derive(Default)]
struct Ledger {
    /// Owner and content of all bodies that were begun.
    begun: BTreeMap<BodyName, (Vec<u8>, Vec<u8>)>,
    settled: BTreeSet<BodyName>,
    freed: BTreeSet<BodyName>,
    /// Bodies were copied together, and their segments removed.
    is_copied: bool,
}

impl Ledger {
    fn owner_and_content(&self, length: usize) -> (Vec<u8>, Vec<u8>) {
        let seed = self.begun.len() as u64 + 1;
        // Now short, now over several sectors.
        (content(seed, 9 + seed as usize * 577 % 2_000), content(!seed, length))
    }

    /// Writes a body.
    fn write(&mut self, bodies: &Bodies, lane: usize, length: usize) -> Result<millrace_blobs::Written, BlobError> {
        let (owner, bytes) = self.owner_and_content(length);
        let hint = length.is_multiple_of(2).then_some(length as u64);
        let mut writer = bodies.begin(lane, ShardId(lane as u16), &owner, hint)?;
        assert!(self.begun.insert(writer.name(), (owner, bytes.clone())).is_none(), "a name was given twice");
        for piece in bytes.chunks(70_000) {
            writer.append(piece)?;
        }
        writer.finish()
    }

    fn put(&mut self, bodies: &Bodies, lane: usize, length: usize) -> Result<BodyName, BlobError> {
        let unsettled = sync(bodies, lane, self.write(bodies, lane, length)?)?;
        let name = unsettled.name();
        self.settled.insert(name);
        unsettled.settle();
        Ok(name)
    }

    fn free(&mut self, bodies: &Bodies, name: BodyName) {
        self.freed.insert(name);
        bodies.free(name);
    }

    /// Everything that can happen, until the disk fails.
    fn run(&mut self, bodies: &Bodies) -> Result<(), BlobError> {
        let first = self.put(bodies, 0, 1_000)?;
        // Bodies that are begun and never end lie before others that are settled.
        let (owner, bytes) = self.owner_and_content(2_000);
        let mut unfinished = bodies.begin(0, ShardId(0), &owner, Some(2_000))?;
        self.begun.insert(unfinished.name(), (owner, bytes.clone()));
        unfinished.append(&bytes[..700])?;
        let large = self.put(bodies, 0, 140_000)?;
        let waiting = [self.write(bodies, 0, 70_001)?, self.write(bodies, 0, 600)?, self.write(bodies, 1, 90_000)?];
        let overwritten = self.put(bodies, 1, 70_003)?;
        drop(unfinished);
        for _ in 0..3 {
            self.put(bodies, 1, 1_200)?;
            self.put(bodies, 0, 0)?;
        }
        let [one, two, three] = waiting;
        drop(three);
        for result in bodies.sync(0, vec![one, two]) {
            // Nobody says what became of it.
            drop(result?);
        }
        sync(bodies, 0, self.write(bodies, 0, 500)?)?.discard();
        self.put(bodies, 0, 70_005)?;
        self.free(bodies, overwritten);
        self.free(bodies, large);
        // Full segments, of which little is left.
        let mut full = Vec::new();
        for index in 0..12 {
            full.push(self.put(bodies, 0, if index % 4 == 1 { 100 } else { 2_000 })?);
        }
        while bodies.tidy(0)? {}
        for (index, name) in full.into_iter().enumerate() {
            if index % 4 != 1 {
                self.free(bodies, name);
            }
        }
        self.free(bodies, first);
        let before = bodies.counts().segment_bytes;
        while bodies.tidy(1)? {}
        self.is_copied = bodies.counts().segment_bytes + 4_000 < before;
        self.put(bodies, 1, 800)?;
        bodies.close()?;
        self.put(bodies, 0, 900)?;
        Ok(())
    }

    /// Looks at what a crash left.
    fn check(&mut self, disk: &MemoryDisk, what: &str) {
        let (bodies, _) = open(disk);
        assert_eq!(scrub(&bodies), [], "{what}: a crash damages nothing");
        let all = owners(&bodies);
        assert_eq!(all.len() as u64, bodies.counts().bodies, "{what}: each has its owner");
        for name in self.settled.difference(&self.freed) {
            assert!(all.contains_key(name), "{what}: the settled body {name} is lost");
        }
        for (name, owned) in &all {
            let (owner, bytes) = self.begun.get(name).unwrap_or_else(|| panic!("{what}: {name} was never written"));
            assert_eq!(&owned.owner, owner, "{what}: owner of {name}");
            assert!(read(&bodies, *name).as_ref() == Ok(bytes), "{what}: content of {name}");
            if !self.settled.contains(name) || self.freed.contains(name) {
                bodies.free(*name);
            }
        }
        // Writing goes on, under names that nobody had.
        self.put(&bodies, 0, 2_000).expect("a body");
        self.put(&bodies, 1, 70_000).expect("a body");
        bodies.close().expect("the store closes");
        tidy(&bodies);
        let live: BTreeSet<BodyName> = self.settled.difference(&self.freed).copied().collect();
        assert_eq!(bodies.counts().bodies, live.len() as u64, "{what}");
        self.check_space(disk, &bodies, &live, what);
        let (again, recovered) = open(disk);
        assert_eq!(recovered.unfinished, 0, "{what}: everything was closed or removed");
        // An index may still list what was freed after it was written.
        let all: BTreeSet<BodyName> = owners(&again).into_keys().collect();
        assert!(all.is_superset(&live), "{what}");
        assert!(all.iter().all(|name| self.begun.contains_key(name)), "{what}");
    }

    /// What nobody needs takes no space: at most two parts in three of a segment.
    fn check_space(&self, disk: &MemoryDisk, bodies: &Bodies, live: &BTreeSet<BodyName>, what: &str) {
        let needed: usize = live.iter().map(|name| self.begun[name].1.len() + self.begun[name].0.len() + 200).sum();
        let segments = bodies.counts().segments as usize;
        let used = disk.used() as usize;
        assert!(used <= 3 * needed + segments * 400, "{what}: {used} bytes for {needed}");
        for path in disk.contents().keys() {
            let is_known = path == "start" || path.ends_with(".seg") || path.ends_with(".idx") || {
                live.iter().any(|name| path == &format!("files/{:04x}-{:016x}", name.shard.0, name.number))
            };
            assert!(is_known, "{what}: {path} is left over");
        }
    }
}

fn operations_of_a_run() -> u64 {
    let disk = MemoryDisk::default();
    let mut ledger = Ledger::default();
    let (bodies, _) = open(&disk);
    ledger.run(&bodies).expect("nothing fails");
    assert!(ledger.is_copied);
    let operations = disk.operations();
    ledger.check(&disk.after_kill(), "without a crash");
    operations
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_that_was_settled() {
    let operations = operations_of_a_run();
    assert!(operations > 150, "{operations}: the run does everything");
    for cut in 0..operations {
        for seed in 0..6 {
            let disk = MemoryDisk::default();
            disk.faults(|faults| faults.operations_left = Some(cut));
            let mut ledger = Ledger::default();
            if let Ok((bodies, _)) = millrace_blobs::Bodies::open(std::sync::Arc::new(disk.clone()), small()) {
                assert!(ledger.run(&bodies).is_err());
            }
            let after = disk.after_power_cut(&mut Dice(cut * 31 + seed));
            ledger.check(&after, &format!("cut at {cut}, seed {seed}"));
        }
    }
}

#[test]
fn kill_at_any_operation_loses_nothing_that_was_settled() {
    for cut in 0..operations_of_a_run() {
        let disk = MemoryDisk::default();
        disk.faults(|faults| faults.operations_left = Some(cut));
        let mut ledger = Ledger::default();
        if let Ok((bodies, _)) = millrace_blobs::Bodies::open(std::sync::Arc::new(disk.clone()), small()) {
            assert!(ledger.run(&bodies).is_err());
        }
        ledger.check(&disk.after_kill(), &format!("killed at {cut}"));
    }
}

/// A crash in the middle of a start, and one in the middle of that of the next.
#[test]
fn a_power_cut_during_recovery_loses_nothing() {
    let disk = MemoryDisk::default();
    let mut ledger = Ledger::default();
    let (bodies, _) = open(&disk);
    disk.faults(|faults| faults.operations_left = Some(120));
    assert!(ledger.run(&bodies).is_err());
    for seed in 0..20 {
        let crashed = disk.after_power_cut(&mut Dice(seed));
        for cut in 0..12 {
            let again = crashed.after_kill();
            again.faults(|faults| faults.operations_left = Some(cut));
            let begun = ledger.begun.clone();
            if let Ok((bodies, _)) = millrace_blobs::Bodies::open(std::sync::Arc::new(again.clone()), small()) {
                let _ = ledger.put(&bodies, 0, 100);
                let _ = bodies.close();
                while bodies.tidy(0) == Ok(true) {}
            }
            ledger.check(&again.after_power_cut(&mut Dice(seed * 100 + cut)), &format!("seed {seed}, cut {cut}"));
            // The next crash begins from the same disk.
            ledger.settled.retain(|name| begun.contains_key(name));
            ledger.begun = begun;
        }
    }
}
