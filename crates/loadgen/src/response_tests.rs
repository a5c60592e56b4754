//! Tests of the reply parser: right replies are read whole from pieces of any size, and wrong ones are refused.

use proptest::prelude::*;

use super::*;

type Parsed = (u16, bool, Vec<u8>);

/// Feeds `bytes` in pieces of `piece`. Returns all replies, or the error.
fn parse(bytes: &[u8], piece: usize, is_bodyless: bool) -> Result<Vec<Parsed>, ParseError> {
    let mut parser = ResponseParser::new(is_bodyless, true);
    let mut cache = HeadCache::default();
    let mut replies = Vec::new();
    for part in bytes.chunks(piece) {
        let mut rest = part;
        while !rest.is_empty() {
            let (used, reply) = parser.feed(rest, &mut cache)?;
            assert!(used > 0 && (reply.is_some() || used == rest.len()));
            replies.extend(reply.map(|reply| (reply.status, reply.keep_alive, reply.body.to_vec())));
            rest = &rest[used..];
        }
    }
    if parser.is_inside_reply() {
        replies.push((0, false, Vec::new()));
    }
    Ok(replies)
}

const MIXED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: x\r\n\r\nok\
HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: x\r\n\r\nno\
HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 \r\ncontent-LENGTH:3\r\nRetry-After: 1\r\n\r\nbye\
HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n\
HTTP/1.1 204 No Content\r\nX: y\r\n\r\n\
HTTP/1.1 304\r\nContent-Length: 10\r\n\r\n\
HTTP/1.1 404 Not Found\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n";

fn mixed() -> Vec<Parsed> {
    [
        (200, true, "ok"),
        (200, true, "no"),
        (503, true, "bye"),
        (200, true, "abc0123456789"),
        (204, true, ""),
        (304, true, ""),
        (404, false, ""),
    ]
    .map(|(status, keep_alive, body)| (status, keep_alive, body.as_bytes().to_vec()))
    .to_vec()
}

#[test]
fn replies_are_the_same_however_their_bytes_arrive() {
    for piece in 1..=MIXED.len() {
        assert_eq!(parse(MIXED, piece, false).unwrap(), mixed(), "in pieces of {piece}");
    }
}

#[test]
fn a_reply_that_is_not_over_is_not_a_reply() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc";
    assert_eq!(parse(cut, 100, false).unwrap(), [(0, false, vec![])]);
}

#[test]
fn a_reply_to_head_has_no_body() {
    let two = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n";
    assert_eq!(parse(two, 7, true).unwrap(), [(200, true, vec![]), (200, true, vec![])]);
}

#[test]
fn a_body_that_is_not_checked_is_not_kept() {
    let mut parser = ResponseParser::new(false, false);
    let mut cache = HeadCache::default();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
    assert!(parser.feed(head, &mut cache).unwrap().1.is_none());
    for _ in 0..1000 {
        assert!(parser.feed(&[0; 10_000], &mut cache).unwrap().1.is_none());
    }
    assert_eq!(parser.body.capacity(), 0);
}

#[test]
fn broken_replies_are_errors() {
    let with_head = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
    let chunked = |body: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    for (bytes, words) in [
        ("HTTP/2 200 OK\r\n\r\n".to_owned(), "status line"),
        ("HTTP/1.1 2000 OK\r\n\r\n".to_owned(), "status line"),
        ("HTTP/1.1 099 OK\r\n\r\n".to_owned(), "status line"),
        ("+OK\r\n\r\n".to_owned(), "status line"),
        ("HTTP/1.1 101 Switching\r\n\r\n".to_owned(), "switched"),
        ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), "neither"),
        ("HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n".to_owned(), "without CR"),
        (with_head("nocolon"), "colon"),
        (with_head(": x"), "name"),
        (with_head("a b: x"), "name"),
        (with_head("a: x\u{1}"), "control"),
        (with_head("Content-Length: +1"), "number of bytes"),
        (with_head("Content-Length: "), "number of bytes"),
        (with_head("Content-Length: 9999999999999999999"), "number of bytes"),
        (with_head("Content-Length: 1\r\nContent-Length: 2"), "two different"),
        (with_head("Content-Length: 1\r\nTransfer-Encoding: chunked"), "both"),
        (with_head("Transfer-Encoding: gzip"), "not chunked"),
        (with_head(&format!("x: {}", "y".repeat(70_000))), "too large"),
        (chunked("x"), "no size"),
        (chunked("1g"), "hexadecimal"),
        (chunked("1111111111111111\r\n"), "too large"),
        (chunked("1\r\nabc"), "does not end"),
        (chunked("1;a\nb"), "without CR"),
        (chunked("0\r\nA: b\n"), "without CR"),
        (chunked(&format!("1;{}", "x".repeat(70_000))), "extension"),
    ] {
        for piece in [1, 100_000] {
            let error = parse(bytes.as_bytes(), piece, false).expect_err(&bytes[..bytes.len().min(80)]);
            assert!(error.0.contains(words), "{:?}: {}", &bytes[..bytes.len().min(80)], error.0);
        }
    }
}

proptest! {
    #[test]
    fn any_change_of_any_bytes_is_survived(changes in prop::collection::vec((0..MIXED.len(), any::<u8>()), 0..6), piece in 1..50usize) {
        let mut bytes = MIXED.to_vec();
        for (index, byte) in changes {
            bytes[index] = byte;
        }
        drop(parse(&bytes, piece, false));
    }

    #[test]
    fn the_pieces_do_not_change_the_outcome(changes in prop::collection::vec((0..MIXED.len(), any::<u8>()), 0..3), piece in 1..50usize) {
        let mut bytes = MIXED.to_vec();
        for (index, byte) in changes {
            bytes[index] = byte;
        }
        prop_assert_eq!(parse(&bytes, piece, false), parse(&bytes, bytes.len(), false));
    }
}
