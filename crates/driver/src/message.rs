//! What cores say to each other. All of it may cross machines: `codec` has the bytes.

use millrace_base::{Error, ShardId};
use millrace_func::Program;
use millrace_replica::{Epoch, NodeId};
use millrace_shard::question::Question;
use millrace_shard::{Delivery, Invoke, PeerMessage, Reply, RequestInfo, RouteCall, Sequence, Token};

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

    /// What a request carries that runs a function.
    pub(crate) fn info_mut(&mut self) -> Option<&mut RequestInfo> {
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

/// A core of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreAddress {
    /// Its node; 0 for a node that stands alone.
    pub node: NodeId,
    /// Its number there.
    pub core: usize,
}

/// For whom on another node a message is. Nodes have different numbers of cores: the receiving node knows which core it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The core of that shard.
    Shard(ShardId),
    /// That core, which has asked.
    Core(usize),
    /// Each core.
    Every,
}

/// One message from one core to another.
#[derive(Clone)]
pub enum CoreMessage {
    /// A request for one of the receiver's shards.
    Request {
        /// The core that passes it on.
        from: CoreAddress,
        /// Under which the sender waits for the reply.
        token: Token,
        /// The request. It names deployments instead of programs.
        job: Job,
        /// Since which monotonic nanosecond it waits. From another node, whose clock is another: for how long.
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
    /// A request that the receiver had passed on did not run: its shard is not where it was sent.
    NotHere {
        /// The token of the request.
        token: Token,
        /// The request.
        job: Job,
        /// As in the request.
        since_ns: u64,
    },
    /// A shard was opened. What an earlier opening of it has not said yet it never will.
    Opened {
        /// The shard.
        shard: ShardId,
        /// Its epoch, which is its incarnation.
        epoch: Epoch,
        /// The node where it is.
        owner: NodeId,
    },
    /// As `Peer`, for a node that the sender does not hear: the receiver passes it on.
    Detour {
        /// The node it is for.
        node: NodeId,
        /// How many more nodes may pass it on.
        nodes_left: u8,
        /// The shard it is for.
        to: ShardId,
        /// What it says.
        message: PeerMessage,
    },
    /// As `Opened`, for a node that the sender does not hear: the receiver passes it on.
    OpenedDetour {
        /// The node it is for.
        node: NodeId,
        /// The shard.
        shard: ShardId,
        /// Its epoch.
        epoch: Epoch,
        /// The node where it is.
        owner: NodeId,
    },
}
