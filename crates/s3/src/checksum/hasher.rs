//! Checksums of a body, computed as its bytes come.

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use xxhash_rust::xxh3::Xxh3Default;
use xxhash_rust::xxh64::Xxh64;

use super::algorithm::{ChecksumAlgorithm, ChecksumSet};

/// Computes a chosen set of checksums side by side.
pub struct Hasher(Vec<(ChecksumAlgorithm, State)>);

enum State {
    Crc(crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
    // Its state is larger than all others'.
    Sha512(Box<Sha512>),
    Md5(Md5),
    Xxhash64(Xxh64),
    Xxhash3(Box<Xxh3Default>),
}

impl State {
    fn new(algorithm: ChecksumAlgorithm) -> Self {
        use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc32IsoHdlc, Crc64Nvme};
        match algorithm {
            ChecksumAlgorithm::Crc32 => Self::Crc(crc_fast::Digest::new(Crc32IsoHdlc)),
            ChecksumAlgorithm::Crc32c => Self::Crc(crc_fast::Digest::new(Crc32Iscsi)),
            ChecksumAlgorithm::Crc64Nvme => Self::Crc(crc_fast::Digest::new(Crc64Nvme)),
            ChecksumAlgorithm::Sha1 => Self::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
            ChecksumAlgorithm::Sha512 => Self::Sha512(Box::new(Sha512::new())),
            ChecksumAlgorithm::Md5 => Self::Md5(Md5::new()),
            ChecksumAlgorithm::Xxhash64 => Self::Xxhash64(Xxh64::new(0)),
            ChecksumAlgorithm::Xxhash3 | ChecksumAlgorithm::Xxhash128 => Self::Xxhash3(Box::new(Xxh3Default::new())),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(state) => state.update(bytes),
            Self::Sha1(state) => state.update(bytes),
            Self::Sha256(state) => state.update(bytes),
            Self::Sha512(state) => state.update(bytes),
            Self::Md5(state) => state.update(bytes),
            Self::Xxhash64(state) => state.update(bytes),
            Self::Xxhash3(state) => state.update(bytes),
        }
    }

    fn finish(self, algorithm: ChecksumAlgorithm) -> Vec<u8> {
        match self {
            // The library gives 32 bits in the low half of 64.
            Self::Crc(state) => state.finalize().to_be_bytes()[8 - algorithm.value_bytes()..].to_vec(),
            Self::Sha1(state) => state.finalize().to_vec(),
            Self::Sha256(state) => state.finalize().to_vec(),
            Self::Sha512(state) => state.finalize().to_vec(),
            Self::Md5(state) => state.finalize().to_vec(),
            Self::Xxhash64(state) => state.digest().to_be_bytes().to_vec(),
            Self::Xxhash3(state) if algorithm == ChecksumAlgorithm::Xxhash128 => {
                state.digest128().to_be_bytes().to_vec()
            }
            Self::Xxhash3(state) => state.digest().to_be_bytes().to_vec(),
        }
    }
}

impl Hasher {
    /// Computes these.
    #[must_use]
    pub fn new(set: ChecksumSet) -> Self {
        let chosen = ChecksumAlgorithm::ALL.into_iter().filter(|algorithm| set.contains(*algorithm));
        Self(chosen.map(|algorithm| (algorithm, State::new(algorithm))).collect())
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        for (_, state) in &mut self.0 {
            state.update(bytes);
        }
    }

    /// The values.
    #[must_use]
    pub fn finish(self) -> Digests {
        Digests(self.0.into_iter().map(|(algorithm, state)| (algorithm, state.finish(algorithm))).collect())
    }
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(algorithm, _)| algorithm)).finish()
    }
}

/// The checksums of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests(Vec<(ChecksumAlgorithm, Vec<u8>)>);

impl Digests {
    /// The value of one, if it was computed.
    #[must_use]
    pub fn get(&self, algorithm: ChecksumAlgorithm) -> Option<&[u8]> {
        self.0.iter().find(|(own, _)| *own == algorithm).map(|(_, value)| value.as_slice())
    }
}

/// The checksum of bytes that are there at once.
#[must_use]
pub fn digest(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Vec<u8> {
    let mut state = State::new(algorithm);
    state.update(bytes);
    state.finish(algorithm)
}
