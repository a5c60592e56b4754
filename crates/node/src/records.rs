//! Records: the front's requests as operations of their built-in app, and its replies.

use bytes::Bytes;
use millrace_api::{
    Begun, BuiltInReply, Permission, Principal, RECORDS_APP, RecordOperation, RecordReply, RecordRequest, Records,
    SHARD_SERVICE, no_built_in_service,
};
use millrace_base::{Error, ErrorCode};
use millrace_driver::Enqueue;
use millrace_func::{Answer, Base64Alphabet, Catalog, HandlerId, base64_encode};

use crate::backend::{CoreHandle, catalog};
use crate::built_in_apps::{Swept, find_sweep, has_entities, sweep_service};
use crate::operations::{BuiltIn, Operation, OperationKey};

/// The built-in app of records. A type is a service, and the id of a record is a key.
struct RecordsApp;

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
fn operation<'a>(request: &RecordRequest<'a>) -> Result<Operation<'a>, Error> {
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

impl Records for CoreHandle {
    fn record(&self, principal: &Principal, request: RecordRequest<'_>) -> Begun<RecordReply> {
        match operation(&request) {
            Ok(operation) => self.operate::<RecordsApp>(principal, &operation),
            Err(error) => Begun::Ended(Err(error)),
        }
    }

    /// As messages that survive a crash.
    async fn record_sweep(&self, principal: &Principal, type_name: &str) -> Result<(), Error> {
        principal.require(Permission::Deploy)?;
        catalog(&self.core().borrow())?;
        let unknown = || no_built_in_service(RECORDS_APP, type_name);
        let swept = Swept::of(RECORDS_APP, &format!("{type_name}{SHARD_SERVICE}")).ok_or_else(unknown)?;
        if find_sweep(self, &swept).is_err() {
            return Err(unknown());
        }
        sweep_service(self, &swept, |shard, invoke| Enqueue { shard, invoke, delay_ms: 0 }, b"").await
    }

    async fn has_records(&self, principal: &Principal, type_name: &str) -> Result<bool, Error> {
        if !principal.may(Permission::Read { app: RECORDS_APP, service: type_name }) {
            principal.require(Permission::Deploy)?;
        }
        catalog(&self.core().borrow())?;
        has_entities(self, RECORDS_APP, type_name).await
    }

    fn is_record_type(&self, name: &str) -> bool {
        self.core().borrow().programs.catalog.is_only_built_in(RECORDS_APP, name)
    }
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
