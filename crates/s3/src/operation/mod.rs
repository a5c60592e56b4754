//! From a routed request to the operation that the store is asked for.
//!
//! [`parse`] is for everything that has a small document as its body, or none. What has an object's content as its body
//! is put together from the parts in [`input`], [`digests`] and [`copy`], since the content comes last.
//!
//! Must not know sockets or how bodies arrive.

pub mod access;
pub mod conditions;
pub mod copy;
pub mod digests;
pub mod input;
pub mod list;
mod metadata;
mod principals;
pub mod range;

use http::HeaderMap;
use millrace_api::objects::{
    AccessInput, Checksum, Configuration, ConfigurationKind, DeleteOne, ObjectOperation, Retention,
};

use crate::algorithm;
use crate::error::{Code, S3Error};
use crate::limits;
use crate::route::{Action, Query};
use crate::users::Users;
use crate::xml::{configuration, delete, tagging, uploads};

pub use metadata::{decode_metadata, encode_metadata};

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its query.
    pub query: &'a Query,
    /// The region that this server is.
    pub region: &'a str,
}

impl<'a> Head<'a> {
    /// A header as text.
    ///
    /// # Errors
    /// `InvalidArgument` for one that is no text.
    pub fn header(&self, name: &str) -> Result<Option<&'a str>, S3Error> {
        match self.headers.get(name) {
            None => Ok(None),
            Some(value) => match std::str::from_utf8(value.as_bytes()) {
                Ok(text) => Ok(Some(text.trim())),
                Err(_) => Err(S3Error::new(Code::InvalidArgument, format!("The header {name} is no text."))),
            },
        }
    }

    /// A header that is `true` or not.
    ///
    /// # Errors
    /// As [`Head::header`].
    pub fn is_true(&self, name: &str) -> Result<bool, S3Error> {
        Ok(self.header(name)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
    }

    /// The version that is asked for.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty one.
    pub fn version(&self) -> Result<Option<String>, S3Error> {
        match self.query.get("versionId") {
            Some("") => Err(S3Error::new(Code::InvalidArgument, "Version id cannot be the empty string")),
            version => Ok(version.map(str::to_owned)),
        }
    }

    /// The upload that is asked for. Text that is longer than any id names none, as the empty text does: it would not
    /// fit into a key.
    #[must_use]
    pub fn upload(&self) -> String {
        let id = self.query.get("uploadId").filter(|id| id.len() <= UPLOAD_ID_BYTES);
        id.unwrap_or_default().to_owned()
    }

    /// The part's number, if one is given.
    ///
    /// # Errors
    /// `InvalidArgument` for one outside 1 to 10,000.
    pub fn part_number(&self) -> Result<Option<u16>, S3Error> {
        let Some(text) = self.query.get("partNumber") else { return Ok(None) };
        match text.parse() {
            Ok(number) if (1..=limits::PART_NUMBER).contains(&number) => Ok(Some(number)),
            _ => Err(S3Error::new(
                Code::InvalidArgument,
                "Part number must be an integer between 1 and 10000, inclusive",
            )
            .with("ArgumentName", "partNumber")
            .with("ArgumentValue", text)),
        }
    }
}

/// Bytes of an upload's id.
const UPLOAD_ID_BYTES: usize = 32;

/// Headers of features that this server does not have.
const NOT_IMPLEMENTED: [(&str, &str); 9] = [
    ("x-amz-server-side-encryption", "Server-side encryption"),
    ("x-amz-copy-source-server-side-encryption", "Server-side encryption"),
    ("x-amz-write-offset-bytes", "Appending to objects"),
    ("x-amz-rename-source", "Renaming objects"),
    ("x-amz-fwd-", "Object Lambda"),
    ("x-amz-object-annotation", "Annotations of objects"),
    ("x-amz-object-lock-event-hold", "Holding objects by events"),
    ("x-amz-bucket-namespace", "Namespaces of buckets"),
    ("x-amz-if-match-initiated-time", "Aborting an upload by the time of its beginning"),
];

/// Refuses requests whose headers ask for what this server does not do.
///
/// # Errors
/// `NotImplemented`.
pub fn check_headers(headers: &HeaderMap) -> Result<(), S3Error> {
    for name in headers.keys() {
        if let Some((_, what)) = NOT_IMPLEMENTED.iter().find(|(start, _)| name.as_str().starts_with(start)) {
            return Err(S3Error::new(Code::NotImplemented, format!("{what} is not implemented ({name}).")));
        }
    }
    Ok(())
}

/// Whether a request of this kind has a document as its body.
#[must_use]
pub fn has_document(action: Action) -> bool {
    matches!(
        action,
        Action::CreateBucket
            | Action::PutConfiguration(_)
            | Action::DeleteObjects
            | Action::PutObjectAcl
            | Action::PutObjectTagging
            | Action::PutRetention
            | Action::PutLegalHold
            | Action::CompleteUpload
    )
}

/// Whether S3 asks for a digest of the document, so that nothing is deleted or opened by a flipped bit.
#[must_use]
pub fn needs_digest(action: Action) -> bool {
    matches!(action, Action::DeleteObjects | Action::PutRetention | Action::PutLegalHold)
        || matches!(action, Action::PutConfiguration(ConfigurationKind::Lifecycle | ConfigurationKind::ObjectLock))
}

/// The operation of a request whose body is this document.
///
/// # Errors
/// Those that S3 documents for what is wrong with it.
pub fn parse(action: Action, head: &Head<'_>, document: &[u8], users: &impl Users) -> Result<ObjectOperation, S3Error> {
    use ObjectOperation as Operation;
    Ok(match action {
        Action::ListBuckets => Operation::ListBuckets(list::buckets(head)?),
        Action::CreateBucket => create_bucket(head, document, users)?,
        // That it is there, and that the requester may know, is all that matters of these.
        Action::HeadBucket | Action::GetLocation | Action::Absent(_) => Operation::HeadBucket,
        Action::DeleteBucket => Operation::DeleteBucket,
        Action::ListObjects => Operation::List(list::objects(head)?.0),
        Action::ListObjectsV2 => Operation::List(list::objects_second(head)?.0),
        Action::ListVersions => Operation::ListVersions(list::versions(head)?.0),
        Action::ListUploads => Operation::ListUploads(list::uploads(head)?.0),
        Action::GetConfiguration(kind) => Operation::GetConfiguration(kind),
        Action::PutConfiguration(kind) => Operation::PutConfiguration {
            configuration: setting(kind, head, document, users)?,
            is_confirmed: head.is_true("x-amz-confirm-remove-self-bucket-access")?,
        },
        Action::DeleteConfiguration(kind) => Operation::DeleteConfiguration(kind),
        Action::GetPolicyStatus => Operation::GetPolicyStatus,
        Action::DeleteObjects => {
            Operation::DeleteMany { objects: delete::read_delete(document, head.is_true(BYPASS)?)?.0 }
        }
        Action::GetObject | Action::HeadObject => Operation::Get(conditions::read(head, action == Action::HeadObject)?),
        Action::DeleteObject => Operation::Delete(DeleteOne {
            version: head.version()?,
            bypass_governance: head.is_true(BYPASS)?,
            conditions: conditions::delete(head)?,
        }),
        Action::GetObjectAttributes => list::attributes(head)?.0,
        Action::CompleteUpload => complete(head, document)?,
        Action::AbortUpload => Operation::AbortUpload { upload: head.upload() },
        Action::ListParts => list::parts(head)?,
        Action::CreateUpload => Operation::CreateUpload(Box::new(input::upload(head, users)?)),
        _ => about_version(action, head, document, users)?,
    })
}

fn setting(
    kind: ConfigurationKind,
    head: &Head<'_>,
    document: &[u8],
    users: &impl Users,
) -> Result<Configuration, S3Error> {
    if kind == ConfigurationKind::Access {
        return Ok(Configuration::Access(access::replacement(head, document, users)?));
    }
    let setting = configuration::read_configuration(kind, document)?;
    if let Configuration::Policy(policy) = &setting {
        principals::check(policy, users)?;
    }
    Ok(setting)
}

/// The header of who wants to pass over governance.
const BYPASS: &str = "x-amz-bypass-governance-retention";

/// Access list, tags, retention and hold of a version.
fn about_version(
    action: Action,
    head: &Head<'_>,
    document: &[u8],
    users: &impl Users,
) -> Result<ObjectOperation, S3Error> {
    use ObjectOperation as Operation;
    let version = head.version()?;
    Ok(match action {
        Action::GetObjectAcl => Operation::GetAccess(version),
        Action::PutObjectAcl => Operation::PutAccess { version, access: access::replacement(head, document, users)? },
        Action::GetObjectTagging => Operation::GetTags(version),
        Action::PutObjectTagging => {
            Operation::PutTags { version, tags: tagging::read_tags(document, limits::OBJECT_TAGS)? }
        }
        Action::DeleteObjectTagging => Operation::PutTags { version, tags: Vec::new() },
        Action::GetRetention => Operation::GetRetention(version),
        Action::PutRetention => {
            let retention: Option<Retention> = configuration::read_retention(document)?;
            Operation::PutRetention { version, retention, bypass_governance: head.is_true(BYPASS)? }
        }
        Action::GetLegalHold => Operation::GetLegalHold(version),
        Action::PutLegalHold => Operation::PutLegalHold { version, is_held: configuration::read_legal_hold(document)? },
        // The others are not asked for with a document: who calls this with one has a mistake.
        _ => return Err(Code::InternalError.into()),
    })
}

fn create_bucket(head: &Head<'_>, document: &[u8], users: &impl Users) -> Result<ObjectOperation, S3Error> {
    uploads::read_create_bucket(document, head.region)?;
    let ownership = match head.header("x-amz-object-ownership")? {
        None => None,
        Some(name) => match crate::xml::access::ownership(name) {
            Some(ownership) => Some(ownership),
            None => return Err(S3Error::new(Code::InvalidArgument, "Invalid x-amz-object-ownership header")),
        },
    };
    let access: AccessInput = access::from_headers(head, users)?;
    Ok(ObjectOperation::CreateBucket {
        access,
        object_lock: head.is_true("x-amz-bucket-object-lock-enabled")?,
        ownership,
    })
}

fn complete(head: &Head<'_>, document: &[u8]) -> Result<ObjectOperation, S3Error> {
    let mut checksum: Option<Checksum> = digests::header(head)?;
    if let Some(name) = head.header("x-amz-checksum-type")? {
        let kind = algorithm::kind_by_name(name)
            .ok_or_else(|| S3Error::new(Code::InvalidRequest, "Value for x-amz-checksum-type header is invalid."))?;
        if let Some(checksum) = &mut checksum {
            checksum.kind = kind;
        }
    }
    let size_bytes = match head.header("x-amz-mp-object-size")? {
        None => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| S3Error::new(Code::InvalidRequest, "Value for x-amz-mp-object-size header is invalid."))?,
        ),
    };
    Ok(ObjectOperation::CompleteUpload {
        upload: head.upload(),
        parts: uploads::read_complete(document)?,
        checksum,
        size_bytes,
        conditions: conditions::write(head)?,
    })
}

#[cfg(test)]
mod tests;
