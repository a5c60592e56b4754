//! What a part is handed with every input: the shard's rows, and where its outputs go.
//!
//! [`Rows`] is the state that outlives a crash: the store, how much of the log is durable, and what
//! waits for more of it to be. [`Context`] adds the input's own: the outputs, the time, and whether
//! the disk is full. A part reads rows, appends entries and emits outputs through it, and reaches
//! nothing else of the shard.

mod held;

use millrace_base::{EntityKey, Error, ErrorCode, Lsn, ShardId, TransactionId, UnixMillis, shard_of_key};
use millrace_format::{DecodeError, Entry, Write};
use millrace_store::{Store, StoreError};

use crate::clock::ShardClock;
use crate::options::ShardOptions;
use crate::peer::{PeerBody, PeerMessage};
use crate::request::{Reply, Token};
use crate::typed_reply::{ReplyTo, TypedReply};
use crate::world::{Outputs, World};
use held::{Held, Leaving};

pub(crate) fn store_failed(error: &StoreError) -> Error {
    Error::new(ErrorCode::Internal, format!("the store failed: {error}"))
}

pub(crate) fn decode_failed(error: &DecodeError) -> Error {
    Error::new(ErrorCode::Internal, format!("the shard's bookkeeping cannot be read: {error}"))
}

pub(crate) fn read_only() -> Error {
    Error::new(ErrorCode::ReadOnly, "the disk is full: reads go on, writes are refused until space returns")
}

/// What a shard that has stopped answers everybody.
pub(crate) fn stopped_for(reason: &str) -> Error {
    let message = format!(
        "the shard stopped: {reason}; calls not yet answered may or may not have taken effect, \
         repeat them with their Idempotency-Key after a restart"
    );
    Error::new(ErrorCode::ShardStopped, message)
}

/// A shard's rows, its position in its log, and the outputs that wait for the log.
pub(crate) struct Rows {
    options: ShardOptions,
    store: Store,
    durable: Lsn,
    held: Held,
    clock: ShardClock,
}

impl Rows {
    /// Rows of a recovered store. All of them count as durable, because recovery has synced the log.
    pub(crate) fn new(options: ShardOptions, store: Store) -> Self {
        let durable = store.lsn();
        let held = Held::new(options.shard);
        let clock = ShardClock::after(store.time());
        Self { options, store, durable, held, clock }
    }

    /// Which shard this is.
    pub(crate) fn shard(&self) -> ShardId {
        self.options.shard
    }

    pub(crate) fn options(&self) -> &ShardOptions {
        &self.options
    }

    /// The shard of a key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> ShardId {
        shard_of_key(key, self.options.shard_count)
    }

    /// The shard's clock.
    pub(crate) fn clock(&self) -> &ShardClock {
        &self.clock
    }

    pub(crate) fn clock_mut(&mut self) -> &mut ShardClock {
        &mut self.clock
    }

    /// The rows themselves. Parts only read them: what is written goes through [`Context::append`].
    pub(crate) fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// The newest entry.
    pub(crate) fn lsn(&self) -> Lsn {
        self.store.lsn()
    }

    /// The entry that is made next.
    pub(crate) fn next_lsn(&self) -> Lsn {
        self.store.lsn().next()
    }

    /// The newest entry that wrote to `entity`.
    pub(crate) fn entity_lsn(&self, entity: &EntityKey) -> Lsn {
        self.store.entity_lsn(entity)
    }

    /// Whether a read of an entity would wait for the disk.
    pub(crate) fn is_cold(&self, entity: &EntityKey) -> bool {
        self.store.is_cold(entity)
    }

    /// Everything up to here is durable.
    pub(crate) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Up to where what `shard` is told counts as durable: everything, if the two share a log. What
    /// `shard` writes because of it comes later in that log, and is not durable without it.
    pub(crate) fn durable_towards(&self, shard: ShardId) -> Lsn {
        if self.options.log_mates.contains(&shard) { self.store.lsn() } else { self.durable }
    }

    /// A message of this shard that only names a transaction.
    pub(crate) fn about(&self, transaction: TransactionId, body: PeerBody) -> PeerMessage {
        PeerMessage { from: self.options.shard, transaction, body }
    }

    /// How many outputs wait for the log.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Everything up to `lsn` is durable: what waited for it leaves.
    ///
    /// # Panics
    /// When `lsn` is not an entry of this shard: the driver mixed up two logs.
    pub(crate) fn advance_durable(&mut self, lsn: Lsn, outputs: &mut dyn Outputs) {
        assert!(lsn <= self.store.lsn(), "nothing is durable before it is made");
        self.durable = self.durable.max(lsn);
        self.held.durable(self.durable, outputs);
    }

    /// The shard has stopped: whoever waits for the log is answered with `error`.
    pub(crate) fn fail_held(&mut self, error: &Error, outputs: &mut dyn Outputs) {
        self.held.fail(error, outputs);
    }

    /// The context of one step of an input.
    pub(crate) fn context<'a>(&'a mut self, world: &'a mut World<'_>) -> Context<'a> {
        Context {
            rows: self,
            now: world.now,
            monotonic_ms: world.monotonic_ms,
            is_read_only: world.is_read_only,
            written_bytes: &mut world.written_bytes,
            outputs: world.outputs,
        }
    }
}

/// What a part may use: rows to read, entries to append, outputs to emit, the time.
pub(crate) struct Context<'a> {
    pub rows: &'a mut Rows,
    pub now: UnixMillis,
    /// For intervals: see [`World::monotonic_ms`].
    pub monotonic_ms: u64,
    /// Whether the disk is full: nothing may be appended then.
    pub is_read_only: bool,
    written_bytes: &'a mut usize,
    pub outputs: &'a mut dyn Outputs,
}

impl Context<'_> {
    /// Makes `writes` the shard's next entry: in the log's hands and in the store, together.
    ///
    /// # Panics
    /// When the store cannot apply them: it would then contradict the log. The driver stops the
    /// shard; a restart recovers it from the log.
    pub(crate) fn append(&mut self, writes: Vec<Write>) -> Lsn {
        let lsn = self.rows.next_lsn();
        let entry = Entry { shard: self.rows.options.shard, lsn, time: self.now, writes: &writes };
        let written = |write: &Write| write.field.len() + write.value.as_ref().map_or(0, |value| value.content().len());
        *self.written_bytes += writes.iter().map(written).sum::<usize>();
        self.outputs.append(&entry);
        self.rows.store.apply(lsn, writes).expect("the store applies what the log has taken");
        self.rows.store.note_time(self.now);
        if self.rows.options.is_durable_at_once {
            self.rows.durable = lsn;
        }
        lsn
    }

    /// Appends `writes`, if there are any.
    pub(crate) fn append_any(&mut self, writes: Vec<Write>) {
        if !writes.is_empty() {
            self.append(writes);
        }
    }

    /// Answers a request once everything up to `depends_on` is durable.
    pub(crate) fn reply(&mut self, token: Token, result: Result<Reply, Error>, depends_on: Lsn) {
        let durable = self.rows.durable;
        self.rows.held.release(Leaving::Reply(token, result), depends_on, durable, self.outputs);
    }

    /// The same for a request whose reply has a type of its own.
    pub(crate) fn answer<T: TypedReply>(&mut self, to: ReplyTo<T>, result: Result<T, Error>, depends_on: Lsn) {
        self.reply(to.token(), result.map(TypedReply::into_reply), depends_on);
    }

    /// Answers that something is done, once the entry that did it is durable.
    pub(crate) fn answer_done(&mut self, to: ReplyTo<()>, done: Result<Lsn, Error>) {
        let depends_on = done.as_ref().map_or(Lsn::ZERO, |lsn| *lsn);
        self.answer(to, done.map(|_| ()), depends_on);
    }

    /// Says that nothing refers to these bodies any more, once everything up to `depends_on` is durable.
    pub(crate) fn release_bodies(&mut self, numbers: &[u64], depends_on: Lsn) {
        let durable = self.rows.durable;
        for number in numbers {
            self.rows.held.release(Leaving::ReleasedBody(*number), depends_on, durable, self.outputs);
        }
    }

    /// Tells another shard something once everything up to `depends_on` is durable.
    pub(crate) fn tell(&mut self, to: ShardId, message: PeerMessage, depends_on: Lsn) {
        let durable = self.rows.durable;
        self.rows.held.release(Leaving::Peer(to, message), depends_on, durable, self.outputs);
    }

    /// As [`Context::tell`], but at once if `to` writes to the log of this shard.
    pub(crate) fn tell_in_log_order(&mut self, to: ShardId, message: PeerMessage, depends_on: Lsn) {
        let durable = self.rows.durable_towards(to);
        self.rows.held.release(Leaving::Peer(to, message), depends_on, durable, self.outputs);
    }
}

#[cfg(test)]
impl<'a> Context<'a> {
    /// The context of a test.
    pub(crate) fn of(
        rows: &'a mut Rows,
        (now, is_read_only): (UnixMillis, bool),
        written_bytes: &'a mut usize,
        outputs: &'a mut dyn Outputs,
    ) -> Self {
        Self { rows, now, monotonic_ms: now.0, is_read_only, written_bytes, outputs }
    }
}
