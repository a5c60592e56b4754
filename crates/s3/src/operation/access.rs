//! Access lists in headers.

use millrace_api::objects::{AccessInput, CannedAccess, Grant, Grantee, Permission};

use super::Head;
use crate::error::{Code, S3Error};
use crate::limits;
use crate::users::Users;
use crate::xml::access::{by_email, group, known_id, read_list};

const CANNED: [(&str, CannedAccess); 7] = [
    ("private", CannedAccess::Private),
    ("public-read", CannedAccess::PublicRead),
    ("public-read-write", CannedAccess::PublicReadWrite),
    ("authenticated-read", CannedAccess::AuthenticatedRead),
    ("bucket-owner-read", CannedAccess::BucketOwnerRead),
    ("bucket-owner-full-control", CannedAccess::BucketOwnerFullControl),
    ("log-delivery-write", CannedAccess::LogDeliveryWrite),
];

const GRANTS: [(&str, Permission); 5] = [
    ("x-amz-grant-full-control", Permission::FullControl),
    ("x-amz-grant-read", Permission::Read),
    ("x-amz-grant-write", Permission::Write),
    ("x-amz-grant-read-acp", Permission::ReadAcp),
    ("x-amz-grant-write-acp", Permission::WriteAcp),
];

/// The access list that headers give.
///
/// # Errors
/// `InvalidArgument`, `InvalidRequest` for both a name and grants, `UnresolvableGrantByEmailAddress`.
pub fn from_headers(head: &Head<'_>, users: &impl Users) -> Result<AccessInput, S3Error> {
    let mut grants = Vec::new();
    for (name, permission) in GRANTS {
        let Some(text) = head.header(name)? else { continue };
        for one in text.split(',') {
            if grants.len() == limits::GRANTS {
                return Err(S3Error::new(Code::InvalidArgument, "There are too many grants."));
            }
            grants.push(Grant { grantee: grantee(one, users)?, permission });
        }
    }
    match head.header("x-amz-acl")? {
        Some(_) if !grants.is_empty() => {
            let message = "Specifying both Canned ACLs and Header Grants is not allowed";
            Err(S3Error::new(Code::InvalidRequest, message))
        }
        Some(name) => canned(name).map(AccessInput::Canned),
        None if grants.is_empty() => Ok(AccessInput::None),
        None => Ok(AccessInput::Grants(grants)),
    }
}

/// The access list of this name.
///
/// # Errors
/// `InvalidArgument`.
pub fn canned(name: &str) -> Result<CannedAccess, S3Error> {
    let found = CANNED.iter().find(|(known, _)| *known == name).map(|(_, canned)| *canned);
    found.ok_or_else(|| {
        S3Error::new(Code::InvalidArgument, "The canned ACL is not valid.")
            .with("ArgumentName", "x-amz-acl")
            .with("ArgumentValue", name)
    })
}

/// `id="…"`, `emailAddress="…"` or `uri="…"`.
fn grantee(text: &str, users: &impl Users) -> Result<Grantee, S3Error> {
    let invalid = || S3Error::new(Code::InvalidArgument, "Argument format not recognized");
    let (kind, value) = text.trim().split_once('=').ok_or_else(invalid)?;
    let value = value.trim().trim_matches('"');
    match kind.trim().to_ascii_lowercase().as_str() {
        "id" => known_id(value, users).map(Grantee::User),
        "emailaddress" => by_email(value, users).map(Grantee::User),
        "uri" => group(value).map(Grantee::Group),
        _ => Err(invalid()),
    }
}

/// The access list that replaces another: of headers or of a document, not of both.
///
/// # Errors
/// As both, and `MissingSecurityHeader` if there is neither.
pub fn replacement(head: &Head<'_>, document: &[u8], users: &impl Users) -> Result<AccessInput, S3Error> {
    match (from_headers(head, users)?, document.is_empty()) {
        (AccessInput::None, true) => {
            Err(S3Error::new(Code::MissingSecurityHeader, "Your request was missing a required header"))
        }
        (AccessInput::None, false) => read_list(document, users).map(AccessInput::List),
        (given, true) => Ok(given),
        (_, false) => Err(S3Error::new(Code::UnexpectedContent, "This request does not support content")),
    }
}
