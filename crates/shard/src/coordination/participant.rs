//! What a coordinator knows of one participant: what it has been told, what its participation has
//! said, and its vote.
//!
//! A participant has one participation in an attempt at a time, but may have had others: a second copy of the
//! message that began one begins another when the first has ended. The coordinator listens to
//! the one it hears first, whatever the order in which they ran. What the others say counts for
//! nothing, except that they have died or failed: the participation that the coordinator listens to may never
//! hear what the others had been told by then.

use crate::peer::{FromParticipation, Ordered, ToCoordinator};

#[derive(Default)]
pub(super) struct Participant {
    /// Numbered messages it has been told.
    pub said: u32,
    pub heard: Ordered<ToCoordinator>,
    /// Which participation has spoken first.
    pub id: Option<u64>,
    pub vote: Option<Vote>,
}

impl Participant {
    /// Takes in what a participation says; what can be acted on now comes out of `heard`. Comes back if it
    /// is the end of another participation than the one that is listened to.
    pub(super) fn hear(&mut self, number: u32, said: FromParticipation) -> Option<ToCoordinator> {
        if *self.id.get_or_insert(said.participation_id) == said.participation_id {
            self.heard.add(number, said.message);
            return None;
        }
        matches!(said.message, ToCoordinator::Died { .. } | ToCoordinator::Failed(_)).then_some(said.message)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Waits for the decision.
    Prepared,
    /// Has only read, and holds that until it is told of the decision.
    ReadOnly,
    /// Has no further part.
    Gone,
}
