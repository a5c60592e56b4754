//! One handler, from START to its end, as a server drives it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_format::worker::{
    AttemptKind, FailureFrame, FrameError, FrameHeader, FrameResult, FrameValue, ServerFrame, StartFrame, TurnReader,
    WorkerFrame, ends_turn,
};
use serde_json::Value;

use crate::bench::{Bench, SERVICE};
use crate::transport::Talk;

/// A scene takes a few turns. A worker that suspends for ever is wrong.
const TURNS: u32 = 64;

/// The fields of the scene's entity.
pub(crate) type Fields = BTreeMap<Bytes, FrameValue>;

/// What a case says to an operation. It may change the entity as a callee would. `None`: the case expects no such operation.
pub(crate) type Answer<'a> = &'a mut dyn FnMut(&WorkerFrame, &mut Fields) -> Option<FrameResult>;

/// What the scene's server does between turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Goes on with the attempt.
    Same,
    /// Asks another worker, which knows nothing of it: each request has a new attempt token.
    Anew,
    /// Gives one result at a time.
    OneByOne,
    /// Gives the results in the opposite order.
    Reversed,
    /// Loses each first reply.
    Twice,
    /// Has a stream for the attempt.
    Stream,
}

/// A handler and what it is given.
#[derive(Clone)]
pub(crate) struct Scene<'b, 't> {
    bench: &'b Bench<'t>,
    pub start: StartFrame,
    pub fields: Fields,
    pub course: Course,
    /// START has no fields: they are too large together.
    pub is_too_large: bool,
    /// FIELDS voids all that the worker knows.
    pub voids: bool,
}

/// How a handler ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub end: Result<FrameValue, FailureFrame>,
    /// All frames but SUSPEND and RESUMED.
    pub frames: Vec<WorkerFrame>,
    pub fields: Fields,
    pub turns: u32,
}

/// A RESULT with JSON text.
pub(crate) fn json(value: &Value) -> FrameResult {
    Ok(FrameValue::Json(value.to_string().into()))
}

/// A RESULT with an error.
pub(crate) fn error(code: &str, message: &str, detail: &str) -> FrameResult {
    Err(FrameError { code: code.to_owned(), message: message.to_owned(), detail: detail.to_owned().into() })
}

pub(crate) fn no_answer(_: &WorkerFrame, _: &mut Fields) -> Option<FrameResult> {
    None
}

/// What a message shows of something that may be large.
pub(crate) fn shown(thing: &impl std::fmt::Debug) -> String {
    let text = format!("{thing:?}");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl<'b, 't> Scene<'b, 't> {
    pub(crate) fn new(bench: &'b Bench<'t>, handler: &str, input: &Value) -> Self {
        Self::of(bench, AttemptKind::Transaction, handler, input)
    }

    pub(crate) fn query(bench: &'b Bench<'t>, handler: &str, input: &Value) -> Self {
        Self::of(bench, AttemptKind::Query, handler, input)
    }

    pub(crate) fn workflow(bench: &'b Bench<'t>, handler: &str, input: &Value) -> Self {
        let mut scene = Self::of(bench, AttemptKind::Workflow, handler, input);
        scene.start.invocation = "inv-of-a-check".to_owned();
        scene
    }

    pub(crate) fn of(bench: &'b Bench<'t>, kind: AttemptKind, handler: &str, input: &Value) -> Self {
        let start = StartFrame {
            attempt: bench.token(),
            kind,
            deadline_ms: 5_000,
            seen: 0,
            service: SERVICE.to_owned(),
            handler: handler.to_owned(),
            key: if kind == AttemptKind::Route { Bytes::new() } else { Bytes::from_static(b"ann") },
            invocation: String::new(),
            now_ms: 1_700_000_000_123,
            seed: *b"seed of a check.",
            input: input.to_string().into(),
            is_whole: false,
            has_declared: false,
            fields: Vec::new(),
        };
        Self { bench, start, fields: Fields::new(), course: Course::Same, is_too_large: false, voids: false }
    }

    pub(crate) fn course(mut self, course: Course) -> Self {
        self.course = course;
        self
    }

    pub(crate) fn field(mut self, name: &str, value: &Value) -> Self {
        self.fields.insert(name.to_owned().into(), FrameValue::Json(value.to_string().into()));
        self
    }

    /// The fields that START has, as the worker's discovery wants them.
    fn fill_start(&mut self) -> Result<(), String> {
        if self.is_too_large || !matches!(self.start.kind, AttemptKind::Transaction | AttemptKind::Query) {
            return Ok(());
        }
        let service = self.bench.service()?;
        let bytes: usize = self.fields.iter().map(|(name, value)| name.len() + value.content().len()).sum();
        self.start.is_whole = service.whole_up_to_bytes > 0 && bytes as u64 <= service.whole_up_to_bytes;
        self.start.has_declared = true;
        self.start.fields = self.given();
        Ok(())
    }

    fn given(&self) -> Vec<(Bytes, FrameValue)> {
        let declared = self.bench.service().map(|service| service.fields.as_slice()).unwrap_or_default();
        let is_given = |name: &Bytes| self.start.is_whole || declared.iter().any(|one| one.as_bytes() == &name[..]);
        self.fields
            .iter()
            .filter(|(name, _)| is_given(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Runs the handler to its end. GET and SCAN are answered from the fields, all else by `answer`.
    pub(crate) fn run(self, answer: Answer<'_>) -> Result<Done, String> {
        let mut run = Run::new(self)?;
        loop {
            let frames = run.turn()?;
            if let Some(end) = run.take(frames)? {
                let Run { scene, frames, turns, .. } = run;
                return Ok(Done { end, frames, fields: scene.fields, turns });
            }
            run.answer(answer)?;
        }
    }
}

/// A scene that is under way.
pub(crate) struct Run<'b, 't> {
    pub scene: Scene<'b, 't>,
    reader: TurnReader,
    inputs: Vec<u8>,
    operations: u32,
    /// Operations without a RESULT.
    open: BTreeMap<u32, WorkerFrame>,
    /// Steps whose code the worker runs.
    steps: BTreeSet<u32>,
    waiting: Vec<u32>,
    frames: Vec<WorkerFrame>,
    turns: u32,
    /// Of the attempt's stream, and how much of `inputs` was sent on it.
    talk: Option<Box<dyn Talk + 'b>>,
    sent: usize,
    /// What has come of the next turn.
    came: Vec<u8>,
}

impl<'b, 't> Run<'b, 't> {
    /// A run of a scene, before its first turn.
    pub(crate) fn new(mut scene: Scene<'b, 't>) -> Result<Self, String> {
        scene.fill_start()?;
        Ok(Self {
            scene,
            reader: TurnReader::new(Bytes::new()),
            inputs: Vec::new(),
            operations: 0,
            open: BTreeMap::new(),
            steps: BTreeSet::new(),
            waiting: Vec::new(),
            frames: Vec::new(),
            turns: 0,
            talk: None,
            sent: 0,
            came: Vec::new(),
        })
    }

    /// The request for the next turn.
    pub(crate) fn request(&mut self) -> Vec<u8> {
        if self.scene.course == Course::Anew {
            self.scene.start.attempt = self.scene.bench.token();
        }
        self.scene.start.seen = self.reader.frames();
        let mut body = Vec::new();
        ServerFrame::Start(Box::new(self.scene.start.clone())).encode(&mut body);
        body.extend_from_slice(&self.inputs);
        body
    }

    /// One request, and the frames of its reply.
    pub(crate) fn turn(&mut self) -> Result<Vec<WorkerFrame>, String> {
        self.turns += 1;
        if self.turns > TURNS {
            return Err(format!("the handler has not ended after {TURNS} turns"));
        }
        if self.scene.course == Course::Stream {
            let body = self.turn_on_stream()?;
            return self.read(body);
        }
        let body = self.request();
        let reply = self.scene.bench.invoke(self.scene.start.attempt, body.clone())?;
        if reply.status != 200 {
            let said = String::from_utf8_lossy(&reply.body).into_owned();
            return Err(format!("turn {}: status {} and {}", self.turns, reply.status, shown(&said)));
        }
        if self.scene.course == Course::Twice {
            let again = self.scene.bench.invoke(self.scene.start.attempt, body)?;
            if again.body != reply.body {
                return Err(format!("turn {}: the same request gives another reply the second time", self.turns));
            }
        }
        self.read(reply.body)
    }

    /// The bytes of a turn on the attempt's stream.
    fn turn_on_stream(&mut self) -> Result<Bytes, String> {
        match &mut self.talk {
            None => {
                let start = self.request();
                let bench = self.scene.bench;
                let talk = bench.open(bench.begin(self.scene.start.attempt, &start), start.into())?;
                if talk.status() != 200 {
                    return Err(format!("the stream begins with status {}", talk.status()));
                }
                self.talk = Some(talk);
            }
            Some(talk) => talk.send(self.inputs.get(self.sent..).unwrap_or_default().to_vec().into()),
        }
        self.sent = self.inputs.len();
        self.next_turn()
    }

    /// Reads the stream up to the end of a turn.
    fn next_turn(&mut self) -> Result<Bytes, String> {
        let mut at = 0;
        loop {
            let header =
                FrameHeader::read(self.came.get(at..).unwrap_or_default()).map_err(|error| error.to_string())?;
            match header.filter(|header| at + header.frame_bytes() <= self.came.len()) {
                Some(header) if header.stream != 0 => return Err(format!("a frame has the stream {}", header.stream)),
                Some(header) => {
                    at += header.frame_bytes();
                    if ends_turn(header.kind) {
                        let rest = self.came.split_off(at);
                        return Ok(std::mem::replace(&mut self.came, rest).into());
                    }
                }
                None => {
                    let talk = self.talk.as_mut().ok_or("there is no stream")?;
                    match talk.next()? {
                        Some(bytes) => self.came.extend_from_slice(&bytes),
                        None => return Err("the stream ends before the turn does".to_owned()),
                    }
                }
            }
        }
    }

    /// The attempt's stream.
    pub(crate) fn talk(&mut self) -> Result<&mut (dyn Talk + 'b), String> {
        self.talk.as_deref_mut().ok_or_else(|| "there is no stream".to_owned())
    }

    fn read(&mut self, body: Bytes) -> Result<Vec<WorkerFrame>, String> {
        let had = (self.reader.frames(), self.reader.checksum());
        let mut is_due = had.0 > 0 && self.scene.course != Course::Stream;
        self.reader.next_turn(body);
        let mut frames = Vec::new();
        while let Some(frame) = self.reader.next_frame().map_err(|error| format!("turn {}: {error}", self.turns))? {
            match frame {
                WorkerFrame::Resumed { frames, checksum } if is_due && (frames, checksum) == had => {}
                WorkerFrame::Resumed { frames, checksum } => {
                    return Err(format!("turn {}: RESUMED has {:?}, not {had:?}", self.turns, (frames, checksum)));
                }
                _ if is_due => return Err(format!("turn {}: `seen` is {}, and RESUMED is missing", self.turns, had.0)),
                frame => frames.push(frame),
            }
            is_due = false;
        }
        Ok(frames)
    }

    /// Judges the frames of a turn and applies its writes. Gives the handler's end, if it ended.
    pub(crate) fn take(
        &mut self,
        frames: Vec<WorkerFrame>,
    ) -> Result<Option<Result<FrameValue, FailureFrame>>, String> {
        let mut end = None;
        for frame in frames {
            self.judge(&frame)?;
            match &frame {
                WorkerFrame::Set { field, value } => {
                    self.scene.fields.insert(field.clone(), value.clone());
                }
                WorkerFrame::Delete { field } => {
                    self.scene.fields.remove(field);
                }
                WorkerFrame::Output(value) => end = Some(Ok(value.clone())),
                WorkerFrame::Failure(failure) => end = Some(Err(failure.clone())),
                WorkerFrame::Suspend { operations } => {
                    self.waiting.clone_from(operations);
                    continue;
                }
                _ => {}
            }
            self.frames.push(frame);
        }
        Ok(end)
    }

    fn judge(&mut self, frame: &WorkerFrame) -> Result<(), String> {
        let kind = self.scene.start.kind;
        let fits = match frame {
            WorkerFrame::Set { .. } | WorkerFrame::Delete { .. } => kind == AttemptKind::Transaction,
            WorkerFrame::Get { .. } | WorkerFrame::Scan { .. } => {
                matches!(kind, AttemptKind::Transaction | AttemptKind::Query)
            }
            WorkerFrame::Sleep { .. }
            | WorkerFrame::Wait { .. }
            | WorkerFrame::Step { .. }
            | WorkerFrame::StepEnd { .. }
            | WorkerFrame::Compensate { .. } => kind == AttemptKind::Workflow,
            WorkerFrame::Hello { .. } | WorkerFrame::Resumed { .. } => false,
            _ => true,
        };
        if !fits {
            return Err(format!("a handler of the kind {kind:?} sends {}", shown(frame)));
        }
        match frame {
            WorkerFrame::StepEnd { operation, .. } => {
                if !self.steps.remove(operation) {
                    return Err(format!("STEP_END names the operation {operation}, whose code nobody asked for"));
                }
                self.open.insert(*operation, frame.clone());
            }
            WorkerFrame::Suspend { operations } => {
                let named: BTreeSet<&u32> = operations.iter().collect();
                if named.is_empty() || named.len() < operations.len() {
                    return Err(format!("SUSPEND names the operations {operations:?}"));
                }
                if let Some(unknown) = operations.iter().find(|operation| !self.open.contains_key(operation)) {
                    return Err(format!("SUSPEND names the operation {unknown}, which has a RESULT or never was"));
                }
            }
            _ => {}
        }
        if let Some(operation) = frame.operation() {
            self.operations += 1;
            if operation != self.operations {
                return Err(format!("operation {operation} comes where {} is due", self.operations));
            }
            self.open.insert(operation, frame.clone());
        }
        Ok(())
    }

    /// Adds the results that the handler waits for to the next request.
    pub(crate) fn answer(&mut self, answer: Answer<'_>) -> Result<(), String> {
        let mut waiting = std::mem::take(&mut self.waiting);
        match self.scene.course {
            Course::OneByOne => waiting.truncate(1),
            Course::Reversed => waiting.reverse(),
            Course::Same | Course::Anew | Course::Twice | Course::Stream => {}
        }
        for operation in waiting {
            let Some(frame) = self.open.remove(&operation) else { continue };
            let before = self.scene.fields.clone();
            let (result, is_set) = self.result(&frame, answer)?;
            self.tell_of_changes(&before);
            if matches!(frame, WorkerFrame::Step { .. }) && result == Ok(FrameValue::Raw(Bytes::new())) {
                self.steps.insert(operation);
            }
            ServerFrame::Result { operation, is_set, result }.encode(&mut self.inputs);
        }
        Ok(())
    }

    /// The result of an operation; of a GET, whether the field is set.
    fn result(&mut self, frame: &WorkerFrame, answer: Answer<'_>) -> Result<(FrameResult, bool), String> {
        let result = match frame {
            WorkerFrame::Get { field, .. } => {
                let value = self.scene.fields.get(field).cloned();
                let is_set = value.is_some();
                return Ok((Ok(value.unwrap_or(FrameValue::Json(Bytes::from_static(b"null")))), is_set));
            }
            WorkerFrame::Scan { prefix, after, limit, .. } => {
                Some(Ok(FrameValue::Raw(rows(&self.scene.fields, prefix, after.as_ref(), *limit))))
            }
            _ => answer(frame, &mut self.scene.fields),
        };
        result.map(|result| (result, false)).ok_or_else(|| format!("it sends {}", shown(frame)))
    }

    fn tell_of_changes(&mut self, before: &Fields) {
        let now = &self.scene.fields;
        if now == before {
            return;
        }
        let fields = if self.scene.voids {
            self.scene.given().into_iter().map(|(name, value)| (name, Some(value))).collect()
        } else {
            let names: BTreeSet<&Bytes> = before.keys().chain(now.keys()).collect();
            let changed = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
            changed.map(|name| (name.clone(), now.get(name).cloned())).collect()
        };
        ServerFrame::Fields { is_rest_void: self.scene.voids, fields }.encode(&mut self.inputs);
    }
}

/// The RESULT of a SCAN.
fn rows(fields: &Fields, prefix: &Bytes, after: Option<&Bytes>, limit: u32) -> Bytes {
    let is_chosen = |name: &Bytes| name.starts_with(prefix) && after.is_none_or(|after| name > after);
    let chosen: Vec<_> = fields.iter().filter(|(name, _)| is_chosen(name)).take(limit as usize).collect();
    let mut rows = length(chosen.len());
    for (name, value) in chosen {
        rows.extend(length(name.len()));
        rows.extend_from_slice(name);
        rows.push(u8::from(matches!(value, FrameValue::Raw(_))));
        rows.extend(length(value.content().len()));
        rows.extend_from_slice(value.content());
    }
    rows.into()
}

fn length(length: usize) -> Vec<u8> {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes().to_vec()
}

impl Done {
    /// The output's JSON.
    pub(crate) fn output(&self) -> Result<Value, String> {
        match &self.end {
            Ok(FrameValue::Json(text)) => {
                serde_json::from_slice(text).map_err(|error| format!("the output is not JSON: {error}"))
            }
            Ok(FrameValue::Raw(_)) => Err("the output is raw bytes".to_owned()),
            Err(failure) => Err(format!("FAILURE {}: {}", failure.error.code, shown(&failure.error.message))),
        }
    }

    /// Whether the output is this.
    pub(crate) fn gives(&self, expected: &Value) -> Result<(), String> {
        let output = self.output()?;
        if output == *expected { Ok(()) } else { Err(format!("the output is {}, not {expected}", shown(&output))) }
    }

    /// The failure, which has this code.
    pub(crate) fn fails(&self, code: &str) -> Result<&FailureFrame, String> {
        match &self.end {
            Ok(output) => Err(format!("OUTPUT {} instead of a failure", shown(output))),
            Err(failure) if failure.error.code == code => Ok(failure),
            Err(failure) => Err(format!("the failure's code is {:?}, not {code:?}", failure.error.code)),
        }
    }

    /// A field's value at the end.
    pub(crate) fn has(&self, name: &str, expected: Option<&Value>) -> Result<(), String> {
        let text = self.fields.get(name.as_bytes()).map(FrameValue::content);
        let value = text.map(|text| serde_json::from_slice::<Value>(text).unwrap_or_default());
        if value.as_ref() == expected {
            return Ok(());
        }
        Err(format!("the field {name} is {}, not {}", shown(&value), shown(&expected)))
    }

    /// The only frame for which `wanted` gives something.
    pub(crate) fn only<T>(&self, what: &str, wanted: impl Fn(&WorkerFrame) -> Option<T>) -> Result<T, String> {
        let mut found: Vec<T> = self.frames.iter().filter_map(wanted).collect();
        match (found.pop(), found.len()) {
            (Some(one), 0) => Ok(one),
            (one, more) => Err(format!("it sends {} frames {what}, not one", more + usize::from(one.is_some()))),
        }
    }
}

/// That two things are equal.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} is {}, not {}", shown(found), shown(expected))) }
}
