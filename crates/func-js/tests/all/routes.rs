//! Routes: what a request holds, what a reply may be, which routes a service declares.

use crate::common::{Request, World, service};
use millrace_base::ErrorCode;
use millrace_func::Engine;

fn routes(routes: &str) -> World {
    service(&format!("export const routes = {{\n{routes}\n}};\n"))
}

/// A route whose body is `body`, asked with `request`.
fn answer(body: &str, request: &Request<'_>) -> (u16, Vec<(String, String)>, String) {
    let mut world = routes(&format!("'POST /x': async (ctx, request) => {{ {body} }},"));
    let reply = world.route(0, request).unwrap_or_else(|error| panic!("{body}: {error}"));
    (reply.status, reply.headers, String::from_utf8_lossy(&reply.body).into_owned())
}

fn plain(body: &str) -> (u16, Vec<(String, String)>, String) {
    answer(body, &Request::default())
}

fn content_type(value: &str) -> Vec<(String, String)> {
    vec![("content-type".to_owned(), value.to_owned())]
}

#[test]
fn a_request_shows_what_came() {
    let request = Request {
        method: "POST",
        path: "/s/caf%C3%A9",
        query: "a=1&b=x+y%21&a=2&flag&=v",
        parameters: &[("id", "ä"), ("__proto__", "own")],
        headers: &[("accept", "text/html"), ("x-a", "1"), ("x-a", "2"), ("cookie", "a=1"), ("cookie", "b=2")],
        body: "{\"n\":[1,\"ä\"]}".as_bytes(),
    };
    let seen = answer(
        "return [request.method, request.path, request.query.get('b'), request.query.getAll('a'), request.query.get('flag'),
           request.query === request.query, request.params.id, Object.keys(request.params), request.header('Accept'), request.header('nope'),
           request.headers, request.json().n, request.text().length, request.body.length, request.body instanceof Uint8Array];",
        &request,
    );
    assert_eq!(
        seen.2,
        concat!(
            r#"["POST","/s/caf%C3%A9","x y!",["1","2"],"",true,"ä",["id","__proto__"],"text/html",null,"#,
            r#"{"accept":"text/html","x-a":"1, 2","cookie":"a=1; b=2"},[1,"ä"],13,14,true]"#
        )
    );
}

#[test]
fn replies_of_every_form() {
    let json = || content_type("application/json");
    let text = || content_type("text/plain; charset=utf-8");
    assert_eq!(plain(""), (204, vec![], String::new()));
    assert_eq!(plain("return 'ä';"), (200, text(), "ä".into()));
    assert_eq!(plain("return { a: 1 };"), (200, json(), "{\"a\":1}".into()));
    assert_eq!(plain("return {};"), (200, json(), "{}".into()));
    assert_eq!(plain("return [1];"), (200, json(), "[1]".into()));
    assert_eq!(plain("return null;"), (200, json(), "null".into()));
    assert_eq!(plain("return 5;"), (200, json(), "5".into()));
    assert_eq!(plain("return new Uint8Array([65]);"), (200, content_type("application/octet-stream"), "A".into()));
    assert_eq!(plain("return { status: 404 };"), (404, vec![], String::new()));
    assert_eq!(plain("return { body: { status: 1 } };"), (200, json(), "{\"status\":1}".into()));
    assert_eq!(plain("return { status: 'active', name: 'x' };").2, r#"{"status":"active","name":"x"}"#);
    assert_eq!(plain("return { status: 201, body: 'x' };"), (201, text(), "x".into()));
    assert_eq!(
        plain("return { headers: { 'Content-Type': 'text/html' }, body: 'x' };"),
        (200, content_type("text/html"), "x".into())
    );
    let (status, headers, _) =
        plain("return { status: 302, headers: { Location: '/x', 'set-cookie': ['a=1', 'b=2'], 'x-n': 5 } };");
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(status, 302);
    assert_eq!(headers, [("location", "/x"), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-n", "5")]);
}

#[test]
fn malformed_replies_are_errors() {
    for body in [
        "return { status: 99 };",
        "return { status: 600 };",
        "return { status: 200.5 };",
        "return { status: '200' };",
        "return { status: 199 };",
        "return { status: 204, body: 'x' };",
        "return { status: 205, body: 'x' };",
        "return { headers: { 'x': 'a\\r\\nset-cookie: b' } };",
        "return { headers: { 'x': 'a\\0' } };",
        "return { headers: { 'x': 'ä' } };",
        "return { headers: { 'x y': 'a' } };",
        "return { headers: { 'x\\r\\n': 'a' } };",
        "return { headers: { '': 'a' } };",
        "return { headers: { 'content-length': '1' } };",
        "return { headers: { 'Transfer-Encoding': 'chunked' } };",
        "return { headers: { 'x': {} } };",
        "return { headers: 'x' };",
        "return { headers: Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`x${i}`, 'a'])) };",
        "return { headers: { x: 'a'.repeat(9000) } };",
        "return () => 1;",
        "return { body: Symbol() };",
        "return { body: 1n };",
        "return { get body() { throw new Error('no'); } };",
        "return new DataView(new ArrayBuffer(1));",
    ] {
        let mut world = routes(&format!("'GET /x': async (ctx, request) => {{ {body} }}, 'GET /ok': () => 'ok',"));
        let error = world.route(0, &Request::default()).expect_err(body);
        assert_eq!(error.code, ErrorCode::FunctionFailed, "{body}: {error}");
        assert_eq!(&world.route(1, &Request::default()).expect("replies").body[..], b"ok");
    }
}

#[test]
fn a_body_that_is_not_json_is_the_callers_fault() {
    let mut world = routes("'GET /x': (ctx, request) => request.json(),");
    for body in [&b"{"[..], b"", b"\xff", b"nope"] {
        let error = world.route(0, &Request { body, ..Request::default() }).expect_err("refused");
        assert_eq!(error.code, ErrorCode::InvalidInput, "{error}");
    }
}

#[test]
fn a_request_is_there_after_a_wait() {
    let mut world = service(
        "import { service, Abort } from 'millrace';
         export default service({ one() { return 1; }, no() { throw new Abort('taken', { by: 1 }); } });
         export const routes = {
           'GET /': async (ctx, r) => { const one = await ctx.call('s', 'k', 'one'); return [one, r.method, r.path, r.query.get('a'), r.params.p, r.header('h'), r.text()]; },
           'GET /abort': async (ctx) => { await ctx.call('s', 'k', 'no'); },
         };",
    );
    let request = Request {
        path: "/s/",
        query: "a=b",
        parameters: &[("p", "q")],
        headers: &[("h", "i")],
        body: b"text",
        ..Request::default()
    };
    let reply = world.route(0, &request).expect("replies");
    assert_eq!(&reply.body[..], br#"[1,"GET","/s/","b","q","i","text"]"#);
    let error = world.route(1, &request).expect_err("aborts");
    assert_eq!(
        (error.code, error.message.as_str(), error.detail.as_deref()),
        (ErrorCode::Aborted, "taken", Some(r#"{"by":1}"#))
    );
}

#[test]
fn routes_are_reported_in_their_order() {
    let world = routes(
        "'GET /login': () => 1, 'POST /users/:id': () => 1, '/a': { GET: () => 1, 'PUT /b/:c': () => 1, '/d': { DELETE: () => 1 } }, 'GET /': () => 1,",
    );
    let services = world.engine.services(world.program);
    let found: Vec<String> =
        services[0].routes.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(found, ["GET /login", "POST /users/:id", "GET /a", "PUT /a/b/:c", "DELETE /a/d", "GET /"]);
}
