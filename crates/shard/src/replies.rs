//! Replies that wait until everything they depend on is durable.

use std::collections::VecDeque;

use millrace_base::{Error, Lsn};

use crate::request::{Reply, Token};
use crate::world::Outputs;

type Held = (Lsn, Token, Result<Reply, Error>);

/// Replies in the order of the entries they depend on.
#[derive(Default)]
pub(crate) struct Replies {
    held: VecDeque<Held>,
}

impl Replies {
    /// Sends a reply now if what it depends on is durable, or keeps it until it is.
    pub(crate) fn release(
        &mut self,
        token: Token,
        result: Result<Reply, Error>,
        depends_on: Lsn,
        durable: Lsn,
        outputs: &mut dyn Outputs,
    ) {
        if depends_on <= durable {
            outputs.reply(token, result);
            return;
        }
        let at = self.held.partition_point(|(lsn, _, _)| *lsn <= depends_on);
        self.held.insert(at, (depends_on, token, result));
    }

    /// Sends every reply that depends on nothing after `durable`.
    pub(crate) fn durable(&mut self, durable: Lsn, outputs: &mut dyn Outputs) {
        while self.held.front().is_some_and(|(lsn, _, _)| *lsn <= durable) {
            if let Some((_, token, result)) = self.held.pop_front() {
                outputs.reply(token, result);
            }
        }
    }

    /// Answers everything that still waits with `error`: whether it took effect is unknown.
    pub(crate) fn fail(&mut self, error: &Error, outputs: &mut dyn Outputs) {
        for (_, token, _) in self.held.drain(..) {
            outputs.reply(token, Err(error.clone()));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
