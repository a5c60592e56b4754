//! The frame around each entry of a batch: length and checksum.
//!
//! ```text
//! entry frame
//! offset  bytes  meaning
//!  0      4      CRC32C of bytes 4..8 + length, XOR the batch header's checksum
//!  4      4      body length
//!  8      …      body (see entry.rs)
//! ```
//!
//! While a batch is being filled, the checksum of its header is unknown: its number and its segment are settled when it
//! is written. So frames are made unbound (XOR 0), and bound in place just before the write. A bound frame is valid
//! only in its own batch. So stale bytes of another batch at the same place are not accepted.

use millrace_base::ShardId;

use crate::checksum::crc32c;
use crate::{Entry, ReplicaRecord};

/// Bytes before an entry's body.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Appends `entry` in an unbound frame.
///
/// # Panics
/// As [`Entry::encode`], and when the body is 4 GiB or longer.
pub fn encode_frame(entry: &Entry<'_>, out: &mut Vec<u8>) {
    frame_with(out, |out| entry.encode(out));
}

/// Appends an encoded entry in an unbound frame.
///
/// # Panics
/// When the body is 4 GiB or longer.
pub fn encode_body_frame(body: &[u8], out: &mut Vec<u8>) {
    frame_with(out, |out| out.extend_from_slice(body));
}

/// Appends a record of a replicated shard in an unbound frame.
///
/// # Panics
/// When the body is 4 GiB or longer.
pub fn encode_record_frame(shard: ShardId, record: &ReplicaRecord<'_>, out: &mut Vec<u8>) {
    frame_with(out, |out| record.encode(shard, out));
}

fn frame_with(out: &mut Vec<u8>, append_body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    append_body(out);
    let body_length = out.len() - start - FRAME_HEADER_BYTES;
    let length = u32::try_from(body_length).expect("limits keep entries below 4 GiB");
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// XORs `difference` into the checksum of every frame in `payload`. This binds unbound frames to a batch header's
/// checksum, or binds bound frames to another one.
pub fn bind_frames(payload: &mut [u8], difference: u32) {
    let mut rest = payload;
    while let Some((header, after)) = rest.split_first_chunk_mut::<FRAME_HEADER_BYTES>() {
        let (checksum, length) = split_header(header);
        header[..4].copy_from_slice(&(checksum ^ difference).to_le_bytes());
        rest = after.get_mut(length..).unwrap_or_default();
    }
}

/// The frame at the start of `payload`: its body, and whether its checksum is right under `binding`. `None` if the
/// payload is too short for the length that the frame says, so that its end is unknown.
#[must_use]
pub fn read_frame(payload: &[u8], binding: u32) -> Option<(&[u8], bool)> {
    let (header, after) = payload.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let (checksum, length) = split_header(header);
    let body = after.get(..length)?;
    let is_valid = crc32c(&payload[4..FRAME_HEADER_BYTES + length]) ^ binding == checksum;
    Some((body, is_valid))
}

fn split_header(header: &[u8; FRAME_HEADER_BYTES]) -> (u32, usize) {
    let [a, b, c, d, e, f, g, h] = *header;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntryRef, body_head};
    use millrace_base::{Lsn, UnixMillis};
    use proptest::prelude::*;

    fn entry(lsn: u64) -> Entry<'static> {
        Entry { shard: ShardId(2), lsn: Lsn(lsn), time: UnixMillis(4), writes: &[] }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let mut bytes = Vec::new();
        encode_frame(&entry(3), &mut bytes);
        let golden = b"\x18\0\0\0\x01\x00\x02\x00\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(&bytes[4..], golden);
        assert_eq!(bytes[..4], crc32c(golden).to_le_bytes());
        bind_frames(&mut bytes, 0x0102_0304);
        assert_eq!(bytes[..4], (crc32c(golden) ^ 0x0102_0304).to_le_bytes());
        let mut again = Vec::new();
        encode_body_frame(&golden[4..], &mut again);
        bind_frames(&mut again, 0x0102_0304);
        assert_eq!(again, bytes);
    }

    #[test]
    fn a_frame_is_valid_only_where_it_was_bound_and_whole() {
        let mut bytes = Vec::new();
        for lsn in 1..4 {
            encode_frame(&entry(lsn), &mut bytes);
        }
        bind_frames(&mut bytes, 7);
        let mut rest = &bytes[..];
        for lsn in 1..4 {
            let (body, is_valid) = read_frame(rest, 7).expect("a whole frame");
            assert!(is_valid);
            assert_eq!(read_frame(rest, 8), Some((body, false)));
            assert_eq!(body_head(body).map(|head| (head.shard, head.lsn)), Ok((ShardId(2), Lsn(lsn))));
            assert_eq!(EntryRef::decode(body).map(|entry| entry.lsn), Ok(Lsn(lsn)));
            for bit in 0..32 * 8 {
                let mut flipped = rest[..32].to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(!matches!(read_frame(&flipped, 7), Some((_, true))), "bit {bit}");
            }
            rest = &rest[FRAME_HEADER_BYTES + body.len()..];
        }
        assert_eq!(read_frame(rest, 7), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..100), binding in any::<u32>()) {
            let _ = read_frame(&bytes, binding);
            let _ = body_head(&bytes);
            bind_frames(&mut bytes.clone(), binding);
        }
    }
}
