//! Subresources: query parameters without which a request would mean something else.

use http::Method;
use millrace_api::objects::ConfigurationKind;

use super::{Action, Query};
use crate::error::{Code, S3Error};

/// What a method of a subresource is.
#[derive(Clone, Copy)]
enum Offer {
    /// Something that this server does.
    Does(Action),
    /// Something that S3 does.
    NotImplemented,
    /// Something that no bucket has here; it is said with this code.
    Missing(Code),
    /// Nothing that S3 knows.
    None,
}

use Offer::{Does, Missing, None as Nothing, NotImplemented};

/// A subresource with its methods.
struct Row {
    name: &'static str,
    is_of_object: bool,
    get: Offer,
    put: Offer,
    post: Offer,
    delete: Offer,
}

const fn row(name: &'static str, is_of_object: bool, get: Offer, put: Offer, post: Offer, delete: Offer) -> Row {
    Row { name, is_of_object, get, put, post, delete }
}

const fn setting(name: &'static str, kind: ConfigurationKind, delete: bool) -> Row {
    let delete = if delete { Does(Action::DeleteConfiguration(kind)) } else { Nothing };
    row(name, false, Does(Action::GetConfiguration(kind)), Does(Action::PutConfiguration(kind)), Nothing, delete)
}

/// A subresource that S3 has and this server does not.
const fn other(name: &'static str, is_of_object: bool) -> Row {
    row(name, is_of_object, NotImplemented, NotImplemented, NotImplemented, NotImplemented)
}

/// A setting that this server does not have, where clients read it to find that out.
const fn missing(name: &'static str, code: Code) -> Row {
    row(name, false, Missing(code), NotImplemented, Nothing, NotImplemented)
}

/// A setting that this server does not have, and whose absence is an empty document.
const fn absent(name: &'static str, document: &'static str) -> Row {
    row(name, false, Does(Action::Absent(document)), NotImplemented, Nothing, Nothing)
}

const ROWS: &[Row] = &[
    setting("acl", ConfigurationKind::Access, false),
    setting("cors", ConfigurationKind::Cors, true),
    setting("lifecycle", ConfigurationKind::Lifecycle, true),
    setting("notification", ConfigurationKind::Notification, false),
    setting("object-lock", ConfigurationKind::ObjectLock, false),
    setting("ownershipControls", ConfigurationKind::Ownership, true),
    setting("policy", ConfigurationKind::Policy, true),
    setting("publicAccessBlock", ConfigurationKind::PublicAccess, true),
    setting("requestPayment", ConfigurationKind::RequestPayment, false),
    setting("tagging", ConfigurationKind::Tagging, true),
    setting("versioning", ConfigurationKind::Versioning, false),
    row("location", false, Does(Action::GetLocation), Nothing, Nothing, Nothing),
    row("policyStatus", false, Does(Action::GetPolicyStatus), Nothing, Nothing, Nothing),
    row("uploads", false, Does(Action::ListUploads), Nothing, Nothing, Nothing),
    row("versions", false, Does(Action::ListVersions), Nothing, Nothing, Nothing),
    row("delete", false, Nothing, Nothing, Does(Action::DeleteObjects), Nothing),
    absent("accelerate", "AccelerateConfiguration"),
    absent("logging", "BucketLoggingStatus"),
    missing("encryption", Code::NoSuchEncryption),
    missing("replication", Code::NoSuchReplication),
    missing("website", Code::NoSuchWebsite),
    other("abac", false),
    other("analytics", false),
    other("intelligent-tiering", false),
    other("inventory", false),
    other("metadataAnnotationTable", false),
    other("metadataConfiguration", false),
    other("metadataInventoryTable", false),
    other("metadataJournalTable", false),
    other("metadataTable", false),
    other("metrics", false),
    other("session", false),
    other("replicationMetrics", false),
    row("acl", true, Does(Action::GetObjectAcl), Does(Action::PutObjectAcl), Nothing, Nothing),
    row(
        "tagging",
        true,
        Does(Action::GetObjectTagging),
        Does(Action::PutObjectTagging),
        Nothing,
        Does(Action::DeleteObjectTagging),
    ),
    row("retention", true, Does(Action::GetRetention), Does(Action::PutRetention), Nothing, Nothing),
    row("legal-hold", true, Does(Action::GetLegalHold), Does(Action::PutLegalHold), Nothing, Nothing),
    row("attributes", true, Does(Action::GetObjectAttributes), Nothing, Nothing, Nothing),
    row("uploads", true, Nothing, Nothing, Does(Action::CreateUpload), Nothing),
    other("annotation", true),
    other("encryption", true),
    other("renameObject", true),
    other("restore", true),
    other("select", true),
    other("torrent", true),
];

/// Parameters that say more of a plain write, so that an empty one names no subresource.
const OF_WRITES: [&str; 6] = ["versionId", "uploadId", "partNumber", "AWSAccessKeyId", "Signature", "Expires"];

/// S3 gets new subresources. A plain write in the place of one of them would replace the object or remove it. So a write
/// is refused that has an unknown parameter without a value. S3 itself ignores what begins with `x-`.
fn check_write(method: &Method, query: &Query) -> Result<(), S3Error> {
    let is_unknown =
        |name: &str| !OF_WRITES.contains(&name) && !name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"));
    let unknown = query.iter().find(|(name, value)| value.is_empty() && is_unknown(name));
    match unknown {
        Some((name, _)) if matches!(*method, Method::PUT | Method::POST | Method::DELETE) => Err(not_implemented(name)),
        _ => Ok(()),
    }
}

fn not_implemented(name: &str) -> S3Error {
    S3Error::new(Code::NotImplemented, format!("This server does not implement the subresource '{name}'."))
}

/// The action of the subresource that a query names, if it names one of this level.
pub fn find(method: &Method, is_of_object: bool, query: &Query) -> Result<Option<Action>, S3Error> {
    // The metadata of an object are read whatever else the query says.
    if method == Method::HEAD {
        return Ok(None);
    }
    let named = ROWS.iter().find(|row| row.is_of_object == is_of_object && query.has(row.name));
    let Some(row) = named else {
        check_write(method, query)?;
        return Ok(None);
    };
    let offer = match *method {
        Method::GET => row.get,
        Method::PUT => row.put,
        Method::POST => row.post,
        Method::DELETE => row.delete,
        _ => Nothing,
    };
    match offer {
        Does(action) => Ok(Some(action)),
        NotImplemented => Err(not_implemented(row.name)),
        Missing(code) => Err(code.into()),
        Nothing => Err(Code::MethodNotAllowed.into()),
    }
}
