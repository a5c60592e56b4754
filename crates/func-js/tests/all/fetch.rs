//! `ctx.fetch`: what is asked for, what comes back, and what is refused.

use crate::common::{Request, World, service};
use millrace_base::{Error, ErrorCode, limits};
use millrace_func::FetchRequest;

fn json(request: &FetchRequest) -> Result<String, Error> {
    let body = match request.url.as_str() {
        "http://a/json" => r#"{"user":"ä","n":[1,2]}"#.as_bytes(),
        "http://a/bytes" => &[0, 255, 10],
        "http://a/bom" => b"\xEF\xBB\xBF\"x\"",
        "http://a/none" => b"",
        "http://a/fails" => return Err(Error::new(ErrorCode::FetchFailed, "connection refused")),
        "http://a/broken" => return Ok("{}".into()),
        _ => b"text",
    };
    let status = if request.url.ends_with("missing") { 404 } else { 200 };
    let headers = r#"[["content-type","text/plain"],["set-cookie","a=1"],["set-cookie","b=2"],["get","evil"],["__proto__","own"],["to\"string","x"]]"#;
    let body = millrace_func::base64_encode(body, millrace_func::Base64Alphabet::Standard);
    Ok(format!(r#"{{"status":{status},"headers":{headers},"body":"{body}"}}"#))
}

/// A route with this body.
fn route(body: &str) -> (World, Result<String, Error>) {
    let mut world = service(&format!("export const routes = {{ 'GET /': async (ctx, request) => {{ {body} }} }};"));
    world.state.outside = Some(json);
    let reply = world.route(0, &Request::default());
    (world, reply.map(|reply| String::from_utf8(reply.body.to_vec()).expect("UTF-8")))
}

fn asked(body: &str) -> FetchRequest {
    let (world, reply) = route(body);
    reply.unwrap_or_else(|error| panic!("{body}: {error}"));
    world.state.fetched[0].clone()
}

#[test]
fn a_plain_fetch_has_the_defaults() {
    let expected = FetchRequest {
        method: "GET".into(),
        url: "http://a/".into(),
        headers: vec![],
        body: bytes::Bytes::new(),
        timeout_ms: 10_000,
        response_bytes: 4 << 20,
        retries: 5,
    };
    assert_eq!(asked("await ctx.fetch('http://a/');"), expected);
    assert_eq!(asked("await ctx.fetch('http://a/', {});"), expected);
    assert_eq!(
        asked("await ctx.fetch('http://a/', { method: undefined, headers: null, body: null, timeoutMs: undefined });"),
        expected
    );
}

#[test]
fn every_option_arrives() {
    let request = asked(
        "await ctx.fetch('HTTPS://user@host:1/p?q=%20#f', { method: 'patch', timeoutMs: 60000,
           headers: { Accept: 'a/b', 'X-N': 5, 'X-L': ['1', '2'] }, body: { a: [1, 'ä'] } });",
    );
    assert_eq!((request.method.as_str(), request.url.as_str()), ("PATCH", "HTTPS://user@host:1/p?q=%20#f"));
    assert_eq!(request.timeout_ms, 60_000);
    let headers: Vec<(&str, &str)> = request.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let expected = [("accept", "a/b"), ("x-n", "5"), ("x-l", "1"), ("x-l", "2"), ("content-type", "application/json")];
    assert_eq!(headers, expected);
    assert_eq!(&request.body[..], r#"{"a":[1,"ä"]}"#.as_bytes());
}

#[test]
fn bodies_have_their_types() {
    let sent = |body: &str| {
        let request = asked(&format!("await ctx.fetch('http://a/', {{ method: 'POST', {body} }});"));
        let content_type =
            request.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value.clone());
        (request.body.to_vec(), content_type.unwrap_or_default())
    };
    assert_eq!(sent("body: 'ä'"), ("ä".as_bytes().to_vec(), "text/plain; charset=utf-8".into()));
    assert_eq!(sent("body: new Uint8Array([0, 255])"), (vec![0, 255], String::new()));
    assert_eq!(sent("body: [1]"), (b"[1]".to_vec(), "application/json".into()));
    assert_eq!(sent("body: 5"), (b"5".to_vec(), "application/json".into()));
    assert_eq!(sent("body: false"), (b"false".to_vec(), "application/json".into()));
    assert_eq!(sent("body: [1], headers: { 'Content-Type': 'x/y' }"), (b"[1]".to_vec(), "x/y".into()));
    assert_eq!(sent("body: ''"), (Vec::new(), "text/plain; charset=utf-8".into()));
}

#[test]
fn a_response_can_be_read_in_every_way() {
    let read = |body: &str| route(body).1.unwrap_or_else(|error| panic!("{body}: {error}"));
    assert_eq!(
        read(
            "const r = await ctx.fetch('http://a/json'); return [r.status, r.ok, r.json().user, (await r.json()).n, r.text().length, r.bytes() instanceof Uint8Array];"
        ),
        r#"[200,true,"ä",[1,2],22,true]"#
    );
    assert_eq!(
        read("const r = await ctx.fetch('http://a/missing'); return [r.status, r.ok, r.text()];"),
        r#"[404,false,"text"]"#
    );
    assert_eq!(read("return [...(await ctx.fetch('http://a/bytes')).bytes()];"), "[0,255,10]");
    assert_eq!(read("const r = await ctx.fetch('http://a/bom'); return [r.json(), r.text()];"), r#"["x","\"x\""]"#);
    assert_eq!(read("const r = await ctx.fetch('http://a/none'); return [r.text(), r.bytes().length];"), r#"["",0]"#);
    assert_eq!(
        read(
            "const { headers } = await ctx.fetch('http://a/json'); return [headers.get('Content-Type'), headers['content-type'], headers.get('set-cookie'), headers.get('nope'), headers.get('get'), Object.keys(headers)];"
        ),
        r#"["text/plain","text/plain","a=1, b=2",null,"evil",["content-type","set-cookie","__proto__","to\"string"]]"#
    );
    assert_eq!(
        read("const r = await ctx.fetch('http://a/json'); delete r.headers.__proto__; return { body: r };"),
        r#"{"status":200,"ok":true,"headers":{"content-type":"text/plain","set-cookie":"a=1, b=2","to\"string":"x"}}"#
    );
    let error = route("return (await ctx.fetch('http://a/text')).json();").1.expect_err("not JSON");
    assert!(error.message.starts_with("SyntaxError: the response (status 200) is not JSON: "), "{error}");
}

#[test]
fn failures_are_thrown_with_their_code() {
    let body = "try { await ctx.fetch('http://a/fails'); } catch (error) { return [error.code, error.message]; }";
    assert_eq!(route(body).1, Ok(r#"["fetch-failed","connection refused"]"#.into()));
    assert_eq!(route("await ctx.fetch('http://a/fails');").1.expect_err("fails").code, ErrorCode::FetchFailed);
    assert_eq!(route("await ctx.fetch('http://a/broken');").1.expect_err("fails").code, ErrorCode::Internal);
}

#[test]
fn wrong_requests_say_why() {
    for (arguments, why) in [
        ("", "a URL as a string"),
        ("5", "a URL as a string"),
        ("'/path'", "absolute URL"),
        ("'ftp://a/'", "http:// or https://"),
        ("'a'", "absolute URL"),
        ("'http://a/ b'", "encodeURIComponent"),
        ("'http://a/ä'", "encodeURIComponent"),
        ("'http://a/\\r\\nx: y'", "encodeURIComponent"),
        ("'http://a/' + 'x'.repeat(8192)", "at most 8192 bytes"),
        ("'http://a/', 5", "the options of a route's ctx.fetch are an object: { method, headers, body, timeoutMs }"),
        ("'http://a/', { timeout: 5 }", "only the options method"),
        ("'http://a/', { signal: null }", "only the options method"),
        ("'http://a/', { method: 5 }", "method must be"),
        ("'http://a/', { method: 'GET /' }", "method must be"),
        ("'http://a/', { method: 'connect' }", "method must be"),
        ("'http://a/', { headers: 'x' }", "headers must be an object"),
        ("'http://a/', { headers: { 'a b': 'x' } }", "not a header's name"),
        ("'http://a/', { headers: { a: 'x\\r\\ny: z' } }", "visible ASCII"),
        ("'http://a/', { headers: { Host: 'b' } }", "ctx.fetch itself sets the header \"host\""),
        ("'http://a/', { headers: { 'Content-Length': 5 } }", "itself sets"),
        ("'http://a/', { headers: { a: new Array(65).fill('x') } }", "at most 64 headers"),
        ("'http://a/', { headers: { a: new Array(9).fill('x'.repeat(2000)) } }", "at most 16384 bytes"),
        ("'http://a/', { timeoutMs: 0 }", "timeoutMs must be a whole number from 1 to 60000"),
        ("'http://a/', { timeoutMs: 60001 }", "from 1 to 60000"),
        ("'http://a/', { timeoutMs: 1.5 }", "whole number"),
        ("'http://a/', { timeoutMs: '5' }", "whole number"),
        // It is not sent again.
        ("'http://a/', { retries: 3 }", "a route's ctx.fetch has only the options method, headers, body, timeoutMs"),
        ("'http://a/', { body: 'x' }", "a GET request has no body"),
        ("'http://a/', { method: 'HEAD', body: 'x' }", "a HEAD request has no body"),
        ("'http://a/', { method: 'POST', body: new DataView(new ArrayBuffer(1)) }", "Uint8Array"),
        ("'http://a/', { method: 'POST', body: () => 1 }", "function or symbol"),
        ("'http://a/', { method: 'POST', body: 'x'.repeat(4194305) }", "at most 4194304 bytes, not 4194305"),
        ("'http://a/', { get method() { throw new Error('in getter'); } }", "in getter"),
    ] {
        let (world, reply) = route(&format!("await ctx.fetch({arguments});"));
        let error = reply.expect_err(arguments);
        assert!(error.message.contains(why), "{arguments}: {error}");
        assert!(world.state.fetched.is_empty());
    }
}

#[test]
fn large_bodies_pass_both_ways() {
    fn large(request: &FetchRequest) -> Result<String, Error> {
        let body = vec![b'x'; limits::FETCH_RESPONSE_BYTES];
        let body = millrace_func::base64_encode(&body, millrace_func::Base64Alphabet::Standard);
        Ok(format!(r#"{{"status":{},"headers":[],"body":"{body}"}}"#, 200 + (request.body.len() == 4 << 20) as u16))
    }
    let mut world = service(
        "export const routes = { 'GET /': async (ctx) => { const r = await ctx.fetch('http://a/', { method: 'POST', body: new Uint8Array(4194304) }); return [r.status, r.bytes().length, r.text().length]; } };",
    );
    world.state.outside = Some(large);
    let reply = world.route(0, &Request::default()).expect("replies");
    assert_eq!(&reply.body[..], b"[201,4194304,4194304]");
}
