//! A full disk under the checkpoint. The flush fails with a clear error, and nothing is lost or hidden meanwhile. Once
//! there is room, the next flush succeeds without a restart.
//!
//! The full disk is a limit on file sizes, which any user may set. The limit holds for a process. So the test runs
//! itself again as a process of its own, with the limit's signal ignored.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a test starts processes")]

use std::process::Command;
use std::sync::Arc;

use millrace_base::{EntityKey, Name, ShardId, Value, ValueKind};
use millrace_format::Write;
use millrace_store::{Checkpoint, FjallCheckpoint, FlushChunk, Store, StoreError};

const SHARD: ShardId = ShardId(2);
const SMALL: usize = 256 << 10;
const LARGE: usize = 4 << 20;

#[test]
fn a_full_disk_fails_flushes_until_there_is_room() {
    let this = std::env::current_exe().expect("the test's own path");
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" --exact disk_full::under_a_limit --ignored --nocapture"])
        .arg(this)
        .output()
        .expect("sh runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn limit_file_sizes(limit: &str) {
    let status = Command::new("prlimit")
        .args([&format!("--pid={}", std::process::id()), &format!("--fsize={limit}:unlimited")])
        .status()
        .expect("prlimit, of util-linux, runs");
    assert!(status.success());
}

fn key(number: usize) -> EntityKey {
    let name = |text| Name::new(text).expect("a valid name");
    EntityKey::new(&name("app"), &name("thing"), format!("{number:06}").as_bytes())
}

fn value(number: usize, round: u8) -> Value {
    let mut bytes = vec![round; 1000];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Value::new(ValueKind::Bytes, &bytes)
}

fn fill(store: &mut Store, count: usize, round: u8) {
    for number in 0..count {
        let write = Write { entity: key(number), field: (*b"f").into(), value: Some(value(number, round)) };
        store.apply(store.lsn().next(), [write]).expect("applies");
    }
}

fn check(store: &mut Store, count: usize, round: u8) {
    for number in 0..count {
        assert_eq!(store.get(&key(number), b"f"), Ok(Some(&value(number, round))), "entity {number}");
    }
}

fn flush(store: &mut Store, checkpoint: &dyn Checkpoint, chunk_bytes: usize) -> Result<(), StoreError> {
    store.begin_flush();
    while let Some(chunk) = store.next_flush_chunk(chunk_bytes) {
        if let Err(error) = write(checkpoint, &chunk) {
            store.abandon_flush();
            return Err(error);
        }
        store.confirm_flush_chunk(&chunk);
    }
    while store.settle(1000) {}
    Ok(())
}

fn write(checkpoint: &dyn Checkpoint, chunk: &FlushChunk) -> Result<(), StoreError> {
    checkpoint.write(SHARD, chunk)
}

#[test]
#[ignore = "run by the other test, in a process of its own"]
fn under_a_limit() {
    for chunk_bytes in [SMALL, LARGE] {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Arc::new(FjallCheckpoint::open(folder.path(), 1 << 20).expect("opens"));
        let checkpoint = open();
        let mut store = Store::open(SHARD, checkpoint.clone() as Arc<dyn Checkpoint>, 1).expect("opens");
        fill(&mut store, 6000, 1);
        flush(&mut store, &*checkpoint, chunk_bytes).expect("there is room");
        let before = store.checkpoint_lsn();
        fill(&mut store, 9000, 2);

        limit_file_sizes("1000000");
        for _ in 0..3 {
            let result = flush(&mut store, &*checkpoint, chunk_bytes);
            assert!(matches!(result, Err(StoreError::DiskFull(_))), "{result:?}");
            // Dirty entities stay, flushed ones can go, and reads go on.
            store.evict(0);
            check(&mut store, 9000, 2);
            assert_eq!(store.checkpoint_lsn(), before);
            assert_eq!(checkpoint.lsn(SHARD), Ok(before));
        }

        limit_file_sizes("unlimited");
        flush(&mut store, &*checkpoint, chunk_bytes).expect("there is room again");
        assert_eq!((store.checkpoint_lsn(), store.dirty_bytes()), (store.lsn(), 0));
        let lsn = store.lsn();
        drop((store, checkpoint));
        let mut store = Store::open(SHARD, open() as Arc<dyn Checkpoint>, 1).expect("opens");
        assert_eq!(store.lsn(), lsn);
        check(&mut store, 9000, 2);
        assert_eq!(store.scan_entities(b"", None, 10_000).map(|found| found.len()), Ok(9000));
    }
}
