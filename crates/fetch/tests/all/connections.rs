//! Connections are kept, bounded and given back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Counts, PATIENCE, Server, answer, failure, get};
use millrace_fetch::{HttpFetcher, Options};
use millrace_func::{FetchRequest, Fetcher};
use tokio::time::{sleep, timeout};

fn fetcher(connections: usize) -> HttpFetcher {
    HttpFetcher::new(&Options { connections, ..Options::default() })
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let (server, fetcher) = (Server::start().await, fetcher(8));
    for _ in 0..50 {
        answer(&fetcher, server.get("/echo")).await;
        answer(&fetcher, server.get("/chunked")).await;
    }
    assert_eq!(server.counts.requests(), 100);
    // A machine that is busy elsewhere may lose one.
    assert!(server.counts.accepted() <= 3, "{}", server.counts.accepted());
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_a_while() {
    let server = Server::start().await;
    let fetcher = HttpFetcher::new(&Options { idle_ms: 50, ..Options::default() });
    answer(&fetcher, server.get("/echo")).await;
    assert_eq!(server.counts.open(), 1);
    server.counts.until("the idle connection closed", |counts| counts.open() == 0).await;
    answer(&fetcher, server.get("/echo")).await;
    assert_eq!(server.counts.accepted(), 2);
}

#[tokio::test]
async fn no_more_idle_connections_are_kept_than_allowed() {
    let server = Server::start().await;
    let fetcher = HttpFetcher::new(&Options { idle_per_host: 3, idle_ms: 60_000, ..Options::default() });
    let together: Vec<_> = (0..20).map(|_| tokio::spawn(fetcher.fetch(server.get("/delay/100")))).collect();
    for fetched in together {
        assert!(fetched.await.expect("no panic").is_ok());
    }
    assert_eq!(server.counts.most_open(), 20);
    server.counts.until("all but three closed", |counts| counts.open() <= 3).await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(server.counts.open(), 3);
    drop(fetcher);
    server.counts.until("the fetcher's end closed the rest", |counts| counts.open() == 0).await;
}

#[tokio::test]
async fn a_connection_that_the_server_closed_meanwhile_is_not_noticed() {
    let (server, fetcher) = (Server::start().await, fetcher(8));
    for path in ["/stale", "/last", "/old", "/stale"] {
        answer(&fetcher, server.get(path)).await;
        sleep(Duration::from_millis(20)).await;
        let request = FetchRequest { method: "POST".to_owned(), ..server.get("/stale") };
        answer(&fetcher, request).await;
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.counts.requests(), 8, "each was sent once");
}

#[tokio::test]
async fn surplus_bytes_are_nobodys_response() {
    let (server, fetcher) = (Server::start().await, fetcher(8));
    for _ in 0..20 {
        answer(&fetcher, server.get("/surplus")).await;
        let response = answer(&fetcher, server.get("/echo")).await;
        assert!(response.body.starts_with(b"GET /echo"), "{response:?}");
    }
}

#[tokio::test]
async fn a_thousand_fetches_share_the_connections_there_may_be() {
    let (server, fetcher) = (Server::start().await, fetcher(16));
    let all: Vec<_> = (0..1000).map(|_| tokio::spawn(fetcher.fetch(server.get("/delay/1")))).collect();
    for fetched in all {
        assert_eq!(fetched.await.expect("no panic").map(|response| response.status), Ok(200));
    }
    assert_eq!(server.counts.requests(), 1000);
    // The server learns of a close a little after the fetcher has done it.
    assert!(server.counts.most_open() <= 20, "{}", server.counts.most_open());
    assert!(server.counts.accepted() <= 50, "who waited for a turn found a connection: {}", server.counts.accepted());
}

#[tokio::test]
async fn fetches_that_end_together_leave_their_connections_to_those_that_wait() {
    let server = Server::start().await;
    let fetcher = HttpFetcher::new(&Options { connections: 100, idle_per_host: 2, ..Options::default() });
    let all: Vec<_> = (0..5000).map(|_| tokio::spawn(fetcher.fetch(server.get("/echo")))).collect();
    for fetched in all {
        assert_eq!(fetched.await.expect("no panic").map(|response| response.status), Ok(200));
    }
    assert!(server.counts.accepted() <= 300, "{}", server.counts.accepted());
    server.counts.until("all but two closed", |counts| counts.open() <= 2).await;
}

/// Idle connections to one server give way to another's.
#[tokio::test]
async fn many_servers_share_few_connections() {
    let counts = Arc::<Counts>::default();
    let mut servers = Vec::new();
    for _ in 0..8 {
        servers.push(Server::with(Arc::clone(&counts), None).await);
    }
    let fetcher = fetcher(4);
    let fetches = (0..1000).map(|index| fetcher.fetch(servers[index * 7 % 8].get("/echo")));
    let all: Vec<_> = fetches.map(tokio::spawn).collect();
    for fetched in all {
        let fetched = timeout(PATIENCE, fetched).await.expect("no deadlock").expect("no panic");
        assert_eq!(fetched.map(|response| response.status), Ok(200));
    }
    // The server learns of a close a little after the fetcher has done it.
    assert!(counts.most_open() <= 8, "{}", counts.most_open());
    assert_eq!(counts.requests(), 1000);
}

#[tokio::test]
async fn an_idle_connection_gives_way_though_an_older_one_is_closed() {
    let servers = (Server::start().await, Server::start().await, Server::start().await, Server::start().await);
    let fetcher = HttpFetcher::new(&Options { connections: 2, idle_ms: 60_000, ..Options::default() });
    answer(&fetcher, servers.0.get("/stale-soon/200")).await;
    answer(&fetcher, servers.1.get("/echo")).await;
    assert_eq!((servers.0.counts.open(), servers.1.counts.open()), (1, 1));
    servers.0.counts.until("the server closed the older one", |counts| counts.open() == 0).await;
    sleep(Duration::from_millis(20)).await;
    let active = tokio::spawn(fetcher.fetch(servers.2.get("/delay/60000")));
    servers.2.counts.until("one is in use", |counts| counts.requests() == 1).await;
    answer(&fetcher, FetchRequest { timeout_ms: 5_000, ..servers.3.get("/echo") }).await;
    servers.1.counts.until("the idle one gave way", |counts| counts.open() == 0).await;
    active.abort();
}

#[tokio::test]
async fn waiting_for_a_turn_is_within_the_time_limit() {
    let (server, fetcher) = (Server::start().await, fetcher(1));
    let long = tokio::spawn(fetcher.fetch(server.get("/delay/60000")));
    server.counts.until("the long one began", |counts| counts.requests() == 1).await;
    let message = failure(&fetcher, FetchRequest { timeout_ms: 100, ..server.get("/echo") }).await;
    assert!(message.contains("within 100 ms, while waiting for other fetches"), "{message}");
    assert_eq!(server.counts.accepted(), 1);
    long.abort();
    answer(&fetcher, server.get("/echo")).await;
}

#[tokio::test]
async fn a_dropped_fetch_closes_its_connection() {
    let (server, fetcher) = (Server::start().await, fetcher(2));
    for path in ["/delay/60000", "/drip", "/silent", "/endless"] {
        let before = server.counts.requests();
        let fetching = tokio::spawn(fetcher.fetch(FetchRequest { response_bytes: 1 << 30, ..server.get(path) }));
        server.counts.until("it began", |counts| counts.requests() > before).await;
        sleep(Duration::from_millis(20)).await;
        assert_eq!(server.counts.open(), 1, "{path}");
        fetching.abort();
        server.counts.until("its connection closed", |counts| counts.open() == 0).await;
    }
    // Exchanges are dropped at any point, over and over: no turn and no connection is lost.
    for index in 0..400 {
        let fetching = fetcher.fetch(server.get("/delay/1"));
        assert!(timeout(Duration::from_micros(index * 10), fetching).await.is_err() || index > 50);
    }
    let both = tokio::join!(answer(&fetcher, server.get("/delay/50")), answer(&fetcher, server.get("/delay/50")));
    assert_eq!((both.0.status, both.1.status), (200, 200));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A server on a thread of its own, until so many requests have come.
fn serve_apart(requests: usize) -> (std::thread::JoinHandle<()>, SocketAddr, Arc<Counts>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        runtime().block_on(async {
            let server = Server::start().await;
            sender.send((server.address, Arc::clone(&server.counts))).expect("the test waits");
            server.counts.until("the requests came", |counts| counts.requests() == requests).await;
        });
    });
    let (address, counts) = receiver.recv().expect("the server starts");
    (serving, address, counts)
}

/// The server closes while the core is busy with something else and cannot see it.
#[test]
fn a_connection_closed_while_the_core_was_busy_is_not_noticed() {
    let (serving, address, counts) = serve_apart(10);
    let fetcher = fetcher(8);
    runtime().block_on(async {
        for _ in 0..10 {
            answer(&fetcher, get(&format!("http://{address}/stale-soon/10"))).await;
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    assert_eq!(counts.accepted(), 10);
    serving.join().expect("no panic");
}

#[test]
fn a_connection_stays_on_its_runtime_and_ends_with_it() {
    let (serving, address, counts) = serve_apart(5);
    let url = format!("http://{address}/echo");
    let fetcher = fetcher(2);
    let (first, second) = (runtime(), runtime());
    first.block_on(answer(&fetcher, get(&url)));
    first.block_on(answer(&fetcher, get(&url)));
    assert_eq!(counts.accepted(), 1);
    second.block_on(answer(&fetcher, get(&url)));
    assert_eq!(counts.accepted(), 2, "the first's connection is not taken away from it");
    // Their connections end with them. Otherwise there would be no room for another.
    drop((first, second));
    runtime().block_on(answer(&fetcher, get(&url)));
    runtime().block_on(answer(&fetcher, get(&url)));
    assert_eq!(counts.accepted(), 4);
    serving.join().expect("no panic");
}
