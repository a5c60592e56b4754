//! The calls of workflows: each is a transaction of its own, and its result a row of the journal.
//!
//! A call to an entity of this shard commits in one entry with its row, so both are there or
//! neither is. A call that another shard commits alone leaves its result there, under the
//! workflow and the operation, in the entry that commits it: made again, it takes that result
//! instead of effect. Once the row here is durable, the kept result is given up.

use bytes::Bytes;
use millrace_base::{EntityKey, Error, ErrorCode, Lsn, TransactionId, limits, shard_of_key};
use millrace_format::{JournalRow, MessageRecord, StepKind, Write};
use millrace_func::{HandlerKind, NestedCall, Output};

use crate::held::Leaving;
use crate::host::refused;
use crate::peer::PeerBody;
use crate::request::{Origin, RequestInfo, Sequence, Token, once_field};
use crate::retry::retry_wait_ms;
use crate::shard::Shard;
use crate::transaction::{Parent, PendingCall, Role, Transaction};
use crate::workflow::Work;
use crate::world::World;

/// Errors after which a call is made again instead of being the workflow's.
fn is_passing(code: ErrorCode) -> bool {
    code.is_retryable() || code == ErrorCode::WaitLimit
}

impl Shard {
    /// Makes a workflow's call, or lets it wait until what it follows from cannot be lost without
    /// what comes of it.
    pub(crate) fn start_call(
        &mut self,
        id: Sequence,
        operation: u32,
        call: NestedCall,
        must_be_durable: Lsn,
        world: &mut World<'_>,
    ) {
        let to = shard_of_key(&call.key, self.options.shard_count);
        if to != self.options.shard && must_be_durable > self.durable_towards(to) {
            self.workflows.waiting.insert((must_be_durable, id, operation));
            return;
        }
        let workflow = self.workflows.live.get_mut(&id);
        if let Some(open) = workflow.and_then(|workflow| workflow.open.get_mut(&operation)) {
            open.is_under_way = true;
            self.start_step(id, operation, call, world);
        }
    }

    /// Makes a workflow's call, as a transaction of its own.
    fn start_step(&mut self, workflow: Sequence, operation: u32, call: NestedCall, world: &mut World<'_>) {
        let info =
            RequestInfo { token: Token(u64::MAX), time: world.now, nonce: world.take_nonce(), idempotency_key: None };
        // The workflow's own code is as old as it is; what it calls is what everybody calls.
        let mut call = call;
        if let Some((app, service, handler)) = world.catalog.names(call.handler)
            && let Ok(current) = world.catalog.find(app.as_str(), service.as_str(), handler.as_str())
        {
            call.handler = current;
        }
        let to = shard_of_key(&call.key, self.options.shard_count);
        let entity = world.catalog.entity(call.handler, &call.key);
        let kind = world.catalog.kind(call.handler);
        if kind == HandlerKind::Workflow {
            let error = refused("the newest version of the callee is a workflow: it is not called but started");
            return self.step_failed(workflow, operation, error, world);
        }
        let origin = Origin::Step { workflow, operation, call, info };
        if to != self.options.shard {
            return self.run_step_away(origin, Vec::new(), Role::Alone, world);
        }
        match entity {
            Some(entity) if self.parks(&origin, &entity, kind, world) => {}
            Some(entity) => self.run_root(origin, (entity, kind), Vec::new(), Role::Alone, world),
            None => {
                let error = Error::new(ErrorCode::UnknownHandler, "the callee's app version is gone");
                self.fail_origin(origin, error, world);
            }
        }
    }

    /// Makes a workflow's call to another shard. `held` are entities of this shard that it holds
    /// already: it came back to one when it was made before, and queued for it.
    pub(crate) fn run_step_away(&mut self, origin: Origin, held: Vec<EntityKey>, role: Role, world: &mut World<'_>) {
        let Origin::Step { call, .. } = &origin else {
            return;
        };
        let (call, program) = (call.clone(), call.handler.program);
        let to = shard_of_key(&call.key, self.options.shard_count);
        let mut transaction = Transaction::new(origin, program, world.limits(program));
        transaction.takes_locks = true;
        transaction.held = held;
        transaction.role = role;
        let pending = PendingCall { parent: Parent::Nobody, owner: None, depth: 0, call };
        self.call_away(&mut transaction, to, pending, world);
        self.drive(transaction, world);
    }

    /// Adds the row of a workflow's call that is being committed to the commit's own entry.
    pub(crate) fn add_step(
        &mut self,
        transaction: &Transaction,
        output: &Output,
        writes: &mut Vec<Write>,
        world: &World<'_>,
    ) -> Option<JournalRow> {
        let Origin::Step { workflow: id, operation, .. } = &transaction.origin else {
            return None;
        };
        let mut workflow = self.workflows.live.remove(id)?;
        let result = Ok(if let Output::Value(json) = output { json.clone() } else { Bytes::new() });
        let open = workflow.open.get(operation).map(|open| (open.kind, open.name.clone()));
        let row = open.map(|(kind, name)| JournalRow { kind, operation: *operation, ended: world.now, name, result });
        writes.extend(row.as_ref().map(|row| self.row_write(&mut workflow, row)));
        self.workflows.live.insert(*id, workflow);
        row
    }

    /// The entry with a call's row is made: whoever else keeps the result need not any longer,
    /// once the entry is durable.
    pub(crate) fn step_committed(
        &mut self,
        transaction: &Transaction,
        row: JournalRow,
        lsn: Lsn,
        world: &mut World<'_>,
    ) {
        let Origin::Step { workflow: id, call, .. } = &transaction.origin else {
            return;
        };
        self.give_up_kept(*id, row.operation, &call.key, lsn, world);
        if let Some(mut workflow) = self.workflows.live.remove(id) {
            // Made again, the call would find the result that the other shard keeps. Beside other
            // operations the order in which they end might be another one.
            let is_repeatable = transaction.is_kept_away && workflow.open.len() == 1;
            workflow.noted(lsn, is_repeatable);
            self.row_made(&mut workflow, row);
            self.workflows.live.insert(*id, workflow);
        }
    }

    /// Lets another shard delete the result that it may keep of a call, once `lsn` is durable.
    pub(crate) fn give_up_kept(&mut self, id: Sequence, operation: u32, key: &[u8], lsn: Lsn, world: &mut World<'_>) {
        let (own, to) = (self.options.shard, shard_of_key(key, self.options.shard_count));
        if to != own {
            let about = TransactionId { home: own, incarnation: self.options.incarnation, number: 0 };
            let body = PeerBody::Forget(once_field(own, id, operation));
            let message = self.about(about, body);
            self.held.release(Leaving::Peer(to, message), lsn, self.durable, world.outputs);
        }
    }

    /// A workflow's call did not take effect: made again if that may help, or the workflow's.
    pub(crate) fn step_failed(&mut self, id: Sequence, operation: u32, error: Error, world: &mut World<'_>) {
        let Some(workflow) = self.workflows.live.get_mut(&id) else {
            return;
        };
        let is_cancelled = workflow.record.is_cancelled;
        let Some(open) = workflow.open.get_mut(&operation) else {
            return;
        };
        open.attempts += 1;
        // A shard that has stopped may have made it.
        open.is_under_way = error.code == ErrorCode::ShardStopped;
        let attempts = open.attempts;
        let is_compensation = open.kind == StepKind::Compensation;
        let call = if let (true, Work::Call(call)) = (is_compensation, &open.work) { Some(call.clone()) } else { None };
        let message = call.and_then(|call| as_message(call, attempts, world));
        if let Some(message) = &message {
            self.tell_of_failure(id, message, &error, world);
        }
        let is_tried = is_compensation && attempts < limits::MESSAGE_ATTEMPTS;
        if is_passing(error.code) || (is_tried && error.code != ErrorCode::Aborted) {
            let retry = world.now.plus(retry_wait_ms(attempts));
            self.workflows.timers.insert((retry, id, operation));
            if is_cancelled {
                self.workflows.runnable.push_back(id);
            }
        } else {
            // While the disk is full the operation does not end, and is tried again.
            let message = message.filter(|_| !world.is_read_only);
            let letter = message.map(|message| self.compensation_letter(id, &message, &error));
            self.operation_ended(id, operation, Err(error), letter.into_iter().collect(), world);
        }
    }

    /// A compensation that failed for good waits among the dead letters, where somebody can have
    /// it made again.
    fn compensation_letter(&mut self, id: Sequence, message: &MessageRecord, error: &Error) -> Write {
        let place = Sequence { lsn: self.store.lsn().next(), index: 0 };
        self.set_aside((id, place), message, error, "a compensation")
    }
}

/// A compensation as a message that makes the same call.
fn as_message(call: NestedCall, attempts: u32, world: &World<'_>) -> Option<MessageRecord> {
    let (app, service, handler) = world.catalog.names(call.handler)?;
    Some(MessageRecord {
        keeps_outcome: false,
        invocation: None,
        is_signal: false,
        was_set_aside: false,
        attempts,
        due: world.now,
        app: app.to_string(),
        service: service.to_string(),
        handler: handler.to_string(),
        key: call.key,
        input: call.input,
    })
}
