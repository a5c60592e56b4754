//! Who waits for which reply.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use millrace_base::{Error, ErrorCode, ShardId};
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

struct Request {
    slot: Slot,
    /// The shard of this core that has it, once one has.
    shard: Option<ShardId>,
}

#[derive(Default)]
pub(crate) struct Slots {
    slots: Slab<Request>,
}

impl Slots {
    pub(crate) fn local(&mut self) -> Token {
        self.add(Slot::Waiting(None))
    }

    pub(crate) fn remote(&mut self, core: usize, token: Token) -> Token {
        self.add(Slot::Remote { core, token })
    }

    fn add(&mut self, slot: Slot) -> Token {
        Token(self.slots.insert(Request { slot, shard: None }) as u64)
    }

    fn slot(&self, token: Token) -> Option<&Slot> {
        self.slots.get(token.0 as usize).map(|request| &request.slot)
    }

    /// From now on a shard has to answer it.
    pub(crate) fn give_to(&mut self, token: Token, shard: ShardId) {
        if let Some(request) = self.slots.get_mut(token.0 as usize) {
            request.shard = Some(shard);
        }
    }

    /// What a shard has to answer and has not.
    pub(crate) fn unanswered_by(&self, shard: ShardId) -> Vec<Token> {
        let is_open = |request: &Request| request.shard == Some(shard) && !matches!(request.slot, Slot::Ready(_));
        self.slots.iter().filter(|(_, request)| is_open(request)).map(|(index, _)| Token(index as u64)).collect()
    }

    /// Hands over a reply; returns it when it belongs to another core.
    pub(crate) fn reply(&mut self, token: Token, result: Result<Reply, Error>) -> Option<Forward> {
        let index = token.0 as usize;
        let slot = &mut self.slots.get_mut(index)?.slot;
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
        match self.slot(token)? {
            Slot::Ready(_) => match self.slots.remove(index).slot {
                Slot::Ready(result) => Some(result),
                _ => None,
            },
            _ => None,
        }
    }

    fn wait(&mut self, token: Token, waker: &Waker) {
        if let Some(Request { slot: Slot::Waiting(known), .. }) = self.slots.get_mut(token.0 as usize)
            && known.as_ref().is_none_or(|known| !known.will_wake(waker))
        {
            *known = Some(waker.clone());
        }
    }

    fn abandon(&mut self, token: Token) {
        let index = token.0 as usize;
        match self.slots.get_mut(index).map(|request| &mut request.slot) {
            Some(slot @ Slot::Waiting(_)) => *slot = Slot::Abandoned,
            Some(Slot::Ready(_)) => {
                self.slots.remove(index);
            }
            _ => {}
        }
    }

    /// Whether the caller has gone, so that nobody needs the reply.
    pub(crate) fn is_abandoned(&self, token: Token) -> bool {
        matches!(self.slot(token), Some(Slot::Abandoned))
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
