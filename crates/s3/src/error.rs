//! The errors of S3 as clients know them: code, HTTP status and sentence.

use std::fmt;

macro_rules! codes {
    ($($name:ident $text:literal $status:literal $message:literal,)*) => {
        /// What went wrong, in the words that S3 documents.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $message] $name,)*
        }

        impl Code {
            /// Every one.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// As clients read it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status that goes with it.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// What it says if there is nothing more precise to say.
            #[must_use]
            pub fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }
        }
    };
}

codes! {
    AccessControlListNotSupported "AccessControlListNotSupported" 400 "The bucket does not allow ACLs.",
    AccessDenied "AccessDenied" 403 "Access Denied",
    AuthorizationHeaderMalformed "AuthorizationHeaderMalformed" 400 "The authorization header is malformed.",
    BadDigest "BadDigest" 400 "The digest that you specified is not that of the content.",
    BucketAlreadyExists "BucketAlreadyExists" 409 "The bucket's name is taken.",
    BucketAlreadyOwnedByYou "BucketAlreadyOwnedByYou" 409 "You own this bucket already.",
    BucketNotEmpty "BucketNotEmpty" 409 "The bucket is not empty.",
    ConditionalRequestConflict "ConditionalRequestConflict" 409 "Another request for the same object was faster. Try again.",
    EntityTooLarge "EntityTooLarge" 400 "The object would exceed the largest size allowed.",
    EntityTooSmall "EntityTooSmall" 400 "A part other than the last is smaller than 5 MiB.",
    IllegalVersionId "IllegalVersionIdException" 400 "The version id is not valid.",
    IncompleteBody "IncompleteBody" 400 "The body has fewer bytes than the header Content-Length says.",
    InternalError "InternalError" 500 "The server failed. Try again.",
    InvalidAccessKeyId "InvalidAccessKeyId" 403 "There is no such access key.",
    InvalidArgument "InvalidArgument" 400 "An argument is not valid.",
    InvalidBucketName "InvalidBucketName" 400 "No bucket can have this name.",
    InvalidBucketState "InvalidBucketState" 409 "The bucket's settings do not allow this.",
    InvalidDigest "InvalidDigest" 400 "The digest is not valid.",
    InvalidLocationConstraint "InvalidLocationConstraint" 400 "The specified location-constraint is not valid",
    InvalidPart "InvalidPart" 400 "A part is not there, or its ETag is another.",
    InvalidPartNumber "InvalidPartNumber" 416 "The object has no part of this number.",
    InvalidPartOrder "InvalidPartOrder" 400 "The parts are not in ascending order.",
    InvalidRange "InvalidRange" 416 "The requested range is outside the object.",
    InvalidRequest "InvalidRequest" 400 "The request is not valid.",
    InvalidStorageClass "InvalidStorageClass" 400 "There is no such storage class.",
    InvalidTag "InvalidTag" 400 "A tag is not valid.",
    InvalidUri "InvalidURI" 400 "The URI cannot be read.",
    KeyTooLong "KeyTooLongError" 400 "The key is too long.",
    MalformedAcl "MalformedACLError" 400 "The ACL is not well-formed or breaks a rule.",
    MalformedPolicy "MalformedPolicy" 400 "The policy is not well-formed or breaks a rule.",
    MalformedXml "MalformedXML" 400 "The document is not well-formed or breaks a rule.",
    MaxMessageLengthExceeded "MaxMessageLengthExceeded" 400 "The body is too large.",
    MetadataTooLarge "MetadataTooLarge" 400 "The metadata exceed 2 KB.",
    MethodNotAllowed "MethodNotAllowed" 405 "The method is not allowed for this resource.",
    MissingContentLength "MissingContentLength" 411 "The header Content-Length is needed.",
    MissingRequestBody "MissingRequestBodyError" 400 "The body is empty.",
    NoSuchBucket "NoSuchBucket" 404 "The bucket does not exist.",
    NoSuchBucketPolicy "NoSuchBucketPolicy" 404 "The bucket has no policy.",
    NoSuchConfiguration "NoSuchConfiguration" 404 "The configuration does not exist.",
    NoSuchCors "NoSuchCORSConfiguration" 404 "The bucket has no CORS configuration.",
    NoSuchEncryption "ServerSideEncryptionConfigurationNotFoundError" 404 "The bucket has no encryption configuration.",
    NoSuchKey "NoSuchKey" 404 "The key does not exist.",
    NoSuchLifecycle "NoSuchLifecycleConfiguration" 404 "The bucket has no lifecycle configuration.",
    NoSuchObjectLock "NoSuchObjectLockConfiguration" 404 "The object has no object lock configuration.",
    NoSuchPublicAccessBlock "NoSuchPublicAccessBlockConfiguration" 404 "The bucket has no public access block.",
    NoSuchReplication "ReplicationConfigurationNotFoundError" 404 "The bucket has no replication configuration.",
    NoSuchTagSet "NoSuchTagSet" 404 "There are no tags.",
    NoSuchUpload "NoSuchUpload" 404 "The upload does not exist. It may have been completed or aborted.",
    NoSuchVersion "NoSuchVersion" 404 "The version does not exist.",
    NoSuchWebsite "NoSuchWebsiteConfiguration" 404 "The bucket has no website configuration.",
    NotImplemented "NotImplemented" 501 "This server does not implement what a header or the request asks for.",
    NotModified "NotModified" 304 "Not Modified",
    ObjectLockNotFound "ObjectLockConfigurationNotFoundError" 404 "The bucket has no object lock configuration.",
    OwnershipNotFound "OwnershipControlsNotFoundError" 404 "The bucket has no ownership controls.",
    PolicyTooLarge "PolicyTooLarge" 400 "The policy is too large.",
    PreconditionFailed "PreconditionFailed" 412 "A condition of the request does not hold.",
    QuotaExceeded "QuotaExceeded" 403 "The bucket's quota is used up.",
    RequestTimeout "RequestTimeout" 400 "The request did not arrive in time.",
    SlowDown "SlowDown" 503 "The server is busy. Try again later.",
    TooManyBuckets "TooManyBuckets" 400 "You have as many buckets as you may have.",
    UnexpectedContent "UnexpectedContent" 400 "This request has no body.",
    UnresolvableGrant "UnresolvableGrantByEmailAddress" 400 "Nobody has this e-mail address.",
    XAmzContentSha256Mismatch "XAmzContentSHA256Mismatch" 400 "The header x-amz-content-sha256 is not the body's.",
}

/// An error as it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Error {
    /// Its code.
    pub code: Code,
    /// A sentence for a person.
    pub message: String,
}

impl S3Error {
    /// With a sentence of its own.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<Code> for S3Error {
    fn from(code: Code) -> Self {
        Self::new(code, code.message())
    }
}

impl fmt::Display for S3Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for S3Error {}
