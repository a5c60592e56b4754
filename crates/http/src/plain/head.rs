//! A request's bytes: whether they are plain, whole, and what they say.
//!
//! Pure. *Plain* is what leaves no doubt about where it ends: HTTP/1.1, a path as target, a body with one decimal
//! `Content-Length` or none, no word about the connection but `close` or `keep-alive`. What is not plain is left to
//! hyper, whose parser (httparse) is the one used here, too: so the two do not differ in what they take for a head.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use httparse::Status;

use crate::body::RequestBody;
use crate::events::BACKUP_PATH;

/// Headers of a plain request. Others may have more.
const HEADERS: usize = 48;

/// Bytes of a plain request, its body included: what a slow client may make us hold without a reservation.
pub(crate) const PLAIN_BYTES: usize = 16 << 10;

/// Bytes of a plain request's line and headers. Few, because they are read from the start whenever more come.
const HEAD_BYTES: usize = 4 << 10;

/// What bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The beginning of a request's line and headers.
    Beginning,
    /// All of these, but not all of the body: so many bytes are wanted from the request's first on.
    Head(usize),
    /// A whole request of so many bytes, which [`look`] has written down.
    Request { bytes: usize, closes: bool },
    /// Not plain.
    Other,
}

impl Look {
    /// How many bytes are done with.
    pub(crate) fn done_bytes(&self) -> usize {
        if let Look::Request { bytes, .. } = self { *bytes } else { 0 }
    }
}

/// Looks at the bytes that a request begins with. A whole one is written into `request`, its headers into the empty
/// map that `map` gives.
pub(crate) fn look(bytes: &[u8], request: &mut Request<RequestBody>, map: impl FnOnce() -> HeaderMap) -> Look {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
    let mut head = httparse::Request::new(&mut []);
    let head_bytes = match head.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(Status::Complete(length)) if length <= HEAD_BYTES => length,
        Ok(Status::Partial) if bytes.len() <= HEAD_BYTES => return Look::Beginning,
        Ok(_) | Err(_) => return Look::Other,
    };
    let (Some(1), Some(method), Some(target)) = (head.version, head.method.and_then(method), head.path) else {
        return Look::Other;
    };
    // A backup has no length that could be announced.
    let is_plain = |target: &str| target.starts_with('/') && target != BACKUP_PATH;
    let Some(framing) = Framing::of(head.headers).filter(|_| is_plain(target)) else {
        return Look::Other;
    };
    if !ends_lines_with_cr_lf(&bytes[..head_bytes], target, head.headers) {
        return Look::Other;
    }
    let total = head_bytes + framing.body_bytes;
    if total > PLAIN_BYTES {
        return Look::Other;
    }
    if bytes.len() < total {
        // Whoever waits for the rest has been told what it is the rest of.
        return if Uri::try_from(target).is_ok() { Look::Head(total) } else { Look::Other };
    }
    let whole = Bytes::copy_from_slice(&bytes[..total]);
    // A header's text, which lies in `bytes`, as a part of `whole`.
    let part = |text: &[u8]| {
        let start = text.as_ptr() as usize - bytes.as_ptr() as usize;
        whole.slice(start..start + text.len())
    };
    let Ok(uri) = Uri::from_maybe_shared(part(target.as_bytes())) else {
        return Look::Other;
    };
    // A fragment is cut off.
    if uri.path_and_query().is_none_or(|kept| kept.as_str().len() != target.len()) {
        return Look::Other;
    }
    let Some(map) = write_down(head.headers, part, map()) else {
        return Look::Other;
    };
    *request.headers_mut() = map;
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.body_mut() = RequestBody::Whole(whole.slice(head_bytes..));
    Look::Request { bytes: total, closes: framing.closes }
}

/// The methods of a plain request. A HEAD is none: the reply to it is framed in a way of its own.
fn method(name: &str) -> Option<Method> {
    Some(match name {
        "GET" => Method::GET,
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        "OPTIONS" => Method::OPTIONS,
        _ => return None,
    })
}

/// Whether all lines of a head do. httparse takes LF alone, too, where a proxy before this server may see one line.
fn ends_lines_with_cr_lf(head: &[u8], target: &str, headers: &[httparse::Header<'_>]) -> bool {
    // What comes behind a part of the head. A CR ends its line: httparse takes none without an LF.
    let ends_line = |part: &[u8], more: usize| {
        let end = (part.as_ptr() as usize).wrapping_sub(head.as_ptr() as usize).wrapping_add(part.len() + more);
        head.get(end) == Some(&b'\r')
    };
    let is_usual = head.first() > Some(&b'\r')
        && ends_line(target.as_bytes(), " HTTP/1.1".len())
        && headers.iter().all(|one| ends_line(one.value, 0))
        && head.ends_with(b"\r\n");
    is_usual || has_no_lf_alone(head)
}

/// The same, where a line has spaces at its end.
#[cold]
fn has_no_lf_alone(head: &[u8]) -> bool {
    let mut before = 0;
    head.iter().all(|byte| std::mem::replace(&mut before, *byte) == b'\r' || *byte != b'\n')
}

fn write_down(
    headers: &[httparse::Header<'_>],
    part: impl Fn(&[u8]) -> Bytes,
    mut map: HeaderMap,
) -> Option<HeaderMap> {
    for one in headers {
        let name = HeaderName::from_bytes(one.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(part(one.value)).ok()?;
        map.append(name, value);
    }
    Some(map)
}

/// How a request's end is found, and whether it is the connection's last.
struct Framing {
    body_bytes: usize,
    closes: bool,
}

impl Framing {
    /// `None` for what is not plain.
    fn of(headers: &[httparse::Header<'_>]) -> Option<Self> {
        let (mut body_bytes, mut closes) = (None, None);
        for one in headers {
            // By length first: of the headers of a usual request, few have one of these.
            match one.name.len() {
                14 if is(one, &header::CONTENT_LENGTH) => {
                    // A second one is not plain, even where it says the same.
                    body_bytes = Some(digits(one.value).filter(|_| body_bytes.is_none())?);
                }
                10 if is(one, &header::CONNECTION) => {
                    let is_close = one.value.eq_ignore_ascii_case(b"close");
                    let is_known = is_close || one.value.eq_ignore_ascii_case(b"keep-alive");
                    closes = Some(is_close).filter(|_| is_known && closes.is_none());
                    closes?;
                }
                17 if is(one, &header::TRANSFER_ENCODING) => return None,
                6 if is(one, &header::EXPECT) => return None,
                7 if is(one, &header::UPGRADE) => return None,
                // A stream of events has no length that could be announced.
                6 if is(one, &header::ACCEPT)
                    && one.value.windows(5).any(|word| word.eq_ignore_ascii_case(b"event")) =>
                {
                    return None;
                }
                _ => {}
            }
        }
        Some(Self { body_bytes: body_bytes.unwrap_or(0), closes: closes.unwrap_or(false) })
    }
}

fn is(header: &httparse::Header<'_>, name: &HeaderName) -> bool {
    header.name.eq_ignore_ascii_case(name.as_str())
}

/// A length that no plain request exceeds.
fn digits(value: &[u8]) -> Option<usize> {
    if value.is_empty() || value.len() > 7 {
        return None;
    }
    value.iter().try_fold(0, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + usize::from(byte - b'0')))
}

/// Checks what a look at any bytes promises.
#[doc(hidden)]
pub fn check(bytes: &[u8]) {
    let look = |bytes: &[u8]| {
        let mut request = Request::new(RequestBody::Whole(Bytes::new()));
        (look(bytes, &mut request, HeaderMap::new), request)
    };
    let (found, request) = look(bytes);
    let done_bytes = found.done_bytes();
    assert!(done_bytes <= bytes.len().min(PLAIN_BYTES), "more than there is");
    match found {
        Look::Request { .. } => {
            assert!(request.uri().path().starts_with('/'), "a path");
            assert_eq!(look(&bytes[..done_bytes]).0, found, "what comes behind does not matter");
            for end in 0..done_bytes {
                let (before, _) = look(&bytes[..end]);
                assert!(before == Look::Beginning || before == Look::Head(done_bytes), "{before:?} before the end");
            }
        }
        Look::Head(wanted_bytes) => {
            assert!((bytes.len() + 1..=PLAIN_BYTES).contains(&wanted_bytes), "waits for more");
            let whole = [bytes, &vec![b'x'; wanted_bytes - bytes.len()]].concat();
            assert_eq!(look(&whole).0.done_bytes(), wanted_bytes, "and takes what it waited for");
        }
        Look::Beginning => assert!(bytes.len() <= HEAD_BYTES, "a bounded wait"),
        Look::Other => {}
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
