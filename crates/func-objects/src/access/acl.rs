//! Access lists: whom they allow what, and what named ones stand for.

use millrace_api::objects::{AccessInput, AccessList, CannedAccess, Grant, Grantee, Group, Permission, Refusal};
use millrace_base::Error;

/// Lines of an access list. S3's bound.
const GRANTS: usize = 100;

/// Whether a list allows a requester something.
pub(crate) fn allows(grants: &[Grant], id: Option<&str>, permission: Permission, ignores_public: bool) -> bool {
    grants.iter().any(|grant| {
        let is_for = match &grant.grantee {
            Grantee::User(user) => id == Some(user.as_str()),
            Grantee::Group(Group::AllUsers) => !ignores_public,
            Grantee::Group(Group::AuthenticatedUsers) => id.is_some() && !ignores_public,
            Grantee::Group(Group::LogDelivery) => false,
        };
        is_for && (grant.permission == permission || grant.permission == Permission::FullControl)
    })
}

/// Whether a list gives anything to people that nobody chose.
pub(crate) fn is_public(grants: &[Grant]) -> bool {
    let is_open = |grant: &Grant| {
        matches!(grant.grantee, Grantee::Group(Group::AllUsers) | Grantee::Group(Group::AuthenticatedUsers))
    };
    grants.iter().any(is_open)
}

/// The list that a request gives, for something of `owner` in a bucket of `bucket_owner`.
///
/// # Errors
/// A list of another owner, or with too many lines.
pub(crate) fn grants_of(input: &AccessInput, owner: &str, bucket_owner: &str) -> Result<Vec<Grant>, Error> {
    let of = |grantee: Grantee, permission| Grant { grantee, permission };
    let user = |id: &str, permission| of(Grantee::User(id.to_owned()), permission);
    let full = || user(owner, Permission::FullControl);
    let group = |group, permission| of(Grantee::Group(group), permission);
    let grants = match input {
        AccessInput::None => vec![full()],
        AccessInput::Grants(grants) => grants.clone(),
        AccessInput::List(AccessList { owner: named, grants }) => {
            if named != owner {
                return Err(Refusal::AccessDenied.error("the owner in an access list cannot be changed"));
            }
            grants.clone()
        }
        AccessInput::Canned(canned) => {
            let mut grants = vec![full()];
            match canned {
                CannedAccess::Private => {}
                CannedAccess::PublicRead => grants.push(group(Group::AllUsers, Permission::Read)),
                CannedAccess::PublicReadWrite => {
                    grants.push(group(Group::AllUsers, Permission::Read));
                    grants.push(group(Group::AllUsers, Permission::Write));
                }
                CannedAccess::AuthenticatedRead => grants.push(group(Group::AuthenticatedUsers, Permission::Read)),
                CannedAccess::BucketOwnerRead if owner != bucket_owner => {
                    grants.push(user(bucket_owner, Permission::Read));
                }
                CannedAccess::BucketOwnerFullControl if owner != bucket_owner => {
                    grants.push(user(bucket_owner, Permission::FullControl));
                }
                CannedAccess::BucketOwnerRead | CannedAccess::BucketOwnerFullControl => {}
                CannedAccess::LogDeliveryWrite => {
                    grants.push(group(Group::LogDelivery, Permission::Write));
                    grants.push(group(Group::LogDelivery, Permission::ReadAcp));
                }
            }
            grants
        }
    };
    if grants.len() > GRANTS {
        return Err(Refusal::MalformedXml.error(format!("an access list has at most {GRANTS} grants")));
    }
    Ok(grants)
}
