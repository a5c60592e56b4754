//! Where a request says who sends it, and how a refusal is said over HTTP.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};
use millrace_access::{Access, Caller, PREFIX};
use millrace_base::{Error, ErrorCode};

/// What else than `Bearer mr_…` an `Authorization` header may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// Nothing.
    Refused,
    /// Anything: the request goes to a service's own route, which may use the header for itself.
    Ignored,
    /// A user's name, whichever, with the key as the password: what clients of the Schema Registry are set up with.
    /// Nobody is asked for that: a browser that was would keep the key, and send it for pages of others.
    Basic,
}

/// Finds the caller.
pub(crate) fn caller(access: &Access, headers: &HeaderMap, otherwise: Otherwise) -> Result<Caller, Error> {
    let token = key_of(access, headers, otherwise)?;
    access.caller(token.as_deref()).ok_or_else(|| unauthorized("the API key is not known here, or no longer"))
}

/// The token that a request carries, if callers are asked for one.
pub(crate) fn key_of<'a>(
    access: &Access,
    headers: &'a HeaderMap,
    otherwise: Otherwise,
) -> Result<Option<Cow<'a, str>>, Error> {
    if access.asks_for_keys() { token(headers, otherwise) } else { Ok(None) }
}

fn token(headers: &HeaderMap, otherwise: Otherwise) -> Result<Option<Cow<'_, str>>, Error> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    if let Some(token) = own_token(value.as_bytes()) {
        return Ok(Some(Cow::Borrowed(token)));
    }
    match otherwise {
        Otherwise::Ignored => Ok(None),
        Otherwise::Refused => Err(unauthorized("the Authorization header does not hold an API key: send Bearer mr_…")),
        Otherwise::Basic => match password(value.as_bytes()) {
            Some(password) => Ok(Some(Cow::Owned(password))),
            None => Err(unauthorized(
                "the Authorization header holds no API key: send Bearer mr_…, or Basic with it as password",
            )),
        },
    }
}

/// Whether `Authorization` is Basic with a known key as the password.
pub(crate) fn has_key_as_password(access: &Access, headers: &HeaderMap) -> bool {
    caller(access, headers, Otherwise::Basic).is_ok_and(|caller| !caller.is_anonymous)
}

/// The token of `Bearer mr_…`.
fn own_token(value: &[u8]) -> Option<&str> {
    let token = credentials(value, "bearer")?;
    token.starts_with(PREFIX).then_some(token)
}

/// The password of `Basic …`, if it may be a token.
fn password(value: &[u8]) -> Option<String> {
    let decoded = STANDARD.decode(credentials(value, "basic")?).ok()?;
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    password.starts_with(PREFIX).then(|| password.to_owned())
}

fn credentials<'a>(value: &'a [u8], wanted: &str) -> Option<&'a str> {
    let (scheme, credentials) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case(wanted).then(|| credentials.trim())
}

/// The error for a caller who brought no key.
pub(crate) fn no_key() -> Error {
    unauthorized("this needs an API key: send Authorization: Bearer mr_…")
}

/// Who brought no key is told to bring one, rather than that nobody is not enough.
pub(crate) fn ask_for_key(error: Error, is_anonymous: bool) -> Error {
    if is_anonymous && error.code == ErrorCode::Forbidden { no_key() } else { error }
}

/// The error for a caller who has to bring a (better) key.
pub(crate) fn unauthorized(message: &str) -> Error {
    Error::new(ErrorCode::Unauthorized, message)
}
