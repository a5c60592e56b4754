//! A cluster's authority, nodes on this machine, and what their handlers were told.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_io::RealRandom;
use millrace_peers::certificate_name;
use millrace_peers::{ClusterId, Config, Handler, Identity, Lane, LinkEvent, Links, PeerAddress, Timing};
use millrace_replica::NodeId;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::PrivateKeyDer;

pub const CLUSTER: ClusterId = ClusterId([7; 16]);

/// Nothing here takes so long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// Signs certificates of nodes.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(parameters, key).expect("an authority"))
    }

    pub fn identity(&self, cluster: ClusterId, node: u16) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec![certificate_name(cluster, NodeId(node))]).expect("a name");
        let certificate = parameters.signed_by(&key, &self.0).expect("signed");
        Identity {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            authority: self.0.der().clone(),
        }
    }
}

/// What a node's handler was told.
#[derive(Debug, Default)]
pub struct Heard {
    pub messages: Vec<(NodeId, Lane, Bytes)>,
    pub events: Vec<(NodeId, LinkEvent)>,
    pub settled: usize,
}

#[derive(Default)]
pub struct Recorder {
    heard: Mutex<Heard>,
    more: Condvar,
}

impl Recorder {
    fn tell(&self, what: impl FnOnce(&mut Heard)) {
        what(&mut self.heard.lock().expect("no panic"));
        self.more.notify_all();
    }

    /// Waits until this has been heard.
    pub fn wait_for<T>(&self, what: &str, mut found: impl FnMut(&mut Heard) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        let mut heard = self.heard.lock().expect("no panic");
        loop {
            if let Some(found) = found(&mut heard) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for: {what}; events: {:?}", heard.events);
            heard = self.more.wait_timeout(heard, left).expect("no panic").0;
        }
    }

    pub fn wait_for_event(&self, node: u16, event: LinkEvent) {
        let what = format!("{event:?} of node {node}");
        self.wait_for(&what, |heard| heard.events.contains(&(NodeId(node), event)).then_some(()));
    }

    pub fn events(&self) -> Vec<(NodeId, LinkEvent)> {
        self.heard.lock().expect("no panic").events.clone()
    }
}

impl Handler for Recorder {
    fn received(&self, from: NodeId, lane: Lane, message: Bytes) {
        self.tell(|heard| heard.messages.push((from, lane, message)));
    }

    fn settled(&self, _from: NodeId) {
        self.tell(|heard| heard.settled += 1);
    }

    fn changed(&self, node: NodeId, event: LinkEvent) {
        self.tell(|heard| heard.events.push((node, event)));
    }
}

/// One node, which ends with this.
pub struct Node {
    pub links: Links,
    pub heard: Arc<Recorder>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.links.stop();
    }
}

pub fn config(identity: Identity, node: u16, incarnation: u64, port: u16) -> Config {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Config { cluster: CLUSTER, node: NodeId(node), incarnation, listen, identity, timing: Timing::default() }
}

pub fn start_with(config: Config) -> Node {
    let heard = Arc::new(Recorder::default());
    let links = Links::start(config, &[], Arc::new(RealRandom), Arc::clone(&heard) as Arc<dyn Handler>);
    Node { links: links.expect("the links start"), heard }
}

/// A node without peers yet. Port 0 has the system choose one.
pub fn start(authority: &Authority, node: u16, incarnation: u64, port: u16) -> Node {
    start_with(config(authority.identity(CLUSTER, node), node, incarnation, port))
}

/// Tells each node where all are.
pub fn introduce(nodes: &[(u16, SocketAddr)], to: &[&Node]) {
    let address =
        |(node, address): &(u16, SocketAddr)| PeerAddress { node: NodeId(*node), address: address.to_string() };
    let addresses: Vec<PeerAddress> = nodes.iter().map(address).collect();
    for node in to {
        node.links.set_peers(&addresses);
    }
}

/// Nodes 1 and 2 of one cluster, linked.
pub fn pair(authority: &Authority) -> [Node; 2] {
    let nodes = [start(authority, 1, 1, 0), start(authority, 2, 1, 0)];
    introduce(&[(1, nodes[0].links.address()), (2, nodes[1].links.address())], &[&nodes[0], &nodes[1]]);
    for (node, other) in nodes.iter().zip([2, 1]) {
        node.heard.wait_for_event(other, LinkEvent::Up { incarnation: 1 });
    }
    nodes
}
