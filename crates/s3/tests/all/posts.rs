//! Forms of browsers and presigned requests, by sockets.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_s3::front::Options;
use millrace_s3::signature::{Request, SigningKey, canonical, date};

use crate::support::{Client, Reply, serve};

fn timestamp() -> String {
    date::format(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs())
}

/// The fields of a form that Alice signed, with these conditions.
fn fields(conditions: &str, key: &str) -> Vec<(String, String)> {
    let timestamp = timestamp();
    let day = &timestamp[..8];
    let credential = format!("alice/{day}/us-east-1/s3/aws4_request");
    let policy = format!(
        "{{\"expiration\":\"2999-01-01T00:00:00Z\",\"conditions\":[{{\"bucket\":\"abc\"}},[\"starts-with\",\"$key\",\"in/\"],\
         {{\"x-amz-algorithm\":\"AWS4-HMAC-SHA256\"}},{{\"x-amz-credential\":\"{credential}\"}},\
         {{\"x-amz-date\":\"{timestamp}\"}}{conditions}]}}"
    );
    let policy = STANDARD.encode(policy);
    let signature = SigningKey::derive("alice-secret", day, "us-east-1").sign(policy.as_bytes());
    [
        ("key", key),
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
        ("X-Amz-Credential", &credential),
        ("X-Amz-Date", &timestamp),
        ("Policy", &policy),
        ("X-Amz-Signature", &signature),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

fn post(client: &mut Client, fields: &[(String, String)], file: &[u8]) -> Reply {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part = format!("--xyz\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    let head =
        "--xyz\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\ncontent-type: x/y\r\n\r\n";
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(b"\r\n--xyz--\r\n");
    client.send("POST", "/abc", &[("content-type", "multipart/form-data; boundary=xyz")], &body)
}

#[test]
fn forms_make_objects() {
    let address = serve(Options::default());
    let mut alice = Client::new(address, Some("alice"));
    assert_eq!(alice.put("/abc", b"").status, 200);
    let mut browser = Client::new(address, None);
    let file: Vec<u8> = (0..300_000u32).map(|at| (at % 253) as u8).collect();
    let done = post(&mut browser, &fields("", "in/${filename}"), &file);
    assert_eq!(done.status, 204, "{}", done.text());
    let got = alice.get("/abc/in/a.txt");
    assert!(got.body == file);
    assert_eq!(got.header("content-type"), Some("x/y"));

    let more = ",[\"content-length-range\",1,10],{\"success_action_status\":\"201\"},{\"x-amz-meta-a\":\"1\"},{\"tagging\":\"<Tagging><TagSet/></Tagging>\"}";
    let mut bounded = fields(more, "in/b");
    let add =
        |fields: &mut Vec<(String, String)>, name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
    add(&mut bounded, "success_action_status", "201");
    add(&mut bounded, "x-amz-meta-a", "1");
    add(&mut bounded, "tagging", "<Tagging><TagSet/></Tagging>");
    let done = post(&mut browser, &bounded, b"abc");
    assert_eq!((done.status, done.element("Key")), (201, "in/b".to_owned()), "{}", done.text());
    assert_eq!(alice.get("/abc/in/b").header("x-amz-meta-a"), Some("1"));
    assert_eq!(post(&mut browser, &bounded, b"").code(), (400, "EntityTooSmall".to_owned()));
    assert_eq!(post(&mut browser, &bounded, &file).code(), (400, "EntityTooLarge".to_owned()));

    let mut redirected = fields(",{\"success_action_redirect\":\"http://shop.test/done\"}", "in/c");
    add(&mut redirected, "success_action_redirect", "http://shop.test/done");
    let done = post(&mut browser, &redirected, b"c");
    let address = done.header("location").expect("a location").to_owned();
    assert_eq!(done.status, 303);
    assert!(address.starts_with("http://shop.test/done?bucket=abc&key=in%2Fc&etag=%22"), "{address}");
}

#[test]
fn forms_that_break_their_policy_are_refused() {
    let address = serve(Options::default());
    let mut alice = Client::new(address, Some("alice"));
    assert_eq!(alice.put("/abc", b"").status, 200);
    let mut browser = Client::new(address, None);
    let mut refused = |fields: &[(String, String)]| post(&mut browser, fields, b"x").code();
    let changed = |name: &str, value: &str| {
        let mut fields = fields("", "in/k");
        fields.retain(|(own, _)| own != name);
        if !value.is_empty() {
            fields.push((name.to_owned(), value.to_owned()));
        }
        fields
    };
    for (fields, status, code) in [
        (changed("key", "out/k"), 403, "AccessDenied"),
        (changed("key", ""), 403, "AccessDenied"),
        (changed("acl", "public-read"), 403, "AccessDenied"),
        (changed("X-Amz-Signature", &"0".repeat(64)), 403, "SignatureDoesNotMatch"),
        (changed("Policy", ""), 400, "InvalidArgument"),
        (vec![("key".to_owned(), "k".to_owned())], 403, "AccessDenied"),
        (vec![], 400, "UserKeyMustBeSpecified"),
    ] {
        assert_eq!(refused(&fields), (status, code.to_owned()), "{fields:?}");
    }
    assert!(!alice.get("/abc").text().contains("<Contents>"));
}

#[test]
fn presigned_urls_are_read() {
    let address = serve(Options::default());
    let mut alice = Client::new(address, Some("alice"));
    assert_eq!((alice.put("/abc", b"").status, alice.put("/abc/k", b"x").status), (200, 200));
    let host = address.to_string();
    let timestamp = timestamp();
    let day = &timestamp[..8];
    let scope = format!("{day}/us-east-1/s3/aws4_request");
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=alice%2F{}&X-Amz-Date={timestamp}&X-Amz-Expires=60&\
         X-Amz-SignedHeaders=host",
        scope.replace('/', "%2F")
    );
    let request =
        Request { method: "GET", path: "/abc/k", query: &query, host: &host, bucket_in_host: None, headers: &[] };
    let text = canonical::request(&request, &["host"], "UNSIGNED-PAYLOAD");
    let text = canonical::string_to_sign(&timestamp, &scope, &text);
    let signature = SigningKey::derive("alice-secret", day, "us-east-1").sign(text.as_bytes());
    let mut browser = Client::new(address, None);
    let got = browser.get(&format!("/abc/k?{query}&X-Amz-Signature={signature}"));
    assert_eq!((got.status, got.body.as_slice()), (200, &b"x"[..]), "{}", got.text());
    let other = browser.get(&format!("/abc/other?{query}&X-Amz-Signature={signature}"));
    assert_eq!(other.code(), (403, "SignatureDoesNotMatch".to_owned()));
}
