//! What a look at any bytes promises, for fuzzing.

use std::io;

use crate::archive;
use crate::snapshot::Snapshot;

/// Reads the bytes as a snapshot and as an archive. They are refused with a reason; or a snapshot is the same when written
/// again, and an archive's files are those of its list.
///
/// # Panics
/// If a reader breaks its promise.
#[doc(hidden)]
pub fn check_bytes(bytes: &[u8]) {
    match Snapshot::decode(bytes) {
        Ok(snapshot) => {
            let written = snapshot.encode().expect("numbers and texts are always JSON");
            assert_eq!(Snapshot::decode(&written), Ok(snapshot));
        }
        Err(why) => assert!(!why.is_empty()),
    }
    let mut sum = 0;
    let received = archive::read(bytes, &mut |path, length, content| {
        assert!(archive::is_path(path), "{path:?}");
        let read = io::copy(content, &mut io::sink()).unwrap_or_default();
        assert!(read <= length, "{path} has more bytes than it says");
        sum += read;
        Ok(())
    });
    match received {
        Ok(received) => assert!(received.folders.iter().all(|path| archive::is_path(path))),
        Err(why) => assert!(!why.to_string().is_empty()),
    }
    assert!(sum <= bytes.len() as u64, "no file has bytes that did not come");
}
