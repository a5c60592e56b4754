//! The contract as an OpenAPI 3.1 document, written from the same table the router uses.

use millrace_base::{ErrorCode, limits};
use serde_json::{Map, Value, json};

use crate::operations::{Access, Answer, Media, OPERATIONS, Operation, Parameter, Segment};

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
        responses.insert(answer.status.to_string(), response(answer));
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
        object["requestBody"] = json!({ "content": content(media), "required": row.method == "PUT" });
    }
    object
}

/// Unique: kind, whether an app or a field is named, and the method where a row has several.
fn operation_id(row: &Operation, method: &str) -> String {
    let mut id = row.kind.as_str().to_owned();
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
    for (name, description) in row.query {
        list.push(json!({
            "name": name,
            "in": "query",
            "required": false,
            "description": description,
            "schema": { "type": "integer", "minimum": 0 },
        }));
    }
    if row.takes_idempotency_key {
        list.push(json!({ "$ref": "#/components/parameters/IdempotencyKey" }));
    }
    list
}

fn response(answer: &Answer) -> Value {
    let mut object = json!({ "description": answer.description });
    if let Some(media) = answer.body {
        object["content"] = content(media);
    }
    if answer.status == 202 {
        object["headers"] =
            json!({ "Location": { "description": "The invocation's URL.", "schema": { "type": "string" } } });
    }
    object
}

fn content(media: Media) -> Value {
    // The table's schemas are JSON text; a test parses every one of them.
    let schema: Value = serde_json::from_str(media.schema).unwrap_or_default();
    json!({ media.content_type: { "schema": schema } })
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

fn schemas() -> Value {
    let codes: Vec<&str> = ErrorCode::all().map(ErrorCode::as_str).collect();
    let text = json!({ "type": "string" });
    json!({
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": { "type": "string", "format": "uri-reference", "description": "/errors/<code>: the page about the error." },
                "title": text,
                "status": { "type": "integer" },
                "detail": text,
                "code": { "type": "string", "enum": codes },
                "payload": { "description": "More for a program, such as what a function's Abort carried." },
            },
        },
        "Invocation": {
            "type": "object",
            "required": ["id", "status"],
            "properties": {
                "id": text,
                "status": { "type": "string", "enum": ["pending", "succeeded", "failed"] },
                "output": { "description": "What the handler returned, once succeeded." },
                "error": { "$ref": "#/components/schemas/Problem" },
            },
        },
        "App": {
            "type": "object",
            "required": ["name", "version", "services"],
            "properties": {
                "name": text,
                "version": { "type": "integer", "minimum": 1 },
                "services": { "type": "array", "items": { "$ref": "#/components/schemas/Service" } },
            },
        },
        "Service": {
            "type": "object",
            "required": ["name", "handlers", "routes"],
            "properties": {
                "name": text,
                "handlers": { "type": "array", "items": {
                    "type": "object",
                    "required": ["name", "kind"],
                    "properties": { "name": text, "kind": { "type": "string", "enum": ["transaction", "query"] } },
                } },
                "routes": { "type": "array", "items": {
                    "type": "object",
                    "required": ["method", "path"],
                    "properties": { "method": text, "path": text },
                } },
            },
        },
    })
}
