//! The checksum of an object from those of its parts.

use super::algorithm::ChecksumAlgorithm;
use super::hasher::digest;

/// The checksum of the parts' checksums, one behind the other.
#[must_use]
pub fn composite(algorithm: ChecksumAlgorithm, parts: &[&[u8]]) -> Vec<u8> {
    digest(algorithm, &parts.concat())
}

/// The checksum of the whole content, from each part's checksum and size in bytes.
///
/// `None` if the algorithm cannot combine (only CRCs can), or if a value is not as long as one of its algorithm.
#[must_use]
pub fn full_object(algorithm: ChecksumAlgorithm, parts: &[(&[u8], u64)]) -> Option<Vec<u8>> {
    use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc32IsoHdlc, Crc64Nvme};
    let crc = match algorithm {
        ChecksumAlgorithm::Crc32 => Crc32IsoHdlc,
        ChecksumAlgorithm::Crc32c => Crc32Iscsi,
        ChecksumAlgorithm::Crc64Nvme => Crc64Nvme,
        _ => return None,
    };
    let value_bytes = algorithm.value_bytes();
    let mut combined = crc_fast::checksum(crc, b"");
    for (value, size_bytes) in parts {
        if value.len() != value_bytes {
            return None;
        }
        let number = value.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        // Nothing to shift by; the library need not be asked what it makes of it.
        if *size_bytes > 0 {
            combined = crc_fast::checksum_combine(crc, combined, number, *size_bytes);
        }
    }
    Some(combined.to_be_bytes()[8 - value_bytes..].to_vec())
}
