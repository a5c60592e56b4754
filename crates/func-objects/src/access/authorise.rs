//! Whether somebody may do something: the policy, the access lists and the public-access block together.
//!
//! The order is the one that S3 documents. A `Deny` of the policy counts first, then its `Allow`, then ownership, then
//! the access lists. What is not allowed is denied.

use millrace_api::objects::{Ownership, Permission};

use crate::access::acl::{self, List, Rules};
use crate::access::policy::{Policy, Request, Verdict};

/// What a bucket says about access.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its access list, and with it its owner.
    pub access: List<'a>,
    /// Its policy.
    pub policy: Option<&'a Policy>,
    /// Who owns objects, and what keeps it from being public.
    pub rules: Rules,
    /// Whether it belongs to the app whose function asks.
    pub is_of_asking_app: bool,
}

/// What an action concerns.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// The bucket.
    Bucket,
    /// An object or an upload.
    Object {
        /// Its key.
        key: &'a str,
        /// Its access list, or one of its owner's; `None`: it is not there.
        access: Option<List<'a>>,
    },
}

/// Who may do something that no policy speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// The bucket's owner.
    Owner,
    /// Whom the bucket's list gives this.
    OfBucket(Permission),
    /// Whom the object's list gives this.
    OfObject(Permission),
    /// Who began the upload.
    Initiator,
}

fn need(action: &str) -> Need {
    match action {
        "s3:ListBucket" | "s3:ListBucketVersions" | "s3:ListBucketMultipartUploads" => Need::OfBucket(Permission::Read),
        "s3:PutObject" | "s3:DeleteObject" => Need::OfBucket(Permission::Write),
        "s3:GetBucketAcl" => Need::OfBucket(Permission::ReadAcp),
        "s3:PutBucketAcl" => Need::OfBucket(Permission::WriteAcp),
        "s3:GetObject" | "s3:GetObjectVersion" | "s3:GetObjectAttributes" | "s3:GetObjectVersionAttributes" => {
            Need::OfObject(Permission::Read)
        }
        "s3:GetObjectAcl" | "s3:GetObjectVersionAcl" => Need::OfObject(Permission::ReadAcp),
        "s3:PutObjectAcl" | "s3:PutObjectVersionAcl" => Need::OfObject(Permission::WriteAcp),
        "s3:AbortMultipartUpload" | "s3:ListMultipartUploadParts" => Need::Initiator,
        _ => Need::Owner,
    }
}

/// Whether an action reads or changes an object that has to be there, so that the answer tells whether it is.
#[must_use]
pub fn tells_absence(action: &str) -> bool {
    matches!(need(action), Need::OfObject(_))
}

/// Whether somebody may do something.
///
/// An object that is not there may be read by whoever may list the bucket: they learn nothing that the list does not
/// say. All others get the same refusal as for an object that they may not read.
#[must_use]
pub fn is_allowed(bucket: &Bucket<'_>, action: &str, target: Target<'_>, request: &dyn Request) -> bool {
    let who = request.principal_id();
    let is_owner = who == Some(bucket.access.owner);
    match verdict(bucket, action, target, request) {
        // The owner can always repair the policy.
        Verdict::Deny => return is_owner && is_policy_action(action),
        _ if bucket.is_of_asking_app => return true,
        Verdict::Allow if is_owner || !is_restricted(bucket) => return true,
        Verdict::Allow | Verdict::Silent => {}
    }
    let owner_of_object = match target {
        Target::Object { access: Some(list), .. } => Some(list.owner),
        _ => None,
    };
    let counts = bucket.rules.ownership != Ownership::BucketOwnerEnforced;
    let ignores_public = bucket.rules.block.ignore_public_acls;
    let by_list = |list, permission| counts && acl::allows(list, who, permission, ignores_public);
    match need(action) {
        Need::Owner => is_owner,
        Need::OfBucket(permission) => is_owner || by_list(bucket.access, permission),
        Need::Initiator => is_owner || (who.is_some() && who == owner_of_object),
        Need::OfObject(permission) => match target {
            Target::Object { access: Some(list), .. } => {
                let owns = if counts { who == Some(list.owner) } else { is_owner };
                owns || by_list(list, permission)
            }
            _ => is_owner || by_list(bucket.access, Permission::Read),
        },
    }
}

/// Whether the policy counts for the owner alone.
fn is_restricted(bucket: &Bucket<'_>) -> bool {
    bucket.rules.block.restrict_public_buckets && bucket.policy.is_some_and(Policy::is_public)
}

fn is_policy_action(action: &str) -> bool {
    matches!(action, "s3:GetBucketPolicy" | "s3:PutBucketPolicy" | "s3:DeleteBucketPolicy")
}

/// What the bucket's policy says.
#[must_use]
pub fn verdict(bucket: &Bucket<'_>, action: &str, target: Target<'_>, request: &dyn Request) -> Verdict {
    let Some(policy) = bucket.policy else { return Verdict::Silent };
    match target {
        Target::Bucket => policy.evaluate(action, bucket.name, request),
        Target::Object { key, .. } => policy.evaluate(action, &format!("{}/{key}", bucket.name), request),
    }
}

#[cfg(test)]
#[path = "authorise_tests.rs"]
mod tests;
