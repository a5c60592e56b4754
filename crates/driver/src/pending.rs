//! Pending replies: who waits for which reply.

use std::collections::BTreeSet;

use millrace_base::{Error, ShardId};
use millrace_replica::NodeId;
use millrace_shard::{Reply, Token};
use slab::Slab;

use crate::message::CoreAddress;
use crate::platform::Waiter;

enum State<W> {
    /// Somebody on this core waits, or will.
    Waiting(Option<W>),
    /// The reply is there, not yet fetched.
    Ready(Result<Reply, Error>),
    /// Another core's request.
    Remote { asker: CoreAddress, token: Token },
    /// The caller has gone; the reply is dropped when it comes.
    Abandoned,
}

/// Where a reply has to go that is not for this core.
pub(crate) struct Forward {
    pub to: CoreAddress,
    pub token: Token,
    pub result: Result<Reply, Error>,
}

struct PendingReply<W> {
    state: State<W>,
    /// Of the token that means it: its place is used again by later requests.
    generation: u32,
    holder: Holder,
}

/// Who has a request and owes its reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// This core itself, or another core of this node.
    Node,
    /// A shard of this core.
    Shard(ShardId),
    /// Another node.
    Other(NodeId),
    /// Somebody who was given up. The reply may come after all.
    GivenUp,
}

pub(crate) struct PendingReplies<W> {
    replies: Slab<PendingReply<W>>,
    next_generation: u32,
}

impl<W> Default for PendingReplies<W> {
    fn default() -> Self {
        Self { replies: Slab::new(), next_generation: 0 }
    }
}

/// Generation and place: a reply that comes late, or twice, must not reach whoever has the place by then.
fn token_of(generation: u32, index: usize) -> Token {
    Token(u64::from(generation) << 32 | index as u64)
}

fn place(token: Token) -> (u32, usize) {
    ((token.0 >> 32) as u32, (token.0 & u64::from(u32::MAX)) as usize)
}

impl<W: Waiter> PendingReplies<W> {
    pub(crate) fn local(&mut self) -> Token {
        self.add(State::Waiting(None))
    }

    pub(crate) fn remote(&mut self, asker: CoreAddress, token: Token) -> Token {
        self.add(State::Remote { asker, token })
    }

    fn add(&mut self, state: State<W>) -> Token {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        token_of(generation, self.replies.insert(PendingReply { state, generation, holder: Holder::Node }))
    }

    fn state(&self, token: Token) -> Option<&State<W>> {
        let (generation, index) = place(token);
        self.replies.get(index).filter(|reply| reply.generation == generation).map(|reply| &reply.state)
    }

    fn get_mut(&mut self, token: Token) -> Option<&mut PendingReply<W>> {
        let (generation, index) = place(token);
        self.replies.get_mut(index).filter(|reply| reply.generation == generation)
    }

    /// The token was just found.
    fn remove(&mut self, token: Token) -> PendingReply<W> {
        self.replies.remove(place(token).1)
    }

    /// From now on a shard has to answer it.
    pub(crate) fn give_to(&mut self, token: Token, shard: ShardId) {
        if let Some(reply) = self.get_mut(token) {
            reply.holder = Holder::Shard(shard);
        }
    }

    /// From now on another node has to answer it.
    pub(crate) fn give_to_node(&mut self, token: Token, node: NodeId) {
        if let Some(reply) = self.get_mut(token) {
            reply.holder = Holder::Other(node);
        }
    }

    /// Whether another node has to answer it.
    pub(crate) fn is_with_other_node(&self, token: Token) -> bool {
        let (generation, index) = place(token);
        let reply = self.replies.get(index).filter(|reply| reply.generation == generation);
        reply.is_some_and(|reply| matches!(reply.holder, Holder::Other(_)))
    }

    /// From now on this core has it again.
    pub(crate) fn give_to_nobody(&mut self, token: Token) {
        if let Some(reply) = self.get_mut(token) {
            reply.holder = Holder::Node;
        }
    }

    /// The request is answered now, though whoever has it may answer it later.
    pub(crate) fn give_up(&mut self, token: Token) {
        if let Some(reply) = self.get_mut(token) {
            reply.holder = Holder::GivenUp;
        }
    }

    /// Whether somebody still waits for the reply.
    pub(crate) fn is_open(&self, token: Token) -> bool {
        matches!(self.state(token), Some(State::Waiting(_) | State::Remote { .. }))
    }

    /// A request that did not run and goes back: who has asked, if that is another core.
    pub(crate) fn give_back(&mut self, token: Token) -> Option<(CoreAddress, Token)> {
        let &State::Remote { asker, token: asked } = self.state(token)? else { return None };
        self.remove(token);
        Some((asker, asked))
    }

    /// Nobody waits any more for what that node has asked.
    pub(crate) fn forget_asker(&mut self, node: NodeId) {
        for (_, reply) in &mut self.replies {
            if matches!(reply.state, State::Remote { asker, .. } if asker.node == node) {
                reply.state = State::Abandoned;
            }
        }
    }

    /// What another node has to answer and has not.
    pub(crate) fn unanswered_by_node(&self, node: NodeId) -> Vec<Token> {
        self.unanswered_of(Holder::Other(node))
    }

    /// What any other node has to answer and has not.
    pub(crate) fn unanswered_by_others(&self) -> Vec<Token> {
        self.unanswered(|holder| matches!(holder, Holder::Other(_)))
    }

    /// What a shard has to answer and has not.
    pub(crate) fn unanswered_by(&self, shard: ShardId) -> Vec<Token> {
        self.unanswered_of(Holder::Shard(shard))
    }

    /// What some of these shards have to answer and have not.
    pub(crate) fn unanswered_by_any(&self, shards: &BTreeSet<ShardId>) -> Vec<Token> {
        self.unanswered(|holder| matches!(holder, Holder::Shard(shard) if shards.contains(&shard)))
    }

    fn unanswered_of(&self, wanted: Holder) -> Vec<Token> {
        self.unanswered(|holder| holder == wanted)
    }

    fn unanswered(&self, is_meant: impl Fn(Holder) -> bool) -> Vec<Token> {
        let is_open = |reply: &PendingReply<W>| is_meant(reply.holder) && !matches!(reply.state, State::Ready(_));
        let open = self.replies.iter().filter(|(_, reply)| is_open(reply));
        open.map(|(index, reply)| token_of(reply.generation, index)).collect()
    }

    /// Hands over a reply; returns it when it belongs to another core.
    pub(crate) fn reply(&mut self, token: Token, result: Result<Reply, Error>) -> Option<Forward> {
        let PendingReply { state, holder, .. } = self.get_mut(token)?;
        match std::mem::replace(state, State::Abandoned) {
            State::Waiting(waiter) => {
                *state = State::Ready(result);
                if let Some(waiter) = waiter {
                    waiter.wake();
                }
                None
            }
            State::Ready(first) => {
                if *holder != Holder::GivenUp {
                    tracing::error!(token = token.0, "a request was answered twice; the second answer is dropped");
                }
                *state = State::Ready(first);
                None
            }
            State::Remote { asker, token: asked } => {
                self.remove(token);
                Some(Forward { to: asker, token: asked, result })
            }
            State::Abandoned => {
                self.remove(token);
                None
            }
        }
    }

    /// The reply, if it is there; it can be fetched once.
    pub(crate) fn fetch(&mut self, token: Token) -> Option<Result<Reply, Error>> {
        match self.state(token)? {
            State::Ready(_) => match self.remove(token).state {
                State::Ready(result) => Some(result),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whom to wake when the reply comes.
    pub(crate) fn wait(&mut self, token: Token, waiter: &W) {
        if let Some(PendingReply { state: State::Waiting(known), .. }) = self.get_mut(token)
            && known.as_ref().is_none_or(|known| !known.will_wake(waiter))
        {
            *known = Some(waiter.clone());
        }
    }

    pub(crate) fn abandon(&mut self, token: Token) {
        match self.get_mut(token).map(|reply| &mut reply.state) {
            Some(state @ State::Waiting(_)) => *state = State::Abandoned,
            Some(State::Ready(_)) => {
                self.remove(token);
            }
            _ => {}
        }
    }

    /// Whether the caller has gone, so that nobody needs the reply.
    pub(crate) fn is_abandoned(&self, token: Token) -> bool {
        matches!(self.state(token), Some(State::Abandoned))
    }

    /// Requests not answered yet.
    pub(crate) fn len(&self) -> usize {
        self.replies.len()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_late_reply_does_not_reach_who_has_the_place_by_then() {
        let mut replies = PendingReplies::<Waker>::default();
        let first = replies.local();
        assert!(replies.reply(first, Ok(Reply::Done)).is_none());
        assert!(replies.fetch(first).is_some());
        let asker = CoreAddress { node: NodeId(2), core: 1 };
        let second = replies.remote(asker, Token(7));
        assert_eq!(place(first).1, place(second).1, "the place is used again");
        replies.give_to(first, ShardId(3));
        assert!(replies.reply(first, Ok(Reply::Done)).is_none() && replies.fetch(first).is_none());
        replies.abandon(first);
        assert!(replies.unanswered_by(ShardId(3)).is_empty());
        replies.give_to(second, ShardId(3));
        assert_eq!(replies.unanswered_by(ShardId(3)), [second]);
        let forward = replies.reply(second, Ok(Reply::Done)).expect("another core's");
        assert_eq!((forward.to, forward.token, replies.len()), (asker, Token(7), 0));
    }

    #[test]
    fn a_node_that_is_gone_answers_nothing_and_hears_nothing() {
        let mut replies = PendingReplies::<Waker>::default();
        let [passed_on, own] = [replies.local(), replies.local()];
        let asked = replies.remote(CoreAddress { node: NodeId(2), core: 0 }, Token(9));
        replies.give_to_node(passed_on, NodeId(2));
        replies.give_to_node(own, NodeId(3));
        assert_eq!(replies.unanswered_by_node(NodeId(2)), [passed_on]);
        assert!(replies.is_with_other_node(own) && !replies.is_with_other_node(asked));
        replies.forget_asker(NodeId(2));
        assert!(replies.is_abandoned(asked) && replies.reply(asked, Ok(Reply::Done)).is_none());
        assert_eq!(replies.give_back(own), None, "it is this core's own");
        let asker = CoreAddress { node: NodeId(3), core: 4 };
        let back = replies.remote(asker, Token(5));
        assert_eq!(replies.give_back(back), Some((asker, Token(5))));
        assert!(replies.reply(back, Ok(Reply::Done)).is_none());
    }
}
