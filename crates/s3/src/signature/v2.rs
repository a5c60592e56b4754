//! Checks Version 2 signatures, of old clients: HMAC-SHA1 over a text that names bucket and key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

use super::{CLOCK_SKEW_S, FindKey, Request, canonical, date};
use crate::error::{Code, S3Error};

/// Parameters that are part of the resource, sorted.
const SUBRESOURCES: [&str; 38] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "delete",
    "encryption",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "retention",
    "select",
    "select-type",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
];

/// Checks `Authorization: AWS KEY:SIGNATURE`.
pub(super) fn verify_header<I>(
    request: &Request<'_>,
    fields: &str,
    now_s: u64,
    keys: &impl FindKey<I>,
) -> Result<(String, I), S3Error> {
    let malformed = || {
        S3Error::new(Code::InvalidArgument, "AWS authorization header is invalid. Expected AwsAccessKeyId:signature")
    };
    let (access_key, signature) = fields.trim().split_once(':').ok_or_else(malformed)?;
    if access_key.is_empty() || signature.is_empty() {
        return Err(malformed());
    }
    let amazon_date = request.header("x-amz-date");
    let text = amazon_date.or_else(|| request.header("date")).unwrap_or_default();
    let signed_s = date::parse_http(text).map(|(unix_s, _)| unix_s).or_else(|| date::parse(text));
    let message = "AWS authentication requires a valid Date or x-amz-date header";
    let signed_s = signed_s.ok_or_else(|| S3Error::new(Code::AccessDenied, message))?;
    if now_s.abs_diff(signed_s) > CLOCK_SKEW_S {
        return Err(Code::RequestTimeTooSkewed.into());
    }
    // The header that is signed as `x-amz-date` leaves the line of the date empty.
    let date_line = if amazon_date.is_some() { "" } else { text };
    check(request, access_key, signature, date_line, keys)
}

/// Checks a query with `AWSAccessKeyId`, `Expires` and `Signature`.
pub(super) fn verify_query<I>(
    request: &Request<'_>,
    now_s: u64,
    keys: &impl FindKey<I>,
) -> Result<(String, I), S3Error> {
    let [access_key, signature, expires] = &parameters(request.query)?;
    let is_number = !expires.is_empty() && expires.bytes().all(|byte| byte.is_ascii_digit());
    let expires_s: Option<u64> = expires.parse().ok().filter(|_| is_number);
    let message = "Invalid date (should be seconds since epoch)";
    let expires_s = expires_s.ok_or_else(|| S3Error::new(Code::AccessDenied, message))?;
    if now_s > expires_s {
        return Err(S3Error::new(Code::AccessDenied, "Request has expired"));
    }
    check(request, access_key, signature, expires, keys)
}

fn parameters(query: &str) -> Result<[String; 3], S3Error> {
    let mut found: [Option<String>; 3] = Default::default();
    for piece in query.split('&') {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        let Some(at) = ["AWSAccessKeyId", "Signature", "Expires"].iter().position(|own| *own == name) else { continue };
        // Base64 has `+`, and old clients do not encode it.
        let value = String::from_utf8(canonical::decode(value, false)).unwrap_or_default();
        if found[at].replace(value).is_some() {
            return Err(S3Error::new(Code::InvalidArgument, format!("{name} was sent more than once.")));
        }
    }
    if found.iter().any(Option::is_none) {
        let message = "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters";
        return Err(S3Error::new(Code::AccessDenied, message));
    }
    Ok(found.map(Option::unwrap_or_default))
}

fn check<I>(
    request: &Request<'_>,
    access_key: &str,
    signature: &str,
    date_line: &str,
    keys: &impl FindKey<I>,
) -> Result<(String, I), S3Error> {
    let Some(known) = keys.find(access_key) else {
        return Err(S3Error::from(Code::InvalidAccessKeyId).with("AWSAccessKeyId", access_key));
    };
    let text = string_to_sign(request, request.path, date_line);
    let mac = Hmac::<Sha1>::new_from_slice(known.secret.as_bytes()).expect("HMAC takes keys of any length");
    let given = STANDARD.decode(signature).unwrap_or_default();
    let is_of = |text: &[u8]| mac.clone().chain_update(text).verify_slice(&given).is_ok();
    // Some clients sign the path of a bucket with a slash behind, and send it without.
    let bucket = request.path.strip_prefix('/').filter(|_| request.bucket_in_host.is_none());
    let is_bucket_alone = || bucket.is_some_and(|bucket| !bucket.is_empty() && !bucket.contains('/'));
    let is_right =
        is_of(&text) || is_bucket_alone() && is_of(&string_to_sign(request, &format!("{}/", request.path), date_line));
    if !is_right {
        return Err(S3Error::from(Code::SignatureDoesNotMatch)
            .with("AWSAccessKeyId", access_key)
            .with("StringToSign", String::from_utf8_lossy(&text))
            .with("SignatureProvided", signature));
    }
    Ok((access_key.to_owned(), known.identity))
}

fn string_to_sign(request: &Request<'_>, path: &str, date_line: &str) -> Vec<u8> {
    let line = |name| request.header(name).unwrap_or_default();
    let (md5, content_type) = (line("content-md5"), line("content-type"));
    let mut text = format!("{}\n{md5}\n{content_type}\n{date_line}\n", request.method).into_bytes();
    let mut names: Vec<_> =
        request.headers.iter().map(|(name, _)| *name).filter(|name| name.starts_with("x-amz-")).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        text.extend_from_slice(name.as_bytes());
        text.push(b':');
        canonical::push_values(request, name, &mut text);
        text.push(b'\n');
    }
    if let Some(bucket) = request.bucket_in_host {
        text.push(b'/');
        text.extend_from_slice(bucket.as_bytes());
    }
    text.extend_from_slice(path.as_bytes());
    let pieces = request
        .query
        .split('&')
        .map(|piece| piece.split_once('=').map_or((piece, None), |(name, value)| (name, Some(value))));
    let mut parts: Vec<_> = pieces.filter(|(name, _)| SUBRESOURCES.contains(name)).collect();
    parts.sort_unstable();
    for (index, (name, value)) in parts.into_iter().enumerate() {
        text.push(if index > 0 { b'&' } else { b'?' });
        text.extend_from_slice(name.as_bytes());
        if let Some(value) = value {
            text.push(b'=');
            text.extend_from_slice(&canonical::decode(value, true));
        }
    }
    text
}
