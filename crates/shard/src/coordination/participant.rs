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
    pub(super) said: u32,
    pub(super) heard: Ordered<ToCoordinator>,
    /// Which participation has spoken first.
    pub(super) id: Option<u64>,
    pub(super) vote: Option<Vote>,
    /// The opening of its shard that this participation is of.
    pub(super) incarnation: Option<u64>,
    /// When it was asked for its vote last, on the monotonic clock.
    pub(super) asked_ms: u64,
    /// For how long from then on its vote counts, if not for ever.
    pub(super) hold_ms: Option<u64>,
}

impl Participant {
    /// Takes in what a participation says; what can be acted on now comes out of `heard`. Comes back if it
    /// is the end of another participation than the one that is listened to.
    pub(super) fn hear(&mut self, number: u32, said: FromParticipation) -> Option<ToCoordinator> {
        if *self.id.get_or_insert(said.participation_id) == said.participation_id {
            self.incarnation = Some(said.incarnation);
            self.heard.add(number, said.message);
            return None;
        }
        matches!(said.message, ToCoordinator::Died { .. } | ToCoordinator::Failed(_)).then_some(said.message)
    }
}

impl Participant {
    /// Whether its vote does not count any more: what it has read may have been written since.
    pub(super) fn has_lapsed(&self, now_ms: u64) -> bool {
        self.vote == Some(Vote::ReadOnly)
            && self.hold_ms.is_some_and(|hold_ms| now_ms.saturating_sub(self.asked_ms) >= hold_ms)
    }

    /// What it means to the transaction that nothing more comes of what was under way between it and the participant.
    /// Something comes of what the participant's shard has said since it was `opened`, if it was opened anew.
    pub(super) fn fate(&self, opened: Option<u64>) -> Fate {
        match self.vote {
            // What it has prepared is durable, and so is what it had to say before it was gone.
            Some(Vote::Prepared | Vote::Gone) => Fate::Stays,
            _ if opened.is_some() && self.incarnation == opened => Fate::Stays,
            _ => Fate::IsLost,
        }
    }
}

/// What has become of a participation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    IsLost,
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
