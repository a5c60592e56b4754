//! The engine: activations and the attempts that run them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{
    ActivationId, App, AttemptToken, Engine, HandlerId, Host, OperationId, Program, Service, Start, TurnResult,
    WorkerSlot,
};

use crate::act::{Acted, act};
use crate::attempt::Attempt;
use crate::program::RemoteProgram;
use crate::start::{begin, tell_changes};

/// Runs handlers in workers. See the crate's documentation.
pub struct RemoteEngine {
    programs: RefCell<BTreeMap<Program, RemoteProgram>>,
    attempts: RefCell<BTreeMap<ActivationId, Attempt>>,
    given_up: Box<dyn Fn(Program, AttemptToken)>,
    slots: Box<dyn Fn(HandlerId) -> Option<WorkerSlot>>,
}

impl RemoteEngine {
    /// An engine without programs. `given_up` is told of attempts that nobody waits for any more; `slots` gives what
    /// [`Engine::enter`] gives.
    #[must_use]
    pub fn new(
        given_up: impl Fn(Program, AttemptToken) + 'static,
        slots: impl Fn(HandlerId) -> Option<WorkerSlot> + 'static,
    ) -> Self {
        let (given_up, slots) = (Box::new(given_up), Box::new(slots));
        Self { programs: RefCell::default(), attempts: RefCell::default(), given_up, slots }
    }

    /// Lets the attempt go on, and keeps it if it waits.
    fn step(
        &self,
        activation: ActivationId,
        mut attempt: Attempt,
        go_on: impl FnOnce(&mut Attempt) -> Acted,
    ) -> TurnResult {
        match go_on(&mut attempt) {
            Ok(None) => {
                self.attempts.borrow_mut().insert(activation, attempt);
                TurnResult::Waiting
            }
            Ok(Some(output)) => TurnResult::Done(Ok(output)),
            Err(error) => {
                (self.given_up)(attempt.program, attempt.token);
                TurnResult::Done(Err(error))
            }
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorCode::UnknownApp, "the app's version is not loaded any more")
}

impl Engine for RemoteEngine {
    fn load(&self, program: Program, app: &App) -> Result<(), Error> {
        let loaded = RemoteProgram::load(app)?;
        if self.programs.borrow().contains_key(&program) {
            return Err(Error::new(ErrorCode::Internal, "a program of this number is loaded"));
        }
        self.programs.borrow_mut().insert(program, loaded);
        Ok(())
    }

    fn services(&self, program: Program) -> Vec<Service> {
        self.programs.borrow().get(&program).map(|loaded| loaded.services.clone()).unwrap_or_default()
    }

    fn enter(&self, root: HandlerId) -> Option<WorkerSlot> {
        (self.slots)(root)
    }

    fn unload(&self, program: Program) {
        self.programs.borrow_mut().remove(&program);
    }

    fn start(&self, activation: ActivationId, start: Start<'_>, host: &mut dyn Host) -> TurnResult {
        let programs = self.programs.borrow();
        let Some(program) = programs.get(&start.program()) else {
            return TurnResult::Done(Err(gone()));
        };
        match begin(program, &start, host) {
            Ok(attempt) => self.step(activation, attempt, |attempt| attempt.exchange(host).map(|()| None)),
            Err(error) => TurnResult::Done(Err(error)),
        }
    }

    fn resume(
        &self,
        activation: ActivationId,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnResult {
        let Some(attempt) = self.attempts.borrow_mut().remove(&activation) else {
            return TurnResult::Done(Err(Error::new(ErrorCode::Internal, "nothing runs under this number")));
        };
        let programs = self.programs.borrow();
        let Some(program) = programs.get(&attempt.program) else {
            return TurnResult::Done(Err(gone()));
        };
        self.step(activation, attempt, |attempt| {
            if attempt.is_exchange(operation) {
                let frames = attempt.read(result?)?;
                let before = host.worker()?.entity_changes();
                if let Some(output) = act(program, attempt, frames, host)? {
                    return Ok(Some(output));
                }
                // What others have changed meanwhile, the worker has yet to be told.
                attempt.known_changes += host.worker()?.entity_changes() - before;
                for (operation, result) in attempt.take_early() {
                    tell_changes(program, attempt, host)?;
                    attempt.ended(operation, result)?;
                }
            } else if attempt.is_exchanging() {
                attempt.came_early(operation, result)?;
            } else {
                tell_changes(program, attempt, host)?;
                attempt.ended(operation, result)?;
            }
            if attempt.can_go_on() { attempt.exchange(host).map(|()| None) } else { Ok(None) }
        })
    }

    fn cancel(&self, activation: ActivationId) {
        if let Some(attempt) = self.attempts.borrow_mut().remove(&activation) {
            (self.given_up)(attempt.program, attempt.token);
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
