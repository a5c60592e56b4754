//! The code of a workflow's steps, kept apart from the workflow's own.
//!
//! A replay that knows a step's result does not run the step's code. So nothing that this code
//! does may count in the order of the workflow's own operations and random numbers:
//!
//! * A step's code does not start inside `ctx.step` but when everything else that could run in
//!   the turn has run; one step after the other, each until it waits. While it runs, what it
//!   starts is marked as the step's ([`millrace_func::Host::within_step`]), and so is what runs
//!   when one of those operations ends.
//! * A step has random numbers of its own, from one number of the workflow's that is drawn
//!   whether the code runs or not.
//!
//! What a step's code leaves behind when it has ended can start nothing more.

use millrace_base::{Error, ErrorCode};
use millrace_func::OperationId;

use crate::isolate::Isolate;
use crate::js::{PromiseState, Raw, Thrown, UNDEFINED};

/// A step whose code has not ended. Owns one reference to its value; whoever removes it from its
/// list releases it.
#[derive(Clone, Copy)]
pub(crate) struct RunningStep {
    pub(crate) id: OperationId,
    pub(crate) code: Code,
    /// The state of its random numbers.
    pub(crate) random: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Code {
    /// The function, not called yet.
    Queued(Raw),
    /// The promise for its end.
    Running(Raw),
}

impl RunningStep {
    /// Gives up the function or promise.
    pub(crate) fn release(self, isolate: &Isolate) {
        let (Code::Queued(raw) | Code::Running(raw)) = self.code;
        isolate.context.free(raw);
    }
}

impl Isolate {
    /// Whether any step's code has not ended.
    #[inline]
    pub(crate) fn has_steps(&self) -> bool {
        !self.steps.borrow().is_empty()
    }

    /// From here on the code of `step` runs, or the activation's own.
    pub(crate) fn enter_step(&self, step: Option<OperationId>) {
        if self.step.replace(step) != step {
            self.host.with(|host| {
                if let Some(flow) = host.flow() {
                    flow.within_step(step);
                }
            });
        }
    }

    /// Whether what runs is the code of a step that has ended.
    pub(crate) fn check_step(&self) -> Result<(), Thrown> {
        match self.step.get() {
            Some(step) if !self.steps.borrow().iter().any(|running| running.id == step) => {
                let message = "this is code of a step that has ended: await everything inside the step";
                Err(self.throw_error(Error::new(ErrorCode::FunctionFailed, message)))
            }
            _ => Ok(()),
        }
    }

    /// 64 random bits, of the step whose code runs or of the activation.
    pub(crate) fn random_bits(&self) -> Result<u64, Thrown> {
        let Some(step) = self.step.get() else {
            return self.with_host(|host| Ok(host.random()));
        };
        self.check_step()?;
        let mut steps = self.steps.borrow_mut();
        Ok(steps.iter_mut().find(|running| running.id == step).map_or(0, |running| next_random(&mut running.random)))
    }

    /// Runs the steps' code as far as it goes and reports what has ended. Nothing more is started
    /// once the activation's own promise is rejected: then the workflow undoes what it has done.
    ///
    /// # Errors
    /// What the host refused; the activation ends with it.
    #[cold]
    pub(crate) fn run_steps(&self, returned: Raw) -> Result<(), Error> {
        loop {
            self.end_steps()?;
            let has_failed = matches!(self.returned(returned), PromiseState::Rejected(_));
            if has_failed || self.budget.breach().is_some() || !self.start_step()? {
                break;
            }
            self.run_jobs();
        }
        self.enter_step(None);
        Ok(())
    }

    /// Calls the code of the first step in the queue; false when the queue is empty.
    fn start_step(&self) -> Result<bool, Error> {
        let queued = self.steps.borrow().iter().find_map(|step| match step.code {
            Code::Queued(function) => Some((step.id, function)),
            Code::Running(_) => None,
        });
        let Some((id, function)) = queued else {
            return Ok(false);
        };
        self.enter_step(Some(id));
        // The list keeps the function until the promise takes its place.
        let promise = self.context.call(self.glue.run_step, UNDEFINED, &mut [function]);
        let promise = promise.map_err(|Thrown| self.take_error())?;
        let mut steps = self.steps.borrow_mut();
        if let Some(step) = steps.iter_mut().find(|step| step.id == id) {
            step.code = Code::Running(promise.into_raw());
            drop(steps);
            self.context.free(function);
        }
        Ok(true)
    }

    /// Tells the host of every step whose code has ended.
    fn end_steps(&self) -> Result<(), Error> {
        while self.budget.breach().is_none() {
            let ended = self.steps.borrow().iter().find_map(|step| match step.code {
                Code::Queued(_) => None,
                Code::Running(promise) => match self.context.promise_state(promise) {
                    PromiseState::Pending => None,
                    PromiseState::Fulfilled(value) => Some((step.id, Ok(value))),
                    PromiseState::Rejected(reason) => Some((step.id, Err(reason))),
                },
            });
            let Some((id, ended)) = ended else {
                return Ok(());
            };
            // Reading the result may run user code.
            self.enter_step(Some(id));
            let result = match ended {
                Ok(value) => self.handler_output(value.raw()),
                Err(reason) => Err(self.error_of(reason.raw())),
            };
            if self.budget.breach().is_some() {
                return Ok(());
            }
            if let Some(reported) = self.host.with(|host| host.in_workflow("step")?.end_step(id, result)) {
                reported?;
            }
            self.forget_step(id);
            self.run_jobs();
        }
        Ok(())
    }

    /// Forgets the step with this operation, if there is one.
    pub(crate) fn forget_step(&self, id: OperationId) {
        let mut steps = self.steps.borrow_mut();
        if let Some(index) = steps.iter().position(|step| step.id == id) {
            let step = steps.remove(index);
            drop(steps);
            step.release(self);
        }
    }
}

/// The next number of a SplitMix64 generator.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
