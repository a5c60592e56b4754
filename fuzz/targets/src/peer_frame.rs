//! What nodes send each other over a link: hellos and frames. Each has one encoding.

use millrace_peers::{Frame, HELLO_BYTES, Hello};

pub(crate) fn run(bytes: &[u8]) {
    if let Some(first) = bytes.first_chunk::<HELLO_BYTES>()
        && let Some(hello) = Hello::decode(first)
    {
        assert_eq!(&hello.encode(), first);
    }
    let mut rest = bytes;
    loop {
        match Frame::decode(rest) {
            Ok(Some((frame, length))) => {
                let mut encoded = Vec::new();
                frame.encode(&mut encoded);
                assert_eq!(encoded, &rest[..length]);
                rest = &rest[length..];
            }
            Ok(None) => return,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return;
            }
        }
    }
}
