//! Stored messages: what decodes means the same after encoding it again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_format::MessageRecord;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = MessageRecord::decode(bytes) else { return };
    assert_eq!(MessageRecord::decode(&message.encode()), Ok(message));
});
