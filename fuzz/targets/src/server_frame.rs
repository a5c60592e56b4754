//! What servers send to workers. A frame has one encoding.

use bytes::Bytes;
use millrace_format::worker::{FrameHeader, ServerFrame, WORKER_FRAME_HEADER_BYTES, set_stream};

pub(crate) fn run(bytes: &[u8]) {
    let mut rest = Bytes::copy_from_slice(bytes);
    while let Ok(Some(header)) = FrameHeader::read(&rest) {
        if header.frame_bytes() > rest.len() {
            break;
        }
        let whole = rest.split_to(header.frame_bytes());
        match ServerFrame::decode(header, whole.slice(WORKER_FRAME_HEADER_BYTES..)) {
            Ok(frame) => {
                let mut again = Vec::new();
                frame.encode(&mut again);
                set_stream(&mut again, 0, header.stream);
                assert_eq!(again, whole);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
