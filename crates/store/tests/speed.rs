//! Floors for the bulk paths, set well below what an idle machine does. So they catch a lost order of magnitude and not
//! a busy neighbour. The figures are printed.
//!
//! A program of its own: tests beside it would take the time that it measures.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock and its size from outside")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_base::{EntityKey, Lsn, Name, ShardId, UnixMillis, Value};
use millrace_format::{Entry, EntryRef, Write};
use millrace_store::{Checkpoint, FjallCheckpoint, MemoryCheckpoint, Store};

const SHARD: ShardId = ShardId(1);
const STEP_BYTES: usize = 64 << 10;
const CHUNK_BYTES: usize = 4 << 20;
const ENTITIES: u64 = 1_000_000;

fn key(number: u64) -> EntityKey {
    let name = |text| Name::new(text).expect("a valid name");
    EntityKey::new(&name("app"), &name("counter"), format!("{:09}", number * 7_919 % 1_000_003).as_bytes())
}

fn write(number: u64) -> Write {
    Write { entity: key(number), field: (*b"n").into(), value: Some(Value::json("17")) }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

/// Encoded entries of one write each: `entries` of them over `entities` entities.
fn log(entries: u64, entities: u64) -> Vec<Vec<u8>> {
    let encode = |number: u64| {
        let mut bytes = Vec::new();
        let writes = [write(number % entities)];
        Entry { shard: SHARD, lsn: Lsn(number + 1), time: UnixMillis(0), writes: &writes }.encode(&mut bytes);
        bytes
    };
    (0..entries).map(encode).collect()
}

fn replay(log: &[Vec<u8>]) -> (Store, Duration) {
    let mut store = Store::open(SHARD, Arc::new(MemoryCheckpoint::new()), 5).expect("opens");
    let began = Instant::now();
    for bytes in log {
        store.replay(&EntryRef::decode(bytes).expect("decodes")).expect("replays");
    }
    (store, began.elapsed())
}

#[test]
fn replaying_flushing_and_opening_a_million_entities_is_fast() {
    for (what, entities) in [("each to an entity of its own", ENTITIES), ("over 10,000 entities", 10_000)] {
        let (_, elapsed) = replay(&log(ENTITIES, entities));
        let rate = per_second(ENTITIES, elapsed);
        println!("replay of entries of one small write, {what}: {rate:.0}/s");
        assert!(rate > 100_000.0, "{rate}");
    }
    let one = log(ENTITIES / 64, ENTITIES);
    let all: Vec<_> = (0..64).map(|_| replay(&one)).collect();
    let rate = per_second(ENTITIES, all.iter().map(|(_, elapsed)| *elapsed).sum());
    println!("replay of the same number of entities, spread over 64 shards: {rate:.0}/s");
    drop(all);
    let (mut store, _) = replay(&log(ENTITIES, ENTITIES));
    let folder = tempfile::tempdir().expect("a folder");
    let open = || FjallCheckpoint::open(folder.path(), 16 << 20).expect("opens");
    let checkpoint = open();
    let began = Instant::now();
    let mut taking = Duration::ZERO;
    let mut longest = Duration::ZERO;
    let (mut confirming, mut longest_confirm) = (Duration::ZERO, Duration::ZERO);
    store.begin_flush();
    loop {
        let step = Instant::now();
        let Some(mut chunk) = store.next_flush_chunk(STEP_BYTES) else { break };
        let mut took = step.elapsed();
        let mut more = true;
        while more && chunk.size_bytes() < CHUNK_BYTES {
            longest = longest.max(took);
            taking += took;
            let step = Instant::now();
            more = store.extend_flush_chunk(&mut chunk, STEP_BYTES);
            took = step.elapsed();
        }
        checkpoint.write(SHARD, &chunk).expect("writes");
        let step = Instant::now();
        store.confirm_flush_chunk(&chunk);
        let mut more = true;
        while more {
            let step = Instant::now();
            more = store.settle(2048);
            longest_confirm = longest_confirm.max(step.elapsed());
        }
        confirming += step.elapsed();
        taking += took;
        longest = longest.max(took);
    }
    let rate = per_second(ENTITIES, began.elapsed());
    println!("flush of {ENTITIES} small dirty rows to fjall: {rate:.0} rows/s");
    println!("  of which on the shard's thread: taking {taking:.2?}, at most {longest:.2?} at a time;");
    println!("  confirming {confirming:.2?}, at most {longest_confirm:.2?} at a time");
    assert!(rate > 60_000.0, "{rate}");
    drop((store, checkpoint));
    let began = Instant::now();
    let checkpoint = open();
    let mut store = Store::open(SHARD, Arc::new(checkpoint) as Arc<dyn Checkpoint>, 6).expect("opens");
    let value = Value::json("17");
    assert_eq!(store.get(&key(4711), b"n"), Ok(Some(&value)));
    let elapsed = began.elapsed();
    println!("opening with {ENTITIES} entities checkpointed, and one read: {elapsed:.2?}");
    assert!(elapsed < Duration::from_secs(2));
    cold_reads(&mut store, &value);
}

fn cold_reads(store: &mut Store, value: &Value) {
    const READS: u64 = 50_000;
    let began = Instant::now();
    for number in 0..READS {
        assert_eq!(store.get(&key(number * 104_729 % ENTITIES), b"n"), Ok(Some(value)));
    }
    let present = began.elapsed().as_secs_f64() * 1e6 / READS as f64;
    let began = Instant::now();
    for number in 0..READS {
        let absent = EntityKey::internal("absent", format!("{:09}", number * 7_919).as_bytes());
        assert_eq!(store.get(&absent, b"m"), Ok(None));
    }
    let absent = began.elapsed().as_secs_f64() * 1e6 / READS as f64;
    println!("cold read of a small entity: {present:.1} us; of an entity that is absent: {absent:.1} us");
}

#[test]
fn a_queue_of_300_000_fields_costs_the_same_at_any_length() {
    let entity = key(1);
    let item = |number: u64| -> Box<[u8]> { number.to_be_bytes().as_slice().into() };
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint: Arc<dyn Checkpoint> = Arc::new(FjallCheckpoint::open(folder.path(), 16 << 20).expect("opens"));
    let mut store = Store::open(SHARD, Arc::clone(&checkpoint), 5).expect("opens");
    for number in 0..300_000 {
        let write = Write { entity: entity.clone(), field: item(number), value: Some(Value::json("1")) };
        store.apply(store.lsn().next(), [write]).expect("applies");
    }
    flush(&mut store, &*checkpoint);
    // Once as it grew in memory, once as it is found on disk.
    let mut head = 0;
    for part in ["all in memory", "mostly on disk"] {
        let began = Instant::now();
        for _ in 0..100_000 {
            let first = store.scan_fields(&entity, b"", None, 1).expect("scans");
            assert_eq!(first[0].0, item(head));
            let tail = Write { entity: entity.clone(), field: item(300_000 + head), value: Some(Value::json("1")) };
            let taken = Write { entity: entity.clone(), field: item(head), value: None };
            store.apply(store.lsn().next(), [taken, tail]).expect("applies");
            head += 1;
        }
        let each = began.elapsed().as_secs_f64() * 1e6 / 100_000.0;
        println!("a queue of 300,000 fields, {part}: {each:.1} us to look at the head, take it and append");
        assert!(each < 200.0, "{each}");
        flush(&mut store, &*checkpoint);
        store.evict(0);
        store.evict(0);
        assert_eq!(store.resident_entities(), 0);
    }
}

fn flush(store: &mut Store, checkpoint: &dyn Checkpoint) {
    store.begin_flush();
    while let Some(chunk) = store.next_flush_chunk(1 << 20) {
        checkpoint.write(SHARD, &chunk).expect("writes");
        store.confirm_flush_chunk(&chunk);
    }
    while store.settle(2048) {}
}
