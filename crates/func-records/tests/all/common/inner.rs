//! An engine that replaces the one that runs JavaScript. Its triggers are texts of commands, one a line:
//!
//! | command | what |
//! |---|---|
//! | `veto text` | fails with `aborted`. |
//! | `throw text` | fails with `function-failed`, at the command's place. |
//! | `set path json` | writes the record itself, with `Host::operate`. |
//! | `add path number` | adds to a field of the record itself. |
//! | `send` | sends the trigger's input to itself, once. |
//! | `count` | counts in a field of its own entity. |
//! | `broken` | the source cannot be loaded. |

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_api::{PathOperation, PathOperationKind, RECORDS_APP, RecordChange, RecordOperation, RecordWrite};
use millrace_base::{Error, ErrorCode, Name, Value};
use millrace_func::{
    ActivationId, App, BuiltInCall, Engine, HandlerId, HandlerKind, Host, Message, OperationId, Output, Program,
    Service, Start, TurnResult,
};

struct Loaded {
    services: Vec<Service>,
    /// For each service, for each handler: path and text of the source.
    sources: Vec<Vec<(String, String)>>,
}

#[derive(Default)]
pub struct Inner {
    programs: RefCell<BTreeMap<Program, Loaded>>,
    waiting: RefCell<BTreeMap<u32, ()>>,
    /// Trigger and input of each run.
    pub runs: RefCell<Vec<(String, String)>>,
    /// Apps loaded, the triggers' included.
    pub loads: RefCell<usize>,
    pub unloaded: RefCell<Vec<Program>>,
    pub cancelled: RefCell<Vec<ActivationId>>,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn failed(code: ErrorCode, message: impl Into<String>) -> TurnResult {
    TurnResult::Done(Err(Error::new(code, message)))
}

impl Inner {
    fn load_services(&self, app: &App) -> Result<Loaded, Error> {
        let mut loaded = Loaded { services: Vec::new(), sources: Vec::new() };
        for (path, content) in &app.files {
            let Some(stem) = path.strip_suffix(".js").filter(|path| !path.contains('/')) else {
                continue;
            };
            let text = String::from_utf8_lossy(content);
            let mut sources = Vec::new();
            for line in text.lines().filter(|line| line.starts_with("import * as module")) {
                let path = line.split('"').nth(1).expect("a path").trim_start_matches("./").to_owned();
                let source = String::from_utf8(app.files[&path].clone()).expect("UTF-8");
                if let Some(at) = source.find("broken") {
                    let message = format!("{path}:1:{}: unexpected token", at + 1);
                    return Err(Error::new(ErrorCode::AppRefused, message));
                }
                sources.push((path, source));
            }
            let handlers = (0..sources.len()).map(|index| (name(&format!("trigger{index}")), HandlerKind::Transaction));
            let service =
                Service { name: name(stem), handlers: handlers.collect(), routes: Vec::new(), schedules: Vec::new() };
            loaded.services.push(service);
            loaded.sources.push(sources);
        }
        Ok(loaded)
    }

    fn run(
        &self,
        activation: ActivationId,
        id: HandlerId,
        key: &[u8],
        input: &[u8],
        host: &mut dyn Host,
    ) -> TurnResult {
        let (path, source) = {
            let programs = self.programs.borrow();
            let loaded = &programs[&id.program];
            loaded.sources[usize::from(id.service)][usize::from(id.handler)].clone()
        };
        let input_text = String::from_utf8(input.to_vec()).expect("UTF-8");
        self.runs.borrow_mut().push((path.clone(), input_text.clone()));
        let mut is_waiting = false;
        // The head of a wrapped body ends with "{ ".
        let body = source.split_once(") { ").map_or(source.as_str(), |(_, body)| body);
        for command in body.lines() {
            let (verb, rest) = command.trim().split_once(' ').unwrap_or((command.trim(), ""));
            match verb {
                "veto" => return failed(ErrorCode::Aborted, rest),
                "throw" => {
                    let column = source.find("throw").expect("it is there") + 1;
                    return failed(ErrorCode::FunctionFailed, format!("{rest} at {path}:1:{column}"));
                }
                "set" | "add" => {
                    let kind = if verb == "set" { PathOperationKind::Set } else { PathOperationKind::Increment };
                    let (place, json) = rest.split_once(' ').expect("path and value");
                    let operations = vec![PathOperation { kind, path: place.into(), value: Some(json) }];
                    let change = RecordChange::Patch { operations, parameters: "" };
                    let write = RecordOperation::Write(RecordWrite { change, ..RecordWrite::default() });
                    let type_name = path.split('/').nth(1).expect("a type");
                    let (handler, input) = (write.handler(), write.to_bytes());
                    let call = BuiltInCall { app: RECORDS_APP, service: type_name, handler, key: Some(key), input };
                    if let Err(error) = host.operate(call) {
                        return TurnResult::Done(Err(error));
                    }
                    is_waiting = true;
                }
                "send" if !input_text.contains("\"again\"") => {
                    let input = Bytes::from_static(b"{\"again\":true}");
                    let message = Message { handler: id, key: key.to_vec(), input, delay_ms: 5, id: None };
                    host.send(message).expect("sends");
                }
                "count" => {
                    let count = host.get(b"count").expect("reads").map_or(0, |value| value.content().len());
                    host.set(b"count", Value::json(&"1".repeat(count + 1))).expect("writes");
                }
                _ => {}
            }
        }
        if is_waiting {
            self.waiting.borrow_mut().insert(activation.0, ());
            return TurnResult::Waiting;
        }
        TurnResult::Done(Ok(Output::Value(Bytes::from_static(b"null"))))
    }
}

impl Inner {
    /// The numbers under which triggers were loaded, oldest first.
    pub fn loaded(&self) -> Vec<Program> {
        self.programs.borrow().keys().copied().collect()
    }
}

impl Engine for Inner {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        let loaded = self.load_services(app)?;
        *self.loads.borrow_mut() += 1;
        let before = self.programs.borrow_mut().insert(program, loaded);
        assert!(before.is_none(), "a number is used once");
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        self.programs.borrow()[&program].services.clone()
    }

    fn unload(&self, program: Program) {
        self.unloaded.borrow_mut().push(program);
    }

    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        match start {
            Start::Handler { id, key, input } => self.run(activation, id, key, input, host),
            Start::Route { .. } => failed(ErrorCode::Internal, "no routes here"),
        }
    }

    fn resume(
        &self,
        activation: ActivationId,
        _: OperationId,
        result: Result<Bytes, Error>,
        _: &mut dyn Host,
    ) -> TurnResult {
        assert!(self.waiting.borrow_mut().remove(&activation.0).is_some(), "a frame of this engine");
        match result {
            Ok(_) => TurnResult::Done(Ok(Output::Value(Bytes::from_static(b"null")))),
            Err(error) => TurnResult::Done(Err(error)),
        }
    }

    fn cancel(&self, activation: ActivationId) {
        self.waiting.borrow_mut().remove(&activation.0);
        self.cancelled.borrow_mut().push(activation);
    }
}
