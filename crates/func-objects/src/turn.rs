//! How operations run: in turns, as every activation does. One that needs other entities calls them and waits.

use bytes::Bytes;
use millrace_base::{Error, ErrorCode};
use millrace_func::{HandlerId, Host, NestedCall, OperationId, Program};

use crate::names::{bucket_of, place_of};
use crate::settings::SettingsCache;

/// One turn of one activation.
pub(crate) struct Turn<'a> {
    pub host: &'a mut dyn Host,
    pub program: Program,
    pub settings: &'a SettingsCache,
    /// The key of the activation's entity.
    pub key: &'a [u8],
}

/// How a turn ended, if it did not fail.
pub(crate) enum Progress {
    /// With this output.
    Done(Bytes),
    /// It awaits calls.
    Wait(Waiting),
}

type Then = Box<dyn FnOnce(&mut Turn<'_>, Vec<Result<Bytes, Error>>) -> Result<Progress, Error>>;

/// What an operation does when the calls that it began together have ended.
pub(crate) struct Waiting {
    operations: Vec<OperationId>,
    results: Vec<Option<Result<Bytes, Error>>>,
    open: usize,
    then: Then,
}

impl Waiting {
    /// One of the calls has ended.
    ///
    /// # Errors
    /// Those of what comes then.
    pub(crate) fn resume(
        mut self,
        turn: &mut Turn<'_>,
        operation: OperationId,
        result: Result<Bytes, Error>,
    ) -> Result<Progress, Error> {
        let place = self.operations.iter().position(|open| *open == operation);
        let Some(place) = place.filter(|place| self.results[*place].is_none()) else {
            return Err(Error::new(ErrorCode::Internal, "a result came for a call that was not made"));
        };
        self.results[place] = Some(result);
        self.open -= 1;
        if self.open > 0 {
            return Ok(Progress::Wait(self));
        }
        (self.then)(turn, self.results.into_iter().flatten().collect())
    }
}

impl<'a> Turn<'a> {
    /// The place of the bucket's slice that the activation's entity lies in.
    pub(crate) fn place(&self) -> &'a str {
        place_of(self.key).unwrap_or_default()
    }

    /// The bucket of that slice.
    pub(crate) fn bucket(&self) -> &'a str {
        bucket_of(self.place())
    }

    /// Calls a handler of the app, of an entity.
    pub(crate) fn call(
        &mut self,
        (service, handler): (u16, u16),
        key: Vec<u8>,
        input: Bytes,
    ) -> Result<OperationId, Error> {
        let handler = HandlerId { program: self.program, service, handler };
        self.host.call(NestedCall { handler, key, input })
    }

    /// Goes on when a call has ended well.
    pub(crate) fn then(
        operation: OperationId,
        then: impl FnOnce(&mut Turn<'_>, Bytes) -> Result<Progress, Error> + 'static,
    ) -> Progress {
        Self::then_all(vec![operation], move |turn, mut results| {
            then(turn, results.pop().expect("one call has one result")?)
        })
    }

    /// Goes on when all these calls have ended.
    pub(crate) fn then_all(
        operations: Vec<OperationId>,
        then: impl FnOnce(&mut Turn<'_>, Vec<Result<Bytes, Error>>) -> Result<Progress, Error> + 'static,
    ) -> Progress {
        let open = operations.len();
        let results = operations.iter().map(|_| None).collect();
        Progress::Wait(Waiting { operations, results, open, then: Box::new(then) })
    }
}
