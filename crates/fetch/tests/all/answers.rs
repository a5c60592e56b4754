//! The function gets what a proper server answers.

use crate::support;

use crate::support::{Server, answer};
use bytes::Bytes;
use millrace_base::ErrorCode;
use millrace_fetch::{HttpFetcher, Options};
use millrace_func::{FetchRequest, Fetcher};

fn fetcher() -> HttpFetcher {
    HttpFetcher::new(&Options::default())
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn a_request_arrives_as_it_was_made() {
    let server = Server::start().await;
    let request = FetchRequest {
        method: "POST".to_owned(),
        headers: vec![("X-One".to_owned(), "1".to_owned()), ("x-one".to_owned(), "2".to_owned())],
        body: Bytes::from_static(b"the body"),
        ..server.get("/echo?a=b%20c#part")
    };
    let response = answer(&fetcher(), request).await;
    let text = String::from_utf8(response.body.to_vec()).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines.remove(0), "POST /echo?a=b%20c HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", server.address);
    assert_eq!(lines, ["content-length: 8", &host, "user-agent: millrace", "x-one: 1", "x-one: 2"]);
    assert_eq!((response.status, body), (200, "the body"));
}

#[tokio::test]
async fn every_status_is_an_answer_and_a_redirect_is_not_followed() {
    let (server, fetcher) = (Server::start().await, fetcher());
    for status in [200, 201, 400, 404, 429, 500, 503, 599] {
        let response = answer(&fetcher, server.get(&format!("/status/{status}"))).await;
        assert_eq!((response.status, &*response.body), (status, &b"a body"[..]));
    }
    let before = server.counts.requests();
    let response = answer(&fetcher, server.get("/redirect")).await;
    assert_eq!((response.status, header(&response.headers, "location")), (302, Some("/echo")));
    assert_eq!(server.counts.requests(), before + 1);
}

#[tokio::test]
async fn bodies_come_whole_however_they_are_framed() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let response = answer(&fetcher, server.get("/chunked")).await;
    assert_eq!(&*response.body, b"abc0123456789");
    assert_eq!(response.headers, [("x-one".to_owned(), "ä".to_owned())], "no framing, no value that is not text");
    assert_eq!(&*answer(&fetcher, server.get("/old")).await.body, b"until the end");
    assert_eq!(&*answer(&fetcher, server.get("/last")).await.body, b"ok");
    assert_eq!(&*answer(&fetcher, server.get("/early-hints")).await.body, b"ok");
    assert_eq!(answer(&fetcher, server.get("/bytes/1000000")).await.body.len(), 1_000_000);
    for status in ["204", "304"] {
        let response = answer(&fetcher, server.get(&format!("/empty/{status}"))).await;
        assert!(response.body.is_empty() && header(&response.headers, "etag") == Some("x"), "{status}");
    }
    let request = FetchRequest { method: "HEAD".to_owned(), ..server.get("/head") };
    let response = answer(&fetcher, request).await;
    assert_eq!((header(&response.headers, "content-length"), response.body.len()), (Some("1000000000000"), 0));
}

#[tokio::test]
async fn a_body_up_to_the_limit_is_taken() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let limited = |path: &str| FetchRequest { response_bytes: 1000, ..server.get(path) };
    assert_eq!(answer(&fetcher, limited("/bytes/1000")).await.body.len(), 1000);
    let error = fetcher.fetch(limited("/bytes/1001")).await.expect_err("too large");
    assert!(error.message.contains("more than 1000 bytes"), "{error}");
    let none = FetchRequest { response_bytes: 0, ..server.get("/bytes/0") };
    assert_eq!(answer(&fetcher, none).await.body.len(), 0);
}

#[tokio::test]
async fn what_is_refused_is_not_sent() {
    let (server, fetcher) = (Server::start().await, fetcher());
    let with_header = |name: &str, value: &str| FetchRequest {
        headers: vec![(name.to_owned(), value.to_owned())],
        ..server.get("/echo")
    };
    for request in [
        support::get(&format!("http://user@{}/", server.address)),
        support::get(&format!("ftp://{}/", server.address)),
        with_header("Transfer-Encoding", "chunked"),
        with_header("x", "a\r\nb: c"),
        FetchRequest { method: "CONNECT".to_owned(), ..server.get("/echo") },
    ] {
        assert_eq!(fetcher.fetch(request).await.expect_err("refused").code, ErrorCode::FetchRefused);
    }
    assert_eq!(server.counts.accepted(), 0);
}
