//! What part of a transaction runs here: all of it, the part that decides, or what another shard called.
//!
//! While a transaction runs, a call to another shard may turn one into another. So this file asks which it is. What only a
//! coordinator or only a participant does takes that one's state.

use bytes::Bytes;
use millrace_base::{Error, ShardId};

use super::coordinate::{begin, take_back};
use super::participate::report_spent;
use super::transaction::Transaction;
use super::{Execution, ExecutionContext};
use crate::coordination::Coordination;
use crate::participation::Participation;
use crate::peer::{CallNumber, PeerCall};

/// What part of a transaction runs here.
pub(crate) enum Role {
    /// All of it, so far.
    Alone,
    /// The part that decides.
    Coordinator(Box<Coordination>),
    /// What another shard called.
    Participant(Box<Participation>),
}

impl Role {
    pub(super) fn is_alone(&self) -> bool {
        matches!(self, Role::Alone)
    }

    /// The state of the part that decides, if this is it.
    pub(super) fn coordination(&mut self) -> Option<&mut Coordination> {
        if let Role::Coordinator(coordination) = self { Some(coordination) } else { None }
    }

    /// The same for good.
    pub(super) fn into_coordination(self) -> Option<Box<Coordination>> {
        if let Role::Coordinator(coordination) = self { Some(coordination) } else { None }
    }

    /// The state of a part that another shard called, if this is one.
    pub(super) fn participation(&mut self) -> Option<&mut Participation> {
        if let Role::Participant(participation) = self { Some(participation) } else { None }
    }

    /// The same for good.
    pub(super) fn into_participation(self) -> Option<Box<Participation>> {
        if let Role::Participant(participation) = self { Some(participation) } else { None }
    }

    /// Whether other shards have to say something before the transaction goes on.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Role::Coordinator(coordination) if coordination.is_waiting())
    }

    /// Whether the transaction can begin again from here.
    pub(super) fn may_begin_again(&self) -> bool {
        match self {
            Role::Alone => true,
            Role::Coordinator(coordination) => !coordination.is_ending(),
            Role::Participant(_) => false,
        }
    }

    /// Tells another shard what its call to this one gave.
    ///
    /// # Panics
    /// When no other shard has a part in the transaction.
    pub(super) fn answer(
        &mut self,
        transaction: &mut Transaction,
        number: CallNumber,
        result: Result<Bytes, Error>,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        match self {
            Role::Participant(participation) => {
                report_spent(participation, transaction, context);
                let lingers = result.is_ok() && transaction.runs_for(number);
                participation.answer(number, result, lingers, &mut context.context());
            }
            Role::Coordinator(coordination) => coordination.answer(number, result, &mut context.context()),
            Role::Alone => unreachable!("another shard's call makes this one a coordinator or a participant"),
        }
    }

    /// Has other shards take back what calls did whose callers have failed since. Until they have,
    /// nothing goes on here: who caught the failure must not see what is being taken back.
    ///
    /// # Panics
    /// When calls to other shards are to be taken back of a transaction in which no other shard has a part.
    pub(super) fn take_back(&mut self, transaction: &mut Transaction, context: &mut ExecutionContext<'_, '_>) {
        let is_taking_back = match self {
            Role::Alone => {
                assert!(transaction.to_take_back.is_empty(), "only calls to other shards are taken back there");
                false
            }
            Role::Participant(participation) => {
                while let Some(number) = transaction.to_take_back.pop() {
                    participation.take_back(number, &mut context.context());
                }
                participation.is_taking_back()
            }
            Role::Coordinator(coordination) => {
                take_back(coordination, transaction, context);
                coordination.is_taking_back()
            }
        };
        if is_taking_back {
            transaction.put_off();
        }
    }
}

impl Execution {
    /// Makes a call to an entity of another shard, or has the coordinator make it. Whoever was alone coordinates from now on.
    pub(super) fn make_call_away(
        &mut self,
        role: &mut Role,
        transaction: &mut Transaction,
        (to, call): (ShardId, PeerCall),
        context: &mut ExecutionContext<'_, '_>,
    ) {
        if let Some(participation) = role.participation() {
            report_spent(participation, transaction, context);
            return participation.call(call, &mut context.context());
        }
        if role.is_alone() {
            *role = Role::Coordinator(self.coordinator.begin(transaction.nonce(), context.rows));
        }
        if let Some(coordination) = role.coordination() {
            let begin = begin(&transaction.origin, transaction.program, to, context.world);
            coordination.call(to, begin, call, &mut context.context());
        }
    }

    /// An attempt is over, or never began: other shards hear so of what it coordinated.
    pub(super) fn abandon(&mut self, role: Role, context: &mut ExecutionContext<'_, '_>) {
        if let Some(coordination) = role.into_coordination() {
            self.coordinator.abandon(&coordination, &mut context.context());
        }
    }
}
