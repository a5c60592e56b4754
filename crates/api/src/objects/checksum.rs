//! Checksums of objects and parts.

use serde::{Deserialize, Serialize};

/// How a checksum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChecksumAlgorithm {
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME, the default.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// MD5, as a checksum of its own beside the ETag.
    Md5,
    /// XXH64 with seed 0.
    Xxhash64,
    /// XXH3 with 64 bits.
    Xxhash3,
    /// XXH3 with 128 bits.
    Xxhash128,
}

/// What the checksum of an object made of parts is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChecksumKind {
    /// Of the whole content.
    FullObject,
    /// Of the parts' checksums, one behind the other.
    Composite,
}

/// A checksum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checksum {
    /// How it was computed.
    pub algorithm: ChecksumAlgorithm,
    /// Of what. A part's is always of its whole content.
    pub kind: ChecksumKind,
    /// The bytes, not as text.
    pub value: Vec<u8>,
}
