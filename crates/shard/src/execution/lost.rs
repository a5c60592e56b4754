//! Transactions whose attempt on a worker was lost: they begin again, until their time is over.
//!
//! A worker that breaks off or breaks the protocol has said nothing that counts. So the whole transaction gives up what
//! it holds, waits a little, and begins again from its origin. A transaction that lost the race for an entity does the
//! same.

use std::collections::BTreeMap;

use millrace_base::{Error, ErrorCode, UnixMillis, limits};

use super::origin::Origin;
use super::transaction::Transaction;
use super::{Execution, ExecutionContext, Role};
use crate::world::World;

/// The first wait, and the longest.
const FIRST_WAIT_MS: u64 = 50;
const LONGEST_WAIT_MS: u64 = 1_000;

/// Transactions that are to begin again, by the time and their nonces.
pub(super) type LostTransactions = BTreeMap<(UnixMillis, u64), Lost>;

/// One of them.
pub(super) struct Lost {
    pub origin: Origin,
    /// How it was lost: what is answered if its time is over before it begins again.
    error: Error,
    ends: UnixMillis,
}

/// When a transaction that failed so begins again. `None`: it does not, for this is no lost attempt, or there is no time.
pub(super) fn begins_again(transaction: &Transaction, error: &Error, world: &World<'_>) -> Option<UnixMillis> {
    let origin = &transaction.origin;
    if !error.code.is_lost_attempt() || matches!(origin, Origin::Participation { .. } | Origin::Read { .. }) {
        return None;
    }
    // Each wait is about as long as all before it together.
    let elapsed_ms = world.now.0.saturating_sub(origin.time().0);
    let due = world.now.plus(elapsed_ms.clamp(FIRST_WAIT_MS, LONGEST_WAIT_MS));
    // A client that waits hears soon that no worker is there.
    let is_awaited = matches!(origin, Origin::Call(..) | Origin::Route(..));
    let is_away = is_awaited && error.code == ErrorCode::WorkerUnavailable;
    let ends = if is_away { origin.time().plus(limits::WORKER_AWAY_MS) } else { ends(transaction) };
    (due < ends).then_some(due)
}

/// When a transaction's time on workers is over.
fn ends(transaction: &Transaction) -> UnixMillis {
    transaction.origin.time().plus(transaction.for_workers_ms())
}

impl Execution {
    /// Gives up everything, and begins again later.
    pub(super) fn begin_again_later(
        &mut self,
        role: Role,
        transaction: Box<Transaction>,
        error: Error,
        context: &mut ExecutionContext<'_, '_>,
    ) {
        transaction.drop_activations(context.world);
        self.give_up_locks(&transaction);
        self.abandon(role, context);
        let due = begins_again(&transaction, &error, context.world);
        let ends = ends(&transaction);
        let origin = transaction.into_origin();
        match due {
            Some(due) => {
                self.lost.insert((due, origin.nonce()), Lost { origin, error, ends });
            }
            None => self.fail_origin(origin, error, context),
        }
    }

    /// Has those begin again whose time has come.
    pub(super) fn begin_lost_again(&mut self, context: &mut ExecutionContext<'_, '_>) {
        while let Some(entry) = self.lost.first_entry()
            && entry.key().0 <= context.world.now
        {
            let Lost { origin, error, ends } = entry.remove();
            if ends <= context.world.now {
                self.fail_origin(origin, error, context);
                continue;
            }
            // One that did not start has been answered, or waits for its entity.
            let _ = self.starts_again(origin, Vec::new(), Role::Alone, context);
        }
    }
}
