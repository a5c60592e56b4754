//! An exchange in both directions at once: the request's body goes on while the response comes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::fetcher::describe;
use crate::outgoing::Parts;
use crate::pool::Key;
use crate::shares::{Lease, Shares};

/// How long a server may take to end a response after the request has ended, and how much it may still send.
const ENDING: Duration = Duration::from_secs(1);
const ENDING_BYTES: usize = 64 << 10;

/// One stream of an HTTP/2 connection, whose response has begun. Dropped, it is reset.
///
/// It buffers what [`Duplex::send`] is given until the connection takes it, so the caller bounds that. Of the response it
/// holds no more than the stream's window: what is not read with [`Duplex::next`] is not acknowledged.
pub struct Duplex {
    status: StatusCode,
    response: Incoming,
    /// Gives the stream up before the connection gets its place back.
    request: GivenUp,
    lease: Lease,
}

/// Breaks a request's body off when it is dropped.
pub(crate) struct GivenUp {
    parts: Parts,
    shares: Arc<Shares>,
    key: Key,
    /// The shared connection.
    share: u64,
    /// Both ends have ended their sides.
    is_over: bool,
}

impl GivenUp {
    pub(crate) fn new(parts: Parts, shares: Arc<Shares>, key: Key, share: u64) -> Self {
        Self { parts, shares, key, share, is_over: false }
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let is_heard = self.parts.break_off();
        // A server that does not read holds the stream for as long as its connection lasts. So that takes no more streams.
        if !is_heard {
            self.shares.retire(&self.key, self.share);
        }
    }
}

impl Duplex {
    pub(crate) fn new(response: Response<Incoming>, request: GivenUp, lease: Lease) -> Self {
        let (head, response) = response.into_parts();
        Self { status: head.status, response, request, lease }
    }

    /// The response's status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// Sends more of the request's body.
    pub fn send(&self, part: Bytes) {
        self.request.parts.push(part);
    }

    /// Ends the request's body. The response may go on.
    pub fn finish(&self) {
        self.request.parts.end();
    }

    /// Whether something of the request's body waits for the connection.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.request.parts.has_unsent()
    }

    /// More of the response's body; `None` at its end. It may be dropped and called again.
    ///
    /// # Errors
    /// A sentence: the server broke off.
    pub async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.response.frame().await? {
                Ok(frame) => {
                    // Trailers come after the body.
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(describe(&error))),
            }
        }
    }

    /// Nobody may be there any more: others take another connection.
    pub fn retire(&self) {
        self.request.shares.retire(&self.request.key, self.request.share);
    }

    /// Ends the request's body, and waits for a moment until the server has ended the response too. So the stream ends in
    /// order, without a reset.
    pub async fn end(mut self) {
        self.finish();
        let mut left_bytes = ENDING_BYTES;
        let ending = async {
            while let Some(said) = self.next().await {
                match said.map(|data| left_bytes.checked_sub(data.len())) {
                    Ok(Some(left)) => left_bytes = left,
                    Ok(None) | Err(_) => return false,
                }
            }
            true
        };
        let has_ended = timeout(ENDING, ending).await == Ok(true);
        self.request.is_over = has_ended && self.request.parts.are_sent();
    }

    /// Which of its connections the fetcher uses, for tests of what shares one.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.lease.id
    }
}
