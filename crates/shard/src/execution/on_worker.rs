//! What a transaction knows of its handlers that run on workers.

use millrace_base::{EntityKey, limits};
use millrace_func::Catalog;

use super::transaction::{Activation, Owner, PendingCall, Transaction};
use crate::peer::{CallNumber, PeerCall};

impl Transaction {
    /// Whether a call has to wait for another handler of this transaction that runs on its entity: a worker reads and writes
    /// fields as it was given them, so two beside each other would lose what one of them writes. Its callers it need not wait
    /// for: they are told what it writes. To wait for one of them would never end, so it waits for nobody if not all are known.
    pub(crate) fn waits_behind_own(&self, entity: &EntityKey, call: &PendingCall) -> bool {
        let runs_there = |state: &&Activation| {
            state.is_on_worker && state.entity.is_some_and(|index| self.touched[index].entity == *entity)
        };
        let mut running = self.activations.iter().filter(runs_there).peekable();
        if running.peek().is_none() {
            return false;
        }
        let callers = self.callers_here(call.owner);
        callers.is_some_and(|callers| running.any(|state| !callers.contains(&state.instance)))
    }

    /// The activations of this shard that what `owner` is answerable for is nested in, and the calls from other shards
    /// between them. `None` if a shard has not told all of them.
    fn callers_here(&self, owner: Option<Owner>) -> Option<Vec<Owner>> {
        let (mut callers, mut next) = (Vec::new(), owner);
        while let Some(owner) = next {
            if callers.contains(&owner) {
                return None; // What another shard has told makes no sense.
            }
            callers.push(owner);
            next = match self.activations.iter().find(|state| state.instance == owner) {
                Some(state) => state.owner,
                None => {
                    let made_here = |number: &CallNumber| self.away.iter().find(|call| call.number == *number);
                    self.callers.get(&owner)?.iter().rev().find_map(made_here).and_then(|call| call.owner)
                }
            };
        }
        Some(callers)
    }

    /// The calls across shards that a call to another shard is nested in, if its app runs on workers.
    pub(crate) fn callers_away(&self, call: &PendingCall, catalog: &Catalog) -> Option<Vec<CallNumber>> {
        if !catalog.program(call.call.handler.program).is_some_and(|loaded| loaded.is_on_workers) {
            return None;
        }
        let mut next = call.owner;
        while let Some(owner) = next {
            let Some(state) = self.activations.iter().find(|state| state.instance == owner) else {
                return Some(self.callers.get(&owner)?.iter().copied().chain([owner]).collect());
            };
            next = state.owner;
        }
        Some(Vec::new())
    }

    /// Another shard has made a call to this one.
    pub(crate) fn note_callers(&mut self, call: &PeerCall) {
        if let Some(callers) = &call.callers {
            self.callers.insert(call.number, callers.clone());
        }
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
