//! Whether a requester may do what it asks for: policy, access lists, ownership, what keeps a bucket from being public.
//!
//! Pure. The order is that of S3: an explicit denial of the policy counts before all else; then one allowance of the
//! policy, of ownership or of an access list is enough.

mod acl;
mod pattern;
mod policy;
mod policy_condition;

use millrace_api::objects::{Grant, Ownership, Permission, Refusal, Requester};
use millrace_base::Error;

use crate::settings::Settings;

pub(crate) use acl::{grants_of, is_public};
pub(crate) use policy::{Effect, Policy};

/// Which access list could allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The bucket's.
    Bucket(Permission),
    /// The object's.
    Object(Permission),
    /// None: the bucket's owner, or a policy.
    Owner,
}

/// A question.
pub(crate) struct Ask<'a> {
    pub requester: &'a Requester<'a>,
    pub settings: &'a Settings,
    pub bucket: &'a str,
    /// Empty for questions about the bucket.
    pub key: &'a str,
    /// As policies name it, without `s3:`.
    pub action: &'static str,
    pub need: Need,
    /// Owner and grants of the object, if it is about one that is there.
    pub object: Option<(&'a str, &'a [Grant])>,
    /// Values of condition keys that only this operation has.
    pub context: Vec<(String, String)>,
}

fn denied() -> Error {
    Refusal::AccessDenied.error("Access Denied")
}

/// Whether access lists count in a bucket.
pub(crate) fn lists_count(settings: &Settings) -> bool {
    settings.row.ownership != Some(Ownership::BucketOwnerEnforced)
}

/// Refuses what the requester may not do.
pub(crate) fn authorise(ask: &Ask<'_>) -> Result<(), Error> {
    let (requester, row) = (ask.requester, &ask.settings.row);
    if !requester.expected_bucket_owner.is_empty() && requester.expected_bucket_owner != row.owner {
        return Err(denied());
    }
    if requester.is_system {
        return Ok(());
    }
    let is_owner = requester.id == Some(row.owner.as_str());
    let effect = ask.settings.policy.as_ref().map_or(Effect::None, |policy| policy.evaluate(ask));
    match effect {
        // Whoever owns the bucket can always take a policy away that shuts them out.
        Effect::Deny if is_owner && ask.action.ends_with("BucketPolicy") => {}
        Effect::Deny => return Err(denied()),
        Effect::Allow => {
            let block = row.public_access.unwrap_or_default();
            let is_restricted = block.restrict_public_buckets
                && ask.settings.policy.as_ref().is_some_and(Policy::is_public)
                && !is_owner;
            return if is_restricted { Err(denied()) } else { Ok(()) };
        }
        Effect::None => {}
    }
    if is_allowed_by_ownership(ask, is_owner) || is_allowed_by_list(ask) { Ok(()) } else { Err(denied()) }
}

fn is_allowed_by_ownership(ask: &Ask<'_>, is_owner: bool) -> bool {
    match ask.need {
        Need::Owner | Need::Bucket(_) => is_owner,
        Need::Object(_) => match ask.object {
            // The bucket's owner is told that there is no such object.
            None => is_owner,
            Some(_) if !lists_count(ask.settings) => is_owner,
            Some((owner, _)) => ask.requester.id == Some(owner),
        },
    }
}

fn is_allowed_by_list(ask: &Ask<'_>) -> bool {
    if !lists_count(ask.settings) {
        return false;
    }
    let ignores_public = ask.settings.row.public_access.is_some_and(|block| block.ignore_public_acls);
    let allows = |grants: &[Grant], permission| acl::allows(grants, ask.requester.id, permission, ignores_public);
    match (ask.need, ask.object) {
        (Need::Bucket(permission), _) => allows(&ask.settings.row.grants, permission),
        (Need::Object(permission), Some((_, grants))) => allows(grants, permission),
        // Whoever may list the bucket is told that there is no such object.
        (Need::Object(Permission::Read), None) => allows(&ask.settings.row.grants, Permission::Read),
        (Need::Object(_), None) | (Need::Owner, _) => false,
    }
}
