//! Transactions whose attempt on a worker was lost: they begin again, until their time is over.
//!
//! A worker that breaks off or breaks the protocol has said nothing that counts. So the whole transaction gives up what
//! it holds, waits a little, and begins again from its origin. A transaction that lost the race for an entity does the
//! same.

use std::collections::BTreeMap;

use millrace_base::{Error, ErrorCode, limits};

use super::origin::Origin;
use super::transaction::Transaction;
use super::{Execution, ExecutionContext, Role};
use crate::world::World;

/// The first wait, and the longest.
const FIRST_WAIT_MS: u64 = 50;
const LONGEST_WAIT_MS: u64 = 1_000;

/// Transactions that are to begin again, by the monotonic clock and their nonces.
pub(super) type LostTransactions = BTreeMap<(u64, u64), Lost>;

/// One of them.
pub(super) struct Lost {
    pub origin: Origin,
    /// How it was lost: what is answered if its time is over before it begins again.
    error: Error,
    ends_ms: u64,
}

/// When a transaction that failed so begins again. `None`: it does not, for this is no lost attempt, or there is no time.
pub(super) fn begins_again(transaction: &Transaction, error: &Error, world: &World<'_>) -> Option<u64> {
    let origin = &transaction.origin;
    if !error.code.is_lost_attempt() || matches!(origin, Origin::Participation { .. } | Origin::Read { .. }) {
        return None;
    }
    // Each wait is about as long as all before it together.
    let elapsed_ms = world.monotonic_ms.saturating_sub(origin.began_ms());
    let due_ms = world.monotonic_ms.saturating_add(elapsed_ms.clamp(FIRST_WAIT_MS, LONGEST_WAIT_MS));
    // A client that waits hears soon that no worker is there.
    let is_awaited = matches!(origin, Origin::Call(..) | Origin::Route(..));
    let is_away = is_awaited && error.code == ErrorCode::WorkerUnavailable;
    let away_ms = origin.began_ms().saturating_add(limits::WORKER_AWAY_MS);
    let ends_ms = if is_away { away_ms } else { ends_ms(transaction) };
    (due_ms < ends_ms).then_some(due_ms)
}

/// When a transaction's time on workers is over.
pub(super) fn ends_ms(transaction: &Transaction) -> u64 {
    transaction.origin.began_ms().saturating_add(transaction.for_workers_ms())
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
        let due_ms = begins_again(&transaction, &error, context.world);
        let ends_ms = ends_ms(&transaction);
        let origin = transaction.into_origin();
        match due_ms {
            Some(due_ms) => {
                self.lost.insert((due_ms, origin.nonce()), Lost { origin, error, ends_ms });
            }
            None => self.fail_origin(origin, error, context),
        }
    }

    /// Has those begin again whose time has come.
    pub(super) fn begin_lost_again(&mut self, context: &mut ExecutionContext<'_, '_>) {
        while let Some(entry) = self.lost.first_entry()
            && entry.key().0 <= context.world.monotonic_ms
        {
            let Lost { origin, error, ends_ms } = entry.remove();
            if ends_ms <= context.world.monotonic_ms {
                self.fail_origin(origin, error, context);
                continue;
            }
            // One that did not start has been answered, or waits for its entity.
            let _ = self.starts_again(origin, Vec::new(), Role::Alone, context);
        }
    }
}
