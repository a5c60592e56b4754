//! What a route returned, as a reply.
//!
//! An object whose properties are all among `status`, `headers` and `body` (and that has one of
//! them) is a reply; any other value is the body of a reply with status 200, and `undefined` is a
//! 204.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::RouteReply;

use crate::headers::{Fault, Rules, wrong};
use crate::isolate::Isolate;
use crate::js::{Kind, Raw, is_undefined, kind};
use crate::natives::utf8;

/// Header fields of one reply: more than any client keeps.
const HEADERS: usize = 128;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

const RULES: Rules = Rules {
    what: "a reply",
    most: HEADERS,
    reserved: &[
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ],
    framed_by: "the server",
    are_names_kept: true,
};

impl Isolate {
    /// The reply that a route's result stands for.
    pub(crate) fn route_reply(&self, raw: Raw) -> Result<RouteReply, Error> {
        self.reply(raw).map_err(|fault| match fault {
            Fault::Thrown => self.take_error(),
            Fault::Wrong(message) => Error::new(ErrorCode::FunctionFailed, format!("malformed reply: {message}")),
            Fault::TooLarge(length) => self.output_too_large(length),
        })
    }

    fn reply(&self, raw: Raw) -> Result<RouteReply, Fault> {
        if is_undefined(raw) {
            return Ok(RouteReply { status: 204, headers: Vec::new(), body: Bytes::new() });
        }
        if !self.is_reply(raw)? {
            let (body, content_type) = self.body(raw)?;
            return Ok(RouteReply { status: 200, headers: vec![content_type_header(content_type)], body });
        }
        let status = self.context.get(raw, self.atoms.status)?;
        let headers = self.context.get(raw, self.atoms.headers)?;
        let body = self.context.get(raw, self.atoms.body)?;
        let mut headers = self.header_list(headers.raw(), &RULES)?;
        let has_body = !is_undefined(body.raw());
        let status = read_status(status.raw(), has_body)?;
        if matches!(status, 204 | 205 | 304) && has_body {
            return wrong(format!("a {status} reply has no body"));
        }
        if !has_body {
            return Ok(RouteReply { status, headers, body: Bytes::new() });
        }
        let (body, content_type) = self.body(body.raw())?;
        if !headers.iter().any(|(name, _)| name == "content-type") {
            headers.push(content_type_header(content_type));
        }
        Ok(RouteReply { status, headers, body })
    }

    /// Whether every own property is one of a reply, and there is one.
    fn is_reply(&self, raw: Raw) -> Result<bool, Fault> {
        if kind(raw) != Kind::Object || self.context.is_array(raw) || self.is_binary(raw) {
            return Ok(false);
        }
        let names = self.plain_names(raw)?;
        let known = [self.atoms.status, self.atoms.headers, self.atoms.body];
        Ok(!names.is_empty() && names.iter().all(|name| known.contains(&name)))
    }

    fn body(&self, raw: Raw) -> Result<(Bytes, &'static str), Fault> {
        let (body, content_type) = match kind(raw) {
            Kind::String => (utf8(self, raw)?.into_bytes(), TEXT),
            Kind::Object if self.is_binary(raw) => match self.context.bytes_of(raw)? {
                Some(bytes) => (bytes, BYTES),
                None => return wrong("a DataView cannot be a body: use a Uint8Array"),
            },
            _ => {
                let mut json = Vec::new();
                self.write_message(raw, &mut json)?;
                (json, JSON)
            }
        };
        if body.len() > self.limits.output_bytes {
            return Err(Fault::TooLarge(body.len()));
        }
        Ok((Bytes::from(body), content_type))
    }
}

fn content_type_header(content_type: &str) -> (String, String) {
    ("content-type".to_owned(), content_type.to_owned())
}

fn read_status(raw: Raw, has_body: bool) -> Result<u16, Fault> {
    let status = match kind(raw) {
        Kind::Undefined => return Ok(if has_body { 200 } else { 204 }),
        Kind::Int(status) => status,
        _ => return wrong("status must be a whole number; a body with such a field goes into { body: … }"),
    };
    match u16::try_from(status) {
        Ok(status) if (200..=599).contains(&status) => Ok(status),
        _ => wrong(format!("status {status} is not between 200 and 599")),
    }
}
