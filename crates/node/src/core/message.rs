//! What threads say to a core.

use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Error, Name, ShardId};
use millrace_func::{App, Program};
use millrace_log::Committed;
use millrace_shard::{
    Delivery, Invoke, OffloadTicket, PeerMessage, Reply, RequestInfo, RouteCall, Sequence, Shard, Token, World,
};
use millrace_store::FlushChunk;
use tokio::sync::oneshot;

use crate::versions::CoreVersions;

/// A request for one shard, or for a route that has none yet.
pub(crate) enum Job {
    Invoke(ShardId, Invoke),
    Send {
        shard: ShardId,
        invoke: Invoke,
        delay_ms: u64,
    },
    Route(RouteCall),
    /// Anything else that one shard answers.
    Ask {
        shard: ShardId,
        token: Token,
        may_write: bool,
        question: Question,
    },
}

/// Asks a shard for something, to be answered under the token.
pub(crate) type Question = Box<dyn FnOnce(&mut Shard, Token, &mut World<'_>) + Send>;

impl Job {
    /// The shard it is for, unless it is a route.
    pub(crate) fn shard(&self) -> Option<ShardId> {
        match self {
            Job::Invoke(shard, _) | Job::Send { shard, .. } | Job::Ask { shard, .. } => Some(*shard),
            Job::Route(_) => None,
        }
    }

    fn info(&mut self) -> Option<&mut RequestInfo> {
        match self {
            Job::Invoke(_, invoke) | Job::Send { invoke, .. } => Some(&mut invoke.info),
            Job::Route(call) => Some(&mut call.info),
            Job::Ask { .. } => None,
        }
    }

    /// Names who waits for the reply.
    pub(crate) fn set_token(&mut self, new: Token) {
        match self {
            Job::Ask { token, .. } => *token = new,
            _ => {
                if let Some(info) = self.info() {
                    info.token = new;
                }
            }
        }
    }

    /// The program it runs in. Programs are numbered by each core for itself; between cores a
    /// job carries the number of the deployment instead.
    pub(crate) fn program(&mut self) -> Option<&mut Program> {
        match self {
            Job::Invoke(_, invoke) | Job::Send { invoke, .. } => Some(&mut invoke.handler.program),
            Job::Route(call) => Some(&mut call.route.id.program),
            Job::Ask { .. } => None,
        }
    }
}

/// What goes between shards with messages (`ctx.send`). Nobody waits for it, and there may be very much of it, so it has its
/// own way: what requests and transactions wait for does not stand behind it.
pub(crate) enum Carried {
    /// A message.
    Message { to: ShardId, delivery: Delivery },
    /// Messages of `to` have arrived at `from`.
    Arrived { to: ShardId, from: ShardId, sequence: Sequence },
}

impl Carried {
    pub(crate) fn shard(&self) -> ShardId {
        let (Self::Message { to, .. } | Self::Arrived { to, .. }) = self;
        *to
    }
}

/// One message to a core.
pub(crate) enum CoreMessage {
    /// Another core's request for one of this core's shards; since which monotonic nanosecond it waits.
    Request { from: usize, token: Token, job: Job, since_ns: u64 },
    /// The reply to a request that this core had passed on.
    Reply { token: Token, result: Result<Reply, Error> },
    /// What another shard says about a transaction. It carries deployments instead of programs.
    Peer { to: ShardId, message: PeerMessage },
    /// Offloaded work has ended.
    Offloaded { ticket: OffloadTicket, result: Result<Bytes, Error> },
    /// The committer's news.
    Committed(Committed),
    /// The flusher has written a chunk, or failed to.
    Flushed { shard: ShardId, chunk: FlushChunk, result: Result<(), String> },
    /// Load an app, without sending requests to it yet.
    Prepare { deployment: u32, app: Arc<App>, done: oneshot::Sender<Result<(), Error>> },
    /// Close the services that go with what a loaded app replaces. Answers which.
    Close { deployment: u32, done: oneshot::Sender<Vec<Name>> },
    /// Send requests to a loaded app. Answers the services that have to be swept now.
    Activate { deployment: u32, done: oneshot::Sender<Vec<Name>> },
    /// Is anything under way that began before this was asked?
    IsQuiet { done: oneshot::Sender<bool> },
    /// Which versions of apps are needed? Answers nothing where that is not known yet.
    Versions { done: oneshot::Sender<Option<CoreVersions>> },
    /// Forget an app that was loaded but will not be activated.
    Discard { deployment: u32 },
    /// Send no more requests to an app.
    Remove { app: String, done: oneshot::Sender<bool> },
}
