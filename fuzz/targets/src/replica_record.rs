//! Records of replicated shards in the log. A decoded record encodes to the same bytes again, and its head says the same.

use millrace_base::Lsn;
use millrace_format::{BodyHead, BodyKind, ReplicaRecord, body_head};

pub(crate) fn run(bytes: &[u8]) {
    let head = body_head(bytes);
    let (shard, record) = match ReplicaRecord::decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let (kind, lsn) = match record {
        ReplicaRecord::Entry { lsn, .. } => (BodyKind::ReplicaEntry, lsn),
        ReplicaRecord::Base { base_lsn, .. } => (BodyKind::ReplicaBase, base_lsn),
        _ => (BodyKind::ReplicaState, Lsn::ZERO),
    };
    assert_eq!(head, Ok(BodyHead { shard, kind, lsn }));
    let mut again = Vec::new();
    record.encode(shard, &mut again);
    assert_eq!(again, bytes);
}
