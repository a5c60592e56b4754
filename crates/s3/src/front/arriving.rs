//! A request's body as it comes: framing and signatures taken off, bounded in size and time.

use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http::request::Parts;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::authenticate::Identity;
use crate::algorithm::by_header;
use crate::chunked::{Decoder, TrailerRules};
use crate::error::{Code, S3Error};
use crate::operation::Head;
use crate::signature::Payload;

/// Bytes of a refused request's body that are read and thrown away, so that the client gets to read why. A client that
/// waits for `100 Continue` sends none.
const DISCARD_BYTES: u64 = 16 << 20;

/// A body that is arriving.
pub(crate) struct Arriving {
    incoming: Incoming,
    decoder: Option<Decoder>,
    /// Bytes that have come and are not decoded yet.
    pending: Bytes,
    /// Bytes of content, if they are known before.
    length: Option<u64>,
    stall: Duration,
    waits_for_continue: bool,
    /// Whether something says where the body ends: its length, HTTP's chunks, or HTTP/2.
    is_framed: bool,
    has_begun: bool,
    has_ended: bool,
    trailer: Option<Vec<u8>>,
}

impl Arriving {
    pub(crate) fn new(incoming: Incoming, parts: &Parts, stall: Duration) -> Self {
        let is_framed = parts.version > Version::HTTP_11
            || ["content-length", "transfer-encoding"].iter().any(|name| parts.headers.contains_key(*name));
        // HTTP/1 takes a request that says nothing for an empty one. S3 asks for the length.
        let length = incoming.size_hint().exact().filter(|_| is_framed);
        let waits_for_continue = parts.headers.contains_key("expect");
        Self {
            incoming,
            decoder: None,
            pending: Bytes::new(),
            length,
            stall,
            waits_for_continue,
            is_framed,
            has_begun: false,
            has_ended: false,
            trailer: None,
        }
    }

    /// Learns how the body is framed, once it is known who sends it.
    pub(crate) fn expect(&mut self, identity: &Identity, head: &Head<'_>) -> Result<(), S3Error> {
        let Payload::Chunked { is_signed, has_trailer } = identity.payload else { return Ok(()) };
        let decoded = match head.header("x-amz-decoded-content-length")? {
            Some(text) => text.parse::<u64>().map_err(|_| {
                S3Error::new(Code::InvalidArgument, "The header x-amz-decoded-content-length is no number.")
            })?,
            None => {
                let message = "You must provide the Content-Length HTTP header (x-amz-decoded-content-length).";
                return Err(S3Error::new(Code::MissingContentLength, message));
            }
        };
        let seed = match (is_signed, &identity.seed) {
            (false, _) => None,
            (true, Some(seed)) => Some(seed.clone()),
            (true, None) => {
                return Err(S3Error::new(Code::AccessDenied, "The request's chunks are signed, and it is not."));
            }
        };
        let rules = if has_trailer {
            let named = head.header("x-amz-trailer")?.and_then(|name| by_header(&name.to_ascii_lowercase()));
            Some(TrailerRules { checksum: named })
        } else {
            None
        };
        self.decoder = Some(Decoder::new(seed, rules, decoded));
        self.length = Some(decoded);
        Ok(())
    }

    /// Whether something says where the body ends.
    pub(crate) fn is_framed(&self) -> bool {
        self.is_framed
    }

    /// Whether the client sends its body only when it is told to.
    pub(crate) fn waits_for_continue(&self) -> bool {
        self.waits_for_continue
    }

    /// Bytes of content, if they are known before.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next bytes of content; `None` at the end, when all of it is proven.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, S3Error> {
        loop {
            if let Some(decoder) = &mut self.decoder
                && !self.pending.is_empty()
            {
                let pending = std::mem::take(&mut self.pending);
                let mut input = &pending[..];
                let data = decoder.decode(&mut input)?;
                let content = pending.slice_ref(data);
                self.pending = pending.slice_ref(input);
                if !content.is_empty() {
                    return Ok(Some(content));
                }
                continue;
            }
            match self.receive().await? {
                Some(bytes) if self.decoder.is_some() => self.pending = bytes,
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => return Ok(Some(bytes)),
                None => {
                    if let Some(decoder) = self.decoder.take() {
                        self.trailer = decoder.finish()?.checksum.map(|(_, value)| value);
                    }
                    return Ok(None);
                }
            }
        }
    }

    async fn receive(&mut self) -> Result<Option<Bytes>, S3Error> {
        self.has_begun = true;
        loop {
            let frame = match tokio::time::timeout(self.stall, self.incoming.frame()).await {
                Err(_) => {
                    let message = "Your socket connection to the server was not read from or written to within the \
                                   timeout period.";
                    return Err(S3Error::new(Code::RequestTimeout, message));
                }
                Ok(None) => {
                    self.has_ended = true;
                    return Ok(None);
                }
                Ok(Some(Err(error))) => {
                    tracing::debug!(%error, "a body was cut short");
                    return Err(Code::IncompleteBody.into());
                }
                Ok(Some(Ok(frame))) => frame,
            };
            // HTTP's own trailers are no part of S3.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The checksum that came behind the body.
    pub(crate) fn trailer(&self) -> Option<&[u8]> {
        self.trailer.as_deref()
    }

    /// Reads all of it, if it is not larger than this.
    pub(crate) async fn collect(&mut self, limit_bytes: usize) -> Result<Bytes, S3Error> {
        if self.length.is_some_and(|length| length > limit_bytes as u64) {
            return Err(Code::MaxMessageLengthExceeded.into());
        }
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        let mut rest = match self.next().await? {
            None => return Ok(first),
            Some(second) => [first, second].concat(),
        };
        while let Some(bytes) = self.next().await? {
            if rest.len() + bytes.len() > limit_bytes {
                return Err(Code::MaxMessageLengthExceeded.into());
            }
            rest.extend_from_slice(&bytes);
        }
        Ok(rest.into())
    }

    /// Whether some of it has not been read. The next request on the connection could not be told from it.
    pub(crate) fn is_left(&self) -> bool {
        !self.has_ended && !self.incoming.is_end_stream()
    }

    /// Throws away what a refused client goes on sending, within bounds.
    pub(crate) async fn discard(&mut self) {
        if self.waits_for_continue && !self.has_begun {
            return;
        }
        let mut left = DISCARD_BYTES;
        while left > 0 && !self.incoming.is_end_stream() {
            match self.receive().await {
                Ok(Some(bytes)) => left = left.saturating_sub(bytes.len() as u64),
                Ok(None) | Err(_) => return,
            }
        }
    }
}
