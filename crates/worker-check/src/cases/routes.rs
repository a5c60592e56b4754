//! Routes: requests and replies of HTTP.

use millrace_format::worker::AttemptKind;
use millrace_func::{Base64Alphabet, base64_decode, base64_encode};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Scene, no_answer, same, shown};

fn route<'b, 't>(bench: &'b Bench<'t>, handler: &str, params: Value, body: &[u8]) -> Scene<'b, 't> {
    let (method, path) = handler.split_once(' ').unwrap_or_default();
    let request = json!({
        "method": method, "path": format!("/check{path}"), "query": "q=a+b%26&q=2", "params": params,
        "headers": [["x-check", "yes"], ["content-type", "application/octet-stream"]],
        "body": base64_encode(body, Base64Alphabet::Standard),
    });
    Scene::of(bench, AttemptKind::Route, handler, &request)
}

/// A reply: status, its header of this name, body.
fn reply(scene: Scene<'_, '_>, header: &str) -> Result<(u64, Option<String>, Vec<u8>), String> {
    let output = scene.run(&mut no_answer)?.output()?;
    let wrong = || format!("the output is {}", shown(&output));
    let status = output["status"].as_u64().ok_or_else(wrong)?;
    let headers = output["headers"].as_array().ok_or_else(wrong)?;
    let body = output["body"].as_str().ok_or_else(wrong)?;
    let body = base64_decode(body.as_bytes()).ok_or_else(wrong)?;
    let named = headers.iter().find(|pair| pair[0].as_str().is_some_and(|name| name.eq_ignore_ascii_case(header)));
    Ok((status, named.and_then(|pair| pair[1].as_str()).map(str::to_owned), body))
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "route/request",
        expected: "a route sees the path's parameters, the query and the headers, and answers with JSON",
        run: |bench| {
            let scene = route(bench, "GET /hello/:name", json!({"name": "ann"}), b"");
            let (status, content_type, body) = reply(scene, "content-type")?;
            same("the status", &status, &200)?;
            let is_json = content_type.is_some_and(|kind| kind.starts_with("application/json"));
            same("whether content-type is JSON", &is_json, &true)?;
            let expected = json!({"name": "ann", "query": "a b&", "header": "yes"});
            same("the body", &serde_json::from_slice::<Value>(&body).unwrap_or_default(), &expected)
        },
    },
    Case {
        name: "route/reply",
        expected: "a route answers with its own status, headers and bytes",
        run: |bench| {
            let (status, header, body) = reply(route(bench, "POST /bytes", json!({}), &[0, 0xff, 7]), "x-check")?;
            same("the status", &status, &201)?;
            same("the header", &header.as_deref(), &Some("yes"))?;
            same("the body", &body, &vec![0, 0xff, 7])
        },
    },
    Case {
        name: "route/json",
        expected: "a route reads its body as JSON",
        run: |bench| {
            let (_, _, body) = reply(route(bench, "POST /json", json!({}), br#"{"value": [1, "x"]}"#), "")?;
            same("the body", &serde_json::from_slice::<Value>(&body).unwrap_or_default(), &json!([1, "x"]))
        },
    },
    Case {
        name: "route/wrong-json",
        expected: "a body that is not JSON, read as JSON: FAILURE `invalid-input`",
        run: |bench| {
            let done = route(bench, "POST /json", json!({}), b"{").run(&mut no_answer)?;
            done.fails("invalid-input").map(|_| ())
        },
    },
];
