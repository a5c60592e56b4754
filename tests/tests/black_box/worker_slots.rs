//! What runs on workers at once, and what clients hear when none is there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::scope;
use std::time::{Duration, Instant};

use millrace_tests::worker::{DialledWorker, Run, Said, Stop, TestWorker, WorkerRequest, run};
use millrace_tests::{Reply, Server, ServerOptions, assert_problem, free_address, wait_until};
use serde_json::{Value, json};

/// How soon a client hears that no worker is there.
const SOON: Duration = Duration::from_millis(500);

fn services() -> Value {
    let handler = |name: &str, kind: &str| json!({ "name": name, "kind": kind, "timeout_ms": 5000 });
    let bank = |name: &str| {
        json!({ "name": name, "fields": ["n"], "whole_up_to_bytes": 4096,
            "handlers": [handler("add", "transaction"), handler("tree", "transaction"), handler("ask", "transaction"),
                handler("show", "query"), handler("flow", "workflow")] })
    };
    json!([bank("a"), bank("b")])
}

fn handle(run: &mut Run<'_>) -> Result<Value, Stop> {
    let service = run.request.service.clone();
    let depth = run.request.input.as_u64().unwrap_or(0);
    match run.request.handler.as_str() {
        "show" => Ok(run.get("n")),
        "tree" if depth > 0 => {
            // Each node of the tree is another entity, on any shard.
            let key = format!("{}.{depth}", run.request.key);
            run.call([&service, &key, "tree"], &json!(depth - 1))
        }
        "ask" => {
            let to = run.request.input.as_str().unwrap_or_default().to_owned();
            run.send([&service, &to, "add"], &Value::Null, 0);
            Ok(Value::Null)
        }
        "flow" => run.call([&service, &run.request.key.clone(), "add"], &Value::Null),
        _ => {
            let n = run.get("n").as_i64().unwrap_or(0) + 1;
            run.set("n", &json!(n));
            Ok(json!(n))
        }
    }
}

fn deploy(server: &Server, worker: &TestWorker, settings: &str) -> Reply {
    let body = json!({ "worker": worker.url(), "settings": settings }).to_string();
    server.request("PUT", "/apps/slots", &["content-type: application/json"], body.as_bytes())
}

fn start(worker: &TestWorker, settings: &str) -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    let reply = deploy(&server, worker, settings);
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

/// Counts the handlers that run, and holds them until it is opened.
#[derive(Default)]
struct Held {
    is_open: Mutex<bool>,
    opened: Condvar,
    running: AtomicUsize,
    most: AtomicUsize,
}

impl Held {
    fn pass(&self) {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        let mut is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

fn held_worker(held: &Arc<Held>) -> TestWorker {
    let held = Arc::clone(held);
    TestWorker::start(services(), move |request, _| {
        held.pass();
        run(request, handle)
    })
}

#[test]
fn a_worker_that_has_gone_is_answered_for_at_once_and_serves_when_it_is_back() {
    let address = free_address();
    let worker = TestWorker::start_at(address, services(), |request, _| run(request, handle));
    let server = start(&worker, "");
    assert_eq!(server.value("a/x/add", "null"), 1);
    drop(worker);
    // The first may look for a listener that restarts; the others need not.
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let began = Instant::now();
        let reply = server.call("a/x/add", "null");
        slowest = slowest.max(began.elapsed());
        assert_problem(&reply, 503, "worker-unavailable");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    assert!(slowest < SOON, "{slowest:?}");
    let message = server.send("a/y/add", "null");
    let _worker = TestWorker::start_at(address, services(), |request, _| run(request, handle));
    wait_until("the worker is found again", || server.call("a/x/add", "null").status == 200);
    assert_eq!(server.value("a/x/show", "null"), 2, "what was refused did nothing");
    // The message waited, and that was no attempt.
    wait_until("the message has run", || server.value("a/y/show", "null") == 1);
    assert_eq!(server.get(&format!("/invocations/{message}"))["attempts"].as_u64().unwrap_or(0), 0);
    assert!(server.dead_letters().is_empty());
}

#[test]
fn workers_that_dial_in_bring_their_slots_and_take_them_along() {
    let server = Server::start(ServerOptions::examples(&[]));
    let (worker, ready) = DialledWorker::connect(server.address(), "slots", services(), handle);
    assert!(ready.is_ok(), "{ready:?}");
    assert_eq!(server.value("a/x/add", "null"), 1);
    drop(worker);
    wait_until("the connection has ended", || server.call("a/x/add", "null").status == 503);
    let began = Instant::now();
    assert_problem(&server.call("a/x/add", "null"), 503, "worker-unavailable");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let (_worker, again) = DialledWorker::connect(server.address(), "slots", services(), handle);
    assert_eq!(again, ready);
    assert!(server.call("a/x/add", "null").status == 200);
}

#[test]
fn nested_calls_need_no_slot_of_their_own() {
    let worker = TestWorker::start(services(), |request, _| run(request, handle));
    let server = start(&worker, "[workers]\nconcurrency = 1\n");
    // Twelve trees at once, each as deep as five calls, through one slot.
    scope(|scope| {
        let trees: Vec<_> = (0..12)
            .map(|index| {
                scope.spawn({
                    let server = &server;
                    // On a busy machine twelve may take longer than one may wait for the slot.
                    move || wait_until("it ends", || server.call(&format!("a/k{index}/tree"), "5").text() == "1")
                })
            })
            .collect();
        for tree in trees {
            tree.join().expect("it ends");
        }
    });
    // Messages and workflows go through the same slot.
    let flows: Vec<String> = (0..4).map(|index| server.send(&format!("a/f{index}/flow"), "null")).collect();
    for flow in flows {
        assert_eq!(server.ended(&flow)["output"], 1);
    }
    let _ = server.value("a/x/ask", "\"y\"");
    wait_until("the message has run", || server.value("a/y/show", "null") == 1);
}

#[test]
fn no_more_run_at_once_than_the_limits_say() {
    let held = Arc::new(Held::default());
    let worker = held_worker(&held);
    let server = start(&worker, "[workers]\nconcurrency = 3\n[workers.services]\na = 2\n");
    let running = || held.running.load(Ordering::SeqCst);
    scope(|scope| {
        let call = |path: String| {
            scope.spawn({
                let server = &server;
                move || server.value(&path, "null")
            })
        };
        let mut calls: Vec<_> = (0..6).map(|index| call(format!("a/x{index}/add"))).collect();
        wait_until("the service has its share", || running() == 2);
        calls.extend((0..4).map(|index| call(format!("b/x{index}/add"))));
        wait_until("the other service has the rest", || running() == 3);
        held.open();
        for call in calls {
            assert_eq!(call.join().expect("it ends"), 1);
        }
    });
    assert_eq!(held.most.load(Ordering::SeqCst), 3);
    let reply = deploy(&server, &worker, "[workers.services]\nc = 2\n");
    assert_problem(&reply, 422, "app-refused");
    assert!(reply.text().contains("\\\"c\\\""), "{}", reply.text());
}

#[test]
fn who_waits_too_long_for_a_slot_is_told_so() {
    let held = Arc::new(Held::default());
    let worker = held_worker(&held);
    let server = start(&worker, "[workers]\nconcurrency = 1\n");
    scope(|scope| {
        let first = scope.spawn(|| server.value("a/x/add", "null"));
        wait_until("the slot is taken", || held.running.load(Ordering::SeqCst) == 1);
        let reply = server.call("a/y/add", "null");
        assert_problem(&reply, 503, "worker-unavailable");
        assert!(reply.text().contains("no slot was free"), "{}", reply.text());
        held.open();
        assert_eq!(first.join().expect("it ends"), 1);
    });
    assert_eq!(server.value("a/y/add", "null"), 1);
}

#[test]
fn attempts_lost_in_a_row_open_the_breaker_and_one_that_ends_closes_it() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let answers = move |request: &WorkerRequest, _| {
        if broken.load(Ordering::SeqCst) { Said::Close } else { run(request, handle) }
    };
    let worker = TestWorker::start(services(), answers);
    let server = start(&worker, "");
    // A message is tried again and again: its attempts open the breaker, without a client that waits.
    let _ = server.send("a/m/add", "null");
    wait_until("the breaker is open", || server.call("a/x/add", "null").status == 503);
    let asked = worker.requests().len();
    for _ in 0..50 {
        let reply = server.call("a/x/add", "null");
        assert!([502, 503].contains(&reply.status), "{}", reply.text());
    }
    let more = worker.requests().len() - asked;
    assert!(more < 20, "{more} of 50 calls reached a worker that loses all of them");
    is_broken.store(false, Ordering::SeqCst);
    wait_until("the breaker is closed", || server.call("a/x/add", "null").status == 200);
    wait_until("the message has run", || server.value("a/m/show", "null") == 1);
}

/// A worker that dialled in has no status of HTTP to say so.
#[test]
fn a_worker_that_dialled_in_may_say_that_it_has_no_room() {
    let server = Server::start(ServerOptions::examples(&[]));
    let (is_full, refused) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let of_worker = (Arc::clone(&is_full), Arc::clone(&refused));
    let (_worker, ready) = DialledWorker::connect(server.address(), "bank", services(), move |run| {
        if !of_worker.0.load(Ordering::SeqCst) {
            return handle(run);
        }
        of_worker.1.fetch_add(1, Ordering::SeqCst);
        if run.request.handler == "add" {
            run.set("n", &json!(1_000));
        }
        Err(Stop::Fails("worker-unavailable", "all threads are taken".to_owned()))
    });
    assert!(ready.is_ok(), "{ready:?}");
    let reply = server.call("a/k/add", "null");
    assert_problem(&reply, 503, "worker-unavailable");
    assert!(reply.text().contains("all threads are taken"), "{}", reply.text());
    let workflow = server.send("a/k/flow", "null");
    let before = refused.load(Ordering::SeqCst);
    wait_until("it is tried more often than what fails", || refused.load(Ordering::SeqCst) > before + 3);
    is_full.store(false, Ordering::SeqCst);
    assert_eq!(server.ended(&workflow)["status"], "succeeded");
    assert_eq!(server.value("a/k/show", "null"), 1, "what an attempt without room wrote does not count");
}
