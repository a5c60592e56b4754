//! What operations on buckets and objects answer.

use serde::{Deserialize, Serialize};

use super::{
    AccessList, Checksum, ChecksumAlgorithm, ChecksumKind, Configuration, Content, ObjectInfo, Retention, Tag,
};

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectReply {
    /// It is done, and there is nothing to say.
    Done,
    /// Of `ListBuckets`.
    Buckets(ListPage<BucketInfo>),
    /// Of `HeadBucket`.
    Bucket(BucketInfo),
    /// Of `List`.
    Objects(ListPage<ListedObject>),
    /// Of `ListVersions`.
    Versions(ListPage<ListedVersion>),
    /// Of `ListUploads`.
    Uploads(ListPage<ListedUpload>),
    /// Of `GetConfiguration`.
    Configuration(Configuration),
    /// Of `GetPolicyStatus`.
    PolicyStatus(PolicyStatus),
    /// Of `GetUsage`.
    Usage(Usage),
    /// Of `GetCors`: the headers to answer with, or none if no rule fits.
    Cors(Option<Vec<(String, String)>>),
    /// Of `Get` and `GetSource`. The condition `not modified` is a refusal. Inline content stands in the body behind.
    Object {
        /// What it is.
        info: Box<ObjectInfo>,
        /// Where its content lies.
        content: Content,
    },
    /// Of `GetAttributes`.
    Attributes {
        /// What it is.
        info: Box<ObjectInfo>,
        /// Its parts.
        parts: PartsPage,
    },
    /// Of `GetAccess`.
    Access(AccessList),
    /// Of `GetTags`.
    Tags {
        /// The tags.
        tags: Vec<Tag>,
        /// Whose they are.
        version: Option<String>,
    },
    /// Of `GetRetention`.
    Retention(Retention),
    /// Of `GetLegalHold`.
    LegalHold(bool),
    /// Of `Put` and `CompleteUpload`, and of `PutPart` without version: what was made.
    Written {
        /// Without quotes.
        etag: String,
        /// Its version, if the bucket keeps versions.
        version: Option<String>,
        /// When, Unix milliseconds.
        modified_ms: u64,
        /// Its checksum.
        checksum: Option<Checksum>,
        /// When it expires by which rule.
        expires: Option<(u64, String)>,
        /// Its bytes.
        size_bytes: u64,
    },
    /// Of `Delete`.
    Deleted(Deleted),
    /// Of `DeleteMany`, in the order of the request.
    DeletedMany(Vec<DeletedOne>),
    /// Of `CreateUpload`.
    Upload {
        /// Its id.
        id: String,
        /// Which checksum its parts have.
        checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
        /// When a rule aborts it, and which.
        expires: Option<(u64, String)>,
    },
    /// Of `ListParts`.
    Parts(PartsPage),
    /// Of writes of a version's tags, access list, retention or hold: which version it was.
    Version(Option<String>),
    /// Of `RefersTo`.
    RefersTo(bool),
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPage<T> {
    /// The items.
    pub items: Vec<T>,
    /// Cut keys, in order.
    pub common_prefixes: Vec<String>,
    /// Where the next page begins: a key or cut key, and the version or upload; `None`: this was the last.
    pub next: Option<(String, String)>,
}

impl<T> Default for ListPage<T> {
    fn default() -> Self {
        Self { items: Vec::new(), common_prefixes: Vec::new(), next: None }
    }
}

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketInfo {
    /// Its name.
    pub name: String,
    /// When it was made, Unix milliseconds.
    pub created_ms: u64,
    /// The owner's canonical id.
    pub owner: String,
    /// Whether its versions can be locked.
    pub has_object_lock: bool,
    /// The app that it belongs to. `ListBuckets` leaves it out.
    pub app: Option<String>,
    /// Its slices. `ListBuckets` leaves it 0.
    pub slices: u16,
}

/// A current object in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedObject {
    /// Its key.
    pub key: String,
    /// Its content's bytes.
    pub size_bytes: u64,
    /// Without quotes.
    pub etag: String,
    /// Unix milliseconds.
    pub modified_ms: u64,
    /// The owner's canonical id.
    pub owner: String,
    /// As in [`ObjectInfo`].
    pub storage_class: String,
    /// Which checksum it has.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// A version or delete marker in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedVersion {
    /// As of an object.
    pub object: ListedObject,
    /// Its id.
    pub version: String,
    /// Whether it is the current one.
    pub is_latest: bool,
    /// Whether it says that the object is gone.
    pub is_delete_marker: bool,
}

/// An upload in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedUpload {
    /// The key it is for.
    pub key: String,
    /// Its id.
    pub id: String,
    /// Who began it: canonical id.
    pub initiator: String,
    /// Who will own the object: canonical id.
    pub owner: String,
    /// Unix milliseconds.
    pub began_ms: u64,
    /// As in [`ObjectInfo`].
    pub storage_class: String,
    /// Which checksum its parts have.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// A part in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPart {
    /// Its number.
    pub number: u16,
    /// Its bytes.
    pub size_bytes: u64,
    /// Without quotes.
    pub etag: String,
    /// Unix milliseconds.
    pub modified_ms: u64,
    /// Its checksum.
    pub checksum: Option<Checksum>,
}

/// Parts of an upload or an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartsPage {
    /// The parts.
    pub parts: Vec<ListedPart>,
    /// How many there are in all.
    pub total: u16,
    /// The number behind which the next page begins; `None`: this was the last.
    pub next_after: Option<u16>,
    /// Of `ListParts`: the upload.
    pub upload: Option<ListedUpload>,
}

/// Whether a policy makes a bucket public.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Whether it does.
    pub is_public: bool,
}

/// How much is in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Versions with content, all of them.
    pub objects: u64,
    /// Their bytes, and those of parts of uploads under way.
    pub size_bytes: u64,
    /// How many bytes there may be.
    pub quota_bytes: Option<u64>,
}

/// What a deletion did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// The version that was removed, or the delete marker that was made.
    pub version: Option<String>,
    /// Whether `version` is a delete marker.
    pub is_delete_marker: bool,
}

/// What became of one of many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedOne {
    /// The object's key.
    pub key: String,
    /// The version that was asked for.
    pub version: Option<String>,
    /// What was done, or the refusal's code and message.
    pub result: Result<Deleted, (String, String)>,
}
