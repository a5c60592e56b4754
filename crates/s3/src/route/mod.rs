//! From method, path, host and query to what is asked for.
//!
//! Every subresource that S3 has is known here. One that this server does not offer answers so, and is never taken
//! for a plain read or write of the bucket or object.

mod names;
mod query;
mod subresource;
mod target;

use http::{HeaderMap, Method};
use millrace_api::objects::ConfigurationKind;

use crate::error::{Code, S3Error};

pub use names::{check_bucket_name, check_key};
pub use query::Query;
pub use target::{Target, target};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The requester's buckets.
    ListBuckets,
    /// Makes a bucket.
    CreateBucket,
    /// Whether it is there.
    HeadBucket,
    /// Removes it.
    DeleteBucket,
    /// Its objects, as version 1 has it.
    ListObjects,
    /// Its objects, as version 2 has it.
    ListObjectsV2,
    /// Its versions.
    ListVersions,
    /// Uploads under way.
    ListUploads,
    /// In which region it is.
    GetLocation,
    /// A setting.
    GetConfiguration(ConfigurationKind),
    /// Replaces it.
    PutConfiguration(ConfigurationKind),
    /// Takes it away.
    DeleteConfiguration(ConfigurationKind),
    /// Whether its policy makes it public.
    GetPolicyStatus,
    /// Removes many objects.
    DeleteObjects,
    /// An object from a form of a browser.
    PostForm,
    /// What a browser may do.
    Preflight,
    /// Reads an object.
    GetObject,
    /// Its metadata.
    HeadObject,
    /// Makes it.
    PutObject,
    /// Makes it of another.
    CopyObject,
    /// Removes it.
    DeleteObject,
    /// What it is made of.
    GetObjectAttributes,
    /// Its access list.
    GetObjectAcl,
    /// Replaces it.
    PutObjectAcl,
    /// Its tags.
    GetObjectTagging,
    /// Replaces them.
    PutObjectTagging,
    /// Takes them away.
    DeleteObjectTagging,
    /// Its retention.
    GetRetention,
    /// Replaces it.
    PutRetention,
    /// Whether it is held.
    GetLegalHold,
    /// Holds it.
    PutLegalHold,
    /// Begins an upload of parts.
    CreateUpload,
    /// A part.
    UploadPart,
    /// A part made of an object.
    UploadPartCopy,
    /// The parts.
    ListParts,
    /// Makes the object of its parts.
    CompleteUpload,
    /// Drops it.
    AbortUpload,
    /// A setting that no bucket has here, and whose absence is said with an empty document of this name.
    Absent(&'static str),
}

/// Finds what a request asks for.
///
/// # Errors
/// `NotImplemented` for what S3 has and this server does not, or the code of a missing setting where clients need that.
/// `MethodNotAllowed` for what S3 does not have either.
pub fn action(method: &Method, target: &Target, query: &Query, headers: &HeaderMap) -> Result<Action, S3Error> {
    if method == Method::OPTIONS {
        return Ok(Action::Preflight);
    }
    if let Some(action) = subresource::find(method, !target.key.is_empty(), query)? {
        return Ok(action);
    }
    let is_copy = headers.contains_key("x-amz-copy-source");
    let has_upload = query.has("uploadId");
    let found = if target.bucket.is_empty() {
        (method == Method::GET).then_some(Action::ListBuckets)
    } else if target.key.is_empty() {
        on_bucket(method, query, headers)
    } else {
        match *method {
            Method::GET if has_upload => Some(Action::ListParts),
            Method::GET => Some(Action::GetObject),
            Method::HEAD => Some(Action::HeadObject),
            Method::PUT if has_upload || query.has("partNumber") => {
                if !has_upload || !query.has("partNumber") {
                    let message = "An upload of a part names both uploadId and partNumber.";
                    return Err(S3Error::new(Code::InvalidArgument, message));
                }
                Some(if is_copy { Action::UploadPartCopy } else { Action::UploadPart })
            }
            Method::PUT => Some(if is_copy { Action::CopyObject } else { Action::PutObject }),
            Method::DELETE if has_upload => Some(Action::AbortUpload),
            Method::DELETE => Some(Action::DeleteObject),
            Method::POST if has_upload => Some(Action::CompleteUpload),
            _ => None,
        }
    };
    found.ok_or_else(|| Code::MethodNotAllowed.into())
}

fn on_bucket(method: &Method, query: &Query, headers: &HeaderMap) -> Option<Action> {
    match *method {
        Method::GET if query.get("list-type") == Some("2") => Some(Action::ListObjectsV2),
        Method::GET => Some(Action::ListObjects),
        Method::HEAD => Some(Action::HeadBucket),
        Method::PUT => Some(Action::CreateBucket),
        Method::DELETE => Some(Action::DeleteBucket),
        Method::POST => {
            let kind = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
            let is_form = kind.get(..19).is_some_and(|start| start.eq_ignore_ascii_case("multipart/form-data"));
            is_form.then_some(Action::PostForm)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
