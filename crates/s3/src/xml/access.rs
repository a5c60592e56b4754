//! Access lists and what belongs to them.

use millrace_api::objects::{AccessList, Grant, Grantee, Group, Ownership, Permission, PublicAccessBlock};

use super::{Element, Writer, read};
use crate::error::{Code, S3Error};
use crate::limits;
use crate::users::Users;

const PERMISSIONS: [(Permission, &str); 5] = [
    (Permission::FullControl, "FULL_CONTROL"),
    (Permission::Read, "READ"),
    (Permission::Write, "WRITE"),
    (Permission::ReadAcp, "READ_ACP"),
    (Permission::WriteAcp, "WRITE_ACP"),
];

const GROUPS: [(Group, &str); 3] = [
    (Group::AllUsers, "http://acs.amazonaws.com/groups/global/AllUsers"),
    (Group::AuthenticatedUsers, "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"),
    (Group::LogDelivery, "http://acs.amazonaws.com/groups/s3/LogDelivery"),
];

const OWNERSHIPS: [(Ownership, &str); 3] = [
    (Ownership::BucketOwnerEnforced, "BucketOwnerEnforced"),
    (Ownership::BucketOwnerPreferred, "BucketOwnerPreferred"),
    (Ownership::ObjectWriter, "ObjectWriter"),
];

/// The group that has this URI.
///
/// # Errors
/// `InvalidArgument` for another URI.
pub fn group(uri: &str) -> Result<Group, S3Error> {
    let found = GROUPS.iter().find(|(_, known)| *known == uri).map(|(group, _)| *group);
    found.ok_or_else(|| S3Error::new(Code::InvalidArgument, "Invalid group uri"))
}

/// The canonical id of whoever has this e-mail address.
///
/// # Errors
/// `UnresolvableGrantByEmailAddress`.
pub fn by_email(email: &str, users: &impl Users) -> Result<String, S3Error> {
    users.id_of_email(email).ok_or_else(|| Code::UnresolvableGrant.into())
}

/// A canonical id that somebody has.
///
/// # Errors
/// `InvalidArgument`.
pub fn known_id(id: &str, users: &impl Users) -> Result<String, S3Error> {
    match users.display_name(id) {
        Some(_) => Ok(id.to_owned()),
        None => Err(S3Error::new(Code::InvalidArgument, "Invalid id")),
    }
}

/// Reads `AccessControlPolicy`.
///
/// # Errors
/// `MalformedACLError`, `InvalidArgument` for an unknown grantee, `UnresolvableGrantByEmailAddress`.
pub fn read_list(document: &[u8], users: &impl Users) -> Result<AccessList, S3Error> {
    let root = read(document, "AccessControlPolicy").map_err(as_acl)?;
    let owner = root.child("Owner").and_then(|owner| owner.text_of("ID")).ok_or(Code::MalformedAcl)?.to_owned();
    let list = root.child("AccessControlList").ok_or(Code::MalformedAcl)?;
    let mut grants = Vec::new();
    for grant in list.all("Grant") {
        if grants.len() == limits::GRANTS {
            return Err(Code::MalformedAcl.into());
        }
        let permission = grant.text_of("Permission").ok_or(Code::MalformedAcl)?;
        let permission = PERMISSIONS.iter().find(|(_, name)| *name == permission).ok_or(Code::MalformedAcl)?.0;
        let grantee = read_grantee(grant.child("Grantee").ok_or(Code::MalformedAcl)?, users)?;
        grants.push(Grant { grantee, permission });
    }
    Ok(AccessList { owner, grants })
}

fn as_acl(error: S3Error) -> S3Error {
    if error.code == Code::MalformedXml { Code::MalformedAcl.into() } else { error }
}

fn read_grantee(element: &Element, users: &impl Users) -> Result<Grantee, S3Error> {
    if let Some(id) = element.text_of("ID") {
        return known_id(id, users).map(Grantee::User);
    }
    if let Some(uri) = element.text_of("URI") {
        return group(uri).map(Grantee::Group);
    }
    match element.text_of("EmailAddress") {
        Some(email) => by_email(email, users).map(Grantee::User),
        None => Err(Code::MalformedAcl.into()),
    }
}

/// Writes `AccessControlPolicy`.
#[must_use]
pub fn write_list(list: &AccessList, users: &impl Users) -> String {
    let mut writer = Writer::new("AccessControlPolicy");
    owner(&mut writer, "Owner", &list.owner, users);
    writer.open("AccessControlList");
    // S3 gives grants no order. Groups come first: a reader sees at once what is open to others.
    let (groups, others): (Vec<_>, Vec<_>) =
        list.grants.iter().partition(|grant| matches!(grant.grantee, Grantee::Group(_)));
    for grant in groups.into_iter().chain(others) {
        writer.open("Grant");
        match &grant.grantee {
            Grantee::User(id) => {
                writer.open_typed("Grantee", "CanonicalUser").text("ID", id);
                writer.some("DisplayName", users.display_name(id).as_deref());
            }
            Grantee::Group(group) => {
                let uri = GROUPS.iter().find(|(known, _)| known == group).map_or("", |(_, uri)| uri);
                writer.open_typed("Grantee", "Group").text("URI", uri);
            }
        }
        let name = PERMISSIONS.iter().find(|(known, _)| *known == grant.permission).map_or("", |(_, name)| name);
        writer.close().text("Permission", name).close();
    }
    writer.finish()
}

/// An owner or initiator, with the name that people know.
pub fn owner(writer: &mut Writer, element: &'static str, id: &str, users: &impl Users) {
    writer.open(element).text("ID", id).some("DisplayName", users.display_name(id).as_deref()).close();
}

/// Reads `PublicAccessBlockConfiguration`.
///
/// # Errors
/// `MalformedXML`.
pub fn read_public_access(document: &[u8]) -> Result<PublicAccessBlock, S3Error> {
    let root = read(document, "PublicAccessBlockConfiguration")?;
    Ok(PublicAccessBlock {
        block_public_acls: root.truth_of("BlockPublicAcls")?,
        ignore_public_acls: root.truth_of("IgnorePublicAcls")?,
        block_public_policy: root.truth_of("BlockPublicPolicy")?,
        restrict_public_buckets: root.truth_of("RestrictPublicBuckets")?,
    })
}

/// Writes `PublicAccessBlockConfiguration`.
#[must_use]
pub fn write_public_access(block: &PublicAccessBlock) -> String {
    let mut writer = Writer::new("PublicAccessBlockConfiguration");
    writer
        .value("BlockPublicAcls", block.block_public_acls)
        .value("IgnorePublicAcls", block.ignore_public_acls)
        .value("BlockPublicPolicy", block.block_public_policy)
        .value("RestrictPublicBuckets", block.restrict_public_buckets);
    writer.finish()
}

/// Who owns objects, by its name.
#[must_use]
pub fn ownership(name: &str) -> Option<Ownership> {
    OWNERSHIPS.iter().find(|(_, known)| *known == name).map(|(ownership, _)| *ownership)
}

/// Reads `OwnershipControls`.
///
/// # Errors
/// `MalformedXML`.
pub fn read_ownership(document: &[u8]) -> Result<Ownership, S3Error> {
    let root = read(document, "OwnershipControls")?;
    let mut rules = root.all("Rule");
    let rule = rules.next().ok_or(Code::MalformedXml)?;
    if rules.next().is_some() {
        return Err(Code::MalformedXml.into());
    }
    ownership(rule.needed("ObjectOwnership")?.trim()).ok_or_else(|| Code::MalformedXml.into())
}

/// Writes `OwnershipControls`.
#[must_use]
pub fn write_ownership(ownership: Ownership) -> String {
    let name = OWNERSHIPS.iter().find(|(known, _)| *known == ownership).map_or("", |(_, name)| name);
    let mut writer = Writer::new("OwnershipControls");
    writer.open("Rule").text("ObjectOwnership", name);
    writer.finish()
}
