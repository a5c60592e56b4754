//! What `/openapi.json` says of the handlers of workers: a path for each, with the schemas of its input and output.
//!
//! A schema is a component of its own. References in it are to itself, so they are turned into references to that component.

use millrace_api::{AppSchemas, HandlerKind, HandlerSchemas};
use millrace_base::limits;
use serde_json::{Value, json};

use super::{document, reference};

/// Members whose values are data and no schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// The document with the handlers of some apps.
#[must_use]
pub fn document_with(apps: &[AppSchemas]) -> Value {
    let mut document = document();
    let mut left_bytes = limits::PAGE_BYTES;
    for app in apps {
        for handler in &app.handlers {
            let size_bytes = size_bytes(handler);
            if size_bytes > left_bytes {
                return document; // Whoever has so many schemas does without the rest.
            }
            left_bytes -= size_bytes;
            add(&mut document, app, handler);
        }
    }
    document
}

fn size_bytes(handler: &HandlerSchemas) -> usize {
    [&handler.input, &handler.output].into_iter().flatten().map(|schema| schema.to_string().len()).sum()
}

fn add(document: &mut Value, app: &AppSchemas, handler: &HandlerSchemas) {
    let HandlerSchemas { service, handler: name, kind, input, output } = handler;
    let component = |what: &str| format!("{}.{service}.{name}.{what}", app.app);
    for (what, schema) in [("input", input), ("output", output)] {
        if let Some(schema) = schema {
            let component = component(what);
            let schema = within(schema.clone(), &format!("#/components/schemas/{component}"));
            document["components"]["schemas"][component] = schema;
        }
    }
    let is_workflow = *kind == HandlerKind::Workflow;
    let way = if is_workflow { "send" } else { "call" };
    let below = if app.shared_services.contains(service) { format!("/apps/{}", app.app) } else { String::new() };
    let kind = match kind {
        HandlerKind::Transaction => "transaction",
        HandlerKind::Query => "query",
        HandlerKind::Workflow => "workflow",
    };
    let key = json!({
        "name": "key", "in": "path", "required": true, "description": "The entity's key.", "schema": { "type": "string" },
    });
    let result = match (is_workflow, output) {
        (true, Some(_)) => json!({ "202": { "description": format!(
            "Started: Location names the invocation. Its output is the schema {}.", component("output"),
        ) } }),
        (true, None) => json!({ "202": { "description": "Started: Location names the invocation." } }),
        (false, Some(_)) => json!({ "200": {
            "description": "What the handler returned.",
            "content": { "application/json": { "schema": reference(&component("output")) } },
        } }),
        (false, None) => json!({ "200": { "description": "What the handler returned." } }),
    };
    let mut operation = json!({
        "operationId": format!("{}_{way}_{service}_{name}", app.app),
        "summary": format!("The {kind} {name} of {service}"),
        "tags": [app.app],
        "parameters": [key, { "$ref": "#/components/parameters/IdempotencyKey" }],
        "responses": result,
    });
    operation["responses"]["default"] = json!({ "$ref": "#/components/responses/Problem" });
    if input.is_some() {
        let schema = reference(&component("input"));
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
    }
    document["paths"][format!("{below}/{way}/{service}/{{key}}/{name}")] = json!({ "post": operation });
}

/// The schema as a part of a document, where it is at `place`.
fn within(mut schema: Value, place: &str) -> Value {
    match &mut schema {
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if let (Value::String(target), "$ref") = (&mut *member, name.as_str()) {
                    if let Some(inside) = target.strip_prefix('#') {
                        *target = format!("{place}{inside}");
                    }
                } else if !DATA.contains(&name.as_str()) {
                    *member = within(member.take(), place);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = within(item.take(), place)),
        _ => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(name: &str, kind: HandlerKind, input: Value) -> HandlerSchemas {
        let output = Some(json!({ "type": "integer" }));
        HandlerSchemas { service: "account".into(), handler: name.into(), kind, input: Some(input), output }
    }

    #[test]
    fn each_handler_has_a_path_and_its_schemas_refer_to_themselves() {
        let input = json!({
            "$ref": "#/$defs/Seat", "default": { "$ref": "#/data" },
            "$defs": { "Seat": { "properties": { "next": { "$ref": "#/$defs/Seat" }, "all": { "$ref": "#" } } } },
        });
        let handlers =
            vec![handler("deposit", HandlerKind::Transaction, input), handler("go", HandlerKind::Workflow, json!({}))];
        let mut app = AppSchemas { app: "bank".into(), handlers, shared_services: Vec::new() };
        let document = document_with(std::slice::from_ref(&app));
        let operation = &document["paths"]["/call/account/{key}/deposit"]["post"];
        let component = "#/components/schemas/bank.account.deposit.input";
        assert_eq!(operation["requestBody"]["content"]["application/json"]["schema"]["$ref"], component);
        let output = &operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
        assert_eq!(output, "#/components/schemas/bank.account.deposit.output");
        let schema = &document["components"]["schemas"]["bank.account.deposit.input"];
        assert_eq!(schema["$ref"], format!("{component}/$defs/Seat"));
        let inner = &schema["$defs"]["Seat"]["properties"];
        assert_eq!(inner["next"]["$ref"], format!("{component}/$defs/Seat"));
        assert_eq!((&inner["all"]["$ref"], &schema["default"]["$ref"]), (&json!(component), &json!("#/data")));
        assert!(document["paths"]["/send/account/{key}/go"]["post"]["responses"]["202"].is_object());
        app.shared_services.push("account".into());
        let document = document_with(&[app]);
        assert!(document["paths"]["/apps/bank/call/account/{key}/deposit"].is_object());
        assert!(document["paths"]["/call/account/{key}/deposit"].is_null());
    }

    #[test]
    fn what_is_too_much_in_all_is_left_out() {
        let large = json!({ "description": "x".repeat(limits::PAGE_BYTES / 3) });
        let names = ["a", "b", "c", "d"];
        let handlers = names.map(|name| handler(name, HandlerKind::Query, large.clone())).into();
        let document = document_with(&[AppSchemas { app: "bank".into(), handlers, shared_services: Vec::new() }]);
        let has = |name: &str| document["paths"][format!("/call/account/{{key}}/{name}")].is_object();
        assert_eq!(names.map(has), [true, true, false, false]);
    }
}
