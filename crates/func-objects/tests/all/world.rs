//! A world in memory around the engine: one shard that runs transactions one after the other, without locks, log or
//! disk. A transaction takes effect as a whole or not at all. Messages wait until they are delivered.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_api::WRITE_HANDLER;
use millrace_api::objects::{
    AccessInput, BodyDigests, ObjectOperation, ObjectReply, ObjectRequest, PutInput, Refusal, Requester, Slices,
    Target, UploadInput, WrittenBody, moved_to,
};
use millrace_base::{Error, ErrorCode, Name, UnixMillis, Value, limits};
use millrace_func::{
    ActivationId, App, BuiltInCall, BuiltInHost, Engine, EntityRows, EntityScan, EntityVisitor, FetchRequest,
    HandlerId, HandlerKind, Host, LogLevel, Message, NestedCall, Offload, OperationId, Output, Program, ScanRequest,
    Service, Start, TurnResult, Visit,
};
use millrace_func_objects::ObjectsEngine;

/// Service, key, field.
type FieldAddress = (u16, Vec<u8>, Vec<u8>);

/// What a transaction has done so far.
#[derive(Clone, Default)]
struct Effects {
    writes: BTreeMap<FieldAddress, Option<Value>>,
    messages: Vec<Message>,
    released: Vec<u64>,
}

/// The service of handlers of other apps, that notifications go to.
pub const OUTSIDE: u16 = 99;

pub struct World {
    engine: ObjectsEngine,
    program: Program,
    services: Vec<Service>,
    pub stored: BTreeMap<FieldAddress, Value>,
    /// Messages with the time at which they are due.
    pub messages: Vec<(u64, Message)>,
    /// Messages to other apps.
    pub told: Vec<Message>,
    /// Numbers of bodies that were let go.
    pub released: BTreeSet<u64>,
    pub now_ms: u64,
    /// Whether the app is there that notifications go to.
    pub has_shop: bool,
    activations: u32,
    random: u64,
    bodies: u64,
    /// Happens before bodies are read the next time.
    pub before_read: Option<fn(&mut World)>,
    /// What is known of buckets' slices, right or not.
    pub known: BTreeMap<String, Slices>,
}

struct Frame<'a> {
    stored: &'a BTreeMap<FieldAddress, Value>,
    effects: &'a mut Effects,
    service: u16,
    key: Vec<u8>,
    is_query: bool,
    now_ms: u64,
    random: &'a mut u64,
    pending: Vec<(OperationId, NestedCall)>,
    /// Bodies that it waits for.
    reading: Option<(OperationId, Vec<u64>)>,
    operations: u32,
    program: Program,
    has_shop: bool,
}

fn refuse<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::Forbidden, "this world does not have it"))
}

impl Frame<'_> {
    fn place(&self, field: &[u8]) -> FieldAddress {
        (self.service, self.key.clone(), field.to_vec())
    }

    /// All fields of a service as the transaction sees them.
    fn all(&self, service: u16) -> BTreeMap<(Vec<u8>, Vec<u8>), Value> {
        let of = |place: &FieldAddress| (place.1.clone(), place.2.clone());
        let stored = self.stored.iter().filter(|(place, _)| place.0 == service);
        let mut all: BTreeMap<_, _> = stored.map(|(place, value)| (of(place), value.clone())).collect();
        for (place, value) in self.effects.writes.iter().filter(|(place, _)| place.0 == service) {
            match value {
                Some(value) => all.insert(of(place), value.clone()),
                None => all.remove(&of(place)),
            };
        }
        all
    }

    fn change(&mut self, field: &[u8], value: Option<Value>) {
        assert!(!self.is_query, "a query cannot change anything");
        assert!(field.len() <= limits::FIELD_BYTES);
        assert!(value.as_ref().is_none_or(|value| value.encoded().len() <= limits::VALUE_BYTES));
        let place = self.place(field);
        self.effects.writes.insert(place, value);
    }
}

impl BuiltInHost for Frame<'_> {
    fn visit_entities(&mut self, scan: &EntityScan, visit: &mut EntityVisitor<'_>) -> Result<(), Error> {
        let mut keys: BTreeMap<Vec<u8>, Vec<(Vec<u8>, Value)>> = BTreeMap::new();
        let is_wanted = |key: &[u8], field: &[u8]| {
            let is_behind = scan.behind_field.is_empty() || key != scan.from || field > &scan.behind_field[..];
            is_behind && if scan.is_prefix { field.starts_with(&scan.field) } else { *field == scan.field }
        };
        for ((key, field), value) in self.all(scan.service) {
            if key.starts_with(&scan.prefix) && key >= scan.from && is_wanted(&key, &field) {
                keys.entry(key).or_default().push((field, value));
            }
        }
        let mut from = Vec::new();
        for (key, mut fields) in keys {
            if key < from {
                continue;
            }
            fields.truncate(scan.fields_limit);
            match visit(EntityRows { key, fields }) {
                Visit::Next => {}
                Visit::Seek(to) => from = to,
                Visit::Stop => return Ok(()),
            }
        }
        Ok(())
    }
    fn release_body(&mut self, number: u64) -> Result<(), Error> {
        assert!(!self.is_query, "a query cannot change anything");
        self.effects.released.push(number);
        Ok(())
    }
    fn shard_count(&self) -> u16 {
        64
    }
    fn find(&mut self, [app, service, handler]: [&str; 3], bucket: Option<&str>) -> Result<HandlerId, Error> {
        if bucket != Some("photos") {
            return Err(Error::new(ErrorCode::Forbidden, "the app does not allow the bucket"));
        }
        match (app, service, handler) {
            ("shop", "photos", "count") => Err(Error::new(ErrorCode::InvalidInput, "photos.count is a query")),
            ("shop", "photos", "arrived" | "gone") if self.has_shop => {
                Ok(HandlerId { program: self.program, service: OUTSIDE, handler: 0 })
            }
            _ => Err(Error::new(ErrorCode::UnknownHandler, "there is no such handler")),
        }
    }
}

impl Host for Frame<'_> {
    fn built_in(&mut self) -> Result<&mut dyn BuiltInHost, Error> {
        Ok(self)
    }
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        let place = self.place(field);
        Ok(match self.effects.writes.get(&place) {
            Some(written) => written.as_ref(),
            None => self.stored.get(&place),
        })
    }
    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.change(field, Some(value));
        Ok(())
    }
    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        let was_there = self.get(field)?.is_some();
        self.change(field, None);
        Ok(was_there)
    }
    fn scan(&mut self, request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        let all = self.all(self.service).into_iter();
        let rows = all.filter(|((key, field), _)| {
            *key == self.key
                && field.starts_with(&request.prefix)
                && request.after.as_ref().is_none_or(|after| field > after)
        });
        Ok(rows.take(request.limit.min(limits::SCAN_ROWS)).map(|((_, field), value)| (field, value)).collect())
    }
    fn keys(&mut self, service: u16, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let keys: BTreeSet<Vec<u8>> = self.all(service).into_keys().map(|(key, _)| key).collect();
        let is_wanted = |key: &Vec<u8>| key.starts_with(prefix) && after.is_none_or(|after| key.as_slice() > after);
        Ok(keys.into_iter().filter(is_wanted).take(limit).collect())
    }
    fn operate(&mut self, _: BuiltInCall<'_>) -> Result<OperationId, Error> {
        refuse()
    }
    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        let operation = OperationId(self.operations);
        self.operations += 1;
        self.pending.push((operation, call));
        Ok(operation)
    }
    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        assert!(!self.is_query, "a query cannot change anything");
        assert!(self.effects.messages.len() < limits::MESSAGES_PER_CALL, "a transaction sends no more");
        self.effects.messages.push(message);
        Ok(None)
    }
    fn signal(&mut self, _invocation: &str, _name: &str, _payload: Bytes) -> Result<(), Error> {
        refuse()
    }
    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        let Offload::ReadBodies { numbers } = work else { return refuse() };
        self.operations += 1;
        let operation = OperationId(self.operations);
        self.reading = Some((operation, numbers));
        Ok(operation)
    }
    fn fetch(&mut self, _request: FetchRequest) -> Result<OperationId, Error> {
        refuse()
    }
    fn now(&self) -> UnixMillis {
        UnixMillis(self.now_ms)
    }
    fn random(&mut self) -> u64 {
        // Any bits will do that do not come twice.
        *self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *self.random
    }
    fn log(&mut self, _level: LogLevel, _line: &str) {}
}

thread_local! {
    static SLICES: Cell<u16> = const { Cell::new(1) };
}

/// Slices that a new bucket gets.
pub fn slices() -> usize {
    usize::from(SLICES.get())
}

/// Runs something in which every bucket has so many slices.
pub fn with_slices<T>(slices: u16, run: impl FnOnce() -> T) -> T {
    SLICES.set(slices);
    let result = run();
    SLICES.set(1);
    result
}

/// Services of the app, by index.
pub const BUCKET: u16 = 0;
pub const OBJECT: u16 = 1;
pub const UPLOAD: u16 = 2;

impl Default for World {
    fn default() -> Self {
        let engine = ObjectsEngine::default();
        let app = App::new(Name::new("objects").expect("a name"));
        let program = Program(0);
        engine.load(program, &app).expect("the app of objects");
        let services = engine.services(program);
        Self {
            engine,
            program,
            services,
            stored: BTreeMap::new(),
            messages: Vec::new(),
            told: Vec::new(),
            released: BTreeSet::new(),
            now_ms: 20_000 * DAY_MS + 1_000,
            has_shop: true,
            activations: 0,
            random: 1,
            bodies: 0,
            before_read: None,
            known: BTreeMap::new(),
        }
    }
}

pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What was answered, or the refusal.
pub type Answered = Result<ObjectReply, Refusal>;

impl World {
    /// Runs a call and all that it calls.
    fn frame(
        &mut self,
        effects: &mut Effects,
        id: HandlerId,
        (key, input): (&[u8], &[u8]),
        is_query: bool,
    ) -> Result<Bytes, Error> {
        let kind = self.services[usize::from(id.service)].handlers[usize::from(id.handler)].1;
        let is_query = is_query || kind == HandlerKind::Query;
        let activation = ActivationId(self.activations);
        self.activations += 1;
        let (mut pending, mut operations) = (Vec::new(), 0);
        let mut ended: Option<(OperationId, Result<Bytes, Error>)> = None;
        let mut before = effects.clone();
        loop {
            let mut frame = Frame {
                stored: &self.stored,
                effects,
                service: id.service,
                key: key.to_vec(),
                is_query,
                now_ms: self.now_ms,
                random: &mut self.random,
                pending,
                reading: None,
                operations,
                program: self.program,
                has_shop: self.has_shop,
            };
            let step = match ended.take() {
                None => self.engine.start(activation, Start::Handler { id, key, input }, &mut frame),
                Some((operation, result)) => self.engine.resume(activation, operation, result, &mut frame),
            };
            let reading;
            (pending, reading, operations) = (frame.pending, frame.reading, frame.operations);
            match step {
                TurnResult::Done(Ok(Output::Value(output))) => {
                    assert!(pending.is_empty(), "it ended while it had calls open");
                    return Ok(output);
                }
                TurnResult::Done(Ok(_)) => panic!("a handler gives a value"),
                TurnResult::Done(Err(error)) => {
                    // A call that failed has done nothing.
                    std::mem::swap(effects, &mut before);
                    return Err(error);
                }
                TurnResult::Waiting => {}
            }
            if let Some((operation, numbers)) = reading {
                if let Some(meanwhile) = self.before_read.take() {
                    meanwhile(self);
                }
                ended = Some((operation, self.read_bodies(&numbers)));
                continue;
            }
            assert!(!pending.is_empty(), "it waits for nothing");
            let (operation, call) = pending.remove(0);
            let result = self.frame(effects, call.handler, (&call.key, &call.input), is_query);
            ended = Some((operation, result));
        }
    }

    /// Each body's content is its number.
    fn read_bodies(&self, numbers: &[u64]) -> Result<Bytes, Error> {
        if numbers.iter().any(|number| self.released.contains(number)) {
            return Err(Error::new(ErrorCode::Internal, "a body is gone"));
        }
        Ok(numbers.iter().map(u64::to_string).collect::<String>().into())
    }

    /// Runs a transaction.
    pub fn call(&mut self, service: u16, handler: u16, key: &[u8], input: &[u8]) -> Result<Bytes, Error> {
        let mut effects = Effects::default();
        let id = HandlerId { program: self.program, service, handler };
        let output = self.frame(&mut effects, id, (key, input), false)?;
        for (place, value) in effects.writes {
            match value {
                Some(value) => self.stored.insert(place, value),
                None => self.stored.remove(&place),
            };
        }
        for number in effects.released {
            assert!(self.released.insert(number), "the body {number} is let go twice");
        }
        for message in effects.messages {
            if message.handler.service == OUTSIDE {
                self.told.push(message);
            } else {
                self.messages.push((self.now_ms + message.delay_ms, message));
            }
        }
        Ok(output)
    }

    /// Delivers the messages that are due, and those that come of them.
    pub fn deliver(&mut self) {
        for _ in 0..100_000 {
            let due = self.messages.iter().position(|(due_ms, _)| *due_ms <= self.now_ms);
            let Some(due) = due else { return };
            let (_, message) = self.messages.remove(due);
            let HandlerId { service, handler, .. } = message.handler;
            self.call(service, handler, &message.key, &message.input).expect("a message is handled");
        }
        panic!("messages have no end");
    }

    /// Asks for an operation as the node does: where it thinks that the object is, and then where it is. With the content of
    /// small objects.
    pub fn ask_with_body(&mut self, request: &ObjectRequest<'_>) -> Result<(ObjectReply, Bytes), Refusal> {
        for _ in 0..3 {
            let known = self.known.get(request.bucket).cloned().unwrap_or_default();
            let Target { service, handler, key } = request.target(&known);
            let place = |service: &Service| service.name.as_str() == request.target(&known).service;
            let service = self.services.iter().position(place).unwrap_or_else(|| panic!("{service}")) as u16;
            let error = match self.call(service, u16::from(handler == WRITE_HANDLER), &key, &request.to_bytes()) {
                Ok(output) => return Ok(ObjectReply::from_bytes(output).expect("a reply")),
                Err(error) => error,
            };
            let Some(slices) = moved_to(&error) else {
                return Err(Refusal::of(&error).unwrap_or_else(|| panic!("{:?}: {error:?}", request.operation)));
            };
            self.known.insert(request.bucket.to_owned(), slices);
        }
        panic!("the bucket is nowhere: {:?}", request.operation);
    }

    pub fn ask(&mut self, who: &str, bucket: &str, key: &str, operation: ObjectOperation) -> Answered {
        let id = if who.is_empty() { None } else { Some(who) };
        let requester = Requester { id, name: who, is_system: who == "system", ..Requester::default() };
        let request = ObjectRequest { requester, bucket, key, operation, body: Bytes::new() };
        self.ask_with_body(&request).map(|(reply, _)| reply)
    }

    /// A bucket of this user.
    pub fn bucket(&mut self, who: &str, bucket: &str) {
        let create = ObjectOperation::CreateBucket { access: AccessInput::None, object_lock: false, ownership: None };
        assert_eq!(self.ask(who, bucket, "", create), Ok(ObjectReply::Done));
        let slices = SLICES.get();
        if slices > 1 {
            self.spread(bucket, slices);
        }
    }

    /// Gives a bucket so many slices.
    pub fn spread(&mut self, bucket: &str, slices: u16) {
        assert_eq!(self.ask("system", bucket, "", ObjectOperation::SetSlices(slices)), Ok(ObjectReply::Done));
    }

    /// A content that a front has written: a body of its own.
    pub fn body(&mut self, length: u64) -> WrittenBody {
        self.bodies += 1;
        let md5 = u128::from(self.bodies).to_be_bytes();
        WrittenBody { number: Some(self.bodies), length, digests: BodyDigests { md5, checksums: Vec::new() } }
    }

    /// Puts an object with a body of its own.
    pub fn put(&mut self, who: &str, bucket: &str, key: &str, input: UploadInput) -> Answered {
        let body = self.body(10);
        let put = PutInput { input, body, ..PutInput::default() };
        self.ask(who, bucket, key, ObjectOperation::Put(Box::new(put)))
    }

    /// Checks what must always hold: bodies are referred to or let go, and usage is what is there.
    pub fn check_bodies(&mut self, bucket: &str, keys: &[&str], uploads: &[(String, String)]) {
        for number in 1..=self.bodies {
            let mut refers = false;
            for key in keys {
                let asked = ObjectOperation::RefersTo { part: None, number };
                refers |= self.ask("system", bucket, key, asked) == Ok(ObjectReply::RefersTo(true));
            }
            for (key, upload) in uploads {
                for part in 1..=5 {
                    let asked = ObjectOperation::RefersTo { part: Some((upload.clone(), part)), number };
                    refers |= self.ask("system", bucket, key, asked) == Ok(ObjectReply::RefersTo(true));
                }
            }
            assert_ne!(refers, self.released.contains(&number), "the body {number}");
        }
    }
}
