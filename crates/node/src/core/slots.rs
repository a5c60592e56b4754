//! Who waits for which reply.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use millrace_base::{Error, ErrorCode};
use millrace_shard::{Reply, Token};
use slab::Slab;

use crate::core::SharedCore;

enum Slot {
    /// A task of this core waits, or will.
    Waiting(Option<Waker>),
    /// The reply is there, not yet fetched.
    Ready(Result<Reply, Error>),
    /// Another core's request.
    Remote { core: usize, token: Token },
    /// The caller has gone; the reply is dropped when it comes.
    Abandoned,
}

/// Where a reply has to go that is not for this core.
pub(crate) struct Forward {
    pub core: usize,
    pub token: Token,
    pub result: Result<Reply, Error>,
}

#[derive(Default)]
pub(crate) struct Slots {
    slots: Slab<Slot>,
}

impl Slots {
    pub(crate) fn local(&mut self) -> Token {
        Token(self.slots.insert(Slot::Waiting(None)) as u64)
    }

    pub(crate) fn remote(&mut self, core: usize, token: Token) -> Token {
        Token(self.slots.insert(Slot::Remote { core, token }) as u64)
    }

    /// Hands over a reply; returns it when it belongs to another core.
    pub(crate) fn reply(&mut self, token: Token, result: Result<Reply, Error>) -> Option<Forward> {
        let index = token.0 as usize;
        let slot = self.slots.get_mut(index)?;
        match std::mem::replace(slot, Slot::Abandoned) {
            Slot::Waiting(waker) => {
                *slot = Slot::Ready(result);
                if let Some(waker) = waker {
                    waker.wake();
                }
                None
            }
            Slot::Ready(first) => {
                tracing::error!(token = token.0, "a request was answered twice; the second answer is dropped");
                *slot = Slot::Ready(first);
                None
            }
            Slot::Remote { core, token } => {
                self.slots.remove(index);
                Some(Forward { core, token, result })
            }
            Slot::Abandoned => {
                self.slots.remove(index);
                None
            }
        }
    }

    /// The reply, if it is there; it can be fetched once.
    pub(crate) fn fetch(&mut self, token: Token) -> Option<Result<Reply, Error>> {
        let index = token.0 as usize;
        match self.slots.get(index)? {
            Slot::Ready(_) => match self.slots.remove(index) {
                Slot::Ready(result) => Some(result),
                _ => None,
            },
            _ => None,
        }
    }

    fn wait(&mut self, token: Token, waker: &Waker) {
        if let Some(Slot::Waiting(known)) = self.slots.get_mut(token.0 as usize)
            && known.as_ref().is_none_or(|known| !known.will_wake(waker))
        {
            *known = Some(waker.clone());
        }
    }

    fn abandon(&mut self, token: Token) {
        let index = token.0 as usize;
        match self.slots.get_mut(index) {
            Some(slot @ Slot::Waiting(_)) => *slot = Slot::Abandoned,
            Some(Slot::Ready(_)) => {
                self.slots.remove(index);
            }
            _ => {}
        }
    }

    /// Whether the caller has gone, so that nobody needs the reply.
    pub(crate) fn is_abandoned(&self, token: Token) -> bool {
        matches!(self.slots.get(token.0 as usize), Some(Slot::Abandoned))
    }

    /// Requests not answered yet.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}

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
        let fetched = {
            let mut core = self.core.borrow_mut();
            let fetched = core.slots.fetch(token);
            if fetched.is_none() {
                core.slots.wait(token, context.waker());
            }
            fetched
        };
        match fetched {
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
            self.core.borrow_mut().slots.abandon(token);
        }
    }
}
