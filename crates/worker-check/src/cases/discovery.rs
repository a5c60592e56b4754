//! What the worker says of itself, and which versions it takes.

use bytes::Bytes;
use millrace_base::limits;
use millrace_func::{WorkerKind, WorkerMode};
use serde_json::json;

use crate::bench::Bench;
use crate::scene::{Scene, no_answer, same, shown};
use crate::{Case, Reply};

/// The check handlers, as the page lists them.
const TRANSACTIONS: [&str; 21] = [
    "echo",
    "add",
    "put",
    "put_raw",
    "remove",
    "write_then_read",
    "call",
    "both",
    "caught",
    "call_then_show",
    "send",
    "send_id",
    "signal",
    "abort",
    "fail",
    "draws",
    "log",
    "long",
    "record",
    "unsteady",
    "fickle",
];
const QUERIES: [&str; 4] = ["show", "read", "names", "query_that_writes"];
const WORKFLOWS: [&str; 9] = [
    "flow_id",
    "flow_step",
    "flow_step_fails",
    "flow_steps",
    "flow_sleep",
    "flow_wait",
    "flow_call",
    "flow_compensate",
    "flow_fetch",
];
const ROUTES: [(&str, &str); 3] = [("GET", "/hello/:name"), ("POST", "/bytes"), ("POST", "/json")];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "discovery/document",
        expected: "GET /discovery: status 200, application/json, a document that the server reads",
        run: |bench| {
            let reply = bench.discover()?;
            same("the status", &reply.status, &200)?;
            if !reply.content_type.starts_with("application/json") {
                return Err(format!("content-type is {:?}", reply.content_type));
            }
            bench.document().map(|_| ())
        },
    },
    Case {
        name: "discovery/mode",
        expected: "the mode is request-reply, which is what this list is for",
        run: |bench| same("the mode", &bench.document()?.mode, &WorkerMode::RequestReply),
    },
    Case {
        name: "discovery/whole",
        expected: "whole_up_to_bytes is 262,144 at most",
        run: |bench| {
            let largest = bench.document()?.services.iter().map(|service| service.whole_up_to_bytes).max();
            if largest.unwrap_or_default() <= limits::WORKER_FIELDS_BYTES as u64 {
                return Ok(());
            }
            Err(format!("it is {}", largest.unwrap_or_default()))
        },
    },
    Case { name: "discovery/handlers", expected: "every check handler of the page, with its kind", run: handlers },
    Case {
        name: "discovery/routes",
        expected: "every check route of the page",
        run: |bench| {
            let routes = &bench.service()?.routes;
            let is_missing = |(method, path): &&(&str, &str)| {
                !routes.iter().any(|route| route.method == *method && route.path == *path)
            };
            let missing: Vec<_> = ROUTES.iter().filter(is_missing).collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("missing: {missing:?}")) }
        },
    },
    Case {
        name: "discovery/schemas",
        expected: "an input's or output's schema, if there is one, is an object or a boolean",
        run: |bench| {
            let handlers = bench.document()?.services.iter().flat_map(|service| &service.handlers);
            let schemas = handlers.flat_map(|handler| handler.input.iter().chain(&handler.output));
            match schemas.into_iter().find(|schema| !schema.is_object() && !schema.is_boolean()) {
                None => Ok(()),
                Some(other) => Err(format!("one is {}", shown(other))),
            }
        },
    },
    Case {
        name: "discovery/other-paths",
        expected: "another path than /discovery and /invoke: a status from 400 on",
        run: |bench| {
            let path = "/elsewhere";
            let reply = bench.ask("GET", path, bench.envelope("GET", path, [0; 16], b""), Bytes::new())?;
            refused_somehow(&reply)
        },
    },
    Case {
        name: "discovery/invoke-is-posted",
        expected: "GET /invoke: a status from 400 on",
        run: |bench| {
            let reply = bench.ask("GET", "/invoke", bench.envelope("GET", "/invoke", [0; 16], b""), Bytes::new())?;
            refused_somehow(&reply)
        },
    },
    Case {
        name: "version/newer",
        expected: "a version above those of its document: status 400",
        run: |bench| version(bench, Some(&(bench.document()?.protocol.max + 1).to_string())),
    },
    Case { name: "version/zero", expected: "version 0: status 400", run: |bench| version(bench, Some("0")) },
    Case { name: "version/no-number", expected: "version `one`: status 400", run: |bench| version(bench, Some("one")) },
    Case { name: "version/missing", expected: "no version: status 400", run: |bench| version(bench, None) },
];

fn refused_somehow(reply: &Reply) -> Result<(), String> {
    if reply.status >= 400 { Ok(()) } else { Err(format!("the status is {}", reply.status)) }
}

fn handlers(bench: &Bench<'_>) -> Result<(), String> {
    let known = &bench.service()?.handlers;
    let wanted = [
        (WorkerKind::Transaction, &TRANSACTIONS[..]),
        (WorkerKind::Query, &QUERIES[..]),
        (WorkerKind::Workflow, &WORKFLOWS[..]),
    ];
    let wanted = wanted.into_iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, *name)));
    let is_missing =
        |(kind, name): &(WorkerKind, &str)| !known.iter().any(|handler| handler.name == *name && handler.kind == *kind);
    let missing: Vec<_> = wanted.filter(is_missing).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("missing: {missing:?}")) }
}

/// An invocation that is right but for its version.
fn version(bench: &Bench<'_>, version: Option<&str>) -> Result<(), String> {
    let mut run = crate::scene::Run::new(Scene::new(bench, "echo", &json!(1)))?;
    let (body, attempt) = (run.request(), run.scene.start.attempt);
    let mut envelope = bench.envelope("POST", "/invoke", attempt, &body);
    envelope.version = version.map(str::to_owned);
    let reply = bench.ask("POST", "/invoke", envelope, body.into())?;
    same("the status", &reply.status, &400)?;
    Scene::new(bench, "echo", &json!(1)).run(&mut no_answer)?.gives(&json!(1))
}
