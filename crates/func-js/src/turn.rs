//! One turn: from the host's entry into an isolate until its activation ended or waits, and nothing is
//! left to run.

use std::borrow::Cow;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{HandlerKind, Host, HttpRequest, OperationId, Output};
use rquickjs::qjs;

use crate::budget::Breach;
use crate::host_scope::HostGuard;
use crate::isolate::Isolate;
use crate::js::{Kind, PromiseState, Raw, Thrown, UNDEFINED, Value, kind};
use crate::logged::Logged;
use crate::operations::{Answer, Operation};
use crate::steps::RunningStep;
use crate::subject::Subject;

/// What an activation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationKind {
    Handler,
    Workflow,
    Route,
}

/// An activation between its turns. Its values belong to its isolate: they are released with
/// [`Waiting::release`], or forgotten when the isolate is gone.
pub(crate) struct Waiting {
    serial: usize,
    kind: ActivationKind,
    /// What the code returned: a promise or a value.
    returned: Raw,
    operations: Vec<Operation>,
    steps: Vec<RunningStep>,
    subject: Subject<'static>,
    used_ns: u64,
    logged: Logged,
}

/// Where an activation stands after a turn.
pub(crate) enum TurnEnd {
    Done(Result<Output, Error>),
    Waits(Box<Waiting>),
}

/// How the code of a turn ended.
enum Ended {
    Done(Result<Output, Error>),
    /// With what the code returned, mostly a promise, and what the turn used.
    Waits(Value, u64),
}

/// While it lives, a turn runs.
struct Turn<'a> {
    isolate: &'a Isolate,
    _host: HostGuard<'a>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.isolate.serial.set(0);
        self.isolate.step.set(None);
    }
}

impl Waiting {
    /// Gives up the activation's values.
    pub(crate) fn release(self, isolate: &Isolate) {
        isolate.rejections.activation_goes_on(self.returned);
        isolate.context.free(self.returned);
        isolate.forget_rejections(self.serial);
        for operation in self.operations {
            operation.release(isolate);
        }
        for step in self.steps {
            step.release(isolate);
        }
    }
}

impl Isolate {
    #[inline]
    fn begin_turn<'a>(
        &'a self,
        activation: ActivationKind,
        serial: usize,
        used_ns: u64,
        host: &'a mut (dyn Host + 'a),
        subject: &'a Subject<'a>,
    ) -> Turn<'a> {
        // SAFETY: plain call on a live runtime.
        unsafe { qjs::JS_UpdateStackTop(self.runtime.as_ptr()) };
        self.heap.take_refused();
        self.serial.set(serial);
        self.rejections.watch(activation != ActivationKind::Workflow);
        // The transaction as a whole has one limit. A host that does not count for it leaves each activation to itself.
        let spent_ns = used_ns.max(host.cpu_spent_ns());
        self.budget.begin((self.limits.cpu_ms * 1_000_000).saturating_sub(spent_ns));
        Turn { isolate: self, _host: self.host.enter(host, subject) }
    }

    /// The first turn of a handler.
    #[inline]
    pub(crate) fn start_handler(
        &self,
        serial: usize,
        function: usize,
        key: &[u8],
        input: &[u8],
        host: &mut dyn Host,
    ) -> TurnEnd {
        if input.len() > self.limits.input_bytes {
            let message = format!("an input has at most {} bytes", self.limits.input_bytes);
            return TurnEnd::Done(Err(Error::new(ErrorCode::TooLarge, message)));
        }
        let kinds = self.exports.get().map(|exports| exports.kinds.as_slice());
        let activation = match kinds.and_then(|kinds| kinds.get(function)) {
            Some(HandlerKind::Workflow) => ActivationKind::Workflow,
            _ => ActivationKind::Handler,
        };
        let subject = Subject::Entity(Cow::Borrowed(key));
        self.logged.set(Logged::default());
        let ended = {
            let _turn = self.begin_turn(activation, serial, 0, host, &subject);
            match self.parse_json(input) {
                Ok(input) => {
                    let outcome = self.call_export(activation, function, input);
                    self.conclude(activation, outcome)
                }
                Err(Thrown) => {
                    let error = self.invalid_json("the input");
                    self.budget.end();
                    Ended::Done(Err(error))
                }
            }
        };
        host.spend_cpu(self.budget.spent_ns());
        self.leave(activation, serial, 0, subject, ended)
    }

    /// The first turn of a route.
    pub(crate) fn start_route(
        &self,
        serial: usize,
        function: usize,
        request: HttpRequest<'_>,
        host: &mut dyn Host,
    ) -> TurnEnd {
        let subject = Subject::of_request(request);
        self.logged.set(Logged::default());
        let ended = {
            let _turn = self.begin_turn(ActivationKind::Route, serial, 0, host, &subject);
            let request = self.new_request_object();
            let outcome = request.and_then(|request| self.call_export(ActivationKind::Route, function, request));
            self.conclude(ActivationKind::Route, outcome)
        };
        host.spend_cpu(self.budget.spent_ns());
        self.leave(ActivationKind::Route, serial, 0, subject, ended)
    }

    /// A later turn: `operation` of the activation ended with `result`.
    pub(crate) fn resume_activation(
        &self,
        mut activation: Box<Waiting>,
        operation: OperationId,
        result: Result<Bytes, Error>,
        host: &mut dyn Host,
    ) -> TurnEnd {
        let Some(index) = activation.operations.iter().position(|open| open.id == operation) else {
            activation.release(self);
            return TurnEnd::Done(Err(Error::new(
                ErrorCode::Internal,
                "a frame was resumed for what it does not await",
            )));
        };
        let operation = activation.operations.swap_remove(index);
        self.operations.replace(activation.operations);
        self.steps.replace(activation.steps);
        self.logged.set(activation.logged);
        // A host that ends a step itself, as when it cancels, waits for its code no more.
        if self.has_steps() {
            self.forget_step(operation.id);
        }
        self.rejections.activation_goes_on(activation.returned);
        let returned = self.context.own(activation.returned);
        let ended = {
            let _turn =
                self.begin_turn(activation.kind, activation.serial, activation.used_ns, host, &activation.subject);
            if operation.step.is_some() {
                self.enter_step(operation.step);
            }
            let settled = self.settle(operation, result);
            self.conclude(activation.kind, settled.map(|()| returned))
        };
        host.spend_cpu(self.budget.spent_ns());
        self.leave(activation.kind, activation.serial, activation.used_ns, activation.subject, ended)
    }

    #[inline]
    fn call_export(&self, activation: ActivationKind, function: usize, argument: Value) -> Result<Value, Thrown> {
        let exports = self.exports.get();
        let functions = exports.map(|exports| match activation {
            ActivationKind::Handler | ActivationKind::Workflow => &exports.handlers,
            ActivationKind::Route => &exports.routes,
        });
        let function = functions.and_then(|functions| functions.get(function)).copied().unwrap_or(UNDEFINED);
        let this = exports.and_then(|exports| exports.service).unwrap_or(UNDEFINED);
        let context_object = self.new_context_object()?;
        self.context.call(function, this, &mut [context_object.raw(), argument.raw()])
    }

    /// Settles the promise of an operation.
    fn settle(&self, operation: Operation, result: Result<Bytes, Error>) -> Result<(), Thrown> {
        let (function, value) = match &result {
            Ok(json) => match operation.answer {
                Answer::Json => (operation.resolve, self.parse_json(json)),
                Answer::Response => (operation.resolve, self.response(json)),
                Answer::Record(answer) => (operation.resolve, self.record_value(answer, json)),
                Answer::Object(answer) => (operation.resolve, self.object_value(answer, json)),
            },
            Err(error) => match operation.answer {
                Answer::Record(answer) if let Some(raw) = answer.instead_of(error) => {
                    (operation.resolve, Ok(self.context.own(raw)))
                }
                Answer::Object(answer) if let Some(raw) = answer.instead_of(error) => {
                    (operation.resolve, Ok(self.context.own(raw)))
                }
                _ => (operation.reject, self.error_value(error)),
            },
        };
        let called = value.and_then(|value| self.context.call(function, UNDEFINED, &mut [value.raw()]));
        operation.release(self);
        called.map(drop)
    }

    /// Runs what is left to run and finds out how the activation stands. `outcome` is what the code
    /// returned: a promise, a value or an exception.
    ///
    /// What the code has started and does not await goes on also when it has returned: half of what
    /// it was to do would be worse than to wait.
    #[inline]
    fn conclude(&self, activation: ActivationKind, outcome: Result<Value, Thrown>) -> Ended {
        let result = match outcome {
            Ok(value) => {
                self.run_jobs();
                let steps = if self.has_steps() { self.run_steps(value.raw()) } else { Ok(()) };
                match (steps, self.returned(value.raw())) {
                    (Err(error), _) => Err(error),
                    (Ok(()), PromiseState::Fulfilled(result)) if !self.has_unfinished() => {
                        self.output(activation, result.raw())
                    }
                    (Ok(()), PromiseState::Rejected(reason)) => Err(self.error_of(reason.raw())),
                    (Ok(()), PromiseState::Pending | PromiseState::Fulfilled(_)) => match self.waiting_error() {
                        None => return Ended::Waits(value, self.budget.spent_ns()),
                        Some(error) => {
                            self.overlook(value.raw());
                            Err(error)
                        }
                    },
                }
            }
            Err(Thrown) => Err(self.take_error()),
        };
        // A result's toJSON or getters may have started more, and so may an error's.
        self.run_jobs();
        let result = result.and_then(|output| self.unseen_rejection(self.serial.get()).map_or(Ok(output), Err));
        self.run_jobs();
        self.check_memory();
        self.budget.end();
        Ended::Done(match self.breach_error() {
            Some(error) => Err(error),
            None => result,
        })
    }

    #[inline]
    fn is_promise(&self, raw: Raw) -> bool {
        kind(raw) == Kind::Object && self.context.is_promise(raw)
    }

    /// The activation ends before what it returned does. Should that be rejected one day, in the turn of another
    /// activation that settles what both wait for, it is no failure of that one.
    #[cold]
    fn overlook(&self, returned: Raw) {
        if self.budget.breach().is_none()
            && self.is_promise(returned)
            && self.context.call(self.glue.overlook, UNDEFINED, &mut [returned]).is_err()
        {
            drop(self.context.take_exception());
        }
    }

    /// How what the code returned stands; anything but a promise is a result.
    pub(crate) fn returned(&self, raw: Raw) -> PromiseState {
        if self.is_promise(raw) {
            self.context.promise_state(raw)
        } else {
            PromiseState::Fulfilled(self.context.dup(raw))
        }
    }

    /// Why an activation that has not ended cannot wait; `None` when it can.
    fn waiting_error(&self) -> Option<Error> {
        self.check_memory();
        self.budget.end();
        if let Some(error) = self.breach_error() {
            return Some(error);
        }
        // The operation of a step ends only when the step's code has.
        if self.operations.borrow().len() > self.steps.borrow().len() {
            return None;
        }
        let message = "the function awaits a promise that nothing will settle";
        Some(Error::new(ErrorCode::Stalled, message))
    }

    /// Ends the activation when the heap is over its limit, or was and user code caught it.
    #[inline]
    fn check_memory(&self) {
        if self.heap.take_refused() {
            self.budget.set_breach(Breach::Memory);
        } else if self.heap.is_over() {
            self.collect_garbage();
            if self.heap.recheck() {
                self.budget.set_breach(Breach::Memory);
            }
        }
    }

    #[inline]
    fn output(&self, activation: ActivationKind, raw: Raw) -> Result<Output, Error> {
        match activation {
            ActivationKind::Handler | ActivationKind::Workflow => self.handler_output(raw).map(Output::Value),
            ActivationKind::Route => self.route_reply(raw).map(Output::Response),
        }
    }

    #[inline]
    pub(crate) fn handler_output(&self, raw: Raw) -> Result<Bytes, Error> {
        let mut buffer = self.take_scratch();
        let written = self.write_message(raw, &mut buffer);
        let length = buffer.len();
        let output = match written {
            Ok(()) if length <= self.limits.output_bytes => Ok(Bytes::copy_from_slice(&buffer)),
            Ok(()) => Err(self.output_too_large(length)),
            Err(Thrown) => Err(self.no_output(self.take_error())),
        };
        self.give_scratch(buffer);
        output
    }

    /// What JSON cannot say has no place in the code: it was returned.
    #[cold]
    fn no_output(&self, error: Error) -> Error {
        match error.code {
            ErrorCode::FunctionFailed => Error { message: format!("the output: {}", error.message), ..error },
            _ => error,
        }
    }

    pub(crate) fn output_too_large(&self, length: usize) -> Error {
        let message = format!("an output has at most {} bytes, not {length}", self.limits.output_bytes);
        Error::new(ErrorCode::SizeLimit, message)
    }

    /// Leaves the turn: keeps the activation if it waits, forgets its operations if not.
    #[inline]
    fn leave(
        &self,
        activation: ActivationKind,
        serial: usize,
        used_ns: u64,
        subject: Subject<'_>,
        ended: Ended,
    ) -> TurnEnd {
        self.resume_panic();
        match ended {
            Ended::Done(result) => {
                self.forget_rejections(serial);
                for operation in self.operations.borrow_mut().drain(..) {
                    operation.release(self);
                }
                for step in self.steps.take() {
                    step.release(self);
                }
                TurnEnd::Done(result)
            }
            Ended::Waits(returned, turn_ns) => {
                self.rejections.activation_waits(returned.raw());
                // A workflow may take any number of turns, and takes them all again in a replay.
                let (used_ns, logged) = match activation {
                    ActivationKind::Workflow => (0, Logged::default()),
                    ActivationKind::Handler | ActivationKind::Route => (used_ns + turn_ns, self.logged.get()),
                };
                TurnEnd::Waits(Box::new(Waiting {
                    serial,
                    kind: activation,
                    returned: returned.into_raw(),
                    operations: self.operations.take(),
                    steps: self.steps.take(),
                    subject: subject.into_owned(),
                    used_ns,
                    logged,
                }))
            }
        }
    }

    /// Whether the last turn left the isolate in a state that no other call should meet: out of
    /// memory, or with jobs of an activation that was ended by force.
    #[inline]
    pub(crate) fn is_spoiled(&self) -> bool {
        match self.budget.breach() {
            None => false,
            Some(Breach::Memory | Breach::Panic) => true,
            Some(Breach::Cpu | Breach::Stack) => self.has_jobs(),
        }
    }
}
