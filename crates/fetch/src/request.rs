//! Checks what a function asks for, and makes a request of it.

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body_util::Full;
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{FetchOrigin, FetchRequest, FetchTarget};

/// Longer than every registered method.
const METHOD_BYTES: usize = 32;

/// Headers about the connection or the framing, which the caller must not set. With them a caller could make a request
/// that two servers in a row read differently.
const RESERVED: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request that may be sent.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) origin: FetchOrigin,
    pub(crate) message: Request<Full<Bytes>>,
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FetchRefused, message)
}

/// Checks everything that can be checked without a connection.
///
/// # Errors
/// `fetch-refused`. The message does not contain values of headers, which may be secret.
pub(crate) fn prepare(request: FetchRequest) -> Result<Prepared, Error> {
    let target = FetchTarget::parse(&request.url)?;
    let method = checked_method(&request.method)?;
    let mut headers = checked_headers(&request.headers)?;
    let host = HeaderValue::from_str(&target.origin().authority())
        .map_err(|_| refused("the URL's host cannot stand in a header"))?;
    headers.insert(HOST, host);
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("millrace"));
    let uri: Uri =
        target.path_and_query().parse().map_err(|error| refused(format!("the URL's path cannot be sent: {error}")))?;
    let mut message = Request::new(Full::new(request.body));
    *message.method_mut() = method;
    *message.uri_mut() = uri;
    *message.headers_mut() = headers;
    Ok(Prepared { origin: target.origin().clone(), message })
}

/// Writes the request as HTTP/2 has it: with scheme and authority in place of the header `host`.
///
/// # Errors
/// A sentence: the URL cannot be written so.
pub(crate) fn to_http2<T>(mut message: Request<T>, origin: &FetchOrigin) -> Result<Request<T>, String> {
    let scheme = if origin.is_tls { "https" } else { "http" };
    let text = format!("{scheme}://{}{}", origin.authority(), message.uri());
    *message.uri_mut() =
        text.parse().map_err(|error: http::uri::InvalidUri| format!("the URL cannot be sent: {error}"))?;
    message.headers_mut().remove(HOST);
    *message.version_mut() = Version::HTTP_2;
    Ok(message)
}

fn checked_method(text: &str) -> Result<Method, Error> {
    if ["CONNECT", "TRACE", "TRACK"].iter().any(|reserved| reserved.eq_ignore_ascii_case(text)) {
        return Err(refused(format!("the method {text} cannot be fetched with")));
    }
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if text.len() <= METHOD_BYTES => Ok(method),
        _ => Err(refused("the method is not a word of at most 32 letters")),
    }
}

fn checked_headers(given: &[(String, String)]) -> Result<HeaderMap, Error> {
    let size_bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if given.len() > limits::FETCH_HEADERS || size_bytes > limits::FETCH_HEADER_BYTES {
        return Err(refused(format!(
            "the request has {} headers with {size_bytes} bytes; {} with {} bytes are allowed",
            given.len(),
            limits::FETCH_HEADERS,
            limits::FETCH_HEADER_BYTES
        )));
    }
    let mut headers = HeaderMap::with_capacity(given.len() + 2);
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| refused(format!("{name:?} is not the name of a header")))?;
        if RESERVED.contains(&name.as_str()) {
            return Err(refused(format!("the header {name} is set by the server itself")));
        }
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| refused(format!("the value of the header {name} holds a control character")))?;
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(method: &str, url: &str, headers: &[(&str, &str)]) -> FetchRequest {
        FetchRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: Bytes::new(),
            timeout_ms: 1000,
            response_bytes: 1000,
            retries: 0,
        }
    }

    fn reason(method: &str, url: &str, headers: &[(&str, &str)]) -> String {
        let error = prepare(request(method, url, headers)).expect_err("refused");
        assert_eq!(error.code, ErrorCode::FetchRefused);
        error.message
    }

    #[test]
    fn a_request_is_sent_as_the_target_reads_it() {
        let url = "HTTP://Example.com:80/a b/../ü?q=`x'#part";
        let prepared = prepare(request("PATCH", url, &[("X-One", "1"), ("x-one", "ä")])).expect("valid");
        assert_eq!(prepared.origin.to_string(), "http://example.com");
        let message = prepared.message;
        assert_eq!((message.method().as_str(), message.uri().to_string().as_str()), ("PATCH", "/%C3%BC?q=`x%27"));
        assert_eq!(message.headers()["host"], "example.com");
        assert_eq!(message.headers()["user-agent"], "millrace");
        assert_eq!(message.headers().get_all("x-one").iter().count(), 2);
        assert_eq!(message.headers().len(), 4);
        let own = prepare(request("GET", "http://[::1]:8080", &[("User-Agent", "mine")])).expect("valid");
        assert_eq!(
            (&own.message.headers()["user-agent"], &own.message.headers()["host"]),
            (&HeaderValue::from_static("mine"), &HeaderValue::from_static("[::1]:8080"))
        );
    }

    #[test]
    fn what_must_not_be_sent_is_refused() {
        let url = "http://example.com/";
        for name in RESERVED {
            let upper = name.to_uppercase();
            assert!(reason("GET", url, &[(&upper, "x")]).contains("set by the server itself"), "{name}");
        }
        for name in ["", " ", "a b", "a:", "ä", "a\r\nb", ":path", "host "] {
            assert!(reason("GET", url, &[(name, "x")]).contains("is not the name"), "{name:?}");
        }
        for value in ["a\r\nb: c", "a\nb", "a\0b", "\u{7f}"] {
            let text = reason("GET", url, &[("authorization", value)]);
            assert!(text.contains("control character") && !text.contains(value), "{text}");
        }
        for method in ["", "GET ", "G\r\nT", "G ET", "GÄT", "CONNECT", "trace", &"X".repeat(33)] {
            assert!(reason(method, url, &[]).contains("the method"), "{method:?}");
        }
        assert!(reason("GET", "ftp://example.com/", &[]).contains("only http"));
        let many = vec![("a", "b"); limits::FETCH_HEADERS + 1];
        assert!(reason("GET", url, &many).contains("65 headers"));
        let large = "x".repeat(limits::FETCH_HEADER_BYTES);
        assert!(reason("GET", url, &[("a", &large)]).contains("16385 bytes"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Every target that can be read can be sent: what the policy allows is not lost later.
        #[test]
        fn every_target_can_be_sent(rest in prop_oneof![any::<String>(), "\\PC{0,40}"]) {
            let url = format!("http://a/{rest}");
            if let Ok(target) = FetchTarget::parse(&url) {
                let prepared = prepare(request("GET", &url, &[]));
                prop_assert_eq!(prepared.map(|prepared| prepared.message.uri().to_string()), Ok(target.path_and_query().to_owned()));
            }
        }

        #[test]
        fn nothing_makes_it_panic(method in any::<String>(), url in any::<String>(), name in any::<String>(), value in any::<String>()) {
            if let Err(error) = prepare(request(&method, &url, &[(&name, &value)])) {
                prop_assert_eq!(error.code, ErrorCode::FetchRefused);
            }
        }
    }
}
