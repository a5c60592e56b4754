//! One exchange from its turn to its last byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::{FetchRequest, FetchResponse, Fetcher, Fetching};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::connect::{Connection, Connector};
use crate::pool::{Key, Pool};
use crate::{Options, request, response};

/// How long a connection may take after a response until it is ready for another request. It takes one turn of the
/// runtime. The exception is a server that answered before it had read the request, and does not read on.
const READY: Duration = Duration::from_millis(20);

/// Fetches over HTTP/1.1, with or without TLS. Clones share their connections.
#[derive(Clone)]
pub struct HttpFetcher {
    shared: Arc<Shared>,
}

struct Shared {
    /// One turn for each exchange; as many turns as sockets.
    turns: Semaphore,
    connector: Connector,
    pool: Arc<Pool>,
}

impl HttpFetcher {
    /// A fetcher without connections. It opens and reads nothing before its first use.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        let shared = Shared {
            turns: Semaphore::new(options.connections.max(1)),
            connector: Connector::new(options),
            pool: Arc::new(Pool::new(options)),
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
    /// As [`Fetcher::fetch`], and says more of a failure.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn exchange(&self, request: FetchRequest) -> Result<FetchResponse, Failure> {
        self.shared.fetch(request).await
    }
}

impl Fetcher for HttpFetcher {
    fn fetch(&self, mut request: FetchRequest) -> Fetching {
        request.timeout_ms = request.timeout_ms.min(limits::FETCH_LONGEST_MS);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { shared.fetch(request).await.map_err(|failure| failure.error) })
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

/// A response that has arrived completely, and the connection that it came over.
struct Finished<'a> {
    response: FetchResponse,
    key: Key,
    connection: Connection,
    turn: SemaphorePermit<'a>,
}

impl Shared {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, Failure> {
        let timeout_ms = request.timeout_ms;
        let limit_bytes = request.response_bytes;
        let prepared = request::prepare(request)?;
        // Path and query may hold secrets, and the reader of the error may not be the author of the URL.
        let label = format!("{} {}", prepared.message.method(), prepared.origin);
        let failed = |reason: String| Error::new(ErrorCode::FetchFailed, format!("{label}: {reason}"));
        let Ok(runtime) = Handle::try_current() else {
            return Err(failed("there is no runtime to fetch on".to_owned()).into());
        };
        let key = Key { runtime: runtime.id(), origin: prepared.origin };
        let mut stage = Stage::Turn;
        let exchange = self.exchange(key, prepared.message, limit_bytes, &mut stage);
        match timeout(Duration::from_millis(timeout_ms), exchange).await {
            Ok(Ok(finished)) => Ok(self.keep(finished).await),
            Ok(Err(reason)) => {
                Err(Failure { error: failed(reason), is_late: false, is_unsent: stage.is_before_sending() })
            }
            Err(_) => {
                let error = failed(format!("not finished within {timeout_ms} ms, while {}", stage.describe()));
                Err(Failure { error, is_late: true, is_unsent: stage.is_before_sending() })
            }
        }
    }

    async fn exchange(
        &self,
        key: Key,
        message: Request<Full<Bytes>>,
        limit_bytes: usize,
        stage: &mut Stage,
    ) -> Result<Finished<'_>, String> {
        let turn = self.turns.acquire().await.map_err(|error| error.to_string())?;
        let (connection, response) = self.send(&key, message, stage).await?;
        *stage = Stage::Body;
        let response = response::read(response, limit_bytes).await?;
        Ok(Finished { response, key, connection, turn })
    }

    /// Sends over a kept connection, or a new one. The server may have closed a kept one meanwhile. If that shows while
    /// sending, hyper gives the request back if no byte of it was sent, and the next connection takes it.
    async fn send(
        &self,
        key: &Key,
        mut message: Request<Full<Bytes>>,
        stage: &mut Stage,
    ) -> Result<(Connection, Response<Incoming>), String> {
        while let Some(mut connection) = self.pool.take(key) {
            // A core that was busy has not seen the close yet: the runtime looks at its sockets now.
            yield_now().await;
            *stage = Stage::Response;
            match connection.sender.try_send_request(message).await {
                Ok(response) => return Ok((connection, response)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => message = unsent,
                    None => return Err(describe(&error.into_error())),
                },
            }
        }
        *stage = Stage::Connection;
        let mut connection = self.connector.connect(&key.origin, &self.pool).await?;
        *stage = Stage::Response;
        let response = connection.sender.send_request(message).await.map_err(|error| describe(&error))?;
        Ok((connection, response))
    }

    /// Keeps the connection before it gives the turn up, so that the exchange that gets the turn finds it.
    async fn keep(&self, finished: Finished<'_>) -> FetchResponse {
        let Finished { response, key, mut connection, turn } = finished;
        if let Ok(Ok(())) = timeout(READY, connection.sender.ready()).await {
            // All turns are taken: other exchanges wait for one, and will want a connection at once.
            let is_wanted = self.turns.available_permits() == 0;
            self.pool.put(key, connection, is_wanted);
        }
        drop(turn);
        response
    }
}

/// hyper's errors name only the phase; their source has the cause.
pub(crate) fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
