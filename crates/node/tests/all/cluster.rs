//! Three nodes in one process, with real links between them: calls to any of them, a node that goes and comes back.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_api::{AppFile, CallRequest, Calls, Deployments, Error, ErrorCode, HandlerKind, Principal, Serving};
use millrace_base::{IdempotencyKey, Name, Value};
use millrace_driver::FlushPolicy;
use millrace_func::{ActivationId, App, Engine, Host, OperationId, Output, Program, Service, Start, TurnResult};
use millrace_node::{
    ClusterOptions, CoreHandle, DataDirectory, EngineMaker, Fronts, Member, Node, NodeMetrics, NodeOptions,
};
use millrace_peers::{ClusterId, Identity, certificate_name};
use millrace_replica::NodeId;
use tokio::sync::{mpsc as jobs, oneshot, watch};

use crate::cut_link::CutLink;
use crate::outside::NoFetcher;

const SHARDS: u16 = 6;
const CLUSTER: ClusterId = ClusterId([7; 16]);

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// `add` counts up, `read` says how far, `fill` writes 64 KiB beside that.
struct Counting;

impl Engine for Counting {
    fn load(&self, _: Program, _: &App) -> Result<(), Error> {
        Ok(())
    }

    fn services(&self, _: Program) -> Vec<Service> {
        let handlers = vec![
            (name("add"), HandlerKind::Transaction),
            (name("read"), HandlerKind::Query),
            (name("fill"), HandlerKind::Transaction),
        ];
        vec![Service { name: name("counter"), handlers, routes: Vec::new(), schedules: Vec::new() }]
    }

    fn unload(&self, _: Program) {}

    fn start(&self, _: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        let Start::Handler { id, .. } = start else { panic!("there are no routes") };
        let count = |value: Option<&Value>| {
            value.map_or(0u64, |value| std::str::from_utf8(value.content()).expect("text").parse().expect("a number"))
        };
        let mut found = host.get(b"n").map(count).expect("memory does not fail");
        if id.handler == 2 {
            let value = Value::json(&format!("\"{}\"", "x".repeat(64 << 10)));
            let field = host.get(b"fields").map(count).expect("memory does not fail");
            host.set(format!("field-{field}").as_bytes(), value).expect("it may write");
            host.set(b"fields", Value::json(&(field + 1).to_string())).expect("it may write");
        }
        if id.handler == 0 {
            found += 1;
            host.set(b"n", Value::json(&found.to_string())).expect("it may write");
        }
        TurnResult::Done(Ok(Output::Value(found.to_string().into())))
    }

    fn resume(&self, _: ActivationId, _: OperationId, _: Result<Bytes, Error>, _: &mut dyn Host) -> TurnResult {
        panic!("it awaits nothing")
    }

    fn cancel(&self, _: ActivationId) {}
}

enum Job {
    Call {
        key: String,
        handler: &'static str,
        idempotency_key: Option<String>,
        done: oneshot::Sender<Result<u64, Error>>,
    },
    Deploy {
        done: oneshot::Sender<Result<(), Error>>,
    },
    IsReady {
        done: oneshot::Sender<bool>,
    },
    Guidance {
        done: oneshot::Sender<Option<Bytes>>,
    },
}

async fn do_job(node: CoreHandle, job: Job) {
    let anybody = Principal::unrestricted();
    match job {
        Job::Call { key, handler, idempotency_key, done } => {
            let (input, key) = (Bytes::from_static(b"null"), key.as_bytes());
            let idempotency_key = idempotency_key.as_deref();
            let idempotency_key = idempotency_key.map(|text| IdempotencyKey::new(text.as_bytes()).expect("visible"));
            let request = CallRequest { app: None, service: "counter", key, handler, input, idempotency_key };
            let answered = node.call(&anybody, request).reply().await;
            let number = |bytes: Bytes| std::str::from_utf8(&bytes).expect("text").parse().expect("a number");
            let _ = done.send(answered.map(number));
        }
        Job::Deploy { done } => {
            let file = AppFile { path: "counter.js".to_owned(), content: b"// counts".to_vec() };
            let _ = done.send(node.deploy(&anybody, "counting", vec![file]).await.map(drop));
        }
        Job::IsReady { done } => {
            let _ = done.send(node.health().hindrance.is_none());
        }
        Job::Guidance { done } => {
            let _ = done.send(node.guidance().expect("it is in a cluster").ok());
        }
    }
}

/// A node, and the way to its core 0.
struct Running {
    node: Node,
    jobs: jobs::UnboundedSender<Job>,
}

impl Running {
    fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> T {
        let (done, answer) = oneshot::channel();
        assert!(self.jobs.send(job(done)).is_ok(), "the node runs");
        answer.blocking_recv().expect("it answers")
    }

    fn call(&self, key: &str, handler: &'static str, idempotency_key: Option<String>) -> Result<u64, Error> {
        self.ask(|done| Job::Call { key: key.to_owned(), handler, idempotency_key, done })
    }
}

/// A cluster's authority and the certificates of its nodes.
struct Authority {
    certificate: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        let key = rcgen::KeyPair::generate().expect("a key");
        Self { certificate: rcgen::CertifiedIssuer::self_signed(parameters, key).expect("an authority") }
    }

    fn identity(&self, node: NodeId) -> Identity {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec![certificate_name(CLUSTER, node)]).expect("a name");
        let certificate = parameters.signed_by(&key, &self.certificate).expect("signed");
        Identity {
            certificate: certificate.der().clone(),
            key: key.serialize_der().try_into().expect("a key"),
            authority: self.certificate.der().clone(),
        }
    }
}

fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("bound").port()).collect()
}

struct Cluster {
    data: tempfile::TempDir,
    authority: Authority,
    members: Vec<Member>,
    /// Where the first node dials the second.
    link: Option<String>,
    nodes: Vec<Option<Running>>,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self::prepared();
        (0..3).for_each(|index| cluster.start(index));
        cluster
    }

    /// The first node reaches the second by way of a link that can be cut.
    fn with_link() -> (Self, CutLink) {
        let mut cluster = Self::prepared();
        let link = CutLink::to(cluster.members[1].peer.clone());
        cluster.link = Some(link.address());
        (0..3).for_each(|index| cluster.start(index));
        (cluster, link)
    }

    fn prepared() -> Self {
        let member = |(index, port): (usize, u16)| {
            let node = NodeId(u16::try_from(index + 1).expect("few"));
            Member { node, http: String::new(), peer: format!("127.0.0.1:{port}"), rack: String::new() }
        };
        let members = free_ports(3).into_iter().enumerate().map(member).collect();
        let (data, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
        Self { data, authority, members, link: None, nodes: vec![None, None, None] }
    }

    fn start(&mut self, index: usize) {
        let path = self.data.path().join(format!("n{index}"));
        let mut members = self.members.clone();
        if let Some(link) = self.link.clone().filter(|_| index == 0) {
            members[1].peer = link;
        }
        self.nodes[index] = Some(start(&path, self.members[index].node, &members, &self.authority));
    }

    fn stop(&mut self, index: usize) {
        let running = self.nodes[index].take().expect("it runs");
        running.node.stop().expect("it stops");
    }

    fn node(&self, index: usize) -> &Running {
        self.nodes[index].as_ref().expect("it runs")
    }

    fn wait_until_ready(&self) {
        for running in self.nodes.iter().flatten() {
            until(|| running.ask(|done| Job::IsReady { done }));
        }
    }

    /// Who leads, as the third node sees it.
    fn leader(&self) -> usize {
        let mut leader = None;
        until(|| {
            let guidance = self.node(2).ask(|done| Job::Guidance { done });
            leader =
                guidance.and_then(|json| serde_json::from_slice::<serde_json::Value>(&json).ok()?["leader"].as_u64());
            leader.is_some()
        });
        usize::try_from(leader.expect("somebody")).expect("few")
    }

    fn owns(&self, index: usize) -> bool {
        let running = self.nodes.iter().flatten().next().expect("some node runs");
        let guidance = running.ask(|done| Job::Guidance { done }).unwrap_or_default();
        let guidance: serde_json::Value = serde_json::from_slice(&guidance).unwrap_or_default();
        guidance["shards"].as_array().is_some_and(|shards| shards.iter().any(|place| place["owner"] == index + 1))
    }

    /// Counts a counter up by way of a node, until that is done.
    fn add(&self, index: usize, key: &str, idempotency_key: &str) -> u64 {
        self.call(index, key, "add", idempotency_key)
    }

    fn call(&self, index: usize, key: &str, handler: &'static str, idempotency_key: &str) -> u64 {
        let mut added = None;
        until(|| match self.node(index).call(key, handler, Some(idempotency_key.to_owned())) {
            Ok(count) => {
                added = Some(count);
                true
            }
            Err(error) => {
                assert!(error.code.is_retryable(), "{error}");
                false
            }
        });
        added.expect("it was added")
    }
}

fn start(path: &Path, node: NodeId, members: &[Member], authority: &Authority) -> Running {
    if !path.exists() {
        DataDirectory::prepare(path, SHARDS, &[9; 32], None).expect("made");
    }
    let cluster = ClusterOptions {
        id: CLUSTER,
        identity: authority.identity(node),
        node,
        members: members.to_vec(),
        has_joined: false,
        replicas: 0,
        tables: Arc::default(),
    };
    let options = NodeOptions {
        cores: 2,
        shards: Some(SHARDS),
        cluster: Some(cluster),
        // The log goes as soon as it may.
        flush: FlushPolicy { flush_after_ms: 300, ..FlushPolicy::default() },
        kept_log_bytes: 0,
        ..NodeOptions::new(path.to_owned())
    };
    let (sender, receiver) = jobs::unbounded_channel();
    let receiver = Mutex::new(Some(receiver));
    let fronts: Fronts = Arc::new(move |node: CoreHandle, mut drain: watch::Receiver<bool>| {
        let receiver = if node.index() == 0 { receiver.lock().expect("one at a time").take() } else { None };
        let front: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            if let Some(mut receiver) = receiver {
                tokio::task::spawn_local(async move {
                    while let Some(job) = receiver.recv().await {
                        tokio::task::spawn_local(do_job(node.clone(), job));
                    }
                });
            }
            let _ = drain.wait_for(|is_draining| *is_draining).await;
        });
        front
    });
    let engine: EngineMaker = Arc::new(|_| Box::new(Counting));
    let node = Node::start(options, Vec::new(), engine, Arc::new(NoFetcher), fronts, NodeMetrics::new(2));
    Running { node: node.expect("it starts"), jobs: sender }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "it takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn any_node_answers_and_a_node_may_go_and_come_back() {
    if std::env::var_os("CLUSTER_LOG").is_some() {
        let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().try_init();
    }
    let mut cluster = Cluster::new();
    cluster.wait_until_ready();
    cluster.node(1).ask(|done| Job::Deploy { done }).expect("deployed");
    let keys: Vec<String> = (0..12).map(|number| format!("key-{number}")).collect();
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(cluster.add(number % 3, key, "first"), 1);
        assert_eq!(cluster.add((number + 1) % 3, key, "first"), 1, "a key holds on all nodes");
        assert_eq!(cluster.node((number + 2) % 3).call(key, "read", None), Ok(1));
    }
    cluster.stop(1);
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(cluster.add(if number % 2 == 0 { 0 } else { 2 }, key, "second"), 2, "{key}");
    }
    cluster.start(1);
    cluster.wait_until_ready();
    for key in &keys {
        assert_eq!(cluster.add(1, key, "third"), 3, "{key}");
    }
    for index in 0..3 {
        cluster.stop(index);
    }
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_until_ready();
    for key in &keys {
        until(|| cluster.node(0).call(key, "read", None).is_ok());
        assert_eq!(cluster.node(0).call(key, "read", None), Ok(3), "{key}");
    }
}

#[test]
fn a_node_that_starts_refuses_nothing_for_good() {
    let mut cluster = Cluster::new();
    cluster.wait_until_ready();
    cluster.node(0).ask(|done| Job::Deploy { done }).expect("deployed");
    for round in 0..3 {
        cluster.stop(1);
        cluster.start(1);
        // It says that nothing happened until it knows what is deployed.
        cluster.add(1, "key", &format!("round-{round}"));
    }
    assert_eq!(cluster.node(2).call("key", "read", None), Ok(3));
}

#[test]
fn a_call_whose_link_is_cut_is_answered() {
    let (mut cluster, link) = Cluster::with_link();
    cluster.wait_until_ready();
    // A leader that does not hear a node takes it for dead. The third one hears both.
    while cluster.leader() != 3 {
        let index = cluster.leader() - 1;
        cluster.stop(index);
        std::thread::sleep(Duration::from_secs(2));
        cluster.start(index);
        cluster.wait_until_ready();
    }
    // Shards are dealt out again.
    until(|| (0..3).all(|index| cluster.owns(index)));
    cluster.node(0).ask(|done| Job::Deploy { done }).expect("deployed");
    let keys: Vec<String> = (0..12).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        cluster.add(0, key, "before");
    }
    link.cut(true);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        std::thread::scope(|threads| {
            for key in &keys {
                let cluster = &cluster;
                threads.spawn(move || {
                    let began = Instant::now();
                    let answer = cluster.node(0).call(key, "add", Some("cut".to_owned()));
                    assert!(began.elapsed() < Duration::from_secs(5), "{key}: {answer:?} after {:?}", began.elapsed());
                    let is_known =
                        |error: &Error| [ErrorCode::Overloaded, ErrorCode::ResultUnknown].contains(&error.code);
                    assert!(answer.as_ref().err().is_none_or(is_known), "{answer:?}");
                });
            }
        });
    }
    for key in &keys {
        assert_eq!(cluster.add(2, key, "cut"), 2, "a node that reaches both goes on");
    }
    link.cut(false);
    for key in &keys {
        assert_eq!(cluster.add(0, key, "after"), 3, "{key}");
    }
}

/// Whether a node's log still has the first segment of one of its streams.
fn has_first_segment(path: &Path) -> bool {
    let streams = std::fs::read_dir(path.join("log")).expect("it has a log").flatten();
    streams.map(|stream| stream.path().join("0000000001.log")).any(|segment| segment.exists())
}

#[test]
fn nodes_that_have_lost_everything_get_it_from_the_others() {
    let mut cluster = Cluster::new();
    cluster.wait_until_ready();
    cluster.node(0).ask(|done| Job::Deploy { done }).expect("deployed");
    let keys: Vec<String> = (0..12).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        cluster.add(0, key, "first");
    }
    // The log of each node begins later: a segment goes once the next one has begun.
    let path = |cluster: &Cluster, index: usize| cluster.data.path().join(format!("n{index}"));
    for number in 0.. {
        if (0..3).all(|index| !has_first_segment(&path(&cluster, index))) {
            break;
        }
        assert!(number < 100, "the log is kept for ever");
        for key in &keys {
            cluster.call(0, key, "fill", &format!("fill-{number}"));
        }
    }
    for (round, index) in [1, 0, 2].into_iter().enumerate() {
        cluster.stop(index);
        DataDirectory::empty(&path(&cluster, index)).expect("emptied");
        until(|| !cluster.owns(index));
        cluster.start(index);
        cluster.wait_until_ready();
        // Only a node that lacks little is given shards.
        until(|| cluster.owns(index));
        for key in &keys {
            assert_eq!(cluster.add(index, key, &format!("round-{round}")), 2 + round as u64, "{key}");
        }
    }
    // A key of a call that all nodes have heard of from others still holds.
    for key in &keys {
        assert_eq!(cluster.add(1, key, "first"), 1, "{key}");
        until(|| cluster.node(2).call(key, "read", None) == Ok(4));
    }
}
