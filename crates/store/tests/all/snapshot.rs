//! A snapshot that is taken while the node goes on, with the entries after it, makes the same store elsewhere. An import
//! that breaks off is noticed.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use millrace_base::{EntityKey, Lsn, ShardId, UnixMillis, Value, ValueKind};
use millrace_format::Write;
use millrace_store::{Checkpoint, Export, FjallCheckpoint, Import, ImportState, MemoryCheckpoint, Store, StoreError};

const SHARD: ShardId = ShardId(3);
const CHUNK_BYTES: usize = 2000;

fn write(entity: u64, content: u64) -> Write {
    let value = (!content.is_multiple_of(7)).then(|| Value::new(ValueKind::Bytes, &content.to_le_bytes().repeat(20)));
    Write { entity: EntityKey::internal("test", &entity.to_be_bytes()), field: (*b"f").into(), value }
}

/// The writes of an entry.
fn writes(lsn: u64) -> [Write; 2] {
    [write(lsn % 50, lsn), write(lsn % 13, lsn + 1)]
}

fn apply(store: &mut Store, up_to: u64) {
    for lsn in store.lsn().0 + 1..=up_to {
        store.apply(Lsn(lsn), writes(lsn)).expect("applied");
    }
}

fn flush(store: &mut Store, checkpoint: &dyn Checkpoint) {
    store.begin_flush();
    while let Some(chunk) = store.next_flush_chunk(1000) {
        checkpoint.write(SHARD, &chunk).expect("written");
        store.confirm_flush_chunk(&chunk);
    }
}

fn rows(checkpoint: &dyn Checkpoint) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        rows.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    checkpoint.scan(Bound::Included(&[0, 3]), Bound::Excluded(&[0, 4]), visit).expect("read");
    rows
}

fn kinds() -> Vec<(Arc<dyn Checkpoint>, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().expect("a folder");
    let fjall = FjallCheckpoint::open(folder.path(), 1 << 20).expect("opens");
    vec![(Arc::new(MemoryCheckpoint::new()), None), (Arc::new(fjall), Some(folder))]
}

#[test]
fn a_snapshot_and_the_entries_after_it_make_the_same_store() {
    for ((source, _source_folder), (target, _target_folder)) in kinds().into_iter().zip(kinds().into_iter().rev()) {
        let mut store = Store::open(SHARD, Arc::clone(&source), 1).expect("opens");
        apply(&mut store, 100);
        flush(&mut store, &*source);
        // What the target had before is gone, and that of other shards is not.
        for shard in [SHARD, ShardId(2), ShardId(4)] {
            let mut other = Store::open(shard, Arc::clone(&target), 1).expect("opens");
            other.apply(Lsn(1), [write(999, 1)]).expect("applied");
            other.begin_flush();
            let chunk = other.next_flush_chunk(1000).expect("a chunk");
            target.write(shard, &chunk).expect("written");
        }
        let mut export = Export::begin(Arc::clone(&source), SHARD).expect("begins");
        assert_eq!(export.lsn(), Lsn(100));
        let mut import = Import::begin(Arc::clone(&target), SHARD).expect("begins");
        assert_eq!(rows(&*target).len(), 0);
        let mut chunks = 0;
        while let Some(chunk) = export.next_chunk(CHUNK_BYTES).expect("read") {
            assert!(chunk.len() <= CHUNK_BYTES);
            import.add(&chunk).expect("written");
            import.add(&chunk).expect("written twice");
            chunks += 1;
            // The source goes on.
            apply(&mut store, 100 + chunks * 10);
            flush(&mut store, &*source);
        }
        assert!(chunks > 3, "{chunks} chunks");
        import.finish(export.lsn(), b"note").expect("ends");
        let mut copy = Store::open(SHARD, Arc::clone(&target), 2).expect("opens");
        assert_eq!(copy.lsn(), Lsn(100));
        let last = store.lsn().0;
        apply(&mut copy, last);
        flush(&mut copy, &*target);
        assert_eq!(rows(&*target), rows(&*source));
        assert_eq!(target.lsn(ShardId(2)).expect("read"), Lsn(1));
        assert_eq!(target.lsn(ShardId(4)).expect("read"), Lsn(1));
        let state = target.import_state(SHARD).expect("read");
        assert_eq!(state, ImportState { is_resetting: false, snapshot: Some(b"note".to_vec()) });
    }
}

#[test]
fn the_time_of_the_last_entry_outlives_the_log_and_goes_along_with_a_snapshot() {
    for ((source, _folder), (target, _other)) in kinds().into_iter().zip(kinds()) {
        let open = |checkpoint: &Arc<dyn Checkpoint>| Store::open(SHARD, Arc::clone(checkpoint), 1).expect("opens");
        let mut store = open(&source);
        assert_eq!(store.time(), UnixMillis(0));
        apply(&mut store, 30);
        store.note_time(UnixMillis(7_000));
        store.note_time(UnixMillis(6_000));
        flush(&mut store, &*source);
        let mut store = open(&source);
        assert_eq!((store.lsn(), store.time()), (Lsn(30), UnixMillis(7_000)));
        // A flush without rows to write keeps it.
        store.apply(Lsn(31), []).expect("applied");
        flush(&mut store, &*source);
        assert_eq!((open(&source).lsn(), open(&source).time()), (Lsn(31), UnixMillis(7_000)));

        let mut export = Export::begin(Arc::clone(&source), SHARD).expect("begins");
        let mut import = Import::begin(Arc::clone(&target), SHARD).expect("begins");
        while let Some(chunk) = export.next_chunk(CHUNK_BYTES).expect("read") {
            import.add(&chunk).expect("written");
        }
        import.finish(export.lsn(), b"note").expect("ends");
        assert_eq!(open(&target).time(), UnixMillis(7_000));
        assert_eq!(Import::empty(&target, SHARD, 1).expect("emptied").time(), UnixMillis(0));
    }
}

#[test]
fn a_row_before_that_of_the_time_is_found_again() {
    for (checkpoint, _folder) in kinds() {
        let entity = EntityKey::internal("app", b"k");
        let mut store = Store::open(SHARD, Arc::clone(&checkpoint), 1).expect("opens");
        let value = Value::new(ValueKind::Bytes, b"v");
        let write = Write { entity: entity.clone(), field: (*b"f").into(), value: Some(value.clone()) };
        store.apply(Lsn(1), [write]).expect("applied");
        store.note_time(UnixMillis(7_000));
        flush(&mut store, &*checkpoint);
        let mut store = Store::open(SHARD, Arc::clone(&checkpoint), 1).expect("opens");
        assert_eq!(store.get(&entity, b"f").expect("read"), Some(&value));
    }
}

#[test]
fn an_import_that_breaks_off_is_noticed_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || -> Arc<dyn Checkpoint> { Arc::new(FjallCheckpoint::open(folder.path(), 1 << 20).expect("opens")) };
    let checkpoint = open();
    let mut store = Store::open(SHARD, Arc::clone(&checkpoint), 1).expect("opens");
    apply(&mut store, 30);
    flush(&mut store, &*checkpoint);
    drop(store);
    let chunk = Export::begin(Arc::clone(&checkpoint), SHARD).expect("begins").next_chunk(CHUNK_BYTES);
    let chunk = chunk.expect("read").expect("rows");
    Import::begin(Arc::clone(&checkpoint), SHARD).expect("begins").add(&chunk).expect("written");
    drop(checkpoint);
    let checkpoint = open();
    assert!(checkpoint.import_state(SHARD).expect("read").is_resetting);
    for refused in [
        Store::open(SHARD, Arc::clone(&checkpoint), 1).map(|_| ()),
        Export::begin(Arc::clone(&checkpoint), SHARD).map(|_| ()),
    ] {
        assert!(matches!(&refused, Err(StoreError::Corrupt(what)) if what.contains("shard 3")), "{refused:?}");
    }
    // Begun anew with nothing, the shard is empty.
    Import::begin(Arc::clone(&checkpoint), SHARD).expect("begins").finish(Lsn::ZERO, b"").expect("ends");
    assert_eq!(Store::open(SHARD, Arc::clone(&checkpoint), 1).expect("opens").lsn(), Lsn::ZERO);
    assert!(rows(&*checkpoint).is_empty());
}

#[test]
fn what_is_not_a_chunk_is_refused_and_a_chunk_has_the_documented_bytes() {
    let checkpoint: Arc<dyn Checkpoint> = Arc::new(MemoryCheckpoint::new());
    let golden = b"\x01\x02\0\0\0\x03\0\0\0kkabc\x01\0\0\0\x01\0\0\0zv";
    let mut import = Import::begin(Arc::clone(&checkpoint), SHARD).expect("begins");
    for refused in [&b""[..], b"\x02", &golden[..20], &golden[..8], b"\x01\x01\0\0\0\0\0\0\0k"] {
        assert!(matches!(import.add(refused), Err(StoreError::Corrupt(_))), "{refused:?}");
    }
    let row = |key: &[u8]| [&(key.len() as u32).to_le_bytes()[..], b"\x01\0\0\0", key, b"v"].concat();
    for keys in [[&b"b"[..], b"a"], [b"a", b"a"], [b"", b"a"], [b"a", &[b'b'; 65_534]]] {
        let chunk = [&b"\x01"[..], &row(keys[0]), &row(keys[1])].concat();
        assert!(matches!(import.add(&chunk), Err(StoreError::Corrupt(_))), "{} bytes", chunk.len());
    }
    assert!(rows(&*checkpoint).is_empty(), "nothing of it is written");
    import.add(golden).expect("a chunk");
    import.finish(Lsn(5), b"").expect("ends");
    let mut export = Export::begin(Arc::clone(&checkpoint), SHARD).expect("begins");
    assert_eq!(export.next_chunk(100).expect("read").as_deref(), Some(&golden[..]));
    assert_eq!(export.next_chunk(100).expect("read"), None);
}

#[test]
fn a_shard_that_was_emptied_begins_at_its_first_entry() {
    for ((target, _folder), (whole, _whole_folder)) in kinds().into_iter().zip(kinds()) {
        let mut store = Store::open(SHARD, Arc::clone(&target), 1).expect("opens");
        apply(&mut store, 30);
        flush(&mut store, &*target);
        let mut emptied = Import::empty(&target, SHARD, 1).expect("emptied");
        assert_eq!((emptied.lsn(), target.lsn(SHARD).expect("read"), rows(&*target).len()), (Lsn::ZERO, Lsn::ZERO, 0));
        assert!(Store::open(SHARD, Arc::clone(&target), 1).is_err(), "a start empties it again");
        apply(&mut emptied, 40);
        flush(&mut emptied, &*target);
        Import::end_empty(&*target, SHARD).expect("ended");
        let mut store = Store::open(SHARD, Arc::clone(&whole), 1).expect("opens");
        apply(&mut store, 40);
        flush(&mut store, &*whole);
        assert_eq!(Store::open(SHARD, Arc::clone(&target), 1).expect("opens").lsn(), Lsn(40));
        assert_eq!(rows(&*target), rows(&*whole));
    }
}
