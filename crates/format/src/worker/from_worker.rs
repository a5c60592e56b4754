//! Frames that a worker sends.

use bytes::Bytes;

use super::header::put_frame;
use super::payload::{PayloadReader, put_bytes, put_error, put_length, put_result, put_value};
use super::{FrameError, FrameHeader, FrameResult, FrameValue, WorkerFrameError};

pub(super) const GET: u8 = 0x20;
const SCAN: u8 = 0x21;
const SET: u8 = 0x22;
const DELETE: u8 = 0x23;
const CALL: u8 = 0x24;
const SEND: u8 = 0x25;
const SIGNAL: u8 = 0x26;
const FETCH: u8 = 0x27;
const SLEEP: u8 = 0x28;
const WAIT: u8 = 0x29;
const STEP: u8 = 0x2A;
const STEP_END: u8 = 0x2B;
const COMPENSATE: u8 = 0x2C;
const RECORD: u8 = 0x2D;
const LOG: u8 = 0x2E;
const AWAIT: u8 = 0x2F;
pub(super) const OUTPUT: u8 = 0x30;
pub(super) const FAILURE: u8 = 0x31;
pub(super) const SUSPEND: u8 = 0x32;
pub(super) const HEARTBEAT: u8 = 0x33;
pub(super) const RESUMED: u8 = 0x34;
const HELLO: u8 = 0x35;
const OBJECT: u8 = 0x36;
pub(super) const DRAIN: u8 = 0x37;

/// Of FAILURE.
const TERMINAL: u8 = 1;
/// Of SEND: the sender chose the id of the workflow.
const HAS_ID: u8 = 1;
const HAS_POLICY: u8 = 1;

/// What a call or message is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFrame {
    /// The service, of the worker's own app.
    pub service: String,
    /// The entity's key.
    pub key: Bytes,
    /// The handler.
    pub handler: String,
    /// JSON text.
    pub input: Bytes,
}

/// A handler failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureFrame {
    /// Whether to try again is in vain.
    pub is_terminal: bool,
    /// How.
    pub error: FrameError,
    /// Where, for a person.
    pub trace: String,
}

/// A frame from a worker. `operation` is the worker's number for what it will get a RESULT of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table in docs/internals/worker-protocol.md")]
pub enum WorkerFrame {
    Get { operation: u32, field: Bytes },
    Scan { operation: u32, prefix: Bytes, after: Option<Bytes>, limit: u32 },
    Set { field: Bytes, value: FrameValue },
    Delete { field: Bytes },
    Call { operation: u32, target: TargetFrame, policy: Bytes },
    Send { operation: u32, target: TargetFrame, delay_ms: u64, id: Option<String> },
    Signal { invocation: String, name: String, payload: Bytes },
    Fetch { operation: u32, request: Bytes },
    Sleep { operation: u32, delay_ms: u64 },
    Wait { operation: u32, name: String, timeout_ms: Option<u64> },
    Step { operation: u32, name: String, policy: Bytes },
    StepEnd { operation: u32, result: FrameResult },
    Compensate { target: TargetFrame },
    Record { operation: u32, type_name: String, id: Bytes, request: Bytes },
    Log { level: u8, line: String },
    Await { operation: u32, invocation: String, timeout_ms: Option<u64> },
    Output(FrameValue),
    Failure(FailureFrame),
    Suspend { operations: Vec<u32> },
    Heartbeat,
    Resumed { frames: u32, checksum: u32 },
    Hello { discovery: Bytes },
    Object { operation: u32, bucket: String, key: String, request: Bytes, body: Bytes },
    Drain,
}

fn put_parts<const N: usize>(out: &mut Vec<u8>, parts: [&[u8]; N]) {
    parts.into_iter().for_each(|part| put_bytes(out, part));
}

fn put_target(out: &mut Vec<u8>, target: &TargetFrame) {
    put_bytes(out, target.service.as_bytes());
    put_bytes(out, &target.key);
    put_bytes(out, target.handler.as_bytes());
    put_bytes(out, &target.input);
}

fn put_call(out: &mut Vec<u8>, target: &TargetFrame, policy: &[u8]) {
    put_target(out, target);
    if !policy.is_empty() {
        put_bytes(out, policy);
    }
}

fn target(reader: &mut PayloadReader) -> Result<TargetFrame, WorkerFrameError> {
    Ok(TargetFrame { service: reader.text()?, key: reader.bytes()?, handler: reader.text()?, input: reader.bytes()? })
}

fn put_optional(out: &mut Vec<u8>, given: bool, put: impl FnOnce(&mut Vec<u8>)) {
    out.push(u8::from(given));
    if given {
        put(out);
    }
}

impl WorkerFrame {
    fn kind(&self) -> u8 {
        match self {
            Self::Get { .. } => GET,
            Self::Scan { .. } => SCAN,
            Self::Set { .. } => SET,
            Self::Delete { .. } => DELETE,
            Self::Call { .. } => CALL,
            Self::Send { .. } => SEND,
            Self::Signal { .. } => SIGNAL,
            Self::Fetch { .. } => FETCH,
            Self::Sleep { .. } => SLEEP,
            Self::Wait { .. } => WAIT,
            Self::Step { .. } => STEP,
            Self::StepEnd { .. } => STEP_END,
            Self::Compensate { .. } => COMPENSATE,
            Self::Record { .. } => RECORD,
            Self::Log { .. } => LOG,
            Self::Await { .. } => AWAIT,
            Self::Output(_) => OUTPUT,
            Self::Failure(_) => FAILURE,
            Self::Suspend { .. } => SUSPEND,
            Self::Heartbeat => HEARTBEAT,
            Self::Resumed { .. } => RESUMED,
            Self::Hello { .. } => HELLO,
            Self::Object { .. } => OBJECT,
            Self::Drain => DRAIN,
        }
    }

    /// The operation it asks for, of those with a RESULT.
    #[must_use]
    pub fn operation(&self) -> Option<u32> {
        match self {
            Self::Get { operation, .. }
            | Self::Scan { operation, .. }
            | Self::Call { operation, .. }
            | Self::Send { operation, .. }
            | Self::Fetch { operation, .. }
            | Self::Sleep { operation, .. }
            | Self::Wait { operation, .. }
            | Self::Await { operation, .. }
            | Self::Step { operation, .. }
            | Self::Record { operation, .. }
            | Self::Object { operation, .. } => Some(*operation),
            _ => None,
        }
    }

    /// Appends the frame, with stream 0.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = match self {
            Self::Failure(FailureFrame { is_terminal: true, .. }) => TERMINAL,
            Self::Send { id: Some(_), .. } => HAS_ID,
            Self::Call { policy, .. } if !policy.is_empty() => HAS_POLICY,
            _ => 0,
        };
        put_frame(out, self.kind(), flags, |out| {
            if let Some(operation) = self.operation() {
                out.extend_from_slice(&operation.to_be_bytes());
            }
            self.encode_rest(out);
        });
    }

    fn encode_rest(&self, out: &mut Vec<u8>) {
        match self {
            Self::Get { field, .. } | Self::Delete { field } => put_bytes(out, field),
            Self::Scan { prefix, after, limit, .. } => {
                put_bytes(out, prefix);
                put_optional(out, after.is_some(), |out| put_bytes(out, after.as_deref().unwrap_or_default()));
                out.extend_from_slice(&limit.to_be_bytes());
            }
            Self::Set { field, value } => {
                put_bytes(out, field);
                put_value(out, value);
            }
            Self::Compensate { target } => put_target(out, target),
            Self::Call { target, policy, .. } => put_call(out, target, policy),
            Self::Send { target, delay_ms, id, .. } => {
                put_target(out, target);
                out.extend_from_slice(&delay_ms.to_be_bytes());
                id.iter().for_each(|id| put_bytes(out, id.as_bytes()));
            }
            Self::Signal { invocation, name, payload } => {
                put_bytes(out, invocation.as_bytes());
                put_bytes(out, name.as_bytes());
                put_bytes(out, payload);
            }
            Self::Fetch { request, .. } => put_bytes(out, request),
            Self::Sleep { delay_ms, .. } => out.extend_from_slice(&delay_ms.to_be_bytes()),
            Self::Wait { name: text, timeout_ms, .. } | Self::Await { invocation: text, timeout_ms, .. } => {
                put_bytes(out, text.as_bytes());
                let timeout_ms = *timeout_ms;
                put_optional(out, timeout_ms.is_some(), |out| {
                    out.extend_from_slice(&timeout_ms.unwrap_or_default().to_be_bytes());
                });
            }
            Self::Step { name, policy, .. } => {
                put_bytes(out, name.as_bytes());
                put_bytes(out, policy);
            }
            Self::StepEnd { operation, result } => {
                out.extend_from_slice(&operation.to_be_bytes());
                put_result(out, result);
            }
            Self::Record { type_name, id, request, .. } => {
                put_parts(out, [type_name.as_bytes(), id, request]);
            }
            Self::Log { level, line } => {
                out.push(*level);
                put_bytes(out, line.as_bytes());
            }
            Self::Output(value) => put_value(out, value),
            Self::Failure(failure) => {
                put_error(out, &failure.error);
                put_bytes(out, failure.trace.as_bytes());
            }
            Self::Suspend { operations } => {
                put_length(out, operations.len());
                operations.iter().for_each(|operation| out.extend_from_slice(&operation.to_be_bytes()));
            }
            Self::Heartbeat | Self::Drain => {}
            Self::Resumed { frames, checksum } => {
                out.extend_from_slice(&frames.to_be_bytes());
                out.extend_from_slice(&checksum.to_be_bytes());
            }
            Self::Hello { discovery } => put_bytes(out, discovery),
            Self::Object { bucket, key, request, body, .. } => {
                put_parts(out, [bucket.as_bytes(), key.as_bytes(), request, body]);
            }
        }
    }

    /// Reads the payload that came with `header`.
    ///
    /// # Errors
    /// It is not such a frame.
    pub fn decode(header: FrameHeader, payload: Bytes) -> Result<Self, WorkerFrameError> {
        if payload.len() != header.payload_bytes as usize {
            return Err(WorkerFrameError::Length);
        }
        let known = match header.kind {
            FAILURE => TERMINAL,
            SEND => HAS_ID,
            CALL => HAS_POLICY,
            _ => 0,
        };
        if header.flags & !known != 0 {
            return Err(WorkerFrameError::Flags(header.flags));
        }
        let mut reader = PayloadReader::new(payload);
        let frame = read_frame(header, &mut reader)?;
        reader.end()?;
        Ok(frame)
    }
}

fn read_frame(header: FrameHeader, reader: &mut PayloadReader) -> Result<WorkerFrame, WorkerFrameError> {
    Ok(match header.kind {
        GET => WorkerFrame::Get { operation: reader.u32()?, field: reader.bytes()? },
        SCAN => {
            let (operation, prefix) = (reader.u32()?, reader.bytes()?);
            let after = reader.optional(PayloadReader::bytes)?;
            WorkerFrame::Scan { operation, prefix, after, limit: reader.u32()? }
        }
        SET => WorkerFrame::Set { field: reader.bytes()?, value: reader.value()? },
        DELETE => WorkerFrame::Delete { field: reader.bytes()? },
        CALL => {
            let (operation, target) = (reader.u32()?, target(reader)?);
            let policy = (header.flags & HAS_POLICY != 0).then(|| reader.bytes()).transpose()?;
            WorkerFrame::Call { operation, target, policy: policy.unwrap_or_default() }
        }
        SEND => {
            let (operation, target, delay_ms) = (reader.u32()?, target(reader)?, reader.u64()?);
            let id = (header.flags & HAS_ID != 0).then(|| reader.text()).transpose()?;
            WorkerFrame::Send { operation, target, delay_ms, id }
        }
        SIGNAL => WorkerFrame::Signal { invocation: reader.text()?, name: reader.text()?, payload: reader.bytes()? },
        FETCH => WorkerFrame::Fetch { operation: reader.u32()?, request: reader.bytes()? },
        SLEEP => WorkerFrame::Sleep { operation: reader.u32()?, delay_ms: reader.u64()? },
        WAIT => {
            let (operation, name) = (reader.u32()?, reader.text()?);
            WorkerFrame::Wait { operation, name, timeout_ms: reader.optional(PayloadReader::u64)? }
        }
        AWAIT => {
            let (operation, invocation) = (reader.u32()?, reader.text()?);
            WorkerFrame::Await { operation, invocation, timeout_ms: reader.optional(PayloadReader::u64)? }
        }
        STEP => WorkerFrame::Step { operation: reader.u32()?, name: reader.text()?, policy: reader.bytes()? },
        STEP_END => WorkerFrame::StepEnd { operation: reader.u32()?, result: reader.result()? },
        COMPENSATE => WorkerFrame::Compensate { target: target(reader)? },
        RECORD => {
            let (operation, type_name) = (reader.u32()?, reader.text()?);
            WorkerFrame::Record { operation, type_name, id: reader.bytes()?, request: reader.bytes()? }
        }
        LOG => match reader.byte()? {
            level @ 0..=3 => WorkerFrame::Log { level, line: reader.text()? },
            level => return Err(WorkerFrameError::Form(level)),
        },
        OUTPUT => WorkerFrame::Output(reader.value()?),
        FAILURE => {
            let is_terminal = header.flags & TERMINAL != 0;
            WorkerFrame::Failure(FailureFrame { is_terminal, error: reader.error()?, trace: reader.text()? })
        }
        SUSPEND => {
            let count = reader.count(4)?;
            let operations = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
            WorkerFrame::Suspend { operations }
        }
        HEARTBEAT => WorkerFrame::Heartbeat,
        RESUMED => WorkerFrame::Resumed { frames: reader.u32()?, checksum: reader.u32()? },
        HELLO => WorkerFrame::Hello { discovery: reader.bytes()? },
        OBJECT => {
            let (operation, bucket, key) = (reader.u32()?, reader.text()?, reader.text()?);
            WorkerFrame::Object { operation, bucket, key, request: reader.bytes()?, body: reader.bytes()? }
        }
        DRAIN => WorkerFrame::Drain,
        kind => return Err(WorkerFrameError::Kind(kind)),
    })
}
