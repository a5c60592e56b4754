//! Which entities are held by transactions that wait in the middle, and who queues for them.
//!
//! A transaction that runs from start to end in one input needs no lock: nothing else runs
//! meanwhile. Only a suspended transaction holds locks: it awaits a password hash, an entity, or other
//! shards. It locks everything it has touched: shared where only queries ran, exclusive elsewhere.
//!
//! Wait-die avoids deadlock. A transaction that holds an entity may wait only for younger ones. If an
//! older transaction holds what it wants, it gives up everything and starts again when the entity is
//! free. It keeps its age, so it is the oldest some day.
//!
//! A holder that wants nothing more (its votes are asked for or given) waits for nobody. So every transaction may wait
//! for it, whatever their ages.
//!
//! The order of a queue:
//!
//! - An older transaction comes before a younger waiter that holds nothing. Such a waiter keeps nobody
//!   waiting.
//! - A younger transaction that holds an entity comes before an older waiter that holds nothing, rather
//!   than die. It does so a bounded number of times: the oldest of all must come to its end.
//! - No transaction overtakes a younger waiter that holds an entity: that one would then wait for an older
//!   one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millrace_base::EntityKey;

#[cfg(test)]
mod tests;

/// When a transaction was born: lower is older. The order that wait-die decides by.
pub(crate) type Age = (u64, u64);

/// How many younger ones may come before a transaction in a queue. Under transfers between ten
/// accounts, 1,024 at a time, 2 spare a quarter of the restarts that 0 makes, and more hardly any.
const OVERTAKEN: u8 = 2;

/// One that has an entity.
struct Holder {
    nonce: u64,
    age: Age,
    /// It wants no other entity any more.
    wants_nothing: bool,
}

/// Who holds one entity and who queues for it.
#[derive(Default)]
struct Lock {
    /// Several only if shared.
    holders: Vec<Holder>,
    is_exclusive: bool,
    /// Its holder is prepared to commit and waits for the decision: others may have seen it
    /// committed elsewhere, so not even those who only read may overlook it.
    is_prepared: bool,
    queue: VecDeque<Queued>,
    /// The nonces in the queue: most who let go of the entity are not in it, and it may be long.
    queued: BTreeSet<u64>,
}

impl Lock {
    /// How many of the queue go before a transaction that is in it or joins it.
    fn ahead(&self, nonce: u64, age: Age, holds_any: bool) -> usize {
        if self.queued.contains(&nonce)
            && let Some(at) = self.queue.iter().position(|queued| queued.waiter.nonce == nonce)
        {
            return at;
        }
        let goes_behind = |Queued { waiter, overtaken }: &&Queued| {
            !waiter.holds_any && (waiter.age > age || (holds_any && *overtaken < OVERTAKEN))
        };
        self.queue.len() - self.queue.iter().rev().take_while(goes_behind).count()
    }

    /// Notes that one of this age comes before all of the queue but the first so many.
    fn overtake(&mut self, ahead: usize, age: Age) {
        for older in self.queue.iter_mut().skip(ahead).filter(|queued| queued.waiter.age < age) {
            older.overtaken = older.overtaken.saturating_add(1);
        }
    }

    fn leave(&mut self, nonce: u64) {
        if self.queued.remove(&nonce) {
            self.queue.retain(|queued| queued.waiter.nonce != nonce);
        }
    }
}

/// A transaction in a queue.
struct Queued {
    waiter: Waiter,
    /// How many younger ones have come before it.
    overtaken: u8,
}

/// One queued transaction: suspended in the middle, or yet to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    /// Nonce of the transaction, suspended or parked.
    nonce: u64,
    age: Age,
    is_exclusive: bool,
    /// Whether it holds something meanwhile, for which others may wait.
    holds_any: bool,
}

impl Waiter {
    /// One that holds nothing meanwhile.
    pub(crate) fn new(nonce: u64, age: Age, is_exclusive: bool) -> Self {
        Self { nonce, age, is_exclusive, holds_any: false }
    }

    /// The same, if it may hold something, for which others may wait.
    pub(crate) fn holding(self, holds_any: bool) -> Self {
        Self { holds_any, ..self }
    }
}

/// What a transaction that wants an entity has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Go on.
    Free,
    /// Queue for it.
    Wait,
    /// Give up everything and start again when it is free.
    Die,
}

#[derive(Default)]
pub(crate) struct Locks {
    locks: BTreeMap<EntityKey, Lock>,
    /// Nobody may have an entity alone: any may be locked by somebody who reads it and is not known.
    is_shut: bool,
}

impl Locks {
    /// Whether everybody may have every entity.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty() && !self.is_shut
    }

    /// Lets nobody have an entity alone who does not hold it so already.
    pub(crate) fn shut(&mut self) {
        self.is_shut = true;
    }

    /// Ends that. Gives the entities that somebody queues for.
    pub(crate) fn open(&mut self) -> Vec<EntityKey> {
        self.is_shut = false;
        self.locks.iter().filter(|(_, lock)| !lock.queue.is_empty()).map(|(entity, _)| entity.clone()).collect()
    }

    /// Whether `nonce` may use `entity` now.
    pub(crate) fn check(&self, entity: &EntityKey, nonce: u64, age: Age, is_exclusive: bool, holds_any: bool) -> Grant {
        let Some(lock) = self.locks.get(entity) else {
            return if self.is_shut && is_exclusive { Grant::Wait } else { Grant::Free };
        };
        let others = || lock.holders.iter().filter(|holder| holder.nonce != nonce);
        let is_kept_out = self.is_shut && is_exclusive && !(lock.is_exclusive && others().next().is_none());
        let conflicts_with_holder = is_kept_out || (is_exclusive || lock.is_exclusive) && others().next().is_some();
        // Who holds the entity already comes before the queue.
        let is_holder = lock.holders.iter().any(|holder| holder.nonce == nonce);
        let ahead = if is_holder { 0 } else { lock.ahead(nonce, age, holds_any) };
        if !conflicts_with_holder && ahead == 0 {
            return Grant::Free;
        }
        let ahead = lock.queue.iter().take(ahead).map(|queued| queued.waiter.age);
        let wanting = others().filter(|holder| !holder.wants_nothing).map(|holder| holder.age);
        if holds_any && wanting.chain(ahead).any(|other| other < age) { Grant::Die } else { Grant::Wait }
    }

    /// Gives `nonce` the entity; it keeps its place in the queue, in which it may wait to have it
    /// alone. The caller has checked that it is free.
    pub(crate) fn hold(&mut self, entity: &EntityKey, nonce: u64, age: Age, is_exclusive: bool) {
        let lock = self.locks.entry(entity.clone()).or_default();
        if !lock.holders.iter().any(|holder| holder.nonce == nonce) {
            // Who shares it with its holders has not been in the queue, and comes before it all the same: without a
            // count, a stream of those who read would keep who wants it alone waiting for ever.
            if !lock.queued.contains(&nonce) {
                lock.overtake(0, age);
            }
            lock.holders.push(Holder { nonce, age, wants_nothing: false });
        }
        lock.is_exclusive |= is_exclusive;
        assert!(!lock.is_exclusive || lock.holders.len() == 1, "an exclusive lock has one holder");
    }

    /// Gives `nonce` what it queued for.
    pub(crate) fn take(&mut self, entity: &EntityKey, nonce: u64, age: Age, is_exclusive: bool) {
        self.hold(entity, nonce, age, is_exclusive);
        self.leave_queue(entity, nonce);
    }

    /// Queues for an entity, once however often one asks. Who holds it already and wants it alone
    /// comes first: those in the queue wait for it to let go, which it will not do before.
    pub(crate) fn queue(&mut self, entity: &EntityKey, waiter: Waiter) {
        let lock = self.locks.entry(entity.clone()).or_default();
        if lock.queued.contains(&waiter.nonce) {
            for Queued { waiter: queued, .. } in lock.queue.iter_mut().filter(|one| one.waiter.nonce == waiter.nonce) {
                queued.is_exclusive |= waiter.is_exclusive;
                queued.holds_any |= waiter.holds_any;
            }
            return;
        }
        let is_holder = lock.holders.iter().any(|holder| holder.nonce == waiter.nonce);
        let ahead = if is_holder { 0 } else { lock.ahead(waiter.nonce, waiter.age, waiter.holds_any) };
        lock.queued.insert(waiter.nonce);
        lock.overtake(ahead, waiter.age);
        lock.queue.insert(ahead, Queued { waiter, overtaken: 0 });
    }

    /// Takes `nonce` out of the queue of `entity`; what it holds it keeps.
    pub(crate) fn leave_queue(&mut self, entity: &EntityKey, nonce: u64) {
        if let Some(lock) = self.locks.get_mut(entity) {
            lock.leave(nonce);
            if lock.holders.is_empty() && lock.queue.is_empty() {
                self.locks.remove(entity);
            }
        }
    }

    /// Takes `nonce` out of the holders and the queue of `entity`. Says whether others queue for it,
    /// who may now be able to go on.
    pub(crate) fn release(&mut self, entity: &EntityKey, nonce: u64) -> bool {
        let Some(lock) = self.locks.get_mut(entity) else {
            return false;
        };
        lock.holders.retain(|holder| holder.nonce != nonce);
        lock.leave(nonce);
        if lock.holders.is_empty() {
            lock.is_exclusive = false;
            lock.is_prepared = false;
            if lock.queue.is_empty() {
                self.locks.remove(entity);
                return false;
            }
        }
        !lock.queue.is_empty()
    }

    /// The first in the queue of `entity`, if it may go on now.
    pub(crate) fn runnable(&self, entity: &EntityKey) -> Option<u64> {
        let lock = self.locks.get(entity)?;
        let first = lock.queue.front()?.waiter;
        let is_alone = lock.holders.iter().all(|holder| holder.nonce == first.nonce);
        let is_had_alone = lock.is_exclusive && !lock.holders.is_empty();
        let is_kept_out = self.is_shut && first.is_exclusive && !is_had_alone;
        let is_free = !is_kept_out && (is_alone || !(first.is_exclusive || lock.is_exclusive));
        is_free.then_some(first.nonce)
    }

    /// The holder of `entity`, which has it alone, is prepared.
    pub(crate) fn mark_prepared(&mut self, entity: &EntityKey) {
        let lock = self.locks.get_mut(entity).expect("what is prepared is held");
        assert!(lock.is_exclusive, "what is prepared is held alone");
        lock.is_prepared = true;
        lock.holders.iter_mut().for_each(|holder| holder.wants_nothing = true);
    }

    /// `nonce`, which holds `entity`, will ask for no other before it lets go of this one.
    pub(crate) fn mark_wants_nothing(&mut self, entity: &EntityKey, nonce: u64) {
        let holders = self.locks.get_mut(entity).into_iter().flat_map(|lock| &mut lock.holders);
        holders.filter(|holder| holder.nonce == nonce).for_each(|holder| holder.wants_nothing = true);
    }

    /// Whether whoever only reads `entity` has to wait, too.
    pub(crate) fn is_prepared(&self, entity: &EntityKey) -> bool {
        !self.locks.is_empty() && self.locks.get(entity).is_some_and(|lock| lock.is_prepared)
    }

    /// The entities that transactions hold alone, because they have changed them or may.
    pub(crate) fn held_alone(&self) -> impl Iterator<Item = &EntityKey> {
        let held = self.locks.iter().filter(|(_, lock)| lock.is_exclusive && !lock.holders.is_empty());
        held.map(|(entity, _)| entity)
    }

    /// How many transactions queue for `entity`.
    pub(crate) fn queued(&self, entity: &EntityKey) -> usize {
        self.locks.get(entity).map_or(0, |lock| lock.queue.len())
    }

    /// How many entities are held or waited for.
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }
}
