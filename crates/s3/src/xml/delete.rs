//! `Delete` and `DeleteResult`.

use millrace_api::objects::{DeleteOne, DeletedOne, WriteConditions};

use super::{Element, Writer, read};
use crate::error::{Code, S3Error};
use crate::limits;
use crate::times;

/// Reads `Delete`: which objects, and whether only failures are to be told.
///
/// # Errors
/// `MalformedXML`, also for more than 1,000 objects.
pub fn read_delete(document: &[u8], bypass_governance: bool) -> Result<(Vec<(String, DeleteOne)>, bool), S3Error> {
    let root = read(document, "Delete")?;
    let is_quiet = root.truth_of("Quiet")?;
    let mut objects = Vec::new();
    for element in root.all("Object") {
        if objects.len() == limits::DELETE_OBJECTS {
            return Err(Code::MalformedXml.into());
        }
        let key = element.needed("Key")?;
        if key.is_empty() {
            return Err(Code::MalformedXml.into());
        }
        objects.push((key.to_owned(), read_object(element, bypass_governance)?));
    }
    if objects.is_empty() { Err(Code::MalformedXml.into()) } else { Ok((objects, is_quiet)) }
}

fn read_object(element: &Element, bypass_governance: bool) -> Result<DeleteOne, S3Error> {
    let mut conditions =
        WriteConditions { if_match_size_bytes: element.number_of("Size")?, ..WriteConditions::default() };
    if let Some(etag) = element.text_of("ETag") {
        conditions.if_match.push(etag.trim().trim_matches('"').to_owned());
    }
    if let Some(at) = element.text_of("LastModifiedTime") {
        conditions.if_match_modified_ms = Some(times::parse_http_date(at).ok_or(Code::MalformedXml)?);
    }
    let version = element.text_of("VersionId").filter(|version| !version.is_empty()).map(str::to_owned);
    Ok(DeleteOne { version, bypass_governance, conditions })
}

/// Writes `DeleteResult`.
#[must_use]
pub fn write_deleted(results: &[DeletedOne], is_quiet: bool) -> String {
    let mut writer = Writer::new("DeleteResult");
    for one in results {
        match &one.result {
            Ok(_) if is_quiet => {}
            Ok(deleted) => {
                writer.open("Deleted").text("Key", &one.key).some("VersionId", one.version.as_deref());
                if deleted.is_delete_marker {
                    writer.value("DeleteMarker", true);
                    writer.some("DeleteMarkerVersionId", deleted.version.as_deref());
                }
                writer.close();
            }
            Err((code, message)) => {
                writer.open("Error").text("Key", &one.key).some("VersionId", one.version.as_deref());
                writer.text("Code", code).text("Message", message).close();
            }
        }
    }
    writer.finish()
}
