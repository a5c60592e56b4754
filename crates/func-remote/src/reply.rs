//! A route's reply, from what a worker writes.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{RouteReply, base64_decode};
use serde::Deserialize;

use crate::attempt::broken;

/// Headers of the framing, which the server sets.
const RESERVED: [&str; 8] =
    ["connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Bytes of one header's name, and of its value.
const NAME_BYTES: usize = 256;
const VALUE_BYTES: usize = 8 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
}

/// Reads a reply.
///
/// # Errors
/// `worker-failed` for what is not one; `function-failed` for one that must not be sent.
pub(crate) fn route_reply(json: &[u8], output_bytes: usize) -> Result<RouteReply, Error> {
    let reply: Reply =
        serde_json::from_slice(json).map_err(|error| broken(format_args!("the output of a route: {error}")))?;
    let body =
        base64_decode(reply.body.as_bytes()).ok_or_else(|| broken("the body of a route's output is not base64"))?;
    if body.len() > output_bytes {
        let message = format!("the reply has {} bytes; {output_bytes} are allowed", body.len());
        return Err(Error::new(ErrorCode::SizeLimit, message));
    }
    let wrong = |what: String| Error::new(ErrorCode::FunctionFailed, format!("malformed reply: {what}"));
    if !(200..=599).contains(&reply.status) {
        return Err(wrong(format!("status {} is not between 200 and 599", reply.status)));
    }
    if matches!(reply.status, 204 | 205 | 304) && !body.is_empty() {
        return Err(wrong(format!("a {} reply has no body", reply.status)));
    }
    if reply.headers.len() > limits::FETCH_RESPONSE_HEADERS {
        return Err(wrong("it has too many headers".to_owned()));
    }
    let mut headers = Vec::with_capacity(reply.headers.len());
    for (name, value) in reply.headers {
        let name = name.to_ascii_lowercase();
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES && name.bytes().all(is_token);
        let is_value =
            value.len() <= VALUE_BYTES && value.bytes().all(|byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7F));
        if !is_name || !is_value || RESERVED.contains(&name.as_str()) {
            return Err(wrong(format!("the header {name:?} cannot be sent")));
        }
        headers.push((name, value));
    }
    Ok(RouteReply { status: reply.status, headers, body: Bytes::from(body) })
}

/// What a header's name consists of.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
