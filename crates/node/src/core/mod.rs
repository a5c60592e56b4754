//! One core on its thread: `millrace_driver::Core` with a runtime, channels, a committer and an engine around it.
//!
//! A core belongs to one thread and is reached through one `RefCell`, borrowed for the length of one input. Other threads
//! talk to it by messages only.

mod message;
mod platform;
mod programs;
mod reply;
mod tasks;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use millrace_api::SystemApp;
use millrace_base::{Lsn, ShardId};
use millrace_driver::{CoreMetrics, Placement, ShardMail};
use millrace_io::Clock;
use millrace_log::{LogReader, Segments};
use millrace_store::Checkpoint;
use tokio::sync::mpsc::UnboundedSender;

use crate::apps::AppStore;
use crate::cluster::ReplicationMetrics;
use crate::cluster::{Carrier, Cluster};
use crate::flusher::FlusherHandle;
use crate::metrics::HandlerMetrics;
use crate::objects::BodyStore;
use crate::options::{NodeOptions, Outside};
use crate::readers::Readers;

pub(crate) use message::{ForWorkflows, NodeMessage, Still, handle};
pub(crate) use platform::CorePlatform;
pub(crate) use programs::{activate, handler_metric, load, miss, route_metric};
pub(crate) use reply::ReplyFuture;
pub(crate) use tasks::{run_messages, run_pump, run_ticks};

/// A core with this node around it.
pub(crate) type Core = millrace_driver::Core<CorePlatform>;

/// A core as its own thread's tasks see it.
pub(crate) type SharedCore = Rc<RefCell<Core>>;

/// What all cores of a node share. Written rarely, read without locks on a request's way.
pub(crate) struct Shared {
    pub options: NodeOptions,
    pub placement: Arc<Placement>,
    pub clock: Arc<dyn Clock>,
    pub cores: Vec<UnboundedSender<NodeMessage>>,
    pub mail: Vec<UnboundedSender<ShardMail>>,
    pub flusher: FlusherHandle,
    pub checkpoint: Arc<dyn Checkpoint>,
    /// Reads rows of the checkpoint beside the cores.
    pub readers: Readers,
    pub segments: Segments,
    /// Reads the log of replicas while it is written.
    pub log_reader: LogReader,
    /// Each shard's checkpointed LSN.
    pub checkpointed: Vec<AtomicU64>,
    /// In a cluster: whether nothing that the log has of a shard counts, as its rows are gone.
    pub emptied: Vec<AtomicBool>,
    pub apps: AppStore,
    /// Built-in apps as they are now. Read by what manages them only.
    pub system_apps: RwLock<BTreeMap<String, SystemApp>>,
    /// For each shard, a key that is placed there.
    pub shard_keys: Vec<Vec<u8>>,
    pub outside: Outside,
    /// The cluster that this node is one of.
    pub cluster: Option<Arc<Cluster>>,
    /// Bodies of objects, on a node that keeps any.
    pub bodies: Option<Arc<BodyStore>>,
    /// In a cluster: carries them to other nodes.
    pub carrier: Option<Arc<Carrier>>,
    /// The run before this one has closed the log by a clean stop, or there was none.
    pub is_log_closed: bool,
    /// Held from the look at what is deployed of an app whose workers dial in until what follows of it is deployed.
    pub dialling: tokio::sync::Mutex<()>,
    /// One deployment at a time.
    pub deploying: tokio::sync::Mutex<DeployState>,
    /// One backup at a time.
    pub is_backing_up: AtomicBool,
    pub is_serving: AtomicBool,
    pub is_stopping: AtomicBool,
    pub read_only_cores: AtomicUsize,
    pub stopped_shards: AtomicUsize,
    pub metrics: Vec<Arc<CoreMetrics>>,
    pub replication: Arc<ReplicationMetrics>,
    pub handlers: HandlerMetrics,
}

/// What the next deployment has to know.
#[derive(Debug, Default)]
pub(crate) struct DeployState {
    /// The number of the last deployment; each has its own.
    pub last_deployment: u32,
    /// How often each app was deployed since the start.
    pub versions: BTreeMap<String, u64>,
}

impl DeployState {
    /// The apps loaded at the start are deployments 1, 2, … and each app's first.
    pub(crate) fn after_start(apps: &[millrace_func::App], pinned: usize) -> Self {
        Self {
            last_deployment: u32::try_from(apps.len() + pinned).unwrap_or(u32::MAX),
            versions: apps.iter().map(|app| (app.name.to_string(), 1)).collect(),
        }
    }
}

impl Shared {
    /// Sends to a core. A core that is gone is a node that is stopping; nobody waits for it then. Says whether the core is
    /// there.
    pub(crate) fn send(&self, core: usize, message: NodeMessage) -> bool {
        let is_sent = self.cores[core].send(message).is_ok();
        if !is_sent {
            tracing::debug!(core, "a message came after the core had stopped");
        }
        is_sent
    }

    /// Sends mail between shards to a core. Says whether the core is there.
    pub(crate) fn post(&self, core: usize, mail: ShardMail) -> bool {
        let is_sent = self.mail[core].send(mail).is_ok();
        if !is_sent {
            tracing::debug!(core, "mail came after the core had stopped");
        }
        is_sent
    }

    /// The core of this node that has a shard, or would have it. That of the meta shard is core 0.
    pub(crate) fn core_of(&self, shard: ShardId) -> usize {
        self.placement.core_of(shard)
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.placement.shard_count()
    }

    /// Notes whether anything that the log has of a shard counts.
    pub(crate) fn note_emptied(&self, shard: ShardId, is_emptied: bool) {
        if let Some(known) = self.emptied.get(usize::from(shard.0))
            && known.load(Ordering::Acquire) != is_emptied
        {
            known.store(is_emptied, Ordering::Release);
        }
    }

    pub(crate) fn is_emptied(&self, shard: ShardId) -> bool {
        self.emptied.get(usize::from(shard.0)).is_some_and(|known| known.load(Ordering::Acquire))
    }

    pub(crate) fn checkpointed_lsn(&self, shard: ShardId) -> Lsn {
        let lsn = self.checkpointed.get(usize::from(shard.0));
        Lsn(lsn.map_or(0, |lsn| lsn.load(Ordering::Acquire)))
    }
}
