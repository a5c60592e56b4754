//! What somebody does to workflows of the running node.

use millrace_base::Error;
use millrace_driver::Job;
use millrace_shard::{Reply, Token};

use super::World;
use crate::disturb::{WorkflowQuestion, disturb};
use crate::happened::Thing;

impl World {
    /// Does something to a workflow.
    pub(super) fn disturb_a_workflow(&mut self) {
        let asked = disturb(&self.ledger, &mut self.rng, self.machine.shard_count);
        asked.into_iter().for_each(|asked| self.ask_aside(asked));
    }

    /// Has a workflow restarted that can say how often that took effect.
    pub(super) fn restart_a_workflow(&mut self) {
        let asked = self.restarts.restart(&mut self.ledger, &mut self.rng, self.machine.shard_count);
        asked.into_iter().for_each(|asked| self.ask_aside(asked));
    }

    /// Somebody is answered who did something to a workflow.
    pub(super) fn told_aside(&mut self, token: Token, result: &Result<Reply, Error>) {
        let Some(told) = self.restarts.told(&mut self.ledger, token, result) else { return };
        if told.is_certain {
            self.happened.note(if told.is_from_step { Thing::RestartedFromStep } else { Thing::Restarted });
        }
        self.note(|| format!("the restart for op{} is answered {result:?}", told.operation));
    }

    fn ask_aside(&mut self, WorkflowQuestion { token, of, question, what }: WorkflowQuestion) {
        if let Some(node) = self.node.as_mut() {
            let core = self.rng.index(node.cores());
            node.request(core, token, Job::Ask { shard: of.shard, question });
        }
        self.note(|| what);
    }
}
