//! A host for workflows. It notes every result in a journal. A run can be cut after any of its resumes. An activation
//! that starts anew is answered from the journal until that ends.
//!
//! An operation's place is its number among the operations of the code that began it: of the
//! workflow, or of a step inside it. So operations of a step whose result is known, which are
//! never begun again, do not shift those behind it.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_base::{Error, ErrorCode, UnixMillis, Value};
use millrace_func::{
    ActivationId, BuiltInCall, Engine, FetchRequest, Flow, Host, LogLevel, Message, NestedCall, Offload, OperationId,
    Output, RetryOptions, ScanRequest, Start, StepStart, TurnResult,
};

use super::{RecordCall, State, World};

pub const INVOCATION: &str = "invocation-1";

/// Numbers from the workflow down to the operation.
pub type OperationPath = Vec<u32>;

/// What is known about one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub what: String,
    pub result: Option<Result<Bytes, Error>>,
}

/// All that outlives an activation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    pub entries: BTreeMap<OperationPath, Entry>,
    /// The places resumed, in order.
    pub resumes: Vec<OperationPath>,
}

enum Work {
    Call(NestedCall),
    Record(RecordCall),
    Offload(Offload),
    Fetch(FetchRequest),
    Sleep,
    Wait(String, bool),
    Step,
}

/// What lives as long as an activation.
#[derive(Default)]
struct Run {
    open: BTreeMap<OperationId, (OperationPath, Work)>,
    steps: BTreeMap<OperationId, OperationPath>,
    /// Steps whose result was known when they were begun.
    known: Vec<OperationPath>,
    counts: BTreeMap<OperationPath, u32>,
    scope: OperationPath,
    operations: u32,
    seed: u64,
    compensations: Vec<NestedCall>,
}

struct WorkflowHost<'a> {
    state: &'a mut State,
    journal: &'a mut Journal,
    run: &'a mut Run,
}

fn refuse<T>() -> Result<T, Error> {
    Err(Error::new(ErrorCode::FunctionFailed, "a workflow changes state through the handlers it calls"))
}

impl WorkflowHost<'_> {
    fn begin(&mut self, what: String, work: Work) -> Result<OperationId, Error> {
        let count = self.run.counts.entry(self.run.scope.clone()).or_default();
        let mut place = self.run.scope.clone();
        place.push(*count);
        *count += 1;
        let entry = self.journal.entries.entry(place.clone()).or_insert(Entry { what: what.clone(), result: None });
        if entry.what != what {
            let message = format!("{what} at {place:?}, where {} was before", entry.what);
            return Err(Error::new(ErrorCode::Diverged, message));
        }
        self.run.operations += 1;
        let id = OperationId(self.run.operations);
        self.run.open.insert(id, (place, work));
        Ok(id)
    }

    /// Notes what has no result; says whether it was not noted before.
    fn note(&mut self, what: String) -> Result<(OperationPath, bool), Error> {
        let id = self.begin(what, Work::Sleep)?;
        let (place, _) = self.run.open.remove(&id).expect("begun");
        let entry = self.journal.entries.get_mut(&place).expect("noted");
        let is_first = entry.result.replace(Ok(Bytes::new())).is_none();
        Ok((place, is_first))
    }
}

impl Host for WorkflowHost<'_> {
    fn get(&mut self, _: &[u8]) -> Result<Option<&Value>, Error> {
        refuse()
    }

    fn set(&mut self, _: &[u8], _: Value) -> Result<(), Error> {
        refuse()
    }

    fn delete(&mut self, _: &[u8]) -> Result<bool, Error> {
        refuse()
    }

    fn scan(&mut self, _: &ScanRequest) -> Result<Vec<(Vec<u8>, Value)>, Error> {
        refuse()
    }

    fn keys(&mut self, _: u16, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Vec<u8>>, Error> {
        refuse()
    }

    fn operate(&mut self, call: BuiltInCall<'_>) -> Result<OperationId, Error> {
        let asked = RecordCall::new(&call);
        self.begin(format!("{asked:?}"), Work::Record(asked))
    }

    fn call(&mut self, call: NestedCall) -> Result<OperationId, Error> {
        self.begin(format!("{call:?}"), Work::Call(call))
    }

    fn send(&mut self, message: Message) -> Result<Option<String>, Error> {
        let (place, is_first) = self.note(format!("{message:?}"))?;
        if is_first {
            self.state.sent.push(message);
        }
        Ok(Some(format!("sent-{place:?}")))
    }

    fn signal(&mut self, invocation: &str, name: &str, payload: Bytes) -> Result<(), Error> {
        if self.note(format!("signal {name}"))?.1 {
            self.state.signals.push_back((invocation.to_owned(), name.to_owned(), payload));
        }
        Ok(())
    }

    fn offload(&mut self, work: Offload) -> Result<OperationId, Error> {
        self.begin(format!("{work:?}"), Work::Offload(work))
    }

    fn fetch(&mut self, request: FetchRequest) -> Result<OperationId, Error> {
        self.begin(format!("{request:?}"), Work::Fetch(request))
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_123)
    }

    fn random(&mut self) -> u64 {
        self.run.seed = self.run.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.run.seed
    }

    fn log(&mut self, level: LogLevel, line: &str) {
        self.state.logged.push((level, line.to_owned()));
    }

    fn flow(&mut self) -> Option<&mut dyn Flow> {
        Some(self)
    }
}

impl Flow for WorkflowHost<'_> {
    fn sleep(&mut self, delay_ms: u64) -> Result<OperationId, Error> {
        self.begin(format!("sleep {delay_ms}"), Work::Sleep)
    }

    fn wait(&mut self, name: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        self.begin(format!("wait {name} {timeout_ms:?}"), Work::Wait(name.to_owned(), timeout_ms.is_some()))
    }

    fn result(&mut self, invocation: &str, timeout_ms: Option<u64>) -> Result<OperationId, Error> {
        self.begin(
            format!("result {invocation} {timeout_ms:?}"),
            Work::Wait(invocation.to_owned(), timeout_ms.is_some()),
        )
    }

    fn begin_step(&mut self, name: &str) -> Result<StepStart, Error> {
        let id = self.begin(format!("step {name}"), Work::Step)?;
        let place = self.run.open[&id].0.clone();
        if self.journal.entries[&place].result.is_some() {
            self.run.known.push(place);
            return Ok(StepStart::Known(id));
        }
        self.run.steps.insert(id, place);
        Ok(StepStart::Run(id))
    }

    fn end_step(&mut self, operation: OperationId, result: Result<Bytes, Error>) -> Result<(), Error> {
        let place = &self.run.steps[&operation];
        let entry = self.journal.entries.get_mut(place).expect("begun");
        assert_eq!(entry.result, None, "a step ends once");
        entry.result = Some(result);
        Ok(())
    }

    fn within_step(&mut self, step: Option<OperationId>) {
        self.run.scope = step.map_or_else(Vec::new, |step| self.run.steps[&step].clone());
    }

    fn compensate(&mut self, call: NestedCall) -> Result<(), Error> {
        self.run.compensations.push(call);
        Ok(())
    }

    fn invocation(&self) -> String {
        INVOCATION.to_owned()
    }

    fn retry_next(&mut self, _: RetryOptions) {}
}

impl World {
    /// Runs a workflow of the service `s` from its beginning, or from where its journal ends.
    /// `order` chooses among the operations that could end next. `None` when it was cut after
    /// `cut` resumes, counted over the whole journal.
    pub fn workflow(
        &mut self,
        handler: &str,
        input: &str,
        journal: &mut Journal,
        order: u64,
        cut: Option<usize>,
    ) -> Option<Result<String, Error>> {
        let id = self.handler("s", handler);
        let replayed = journal.resumes.clone();
        let mut replayed = replayed.into_iter();
        let mut run = Run::default();
        self.activations += 1;
        let activation = ActivationId(self.activations);
        let start = Start::Handler { id, key: b"k", input: input.as_bytes() };
        let mut host = WorkflowHost { state: &mut self.state, journal, run: &mut run };
        let mut step = self.engine.start(activation, start, &mut host);
        loop {
            if let TurnResult::Done(result) = step {
                return Some(self.workflow_end(result, &run.compensations));
            }
            let next = replayed
                .find(|place| !run.known.iter().any(|step| place.len() > step.len() && place.starts_with(step)));
            let operation = match &next {
                Some(place) => {
                    let open = run.open.iter().find(|(_, (open, _))| open == place);
                    *open.unwrap_or_else(|| panic!("{place:?} was resumed before and is not open now")).0
                }
                None if cut.is_some_and(|cut| journal.resumes.len() >= cut) => {
                    self.engine.cancel(activation);
                    return None;
                }
                None => choose(&run, journal, &self.state, order)?,
            };
            let (place, work) = run.open.remove(&operation).expect("open");
            let known = journal.entries[&place].result.clone();
            let result = known.unwrap_or_else(|| self.perform(work));
            if next.is_none() {
                journal.resumes.push(place.clone());
            }
            journal.entries.get_mut(&place).expect("noted").result = Some(result.clone());
            run.scope.clear();
            let mut host = WorkflowHost { state: &mut self.state, journal, run: &mut run };
            step = self.engine.resume(activation, operation, result, &mut host);
        }
    }

    fn workflow_end(&mut self, result: Result<Output, Error>, compensations: &[NestedCall]) -> Result<String, Error> {
        match result {
            Ok(Output::Value(value)) => Ok(String::from_utf8(value.to_vec()).expect("UTF-8")),
            Ok(Output::Response(_)) => panic!("a workflow gives no response"),
            Err(error) => {
                for call in compensations.iter().rev() {
                    self.call_id(call.handler, &call.key, &call.input).expect("compensates");
                }
                Err(error)
            }
        }
    }

    fn perform(&mut self, work: Work) -> Result<Bytes, Error> {
        match work {
            Work::Call(call) => self.call_as(call),
            Work::Record(asked) => self.state.record(asked),
            Work::Offload(work) => work.run(),
            Work::Fetch(request) => self.state.fetch(request),
            Work::Sleep => Ok(Bytes::from_static(b"null")),
            Work::Wait(name, _) => match self.state.signals.iter().position(|signal| signal.1 == name) {
                Some(index) => Ok(self.state.signals.remove(index).expect("there").2),
                None => Err(Error::new(ErrorCode::WaitLimit, format!("no signal {name:?} came"))),
            },
            Work::Step => panic!("a step's result comes from its code"),
        }
    }

    fn call_as(&mut self, call: NestedCall) -> Result<Bytes, Error> {
        self.call_id(call.handler, &call.key, &call.input).map(Bytes::from)
    }
}

/// An operation that can end now; `None` when the workflow waits for ever.
fn choose(run: &Run, journal: &Journal, state: &State, order: u64) -> Option<OperationId> {
    let mut ready: Vec<OperationId> = Vec::new();
    for (id, (place, work)) in &run.open {
        let is_ready = match work {
            Work::Step => journal.entries[place].result.is_some(),
            Work::Wait(name, _) => state.signals.iter().any(|signal| signal.1 == *name),
            _ => true,
        };
        ready.extend(is_ready.then_some(*id));
    }
    if ready.is_empty() {
        let timed_out = run.open.iter().find(|(_, (_, work))| matches!(work, Work::Wait(_, true)));
        return timed_out.map(|(id, _)| *id);
    }
    // Order 0 takes them as they were begun.
    let mixed = (order * (journal.resumes.len() as u64 + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    Some(ready[mixed as usize % ready.len()])
}

/// Runs a workflow whole, and then once for each of its resumes: cut there, and begun again from
/// its journal, in the same isolate and in a fresh one. All must end the same, with the same
/// journal and the same state. Gives the result and the world of the whole run.
pub fn every_cut(make: impl Fn() -> World, handler: &str, input: &str, order: u64) -> (Result<String, Error>, World) {
    let (mut whole, mut journal) = (make(), Journal::default());
    let result = whole.workflow(handler, input, &mut journal, order, None).expect("ends");
    for cut in 0..journal.resumes.len() {
        for is_fresh in [false, true] {
            let (mut world, mut noted) = (make(), Journal::default());
            assert_eq!(world.workflow(handler, input, &mut noted, order, Some(cut)), None, "cut at {cut}");
            assert_eq!(noted.resumes[..], journal.resumes[..cut]);
            if is_fresh {
                world = World { state: world.state, ..make() };
            }
            let again = world.workflow(handler, input, &mut noted, order, None).expect("ends");
            assert_eq!(again, result, "cut at {cut}");
            assert_eq!(noted, journal, "cut at {cut}");
            assert_eq!(world.state.entities, whole.state.entities, "cut at {cut}");
            assert_eq!(world.state.fetched, whole.state.fetched, "cut at {cut}");
            assert_eq!(world.state.sent, whole.state.sent, "cut at {cut}");
            assert_eq!(world.state.signals, whole.state.signals, "cut at {cut}");
        }
    }
    (result, whole)
}
