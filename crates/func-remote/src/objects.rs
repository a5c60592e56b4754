//! OBJECT: from what a worker writes to an operation on a bucket, and back.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_api::objects::{
    FunctionPut, ListRequest, OBJECTS_APP, ObjectInfo, ObjectOperation, ObjectReply, ObjectRequest, Refusal, Requester,
    Slices, Target,
};
use millrace_base::{Error, ErrorCode};
use millrace_format::worker::FrameValue;
use millrace_func::{BuiltInCall, Host, OperationId};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::attempt::broken;

/// What a worker asks of a bucket. What is empty is not given.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum WorkerObjectOperation {
    Get {},
    Head {},
    Put {
        #[serde(default)]
        content_type: String,
        #[serde(default)]
        metadata: BTreeMap<String, String>,
        #[serde(default)]
        if_match: String,
        #[serde(default)]
        if_none_match: String,
    },
    Delete {
        #[serde(default)]
        if_match: String,
    },
    List {
        #[serde(default)]
        prefix: String,
        #[serde(default)]
        delimiter: String,
        #[serde(default)]
        after: String,
        #[serde(default)]
        limit: Option<i64>,
    },
}

/// What the reply to an operation gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectAnswer {
    /// Of a read: `null` where there is no object.
    Read,
    /// Of all else.
    Other,
}

/// Where an operation takes place: the app that asks, the bucket and the key.
pub(crate) struct ObjectPlace<'a> {
    pub app_id: &'a str,
    pub bucket: &'a str,
    pub key: &'a str,
}

/// Asks for an operation on an object. An inner error is the handler's to see.
///
/// # Errors
/// `worker-failed` for a request that is not one.
pub(crate) fn begin_object(
    place: &ObjectPlace<'_>,
    request: &[u8],
    body: Bytes,
    host: &mut dyn Host,
) -> Result<(ObjectAnswer, Result<OperationId, Error>), Error> {
    let asked: WorkerObjectOperation =
        serde_json::from_slice(request).map_err(|error| broken(format_args!("an operation on an object: {error}")))?;
    if !body.is_empty() && !matches!(asked, WorkerObjectOperation::Put { .. }) {
        return Err(broken("only an object that is put has a body"));
    }
    let answer = match asked {
        WorkerObjectOperation::Get {} | WorkerObjectOperation::Head {} => ObjectAnswer::Read,
        _ => ObjectAnswer::Other,
    };
    let begun = operation(asked, body.len()).and_then(|operation| {
        let ObjectPlace { app_id, bucket, key } = *place;
        let key = if matches!(operation, ObjectOperation::List(_)) { "" } else { key };
        let request = ObjectRequest { requester: Requester::function(app_id), bucket, key, operation, body };
        // Where the object is in another slice, the bucket hands the operation on.
        let (Target { service, handler, key }, input) = (request.target(&Slices::default()), request.to_bytes());
        host.operate(BuiltInCall { app: OBJECTS_APP, service, handler, key: Some(&key), input })
    });
    Ok((answer, begun))
}

fn operation(asked: WorkerObjectOperation, body_bytes: usize) -> Result<ObjectOperation, Error> {
    let wrong = |what| Error::new(ErrorCode::InvalidInput, what);
    match asked {
        WorkerObjectOperation::Get {} => Ok(ObjectOperation::function_get()),
        WorkerObjectOperation::Head {} => Ok(ObjectOperation::function_head()),
        WorkerObjectOperation::Put { content_type, metadata, if_match, if_none_match } => {
            FunctionPut::check_body(body_bytes)?;
            let put = FunctionPut { content_type, metadata, if_match, if_none_match };
            put.operation("content_type", body_bytes).map_err(wrong)
        }
        WorkerObjectOperation::Delete { if_match } => Ok(ObjectOperation::function_delete(&if_match)),
        WorkerObjectOperation::List { prefix, delimiter, after, limit } => {
            let request = ListRequest { prefix, delimiter, after, ..ListRequest::default() };
            ObjectOperation::function_list(request, limit).map_err(wrong)
        }
    }
}

/// What a worker is told of the end of an operation.
///
/// # Errors
/// The operation's.
pub(crate) fn object_output(answer: ObjectAnswer, result: Result<Bytes, Error>) -> Result<FrameValue, Error> {
    let of_json = |json: Json| FrameValue::Json(json.to_string().into());
    let output = match result {
        Err(error) if answer == ObjectAnswer::Read && Refusal::of(&error) == Some(Refusal::NoSuchKey) => {
            return Ok(of_json(Json::Null));
        }
        result => result?,
    };
    let (reply, content) = ObjectReply::from_bytes(output)?;
    match reply {
        ObjectReply::Object { info, .. } => Ok(FrameValue::Raw(with_content(&info, &content))),
        ObjectReply::Written { etag, version, .. } => Ok(of_json(json!({ "etag": etag, "version": version }))),
        ObjectReply::Objects(page) => {
            let objects = page.items.iter().map(|item| {
                json!({
                    "key": item.key, "size_bytes": item.size_bytes, "etag": item.etag, "modified_ms": item.modified_ms,
                })
            });
            let next = page.next.as_ref().map(|(key, _)| key);
            let objects: Vec<Json> = objects.collect();
            Ok(of_json(json!({ "objects": objects, "prefixes": page.common_prefixes, "next": next })))
        }
        _ => Ok(of_json(Json::Null)),
    }
}

/// What an object is, as JSON behind its length, and the content.
fn with_content(info: &ObjectInfo, content: &[u8]) -> Bytes {
    let content_type = info.headers.iter().find(|(name, _)| name == "content-type").map(|(_, value)| value);
    let metadata: BTreeMap<_, _> = info.metadata.iter().map(|(name, value)| (name, value)).collect();
    let info = json!({
        "size_bytes": info.size_bytes,
        "etag": info.etag,
        "modified_ms": info.modified_ms,
        "content_type": content_type.map_or("binary/octet-stream", String::as_str),
        "metadata": metadata,
        "version": info.version,
    });
    let info = info.to_string();
    let length = u32::try_from(info.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], info.as_bytes(), content].concat().into()
}
