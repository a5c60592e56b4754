//! A connection's bytes: plain or TLS, counted, and watched for clients that do not read.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::connection::ConnectionState;

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
    fn has_left(&self, context: &mut Context<'_>) -> bool {
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
    /// Bytes read before hyper took over; it gets them first.
    pub(crate) prefix: Bytes,
    pub(crate) state: Rc<ConnectionState>,
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.prefix.is_empty() {
            let length = this.prefix.len().min(buffer.remaining());
            buffer.put_slice(&this.prefix[..length]);
            this.prefix.advance(length);
            return Poll::Ready(Ok(()));
        }
        // SAFETY: `as_mut` forbids writing uninitialized bytes over initialized ones; a tokio
        // stream only ever writes what it read.
        let mut unfilled = ReadBuf::uninit(unsafe { buffer.as_mut() });
        let result = this.stream.poll_read(context, &mut unfilled);
        let length = unfilled.filled().len();
        // SAFETY: the `ReadBuf` over the same memory says that so many bytes were written.
        unsafe { buffer.advance(length) };
        if length > 0 {
            this.state.received(length);
        }
        result
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = this.stream.poll_write(context, bytes);
        match &result {
            Poll::Ready(Ok(length)) => this.state.sent(*length),
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
        self.get_mut().stream.poll_shutdown(context)
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
        if self.state.discards_unsent.get() {
            self.stream.discard_unsent();
        }
    }
}
