//! Which actions of policies an operation needs. The names are those that S3 documents beside each operation.

use millrace_api::objects::{ConfigurationKind, DeleteOne, ObjectOperation, UploadInput};

/// An action, and whether it concerns an object.
pub type Needed = (&'static str, bool);

/// The action that ends a retention of governance mode early.
pub const BYPASS: &str = "s3:BypassGovernanceRetention";

/// The actions that an operation needs, all of them. Empty: nobody is asked, or the engine decides otherwise, as for
/// making a bucket. Of many deletions each is an operation of its own.
/// [`BYPASS`] is asked for only where a lock holds.
#[must_use]
pub fn of(operation: &ObjectOperation) -> Vec<Needed> {
    use ObjectOperation as O;
    let bucket = |action| vec![(action, false)];
    let object = |action| vec![(action, true)];
    let by_version =
        |version: &Option<String>, plain, versioned| vec![(if version.is_some() { versioned } else { plain }, true)];
    match operation {
        O::ListBuckets(_) | O::CreateBucket { .. } | O::GetCors { .. } | O::DeleteMany { .. } => Vec::new(),
        O::SetQuota(_) | O::SetApp(_) | O::SetSlices(_) | O::RefersTo { .. } => Vec::new(),
        O::HeadBucket | O::List(_) => bucket("s3:ListBucket"),
        O::ListVersions(_) => bucket("s3:ListBucketVersions"),
        O::ListUploads(_) => bucket("s3:ListBucketMultipartUploads"),
        O::DeleteBucket => bucket("s3:DeleteBucket"),
        O::GetConfiguration(kind) => bucket(of_reading(*kind)),
        O::PutConfiguration { configuration, .. } => bucket(of_writing(configuration.kind())),
        O::DeleteConfiguration(ConfigurationKind::Policy) => bucket("s3:DeleteBucketPolicy"),
        O::DeleteConfiguration(kind) => bucket(of_writing(*kind)),
        O::GetPolicyStatus => bucket("s3:GetBucketPolicyStatus"),
        // Not an action that S3 has: the owner's, and whom a policy gives all that begins so.
        O::GetUsage => bucket("s3:GetBucketUsage"),
        O::CheckWrite { write, .. } => of(write),
        O::Get(conditions) | O::GetSource(conditions) | O::GetWhole(conditions) => {
            by_version(&conditions.version, "s3:GetObject", "s3:GetObjectVersion")
        }
        O::GetAttributes { version, .. } => match version {
            None => vec![("s3:GetObject", true), ("s3:GetObjectAttributes", true)],
            Some(_) => vec![("s3:GetObjectVersion", true), ("s3:GetObjectVersionAttributes", true)],
        },
        O::GetAccess(version) => by_version(version, "s3:GetObjectAcl", "s3:GetObjectVersionAcl"),
        O::GetTags(version) => by_version(version, "s3:GetObjectTagging", "s3:GetObjectVersionTagging"),
        O::GetRetention(_) => object("s3:GetObjectRetention"),
        O::GetLegalHold(_) => object("s3:GetObjectLegalHold"),
        O::Put(put) => of_upload(&put.input),
        O::CreateUpload(input) => of_upload(input),
        O::PutPart(_) | O::CompleteUpload { .. } => object("s3:PutObject"),
        O::Delete(one) => of_deletion(one),
        O::PutAccess { version, .. } => by_version(version, "s3:PutObjectAcl", "s3:PutObjectVersionAcl"),
        O::PutTags { version, tags } if tags.is_empty() => {
            by_version(version, "s3:DeleteObjectTagging", "s3:DeleteObjectVersionTagging")
        }
        O::PutTags { version, .. } => by_version(version, "s3:PutObjectTagging", "s3:PutObjectVersionTagging"),
        O::PutRetention { .. } => object("s3:PutObjectRetention"),
        O::PutLegalHold { .. } => object("s3:PutObjectLegalHold"),
        O::ListParts { .. } => object("s3:ListMultipartUploadParts"),
        O::AbortUpload { .. } => object("s3:AbortMultipartUpload"),
    }
}

fn of_deletion(one: &DeleteOne) -> Vec<Needed> {
    vec![(if one.version.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" }, true)]
}

/// The access list needs no action of its own: who writes an object may set it anyway, as its owner.
fn of_upload(input: &UploadInput) -> Vec<Needed> {
    let mut needed = vec![("s3:PutObject", true)];
    if !input.tags.is_empty() {
        needed.push(("s3:PutObjectTagging", true));
    }
    if input.retention.is_some() {
        needed.push(("s3:PutObjectRetention", true));
    }
    if input.legal_hold.is_some() {
        needed.push(("s3:PutObjectLegalHold", true));
    }
    needed
}

fn of_reading(kind: ConfigurationKind) -> &'static str {
    match kind {
        ConfigurationKind::Versioning => "s3:GetBucketVersioning",
        ConfigurationKind::Cors => "s3:GetBucketCORS",
        ConfigurationKind::Lifecycle => "s3:GetLifecycleConfiguration",
        ConfigurationKind::Policy => "s3:GetBucketPolicy",
        ConfigurationKind::Tagging => "s3:GetBucketTagging",
        ConfigurationKind::Access => "s3:GetBucketAcl",
        ConfigurationKind::Ownership => "s3:GetBucketOwnershipControls",
        ConfigurationKind::PublicAccess => "s3:GetBucketPublicAccessBlock",
        ConfigurationKind::ObjectLock => "s3:GetBucketObjectLockConfiguration",
        ConfigurationKind::Notification => "s3:GetBucketNotification",
        ConfigurationKind::RequestPayment => "s3:GetBucketRequestPayment",
    }
}

fn of_writing(kind: ConfigurationKind) -> &'static str {
    match kind {
        ConfigurationKind::Versioning => "s3:PutBucketVersioning",
        ConfigurationKind::Cors => "s3:PutBucketCORS",
        ConfigurationKind::Lifecycle => "s3:PutLifecycleConfiguration",
        ConfigurationKind::Policy => "s3:PutBucketPolicy",
        ConfigurationKind::Tagging => "s3:PutBucketTagging",
        ConfigurationKind::Access => "s3:PutBucketAcl",
        ConfigurationKind::Ownership => "s3:PutBucketOwnershipControls",
        ConfigurationKind::PublicAccess => "s3:PutBucketPublicAccessBlock",
        ConfigurationKind::ObjectLock => "s3:PutBucketObjectLockConfiguration",
        ConfigurationKind::Notification => "s3:PutBucketNotification",
        ConfigurationKind::RequestPayment => "s3:PutBucketRequestPayment",
    }
}
