//! What scripts do with records: an operation on one carries the script that is to run there.

use millrace_api::{Form, RECORDS_APP, RecordChange, RecordOperation, RecordQuery, RecordWrite};
use millrace_func::{BuiltInCall, Error, Host, OperationId};
use serde_json::Value as Json;

use crate::engine::{number, text, thrown};

/// The script that an activation is to run, whether it was called or operated on.
pub(crate) fn script_of(input: Vec<u8>) -> Vec<u8> {
    match RecordOperation::from_bytes(&input) {
        Ok(RecordOperation::Select { path: script, .. }) => script.as_bytes().to_vec(),
        Ok(RecordOperation::Find(RecordQuery { predicate: script, .. })) => script.as_bytes().to_vec(),
        Ok(RecordOperation::Write(RecordWrite { change: RecordChange::Put { value: script, .. }, .. })) => {
            script.to_vec()
        }
        _ => input,
    }
}

/// `["record", what, type, id, script]`.
pub(crate) fn ask(operation: &[Json], host: &mut dyn Host) -> Result<OperationId, Error> {
    let script = operation.get(4).cloned().unwrap_or(Json::Null).to_string();
    let asked = match text(operation, 1)? {
        "read" => RecordOperation::Select { path: &script, parameters: "", form: Form::Json },
        "find" => RecordOperation::Find(RecordQuery { predicate: &script, ..RecordQuery::default() }),
        "write" => RecordOperation::Write(RecordWrite {
            change: RecordChange::Put { form: Form::Json, value: script.as_bytes() },
            ..RecordWrite::default()
        }),
        _ => return Err(thrown("an operation on a record is unknown")),
    };
    let key = (!asked.is_about_type()).then_some(text(operation, 3)?.as_bytes());
    let (app, handler, input) = (RECORDS_APP, asked.handler(), asked.to_bytes());
    host.operate(BuiltInCall { app, service: text(operation, 2)?, handler, key, input })
}

/// `["keys", service, prefix, after, limit]`.
pub(crate) fn keys(operation: &[Json], host: &mut dyn Host) -> Result<Json, Error> {
    let whole = |index| number(operation, index).map(|number| usize::try_from(number).unwrap_or(0));
    let service = u16::try_from(whole(1)?).unwrap_or(u16::MAX);
    let after = operation.get(3).and_then(Json::as_str).map(str::as_bytes);
    let keys = host.keys(service, text(operation, 2)?.as_bytes(), after, whole(4)?)?;
    Ok(keys.into_iter().map(|key| Json::from(String::from_utf8_lossy(&key))).collect())
}
