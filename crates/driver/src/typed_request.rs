//! Requests whose reply has a type of its own.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_func::RouteReply;
use millrace_shard::question::Ask;
use millrace_shard::{InvocationId, Invoke, RouteCall, TypedReply};

use crate::message::Job;

/// A request, and the type of its reply.
pub trait Request {
    /// What it is answered with.
    type Reply: TypedReply;

    /// The request as it waits and travels.
    fn into_job(self) -> Job;
}

/// Calls a handler. The reply is its output: JSON text.
pub struct Call {
    /// The shard of the key.
    pub shard: ShardId,
    /// What to call.
    pub invoke: Invoke,
}

/// Has a handler called later. The reply is the invocation's id.
pub struct Enqueue {
    /// The shard whose inbox takes the message.
    pub shard: ShardId,
    /// What to call.
    pub invoke: Invoke,
    /// How much later.
    pub delay_ms: u64,
}

/// Asks one shard.
pub struct ShardQuestion<Q> {
    /// Which shard.
    pub shard: ShardId,
    /// What it is asked.
    pub question: Q,
}

impl Request for Call {
    type Reply = Bytes;

    fn into_job(self) -> Job {
        Job::Invoke(self.shard, self.invoke)
    }
}

impl Request for Enqueue {
    type Reply = InvocationId;

    fn into_job(self) -> Job {
        Job::Send { shard: self.shard, invoke: self.invoke, delay_ms: self.delay_ms }
    }
}

impl Request for RouteCall {
    type Reply = RouteReply;

    fn into_job(self) -> Job {
        Job::Route(self)
    }
}

impl<Q: Ask> Request for ShardQuestion<Q> {
    type Reply = Q::Reply;

    fn into_job(self) -> Job {
        Job::Ask { shard: self.shard, question: self.question.into() }
    }
}

/// No code of one node can bring about another kind of reply than was asked for. Another machine can, and so can a damaged
/// row under an idempotency key.
pub(crate) fn typed<T: TypedReply>(reply: millrace_shard::Reply) -> Result<T, Error> {
    let other = || Error::new(ErrorCode::Internal, "the shard answered something else than was asked");
    T::from_reply(reply).ok_or_else(other)
}

#[cfg(test)]
mod tests {
    use millrace_shard::Reply;

    use super::*;

    #[test]
    fn a_reply_of_another_kind_is_an_error() {
        assert_eq!(typed::<Bytes>(Reply::Value(Bytes::from_static(b"1"))), Ok(Bytes::from_static(b"1")));
        assert_eq!(typed::<InvocationId>(Reply::Done).map_err(|error| error.code), Err(ErrorCode::Internal));
    }
}
