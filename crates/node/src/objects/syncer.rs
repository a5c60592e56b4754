//! One thread a core that makes bodies durable: all that wait are made so by one sync.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use millrace_base::{Error, ErrorCode};
use millrace_blobs::{Bodies, Unsettled, Written};
use tokio::sync::oneshot;

use super::errors::body_failed;

struct Request {
    body: Written,
    reply: oneshot::Sender<Result<Unsettled, Error>>,
}

/// A handle to the thread.
#[derive(Clone)]
pub(crate) struct Syncer {
    requests: Arc<Mutex<Option<mpsc::Sender<Request>>>>,
}

impl Syncer {
    /// Starts the thread of a core.
    ///
    /// # Errors
    /// The operating system's, when it gives no thread.
    pub(crate) fn start(bodies: Arc<Bodies>, core: usize) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (requests, waiting) = mpsc::channel::<Request>();
        let thread = std::thread::Builder::new().name(format!("body-sync-{core}")).spawn(move || {
            while let Ok(first) = waiting.recv() {
                let all: Vec<Request> = std::iter::once(first).chain(waiting.try_iter()).collect();
                let (written, replies): (Vec<_>, Vec<_>) = all.into_iter().map(|one| (one.body, one.reply)).unzip();
                for (result, reply) in bodies.sync(core, written).into_iter().zip(replies) {
                    // Nobody waits any more. The guard that is dropped here leaves the body to the next look at all bodies.
                    let _ = reply.send(result.map_err(|error| body_failed(&error)));
                }
            }
        })?;
        Ok((Self { requests: Arc::new(Mutex::new(Some(requests))) }, thread))
    }

    /// Takes no more; the thread ends when those that wait are done.
    pub(crate) fn close(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Makes a body durable.
    pub(crate) fn sync(&self, body: Written) -> impl Future<Output = Result<Unsettled, Error>> + use<> {
        let (reply, receiver) = oneshot::channel();
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_sent = requests.is_some_and(|requests| requests.send(Request { body, reply }).is_ok());
        async move {
            let stopping = || Error::new(ErrorCode::ShuttingDown, "the node is stopping");
            if is_sent { receiver.await.map_err(|_| stopping())? } else { Err(stopping()) }
        }
    }
}
