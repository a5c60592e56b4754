//! The registry as the files of an app: it reads back what it wrote, and refuses foreign files with the place.

use super::*;
use crate::{NewSchema, TypeChange, VersionNumber};

const GOLDEN: &str = include_str!("../tests/registry.json");

fn file(path: &str, content: &str) -> AppFile {
    AppFile { path: path.to_owned(), content: content.as_bytes().to_vec() }
}

/// Has one of everything.
fn sample() -> Registry {
    let mut registry = Registry::default();
    let money = r#"{"type":"record","name":"shop.Money","fields":[{"name":"cents","type":"long"}]}"#;
    registry.register("money", &NewSchema::avro(money)).expect("a schema");
    registry.register("money", &NewSchema::avro("\"int\"")).expect_err("not compatible");
    let order = r#"{"type":"record","name":"shop.Order","fields":[
  {"name":"buyer","type":"string"},
  {"name":"tags","type":{"type":"array","items":"string"},"default":[]},
  {"name":"total","type":"Money"}
]}"#;
    let change = format!(
        r#"{{"schema": {order}, "references": [{{"name":"shop.Money","subject":"money","version":-1}}],
            "compatibility": "FULL", "create": "touch", "ttl_ms": 60000,
            "indexes": [{{"name":"old","path":".tags[*]"}}],
            "changes": {{"retention_ms": 86400000}}}}"#
    );
    registry.put_type("order", &TypeChange::from_json(&change).expect("a change")).expect("a type");
    let change = r#"{"indexes": [{"name":"buyer","path":".buyer","ignore_case":true},{"name":"cents","path":".total.cents"}],
        "triggers": [{"name":"check","path":".","when":"before","source":"export default () => {};\n"},
                     {"name":"tell","path":".total","source":"// ü\n"}]}"#;
    registry.put_type("order", &TypeChange::from_json(change).expect("a change")).expect("a type");
    registry.register("events-value", &NewSchema::avro("\"string\"")).expect("a schema");
    registry.register("events-value", &NewSchema::avro("\"bytes\"")).expect("string and bytes are compatible");
    registry.delete_version("events-value", VersionNumber::Number(1), false).expect("there");
    registry.set_compatibility(Some("later"), Some(Level::None)).expect("a level");
    registry.set_compatibility(None, Some(Level::Backward)).expect("a level");
    registry.set_mode(Some("events-value"), Some(Mode::ReadOnly), false).expect("a mode");
    registry
}

#[test]
fn the_file_is_as_it_always_was() {
    let files = sample().to_files();
    let text = String::from_utf8(files[0].content.clone()).expect("JSON");
    assert_eq!(text, GOLDEN, "stored registries must stay readable: a new form needs a new format number");
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["registry.json", "triggers/order/check.js", "triggers/order/tell.js"]);
    assert_eq!(files[2].content, "// ü\n".as_bytes());
    let golden = [file("registry.json", GOLDEN), files[1].clone(), files[2].clone()];
    let read = Registry::from_files(&golden).expect("a registry");
    assert_eq!(read, sample());
    assert_eq!(read.to_files(), files);
}

#[test]
fn no_files_are_an_empty_registry() {
    let empty = Registry::from_files(&[]).expect("empty");
    assert_eq!(empty, Registry::default());
    assert_eq!(Registry::from_files(&empty.to_files()), Ok(empty));
}

#[test]
fn schemas_that_did_not_change_are_not_compiled_again() {
    let before = sample();
    let mut after = before.clone();
    after.register("new", &NewSchema::avro("\"long\"")).expect("a schema");
    let read = Registry::from_files_with(&after.to_files(), Some(&before)).expect("a registry");
    assert_eq!(read, after);
    for (id, schema) in &before.schemas {
        assert!(Arc::ptr_eq(schema, &read.schemas[id]), "{id}");
    }
    // The registry of another app has other schemas under the same ids.
    let mut other = Registry::default();
    other.register("x", &NewSchema::avro("\"double\"")).expect("a schema");
    other.register("y", &NewSchema::avro("\"float\"")).expect("a schema");
    let read = Registry::from_files_with(&after.to_files(), Some(&other)).expect("a registry");
    assert_eq!(read, after);
    assert_eq!(read.schemas[&1].schema(), after.schemas[&1].schema());
    assert_ne!(read.schemas[&1].schema(), other.schemas[&1].schema());
}

/// The sample with one text replaced by another, in every file.
fn damage(from: &str, to: &str) -> Result<Registry, Refusal> {
    let mut hits = 0;
    let files: Vec<AppFile> = sample()
        .to_files()
        .into_iter()
        .map(|found| {
            let content = String::from_utf8(found.content).expect("text");
            hits += content.matches(from).count();
            file(&found.path, &content.replace(from, to))
        })
        .collect();
    assert!(hits > 0, "{from} is not in the sample");
    Registry::from_files(&files)
}

#[test]
fn damaged_files_are_refused() {
    let table = [
        ("\"format\": 1", "\"format\": 2"),
        ("\"format\": 1", "\"form\": 1"),
        ("\"next_id\": 5", "\"next_id\": 4"),
        ("\"next_id\": 5", "\"next_id\": 0"),
        ("\"next_id\": 5", "\"next_id\": 4294967295"),
        ("\"next_id\": 5", "\"next_id\": 5, \"more\": 1"),
        ("\"FULL\"", "\"SOME\""),
        ("\"READONLY\"", "\"READ\""),
        ("\"version\": 2", "\"version\": 1"),
        ("\"version\": 2", "\"version\": 0"),
        ("\"version\": 2", "\"version\": 4294967295"),
        ("\"subject\": \"money\"", "\"subject\": \"order\""),
        ("\"subject\": \"money\"", "\"subject\": \"none\""),
        ("\"deleted\": true", "\"deleted\": 1"),
        ("\"next_index\": 3", "\"next_index\": 2"),
        ("\"next_index\": 3", "\"next_index\": 65536"),
        ("\"next_index\": 3", "\"next_index\": 3, \"stream\": 4"),
        ("\"number\": 1", "\"number\": 2"),
        ("\"path\": \".total.cents\"", "\"path\": \".total\""),
        ("\"path\": \".total.cents\"", "\"path\": \".{\""),
        ("\"name\": \"check\"", "\"name\": \"none\""),
        ("\"name\": \"check\"", "\"name\": \"../x\""),
        ("\"name\": \"tell\"", "\"name\": \"check\""),
        ("\"order\": {", "\"--\": {"),
        ("\"order\": {", "\"ids\": {"),
        ("\"later\": {", "\"\": {"),
        ("\"ttl_ms\": 60000", "\"ttl_ms\": -1"),
        ("\\\"Money\\\"", "\\\"Monet\\\""),
        ("\"schema\": \"\\\"bytes\\\"\"", "\"schema\": \"{\""),
    ];
    for (from, to) in table {
        let error = damage(from, to).expect_err(to);
        assert_eq!(millrace_base::Error::from(error.clone()).code.as_str(), "bad-request", "{to}: {error}");
    }
    for files in [
        vec![file("triggers/order/check.js", "")],
        vec![file("registry.json", "")],
        vec![file("registry.json", "null")],
        vec![AppFile { path: "registry.json".into(), content: vec![0xff] }],
        vec![file("registry.json", GOLDEN)],
    ] {
        assert!(Registry::from_files(&files).is_err());
    }
    let mut more = sample().to_files();
    more.push(file("triggers/order/none.js", ""));
    assert!(Registry::from_files(&more).is_err());
}

fn tangled(schemas: usize, referred: impl Fn(usize) -> Option<usize>) -> Vec<AppFile> {
    let name = |n: usize| format!("s{n}");
    let subjects: BTreeMap<String, serde_json::Value> =
        (1..=schemas).map(|n| (name(n), serde_json::json!({ "versions": [{ "version": 1, "id": n }] }))).collect();
    let schemas: Vec<serde_json::Value> = (1..=schemas)
        .map(|n| {
            let to = referred(n).map(|to| serde_json::json!({ "name": "x", "subject": name(to), "version": 1 }));
            serde_json::json!({ "id": n, "references": Vec::from_iter(to), "schema": "\"int\"" })
        })
        .collect();
    let text = serde_json::json!({ "format": 1, "next_id": 100_000, "subjects": subjects, "schemas": schemas });
    vec![file("registry.json", &text.to_string())]
}

#[test]
fn references_in_a_circle_and_long_chains_are_refused() {
    assert!(Registry::from_files(&tangled(3, |n| Some(n % 3 + 1))).is_err());
    assert!(Registry::from_files(&tangled(1, |_| Some(1))).is_err());
    assert!(Registry::from_files(&tangled(9000, |n| (n < 9000).then_some(n + 1))).is_err());
    assert!(Registry::from_files(&tangled(9000, |n| (n > 1).then(|| n - 1))).is_err());
    assert!(Registry::from_files(&tangled(100, |n| (n < 100).then_some(n + 1))).is_ok());
    assert!(Registry::from_files(&tangled(20_000, |_| None)).is_err());
}
