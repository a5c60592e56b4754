//! What the simulated workers say that they serve: the services of the scripts.

use millrace_func::{
    Discovery, HandlerId, ProtocolRange, RequestSigning, Schedule, WORKER_PROTOCOL, WorkerAddress, WorkerDocument,
    WorkerHandler, WorkerKind, WorkerMode, WorkerRoute, WorkerSchedule, WorkerService,
};

use crate::engine::ScriptEngine;

/// The handlers of every service, as the engine of scripts has them.
const HANDLERS: [(&str, WorkerKind); 3] =
    [("run", WorkerKind::Transaction), ("read", WorkerKind::Query), ("flow", WorkerKind::Workflow)];

/// How long a handler may take.
pub(super) const TIMEOUT_MS: u64 = 5_000;

/// How workers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each turn is a request.
    RequestReply,
    /// They have dialled in.
    DialIn,
    /// Each attempt has a stream of its own, but those of workflows.
    Stream,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DialIn, Self::RequestReply, Self::Stream];
}

/// What travels with START of each service: everything up to so many bytes, or one field.
fn fields_of(service: &str) -> (u64, &'static [&'static str]) {
    match service {
        "account" => (64 << 10, &[]),
        "counter" => (0, &["n"]),
        // Some of its entities are larger than that.
        _ => (64, &["held"]),
    }
}

pub(super) fn is_declared(service: &str, field: &[u8]) -> bool {
    fields_of(service).1.iter().any(|declared| declared.as_bytes() == field)
}

/// Service and handler.
pub(super) fn names(id: HandlerId) -> (&'static str, &'static str) {
    (ScriptEngine::SERVICES[usize::from(id.service)], HANDLERS[usize::from(id.handler)].0)
}

/// The numbers of a service and a handler of these names; a route has the number 0.
pub(super) fn numbers(service: &str, handler: &str) -> (u16, u16) {
    let place = |place: Option<usize>| u16::try_from(place.unwrap_or(0)).expect("few of them");
    let service = ScriptEngine::SERVICES.iter().position(|name| *name == service);
    (place(service), place(HANDLERS.iter().position(|(name, _)| *name == handler)))
}

fn service(name: &str, schedules: &[Schedule]) -> WorkerService {
    let handler = |(name, kind): &(&str, WorkerKind)| WorkerHandler {
        name: (*name).to_owned(),
        kind: *kind,
        timeout_ms: TIMEOUT_MS,
        input: None,
        output: None,
    };
    let schedule = |schedule: &Schedule| WorkerSchedule {
        name: schedule.name.as_str().to_owned(),
        cron: schedule.cron.clone(),
        key: String::from_utf8_lossy(&schedule.key).into_owned(),
        handler: schedule.handler.as_str().to_owned(),
        input: serde_json::from_slice(&schedule.input).expect("JSON"),
    };
    let (whole_up_to_bytes, fields) = fields_of(name);
    WorkerService {
        name: name.to_owned(),
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        whole_up_to_bytes,
        concurrency: None,
        handlers: HANDLERS.iter().map(handler).collect(),
        routes: vec![WorkerRoute { method: "POST".to_owned(), path: "/run".to_owned(), timeout_ms: TIMEOUT_MS }],
        schedules: if name == "note" { schedules.iter().map(schedule).collect() } else { Vec::new() },
    }
}

/// The file that makes an app one of workers.
pub(super) fn document(way: Way, schedules: &[Schedule]) -> WorkerDocument {
    let discovery = Discovery {
        protocol: ProtocolRange { min: 1, max: WORKER_PROTOCOL },
        mode: if way == Way::Stream { WorkerMode::Stream } else { WorkerMode::RequestReply },
        sdk: String::new(),
        concurrency: None,
        services: ScriptEngine::SERVICES.iter().map(|name| service(name, schedules)).collect(),
    };
    let address = match way {
        Way::RequestReply => WorkerAddress::Url("http://127.0.0.1:9999".to_owned()),
        Way::DialIn => WorkerAddress::DialIn,
        Way::Stream => WorkerAddress::Url("h2c://127.0.0.1:9999".to_owned()),
    };
    WorkerDocument { address, signing: RequestSigning::default(), discovery, replaces: Vec::new(), settings: None }
}
