//! HTTP/1.1 as nearly everybody speaks it: *plain* requests (see [`head`]) are read and answered here.
//!
//! All connections of the core are read into one buffer. A request is copied out of it once. Its reply leaves through
//! another buffer, with those of its round (see [`reply_batch`]). So what a request touches is memory that the one
//! before it has just used.
//!
//! Promises: a request that is not plain goes to hyper, with every byte of it; so does the connection, until it has
//! been idle for a while. Nothing but a plain request's own bytes decides where it ends. Of a client that is slow or sends
//! ahead, no more is held than [`head::PLAIN_BYTES`] and what is read at once; of one that does not read, one reply, which
//! counts against the core's room where it is large. Must not know what requests mean.

mod encode;
mod gate;
pub(crate) mod head;
mod reply_batch;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use millrace_base::{Error, ErrorCode};
use tokio::io::ReadBuf;

use crate::backend::Backend;
use crate::body::{ReplyBody, RequestBody};
use crate::connection::{self, ConnectionState, Order};
use crate::handle::{self, Session};
use crate::io::{Io, Stream};
use crate::metrics::Timeout;
use crate::pending_reply::Progress;
use crate::problem::raw_reply;
use gate::Gate;
use head::Look;
use reply_batch::REPLY_BYTES;
pub(crate) use reply_batch::ReplyBatch;

/// Bytes read at once. More than nearly every request has, so that what is read is a request.
const READ_BYTES: usize = 16 << 10;

/// A reply's body up to this size leaves in one write with its head; copying that much costs less than a second write.
const JOINED_BYTES: usize = 16 << 10;

/// Maps of headers kept for the next requests.
const MAPS: usize = 64;

/// What the connections of a core read, write and note headers with, one after the other.
pub(crate) struct Buffers {
    pub(crate) read: Box<[u8]>,
    write: Vec<u8>,
    maps: Vec<HeaderMap>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { read: vec![0; READ_BYTES].into(), write: Vec::with_capacity(READ_BYTES), maps: Vec::new() }
    }

    pub(crate) fn take_map(&mut self) -> HeaderMap {
        self.maps.pop().unwrap_or_default()
    }

    pub(crate) fn put_back(&mut self, mut map: HeaderMap) {
        if self.maps.len() < MAPS && map.capacity() > 0 {
            map.clear();
            self.maps.push(map);
        }
    }
}

/// How a connection leaves this module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// For good.
    Closed,
    /// Idle for a while, and to be parked.
    Idle,
    /// With bytes that are not for here, in [`Io::prefix`].
    Other,
}

/// What a wait for a request ends with.
enum Arrived {
    Request {
        closes: bool,
    },
    Other,
    /// For a while.
    Nothing,
    /// The connection took too long, and has to be told.
    Late(Timeout),
    /// The client sends no more.
    End,
    Broken,
}

/// Serves a connection for as long as its requests are plain. `is_http2` becomes false with the first: a connection
/// speaks one protocol.
pub(crate) async fn run<B: Backend>(io: &mut Io, session: &Session<B>, is_http2: &mut Option<bool>) -> End {
    let mut line = Line::new(std::mem::take(&mut io.prefix));
    let mut gate = Gate::new(&*session.backend);
    let mut request = Request::new(RequestBody::Whole(Bytes::new()));
    loop {
        let arrived = poll_fn(|context| line.poll_request(io, &mut request, &mut gate, context)).await;
        gate.leave();
        match arrived {
            Arrived::Request { closes } => line.is_leaving |= closes,
            Arrived::Other => {
                line.hand_over(io);
                return End::Other;
            }
            Arrived::Nothing => return End::Idle,
            Arrived::Late(timeout) => {
                connection::close_late(io, timeout).await;
                return End::Closed;
            }
            Arrived::End => {
                connection::say(io, &line.last_words()).await;
                return End::Closed;
            }
            Arrived::Broken => return End::Closed,
        }
        *is_http2 = Some(false);
        let Some(reply) = line.answer(io, session, &mut request).await else {
            return End::Closed;
        };
        io.state.local.put_back(std::mem::take(request.headers_mut()));
        *request.body_mut() = RequestBody::Whole(Bytes::new());
        match line.send(io, reply).await {
            Some(false) => {}
            Some(true) => {
                connection::say(io, b"").await;
                connection::linger(io).await;
                return End::Closed;
            }
            None => return End::Closed,
        }
    }
}

/// What is known of a connection between two of its polls.
struct Line {
    /// What has come and is not answered.
    pending: BytesMut,
    /// Whether `pending` has been looked at since it last grew.
    is_looked_at: bool,
    /// How long `pending` has to be before another look is worth it: a request whose head is there says so.
    wanted_bytes: usize,
    /// The next reply is the last.
    is_leaving: bool,
}

impl Line {
    fn new(prefix: Bytes) -> Self {
        Self { pending: BytesMut::from(&prefix[..]), is_looked_at: false, wanted_bytes: 0, is_leaving: false }
    }

    /// Waits for a whole request, and writes it into `request`.
    fn poll_request<B: Backend>(
        &mut self,
        io: &mut Io,
        request: &mut Request<RequestBody>,
        gate: &mut Gate<'_, B>,
        context: &mut Context<'_>,
    ) -> Poll<Arrived> {
        match io.state.obey(context) {
            // It is not the client that takes its time.
            Some(Order::Close(Timeout::Idle | Timeout::Headers) | Order::Park) if gate.is_waiting() => {}
            Some(Order::Close(timeout)) => return Poll::Ready(Arrived::Late(timeout)),
            Some(Order::Abort) => return Poll::Ready(Arrived::Broken),
            Some(Order::Drain) => self.is_leaving = true,
            Some(Order::Park) if io.state.is_idle() => return Poll::Ready(Arrived::Nothing),
            Some(Order::Park | Order::Look) | None => {}
        }
        let has_next = !self.pending.is_empty() && !self.is_looked_at;
        if has_next {
            // What came with an earlier request costs no reading, which would make it give way to others.
            ready!(tokio::task::coop::poll_proceed(context)).made_progress();
        }
        if ready!(io.poll_departed(has_next || self.is_leaving, context)).is_err() {
            io.state.local.metrics.connection_errors.increment();
            return Poll::Ready(Arrived::Broken);
        }
        let is_between = self.wanted_bytes == 0 && (self.pending.is_empty() || has_next);
        // A drain answers what has arrived: there is no later.
        if is_between && !self.is_leaving {
            ready!(gate.poll(io, has_next, context));
        }
        if has_next {
            io.state.head_begins();
            let look = self.look_at_pending(&mut io.state.local.buffers.borrow_mut().maps, request);
            if let Some(arrived) = self.arrived(io, &look) {
                return Poll::Ready(arrived);
            }
        }
        loop {
            let look = match self.poll_read(io, request, context) {
                Poll::Ready(Ok(Some(look))) => look,
                Poll::Ready(Ok(None)) => {
                    if !self.pending.is_empty() {
                        io.state.local.metrics.connection_errors.increment();
                    }
                    return Poll::Ready(Arrived::End);
                }
                Poll::Ready(Err(_)) => {
                    io.state.local.metrics.connection_errors.increment();
                    return Poll::Ready(Arrived::Broken);
                }
                Poll::Pending if self.wanted_bytes > 0 => {
                    return if io.state.is_body_late() {
                        Poll::Ready(Arrived::Late(Timeout::Body))
                    } else {
                        Poll::Pending
                    };
                }
                // A drain answers what has arrived whole.
                Poll::Pending if self.is_leaving => return Poll::Ready(Arrived::End),
                Poll::Pending => return Poll::Pending,
            };
            if let Some(arrived) = self.arrived(io, &look) {
                return Poll::Ready(arrived);
            }
        }
    }

    /// Reads once and looks at what there is then; `None` at the connection's end.
    fn poll_read(
        &mut self,
        io: &mut Io,
        request: &mut Request<RequestBody>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Look>>> {
        let buffers = &mut *io.state.local.buffers.borrow_mut();
        let bytes = ready!(read(&mut io.stream, &io.state, &mut buffers.read, context))?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(None));
        }
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(bytes);
            return Poll::Ready(Ok(Some(self.look_at_pending(&mut buffers.maps, request))));
        }
        // Nearly always: a request that begins and ends with what was read.
        let look = head::look(bytes, request, || buffers.maps.pop().unwrap_or_default());
        let done_bytes = look.done_bytes();
        if done_bytes < bytes.len() {
            self.pending.extend_from_slice(&bytes[done_bytes..]);
            self.is_looked_at = done_bytes == 0;
        }
        Poll::Ready(Ok(Some(look)))
    }

    fn look_at_pending(&mut self, maps: &mut Vec<HeaderMap>, request: &mut Request<RequestBody>) -> Look {
        self.is_looked_at = true;
        if self.pending.len() < self.wanted_bytes {
            return Look::Head(self.wanted_bytes);
        }
        let look = head::look(&self.pending, request, || maps.pop().unwrap_or_default());
        let done_bytes = look.done_bytes();
        if done_bytes == self.pending.len() {
            // The memory goes, too: a connection at rest has none.
            self.pending = BytesMut::new();
        } else if done_bytes > 0 {
            self.pending.advance(done_bytes);
            self.is_looked_at = false;
        }
        look
    }

    /// What follows from a look; `None` where more has to come.
    fn arrived(&mut self, io: &Io, look: &Look) -> Option<Arrived> {
        match *look {
            Look::Beginning => None,
            Look::Head(bytes) => {
                if self.wanted_bytes == 0 {
                    io.state.body_awaited();
                }
                io.state.body_received(self.pending.len() as u64);
                self.wanted_bytes = bytes;
                None
            }
            Look::Request { closes, .. } => {
                if self.wanted_bytes > 0 {
                    io.state.body_ends();
                    self.wanted_bytes = 0;
                }
                Some(Arrived::Request { closes })
            }
            Look::Other => Some(Arrived::Other),
        }
    }

    /// What a client hears that sends no more: something only if a body was promised.
    fn last_words(&self) -> Vec<u8> {
        match self.wanted_bytes {
            0 => Vec::new(),
            _ => raw_reply(&Error::new(ErrorCode::BadRequest, "the request's body ends before its announced length")),
        }
    }

    /// Notes what the connection is told while it has a request; true where it has to end at once.
    fn must_end(&mut self, io: &Io, context: &mut Context<'_>) -> bool {
        match io.state.obey(context) {
            Some(Order::Close(timeout)) => {
                io.state.close(timeout);
                return true;
            }
            Some(Order::Abort) => return true,
            Some(Order::Drain) => self.is_leaving = true,
            Some(Order::Park | Order::Look) | None => {}
        }
        false
    }

    /// Gives back what is not for here, and what the connection was told meanwhile.
    fn hand_over(self, io: &mut Io) {
        io.prefix = self.pending.freeze();
        if self.is_leaving {
            io.state.give(Order::Drain);
        }
    }

    /// Lets the node answer; `None` where the connection ends instead.
    async fn answer<B: Backend>(
        &mut self,
        io: &mut Io,
        session: &Session<B>,
        request: &mut Request<RequestBody>,
    ) -> Option<Response<ReplyBody>> {
        let mut begin = handle::begin(session, request);
        let (asked, step) = poll_fn(|context| self.poll_while_there(io, begin.as_mut(), context)).await?;
        drop(begin);
        let response = match step {
            Progress::Done(response) => response,
            Progress::PendingReply(waits) => {
                let mut reply = pin!(asked.reply(&session.state.local, waits));
                poll_fn(|context| self.poll_while_there(io, reply.as_mut(), context)).await?
            }
        };
        Some(asked.end(&session.state, response))
    }

    /// What `answer` gives; `None` where the connection ends before.
    fn poll_while_there<T>(
        &mut self,
        io: &mut Io,
        answer: Pin<&mut impl Future<Output = T>>,
        context: &mut Context<'_>,
    ) -> Poll<Option<T>> {
        if self.must_end(io, context) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(answer) = answer.poll(context) {
            return Poll::Ready(Some(answer));
        }
        // Nobody needs the answer once the client has left. To see that, what it sends ahead is read, once.
        let ahead = if self.pending.is_empty() { self.poll_read_ahead(io, context) } else { Poll::Ready(true) };
        let has_left = match ahead {
            Poll::Pending => false,
            Poll::Ready(true) => io.stream.has_left(context),
            Poll::Ready(false) => true,
        };
        if has_left {
            io.state.local.metrics.connection_errors.increment();
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    /// Takes what comes before a request is answered; false when that is the end.
    fn poll_read_ahead(&mut self, io: &mut Io, context: &mut Context<'_>) -> Poll<bool> {
        let buffers = &mut *io.state.local.buffers.borrow_mut();
        let bytes = ready!(read(&mut io.stream, &io.state, &mut buffers.read, context)).unwrap_or_default();
        self.pending.extend_from_slice(bytes);
        self.is_looked_at = false;
        Poll::Ready(!bytes.is_empty())
    }

    /// Sends a reply and says whether it was the last; `None` where the connection ends before all of it has left.
    async fn send(&mut self, io: &mut Io, reply: Response<ReplyBody>) -> Option<bool> {
        let mut reply = Some(reply);
        let mut rest = Rest::default();
        poll_fn(|context| {
            if self.must_end(io, context) {
                return Poll::Ready(None);
            }
            let sent = match reply.take() {
                Some(reply) => self.begin(io, reply, &mut rest, context),
                None => Ok(()),
            };
            match sent.map(|()| rest.poll_send(io, context)) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(Ok(()))) => Poll::Ready(Some(self.is_leaving)),
                Ok(Poll::Ready(Err(_))) | Err(_) => {
                    io.state.local.metrics.connection_errors.increment();
                    Poll::Ready(None)
                }
            }
        })
        .await
    }

    /// Writes what the client takes at once, and leaves the rest in `rest`.
    fn begin(
        &mut self,
        io: &mut Io,
        reply: Response<ReplyBody>,
        rest: &mut Rest,
        context: &mut Context<'_>,
    ) -> io::Result<()> {
        let local = &io.state.local;
        let buffers = &mut *local.buffers.borrow_mut();
        let (parts, mut body) = reply.into_parts();
        buffers.write.clear();
        let (status, headers) = (parts.status, &parts.headers);
        let written = encode::head(&mut buffers.write, status, headers, body.len(), &local.date(), self.is_leaving);
        self.is_leaving = written.closes;
        let bytes = if written.is_bodiless { Bytes::new() } else { body.take_bytes() };
        if bytes.len() <= JOINED_BYTES {
            buffers.write.extend_from_slice(&bytes);
        } else {
            rest.body = bytes;
        }
        if rest.body.is_empty()
            && !self.is_leaving
            && buffers.write.len() <= REPLY_BYTES
            && io.depart_later(&buffers.write)
        {
            buffers.put_back(parts.headers);
            return Ok(());
        }
        let sent = io.stream.write(&io.state, &buffers.write, context)?;
        if sent < buffers.write.len() {
            rest.head = Bytes::copy_from_slice(&buffers.write[sent..]);
        }
        rest.held = Some(body);
        buffers.put_back(parts.headers);
        Ok(())
    }
}

/// What of a reply has not left yet.
#[derive(Default)]
struct Rest {
    head: Bytes,
    body: Bytes,
    /// Its room in the core's share is given back when all of it has left.
    held: Option<ReplyBody>,
}

impl Rest {
    fn poll_send(&mut self, io: &mut Io, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for part in [&mut self.head, &mut self.body] {
            let sent = io.stream.write(&io.state, part, context)?;
            part.advance(sent);
            if !part.is_empty() {
                return Poll::Pending;
            }
        }
        if io.stream.poll_flush(context)?.is_pending() {
            io.state.write_blocked();
            return Poll::Pending;
        }
        io.state.write_finished();
        Poll::Ready(Ok(()))
    }
}

/// Reads what there is; nothing at the connection's end.
fn read<'a>(
    stream: &mut Stream,
    state: &ConnectionState,
    room: &'a mut [u8],
    context: &mut Context<'_>,
) -> Poll<io::Result<&'a [u8]>> {
    let mut buffer = ReadBuf::new(room);
    ready!(stream.poll_read(context, &mut buffer))?;
    let length = buffer.filled().len();
    if length > 0 {
        state.received(length);
    }
    Poll::Ready(Ok(&room[..length]))
}
