//! Who holds the log of a shard: its owner changes that, one node at a time, and a node that holds it no more forgets it.

use millrace_base::{Lsn, ShardId};
use millrace_replica::{Change, Event, ShardLog};

use crate::core::Core;
use crate::platform::Platform;

impl<P: Platform> Core<P> {
    /// Takes the next step towards the sets that guidance wants, for each shard that is owned here.
    pub(crate) fn change_holders(&mut self) {
        let Some(replicated) = &self.replicated else { return };
        for (shard, wanted) in replicated.guide.held_by() {
            let next = |replicated: &super::Replicated| {
                let seat = replicated.seats.get(&shard).filter(|seat| seat.serving.is_some())?;
                let set = seat.replica.log().set();
                let change = set.step_to(&wanted, replicated.guide.me())?;
                let changes_voters = match change {
                    Change::AddLearner(_) => false,
                    Change::Promote(_) => true,
                    Change::Remove(node) => set.is_voter(node),
                };
                (!changes_voters || self.platform.have_bodies(shard, &wanted)).then_some(change)
            };
            if let Some(change) = self.replicated.as_ref().and_then(|replicated| next(replicated)) {
                self.change_replicas(shard, change);
            }
        }
    }

    /// Changes who holds the log of a shard that this node owns, by an entry, if that may be changed now. Says whether it was.
    pub fn change_replicas(&mut self, shard: ShardId, change: Change) -> bool {
        let Some(seat) = self.seat(shard) else { return false };
        if seat.serving.is_none() || !seat.replica.may_change(change) {
            return false;
        }
        let lsn = seat.replica.log().last().lsn.next();
        // The shard that runs numbers its entries by itself.
        if let Some(open) = self.shard_mut(shard) {
            if open.store().lsn().next() != lsn {
                return false;
            }
            if let Err(error) = open.pass_over() {
                self.stop_replica(shard, &error.to_string());
                return false;
            }
        }
        self.drive(shard, |seat, now_ns, out| {
            seat.replica.handle(now_ns, Event::ChangeSet { lsn, change }, out);
            seat.replica.end_round(now_ns, out);
        });
        self.platform.wake();
        true
    }

    /// Whether the state of a shard is to be emptied: since the entry `agreed` of its log this node holds it no more, and it has
    /// not been told to hold it again. Then its state is gone until [`Core::install_failed`].
    pub fn begin_forget(&mut self, shard: ShardId, agreed: Lsn) -> bool {
        let Some(seat) = self.seat(shard) else { return false };
        let log = seat.replica.log();
        let holds_nothing = log.last().lsn == Lsn::ZERO || seat.store.is_none();
        if holds_nothing || seat.serving.is_some() || seat.to_open.is_some() || log.newest_set().0 >= agreed {
            return false;
        }
        seat.is_installing = true;
        seat.store = None;
        self.upkeep.forget(shard);
        true
    }
}
