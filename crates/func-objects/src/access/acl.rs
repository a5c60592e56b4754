//! Access lists: what canned ones stand for, who owns what is written, which lists are refused, what a list allows.
//!
//! Must not know policies: [`crate::access::authorise`] puts both together.

use millrace_api::objects::{
    AccessInput, AccessList, CannedAccess, Grant, Grantee, Group, Ownership, Permission, PublicAccessBlock, Refusal,
};
use millrace_base::Error;

use crate::limits;

/// Who has what to do with an object or bucket whose list is made.
#[derive(Clone, Copy, Debug)]
pub struct Owners<'a> {
    /// Who owns it: canonical id.
    pub owner: &'a str,
    /// Of an object: who owns its bucket.
    pub bucket_owner: Option<&'a str>,
}

/// The bucket's settings that bear on access lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Who owns objects.
    pub ownership: Ownership,
    /// What keeps it from being public.
    pub block: PublicAccessBlock,
}

/// An access list as rows keep it.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The owner's canonical id.
    pub owner: &'a str,
    /// What is given to whom.
    pub grants: &'a [Grant],
}

impl<'a> From<&'a AccessList> for List<'a> {
    fn from(list: &'a AccessList) -> Self {
        Self { owner: &list.owner, grants: &list.grants }
    }
}

/// Whether somebody beside named users gets something.
#[must_use]
pub fn is_public(grants: &[Grant]) -> bool {
    grants.iter().any(|grant| is_public_grantee(&grant.grantee))
}

fn is_public_grantee(grantee: &Grantee) -> bool {
    matches!(grantee, Grantee::Group(Group::AllUsers | Group::AuthenticatedUsers))
}

/// The list of what belongs to its owner alone.
#[must_use]
pub fn private(owner: &str) -> AccessList {
    AccessList { owner: owner.to_owned(), grants: vec![to_user(owner, Permission::FullControl)] }
}

fn to_user(id: &str, permission: Permission) -> Grant {
    Grant { grantee: Grantee::User(id.to_owned()), permission }
}

/// The list that an input stands for.
fn expand(input: &AccessInput, owners: Owners<'_>) -> Result<AccessList, Error> {
    let list = match input {
        AccessInput::None => private(owners.owner),
        AccessInput::Canned(canned) => {
            let mut list = private(owners.owner);
            list.grants.extend(grants_of(*canned, owners));
            list
        }
        AccessInput::Grants(grants) => AccessList { owner: owners.owner.to_owned(), grants: grants.clone() },
        AccessInput::List(list) if list.owner != owners.owner => {
            return Err(Refusal::AccessDenied.error("An access list cannot change the owner"));
        }
        AccessInput::List(list) => list.clone(),
    };
    if list.grants.len() > limits::GRANTS {
        return Err(Refusal::InvalidRequest.error(format!("An access list has at most {} grants", limits::GRANTS)));
    }
    Ok(list)
}

/// What a canned list gives beside the owner's full control.
fn grants_of(canned: CannedAccess, owners: Owners<'_>) -> Vec<Grant> {
    let to_group = |group, permission| Grant { grantee: Grantee::Group(group), permission };
    // For a bucket these two mean nothing, and S3 ignores them.
    let to_bucket_owner = |permission| match owners.bucket_owner {
        Some(id) if id != owners.owner => vec![to_user(id, permission)],
        _ => Vec::new(),
    };
    match canned {
        CannedAccess::Private => Vec::new(),
        CannedAccess::PublicRead => vec![to_group(Group::AllUsers, Permission::Read)],
        CannedAccess::PublicReadWrite => {
            vec![to_group(Group::AllUsers, Permission::Read), to_group(Group::AllUsers, Permission::Write)]
        }
        CannedAccess::AuthenticatedRead => vec![to_group(Group::AuthenticatedUsers, Permission::Read)],
        CannedAccess::BucketOwnerRead => to_bucket_owner(Permission::Read),
        CannedAccess::BucketOwnerFullControl => to_bucket_owner(Permission::FullControl),
        CannedAccess::LogDeliveryWrite => {
            vec![to_group(Group::LogDelivery, Permission::Write), to_group(Group::LogDelivery, Permission::ReadAcp)]
        }
    }
}

/// Whether an input asks for what is the case anyway where access lists do not count.
fn asks_for_bucket_owner(input: &AccessInput, bucket_owner: &str) -> bool {
    let is_theirs = |grants: &[Grant]| {
        !grants.is_empty() && grants.iter().all(|grant| *grant == to_user(bucket_owner, Permission::FullControl))
    };
    match input {
        AccessInput::None | AccessInput::Canned(CannedAccess::BucketOwnerFullControl) => true,
        AccessInput::Canned(_) => false,
        AccessInput::Grants(grants) => is_theirs(grants),
        AccessInput::List(list) => list.owner == bucket_owner && is_theirs(&list.grants),
    }
}

/// The list, with its owner, of an object that is written.
///
/// What somebody without a signature writes belongs to the bucket's owner: nobody could prove later to be its writer.
///
/// # Errors
/// `AccessControlListNotSupported` where lists do not count, `AccessDenied` for a public one that is blocked.
pub fn of_new_object(
    input: &AccessInput,
    writer: Option<&str>,
    bucket_owner: &str,
    rules: Rules,
) -> Result<AccessList, Error> {
    let owner = match rules.ownership {
        Ownership::BucketOwnerEnforced if asks_for_bucket_owner(input, bucket_owner) => {
            return Ok(private(bucket_owner));
        }
        Ownership::BucketOwnerEnforced => return Err(not_supported()),
        Ownership::BucketOwnerPreferred if *input == AccessInput::Canned(CannedAccess::BucketOwnerFullControl) => {
            bucket_owner
        }
        Ownership::BucketOwnerPreferred | Ownership::ObjectWriter => writer.unwrap_or(bucket_owner),
    };
    unblocked(expand(input, Owners { owner, bucket_owner: Some(bucket_owner) })?, rules)
}

/// The list of a bucket that is made.
///
/// # Errors
/// `InvalidBucketAclWithObjectOwnership`: see [`check_ownership`].
pub fn of_new_bucket(input: &AccessInput, owner: &str, ownership: Ownership) -> Result<AccessList, Error> {
    let list = expand(input, Owners { owner, bucket_owner: None })?;
    check_ownership(List::from(&list), ownership)?;
    Ok(list)
}

/// The list that replaces another.
///
/// # Errors
/// `AccessControlListNotSupported` where lists do not count, `AccessDenied` for a public one that is blocked and for one
/// that names another owner.
pub fn replaced(input: &AccessInput, owners: Owners<'_>, rules: Rules) -> Result<AccessList, Error> {
    if rules.ownership == Ownership::BucketOwnerEnforced {
        return Err(not_supported());
    }
    unblocked(expand(input, owners)?, rules)
}

/// Whether a bucket with this list may get this ownership: a list that gives something to others must not silently
/// stop to count.
///
/// # Errors
/// `InvalidBucketAclWithObjectOwnership`.
pub fn check_ownership(list: List<'_>, ownership: Ownership) -> Result<(), Error> {
    let is_owners = |grant: &Grant| matches!(&grant.grantee, Grantee::User(id) if id == list.owner);
    if ownership != Ownership::BucketOwnerEnforced || list.grants.iter().all(is_owners) {
        return Ok(());
    }
    let message = "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    Err(Refusal::InvalidBucketAclWithObjectOwnership.error(message))
}

fn unblocked(list: AccessList, rules: Rules) -> Result<AccessList, Error> {
    if rules.block.block_public_acls && is_public(&list.grants) {
        return Err(Refusal::AccessDenied.error("The bucket's public access block refuses public access lists"));
    }
    Ok(list)
}

fn not_supported() -> Error {
    Refusal::AccessControlListNotSupported.error("The bucket does not allow ACLs")
}

/// Whether a list gives somebody a permission; `None`: somebody without a signature. The owner always may read and
/// replace it.
#[must_use]
pub fn allows(list: List<'_>, who: Option<&str>, permission: Permission, ignores_public: bool) -> bool {
    if matches!(permission, Permission::ReadAcp | Permission::WriteAcp) && who == Some(list.owner) {
        return true;
    }
    list.grants.iter().any(|grant| {
        (grant.permission == permission || grant.permission == Permission::FullControl)
            && !(ignores_public && is_public_grantee(&grant.grantee))
            && match &grant.grantee {
                Grantee::User(id) => who == Some(id.as_str()),
                Grantee::Group(Group::AllUsers) => true,
                Grantee::Group(Group::AuthenticatedUsers) => who.is_some(),
                Grantee::Group(Group::LogDelivery) => false,
            }
    })
}

#[cfg(test)]
#[path = "acl_tests.rs"]
mod tests;
