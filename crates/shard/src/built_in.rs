//! What leaves the caller's app: operations of built-in apps, and what built-in apps call in others.

use millrace_api::{is_built_in, no_built_in_service};
use millrace_base::{Error, ErrorCode, Name};
use millrace_func::{BuiltInCall, HandlerId, HandlerKind, NestedCall, Program, not_built_in};

use crate::checks::refused;
use crate::world::World;

/// The name of the built-in app that the program belongs to.
///
/// # Errors
/// `forbidden` when the program belongs to no built-in app.
pub(crate) fn check_built_in<'w>(caller: Program, world: &World<'w>) -> Result<&'w Name, Error> {
    let app = world.catalog.program(caller).map(|loaded| &loaded.app).filter(|app| is_built_in(app.as_str()));
    app.ok_or_else(not_built_in)
}

/// What a built-in app calls in another app: a handler that any caller of that app may name. `on_behalf_of` is what the
/// other app has to allow, if it has to.
///
/// # Errors
/// `forbidden` for whoever belongs to no built-in app, and what is not allowed; otherwise as
/// [`millrace_func::Catalog::find`].
pub(crate) fn find_elsewhere(
    caller: Program,
    [app, service_name, handler]: [&str; 3],
    on_behalf_of: Option<&str>,
    world: &World<'_>,
) -> Result<HandlerId, Error> {
    let caller = check_built_in(caller, world)?.as_str();
    let (program, service) = world.catalog.service(Some(app), service_name)?;
    let (found, _) = world.catalog.handler(program, service, handler)?;
    if let (Some(name), Some(loaded)) = (on_behalf_of, world.catalog.program(program)) {
        loaded.may_be_set_off(caller, name)?;
        // A message to a query would be delivered, would change nothing, and nobody would notice.
        if world.catalog.kind(found) == HandlerKind::Query {
            let message =
                format!("{service_name}.{handler} is a query, which can change nothing: name another handler");
            return Err(refused(&message));
        }
    }
    Ok(found)
}

/// The call that an operation of a built-in app is: of the service in the app's present version. `any_key` is that of an
/// operation which any entity can run.
///
/// # Errors
/// `forbidden` when the caller's app may not use the service; in the built-in app's terms when there is none.
pub(crate) fn built_in_call(
    caller: Program,
    call: BuiltInCall<'_>,
    any_key: impl FnOnce() -> Vec<u8>,
    world: &World<'_>,
) -> Result<NestedCall, Error> {
    let BuiltInCall { app, service, handler, key, input } = call;
    let gone = || Error::new(ErrorCode::UnknownApp, "the app is not loaded any more");
    world.catalog.program(caller).ok_or_else(gone)?.may_operate(app, service)?;
    let handler = world.catalog.built_in_handler(app, service, handler);
    let handler = handler.ok_or_else(|| no_built_in_service(app, service))?;
    Ok(NestedCall { handler, key: key.map_or_else(any_key, <[u8]>::to_vec), input })
}
