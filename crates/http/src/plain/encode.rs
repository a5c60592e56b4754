//! A reply's status line and headers as bytes. Pure.

use http::{HeaderMap, StatusCode, header};

/// What a reply's headers say about more than the reply.
pub(crate) struct Written {
    /// The connection ends with this reply.
    pub(crate) closes: bool,
    /// No body follows, whatever there is: the status allows none.
    pub(crate) is_bodiless: bool,
}

/// Appends the head of a reply with a body of `body_bytes`. `date` is what `Date` says unless the reply has its own;
/// `closes` tells the client that no other request is read.
pub(crate) fn head(
    buffer: &mut Vec<u8>,
    status: StatusCode,
    headers: &HeaderMap,
    body_bytes: usize,
    date: &[u8],
    closes: bool,
) -> Written {
    let mut written = Written { closes, is_bodiless: is_bodiless(status) };
    status_line(buffer, status);
    let (mut has_date, mut has_connection) = (false, false);
    for (name, value) in headers {
        if *name == header::CONNECTION {
            has_connection = true;
            written.closes |= value.as_bytes().eq_ignore_ascii_case(b"close");
        }
        has_date |= *name == header::DATE;
        line(buffer, name.as_str().as_bytes(), value.as_bytes());
    }
    // A status without a body has no length either (RFC 9110, 8.6); of 304 it would be the length of what is not sent.
    if !written.is_bodiless {
        line(buffer, b"content-length", itoa::Buffer::new().format(body_bytes).as_bytes());
    }
    if written.closes && !has_connection {
        line(buffer, b"connection", b"close");
    }
    if !has_date {
        line(buffer, b"date", date);
    }
    buffer.extend_from_slice(b"\r\n");
    written
}

fn status_line(buffer: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        buffer.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    buffer.extend_from_slice(b"HTTP/1.1 ");
    buffer.extend_from_slice(status.as_str().as_bytes());
    buffer.push(b' ');
    buffer.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    buffer.extend_from_slice(b"\r\n");
}

#[inline]
fn line(buffer: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    buffer.reserve(name.len() + value.len() + 4);
    buffer.extend_from_slice(name);
    buffer.extend_from_slice(b": ");
    buffer.extend_from_slice(value);
    buffer.extend_from_slice(b"\r\n");
}

fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}
