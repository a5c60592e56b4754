//! What a shard is handed on every input: the engine, the catalog, the time, and where outputs go.

use millrace_base::{Error, ShardId, UnixMillis, limits};
use millrace_format::Entry;
use millrace_func::{ActivationId, Catalog, Engine, FetchRequest, Limits, LogLevel, Offload, Program, WorkerTurn};
use millrace_store::{ColdRead, ColdRows};
use slab::Slab;

use crate::peer::PeerMessage;
use crate::request::{Delivery, OffloadTicket, Reply, Sequence, Token};

/// Where a shard's outputs go. Called while an input is being handled, in order; an
/// implementation must not call back into the shard.
pub trait Outputs {
    /// Appends an entry to the shard's log. The shard expects `Input::Durable` later.
    fn append(&mut self, entry: &Entry<'_>);

    /// Answers a request.
    fn reply(&mut self, token: Token, result: Result<Reply, Error>);

    /// Carries a message to another shard of the node. Repeated until acknowledged.
    fn deliver(&mut self, to: ShardId, delivery: Delivery);

    /// Tells the sender `to` that everything up to `sequence` has durably arrived at `from`.
    fn acknowledge(&mut self, to: ShardId, from: ShardId, sequence: Sequence);

    /// Runs slow work off the core; its result comes back through `Input::Complete`.
    fn offload(&mut self, ticket: OffloadTicket, work: Offload);

    /// Carries a message about a transaction to another shard of the node. May be late, doubled or
    /// out of order; one that is lost delays its transaction, or fails it.
    fn peer(&mut self, to: ShardId, message: PeerMessage);

    /// Sends a request to a server outside; its response comes back through `Input::Complete`, as
    /// `Host::fetch` describes it.
    fn fetch(&mut self, ticket: OffloadTicket, request: FetchRequest);

    /// Reads rows that memory lacks: at once, or beside the shard where the disk has to be waited for. Those come through
    /// `Input::Rows`, once.
    fn read_rows(&mut self, read: ColdRead) -> Option<ColdRows> {
        Some(read.read())
    }

    /// Sends frames to a worker; its turn comes back through `Input::Complete`.
    fn exchange(&mut self, ticket: OffloadTicket, turn: WorkerTurn);

    /// Something of `shard` can go on at once, but others should have a turn first: `Input::RunDue` goes on with it.
    fn goes_on(&mut self, shard: ShardId);

    /// Nothing in `shard` refers to the body of this number any more, and that is durable.
    fn release_body(&mut self, _shard: ShardId, _number: u64) {}

    /// A line that a function wrote.
    fn log(&mut self, app: &str, service: &str, level: LogLevel, line: &str);
}

/// Unpredictable bits. `draw` gives the same answer for the same arguments for as long as the
/// process runs. It looks random to everybody who does not know its secret.
pub trait Entropy {
    /// The `index`-th 64 bits of an invocation.
    fn draw(&self, nonce: u64, index: u32) -> u64;

    /// The `index`-th 64 bits that belong to a route's idempotency key (its fingerprint): the same
    /// for as long as results are kept, across restarts.
    fn draw_keyed(&self, key: u64, index: u32) -> u64;
}

/// Hands out activation numbers, unique among the live activations of one engine.
#[derive(Debug, Default)]
pub struct ActivationIds {
    live: Slab<()>,
}

impl ActivationIds {
    /// A number no live activation has.
    pub(crate) fn take(&mut self) -> ActivationId {
        let index = self.live.insert(());
        ActivationId(u32::try_from(index).expect("far fewer frames than 2^32 fit in memory"))
    }

    /// Makes a number free again.
    pub(crate) fn give_back(&mut self, activation: ActivationId) {
        self.live.remove(activation.0 as usize);
    }

    /// How many activations are live.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }
}

/// Everything a shard needs from outside to handle one input.
pub struct World<'a> {
    /// Runs functions; shared by the shards of one core.
    pub engine: &'a dyn Engine,
    /// What names mean.
    pub catalog: &'a Catalog,
    /// Activation numbers of `engine`.
    pub activations: &'a mut ActivationIds,
    /// Unpredictable bits.
    pub entropy: &'a dyn Entropy,
    /// The nonce of the next invocation that the shard itself begins. The driver keeps the
    /// nonces of its cores apart.
    pub next_nonce: &'a mut u64,
    /// Where outputs go.
    pub outputs: &'a mut dyn Outputs,
    /// The time.
    pub now: UnixMillis,
    /// A clock that only goes forward, in milliseconds, read after all earlier inputs of the shard have been handled. It may
    /// stand still for shards that fail together.
    pub monotonic_ms: u64,
    /// Whether the disk is full: nothing may be written then.
    pub is_read_only: bool,
    /// Whether so much of what was written waits for the disk that messages and workflows wait, too. There is time for them, so
    /// drivers say so while there is still room for what requests write.
    pub is_behind: bool,
    /// What this input has written, names of fields and values; 0 at first.
    pub written_bytes: usize,
    /// CPU time that turns of transactions have used in this input, as the engine says; 0 at first.
    pub cpu_ns: u64,
}

impl World<'_> {
    /// A nonce for an invocation begun by the shard itself.
    pub(crate) fn take_nonce(&mut self) -> u64 {
        let nonce = *self.next_nonce;
        *self.next_nonce += 1;
        nonce
    }

    /// Names an attempt of the activation that has this nonce.
    pub(crate) fn attempt_token(&self, nonce: u64) -> [u8; 16] {
        // Far behind the bits that a function draws.
        let bits = [u32::MAX - 1, u32::MAX].map(|index| self.entropy.draw(nonce, index).to_be_bytes());
        let mut token = [0; 16];
        token[..8].copy_from_slice(&bits[0]);
        token[8..].copy_from_slice(&bits[1]);
        token
    }

    /// Whether this input has written so much that what is not part of it should wait for the next.
    pub(crate) fn is_input_large(&self) -> bool {
        self.written_bytes >= limits::WORKFLOW_BYTES_PER_INPUT
    }

    /// The limits of a program's app.
    pub(crate) fn limits(&self, program: Program) -> Limits {
        self.catalog.program(program).map(|loaded| loaded.limits.clone()).unwrap_or_default()
    }
}
