//! Writing goes on whatever the sizes of the chunks, and fjall keeps no more in memory than it needs.

#![allow(clippy::disallowed_methods, reason = "a write that never returns is told by the clock")]

use std::ops::{ControlFlow, Range};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;

const SHARD: ShardId = ShardId(0);
const MIB: usize = 1 << 20;

/// Rows of 4 KiB that were not there before.
fn chunk(number: usize, bytes: usize) -> FlushChunk {
    let mut chunk = FlushChunk::new(0, Lsn::ZERO);
    let value = vec![number as u8; 4096];
    for row in 0..bytes / value.len() {
        chunk.push(SHARD, format!("{number:06}/{row:06}").as_bytes(), b"field", Some(&value));
    }
    chunk
}

fn row(number: usize) -> Vec<u8> {
    chunk(number, 4096).rows().next().expect("one row").0.to_vec()
}

/// Rows that went along with the writing of a table stayed in fjall's count, until every write waited for the count to
/// sink. From then on nothing was ever flushed again.
#[test]
fn small_and_large_chunks_in_turn_are_all_written() {
    const ROUNDS: usize = 80;
    let (done, finished) = channel();
    std::thread::spawn(move || {
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoint = FjallCheckpoint::open(folder.path(), MIB).expect("opens");
        for round in 0..ROUNDS {
            checkpoint.write(SHARD, &chunk(2 * round, MIB)).expect("a small one");
            checkpoint.write(SHARD, &chunk(2 * round + 1, TABLE_BYTES)).expect("a large one");
        }
        let found = (0..2 * ROUNDS).filter(|number| checkpoint.get(&row(*number)).expect("read").is_some()).count();
        done.send(found).expect("the test waits");
    });
    let found = finished.recv_timeout(Duration::from_secs(60));
    assert_eq!(found, Ok(2 * ROUNDS), "writing stopped for good");
}

#[test]
fn lsns_do_not_gather_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = FjallCheckpoint::open(folder.path(), MIB).expect("opens");
    let held = || checkpoint.with(|open| Ok(open.shards.tree.active_memtable().size())).expect("open");
    let mut chunk = FlushChunk::new(0, Lsn::ZERO);
    let mut most = 0;
    // Each counts for some 80 bytes.
    for lsn in 1..=1_500 {
        chunk.advances_to = Some(Lsn(lsn));
        checkpoint.write(SHARD, &chunk).expect("written");
        most = most.max(held());
    }
    assert!(most < LSN_MEMTABLE_BYTES, "{most} bytes of LSNs in memory");
    assert_eq!(checkpoint.lsn(SHARD), Ok(Lsn(1_500)));
}

/// Rows of the shard.
fn count(checkpoint: &FjallCheckpoint) -> usize {
    let mut count = 0;
    let mut visit = |_: &[u8], _: &[u8]| {
        count += 1;
        ControlFlow::Continue(())
    };
    let (from, to) = (SHARD.0.to_be_bytes(), [0, SHARD.0 as u8 + 1]);
    checkpoint.scan(Bound::Included(&from), Bound::Excluded(&to), &mut visit).expect("read");
    count
}

/// Rows written through the journal came back. The table with their deletions was not in the journal. Once a merge had
/// left nothing of either, fjall took the journal for newer than all its tables.
#[test]
fn what_a_table_deletes_stays_deleted_after_a_restart() {
    const MANY: usize = 40_000;
    const ALL: usize = MANY + 100;
    let rows = |names: Range<usize>, value: Option<&[u8]>| {
        let mut chunk = FlushChunk::new(0, Lsn::ZERO);
        for name in names {
            let entity = format!("a key that is long enough for a table {name:06}");
            chunk.push(SHARD, entity.as_bytes(), b"and the name of a field", value);
        }
        chunk
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut checkpoint = FjallCheckpoint::open(folder.path(), MIB).expect("opens");
    for round in 0..3 {
        checkpoint.write(SHARD, &rows(0..MANY, Some(b"value"))).expect("a large one");
        checkpoint.write(SHARD, &rows(MANY..ALL, Some(b"value"))).expect("a small one");
        // Flushes of another shard. Behind them fjall lets a merge drop hidden rows.
        for lsn in 1..20 {
            let mut end = FlushChunk::new(0, Lsn::ZERO);
            end.advances_to = Some(Lsn(lsn));
            checkpoint.write(ShardId(1), &end).expect("an LSN");
        }
        let deletions = rows(0..ALL, None);
        assert!(deletions.size_bytes() >= TABLE_BYTES);
        checkpoint.write(SHARD, &deletions).expect("a large one");
        // fjall does this by itself at some time.
        checkpoint.open.read().expect("unbroken").as_ref().expect("open").rows.major_compact().expect("merged");
        assert_eq!(count(&checkpoint), 0, "round {round}");
        drop(checkpoint);
        checkpoint = FjallCheckpoint::open(folder.path(), MIB).expect("opens");
        assert_eq!(count(&checkpoint), 0, "round {round}, after a restart");
    }
}

/// Each kind of chunk counts once, also over a restart, and another directory's checkpoint is told apart.
#[test]
fn chunks_are_counted_in_both_keyspaces_and_a_checkpoint_has_one_owner() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || FjallCheckpoint::open(folder.path(), MIB).expect("opens");
    let mut checkpoint = open();
    assert_eq!(checkpoint.mark(), Ok(0));
    for (written, bytes) in [(1, 8192), (2, TABLE_BYTES), (3, 4096), (4, 0)] {
        checkpoint.write(SHARD, &chunk(written, bytes)).expect("written");
        assert_eq!(checkpoint.mark(), Ok(written as u64));
        drop(checkpoint);
        checkpoint = open();
        assert_eq!(checkpoint.mark(), Ok(written as u64));
    }
    assert_eq!(checkpoint.belongs_to([1; 16]), Ok(true));
    drop(checkpoint);
    checkpoint = open();
    assert_eq!(checkpoint.belongs_to([1; 16]), Ok(true));
    assert_eq!(checkpoint.belongs_to([2; 16]), Ok(false));
}

#[test]
fn rows_that_are_older_than_the_positions_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = FjallCheckpoint::open(folder.path(), MIB).expect("opens");
    checkpoint.write(SHARD, &chunk(1, 8192)).expect("written");
    checkpoint
        .with(|open| {
            let mut batch = open.batch(1);
            batch.insert(&open.rows, NEWEST, 0u64.to_le_bytes());
            batch.commit()
        })
        .expect("put back");
    let error = checkpoint.mark().expect_err("one flush of the rows is missing");
    assert!(error.to_string().contains("checkpoint/"), "{error}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "these are the library's own files")]
fn a_file_of_the_library_that_is_missing_or_damaged_is_named() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        ("version", |path| std::fs::write(path, b"").expect("cut")),
        ("version", |path| std::fs::write(path, b"FJL\xff").expect("changed")),
        ("lock", |path| std::fs::remove_file(path).expect("removed")),
        ("keyspaces/1/tables", |path| std::fs::remove_dir_all(path).expect("removed")),
        ("keyspaces/2/tables", |path| std::fs::remove_dir_all(path).expect("removed")),
    ];
    for (name, damage) in damages {
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoint = FjallCheckpoint::open(folder.path(), MIB).expect("opens");
        checkpoint.write(SHARD, &chunk(1, TABLE_BYTES)).expect("written");
        let path = folder.path().join(name);
        let in_use = FjallCheckpoint::open(folder.path(), MIB).err().expect("it is open").to_string();
        assert!(in_use.contains("/lock"), "{in_use}");
        drop(checkpoint);
        assert!(path.exists(), "the library has other files now: {name}");
        damage(&path);
        let refused = FjallCheckpoint::open(folder.path(), MIB).err().unwrap_or_else(|| panic!("{name} is not missed"));
        assert!(refused.to_string().contains(path.to_str().expect("text")), "{name}: {refused}");
    }
}
