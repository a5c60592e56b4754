//! Calls to servers outside. A server that the app does not list is never reached. A workflow asks again under one
//! key until it has an answer. A core that waits for nobody serves everybody.

use std::thread::scope;
use std::time::{Duration, Instant};

use millrace_tests::{
    Latencies, Outside, Reply, Server, ServerOptions, TestApp, assert_problem, free_address, wait_until,
};
use serde_json::{Value, json};

const WEB: &str = r#"
import { service, query, workflow, type Routes } from "millrace";

const told = (response) => ({
  code: response.status, ok: response.ok, outside: response.headers.get("X-Outside"), missing: response.headers.get("nothing"),
  location: response.headers.get("location"), length: response.bytes().length, text: response.text().slice(0, 2000),
});

export default service({
  ask: workflow(async (ctx, { url, options }) => told(await ctx.fetch(url, options))),
  askTwice: workflow(async (ctx, [first, second]) => {
    const all = await Promise.all([ctx.fetch(first, { method: "POST" }), ctx.fetch(second, { method: "POST" })]);
    return all.map((response) => response.json().headers["idempotency-key"]);
  }),
  tells: workflow((ctx, url) => {
    ctx.fetch(url, { method: "POST" });
    return "told";
  }),
  count(ctx) {
    ctx.set("count", (ctx.get("count") ?? 0) + 1);
    return ctx.get("count");
  },
  async asks(ctx, url) {
    ctx.set("count", 1000);
    return (await ctx.fetch(url)).status;
  },
});

export const routes: Routes = {
  async "POST /ask"(ctx, request) {
    const { url, options } = request.json();
    return told(await ctx.fetch(url, options));
  },
  async "POST /json"(ctx, request) {
    const response = await ctx.fetch(request.json());
    const { path } = response.json();
    return { path, count: await ctx.call("web", "route", "count") };
  },
  async "POST /late"(ctx, request) {
    await ctx.call("web", "late", "count");
    return (await ctx.fetch(request.json())).text();
  },
  async "POST /catch"(ctx, request) {
    try {
      return { code: (await ctx.fetch(request.json())).status };
    } catch (error) {
      return { code: error.code };
    }
  },
  "GET /quick": () => "quick",
};
"#;

fn start_with(outside: &Outside, options: ServerOptions) -> Server {
    let server = Server::start(options);
    let limits = format!("[fetch]\nallow = [\"{}\"]\n", outside.url());
    let reply = TestApp::with("web.ts", WEB).and("millrace.toml", &limits).deploy(&server, "web");
    assert_eq!(reply.status, 201, "{}", reply.text());
    server
}

fn start(outside: &Outside) -> Server {
    start_with(outside, ServerOptions::examples(&[]))
}

fn post(server: &Server, path: &str, body: &Value) -> Reply {
    server.request("POST", path, &[], body.to_string().as_bytes())
}

#[test]
fn what_the_app_does_not_list_is_not_reached() {
    let (outside, other) = (Outside::start(), Outside::start());
    let server = start(&outside);
    for url in [
        format!("{}/x", other.url()),
        other.url().replace("127.0.0.1", "localhost"),
        outside.url().replace("127.0.0.1", "localhost"),
        outside.url().replace("http:", "https:"),
        outside.url().replace("127.0.0.1", "user@127.0.0.1"),
        "http://127.0.0.1/".to_owned(),
        "http://169.254.169.254/latest".to_owned(),
    ] {
        let reply = post(&server, "/web/ask", &json!({ "url": url }));
        assert_problem(&reply, 500, "fetch-refused");
        let ended = server.ended(&server.send("web/k/ask", &json!({ "url": url }).to_string()));
        assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("fetch-refused")), "{ended}");
        assert_eq!(post(&server, "/web/catch", &json!(url)).json(), json!({ "code": "fetch-refused" }));
    }
    let no_url = post(&server, "/web/ask", &json!({ "url": "file:///etc/passwd" }));
    assert!(no_url.status == 500 && !no_url.text().contains("root:"), "{}", no_url.text());
    assert!(other.asked().is_empty() && outside.asked().is_empty(), "{:?}", other.asked());
}

#[test]
fn an_app_without_a_list_reaches_nothing() {
    let outside = Outside::start();
    let server = Server::start(ServerOptions::examples(&[]));
    assert_eq!(TestApp::with("web.ts", WEB).deploy(&server, "web").status, 201);
    let reply = post(&server, "/web/ask", &json!({ "url": outside.url() }));
    assert_problem(&reply, 500, "fetch-refused");
    assert!(reply.text().contains(&format!("\\\"{}\\\"", outside.url())), "it names no remedy: {}", reply.text());
    assert!(outside.asked().is_empty());
}

#[test]
fn a_request_that_a_workflow_does_not_await_is_sent() {
    let outside = Outside::start();
    let server = start(&outside);
    let ended = server.ended(&server.send("web/k/tells", &json!(outside.url()).to_string()));
    assert_eq!((&ended["output"], &ended["journal"][0]["kind"]), (&json!("told"), &json!("fetch")), "{ended}");
    assert_eq!(outside.asked().len(), 1);
}

#[test]
fn a_response_is_what_the_server_said() {
    let outside = Outside::start();
    let server = start(&outside);
    let ask = |path: &str, options: Value| {
        let reply =
            post(&server, "/web/ask", &json!({ "url": format!("{}{path}", outside.url()), "options": options }));
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()
    };
    let echoed = ask("/echo?a=b%20c", json!({ "method": "PUT", "headers": { "X-Mine": "yes" }, "body": { "n": 1 } }));
    assert_eq!((&echoed["code"], &echoed["ok"], &echoed["outside"]), (&json!(200), &json!(true), &json!("Yes")));
    assert_eq!(echoed["missing"], Value::Null);
    let heard: Value = serde_json::from_str(echoed["text"].as_str().expect("text")).expect("JSON");
    assert_eq!(
        (&heard["method"], &heard["path"], &heard["body"]),
        (&json!("PUT"), &json!("/echo?a=b%20c"), &json!("{\"n\":1}"))
    );
    assert_eq!(
        (&heard["headers"]["x-mine"], &heard["headers"]["content-type"]),
        (&json!("yes"), &json!("application/json"))
    );
    // An error status is a response, and so is a redirect.
    for status in [404, 500, 503] {
        let said = ask(&format!("/status/{status}"), json!({}));
        assert_eq!((&said["code"], &said["ok"]), (&json!(status), &json!(false)));
    }
    let redirect = ask("/redirect", json!({}));
    assert_eq!((&redirect["code"], &redirect["location"]), (&json!(302), &json!("/elsewhere")));
    assert!(outside.asked_for("/elsewhere").is_empty());
    assert_eq!(ask("/large/4000000", json!({}))["length"], 4_000_000);
    let json = post(&server, "/web/json", &json!(format!("{}/j", outside.url())));
    assert_eq!((json.status, json.json()), (200, json!({ "path": "/j", "count": 1 })), "{}", json.text());
}

#[test]
fn a_route_is_told_when_there_is_no_response_and_asks_once() {
    let outside = Outside::start();
    let server = start(&outside);
    let ask = |path: &str, options: Value| {
        post(&server, "/web/ask", &json!({ "url": format!("{}{path}", outside.url()), "options": options }))
    };
    assert_problem(&ask("/fail/1000", json!({ "method": "POST", "body": "x" })), 502, "fetch-failed");
    assert_eq!(outside.asked_for("/fail/1000").len(), 1, "a route asked again");
    let began = Instant::now();
    assert_problem(&ask("/hang", json!({ "timeoutMs": 300 })), 502, "fetch-failed");
    assert!((Duration::from_millis(300)..Duration::from_secs(3)).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_problem(&ask("/large/5000000", json!({})), 502, "fetch-failed");
    let caught = post(&server, "/web/catch", &json!(format!("{}/fail/1000/more", outside.url())));
    assert_eq!(caught.json(), json!({ "code": "fetch-failed" }));
    // Where waiting would hold locks the fetch is refused, and nothing of the call is left.
    let url = json!(format!("{}/never", outside.url()));
    let late = post(&server, "/web/late", &url);
    println!("after a call: {} {}", late.status, late.text());
    assert_eq!(late.status, 500);
    let inside = post(&server, "/call/web/k/asks", &url);
    println!("in a transaction: {} {}", inside.status, inside.text());
    assert_eq!(inside.status, 500);
    for key in ["late", "k"] {
        assert_problem(&server.request("GET", &format!("/state/web/{key}/count"), &[], b""), 404, "unknown-state");
    }
    assert!(outside.asked_for("/never").is_empty());
}

/// The keys of all requests for a path.
fn keys(outside: &Outside, path: &str) -> Vec<String> {
    let key =
        |asked: millrace_tests::ReceivedRequest| asked.headers.get("idempotency-key").cloned().unwrap_or_default();
    outside.asked_for(path).into_iter().map(key).collect()
}

#[test]
fn a_workflow_asks_again_under_the_same_key() {
    let outside = Outside::start();
    let server = start(&outside);
    let input = |path: &str, options: Value| {
        json!({ "url": format!("{}{path}", outside.url()), "options": options }).to_string()
    };
    let id = server.send("web/k/ask", &input("/fail/3", json!({ "method": "POST", "body": "pay" })));
    let ended = server.ended(&id);
    assert_eq!((&ended["status"], &ended["output"]["code"]), (&json!("succeeded"), &json!(200)), "{ended}");
    let found = keys(&outside, "/fail/3");
    println!("asked {} times under {}", found.len(), found[0]);
    assert_eq!(found.len(), 4);
    assert!(!found[0].is_empty() && found.iter().all(|key| *key == found[0]), "{found:?}");
    assert!(outside.asked_for("/fail/3").iter().all(|asked| asked.body == "pay"));
    assert_eq!(ended["journal"].as_array().map(Vec::len), Some(1), "{ended}");
    // Another request has another key, and the workflow's own key comes first.
    let both = [format!("{}/one", outside.url()), format!("{}/one", outside.url())];
    let ended = server.ended(&server.send("web/k/askTwice", &json!(both).to_string()));
    let (one, other) = (ended["output"][0].as_str().expect("a key"), ended["output"][1].as_str().expect("a key"));
    assert!(one != other && one != found[0] && other != found[0], "{ended}");
    let own = json!({ "headers": { "Idempotency-Key": "mine" }, "retries": 1 });
    let _ = server.ended(&server.send("web/k/ask", &input("/fail/1/own", own)));
    assert_eq!(keys(&outside, "/fail/1/own"), ["mine", "mine"]);
    // It gives up after the allowed number of attempts.
    let ended = server.ended(&server.send("web/k/ask", &input("/fail/1000/few", json!({ "retries": 2 }))));
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("fetch-failed")), "{ended}");
    assert_eq!(keys(&outside, "/fail/1000/few").len(), 3);
}

#[test]
fn a_workflow_asks_until_the_server_outside_is_there() {
    let address = free_address();
    let placeholder = Outside::start();
    let server = Server::start(ServerOptions::examples(&[]));
    let limits = format!("[fetch]\nallow = [\"http://{address}\", \"{}\"]\n", placeholder.url());
    assert_eq!(TestApp::with("web.ts", WEB).and("millrace.toml", &limits).deploy(&server, "web").status, 201);
    let id = server
        .send("web/k/ask", &json!({ "url": format!("http://{address}/up"), "options": { "retries": 20 } }).to_string());
    // So long it asks in vain.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(server.get(&format!("/invocations/{id}"))["status"], "running");
    let outside = Outside::start_at(address);
    let ended = server.ended(&id);
    assert_eq!(ended["output"]["code"], 200, "{ended}");
    assert_eq!(outside.asked_for("/up").len(), 1);
}

#[test]
fn a_workflow_that_is_killed_while_it_asks_asks_again_under_the_same_key() {
    let outside = Outside::start();
    let mut server = start(&outside);
    let mut ids = Vec::new();
    for number in 0..8 {
        let url = format!("{}/slow/400/{number}", outside.url());
        ids.push(
            server.send(
                &format!("web/k{number}/ask"),
                &json!({ "url": url, "options": { "method": "POST" } }).to_string(),
            ),
        );
    }
    wait_until("all have asked", || outside.asked().len() >= 8);
    server.kill();
    server.restart();
    for (number, id) in ids.iter().enumerate() {
        let ended = server.ended(id);
        assert_eq!((&ended["status"], &ended["output"]["code"]), (&json!("succeeded"), &json!(200)), "{ended}");
        let keys = keys(&outside, &format!("/slow/400/{number}"));
        assert!(keys.len() >= 2 && keys.iter().all(|key| !key.is_empty() && *key == keys[0]), "{keys:?}");
    }
    // A result that is in the journal is not asked for again.
    let asked = outside.asked().len();
    server.kill();
    server.restart();
    // A request that should not come has time to come.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(outside.asked().len(), asked);
}

/// Latencies of another route and of a durable call, one after the other on one connection.
fn measure(server: &Server, requests: usize) -> [Latencies; 2] {
    let mut connection = server.connect();
    let mut all = [Latencies::default(), Latencies::default()];
    for _ in 0..requests {
        for (index, (method, path)) in
            [("GET", "/web/quick"), ("POST", "/call/web/beside/count")].into_iter().enumerate()
        {
            let began = Instant::now();
            let reply = connection.request(method, path, &[], b"").expect("a reply");
            assert_eq!(reply.status, 200, "{}", reply.text());
            all[index].add(began.elapsed());
        }
    }
    all
}

/// A core that waited for a fetch would delay the others by the rest of its timeout. The bound is far over the delays
/// of a busy machine and far under the timeout.
#[test]
fn fetches_that_hang_delay_nobody_on_a_node_of_one_core() {
    const HANGING: usize = 64;
    const TIMEOUT: Duration = Duration::from_secs(6);
    let outside = Outside::start();
    let mut options = ServerOptions::examples(&[]);
    options.set("--cores", "1");
    let server = start_with(&outside, options);
    let body =
        json!({ "url": format!("{}/hang", outside.url()), "options": { "timeoutMs": TIMEOUT.as_millis() as u64 } });
    scope(|threads| {
        let hanging: Vec<_> = (0..HANGING).map(|_| threads.spawn(|| post(&server, "/web/ask", &body))).collect();
        wait_until("all hang", || outside.asked().len() >= HANGING);
        let beside = measure(&server, 100);
        assert!(hanging.iter().all(|one| !one.is_finished()), "they did not hang as long as others were measured");
        for (what, latencies) in ["a route", "a durable call"].into_iter().zip(&beside) {
            let p99 = latencies.quantile(0.99);
            println!("{what}: p99 {p99:.1?} beside {HANGING} fetches that hang");
            assert!(p99 < TIMEOUT / 4, "{what} was delayed");
        }
        for one in hanging {
            assert_problem(&one.join().expect("a reply"), 502, "fetch-failed");
        }
    });
}
