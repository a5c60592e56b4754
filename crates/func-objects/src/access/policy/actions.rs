//! The names of actions that a bucket policy may use, and what each is about.

/// What an action is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The bucket: the resource is its name.
    Bucket,
    /// An object in it.
    Object,
}

const BUCKET_ACTIONS: &[&str] = &[
    "CreateBucket",
    "DeleteBucket",
    "DeleteBucketOwnershipControls",
    "DeleteBucketPolicy",
    "DeleteBucketWebsite",
    "GetAccelerateConfiguration",
    "GetAnalyticsConfiguration",
    "GetBucketAcl",
    "GetBucketCORS",
    "GetBucketLocation",
    "GetBucketLogging",
    "GetBucketNotification",
    "GetBucketObjectLockConfiguration",
    "GetBucketOwnershipControls",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketPublicAccessBlock",
    "GetBucketRequestPayment",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetBucketWebsite",
    "GetEncryptionConfiguration",
    "GetIntelligentTieringConfiguration",
    "GetInventoryConfiguration",
    "GetLifecycleConfiguration",
    "GetMetricsConfiguration",
    "GetReplicationConfiguration",
    "ListBucket",
    "ListBucketMultipartUploads",
    "ListBucketVersions",
    "PutAccelerateConfiguration",
    "PutAnalyticsConfiguration",
    "PutBucketAcl",
    "PutBucketCORS",
    "PutBucketLogging",
    "PutBucketNotification",
    "PutBucketObjectLockConfiguration",
    "PutBucketOwnershipControls",
    "PutBucketPolicy",
    "PutBucketPublicAccessBlock",
    "PutBucketRequestPayment",
    "PutBucketTagging",
    "PutBucketVersioning",
    "PutBucketWebsite",
    "PutEncryptionConfiguration",
    "PutIntelligentTieringConfiguration",
    "PutInventoryConfiguration",
    "PutLifecycleConfiguration",
    "PutMetricsConfiguration",
    "PutReplicationConfiguration",
    "CreateSession",
    "GetBucketMetadataTableConfiguration",
    "CreateBucketMetadataTableConfiguration",
    "DeleteBucketMetadataTableConfiguration",
    "ListTagsForResource",
    "TagResource",
    "UntagResource",
    "PostBucketLogging",
    "GetBucketAbac",
    "PutBucketAbac",
];

const OBJECT_ACTIONS: &[&str] = &[
    "AbortMultipartUpload",
    "BypassGovernanceRetention",
    "DeleteObject",
    "DeleteObjectTagging",
    "DeleteObjectVersion",
    "DeleteObjectVersionTagging",
    "GetObject",
    "GetObjectAcl",
    "GetObjectAttributes",
    "GetObjectLegalHold",
    "GetObjectRetention",
    "GetObjectTagging",
    "GetObjectTorrent",
    "GetObjectVersion",
    "GetObjectVersionAcl",
    "GetObjectVersionAttributes",
    "GetObjectVersionForReplication",
    "GetObjectVersionTagging",
    "GetObjectVersionTorrent",
    "InitiateReplication",
    "ListMultipartUploadParts",
    "ObjectOwnerOverrideToBucketOwner",
    "PutObject",
    "PutObjectAcl",
    "PutObjectLegalHold",
    "PutObjectRetention",
    "PutObjectTagging",
    "PutObjectVersionAcl",
    "PutObjectVersionTagging",
    "ReplicateDelete",
    "ReplicateObject",
    "ReplicateTags",
    "RestoreObject",
    "UpdateObjectEncryption",
];

/// Whether a pattern in lower case is `*`, or matches the name of an action. A misspelt name would silently give or
/// deny nothing.
pub fn is_known(pattern: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    let Some(name) = pattern.strip_prefix("s3:") else { return false };
    BUCKET_ACTIONS
        .iter()
        .chain(OBJECT_ACTIONS)
        .any(|action| crate::access::glob::is_match(name, &action.to_ascii_lowercase()))
}

/// What an action is about; `None` where it is a pattern, which may stand for both.
pub fn about(pattern: &str) -> Option<About> {
    let name = pattern.strip_prefix("s3:")?;
    let is_in = |actions: &[&str]| actions.iter().any(|action| action.eq_ignore_ascii_case(name));
    if is_in(OBJECT_ACTIONS) {
        Some(About::Object)
    } else if is_in(BUCKET_ACTIONS) {
        Some(About::Bucket)
    } else {
        None
    }
}
