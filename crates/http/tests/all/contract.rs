//! The table of operations, `/openapi.json` and the documentation say the same.

use std::collections::HashSet;

use crate::support::{Server, patient};
use millrace_base::ErrorCode;
use millrace_http::{OPERATIONS, error_page, openapi, status_of};
use serde_json::Value;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi.golden.json");
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/http.md");
const BEGIN: &str = "<!-- operations: written from the table in crates/http; a test compares -->\n";
const END: &str = "<!-- end of operations -->";

/// Set it to rewrite what is compared, then look at the difference before committing it.
fn is_update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

#[test]
fn the_document_is_the_golden_one_and_is_what_the_server_answers() {
    let document = openapi::document();
    let mut pretty = serde_json::to_string_pretty(&document).expect("JSON");
    pretty.push('\n');
    if is_update() {
        std::fs::write(GOLDEN, &pretty).expect("written");
    }
    let golden = std::fs::read_to_string(GOLDEN).expect("UPDATE_GOLDEN=1 writes it");
    assert_eq!(pretty, golden, "the contract changed; UPDATE_GOLDEN=1 if that is meant");
    let reply = Server::start(patient()).ask("GET /openapi.json", b"");
    assert_eq!((reply.status, reply.json()), (200, document));
}

#[test]
fn the_document_is_well_formed() {
    let document = openapi::document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = HashSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        assert!(path.starts_with('/'));
        for (method, operation) in item.as_object().expect("an item") {
            let place = format!("{method} {path}");
            assert!(["get", "post", "put", "patch", "delete"].contains(&method.as_str()), "{place}");
            assert!(ids.insert(operation["operationId"].as_str().expect("an id").to_owned()), "{place}");
            let declared: HashSet<&str> = operation["parameters"]
                .as_array()
                .expect("parameters")
                .iter()
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| parameter["name"].as_str().expect("a name"))
                .collect();
            let used: HashSet<&str> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            assert_eq!(declared, used, "{place}");
            let responses = operation["responses"].as_object().expect("responses");
            assert!(responses.len() > 1 && responses.contains_key("default"), "{place}");
            assert!(
                responses.values().all(|one| one.get("$ref").is_some() || one["description"].is_string()),
                "{place}"
            );
        }
    }
    check_references(&document, &document);
}

fn check_references(value: &Value, document: &Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                let pointer = reference.strip_prefix('#').expect("inside the document");
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            object.values().for_each(|inner| check_references(inner, document));
        }
        Value::Array(array) => array.iter().for_each(|inner| check_references(inner, document)),
        _ => {}
    }
}

#[test]
fn every_schema_of_the_table_is_json() {
    for row in OPERATIONS {
        for media in row.request.iter().chain(row.answers.iter().filter_map(|answer| answer.body.as_ref())) {
            assert!(serde_json::from_str::<Value>(media.schema).is_ok(), "{}: {}", row.template(), media.schema);
        }
    }
}

#[test]
fn the_guide_lists_every_operation() {
    let mut table = String::from("\n| method | path | what it does | needs |\n|---|---|---|---|\n");
    for row in OPERATIONS {
        let method = if row.method == "*" { "any" } else { row.method };
        let needs = match row.access {
            millrace_http::Access::Public => "nothing",
            millrace_http::Access::Call => "`call:…`",
            millrace_http::Access::Deploy => "`deploy`",
            millrace_http::Access::Worker => "`worker:…`",
            millrace_http::Access::Admin => "`admin`",
            millrace_http::Access::Records => "`call:records/…`",
            millrace_http::Access::AnyKey => "any key",
        };
        table.push_str(&format!("| {method} | `{}` | {} | {needs} |\n", row.template(), row.summary));
    }
    table.push('\n');
    let guide = std::fs::read_to_string(GUIDE).expect("the guide");
    let (before, rest) = guide.split_once(BEGIN).expect("the begin mark");
    let (list, after) = rest.split_once(END).expect("the end mark");
    if is_update() {
        std::fs::write(GUIDE, format!("{before}{BEGIN}{table}{END}{after}")).expect("written");
    } else {
        assert_eq!(list, table, "the guide's list is old; UPDATE_GOLDEN=1 rewrites it");
    }
}

#[test]
fn every_error_page_explains_its_code() {
    for code in ErrorCode::all() {
        let page = error_page(code);
        assert!(page.starts_with(&format!("# {}\n", code.as_str())), "{code:?}");
        for needed in [
            code.title(),
            &format!("HTTP status {}", status_of(code).as_u16()),
            "## What to do",
            "application/problem+json",
        ] {
            assert!(page.contains(needed), "{code:?}: {needed}");
        }
        let example = page.split_once("\n{").and_then(|(_, rest)| rest.split_once("\n}")).expect("an example").0;
        let example: Value = serde_json::from_str(&format!("{{{example}}}")).expect("JSON");
        assert_eq!(example["code"], code.as_str());
        assert_eq!(example["type"], format!("/errors/{}", code.as_str()));
        assert_eq!(example["status"], status_of(code).as_u16());
        assert_eq!(example["title"], code.title());
    }
}
