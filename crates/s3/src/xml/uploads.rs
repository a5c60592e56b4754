//! Uploads of parts, copies, and what an object is made of.

use millrace_api::objects::{Checksum, CompletePart, ObjectInfo, PartsPage, PolicyStatus};

use super::access::owner;
use super::{Element, Writer, read};
use crate::algorithm::{self, kind_name, names, to_text};
use crate::checksum;
use crate::error::{Code, S3Error};
use crate::limits;
use crate::times;
use crate::users::Users;

/// Reads `CompleteMultipartUpload`.
///
/// # Errors
/// `MalformedXML`, `InvalidPartOrder`.
pub fn read_complete(document: &[u8]) -> Result<Vec<CompletePart>, S3Error> {
    let root = read(document, "CompleteMultipartUpload").map_err(|error| match error.code {
        // A completion without a document names no part, as an empty document does.
        Code::MissingRequestBody => Code::MalformedXml.into(),
        _ => error,
    })?;
    let mut parts: Vec<CompletePart> = Vec::new();
    for element in root.all("Part") {
        let part = read_part(element)?;
        if parts.last().is_some_and(|earlier| earlier.number >= part.number) {
            return Err(Code::InvalidPartOrder.into());
        }
        parts.push(part);
    }
    if parts.is_empty() { Err(Code::MalformedXml.into()) } else { Ok(parts) }
}

fn read_part(element: &Element) -> Result<CompletePart, S3Error> {
    let number: u16 = element.child("PartNumber").ok_or(Code::MalformedXml)?.number()?;
    if number == 0 || number > limits::PART_NUMBER {
        return Err(S3Error::new(Code::InvalidArgument, "PartNumber must be between 1 and 10000"));
    }
    let etag = element.needed("ETag")?.trim().trim_matches('"').to_owned();
    let mut checksum = None;
    for names in &algorithm::ALL {
        if let Some(text) = element.text_of(names.element)
            && checksum.replace(checksum::read(names.algorithm, text.trim())?).is_some()
        {
            return Err(Code::MalformedXml.into());
        }
    }
    Ok(CompletePart { number, etag, checksum })
}

/// `InitiateMultipartUploadResult`.
#[must_use]
pub fn begun(bucket: &str, key: &str, id: &str) -> String {
    let mut writer = Writer::new("InitiateMultipartUploadResult");
    writer.text("Bucket", bucket).text("Key", key).text("UploadId", id);
    writer.finish()
}

fn put_checksum(writer: &mut Writer, checksum: Option<&Checksum>, part_count: Option<u16>) {
    if let Some(checksum) = checksum {
        writer.text(names(checksum.algorithm).element, &to_text(checksum, part_count));
    }
}

/// `CompleteMultipartUploadResult`.
#[must_use]
pub fn completed(
    location: &str,
    bucket: &str,
    key: &str,
    etag: &str,
    checksum: Option<&Checksum>,
    part_count: u16,
) -> String {
    let mut writer = Writer::new("CompleteMultipartUploadResult");
    writer.text("Location", location).text("Bucket", bucket).text("Key", key).etag(etag);
    put_checksum(&mut writer, checksum, Some(part_count));
    if let Some(checksum) = checksum {
        writer.text("ChecksumType", kind_name(checksum.kind));
    }
    writer.finish()
}

/// `CopyObjectResult` or `CopyPartResult`.
#[must_use]
pub fn copied(root: &'static str, etag: &str, modified_ms: u64, checksum: Option<&Checksum>) -> String {
    let mut writer = Writer::new(root);
    writer.text("LastModified", &times::iso(modified_ms)).etag(etag);
    put_checksum(&mut writer, checksum, None);
    if let Some(checksum) = checksum
        && root == "CopyObjectResult"
    {
        writer.text("ChecksumType", kind_name(checksum.kind));
    }
    writer.finish()
}

/// `ListPartsResult`.
#[must_use]
pub fn parts(
    bucket: &str,
    key: &str,
    id: &str,
    after: u16,
    limit: u16,
    page: &PartsPage,
    users: &impl Users,
) -> String {
    let mut writer = Writer::new("ListPartsResult");
    writer.text("Bucket", bucket).text("Key", key).text("UploadId", id);
    writer.value("PartNumberMarker", after);
    let last = page.parts.last().map_or(after, |part| part.number);
    writer.value("NextPartNumberMarker", page.next_after.unwrap_or(last));
    writer.value("MaxParts", limit).value("IsTruncated", page.next_after.is_some());
    for part in &page.parts {
        writer.open("Part").value("PartNumber", part.number).text("LastModified", &times::iso(part.modified_ms));
        writer.etag(&part.etag).value("Size", part.size_bytes);
        put_checksum(&mut writer, part.checksum.as_ref(), None);
        writer.close();
    }
    if let Some(upload) = &page.upload {
        owner(&mut writer, "Initiator", &upload.initiator, users);
        owner(&mut writer, "Owner", &upload.owner, users);
        writer.text("StorageClass", &upload.storage_class);
        if let Some((algorithm, kind)) = upload.checksum {
            writer.text("ChecksumAlgorithm", names(algorithm).name).text("ChecksumType", kind_name(kind));
        }
    }
    writer.finish()
}

/// What of an object is wanted by `GetObjectAttributes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `ETag`.
    pub etag: bool,
    /// `Checksum`.
    pub checksum: bool,
    /// `ObjectParts`.
    pub parts: bool,
    /// `StorageClass`.
    pub storage_class: bool,
    /// `ObjectSize`.
    pub size: bool,
}

/// `GetObjectAttributesResponse`.
#[must_use]
pub fn attributes(info: &ObjectInfo, page: &PartsPage, wanted: Attributes, after: u16, limit: u16) -> String {
    let mut writer = Writer::new("GetObjectAttributesResponse");
    if wanted.etag {
        writer.text("ETag", &info.etag);
    }
    if let Some(checksum) = info.checksum.as_ref().filter(|_| wanted.checksum) {
        writer.open("Checksum");
        put_checksum(&mut writer, Some(checksum), info.part_count);
        writer.text("ChecksumType", kind_name(checksum.kind)).close();
    }
    if let Some(count) = info.part_count.filter(|_| wanted.parts) {
        writer.open("ObjectParts").value("PartsCount", count);
        // S3 names each part only where parts have checksums.
        if page.parts.iter().any(|part| part.checksum.is_some()) {
            let last = page.parts.last().map_or(0, |part| part.number);
            writer.value("PartNumberMarker", after).value("NextPartNumberMarker", page.next_after.unwrap_or(last));
            writer.value("MaxParts", limit).value("IsTruncated", page.next_after.is_some());
            for part in &page.parts {
                writer.open("Part").value("PartNumber", part.number).value("Size", part.size_bytes);
                put_checksum(&mut writer, part.checksum.as_ref(), None);
                writer.close();
            }
        }
        writer.close();
    }
    if wanted.storage_class {
        writer.text("StorageClass", &info.storage_class);
    }
    if wanted.size {
        writer.value("ObjectSize", info.size_bytes);
    }
    writer.finish()
}

/// `PolicyStatus`.
#[must_use]
pub fn policy_status(status: PolicyStatus) -> String {
    let mut writer = Writer::new("PolicyStatus");
    writer.value("IsPublic", status.is_public);
    writer.finish()
}

/// `LocationConstraint`: empty for the region that had no name at first.
#[must_use]
pub fn location(region: &str) -> String {
    let mut writer = Writer::new("LocationConstraint");
    if region != "us-east-1" {
        writer.raw_text(region);
    }
    writer.finish()
}

/// Reads `CreateBucketConfiguration`: the region. An empty document says nothing.
///
/// # Errors
/// `MalformedXML`, `InvalidLocationConstraint`-like refusal for another region, `NotImplemented` for directory buckets and tags.
pub fn read_create_bucket(document: &[u8], region: &str) -> Result<(), S3Error> {
    if document.is_empty() {
        return Ok(());
    }
    let root = read(document, "CreateBucketConfiguration")?;
    if root.child("Location").is_some() || root.child("Bucket").is_some() {
        return Err(S3Error::new(Code::NotImplemented, "Directory buckets are not implemented."));
    }
    // A bucket without the tags that its maker gave it would fall out of whatever counts by tags.
    if root.child("Tags").is_some_and(|tags| tags.child("Tag").is_some()) {
        let message = "CreateBucket takes no tags here. Make the bucket without them, then use PutBucketTagging.";
        return Err(S3Error::new(Code::NotImplemented, message));
    }
    match root.text_of("LocationConstraint").map(str::trim) {
        None | Some("") => Ok(()),
        Some(wanted) if wanted == region => Ok(()),
        Some(_) => Err(Code::InvalidLocationConstraint.into()),
    }
}

/// `PostResponse`.
#[must_use]
pub fn posted(location: &str, bucket: &str, key: &str, etag: &str) -> String {
    let mut writer = Writer::plain();
    writer.open("PostResponse").text("Location", location).text("Bucket", bucket).text("Key", key).etag(etag);
    writer.finish()
}

/// `Error`.
#[must_use]
pub fn error(error: &S3Error, resource: &str, request_id: &str, host_id: &str) -> String {
    let mut writer = Writer::plain();
    writer.open("Error").text("Code", error.code.as_str()).text("Message", &error.message);
    for (element, value) in &error.details {
        writer.text(element, value);
    }
    writer.text("Resource", resource).text("RequestId", request_id).text("HostId", host_id);
    writer.finish()
}
