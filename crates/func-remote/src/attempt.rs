//! One attempt: what has been said to its worker, and what the worker asked for.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, HeldBytes, limits};
use millrace_format::worker::{
    AttemptKind, FrameError, FrameResult, FrameValue, ServerFrame, TurnReader, WorkerFrame, WorkerFrameError, set_seen,
};
use millrace_func::{AttemptToken, Host, OperationId, Program, WorkerTurn};

use crate::objects::{ObjectAnswer, object_output};
use crate::operations::record_output;

/// What the result of an operation means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultMeaning {
    /// JSON text, whatever it was for.
    Json,
    /// Reply to an operation on a record.
    Record,
    /// Reply to an operation on an object.
    Object(ObjectAnswer),
    /// A step whose result was known: it is noted, and so is an error.
    Step,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, Default)]
struct Operation {
    /// Results that the worker has not been sent.
    unsent: u32,
    /// Whether a result is to come.
    is_open: bool,
    /// Of a step: whether the worker runs its code.
    is_running: bool,
}

impl Operation {
    /// Whether its last result was sent, or that of a step was which says that the worker is to run the code. A worker that
    /// names it in SUSPEND has not heard that: it names no step whose code runs.
    fn has_been_told(&self) -> bool {
        self.unsent == 0 && (!self.is_open || self.is_running)
    }
}

pub(crate) struct Attempt {
    pub program: Program,
    pub token: AttemptToken,
    pub kind: AttemptKind,
    /// Whether each turn is a request with everything in it.
    pub is_request_reply: bool,
    timeout_ms: u64,
    start: Vec<u8>,
    results: Vec<u8>,
    /// What the two have of that which all attempts of the app may have on this core.
    told: HeldBytes,
    /// How much of `results` has been sent on a stream.
    sent: usize,
    reader: Option<TurnReader>,
    received_bytes: usize,
    exchange: Option<OperationId>,
    operations: Vec<Operation>,
    /// What has ended while the worker has the turn: what it writes in that turn is not known yet, so it could not be told
    /// how its entity is by then.
    early: Vec<(OperationId, Result<Bytes, Error>)>,
    early_bytes: usize,
    /// The worker's number of what the host was asked for.
    by_host: BTreeMap<OperationId, (u32, ResultMeaning)>,
    suspended: Vec<u32>,
    /// RESULTs that were sent, less the turns that they have begun: so many turns more they may begin. Those that are sent
    /// together may reach the worker in parts, and each part may begin a turn.
    turns_to_come: usize,
    /// The worker waits for a result that was sent, so its next turn will come.
    is_result_on_its_way: bool,
    /// The service, an index into the app's.
    pub service: u16,
    /// Codes of errors that the worker was given: its handler may fail with them.
    given: Vec<ErrorCode>,
    /// Changes of the entity that the worker knows of.
    pub known_changes: u64,
    /// Of a query that was given all of its entity: the fields. It sees no others, whatever happens meanwhile.
    pub snapshot: Option<Vec<(Bytes, FrameValue)>>,
}

/// What the worker did is no part of the protocol.
pub(crate) fn broken(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::WorkerFailed, format!("the worker broke the protocol: {what}"))
}

pub(crate) fn of_frame_error(error: WorkerFrameError) -> Error {
    broken(error)
}

/// As it travels to a worker.
pub(crate) fn as_frame_error(error: Error) -> FrameError {
    let detail = error.detail.map(Bytes::from).unwrap_or_default();
    FrameError { code: error.code.as_str().to_owned(), message: error.message, detail }
}

impl Attempt {
    pub(crate) fn new(
        program: Program,
        (token, kind): (AttemptToken, AttemptKind),
        is_request_reply: bool,
        timeout_ms: u64,
        start: Vec<u8>,
        told: HeldBytes,
    ) -> Self {
        Self {
            program,
            token,
            kind,
            is_request_reply,
            timeout_ms,
            start,
            results: Vec::new(),
            told,
            sent: 0,
            reader: None,
            received_bytes: 0,
            exchange: None,
            early: Vec::new(),
            early_bytes: 0,
            operations: Vec::new(),
            by_host: BTreeMap::new(),
            suspended: Vec::new(),
            turns_to_come: 0,
            is_result_on_its_way: false,
            service: 0,
            given: Vec::new(),
            known_changes: 0,
            snapshot: None,
        }
    }

    /// Whether this is the end of the exchange that is under way.
    pub(crate) fn is_exchange(&self, operation: OperationId) -> bool {
        self.exchange == Some(operation)
    }

    /// Whether the worker has the turn.
    pub(crate) fn is_exchanging(&self) -> bool {
        self.exchange.is_some()
    }

    /// What the host was asked for has ended while the worker has the turn.
    ///
    /// # Errors
    /// The results are too large together.
    pub(crate) fn came_early(&mut self, id: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        self.early_bytes += result.as_ref().map_or(0, Bytes::len);
        self.early.push((id, result));
        self.check_told()
    }

    /// What has ended so.
    pub(crate) fn take_early(&mut self) -> Vec<(OperationId, Result<Bytes, Error>)> {
        self.early_bytes = 0;
        std::mem::take(&mut self.early)
    }

    /// Sends the worker what it does not have yet.
    pub(crate) fn exchange(&mut self, host: &mut dyn Host) -> Result<(), Error> {
        let host = host.worker()?;
        let timeout_ms = host.left_ms(self.timeout_ms);
        if timeout_ms == 0 {
            return Err(Error::new(ErrorCode::WorkerTimeout, "the call's time is over"));
        }
        let is_first = self.reader.is_none();
        let frames = if is_first || self.is_request_reply {
            let seen = self.reader.as_ref().map_or(0, TurnReader::frames);
            set_seen(&mut self.start, seen, u32::try_from(timeout_ms).unwrap_or(u32::MAX));
            [&self.start[..], &self.results].concat()
        } else {
            self.results[self.sent..].to_vec()
        };
        let start_bytes = if is_first || self.is_request_reply { self.start.len() } else { 0 };
        self.check_told()?;
        self.sent = self.results.len();
        let sent: usize = self.operations.iter_mut().map(|known| std::mem::take(&mut known.unsent) as usize).sum();
        self.turns_to_come += if self.is_request_reply { 0 } else { sent };
        self.suspended.clear();
        let (program, attempt) = (self.program, self.token);
        let needs_no_lock = self.snapshot.is_some();
        // A workflow holds nothing while it waits for its slot.
        let slot = (self.kind == AttemptKind::Workflow).then_some(self.service);
        let content = frames.into();
        let is_request = self.is_request_reply;
        let turn = WorkerTurn { program, attempt, content, start_bytes, is_request, timeout_ms, needs_no_lock, slot };
        self.exchange = Some(host.exchange(turn)?);
        Ok(())
    }

    /// Whether the worker is told no more than it may be, and all of the app's workers together no more than they may.
    fn check_told(&mut self) -> Result<(), Error> {
        let told_bytes = self.start.len() + self.results.len() + self.early_bytes;
        if told_bytes > limits::WORKER_ATTEMPT_BYTES {
            let message = format!("what the handler asked for has more than {} bytes", limits::WORKER_ATTEMPT_BYTES);
            return Err(Error::new(ErrorCode::SizeLimit, message));
        }
        if !self.told.grow_to(told_bytes) {
            let message = "what the app's handlers that run now have asked for is too large together: try again";
            return Err(Error::new(ErrorCode::WorkerUnavailable, message));
        }
        Ok(())
    }

    /// Reads a whole turn, before anything of it counts.
    ///
    /// # Errors
    /// `worker-failed`; for a workflow that does not do the same again, `diverged`.
    pub(crate) fn read(&mut self, turn: Bytes) -> Result<Vec<WorkerFrame>, Error> {
        self.exchange = None;
        self.received_bytes += turn.len();
        if self.received_bytes > limits::WORKER_ATTEMPT_BYTES {
            return Err(broken(format_args!("an attempt has more than {} bytes", limits::WORKER_ATTEMPT_BYTES)));
        }
        let known = self.reader.as_ref().map(|reader| (reader.frames(), reader.checksum()));
        let reader = match &mut self.reader {
            Some(reader) => {
                self.turns_to_come = self.turns_to_come.saturating_sub(1);
                reader.next_turn(turn);
                reader
            }
            first => first.insert(TurnReader::new(turn)),
        };
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame().map_err(of_frame_error)? {
            frames.push(frame);
        }
        let resumed = matches!(frames.first(), Some(WorkerFrame::Resumed { .. })).then(|| frames.remove(0));
        match (resumed, known.filter(|_| self.is_request_reply)) {
            (None, None) => Ok(frames),
            (Some(WorkerFrame::Resumed { frames: count, checksum }), Some(known)) => {
                if (count, checksum) == known {
                    Ok(frames)
                } else {
                    Err(self.not_the_same())
                }
            }
            (None, Some(_)) => Err(broken("a turn that goes on begins with RESUMED")),
            (Some(_), _) => Err(broken("RESUMED answers nothing here")),
        }
    }

    fn not_the_same(&self) -> Error {
        let message = "the handler did not do the same again: take time and random numbers from the context, and \
                       ask for the same operations in the same order";
        let code = if self.kind == AttemptKind::Workflow { ErrorCode::Diverged } else { ErrorCode::WorkerFailed };
        Error::new(code, message)
    }

    /// Takes note of an operation that the worker asks for.
    ///
    /// # Errors
    /// It has another number than the next, or is one too many, or those before it had too large results.
    pub(crate) fn asks(&mut self, operation: u32) -> Result<(), Error> {
        self.check_told()?;
        if self.operations.len() >= limits::WORKER_OPERATIONS {
            let message = format!("more than {} operations in one attempt", limits::WORKER_OPERATIONS);
            return Err(Error::new(ErrorCode::OperationLimit, message));
        }
        if operation as usize != self.operations.len() + 1 {
            return Err(broken(format_args!("operation {operation} has not the next number")));
        }
        self.operations.push(Operation::default());
        Ok(())
    }

    /// The host will give the result of the worker's operation, or has refused it.
    pub(crate) fn began(&mut self, operation: u32, asked: ResultMeaning, begun: Result<OperationId, Error>) {
        match begun {
            Ok(id) => {
                self.by_host.insert(id, (operation, asked));
                if let Some(known) = self.known(operation) {
                    known.is_open = true;
                }
            }
            Err(error) => self.answer(operation, false, Err(as_frame_error(error))),
        }
    }

    /// Operations under way.
    pub(crate) fn open(&self) -> usize {
        self.by_host.len()
    }

    fn known(&mut self, operation: u32) -> Option<&mut Operation> {
        self.operations.get_mut((operation as usize).checked_sub(1)?)
    }

    /// Notes a result for the worker.
    pub(crate) fn answer(&mut self, operation: u32, is_set: bool, result: FrameResult) {
        let given = result.as_ref().err().and_then(|error| ErrorCode::parse(&error.code));
        if let Some(code) = given.filter(|code| !self.given.contains(code)) {
            self.given.push(code);
        }
        ServerFrame::Result { operation, is_set, result }.encode(&mut self.results);
        if let Some(known) = self.known(operation) {
            known.unsent += 1;
        }
    }

    /// Tells the worker what others have made of the entity.
    pub(crate) fn tell_fields(&mut self, is_rest_void: bool, fields: Vec<(Bytes, FrameValue)>) {
        let fields = fields.into_iter().map(|(name, value)| (name, Some(value))).collect();
        ServerFrame::Fields { is_rest_void, fields }.encode(&mut self.results);
    }

    /// What the host was asked for has ended.
    ///
    /// # Errors
    /// The results are too large together.
    pub(crate) fn ended(&mut self, id: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        let Some((operation, asked)) = self.by_host.remove(&id) else { return Ok(()) };
        if let Some(known) = self.known(operation) {
            known.is_open = false;
        }
        let result = match asked {
            ResultMeaning::Json | ResultMeaning::Step => result.map(FrameValue::Json),
            ResultMeaning::Record => result.and_then(record_output).map(FrameValue::Json),
            ResultMeaning::Object(answer) => object_output(answer, result),
        };
        self.answer(operation, false, result.map_err(as_frame_error));
        self.check_told()
    }

    /// Whether the worker was given an error with this code.
    pub(crate) fn was_given(&self, code: ErrorCode) -> bool {
        self.given.contains(&code)
    }

    /// The worker is to run a step's code.
    pub(crate) fn step_runs(&mut self, operation: u32) {
        if let Some(known) = self.known(operation) {
            known.is_running = true;
        }
    }

    /// The worker says that a step's code has ended: the host's number of the step. `None`: the worker does not run it, or
    /// has said so before.
    pub(crate) fn step_ends(&mut self, operation: u32) -> Option<OperationId> {
        let was_running = std::mem::take(&mut self.known(operation)?.is_running);
        let is_it = |(_, (number, _)): &(&OperationId, &(u32, ResultMeaning))| was_running && *number == operation;
        self.by_host.iter().find(is_it).map(|(id, _)| *id)
    }

    /// The worker waits for one of these.
    ///
    /// # Errors
    /// `stalled`: nothing will ever come of any of them. `worker-failed`: it has not asked for them, or has
    /// got them.
    pub(crate) fn suspend(&mut self, operations: Vec<u32>) -> Result<(), Error> {
        let (mut can_go_on, mut is_told) = (false, false);
        for operation in &operations {
            let unknown = || broken(format_args!("it waits for operation {operation}, which it has not asked for"));
            let known = self.known(*operation).ok_or_else(unknown)?;
            can_go_on |= known.is_open || known.unsent > 0;
            is_told |= known.has_been_told();
        }
        self.is_result_on_its_way = is_told && self.turns_to_come > 0;
        // No handler does that: a turn has come twice, and another one behind it would never be read.
        if is_told && !self.is_result_on_its_way && !self.is_request_reply {
            return Err(broken("it waits for results that it was given"));
        }
        if !can_go_on && !self.is_result_on_its_way {
            return Err(Error::new(ErrorCode::Stalled, "the handler awaits something that can never happen"));
        }
        self.suspended = operations;
        Ok(())
    }

    /// Whether the worker waits, and there is something for it, or on its way to it.
    pub(crate) fn can_go_on(&self) -> bool {
        let has_unsent = |operation: &u32| {
            let place = (*operation as usize).checked_sub(1);
            place.and_then(|place| self.operations.get(place)).is_some_and(|known| known.unsent > 0)
        };
        self.exchange.is_none() && (self.is_result_on_its_way || self.suspended.iter().any(has_unsent))
    }
}
