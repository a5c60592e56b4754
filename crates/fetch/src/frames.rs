//! HTTP/2: how many frames a server may send that carry nothing.
//!
//! A server that sends PING or SETTINGS without an end has them answered without an end. So a connection has a budget for
//! all frames but content. What is sent to the server, and time, allow more: it acknowledges, opens windows and answers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use millrace_base::Http2FrameBudget;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const HEAD_BYTES: usize = 9;

/// What a client's connection begins with.
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Of DATA: the first byte of the payload says how many at its end are padding.
const PADDED: u8 = 0x8;

/// What a frame of content allows: servers open the windows of its stream and of the connection.
const FRAMES_PER_CONTENT: u64 = 4;

/// Finds the heads of frames among bytes that come in any parts. The length of a DATA frame's padding is taken for a part of
/// its head.
struct Heads {
    head: [u8; HEAD_BYTES + 1],
    head_bytes: usize,
    /// Bytes that come before the next head.
    left: usize,
}

impl Heads {
    fn behind(left: usize) -> Self {
        Self { head: [0; HEAD_BYTES + 1], head_bytes: 0, left }
    }

    /// Says of each frame that begins its kind, and whether it has content.
    fn look(&mut self, mut bytes: &[u8], mut each: impl FnMut(u8, bool)) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let here = self.left.min(bytes.len());
                self.left -= here;
                bytes = &bytes[here..];
                continue;
            }
            let here = (HEAD_BYTES - self.head_bytes.min(HEAD_BYTES - 1)).min(bytes.len());
            self.head[self.head_bytes..self.head_bytes + here].copy_from_slice(&bytes[..here]);
            self.head_bytes += here;
            bytes = &bytes[here..];
            if self.head_bytes < HEAD_BYTES {
                continue;
            }
            let [a, b, c, kind, flags, .., padding] = self.head;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let is_padded = kind == DATA && flags & PADDED != 0 && length > 0;
            if is_padded && self.head_bytes == HEAD_BYTES {
                continue;
            }
            let beside = if is_padded { 1 } else { 0 };
            (self.left, self.head_bytes) = (length - beside, 0);
            each(kind, length > beside * (1 + usize::from(padding)));
        }
    }
}

/// A connection that ends once the server has sent too many frames without content.
pub(crate) struct Counted<S> {
    stream: S,
    sent: Heads,
    came: Heads,
    budget: Http2FrameBudget,
    began: Instant,
}

impl<S> Counted<S> {
    /// For a client's connection from its first byte on.
    pub(crate) fn new(stream: S) -> Self {
        let (sent, came) = (Heads::behind(PREFACE_BYTES), Heads::behind(0));
        Self { stream, sent, came, budget: Http2FrameBudget::new(0), began: Instant::now() }
    }

    fn sent(&mut self, bytes: &[u8]) {
        let Self { sent, budget, .. } = self;
        sent.look(bytes, |kind, _| match kind {
            HEADERS => budget.request_begins(),
            DATA => budget.earn(FRAMES_PER_CONTENT),
            _ => {}
        });
    }

    /// Whether the connection may go on after these bytes.
    fn came(&mut self, bytes: &[u8]) -> bool {
        let Self { came, budget, began, .. } = self;
        budget.time_is(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut goes_on = true;
        came.look(bytes, |kind, has_content| {
            goes_on &= kind == DATA && has_content || budget.spend();
        });
        goes_on
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.came(&buffer.filled()[before..]) {
            return polled;
        }
        // Nothing of what came counts: the connection ends.
        buffer.set_filled(before);
        Poll::Ready(Err(io::Error::other("the server sends too many frames of HTTP/2 without content")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.sent(&bytes[..written]);
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        if let Poll::Ready(Ok(mut written)) = polled {
            for part in parts {
                let here = written.min(part.len());
                self.sent(&part[..here]);
                written -= here;
            }
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use millrace_base::limits::HTTP2_FRAMES;

    use super::*;

    const FRAMES_PER_REQUEST: u64 = 16;

    const SETTINGS: u8 = 4;
    const PING: u8 = 6;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        [&[a, b, c, kind, 0, 0, 0, 0, 1], payload].concat()
    }

    /// DATA with padding behind its content.
    fn padded(content: &[u8], padding: u8) -> Vec<u8> {
        let payload = [&[padding], content, &vec![0; usize::from(padding)]].concat();
        let mut frame = frame(DATA, &payload);
        frame[4] = PADDED;
        frame
    }

    #[test]
    fn frames_are_found_in_whatever_parts_they_come() {
        let mut bare = frame(DATA, b"");
        // Broken, as it has no length of its padding.
        bare[4] = PADDED;
        let data =
            [frame(DATA, &[DATA; 300]), frame(DATA, b""), padded(b"x", 9), padded(b"", 255), padded(b"", 0), bare];
        let bytes = [frame(PING, &[0; 8]), data.concat(), frame(SETTINGS, b"")].concat();
        for size in 1..bytes.len() {
            let (mut heads, mut found) = (Heads::behind(0), Vec::new());
            bytes.chunks(size).for_each(|part| heads.look(part, |kind, has_content| found.push((kind, has_content))));
            let of_data = [true, false, true, false, false, false].map(|has_content| (DATA, has_content));
            let expected = [&[(PING, true)], &of_data[..], &[(SETTINGS, false)]].concat();
            assert_eq!(found, expected, "parts of {size}");
        }
    }

    #[test]
    fn what_carries_nothing_has_a_budget_and_content_has_none() {
        let of_data = [frame(DATA, b""), padded(b"", 0), padded(b"", 255)];
        let others = [frame(PING, &[0; 8]), frame(SETTINGS, b""), frame(HEADERS, b"x"), frame(200, b"")];
        for one in of_data.into_iter().chain(others) {
            let mut counted = Counted::new(());
            assert!(counted.came(&one.repeat(HTTP2_FRAMES as usize)));
            assert!(!counted.came(&one));
            // A request, of which the preface is no part, allows some.
            counted.sent(&[0; PREFACE_BYTES]);
            counted.sent(&[frame(HEADERS, b"request"), frame(DATA, b"body")].concat());
            assert!(counted.came(&one.repeat((FRAMES_PER_REQUEST + FRAMES_PER_CONTENT) as usize)));
            assert!(!counted.came(&one));
            assert!(counted.came(&frame(DATA, b"content").repeat(10_000)));
            assert!(counted.came(&padded(b"content", 5).repeat(10_000)));
        }
    }
}
