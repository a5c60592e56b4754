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
    AccessForbidden "AccessForbidden" 403 "The bucket's rules do not allow this to pages of this origin.",
    AccountProblem "AccountProblem" 403 "The account has a problem that prevents this.",
    AllAccessDisabled "AllAccessDisabled" 403 "All access to this resource is disabled.",
    AmbiguousGrantByEmailAddress "AmbiguousGrantByEmailAddress" 400 "Several accounts have this e-mail address.",
    AuthorizationHeaderMalformed "AuthorizationHeaderMalformed" 400 "The authorization header is malformed.",
    AuthorizationQueryParametersError "AuthorizationQueryParametersError" 400 "A parameter of the query that signs the request is missing or malformed.",
    BadDigest "BadDigest" 400 "The digest that you specified is not that of the content.",
    BadRequest "BadRequest" 400 "The request lacks something that it needs.",
    BucketAlreadyExists "BucketAlreadyExists" 409 "The bucket's name is taken.",
    BucketAlreadyOwnedByYou "BucketAlreadyOwnedByYou" 409 "You own this bucket already.",
    BucketNotEmpty "BucketNotEmpty" 409 "The bucket is not empty.",
    ConditionalRequestConflict "ConditionalRequestConflict" 409 "Another request for the same object was faster. Try again.",
    CredentialsNotSupported "CredentialsNotSupported" 400 "This request does not support credentials.",
    CrossLocationLoggingProhibited "CrossLocationLoggingProhibited" 403 "Logs cannot be written to a bucket of another region.",
    EntityTooLarge "EntityTooLarge" 400 "The object would exceed the largest size allowed.",
    EntityTooSmall "EntityTooSmall" 400 "A part other than the last is smaller than 5 MiB.",
    ExpiredToken "ExpiredToken" 400 "The token has expired.",
    IllegalVersionId "IllegalVersionIdException" 400 "The version id is not valid.",
    IncompleteBody "IncompleteBody" 400 "The body has fewer bytes than the header Content-Length says.",
    IncorrectNumberOfFilesInPostRequest "IncorrectNumberOfFilesInPostRequest" 400 "POST requires exactly one file upload per request.",
    InlineDataTooLarge "InlineDataTooLarge" 400 "The inline data exceeds the largest size allowed.",
    InternalError "InternalError" 500 "The server failed. Try again.",
    InvalidAccessKeyId "InvalidAccessKeyId" 403 "The AWS Access Key Id you provided does not exist in our records.",
    InvalidArgument "InvalidArgument" 400 "An argument is not valid.",
    InvalidBucketAclWithObjectOwnership "InvalidBucketAclWithObjectOwnership" 400 "The bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting.",
    InvalidBucketName "InvalidBucketName" 400 "No bucket can have this name.",
    InvalidBucketState "InvalidBucketState" 409 "The bucket's settings do not allow this.",
    InvalidChunkSizeError "InvalidChunkSizeError" 403 "Only the last chunk is allowed to have a size less than 8192 bytes",
    InvalidDigest "InvalidDigest" 400 "The digest is not valid.",
    InvalidEncryptionAlgorithmError "InvalidEncryptionAlgorithmError" 400 "The encryption algorithm is not valid.",
    InvalidHttpMethod "InvalidHttpMethod" 400 "The method of the request cannot be read.",
    InvalidLocationConstraint "InvalidLocationConstraint" 400 "The specified location-constraint is not valid",
    InvalidObjectState "InvalidObjectState" 403 "The object's state does not allow this.",
    InvalidPart "InvalidPart" 400 "A part is not there, or its ETag is another.",
    InvalidPartNumber "InvalidPartNumber" 416 "The object has no part of this number.",
    InvalidPartOrder "InvalidPartOrder" 400 "The parts are not in ascending order.",
    InvalidPayer "InvalidPayer" 403 "All access to this object has been disabled.",
    InvalidPolicyDocument "InvalidPolicyDocument" 400 "The policy of the form is not well-formed or breaks a rule.",
    InvalidRange "InvalidRange" 416 "The requested range is outside the object.",
    InvalidRedirectLocation "InvalidRedirectLocation" 400 "The website redirect location must be a path, or a URL of HTTP or HTTPS.",
    InvalidRegion "InvalidRegion" 403 "There is no such region.",
    InvalidRequest "InvalidRequest" 400 "The request is not valid.",
    InvalidRetentionPeriod "InvalidRetentionPeriod" 400 "The retention is no number of days or years that can be.",
    InvalidSecurity "InvalidSecurity" 403 "The security credentials are not valid.",
    InvalidSignature "InvalidSignature" 400 "The server cannot process the request with the signature that it has.",
    InvalidStorageClass "InvalidStorageClass" 400 "There is no such storage class.",
    InvalidTag "InvalidTag" 400 "A tag is not valid.",
    InvalidTargetBucketForLogging "InvalidTargetBucketForLogging" 400 "The target bucket for logs does not exist.",
    InvalidToken "InvalidToken" 400 "The token is malformed or otherwise not valid.",
    InvalidUri "InvalidURI" 400 "The URI cannot be read.",
    KeyTooLong "KeyTooLongError" 400 "The key is too long.",
    MalformedAcl "MalformedACLError" 400 "The ACL is not well-formed or breaks a rule.",
    MalformedPolicy "MalformedPolicy" 400 "The policy is not well-formed or breaks a rule.",
    MalformedPostRequest "MalformedPOSTRequest" 400 "The body of the POST request is not well-formed multipart/form-data.",
    MalformedTrailer "MalformedTrailerError" 400 "The trailing headers are not well-formed, or not those that were announced.",
    MalformedXml "MalformedXML" 400 "The XML you provided was not well-formed or did not validate against our published schema",
    MaxMessageLengthExceeded "MaxMessageLengthExceeded" 400 "The body is too large.",
    MaxPostPreDataLengthExceeded "MaxPostPreDataLengthExceededError" 400 "The fields of the form before the file are too large.",
    MetadataTooLarge "MetadataTooLarge" 400 "The metadata exceed 2 KB.",
    MethodNotAllowed "MethodNotAllowed" 405 "The method is not allowed for this resource.",
    MissingAttachment "MissingAttachment" 400 "A part of the request is missing.",
    MissingAuthenticationToken "MissingAuthenticationToken" 403 "The request is not signed.",
    MissingContentLength "MissingContentLength" 411 "The header Content-Length is needed.",
    MissingRequestBody "MissingRequestBodyError" 400 "The body is empty.",
    MissingSecurityElement "MissingSecurityElement" 400 "The request lacks a security element.",
    MissingSecurityHeader "MissingSecurityHeader" 400 "The request lacks a required header.",
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
    NotSignedUp "NotSignedUp" 403 "The account is not signed up.",
    ObjectLockNotFound "ObjectLockConfigurationNotFoundError" 404 "The bucket has no object lock configuration.",
    OperationAborted "OperationAborted" 409 "A conflicting operation is in progress. Try again.",
    OwnershipNotFound "OwnershipControlsNotFoundError" 404 "The bucket has no ownership controls.",
    PermanentRedirect "PermanentRedirect" 301 "The bucket must be addressed at another endpoint.",
    PolicyTooLarge "PolicyTooLarge" 400 "The policy is too large.",
    PreconditionFailed "PreconditionFailed" 412 "A condition of the request does not hold.",
    QuotaExceeded "QuotaExceeded" 403 "The bucket's quota is used up.",
    Redirect "Redirect" 307 "Temporary redirect.",
    RequestHeaderSectionTooLarge "RequestHeaderSectionTooLarge" 400 "The request's headers are too large.",
    RequestIsNotMultiPartContent "RequestIsNotMultiPartContent" 400 "A POST to a bucket must have the type multipart/form-data.",
    RequestTimeTooSkewed "RequestTimeTooSkewed" 403 "The difference between the request time and the server's time is too large.",
    RequestTimeout "RequestTimeout" 400 "The request did not arrive in time.",
    RestoreAlreadyInProgress "RestoreAlreadyInProgress" 409 "The object is being restored already.",
    ServiceUnavailable "ServiceUnavailable" 503 "The server is busy. Try again later.",
    SignatureDoesNotMatch "SignatureDoesNotMatch" 403 "The request signature we calculated does not match the signature you provided. Check your key and signing method.",
    SlowDown "SlowDown" 503 "The server is busy. Try again later.",
    TemporaryRedirect "TemporaryRedirect" 307 "The bucket must be addressed at another endpoint for now.",
    TokenRefreshRequired "TokenRefreshRequired" 400 "The token must be renewed.",
    TooManyBuckets "TooManyBuckets" 400 "You have as many buckets as you may have.",
    UnexpectedContent "UnexpectedContent" 400 "This request has no body.",
    UnresolvableGrant "UnresolvableGrantByEmailAddress" 400 "Nobody has this e-mail address.",
    UnsupportedArgument "UnsupportedArgument" 400 "The request contains an argument that is not supported.",
    UnsupportedSignature "UnsupportedSignature" 400 "The request is signed in a way that is not supported.",
    UserKeyMustBeSpecified "UserKeyMustBeSpecified" 400 "The form must have the field key, before the file.",
    XAmzContentSha256Mismatch "XAmzContentSHA256Mismatch" 400 "The header x-amz-content-sha256 is not the body's.",
}

/// An error as it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Error {
    /// Its code.
    pub code: Code,
    /// A sentence for a person.
    pub message: String,
    /// Further elements of the error document, such as `Region`.
    pub details: Vec<(&'static str, String)>,
    /// Headers of the reply that say more of what was refused.
    pub headers: Vec<(&'static str, String)>,
}

impl S3Error {
    /// With a sentence of its own.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new(), headers: Vec::new() }
    }

    /// With one more element in the error document.
    #[must_use]
    pub fn with(mut self, element: &'static str, value: impl Into<String>) -> Self {
        self.details.push((element, value.into()));
        self
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_is_there_once_with_a_status_and_a_sentence() {
        let texts: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((300..=503).contains(&code.status()), "{code:?}");
            assert!(!code.message().is_empty(), "{code:?}");
        }
    }
}
