//! What is known of one version of an object beside its content.

use serde::{Deserialize, Serialize};

use super::{Checksum, Retention};

/// Names a version of an object: opaque text. The text `null` is the version that was written without versioning.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VersionId(pub String);

impl VersionId {
    /// The version written without versioning.
    pub const NULL: &str = "null";

    /// Whether it is that one.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0 == Self::NULL
    }
}

/// A tag of an object or a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tag {
    /// Unique in its set.
    pub key: String,
    /// May be empty.
    pub value: String,
}

/// One version of an object, as a read shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Its content's bytes.
    pub size_bytes: u64,
    /// Without quotes.
    pub etag: String,
    /// When it was written, Unix milliseconds.
    pub modified_ms: u64,
    /// The version's id, where the bucket keeps or has kept versions.
    pub version: Option<String>,
    /// It says that the object is gone, and has no content.
    pub is_delete_marker: bool,
    /// The owner's canonical id.
    pub owner: String,
    /// Headers that are given back as they came: `content-type`, `cache-control`, `content-disposition`,
    /// `content-encoding`, `content-language`, `expires`, `x-amz-website-redirect-location`. Lower case.
    pub headers: Vec<(String, String)>,
    /// `x-amz-meta-…`, without that prefix. Lower case.
    pub metadata: Vec<(String, String)>,
    /// Tags.
    pub tags: Vec<Tag>,
    /// Its checksum.
    pub checksum: Option<Checksum>,
    /// How many parts it was made of, if it was an upload of parts.
    pub part_count: Option<u16>,
    /// The one that was asked for by number.
    pub part: Option<PartInfo>,
    /// Until when it cannot be deleted.
    pub retention: Option<Retention>,
    /// Whether it cannot be deleted until this is taken away.
    pub legal_hold: Option<bool>,
    /// When it expires by which rule, if any: Unix milliseconds and the rule's id.
    pub expires: Option<(u64, String)>,
    /// As the client gave it; `STANDARD` if it said nothing.
    pub storage_class: String,
    /// Whether the caller may read tags: then their number is told.
    pub shows_tags: bool,
}

/// One part of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartInfo {
    /// Its number.
    pub number: u16,
    /// Where it begins in the object.
    pub offset: u64,
    /// Its bytes.
    pub size_bytes: u64,
    /// Its checksum.
    pub checksum: Option<Checksum>,
}
