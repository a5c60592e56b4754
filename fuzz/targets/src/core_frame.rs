//! Frames between cores. What decodes means the same after encoding it again.

use millrace_driver::Frame;

pub(crate) fn run(bytes: &[u8]) {
    match Frame::decode(bytes) {
        Ok(frame) => {
            let encoded = frame.encode();
            let again = Frame::decode(&encoded).expect("what was encoded decodes");
            assert_eq!(again.encode(), encoded);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
