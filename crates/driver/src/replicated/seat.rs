//! One replica of one shard at this core: the shard's state while no shard runs over it, and what waits to be applied.

use std::collections::VecDeque;

use millrace_base::{Lsn, ShardId};
use millrace_format::EntryRef;
use millrace_replica::{
    Command, EntryId, EntryKind, Epoch, LogEntry, LogView, Nomination, Recovered, Replica, RoleName, Write,
};
use millrace_shard::{ShardClock, ShardOptions};
use millrace_store::{Store, StoreError};

use super::gate::Gate;
use super::still::Held;

/// A replica that this core is to host, as recovery has found it.
pub struct Hosted {
    /// Which shard.
    pub shard: ShardId,
    /// Its replica.
    pub replica: Replica,
    /// Its state up to some entry that is committed.
    pub store: Store,
    /// The entries after that one, all that the log holds.
    pub tail: Vec<LogEntry>,
    /// How the shard is opened here once this node owns it; its incarnation is the epoch. `None`: no shard runs over these
    /// rows. The platform proposes entries itself, and the replicas find their owner among themselves.
    pub options: Option<ShardOptions>,
}

/// See the module's documentation.
pub(crate) struct Seat {
    pub replica: Replica,
    pub options: Option<ShardOptions>,
    /// Where replicas nominate themselves.
    pub nomination: Option<Nomination>,
    /// `None` while a shard runs over it, and while it is being reopened.
    pub store: Option<Store>,
    /// Entries that are not both committed and durable here, and are not in the state. Of a shard that runs: not told.
    tail: VecDeque<LogEntry>,
    /// This node owns the shard in this epoch, and opens it when its state reflects this entry.
    pub to_open: Option<(Epoch, Lsn)>,
    /// The epoch in which the shard is open here.
    pub serving: Option<Epoch>,
    /// The time of the entries that this node makes where no shard runs. A shard that runs has its own.
    pub clock: Option<ShardClock>,
    /// What was committed at the last look, and for how long the entries behind it have waited. In nanoseconds.
    pub uncommitted: (Lsn, u64),
    /// The last epoch that the owner before has handed to this node. It held nothing locked when it let go.
    pub handed: Option<Epoch>,
    pub gate: Gate,
    /// What the shard has made while it [stands still](super::still).
    pub held: Option<Held>,
    /// For how long this owner has heard no majority of the replicas.
    pub silent_ns: u64,
    pub role: (RoleName, Epoch),
    /// Commands of inputs that came while the shard was borrowed.
    pub commands: Vec<Command>,
    /// A snapshot is being written over the rows: what the owner sends meanwhile counts as lost.
    pub is_installing: bool,
    /// A planted bug: followers apply what is durable here.
    pub applies_uncommitted: bool,
}

impl Seat {
    pub(crate) fn new(hosted: Hosted) -> Self {
        let Hosted { replica, store, tail, options, .. } = hosted;
        let role = (replica.role(), replica.promised().epoch);
        let nomination = options.is_none().then(Nomination::default);
        let tail = tail.into_iter().filter(|entry| entry.id.lsn > store.lsn()).collect();
        Self {
            replica,
            options,
            nomination,
            store: Some(store),
            tail,
            to_open: None,
            serving: None,
            clock: None,
            uncommitted: (Lsn::ZERO, 0),
            handed: None,
            gate: Gate::default(),
            held: None,
            silent_ns: 0,
            role,
            commands: Vec::new(),
            is_installing: false,
            applies_uncommitted: false,
        }
    }

    /// Everything up to here is committed and durable at this node.
    pub(crate) fn settled(&self) -> Lsn {
        let log = self.replica.log();
        if self.applies_uncommitted && self.serving.is_none() {
            return log.durable();
        }
        log.committed().min(log.durable())
    }

    /// A write has begun.
    pub(crate) fn note_write(&mut self, write: &Write) {
        match write {
            Write::Append(entries) => self.tail.extend(entries.iter().cloned()),
            Write::Cut { after } => {
                while self.tail.back().is_some_and(|entry| entry.id.lsn > *after) {
                    self.tail.pop_back();
                }
            }
            // The log holds nothing now. What it held behind that position was never committed.
            Write::Reset { .. } => self.tail.clear(),
            Write::Promise(_) | Write::CommitNote(_) => {}
        }
    }

    /// Applies what is committed and durable here. The state of a shard that runs reflects it already. Gives the last of it,
    /// if there is any.
    ///
    /// # Errors
    /// [`StoreError`] if an entry cannot be applied: it is not what the owner's shard has made.
    pub(crate) fn apply(&mut self) -> Result<Option<Lsn>, StoreError> {
        let up_to = self.settled();
        let is_open = self.serving.is_some() && self.store.is_none();
        let mut applied = None;
        while self.tail.front().is_some_and(|entry| entry.id.lsn <= up_to) && (is_open || self.store.is_some()) {
            let Some(entry) = self.tail.pop_front() else { break };
            if let Some(store) = &mut self.store {
                apply_entry(store, entry.id.lsn, entry.kind, &entry.bytes)?;
            }
            applied = Some(entry.id.lsn);
        }
        Ok(applied)
    }

    /// Begins anew as a replica that has lost everything. Gives the write that says so.
    pub(crate) fn begin_empty(&mut self, store: Store, now_ns: u64, nonce: u64) -> Write {
        let set = self.replica.log().set().clone();
        let recovered = Recovered {
            promised: self.replica.promised(),
            log: LogView::new(EntryId::ZERO, Lsn::ZERO, set.clone()),
            is_whole: false,
        };
        let settings = self.replica.settings().clone();
        self.replica = Replica::start(self.replica.me(), settings, now_ns, nonce, recovered);
        self.tail.clear();
        self.commands.clear();
        self.to_open = None;
        self.store = Some(store);
        self.is_installing = false;
        Write::Reset { at: EntryId::ZERO, set_lsn: Lsn::ZERO, set }
    }

    /// The state was opened again from what was committed and durable. Says whether what follows it is here.
    pub(crate) fn take_store(&mut self, store: Store) -> bool {
        let lsn = store.lsn();
        self.tail.retain(|entry| entry.id.lsn > lsn);
        self.store = Some(store);
        let next = self.tail.front().map_or(self.replica.log().last().lsn.next(), |entry| entry.id.lsn);
        next == lsn.next() || lsn > self.replica.log().last().lsn
    }
}

/// Applies a committed entry of a replica's log to a shard's state. What the state has already is passed over.
///
/// # Errors
/// [`StoreError`] if it is not the next entry, or its bytes are not what a shard has made.
pub fn apply_entry(store: &mut Store, lsn: Lsn, kind: EntryKind, bytes: &[u8]) -> Result<(), StoreError> {
    if lsn <= store.lsn() {
        return Ok(());
    }
    let shard = store.shard();
    let corrupt = |text: String| StoreError::Corrupt(format!("entry {} of shard {}: {text}", lsn.0, shard.0));
    if lsn != store.lsn().next() {
        return Err(StoreError::OutOfOrder { expected: store.lsn().next(), found: lsn });
    }
    match kind {
        EntryKind::Data => {
            let decoded = EntryRef::decode(bytes).map_err(|error| corrupt(error.to_string()))?;
            if decoded.lsn != lsn {
                return Err(corrupt("its bytes name another position".to_owned()));
            }
            store.replay(&decoded)
        }
        // They take a position and change no row.
        EntryKind::EpochStart | EntryKind::ReplicaSet => store.apply(lsn, []),
    }
}
