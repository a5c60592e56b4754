//! What somebody does to workflows that run or have ended: signals them, has them cancelled, resumed or restarted.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_api::Intervention;
use millrace_base::{Error, ErrorCode};
use millrace_driver::Question;
use millrace_driver::question::{Intervene, Signal};
use millrace_shard::{InvocationId, Reply, Token};

use crate::ledger::{Kind, Known, Ledger, Operation};
use crate::random::Rng;
use crate::workload::AGAIN_FROM;

/// Tokens from here on are not of operations.
pub const ASIDE: Token = Token(1 << 62);

/// Something that somebody asks of a workflow.
pub struct WorkflowQuestion {
    pub token: Token,
    pub of: InvocationId,
    pub question: Question,
    /// For people.
    pub what: String,
}

/// What became of a restart.
pub struct Told {
    pub operation: usize,
    pub is_from_step: bool,
    pub is_certain: bool,
}

/// Restarts that have not been answered: of which operation's workflow, and whether from its step.
#[derive(Default)]
pub struct Restarting {
    asked: BTreeMap<Token, (usize, bool)>,
    count: u64,
}

/// Does something to a workflow, if there is one. What becomes of it shows in the workflow.
pub fn disturb(ledger: &Ledger, rng: &mut Rng, shard_count: u16) -> Option<WorkflowQuestion> {
    let sagas = started(ledger, shard_count, |kind| matches!(kind, Kind::Saga { .. }));
    let (_, of) = one_of_the_last(rng, &sagas)?;
    let sequence = of.sequence;
    let (question, how): (Question, _) = match rng.below(6) {
        0 | 1 => (Intervene { sequence, intervention: Intervention::Cancel }.into(), "cancelled"),
        2 => (Intervene { sequence, intervention: Intervention::Resume }.into(), "resumed"),
        _ => {
            let (name, payload) = ("go".into(), Bytes::from_static(b"1"));
            (Signal { sequence, name, payload, idempotency_key: None }.into(), "signalled")
        }
    };
    Some(WorkflowQuestion { token: ASIDE, of, question, what: format!("{of} is {how}") })
}

impl Restarting {
    /// Has a workflow restarted, if there is one that can say how often that took effect.
    pub fn restart(&mut self, ledger: &mut Ledger, rng: &mut Rng, shard_count: u16) -> Option<WorkflowQuestion> {
        let started = started(ledger, shard_count, |kind| matches!(kind, Kind::Again { .. }));
        let (operation, of) = one_of_the_last(rng, &started)?;
        let is_from_step = rng.chance(1, 2);
        let from = is_from_step.then(|| AGAIN_FROM.into());
        let intervention = Intervention::Restart { from, on_newest: rng.chance(1, 4) };
        self.count += 1;
        let token = Token(ASIDE.0 + self.count);
        self.asked.insert(token, (operation, is_from_step));
        ledger.operations[operation].restarts[usize::from(is_from_step)].in_doubt += 1;
        let question = Intervene { sequence: of.sequence, intervention }.into();
        let what = format!("{of} of op{operation} is to be restarted, from its step: {is_from_step}");
        Some(WorkflowQuestion { token, of, question, what })
    }

    /// Somebody is answered who did something to a workflow. `None`: it was no restart.
    pub fn told(&mut self, ledger: &mut Ledger, token: Token, result: &Result<Reply, Error>) -> Option<Told> {
        let (operation, is_from_step) = self.asked.remove(&token)?;
        let restarts = &mut ledger.operations[operation].restarts[usize::from(is_from_step)];
        match result {
            Ok(_) => {
                restarts.in_doubt -= 1;
                restarts.certain += 1;
            }
            Err(error) if matches!(error.code, ErrorCode::ShardStopped | ErrorCode::ResultUnknown) => {}
            Err(_) => restarts.in_doubt -= 1,
        }
        Some(Told { operation, is_from_step, is_certain: result.is_ok() })
    }
}

/// Operations that have started workflows, and these.
fn started(ledger: &Ledger, shard_count: u16, is_meant: impl Fn(&Kind) -> bool) -> Vec<(usize, InvocationId)> {
    let id = |operation: &Operation| match &operation.known {
        Known::Done(id) => InvocationId::parse(&String::from_utf8_lossy(id), shard_count),
        _ => None,
    };
    let meant = ledger.operations.iter().filter(|operation| is_meant(&operation.kind));
    meant.filter_map(|operation| Some((operation.id, id(operation)?))).collect()
}

fn one_of_the_last(rng: &mut Rng, started: &[(usize, InvocationId)]) -> Option<(usize, InvocationId)> {
    let last = started.len().saturating_sub(3);
    (!started.is_empty()).then(|| started[rng.index(started.len()).max(last)])
}
