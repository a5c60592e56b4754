//! The 12 bytes in front of each frame.

use millrace_base::limits;

use super::WorkerFrameError;

/// Bytes in front of a payload.
pub const WORKER_FRAME_HEADER_BYTES: usize = 12;

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// The type.
    pub kind: u8,
    /// Flags, which depend on the type.
    pub flags: u8,
    /// Which attempt of a connection.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the header at the beginning of `bytes`. `None`: it has not arrived as a whole.
    ///
    /// # Errors
    /// The payload is over the limit, or reserved bytes are set.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, WorkerFrameError> {
        let Some(header) = bytes.first_chunk::<WORKER_FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, kind, flags, reserved_0, reserved_1, e, f, g, h] = *header;
        let payload_bytes = u32::from_be_bytes([a, b, c, d]);
        if payload_bytes as usize > limits::WORKER_FRAME_BYTES {
            return Err(WorkerFrameError::TooLarge(payload_bytes));
        }
        if reserved_0 | reserved_1 != 0 {
            return Err(WorkerFrameError::Flags(reserved_0 | reserved_1));
        }
        Ok(Some(Self { payload_bytes, kind, flags, stream: u32::from_be_bytes([e, f, g, h]) }))
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        WORKER_FRAME_HEADER_BYTES + self.payload_bytes as usize
    }
}

/// Appends a frame whose payload `put` appends.
pub(super) fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind, flags, 0, 0, 0, 0, 0, 0]);
    put(out);
    let payload = out.len() - start - WORKER_FRAME_HEADER_BYTES;
    let payload = u32::try_from(payload).expect("limits keep frames below 4 GiB");
    out[start..start + 4].copy_from_slice(&payload.to_be_bytes());
}

/// Gives the frame that begins at `at` its stream.
pub fn set_stream(frames: &mut [u8], at: usize, stream: u32) {
    if let Some(field) = frames.get_mut(at + 8..at + WORKER_FRAME_HEADER_BYTES) {
        field.copy_from_slice(&stream.to_be_bytes());
    }
}
