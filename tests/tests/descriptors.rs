//! Promise 7 for connections, with few descriptors and many clients. The server turns clients away and never exits.
//! It keeps serving the clients it has, and accepts new ones as soon as it can.
//!
//! A program of its own: it raises the descriptor limit of its process and uses most of it.
//!
//! `MILLRACE_TEST_CONNECTIONS` is how many connect and stay (20,000 in a normal run, or as many as this process may have).

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use millrace_tests::{Connection, Server, ServerOptions, StopOnDrop, number_from_env, wait_until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const DESCRIPTORS: u32 = 256;

/// Descriptors of this process that are not connections of the crowd.
const OTHER_DESCRIPTORS: usize = 64;

/// Threads that connect. Most of the time they wait until the server empties its queue of new connections.
const CONNECTING: usize = 4;

/// How long a client with a connection may wait for a reply. A new client may wait as long for its first reply once
/// the crowd is gone. It is far more than either takes on a busy machine. It is far less than a server takes that is
/// stuck or waits for a timeout.
const PROMPT: Duration = Duration::from_secs(3);

/// Raises this process's limit as far as allowed. Returns how many of the `wanted` connections it leaves room for.
fn raise_descriptor_limit(wanted: usize) -> usize {
    let needed = (wanted + OTHER_DESCRIPTORS) as u64;
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    // A user who may raise the hard limit can have any number.
    for limit in [needed.max(hard), hard] {
        let current = Some(limit.min(needed));
        if setrlimit(Resource::Nofile, Rlimit { current, maximum: Some(limit) }).is_ok() {
            return wanted.min(limit as usize - OTHER_DESCRIPTORS);
        }
    }
    panic!("the limit of descriptors cannot be raised to {hard}");
}

/// This many connections at once. All stay open until they are dropped, whatever the server does with them.
fn crowd(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        // The kernel drops new connections while the server's queue is full, and the client's kernel tries again.
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(20)).expect("connected");
        stream.set_nonblocking(true).expect("a socket");
        stream
    };
    scope(|threads| {
        let part = |number| threads.spawn(move || (number..count).step_by(CONNECTING).map(connect).collect::<Vec<_>>());
        let parts: Vec<_> = (0..CONNECTING).map(part).collect();
        parts.into_iter().flat_map(|part| part.join().expect("connected")).collect()
    })
}

/// Whether the server has told this client to come again later, and closed its connection.
fn is_turned_away(mut stream: &TcpStream) -> bool {
    let mut reply = [0; 1024];
    match stream.read(&mut reply) {
        Ok(length) => {
            let text = String::from_utf8_lossy(&reply[..length]).to_ascii_lowercase();
            let is_told = text.starts_with("http/1.1 503 ") && text.contains("\r\nretry-after: ");
            assert!(is_told, "turned away with {text:?}");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            false
        }
    }
}

/// Calls on a connection that was there before the crowd, until the crowd is there. Returns the number of calls and
/// the slowest reply.
fn count_meanwhile(early: &mut Connection, is_over: &AtomicBool) -> (u64, Duration) {
    let (mut acknowledged, mut slowest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let reply = early.request("POST", "/call/counter/early/add", &[], b"1").expect("the connection stays");
        slowest = slowest.max(sent.elapsed());
        acknowledged += 1;
        assert_eq!((reply.status, reply.json()), (200, acknowledged.into()));
    }
    (acknowledged, slowest)
}

#[test]
fn many_connections_and_few_descriptors_do_not_end_the_server() {
    let count = raise_descriptor_limit(number_from_env("MILLRACE_TEST_CONNECTIONS", 20_000));
    let mut options = ServerOptions::examples(&["counter"]);
    options.descriptors = Some(DESCRIPTORS);
    let mut server = Server::start(options);
    let address = server.address();
    let mut early = server.connect();
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let (held, turned_away, (acknowledged, slowest)) = scope(|threads| {
        let counting = threads.spawn(|| count_meanwhile(&mut early, &is_over));
        let _over = StopOnDrop(&is_over);
        let held = crowd(address, count);
        // Connections that the server has are as silent as connections that wait for it.
        let mut silent: Vec<&TcpStream> = held.iter().collect();
        wait_until("all others are turned away", || {
            silent.retain(|stream| !is_turned_away(stream));
            silent.len() <= DESCRIPTORS as usize
        });
        let turned_away = held.len() - silent.len();
        is_over.store(true, Ordering::Relaxed);
        (held, turned_away, counting.join().expect("served all the time"))
    });
    assert!(server.is_running(), "{}", server.errors());
    println!("{count} connections in {:.1?}, {turned_away} turned away", began.elapsed());
    println!("meanwhile {acknowledged} calls on an early connection, the slowest {slowest:.1?}");
    assert!(acknowledged >= 20 && slowest < PROMPT, "who had a connection was not served: {slowest:?}");
    let metrics = early.request("GET", "/metrics", &[], b"").expect("a reply").text();
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no metric {name}"))
    };
    assert!(value("millrace_http_connections_shed_total") >= turned_away as f64);
    assert!(turned_away + DESCRIPTORS as usize >= count, "the limit was never reached");
    let left = Instant::now();
    drop(held);
    wait_until("new clients are served", || {
        let reply = Connection::open(address).and_then(|mut c| c.request("POST", "/call/counter/late/add", &[], b"1"));
        reply.is_ok_and(|reply| reply.status == 200)
    });
    println!("new clients are served {:.1?} after the others left", left.elapsed());
    assert!(left.elapsed() < PROMPT, "service resumed only after {:?}", left.elapsed());
    for number in 0..100 {
        assert_eq!(server.call(&format!("counter/after{number}/add"), "1").status, 200);
    }
    let ready = server.request("GET", "/readyz", &[], b"");
    assert_eq!(ready.status, 200, "{}", ready.text());
    assert!(server.stop(), "{}", server.errors());
    server.restart();
    assert_eq!(server.value("counter/early/value", ""), acknowledged);
}

/// `ulimit -n` of a shell is often 1,024 where the system allows far more, and each connection is a descriptor.
#[test]
fn the_soft_limit_of_descriptors_is_raised_to_the_hard_one() {
    const SOFT: &str = "99";
    const HARD: &str = "299";
    let mut options = ServerOptions::examples(&["counter"]);
    let script =
        format!("ulimit -S -n {SOFT}; ulimit -H -n {HARD}; grep files /proc/$$/limits >&2; exec \"$0\" \"$@\"");
    options.wrapper = vec!["sh".into(), "-c".into(), script];
    let server = Server::start(options);
    let limits = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("Max open files")).expect("the limit").to_owned();
        line.split_whitespace().skip(3).take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(limits(&server.errors()), [SOFT, HARD], "as it was started");
    let now = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("the process runs");
    assert_eq!(limits(&now), [HARD, HARD]);
}
