//! What a shard remembers of the transactions that it coordinates.

use std::collections::{BTreeMap, BTreeSet};

use millrace_base::{EntityKey, Lsn, ShardId, TransactionId, Value, ValueKind};
use millrace_format::{Decision, Write};
use millrace_store::StoreError;

use super::Coordination;
use crate::context::{Context, Rows};
use crate::peer::PeerBody;

/// Decisions deleted in one entry.
const FORGET_AT_ONCE: usize = 1024;

/// A commit that somebody has yet to confirm.
struct Decided {
    lsn: Lsn,
    waiting: BTreeSet<ShardId>,
    /// Made since the last tick: its participants have hardly had the time to answer.
    is_new: bool,
}

/// The transactions that a shard coordinates, and the decisions that are not confirmed.
pub(crate) struct Coordinator {
    /// Field: transaction id; value: `format::Decision`.
    entity: EntityKey,
    numbered: u64,
    /// The nonce of each live transaction over several shards.
    live: BTreeMap<u64, u64>,
    decisions: BTreeMap<TransactionId, Decided>,
    /// Confirmed by everybody; their rows can go.
    confirmed: Vec<TransactionId>,
}

impl Coordinator {
    /// Takes over the commits that were not confirmed when the last run ended.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub(crate) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let (entity, mut decisions) = (EntityKey::internal("decision", b""), BTreeMap::new());
        for (field, value) in rows.store().scan_fields(&entity, b"", None, usize::MAX)? {
            let id = TransactionId::from_bytes(&field);
            let decision = Decision::decode(value.content());
            let (Some(id), Ok(decision)) = (id, decision) else {
                return Err(StoreError::Corrupt("a decision's row cannot be read".to_owned()));
            };
            let waiting = decision.participants.into_iter().collect();
            decisions.insert(id, Decided { lsn: Lsn::ZERO, waiting, is_new: false });
        }
        Ok(Self { entity, numbered: 0, live: BTreeMap::new(), decisions, confirmed: Vec::new() })
    }

    /// Decisions that somebody has yet to confirm.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.decisions.len()
    }

    /// An attempt of the transaction `nonce` reaches other shards from now on.
    pub(crate) fn begin(&mut self, nonce: u64, rows: &Rows) -> Box<Coordination> {
        self.numbered += 1;
        let number = self.numbered;
        self.live.insert(number, nonce);
        let incarnation = rows.options().incarnation;
        Box::new(Coordination::new(TransactionId { coordinator: rows.shard(), incarnation, number }))
    }

    /// The nonce of a live transaction of this start of the shard.
    pub(crate) fn nonce_of(&self, id: TransactionId, rows: &Rows) -> Option<u64> {
        let is_own = id.coordinator == rows.shard() && id.incarnation == rows.options().incarnation;
        is_own.then(|| self.live.get(&id.number).copied()).flatten()
    }

    /// An attempt has ended.
    pub(crate) fn end(&mut self, coordination: &Coordination) {
        self.live.remove(&coordination.id.number);
    }

    /// Gives up an attempt everywhere else.
    pub(crate) fn abandon(&mut self, coordination: &Coordination, context: &mut Context<'_>) {
        self.end(coordination);
        coordination.abandon(context);
    }

    /// The write that commits a transaction over several shards.
    pub(crate) fn decision_write(&self, id: TransactionId, participants: &[ShardId]) -> Write {
        let decision = Decision { participants: participants.to_vec() };
        Write {
            entity: self.entity.clone(),
            field: id.to_bytes()[..].into(),
            value: Some(Value::new(ValueKind::Bytes, &decision.encode())),
        }
    }

    /// A decision is in the log: tells the participants once it is durable.
    pub(crate) fn decided(&mut self, id: TransactionId, participants: &[ShardId], lsn: Lsn, context: &mut Context<'_>) {
        let waiting = participants.iter().copied().collect();
        self.decisions.insert(id, Decided { lsn, waiting, is_new: true });
        for shard in participants {
            let message = context.rows.about(id, PeerBody::Commit);
            context.tell_in_log_order(*shard, message, lsn);
        }
    }

    /// A participant confirms that it has applied its prepared writes. Says whether the transaction is committed, as far
    /// as somebody has yet to confirm that.
    pub(crate) fn confirmed(&mut self, from: ShardId, id: TransactionId) -> bool {
        let Some(decided) = self.decisions.get_mut(&id) else {
            return false;
        };
        decided.waiting.remove(&from);
        if decided.waiting.is_empty() {
            self.decisions.remove(&id);
            self.confirmed.push(id);
        }
        true
    }

    /// A participant asks what has become of a transaction. One that neither runs nor is
    /// committed is aborted, and nobody can commit it any more.
    pub(crate) fn answer_inquiry(&mut self, from: ShardId, id: TransactionId, context: &mut Context<'_>) {
        let body = match self.decisions.get(&id) {
            Some(decided) if decided.lsn <= context.rows.durable() => PeerBody::Commit,
            Some(_) => return, // It is told when the decision is durable.
            None if self.nonce_of(id, context.rows).is_some() => return, // It is told when it is decided.
            None => PeerBody::Abort { is_answered: false, heard: None },
        };
        let message = context.rows.about(id, body);
        context.outputs.peer(from, message);
    }

    /// A shard was opened anew, or hears this one by another way from now on. It may not have heard of what is decided.
    pub(crate) fn tell_again(&self, shard: ShardId, context: &mut Context<'_>) {
        let has_to_hear = |decided: &Decided| decided.lsn <= context.rows.durable() && decided.waiting.contains(&shard);
        let waiting: Vec<TransactionId> =
            self.decisions.iter().filter(|(_, decided)| has_to_hear(decided)).map(|(id, _)| *id).collect();
        for id in waiting {
            let message = context.rows.about(id, PeerBody::Commit);
            context.outputs.peer(shard, message);
        }
    }

    /// The nonces of the live attempts.
    pub(crate) fn nonces(&self) -> Vec<u64> {
        self.live.values().copied().collect()
    }

    /// Tells participants again that have not confirmed, and forgets what all have confirmed.
    pub(crate) fn look_after_decisions(&mut self, context: &mut Context<'_>) {
        for (id, decided) in &mut self.decisions {
            if decided.lsn > context.rows.durable() || std::mem::take(&mut decided.is_new) {
                continue;
            }
            for shard in &decided.waiting {
                let message = context.rows.about(*id, PeerBody::Commit);
                context.outputs.peer(*shard, message);
            }
        }
        while !context.is_read_only && !self.confirmed.is_empty() {
            let count = self.confirmed.len().min(FORGET_AT_ONCE);
            let entity = &self.entity;
            let write =
                |id: TransactionId| Write { entity: entity.clone(), field: id.to_bytes()[..].into(), value: None };
            let writes: Vec<Write> = self.confirmed.drain(..count).map(write).collect();
            context.append(writes);
        }
    }
}
