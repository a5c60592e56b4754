//! What somebody does to workflows that run or have ended: signals them, has them cancelled, resumed or restarted.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_api::Intervention;
use millrace_base::{Error, ErrorCode};
use millrace_driver::question::{Intervene, Signal};
use millrace_driver::{Job, Question};
use millrace_shard::{InvocationId, Reply, Token};

use super::World;
use crate::happened::Thing;
use crate::ledger::{Kind, Known, Operation};
use crate::workload::AGAIN_FROM;

/// Tokens from here on are not of operations.
pub(super) const ASIDE: Token = Token(1 << 62);

/// Restarts that have not been answered: of which operation's workflow, and whether from its step.
#[derive(Default)]
pub(super) struct Restarting {
    asked: BTreeMap<Token, (usize, bool)>,
    count: u64,
}

impl World {
    /// Does something to a workflow.
    pub(super) fn disturb_a_workflow(&mut self) {
        let sagas = self.started(|kind| matches!(kind, Kind::Saga { .. }));
        let Some((_, id)) = self.one_of_the_last(&sagas) else { return };
        let (sequence, how) = (id.sequence, self.rng.below(6));
        let (question, how): (Question, _) = match how {
            0 | 1 => (Intervene { sequence, intervention: Intervention::Cancel }.into(), "cancelled"),
            2 => (Intervene { sequence, intervention: Intervention::Resume }.into(), "resumed"),
            _ => {
                let (name, payload) = ("go".into(), Bytes::from_static(b"1"));
                (Signal { sequence, name, payload, idempotency_key: None }.into(), "signalled")
            }
        };
        self.ask_aside(ASIDE, id, question);
        self.note(|| format!("{id} is {how}"));
    }

    /// Has a workflow restarted that can say how often that took effect.
    pub(super) fn restart_a_workflow(&mut self) {
        let started = self.started(|kind| matches!(kind, Kind::Again { .. }));
        let Some((operation, id)) = self.one_of_the_last(&started) else { return };
        let is_from_step = self.rng.chance(1, 2);
        let from = is_from_step.then(|| AGAIN_FROM.into());
        let intervention = Intervention::Restart { from, on_newest: self.rng.chance(1, 4) };
        self.restarts.count += 1;
        let token = Token(ASIDE.0 + self.restarts.count);
        self.restarts.asked.insert(token, (operation, is_from_step));
        self.ledger.operations[operation].restarts[usize::from(is_from_step)].in_doubt += 1;
        self.ask_aside(token, id, Intervene { sequence: id.sequence, intervention }.into());
        self.note(|| format!("{id} of op{operation} is to be restarted, from its step: {is_from_step}"));
    }

    /// Somebody is answered who did something to a workflow. What became of anything else shows in the workflow.
    pub(super) fn told_aside(&mut self, token: Token, result: &Result<Reply, Error>) {
        let Some((operation, is_from_step)) = self.restarts.asked.remove(&token) else { return };
        let restarts = &mut self.ledger.operations[operation].restarts[usize::from(is_from_step)];
        match result {
            Ok(_) => {
                restarts.in_doubt -= 1;
                restarts.certain += 1;
                self.happened.note(if is_from_step { Thing::RestartedFromStep } else { Thing::Restarted });
            }
            Err(error) if matches!(error.code, ErrorCode::ShardStopped | ErrorCode::ResultUnknown) => {}
            Err(_) => restarts.in_doubt -= 1,
        }
        self.note(|| format!("the restart for op{operation} is answered {result:?}"));
    }

    /// Operations that have started workflows, and these.
    fn started(&self, is_meant: impl Fn(&Kind) -> bool) -> Vec<(usize, InvocationId)> {
        let id = |operation: &Operation| match &operation.known {
            Known::Done(id) => InvocationId::parse(&String::from_utf8_lossy(id), self.machine.shard_count),
            _ => None,
        };
        let meant = self.ledger.operations.iter().filter(|operation| is_meant(&operation.kind));
        meant.filter_map(|operation| Some((operation.id, id(operation)?))).collect()
    }

    fn one_of_the_last(&mut self, started: &[(usize, InvocationId)]) -> Option<(usize, InvocationId)> {
        let last = started.len().saturating_sub(3);
        (!started.is_empty()).then(|| started[self.rng.index(started.len()).max(last)])
    }

    fn ask_aside(&mut self, token: Token, id: InvocationId, question: Question) {
        let Some(node) = self.node.as_mut() else { return };
        let core = self.rng.index(node.cores());
        node.request(core, token, Job::Ask { shard: id.shard, question });
    }
}
