//! What replicas say to each other. Each message has one encoding.

use bytes::Bytes;
use millrace_replica::Message;

pub(crate) fn run(bytes: &[u8]) {
    match Message::decode(&Bytes::copy_from_slice(bytes)) {
        Ok((shard, message)) => {
            let mut encoded = Vec::new();
            message.encode(shard, &mut encoded);
            assert_eq!(encoded, bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
