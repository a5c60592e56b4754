//! What a transaction knows of its handlers that run on workers.

use millrace_base::{EntityKey, limits};

use super::transaction::{Activation, Instance, Parent, PendingCall, Transaction};

impl Transaction {
    /// Whether a call has to wait for another handler of this transaction that runs on its entity: a worker reads and writes
    /// fields as it was given them, so two beside each other would lose what one of them writes. Its callers it need not wait
    /// for: they are told what it writes.
    pub(crate) fn waits_behind_own(&self, entity: &EntityKey, call: &PendingCall) -> bool {
        // Whoever called from another shard is not known here, nor are its callers: to wait for one of them would never end.
        if matches!(call.parent, Parent::Shard(_)) {
            return false;
        }
        let is_caller = |instance: Instance| {
            let mut owner = call.owner;
            while let Some(state) = self.activations.iter().find(|state| Some(state.instance) == owner) {
                if state.instance == instance || matches!(state.parent, Some(Parent::Shard(_))) {
                    return true;
                }
                owner = state.owner;
            }
            false
        };
        let runs_there = |state: &&Activation| {
            state.is_on_worker && state.entity.is_some_and(|index| self.touched[index].entity == *entity)
        };
        self.activations.iter().filter(runs_there).any(|state| !is_caller(state.instance))
    }

    /// How long it may take on workers, all attempts together.
    pub(crate) fn for_workers_ms(&self) -> u64 {
        let longest = self.limits.wait_ms.saturating_sub(limits::WORKER_GRACE_MS);
        self.worker_ms.map_or(longest, |worker_ms| worker_ms.min(longest))
    }

    /// The entity that it has read without holding it while it waited.
    pub(crate) fn unlocked(&self) -> Option<EntityKey> {
        self.touched.first().filter(|_| self.is_unlocked).map(|touched| touched.entity.clone())
    }
}
