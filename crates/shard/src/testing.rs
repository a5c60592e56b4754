//! What the tests of a part need: rows in memory, outputs that are collected, an engine without a language.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use millrace_base::{Error, Lsn, Name, ShardId, UnixMillis};
use millrace_format::{Entry, MessageRecord};
use millrace_func::{
    ActivationId, App, Catalog, Engine, FetchRequest, HandlerId, HandlerKind, Host, Loaded, LogLevel, NestedCall,
    Offload, OperationId, Output, Program, Service, Start, TurnResult, WORKER_FILE, WorkerTurn,
};
use millrace_store::{MemoryCheckpoint, Store};

use crate::context::{Context, Rows};
use crate::options::ShardOptions;
use crate::peer::PeerMessage;
use crate::request::{Delivery, OffloadTicket, Reply, Sequence, Token};
use crate::results::ResultNames;
use crate::world::{ActivationIds, Entropy, Outputs, World};

/// The time at which every test begins.
pub(crate) const START: UnixMillis = UnixMillis(1_000_000);

/// What was emitted.
#[derive(Default)]
pub(crate) struct Collected {
    pub entries: usize,
    pub replies: Vec<(Token, Result<Reply, Error>)>,
    pub deliveries: Vec<(ShardId, Delivery)>,
    pub acknowledged: Vec<(ShardId, Sequence)>,
    pub peers: Vec<(ShardId, PeerMessage)>,
    pub released: Vec<(ShardId, u64)>,
    pub yields: usize,
}

impl Outputs for Collected {
    fn append(&mut self, _entry: &Entry<'_>) {
        self.entries += 1;
    }

    fn reply(&mut self, token: Token, result: Result<Reply, Error>) {
        self.replies.push((token, result));
    }

    fn deliver(&mut self, to: ShardId, delivery: Delivery) {
        self.deliveries.push((to, delivery));
    }

    fn acknowledge(&mut self, to: ShardId, _from: ShardId, sequence: Sequence) {
        self.acknowledged.push((to, sequence));
    }

    fn offload(&mut self, _ticket: OffloadTicket, _work: Offload) {}

    fn peer(&mut self, to: ShardId, message: PeerMessage) {
        self.peers.push((to, message));
    }

    fn fetch(&mut self, _ticket: OffloadTicket, _request: FetchRequest) {}

    fn exchange(&mut self, _ticket: OffloadTicket, _turn: WorkerTurn) {}

    fn goes_on(&mut self, _shard: ShardId) {
        self.yields += 1;
    }

    fn release_body(&mut self, shard: ShardId, number: u64) {
        self.released.push((shard, number));
    }

    fn log(&mut self, _app: &str, _service: &str, _level: LogLevel, _line: &str) {}
}

/// The options of shard 0 of `shard_count`.
pub(crate) fn options(shard_count: u16) -> ShardOptions {
    ShardOptions {
        shard: ShardId(0),
        shard_count,
        retention_ms: 60_000,
        result_names: ResultNames::Hashed([7; 16]),
        incarnation: 1,
        log_mates: Arc::default(),
        is_durable_at_once: false,
        hold_ms: None,
    }
}

/// A store without rows.
pub(crate) fn store() -> Store {
    crate::open_store(ShardId(0), Arc::new(MemoryCheckpoint::new()), 1).expect("a checkpoint in memory opens")
}

/// What a part is handed, without a shard.
pub(crate) struct Bench {
    pub rows: Rows,
    pub outputs: Collected,
    pub now: UnixMillis,
    pub is_read_only: bool,
    written_bytes: usize,
}

impl Bench {
    pub(crate) fn new(shard_count: u16) -> Self {
        let (rows, outputs) = (Rows::new(options(shard_count), store()), Collected::default());
        Self { rows, outputs, now: START, is_read_only: false, written_bytes: 0 }
    }

    pub(crate) fn context(&mut self) -> Context<'_> {
        let (now, is_read_only) = (self.now, self.is_read_only);
        Context::of(&mut self.rows, (now, is_read_only), &mut self.written_bytes, &mut self.outputs)
    }

    /// Everything that was appended is durable.
    pub(crate) fn sync(&mut self) {
        let lsn = self.rows.lsn();
        self.rows.advance_durable(lsn, &mut self.outputs);
    }
}

/// A message to `key`.
pub(crate) fn message(key: &str, due: UnixMillis) -> MessageRecord {
    MessageRecord {
        keeps_invocation_result: false,
        invocation: None,
        chosen_id: None,
        is_signal: false,
        was_set_aside: false,
        attempts: 0,
        due,
        app: "app".to_owned(),
        service: "counter".to_owned(),
        handler: "run".to_owned(),
        key: key.as_bytes().to_vec(),
        input: Bytes::from_static(b"1"),
    }
}

/// The place of the `index`-th message of the entry `lsn`.
pub(crate) fn sequence(lsn: u64, index: u16) -> Sequence {
    Sequence { lsn: Lsn(lsn), index }
}

/// An engine whose only handler calls itself on the entity that its input names, and gives what that gives.
pub(crate) struct CallEngine;

/// The handler of [`CallEngine`].
pub(crate) const RUN: HandlerId = HandlerId { program: Program(1), service: 0, handler: 0 };

impl Engine for CallEngine {
    fn load(&self, _program: Program, _app: &App) -> Result<(), Error> {
        Ok(())
    }

    fn services(&self, _program: Program) -> Vec<Service> {
        let name = |text: &str| Name::new(text).expect("a name");
        let handlers = [(name("run"), HandlerKind::Transaction)].into_iter().collect();
        vec![Service { name: name("counter"), handlers, routes: Vec::new(), schedules: Vec::new() }]
    }

    fn unload(&self, _program: Program) {}

    fn start(&self, _activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        match start {
            Start::Handler { id, input, .. } if !input.is_empty() && input != b"null" => {
                let called = host.call(NestedCall { handler: id, key: input.to_vec(), input: Bytes::new() });
                called.map_or_else(|error| TurnResult::Done(Err(error)), |_| TurnResult::Waiting)
            }
            _ => TurnResult::Done(Ok(Output::Value(Bytes::from_static(b"null")))),
        }
    }

    fn resume(
        &self,
        _activation: ActivationId,
        _: OperationId,
        result: Result<Bytes, Error>,
        _host: &mut dyn Host,
    ) -> TurnResult {
        TurnResult::Done(result.map(Output::Value))
    }

    fn cancel(&self, _activation: ActivationId) {}
}

struct NoEntropy;

impl Entropy for NoEntropy {
    fn draw(&self, nonce: u64, index: u32) -> u64 {
        nonce ^ u64::from(index)
    }

    fn draw_keyed(&self, key: u64, index: u32) -> u64 {
        key ^ u64::from(index)
    }
}

/// The world of a shard, with [`CallEngine`] or another one.
pub(crate) struct TestWorld {
    pub outputs: Collected,
    engine: Box<dyn Engine>,
    catalog: Catalog,
    activations: ActivationIds,
    next_nonce: u64,
}

impl TestWorld {
    pub(crate) fn new() -> Self {
        Self::with(CallEngine)
    }

    pub(crate) fn with(engine: impl Engine + 'static) -> Self {
        Self::of_app("app", engine)
    }

    pub(crate) fn of_app(name: &str, engine: impl Engine + 'static) -> Self {
        Self::of(App::new(Name::new(name).expect("a name")), engine)
    }

    /// The same for an app that runs on workers.
    pub(crate) fn on_workers(engine: impl Engine + 'static) -> Self {
        let mut app = App::new(Name::new("app").expect("a name"));
        app.files.insert(WORKER_FILE.to_owned(), Vec::new());
        Self::of(app, engine)
    }

    fn of(app: App, engine: impl Engine + 'static) -> Self {
        let mut catalog = Catalog::default();
        catalog.add(RUN.program, Loaded::new(&app, 1, engine.services(RUN.program)));
        catalog.activate(RUN.program);
        let (outputs, activations) = Default::default();
        Self { outputs, engine: Box::new(engine), catalog, activations, next_nonce: 1 }
    }

    pub(crate) fn world(&mut self) -> World<'_> {
        World {
            engine: &*self.engine,
            catalog: &self.catalog,
            activations: &mut self.activations,
            entropy: &NoEntropy,
            next_nonce: &mut self.next_nonce,
            outputs: &mut self.outputs,
            now: START,
            monotonic_ms: 0,
            is_read_only: false,
            is_behind: false,
            written_bytes: 0,
            cpu_ns: 0,
        }
    }
}

/// A key of each of the shards.
pub(crate) fn keys(shard_count: u16) -> BTreeMap<ShardId, String> {
    let mut keys = BTreeMap::new();
    for index in 0..1_000 {
        let key = format!("k{index}");
        keys.entry(millrace_base::shard_of_key(key.as_bytes(), shard_count)).or_insert(key);
    }
    keys
}
