//! Who a request comes from.

use http::{HeaderMap, header};
use millrace_api::Principal;
use millrace_base::{Error, ErrorCode};

use crate::keys::{KeySet, PREFIX};
use crate::shared::Cached;

/// A principal, and whether it is nobody in particular: then "forbidden" means "bring a key".
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) is_anonymous: bool,
}

/// Finds the caller. `is_route` says that the request goes to a service's own route, which may use
/// `Authorization` for itself: what is not one of our keys is then left alone.
pub(crate) fn caller(keys: Option<&Cached<KeySet>>, headers: &HeaderMap, is_route: bool) -> Result<Caller, Error> {
    let Some(keys) = keys else {
        return Ok(Caller { principal: Principal::unrestricted(), is_anonymous: false });
    };
    let keys = keys.get();
    let anonymous = || Ok(Caller { principal: keys.anonymous().clone(), is_anonymous: true });
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return anonymous();
    };
    match own_token(value.as_bytes()) {
        Some(token) => match keys.verify(token) {
            Some(principal) => Ok(Caller { principal: principal.clone(), is_anonymous: false }),
            None => Err(unauthorized("the API key is not known here, or no longer")),
        },
        None if is_route => anonymous(),
        None => Err(unauthorized("the Authorization header does not hold an API key: send Bearer mr_…")),
    }
}

/// The token of `Bearer mr_…`.
fn own_token(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && token.starts_with(PREFIX)).then_some(token)
}

/// The error for a caller who has to bring a (better) key.
pub(crate) fn unauthorized(message: &str) -> Error {
    Error::new(ErrorCode::Unauthorized, message)
}
