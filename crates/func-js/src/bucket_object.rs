//! `ctx.object` and `ctx.objects`: operations on objects of buckets. The JavaScript objects that they give are made in
//! `glue.js`; what those ask the host for, and what its answers mean, is here.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_api::objects::{
    FunctionPut, ListRequest, OBJECTS_APP, ObjectInfo, ObjectOperation, ObjectReply, ObjectRequest, Refusal, Requester,
    Slices, Target, app_id,
};
use millrace_base::{Error, ErrorCode};
use millrace_func::BuiltInCall;
use serde_json::{Value as Json, json};

use crate::isolate::Isolate;
use crate::js::{Kind, NULL, Raw, Thrown, UNDEFINED, Value, is_nullish, kind};
use crate::native::{Call, Entry, NativeOwner};
use crate::operations::Answer;

pub(crate) const ENTRIES: &[Entry] = &[
    (NativeOwner::Context, "object", 2, object),
    (NativeOwner::Context, "objects", 1, objects),
    (NativeOwner::Helpers, "objectGet", 3, get),
    (NativeOwner::Helpers, "objectHead", 3, head),
    (NativeOwner::Helpers, "objectPut", 8, put),
    (NativeOwner::Helpers, "objectDelete", 4, delete),
    (NativeOwner::Helpers, "objectsList", 6, list),
];

/// What the reply to an operation on objects gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectAnswer {
    /// Metadata and content; `null` when there is no object.
    Stored,
    /// Metadata; `null` when there is no object.
    Info,
    /// What was written.
    Written,
    /// Nothing.
    Done,
    /// A page of a list.
    Page,
}

impl ObjectAnswer {
    /// The value that stands for an error, where one does.
    pub(crate) fn instead_of(self, error: &Error) -> Option<Raw> {
        let is_read = matches!(self, Self::Stored | Self::Info);
        (is_read && Refusal::of(error) == Some(Refusal::NoSuchKey)).then_some(NULL)
    }
}

fn shown(info: &ObjectInfo) -> Json {
    let content_type = info.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value);
    let metadata: BTreeMap<_, _> = info.metadata.iter().map(|(name, value)| (name, value)).collect();
    json!({
        "sizeBytes": info.size_bytes,
        "etag": info.etag,
        "modifiedMs": info.modified_ms,
        "contentType": content_type.map_or("binary/octet-stream", String::as_str),
        "metadata": metadata,
        "version": info.version,
    })
}

impl Isolate {
    /// What a reply to an operation on objects means.
    pub(crate) fn object_value(&self, answer: ObjectAnswer, output: &Bytes) -> Result<Value, Thrown> {
        let (reply, body) = ObjectReply::from_bytes(output.clone()).map_err(|error| self.throw_error(error))?;
        let json = match (answer, &reply) {
            (ObjectAnswer::Done, _) => return Ok(self.context.own(UNDEFINED)),
            (ObjectAnswer::Stored | ObjectAnswer::Info, ObjectReply::Object { info, .. }) => shown(info),
            (ObjectAnswer::Written, ObjectReply::Written { etag, version, .. }) => {
                json!({ "etag": etag, "version": version })
            }
            (ObjectAnswer::Page, ObjectReply::Objects(page)) => {
                let items = page.items.iter().map(|item| {
                    json!({
                        "key": item.key, "sizeBytes": item.size_bytes, "etag": item.etag, "modifiedMs": item.modified_ms,
                    })
                });
                let next = page.next.as_ref().map(|(key, _)| key);
                json!({ "objects": items.collect::<Vec<_>>(), "prefixes": page.common_prefixes, "next": next })
            }
            _ => {
                let message = "an operation on objects was answered with something else";
                return Err(self.throw_error(Error::new(ErrorCode::Internal, message)));
            }
        };
        let value = self.parse_json(json.to_string().as_bytes())?;
        if answer != ObjectAnswer::Stored {
            return Ok(value);
        }
        let body = self.context.uint8_array(&body)?;
        self.context.call(self.glue.make_stored, UNDEFINED, &mut [value.raw(), body.raw()])
    }

    /// A string argument, or empty if it is left out.
    fn object_option(&self, raw: Raw, what: &str) -> Result<String, Thrown> {
        if is_nullish(raw) { Ok(String::new()) } else { self.object_text(raw, what) }
    }

    fn object_text(&self, raw: Raw, what: &str) -> Result<String, Thrown> {
        if kind(raw) != Kind::String {
            return Err(self.context.throw_type(&format!("{what} must be a string")));
        }
        let text = self.context.text(raw)?;
        self.check_utf8(&text)?;
        Ok(String::from_utf8_lossy(text.bytes()).into_owned())
    }

    /// The bytes that are to be written: a string as UTF-8, or bytes.
    fn object_body(&self, raw: Raw) -> Result<Bytes, Thrown> {
        let body = match kind(raw) {
            Kind::String => self.object_text(raw, "a body")?.into_bytes(),
            Kind::Object if self.is_binary(raw) => self.context.bytes_of(raw)?.unwrap_or_default(),
            _ => return Err(self.context.throw_type("a body must be a string or a Uint8Array")),
        };
        FunctionPut::check_body(body.len()).map_err(|error| self.throw_error(error))?;
        Ok(Bytes::from(body))
    }

    /// `{ name: value }` of text.
    fn object_metadata(&self, raw: Raw) -> Result<BTreeMap<String, String>, Thrown> {
        if is_nullish(raw) {
            return Ok(BTreeMap::new());
        }
        let json = self.input(raw)?;
        let wrong = |_| self.context.throw_type("metadata is an object of strings: { name: value }");
        serde_json::from_slice(&json).map_err(wrong)
    }
}

/// `ctx.object(bucket, key)`: nothing is asked for before the object is used.
fn object(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    isolate.object_text(call.argument(0), "a bucket's name")?;
    isolate.object_text(call.argument(1), "an object's key")?;
    let mut arguments = [call.this, call.argument(0), call.argument(1)];
    call.context.call(isolate.glue.make_object, UNDEFINED, &mut arguments)
}

/// `ctx.objects(bucket)`.
fn objects(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.this)?;
    isolate.object_text(call.argument(0), "a bucket's name")?;
    call.context.call(isolate.glue.make_objects, UNDEFINED, &mut [call.this, call.argument(0)])
}

/// Asks for an operation in the bucket, and on the object, that the arguments `ctx`, bucket and key name.
fn ask(call: &Call<'_>, operation: ObjectOperation, body: Bytes, answer: ObjectAnswer) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    isolate.check_context(call.argument(0))?;
    let bucket = isolate.object_text(call.argument(1), "a bucket's name")?;
    let key = match answer {
        ObjectAnswer::Page => String::new(),
        _ => isolate.object_text(call.argument(2), "an object's key")?,
    };
    isolate.check_operations()?;
    let id = app_id(isolate.sources.app());
    let requester = Requester::function(&id);
    let request = ObjectRequest { requester, bucket: &bucket, key: &key, operation, body };
    // Where the object is in another slice, the bucket hands the operation on.
    let (Target { service, handler, key }, input) = (request.target(&Slices::default()), request.to_bytes());
    isolate.await_operation_as(Answer::Object(answer), || {
        let call = BuiltInCall { app: OBJECTS_APP, service, handler, key: Some(&key), input };
        isolate.with_host(|host| host.operate(call))
    })
}

fn get(call: &Call<'_>) -> Result<Value, Thrown> {
    ask(call, ObjectOperation::function_get(), Bytes::new(), ObjectAnswer::Stored)
}

fn head(call: &Call<'_>) -> Result<Value, Thrown> {
    ask(call, ObjectOperation::function_head(), Bytes::new(), ObjectAnswer::Info)
}

/// `ctx`, bucket and key, then body, content type, metadata, and the conditions `ifMatch` and `ifNoneMatch`.
fn put(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let body = isolate.object_body(call.argument(3))?;
    let put = FunctionPut {
        content_type: isolate.object_option(call.argument(4), "contentType")?,
        metadata: isolate.object_metadata(call.argument(5))?,
        if_match: isolate.object_option(call.argument(6), "ifMatch")?,
        if_none_match: isolate.object_option(call.argument(7), "ifNoneMatch")?,
    };
    let operation = put.operation("contentType", body.len()).map_err(|wrong| isolate.context.throw_type(&wrong))?;
    ask(call, operation, body, ObjectAnswer::Written)
}

/// `ctx`, bucket, key, and the condition `ifMatch`.
fn delete(call: &Call<'_>) -> Result<Value, Thrown> {
    let if_match = call.isolate.object_option(call.argument(3), "ifMatch")?;
    ask(call, ObjectOperation::function_delete(&if_match), Bytes::new(), ObjectAnswer::Done)
}

/// `ctx`, bucket, then prefix, delimiter, after and limit; what is not given is `undefined`.
fn list(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let limit = match kind(call.argument(5)) {
        Kind::Undefined | Kind::Null => None,
        Kind::Int(limit) => Some(limit.into()),
        // No number that is one of them.
        _ => Some(0),
    };
    let request = ListRequest {
        prefix: isolate.object_option(call.argument(2), "prefix")?,
        delimiter: isolate.object_option(call.argument(3), "delimiter")?,
        after: isolate.object_option(call.argument(4), "after")?,
        ..ListRequest::default()
    };
    let operation =
        ObjectOperation::function_list(request, limit).map_err(|wrong| isolate.context.throw_type(&wrong))?;
    ask(call, operation, Bytes::new(), ObjectAnswer::Page)
}
