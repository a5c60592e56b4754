//! One exchange from its turn to its last byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use millrace_base::{ByteBudget, Error, ErrorCode, limits};
use millrace_func::{FetchRequest, FetchResponse, Fetcher, Fetching};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::connect::{Connection, Connector, Opened};
use crate::duplex::{Duplex, GivenUp};
use crate::outgoing::{Outgoing, Parts};
use crate::pool::{Key, Pool, Protocol};
use crate::request::Prepared;
use crate::response::Room;
use crate::shares::{Lease, Shares};
use crate::{Options, request, response};

/// How long a connection may take after a response until it is ready for another request. It takes one turn of the
/// runtime. The exception is a server that answered before it had read the request, and does not read on.
const READY: Duration = Duration::from_millis(20);

/// Fetches over HTTP/1.1 and HTTP/2, with or without TLS. Clones share their connections.
#[derive(Clone)]
pub struct HttpFetcher {
    shared: Arc<Shared>,
}

struct Shared {
    /// One turn for each exchange; as many turns as sockets.
    turns: Semaphore,
    connector: Connector,
    pool: Arc<Pool>,
    shares: Arc<Shares>,
}

impl HttpFetcher {
    /// A fetcher without connections. It opens and reads nothing before its first use.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let shared = Shared {
            turns: Semaphore::new(options.connections.max(1)),
            connector: Connector::new(options),
            pool: Arc::new(Pool::new(options)),
            shares: Arc::new(Shares::new(options)),
        };
        Self { shared: Arc::new(shared) }
    }
}

/// Why no response came, for those who do more than to say so.
#[derive(Debug)]
pub struct Failure {
    /// What functions are told.
    pub error: Error,
    /// Whether the time limit passed.
    pub is_late: bool,
    /// Whether nothing of the request was sent.
    pub is_unsent: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, is_late: false, is_unsent: true }
    }
}

impl HttpFetcher {
    /// As [`Fetcher::fetch`], and says more of a failure. `is_http2`: over HTTP/2 from the first byte on, as the caller knows that
    /// the server speaks it. The response's body counts for `budget`.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn exchange(
        &self,
        request: FetchRequest,
        is_http2: bool,
        budget: &ByteBudget,
    ) -> Result<FetchResponse, Failure> {
        self.shared.fetch(request, Protocol::of(is_http2), budget).await
    }

    /// Begins an exchange in both directions at once, over HTTP/2. The request's body begins with that of `request`, and
    /// goes on. The time limit is that of the response's beginning.
    ///
    /// # Errors
    /// [`Failure`]. A server that speaks HTTP/1.1 was sent nothing.
    pub async fn open(&self, request: FetchRequest, is_http2: bool) -> Result<Duplex, Failure> {
        self.shared.open_duplex(request, Protocol::of(is_http2)).await
    }
}

impl Fetcher for HttpFetcher {
    fn fetch(&self, mut request: FetchRequest) -> Fetching {
        request.timeout_ms = request.timeout_ms.min(limits::FETCH_LONGEST_MS);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            // Their number and the size of each are limited.
            let budget = ByteBudget::unlimited();
            shared.fetch(request, Protocol::Negotiated, &budget).await.map_err(|failure| failure.error)
        })
    }
}

/// What an exchange waits for. The message says so if it has waited too long.
#[derive(Clone, Copy)]
enum Stage {
    Turn,
    Connection,
    Response,
    Body,
}

impl Stage {
    fn is_before_sending(self) -> bool {
        matches!(self, Self::Turn | Self::Connection)
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Turn => "waiting for other fetches of this node to end",
            Self::Connection => "connecting",
            Self::Response => "waiting for the response to begin",
            Self::Body => "reading the response's body",
        }
    }
}

/// What an exchange goes over.
enum Link {
    /// A connection of its own, for as long as it lasts.
    Whole(Connection),
    /// A stream of a shared connection.
    Stream(#[expect(dead_code, reason = "it is held")] Lease),
}

/// What a request may be sent over.
enum Reached {
    Whole(Connection),
    Stream(Lease),
}

/// How far an exchange has come.
struct Progress {
    stage: Stage,
    /// The shared connection that it is on.
    share: Option<u64>,
}

/// A response that has arrived completely, and the connection that it came over.
struct Finished<'a> {
    response: FetchResponse,
    link: Link,
    key: Key,
    turn: SemaphorePermit<'a>,
}

/// Who is asked, and how errors of the exchange begin.
struct FetchTarget {
    key: Key,
    label: String,
}

impl FetchTarget {
    fn failed(&self, reason: impl std::fmt::Display) -> Error {
        Error::new(ErrorCode::FetchFailed, format!("{}: {reason}", self.label))
    }
}

fn prepare(request: FetchRequest, protocol: Protocol) -> Result<(FetchTarget, Request<Full<Bytes>>), Error> {
    let Prepared { origin, message } = request::prepare(request)?;
    // Path and query may hold secrets, and the reader of the error may not be the author of the URL.
    let label = format!("{} {origin}", message.method());
    let Ok(runtime) = Handle::try_current() else {
        return Err(Error::new(ErrorCode::FetchFailed, format!("{label}: there is no runtime to fetch on")));
    };
    Ok((FetchTarget { key: Key { runtime: runtime.id(), origin, protocol }, label }, message))
}

impl Shared {
    async fn fetch(
        &self,
        request: FetchRequest,
        protocol: Protocol,
        budget: &ByteBudget,
    ) -> Result<FetchResponse, Failure> {
        let timeout_ms = request.timeout_ms;
        let room = Room { limit_bytes: request.response_bytes, budget };
        let (asked, message) = prepare(request, protocol)?;
        let mut progress = Progress { stage: Stage::Turn, share: None };
        let exchange = self.exchange(asked.key.clone(), message, room, &mut progress);
        match timeout(Duration::from_millis(timeout_ms), exchange).await {
            Ok(Ok(finished)) => Ok(self.keep(finished).await),
            Ok(Err(reason)) => Err(self.failure(&asked, &progress, Some(reason), timeout_ms)),
            Err(_) => Err(self.failure(&asked, &progress, None, timeout_ms)),
        }
    }

    /// Why an exchange failed: without a reason, its time is over.
    fn failure(&self, asked: &FetchTarget, progress: &Progress, reason: Option<String>, timeout_ms: u64) -> Failure {
        let (stage, is_late) = (progress.stage, reason.is_none());
        // Nobody may be there any more: others take another connection.
        if let Some(id) = progress.share.filter(|_| is_late) {
            self.shares.retire(&asked.key, id);
        }
        let late = || format!("not finished within {timeout_ms} ms, while {}", stage.describe());
        let error = asked.failed(reason.unwrap_or_else(late));
        Failure { error, is_late, is_unsent: stage.is_before_sending() }
    }

    async fn open_duplex(&self, mut request: FetchRequest, protocol: Protocol) -> Result<Duplex, Failure> {
        let timeout_ms = request.timeout_ms;
        let first = std::mem::take(&mut request.body);
        let (asked, message) = prepare(request, protocol)?;
        let mut progress = Progress { stage: Stage::Turn, share: None };
        let head = message.map(drop);
        let opening = self.begin_duplex(&asked.key, &head, &first, &mut progress);
        match timeout(Duration::from_millis(timeout_ms), opening).await {
            Ok(Ok(duplex)) => Ok(duplex),
            Ok(Err(reason)) => Err(self.failure(&asked, &progress, Some(reason), timeout_ms)),
            Err(_) => Err(self.failure(&asked, &progress, None, timeout_ms)),
        }
    }

    async fn begin_duplex(
        &self,
        key: &Key,
        head: &Request<()>,
        first: &Bytes,
        progress: &mut Progress,
    ) -> Result<Duplex, String> {
        let turn = self.turns.acquire().await.map_err(|error| error.to_string())?;
        let mut refusals = Refusals::default();
        loop {
            progress.stage = Stage::Connection;
            let Reached::Stream(lease) = self.reach(key).await? else {
                return Err("the server speaks HTTP/1.1 now, and this needs HTTP/2".to_owned());
            };
            self.connector.count_for_streams(&lease.socket, &self.shares).await?;
            // A connection that has ended may have taken some of the parts.
            let parts = Parts::default();
            parts.push(first.clone());
            let given_up = GivenUp::new(parts.clone(), Arc::clone(&self.shares), key.clone(), lease.id);
            // As for a kept connection.
            yield_now().await;
            match send_stream(lease, key, head.clone().map(|()| Outgoing::Parts(parts)), progress).await {
                Ok((lease, response)) => {
                    // It may last, and others wait for the turn. The connection's places bound what is open.
                    drop(turn);
                    return Ok(Duplex::new(response, given_up, lease));
                }
                Err(none) => drop(refusals.again(none, progress)?),
            }
        }
    }

    async fn exchange(
        &self,
        key: Key,
        message: Request<Full<Bytes>>,
        room: Room<'_>,
        progress: &mut Progress,
    ) -> Result<Finished<'_>, String> {
        let turn = self.turns.acquire().await.map_err(|error| error.to_string())?;
        let (link, response) = self.send(&key, message, progress).await?;
        progress.stage = Stage::Body;
        let response = response::read(response, room).await?;
        Ok(Finished { response, link, key, turn })
    }

    /// Sends over a kept connection, or a new one. The server may have closed a kept one meanwhile. If that shows while
    /// sending, hyper gives the request back if no byte of it was sent, and the next connection takes it.
    async fn send(
        &self,
        key: &Key,
        mut message: Request<Full<Bytes>>,
        progress: &mut Progress,
    ) -> Result<(Link, Response<Incoming>), String> {
        while let Some(mut connection) = self.pool.take(key) {
            // A core that was busy has not seen the close yet: the runtime looks at its sockets now.
            yield_now().await;
            progress.stage = Stage::Response;
            match connection.sender.try_send_request(message).await {
                Ok(response) => return Ok((Link::Whole(connection), response)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => message = unsent,
                    None => return Err(describe(&error.into_error())),
                },
            }
        }
        let mut refusals = Refusals::default();
        loop {
            progress.stage = Stage::Connection;
            let lease = match self.reach(key).await? {
                Reached::Whole(mut connection) => {
                    progress.stage = Stage::Response;
                    let response = connection.sender.send_request(message).await.map_err(|error| describe(&error))?;
                    return Ok((Link::Whole(connection), response));
                }
                Reached::Stream(lease) => lease,
            };
            // As above.
            yield_now().await;
            match send_stream(lease, key, message.map(Outgoing::Whole), progress).await {
                Ok((lease, response)) => return Ok((Link::Stream(lease), response)),
                Err(none) => message = refusals.again(none, progress)?.map(Outgoing::into_whole),
            }
        }
    }

    /// A new connection, or a stream of a shared one. Requests that come together wait for the one that opens it.
    async fn reach(&self, key: &Key) -> Result<Reached, String> {
        // Functions reach any number of servers, of none of which anything is kept here.
        let opening = if self.connector.may_be_http2(key) { self.shares.opening(key) } else { None };
        let Some(opening) = opening else {
            return self.open(key).await;
        };
        if let Some(lease) = self.shares.take(key) {
            return Ok(Reached::Stream(lease));
        }
        let _held = opening.lock().await;
        match self.shares.take(key) {
            Some(lease) => Ok(Reached::Stream(lease)),
            None => self.open(key).await,
        }
    }

    async fn open(&self, key: &Key) -> Result<Reached, String> {
        match self.connector.connect(key, &self.pool, &self.shares).await? {
            Opened::Http1(connection) => {
                if self.connector.may_be_http2(key) {
                    self.shares.chose_http1(key, true);
                }
                Ok(Reached::Whole(connection))
            }
            Opened::Http2(connection) => {
                self.shares.chose_http1(key, false);
                Ok(Reached::Stream(self.shares.add(key, connection)))
            }
        }
    }

    /// Keeps the connection before it gives the turn up, so that the exchange that gets the turn finds it.
    async fn keep(&self, finished: Finished<'_>) -> FetchResponse {
        let Finished { response, link, key, turn } = finished;
        if let Link::Whole(mut connection) = link
            && let Ok(Ok(())) = timeout(READY, connection.sender.ready()).await
        {
            // All turns are taken: other exchanges wait for one, and will want a connection at once.
            let is_wanted = self.turns.available_permits() == 0;
            self.pool.put(key, connection, is_wanted);
        }
        drop(turn);
        response
    }
}

/// Why a stream has no response.
struct NoResponse {
    reason: String,
    /// The request, if nothing of it was done: another connection may take it.
    undone: Option<Box<Request<Outgoing>>>,
    /// The server has said so itself.
    is_refused: bool,
}

/// How often servers have refused one request. One that ends a connection takes the request on the next one.
#[derive(Default)]
struct Refusals {
    count: u32,
}

impl Refusals {
    /// Some servers refuse always.
    const MOST: u32 = 3;

    /// The request, if it is to be sent again.
    fn again(&mut self, none: NoResponse, progress: &mut Progress) -> Result<Request<Outgoing>, String> {
        let NoResponse { reason, undone, is_refused } = none;
        let undone = undone.ok_or_else(|| reason.clone())?;
        // Whatever becomes of it, it counts as one that was not sent.
        progress.stage = Stage::Connection;
        self.count += u32::from(is_refused);
        if self.count < Self::MOST { Ok(*undone) } else { Err(reason) }
    }
}

/// Sends over HTTP/2.
async fn send_stream(
    mut lease: Lease,
    key: &Key,
    message: Request<Outgoing>,
    progress: &mut Progress,
) -> Result<(Lease, Response<Incoming>), NoResponse> {
    let kept = message.clone();
    let message = request::to_http2(message, &key.origin).map_err(|reason| NoResponse {
        reason,
        undone: None,
        is_refused: false,
    })?;
    progress.stage = Stage::Response;
    progress.share = Some(lease.id);
    match lease.sender.try_send_request(message).await {
        Ok(response) => Ok((lease, response)),
        Err(mut error) => {
            let is_unsent = error.take_message().is_some();
            let error = error.into_error();
            let is_refused = !is_unsent && is_undone(&error);
            if is_refused {
                lease.retire();
            }
            let undone = (is_unsent || is_refused).then(|| Box::new(kept));
            Err(NoResponse { reason: describe(&error), undone, is_refused })
        }
    }
}

/// Whether the server says that it has done nothing for a request (RFC 9113, 8.7): it ends the connection with GOAWAY before the
/// request's stream, or refuses the stream.
fn is_undone(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    let is_refusal = |error: &h2::Error| error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM);
    source.is_some_and(|error| error.is_remote() && is_refusal(error))
}

/// hyper's errors name only the phase; their source has the cause.
pub(crate) fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
