//! Waiting for a reply of the core.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millrace_base::{Error, ErrorCode};
use millrace_shard::{ReplyTo, TypedReply};

use crate::core::SharedCore;

/// Waits for a reply. Dropping it drops the reply, not the call.
pub(crate) struct ReplyFuture<T> {
    core: SharedCore,
    to: Option<ReplyTo<T>>,
}

impl<T> ReplyFuture<T> {
    pub(crate) fn new(core: SharedCore, to: ReplyTo<T>) -> Self {
        Self { core, to: Some(to) }
    }
}

impl<T: TypedReply> Future for ReplyFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(to) = self.to else {
            return Poll::Ready(Err(Error::new(ErrorCode::Internal, "the reply was fetched already")));
        };
        let reply = self.core.borrow_mut().poll_typed(to, context.waker());
        match reply {
            Some(result) => {
                self.to = None;
                Poll::Ready(result)
            }
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for ReplyFuture<T> {
    fn drop(&mut self) {
        if let Some(to) = self.to {
            self.core.borrow_mut().abandon(to.token());
        }
    }
}
