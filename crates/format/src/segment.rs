//! The heads of a log segment and of a batch in it.
//!
//! A segment is a file: one block with its header, then batches. Each batch starts on a block boundary, so that writing
//! one never touches a block that holds another. Behind the last batch are zeros or, in a recycled file, the bytes of
//! an earlier segment.
//!
//! ```text
//! segment header (version 1), at offset 0
//! offset  bytes  meaning
//!  0      8      magic "MILLRLOG"
//!  8      4      format version = 1
//! 12      4      flags = 0
//! 16      8      stream
//! 24      8      run: the stream number of the first stream that the same start of the node made
//! 32      8      segment number, from 1 in each stream
//! 40      8      segment size in bytes, header included, as allocated
//! 48      8      salt, random
//! 56      4      0
//! 60      4      CRC32C of bytes 0..60
//!
//! batch header, at a multiple of 4096
//! offset  bytes  meaning
//!  0      4      magic "MBAT"
//!  4      4      flags: bit 0 = closing, bit 1 = some 512 bytes are zeros, bit 2 = closed in doubt
//!  8      8      stream
//! 16      8      segment number
//! 24      8      the segment's salt
//! 32      8      batch number, from 1 in each stream, without gaps
//! 40      8      every batch up to this number was durable before this one was written
//! 48      8      payload bytes
//! 56      4      number of entries in the payload
//! 60      4      CRC32C of bytes 0..60
//! ```
//!
//! All numbers are little-endian.

use std::fmt;

use crate::checksum::crc32c;

/// Every batch starts at a multiple of this. So a write of a batch never rewrites a sector or a page that holds another
/// batch.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes of an encoded [`SegmentHeader`].
pub const SEGMENT_HEADER_BYTES: usize = 64;

/// Bytes of an encoded [`BatchHeader`].
pub const BATCH_HEADER_BYTES: usize = 64;

const SEGMENT_MAGIC: [u8; 8] = *b"MILLRLOG";
const BATCH_MAGIC: [u8; 4] = *b"MBAT";
const SEGMENT_VERSION: u32 = 1;
const FLAG_CLOSING: u32 = 1;
const FLAG_ZEROS: u32 = 2;
const FLAG_DOUBT: u32 = 4;
const CHECKSUM_AT: usize = 60;

/// The header of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The stream it belongs to.
    pub stream: u64,
    /// The start of the node that made it, named by the number of the first stream that this start made.
    pub run: u64,
    /// Its position in the stream, from 1.
    pub number: u64,
    /// The file's size as allocated.
    pub segment_bytes: u64,
    /// Random, and repeated in every batch. So bytes that a user had stored, or that an earlier segment left, are never
    /// taken for a batch.
    pub salt: u64,
}

/// Why bytes are not a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentHeaderError {
    /// Too short, another magic or a wrong checksum.
    Unreadable,
    /// Intact, but with a version or flags that this build does not know.
    Version(u32),
}

impl fmt::Display for SegmentHeaderError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentHeaderError::Unreadable => formatter.write_str("the segment's header is damaged"),
            SegmentHeaderError::Version(version) => {
                write!(formatter, "segment format version {version} is not known to this build")
            }
        }
    }
}

impl std::error::Error for SegmentHeaderError {}

impl SegmentHeader {
    /// The encoded header.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        put_u64s(&mut bytes[16..56], &[self.stream, self.run, self.number, self.segment_bytes, self.salt]);
        let checksum = crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header at the start of a segment file.
    ///
    /// # Errors
    /// [`SegmentHeaderError`] if the bytes are not a header that this build knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, SegmentHeaderError> {
        let bytes = checked(bytes).ok_or(SegmentHeaderError::Unreadable)?;
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(SegmentHeaderError::Unreadable);
        }
        let version = u32_at(bytes, 8);
        if version != SEGMENT_VERSION || u32_at(bytes, 12) != 0 {
            return Err(SegmentHeaderError::Version(version));
        }
        Ok(Self {
            stream: u64_at(bytes, 16),
            run: u64_at(bytes, 24),
            number: u64_at(bytes, 32),
            segment_bytes: u64_at(bytes, 40),
            salt: u64_at(bytes, 48),
        })
    }
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The stream it belongs to.
    pub stream: u64,
    /// The segment it belongs to.
    pub segment: u64,
    /// The segment's salt.
    pub salt: u64,
    /// Its position in the stream, from 1.
    pub number: u64,
    /// Every batch up to this number was durable before this one was written.
    pub synced: u64,
    /// Bytes of the entries that follow.
    pub payload_bytes: u64,
    /// How many entries follow.
    pub entry_count: u32,
    /// The last batch of its stream: nothing was written after it.
    pub is_closing: bool,
    /// Some sector that the batch fills is all zeros, or may be. Without this mark a sector of zeros was never written.
    /// Only batches of replicated shards tell.
    pub has_zeros: bool,
    /// Only of a closing batch of replicated shards: an acknowledged batch may have stood here.
    pub is_doubtful: bool,
}

impl BatchHeader {
    /// The encoded header, and its checksum, which binds the entries to it.
    #[must_use]
    pub fn encode(&self) -> ([u8; BATCH_HEADER_BYTES], u32) {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[..4].copy_from_slice(&BATCH_MAGIC);
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags =
            flag(self.is_closing, FLAG_CLOSING) | flag(self.has_zeros, FLAG_ZEROS) | flag(self.is_doubtful, FLAG_DOUBT);
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        let numbers = [self.stream, self.segment, self.salt, self.number, self.synced, self.payload_bytes];
        put_u64s(&mut bytes[8..56], &numbers);
        bytes[56..60].copy_from_slice(&self.entry_count.to_le_bytes());
        let checksum = crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        (bytes, checksum)
    }

    /// Reads a header and its checksum. `None` if the bytes are not an intact batch header, which holds for most
    /// blocks.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        if !bytes.starts_with(&BATCH_MAGIC) {
            return None;
        }
        let bytes = checked(bytes)?;
        let flags = u32_at(bytes, 4);
        if flags & !(FLAG_CLOSING | FLAG_ZEROS | FLAG_DOUBT) != 0 {
            return None;
        }
        let header = Self {
            stream: u64_at(bytes, 8),
            segment: u64_at(bytes, 16),
            salt: u64_at(bytes, 24),
            number: u64_at(bytes, 32),
            synced: u64_at(bytes, 40),
            payload_bytes: u64_at(bytes, 48),
            entry_count: u32_at(bytes, 56),
            is_closing: flags & FLAG_CLOSING != 0,
            has_zeros: flags & FLAG_ZEROS != 0,
            is_doubtful: flags & FLAG_DOUBT != 0,
        };
        Some((header, u32_at(bytes, CHECKSUM_AT)))
    }

    /// Bytes that the batch takes in the file: header and payload, rounded up to whole blocks. `None` if no file can be
    /// that long.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        self.payload_bytes.checked_add(BATCH_HEADER_BYTES as u64)?.checked_next_multiple_of(BLOCK_BYTES as u64)
    }
}

/// The 64 bytes of a header, if the checksum at its end is right.
fn checked(bytes: &[u8]) -> Option<&[u8; 64]> {
    let bytes: &[u8; 64] = bytes.get(..64)?.try_into().ok()?;
    (u32_at(bytes, CHECKSUM_AT) == crc32c(&bytes[..CHECKSUM_AT])).then_some(bytes)
}

fn put_u64s(bytes: &mut [u8], numbers: &[u64]) {
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

fn u64_at(bytes: &[u8; 64], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn u32_at(bytes: &[u8; 64], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEGMENT: SegmentHeader = SegmentHeader { stream: 1, run: 2, number: 3, segment_bytes: 4, salt: 5 };
    const BATCH: BatchHeader = BatchHeader {
        stream: 1,
        segment: 2,
        salt: 3,
        number: 4,
        synced: 5,
        payload_bytes: 6,
        entry_count: 7,
        is_closing: true,
        has_zeros: false,
        is_doubtful: false,
    };

    #[test]
    fn the_formats_are_the_documented_ones() {
        let golden = b"MILLRLOG\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
            \x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0";
        let bytes = SEGMENT.encode();
        assert_eq!(&bytes[..60], golden);
        assert_eq!(bytes[60..], crc32c(golden).to_le_bytes());
        let golden = b"MBAT\x01\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
            \x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0";
        let (bytes, checksum) = BATCH.encode();
        assert_eq!(&bytes[..60], golden);
        assert_eq!((bytes[60..].to_vec(), checksum), (checksum.to_le_bytes().to_vec(), crc32c(golden)));
        assert_eq!(BatchHeader { has_zeros: true, ..BATCH }.encode().0[4], 3);
        assert_eq!(BatchHeader { is_doubtful: true, ..BATCH }.encode().0[4], 5);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed() {
        assert_eq!(SegmentHeader::decode(&SEGMENT.encode()), Ok(SEGMENT));
        assert_eq!(BatchHeader::decode(&BATCH.encode().0), Some(BATCH.encode()).map(|(_, checksum)| (BATCH, checksum)));
        for bit in 0..64 * 8 {
            let mut segment = SEGMENT.encode();
            segment[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&segment), Err(SegmentHeaderError::Unreadable));
            let mut batch = BATCH.encode().0;
            batch[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&batch), None);
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = SEGMENT.encode();
        bytes[8] = 9;
        let checksum = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentHeaderError::Version(9)));
    }

    proptest! {
        #[test]
        fn headers_round_trip(numbers in any::<[u64; 6]>(), entry_count in any::<u32>(), flags in any::<[bool; 3]>()) {
            let [stream, segment, salt, number, synced, payload_bytes] = numbers;
            let [is_closing, has_zeros, is_doubtful] = flags;
            let batch = BatchHeader {
                stream, segment, salt, number, synced, payload_bytes, entry_count, is_closing, has_zeros, is_doubtful,
            };
            let (bytes, checksum) = batch.encode();
            prop_assert_eq!(BatchHeader::decode(&bytes), Some((batch, checksum)));
            let _ = batch.total_bytes();
            let header = SegmentHeader { stream, run: segment, number, segment_bytes: payload_bytes, salt };
            prop_assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = SegmentHeader::decode(&bytes);
            let _ = BatchHeader::decode(&bytes);
        }
    }
}
