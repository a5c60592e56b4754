//! What a shard remembers of its parts in other shards' transactions.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, Error, ShardId, TransactionId, Value, ValueKind};
use millrace_format::{Prepared, Write};
use millrace_store::StoreError;

use super::alone::Alone;
use crate::context::{Context, Rows};
use crate::peer::{Begin, Ordered, PeerBody, PeerCall, ToParticipation};

/// Transactions of which only later messages have come so far. More are dropped: they fail by
/// their deadline.
const UNBEGUN: usize = 1024;

/// Prepared writes that are durable, or about to be, and not decided.
pub(crate) struct Undecided {
    /// Holds the locks.
    pub(super) nonce: u64,
    pub(super) held: Vec<EntityKey>,
    pub(super) prepared: Prepared,
}

impl Undecided {
    /// `nonce` holds the entities `held`.
    pub(crate) fn new(nonce: u64, held: Vec<EntityKey>, prepared: Prepared) -> Self {
        Self { nonce, held, prepared }
    }

    /// What is to be written, and whose entities are free then.
    pub(crate) fn into_parts(self) -> (Prepared, u64, Vec<EntityKey>) {
        (self.prepared, self.nonce, self.held)
    }
}

#[derive(Default)]
struct Unbegun {
    heard: Ordered<ToParticipation>,
    /// It came before the last tick.
    is_old: bool,
}

/// The participations of a shard.
pub(crate) struct Participations {
    /// Field: transaction id; value: `format::Prepared`.
    entity: EntityKey,
    /// The nonce of each one that runs, waits, or queues for its first entity.
    live: BTreeMap<TransactionId, u64>,
    undecided: BTreeMap<TransactionId, Undecided>,
    unbegun: BTreeMap<TransactionId, Unbegun>,
    /// Kept results that are not needed any more.
    forgotten: Vec<Box<[u8]>>,
    /// Aborted while the disk was full: their rows are to be deleted.
    leftover_rows: Vec<TransactionId>,
    /// What this shard has committed alone.
    alone: Alone,
}

/// What the first message of a transaction is.
#[expect(clippy::large_enum_variant, reason = "it is taken apart as soon as it is made")]
pub(crate) enum FirstMessage {
    /// An entity is to be held.
    Reserve(Begin, EntityKey, bool),
    /// A call is to run. What has been heard beside goes with it.
    Call(Begin, PeerCall, Ordered<ToParticipation>),
    /// Nothing begins.
    None,
}

impl Participations {
    /// Takes up what was not decided when the last run ended. What is [`Participations::held`] is to be held before
    /// anything else can run.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub(crate) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let (entity, mut undecided) = (EntityKey::internal("prepared", b""), BTreeMap::new());
        let found = rows.store().scan_fields(&entity, b"", None, usize::MAX)?;
        for (index, (field, value)) in (0u64..).zip(found) {
            let (Some(id), Ok(prepared)) = (TransactionId::from_bytes(&field), Prepared::decode(value.content()))
            else {
                return Err(StoreError::Corrupt("a prepared transaction's row cannot be read".to_owned()));
            };
            // Drivers count nonces from below.
            let nonce = u64::MAX - index;
            let held = entities_of(&prepared).into_iter().chain(prepared.reads.iter().cloned()).collect();
            undecided.insert(id, Undecided { nonce, held, prepared });
        }
        Ok(Self {
            entity,
            live: BTreeMap::new(),
            undecided,
            unbegun: BTreeMap::new(),
            forgotten: Vec::new(),
            leftover_rows: Vec::new(),
            alone: Alone::recover(rows)?,
        })
    }

    /// What this shard has committed alone.
    pub(crate) fn alone(&mut self) -> &mut Alone {
        &mut self.alone
    }

    /// The entities that undecided ones hold, each with the nonce that holds it, and whether it will be written.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&EntityKey, u64, bool)> {
        self.undecided.values().flat_map(|Undecided { nonce, held, prepared }| {
            held.iter().map(|entity| (entity, *nonce, !prepared.reads.contains(entity)))
        })
    }

    /// Those whose transactions are not decided yet, as far as this shard knows, or whose coordinators have not heard that
    /// they are committed.
    pub(crate) fn unfinished(&self) -> usize {
        self.undecided.len() + self.alone.len()
    }

    /// A shard was opened anew. Gives what runs of transactions that earlier openings of it coordinated: none of them will
    /// be committed that is not already.
    pub(crate) fn of_earlier(&mut self, shard: ShardId, incarnation: u64) -> Vec<TransactionId> {
        let is_earlier = |id: &TransactionId| id.coordinator == shard && id.incarnation != incarnation;
        self.unbegun.retain(|id, _| !is_earlier(id));
        self.alone.heard_of_all(is_earlier);
        self.live.keys().filter(|id| is_earlier(id)).copied().collect()
    }

    /// Asks a shard what has become of what is prepared here.
    pub(crate) fn inquire_of(&self, shard: ShardId, context: &mut Context<'_>) {
        for id in self.undecided.keys().filter(|id| id.coordinator == shard) {
            let message = context.rows.about(*id, PeerBody::Inquire);
            context.outputs.peer(shard, message);
        }
    }

    /// The entities that undecided ones will have written, if they are committed.
    pub(crate) fn undecided_writes(&self) -> impl Iterator<Item = &EntityKey> {
        let writes = self.undecided.values().flat_map(|undecided| &undecided.prepared.writes);
        writes.filter(|write| write.value.is_some()).map(|write| &write.entity)
    }

    /// Whether a transaction has prepared here.
    pub(crate) fn is_undecided(&self, id: TransactionId) -> bool {
        self.undecided.contains_key(&id)
    }

    /// The nonce of one that runs, waits, or queues for its first entity.
    pub(crate) fn nonce_of(&self, id: TransactionId) -> Option<u64> {
        self.live.get(&id).copied()
    }

    /// A participation begins.
    pub(crate) fn begin(&mut self, id: TransactionId, nonce: u64) {
        self.live.insert(id, nonce);
    }

    /// One that ran, waited, or queued for its first entity has ended, or has prepared.
    pub(crate) fn end(&mut self, id: TransactionId) -> Option<u64> {
        self.live.remove(&id)
    }

    /// Takes in a message of a transaction that does not run here. Says what it begins.
    pub(crate) fn first_message(&mut self, id: TransactionId, number: u32, message: ToParticipation) -> FirstMessage {
        let is_full = self.unbegun.len() >= UNBEGUN && number != 1;
        if self.is_undecided(id) || is_full {
            return FirstMessage::None;
        }
        let Unbegun { mut heard, is_old } = self.unbegun.remove(&id).unwrap_or_default();
        heard.add(number, message);
        match heard.next() {
            Some(ToParticipation::Reserve { begin, entity, is_exclusive }) => {
                FirstMessage::Reserve(begin, entity, is_exclusive)
            }
            Some(ToParticipation::Call(begin, call)) => FirstMessage::Call(begin, call, heard),
            // It begins with neither: a late message of a transaction that has ended here.
            Some(_) => FirstMessage::None,
            None => {
                self.unbegun.insert(id, Unbegun { heard, is_old });
                FirstMessage::None
            }
        }
    }

    /// The row of what a transaction prepares. With the entry it is in, [`Participations::prepared`] is to be called.
    pub(crate) fn row(&self, id: TransactionId, prepared: &Prepared) -> Write {
        let value = Some(Value::new(ValueKind::Bytes, &prepared.encode()));
        Write { entity: self.entity.clone(), field: id.to_bytes()[..].into(), value }
    }

    fn row_deletion(&self, id: TransactionId) -> Write {
        Write { entity: self.entity.clone(), field: id.to_bytes()[..].into(), value: None }
    }

    /// A transaction has prepared.
    pub(crate) fn prepared(&mut self, id: TransactionId, undecided: Undecided) {
        self.undecided.insert(id, undecided);
    }

    /// A transaction that had prepared is committed: its writes are to be made, with the deletion of their row.
    pub(crate) fn committed(&mut self, id: TransactionId) -> Option<(Undecided, Write)> {
        let undecided = self.undecided.remove(&id)?;
        Some((undecided, self.row_deletion(id)))
    }

    /// A transaction that had prepared is aborted: its row goes with the next [`Participations::delete_leftover_rows`].
    pub(crate) fn aborted(&mut self, id: TransactionId) -> Option<Undecided> {
        let undecided = self.undecided.remove(&id)?;
        self.leftover_rows.push(id);
        Some(undecided)
    }

    /// Nothing begins any more of what has been heard of a transaction so far.
    pub(crate) fn forget_unbegun(&mut self, id: TransactionId) {
        self.unbegun.remove(&id);
    }

    /// Deletes the rows of aborted ones. A row that stays over a restart is asked about again.
    pub(crate) fn delete_leftover_rows(&mut self, context: &mut Context<'_>) {
        if !context.is_read_only && !self.leftover_rows.is_empty() {
            let ids = std::mem::take(&mut self.leftover_rows);
            let writes = ids.into_iter().map(|id| self.row_deletion(id)).collect();
            context.append(writes);
        }
    }

    /// A workflow has noted the result of its call, which is kept here.
    pub(crate) fn forget_kept(&mut self, field: Box<[u8]>) {
        self.forgotten.push(field);
    }

    /// The kept results that are not needed any more.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Box<[u8]>> {
        std::mem::take(&mut self.forgotten)
    }

    /// Asks the coordinators of what has been here for a while whether it is still wanted: a coordinator that
    /// was restarted has forgotten what it had not decided.
    pub(crate) fn inquire(&mut self, context: &mut Context<'_>) {
        for id in self.live.keys().chain(self.undecided.keys()) {
            let message = context.rows.about(*id, PeerBody::Inquire);
            context.outputs.peer(id.coordinator, message);
        }
        self.unbegun.retain(|_, unbegun| !std::mem::replace(&mut unbegun.is_old, true));
    }

    /// The shard has stopped: whoever waits for it need not wait any longer.
    pub(crate) fn report_lost(&mut self, error: &Error, context: &mut Context<'_>) {
        let (live, undecided) = (std::mem::take(&mut self.live), std::mem::take(&mut self.undecided));
        self.unbegun.clear();
        for id in live.into_keys().chain(undecided.into_keys()) {
            let message = context.rows.about(id, PeerBody::Lost(error.clone()));
            context.outputs.peer(id.coordinator, message);
        }
    }
}

/// The entities that prepared writes are of, each once.
pub(crate) fn entities_of(prepared: &Prepared) -> Vec<EntityKey> {
    let mut entities: Vec<EntityKey> = prepared.writes.iter().map(|write| write.entity.clone()).collect();
    entities.sort();
    entities.dedup();
    entities
}
