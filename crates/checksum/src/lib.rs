//! Checksums of bodies: of bytes as they come, of whole ones, and of a whole from those of its parts.
//!
//! Three callers need the same. The front checks what clients say. The node hashes bodies off the cores. The engine
//! makes the checksum of an object from those of its parts. Every value is in the order in which S3 writes it: high
//! bytes first. Must not know HTTP or where bytes come from.

use crc_fast::CrcAlgorithm;
use md5::{Digest as _, Md5};
use millrace_api::objects::{BodyDigests, Checksum, ChecksumAlgorithm, ChecksumKind};
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh64::Xxh64;

/// One algorithm under way.
enum State {
    Crc(CrcAlgorithm, crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
    /// The body's own MD5 is it.
    Md5,
    Xxhash64(Xxh64),
    Xxhash3(Box<Xxh3>),
    Xxhash128(Box<Xxh3>),
}

impl State {
    fn new(algorithm: ChecksumAlgorithm) -> Self {
        if let Some(crc) = crc_of(algorithm) {
            return Self::Crc(crc, crc_fast::Digest::new(crc));
        }
        match algorithm {
            ChecksumAlgorithm::Sha1 => Self::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
            ChecksumAlgorithm::Sha512 => Self::Sha512(Sha512::new()),
            ChecksumAlgorithm::Xxhash64 => Self::Xxhash64(Xxh64::new(0)),
            ChecksumAlgorithm::Xxhash3 => Self::Xxhash3(Box::new(Xxh3::new())),
            ChecksumAlgorithm::Xxhash128 => Self::Xxhash128(Box::new(Xxh3::new())),
            _ => Self::Md5,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
            Self::Sha512(digest) => digest.update(bytes),
            Self::Md5 => {}
            Self::Xxhash64(digest) => digest.update(bytes),
            Self::Xxhash3(digest) | Self::Xxhash128(digest) => digest.update(bytes),
        }
    }

    fn finish(self, md5: &[u8; 16]) -> Vec<u8> {
        match self {
            Self::Crc(algorithm, digest) => crc_bytes(algorithm, digest.finalize()),
            Self::Sha1(digest) => digest.finalize().to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
            Self::Sha512(digest) => digest.finalize().to_vec(),
            Self::Md5 => md5.to_vec(),
            Self::Xxhash64(digest) => digest.digest().to_be_bytes().to_vec(),
            Self::Xxhash3(digest) => digest.digest().to_be_bytes().to_vec(),
            Self::Xxhash128(digest) => digest.digest128().to_be_bytes().to_vec(),
        }
    }
}

fn crc_of(algorithm: ChecksumAlgorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        ChecksumAlgorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        ChecksumAlgorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        _ => None,
    }
}

fn crc_bytes(algorithm: CrcAlgorithm, value: u64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    // A CRC of 32 bits is the lower half.
    if algorithm == CrcAlgorithm::Crc64Nvme { bytes.to_vec() } else { bytes[4..].to_vec() }
}

fn crc_value(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// MD5, which is the ETag of an object of one part, and any other checksums, of bytes as they come.
pub struct Hasher {
    md5: Md5,
    others: Vec<(ChecksumAlgorithm, State)>,
}

impl Hasher {
    /// For these algorithms beside MD5. One that is named twice is taken once.
    #[must_use]
    pub fn new(algorithms: &[ChecksumAlgorithm]) -> Self {
        let mut others: Vec<(ChecksumAlgorithm, State)> = Vec::with_capacity(algorithms.len());
        for algorithm in algorithms {
            if others.iter().all(|(known, _)| known != algorithm) {
                others.push((*algorithm, State::new(*algorithm)));
            }
        }
        Self { md5: Md5::new(), others }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        for (_, state) in &mut self.others {
            state.update(bytes);
        }
    }

    /// The checksums of all of them, in the order in which they were named.
    #[must_use]
    pub fn finish(self) -> BodyDigests {
        let md5: [u8; 16] = self.md5.finalize().into();
        let checksum = |(algorithm, state): (ChecksumAlgorithm, State)| Checksum {
            algorithm,
            kind: ChecksumKind::FullObject,
            value: state.finish(&md5),
        };
        BodyDigests { checksums: self.others.into_iter().map(checksum).collect(), md5 }
    }
}

/// The checksum of bytes that are all there.
#[must_use]
pub fn checksum(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Vec<u8> {
    let mut hasher = Hasher::new(&[algorithm]);
    hasher.update(bytes);
    hasher.finish().checksums.pop().map(|checksum| checksum.value).unwrap_or_default()
}

/// The checksum of a whole, from those of its parts in order and their lengths. Only CRCs can be put together so: for
/// other algorithms it gives `None`. It also gives `None` if the length of a value is not that of its algorithm.
#[must_use]
pub fn combine(algorithm: ChecksumAlgorithm, parts: &[(&[u8], u64)]) -> Option<Vec<u8>> {
    let crc = crc_of(algorithm)?;
    let mut whole = crc_fast::checksum(crc, b"");
    for (value, length) in parts {
        if value.len() != length_bytes(algorithm) {
            return None;
        }
        // Nothing to shift by; the library need not be asked what it makes of it.
        if *length > 0 {
            whole = crc_fast::checksum_combine(crc, whole, crc_value(value), *length);
        }
    }
    Some(crc_bytes(crc, whole))
}

/// Bytes that a checksum of this algorithm has.
#[must_use]
pub fn length_bytes(algorithm: ChecksumAlgorithm) -> usize {
    match algorithm {
        ChecksumAlgorithm::Crc32 | ChecksumAlgorithm::Crc32c => 4,
        ChecksumAlgorithm::Crc64Nvme | ChecksumAlgorithm::Xxhash64 | ChecksumAlgorithm::Xxhash3 => 8,
        ChecksumAlgorithm::Md5 | ChecksumAlgorithm::Xxhash128 => 16,
        ChecksumAlgorithm::Sha1 => 20,
        ChecksumAlgorithm::Sha256 => 32,
        ChecksumAlgorithm::Sha512 => 64,
    }
}

#[cfg(test)]
mod tests {
    use millrace_base::hex;

    use super::*;

    const ALL: [ChecksumAlgorithm; 10] = [
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32c,
        ChecksumAlgorithm::Crc64Nvme,
        ChecksumAlgorithm::Sha1,
        ChecksumAlgorithm::Sha256,
        ChecksumAlgorithm::Sha512,
        ChecksumAlgorithm::Md5,
        ChecksumAlgorithm::Xxhash64,
        ChecksumAlgorithm::Xxhash3,
        ChecksumAlgorithm::Xxhash128,
    ];

    /// The check values that the algorithms' catalogues give for these nine digits.
    #[test]
    fn check_values() {
        let value = |algorithm| hex(&checksum(algorithm, b"123456789"));
        assert_eq!(value(ChecksumAlgorithm::Crc32), "cbf43926");
        assert_eq!(value(ChecksumAlgorithm::Crc32c), "e3069283");
        assert_eq!(value(ChecksumAlgorithm::Crc64Nvme), "ae8b14860a799888");
        assert_eq!(value(ChecksumAlgorithm::Md5), "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(value(ChecksumAlgorithm::Sha1), "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert_eq!(hex(&checksum(ChecksumAlgorithm::Xxhash64, b"")), "ef46db3751d8e999");
        assert_eq!(hex(&checksum(ChecksumAlgorithm::Xxhash3, b"")), "2d06800538d394c2");
        assert_eq!(hex(&checksum(ChecksumAlgorithm::Xxhash128, b"")), "99aa06d3014798d86001c324468d497f");
    }

    #[test]
    fn it_is_of_no_matter_in_which_pieces_bytes_come() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number * 7 % 251) as u8).collect();
        let mut hasher = Hasher::new(&ALL);
        bytes.chunks(777).for_each(|piece| hasher.update(piece));
        for taken in hasher.finish().checksums {
            assert_eq!(taken.value, checksum(taken.algorithm, &bytes), "{:?}", taken.algorithm);
            assert_eq!(taken.value.len(), length_bytes(taken.algorithm));
        }
    }

    #[test]
    fn crcs_of_parts_give_that_of_the_whole() {
        let bytes: Vec<u8> = (0..50_000_u32).map(|number| (number * 13 % 251) as u8).collect();
        for algorithm in ALL {
            let parts: Vec<(Vec<u8>, u64)> =
                bytes.chunks(12_345).map(|part| (checksum(algorithm, part), part.len() as u64)).collect();
            let parts: Vec<(&[u8], u64)> = parts.iter().map(|(value, length)| (&value[..], *length)).collect();
            let whole = combine(algorithm, &parts);
            match crc_of(algorithm) {
                Some(_) => assert_eq!(whole, Some(checksum(algorithm, &bytes))),
                None => assert_eq!(whole, None),
            }
        }
    }
}
