//! State larger than memory: filled, flushed and evicted under a budget, then read back and
//! scanned, all of it checked. `STATE_MIB` sets the size; the full size is the ignored test.
//!
//! A program of its own: it reads the resident memory of its process.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock and its size from outside")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use millrace_base::{EntityKey, Name, ShardId, Value, ValueKind};
use millrace_format::Write;
use millrace_store::{Checkpoint, FjallCheckpoint, Store};

const SHARD: ShardId = ShardId(0);
const MIB: usize = 1 << 20;
const CACHE_BYTES: usize = 8 * MIB;
const CHUNK_BYTES: usize = 4 * MIB;
const VALUE_BYTES: usize = 1000;
const READS: usize = 20_000;

fn key(number: usize) -> EntityKey {
    let name = |text| Name::new(text).expect("a valid name");
    EntityKey::new(&name("app"), &name("blob"), format!("{number:010}").as_bytes())
}

/// Content that tells which entity it belongs to and does not compress to nothing.
fn value(number: usize) -> Value {
    let mut state = number as u64 ^ 0x9E37_79B9_7F4A_7C15;
    let mut bytes = number.to_le_bytes().to_vec();
    while bytes.len() < VALUE_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&(state >> 32).to_le_bytes()[..4]);
    }
    Value::new(ValueKind::Bytes, &bytes)
}

fn flush(store: &mut Store, checkpoint: &dyn Checkpoint) {
    store.begin_flush();
    while let Some(chunk) = store.next_flush_chunk(CHUNK_BYTES) {
        checkpoint.write(SHARD, &chunk).expect("the chunk is written");
        store.confirm_flush_chunk(&chunk);
        store.settle(usize::MAX);
    }
}

/// The process's resident memory, if the system tells it.
fn process_mib() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<usize>().ok().map(|kib| kib / 1024)
}

fn run(folder: &Path, state_mib: usize, budget_bytes: usize) {
    let count = state_mib * MIB / VALUE_BYTES;
    let open = || Arc::new(FjallCheckpoint::open(folder, CACHE_BYTES).expect("opens"));
    let checkpoint = open();
    let mut store = Store::open(SHARD, checkpoint.clone() as Arc<dyn Checkpoint>, 1).expect("opens");
    let (mut most, mut most_process) = (0, 0);
    let began = Instant::now();
    for number in 0..count {
        let write = Write { entity: key(number), field: (*b"data").into(), value: Some(value(number)) };
        store.apply(store.lsn().next(), [write]).expect("applies");
        most = most.max(store.resident_bytes());
        if store.dirty_bytes() > budget_bytes / 4 {
            flush(&mut store, &*checkpoint);
        }
        if store.resident_bytes() > budget_bytes {
            store.evict(budget_bytes * 9 / 10);
            most_process = most_process.max(process_mib().unwrap_or_default());
        }
    }
    flush(&mut store, &*checkpoint);
    let filled = began.elapsed();
    let began = Instant::now();
    for read in 0..READS {
        let number = read.wrapping_mul(7_368_787) % count;
        assert_eq!(store.get(&key(number), b"data"), Ok(Some(&value(number))));
        if store.resident_bytes() > budget_bytes {
            store.evict(budget_bytes * 9 / 10);
        }
        most = most.max(store.resident_bytes());
    }
    let read = began.elapsed();
    let began = Instant::now();
    let mut last = None;
    let mut scanned = 0;
    loop {
        let page = store.scan_entities(b"", last.as_ref(), 1000).expect("scans");
        let Some(end) = page.last().cloned() else { break };
        for entity in &page {
            assert_eq!(*entity, key(scanned), "in order and complete");
            scanned += 1;
        }
        last = Some(end);
    }
    assert_eq!(scanned, count);
    let scan = began.elapsed();
    println!("{count} entities, {state_mib} MiB of state, budget {} MiB:", budget_bytes / MIB);
    println!(
        "  filled and flushed in {filled:.2?}; the store held at most {} MiB, the process {most_process} MiB",
        most / MIB
    );
    println!(
        "  {:.1} us a random read, most of them cold; all {count} entities scanned in {scan:.2?}",
        read.as_secs_f64() * 1e6 / READS as f64
    );
    assert!(most <= budget_bytes + 64 * 1024, "one write or read over the budget, no more");
    assert!(state_mib * MIB > budget_bytes, "the state is larger than memory");
    let lsn = store.lsn();
    drop((store, checkpoint));
    let began = Instant::now();
    let checkpoint = open();
    let mut store = Store::open(SHARD, checkpoint as Arc<dyn Checkpoint>, 2).expect("opens");
    assert_eq!(store.get(&key(count / 2), b"data"), Ok(Some(&value(count / 2))));
    println!("  opened again and read in {:.2?}", began.elapsed());
    assert_eq!(store.lsn(), lsn);
}

#[test]
fn state_larger_than_memory_stays_within_the_budget_and_reads_back() {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), 128, 32 * MIB);
}

#[test]
#[ignore = "takes minutes and a few GiB of disk: run by name, with --release -- --ignored --nocapture"]
fn a_gibibyte_of_state_in_64_mib() {
    let folder = tempfile::tempdir().expect("a folder");
    let state_mib = std::env::var("STATE_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(1024);
    run(folder.path(), state_mib, 64 * MIB);
}
