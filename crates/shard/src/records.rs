//! What the built-in app of records may do beyond others: calls that leave the caller's app, and what it means that a
//! trigger aborts.

use millrace_api::{RECORDS_APP, RecordOperation, TRIGGERS_SERVICE, is_built_in};
use millrace_base::{Error, ErrorCode};
use millrace_format::MessageRecord;
use millrace_func::{HandlerId, NestedCall, Program};

use crate::world::World;

/// An error as what became of a message. An abort is an answer, and nobody receives that of a trigger: the
/// change is committed and cannot be refused any more. So it is a failure like any other, to be tried again
/// and kept. The trigger may have thrown it, or a call that the trigger did not wait for.
pub(crate) fn failure_of(message: &MessageRecord, error: Error) -> Error {
    if error.code != ErrorCode::Aborted || message.app != RECORDS_APP {
        return error;
    }
    let trigger = message.handler.trim_start_matches('_');
    let type_name = message.service.trim_end_matches(TRIGGERS_SERVICE);
    let text = format!("trigger {trigger:?} of the type {type_name:?}: it aborted: {}", error.message);
    Error { code: ErrorCode::FunctionFailed, message: text, ..error }
}

/// What a trigger of records or a notification of objects calls in another app: a handler that any caller of that app
/// may name.
///
/// # Errors
/// `forbidden` for whoever belongs to no built-in app; otherwise as [`millrace_func::Catalog::find`].
pub(crate) fn find_for_trigger(
    caller: Program,
    [app, service, handler]: [&str; 3],
    world: &World<'_>,
) -> Result<HandlerId, Error> {
    if world.catalog.program(caller).is_none_or(|loaded| !is_built_in(loaded.app.as_str())) {
        let message = format!("an app cannot call what belongs to another one: {app:?}");
        return Err(Error::new(ErrorCode::Forbidden, message));
    }
    let (program, service) = world.catalog.service(Some(app), service)?;
    world.catalog.handler(program, service, handler).map(|(id, _)| id)
}

/// The call that an operation on a record is: of the type's service in the present version of the
/// built-in app.
///
/// # Errors
/// `forbidden` when the caller's app may not use the type, `unknown-type` when there is none.
pub(crate) fn record_call(
    caller: Program,
    type_name: &str,
    key: Vec<u8>,
    operation: &RecordOperation<'_>,
    world: &World<'_>,
) -> Result<NestedCall, Error> {
    let gone = || Error::new(ErrorCode::UnknownApp, "the app is not loaded any more");
    let loaded = world.catalog.program(caller).ok_or_else(gone)?;
    // A trigger is of the built-in app itself.
    if loaded.app.as_str() != RECORDS_APP {
        loaded.records.allows(type_name)?;
    }
    let unknown = || Error::new(ErrorCode::UnknownType, format!("there is no type of records named {type_name:?}"));
    let handler = world.catalog.record_handler(type_name, operation.handler()).ok_or_else(unknown)?;
    Ok(NestedCall { handler, key, input: operation.to_bytes() })
}
