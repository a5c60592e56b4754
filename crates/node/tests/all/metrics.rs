//! What a node tells of itself from the first moment on.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use millrace_api::{CallRequest, Calls, Error, HandlerKind, Principal};
use millrace_base::{Name, ShardId, Value, ValueKind, shard_of_key};
use millrace_func::{ActivationId, App, Engine, Host, OperationId, Output, Program, Service, Start, TurnResult};
use millrace_node::{CoreHandle, EngineMaker, Fronts, Node, NodeMetrics, NodeOptions};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::outside::NoFetcher;

const CORES: usize = 2;

/// Entities of the second core's shard.
const ENTITIES: usize = 20;

/// Only bounds how long a failing test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Its one handler sets a field. On the second core, activation waits until the first core has looked at the metrics.
struct Slow {
    looked: Arc<Mutex<bool>>,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

impl Engine for Slow {
    fn load(&self, _: Program, _: &App) -> Result<(), Error> {
        Ok(())
    }

    fn services(&self, _: Program) -> Vec<Service> {
        let handlers = vec![(name("set"), HandlerKind::Transaction)];
        vec![Service { name: name("toy"), handlers, routes: Vec::new(), schedules: Vec::new() }]
    }

    // Called when an app is activated.
    fn sweeps(&self, _: Program) -> Vec<(Name, u64)> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_second = std::thread::current().name() == Some("core-1");
        while is_second && !*self.looked.lock().expect("no panic") && Instant::now() < deadline {
            std::thread::yield_now();
        }
        Vec::new()
    }

    fn unload(&self, _: Program) {}

    fn start(&self, _: ActivationId, _: Start<'_>, host: &mut dyn Host) -> TurnResult {
        host.set(b"field", Value::new(ValueKind::Json, b"1")).expect("set");
        TurnResult::Done(Ok(Output::Value(Bytes::from_static(b"null"))))
    }

    fn resume(&self, _: ActivationId, _: OperationId, _: Result<Bytes, Error>, _: &mut dyn Host) -> TurnResult {
        panic!("nothing waits")
    }

    fn cancel(&self, _: ActivationId) {}
}

fn entities(metrics: &NodeMetrics) -> usize {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(metrics.clone()));
    encode(&mut text, &registry).expect("encoded");
    let line = text.lines().find_map(|line| line.strip_prefix("millrace_resident_entities "));
    line.expect("the metric").parse().expect("a number")
}

async fn set(node: &CoreHandle, key: &[u8]) {
    let input = Bytes::from_static(b"1");
    let request = CallRequest { app: None, service: "toy", key, handler: "set", input, idempotency_key: None };
    let anybody = Principal::unrestricted();
    node.call(&anybody, request).reply().await.expect("set");
}

/// Starts a node over `data` and runs `work` on its first core; `looked` lets the second core serve.
fn run<F>(data: &Path, looked: &Arc<Mutex<bool>>, work: impl Fn(CoreHandle, NodeMetrics) -> F + Send + Sync + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let options = NodeOptions { cores: CORES, shards: Some(CORES as u16), ..NodeOptions::new(data.to_owned()) };
    let app = App::new(name("app"));
    let metrics = NodeMetrics::new(CORES);
    let (ended, ends) = mpsc::channel();
    let (ended, work, seen) = (Mutex::new(ended), Arc::new(work), metrics.clone());
    let fronts: Fronts = Arc::new(move |node: CoreHandle, mut drain| {
        let (ended, work, seen) = (ended.lock().expect("no panic").clone(), Arc::clone(&work), seen.clone());
        let front: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            if node.index() == 0 {
                let worked = tokio::task::spawn_local(work(node, seen)).await;
                ended.send(worked.map_err(|error| error.to_string())).expect("somebody waits");
            }
            let _ = drain.wait_for(|is_draining| *is_draining).await;
        });
        front
    });
    let shared = Arc::clone(looked);
    let engine: EngineMaker = Arc::new(move |_| Box::new(Slow { looked: Arc::clone(&shared) }));
    let node = Node::start(options, vec![app], engine, Arc::new(NoFetcher), fronts, metrics).expect("it starts");
    let result = ends.recv_timeout(PATIENCE);
    node.stop().expect("it stops");
    result.expect("the work ends").expect("all as expected");
}

#[test]
fn the_first_core_that_serves_tells_what_all_cores_hold() {
    let data = tempfile::tempdir().expect("a folder");
    let looked = Arc::new(Mutex::new(true));
    run(data.path(), &looked, |node, _| async move {
        let of_second = |key: &String| shard_of_key(key.as_bytes(), CORES as u16) == ShardId(1);
        for key in (0u32..).map(|n| n.to_string()).filter(of_second).take(ENTITIES) {
            set(&node, key.as_bytes()).await;
        }
    });
    *looked.lock().expect("no panic") = false;
    let lets_go = Arc::clone(&looked);
    run(data.path(), &looked, move |_, metrics| {
        let looked = Arc::clone(&lets_go);
        async move {
            let seen = entities(&metrics);
            *looked.lock().expect("no panic") = true;
            assert!(seen >= ENTITIES, "{seen} entities while the second core does not serve yet");
        }
    });
}
