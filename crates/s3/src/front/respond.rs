//! Parts of replies.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use millrace_api::objects::{BodyRead, Checksum, ObjectInfo};

use super::{ReplyBody, is_head};
use crate::algorithm::{kind_name, names, to_text};
use crate::error::{Code, S3Error};
use crate::operation::encode_metadata;
use crate::times;
use crate::xml::configuration::mode_name;
use crate::xml::uploads;

/// A reply with no body.
pub(crate) fn empty<R: BodyRead + 'static>(status: StatusCode) -> Response<ReplyBody<R>> {
    let mut reply = Response::new(ReplyBody::empty());
    *reply.status_mut() = status;
    reply
}

/// A reply with a document.
pub(crate) fn document<R: BodyRead + 'static>(text: String) -> Response<ReplyBody<R>> {
    let mut reply = Response::new(ReplyBody::Whole(Bytes::from(text)));
    reply.headers_mut().insert("content-type", HeaderValue::from_static("application/xml"));
    reply
}

/// Puts a header in. What cannot stand in one is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// Puts a version's id in, if there is one.
pub(crate) fn set_version(headers: &mut HeaderMap, version: Option<&str>) {
    if let Some(version) = version {
        set(headers, "x-amz-version-id", version);
    }
}

/// Puts an ETag in, with quotes.
pub(crate) fn set_etag(headers: &mut HeaderMap, etag: &str) {
    set(headers, "etag", &format!("\"{etag}\""));
}

/// Puts a checksum in.
pub(crate) fn set_checksum(headers: &mut HeaderMap, checksum: Option<&Checksum>, part_count: Option<u16>) {
    if let Some(checksum) = checksum {
        set(headers, names(checksum.algorithm).header, &to_text(checksum, part_count));
        set(headers, "x-amz-checksum-type", kind_name(checksum.kind));
    }
}

/// Puts in when a version expires.
pub(crate) fn set_expires(headers: &mut HeaderMap, expires: Option<&(u64, String)>) {
    if let Some((unix_ms, rule)) = expires {
        let text = format!("expiry-date=\"{}\", rule-id=\"{rule}\"", times::http_date(*unix_ms));
        set(headers, "x-amz-expiration", &text);
    }
}

/// What headers say of a version, its checksums aside.
pub(crate) fn set_info(headers: &mut HeaderMap, info: &ObjectInfo) {
    headers.insert("accept-ranges", HeaderValue::from_static("bytes"));
    headers.insert("content-type", HeaderValue::from_static("binary/octet-stream"));
    set(headers, "last-modified", &times::http_date(info.modified_ms));
    set_etag(headers, &info.etag);
    for (name, value) in &info.headers {
        set(headers, name, value);
    }
    for (name, value) in &info.metadata {
        set(headers, &format!("x-amz-meta-{name}"), &encode_metadata(value));
    }
    set_version(headers, info.version.as_deref());
    if !info.storage_class.is_empty() && info.storage_class != "STANDARD" {
        set(headers, "x-amz-storage-class", &info.storage_class);
    }
    if info.shows_tags && !info.tags.is_empty() {
        set(headers, "x-amz-tagging-count", &info.tags.len().to_string());
    }
    if let Some(retention) = &info.retention {
        set(headers, "x-amz-object-lock-mode", mode_name(retention.mode));
        set(headers, "x-amz-object-lock-retain-until-date", &times::iso(retention.until_ms));
    }
    if let Some(is_held) = info.legal_hold {
        set(headers, "x-amz-object-lock-legal-hold", if is_held { "ON" } else { "OFF" });
    }
    set_expires(headers, info.expires.as_ref());
}

/// The reply to a request that is refused.
pub(crate) fn refusal<R: BodyRead + 'static>(
    error: &S3Error,
    parts: &Parts,
    request_id: &str,
    host_id: &str,
) -> Response<ReplyBody<R>> {
    let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = if is_head(&parts.method) || error.code == Code::NotModified {
        empty(status)
    } else {
        document(uploads::error(error, parts.uri.path(), request_id, host_id))
    };
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    for (name, value) in &error.headers {
        set(headers, name, value);
    }
    match error.code {
        Code::NotModified if !headers.contains_key("etag") => {
            // The one that the client has is the one that there is.
            if let Some(etag) = parts.headers.get("if-none-match").filter(|etag| etag.as_bytes() != b"*") {
                headers.insert("etag", etag.clone());
            }
        }
        Code::MethodNotAllowed if parts.uri.query().is_some_and(|query| query.contains("versionId=")) => {
            headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
            headers.insert("allow", HeaderValue::from_static("DELETE"));
        }
        Code::InvalidRange => {
            if let Some((_, size)) = error.details.iter().find(|(name, _)| *name == "ActualObjectSize") {
                set(headers, "content-range", &format!("bytes */{size}"));
            }
        }
        Code::SlowDown | Code::ServiceUnavailable => {
            headers.insert("retry-after", HeaderValue::from_static("1"));
        }
        _ => {}
    }
    reply
}
