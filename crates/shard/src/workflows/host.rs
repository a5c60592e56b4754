//! The world as a workflow's code sees it during one turn.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, UnixMillis, Value, fingerprint, limits};
use millrace_format::StepKind;
use millrace_func::{
    AttemptToken, BuiltInCall, FetchRequest, Flow, Host, LogLevel, Message, NestedCall, Offload, OperationId,
    RetryOptions, ScanRequest, StepStart, WorkerHost, WorkerTurn,
};

use super::awaiting::Awaited;
use super::exchanges::{EXCHANGE, Exchange};
use super::operations::ticket_of;
use super::workflow::{Work, Workflow, target_name};
use crate::built_in::built_in_call;
use crate::checks::{check_callee, check_input, may_fetch, refused};
use crate::outgoing::{Outgoing, signal_target, started_workflow, told_id};
use crate::request::{InvocationId, Sequence};
use crate::world::World;

/// The world as a workflow's code sees it during one turn.
pub(super) struct WorkflowHost<'a, 'w> {
    pub workflow: &'a mut Workflow,
    pub world: &'a mut World<'w>,
    pub shard_count: u16,
}

fn only_through_handlers<T>() -> Result<T, Error> {
    Err(refused("a workflow changes state through the handlers it calls"))
}

impl WorkflowHost<'_, '_> {
    /// Random bits that are the same whenever the workflow runs again.
    fn draw(&mut self) -> u64 {
        let index = self.workflow.random_index;
        self.workflow.random_index = index.wrapping_add(1);
        let run = self.workflow.upcoming_run();
        self.world.entropy.draw_keyed(self.random_key(b"workflow", 0, run), index)
    }

    fn random_key(&self, what: &[u8], operation: u32, run: u64) -> u64 {
        let InvocationId { shard, sequence } = self.workflow.id;
        let run = run.to_be_bytes();
        // Those of the first run are what they were before there were others.
        let run = if run == [0; 8] { &[][..] } else { &run };
        fingerprint(&[what, &shard.0.to_be_bytes(), &sequence.encode(), &operation.to_be_bytes(), run])
    }

    fn ask(&mut self, kind: StepKind, name: String, work: Work) -> Result<OperationId, Error> {
        self.workflow.known(kind, &name)?;
        self.workflow.ask(kind, name, work).map(OperationId)
    }

    /// An operation that has no result to wait for: done at the end of the turn, once.
    fn ask_outgoing(&mut self, kind: StepKind, name: String, outgoing: Outgoing) -> Result<(), Error> {
        let is_sent = self.workflow.known(kind, &name)?;
        let operation = self.workflow.next_operation()?;
        self.workflow.count_operation();
        if !is_sent {
            self.workflow.outgoing.push((operation, name, outgoing));
        }
        Ok(())
    }

    /// What a step's code does is not seen when its result is known.
    fn only_outside_steps(&self, what: &str) -> Result<(), Error> {
        match self.workflow.scope {
            None => Ok(()),
            Some(_) => Err(refused(&format!("ctx.{what} is for the workflow itself, not for the code of a step"))),
        }
    }
}

impl Host for WorkflowHost<'_, '_> {
    fn get(&mut self, _field: &[u8]) -> Result<Option<&Value>, Error> {
        only_through_handlers()
    }

    fn set(&mut self, _field: &[u8], _value: Value) -> Result<(), Error> {
        only_through_handlers()
    }

    fn delete(&mut self, _field: &[u8]) -> Result<bool, Error> {
        only_through_handlers()
    }

    fn scan(&mut self, _request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        only_through_handlers()
    }

    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        only_through_handlers()
    }

    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error> {
        let own = || self.workflow.record.key.clone();
        let call = built_in_call(self.workflow.handler.program, call, own, self.world)?;
        self.call(call)
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        let checked = check_callee(&call, &self.workflow.limits, self.world);
        if checked.is_err() {
            self.workflow.next_retry = None; // It was for this call.
        }
        checked?;
        let name = target_name(call.handler, &call.key, self.world);
        self.ask(StepKind::Call, name, Work::Call(call))
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        check_input(&message.key, &message.input, &self.workflow.limits)?;
        let target = target_name(message.handler, &message.key, self.world);
        let name = message.id.as_ref().map_or_else(|| target.clone(), |id| format!("{target} as {id}"));
        let started = started_workflow(&message, self.shard_count, self.world)?;
        let operation = self.workflow.next_operation()?;
        let key = self.random_key(b"started", operation, self.workflow.run_of(operation));
        let bits = [0, 1].map(|index| self.world.entropy.draw_keyed(key, index));
        let workflow = started.map(|started| started.id(|| Sequence::drawn(bits)));
        let told = told_id(&message, workflow);
        self.ask_outgoing(StepKind::Send, name, Outgoing::Message(message, workflow))?;
        Ok(told)
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        let to = signal_target(invocation, self.shard_count)?;
        check_input(name.as_bytes(), &payload, &self.workflow.limits)?;
        let signal = Outgoing::Signal { to, name: name.to_owned(), payload };
        self.ask_outgoing(StepKind::Signal, name.to_owned(), signal)
    }

    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        self.ask(StepKind::Hash, String::new(), Work::Hash(work))
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        may_fetch(self.workflow.handler.program, &request, self.world)?;
        let name = format!("{} {}", request.method, request.url);
        self.ask(StepKind::Fetch, name, Work::Fetch(request))
    }

    fn now(&self) -> UnixMillis {
        self.workflow.time()
    }

    fn random(&mut self) -> u64 {
        self.draw()
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        // What it logs on a path it has gone before was logged then.
        if self.workflow.replayed_left == 0 {
            let record = &self.workflow.record;
            self.world.outputs.log(&record.app, &record.service, level, line);
        }
    }

    fn worker(&mut self) -> Result<&mut dyn WorkerHost, Error> {
        Ok(self)
    }

    fn flow(&mut self) -> Option<&mut dyn Flow> {
        Some(self)
    }
}

impl WorkerHost for WorkflowHost<'_, '_> {
    fn exchange(&mut self, turn: WorkerTurn) -> Result<OperationId, Error> {
        self.workflow.on_worker.exchange = Exchange::UnderWay;
        self.world.outputs.exchange(ticket_of(self.workflow, EXCHANGE), turn);
        Ok(OperationId(EXCHANGE))
    }

    fn attempt(&mut self) -> AttemptToken {
        self.world.attempt_token(self.workflow.nonce)
    }

    // Nothing waits for a workflow, so nothing ends it sooner.
    fn left_ms(&mut self, timeout_ms: u64) -> u64 {
        timeout_ms
    }

    fn entity_changes(&self) -> u64 {
        0
    }

    fn whole(&mut self, _max_bytes: usize) -> Result<Option<Vec<(Vec<u8>, Value)>>, Error> {
        only_through_handlers()
    }
}

impl Flow for WorkflowHost<'_, '_> {
    fn sleep(&mut self, delay_ms: u64) -> Result<OperationId, Error> {
        let until = self.workflow.time().plus(delay_ms);
        self.ask(StepKind::Sleep, format!("{delay_ms} ms"), Work::Sleep(until))
    }

    fn wait(&mut self, name: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        let until = timeout_ms.map(|timeout_ms| self.workflow.time().plus(timeout_ms));
        self.ask(StepKind::Wait, name.to_owned(), Work::Wait(until))
    }

    fn result(&mut self, invocation: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        let of = signal_target(invocation, self.shard_count)?;
        if of == self.workflow.id {
            return Err(refused("a workflow cannot wait for its own result"));
        }
        let now = self.workflow.time();
        let until = timeout_ms.map(|timeout_ms| now.plus(timeout_ms));
        let awaited = Awaited { of, until, known_by: now.plus(limits::RESULT_UNKNOWN_MS) };
        self.ask(StepKind::Result, invocation.to_owned(), Work::Result(awaited))
    }

    fn retry_next(&mut self, options: RetryOptions) {
        self.workflow.next_retry = Some(options);
    }

    fn begin_step(&mut self, name: &str) -> Result<StepStart, Error> {
        self.only_outside_steps("step")?;
        let is_known = self.workflow.known(StepKind::Step, name)?;
        let work = if is_known { Work::Known } else { Work::Step };
        let operation = OperationId(self.workflow.ask(StepKind::Step, name.to_owned(), work)?);
        Ok(if is_known { StepStart::Known(operation) } else { StepStart::Run(operation) })
    }

    fn end_step(&mut self, operation: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        self.workflow.ended_steps.push((operation.0, result));
        Ok(())
    }

    fn within_step(&mut self, step: Option<OperationId>) {
        self.workflow.scope = step.map(|step| step.0);
    }

    fn compensate(&mut self, call: NestedCall) -> Result<(), Error> {
        self.only_outside_steps("compensate")?;
        check_callee(&call, &self.workflow.limits, self.world)?;
        if self.workflow.compensations.len() >= limits::WORKFLOW_OPERATIONS as usize {
            return Err(Error::new(ErrorCode::OperationLimit, "too many compensations in one workflow"));
        }
        self.workflow.compensations.push(call);
        Ok(())
    }

    fn invocation(&self) -> String {
        self.workflow.record.chosen_id.clone().unwrap_or_else(|| self.workflow.id.to_string())
    }
}
