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
    /// Of the token that means it: its place is used again by later requests.
    generation: u32,
    /// The shard of this core that has it, once one has.
    shard: Option<ShardId>,
}

#[derive(Default)]
pub(crate) struct Slots {
    slots: Slab<Request>,
    next_generation: u32,
}

/// Generation and place: a reply that comes late, or twice, must not reach whoever has the place by then.
fn token_of(generation: u32, index: usize) -> Token {
    Token(u64::from(generation) << 32 | index as u64)
}

fn place(token: Token) -> (u32, usize) {
    ((token.0 >> 32) as u32, (token.0 & u64::from(u32::MAX)) as usize)
}

impl Slots {
    pub(crate) fn local(&mut self) -> Token {
        self.add(Slot::Waiting(None))
    }

    pub(crate) fn remote(&mut self, core: usize, token: Token) -> Token {
        self.add(Slot::Remote { core, token })
    }

    fn add(&mut self, slot: Slot) -> Token {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        token_of(generation, self.slots.insert(Request { slot, generation, shard: None }))
    }

    fn slot(&self, token: Token) -> Option<&Slot> {
        let (generation, index) = place(token);
        self.slots.get(index).filter(|request| request.generation == generation).map(|request| &request.slot)
    }

    fn get_mut(&mut self, token: Token) -> Option<&mut Request> {
        let (generation, index) = place(token);
        self.slots.get_mut(index).filter(|request| request.generation == generation)
    }

    /// Of a token that was just found.
    fn remove(&mut self, token: Token) -> Request {
        self.slots.remove(place(token).1)
    }

    /// From now on a shard has to answer it.
    pub(crate) fn give_to(&mut self, token: Token, shard: ShardId) {
        if let Some(request) = self.get_mut(token) {
            request.shard = Some(shard);
        }
    }

    /// What a shard has to answer and has not.
    pub(crate) fn unanswered_by(&self, shard: ShardId) -> Vec<Token> {
        let is_open = |request: &Request| request.shard == Some(shard) && !matches!(request.slot, Slot::Ready(_));
        let open = self.slots.iter().filter(|(_, request)| is_open(request));
        open.map(|(index, request)| token_of(request.generation, index)).collect()
    }

    /// Hands over a reply; returns it when it belongs to another core.
    pub(crate) fn reply(&mut self, token: Token, result: Result<Reply, Error>) -> Option<Forward> {
        let slot = &mut self.get_mut(token)?.slot;
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
            Slot::Remote { core, token: asked } => {
                self.remove(token);
                Some(Forward { core, token: asked, result })
            }
            Slot::Abandoned => {
                self.remove(token);
                None
            }
        }
    }

    /// The reply, if it is there; it can be fetched once.
    pub(crate) fn fetch(&mut self, token: Token) -> Option<Result<Reply, Error>> {
        match self.slot(token)? {
            Slot::Ready(_) => match self.remove(token).slot {
                Slot::Ready(result) => Some(result),
                _ => None,
            },
            _ => None,
        }
    }

    fn wait(&mut self, token: Token, waker: &Waker) {
        if let Some(Request { slot: Slot::Waiting(known), .. }) = self.get_mut(token)
            && known.as_ref().is_none_or(|known| !known.will_wake(waker))
        {
            *known = Some(waker.clone());
        }
    }

    fn abandon(&mut self, token: Token) {
        match self.get_mut(token).map(|request| &mut request.slot) {
            Some(slot @ Slot::Waiting(_)) => *slot = Slot::Abandoned,
            Some(Slot::Ready(_)) => {
                self.remove(token);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reply_does_not_reach_who_has_the_place_by_then() {
        let mut slots = Slots::default();
        let first = slots.local();
        assert!(slots.reply(first, Ok(Reply::Done)).is_none());
        assert!(slots.fetch(first).is_some());
        let second = slots.remote(1, Token(7));
        assert_eq!(place(first).1, place(second).1, "the place is used again");
        slots.give_to(first, ShardId(3));
        assert!(slots.reply(first, Ok(Reply::Done)).is_none() && slots.fetch(first).is_none());
        slots.abandon(first);
        assert!(slots.unanswered_by(ShardId(3)).is_empty());
        slots.give_to(second, ShardId(3));
        assert_eq!(slots.unanswered_by(ShardId(3)), [second]);
        let forward = slots.reply(second, Ok(Reply::Done)).expect("another core's");
        assert_eq!((forward.core, forward.token, slots.len()), (1, Token(7), 0));
    }
}
