//! An invariant that breaks inside a shard stops that shard, and nobody is left without an answer:
//! not those who wait, and not the call at which it broke.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use millrace_api::{CallRequest, Calls, Error, ErrorCode, HandlerKind, Principal, RouteReply, RouteRequest};
use millrace_base::{Name, ShardId, shard_of_key};
use millrace_func::{
    ActivationId, App, Engine, HandlerId, Host, NestedCall, Offload, OperationId, Output, Program, Route, Service,
    Start, TurnResult,
};
use millrace_node::{CoreHandle, Durability, EngineMaker, Fronts, Node, NodeMetrics, NodeOptions};
use tokio::sync::watch;

use crate::outside::NoFetcher;

// Handler 0 gives its input back.
/// Breaks the shard at once.
const BREAKS: u16 = 1;
/// Breaks it when it goes on after a hash.
const BREAKS_LATER: u16 = 2;
/// Waits for a hash, holding its entity.
const WAITS: u16 = 3;

/// Runs the handlers above, and a route that calls the one which breaks.
struct Breaking;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

impl Engine for Breaking {
    fn load(&self, _: Program, _: &App) -> Result<(), Error> {
        Ok(())
    }

    fn services(&self, _: Program) -> Vec<Service> {
        let handlers = ["echoes", "breaks", "breaksLater", "waits"];
        vec![Service {
            name: name("toy"),
            handlers: handlers.map(|handler| (name(handler), HandlerKind::Transaction)).into(),
            routes: vec![Route { method: "POST".into(), path: "/break".into() }],
            schedules: Vec::new(),
        }]
    }

    fn unload(&self, _: Program) {}

    fn start(&self, _: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        let (id, input) = match start {
            Start::Handler { id, input, .. } => (id, Bytes::copy_from_slice(input)),
            Start::Route { id, request } => {
                let handler = HandlerId { program: id.program, service: 0, handler: BREAKS };
                let call = NestedCall { handler, key: request.body.to_vec(), input: Bytes::from_static(b"null") };
                host.call(call).expect("a call");
                return TurnResult::Waiting;
            }
        };
        match id.handler {
            BREAKS => panic!("an invariant broke"),
            BREAKS_LATER | WAITS => {
                let salt = [if id.handler == BREAKS_LATER { 1 } else { 2 }; 16];
                host.offload(Offload::Argon2idHash { password: input.to_vec(), salt }).expect("a hash");
                TurnResult::Waiting
            }
            _ => TurnResult::Done(Ok(Output::Value(input))),
        }
    }

    fn resume(&self, _: ActivationId, _: OperationId, _: Result<Bytes, Error>, _: &mut dyn Host) -> TurnResult {
        panic!("an invariant broke later")
    }

    fn cancel(&self, _: ActivationId) {}
}

async fn call(node: &CoreHandle, key: &[u8], handler: &str) -> Result<Bytes, ErrorCode> {
    let input = Bytes::from_static(b"7");
    let request = CallRequest { app: None, service: "toy", key, handler, input, idempotency_key: None };
    let anybody = Principal::unrestricted();
    let answered = tokio::time::timeout(Duration::from_secs(20), node.call(&anybody, request).reply());
    answered.await.expect("the call is answered").map_err(|error| error.code)
}

async fn route(node: &CoreHandle, key: &[u8]) -> Result<RouteReply, ErrorCode> {
    struct NoHeaders;
    impl millrace_api::HeaderSource for NoHeaders {
        fn get(&self, _: &str) -> Option<&str> {
            None
        }
        fn each(&self, _: &mut dyn FnMut(&str, &str)) {}
    }
    let request = RouteRequest {
        app: None,
        service: "toy".into(),
        method: "POST".into(),
        path: "/break".into(),
        query: None,
        headers: Arc::new(NoHeaders),
        body: Bytes::copy_from_slice(key),
        idempotency_key: None,
    };
    let anybody = Principal::unrestricted();
    let answered = tokio::time::timeout(Duration::from_secs(20), node.route(&anybody, request).reply());
    answered.await.expect("the route is answered").map_err(|error| error.code)
}

/// A key of each shard.
fn keys(shards: u16) -> Vec<Vec<u8>> {
    let of =
        |shard| (0u32..).map(|n| n.to_string().into_bytes()).find(|key| shard_of_key(key, shards) == ShardId(shard));
    (0..shards).map(|shard| of(shard).expect("some key")).collect()
}

const SHARDS: u16 = 8;

async fn breaks_shards(node: CoreHandle) {
    let keys = keys(SHARDS);
    // One shard of this core and one of the other's, broken in each way: shards take turns on cores.
    for (index, handler) in [(0, "breaks"), (1, "breaks"), (2, "breaksLater"), (3, "breaksLater")] {
        let key = &keys[index];
        assert_eq!(call(&node, key, "echoes").await, Ok(Bytes::from_static(b"7")));
        let other = node.clone();
        let (waiting, broken) = tokio::join!(
            async {
                let beside = [b"{", &key[..], b"}x"].concat();
                let waits = call(&other, &beside, "waits");
                if handler == "breaks" { waits.await } else { Err(ErrorCode::ShardStopped) }
            },
            async {
                tokio::task::yield_now().await;
                call(&node, key, handler).await
            }
        );
        assert_eq!(broken, Err(ErrorCode::Internal), "shard {index}");
        assert_eq!(waiting, Err(ErrorCode::ShardStopped), "shard {index}");
        assert_eq!(call(&node, key, "echoes").await, Err(ErrorCode::ShardStopped));
    }
    for index in [4, 5] {
        assert_eq!(route(&node, &keys[index]).await, Err(ErrorCode::Internal), "shard {index}");
        assert_eq!(route(&node, &keys[index]).await, Err(ErrorCode::ShardStopped), "shard {index}");
    }
    for index in [6, 7] {
        assert_eq!(call(&node, &keys[index], "echoes").await, Ok(Bytes::from_static(b"7")), "its neighbours go on");
    }
}

#[test]
fn the_call_at_which_a_shard_breaks_is_answered_too() {
    let data = tempfile::tempdir().expect("a folder");
    let options = NodeOptions {
        cores: 2,
        shards: Some(SHARDS),
        durability: Durability::Os,
        ..NodeOptions::new(data.path().to_owned())
    };
    let app = App::new(name("app"));
    let (ended, ends) = mpsc::channel();
    let ended = Mutex::new(ended);
    let fronts: Fronts = Arc::new(move |node: CoreHandle, mut drain: watch::Receiver<bool>| {
        let ended = ended.lock().expect("one core at a time").clone();
        let front: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            if node.index() == 0 {
                let tested = tokio::task::spawn_local(breaks_shards(node));
                ended.send(tested.await.map_err(|error| error.to_string())).expect("somebody waits");
            }
            let _ = drain.wait_for(|is_draining| *is_draining).await;
        });
        front
    });
    let engine: EngineMaker = Arc::new(|_| Box::new(Breaking));
    let node = Node::start(options, vec![app], engine, Arc::new(NoFetcher), fronts, NodeMetrics::new(2));
    let node = node.expect("it starts");
    let result = ends.recv_timeout(Duration::from_secs(60));
    node.stop().expect("it stops");
    result.expect("the front ends").expect("all as expected");
}
