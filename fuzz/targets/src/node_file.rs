//! A data directory's `node.json`. It is refused with a reason, or it is the same when written again.

use file::NodeFile;
use millrace_base::limits;

// The node needs threads and the store, but this file of it stands alone.
#[path = "../../../crates/node/src/node_file.rs"]
mod file;

pub(crate) fn run(bytes: &[u8]) {
    match NodeFile::parse(bytes) {
        Ok(node) => {
            assert!((1..=limits::SHARDS).contains(&node.shards));
            let written = node.to_json().expect("numbers and text");
            assert_eq!(NodeFile::parse(&written), Ok(node));
        }
        Err(why) => assert!(!why.is_empty()),
    }
}
