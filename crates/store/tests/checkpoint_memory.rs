//! What writing a checkpoint takes in memory does not grow with what it holds, by what the allocator
//! was really asked for. `STATE_MIB` sets the size.
//!
//! A program of its own: it counts what the whole process allocates.

#![allow(clippy::disallowed_methods, reason = "a measurement reads its size from outside")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_base::{EntityKey, Name, ShardId, Value, ValueKind};
use millrace_format::Write;
use millrace_store::{Checkpoint, FjallCheckpoint, Store};

/// Counts the memory that the program holds, and the most it ever held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SHARD: ShardId = ShardId(0);
const MIB: usize = 1 << 20;
const CACHE_BYTES: usize = 4 * MIB;

/// Rows of at least a block's size, which compress to almost nothing. So a merge makes one table of all there is.
const VALUE_BYTES: usize = 5000;

/// The cache, rows on their way to disk, a chunk and its rows in the store, a merge.
const MOST_BYTES: usize = 48 * MIB;

fn write(number: usize, count: usize) -> Write {
    let name = |text| Name::new(text).expect("a valid name");
    // Spread over all keys, so that every new table overlaps every older one.
    let key = format!("{:010}", number * 7_368_787 % count);
    Write {
        entity: EntityKey::new(&name("app"), &name("blob"), key.as_bytes()),
        field: (*b"data").into(),
        value: Some(Value::new(ValueKind::Bytes, &[number as u8; VALUE_BYTES])),
    }
}

fn most_mib(state_mib: usize, chunk_bytes: usize) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    let count = state_mib * MIB / VALUE_BYTES;
    let checkpoint = Arc::new(FjallCheckpoint::open(folder.path(), CACHE_BYTES).expect("opens"));
    let mut store = Store::open(SHARD, checkpoint.clone() as Arc<dyn Checkpoint>, 1).expect("opens");
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    for number in 0..count {
        store.apply(store.lsn().next(), [write(number, count)]).expect("applies");
        if store.dirty_bytes() < chunk_bytes && number + 1 < count {
            continue;
        }
        store.begin_flush();
        while let Some(chunk) = store.next_flush_chunk(usize::MAX) {
            checkpoint.write(SHARD, &chunk).expect("the chunk is written");
            store.confirm_flush_chunk(&chunk);
            store.settle(usize::MAX);
        }
        store.evict(0);
    }
    let most = MOST.load(Ordering::Relaxed) - before;
    for number in (0..count).step_by(97) {
        let Write { entity, field, value } = write(number, count);
        assert_eq!(store.get(&entity, &field), Ok(value.as_ref()), "row {number}");
    }
    most / MIB
}

#[test]
fn writing_takes_no_more_memory_for_a_larger_state() {
    let state_mib = std::env::var("STATE_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    // The first kind is gathered in memory first, the second is written as a table each.
    for chunk_mib in [1, 3] {
        let most_mib = most_mib(state_mib, chunk_mib * MIB);
        println!("{state_mib} MiB of state in chunks of {chunk_mib} MiB: at most {most_mib} MiB in memory");
        assert!(most_mib * MIB < MOST_BYTES, "{most_mib} MiB in memory for chunks of {chunk_mib} MiB");
    }
}
