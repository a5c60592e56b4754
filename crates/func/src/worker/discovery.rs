//! What a worker says that it serves.

use millrace_api::{HandlerKind, HandlerSchemas};
use millrace_base::limits;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OLDEST_WORKER_PROTOCOL, WORKER_PROTOCOL};

/// Versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolRange {
    /// The oldest.
    pub min: u32,
    /// The newest.
    pub max: u32,
}

/// How a worker that is dialled wants its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerMode {
    /// Over one HTTP/2 stream for each attempt.
    Stream,
    /// One request for each turn.
    RequestReply,
}

/// The discovery document. Members that are not known are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovery {
    /// What the worker speaks.
    pub protocol: ProtocolRange,
    /// How it wants its turns.
    #[serde(default = "request_reply")]
    pub mode: WorkerMode,
    /// Its library and version, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sdk: String,
    /// How many root transactions one worker runs at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// Its services.
    pub services: Vec<WorkerService>,
}

/// To how many nodes a worker that dials in says that it is connected, this one included. It says so beside its discovery
/// document and not in it: a worker of as many more nodes is no other version.
#[must_use]
pub fn connections(hello: &[u8]) -> usize {
    #[derive(Deserialize)]
    struct Hello {
        #[serde(default)]
        connections: usize,
    }
    serde_json::from_slice(hello).map_or(1, |hello: Hello| hello.connections.max(1))
}

fn request_reply() -> WorkerMode {
    WorkerMode::RequestReply
}

/// One service of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerService {
    /// Its name.
    pub name: String,
    /// Fields that travel with the start of an attempt.
    #[serde(default)]
    pub fields: Vec<String>,
    /// An entity that has no more than this travels as a whole.
    #[serde(default)]
    pub whole_up_to_bytes: u64,
    /// How many of its root transactions run at once, over all workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// Its handlers.
    #[serde(default)]
    pub handlers: Vec<WorkerHandler>,
    /// Its routes.
    #[serde(default)]
    pub routes: Vec<WorkerRoute>,
    /// What it wants to be run again and again.
    #[serde(default)]
    pub schedules: Vec<WorkerSchedule>,
}

/// What a handler may do, as workers write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerKind {
    /// Reads and writes.
    Transaction,
    /// Reads only.
    Query,
    /// Runs for long.
    Workflow,
}

impl From<WorkerKind> for HandlerKind {
    fn from(kind: WorkerKind) -> Self {
        match kind {
            WorkerKind::Transaction => HandlerKind::Transaction,
            WorkerKind::Query => HandlerKind::Query,
            WorkerKind::Workflow => HandlerKind::Workflow,
        }
    }
}

/// One handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerHandler {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub kind: WorkerKind,
    /// How long it may take; of a workflow, each turn.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// A JSON schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// A JSON schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

fn timeout_ms() -> u64 {
    limits::WORKER_DEADLINE_MS
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRoute {
    /// Upper-case method.
    pub method: String,
    /// The path below the service.
    pub path: String,
    /// How long it may take.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
}

/// One schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSchedule {
    /// Its name.
    pub name: String,
    /// Five fields as in crontab(5), in UTC.
    pub cron: String,
    /// The entity's key.
    pub key: String,
    /// The handler, of the same service.
    pub handler: String,
    /// Its input.
    #[serde(default)]
    pub input: Value,
}

impl Discovery {
    /// Reads what a worker answered.
    ///
    /// # Errors
    /// What is wrong, with its place, or that this server speaks no version that the worker does.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        if json.len() > limits::WORKER_DISCOVERY_BYTES {
            return Err(format!("the discovery document has more than {} bytes", limits::WORKER_DISCOVERY_BYTES));
        }
        let found: Self = serde_json::from_slice(json).map_err(|error| format!("the discovery document: {error}"))?;
        let ProtocolRange { min, max } = found.protocol;
        if min > WORKER_PROTOCOL || max < OLDEST_WORKER_PROTOCOL {
            return Err(format!(
                "the worker speaks the versions {min} to {max} of the protocol; this server speaks {OLDEST_WORKER_PROTOCOL} \
                 to {WORKER_PROTOCOL}"
            ));
        }
        Ok(found)
    }

    /// The version that worker and server speak with each other: the highest that both have.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.protocol.max.min(WORKER_PROTOCOL)
    }

    /// The schemas of its handlers that have some.
    #[must_use]
    pub fn schemas(self) -> Vec<HandlerSchemas> {
        let of_service = |WorkerService { name: service, handlers, .. }| {
            let schemas = move |handler: WorkerHandler| {
                let WorkerHandler { name: handler, kind, input, output, .. } = handler;
                HandlerSchemas { service: String::clone(&service), handler, kind: kind.into(), input, output }
            };
            handlers.into_iter().map(schemas)
        };
        let all = self.services.into_iter().flat_map(of_service);
        all.filter(|one| one.input.is_some() || one.output.is_some()).collect()
    }

    /// The longest time that any of its handlers or routes may take.
    #[must_use]
    pub fn longest_timeout_ms(&self) -> u64 {
        let of_service = |service: &WorkerService| {
            let handlers = service.handlers.iter().map(|handler| handler.timeout_ms);
            handlers.chain(service.routes.iter().map(|route| route.timeout_ms)).max()
        };
        self.services.iter().filter_map(of_service).max().unwrap_or(limits::WORKER_DEADLINE_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_and_what_is_not_known_is_left_out() {
        let text = br#"{"protocol":{"min":1,"max":3},"mode":"stream","x":1,"services":[{"name":"account","fields":["balance"],
            "handlers":[{"name":"show","kind":"query","timeout_ms":5,"input":{"type":"object"}},{"name":"go","kind":"workflow"}]}]}"#;
        let read = Discovery::from_json(text).expect("valid");
        assert_eq!((read.mode, read.longest_timeout_ms()), (WorkerMode::Stream, limits::WORKER_DEADLINE_MS));
        assert_eq!(read.services[0].handlers[0].kind, WorkerKind::Query);
        let again = serde_json::to_vec(&read).expect("JSON");
        assert_eq!(Discovery::from_json(&again), Ok(read));
    }

    #[test]
    fn how_many_nodes_a_worker_serves_is_no_part_of_its_document() {
        let hello = |more: &str| format!(r#"{{"protocol":{{"min":1,"max":1}}{more},"services":[]}}"#).into_bytes();
        let (one, three) = (hello(""), hello(r#","connections":3"#));
        assert_eq!(Discovery::from_json(&one), Discovery::from_json(&three));
        assert_eq!((connections(&one), connections(&three)), (1, 3));
        for odd in [&hello(r#","connections":0"#)[..], &hello(r#","connections":-1"#), b"no JSON"] {
            assert_eq!(connections(odd), 1);
        }
    }

    #[test]
    fn other_documents_are_refused_with_the_place() {
        for (text, word) in [
            ("{", "line 1"),
            (r#"{"services":[]}"#, "protocol"),
            (r#"{"protocol":{"min":6,"max":7},"services":[]}"#, "6 to 7 of the protocol; this server speaks 1 to 5"),
            (r#"{"protocol":{"min":0,"max":0},"services":[]}"#, "0 to 0"),
            (r#"{"protocol":{"min":1,"max":1},"services":[{"name":"a","handlers":[{"name":"b","kind":"c"}]}]}"#, "`c`"),
        ] {
            let error = Discovery::from_json(text.as_bytes()).expect_err(text);
            assert!(error.contains(word), "{error}");
        }
    }
}
