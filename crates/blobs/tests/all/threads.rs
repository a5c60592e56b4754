//! Writers, readers, a scrubber and one that copies bodies together, all at once on real threads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use millrace_blobs::{BlobError, Bodies, BodyName, Cursor};

const WRITERS: usize = 4;
const ROUNDS: u64 = 300;
/// Copies and indexes that have to be made meanwhile, and the rounds after which they should have been.
const TIDIED: u64 = 20;
const MAX_ROUNDS: u64 = 20_000;

/// Writes and frees bodies in turn, and looks at those that are there. Gives what it leaves.
fn writer(bodies: &Bodies, thread: usize, tidied: &AtomicU64) -> BTreeMap<BodyName, Vec<u8>> {
    let mut dice = Dice(thread as u64);
    let mut mine: BTreeMap<BodyName, Vec<u8>> = BTreeMap::new();
    for round in 0..MAX_ROUNDS {
        if round >= ROUNDS && tidied.load(Ordering::Relaxed) >= TIDIED {
            break;
        }
        let length = if dice.below(20) == 0 { 70_000 } else { dice.below(3_000) as usize };
        let bytes = content(round << 8 | thread as u64, length);
        // Two threads share a lane.
        let name = put(bodies, thread % 2, format!("{thread}").as_bytes(), &bytes).expect("a body");
        assert!(mine.insert(name, bytes).is_none(), "a name was given twice");
        for _ in 0..3 {
            let at = dice.below(mine.len() as u64) as usize;
            let (name, bytes) = mine.iter().nth(at).expect("one of them");
            assert!(read(bodies, *name).as_ref() == Ok(bytes), "{name}");
        }
        while mine.len() > 30 || (!mine.is_empty() && dice.below(4) == 0) {
            let at = dice.below(mine.len() as u64) as usize;
            let (name, bytes) = mine.iter().nth(at).map(|(name, bytes)| (*name, bytes.clone())).expect("one of them");
            mine.remove(&name);
            let reader = bodies.read(name).expect("a body");
            bodies.free(name);
            assert_eq!(bodies.read(name).err(), Some(BlobError::Gone(name)));
            let mut last = vec![0; bytes.len()];
            reader.read_at(0, &mut last).expect("a reader keeps what it reads");
            assert!(last == bytes);
        }
    }
    mine
}

#[test]
fn writers_readers_and_care_work_side_by_side() {
    let disk = MemoryDisk::default();
    let bodies = Arc::new(open(&disk).0);
    let (is_done, tidied) = (AtomicBool::new(false), AtomicU64::new(0));
    let left: BTreeMap<BodyName, Vec<u8>> = std::thread::scope(|scope| {
        // Two that care for the same store do each other no harm.
        for lane in 0..2 {
            let (bodies, is_done, tidied) = (&bodies, &is_done, &tidied);
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    if bodies.tidy(lane).expect("nothing fails") {
                        tidied.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut cursor = Cursor::default();
            while !is_done.load(Ordering::Relaxed) {
                let (found, next) = bodies.scrub(cursor, 10_000);
                assert_eq!(found, []);
                for owned in bodies.owners(cursor, 20).0 {
                    assert_eq!(owned.owner.len(), 1);
                }
                cursor = next.unwrap_or_default();
            }
        });
        let (bodies, tidied) = (&bodies, &tidied);
        let writers: Vec<_> = (0..WRITERS).map(|thread| scope.spawn(move || writer(bodies, thread, tidied))).collect();
        let left: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_done.store(true, Ordering::Relaxed);
        left.into_iter().flat_map(|left| left.expect("no panic")).collect()
    });
    assert!(tidied.load(Ordering::Relaxed) >= TIDIED, "bodies were copied together meanwhile");
    let crashed = open(&disk.after_power_cut(&mut Dice(5))).0;
    for (name, bytes) in &left {
        assert!(read(&bodies, *name).as_ref() == Ok(bytes) && read(&crashed, *name).as_ref() == Ok(bytes), "{name}");
    }
    assert_eq!(bodies.counts().bodies, left.len() as u64);
    assert_eq!((scrub(&bodies), scrub(&crashed)), (Vec::new(), Vec::new()));
}

/// All that wait for a lane are made durable by few syncs, whoever asks.
#[test]
fn threads_of_a_lane_share_syncs() {
    let disk = MemoryDisk::default();
    let bodies = open(&disk).0;
    put(&bodies, 0, b"o", b"first").expect("a body");
    disk.faults(|faults| faults.sync_ms = 20);
    let before = disk.file_syncs();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let bodies = &bodies;
            scope.spawn(move || put(bodies, 0, b"o", &content(seed, 100)).expect("a body"));
        }
    });
    let syncs = disk.file_syncs() - before;
    assert!(syncs <= 5, "{syncs} syncs for 8 bodies");
    let crashed = open(&disk.after_power_cut(&mut Dice(1))).0;
    assert_eq!(crashed.counts().bodies, 9);
}
