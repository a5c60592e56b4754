//! What a new version is to be, as headers say it.

use millrace_api::objects::{ChecksumAlgorithm, ChecksumKind, Retention, RetentionMode, UploadInput};

use super::{Head, access, metadata};
use crate::checksum;
use crate::error::{Code, S3Error};
use crate::limits;
use crate::times;
use crate::users::Users;
use crate::xml::tagging::parse_tags;

/// Headers that are kept and given back.
pub const KEPT: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
];

/// Parameters that ask for other headers in the reply of a read, with those headers.
pub const OVERRIDES: [(&str, &str); 6] = [
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
    ("response-content-language", "content-language"),
    ("response-content-type", "content-type"),
    ("response-expires", "expires"),
];

/// The storage classes of S3 whose objects can be read at once. This server keeps and tells them, and treats all alike.
const STORAGE_CLASSES: [&str; 9] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "OUTPOSTS",
    "SNOW",
    "EXPRESS_ONEZONE",
];

/// Those whose objects S3 archives: they have to be restored before they are read. Nothing is archived here.
const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

/// What headers say of a new version.
///
/// # Errors
/// Those that S3 documents for each header.
pub fn upload(head: &Head<'_>, users: &impl Users) -> Result<UploadInput, S3Error> {
    let retention =
        retention(head.header("x-amz-object-lock-mode")?, head.header("x-amz-object-lock-retain-until-date")?)?;
    Ok(UploadInput {
        headers: kept_headers(head)?,
        metadata: metadata::from_headers(head.headers)?,
        tags: match head.header("x-amz-tagging")? {
            Some(text) => parse_tags(text, limits::OBJECT_TAGS)?,
            None => Vec::new(),
        },
        access: access::from_headers(head, users)?,
        retention,
        legal_hold: match head.header("x-amz-object-lock-legal-hold")? {
            Some(text) => Some(legal_hold(text)?),
            None => None,
        },
        storage_class: storage_class(head.header("x-amz-storage-class")?.unwrap_or_default())?,
        checksum: parts_checksum(head)?,
    })
}

/// Of an upload of parts: which checksum its parts have.
fn parts_checksum(head: &Head<'_>) -> Result<Option<(ChecksumAlgorithm, Option<ChecksumKind>)>, S3Error> {
    let kind = head.header("x-amz-checksum-type")?.map(checksum::kind).transpose()?;
    let Some(name) = head.header("x-amz-checksum-algorithm")? else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(S3Error::new(
                Code::InvalidRequest,
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
            )),
        };
    };
    let algorithm = checksum::algorithm(name)?;
    let is_crc = |algorithm| {
        matches!(algorithm, ChecksumAlgorithm::Crc32 | ChecksumAlgorithm::Crc32c | ChecksumAlgorithm::Crc64Nvme)
    };
    // Only the CRC of a whole follows from those of its parts, and S3 has the 64-bit one for wholes alone.
    let impossible = match kind {
        Some(ChecksumKind::FullObject) if !is_crc(algorithm) => "FULL_OBJECT",
        Some(ChecksumKind::Composite) if algorithm == ChecksumAlgorithm::Crc64Nvme => "COMPOSITE",
        _ => return Ok(Some((algorithm, kind))),
    };
    let name = name.to_ascii_lowercase();
    let message = format!("The {impossible} checksum type cannot be used with the {name} checksum algorithm.");
    Err(S3Error::new(Code::InvalidRequest, message))
}

fn kept_headers(head: &Head<'_>) -> Result<Vec<(String, String)>, S3Error> {
    let mut kept = Vec::new();
    for name in KEPT {
        let Some(value) = head.header(name)? else { continue };
        if name == "content-encoding" {
            // How the body is framed on its way is no property of the object.
            let codings = value.split(',').map(str::trim);
            let left: Vec<&str> = codings.filter(|coding| !coding.eq_ignore_ascii_case("aws-chunked")).collect();
            if !left.is_empty() {
                kept.push((name.to_owned(), left.join(", ")));
            }
            continue;
        }
        if name == "x-amz-website-redirect-location" {
            let is_place = ["/", "http://", "https://"].iter().any(|start| value.starts_with(start));
            if !is_place {
                return Err(Code::InvalidRedirectLocation.into());
            }
        }
        kept.push((name.to_owned(), value.to_owned()));
    }
    Ok(kept)
}

/// A storage class that this server takes, or none.
///
/// # Errors
/// `InvalidStorageClass`.
pub fn storage_class(name: &str) -> Result<String, S3Error> {
    if name.is_empty() || STORAGE_CLASSES.contains(&name) {
        return Ok(name.to_owned());
    }
    let message = if ARCHIVES.contains(&name) {
        "This server archives nothing, so it takes no objects of this storage class. Use GLACIER_IR or STANDARD."
    } else {
        "The storage class you specified is not valid"
    };
    Err(S3Error::new(Code::InvalidStorageClass, message))
}

/// Retention as two texts give it.
///
/// # Errors
/// `InvalidArgument` for one without the other, or for what they cannot be.
pub fn retention(mode: Option<&str>, until: Option<&str>) -> Result<Option<Retention>, S3Error> {
    let invalid = |message: &str| Err(S3Error::new(Code::InvalidArgument, message));
    let (mode, until) = match (mode, until) {
        (None, None) => return Ok(None),
        (Some(mode), Some(until)) => (mode, until),
        _ => {
            return invalid("x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied");
        }
    };
    let mode = match mode {
        "GOVERNANCE" => RetentionMode::Governance,
        "COMPLIANCE" => RetentionMode::Compliance,
        _ => return invalid("Unknown wormMode directive."),
    };
    match times::parse_iso(until) {
        Some(until_ms) => Ok(Some(Retention { mode, until_ms })),
        None => invalid("The retain until date must be provided in ISO 8601 format"),
    }
}

fn legal_hold(text: &str) -> Result<bool, S3Error> {
    match text {
        "ON" => Ok(true),
        "OFF" => Ok(false),
        _ => Err(S3Error::new(Code::InvalidArgument, "Legal Hold must be either of 'ON' or 'OFF'")),
    }
}
