//! What the headers of a request say about it, whatever its operation is: read in one pass, and checked.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use millrace_base::{Error, ErrorCode};
use millrace_records::{IDEMPOTENCY_KEY, RequestFacts};

use super::Input;
use crate::Limits;
use crate::local::Local;
use crate::operations::{Access, Operation};
use crate::origin::Source;

static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Checks a request by its headers. Gives which of the headers that mean something it has, and whether a web page sent it.
pub(super) fn look_at_headers(
    local: &Local,
    row: &Operation,
    input: &Input<'_>,
) -> Result<(RequestFacts, bool), Error> {
    let headers = input.request.headers();
    let noted = read_headers(input.uri, headers, &local.front.options.limits)?;
    check_host(input.request.version(), input.uri, noted.source.host, noted.hosts)?;
    let is_from_page = noted.source.origin.is_some();
    if row.access == Access::Public {
        return Ok((noted.seen, is_from_page));
    }
    let changes = row.kind.is_get_that_changes();
    if changes && *input.request.method() == Method::HEAD {
        let message = "HEAD promises to change nothing, and this changes something: use GET";
        let allowed = r#"["GET", "OPTIONS"]"#.to_owned();
        return Err(Error { detail: Some(allowed), ..Error::new(ErrorCode::MethodNotAllowed, message) });
    }
    if let Some(guard) = &local.guard {
        let is_navigation = noted.source.site.is_some() && headers.get(&FETCH_MODE).is_some_and(|it| it == "navigate");
        guard.check(input.uri, Source { is_navigation, ..noted.source }, changes)?;
    }
    Ok((noted.seen, is_from_page))
}

/// Whether a request may see what is for some only, as far as the page says that it comes from. Public operations answer
/// others, too.
pub(super) fn may_see_more(local: &Local, input: &Input<'_>) -> bool {
    let Some(guard) = &local.guard else { return true };
    let noted = read_headers(input.uri, input.request.headers(), &local.front.options.limits);
    noted.is_ok_and(|noted| guard.check(input.uri, noted.source, false).is_ok())
}

/// What one pass over the headers finds; looking up each of them would cost more.
#[derive(Default)]
struct HeaderFacts<'a> {
    source: Source<'a>,
    hosts: usize,
    seen: RequestFacts,
}

/// Checks that a request names one host. Of two, a proxy before this server may have gone by the other (RFC 9112, 3.2;
/// RFC 9113, 8.3.1).
pub(super) fn check_host(version: Version, uri: &Uri, host: Option<&HeaderValue>, count: usize) -> Result<(), Error> {
    match count {
        0 if version == Version::HTTP_11 => {
            Err(Error::new(ErrorCode::BadRequest, "a request of HTTP/1.1 has a Host header, and this has none"))
        }
        1 if version == Version::HTTP_2 => match (uri.authority(), host) {
            (Some(authority), Some(host)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
                Err(Error::new(ErrorCode::BadRequest, "the Host header names another host than :authority"))
            }
            _ => Ok(()),
        },
        0 | 1 => Ok(()),
        _ => Err(Error::new(ErrorCode::BadRequest, "Host came more than once: a request has one")),
    }
}

/// Checks the headers' number and size.
fn read_headers<'a>(uri: &Uri, headers: &'a HeaderMap, limits: &Limits) -> Result<HeaderFacts<'a>, Error> {
    let mut noted = HeaderFacts::default();
    let mut bytes = uri.path_and_query().map_or(0, |target| target.as_str().len());
    for (name, value) in headers {
        // 4 for the colon, the space and the line's end.
        bytes += name.as_str().len() + value.len() + 4;
        if *name == header::HOST {
            noted.source.host = Some(value);
            noted.hosts += 1;
        } else if *name == header::ORIGIN {
            noted.source.origin = Some(value);
        } else if *name == IDEMPOTENCY_KEY {
            noted.seen.idempotency_key = true;
        } else if *name == header::ACCEPT {
            noted.seen.accept = true;
        } else if *name == header::IF_MATCH || *name == header::IF_NONE_MATCH {
            noted.seen.condition = true;
        } else if *name == FETCH_SITE {
            noted.source.site = Some(value);
        }
    }
    if bytes > limits.header_bytes || headers.len() > limits.headers {
        let message =
            format!("the request line and headers exceed {} bytes or {} headers", limits.header_bytes, limits.headers);
        return Err(Error::new(ErrorCode::HeadersTooLarge, message));
    }
    Ok(noted)
}
