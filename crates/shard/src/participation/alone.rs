//! What a shard has committed alone, where shards fail alone: its coordinator may lose the news with the shard's memory, so
//! it is told again and again until it says that it has heard.

use std::collections::BTreeMap;

use millrace_base::{EntityKey, Lsn, TransactionId, Value, ValueKind};
use millrace_format::{Decision, Write};
use millrace_store::StoreError;

use crate::context::{Context, Rows};
use crate::peer::PeerBody;

/// Rows deleted in one entry.
const FORGET_AT_ONCE: usize = 1024;

/// A commit whose coordinator has not said that it has heard of it.
struct Unheard {
    lsn: Lsn,
    /// Made since the last tick: the coordinator has hardly had the time to answer.
    is_new: bool,
}

/// The transactions that a shard has committed alone.
pub(crate) struct Alone {
    /// Field: transaction id; value: `format::Decision`, with the coordinator as the one that has yet to hear.
    entity: EntityKey,
    unheard: BTreeMap<TransactionId, Unheard>,
    /// The coordinator knows; their rows can go.
    heard: Vec<TransactionId>,
}

impl Alone {
    /// Takes over what no coordinator is known to have heard.
    ///
    /// # Errors
    /// [`StoreError`] when the rows cannot be read.
    pub(super) fn recover(rows: &mut Rows) -> Result<Self, StoreError> {
        let (entity, mut unheard) = (EntityKey::internal("delegated", b""), BTreeMap::new());
        for (field, _) in rows.store().scan_fields(&entity, b"", None, usize::MAX)? {
            let id = TransactionId::from_bytes(&field)
                .ok_or_else(|| StoreError::Corrupt("a delegated commit's row cannot be read".to_owned()))?;
            unheard.insert(id, Unheard { lsn: Lsn::ZERO, is_new: false });
        }
        Ok(Self { entity, unheard, heard: Vec::new() })
    }

    pub(super) fn len(&self) -> usize {
        self.unheard.len()
    }

    /// The row of a commit. With the entry it is in, [`Alone::committed`] is to be called.
    pub(crate) fn row(&self, id: TransactionId) -> Write {
        let decision = Decision { participants: vec![id.coordinator] };
        let value = Some(Value::new(ValueKind::Bytes, &decision.encode()));
        Write { entity: self.entity.clone(), field: id.to_bytes()[..].into(), value }
    }

    /// A transaction is committed, in the entry `lsn`.
    pub(crate) fn committed(&mut self, id: TransactionId, lsn: Lsn) {
        self.unheard.insert(id, Unheard { lsn, is_new: true });
    }

    /// The commit of a transaction, if its coordinator may not have heard of it: the entry.
    pub(crate) fn entry_of(&self, id: TransactionId) -> Option<Lsn> {
        self.unheard.get(&id).map(|unheard| unheard.lsn)
    }

    /// The coordinator has heard, or does not wait for that.
    pub(crate) fn heard(&mut self, id: TransactionId) {
        if self.unheard.remove(&id).is_some() {
            self.heard.push(id);
        }
    }

    /// Nobody waits any more for the news of these.
    pub(super) fn heard_of_all(&mut self, is_it: impl Fn(&TransactionId) -> bool) {
        self.heard.extend(self.unheard.extract_if(.., |id, _| is_it(id)).map(|(id, _)| id));
    }

    /// Tells coordinators again that have not answered, and forgets what they have heard.
    pub(crate) fn look_after(&mut self, context: &mut Context<'_>) {
        for (id, unheard) in &mut self.unheard {
            if unheard.lsn <= context.rows.durable() && !std::mem::take(&mut unheard.is_new) {
                let message = context.rows.about(*id, PeerBody::CommittedAlone);
                context.outputs.peer(id.coordinator, message);
            }
        }
        while !context.is_read_only && !self.heard.is_empty() {
            let count = self.heard.len().min(FORGET_AT_ONCE);
            let entity = &self.entity;
            let write =
                |id: TransactionId| Write { entity: entity.clone(), field: id.to_bytes()[..].into(), value: None };
            let writes: Vec<Write> = self.heard.drain(..count).map(write).collect();
            context.append(writes);
        }
    }
}
