//! Why the engine of objects refuses an operation, in words that S3 clients know.

use millrace_base::{Error, ErrorCode};

/// One kind of refusal. Its name is the code that S3 documents; the front knows the status that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The requester may not.
    AccessDenied,
    /// Access lists do not count in this bucket.
    AccessControlListNotSupported,
    /// A checksum is not that of the content.
    BadDigest,
    /// The name belongs to somebody else.
    BucketAlreadyExists,
    /// The name belongs to the requester.
    BucketAlreadyOwnedByYou,
    /// Something is in it.
    BucketNotEmpty,
    /// Another request was faster.
    ConditionalRequestConflict,
    /// A part is smaller than 5 MiB and not the last.
    EntityTooSmall,
    /// It would be larger than 5 TiB.
    EntityTooLarge,
    /// An argument makes no sense.
    InvalidArgument,
    /// The bucket's settings do not allow it.
    InvalidBucketState,
    /// No bucket can have this name.
    InvalidBucketName,
    /// A part is not there or has another ETag.
    InvalidPart,
    /// Parts are not in ascending order.
    InvalidPartOrder,
    /// There is no part of this number.
    InvalidPartNumber,
    /// The request makes no sense.
    InvalidRequest,
    /// Tags break a rule.
    InvalidTag,
    /// The policy breaks a rule.
    MalformedPolicy,
    /// The document breaks a rule.
    MalformedXml,
    /// Such an object was made by a delete marker, which has no content.
    MethodNotAllowed,
    /// No setting of this kind.
    NoSuchConfiguration,
    /// No bucket.
    NoSuchBucket,
    /// No policy.
    NoSuchBucketPolicy,
    /// No rules for web pages.
    NoSuchCorsConfiguration,
    /// No object.
    NoSuchKey,
    /// No rules for what vanishes.
    NoSuchLifecycleConfiguration,
    /// No retention or hold.
    NoSuchObjectLockConfiguration,
    /// No tags.
    NoSuchTagSet,
    /// No upload.
    NoSuchUpload,
    /// No version.
    NoSuchVersion,
    /// The client has it already.
    NotModified,
    /// The server does not do this.
    NotImplemented,
    /// The bucket has no object lock.
    ObjectLockConfigurationNotFoundError,
    /// No setting for who owns objects.
    OwnershipControlsNotFoundError,
    /// A condition does not hold.
    PreconditionFailed,
    /// No setting that keeps it from being public.
    NoSuchPublicAccessBlockConfiguration,
    /// The bucket is full.
    QuotaExceeded,
    /// A bucket's owner has too many.
    TooManyBuckets,
    /// E-mail address of nobody.
    UnresolvableGrantByEmailAddress,
    /// The policy is too long.
    PolicyTooLarge,
    /// The metadata are too long.
    MetadataTooLarge,
    /// The key is too long.
    KeyTooLongError,
    /// The bucket's access list gives something to others, so it cannot be made not to count.
    InvalidBucketAclWithObjectOwnership,
    /// A retention is no number of days or years that can be.
    InvalidRetentionPeriod,
}

impl Refusal {
    /// Every one.
    pub const ALL: [Refusal; 44] = [
        Refusal::AccessDenied,
        Refusal::AccessControlListNotSupported,
        Refusal::BadDigest,
        Refusal::BucketAlreadyExists,
        Refusal::BucketAlreadyOwnedByYou,
        Refusal::BucketNotEmpty,
        Refusal::ConditionalRequestConflict,
        Refusal::EntityTooSmall,
        Refusal::EntityTooLarge,
        Refusal::InvalidArgument,
        Refusal::InvalidBucketState,
        Refusal::InvalidBucketName,
        Refusal::InvalidPart,
        Refusal::InvalidPartOrder,
        Refusal::InvalidPartNumber,
        Refusal::InvalidRequest,
        Refusal::InvalidTag,
        Refusal::MalformedPolicy,
        Refusal::MalformedXml,
        Refusal::MethodNotAllowed,
        Refusal::NoSuchConfiguration,
        Refusal::NoSuchBucket,
        Refusal::NoSuchBucketPolicy,
        Refusal::NoSuchCorsConfiguration,
        Refusal::NoSuchKey,
        Refusal::NoSuchLifecycleConfiguration,
        Refusal::NoSuchObjectLockConfiguration,
        Refusal::NoSuchTagSet,
        Refusal::NoSuchUpload,
        Refusal::NoSuchVersion,
        Refusal::NotModified,
        Refusal::NotImplemented,
        Refusal::ObjectLockConfigurationNotFoundError,
        Refusal::OwnershipControlsNotFoundError,
        Refusal::PreconditionFailed,
        Refusal::NoSuchPublicAccessBlockConfiguration,
        Refusal::QuotaExceeded,
        Refusal::TooManyBuckets,
        Refusal::UnresolvableGrantByEmailAddress,
        Refusal::PolicyTooLarge,
        Refusal::MetadataTooLarge,
        Refusal::KeyTooLongError,
        Refusal::InvalidBucketAclWithObjectOwnership,
        Refusal::InvalidRetentionPeriod,
    ];

    /// The code that S3 documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AccessDenied => "AccessDenied",
            Self::AccessControlListNotSupported => "AccessControlListNotSupported",
            Self::BadDigest => "BadDigest",
            Self::BucketAlreadyExists => "BucketAlreadyExists",
            Self::BucketAlreadyOwnedByYou => "BucketAlreadyOwnedByYou",
            Self::BucketNotEmpty => "BucketNotEmpty",
            Self::ConditionalRequestConflict => "ConditionalRequestConflict",
            Self::EntityTooSmall => "EntityTooSmall",
            Self::EntityTooLarge => "EntityTooLarge",
            Self::InvalidArgument => "InvalidArgument",
            Self::InvalidBucketState => "InvalidBucketState",
            Self::InvalidBucketName => "InvalidBucketName",
            Self::InvalidPart => "InvalidPart",
            Self::InvalidPartOrder => "InvalidPartOrder",
            Self::InvalidPartNumber => "InvalidPartNumber",
            Self::InvalidRequest => "InvalidRequest",
            Self::InvalidTag => "InvalidTag",
            Self::MalformedPolicy => "MalformedPolicy",
            Self::MalformedXml => "MalformedXML",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NoSuchConfiguration => "NoSuchConfiguration",
            Self::NoSuchBucket => "NoSuchBucket",
            Self::NoSuchBucketPolicy => "NoSuchBucketPolicy",
            Self::NoSuchCorsConfiguration => "NoSuchCORSConfiguration",
            Self::NoSuchKey => "NoSuchKey",
            Self::NoSuchLifecycleConfiguration => "NoSuchLifecycleConfiguration",
            Self::NoSuchObjectLockConfiguration => "NoSuchObjectLockConfiguration",
            Self::NoSuchTagSet => "NoSuchTagSet",
            Self::NoSuchUpload => "NoSuchUpload",
            Self::NoSuchVersion => "NoSuchVersion",
            Self::NotModified => "NotModified",
            Self::NotImplemented => "NotImplemented",
            Self::ObjectLockConfigurationNotFoundError => "ObjectLockConfigurationNotFoundError",
            Self::OwnershipControlsNotFoundError => "OwnershipControlsNotFoundError",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::NoSuchPublicAccessBlockConfiguration => "NoSuchPublicAccessBlockConfiguration",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::TooManyBuckets => "TooManyBuckets",
            Self::UnresolvableGrantByEmailAddress => "UnresolvableGrantByEmailAddress",
            Self::PolicyTooLarge => "PolicyTooLarge",
            Self::MetadataTooLarge => "MetadataTooLarge",
            Self::KeyTooLongError => "KeyTooLongError",
            Self::InvalidBucketAclWithObjectOwnership => "InvalidBucketAclWithObjectOwnership",
            Self::InvalidRetentionPeriod => "InvalidRetentionPeriod",
        }
    }

    /// As an error of a call. A function that used `ctx.object` finds the code in the error's detail.
    #[must_use]
    pub fn error(self, message: impl Into<String>) -> Error {
        let detail = serde_json::json!({ "code": self.as_str() }).to_string();
        Error { code: ErrorCode::ObjectRefused, message: message.into(), detail: Some(detail) }
    }

    /// The refusal that an error is, if it is one.
    #[must_use]
    pub fn of(error: &Error) -> Option<Self> {
        if error.code != ErrorCode::ObjectRefused {
            return None;
        }
        let detail: serde_json::Value = serde_json::from_str(error.detail.as_deref()?).ok()?;
        let code = detail.get("code")?.as_str()?;
        Self::ALL.into_iter().find(|refusal| refusal.as_str() == code)
    }
}

/// What the detail of an error says where the disk has lost a body.
const BODY_LOST: &str = "{\"code\":\"BodyLost\"}";

/// The disk has lost what an object consists of. To try again does not help.
#[must_use]
pub fn body_lost(what: impl Into<String>) -> Error {
    Error { code: ErrorCode::Internal, message: what.into(), detail: Some(BODY_LOST.to_owned()) }
}

/// Whether an error is [`body_lost`].
#[must_use]
pub fn is_body_lost(error: &Error) -> bool {
    error.code == ErrorCode::Internal && error.detail.as_deref() == Some(BODY_LOST)
}
