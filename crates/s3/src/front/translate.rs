//! Errors of the store in the words of S3.

use millrace_api::objects::{Refusal, is_body_lost};
use millrace_api::{Error, ErrorCode};
use serde_json::Value;

use crate::error::{Code, S3Error};
use crate::times;

/// What a client is told of an object whose body the disk has lost.
const LOST: &str = "The object's content is missing or damaged on the server's disk. Trying again does not help: upload \
                    the object again, or ask the operator to restore it.";

/// What a client is told of a read that failed. The log names the object, so that its operator can look after it.
pub(crate) fn read_error(bucket: &str, key: &str, error: Error) -> S3Error {
    if is_body_lost(&error) {
        tracing::error!(%error, bucket, key, "an object cannot be read");
        return S3Error::new(Code::InternalError, LOST);
    }
    self::error(error)
}

/// What a client is told.
pub(crate) fn error(error: Error) -> S3Error {
    if let Some(refusal) = Refusal::of(&error) {
        let code = Code::ALL.iter().copied().find(|code| code.as_str() == refusal.as_str());
        let headers = headers_of(error.detail.as_deref().unwrap_or_default());
        // Every refusal has its code: a test says so.
        return S3Error { headers, ..S3Error::new(code.unwrap_or(Code::InvalidRequest), error.message) };
    }
    match error.code {
        ErrorCode::Overloaded => Code::SlowDown.into(),
        ErrorCode::TooLarge => S3Error::new(Code::EntityTooLarge, error.message),
        code if code.is_retryable() => S3Error::new(Code::ServiceUnavailable, error.message),
        _ => {
            tracing::error!(%error, "the store failed");
            // What failed inside is the operator's, and no stranger's.
            Code::InternalError.into()
        }
    }
}

/// What the detail of a refusal says of the version that was found, as headers.
fn headers_of(detail: &str) -> Vec<(&'static str, String)> {
    let Ok(Value::Object(fields)) = serde_json::from_str(detail) else { return Vec::new() };
    let mut headers = Vec::new();
    if let Some(etag) = fields.get("etag").and_then(Value::as_str) {
        headers.push(("etag", format!("\"{etag}\"")));
    }
    if let Some(modified_ms) = fields.get("modified_ms").and_then(Value::as_u64) {
        headers.push(("last-modified", times::http_date(modified_ms)));
    }
    // The value is the marker's version, or null in a bucket without versions.
    if let Some(marker) = fields.get("delete_marker") {
        headers.push(("x-amz-delete-marker", "true".to_owned()));
        headers.extend(marker.as_str().map(|version| ("x-amz-version-id", version.to_owned())));
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_code() {
        for refusal in Refusal::ALL {
            let told = error(refusal.error("why"));
            assert_eq!((told.code.as_str(), told.message.as_str()), (refusal.as_str(), "why"));
        }
        assert_eq!(error(Error::new(ErrorCode::Overloaded, "x")).code, Code::SlowDown);
        assert_eq!(error(Error::new(ErrorCode::Internal, "secret")).message, Code::InternalError.message());
        let lost = read_error("b", "k", millrace_api::objects::body_lost("secret"));
        assert_eq!((lost.code, lost.message.as_str()), (Code::InternalError, LOST));
    }

    #[test]
    fn details_become_headers() {
        for (detail, headers) in [
            ("", vec![]),
            ("{\"code\":\"NoSuchKey\"}", vec![]),
            ("{\"delete_marker\":\"v\"}", vec![("x-amz-delete-marker", "true"), ("x-amz-version-id", "v")]),
            ("{\"delete_marker\":null}", vec![("x-amz-delete-marker", "true")]),
            (
                "{\"etag\":\"e\",\"modified_ms\":1000}",
                vec![("etag", "\"e\""), ("last-modified", "Thu, 01 Jan 1970 00:00:01 GMT")],
            ),
        ] {
            let read = headers_of(detail);
            let read: Vec<_> = read.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(read, headers, "{detail}");
        }
        let mut refused = Refusal::NotModified.error("why");
        refused.detail = Some("{\"code\":\"NotModified\",\"etag\":\"e\"}".to_owned());
        assert_eq!(error(refused).headers, [("etag", "\"e\"".to_owned())]);
    }
}
