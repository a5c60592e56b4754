//! What can be asked of buckets and objects.

use serde::{Deserialize, Serialize};

use super::{
    AccessInput, Checksum, ChecksumAlgorithm, ChecksumKind, Configuration, ConfigurationKind, Ownership, Retention,
    Tag, WrittenBody,
};

/// One operation. Whether it needs a key says [`ObjectOperation::is_about_object`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectOperation {
    // The requester's own.
    /// Their buckets, in the order of names.
    ListBuckets(ListRequest),

    // Buckets.
    /// Makes a bucket.
    CreateBucket {
        /// Who may what.
        access: AccessInput,
        /// Whether versions can be locked; keeps versions then.
        object_lock: bool,
        /// Who owns objects.
        ownership: Option<Ownership>,
    },
    /// Whether it is there.
    HeadBucket,
    /// Removes an empty bucket.
    DeleteBucket,
    /// Current objects in the order of keys.
    List(ListRequest),
    /// All versions and delete markers, newest first.
    ListVersions(ListRequest),
    /// Uploads under way.
    ListUploads(ListRequest),
    /// A setting.
    GetConfiguration(ConfigurationKind),
    /// Replaces a setting.
    PutConfiguration {
        /// The setting.
        configuration: Configuration,
        /// For a policy: the caller knows that it may shut them out.
        is_confirmed: bool,
    },
    /// Takes a setting away.
    DeleteConfiguration(ConfigurationKind),
    /// Whether the policy makes it public.
    GetPolicyStatus,
    /// How much is in it, and how much may be.
    GetUsage,
    /// Bounds its bytes; `None`: no bound.
    SetQuota(Option<u64>),
    /// What a browser may do from a page of this origin.
    GetCors {
        /// The header `origin`.
        origin: String,
        /// The method that is to be used.
        method: String,
        /// The headers that are to be sent, lower case.
        headers: Vec<String>,
    },
    /// Whether the requester could write there, before a body is read. Answers `Done`.
    CheckWrite {
        /// The whole body's bytes, where they are known.
        size_bytes: Option<u64>,
        /// The write that is to come, as far as it is known. It decides which permissions are needed.
        write: Box<ObjectOperation>,
    },

    // Reads of an object.
    /// Its metadata, and where its content lies.
    Get(ReadConditions),
    /// The source of a copy: as `Get`, and its tags are read.
    GetSource(ReadConditions),
    /// What it is made of.
    GetAttributes {
        /// Which version.
        version: Option<String>,
        /// Parts behind this number.
        parts_after: u16,
        /// At most so many parts.
        max_parts: u16,
    },
    /// Its access list.
    GetAccess(Option<String>),
    /// Its tags.
    GetTags(Option<String>),
    /// Its retention.
    GetRetention(Option<String>),
    /// Whether it is held.
    GetLegalHold(Option<String>),

    // Writes of an object.
    /// Makes it, or a version of it.
    Put(Box<PutInput>),
    /// Removes it, or a version, or marks it as gone.
    Delete(DeleteOne),
    /// As `Delete`, for many; the key is in each.
    DeleteMany {
        /// At most 1,000.
        objects: Vec<(String, DeleteOne)>,
    },
    /// Replaces its access list.
    PutAccess {
        /// Which version.
        version: Option<String>,
        /// The list.
        access: AccessInput,
    },
    /// Replaces its tags.
    PutTags {
        /// Which version.
        version: Option<String>,
        /// None: takes them away.
        tags: Vec<Tag>,
    },
    /// Replaces its retention.
    PutRetention {
        /// Which version.
        version: Option<String>,
        /// `None`: takes it away.
        retention: Option<Retention>,
        /// The caller wants to shorten one of governance mode.
        bypass_governance: bool,
    },
    /// Holds it, or no more.
    PutLegalHold {
        /// Which version.
        version: Option<String>,
        /// Whether it is held.
        is_held: bool,
    },

    // Uploads of parts.
    /// Begins one.
    CreateUpload(Box<UploadInput>),
    /// Adds or replaces a part.
    PutPart(Box<PartInput>),
    /// The parts of one.
    ListParts {
        /// The upload's id.
        upload: String,
        /// Parts behind this number.
        after: u16,
        /// At most so many.
        limit: u16,
    },
    /// Makes the object of its parts. Asked again, it answers the same.
    CompleteUpload {
        /// The upload's id.
        upload: String,
        /// The parts, in order.
        parts: Vec<CompletePart>,
        /// The object's checksum, as the client knows it.
        checksum: Option<Checksum>,
        /// The whole size, as the client knows it.
        size_bytes: Option<u64>,
        /// Under which condition.
        conditions: WriteConditions,
    },
    /// Drops one.
    AbortUpload {
        /// The upload's id.
        upload: String,
    },

    // The node's own questions.
    /// Whether a version of the object, or this part of an upload, still has the body of this number.
    RefersTo {
        /// The upload's id and the part's number, if the body was written for a part.
        part: Option<(String, u16)>,
        /// The body's number.
        number: u64,
    },

    // Of functions, and about them.
    /// As `Get`, and all of the content stands behind the reply: at most `limits::OBJECT_READ_BYTES`.
    GetWhole(ReadConditions),
    /// Gives the bucket to an app, or to none.
    SetApp(Option<String>),
    /// Spreads an empty bucket over so many slices.
    SetSlices(u16),
}

impl ObjectOperation {
    /// Whether it concerns one object, so that a key is needed.
    #[must_use]
    pub fn is_about_object(&self) -> bool {
        match self {
            Self::CheckWrite { write, .. } => write.is_about_object(),
            Self::Get(_)
            | Self::GetSource(_)
            | Self::GetAttributes { .. }
            | Self::GetAccess(_)
            | Self::GetTags(_)
            | Self::GetRetention(_)
            | Self::GetLegalHold(_)
            | Self::Put(_)
            | Self::Delete(_)
            | Self::PutAccess { .. }
            | Self::PutTags { .. }
            | Self::PutRetention { .. }
            | Self::PutLegalHold { .. }
            | Self::CreateUpload(_)
            | Self::PutPart(_)
            | Self::ListParts { .. }
            | Self::CompleteUpload { .. }
            | Self::AbortUpload { .. }
            | Self::RefersTo { .. }
            | Self::GetWhole(_) => true,
            _ => false,
        }
    }

    /// Whether it may change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Self::CreateBucket { .. }
            | Self::DeleteBucket
            | Self::PutConfiguration { .. }
            | Self::DeleteConfiguration(_)
            | Self::SetQuota(_)
            | Self::SetApp(_)
            | Self::SetSlices(_)
            | Self::Put(_)
            | Self::Delete(_)
            | Self::DeleteMany { .. }
            | Self::PutAccess { .. }
            | Self::PutTags { .. }
            | Self::PutRetention { .. }
            | Self::PutLegalHold { .. }
            | Self::CreateUpload(_)
            | Self::PutPart(_)
            | Self::CompleteUpload { .. }
            | Self::AbortUpload { .. } => true,
            Self::ListBuckets(_)
            | Self::HeadBucket
            | Self::List(_)
            | Self::ListVersions(_)
            | Self::ListUploads(_)
            | Self::GetConfiguration(_)
            | Self::GetPolicyStatus
            | Self::GetUsage
            | Self::GetCors { .. }
            | Self::CheckWrite { .. }
            | Self::Get(_)
            | Self::GetSource(_)
            | Self::GetAttributes { .. }
            | Self::GetAccess(_)
            | Self::GetTags(_)
            | Self::GetRetention(_)
            | Self::GetLegalHold(_)
            | Self::ListParts { .. }
            | Self::GetWhole(_)
            | Self::RefersTo { .. } => false,
        }
    }
}

/// Which part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    /// How keys begin.
    pub prefix: String,
    /// Keys with this behind the prefix are shown once, cut behind it; empty: all are shown whole.
    pub delimiter: String,
    /// Only keys (and cut keys) after this one.
    pub after: String,
    /// Of versions and uploads: also those of the key `after` behind this version or upload; empty: none of them.
    pub after_id: String,
    /// At most so many keys and cut keys.
    pub limit: u16,
}

/// Which version to read, and under which conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadConditions {
    /// The version's id; `None`: the current one.
    pub version: Option<String>,
    /// One part of it, from 1.
    pub part_number: Option<u16>,
    /// ETags without quotes, or `*`; empty: no condition.
    pub if_match: Vec<String>,
    /// As `if_match`.
    pub if_none_match: Vec<String>,
    /// Unix milliseconds.
    pub if_modified_since_ms: Option<u64>,
    /// Unix milliseconds.
    pub if_unmodified_since_ms: Option<u64>,
    /// Only metadata is wanted.
    pub is_head: bool,
    /// Some of the reply's headers are to be others: only who signed the request may ask for that.
    pub overrides_headers: bool,
}

/// Under which conditions to write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteConditions {
    /// ETags without quotes, or `*`: the object must be there and have one of them. Empty: no condition.
    pub if_match: Vec<String>,
    /// `*`: no object may be there. An ETag: it may not have it. Empty: no condition.
    pub if_none_match: Vec<String>,
    /// Of a deletion: the size that the object must have.
    pub if_match_size_bytes: Option<u64>,
    /// Of a deletion: when it must have been modified last, Unix milliseconds of a whole second.
    pub if_match_modified_ms: Option<u64>,
}

/// What a new version is to be, beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadInput {
    /// See [`super::ObjectInfo::headers`].
    pub headers: Vec<(String, String)>,
    /// See [`super::ObjectInfo::metadata`].
    pub metadata: Vec<(String, String)>,
    /// Tags.
    pub tags: Vec<Tag>,
    /// Who may what.
    pub access: AccessInput,
    /// Its retention; `None`: the bucket's default.
    pub retention: Option<Retention>,
    /// Whether it is held.
    pub legal_hold: Option<bool>,
    /// As the client gave it; empty: `STANDARD`.
    pub storage_class: String,
    /// Of an upload of parts: which checksum parts have.
    pub checksum: Option<(ChecksumAlgorithm, Option<ChecksumKind>)>,
}

/// A new version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutInput {
    /// What it is, beside its content.
    pub input: UploadInput,
    /// Its content.
    pub body: WrittenBody,
    /// The checksum to keep; `None`: CRC-64/NVME is in the digests and is kept.
    pub checksum: Option<ChecksumAlgorithm>,
    /// Under which conditions.
    pub conditions: WriteConditions,
    /// Where the content came from, if it was not sent.
    pub copy: Option<CopyInput>,
}

/// Where a copied content came from, as policies may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyInput {
    /// `bucket/key`, decoded.
    pub source: String,
    /// The source's version, if one was named.
    pub version: Option<String>,
    /// `COPY` or `REPLACE`.
    pub metadata_directive: String,
}

/// A part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartInput {
    /// The upload's id.
    pub upload: String,
    /// From 1 to 10,000.
    pub number: u16,
    /// Its content.
    pub body: WrittenBody,
    /// Where the content came from, if it was not sent.
    pub copy: Option<CopyInput>,
}

/// A part that a completed upload is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletePart {
    /// Its number.
    pub number: u16,
    /// Its ETag, without quotes.
    pub etag: String,
    /// Its checksum, if the client says it.
    pub checksum: Option<Checksum>,
}

/// What to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteOne {
    /// Which version; `None`: the object.
    pub version: Option<String>,
    /// The caller wants to remove one that governance retains.
    pub bypass_governance: bool,
    /// Under which conditions.
    pub conditions: WriteConditions,
}
