//! What a small entity costs in memory, by what the allocator was really asked for.
//!
//! A program of its own: it counts what the whole process allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_base::{EntityKey, Name, ShardId, Value};
use millrace_format::Write;
use millrace_store::{MemoryCheckpoint, Store};

/// Counts the bytes that the program asks for. Each request is rounded up to 16 bytes, as size classes do.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

fn rounded(size: usize) -> usize {
    size.next_multiple_of(16)
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENTITIES: u64 = 1_000_000;
const FIELD: &[u8] = b"balance";

fn write(number: u64) -> Write {
    let name = |text| Name::new(text).expect("a valid name");
    // Spread like real keys, not in order of insertion.
    let key = format!("user-{:08}", number * 7_919 % 100_000_007);
    Write {
        entity: EntityKey::new(&name("app"), &name("account"), key.as_bytes()),
        field: FIELD.into(),
        value: Some(Value::json("12345")),
    }
}

#[test]
fn a_small_entity_costs_at_most_200_bytes_over_its_own() {
    let first = write(0);
    let value_bytes = first.value.as_ref().map_or(0, |value| value.encoded().len());
    let own = first.entity.as_bytes().len() + FIELD.len() + value_bytes;
    let before = ALLOCATED.load(Ordering::Relaxed);
    let mut store = Store::open(ShardId(0), Arc::new(MemoryCheckpoint::new()), 7).expect("opens");
    let mut worst = 0.0f64;
    for number in 0..ENTITIES {
        store.apply(store.lsn().next(), [write(number)]).expect("applies");
        // The hash table doubles, so the cost per entity depends on when it is measured.
        if number >= 500_000 && number % 1000 == 0 {
            worst = worst.max((ALLOCATED.load(Ordering::Relaxed) - before) as f64 / number as f64);
        }
    }
    let dirty = (ALLOCATED.load(Ordering::Relaxed) - before) as f64 / ENTITIES as f64;
    let accounted = store.resident_bytes() as f64 / ENTITIES as f64;
    // Confirmed without a checkpoint behind it, because the rows would be counted too.
    store.begin_flush();
    while let Some(chunk) = store.next_flush_chunk(1 << 20) {
        store.confirm_flush_chunk(&chunk);
        store.settle(usize::MAX);
    }
    assert_eq!(store.dirty_bytes(), 0);
    let clean = (ALLOCATED.load(Ordering::Relaxed) - before) as f64 / ENTITIES as f64;
    println!("bytes per entity with one field of {own} bytes of its own, in requests rounded up to 16:");
    println!(
        "  dirty {dirty:.0} (worst at any count {worst:.0}), clean {clean:.0}; accounted while dirty {accounted:.0}"
    );
    println!(
        "  over its own bytes: dirty {:.0}, worst {:.0}, clean {:.0}",
        dirty - own as f64,
        worst - own as f64,
        clean - own as f64
    );
    assert!(worst - own as f64 <= 200.0, "dirty entities cost too much");
    assert!((0.8..1.25).contains(&(accounted / dirty)), "resident_bytes tells the truth");
    store.evict(0);
    let after = ALLOCATED.load(Ordering::Relaxed) - before;
    println!("  left after evicting all of them: {} MiB", after >> 20);
}
