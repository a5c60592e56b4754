//! What is plain, and where it ends.

use super::*;
use proptest::prelude::*;

fn looked_at(bytes: &[u8]) -> (Look, Request<RequestBody>) {
    let mut request = Request::new(RequestBody::Whole(Bytes::new()));
    let found = look(bytes, &mut request, HeaderMap::new);
    (found, request)
}

fn found(text: &str) -> Look {
    looked_at(text.as_bytes()).0
}

fn body(request: &Request<RequestBody>) -> &[u8] {
    match request.body() {
        RequestBody::Whole(bytes) => bytes,
        RequestBody::Arriving(_) => panic!("a plain request's body is whole"),
    }
}

#[test]
fn a_plain_request_is_written_down_and_the_next_one_left() {
    let text = b"POST /call/c/k/add?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nX-Twice: a\r\nx-twice: \xffb\r\n\r\n[1]GET / HTTP";
    let (found, request) = looked_at(text);
    assert_eq!(found, Look::Request { bytes: text.len() - 10, closes: false });
    assert_eq!((request.method(), request.uri().to_string()), (&Method::POST, "/call/c/k/add?x=1".to_owned()));
    assert_eq!(body(&request), b"[1]");
    let twice: Vec<&[u8]> = request.headers().get_all("x-twice").iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(twice, [b"a".as_slice(), b"\xffb"]);
    assert_eq!(request.headers().len(), 4);
}

#[test]
fn what_the_client_says_about_the_connection_is_followed_or_left_to_hyper() {
    for (says, expected) in [
        ("", Some(false)),
        ("Connection: close\r\n", Some(true)),
        ("connection: Keep-Alive\r\n", Some(false)),
        ("connection: close\r\nconnection: close\r\n", None),
        ("connection: close, te\r\n", None),
        ("connection: upgrade\r\n", None),
        ("connection: \r\n", None),
    ] {
        let expected = match expected {
            Some(closes) => {
                let bytes = "GET / HTTP/1.1\r\n\r\n".len() + says.len();
                Look::Request { bytes, closes }
            }
            None => Look::Other,
        };
        assert_eq!(found(&format!("GET / HTTP/1.1\r\n{says}\r\n")), expected, "{says}");
    }
}

/// Whatever could be read in two ways, or is framed in another way, is not read here.
#[test]
fn what_is_not_plain_is_left_to_hyper() {
    for text in [
        "GET / HTTP/1.0\r\n\r\n",
        "HEAD / HTTP/1.1\r\n\r\n",
        "CONNECT h:1 HTTP/1.1\r\n\r\n",
        "BREW / HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n",
        "GET http://h/ HTTP/1.1\r\n\r\n",
        "GET /<> HTTP/1.1\r\n\r\n",
        "POST /<> HTTP/1.1\r\ncontent-length: 3\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 0\r\ntransfer-encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
        "POST / HTTP/1.1\r\ncontent-length: 1, 1\r\n\r\nx",
        "GET /a#b HTTP/1.1\r\n\r\n",
        "GET /a?b#c HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\nx",
        "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\nx",
        "POST / HTTP/1.1\r\ncontent-length: 0x1\r\n\r\nx",
        "POST / HTTP/1.1\r\ncontent-length: \r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\nx",
        "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n",
        "GET / HTTP/1.1\r\nAccept: Text/Event-Stream\r\n\r\n",
        "GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\na : b\r\n\r\n",
        "GET / HTTP/1.1\r\na: \u{1}\r\n\r\n",
    ] {
        assert_eq!(found(text), Look::Other, "{text}");
    }
    let many = "a: b\r\n".repeat(HEADERS + 1);
    assert_eq!(found(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Look::Other);
}

#[test]
fn what_is_large_is_left_to_hyper_before_it_is_held() {
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(HEAD_BYTES));
    for end in [HEAD_BYTES + 1, long.len()] {
        assert_eq!(found(&long[..end]), Look::Other, "whether all of it is there or not");
    }
    let head = |length: usize| format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
    let room = PLAIN_BYTES - head(PLAIN_BYTES).len();
    assert_eq!(found(&head(room)), Look::Head(PLAIN_BYTES));
    assert_eq!(found(&head(room + 1)), Look::Other);
}

#[test]
fn a_request_is_seen_once_all_of_it_is_there() {
    let text = "PUT /records/a/b HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\n12345";
    let head = text.len() - 5;
    for end in 0..text.len() {
        let expected = if end < head { Look::Beginning } else { Look::Head(text.len()) };
        assert_eq!(found(&text[..end]), expected, "{end}");
    }
    assert_eq!(found(text), Look::Request { bytes: text.len(), closes: false });
}

proptest! {
    /// What is seen does not depend on what comes behind, nor change when more comes.
    #[test]
    fn an_end_is_where_it_is(bytes in prop::collection::vec(any::<u8>(), 0..64), pick in 0..4usize) {
        let begins = ["", "GET / HTTP/1.1\r\n", "POST /a HTTP/1.1\r\ncontent-length: 9\r\n", "GET / HTTP/1.1\r\n\r\n"];
        let bytes = [begins[pick].as_bytes(), &bytes].concat();
        check(&bytes);
    }
}
