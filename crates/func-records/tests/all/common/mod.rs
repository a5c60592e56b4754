//! A world in memory around the engine. It does what shards do, without locks, log or disk. Transactions are atomic and
//! run one after the other. Messages come at their time.
#![allow(dead_code, reason = "each program uses a part of it")]

pub mod agreement;
pub mod inner;

use std::cell::Cell;
use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_api::{
    AppFile, Form, PathOperation, PathOperationKind, RecordChange, RecordOperation, RecordQuery, RecordReply,
    RecordWrite, SWEEP_HANDLER,
};
use millrace_base::{Error, ErrorCode, Name, ShardId, UnixMillis, Value, limits, shard_of_key};
use millrace_func::{
    ActivationId, App, BuiltInCall, Engine, FetchRequest, HandlerId, HandlerKind, Host, LogLevel, Message, NestedCall,
    Offload, OperationId, Output, Program, ScanRequest, Service, Start, TurnResult,
};
use millrace_func_records::{RecordsEngine, shard_keys, shard_service};
use millrace_registry::{Registry, TypeChange};
use serde_json::json;

use inner::Inner;

pub const SHARDS: u16 = 3;

/// Service, key, field.
pub type FieldAddress = (String, Vec<u8>, Vec<u8>);

pub type Stored = BTreeMap<FieldAddress, Value>;

/// A message that waits for its time. It keeps names, which stay the same when programs change.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub due_ms: u64,
    pub service: String,
    pub handler: String,
    pub key: Vec<u8>,
    pub input: Bytes,
}

/// What a transaction would do.
#[derive(Clone, Default)]
struct Effects {
    writes: BTreeMap<FieldAddress, Option<Value>>,
    messages: Vec<Waiting>,
}

pub struct World {
    pub engine: RecordsEngine<Inner>,
    pub registry: Registry,
    pub program: Program,
    /// The number of the next program.
    loads: Cell<u32>,
    pub services: BTreeMap<u32, Vec<Service>>,
    pub stored: Stored,
    pub messages: Vec<Waiting>,
    /// Messages whose target is gone and that the engine does not drop.
    pub lost: Vec<Waiting>,
    pub now: u64,
    pub activations: u32,
    /// Writes of the last transaction.
    pub last_writes: usize,
    /// Calls of the last transaction.
    pub calls: usize,
    /// Takes the newest open call instead of the oldest.
    pub is_reversed: bool,
}

struct ActivationHost<'a> {
    stored: &'a Stored,
    effects: &'a mut Effects,
    services: &'a BTreeMap<u32, Vec<Service>>,
    current: Program,
    program: Program,
    service: String,
    key: Vec<u8>,
    is_query: bool,
    now: u64,
    pending: Vec<(OperationId, NestedCall)>,
    next_operation: u32,
}

fn refuse<T>(what: &str) -> Result<T, Error> {
    Err(Error::new(ErrorCode::FunctionFailed, what))
}

impl ActivationHost<'_> {
    fn place(&self, field: &[u8]) -> FieldAddress {
        (self.service.clone(), self.key.clone(), field.to_vec())
    }

    fn names(&self, id: HandlerId) -> (String, String, HandlerKind) {
        let service = &self.services[&id.program.0][usize::from(id.service)];
        let (handler, kind) = &service.handlers[usize::from(id.handler)];
        (service.name.as_str().to_owned(), handler.as_str().to_owned(), *kind)
    }

    fn write(&mut self, field: &[u8], value: Option<Value>) -> Result<(), Error> {
        assert!(field.len() <= limits::FIELD_BYTES, "a field's name of {} bytes", field.len());
        assert!(value.as_ref().is_none_or(|value| value.encoded().len() <= limits::VALUE_BYTES), "too large a value");
        if self.is_query {
            return refuse("a query cannot change anything");
        }
        let place = self.place(field);
        self.effects.writes.insert(place, value);
        Ok(())
    }
}

impl Host for ActivationHost<'_> {
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        let place = self.place(field);
        Ok(match self.effects.writes.get(&place) {
            Some(written) => written.as_ref(),
            None => self.stored.get(&place),
        })
    }

    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.write(field, Some(value))
    }

    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        let was_there = self.get(field)?.is_some();
        self.write(field, None)?;
        Ok(was_there)
    }

    fn scan(&mut self, request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        let mut rows = BTreeMap::new();
        let start = self.place(&request.prefix);
        let is_here = |place: &FieldAddress| {
            place.0 == self.service && place.1 == self.key && place.2.starts_with(&request.prefix)
        };
        for (place, value) in self.stored.range(start.clone()..).take_while(|(place, _)| is_here(place)) {
            rows.insert(place.2.clone(), value.clone());
        }
        for (place, value) in self.effects.writes.range(start..).take_while(|(place, _)| is_here(place)) {
            match value {
                Some(value) => rows.insert(place.2.clone(), value.clone()),
                None => rows.remove(&place.2),
            };
        }
        let is_wanted = |field: &Vec<u8>| request.after.as_ref().is_none_or(|after| field > after);
        let limit = request.limit.min(limits::SCAN_ROWS);
        let rows: Vec<_> = rows.into_iter().filter(|(field, _)| is_wanted(field)).take(limit).collect();
        // As in a shard.
        if rows.iter().map(|(field, value)| field.len() + value.content().len()).sum::<usize>() > limits::SCAN_BYTES {
            return Err(Error::new(ErrorCode::SizeLimit, "the fields asked for have too many bytes"));
        }
        Ok(rows)
    }

    fn keys(&mut self, service: u16, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let name = self.services[&self.program.0][usize::from(service)].name.as_str().to_owned();
        let shard = shard_of_key(&self.key, SHARDS);
        let mut keys: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for place in self.stored.keys().chain(self.effects.writes.keys()).filter(|place| place.0 == name) {
            let is_there = match self.effects.writes.get(place) {
                Some(written) => written.is_some(),
                None => true,
            };
            *keys.entry(place.1.clone()).or_default() |= is_there;
        }
        let is_wanted = |key: &Vec<u8>| {
            key.starts_with(prefix)
                && after.is_none_or(|after| key.as_slice() > after)
                && shard_of_key(key, SHARDS) == shard
        };
        let keys = keys.into_iter().filter(|(key, is_there)| *is_there && is_wanted(key)).map(|(key, _)| key);
        Ok(keys.take(limit.min(limits::SCAN_ROWS)).collect())
    }

    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error> {
        let services = &self.services[&self.current.0];
        let service = services.iter().position(|service| service.name.as_str() == call.service).expect("a type");
        let handlers = &services[service].handlers;
        let handler = handlers.iter().position(|(name, _)| name.as_str() == call.handler).expect("a handler");
        let handler = HandlerId { program: self.current, service: service as u16, handler: handler as u16 };
        self.call(NestedCall { handler, key: call.key.unwrap_or_default().to_vec(), input: call.input })
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        let (_, _, kind) = self.names(call.handler);
        if self.is_query && kind == HandlerKind::Transaction {
            return refuse("a query can call queries only");
        }
        self.next_operation += 1;
        let operation = OperationId(self.next_operation);
        self.pending.push((operation, call));
        Ok(operation)
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        if self.is_query {
            return refuse("a query cannot change anything");
        }
        let (service, handler, _) = self.names(message.handler);
        let due_ms = self.now + message.delay_ms;
        self.effects.messages.push(Waiting { due_ms, service, handler, key: message.key, input: message.input });
        Ok(None)
    }

    fn signal(&mut self, _: &str, _: &str, _: Bytes) -> Result<(), Error> {
        refuse("signal")
    }

    fn offload(&mut self, _: Offload) -> Result<OperationId, Error> {
        refuse("offload")
    }

    fn fetch(&mut self, _: FetchRequest) -> Result<OperationId, Error> {
        refuse("fetch")
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.now)
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn log(&mut self, _: LogLevel, _: &str) {}
}

pub fn app_of(registry: &Registry) -> App {
    let files = registry.to_files().into_iter().map(|AppFile { path, content }| (path, content));
    App { files: files.collect(), ..App::new(Name::new("records").expect("a name")) }
}

impl Default for World {
    fn default() -> Self {
        let engine = RecordsEngine::new(Inner::default(), SHARDS);
        let registry = Registry::default();
        let program = Program(0);
        engine.load(program, &app_of(&registry)).expect("loads");
        let services = BTreeMap::from([(program.0, engine.services(program))]);
        Self {
            engine,
            registry,
            program,
            loads: Cell::new(1),
            services,
            stored: Stored::new(),
            messages: Vec::new(),
            lost: Vec::new(),
            now: 1_700_000_000_000,
            activations: 0,
            last_writes: 0,
            calls: 0,
            is_reversed: false,
        }
    }
}

impl World {
    /// With one type, already swept.
    pub fn with(type_name: &str, settings: serde_json::Value) -> World {
        let mut world = World::default();
        world.put_type(type_name, settings);
        world
    }

    /// Changes a type, switches to the new program and sweeps.
    pub fn put_type(&mut self, type_name: &str, settings: serde_json::Value) {
        self.switch(type_name, settings).expect("loads");
        self.sweep(type_name);
        self.settle(60_000);
    }

    /// Changes a type and switches to the new program.
    pub fn switch(&mut self, type_name: &str, settings: serde_json::Value) -> Result<(), Error> {
        let mut registry = self.registry.clone();
        let change = TypeChange::from_json(&settings.to_string()).expect("settings");
        registry.put_type(type_name, &change).map_err(Error::from)?;
        self.switch_to(registry)
    }

    /// Deletes a type, whether or not it has records, and switches to the new program.
    pub fn delete_type(&mut self, type_name: &str) {
        let mut registry = self.registry.clone();
        registry.delete_type(type_name, true, true).expect("deleted");
        self.switch_to(registry).expect("loads");
    }

    /// Loads an app under the next number.
    pub fn load(&self, app: &App) -> Result<Program, Error> {
        let program = Program(self.loads.get());
        self.engine.load(program, app)?;
        self.loads.set(program.0 + 1);
        Ok(program)
    }

    fn switch_to(&mut self, registry: Registry) -> Result<(), Error> {
        let program = self.load(&app_of(&registry))?;
        self.registry = registry;
        self.services.insert(program.0, self.engine.services(program));
        self.program = program;
        Ok(())
    }

    /// Sends the messages that sweep every shard, as a node does after a switch.
    pub fn sweep(&mut self, type_name: &str) {
        self.sweep_with(type_name, b"null");
    }

    /// The same, told that nothing of the version before runs any more.
    pub fn sweep_alone(&mut self, type_name: &str) {
        self.sweep_with(type_name, b"{\"alone\":true}");
    }

    /// What the sweep of each shard answers to who hastens the runs, or asks for them.
    pub fn hasten(&mut self, type_name: &str, runs: Option<&[String]>) -> Vec<String> {
        let handler = self.find(&shard_service(type_name), SWEEP_HANDLER).expect("it is there");
        let answer = |(at, key): (usize, Vec<u8>)| {
            let input = match runs {
                Some(runs) => format!("{{\"hastens\":true,\"run\":{}}}", runs[at]),
                None => "{\"hastens\":true}".to_owned(),
            };
            let answer = self.transaction(handler, &key, input.as_bytes()).expect("answers");
            String::from_utf8(answer.to_vec()).expect("text")
        };
        shard_keys(SHARDS).into_iter().enumerate().map(answer).collect()
    }

    fn sweep_with(&mut self, type_name: &str, input: &'static [u8]) {
        for key in shard_keys(SHARDS) {
            self.messages.push(Waiting {
                due_ms: self.now,
                service: shard_service(type_name),
                handler: SWEEP_HANDLER.to_owned(),
                key,
                input: Bytes::from_static(input),
            });
        }
    }

    /// Runs the next message that is due within some time. Returns whether there was one.
    pub fn run_message(&mut self, within_ms: u64) -> bool {
        let next = self.messages.iter().enumerate().min_by_key(|(index, message)| (message.due_ms, *index));
        let Some((index, _)) = next.filter(|(_, message)| message.due_ms <= self.now + within_ms) else {
            return false;
        };
        let message = self.messages.remove(index);
        self.now = self.now.max(message.due_ms);
        let Some(id) = self.find(&message.service, &message.handler) else {
            let is_dropped = self.engine.drops(self.program, &message.service, &message.handler);
            self.lost.extend((!is_dropped).then_some(message));
            return true;
        };
        self.transaction(id, &message.key, &message.input).unwrap_or_else(|error| panic!("{message:?}: {error}"));
        true
    }

    /// Runs messages until none is due within some time.
    pub fn settle(&mut self, within_ms: u64) {
        let end = self.now + within_ms;
        while self.run_message(end.saturating_sub(self.now)) {}
    }

    pub fn find(&self, service: &str, handler: &str) -> Option<HandlerId> {
        let services = &self.services[&self.program.0];
        let index = services.iter().position(|known| known.name.as_str() == service)?;
        let at = services[index].handlers.iter().position(|(name, _)| name.as_str() == handler)?;
        Some(HandlerId { program: self.program, service: index as u16, handler: at as u16 })
    }

    /// One transaction: all of it or nothing.
    pub fn transaction(&mut self, id: HandlerId, key: &[u8], input: &[u8]) -> Result<Bytes, Error> {
        let mut effects = Effects::default();
        self.calls = 0;
        let result = self.activation(&mut effects, id, key, input, 0);
        if result.is_ok() {
            self.last_writes = effects.writes.len();
            for (place, value) in effects.writes {
                match value {
                    Some(value) => self.stored.insert(place, value),
                    None => self.stored.remove(&place),
                };
            }
            self.messages.extend(effects.messages);
        }
        result
    }

    fn activation(
        &mut self,
        effects: &mut Effects,
        id: HandlerId,
        key: &[u8],
        input: &[u8],
        depth: usize,
    ) -> Result<Bytes, Error> {
        assert!(depth <= limits::CALL_DEPTH, "calls nest too deep");
        self.calls += 1;
        self.activations += 1;
        let activation = ActivationId(self.activations);
        let before = effects.clone();
        let service = &self.services[&id.program.0][usize::from(id.service)];
        let (name, kind) = (service.name.as_str().to_owned(), service.handlers[usize::from(id.handler)].1);
        let (mut pending, mut next_operation) = (Vec::new(), 0);
        let mut resume: Option<(OperationId, Result<Bytes, Error>)> = None;
        loop {
            let mut host = ActivationHost {
                stored: &self.stored,
                effects,
                services: &self.services,
                current: self.program,
                program: id.program,
                service: name.clone(),
                key: key.to_vec(),
                is_query: kind == HandlerKind::Query,
                now: self.now,
                pending,
                next_operation,
            };
            let step = match resume.take() {
                None => self.engine.start(activation, Start::Handler { id, key, input }, &mut host),
                Some((operation, result)) => self.engine.resume(activation, operation, result, &mut host),
            };
            (pending, next_operation) = (host.pending, host.next_operation);
            if let TurnResult::Done(result) = step {
                assert!(pending.is_empty(), "it ended while it had calls open");
                if result.is_err() {
                    *effects = before;
                }
                return result.map(|output| match output {
                    Output::Value(value) => value,
                    Output::Response(_) => panic!("a handler gives no response"),
                });
            }
            assert!(!pending.is_empty(), "it waits for nothing");
            let at = if self.is_reversed { pending.len() - 1 } else { 0 };
            let (operation, call) = pending.remove(at);
            let result = self.activation(effects, call.handler, &call.key, &call.input, depth + 1);
            resume = Some((operation, result));
        }
    }

    /// One operation on a record.
    pub fn run(&mut self, type_name: &str, id: &[u8], operation: &RecordOperation<'_>) -> Result<RecordReply, Error> {
        let handler = self.find(type_name, operation.handler());
        let handler = handler.ok_or_else(|| Error::new(ErrorCode::UnknownType, "no such type"))?;
        RecordReply::from_bytes(self.transaction(handler, id, &operation.to_bytes())?)
    }

    pub fn get(&mut self, id: &str) -> Result<String, Error> {
        self.get_of("t", id)
    }

    pub fn get_of(&mut self, type_name: &str, id: &str) -> Result<String, Error> {
        self.run(type_name, id.as_bytes(), &RecordOperation::Get { form: Form::Json }).map(text)
    }

    pub fn select(&mut self, id: &str, path: &str) -> Result<String, Error> {
        self.run("t", id.as_bytes(), &RecordOperation::Select { path, parameters: "", form: Form::Json }).map(text)
    }

    pub fn write(&mut self, id: &str, write: RecordWrite<'_>) -> Result<RecordReply, Error> {
        self.run("t", id.as_bytes(), &RecordOperation::Write(write))
    }

    pub fn put(&mut self, id: &str, json: &str) -> Result<RecordReply, Error> {
        self.write(id, RecordWrite { change: put(json), ..RecordWrite::default() })
    }

    pub fn delete(&mut self, id: &str) -> Result<RecordReply, Error> {
        self.write(id, RecordWrite::default())
    }

    pub fn set(&mut self, id: &str, path: &str, json: &str) -> Result<RecordReply, Error> {
        self.patch(id, &[(PathOperationKind::Set, path, Some(json))])
    }

    pub fn patch(
        &mut self,
        id: &str,
        operations: &[(PathOperationKind, &str, Option<&str>)],
    ) -> Result<RecordReply, Error> {
        self.write(id, RecordWrite { change: patch(operations), ..RecordWrite::default() })
    }

    pub fn query(&mut self, query: RecordQuery<'_>) -> Result<serde_json::Value, Error> {
        let reply = self.run("t", b"0", &RecordOperation::Find(query))?;
        Ok(serde_json::from_slice(&reply.body).expect("JSON"))
    }

    /// The ids of all pages of a query, and how many pages there were.
    pub fn ids(&mut self, query: &RecordQuery<'_>) -> Result<(Vec<String>, usize), Error> {
        let (mut ids, mut pages, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let page = self.query(RecordQuery { cursor: &cursor, ..query.clone() })?;
            pages += 1;
            for record in page["records"].as_array().expect("records") {
                ids.push(record["id"].as_str().expect("an id").to_owned());
            }
            match page["cursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => return Ok((ids, pages)),
            }
            assert!(pages < 10_000, "pages without end");
        }
    }

    /// All changes kept, and the cursor behind them.
    pub fn changes(&mut self, cursor: &str, limit: u32) -> Result<(Vec<serde_json::Value>, String), Error> {
        let reply = self.run("t", b"0", &RecordOperation::Changes { cursor, limit })?;
        let page: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        let changes = page["changes"].as_array().expect("changes").clone();
        Ok((changes, page["cursor"].as_str().expect("a cursor").to_owned()))
    }

    /// Fields of a type's shard entities with this prefix.
    pub fn shard_fields(&self, type_name: &str, prefix: u8) -> Vec<(ShardId, Vec<u8>)> {
        let name = shard_service(type_name);
        let rows = self.stored.keys().filter(|place| place.0 == name && place.2.first() == Some(&prefix));
        rows.map(|place| (shard_of_key(&place.1, SHARDS), place.2.clone())).collect()
    }
}

pub fn text(reply: RecordReply) -> String {
    String::from_utf8(reply.body.to_vec()).expect("UTF-8")
}

pub fn put(json: &str) -> RecordChange<'_> {
    RecordChange::Put { form: Form::Json, value: json.as_bytes() }
}

pub fn patch<'a>(operations: &[(PathOperationKind, &'a str, Option<&'a str>)]) -> RecordChange<'a> {
    let operations = operations
        .iter()
        .map(|(kind, path, value)| PathOperation { kind: *kind, path: (*path).into(), value: *value })
        .collect();
    RecordChange::Patch { operations, parameters: "" }
}

/// The classic PersonInfo, with some more fields.
pub fn person() -> serde_json::Value {
    json!({ "type": "record", "name": "PersonInfo", "fields": [
        { "name": "name", "type": "string", "default": "" },
        { "name": "age", "type": "int", "default": 0 },
        { "name": "gender", "type": { "type": "enum", "name": "Gender", "symbols": ["Unknown", "Female", "Male"] } },
        { "name": "emails", "type": { "type": "array", "items": "string" } },
    ]})
}

pub const UNTOUCHED: &str = r#"{"name":"","age":0,"gender":"Unknown","emails":[]}"#;
