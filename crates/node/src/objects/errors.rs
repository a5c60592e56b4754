//! What a failure of bodies is to whoever asked.

use millrace_api::objects::{BodyOwner, body_lost};
use millrace_base::{Error, ErrorCode};
use millrace_blobs::BlobError;

/// The bucket and the key that a body was written for.
pub(crate) fn object_of(owner: &[u8]) -> Option<(String, String)> {
    BodyOwner::from_bytes(owner).map(|owner| (owner.bucket.to_owned(), owner.key.to_owned()))
}

/// As an error of a request.
pub(crate) fn body_failed(error: &BlobError) -> Error {
    let code = match error {
        BlobError::Rot(..) | BlobError::Gone(_) => return body_lost(error.to_string()),
        BlobError::Full => ErrorCode::ReadOnly,
        BlobError::Failed(_) => ErrorCode::ShardStopped,
        _ => ErrorCode::Internal,
    };
    Error::new(code, error.to_string())
}
