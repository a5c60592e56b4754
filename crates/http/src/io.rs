//! A connection's bytes: plain or TLS, counted, and watched for clients that do not read.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use millrace_base::{Error, ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::connection::ConnectionState;
use crate::framing::Check;
use crate::problem::raw_reply;

/// Bytes passed over after a connection's last reply: more than any body that could have been meant to be taken. Most
/// clients send a body to its end before they read, and one that is cut off instead learns nothing of why.
pub(crate) const LINGER_BYTES: usize = 128 << 20;

/// What a client talks to.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Makes the coming close drop what the client did not take: otherwise the kernel would go on
    /// holding it for minutes.
    pub(crate) fn discard_unsent(&self) {
        // Fails only on a socket that is gone already.
        let _ = socket2::SockRef::from(self.socket()).set_linger(Some(Duration::ZERO));
    }

    pub(crate) fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }

    pub(crate) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    /// Writes what the client takes at once, and says how much that is; if it is not all, `context` is woken for more.
    pub(crate) fn write(
        &mut self,
        state: &ConnectionState,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.poll_write(context, &bytes[sent..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(length)) => {
                    state.sent(length);
                    sent += length;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    state.write_blocked();
                    break;
                }
            }
        }
        Ok(sent)
    }

    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // A TCP stream has nothing of its own to flush.
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    /// Whether [`Stream::has_left`] says anything. Behind TLS, a client says its goodbye to hyper only.
    pub(crate) fn can_tell_who_leaves(&self) -> bool {
        matches!(self, Stream::Plain(_))
    }

    /// Whether the client sends no more; if it may, `context` is woken when that changes.
    pub(crate) fn has_left(&self, context: &mut Context<'_>) -> bool {
        let Stream::Plain(stream) = self else { return false };
        let mut byte = [0];
        matches!(stream.poll_peek(context, &mut ReadBuf::new(&mut byte)), Poll::Ready(Ok(0) | Err(_)))
    }

    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A [`Stream`] as hyper wants it.
pub(crate) struct Io {
    pub(crate) stream: Stream,
    /// Bytes read and not looked at; whoever serves the connection next gets them first.
    pub(crate) prefix: Bytes,
    /// What is left of the reply that is sent instead of one of hyper's own.
    pub(crate) instead: Bytes,
    pub(crate) state: Rc<ConnectionState>,
    /// Looks at what is read before hyper does.
    check: Option<Box<Check>>,
    /// What the check made of bytes that came; hyper gets it next.
    checked: Bytes,
    /// Bytes that a client who was refused may still send before the connection is closed under it; `None` while its
    /// end has not been sent.
    linger_bytes: Option<usize>,
}

impl Io {
    pub(crate) fn new(stream: Stream, state: Rc<ConnectionState>) -> Self {
        Self {
            stream,
            prefix: Bytes::new(),
            instead: Bytes::new(),
            state,
            check: None,
            checked: Bytes::new(),
            linger_bytes: None,
        }
    }

    /// Looks at all that hyper reads from here on.
    pub(crate) fn check_with(&mut self, check: Check) {
        self.check = Some(Box::new(check));
    }

    /// Looks at bytes that came, and gives how many of the first of them hyper gets as they are. Behind them it gets
    /// `checked`.
    fn look(&mut self, bytes: &[u8]) -> usize {
        match self.check.as_deref_mut() {
            None => bytes.len(),
            Some(Check::Http1(check)) => match check.look(bytes) {
                Ok(()) => bytes.len(),
                Err((passed, refusal)) => {
                    self.state.refuse(refusal);
                    passed
                }
            },
            Some(Check::Http2(check)) => {
                let mut instead = Vec::new();
                let passed = check.look(bytes, self.state.local.now_ms(), &mut instead);
                self.checked = instead.into();
                passed
            }
        }
    }

    /// Passes over what a client goes on sending after it was refused: with that unread, the kernel would take back what
    /// the client was told.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let left_bytes = self.linger_bytes.get_or_insert(LINGER_BYTES);
        while *left_bytes > 0 {
            let buffers = &mut *self.state.local.buffers.borrow_mut();
            let mut buffer = ReadBuf::new(&mut buffers.read);
            ready!(self.stream.poll_read(context, &mut buffer))?;
            let length = buffer.filled().len();
            if length == 0 {
                break;
            }
            *left_bytes = left_bytes.saturating_sub(length);
        }
        Poll::Ready(Ok(()))
    }

    /// Has a small reply leave with those of its round; false where it has to be written here.
    pub(crate) fn depart_later(&self, reply: &[u8]) -> bool {
        let Stream::Plain(stream) = &self.stream else { return false };
        // SAFETY: the socket is closed with this, and before that all that waits leaves: see `drop`.
        unsafe { self.state.local.depart_later(stream.as_raw_fd(), &self.state, reply) };
        true
    }

    /// Waits until the connection may read on. If its reply waits for the end of the round, that is once the client has
    /// sent more (`has_more` says that it has). Then the client also has to take all of the reply.
    pub(crate) fn poll_departed(&mut self, has_more: bool, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.is_departing() {
            if !has_more && let Stream::Plain(stream) = &self.stream {
                // What is wrong with the socket, reading tells.
                drop(ready!(stream.poll_read_ready(context)));
            }
            self.state.local.depart();
        }
        if !self.state.is_owing() {
            return Poll::Ready(Ok(()));
        }
        let mut unsent_replies = self.state.take_unsent_replies();
        let sent = self.stream.write(&self.state, &unsent_replies, context)?;
        unsent_replies.advance(sent);
        if unsent_replies.is_empty() {
            self.state.write_finished();
            return Poll::Ready(Ok(()));
        }
        self.state.put_back_unsent_replies(unsent_replies);
        Poll::Pending
    }

    /// Sends what is left of `instead`. Gives `length` once nothing is: hyper's own bytes are done with.
    fn poll_instead(&mut self, context: &mut Context<'_>, length: usize) -> Poll<io::Result<usize>> {
        let sent = self.stream.write(&self.state, &self.instead, context)?;
        self.instead.advance(sent);
        if self.instead.is_empty() { Poll::Ready(Ok(length)) } else { Poll::Pending }
    }
}

/// What to say instead of hyper's reply to bytes that are no HTTP: it has a status and nothing else.
/// No handler has seen such a request, so no handler's reply can be meant.
fn refusal(bytes: &[u8]) -> Option<Error> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ").or_else(|| bytes.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
    let has = |line: &[u8]| bytes.windows(line.len()).any(|part| part == line);
    let is_whole = bytes.ends_with(b"\r\n\r\n") && has(b"content-length: 0") && has(b"connection: close");
    match status {
        _ if !is_whole => None,
        b"400" => Some(Error::new(
            ErrorCode::BadRequest,
            "this is no HTTP request: its first line or a header has a character that may not stand there. In a URL, \
             spaces, quotes, <, > and all that is not ASCII are percent-encoded (curl: --data-urlencode with -G)",
        )),
        b"414" | b"431" => {
            Some(Error::new(ErrorCode::HeadersTooLarge, "the request line or the headers exceed what is read at all"))
        }
        _ => None,
    }
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if let Some(is_in_body) = this.state.refusal_is_reached() {
                // Where no request is told, its connection's task does it once those before it are answered.
                return if is_in_body { Poll::Ready(Err(io::ErrorKind::InvalidData.into())) } else { Poll::Pending };
            }
            if !this.checked.is_empty() {
                let length = this.checked.len().min(buffer.remaining());
                buffer.put_slice(&this.checked.split_to(length));
                return Poll::Ready(Ok(()));
            }
            let passed = if this.prefix.is_empty() {
                // SAFETY: `as_mut` forbids writing uninitialized bytes over initialized ones; a tokio
                // stream only ever writes what it read.
                let mut unfilled = ReadBuf::uninit(unsafe { buffer.as_mut() });
                ready!(this.stream.poll_read(context, &mut unfilled))?;
                let length = unfilled.filled().len();
                if length == 0 {
                    return Poll::Ready(Ok(()));
                }
                this.state.received(length);
                let passed = this.look(unfilled.filled());
                // SAFETY: the `ReadBuf` over the same memory says that at least so many bytes were written.
                unsafe { buffer.advance(passed) };
                passed
            } else {
                let bytes = this.prefix.split_to(this.prefix.len().min(buffer.remaining()));
                let passed = this.look(&bytes);
                buffer.put_slice(&bytes[..passed]);
                passed
            };
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.state.is_reading_head()
            && this.instead.is_empty()
            && let Some(error) = refusal(bytes)
        {
            this.instead = raw_reply(&error).into();
        }
        if !this.instead.is_empty() {
            return this.poll_instead(context, bytes.len());
        }
        let result = this.stream.poll_write(context, bytes);
        match &result {
            Poll::Ready(Ok(length)) => {
                this.state.sent(*length);
                if let Some(Check::Http2(check)) = this.check.as_deref_mut() {
                    check.sent(*length);
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => this.state.write_blocked(),
        }
        result
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = this.stream.poll_flush(context);
        match &result {
            Poll::Ready(_) => this.state.write_finished(),
            Poll::Pending => this.state.write_blocked(),
        }
        // hyper flushes at the end of each turn: by then most requests have been answered, and the others wait.
        if this.state.is_answering() && this.stream.has_left(context) {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        result
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.state.has_line() {
            return Poll::Ready(Ok(())); // A worker goes on with it.
        }
        if this.linger_bytes.is_none() {
            ready!(this.stream.poll_shutdown(context))?;
        }
        match this.check.as_deref() {
            Some(Check::Http2(check)) if check.is_refused() => this.poll_linger(context),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// No: hyper then puts head and body of a small reply into one buffer and one plain write,
    /// which is cheaper than a gather write. Large bodies come in chunks (see `ReplyBody`), so
    /// what is copied stays small.
    fn is_write_vectored(&self) -> bool {
        false
    }
}

impl Drop for Io {
    fn drop(&mut self) {
        if self.state.is_departing() {
            self.state.local.depart();
        }
        if self.state.discards_unsent.get() {
            self.stream.discard_unsent();
        }
    }
}
