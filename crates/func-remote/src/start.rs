//! START: what a handler is given to begin with.

use bytes::Bytes;
use millrace_base::{Error, Value, limits};
use millrace_format::worker::{AttemptKind, FrameValue, ServerFrame, StartFrame};
use millrace_func::{Base64Alphabet, HandlerId, HandlerKind, Host, HttpRequest, RouteId, Start, base64_encode};
use serde_json::json;

use crate::attempt::Attempt;
use crate::program::RemoteProgram;

/// Fields as they travel, and what they are.
#[derive(Default)]
struct Fields {
    fields: Vec<(Bytes, FrameValue)>,
    is_whole: bool,
    has_declared: bool,
}

fn frame_fields(rows: Vec<(Vec<u8>, Value)>) -> Vec<(Bytes, FrameValue)> {
    rows.into_iter().map(|(name, value)| (Bytes::from(name), FrameValue::from_value(&value))).collect()
}

/// Begins an attempt, without sending anything.
///
/// # Errors
/// When fields cannot be read, or the program has no such handler.
pub(crate) fn begin(program: &RemoteProgram, start: &Start<'_>, host: &mut dyn Host) -> Result<Attempt, Error> {
    match start {
        Start::Handler { id, key, input } => begin_handler(program, *id, key, input, host),
        Start::Route { id, request } => begin_route(program, *id, request, host),
    }
}

fn gone() -> Error {
    Error::new(millrace_base::ErrorCode::UnknownHandler, "the app's version has no such handler")
}

fn begin_handler(
    program: &RemoteProgram,
    id: HandlerId,
    key: &[u8],
    input: &[u8],
    host: &mut dyn Host,
) -> Result<Attempt, Error> {
    let handler = program.handler(id).ok_or_else(gone)?;
    let service = program.service(id.service).ok_or_else(gone)?;
    let kind = match HandlerKind::from(handler.kind) {
        HandlerKind::Transaction => AttemptKind::Transaction,
        HandlerKind::Query => AttemptKind::Query,
        HandlerKind::Workflow => AttemptKind::Workflow,
    };
    let fields = if kind == AttemptKind::Workflow {
        Fields::default()
    } else {
        fields_of(&service.fields, service.whole_up_to_bytes, host)?
    };
    let frame = StartFrame {
        service: service.name.clone(),
        handler: handler.name.clone(),
        key: Bytes::copy_from_slice(key),
        invocation: host.flow().map(|flow| flow.invocation()).unwrap_or_default(),
        input: Bytes::copy_from_slice(input),
        is_whole: fields.is_whole,
        has_declared: fields.has_declared,
        fields: fields.fields,
        ..blank(kind, host)?
    };
    let mut attempt = attempt(program, id.program, frame, handler.timeout_ms);
    (attempt.service, attempt.known_changes) = (id.service, host.worker()?.entity_changes());
    Ok(attempt)
}

fn begin_route(
    program: &RemoteProgram,
    id: RouteId,
    request: &HttpRequest<'_>,
    host: &mut dyn Host,
) -> Result<Attempt, Error> {
    let service = program.service(id.service).ok_or_else(gone)?;
    let route = service.routes.get(usize::from(id.route)).ok_or_else(gone)?;
    let mut headers: Vec<(String, String)> = Vec::new();
    request.headers.each(&mut |name, value| headers.push((name.to_owned(), value.to_owned())));
    let parameters = request.parameters.iter().map(|(name, value)| (name.clone(), json!(value)));
    let input = json!({
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "params": parameters.collect::<serde_json::Map<_, _>>(),
        "headers": headers,
        "body": base64_encode(&request.body, Base64Alphabet::Standard),
    });
    let frame = StartFrame {
        service: service.name.clone(),
        handler: format!("{} {}", route.method, route.path),
        input: input.to_string().into(),
        ..blank(AttemptKind::Route, host)?
    };
    Ok(attempt(program, id.program, frame, route.timeout_ms))
}

/// What every START has.
///
/// # Errors
/// Where there are no workers.
fn blank(kind: AttemptKind, host: &mut dyn Host) -> Result<StartFrame, Error> {
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&host.random().to_be_bytes());
    seed[8..].copy_from_slice(&host.random().to_be_bytes());
    Ok(StartFrame {
        attempt: host.worker()?.attempt(),
        kind,
        deadline_ms: 0,
        seen: 0,
        service: String::new(),
        handler: String::new(),
        key: Bytes::new(),
        invocation: String::new(),
        now_ms: host.now().0,
        seed,
        input: Bytes::new(),
        is_whole: false,
        has_declared: false,
        fields: Vec::new(),
    })
}

fn attempt(program: &RemoteProgram, id: millrace_func::Program, frame: StartFrame, timeout_ms: u64) -> Attempt {
    let (token, kind) = (frame.attempt, frame.kind);
    let snapshot = (kind == AttemptKind::Query && frame.is_whole).then(|| frame.fields.clone());
    let mut start = Vec::new();
    ServerFrame::Start(Box::new(frame)).encode(&mut start);
    let mut attempt =
        Attempt::new(id, (token, kind), program.is_request_reply(kind), timeout_ms, start, program.told.hold());
    attempt.snapshot = snapshot;
    attempt
}

/// Tells the worker of its entity if others have changed it since it was told last.
///
/// # Errors
/// When fields cannot be read.
pub(crate) fn tell_changes(program: &RemoteProgram, attempt: &mut Attempt, host: &mut dyn Host) -> Result<(), Error> {
    let changes = host.worker()?.entity_changes();
    if changes == attempt.known_changes || attempt.kind != AttemptKind::Transaction && attempt.snapshot.is_some() {
        return Ok(());
    }
    attempt.known_changes = changes;
    let service = program.service(attempt.service).ok_or_else(gone)?;
    let fields = fields_of(&service.fields, service.whole_up_to_bytes, host)?;
    attempt.tell_fields(true, fields.fields);
    Ok(())
}

/// All fields of a small entity; of a larger one those that are declared, as far as they fit together.
fn fields_of(declared: &[String], whole_up_to_bytes: u64, host: &mut dyn Host) -> Result<Fields, Error> {
    let whole_up_to_bytes = usize::try_from(whole_up_to_bytes).unwrap_or(usize::MAX);
    if whole_up_to_bytes > 0
        && let Some(rows) = host.worker()?.whole(whole_up_to_bytes.min(limits::WORKER_FIELDS_BYTES))?
    {
        return Ok(Fields { fields: frame_fields(rows), is_whole: true, has_declared: true });
    }
    let mut fields = Vec::with_capacity(declared.len());
    let mut size_bytes = 0;
    for name in declared {
        let Some(value) = host.get(name.as_bytes())? else { continue };
        size_bytes += name.len() + value.content().len();
        if size_bytes > limits::WORKER_FIELDS_BYTES {
            return Ok(Fields { fields, is_whole: false, has_declared: false });
        }
        fields.push((Bytes::copy_from_slice(name.as_bytes()), FrameValue::from_value(value)));
    }
    Ok(Fields { fields, is_whole: false, has_declared: true })
}
