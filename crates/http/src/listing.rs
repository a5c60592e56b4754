//! Invocations, dead letters and schedules as JSON.
//!
//! Promises: a reply shows at most [`limits::PAGE_BYTES`] of inputs and outputs; what is left out
//! is replaced by its length, and a page of one item shows everything but the largest journals.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Response, StatusCode};
use millrace_api::{DeadLetter, Failure, Invocation, InvocationStatus, JournalStep, Page, Schedule};
use millrace_base::{Error, ErrorCode, limits};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body::ReplyBody;
use crate::problem::Problem;
use crate::reply;

type Reply = Result<Response<ReplyBody>, Error>;

/// What may still be shown of inputs and outputs.
struct Room(usize);

/// A JSON text, or how long it is.
#[derive(Clone, Copy, Default)]
struct Shown<'a> {
    text: Option<&'a RawValue>,
    bytes: Option<usize>,
}

impl Room {
    fn new() -> Self {
        Self(limits::PAGE_BYTES)
    }

    fn show<'a>(&mut self, text: &'a Bytes, what: &str) -> Result<Shown<'a>, Error> {
        let Some(left) = self.0.checked_sub(text.len()) else {
            return Ok(Shown { text: None, bytes: Some(text.len()) });
        };
        self.0 = left;
        let text: &[u8] = if text.is_empty() { b"null" } else { text };
        let text = serde_json::from_slice(text)
            .map_err(|error| Error::new(ErrorCode::Internal, format!("the {what} is not JSON: {error}")))?;
        Ok(Shown { text: Some(text), bytes: None })
    }
}

/// Text where it is UTF-8, as binary values of state otherwise.
#[derive(Serialize)]
#[serde(untagged)]
enum KeyBody<'a> {
    Text(&'a str),
    Binary { base64: String },
}

impl<'a> KeyBody<'a> {
    fn new(key: &'a [u8]) -> Self {
        std::str::from_utf8(key).map_or_else(|_| Self::Binary { base64: STANDARD.encode(key) }, Self::Text)
    }
}

#[derive(Serialize)]
struct InvocationBody<'a> {
    id: &'a str,
    status: InvocationStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    began_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<FailureBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<Vec<StepBody<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'a [String]>,
}

#[derive(Serialize)]
struct FailureBody<'a> {
    operation: u32,
    kind: &'a str,
    name: &'a str,
    attempts: u32,
    failed_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try_ms: Option<u64>,
    error: Problem<'a>,
}

impl<'a> FailureBody<'a> {
    fn new(failure: &'a Failure) -> Self {
        let Failure { operation, kind, name, attempts, failed_ms, next_try_ms, error } = failure;
        let (operation, attempts, failed_ms, next_try_ms) = (*operation, *attempts, *failed_ms, *next_try_ms);
        Self { operation, kind, name, attempts, failed_ms, next_try_ms, error: Problem::without_payload(error) }
    }
}

#[derive(Serialize)]
struct StepBody<'a> {
    operation: u32,
    kind: &'a str,
    name: &'a str,
    ended_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem<'a>>,
}

impl<'a> InvocationBody<'a> {
    /// What a list shows of it.
    fn summary(invocation: &'a Invocation) -> Self {
        let workflow = invocation.workflow.as_ref();
        let target = workflow.map(|workflow| &workflow.target);
        Self {
            id: &invocation.id,
            status: invocation.status,
            app: target.map(|target| target.app.as_str()),
            service: target.map(|target| target.service.as_str()),
            key: target.map(|target| KeyBody::new(&target.key)),
            handler: target.map(|target| target.handler.as_str()),
            began_ms: workflow.and_then(|workflow| workflow.began_ms),
            due_ms: workflow.and_then(|workflow| workflow.due_ms),
            input: None,
            input_bytes: None,
            output: None,
            output_bytes: None,
            error: invocation.error.as_ref().map(Problem::without_payload),
            failures: invocation.failures.iter().map(FailureBody::new).collect(),
            journal: None,
            waits_for: None,
        }
    }

    fn whole(invocation: &'a Invocation) -> Result<Self, Error> {
        let mut room = Room::new();
        let mut body = Self::summary(invocation);
        body.error = invocation.error.as_ref().map(Problem::new);
        // The output first: it is what most ask for.
        if let Some(output) = &invocation.output {
            let output = room.show(output, "invocation's output")?;
            (body.output, body.output_bytes) = (output.text, output.bytes);
        }
        if let Some(workflow) = &invocation.workflow {
            let input = room.show(&workflow.input, "invocation's input")?;
            (body.input, body.input_bytes) = (input.text, input.bytes);
            let steps: Result<_, _> = workflow.journal.iter().map(|step| StepBody::new(step, &mut room)).collect();
            body.journal = Some(steps?);
            body.waits_for = Some(&workflow.waits_for);
        }
        Ok(body)
    }
}

impl<'a> StepBody<'a> {
    fn new(step: &'a JournalStep, room: &mut Room) -> Result<Self, Error> {
        let output = match &step.result {
            Ok(output) => room.show(output, "step's output")?,
            Err(_) => Shown::default(),
        };
        Ok(Self {
            operation: step.operation,
            kind: step.kind,
            name: &step.name,
            ended_ms: step.ended_ms,
            output: output.text,
            output_bytes: output.bytes,
            error: step.result.as_ref().err().map(Problem::new),
        })
    }
}

/// What became of an invocation.
pub(crate) fn invocation(invocation: &Invocation) -> Reply {
    reply::json_value(StatusCode::OK, &InvocationBody::whole(invocation)?)
}

/// A page of workflows.
pub(crate) fn invocations(page: &Page<Invocation>) -> Reply {
    #[derive(Serialize)]
    struct Body<'a> {
        invocations: Vec<InvocationBody<'a>>,
        next: Option<&'a str>,
    }
    let invocations = page.items.iter().map(InvocationBody::summary).collect();
    reply::json_value(StatusCode::OK, &Body { invocations, next: page.next.as_deref() })
}

#[derive(Serialize)]
struct DeadLetterBody<'a> {
    id: &'a str,
    app: &'a str,
    service: &'a str,
    key: KeyBody<'a>,
    handler: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_bytes: Option<usize>,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Problem<'a>>,
}

impl<'a> DeadLetterBody<'a> {
    fn new(dead_letter: &'a DeadLetter, room: &mut Room) -> Result<Self, Error> {
        let input = room.show(&dead_letter.input, "dead letter's input")?;
        Ok(Self {
            id: &dead_letter.id,
            app: &dead_letter.target.app,
            service: &dead_letter.target.service,
            key: KeyBody::new(&dead_letter.target.key),
            handler: &dead_letter.target.handler,
            input: input.text,
            input_bytes: input.bytes,
            attempts: dead_letter.attempts,
            next_try_ms: dead_letter.next_try_ms,
            error: dead_letter.error.as_ref().map(Problem::without_payload),
        })
    }
}

/// A page of dead letters.
pub(crate) fn dead_letters(page: &Page<DeadLetter>) -> Reply {
    #[derive(Serialize)]
    struct Body<'a> {
        dead_letters: Vec<DeadLetterBody<'a>>,
        next: Option<&'a str>,
    }
    let mut room = Room::new();
    let dead_letters: Result<_, _> =
        page.items.iter().map(|dead_letter| DeadLetterBody::new(dead_letter, &mut room)).collect();
    reply::json_value(StatusCode::OK, &Body { dead_letters: dead_letters?, next: page.next.as_deref() })
}

/// A page of schedules.
pub(crate) fn schedules(page: &Page<Schedule>) -> Reply {
    #[derive(Serialize)]
    struct Item<'a> {
        app: &'a str,
        service: &'a str,
        name: &'a str,
        key: KeyBody<'a>,
        handler: &'a str,
        cron: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        due_ms: Option<u64>,
    }
    #[derive(Serialize)]
    struct Body<'a> {
        schedules: Vec<Item<'a>>,
        next: Option<&'a str>,
    }
    fn item(schedule: &Schedule) -> Item<'_> {
        Item {
            app: &schedule.target.app,
            service: &schedule.target.service,
            name: &schedule.name,
            key: KeyBody::new(&schedule.target.key),
            handler: &schedule.target.handler,
            cron: &schedule.cron,
            due_ms: schedule.due_ms,
        }
    }
    let schedules = page.items.iter().map(item).collect();
    reply::json_value(StatusCode::OK, &Body { schedules, next: page.next.as_deref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_replaced_by_its_length() {
        let half = Bytes::from(format!("\"{}\"", "x".repeat(limits::PAGE_BYTES / 2 - 2)));
        let mut room = Room::new();
        for _ in 0..2 {
            let shown = room.show(&half, "text").expect("JSON");
            assert_eq!((shown.text.map(|text| text.get().len()), shown.bytes), (Some(half.len()), None));
        }
        let small = Bytes::from_static(b"1");
        let shown = room.show(&small, "text").expect("no room");
        assert_eq!((shown.text.is_some(), shown.bytes), (false, Some(1)));
        assert!(Room::new().show(&Bytes::from_static(b"{"), "text").is_err());
    }

    #[test]
    fn a_key_is_text_or_base64() {
        let shown = |key: &[u8]| serde_json::to_value(KeyBody::new(key)).expect("JSON");
        assert_eq!(shown("ä/b".as_bytes()), "ä/b");
        assert_eq!(shown(b"\xff\x00"), serde_json::json!({ "base64": "/wA=" }));
    }
}
