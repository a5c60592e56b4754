//! A worker that has dialled in, as the front that has its connection sees it: bytes in, bytes out.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::Error;

/// The other end of a worker's connection.
pub trait WorkerLine: Send + Sync {
    /// The worker has sent these bytes.
    ///
    /// # Errors
    /// It has broken the protocol: what [`WorkerLine::poll_send`] still gives is sent, then the connection ends.
    fn receive(&self, bytes: &[u8]) -> Result<(), Error>;

    /// What the worker is to be sent. `None`: the connection is to end.
    fn poll_send(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;

    /// The connection has ended.
    fn close(&self);
}

/// A shared [`WorkerLine`].
pub type SharedWorkerLine = Arc<dyn WorkerLine>;
