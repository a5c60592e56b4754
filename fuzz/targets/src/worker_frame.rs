//! What workers send: single frames, then a turn of them. A frame has one encoding; a turn is read to its end or refused.

use bytes::Bytes;
use millrace_format::worker::{FrameHeader, TurnReader, WORKER_FRAME_HEADER_BYTES, WorkerFrame, set_stream};

pub(crate) fn run(bytes: &[u8]) {
    let mut rest = Bytes::copy_from_slice(bytes);
    while let Ok(Some(header)) = FrameHeader::read(&rest) {
        if header.frame_bytes() > rest.len() {
            break;
        }
        let whole = rest.split_to(header.frame_bytes());
        match WorkerFrame::decode(header, whole.slice(WORKER_FRAME_HEADER_BYTES..)) {
            Ok(frame) => {
                let mut again = Vec::new();
                frame.encode(&mut again);
                set_stream(&mut again, 0, header.stream);
                assert_eq!(again, whole);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let mut turn = TurnReader::new(Bytes::copy_from_slice(bytes));
    let mut frames = 0;
    let ended = loop {
        match turn.next_frame() {
            Ok(Some(_)) => frames += 1,
            Ok(None) => break true,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break false;
            }
        }
    };
    assert!(turn.frames() <= frames);
    assert!(!ended || frames > 0, "a turn without a frame has no end");
}
