//! How operations run: in turns, as every activation does. An operation that needs other entities makes nested calls
//! and waits as a [`Task`].

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{HandlerId, Host, NestedCall, OperationId};

use crate::cache::Cache;
use crate::program::{RecordProgram, RecordType};
use crate::values::{Path, Predicate};

/// What all programs of an engine share.
pub(crate) struct Shared {
    /// For each shard, the smallest number whose text is placed there. It is the key of its `T--shard`.
    pub shard_keys: Vec<Vec<u8>>,
    pub paths: RefCell<Cache<Path>>,
    pub predicates: RefCell<Cache<Predicate>>,
    /// Memory for outputs, which are written one after the other.
    pub output: RefCell<Vec<u8>>,
}

/// Memory above this is not kept for the next output.
const KEPT_BYTES: usize = 16 << 10;

impl Shared {
    /// A path, parsed once.
    #[inline]
    pub(crate) fn path(&self, text: &str) -> Result<Rc<Path>, Error> {
        self.paths
            .borrow_mut()
            .get(text, |text| Path::parse(text).map_err(|error| invalid("path", text, &error.to_string())))
    }

    /// Runs `write` with memory for an output, which is reused each time.
    #[inline]
    pub(crate) fn with_output<T>(&self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut out = self.output.take();
        out.clear();
        let written = write(&mut out);
        if out.capacity() <= KEPT_BYTES {
            self.output.replace(out);
        }
        written
    }

    /// A predicate, parsed once.
    pub(crate) fn predicate(&self, text: &str) -> Result<Rc<Predicate>, Error> {
        self.predicates
            .borrow_mut()
            .get(text, |text| Predicate::parse(text).map_err(|error| invalid("predicate", text, &error.to_string())))
    }
}

#[cold]
fn invalid(what: &str, text: &str, why: &str) -> Error {
    let shown: String = text.chars().take(100).collect();
    Error::new(ErrorCode::InvalidPath, format!("the {what} {shown:?} cannot be read: {why}"))
}

/// One turn of one activation.
pub(crate) struct Turn<'a> {
    pub shared: &'a Shared,
    pub program: &'a Rc<RecordProgram>,
    pub host: &'a mut dyn Host,
    /// How many triggers that run after a commit led to this, each by the one before.
    pub depth: u8,
}

/// How a turn ended, if it did not fail.
pub(crate) enum Progress {
    /// With this output.
    Done(Bytes),
    /// It awaits calls.
    Wait(Box<dyn Task>),
}

/// An operation that awaits calls.
pub(crate) trait Task {
    /// One of the calls has ended.
    fn resume(
        self: Box<Self>,
        turn: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error>;
}

/// An operation that goes on when all calls that it began together have ended.
pub(crate) trait Gathers: 'static {
    fn calls(&mut self) -> &mut Calls;

    /// They have ended. The results are in the order of the calls.
    fn gathered(self: Box<Self>, turn: &mut Turn<'_>, results: Vec<Result<Bytes, Error>>) -> Result<Progress, Error>;
}

impl<G: Gathers> Task for G {
    fn resume(
        mut self: Box<Self>,
        turn: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        match self.calls().ended(operation, result)? {
            Some(results) => self.gathered(turn, results),
            None => Ok(Progress::Wait(self)),
        }
    }
}

impl Turn<'_> {
    /// The type with that index.
    pub(crate) fn record_type(&self, index: usize) -> &RecordType {
        &self.program.types[index]
    }

    /// Begins a nested call.
    pub(crate) fn call(
        &mut self,
        (service, handler): (u16, u16),
        key: &[u8],
        input: Bytes,
    ) -> Result<OperationId, Error> {
        let handler = HandlerId { program: self.program.number, service, handler };
        self.host.call(NestedCall { handler, key: key.to_vec(), input })
    }

    /// Begins a call of every shard's service, each with its own input.
    pub(crate) fn call_shards(
        &mut self,
        handler: (u16, u16),
        inputs: impl IntoIterator<Item = Bytes>,
    ) -> Result<Calls, Error> {
        let mut calls = Calls::default();
        let shared = self.shared;
        for (key, input) in shared.shard_keys.iter().zip(inputs) {
            calls.push(self.call(handler, key, input)?);
        }
        Ok(calls)
    }
}

/// Calls that were begun together.
#[derive(Default)]
pub(crate) struct Calls {
    operations: Vec<OperationId>,
    results: Vec<Option<Result<Bytes, Error>>>,
    open: usize,
}

impl Calls {
    pub(crate) fn push(&mut self, operation: OperationId) {
        self.operations.push(operation);
        self.results.push(None);
        self.open += 1;
    }

    /// Keeps a result. Returns all of them, in the order of the calls, once the last has come.
    ///
    /// # Errors
    /// `internal` for an operation that is not one of these.
    pub(crate) fn ended(
        &mut self,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Option<Vec<Result<Bytes, Error>>>, Error> {
        // Results mostly come in the order of the calls.
        let first = self.operations.len() - self.open;
        let is_first = self.operations.get(first) == Some(&operation) && self.results[first].is_none();
        let place = if is_first { Some(first) } else { self.operations.iter().position(|open| *open == operation) };
        let Some(place) = place.filter(|place| self.results[*place].is_none()) else {
            return Err(Error::new(ErrorCode::Internal, "a result came for a call that was not made"));
        };
        self.results[place] = Some(result);
        self.open -= 1;
        if self.open > 0 {
            return Ok(None);
        }
        self.operations.clear();
        Ok(Some(std::mem::take(&mut self.results).into_iter().flatten().collect()))
    }
}
