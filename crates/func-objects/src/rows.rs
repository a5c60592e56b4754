//! What is kept of buckets, objects and uploads: rows in fields of their entities. `docs/internals/objects.md` has the
//! table.
//!
//! A row is one byte of version and postcard behind it. Members are only ever added at the end, and a row that another
//! version wrote is refused.

use millrace_api::objects::{
    Checksum, ChecksumAlgorithm, ChecksumKind, Content, Grant, ListedObject, ListedUpload, ListedVersion, ObjectInfo,
    ObjectLock, Ownership, PublicAccessBlock, Retention, Slices, UploadInput, Versioning,
};
use millrace_base::{Error, ErrorCode, Value, ValueKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Of a bucket: [`BucketRow`].
pub(crate) const INFO: &[u8] = b"info";
/// Of a bucket: the policy as it was given.
pub(crate) const POLICY: &[u8] = b"policy";
/// Of a bucket: the lifecycle rules, a [`millrace_api::objects::Configuration`].
pub(crate) const LIFECYCLE: &[u8] = b"lifecycle";
/// Of a bucket: the rules for notifications, a [`millrace_api::objects::Configuration`].
pub(crate) const NOTIFICATION: &[u8] = b"notification";
/// Of a bucket's slice: how much of the quota is the slice's, 8 bytes. See [`crate::slice_quota`].
pub(crate) const SHARE: &[u8] = b"share";
/// Of a bucket's slice: [`UsageRow`].
pub(crate) const USAGE: &[u8] = b"usage";
/// Of an object: the current version, [`VersionRow`]. Behind it stand an older version's order: newest first.
pub(crate) const VERSION: &[u8] = b"m";
/// Of an object: the current version's inline content. Behind it, as for [`VERSION`].
pub(crate) const BODY: &[u8] = b"b";
/// Of an object: the order of the version `null`, where that is not the current one.
pub(crate) const NULL: &[u8] = b"n";
/// Of an upload: [`UploadRow`].
pub(crate) const UPLOAD: &[u8] = b"info";
/// Of an upload: [`PartRow`] behind this and the part's number.
pub(crate) const PART: &[u8] = b"p";

const ROW_VERSION: u8 = 1;

/// A bucket, as far as every request has to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BucketRow {
    pub created_ms: u64,
    /// Canonical id.
    pub owner: String,
    pub versioning: Versioning,
    pub ownership: Option<Ownership>,
    pub public_access: Option<PublicAccessBlock>,
    pub object_lock: Option<ObjectLock>,
    pub grants: Vec<Grant>,
    /// Whether the field [`POLICY`] is there. It changes with each policy, so a policy is read again then.
    pub policy_number: Option<u64>,
    pub requester_pays: bool,
    /// Whether there are rules for what vanishes. It changes with each set of rules, which are read again then.
    pub lifecycle_number: Option<u64>,
    /// Whether there are rules for whom to tell.
    pub has_notifications: bool,
    pub quota_bytes: Option<u64>,
    /// The app that it belongs to.
    pub app: Option<String>,
    /// Where its objects lie.
    pub slices: Slices,
}

/// The version of [`BucketRow`]. Version 1 had no app, version 2 no slices.
const BUCKET_ROW_VERSION: u8 = 3;

impl BucketRow {
    /// As it is kept.
    pub(crate) fn to_value(&self) -> Value {
        versioned(BUCKET_ROW_VERSION, self)
    }

    /// Reads it back.
    ///
    /// # Errors
    /// As for [`from_value`].
    pub(crate) fn from_value(value: &Value) -> Result<Self, Error> {
        let row = match value.content().split_first() {
            Some((&BUCKET_ROW_VERSION, rest)) => postcard::from_bytes(rest),
            // What they lack at their end is an option that is none, and a list that is empty.
            Some((&2, rest)) => postcard::from_bytes(&[rest, &[0]].concat()),
            Some((&1, rest)) => postcard::from_bytes(&[rest, &[0, 0]].concat()),
            Some((version, _)) => return Err(unreadable(&format!("version {version}"))),
            None => return Err(unreadable("it is empty")),
        };
        row.map_err(|error| unreadable(&error.to_string()))
    }
}

/// How much is in a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsageRow {
    /// Versions with content.
    pub objects: u64,
    /// Their bytes, and those of parts.
    pub size_bytes: u64,
}

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionRow {
    /// Its place among the versions of its object: newer ones are smaller.
    pub order: u64,
    /// Its id, or `None` for the version `null`.
    pub id: Option<String>,
    pub is_delete_marker: bool,
    pub size_bytes: u64,
    pub etag: String,
    pub modified_ms: u64,
    /// Canonical id.
    pub owner: String,
    pub input: UploadInput,
    pub grants: Vec<Grant>,
    pub checksum: Option<Checksum>,
    pub content: Content,
}

impl VersionRow {
    /// A delete marker.
    pub(crate) fn delete_marker(order: u64, id: Option<String>, owner: &str, now_ms: u64) -> Self {
        Self {
            order,
            id,
            is_delete_marker: true,
            size_bytes: 0,
            etag: String::new(),
            modified_ms: now_ms,
            owner: owner.to_owned(),
            input: UploadInput::default(),
            grants: Vec::new(),
            checksum: None,
            content: Content::Inline,
        }
    }

    /// As S3 names it.
    pub(crate) fn shown_id(&self) -> String {
        self.id.clone().unwrap_or_else(|| "null".to_owned())
    }

    pub(crate) fn retention(&self) -> Option<Retention> {
        self.input.retention
    }

    fn storage_class(&self) -> String {
        class_or_standard(self.input.storage_class.clone())
    }

    /// The numbers of its bodies.
    pub(crate) fn bodies(&self) -> Vec<u64> {
        match &self.content {
            Content::Inline => Vec::new(),
            Content::Body(number) => vec![*number],
            Content::Parts { parts, .. } => parts.iter().map(|(_, part)| part.number).collect(),
        }
    }

    /// As a read shows it.
    pub(crate) fn info(&self, is_versioned: bool) -> ObjectInfo {
        let part_count = match &self.content {
            Content::Parts { parts, .. } => u16::try_from(parts.len()).ok(),
            Content::Inline | Content::Body(_) => None,
        };
        ObjectInfo {
            size_bytes: self.size_bytes,
            etag: self.etag.clone(),
            modified_ms: self.modified_ms,
            version: (is_versioned || self.id.is_some()).then(|| self.shown_id()),
            is_delete_marker: self.is_delete_marker,
            owner: self.owner.clone(),
            headers: self.input.headers.clone(),
            metadata: self.input.metadata.clone(),
            tags: self.input.tags.clone(),
            checksum: self.checksum.clone(),
            part_count,
            part: None,
            retention: self.retention(),
            legal_hold: self.input.legal_hold,
            expires: None,
            storage_class: self.storage_class(),
            shows_tags: false,
        }
    }

    /// As a list shows it.
    pub(crate) fn listed(self, key: String) -> ListedObject {
        ListedObject {
            key,
            size_bytes: self.size_bytes,
            etag: self.etag,
            modified_ms: self.modified_ms,
            owner: self.owner,
            storage_class: class_or_standard(self.input.storage_class),
            checksum: self.checksum.as_ref().map(|checksum| (checksum.algorithm, checksum.kind)),
        }
    }

    /// As a list of versions shows it.
    pub(crate) fn listed_version(self, key: String, is_latest: bool) -> ListedVersion {
        let (version, is_delete_marker) = (self.shown_id(), self.is_delete_marker);
        ListedVersion { object: self.listed(key), version, is_latest, is_delete_marker }
    }
}

/// The class that S3 shows for none.
fn class_or_standard(class: String) -> String {
    if class.is_empty() { "STANDARD".to_owned() } else { class }
}

/// An upload of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UploadRow {
    pub input: UploadInput,
    /// Who will own the object, and who began it: canonical ids.
    pub owner: String,
    pub initiator: String,
    pub grants: Vec<Grant>,
    pub began_ms: u64,
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// What completing it gave. The parts stay until the version goes.
    pub completed: Option<CompletedRow>,
}

/// What completing an upload gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompletedRow {
    pub etag: String,
    pub version: Option<String>,
    pub modified_ms: u64,
    pub size_bytes: u64,
    pub checksum: Option<Checksum>,
    /// The parts, by number and ETag: asked again with others, it is another request.
    pub parts_digest: [u8; 16],
}

impl UploadRow {
    /// As a list shows it.
    pub(crate) fn listed(self, key: String, id: String) -> ListedUpload {
        ListedUpload {
            key,
            id,
            initiator: self.initiator,
            owner: self.owner,
            began_ms: self.began_ms,
            storage_class: class_or_standard(self.input.storage_class),
            checksum: self.checksum,
        }
    }
}

/// A part of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartRow {
    /// The number of its body. Parts have one, however small they are.
    pub body: u64,
    pub size_bytes: u64,
    pub md5: [u8; 16],
    pub modified_ms: u64,
    pub checksum: Option<Checksum>,
}

/// A row as it is kept.
pub(crate) fn to_value(row: &impl Serialize) -> Value {
    versioned(ROW_VERSION, row)
}

fn versioned(version: u8, row: &impl Serialize) -> Value {
    let bytes = postcard::to_extend(row, vec![version]).expect("a vector takes whatever it is given");
    Value::new(ValueKind::Bytes, &bytes)
}

fn unreadable(what: &str) -> Error {
    Error::new(ErrorCode::Internal, format!("a row of an object cannot be read: {what}"))
}

/// Reads a row.
///
/// # Errors
/// `internal`: only this crate writes rows.
pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    match value.content().split_first() {
        Some((&ROW_VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| unreadable(&error.to_string())),
        Some((version, _)) => Err(unreadable(&format!("version {version}"))),
        None => Err(unreadable("it is empty")),
    }
}

/// The field of an older version: [`VERSION`] or [`BODY`] and its order behind it.
pub(crate) fn ordered(field: &[u8], order: u64) -> Vec<u8> {
    [field, &order.to_be_bytes()].concat()
}

/// The field of a part.
pub(crate) fn part_field(number: u16) -> Vec<u8> {
    [PART, &number.to_be_bytes()].concat()
}

/// The number in the field of a part.
pub(crate) fn part_number(field: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(field.strip_prefix(PART)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_of_an_older_version_has_no_app_and_one_slice() {
        // A bucket of `ann` with a quota of 300 bytes, made in millisecond 5, as each version wrote it.
        let versions = [
            (&b"\x01\x05\x03ann\0\0\0\0\0\0\0\0\0\x01\xac\x02"[..], false, 1),
            (b"\x02\x05\x03ann\0\0\0\0\0\0\0\0\0\x01\xac\x02\x01\x04shop", true, 1),
            (b"\x03\x05\x03ann\0\0\0\0\0\0\0\0\0\x01\xac\x02\x01\x04shop\x02\xc3\x02\x07", true, 3),
        ];
        for (kept, has_app, slices) in versions {
            let row = BucketRow::from_value(&Value::new(ValueKind::Bytes, kept)).expect("readable");
            let app = has_app.then(|| "shop".to_owned());
            assert_eq!(row.slices.count(), slices);
            let expected =
                BucketRow { created_ms: 5, owner: "ann".to_owned(), quota_bytes: Some(300), app, ..row.clone() };
            assert_eq!(row, expected);
            let written = row.to_value();
            assert_eq!(BucketRow::from_value(&written), Ok(row));
            assert!(kept[0] < BUCKET_ROW_VERSION || written.content() == kept, "{written:?}");
        }
        for bytes in [&b""[..], b"\x04", b"\x03\x05", b"\x02\x05", b"\x01\x05"] {
            assert!(BucketRow::from_value(&Value::new(ValueKind::Bytes, bytes)).is_err(), "{bytes:?}");
        }
    }
}
