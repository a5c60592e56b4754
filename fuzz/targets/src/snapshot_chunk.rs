//! Chunks of a shard's snapshot. A chunk is refused as a whole, or an export of what it brought is the same chunk.

use std::sync::Arc;

use millrace_base::{Lsn, ShardId};
use millrace_store::{Checkpoint, Export, Import, MemoryCheckpoint, StoreError};

const SHARD: ShardId = ShardId(3);

pub(crate) fn run(bytes: &[u8]) {
    let checkpoint: Arc<dyn Checkpoint> = Arc::new(MemoryCheckpoint::new());
    let mut import = Import::begin(Arc::clone(&checkpoint), SHARD).expect("memory does not fail");
    let added = import.add(bytes);
    import.finish(Lsn(1), b"").expect("memory does not fail");
    let chunk = Export::begin(checkpoint, SHARD).and_then(|mut export| export.next_chunk(usize::MAX));
    let chunk = chunk.expect("memory does not fail");
    match added {
        Ok(()) => assert_eq!(chunk.as_deref().unwrap_or(&[1]), bytes),
        Err(error) => {
            assert!(matches!(error, StoreError::Corrupt(_)));
            assert_eq!(chunk, None);
        }
    }
}
