//! What a home knows of one participant: what it has been told, what its branch has said, and its vote.
//!
//! A participant has one branch of a run at a time, but may have had others: a second copy of the
//! message that began a branch begins another one when the first has ended. The home listens to
//! the one it hears first, whatever the order in which they ran. What the others say counts for
//! nothing, except that they have died or failed: what the home had told them by then, the branch it listens to
//! may never hear.

use crate::peer::{FromBranch, Ordered, ToHome};

#[derive(Default)]
pub(crate) struct Participant {
    /// Numbered messages it has been told.
    pub said: u32,
    pub heard: Ordered<ToHome>,
    /// Of the branch that has spoken first.
    pub life: Option<u64>,
    pub vote: Option<Vote>,
}

impl Participant {
    /// Takes in what a branch says; what can be acted on now comes out of `heard`. Comes back if it
    /// is the end of another branch than the one that is listened to.
    pub(crate) fn hear(&mut self, number: u32, said: FromBranch) -> Option<ToHome> {
        if *self.life.get_or_insert(said.life) == said.life {
            self.heard.add(number, said.message);
            return None;
        }
        matches!(said.message, ToHome::Died { .. } | ToHome::Failed(_)).then_some(said.message)
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
