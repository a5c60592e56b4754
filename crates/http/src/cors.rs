//! Which web pages may read replies (the CORS protocol: Fetch Standard, 3.3).
//!
//! A browser asks in the name of a page and hands it a reply of another origin only if that says so. Two kinds of
//! pages may read: those of origins that the operator names, and, while there are no keys, every page that may use the
//! node at all ([`crate::origin`]).
//!
//! Promises: no header for other pages, and none of an app's own replaced. Must not decide who may do something: a browser
//! is one of many clients, and what a page may do its key says.

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};

use crate::body::ReplyBody;
use crate::origin::Guard;
use crate::reply;

/// Names all origins.
const ANY: &str = "*";

/// What a preflight allows: every method that an operation has.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Headers of replies that a page may read beside those that every page may (Fetch Standard, 2.2.2).
const READABLE: HeaderValue = HeaderValue::from_static(
    "allow, etag, location, millrace-expires, millrace-matched, millrace-schema-id, preference-applied, retry-after",
);

/// For how many seconds a browser may go by a preflight's answer.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");

/// The origins whose pages may read replies.
pub(crate) struct Cors {
    origins: Vec<HeaderValue>,
    is_any: bool,
}

/// A page that may read the reply to its request: what to allow.
pub(crate) struct Reader {
    origin: HeaderValue,
    /// Whether the browser may send cookies along.
    has_credentials: bool,
    /// It asks whether it may ask, and for which headers.
    preflight: Option<Option<HeaderValue>>,
}

impl Cors {
    /// `origins` have been checked with [`is_origin`].
    pub(crate) fn new(origins: &[String]) -> Self {
        Self {
            is_any: origins.iter().any(|origin| origin == ANY),
            origins: origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect(),
        }
    }

    /// The page that a request comes from, if it may read the reply. `guard`: there are no keys.
    ///
    /// Boxed: few requests are a page's, and a request is kept while it waits.
    pub(crate) fn reader(
        &self,
        guard: Option<&Guard>,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<Box<Reader>> {
        let origin = headers.get(header::ORIGIN)?;
        let is_named = self.origins.contains(origin);
        let may_ask = || guard.is_some_and(|guard| guard.is_own_page(uri, headers.get(header::HOST), origin));
        let is_one = is_named || may_ask();
        if !is_one && !self.is_any {
            return None;
        }
        let is_preflight = *method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        Some(Box::new(Reader {
            origin: if is_one { origin.clone() } else { HeaderValue::from_static(ANY) },
            has_credentials: is_one,
            preflight: is_preflight.then(|| headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned()),
        }))
    }
}

impl Reader {
    /// Lets the page read the reply. A preflight that neither an app nor an operation answers is answered here: it comes
    /// without a key, whatever the request behind it will have.
    pub(crate) fn allow(self, response: &mut Response<ReplyBody>) {
        if let Some(asked) = self.preflight
            && !response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN)
        {
            *response = reply::empty(StatusCode::NO_CONTENT);
            let headers = response.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
            if let Some(asked) = asked {
                headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
            }
        }
        let headers = response.headers_mut();
        if headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.append(header::VARY, HeaderValue::from(header::ORIGIN));
        if self.has_credentials {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        headers.entry(header::ACCESS_CONTROL_EXPOSE_HEADERS).or_insert(READABLE);
    }
}

/// Whether `text` is `*`, or an origin as browsers send it: scheme, host in lower case, and a port that is not the scheme's.
pub(crate) fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("http://").map(|host| (host, ":80"));
    let host = host.or_else(|| text.strip_prefix("https://").map(|host| (host, ":443")));
    let is_plain =
        |host: &str| !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@*,".contains(&byte));
    text == ANY
        || host.is_some_and(|(host, usual_port)| {
            is_plain(host) && !host.ends_with(usual_port) && !host.bytes().any(|byte| byte.is_ascii_uppercase())
        })
}

#[cfg(test)]
mod tests {
    use super::is_origin;

    #[test]
    fn an_origin_is_what_browsers_send() {
        for good in ["*", "http://localhost:5173", "https://shop.test", "http://[::1]:3000", "https://shop.test:8443"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "",
            "null",
            "shop.test",
            "https://",
            "https://shop.test/",
            "https://Shop.test",
            "https://*.shop.test",
            "https://a.test,https://b.test",
            "https://user@shop.test",
            "https://shop.test:443",
            "http://shop.test:80",
            "ftp://shop.test",
            "https://shop .test",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
