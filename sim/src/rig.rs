//! A few shards on one core without a disk, driven by hand: for tests of the shard itself.
//!
//! The log is a list in memory; [`Rig::make_durable`] says how much of it is durable, and
//! [`Rig::crash`] starts again from that part (`rig_logs.rs`).

use millrace_shard::Input;
use millrace_shard::question::{Question, ReadInvocation, ReadState};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use millrace_api::{RECORDS_APP, StateFields};
use millrace_base::{
    EntityKey, Error, ErrorCode, IdempotencyKey, Lsn, Name, ShardId, UnixMillis, Value, fingerprint, shard_of_key,
};
use millrace_format::{EntryRef, InvocationResult, ResultState, Write};
use millrace_func::{Answer, App, Catalog, FetchRequest, HeaderSource, Limits, RouteMatch};
use millrace_shard::{
    Delivery, InvocationId, Invoke, OffloadTicket, PeerMessage, Reply, ReplyTo, RequestInfo, ResultNames, RouteCall,
    Sequence, Shard, ShardOptions, Token,
};
use millrace_store::{Checkpoint, MemoryCheckpoint};
use serde_json::Value as Json;

use crate::core::{Core, Event, LoggedEntry};
use crate::engine::ScriptEngine;
use crate::script::Script;

/// The app of every rig.
pub const APP: &str = "app";

pub(crate) struct NoHeaders;

impl HeaderSource for NoHeaders {
    fn get(&self, _name: &str) -> Option<&str> {
        None
    }

    fn each(&self, _visit: &mut dyn FnMut(&str, &str)) {}
}

/// A route's request with a script as its body.
#[must_use]
pub fn route_call(info: RequestInfo, catalog: &Catalog, script: &Script) -> RouteCall {
    route_call_of("account", info, catalog, script)
}

fn route_call_of(service: &str, info: RequestInfo, catalog: &Catalog, script: &Script) -> RouteCall {
    let (program, service) = catalog.service(Some(APP), service).expect("every app has it");
    let route: RouteMatch = catalog.route(program, service, "POST", "/run").expect("every service has it");
    RouteCall {
        info,
        route,
        method: "POST".into(),
        path: "/run".into(),
        query: "".into(),
        headers: Arc::new(NoHeaders),
        body: script.json().into(),
        known: Vec::new(),
        scope: None,
    }
}

/// Shards without a disk.
pub struct Rig {
    pub core: Core,
    /// Every entry, in the order it was made.
    pub log: Vec<LoggedEntry>,
    /// What each request was answered.
    pub replies: BTreeMap<Token, Result<Reply, Error>>,
    pub deliveries: VecDeque<(ShardId, Delivery)>,
    pub acknowledgements: VecDeque<(ShardId, ShardId, Sequence)>,
    pub offloads: VecDeque<OffloadTicket>,
    /// Every request to a server outside, with what was durable in its shard when it was sent.
    pub fetches: Vec<(Lsn, FetchRequest)>,
    pub peers: VecDeque<(ShardId, PeerMessage)>,
    pub options: ShardOptions,
    /// Shards are not ticked when they have been started.
    pub is_unstarted: bool,
    /// A start finds no app, until [`Rig::deploy`].
    pub is_appless: bool,
    /// Of each shard, which log it writes.
    pub(crate) logs: Vec<u16>,
    checkpoints: BTreeMap<ShardId, Arc<MemoryCheckpoint>>,
    next_token: u64,
    limits: Limits,
}

impl Rig {
    /// `shard_count` shards with nothing in them, each with a log of its own.
    #[must_use]
    pub fn new(shard_count: u16) -> Self {
        Self::with_limits(shard_count, Limits::default())
    }

    /// As [`Rig::new`], for an app with its own limits.
    #[must_use]
    pub fn with_limits(shard_count: u16, limits: Limits) -> Self {
        Self::build((0..shard_count).collect(), limits)
    }

    /// As [`Rig::new`], but shards share logs: `logs` says of each shard which one it writes, from 0.
    #[must_use]
    pub fn with_logs(logs: &[u16]) -> Self {
        Self::build(logs.to_vec(), Limits::default())
    }

    fn build(logs: Vec<u16>, limits: Limits) -> Self {
        let shard_count = u16::try_from(logs.len()).expect("few shards");
        let options = ShardOptions {
            shard: ShardId(0),
            shard_count,
            retention_ms: 60_000,
            result_names: ResultNames::Hashed([7; 16]),
            is_durable_at_once: false,
            incarnation: 1,
            log_mates: Arc::default(),
            hold_ms: None,
        };
        let (engine, catalog) = ScriptEngine::with_app(APP, limits.clone());
        let mut rig = Self {
            core: Core::new(engine, catalog, shard_count, 1),
            log: Vec::new(),
            replies: BTreeMap::new(),
            deliveries: VecDeque::new(),
            acknowledgements: VecDeque::new(),
            offloads: VecDeque::new(),
            fetches: Vec::new(),
            peers: VecDeque::new(),
            options,
            is_unstarted: false,
            is_appless: false,
            logs,
            checkpoints: BTreeMap::new(),
            next_token: 1,
            limits,
        };
        rig.start_shards(&[]);
        rig
    }

    fn start_shards(&mut self, log: &[LoggedEntry]) {
        for shard in (0..self.options.shard_count).map(ShardId) {
            self.start_shard(shard, log);
        }
        if !self.is_unstarted {
            self.tick(0);
        }
    }

    pub(crate) fn start_shard(&mut self, shard: ShardId, log: &[LoggedEntry]) {
        let checkpoint = Arc::clone(self.checkpoints.entry(shard).or_default());
        let mut store = millrace_shard::open_store(shard, checkpoint, 1).expect("a checkpoint in memory opens");
        for entry in log.iter().filter(|entry| entry.shard == shard) {
            let mut bytes = Vec::new();
            entry.as_entry().encode(&mut bytes);
            store.replay(&EntryRef::decode(&bytes).expect("just encoded")).expect("entries replay");
        }
        let log_mates = Arc::new(self.log_mates(shard).collect());
        let options = ShardOptions { shard, log_mates, ..self.options.clone() };
        self.core.shards.insert(shard, Shard::new(options, store).expect("rows can be read"));
    }

    /// Deploys the app of records, whose types are the services that every app of a rig has. Comes
    /// back after no crash.
    pub fn add_records(&mut self) {
        self.core.engine.add_app(&mut self.core.catalog, RECORDS_APP, Limits::default());
    }

    /// Makes everything durable and writes it to the checkpoints, which outlive crashes.
    pub fn checkpoint(&mut self) {
        self.make_durable();
        for (id, shard) in &mut self.core.shards {
            let store = shard.store();
            store.begin_flush();
            while let Some(chunk) = store.next_flush_chunk(1 << 20) {
                self.checkpoints[id].write(*id, &chunk).expect("a checkpoint in memory takes everything");
                store.confirm_flush_chunk(&chunk);
            }
            while store.settle(usize::MAX) {}
        }
    }

    /// The process dies; of the entries only `survivors` are there when it starts again, and nothing
    /// is left that was in memory or on its way.
    pub(crate) fn restart_from(&mut self, survivors: Vec<LoggedEntry>) {
        self.options.incarnation += 1;
        self.log.clear();
        let (engine, catalog) = ScriptEngine::with_app(APP, self.limits.clone());
        engine.remember(&self.core.engine);
        let catalog = if self.is_appless { Catalog::default() } else { catalog };
        let mut core = Core::new(engine, catalog, self.options.shard_count, self.core.next_nonce);
        core.now = self.core.now;
        self.core = core;
        self.replies.clear();
        self.deliveries.clear();
        self.acknowledgements.clear();
        self.offloads.clear();
        self.peers.clear();
        self.start_shards(&survivors);
        self.log.splice(0..0, survivors);
    }

    /// Deploys the app with other settings.
    pub fn deploy_with(&mut self, change: impl FnOnce(&mut App)) {
        let mut app = ScriptEngine::app(APP, self.limits.clone());
        change(&mut app);
        self.core.engine.add(&mut self.core.catalog, &app, 1);
    }

    /// Deploys the app.
    pub fn deploy(&mut self) {
        self.core.engine.add_app(&mut self.core.catalog, APP, self.limits.clone());
    }

    /// Removes the app.
    pub fn undeploy(&mut self) {
        self.core.catalog.deactivate(APP);
    }

    /// Takes what the shards asked for.
    pub(crate) fn collect(&mut self) {
        self.log.append(&mut self.core.collected.entries);
        while let Some(event) = self.core.collected.events.pop_front() {
            match event {
                Event::Reply(token, result) => {
                    let earlier = self.replies.insert(token, result);
                    assert!(earlier.is_none(), "{token:?} was answered twice");
                }
                Event::Deliver(to, delivery) => self.deliveries.push_back((to, delivery)),
                Event::Acknowledge { to, from, sequence } => self.acknowledgements.push_back((to, from, sequence)),
                Event::Offload(ticket, _) => self.offloads.push_back(ticket),
                Event::Fetch(ticket, request) => {
                    let shard = ticket.shard.unwrap_or(ShardId(0));
                    let durable = self.core.shards[&shard].durable_lsn();
                    self.fetches.push((durable, request));
                    self.offloads.push_back(ticket);
                }
                Event::Route(_, to, call) => self.core.run_route(to, call),
                Event::Peer(to, message) => self.peers.push_back((to, message)),
            }
            self.log.append(&mut self.core.collected.entries);
        }
    }

    /// A token that nobody waits under yet.
    pub(crate) fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Asks a shard.
    pub fn ask(&mut self, shard: ShardId, question: impl Into<Question>) -> Token {
        let token = self.token();
        self.core.give(shard, Input::Ask(token, question.into()));
        self.collect();
        token
    }

    /// An idempotency key as a front takes it.
    ///
    /// # Errors
    /// The token of the request that was refused for it.
    pub(crate) fn checked(&mut self, key: Option<&str>) -> Result<Option<IdempotencyKey>, Token> {
        let key = key.map(|key| IdempotencyKey::new(key.as_bytes()).map(IdempotencyKey::kept)).transpose();
        key.map_err(|error| {
            let token = self.token();
            self.replies.insert(token, Err(error));
            token
        })
    }

    fn info(&mut self, idempotency_key: Option<IdempotencyKey>) -> RequestInfo {
        let (time, began_ms) = (self.core.now, self.core.monotonic_ms());
        RequestInfo { time, began_ms, nonce: self.core.take_nonce(), idempotency_key }
    }

    /// The shard of a key.
    #[must_use]
    pub fn shard_of(&self, key: &str) -> ShardId {
        shard_of_key(key.as_bytes(), self.options.shard_count)
    }

    /// A key that lives in `shard`.
    #[must_use]
    pub fn key_in(&self, shard: u16, name: &str) -> String {
        let keys = (0..).map(|number| format!("{name}{number}"));
        keys.filter(|key| self.shard_of(key) == ShardId(shard)).take(1).collect()
    }

    fn invoke_of(
        &mut self,
        target: (&str, &str, &str),
        script: &Script,
        idempotency_key: Option<IdempotencyKey>,
    ) -> Invoke {
        let (service, key, handler) = target;
        let (program, service) = self.core.catalog.service(Some(APP), service).expect("a known service");
        let (handler, _) = self.core.catalog.handler(program, service, handler).expect("a known handler");
        let input = Bytes::from(script.json());
        Invoke { info: self.info(idempotency_key), handler, key: key.as_bytes().into(), input }
    }

    /// Calls a handler: (service, key, handler).
    pub fn invoke(&mut self, target: (&str, &str, &str), script: &Script, idempotency_key: Option<&str>) -> Token {
        let key = match self.checked(idempotency_key) {
            Ok(key) => key,
            Err(token) => return token,
        };
        let invoke = self.invoke_of(target, script, key);
        let token = self.token();
        let shard = self.shard_of(target.1);
        // As the node does it.
        if idempotency_key.is_none()
            && let Some(result) = self.fast_read(target, script)
        {
            self.replies.insert(token, result.map(Reply::Value));
            return token;
        }
        self.core.give(shard, Input::Invoke(ReplyTo::of(token), invoke));
        self.collect();
        token
    }

    /// Asks a shard for the answer to a query without a transaction: (service, key, handler).
    pub fn fast_read(&mut self, target: (&str, &str, &str), script: &Script) -> Option<Result<Bytes, Error>> {
        let Invoke { handler, key, input, .. } = self.invoke_of(target, script, None);
        let shard = self.shard_of(target.1);
        let answer = self.core.with(shard, |shard, world| shard.fast_read(handler, &key, &input, world))?;
        Some(answer.map(Answer::into_value))
    }

    /// Calls the handler that may write.
    pub fn run(&mut self, service: &str, key: &str, script: Script) -> Token {
        self.invoke((service, key, "run"), &script, None)
    }

    /// Calls the handler that may write, with an idempotency key.
    pub fn run_keyed(&mut self, service: &str, key: &str, script: Script, idempotency_key: &str) -> Token {
        self.invoke((service, key, "run"), &script, Some(idempotency_key))
    }

    /// Calls the query.
    pub fn read(&mut self, service: &str, key: &str, script: Script) -> Token {
        self.invoke((service, key, "read"), &script, None)
    }

    /// Runs a route.
    pub fn route(&mut self, script: Script, idempotency_key: Option<&str>) -> Token {
        self.route_of("account", script, idempotency_key)
    }

    /// Runs a route of another service.
    pub fn route_of(&mut self, service: &str, script: Script, idempotency_key: Option<&str>) -> Token {
        let info = match self.checked(idempotency_key) {
            Ok(key) => self.info(key),
            Err(token) => return token,
        };
        let token = self.token();
        let call = route_call_of(service, info, &self.core.catalog, &script);
        self.core.run_route(ReplyTo::of(token), call);
        self.collect();
        token
    }

    /// Leaves what versions kept of a route when its key belonged to its service, in the shard of its first call.
    ///
    /// # Panics
    /// When the shard has no such number.
    pub fn write_old_route_invocation_result(
        &mut self,
        shard: ShardId,
        script: &Script,
        idempotency_key: &str,
        reply: &Json,
    ) {
        let reply = ResultState::Reply { status: 200, headers: Vec::new(), body: reply.to_string().into() };
        let invocation_result = InvocationResult {
            expires: self.core.now.plus(self.options.retention_ms),
            fingerprint: fingerprint(&[b"POST", b"/run", b"", script.json().as_bytes(), b"", b""]),
            result: reply,
        };
        let field = [b"r", APP.as_bytes(), b"\0account\0", idempotency_key.as_bytes()].concat();
        let entity = EntityKey::internal("outcome", b"");
        let writes = vec![Write { entity, field: field.into(), value: Some(invocation_result.to_value()) }];
        let store = self.core.shards.get_mut(&shard).expect("there").store();
        let entry = LoggedEntry { shard, lsn: store.lsn().next(), time: self.core.now, writes };
        store.apply(entry.lsn, entry.writes.clone()).expect("it is the next one");
        self.log.push(entry);
        self.make_durable();
    }

    /// Sends a call to be run later.
    pub fn send(
        &mut self,
        target: (&str, &str, &str),
        script: Script,
        delay_ms: u64,
        idempotency_key: Option<&str>,
    ) -> Token {
        let invoke = match self.checked(idempotency_key) {
            Ok(key) => self.invoke_of(target, &script, key),
            Err(token) => return token,
        };
        let token = self.token();
        let shard = self.shard_of(target.1);
        self.core.give(shard, Input::Send(ReplyTo::of(token), invoke, delay_ms));
        self.collect();
        token
    }

    /// Asks what became of an invocation.
    pub fn invocation(&mut self, id: InvocationId) -> Token {
        self.ask(id.shard, ReadInvocation { sequence: id.sequence, has_journal: true })
    }

    /// Reads committed state.
    pub fn state(&mut self, service: &str, key: &str, field: Option<&str>) -> Token {
        let name = |text: &str| Name::new(text).expect("a name");
        let entity = EntityKey::new(&name(APP), &name(service), key.as_bytes());
        let shard = self.shard_of(key);
        let fields = field.map_or(StateFields::All, |field| StateFields::One(field.as_bytes().into()));
        self.ask(shard, ReadState { entity, fields })
    }

    /// Starts messages that are due until none is, as a driver does.
    ///
    /// # Panics
    /// When that never ends.
    pub fn run_due(&mut self) {
        for _ in 0..100_000 {
            let (now, monotonic_ms) = (self.core.now, self.core.monotonic_ms());
            let is_due = |shard: &Shard| shard.is_due(now, monotonic_ms);
            let due: Vec<ShardId> =
                self.core.shards.iter().filter(|(_, shard)| is_due(shard)).map(|(id, _)| *id).collect();
            if due.is_empty() {
                return;
            }
            for shard in due {
                self.core.give(shard, Input::RunDue);
            }
            self.collect();
        }
        panic!("messages never come to an end");
    }

    /// Transactions that have let others have a turn go on. Says whether there were any.
    pub fn go_on(&mut self) -> bool {
        let yields = |shard: &Shard| shard.next_due() == Some(UnixMillis(0));
        let found: Vec<ShardId> =
            self.core.shards.iter().filter(|(_, shard)| yields(shard)).map(|(id, _)| *id).collect();
        for shard in &found {
            self.core.give(*shard, Input::RunDue);
        }
        self.collect();
        !found.is_empty()
    }

    /// Lets time pass.
    pub fn tick(&mut self, milliseconds: u64) {
        self.core.now = self.core.now.plus(milliseconds);
        let shards: Vec<ShardId> = self.core.shards.keys().copied().collect();
        for shard in shards {
            self.core.give(shard, Input::Tick);
        }
        self.collect();
        self.run_due();
    }

    /// The oldest work outside ends, with `null`.
    ///
    /// # Panics
    /// When nobody asked for any.
    pub fn finish_offload(&mut self) {
        let ticket = self.offloads.pop_front().expect("somebody waits");
        self.finish(ticket, Ok(Bytes::from_static(b"null")));
    }

    /// Some work outside ends.
    pub fn finish(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>) {
        self.core.offloaded(ticket, result);
        self.collect();
    }

    /// Hands one delivery over.
    pub fn deliver(&mut self, to: ShardId, delivery: Delivery) {
        self.core.give(to, Input::Deliver(delivery));
        self.collect();
    }

    /// Hands one acknowledgement over.
    pub fn acknowledge(&mut self, (to, from, sequence): (ShardId, ShardId, Sequence)) {
        self.core.give(to, Input::Acknowledged { from, sequence });
        self.collect();
    }

    /// Hands the oldest message about a transaction over. Says whether there was one.
    pub fn carry_peer(&mut self) -> bool {
        let Some((to, message)) = self.peers.pop_front() else {
            return false;
        };
        self.peer(to, message);
        true
    }

    /// Hands one message about a transaction over.
    pub fn peer(&mut self, to: ShardId, message: PeerMessage) {
        if !self.core.shards.contains_key(&to) {
            return; // Lost with its receiver.
        }
        self.core.give(to, Input::Peer(message));
        self.collect();
    }

    /// Hands over what shards say to each other, without making anything durable.
    pub fn carry_peers(&mut self) {
        while self.carry_peer() {}
    }

    /// Makes everything durable and hands everything over until nothing is left to do.
    pub fn run_to_rest(&mut self) {
        for _ in 0..10_000 {
            self.make_durable();
            if let Some((to, delivery)) = self.deliveries.pop_front() {
                self.deliver(to, delivery);
            } else if let Some(acknowledgement) = self.acknowledgements.pop_front() {
                self.acknowledge(acknowledgement);
            } else if self.carry_peer() {
            } else if !self.offloads.is_empty() {
                self.finish_offload();
            } else {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Comes to rest over a few ticks, as after a restart: what waits for a tick goes on.
    pub fn settle(&mut self) {
        for _ in 0..4 {
            self.run_to_rest();
            self.tick(1);
        }
        self.run_to_rest();
    }

    /// What a request was answered, if it was.
    #[must_use]
    pub fn reply(&self, token: Token) -> Option<&Result<Reply, Error>> {
        self.replies.get(&token)
    }

    /// The JSON a request was answered with.
    ///
    /// # Panics
    /// When it was not answered, or with an error.
    #[must_use]
    pub fn value(&self, token: Token) -> Json {
        let bytes = match self.reply(token) {
            Some(Ok(Reply::Value(bytes))) => bytes,
            Some(Ok(Reply::Route(reply))) => &reply.body,
            other => panic!("{token:?} has {other:?}"),
        };
        serde_json::from_slice(bytes).expect("replies are JSON")
    }

    /// The code a request was refused with.
    ///
    /// # Panics
    /// When it was not answered, or succeeded.
    #[must_use]
    pub fn error(&self, token: Token) -> ErrorCode {
        match self.reply(token) {
            Some(Err(error)) => error.code,
            other => panic!("{token:?} has {other:?}"),
        }
    }

    /// The id of a sent invocation.
    ///
    /// # Panics
    /// When the request was answered otherwise.
    #[must_use]
    pub fn sent(&self, token: Token) -> InvocationId {
        match self.reply(token) {
            Some(Ok(Reply::Sent(id))) => *id,
            other => panic!("{token:?} has {other:?}"),
        }
    }

    /// A field's committed value, durable or not.
    pub fn field(&mut self, service: &str, key: &str, field: &str) -> Json {
        self.field_of(APP, service, key, field)
    }

    /// The same of a record.
    pub fn record_field(&mut self, type_name: &str, id: &str, field: &str) -> Json {
        self.field_of(RECORDS_APP, type_name, id, field)
    }

    fn field_of(&mut self, app: &str, service: &str, key: &str, field: &str) -> Json {
        let name = |text: &str| Name::new(text).expect("a name");
        let entity = EntityKey::new(&name(app), &name(service), key.as_bytes());
        let shard = self.shard_of(key);
        let store = self.core.shards.get_mut(&shard).expect("there").store();
        let value: Option<Value> = store.get(&entity, field.as_bytes()).expect("memory").cloned();
        value.map_or(Json::Null, |value| serde_json::from_slice(value.content()).expect("JSON"))
    }

    /// Rows of a bookkeeping entity in all shards.
    pub fn bookkeeping_rows(&mut self, entity: &'static str) -> usize {
        let entity = EntityKey::internal(entity, b"");
        let rows = |shard: &mut Shard| shard.store().scan_fields(&entity, b"", None, 100_000).expect("memory").len();
        self.core.shards.values_mut().map(rows).sum()
    }

    /// Asserts that nothing is held by anybody: no activation, no lock, no waiting transaction.
    ///
    /// # Panics
    /// When something is.
    pub fn assert_at_rest(&self) {
        assert_eq!(self.core.activations.live(), 0, "frame numbers were not given back");
        assert_eq!(self.core.engine.waiting_activations(), 0, "frames were forgotten in the engine");
        assert_eq!(self.core.unplaced_routes(), 0);
        for shard in self.core.shards.values() {
            let left = (
                shard.figures().waiting,
                shard.figures().locked_entities,
                shard.figures().held_replies,
                shard.figures().unfinished,
            );
            assert_eq!(left, (0, 0, 0, 0), "(waiting, locked, held, unfinished)");
        }
    }
}
