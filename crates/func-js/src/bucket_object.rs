//! `ctx.object` and `ctx.objects`: operations on objects of buckets. The JavaScript objects that they give are made in
//! `glue.js`; what those ask the host for, and what its answers mean, is here.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_api::objects::{
    DeleteOne, ListRequest, OBJECTS_APP, ObjectInfo, ObjectOperation, ObjectReply, ObjectRequest, PutInput,
    ReadConditions, Refusal, Requester, Slices, Target, UploadInput, WriteConditions, WrittenBody, app_id,
};
use millrace_base::{Error, ErrorCode, limits};
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

/// Bytes of the names and values of an object's metadata: S3's bound.
const METADATA_BYTES: usize = 2 << 10;

/// Bytes of a content type.
const CONTENT_TYPE_BYTES: usize = 255;

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
        if body.len() > limits::OBJECT_WRITE_BYTES {
            let message = format!(
                "a function writes objects of at most {} bytes, not {}: larger ones come over S3",
                limits::OBJECT_WRITE_BYTES,
                body.len()
            );
            return Err(self.throw_error(Error::new(ErrorCode::SizeLimit, message)));
        }
        Ok(Bytes::from(body))
    }

    /// `{ name: value }` of text that HTTP headers can hold.
    fn object_metadata(&self, raw: Raw) -> Result<Vec<(String, String)>, Thrown> {
        if is_nullish(raw) {
            return Ok(Vec::new());
        }
        let wrong = |what: &str| Err(self.context.throw_type(what));
        let json = self.input(raw)?;
        let Ok(metadata) = serde_json::from_slice::<BTreeMap<String, String>>(&json) else {
            return wrong("metadata is an object of strings: { name: value }");
        };
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !metadata.iter().all(|(name, value)| is_name(name) && is_header_value(value)) {
            return wrong("metadata has names of letters, digits, '-', '_' and '.', and values of visible ASCII");
        }
        if metadata.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > METADATA_BYTES {
            return wrong("metadata has at most 2 KiB");
        }
        Ok(metadata.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect())
    }
}

fn is_header_value(text: &str) -> bool {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.trim() == text
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
    ask(call, ObjectOperation::GetWhole(ReadConditions::default()), Bytes::new(), ObjectAnswer::Stored)
}

fn head(call: &Call<'_>) -> Result<Value, Thrown> {
    let conditions = ReadConditions { is_head: true, ..ReadConditions::default() };
    ask(call, ObjectOperation::Get(conditions), Bytes::new(), ObjectAnswer::Info)
}

/// An ETag, with quotes or without, as conditions have it.
fn etags(etag: &str) -> Vec<String> {
    if etag.is_empty() { Vec::new() } else { vec![etag.trim_matches('"').to_owned()] }
}

/// `ctx`, bucket and key, then body, content type, metadata, and the conditions `ifMatch` and `ifNoneMatch`.
fn put(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let body = isolate.object_body(call.argument(3))?;
    let content_type = isolate.object_option(call.argument(4), "contentType")?;
    if content_type.len() > CONTENT_TYPE_BYTES || !is_header_value(&content_type) {
        return Err(isolate.context.throw_type("contentType is at most 255 bytes of visible ASCII"));
    }
    let metadata = isolate.object_metadata(call.argument(5))?;
    let if_match = etags(&isolate.object_option(call.argument(6), "ifMatch")?);
    let if_none_match = etags(&isolate.object_option(call.argument(7), "ifNoneMatch")?);
    let headers = if content_type.is_empty() { Vec::new() } else { vec![("content-type".to_owned(), content_type)] };
    let put = PutInput {
        input: UploadInput { headers, metadata, ..UploadInput::default() },
        // The engine of objects hashes it.
        body: WrittenBody { length: body.len() as u64, ..WrittenBody::default() },
        conditions: WriteConditions { if_match, if_none_match, ..WriteConditions::default() },
        ..PutInput::default()
    };
    ask(call, ObjectOperation::Put(Box::new(put)), body, ObjectAnswer::Written)
}

/// `ctx`, bucket, key, and the condition `ifMatch`.
fn delete(call: &Call<'_>) -> Result<Value, Thrown> {
    let if_match = etags(&call.isolate.object_option(call.argument(3), "ifMatch")?);
    let conditions = WriteConditions { if_match, ..WriteConditions::default() };
    let one = DeleteOne { conditions, ..DeleteOne::default() };
    ask(call, ObjectOperation::Delete(one), Bytes::new(), ObjectAnswer::Done)
}

/// `ctx`, bucket, then prefix, delimiter, after and limit; what is not given is `undefined`.
fn list(call: &Call<'_>) -> Result<Value, Thrown> {
    let isolate = call.isolate;
    let most = limits::MOST_PAGE_ITEMS as u16;
    let limit = match kind(call.argument(5)) {
        Kind::Undefined | Kind::Null => most,
        Kind::Int(limit) if (1..=i32::from(most)).contains(&limit) => limit as u16,
        _ => return Err(isolate.context.throw_type(&format!("limit must be a whole number from 1 to {most}"))),
    };
    let request = ListRequest {
        prefix: isolate.object_option(call.argument(2), "prefix")?,
        delimiter: isolate.object_option(call.argument(3), "delimiter")?,
        after: isolate.object_option(call.argument(4), "after")?,
        limit,
        ..ListRequest::default()
    };
    ask(call, ObjectOperation::List(request), Bytes::new(), ObjectAnswer::Page)
}
