//! `ctx.fetch`: from what user code asks for to a [`FetchRequest`], and from the host's answer to
//! the response object that `glue.js` defines.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{FetchRequest, base64_decode};

use crate::headers::{Fault, Rules, is_token, wrong};
use crate::isolate::Isolate;
use crate::js::{Kind, Raw, Thrown, UNDEFINED, Value, int, is_nullish, kind};
use crate::native::{Call, Entry, NativeOwner};
use crate::natives::utf8;
use crate::operations::Answer;
use crate::subject::Subject;

pub(crate) const ENTRIES: &[Entry] = &[(NativeOwner::Context, "fetch", 2, fetch)];

/// Bytes of a method's name: the longest registered one has 17.
const METHOD_BYTES: usize = 32;

const RULES: Rules = Rules {
    what: "a request",
    most: limits::HTTP_HEADERS,
    // `host` with them: the app's allow-list is about hosts.
    reserved: &[
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ],
    framed_by: "ctx.fetch",
    are_names_kept: false,
};

fn fetch(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    let request = isolate.fetch_request(call.argument(0), call.argument(1)).map_err(|fault| match fault {
        Fault::Thrown => Thrown,
        Fault::Wrong(message) => call.context.throw_type(&message),
        Fault::TooLarge(length) => {
            let message = format!("an outside request has at most {} bytes, not {length}", limits::FETCH_REQUEST_BYTES);
            isolate.throw_error(Error::new(ErrorCode::SizeLimit, message))
        }
    })?;
    isolate.check_operations()?;
    isolate.await_operation_as(Answer::Response, || isolate.with_host(|host| host.fetch(request)))
}

impl Isolate {
    fn fetch_request(&self, url: Raw, options: Raw) -> Result<FetchRequest, Fault> {
        let mut request = FetchRequest {
            method: "GET".to_owned(),
            url: self.fetch_url(url)?,
            headers: Vec::new(),
            body: Bytes::new(),
            timeout_ms: limits::FETCH_TIMEOUT_MS,
            response_bytes: limits::FETCH_RESPONSE_BYTES,
            retries: limits::FETCH_RETRIES,
        };
        let atoms = &self.atoms;
        let known = [
            (atoms.method, "method"),
            (atoms.headers, "headers"),
            (atoms.body, "body"),
            (atoms.timeout_ms, "timeoutMs"),
            (atoms.retries, "retries"),
        ];
        // A route's request is sent once.
        let is_route = self.host.with_subject(|subject| matches!(subject, Subject::Request(_))).unwrap_or(false);
        let known = if is_route { &known[..known.len() - 1] } else { &known };
        if !self.check_options(options, known, if is_route { "a route's ctx.fetch" } else { "ctx.fetch" })? {
            return Ok(request);
        }
        let option = |name| self.context.get(options, name);
        let method = option(atoms.method)?;
        if !is_nullish(method.raw()) {
            request.method = self.fetch_method(method.raw())?;
        }
        request.headers = self.header_list(option(atoms.headers)?.raw(), &RULES)?;
        let bytes: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > limits::HTTP_HEADER_BYTES {
            return wrong(format!("the headers of a request have at most {} bytes", limits::HTTP_HEADER_BYTES));
        }
        let timeout = whole(option(atoms.timeout_ms)?.raw(), "timeoutMs", 1, limits::FETCH_LONGEST_MS)?;
        request.timeout_ms = timeout.unwrap_or(request.timeout_ms);
        let retries = whole(option(atoms.retries)?.raw(), "retries", 0, u64::from(limits::FETCH_MOST_RETRIES))?;
        request.retries = retries.map_or(request.retries, |retries| retries as u32);
        let body = option(atoms.body)?;
        if !is_nullish(body.raw()) {
            self.add_body(&mut request, body.raw())?;
        }
        Ok(request)
    }

    /// An absolute URL. Whoever sends the request takes it apart; here only what can be told
    /// without that.
    fn fetch_url(&self, raw: Raw) -> Result<String, Fault> {
        if kind(raw) != Kind::String {
            return wrong("ctx.fetch takes a URL as a string");
        }
        let url = utf8(self, raw)?;
        if url.len() > limits::FETCH_URL_BYTES {
            return wrong(format!("a URL has at most {} bytes", limits::FETCH_URL_BYTES));
        }
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if !scheme.is_some_and(|scheme| scheme == "http" || scheme == "https") {
            return wrong("ctx.fetch takes an absolute URL that begins with http:// or https://");
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return wrong("a URL has no spaces and no characters beyond ASCII: use encodeURIComponent for its parts");
        }
        Ok(url)
    }

    fn fetch_method(&self, raw: Raw) -> Result<String, Fault> {
        if kind(raw) != Kind::String {
            return wrong("method must be a string");
        }
        let method = utf8(self, raw)?.to_ascii_uppercase();
        if method.len() > METHOD_BYTES || !is_token(&method) || matches!(method.as_str(), "CONNECT" | "TRACE") {
            return wrong("method must be one like GET or POST");
        }
        Ok(method)
    }

    fn add_body(&self, request: &mut FetchRequest, raw: Raw) -> Result<(), Fault> {
        if matches!(request.method.as_str(), "GET" | "HEAD") {
            return wrong(format!("a {} request has no body", request.method));
        }
        let (body, content_type) = match kind(raw) {
            Kind::String => (utf8(self, raw)?.into_bytes(), Some("text/plain; charset=utf-8")),
            Kind::Object if self.is_binary(raw) => match self.context.bytes_of(raw)? {
                Some(bytes) => (bytes, None),
                None => return wrong("a DataView cannot be a body: use a Uint8Array"),
            },
            _ => {
                let mut json = Vec::new();
                self.write_message(raw, &mut json)?;
                (json, Some("application/json"))
            }
        };
        if body.len() > limits::FETCH_REQUEST_BYTES {
            return Err(Fault::TooLarge(body.len()));
        }
        let is_typed = request.headers.iter().any(|(name, _)| name == "content-type");
        if let Some(content_type) = content_type.filter(|_| !is_typed) {
            request.headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        request.body = Bytes::from(body);
        Ok(())
    }

    /// The response object for what the host answered to a fetch.
    pub(crate) fn response(&self, json: &[u8]) -> Result<Value, Thrown> {
        let Some((status, headers, body)) = read_response(json) else {
            let message = "the host answered a fetch with something else than a response";
            return Err(self.throw_error(Error::new(ErrorCode::Internal, message)));
        };
        let pairs = self.context.array()?;
        for (index, text) in headers.iter().enumerate() {
            self.context.push(&pairs, index as u32, self.context.string(text.as_bytes())?)?;
        }
        let body = self.context.uint8_array(&body)?;
        let mut arguments = [int(i32::from(status)), pairs.raw(), body.raw()];
        self.context.call(self.glue.make_response, UNDEFINED, &mut arguments)
    }
}

/// A whole number of an option; `None` when it is not given.
fn whole(raw: Raw, name: &str, low: u64, high: u64) -> Result<Option<u64>, Fault> {
    match kind(raw) {
        Kind::Undefined | Kind::Null => Ok(None),
        Kind::Int(value) if u64::try_from(value).is_ok_and(|value| (low..=high).contains(&value)) => {
            Ok(Some(u64::from(value.unsigned_abs())))
        }
        _ => wrong(format!("{name} must be a whole number from {low} to {high}")),
    }
}

/// Status, headers (names and values in turn) and body.
fn read_response(json: &[u8]) -> Option<(u16, Vec<String>, Vec<u8>)> {
    let mut response: serde_json::Value = serde_json::from_slice(json).ok()?;
    let status = u16::try_from(response.get("status")?.as_u64()?).ok()?;
    let body = base64_decode(response.get("body")?.as_str()?.as_bytes())?;
    let serde_json::Value::Array(rows) = response.get_mut("headers")?.take() else {
        return None;
    };
    let mut headers = Vec::with_capacity(2 * rows.len());
    for row in rows {
        let [name, value] = row.as_array()?.as_slice() else {
            return None;
        };
        headers.extend([name.as_str()?.to_owned(), value.as_str()?.to_owned()]);
    }
    Some((status, headers, body))
}
