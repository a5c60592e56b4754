//! The frames of a batch's payload. The first four bytes are the binding. If the fifth byte is odd, the checksum is
//! made right, so that the code behind it is reached.

use millrace_format::{FRAME_HEADER_BYTES, bind_frames, crc32c, read_frame};

pub(crate) fn run(bytes: &[u8]) {
    let Some((binding, rest)) = bytes.split_first_chunk::<4>() else { return };
    let Some((fix, payload)) = rest.split_first() else { return };
    let binding = u32::from_le_bytes(*binding);
    let mut payload = payload.to_vec();
    if let (true, Some((body, _))) = (fix % 2 == 1, read_frame(&payload, binding)) {
        let checksum = crc32c(&payload[4..FRAME_HEADER_BYTES + body.len()]) ^ binding;
        payload[..4].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(read_frame(&payload, binding), Some((_, true))));
    }
    let mut rest = &payload[..];
    while let Some((body, _)) = read_frame(rest, binding) {
        rest = &rest[FRAME_HEADER_BYTES + body.len()..];
    }
    // Binding to another header and back changes nothing.
    let before = payload.clone();
    bind_frames(&mut payload, binding);
    bind_frames(&mut payload, binding);
    assert_eq!(payload, before);
}
