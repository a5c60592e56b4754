//! One simulated core: its shards, its engine, and what they ask for, collected.
//!
//! This is what a real driver does around shards, without threads, queues or files: every output
//! of a shard becomes an [`Event`] or a [`LoggedEntry`], and whoever drives the core decides when
//! and in which order they come true.

use millrace_shard::Input;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use millrace_base::{Error, Lsn, ShardId, UnixMillis};
use millrace_format::{Entry, EntryRef, Write};
use millrace_func::{Catalog, FetchRequest, LogLevel, Offload, RouteReply, WorkerTurn};
use millrace_shard::{
    ActivationIds, Delivery, Entropy, OffloadTicket, Outputs, PeerMessage, Reply, ReplyTo, RouteCall, Sequence, Shard,
    Token, UnplacedRoute, UnplacedStep, World,
};

use crate::engine::ScriptEngine;
use crate::random::mix;

/// Something a shard asked for.
#[derive(Clone)]
pub enum Event {
    /// Answer a request.
    Reply(Token, Result<Reply, Error>),
    /// Carry a message to another shard.
    Deliver(ShardId, Delivery),
    /// Tell a sender what has arrived.
    Acknowledge { to: ShardId, from: ShardId, sequence: Sequence },
    /// Do slow work.
    Offload(OffloadTicket, Offload),
    /// Send a request to a server outside.
    Fetch(OffloadTicket, FetchRequest),
    /// Run a route on the core of the shard it is for.
    Route(ShardId, ReplyTo<RouteReply>, RouteCall),
    /// Carry a message about a transaction to another shard.
    Peer(ShardId, PeerMessage),
}

/// An entry, kept with its owned writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEntry {
    pub shard: ShardId,
    pub lsn: Lsn,
    pub time: UnixMillis,
    pub writes: Vec<Write>,
}

impl LoggedEntry {
    /// An owned copy of what is in the log.
    ///
    /// # Panics
    /// When a write in it is of a later version.
    #[must_use]
    pub fn of(entry: &EntryRef<'_>) -> Self {
        let EntryRef { shard, lsn, time, writes } = entry;
        let writes = writes.iter().map(|write| write.to_write().expect("of this version")).collect();
        Self { shard: *shard, lsn: *lsn, time: *time, writes }
    }

    /// The entry as it is encoded.
    #[must_use]
    pub fn as_entry(&self) -> Entry<'_> {
        Entry { shard: self.shard, lsn: self.lsn, time: self.time, writes: &self.writes }
    }
}

/// What shards have asked for and nobody has done yet.
#[derive(Default)]
pub struct Collected {
    pub events: VecDeque<Event>,
    pub entries: Vec<LoggedEntry>,
    pub lines: Vec<String>,
}

impl Outputs for Collected {
    fn append(&mut self, entry: &Entry<'_>) {
        let Entry { shard, lsn, time, writes } = *entry;
        self.entries.push(LoggedEntry { shard, lsn, time, writes: writes.to_vec() });
    }

    fn reply(&mut self, token: Token, result: Result<Reply, Error>) {
        assert_ne!(token, Token(u64::MAX), "messages are answered by nobody");
        self.events.push_back(Event::Reply(token, result));
    }

    fn deliver(&mut self, to: ShardId, delivery: Delivery) {
        self.events.push_back(Event::Deliver(to, delivery));
    }

    fn acknowledge(&mut self, to: ShardId, from: ShardId, sequence: Sequence) {
        self.events.push_back(Event::Acknowledge { to, from, sequence });
    }

    fn offload(&mut self, ticket: OffloadTicket, work: Offload) {
        self.events.push_back(Event::Offload(ticket, work));
    }

    fn peer(&mut self, to: ShardId, message: PeerMessage) {
        assert_ne!(to, message.from, "a shard does not write to itself");
        self.events.push_back(Event::Peer(to, message));
    }

    fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest) {
        self.events.push_back(Event::Fetch(ticket, request));
    }

    fn exchange(&mut self, _ticket: OffloadTicket, _turn: WorkerTurn) {
        unreachable!("no simulated app has workers")
    }

    fn goes_on(&mut self, _shard: ShardId) {} // `Shard::next_due` says so, too.

    fn log(&mut self, app: &str, service: &str, _level: LogLevel, line: &str) {
        self.lines.push(format!("{app}/{service}: {line}"));
    }
}

/// Unpredictable bits that one seed decides.
pub struct SimEntropy(pub u64);

impl Entropy for SimEntropy {
    fn draw(&self, nonce: u64, index: u32) -> u64 {
        mix(mix(self.0 ^ nonce).wrapping_add(u64::from(index)))
    }

    fn draw_keyed(&self, key: u64, index: u32) -> u64 {
        mix(mix(!self.0 ^ key).wrapping_add(u64::from(index)))
    }
}

/// One core.
pub struct Core {
    pub engine: ScriptEngine,
    pub catalog: Catalog,
    pub activations: ActivationIds,
    pub entropy: SimEntropy,
    pub next_nonce: u64,
    pub now: UnixMillis,
    /// By how much the clock was set back.
    set_back_ms: u64,
    pub is_read_only: bool,
    pub shards: BTreeMap<ShardId, Shard>,
    pub collected: Collected,
    shard_count: u16,
    unplaced: BTreeMap<u64, UnplacedRoute>,
    /// Routes that began here, went to a shard here and still await work begun before.
    adopted: BTreeMap<u64, ShardId>,
}

impl Core {
    /// A core without shards. `first_nonce` keeps its nonces apart from other cores'.
    #[must_use]
    pub fn new(engine: ScriptEngine, catalog: Catalog, shard_count: u16, first_nonce: u64) -> Self {
        Self {
            engine,
            catalog,
            activations: ActivationIds::default(),
            entropy: SimEntropy(7),
            next_nonce: first_nonce,
            now: UnixMillis(1_000_000),
            set_back_ms: 0,
            is_read_only: false,
            shards: BTreeMap::new(),
            collected: Collected::default(),
            shard_count,
            unplaced: BTreeMap::new(),
            adopted: BTreeMap::new(),
        }
    }

    /// Somebody sets the clock back. The monotonic one goes on.
    pub fn set_back(&mut self, milliseconds: u64) {
        self.now = UnixMillis(self.now.0 - milliseconds);
        self.set_back_ms += milliseconds;
    }

    /// What the monotonic clock shows.
    #[must_use]
    pub fn monotonic_ms(&self) -> u64 {
        self.now.0 + self.set_back_ms
    }

    /// A nonce for a request that comes in here.
    pub fn take_nonce(&mut self) -> u64 {
        self.next_nonce += 1;
        self.next_nonce - 1
    }

    /// Routes that wait without a shard.
    #[must_use]
    pub fn unplaced_routes(&self) -> usize {
        self.unplaced.len()
    }

    /// Gives a shard of this core an input.
    ///
    /// # Panics
    /// When the shard is not here.
    pub fn with<R>(&mut self, shard: ShardId, input: impl FnOnce(&mut Shard, &mut World<'_>) -> R) -> R {
        let mut world = World {
            engine: &self.engine,
            catalog: &self.catalog,
            activations: &mut self.activations,
            entropy: &self.entropy,
            next_nonce: &mut self.next_nonce,
            outputs: &mut self.collected,
            now: self.now,
            monotonic_ms: self.now.0 + self.set_back_ms,
            is_read_only: self.is_read_only,
            is_behind: false,
            written_bytes: 0,
            cpu_ns: 0,
        };
        input(self.shards.get_mut(&shard).expect("the shard is on this core"), &mut world)
    }

    /// Gives a shard an input.
    pub fn give(&mut self, shard: ShardId, input: Input) {
        self.with(shard, |shard, world| shard.handle(input, world));
    }

    /// A shard's memory is lost.
    ///
    /// # Panics
    /// When the shard is not here.
    pub fn give_up(&mut self, shard: ShardId) {
        let shard = self.shards.remove(&shard).expect("the shard is on this core");
        self.without_shard(|world| shard.give_up(world));
    }

    fn without_shard<R>(&mut self, input: impl FnOnce(&mut World<'_>) -> R) -> R {
        input(&mut World {
            engine: &self.engine,
            catalog: &self.catalog,
            activations: &mut self.activations,
            entropy: &self.entropy,
            next_nonce: &mut self.next_nonce,
            outputs: &mut self.collected,
            now: self.now,
            monotonic_ms: self.now.0 + self.set_back_ms,
            is_read_only: self.is_read_only,
            is_behind: false,
            written_bytes: 0,
            cpu_ns: 0,
        })
    }

    /// Runs a route from its beginning.
    pub fn run_route(&mut self, to: ReplyTo<RouteReply>, call: RouteCall) {
        let shard_count = self.shard_count;
        let step = self.without_shard(|world| UnplacedRoute::start(to, call, shard_count, world));
        self.route_stepped(step);
    }

    fn route_stepped(&mut self, step: UnplacedStep) {
        match step {
            UnplacedStep::Done(token, result) => self.collected.reply(token, result),
            UnplacedStep::Waiting(unplaced) => {
                self.unplaced.insert(unplaced.nonce(), unplaced);
            }
            UnplacedStep::Coordinator(unplaced, shard) if self.shards.contains_key(&shard) => {
                if unplaced.awaits_offload() {
                    self.adopted.insert(unplaced.nonce(), shard);
                }
                self.give(shard, Input::Adopt(unplaced));
            }
            UnplacedStep::Coordinator(unplaced, shard) => {
                if let Some((to, call)) = self.without_shard(|world| unplaced.cancel(world)) {
                    self.collected.events.push_back(Event::Route(shard, to, call));
                }
            }
        }
    }

    /// Slow work that somebody here waits for, or has waited for, has ended.
    pub fn offloaded(&mut self, ticket: OffloadTicket, result: Result<Bytes, Error>) {
        let adopted = self.adopted.get(&ticket.nonce).copied();
        if let Some(shard) = ticket.shard {
            self.give(shard, Input::Complete(ticket, result));
        } else if self.unplaced.get(&ticket.nonce).is_some_and(|unplaced| unplaced.awaits(&ticket)) {
            let unplaced = self.unplaced.remove(&ticket.nonce).expect("just looked at");
            let step =
                self.without_shard(|world| unplaced.complete(ticket.activation, ticket.operation, result, world));
            self.route_stepped(step);
        } else if let Some(shard) = adopted {
            self.give(shard, Input::Complete(ticket, result));
        }
    }
}
