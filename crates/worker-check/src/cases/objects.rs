//! Objects of buckets. They are there from version 4 on.

use bytes::Bytes;
use millrace_format::worker::{FrameResult, FrameValue, WorkerFrame};
use serde_json::{Value, json};

use crate::Case;
use crate::bench::Bench;
use crate::scene::{Course, Done, Scene, error, json as result, same};

/// The first version with OBJECT.
pub(crate) const VERSION: u32 = 4;

/// The answer to every operation on an object.
fn scene(bench: &Bench<'_>, handler: &str, input: &Value, course: Course, answer: FrameResult) -> Result<Done, String> {
    Scene::new(bench, handler, input).course(course).run(&mut |frame, _| match frame {
        WorkerFrame::Object { .. } => Some(answer.clone()),
        _ => None,
    })
}

/// What the one OBJECT says: bucket, key, the request's members, body.
fn asked(done: &Done) -> Result<(String, String, Value, Bytes), String> {
    done.only("OBJECT", |frame| match frame {
        WorkerFrame::Object { bucket, key, request, body, .. } => {
            let request = serde_json::from_slice(request).unwrap_or_default();
            Some((bucket.clone(), key.clone(), request, body.clone()))
        }
        _ => None,
    })
}

/// What an object is, behind its length, and its content.
fn stored(content: &[u8]) -> FrameResult {
    let info = json!({
        "size_bytes": 5, "etag": "e1", "modified_ms": 1, "content_type": "text/html", "metadata": {"a": "b"},
        "version": null, "of_a_newer_server": true,
    });
    let info = info.to_string();
    let length = info.len() as u32;
    Ok(FrameValue::Raw([&length.to_be_bytes()[..], info.as_bytes(), content].concat().into()))
}

fn written() -> FrameResult {
    result(&json!({"etag": "e1", "version": null}))
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "objects/get",
        expected: "OBJECT names bucket and key and says `get`; the handler gets the content and what the object is",
        run: |bench| {
            let done = scene(bench, "object_get", &json!(["pages", "a/\u{fc}"]), Course::Same, stored(b"hello"))?;
            let expected = ("pages".to_owned(), "a/\u{fc}".to_owned(), json!({"op": "get"}), Bytes::new());
            same("the operation", &asked(&done)?, &expected)?;
            done.gives(&json!(["hello", "text/html", 5]))
        },
    },
    Case {
        name: "objects/get-missing",
        expected: "an object that there is not is null",
        run: |bench| {
            let done = scene(bench, "object_get", &json!(["pages", "a"]), Course::Same, result(&Value::Null))?;
            done.gives(&Value::Null)
        },
    },
    Case {
        name: "objects/get-empty",
        expected: "an object without content is there",
        run: |bench| {
            let done = scene(bench, "object_get", &json!(["pages", "a"]), Course::Same, stored(b""))?;
            done.gives(&json!(["", "text/html", 5]))
        },
    },
    Case {
        name: "objects/head",
        expected: "OBJECT says `head`; the handler gets the ETag and the metadata",
        run: |bench| {
            let done = scene(bench, "object_head", &json!(["pages", "a"]), Course::Same, stored(b""))?;
            same("the operation", &asked(&done)?.2, &json!({"op": "head"}))?;
            done.gives(&json!(["e1", {"a": "b"}]))
        },
    },
    Case {
        name: "objects/put",
        expected: "OBJECT says `put` with content type and condition, and has the body as it is",
        run: |bench| {
            let done = scene(bench, "object_put", &json!(["pages", "a", "h\u{fc}"]), Course::Same, written())?;
            let put = json!({"op": "put", "content_type": "text/html", "if_none_match": "*"});
            let expected = ("pages".to_owned(), "a".to_owned(), put, Bytes::from_static("h\u{fc}".as_bytes()));
            same("the operation", &asked(&done)?, &expected)?;
            done.has("count", Some(&json!(1)))?;
            done.gives(&json!("e1"))
        },
    },
    Case {
        name: "objects/put-replayed",
        expected: "a handler that begins again on another worker writes the same",
        run: |bench| {
            let done = scene(bench, "object_put", &json!(["pages", "a", "x"]), Course::Anew, written())?;
            done.gives(&json!("e1"))
        },
    },
    Case {
        name: "objects/put-refused",
        expected: "a refused write that the handler does not catch is its failure, with the code `object-refused`",
        run: |bench| {
            let refused = error("object-refused", "the condition does not hold", r#"{"code":"PreconditionFailed"}"#);
            let done = scene(bench, "object_put", &json!(["pages", "a", "x"]), Course::Same, refused)?;
            done.fails("object-refused").map(|_| ())
        },
    },
    Case {
        name: "objects/delete",
        expected: "OBJECT says `delete`",
        run: |bench| {
            let done = scene(bench, "object_delete", &json!(["pages", "a"]), Course::Same, result(&Value::Null))?;
            same("the operation", &asked(&done)?.2, &json!({"op": "delete"}))?;
            done.gives(&Value::Null)
        },
    },
    Case {
        name: "objects/list",
        expected: "OBJECT says `list` with prefix and limit, and no key; the handler gets the page",
        run: |bench| {
            let page = json!({
                "objects": [{"key": "a1", "size_bytes": 1, "etag": "e", "modified_ms": 1}], "prefixes": [], "next": "a1",
            });
            let done = scene(bench, "objects", &json!("pages"), Course::Same, result(&page))?;
            let (bucket, key, request, _) = asked(&done)?;
            let list = json!({"op": "list", "prefix": "a", "limit": 2});
            same("the operation", &(bucket, key, request), &("pages".to_owned(), String::new(), list))?;
            done.gives(&json!([["a1"], "a1"]))
        },
    },
];
