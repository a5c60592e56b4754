//! Lists of buckets, objects, versions and uploads.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_api::objects::{
    BucketInfo, ChecksumAlgorithm, ChecksumKind, ListPage, ListRequest, ListedObject, ListedUpload, ListedVersion,
};

use super::access::owner;
use super::{Encoding, Writer};
use crate::algorithm::{kind_name, names};
use crate::times;
use crate::users::Users;

/// Which list a client asked for, beside what the store needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListForm {
    /// How keys are written.
    pub encoding: Encoding,
    /// The delimiter was given, also if empty.
    pub shows_delimiter: bool,
    /// Version 2 of `ListObjects`.
    pub is_second: bool,
    /// Of version 2: whether owners are wanted.
    pub fetch_owner: bool,
    /// Of version 2: the token as it came.
    pub token: Option<String>,
    /// Of version 2: `start-after` as it came.
    pub start_after: Option<String>,
    /// `marker`, `key-marker` as it came.
    pub marker: String,
    /// `version-id-marker`, `upload-id-marker` as it came.
    pub id_marker: String,
    /// How many were asked for, as it is told.
    pub max_keys: u16,
}

/// A position as an opaque text.
#[must_use]
pub fn to_token(position: &str) -> String {
    URL_SAFE_NO_PAD.encode(position)
}

/// The position in a token; `None` for text that none was made of.
#[must_use]
pub fn from_token(token: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()
}

/// `ListAllMyBucketsResult`.
#[must_use]
pub fn buckets(page: &ListPage<BucketInfo>, prefix: &str, own_id: &str, region: &str, users: &impl Users) -> String {
    let mut writer = Writer::new("ListAllMyBucketsResult");
    owner(&mut writer, "Owner", own_id, users);
    writer.open("Buckets");
    for bucket in &page.items {
        writer.open("Bucket").text("Name", &bucket.name).text("CreationDate", &times::iso(bucket.created_ms));
        writer.text("BucketRegion", region).close();
    }
    writer.close();
    if let Some((name, _)) = &page.next {
        writer.text("ContinuationToken", &to_token(name));
    }
    if !prefix.is_empty() {
        writer.text("Prefix", prefix);
    }
    writer.finish()
}

/// What an item takes, with a key of a usual length.
const ITEM_BYTES: usize = 384;

fn begin(writer: &mut Writer, bucket: &str, prefix: &str, encoding: Encoding) {
    writer.text("Name", bucket).key("Prefix", prefix, encoding);
}

fn middle(writer: &mut Writer, limit_name: &'static str, request: &ListRequest, form: &ListForm, is_cut: bool) {
    writer.value(limit_name, form.max_keys);
    if form.shows_delimiter {
        writer.key("Delimiter", &request.delimiter, form.encoding);
    }
    writer.value("IsTruncated", is_cut);
    if form.encoding == Encoding::Url {
        writer.text("EncodingType", "url");
    }
}

fn end(writer: &mut Writer, prefixes: &[String], encoding: Encoding) {
    for prefix in prefixes {
        writer.open("CommonPrefixes").key("Prefix", prefix, encoding).close();
    }
}

fn checksum(writer: &mut Writer, checksum: Option<(ChecksumAlgorithm, ChecksumKind)>) {
    if let Some((algorithm, kind)) = checksum {
        writer.text("ChecksumAlgorithm", names(algorithm).name).text("ChecksumType", kind_name(kind));
    }
}

fn object(writer: &mut Writer, object: &ListedObject, form: &ListForm, users: &impl Users) {
    writer.open("Contents").key("Key", &object.key, form.encoding);
    writer.text("LastModified", &times::iso(object.modified_ms)).etag(&object.etag);
    checksum(writer, object.checksum);
    writer.value("Size", object.size_bytes);
    if !form.is_second || form.fetch_owner {
        owner(writer, "Owner", &object.owner, users);
    }
    writer.text("StorageClass", &object.storage_class).close();
}

/// Whether a character cannot stand in a document of XML 1.0, not even as a reference.
fn is_forbidden(character: char) -> bool {
    let is_control = character < ' ' && !matches!(character, '\t' | '\n' | '\r');
    is_control || matches!(character, '\u{fffe}' | '\u{ffff}')
}

/// `ListBucketResult` of both versions.
#[must_use]
pub fn objects(
    bucket: &str,
    page: &ListPage<ListedObject>,
    request: &ListRequest,
    form: &ListForm,
    users: &impl Users,
) -> String {
    let mut writer = Writer::new("ListBucketResult");
    // Clients of version 1 do not decode the prefix. It is encoded only if no document can have it.
    let is_plain = !form.is_second && !request.prefix.chars().any(is_forbidden);
    begin(&mut writer, bucket, &request.prefix, if is_plain { Encoding::None } else { form.encoding });
    let next = page.next.as_ref().map(|(key, _)| key.as_str());
    if form.is_second {
        writer.some("ContinuationToken", form.token.as_deref());
        writer.some("NextContinuationToken", next.map(to_token).as_deref());
        writer.value("KeyCount", page.items.len() + page.common_prefixes.len());
        if let Some(after) = &form.start_after {
            writer.key("StartAfter", after, form.encoding);
        }
    } else {
        writer.key("Marker", &form.marker, form.encoding);
        // Without a delimiter, version 1 takes the last key for the next marker.
        if let Some(next) = next.filter(|_| form.shows_delimiter) {
            writer.key("NextMarker", next, form.encoding);
        }
    }
    middle(&mut writer, "MaxKeys", request, form, next.is_some());
    writer.reserve(page.items.len() * ITEM_BYTES);
    for item in &page.items {
        object(&mut writer, item, form, users);
    }
    end(&mut writer, &page.common_prefixes, form.encoding);
    writer.finish()
}

/// `ListVersionsResult`.
#[must_use]
pub fn versions(
    bucket: &str,
    page: &ListPage<ListedVersion>,
    request: &ListRequest,
    form: &ListForm,
    users: &impl Users,
) -> String {
    let mut writer = Writer::new("ListVersionsResult");
    begin(&mut writer, bucket, &request.prefix, form.encoding);
    writer.key("KeyMarker", &form.marker, form.encoding).text("VersionIdMarker", &form.id_marker);
    if let Some((key, version)) = &page.next {
        writer.key("NextKeyMarker", key, form.encoding);
        if !version.is_empty() {
            writer.text("NextVersionIdMarker", version);
        }
    }
    middle(&mut writer, "MaxKeys", request, form, page.next.is_some());
    writer.reserve(page.items.len() * ITEM_BYTES);
    for item in &page.items {
        let listed = &item.object;
        writer.open(if item.is_delete_marker { "DeleteMarker" } else { "Version" });
        writer.key("Key", &listed.key, form.encoding).text("VersionId", &item.version);
        writer.value("IsLatest", item.is_latest).text("LastModified", &times::iso(listed.modified_ms));
        if !item.is_delete_marker {
            writer.etag(&listed.etag);
            checksum(&mut writer, listed.checksum);
            writer.value("Size", listed.size_bytes);
        }
        owner(&mut writer, "Owner", &listed.owner, users);
        if !item.is_delete_marker {
            writer.text("StorageClass", &listed.storage_class);
        }
        writer.close();
    }
    end(&mut writer, &page.common_prefixes, form.encoding);
    writer.finish()
}

/// `ListMultipartUploadsResult`.
#[must_use]
pub fn uploads(
    bucket: &str,
    page: &ListPage<ListedUpload>,
    request: &ListRequest,
    form: &ListForm,
    users: &impl Users,
) -> String {
    let mut writer = Writer::new("ListMultipartUploadsResult");
    writer.text("Bucket", bucket).key("KeyMarker", &form.marker, form.encoding);
    writer.text("UploadIdMarker", &form.id_marker);
    if let Some((key, id)) = &page.next {
        writer.key("NextKeyMarker", key, form.encoding).text("NextUploadIdMarker", id);
    }
    writer.key("Prefix", &request.prefix, form.encoding);
    middle(&mut writer, "MaxUploads", request, form, page.next.is_some());
    for upload in &page.items {
        writer.open("Upload").key("Key", &upload.key, form.encoding).text("UploadId", &upload.id);
        owner(&mut writer, "Initiator", &upload.initiator, users);
        owner(&mut writer, "Owner", &upload.owner, users);
        writer.text("StorageClass", &upload.storage_class).text("Initiated", &times::iso(upload.began_ms));
        checksum(&mut writer, upload.checksum);
        writer.close();
    }
    end(&mut writer, &page.common_prefixes, form.encoding);
    writer.finish()
}
