//! Does what the frames of a turn say.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_format::worker::{
    AttemptKind, FailureFrame, FrameError, FrameResult, FrameValue, TargetFrame, WorkerFrame,
};
use millrace_func::{Host, LogLevel, Message, NestedCall, Output, ScanRequest, StepStart};
use serde::de::IgnoredAny;

use crate::attempt::{Attempt, ResultMeaning, as_frame_error, broken};
use crate::fetch::fetch_request;
use crate::objects::{ObjectPlace, begin_object};
use crate::operations::{begin_record, rows};
use crate::program::RemoteProgram;
use crate::reply::route_reply;
use crate::retry::retry_next;

/// What came of a turn: the handler's output, if it has ended.
pub(crate) type Acted = Result<Option<Output>, Error>;

/// What is JSON on the wire is stored as JSON, and read as such by others.
pub(crate) fn checked_json(json: &Bytes) -> Result<(), Error> {
    match serde_json::from_slice::<IgnoredAny>(json) {
        Ok(_) => Ok(()),
        Err(error) => Err(broken(format_args!("a value is not JSON: {error}"))),
    }
}

fn checked_value(value: &FrameValue) -> Result<(), Error> {
    match value {
        FrameValue::Json(json) => checked_json(json),
        FrameValue::Raw(_) => Ok(()),
    }
}

/// JSON text; nothing means `null`.
fn json_or_null(json: Bytes) -> Result<Bytes, Error> {
    if json.is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    checked_json(&json)?;
    Ok(json)
}

/// Does what the frames of a turn say, in order.
///
/// # Errors
/// How the handler failed, or what the worker did wrong.
pub(crate) fn act(
    program: &RemoteProgram,
    attempt: &mut Attempt,
    frames: Vec<WorkerFrame>,
    host: &mut dyn Host,
) -> Acted {
    for frame in frames {
        match frame {
            WorkerFrame::Output(value) => return output(program, attempt, value).map(Some),
            WorkerFrame::Failure(failure) => return Err(failed(attempt, failure, host)),
            WorkerFrame::Suspend { operations } => attempt.suspend(operations)?,
            frame => one(program, attempt, frame, host)?,
        }
    }
    Ok(None)
}

fn one(program: &RemoteProgram, attempt: &mut Attempt, frame: WorkerFrame, host: &mut dyn Host) -> Result<(), Error> {
    if let Some(operation) = frame.operation() {
        attempt.asks(operation)?;
        if attempt.open() >= program.pending_operations {
            let message = format!("more than {} operations open at once", program.pending_operations);
            return Err(Error::new(ErrorCode::OperationLimit, message));
        }
    }
    match frame {
        WorkerFrame::Get { operation, field } => get(attempt, operation, &field, host),
        WorkerFrame::Scan { operation, prefix, after, limit } => {
            let limit = limit as usize;
            let request = ScanRequest { prefix: prefix.to_vec(), after: after.map(|after| after.to_vec()), limit };
            scan(attempt, operation, &request, host);
        }
        WorkerFrame::Set { field, value } => {
            checked_value(&value)?;
            host.set(&field, value.to_value())?;
        }
        WorkerFrame::Delete { field } => {
            host.delete(&field)?;
        }
        WorkerFrame::Call { operation, target, policy } => {
            let call = nested(program, attempt, target)?;
            let begun = retry_next(&policy, host).and(call).and_then(|call| host.call(call));
            attempt.began(operation, ResultMeaning::Json, begun);
        }
        WorkerFrame::Send { operation, target, delay_ms, id } => {
            send(program, attempt, (operation, target), (delay_ms, id), host)?;
        }
        WorkerFrame::Signal { invocation, name, payload } => {
            host.signal(&invocation, &name, json_or_null(payload)?)?;
        }
        WorkerFrame::Fetch { operation, request } => {
            let begun = fetch_request(&request, attempt.kind == AttemptKind::Route)?;
            attempt.began(operation, ResultMeaning::Json, begun.and_then(|request| host.fetch(request)));
        }
        WorkerFrame::Sleep { operation, delay_ms } => {
            let begun = host.in_workflow("sleep").and_then(|flow| flow.sleep(delay_ms));
            attempt.began(operation, ResultMeaning::Json, begun);
        }
        WorkerFrame::Wait { operation, name, timeout_ms } => {
            let begun = host.in_workflow("wait").and_then(|flow| flow.wait(&name, timeout_ms));
            attempt.began(operation, ResultMeaning::Json, begun);
        }
        WorkerFrame::Await { operation, invocation, timeout_ms } => {
            let begun = host.in_workflow("result").and_then(|flow| flow.result(&invocation, timeout_ms));
            attempt.began(operation, ResultMeaning::Json, begun);
        }
        WorkerFrame::Step { operation, name, policy } => step(attempt, operation, (&name, &policy), host),
        WorkerFrame::StepEnd { operation, result } => {
            end_step(attempt, operation, result, host)?;
        }
        WorkerFrame::Compensate { target } => compensate(nested(program, attempt, target)??, host)?,
        WorkerFrame::Record { operation, type_name, id, request } => {
            attempt.began(operation, ResultMeaning::Record, begin_record(&type_name, &id, &request, host)?);
        }
        WorkerFrame::Object { operation, bucket, key, request, body } => {
            object(program, attempt, operation, (&bucket, &key), (&request, body), host)?;
        }
        WorkerFrame::Log { level, line } => host.log(log_level(level), &line),
        WorkerFrame::Hello { .. } | WorkerFrame::Drain => return Err(broken("HELLO or DRAIN inside an attempt")),
        WorkerFrame::Output(_)
        | WorkerFrame::Failure(_)
        | WorkerFrame::Suspend { .. }
        | WorkerFrame::Heartbeat
        | WorkerFrame::Resumed { .. } => {}
    }
    Ok(())
}

fn object(
    program: &RemoteProgram,
    attempt: &mut Attempt,
    operation: u32,
    (bucket, key): (&str, &str),
    (request, body): (&[u8], Bytes),
    host: &mut dyn Host,
) -> Result<(), Error> {
    let place = ObjectPlace { app_id: &program.app_id, bucket, key };
    let (answer, begun) = begin_object(&place, request, body, host)?;
    attempt.began(operation, ResultMeaning::Object(answer), begun);
    Ok(())
}

fn compensate(call: NestedCall, host: &mut dyn Host) -> Result<(), Error> {
    host.in_workflow("compensate")?.compensate(call)
}

fn log_level(level: u8) -> LogLevel {
    match level {
        0 => LogLevel::Debug,
        1 => LogLevel::Info,
        2 => LogLevel::Warn,
        _ => LogLevel::Error,
    }
}

fn get(attempt: &mut Attempt, operation: u32, field: &[u8], host: &mut dyn Host) {
    let found = match &attempt.snapshot {
        Some(fields) => Ok(fields.iter().find(|(name, _)| name == field).map(|(_, value)| value.clone())),
        None => host.get(field).map(|value| value.map(FrameValue::from_value)),
    };
    let is_set = matches!(found, Ok(Some(_)));
    let result = found.map(|value| value.unwrap_or(FrameValue::Json(Bytes::from_static(b"null"))));
    attempt.answer(operation, is_set, result.map_err(as_frame_error));
}

fn scan(attempt: &mut Attempt, operation: u32, request: &ScanRequest, host: &mut dyn Host) {
    let found = match &attempt.snapshot {
        Some(fields) => {
            let is_wanted = |name: &Bytes| {
                name.starts_with(&request.prefix) && request.after.as_ref().is_none_or(|after| name[..] > after[..])
            };
            let wanted = fields.iter().filter(|(name, _)| is_wanted(name)).take(request.limit);
            Ok(wanted.map(|(name, value)| (name.to_vec(), value.to_value())).collect())
        }
        None => host.scan(request),
    };
    let found = found.map(|found: Vec<_>| FrameValue::Raw(rows(&found)));
    attempt.answer(operation, false, found.map_err(as_frame_error));
}

/// A call to a handler of the app. Inner errors are the handler's to see.
fn nested(program: &RemoteProgram, attempt: &Attempt, target: TargetFrame) -> Result<Result<NestedCall, Error>, Error> {
    let TargetFrame { service, key, handler, input } = target;
    let input = json_or_null(input)?;
    let handler = program.find(attempt.program, &service, &handler);
    Ok(handler.map(|handler| NestedCall { handler, key: key.to_vec(), input }))
}

fn send(
    program: &RemoteProgram,
    attempt: &mut Attempt,
    (operation, target): (u32, TargetFrame),
    (delay_ms, id): (u64, Option<String>),
    host: &mut dyn Host,
) -> Result<(), Error> {
    let call = nested(program, attempt, target)?;
    let sent =
        call.and_then(|NestedCall { handler, key, input }| host.send(Message { handler, key, input, delay_ms, id }));
    let sent = sent.map(|id| {
        let json = id.map_or_else(|| "null".to_owned(), |id| format!("\"{id}\""));
        FrameValue::Json(json.into())
    });
    attempt.answer(operation, false, sent.map_err(as_frame_error));
    Ok(())
}

fn step(attempt: &mut Attempt, operation: u32, (name, policy): (&str, &Bytes), host: &mut dyn Host) {
    let begun = retry_next(policy, host).and_then(|()| host.in_workflow("step")?.begin_step(name));
    match begun {
        Ok(StepStart::Run(id)) => {
            attempt.began(operation, ResultMeaning::Step, Ok(id));
            attempt.step_runs(operation);
            // The worker is to run the step's code, and to say what came of it.
            attempt.answer(operation, false, Ok(FrameValue::Raw(Bytes::new())));
        }
        Ok(StepStart::Known(id)) => attempt.began(operation, ResultMeaning::Step, Ok(id)),
        Err(error) => attempt.began(operation, ResultMeaning::Step, Err(error)),
    }
}

fn end_step(attempt: &mut Attempt, operation: u32, result: FrameResult, host: &mut dyn Host) -> Result<(), Error> {
    let unknown = || broken(format_args!("operation {operation} is not a step that runs"));
    let id = attempt.step_ends(operation).ok_or_else(unknown)?;
    let result = match result {
        Ok(FrameValue::Json(json)) => Ok(json_or_null(json)?),
        Ok(FrameValue::Raw(_)) => return Err(broken("a step's result is not JSON")),
        Err(error) => Err(as_error(attempt, error)),
    };
    host.in_workflow("step")?.end_step(id, result)
}

/// What a handler may say itself of how it failed, or was told by an operation; anything else is its failure. So is a
/// call of what is not there: its caller must not take that for a mistake of its own.
fn as_error(attempt: &Attempt, error: FrameError) -> Error {
    let code = match ErrorCode::parse(&error.code) {
        Some(code @ (ErrorCode::Aborted | ErrorCode::InvalidInput)) => code,
        Some(ErrorCode::UnknownService | ErrorCode::UnknownHandler) => ErrorCode::FunctionFailed,
        Some(code) if attempt.was_given(code) => code,
        _ => ErrorCode::FunctionFailed,
    };
    let detail = Some(error.detail).filter(|detail| !detail.is_empty() && checked_json(detail).is_ok());
    let detail = detail.and_then(|detail| String::from_utf8(detail.to_vec()).ok());
    Error { code, message: error.message, detail }
}

fn failed(attempt: &Attempt, failure: FailureFrame, host: &mut dyn Host) -> Error {
    // A worker that dialled in has no other way to say that it has no room. The attempt did not run: it is made again.
    let has_no_room = failure.error.code == ErrorCode::WorkerUnavailable.as_str();
    let mut error = as_error(attempt, failure.error);
    if has_no_room {
        error.code = ErrorCode::WorkerUnavailable;
    }
    if error.code == ErrorCode::FunctionFailed && !failure.trace.is_empty() {
        host.log(LogLevel::Error, &failure.trace);
    }
    error
}

fn output(program: &RemoteProgram, attempt: &Attempt, value: FrameValue) -> Result<Output, Error> {
    let FrameValue::Json(json) = value else {
        return Err(broken("a handler's output is not JSON"));
    };
    checked_json(&json)?;
    if attempt.kind == AttemptKind::Route {
        return route_reply(&json, program.output_bytes).map(Output::Response);
    }
    if json.len() > program.output_bytes {
        let message = format!("the output has {} bytes; {} are allowed", json.len(), program.output_bytes);
        return Err(Error::new(ErrorCode::SizeLimit, message));
    }
    Ok(Output::Value(json))
}
