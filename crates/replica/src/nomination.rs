//! Where epochs come from when nobody appoints owners: replicas nominate themselves. Only the shard that holds the guidance
//! needs it.
//!
//! A voter that has heard no owner for a random time asks the others whether they would promise it an epoch. If a majority
//! would, it appoints itself. So a node that is merely cut off disturbs nobody when it comes back: nobody who hears an owner
//! says yes. Two nodes may appoint themselves to one epoch. A voter promises it to one of them only, so one at most leads.

use std::collections::BTreeSet;

use crate::event::{Command, Event};
use crate::ids::{Epoch, NodeId};
use crate::message::Message;
use crate::replica::{Replica, RoleName};

/// The source of epochs beside one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nomination {
    /// When to ask, if no owner is heard before.
    due_ns: Option<u64>,
    asking: Option<(Epoch, BTreeSet<NodeId>)>,
}

impl Nomination {
    /// Time has passed. `random` spreads the nodes over time. Comes after the replica's own tick.
    pub fn tick(&mut self, now_ns: u64, random: u64, replica: &mut Replica, out: &mut Vec<Command>) {
        let silence_ns = replica.settings().silence_ns.max(1);
        if !replica.may_nominate() {
            *self = Self::default();
            return;
        }
        let earliest_ns = replica.heard_ns().saturating_add(silence_ns);
        let due_ns = *self.due_ns.get_or_insert(earliest_ns.saturating_add(random % silence_ns));
        if due_ns < earliest_ns {
            self.due_ns = None;
            self.asking = None;
            return;
        }
        if now_ns < due_ns {
            return;
        }
        self.due_ns = Some(now_ns.saturating_add(silence_ns + random % silence_ns));
        let epoch = replica.next_epoch();
        let others = replica.log().set().voters().filter(|node| *node != replica.me());
        out.extend(others.map(|to| Command::Send { to, message: Message::PreVote { epoch } }));
        self.asking = Some((epoch, BTreeSet::from([replica.me()])));
        self.decide(now_ns, replica, out);
    }

    /// A voter has said whether it would promise.
    pub fn replied(
        &mut self,
        now_ns: u64,
        from: NodeId,
        epoch: Epoch,
        is_granted: bool,
        replica: &mut Replica,
        out: &mut Vec<Command>,
    ) {
        if let Some((asked, yes)) = &mut self.asking
            && *asked == epoch
            && is_granted
        {
            yes.insert(from);
            self.decide(now_ns, replica, out);
        }
    }

    fn decide(&mut self, now_ns: u64, replica: &mut Replica, out: &mut Vec<Command>) {
        let is_elected =
            |(_, yes): &mut (Epoch, BTreeSet<NodeId>)| replica.log().set().has_majority(|node| yes.contains(&node));
        if let Some((epoch, _)) = self.asking.take_if(is_elected)
            && replica.role() != RoleName::Owner
        {
            replica.handle(now_ns, Event::Appoint { epoch }, out);
        }
    }
}
