//! A copy of a log that is being written. It holds what was appended before one moment and nothing else. It ends as by a
//! clean stop. Nothing that it needs is deleted meanwhile.

use std::sync::Arc;

use crate::common::*;
use millrace_base::{Lsn, ShardId};
use millrace_io::Disk;
use millrace_log::{RecoverError, Recovered, SegmentCopy, Segments, Writer, WriterOptions, copy_at, recover};
use millrace_manifest::Manifest;

fn manifest_of(disk: &MemoryDisk) -> Manifest {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Manifest::open(&disk).expect("readable").unwrap_or_else(|| Manifest::new(&disk, [7; 16]))
}

fn recover_listed(disk: &MemoryDisk) -> Result<(Vec<Delivered>, Recovered), RecoverError> {
    let mut entries = Vec::new();
    let dynamic: Arc<dyn Disk> = Arc::new(disk.clone());
    let recovered = recover(&dynamic, &manifest_of(disk), &|_| Lsn::ZERO, &mut |entry| entries.push(see(&entry)))?;
    entries.sort();
    Ok((entries, recovered))
}

/// Two writers of one node, each with one shard.
struct Node {
    disk: MemoryDisk,
    segments: Segments,
    writers: [Writer; 2],
    last: [u64; 2],
}

impl Node {
    fn start(disk: &MemoryDisk, last: [u64; 2]) -> Self {
        let (_, recovered) = recover_listed(disk).expect("whole");
        let writer = |core| {
            let options = WriterOptions { run: recovered.next_run, core, ..small() };
            Writer::open(environment(disk), recovered.segments.clone(), options).expect("a writer")
        };
        Self { disk: disk.clone(), segments: recovered.segments.clone(), writers: [writer(0), writer(1)], last }
    }

    fn append(&mut self, core: usize) {
        self.last[core] += 1;
        let mut batch = batch_of(&[(core as u16, self.last[core])]);
        self.writers[core].append(&mut batch).expect("appended");
        while let Some(job) = self.writers[core].job() {
            job.run();
        }
    }

    /// Everything appended so far.
    fn entries(&self) -> Vec<Delivered> {
        let of = |core: usize| (1..=self.last[core]).map(move |lsn| seen(core as u16, lsn));
        let mut all: Vec<Delivered> = of(0).chain(of(1)).collect();
        all.sort();
        all
    }

    /// What a copy of this moment consists of, and its manifest.
    fn look(&self) -> (Vec<SegmentCopy>, Vec<u8>) {
        self.segments.at_one_moment(|open| {
            let mut contents = self.segments.manifest().contents();
            let copies = copy_at(contents.streams.as_mut().expect("listed"), open.to_vec());
            (copies, contents.encode())
        })
    }

    /// The copy, with what the files hold by now.
    fn copy(&self, (copies, manifest): &(Vec<SegmentCopy>, Vec<u8>)) -> MemoryDisk {
        let (files, copied) = (self.disk.contents(), MemoryDisk::default());
        copied.put("manifest", manifest);
        for copy in copies {
            let bytes = &files[&copy.path];
            let end = copy.bytes.map_or(bytes.len(), |bytes| bytes as usize);
            copied.put(&copy.path, &[&bytes[..end], &copy.end].concat());
        }
        copied
    }

    fn delete_everything(&self) -> u64 {
        self.segments.delete_covered(&|_| Lsn(u64::MAX), 1).expect("deleted").segments
    }
}

#[test]
fn a_copy_holds_what_was_appended_before_its_moment_and_nothing_else() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let disk = MemoryDisk::default();
        let mut node = Node::start(&disk, [0, 0]);
        for life in 0..3 {
            for _ in 0..dice.below(20) {
                node.append(dice.below(2) as usize);
            }
            let hold = node.segments.hold();
            let (moment, entries) = (node.look(), node.entries());
            for _ in 0..dice.below(20) {
                node.append(dice.below(2) as usize);
                assert_eq!(node.delete_everything(), 0, "all segments are held");
            }
            let copied = node.copy(&moment);
            let (found, recovered) = recover_listed(&copied).expect("whole");
            assert_eq!(found, entries, "seed {seed}, life {life}");
            assert!(recovered.unclosed.is_empty(), "it ends as by a clean stop");
            // The copy is a log like any other: it goes on.
            let mut further = Node::start(&copied, [entries.len() as u64, 0]);
            further.last = [0u16, 1].map(|core| entries.iter().filter(|entry| entry.0 == core).count() as u64);
            further.append(0);
            assert_eq!(recover_listed(&copied).expect("whole").0, further.entries());
            drop(hold);
            let last = node.last;
            drop(node);
            node = Node::start(&disk, last);
        }
    }
}

#[test]
fn a_copy_that_lacks_its_end_is_damaged_and_not_torn() {
    let disk = MemoryDisk::default();
    let mut node = Node::start(&disk, [0, 0]);
    for _ in 0..3 {
        node.append(0);
        node.append(1);
    }
    let (copies, manifest) = node.look();
    for at in 0..copies.len() {
        let copied = node.copy(&(copies.clone(), manifest.clone()));
        copied.change(&copies[at].path, |bytes| bytes.truncate(bytes.len() - 4096));
        let error = recover_listed(&copied).map(|_| ()).expect_err("cut");
        assert!(error.to_string().contains(&copies[at].path), "{error}");
    }
}

#[test]
fn segments_are_deleted_again_when_the_last_hold_ends() {
    let disk = MemoryDisk::default();
    let mut node = Node::start(&disk, [0, 0]);
    for _ in 0..30 {
        node.append(0);
    }
    let holds = (node.segments.hold(), node.segments.hold());
    assert_eq!(node.delete_everything(), 0);
    drop(holds.0);
    assert_eq!(node.delete_everything(), 0);
    drop(holds.1);
    assert!(node.delete_everything() > 0);
    assert!(node.segments.blockers(&|_: ShardId| Lsn(u64::MAX)).is_empty());
}
