//! One connection, from its first byte to its end.
//!
//! A connection that waits for its first byte, or has been idle for a while, is *parked*: it holds
//! a socket and a few hundred bytes of [`ConnectionState`], no HTTP buffers. Its first bytes tell HTTP/2 from
//! HTTP/1, once; an idle HTTP/1 connection goes back to being parked.

mod state;
mod worker;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use millrace_base::{Error, ErrorCode};
use tokio::io::ReadBuf;

use crate::backend::Backend;
use crate::body::{ReplyBody, RequestBody};
use crate::framing::{Check, Http1, Http2};
use crate::handle::{Session, handle};
use crate::io::{Io, LINGER_BYTES};
use crate::metrics::Timeout;
use crate::operations::Kind;
use crate::plain;
use crate::problem;
use crate::status::status_of;
use state::Phase;
pub(crate) use state::{ConnectionState, InFlight, Order};
pub(crate) use worker::DialledWorker;

/// What an HTTP/2 connection begins with (RFC 9113, 3.4). No HTTP/1 request does.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes read while it is not clear yet which protocol is spoken, or after an idle time.
const FIRST_READ_BYTES: usize = 256;

/// Serves a connection until it ends. `is_http2` is what ALPN found, where there is TLS.
pub(crate) async fn run<B: Backend>(mut io: Io, mut is_http2: Option<bool>, session: Session<B>) {
    loop {
        if is_http2 != Some(true) {
            if io.prefix.is_empty() && !read_first(&mut io).await {
                return;
            }
            // Boxed, as all that follows, so that a parked connection does not carry the room for it.
            match Box::pin(plain::run(&mut io, &session, &mut is_http2)).await {
                plain::End::Closed => return,
                plain::End::Idle => continue,
                plain::End::Other => {}
            }
        }
        if is_http2.is_none() {
            is_http2 = begins_http2(&mut io).await;
        }
        match is_http2 {
            None => return,
            Some(true) => {
                io.state.is_http2.set(true);
                io.state.enter(Phase::Idle);
                return Box::pin(run_http2(io, service(session))).await;
            }
            Some(false) => match Box::pin(run_http1(io, service(session.clone()))).await {
                Some(parked) => io = parked,
                None => return,
            },
        }
    }
}

/// What hyper hands requests to.
fn service<B: Backend>(
    session: Session<B>,
) -> impl Service<Request<Incoming>, Response = Response<ReplyBody>, Error = Infallible> + Clone {
    service_fn(move |request: Request<Incoming>| {
        let session = session.clone();
        let mut request = request.map(RequestBody::Arriving);
        // A block that only borrows what it owns: an `async fn` would hold its arguments twice.
        async move { Ok(handle(&session, &mut request).await) }
    })
}

/// Waits for bytes and appends them to the prefix; false when the connection ends instead.
async fn read_first(io: &mut Io) -> bool {
    io.state.is_parked.set(io.prefix.is_empty());
    let read = poll_fn(|context| {
        match io.state.obey(context) {
            Some(Order::Close(timeout)) => {
                io.state.close(timeout);
                return Poll::Ready(None);
            }
            Some(Order::Drain | Order::Abort) => return Poll::Ready(None),
            Some(Order::Park | Order::Look) | None => {}
        }
        let mut bytes = [0; FIRST_READ_BYTES];
        let mut buffer = ReadBuf::new(&mut bytes);
        match io.stream.poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                Poll::Ready(Some(Bytes::copy_from_slice(buffer.filled())))
            }
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    io.state.is_parked.set(false);
    let Some(bytes) = read else {
        return false;
    };
    io.state.received(bytes.len());
    io.prefix = if io.prefix.is_empty() {
        bytes
    } else {
        let mut both = BytesMut::from(&io.prefix[..]);
        both.extend_from_slice(&bytes);
        both.freeze()
    };
    true
}

/// Whether the connection begins with HTTP/2's preface; `None` when it ends before that is clear.
async fn begins_http2(io: &mut Io) -> Option<bool> {
    loop {
        let length = io.prefix.len().min(PREFACE.len());
        if io.prefix[..length] != PREFACE[..length] {
            return Some(false);
        }
        if length == PREFACE.len() {
            return Some(true);
        }
        if !read_first(io).await {
            return None;
        }
    }
}

/// Bytes hyper may buffer for one HTTP/1 connection, in each direction: the hard bound of headers
/// that trickle in, and the room a reply's chunk goes through.
const BUFFER_BYTES: usize = 64 << 10;

/// Runs HTTP/1 until the connection ends (`None`) or should be parked.
async fn run_http1<S>(mut io: Io, service: S) -> Option<Io>
where
    S: Service<Request<Incoming>, Response = Response<ReplyBody>, Error = Infallible> + 'static,
{
    let state = Rc::clone(&io.state);
    let limits = &state.local.front.options.limits;
    io.check_with(Check::Http1(Http1::new(limits.body_bytes.max(limits.archive_bytes) as u64)));
    let mut builder = http1::Builder::new();
    // The sweep watches the time; see `local`. And where it can, `Io` watches for clients that leave: hyper
    // would get ready to read, with another buffer, before it begins a request.
    builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES).half_close(io.stream.can_tell_who_leaves());
    let mut connection = builder.serve_connection(io, service);
    let order = poll_fn(|context| {
        let order = state.obey(context);
        match order {
            Some(Order::Close(_) | Order::Abort) => return Poll::Ready(order),
            Some(Order::Park) if state.is_idle() => return Poll::Ready(order),
            _ => {}
        }
        if let Poll::Ready(result) = Pin::new(&mut connection).poll(context) {
            if result.is_err() {
                state.local.metrics.connection_errors.increment();
            }
            return Poll::Ready(result.is_err().then_some(Order::Abort));
        }
        if state.is_refusal_due() {
            return Poll::Ready(None);
        }
        if order == Some(Order::Drain) {
            // After the poll: a request that has arrived is answered, and only then is the end.
            Pin::new(&mut connection).graceful_shutdown();
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    let parts = connection.into_parts();
    let mut io = parts.io;
    if matches!(order, None | Some(Order::Abort))
        && let Some(refusal) = state.refusal.take()
    {
        state.local.metrics.connection_errors.increment();
        // The request whose body it is has been answered: only the end is to be told.
        let words = if refusal.is_in_body { Vec::new() } else { problem::raw_reply(&refusal.error) };
        say(&mut io, &words).await;
        linger(&mut io).await;
        return None;
    }
    if let Some(line) = state.take_line() {
        io.prefix = parts.read_buf;
        worker::run(io, line, order.is_none()).await;
        return None;
    }
    match order {
        // The last reply has left, with the end mark behind it; a body may still be coming.
        None => linger(&mut io).await,
        Some(Order::Park) => {
            // Empty, unless the beginning of a request came behind the last one.
            if !parts.read_buf.is_empty() {
                state.enter(Phase::Head);
                io.prefix = parts.read_buf;
            }
            return Some(io);
        }
        Some(Order::Close(timeout)) => close_late(&mut io, timeout).await,
        Some(Order::Abort | Order::Drain | Order::Look) => {}
    }
    None
}

/// Ends an HTTP/1 connection that took too long, and says so where somebody may listen.
pub(crate) async fn close_late(io: &mut Io, timeout: Timeout) {
    io.state.close(timeout);
    let late = |what| problem::raw_reply(&Error::new(ErrorCode::RequestTimeout, what));
    match timeout {
        Timeout::Headers => say(io, &late("the request's headers did not arrive in time")).await,
        Timeout::Body => {
            io.state.local.metrics.count_request(Kind::None, status_of(ErrorCode::RequestTimeout).as_u16(), 0);
            say(io, &late("the request's body did not arrive in time")).await;
        }
        Timeout::Idle => say(io, b"").await,
        _ => {}
    }
}

/// Sends last words and the end mark, without waiting for a client that does not listen.
pub(crate) async fn say(io: &mut Io, words: &[u8]) {
    poll_fn(|context| {
        if !words.is_empty() && !matches!(io.stream.poll_write(context, words), Poll::Ready(Ok(_))) {
            return Poll::Ready(());
        }
        let _ = io.stream.poll_flush(context);
        let _ = io.stream.poll_shutdown(context);
        Poll::Ready(())
    })
    .await;
}

/// Passes over what a client goes on sending after its last reply: with that unread, the kernel would take back what the
/// client has not read of the reply. Ends with the client, or when it has been told long enough.
pub(crate) async fn linger(io: &mut Io) {
    // Of the orders, all but to look and to drain end this; the first that is sure to come is to park.
    io.state.enter(Phase::Idle);
    let mut left_bytes = LINGER_BYTES;
    poll_fn(|context| {
        if !matches!(io.state.obey(context), None | Some(Order::Look | Order::Drain)) {
            return Poll::Ready(());
        }
        while left_bytes > 0 {
            let buffers = &mut *io.state.local.buffers.borrow_mut();
            let mut buffer = ReadBuf::new(&mut buffers.read);
            match io.stream.poll_read(context, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    left_bytes = left_bytes.saturating_sub(buffer.filled().len());
                }
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    })
    .await;
}

/// Runs HTTP/2 until the connection ends.
async fn run_http2<S>(mut io: Io, service: S)
where
    S: Service<Request<Incoming>, Response = Response<ReplyBody>, Error = Infallible> + 'static,
{
    let state = Rc::clone(&io.state);
    let limits = &state.local.front.options.limits;
    // Names and values count in HTTP/2 with 32 bytes each on top (RFC 9113, 6.5.2).
    let header_list_bytes = limits.header_bytes + limits.headers * 32;
    io.check_with(Check::Http2(Http2::new(header_list_bytes, state.local.now_ms())));
    let mut builder = http2::Builder::new(LocalExecutor);
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(header_list_bytes).unwrap_or(u32::MAX))
        .max_send_buf_size(BUFFER_BYTES);
    let mut connection = builder.serve_connection(io, service);
    let mut is_leaving = false;
    poll_fn(|context| {
        match state.obey(context) {
            // Idle: say so first, and close at the next sweep that finds it idle still.
            Some(Order::Close(Timeout::Idle)) if !is_leaving => {
                state.local.metrics.count_timeout(Timeout::Idle);
                is_leaving = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            Some(Order::Close(Timeout::Idle) | Order::Abort) => return Poll::Ready(()),
            Some(Order::Close(timeout)) => {
                state.close(timeout);
                return Poll::Ready(());
            }
            Some(Order::Drain) => {
                is_leaving = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            Some(Order::Park | Order::Look) | None => {}
        }
        let result = std::task::ready!(Pin::new(&mut connection).poll(context));
        if result.is_err() {
            state.local.metrics.connection_errors.increment();
        }
        Poll::Ready(())
    })
    .await;
}

/// Runs HTTP/2's streams on the core that accepted their connection.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
