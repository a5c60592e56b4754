//! What a script asks for in a worker: frames. What it is given: the fields of START, and what the server has sent since.
//!
//! A handler runs from its beginning in every turn, over everything that the server has sent so far. Scripts get some things
//! at once that the server has to be asked for. Where the answer is not there yet, the run ends; the next one gets as far and
//! finds it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_base::{UnixMillis, Value};
use millrace_format::worker::{
    AttemptKind, FrameError, FrameResult, FrameValue, ServerFrame, StartFrame, TargetFrame, WorkerFrame,
};
use millrace_func::{
    Attempts, Base64Alphabet, BuiltInCall, Error, ErrorCode, FetchRequest, Flow, Host, LogLevel, Message, NestedCall,
    Offload, OperationId, RetryOptions, ScanRequest, StepStart, base64_encode,
};
use serde_json::{Value as Json, json};

use super::document;
use crate::random::mix;

/// Operations of the worker's own, which end in the worker.
const LOCAL: u32 = 1 << 30;

/// See the module's documentation.
pub(super) struct FrameHost<'a> {
    start: &'a StartFrame,
    inputs: &'a [ServerFrame],
    /// Inputs that were given to a script at once.
    taken: BTreeSet<usize>,
    /// The next input to resume the script with, and the first FIELDS that was not looked at.
    next: usize,
    next_fields: usize,
    pub frames: Vec<WorkerFrame>,
    operations: u32,
    /// Operations that the script waits for.
    open: BTreeSet<u32>,
    local: Vec<OperationId>,
    /// The run has ended because the answer to this operation is not there.
    pub missing: Option<u32>,
    known: BTreeMap<Vec<u8>, Option<Value>>,
    is_whole: bool,
    has_declared: bool,
    policy: Bytes,
    draws: u64,
}

fn refused(what: &str) -> Error {
    Error::new(ErrorCode::FunctionFailed, what)
}

fn of_frame(error: &FrameError) -> Error {
    let code = ErrorCode::parse(&error.code).unwrap_or(ErrorCode::FunctionFailed);
    let detail = Some(&error.detail).filter(|detail| !detail.is_empty());
    let detail = detail.map(|detail| String::from_utf8_lossy(detail).into_owned());
    Error { code, message: error.message.clone(), detail }
}

pub(super) fn as_frame(error: Error) -> FrameError {
    let detail = error.detail.map(Bytes::from).unwrap_or_default();
    FrameError { code: error.code.as_str().to_owned(), message: error.message, detail }
}

fn json_of(result: &FrameResult) -> Result<Bytes, Error> {
    result.as_ref().map(|value| value.content().clone()).map_err(of_frame)
}

impl<'a> FrameHost<'a> {
    pub(super) fn new(start: &'a StartFrame, inputs: &'a [ServerFrame]) -> Self {
        let known = start.fields.iter().map(|(name, value)| (name.to_vec(), Some(value.to_value())));
        Self {
            start,
            inputs,
            taken: BTreeSet::new(),
            next: 0,
            next_fields: 0,
            frames: Vec::new(),
            operations: 0,
            open: BTreeSet::new(),
            local: Vec::new(),
            missing: None,
            known: known.collect(),
            is_whole: start.is_whole,
            has_declared: start.has_declared,
            policy: Bytes::new(),
            draws: 0,
        }
    }

    /// What the script is to be resumed with.
    pub(super) fn next_result(&mut self) -> Option<(OperationId, Result<Bytes, Error>)> {
        if let Some(local) = self.local.pop() {
            return Some((local, Ok(Bytes::from_static(b"null"))));
        }
        while let Some(input) = self.inputs.get(self.next) {
            self.next += 1;
            self.look_at_fields(self.next);
            if let ServerFrame::Result { operation, result, .. } = input
                && !self.taken.contains(&(self.next - 1))
            {
                self.open.remove(operation);
                return Some((OperationId(*operation), json_of(result)));
            }
        }
        None
    }

    /// What the script waits for.
    pub(super) fn suspended(&self) -> Vec<u32> {
        self.missing.map_or_else(|| self.open.iter().copied().collect(), |missing| vec![missing])
    }

    /// Others have changed the entity: what is known is what FIELDS among the inputs before this one say.
    fn look_at_fields(&mut self, end: usize) {
        for input in self.inputs.get(self.next_fields..end).unwrap_or_default() {
            if let ServerFrame::Fields { is_rest_void, fields } = input {
                if *is_rest_void {
                    self.known.clear();
                    (self.is_whole, self.has_declared) = (false, false);
                }
                let value = |value: &Option<FrameValue>| value.as_ref().map(FrameValue::to_value);
                self.known.extend(fields.iter().map(|(name, found)| (name.to_vec(), value(found))));
            }
        }
        self.next_fields = self.next_fields.max(end);
    }

    fn operation(&mut self) -> u32 {
        self.operations += 1;
        self.operations
    }

    /// The first answer to an operation that is not taken.
    fn at_once(&mut self, operation: u32) -> Result<(usize, bool, &'a FrameResult), Error> {
        let is_it = |(place, input): &(usize, &ServerFrame)| {
            matches!(input, ServerFrame::Result { operation: of, .. } if *of == operation)
                && !self.taken.contains(place)
        };
        let found = self.inputs.iter().enumerate().find(is_it);
        let Some((place, ServerFrame::Result { is_set, result, .. })) = found else {
            self.missing = Some(operation);
            return Err(refused("the answer is not there"));
        };
        self.look_at_fields(place);
        Ok((place, *is_set, result))
    }

    fn take(&mut self, operation: u32) -> Result<(bool, &'a FrameResult), Error> {
        let (place, is_set, result) = self.at_once(operation)?;
        self.taken.insert(place);
        Ok((is_set, result))
    }

    fn has_fields(&self) -> Result<(), Error> {
        match self.start.kind {
            AttemptKind::Transaction | AttemptKind::Query => Ok(()),
            AttemptKind::Workflow | AttemptKind::Route => Err(refused("it has no entity")),
        }
    }

    /// Whether it is known without the server that a field is not among those that are.
    fn is_known_unset(&self, field: &[u8]) -> bool {
        self.is_whole || (self.has_declared && document::is_declared(&self.start.service, field))
    }

    fn know(&mut self, field: &[u8]) -> Result<(), Error> {
        self.has_fields()?;
        if self.known.contains_key(field) || self.is_known_unset(field) {
            return Ok(());
        }
        let operation = self.operation();
        self.frames.push(WorkerFrame::Get { operation, field: Bytes::copy_from_slice(field) });
        let (is_set, result) = self.take(operation)?;
        let found = result.as_ref().map_err(of_frame)?;
        self.known.insert(field.to_vec(), is_set.then(|| found.to_value()));
        Ok(())
    }

    fn target(&self, call: NestedCall) -> TargetFrame {
        let NestedCall { handler, key, input } = call;
        let (service, handler) = document::names(handler);
        TargetFrame { service: service.to_owned(), key: key.into(), handler: handler.to_owned(), input }
    }

    fn begin(&mut self, frame: impl FnOnce(u32) -> WorkerFrame) -> OperationId {
        let operation = self.operation();
        self.frames.push(frame(operation));
        self.open.insert(operation);
        OperationId(operation)
    }
}

/// Rows as RESULT has them: count, then name and value each.
fn rows(bytes: &Bytes) -> Result<Vec<(Vec<u8>, Value)>, Error> {
    let broken = || refused("the rows cannot be read");
    let mut rest = bytes.clone();
    let take =
        |rest: &mut Bytes, length: usize| (rest.len() >= length).then(|| rest.split_to(length)).ok_or_else(broken);
    let length = |rest: &mut Bytes| {
        let bytes = take(rest, 4)?;
        let bytes = bytes.first_chunk::<4>().ok_or_else(broken)?;
        Ok::<_, Error>(u32::from_be_bytes(*bytes) as usize)
    };
    let count = length(&mut rest)?;
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let name_length = length(&mut rest)?;
        let name = take(&mut rest, name_length)?;
        let kind = take(&mut rest, 1)?;
        let value_length = length(&mut rest)?;
        let content = take(&mut rest, value_length)?;
        let value = if kind[0] == 0 { FrameValue::Json(content) } else { FrameValue::Raw(content) };
        found.push((name.to_vec(), value.to_value()));
    }
    Ok(found)
}

impl Host for FrameHost<'_> {
    fn get(&mut self, field: &[u8]) -> Result<Option<&Value>, Error> {
        self.know(field)?;
        Ok(self.known.get(field).and_then(Option::as_ref))
    }

    fn set(&mut self, field: &[u8], value: Value) -> Result<(), Error> {
        self.has_fields()?;
        let frame = FrameValue::from_value(&value);
        self.frames.push(WorkerFrame::Set { field: Bytes::copy_from_slice(field), value: frame });
        self.known.insert(field.to_vec(), Some(value));
        Ok(())
    }

    fn delete(&mut self, field: &[u8]) -> Result<bool, Error> {
        self.know(field)?;
        self.frames.push(WorkerFrame::Delete { field: Bytes::copy_from_slice(field) });
        Ok(self.known.insert(field.to_vec(), None).flatten().is_some())
    }

    fn scan(&mut self, request: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        self.has_fields()?;
        let ScanRequest { prefix, after, limit } = request.clone();
        let operation = self.operation();
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        self.frames.push(WorkerFrame::Scan { operation, prefix: prefix.into(), after: after.map(Bytes::from), limit });
        let (_, result) = self.take(operation)?;
        rows(result.as_ref().map_err(of_frame)?.content())
    }

    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        Err(refused("no worker asks for keys"))
    }

    fn operate(&mut self, _: BuiltInCall<'_>) -> Result<OperationId, Error> {
        Err(refused("no simulated worker asks for records"))
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        let (target, policy) = (self.target(call), std::mem::take(&mut self.policy));
        Ok(self.begin(|operation| WorkerFrame::Call { operation, target, policy }))
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        let Message { handler, key, input, delay_ms, id } = message;
        let target = self.target(NestedCall { handler, key, input });
        let operation = self.operation();
        self.frames.push(WorkerFrame::Send { operation, target, delay_ms, id });
        let (_, result) = self.take(operation)?;
        let id = json_of(result)?;
        serde_json::from_slice(&id).map_err(|_| refused("an id is JSON"))
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        let (invocation, name) = (invocation.to_owned(), name.to_owned());
        self.frames.push(WorkerFrame::Signal { invocation, name, payload });
        Ok(())
    }

    /// The worker does it by itself.
    fn offload(&mut self, _work: Offload) -> Result<OperationId, Error> {
        self.draws += 1;
        let local = OperationId(LOCAL + u32::try_from(self.draws).unwrap_or(0));
        self.local.push(local);
        Ok(local)
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        let request = json!({
            "method": request.method,
            "url": request.url,
            "headers": request.headers,
            "body": base64_encode(&request.body, Base64Alphabet::Standard),
            "timeout_ms": request.timeout_ms,
            "retries": request.retries,
        });
        Ok(self.begin(|operation| WorkerFrame::Fetch { operation, request: request.to_string().into() }))
    }

    fn flow(&mut self) -> Option<&mut dyn Flow> {
        let is_workflow = self.start.kind == AttemptKind::Workflow;
        is_workflow.then_some(self as &mut dyn Flow)
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.start.now_ms)
    }

    fn random(&mut self) -> u64 {
        self.draws += 1;
        let seed = self.start.seed.iter().fold(0, |seed, byte| mix(seed ^ u64::from(*byte)));
        mix(seed ^ self.draws)
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        let level = match level {
            LogLevel::Debug => 0,
            LogLevel::Info => 1,
            LogLevel::Warn => 2,
            LogLevel::Error => 3,
        };
        self.frames.push(WorkerFrame::Log { level, line: line.to_owned() });
    }
}

impl Flow for FrameHost<'_> {
    fn sleep(&mut self, delay_ms: u64) -> Result<OperationId, Error> {
        Ok(self.begin(|operation| WorkerFrame::Sleep { operation, delay_ms }))
    }

    fn wait(&mut self, name: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        Ok(self.begin(|operation| WorkerFrame::Wait { operation, name: name.to_owned(), timeout_ms }))
    }

    fn result(&mut self, invocation: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        Ok(self.begin(|operation| WorkerFrame::Await { operation, invocation: invocation.to_owned(), timeout_ms }))
    }

    fn retry_next(&mut self, options: RetryOptions) {
        let attempts = options.attempts.map(|attempts| match attempts {
            Attempts::Count(count) => Json::from(count),
            Attempts::Unlimited(_) => Json::from("unlimited"),
        });
        let RetryOptions { first_ms, longest_ms, .. } = options;
        let policy = json!({ "attempts": attempts, "first_ms": first_ms, "longest_ms": longest_ms });
        self.policy = policy.to_string().into();
    }

    fn begin_step(&mut self, name: &str) -> Result<StepStart, Error> {
        let (operation, policy) = (self.operation(), std::mem::take(&mut self.policy));
        self.frames.push(WorkerFrame::Step { operation, name: name.to_owned(), policy });
        let (place, _, result) = self.at_once(operation)?;
        // What comes next of it is for the script to wait for.
        self.open.insert(operation);
        if matches!(result, Ok(FrameValue::Raw(nothing)) if nothing.is_empty()) {
            self.taken.insert(place);
            return Ok(StepStart::Run(OperationId(operation)));
        }
        Ok(StepStart::Known(OperationId(operation)))
    }

    fn end_step(&mut self, operation: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        let result = result.map(FrameValue::Json).map_err(as_frame);
        self.frames.push(WorkerFrame::StepEnd { operation: operation.0, result });
        Ok(())
    }

    fn within_step(&mut self, _step: Option<OperationId>) {}

    fn compensate(&mut self, call: NestedCall) -> Result<(), Error> {
        let target = self.target(call);
        self.frames.push(WorkerFrame::Compensate { target });
        Ok(())
    }

    fn invocation(&self) -> String {
        self.start.invocation.clone()
    }
}
