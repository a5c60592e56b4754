//! Promise 7 for connections: with few descriptors and many clients the server turns clients away,
//! never exits, keeps serving those it has, and takes new ones as soon as it can.
//!
//! `MILLRACE_TEST_CONNECTIONS` is how many connect (2,000 in a normal run).

use std::collections::VecDeque;
use std::net::TcpStream;
use std::time::Duration;

use millrace_tests::{Connection, Server, ServerOptions, number_from_env, wait_until};

const DESCRIPTORS: u32 = 256;

/// Connections held at the same time: far more than the server has descriptors, and fewer than
/// this process may have.
const HELD: usize = 800;

#[test]
fn many_connections_and_few_descriptors_do_not_end_the_server() {
    let attempts = number_from_env("MILLRACE_TEST_CONNECTIONS", 2000);
    let mut options = ServerOptions::examples(&["counter"]);
    options.descriptors = Some(DESCRIPTORS);
    let mut server = Server::start(options);
    let address = server.address();
    let mut early = server.connect();
    let mut acknowledged = 0u64;
    let mut held = VecDeque::new();
    let mut refused = 0;
    for attempt in 0..attempts {
        match TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
            Ok(stream) => held.push_back(stream),
            Err(_) => refused += 1,
        }
        if held.len() > HELD {
            held.pop_front();
        }
        if attempt % 50 == 0 {
            let reply = early.request("POST", "/call/counter/early/add", &[], b"1").expect("the connection stays");
            assert_eq!(reply.status, 200, "{}", reply.text());
            acknowledged += 1;
            assert_eq!(reply.json(), acknowledged);
        }
    }
    assert!(server.is_running(), "{}", server.errors());
    let metrics = early.request("GET", "/metrics", &[], b"").expect("a reply").text();
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no metric {name}"))
    };
    let failures = value("millrace_http_accept_failures_total");
    let shed = value("millrace_http_connections_shed_total");
    println!("{attempts} connections, {refused} refused by the kernel; {failures} failed accepts, {shed} turned away");
    assert!(failures > 0.0 && shed > 0.0, "the limit was never reached");
    drop(held);
    wait_until("new clients are served", || {
        let reply = Connection::open(address).and_then(|mut c| c.request("POST", "/call/counter/late/add", &[], b"1"));
        reply.is_ok_and(|reply| reply.status == 200)
    });
    for number in 0..100 {
        assert_eq!(server.call(&format!("counter/after{number}/add"), "1").status, 200);
    }
    let ready = server.request("GET", "/readyz", &[], b"");
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert!(server.stop(), "{}", server.errors());
    server.restart();
    assert_eq!(server.value("counter/early/value", ""), acknowledged);
}
