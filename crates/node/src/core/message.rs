//! What threads say to a core.

use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Error, Name, ShardId};
use millrace_driver::{CoreMessage, CoreVersions};
use millrace_func::App;
use millrace_log::Committed;
use millrace_shard::OffloadTicket;
use millrace_store::FlushChunk;
use tokio::sync::oneshot;

use crate::core::{Core, activate, load};

/// One message to a core.
pub(crate) enum NodeMessage {
    /// Another core says something.
    OfCore(CoreMessage),
    /// Offloaded work has ended.
    Offloaded { ticket: OffloadTicket, result: Result<Bytes, Error> },
    /// A worker has had its turn.
    Exchanged { ticket: OffloadTicket, result: Result<Bytes, Error> },
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
    /// Nothing is under way that began before this deployment served: what it replaced may be unloaded.
    Settle { deployment: u32 },
    /// How many bytes do the programs hold that were replaced and are still loaded?
    ReplacedBytes { done: oneshot::Sender<usize> },
    /// Which versions of apps are needed? Answers nothing where that is not known yet.
    Versions { done: oneshot::Sender<Option<CoreVersions>> },
    /// Forget an app that was loaded but will not be activated.
    Discard { deployment: u32 },
    /// Send no more requests to an app.
    Remove { app: String, done: oneshot::Sender<bool> },
}

/// Gives a message to its core. Where nobody waits for an answer any more, the node is stopping.
pub(crate) fn handle(core: &mut Core, message: NodeMessage) {
    match message {
        NodeMessage::OfCore(message) => core.handle(message),
        NodeMessage::Offloaded { ticket, result } => core.offloaded(ticket, result),
        NodeMessage::Exchanged { ticket, result } => core.exchanged(ticket, result),
        NodeMessage::Committed(news) => core.committed(news),
        NodeMessage::Flushed { shard, chunk, result } => core.flushed(shard, &chunk, result),
        NodeMessage::Prepare { deployment, app, done } => {
            let _ = done.send(load(core, deployment, &app));
        }
        NodeMessage::Close { deployment, done } => {
            let _ = done.send(core.close(deployment));
        }
        NodeMessage::Activate { deployment, done } => {
            let _ = done.send(activate(core, deployment));
        }
        NodeMessage::IsQuiet { done } => {
            let _ = done.send(core.is_quiet());
        }
        NodeMessage::Settle { deployment } => core.settle(deployment),
        NodeMessage::ReplacedBytes { done } => {
            let _ = done.send(core.replaced_bytes());
        }
        NodeMessage::Versions { done } => {
            let _ = done.send(core.versions());
        }
        NodeMessage::Discard { deployment } => {
            let program = core.discard(deployment);
            core.platform.forget(program.as_slice());
        }
        NodeMessage::Remove { app, done } => {
            let _ = done.send(core.remove(&app));
        }
    }
}
