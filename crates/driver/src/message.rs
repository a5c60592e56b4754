//! What cores say to each other. All of it may cross machines: `codec` has the bytes.

use millrace_base::{Error, ShardId};
use millrace_func::Program;
use millrace_shard::{Delivery, Invoke, PeerMessage, Reply, RequestInfo, RouteCall, Sequence, Token};

use crate::question::Question;

/// A request for one shard, or for a route that has none yet.
#[derive(Clone)]
pub enum Job {
    /// Call a handler.
    Invoke(ShardId, Invoke),
    /// Have a handler called later.
    Send {
        /// The shard whose inbox takes the message.
        shard: ShardId,
        /// What to call.
        invoke: Invoke,
        /// How much later.
        delay_ms: u64,
    },
    /// Run a route.
    Route(RouteCall),
    /// Anything else that one shard answers.
    Ask {
        /// Which shard.
        shard: ShardId,
        /// What it is asked.
        question: Question,
    },
}

impl Job {
    /// The shard it is for, unless it is a route.
    #[must_use]
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Job::Invoke(shard, _) | Job::Send { shard, .. } | Job::Ask { shard, .. } => Some(*shard),
            Job::Route(_) => None,
        }
    }

    pub(crate) fn info(&mut self) -> Option<&mut RequestInfo> {
        match self {
            Job::Invoke(_, invoke) | Job::Send { invoke, .. } => Some(&mut invoke.info),
            Job::Route(call) => Some(&mut call.info),
            Job::Ask { .. } => None,
        }
    }

    /// The program it runs in. Each core numbers programs for itself; between cores a job carries the number of
    /// the deployment instead.
    pub(crate) fn program(&self) -> Option<Program> {
        match self {
            Job::Invoke(_, invoke) | Job::Send { invoke, .. } => Some(invoke.handler.program),
            Job::Route(call) => Some(call.route.id.program),
            Job::Ask { .. } => None,
        }
    }
}

/// What goes between shards with messages (`ctx.send`). Nobody waits for it and there may be very much of it, so it has its
/// own way: what requests and transactions wait for does not stand behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardMail {
    /// A message.
    Message {
        /// The shard it is for.
        to: ShardId,
        /// The message, and where it comes from.
        delivery: Delivery,
    },
    /// Messages of `to` have arrived at `from`.
    Arrived {
        /// The shard that sent them.
        to: ShardId,
        /// The shard that has them.
        from: ShardId,
        /// The last of them.
        sequence: Sequence,
    },
}

impl ShardMail {
    /// The shard it is for.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        let (Self::Message { to, .. } | Self::Arrived { to, .. }) = self;
        *to
    }
}

/// One message from one core to another.
#[derive(Clone)]
pub enum CoreMessage {
    /// A request for one of the receiver's shards.
    Request {
        /// The core that passes it on.
        from: usize,
        /// Under which the sender waits for the reply.
        token: Token,
        /// The request. It names deployments instead of programs.
        job: Job,
        /// Since which monotonic nanosecond it waits.
        since_ns: u64,
    },
    /// The reply to a request that the receiver had passed on.
    Reply {
        /// The token of the request.
        token: Token,
        /// The reply.
        result: Result<Reply, Error>,
    },
    /// What another shard says about a transaction. It names deployments instead of programs.
    Peer {
        /// The shard it is for.
        to: ShardId,
        /// What it says.
        message: PeerMessage,
    },
}
