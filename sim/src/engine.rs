//! An engine without a language: it runs the scripts of `script.rs`.
//!
//! It stands in for a real engine in every test of the shard and in the simulator. It is strict where a real one may be
//! lenient. It panics if a shard resumes an activation for something that the activation does not await, or uses an
//! activation's number twice. It also panics if a shard enters the engine while it runs, or cancels an activation that
//! it does not know. Every app has the services and handlers of [`ScriptEngine::SERVICES`]: `run` may write, `read` may
//! not, `flow` is a workflow (`flow.rs`), and the route `POST /run` runs the script in the request's body.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::{READ_HANDLER, WRITE_HANDLER};
use millrace_base::limits::CPU_SLICE_NS;
use millrace_base::{Name, Value, ValueKind};
use millrace_func::{
    ActivationId, Answer, App, AppSettings, Catalog, Engine, Error, ErrorCode, HandlerId, HandlerKind, Host, Limits,
    LogLevel, Message, NestedCall, Offload, OperationId, Output, Program, Reader, Route, RouteReply, ScanRequest,
    Schedule, Service, Start, TurnResult,
};
use serde_json::Value as Json;

/// The workflow's place among the handlers of a service.
const FLOW: usize = 2;

/// What an activation awaits.
pub(crate) enum Awaits {
    Nothing,
    /// One operation; its error is thrown unless `catches`.
    One {
        operation: OperationId,
        catches: bool,
    },
    /// Several; the first error is thrown at once unless `catches`.
    Several {
        open: BTreeMap<OperationId, usize>,
        results: Vec<Json>,
        catches: bool,
    },
    /// Any of several: the number of the first to end, whatever it gives.
    Any {
        open: BTreeMap<OperationId, usize>,
    },
    /// What a call made by the code of a step gives: it is the step's result.
    Inner {
        operation: OperationId,
        step: OperationId,
    },
}

pub(crate) struct Running {
    pub(crate) script: Vec<Json>,
    pub(crate) at: usize,
    pub(crate) awaits: Awaits,
    /// Operations that were started and are not awaited, and what to call when they have ended. Their
    /// errors are thrown when they come, but in workflows.
    pub(crate) started: BTreeMap<OperationId, Option<Json>>,
    /// Operations that only let time pass.
    pub(crate) pauses: BTreeSet<OperationId>,
    /// What a workflow has returned that has yet to end.
    returned: Option<Json>,
    /// Operations that nobody cares about any more.
    dropped: BTreeSet<OperationId>,
    pub(crate) last: Json,
    /// What the script has set aside.
    kept: Vec<Json>,
    /// The id of the workflow that it started last.
    pub(crate) started_workflow: Json,
    is_route: bool,
    pub(crate) handler: HandlerId,
    limits: Limits,
    /// What the program's module has seen: code that looks at it does not always do the same.
    pub(crate) marks: Rc<RefCell<BTreeSet<String>>>,
}

/// What a turn found.
enum Turn {
    Waits,
    Ends(Json),
}

/// The engine. See the module's documentation.
#[derive(Default)]
pub struct ScriptEngine {
    activations: RefCell<BTreeMap<ActivationId, Running>>,
    programs: RefCell<BTreeMap<Program, Limits>>,
    marks: Rc<RefCell<BTreeSet<String>>>,
    /// Of the service `note`, in whatever is loaded from now on.
    pub schedules: RefCell<Vec<Schedule>>,
    /// Whether every few turns use so much CPU time that others should have a turn.
    pub works: Cell<bool>,
    is_running: Cell<bool>,
    turns: Cell<u64>,
}

impl ScriptEngine {
    /// The services every app has.
    pub const SERVICES: [&'static str; 3] = ["account", "counter", "note"];

    /// An engine with one app, and the catalog that names it.
    #[must_use]
    pub fn with_app(app: &str, limits: Limits) -> (Self, Catalog) {
        Self::with_schedules(app, limits, Vec::new())
    }

    /// The same of an app with schedules.
    #[must_use]
    pub fn with_schedules(app: &str, limits: Limits, schedules: Vec<Schedule>) -> (Self, Catalog) {
        let engine = Self::of_schedules(schedules);
        let mut catalog = Catalog::default();
        engine.add_app(&mut catalog, app, limits);
        (engine, catalog)
    }

    /// An engine without apps, whose apps will have these schedules.
    #[must_use]
    pub fn of_schedules(schedules: Vec<Schedule>) -> Self {
        Self { schedules: RefCell::new(schedules), ..Self::default() }
    }

    /// An app of that name; all have the same code.
    ///
    /// # Panics
    /// When the name is none.
    #[must_use]
    pub fn app(name: &str, limits: Limits) -> App {
        let text = "[fetch]\nallow = [\"https://outside.example\"]\n[records]\ntypes = [\"note\", \"missing\"]";
        let AppSettings { fetch, grants, .. } = AppSettings::from_toml(text).expect("valid");
        let name = Name::new(name).expect("tests name their apps well");
        App { limits, fetch, grants, ..App::new(name) }
    }

    /// Loads an app and sends requests to it.
    pub fn add_app(&self, catalog: &mut Catalog, app: &str, limits: Limits) -> Program {
        self.add_version(catalog, app, limits, 1)
    }

    /// Loads a version of an app and sends requests to it.
    pub fn add_version(&self, catalog: &mut Catalog, app: &str, limits: Limits, version: u64) -> Program {
        self.add(catalog, &Self::app(app, limits), version)
    }

    /// The same of an app with other settings.
    pub fn add(&self, catalog: &mut Catalog, app: &App, version: u64) -> Program {
        let last = self.programs.borrow().last_key_value().map_or(0, |(program, _)| program.0);
        let program = Program(last + 1);
        self.load(program, app).expect("every app loads");
        let services = self.services(program);
        catalog.add(program, millrace_func::Loaded::new(app, version, services));
        catalog.activate(program);
        program
    }

    /// What an earlier engine's programs have seen, as if their code looked at the outside.
    pub fn remember(&self, earlier: &Self) {
        self.marks.borrow_mut().append(&mut earlier.marks.borrow_mut());
    }

    /// Has programs have seen just this; gives what they had seen before.
    pub fn set_marks(&self, marks: BTreeSet<String>) -> BTreeSet<String> {
        self.marks.replace(marks)
    }

    /// Activations that wait.
    #[must_use]
    pub fn waiting_activations(&self) -> usize {
        self.activations.borrow().len()
    }

    /// Turns run so far.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns.get()
    }

    fn run(
        &self,
        activation: ActivationId,
        mut running: Running,
        thrown: Option<Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        assert!(!self.is_running.replace(true), "an engine is never re-entered");
        self.turns.set(self.turns.get() + 1);
        let result = match thrown {
            Some(error) => Err(error),
            None if host.cpu_spent_ns() >= running.limits.cpu_ms * 1_000_000 => {
                Err(Error::new(ErrorCode::CpuLimit, "the transaction used too much CPU time"))
            }
            None => running.go_on(host),
        };
        if self.works.get() && self.turns.get().is_multiple_of(8) {
            host.spend_cpu(CPU_SLICE_NS);
        }
        self.is_running.set(false);
        match result {
            Ok(Turn::Waits) => {
                self.activations.borrow_mut().insert(activation, running);
                TurnResult::Waiting
            }
            Ok(Turn::Ends(json)) if running.goes_on() => {
                running.returned = Some(json);
                self.activations.borrow_mut().insert(activation, running);
                TurnResult::Waiting
            }
            Ok(Turn::Ends(json)) => TurnResult::Done(running.output(&json)),
            Err(error) => TurnResult::Done(Err(error)),
        }
    }
}

impl Engine for ScriptEngine {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        let before = self.programs.borrow_mut().insert(program, app.limits.clone());
        assert!(before.is_none(), "{program:?} is loaded already");
        Ok(())
    }

    fn services(&self, _program: Program) -> Vec<Service> {
        let name = |text: &str| Name::new(text).expect("a name");
        let handlers = vec![
            (name("run"), HandlerKind::Transaction),
            (name("read"), HandlerKind::Query),
            (name("flow"), HandlerKind::Workflow),
            (name(READ_HANDLER), HandlerKind::Query),
            (name(WRITE_HANDLER), HandlerKind::Transaction),
        ];
        let routes = vec![Route { method: "POST".into(), path: "/run".into() }];
        let services = Self::SERVICES.iter();
        services
            .map(|text| Service {
                name: name(text),
                handlers: handlers.clone(),
                routes: routes.clone(),
                schedules: if *text == "note" { self.schedules.borrow().clone() } else { Vec::new() },
            })
            .collect()
    }

    fn unload(&self, program: Program) {
        self.programs.borrow_mut().remove(&program);
    }

    /// A script that does nothing but get one field.
    fn answer(&self, query: HandlerId, input: &[u8], reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        let [(get, field)] = serde_json::from_slice::<[(String, String); 1]>(input).ok()?;
        if get != "get" {
            return None;
        }
        let output_bytes = self.programs.borrow().get(&query.program)?.output_bytes;
        let found = reader.get(field.as_bytes());
        Some(found.and_then(|value| output(&value.map_or(Json::Null, decode), output_bytes)).map(Answer::Value))
    }

    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        assert!(!self.activations.borrow().contains_key(&activation), "{activation:?} is live already");
        let (input, handler, is_route) = match start {
            Start::Handler { id, input, .. } => (input.to_vec(), id, false),
            Start::Route { id, request } => {
                let handler = HandlerId { program: id.program, service: id.service, handler: 0 };
                (request.body.to_vec(), handler, true)
            }
        };
        let limits = self.programs.borrow().get(&handler.program).expect("only loaded programs are started").clone();
        let input = crate::records::script_of(input);
        let script = match serde_json::from_slice(&input) {
            Ok(Json::Array(script)) => script,
            _ => return TurnResult::Done(Err(Error::new(ErrorCode::InvalidInput, "the input is no script"))),
        };
        let running = Running {
            script,
            at: 0,
            awaits: Awaits::Nothing,
            started: BTreeMap::new(),
            pauses: BTreeSet::new(),
            returned: None,
            dropped: BTreeSet::new(),
            last: Json::Null,
            kept: Vec::new(),
            started_workflow: Json::Null,
            is_route,
            handler,
            limits,
            marks: Rc::clone(&self.marks),
        };
        self.run(activation, running, None, host)
    }

    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        let mut running = self.activations.borrow_mut().remove(&activation).expect("only waiting frames are resumed");
        match running.take_result(operation, result, host) {
            Ok(true) => self.run(activation, running, None, host),
            Ok(false) if running.returned.is_some() && !running.goes_on() => {
                let returned = running.returned.take().unwrap_or(Json::Null);
                TurnResult::Done(running.output(&returned))
            }
            Ok(false) => {
                self.activations.borrow_mut().insert(activation, running);
                TurnResult::Waiting
            }
            Err(error) => self.run(activation, running, Some(error), host),
        }
    }

    fn cancel(&self, activation: ActivationId) {
        assert!(!self.is_running.get(), "an engine is never re-entered");
        assert!(self.activations.borrow_mut().remove(&activation).is_some(), "only waiting frames are cancelled");
    }
}

pub(crate) fn thrown(text: &str) -> Error {
    Error::new(ErrorCode::FunctionFailed, text)
}

pub(crate) fn text(operation: &[Json], index: usize) -> Result<&str, Error> {
    operation.get(index).and_then(Json::as_str).ok_or_else(|| thrown("an operation lacks a text"))
}

pub(crate) fn number(operation: &[Json], index: usize) -> Result<i64, Error> {
    operation.get(index).and_then(Json::as_i64).ok_or_else(|| thrown("an operation lacks a number"))
}

fn output(json: &Json, limit_bytes: usize) -> Result<Bytes, Error> {
    let text = Bytes::from(json.to_string());
    if text.len() > limit_bytes {
        return Err(Error::new(ErrorCode::SizeLimit, "the output is too large"));
    }
    Ok(text)
}

fn decode(value: &Value) -> Json {
    serde_json::from_slice(value.content()).unwrap_or(Json::Null)
}

impl Running {
    fn output(&self, json: &Json) -> Result<Output, Error> {
        let text = output(json, self.limits.output_bytes)?;
        Ok(if self.is_route {
            Output::Response(RouteReply { status: 200, headers: Vec::new(), body: text })
        } else {
            Output::Value(text)
        })
    }

    /// Takes the result of an operation. Says whether the script goes on now.
    fn take_result(
        &mut self,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> Result<bool, Error> {
        if let Some(then) = self.started.remove(&operation) {
            if let (Ok(_), Some(callee)) = (&result, then) {
                let begun = host.call(self.callee(Some(&callee))?)?;
                self.started.insert(begun, None);
            }
            return if self.is_workflow() { Ok(false) } else { result.map(|_| false) };
        }
        if self.dropped.remove(&operation) {
            return Ok(false);
        }
        if let Awaits::Inner { operation: awaited, step } = self.awaits
            && awaited == operation
        {
            let flow = host.in_workflow("step")?;
            flow.within_step(Some(step));
            flow.end_step(step, result)?;
            flow.within_step(None);
            self.awaits = Awaits::One { operation: step, catches: false };
            return Ok(false);
        }
        let result = result.map(|bytes| serde_json::from_slice(&bytes).expect("results are JSON"));
        match &mut self.awaits {
            Awaits::One { operation: awaited, catches } if *awaited == operation => {
                self.last = if *catches { result.unwrap_or(Json::Null) } else { result? };
            }
            Awaits::Several { open, results, catches } if open.contains_key(&operation) => {
                let index = open.remove(&operation).expect("just looked at");
                results[index] = if *catches { result.unwrap_or(Json::Null) } else { result? };
                if !open.is_empty() {
                    return Ok(false);
                }
                self.last = Json::Array(std::mem::take(results));
            }
            Awaits::Any { open } if open.contains_key(&operation) => {
                let index = open.remove(&operation).expect("just looked at");
                self.dropped.extend(std::mem::take(open).into_keys());
                self.last = Json::from(index);
            }
            _ => panic!("{operation:?} was resumed twice, or never started"),
        }
        self.awaits = Awaits::Nothing;
        Ok(true)
    }

    fn is_workflow(&self) -> bool {
        !self.is_route && usize::from(self.handler.handler) == FLOW
    }

    /// Whether it is a workflow that has started what has not ended and does more than let time pass.
    fn goes_on(&self) -> bool {
        let mut open = self.started.keys().chain(&self.dropped);
        self.is_workflow() && open.any(|operation| !self.pauses.contains(operation))
    }

    fn open_operations(&self) -> usize {
        let awaited = match &self.awaits {
            Awaits::Nothing => 0,
            Awaits::One { .. } | Awaits::Inner { .. } => 1,
            Awaits::Several { open, .. } | Awaits::Any { open } => open.len(),
        };
        awaited + self.started.len()
    }

    fn go_on(&mut self, host: &mut dyn Host) -> Result<Turn, Error> {
        while let Some(operation) = self.script.get(self.at).cloned() {
            self.at += 1;
            let Json::Array(operation) = operation else {
                return Err(thrown("an operation is no array"));
            };
            let name = text(&operation, 0)?;
            if name == "return" {
                return Ok(Turn::Ends(operation.get(1).cloned().unwrap_or(Json::Null)));
            }
            if !self.on_fields(name, &operation, host)? && !self.on_flow(name, &operation, host)? {
                self.on_others(name, &operation, host)?;
            }
            if self.open_operations() > self.limits.pending_operations {
                return Err(Error::new(ErrorCode::OperationLimit, "too many open operations"));
            }
            if !matches!(self.awaits, Awaits::Nothing) {
                return Ok(Turn::Waits);
            }
        }
        Ok(Turn::Ends(self.last.clone()))
    }

    /// Operations on the activation's own entity. Says whether it was one.
    fn on_fields(&mut self, name: &str, operation: &[Json], host: &mut dyn Host) -> Result<bool, Error> {
        let set = |host: &mut dyn Host, field: &str, value: &Json| {
            host.set(field.as_bytes(), Value::new(ValueKind::Json, value.to_string().as_bytes()))
        };
        self.last = match name {
            "get" => host.get(text(operation, 1)?.as_bytes())?.map_or(Json::Null, decode),
            "set" => {
                let value = operation.get(2).cloned().unwrap_or(Json::Null);
                set(host, text(operation, 1)?, &value)?;
                value
            }
            "add" => {
                let field = text(operation, 1)?;
                let before = host.get(field.as_bytes())?.map_or(Json::Null, decode).as_i64().unwrap_or(0);
                let after = Json::from(before + number(operation, 2)?);
                set(host, field, &after)?;
                after
            }
            "push" => {
                let field = text(operation, 1)?;
                let mut list =
                    host.get(field.as_bytes())?.map_or(Json::Null, decode).as_array().cloned().unwrap_or_default();
                list.push(operation.get(2).cloned().unwrap_or(Json::Null));
                let list = Json::Array(list);
                set(host, field, &list)?;
                list
            }
            "delete" => Json::Bool(host.delete(text(operation, 1)?.as_bytes())?),
            "scan" => {
                let limit = usize::try_from(number(operation, 2)?).unwrap_or(0);
                let prefix = text(operation, 1)?.as_bytes().to_vec();
                let rows = host.scan(&ScanRequest { prefix, after: None, limit })?;
                let row = |(field, value): (Vec<u8>, Value)| {
                    Json::Array(vec![String::from_utf8_lossy(&field).into(), decode(&value)])
                };
                Json::Array(rows.into_iter().map(row).collect())
            }
            "keys" => crate::records::keys(operation, host)?,
            "at_least" => {
                let found = host.get(text(operation, 1)?.as_bytes())?.map_or(Json::Null, decode);
                if found.as_i64().unwrap_or(0) < number(operation, 2)? {
                    return Err(Error::new(ErrorCode::Aborted, "not enough"));
                }
                found
            }
            _ => return Ok(false),
        };
        Ok(true)
    }

    fn on_others(&mut self, name: &str, operation: &[Json], host: &mut dyn Host) -> Result<(), Error> {
        match name {
            "call" | "try" | "start" => {
                let call = self.callee(operation.get(1))?;
                let begun = host.call(call)?;
                self.await_one(begun, name == "try", name == "start");
            }
            "all" | "settle" => {
                let callees = operation.get(1).and_then(Json::as_array).cloned().unwrap_or_default();
                let mut open = BTreeMap::new();
                for (index, callee) in callees.iter().enumerate() {
                    open.insert(host.call(self.callee(Some(callee))?)?, index);
                }
                if !open.is_empty() {
                    let results = vec![Json::Null; open.len()];
                    self.awaits = Awaits::Several { open, results, catches: name == "settle" };
                }
            }
            "send" => {
                let NestedCall { handler, key, input } = self.callee(operation.get(1))?;
                let delay_ms = u64::try_from(number(operation, 2)?).unwrap_or(0);
                let id = operation.get(3).and_then(Json::as_str).map(str::to_owned);
                let started = host.send(Message { handler, key, input, delay_ms, id })?;
                self.last = started.map_or(Json::Null, Json::String);
                if self.last != Json::Null {
                    self.started_workflow = self.last.clone();
                }
            }
            "hash" | "start_hash" => {
                let salt = host.random().to_le_bytes();
                let work = Offload::Argon2idHash {
                    password: salt.to_vec(),
                    salt: [salt, salt].concat().try_into().expect("16 bytes"),
                };
                let begun = host.offload(work)?;
                self.await_one(begun, false, name == "start_hash");
            }
            "record" => {
                let begun = crate::records::ask(operation, host)?;
                self.await_one(begun, false, false);
            }
            "tag" => {
                let tagged = (text(operation, 1)?.to_owned(), std::mem::take(&mut self.last));
                self.last = Json::Object([tagged].into_iter().collect());
            }
            "keep" => self.kept.push(self.last.clone()),
            "kept" => self.last = Json::Array(self.kept.clone()),
            "work" => host.spend_cpu(u64::try_from(number(operation, 1)?).unwrap_or(0) * 1_000_000),
            "random" => self.last = Json::from(host.random()),
            "now" => self.last = Json::from(host.now().0),
            "log" => host.log(LogLevel::Info, text(operation, 1)?),
            "abort" => return Err(Error::new(ErrorCode::Aborted, text(operation, 1)?)),
            "fail" => return Err(thrown(text(operation, 1)?)),
            "flaky" if host.random().is_multiple_of(number(operation, 1)?.unsigned_abs()) => {
                return Err(thrown("flaky"));
            }
            "flaky" => self.last = Json::Null,
            _ => return Err(thrown("an operation is unknown")),
        }
        Ok(())
    }

    pub(crate) fn await_one(&mut self, operation: OperationId, catches: bool, is_started_only: bool) {
        if is_started_only {
            self.started.insert(operation, None);
            self.last = Json::Null;
        } else {
            self.awaits = Awaits::One { operation, catches };
        }
    }

    /// The same with what is computed filled in.
    fn filled(&self, json: &Json) -> Json {
        match json {
            Json::Array(parts) => parts.iter().map(|part| self.filled(part)).collect(),
            Json::Object(computed) => match (computed.get("kept"), computed.get("text")) {
                (Some(path), _) => {
                    let index = |index: &Json| index.as_u64().and_then(|index| usize::try_from(index).ok());
                    let mut indices = path.as_array().into_iter().flatten().filter_map(index);
                    let first = indices.next().and_then(|index| self.kept.get(index));
                    let found = indices.fold(first, |found, index| found.and_then(|found| found.get(index)));
                    found.cloned().unwrap_or(Json::Null)
                }
                (_, Some(parts)) => {
                    let part = |part: &Json| match self.filled(part) {
                        Json::String(text) => text,
                        other => other.to_string(),
                    };
                    Json::String(parts.as_array().into_iter().flatten().map(part).collect())
                }
                _ => json.clone(),
            },
            other => other.clone(),
        }
    }

    pub(crate) fn callee(&self, callee: Option<&Json>) -> Result<NestedCall, Error> {
        let callee = self.filled(callee.ok_or_else(|| thrown("an operation lacks a callee"))?);
        let callee = callee.as_array().ok_or_else(|| thrown("an operation lacks a callee"))?;
        let (service, key, handler) = (text(callee, 0)?, text(callee, 1)?, text(callee, 2)?);
        let service = ScriptEngine::SERVICES.iter().position(|name| *name == service);
        let handler = ["run", "read", "flow"].iter().position(|name| *name == handler);
        let (Some(service), Some(handler)) = (service, handler) else {
            return Err(Error::new(ErrorCode::UnknownHandler, "no such handler"));
        };
        let index = |index: usize| u16::try_from(index).expect("few of them");
        let handler = HandlerId { program: self.handler.program, service: index(service), handler: index(handler) };
        let input = callee.get(3).cloned().unwrap_or(Json::Null).to_string();
        Ok(NestedCall { handler, key: key.as_bytes().to_vec(), input: input.into() })
    }
}
