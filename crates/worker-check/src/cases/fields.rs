//! Fields of the handler's entity.

use bytes::Bytes;
use millrace_format::worker::{FrameValue, WorkerFrame};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Done, Scene, no_answer, same};

fn names(scene: Scene<'_, '_>, expected: &Value) -> Result<(), String> {
    let full = ["a1", "a2", "a3", "b", "a\u{fc}"].iter().fold(scene, |scene, name| scene.field(name, &json!(1)));
    full.run(&mut no_answer)?.gives(expected)
}

fn query_names<'b, 't>(bench: &'b Bench<'t>, prefix: &str, after: Option<&str>, limit: u32) -> Scene<'b, 't> {
    Scene::query(bench, "names", &json!({"prefix": prefix, "after": after, "limit": limit}))
}

/// As when the entity's fields are too large to come along.
fn too_large<'b, 't>(mut scene: Scene<'b, 't>) -> Scene<'b, 't> {
    scene.is_too_large = true;
    scene
}

fn writes(done: &Done) -> usize {
    done.frames.iter().filter(|frame| matches!(frame, WorkerFrame::Set { .. } | WorkerFrame::Delete { .. })).count()
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "fields/not-set",
        expected: "a field that is not set has its default",
        run: |bench| {
            let done = Scene::new(bench, "add", &json!(2)).run(&mut no_answer)?;
            done.gives(&json!(2))?;
            done.has("count", Some(&json!(2)))
        },
    },
    Case {
        name: "fields/given",
        expected: "a field that comes with START is what the handler reads; one SET has its new value",
        run: |bench| {
            let done = Scene::new(bench, "add", &json!(2)).field("count", &json!(40)).run(&mut no_answer)?;
            done.gives(&json!(42))?;
            same("the number of writes", &writes(&done), &1)?;
            done.has("count", Some(&json!(42)))
        },
    },
    Case {
        name: "fields/query",
        expected: "a query reads and writes nothing",
        run: |bench| {
            let done = Scene::query(bench, "show", &Value::Null).field("count", &json!(7)).run(&mut no_answer)?;
            done.gives(&json!(7))?;
            same("the number of writes", &writes(&done), &0)
        },
    },
    Case {
        name: "fields/query-that-writes",
        expected: "a query that writes fails, and no SET leaves",
        run: |bench| {
            let done = Scene::query(bench, "query_that_writes", &Value::Null).run(&mut no_answer)?;
            done.fails("function-failed").map(|_| ())
        },
    },
    Case {
        name: "fields/put",
        expected: "a field set by its name: SET with its JSON",
        run: |bench| {
            let done = Scene::new(bench, "put", &json!(["note", {"a": [1]}])).run(&mut no_answer)?;
            done.has("note", Some(&json!({"a": [1]})))
        },
    },
    Case {
        name: "fields/put-null",
        expected: "null is a value: SET, and not DELETE",
        run: |bench| {
            let done = Scene::new(bench, "put", &json!(["note", null])).run(&mut no_answer)?;
            done.has("note", Some(&Value::Null))
        },
    },
    Case {
        name: "fields/put-raw",
        expected: "bytes: SET with a raw value",
        run: |bench| {
            let done = Scene::new(bench, "put_raw", &json!("blob")).run(&mut no_answer)?;
            let raw = FrameValue::Raw(Bytes::from_static(&[0, 0xff]));
            same("the field", &done.fields.get(&b"blob"[..]), &Some(&raw))
        },
    },
    Case {
        name: "fields/remove",
        expected: "a field removed: DELETE",
        run: |bench| {
            let scene = Scene::new(bench, "remove", &json!("note")).field("note", &json!(1));
            scene.run(&mut no_answer)?.has("note", None)
        },
    },
    Case {
        name: "fields/own-writes",
        expected: "a handler sees its own writes, in reads and in scans",
        run: |bench| {
            let scene = Scene::new(bench, "write_then_read", &Value::Null).field("count", &json!(1));
            scene.run(&mut no_answer)?.gives(&json!([7, ["count"]]))
        },
    },
    Case {
        name: "fields/own-writes-too-large",
        expected: "it does so where its fields did not come along",
        run: |bench| {
            let scene = Scene::new(bench, "write_then_read", &Value::Null).field("count", &json!(1));
            too_large(scene).run(&mut no_answer)?.gives(&json!([7, ["count"]]))
        },
    },
    Case {
        name: "fields/asked-for",
        expected: "a field that did not come along is asked for, and not taken for one that is not set",
        run: |bench| {
            let scene = Scene::new(bench, "add", &json!(2)).field("count", &json!(40));
            too_large(scene).run(&mut no_answer)?.gives(&json!(42))
        },
    },
    Case {
        name: "fields/asked-for-and-not-set",
        expected: "a field that did not come along and is not set has its default",
        run: |bench| too_large(Scene::new(bench, "add", &json!(2))).run(&mut no_answer)?.gives(&json!(2)),
    },
    Case {
        name: "fields/read-by-name",
        expected: "a field that is not declared is read, as it came or when it is asked for",
        run: |bench| {
            let scene = Scene::query(bench, "read", &json!("note")).field("note", &json!(["n"]));
            scene.clone().run(&mut no_answer)?.gives(&json!(["n"]))?;
            too_large(scene).run(&mut no_answer)?.gives(&json!(["n"]))
        },
    },
    Case {
        name: "fields/read-raw",
        expected: "raw bytes are read as bytes",
        run: |bench| {
            let mut scene = Scene::query(bench, "read", &json!("blob"));
            scene.fields.insert(Bytes::from_static(b"blob"), FrameValue::Raw(Bytes::from_static(&[0xde, 0xad])));
            scene.run(&mut no_answer)?.gives(&json!("dead"))
        },
    },
    Case {
        name: "fields/scan",
        expected: "names of fields come in the order of their bytes, those with the prefix",
        run: |bench| names(query_names(bench, "a", None, 10), &json!(["a1", "a2", "a3", "a\u{fc}"])),
    },
    Case {
        name: "fields/scan-page",
        expected: "a page begins behind `after` and ends at its limit",
        run: |bench| names(query_names(bench, "a", Some("a1"), 2), &json!(["a2", "a3"])),
    },
    Case {
        name: "fields/scan-too-large",
        expected: "the same where the fields did not come along",
        run: |bench| {
            names(too_large(query_names(bench, "a", None, 10)), &json!(["a1", "a2", "a3", "a\u{fc}"]))?;
            names(too_large(query_names(bench, "a", Some("a1"), 2)), &json!(["a2", "a3"]))
        },
    },
    Case {
        name: "fields/many",
        expected: "1,000 fields that did not come along are all found",
        run: |bench| {
            let name = |number: u32| format!("f{number:04}");
            let mut scene =
                too_large(Scene::query(bench, "names", &json!({"prefix": "f", "after": null, "limit": 5000})));
            scene = (0..1000).fold(scene, |scene, number| scene.field(&name(number), &json!(number)));
            scene.run(&mut no_answer)?.gives(&(0..1000).map(name).collect::<Vec<_>>().into())
        },
    },
];
