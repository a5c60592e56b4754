//! Handlers that run in workers. Whatever a worker does, a call has one effect, or none and an error that says why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use millrace_tests::worker::{DialledWorker, Run, Said, Stop, TestWorker, WorkerRequest, frame, run, sized};
use millrace_tests::{Reply, Server, ServerOptions, assert_problem, free_address, wait_until};
use serde_json::{Value, json};

/// A bank in a worker. `timeout_ms` is that of all handlers.
fn services(timeout_ms: u64) -> Value {
    let handler = |name: &str, kind: &str| json!({ "name": name, "kind": kind, "timeout_ms": timeout_ms });
    json!([{
        "name": "account",
        "fields": ["balance"],
        "whole_up_to_bytes": 4096,
        "handlers": [
            handler("deposit", "transaction"), handler("transfer", "transaction"), handler("remind", "transaction"),
            handler("show", "query"), handler("total", "query"), handler("long", "workflow"), handler("again", "workflow"),
        ],
        "routes": [{ "method": "POST", "path": "/give/:name", "timeout_ms": timeout_ms }],
    }])
}

fn balance(run: &Run<'_>) -> i64 {
    run.get("balance").as_i64().unwrap_or(0)
}

fn bank(run: &mut Run<'_>) -> Result<Value, Stop> {
    let input = run.request.input.clone();
    match run.request.handler.as_str() {
        "deposit" => {
            let after = balance(run) + input.as_i64().unwrap_or(1);
            run.set("balance", &json!(after));
            Ok(json!(after))
        }
        "show" => Ok(json!(balance(run))),
        "total" => {
            let of = input.as_str().unwrap_or_default().to_owned();
            let other = run.call(["account", &of, "show"], &Value::Null)?;
            Ok(json!(balance(run) + other.as_i64().unwrap_or(0)))
        }
        "transfer" => {
            let (to, amount) = (input["to"].as_str().unwrap_or_default(), input["amount"].as_i64().unwrap_or(0));
            if balance(run) < amount {
                return Err(Stop::Fails("aborted", "insufficient funds".to_owned()));
            }
            run.set("balance", &json!(balance(run) - amount));
            run.call(["account", to, "deposit"], &json!(amount))
        }
        "remind" => {
            run.send(["account", input.as_str().unwrap_or_default(), "deposit"], &json!(1), 0);
            Ok(Value::Null)
        }
        "long" => {
            let to = input.as_str().unwrap_or_default().to_owned();
            let one = run.step("one", || json!(41))?;
            run.sleep(20)?;
            run.call(["account", &to, "deposit"], &json!(one.as_i64().unwrap_or(0) + 1))
        }
        "POST /give/:name" => {
            let name = input["params"]["name"].as_str().unwrap_or_default().to_owned();
            let after = run.call(["account", &name, "deposit"], &json!(5))?;
            assert_eq!(after.as_i64().map(|after| after % 5), Some(0));
            Ok(json!({ "status": 201, "headers": [["x-worker", "yes"]], "body": "b2s=" }))
        }
        other => Err(Stop::Fails("function-failed", format!("no handler {other}"))),
    }
}

fn deploy(server: &Server, worker: &Value) -> Reply {
    let body = worker.to_string();
    server.request("PUT", "/apps/bank", &["content-type: application/json"], body.as_bytes())
}

fn start(worker: &TestWorker) -> Server {
    let server = Server::start(ServerOptions::examples(&[]));
    let reply = deploy(&server, &json!({ "worker": worker.url() }));
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

/// A worker that runs the bank, but for what `breaks` says of a request and of how many came before.
fn broken_bank(
    timeout_ms: u64,
    breaks: impl Fn(&WorkerRequest, usize) -> Option<Said> + Send + Sync + 'static,
) -> TestWorker {
    TestWorker::start(services(timeout_ms), move |request, before| {
        breaks(request, before).unwrap_or_else(|| run(request, bank))
    })
}

#[test]
fn handlers_in_a_worker_do_what_handlers_do() {
    let worker = TestWorker::start(services(10_000), |request, _| run(request, bank));
    let mut server = start(&worker);
    assert_eq!(server.value("account/alice/deposit", "10"), 10);
    // Keys enough that both shards and cores take part.
    for index in 0..6 {
        let input = json!({ "to": format!("to{index}"), "amount": 1 }).to_string();
        assert_eq!(server.value("account/alice/transfer", &input), 1);
    }
    assert_eq!(server.value("account/alice/show", "null"), 4);
    assert_eq!(server.value("account/alice/total", "\"to3\""), 5);
    let refused = server.call("account/alice/transfer", r#"{"to":"to1","amount":5}"#);
    assert_problem(&refused, 409, "aborted");
    assert_eq!(refused.json()["detail"], "insufficient funds");
    let _ = server.value("account/alice/remind", "\"carol\"");
    wait_until("the message has come", || server.value("account/carol/show", "null") == 1);
    let workflow = server.send("account/w/long", "\"dave\"");
    assert_eq!(server.ended(&workflow)["output"], 42, "{}", server.ended(&workflow));
    assert_eq!(server.value("account/dave/show", "null"), 42);
    let given = server.request("POST", "/account/give/erin", &[], b"");
    assert_eq!((given.status, given.header("x-worker"), given.text()), (201, Some("yes"), "ok".to_owned()));
    let unknown = server.call("account/alice/nothing", "null");
    assert_problem(&unknown, 404, "unknown-handler");
    // What was deployed is there after a start, and so is what it did.
    server.kill();
    server.restart();
    assert_eq!(server.value("account/dave/show", "null"), 42);
    let first = &worker.requests()[0];
    assert!(first.is_whole && first.fields.is_empty() && first.deadline_ms > 9_000, "{first:?}");
    let again = deploy(&server, &json!({ "worker": worker.url() }));
    assert_eq!(again.status, 200, "{}", again.text());
}

/// What goes wrong, and how.
type WrongTurn = (&'static str, fn() -> Said);

#[test]
fn an_attempt_that_is_lost_has_no_effect_and_is_made_again() {
    let wrong_turns: [WrongTurn; 12] = [
        ("the connection closes", || Said::Close),
        ("the reply breaks off", || Said::Half(vec![0; 40])),
        ("a status", || Said::Status(500, "oops".to_owned())),
        ("nothing", || Said::Frames(Vec::new())),
        ("no frame", || Said::Frames(b"HTTP is not frames".to_vec())),
        ("an unknown frame", || Said::Frames(frame(0x7F, 0, b""))),
        ("a flag", || Said::Frames(frame(0x30, 1, &[&[0][..], &sized(b"1")].concat()))),
        ("no end", || Said::Frames(frame(0x22, 0, &[sized(b"balance"), vec![0], sized(b"9")].concat()))),
        ("no JSON", || Said::Frames(frame(0x30, 0, &[&[0][..], &sized(b"{")].concat()))),
        ("a wrong number", || {
            let get = frame(0x20, 0, &[&2u32.to_be_bytes()[..], &sized(b"balance")].concat());
            Said::Frames([get, frame(0x32, 0, &[0, 0, 0, 1, 0, 0, 0, 2])].concat())
        }),
        ("RESUMED out of place", || {
            Said::Frames([frame(0x34, 0, &[0; 8]), frame(0x30, 0, &[&[0][..], &sized(b"1")].concat())].concat())
        }),
        ("a value, then nothing more", || {
            let set = frame(0x22, 0, &[sized(b"balance"), vec![0], sized(b"1000")].concat());
            Said::Frames([set, frame(0x7F, 0, b"")].concat())
        }),
    ];
    let worker = broken_bank(10_000, move |request, _| {
        // The first attempt of each key goes wrong, in the way that the key's number says.
        let number: Option<usize> = request.key.strip_prefix("key").and_then(|number| number.parse().ok());
        let is_first = request.input == json!(7) && request.fields.is_empty();
        number.filter(|_| is_first && first_time(request)).map(|number| wrong_turns[number].1())
    });
    let server = start(&worker);
    for (number, (what, _)) in wrong_turns.iter().enumerate() {
        let key = format!("key{number}");
        assert_eq!(server.value(&format!("account/{key}/deposit"), "7"), 7, "{what}");
        assert_eq!(server.value(&format!("account/{key}/show"), "null"), 7, "{what}");
        let attempts: Vec<WorkerRequest> =
            worker.requests().into_iter().filter(|one| one.key == key && one.handler == "deposit").collect();
        assert_eq!(attempts.len(), 2, "{what}");
        assert_ne!(attempts[0].attempt, attempts[1].attempt, "{what}");
    }
}

/// Whether a key is seen for the first time.
fn first_time(request: &WorkerRequest) -> bool {
    static SEEN: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let mut seen = SEEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = format!("{:?}/{}/{}", request.headers.get("host"), request.key, request.handler);
    let is_first = !seen.contains(&name);
    seen.push(name);
    is_first
}

#[test]
fn a_callee_that_is_lost_takes_its_caller_with_it() {
    let worker = broken_bank(10_000, |request, _| {
        (request.handler == "deposit" && request.key.starts_with("to") && first_time(request)).then_some(Said::Close)
    });
    let server = start(&worker);
    let _ = server.value("account/alice/deposit", "10");
    // Some of these are in alice's shard, on her core, or on the other core.
    for index in 0..8 {
        let to = format!("to{index}");
        let input = json!({ "to": to, "amount": 1 }).to_string();
        assert_eq!(server.value("account/alice/transfer", &input), 1, "{to}");
        assert_eq!(server.value(&format!("account/{to}/show"), "null"), 1, "{to}");
    }
    assert_eq!(server.value("account/alice/show", "null"), 2);
}

#[test]
fn a_handler_that_does_something_else_again_is_found() {
    let worker = broken_bank(300, |request, _| {
        let results = request.results.len();
        let other = |run: &mut Run<'_>| run.call(["account", &format!("to{results}"), "show"], &Value::Null);
        (request.handler == "total").then(|| run(request, other))
    });
    let server = start(&worker);
    let reply = server.call("account/alice/total", "null");
    assert_problem(&reply, 502, "worker-failed");
    assert!(reply.text().contains("did not do the same again"), "{}", reply.text());
}

#[test]
fn a_worker_that_is_away_or_slow_leads_to_an_error_in_time() {
    let address = free_address();
    let is_slow = Arc::new(AtomicBool::new(true));
    let slow = Arc::clone(&is_slow);
    let worker = TestWorker::start_at(address, services(400), move |request, _| {
        if slow.load(Ordering::SeqCst) { Said::Hang(Duration::from_secs(2)) } else { run(request, bank) }
    });
    let server = start(&worker);
    let began = Instant::now();
    let reply = server.call("account/alice/deposit", "1");
    assert_problem(&reply, 504, "worker-timeout");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    is_slow.store(false, Ordering::SeqCst);
    assert_eq!(server.value("account/alice/deposit", "1"), 1, "the entity is free again");
    drop(worker);
    let reply = server.call("account/alice/deposit", "1");
    assert_problem(&reply, 503, "worker-unavailable");
    let _worker = TestWorker::start_at(address, services(400), |request, _| run(request, bank));
    wait_until("the worker is found again", || server.call("account/alice/show", "null").status == 200);
    assert_eq!(server.value("account/alice/show", "null"), 1);
}

#[test]
fn a_query_that_runs_elsewhere_holds_up_nobody() {
    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    let worker = broken_bank(10_000, move |request, _| {
        while request.handler == "show" && held.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(2));
        }
        None
    });
    let server = start(&worker);
    let _ = server.value("account/alice/deposit", "5");
    scope(|scope| {
        let query = scope.spawn(|| server.value("account/alice/show", "null"));
        wait_until("the query runs", || worker.requests().iter().any(|request| request.handler == "show"));
        assert_eq!(server.value("account/alice/deposit", "5"), 10);
        is_held.store(false, Ordering::SeqCst);
        assert_eq!(query.join().expect("it ends"), 5, "it sees what it began with");
    });
}

#[test]
fn a_workflow_outlives_its_worker() {
    let worker = broken_bank(10_000, |request, before| {
        (request.handler == "long" && [0, 3, 8].contains(&before)).then_some(Said::Close)
    });
    let server = start(&worker);
    let workflow = server.send("account/w/long", "\"dave\"");
    let ended = server.ended(&workflow);
    assert_eq!(ended["output"], 42, "{ended}");
    assert_eq!(server.value("account/dave/show", "null"), 42);
}

#[test]
fn what_is_no_worker_is_not_deployed() {
    let server = Server::start(ServerOptions::examples(&[]));
    let nobody = format!("http://{}", free_address());
    let odd =
        TestWorker::start(json!([{ "name": "a", "handlers": [{ "name": "b", "kind": "c" }] }]), |_, _| Said::Close);
    let empty = TestWorker::start(json!([]), |_, _| Said::Close);
    let fine = TestWorker::start(services(100), |_, _| Said::Close);
    for (worker, word) in [
        (json!({ "worker": nobody }), "cannot connect"),
        (json!({ "worker": odd.url() }), "`c`"),
        (json!({ "worker": empty.url() }), "no services"),
        (json!({ "worker": "http://192.0.2.1:1" }), "signed requests only"),
        (json!({ "worker": fine.url(), "secret": "short" }), "fewer than 16"),
        (json!({ "worker": "ftp://127.0.0.1" }), "only http"),
        (json!({ "worker": format!("{}/?a=b", fine.url()) }), "query"),
        (json!({ "worker": fine.url(), "settings": "[limits]\ncpu = 1" }), "cpu_ms"),
    ] {
        let reply = deploy(&server, &worker);
        assert_problem(&reply, 422, "app-refused");
        assert!(reply.text().contains(word), "{worker}: {}", reply.text());
    }
    let reply = deploy(&server, &json!({ "url": fine.url() }));
    assert_problem(&reply, 400, "bad-request");
}

#[test]
fn requests_are_signed_and_the_secret_stays_here() {
    let worker = TestWorker::start(services(10_000), |request, _| run(request, bank));
    let server = Server::start(ServerOptions::examples(&[]));
    let secret = "a secret of enough bytes";
    let reply = deploy(&server, &json!({ "worker": worker.url(), "secret": secret }));
    assert_eq!(reply.status, 201, "{}", reply.text());
    let _ = server.value("account/alice/deposit", "1");
    let _ = server.value("account/alice/deposit", "1");
    let bodies = worker.bodies();
    let signatures: Vec<&String> = bodies.iter().filter_map(|(headers, _)| headers.get("millrace-signature")).collect();
    assert_eq!(signatures.len(), 3, "discovery and two calls");
    assert!(signatures.iter().all(|one| one.starts_with("v1=") && one.len() == 67));
    assert_ne!(signatures[1], signatures[2]);
    assert_eq!(bodies[0].0["millrace-attempt"], "0".repeat(32));
    assert_eq!(bodies[1].0["millrace-worker-protocol"], "1");
    let told = [reply.text(), server.request("GET", "/apps", &[], b"").text(), server.errors()].concat();
    assert!(!told.contains(secret), "{told}");
}

#[test]
fn a_worker_that_dials_in_serves_while_it_is_connected() {
    let server = Server::start(ServerOptions::examples(&[]));
    let (worker, ready) = DialledWorker::connect(server.address(), "bank", services(10_000), bank);
    assert!(ready.as_ref().is_ok_and(|deployment| deployment.starts_with("bank-")), "{ready:?}");
    assert_eq!(server.value("account/alice/deposit", "10"), 10);
    for index in 0..4 {
        let input = json!({ "to": format!("to{index}"), "amount": 1 }).to_string();
        assert_eq!(server.value("account/alice/transfer", &input), 1);
    }
    assert_eq!(server.value("account/alice/total", "\"to3\""), 7);
    let workflow = server.send("account/w/long", "\"dave\"");
    assert_eq!(server.ended(&workflow)["output"], 42, "{}", server.ended(&workflow));
    drop(worker);
    assert_problem(&server.call("account/alice/deposit", "1"), 503, "worker-unavailable");
    // It comes back as it was: the same deployment.
    let (_worker, again) = DialledWorker::connect(server.address(), "bank", services(10_000), bank);
    assert_eq!(again, ready);
    assert_eq!(server.value("account/alice/deposit", "1"), 7);
    let (_odd, refused) = DialledWorker::connect(server.address(), "other", json!([]), bank);
    assert_eq!(refused, Err("app-refused".to_owned()));
}

#[test]
fn who_dials_in_and_is_no_worker_is_told_so() {
    let server = Server::start(ServerOptions::examples(&[]));
    let plain = server.request("GET", "/workers/connect", &[], b"");
    assert_problem(&plain, 400, "bad-request");
    let upgrade = ["connection: upgrade", "upgrade: millrace-worker", "millrace-app: bank"];
    for version in ["millrace-worker-protocol: 0", "millrace-worker-protocol: 99"] {
        let other = server.request("GET", "/workers/connect", &[&upgrade[..], &[version]].concat(), b"");
        assert_problem(&other, 400, "bad-request");
        // By these words a worker knows that it may dial again with an older version.
        assert!(other.text().contains("this server speaks version"), "{}", other.text());
    }
}
