//! What the node says as soon as it has begun a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::Error;

/// What a request waits for: the disk, its turn, other requests, another core. Dropping it gives up the reply, not
/// the request.
pub type Waiting<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

/// A request that has begun. Nothing it was asked with is needed any more, so a front can let go of all that before
/// it waits; thousands may wait at once, and what they hold is memory that others run in.
pub enum Begun<T> {
    /// It has ended.
    Ended(Result<T, Error>),
    /// It has not, or its effects are not durable yet.
    PendingReply(Waiting<T>),
}

impl<T> Begun<T> {
    /// One that waits.
    pub fn waits(waiting: impl Future<Output = Result<T, Error>> + 'static) -> Self {
        Begun::PendingReply(Box::pin(waiting))
    }

    /// Its reply; waits, if it has to.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn reply(self) -> Result<T, Error> {
        match self {
            Begun::Ended(result) => result,
            Begun::PendingReply(waiting) => waiting.await,
        }
    }
}

impl<T> From<Result<T, Error>> for Begun<T> {
    fn from(result: Result<T, Error>) -> Self {
        Begun::Ended(result)
    }
}

impl<T: fmt::Debug> fmt::Debug for Begun<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Begun::Ended(result) => formatter.debug_tuple("Ended").field(result).finish(),
            Begun::PendingReply(_) => formatter.write_str("Waits"),
        }
    }
}
