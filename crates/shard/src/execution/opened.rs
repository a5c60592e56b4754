//! Another shard was opened anew, or is heard by another way: what waits for what is lost is told at once.

use std::collections::BTreeSet;

use millrace_base::{ShardId, TransactionId};

use super::origin::Origin;
use super::start::deadline_ms;
use super::transaction::Transaction;
use super::{Execution, ExecutionContext, Role, Suspended, waited_too_long};
use crate::coordination::Coordination;
use crate::peer::PeerBody;

impl Execution {
    /// `shard` was opened anew, as `incarnation`. Its log is what it is: an earlier opening of it decides nothing any more,
    /// and what ran there is gone.
    pub(crate) fn peer_opened(&mut self, shard: ShardId, incarnation: u64, context: &mut ExecutionContext<'_, '_>) {
        for id in self.participations.of_earlier(shard, incarnation) {
            if let Some((_, transaction)) = self.end_participation(id) {
                transaction.drop_activations(context.world);
            }
        }
        self.participations.inquire_of(shard, &mut context.context());
        self.coordinator.tell_again(shard, &mut context.context());
        for nonce in self.coordinator.nonces() {
            self.participant_is_lost(nonce, (shard, Some(incarnation)), context);
        }
    }

    /// What was said to these shards, and by them, may not arrive for long; what is said from now on does. Transactions over
    /// them begin again. Each side asks the other what it has missed.
    pub(crate) fn takes_detour(&mut self, shards: &BTreeSet<ShardId>, context: &mut ExecutionContext<'_, '_>) {
        for shard in shards {
            self.participations.inquire_of(*shard, &mut context.context());
            self.coordinator.tell_again(*shard, &mut context.context());
            for nonce in self.coordinator.nonces() {
                self.participant_is_lost(nonce, (*shard, None), context);
            }
        }
    }

    /// A transaction has lost what a participant had, or has said, if that shard has a part in it.
    fn participant_is_lost(
        &mut self,
        nonce: u64,
        (shard, opened): (ShardId, Option<u64>),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if let Some(mut parked) = self.parked.remove(&nonce) {
            let is_lost = |one: &mut Box<Coordination>| one.loses(shard, opened, &mut context.context());
            match parked.away.take_if(is_lost) {
                Some(coordination) => {
                    self.coordinator.abandon(&coordination, &mut context.context());
                    self.begins_again(parked.origin, context);
                }
                None => drop(self.parked.insert(nonce, parked)),
            }
        } else if self.suspended.contains_key(&nonce) {
            let (mut coordination, transaction, deadline_ms) = self.take_coordinated(nonce);
            if coordination.loses(shard, opened, &mut context.context()) {
                return self.loses_attempt(&coordination, transaction, context);
            }
            if coordination.is_ending() {
                // It may have waited for that shard alone, which said that it broke and can confirm nothing any more.
                return self.go_on(coordination, transaction, deadline_ms, context);
            }
            let role = Role::Coordinator(coordination);
            self.suspended.insert(nonce, Suspended { role, transaction, deadline_ms });
        }
    }

    /// A participant can never commit this attempt, whatever its calls gave: the transaction starts again.
    pub(super) fn loses_attempt(
        &mut self,
        coordination: &Coordination,
        transaction: Box<Transaction>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        transaction.drop_activations(context.world);
        self.give_up_locks(&transaction);
        self.coordinator.abandon(coordination, &mut context.context());
        self.begins_again(transaction.into_origin(), context);
    }

    fn begins_again(&mut self, origin: Origin, context: &mut ExecutionContext<'_, '_>) {
        if deadline_ms(&origin, context.world) <= context.world.monotonic_ms {
            return self.fail_origin(origin, waited_too_long(), context);
        }
        // If it does not start, it has been answered, or has parked.
        drop(self.starts_again(origin, Vec::new(), Role::Alone, context));
    }

    /// A participant says that it has committed alone.
    pub(super) fn coordinator_heard_alone(
        &mut self,
        from: ShardId,
        id: TransactionId,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        let message = context.rows.about(id, PeerBody::Heard);
        context.world.outputs.peer(from, message);
        let Some(nonce) = self.coordinator.nonce_of(id, context.rows).filter(|nonce| !self.parked.contains_key(nonce))
        else {
            return; // It has heard that before, or the attempt was one of an earlier opening.
        };
        let (mut coordination, mut transaction, deadline_ms) = self.take_coordinated(nonce);
        transaction.is_kept_away |= coordination.heard_alone(from);
        self.go_on(coordination, transaction, deadline_ms, context);
    }
}
