//! Waiting for a reply of the core.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millrace_base::{Error, ErrorCode};
use millrace_shard::{Reply, Token};

use crate::core::SharedCore;

/// Waits for a reply. Dropping it drops the reply, not the call.
pub(crate) struct ReplyFuture {
    core: SharedCore,
    token: Option<Token>,
}

impl ReplyFuture {
    pub(crate) fn new(core: SharedCore, token: Token) -> Self {
        Self { core, token: Some(token) }
    }
}

impl Future for ReplyFuture {
    type Output = Result<Reply, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(token) = self.token else {
            return Poll::Ready(Err(Error::new(ErrorCode::Internal, "the reply was fetched already")));
        };
        let reply = self.core.borrow_mut().poll_reply(token, context.waker());
        match reply {
            Some(result) => {
                self.token = None;
                Poll::Ready(result)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for ReplyFuture {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.core.borrow_mut().abandon(token);
        }
    }
}
