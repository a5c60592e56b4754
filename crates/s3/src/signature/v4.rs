//! Checks Version 4 signatures, in the header and in the query.

use super::authorization::{ALGORITHM, ASYMMETRIC, Credential, HeaderFields, malformed, signed_headers};
use super::{CLOCK_SKEW_S, FindKey, PRESIGNED_S, Payload, Request, Rules, Seed, Signed, SigningKeys, canonical, date};
use crate::error::{Code, S3Error};

const PARAMETERS: [&str; 6] =
    ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-Date", "X-Amz-SignedHeaders", "X-Amz-Expires"];

/// Whether a query is signed, be it only in part.
pub(super) fn is_presigned(query: &str) -> bool {
    query.split('&').any(|piece| {
        let name = piece.split('=').next().unwrap_or_default();
        matches!(name, "X-Amz-Algorithm" | "X-Amz-Signature" | "X-Amz-Credential")
    })
}

/// What was read of a signature, from whichever place.
#[derive(Clone)]
struct Claim<'a> {
    credential: Credential<'a>,
    signed_headers: Vec<&'a str>,
    signature: &'a str,
    timestamp: String,
    payload: &'a str,
}

pub(super) fn verify_header<I>(
    request: &Request<'_>,
    fields: &str,
    now_s: u64,
    rules: &Rules,
    keys: &impl FindKey<I>,
    cache: &mut SigningKeys,
) -> Result<Signed<I>, S3Error> {
    let fields = HeaderFields::parse(fields)?;
    let credential = Credential::parse(fields.credential, &rules.region, &malformed)?;
    let (signed_s, timestamp) = request_time(request)?;
    if now_s.abs_diff(signed_s) > CLOCK_SKEW_S {
        return Err(S3Error::from(Code::RequestTimeTooSkewed)
            .with("RequestTime", timestamp)
            .with("ServerTime", date::format(now_s))
            .with("MaxAllowedSkewMilliseconds", (CLOCK_SKEW_S * 1_000).to_string()));
    }
    if !timestamp.starts_with(credential.date) {
        return Err(malformed("the date of the credential is not that of the request."));
    }
    let payload = request.header("x-amz-content-sha256").ok_or_else(|| {
        S3Error::new(Code::InvalidRequest, "Missing required header for this request: x-amz-content-sha256")
    })?;
    let claim =
        Claim { credential, signed_headers: fields.signed_headers, signature: fields.signature, timestamp, payload };
    check(request, claim, false, rules, keys, cache)
}

/// The request's time: `x-amz-date`, else `Date`.
fn request_time(request: &Request<'_>) -> Result<(u64, String), S3Error> {
    let time = match request.header("x-amz-date") {
        Some(text) => date::parse(text).map(|unix_s| (unix_s, text.to_owned())).or_else(|| date::parse_http(text)),
        None => request.header("date").and_then(|text| {
            date::parse_http(text).or_else(|| date::parse(text).map(|unix_s| (unix_s, text.to_owned())))
        }),
    };
    let message = "AWS authentication requires a valid Date or x-amz-date header";
    time.ok_or_else(|| S3Error::new(Code::AccessDenied, message))
}

pub(super) fn verify_query<I>(
    request: &Request<'_>,
    now_s: u64,
    rules: &Rules,
    keys: &impl FindKey<I>,
    cache: &mut SigningKeys,
) -> Result<Signed<I>, S3Error> {
    let [algorithm, credential, signature, timestamp, headers, expires] = &parameters(request.query)?;
    match algorithm.as_str() {
        ALGORITHM => {}
        ASYMMETRIC => {
            return Err(S3Error::new(Code::NotImplemented, "Signatures with asymmetric keys are not implemented."));
        }
        _ => return Err(query_error("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")),
    }
    let refuse = |problem: &str| query_error(&format!("Error parsing the X-Amz-Credential parameter; {problem}"));
    let credential = Credential::parse(credential, &rules.region, &refuse)?;
    let signed_s = date::parse(timestamp)
        .ok_or_else(|| query_error("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
    if !timestamp.starts_with(credential.date) {
        return Err(query_error("The date of the credential is not that of X-Amz-Date."));
    }
    let signed_headers = signed_headers(headers).ok_or_else(|| query_error("X-Amz-SignedHeaders is mal-formed."))?;
    // A header that is sent must hold; only a signed one may.
    let payload = request.header("x-amz-content-sha256").unwrap_or("UNSIGNED-PAYLOAD");
    let claim = Claim { credential, signed_headers, signature, timestamp: timestamp.clone(), payload };
    let expires_s = match lifetime(expires)? {
        Lifetime::Seconds(expires_s) => expires_s,
        // The owner of the key has signed it, so the query is well-formed, and gives access at no time.
        Lifetime::OutOfRange(message) if check(request, claim.clone(), true, rules, keys, cache).is_ok() => {
            return Err(S3Error::new(Code::AccessDenied, message));
        }
        Lifetime::OutOfRange(message) => return Err(query_error(message)),
    };
    if signed_s > now_s + CLOCK_SKEW_S {
        return Err(S3Error::new(Code::AccessDenied, "Request is not yet valid"));
    }
    // S3 documents one second as the least.
    if expires_s == 0 || now_s > signed_s + expires_s {
        return Err(S3Error::new(Code::AccessDenied, "Request has expired")
            .with("X-Amz-Expires", expires_s.to_string())
            .with("Expires", date::format(signed_s + expires_s))
            .with("ServerTime", date::format(now_s)));
    }
    check(request, claim, true, rules, keys, cache)
}

/// How long a signed query holds.
enum Lifetime {
    Seconds(u64),
    /// A number that S3 does not allow, and what it says then.
    OutOfRange(&'static str),
}

fn lifetime(text: &str) -> Result<Lifetime, S3Error> {
    if text.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Ok(Lifetime::OutOfRange("X-Amz-Expires must be non-negative"));
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(query_error("X-Amz-Expires should be a number"));
    }
    let expires_s = text.parse().ok().filter(|expires_s| *expires_s <= PRESIGNED_S);
    let message = "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less \
                   than 604800 seconds";
    Ok(expires_s.map_or(Lifetime::OutOfRange(message), Lifetime::Seconds))
}

/// The parameters in the order of [`PARAMETERS`], decoded.
fn parameters(query: &str) -> Result<[String; 6], S3Error> {
    let mut found: [Option<String>; 6] = Default::default();
    for piece in query.split('&') {
        let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
        let Some(at) = PARAMETERS.iter().position(|own| *own == name) else { continue };
        let value = String::from_utf8(canonical::decode(value, true))
            .map_err(|_| query_error(&format!("{name} is not text")))?;
        if found[at].replace(value).is_some() {
            return Err(query_error(&format!("{name} was sent more than once")));
        }
    }
    if found.iter().any(Option::is_none) {
        let message = "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
                       X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.";
        return Err(query_error(message));
    }
    Ok(found.map(Option::unwrap_or_default))
}

fn query_error(message: &str) -> S3Error {
    S3Error::new(Code::AuthorizationQueryParametersError, message)
}

fn check<I>(
    request: &Request<'_>,
    claim: Claim<'_>,
    is_presigned: bool,
    rules: &Rules,
    keys: &impl FindKey<I>,
    cache: &mut SigningKeys,
) -> Result<Signed<I>, S3Error> {
    let Credential { access_key, date, scope, .. } = claim.credential;
    check_signed_headers(request, &claim.signed_headers)?;
    let payload = Payload::parse(claim.payload)?;
    let Some(known) = keys.find(access_key) else {
        return Err(S3Error::from(Code::InvalidAccessKeyId).with("AWSAccessKeyId", access_key));
    };
    let key = cache.get(access_key, &known.secret, date, &rules.region);
    let canonical = canonical::request(request, &claim.signed_headers, claim.payload);
    let text = canonical::string_to_sign(&claim.timestamp, scope, &canonical);
    if !key.is_signed(text.as_bytes(), claim.signature) {
        return Err(S3Error::from(Code::SignatureDoesNotMatch)
            .with("AWSAccessKeyId", access_key)
            .with("StringToSign", text)
            .with("SignatureProvided", claim.signature)
            .with("CanonicalRequest", String::from_utf8_lossy(&canonical)));
    }
    let seed = Seed { key, timestamp: claim.timestamp, scope: scope.to_owned(), signature: claim.signature.to_owned() };
    Ok(Signed { access_key: access_key.to_owned(), identity: known.identity, payload, is_presigned, seed: Some(seed) })
}

/// The host and every `x-amz-*` header must be signed. A header that is the canonical request's last line is.
fn check_signed_headers(request: &Request<'_>, signed: &[&str]) -> Result<(), S3Error> {
    let must = |name: &str| name.starts_with("x-amz-") && name != "x-amz-content-sha256";
    let sent = request.headers.iter().map(|(name, _)| *name).filter(|name| must(name));
    let missing: Vec<_> = std::iter::once("host").chain(sent).filter(|name| !signed.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = "There were headers present in the request which were not signed";
    Err(S3Error::new(Code::AccessDenied, message).with("HeadersNotSigned", missing.join(", ")))
}
