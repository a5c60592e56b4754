//! Promise 6: contained. Whatever a function does, it ends with the right error and changes nothing. The calls beside
//! it and after it work.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{scope, spawn};
use std::time::{Duration, Instant};

use millrace_tests::{
    Connection, Reply, Server, ServerOptions, StopOnDrop, TestApp, assert_problem, machine, repository, wait_until,
};

/// Uses the app's own limits. The bounds below depend on its 20 ms of CPU time.
fn tight_server() -> Server {
    Server::start(ServerOptions::examples(&["counter"]).and_test_apps(&["hostile"]))
}

/// Allows so much CPU time that another limit is broken first, however busy the machine is.
fn server() -> Server {
    let folder = repository().join("tests/apps/hostile");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the app");
    let limits = read("millrace.toml").replace("cpu_ms = 20\n", "cpu_ms = 2000\n");
    assert!(limits.contains("cpu_ms = 2000"), "the limit is not where it was");
    let server = Server::start(ServerOptions::examples(&["counter"]));
    let app = TestApp::with("hostile.ts", &read("hostile.ts")).and("millrace.toml", &limits);
    assert_eq!(app.deploy(&server, "hostile").status, 201);
    server
}

/// Calls a handler of the hostile app and checks the error. Nothing of the call may be visible. The next call of the
/// same entity, and of another service, must work.
#[track_caller]
fn assert_contained(server: &Server, handler: &str, input: &str, status: u16, code: &str) -> Reply {
    let reply = server.call(&format!("hostile/{handler}/{handler}"), input);
    println!("{handler}({input:.60}): {} {}", reply.status, &reply.text()[..reply.text().len().min(200)]);
    assert_problem(&reply, status, code);
    assert_lives(server, handler);
    reply
}

#[track_caller]
fn assert_lives(server: &Server, handler: &str) {
    let mark = server.request("GET", &format!("/state/hostile/{handler}/mark"), &[], b"");
    assert_problem(&mark, 404, "unknown-state");
    assert_eq!(server.value(&format!("hostile/{handler}/ok"), "1"), 2, "after {handler}");
    assert_eq!(server.call("counter/neighbour/add", "1").status, 200, "after {handler}");
}

#[test]
fn endless_work_ends_at_the_cpu_limit() {
    let server = tight_server();
    let loops = ["loop", "caughtLoop", "caughtCallees", "microtasks", "regex"];
    let built_in = ["products", "bigText", "textAsBig", "proxyNames", "noElements"];
    for handler in loops.into_iter().chain(built_in) {
        let began = Instant::now();
        assert_contained(&server, handler, "null", 500, "cpu-limit");
        // The limit counts CPU time. Other processes may have taken most of the wall time.
        assert!(began.elapsed() < Duration::from_secs(3), "{handler} took {:?}", began.elapsed());
    }
    assert_eq!(server.metric("millrace_limit_kills_cpu_total"), 10.0);
    assert_eq!(server.metric("millrace_services_switched_off_total"), 0.0);
    assert_problem(&server.request("GET", "/hostile/loop", &[], b""), 500, "cpu-limit");
    assert_lives(&server, "loop");
}

#[test]
fn endless_recursion_ends_at_the_stack_limit() {
    let server = server();
    assert_contained(&server, "recursion", "null", 500, "stack-limit");
    assert_contained(&server, "caughtRecursion", "null", 500, "stack-limit");
    assert_eq!(server.metric("millrace_limit_kills_stack_total"), 2.0);
}

#[test]
fn bombs_end_at_the_memory_limit() {
    let server = server();
    let _ = server.value("hostile/k/ok", "1");
    let before_kib = server.status_kib("VmHWM");
    for handler in ["heap", "gigabyte", "buffer"] {
        assert_contained(&server, handler, "null", 500, "memory-limit");
    }
    assert_eq!(server.metric("millrace_limit_kills_memory_total"), 3.0);
    let after_kib = server.status_kib("VmHWM");
    println!("peak memory: {before_kib} KiB before, {after_kib} KiB after");
    assert!(after_kib < before_kib + 96 * 1024, "the bombs took the server's memory");
}

#[test]
fn prototypes_cannot_be_polluted() {
    let server = server();
    assert_contained(&server, "pollute", "null", 500, "function-failed");
    assert_contained(&server, "polluteArray", "null", 500, "function-failed");
    assert_contained(&server, "polluteByInput", r#"{"__proto__":{"polluted":1}}"#, 500, "function-failed");
    let constructor = r#"{"constructor":{"prototype":{"polluted":1}}}"#;
    assert_contained(&server, "polluteByInput", constructor, 500, "function-failed");
}

#[test]
fn strange_ends_are_errors() {
    let server = server();
    assert_contained(&server, "never", "null", 500, "stalled");
    assert_contained(&server, "cyclic", "null", 500, "function-failed");
    assert_contained(&server, "cyclicAbort", "null", 409, "aborted");
    assert_contained(&server, "cyclicOutput", "null", 500, "function-failed");
    assert_contained(&server, "throwNothing", "null", 500, "function-failed");
    assert_contained(&server, "deepOutput", "null", 500, "stack-limit");
    assert_contained(&server, "output", "null", 500, "size-limit");
}

#[test]
fn only_public_handlers_are_reachable() {
    let server = server();
    for name in ["_private", "constructor", "__proto__", "toString", "hasOwnProperty", "nothing", "OK", "%6Fk%00"] {
        let reply = server.call(&format!("hostile/k/{name}"), "null");
        assert_problem(&reply, 404, "unknown-handler");
    }
    for name in ["_private", "constructor", "__proto__", "hostile", "toString"] {
        let path = format!("{}/k/ok", name.replace("hostile", "Hostile"));
        assert_problem(&server.call(&path, "null"), 404, "unknown-service");
    }
    for name in ["constructor", "__proto__", "toString", "nothing", ""] {
        // The mistake is the function's, not that of whoever calls it.
        let reply = assert_contained(&server, "reach", &format!("{name:?}"), 500, "function-failed");
        assert!(reply.text().contains("has no handler"), "{}", reply.text());
        let reply = assert_contained(&server, "reachService", &format!("{name:?}"), 500, "function-failed");
        assert!(reply.text().contains("has no service"), "{}", reply.text());
    }
    // Another app's service is as unknown as a service that does not exist.
    assert_contained(&server, "reachService", "\"counter\"", 500, "function-failed");
}

#[test]
fn counts_and_sizes_are_limited() {
    let server = server();
    assert_contained(&server, "manyWrites", "null", 500, "operation-limit");
    assert_contained(&server, "manyMessages", "null", 500, "operation-limit");
    assert_contained(&server, "manyOperations", "null", 500, "operation-limit");
    assert_contained(&server, "bigValue", "null", 500, "size-limit");
    assert_contained(&server, "longField", "null", 500, "size-limit");
    assert_contained(&server, "bigInput", "null", 500, "size-limit");
    assert_contained(&server, "chain", "0", 500, "depth-limit");
    for handler in ["reachKey", "sendKey"] {
        assert_contained(&server, handler, "1025", 500, "size-limit");
        assert_contained(&server, handler, "0", 400, "bad-request");
    }
}

#[test]
fn queries_change_nothing() {
    let server = server();
    let entries = |server: &Server| server.metric("millrace_log_entries_total");
    for handler in ["queryWrites", "queryDeletes", "querySends", "queryCalls"] {
        let before = entries(&server);
        assert_problem(&server.call(&format!("hostile/{handler}/{handler}"), "null"), 500, "function-failed");
        assert_eq!(entries(&server), before, "{handler} wrote to the log");
        assert_lives(&server, handler);
    }
}

#[test]
fn bad_input_is_refused_before_the_function_runs() {
    let server = server();
    for input in ["{", "[1,", "'a'", "01", "NaN", "1 2", "\u{feff}1", "\"\n\""] {
        assert_contained(&server, "ok", input, 400, "invalid-input");
    }
    for deep in ["[".repeat(30_000), "{\"a\":".repeat(10_000)] {
        assert_contained(&server, "ok", &deep, 400, "invalid-input");
    }
    let nested = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    assert_contained(&server, "ok", &nested, 400, "invalid-input");
    let not_utf8 = server.request("POST", "/call/hostile/ok/ok", &[], b"\"\xff\xfe\"");
    assert_problem(&not_utf8, 400, "invalid-input");
    // The app's own limit on inputs is below the server's.
    let large = format!("\"{}\"", "x".repeat(66_000));
    assert_contained(&server, "ok", &large, 413, "too-large");
    assert_lives(&server, "ok");
}

#[test]
fn a_failing_call_that_nobody_awaits_fails_its_caller() {
    let server = server();
    // An error that nobody caught ends the whole transaction, just like an awaited error.
    assert_contained(&server, "forgets", "null", 500, "function-failed");
    assert_problem(&server.request("GET", "/state/hostile/forgets/kept", &[], b""), 404, "unknown-state");
}

#[test]
fn a_route_cannot_send_what_is_no_reply() {
    let server = server();
    assert_problem(&server.request("GET", "/hostile/never", &[], b""), 500, "stalled");
    assert_problem(&server.request("GET", "/hostile/large", &[], b""), 500, "size-limit");
    for path in ["/hostile/status", "/hostile/headers", "/hostile/split"] {
        let reply = server.request("GET", path, &[], b"");
        println!("{path}: {}", reply.text());
        assert_eq!(reply.status, 500, "{path}");
        assert_eq!(reply.header("x-b"), None, "the header was split");
    }
    let reply = server.request("GET", "/hostile/ok", &[], b"");
    assert_eq!((reply.status, reply.text().as_str()), (200, "GET"));
}

/// Calls counters on all shards, one after the other. Returns for each call how many endless calls ended while it
/// waited.
fn endless_calls_waited_for(server: &Server, ended: &AtomicU32, calls: usize) -> Vec<u32> {
    let mut connections: Vec<_> = (0..4).map(|_| server.connect()).collect();
    let mut call = |number: usize| {
        let path = format!("/call/counter/neighbour{}/add", number % 64);
        let count = connections.len();
        let before = ended.load(Ordering::SeqCst);
        let reply = connections[number % count].request("POST", &path, &[], b"1").expect("a reply");
        assert_eq!(reply.status, 200, "{}", reply.text());
        ended.load(Ordering::SeqCst) - before
    };
    (0..calls).map(&mut call).collect()
}

/// The number of endless calls that a neighbour waits for bounds its latency, because each ends after `cpu_ms` of CPU
/// time. The test counts the calls and does not time them: the duration of 20 ms of CPU time depends on the rest of
/// the machine.
///
/// The bound. A neighbour's call passes up to three times through a core: that of its connection, that of its entity,
/// and back. Each time it waits behind at most one endless call of each hostile connection. Meanwhile the other core
/// ends as many. One more call of each connection may have ended before and been counted late.
#[test]
fn an_endless_loop_leaves_the_neighbours_wait_bounded() {
    const CALLS: usize = 100;
    const HOSTILE_CONNECTIONS: u32 = 2;
    const PASSES: u32 = 3;
    const CORES: u32 = 2;
    const BOUND: u32 = HOSTILE_CONNECTIONS * (PASSES * CORES + 1);
    // It counts what ends meanwhile on two cores.
    machine::alone();
    let server = tight_server();
    let stops = AtomicBool::new(false);
    let ended = AtomicU32::new(0);
    let mut waited = scope(|threads| {
        let _stop = StopOnDrop(&stops);
        for number in 0..HOSTILE_CONNECTIONS {
            let (server, stops, ended) = (&server, &stops, &ended);
            threads.spawn(move || {
                let mut connection = server.connect();
                for key in 0.. {
                    if stops.load(Ordering::Relaxed) {
                        break;
                    }
                    let path = format!("/call/hostile/k{number}-{key}/loop");
                    let reply = connection.request("POST", &path, &[], b"").expect("a reply");
                    assert!(["cpu-limit", "overloaded"].contains(&reply.code().as_str()), "{}", reply.text());
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        endless_calls_waited_for(&server, &ended, CALLS)
    });
    waited.sort_unstable();
    println!("endless calls ended while each of {CALLS} neighbours waited: {waited:?}");
    assert!(ended.into_inner() >= 20, "the loops did not run");
    let p99 = waited[CALLS - 2];
    assert!(p99 <= BOUND, "a neighbour waited for {p99} endless calls, over {BOUND}");
}

/// A client that went away does not keep its endless call alive, and does not take the core down.
#[test]
fn clients_that_leave_harm_nobody() {
    let server = tight_server();
    let address = server.address();
    let leaving = spawn(move || {
        for number in 0..50 {
            let mut connection = Connection::open(address).expect("accepted");
            connection.send("POST", &format!("/call/hostile/k{number}/loop"), &[], b"").expect("sent");
        }
    });
    leaving.join().expect("left");
    // Until then there may be more such calls than the server lets wait.
    let is_served = |path: &str| server.call(path, "1").status == 200;
    wait_until("their calls have ended", || is_served("hostile/k1/ok") && is_served("counter/neighbour/add"));
    assert_lives(&server, "k1");
}
