//! Checks of what a client sends, in front of hyper.
//!
//! hyper passes over things that a proxy before this server may read in another way, and it bounds not every frame of
//! HTTP/2. So the bytes of its connections go through here first. Pure: no sockets, no clock. Must not know operations.

mod http1;
mod http2;

use millrace_base::Error;

pub(crate) use http1::Http1;
pub(crate) use http2::Http2;

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    /// What the client is told.
    pub(crate) error: Error,
    /// A request has begun, and its body is what is wrong. Otherwise no request has.
    pub(crate) is_in_body: bool,
}

/// The check of one connection.
pub(crate) enum Check {
    Http1(Http1),
    Http2(Http2),
}
