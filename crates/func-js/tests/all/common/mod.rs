//! A world in memory around the engine: what the shard does, without locks, log or disk.
#![allow(dead_code, reason = "each program uses a part of it")]

pub mod journal;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use millrace_api::{RECORDS_APP, RecordOperation, RecordReply, WRITE_HANDLER};
use millrace_base::{Error, ErrorCode, Name, UnixMillis, Value};
use millrace_func::{
    ActivationId, App, BuiltInCall, Engine, FetchRequest, HandlerId, HandlerKind, Host, HttpRequest, Limits, LogLevel,
    Message, NestedCall, Offload, OperationId, Output, Program, RouteId, ScanRequest, Start, TurnResult,
};
use millrace_func::{HeaderSource, RouteReply};
use millrace_func_js::{Clocks, JsEngine};

pub fn monotonic_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn clocks() -> Clocks {
    Clocks { monotonic_ns, thread_cpu_ns }
}

pub type Fields = BTreeMap<Vec<u8>, Value>;

/// An operation on a record, as a function asked for it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordCall {
    pub name: String,
    pub id: Vec<u8>,
    operation: Bytes,
}

impl RecordCall {
    pub fn new(call: &BuiltInCall<'_>) -> Self {
        assert_eq!(call.app, RECORDS_APP);
        let id = call.key.unwrap_or_default().to_vec();
        Self { name: call.service.to_owned(), id, operation: call.input.clone() }
    }

    pub fn operation(&self) -> RecordOperation<'_> {
        RecordOperation::from_bytes(&self.operation).expect("encoded above")
    }
}

pub type Records = fn(&RecordCall) -> Result<RecordReply, Error>;

pub type Outside = fn(&FetchRequest) -> Result<String, Error>;

/// Everything but the engine.
#[derive(Default)]
pub struct State {
    pub entities: BTreeMap<(u16, Vec<u8>), Fields>,
    pub logged: Vec<(LogLevel, String)>,
    pub sent: Vec<Message>,
    pub fetched: Vec<FetchRequest>,
    /// What the servers outside answer, as the host's JSON.
    pub outside: Option<Outside>,
    pub asked: Vec<RecordCall>,
    /// What the records answer.
    pub records: Option<Records>,
    /// Signals that nobody has taken: invocation, name, payload.
    pub signals: VecDeque<(String, String, Bytes)>,
    pub seed: u64,
    /// CPU time of the transaction so far.
    pub spent_ns: u64,
    /// Callees stand for other transactions: each counts its CPU time for itself.
    pub counts_apart: bool,
    /// CPU time that each callee uses elsewhere, beside its own here.
    pub callee_ns: u64,
    none: Fields,
}

/// What an activation asked for and has not got.
pub enum Pending {
    Call(NestedCall),
    Record(RecordCall),
    Offload(Offload),
    Fetch(FetchRequest),
}

impl State {
    pub fn record(&mut self, asked: RecordCall) -> Result<Bytes, Error> {
        let answer = self.records.expect("records")(&asked);
        self.asked.push(asked);
        answer.map(|reply| reply.to_bytes())
    }

    pub fn fetch(&mut self, request: FetchRequest) -> Result<Bytes, Error> {
        let answer = self.outside.expect("a server outside")(&request);
        self.fetched.push(request);
        answer.map(Bytes::from)
    }
}

pub struct ActivationHost<'a> {
    pub state: &'a mut State,
    pub entity: Option<(u16, Vec<u8>)>,
    pub is_query: bool,
    pub pending: &'a mut Vec<(OperationId, Pending)>,
    pub next_operation: &'a mut u32,
}

impl ActivationHost<'_> {
    fn fields(&mut self, is_write: bool) -> Result<&mut Fields, Error> {
        if is_write && self.is_query {
            return Err(Error::new(ErrorCode::FunctionFailed, "a query cannot write"));
        }
        match &self.entity {
            Some(entity) => Ok(self.state.entities.entry(entity.clone()).or_default()),
            None => Err(Error::new(ErrorCode::FunctionFailed, "a route has no entity")),
        }
    }

    fn begin(&mut self, pending: Pending) -> OperationId {
        *self.next_operation += 1;
        let id = OperationId(*self.next_operation);
        self.pending.push((id, pending));
        id
    }
}

impl Host for ActivationHost<'_> {
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        Ok(self.fields(false)?.get(field))
    }

    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.fields(true)?.insert(field.to_vec(), value);
        Ok(())
    }

    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        Ok(self.fields(true)?.remove(field).is_some())
    }

    fn scan(&mut self, request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        let rows = self.fields(false)?.iter().filter(|(field, _)| {
            field.starts_with(&request.prefix) && request.after.as_ref().is_none_or(|after| *field > after)
        });
        Ok(rows.take(request.limit).map(|(field, value)| (field.clone(), value.clone())).collect())
    }

    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        Err(Error::new(ErrorCode::FunctionFailed, "JavaScript has no keys"))
    }

    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error> {
        if self.is_query && call.handler == WRITE_HANDLER {
            return Err(Error::new(ErrorCode::FunctionFailed, "a query can call queries only"));
        }
        Ok(self.begin(Pending::Record(RecordCall::new(&call))))
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        Ok(self.begin(Pending::Call(call)))
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        self.state.sent.push(message);
        Ok(None)
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        self.state.signals.push_back((invocation.to_owned(), name.to_owned(), payload));
        Ok(())
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        match self.entity {
            None => Ok(self.begin(Pending::Fetch(request))),
            Some(_) => Err(Error::new(ErrorCode::FunctionFailed, "ctx.fetch is for routes and workflows")),
        }
    }

    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        Ok(self.begin(Pending::Offload(work)))
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_123)
    }

    fn cpu_spent_ns(&self) -> u64 {
        if self.state.counts_apart { 0 } else { self.state.spent_ns }
    }

    fn spend_cpu(&mut self, turn_ns: u64) {
        self.state.spent_ns += turn_ns;
    }

    fn random(&mut self) -> u64 {
        self.state.seed =
            self.state.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.state.seed
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.state.logged.push((level, line.to_owned()));
    }
}

#[derive(Default)]
pub struct Headers(pub Vec<(String, String)>);

impl HeaderSource for Headers {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|header| header.0 == name).map(|header| header.1.as_str())
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in &self.0 {
            visit(name, value);
        }
    }
}

/// A request to a route.
pub struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub parameters: &'a [(&'a str, &'a str)],
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request { method: "GET", path: "/", query: "", parameters: &[], headers: &[], body: b"" }
    }
}

/// An engine with one app.
pub struct World {
    pub engine: JsEngine,
    pub program: Program,
    pub state: State,
    pub activations: u32,
    pub operations: u32,
    pub depth: u32,
}

pub fn app(files: &[(&str, &str)], limits: Limits) -> App {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
    App { files, limits, ..App::new(Name::new("app").expect("a name")) }
}

/// Loads an app that must be refused.
pub fn refusal(files: &[(&str, &str)]) -> Error {
    let engine = JsEngine::new(clocks());
    let error = engine.load(Program(0), &app(files, Limits::default())).expect_err("refused");
    assert_eq!(error.code, ErrorCode::AppRefused, "{error}");
    error
}

/// One service named `s`.
pub fn service(source: &str) -> World {
    world(&[("s.ts", source)], Limits::default())
}

/// `export default service({…})` around handlers.
pub fn handlers(handlers: &str) -> World {
    limited(handlers, Limits::default())
}

pub fn limited(handlers: &str, limits: Limits) -> World {
    let source = format!(
        "import {{ service, query, workflow, Abort }} from \"millrace\";\nexport default service({{\n{handlers}\n}});\n"
    );
    world(&[("s.ts", &source)], limits)
}

pub fn world(files: &[(&str, &str)], limits: Limits) -> World {
    world_of(&app(files, limits))
}

pub fn world_of(app: &App) -> World {
    let engine = JsEngine::new(clocks());
    let program = Program(0);
    engine.load(program, app).expect("loads");
    World { engine, program, state: State::default(), activations: 0, operations: 0, depth: 0 }
}

impl World {
    pub fn handler(&self, service: &str, handler: &str) -> HandlerId {
        let services = self.engine.services(self.program);
        let at = services.iter().position(|known| known.name.as_str() == service).expect("a known service");
        let handlers = &services[at].handlers;
        let index = handlers.iter().position(|known| known.0.as_str() == handler).expect("a known handler");
        HandlerId { program: self.program, service: at as u16, handler: index as u16 }
    }

    /// Calls a handler of the service `s` on the entity `k`.
    pub fn call(&mut self, handler: &str, input: &str) -> Result<String, Error> {
        let id = self.handler("s", handler);
        self.call_id(id, b"k", input.as_bytes())
    }

    pub fn call_id(&mut self, id: HandlerId, key: &[u8], input: &[u8]) -> Result<String, Error> {
        match self.run(Some((id, key)), Start::Handler { id, key, input })? {
            Output::Value(value) => Ok(String::from_utf8(value.to_vec()).expect("UTF-8")),
            Output::Response(_) => panic!("a handler gives no response"),
        }
    }

    /// Asks the route at `index` of the service `s`.
    pub fn route(&mut self, index: u16, request: &Request<'_>) -> Result<RouteReply, Error> {
        let services = self.engine.services(self.program);
        let at = services.iter().position(|known| known.name.as_str() == "s").expect("a known service");
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let parameters = own(request.parameters);
        let start = Start::Route {
            id: RouteId { program: self.program, service: at as u16, route: index },
            request: HttpRequest {
                method: request.method,
                path: request.path,
                query: request.query,
                parameters: &parameters,
                headers: Arc::new(Headers(own(request.headers))),
                body: Bytes::copy_from_slice(request.body),
            },
        };
        match self.run(None, start)? {
            Output::Response(reply) => Ok(reply),
            Output::Value(_) => panic!("a route gives no value"),
        }
    }

    fn run(&mut self, entity: Option<(HandlerId, &[u8])>, start: Start<'_>) -> Result<Output, Error> {
        if self.depth == 0 {
            self.state.spent_ns = 0;
        }
        self.depth += 1;
        let result = self.run_activation(entity, start);
        self.depth -= 1;
        result
    }

    fn run_activation(&mut self, entity: Option<(HandlerId, &[u8])>, start: Start<'_>) -> Result<Output, Error> {
        self.activations += 1;
        let activation = ActivationId(self.activations);
        let is_query = entity.is_some_and(|(id, _)| {
            let services = self.engine.services(self.program);
            services[usize::from(id.service)].handlers[usize::from(id.handler)].1 == HandlerKind::Query
        });
        let entity = entity.map(|(id, key)| (id.service, key.to_vec()));
        let mut pending = Vec::new();
        let mut step = {
            let (state, next_operation) = (&mut self.state, &mut self.operations);
            let mut host =
                ActivationHost { state, entity: entity.clone(), is_query, pending: &mut pending, next_operation };
            self.engine.start(activation, start, &mut host)
        };
        loop {
            match step {
                TurnResult::Done(result) => return result,
                TurnResult::Waiting => {}
            }
            let (operation, what) = pending.remove(0);
            let result = match what {
                Pending::Record(asked) => self.state.record(asked),
                Pending::Call(call) => {
                    self.state.spent_ns += self.state.callee_ns;
                    self.call_id(call.handler, &call.key, &call.input).map(Bytes::from)
                }
                Pending::Offload(work) => work.run(),
                Pending::Fetch(request) => self.state.fetch(request),
            };
            let (state, next_operation) = (&mut self.state, &mut self.operations);
            let mut host =
                ActivationHost { state, entity: entity.clone(), is_query, pending: &mut pending, next_operation };
            step = self.engine.resume(activation, operation, result, &mut host);
        }
    }

    /// Calls a handler that must fail with `code`; gives its message.
    pub fn fails(&mut self, handler: &str, input: &str, code: ErrorCode) -> String {
        match self.call(handler, input) {
            Err(error) => {
                assert_eq!(error.code, code, "{error}");
                error.message
            }
            Ok(value) => panic!("{handler} gave {value}"),
        }
    }
}
