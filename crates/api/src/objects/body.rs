//! What an object's content is and where it lies, as metadata says it.

use bytes::Bytes;
use millrace_base::ShardId;
use serde::{Deserialize, Serialize};

use super::{Checksum, ChecksumAlgorithm};

/// Names a body. The number alone is kept: the shard is the object's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyName {
    /// The shard of the object's bucket.
    pub shard: ShardId,
    /// Never given twice in a shard.
    pub number: u64,
}

/// What a body was written for. It is kept with the body, so that a later look finds out whether it is still needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyOwner<'a> {
    /// The bucket.
    pub bucket: &'a str,
    /// The object's key.
    pub key: &'a str,
    /// Of a part: the upload's id and the part's number.
    pub part: Option<(&'a str, u16)>,
}

impl<'a> BodyOwner<'a> {
    /// As it is kept.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a vector takes whatever it is given")
    }

    /// Reads what is kept; `None` for other bytes.
    #[must_use]
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// One part's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartBody {
    /// Its body's number.
    pub number: u64,
    /// Its bytes.
    pub length: u64,
}

/// Where an object's content lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Beside the metadata, in the same entity: small ones.
    Inline,
    /// In one body of this number.
    Body(u64),
    /// In the bodies of parts, in order. The parts' rows stay with this upload.
    Parts {
        /// The upload's id.
        upload: String,
        /// Each part's number beside its body, in order.
        parts: Vec<(u16, PartBody)>,
    },
}

/// What hashing a body gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyDigests {
    /// Of the whole body: the ETag of an object of one part.
    pub md5: [u8; 16],
    /// The other checksums that were asked for.
    pub checksums: Vec<Checksum>,
}

/// A body that was written and is to become visible.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenBody {
    /// Its number in the bucket's shard; `None`: its bytes travel with the operation (see [`super::ObjectRequest::body`]).
    pub number: Option<u64>,
    /// Its bytes.
    pub length: u64,
    /// What hashing it gave.
    pub digests: BodyDigests,
}

impl WrittenBody {
    /// A small body, which travels with the operation.
    #[must_use]
    pub fn inline(body: &Bytes, digests: BodyDigests) -> Self {
        Self { number: None, length: body.len() as u64, digests }
    }
}

impl BodyDigests {
    /// The checksum of this algorithm, if it was taken.
    #[must_use]
    pub fn of(&self, algorithm: ChecksumAlgorithm) -> Option<&Checksum> {
        self.checksums.iter().find(|checksum| checksum.algorithm == algorithm)
    }
}
