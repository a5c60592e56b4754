//! Log entries. A decoded entry lies within its bytes, and encodes to the same bytes again.

use millrace_format::{BodyHead, BodyKind, Entry, EntryRef, Write, body_head};

pub(crate) fn run(bytes: &[u8]) {
    let head = body_head(bytes);
    let Ok(entry) = EntryRef::decode(bytes) else { return };
    assert_eq!(head, Ok(BodyHead { shard: entry.shard, kind: BodyKind::WriteSet, lsn: entry.lsn }));
    let writes: Option<Vec<Write>> = entry.writes.iter().map(|write| write.to_write()).collect();
    if let Some(writes) = writes {
        let mut again = Vec::new();
        Entry { shard: entry.shard, lsn: entry.lsn, time: entry.time, writes: &writes }.encode(&mut again);
        assert_eq!(again, bytes);
    }
}
