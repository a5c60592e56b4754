//! What handlers may ask for, whether they run in a transaction or as a workflow.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{FetchRequest, HandlerKind, Limits, NestedCall, Program};

use crate::world::World;

pub(crate) fn refused(message: &str) -> Error {
    Error::new(ErrorCode::FunctionFailed, message)
}

/// Refuses keys that are too long to be kept in memory for every entity.
pub(crate) fn check_key(key: &[u8], key_bytes: usize) -> Result<(), Error> {
    if key.is_empty() || key.len() > key_bytes {
        let message = format!("a key has 1 to {key_bytes} bytes, this one has {}", key.len());
        return Err(Error::new(ErrorCode::BadRequest, message));
    }
    Ok(())
}

/// Refuses a request whose key or input is too large.
pub(crate) fn check_request(key: &[u8], input: &[u8], limits: &Limits) -> Result<(), Error> {
    check_key(key, limits.key_bytes)?;
    if input.len() > limits.input_bytes {
        let message = format!("the input has {} bytes; {} are allowed", input.len(), limits.input_bytes);
        return Err(Error::new(ErrorCode::TooLarge, message));
    }
    Ok(())
}

/// Refuses a key or an input that is too large.
pub(crate) fn check_input(key: &[u8], input: &Bytes, limits: &Limits) -> Result<(), Error> {
    check_key(key, limits.key_bytes)?;
    if input.len() > limits.input_bytes {
        return Err(Error::new(ErrorCode::SizeLimit, format!("the input is over {} bytes", limits.input_bytes)));
    }
    Ok(())
}

/// Refuses what `ctx.call` cannot call.
pub(crate) fn check_callee(call: &NestedCall, limits: &Limits, world: &World<'_>) -> Result<(), Error> {
    if world.catalog.kind(call.handler) == HandlerKind::Workflow {
        return Err(refused("a workflow is not called but started: use ctx.send"));
    }
    check_input(&call.key, &call.input, limits)
}

/// Whether an app may make a request to the outside.
pub(crate) fn may_fetch(program: Program, request: &FetchRequest, world: &World<'_>) -> Result<(), Error> {
    match world.catalog.program(program) {
        Some(loaded) => loaded.fetch.allows(&request.url),
        None => Err(Error::new(ErrorCode::FetchRefused, "the app is not loaded any more")),
    }
}
