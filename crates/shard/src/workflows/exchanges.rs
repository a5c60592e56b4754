//! Workflows whose code runs on a worker: what they wait for there, and what becomes of attempts that are lost.
//!
//! An exchange with a worker is no operation of the workflow: it leaves no row. While one is under way the code is given no
//! row, so a replay gives rows at the same places. An attempt that is lost costs nothing: the code begins again over the
//! journal, as after a restart.

use bytes::Bytes;
use millrace_base::Error;
use millrace_format::FailureRecord;
use millrace_func::OperationId;

use super::failing::CODE;
use super::workflow::{Open, Work, Workflow};
use super::{AGAIN, WorkflowContext, Workflows};
use crate::request::OffloadTicket;
use crate::retry::{passing_wait_ms, retry_wait_ms};

/// The number of exchanges. No operation of a workflow has it.
pub(super) const EXCHANGE: u32 = u32::MAX;

/// What a workflow waits for of its worker.
#[derive(Default)]
pub(super) enum Exchange {
    /// Nothing.
    #[default]
    None,
    /// Its turn.
    UnderWay,
    /// The turn is there, and the code is to be given it.
    Came(Result<Bytes, Error>),
}

/// How a workflow stands with its workers.
#[derive(Default)]
pub(super) struct OnWorker {
    pub exchange: Exchange,
    /// Its attempt was lost: its code begins again when its time has come.
    pub is_lost: bool,
    /// How that went the last time, until a turn comes again. In memory alone: it says nothing of the workflow's code.
    lost: Option<FailureRecord>,
}

impl OnWorker {
    /// How often in a row an attempt was lost.
    fn attempts(&self) -> u32 {
        self.lost.as_ref().map_or(0, |lost| lost.attempts)
    }
}

impl Workflow {
    /// What failed and has not ended: its code, if no worker has run it, before what the journal knows of.
    pub(super) fn told_failures(&self) -> impl Iterator<Item = &FailureRecord> {
        self.on_worker.lost.iter().chain(self.failures.values())
    }

    /// Whether its worker has the turn.
    pub(super) fn is_exchanging(&self) -> bool {
        !matches!(self.on_worker.exchange, Exchange::None)
    }

    /// Whether anything it asked for is being done, and would be done twice if its code began again now. What failed and
    /// waits for its next attempt is not.
    fn has_work_under_way(&self) -> bool {
        let is_work = |open: &Open| matches!(open.work, Work::Call(_) | Work::Fetch(_) | Work::Hash(_));
        let is_paused =
            |operation: &u32| self.failures.get(operation).is_some_and(|failure| failure.next_try.is_none());
        let rests =
            |operation: &u32, open: &Open| open.retry_at.is_some() || (is_paused(operation) && !open.is_under_way);
        self.open.iter().any(|(operation, open)| is_work(open) && !rests(operation, open))
    }
}

impl Workflows {
    /// The turn of a workflow's worker is there.
    pub(super) fn turn_came(&mut self, ticket: &OffloadTicket, result: Result<Bytes, Error>) {
        let Some(id) = self.by_nonce.get(&ticket.nonce).copied() else { return };
        if let Some(workflow) = self.live.get_mut(&id)
            && matches!(workflow.on_worker.exchange, Exchange::UnderWay)
        {
            workflow.on_worker.exchange = Exchange::Came(result);
            self.runnable.push_back(id);
        }
    }

    /// Gives the code its worker's turn, if it is there. Says whether it did.
    pub(super) fn give_turn(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) -> bool {
        if !matches!(workflow.on_worker.exchange, Exchange::Came(_)) {
            return false;
        }
        let Exchange::Came(result) = std::mem::take(&mut workflow.on_worker.exchange) else { return false };
        let Some(activation) = workflow.activation else { return false };
        self.turn(workflow, context, |engine, host| engine.resume(activation, OperationId(EXCHANGE), result, host));
        if !workflow.on_worker.is_lost {
            workflow.on_worker.lost = None;
        }
        true
    }

    /// An attempt was lost: its code begins again after a pause.
    pub(super) fn lose(&mut self, workflow: &mut Workflow, error: &Error, context: &mut WorkflowContext<'_, '_>) {
        self.forget_attempt(workflow, context);
        let now = context.world.now;
        let attempts = workflow.on_worker.attempts().saturating_add(1);
        let due = now.plus(passing_wait_ms(error.code, attempts));
        let error_told = Error { detail: None, ..error.clone() };
        workflow.on_worker.lost = Some(FailureRecord {
            kind: None,
            operation: CODE,
            attempts,
            failed: now,
            next_try: Some(due),
            name: String::new(),
            error: error_told,
        });
        self.timers.insert((due, workflow.id.sequence, AGAIN));
        tracing::debug!(invocation = %workflow.id, %error, "a workflow's worker was lost; its code begins again");
    }

    /// An attempt of a workflow's code has ended in vain. What the code asked for in its last turn is forgotten; what is
    /// under way goes on, and comes as rows.
    pub(super) fn forget_attempt(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) {
        if let Some(activation) = workflow.activation.take() {
            context.world.engine.cancel(activation);
            // What it waits for outside still finds it.
            self.forget_activation(activation, context);
        }
        workflow.outgoing.clear();
        workflow.ended_steps.clear();
        for operation in std::mem::take(&mut workflow.fresh) {
            workflow.open.remove(&operation);
        }
        for row in std::mem::take(&mut workflow.rows) {
            workflow.open.remove(&row.operation); // It is read again with the whole journal.
        }
        (workflow.is_asleep, workflow.is_rewound) = (true, false);
        (workflow.on_worker.exchange, workflow.on_worker.is_lost) = (Exchange::None, true);
    }

    /// The time of a workflow has come whose attempt was lost. Says whether its code may begin again: what is being done for
    /// it ends first.
    pub(super) fn may_begin_again(&mut self, workflow: &mut Workflow, context: &mut WorkflowContext<'_, '_>) -> bool {
        if let Some(rest) = workflow.rest(context.world.now) {
            let id = workflow.id.sequence;
            self.timers.extend(rest.map(|due| (due, id, AGAIN)));
            return false;
        }
        if workflow.has_work_under_way() {
            let due = context.world.now.plus(retry_wait_ms(workflow.on_worker.attempts()));
            self.timers.insert((due, workflow.id.sequence, AGAIN));
            return false;
        }
        // Whether these are asked for again is seen when the code comes by them.
        for (operation, open) in &workflow.open {
            if let Some(due) = open.retry_at {
                self.timers.remove(&(due, workflow.id.sequence, *operation));
            }
        }
        workflow.on_worker.is_lost = false;
        self.by_nonce.remove(&workflow.nonce);
        (workflow.is_asleep, workflow.is_rewound) = (true, false);
        true
    }
}
