//! Stored messages. A decoded message means the same after it is encoded again.

use millrace_format::MessageRecord;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(message) = MessageRecord::decode(bytes) else { return };
    assert_eq!(MessageRecord::decode(&message.encode()), Ok(message));
}
