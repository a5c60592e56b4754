//! A request without its HTTP library, and its reply.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use millrace_base::{Error, IdempotencyKey, limits};

use crate::media;
use crate::url::{self, refused};

/// Headers that one pass over all of them saw: looking each up would cost more.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts {
    /// `Accept`.
    pub accept: bool,
    /// `If-Match` or `If-None-Match`.
    pub condition: bool,
    /// `Idempotency-Key`.
    pub idempotency_key: bool,
}

/// A request. Parts of its path are still percent-encoded, and empty where the URL has none.
pub struct Request<'a> {
    /// The type or the subject.
    pub name: &'a str,
    /// The record's id, the version, the schema's id, or the field of a script.
    pub item: &'a str,
    /// The field, or the name of a script.
    pub part: &'a str,
    /// What follows `?`.
    pub query: Option<&'a str>,
    /// The headers. The reply uses the same map again.
    pub headers: HeaderMap,
    /// Which of them are there.
    pub seen: RequestFacts,
    /// The whole body, within the front's limit.
    pub body: Bytes,
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// How many places a path matched.
pub static MATCHED: HeaderName = HeaderName::from_static("millrace-matched");
/// When the record vanishes, Unix milliseconds.
pub(crate) static EXPIRES: HeaderName = HeaderName::from_static("millrace-expires");
/// The registry's id of the schema of the body.
pub(crate) static SCHEMA_ID: HeaderName = HeaderName::from_static("millrace-schema-id");
/// When the record is to vanish.
pub(crate) static TTL: HeaderName = HeaderName::from_static("millrace-ttl");
/// The key under which a request takes effect once.
pub static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(crate) static PREFER: HeaderName = HeaderName::from_static("prefer");
pub(crate) static PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

impl<'a> Request<'a> {
    /// The name of a type.
    pub(crate) fn type_name(&self) -> Result<Cow<'a, str>, Error> {
        type_name(self.name)
    }

    /// The name of a subject: any text.
    pub(crate) fn subject(&self) -> Result<Cow<'a, str>, Error> {
        url::decode_text(self.name)
    }

    /// A record's id.
    pub(crate) fn id(&self) -> Result<Cow<'a, [u8]>, Error> {
        url::bounded(url::decode(self.item)?, "record's id", limits::RECORD_ID_BYTES)
    }

    pub(crate) fn idempotency_key(&self) -> Result<Option<IdempotencyKey<&str>>, Error> {
        if self.seen.idempotency_key { idempotency_key(&self.headers) } else { Ok(None) }
    }

    /// The body as text.
    pub(crate) fn text(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.body).map_err(|_| refused("the body is not UTF-8"))
    }
}

/// The `Idempotency-Key` of a request, if it has one.
///
/// # Errors
/// `bad-request` when there are two, of which one would be passed over, or as [`IdempotencyKey::new`].
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey<&str>>, Error> {
    let mut values = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(refused("Idempotency-Key came more than once: a request has one"));
    }
    first.map(|value| IdempotencyKey::new(value.as_bytes())).transpose()
}

/// Decodes the name of a type.
///
/// # Errors
/// `bad-request` for a text that no type can have as its name.
pub(crate) fn type_name(text: &str) -> Result<Cow<'_, str>, Error> {
    let name = url::decode_text(text)?;
    millrace_registry::check_type_name(&name)?;
    Ok(name)
}

impl Reply {
    /// A reply with one content type. `headers` is the request's map, reused: emptying it and
    /// adding one header costs less than a new map.
    pub(crate) fn new(mut headers: HeaderMap, status: StatusCode, kind: HeaderValue, body: Bytes) -> Self {
        headers.clear();
        headers.insert(header::CONTENT_TYPE, kind);
        Self { status, headers, body }
    }

    /// Without a body.
    pub(crate) fn empty(mut headers: HeaderMap, status: StatusCode) -> Self {
        headers.clear();
        Self { status, headers, body: Bytes::new() }
    }

    /// 200 with `OK`, as the classic URLs answer.
    pub(crate) fn ok(headers: HeaderMap) -> Self {
        Self::new(headers, StatusCode::OK, media::TEXT, Bytes::from_static(b"OK"))
    }
}
