//! Records: the front's requests as operations of their built-in app, and its replies.

use bytes::Bytes;
use millrace_api::{
    BuiltInReply, RECORDS_APP, RecordOperation, RecordReply, RecordRequest, SHARD_SERVICE, is_built_in,
    no_built_in_service,
};
use millrace_base::{Error, ErrorCode, ShardId};
use millrace_driver::Enqueue;
use millrace_driver::question::HasEntities;
use millrace_func::{Answer, Base64Alphabet, Catalog, HandlerId, base64_encode};

use crate::backend::CoreHandle;
use crate::built_in_apps::{find_sweep, sweep_service};
use crate::operations::{BuiltIn, Operation, OperationKey};

/// The built-in app of records. A type is a service, and the id of a record is a key.
pub(crate) struct RecordsApp;

impl BuiltIn for RecordsApp {
    type Reply = RecordReply;

    const NAME: &'static str = RECORDS_APP;

    fn find(catalog: &Catalog, service: &str, handler: &str) -> Result<HandlerId, Error> {
        catalog.built_in_handler(RECORDS_APP, service, handler).ok_or_else(|| no_built_in_service(RECORDS_APP, service))
    }

    fn reply(answer: Answer) -> Result<RecordReply, Error> {
        match answer {
            Answer::BuiltIn(BuiltInReply::Record(reply)) => Ok(reply),
            Answer::Value(output) => RecordReply::from_bytes(output),
        }
    }
}

/// A request as an operation.
///
/// # Errors
/// `bad-request` when it needs an id and has none.
pub(crate) fn operation<'a>(request: &RecordRequest<'a>) -> Result<Operation<'a>, Error> {
    let key = match request.id {
        _ if request.operation.is_about_type() => OperationKey::Anywhere,
        Some(id) => OperationKey::Of(id),
        None => return Err(Error::new(ErrorCode::BadRequest, "this operation needs the id of a record")),
    };
    Ok(Operation {
        service: request.type_name,
        handler: request.operation.handler(),
        key,
        input: request.operation.to_bytes(),
        is_read: !matches!(request.operation, RecordOperation::Write(_)),
        idempotency_key: request.idempotency_key,
    })
}

/// Refuses to reach the built-in app by the paths of services.
pub(crate) fn refuse_records(app: Option<&str>) -> Result<(), Error> {
    if let Some(app) = app.filter(|app| is_built_in(app)) {
        let message = match app {
            RECORDS_APP => {
                "the app \"records\" is built in: its records are reached at /records/{type}/{id}".to_owned()
            }
            _ => format!("the app {app:?} is built in and has other ways to be reached"),
        };
        return Err(Error::new(ErrorCode::UnknownApp, message));
    }
    Ok(())
}

/// Has every shard go over its records of a type, as messages that survive a crash.
pub(crate) async fn sweep(node: &CoreHandle, type_name: &str) -> Result<(), Error> {
    let service = format!("{type_name}{SHARD_SERVICE}");
    if find_sweep(node, &service).is_err() {
        return Err(no_built_in_service(RECORDS_APP, type_name));
    }
    sweep_service(node, &service, |shard, invoke| Enqueue { shard, invoke, delay_ms: 0 }, b"").await
}

/// Whether any shard has a record of a type.
pub(crate) async fn are_there(node: &CoreHandle, type_name: &str) -> Result<bool, Error> {
    for shard in (0..node.shard_count()).map(ShardId) {
        if node.ask(shard, HasEntities { app: RECORDS_APP.into(), service: type_name.into() }).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// For people: what a call of a record was given or gave is no JSON text.
pub(crate) fn input_as_json(bytes: Bytes) -> Bytes {
    if bytes.is_empty() || is_json(&bytes) {
        return bytes;
    }
    Bytes::from(serde_json::json!({ "base64": base64_encode(&bytes, Base64Alphabet::Standard) }).to_string())
}

/// The same for a reply, whose body is JSON unless it was asked for in another form.
pub(crate) fn reply_as_json(bytes: Bytes) -> Bytes {
    if is_json(&bytes) {
        return bytes;
    }
    match RecordReply::from_bytes(bytes.clone()) {
        Ok(reply) if is_json(&reply.body) => reply.body,
        Ok(reply) if reply.body.is_empty() => {
            Bytes::from(serde_json::json!({ "matched": reply.matched, "created": reply.created }).to_string())
        }
        _ => input_as_json(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_json_whatever_was_kept() {
        let shown = |bytes: Bytes| String::from_utf8(reply_as_json(bytes).to_vec()).expect("text");
        let reply = |body: &'static [u8]| {
            RecordReply { matched: 2, body: Bytes::from_static(body), ..RecordReply::default() }.to_bytes()
        };
        assert_eq!(shown(Bytes::from_static(b"[1]")), "[1]");
        assert_eq!(shown(reply(b"{\"a\":1}")), "{\"a\":1}");
        assert_eq!(shown(reply(b"")), r#"{"created":false,"matched":2}"#);
        assert_eq!(shown(Bytes::from_static(b"\xff\x00")), r#"{"base64":"/wA="}"#);
        assert_eq!(input_as_json(Bytes::new()), Bytes::new());
    }
}
