//! The front end to end: raw sockets, signed requests, a store in memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_api::objects::ChecksumAlgorithm;
use millrace_checksum::checksum as digest;
use millrace_s3::front::Options;

use crate::support::{Client, serve};

/// Bytes that differ from their neighbours.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

fn served() -> (std::net::SocketAddr, Client) {
    let address = serve(Options::default());
    let mut alice = Client::new(address, Some("alice"));
    assert_eq!(alice.put("/abc", b"").status, 200);
    (address, alice)
}

#[test]
fn objects_are_put_read_listed_and_deleted() {
    let (_, mut alice) = served();
    for length in [0, 1, 1_000, 65_536, 65_537, 3_000_000] {
        let body = content(length);
        let put = alice.send("PUT", "/abc/a%20b/%C3%A4", &[("x-amz-meta-a", "1"), ("content-type", "x/y")], &body);
        assert_eq!(put.status, 200, "{}", put.text());
        let got = alice.get("/abc/a%20b/%C3%A4");
        assert_eq!((got.status, got.body.len()), (200, length));
        assert!(got.body == body);
        assert_eq!(got.header("etag"), put.header("etag"));
        assert_eq!((got.header("x-amz-meta-a"), got.header("content-type")), (Some("1"), Some("x/y")));
        let head = alice.send("HEAD", "/abc/a%20b/%C3%A4", &[], b"");
        assert_eq!((head.status, head.header("content-length")), (200, Some(length.to_string().as_str())));
    }
    let list = alice.get("/abc?list-type=2&encoding-type=url");
    assert_eq!((list.element("KeyCount"), list.element("Key")), ("1".to_owned(), "a%20b/%C3%A4".to_owned()));
    assert_eq!(alice.get("/").element("Name"), "abc");
    assert_eq!(alice.send("DELETE", "/abc", &[], b"").code(), (409, "BucketNotEmpty".to_owned()));
    assert_eq!(alice.send("DELETE", "/abc/a%20b/%C3%A4", &[], b"").status, 204);
    let missing = alice.get("/abc/a%20b/%C3%A4");
    assert_eq!(missing.code(), (404, "NoSuchKey".to_owned()));
    assert_eq!(missing.element("Resource"), "/abc/a%20b/%C3%A4");
    assert_eq!(missing.header("x-amz-request-id"), Some(missing.element("RequestId").as_str()));
    assert_eq!(alice.send("DELETE", "/abc", &[], b"").status, 204);
    assert_eq!(alice.send("HEAD", "/abc", &[], b"").status, 404);
}

/// A client that gets a status stops, or tells somebody. One whose connection closes tries again for minutes.
#[test]
fn damage_where_a_read_begins_is_answered_with_a_status() {
    let (_, mut alice) = served();
    let lost = |from: &'static str| [("x-amz-meta-lost-from", from)];
    assert_eq!(alice.send("PUT", "/abc/k", &lost("0"), &content(250_000)).status, 200);
    let got = alice.get("/abc/k");
    assert_eq!(got.code(), (500, "InternalError".to_owned()));
    assert!(got.element("Message").contains("damaged"), "{}", got.text());
    // The connection goes on.
    assert_eq!(alice.send("PUT", "/abc/k", &lost("200000"), &content(250_000)).status, 200);
    let inside = alice.send("GET", "/abc/k", &[("range", "bytes=200000-")], b"");
    assert_eq!(inside.code(), (500, "InternalError".to_owned()));
    let before = alice.send("GET", "/abc/k", &[("range", "bytes=0-199999")], b"");
    assert_eq!((before.status, before.body.len()), (206, 200_000));
    let copied = alice.send("PUT", "/abc/copy", &[("x-amz-copy-source", "/abc/k")], b"");
    assert_eq!(copied.code(), (500, "InternalError".to_owned()));
}

#[test]
fn ranges_and_conditions_are_answered() {
    let (_, mut alice) = served();
    let body = content(250_000);
    let etag = alice.put("/abc/k", &body).header("etag").expect("an ETag").to_owned();
    for (range, status, first, last) in [
        ("bytes=0-9", 206, 0, 9),
        ("bytes=100000-", 206, 100_000, 249_999),
        ("bytes=-5", 206, 249_995, 249_999),
        ("bytes=0-1,4-5", 200, 0, 249_999),
        ("bytes=9-1", 200, 0, 249_999),
    ] {
        let got = alice.send("GET", "/abc/k", &[("range", range)], b"");
        assert_eq!(got.status, status, "{range}");
        assert!(got.body == body[first..=last], "{range}");
        if status == 206 {
            assert_eq!(got.header("content-range"), Some(format!("bytes {first}-{last}/250000").as_str()));
        }
    }
    let outside = alice.send("GET", "/abc/k", &[("range", "bytes=250000-")], b"");
    assert_eq!(outside.code(), (416, "InvalidRange".to_owned()));
    assert_eq!(outside.header("content-range"), Some("bytes */250000"));
    let unchanged = alice.send("GET", "/abc/k", &[("if-none-match", &etag)], b"");
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some(etag.as_str())));
    assert_eq!(alice.send("GET", "/abc/k", &[("if-match", "\"x\"")], b"").status, 412);
    // A client that goes on with a copy it has gets the rest only if the object is still the same.
    let then = "Tue, 27 Mar 2007 19:36:42 GMT";
    let modified = alice.get("/abc/k").header("last-modified").expect("a date").to_owned();
    let weak = format!("W/{etag}");
    for (condition, status) in
        [(etag.as_str(), 206), ("\"x\"", 200), (weak.as_str(), 200), (modified.as_str(), 206), (then, 200), ("?", 200)]
    {
        let got = alice.send("GET", "/abc/k", &[("range", "bytes=5-9"), ("if-range", condition)], b"");
        let wanted = if status == 206 { &body[5..10] } else { &body[..] };
        assert_eq!((got.status, got.body == wanted), (status, true), "{condition}");
    }
    let source = alice.send("PUT", "/abc/other", &[("x-amz-copy-source-if-match", &etag)], b"x");
    assert_eq!(source.code(), (400, "InvalidArgument".to_owned()));
    let exists = alice.send("PUT", "/abc/k", &[("if-none-match", "*")], b"x");
    assert_eq!(exists.code(), (412, "PreconditionFailed".to_owned()));
    let overridden = alice.get("/abc/k?response-content-type=a%2Fb&response-expires=never");
    assert_eq!((overridden.header("content-type"), overridden.header("expires")), (Some("a/b"), Some("never")));
}

#[test]
fn what_a_client_says_of_its_body_is_compared() {
    let (_, mut alice) = served();
    let body = content(100_000);
    let crc = STANDARD.encode(digest(ChecksumAlgorithm::Crc32, &body));
    let put = alice.send("PUT", "/abc/k", &[("x-amz-checksum-crc32", &crc)], &body);
    assert_eq!((put.status, put.header("x-amz-checksum-crc32")), (200, Some(crc.as_str())));
    let got = alice.send("GET", "/abc/k", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert_eq!(got.header("x-amz-checksum-crc32"), Some(crc.as_str()));
    for (headers, code) in [
        (vec![("x-amz-checksum-crc32", "AAAAAA==")], "BadDigest"),
        (vec![("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], "BadDigest"),
        (vec![("content-md5", "x")], "InvalidDigest"),
        (vec![("x-amz-checksum-crc32", "no base64!")], "InvalidRequest"),
        (vec![("x-amz-checksum-crc32", "x")], "BadDigest"),
    ] {
        let refused = alice.send("PUT", "/abc/other", &headers, &body);
        assert_eq!(refused.code(), (400, code.to_owned()), "{headers:?}");
    }
    let mut other = body.clone();
    other[99_999] ^= 1;
    let head = alice.head("PUT", "/abc/other", &[], &other, body.len());
    alice.write(&head);
    alice.write(&body);
    assert_eq!(alice.read("PUT").code(), (400, "XAmzContentSHA256Mismatch".to_owned()));
    assert_eq!(alice.get("/abc/other").status, 404);
    let delete = "<Delete><Object><Key>k</Key></Object></Delete>";
    let unproven = alice.send("POST", "/abc?delete", &[], delete.as_bytes());
    assert_eq!(unproven.code(), (400, "InvalidRequest".to_owned()));
    let md5 = STANDARD.encode(digest(ChecksumAlgorithm::Md5, delete.as_bytes()));
    let proven = alice.send("POST", "/abc?delete", &[("content-md5", &md5)], delete.as_bytes());
    assert_eq!((proven.status, proven.element("Key")), (200, "k".to_owned()));
}

#[test]
fn bodies_come_in_chunks_with_a_trailer() {
    let (_, mut alice) = served();
    let body = content(150_000);
    let crc = STANDARD.encode(digest(ChecksumAlgorithm::Crc32, &body));
    let chunked = |trailer: &str| {
        let mut bytes = Vec::new();
        for chunk in body.chunks(65_536) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("0\r\nx-amz-checksum-crc32:{trailer}\r\n\r\n").as_bytes());
        bytes
    };
    let headers = [
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-decoded-content-length", "150000"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("content-encoding", "aws-chunked"),
    ];
    let put = alice.send("PUT", "/abc/k", &headers, &chunked(&crc));
    assert_eq!((put.status, put.header("x-amz-checksum-crc32")), (200, Some(crc.as_str())), "{}", put.text());
    let got = alice.get("/abc/k");
    assert!(got.body == body);
    assert_eq!(got.header("content-encoding"), None);
    let wrong = alice.send("PUT", "/abc/other", &headers, &chunked("AAAAAA=="));
    assert_eq!(wrong.code(), (400, "BadDigest".to_owned()));
    let mut cut = chunked(&crc);
    cut.truncate(100_000);
    assert_eq!(alice.send("PUT", "/abc/other", &headers, &cut).code(), (400, "IncompleteBody".to_owned()));
    assert_eq!(alice.get("/abc/other").status, 404);
    // Whatever the pieces in which it comes.
    let bytes = chunked(&crc);
    let head = alice.head("PUT", "/abc/pieces", &headers, &bytes, bytes.len());
    for piece in [&head[..], &bytes[..]].concat().chunks(7_919) {
        alice.write(piece);
    }
    assert_eq!(alice.read("PUT").status, 200);
    assert!(alice.get("/abc/pieces").body == body);
}

#[test]
fn continue_comes_after_the_preflight_and_not_for_the_refused() {
    let (address, mut alice) = served();
    let body = content(100_000);
    let head = alice.head("PUT", "/abc/k", &[("expect", "100-continue")], &body, body.len());
    alice.write(&head);
    assert_eq!(alice.read("PUT").status, 100);
    alice.write(&body);
    assert_eq!(alice.read("PUT").status, 200);
    let mut bob = Client::new(address, Some("bob"));
    let head = bob.head("PUT", "/abc/k", &[("expect", "100-continue")], &body, body.len());
    bob.write(&head);
    let refused = bob.read("PUT");
    assert_eq!(refused.code(), (403, "AccessDenied".to_owned()));
    // Its body may still come. Else a pool of clients would send its next request on a connection that is being closed.
    assert_eq!(refused.header("connection"), Some("close"));
    let mut bob = Client::new(address, Some("bob"));
    let refused = bob.send("PUT", "/abc/k", &[], b"small");
    assert_eq!((refused.status, refused.header("connection")), (403, None), "what was sent was read");
    // A small body is written without asking before, unless its client waits.
    let mut anonymous = Client::new(address, None);
    anonymous.write(b"PUT /abc/k HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(anonymous.read("PUT").code(), (403, "AccessDenied".to_owned()));
}

#[test]
fn bodies_say_where_they_end() {
    let (_, mut alice) = served();
    let without = |alice: &Client, body: &[u8], other: &str| {
        let head = String::from_utf8(alice.head("PUT", "/abc/k", &[], body, 3)).expect("text");
        head.replace("content-length: 3\r\n", other)
    };
    let chunked = without(&alice, b"abc", "transfer-encoding: chunked\r\n");
    alice.write(chunked.as_bytes());
    alice.write(b"3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(alice.read("PUT").status, 200);
    assert_eq!(alice.get("/abc/k").body, b"abc");
    let silent = without(&alice, b"", "");
    alice.write(silent.as_bytes());
    assert_eq!(alice.read("PUT").code(), (411, "MissingContentLength".to_owned()));
}

#[test]
fn who_may_not_is_refused() {
    let (address, mut alice) = served();
    assert_eq!(alice.put("/abc/secret", b"x").status, 200);
    assert_eq!(alice.send("PUT", "/abc/open", &[("x-amz-acl", "public-read")], b"x").status, 200);
    let mut bob = Client::new(address, Some("bob"));
    assert_eq!(bob.get("/abc/secret").code(), (403, "AccessDenied".to_owned()));
    assert_eq!(bob.put("/abc", b"").code(), (409, "BucketAlreadyExists".to_owned()));
    let mut eve = Client::new(address, Some("eve"));
    assert_eq!(eve.get("/abc/secret").code(), (403, "InvalidAccessKeyId".to_owned()));
    let mut anonymous = Client::new(address, None);
    assert_eq!(anonymous.get("/abc/secret").code(), (403, "AccessDenied".to_owned()));
    assert_eq!((anonymous.get("/abc/open").status, anonymous.get("/").status), (200, 403));
    // Not a byte of a signed request may change.
    let mut mallory = Client::new(address, Some("alice"));
    let head = mallory.head("GET", "/abc/secret", &[], b"", 0);
    let head = String::from_utf8(head).expect("text").replace("/abc/secret", "/abc/secreT");
    mallory.write(head.as_bytes());
    assert_eq!(mallory.read("GET").code(), (403, "SignatureDoesNotMatch".to_owned()));
}

#[test]
fn a_part_of_a_composite_upload_comes_with_its_checksum() {
    let (_, mut alice) = served();
    let part_of = |alice: &mut Client, kind| {
        let begin = [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", kind)];
        let id = alice.send("POST", "/abc/k?uploads", &begin, b"").element("UploadId");
        alice.put(&format!("/abc/k?partNumber=1&uploadId={id}"), b"hello")
    };
    let refused = part_of(&mut alice, "COMPOSITE");
    assert_eq!(refused.code(), (400, "InvalidRequest".to_owned()));
    assert!(refused.element("Message").contains("expected checksum Type: crc32"), "{}", refused.text());
    // Without a type that is made of the client's own checksums, the server's will do.
    assert_eq!(part_of(&mut alice, "FULL_OBJECT").status, 200);
}

#[test]
fn a_completion_names_the_kind_of_checksum_that_its_upload_has() {
    let (_, mut alice) = served();
    let begin = [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "COMPOSITE")];
    let id = alice.send("POST", "/abc/k?uploads", &begin, b"").element("UploadId");
    let checksum = [("x-amz-checksum-crc32", "NhCmhg==")];
    let part = alice.send("PUT", &format!("/abc/k?partNumber=1&uploadId={id}"), &checksum, b"hello");
    let etag = part.header("etag").expect("an ETag");
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let uri = format!("/abc/k?uploadId={id}");
    let mut complete = |kind| alice.send("POST", &uri, &[("x-amz-checksum-type", kind)], document.as_bytes());
    let refused = complete("FULL_OBJECT");
    assert_eq!(refused.code(), (400, "InvalidRequest".to_owned()));
    assert!(refused.element("Message").contains("COMPOSITE"), "{}", refused.text());
    assert_eq!(complete("COMPOSITE").status, 200);
}

#[test]
fn uploads_of_parts_become_objects() {
    let (_, mut alice) = served();
    let id = alice.send("POST", "/abc/k?uploads", &[], b"").element("UploadId");
    let (first, second) = (content(200_000), content(70_000));
    let part = |alice: &mut Client, number: u16, body: &[u8]| {
        let reply = alice.put(&format!("/abc/k?partNumber={number}&uploadId={id}"), body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.header("etag").expect("an ETag").to_owned()
    };
    let etags = [part(&mut alice, 1, &first), part(&mut alice, 2, &second)];
    assert_eq!(alice.put("/abc/source", &content(5_000)).status, 200);
    let copy = [("x-amz-copy-source", "/abc/source"), ("x-amz-copy-source-range", "bytes=10-19")];
    let copied = alice.send("PUT", &format!("/abc/k?partNumber=3&uploadId={id}"), &copy, b"");
    assert!(copied.text().contains("<CopyPartResult"), "{}", copied.text());
    let outside = [("x-amz-copy-source", "/abc/source"), ("x-amz-copy-source-range", "bytes=10-5000")];
    let refused = alice.send("PUT", &format!("/abc/k?partNumber=3&uploadId={id}"), &outside, b"");
    assert_eq!(refused.code(), (416, "InvalidRange".to_owned()));
    let third = copied.element("ETag").replace("&quot;", "\"");
    assert_eq!(alice.get(&format!("/abc/k?uploadId={id}")).element("PartNumber"), "1");
    let mut document = "<CompleteMultipartUpload>".to_owned();
    for (number, etag) in [(1, &etags[0]), (2, &etags[1]), (3, &third)] {
        document.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
    }
    document.push_str("</CompleteMultipartUpload>");
    let uri = format!("/abc/k?uploadId={id}");
    for document in [&b"<x/>"[..], b""] {
        assert_eq!(alice.send("POST", &uri, &[], document).code(), (400, "MalformedXML".to_owned()));
    }
    let done = alice.send("POST", &uri, &[], document.as_bytes());
    assert_eq!((done.status, done.element("Key")), (200, "k".to_owned()), "{}", done.text());
    assert!(done.element("Location").ends_with("/abc/k"));
    assert!(alice.get("/abc/k").body == [&first[..], &second, &content(5_000)[10..20]].concat());
    assert_eq!(alice.send("DELETE", &uri, &[], b"").code(), (404, "NoSuchUpload".to_owned()));
    for number in ["0", "10001", "x"] {
        let refused = alice.put(&format!("/abc/k?partNumber={number}&uploadId={id}"), b"x");
        assert_eq!(refused.code(), (400, "InvalidArgument".to_owned()));
    }
}

#[test]
fn copies_take_what_they_are_told() {
    let (_, mut alice) = served();
    let body = content(300_000);
    alice.send("PUT", "/abc/a", &[("x-amz-meta-a", "1"), ("x-amz-tagging", "t=1")], &body);
    let copied = alice.send("PUT", "/abc/b", &[("x-amz-copy-source", "abc/a")], b"");
    assert!(copied.status == 200 && copied.text().contains("<CopyObjectResult"), "{}", copied.text());
    let got = alice.get("/abc/b");
    assert!(got.body == body && got.header("x-amz-meta-a") == Some("1"));
    let replace = [("x-amz-copy-source", "abc/a"), ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-b", "2")];
    assert_eq!(alice.send("PUT", "/abc/a", &replace, b"").status, 200);
    let got = alice.get("/abc/a");
    assert_eq!((got.header("x-amz-meta-a"), got.header("x-amz-meta-b")), (None, Some("2")));
    assert_eq!(alice.get("/abc/a?tagging").element("Key"), "t");
    for (headers, code) in [
        (vec![("x-amz-copy-source", "abc/a")], (400, "InvalidRequest")),
        (vec![("x-amz-copy-source", "abc/missing")], (404, "NoSuchKey")),
        (vec![("x-amz-copy-source", "abc")], (400, "InvalidArgument")),
        (vec![("x-amz-copy-source", "abc/a"), ("x-amz-metadata-directive", "MOVE")], (400, "InvalidArgument")),
        (vec![("x-amz-copy-source", "abc/b"), ("x-amz-copy-source-if-match", "x")], (412, "PreconditionFailed")),
        (vec![("x-amz-copy-source", "abc/b"), ("x-amz-copy-source-if-none-match", "*")], (412, "PreconditionFailed")),
    ] {
        assert_eq!(alice.send("PUT", "/abc/a", &headers, b"").code(), (code.0, code.1.to_owned()), "{headers:?}");
    }
}

#[test]
fn pages_of_other_origins_follow_the_rules() {
    let (address, mut alice) = served();
    let mut browser = Client::new(address, None);
    let asked = [("origin", "https://shop.test"), ("access-control-request-method", "PUT")];
    assert_eq!(browser.send("OPTIONS", "/abc/k", &asked, b"").status, 403);
    let refused = browser.send("OPTIONS", "/abc/k", &[], b"");
    assert_eq!(refused.code(), (400, "BadRequest".to_owned()));
    let rules = "<CORSConfiguration><CORSRule><AllowedMethod>PUT</AllowedMethod><AllowedOrigin>*</AllowedOrigin></CORSRule>\
                 </CORSConfiguration>";
    assert_eq!(alice.send("PUT", "/abc?cors", &[], rules.as_bytes()).status, 200);
    let allowed = browser.send("OPTIONS", "/abc/k", &asked, b"");
    assert_eq!((allowed.status, allowed.header("access-control-allow-origin")), (200, Some("https://shop.test")));
    let refused = browser.send("GET", "/abc/k", &[("origin", "https://shop.test")], b"");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (403, Some("https://shop.test")));
    // The method that a client says it asks for counts, also beside another request.
    let methods: Vec<Option<String>> = [&asked[..1], &asked]
        .map(|headers| browser.send("GET", "/abc/k", headers, b""))
        .iter()
        .map(|reply| reply.header("access-control-allow-methods").map(str::to_owned))
        .collect();
    assert_eq!(methods, [Some("GET".to_owned()), Some("PUT".to_owned())]);
    assert!(alice.get("/abc?cors").text().contains("<AllowedMethod>PUT</AllowedMethod>"));
}

#[test]
fn malformed_requests_are_answered_with_their_code() {
    let (_, mut alice) = served();
    for (method, uri, headers, code) in [
        ("GET", "/ab", vec![], (400, "InvalidBucketName")),
        ("GET", "/abc/%ff", vec![], (400, "InvalidURI")),
        ("GET", "/abc?max-keys=x", vec![], (400, "InvalidArgument")),
        ("PATCH", "/abc/k", vec![], (405, "MethodNotAllowed")),
        ("GET", "/abc?inventory", vec![], (501, "NotImplemented")),
        ("PUT", "/abc/k", vec![("x-amz-server-side-encryption", "AES256")], (501, "NotImplemented")),
        ("PUT", "/abc?tagging", vec![], (400, "MissingRequestBodyError")),
        ("GET", "/other", vec![], (404, "NoSuchBucket")),
        ("GET", "/abc?website", vec![], (404, "NoSuchWebsiteConfiguration")),
        ("GET", "/abc/k?partNumber=0", vec![], (400, "InvalidArgument")),
    ] {
        let reply = alice.send(method, uri, &headers, b"");
        assert_eq!(reply.code(), (code.0, code.1.to_owned()), "{method} {uri}");
    }
    let long = format!("/abc/{}", "k".repeat(1025));
    assert_eq!(alice.get(&long).code(), (400, "KeyTooLongError".to_owned()));
    let large = vec![b'x'; (4 << 20) + 1];
    assert_eq!(alice.send("PUT", "/abc?policy", &[], &large).code(), (400, "MaxMessageLengthExceeded".to_owned()));
    let fits = format!("/abc/{}", "%C3%A4".repeat(512));
    assert_eq!(alice.put(&fits, b"x").status, 200);
}

#[test]
fn buckets_can_stand_in_the_host() {
    let address = serve(Options { domains: vec!["s3.test".to_owned()], ..Options::default() });
    let mut client = Client::new(address, None);
    client.write(b"GET /a/b?inventory HTTP/1.1\r\nhost: my.bucket.s3.test:9000\r\n\r\n");
    let reply = client.read("GET");
    assert_eq!(reply.code(), (404, "NoSuchBucket".to_owned()), "a key's query is passed over");
}
