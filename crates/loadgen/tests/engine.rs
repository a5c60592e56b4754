//! The load generator against small servers that misbehave on purpose. It must count every failure, and its latency must
//! not hide a server that stalls.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_loadgen::{HttpRequest, Plan, Report, RequestTemplate, run, run_together};

/// The reply of a server to its `number`-th request.
type Answer = dyn Fn(u64, &str) -> Option<Vec<u8>> + Send + Sync;

/// A server with a thread for each connection. Requests end with an empty line and have no body.
fn serve(answer: Arc<Answer>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let number = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, number) = (answer.clone(), number.clone());
            std::thread::spawn(move || serve_connection(stream.unwrap(), &*answer, &number));
        }
    });
    address
}

fn serve_connection(mut stream: TcpStream, answer: &Answer, number: &AtomicU64) {
    let mut buffer = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(length) = stream.read(&mut chunk) {
        if length == 0 {
            return;
        }
        buffer.extend_from_slice(&chunk[..length]);
        while let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let request = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..end + 4);
            match answer(number.fetch_add(1, Ordering::Relaxed), &request) {
                Some(reply) if stream.write_all(&reply).is_ok() => {}
                _ => return,
            }
        }
    }
}

fn reply(status: u16, body: &str) -> Option<Vec<u8>> {
    Some(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

fn plan(address: SocketAddr, path: &str) -> Plan {
    let url = format!("http://{address}{path}");
    let (request, ..) = RequestTemplate::http(&HttpRequest { url: &url, ..HttpRequest::default() }).unwrap();
    let mut plan = Plan::new(&url, address, request);
    plan.connections = 4;
    plan.duration = Duration::from_millis(400);
    plan.warm_up = Duration::ZERO;
    plan
}

fn measure(plan: &Plan) -> Report {
    run(plan, &mut |_| {}).unwrap()
}

#[test]
fn every_reply_is_checked_and_counted() {
    let address = serve(Arc::new(|number, _| match number % 10 {
        3 => reply(404, "no"),
        5 => reply(503, "busy"),
        7 => reply(200, "wrong"),
        _ => reply(200, "ok"),
    }));
    let mut plan = plan(address, "/");
    plan.threads = 2;
    plan.expectation.statuses = vec![200];
    plan.expectation.shed = vec![503];
    plan.expectation.body = Some(b"ok".to_vec());
    let report = measure(&plan);
    let tenth = report.requests as f64 / 7.0;
    for count in [report.errors.status, report.errors.body, report.shed] {
        assert!((count as f64 - tenth).abs() < tenth * 0.05 + 5.0, "{report:?}");
    }
    assert_eq!(report.errors.total(), report.errors.status + report.errors.body);
    assert!(report.first_error.is_some() && !report.is_clean());
    assert!(report.latency.p50_us > 0.0 && report.latency.max_us >= report.latency.p99_us);
    assert_eq!(report.seconds.iter().map(|row| row.requests).sum::<u64>(), report.requests);
}

#[test]
fn lost_connections_are_counted_and_replaced() {
    let address = serve(Arc::new(|number, _| match number % 10 {
        4 => None,
        6 => Some(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_vec()),
        8 => Some(b"garbage\r\n\r\n".to_vec()),
        _ => reply(200, "ok"),
    }));
    let report = measure(&plan(address, "/"));
    assert!(report.requests > 100, "{report:?}");
    let expected = report.requests / 8;
    for count in [report.errors.closed + report.errors.reset, report.errors.malformed, report.reconnects] {
        assert!(count.abs_diff(expected) <= expected / 5 + 8, "{expected}: {report:?}");
    }
    assert_eq!(report.errors.connect + report.errors.timeout + report.errors.status, 0);
}

#[test]
fn a_request_without_reply_times_out() {
    let address = serve(Arc::new(|number, _| if number % 50 == 0 { Some(Vec::new()) } else { reply(200, "ok") }));
    let mut plan = plan(address, "/");
    plan.timeout = Duration::from_millis(50);
    plan.duration = Duration::from_secs(1);
    let report = measure(&plan);
    assert!(report.errors.timeout >= 4 && report.requests > 50, "{report:?}");
    assert_eq!(report.errors.total(), report.errors.timeout);
}

#[test]
fn open_loop_keeps_its_rate_and_counts_from_the_intended_time() {
    // One connection, and one pause of 200 ms. A closed loop would show one slow request, but all requests that were
    // due during the pause had to wait.
    let address = serve(Arc::new(|number, _| {
        if number == 300 {
            std::thread::sleep(Duration::from_millis(200));
        }
        reply(200, "ok")
    }));
    let mut plan = plan(address, "/");
    plan.connections = 1;
    plan.duration = Duration::from_secs(1);
    plan.rate = Some(1000.0);
    let report = measure(&plan);
    assert!(report.errors.total() == 0 && report.unsent == 0 && report.unanswered == 0, "{report:?}");
    assert!((report.requests + report.late).abs_diff(1000) <= 2, "{} and {}", report.requests, report.late);
    // A fifth of the requests waited, 100 ms on average: the slowest tenth at least 100 ms.
    assert!((80_000.0..1_000_000.0).contains(&report.latency.p90_us), "{:?}", report.latency);
    assert!(report.latency.p50_us < 60_000.0, "{:?}", report.latency);
}

#[test]
fn open_loop_past_capacity_tells_what_was_never_sent() {
    let address = serve(Arc::new(|_, _| {
        std::thread::sleep(Duration::from_millis(10));
        reply(200, "ok")
    }));
    let mut plan = plan(address, "/");
    plan.connections = 2;
    plan.rate = Some(2000.0);
    let report = measure(&plan);
    // 2 connections answer 200 a second; 800 were due in 0.4 s.
    assert!(report.requests < 120 && report.unsent > 600, "{report:?}");
    assert!(report.latency.max_us > 300_000.0, "{:?}", report.latency);
}

#[test]
fn a_pipeline_and_templates_reach_the_server_whole() {
    let address = serve(Arc::new(|_, request| {
        let path = request.split(' ').nth(1).unwrap();
        reply(
            if path.strip_prefix("/k").is_some_and(|key| key.parse::<u8>().is_ok_and(|key| key < 7)) {
                200
            } else {
                400
            },
            path,
        )
    }));
    let mut plan = plan(address, "/k{{uniform:0:7}}");
    plan.pipeline = 16;
    plan.expectation.body_contains = Some(b"/k".to_vec());
    let report = measure(&plan);
    assert!(report.is_clean() && report.requests > 1000, "{report:?}");
}

#[test]
fn plans_that_run_together_are_reported_as_one_load() {
    let asked = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let plans = asked.clone().map(|asked| {
        let count = move |_: u64, _: &str| {
            asked.fetch_add(1, Ordering::Relaxed);
            reply(200, "ok")
        };
        Plan { threads: 2, ..plan(serve(Arc::new(count)), "/") }
    });
    let report = run_together(&plans, &mut |_| {}).unwrap();
    let [first, second] = asked.map(|asked| asked.load(Ordering::Relaxed));
    assert!(first > 0 && second > 0 && report.is_clean(), "{first}, {second}: {report:?}");
    assert_eq!((report.connections, report.threads), (8, 4));
    // Replies that were under way at the end are asked for and not counted.
    let both = first + second;
    assert!(report.requests <= both && both <= report.requests + 8, "{} of {both}", report.requests);
    let other = Plan { duration: plans[0].duration * 2, ..plans[1].clone() };
    assert!(run_together(&[plans[0].clone(), other], &mut |_| {}).is_err());
    assert!(run_together(&[], &mut |_| {}).is_err());
}

#[test]
fn no_server_is_a_clear_error_at_once() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = Instant::now();
    let error = run(&plan(address, "/"), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains(&address.to_string()), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}
