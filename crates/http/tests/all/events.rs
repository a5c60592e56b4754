//! Changes as server-sent events.

use std::io::BufRead;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{Client, Server, patient, wait_until};
use millrace_api::{Error, ErrorCode};

const STREAM: &str = "GET /records/personinfo/changes";

fn change(server: &Server, text: &str) {
    server.backend.shared.records.changes.lock().expect("no panic").push_back(text.to_owned());
}

/// One reader: its connection, and what it has read of the body that is not an event yet.
struct Reader {
    client: Client,
    text: String,
}

impl Reader {
    fn open(server: &Server, query: &str, headers: &str) -> Self {
        let mut client = server.connect();
        client.send(Client::request(&format!("{STREAM}{query}\naccept: text/event-stream{headers}"), b""));
        let reply = client.read_reply(false);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")), "{reply:?}");
        assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
        Self { client, text: String::new() }
    }

    /// The next event: id and data. Heartbeats are passed over.
    fn next(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
                let found = (field("id: ").unwrap_or_default(), field("data: ").unwrap_or_default());
                self.text = rest.to_owned();
                return Some(found);
            }
            let chunk = self.chunk()?;
            self.text.push_str(&chunk);
        }
    }

    fn chunk(&mut self) -> Option<String> {
        let mut line = String::new();
        self.client.stream.read_line(&mut line).expect("a chunk's length");
        let length = usize::from_str_radix(line.trim(), 16).expect("a length");
        let mut bytes = vec![0; length + 2];
        std::io::Read::read_exact(&mut self.client.stream, &mut bytes).expect("a chunk");
        bytes.truncate(length);
        (length > 0).then(|| String::from_utf8(bytes).expect("text"))
    }
}

fn event(id: &str, data: &str) -> Option<(String, String)> {
    Some((id.to_owned(), data.to_owned()))
}

#[test]
fn changes_arrive_as_they_happen_each_with_its_place() {
    let server = Server::start(patient());
    change(&server, r#"{"n":0,"cursor":"1"}"#);
    change(&server, r#"{"n":1,"cursor":"2"}"#);
    let mut reader = Reader::open(&server, "", "");
    assert_eq!(reader.next(), event("1", r#"{"n":0,"cursor":"1"}"#));
    assert_eq!(reader.next(), event("2", r#"{"n":1,"cursor":"2"}"#));
    change(&server, r#"{"n":2}"#);
    assert_eq!(reader.next(), event("3", r#"{"n":2}"#));
    drop(reader);
    let mut again = Reader::open(&server, "?cursor=0", "\nlast-event-id: 2");
    assert_eq!(again.next(), event("3", r#"{"n":2}"#), "what was seen does not come again");
    let mut new = Reader::open(&server, "?cursor=now", "");
    assert_eq!(new.next(), event("3", ""), "it can come back here before anything happens");
    change(&server, r#"{"n":3}"#);
    assert_eq!(new.next(), event("4", r#"{"n":3}"#));
}

#[test]
fn changes_that_do_not_say_where_they_are_come_one_by_one() {
    let server = Server::start(patient());
    (0..5).for_each(|n| change(&server, &format!("{{\"n\":{n}}}")));
    let mut reader = Reader::open(&server, "", "");
    for n in 0..5 {
        assert_eq!(reader.next(), event(&format!("{}", n + 1), &format!("{{\"n\":{n}}}")));
    }
}

#[test]
fn what_is_wrong_from_the_start_is_a_problem_document() {
    let server = Server::start(patient());
    let ask = |rest: &str| server.ask(&format!("{rest}\naccept: text/event-stream"), b"");
    ask("GET /records/none/changes").assert_problem("unknown-type");
    ask("GET /records/personinfo/changes?cursor=x").assert_problem("bad-request");
    ask("GET /records/personinfo/changes?x=1").assert_problem("bad-request");
    let head = server.ask("HEAD /records/personinfo/changes\naccept: text/event-stream", b"");
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    wait_until(|| server.metric("millrace_http_event_streams") == 0.0, || "a stream is left".to_owned());
}

#[test]
fn trouble_that_passes_is_waited_out_and_other_trouble_ends_the_stream() {
    let server = Server::start(patient());
    let records = &server.backend.shared.records;
    let mut reader = Reader::open(&server, "", "");
    assert_eq!(reader.next(), event("0", ""));
    *records.failure.lock().expect("no panic") = Some(Error::new(ErrorCode::Overloaded, "later"));
    let pages = records.pages.load(Ordering::SeqCst);
    wait_until(|| records.pages.load(Ordering::SeqCst) > pages + 1, || "it does not try again".to_owned());
    change(&server, "1");
    *records.failure.lock().expect("no panic") = None;
    assert_eq!(reader.next(), event("1", "1"));
    *records.failure.lock().expect("no panic") = Some(Error::new(ErrorCode::UnknownType, "deleted"));
    let (_, data) = reader.next().expect("an error event");
    assert!(data.contains("\"unknown-type\""), "{data}");
    assert_eq!(reader.next(), None, "the stream is over, the connection is not");
}

#[test]
fn a_stream_outlives_idle_times_and_ends_when_the_server_drains() {
    let mut options = patient();
    options.timeouts.idle = Duration::from_millis(40);
    options.timeouts.park = Duration::from_millis(20);
    options.timeouts.write = Duration::from_millis(40);
    let mut server = Server::start(options);
    let mut reader = Reader::open(&server, "", "");
    assert_eq!(reader.next(), event("0", ""));
    std::thread::sleep(Duration::from_millis(300));
    change(&server, "1");
    assert_eq!(reader.next(), event("1", "1"), "it is neither parked nor closed");
    assert_eq!(server.metric("millrace_http_event_streams"), 1.0);
    server.stop();
    assert_eq!(reader.next(), None);
    server.join();
}

#[test]
fn a_reader_that_does_not_read_is_let_go() {
    let mut options = patient();
    options.timeouts.write = Duration::from_millis(100);
    let server = Server::start(options);
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let _reader = Reader::open(&server, "?cursor=now", "");
    for _ in 0..40 {
        change(&server, &large);
    }
    server.wait_for_metric("millrace_http_timeouts_total{phase=\"write\"}", 1.0);
    wait_until(|| server.metric("millrace_http_event_streams") == 0.0, || "the stream is left".to_owned());
    assert!(server.backend.shared.records.pages.load(Ordering::SeqCst) < 40, "it was not read ahead");
}

#[test]
fn readers_are_bounded() {
    let server = Server::start(patient());
    let readers: Vec<Reader> = (0..256).map(|_| Reader::open(&server, "", "")).collect();
    let refused = server.ask(&format!("{STREAM}\naccept: text/event-stream"), b"");
    refused.assert_problem("overloaded");
    drop(readers);
    wait_until(|| server.metric("millrace_http_event_streams") == 0.0, || "streams are left".to_owned());
    Reader::open(&server, "", "");
}
