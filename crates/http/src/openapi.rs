//! The contract as an OpenAPI 3.1 document, written from the same table the router uses. `handlers.rs` adds what workers
//! say of their handlers.

mod handlers;

use millrace_api::PathOperationKind;
use millrace_base::{ErrorCode, limits};
use serde_json::{Map, Value, json};

use crate::operations::{Access, Answer, Kind, Media, OPERATIONS, Operation, Parameter, Segment};
pub use handlers::document_with;

/// Methods shown for app routes, which may answer any.
const ROUTE_METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// The whole document.
#[must_use]
pub fn document() -> Value {
    let mut paths = Map::new();
    for row in OPERATIONS {
        let item = paths.entry(row.template()).or_insert_with(|| json!({}));
        let methods = if row.method == "*" { &ROUTE_METHODS[..] } else { std::slice::from_ref(&row.method) };
        for method in methods {
            item[method.to_lowercase()] = operation(row, method);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Millrace",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Functions that run next to their data. Every call is a serializable transaction, takes effect exactly once and is durable before it is answered.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": components(),
        // Keys are needed only where the server has some.
        "security": [{ "key": [] }, {}],
    })
}

fn operation(row: &Operation, method: &str) -> Value {
    let mut responses = Map::new();
    for answer in row.answers {
        responses.insert(answer.status.to_string(), response(row, answer));
    }
    responses.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    let mut object = json!({
        "operationId": operation_id(row, method),
        "summary": row.summary,
        "description": row.access.description(),
        "parameters": parameters(row),
        "responses": responses,
    });
    if row.access == Access::Public {
        object["security"] = json!([]);
    }
    let has_body = row.method != "*" || !matches!(method, "GET" | "DELETE");
    if let (Some(media), true) = (row.request, has_body) {
        object["requestBody"] = json!({ "content": content(media), "required": media.schema != "true" });
    }
    object
}

/// Unique: kind, whether an app or a field is named, and the method where a row has several. Of
/// rows about records that do the same, the later ones name the part of the path they have more.
fn operation_id(row: &Operation, method: &str) -> String {
    let mut id = row.kind.as_str().to_owned();
    if matches!(row.kind, Kind::Records(_)) {
        let first = OPERATIONS.iter().find(|other| other.kind == row.kind);
        if let (Some(first), Some(Segment::Variable(last))) = (first, row.path.last())
            && first.path != row.path
        {
            id.push('_');
            id.push_str(last.as_str());
        }
        return id;
    }
    let names_app = row.path.len() > 2 && row.path.contains(&Segment::Variable(Parameter::App));
    if names_app {
        id.push_str("_in_app");
    }
    if row.path.contains(&Segment::Variable(Parameter::Field)) {
        id.push_str("_field");
    }
    if row.method == "*" {
        id.push('_');
        id.push_str(&method.to_lowercase());
    }
    id
}

fn parameters(row: &Operation) -> Vec<Value> {
    let mut list = Vec::new();
    for segment in row.path {
        if let Segment::Variable(parameter) = segment {
            list.push(json!({
                "name": parameter.as_str(),
                "in": "path",
                "required": true,
                "description": parameter.description(),
                "schema": { "type": "string" },
            }));
        }
    }
    for parameter in row.query {
        list.push(json!({
            "name": parameter.name,
            "in": "query",
            "required": false,
            "description": parameter.description,
            "schema": schema(parameter.schema),
        }));
    }
    for header in row.headers {
        list.push(json!({
            "name": header.name,
            "in": "header",
            "required": false,
            "description": header.description,
            "schema": schema(header.schema),
        }));
    }
    if row.takes_idempotency_key {
        list.push(json!({ "$ref": "#/components/parameters/IdempotencyKey" }));
    }
    list
}

fn response(row: &Operation, answer: &Answer) -> Value {
    let mut object = json!({ "description": answer.description });
    if let Some(media) = answer.body {
        object["content"] = content(media);
    }
    if row.kind == Kind::Send {
        object["headers"] =
            json!({ "Location": { "description": "The invocation's URL.", "schema": { "type": "string" } } });
    }
    object
}

fn content(media: Media) -> Value {
    json!({ media.content_type: { "schema": schema(media.schema) } })
}

/// The table's schemas are JSON text; a test parses every one of them.
fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

fn components() -> Value {
    json!({
        "securitySchemes": {
            "key": { "type": "http", "scheme": "bearer", "description": "An API key: mr_<id>_<secret>." },
        },
        "parameters": {
            "IdempotencyKey": {
                "name": "Idempotency-Key",
                "in": "header",
                "required": false,
                "description": "Makes the call take effect once however often it is sent; later sends get the first reply.",
                "schema": { "type": "string", "minLength": 1, "maxLength": limits::IDEMPOTENCY_KEY_BYTES, "pattern": "^[!-~]+$" },
            },
        },
        "responses": {
            "Problem": {
                "description": "What went wrong (RFC 9457).",
                "headers": {
                    "Retry-After": { "description": "With 503: seconds to wait.", "schema": { "type": "integer" } },
                },
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
        "schemas": schemas(),
    })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn schemas() -> Value {
    let codes: Vec<&str> = ErrorCode::all().map(ErrorCode::as_str).collect();
    let mut all = json!({
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": { "type": "string", "format": "uri-reference", "description": "/errors/<code>: the page about the error." },
                "title": text(),
                "status": { "type": "integer" },
                "detail": text(),
                "code": { "type": "string", "enum": codes },
                "payload": { "description": "More for a program, such as what a function's Abort carried." },
            },
        },
        "App": {
            "type": "object",
            "required": ["name", "version", "services"],
            "properties": {
                "name": text(),
                "version": { "type": "string", "pattern": "^[0-9a-f]{16}$", "description": "A fingerprint of the app's files." },
                "services": { "type": "array", "items": reference("Service") },
                "versions": { "type": "array", "items": reference("AppVersion"), "description": "Of the app that was asked for: the deployed version first." },
                "warnings": { "type": "array", "items": text(), "description": "In the answer to a deployment, if there are any: what whoever deploys should know." },
            },
        },
        "Service": {
            "type": "object",
            "required": ["name", "handlers", "routes"],
            "properties": {
                "name": text(),
                "handlers": { "type": "array", "items": {
                    "type": "object",
                    "required": ["name", "kind"],
                    "properties": {
                        "name": text(),
                        "kind": { "type": "string", "enum": ["transaction", "query", "workflow"] },
                    },
                } },
                "routes": { "type": "array", "items": {
                    "type": "object",
                    "required": ["method", "path"],
                    "properties": { "method": text(), "path": text() },
                } },
            },
        },
    });
    for (name, schema) in [
        ("Key", key_schema()),
        ("Patch", patch_schema()),
        ("InvocationStatus", json!({ "type": "string", "enum": INVOCATION_STATUSES })),
        ("Invocation", invocation_schema()),
        ("JournalStep", journal_step_schema()),
        ("Failure", failure_schema()),
        ("Signal", signal_schema()),
        ("DeadLetter", dead_letter_schema()),
        ("AppVersion", app_version_schema()),
        ("Schedule", schedule_schema()),
        ("S3User", s3_user_schema()),
        ("S3AccessKey", s3_access_key_schema()),
        ("InvocationPage", page_schema("invocations", "Invocation")),
        ("DeadLetterPage", page_schema("dead_letters", "DeadLetter")),
        ("SchedulePage", page_schema("schedules", "Schedule")),
    ] {
        all[name] = schema;
    }
    all
}

/// A test compares them with what the operation takes.
const INVOCATION_STATUSES: [&str; 6] = ["pending", "running", "paused", "succeeded", "failed", "cancelled"];

fn app_version_schema() -> Value {
    json!({
        "type": "object",
        "required": ["version", "is_deployed", "workflows", "transactions"],
        "properties": {
            "version": { "type": "string", "pattern": "^[0-9a-f]{16}$" },
            "is_deployed": { "type": "boolean", "description": "Whether it takes calls." },
            "worker_url": { "type": "string", "description": "Where its workers are, if the server dials them." },
            "workflows": { "type": "integer", "description": "Those that began in it and have not ended: they stay with it." },
            "has_more_workflows": { "type": "boolean", "description": "There may be more than were counted." },
            "transactions": { "type": "integer", "description": "Transactions and routes under way in it, at the node that answers." },
        },
    })
}

fn key_schema() -> Value {
    json!({
        "description": "An entity's key: text, or an object where it is not UTF-8.",
        "oneOf": [
            { "type": "string" },
            { "type": "object", "required": ["base64"], "properties": { "base64": text() } },
        ],
    })
}

fn patch_schema() -> Value {
    let names: Vec<Value> =
        PATCH_OPERATIONS.iter().map(|kind| serde_json::to_value(kind).unwrap_or_default()).collect();
    let operations = json!({
        "type": "array",
        "minItems": 1,
        "maxItems": limits::PATCH_OPERATIONS,
        "items": {
            "type": "object",
            "required": ["op", "path"],
            "additionalProperties": false,
            "properties": {
                "op": { "type": "string", "enum": names },
                "path": { "type": "string", "maxLength": limits::PATH_BYTES },
                "value": { "description": "Any JSON. delete and clear take none; test may go without." },
            },
        },
    });
    json!({
        "oneOf": [operations, {
            "type": "object",
            "required": ["operations"],
            "additionalProperties": false,
            "properties": {
                "operations": operations,
                "parameters": { "type": "object", "description": "Values of $name in the paths." },
            },
        }],
    })
}

const PATCH_OPERATIONS: [PathOperationKind; 8] = [
    PathOperationKind::Set,
    PathOperationKind::Insert,
    PathOperationKind::InsertAll,
    PathOperationKind::Delete,
    PathOperationKind::Clear,
    PathOperationKind::Increment,
    PathOperationKind::AppendUnique,
    PathOperationKind::Test,
];

fn milliseconds(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn left_out(what: &str) -> Value {
    let description = format!("Instead of {what}, where it would make the reply too large: its length in bytes.");
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn invocation_schema() -> Value {
    json!({
        "type": "object",
        "description": "Everything but id, status, output and error is there for workflows only. Lists leave out input, output, journal and waits_for, and the error's payload.",
        "required": ["id", "status"],
        "properties": {
            "id": text(),
            "status": reference("InvocationStatus"),
            "app": text(),
            "service": text(),
            "key": reference("Key"),
            "handler": text(),
            "began_ms": milliseconds("When it began, Unix milliseconds, if it has."),
            "due_ms": milliseconds("When it is to begin, Unix milliseconds, while it is pending."),
            "input": { "description": "What it was given." },
            "input_bytes": left_out("input"),
            "output": { "description": "What the handler returned, once succeeded." },
            "output_bytes": left_out("output"),
            "error": reference("Problem"),
            "failures": {
                "type": "array",
                "items": reference("Failure"),
                "description": "What failed and is tried again, or waits for somebody; at most ten.",
            },
            "journal": {
                "type": "array",
                "items": reference("JournalStep"),
                "description": "What it has done so far, in the order in which it ended.",
            },
            "waits_for": {
                "type": "array",
                "items": text(),
                "description": "What it waits for now.",
            },
        },
    })
}

fn failure_schema() -> Value {
    json!({
        "type": "object",
        "required": ["operation", "kind", "name", "attempts", "failed_ms", "error"],
        "properties": {
            "operation": { "type": "integer", "minimum": 0, "description": "Its number, in the order in which the workflow asked; 0 for the workflow's own code." },
            "kind": { "type": "string", "description": "call, step, compensation, or code for the workflow's own code." },
            "name": { "type": "string", "description": "Which one: a call's target or a step's name." },
            "attempts": { "type": "integer", "minimum": 1, "description": "How often it was tried." },
            "failed_ms": milliseconds("When the last attempt failed, Unix milliseconds."),
            "next_try_ms": milliseconds("When it is tried again, Unix milliseconds; absent while it waits for somebody."),
            "error": reference("Problem"),
        },
    })
}

fn journal_step_schema() -> Value {
    json!({
        "type": "object",
        "required": ["operation", "kind", "name", "ended_ms"],
        "properties": {
            "operation": { "type": "integer", "minimum": 0, "description": "Its number, in the order in which the workflow asked; 0 for a cancel." },
            "kind": { "type": "string", "description": "call, step, sleep, fetch, wait, hash, send, signal, cancel or compensation." },
            "name": { "type": "string", "description": "Which one: a call's target, a step's or signal's name, a fetch's URL." },
            "ended_ms": milliseconds("When it ended, Unix milliseconds."),
            "output": { "description": "What it gave, unless it failed." },
            "output_bytes": left_out("output"),
            "error": reference("Problem"),
        },
    })
}

fn signal_schema() -> Value {
    let name_bytes = limits::STEP_NAME_BYTES;
    json!({
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": {
            "name": {
                "type": "string",
                "minLength": 1,
                "maxLength": name_bytes,
                "description": format!("What the workflow waits for: 1 to {name_bytes} bytes of UTF-8."),
            },
            "payload": { "description": "What the workflow gets: any JSON; null when absent." },
        },
    })
}

fn dead_letter_schema() -> Value {
    json!({
        "type": "object",
        "required": ["id", "app", "service", "key", "handler", "attempts"],
        "properties": {
            "id": text(),
            "app": text(),
            "service": text(),
            "key": reference("Key"),
            "handler": text(),
            "input": { "description": "What it was to be given." },
            "input_bytes": left_out("input"),
            "attempts": { "type": "integer", "minimum": 1 },
            "next_try_ms": milliseconds("When it is tried again, Unix milliseconds; absent of dead letters."),
            "error": reference("Problem"),
        },
    })
}

fn schedule_schema() -> Value {
    json!({
        "type": "object",
        "required": ["app", "service", "name", "key", "handler", "cron"],
        "properties": {
            "app": text(),
            "service": text(),
            "name": { "type": "string", "description": "Its name in the service." },
            "key": reference("Key"),
            "handler": text(),
            "cron": { "type": "string", "description": "When, in UTC, as the service declares it." },
            "due_ms": milliseconds("When it is due next, Unix milliseconds. A time that has passed is about to be called."),
        },
    })
}

fn s3_user_schema() -> Value {
    json!({
        "type": "object",
        "required": ["id", "display_name", "email", "created_ms", "keys"],
        "properties": {
            "id": { "type": "string", "pattern": "^[0-9a-f]{64}$", "description": "The canonical id." },
            "display_name": text(),
            "email": { "type": "string", "description": "Empty without one." },
            "created_ms": milliseconds("When the user was made, Unix milliseconds."),
            "keys": { "type": "array", "items": reference("S3AccessKey") },
        },
    })
}

fn s3_access_key_schema() -> Value {
    json!({
        "type": "object",
        "required": ["access_key", "status", "created_ms"],
        "properties": {
            "access_key": text(),
            "status": { "type": "string", "enum": ["active", "revoked"] },
            "created_ms": milliseconds("When the key was made, Unix milliseconds."),
        },
    })
}

fn page_schema(list: &str, item: &str) -> Value {
    json!({
        "type": "object",
        "required": [list, "next"],
        "properties": {
            list: { "type": "array", "items": reference(item) },
            "next": { "type": ["string", "null"], "description": "To be sent as `after` for the next page; null after the last one." },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statuses_are_those_that_a_list_can_be_asked_for() {
        let query = |status: &str| format!("status={status}");
        for status in INVOCATION_STATUSES {
            let read = crate::path::invocation_status(Some(&query(status))).expect("known").expect("there");
            assert_eq!(serde_json::to_value(read).expect("JSON"), status);
        }
        let error = crate::path::invocation_status(Some(&query("done"))).expect_err("unknown").message;
        assert!(INVOCATION_STATUSES.iter().all(|status| error.contains(status)), "{error}");
        assert_eq!(error.matches('`').count(), 2 * (INVOCATION_STATUSES.len() + 1), "{error}");
    }
}
