//! The engine: programs of the built-in app, its activations and what they wait for. Triggers run in another engine.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use millrace_api::{BuiltInReply, TRIGGERS_SERVICE};
use millrace_base::{Error, ErrorCode, Name, limits, shard_of_key};
use millrace_func::{
    ActivationId, Answer, App, Engine, HandlerId, Host, OperationId, Output, Program, Reader, Service, Start,
    TurnResult,
};

use crate::cache::Cache;
use crate::program::{RecordProgram, Schemas, ServiceRole};
use crate::triggers::{self, TriggerHost, explain};
use crate::turn::{Progress, Shared, Task, Turn};
use crate::{apply, changes, expire, migrate, program, progress, read, scan, sweep, write};

/// Runs operations on records, and their triggers in the wrapped engine. See the crate's documentation.
pub struct RecordsEngine<E> {
    inner: E,
    shared: Shared,
    /// A higher number was loaded later.
    programs: RefCell<BTreeMap<Program, Rc<RecordProgram>>>,
    schemas: Rc<Schemas>,
    /// Types that are being deleted, or were. No program older than the given one writes records of them.
    closed: RefCell<BTreeMap<Name, Program>>,
    /// Activations that wait. The wrapped engine keeps those of triggers, too.
    activations: RefCell<BTreeMap<u32, Waiting>>,
}

struct Waiting {
    program: Rc<RecordProgram>,
    what: What,
}

enum What {
    /// An operation on records.
    Task(Box<dyn Task>),
    /// A trigger, which waits in the wrapped engine, and how many triggers led to it.
    Trigger { id: HandlerId, depth: u8 },
}

/// For each shard, the smallest number whose text is placed there. It is the key of the entity that keeps the shard's
/// index rows, changes and sweep.
#[must_use]
pub fn shard_keys(shard_count: u16) -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new(); usize::from(shard_count)];
    let mut missing = keys.len();
    let mut number = 0_u64;
    while missing > 0 {
        let text = number.to_string();
        let slot = &mut keys[usize::from(shard_of_key(text.as_bytes(), shard_count).0)];
        if slot.is_empty() {
            *slot = text.into_bytes();
            missing -= 1;
        }
        number += 1;
    }
    keys
}

impl<E: Engine> RecordsEngine<E> {
    /// An engine without programs, for a node with so many shards (at least one).
    #[must_use]
    pub fn new(inner: E, shard_count: u16) -> Self {
        let shared = Shared {
            shard_keys: shard_keys(shard_count),
            paths: RefCell::new(Cache::default()),
            predicates: RefCell::new(Cache::default()),
            output: RefCell::default(),
        };
        Self {
            inner,
            shared,
            programs: RefCell::default(),
            schemas: Rc::default(),
            closed: RefCell::default(),
            activations: RefCell::new(BTreeMap::new()),
        }
    }

    /// The wrapped engine.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    fn program(&self, program: Program) -> Option<Rc<RecordProgram>> {
        self.programs.borrow().get(&program).cloned()
    }

    /// Triggers in the wrapped engine, under the number of the program that brought them first. Most
    /// changes of types leave the triggers as they are, and loading triggers takes long.
    fn load_triggers(&self, number: Program, triggers: App) -> Result<(Program, Rc<App>), Error> {
        let programs = self.programs.borrow();
        let mut known = programs.values().rev().filter_map(|known| known.inner.zip(known.triggers_app.as_ref()));
        if let Some((inner, app)) = known.find(|(_, app)| ***app == triggers) {
            return Ok((inner, Rc::clone(app)));
        }
        self.inner.load(number, &triggers).map_err(|error| explain(error, &triggers))?;
        Ok((number, Rc::new(triggers)))
    }

    /// Begins an activation of the built-in app.
    fn start_own(
        &self,
        activation: ActivationId,
        id: HandlerId,
        (key, input): (&[u8], &[u8]),
        host: &mut dyn Host,
    ) -> TurnResult {
        let Some(program) = self.program(id.program) else {
            return TurnResult::Done(Err(unknown_program()));
        };
        let place = program.place(id.service);
        if let Some(ServiceRole::Triggers { inner_service, .. }) = place {
            let (Some(inner), service) = (program.inner, inner_service) else {
                return TurnResult::Done(Err(unknown_program()));
            };
            let depth = triggers::depth_of(input);
            if depth > limits::TRIGGER_DEPTH {
                return TurnResult::Done(Err(program.too_deep(id)));
            }
            let start = Start::Handler { id: HandlerId { program: inner, service, handler: id.handler }, key, input };
            let step = self.inner.start(activation, start, &mut TriggerHost { host, program: &program, depth });
            return self.trigger_stepped(activation, program, (id, depth), step);
        }
        let mut turn = Turn { shared: &self.shared, program: &program, host, depth: 0 };
        let progress = match (place, id.handler) {
            (Some(ServiceRole::Type(index)), program::READ) => read::start(&mut turn, index, key, input),
            (Some(ServiceRole::Type(index)), program::WRITE | program::FOLLOW) if self.is_closed(&program, index) => {
                Err(being_deleted(program.types[index].name.as_str()))
            }
            (Some(ServiceRole::Type(index)), program::WRITE) => write::start(&mut turn, index, key, input),
            (Some(ServiceRole::Type(index)), program::FOLLOW) => {
                // Written by `TriggerHost::operate`.
                let (depth, input) = input.split_first().map_or((0, input), |(depth, input)| (*depth, input));
                turn.depth = depth;
                write::start(&mut turn, index, key, input)
            }
            (Some(ServiceRole::Type(index)), program::EXPIRE) => expire::start(&mut turn, index, key, input),
            (Some(ServiceRole::Type(index)), program::MIGRATE) => migrate::start(&mut turn, index, key),
            (Some(ServiceRole::Shard(index)), program::APPLY) => apply::run(&mut turn, index, input),
            (Some(ServiceRole::Shard(index)), program::SCAN) => scan::start(&mut turn, index, input),
            (Some(ServiceRole::Shard(index)), program::CHANGES) => changes::of_shard(&mut turn, index, input),
            (Some(ServiceRole::Shard(index)), program::PROGRESS) => progress::of_shard(&mut turn, index),
            (Some(ServiceRole::Shard(index)), program::SWEEP) => sweep::start(&mut turn, index, key, input),
            _ => Err(unknown_program()),
        };
        self.progressed(activation, program, progress)
    }

    /// Whether a program must no longer write records of one of its types.
    fn is_closed(&self, program: &RecordProgram, type_index: usize) -> bool {
        let closed = self.closed.borrow();
        !closed.is_empty() && closed.get(&program.types[type_index].name).is_some_and(|by| program.number < *by)
    }

    fn progressed(
        &self,
        activation: ActivationId,
        program: Rc<RecordProgram>,
        progress: Result<Progress, Error>,
    ) -> TurnResult {
        match progress {
            Ok(Progress::Done(output)) => TurnResult::Done(Ok(Output::Value(output))),
            Ok(Progress::Wait(task)) => {
                self.activations.borrow_mut().insert(activation.0, Waiting { program, what: What::Task(task) });
                TurnResult::Waiting
            }
            Err(error) => TurnResult::Done(Err(error)),
        }
    }

    fn trigger_stepped(
        &self,
        activation: ActivationId,
        program: Rc<RecordProgram>,
        (id, depth): (HandlerId, u8),
        step: TurnResult,
    ) -> TurnResult {
        match step {
            TurnResult::Waiting => {
                self.activations
                    .borrow_mut()
                    .insert(activation.0, Waiting { program, what: What::Trigger { id, depth } });
                TurnResult::Waiting
            }
            TurnResult::Done(Err(error)) => TurnResult::Done(Err(match &program.triggers_app {
                Some(app) => triggers::explain_run(error, app, program.trigger_names(id)),
                None => error,
            })),
            done => done,
        }
    }
}

/// The type may stay, if it has records. So no caller gets the news of its deletion before it is deleted.
fn being_deleted(type_name: &str) -> Error {
    Error::new(ErrorCode::Overloaded, format!("the type {type_name:?} is being deleted at this moment; try again"))
}

fn unknown_program() -> Error {
    Error::new(ErrorCode::Internal, "the engine has no such program, service or handler")
}

impl<E: Engine> Engine for RecordsEngine<E> {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        if self.program(program).is_some() {
            return Err(Error::new(ErrorCode::Internal, "the program's number is taken"));
        }
        let before = self.programs.borrow().values().next_back().cloned();
        let (mut loaded, triggers) = RecordProgram::read(app, program, &self.schemas, before.as_deref())?;
        if let Some(triggers) = triggers {
            let (inner, app) = self.load_triggers(program, triggers)?;
            loaded.set_inner(inner, &self.inner.services(inner), app);
        }
        self.programs.borrow_mut().insert(program, Rc::new(loaded));
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        self.program(program).map_or_else(Vec::new, |program| program.services.clone())
    }

    fn sweeps(&self, program: Program) -> Vec<(Name, u64)> {
        self.program(program).map_or_else(Vec::new, |program| program.sweeps())
    }

    fn begun_again(&self, _: Program, service: &str, input: Bytes) -> Bytes {
        if triggers::is_service(service) { triggers::without_depth(&input).unwrap_or(input) } else { input }
    }

    /// An abort is an answer, and nobody receives that of a trigger: the change is committed and cannot be refused any
    /// more. So it is a failure like any other, to be tried again and kept. The trigger may have thrown it, or a call that
    /// the trigger did not wait for.
    fn failure_of(&self, _: Program, service: &str, handler: &str, error: Error) -> Error {
        if error.code != ErrorCode::Aborted {
            return error;
        }
        let trigger = handler.trim_start_matches('_');
        let type_name = service.trim_end_matches(TRIGGERS_SERVICE);
        let text = format!("trigger {trigger:?} of the type {type_name:?}: it aborted: {}", error.message);
        Error { code: ErrorCode::FunctionFailed, message: text, ..error }
    }

    fn drops(&self, program: Program, service: &str, handler: &str) -> bool {
        self.program(program).is_some_and(|program| program.drops(service, handler))
    }

    fn close(&self, program: Program) -> Vec<Name> {
        let emptied = self.program(program).map_or_else(Vec::new, |program| program.emptied.clone());
        self.closed.borrow_mut().extend(emptied.iter().map(|name| (name.clone(), program)));
        emptied
    }

    fn reopen(&self, program: Program) {
        self.closed.borrow_mut().retain(|_, by| *by != program);
    }

    fn unload(&self, program: Program) {
        self.activations.borrow_mut().retain(|_, waiting| waiting.program.number != program);
        let mut programs = self.programs.borrow_mut();
        let unloaded = programs.remove(&program);
        // Closed types matter for older programs only.
        let oldest = programs.keys().next();
        self.closed.borrow_mut().retain(|_, by| oldest.is_some_and(|oldest| oldest < by));
        let Some(inner) = unloaded.and_then(|program| program.inner) else {
            return;
        };
        if programs.values().all(|other| other.inner != Some(inner)) {
            self.inner.unload(inner);
        }
    }

    fn answer(&self, query: HandlerId, input: &[u8], reader: &mut dyn Reader) -> Option<Result<Answer, Error>> {
        let program = self.program(query.program)?;
        match (program.place(query.service)?, query.handler) {
            (ServiceRole::Type(index), program::READ) => read::at_once(&self.shared, &program, index, input, reader)
                .map(|read| read.map(|reply| Answer::BuiltIn(BuiltInReply::Record(reply)))),
            _ => None,
        }
    }

    #[inline]
    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        match start {
            Start::Handler { id, key, input } => self.start_own(activation, id, (key, input), host),
            Start::Route { .. } => TurnResult::Done(Err(unknown_program())),
        }
    }

    #[inline]
    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        let waiting = self.activations.borrow_mut().remove(&activation.0);
        match waiting {
            None => TurnResult::Done(Err(unknown_program())),
            Some(Waiting { program, what: What::Trigger { id, depth } }) => {
                let mut trigger_host = TriggerHost { host, program: &program, depth };
                let step = self.inner.resume(activation, operation, result, &mut trigger_host);
                self.trigger_stepped(activation, program, (id, depth), step)
            }
            Some(Waiting { program, what: What::Task(task) }) => {
                // The rest of a task sends nothing that depends on the depth.
                let mut turn = Turn { shared: &self.shared, program: &program, host, depth: 0 };
                let progress = task.resume(&mut turn, operation, result);
                self.progressed(activation, program, progress)
            }
        }
    }

    fn cancel(&self, activation: ActivationId) {
        let waiting = self.activations.borrow_mut().remove(&activation.0);
        if matches!(waiting, Some(Waiting { what: What::Trigger { .. }, .. })) {
            self.inner.cancel(activation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_the_smallest_number_placed_there() {
        for shards in [1, 3, 64] {
            let keys = shard_keys(shards);
            for (shard, key) in (0_u16..).zip(&keys) {
                assert_eq!(shard_of_key(key, shards).0, shard);
                let number: u64 = std::str::from_utf8(key).expect("digits").parse().expect("a number");
                let is_placed = |number: u64| shard_of_key(number.to_string().as_bytes(), shards).0 == shard;
                assert!(!(0..number).any(is_placed));
            }
        }
    }
}
