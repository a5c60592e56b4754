//! Whatever bytes the disk gives, nothing panics, and what is taken is what would be written.

use crate::common::*;
use millrace_blobs::check_bytes;
use proptest::prelude::*;

/// Files as a store writes them: segments, an index, bodies with files of their own.
fn files() -> Vec<Vec<u8>> {
    let disk = MemoryDisk::default();
    let (bodies, _) = open(&disk);
    for (seed, length) in [10, 0, 300, 4_000].into_iter().enumerate() {
        put(&bodies, 0, b"owner", &content(seed as u64, length)).expect("a body");
    }
    bodies.close().expect("closed");
    disk.contents().into_values().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_bytes(&bytes);
    }

    #[test]
    fn files_with_changed_bytes_are_refused_or_read(
        file in any::<usize>(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in any::<usize>(),
        is_cut in any::<bool>(),
    ) {
        let files = files();
        let mut bytes = files[file % files.len()].clone();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut % bytes.len());
        }
        check_bytes(&bytes);
        for from in [0, 64, 100] {
            check_bytes(bytes.get(from..).unwrap_or_default());
        }
    }
}
