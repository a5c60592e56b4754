//! The links of one node, and the thread that looks after them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use millrace_base::limits;
use millrace_io::Random;
use millrace_replica::NodeId;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::frame::{Lane, Refusal};
use crate::ids::ClusterId;
use crate::log::Log;
use crate::peer::{self, Incoming, Peer};
use crate::session::QueueError;
use crate::tls::{Identity, Tls};
use crate::{accept, tls};

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A link sends something at least so often.
    pub heartbeat: Duration,
    /// A link that has heard nothing for so long is down.
    pub silence: Duration,
    /// A handshake must be over within this time.
    pub handshake: Duration,
    /// The first wait after a dial that failed; the next ones double it.
    pub first_backoff: Duration,
    /// No wait is longer.
    pub longest_backoff: Duration,
    /// A node that was not dialled for so long asks its peer whether it is still one.
    pub knock: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            silence: Duration::from_millis(1_000),
            handshake: Duration::from_millis(3_000),
            first_backoff: Duration::from_millis(20),
            longest_backoff: Duration::from_millis(500),
            knock: Duration::from_millis(3_000),
        }
    }
}

/// What the links of a node are started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster.
    pub cluster: ClusterId,
    /// This node.
    pub node: NodeId,
    /// Names this process. A later process of the node must have a higher number. Not 0.
    pub incarnation: u64,
    /// Where peers are awaited.
    pub listen: SocketAddr,
    /// What this node proves itself with.
    pub identity: Identity,
    /// How long things take.
    pub timing: Timing,
}

/// Another node and where it awaits its peers: host and port. A name is looked up at each dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The node.
    pub node: NodeId,
    /// Host and port.
    pub address: String,
}

/// What happened to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The peer is another process than before, and begins without a memory. Core messages that the one before had not
    /// acknowledged may have arrived or not. [`LinkEvent::Up`] follows.
    Restarted {
        /// The new process.
        incarnation: u64,
    },
    /// Messages go to and fro.
    Up {
        /// The peer's process.
        incarnation: u64,
    },
    /// The connection has ended. Another one is tried.
    Down,
    /// The peer says that this node was removed from the cluster.
    Removed,
}

/// Who takes what comes. The links' own thread calls it, so it must not wait. All calls about one node are in order.
pub trait Handler: Send + Sync + 'static {
    /// A message has come.
    fn received(&self, from: NodeId, lane: Lane, message: Bytes);

    /// All messages that came together have been handed over. Here the handler wakes others.
    fn settled(&self, from: NodeId);

    /// A link has changed.
    fn changed(&self, node: NodeId, event: LinkEvent);
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No peer has this number.
    UnknownNode(NodeId),
    /// It cannot wait for the peer.
    Queue(QueueError),
}

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::UnknownNode(node) => write!(formatter, "node {node} is no peer"),
            SendError::Queue(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for SendError {}

/// Why links cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened at.
    Listen(SocketAddr, io::Error),
    /// Certificate, key or authority cannot be used.
    Identity(String),
    /// There is no thread to be had.
    Thread(io::Error),
    /// The process needs a number that is not 0.
    Incarnation,
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(address, error) => write!(formatter, "cannot await peers at {address}: {error}"),
            StartError::Identity(what) => formatter.write_str(what),
            StartError::Thread(error) => write!(formatter, "no thread for links between nodes: {error}"),
            StartError::Incarnation => formatter.write_str("the process has no number among those of its node"),
        }
    }
}

impl std::error::Error for StartError {}

/// What all tasks of a node's links share.
pub(crate) struct Shared {
    pub config: Config,
    pub tls: Tls,
    pub handler: Arc<dyn Handler>,
    pub random: Arc<dyn Random>,
    pub log: Log,
    peers: RwLock<BTreeMap<NodeId, Arc<Peer>>>,
    /// Who has no higher number than this and is no peer was removed.
    last_removed: AtomicU16,
}

impl Shared {
    /// The peer of this number, if it is one now.
    pub(crate) fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&node).filter(|peer| peer.is_member()).cloned()
    }

    /// Why a node is refused that is no peer now.
    pub(crate) fn refusal_of_stranger(&self, node: NodeId) -> Refusal {
        let is_removed = node.0 <= self.last_removed.load(Ordering::Relaxed) && self.peer(node).is_none();
        if is_removed && node != self.config.node { Refusal::Removed } else { Refusal::UnknownNode }
    }

    fn all(&self) -> Vec<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Sets who is a peer. Returns those whose tasks must begin.
    fn set_peers(&self, addresses: &[PeerAddress]) -> Begun {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let mut begun = Vec::new();
        for peer in peers.values() {
            // The session stays: if the node comes back, both processes still know their numbers.
            peer.set_address(addresses.iter().find(|other| other.node == peer.node).map(|other| other.address.clone()));
        }
        for PeerAddress { node, address } in addresses {
            if *node != self.config.node && !peers.contains_key(node) && peers.len() < limits::CLUSTER_NODES {
                let (peer, incoming) = Peer::new(*node, address.clone(), self.config.incarnation);
                let peer = Arc::new(peer);
                peers.insert(*node, Arc::clone(&peer));
                begun.push((peer, incoming));
            }
        }
        begun
    }
}

/// New peers, each with what its task listens to.
type Begun = Vec<(Arc<Peer>, mpsc::Receiver<Incoming>)>;

enum Command {
    Begin(Begun),
    Stop,
}

/// The links of one node to all others. Clones are the same links.
#[derive(Clone)]
pub struct Links {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
    address: SocketAddr,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Links {
    /// Listens, and begins to dial. A node dials those of higher numbers, and is dialled by those of lower ones.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(
        config: Config,
        peers: &[PeerAddress],
        random: Arc<dyn Random>,
        handler: Arc<dyn Handler>,
    ) -> Result<Self, StartError> {
        if config.incarnation == 0 {
            return Err(StartError::Incarnation);
        }
        let tls = tls::Tls::new(config.cluster, config.node, &config.identity).map_err(StartError::Identity)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let listen = config.listen;
        let listener =
            runtime.block_on(TcpListener::bind(listen)).map_err(|error| StartError::Listen(listen, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Listen(listen, error))?;
        let log = Log::default();
        let (peers_known, last_removed) = (RwLock::default(), AtomicU16::new(0));
        let shared = Arc::new(Shared { config, tls, handler, random, log, peers: peers_known, last_removed });
        let (commands, mut received) = mpsc::unbounded_channel();
        let begun = shared.set_peers(peers);
        let of_thread = Arc::clone(&shared);
        let run = move || {
            runtime.block_on(async move {
                begin(&of_thread, begun);
                tokio::spawn(accept::run(Arc::clone(&of_thread), listener));
                while let Some(Command::Begin(begun)) = received.recv().await {
                    begin(&of_thread, begun);
                }
            });
        };
        let thread = std::thread::Builder::new().name("links".to_owned()).spawn(run).map_err(StartError::Thread)?;
        Ok(Self { shared, commands, address, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Where peers are awaited, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets who is a peer and where, from now on. The own node is left out by itself.
    pub fn set_peers(&self, peers: &[PeerAddress]) {
        let _ = self.commands.send(Command::Begin(self.shared.set_peers(peers)));
    }

    /// No node that was removed has a higher number than this. Such a node is told so when it connects.
    pub fn set_last_removed(&self, last: NodeId) {
        self.shared.last_removed.fetch_max(last.0, Ordering::Relaxed);
    }

    /// Sends a message; the links' thread writes it. Use [`Links::queue`] and [`Links::flush`] where several messages are
    /// made together.
    ///
    /// # Errors
    /// [`SendError`]; the message is dropped.
    pub fn send(&self, to: NodeId, lane: Lane, message: Bytes) -> Result<(), SendError> {
        let peer = self.shared.peer(to).ok_or(SendError::UnknownNode(to))?;
        peer.queue(lane, message).map_err(SendError::Queue)?;
        peer.wake();
        Ok(())
    }

    /// Lets a message wait until the next [`Links::flush`], or until something else is written to the peer.
    ///
    /// # Errors
    /// [`SendError`]; the message is dropped.
    pub fn queue(&self, to: NodeId, lane: Lane, message: Bytes) -> Result<(), SendError> {
        let peer = self.shared.peer(to).ok_or(SendError::UnknownNode(to))?;
        peer.queue(lane, message).map_err(SendError::Queue)
    }

    /// Writes what waits for the peer, on the calling thread, without waiting for anything. What the socket does not take
    /// the links' thread writes later.
    pub fn flush(&self, to: NodeId) {
        if let Some(peer) = self.shared.peer(to) {
            peer.flush();
        }
    }

    /// The peer's process, while the link is up.
    #[must_use]
    pub fn up(&self, node: NodeId) -> Option<u64> {
        self.shared.peer(node)?.up()
    }

    /// Ends all links and waits for their thread. What was not written is lost.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        for peer in self.shared.all() {
            peer.end();
        }
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Links").field("address", &self.address).finish_non_exhaustive()
    }
}

fn begin(shared: &Arc<Shared>, begun: Begun) {
    for (peer, incoming) in begun {
        tokio::spawn(peer::run(Arc::clone(shared), peer, incoming));
    }
}

/// Nothing panics while it holds one of these locks, and if it did, what they guard would still be whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
