//! What activations await.

use millrace_base::{Error, ErrorCode};
use millrace_func::OperationId;

use crate::bucket_object::ObjectAnswer;
use crate::isolate::Isolate;
use crate::js::{Raw, Thrown, Value};
use crate::record_object::RecordAnswer;

/// One operation that an activation awaits. Owns one reference to each function; whoever removes it from
/// its list releases them.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) id: OperationId,
    pub(crate) resolve: Raw,
    pub(crate) reject: Raw,
    pub(crate) answer: Answer,
    /// The step whose code began it.
    pub(crate) step: Option<OperationId>,
    /// It only lets time pass, and does nothing: an activation that has returned does not go on for it.
    pub(crate) is_pause: bool,
}

/// What an operation's result means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The JSON value itself.
    Json,
    /// A response to `ctx.fetch`.
    Response,
    /// A reply to an operation on records.
    Record(RecordAnswer),
    /// A reply to an operation on objects.
    Object(ObjectAnswer),
}

impl Operation {
    /// Gives up the functions.
    pub(crate) fn release(self, isolate: &Isolate) {
        isolate.context.free(self.resolve);
        isolate.context.free(self.reject);
    }
}

impl Isolate {
    /// Whether the running activation may open one more operation.
    #[inline]
    pub(crate) fn check_operations(&self) -> Result<(), Thrown> {
        if self.step.get().is_some() {
            self.check_step()?;
        }
        let most = self.limits.pending_operations;
        if self.operations.borrow().len() < most {
            return Ok(());
        }
        let message = format!("a call may await at most {most} operations at once");
        Err(self.throw_error(Error::new(ErrorCode::OperationLimit, message)))
    }

    /// A promise for an operation that the host began: `begin` runs once the promise exists, so
    /// that nothing is begun that cannot be answered.
    #[inline]
    pub(crate) fn await_operation(&self, begin: impl FnOnce() -> Result<OperationId, Thrown>) -> Result<Value, Thrown> {
        self.await_operation_as(Answer::Json, begin)
    }

    /// The same for an operation that only lets time pass.
    pub(crate) fn await_pause(&self, begin: impl FnOnce() -> Result<OperationId, Thrown>) -> Result<Value, Thrown> {
        let promise = self.await_operation(begin)?;
        if let Some(operation) = self.operations.borrow_mut().last_mut() {
            operation.is_pause = true;
        }
        Ok(promise)
    }

    /// Whether the activation has started what has not ended.
    #[inline]
    pub(crate) fn has_unfinished(&self) -> bool {
        self.operations.borrow().iter().any(|operation| !operation.is_pause)
    }

    /// The same for an operation whose result means `answer`.
    #[inline]
    pub(crate) fn await_operation_as(
        &self,
        answer: Answer,
        begin: impl FnOnce() -> Result<OperationId, Thrown>,
    ) -> Result<Value, Thrown> {
        let (promise, [resolve, reject]) = self.context.promise()?;
        let id = begin()?;
        let (resolve, reject) = (resolve.into_raw(), reject.into_raw());
        let operation = Operation { id, resolve, reject, answer, step: self.step.get(), is_pause: false };
        self.operations.borrow_mut().push(operation);
        Ok(promise)
    }
}
